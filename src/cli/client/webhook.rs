//! `headwater webhook`: receivers of events.
//!
//! What must hold: the secret of a webhook is shown once, alone on stdout or in a file that only its owner reads.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::{Value, json};

use super::http::Call;
use super::list::{self, ListArgs};
use super::mutate::{Change, Common, IdArgs, Say, carry_out};
use super::output::Column;
use super::token::{show_secret, to_new_file};
use super::{Console, labels, show_one};

const COLUMNS: &[Column] = &[
    ("ID", "/id"),
    ("NAME", "/name"),
    ("TENANT", "/tenant"),
    ("URL", "/url"),
    ("TYPES", "/types"),
    ("ENABLED", "/enabled"),
    ("POSITION", "/position"),
    ("FAILING SINCE", "/failing_since"),
    ("LAST ERROR", "/last_error"),
];
const DELIVERY_COLUMNS: &[Column] = &[
    ("AT", "/last_at"),
    ("POSITION", "/position"),
    ("TYPE", "/type"),
    ("DOMAIN", "/domain"),
    ("STATE", "/state"),
    ("TRIES", "/attempts"),
    ("STATUS", "/status"),
    ("MS", "/ms"),
    ("NEXT", "/next_at"),
    ("ERROR", "/error"),
];

/// What can be done with webhooks.
#[derive(Subcommand)]
pub enum WebhookCommand {
    /// Lists webhooks, and how far each has got
    #[command(after_help = "Examples:
  headwater webhook list
  headwater webhook list --tenant 01982f6e-7b4c-7d30-9d0a-3f1f0f3f5f10")]
    List {
        /// Those of this tenant
        #[arg(long, value_name = "ID")]
        tenant: Option<String>,
        /// How much of it.
        #[command(flatten)]
        list: ListArgs,
    },
    /// Makes a webhook and prints its secret; it is shown only now
    #[command(after_help = "Examples:
  headwater webhook create inventory https://hooks.example.net/headwater
  headwater webhook create records https://hooks.example.net/dns --type rrset. --domain example.com --output secret
  headwater webhook create everything https://hooks.example.net/all --platform")]
    Create(Box<CreateArgs>),
    /// Shows a webhook, and how far it has got
    #[command(after_help = "Examples:
  headwater webhook show 01982f6e-7b4c-7d30-9d0a-3f1f0f3f5f10")]
    Show {
        /// Its id
        id: String,
    },
    /// Changes a webhook, enables or disables it
    #[command(after_help = "Examples:
  headwater webhook update 01982f6e-7b4c-7d30-9d0a-3f1f0f3f5f10 --receiver https://new.example.net/
  headwater webhook update 01982f6e-7b4c-7d30-9d0a-3f1f0f3f5f10 --type rrset. --type domain.
  headwater webhook update 01982f6e-7b4c-7d30-9d0a-3f1f0f3f5f10 --enable")]
    Update(Box<UpdateArgs>),
    /// Deletes a webhook, its secrets and what is known of its deliveries
    #[command(after_help = "Examples:
  headwater webhook delete 01982f6e-7b4c-7d30-9d0a-3f1f0f3f5f10")]
    Delete(IdArgs),
    /// Shows what became of what was sent, newest first
    #[command(after_help = "Examples:
  headwater webhook deliveries 01982f6e-7b4c-7d30-9d0a-3f1f0f3f5f10
  headwater webhook deliveries 01982f6e-7b4c-7d30-9d0a-3f1f0f3f5f10 --json | jq '.items[] | select(.state != \"delivered\")'")]
    Deliveries {
        /// Its id
        id: String,
        /// How much of it.
        #[command(flatten)]
        list: ListArgs,
    },
    /// Sends again what stands after a position
    #[command(after_help = "Examples:
  headwater webhook replay 01982f6e-7b4c-7d30-9d0a-3f1f0f3f5f10 --after 1042")]
    Replay {
        /// Its id
        id: String,
        /// A position, or the id of an event
        #[arg(long, value_name = "POSITION")]
        after: String,
        /// Its note and key.
        #[command(flatten)]
        common: Common,
    },
    /// Gives a webhook another secret and prints it; the one before counts beside it for 24 hours
    #[command(after_help = "Examples:
  headwater webhook rotate-secret 01982f6e-7b4c-7d30-9d0a-3f1f0f3f5f10 --output secret")]
    RotateSecret {
        /// Its id
        id: String,
        /// Into this new file, which only you can read, in place of stdout
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,
        /// Its note and key.
        #[command(flatten)]
        common: Common,
    },
}

/// What is sent.
#[derive(Args)]
struct Wanted {
    /// The beginning of a type of event, such as rrset.; may be repeated [default: all types]
    #[arg(long = "type", value_name = "TYPE")]
    types: Vec<String>,
    /// A domain; may be repeated [default: all domains, and what concerns none]
    #[arg(long = "domain", value_name = "NAME")]
    domains: Vec<String>,
    /// A label; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    label: Vec<String>,
    /// What it is for
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
}

