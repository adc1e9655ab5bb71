//! `headwater zone`: a domain as a zone file, piece by piece, whatever its size.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Subcommand;

use super::Console;
use super::http::{Call, JSON, Stream};
use super::output::{raw, talk};

/// What can be done with zones.
#[derive(Subcommand)]
pub enum ZoneCommand {
    /// Writes a domain as a zone file, or as JSON with --json
    #[command(after_help = "Examples:
  headwater zone export example.com
  headwater zone export example.com --output example.com.zone")]
    Export {
        /// The domain
        domain: String,
        /// Into this file, which is replaced only by a whole one
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,
    },
}

/// Runs it.
pub async fn run(console: &Console, command: ZoneCommand) -> Result<()> {
    let ZoneCommand::Export { domain, output } = command;
    let accept = if console.json { JSON } else { "text/dns" };
    let call = Call::get(&["domains", &domain, "zone"])?.accept(accept);
    save(console.api.open(&call).await?, output.as_deref()).await
}

/// Writes an answer to stdout or into a file.
pub(super) async fn save(mut stream: Stream, output: Option<&Path>) -> Result<()> {
    let Some(file) = output else {
        while let Some(chunk) = stream.chunk().await? {
            raw(&chunk)?;
        }
        return Ok(());
    };
    let cannot = || format!("cannot write {}", file.display());
    // Beside the file, so that it can take its place in one step.
    let mut part = file.as_os_str().to_owned();
    part.push(format!(".{}.part", std::process::id()));
    let part = PathBuf::from(part);
    let written = copy(&mut stream, &part).await;
    match written.with_context(cannot).and_then(|bytes| {
        std::fs::rename(&part, file).with_context(cannot)?;
        Ok(bytes)
    }) {
        Ok(bytes) => {
            talk(format_args!("wrote {} ({bytes} bytes)", file.display()));
            Ok(())
        }
        Err(error) => {
            // The error is what counts; the part may not even exist.
            let _removed = std::fs::remove_file(&part);
            Err(error)
        }
    }
}

async fn copy(stream: &mut Stream, part: &Path) -> Result<usize> {
    let mut out = std::io::BufWriter::new(std::fs::File::create(part)?);
    let mut bytes = 0;
    while let Some(chunk) = stream.chunk().await? {
        out.write_all(&chunk)?;
        bytes += chunk.len();
    }
    out.into_inner().map_err(|error| error.into_error())?.sync_all()?;
    Ok(bytes)
}
