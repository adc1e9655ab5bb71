//! What every request and every answer has: an id, a trace, a time limit, a measure, safe headers. The outermost
//! layer; nothing here knows what a request is about.

use axum::body::{Body, HttpBody};
use axum::extract::{ConnectInfo, MatchedPath, Request};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use headwater_events::envelope::Client;
use headwater_events::ids::RequestId;
use std::any::Any;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};
use tracing::Instrument;
use uuid::Uuid;

use super::Problem;

/// How long a handler may take until its answer begins. Waiting for an operation takes at most half of it.
pub const REQUEST_MAX: Duration = Duration::from_secs(60);
/// How long a client whose request took too long should stay away.
const LATE_RETRY: Duration = Duration::from_secs(5);
/// Characters of a `User-Agent` that are kept.
const AGENT_MAX_CHARS: usize = 256;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

tokio::task_local! {
    static REQUEST: RequestId;
}

/// The request that this task answers, if it answers one.
pub fn current_request() -> Option<RequestId> {
    REQUEST.try_with(|request| *request).ok()
}

/// The layer.
pub async fn layer(request: Request, next: Next) -> Response {
    let begun = Instant::now();
    let shown = request.headers().get(&REQUEST_ID).and_then(|value| value.to_str().ok());
    let id = shown.and_then(|text| Uuid::parse_str(text).ok()).unwrap_or_else(Uuid::now_v7);
    let id = RequestId::from_uuid(id);
    let method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let is_api = request.uri().path().starts_with("/api");
    let trace = request.headers().get(&TRACEPARENT).and_then(Trace::read);
    let trace_id = trace.as_ref().map(|trace| trace.id.as_str()).unwrap_or_default();
    let span = tracing::info_span!("request", request_id = %id, %method, route, trace_id);
    let answer = within(REQUEST_MAX, request, next);
    let mut response = REQUEST.scope(id, answer).instrument(span.clone()).await;
    span.in_scope(|| tracing::debug!(status = response.status().as_u16(), ms = millis(begun), "answered"));
    if let Some(value) = trace.and_then(|trace| trace.answer(id)) {
        response.headers_mut().insert(TRACEPARENT, value);
    }
    if let Ok(value) = HeaderValue::try_from(id.to_string()) {
        response.headers_mut().insert(REQUEST_ID, value);
    }
    protect(response.headers_mut(), is_api);
    measure(method.as_str(), route, response.status(), begun.elapsed());
    response
}

/// The answer, if it comes in time.
async fn within(limit: Duration, request: Request, next: Next) -> Response {
    let (request, reading) = watched(request);
    let seconds = limit.as_secs();
    match tokio::time::timeout(limit, next.run(request)).await {
        Ok(response) => response,
        Err(_late) if reading.load(Ordering::Acquire) => {
            let detail =
                format!("the body did not arrive within {seconds} s, so nothing was done: send it again");
            Problem::new(StatusCode::REQUEST_TIMEOUT, "timeout", detail).into_response()
        }
        Err(_late) => Problem::unavailable(format!(
            "the request took longer than {seconds} s; whether it took effect is unknown: repeat it with the same Idempotency-Key"
        ))
        .retry_after(LATE_RETRY)
        .into_response(),
    }
}

/// The request, and whether its body is being read: begun, and not at its end. Nothing is done before that end.
fn watched(request: Request) -> (Request, Arc<AtomicBool>) {
    let reading = Arc::new(AtomicBool::new(false));
    if request.body().is_end_stream() {
        return (request, reading);
    }
    let (parts, body) = request.into_parts();
    let mut stream = body.into_data_stream();
    let flag = reading.clone();
    let body = Body::from_stream(futures_util::stream::poll_fn(move |task| {
        let polled = stream.poll_next_unpin(task);
        flag.store(!matches!(polled, Poll::Ready(None | Some(Err(_)))), Ordering::Release);
        polled
    }));
    (Request::from_parts(parts, body), reading)
}

