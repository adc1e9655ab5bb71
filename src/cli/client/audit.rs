//! `headwater audit`: who did what, and whether the log is as it was written.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, Subcommand, ValueEnum};

use super::error::ClientError;
use super::events::event_line;
use super::http::Call;
use super::list::{self, ListArgs};
use super::output::{Column, Progress, data};
use super::{Console, Global, zone};
use crate::config::Config;
use crate::history::heads;
use crate::store::{self, pool};

/// Connections of a verification: it reads, one page after the other.
const VERIFY_CONNECTIONS: u32 = 2;

const HEADS_COLUMNS: &[Column] = &[
    ("DAY", "/day"),
    ("POSITION", "/position"),
    ("STREAMS", "/streams"),
    ("ROOT", "/root"),
    ("KEY", "/key"),
];

/// What can be done with the audit.
#[derive(Subcommand)]
pub enum AuditCommand {
    /// Lists who did what
    #[command(after_help = "Examples:
  headwater audit list --domain example.com
  headwater audit list --actor 01982f6e-7b4c-7d30-9d0a-3f1f0f3f5f10 --from 2026-01-01T00:00:00Z --json")]
    List {
        /// Which ones.
        #[command(flatten)]
        filter: Filter,
        /// How much of it.
        #[command(flatten)]
        list: ListArgs,
    },
    /// Writes all of it, as CSV or as one JSON object a line
    #[command(after_help = "Examples:
  headwater audit export --format csv --output audit.csv
  headwater audit export --domain example.com --format ndjson | jq .
  headwater audit export --heads heads-2026-01-31.ndjson")]
    Export {
        /// Which ones.
        #[command(flatten)]
        filter: Filter,
        /// The format
        #[arg(long, value_enum, default_value_t = Format::Csv)]
        format: Format,
        /// Into this file, which is replaced only by a whole one
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,
        /// In place of the trail, where every stream of the log ends, signed, into this file (administrators)
        #[arg(long, value_name = "FILE", conflicts_with = "output")]
        heads: Option<PathBuf>,
    },
    /// Lists the signatures over where every stream of the log ended, one a day (administrators)
    #[command(after_help = "Examples:
  headwater audit heads")]
    Heads {
        /// How much of it.
        #[command(flatten)]
        list: ListArgs,
    },
    /// Checks the hash chains of the log in the control database: exit 3 when something was altered
    #[command(after_help = "Examples:
  headwater audit verify
  headwater --config /etc/headwater/headwater.toml audit verify --json
  headwater audit verify --heads heads-2026-01-31.ndjson

With --heads it compares the log with a file that `audit export --heads` wrote earlier and that was kept elsewhere: what
was cut off or written anew since is named, stream by stream. It reads the control database itself, so that it does not have to believe a running server.")]
    Verify {
        /// Compares the log with this file
        #[arg(long, value_name = "FILE")]
        heads: Option<PathBuf>,
    },
}

/// Which part of the history.
#[derive(Args)]
pub struct Filter {
    /// Of this domain
    #[arg(long, value_name = "DOMAIN")]
    domain: Option<String>,
    /// Of this tenant
    #[arg(long, value_name = "ID")]
    tenant: Option<String>,
    /// By this user
    #[arg(long, value_name = "ID")]
    actor: Option<String>,
    /// With this token
    #[arg(long, value_name = "ID")]
    token: Option<String>,
    /// Of types that begin so
    #[arg(long = "type", value_name = "PREFIX")]
    event_type: Option<String>,
    /// Of this operation
    #[arg(long, value_name = "ID")]
    operation: Option<String>,
    /// From this time on (RFC 3339)
    #[arg(long, value_name = "TIME")]
    from: Option<String>,
    /// Until this time (RFC 3339)
    #[arg(long, value_name = "TIME")]
    to: Option<String>,
    /// With this text in it
    #[arg(long, value_name = "TEXT")]
    text: Option<String>,
}

impl Filter {
    fn call(self) -> Result<Call> {
        Ok(Call::get(&["audit"])?
            .maybe("domain", self.domain)
            .maybe("tenant", self.tenant)
            .maybe("actor", self.actor)
            .maybe("token", self.token)
            .maybe("type", self.event_type)
            .maybe("operation", self.operation)
            .maybe("from", self.from)
            .maybe("to", self.to)
            .maybe("text", self.text))
    }
}

