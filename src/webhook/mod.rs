//! Webhooks: events that are sent to receivers, in the order of the log, at least once.
//!
//! One process at a time, by a lease, does it for all: `scan` reads the log once and marks the webhooks for which there is
//! something (`hooks` says which); each of those in turn (`turn`) reads its own part of the log by the indexes there are,
//! and sends it (`send`, signed by `sign`, past the `guard`) one event after the other. What becomes of an attempt is
//! recorded together with how far the webhook has got, while the lease is held; a process that dies in between sends the
//! event again, under the same `webhook-id`.
//!
//! What must hold: a webhook gets what its owner may read in the log, each event once it stands there, none before an
//! earlier one was dealt with; nobody waits for a slow receiver but its own webhook; memory is bounded by the turns at once.

pub mod guard;
mod hooks;
mod prune;
mod scan;
pub mod send;
pub mod sign;
pub mod sql;
mod turn;

use headwater_events::ids::{Position, TenantId, WebhookId};
use sqlx::Row;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::app::App;
use crate::deploy::{DeployError, Lease};
use crate::secret::Secret;
use guard::{Lookup, SystemLookup};
use scan::{Scan, ScanError};
use send::{Sender, SenderError};

/// The lease of the one that sends.
const LEASE_NAME: &str = "webhooks";
/// How often it is looked for work though nobody woke this process.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// How long nothing is tried after something broke.
const ERROR_PAUSE: Duration = Duration::from_secs(2);
/// How long the lease is believed after it was looked at: much less than is left of it then.
const BELIEVED: Duration = Duration::from_secs(5);
/// How long turns may take to end at a stop.
const STOP_MAX: Duration = Duration::from_secs(5);
/// Webhooks that have their turn at once, at most.
pub const TURNS_MAX_COUNT: usize = 64;
/// Of one owner, at most.
pub const OWNER_TURNS_MAX_COUNT: usize = 4;
/// How long an attempt may take.
pub const ATTEMPT_MAX: Duration = Duration::from_secs(15);
/// The pauses after failed attempts. After the attempt that follows the last one, about three days after the first, the
/// event is given up and the webhook goes on with the next.
pub const RETRY_SECONDS: [u64; 9] = [5, 300, 1_800, 7_200, 18_000, 36_000, 50_400, 72_000, 86_400];
/// Events in a row that may be given up; then the webhook is disabled.
pub const FAILED_IN_ROW_MAX: i32 = 3;
/// Days for which deliveries are kept.
pub const DELIVERIES_MAX_DAYS: i32 = 30;
/// Deliveries that are kept of one webhook.
pub const DELIVERIES_MAX_COUNT: i64 = 10_000;

/// How it is gone about; what tests need otherwise is here.
#[derive(Clone)]
pub struct Options {
    /// The pauses after failed attempts.
    pub retries: Vec<Duration>,
    /// How long an attempt may take.
    pub limit: Duration,
    /// What knows the addresses of names.
    pub lookup: Arc<dyn Lookup>,
}

impl Default for Options {
    fn default() -> Self {
        let retries = RETRY_SECONDS.iter().map(|seconds| Duration::from_secs(*seconds)).collect();
        Self { retries, limit: ATTEMPT_MAX, lookup: Arc::new(SystemLookup) }
    }
}

