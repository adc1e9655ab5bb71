//! A backend that holds the tail of the log and stands still (a frozen disk) stops
//! every writer, and a client that stands still (a stopped process, a network that
//! is gone) keeps the locks of the streams it was about to write. This frees both
//! from another connection: the backend is ended, its batch rolls back, and its
//! caller finds out that it does not stand and decides again.

use super::sql;
use sqlx::postgres::PgPool;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How long a batch may hold the tail.
pub const TAIL_HELD_MAX: Duration = Duration::from_secs(5);

/// How long a client may hold streams without moving.
pub const STREAMS_HELD_MAX: Duration = Duration::from_secs(5);

/// How often that is looked at.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Watches until cancelled.
pub(super) async fn run(pool: PgPool, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(LOOK_INTERVAL) => {}
        }
        free(&pool, sql::FREE_TAIL, TAIL_HELD_MAX, "the tail of the log").await;
        free(&pool, sql::FREE_STREAMS, STREAMS_HELD_MAX, "streams").await;
    }
}

async fn free(pool: &PgPool, text: &'static str, after: Duration, what: &str) {
    match sqlx::query(text).bind(after.as_secs_f64()).execute(pool).await {
        Ok(done) if done.rows_affected() > 0 => {
            tracing::error!(backends = done.rows_affected(), "ended a backend that held {what}");
        }
        Ok(_) => {}
        Err(error) => tracing::debug!(%error, "the watchdog cannot look; trying again"),
    }
}
