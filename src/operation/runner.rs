//! Carries out imperative work: one at a time in its lane, whatever the number of processes. Level-triggered: woken by
//! the log or by its poll, whoever has the lane's lease takes the oldest that is due. What must hold: a process that
//! dies leaves nothing that another cannot go on from; a call-off stops it at the next step, and leaves the last valid
//! state; the first end in the log is final.

use super::run::{self, Holder, Run};
use super::sql;
use super::undo::{self, AskedUndo};
use crate::app::App;
use crate::command::{Command, Meta};
use crate::compare;
use crate::deploy::{self, DeployError, Lease};
use crate::import;
use crate::import::pass::{Asked as Asking, AskedCutover};
use crate::pace;
use crate::rebuild::{self, Difference, Intent, RebuildError};
use futures_util::FutureExt;
use headwater_events::actor::Caller;
use headwater_events::admin::AdminCommand;
use headwater_events::codec;
use headwater_events::event::{
    ClusterRemovalRequested, Event, OperationError, OperationFinished, OperationRequested, OperationResult,
    Projection, REMOVAL_KIND, UNDO_KIND, Work,
};
use headwater_events::ids::OperationId;
use headwater_events::migration::{COMPARE_KIND, CUTOVER_KIND, IMPORT_KIND, ImportCompareRequested};
use sqlx::Row;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// Tries of one operation, at most.
pub const ATTEMPTS_MAX_TIMES: i32 = 5;
/// How long a try may go on without a step.
const STEP_MAX: Duration = Duration::from_secs(300);
/// The pause before the second try; it doubles.
const BACKOFF_MIN: Duration = Duration::from_secs(1);
/// The longest pause before a try.
const BACKOFF_MAX: Duration = Duration::from_secs(60);
/// How often a run is written down and asked whether it may go on.
const WATCH_INTERVAL: Duration = Duration::from_millis(250);
/// How long a walk may take to the end of its zone when it is to stop.
const STOP_GRACE: Duration = Duration::from_secs(5);
/// How long what a run found is kept.
const RUNS_KEPT_DAYS: i32 = 30;
/// The lease of the lane.
const LEASE_NAME: &str = "lane:bulk_maintenance";

