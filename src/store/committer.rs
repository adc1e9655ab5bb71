//! Group commit: one task, one connection, exactly one batch in flight and no
//! timer. What queued up while the last batch was written is the next batch, so
//! that one caller waits for one flush and many share one.

use super::append::{self, AppendError, Appended};
use super::batch::Batch;
use super::decide::{BATCH_MAX_EVENTS, Decider, Verdict};
use super::failure::{Failure, failure, is_lock_timeout};
use super::head::Head;
use super::turn::{BATCH_MAX_COMMANDS, Size, Turns};
use super::{load, lock, pool, rights, watchdog};
use crate::clock::Clock;
use crate::command::{Command, Idempotency, Meta, Outcome, Plan, Request, SubmitError};
use crate::secret::Secret;
use headwater_events::actor::Caller;
use headwater_events::domain::{Decided, DomainCommand, Limits, diff, entity_tag, not_restored};
use headwater_events::ids::{BatchId, OperationId, Position};
use headwater_events::reject::Reject;
use sqlx::postgres::{PgConnectOptions, PgPool};
use sqlx::{ConnectOptions, PgConnection};
use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// Commands that may wait for the committer; the next is told to come again.
pub const QUEUE_MAX_COMMANDS: usize = 2_048;
/// Long commands that may wait: each holds a zone text.
const LONG_MAX_COMMANDS: usize = 16;
/// How often a batch is read and decided anew because something moved.
const AGAIN_MAX_TIMES: u32 = 20;
/// How long a batch is tried while the database does not answer.
const UNAVAILABLE_AFTER: Duration = Duration::from_secs(20);
/// How long a command waits for a stream that another process holds: longer than
/// the watchdog takes to free it.
const MISSED_AFTER: Duration = watchdog::STREAMS_HELD_MAX.saturating_add(Duration::from_secs(10));
/// Pause between two tries to connect.
const RECONNECT_PAUSE: Duration = Duration::from_millis(200);

/// One request with the place where its answer is awaited.
#[derive(Debug)]
struct Waiting {
    request: Request,
    reply: oneshot::Sender<Result<Outcome, SubmitError>>,
    since: tokio::time::Instant,
    misses: u32,
    alone: bool,
    /// Given when the committer takes it from the queue.
    turn: u64,
}

impl Waiting {
    /// Whether it is a zone text with more changes than a batch has.
    fn is_long(&self) -> bool {
        match &self.request.command {
            Command::Domain { command: DomainCommand::ImportZone(import), .. } => {
                import.changes.len() > BATCH_MAX_EVENTS
            }
            Command::CreateDomain(create) => create.rrsets.len() > BATCH_MAX_EVENTS,
            _ => false,
        }
    }

    fn size(&self) -> Size {
        match &self.request.command {
            command if self.alone || stands_alone(command) => Size::Alone,
            _ if rights::deletion(&self.request).is_some() => Size::Alone,
            Command::Domain { command: DomainCommand::ChangeRrsets(changes), .. }
                if changes.len() > BATCH_MAX_EVENTS =>
            {
                Size::Big
            }
            _ if self.is_long() => Size::Big,
            _ => Size::Small,
        }
    }
}

/// Hands requests to the committer.
#[derive(Debug, Clone)]
pub struct CommitterHandle {
    queue: mpsc::Sender<Waiting>,
    /// Of another committer beside it, as in another process: what is long to read and to decide delays nobody.
    long: mpsc::Sender<Waiting>,
    in_flight: Arc<Mutex<HashSet<(Uuid, Uuid)>>>,
    head: Head,
    pool: PgPool,
    limits: Limits,
    clock: Arc<dyn Clock>,
}

/// A key that is being worked on, until this is dropped.
struct InFlight<'a>(&'a Mutex<HashSet<(Uuid, Uuid)>>, (Uuid, Uuid));

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.1);
    }
}

impl CommitterHandle {
    /// Submits a command and waits until it is durable or refused.
    ///
    /// # Errors
    /// Why there is no outcome; `Unavailable` may leave it unknown whether it took effect.
    pub async fn submit(&self, caller: Caller, command: Command, meta: Meta) -> Result<Outcome, SubmitError> {
        let _held = self.hold(&caller, meta.idempotency)?;
        let (reply, answer) = oneshot::channel();
        let operation = OperationId::from_uuid(Uuid::now_v7());
        let request = Request { caller, command, meta, operation };
        let since = tokio::time::Instant::now();
        let waiting = Waiting { request, reply, since, misses: 0, alone: false, turn: 0 };
        let queue = if waiting.is_long() { &self.long } else { &self.queue };
        match queue.try_send(waiting) {
            Ok(()) => {}
            Err(mpsc::error::TrySendError::Full(_)) => return Err(SubmitError::Busy),
            Err(mpsc::error::TrySendError::Closed(_)) => return Err(stopping()),
        }
        answer.await.unwrap_or_else(|_| Err(stopping()))
    }

