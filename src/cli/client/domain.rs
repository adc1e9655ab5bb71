//! `headwater domain`.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::http::Call;
use super::list::{self, ListArgs};
use super::mutate::{Change, Making, Say, carry_out};
use super::output::Column;
use super::undo::Moment;
use super::{Console, labels, read_input, show_one, show_parts};

const COLUMNS: &[Column] = &[
    ("NAME", "/name"),
    ("STATUS", "/status"),
    ("REVISION", "/revision"),
    ("TENANT", "/tenant"),
    ("LABELS", "/labels"),
    ("EXTERNAL ID", "/external_id"),
];
const DEPLOYMENT_COLUMNS: &[Column] = &[
    ("TARGET", "/target/name"),
    ("STATE", "/state"),
    ("ENABLED", "/enabled"),
    ("DESIRED", "/desired_revision"),
    ("ACTIVE", "/active_revision"),
    ("SERIAL", "/serial"),
    ("VERIFIED", "/verified_at"),
    ("ATTEMPTS", "/attempts"),
    ("NEXT ATTEMPT", "/next_attempt_at"),
    ("LAST ERROR", "/last_error"),
];
const REVISION_COLUMNS: &[Column] = &[
    ("REVISION", "/revision"),
    ("AT", "/at"),
    ("ACTOR", "/actor/kind"),
    ("ID", "/actor/id"),
    ("EVENTS", "/events"),
    ("RETAINED", "/retained"),
    ("VALIDATED", "/validated"),
    ("NOTE", "/note"),
];
const DIFF_COLUMNS: &[Column] = &[("PATH", "/path"), ("BEFORE", "/before"), ("AFTER", "/after")];

/// What can be done with domains.
#[derive(Subcommand)]
pub enum DomainCommand {
    /// Makes a domain
    #[command(after_help = "Examples:
  headwater domain create example.com
  headwater domain create example.com --active --wait --label customer=4711")]
    Create(CreateArgs),
    /// Lists domains
    #[command(after_help = "Examples:
  headwater domain list
  headwater domain list --label customer=4711 --json | jq -r '.items[].name'")]
    List(DomainFilter),
    /// Shows a domain
    #[command(after_help = "Examples:
  headwater domain show example.com")]
    Show {
        /// The domain
        domain: String,
        /// As of when.
        #[command(flatten)]
        moment: Moment,
    },
    /// Changes labels, external id or serial of a domain
    #[command(after_help = "Examples:
  headwater domain patch example.com --label plan=pro --remove-label trial
  headwater domain patch example.com --serial-floor 2026010100 --wait")]
    Patch(PatchArgs),
    /// Deletes a domain; it can be restored for a while
    #[command(after_help = "Examples:
  headwater domain delete example.com --wait
  headwater domain delete example.com --dry-run")]
    Delete(Named),
    /// Restores a deleted domain
    #[command(after_help = "Examples:
  headwater domain restore example.com --wait")]
    Restore(Named),
    /// Looks now whether a domain is its owner's, or whether its parent delegates it here
    #[command(after_help = "Examples:
  headwater domain verify example.com
  headwater domain verify example.com --json | jq .verification.txt

Delegate the domain to one of the name servers that are shown, or put the TXT record in at those that it is delegated to
now. It is looked at again by itself, at first every minute.")]
    Verify {
        /// The domain
        domain: String,
    },
    /// Serves a domain whose ownership is not proven (administrators)
    #[command(after_help = "Examples:
  headwater domain activate example.com --wait")]
    Activate(Named),
    /// Serves a domain no longer, and keeps it with everything it holds
    #[command(after_help = "Examples:
  headwater domain disable example.com --note 'abuse 4711' --wait

What an administrator disables only an administrator enables.")]
    Disable(Named),
    /// Serves a disabled domain again
    #[command(after_help = "Examples:
  headwater domain enable example.com --wait")]
    Enable(Named),
    /// Shows where a domain is served and where not yet
    #[command(after_help = "Examples:
  headwater domain status example.com")]
    Status {
        /// The domain
        domain: String,
    },
    /// Gives a domain back what it was at an earlier revision, whole, as a new one
    #[command(after_help = "Examples:
  headwater domain rollback example.com 7 --dry-run
  headwater domain rollback example.com 7 --note 'the import was wrong' --wait

`headwater domain revisions` shows which revisions can be gone back to: those that are retained and validated.")]
    Rollback(RollbackArgs),
    /// Undoes one revision of a domain by itself; what others changed later is kept
    #[command(after_help = "Examples:
  headwater domain undo example.com 7 --dry-run
  headwater domain undo example.com 7 --note 'not ours' --wait

Where others changed the same thing later, nothing is undone, and each such thing is named: exit 3.")]
    Undo(UndoArgs),
    /// Shows what differs between two revisions of a domain
    #[command(after_help = "Examples:
  headwater domain diff example.com 7
  headwater domain diff example.com 7 9 --json | jq -r '.items[].path'")]
    Diff {
        /// The domain
        domain: String,
        /// The revision to start from
        from: u64,
        /// The revision to compare it with [default: the newest]
        to: Option<u64>,
        /// How much of it.
        #[command(flatten)]
        list: ListArgs,
    },
    /// Lists the revisions of a domain, or shows one
    #[command(after_help = "Examples:
  headwater domain revisions example.com
  headwater domain revisions example.com 7")]
    Revisions {
        /// The domain
        domain: String,
        /// What this one changed, and by whom
        revision: Option<u64>,
        /// How much of it.
        #[command(flatten)]
        list: ListArgs,
    },
}

