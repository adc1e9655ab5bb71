//! `headwater tenant`, `headwater user`, `headwater me`.

use anyhow::Result;
use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::json;

use super::http::Call;
use super::list::{self, ListArgs};
use super::mutate::{Common, IdArgs, Say, carry_out};
use super::output::Column;
use super::{Console, labels, show_one};

/// For the help of `me`.
pub const ME_EXAMPLES: &str = "Examples:
  headwater me
  headwater me --json | jq -r .id";

const TENANT_COLUMNS: &[Column] =
    &[("ID", "/id"), ("NAME", "/name"), ("LABELS", "/labels"), ("EXTERNAL ID", "/external_id")];
const USER_COLUMNS: &[Column] = &[
    ("ID", "/id"),
    ("EMAIL", "/email"),
    ("ADMIN", "/admin"),
    ("ENABLED", "/enabled"),
    ("TENANTS", "/tenants"),
];

/// What can be done with tenants.
#[derive(Subcommand)]
pub enum TenantCommand {
    /// Lists tenants
    #[command(after_help = "Examples:
  headwater tenant list")]
    List {
        /// How much of it.
        #[command(flatten)]
        list: ListArgs,
    },
    /// Makes a tenant and prints its id
    #[command(after_help = "Examples:
  headwater tenant create 'Example Ltd' --external-id 4711")]
    Create(TenantArgs),
    /// Changes a tenant
    #[command(after_help = "Examples:
  headwater tenant update 01982f6e-7b4c-7d30-9d0a-3f1f0f3f5f10 --name 'Example GmbH'
  headwater tenant update 01982f6e-7b4c-7d30-9d0a-3f1f0f3f5f10 --label plan=large")]
    Update(TenantUpdateArgs),
    /// Removes a tenant that owns no domain
    #[command(after_help = "Examples:
  headwater tenant delete 01982f6e-7b4c-7d30-9d0a-3f1f0f3f5f10")]
    Delete(IdArgs),
    /// Shows a tenant
    #[command(after_help = "Examples:
  headwater tenant show 01982f6e-7b4c-7d30-9d0a-3f1f0f3f5f10")]
    Show {
        /// Its id
        id: String,
    },
}

/// A tenant to make.
#[derive(Args)]
pub struct TenantArgs {
    /// Its name
    name: String,
    /// A label; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    label: Vec<String>,
    /// Your own number for it
    #[arg(long, value_name = "TEXT")]
    external_id: Option<String>,
    #[command(flatten)]
    common: Common,
}

/// What changes of a tenant.
#[derive(Args)]
pub struct TenantUpdateArgs {
    /// Its id
    id: String,
    /// Its name from now on
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// A label; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    label: Vec<String>,
    /// Your own number for it
    #[arg(long, value_name = "TEXT")]
    external_id: Option<String>,
    #[command(flatten)]
    common: Common,
}

/// What can be done with users.
#[derive(Subcommand)]
pub enum UserCommand {
    /// Lists users
    #[command(after_help = "Examples:
  headwater user list")]
    List {
        /// How much of it.
        #[command(flatten)]
        list: ListArgs,
    },
    /// Makes a user and prints the id
    #[command(after_help = "Examples:
  headwater user create admin@example.com --admin
  headwater user create someone@example.com --tenant 01982f6e-7b4c-7d30-9d0a-3f1f0f3f5f10")]
    Create(UserArgs),
    /// Shows a user
    #[command(after_help = "Examples:
  headwater user show 01982f6e-7b4c-7d30-9d0a-3f1f0f3f5f10")]
    Show {
        /// Its id
        id: String,
    },
    /// Keeps a user out: its sessions and streams end at once, and its tokens are refused
    #[command(after_help = "Examples:
  headwater user disable 01982f6e-7b4c-7d30-9d0a-3f1f0f3f5f10 --note 'left the company'")]
    Disable(IdArgs),
    /// Lets a user in again
    #[command(after_help = "Examples:
  headwater user enable 01982f6e-7b4c-7d30-9d0a-3f1f0f3f5f10")]
    Enable(IdArgs),
    /// Erases a user: who it was is forgotten
    #[command(after_help = "Examples:
  headwater user delete 01982f6e-7b4c-7d30-9d0a-3f1f0f3f5f10")]
    Delete(IdArgs),
}