    fn hold(&self, caller: &Caller, key: Option<Idempotency>) -> Result<Option<InFlight<'_>>, SubmitError> {
        let Some(key) = key else { return Ok(None) };
        let entry = (caller.actor.id, key.key);
        if !self.in_flight.lock().unwrap_or_else(PoisonError::into_inner).insert(entry) {
            return Err(SubmitError::IdempotencyInProgress);
        }
        Ok(Some(InFlight(&self.in_flight, entry)))
    }

    /// Decides a command without appending anything.
    ///
    /// # Errors
    /// Why it would be refused; guards are told in the plan instead.
    pub async fn plan(&self, caller: Caller, command: Command, meta: Meta) -> Result<Plan, SubmitError> {
        let operation = OperationId::from_uuid(Uuid::now_v7());
        let mut request = Request { caller, command, meta, operation };
        let mut connection = self.pool.acquire().await.map_err(unavailable)?;
        let loaded = load::load(&mut connection, &[&request], false).await.map_err(unavailable)?;
        let if_match = match &request.command {
            Command::Domain { name, command } => {
                loaded.domains.get(name).and_then(|view| entity_tag(view, command))
            }
            _ => None,
        };
        let batch = Batch::new(BatchId::from_uuid(Uuid::nil()));
        let decider = Decider::new(loaded, batch, &self.limits, self.clock.now());
        let mut blocked = Vec::new();
        let decided = match decider.decide(0, &request) {
            Err(Reject::Guarded { guards, .. }) => {
                blocked.clone_from(&guards);
                request.meta.allow.extend(guards);
                decider.decide(0, &request)
            }
            other => other,
        }?;
        let mut plan = Plan {
            changed: false,
            diff: Vec::new(),
            warnings: Vec::new(),
            guards: blocked.iter().map(|guard| guard.name().to_owned()).collect(),
            targets: Vec::new(),
            if_match,
            not_restored: match &request.command {
                Command::Domain { name, command: DomainCommand::Rollback(_) | DomainCommand::Undo(_) } => {
                    Some(decider.loaded.domains.get(name).map(not_restored).unwrap_or_default())
                }
                _ => None,
            },
        };
        if let Decided::Changed(decision) = decided {
            plan.changed = true;
            plan.diff = diff(&decision.events, &request.caller.shown.managing);
            plan.warnings = decision.warnings;
            if decision.operation.is_some() {
                plan.targets = load::targets(&mut connection, &decision.events).await.map_err(unavailable)?;
            }
        }
        Ok(plan)
    }

    /// The head of the log as this process knows it.
    pub fn head(&self) -> &Head {
        &self.head
    }
}

fn unavailable(error: sqlx::Error) -> SubmitError {
    if super::is_text_refused(&error) {
        tracing::warn!(%error, "the control database refused a text");
        return SubmitError::Text;
    }
    tracing::error!(%error, "the control database did not answer");
    SubmitError::Unavailable("the control database does not answer: try again".into())
}

fn stopping() -> SubmitError {
    SubmitError::Unavailable("this process is stopping: repeat the request".into())
}

/// The group-commit task.
#[derive(Debug)]
pub struct Committer {
    queue: mpsc::Receiver<Waiting>,
    waiting: VecDeque<Waiting>,
    turns: Turns<Uuid>,
    options: PgConnectOptions,
    connection: Option<PgConnection>,
    head: Head,
    limits: Limits,
    clock: Arc<dyn Clock>,
}

impl Committer {
    /// Starts the committer and its watchdog; they end when every handle is gone or `stop` is cancelled.
    ///
    /// # Errors
    /// When the database's URL cannot be read.
    pub fn start(
        url: &Secret,
        pool: PgPool,
        limits: Limits,
        clock: Arc<dyn Clock>,
        stop: &CancellationToken,
    ) -> Result<(CommitterHandle, tokio::task::JoinHandle<()>), pool::StoreError> {
        let (sender, queue) = mpsc::channel(QUEUE_MAX_COMMANDS);
        let (long, long_queue) = mpsc::channel(LONG_MAX_COMMANDS);
        let head = Head::default();
        // A batch that cannot have a lock fails, and is tried again, rather than hang.
        // All it sends are lookups by key: they are planned once, not for every batch, and never as the table was small.
        let options = pool::options(url)?.options([
            ("lock_timeout", "2s"),
            ("plan_cache_mode", "force_generic_plan"),
            ("enable_seqscan", "off"),
        ]);
        let committer = |queue| Self {
            queue,
            waiting: VecDeque::new(),
            turns: Turns::new(),
            options: options.clone(),
            connection: None,
            head: head.clone(),
            limits,
            clock: clock.clone(),
        };
        tokio::spawn(watchdog::run(pool.clone(), stop.clone()));
        let other = tokio::spawn(committer(long_queue).run(stop.clone()));
        let main = committer(queue).run(stop.clone());
        let task = tokio::spawn(async move {
            main.await;
            if let Err(error) = other.await {
                tracing::error!(%error, "the committer of long commands ended");
            }
        });
        let in_flight = Arc::default();
        Ok((CommitterHandle { queue: sender, long, in_flight, head, pool, limits, clock }, task))
    }

