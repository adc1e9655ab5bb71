//! `headwater rrset`: the records of one owner name and type.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::{Value, json};

use super::error::ClientError;
use super::http::Call;
use super::list::{self, ListArgs};
use super::mutate::{Change, Say, carry_out};
use super::output::Column;
use super::undo::Moment;
use super::{Console, read_input, show_one};

/// The TTL of a new RRset when none is given.
const TTL_DEFAULT_SECONDS: u32 = 300;

const COLUMNS: &[Column] = &[
    ("NAME", "/name"),
    ("TYPE", "/type"),
    ("TTL", "/ttl"),
    ("RECORDS", "/records"),
    ("DERIVED", "/derived"),
    ("MANAGER", "/managed_by"),
    ("CHANGED", "/changed/at"),
    ("COMMENT", "/comment"),
];

const FOUND_COLUMNS: &[Column] = &[
    ("DOMAIN", "/domain"),
    ("NAME", "/name"),
    ("TYPE", "/type"),
    ("TTL", "/ttl"),
    ("RECORDS", "/records"),
    ("MANAGER", "/managed_by"),
    ("CHANGED", "/changed/at"),
];

/// What can be done with records.
#[derive(Subcommand)]
pub enum RrsetCommand {
    /// Shows the records of one name and type
    #[command(after_help = "Examples:
  headwater rrset get example.com www A
  headwater rrset get example.com @ MX --json
  headwater rrset get example.com www A --at 2026-01-31T12:00:00Z")]
    Get(GetArgs),
    /// Lists all records of a domain
    #[command(after_help = "Examples:
  headwater rrset list example.com
  headwater rrset list example.com --managed-by octodns
  headwater rrset list example.com --json | jq -r '.items[] | select(.type == \"MX\") | .records[]'")]
    List {
        /// The domain
        domain: String,
        /// Those that this tool manages
        #[arg(long, value_name = "NAME")]
        managed_by: Option<String>,
        /// As of when.
        #[command(flatten)]
        moment: Moment,
        /// How much of it.
        #[command(flatten)]
        list: ListArgs,
    },
    /// Finds records in all domains, by a value, a name, a type, a tool
    #[command(after_help = "Examples:
  headwater rrset search --content 192.0.2.1
  headwater rrset search --content mail.example.com. --type MX
  headwater rrset search --content include:_spf.example.com
  headwater rrset search --name '_acme-challenge.*' --type TXT
  headwater rrset search --name www.example.com.
  headwater rrset search --managed-by octodns --json | jq -r '.items[].domain'

A value is looked for whole, or a whole word of it. A name may begin or end with *, for one label or more; * alone is the
wildcard record. What the platform derives in every zone is left out.")]
    Search(SearchArgs),
    /// Sets all records of one name and type, in place of what was there
    #[command(after_help = "Examples:
  headwater rrset set example.com www A 192.0.2.1 192.0.2.2 --ttl 300 --wait
  headwater rrset set example.com @ MX '10 mail.example.com.'
  headwater rrset set example.com @ TXT '\"v=spf1 -all\"' --note 'no mail from here'
  headwater rrset set example.com www A 192.0.2.9 --dry-run
  headwater rrset set example.com www A 192.0.2.9 --take-over")]
    Set(SetArgs),
    /// Deletes all records of one name and type
    #[command(after_help = "Examples:
  headwater rrset delete example.com www A --wait")]
    Delete(DeleteArgs),
    /// Adds records to those of a name and type; what is there already stays
    #[command(after_help = "Examples:
  headwater rrset add example.com www A 192.0.2.3")]
    Add(AddArgs),
    /// Removes single records of a name and type; what is absent is no fault
    #[command(after_help = "Examples:
  headwater rrset remove example.com www A 192.0.2.3")]
    Remove(RemoveArgs),
    /// Makes many changes at once, all or none, as one revision
    #[command(after_help = "Examples:
  headwater rrset batch example.com changes.json --wait
  echo '[{\"op\": \"put\", \"name\": \"www\", \"type\": \"A\", \"ttl\": 300, \"records\": [\"192.0.2.1\"]}]' |
    headwater rrset batch example.com

Each change has op (put, delete, add, remove), name, type, and for all but delete records; put needs ttl, in
seconds. What delete names must be there; what add and remove name may be there or absent already.")]
    Batch {
        /// The domain
        domain: String,
        /// JSON: {"changes": […]} or the list alone; - is stdin
        #[arg(default_value = "-")]
        file: PathBuf,
        /// How it is changed.
        #[command(flatten)]
        change: Change,
    },
}

/// Which records.
#[derive(Args)]
pub struct Key {
    /// The domain
    domain: String,
    /// The owner name: www, @ for the domain itself, * for a wildcard
    name: String,
    /// The type: A, AAAA, CNAME, HTTPS, MX, TXT and so on; `TYPEnnn` where it has no name
    #[arg(value_name = "TYPE")]
    rrtype: String,
}

impl Key {
    fn call(&self, method: Method) -> Result<Call> {
        Call::new(method, &["domains", &self.domain, "rrsets", &self.name, &self.rrtype.to_ascii_uppercase()])
    }

    fn shown(&self) -> String {
        format!("{} {} in {}", self.name, self.rrtype.to_ascii_uppercase(), self.domain)
    }
}

/// Records to show.
#[derive(Args)]
pub struct GetArgs {
    #[command(flatten)]
    key: Key,
    #[command(flatten)]
    moment: Moment,
}

