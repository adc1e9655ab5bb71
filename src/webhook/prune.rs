//! What is kept of webhooks for some time alone: deliveries, and secrets whose time beside the next one is over. And what
//! is told of them to whoever watches.

use chrono::{DateTime, Utc};
use sqlx::Row;
use std::time::Duration;

use super::{DELIVERIES_MAX_COUNT, DELIVERIES_MAX_DAYS, sql};
use crate::app::App;

/// How often it is looked.
pub(super) const INTERVAL: Duration = Duration::from_secs(60);
/// Deliveries that are removed together.
const CHUNK_MAX_ROWS: i64 = 10_000;

pub(super) async fn run(app: &App) -> Result<(), sqlx::Error> {
    sqlx::query(sql::PRUNE_OLD).bind(DELIVERIES_MAX_DAYS).bind(CHUNK_MAX_ROWS).execute(&app.pool).await?;
    sqlx::query(sql::PRUNE_MANY).bind(DELIVERIES_MAX_COUNT).execute(&app.pool).await?;
    let now = DateTime::<Utc>::from(app.clock.now());
    sqlx::query(sql::PRUNE_SECRETS).bind(now).execute(&app.pool).await?;
    let row = sqlx::query(sql::GAUGES).fetch_one(&app.pool).await?;
    let gauge = |number: i64| f64::from(i32::try_from(number).unwrap_or(i32::MAX));
    metrics::gauge!("cdn_webhooks_failing").set(gauge(row.try_get(0)?));
    metrics::gauge!("cdn_webhooks_scan_lag_events").set(gauge(row.try_get(1)?));
    Ok(())
}