/// Why nothing is sent for now.
#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    /// The database does not answer.
    #[error("the control database did not answer: {0}")]
    Database(#[from] sqlx::Error),
    /// The lease cannot be had.
    #[error(transparent)]
    Lease(#[from] DeployError),
    /// The log cannot be read on.
    #[error(transparent)]
    Scan(#[from] ScanError),
    /// There is no client.
    #[error(transparent)]
    Sender(#[from] SenderError),
}

/// Under which name and owner what is written is written.
#[derive(Debug, Clone)]
struct Holder {
    name: String,
    owner: Uuid,
}

/// Until when the lease is believed to be held.
#[derive(Debug, Clone, Default)]
struct Believed(Arc<Mutex<Option<Instant>>>);

impl Believed {
    fn renew(&self, held: bool) {
        let until = held.then(|| Instant::now() + BELIEVED);
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = until;
    }

    fn holds(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_some_and(|until| Instant::now() < until)
    }
}

/// A new secret as it is shown, and sealed for the version that it will have.
///
/// # Errors
/// When there is no key to seal it with.
pub async fn draw(
    app: &App,
    owner: Option<TenantId>,
    webhook: WebhookId,
    version: u32,
) -> Result<(Secret, headwater_events::webhook::SealedWebhookSecret), crate::vault::VaultError> {
    sign::draw(&app.pool, &crate::vault::Vault::open(&app.config)?, owner, webhook, version).await
}

/// Runs until the process stops.
pub async fn run(app: App) {
    run_with(app, Options::default()).await;
}

/// The same otherwise.
pub async fn run_with(app: App, options: Options) {
    let mut lease = Lease::new(LEASE_NAME.to_owned());
    let mut leader: Option<Leader> = None;
    let mut head = app.commit.head().subscribe();
    while !app.stop.is_cancelled() {
        match step(&app, &options, &mut lease, &mut leader).await {
            Ok(true) => continue,
            Ok(false) => {}
            Err(error) => {
                tracing::warn!(%error, "webhooks wait");
                if let Some(leader) = &mut leader {
                    leader.scan = None;
                }
                tokio::select! {
                    () = app.stop.cancelled() => {}
                    () = tokio::time::sleep(ERROR_PAUSE) => {}
                }
                continue;
            }
        }
        wait(&app, leader.as_mut(), &mut head).await;
    }
    if let Some(leader) = leader {
        leader.end().await;
    }
    lease.end(&app.pool).await;
}

/// What the process that holds the lease has in hand.
struct Leader {
    holder: Holder,
    believed: Believed,
    sender: Arc<Sender>,
    retries: Arc<[Duration]>,
    /// None after an error: what is in memory may be ahead of what is written.
    scan: Option<Scan>,
    turns: JoinSet<WebhookId>,
    in_hand: HashMap<WebhookId, Uuid>,
    pruned: Option<Instant>,
}

/// One look; true when there is more to do at once.
async fn step(
    app: &App,
    options: &Options,
    lease: &mut Lease,
    leader: &mut Option<Leader>,
) -> Result<bool, WebhookError> {
    if !lease.keep(&app.pool).await? {
        // Turns that are under way record nothing any more.
        *leader = None;
        return Ok(false);
    }
    let leader = match leader {
        Some(leader) => leader,
        None => leader.insert(Leader::new(app, options, lease)?),
    };
    leader.believed.renew(true);
    leader.step(app).await
}

/// Until there may be something to do.
async fn wait(app: &App, leader: Option<&mut Leader>, head: &mut watch::Receiver<Position>) {
    let scan = leader.as_ref().and_then(|leader| leader.scan.as_ref());
    // Without a webhook every event would wake this in vain.
    let seen = scan.filter(|scan| !scan.is_idle()).map(Scan::position);
    let ended = async {
        match leader {
            Some(leader) if !leader.turns.is_empty() => leader.join().await,
            _ => std::future::pending().await,
        }
    };
    let moved = async {
        match seen {
            // The sender lives as long as the process.
            Some(seen) => drop(head.wait_for(|head| *head > seen).await),
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = app.stop.cancelled() => {}
        () = tokio::time::sleep(LOOK_INTERVAL) => {}
        () = ended => {}
        () = moved => {}
    }
}

impl Leader {
    fn new(app: &App, options: &Options, lease: &Lease) -> Result<Self, SenderError> {
        let (name, owner) = lease.holder();
        Ok(Self {
            holder: Holder { name: name.to_owned(), owner },
            believed: Believed::default(),
            sender: Arc::new(Sender::new(&app.config, options.lookup.clone(), options.limit)?),
            retries: options.retries.clone().into(),
            scan: None,
            turns: JoinSet::new(),
            in_hand: HashMap::new(),
            pruned: None,
        })
    }

    async fn step(&mut self, app: &App) -> Result<bool, WebhookError> {
        while let Some(ended) = self.turns.try_join_next() {
            self.ended(ended);
        }
        let scan = match &mut self.scan {
            Some(scan) => scan,
            None => self.scan.insert(Scan::load(&app.pool).await?),
        };
        let more = app.commit.head().get() > scan.position() && scan.follow(&app.pool, &self.holder).await?;
        if !scan.is_idle() {
            self.begin_turns(app).await?;
        }
        if self.pruned.is_none_or(|at| at.elapsed() >= prune::INTERVAL) {
            prune::run(app).await?;
            self.pruned = Some(Instant::now());
        }
        Ok(more)
    }

    /// Gives a turn to those that are due, the longest without one first, but to no more of one owner than it may have.
    async fn begin_turns(&mut self, app: &App) -> Result<(), sqlx::Error> {
        let room = TURNS_MAX_COUNT.saturating_sub(self.turns.len());
        if room == 0 {
            return Ok(());
        }
        let mut of_owner: HashMap<Uuid, usize> = HashMap::new();
        for owner in self.in_hand.values() {
            *of_owner.entry(*owner).or_default() += 1;
        }
        let full = of_owner.iter().filter(|(_, count)| **count >= OWNER_TURNS_MAX_COUNT);
        let full: Vec<Uuid> = full.map(|(owner, _)| *owner).collect();
        let in_hand: Vec<Uuid> = self.in_hand.keys().map(|id| id.as_uuid()).collect();
        let rows = sqlx::query(sql::DUE)
            .bind(in_hand)
            .bind(full)
            .bind(i64::try_from(OWNER_TURNS_MAX_COUNT).unwrap_or(1))
            .bind(i64::try_from(room).unwrap_or(1))
            .fetch_all(&app.pool)
            .await?;
        for row in rows {
            let id = WebhookId::from_uuid(row.try_get(0)?);
            let owner = row.try_get::<Option<Uuid>, _>(1)?.map(TenantId::from_uuid);
            let key = owner.map_or(Uuid::nil(), TenantId::as_uuid);
            let count = of_owner.entry(key).or_default();
            if *count >= OWNER_TURNS_MAX_COUNT {
                continue;
            }
            *count += 1;
            self.in_hand.insert(id, key);
            let turn = turn::Turn {
                app: app.clone(),
                webhook: id,
                holder: self.holder.clone(),
                believed: self.believed.clone(),
                sender: self.sender.clone(),
                retries: self.retries.clone(),
            };
            self.turns.spawn(async move {
                if let Err(error) = turn.run().await {
                    tracing::warn!(webhook = %id, %error, "a turn of a webhook broke off");
                }
                id
            });
        }
        Ok(())
    }

    async fn join(&mut self) {
        if let Some(ended) = self.turns.join_next().await {
            self.ended(ended);
        }
    }

    fn ended(&mut self, ended: Result<WebhookId, tokio::task::JoinError>) {
        match ended {
            Ok(id) => drop(self.in_hand.remove(&id)),
            Err(error) => {
                // Whose it was is not known any more: all are let go, and what is recorded twice is refused.
                tracing::error!(%error, "a turn of a webhook was cut off");
                self.turns.abort_all();
                self.in_hand.clear();
            }
        }
    }

    /// Lets turns end that are under way, for a while.
    async fn end(mut self) {
        self.believed.renew(true);
        let all = async { while self.turns.join_next().await.is_some() {} };
        if tokio::time::timeout(STOP_MAX, all).await.is_err() {
            tracing::info!("webhooks are left in the middle: what was not recorded is sent again");
        }
    }
}
