//! What the API shows of operations.

use super::deadline::{CellView, EdgesView, TargetView};
use super::{run, sql};
use crate::command::Plan;
use chrono::{DateTime, Utc};
use headwater_events::actor::{self, Caller, DomainRef, Resource, Verb, Visible};
use headwater_events::codec::decode;
use headwater_events::event::{CellRef, DeploymentFact, Event, REMOVAL_KIND, UNDO_KIND};
use headwater_events::ids::{ClusterId, DomainId, OperationId, Position, Revision, TenantId};
use headwater_events::migration::{COMPARE_KIND, CUTOVER_KIND, IMPORT_KIND};
use headwater_events::time::Timestamp;
use headwater_projections::operations::State;
use serde::Serialize;
use serde_json::{Value, json};
use sqlx::Row;
use sqlx::postgres::{PgPool, PgRow};
use sqlx::types::Json;
use std::collections::BTreeSet;
use uuid::Uuid;

/// Deployment facts that a timeline looks at, at most.
const TIMELINE_MAX_FACTS: i64 = 1_000;

/// One operation as it is shown.
#[derive(Debug, Clone)]
pub struct Shown {
    /// Which.
    pub id: OperationId,
    /// Where it stands.
    pub state: State,
    /// The domain it is about.
    pub domain: Option<DomainId>,
    /// The cluster it is about.
    pub cluster: Option<ClusterId>,
    /// Its owner.
    pub tenant: Option<TenantId>,
    /// The revision it carries out.
    pub revision: Revision,
    /// Who asked.
    pub actor: Uuid,
    /// Whether a target lags.
    pub lags: bool,
    /// Whether it is work with a stream of its own, which can be called off.
    pub imperative: bool,
    /// The cells concerned; none where edges have nothing to do with it.
    cells: Vec<CellView>,
    /// When it succeeded, if it did.
    succeeded_at: Option<Timestamp>,
    /// The resource, as it is shown.
    pub body: Value,
}

impl Shown {
    /// What it is about, for the policy.
    pub fn resource(&self) -> Resource<'_> {
        match (self.domain, self.tenant, self.body["domain"].as_str()) {
            (Some(id), Some(tenant), Some(name)) => Resource::Domain(DomainRef { id, tenant, name }),
            (None, Some(tenant), _) => Resource::Tenant(tenant),
            _ => Resource::Platform,
        }
    }

    /// Whether a caller asked for it itself, with a token that is not limited, and it undoes what a token did: then it may
    /// call it off.
    pub fn is_own_undo(&self, caller: &Caller) -> bool {
        let is_own = caller.actor.id == self.actor && caller.scopes.is_none();
        is_own && self.body["kind"].as_str() == Some(UNDO_KIND)
    }

    /// Whether a caller may read it: what it started with a token that is not limited, and what is about what it may
    /// read.
    pub fn is_readable_by(&self, caller: &Caller) -> bool {
        (caller.actor.id == self.actor && caller.scopes.is_none())
            || actor::decide(caller, Verb::Read, self.resource()).is_granted()
    }
}

/// What is asked of the list.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// Of a domain.
    pub domain: Option<String>,
    /// In one of these states.
    pub states: Option<Vec<String>>,
    /// Older than this one.
    pub before: Option<OperationId>,
}

