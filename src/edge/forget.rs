//! Forgets private keys of certificates: those of a version that is neither desired nor published any more, once every
//! cell in service has taken in what took its place. Until then an edge that was slow may still ask for it. And the data
//! keys of tenants that were deleted, where that was not done at once.

use std::time::Duration;

use sqlx::postgres::PgPool;

use super::keys;
use crate::app::App;
use crate::vault::data;

/// How often it is looked for such keys.
const LOOK_INTERVAL: Duration = Duration::from_secs(300);

/// Looks until the process stops.
pub async fn run(app: App) {
    while !app.stop.is_cancelled() {
        match look(&app.pool).await {
            Ok(0) => {}
            Ok(forgotten) => {
                tracing::info!(forgotten, "removed private keys of certificates that were replaced")
            }
            Err(error) => {
                tracing::warn!(%error, "private keys of certificates that were replaced are still kept")
            }
        }
        tokio::select! {
            () = app.stop.cancelled() => return,
            () = tokio::time::sleep(LOOK_INTERVAL) => {}
        }
    }
}

/// Looks once; gives how many were forgotten.
///
/// # Errors
/// When the database does not answer.
pub async fn look(pool: &PgPool) -> Result<u64, sqlx::Error> {
    let forgotten = keys::forget_keys(pool).await?;
    let erased = data::erase(pool).await?;
    if erased > 0 {
        tracing::info!(erased, "removed the data keys of tenants that were deleted");
    }
    Ok(forgotten)
}
