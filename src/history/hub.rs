//! One tailer per process: it reads the log by its cursor and keeps the newest
//! events in a bounded ring, encoded once. A reader has a cursor and a wake-up,
//! never a queue: whoever falls below the ring reads the log itself, by the same
//! cursor, so there is no seam between replay and live.
//!
//! What must hold: the ring is dense and ends at the tail; the changes of rights
//! up to the tail are known before anybody can see that the tail moved.

use super::frames;
use super::rights::{Rights, RightsChange, Seen};
use crate::app::App;
use crate::store::raw::{RawEvent, RawView};
use crate::store::read::{LogReader, PAGE_MAX_EVENTS, ReadError};
use bytes::Bytes;
use headwater_events::actor::ActorKind;
use headwater_events::codec::DecodeError;
use headwater_events::envelope::ClientDigest;
use headwater_events::ids::{DomainId, LogId, Position, StreamRef, TenantId};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, watch};

/// Frames that the ring keeps, at most.
pub const RING_MAX_FRAMES: usize = 16_384;
/// Octets of frames that the ring keeps, at most.
pub const RING_MAX_BYTES: usize = 32 * 1_048_576;
/// Changes of rights that are kept; a reader that is further back reads its rights anew.
const RIGHTS_MAX_CHANGES: usize = 4_096;
/// Pages of the log that are read at once for readers below the ring.
pub const REPLAYS_MAX_COUNT: usize = 8;
/// Clients that are remembered, at most.
const CLIENTS_MAX_COUNT: usize = 10_000;
/// How long they are remembered: what was erased is shown no longer than this.
const CLIENTS_KEEP: Duration = Duration::from_secs(60);
/// How often the log is looked at though nobody woke the tailer.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Pause after an error of the log.
const ERROR_PAUSE: Duration = Duration::from_secs(1);

/// One event, encoded, with what rights and filters look at.
#[derive(Debug)]
pub struct Frame {
    pub(super) position: Position,
    stream: StreamRef,
    domain: Option<(DomainId, Box<str>)>,
    tenant: Option<TenantId>,
    event_type: Box<str>,
    actor_kind: ActorKind,
    /// The SSE block, its client withheld.
    block: Bytes,
    /// Where the client's value stands, and what it is.
    client: Option<(usize, Arc<str>)>,
}

impl Frame {
    /// What rights and filters look at.
    pub fn seen(&self) -> Seen<'_> {
        Seen {
            stream: self.stream,
            domain: self.domain.as_ref().map(|(id, name)| (*id, &**name)),
            tenant: self.tenant,
            event_type: &self.event_type,
            actor_kind: self.actor_kind,
        }
    }

    /// Appends the block, with its client where it may be shown.
    pub fn write(&self, out: &mut Vec<u8>, with_client: bool) {
        match &self.client {
            Some((at, client)) if with_client => {
                out.extend_from_slice(&self.block[..*at]);
                out.extend_from_slice(client.as_bytes());
                out.extend_from_slice(&self.block[at + frames::WITHHELD_BYTES..]);
            }
            _ => out.extend_from_slice(&self.block),
        }
    }
}

/// The end of the log in memory.
#[derive(Debug)]
struct Ring {
    log: Option<(LogId, Arc<str>)>,
    tail: Position,
    frames: VecDeque<Arc<Frame>>,
    bytes: usize,
    rights: VecDeque<(Position, RightsChange)>,
    /// Changes after this position are all in `rights`.
    rights_floor: Position,
}

/// What a reader finds when it looks.
#[derive(Debug)]
pub enum Look {
    /// The log is another one than the reader's.
    OtherLog,
    /// The reader's rights are further back than what is remembered.
    RightsBehind,
    /// There is nothing after the cursor.
    AtTail,
    /// The next frames.
    Frames(Vec<Arc<Frame>>),
    /// The cursor lies below the ring: the log itself has what follows, up to this position.
    Below(Position),
}

/// Where requests came from, as far as it was asked, since a moment.
#[derive(Debug)]
struct Clients {
    known: HashMap<ClientDigest, Option<Arc<str>>>,
    since: Instant,
}

impl Default for Clients {
    fn default() -> Self {
        Self { known: HashMap::new(), since: Instant::now() }
    }
}

/// The tailer's ring and what its readers share.
#[derive(Debug, Clone)]
pub struct Hub(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    max_frames: usize,
    max_bytes: usize,
    ring: RwLock<Ring>,
    tail: watch::Sender<Position>,
    replays: Semaphore,
    clients: Mutex<Clients>,
    streams: Mutex<HashMap<uuid::Uuid, u32>>,
}

impl Default for Hub {
    fn default() -> Self {
        Self::with_ring(RING_MAX_FRAMES, RING_MAX_BYTES)
    }
}

impl Hub {
    /// A hub whose ring has these bounds; what is below it is read from the log.
    pub fn with_ring(max_frames: usize, max_bytes: usize) -> Self {
        let ring = Ring {
            log: None,
            tail: Position::ZERO,
            frames: VecDeque::new(),
            bytes: 0,
            rights: VecDeque::new(),
            rights_floor: Position::ZERO,
        };
        Self(Arc::new(Inner {
            max_frames,
            max_bytes,
            ring: RwLock::new(ring),
            tail: watch::channel(Position::ZERO).0,
            replays: Semaphore::new(REPLAYS_MAX_COUNT),
            clients: Mutex::default(),
            streams: Mutex::default(),
        }))
    }
}

