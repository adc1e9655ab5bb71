//! `headwater projection`: what is derived from the log.
//!
//! A rebuild or a verification is an operation of the server's. What must hold: it is followed to its end, and an
//! operation that did not succeed is never taken for a verification without differences; whoever stops watching leaves
//! it running, and is told so.

use anyhow::{Context, Result, anyhow, bail};
use clap::Subcommand;
use serde_json::{Value, json};

use super::error::ClientError;
use super::http::Call;
use super::list;
use super::mutate::{Change, Common, Say, carry_out, operation_id};
use super::output::{Column, cell, data, talk};
use super::{Console, wait};

/// Differences of one operation that the server tells one by one.
const TOLD_MAX_COUNT: u64 = 1_000;

/// The projection that a verification mends.
const MENDED: &str = "powerdns";

const COLUMNS: &[Column] = &[
    ("NAME", "/name"),
    ("VERSION", "/version"),
    ("POSITION", "/position"),
    ("LAG", "/lag"),
    ("STATE", "/state"),
    ("LAST ERROR", "/last_error"),
];

/// What can be done with projections.
#[derive(Subcommand)]
pub enum ProjectionCommand {
    /// Lists projections: version, position, lag, last error
    #[command(after_help = "Examples:
  headwater projection list
  headwater projection list --json | jq '.items[] | select(.lag > 0)'")]
    List,
    /// Builds a projection anew from the log; answers go on meanwhile
    #[command(after_help = "Examples:
  headwater projection rebuild powerdns
  headwater projection rebuild powerdns --domain example.com")]
    Rebuild {
        /// The projection: desired, powerdns, edge, operations, audit
        name: String,
        /// Only this domain
        #[arg(long, value_name = "DOMAIN")]
        domain: Option<String>,
        /// Prints the operation and does not wait for its end
        #[arg(long, help_heading = "Wait")]
        no_wait: bool,
        /// How it is changed.
        #[command(flatten)]
        common: Common,
    },
    /// Compares a projection with the log, row by row: exit 3 when something differs
    ///
    /// Zones of powerdns that differ are mended at once afterwards, unless --no-mend says otherwise. The other
    /// projections are mended by a rebuild alone.
    #[command(after_help = "Examples:
  headwater projection verify
  headwater projection verify powerdns --domain example.com
  headwater projection verify powerdns --no-mend --json")]
    Verify {
        /// The projection [default: all]
        name: Option<String>,
        /// Only this domain
        #[arg(long, value_name = "DOMAIN")]
        domain: Option<String>,
        /// Leaves what differs as it is: by itself, powerdns is mended after it was compared
        #[arg(long)]
        no_mend: bool,
        /// Prints the operation and does not wait for its end
        #[arg(long, help_heading = "Wait")]
        no_wait: bool,
    },
}

/// Runs it.
pub async fn run(console: &Console, command: ProjectionCommand) -> Result<()> {
    match command {
        ProjectionCommand::List => list::show_whole(console, Call::get(&["projections"])?, COLUMNS).await,
        ProjectionCommand::Rebuild { name, domain, no_wait, common } => {
            let call = Call::post(&["projections", &name, "rebuild"])?.json(&scope(domain));
            if common.dry_run {
                let say = format!("projection {name}");
                return carry_out(console, call, &Change::from(common), Say::Outcome(&say)).await;
            }
            let Some(found) = follow(console, &common.apply(call)?, &name, no_wait).await? else {
                return Ok(());
            };
            if console.json {
                data(json!({"projection": name, "differences": found.differences, "result": found.result}))?;
            } else {
                data(format_args!("{name}: rebuilt{}", told(&found.result)))?;
            }
            Ok(())
        }
        ProjectionCommand::Verify { name, domain, no_mend, no_wait } => {
            let names = match name {
                Some(name) => vec![name],
                None => names(console).await?,
            };
            let mut body = scope(domain);
            if no_mend {
                body["mend"] = json!(false);
            }
            verify(console, &names, &body, !no_mend, no_wait).await
        }
    }
}

fn scope(domain: Option<String>) -> Value {
    match domain {
        Some(domain) => json!({"domain": domain}),
        None => json!({}),
    }
}

async fn names(console: &Console) -> Result<Vec<String>> {
    let items = list::items(console, Call::get(&["projections"])?).await?;
    let names = items.iter().filter_map(|item| item.get("name")?.as_str().map(str::to_owned));
    Ok(names.collect())
}

async fn verify(console: &Console, names: &[String], body: &Value, mends: bool, no_wait: bool) -> Result<()> {
    let (mut differences, mut ahead, mut left) = (0_u64, 0_u64, 0_u64);
    for name in names {
        let mut call = Call::post(&["projections", name, "verify"])?.json(body);
        call.key = Some(uuid::Uuid::new_v4());
        let Some(found) = follow(console, &call, name, no_wait).await? else { continue };
        differences += found.differences;
        ahead += found.ahead;
        let unmended = found.differences.saturating_sub(found.ahead);
        match name.as_str() {
            MENDED if unmended > 0 && mends => talk(format_args!(
                "{name}: the zones that differ are being mended (not with --no-mend): verify again to see that they are"
            )),
            MENDED if unmended > 0 => {
                left += unmended;
                talk(format_args!("{name}: left as it is (--no-mend)"));
            }
            _ => left += unmended,
        }
        if console.json {
            data(json!({"projection": name, "differences": found.differences, "result": found.result}))?;
        } else if found.differences == 0 {
            data(format_args!("{name}: no difference{}", told(&found.result)))?;
        }
    }
    match differences {
        0 => Ok(()),
        count => {
            let mut next = String::new();
            if left > 0 {
                next.push_str("\n  next: `headwater projection rebuild NAME` writes what the log says");
            }
            if ahead > 0 {
                next.push_str(
                    "\n  next: `headwater deployment list --state ahead`, then `headwater deployment adopt` or `discard`",
                );
            }
            let noun = if count == 1 { "difference" } else { "differences" };
            Err(ClientError::refused(format!("{count} {noun}{next}")))
        }
    }
}

