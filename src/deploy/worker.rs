//! The reconciler of one cluster: woken by the head of the log or by its poll, it claims what is due while it holds
//! the cluster's lease. A few batches are on their way at once, so that one slow read-back does not hold up the next
//! claims; a domain is in hand of at most one of them. Every wake-up may be lost: the poll finds the same work.

use super::batch::{self, Context, Left, Manner, Reach};
use super::claim::{self, Due};
use super::cluster::{ClusterRow, Target};
use super::drift;
use super::fault::DeployError;
use super::hold::{Hold, Holds};
use super::lease::Lease;
use super::load::WHOLE_MAX_RECORDS;
use super::permit::Order;
use super::spacing::Spacing;
use super::{probe, sql};
use crate::app::App;
use headwater_events::ids::{DomainId, TenantId};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::{Id, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Batches of many domains that are being written at once.
const WRITING_MAX_BATCHES: usize = 2;
/// Batches of many domains on their way at once, those that are only read back among them: as many as bound the memory,
/// since a name server that is slow to answer holds up nothing but what is read back from it.
const BATCHES_MAX_COUNT: usize = 64;
/// Very large zones on their way at once.
const LARGE_MAX_COUNT: usize = 1;
/// Events or records of one batch, about.
const BATCH_MAX_WEIGHT: i64 = 30_000;
/// How often contact is noted in the database.
const NOTE_INTERVAL: Duration = Duration::from_secs(3);
/// How long a cluster may go without contact before it is probed.
const IDLE_PROBE_INTERVAL: Duration = Duration::from_secs(5);
/// How long a cluster that cannot be reached is left alone, at first.
const DOWN_PAUSE_MIN: Duration = Duration::from_millis(500);
/// And at most.
const DOWN_PAUSE_MAX: Duration = Duration::from_secs(5);

/// How long batches may go on after a stop.
const STOP_GRACE: Duration = Duration::from_secs(5);

/// What a task was.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Job {
    Batch(Vec<DomainId>),
    Large(DomainId),
    Drift,
    Probe,
}

/// What a task left behind.
type Done = Result<Left, DeployError>;

/// Runs until stopped.
pub(super) async fn run(app: App, cluster: ClusterRow, stop: CancellationToken) {
    let lease = Lease::new(format!("deploy:{}", cluster.id));
    let now = Instant::now();
    let worker = Worker {
        app,
        cluster,
        target: None,
        lease,
        jobs: JoinSet::new(),
        running: HashMap::new(),
        holds: Arc::default(),
        whole: BTreeSet::new(),
        turn: None,
        down: None,
        unseen: false,
        spacing: Spacing::default(),
        contact: None,
        noted: None,
        probed: None,
        drifted: now,
    };
    worker.work(stop).await;
}

struct Worker {
    app: App,
    cluster: ClusterRow,
    target: Option<Target>,
    lease: Lease,
    jobs: JoinSet<Done>,
    running: HashMap<Id, Job>,
    holds: Arc<Holds>,
    /// What has to be claimed whole.
    whole: BTreeSet<DomainId>,
    /// The tenant after which the next look for what is due begins.
    turn: Option<TenantId>,
    /// Until when the cluster is left alone, and for how long the next time.
    down: Option<(Instant, Duration)>,
    /// Whether its listeners did not answer when they were asked last.
    unseen: bool,
    spacing: Spacing,
    contact: Option<Instant>,
    noted: Option<Instant>,
    probed: Option<Instant>,
    drifted: Instant,
}

impl Worker {
    async fn work(mut self, stop: CancellationToken) {
        let mut head = self.app.commit.head().subscribe();
        let mut acked = self.app.acked.subscribe();
        let mut wake = true;
        loop {
            if !wake {
                let poll = Instant::now() + self.app.config.deploy.poll;
                let next_look = self.spacing.next_look(poll);
                tokio::select! {
                    () = stop.cancelled() => break,
                    moved = head.changed() => if moved.is_err() { break },
                    moved = acked.changed() => if moved.is_err() { break },
                    () = self.holds.freed.notified() => {}
                    done = self.jobs.join_next_with_id(), if !self.jobs.is_empty() => {
                        if let Some(done) = done { self.done(done).await; }
                    }
                    () = tokio::time::sleep_until(next_look) => {}
                }
            }
            if stop.is_cancelled() {
                break;
            }
            wake = match self.tick().await {
                Ok(more) => more,
                Err(error) => {
                    tracing::warn!(cluster = self.cluster.name, %error, "deployment waits");
                    pause(&stop, self.app.config.deploy.poll).await;
                    false
                }
            };
        }
        // What is under way may end; what is broken off is found again by the next owner, like after a crash.
        let ended = async {
            while let Some(done) = self.jobs.join_next_with_id().await {
                self.done(done).await;
            }
        };
        if tokio::time::timeout(STOP_GRACE, ended).await.is_err() {
            self.jobs.shutdown().await;
        }
        self.lease.end(&self.app.pool).await;
    }

