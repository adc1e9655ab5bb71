//! How many processes answer requests: each has a row with a time that it moves on, so that one that was killed stops
//! counting by itself. What bounds an account as a whole is shared among them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use uuid::Uuid;

use crate::app::App;
use crate::people::sql;

/// How long a process counts after it was last heard of.
const LIFE: Duration = Duration::from_secs(15);
/// How often it is heard of.
const BEAT_INTERVAL: Duration = Duration::from_secs(3);

/// How many there are, as far as this process knows.
#[derive(Debug, Clone)]
pub struct Replicas(Arc<AtomicU32>);

impl Default for Replicas {
    fn default() -> Self {
        Self(Arc::new(AtomicU32::new(1)))
    }
}

impl Replicas {
    /// How many there are, one at least.
    pub fn count(&self) -> u32 {
        self.0.load(Ordering::Relaxed).max(1)
    }

    /// What one of them may give of what all may give together.
    pub fn share(&self, of: u32) -> u32 {
        of.div_ceil(self.count()).max(1)
    }

    fn set(&self, count: i64) {
        self.0.store(u32::try_from(count).unwrap_or(u32::MAX).max(1), Ordering::Relaxed);
    }
}

/// Counts this process, and the others, until the process stops.
pub async fn run(app: App) {
    let owner = Uuid::now_v7();
    let name = format!("api {owner}");
    loop {
        match beat(&app, &name, owner).await {
            Ok(count) => app.replicas.set(count),
            // What was known last is the best guess.
            Err(error) => tracing::debug!(%error, "how many processes there are cannot be read"),
        }
        tokio::select! {
            () = app.stop.cancelled() => break,
            () = tokio::time::sleep(BEAT_INTERVAL) => {}
        }
    }
    if let Err(error) = sqlx::query(sql::REPLICA_END).bind(&name).execute(&app.pool).await {
        tracing::debug!(%error, "this process stops counting by itself");
    }
}

async fn beat(app: &App, name: &str, owner: Uuid) -> Result<i64, sqlx::Error> {
    let life = LIFE.as_secs_f64();
    sqlx::query(sql::REPLICA).bind(name).bind(owner).bind(life).execute(&app.pool).await?;
    sqlx::query(sql::REPLICAS_FORGET).execute(&app.pool).await?;
    sqlx::query_scalar(sql::REPLICAS).fetch_one(&app.pool).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_never_nothing() {
        let replicas = Replicas::default();
        assert_eq!((replicas.count(), replicas.share(50)), (1, 50));
        replicas.set(2);
        assert_eq!((replicas.share(50), replicas.share(1)), (25, 1));
        replicas.set(0);
        assert_eq!(replicas.count(), 1);
    }
}
