//! Ends operations in ways that the facts of the log alone do not tell: a target
//! is out of service, cells have taken it in, or the deadline has passed. It only submits what it decided;
//! the log is asked once more whether the operation is still open.

use super::sql;
use crate::app::App;
use crate::command::{Command, Meta};
use chrono::{DateTime, Utc};
use futures_util::future::join_all;
use headwater_events::actor::Caller;
use headwater_events::admin::AdminCommand;
use headwater_events::dns::DomainName;
use headwater_events::event::{CellRef, OperationError, OperationFinished};
use headwater_events::ids::{ClusterId, DomainId, OperationId, TenantId};
use headwater_events::time::Timestamp;
use serde::Deserialize;
use sqlx::Row;
use sqlx::types::Json;
use std::time::Duration;
use uuid::Uuid;

/// How often open operations are looked at.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Open operations that are looked at together.
const PAGE_MAX_OPERATIONS: i64 = 200;
/// Operations that one look ends, about.
const LOOK_MAX_ENDED: usize = 200;
/// Pages of one look; the next one goes on behind them. However many operations wait for a target that does not come,
/// a look costs no more.
const LOOK_MAX_PAGES: usize = 10;
/// How long the leader leads without saying so again.
const LEASE_SECONDS: f64 = 5.0;
/// The lease of the one leader.
const LEASE_NAME: &str = "operations.deadline";

/// A target of an operation, as it is now.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct TargetView {
    /// Which.
    pub id: ClusterId,
    /// Its name.
    pub name: String,
    /// Whether it has verified the operation's revision or a later one.
    pub verified: bool,
    /// Whether it is deployed to.
    pub enabled: bool,
    /// Whether it is enabled and was reached within the last 60 s.
    pub in_service: bool,
    /// The deployment's state.
    pub state: Option<String>,
    /// The deployment's last error.
    pub error: Option<String>,
    /// Tries so far.
    pub attempts: Option<i64>,
    /// When it is tried again.
    pub next_attempt_at: Option<String>,
}

/// A cell that an operation waits for, as it is now.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct CellView {
    /// Its edge.
    pub edge: Uuid,
    /// Its number there.
    pub cell: i32,
    /// The edge's name.
    pub name: String,
    /// Whether its edge is heard of, and it is neither disabled nor drained.
    pub in_service: bool,
    /// Whether it has taken in the operation's event.
    pub current: bool,
    /// When it told last how far it has come.
    #[serde(default)]
    pub at: Option<Timestamp>,
    /// Why it refused the operation's revision or a later one.
    pub refused: Option<String>,
    /// When it did.
    #[serde(default)]
    pub refused_at: Option<Timestamp>,
    /// Whether it has done so only after DNS had waited for it in vain.
    #[serde(default)]
    pub late: Option<bool>,
}

/// What edges have made of an operation.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct EdgesView {
    /// Whether the operation's event has been rendered.
    pub rendered: bool,
    /// Why nothing could be published.
    pub fault: Option<String>,
    /// The cells that the domain is placed on.
    pub cells: Vec<CellView>,
}

impl CellView {
    pub(super) fn shown(&self) -> String {
        format!("{}/{}", self.name, self.cell)
    }
}

/// Runs until the process stops.
pub async fn run(app: App) {
    let (owner, mut place) = (Uuid::now_v7(), Place::default());
    while !app.stop.is_cancelled() {
        let more = match look(&app, owner, &mut place).await {
            Ok(more) => more,
            Err(error) => {
                tracing::warn!(%error, "open operations cannot be looked at");
                false
            }
        };
        if !more {
            tokio::select! {
                () = app.stop.cancelled() => return,
                () = tokio::time::sleep(LOOK_INTERVAL) => {}
            }
        }
    }
}

/// Behind which open operation the next look begins.
#[derive(Debug, Clone, Copy, Default)]
struct Place {
    accepted: DateTime<Utc>,
    operation: Uuid,
}

