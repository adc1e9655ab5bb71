//! Webhooks and what became of what was sent.

mod sql;

use headwater_events::event::Labels;
use headwater_events::ids::{Position, Revision, TenantId, WebhookId};
use headwater_events::time::Timestamp;
use sqlx::Row;
use sqlx::postgres::{PgPool, PgRow};
use sqlx::types::Json;
use uuid::Uuid;

use super::{at, maybe_at, tenants};

/// The statements of this folder, for the test that prepares them.
pub const STATEMENTS: &[&str] = sql::ALL;
/// Failing webhooks that are told, at most.
const FAILING_MAX_COUNT: i64 = 50;
/// How long one fails before it is told, in seconds: the first pause is shorter.
const FAILING_AFTER_SECONDS: f64 = 60.0;

/// A webhook.
#[derive(Debug, Clone)]
pub struct StoredWebhook {
    /// Its id.
    pub id: WebhookId,
    /// Whose; none: the platform's own.
    pub owner: Option<TenantId>,
    /// What it is called.
    pub name: String,
    /// Where it is sent to.
    pub url: String,
    /// Beginnings of types; none: all.
    pub types: Vec<String>,
    /// Domains; none: all.
    pub domains: Option<Vec<String>>,
    /// Labels.
    pub labels: Labels,
    /// What it is for.
    pub description: Option<String>,
    /// Whether anything is sent.
    pub enabled: bool,
    /// Why not, if it is not.
    pub disabled: Option<(String, Option<String>)>,
    /// Counts its secrets.
    pub secret_version: u32,
    /// Until when the secret before counts.
    pub previous_until: Option<Timestamp>,
    /// Its stream's newest revision.
    pub revision: Revision,
    /// When it was made.
    pub created_at: Timestamp,
    /// How far it has got; none until that is known.
    pub progress: Option<Progress>,
}

/// How far a webhook has got.
#[derive(Debug, Clone)]
pub struct Progress {
    /// Everything up to here was dealt with.
    pub position: Position,
    /// The event that is tried again, how often it was, and when it is next.
    pub trying: Option<(Position, i32, Option<Timestamp>)>,
    /// Since when nothing was delivered.
    pub failing_since: Option<Timestamp>,
    /// Why.
    pub last_error: Option<String>,
    /// When something was delivered last.
    pub delivered_at: Option<Timestamp>,
    /// Events in a row that were given up.
    pub failed_in_row: i32,
}

/// What became of one event.
#[derive(Debug, Clone)]
pub struct StoredDelivery {
    /// Its place among the deliveries.
    pub id: i64,
    /// The event's place in the log.
    pub position: Position,
    /// The event.
    pub event: Uuid,
    /// Its type.
    pub event_type: String,
    /// The domain concerned.
    pub domain: Option<String>,
    /// `retrying`, `delivered`, `failed` or `abandoned`.
    pub state: String,
    /// How often it was tried.
    pub attempts: i32,
    /// The status of the last answer.
    pub status: Option<i32>,
    /// How long the last attempt took.
    pub ms: i32,
    /// Why the last attempt failed.
    pub error: Option<String>,
    /// The beginning of the last answer, if it was no success.
    pub response: Option<String>,
    /// The first attempt.
    pub first_at: Timestamp,
    /// The last attempt.
    pub last_at: Timestamp,
    /// The next attempt.
    pub next_at: Option<Timestamp>,
}

/// A webhook that fails.
#[derive(Debug, Clone)]
pub struct FailingWebhook {
    /// Its id.
    pub id: Uuid,
    /// Whose; none: the platform's own.
    pub tenant: Option<Uuid>,
    /// What it is called.
    pub name: String,
    /// How often the event was tried that it is at.
    pub attempts: i32,
    /// Since when.
    pub since: Timestamp,
    /// When it is tried again.
    pub next_at: Option<Timestamp>,
    /// Why.
    pub error: Option<String>,
}

/// Which webhooks are wanted.
#[derive(Debug, Clone, Default)]
pub struct WebhookFilter {
    /// This one.
    pub id: Option<WebhookId>,
    /// Those of these tenants only; none: all, and the platform's own.
    pub scope: Option<Vec<TenantId>>,
    /// Those of this tenant.
    pub tenant: Option<TenantId>,
}

/// Webhooks, oldest first.
///
/// # Errors
/// When the database does not answer.
pub async fn page(
    pool: &PgPool,
    filter: &WebhookFilter,
    after: Option<Uuid>,
    most: i64,
) -> Result<Vec<StoredWebhook>, sqlx::Error> {
    let rows = sqlx::query(sql::WEBHOOKS)
        .bind(filter.id.map(WebhookId::as_uuid))
        .bind(after)
        .bind(most)
        .bind(tenants(filter.scope.as_deref()))
        .bind(filter.tenant.map(TenantId::as_uuid))
        .fetch_all(pool)
        .await?;
    rows.iter().map(webhook).collect()
}

