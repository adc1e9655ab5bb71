//! `headwater projection`: what is derived from the log.
//!
//! The API answers a rebuild or a verification in one of three ways, and all are read: a stream of JSON lines
//! (`progress`, `difference`, at the end `result` or `problem`), one JSON object with `differences`, or 202 with an
//! operation. What must hold: a stream that breaks off before its end is a failure, never a verification without
//! differences.

use anyhow::{Context, Result, bail};
use clap::Subcommand;
use reqwest::StatusCode;
use serde_json::{Value, json};

use super::error::{ApiProblem, ClientError};
use super::http::{Call, Stream};
use super::list;
use super::mutate::{Common, operation_id};
use super::output::{Column, Progress, cell, data, talk};
use super::{Console, wait};

/// The longest line of an answer.
const LINE_MAX_BYTES: usize = 8 * 1024 * 1024;
/// The form that shows progress, and the one that does not.
const ACCEPT: &str = "application/x-ndjson, application/json;q=0.5";

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
        /// How it is changed.
        /// How it is changed.
        #[command(flatten)]
        common: Common,
    },
    /// Compares a projection with the log, row by row: exit 3 when something differs
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
        /// Keeps the mender away from what differs
        #[arg(long)]
        no_mend: bool,
    },
}

/// Runs it.
pub async fn run(console: &Console, command: ProjectionCommand) -> Result<()> {
    match command {
        ProjectionCommand::List => list::show_whole(console, Call::get(&["projections"])?, COLUMNS).await,
        ProjectionCommand::Rebuild { name, domain, common } => {
            let body = scope(domain);
            let call =
                common.apply(Call::post(&["projections", &name, "rebuild"])?.json(&body).accept(ACCEPT))?;
            let found = follow(console, &call, &name).await?;
            if console.json {
                data(json!({"projection": name, "result": found.result}))?;
            } else {
                data(format_args!("{name}: rebuilt{}", told(&found.result)))?;
            }
            Ok(())
        }
        ProjectionCommand::Verify { name, domain, no_mend } => {
            let names = match name {
                Some(name) => vec![name],
                None => names(console).await?,
            };
            verify(console, &names, domain, no_mend).await
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

async fn verify(console: &Console, names: &[String], domain: Option<String>, no_mend: bool) -> Result<()> {
    let mut body = scope(domain);
    if no_mend {
        body["mend"] = json!(false);
    }
    let (mut differences, mut ahead) = (0_u64, 0_u64);
    for name in names {
        let mut call = Call::post(&["projections", name, "verify"])?.json(&body).accept(ACCEPT);
        call.key = Some(uuid::Uuid::new_v4());
        let found = follow(console, &call, name).await?;
        differences += found.differences;
        ahead += found.ahead;
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
            if count > ahead {
                next.push_str("\n  next: `headwater projection rebuild NAME` writes what the log says");
            }
            if ahead > 0 {
                next.push_str(
                    "\n  next: `headwater deployment list --state ahead`, then `headwater deployment adopt` or `discard`",
                );
            }
            Err(ClientError::refused(format!("{count} differences{next}")))
        }
    }
}

/// What an answer came to.
#[derive(Default)]
struct Found {
    differences: u64,
    /// Those of them that a rebuild does not write over.
    ahead: u64,
    result: Value,
}

impl Found {
    /// Prints one difference.
    fn difference(&mut self, console: &Console, name: &str, difference: &Value) -> Result<()> {
        self.differences += 1;
        self.ahead += u64::from(difference.get("kind").and_then(Value::as_str) == Some("ahead"));
        if console.json {
            return Ok(data(json!({"projection": name, "difference": difference}))?);
        }
        Ok(data(difference_line(name, difference))?)
    }
}

async fn follow(console: &Console, call: &Call, name: &str) -> Result<Found> {
    let stream = console.api.open(call).await?;
    if stream.media_type() == "application/x-ndjson" {
        return read_lines(console, stream, name).await;
    }
    let is_accepted = stream.status() == StatusCode::ACCEPTED;
    let mut body: Value = serde_json::from_str(&stream.whole().await?)
        .context("the API answered with something that is not JSON")?;
    if let (true, Some(id)) = (is_accepted, operation_id(&body)) {
        talk(format_args!("operation {id}"));
        body = wait::end_of(&console.api, &id, &wait::Limit::longest()).await?;
        wait::judge(&body)?;
    }
    let mut found = Found::default();
    if let Some(Value::Array(differences)) = body.get_mut("differences").map(Value::take) {
        for difference in &differences {
            found.difference(console, name, difference)?;
        }
    }
    found.result = body;
    Ok(found)
}

async fn read_lines(console: &Console, mut stream: Stream, name: &str) -> Result<Found> {
    let mut progress = Progress::new(name);
    let mut found = Found::default();
    let mut has_ended = false;
    let mut rest: Vec<u8> = Vec::new();
    while let Some(chunk) = stream.chunk().await? {
        rest.extend_from_slice(&chunk);
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = rest.drain(..=end).collect();
            if !line.trim_ascii().is_empty() {
                let line = serde_json::from_slice(&line).context("a line of the answer is not JSON")?;
                has_ended |= take_line(console, &line, name, &mut progress, &mut found)?;
            }
        }
        if rest.len() > LINE_MAX_BYTES {
            bail!("a line of the answer is longer than {LINE_MAX_BYTES} bytes");
        }
    }
    if !has_ended {
        bail!("the answer broke off before its end: what was compared so far says nothing; repeat it");
    }
    Ok(found)
}

/// Takes one line in and says whether it was the last one.
fn take_line(
    console: &Console,
    line: &Value,
    name: &str,
    progress: &mut Progress,
    found: &mut Found,
) -> Result<bool> {
    if let Some(difference) = line.get("difference") {
        progress.aside(|| found.difference(console, name, difference))?;
    } else if let Some(step) = line.get("progress") {
        let number = |key: &str| step.get(key).and_then(Value::as_u64).unwrap_or_default();
        let unit = step.get("unit").or_else(|| step.get("phase"));
        progress.count(number("done"), number("total"), &cell(unit));
    } else if let Some(result) = line.get("result") {
        found.result = result.clone();
        return Ok(true);
    } else if let Some(problem) = line.get("problem") {
        let status =
            problem.get("status").and_then(Value::as_u64).and_then(|status| u16::try_from(status).ok());
        let status = status.and_then(|status| StatusCode::from_u16(status).ok());
        let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let problem = ApiProblem::read(status, None, &problem.to_string());
        return Err(ClientError::Problem(Box::new(problem)).into());
    }
    Ok(false)
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
