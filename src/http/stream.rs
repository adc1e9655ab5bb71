//! `GET /events/stream`: replay, then live, from the log alone.
//! The response is pulled: what the socket does not take is not read, so a slow
//! reader costs one piece and loses nothing.

use crate::app::App;
use crate::history::frames;
use crate::history::hub::OpenStream;
use crate::history::query::{Cursor, Params};
use crate::history::reader::{Filter, Pulled, Reader};
use crate::history::rights::{Ended, Rights};
use crate::http::Problem;
use crate::http::auth::Authenticated;
use crate::people::session::{self, SessionId};
use crate::store::read::LogMeta;
use async_stream::stream;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::Response;
use futures_util::Stream;
use headwater_events::ids::{LogId, Position, TokenId, UserId};
use headwater_events::time::Timestamp;
use serde_json::json;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

/// A reader hears something at least this often; the contract says 15 s.
pub const BOOKMARK_INTERVAL: Duration = Duration::from_secs(10);
/// How long a reader waits before it connects again, in milliseconds.
const RECONNECT_MILLISECONDS: std::ops::RangeInclusive<u32> = 2_000..=5_000;
/// When to come again after too many streams were open.
const FULL_RETRY: Duration = Duration::from_secs(5);
/// How long a stream waits for a tailer that has not begun.
const BEGIN_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause after an error of the log; the stream stays open meanwhile.
const ERROR_PAUSE: Duration = Duration::from_secs(1);
/// How often it is asked whether the session of a stream is still open: sessions are no events.
const SESSION_INTERVAL: Duration = Duration::from_secs(2);
/// Which part of the longest life a stream lives.
const LIFE_SHARE: std::ops::RangeInclusive<f64> = 0.75..=1.0;
/// The header with which a reader says where it was.
const LAST_EVENT_ID: &str = "last-event-id";

/// The routes of this file: the stream below `/api`, and at the host's root.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(serve)).routes(routes!(serve_at_root))
}

/// What is streamed, and from where on.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
#[allow(dead_code)] // the documentation of what `serve` reads
struct StreamParams {
    /// Of these domains (repeated, at most 100).
    domain: Option<Vec<String>>,
    /// Whose type begins so (repeated, at most 100).
    r#type: Option<Vec<String>>,
    /// After this position or event id; 0 is the whole history. Without it, from the head on.
    after: Option<String>,
}

/// Where a reader begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Begin {
    At(Position),
    Reset(&'static str),
}

/// The log as it grows: `id: <log>.<position>`, `event: <type>`, `data:` the event as one line of JSON; `reset` where
/// the reader's place is not to be had, `bye` where the stream ends.
#[utoipa::path(get, path = "/events/stream", tag = "history",
    params(StreamParams, ("Last-Event-ID" = Option<String>, Header, description = "The last id that was received; wins over `after`")),
    responses((status = 200, body = String, content_type = "text/event-stream", description = "Events without end")))]
async fn serve_at_root(
    state: State<App>,
    who: Authenticated,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    serve(state, who, uri, headers).await
}

/// The log as it grows: `id: <log>.<position>`, `event: <type>`, `data:` the event as one line of JSON; `reset` where
/// the reader's place is not to be had, `bye` where the stream ends.
#[utoipa::path(get, path = "/api/events/stream", tag = "history",
    params(StreamParams, ("Last-Event-ID" = Option<String>, Header, description = "The last id that was received; wins over `after`")),
    responses((status = 200, body = String, content_type = "text/event-stream", description = "Events without end")))]
