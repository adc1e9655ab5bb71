//! Domains, and what every zone says of the platform.

use chrono::{DateTime, Utc};
use headwater_events::actor::Visible;
use headwater_events::dns::DomainName;
use headwater_events::domain::DomainState;
use headwater_events::edge::Endpoints;
use headwater_events::event::{DnsIdentity, Labels};
use headwater_events::ids::{DomainId, Revision, StreamRef, TenantId};
use serde::Deserialize;
use sqlx::Row;
use sqlx::postgres::{PgPool, PgRow};
use sqlx::types::Json;
use uuid::Uuid;

use super::{Shown, sql};
use crate::store::row;

/// A domain and whether every target has let go of it.
#[derive(Debug, Clone)]
pub struct StoredDomain {
    /// The domain.
    pub state: DomainState,
    /// Deleted, and gone from every target.
    pub removed: bool,
    /// The platform's part of the serial that it was last given; none where nothing is served.
    pub generation: Option<u32>,
    /// What was last seen of its ownership and its delegation.
    pub checked: Option<Checked>,
}

/// What was seen of a domain's ownership or delegation, and when it is looked at next.
#[derive(Debug, Clone, Deserialize)]
pub struct Checked {
    /// When it is looked at next.
    pub next_at: DateTime<Utc>,
    /// When it was looked at last.
    pub checked_at: Option<DateTime<Utc>>,
    /// `ok`, `not_proven`, `elsewhere` or `unknown`.
    pub result: Option<String>,
    /// The same for people.
    pub detail: Option<String>,
    /// Since when the result is what it is.
    pub since: Option<DateTime<Utc>>,
}

impl StoredDomain {
    /// The serial of its zone.
    pub fn serial(&self, platform: &Platform) -> u32 {
        self.state.serial(self.state.revision, self.generation.unwrap_or(platform.generation))
    }
}

/// The platform, as every zone shows it.
#[derive(Debug, Clone)]
pub struct Platform {
    /// Its own tenant; none before it is initialized.
    pub tenant: Option<TenantId>,
    /// Its part of every SOA serial.
    pub generation: u32,
    /// What every zone says of it; none before it is initialized.
    pub identity: Option<DnsIdentity>,
    /// What DNS answers for proxied names; none before any edge was ready.
    pub endpoints: Option<Endpoints>,
}

/// Which domains are wanted; what is none does not matter.
#[derive(Debug, Clone, Default)]
pub struct DomainFilter {
    /// Labels that it has.
    pub labels: Labels,
    /// Its owner's own number for it.
    pub external_id: Option<String>,
    /// Who owns it.
    pub tenant: Option<TenantId>,
    /// A part of its name.
    pub part: Option<String>,
}

fn stored(row: &PgRow) -> Result<StoredDomain, sqlx::Error> {
    let generation: Option<i64> = row.try_get("generation")?;
    Ok(StoredDomain {
        state: row::domain(row)?,
        removed: row.try_get("removed")?,
        checked: row.try_get::<Option<Json<Checked>>, _>("checked")?.map(|Json(checked)| checked),
        generation: generation.and_then(|generation| u32::try_from(generation).ok()),
    })
}

/// The domain that holds this name.
///
/// # Errors
/// When the database does not answer.
pub async fn by_name(pool: &PgPool, name: &DomainName) -> Result<Option<StoredDomain>, sqlx::Error> {
    let row = sqlx::query(sql::DOMAIN).bind(name.as_str()).fetch_optional(pool).await?;
    row.as_ref().map(stored).transpose()
}

/// The next domains by name.
///
/// # Errors
/// When the database does not answer.
pub async fn page(
    pool: &PgPool,
    visible: &Visible,
    filter: &DomainFilter,
    after: Option<&str>,
    most: i64,
) -> Result<Vec<StoredDomain>, sqlx::Error> {
    let labels = (!filter.labels.is_empty()).then_some(Json(&filter.labels));
    let Shown { tenants, domains, names } = visible.into();
    let part = filter.part.as_deref().map(like);
    // Planned for what it is asked: each filter has its index, and which one is best depends on what it is asked for.
    let query = sqlx::query(sql::DOMAINS).persistent(false).bind(after).bind(tenants).bind(labels);
    let query = query.bind(&filter.external_id).bind(filter.tenant.map(TenantId::as_uuid));
    let query = query.bind(part).bind(most).bind(domains).bind(names);
    let rows = query.fetch_all(pool).await?;
    rows.iter().map(stored).collect()
}

/// A pattern of everything that holds this text.
fn like(part: &str) -> String {
    let escaped =
        part.chars().flat_map(|c| matches!(c, '%' | '_' | '\\').then_some('\\').into_iter().chain([c]));
    std::iter::once('%').chain(escaped).chain(['%']).collect()
}

/// The platform.
///
/// # Errors
/// When the database does not answer.
pub async fn platform(pool: &PgPool) -> Result<Platform, sqlx::Error> {
    let row = sqlx::query(sql::PLATFORM).fetch_one(pool).await?;
    let identity: Option<Json<DnsIdentity>> = row.try_get(2)?;
    Ok(Platform {
        tenant: row.try_get::<Option<Uuid>, _>(0)?.map(TenantId::from_uuid),
        generation: u32::try_from(row.try_get::<i64, _>(1)?).map_err(|_| super::odd("generation"))?,
        identity: identity.map(|Json(identity)| identity),
        endpoints: row.try_get::<Option<Json<Endpoints>>, _>(3)?.map(|Json(endpoints)| endpoints),
    })
}

/// Whether nothing of the platform was changed since a revision of a domain.
///
/// # Errors
/// When the database does not answer.
pub async fn is_newer_than_platform(
    pool: &PgPool,
    domain: DomainId,
    revision: Revision,
) -> Result<bool, sqlx::Error> {
    let query = sqlx::query_scalar(sql::NEWER_THAN_PLATFORM).bind(domain.as_uuid()).bind(revision.get());
    query.bind(StreamRef::PLATFORM.id).fetch_one(pool).await
}

/// Whether the database answers at all.
///
/// # Errors
/// When it does not.
pub async fn ping(pool: &PgPool) -> Result<(), sqlx::Error> {
    sqlx::query(sql::PING).execute(pool).await.map(|_| ())
}
