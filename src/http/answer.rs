//! Answers to mutations: 202 with an operation where a runtime is affected, 200 where none is, 201 for what was made.

use axum::Json;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::{Value, json};

use super::conditional;
use crate::command::Outcome;

const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// `{"changed", "revision", "operation"}`, as its status has it.
pub fn receipt(outcome: &Outcome) -> Response {
    receipt_with(outcome, None)
}

/// A receipt with a member of its own, such as the domain.
pub fn receipt_with(outcome: &Outcome, member: Option<(&'static str, Value)>) -> Response {
    let operation = outcome.operation.map(|id| json!({"id": id, "state": "pending"}));
    let mut body = json!({"changed": outcome.changed, "revision": outcome.revision, "operation": operation});
    if !outcome.warnings.is_empty() {
        body["warnings"] = json!(outcome.warnings);
    }
    if let Some((name, value)) = member {
        body[name] = value;
    }
    let status = if outcome.operation.is_some() { StatusCode::ACCEPTED } else { StatusCode::OK };
    let mut response = (status, Json(body)).into_response();
    let headers = response.headers_mut();
    if let Some(id) = outcome.operation {
        set_location(headers, &format!("/api/operations/{id}"));
    }
    if outcome.changed {
        conditional::set_etag(headers, outcome.revision);
    }
    mark(headers, outcome);
    response
}

/// 201 with what was made and where it is.
pub fn created<T: Serialize>(outcome: &Outcome, location: &str, body: &T) -> Response {
    let mut response = (StatusCode::CREATED, Json(body)).into_response();
    set_location(response.headers_mut(), location);
    mark(response.headers_mut(), outcome);
    response
}

/// The same with what the caller may want to know, in the body.
pub fn created_with_warnings<T: Serialize>(outcome: &Outcome, location: &str, body: &T) -> Response {
    let mut body = json!(body);
    if !outcome.warnings.is_empty() {
        body["warnings"] = json!(outcome.warnings);
    }
    created(outcome, location, &body)
}

/// 200 with what something is now.
pub fn resource<T: Serialize>(outcome: &Outcome, body: &T) -> Response {
    let mut response = Json(body).into_response();
    mark(response.headers_mut(), outcome);
    response
}

fn mark(headers: &mut HeaderMap, outcome: &Outcome) {
    if outcome.replayed {
        headers.insert(REPLAYED, HeaderValue::from_static("true"));
    }
}

fn set_location(headers: &mut HeaderMap, location: &str) {
    if let Ok(value) = HeaderValue::try_from(location) {
        headers.insert(header::LOCATION, value);
    }
}
