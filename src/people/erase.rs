//! Erases where people came from. An event holds a digest of the client's address and program alone, under a salt that
//! stands beside them; without that row the digest says nothing, and the chain of the log still holds. Rows go when
//! their time is over, and those of a person when it is deleted.
//!
//! What must hold: level-triggered and re-entrant: who is to be erased is told by the log, and how far that has come
//! stands in one statement with the erasure; a row is of one actor alone, so nobody else's goes along.

use std::time::Duration;

use chrono::{DateTime, Utc};
use sqlx::postgres::PgPool;
use uuid::Uuid;

use super::sql;
use crate::app::App;

/// How often it is looked for what is to be erased.
const LOOK_INTERVAL: Duration = Duration::from_secs(30);
/// Events of a person whose clients are erased at once.
const BATCH_MAX_EVENTS: i64 = 5_000;
/// Rows that are too old and are removed at once.
const OLD_MAX_ROWS: i64 = 10_000;

/// Looks until the process stops.
pub async fn run(app: App) {
    while !app.stop.is_cancelled() {
        if let Err(error) = look(&app).await {
            tracing::warn!(%error, "addresses of clients that are to be erased are still kept");
        }
        tokio::select! {
            () = app.stop.cancelled() => return,
            () = tokio::time::sleep(LOOK_INTERVAL) => {}
        }
    }
}

/// Erases what is due now; gives how many rows.
///
/// # Errors
/// When the database does not answer.
pub async fn look(app: &App) -> Result<u64, sqlx::Error> {
    let mut erased = 0;
    let oldest = DateTime::<Utc>::from(app.clock.now()) - app.config.accounts.clients;
    loop {
        let gone =
            sqlx::query(sql::FORGET_CLIENTS).bind(oldest).bind(OLD_MAX_ROWS).execute(&app.pool).await?;
        erased += gone.rows_affected();
        if gone.rows_affected() < OLD_MAX_ROWS.unsigned_abs() {
            break;
        }
    }
    sqlx::query(sql::ASK_ERASURES).execute(&app.pool).await?;
    let open: Vec<Uuid> = sqlx::query_scalar(sql::OPEN_ERASURES).fetch_all(&app.pool).await?;
    for user in open {
        erased += person(&app.pool, user).await?;
    }
    Ok(erased)
}

async fn person(pool: &PgPool, user: Uuid) -> Result<u64, sqlx::Error> {
    let mut erased: u64 = 0;
    loop {
        let (events, rows): (i64, i64) =
            sqlx::query_as(sql::ERASE_CLIENTS).bind(user).bind(BATCH_MAX_EVENTS).fetch_one(pool).await?;
        erased = erased.saturating_add(rows.unsigned_abs());
        if events < BATCH_MAX_EVENTS {
            sqlx::query(sql::END_ERASURE).bind(user).execute(pool).await?;
            return Ok(erased);
        }
    }
}
