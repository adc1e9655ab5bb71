//! The board of a page: read before the fold, written after it.

use super::change::{Board, Ending, Operation, State, Target};
use super::sql;
use crate::desired::EDGE_KINDS;
use crate::follow::Logged;
use chrono::{DateTime, Utc};
use headwater_events::event::Event;
use headwater_events::ids::{ClusterId, DomainId, OperationId, Revision};
use sqlx::Row;
use sqlx::postgres::PgConnection;
use std::collections::BTreeSet;
use uuid::Uuid;

/// Reads what a page may touch.
pub(super) async fn load(transaction: &mut PgConnection, page: &[Logged]) -> Result<Board, sqlx::Error> {
    let domains: BTreeSet<Uuid> =
        page.iter().filter_map(|l| l.recorded.domain.as_ref().map(|domain| domain.0.as_uuid())).collect();
    let domains: Vec<Uuid> = domains.into_iter().collect();
    let named: Vec<Uuid> = page.iter().filter_map(|l| l.recorded.operation.map(|id| id.as_uuid())).collect();
    // Only when a target leaves, operations of domains that the page does not name may end.
    let all = page.iter().any(|logged| matches!(logged.event, Event::ClusterDisabled(_)));
    let mut board = Board::default();
    for row in sqlx::query(sql::TARGETS).fetch_all(&mut *transaction).await? {
        let target = Target { name: row.try_get(1)?, enabled: row.try_get(2)? };
        board.targets.insert(ClusterId::from_uuid(row.try_get(0)?), target);
    }
    let query = sqlx::query(sql::OPERATIONS).bind(&domains).bind(&named).bind(all);
    for row in query.fetch_all(&mut *transaction).await? {
        let state: &str = row.try_get(4)?;
        let operation = Operation {
            domain: row.try_get::<Option<Uuid>, _>(1)?.map(DomainId::from_uuid),
            cluster: row.try_get::<Option<Uuid>, _>(2)?.map(ClusterId::from_uuid),
            awaits_edges: EDGE_KINDS.contains(&row.try_get(6)?),
            revision: Revision::new(row.try_get(3)?),
            state: State::from_name(state).unwrap_or(State::Pending),
            served: row.try_get(5)?,
            ending: Ending::default(),
        };
        board.insert(OperationId::from_uuid(row.try_get(0)?), operation);
    }
    let query = sqlx::query(sql::VERIFIED).bind(&domains).bind(all);
    for row in query.fetch_all(&mut *transaction).await? {
        let key = (DomainId::from_uuid(row.try_get(0)?), ClusterId::from_uuid(row.try_get(1)?));
        board.verified.insert(key, Revision::new(row.try_get(2)?));
    }
    Ok(board)
}

/// Writes what the fold changed.
pub(super) async fn save(transaction: &mut PgConnection, board: &Board) -> Result<(), sqlx::Error> {
    begin(transaction, board).await?;
    update(transaction, board).await?;
    if !board.touched.verified.is_empty() {
        let keys = &board.touched.verified;
        let revision = |key| board.verified.get(key).map_or(0, |revision| revision.get());
        sqlx::query(sql::PUT_VERIFIED)
            .bind(keys.iter().map(|key| key.0.as_uuid()).collect::<Vec<_>>())
            .bind(keys.iter().map(|key| key.1.as_uuid()).collect::<Vec<_>>())
            .bind(keys.iter().map(revision).collect::<Vec<i64>>())
            .execute(&mut *transaction)
            .await?;
    }
    let gone: Vec<_> = board.touched.targets.iter().filter(|id| !board.targets.contains_key(*id)).collect();
    if !gone.is_empty() {
        let gone: Vec<_> = gone.into_iter().map(|id| id.as_uuid()).collect();
        sqlx::query(sql::DROP_VERIFIED).bind(&gone).execute(&mut *transaction).await?;
        sqlx::query(sql::DROP_TARGETS).bind(&gone).execute(&mut *transaction).await?;
    }
    let targets: Vec<_> =
        board.touched.targets.iter().filter_map(|id| board.targets.get(id).map(|t| (id, t))).collect();
    if !targets.is_empty() {
        sqlx::query(sql::PUT_TARGETS)
            .bind(targets.iter().map(|(id, _)| id.as_uuid()).collect::<Vec<_>>())
            .bind(targets.iter().map(|(_, t)| t.name.clone()).collect::<Vec<_>>())
            .bind(targets.iter().map(|(_, t)| t.enabled).collect::<Vec<_>>())
            .execute(&mut *transaction)
            .await?;
    }
    Ok(())
}