fn shown(row: &PgRow) -> Result<Shown, sqlx::Error> {
    let id = OperationId::from_uuid(row.try_get(0)?);
    let kind: &str = row.try_get(1)?;
    let lane: &str = row.try_get(2)?;
    let name: &str = row.try_get(3)?;
    let domain: Option<&str> = row.try_get(5)?;
    let revision: i64 = row.try_get(7)?;
    let served: bool = row.try_get(9)?;
    let superseded_by: Option<Uuid> = row.try_get(10)?;
    let error: Option<Value> = row.try_get::<Option<Json<Value>>, _>(11)?.map(|json| json.0);
    let created = Timestamp::from(row.try_get::<DateTime<Utc>, _>(12)?);
    let finished = row.try_get::<Option<DateTime<Utc>>, _>(13)?.map(Timestamp::from);
    let Json(mut partial): Json<Vec<Value>> = row.try_get(15)?;
    let Json(out): Json<Vec<CellRef>> = row.try_get(26)?;
    partial.extend(out.iter().map(|out| json!({"id": out.edge, "cell": out.cell, "name": out.name})));
    let Json(warnings): Json<Value> = row.try_get(27)?;
    let Json(targets): Json<Vec<TargetView>> = row.try_get(16)?;
    let state = State::from_name(name).unwrap_or(State::Pending);
    let about_domain = row.try_get::<Option<Uuid>, _>(4)?.map(DomainId::from_uuid);
    // An operation on a cluster has that one target.
    let cluster = row.try_get::<Option<Uuid>, _>(14)?.map(ClusterId::from_uuid);
    let concerned: Vec<&TargetView> =
        targets.iter().filter(|t| cluster.is_none_or(|cluster| cluster == t.id)).collect();
    let is_active =
        |target: &TargetView| if cluster.is_some() { state == State::Succeeded } else { target.verified };
    let request = row.try_get::<Option<Json<Value>>, _>(18)?.map(|json| json.0);
    let imperative = request.is_some();
    let concerned = if imperative { Vec::new() } else { concerned };
    let edges: Option<Json<EdgesView>> = row.try_get(28)?;
    let cells: Vec<CellView> = edges.map_or_else(Vec::new, |Json(edges)| edges.cells);
    let total = concerned.len() + cells.len();
    let active = concerned.iter().filter(|target| is_active(target)).count()
        + cells.iter().filter(|cell| cell.current).count();
    let unreachable = concerned.iter().filter(|target| !target.in_service).count()
        + cells.iter().filter(|cell| !cell.in_service).count();
    let lagging = || concerned.iter().filter(|target| target.enabled && !is_active(target));
    let body = json!({
        "id": id, "kind": kind, "state": state.name(), "domain": domain, "revision": revision, "lane": lane,
        "progress": {"done": active, "total": total, "unit": "targets"},
        "checkpoint": null,
        "attempts": lagging().filter_map(|target| target.attempts).max().unwrap_or(0),
        "next_attempt_at": lagging().filter_map(|target| target.next_attempt_at.as_deref()).min(),
        "targets": {
            "total": total, "active": active, "unreachable": unreachable,
        },
        "partial": partial, "warnings": warnings, "served": served, "superseded_by": superseded_by, "error": error,
        "created_at": created, "finished_at": finished,
    });
    let body = match request {
        Some(request) => with_run(row, body, request, state)?,
        None => body,
    };
    Ok(Shown {
        id,
        state,
        imperative,
        domain: about_domain,
        cluster,
        tenant: row.try_get::<Option<Uuid>, _>(6)?.map(TenantId::from_uuid),
        revision: Revision::new(revision),
        actor: row.try_get(8)?,
        lags: lagging().next().is_some(),
        cells,
        succeeded_at: finished.filter(|_| state == State::Succeeded),
        body,
    })
}

/// The body of imperative work: what was asked for, how its run comes along, what it came to.
fn with_run(row: &PgRow, mut body: Value, request: Value, state: State) -> Result<Value, sqlx::Error> {
    let phase = row.try_get::<Option<&str>, _>(19)?.unwrap_or_default();
    let phase = match row.try_get(1)? {
        UNDO_KIND => "undo",
        REMOVAL_KIND => "remove",
        COMPARE_KIND => "answers",
        IMPORT_KIND | CUTOVER_KIND => "import",
        _ => phase,
    };
    let unit = run::unit(phase, request["projection"] == "powerdns");
    let number = |column: usize| row.try_get::<Option<i64>, _>(column).map(Option::unwrap_or_default);
    body["progress"] = json!({"done": number(20)?, "total": number(21)?, "unit": unit});
    let checkpoint: Option<Json<Value>> = row.try_get(22)?;
    body["checkpoint"] = checkpoint.map(|json| json.0).filter(|json| *json != json!({})).unwrap_or_default();
    body["attempts"] = json!(row.try_get::<Option<i32>, _>(23)?.unwrap_or_default());
    if !state.is_terminal() {
        let why: Option<&str> = row.try_get(24)?;
        body["error"] = json!(why.map(|why| json!({"code": "tried_again", "detail": why, "target": null})));
        let next: Option<DateTime<Utc>> = row.try_get(25)?;
        body["next_attempt_at"] = json!(next.map(Timestamp::from));
    }
    body["result"] = row.try_get::<Option<Json<Value>>, _>(17)?.map(|json| json.0).unwrap_or_default();
    body["request"] = request;
    Ok(body)
}

