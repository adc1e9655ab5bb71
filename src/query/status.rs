//! What is wrong now: reads for `GET /status`. Health is about now, so nothing here looks at the past.

use headwater_events::time::Timestamp;
use serde::Serialize;
use sqlx::Row;
use sqlx::postgres::PgPool;
use utoipa::ToSchema;
use uuid::Uuid;

use super::{at, maybe_at, sql};

/// Failing deployments that are listed, at most.
pub const FAILING_MAX_COUNT: i64 = 50;

/// Stray zones of a target that are named, at most.
const STRAYS_MAX_COUNT: i32 = 20;

/// A target and what waits for it.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct TargetStatus {
    /// Its id.
    pub id: Uuid,
    /// Its name.
    pub name: String,
    /// `enabled` or `disabled`.
    pub state: &'static str,
    /// Enabled, and reached within the last minute.
    pub in_service: bool,
    /// Deployments that are not where they should be.
    pub pending: i64,
    /// For how long the oldest of them has waited, in seconds.
    pub oldest_pending_seconds: i64,
    /// Deployments that failed or were rejected.
    pub failing: i64,
    /// Deployments that hold what this log does not know.
    pub ahead: i64,
    /// When it was last reached.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub reached_at: Option<Timestamp>,
    /// Why it was not, if it is out of service.
    pub last_error: Option<String>,
}

/// A deployment that does not come along.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct FailingDeployment {
    /// The domain.
    pub domain: String,
    /// The target's name.
    pub target: String,
    /// `failed`, `rejected` or `ahead`.
    pub state: String,
    /// Tries so far.
    pub attempts: i32,
    /// When it is tried again.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub next_attempt_at: Option<Timestamp>,
    /// Why.
    pub last_error: Option<String>,
}

/// Zones on a target that no deployment of this log accounts for.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct StrayZones {
    /// The target's name.
    pub target: String,
    /// How many.
    pub count: i64,
    /// The first of them.
    pub zones: Vec<String>,
}

/// A lane of operations.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct LaneStatus {
    /// Its name.
    pub lane: String,
    /// Operations that have not ended.
    pub open: i64,
    /// For how long the oldest of them has waited, in seconds.
    pub oldest_seconds: i64,
}

/// A pause.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct PauseStatus {
    /// `all`, `target` or `domain`.
    pub scope: String,
    /// Which; empty for all.
    pub id: String,
    /// Why.
    pub reason: String,
    /// Since when.
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
}

/// By target, the zones that no deployment accounts for: those that Headwater wrote (`lost`), or those of others.
///
/// # Errors
/// When the database does not answer.
pub async fn strays(pool: &PgPool, lost: bool) -> Result<Vec<StrayZones>, sqlx::Error> {
    let rows = sqlx::query(sql::STRAYS).bind(lost).bind(STRAYS_MAX_COUNT).fetch_all(pool).await?;
    let read = |row: sqlx::postgres::PgRow| {
        Ok(StrayZones { target: row.try_get(0)?, count: row.try_get(1)?, zones: row.try_get(2)? })
    };
    rows.into_iter().map(read).collect()
}

/// Every target.
///
/// # Errors
/// When the database does not answer.
pub async fn targets(pool: &PgPool) -> Result<Vec<TargetStatus>, sqlx::Error> {
    let rows = sqlx::query(sql::TARGET_STATUS).fetch_all(pool).await?;
    let mut targets = Vec::with_capacity(rows.len());
    for row in rows {
        let in_service: bool = row.try_get(3)?;
        targets.push(TargetStatus {
            id: row.try_get(0)?,
            name: row.try_get(1)?,
            state: if row.try_get(2)? { "enabled" } else { "disabled" },
            in_service,
            pending: row.try_get(4)?,
            oldest_pending_seconds: row.try_get(5)?,
            failing: row.try_get(6)?,
            ahead: row.try_get(7)?,
            reached_at: maybe_at(&row, 8)?,
            last_error: if in_service { None } else { row.try_get(9)? },
        });
    }
    Ok(targets)
}

/// Deployments that do not come along, those that were tried most first.
///
/// # Errors
/// When the database does not answer.
pub async fn failing(pool: &PgPool) -> Result<Vec<FailingDeployment>, sqlx::Error> {
    let rows = sqlx::query(sql::FAILING).bind(FAILING_MAX_COUNT).fetch_all(pool).await?;
    let mut failing = Vec::with_capacity(rows.len());
    for row in rows {
        failing.push(FailingDeployment {
            domain: row.try_get(0)?,
            target: row.try_get(1)?,
            state: row.try_get(2)?,
            attempts: row.try_get(3)?,
            next_attempt_at: maybe_at(&row, 4)?,
            last_error: row.try_get(5)?,
        });
    }
    Ok(failing)
}

/// Lanes with operations that have not ended.
///
/// # Errors
/// When the database does not answer.
pub async fn lanes(pool: &PgPool) -> Result<Vec<LaneStatus>, sqlx::Error> {
    let rows = sqlx::query(sql::LANES).fetch_all(pool).await?;
    let read = |row: sqlx::postgres::PgRow| {
        Ok(LaneStatus { lane: row.try_get(0)?, open: row.try_get(1)?, oldest_seconds: row.try_get(2)? })
    };
    rows.into_iter().map(read).collect()
}

/// What is paused.
///
/// # Errors
/// When the database does not answer.
pub async fn pauses(pool: &PgPool) -> Result<Vec<PauseStatus>, sqlx::Error> {
    let rows = sqlx::query(sql::PAUSES).fetch_all(pool).await?;
    let read = |row: sqlx::postgres::PgRow| {
        Ok(PauseStatus {
            scope: row.try_get(0)?,
            id: row.try_get(1)?,
            reason: row.try_get(2)?,
            since: at(&row, 3)?,
        })
    };
    rows.into_iter().map(read).collect()
}

/// A domain that its parent does not delegate to the platform any more.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct LostDelegation {
    /// Its name.
    pub domain: String,
    /// Since when that is known.
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
}

/// Domains whose delegation was lost, the newest first.
///
/// # Errors
/// When the database does not answer.
pub async fn delegations_lost(pool: &PgPool) -> Result<Vec<LostDelegation>, sqlx::Error> {
    let rows = sqlx::query(sql::DELEGATIONS_LOST).bind(FAILING_MAX_COUNT).fetch_all(pool).await?;
    rows.iter().map(|row| Ok(LostDelegation { domain: row.try_get(0)?, since: at(row, 1)? })).collect()
}