/// Why the tailer cannot go on.
#[derive(Debug, thiserror::Error)]
enum TailError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("the log cannot be read: {0}")]
    Row(#[from] sqlx::Error),
    #[error(transparent)]
    Decode(#[from] DecodeError),
}

/// Frames of a page, and the changes of rights in it.
type Encoded = (Vec<Arc<Frame>>, Vec<(Position, RightsChange)>);

/// Follows the log until the process stops.
pub async fn run(app: App) {
    let hub = app.hub.clone();
    let mut head = app.commit.head().subscribe();
    while !app.stop.is_cancelled() {
        let pause = match hub.follow(&app.log).await {
            Ok(true) => continue,
            Ok(false) => POLL_INTERVAL,
            Err(error) => {
                tracing::error!(%error, "live events wait: the log cannot be followed");
                ERROR_PAUSE
            }
        };
        let tail = hub.tail();
        tokio::select! {
            () = app.stop.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
            _ = head.wait_for(|head| *head > tail), if pause == POLL_INTERVAL => {}
        }
    }
}

impl Hub {
    /// Reads on; true when there may be more.
    async fn follow(&self, log: &LogReader) -> Result<bool, TailError> {
        let (known, tail) = {
            let ring = self.0.ring.read().unwrap_or_else(PoisonError::into_inner);
            (ring.log.clone(), ring.tail)
        };
        let page = match &known {
            Some(_) => log.raw_page(tail, Position::new(i64::MAX), PAGE_MAX_EVENTS).await?,
            None => return self.begin(log).await.map(|()| true),
        };
        if page.events.is_empty() {
            let meta = log.meta().await?;
            if known.is_none_or(|(id, _)| id != meta.log) || meta.head < tail {
                tracing::warn!(log = %meta.log, head = %meta.head, "the log is another one: readers are reset");
                self.begin(log).await?;
            }
            return Ok(false);
        }
        let short = known.map_or_else(|| Arc::from(""), |(_, short)| short);
        self.learn_clients(log, &page.events).await?;
        let (frames, changes) = self.encode(&short, &page.events)?;
        self.extend(frames, changes, page.end);
        Ok(true)
    }

    /// Starts at the head of the log as it is now.
    async fn begin(&self, log: &LogReader) -> Result<(), TailError> {
        let meta = log.meta().await?;
        {
            let mut ring = self.0.ring.write().unwrap_or_else(PoisonError::into_inner);
            *ring = Ring {
                log: Some((meta.log, Arc::from(meta.log.short()))),
                tail: meta.head,
                frames: VecDeque::new(),
                bytes: 0,
                rights: VecDeque::new(),
                rights_floor: meta.head,
            };
        }
        self.0.tail.send_replace(meta.head);
        Ok(())
    }

    fn encode(&self, short: &str, events: &[RawEvent]) -> Result<Encoded, TailError> {
        let mut out = Vec::with_capacity(events.len() * 1_024);
        let mut marks = Vec::with_capacity(events.len());
        let mut changes = Vec::new();
        for event in events {
            let view = event.view()?;
            if let Some(change) = RightsChange::of(&view)? {
                changes.push((view.position, change));
            }
            let begin = out.len();
            let client_at = frames::frame(&mut out, short, &view, None) - begin;
            marks.push((view, begin, client_at));
        }
        let ends: Vec<usize> = marks.iter().skip(1).map(|mark| mark.1).chain([out.len()]).collect();
        let octets = Bytes::from(out);
        let frames = marks.into_iter().zip(ends).map(|((view, begin, client_at), end)| {
            let client =
                view.client.and_then(|digest| self.client(&digest)).map(|client| (client_at, client));
            Arc::new(Frame {
                position: view.position,
                stream: view.stream,
                domain: view.domain.map(|(id, name)| (id, name.into())),
                tenant: view.tenant,
                event_type: view.event_type.into(),
                actor_kind: view.actor_kind,
                block: octets.slice(begin..end),
                client,
            })
        });
        Ok((frames.collect(), changes))
    }

    fn extend(&self, frames: Vec<Arc<Frame>>, changes: Vec<(Position, RightsChange)>, end: Position) {
        {
            let mut ring = self.0.ring.write().unwrap_or_else(PoisonError::into_inner);
            for change in changes {
                ring.rights.push_back(change);
                if ring.rights.len() > RIGHTS_MAX_CHANGES
                    && let Some((gone, _)) = ring.rights.pop_front()
                {
                    ring.rights_floor = gone;
                }
            }
            for frame in frames {
                ring.bytes += frame.block.len();
                ring.frames.push_back(frame);
            }
            while ring.frames.len() > self.0.max_frames || ring.bytes > self.0.max_bytes {
                let Some(gone) = ring.frames.pop_front() else { break };
                ring.bytes -= gone.block.len();
            }
            ring.tail = end;
        }
        self.0.tail.send_replace(end);
    }

    /// The last event that readers can see.
    pub fn tail(&self) -> Position {
        *self.0.tail.borrow()
    }

    /// Wakes at every move of the tail.
    pub fn subscribe(&self) -> watch::Receiver<Position> {
        self.0.tail.subscribe()
    }

    /// The log that is followed; none before the tailer has begun.
    pub fn log(&self) -> Option<(LogId, Arc<str>)> {
        self.0.ring.read().unwrap_or_else(PoisonError::into_inner).log.clone()
    }

    /// Brings a reader's rights up to the tail and gives what follows its cursor, in one look, so that
    /// nothing is given which stands after what the rights know.
    pub fn look(&self, log: LogId, cursor: Position, most_bytes: usize, rights: &mut Rights) -> Look {
        let ring = self.0.ring.read().unwrap_or_else(PoisonError::into_inner);
        if ring.log.as_ref().is_none_or(|(id, _)| *id != log) {
            return Look::OtherLog;
        }
        if rights.at() < ring.rights_floor {
            return Look::RightsBehind;
        }
        if rights.at() < ring.tail {
            let from = ring.rights.partition_point(|(position, _)| *position <= rights.at());
            rights.advance(ring.rights.range(from..).map(|(_, change)| *change), ring.tail);
        }
        if cursor >= ring.tail {
            return Look::AtTail;
        }
        match ring.frames.front() {
            Some(first) if first.position <= cursor.next() => {
                let from = usize::try_from(cursor.get() - first.position.get() + 1).unwrap_or(usize::MAX);
                let mut bytes = 0;
                let within = |frame: &&Arc<Frame>| {
                    let fits = bytes < most_bytes;
                    bytes += frame.block.len();
                    fits
                };
                Look::Frames(ring.frames.iter().skip(from).take_while(within).cloned().collect())
            }
            _ => Look::Below(ring.tail),
        }
    }

    /// A permit to read a page of the log for a reader below the ring.
    pub async fn replay_permit(&self) -> Option<tokio::sync::SemaphorePermit<'_>> {
        // It is never closed.
        self.0.replays.acquire().await.ok()
    }

    /// Reads the clients of a page that are not remembered yet.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn learn_clients(&self, log: &LogReader, events: &[RawEvent]) -> Result<(), ReadError> {
        let mut unknown = Vec::new();
        {
            let mut clients = self.0.clients.lock().unwrap_or_else(PoisonError::into_inner);
            if clients.since.elapsed() >= CLIENTS_KEEP {
                *clients = Clients::default();
            }
            for event in events {
                if let Some(digest) = event.view()?.client
                    && !clients.known.contains_key(&digest)
                    && !unknown.contains(&digest)
                {
                    unknown.push(digest);
                }
            }
        }
        if unknown.is_empty() {
            return Ok(());
        }
        let found = log.clients(&unknown).await?;
        let mut clients = self.0.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if clients.known.len() + unknown.len() > CLIENTS_MAX_COUNT {
            clients.known.clear();
        }
        for digest in unknown {
            let shown = found.get(&digest).and_then(|client| serde_json::to_string(client).ok());
            clients.known.insert(digest, shown.map(Arc::from));
        }
        Ok(())
    }

    /// A client as JSON, if it is remembered and still kept.
    pub fn client(&self, digest: &ClientDigest) -> Option<Arc<str>> {
        let clients = self.0.clients.lock().unwrap_or_else(PoisonError::into_inner);
        clients.known.get(digest).cloned().flatten()
    }

    /// What to show of a page's event.
    pub fn shown_client(&self, view: &RawView<'_>, allowed: bool) -> Option<Arc<str>> {
        if allowed { view.client.and_then(|digest| self.client(&digest)) } else { None }
    }

    /// Takes a place among the open streams of each key; none when one of them is full.
    pub fn open_stream(&self, keys: &[(uuid::Uuid, u32)]) -> Option<OpenStream> {
        let mut streams = self.0.streams.lock().unwrap_or_else(PoisonError::into_inner);
        if keys.iter().any(|(key, most)| streams.get(key).is_some_and(|open| open >= most)) {
            return None;
        }
        for (key, _) in keys {
            *streams.entry(*key).or_insert(0) += 1;
        }
        let held = keys.iter().map(|(key, _)| *key).collect();
        Some(OpenStream { hub: self.clone(), held })
    }

    /// Streams that are open with this key.
    pub fn open_streams(&self, key: uuid::Uuid) -> u32 {
        self.0.streams.lock().unwrap_or_else(PoisonError::into_inner).get(&key).copied().unwrap_or(0)
    }
}

/// A place among the open streams, until it is dropped.
#[derive(Debug)]
pub struct OpenStream {
    hub: Hub,
    held: Vec<uuid::Uuid>,
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        let mut streams = self.hub.0.streams.lock().unwrap_or_else(PoisonError::into_inner);
        for key in &self.held {
            if let Some(open) = streams.get_mut(key) {
                *open -= 1;
                if *open == 0 {
                    streams.remove(key);
                }
            }
        }
    }
}