/// Records to find.
#[derive(Args)]
pub struct SearchArgs {
    /// A value as in a zone file, or a word of one
    #[arg(long, value_name = "VALUE")]
    content: Option<String>,
    /// The type
    #[arg(long = "type", value_name = "TYPE")]
    rrtype: Option<String>,
    /// The owner: relative to every domain, or absolute with the final dot
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Those that this tool manages
    #[arg(long, value_name = "NAME")]
    managed_by: Option<String>,
    #[command(flatten)]
    list: ListArgs,
}

/// Records to set.
#[derive(Args)]
pub struct SetArgs {
    #[command(flatten)]
    key: Key,
    /// The values, each as in a zone file
    #[arg(required = true, value_name = "VALUE")]
    records: Vec<String>,
    /// For how many seconds resolvers may keep them
    #[arg(long, value_name = "SECONDS", default_value_t = TTL_DEFAULT_SECONDS)]
    ttl: u32,
    /// A comment on them
    #[arg(long, value_name = "TEXT")]
    comment: Option<String>,
    /// Only if there are none yet; else exit 3
    #[arg(long, alias = "create-only", conflicts_with = "if_match", help_heading = "Change")]
    if_absent: bool,
    #[command(flatten)]
    change: Change,
}

/// Records to delete.
#[derive(Args)]
pub struct DeleteArgs {
    #[command(flatten)]
    key: Key,
    #[command(flatten)]
    change: Change,
}

/// Records to add.
#[derive(Args)]
pub struct AddArgs {
    #[command(flatten)]
    key: Key,
    /// The values, each as in a zone file
    #[arg(required = true, value_name = "VALUE")]
    records: Vec<String>,
    /// For how many seconds resolvers may keep all of them [default: as it is]
    #[arg(long, value_name = "SECONDS")]
    ttl: Option<u32>,
    #[command(flatten)]
    change: Change,
}

/// Records to remove.
#[derive(Args)]
pub struct RemoveArgs {
    #[command(flatten)]
    key: Key,
    /// The values, each as in a zone file
    #[arg(required = true, value_name = "VALUE")]
    records: Vec<String>,
    #[command(flatten)]
    change: Change,
}

/// Runs it.
pub async fn run(console: &Console, command: RrsetCommand) -> Result<()> {
    match command {
        RrsetCommand::Get(GetArgs { key, moment }) => {
            show_one(console, moment.apply(key.call(Method::GET)?)).await
        }
        RrsetCommand::List { domain, managed_by, moment, list } => {
            let call = moment.apply(Call::get(&["domains", &domain, "rrsets"])?);
            let call = call.maybe("managed_by", managed_by);
            list::show(console, call, COLUMNS, &list).await
        }
        RrsetCommand::Search(args) => {
            let call = Call::get(&["rrsets"])?.maybe("content", args.content).maybe("type", args.rrtype);
            let call = call.maybe("name", args.name).maybe("managed_by", args.managed_by);
            list::show(console, call, FOUND_COLUMNS, &args.list).await
        }
        RrsetCommand::Set(args) => {
            let mut body = json!({"ttl": args.ttl, "records": args.records});
            if let Some(comment) = &args.comment {
                body["comment"] = json!(comment);
            }
            let call = args.key.call(Method::PUT)?.json(&body);
            let change = Change { if_absent: args.if_absent, ..args.change };
            carry_out(console, call, &change, Say::Outcome(&args.key.shown())).await
        }
        RrsetCommand::Delete(DeleteArgs { key, change }) => {
            carry_out(console, key.call(Method::DELETE)?, &change, Say::Outcome(&key.shown())).await
        }
        RrsetCommand::Add(AddArgs { key, records, ttl, change }) => {
            let mut row = json!({"op": "add", "name": key.name, "type": key.rrtype.to_ascii_uppercase(), "records": records});
            if let Some(ttl) = ttl {
                row["ttl"] = json!(ttl);
            }
            batch(console, &key.domain, json!([row]), &change, &key.shown()).await
        }
        RrsetCommand::Remove(RemoveArgs { key, records, change }) => {
            let row = json!({"op": "remove", "name": key.name, "type": key.rrtype.to_ascii_uppercase(), "records": records});
            batch(console, &key.domain, json!([row]), &change, &key.shown()).await
        }
        RrsetCommand::Batch { domain, file, change } => {
            let body: Value = serde_json::from_str(&read_input(&file)?)
                .with_context(|| format!("{} is not JSON", file.display()))?;
            let changes = match body {
                Value::Array(_) => body,
                // The API refuses what it does not know, so the rest of the object goes along.
                Value::Object(_) => return send_batch(console, &domain, &body, &change, &domain).await,
                _ => return Err(ClientError::usage("a batch is {\"changes\": […]} or the list alone")),
            };
            batch(console, &domain, changes, &change, &domain).await
        }
    }
}

async fn batch(console: &Console, domain: &str, changes: Value, change: &Change, shown: &str) -> Result<()> {
    send_batch(console, domain, &json!({"changes": changes}), change, shown).await
}

async fn send_batch(
    console: &Console,
    domain: &str,
    body: &Value,
    change: &Change,
    shown: &str,
) -> Result<()> {
    let call = Call::post(&["domains", domain, "rrsets", "batch"])?.json(body);
    carry_out(console, call, change, Say::Outcome(shown)).await
}