    async fn run(mut self, stop: CancellationToken) {
        loop {
            if self.waiting.is_empty() {
                let next = tokio::select! {
                    next = self.queue.recv() => next,
                    () = stop.cancelled() => { self.queue.close(); self.queue.recv().await }
                };
                let Some(next) = next else { return };
                self.enter(next);
            }
            // As many as may queue: the small ones behind the big ones must be seen.
            while self.waiting.len() < QUEUE_MAX_COMMANDS {
                let Ok(next) = self.queue.try_recv() else { break };
                self.enter(next);
            }
            let round = self.take();
            metrics::histogram!("cdn_log_batch_commands").record(round.len() as f64);
            self.commit(round).await;
        }
    }

    fn enter(&mut self, mut waiting: Waiting) {
        waiting.turn = self.turns.enter(waiting.request.caller.actor.id);
        self.waiting.push_back(waiting);
    }

    /// The next batch, by turns.
    fn take(&mut self) -> Vec<Waiting> {
        let waiting: Vec<(u64, Size)> =
            self.waiting.iter().map(|waiting| (waiting.turn, waiting.size())).collect();
        let chosen = self.turns.select(&waiting, BATCH_MAX_COMMANDS);
        // From the back, so that the indices before stay what they are.
        let mut round: Vec<Waiting> =
            chosen.into_iter().rev().filter_map(|index| self.waiting.remove(index)).collect();
        round.reverse();
        round
    }

    /// Commits a batch, reading and deciding it again as often as needed.
    async fn commit(&mut self, mut round: Vec<Waiting>) {
        let since = tokio::time::Instant::now();
        let mut again = 0;
        while !round.is_empty() {
            match self.attempt(&mut round).await {
                Ok(Appended::Committed(_)) => {
                    metrics::histogram!("cdn_log_append_seconds").record(since.elapsed().as_secs_f64());
                    return;
                }
                Ok(Appended::Again) if again < AGAIN_MAX_TIMES && since.elapsed() < UNAVAILABLE_AFTER => {
                    again += 1
                }
                Ok(Appended::Stale) if again < AGAIN_MAX_TIMES && since.elapsed() < UNAVAILABLE_AFTER => {
                    again += 1;
                    self.renew(&mut round).await;
                }
                Ok(Appended::Again | Appended::Stale) => {
                    return refuse(round, "the same things kept changing: repeat the request");
                }
                Err(error) => {
                    self.connection = None;
                    let late = since.elapsed() > UNAVAILABLE_AFTER;
                    match failure(&error) {
                        Failure::Passing if !late => {
                            tracing::warn!(%error, "a batch is tried again");
                            tokio::time::sleep(RECONNECT_PAUSE).await;
                        }
                        // One of them does it: each alone, so that the others are not refused with it.
                        Failure::Lasting if round.len() > 1 => {
                            tracing::error!(%error, commands = round.len(), "a batch was refused; each command alone now");
                            for mut waiting in round.into_iter().rev() {
                                waiting.alone = true;
                                self.waiting.push_front(waiting);
                            }
                            return;
                        }
                        _ => {
                            tracing::error!(%error, "a batch was given up");
                            return refuse(round, "the log cannot be written now");
                        }
                    }
                }
            }
        }
    }

    /// Reads the rights of those who asked anew. Who may not come in any more is answered; what cannot be read now is as it
    /// was, and found so again.
    async fn renew(&mut self, round: &mut Vec<Waiting>) {
        let Some(connection) = self.connection.as_mut() else { return };
        let mut renewal = rights::Renewal::default();
        for mut waiting in std::mem::take(round) {
            match renewal.of(connection, &waiting.request.caller).await {
                Ok(Some(caller)) => {
                    waiting.request.caller = caller;
                    round.push(waiting);
                }
                Ok(None) => {
                    let _ = waiting.reply.send(Err(SubmitError::Out));
                }
                Err(error) => {
                    tracing::warn!(%error, "rights cannot be read anew");
                    round.push(waiting);
                }
            }
        }
    }

