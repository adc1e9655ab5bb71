//! The commands that talk to the API, one noun and verb per action.
//!
//! What must hold: data on stdout, talk on stderr; exit codes 0 done, 1 failed, 2 wrong usage, 3 refused or
//! different; the token comes from a file, never from the command line.

pub mod audit;
pub mod cluster;
pub mod deployment;
pub mod dnsdist;
pub mod domain;
pub mod edge;
pub mod error;
pub mod event_reference;
pub mod events;
pub mod http;
pub mod import;
pub mod list;
pub mod member;
pub mod mutate;
pub mod op;
pub mod output;
pub mod people;
pub mod projection;
pub mod reference;
pub mod rrset;
pub mod site;
pub mod status;
pub mod tls;
pub mod token;
pub mod undo;
pub mod wait;
pub mod webhook;
pub mod why;
pub mod zone;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use clap_complete::Shell;

use self::error::{ClientError, report};
use self::http::ApiClient;
use crate::config::{ApiUrl, Config};
use crate::secret::Secret;

/// The most that is read from a file or from stdin as the body of a request.
const BODY_MAX_BYTES: u64 = 32 * 1024 * 1024;

/// What may stand before the noun or after the verb of any command.
#[derive(Args, Clone, Debug, Default)]
pub struct Global {
    /// The configuration file
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        env = "HEADWATER_CONFIG",
        hide_env_values = true,
        help_heading = "Connection and output"
    )]
    pub config: Option<PathBuf>,
    /// The JSON of the API on stdout, for programs
    #[arg(long, global = true, help_heading = "Connection and output")]
    pub json: bool,
    /// The API, such as https://headwater.example.net
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "HEADWATER_URL",
        hide_env_values = true,
        help_heading = "Connection and output"
    )]
    pub url: Option<ApiUrl>,
    /// The file that holds the token
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        env = "HEADWATER_TOKEN_FILE",
        hide_env_values = true,
        help_heading = "Connection and output"
    )]
    pub token_file: Option<PathBuf>,
}

/// The commands of a client.
#[derive(Subcommand)]
pub enum ClientCommand {
    /// Domains: make, change, delete, look at
    #[command(subcommand)]
    Domain(domain::DomainCommand),
    /// The records of a domain, by owner name and type
    #[command(subcommand)]
    Rrset(rrset::RrsetCommand),
    /// Proxied names of a domain: what edges serve, and from where
    #[command(subcommand)]
    Hostname(site::HostnameCommand),
    /// How edges keep answers of a domain
    #[command(subcommand)]
    Cache(site::CacheCommand),
    /// Lets go of everything that edges keep of a domain
    #[command(after_help = site::PURGE_EXAMPLES)]
    Purge(site::PurgeArgs),
    /// The certificate of a domain
    #[command(subcommand)]
    Tls(tls::TlsCommand),
    /// A domain as a zone file
    #[command(subcommand)]
    Zone(zone::ZoneCommand),
    /// Zones of other servers, taken in (administrators)
    #[command(subcommand)]
    Import(import::ImportCommand),
    /// Undoes everything that one token did, in all domains that you may write
    #[command(after_help = undo::EXAMPLES)]
    Undo(undo::UndoArgs),
    /// Operations: the receipts of accepted work
    #[command(subcommand)]
    Op(op::OpCommand),
    /// Events: what happened, and what happens now
    #[command(subcommand)]
    Events(events::EventsCommand),
    /// Who did what
    #[command(subcommand)]
    Audit(audit::AuditCommand),
    /// Projections: what is derived from the log
    #[command(subcommand)]
    Projection(projection::ProjectionCommand),
    /// What is wrong now (administrators)
    #[command(after_help = status::EXAMPLES)]
    Status,
    /// Why a name is answered as it is, hop by hop, and what mends it
    #[command(after_help = why::EXAMPLES)]
    Why(why::WhyArgs),
    /// DNS clusters (administrators)
    #[command(subcommand)]
    Cluster(cluster::ClusterCommand),
    /// The dnsdist of this host, made from the DNS clusters (administrators)
    #[command(subcommand)]
    Dnsdist(dnsdist::DnsdistCommand),
    /// Edges: the hosts that serve websites (administrators)
    #[command(subcommand)]
    Edge(edge::EdgeCommand),
    /// Deployments of domains on targets
    #[command(subcommand)]
    Deployment(deployment::DeploymentCommand),
    /// Tokens for programs
    #[command(subcommand)]
    Token(token::TokenCommand),
    /// Webhooks: receivers of events
    #[command(subcommand)]
    Webhook(webhook::WebhookCommand),
    /// Tenants, who own domains (administrators)
    #[command(subcommand)]
    Tenant(people::TenantCommand),
    /// Members of a tenant, or of a domain alone: who may do what there
    #[command(subcommand)]
    Member(member::MemberCommand),
    /// Users (administrators)
    #[command(subcommand)]
    User(people::UserCommand),
    /// Who the token belongs to
    #[command(after_help = people::ME_EXAMPLES)]
    Me,
    /// A script that completes commands in a shell
    #[command(after_help = reference::COMPLETIONS_EXAMPLES)]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Prints docs/CLI.md
    #[command(hide = true)]
    CliReference,
    /// Prints docs/EVENTS.md
    #[command(hide = true)]
    EventsReference,
}

/// The API, and how to show what it says.
pub struct Console {
    /// The API.
    pub api: ApiClient,
    /// Whether stdout is for a program.
    pub json: bool,
    /// The settings of the command line.
    pub global: Global,
}

