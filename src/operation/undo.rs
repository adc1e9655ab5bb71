//! Undoing everything that one token did: domain by domain, each as one revision, as whoever asked and with the rights
//! of now. What others changed later stays and is told. What must hold: a domain that was done and is done again is
//! left as it is, so a process that dies between a commit and its checkpoint does no harm.

use super::sql;
use crate::app::App;
use crate::command::{Command, Meta, Outcome, Plan, SubmitError};
use crate::history::rights::Rights;
use crate::history::trail;
use crate::http::auth::Authenticated;
use crate::query::{domains, rrsets};
use crate::rebuild::{Difference, Keep, Kind, Phase, Progress, RebuildError, Watch};
use crate::store::past::PastError;
use crate::store::undo;
use chrono::{DateTime, Utc};
use headwater_events::actor::{self, Actor, ActorKind, Caller, DomainRef, Resource, Verb};
use headwater_events::dns::DomainName;
use headwater_events::domain::{DomainCommand, MOVED_ON, Undo, Undoing};
use headwater_events::event::UndoRequested;
use headwater_events::ids::{ClusterId, DomainId, OperationId, Position, Revision, TenantId};
use headwater_events::reject::{Guard, Reject};
use serde_json::{Value, json};
use sqlx::Row;
use sqlx::postgres::PgRow;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use uuid::Uuid;

/// How often one domain is tried because it changed by more than is read under its lock.
const TRIES_MAX_TIMES: u32 = 5;
/// How long the audit trail may take to come as far as the request.
const TRAIL_MAX: Duration = Duration::from_secs(30);
/// How often it is looked at meanwhile.
const TRAIL_PAUSE: Duration = Duration::from_millis(50);
/// Under which the place is kept: domains are walked once, not once a cluster.
const WALK: ClusterId = ClusterId::from_uuid(Uuid::nil());

/// What was asked for, by whom and why.
#[derive(Debug, Clone)]
pub struct AskedUndo {
    /// What is to be undone.
    pub requested: UndoRequested,
    operation: OperationId,
    position: Position,
    actor: Actor,
    note: Option<String>,
}

impl AskedUndo {
    /// From the row of what is due.
    pub(super) fn of(
        operation: OperationId,
        requested: UndoRequested,
        row: &PgRow,
    ) -> Result<Self, sqlx::Error> {
        Ok(Self {
            requested,
            operation,
            position: Position::new(row.try_get(6)?),
            actor: rrsets::actor(row, 7)?,
            note: row.try_get(11)?,
        })
    }

    fn meta(&self) -> Meta {
        let allowed = self.requested.allowed.iter().filter_map(|name| Guard::from_name(name));
        Meta {
            note: self.note.clone(),
            change: Some(self.operation.as_uuid()),
            cause: Some(self.position),
            allow: allowed.collect(),
            take_over: self.requested.take_over,
            ..Meta::internal()
        }
    }
}

/// What the token changed of one domain.
#[derive(Debug, Clone)]
pub struct Changed {
    /// Which.
    pub id: DomainId,
    /// Its name.
    pub name: DomainName,
    /// Its owner.
    pub tenant: TenantId,
    /// Which revisions.
    pub revisions: BTreeSet<Revision>,
}

/// What the token changed up to a position, of the domains that a caller may write, by name.
///
/// # Errors
/// When the database does not answer.
pub async fn changed(
    app: &App,
    caller: &Caller,
    requested: &UndoRequested,
    through: Position,
) -> Result<Vec<Changed>, sqlx::Error> {
    let query = sqlx::query(sql::TOKEN_CHANGES).bind(requested.token.as_uuid());
    let query = query.bind(DateTime::<Utc>::from(requested.since));
    let query = query.bind(requested.until.map(DateTime::<Utc>::from)).bind(through.get());
    let mut found = Vec::new();
    for row in query.fetch_all(&app.pool).await? {
        let (id, tenant) = (DomainId::from_uuid(row.try_get(0)?), TenantId::from_uuid(row.try_get(2)?));
        let Ok(name) = DomainName::parse(row.try_get(1)?) else { continue };
        let revisions: Vec<i64> = row.try_get(3)?;
        let domain = DomainRef { id, tenant, name: name.as_str() };
        if actor::decide(caller, Verb::Write, Resource::Contents(domain)).is_granted() {
            let revisions = revisions.into_iter().map(Revision::new).collect();
            found.push(Changed { id, name, tenant, revisions });
        }
    }
    Ok(found)
}

/// Waits until the audit trail has come as far as a position; false when it has not after `most`.
///
/// # Errors
/// When the database does not answer.
pub async fn trail_reaches(app: &App, position: Position, most: Duration) -> Result<bool, sqlx::Error> {
    let deadline = Instant::now() + most;
    loop {
        if trail::position(&app.pool).await? >= position {
            return Ok(true);
        }
        if Instant::now() >= deadline {
            return Ok(false);
        }
        tokio::time::sleep(TRAIL_PAUSE).await;
    }
}

/// Whoever asked, with the rights of now.
pub(crate) async fn asker(app: &App, actor: Actor) -> Result<Caller, RebuildError> {
    if actor.kind == ActorKind::System {
        return Ok(Caller::system());
    }
    // A token that is limited cannot ask for it (`http/undo.rs`), and limits never change.
    let asked = Authenticated { caller: Caller::new(actor, false), expires_at: None, session: None };
    let rights = Rights::load(&app.pool, &asked).await?;
    match rights.ended(app.clock.now()) {
        Some(_) => Err(RebuildError::Forbidden),
        None => Ok(rights.caller().clone()),
    }
}

