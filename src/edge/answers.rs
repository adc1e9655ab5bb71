//! Bodies in and out of the control listener.

use axum::Json;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use headwater_edge_wire::protocol::BodyFault;
use serde::Serialize;
use std::time::Duration;

use crate::http::Problem;

/// How long a body may take to arrive.
const BODY_MAX: Duration = Duration::from_secs(30);

/// Reads a body of at most so many octets, before anything is decided.
pub(super) async fn read(body: Body, most: usize) -> Result<axum::body::Bytes, Problem> {
    match tokio::time::timeout(BODY_MAX, to_bytes(body, most)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(_)) => Err(too_large(most)),
        Err(_late) => Err(Problem::new(
            StatusCode::REQUEST_TIMEOUT,
            "timeout",
            format!("the body did not arrive within {} s", BODY_MAX.as_secs()),
        )),
    }
}

fn too_large(most: usize) -> Problem {
    let detail = format!("the body is larger than {most} octets, or broke off");
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", detail).with("limit_bytes", most)
}

/// What a body breaks. The fault never quotes the body.
pub(super) fn fault(fault: BodyFault) -> Problem {
    match fault {
        BodyFault::TooLarge { max, .. } => too_large(max),
        BodyFault::Malformed { .. } => Problem::malformed(format!("the body {fault}")),
        BodyFault::Bound { .. } => {
            Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "out_of_range", fault.to_string())
        }
    }
}

/// 403 with a stable code.
pub(super) fn refused(code: &'static str, detail: &'static str) -> Problem {
    Problem::new(StatusCode::FORBIDDEN, code, detail)
}

/// 429.
pub(super) fn too_often(wait: Duration) -> Problem {
    let detail = "too many requests: come again later";
    Problem::new(StatusCode::TOO_MANY_REQUESTS, "rate_limited", detail).retry_after(wait)
}

/// 200 with JSON that nobody keeps.
pub(super) fn json<T: Serialize>(body: &T) -> Response {
    uncached(Json(body).into_response())
}

pub(super) fn uncached(mut response: Response) -> Response {
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
