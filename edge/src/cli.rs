//! The command line.

use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use headwater_edge_wire::ids::EdgeId;
use headwater_edge_wire::secret::SecretBytes;
use headwater_edge_wire::token::BootstrapToken;

use crate::enrol::{self, Enrolled};
use crate::layout::Layout;
use crate::settings::Settings;
use crate::status::Status;
use crate::{agent, disk, verify};

/// The environment variable that may hold the bootstrap token.
pub const TOKEN_VARIABLE: &str = "HEADWATER_EDGE_TOKEN";
/// The exit code when something does not hold.
pub const EXIT_FINDING: u8 = 3;

/// The agent of one edge host.
#[derive(Parser)]
#[command(
    name = "headwater-edge",
    version,
    about,
    after_help = "Examples:
  printf %s hwe_… | headwater-edge enroll --control https://control.example.net:8443 --edge UUID --token-file -
  headwater-edge run
  headwater-edge status --json
  headwater-edge verify"
)]
pub struct Cli {
    /// The settings file [default: ./headwater-edge.toml, then /etc/headwater/edge.toml]
    #[arg(long, global = true, value_name = "FILE", env = "HEADWATER_EDGE_CONFIG")]
    config: Option<PathBuf>,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Make the keys of this edge and keep its one-time token; `run` registers with it
    #[command(
        after_help = "The token is read from a file, from standard input (-), or from HEADWATER_EDGE_TOKEN;
never from the command line, which other users can see.
Example:
  printf %s hwe_… | headwater-edge enroll --control https://control.example.net:8443 --edge UUID --token-file -"
    )]
    Enroll {
        /// Where the control plane listens for edges
        #[arg(long)]
        control: String,
        /// The edge, as `headwater edge create` printed it
        #[arg(long)]
        edge: EdgeId,
        /// The file with the token, or - for standard input
        #[arg(long)]
        token_file: Option<PathBuf>,
    },
    /// Serve: fetch, verify, activate and report until told to end
    Run,
    /// Say how the agent and its cells are
    Status,
    /// Prove what is served from: identity, pins, index, artifacts and the newest generation of each cell; exit code 3
    /// when one does not hold
    Verify,
    /// End the nginx of every cell, after what it is doing
    StopCells,
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Runs a command.
///
/// # Errors
/// What a person should read.
pub fn main(cli: &Cli) -> Result<ExitCode, Failure> {
    let settings = Settings::load(cli.config.as_deref())?;
    match &cli.command {
        Command::Enroll { control, edge, token_file } => {
            enroll(&settings, control, *edge, token_file.as_ref())
        }
        Command::Run => {
            agent::run(settings)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Status => status(&settings, cli.json),
        Command::Verify => {
            let report = verify::verify(&settings)?;
            if cli.json {
                say(&serde_json::to_string_pretty(&report)?);
            } else {
                report.damage.iter().for_each(|line| say(line));
                say(&format!("{} domains, {} artifacts lost", report.domains, report.artifacts_lost));
            }
            Ok(if report.holds { ExitCode::SUCCESS } else { ExitCode::from(EXIT_FINDING) })
        }
        Command::StopCells => {
            agent::stop_cells(&settings);
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn say(line: &str) {
    use std::io::Write;
    // A reader that went away is no reason to fail.
    let _written = writeln!(std::io::stdout(), "{line}");
}

fn enroll(
    settings: &Settings,
    control: &str,
    edge: EdgeId,
    file: Option<&PathBuf>,
) -> Result<ExitCode, Failure> {
    if !control.starts_with("https://") {
        return Err("--control must begin with https://".into());
    }
    let token = match file {
        Some(path) if path.as_os_str() == "-" => {
            let mut bytes = Vec::new();
            std::io::stdin().take(4 << 10).read_to_end(&mut bytes)?;
            SecretBytes::new(bytes)
        }
        Some(path) => SecretBytes::new(disk::read(path, 4 << 10)?),
        None => {
            let text = std::env::var(TOKEN_VARIABLE)
                .map_err(|_| format!("give the token by --token-file or {TOKEN_VARIABLE}"))?;
            SecretBytes::new(text.into_bytes())
        }
    };
    let token = BootstrapToken::parse(&token)?;
    let layout = Layout::new(&settings.state_dir);
    disk::make_dir(layout.root(), disk::PASSABLE_DIR)?;
    let said = match enrol::enrol(&layout, edge, control, &token.to_text())? {
        Enrolled::First => "is ready to register; start it: headwater-edge run",
        Enrolled::Again => {
            "is ready to register anew, with other keys: its agent does so by itself, or start it: headwater-edge run"
        }
        Enrolled::Before => "has registered with this token before: nothing is changed",
    };
    say(&format!("edge {edge} {said}"));
    Ok(ExitCode::SUCCESS)
}

fn status(settings: &Settings, json: bool) -> Result<ExitCode, Failure> {
    let layout = Layout::new(&settings.state_dir);
    let bytes = disk::read(&layout.status(), 1 << 20).map_err(|_| "no agent has run here yet")?;
    let status: Status = serde_json::from_slice(&bytes)?;
    if json {
        say(&serde_json::to_string_pretty(&status)?);
        return Ok(ExitCode::SUCCESS);
    }
    let edge = status.edge.map_or_else(|| "not enrolled".to_owned(), |edge| edge.to_string());
    say(&format!("edge {edge}, version {}, at {}", status.version, status.at));
    say(&format!(
        "epoch {}, change {}, {} domains, {} refused",
        status.epoch, status.sequence, status.domains, status.refused
    ));
    if let Some(trouble) = &status.trouble {
        say(&format!("since {}: {}: {}", trouble.since, trouble.code, trouble.detail));
    }
    for cell in &status.cells {
        let ready = if cell.ready { "ready" } else { "not ready" };
        let detail = cell.detail.as_deref().map(|detail| format!(": {detail}")).unwrap_or_default();
        say(&format!(
            "cell {}: {ready}, {} domains, change {}{detail}",
            cell.cell, cell.domains, cell.sequence
        ));
    }
    for damage in status.damaged.all() {
        let mended = damage.mended_at.map(|at| format!(", whole again since {at}")).unwrap_or_default();
        say(&format!("{} damaged: {damage}{mended}", damage.since));
    }
    for alarm in &status.alarms {
        say(&format!("{} {}: {}", alarm.at, alarm.code, alarm.detail));
    }
    Ok(ExitCode::SUCCESS)
}