/// Where a domain goes back to.
#[derive(Args)]
pub struct RollbackArgs {
    /// The domain
    domain: String,
    /// The revision whose state it gets again; it must be retained and validated
    revision: u64,
    #[command(flatten)]
    change: Change,
}

/// What is undone.
#[derive(Args)]
pub struct UndoArgs {
    /// The domain
    domain: String,
    /// The revision that is undone: it alone
    revision: u64,
    #[command(flatten)]
    change: Change,
}

/// A domain to make.
#[derive(Args)]
pub struct CreateArgs {
    /// Its name
    domain: String,
    /// The tenant it will belong to; needed when you are in none or several
    #[arg(long, value_name = "ID")]
    tenant: Option<Uuid>,
    /// Active at once, without a check of its delegation (administrators)
    #[arg(long)]
    active: bool,
    /// A label; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    label: Vec<String>,
    /// Your own number for it
    #[arg(long, value_name = "TEXT")]
    external_id: Option<String>,
    #[command(flatten)]
    making: Making,
}

/// Which domains.
#[derive(Args)]
pub struct DomainFilter {
    /// Only those with this label; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    label: Vec<String>,
    /// Only the one with this number of yours
    #[arg(long, value_name = "TEXT")]
    external_id: Option<String>,
    /// Only those of this tenant
    #[arg(long, value_name = "ID")]
    tenant: Option<Uuid>,
    /// Only those with this in their name
    #[arg(long, value_name = "TEXT")]
    q: Option<String>,
    #[command(flatten)]
    list: ListArgs,
}

/// A change of a domain.
#[derive(Args)]
pub struct PatchArgs {
    /// The domain
    domain: String,
    /// Sets a label; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    label: Vec<String>,
    /// Removes a label; may be repeated
    #[arg(long, value_name = "KEY")]
    remove_label: Vec<String>,
    /// Sets your own number for it
    #[arg(long, value_name = "TEXT", conflicts_with = "no_external_id")]
    external_id: Option<String>,
    /// Removes your own number
    #[arg(long)]
    no_external_id: bool,
    /// Raises the SOA serial to at least this
    #[arg(long, value_name = "N")]
    serial_floor: Option<u32>,
    /// A merge patch (RFC 7396) from a file, or from stdin with -
    #[arg(long, value_name = "FILE")]
    body: Option<PathBuf>,
    #[command(flatten)]
    change: Change,
}

/// A domain and how it is changed.
#[derive(Args)]
pub struct Named {
    /// The domain
    domain: String,
    #[command(flatten)]
    change: Change,
}