/// One look; true when a full set was ended and there may be more.
async fn look(app: &App, owner: Uuid, place: &mut Place) -> Result<bool, sqlx::Error> {
    let lease: Option<i64> = sqlx::query_scalar(sql::LEASE)
        .bind(LEASE_NAME)
        .bind(owner)
        .bind(LEASE_SECONDS)
        .fetch_optional(&app.pool)
        .await?;
    if lease.is_none() {
        return Ok(false);
    }
    let deadline = app.config.operations.deadline.as_secs_f64();
    let mut commands = Vec::new();
    for _ in 0..LOOK_MAX_PAGES {
        let (ids, is_last) = next_page(app, place).await?;
        if !ids.is_empty() {
            verdicts(app, deadline, &ids, &mut commands).await?;
        }
        if is_last || commands.len() >= LOOK_MAX_ENDED {
            break;
        }
    }
    for row in sqlx::query(sql::CLUSTERS).bind(deadline).fetch_all(&app.pool).await? {
        let (id, cluster) = (OperationId::from_uuid(row.try_get(0)?), ClusterId::from_uuid(row.try_get(1)?));
        let (name, error): (String, Option<String>) = (row.try_get(2)?, row.try_get(5)?);
        if let Some(finished) = cluster_verdict(id, cluster, &name, row.try_get(3)?, row.try_get(4)?, error) {
            commands.push(AdminCommand::FinishOperation { domain: None, tenant: None, finished });
        }
    }
    let full = commands.len() >= LOOK_MAX_ENDED;
    let submitted = commands
        .into_iter()
        .map(|command| app.commit.submit(Caller::system(), Command::admin(command), Meta::internal()));
    let mut all_ended = true;
    for outcome in join_all(submitted).await {
        if let Err(error) = outcome {
            tracing::warn!(%error, "an operation could not be ended; trying again");
            all_ended = false;
        }
    }
    // The projection has to see what was just ended before another look is worth it.
    Ok(full && all_ended && wait_for_projection(app).await)
}

/// The next open operations, and whether they are the last: then the next look begins anew.
async fn next_page(app: &App, place: &mut Place) -> Result<(Vec<Uuid>, bool), sqlx::Error> {
    let query = sqlx::query_as::<_, (DateTime<Utc>, Uuid)>(sql::OPEN).bind(place.accepted);
    let found = query.bind(place.operation).bind(PAGE_MAX_OPERATIONS).fetch_all(&app.pool).await?;
    let is_last = i64::try_from(found.len()).is_ok_and(|count| count < PAGE_MAX_OPERATIONS);
    let last = found.last().filter(|_| !is_last);
    *place = last.map_or_else(Place::default, |(accepted, operation)| Place {
        accepted: *accepted,
        operation: *operation,
    });
    Ok((found.into_iter().map(|(_, id)| id).collect(), is_last))
}

/// How those of these operations end that have to.
async fn verdicts(
    app: &App,
    deadline: f64,
    ids: &[Uuid],
    commands: &mut Vec<AdminCommand>,
) -> Result<(), sqlx::Error> {
    for row in sqlx::query(sql::OVERDUE).bind(deadline).bind(ids).fetch_all(&app.pool).await? {
        let operation = OperationId::from_uuid(row.try_get(0)?);
        let Json(targets): Json<Vec<TargetView>> = row.try_get(5)?;
        let edges: Option<Json<EdgesView>> = row.try_get(6)?;
        let edges = edges.as_ref().map(|Json(edges)| edges);
        let Some(finished) = verdict(operation, &targets, edges, row.try_get(4)?) else { continue };
        let domain: Option<&str> = row.try_get(2)?;
        let name = domain.and_then(|name| DomainName::parse(name).ok());
        commands.push(AdminCommand::FinishOperation {
            domain: row.try_get::<Option<Uuid>, _>(1)?.map(DomainId::from_uuid).zip(name),
            tenant: row.try_get::<Option<Uuid>, _>(3)?.map(TenantId::from_uuid),
            finished,
        });
    }
    Ok(())
}

