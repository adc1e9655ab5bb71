//! What a demo remembers in its directory from one run to the next: its ports, and the processes it started.
//!
//! Ports stay the same as long as nobody else has taken them, so that what was registered stays reachable. Processes
//! are recorded with boot and start time; the next run ends those that are left, and nothing else.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::signal::Signal;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::home::{Account, Home};
use super::ports::{Port, PortLease};
use super::process::{ProcessId, boot_id};

/// How long a leftover may take to end in order, and then to die.
const LEFTOVER_GRACE_SECONDS: u64 = 15;

/// The ports by the names of their users.
pub struct PortBook {
    file: PathBuf,
    ports: BTreeMap<String, Port>,
}

impl PortBook {
    /// Opens the book of a directory.
    pub fn open(home: &Home) -> Result<Self> {
        let file = home.dir().join("ports.json");
        Ok(Self { ports: read(&file)?.unwrap_or_default(), file })
    }

    /// Leases the port this user had before, or another if that one is taken, and remembers it.
    pub fn lease(&mut self, user: &str) -> Result<PortLease> {
        let before = match self.ports.get(user) {
            Some(port) => PortLease::try_take(*port)?,
            None => None,
        };
        let lease = match before {
            Some(lease) => lease,
            None => PortLease::take()?,
        };
        if self.ports.insert(user.to_owned(), lease.port()) != Some(lease.port()) {
            write(&self.file, &self.ports)?;
        }
        Ok(lease)
    }
}

/// The processes of a run.
#[derive(Serialize, Deserialize)]
struct Processes {
    boot: String,
    /// In the order in which they are to be stopped.
    processes: Vec<(String, ProcessId)>,
}

fn processes_file(home: &Home) -> PathBuf {
    home.dir().join("processes.json")
}

/// Records the processes that run now, in the order in which they are to be stopped.
pub fn record_processes(home: &Home, processes: Vec<(String, ProcessId)>) -> Result<()> {
    write(&processes_file(home), &Processes { boot: boot_id()?, processes })
}

/// Forgets the processes: all of them have ended.
pub fn forget_processes(home: &Home) -> Result<()> {
    remove_if_there(&processes_file(home))
}

/// Ends what an earlier run left behind; tells the names of what it had to end.
pub async fn end_leftovers(home: &Home) -> Result<Vec<String>> {
    let Some(left) = read::<Processes>(&processes_file(home))? else { return Ok(Vec::new()) };
    let mut ended = Vec::new();
    if left.boot == boot_id()? {
        for (name, id) in left.processes {
            if !id.is_alive() {
                continue;
            }
            // PostgreSQL takes SIGTERM as "once all clients have left".
            let is_postgres = name.starts_with("postgres");
            id.signal(if is_postgres { Signal::SIGINT } else { Signal::SIGTERM })?;
            let grace = Duration::from_secs(LEFTOVER_GRACE_SECONDS);
            if id.wait_gone(grace).await.is_err() {
                id.signal(Signal::SIGKILL)?;
                id.wait_gone(grace).await.with_context(|| format!("cannot end the old {name}"))?;
            }
            ended.push(name);
        }
    }
    forget_processes(home)?;
    Ok(ended)
}

/// Removes a file; that it is not there is no error.
pub(super) fn remove_if_there(file: &Path) -> Result<()> {
    match std::fs::remove_file(file) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", file.display()))
        }
        _ => Ok(()),
    }
}

fn read<T: DeserializeOwned>(file: &Path) -> Result<Option<T>> {
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", file.display())),
    };
    let value = serde_json::from_str(&text)
        .with_context(|| format!("{} is damaged: remove it and start again", file.display()))?;
    Ok(Some(value))
}

fn write<T: Serialize>(file: &Path, value: &T) -> Result<()> {
    let text = serde_json::to_string_pretty(value).context("cannot write JSON")?;
    Account::Own.write_file(file, &text)
}
