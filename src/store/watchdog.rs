//! A backend that holds the tail of the log and stands still (a frozen disk, a
//! stopped process) stops every writer. This frees the log from a second
//! connection: the stuck backend is ended, its batch rolls back, and its caller
//! calls again with the same batch id.

use super::sql;
use sqlx::postgres::PgPool;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How long a batch may hold the tail.
pub const TAIL_HELD_MAX: Duration = Duration::from_secs(5);

/// How often that is looked at.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Watches until cancelled.
pub(super) async fn run(pool: PgPool, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(LOOK_INTERVAL) => {}
        }
        let freed = sqlx::query(sql::FREE_TAIL).bind(TAIL_HELD_MAX.as_secs_f64()).execute(&pool).await;
        match freed {
            Ok(done) if done.rows_affected() > 0 => {
                tracing::error!(
                    backends = done.rows_affected(),
                    "ended a backend that held the tail of the log"
                );
            }
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "the watchdog cannot look; trying again"),
        }
    }
}