/// What a verification or a rebuild found, one by one, each with its number.
///
/// # Errors
/// When the database does not answer.
pub async fn differences(
    pool: &PgPool,
    id: OperationId,
    after: i32,
    most: i64,
) -> Result<Vec<(i32, Value)>, sqlx::Error> {
    let query = sqlx::query(sql::DIFFERENCES).bind(id.as_uuid()).bind(after).bind(most);
    let rows = query.fetch_all(pool).await?;
    rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get::<Json<Value>, _>(1)?.0))).collect()
}

/// Has the next try of imperative work begin at once; false when none was put off.
///
/// # Errors
/// When the database does not answer.
pub async fn retry_run(pool: &PgPool, id: OperationId) -> Result<bool, sqlx::Error> {
    let done = sqlx::query(sql::RETRY_RUN).bind(id.as_uuid()).execute(pool).await?;
    Ok(done.rows_affected() > 0)
}

/// One operation.
///
/// # Errors
/// When the database does not answer.
pub async fn one(pool: &PgPool, id: OperationId) -> Result<Option<Shown>, sqlx::Error> {
    let row = sqlx::query(sql::OPERATION).bind(id.as_uuid()).fetch_optional(pool).await?;
    row.as_ref().map(shown).transpose()
}

/// The operations that a caller may read, newest first.
///
/// # Errors
/// When the database does not answer.
pub async fn list(
    pool: &PgPool,
    caller: &Caller,
    wanted: &Wanted,
    most: i64,
) -> Result<Vec<Shown>, sqlx::Error> {
    let Visible { owned, named } = caller.visible();
    let tenants: Option<Vec<Uuid>> =
        owned.as_ref().map(|owned| owned.tenants.iter().map(|tenant| tenant.as_uuid()).collect());
    let single: Option<Vec<Uuid>> =
        owned.as_ref().map(|owned| owned.domains.iter().map(|domain| domain.as_uuid()).collect());
    let own = caller.scopes.is_none().then_some(caller.actor.id);
    let rows = sqlx::query(sql::OPERATIONS)
        .bind(tenants)
        .bind(own)
        .bind(wanted.domain.as_deref())
        .bind(wanted.states.as_deref())
        .bind(wanted.before.map(OperationId::as_uuid))
        .bind(most)
        .bind(single)
        .bind(named)
        .persistent(false)
        .fetch_all(pool)
        .await?;
    rows.iter().map(shown).collect()
}

/// One hop on the way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Hop {
    /// `committed`, `rendered`, `activated`, `verified` or `refused`.
    pub stage: &'static str,
    /// The name of the target; none for the log.
    pub target: Option<String>,
    /// When.
    pub at: Timestamp,
    /// Milliseconds since the commit.
    pub ms: i64,
    /// The event that says so.
    pub position: Position,
}

/// The hops of an operation, in the order of time.
///
/// # Errors
/// When the database does not answer.
pub async fn timeline(pool: &PgPool, operation: &Shown) -> Result<Vec<Hop>, sqlx::Error> {
    let own = operation.imperative.then_some(operation.id.as_uuid());
    let stream =
        own.or(operation.domain.map(DomainId::as_uuid)).or(operation.cluster.map(ClusterId::as_uuid));
    let query = sqlx::query(sql::COMMITTED).bind(stream).bind(operation.revision.get());
    let Some(row) = query.fetch_optional(pool).await? else { return Ok(Vec::new()) };
    let position: i64 = row.try_get(0)?;
    let committed = Timestamp::from(row.try_get::<DateTime<Utc>, _>(1)?);
    let mut hops = vec![Hop {
        stage: "committed",
        target: None,
        at: committed,
        ms: 0,
        position: Position::new(position),
    }];
    let Some(domain) = operation.domain else { return Ok(hops) };
    let query = sqlx::query(sql::FACTS).bind(domain.as_uuid()).bind(position).bind(TIMELINE_MAX_FACTS);
    let mut done: BTreeSet<String> = BTreeSet::new();
    for row in query.fetch_all(pool).await? {
        let target: String = row.try_get(6)?;
        let (name, schema, data): (&str, i16, &[u8]) = (row.try_get(2)?, row.try_get(3)?, row.try_get(4)?);
        let position = Position::new(row.try_get(0)?);
        let at = Timestamp::from(row.try_get::<DateTime<Utc>, _>(1)?);
        let Ok(event) = decode(name, schema, data) else { continue };
        let Some((stages, is_verified)) = stages(&event, operation.revision, at) else { continue };
        if done.contains(&target) {
            continue;
        }
        for (stage, at) in stages {
            let is_new = !hops.iter().any(|hop| {
                hop.stage == stage
                    && hop.target.as_ref() == Some(&target)
                    && (stage != "refused" || hop.at == at)
            });
            if is_new {
                let ms = at.millis_since(committed);
                hops.push(Hop { stage, target: Some(target.clone()), at, ms, position });
            }
        }
        if is_verified {
            done.insert(target);
        }
    }
    hops.extend(operation.cells.iter().flat_map(|cell| cell_hops(cell, operation, committed, position)));
    hops.sort_by_key(|hop| (hop.at, hop.position));
    Ok(hops)
}