/// One webhook.
///
/// # Errors
/// When the database does not answer.
pub async fn one(pool: &PgPool, id: WebhookId) -> Result<Option<StoredWebhook>, sqlx::Error> {
    let filter = WebhookFilter { id: Some(id), ..WebhookFilter::default() };
    Ok(page(pool, &filter, None, 1).await?.pop())
}

fn webhook(row: &PgRow) -> Result<StoredWebhook, sqlx::Error> {
    let owner: Option<Uuid> = row.try_get(1)?;
    let Json(labels) = row.try_get(6)?;
    let reason: Option<String> = row.try_get(9)?;
    let detail: Option<String> = row.try_get(10)?;
    Ok(StoredWebhook {
        id: WebhookId::from_uuid(row.try_get(0)?),
        owner: owner.map(TenantId::from_uuid),
        name: row.try_get(2)?,
        url: row.try_get(3)?,
        types: row.try_get(4)?,
        domains: row.try_get(5)?,
        labels,
        description: row.try_get(7)?,
        enabled: row.try_get(8)?,
        disabled: reason.map(|reason| (reason, detail)),
        secret_version: u32::try_from(row.try_get::<i32, _>(11)?).unwrap_or(0),
        previous_until: maybe_at(row, 12)?,
        revision: Revision::new(row.try_get(13)?),
        created_at: at(row, 14)?,
        progress: progress(row)?,
    })
}

fn progress(row: &PgRow) -> Result<Option<Progress>, sqlx::Error> {
    // Whoever reads the log for webhooks has not come to its beginning yet.
    let attempts: Option<i32> = row.try_get(16)?;
    let Some(attempts) = attempts else { return Ok(None) };
    let trying: Option<i64> = row.try_get(18)?;
    let next_at = maybe_at(row, 17)?;
    Ok(Some(Progress {
        position: Position::new(row.try_get(15)?),
        trying: trying.map(|position| (Position::new(position), attempts, next_at)),
        failing_since: maybe_at(row, 19)?,
        last_error: row.try_get(20)?,
        delivered_at: maybe_at(row, 21)?,
        failed_in_row: row.try_get(22)?,
    }))
}

/// Deliveries of a webhook, newest first.
///
/// # Errors
/// When the database does not answer.
pub async fn deliveries(
    pool: &PgPool,
    webhook: WebhookId,
    before: Option<i64>,
    most: i64,
) -> Result<Vec<StoredDelivery>, sqlx::Error> {
    let query = sqlx::query(sql::DELIVERIES).bind(webhook.as_uuid()).bind(before).bind(most);
    let read = |row: &PgRow| {
        Ok(StoredDelivery {
            id: row.try_get(0)?,
            position: Position::new(row.try_get(1)?),
            event: row.try_get(2)?,
            event_type: row.try_get(3)?,
            domain: row.try_get(4)?,
            state: row.try_get(5)?,
            attempts: row.try_get(6)?,
            status: row.try_get(7)?,
            ms: row.try_get(8)?,
            error: row.try_get(9)?,
            response: row.try_get(10)?,
            first_at: at(row, 11)?,
            last_at: at(row, 12)?,
            next_at: maybe_at(row, 13)?,
        })
    };
    query.fetch_all(pool).await?.iter().map(read).collect()
}

/// Webhooks that have failed for a while, the longest first.
///
/// # Errors
/// When the database does not answer.
pub async fn failing(pool: &PgPool) -> Result<Vec<FailingWebhook>, sqlx::Error> {
    let query = sqlx::query(sql::FAILING).bind(FAILING_AFTER_SECONDS).bind(FAILING_MAX_COUNT);
    let read = |row: &PgRow| {
        Ok(FailingWebhook {
            id: row.try_get(0)?,
            tenant: row.try_get(1)?,
            name: row.try_get(2)?,
            attempts: row.try_get(3)?,
            since: at(row, 4)?,
            next_at: maybe_at(row, 5)?,
            error: row.try_get(6)?,
        })
    };
    query.fetch_all(pool).await?.iter().map(read).collect()
}

/// How many events have not been looked at for webhooks yet.
///
/// # Errors
/// When the database does not answer.
pub async fn scan_lag(pool: &PgPool) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar(sql::SCAN_LAG).fetch_one(pool).await
}
