//! Connections to the control database and its migrations. Nothing applies a
//! migration but `headwater migrate` (and the demo, which calls it).

use crate::secret::Secret;
use sqlx::migrate::{Migrate, Migrator};
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};
use std::str::FromStr;
use std::time::Duration;

/// The schema of the control database, embedded.
pub static MIGRATIONS: Migrator = sqlx::migrate!("migrations/control");

/// How long a request waits for a connection before it is told to come again.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);

/// Why the database cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The URL is not one.
    #[error("the database URL cannot be read: {0}")]
    Url(sqlx::Error),
    /// The server cannot be reached or refuses.
    #[error("the control database cannot be reached: {0}")]
    Connect(sqlx::Error),
    /// A migration failed.
    #[error("the schema cannot be migrated: {0}")]
    Migrate(sqlx::migrate::MigrateError),
    /// The schema is not that of this program.
    #[error(
        "the control database's schema is at {found}, this program needs {needed}: run `headwater migrate`"
    )]
    Level {
        /// What the database has.
        found: i64,
        /// What this program needs.
        needed: i64,
    },
}

/// Options of a connection, from a URL that is a secret.
///
/// # Errors
/// When the URL is not one.
pub fn options(url: &Secret) -> Result<PgConnectOptions, StoreError> {
    let options = PgConnectOptions::from_str(url.expose()).map_err(StoreError::Url)?;
    Ok(options.application_name("headwater").options([
        ("lock_timeout", "10s"),
        ("statement_timeout", "60s"),
        ("idle_in_transaction_session_timeout", "10s"),
    ]))
}

/// A pool of connections to the control database.
///
/// # Errors
/// When the URL is not one, or the server cannot be reached.
pub async fn connect(url: &Secret, most: u32) -> Result<PgPool, StoreError> {
    PgPoolOptions::new()
        .max_connections(most)
        .acquire_timeout(ACQUIRE_TIMEOUT)
        .connect_with(options(url)?)
        .await
        .map_err(StoreError::Connect)
}

/// Applies every migration that is missing.
///
/// # Errors
/// When one fails, or the database holds one that this program does not know.
pub async fn migrate(pool: &PgPool) -> Result<(), StoreError> {
    MIGRATIONS.run(pool).await.map_err(StoreError::Migrate)
}

/// Checks that the schema is exactly the one this program was built with.
///
/// # Errors
/// When it is not, or the server cannot be reached.
pub async fn check_level(pool: &PgPool) -> Result<(), StoreError> {
    let needed = MIGRATIONS.iter().map(|migration| migration.version).max().unwrap_or(0);
    let mut connection = pool.acquire().await.map_err(StoreError::Connect)?;
    let applied = connection.list_applied_migrations("_sqlx_migrations").await;
    let found = applied.map(|list| list.iter().map(|m| m.version).max().unwrap_or(0)).unwrap_or(0);
    if found == needed { Ok(()) } else { Err(StoreError::Level { found, needed }) }
}
