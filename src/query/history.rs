//! The mutations of one domain, newest first.

use headwater_events::actor::Actor;
use headwater_events::ids::{DomainId, OperationId, RequestId, Revision};
use headwater_events::time::Timestamp;
use sqlx::Row;
use sqlx::postgres::{PgPool, PgRow};
use uuid::Uuid;

use super::{at, rrsets, sql};

/// One mutation of a domain.
#[derive(Debug, Clone)]
pub struct StoredRevision {
    /// Its number.
    pub revision: Revision,
    /// When.
    pub at: Timestamp,
    /// The type of its first event.
    pub event_type: String,
    /// Who.
    pub actor: Actor,
    /// The actor's mail address, while it is kept.
    pub email: Option<String>,
    /// Why.
    pub note: Option<String>,
    /// The operation that carried it out.
    pub operation: Option<OperationId>,
    /// The request.
    pub request: RequestId,
    /// How many events it has.
    pub events: i64,
}

/// The next mutations before a revision, newest first, or one of them.
///
/// # Errors
/// When the database does not answer.
pub async fn revisions(
    pool: &PgPool,
    domain: DomainId,
    before: Option<Revision>,
    exactly: Option<Revision>,
    most: i64,
) -> Result<Vec<StoredRevision>, sqlx::Error> {
    let query = sqlx::query(sql::REVISIONS).bind(domain.as_uuid());
    let query = query.bind(before.map(Revision::get)).bind(exactly.map(Revision::get)).bind(most);
    let read = |row: &PgRow| {
        Ok(StoredRevision {
            revision: Revision::new(row.try_get(0)?),
            at: at(row, 1)?,
            event_type: row.try_get(2)?,
            actor: rrsets::actor(row, 3)?,
            note: row.try_get(7)?,
            operation: row.try_get::<Option<Uuid>, _>(8)?.map(OperationId::from_uuid),
            request: RequestId::from_uuid(row.try_get(9)?),
            events: row.try_get(10)?,
            email: row.try_get(11)?,
        })
    };
    query.fetch_all(pool).await?.iter().map(read).collect()
}