/// A webhook to make.
#[derive(Args)]
pub struct CreateArgs {
    /// What it is called
    name: String,
    /// Where it is sent to, a URL
    receiver: String,
    #[command(flatten)]
    wanted: Wanted,
    /// Sends nothing until it is enabled
    #[arg(long)]
    disabled: bool,
    /// Whose it is [default: your only tenant]
    #[arg(long, value_name = "ID")]
    tenant: Option<String>,
    /// It is the platform's own and gets every event (administrators)
    #[arg(long, conflicts_with = "tenant")]
    platform: bool,
    /// The secret into this new file, which only you can read, in place of stdout
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

/// What is to change of a webhook.
#[derive(Args)]
pub struct UpdateArgs {
    /// Its id
    id: String,
    /// What it is called
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Where it is sent to
    #[arg(long, value_name = "URL")]
    receiver: Option<String>,
    #[command(flatten)]
    wanted: Wanted,
    /// All types again
    #[arg(long, conflicts_with = "types")]
    all_types: bool,
    /// All domains again, and what concerns none
    #[arg(long, conflicts_with = "domains")]
    all_domains: bool,
    /// Sends it what happens from now on
    #[arg(long, conflicts_with = "disable")]
    enable: bool,
    /// Sends it nothing any more
    #[arg(long)]
    disable: bool,
    #[command(flatten)]
    common: Common,
}

/// Runs it.
pub async fn run(console: &Console, command: WebhookCommand) -> Result<()> {
    match command {
        WebhookCommand::List { tenant, list } => {
            let call = Call::get(&["webhooks"])?.maybe("tenant", tenant);
            list::show(console, call, COLUMNS, &list).await
        }
        WebhookCommand::Create(args) => create(console, *args).await,
        WebhookCommand::Show { id } => show_one(console, Call::get(&["webhooks", &id])?).await,
        WebhookCommand::Update(args) => update(console, *args).await,
        WebhookCommand::Delete(args) => {
            let call = Call::new(Method::DELETE, &["webhooks", &args.id])?;
            did(console, call, &args.id, args.common, "deleted").await
        }
        WebhookCommand::Deliveries { id, list } => {
            let call = Call::get(&["webhooks", &id, "deliveries"])?;
            list::show(console, call, DELIVERY_COLUMNS, &list.of_history()).await
        }
        WebhookCommand::Replay { id, after, common } => {
            let after = after.parse::<i64>().map_or_else(|_| json!(after), |position| json!(position));
            let call = Call::post(&["webhooks", &id, "replay"])?.json(&json!({"after": after}));
            did(console, call, &id, common, "goes on from there").await
        }
        WebhookCommand::RotateSecret { id, output, common } => {
            let body = json!({"rotate_secret": true});
            let call = Call::new(Method::PATCH, &["webhooks", &id])?.json(&body);
            secret(console, call, common, output, "webhook").await
        }
    }
}

async fn did(console: &Console, call: Call, id: &str, common: Common, did: &str) -> Result<()> {
    let shown = format!("webhook {id}");
    carry_out(console, call, &Change::from(common), Say::Did(&shown, did)).await
}

/// Carries out what makes a secret, and shows it.
async fn secret(
    console: &Console,
    call: Call,
    common: Common,
    output: Option<PathBuf>,
    what: &str,
) -> Result<()> {
    if common.dry_run {
        return carry_out(console, call, &common.into(), Say::Id).await;
    }
    let file = to_new_file(output.as_deref())?;
    show_secret(console, common.apply(call)?, file, "secret", what).await
}

impl Wanted {
    fn write(&self, body: &mut Value) -> Result<()> {
        if !self.types.is_empty() {
            body["types"] = json!(self.types);
        }
        if !self.domains.is_empty() {
            body["domains"] = json!(self.domains);
        }
        if !self.label.is_empty() {
            body["labels"] = labels(&self.label)?.into();
        }
        if let Some(description) = &self.description {
            body["description"] = json!(description);
        }
        Ok(())
    }
}

async fn create(console: &Console, args: CreateArgs) -> Result<()> {
    let mut body = json!({"name": args.name, "url": args.receiver, "enabled": !args.disabled});
    args.wanted.write(&mut body)?;
    if let Some(tenant) = &args.tenant {
        body["tenant"] = json!(tenant);
    }
    if args.platform {
        body["platform"] = json!(true);
    }
    let call = Call::post(&["webhooks"])?.json(&body);
    secret(console, call, args.common, args.output, "webhook").await
}

async fn update(console: &Console, args: UpdateArgs) -> Result<()> {
    let mut body = json!({});
    args.wanted.write(&mut body)?;
    if let Some(name) = &args.name {
        body["name"] = json!(name);
    }
    if let Some(url) = &args.receiver {
        body["url"] = json!(url);
    }
    if args.all_types {
        body["types"] = json!([]);
    }
    if args.all_domains {
        body["domains"] = json!(["*"]);
    }
    if args.enable || args.disable {
        body["enabled"] = json!(args.enable);
    }
    let call = Call::new(Method::PATCH, &["webhooks", &args.id])?.json(&body);
    did(console, call, &args.id, args.common, "changed").await
}