async fn begin(transaction: &mut PgConnection, board: &Board) -> Result<(), sqlx::Error> {
    let rows: Vec<_> = board.begun.values().collect();
    if rows.is_empty() {
        return Ok(());
    }
    sqlx::query(sql::BEGIN)
        .bind(rows.iter().map(|o| o.id.as_uuid()).collect::<Vec<_>>())
        .bind(rows.iter().map(|o| o.kind.to_owned()).collect::<Vec<_>>())
        .bind(rows.iter().map(|o| o.domain.map(|id| id.as_uuid())).collect::<Vec<_>>())
        .bind(rows.iter().map(|o| o.name.clone()).collect::<Vec<_>>())
        .bind(rows.iter().map(|o| o.tenant.map(|id| id.as_uuid())).collect::<Vec<_>>())
        .bind(rows.iter().map(|o| o.revision.get()).collect::<Vec<_>>())
        .bind(rows.iter().map(|o| o.actor).collect::<Vec<_>>())
        .bind(rows.iter().map(|o| DateTime::<Utc>::from(o.at)).collect::<Vec<_>>())
        .execute(transaction)
        .await
        .map(|_| ())
}

async fn update(transaction: &mut PgConnection, board: &Board) -> Result<(), sqlx::Error> {
    let rows: Vec<_> =
        board.touched.operations.iter().filter_map(|id| board.operations.get(id).map(|o| (id, o))).collect();
    if rows.is_empty() {
        return Ok(());
    }
    let json = |value: Option<serde_json::Value>| value.map(|value| value.to_string());
    let partial = |o: &Operation| serde_json::json!(o.ending.partial).to_string();
    let cells = |o: &Operation| serde_json::json!(o.ending.cells).to_string();
    let warnings = |o: &Operation| serde_json::json!(o.ending.warnings).to_string();
    let error = |o: &Operation| json(o.ending.error.as_ref().map(|error| serde_json::json!(error)));
    let result = |o: &Operation| json(o.ending.result.as_ref().map(|result| serde_json::json!(result)));
    sqlx::query(sql::UPDATE)
        .bind(rows.iter().map(|(id, _)| id.as_uuid()).collect::<Vec<_>>())
        .bind(rows.iter().map(|(_, o)| o.state.name().to_owned()).collect::<Vec<_>>())
        .bind(rows.iter().map(|(_, o)| o.served).collect::<Vec<_>>())
        .bind(rows.iter().map(|(_, o)| o.ending.superseded_by.map(|id| id.as_uuid())).collect::<Vec<_>>())
        .bind(rows.iter().map(|(_, o)| partial(o)).collect::<Vec<_>>())
        .bind(rows.iter().map(|(_, o)| error(o)).collect::<Vec<_>>())
        .bind(rows.iter().map(|(_, o)| o.ending.at.map(DateTime::<Utc>::from)).collect::<Vec<_>>())
        .bind(rows.iter().map(|(_, o)| o.cluster.map(|id| id.as_uuid())).collect::<Vec<_>>())
        .bind(rows.iter().map(|(_, o)| result(o)).collect::<Vec<_>>())
        .bind(rows.iter().map(|(_, o)| cells(o)).collect::<Vec<_>>())
        .bind(rows.iter().map(|(_, o)| warnings(o)).collect::<Vec<_>>())
        .execute(transaction)
        .await
        .map(|_| ())
}
