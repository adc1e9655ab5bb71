//! `headwater token`: tokens for programs.
//!
//! What must hold: the secret of a new token is shown once, alone on stdout or in a file that only its owner reads.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::{Value, json};

use super::Console;
use super::error::ClientError;
use super::http::Call;
use super::list::{self, ListArgs};
use super::mutate::{Change, Common, Say, carry_out};
use super::output::{Column, cell, data, talk};
use crate::secret::Secret;

/// Nobody but the owner reads a token file.
const TOKEN_FILE_MODE: u32 = 0o600;

const COLUMNS: &[Column] = &[
    ("ID", "/id"),
    ("NAME", "/name"),
    ("USER", "/user"),
    ("CREATED", "/created_at"),
    ("EXPIRES", "/expires_at"),
    ("LAST USED", "/last_used_at"),
    ("MANAGER", "/manager"),
];

/// What can be done with tokens.
#[derive(Subcommand)]
pub enum TokenCommand {
    /// Lists your tokens, or those of a user (administrators)
    #[command(after_help = "Examples:
  headwater token list
  headwater token list --user 01982f6e-7b4c-7d30-9d0a-3f1f0f3f5f10")]
    List {
        /// Those of this user
        #[arg(long, value_name = "ID")]
        user: Option<String>,
        /// How much of it.
        #[command(flatten)]
        list: ListArgs,
    },
    /// Makes a token for yourself and prints it; it is shown only now
    #[command(after_help = "Examples:
  headwater token create backup --output /etc/backup/headwater.token
  headwater token create ci --expires-at 2027-01-01T00:00:00Z --max-unused-days 30 --network 192.0.2.0/24
  headwater token create acme --scope 'verbs=read,write domains=example.com names=_acme-challenge types=TXT'
  headwater token create octodns --manager octodns --view own
  headwater token create watch --scope 'verbs=read domains=*'")]
    Create(CreateArgs),
    /// Revokes a token
    #[command(after_help = "Examples:
  headwater token revoke 01982f6e-7b4c-7d30-9d0a-3f1f0f3f5f10
  headwater token revoke --leaked leaked.txt")]
    Revoke(RevokeArgs),
}

