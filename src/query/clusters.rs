//! DNS clusters with what was last seen of them.

use headwater_events::ids::{ClusterId, Revision};
use headwater_events::time::Timestamp;
use sqlx::Row;
use sqlx::postgres::{PgPool, PgRow};
use uuid::Uuid;

use super::{at, maybe_at, sql};

/// A DNS cluster.
#[derive(Debug, Clone)]
pub struct StoredCluster {
    /// Its id.
    pub id: ClusterId,
    /// Its name.
    pub name: String,
    /// The file that holds its database's URL.
    pub database_url_file: String,
    /// Where its PowerDNS answers.
    pub dns: String,
    /// Where dnsdist answers from it alone.
    pub front: Option<String>,
    /// The names under which it is delegated to.
    pub nameservers: Vec<String>,
    /// Whether it is deployed to.
    pub enabled: bool,
    /// Whether it is to go.
    pub leaving: bool,
    /// Its revision when it was last enabled, disabled or made.
    pub revision: Revision,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it was last reached.
    pub reached_at: Option<Timestamp>,
    /// When it was last not reached.
    pub failed_at: Option<Timestamp>,
    /// Why.
    pub last_error: Option<String>,
    /// Enabled, and reached within the last minute.
    pub in_service: bool,
}

/// The next clusters, oldest first, or one of them.
///
/// # Errors
/// When the database does not answer.
pub async fn page(
    pool: &PgPool,
    id: Option<ClusterId>,
    after: Option<Uuid>,
    most: i64,
) -> Result<Vec<StoredCluster>, sqlx::Error> {
    let query = sqlx::query(sql::CLUSTERS).bind(id.map(ClusterId::as_uuid)).bind(after).bind(most);
    let read = |row: &PgRow| {
        Ok(StoredCluster {
            id: ClusterId::from_uuid(row.try_get(0)?),
            name: row.try_get(1)?,
            database_url_file: row.try_get(2)?,
            dns: row.try_get(3)?,
            front: row.try_get(4)?,
            nameservers: row.try_get(5)?,
            enabled: row.try_get(6)?,
            revision: Revision::new(row.try_get(7)?),
            created_at: at(row, 8)?,
            reached_at: maybe_at(row, 9)?,
            failed_at: maybe_at(row, 10)?,
            last_error: row.try_get(11)?,
            in_service: row.try_get(12)?,
            leaving: row.try_get(13)?,
        })
    };
    query.fetch_all(pool).await?.iter().map(read).collect()
}
