//! The head of the log as this process knows it. The committer moves it at once;
//! a listener and a poll move it for what other processes append. A wake-up only
//! means "read from your cursor": every one of them may be lost.

use super::sql;
use headwater_events::ids::Position;
use sqlx::postgres::{PgListener, PgPool};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// How often the head is read though nobody woke us.
pub const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// How long a lost listener waits before it connects again.
const RECONNECT_PAUSE: Duration = Duration::from_secs(1);

/// The highest position that is known to be committed.
#[derive(Debug, Clone)]
pub struct Head(Arc<watch::Sender<Position>>);

impl Default for Head {
    fn default() -> Self {
        Self(Arc::new(watch::channel(Position::ZERO).0))
    }
}

impl Head {
    /// Moves the head forward; it never goes back.
    pub fn advance(&self, to: Position) {
        self.0.send_if_modified(|head| {
            let moved = to > *head;
            if moved {
                *head = to;
            }
            moved
        });
    }

    /// The head now.
    pub fn get(&self) -> Position {
        *self.0.borrow()
    }

    /// Wakes at every move.
    pub fn subscribe(&self) -> watch::Receiver<Position> {
        self.0.subscribe()
    }

    /// Follows what other processes append, until cancelled.
    pub async fn follow(self, pool: PgPool, stop: CancellationToken) {
        let mut listener: Option<PgListener> = None;
        while !stop.is_cancelled() {
            if listener.is_none() {
                listener = listen(&pool).await;
            }
            match sqlx::query_scalar::<_, i64>(sql::HEAD).fetch_one(&pool).await {
                Ok(position) => self.advance(Position::new(position)),
                Err(error) => tracing::warn!(%error, "the head of the log cannot be read; trying again"),
            }
            let lost = tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(POLL_INTERVAL) => false,
                lost = heard(&mut listener) => lost,
            };
            if lost {
                listener = None;
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = tokio::time::sleep(RECONNECT_PAUSE) => {}
                }
            }
        }
    }
}

async fn listen(pool: &PgPool) -> Option<PgListener> {
    let attempt = async {
        let mut listener = PgListener::connect_with(pool).await?;
        listener.listen("headwater_log").await?;
        Ok::<_, sqlx::Error>(listener)
    };
    attempt.await.inspect_err(|error| tracing::debug!(%error, "no listener; polling alone")).ok()
}

/// Waits for a notification; true when the connection is lost.
async fn heard(listener: &mut Option<PgListener>) -> bool {
    match listener {
        Some(listener) => listener.recv().await.is_err(),
        None => std::future::pending().await,
    }
}