async fn wait_for_projection(app: &App) -> bool {
    let head = app.commit.head().get();
    let mut moved = app.progress.subscribe();
    let caught_up = moved.wait_for(|position| *position >= head);
    tokio::time::timeout(LOOK_INTERVAL, caught_up).await.is_ok_and(|found| found.is_ok())
}

/// How an operation on a domain ends, if it has to: when every DNS cluster in service has verified it, and where edges
/// carry it out too, every cell in service has taken it in. Without any such cell it depends on DNS alone, and says so.
pub fn verdict(
    operation: OperationId,
    targets: &[TargetView],
    edges: Option<&EdgesView>,
    overdue: bool,
) -> Option<OperationFinished> {
    let cells: &[CellView] = edges.map_or(&[], |edges| &edges.cells);
    let away: Vec<ClusterId> =
        targets.iter().filter(|t| !t.in_service && !t.verified).map(|target| target.id).collect();
    let out = cells.iter().filter(|cell| !cell.in_service && !cell.current);
    let out = out.map(|cell| CellRef { edge: cell.edge, cell: cell.cell, name: cell.shown() }).collect();
    let finished = |state: &str, error, warnings| OperationFinished {
        operation,
        state: state.to_owned(),
        partial: away,
        error,
        result: None,
        cells: out,
        warnings,
    };
    if let Some(error) = edges.and_then(rejected) {
        return Some(finished("failed", Some(error), Vec::new()));
    }
    let in_service = || targets.iter().filter(|target| target.in_service);
    let dns_done = in_service().next().is_some() && in_service().all(|target| target.verified);
    let edges_done = edges.is_none_or(|edges| {
        edges.rendered && cells.iter().filter(|cell| cell.in_service).all(|cell| cell.current)
    });
    if dns_done && edges_done {
        let alone = edges.is_some() && !cells.iter().any(|cell| cell.in_service);
        let mut warnings = if alone { vec![NO_CELL.to_owned()] } else { Vec::new() };
        let late =
            cells.iter().filter(|cell| cell.in_service && cell.late == Some(true)).map(CellView::shown);
        let late: Vec<String> = late.collect();
        if !late.is_empty() {
            warnings.push(format!("{DNS_FIRST}: {}", late.join(", ")));
        }
        return Some(finished("succeeded", None, warnings));
    }
    if !overdue {
        return None;
    }
    let error = late(targets, edges);
    Some(finished("failed", Some(error), Vec::new()))
}

/// Said of an operation that no cell could carry out.
const NO_CELL: &str =
    "no cell is in service: DNS alone has verified this, and edges take it in when they are back";

/// Said of an operation that DNS did not wait for any longer.
const DNS_FIRST: &str =
    "cells took it in more than 30 s after it was committed, DNS may have answered with it before";

/// Why edges will not take it, which no waiting changes.
fn rejected(edges: &EdgesView) -> Option<OperationError> {
    let refusal = || {
        let mut refused = edges.cells.iter().filter(|cell| cell.in_service);
        refused.find_map(|cell| Some(format!("{} refused it: {}", cell.shown(), cell.refused.as_deref()?)))
    };
    let detail = edges.fault.clone().or_else(refusal)?;
    Some(OperationError { code: "rejected".into(), detail, target: None })
}

/// Who did not follow in time.
fn late(targets: &[TargetView], edges: Option<&EdgesView>) -> OperationError {
    // Nobody waits for a disabled one.
    let lagging: Vec<&TargetView> =
        targets.iter().filter(|target| target.enabled && !target.verified).collect();
    let tell = |target: &&TargetView| {
        let service = if target.in_service { "" } else { " (out of service)" };
        let why = target.error.as_deref().or(target.state.as_deref()).unwrap_or("nothing is known of it");
        format!("{}{service}: {why}", target.name)
    };
    let mut told: Vec<String> = lagging.iter().map(tell).collect();
    if let Some(edges) = edges {
        let behind = edges.cells.iter().filter(|cell| cell.in_service && !cell.current);
        told.extend(behind.map(|cell| format!("cell {}: it has not taken it in", cell.shown())));
        if !edges.rendered {
            told.push("the projection edge: it has not come so far".to_owned());
        }
    }
    let detail = if !targets.iter().any(|target| target.enabled) {
        "no DNS cluster is enabled".to_owned()
    } else {
        format!("not verified in time by {}", told.join("; "))
    };
    OperationError {
        code: "deadline_exceeded".into(),
        detail,
        target: lagging.first().map(|target| target.id),
    }
}