impl Console {
    fn new(global: &Global) -> Result<Self> {
        // The file is read only for what nobody else says, so a client needs none.
        let config = match (&global.url, &global.token_file) {
            (Some(_), Some(_)) => None,
            _ => Some(Config::load(global.config.as_deref())?),
        };
        let client = config.as_ref().map(|config| &config.client);
        let Some(url) = global.url.as_ref().or_else(|| client.and_then(|client| client.url.as_ref())) else {
            return Err(ClientError::usage(
                "where is the API? Set HEADWATER_URL, --url, or url in [client] of the configuration",
            ));
        };
        let token = match (&global.token_file, client) {
            (Some(file), _) => Some(Secret::read(file)?),
            (None, Some(client)) => client.read_token()?,
            (None, None) => None,
        };
        Ok(Self { api: ApiClient::new(url, token)?, json: global.json, global: global.clone() })
    }
}

/// Runs a command. `root` is the whole command line, for completions and the reference.
///
/// Failures are told here; the exit code says which kind it was.
pub async fn run(command: ClientCommand, global: &Global, root: fn() -> clap::Command) -> Result<ExitCode> {
    Ok(match dispatch(command, global, root).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => report(&error),
    })
}

async fn dispatch(command: ClientCommand, global: &Global, root: fn() -> clap::Command) -> Result<()> {
    match command {
        ClientCommand::Completions { shell } => return reference::completions(shell, root()),
        ClientCommand::CliReference => return Ok(output::raw(reference::markdown(root()).as_bytes())?),
        ClientCommand::EventsReference => {
            return Ok(output::raw(event_reference::markdown()?.as_bytes())?);
        }
        ClientCommand::Audit(audit::AuditCommand::Verify { heads: None }) => {
            return audit::verify(global).await;
        }
        ClientCommand::Audit(audit::AuditCommand::Verify { heads: Some(ref file) }) => {
            return audit::verify_heads(global, file).await;
        }
        _ => {}
    }
    let console = Console::new(global)?;
    match command {
        ClientCommand::Domain(command) => domain::run(&console, command).await,
        ClientCommand::Rrset(command) => rrset::run(&console, command).await,
        ClientCommand::Hostname(command) => site::run_hostname(&console, command).await,
        ClientCommand::Cache(command) => site::run_cache(&console, command).await,
        ClientCommand::Purge(args) => site::run_purge(&console, args).await,
        ClientCommand::Tls(command) => tls::run(&console, command).await,
        ClientCommand::Zone(command) => zone::run(&console, command).await,
        ClientCommand::Import(command) => import::run(&console, command).await,
        ClientCommand::Undo(args) => undo::run(&console, args).await,
        ClientCommand::Op(command) => op::run(&console, command).await,
        ClientCommand::Events(command) => events::run(&console, command).await,
        ClientCommand::Audit(command) => audit::run(&console, command).await,
        ClientCommand::Projection(command) => projection::run(&console, command).await,
        ClientCommand::Status => status::run(&console).await,
        ClientCommand::Why(args) => why::run(&console, args).await,
        ClientCommand::Cluster(command) => cluster::run(&console, command).await,
        ClientCommand::Dnsdist(command) => dnsdist::run(&console, command).await,
        ClientCommand::Edge(command) => edge::run(&console, command).await,
        ClientCommand::Deployment(command) => deployment::run(&console, command).await,
        ClientCommand::Token(command) => token::run(&console, command).await,
        ClientCommand::Webhook(command) => webhook::run(&console, command).await,
        ClientCommand::Tenant(command) => people::run_tenant(&console, command).await,
        ClientCommand::Member(command) => member::run(&console, command).await,
        ClientCommand::User(command) => people::run_user(&console, command).await,
        ClientCommand::Me => people::me(&console).await,
        // Done above.
        ClientCommand::Completions { .. } | ClientCommand::CliReference | ClientCommand::EventsReference => {
            Ok(())
        }
    }
}

/// Shows one object of the API.
async fn show_one(console: &Console, call: http::Call) -> Result<()> {
    let answer = console.api.send(&call).await?;
    if console.json {
        return Ok(output::data(answer.text.trim_end())?);
    }
    Ok(output::data(output::object(&answer.json()?))?)
}

/// Shows one object of the API with its lists as tables.
async fn show_parts(console: &Console, call: http::Call, parts: &[(&str, &[output::Column])]) -> Result<()> {
    let answer = console.api.send(&call).await?;
    if console.json {
        return Ok(output::data(answer.text.trim_end())?);
    }
    Ok(output::data(output::parts(&answer.json()?, parts))?)
}

/// Reads a body from a file, or from stdin for `-`.
fn read_input(file: &std::path::Path) -> Result<String> {
    use std::io::Read as _;
    let from: Box<dyn std::io::Read> = if file == std::path::Path::new("-") {
        Box::new(std::io::stdin().lock())
    } else {
        Box::new(std::fs::File::open(file).with_context(|| format!("cannot open {}", file.display()))?)
    };
    let mut text = String::new();
    from.take(BODY_MAX_BYTES + 1)
        .read_to_string(&mut text)
        .with_context(|| format!("cannot read {} as text", file.display()))?;
    if text.len() as u64 > BODY_MAX_BYTES {
        return Err(ClientError::usage(format!("{} is longer than {BODY_MAX_BYTES} bytes", file.display())));
    }
    Ok(text)
}

/// `key=value` pairs as an object.
fn labels(pairs: &[String]) -> Result<serde_json::Map<String, serde_json::Value>> {
    pairs
        .iter()
        .map(|pair| match pair.split_once('=') {
            Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.into())),
            _ => Err(ClientError::usage(format!("--label {pair}: write it as key=value"))),
        })
        .collect()
}