/// A token to make.
#[derive(Args)]
pub struct CreateArgs {
    /// What it is for
    name: String,
    /// When it stops working (RFC 3339) [default: never]
    #[arg(long, value_name = "TIME")]
    expires_at: Option<String>,
    /// What it is limited to: verbs (read, write, admin) and domains (names, or * for all), and of records owner names
    /// (a * as the first or last label is one label or more) and types; may be repeated [default: to nothing but what you
    /// may]
    #[arg(long, value_name = "verbs=… domains=… [names=…] [types=…]", value_parser = scope)]
    scope: Vec<Value>,
    /// It stops working after so many days without use [default: never]
    #[arg(long, value_name = "DAYS")]
    max_unused_days: Option<u32>,
    /// It works from this network alone, as 192.0.2.0/24; may be repeated
    #[arg(long, value_name = "NETWORK")]
    network: Vec<String>,
    /// The tool that it is for: what is written with it is the tool's own, and others must take it over to change it
    #[arg(long, value_name = "NAME")]
    manager: Option<String>,
    /// Which records it is shown: all that it may read, or its manager's own
    #[arg(long, value_name = "all|own", value_parser = ["all", "own"], requires = "manager")]
    view: Option<String>,
    /// Into this new file, which only you can read, in place of stdout
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

/// A token to revoke.
#[derive(Args)]
pub struct RevokeArgs {
    /// Its id
    #[arg(required_unless_present = "leaked")]
    id: Option<String>,
    /// It belongs to another user (administrators)
    #[arg(long, conflicts_with = "leaked")]
    of_other: bool,
    /// The file that holds the token itself: whoever has it may revoke it
    #[arg(long, value_name = "FILE", conflicts_with = "id")]
    leaked: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

/// Runs it.
pub async fn run(console: &Console, command: TokenCommand) -> Result<()> {
    match command {
        TokenCommand::List { user, list } => {
            let call = match user {
                Some(user) => Call::get(&["tokens"])?.query("user", user),
                None => Call::get(&["me", "tokens"])?,
            };
            list::show(console, call, COLUMNS, &list).await
        }
        TokenCommand::Create(args) => create(console, args).await,
        TokenCommand::Revoke(args) => revoke(console, args).await,
    }
}

async fn create(console: &Console, args: CreateArgs) -> Result<()> {
    let mut body = json!({"name": args.name});
    if let Some(time) = &args.expires_at {
        body["expires_at"] = json!(time);
    }
    if !args.scope.is_empty() {
        body["scopes"] = Value::Array(args.scope);
    }
    if let Some(days) = args.max_unused_days {
        body["max_unused_days"] = json!(days);
    }
    if !args.network.is_empty() {
        body["networks"] = json!(args.network);
    }
    if let Some(manager) = &args.manager {
        body["manager"] = json!(manager);
    }
    if let Some(view) = &args.view {
        body["view"] = json!(view);
    }
    let call = Call::post(&["me", "tokens"])?.json(&body);
    if args.common.dry_run {
        return carry_out(console, call, &args.common.into(), Say::Id).await;
    }
    // Before the token exists, so that a file that cannot be written leaves none behind.
    let file = to_new_file(args.output.as_deref())?;
    show_secret(console, args.common.apply(call)?, file, "token", "token").await
}

/// Opens the file that a secret is to be written to, if there is one.
pub(super) fn to_new_file(file: Option<&Path>) -> Result<Option<(PathBuf, std::fs::File)>> {
    file.map(|file| new_file(file).map(|open| (file.to_owned(), open))).transpose()
}

/// Carries out what makes a secret, which stands in the answer's field `key`, and shows it, alone or in its file.
pub(super) async fn show_secret(
    console: &Console,
    call: Call,
    file: Option<(PathBuf, std::fs::File)>,
    key: &str,
    what: &str,
) -> Result<()> {
    let answer = match console.api.send(&call).await {
        Ok(answer) => answer,
        Err(error) => {
            if let Some((file, _)) = &file {
                // The error is what counts; the file is empty.
                let _removed = std::fs::remove_file(file);
            }
            return Err(error);
        }
    };
    let mut body = answer.json()?;
    let Some(Value::String(secret)) = body.get_mut(key).map(Value::take) else {
        return Err(ClientError::refused(format!(
            "the {key} was made by an earlier try and cannot be shown again: {}",
            if key == what { "revoke it and make another one" } else { "rotate it" }
        )));
    };
    let (id, secret) = (cell(body.get("id")), Secret::new(secret));
    if let Some((file, mut open)) = file {
        writeln!(open, "{}", secret.expose()).with_context(|| format!("cannot write {}", file.display()))?;
        talk(format_args!("the {key} is in {}", file.display()));
        return Ok(data(if console.json { body.to_string() } else { id })?);
    }
    if console.json {
        return Ok(data(answer.text.trim_end())?);
    }
    talk(format_args!("{what} {id}; its {key} is shown only now:"));
    Ok(data(secret.expose())?)
}

/// A scope as it is written on the command line: lists by their keys. What stands in them the server judges.
fn scope(text: &str) -> Result<Value, String> {
    let mut scope = serde_json::Map::new();
    for part in text.split_whitespace() {
        let (key, list) = part.split_once('=').ok_or_else(|| format!("{part}: write key=value,value"))?;
        if !["verbs", "domains", "names", "types"].contains(&key) {
            return Err(format!("{key}: the keys are verbs, domains, names, types"));
        }
        let items: Vec<&str> = list.split(',').filter(|item| !item.is_empty()).collect();
        if scope.insert(key.to_owned(), json!(items)).is_some() {
            return Err(format!("{key} stands more than once"));
        }
    }
    Ok(Value::Object(scope))
}

fn new_file(file: &Path) -> Result<std::fs::File> {
    std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(TOKEN_FILE_MODE)
        .open(file)
        .with_context(|| format!("cannot make {}: it must not exist yet", file.display()))
}

async fn revoke(console: &Console, args: RevokeArgs) -> Result<()> {
    let (call, shown) = match (args.leaked, args.id) {
        (Some(file), _) => {
            let token = Secret::read(&file)?;
            let body = json!({"token": token.expose()});
            (Call::post(&["tokens", "revoke"])?.json(&body), "token".to_owned())
        }
        (None, Some(id)) if args.of_other => {
            (Call::new(Method::DELETE, &["tokens", &id])?, format!("token {id}"))
        }
        (None, Some(id)) => (Call::new(Method::DELETE, &["me", "tokens", &id])?, format!("token {id}")),
        (None, None) => return Err(ClientError::usage("which token? Give its id, or --leaked FILE")),
    };
    carry_out(console, call, &Change::from(args.common), Say::Did(&shown, "revoked")).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_are_lists_by_their_keys() {
        let read = scope("verbs=read,write domains=example.com names=_acme-challenge.*,@ types=TXT");
        let body = json!({"verbs": ["read", "write"], "domains": ["example.com"], "names": ["_acme-challenge.*", "@"], "types": ["TXT"]});
        assert_eq!(read, Ok(body));
        for wrong in ["verbs", "verb=read", "verbs=read verbs=write"] {
            assert!(scope(wrong).is_err(), "{wrong}");
        }
    }
}
