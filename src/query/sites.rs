//! What edges are told of a domain: proxied names, each with the mutation that last changed it, how answers are kept,
//! and purges.

use headwater_events::dns::{OwnerKey, OwnerName};
use headwater_events::domain::{CachePolicy, CertificateBody, HostnameBody, StoredCertificate};
use headwater_events::ids::{DomainId, OperationId, PurgeId, Revision};
use headwater_events::time::Timestamp;
use sqlx::Row;
use sqlx::postgres::{PgPool, PgRow};
use sqlx::types::Json;
use uuid::Uuid;

use super::rrsets::{Changed, actor};
use super::{at, maybe_at, odd, sql};

/// A proxied name as it is shown.
#[derive(Debug, Clone)]
pub struct ShownHostname {
    /// The name, relative to the domain.
    pub owner: OwnerName,
    /// What is proxied under it.
    pub body: HostnameBody,
    /// What last changed it.
    pub changed: Changed,
}

/// How answers are kept.
#[derive(Debug, Clone)]
pub struct ShownCache {
    /// The policy.
    pub policy: CachePolicy,
    /// Part of every key of the cache.
    pub epoch: i64,
    /// What last changed the policy.
    pub changed: Changed,
}

impl Default for ShownCache {
    fn default() -> Self {
        let changed = Changed { revision: Revision::new(1), by: None };
        Self { policy: CachePolicy::default(), epoch: 0, changed }
    }
}

/// A purge as it is shown.
#[derive(Debug, Clone)]
pub struct ShownPurge {
    /// Which.
    pub id: PurgeId,
    /// What it takes.
    pub scope: String,
    /// The epoch that it began.
    pub epoch: i64,
    /// The domain's revision.
    pub revision: Revision,
    /// When it was asked for.
    pub requested_at: Timestamp,
    /// What carries it out; none where nothing was served.
    pub operation: Option<OperationId>,
    /// How far that is; none once it is forgotten.
    pub state: Option<String>,
}

fn hostname(row: &PgRow) -> Result<ShownHostname, sqlx::Error> {
    let Json(body): Json<HostnameBody> = row.try_get(1)?;
    let by = match maybe_at(row, 3)? {
        Some(at) => Some((at, actor(row, 4)?, row.try_get(8)?)),
        None => None,
    };
    Ok(ShownHostname {
        owner: OwnerName::from_canonical(row.try_get(0)?).map_err(|_| odd("owner"))?,
        body,
        changed: Changed { revision: Revision::new(row.try_get(2)?), by },
    })
}

/// One proxied name.
///
/// # Errors
/// When the database does not answer.
pub async fn one(
    pool: &PgPool,
    domain: DomainId,
    owner: &OwnerKey,
) -> Result<Option<ShownHostname>, sqlx::Error> {
    let query = sqlx::query(sql::HOSTNAME).bind(domain.as_uuid()).bind(owner.as_str());
    query.fetch_optional(pool).await?.as_ref().map(hostname).transpose()
}

/// The next proxied names in the order of the zone.
///
/// # Errors
/// When the database does not answer.
pub async fn page(
    pool: &PgPool,
    domain: DomainId,
    after: Option<&str>,
    most: i64,
) -> Result<Vec<ShownHostname>, sqlx::Error> {
    let query = sqlx::query(sql::HOSTNAMES).bind(domain.as_uuid()).bind(after).bind(most);
    query.fetch_all(pool).await?.iter().map(hostname).collect()
}

/// How answers of a domain are kept.
///
/// # Errors
/// When the database does not answer.
pub async fn cache(pool: &PgPool, domain: DomainId) -> Result<ShownCache, sqlx::Error> {
    let row = sqlx::query(sql::CACHE).bind(domain.as_uuid()).fetch_optional(pool).await?;
    let Some(row) = row else { return Ok(ShownCache::default()) };
    let policy: Option<Json<CachePolicy>> = row.try_get(0)?;
    Ok(ShownCache {
        policy: policy.map_or_else(CachePolicy::default, |Json(policy)| policy),
        epoch: row.try_get(1)?,
        changed: Changed { revision: Revision::new(row.try_get(2)?), by: None },
    })
}

/// The certificate of a domain, with what last changed it.
#[derive(Debug, Clone)]
pub struct ShownCertificate {
    /// The certificate.
    pub body: CertificateBody,
    /// What last changed it.
    pub changed: Changed,
}

impl From<ShownCertificate> for StoredCertificate {
    fn from(shown: ShownCertificate) -> Self {
        Self { body: shown.body, changed: shown.changed.revision }
    }
}

/// The certificate of a domain.
///
/// # Errors
/// When the database does not answer.
pub async fn certificate(pool: &PgPool, domain: DomainId) -> Result<Option<ShownCertificate>, sqlx::Error> {
    let row = sqlx::query(sql::CERTIFICATE).bind(domain.as_uuid()).fetch_optional(pool).await?;
    let Some(row) = row else { return Ok(None) };
    let Json(body): Json<CertificateBody> = row.try_get(0)?;
    let by = match maybe_at(&row, 2)? {
        Some(at) => Some((at, actor(&row, 3)?, row.try_get(7)?)),
        None => None,
    };
    Ok(Some(ShownCertificate { body, changed: Changed { revision: Revision::new(row.try_get(1)?), by } }))
}

/// Every proxied name of a domain.
///
/// # Errors
/// When the database does not answer.
pub async fn owners(pool: &PgPool, domain: DomainId) -> Result<Vec<OwnerName>, sqlx::Error> {
    let owners: Vec<String> =
        sqlx::query_scalar(sql::HOSTNAME_OWNERS).bind(domain.as_uuid()).fetch_all(pool).await?;
    owners.iter().map(|owner| OwnerName::from_canonical(owner).map_err(|_| odd("owner"))).collect()
}

fn purge(row: &PgRow) -> Result<ShownPurge, sqlx::Error> {
    Ok(ShownPurge {
        id: PurgeId::from_uuid(row.try_get(0)?),
        scope: row.try_get(1)?,
        epoch: row.try_get(2)?,
        revision: Revision::new(row.try_get(3)?),
        requested_at: at(row, 4)?,
        operation: row.try_get::<Option<Uuid>, _>(5)?.map(OperationId::from_uuid),
        state: row.try_get(6)?,
    })
}

/// Purges of a domain, newest first: one of them, the one of a revision, or the next ones before an epoch.
///
/// # Errors
/// When the database does not answer.
pub async fn purges(
    pool: &PgPool,
    domain: DomainId,
    id: Option<PurgeId>,
    revision: Option<Revision>,
    before: Option<i64>,
    most: i64,
) -> Result<Vec<ShownPurge>, sqlx::Error> {
    let query = sqlx::query(sql::PURGES).bind(domain.as_uuid()).bind(id.map(PurgeId::as_uuid));
    let query = query.bind(revision.map(Revision::get)).bind(before).bind(most);
    query.fetch_all(pool).await?.iter().map(purge).collect()
}
