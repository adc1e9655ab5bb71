//! `headwater undo`: everything that one token did, in all domains that you may write; and which moment of a domain is
//! shown.

use anyhow::Result;
use clap::Args;
use serde_json::{Value, json};
use uuid::Uuid;

use super::Console;
use super::error::ClientError;
use super::http::Call;
use super::mutate::Common;
use super::output::{cell, data, plain_table, talk};
use super::projection::follow;

/// For the help of `undo`.
pub const EXAMPLES: &str = "Examples:
  headwater undo --token 01982f6e-7b4c-7d30-9d0a-3f1f0f3f5f10 --since 2026-01-31T12:00:00Z --dry-run
  headwater undo --token 01982f6e-7b4c-7d30-9d0a-3f1f0f3f5f10 --since 2026-01-31T12:00:00Z --note 'the token leaked'

Revoke the token first: `headwater token revoke`. What others changed later is kept; each such thing is told, and the
exit code is then 3. `headwater domain undo` undoes one revision of one domain.";

/// Whose changes are undone.
#[derive(Args)]
pub struct UndoArgs {
    /// The token that made them
    #[arg(long, value_name = "ID")]
    token: Uuid,
    /// From this time on (RFC 3339)
    #[arg(long, value_name = "TIME")]
    since: String,
    /// Before this time [default: now]
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// Allows what a guard refuses (such as many_domains, empties_zone); may be repeated
    #[arg(long, value_name = "GUARD", help_heading = "Change")]
    allow: Vec<String>,
    /// Undoes what tools of others manage by now too
    #[arg(long, help_heading = "Change")]
    take_over: bool,
    /// Prints the operation and does not wait for its end
    #[arg(long, help_heading = "Wait")]
    no_wait: bool,
    #[command(flatten)]
    common: Common,
}

/// Which moment of a domain is shown.
#[derive(Args, Clone, Debug, Default)]
pub struct Moment {
    /// As it was after this revision
    #[arg(long, value_name = "N", conflicts_with = "at", help_heading = "History")]
    revision: Option<u64>,
    /// As it was at this time (RFC 3339)
    #[arg(long, value_name = "TIME", help_heading = "History")]
    at: Option<String>,
}

impl Moment {
    /// The call of that moment.
    pub fn apply(self, call: Call) -> Call {
        call.maybe("revision", self.revision).maybe("at", self.at)
    }
}

/// Runs it.
pub async fn run(console: &Console, args: UndoArgs) -> Result<()> {
    let mut body = json!({"token": args.token, "since": args.since});
    if let Some(until) = args.until {
        body["until"] = json!(until);
    }
    let call = args.common.apply(Call::post(&["undo"])?.json(&body))?.each("allow", &args.allow);
    let call = if args.take_over { call.query("take_over", true) } else { call };
    if args.common.dry_run {
        let answer = console.api.send(&call).await?;
        return if console.json { Ok(data(answer.text.trim_end())?) } else { preview(&answer.json()?) };
    }
    let Some(found) = follow(console, &call, "undo", args.no_wait).await? else { return Ok(()) };
    if console.json {
        data(json!({"undo": args.token, "kept": found.differences, "result": found.result}))?;
    } else {
        data(format_args!("undo: done, {} kept", found.differences))?;
    }
    match found.differences {
        0 => Ok(()),
        count => Err(ClientError::refused(format!(
            "{count} of what the token did was kept, as told above\n  next: look at each with `headwater domain diff` and \
             put right by hand what is wrong"
        ))),
    }
}

fn preview(plan: &Value) -> Result<()> {
    let rows = |name: &str, keys: &[&str]| -> Vec<Vec<String>> {
        let rows = plan.get(name).and_then(Value::as_array).into_iter().flatten();
        rows.map(|row| keys.iter().map(|key| cell(row.get(*key))).collect()).collect()
    };
    let changes = rows("diff", &["domain", "path", "before", "after"]);
    if changes.is_empty() {
        talk("nothing would change");
    } else {
        data(plain_table(["DOMAIN", "PATH", "BEFORE", "AFTER"].map(str::to_owned).to_vec(), changes))?;
    }
    for row in rows("conflicts", &["domain", "path", "detail"]) {
        talk(format_args!("kept: {}", row.join(" ")));
    }
    let listed = |name: &str| plan.get(name).and_then(Value::as_array).into_iter().flatten();
    for warning in listed("warnings") {
        talk(format_args!("warning: {}", cell(Some(warning))));
    }
    for guard in listed("guards") {
        talk(format_args!("a guard stands in the way: it takes --allow {}", cell(Some(guard))));
    }
    talk(format_args!("the token changed {} of your domains", cell(plan.get("domains"))));
    Ok(())
}
