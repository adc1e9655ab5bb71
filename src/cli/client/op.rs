//! `headwater op`: the receipts of accepted work.

use anyhow::Result;
use clap::Subcommand;

use super::http::Call;
use super::list::{self, ListArgs};
use super::mutate::{Change, Common, Say, Waiting, carry_out};
use super::output::{Column, data, object};
use super::{Console, show_one, wait};

const COLUMNS: &[Column] = &[
    ("ID", "/id"),
    ("KIND", "/kind"),
    ("STATE", "/state"),
    ("DOMAIN", "/domain"),
    ("REVISION", "/revision"),
    ("ACTIVE", "/targets/active"),
    ("TARGETS", "/targets/total"),
    ("CREATED", "/created_at"),
    ("ERROR", "/error/detail"),
];
const STAGE_COLUMNS: &[Column] =
    &[("STAGE", "/stage"), ("TARGET", "/target"), ("AT", "/at"), ("MS", "/ms"), ("POSITION", "/position")];

const FOUND_COLUMNS: &[Column] = &[("KIND", "/kind"), ("DIFFERENCE", "/detail")];

/// What can be done with operations.
#[derive(Subcommand)]
pub enum OpCommand {
    /// Lists operations
    #[command(after_help = "Examples:
  headwater op list
  headwater op list --state failed --json")]
    List {
        /// Only those in this state: pending, running, succeeded, failed, cancelled
        #[arg(long, value_name = "STATE")]
        state: Option<String>,
        /// Only those of this domain
        #[arg(long, value_name = "DOMAIN")]
        domain: Option<String>,
        /// How much of it.
        #[command(flatten)]
        list: ListArgs,
    },
    /// Shows an operation
    #[command(after_help = "Examples:
  headwater op show 01982f6e-7b4c-7d30-9d0a-3f1f0f3f5f10")]
    Show {
        /// The operation
        id: String,
    },
    /// Waits for the end of an operation: exit 0 when it succeeded, 3 when not
    #[command(after_help = "Examples:
  headwater op wait 01982f6e-7b4c-7d30-9d0a-3f1f0f3f5f10 --timeout 30")]
    Wait {
        /// The operation
        id: String,
        /// For how long to wait.
        #[command(flatten)]
        limit: wait::Limit,
    },
    /// Shows when an operation reached which stage on which target
    #[command(after_help = "Examples:
  headwater op timeline 01982f6e-7b4c-7d30-9d0a-3f1f0f3f5f10")]
    Timeline {
        /// The operation
        id: String,
    },
    /// Calls off imperative work: it stops at its next step and leaves the last valid state
    #[command(after_help = "Examples:
  headwater op cancel 01982f6e-7b4c-7d30-9d0a-3f1f0f3f5f10")]
    Cancel {
        /// The operation
        id: String,
        /// How it is changed.
        #[command(flatten)]
        common: Common,
    },
    /// Shows what a rebuild or a verification found, one by one
    #[command(after_help = "Examples:
  headwater op differences 01982f6e-7b4c-7d30-9d0a-3f1f0f3f5f10")]
    Differences {
        /// The operation
        id: String,
        /// How much of it.
        #[command(flatten)]
        list: ListArgs,
    },
    /// Tries again what an operation could not do
    #[command(after_help = "Examples:
  headwater op retry 01982f6e-7b4c-7d30-9d0a-3f1f0f3f5f10 --wait")]
    Retry {
        /// The operation
        id: String,
        /// Whether to wait.
        #[command(flatten)]
        waiting: Waiting,
    },
}

/// Runs it.
pub async fn run(console: &Console, command: OpCommand) -> Result<()> {
    match command {
        OpCommand::List { state, domain, list } => {
            let call = Call::get(&["operations"])?.maybe("state", state).maybe("domain", domain);
            list::show(console, call, COLUMNS, &list.of_history()).await
        }
        OpCommand::Show { id } => show_one(console, Call::get(&["operations", &id])?).await,
        OpCommand::Wait { id, limit } => {
            let operation = wait::end_of(&console.api, &id, &limit).await?;
            data(if console.json { operation.to_string() } else { object(&operation) })?;
            wait::judge(&operation)
        }
        OpCommand::Timeline { id } => timeline(console, &id).await,
        OpCommand::Cancel { id, common } => cancel(console, &id, common).await,
        OpCommand::Differences { id, list } => {
            list::show(console, Call::get(&["operations", &id, "differences"])?, FOUND_COLUMNS, &list).await
        }
        OpCommand::Retry { id, waiting } => {
            let call = Call::post(&["operations", &id, "retry"])?;
            let change = Change { waiting, ..Change::default() };
            carry_out(console, call, &change, Say::Outcome(&format!("operation {id}"))).await
        }
    }
}

async fn cancel(console: &Console, id: &str, common: Common) -> Result<()> {
    let call = Call::post(&["operations", id, "cancel"])?;
    if common.dry_run || console.json {
        return carry_out(console, call, &Change::from(common), Say::Id).await;
    }
    console.api.send(&common.apply(call)?).await?;
    Ok(data(format_args!("operation {}: cancelled", super::output::safe(id)))?)
}

async fn timeline(console: &Console, id: &str) -> Result<()> {
    let answer = console.api.send(&Call::get(&["operations", id, "timeline"])?).await?;
    if console.json {
        return Ok(data(answer.text.trim_end())?);
    }
    let body = answer.json()?;
    let stages = [&body, &body["timeline"], &body["items"]].into_iter().find_map(serde_json::Value::as_array);
    Ok(data(super::output::table(STAGE_COLUMNS, stages.map_or(&[], Vec::as_slice)))?)
}