    /// Starts what can be started; says whether to look again at once.
    async fn tick(&mut self) -> Result<bool, DeployError> {
        self.spacing.look();
        if !self.lease.keep(&self.app.pool).await?
            || self.down.is_some_and(|(until, _)| Instant::now() < until)
        {
            return Ok(false);
        }
        let Some(target) = self.open().await else { return Ok(false) };
        let context = Context { app: self.app.clone(), target, order: Order::Standing };
        if self.down.is_some() {
            // Nothing is claimed, only to fail, before the cluster is known to be back.
            self.probe(&context, Duration::ZERO);
            return Ok(false);
        }
        self.start_rounds(&context);
        if self.holds.writing() >= WRITING_MAX_BATCHES
            || self.count(|job| matches!(job, Job::Batch(_))) >= BATCHES_MAX_COUNT
        {
            return Ok(false);
        }
        if !self.spacing.claims(Instant::now()) {
            return Ok(false);
        }
        let in_hand = self.holds.in_hand();
        let most = self.app.config.deploy.batch_domains;
        let began = self.turn;
        let found = claim::due(&self.app.pool, self.cluster.id, &in_hand, most, began).await?;
        // What is due of tenants beyond this look, or before where it began, is for the next one.
        self.turn = found.next;
        let others = began.is_some() || found.next.is_some();
        let more = !found.due.is_empty() && self.start(&context, found.due);
        if more {
            self.spacing.full();
        }
        Ok(more || others)
    }

    /// Sorts what is due into a batch and, if there is room, one large zone.
    fn start(&mut self, context: &Context, due: Vec<Due>) -> bool {
        // A full claim left more behind.
        let mut left = due.len() >= self.app.config.deploy.batch_domains as usize;
        let (mut together, mut weight) = (Vec::new(), 0);
        for due in due {
            let whole = due.whole || self.whole.contains(&due.domain);
            if whole && due.records > WHOLE_MAX_RECORDS {
                if self.count(|job| matches!(job, Job::Large(_))) < LARGE_MAX_COUNT {
                    self.spawn(context, Job::Large(due.domain));
                }
                continue;
            }
            if weight > BATCH_MAX_WEIGHT {
                left = true;
                break;
            }
            weight += if whole { due.records } else { due.events }.max(1);
            together.push(due.domain);
        }
        let started = !together.is_empty();
        if started {
            self.spawn(context, Job::Batch(together));
        }
        started && left
    }

    /// The checks that go on beside deployment.
    fn start_rounds(&mut self, context: &Context) {
        if self.drifted.elapsed() >= drift::interval(&self.app.config.deploy)
            && self.count(|job| *job == Job::Drift) == 0
        {
            self.drifted = Instant::now();
            self.spawn(context, Job::Drift);
        }
        if self.contact.is_none_or(|at| at.elapsed() > IDLE_PROBE_INTERVAL) {
            let pause = if self.unseen { DOWN_PAUSE_MIN } else { IDLE_PROBE_INTERVAL };
            self.probe(context, pause);
        }
    }

    /// Probes the cluster, unless that was done less than a pause ago.
    fn probe(&mut self, context: &Context, pause: Duration) {
        if self.probed.is_none_or(|at| at.elapsed() >= pause) && self.count(|job| *job == Job::Probe) == 0 {
            self.probed = Some(Instant::now());
            self.spawn(context, Job::Probe);
        }
    }

    fn count(&self, which: impl Fn(&Job) -> bool) -> usize {
        self.running.values().filter(|job| which(job)).count()
    }

    fn spawn(&mut self, context: &Context, job: Job) {
        let domains: Vec<DomainId> = job.domains().collect();
        let whole = domains.iter().filter(|id| self.whole.contains(id)).copied().collect();
        let (context, running) = (context.clone(), job.clone());
        let hold = match job {
            Job::Batch(_) | Job::Large(_) => self.holds.take(&domains),
            Job::Drift | Job::Probe => Hold::none(),
        };
        if matches!(job, Job::Large(_)) {
            // It has a place of its own.
            hold.written();
        }
        let handle = self.jobs.spawn(async move {
            match running {
                Job::Batch(_) | Job::Large(_) => {
                    batch::deploy(&context, &domains, &Manner { whole, rebuild: false }, &hold).await
                }
                Job::Drift => drift::round(&context).await.map(|()| Left::default()),
                Job::Probe => {
                    let reached = probe::reach(&context.target).await;
                    Ok(Left { reached: Some(reached), ..Left::default() })
                }
            }
        });
        self.running.insert(handle.id(), job);
    }

