//! Errors as PowerDNS says them: 422 is always JSON; everything else is text unless JSON is asked for by name.

use axum::Json;
use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use headwater_events::reject::Fault;
use serde_json::json;

use super::is_here;
use crate::http::page;
use crate::http::problem::{Problem, Told};

/// Errors that are told of one request, at most.
const ERRORS_MAX_COUNT: usize = 100;

/// Headers of a problem that say what its body is, or what it asks for.
const REPLACED: [HeaderName; 3] = [header::CONTENT_TYPE, header::CONTENT_LENGTH, header::WWW_AUTHENTICATE];

/// The layer around everything: a problem becomes an error where the path is PowerDNS's.
pub async fn layer(request: Request, next: Next) -> Response {
    if !is_here(request.uri().path()) {
        return next.run(request).await;
    }
    let json = page::accepts(request.headers(), "application/json");
    let mut response = next.run(request).await;
    let Some(Told(problem)) = response.extensions_mut().remove::<Told>() else { return response };
    let mut told = answer(&problem, json);
    for (name, value) in response.headers().iter().filter(|(name, _)| !REPLACED.contains(name)) {
        told.headers_mut().insert(name, value.clone());
    }
    told
}

/// What PowerDNS has only one word for.
fn status(problem: &Problem) -> StatusCode {
    match (problem.status(), problem.code()) {
        (StatusCode::CONFLICT, "name_taken") => StatusCode::CONFLICT,
        (StatusCode::CONFLICT, _) => StatusCode::UNPROCESSABLE_ENTITY,
        (other, _) => other,
    }
}

fn answer(problem: &Problem, json: bool) -> Response {
    let status = status(problem);
    let short =
        matches!(status, StatusCode::UNAUTHORIZED | StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED);
    let reason = status.canonical_reason().unwrap_or("Error");
    let detail = if short { reason } else { problem.detail() };
    if !json && status != StatusCode::UNPROCESSABLE_ENTITY {
        return (status, [(header::CONTENT_TYPE, "text/plain")], detail.to_owned()).into_response();
    }
    let errors: Vec<&str> =
        problem.faults().iter().map(|fault| fault.detail.as_str()).take(ERRORS_MAX_COUNT).collect();
    let body = match errors.as_slice() {
        [first, _, ..] if !short => json!({"error": first, "errors": errors}),
        _ => json!({"error": detail}),
    };
    let mut response = (status, Json(body)).into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// 422 with every error.
pub fn refused(errors: Vec<String>) -> Problem {
    Problem::invalid(errors.into_iter().map(|error| Fault::at("", "invalid", error)).collect())
}
