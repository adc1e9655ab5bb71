//! Who works on a cluster, or on a lane of operations: a lease by the database's clock. It keeps replicas out of each
//! other's way; what keeps a late worker from doing harm is the fence in the target.
//!
//! The owner also holds a session lock on a connection of its own. A process that was killed loses it at once, so its
//! successor need not wait until the lease ends; one that merely stands still keeps it, and loses the lease by time. Its
//! successor ends that session: otherwise it would still hold the lock when it goes on, and take the lease back.

use super::fault::DeployError;
use super::sql;
use sqlx::postgres::{PgConnection, PgPool};
use sqlx::{ConnectOptions, Connection};
use std::time::Duration;
use tokio::time::Instant;
use uuid::Uuid;

/// How long a lease lasts unless it is renewed.
pub const LEASE_SECONDS: u64 = 30;
/// How often it is renewed.
pub const RENEW_INTERVAL_SECONDS: u64 = 10;
/// What is left of a lease when its owner stops by itself.
const MARGIN_SECONDS: u64 = 5;

/// One lease, held or wanted.
#[derive(Debug)]
pub struct Lease {
    name: String,
    owner: Uuid,
    session: Option<PgConnection>,
    renewed: Option<Instant>,
    looked: Option<Instant>,
}

impl Lease {
    /// A lease that nobody was asked for yet.
    pub fn new(name: String) -> Self {
        Self { name, owner: Uuid::now_v7(), session: None, renewed: None, looked: None }
    }

    /// Its name and its owner: what is written only while it is held is written under them.
    pub fn holder(&self) -> (&str, Uuid) {
        (&self.name, self.owner)
    }

    /// Whether it is held, by our own clock and with a margin.
    pub fn is_held(&self) -> bool {
        self.renewed.is_some_and(|at| at.elapsed() < Duration::from_secs(LEASE_SECONDS - MARGIN_SECONDS))
    }

    /// Takes or renews it where it is time to; says whether it is held.
    ///
    /// # Errors
    /// When the control database does not answer.
    pub async fn keep(&mut self, pool: &PgPool) -> Result<bool, DeployError> {
        let interval = Duration::from_secs(if self.is_held() { RENEW_INTERVAL_SECONDS } else { 1 });
        if self.looked.is_some_and(|at| at.elapsed() < interval) {
            return Ok(self.is_held());
        }
        let asked = Instant::now();
        let alone = self.hold_session(pool).await.map_err(DeployError::control)?;
        let fence: Option<i64> = sqlx::query_scalar(sql::LEASE)
            .bind(&self.name)
            .bind(self.owner)
            .bind(Duration::from_secs(LEASE_SECONDS).as_secs_f64())
            .bind(alone)
            .fetch_optional(pool)
            .await
            .map_err(DeployError::control)?;
        self.looked = Some(asked);
        self.renewed = fence.map(|_| asked);
        if fence.is_some() && !alone {
            let broken = sqlx::query(sql::LEASE_BREAK).bind(&self.name).execute(pool).await;
            broken.map_err(DeployError::control)?;
            self.hold_session(pool).await.map_err(DeployError::control)?;
        }
        Ok(self.is_held())
    }

    /// Whether the session lock is ours; then no other process that lives is an owner.
    async fn hold_session(&mut self, pool: &PgPool) -> Result<bool, sqlx::Error> {
        if let Some(session) = &mut self.session {
            if session.ping().await.is_ok() {
                return Ok(true);
            }
            self.session = None;
        }
        let mut session = pool.connect_options().connect().await?;
        let held: bool =
            sqlx::query_scalar(sql::LEASE_ALIVE).bind(&self.name).fetch_one(&mut session).await?;
        if held {
            self.session = Some(session);
        } else {
            session.close().await?;
        }
        Ok(held)
    }

    /// Gives it back, so that another can go on at once.
    pub async fn end(mut self, pool: &PgPool) {
        let ended = sqlx::query(sql::LEASE_END).bind(&self.name).bind(self.owner).execute(pool).await;
        if let Err(error) = ended {
            tracing::debug!(%error, lease = self.name, "the lease ends by itself");
        }
        if let Some(session) = self.session.take()
            && let Err(error) = session.close().await
        {
            tracing::debug!(%error, lease = self.name, "the lease's connection was gone already");
        }
    }
}
