//! `headwater cluster`: the DNS clusters that domains are deployed to.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::json;
use uuid::Uuid;

use super::error::ClientError;
use super::http::Call;
use super::list::{self, ListArgs};
use super::mutate::{Change, Common, Say, carry_out};
use super::output::{Column, data, parts};
use super::{Console, projection, show_one};

const COLUMNS: &[Column] = &[
    ("ID", "/id"),
    ("NAME", "/name"),
    ("STATE", "/state"),
    ("IN SERVICE", "/in_service"),
    ("DNS", "/dns"),
    ("FRONT", "/front"),
    ("REACHED", "/reached_at"),
    ("LAST ERROR", "/last_error"),
];

const STEP_COLUMNS: &[Column] = &[("STEP", "/name"), ("OK", "/ok"), ("MS", "/ms"), ("WHY", "/detail")];

/// What can be done with clusters. A cluster is named by its id or its name.
#[derive(Subcommand)]
pub enum ClusterCommand {
    /// Lists clusters
    #[command(after_help = "Examples:
  headwater cluster list")]
    List {
        /// How much of it.
        #[command(flatten)]
        list: ListArgs,
    },
    /// Registers a cluster and prints its id
    #[command(after_help = "Examples:
  headwater cluster create dns-1 --database-url-file /etc/headwater/dns-1.url --dns 192.0.2.53:53 \\
    --nameserver ns1.example.net --enable

The file with the URL of its database is read by the server, so it must be there.")]
    Create(CreateArgs),
    /// Shows a cluster
    #[command(after_help = "Examples:
  headwater cluster show dns-1")]
    Show {
        /// Its id or name
        cluster: String,
    },
    /// Tries whether a cluster can be reached and answers: exit 3 when not
    #[command(after_help = "Examples:
  headwater cluster test dns-1")]
    Test(Named),
    /// Takes a cluster into deployment
    #[command(after_help = "Examples:
  headwater cluster enable dns-1 --note 'back from maintenance'")]
    Enable(Named),
    /// Takes a cluster out of deployment; it keeps answering what it has
    #[command(after_help = "Examples:
  headwater cluster disable dns-1 --note 'new disks'")]
    Disable(Named),
    /// Lets a disabled cluster go: takes away what was deployed to it, then forgets it
    #[command(after_help = "Examples:
  headwater cluster disable dns-3
  headwater cluster delete dns-3
  headwater cluster delete dns-3 --retain --note 'the hosts are gone'

It must be disabled. Zones of others stay there. With --retain it is forgotten at once, and serves on what it has.")]
    Delete {
        /// Its id or name
        cluster: String,
        /// Forgets it at once and touches nothing there
        #[arg(long)]
        retain: bool,
        /// How it is changed.
        #[command(flatten)]
        change: Change,
    },
    /// Compares every zone of a cluster with the log and puts right what differs; zones of others stay
    #[command(after_help = "Examples:
  headwater cluster reconcile dns-1
  headwater cluster reconcile dns-1 --no-wait")]
    Reconcile {
        /// Its id or name
        cluster: String,
        /// Prints the operation and does not wait for its end
        #[arg(long, help_heading = "Wait")]
        no_wait: bool,
        /// How it is changed.
        #[command(flatten)]
        common: Common,
    },
}

/// A cluster to register.
#[derive(Args)]
pub struct CreateArgs {
    /// Its name
    name: String,
    /// The file, on the server, with the URL of its PostgreSQL database
    #[arg(long, value_name = "FILE")]
    database_url_file: PathBuf,
    /// Where its PowerDNS answers
    #[arg(long, value_name = "ADDRESS:PORT")]
    dns: String,
    /// Where it answers through the dnsdist before it
    #[arg(long, value_name = "ADDRESS:PORT")]
    front: Option<String>,
    /// A name server that it serves; may be repeated
    #[arg(long, value_name = "NAME")]
    nameserver: Vec<String>,
    /// Takes it into deployment at once
    #[arg(long)]
    enable: bool,
    #[command(flatten)]
    common: Common,
}

/// A cluster and how it is changed.
#[derive(Args)]
pub struct Named {
    /// Its id or name
    cluster: String,
    #[command(flatten)]
    common: Common,
}

