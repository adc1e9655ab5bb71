//! What a decision on an edge reads.

use super::sql;
use headwater_events::edge::{EdgeCommand, EdgeSettings, EdgeState, EdgeView};
use sqlx::Row;
use sqlx::postgres::PgConnection;
use sqlx::types::Json;
use uuid::Uuid;

/// The edge as it is, and what else this command asks about.
pub(super) async fn view(
    connection: &mut PgConnection,
    edge: Uuid,
    command: &EdgeCommand,
) -> Result<EdgeView, sqlx::Error> {
    let mut view = EdgeView { edge: state(connection, edge).await?, ..EdgeView::default() };
    if matches!(
        command,
        EdgeCommand::SetEnabled(false) | EdgeCommand::SetDrained(true) | EdgeCommand::Update(_)
    ) {
        let query = sqlx::query_scalar(sql::IS_LAST_ENDPOINT).bind(edge.to_string());
        view.is_last_endpoint = query.fetch_one(&mut *connection).await?;
    }
    if let EdgeCommand::RecordIdentity(issued) = command {
        let serial = hex::decode(&issued.serial).unwrap_or_default();
        let query = sqlx::query_scalar(sql::IDENTITY_RECORDED).bind(serial);
        view.is_recorded = query.fetch_one(connection).await?;
    }
    Ok(view)
}

/// The edge as it is; none where it is gone or never was.
pub(super) async fn state(
    connection: &mut PgConnection,
    edge: Uuid,
) -> Result<Option<EdgeState>, sqlx::Error> {
    let Some(row) = sqlx::query(sql::EDGE).bind(edge).fetch_optional(connection).await? else {
        return Ok(None);
    };
    let Json(labels) = row.try_get(3)?;
    let small = |number: i16| u8::try_from(number).unwrap_or(u8::MAX);
    let drained_cells: Vec<i16> = row.try_get(10)?;
    let addresses: Vec<String> = row.try_get(11)?;
    Ok(Some(EdgeState {
        name: row.try_get(0)?,
        settings: EdgeSettings {
            country: row.try_get(1)?,
            continent: row.try_get(2)?,
            labels,
            external_id: row.try_get(4)?,
        },
        addresses: addresses.iter().filter_map(|text| text.parse().ok()).collect(),
        cells: small(row.try_get(5)?),
        enabled: row.try_get(6)?,
        drained: row.try_get(7)?,
        drained_cells: drained_cells.into_iter().map(small).collect(),
        has_identity: row.try_get(8)?,
        is_cloned: row.try_get(9)?,
    }))
}