async fn serve(
    State(app): State<App>,
    who: Authenticated,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    if !accepts_stream(&headers) {
        let detail = "this answers text/event-stream; for JSON pages use /api/events";
        return Err(Problem::new(StatusCode::NOT_ACCEPTABLE, "not_acceptable", detail));
    }
    let params = Params::read(&uri, &["domain", "type", "after"])?;
    let filter = Filter { domains: params.domains("domain")?, types: params.types("type")? };
    let asked = match (last_event_id(&headers)?, params.cursor("after")?) {
        (Some(seen), _) => Some(seen),
        (None, after) => after,
    };
    let place = place(&app, &who)?;
    let log = followed(&app).await?;
    // The rights first: whatever is appended from here on finds them or changes them.
    let rights = Rights::load(&app.pool, &who).await?;
    let meta = app.log.meta().await?;
    let begin = begin(asked.as_ref(), &meta, &log.1);
    let cursor = match begin {
        Begin::At(position) => position,
        Begin::Reset(_) => meta.head,
    };
    let session = who.session.as_ref().map(|open| Watch { id: open.id, looked: Instant::now() });
    let reader = Reader::new(app.clone(), who, log, cursor, rights, filter);
    let body = Body::from_stream(blocks(app, reader, begin, meta, (place, session)));
    let mut response = Response::new(body);
    let fixed = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-store, no-transform"),
        (header::VARY, "authorization"),
        (header::HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    for (name, value) in fixed {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    Ok(response)
}

/// Whether the reader takes an event stream; saying nothing is taking everything.
fn accepts_stream(headers: &HeaderMap) -> bool {
    let mut ranges = headers
        .get_all(header::ACCEPT)
        .iter()
        .flat_map(|value| value.to_str().unwrap_or_default().split(','))
        .map(|range| range.split(';').next().unwrap_or_default().trim().to_ascii_lowercase())
        .filter(|range| !range.is_empty())
        .peekable();
    ranges.peek().is_none()
        || ranges.any(|range| matches!(range.as_str(), "text/event-stream" | "text/*" | "*/*"))
}

fn last_event_id(headers: &HeaderMap) -> Result<Option<Cursor>, Problem> {
    let mut values = headers.get_all(LAST_EVENT_ID).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(Problem::malformed("Last-Event-ID stands more than once"));
    }
    match value.to_str() {
        Ok("") => Ok(None),
        Ok(text) => text.parse().map(Some),
        Err(_) => Err(Problem::malformed("Last-Event-ID is not one: give it as it was received")),
    }
}

/// Takes a place among the open streams of the token and of its tenants.
fn place(app: &App, who: &Authenticated) -> Result<OpenStream, Problem> {
    let limits = &app.config.limits;
    let token = who.caller.actor.token.map(TokenId::as_uuid);
    let mine = token.or(who.caller.user().map(UserId::as_uuid)).unwrap_or(Uuid::nil());
    let (per_token, per_tenant) =
        (app.replicas.share(limits.streams_per_token), app.replicas.share(limits.streams_per_tenant));
    let mut keys = vec![(mine, per_token)];
    if !who.caller.admin {
        keys.extend(who.caller.tenants.keys().map(|tenant| (tenant.as_uuid(), per_tenant)));
    }
    app.hub.open_stream(&keys).ok_or_else(|| {
        let detail = format!(
            "too many event streams are open: at most {} for a token and {} for a tenant",
            per_token, per_tenant
        );
        Problem::new(StatusCode::TOO_MANY_REQUESTS, "rate_limited", detail).retry_after(FULL_RETRY)
    })
}

/// The log that the tailer follows.
pub(super) async fn followed(app: &App) -> Result<(LogId, Arc<str>), Problem> {
    let mut tail = app.hub.subscribe();
    let begun = tokio::time::timeout(BEGIN_TIMEOUT, async {
        loop {
            if let Some(log) = app.hub.log() {
                return Some(log);
            }
            tail.changed().await.ok()?;
        }
    });
    let absent = || Problem::unavailable("the log is not followed yet: try again");
    begun.await.ok().flatten().ok_or_else(absent)
}

fn begin(asked: Option<&Cursor>, meta: &LogMeta, short: &str) -> Begin {
    match asked {
        None => Begin::At(meta.head),
        Some(Cursor { log: Some(log), .. }) if log != short => Begin::Reset("other_log"),
        Some(cursor) if cursor.position > meta.head => Begin::Reset("ahead"),
        Some(cursor) if cursor.position < meta.floor => Begin::Reset("expired"),
        Some(cursor) => Begin::At(cursor.position),
    }
}

fn reset(reason: &str, floor: Position, short: &str, head: Position) -> Bytes {
    let data = json!({"reason": reason, "floor": floor, "head": head, "state": "/api/domains"});
    frames::notice(Some((short, head)), "reset", &data).into()
}

fn bye(reason: &str) -> Bytes {
    frames::notice(None, "bye", &json!({"reason": reason})).into()
}

/// The session of a stream.
struct Watch {
    id: SessionId,
    looked: Instant,
}

impl Watch {
    /// Whether it is over; asked now and then. What cannot be asked is asked again.
    async fn is_over(&mut self, app: &App) -> bool {
        if self.looked.elapsed() < SESSION_INTERVAL {
            return false;
        }
        self.looked = Instant::now();
        matches!(session::is_open(&app.pool, self.id).await, Ok(false))
    }
}

/// Why a stream is over, whatever the log says.
async fn over(app: &App, session: Option<&mut Watch>) -> Option<&'static str> {
    if app.stop.is_cancelled() {
        return Some("stopping");
    }
    let is_over = session?.is_over(app).await;
    is_over.then(|| Ended::SessionOver.reason())
}

/// How long until a time, by the process's clock.
fn until(app: &App, end: Timestamp) -> Duration {
    Duration::from_millis(u64::try_from(end.millis_since(app.clock.now())).unwrap_or(0))
}

/// How long one stream lives: no two for the same time, or those that came together would come back together.
fn life(most: Duration) -> Duration {
    most.mul_f64(rand::random_range(LIFE_SHARE))
}

