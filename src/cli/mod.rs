//! The command line. Data goes to stdout, talk to stderr. Exit codes: 0 done, 1 failed, 2 wrong usage, 3 refused or
//! different.

pub mod admin;
#[allow(rustdoc::bare_urls)] // help texts are shown as they are
pub mod client;
pub mod init;
pub mod rotate;
pub mod sse;

use anyhow::Result;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use self::client::error::EXIT_USAGE;
use self::client::{ClientCommand, Global};
use crate::command::SubmitError;
use crate::config::{Config, Unusable};
use crate::demo::run::DemoArgs;
use crate::serve::{self, Roles};
use crate::store::pool;

/// The exit code of something refused.
pub const EXIT_REFUSED: u8 = 3;

/// A control plane for a private CDN and authoritative DNS.
#[derive(Parser)]
#[command(name = "headwater", version, propagate_version = true)]
pub struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

// One value of it is made in the life of the program.
#[allow(clippy::large_enum_variant)]
#[derive(Subcommand)]
enum Command {
    /// The API, the projectors and the workers
    #[command(after_help = "Examples:
  headwater serve
  headwater --config /etc/headwater/headwater.toml serve --roles api
  headwater serve --check-config")]
    Serve(ServeArgs),
    /// Apply schema migrations to the control database
    #[command(after_help = "Examples:
  headwater migrate")]
    Migrate,
    /// Make the platform, the first administrator and a commented configuration file
    #[command(after_help = "Examples:
  headwater init --admin-email admin@example.com --token-file /etc/headwater/admin-token")]
    Init(init::InitArgs),
    /// Make users and tokens, and renew the log's identity, directly on the control database
    #[command(subcommand)]
    Admin(admin::AdminCommand),
    // The clients of the API are flattened in here: `#[command(flatten)] Client(client::ClientCommand)`.
    /// The whole system on loopback in one directory
    #[command(after_help = "Examples:
  headwater demo
  headwater demo --once")]
    Demo(DemoArgs),
    /// Print the description of the API (OpenAPI 3.1)
    #[command(after_help = "Examples:
  headwater openapi > openapi.json")]
    Openapi,
    #[command(flatten)]
    Client(ClientCommand),
}

#[derive(Args)]
struct ServeArgs {
    /// What this process does: api, deploy, projections, edge, separated by commas, or all
    #[arg(long, default_value = "all", value_name = "ROLES", value_parser = |text: &str| text.parse::<Roles>())]
    roles: Roles,
    /// Only read the configuration and say whether it is right
    #[arg(long)]
    check_config: bool,
}

/// The whole command line.
fn command() -> clap::Command {
    client::reference::with_examples(Cli::command())
}

/// Runs the command of this process.
pub async fn run() -> ExitCode {
    let cli = Cli::from_arg_matches(&command().get_matches()).unwrap_or_else(|error| error.exit());
    match dispatch(cli).await {
        Ok(code) => code,
        Err(error) => {
            eprintln!("headwater: {error:#}");
            let refused = matches!(error.downcast_ref::<SubmitError>(), Some(SubmitError::Rejected(_)));
            match error.downcast_ref::<Unusable>() {
                Some(_) => ExitCode::from(EXIT_USAGE),
                None if refused => ExitCode::from(EXIT_REFUSED),
                None => ExitCode::FAILURE,
            }
        }
    }
}

async fn dispatch(cli: Cli) -> Result<ExitCode> {
    let file = cli.global.config.as_deref();
    match cli.command {
        Command::Serve(args) => {
            let config = Config::load(file)?;
            if args.check_config {
                init::identity(&config).map_err(|error| Unusable(format!("{error:#}")))?;
                eprintln!("the configuration{} is right", of_file(&config));
                return Ok(ExitCode::SUCCESS);
            }
            serve::run(config, args.roles).await?;
        }
        Command::Migrate => migrate(file).await?,
        Command::Init(args) => init::run(file, args).await?,
        Command::Admin(command) => admin::run(file, command).await?,
        Command::Demo(args) => return crate::demo::run::run(args).await,
        Command::Openapi => {
            let document = crate::http::router::document()?;
            std::io::stdout().write_all(document.text().as_bytes())?;
        }
        Command::Client(command) => return client::run(command, &cli.global, self::command).await,
    }
    Ok(ExitCode::SUCCESS)
}

fn of_file(config: &Config) -> String {
    config.file.as_ref().map(|file| format!(" {}", file.display())).unwrap_or_default()
}

async fn migrate(file: Option<&Path>) -> Result<()> {
    let config = Config::load(file)?;
    let pool = pool::connect(&config.database.read_url()?, 2).await?;
    pool::migrate(&pool).await?;
    eprintln!("the schema of the control database is current");
    pool.close().await;
    Ok(())
}
