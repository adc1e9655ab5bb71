//! What goes wrong in a client command, what is said about it, and the exit code it ends with.
//!
//! 0 done, 1 failed, 2 wrong usage, 3 refused or different. A problem of the API is shown whole: its detail, every
//! fault with its pointer, and what to do next.

use std::fmt;
use std::io;
use std::process::ExitCode;
use std::time::Duration;

use reqwest::StatusCode;
use serde_json::Value;

use super::output::{safe, talk};
use crate::config::Unusable;

/// It failed.
pub const EXIT_FAILED: u8 = 1;
/// The command was used in a wrong way.
pub const EXIT_USAGE: u8 = 2;
/// It was refused, or what was compared differs.
pub const EXIT_REFUSED: u8 = 3;
/// The longest piece of an answer that is not a problem document and is shown nevertheless.
const SHOWN_MAX_CHARS: usize = 300;

/// A failure with an exit code of its own; everything else ends with 1.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The command line or the settings are not right.
    #[error("{0}")]
    Usage(String),
    /// The answer is no, or not the same.
    #[error("{0}")]
    Refused(String),
    /// The API answered with a problem.
    #[error("{0}")]
    Problem(Box<ApiProblem>),
}

impl ClientError {
    /// Wrong usage, as an error to return.
    pub fn usage(text: impl Into<String>) -> anyhow::Error {
        Self::Usage(text.into()).into()
    }

    /// A refusal or a difference, as an error to return.
    pub fn refused(text: impl Into<String>) -> anyhow::Error {
        Self::Refused(text.into()).into()
    }

    fn exit(&self) -> u8 {
        match self {
            Self::Usage(_) => EXIT_USAGE,
            Self::Refused(_) => EXIT_REFUSED,
            Self::Problem(problem) => match problem.status {
                StatusCode::CONFLICT | StatusCode::PRECONDITION_FAILED => EXIT_REFUSED,
                _ => EXIT_FAILED,
            },
        }
    }
}

/// Tells a failure on stderr and gives its exit code.
pub fn report(error: &anyhow::Error) -> ExitCode {
    let is_broken_pipe = |error: &io::Error| error.kind() == io::ErrorKind::BrokenPipe;
    if error.chain().filter_map(|cause| cause.downcast_ref()).any(is_broken_pipe) {
        // The reader of our output has seen enough.
        return ExitCode::SUCCESS;
    }
    talk(format_args!("headwater: {error:#}"));
    // `downcast_ref` of the error itself also finds one below a context.
    let unusable = error.downcast_ref::<Unusable>().map(|_| EXIT_USAGE);
    ExitCode::from(unusable.unwrap_or_else(|| error.downcast_ref().map_or(EXIT_FAILED, ClientError::exit)))
}

/// An RFC 9457 answer, or what stood in its place.
#[derive(Debug, Clone)]
pub struct ApiProblem {
    /// The status.
    pub status: StatusCode,
    /// The stable code; empty when the answer was none of ours.
    pub code: String,
    /// For people.
    pub detail: String,
    /// `pointer: detail (code)` of every fault.
    faults: Vec<String>,
    /// How many faults there are, where not all are told.
    total: Option<u64>,
    guards: Vec<String>,
    current: Option<String>,
    /// Whether the request was to make something that is not there yet.
    pub is_create_only: bool,
    request_id: Option<String>,
    /// When to come again.
    pub retry_after: Option<Duration>,
}

impl ApiProblem {
    /// Reads the body of an answer that is not a success.
    pub fn read(status: StatusCode, retry_after: Option<Duration>, body: &str) -> Self {
        let value: Value = serde_json::from_str(body).unwrap_or_default();
        let text = |name: &str| value.get(name).and_then(Value::as_str).map(safe);
        let foreign = || match body.trim() {
            "" => format!("the API answered {status} without a body"),
            body => format!(
                "the API answered {status}: {}",
                safe(&body.chars().take(SHOWN_MAX_CHARS).collect::<String>())
            ),
        };
        let listed = |name: &str| value.get(name).and_then(Value::as_array).into_iter().flatten();
        Self {
            status,
            code: text("code").unwrap_or_default(),
            detail: text("detail").or_else(|| text("title")).unwrap_or_else(foreign),
            faults: listed("errors").map(fault).collect(),
            total: value.get("faults").and_then(Value::as_u64),
            guards: listed("guards").filter_map(Value::as_str).map(safe).collect(),
            current: value
                .get("current")
                .filter(|current| !current.is_null())
                .map(|current| safe(&current.to_string())),
            is_create_only: false,
            request_id: text("request_id"),
            retry_after,
        }
    }

    /// Whether the same request may succeed a little later.
    pub fn is_passing(&self) -> bool {
        match self.status {
            StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::GATEWAY_TIMEOUT => true,
            StatusCode::CONFLICT => self.code == "idempotency_in_progress",
            _ => false,
        }
    }

