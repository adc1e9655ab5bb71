//! The `headwater` program.

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use headwater::cli::client::{self, ClientCommand, Global};
use headwater::demo::run::{DemoArgs, run};

/// A control plane for a private CDN and authoritative DNS.
#[derive(Parser)]
#[command(name = "headwater", version)]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

// One value of it is made in the life of the program.
#[allow(clippy::large_enum_variant)]
#[derive(Subcommand)]
enum Command {
    /// The whole system on loopback in one directory
    #[command(after_help = "Examples:\n  headwater demo\n  headwater demo --once")]
    Demo(DemoArgs),
    #[command(flatten)]
    Client(ClientCommand),
}

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    let outcome = match cli.command {
        Command::Demo(args) => run(args).await,
        Command::Client(command) => client::run(command, &cli.global, Cli::command).await,
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("headwater: {error:#}");
        ExitCode::FAILURE
    })
}
