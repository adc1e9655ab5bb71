//! `headwater why`: why a name is answered as it is.

use anyhow::Result;
use clap::Args;
use serde_json::Value;

use super::Console;
use super::error::ClientError;
use super::http::Call;
use super::output::{Column, data, table};

/// Examples.
pub const EXAMPLES: &str = "Examples:
  headwater why www.example.com A
  headwater why example.com MX --json | jq .first_broken

The hops stand in the order in which a change goes through them: the domain, what is desired, its deployment on each DNS
cluster, each PowerDNS and dnsdist (asked now), the delegation. Exit 3 when one is broken.";

const COLUMNS: &[Column] =
    &[("HOP", "/hop"), ("TARGET", "/target"), ("STATE", "/state"), ("WHAT", "/detail")];

/// What is asked about.
#[derive(Args)]
pub struct WhyArgs {
    /// The absolute name
    name: String,
    /// The type
    #[arg(value_name = "TYPE", default_value = "A")]
    rrtype: String,
}

/// Runs it.
pub async fn run(console: &Console, args: WhyArgs) -> Result<()> {
    let call = Call::get(&["explain"])?.query("name", &args.name).query("type", &args.rrtype);
    let answer = console.api.send(&call).await?;
    let body = answer.json()?;
    let broken = body.get("first_broken").filter(|hop| !hop.is_null());
    if console.json {
        data(answer.text.trim_end())?;
    } else {
        let hops = body.get("hops").and_then(Value::as_array).cloned().unwrap_or_default();
        data(table(COLUMNS, &hops))?;
        for line in broken.into_iter().flat_map(told) {
            data(line)?;
        }
    }
    match broken {
        Some(_) => Err(ClientError::refused(format!("{} {} is broken", args.name, args.rrtype))),
        None => Ok(()),
    }
}

/// Who did it, and what mends it.
fn told(hop: &Value) -> Vec<String> {
    let text = |pointer: &str| match hop.pointer(pointer) {
        Some(Value::String(text)) => Some(text.clone()),
        Some(Value::Null) | None => None,
        Some(other) => Some(other.to_string()),
    };
    let mut lines = vec![String::new()];
    lines.extend(text("/detail").map(|detail| format!("broken: {detail}")));
    if let (Some(event), Some(revision)) = (text("/change/event"), text("/change/revision")) {
        let (kind, id) = (text("/change/actor/kind"), text("/change/actor/id"));
        let who = [kind, id].into_iter().flatten().collect::<Vec<_>>().join(" ");
        let at = text("/change/at").unwrap_or_default();
        let note = text("/change/note").map(|note| format!(" ({note})")).unwrap_or_default();
        lines.push(format!("since:  {event}, revision {revision}, {at}, {who}{note}"));
    }
    lines.extend(text("/command").map(|command| format!("mend:   {command}")));
    lines
}
