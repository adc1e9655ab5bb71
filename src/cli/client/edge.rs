//! `headwater edge`: the hosts that serve what is placed on them.

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::{Value, json};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use uuid::Uuid;

use super::error::ClientError;
use super::http::Call;
use super::list::{self, ListArgs};
use super::mutate::{Change, Common, Say, carry_out};
use super::output::{Column, cell, data, talk};
use super::{Console, labels, show_parts};
use crate::secret::Secret;

const COLUMNS: &[Column] = &[
    ("ID", "/id"),
    ("NAME", "/name"),
    ("COUNTRY", "/country"),
    ("CELLS", "/cells"),
    ("STATE", "/state"),
    ("DRAINED", "/drained"),
    ("IN SERVICE", "/in_service"),
    ("READY", "/ready"),
    ("HEARTBEAT", "/heartbeat_at"),
    ("DESIRED", "/desired"),
    ("ACTIVE", "/acked"),
    ("WHY", "/not_ready"),
];

/// What a cell is to hold, what is written for it, what it serves.
const CELLS: &[Column] = &[
    ("EDGE", "/edge_name"),
    ("CELL", "/number"),
    ("READY", "/ready"),
    ("DRAINED", "/drained"),
    ("DESIRED", "/desired"),
    ("LOADED", "/loaded"),
    ("ACTIVE", "/active"),
    ("LAG", "/lag"),
    ("LAST REFUSAL", "/refusal/domain"),
    ("REVISION", "/refusal/revision"),
    ("WHY", "/why"),
];

const REFUSALS: &[Column] = &[
    ("DOMAIN", "/domain"),
    ("REVISION", "/revision"),
    ("CODE", "/code"),
    ("DETAIL", "/detail"),
    ("AT", "/at"),
];

/// Of the file that a token is written to.
const TOKEN_FILE_MODE: u32 = 0o600;

/// What can be done with edges. An edge is named by its id or its name.
#[derive(Subcommand)]
pub enum EdgeCommand {
    /// Lists edges
    #[command(after_help = "Examples:
  headwater edge list")]
    List {
        /// How much of it.
        #[command(flatten)]
        list: ListArgs,
    },
    /// Makes an edge known and prints the line that enrols it, once
    #[command(after_help = "Examples:
  headwater edge create fra1 --country DE --continent EU --cells 4
  headwater edge create fra1 --country DE --continent EU --output fra1.token
  headwater edge create fra1 --country DE --continent EU --address 1.1.1.1 --address 2606:4700::1

The token in the line is good for an hour and for one host.")]
    Create(CreateArgs),
    /// Shows the cells of every edge, or one edge with its cells and what it refused
    #[command(after_help = "Examples:
  headwater edge status
  headwater edge status fra1
  headwater edge status --json | jq '.items[] | select(.lag > 0)'

DESIRED is the newest change there is, LOADED the last one written on the host, ACTIVE the last one that every worker
of the cell serves, LAG how many changes are between, WHY what is to be seen to. A refused change is that of its domain alone: what the domain had
before is served on.")]
    Status {
        /// Its id or name [default: every edge]
        edge: Option<String>,
    },
    /// Sends an edge no new visitors, or takes the domains off one of its cells
    #[command(after_help = "Examples:
  headwater edge drain fra1 --note 'new disks'
  headwater edge drain fra1 --cell 3")]
    Drain(CellArgs),
    /// Sends an edge visitors again, or puts domains on one of its cells again
    #[command(after_help = "Examples:
  headwater edge undrain fra1")]
    Undrain(CellArgs),
    /// Ends every identity of an edge at once and prints the line that enrols it anew
    #[command(after_help = "Examples:
  headwater edge rotate fra1 --note 'its disk was copied'")]
    Rotate(RotateArgs),
    /// Answers an edge again
    #[command(after_help = "Examples:
  headwater edge enable fra1")]
    Enable(Named),
    /// Answers an edge no longer; what it serves stays as it is
    #[command(after_help = "Examples:
  headwater edge disable fra1")]
    Disable(Named),
    /// Forgets an edge, which must be disabled
    #[command(after_help = "Examples:
  headwater edge disable fra1
  headwater edge delete fra1")]
    Delete(Named),
}

