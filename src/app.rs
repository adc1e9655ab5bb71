//! What every part of a running `headwater serve` shares.

use crate::clock::Clock;
use crate::config::Config;
use crate::edge::signing::PlatformSigner;
use crate::history::hub::Hub;
use crate::operation::Progress;
use crate::people::digest::DigestKeys;
use crate::people::password::Passwords;
use crate::replicas::Replicas;
use crate::store::CommitterHandle;
use crate::store::read::LogReader;
use sqlx::postgres::PgPool;
use std::sync::Arc;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Shared state; cheap to clone.
#[derive(Clone)]
pub struct App(Arc<Parts>);

/// The parts of [`App`].
pub struct Parts {
    /// The configuration in force.
    pub config: Config,
    /// Connections to the control database.
    pub pool: PgPool,
    /// Reads the log.
    pub log: LogReader,
    /// Writes the log; also tells its head.
    pub commit: CommitterHandle,
    /// The newest events, encoded, for every stream of this process.
    pub hub: Hub,
    /// Wakes whoever waits for the end of an operation.
    pub progress: Progress,
    /// Wakes deployments that wait for cells: one has come further.
    pub acked: Wake,
    /// How far `edge` has come in this process; wakes the long polls of edges.
    pub published: Progress,
    /// How many processes answer requests.
    pub replicas: Replicas,
    /// Checks passwords, a few at a time.
    pub passwords: Passwords,
    /// What tokens and sessions are looked up under.
    pub digests: DigestKeys,
    /// Signs what edges are told, once its key is open.
    pub signer: PlatformSigner,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Cancelled when the process stops: long answers end, loops return.
    pub stop: CancellationToken,
}

impl App {
    /// Shares the parts.
    pub fn new(parts: Parts) -> Self {
        Self(Arc::new(parts))
    }
}

/// Wakes whoever waits for something; a wake-up that is lost costs a poll.
#[derive(Debug)]
pub struct Wake(watch::Sender<u64>);

impl Default for Wake {
    fn default() -> Self {
        Self(watch::channel(0).0)
    }
}

impl Wake {
    /// Wakes all that wait.
    pub fn wake(&self) {
        self.0.send_modify(|times| *times = times.wrapping_add(1));
    }

    /// What changes with each wake-up from now on.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.0.subscribe()
    }
}

impl std::fmt::Debug for App {
    // Nothing of it belongs in a log line: the configuration may hold secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("App")
    }
}

impl std::ops::Deref for App {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.0
    }
}