/// What an operation came to.
pub(super) struct Found {
    pub(super) differences: u64,
    /// Those of them that a rebuild does not write over.
    ahead: u64,
    pub(super) result: Value,
}

/// Submits, watches to the end, prints what was found; none when nobody waits.
pub(super) async fn follow(
    console: &Console,
    call: &Call,
    name: &str,
    no_wait: bool,
) -> Result<Option<Found>> {
    let answer = console.api.send(call).await?;
    let body = answer.json()?;
    let id = operation_id(&body).context("the API answered without an operation: check the URL")?;
    if no_wait {
        let json = console.json;
        data(if json { body.to_string() } else { format!("{name}: operation {id}") })?;
        talk(format_args!("it is carried out by the server: `headwater op wait {id}`"));
        return Ok(None);
    }
    talk(format_args!("{name}: operation {id}"));
    let limit = wait::Limit::longest();
    let operation = tokio::select! {
        ended = wait::watch_end(&console.api, &id, &limit) => ended?,
        interrupted = tokio::signal::ctrl_c() => {
            interrupted?;
            bail!("the operation goes on without you: wait for it with `headwater op wait {id}`, or end it with `headwater op cancel {id}`");
        }
    };
    let (told, ahead) = differences(console, &id, name).await?;
    judge(&operation)?;
    let result = operation.get("result").cloned().unwrap_or_default();
    let counted = result.get("differences").and_then(Value::as_u64);
    let differences = counted.context("the API does not say how many differences there are")?;
    if differences > told {
        talk(format_args!("{name}: {} more differ that are not told one by one", differences - told));
    }
    Ok(Some(Found { differences, ahead, result }))
}

/// A verification that did not come to its end says nothing of what it did not compare.
fn judge(operation: &Value) -> Result<()> {
    match operation.get("state").and_then(Value::as_str) {
        Some("succeeded") => Ok(()),
        Some("cancelled") => wait::judge(operation),
        _ => wait::judge(operation).map_err(|error| anyhow!("{error}")),
    }
}

/// Prints each difference; gives how many there are and how many of them are `ahead`.
async fn differences(console: &Console, id: &str, name: &str) -> Result<(u64, u64)> {
    let call = Call::get(&["operations", id, "differences"])?.query("limit", TOLD_MAX_COUNT);
    let (mut told, mut ahead) = (0, 0);
    for difference in list::items(console, call).await? {
        told += 1;
        ahead += u64::from(difference.get("kind").and_then(Value::as_str) == Some("ahead"));
        if console.json {
            data(json!({"projection": name, "difference": difference}))?;
        } else {
            data(difference_line(name, &difference))?;
        }
    }
    Ok((told, ahead))
}

fn difference_line(name: &str, difference: &Value) -> String {
    let Value::Object(fields) = difference else { return format!("{name}: {}", cell(Some(difference))) };
    // The server's own sentence says all of it.
    if let Some(detail) = fields.get("detail").and_then(Value::as_str) {
        return format!("{name}: {}", detail.replace('\n', " "));
    }
    let is_side = |key: &str| matches!(key, "kind" | "live" | "found" | "actual" | "expected");
    let place: Vec<String> = fields
        .iter()
        .filter(|(key, value)| !is_side(key) && !value.is_null())
        .map(|(_, value)| cell(Some(value)).replace('\n', " "))
        .collect();
    let side = |keys: &[&str]| {
        let value = keys.iter().find_map(|key| fields.get(*key)).filter(|value| !value.is_null());
        value.map_or_else(|| "nothing".to_owned(), |value| cell(Some(value)).replace('\n', ", "))
    };
    let live = side(&["live", "found", "actual"]);
    format!("{name}: {}: there is {live}; the log says {}", place.join(" "), side(&["expected"]))
}

fn told(result: &Value) -> String {
    let Value::Object(fields) = result else { return String::new() };
    let scalars = fields.iter().filter(|(_, value)| value.is_number());
    let numbers: Vec<String> = scalars.map(|(key, value)| format!("{key} {value}")).collect();
    if numbers.is_empty() { String::new() } else { format!(" ({})", numbers.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_says_where_what_and_what_should_be() {
        let difference = json!({"target": "dns-1", "domain": "example.com", "key": ["www", "A"],
            "live": null, "expected": {"content": "192.0.2.1"}});
        let line = difference_line("powerdns", &difference);
        assert!(line.ends_with("there is nothing; the log says content=192.0.2.1"), "{line}");
        assert!(line.contains("dns-1") && line.contains("www A"), "{line}");
        let told = json!({"kind": "extra", "table": "powerdns of dns-1", "key": ["example.com"],
            "live": "the whole zone", "expected": null, "detail": "powerdns of dns-1 [\"example.com\"]: extra, the whole zone"});
        let line = difference_line("powerdns", &told);
        assert_eq!(line, "powerdns: powerdns of dns-1 [\"example.com\"]: extra, the whole zone");
    }
}
