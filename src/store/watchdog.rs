//! A backend that holds the tail of the log and stands still (a frozen disk) stops
//! every writer, and a client that stands still (a stopped process, a network that
//! is gone) keeps the locks of the streams it was about to write. This frees both
//! from another connection: the backend is ended, its batch rolls back, and its
//! caller finds out that it does not stand and decides again.

use super::sql;
use chrono::{DateTime, Utc};
use sqlx::postgres::PgPool;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// How long a batch may hold the tail.
pub const TAIL_HELD_MAX: Duration = Duration::from_secs(5);

/// How long a client may hold streams without moving. A process that decides a
/// big batch on a busy machine does not move either, so this is generous.
pub const STREAMS_HELD_MAX: Duration = Duration::from_secs(20);

/// How often that is looked at.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// A backend and the beginning of the call that it is in.
type Call = (i32, DateTime<Utc>);

/// A call that was seen at the tail, and when first. The call may be much older:
/// the time it spent on anything else is not held against it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen(Call, Instant);

impl Seen {
    /// What is known after another look.
    fn after(before: Option<Self>, holder: Option<Call>, now: Instant) -> Option<Self> {
        holder.map(|call| before.filter(|seen| seen.0 == call).unwrap_or(Self(call, now)))
    }
}

/// Watches until cancelled.
pub(super) async fn run(pool: PgPool, stop: CancellationToken) {
    let mut seen = None;
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(LOOK_INTERVAL) => {}
        }
        match free_tail(&pool, seen).await {
            Ok(now) => seen = now,
            // What was seen stays: a look that failed does not let anybody off.
            Err(error) => tracing::debug!(%error, "the watchdog cannot look; trying again"),
        }
        free_streams(&pool).await;
    }
}

async fn free_tail(pool: &PgPool, before: Option<Seen>) -> Result<Option<Seen>, sqlx::Error> {
    let holder: Option<Call> = sqlx::query_as(sql::TAIL_HOLDER).fetch_optional(pool).await?;
    let seen = Seen::after(before, holder, Instant::now());
    if let Some(Seen((pid, call), since)) = seen
        && since.elapsed() >= TAIL_HELD_MAX
    {
        let done = sqlx::query(sql::FREE_TAIL).bind(pid).bind(call).execute(pool).await?;
        if done.rows_affected() > 0 {
            tracing::error!(pid, "ended a backend that held the tail of the log");
        }
    }
    Ok(seen)
}

async fn free_streams(pool: &PgPool) {
    let after = STREAMS_HELD_MAX.as_secs_f64();
    match sqlx::query(sql::FREE_STREAMS).bind(after).execute(pool).await {
        Ok(done) if done.rows_affected() > 0 => {
            tracing::error!(backends = done.rows_affected(), "ended a backend that held streams");
        }
        Ok(_) => {}
        Err(error) => tracing::debug!(%error, "the watchdog cannot look; trying again"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_call_is_held_against_a_backend() {
        let (first, later) = (Instant::now(), Instant::now() + TAIL_HELD_MAX);
        let call = (7, DateTime::<Utc>::UNIX_EPOCH);
        let next = (7, call.1 + TAIL_HELD_MAX);
        let seen = Seen::after(None, Some(call), first);
        assert_eq!(seen, Some(Seen(call, first)));
        assert_eq!(Seen::after(seen, Some(call), later), seen);
        assert_eq!(Seen::after(seen, Some(next), later), Some(Seen(next, later)));
        assert_eq!(Seen::after(seen, None, later), None);
    }
}
