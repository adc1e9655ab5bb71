//! Errors as RFC 9457 problem details: the only error → status table.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use headwater_events::ids::Revision;
use headwater_events::reject::{Fault, Reject};
use serde_json::{Value, json};
use std::time::Duration;

use crate::command::SubmitError;
use crate::store::is_text_refused;
use crate::store::read::ReadError;

/// How long a client that met a full queue should stay away.
const BUSY_RETRY: Duration = Duration::from_secs(1);
/// How long a client that met an absent dependency should stay away.
const UNAVAILABLE_RETRY: Duration = Duration::from_secs(2);

/// The stable codes of problems, by status. 422 has narrower ones too: those of the fault, when all faults share one.
pub const CODES: [(u16, &[&str]); 18] = [
    (400, &["malformed"]),
    (401, &["unauthenticated"]),
    (403, &["forbidden"]),
    (404, &["not_found"]),
    (405, &["method_not_allowed"]),
    (406, &["not_acceptable"]),
    (408, &["timeout"]),
    (
        409,
        &[
            "conflict",
            "managed_by_other",
            "name_taken",
            "guarded",
            "hold_expired",
            "expired",
            "disabled",
            "not_verified",
            "no_resolver",
            "not_following",
            "replaced",
            "rrset_conflict",
            "below_zone_cut",
            "too_many_purges",
            "certificate_moved",
            "idempotency_conflict",
            "idempotency_in_progress",
            "nothing_to_retry",
            "already_ended",
            "not_cancellable",
            "edge_enabled",
            "last_cell",
            "not_retained",
            "not_validated",
            "moved_on",
            "undo_conflict",
            "no_password",
            "no_session",
            "last_administrator",
            "owns_domains",
            "platform_tenant",
        ],
    ),
    (410, &["gone"]),
    (412, &["revision_mismatch"]),
    (413, &["too_large"]),
    (414, &["uri_too_long"]),
    (415, &["unsupported_media_type"]),
    (422, &["invalid"]),
    (429, &["rate_limited"]),
    (431, &["headers_too_large"]),
    (500, &["internal", "unreadable_event"]),
    (503, &["unavailable"]),
];

/// What the pointers to lines of a text begin with.
const LINES: &str = "/lines/";

/// The URI of a kind of problem.
pub fn type_of(code: &str) -> String {
    format!("https://headwater.invalid/problems/{code}")
}

/// An answer that is an error.
#[derive(Debug, Clone)]
pub struct Problem {
    status: StatusCode,
    code: &'static str,
    detail: String,
    errors: Vec<Fault>,
    retry_after: Option<Duration>,
    extra: Vec<(&'static str, Value)>,
}

impl Problem {
    /// A problem with a stable code and a detail for people.
    pub fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        Self { status, code, detail: detail.into(), errors: Vec::new(), retry_after: None, extra: Vec::new() }
    }

    /// 404: it does not exist, or the caller may not know of it.
    pub fn not_found(what: impl std::fmt::Display) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", format!("{what} does not exist"))
    }

    /// 400: the request cannot be read.
    pub fn malformed(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "malformed", detail)
    }

    /// 422 with every fault. When all faults share a code, that code is the problem's.
    pub fn invalid(faults: Vec<Fault>) -> Self {
        let code = match faults.split_first() {
            Some((first, rest)) if rest.iter().all(|fault| fault.code == first.code) => first.code,
            _ => "invalid",
        };
        let detail = match faults.as_slice() {
            [one] => one.detail.clone(),
            many => format!("{} faults in the input", many.len()),
        };
        Self { errors: faults, ..Self::new(StatusCode::UNPROCESSABLE_ENTITY, code, detail) }
    }

    /// What is to be deleted and is absent is 404, with where it is asked for; beside other faults it is one of them.
    pub fn or_absent(mut self) -> Self {
        if self.status == StatusCode::UNPROCESSABLE_ENTITY && self.code == "not_found" {
            self.status = StatusCode::NOT_FOUND;
        }
        self
    }

    /// 400 with every fault of what stands around the body: the query, a header.
    pub fn malformed_at(faults: Vec<Fault>) -> Self {
        let details: Vec<&str> = faults.iter().map(|fault| fault.detail.as_str()).collect();
        let detail = details.join("; ");
        Self { errors: faults, ..Self::malformed(detail) }
    }

    /// 401: no valid token was shown.
    pub fn unauthenticated(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "unauthenticated", detail)
    }

    /// 403: the caller may know of it but not do this.
    pub fn forbidden(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", detail)
    }

    /// 412: a precondition of the request does not hold for what is there.
    pub fn revision_mismatch(current: Option<Revision>) -> Self {
        Reject::RevisionMismatch { current }.into()
    }

    /// 503 that names the dependency.
    pub fn unavailable(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", detail).retry_after(UNAVAILABLE_RETRY)
    }

    /// Tells the client when to come again.
    pub fn retry_after(mut self, after: Duration) -> Self {
        self.retry_after = Some(after);
        self
    }

    /// Adds a member of the problem's own.
    pub fn with(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        self.extra.push((name, value.into()));
        self
    }

    /// The body of the answer.
    pub fn body(self) -> Value {
        let mut body = json!({
            "type": type_of(self.code),
            "title": self.code.replace('_', " "),
            "status": self.status.as_u16(),
            "detail": self.detail,
            "code": self.code,
        });
        if let Some(request) = super::envelope::current_request() {
            body["request_id"] = json!(request);
        }
        if !self.errors.is_empty() {
            body["errors"] = self.errors.iter().map(row).collect();
        }
        for (name, value) in self.extra {
            body[name] = value;
        }
        body
    }

    /// What is said to people.
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// Every fault of the input.
    pub fn faults(&self) -> &[Fault] {
        &self.errors
    }

    /// The same with each fault said otherwise.
    pub fn told(mut self, tell: impl Fn(Fault) -> Fault) -> Self {
        self.errors = self.errors.into_iter().map(tell).collect();
        if let [one] = self.errors.as_slice() {
            self.detail.clone_from(&one.detail);
        }
        self
    }

    /// The stable code.
    pub fn code(&self) -> &'static str {
        self.code
    }

    /// The status.
    pub fn status(&self) -> StatusCode {
        self.status
    }
}

