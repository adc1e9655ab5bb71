//! `headwater zone`: a domain as a zone file, piece by piece, whatever its size.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Subcommand;

use super::Console;
use super::http::{Call, JSON, Stream};
use super::output::{Progress, raw, talk};
use super::undo::Moment;

/// Octets after which it is told again how much was written.
const TOLD_EVERY_BYTES: usize = 16 * 1024 * 1024;

/// What can be done with zones.
#[derive(Subcommand)]
pub enum ZoneCommand {
    /// Writes a domain as a zone file, or as JSON with --json
    #[command(after_help = "Examples:
  headwater zone export example.com
  headwater zone export example.com --output example.com.zone
  headwater zone export example.com --at 2026-01-31T12:00:00Z")]
    Export {
        /// The domain
        domain: String,
        /// Into this file, which is replaced only by a whole one
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,
        /// As of when.
        #[command(flatten)]
        moment: Moment,
    },
}

/// Runs it.
pub async fn run(console: &Console, command: ZoneCommand) -> Result<()> {
    let ZoneCommand::Export { domain, output, moment } = command;
    let accept = if console.json { JSON } else { "text/dns" };
    let call = moment.apply(Call::get(&["domains", &domain, "zone"])?).accept(accept);
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
    let (mut bytes, mut told) = (0, 0);
    let mut progress = Progress::new("writing");
    while let Some(chunk) = stream.chunk().await? {
        out.write_all(&chunk)?;
        bytes += chunk.len();
        if bytes - told >= TOLD_EVERY_BYTES {
            told = bytes;
            progress.say(&format!("{} MiB written", bytes / (1024 * 1024)));
        }
    }
    drop(progress);
    out.into_inner().map_err(|error| error.into_error())?.sync_all()?;
    Ok(bytes)
}
