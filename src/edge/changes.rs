//! Wakes long polls: the newest change that `edge` has taken in, as this process knows it. Where this process takes it in
//! itself, that wakes at once; where another one does, it is looked for while `edge` is behind. A wake-up that is lost
//! costs a poll, never a change.

use sqlx::postgres::PgPool;
use std::time::Duration;
use tokio::sync::watch;

use super::sql;
use crate::app::App;

/// How often it is looked at while nothing happens.
const POLL: Duration = Duration::from_millis(500);
/// How often it is looked at while `edge` is behind the log.
const CHASE: Duration = Duration::from_millis(50);
/// How often it is looked at that closely, one after the other; then something stands still.
const CHASES_MAX_TIMES: u32 = 100;

/// Follows until the process stops.
pub(super) fn follow(app: &App) -> watch::Receiver<i64> {
    let (newest, wakes) = watch::channel(0);
    let app = app.clone();
    tokio::spawn(async move {
        let mut log = app.commit.head().subscribe();
        let mut taken_in = app.published.subscribe();
        let mut chases = 0;
        while !app.stop.is_cancelled() {
            let cursor = look(&app.pool, &newest).await;
            let is_behind = cursor.is_some_and(|cursor| cursor < log.borrow_and_update().get());
            chases = if is_behind { chases + 1 } else { 0 };
            let pause = if is_behind && chases < CHASES_MAX_TIMES { CHASE } else { POLL };
            tokio::select! {
                () = app.stop.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
                moved = taken_in.changed() => if moved.is_err() { return },
                moved = log.changed(), if !is_behind => if moved.is_err() { return },
            }
        }
    });
    wakes
}

async fn look(pool: &PgPool, newest: &watch::Sender<i64>) -> Option<i64> {
    let found = sqlx::query_as::<_, (i64, i64)>(sql::NEWEST).fetch_one(pool).await;
    let (sequence, cursor) = found
        .inspect_err(|error| tracing::debug!(%error, "the newest change of edges cannot be read"))
        .ok()?;
    newest.send_if_modified(|known| std::mem::replace(known, sequence) != sequence);
    Some(cursor)
}
