//! `headwater dnsdist`: the dnsdist of this host, made from the DNS clusters. What must hold: what runs goes on as it is
//! when anything of it fails; a watch goes on whatever fails, and says so once.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Subcommand;
use serde_json::{Value, json};

use super::Console;
use super::error::ClientError;
use super::http::Call;
use super::list;
use super::output::{data, raw, talk};
use crate::config::Config;
use crate::dnsdist::{self, Applied, Backend};

/// How often a watch looks when nobody says how often.
const WATCH_SECONDS: &str = "10";

/// What can be done with the dnsdist of this host.
#[derive(Subcommand)]
pub enum DnsdistCommand {
    /// Prints the configuration
    #[command(after_help = "Examples:
  headwater dnsdist render > dnsdist.conf

Listeners, networks that may ask, limits and stale answers are set in [dnsdist] of the configuration.")]
    Render,
    /// Writes the configuration and tells the running dnsdist what changed, without losing a question
    #[command(after_help = "Examples:
  headwater dnsdist apply
  headwater dnsdist apply --watch

Servers and who may ask are changed in the running dnsdist. Its listeners and limits are read only when it starts:
then it says so and exits with 3, and `systemctl restart dnsdist` takes them over.")]
    Apply {
        /// Looks again and again, every so many seconds
        #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = WATCH_SECONDS,
            value_parser = clap::value_parser!(u64).range(1..=3_600))]
        watch: Option<u64>,
    },
}

/// Runs it.
pub async fn run(console: &Console, command: DnsdistCommand) -> Result<()> {
    let config = Config::load(console.global.config.as_deref())?;
    match command {
        DnsdistCommand::Render => {
            let text = dnsdist::configuration(&config.dnsdist, &backends(console).await?)?;
            Ok(raw(text.as_bytes())?)
        }
        DnsdistCommand::Apply { watch: None } => {
            let applied = apply(console, &config).await?;
            tell(console, &applied)?;
            judge(&applied)
        }
        DnsdistCommand::Apply { watch: Some(seconds) } => {
            watch(console, &config, Duration::from_secs(seconds)).await
        }
    }
}

/// The clusters, as the API has them.
async fn backends(console: &Console) -> Result<Vec<Backend>> {
    let items = list::items(console, Call::get(&["dns-clusters"])?.query("limit", 1_000)).await?;
    let read = |item: &Value| {
        let text = |key: &str| item.get(key).and_then(Value::as_str);
        let front = text("front").map(str::parse).transpose().ok()?;
        let enabled = text("state").is_some_and(|state| state == "enabled");
        Some(Backend { name: text("name")?.to_owned(), address: text("dns")?.parse().ok()?, front, enabled })
    };
    // One that goes has ever fewer zones, and would refuse what others answer.
    let stays = |item: &&Value| item.get("state").and_then(Value::as_str) != Some("leaving");
    let read: Option<Vec<Backend>> = items.iter().filter(stays).map(read).collect();
    read.context("a DNS cluster cannot be read: this program is older than the server, upgrade it")
}

async fn apply(console: &Console, config: &Config) -> Result<Applied> {
    let backends = backends(console).await?;
    dnsdist::apply(Path::new(dnsdist::PROGRAM), &config.dnsdist, &backends).await
}

fn tell(console: &Console, applied: &Applied) -> Result<()> {
    let file = "it reads the file when it starts";
    let (word, text) = match applied {
        Applied::Unchanged => ("unchanged", "nothing to change".to_owned()),
        Applied::Told { added, removed } => {
            ("applied", format!("the running dnsdist was told: {added} servers came, {removed} went"))
        }
        Applied::NotRunning => ("not_running", format!("written; no dnsdist answers at the console: {file}")),
        Applied::NeedsRestart => (
            "needs_restart",
            "written; listeners or limits changed, which dnsdist reads when it starts: `systemctl restart dnsdist`"
                .to_owned(),
        ),
        Applied::Kept { count } => (
            "kept",
            format!(
                "no server of the new configuration is up: {count} old ones stay; see `headwater cluster test NAME`"
            ),
        ),
    };
    match console.json {
        true => Ok(data(json!({"result": word, "detail": text}))?),
        false => Ok(data(text)?),
    }
}

fn judge(applied: &Applied) -> Result<()> {
    match applied {
        Applied::NeedsRestart => Err(ClientError::refused("dnsdist has to be started anew".to_owned())),
        Applied::Kept { .. } => anyhow::bail!("the old servers stay"),
        _ => Ok(()),
    }
}

async fn watch(console: &Console, config: &Config, pause: Duration) -> Result<()> {
    let (mut told, mut failed) = (None, None);
    loop {
        match apply(console, config).await {
            Ok(applied) => {
                failed = None;
                if applied != Applied::Unchanged && told.as_ref() != Some(&applied) {
                    tell(console, &applied)?;
                }
                told = Some(applied);
            }
            Err(error) => {
                let why = format!("{error:#}");
                if failed.as_ref() != Some(&why) {
                    talk(format_args!("dnsdist stays as it is: {why}"));
                    failed = Some(why);
                }
            }
        }
        tokio::time::sleep(pause).await;
    }
}