/// Why the lane stands still.
#[derive(Debug, thiserror::Error)]
enum LaneError {
    #[error("the control database does not answer: {0}")]
    Database(#[from] sqlx::Error),
    #[error(transparent)]
    Lease(#[from] DeployError),
    #[error("the request of operation {0} cannot be read: this program is older than the log, upgrade it")]
    Unreadable(OperationId),
}

/// What was asked for.
#[derive(Clone)]
enum Asked {
    Projection(OperationRequested),
    Undo(AskedUndo),
    Import(Box<Asking>),
    Cutover(Box<AskedCutover>),
    Compare(Box<ImportCompareRequested>),
    Removal(ClusterRemovalRequested),
}

impl Asked {
    /// Whether it is a walk, which ends after its step and goes on from there.
    fn is_walk(&self) -> bool {
        match self {
            Self::Projection(requested) => requested.projection == Projection::Powerdns,
            Self::Undo(_) | Self::Import(_) | Self::Cutover(_) | Self::Compare(_) | Self::Removal(_) => true,
        }
    }

    fn name(&self) -> String {
        match self {
            Self::Projection(asked) => format!("{} {}", asked.kind.name(), asked.projection.name()),
            Self::Undo(_) => UNDO_KIND.to_owned(),
            Self::Import(_) => IMPORT_KIND.to_owned(),
            Self::Cutover(_) => CUTOVER_KIND.to_owned(),
            Self::Compare(_) => COMPARE_KIND.to_owned(),
            Self::Removal(_) => REMOVAL_KIND.to_owned(),
        }
    }

    /// Whether what it finds is to be checked again soon.
    fn mends(&self) -> bool {
        matches!(self, Self::Projection(asked) if asked.kind == Work::Verify && asked.mend && self.is_walk())
    }
}

/// What is due.
struct Due {
    id: OperationId,
    asked: Asked,
    attempts: i32,
    error: Option<String>,
}

/// How a try ended.
enum Ended {
    /// By itself.
    Done(Result<Vec<Difference>, RebuildError>),
    /// It broke off, or made no step for too long.
    Broke(String),
    /// The process stops.
    Process,
    /// It was called off, or another process has the lane.
    Over,
}

/// Runs until the process stops.
pub async fn run(app: App) {
    let mut head = app.commit.head().subscribe();
    let mut lease = None;
    while !app.stop.is_cancelled() {
        head.borrow_and_update();
        let more = match look(&app, &mut lease).await {
            Ok(more) => more,
            Err(error) => {
                tracing::warn!(%error, "imperative operations wait");
                false
            }
        };
        if !pace::next_look(&app, &mut head, more).await {
            break;
        }
    }
    if let Some(lease) = lease {
        lease.end(&app.pool).await;
    }
}

/// Carries out what is due next, if the lane is ours; says whether there may be more.
async fn look(app: &App, lease: &mut Option<Lease>) -> Result<bool, LaneError> {
    let Some(due) = due(app).await? else {
        // Whoever comes next need not wait for it to end.
        if let Some(lease) = lease.take() {
            lease.end(&app.pool).await;
        }
        return Ok(false);
    };
    let lease = lease.get_or_insert_with(|| Lease::new(LEASE_NAME.to_owned()));
    if !lease.keep(&app.pool).await? {
        return Ok(false);
    }
    carry_out(app, lease, due).await?;
    Ok(true)
}

async fn due(app: &App) -> Result<Option<Due>, LaneError> {
    let Some(row) = sqlx::query(sql::DUE_RUN).fetch_optional(&app.pool).await? else { return Ok(None) };
    let id = OperationId::from_uuid(row.try_get(0)?);
    let (name, schema, data): (&str, i16, &[u8]) = (row.try_get(1)?, row.try_get(2)?, row.try_get(3)?);
    let asked = match codec::decode(name, schema, data) {
        Ok(Event::OperationRequested(requested)) => Asked::Projection(requested),
        Ok(Event::UndoRequested(requested)) => Asked::Undo(AskedUndo::of(id, requested, &row)?),
        Ok(Event::ImportRequested(requested)) => {
            Asked::Import(Box::new(Asking::of(id, *requested, &row, 6)?))
        }
        Ok(Event::ImportCutoverRequested(requested)) => {
            Asked::Cutover(Box::new(AskedCutover::of(id, *requested, &row)?))
        }
        Ok(Event::ClusterRemovalRequested(requested)) => Asked::Removal(requested),
        Ok(Event::ImportCompareRequested(requested)) => Asked::Compare(requested),
        _ => return Err(LaneError::Unreadable(id)),
    };
    Ok(Some(Due { id, asked, attempts: row.try_get(4)?, error: row.try_get(5)? }))
}

async fn carry_out(app: &App, lease: &mut Lease, due: Due) -> Result<(), LaneError> {
    let (name, owner) = lease.holder();
    let holder = Holder { lease: name.to_owned(), owner };
    let (id, asked) = (due.id, &due.asked);
    sqlx::query(sql::FORGET_RUNS).bind(RUNS_KEPT_DAYS).execute(&app.pool).await?;
    if due.attempts >= ATTEMPTS_MAX_TIMES {
        let last = due.error.unwrap_or_else(|| "the process that worked on it died".to_owned());
        return finish(app, lease, given_up(id, &last)).await;
    }
    fail::fail_point!("operation.before_begin");
    let anew = !asked.is_walk();
    let Some(run) = run::begin(&app.pool, id, &holder, anew).await? else { return Ok(()) };
    fail::fail_point!("operation.after_begin");
    let run = Arc::new(run);
    let began = Instant::now();
    let (kind, attempt) = (asked.name(), due.attempts + 1);
    tracing::info!(operation = %id, kind, attempt, "imperative work begins");
    let why = match supervise(app, lease, &run, id, asked).await? {
        Ended::Over => return Ok(()),
        Ended::Process => {
            return Ok(run::put_off(&app.pool, id, &holder, Duration::ZERO, None, false).await?);
        }
        Ended::Done(Ok(differences)) => {
            if !run.found(differences).await? {
                return Ok(());
            }
            let result = OperationResult {
                differences: run.differences().await,
                ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
            };
            if asked.mends() {
                sqlx::query(sql::CHECK_SOON).bind(id.as_uuid()).execute(&app.pool).await?;
            }
            return finish(app, lease, ending(id, "succeeded", None, Some(result))).await;
        }
        Ended::Done(Err(error)) => {
            if let Some(code) = lasting(&error) {
                return finish(app, lease, failed(id, code, error.to_string())).await;
            }
            error.to_string()
        }
        Ended::Broke(why) => why,
    };
    if due.attempts + 1 >= ATTEMPTS_MAX_TIMES {
        return finish(app, lease, given_up(id, &why)).await;
    }
    tracing::warn!(operation = %id, error = why, "imperative work is tried again");
    let tries = u32::try_from(due.attempts).unwrap_or(0);
    let pause = pace::doubled(BACKOFF_MIN, BACKOFF_MAX, tries);
    Ok(run::put_off(&app.pool, id, &holder, pause, Some(&why), true).await?)
}

/// Why another try would give the same, as a code.
fn lasting(error: &RebuildError) -> Option<&'static str> {
    match error {
        RebuildError::NoDomain(_) => Some("not_found"),
        RebuildError::Forbidden => Some("forbidden"),
        RebuildError::Source(_) => Some("source_unusable"),
        RebuildError::Poison { .. } => Some("unreadable_event"),
        RebuildError::Deploy(DeployError::Refused(_)) => Some("refused"),
        _ => None,
    }
}

/// Lets a try go on while it may.
async fn supervise(
    app: &App,
    lease: &mut Lease,
    run: &Arc<Run>,
    id: OperationId,
    asked: &Asked,
) -> Result<Ended, LaneError> {
    let mut job = tokio::spawn(work(app.clone(), Arc::clone(run), asked.clone()));
    let ended = loop {
        tokio::select! {
            done = &mut job => return Ok(of_job(done)),
            () = app.stop.cancelled() => break Ended::Process,
            () = tokio::time::sleep(WATCH_INTERVAL) => {}
        }
        match may_go_on(app, lease, run, id).await {
            Ok(true) => {}
            Ok(false) => break Ended::Over,
            // Where the database is gone, the lease says for how long it may be.
            Err(_) if lease.is_held() => {}
            Err(_) => break Ended::Over,
        }
        if run.idle() > STEP_MAX {
            break Ended::Broke(format!("it made no step for {} s", STEP_MAX.as_secs()));
        }
    };
    run.halt.cancel();
    stop(job, asked).await;
    // Where it stopped is where the next one goes on; one that was called off needs it no more.
    if !matches!(ended, Ended::Over) {
        run.save().await?;
    }
    Ok(ended)
}

/// A walk ends after its zone. The others work in a transaction or beside what is live: they are dropped as they are.
async fn stop(mut job: JoinHandle<Result<Vec<Difference>, RebuildError>>, asked: &Asked) {
    if asked.is_walk() && tokio::time::timeout(STOP_GRACE, &mut job).await.is_ok() {
        return;
    }
    job.abort();
    // It has ended, or it is cancelled: either way nothing of it runs.
    let _gone = job.await;
}

async fn may_go_on(app: &App, lease: &mut Lease, run: &Run, id: OperationId) -> Result<bool, LaneError> {
    if !lease.keep(&app.pool).await? {
        return Ok(false);
    }
    let ended: bool = sqlx::query_scalar(sql::RUN_ENDED).bind(id.as_uuid()).fetch_one(&app.pool).await?;
    Ok(!ended && run.save().await?)
}

fn of_job(done: Result<Result<Vec<Difference>, RebuildError>, tokio::task::JoinError>) -> Ended {
    match done {
        // It saw that the lease is lost.
        Ok(Err(RebuildError::Stopped)) => Ended::Over,
        Ok(done) => Ended::Done(done),
        Err(error) => Ended::Broke(error.to_string()),
    }
}

async fn work(app: App, run: Arc<Run>, asked: Asked) -> Result<Vec<Difference>, RebuildError> {
    let steps = Arc::clone(&run);
    let mut watch = move |progress| steps.step(progress);
    let requested = match asked {
        Asked::Undo(asked) => return undo::run(&app, &asked, &mut watch, run.as_ref()).await,
        Asked::Import(asked) => {
            return import::first(&app, &asked, run.holder(), &mut watch, run.as_ref()).boxed().await;
        }
        Asked::Cutover(asked) => {
            return import::cut_over(&app, &asked, &mut watch, run.as_ref()).boxed().await;
        }
        Asked::Removal(asked) => return deploy::remove(&app, &asked, &mut watch, run.as_ref()).boxed().await,
        Asked::Compare(asked) => {
            return compare::import(&app, &asked, &mut watch, run.as_ref()).boxed().await;
        }
        Asked::Projection(requested) => requested,
    };
    let intent = match requested.kind {
        Work::Rebuild => Intent::Rebuild,
        Work::Verify => Intent::Verify,
    };
    let scope = (requested.domain.as_ref(), requested.cluster);
    rebuild::run(&app, requested.projection, intent, scope, &mut watch, run.as_ref()).await
}

fn ending(
    operation: OperationId,
    state: &str,
    error: Option<OperationError>,
    result: Option<OperationResult>,
) -> OperationFinished {
    OperationFinished {
        operation,
        state: state.to_owned(),
        partial: Vec::new(),
        error,
        result,
        cells: Vec::new(),
        warnings: Vec::new(),
    }
}

fn failed(operation: OperationId, code: &str, detail: String) -> OperationFinished {
    let error = OperationError { code: code.to_owned(), detail, target: None };
    ending(operation, "failed", Some(error), None)
}

fn given_up(operation: OperationId, last: &str) -> OperationFinished {
    failed(operation, "given_up", format!("given up after {ATTEMPTS_MAX_TIMES} tries; the last one: {last}"))
}

/// Says in the log how it ended; as long as the lane is ours, since the work is done.
async fn finish(app: &App, lease: &mut Lease, finished: OperationFinished) -> Result<(), LaneError> {
    fail::fail_point!("operation.before_finish");
    loop {
        let command =
            AdminCommand::FinishOperation { domain: None, tenant: None, finished: finished.clone() };
        let submitted = app.commit.submit(Caller::system(), Command::admin(command), Meta::internal()).await;
        let Err(error) = submitted else { break };
        tracing::warn!(%error, "the end of an operation is written again");
        tokio::select! {
            () = app.stop.cancelled() => return Ok(()),
            () = tokio::time::sleep(BACKOFF_MIN) => {}
        }
        if !lease.keep(&app.pool).await? {
            return Ok(());
        }
    }
    fail::fail_point!("operation.after_finish");
    Ok(())
}
