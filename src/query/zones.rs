//! All zones that a caller may see, with no more of each than a list shows.

use futures_util::{Stream, StreamExt};
use headwater_events::actor::Visible;
use headwater_events::dns::DomainName;
use headwater_events::domain::soa_serial;
use headwater_events::event::Labels;
use headwater_events::ids::{DomainId, Revision, TenantId};
use sqlx::Row;
use sqlx::postgres::{PgPool, PgRow};
use sqlx::types::Json;

use super::domains::Platform;
use super::rrsets::{self, ShownRrset};
use super::{Shown, odd, sql};

/// A zone of a list.
#[derive(Debug, Clone)]
pub struct ListedZone {
    /// Its name.
    pub name: DomainName,
    /// Its labels.
    pub labels: Labels,
    revision: Revision,
    serial_base: u32,
    generation: Option<u32>,
}

impl ListedZone {
    /// The serial that it has.
    pub fn serial(&self, platform: &Platform) -> u32 {
        soa_serial(self.serial_base, self.revision, self.generation.unwrap_or(platform.generation))
    }
}

fn zone(row: &PgRow) -> Result<ListedZone, sqlx::Error> {
    let number = |column: &str, value: i64| u32::try_from(value).map_err(|_| odd(column));
    let generation: Option<i64> = row.try_get(4)?;
    let Json(labels) = row.try_get(1)?;
    Ok(ListedZone {
        name: DomainName::parse(row.try_get(0)?).map_err(|_| odd("name"))?,
        labels,
        revision: Revision::new(row.try_get(2)?),
        serial_base: number("serial_base", row.try_get(3)?)?,
        generation: generation.map(|value| number("generation", value)).transpose()?,
    })
}

/// Zones by name, as fast as they are taken.
pub fn listed(
    pool: PgPool,
    visible: Visible,
    after: Option<String>,
    most: Option<i64>,
) -> impl Stream<Item = Result<ListedZone, sqlx::Error>> + Send {
    async_stream::try_stream! {
        let Shown { tenants, domains, names } = (&visible).into();
        let query = sqlx::query(sql::LISTED_ZONES).bind(after).bind(tenants).bind(most).bind(domains);
        let mut rows = query.bind(names).fetch(&pool);
        while let Some(row) = rows.next().await {
            yield zone(&row?)?;
        }
    }
}

/// A domain as it was found: which, whose, its name.
#[derive(Debug, Clone)]
pub struct FoundZone {
    /// Which.
    pub id: DomainId,
    /// Whose.
    pub tenant: TenantId,
    /// Its name.
    pub name: DomainName,
}

fn found(row: &PgRow, first: usize) -> Result<FoundZone, sqlx::Error> {
    Ok(FoundZone {
        id: DomainId::from_uuid(row.try_get(first)?),
        name: DomainName::parse(row.try_get(first + 1)?).map_err(|_| odd("name"))?,
        tenant: TenantId::from_uuid(row.try_get(first + 2)?),
    })
}

/// Zones whose names are like a pattern of SQL.
///
/// # Errors
/// When the database does not answer.
pub async fn like(
    pool: &PgPool,
    visible: &Visible,
    pattern: &str,
    most: i64,
) -> Result<Vec<FoundZone>, sqlx::Error> {
    let Shown { tenants, domains, names } = visible.into();
    let query =
        sqlx::query(sql::FOUND_ZONES).bind(pattern).bind(tenants).bind(most).bind(domains).bind(names);
    query.fetch_all(pool).await?.iter().map(|row| found(row, 0)).collect()
}

/// RRsets of which the owner, a value or the comment is like it.
///
/// # Errors
/// When the database does not answer.
pub async fn rrsets_like(
    pool: &PgPool,
    visible: &Visible,
    pattern: &str,
    most: i64,
) -> Result<Vec<(FoundZone, ShownRrset)>, sqlx::Error> {
    let Shown { tenants, domains, names } = visible.into();
    let query =
        sqlx::query(sql::FOUND_RRSETS).bind(pattern).bind(tenants).bind(most).bind(domains).bind(names);
    let rows = query.fetch_all(pool).await?;
    rows.iter().map(|row| Ok((found(row, 6)?, rrsets::bare(row)?))).collect()
}