/// An edge to make known.
#[derive(Args)]
pub struct CreateArgs {
    /// Its name
    name: String,
    /// Where it is: ISO 3166-1 alpha-2
    #[arg(long, value_name = "CODE")]
    country: String,
    /// Where it is: AF, AN, AS, EU, NA, OC or SA
    #[arg(long, value_name = "CODE")]
    continent: String,
    /// How many cells it has; it never changes [default: 8]
    #[arg(long, value_name = "N")]
    cells: Option<u8>,
    /// A public address of it, which DNS gives out while it is ready; may be repeated
    #[arg(long, value_name = "ADDRESS")]
    address: Vec<std::net::IpAddr>,
    /// A label, as key=value; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    label: Vec<String>,
    /// Your own number for it
    #[arg(long, value_name = "TEXT")]
    external_id: Option<String>,
    /// The token alone into this new file, which only you can read, in place of the line on stdout
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

/// An edge to enrol anew.
#[derive(Args)]
pub struct RotateArgs {
    /// Its id or name
    edge: String,
    /// The token alone into this new file, which only you can read, in place of the line on stdout
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

/// An edge and how it is changed.
#[derive(Args)]
pub struct Named {
    /// Its id or name
    edge: String,
    /// Allows what a guard refuses (last_endpoint); may be repeated
    #[arg(long, value_name = "GUARD", help_heading = "Change")]
    allow: Vec<String>,
    #[command(flatten)]
    common: Common,
}

/// An edge or one of its cells, and how it is changed.
#[derive(Args)]
pub struct CellArgs {
    /// Its id or name
    edge: String,
    /// One of its cells alone, from 0
    #[arg(long, value_name = "N")]
    cell: Option<u8>,
    /// Allows what a guard refuses (last_endpoint); may be repeated
    #[arg(long, value_name = "GUARD", help_heading = "Change")]
    allow: Vec<String>,
    #[command(flatten)]
    common: Common,
}

/// Runs it.
pub async fn run(console: &Console, command: EdgeCommand) -> Result<()> {
    match command {
        EdgeCommand::List { list } => list::show(console, Call::get(&["edges"])?, COLUMNS, &list).await,
        EdgeCommand::Create(args) => create(console, args).await,
        EdgeCommand::Status { edge: None } => {
            list::show(console, Call::get(&["cells"])?, CELLS, &ListArgs::default()).await
        }
        EdgeCommand::Status { edge: Some(edge) } => {
            let id = id_of(console, &edge).await?;
            let call = Call::get(&["edges", &id])?;
            show_parts(console, call, &[("cell_states", CELLS), ("refusals", REFUSALS)]).await
        }
        EdgeCommand::Drain(args) => drain(console, args, "drain").await,
        EdgeCommand::Undrain(args) => drain(console, args, "undrain").await,
        EdgeCommand::Rotate(args) => {
            let id = id_of(console, &args.edge).await?;
            let call = Call::post(&["edges", &id, "rotate-identity"])?;
            enrol(console, call, args.common, args.output.as_deref()).await
        }
        EdgeCommand::Enable(named) => switch(console, named, "enable").await,
        EdgeCommand::Disable(named) => switch(console, named, "disable").await,
        EdgeCommand::Delete(named) => {
            let id = id_of(console, &named.edge).await?;
            let call = Call::new(Method::DELETE, &["edges", &id])?;
            carry_out(console, call, &Change::from(named.common), Say::Outcome(&named.edge)).await
        }
    }
}

/// The id of an edge that is named by its id or name.
async fn id_of(console: &Console, edge: &str) -> Result<String> {
    if Uuid::parse_str(edge).is_ok() {
        return Ok(edge.to_owned());
    }
    let items = list::items(console, Call::get(&["edges"])?.query("limit", 1_000)).await?;
    let found = items.iter().find(|item| item.get("name").and_then(Value::as_str) == Some(edge));
    let id = found.and_then(|item| item.get("id")?.as_str());
    id.map(str::to_owned).with_context(|| format!("there is no edge {edge}: see `headwater edge list`"))
}

async fn create(console: &Console, args: CreateArgs) -> Result<()> {
    let mut body = json!({
        "name": args.name, "country": args.country, "continent": args.continent, "labels": labels(&args.label)?,
    });
    if !args.address.is_empty() {
        body["addresses"] = json!(args.address);
    }
    if let Some(cells) = args.cells {
        body["cells"] = json!(cells);
    }
    if let Some(external_id) = &args.external_id {
        body["external_id"] = json!(external_id);
    }
    enrol(console, Call::post(&["edges"])?.json(&body), args.common, args.output.as_deref()).await
}

/// Carries out what gives a token, and shows it once.
async fn enrol(console: &Console, call: Call, common: Common, file: Option<&Path>) -> Result<()> {
    if common.dry_run {
        return carry_out(console, call, &common.into(), Say::Id).await;
    }
    // Before the token exists, so that a file that cannot be written leaves none behind.
    let open = file.map(|file| new_file(file).map(|open| (file, open))).transpose()?;
    let answer = match console.api.send(&common.apply(call)?).await {
        Ok(answer) => answer,
        Err(error) => {
            if let Some((file, _)) = &open {
                // The error is what counts; the file is empty.
                let _removed = std::fs::remove_file(file);
            }
            return Err(error);
        }
    };
    let mut body = answer.json()?;
    let token = body.get_mut("bootstrap_token").map(Value::take);
    let line = body.get_mut("command").map(Value::take);
    let (Some(Value::String(token)), Some(Value::String(line))) = (token, line) else {
        return Err(ClientError::refused(
            "this was done by an earlier try and its token cannot be shown again: `headwater edge rotate` gives another",
        ));
    };
    let (id, token, line) = (cell(body.get("id")), Secret::new(token), Secret::new(line));
    if let Some((file, mut open)) = open {
        writeln!(open, "{}", token.expose()).with_context(|| format!("cannot write {}", file.display()))?;
        talk(format_args!("the token is in {}", file.display()));
        return Ok(data(if console.json { json!({"id": id}).to_string() } else { id })?);
    }
    if console.json {
        return Ok(data(answer.text.trim_end())?);
    }
    talk(format_args!("edge {id}; run this on its host within an hour, it is shown only now:"));
    Ok(data(line.expose())?)
}

fn new_file(file: &Path) -> Result<std::fs::File> {
    std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(TOKEN_FILE_MODE)
        .open(file)
        .with_context(|| format!("cannot make {}: it must not exist yet", file.display()))
}

async fn switch(console: &Console, named: Named, verb: &str) -> Result<()> {
    let id = id_of(console, &named.edge).await?;
    let call = Call::post(&["edges", &id, verb])?.each("allow", &named.allow);
    carry_out(console, call, &Change::from(named.common), Say::Outcome(&named.edge)).await
}

async fn drain(console: &Console, args: CellArgs, verb: &str) -> Result<()> {
    let id = id_of(console, &args.edge).await?;
    let (call, shown) = match args.cell {
        None => (Call::post(&["edges", &id, verb])?, args.edge),
        Some(number) => {
            let cell = format!("{id}-{number}");
            (Call::post(&["cells", &cell, verb])?, format!("cell {number} of {}", args.edge))
        }
    };
    let call = call.each("allow", &args.allow);
    carry_out(console, call, &Change::from(args.common), Say::Outcome(&shown)).await
}
