//! A part with a way to tell that it is ready: started, awaited, stopped, killed and started again.
//!
//! Starting is patient: PowerDNS exits while its database is away, PostgreSQL refuses while backends of a killed
//! predecessor still hold the shared memory, a port may be held for a moment by something that is ending. A start
//! is repeated until its deadline; only then is it an error, with the end of the log in it. A process that lives but
//! does not serve yet gets more time.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use domain::base::Rtype;
use tokio::time::{Instant, sleep};

use super::part::{Part, PartSpec, log_tail};
use super::probe;
use super::process::ProcessId;

/// How long a start is repeated while the process ends again and again.
pub const START_DEADLINE_SECONDS: u64 = 30;
/// How long a process that lives may take until it serves: a database may have much to recover, and to kill it then
/// would only make it begin again.
pub const READY_DEADLINE_SECONDS: u64 = 300;
/// How long a part may take to stop before it is killed.
pub const STOP_GRACE_SECONDS: u64 = 20;
/// How long to wait before a start is repeated.
const RESTART_PAUSE_MILLISECONDS: u64 = 200;
/// How often a part is asked whether it is ready.
const PROBE_PAUSE_MILLISECONDS: u64 = 20;
/// How long one answer to that question may take.
const PROBE_LIMIT_SECONDS: u64 = 2;

/// How to tell that a part serves.
#[derive(Clone)]
pub enum Readiness {
    /// PostgreSQL says so in this file.
    Postmaster(PathBuf),
    /// A DNS server answers a UDP query, with whatever response code.
    Dns(SocketAddr),
    /// An HTTP GET of this path answers 200.
    Http(SocketAddr, &'static str),
    /// The agent of an edge says in this file that every cell serves.
    Agent(PathBuf),
}

impl Readiness {
    async fn ask(&self, id: ProcessId) -> Result<()> {
        let limit = Duration::from_secs(PROBE_LIMIT_SECONDS);
        match self {
            Self::Postmaster(file) => postmaster_is_ready(file, id),
            Self::Dns(server) => probe::dns(*server, probe::UNHOSTED_NAME, Rtype::A, limit).await.map(drop),
            Self::Http(server, path) => probe::http_ok(*server, path, limit).await,
            Self::Agent(file) => agent_is_ready(file, id),
        }
    }
}

/// Reads what PostgreSQL says about itself: its process in the first line, its state in the eighth.
fn postmaster_is_ready(file: &Path, id: ProcessId) -> Result<()> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let mut lines = text.lines().map(str::trim);
    if lines.next() != Some(&id.pid().to_string()) {
        bail!("{} is of another process", file.display());
    }
    match lines.nth(6) {
        Some("ready") => Ok(()),
        state => bail!("PostgreSQL is {}", state.unwrap_or("starting")),
    }
}

/// Reads what the agent of an edge says about itself and its cells.
fn agent_is_ready(file: &Path, id: ProcessId) -> Result<()> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let status: serde_json::Value = serde_json::from_str(&text).context("the status is no JSON")?;
    if status["pid"] != id.pid() {
        bail!("{} is of another process", file.display());
    }
    let is_ready = |cell: &serde_json::Value| {
        ["ready", "http_ready", "https_ready"].iter().all(|what| cell[what] == true)
    };
    match status["cells"].as_array() {
        Some(cells) if !cells.is_empty() && cells.iter().all(is_ready) => Ok(()),
        _ => bail!("not every cell serves: {}", status["cells"]),
    }
}

/// A part that can be started again and again.
pub struct Service {
    spec: PartSpec,
    readiness: Readiness,
    running: Option<Part>,
}

impl Service {
    /// A service that does not run yet.
    pub fn new(spec: PartSpec, readiness: Readiness) -> Self {
        Self { spec, readiness, running: None }
    }

    /// The name of the part.
    pub fn name(&self) -> &str {
        &self.spec.name
    }

    /// The process, if it was started and has not been stopped.
    pub fn id(&self) -> Option<ProcessId> {
        self.running.as_ref().map(Part::id)
    }

    /// Starts it and waits until it serves. A part that runs already is left alone.
    pub async fn start(&mut self) -> Result<()> {
        if self.running.as_ref().is_some_and(|part| part.exit_status().is_none()) {
            return Ok(());
        }
        let deadline = Instant::now() + Duration::from_secs(START_DEADLINE_SECONDS);
        loop {
            self.running = None;
            match self.attempt().await {
                Ok(()) => return Ok(()),
                Err(error) if Instant::now() >= deadline => {
                    self.running = None;
                    return Err(error);
                }
                Err(_) => sleep(Duration::from_millis(RESTART_PAUSE_MILLISECONDS)).await,
            }
        }
    }

    async fn attempt(&mut self) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(READY_DEADLINE_SECONDS);
        let part = self.running.insert(Part::spawn(self.spec.clone()).await?);
        loop {
            if let Some(status) = part.exit_status() {
                bail!("{} ended with {status}; {}", self.spec.name, log_tail(&self.spec.log));
            }
            let Err(error) = self.readiness.ask(part.id()).await else {
                return Ok(());
            };
            if Instant::now() >= deadline {
                bail!("{} is not ready: {error:#}; {}", self.spec.name, log_tail(&self.spec.log));
            }
            sleep(Duration::from_millis(PROBE_PAUSE_MILLISECONDS)).await;
        }
    }

    /// Waits until the process has ended; for ever if it does not run.
    pub async fn exited(&self) {
        match &self.running {
            Some(part) => part.exited().await,
            None => std::future::pending().await,
        }
    }

    /// Stops it in order.
    pub async fn stop(&mut self) -> Result<()> {
        match self.running.take() {
            Some(part) => part.stop(Duration::from_secs(STOP_GRACE_SECONDS)).await,
            None => Ok(()),
        }
    }

    /// Kills it (`kill -9`).
    pub async fn kill(&mut self) -> Result<()> {
        match self.running.take() {
            Some(part) => part.kill().await,
            None => Ok(()),
        }
    }
}