    /// One try. On success every request has been answered or put back into the queue.
    async fn attempt(&mut self, round: &mut Vec<Waiting>) -> Result<Appended, AppendError> {
        self.connect().await?;
        let Some(connection) = self.connection.as_mut() else { return Ok(Appended::Again) };
        // A stream that was missed twice is waited for, while nothing else is held.
        if let Some(stream) = round.iter().find(|waiting| waiting.misses > 1).and_then(stream_name) {
            match lock::lock_name(connection, &stream).await {
                // Whoever holds it stands still. It is missed once more, and the others go on.
                Err(error) if is_lock_timeout(&error) => tracing::warn!(?stream, "a stream is held for long"),
                other => other?,
            }
        }
        let requests: Vec<&Request> = round.iter().map(|waiting| &waiting.request).collect();
        let loaded = load::load(connection, &requests, true).await?;
        let batch = Batch::new(BatchId::from_uuid(Uuid::now_v7()));
        let mut decider = Decider::new(loaded, batch, &self.limits, self.clock.now());
        let verdicts: Vec<Verdict> =
            requests.iter().enumerate().map(|(index, request)| decider.request(index, request)).collect();
        let (batch, stale) = decider.finish();
        if stale {
            append::unlock(connection).await?;
            return Ok(Appended::Stale);
        }
        let first = if batch.is_empty() {
            append::unlock(connection).await?;
            self.head.get()
        } else {
            match self.call(&batch).await? {
                again @ (Appended::Again | Appended::Stale) => return Ok(again),
                Appended::Committed(first) => {
                    let events = i64::try_from(batch.events.len()).unwrap_or(0);
                    self.head.advance(Position::new(first.get() + events - 1));
                    first
                }
            }
        };
        self.answer(std::mem::take(round), verdicts, first);
        Ok(Appended::Committed(first))
    }

    /// Calls, and finds out whether the batch stands when the connection was lost
    /// and says nothing. It is not sent a second time: the locks under which it
    /// was decided went with the connection, so it is decided again.
    async fn call(&mut self, batch: &Batch) -> Result<Appended, AppendError> {
        let since = tokio::time::Instant::now();
        let Some(connection) = self.connection.as_mut() else { return Ok(Appended::Again) };
        let mut answer = append::append(connection, batch).await;
        loop {
            match answer {
                Err(error) if failure(&error) == Failure::Passing && since.elapsed() < UNAVAILABLE_AFTER => {
                    tracing::warn!(%error, "whether a batch was committed is asked again");
                    self.connection = None;
                    tokio::time::sleep(RECONNECT_PAUSE).await;
                    answer = self.resolve(batch.id).await;
                }
                other => return other,
            }
        }
    }

    async fn resolve(&mut self, batch: BatchId) -> Result<Appended, AppendError> {
        self.connect().await?;
        let Some(connection) = self.connection.as_mut() else { return Ok(Appended::Again) };
        append::resolve(connection, batch).await
    }

    async fn connect(&mut self) -> Result<(), AppendError> {
        if self.connection.is_none() {
            self.connection = Some(self.options.connect().await?);
        }
        Ok(())
    }

    fn answer(&mut self, round: Vec<Waiting>, verdicts: Vec<Verdict>, first: Position) {
        let mut back = Vec::new();
        for (mut waiting, verdict) in round.into_iter().zip(verdicts) {
            match verdict {
                Verdict::Missed if waiting.since.elapsed() > MISSED_AFTER => {
                    refuse(vec![waiting], "another process holds the stream and does not let go");
                }
                Verdict::Missed => {
                    waiting.misses += 1;
                    back.push(waiting);
                }
                Verdict::Deferred => back.push(waiting),
                Verdict::Answered(answer, last) => {
                    let mut answer = *answer;
                    if let (Ok(outcome), Some(last)) = (&mut answer, last) {
                        let last = i64::try_from(last).unwrap_or(0);
                        outcome.position = Some(Position::new(first.get() + last));
                    }
                    // Whoever asked may be gone; the log keeps the answer.
                    let _ = waiting.reply.send(answer);
                }
            }
        }
        for waiting in back.into_iter().rev() {
            self.waiting.push_front(waiting);
        }
    }
}

/// Rare commands whose views are not kept over a batch.
fn stands_alone(command: &Command) -> bool {
    match command {
        Command::Domain { command, .. } => {
            matches!(command, DomainCommand::Rollback(_) | DomainCommand::Undo(_))
        }
        Command::Admin { command, .. } => lock::judges_others(command),
        Command::CreateDomain(_) => false,
    }
}

fn stream_name(waiting: &Waiting) -> Option<lock::LockName> {
    match &waiting.request.command {
        Command::Domain { name, .. } => Some(lock::LockName::Domain(name.clone())),
        Command::CreateDomain(create) => Some(lock::LockName::Relatives(create.name.clone())),
        Command::Admin { command, .. } => {
            lock::judges_others(command).then_some(lock::LockName::Administration)
        }
    }
}

fn refuse(round: Vec<Waiting>, why: &str) {
    for waiting in round {
        let _ = waiting.reply.send(Err(SubmitError::Unavailable(why.to_owned())));
    }
}
