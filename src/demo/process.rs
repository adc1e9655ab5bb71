//! Processes named so that a reused number is never taken for an old acquaintance.
//!
//! A process number alone is reused; together with its start time it is not, within one boot. Signals go only to a
//! process whose start time is still the recorded one.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

/// How often a process is looked at while its end is awaited.
const EXIT_POLL_MILLISECONDS: u64 = 5;

/// One run of one process on this boot of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessId {
    pid: i32,
    /// Clock ticks between the boot and the start of the process.
    started: u64,
}

impl ProcessId {
    /// The process that has this number now, if there is one that has not ended.
    pub fn of(pid: u32) -> Option<Self> {
        let pid = i32::try_from(pid).ok()?;
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name of the program stands in parentheses and may hold anything, parentheses too.
        let (_, rest) = stat.rsplit_once(')')?;
        let mut fields = rest.split_ascii_whitespace();
        // A zombie has ended; where nobody collects orphans it stays listed for ever.
        if matches!(fields.next()?, "Z" | "X") {
            return None;
        }
        // State is field 3 of the line, the start time field 22.
        let started = fields.nth(18)?.parse().ok()?;
        Some(Self { pid, started })
    }

    /// This process.
    pub fn current() -> Result<Self> {
        Self::of(std::process::id()).context("cannot read /proc/self/stat; is /proc mounted?")
    }

    /// The number alone.
    pub fn pid(self) -> i32 {
        self.pid
    }

    /// Whether this very process still runs.
    pub fn is_alive(self) -> bool {
        u32::try_from(self.pid).ok().and_then(Self::of) == Some(self)
    }

    /// Sends a signal; that the process has ended already is no error.
    pub fn signal(self, signal: Signal) -> Result<()> {
        if !self.is_alive() {
            return Ok(());
        }
        match kill(Pid::from_raw(self.pid), signal) {
            Ok(()) | Err(Errno::ESRCH) => Ok(()),
            Err(error) => Err(error).with_context(|| format!("cannot send {signal} to process {}", self.pid)),
        }
    }

    /// Waits until the process has ended.
    pub async fn wait_gone(self, limit: Duration) -> Result<()> {
        let deadline = tokio::time::Instant::now() + limit;
        while self.is_alive() {
            if tokio::time::Instant::now() >= deadline {
                bail!("process {} still runs after {limit:?}", self.pid);
            }
            tokio::time::sleep(Duration::from_millis(EXIT_POLL_MILLISECONDS)).await;
        }
        Ok(())
    }

    /// The same, for places that cannot await; tells whether the process has ended.
    pub fn wait_gone_blocking(self, limit: Duration) -> bool {
        let deadline = std::time::Instant::now() + limit;
        while self.is_alive() {
            if std::time::Instant::now() >= deadline {
                return false;
            }
            std::thread::sleep(Duration::from_millis(EXIT_POLL_MILLISECONDS));
        }
        true
    }
}

/// What tells one boot of this machine from another: start times are only comparable within one.
pub fn boot_id() -> Result<String> {
    let path = Path::new("/proc/sys/kernel/random/boot_id");
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_alive_and_an_older_one_of_its_number_is_not() {
        let me = ProcessId::current().unwrap();
        assert!(me.is_alive());
        assert!(!ProcessId { started: me.started - 1, ..me }.is_alive());
    }
}