/// In what form.
#[derive(Clone, Copy, ValueEnum)]
pub enum Format {
    /// Comma-separated values with a head
    Csv,
    /// One JSON object a line
    Ndjson,
}

/// Runs it.
pub async fn run(console: &Console, command: AuditCommand) -> Result<()> {
    match command {
        AuditCommand::List { filter, list } => {
            let lines =
                |rows: &[serde_json::Value]| rows.iter().map(event_line).collect::<Vec<_>>().join("\n");
            list::show_with(console, filter.call()?, &list.of_history(), lines).await
        }
        AuditCommand::Export { heads: Some(file), .. } => {
            let call = Call::get(&["audit", "heads"])?.accept("application/x-ndjson");
            zone::save(console.api.open(&call).await?, Some(&file)).await
        }
        AuditCommand::Heads { list } => {
            list::show(console, Call::get(&["audit", "heads"])?, HEADS_COLUMNS, &list.of_history()).await
        }
        AuditCommand::Export { filter, format, output, .. } => {
            let accept = match format {
                Format::Csv => "text/csv",
                Format::Ndjson => "application/x-ndjson",
            };
            zone::save(console.api.open(&filter.call()?.accept(accept)).await?, output.as_deref()).await
        }
        AuditCommand::Verify { heads: None } => verify(&console.global).await,
        AuditCommand::Verify { heads: Some(file) } => verify_heads(&console.global, &file).await,
    }
}

/// Verifies the log in the control database.
pub async fn verify(global: &Global) -> Result<()> {
    let config = Config::load(global.config.as_deref())?;
    let pool = pool::connect(&config.database.read_url()?, VERIFY_CONNECTIONS).await?;
    pool::check_level(&pool).await?;
    let mut progress = Progress::new("reading the log");
    let verified = store::verify::verify(&pool, &mut |done, total| {
        let count = |number: i64| u64::try_from(number).unwrap_or_default();
        progress.count(count(done), count(total), "events");
    })
    .await?;
    drop(progress);
    if global.json {
        data(serde_json::to_string(&verified)?)?;
    } else {
        for fault in &verified.faults {
            let stream = fault.stream.map(|stream| format!(" in stream {stream}")).unwrap_or_default();
            data(format_args!("position {}: {}{stream}", fault.position, fault.kind))?;
        }
    }
    match verified.faults.len() {
        0 if global.json => Ok(()),
        0 => Ok(data(format_args!(
            "the log is as it was written: {} events in {} streams up to position {}",
            verified.events, verified.streams, verified.head
        ))?),
        count => Err(ClientError::refused(format!(
            "the log is not as it was written: {count} faults\n  next: stop writing, keep a copy of this database, \
             and compare it with a backup"
        ))),
    }
}

/// Compares the log in the control database with a file of heads.
pub async fn verify_heads(global: &Global, file: &Path) -> Result<()> {
    let config = Config::load(global.config.as_deref())?;
    let pool = pool::connect(&config.database.read_url()?, VERIFY_CONNECTIONS).await?;
    pool::check_level(&pool).await?;
    let open = std::fs::File::open(file).with_context(|| format!("cannot open {}", file.display()))?;
    let compared = heads::compare(&pool, std::io::BufReader::new(open)).await?;
    if global.json {
        data(serde_json::to_string(&compared)?)?;
    } else {
        for one in &compared.differences {
            let stream = one.stream.map(|stream| format!(" {stream}")).unwrap_or_default();
            data(format_args!("{}{stream}: {}", one.kind, one.what))?;
        }
    }
    match compared.differences.len() {
        0 if global.json => Ok(()),
        0 => Ok(data(format_args!(
            "the log holds what {} says: {} streams up to position {}, signed by {}",
            file.display(),
            compared.streams,
            compared.position,
            compared.key
        ))?),
        count => Err(ClientError::refused(format!(
            "the log is not what {} says: {count} differences\n  next: stop writing, keep a copy of this database, and \
             compare it with a backup",
            file.display()
        ))),
    }
}
