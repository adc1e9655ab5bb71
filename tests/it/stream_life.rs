//! The life of an event stream: it ends by itself and is gone on with, and many of them share one connection.

use std::time::Duration;

use axum::http::StatusCode;
use headwater::cli::sse::SseParser;
use headwater_events::actor::Caller;
use headwater_events::ids::Position;

use crate::support::sse::{Stream, position};
use crate::support::world::{Runs, World, put_large};

/// A stream ends after its life, in order and without a goodbye, and its reader goes on where it was.
#[tokio::test]
async fn a_stream_that_has_lived_its_time_ends_and_is_gone_on_with() {
    let life = Duration::from_secs(1);
    let world = World::with(Runs::Streams, |config| config.server.stream_life = life).await;
    world.domain("example.com", world.tenant).await;
    let mut last: Option<String> = None;
    let mut seen = Vec::new();
    for n in 0..3 {
        let begun = std::time::Instant::now();
        let query = if n == 0 { "?after=0" } else { "" };
        let mut stream = Stream::open(&world, "system", query, last.as_deref()).await;
        world.submit(Caller::system(), put_large("example.com", n)).await;
        let events = stream.rest().await;
        let lived = begun.elapsed();
        assert!(lived >= life.mul_f64(0.7) && lived < life * 10, "{lived:?}");
        assert!(events.iter().all(|event| event.event != "bye"), "{events:?}");
        let text = String::from_utf8(stream.bytes.clone()).unwrap();
        assert!(
            text.ends_with(&format!("id: {}\n\n", stream.parser.last_event_id())),
            "no place to go on from"
        );
        seen.extend(events.iter().map(position));
        last = Some(stream.parser.last_event_id().to_owned());
    }
    let whole: Vec<Position> = world.whole().await.into_iter().map(|(position, _)| position).collect();
    assert_eq!(seen, whole, "no gap and nothing twice");
}

/// Many streams over one connection of HTTP/2 by prior knowledge: live events, and each ends by itself.
#[tokio::test]
async fn streams_share_a_connection_of_http_2() {
    let world = World::with(Runs::Streams, |config| config.limits.streams_per_token = 100).await;
    world.domain("example.com", world.tenant).await;
    let client = reqwest::Client::builder().no_proxy().http2_prior_knowledge().build().unwrap();
    let url = format!("{}/events/stream?after=0", world.base);
    let mut streams = Vec::new();
    for _ in 0..40 {
        let answer = client.get(&url).bearer_auth("system").send().await.unwrap();
        assert_eq!((answer.status(), answer.version()), (StatusCode::OK, reqwest::Version::HTTP_2));
        streams.push((answer, SseParser::default(), Vec::new()));
    }
    // One of them is left alone, which holds up none of the others.
    let idle = streams.pop();
    for n in 0..5 {
        world.submit(Caller::system(), put_large("example.com", n)).await;
    }
    let whole: Vec<Position> = world.whole().await.into_iter().map(|(position, _)| position).collect();
    for (answer, parser, seen) in &mut streams {
        while seen.len() < whole.len() {
            let piece = tokio::time::timeout(Duration::from_secs(30), answer.chunk()).await;
            let piece = piece.expect("the stream says nothing").unwrap().expect("the stream ended");
            seen.extend(parser.feed(&piece).iter().map(position));
        }
        assert_eq!(*seen, whole);
    }
    drop(idle);
    world.stop.cancel();
    for (answer, parser, _) in &mut streams {
        let mut last = None;
        while let Some(piece) = answer.chunk().await.unwrap() {
            last = parser.feed(&piece).pop().or(last);
        }
        assert_eq!(last.unwrap().event, "bye");
    }
}