/// How an operation that brings a cluster up to date ends: when every domain that is meant to be there
/// is current, or was verified since; it has no deadline while its cluster answers.
fn cluster_verdict(
    operation: OperationId,
    cluster: ClusterId,
    name: &str,
    lags: bool,
    unreached: bool,
    error: Option<String>,
) -> Option<OperationFinished> {
    if !lags {
        return Some(OperationFinished {
            operation,
            state: "succeeded".into(),
            partial: Vec::new(),
            error: None,
            result: None,
            cells: Vec::new(),
            warnings: Vec::new(),
        });
    }
    if !unreached {
        return None;
    }
    let why = error.unwrap_or_else(|| "it was not reached".into());
    let error = OperationError {
        code: "deadline_exceeded".into(),
        detail: format!("{name} is out of service: {why}"),
        target: Some(cluster),
    };
    Some(OperationFinished {
        operation,
        state: "failed".into(),
        partial: vec![cluster],
        error: Some(error),
        result: None,
        cells: Vec::new(),
        warnings: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(n: u128, verified: bool, in_service: bool) -> TargetView {
        TargetView {
            id: ClusterId::from_uuid(Uuid::from_u128(n)),
            name: format!("dns-{n}"),
            verified,
            enabled: true,
            in_service,
            state: Some("failed".into()),
            error: Some("no route".into()),
            attempts: Some(3),
            next_attempt_at: None,
        }
    }

    #[test]
    fn an_operation_ends_by_its_targets_in_service_or_by_its_deadline() {
        let id = OperationId::from_uuid(Uuid::from_u128(9));
        let of = |targets: &[TargetView], overdue| verdict(id, targets, None, overdue);
        // One lags and is in service: wait; at the deadline it is named.
        let lagging = [target(1, true, true), target(2, false, true)];
        assert_eq!(of(&lagging, false), None);
        let failed = of(&lagging, true).unwrap();
        assert_eq!((failed.state.as_str(), failed.partial.len()), ("failed", 0));
        let error = failed.error.unwrap();
        assert_eq!(error.target, Some(lagging[1].id));
        assert!(error.detail.contains("dns-2: no route") && !error.detail.contains("dns-1"), "{error:?}");
        // It lags and is out of service: done without it.
        let away = [target(1, true, true), target(2, false, false)];
        let done = of(&away, false).unwrap();
        assert_eq!((done.state.as_str(), done.partial), ("succeeded", vec![away[1].id]));
        // Nobody is in service: nobody has verified it where it counts.
        assert_eq!(of(&[target(1, false, false)], false), None);
        assert_eq!(of(&[target(1, false, false)], true).unwrap().state, "failed");
        // A disabled one is out of service: it is not waited for and not blamed, but told.
        let disabled = |n, verified| TargetView { enabled: false, ..target(n, verified, false) };
        let without = [target(1, true, true), disabled(2, false), disabled(3, true)];
        let done = of(&without, false).unwrap();
        assert_eq!((done.state.as_str(), done.partial), ("succeeded", vec![without[1].id]));
        let late = of(&[target(1, false, true), disabled(2, false)], true).unwrap();
        assert_eq!(late.partial.len(), 1);
        assert!(!late.error.unwrap().detail.contains("dns-2"));
        // None is enabled: nothing is served, whatever was verified once.
        assert_eq!(of(&[], true).unwrap().error.unwrap().detail, "no DNS cluster is enabled");
        assert_eq!(of(&[disabled(1, true)], false), None);
        let none = of(&[disabled(1, true), disabled(2, false)], true).unwrap();
        assert_eq!((none.state.as_str(), none.partial.len()), ("failed", 1));
        assert_eq!(none.error.unwrap().detail, "no DNS cluster is enabled");
    }

    fn cell(n: i32, in_service: bool, current: bool) -> CellView {
        CellView {
            edge: Uuid::from_u128(7),
            cell: n,
            name: "fra1".into(),
            in_service,
            current,
            at: None,
            refused: None,
            refused_at: None,
            late: None,
        }
    }

    fn edges(cells: &[CellView]) -> EdgesView {
        EdgesView { rendered: true, fault: None, cells: cells.to_vec() }
    }

    /// Given these targets and cells, in time and after the deadline, then that.
    #[test]
    fn edges_are_waited_for_while_a_cell_is_in_service() {
        let id = OperationId::from_uuid(Uuid::from_u128(9));
        let (done, lagging) = ([target(1, true, true)], [target(1, false, true)]);
        let rows = [
            (&done, edges(&[cell(0, true, true), cell(1, true, true)]), "succeeded", "succeeded"),
            (&done, edges(&[cell(0, true, true), cell(1, true, false)]), "waits", "failed"),
            (&done, edges(&[cell(0, true, true), cell(1, false, false)]), "succeeded", "succeeded"),
            (&done, edges(&[cell(0, false, false)]), "succeeded", "succeeded"),
            (&done, edges(&[]), "succeeded", "succeeded"),
            (&lagging, edges(&[cell(0, true, true)]), "waits", "failed"),
            (&lagging, edges(&[]), "waits", "failed"),
            (&done, EdgesView { rendered: false, ..edges(&[]) }, "waits", "failed"),
            (&done, EdgesView { fault: Some("too large".into()), ..edges(&[]) }, "failed", "failed"),
        ];
        for (row, (targets, edges, in_time, late)) in rows.iter().enumerate() {
            for (overdue, expected) in [(false, in_time), (true, late)] {
                let found = verdict(id, *targets, Some(edges), overdue);
                let state = found.as_ref().map_or("waits", |finished| finished.state.as_str());
                assert_eq!(&state, expected, "row {row}, overdue {overdue}: {found:?}");
            }
        }
    }

    #[test]
    fn what_edges_did_not_do_is_said() {
        let id = OperationId::from_uuid(Uuid::from_u128(9));
        let done = [target(1, true, true)];
        let of = |edges: EdgesView, overdue| verdict(id, &done, Some(&edges), overdue).unwrap();
        // Out of service: listed, and where nobody is left, DNS alone is what it stands on.
        let partial = of(edges(&[cell(0, true, true), cell(1, false, false)]), false);
        assert_eq!(partial.cells.iter().map(|cell| cell.name.as_str()).collect::<Vec<_>>(), ["fra1/1"]);
        assert_eq!(partial.warnings, Vec::<String>::new());
        assert_eq!(of(edges(&[cell(0, false, false)]), false).warnings, [NO_CELL]);
        assert_eq!(of(edges(&[]), false).warnings, [NO_CELL]);
        // A cell that was drained after it had taken it in is not missing.
        assert_eq!(of(edges(&[cell(0, true, true), cell(1, false, true)]), false).cells, []);
        // Who lags is named; a refusal ends it at once, unless it is of a cell out of service.
        let late = of(edges(&[cell(0, true, false), cell(1, true, true)]), true).error.unwrap();
        assert!(late.detail.contains("fra1/0") && !late.detail.contains("fra1/1"), "{late:?}");
        let refusing = |in_service| CellView { refused: Some("bad".into()), ..cell(0, in_service, false) };
        let error = of(edges(&[refusing(true)]), false).error.unwrap();
        assert_eq!((error.code.as_str(), error.detail.as_str()), ("rejected", "fra1/0 refused it: bad"));
        assert_eq!(of(edges(&[refusing(false)]), false).error, None);
    }
}