/// The body: one block after another for as long as the reader stays, and no longer than a stream lives: then rights,
/// load and code are those of another process or day.
fn blocks(
    app: App,
    mut reader: Reader,
    begin: Begin,
    meta: LogMeta,
    (place, mut session): (OpenStream, Option<Watch>),
) -> impl Stream<Item = Result<Bytes, Infallible>> + Send {
    stream! {
        let _place = place;
        let retry = rand::random_range(RECONNECT_MILLISECONDS);
        let mut first = format!("retry: {retry}\n").into_bytes();
        if matches!(begin, Begin::At(_)) {
            first.extend(frames::bookmark(reader.short(), reader.cursor()));
        } else {
            first.push(b'\n');
        }
        yield Ok(first.into());
        if let Begin::Reset(reason) = begin {
            yield Ok(reset(reason, meta.floor, reader.short(), meta.head));
        }
        let mut tail = app.hub.subscribe();
        let mut heard = Instant::now();
        let end = Instant::now() + life(app.config.server.stream_life);
        loop {
            if Instant::now() >= end {
                // No `bye`: the reader is meant to come back, and this is where it goes on.
                yield Ok(frames::bookmark(reader.short(), reader.cursor()).into());
                return;
            }
            // Marked before the pull, so that a move during it wakes the wait below.
            tail.borrow_and_update();
            if let Some(reason) = over(&app, session.as_mut()).await {
                yield Ok(bye(reason));
                return;
            }
            let pause = match reader.pull().await {
                Ok(Pulled::Piece(piece)) => {
                    if !piece.is_empty() {
                        yield Ok(piece);
                        heard = Instant::now();
                    } else if heard.elapsed() >= BOOKMARK_INTERVAL {
                        yield Ok(frames::bookmark(reader.short(), reader.cursor()).into());
                        heard = Instant::now();
                    }
                    continue;
                }
                Ok(Pulled::Ended(ended)) => {
                    yield Ok(bye(ended.reason()));
                    return;
                }
                Ok(Pulled::OtherLog) => match moved(&app, &mut reader).await {
                    Some(block) => {
                        yield Ok(block);
                        heard = Instant::now();
                        continue;
                    }
                    None => ERROR_PAUSE,
                },
                Ok(Pulled::AtTail) => BOOKMARK_INTERVAL,
                Err(error) => {
                    tracing::warn!(%error, "a stream waits: the log cannot be read");
                    ERROR_PAUSE
                }
            };
            let expiry = reader.rights().expires_at().map_or(BOOKMARK_INTERVAL, |end| until(&app, end));
            let wake = Instant::now() + pause.min(expiry);
            let wake = session.as_ref().map_or(wake, |session| wake.min(session.looked + SESSION_INTERVAL));
            let wake = wake.min(heard + BOOKMARK_INTERVAL).min(end).max(Instant::now() + Duration::from_millis(1));
            tokio::select! {
                _ = tail.changed(), if pause != ERROR_PAUSE => {}
                () = tokio::time::sleep_until(wake) => {}
                () = app.stop.cancelled() => {}
            }
            if heard.elapsed() >= BOOKMARK_INTERVAL {
                yield Ok(frames::bookmark(reader.short(), reader.cursor()).into());
                heard = Instant::now();
            }
        }
    }
}

/// Goes over to the log that is there now; none while it cannot be read.
async fn moved(app: &App, reader: &mut Reader) -> Option<Bytes> {
    let log = app.hub.log()?;
    let meta = app.log.meta().await.ok()?;
    // Of the log that the tailer follows; where it has moved once more, the next pull says so.
    let head = app.hub.tail();
    reader.reload_rights().await.ok()?;
    let block = reset("other_log", meta.floor, &log.1, head);
    reader.move_to(log, head);
    Some(block)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_begins_where_it_was_or_is_told_to_start_over() {
        let id: LogId = "00000000-0000-0000-0000-0000deadbeef".parse().unwrap();
        let meta = LogMeta { log: id, floor: Position::new(10), head: Position::new(20) };
        let at = |text: &str| begin(Some(&text.parse().unwrap()), &meta, &id.short());
        assert_eq!(begin(None, &meta, &id.short()), Begin::At(Position::new(20)));
        for (text, expected) in [
            ("10", Begin::At(Position::new(10))),
            ("deadbeef.20", Begin::At(Position::new(20))),
            ("9", Begin::Reset("expired")),
            ("0", Begin::Reset("expired")),
            ("21", Begin::Reset("ahead")),
            ("deadbeef.21", Begin::Reset("ahead")),
            ("deadbee0.15", Begin::Reset("other_log")),
        ] {
            assert_eq!(at(text), expected, "{text}");
        }
    }

    #[test]
    fn who_wants_something_else_is_told() {
        let with = |accept: &'static str| {
            accepts_stream(&HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static(accept))]))
        };
        assert!(accepts_stream(&HeaderMap::new()));
        assert!(
            with("text/event-stream") && with("*/*") && with("application/json, text/event-stream;q=0.5")
        );
        assert!(!with("application/json"));
    }
}