/// The pointer to a line of a text, which has no members.
pub fn line_pointer(line: usize) -> String {
    format!("{LINES}{line}")
}

fn row(fault: &Fault) -> Value {
    let mut row = json!({"pointer": fault.pointer, "code": fault.code, "detail": fault.detail});
    let line = fault.pointer.strip_prefix(LINES).and_then(|line| line.parse::<usize>().ok());
    if let Some(line) = line {
        row["line"] = json!(line);
    }
    row
}

/// The problem that an answer is, for those that tell it otherwise.
#[derive(Debug, Clone)]
pub struct Told(pub Problem);

impl From<Reject> for Problem {
    fn from(reject: Reject) -> Self {
        let detail = reject.to_string();
        match reject {
            Reject::NotFound(_) => Self::new(StatusCode::NOT_FOUND, "not_found", detail),
            Reject::Forbidden(_) => Self::new(StatusCode::FORBIDDEN, "forbidden", detail),
            Reject::NameTaken(_) => Self::new(StatusCode::CONFLICT, "name_taken", detail),
            Reject::RevisionMismatch { current } => {
                let current = current.map(|revision| json!(revision)).unwrap_or(Value::Null);
                Self::new(StatusCode::PRECONDITION_FAILED, "revision_mismatch", detail)
                    .with("current", current)
            }
            Reject::Guarded { guards, .. } => {
                let names: Vec<&str> = guards.iter().map(|guard| guard.name()).collect();
                Self::new(StatusCode::CONFLICT, "guarded", detail).with("guards", json!(names))
            }
            Reject::Conflict { code, .. } => Self::new(StatusCode::CONFLICT, code, detail),
            Reject::NotRestorable { code, nearest, .. } => {
                Self::new(StatusCode::CONFLICT, code, detail).with("nearest", json!(nearest))
            }
            Reject::UndoConflict { conflicts } => {
                Self { errors: conflicts, ..Self::new(StatusCode::CONFLICT, "undo_conflict", detail) }
            }
            Reject::ManagedByOther { conflicts } => {
                Self { errors: conflicts, ..Self::new(StatusCode::CONFLICT, "managed_by_other", detail) }
            }
            Reject::Invalid(faults) => Self::invalid(faults),
        }
    }
}

impl From<SubmitError> for Problem {
    fn from(error: SubmitError) -> Self {
        let detail = error.to_string();
        match error {
            SubmitError::Rejected(reject) => reject.into(),
            SubmitError::IdempotencyConflict => {
                Self::new(StatusCode::CONFLICT, "idempotency_conflict", detail)
            }
            SubmitError::IdempotencyInProgress => {
                Self::new(StatusCode::CONFLICT, "idempotency_in_progress", detail).retry_after(BUSY_RETRY)
            }
            SubmitError::Out => Self::unauthenticated(detail),
            SubmitError::Busy => Self::unavailable(detail).retry_after(BUSY_RETRY),
            SubmitError::Unavailable(_) => Self::unavailable(detail),
            SubmitError::Text => Self::malformed(detail),
        }
    }
}

impl From<sqlx::Error> for Problem {
    fn from(error: sqlx::Error) -> Self {
        if is_text_refused(&error) {
            tracing::warn!(%error, "the control database refused a text");
            return SubmitError::Text.into();
        }
        tracing::error!(%error, "the control database did not answer");
        Self::unavailable("the control database does not answer: try again")
    }
}

impl From<ReadError> for Problem {
    fn from(error: ReadError) -> Self {
        tracing::error!(%error, "the log could not be read");
        Self::unavailable("the log cannot be read now: try again")
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let (status, retry_after) = (self.status, self.retry_after);
        let told = Told(self.clone());
        let mut response = (status, Json(self.body())).into_response();
        response.extensions_mut().insert(told);
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(after) = retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(after.as_secs().max(1)));
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// What stands in quotes after one of the two ways to make a problem with a code.
    fn coded(source: &str) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        for way in ["::new(StatusCode::", "conflict(\""] {
            for (at, _) in source.match_indices(way) {
                let call = source[at..].split(';').next().unwrap_or_default();
                let call = call.split(").with(").next().unwrap_or_default();
                found.extend(call.split('"').nth(1).map(str::to_owned));
            }
        }
        found
    }

    #[test]
    fn every_code_is_in_the_table() {
        let known: BTreeSet<&str> = CODES.iter().flat_map(|(_, codes)| codes.iter().copied()).collect();
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/http");
        for file in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if file.is_dir() {
                continue;
            }
            let source = std::fs::read_to_string(&file).unwrap();
            let source = source.split("#[cfg(test)]").next().unwrap_or_default();
            for code in coded(source) {
                assert!(known.contains(code.as_str()), "{}: {code:?} is not in CODES", file.display());
            }
        }
    }
}