/// Runs it.
pub async fn run(console: &Console, command: ClusterCommand) -> Result<()> {
    match command {
        ClusterCommand::List { list } => {
            list::show(console, Call::get(&["dns-clusters"])?, COLUMNS, &list).await
        }
        ClusterCommand::Create(args) => create(console, args).await,
        ClusterCommand::Show { cluster } => {
            let id = id_of(console, &cluster).await?;
            show_one(console, Call::get(&["dns-clusters", &id])?).await
        }
        ClusterCommand::Test(named) => test(console, named).await,
        ClusterCommand::Enable(named) => switch(console, named, "enable").await,
        ClusterCommand::Disable(named) => switch(console, named, "disable").await,
        ClusterCommand::Delete { cluster, retain, change } => {
            let id = id_of(console, &cluster).await?;
            let call = Call::new(Method::DELETE, &["dns-clusters", &id])?;
            let call = if retain { call.query("retain", true) } else { call };
            carry_out(console, call, &change, Say::Did(&cluster, "deleted")).await
        }
        ClusterCommand::Reconcile { cluster, no_wait, common } => {
            reconcile(console, &cluster, no_wait, common).await
        }
    }
}

/// The id of a cluster that is named by its id or name.
pub(super) async fn id_of(console: &Console, cluster: &str) -> Result<String> {
    if Uuid::parse_str(cluster).is_ok() {
        return Ok(cluster.to_owned());
    }
    let items = list::items(console, Call::get(&["dns-clusters"])?.query("limit", 1_000)).await?;
    let found = items.iter().find(|item| item.get("name").and_then(|name| name.as_str()) == Some(cluster));
    let id = found.and_then(|item| item.get("id")?.as_str());
    id.map(str::to_owned)
        .with_context(|| format!("there is no DNS cluster {cluster}: see `headwater cluster list`"))
}

async fn create(console: &Console, args: CreateArgs) -> Result<()> {
    // The server resolves a relative path against its own directory, which nobody here means.
    let file = std::path::absolute(&args.database_url_file).context("cannot find the current directory")?;
    let Some(file) = file.to_str() else {
        return Err(ClientError::usage("--database-url-file must be UTF-8"));
    };
    let mut body = json!({
        "name": args.name, "database_url_file": file, "dns": args.dns, "nameservers": args.nameserver,
    });
    if let Some(front) = &args.front {
        body["front"] = json!(front);
    }
    if args.enable {
        body["enabled"] = json!(true);
    }
    carry_out(console, Call::post(&["dns-clusters"])?.json(&body), &args.common.into(), Say::Id).await
}

async fn switch(console: &Console, named: Named, verb: &str) -> Result<()> {
    let id = id_of(console, &named.cluster).await?;
    let call = Call::post(&["dns-clusters", &id, verb])?;
    let say =
        if verb == "enable" { Say::Outcome(&named.cluster) } else { Say::Did(&named.cluster, "disabled") };
    carry_out(console, call, &Change::from(named.common), say).await
}

async fn reconcile(console: &Console, cluster: &str, no_wait: bool, common: Common) -> Result<()> {
    let id = id_of(console, cluster).await?;
    let call = Call::post(&["dns-clusters", &id, "reconcile"])?;
    if common.dry_run {
        return carry_out(console, call, &Change::from(common), Say::Outcome(cluster)).await;
    }
    let Some(found) = projection::follow(console, &common.apply(call)?, cluster, no_wait).await? else {
        return Ok(());
    };
    if console.json {
        return Ok(data(
            json!({"cluster": cluster, "differences": found.differences, "result": found.result}),
        )?);
    }
    let noun = if found.differences == 1 { "difference" } else { "differences" };
    Ok(data(format_args!("{cluster}: {} {noun} put right", found.differences))?)
}

async fn test(console: &Console, named: Named) -> Result<()> {
    let id = id_of(console, &named.cluster).await?;
    let call = named.common.apply(Call::post(&["dns-clusters", &id, "test"])?)?;
    let answer = console.api.send(&call).await?;
    let body = answer.json()?;
    data(if console.json {
        answer.text.trim_end().to_owned()
    } else {
        parts(&body, &[("steps", STEP_COLUMNS)])
    })?;
    match body.get("ok") {
        Some(serde_json::Value::Bool(false)) => {
            Err(ClientError::refused(format!("the cluster {} did not pass", named.cluster)))
        }
        _ => Ok(()),
    }
}
