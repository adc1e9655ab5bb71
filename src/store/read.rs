//! Reading the log: the whole of it by position, or one stream's, domain's or
//! tenant's part, always in pages. A page of the whole log must be dense and
//! begin right after the cursor; a violation is an error that nobody may skip.

use super::{row, sql};
use headwater_events::envelope::{Client, ClientDigest, Recorded};
use headwater_events::ids::{DomainId, LogId, Position, Revision, StreamRef, TenantId};
use sqlx::Row;
use sqlx::postgres::{PgPool, PgRow};
use std::collections::HashMap;
use uuid::Uuid;

/// Events of one page, at most.
pub const PAGE_MAX_EVENTS: i64 = 1_000;

/// Why the log could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The database did not answer.
    #[error("the log cannot be read: {0}")]
    Database(#[from] sqlx::Error),
    /// Positions are not dense: something wrote past the procedure, or rows were removed.
    #[error(
        "the log has a hole: after position {after} comes {found}; stop and run `headwater audit verify`"
    )]
    Hole {
        /// The last position that was read.
        after: Position,
        /// The one that followed.
        found: Position,
    },
}

/// What identifies a log and what of it can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogMeta {
    /// Which incarnation it is.
    pub log: LogId,
    /// The highest position that is no longer kept.
    pub floor: Position,
    /// The newest position.
    pub head: Position,
}

/// Reads the log.
#[derive(Debug, Clone)]
pub struct LogReader {
    pool: PgPool,
}

impl LogReader {
    /// A reader over a pool of the control database.
    pub fn new(pool: PgPool) -> Self {
        Self { pool }
    }

    pub(super) fn pool(&self) -> &PgPool {
        &self.pool
    }

    /// Identity, floor and head.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn meta(&self) -> Result<LogMeta, ReadError> {
        let row = sqlx::query(sql::LOG).fetch_one(&self.pool).await?;
        Ok(LogMeta {
            log: LogId::from_uuid(row.try_get(0)?),
            floor: Position::new(row.try_get(1)?),
            head: Position::new(row.try_get(2)?),
        })
    }

    /// The next events of the whole log after a position.
    ///
    /// # Errors
    /// When the database does not answer or the page is not dense.
    pub async fn page(&self, after: Position, most: i64) -> Result<Vec<Recorded>, ReadError> {
        let rows = sqlx::query(sql::PAGE)
            .bind(after.get())
            .bind(most.min(PAGE_MAX_EVENTS))
            .fetch_all(&self.pool)
            .await?;
        let page = decode(&rows)?;
        let mut expected = after;
        for event in &page {
            if event.position != expected.next() {
                return Err(ReadError::Hole { after: expected, found: event.position });
            }
            expected = event.position;
        }
        Ok(page)
    }

    /// A stream's events with `after < revision ≤ up_to`.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn stream(
        &self,
        stream: StreamRef,
        after: Revision,
        up_to: Revision,
        most: i64,
    ) -> Result<Vec<Recorded>, ReadError> {
        let query = sqlx::query(sql::STREAM_PAGE).bind(stream.id).bind(after.get()).bind(up_to.get());
        Ok(decode(&query.bind(most).fetch_all(&self.pool).await?)?)
    }

    /// The next events that concern a domain.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn domain(
        &self,
        domain: DomainId,
        after: Position,
        most: i64,
    ) -> Result<Vec<Recorded>, ReadError> {
        self.part(sql::DOMAIN_PAGE, domain.as_uuid(), after, most).await
    }

    /// The next events that concern a tenant.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn tenant(
        &self,
        tenant: TenantId,
        after: Position,
        most: i64,
    ) -> Result<Vec<Recorded>, ReadError> {
        self.part(sql::TENANT_PAGE, tenant.as_uuid(), after, most).await
    }

    async fn part(
        &self,
        text: &'static str,
        id: Uuid,
        after: Position,
        most: i64,
    ) -> Result<Vec<Recorded>, ReadError> {
        let query = sqlx::query(text).bind(id).bind(after.get()).bind(most.min(PAGE_MAX_EVENTS));
        Ok(decode(&query.fetch_all(&self.pool).await?)?)
    }

    /// The clients behind digests, as far as they are still kept.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn clients(
        &self,
        digests: &[ClientDigest],
    ) -> Result<HashMap<ClientDigest, Client>, ReadError> {
        if digests.is_empty() {
            return Ok(HashMap::new());
        }
        let wanted: Vec<&[u8]> = digests.iter().map(<[u8; 32]>::as_slice).collect();
        let rows = sqlx::query(sql::CLIENTS).bind(wanted).fetch_all(&self.pool).await?;
        let mut found = HashMap::with_capacity(rows.len());
        for row in rows {
            let digest: &[u8] = row.try_get(0)?;
            if let Ok(digest) = ClientDigest::try_from(digest) {
                found.insert(digest, Client { ip: row.try_get(1)?, agent: row.try_get(2)? });
            }
        }
        Ok(found)
    }
}

fn decode(rows: &[PgRow]) -> Result<Vec<Recorded>, sqlx::Error> {
    rows.iter().map(row::recorded).collect()
}
