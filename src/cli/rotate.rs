//! `headwater admin rotate-keys`: seals everything under the newest key of the secret key file, and says which keys the
//! file can do without.

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::json;
use sqlx::postgres::PgPool;

use super::client::output;
use crate::config::Config;
use crate::vault::rotate::{self, Standing, Step};
use crate::vault::{self, Vault};

/// How it is called.
pub const EXAMPLES: &str = "Examples:
  headwater admin rotate-keys --add-key
  headwater admin rotate-keys
  headwater admin rotate-keys --status

With --add-key, on one host alone: a new key is put in front of the file, then everything is sealed under it. Without: the
file was changed and brought to every host before. --status says which keys something is sealed under, and which can go.";

/// What is wanted.
#[derive(Args)]
pub struct RotateArgs {
    /// Put a new key in front of the file first; where several hosts have the file, bring it to all of them
    #[arg(long, conflicts_with = "status")]
    add_key: bool,
    /// Only say how the keys stand
    #[arg(long)]
    status: bool,
    /// Print {"rotated": …, "keys": […]}
    #[arg(long)]
    json: bool,
}

/// Does it.
///
/// # Errors
/// When the key file cannot be used, another rotation runs, something cannot be opened, or the database does not answer.
pub async fn run(pool: &PgPool, config: &Config, args: RotateArgs) -> Result<()> {
    let file = &config.secrets.key_file;
    if args.add_key {
        vault::add(file)?;
        output::talk(format_args!("put a new key in front of {}", file.display()));
    }
    let vault = Vault::open(config)?;
    let mut rotated = None;
    if !args.status {
        let mut progress = output::Progress::new("sealing anew");
        let told = |step: Step, done, total| {
            let unit = if step == Step::DataKeys { "data keys" } else { "secrets sealed directly" };
            progress.count(done, total, unit);
        };
        rotated =
            Some(rotate::rotate(pool, &vault, told).await.context("what is done is done: run it again")?);
    }
    let standings = rotate::status(pool, &vault).await?;
    if args.json {
        let keys: Vec<_> = standings.iter().map(shown).collect();
        let done = rotated.map(|done| {
            json!({"data_keys": done.data_keys, "secrets": done.secrets, "unreadable": done.unreadable})
        });
        output::data(json!({"rotated": done, "keys": keys}))?;
    } else {
        for standing in &standings {
            output::data(line(standing))?;
        }
    }
    match rotated {
        Some(done) if done.unreadable > 0 => {
            bail!("{} could not be opened and stay as they are: the log names them", done.unreadable)
        }
        _ => Ok(()),
    }
}

fn shown(standing: &Standing) -> serde_json::Value {
    let Standing { key, in_file, newest, data_keys, secrets, dispensable } = standing;
    json!({"key": key, "in_file": in_file, "newest": newest, "data_keys": data_keys, "secrets": secrets,
        "dispensable": dispensable})
}

fn line(standing: &Standing) -> String {
    let Standing { key, data_keys, secrets, .. } = standing;
    let verdict = if standing.newest {
        "seals: it must stay"
    } else if standing.dispensable {
        "nothing is sealed under it: it can be taken out of the file, on every host"
    } else if !standing.in_file {
        "NOT IN THE FILE: what is sealed under it cannot be opened"
    } else if *data_keys == 0 && *secrets == 0 {
        "nothing is sealed under it, but tokens may be known by it: run rotate-keys before it goes"
    } else {
        "in use: run rotate-keys"
    };
    format!("{key}  {data_keys} data keys, {secrets} secrets  {verdict}")
}
