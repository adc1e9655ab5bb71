//! `headwater deployment`: a domain on a target.

use anyhow::Result;
use clap::{Args, Subcommand};
use serde_json::json;

use super::http::Call;
use super::list::{self, ListArgs};
use super::mutate::{Change, Common, Say, carry_out};
use super::output::Column;
use super::{Console, cluster};

const COLUMNS: &[Column] = &[
    ("ID", "/id"),
    ("DOMAIN", "/domain"),
    ("TARGET", "/target/name"),
    ("STATE", "/state"),
    ("DESIRED", "/desired_revision"),
    ("ACTIVE", "/active_revision"),
    ("ATTEMPTS", "/attempts"),
    ("NEXT ATTEMPT", "/next_attempt_at"),
    ("LAST ERROR", "/last_error"),
];

/// What can be done with deployments.
#[derive(Subcommand)]
pub enum DeploymentCommand {
    /// Lists deployments
    #[command(after_help = "Examples:
  headwater deployment list --domain example.com
  headwater deployment list --state failed --target dns-1")]
    List {
        /// Of this domain
        #[arg(long, value_name = "DOMAIN", conflicts_with_all = ["state", "target"])]
        domain: Option<String>,
        /// In this state: pending, activating, current, failed, rejected, removed, ahead
        #[arg(long, value_name = "STATE")]
        state: Option<String>,
        /// On this target, by id or name
        #[arg(long, value_name = "TARGET")]
        target: Option<String>,
        /// How much of it.
        #[command(flatten)]
        list: ListArgs,
    },
    /// Pauses deployments; what is served stays as it is
    #[command(after_help = "Examples:
  headwater deployment pause --target dns-1 --reason 'disk change'
  headwater deployment pause --all --reason 'incident 12'")]
    Pause(PauseArgs),
    /// Goes on with paused deployments
    #[command(after_help = "Examples:
  headwater deployment resume --target dns-1")]
    Resume(PauseArgs),
    /// Takes over what a target holds and this log does not know; the next revision continues above it
    #[command(after_help = "Examples:
  headwater deployment adopt example.com@01982f6e-7b4c-7d30-9d0a-3f1f0f3f5f10")]
    Adopt(Named),
    /// Replaces what a target holds and this log does not know
    #[command(after_help = "Examples:
  headwater deployment discard example.com@01982f6e-7b4c-7d30-9d0a-3f1f0f3f5f10")]
    Discard(Named),
}

/// What to pause.
#[derive(Args)]
pub struct PauseArgs {
    #[command(flatten)]
    scope: Scope,
    /// Why
    #[arg(long, value_name = "TEXT", default_value = "")]
    reason: String,
    #[command(flatten)]
    common: Common,
}

/// One of all, a target, a domain.
#[derive(Args)]
#[group(required = true, multiple = false)]
pub struct Scope {
    /// Everything
    #[arg(long)]
    all: bool,
    /// One target, by id or name
    #[arg(long, value_name = "TARGET")]
    target: Option<String>,
    /// One domain
    #[arg(long, value_name = "DOMAIN")]
    domain: Option<String>,
}

/// A deployment and how it is changed.
#[derive(Args)]
pub struct Named {
    /// The deployment, as the list shows it: DOMAIN@TARGET
    id: String,
    #[command(flatten)]
    common: Common,
}

/// Runs it.
pub async fn run(console: &Console, command: DeploymentCommand) -> Result<()> {
    match command {
        DeploymentCommand::List { domain: Some(domain), list, .. } => {
            list::show(console, Call::get(&["domains", &domain, "deployments"])?, COLUMNS, &list).await
        }
        DeploymentCommand::List { domain: None, state, target, list } => {
            let target = match target {
                Some(target) => Some(cluster::id_of(console, &target).await?),
                None => None,
            };
            let call = Call::get(&["deployments"])?.maybe("state", state).maybe("target", target);
            list::show(console, call, COLUMNS, &list).await
        }
        DeploymentCommand::Pause(args) => pause(console, args, "pause").await,
        DeploymentCommand::Resume(args) => pause(console, args, "resume").await,
        DeploymentCommand::Adopt(named) => decide(console, named, "adopt").await,
        DeploymentCommand::Discard(named) => decide(console, named, "discard").await,
    }
}

async fn pause(console: &Console, args: PauseArgs, verb: &str) -> Result<()> {
    let Scope { target, domain, .. } = args.scope;
    let (scope, id, shown) = match (target, domain) {
        (Some(target), _) => ("target", Some(cluster::id_of(console, &target).await?), target),
        (None, Some(domain)) => ("domain", Some(domain.clone()), domain),
        (None, None) => ("all", None, "all deployments".to_owned()),
    };
    let mut body = json!({"scope": scope, "reason": args.reason});
    if let Some(id) = id {
        body["id"] = json!(id);
    }
    let call = Call::post(&["deployments", verb])?.json(&body);
    // The revision of the answer is that of the platform's stream.
    let did = if verb == "pause" { "paused" } else { "resumed" };
    carry_out(console, call, &Change::from(args.common), Say::Did(&shown, did)).await
}

async fn decide(console: &Console, named: Named, verb: &str) -> Result<()> {
    let call = Call::post(&["deployments", &named.id, verb])?;
    let shown = format!("deployment {}", named.id);
    let domain = named.id.split('@').next().unwrap_or_default();
    let look = format!("headwater deployment list --domain {domain}");
    carry_out(console, call, &Change::from(named.common), Say::Accepted(&shown, &look)).await
}
