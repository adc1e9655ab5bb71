//! The access log: who came in, and who was turned away.

use chrono::{DateTime, Utc};
use headwater_events::time::Timestamp;
use sqlx::Row;
use sqlx::postgres::PgPool;
use uuid::Uuid;

use super::{at, sql};

/// One caller, in one minute, for one reason.
#[derive(Debug, Clone)]
pub struct StoredAccess {
    /// Its place.
    pub id: i64,
    /// What happened.
    pub kind: String,
    /// Who, where that is known.
    pub user: Option<Uuid>,
    /// Its mail address; none when it was erased.
    pub email: Option<String>,
    /// With which token.
    pub token: Option<Uuid>,
    /// From which address.
    pub ip: Option<String>,
    /// With which program.
    pub agent: Option<String>,
    /// On which route at first.
    pub route: Option<String>,
    /// How often.
    pub times: i64,
    /// The first time.
    pub first_at: Timestamp,
    /// The last time.
    pub last_at: Timestamp,
}

/// Which lines are wanted.
#[derive(Debug, Clone, Default)]
pub struct AccessFilter {
    /// Of this user.
    pub user: Option<Uuid>,
    /// Of this kind.
    pub kind: Option<&'static str>,
    /// From then on.
    pub from: Option<Timestamp>,
    /// Before then.
    pub to: Option<Timestamp>,
}

/// The next lines, newest first.
///
/// # Errors
/// When the database does not answer.
pub async fn page(
    pool: &PgPool,
    filter: &AccessFilter,
    before: Option<i64>,
    most: i64,
) -> Result<Vec<StoredAccess>, sqlx::Error> {
    let time = |at: Option<Timestamp>| at.map(DateTime::<Utc>::from);
    let query = sqlx::query(sql::ACCESS_LOG).bind(before).bind(filter.user).bind(filter.kind);
    let rows = query.bind(time(filter.from)).bind(time(filter.to)).bind(most).fetch_all(pool).await?;
    let read = |row: &sqlx::postgres::PgRow| {
        Ok(StoredAccess {
            id: row.try_get(0)?,
            kind: row.try_get(1)?,
            user: row.try_get(2)?,
            email: row.try_get(3)?,
            token: row.try_get(4)?,
            ip: row.try_get(5)?,
            agent: row.try_get(6)?,
            route: row.try_get(7)?,
            times: row.try_get(8)?,
            first_at: at(row, 9)?,
            last_at: at(row, 10)?,
        })
    };
    rows.iter().map(read).collect()
}
