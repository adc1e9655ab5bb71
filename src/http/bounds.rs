//! What the head of a request may be: the length of its URI, the number and size of its headers. Whatever the route is,
//! and whether there is one, a larger head is refused before anything else is looked at.

use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::Problem;

/// Octets of path and query, at most: a hundred names of domains fit into a query.
pub const URI_MAX_BYTES: usize = 32 << 10;
/// Headers of a request, at most.
pub const HEADERS_MAX_COUNT: usize = 64;
/// Octets of the names and values of all headers of a request, at most.
pub const HEADERS_MAX_BYTES: usize = 32 << 10;

/// The layer.
pub async fn layer(request: Request, next: Next) -> Response {
    let uri = request.uri().path_and_query().map_or(0, |shown| shown.as_str().len());
    if uri > URI_MAX_BYTES {
        let detail = format!("path and query have {uri} octets, and at most {URI_MAX_BYTES} are taken");
        let problem = Problem::new(StatusCode::URI_TOO_LONG, "uri_too_long", detail);
        return problem.with("limit_bytes", URI_MAX_BYTES).into_response();
    }
    match too_large(request.headers()) {
        Some(problem) => problem.into_response(),
        None => next.run(request).await,
    }
}

fn too_large(headers: &HeaderMap) -> Option<Problem> {
    let large =
        |detail| Problem::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "headers_too_large", detail);
    let (count, octets) =
        (headers.len(), headers.iter().map(|(name, value)| name.as_str().len() + value.len()));
    if count > HEADERS_MAX_COUNT {
        let detail = format!("there are {count} headers, and at most {HEADERS_MAX_COUNT} are taken");
        return Some(large(detail).with("limit_count", HEADERS_MAX_COUNT));
    }
    let octets: usize = octets.sum();
    let detail = || format!("the headers have {octets} octets, and at most {HEADERS_MAX_BYTES} are taken");
    (octets > HEADERS_MAX_BYTES).then(|| large(detail()).with("limit_bytes", HEADERS_MAX_BYTES))
}
