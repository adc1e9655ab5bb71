//! The program `headwater-edge`.

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::Parser;

/// Keeps what this process and those that it starts hold in memory out of core dumps: the identity's key, and in nginx the
/// keys of certificates. nginx makes its workers dumpable again, so the limit, which they inherit, counts for them.
fn hide_memory() -> nix::Result<()> {
    nix::sys::prctl::set_dumpable(false)?;
    nix::sys::resource::setrlimit(nix::sys::resource::Resource::RLIMIT_CORE, 0, 0)
}

fn main() -> ExitCode {
    let hidden = hide_memory();
    // The only provider of TLS in the tree; a second call says that it is there already.
    let _installed = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let filter = tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "info".into());
    // A log that cannot be written (it may lie on the disk that is full) must not end a loop: by itself it would panic.
    // Colours are for people at a terminal, not for files and journals.
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(std::io::stderr().is_terminal());
    log.with_writer(std::io::stderr).log_internal_errors(false).init();
    if let Err(error) = hidden {
        tracing::warn!(%error, "a core dump of this process or of nginx would hold keys");
    }
    #[cfg(feature = "failpoints")]
    crash::arm();
    match headwater_edge::cli::main(&headwater_edge::cli::Cli::parse()) {
        Ok(code) => code,
        Err(error) => {
            use std::io::Write;
            let _written = writeln!(std::io::stderr(), "headwater-edge: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Crash points for the tests: `HEADWATER_EDGE_CRASH=edge.write.before:3` kills the program at the third passing.
#[cfg(feature = "failpoints")]
mod crash {
    use std::sync::atomic::{AtomicU64, Ordering};

    pub(crate) fn arm() {
        let Ok(spec) = std::env::var("HEADWATER_EDGE_CRASH") else { return };
        let (point, nth) = spec.split_once(':').unwrap_or((&spec, "1"));
        let nth: u64 = nth.parse().unwrap_or(1);
        let passed = AtomicU64::new(0);
        let armed = fail::cfg_callback(point, move || {
            if passed.fetch_add(1, Ordering::SeqCst) + 1 == nth {
                // No destructor runs, as in a real crash.
                let _sent = nix::sys::signal::raise(nix::sys::signal::Signal::SIGKILL);
            }
        });
        if let Err(error) = armed {
            tracing::error!(%error, "cannot arm the crash point");
        }
    }
}
