//! The `headwater` program.

use std::io::IsTerminal;
use std::process::ExitCode;

use tracing_subscriber::EnvFilter;

/// The variable that says what is logged.
const LOG_VARIABLE: &str = "HEADWATER_LOG";

#[tokio::main]
async fn main() -> ExitCode {
    // No core dump, and no other process of this user, holds the keys that stand in this one's memory.
    let hidden = nix::sys::prctl::set_dumpable(false);
    // One TLS provider for the whole process; a part that installs it too finds it there.
    let _installed = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let filter = EnvFilter::try_from_env(LOG_VARIABLE).unwrap_or_else(|_| EnvFilter::new("info,sqlx=warn"));
    let colours = std::io::stderr().is_terminal();
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colours).with_writer(std::io::stderr).init();
    if let Err(error) = hidden {
        tracing::warn!(%error, "a core dump of this process would hold its keys");
    }
    headwater::cli::run().await
}
