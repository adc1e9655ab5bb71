//! `headwater member`: who may do what in a tenant, or with a single domain.

use anyhow::Result;
use clap::{Args, Subcommand, ValueEnum};
use reqwest::Method;
use serde_json::json;

use super::Console;
use super::error::ClientError;
use super::http::Call;
use super::list::{self, ListArgs};
use super::mutate::{Change, Common, Say, carry_out};
use super::output::Column;

const COLUMNS: &[Column] = &[("USER", "/user"), ("EMAIL", "/email"), ("ROLE", "/role")];

/// What can be done with members.
#[derive(Subcommand)]
pub enum MemberCommand {
    /// Lists the members of a tenant, or of a domain alone
    #[command(after_help = "Examples:
  headwater member list --tenant 01982f6e-7b4c-7d30-9d0a-3f1f0f3f5f10
  headwater member list --domain example.com")]
    List {
        /// Of what.
        #[command(flatten)]
        of: Of,
        /// How much of it.
        #[command(flatten)]
        list: ListArgs,
    },
    /// Makes a user a member, or gives a member another role (owners)
    #[command(after_help = "Examples:
  headwater member put 01982f6e-7b4c-7d30-9d0a-3f1f0f3f5f13 editor --tenant 01982f6e-7b4c-7d30-9d0a-3f1f0f3f5f10
  headwater member put 01982f6e-7b4c-7d30-9d0a-3f1f0f3f5f13 viewer --domain example.com")]
    Put(PutArgs),
    /// Ends a membership (owners)
    #[command(after_help = "Examples:
  headwater member remove 01982f6e-7b4c-7d30-9d0a-3f1f0f3f5f13 --domain example.com")]
    Remove(RemoveArgs),
}

/// What members are members of.
#[derive(Args)]
#[group(required = true, multiple = false)]
pub struct Of {
    /// The tenant, with everything it owns
    #[arg(long, value_name = "ID")]
    tenant: Option<String>,
    /// The domain alone
    #[arg(long, value_name = "NAME")]
    domain: Option<String>,
}

/// What a member may do.
#[derive(Clone, Copy, ValueEnum)]
pub enum RoleArg {
    /// Reads
    Viewer,
    /// Also writes records, hostnames, cache, certificates and purges
    Editor,
    /// Also decides about members, new domains and deletion
    Owner,
}

/// A member to make.
#[derive(Args)]
pub struct PutArgs {
    /// The user's id
    user: String,
    /// What it may do
    role: RoleArg,
    #[command(flatten)]
    of: Of,
    #[command(flatten)]
    common: Common,
}

/// A membership to end.
#[derive(Args)]
pub struct RemoveArgs {
    /// The user's id
    user: String,
    #[command(flatten)]
    of: Of,
    #[command(flatten)]
    common: Common,
}

impl Of {
    fn call(&self, method: Method, user: Option<&str>) -> Result<Call> {
        let (noun, id) = match (&self.tenant, &self.domain) {
            (Some(tenant), _) => ("tenants", tenant),
            (None, Some(domain)) => ("domains", domain),
            (None, None) => return Err(ClientError::usage("members of what? Give --tenant or --domain")),
        };
        let segments: Vec<&str> = [noun, id.as_str(), "members"].into_iter().chain(user).collect();
        Call::new(method, &segments)
    }
}

/// Runs it.
pub async fn run(console: &Console, command: MemberCommand) -> Result<()> {
    match command {
        MemberCommand::List { of, list } => {
            list::show(console, of.call(Method::GET, None)?, COLUMNS, &list).await
        }
        MemberCommand::Put(PutArgs { user, role, of, common }) => {
            let role = role.to_possible_value().map(|role| role.get_name().to_owned());
            let call = of.call(Method::PUT, Some(&user))?.json(&json!({"role": role}));
            let shown = format!("user {user}");
            carry_out(console, call, &Change::from(common), Say::Did(&shown, "a member")).await
        }
        MemberCommand::Remove(RemoveArgs { user, of, common }) => {
            let shown = format!("user {user}");
            let call = of.call(Method::DELETE, Some(&user))?;
            carry_out(console, call, &Change::from(common), Say::Did(&shown, "no member any more")).await
        }
    }
}
