//! One child process: started in its own process group, logging to a file, ended with its parent.
//!
//! What must hold: a part never outlives the process that started it, as far as the kernel lets us say so. The death
//! signal is set by `setpriv` after it has changed the user (a change of user clears it), and it is tied to the
//! *thread* that spawned the child; so each child has a thread of its own that spawns it and waits for its end.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;
use tokio::sync::{oneshot, watch};

use super::home::Account;
use super::process::ProcessId;

/// How long a dropped part may take to end after its death signal before it is killed.
const DROP_GRACE_MILLISECONDS: u64 = 3_000;
/// How much of a log's end goes into an error.
const LOG_TAIL_LINES: usize = 12;

/// What to run and how.
#[derive(Clone)]
pub struct PartSpec {
    /// The name in `demo.json` and in messages, such as `postgres-dns-1`.
    pub name: String,
    /// The program, with its full path: the environment of another user has a short search path.
    pub program: PathBuf,
    /// Its arguments; never a secret.
    pub args: Vec<OsString>,
    /// Its environment on top of ours (a part under another account starts with a clean one).
    pub env: Vec<(String, String)>,
    /// The user it runs as.
    pub account: Account,
    /// Its working directory; that user must be able to enter it.
    pub dir: PathBuf,
    /// Where its output goes, appended.
    pub log: PathBuf,
    /// The signal that asks it to end in order.
    pub stop_signal: Signal,
    /// The signal it gets when its parent dies.
    pub death_signal: Signal,
}

/// A child process that was started. Dropping it ends it.
pub struct Part {
    spec: PartSpec,
    id: ProcessId,
    exit: watch::Receiver<Option<ExitStatus>>,
}

impl Part {
    /// Starts the program. It may not be ready yet when this returns.
    pub async fn spawn(spec: PartSpec) -> Result<Self> {
        let (exit_sender, exit) = watch::channel(None);
        let (started_sender, started) = oneshot::channel();
        let mut command = command(&spec)?;
        std::thread::Builder::new()
            .name(format!("part {}", spec.name))
            .spawn(move || run(&mut command, started_sender, &exit_sender))
            .context("cannot start a thread")?;
        let pid = started
            .await
            .context("the thread of a part ended early")?
            .with_context(|| format!("cannot start {} ({})", spec.name, spec.program.display()))?;
        let Some(id) = ProcessId::of(pid) else {
            bail!("{} ended at once: {}", spec.name, log_tail(&spec.log));
        };
        Ok(Self { spec, id, exit })
    }

    /// The process.
    pub fn id(&self) -> ProcessId {
        self.id
    }

    /// Waits until the process has ended, for whatever reason.
    pub async fn exited(&self) {
        let mut exit = self.exit.clone();
        // An error means that the waiting thread is gone, which it only is after the child.
        let _ended = exit.wait_for(Option::is_some).await;
    }

    /// How it ended, if it has.
    pub fn exit_status(&self) -> Option<ExitStatus> {
        *self.exit.borrow()
    }

    /// Asks it to end and waits; kills it when it takes longer than `grace`.
    pub async fn stop(self, grace: Duration) -> Result<()> {
        self.id.signal(self.spec.stop_signal)?;
        if tokio::time::timeout(grace, self.exited()).await.is_err() {
            self.id.signal(Signal::SIGKILL)?;
            self.exited().await;
        }
        Ok(())
    }

    /// Kills it (`kill -9`) and waits for its end.
    pub async fn kill(self) -> Result<()> {
        self.id.signal(Signal::SIGKILL)?;
        self.exited().await;
        Ok(())
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if self.exit_status().is_some() {
            return;
        }
        // A drop cannot report: a signal that cannot be sent means a process that is not ours any more.
        let _sent = self.id.signal(self.spec.death_signal);
        if !self.id.wait_gone_blocking(Duration::from_millis(DROP_GRACE_MILLISECONDS)) {
            let _sent = self.id.signal(Signal::SIGKILL);
        }
    }
}

/// The last lines of a log file, for error messages.
pub fn log_tail(log: &Path) -> String {
    let bytes = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    let tail = &lines[lines.len().saturating_sub(LOG_TAIL_LINES)..];
    format!("the last lines of {} are:\n{}", log.display(), tail.join("\n"))
}

fn command(spec: &PartSpec) -> Result<Command> {
    let log = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&spec.log)
        .with_context(|| format!("cannot open the log {}", spec.log.display()))?;
    let mut command = spec.account.command(&spec.program, Some(spec.death_signal));
    command
        .args(&spec.args)
        .envs(spec.env.iter().map(|(key, value)| (key, value)))
        .current_dir(&spec.dir)
        .stdin(Stdio::null())
        .stdout(log.try_clone().context("cannot duplicate the handle of a log")?)
        .stderr(log)
        // An interrupt from the terminal is for the parent, which stops its parts in order.
        .process_group(0);
    Ok(command)
}

fn run(
    command: &mut Command,
    started: oneshot::Sender<std::io::Result<u32>>,
    exit: &watch::Sender<Option<ExitStatus>>,
) {
    match command.spawn() {
        Ok(mut child) => {
            // Nobody listens when the caller gave up; the child is then ended by its death signal.
            let _heard = started.send(Ok(child.id()));
            if let Ok(status) = child.wait() {
                exit.send_replace(Some(status));
            }
        }
        Err(error) => {
            let _heard = started.send(Err(error));
        }
    }
}