/// The hops of a cell. What it says is no event, and only its last word is kept, so a hop bears the position that it
/// spoke of, and the time at which that was known at the latest.
fn cell_hops(cell: &CellView, operation: &Shown, committed: Timestamp, position: i64) -> Vec<Hop> {
    let hop = |stage, at: Timestamp| Hop {
        stage,
        target: Some(cell.shown()),
        at,
        ms: at.millis_since(committed),
        position: Position::new(position),
    };
    let known = |at: Timestamp| operation.succeeded_at.map_or(at, |ended| at.min(ended));
    let verified = cell.at.filter(|_| cell.current).map(|at| hop("verified", known(at)));
    let refused = cell.refused_at.map(|at| hop("refused", at));
    verified.into_iter().chain(refused).collect()
}

/// The stages that a fact tells of a revision, and whether it is the last one of its target.
fn stages(
    event: &Event,
    revision: Revision,
    at: Timestamp,
) -> Option<(Vec<(&'static str, Timestamp)>, bool)> {
    let of = |fact: &DeploymentFact| fact.revision >= revision;
    let reached = |fact: &DeploymentFact| {
        let stages = [
            ("rendered", fact.stages.rendered),
            ("activated", fact.stages.activated),
            ("verified", fact.stages.verified),
        ];
        stages.into_iter().filter_map(|(stage, at)| at.map(|at| (stage, at))).collect::<Vec<_>>()
    };
    match event {
        Event::DeploymentAcknowledged(fact) if of(fact) => {
            let mut all = reached(fact);
            if fact.stages.verified.is_none() {
                all.push(("verified", at));
            }
            Some((all, true))
        }
        Event::DeploymentRendered(fact) | Event::DeploymentActivated(fact) if of(fact) => {
            Some((reached(fact), false))
        }
        Event::DeploymentRejected(fact) | Event::DeploymentFailed(fact) if of(fact) => {
            Some((vec![("refused", at)], false))
        }
        _ => None,
    }
}

/// What [`retry`] would do; none when no deployment is left to try.
///
/// # Errors
/// When the database does not answer.
pub async fn plan_retry(
    pool: &PgPool,
    domain: DomainId,
    revision: Revision,
) -> Result<Option<Plan>, sqlx::Error> {
    let query = sqlx::query(sql::RETRYABLE).bind(domain.as_uuid()).bind(revision.get());
    let (mut targets, mut diff) = (Vec::new(), Vec::new());
    for row in query.fetch_all(pool).await? {
        let (target, attempts): (String, i32) = (row.try_get(0)?, row.try_get(1)?);
        diff.push(json!({"path": format!("/targets/{target}/attempts"), "before": attempts, "after": 0}));
        targets.push(target);
    }
    if targets.is_empty() {
        return Ok(None);
    }
    let (warnings, guards) = (Vec::new(), Vec::new());
    Ok(Some(Plan { changed: true, diff, warnings, guards, targets, if_match: None, not_restored: None }))
}

/// Has the lagging deployments of an operation tried at once; gives how many there were.
///
/// # Errors
/// When the database does not answer.
pub async fn retry(pool: &PgPool, domain: DomainId, revision: Revision) -> Result<u64, sqlx::Error> {
    let query = sqlx::query(sql::RETRY).bind(domain.as_uuid()).bind(revision.get());
    Ok(query.execute(pool).await?.rows_affected())
}