/// Runs it.
pub async fn run(console: &Console, command: DomainCommand) -> Result<()> {
    match command {
        DomainCommand::Create(args) => create(console, args).await,
        DomainCommand::List(args) => {
            let call = Call::get(&["domains"])?
                .each("label", &args.label)
                .maybe("external_id", args.external_id)
                .maybe("tenant", args.tenant)
                .maybe("q", args.q);
            list::show(console, call, COLUMNS, &args.list).await
        }
        DomainCommand::Show { domain, moment } => {
            show_one(console, moment.apply(Call::get(&["domains", &domain])?)).await
        }
        DomainCommand::Patch(args) => patch(console, args).await,
        DomainCommand::Delete(Named { domain, change }) => {
            let call = Call::new(Method::DELETE, &["domains", &domain])?;
            carry_out(console, call, &change, Say::Outcome(&domain)).await
        }
        DomainCommand::Restore(Named { domain, change }) => {
            let call = Call::post(&["domains", &domain, "restore"])?;
            carry_out(console, call, &change, Say::Outcome(&domain)).await
        }
        DomainCommand::Verify { domain } => {
            show_one(console, Call::post(&["domains", &domain, "verify"])?).await
        }
        DomainCommand::Activate(named) => switch(console, named, "activate").await,
        DomainCommand::Disable(named) => switch(console, named, "disable").await,
        DomainCommand::Enable(named) => switch(console, named, "enable").await,
        DomainCommand::Rollback(RollbackArgs { domain, revision, change }) => {
            let call = Call::post(&["domains", &domain, "rollback"])?.json(&json!({"revision": revision}));
            carry_out(console, call, &change, Say::Outcome(&domain)).await
        }
        DomainCommand::Undo(UndoArgs { domain, revision, change }) => {
            let call = Call::post(&["domains", &domain, "undo"])?.json(&json!({"revision": revision}));
            carry_out(console, call, &change, Say::Outcome(&domain)).await
        }
        DomainCommand::Diff { domain, from, to, list } => {
            let call = Call::get(&["domains", &domain, "diff"])?.query("from", from).maybe("to", to);
            list::show(console, call, DIFF_COLUMNS, &list).await
        }
        DomainCommand::Status { domain } => {
            let parts = [("deployments", DEPLOYMENT_COLUMNS)];
            show_parts(console, Call::get(&["domains", &domain, "status"])?, &parts).await
        }
        DomainCommand::Revisions { domain, revision: Some(revision), .. } => {
            show_one(console, Call::get(&["domains", &domain, "revisions", &revision.to_string()])?).await
        }
        DomainCommand::Revisions { domain, revision: None, list } => {
            let call = Call::get(&["domains", &domain, "revisions"])?;
            list::show(console, call, REVISION_COLUMNS, &list.of_history()).await
        }
    }
}

async fn switch(console: &Console, Named { domain, change }: Named, how: &str) -> Result<()> {
    carry_out(console, Call::post(&["domains", &domain, how])?, &change, Say::Outcome(&domain)).await
}

async fn create(console: &Console, args: CreateArgs) -> Result<()> {
    let mut body = Map::new();
    body.insert("name".to_owned(), json!(args.domain));
    if let Some(tenant) = args.tenant {
        body.insert("tenant".to_owned(), json!(tenant));
    }
    if args.active {
        body.insert("force_active".to_owned(), json!(true));
    }
    if !args.label.is_empty() {
        body.insert("labels".to_owned(), Value::Object(labels(&args.label)?));
    }
    if let Some(number) = args.external_id {
        body.insert("external_id".to_owned(), json!(number));
    }
    let call = Call::post(&["domains"])?.json(&Value::Object(body));
    carry_out(console, call, &args.making.into(), Say::Outcome(&args.domain)).await
}

async fn patch(console: &Console, args: PatchArgs) -> Result<()> {
    let mut body = match &args.body {
        Some(file) => serde_json::from_str::<Map<String, Value>>(&read_input(file)?)
            .with_context(|| format!("{} is not a JSON object", file.display()))?,
        None => Map::new(),
    };
    let mut changed = labels(&args.label)?;
    changed.extend(args.remove_label.into_iter().map(|key| (key, Value::Null)));
    if !changed.is_empty() {
        body.insert("labels".to_owned(), Value::Object(changed));
    }
    if args.external_id.is_some() || args.no_external_id {
        body.insert("external_id".to_owned(), json!(args.external_id));
    }
    if let Some(serial) = args.serial_floor {
        body.insert("serial_floor".to_owned(), json!(serial));
    }
    if body.is_empty() {
        return Err(super::error::ClientError::usage(
            "nothing to change: give --label, --remove-label, --external-id, --serial-floor or --body",
        ));
    }
    let call = Call::new(Method::PATCH, &["domains", &args.domain])?.json(&Value::Object(body));
    carry_out(console, call, &args.change, Say::Outcome(&args.domain)).await
}
