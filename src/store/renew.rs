//! A new identity for a log that was restored. Readers that saw events which the restored log lost must not go on as
//! if theirs were its positions: the log's id is part of every event id and every cursor, so a new one resets them.

use super::sql;
use headwater_events::ids::LogId;
use sqlx::postgres::PgPool;
use uuid::Uuid;

/// Gives the log a new id. Zones on targets are not touched: each is judged by its hash chain.
///
/// # Errors
/// When the database does not answer.
pub async fn renew_log_id(pool: &PgPool) -> Result<LogId, sqlx::Error> {
    let query = sqlx::query_scalar(sql::RENEW_LOG).bind(Uuid::new_v4());
    query.fetch_one(pool).await.map(LogId::from_uuid)
}
