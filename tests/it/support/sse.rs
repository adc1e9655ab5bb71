//! A reader of the event stream as a program would write one: it keeps its id and comes back with it.

use std::time::Duration;

use headwater::cli::sse::{SseEvent, SseParser};
use headwater_events::ids::Position;

use super::world::World;

/// How long a reader waits for the next thing.
const WAIT_LIMIT: Duration = Duration::from_secs(60);

/// An open stream.
pub struct Stream {
    answer: reqwest::Response,
    pub parser: SseParser,
    waiting: std::collections::VecDeque<SseEvent>,
    pub bytes: Vec<u8>,
}

/// The position in an event's id.
pub fn position(event: &SseEvent) -> Position {
    Position::new(event.id.split_once('.').unwrap().1.parse().unwrap())
}

impl Stream {
    /// Opens one.
    pub async fn open(world: &World, bearer: &str, query: &str, last: Option<&str>) -> Self {
        let headers: Vec<(&str, &str)> = last.map(|id| ("last-event-id", id)).into_iter().collect();
        let answer = world.get_with(bearer, &format!("/events/stream{query}"), &headers).await;
        assert_eq!(answer.status(), 200);
        let parser = SseParser::new(last.unwrap_or_default());
        Self { answer, parser, waiting: [].into(), bytes: Vec::new() }
    }

    pub fn header(&self, name: &str) -> &str {
        self.answer.headers().get(name).map(|value| value.to_str().unwrap()).unwrap_or_default()
    }

    /// Reads one more piece; false at the end of the stream. A stream that breaks off is a failure.
    pub async fn read(&mut self) -> bool {
        let piece = tokio::time::timeout(WAIT_LIMIT, self.answer.chunk()).await;
        let Some(piece) = piece.expect("the stream says nothing").unwrap() else { return false };
        self.bytes.extend_from_slice(&piece);
        self.waiting.extend(self.parser.feed(&piece));
        true
    }

    /// The next event; none when the connection was cut: for a reader that was not read from for too long.
    pub async fn next_or_cut(&mut self) -> Option<SseEvent> {
        while self.waiting.is_empty() {
            let piece = tokio::time::timeout(WAIT_LIMIT, self.answer.chunk()).await;
            let piece = piece.expect("the stream says nothing").ok().flatten()?;
            self.bytes.extend_from_slice(&piece);
            self.waiting.extend(self.parser.feed(&piece));
        }
        self.waiting.pop_front()
    }

    /// The next event; none at the end.
    pub async fn next(&mut self) -> Option<SseEvent> {
        // Bookmarks keep coming: the limit is for an event.
        let next = tokio::time::timeout(WAIT_LIMIT, async {
            while self.waiting.is_empty() && self.read().await {}
            self.waiting.pop_front()
        });
        next.await.expect("no event comes")
    }

    /// The next events up to a position.
    pub async fn up_to(&mut self, end: Position) -> Vec<SseEvent> {
        let mut events = Vec::new();
        while events.last().is_none_or(|last| position(last) < end) {
            events.push(self.next().await.expect("the stream ended early"));
        }
        events
    }

    /// Everything to the end of the stream.
    pub async fn rest(&mut self) -> Vec<SseEvent> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await {
            events.push(event);
        }
        events
    }
}
