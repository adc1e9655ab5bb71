//! Looks at the sources of imports that follow them, each as often as was asked for, whichever process comes first. A
//! look that fails is told at the import and repeated, later each time.

use super::pass::{self, Asked};
use super::sql;
use crate::app::App;
use crate::operation::Holder;
use crate::pace;
use crate::rebuild::RebuildError;
use headwater_events::codec;
use headwater_events::event::Event;
use headwater_events::ids::OperationId;
use sqlx::Row;
use std::time::Duration;

/// How often it is asked what is due.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// The longest pause after a look that failed.
const BACKOFF_MAX: Duration = Duration::from_secs(3_600);

/// Runs until the process stops.
pub async fn run(app: App) {
    while !app.stop.is_cancelled() {
        match look(&app).await {
            Ok(true) => continue,
            Ok(false) => {}
            Err(error) => tracing::warn!(%error, "sources that are followed wait"),
        }
        tokio::select! {
            () = app.stop.cancelled() => {}
            () = tokio::time::sleep(POLL_INTERVAL) => {}
        }
    }
}

/// One look at the source that is due first; true when there may be another.
async fn look(app: &App) -> Result<bool, RebuildError> {
    let Some(row) = sqlx::query(sql::DUE).fetch_optional(&app.pool).await? else { return Ok(false) };
    let id = OperationId::from_uuid(row.try_get(0)?);
    let (name, schema, data): (&str, i16, &[u8]) = (row.try_get(1)?, row.try_get(2)?, row.try_get(3)?);
    let asked = match codec::decode(name, schema, data) {
        Ok(Event::ImportRequested(requested)) => Asked::of(id, *requested, &row, 4)?,
        _ => return Err(RebuildError::Import(format!("the request of import {id} cannot be read"))),
    };
    let failures = u32::try_from(row.try_get::<i32, _>(10)?).unwrap_or(0);
    let mut lease = pass::lease(id);
    if !lease.keep(&app.pool).await? {
        return Ok(false);
    }
    let looked = pass::follow(app, &asked, &mut lease).await;
    let every = Duration::from_secs(u64::from(asked.requested.follow_seconds));
    let (pause, why) = match &looked {
        Ok(()) => (every, None),
        Err(RebuildError::Stopped) => {
            lease.end(&app.pool).await;
            return Ok(false);
        }
        Err(error) => {
            tracing::warn!(import = %id, %error, "a look at the source of an import failed");
            (pace::doubled(every, BACKOFF_MAX.max(every), failures), Some(error.to_string()))
        }
    };
    let (lease_name, owner) = lease.holder();
    let holder = Holder { lease: lease_name.to_owned(), owner };
    let query = sqlx::query(sql::LOOKED).bind(&holder.lease).bind(holder.owner).bind(id.as_uuid());
    query.bind(pause.as_secs_f64()).bind(why).execute(&app.pool).await?;
    lease.end(&app.pool).await;
    Ok(true)
}