/// Undoes everything; gives nothing, since what stays was given to `keep`.
pub(super) async fn run(
    app: &App,
    asked: &AskedUndo,
    watch: Watch<'_>,
    keep: &impl Keep,
) -> Result<Vec<Difference>, RebuildError> {
    let caller = asker(app, asked.actor).await?;
    if !trail_reaches(app, asked.position, TRAIL_MAX).await? {
        let why = "the audit trail, which says what the token did, is behind".to_owned();
        return Err(RebuildError::Undo(why));
    }
    let all = changed(app, &caller, &asked.requested, asked.position).await?;
    let before = keep.before(WALK).await.map(|(name, _)| name);
    let total = i64::try_from(all.len()).unwrap_or(i64::MAX);
    for (done, one) in (0_i64..).zip(&all) {
        watch(Progress { phase: Phase::Undo, done, total });
        // They are in the order of their names, as the database has it.
        if before.as_ref().is_some_and(|before| one.name.as_str() <= before.as_str()) {
            continue;
        }
        fail::fail_point!("undo.before_domain");
        let kept = undo_one(app, &caller, asked, one).await?;
        fail::fail_point!("undo.after_domain");
        keep.done(WALK, &one.name, kept).await?;
    }
    watch(Progress { phase: Phase::Undo, done: total, total });
    Ok(Vec::new())
}

/// What one try to undo came to.
pub enum Tried<T> {
    /// It was done, or planned.
    Done(T),
    /// It cannot be.
    Refused(Reject),
}

/// Undoes what the token did in one domain; gives what stays.
async fn undo_one(
    app: &App,
    caller: &Caller,
    asked: &AskedUndo,
    of: &Changed,
) -> Result<Vec<Difference>, RebuildError> {
    let submit = |command: Command| {
        let (commit, caller, meta) = (app.commit.clone(), caller.clone(), asked.meta());
        async move { commit.submit(caller, command, meta).await }
    };
    let (undoing, tried) = with_retries(app, of, submit).await?;
    Ok(match tried {
        Tried::<Outcome>::Done(_) => kept(of, &undoing),
        Tried::Refused(reject) => vec![refused(of, &reject)],
    })
}

/// What a domain would become.
///
/// # Errors
/// When it cannot be told now.
pub async fn plan_one(
    app: &App,
    caller: &Caller,
    meta: Meta,
    of: &Changed,
) -> Result<(Vec<Difference>, Option<Plan>), RebuildError> {
    let plan = |command: Command| {
        let (commit, caller, meta) = (app.commit.clone(), caller.clone(), meta.clone());
        async move { commit.plan(caller, command, meta).await }
    };
    let (undoing, tried) = with_retries(app, of, plan).await?;
    Ok(match tried {
        Tried::Done(plan) => (kept(of, &undoing), Some(plan)),
        Tried::Refused(reject) => (vec![refused(of, &reject)], None),
    })
}

async fn with_retries<T, F>(
    app: &App,
    of: &Changed,
    submit: impl Fn(Command) -> F,
) -> Result<(Undoing, Tried<T>), RebuildError>
where
    F: Future<Output = Result<T, SubmitError>>,
{
    let mut tries = 0;
    loop {
        tries += 1;
        let gone = || Reject::NotFound(format!("domain {}", of.name));
        let held = domains::by_name(&app.pool, &of.name).await?.filter(|held| held.state.id == of.id);
        let Some(held) = held else {
            return Ok((Undoing::new(of.id, BTreeSet::new()), Tried::Refused(gone())));
        };
        let undoing = match undo::read(&app.pool, &held.state, of.revisions.clone()).await {
            Ok((undoing, _)) => undoing,
            Err(PastError::Database(error)) => return Err(error.into()),
            Err(other) => {
                let reject = Reject::Conflict { code: "undo_conflict", detail: other.to_string() };
                return Ok((Undoing::new(of.id, BTreeSet::new()), Tried::Refused(reject)));
            }
        };
        let destinations = app.config.sites.destinations.clone();
        let undo = Undo::new(Arc::new(undoing.clone()), destinations, true);
        let command = DomainCommand::Undo(Box::new(undo));
        match submit(Command::Domain { name: of.name.clone(), command }).await {
            Ok(done) => return Ok((undoing, Tried::Done(done))),
            Err(SubmitError::Rejected(Reject::Conflict { code: MOVED_ON, .. }))
                if tries < TRIES_MAX_TIMES => {}
            Err(SubmitError::Rejected(reject)) => return Ok((undoing, Tried::Refused(reject))),
            Err(error) => return Err(RebuildError::Undo(error.to_string())),
        }
    }
}

fn difference(of: &Changed, path: &str, live: Value, why: String) -> Difference {
    let key = json!([of.name, path]);
    Difference { kind: Kind::Kept, table: "domain".to_owned(), key, live, expected: json!(why) }
}

/// What stays of what the token did.
fn kept(of: &Changed, undoing: &Undoing) -> Vec<Difference> {
    let conflicts = undoing.conflicts().into_iter().map(|conflict| {
        let why = format!("revision {} changed it again later", conflict.revision);
        difference(of, &conflict.path, conflict.present, why)
    });
    let left = undoing.left().into_iter().map(|left| difference(of, &left.what, Value::Null, left.detail));
    conflicts.chain(left).collect()
}

fn refused(of: &Changed, reject: &Reject) -> Difference {
    let why = match reject {
        Reject::Invalid(faults) => {
            let all: Vec<&str> = faults.iter().map(|fault| fault.detail.as_str()).collect();
            all.join("; ")
        }
        Reject::ManagedByOther { conflicts } => {
            let all: Vec<&str> = conflicts.iter().map(|one| one.detail.as_str()).collect();
            format!("{reject}: {}", all.join("; "))
        }
        other => other.to_string(),
    };
    difference(of, "", Value::Null, why)
}
