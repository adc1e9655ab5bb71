//! Waiting for the end of an operation.
//!
//! What must hold: the wait is bounded, a lost connection in between does not end it, and an operation that did not
//! succeed ends the command with 3.

use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use serde_json::Value;
use tokio::time::Instant;

use super::error::ClientError;
use super::http::{ApiClient, Call};
use super::output::{Progress, cell, talk};

/// For how long one request awaits the operation; the API allows 30.
const LONG_POLL_SECONDS: u64 = 25;
/// The same where progress is shown.
const WATCH_POLL_SECONDS: u64 = 1;
/// The pause between two looks when the API answers at once.
const LOOK_PAUSE_MILLISECONDS: u64 = 200;
/// Above the 120 s after which the API itself ends an operation.
const WAIT_DEFAULT_SECONDS: u64 = 180;
/// The longest wait that can be asked for.
const WAIT_MAX_SECONDS: u64 = 86_400;

/// For how long to wait.
#[derive(Args, Clone, Debug)]
pub struct Limit {
    /// Gives up waiting after so many seconds; the operation itself goes on
    #[arg(
        long,
        help_heading = "Wait",
        value_name = "SECONDS",
        default_value_t = WAIT_DEFAULT_SECONDS,
        value_parser = clap::value_parser!(u64).range(1..=WAIT_MAX_SECONDS)
    )]
    pub timeout: u64,
}

impl Limit {
    /// For work whose length goes with the size of the log.
    pub fn longest() -> Self {
        Self { timeout: WAIT_MAX_SECONDS }
    }
}

impl Default for Limit {
    fn default() -> Self {
        Self { timeout: WAIT_DEFAULT_SECONDS }
    }
}

/// Awaits the end and gives the operation as it is then, however it ended.
pub async fn end_of(api: &ApiClient, id: &str, limit: &Limit) -> Result<Value> {
    await_end(api, id, limit, LONG_POLL_SECONDS).await
}

/// The same for work whose progress is worth watching: it is looked at every second.
pub async fn watch_end(api: &ApiClient, id: &str, limit: &Limit) -> Result<Value> {
    await_end(api, id, limit, WATCH_POLL_SECONDS).await
}

async fn await_end(api: &ApiClient, id: &str, limit: &Limit, poll_seconds: u64) -> Result<Value> {
    let deadline = Instant::now() + Duration::from_secs(limit.timeout);
    let mut progress = Progress::new(&format!("operation {id}"));
    loop {
        let left = deadline.saturating_duration_since(Instant::now()).as_secs();
        let call = Call::get(&["operations", id])?.query("wait", left.clamp(1, poll_seconds));
        let asked = Instant::now();
        let operation = api.fetch(&call).await?;
        if is_terminal(&operation) {
            return Ok(operation);
        }
        tell(&mut progress, &operation);
        if Instant::now() >= deadline {
            drop(progress);
            bail!(
                "the operation is still {} after {} s: wait on with `headwater op wait {id}`",
                cell(operation.get("state")),
                limit.timeout
            );
        }
        let pause = Duration::from_millis(LOOK_PAUSE_MILLISECONDS);
        tokio::time::sleep_until(asked + pause).await;
    }
}

/// Says how it ended; an end that is no success is a refusal.
pub fn judge(operation: &Value) -> Result<()> {
    let state = cell(operation.get("state"));
    let partial: Vec<String> = operation
        .get("partial")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .map(|one| cell(Some(one)))
        .collect();
    if state == "succeeded" {
        if !partial.is_empty() {
            talk(format_args!(
                "not reached yet: {}; they get it before they serve again",
                partial.join(", ")
            ));
        }
        if let Some(by) = operation.get("superseded_by").and_then(Value::as_str) {
            talk(format_args!("overtaken by a newer change, operation {by}"));
        }
        return Ok(());
    }
    let id = cell(operation.get("id"));
    let mut text = format!("operation {id} {state}");
    for (name, pointer) in [("", "/error/detail"), ("code ", "/error/code"), ("target ", "/error/target")] {
        let value = cell(operation.pointer(pointer));
        if !value.is_empty() {
            text.push_str(&format!("\n  {name}{}", value.replace('\n', ", ")));
        }
    }
    text.push_str(&format!("\n  next: see the stages with `headwater op timeline {id}`"));
    Err(ClientError::refused(text))
}

/// Whether it has ended.
pub fn is_terminal(operation: &Value) -> bool {
    matches!(operation.get("state").and_then(Value::as_str), Some("succeeded" | "failed" | "cancelled"))
}

fn tell(progress: &mut Progress, operation: &Value) {
    let number = |pointer: &str| operation.pointer(pointer).and_then(Value::as_u64);
    if let (Some(done), Some(total @ 1..)) = (number("/progress/done"), number("/progress/total")) {
        progress.count(done, total, &cell(operation.pointer("/progress/unit")));
        return;
    }
    let mut text = format!("operation {}: {}", cell(operation.get("id")), cell(operation.get("state")));
    if let (Some(active), Some(total)) = (number("/targets/active"), number("/targets/total")) {
        text.push_str(&format!(", {active} of {total} targets"));
    }
    progress.say(&text);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_success_is_success() {
        assert!(judge(&json!({"state": "succeeded", "partial": ["dns-2"]})).is_ok());
        let failed = json!({"id": "x", "state": "failed",
            "error": {"code": "deadline", "detail": "dns-2 lags", "target": "dns-2"}});
        let text = judge(&failed).unwrap_err().to_string();
        assert!(text.contains("dns-2 lags") && text.contains("op timeline x"), "{text}");
        assert!(judge(&json!({"id": "x", "state": "cancelled"})).is_err());
        assert!(!is_terminal(&json!({"state": "running"})));
    }
}
