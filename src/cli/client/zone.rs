//! `headwater zone`: a domain as a zone file, piece by piece, whatever its size; and a zone file as a domain.

use std::io::{Read as _, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Subcommand;
use headwater_events::zonetext::TEXT_MAX_BYTES;

use super::Console;
use super::error::ClientError;
use super::http::{Call, JSON, Stream};
use super::mutate::{Change, Say, carry_out};
use super::output::{Progress, raw, talk};
use super::undo::Moment;

/// Octets after which it is told again how much was written.
const TOLD_EVERY_BYTES: usize = 16 * 1024 * 1024;

/// How long the API may take for a text of the largest size.
const IMPORT_LIMIT_SECONDS: u64 = 600;

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
    /// Takes a zone file in, whole or not at all
    #[command(after_help = "Examples:
  headwater zone import example.com example.com.zone --dry-run
  headwater zone import example.com example.com.zone --wait
  headwater zone import example.com - --mode merge < more.zone
  headwater zone import example.com small.zone --allow mass_delete --note 'tidied up'

BIND text with $ORIGIN, $TTL and $GENERATE; $INCLUDE is refused. With --mode replace the zone is what the file says;
with --mode merge each name and type of the file takes the place of what is there, and all else stays. Every faulty
line is told with its number, and then nothing is written. SOA, the NS records of the domain itself and lines marked
`; derived` are checked and not taken over; a higher serial is gone on from.")]
    Import {
        /// The domain
        domain: String,
        /// The file; - is stdin
        file: PathBuf,
        /// What becomes of records that the file does not name
        #[arg(long, value_enum, default_value = "replace")]
        mode: Mode,
        /// How it is changed.
        #[command(flatten)]
        change: Change,
    },
}

/// What becomes of records that a file does not name.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum Mode {
    /// They go
    Replace,
    /// They stay
    Merge,
}

/// Runs it.
pub async fn run(console: &Console, command: ZoneCommand) -> Result<()> {
    let (domain, output, moment) = match command {
        ZoneCommand::Export { domain, output, moment } => (domain, output, moment),
        ZoneCommand::Import { domain, file, mode, change } => {
            return import(console, &domain, &file, mode, &change).await;
        }
    };
    let accept = if console.json { JSON } else { "text/dns" };
    let call = moment.apply(Call::get(&["domains", &domain, "zone"])?).accept(accept);
    save(console.api.open(&call).await?, output.as_deref()).await
}

async fn import(console: &Console, domain: &str, file: &Path, mode: Mode, change: &Change) -> Result<()> {
    let text = read(file)?;
    let mut progress = Progress::new("sending");
    progress.say(&format!("{} KiB sent: the text is read and compared", text.len().div_ceil(1024)));
    let mode = match mode {
        Mode::Replace => "replace",
        Mode::Merge => "merge",
    };
    let call = Call::post(&["domains", domain, "zone"])?.query("mode", mode);
    let call = call.body("text/dns", text, IMPORT_LIMIT_SECONDS);
    let done = carry_out(console, call, change, Say::Outcome(domain)).await;
    drop(progress);
    done
}

fn read(file: &Path) -> Result<Vec<u8>> {
    let from: Box<dyn std::io::Read> = if file == Path::new("-") {
        Box::new(std::io::stdin().lock())
    } else {
        Box::new(std::fs::File::open(file).with_context(|| format!("cannot open {}", file.display()))?)
    };
    let mut text = Vec::new();
    let most = TEXT_MAX_BYTES as u64;
    std::io::Read::take(from, most + 1)
        .read_to_end(&mut text)
        .with_context(|| format!("cannot read {}", file.display()))?;
    if text.len() > TEXT_MAX_BYTES {
        return Err(ClientError::usage(format!("{} is longer than {TEXT_MAX_BYTES} bytes", file.display())));
    }
    Ok(text)
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
