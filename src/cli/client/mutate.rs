//! Every mutation goes through here: its conditions, its key, its answer.
//!
//! What must hold: `done` is said of what is done, never of what was only accepted; each command has one `Idempotency-Key` for all its tries; a dry run shows what would change and
//! writes nothing; `--wait` ends as the operation ends.

use anyhow::Result;
use clap::Args;
use serde_json::Value;
use uuid::Uuid;

use super::Console;
use super::error::ClientError;
use super::http::Call;
use super::output::{cell, data, plain_table, talk};
use super::wait;

/// What any mutation can be given.
#[derive(Args, Clone, Debug, Default)]
pub struct Common {
    /// Shows what would change and changes nothing
    #[arg(long, help_heading = "Change")]
    pub dry_run: bool,
    /// Why; stands in the history
    #[arg(long, value_name = "TEXT", help_heading = "Change")]
    pub note: Option<String>,
    /// Repeats an earlier try of the same command safely [default: a new one]
    #[arg(long, value_name = "UUID", help_heading = "Change")]
    pub idempotency_key: Option<Uuid>,
}

/// Something that is named by its id.
#[derive(Args, Clone, Debug)]
pub struct IdArgs {
    /// Its id
    pub(super) id: String,
    #[command(flatten)]
    pub(super) common: Common,
}

/// What a mutation of a domain can be given.
#[derive(Args, Clone, Debug, Default)]
pub struct Change {
    #[command(flatten)]
    pub(super) common: Common,
    /// Only if it is still at this revision; else exit 3
    #[arg(long, value_name = "REVISION", help_heading = "Change")]
    pub if_match: Option<String>,
    /// Only if it does not exist yet: said by the commands that can make something.
    #[arg(skip)]
    pub if_absent: bool,
    /// Allows what a guard refuses (such as empties_zone, mass_delete); may be repeated
    #[arg(long, value_name = "GUARD", help_heading = "Change")]
    pub allow: Vec<String>,
    /// Changes what tools of others manage too; what is written is yours then
    #[arg(long, help_heading = "Change")]
    pub take_over: bool,
    #[command(flatten)]
    pub(super) waiting: Waiting,
}

/// What a command that makes something can be given.
#[derive(Args, Clone, Debug, Default)]
pub struct Making {
    #[command(flatten)]
    pub(super) common: Common,
    /// Only if it does not exist yet; else exit 3
    #[arg(long, help_heading = "Change")]
    if_absent: bool,
    #[command(flatten)]
    waiting: Waiting,
}

impl From<Making> for Change {
    fn from(making: Making) -> Self {
        let Making { common, if_absent, waiting } = making;
        Self { common, if_absent, waiting, ..Self::default() }
    }
}

/// Whether to wait for the operation.
#[derive(Args, Clone, Debug, Default)]
pub struct Waiting {
    /// Waits until the change is served, and ends as its operation ends
    #[arg(long, help_heading = "Wait")]
    pub wait: bool,
    #[command(flatten)]
    pub(super) limit: wait::Limit,
}

impl From<Common> for Change {
    fn from(common: Common) -> Self {
        Self { common, ..Self::default() }
    }
}

impl Common {
    /// The call with note, key and dry run.
    pub fn apply(&self, mut call: Call) -> Result<Call> {
        call.key = Some(self.idempotency_key.unwrap_or_else(Uuid::new_v4));
        if let Some(note) = &self.note {
            call = call.header("change-note", note)?;
        }
        Ok(if self.dry_run { call.query("dry_run", true) } else { call })
    }
}

impl Change {
    /// The call with everything that was given.
    pub fn apply(&self, call: Call) -> Result<Call> {
        let mut call = self.common.apply(call)?.each("allow", &self.allow);
        if self.take_over {
            call = call.query("take_over", true);
        }
        if let Some(revision) = &self.if_match {
            call = call.header("if-match", &entity_tag(revision)?)?;
        }
        if self.if_absent {
            call = call.header("if-none-match", "*")?;
        }
        Ok(call)
    }
}

/// `7` and `"7"` are the same; `*` stands for any.
fn entity_tag(revision: &str) -> Result<String> {
    let bare = revision.trim_matches('"');
    if bare == "*" {
        return Ok(bare.to_owned());
    }
    match bare.parse::<u64>() {
        Ok(number) => Ok(format!("\"{number}\"")),
        Err(_) => {
            Err(ClientError::usage(format!("--if-match {revision}: a revision is a number, such as 7")))
        }
    }
}

/// What a command says on stdout when it is done.
#[derive(Clone, Copy)]
pub enum Say<'a> {
    /// The name of what was changed, with its own revision, and its operation.
    Outcome(&'a str),
    /// The name of something and what was done to it, where the answer's revision is not that of the thing.
    Did(&'a str, &'a str),
    /// The name of something that is carried out without an operation, and the command that shows how it comes along.
    Accepted(&'a str, &'a str),
    /// The id of what was made, alone.
    Id,
}

