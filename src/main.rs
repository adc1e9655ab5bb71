//! The `headwater` program.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use headwater::demo::run::{DemoArgs, run};

/// A control plane for a private CDN and authoritative DNS.
#[derive(Parser)]
#[command(name = "headwater", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// The whole system on loopback in one directory
    Demo(DemoArgs),
}

#[tokio::main]
async fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Demo(args) => run(args).await,
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("headwater: {error:#}");
        ExitCode::FAILURE
    })
}