fn millis(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// The trace that a request belongs to (W3C Trace Context): its id, and whether it is sampled.
struct Trace {
    id: String,
    flags: String,
}

impl Trace {
    /// Reads a `traceparent`; anything that is none is as if it were absent.
    fn read(value: &HeaderValue) -> Option<Self> {
        let parts: Vec<&str> = value.to_str().ok()?.split('-').collect();
        let is_hex = |text: &str, digits: usize| {
            text.len() == digits && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
        };
        let is_id =
            |text: &str, digits: usize| is_hex(text, digits) && text.bytes().any(|digit| digit != b'0');
        // A later version may have more to say, behind what this one knows.
        match parts.as_slice() {
            ["00", _, _, _, _, ..] => None,
            [version, id, parent, flags, ..]
                if is_hex(version, 2)
                    && *version != "ff"
                    && is_id(id, 32)
                    && is_id(parent, 16)
                    && is_hex(flags, 2) =>
            {
                Some(Self { id: (*id).to_owned(), flags: (*flags).to_owned() })
            }
            _ => None,
        }
    }

    /// What the answer says: the same trace, and the part of it that this request was, by the end of its own id.
    fn answer(&self, request: RequestId) -> Option<HeaderValue> {
        let own = request.as_uuid().as_u64_pair().1;
        HeaderValue::try_from(format!("00-{}-{own:016x}-{}", self.id, self.flags)).ok()
    }
}

fn protect(headers: &mut HeaderMap, is_api: bool) {
    let mut default = |name: HeaderName, value: &'static str| {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    };
    default(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    default(header::X_FRAME_OPTIONS, "DENY");
    default(header::REFERRER_POLICY, "no-referrer");
    default(header::CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'");
    if is_api {
        default(header::CACHE_CONTROL, "no-store");
    }
}

/// By route, never by what stands in the path: a domain is no label.
fn measure(method: &str, route: Option<String>, status: StatusCode, took: Duration) {
    let route = route.unwrap_or_else(|| "none".to_owned());
    let labels = [("method", method.to_owned()), ("route", route), ("status", status.as_u16().to_string())];
    metrics::counter!("cdn_http_requests_total", &labels).increment(1);
    metrics::histogram!("cdn_http_request_duration_seconds", &labels[..2]).record(took.as_secs_f64());
}

/// What a panic in a handler becomes. Its message goes to the log, not to the client.
pub fn panicked(cause: Box<dyn Any + Send>) -> Response {
    let told = cause.downcast_ref::<String>().map(String::as_str);
    let told = told.or_else(|| cause.downcast_ref::<&str>().copied()).unwrap_or("no message");
    tracing::error!(panic = told, "a request ended in a panic");
    metrics::counter!("cdn_http_panics_total").increment(1);
    let detail = "the request met a fault of this program; its log has the details under the request id";
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", detail).into_response()
}

/// Where a request comes from: the peer of its connection. No header is believed.
pub fn client(parts: &axum::http::request::Parts) -> Option<Client> {
    let ConnectInfo(peer) = parts.extensions.get::<ConnectInfo<SocketAddr>>()?;
    let agent = parts.headers.get(header::USER_AGENT).map(|value| String::from_utf8_lossy(value.as_bytes()));
    let agent = agent.unwrap_or_default();
    let kept = |c: &char| !c.is_control();
    Some(Client {
        ip: peer.ip().to_canonical().to_string(),
        agent: agent.chars().filter(kept).take(AGENT_MAX_CHARS).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// W3C Trace Context, section 3.2: one character off is no trace.
    #[test]
    fn a_trace_is_read_strictly() {
        let read = |text: &str| Trace::read(&HeaderValue::from_str(text).unwrap()).map(|trace| trace.flags);
        let (id, parent) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");
        let zeros = ("0".repeat(32), "0".repeat(16));
        let rows = [
            (format!("00-{id}-{parent}-01"), true),
            (format!("00-{id}-{parent}-ff"), true),
            (format!("00-{id}-{parent}-01-more"), false),
            (format!("00-{id}-{parent}-01-"), false),
            (format!("01-{id}-{parent}-01"), true),
            (format!("01-{id}-{parent}-01-more"), true),
            (format!("ff-{id}-{parent}-01"), false),
            (format!("0-{id}-{parent}-01"), false),
            (format!("0g-{id}-{parent}-01"), false),
            (format!("00-{}-{parent}-01", id.to_uppercase()), false),
            (format!("00-{}-{parent}-01", &id[1..]), false),
            (format!("00-{id}0-{parent}-01"), false),
            (format!("00-{}-{parent}-01", zeros.0), false),
            (format!("00-{id}-{}-01", &parent[1..]), false),
            (format!("00-{id}-{}-01", parent.to_uppercase()), false),
            (format!("00-{id}-{}-01", zeros.1), false),
            (format!("00-{id}-{parent}-1"), false),
            (format!("00-{id}-{parent}-0G"), false),
            (format!("00-{id}-{parent}"), false),
            (format!(" 00-{id}-{parent}-01"), false),
            (String::new(), false),
        ];
        for (text, is_one) in rows {
            assert_eq!(read(&text).is_some(), is_one, "{text:?}");
        }
        assert_eq!(read(&format!("00-{id}-{parent}-01")).as_deref(), Some("01"));
    }

    #[tokio::test]
    async fn a_panic_is_a_problem_of_its_request() {
        use tower::ServiceExt;
        async fn falls() -> &'static str {
            panic!("a secret detail")
        }
        let routes = axum::Router::new()
            .route("/api/falls", axum::routing::get(falls))
            .layer(tower_http::catch_panic::CatchPanicLayer::custom(panicked))
            .layer(axum::middleware::from_fn(layer));
        let request = Request::builder().uri("/api/falls").body(axum::body::Body::empty()).unwrap();
        let response = routes.oneshot(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
        let id = response.headers()["x-request-id"].to_str().unwrap().to_owned();
        assert_eq!(response.headers()[header::CACHE_CONTROL], "no-store");
        let body = axum::body::to_bytes(response.into_body(), 10_000).await.unwrap();
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!((&body["code"], &body["request_id"]), (&"internal".into(), &id.into()));
        assert!(!body.to_string().contains("secret"));
    }

    #[tokio::test]
    async fn a_body_that_does_not_arrive_is_told_apart() {
        use tower::ServiceExt;
        async fn reads(headers: HeaderMap, body: Body) -> Response {
            let read = super::super::body::json(&headers, body, 100).await.is_ok();
            if read { std::future::pending().await } else { StatusCode::BAD_REQUEST.into_response() }
        }
        let routes = axum::Router::new().route("/api/reads", axum::routing::post(reads));
        let routes = routes.layer(axum::middleware::from_fn(|request, next| {
            within(Duration::from_millis(100), request, next)
        }));
        let part = || futures_util::stream::iter([Ok::<_, std::io::Error>("{}")]);
        let whole = Body::from_stream(part());
        let broken = Body::from_stream(part().chain(futures_util::stream::pending()));
        for (body, status) in [(whole, 503), (broken, 408)] {
            let request = Request::post("/api/reads").header(header::CONTENT_TYPE, "application/json");
            let response = routes.clone().oneshot(request.body(body).unwrap()).await.unwrap();
            assert_eq!(response.status().as_u16(), status);
        }
    }

    #[test]
    fn a_trace_is_taken_only_when_it_is_one() {
        let trace = |text| Trace::read(&HeaderValue::from_static(text)).map(|trace| trace.id);
        let (id, parent) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");
        assert_eq!(trace("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01").as_deref(), Some(id));
        assert_eq!(
            trace("01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more").as_deref(),
            Some(id)
        );
        let none = "0".repeat(32);
        for bad in [
            String::new(),
            "00-x-y-01".into(),
            format!("00-{none}-{parent}-01"),
            format!("00-{id}-{}-01", &none[..16]),
            format!("00-{}-{parent}-01", id.to_uppercase()),
            format!("ff-{id}-{parent}-01"),
            format!("00-{id}-{parent}-01-more"),
            format!("00-{id}-{parent}"),
        ] {
            let value = HeaderValue::try_from(&bad).unwrap();
            assert!(Trace::read(&value).is_none(), "{bad}");
        }
    }
}