/// A user to make.
#[derive(Args)]
pub struct UserArgs {
    /// The mail address
    email: String,
    /// An administrator of the platform
    #[arg(long)]
    admin: bool,
    /// The tenant of which the user becomes a member
    #[arg(long, value_name = "ID")]
    tenant: Option<String>,
    #[command(flatten)]
    common: Common,
}

/// Runs `tenant`.
pub async fn run_tenant(console: &Console, command: TenantCommand) -> Result<()> {
    match command {
        TenantCommand::List { list } => {
            list::show(console, Call::get(&["tenants"])?, TENANT_COLUMNS, &list).await
        }
        TenantCommand::Create(args) => {
            let mut body = json!({"name": args.name});
            if !args.label.is_empty() {
                body["labels"] = labels(&args.label)?.into();
            }
            if let Some(number) = &args.external_id {
                body["external_id"] = json!(number);
            }
            carry_out(console, Call::post(&["tenants"])?.json(&body), &args.common.into(), Say::Id).await
        }
        TenantCommand::Update(args) => {
            let mut body = json!({});
            if let Some(name) = &args.name {
                body["name"] = json!(name);
            }
            if !args.label.is_empty() {
                body["labels"] = labels(&args.label)?.into();
            }
            if let Some(number) = &args.external_id {
                body["external_id"] = json!(number);
            }
            let call = Call::new(Method::PATCH, &["tenants", &args.id])?.json(&body);
            let shown = format!("tenant {}", args.id);
            carry_out(console, call, &args.common.into(), Say::Did(&shown, "changed")).await
        }
        TenantCommand::Delete(args) => {
            let call = Call::new(Method::DELETE, &["tenants", &args.id])?;
            let shown = format!("tenant {}", args.id);
            carry_out(console, call, &args.common.into(), Say::Did(&shown, "deleted")).await
        }
        TenantCommand::Show { id } => show_one(console, Call::get(&["tenants", &id])?).await,
    }
}

/// Runs `user`.
pub async fn run_user(console: &Console, command: UserCommand) -> Result<()> {
    match command {
        UserCommand::List { list } => list::show(console, Call::get(&["users"])?, USER_COLUMNS, &list).await,
        UserCommand::Create(args) => {
            let mut body = json!({"email": args.email, "admin": args.admin});
            if let Some(tenant) = &args.tenant {
                body["tenant"] = json!(tenant);
            }
            carry_out(console, Call::post(&["users"])?.json(&body), &args.common.into(), Say::Id).await
        }
        UserCommand::Show { id } => show_one(console, Call::get(&["users", &id])?).await,
        UserCommand::Disable(args) => {
            let call = Call::post(&["users", &args.id, "disable"])?;
            user_did(console, call, args, "disabled").await
        }
        UserCommand::Enable(args) => {
            let call = Call::post(&["users", &args.id, "enable"])?;
            user_did(console, call, args, "enabled").await
        }
        UserCommand::Delete(args) => {
            let call = Call::new(Method::DELETE, &["users", &args.id])?;
            user_did(console, call, args, "deleted").await
        }
    }
}

async fn user_did(console: &Console, call: Call, args: IdArgs, did: &'static str) -> Result<()> {
    let shown = format!("user {}", args.id);
    carry_out(console, call, &args.common.into(), Say::Did(&shown, did)).await
}

/// Runs `me`.
pub async fn me(console: &Console) -> Result<()> {
    show_one(console, Call::get(&["me"])?).await
}