    fn next_step(&self) -> Option<String> {
        let step = match (self.code.as_str(), self.status) {
            ("guarded", _) => {
                let allow: Vec<String> = self.guards.iter().map(|guard| format!("--allow {guard}")).collect();
                let allow = if allow.is_empty() { "--allow GUARD".to_owned() } else { allow.join(" ") };
                format!("if this is meant, repeat it with {allow}; --dry-run shows what would change")
            }
            ("revision_mismatch", _) if self.is_create_only => {
                "it is there already: look at it, and leave --if-absent out to write over it".to_owned()
            }
            ("revision_mismatch", _) => match &self.current {
                Some(current) => {
                    format!("read it again; it is at revision {current}: repeat with --if-match {current}")
                }
                None => "it does not exist at that revision: read it again, then repeat".to_owned(),
            },
            ("idempotency_conflict", _) => "leave --idempotency-key out, or take a new UUID".to_owned(),
            ("name_taken", _) => "choose another name, or look at what has it".to_owned(),
            (_, StatusCode::UNAUTHORIZED) => {
                "name a file with a valid token in HEADWATER_TOKEN_FILE, --token-file or [client] of the \
                 configuration"
                    .to_owned()
            }
            (_, StatusCode::FORBIDDEN) => {
                "this token may not do that: use another one, or ask an administrator".to_owned()
            }
            (_, StatusCode::NOT_FOUND) => {
                "check the spelling, and that this token may see it (`headwater me`)".to_owned()
            }
            (_, StatusCode::UNPROCESSABLE_ENTITY) => "nothing was written: correct it and repeat".to_owned(),
            (_, status) if status.is_redirection() => {
                "set the URL to where the API really is; redirects are not followed".to_owned()
            }
            _ => match self.retry_after {
                Some(after) => format!("try again in {} s", after.as_secs()),
                None => return None,
            },
        };
        Some(step)
    }
}

fn fault(row: &Value) -> String {
    let text = |name: &str| row.get(name).and_then(Value::as_str).map(safe).unwrap_or_default();
    // A text has lines and no members; the detail says which.
    if row.get("line").is_some() {
        return format!("{} [{}]", text("detail"), text("code"));
    }
    let pointer = match text("pointer") {
        pointer if pointer.is_empty() => "(whole body)".to_owned(),
        pointer => pointer,
    };
    format!("{pointer}: {} [{}]", text("detail"), text("code"))
}

impl fmt::Display for ApiProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)?;
        if !self.code.is_empty() {
            write!(f, " [{}]", self.code)?;
        }
        for fault in &self.faults {
            write!(f, "\n  {fault}")?;
        }
        let told = self.faults.len() as u64;
        if let Some(more) = self.total.and_then(|total| total.checked_sub(told)).filter(|more| *more > 0) {
            write!(f, "\n  and {more} more")?;
        }
        if let Some(id) = &self.request_id {
            write!(f, "\n  request: {id}")?;
        }
        if let Some(step) = self.next_step() {
            write!(f, "\n  next: {step}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_fault_is_shown_and_control_bytes_are_not() {
        let body = json!({
            "code": "invalid", "detail": "2 faults \u{1b}[31m", "request_id": "r-1",
            "errors": [
                {"pointer": "/records/0", "code": "bad_rdata", "detail": "not an address"},
                {"pointer": "", "code": "unknown_field", "detail": "colour"},
            ],
        });
        let problem = ApiProblem::read(StatusCode::UNPROCESSABLE_ENTITY, None, &body.to_string());
        let text = problem.to_string();
        assert!(text.contains("/records/0: not an address [bad_rdata]"), "{text}");
        assert!(text.contains("(whole body): colour [unknown_field]"), "{text}");
        assert!(text.contains("request: r-1") && text.contains("next: "), "{text}");
        assert!(!text.contains('\u{1b}'), "{text}");
    }

    #[test]
    fn an_answer_that_is_no_problem_is_shown_short() {
        let problem = ApiProblem::read(StatusCode::BAD_GATEWAY, None, &"<html>".repeat(1_000));
        assert!(problem.to_string().len() < 500);
        assert!(problem.is_passing());
    }

    #[test]
    fn a_conflict_ends_with_three_and_a_missing_thing_with_one() {
        let exit = |status, code: &str| {
            let body = json!({"code": code, "detail": "x"}).to_string();
            ClientError::Problem(Box::new(ApiProblem::read(status, None, &body))).exit()
        };
        assert_eq!(exit(StatusCode::CONFLICT, "guarded"), EXIT_REFUSED);
        assert_eq!(exit(StatusCode::PRECONDITION_FAILED, "revision_mismatch"), EXIT_REFUSED);
        assert_eq!(exit(StatusCode::NOT_FOUND, "not_found"), EXIT_FAILED);
        assert_eq!(exit(StatusCode::UNPROCESSABLE_ENTITY, "invalid"), EXIT_FAILED);
    }
}