/// Carries a mutation out and shows its answer.
pub async fn carry_out(console: &Console, call: Call, change: &Change, say: Say<'_>) -> Result<()> {
    let call = change.apply(call)?;
    let answer = console.api.send(&call).await?;
    if answer.is_replayed {
        talk("this was done before with the same key: the answer is the one of then");
    }
    let mut body = answer.json()?;
    if change.common.dry_run {
        return if console.json { Ok(data(answer.text.trim_end())?) } else { show_plan(&body) };
    }
    for warning in body.get("warnings").and_then(Value::as_array).into_iter().flatten() {
        talk(format_args!("warning: {}", cell(Some(warning))));
    }
    say_not_restored(&body);
    let operation = operation_id(&body);
    let ended = match &operation {
        Some(id) if change.waiting.wait => Some(wait::end_of(&console.api, id, &change.waiting.limit).await?),
        _ => None,
    };
    if console.json {
        match &ended {
            Some(operation) => {
                match body.get_mut("operation") {
                    Some(place) => *place = operation.clone(),
                    None => body = operation.clone(),
                }
                data(&body)?;
            }
            None if answer.text.trim().is_empty() => {}
            None => data(answer.text.trim_end())?,
        }
    } else {
        show_answer(&body, ended.as_ref(), say)?;
    }
    match &ended {
        Some(operation) => wait::judge(operation),
        None => Ok(()),
    }
}

/// What a rollback leaves, or would leave, as it is.
fn say_not_restored(body: &Value) {
    for one in body.get("not_restored").and_then(Value::as_array).into_iter().flatten() {
        talk(format_args!("not restored: {}", cell(one.get("detail"))));
    }
}

/// The operation of an answer, which may be an operation itself.
pub fn operation_id(body: &Value) -> Option<String> {
    let is_operation = body.get("lane").is_some() && body.get("state").is_some();
    let id = body.pointer("/operation/id").or_else(|| body.get("id").filter(|_| is_operation));
    id.and_then(Value::as_str).map(str::to_owned)
}

fn show_answer(body: &Value, ended: Option<&Value>, say: Say<'_>) -> Result<()> {
    let (name, did) = match say {
        Say::Id => return Ok(data(cell(body.get("id")))?),
        Say::Outcome(name) => (super::output::safe(name), None),
        Say::Did(name, did) => (super::output::safe(name), Some(did)),
        Say::Accepted(name, _) => (super::output::safe(name), Some("accepted")),
    };
    let revision = cell(body.get("revision").filter(|_| did.is_none()));
    let revision = if revision.is_empty() { revision } else { format!(", revision {revision}") };
    if body.get("changed") == Some(&Value::Bool(false)) {
        return Ok(data(format_args!("{name}: nothing changed{revision}"))?);
    }
    if let Some(did) = did {
        data(format_args!("{name}: {did}"))?;
        if let Say::Accepted(_, look) = say {
            talk(format_args!("`{look}` tells how it comes along"));
        }
        return Ok(());
    }
    let status = cell(body.get("status").or_else(|| body.pointer("/domain/status")));
    let status = if status.is_empty() { status } else { format!(", {status}") };
    let state = ended.map(|operation| cell(operation.get("state")));
    let stands = match (operation_id(body), state.as_deref()) {
        (None, _) | (Some(_), Some("succeeded")) => "done",
        (Some(_), Some(state)) => state,
        (Some(_), None) => "accepted",
    };
    let mut line = format!("{name}: {stands}{revision}{status}");
    if let Some(id) = operation_id(body) {
        line.push_str(&format!(", operation {id}"));
        match &state {
            Some(state) => line.push_str(&format!(" {state}")),
            None if wait::is_terminal(body) => {
                let state = cell(body.get("state"));
                talk(format_args!(
                    "the operation stays {state}; what it left is tried again: `headwater domain status {}`",
                    cell(body.get("domain"))
                ));
            }
            None => talk(format_args!("`headwater op wait {id}` tells when it is served")),
        }
    }
    Ok(data(line)?)
}

fn show_plan(plan: &Value) -> Result<()> {
    let rows: Vec<Vec<String>> = plan
        .get("diff")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .map(|row| ["path", "before", "after"].iter().map(|key| cell(row.get(*key))).collect())
        .collect();
    if plan.get("changed") == Some(&Value::Bool(false)) || rows.is_empty() {
        talk("nothing would change");
    } else {
        data(plain_table(["PATH", "BEFORE", "AFTER"].map(str::to_owned).to_vec(), rows))?;
    }
    let listed = |name: &str| -> Vec<String> {
        plan.get(name).and_then(Value::as_array).into_iter().flatten().map(|one| cell(Some(one))).collect()
    };
    for warning in listed("warnings") {
        talk(format_args!("warning: {warning}"));
    }
    say_not_restored(plan);
    for guard in listed("guards") {
        talk(format_args!("a guard stands in the way: it takes --allow {guard}"));
    }
    let targets = listed("targets");
    if !targets.is_empty() {
        talk(format_args!("it would be deployed to {}", targets.join(", ")));
    }
    let revision = cell(plan.get("if_match"));
    if !revision.is_empty() {
        talk(format_args!("to do exactly this: the same with --if-match {revision} in place of --dry-run"));
    }
    if plan.get("if_none_match").is_some_and(Value::is_string) {
        talk("to do exactly this: the same with --if-absent in place of --dry-run");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_revision_is_an_entity_tag() {
        assert_eq!(entity_tag("7").unwrap(), "\"7\"");
        assert_eq!(entity_tag("\"7\"").unwrap(), "\"7\"");
        assert_eq!(entity_tag("*").unwrap(), "*");
        assert!(entity_tag("W/\"7\"").is_err());
    }
}