    /// Connections to the target, its schema current.
    async fn open(&mut self) -> Option<Target> {
        if let Some(target) = &self.target {
            return Some(target.clone());
        }
        let opened = async {
            let target = Target::open(self.cluster.clone())?;
            target.ensure_schema().await?;
            Ok::<_, DeployError>(target)
        };
        match opened.await {
            Ok(target) => {
                self.target = Some(target.clone());
                Some(target)
            }
            Err(error) => {
                self.unreached(&error.to_string()).await;
                None
            }
        }
    }

    async fn done(&mut self, done: Result<(Id, Done), tokio::task::JoinError>) {
        let (id, result) = match done {
            Ok((id, result)) => (id, result),
            Err(error) => {
                tracing::error!(cluster = self.cluster.name, %error, "a deployment broke off; it is tried again");
                (error.id(), Ok(Left::default()))
            }
        };
        let job = self.running.remove(&id);
        match result {
            Ok(left) => {
                for domain in job.iter().flat_map(Job::domains) {
                    self.whole.remove(&domain);
                }
                self.whole.extend(left.whole);
                match left.reached {
                    Some(Reach::All) => self.reached().await,
                    Some(Reach::Database(why)) => self.unseen(&why).await,
                    Some(Reach::Nothing(why)) => self.unreached(&why).await,
                    None => {}
                }
            }
            Err(error @ DeployError::Unreachable(_)) => self.unreached(&error.to_string()).await,
            Err(DeployError::Disabled) => {
                tracing::info!(cluster = self.cluster.name, "nothing is written any more")
            }
            Err(error) => tracing::warn!(cluster = self.cluster.name, %error, "a deployment is tried again"),
        }
    }

    async fn reached(&mut self) {
        let again = self.down.take().is_some() || std::mem::take(&mut self.unseen);
        self.contact = Some(Instant::now());
        if again {
            tracing::info!(cluster = self.cluster.name, "the DNS cluster is reached again");
            self.execute(sql::RETRY_NOW).await;
        }
        if again || self.noted.is_none_or(|at| at.elapsed() > NOTE_INTERVAL) {
            self.noted = Some(Instant::now());
            self.execute(sql::REACHED).await;
        }
    }

    async fn execute(&self, text: &'static str) {
        let done = sqlx::query(text).bind(self.cluster.id.as_uuid()).execute(&self.app.pool).await;
        if let Err(error) = done {
            tracing::warn!(cluster = self.cluster.name, %error, "the state of a cluster cannot be noted");
        }
    }

    /// It is written, but its listeners do not answer: what was activated waits to be verified.
    async fn unseen(&mut self, why: &str) {
        self.down = None;
        self.unseen = true;
        self.contact = None;
        self.note_failure(why).await;
    }

    async fn unreached(&mut self, why: &str) {
        let pause = self.down.map_or(DOWN_PAUSE_MIN, |(_, pause)| (pause * 2).min(DOWN_PAUSE_MAX));
        if self.down.is_none() {
            tracing::warn!(cluster = self.cluster.name, why, "the DNS cluster cannot be reached");
        }
        self.down = Some((Instant::now() + pause, pause));
        self.contact = None;
        // The URL may have been changed: it is read again.
        self.target = None;
        self.note_failure(why).await;
    }

    async fn note_failure(&self, why: &str) {
        let note = sqlx::query(sql::UNREACHED).bind(self.cluster.id.as_uuid()).bind(why);
        if let Err(error) = note.execute(&self.app.pool).await {
            tracing::warn!(cluster = self.cluster.name, %error, "the state of a cluster cannot be noted");
        }
    }
}

impl Job {
    fn domains(&self) -> impl Iterator<Item = DomainId> + use<> {
        match self {
            Self::Batch(domains) => domains.clone(),
            Self::Large(domain) => vec![*domain],
            Self::Drift | Self::Probe => Vec::new(),
        }
        .into_iter()
    }
}

async fn pause(stop: &CancellationToken, pause: Duration) {
    tokio::select! {
        () = stop.cancelled() => {}
        () = tokio::time::sleep(pause) => {}
    }
}
