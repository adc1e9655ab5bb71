//! Keeps the parts alive: whichever dies is started again, and its new process is published.
//!
//! What must hold: a part is watched by one task alone; a part that cannot be started is tried again for ever with a
//! bounded pause and never takes the others with it; a stop ends the watching first, so that nothing is restarted
//! while everything is being stopped. Who wants to see the system without a part holds it back for a while.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::dnsdist::Dnsdist;
use super::manifest::Manifest;
use super::pdns::Pdns;
use super::postgres::Postgres;
use super::service::Service;

/// The first pause before a part that died young is started again.
const PAUSE_MIN_MILLISECONDS: u64 = 100;
/// The longest pause.
const PAUSE_MAX_MILLISECONDS: u64 = 5_000;
/// A part that lived this long did not die young.
const GROWN_UP_SECONDS: u64 = 10;

/// Something that is, or holds, one process.
pub trait Supervised: Send + 'static {
    /// The part.
    fn service(&mut self) -> &mut Service;
}

impl Supervised for Postgres {
    fn service(&mut self) -> &mut Service {
        Postgres::service(self)
    }
}

impl Supervised for Pdns {
    fn service(&mut self) -> &mut Service {
        Pdns::service(self)
    }
}

impl Supervised for Dnsdist {
    fn service(&mut self) -> &mut Service {
        Dnsdist::service(self)
    }
}

/// Which part is not to be started again for now.
#[derive(Clone)]
pub struct Holds {
    held: watch::Sender<Option<&'static str>>,
}

/// As long as it lives, a part that ended stays away.
pub struct Hold {
    held: watch::Sender<Option<&'static str>>,
}

impl Holds {
    /// Holds a part back until the answer is dropped. One at a time: a second one takes the place of the first.
    #[must_use]
    pub fn hold(&self, part: &'static str) -> Hold {
        self.held.send_replace(Some(part));
        Hold { held: self.held.clone() }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.held.send_replace(None);
    }
}

/// All parts under watch, in the order in which they are to be stopped.
pub struct Supervisor {
    manifest: Arc<Manifest>,
    stopping: CancellationToken,
    holds: Holds,
    keepers: Vec<JoinHandle<Box<dyn Supervised>>>,
}

impl Supervisor {
    /// Watches nothing yet.
    pub fn new(manifest: Arc<Manifest>) -> Self {
        let holds = Holds { held: watch::Sender::new(None) };
        Self { manifest, stopping: CancellationToken::new(), holds, keepers: Vec::new() }
    }

    /// What holds parts back.
    pub fn holds(&self) -> Holds {
        self.holds.clone()
    }

    /// Watches a part that runs. Parts are stopped in the order in which they were given.
    pub fn watch(&mut self, mut part: impl Supervised) -> Result<()> {
        publish(&self.manifest, part.service())?;
        let held = self.holds.held.subscribe();
        let keeper = keep(Box::new(part), Arc::clone(&self.manifest), held, self.stopping.clone());
        self.keepers.push(tokio::spawn(keeper));
        Ok(())
    }

    /// Stops all parts in order. The first fault is told after everything was tried.
    pub async fn stop(self) -> Result<()> {
        self.stopping.cancel();
        let mut outcome = Ok(());
        for keeper in self.keepers {
            let stopped = match keeper.await {
                Ok(mut part) => part.service().stop().await,
                Err(error) => Err(error).context("a keeper of a part failed"),
            };
            outcome = outcome.and(stopped);
        }
        outcome
    }
}

fn publish(manifest: &Manifest, service: &Service) -> Result<()> {
    match service.id() {
        Some(id) => manifest.started(service.name(), id),
        None => Ok(()),
    }
}

async fn keep(
    mut part: Box<dyn Supervised>,
    manifest: Arc<Manifest>,
    mut held: watch::Receiver<Option<&'static str>>,
    stopping: CancellationToken,
) -> Box<dyn Supervised> {
    let mut pause = Duration::from_millis(PAUSE_MIN_MILLISECONDS);
    let mut started = Instant::now();
    loop {
        tokio::select! {
            () = part.service().exited() => {}
            () = stopping.cancelled() => return part,
        }
        if started.elapsed() >= Duration::from_secs(GROWN_UP_SECONDS) {
            pause = Duration::from_millis(PAUSE_MIN_MILLISECONDS);
        }
        eprintln!("demo: {} ended; starting it again", part.service().name());
        loop {
            let restart = async {
                sleep(pause).await;
                let name = part.service().name();
                // An error means that nobody holds anything any more.
                let _is_free = held.wait_for(|held| *held != Some(name)).await.is_ok();
                part.service().start().await?;
                publish(&manifest, part.service())
            };
            let outcome = tokio::select! {
                outcome = restart => outcome,
                () = stopping.cancelled() => return part,
            };
            pause = (pause * 2).min(Duration::from_millis(PAUSE_MAX_MILLISECONDS));
            match outcome {
                Ok(()) => break,
                Err(error) => eprintln!("demo: {}: {error:#}; trying again", part.service().name()),
            }
        }
        started = Instant::now();
        eprintln!("demo: {} is back", part.service().name());
    }
}
