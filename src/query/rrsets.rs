//! RRsets of a domain, each with the mutation that last changed it, the two that the platform adds at the apex, and what it
//! answers for proxied names.

use futures_util::{Stream, StreamExt};
use headwater_events::actor::{Actor, ActorKind};
use headwater_events::dns::{OwnerKey, OwnerName, RrSetBody, RrType, Ttl};
use headwater_events::domain::DomainState;
use headwater_events::ids::{DomainId, Revision, TokenId, UserId};
use headwater_events::manager::{Manager, PLATFORM};
use headwater_events::time::Timestamp;
use headwater_projections::powerdns;
use sqlx::Row;
use sqlx::postgres::{PgPool, PgRow};
use std::collections::BTreeMap;
use uuid::Uuid;

use super::domains::{Platform, StoredDomain};
use super::{maybe_at, odd, sql};

/// The mutation that last changed something.
#[derive(Debug, Clone)]
pub struct Changed {
    /// The revision it made.
    pub revision: Revision,
    /// When, who and why; none where the history is no longer kept.
    pub by: Option<(Timestamp, Actor, Option<String>)>,
}

/// An RRset as it is shown.
#[derive(Debug, Clone)]
pub struct ShownRrset {
    /// Its owner.
    pub owner: OwnerName,
    /// Its type.
    pub rrtype: RrType,
    /// TTL, records, comment.
    pub body: RrSetBody,
    /// What last changed it; none when the platform derives it.
    pub changed: Option<Changed>,
}

impl ShownRrset {
    /// Its place in the order of a zone.
    pub fn key(&self) -> (String, i32) {
        (self.owner.key().as_str().to_owned(), i32::from(self.rrtype.code()))
    }

    /// Who manages it: a tool, or the platform what it derives.
    pub fn managed_by(&self) -> Option<&str> {
        match &self.changed {
            None => Some(PLATFORM),
            Some(_) => self.body.managed_by.as_ref().map(Manager::as_str),
        }
    }
}

/// The actor of an event, from five columns beginning with its kind.
pub(crate) fn actor(row: &PgRow, first: usize) -> Result<Actor, sqlx::Error> {
    Ok(Actor {
        kind: ActorKind::from_code(row.try_get(first)?).ok_or_else(|| odd("actor_kind"))?,
        id: row.try_get(first + 1)?,
        token: row.try_get::<Option<Uuid>, _>(first + 2)?.map(TokenId::from_uuid),
        on_behalf_of: row.try_get::<Option<Uuid>, _>(first + 3)?.map(UserId::from_uuid),
    })
}

fn body(row: &PgRow, first: usize, managed_by: usize) -> Result<RrSetBody, sqlx::Error> {
    let managed_by: Option<&str> = row.try_get(managed_by)?;
    Ok(RrSetBody {
        managed_by: managed_by.map(str::parse).transpose().map_err(|_| odd("managed_by"))?,
        ttl: Ttl::new(row.try_get::<i64, _>(first)?).map_err(|_| odd("ttl"))?,
        records: row.try_get(first + 1)?,
        comment: row.try_get(first + 2)?,
    })
}

fn rrtype(row: &PgRow, index: usize) -> Result<RrType, sqlx::Error> {
    u16::try_from(row.try_get::<i32, _>(index)?).map(RrType::from_code).map_err(|_| odd("type"))
}

fn owner(row: &PgRow, index: usize) -> Result<OwnerName, sqlx::Error> {
    OwnerName::from_canonical(row.try_get(index)?).map_err(|_| odd("owner"))
}

pub(super) fn shown(row: &PgRow) -> Result<ShownRrset, sqlx::Error> {
    let by = match maybe_at(row, 7)? {
        Some(at) => Some((at, actor(row, 8)?, row.try_get(12)?)),
        None => None,
    };
    Ok(ShownRrset {
        owner: owner(row, 2)?,
        rrtype: rrtype(row, 1)?,
        body: body(row, 3, 13)?,
        changed: Some(Changed { revision: Revision::new(row.try_get(6)?), by }),
    })
}

/// An RRset with the revision that last changed it, of columns that say no more.
pub(super) fn unattributed(row: &PgRow) -> Result<ShownRrset, sqlx::Error> {
    Ok(ShownRrset {
        owner: owner(row, 0)?,
        rrtype: rrtype(row, 1)?,
        body: body(row, 2, 6)?,
        changed: Some(Changed { revision: Revision::new(row.try_get(5)?), by: None }),
    })
}

/// An RRset of columns that say nothing of what last changed it.
pub(super) fn bare(row: &PgRow) -> Result<ShownRrset, sqlx::Error> {
    Ok(ShownRrset { owner: owner(row, 0)?, rrtype: rrtype(row, 1)?, body: body(row, 2, 5)?, changed: None })
}

/// One RRset.
///
/// # Errors
/// When the database does not answer.
pub async fn one(
    pool: &PgPool,
    domain: DomainId,
    owner: &OwnerKey,
    rrtype: RrType,
) -> Result<Option<ShownRrset>, sqlx::Error> {
    let query = sqlx::query(sql::RRSET).bind(domain.as_uuid()).bind(owner.as_str());
    let row = query.bind(i32::from(rrtype.code())).fetch_optional(pool).await?;
    row.as_ref().map(shown).transpose()
}

/// The next RRsets in the order of the zone.
///
/// # Errors
/// When the database does not answer.
pub async fn page(
    pool: &PgPool,
    domain: DomainId,
    after: Option<&(String, i32)>,
    most: i64,
) -> Result<Vec<ShownRrset>, sqlx::Error> {
    let query = sqlx::query(sql::RRSETS).bind(domain.as_uuid());
    let query = query.bind(after.map(|(key, _)| key.as_str())).bind(after.map(|(_, rrtype)| *rrtype));
    let rows = query.bind(most).fetch_all(pool).await?;
    rows.iter().map(shown).collect()
}

/// Every RRset of the zone as of one moment, in order, as fast as it is taken.
pub fn zone(pool: PgPool, domain: DomainId) -> impl Stream<Item = Result<ShownRrset, sqlx::Error>> + Send {
    async_stream::try_stream! {
        let mut rows = sqlx::query(sql::ZONE).bind(domain.as_uuid()).fetch(&pool);
        while let Some(row) = rows.next().await {
            yield bare(&row?)?;
        }
    }
}

/// What the platform answers for names of a zone: proxied ones, and the names of pools in its own.
///
/// # Errors
/// When the database does not answer.
pub async fn answers(
    pool: &PgPool,
    domain: &DomainState,
    platform: &Platform,
) -> Result<Vec<ShownRrset>, sqlx::Error> {
    let query = sqlx::query_as::<_, (String, i32)>(powerdns::sql::MARKS).bind(domain.id.as_uuid());
    let mut marks = Vec::new();
    if platform.endpoints.is_some() {
        for (key, code) in query.fetch_all(pool).await? {
            let code = u16::try_from(code).map_err(|_| odd("type"))?;
            marks.push((OwnerKey::parse(&key).map_err(|_| odd("owner_key"))?, RrType::from_code(code)));
        }
    }
    answered(domain, marks, platform)
}

/// What the platform answers for these proxied names of a zone, and for the names of pools in its own.
///
/// # Errors
/// When a name is none that this program writes.
pub fn answers_of<'a>(
    domain: &DomainState,
    proxied: impl Iterator<Item = &'a OwnerKey>,
    platform: &Platform,
) -> Result<Vec<ShownRrset>, sqlx::Error> {
    let mut marks: Vec<_> = proxied.map(|key| (key.clone(), powerdns::PROXIED)).collect();
    let own = platform.endpoints.as_ref().filter(|endpoints| endpoints.zone == domain.name);
    for pool in own.iter().flat_map(|endpoints| endpoints.pools.keys()) {
        marks.push((OwnerKey::parse(pool).map_err(|_| odd("pool"))?, powerdns::POOL));
    }
    answered(domain, marks, platform)
}

fn answered(
    domain: &DomainState,
    marks: Vec<(OwnerKey, RrType)>,
    platform: &Platform,
) -> Result<Vec<ShownRrset>, sqlx::Error> {
    let Some(endpoints) = &platform.endpoints else { return Ok(Vec::new()) };
    let mut shown = Vec::new();
    for (key, mark) in marks {
        let owner = OwnerName::from_key(key.as_str()).map_err(|_| odd("owner_key"))?;
        let mut rrsets = BTreeMap::from([(mark, powerdns::mark())]);
        powerdns::expand(&domain.name, &key, &mut rrsets, Some(endpoints));
        for (rrtype, data) in rrsets {
            let ttl = Ttl::new(i64::from(data.ttl)).map_err(|_| odd("ttl"))?;
            let body = RrSetBody { ttl, records: data.records, comment: None, managed_by: None };
            shown.push(ShownRrset { owner: owner.clone(), rrtype, body, changed: None });
        }
    }
    Ok(shown)
}

/// What the platform adds at the apex of a zone: its NS set and its SOA, in the order of the zone. Nothing before the
/// platform has an identity.
pub fn derived(domain: &StoredDomain, platform: &Platform) -> Vec<ShownRrset> {
    let Some(identity) = &platform.identity else { return Vec::new() };
    let Some(primary) = identity.nameservers.first() else { return Vec::new() };
    let serial = domain.serial(platform);
    let (refresh, retry) = (identity.refresh, identity.retry);
    let (expire, minimum) = (identity.expire, identity.minimum);
    let soa = format!("{primary}. {}. {serial} {refresh} {retry} {expire} {minimum}", identity.hostmaster);
    let mut names: Vec<String> = identity.nameservers.iter().map(|name| format!("{name}.")).collect();
    names.sort_unstable();
    let rows = [(RrType::NS, identity.ns_ttl, names), (RrType::SOA, identity.soa_ttl, vec![soa])];
    let rrset = |(rrtype, ttl, records): (RrType, u32, Vec<String>)| {
        let ttl = Ttl::new(i64::from(ttl)).ok()?;
        let body = RrSetBody { ttl, records, comment: None, managed_by: None };
        Some(ShownRrset { owner: OwnerName::apex(), rrtype, body, changed: None })
    };
    rows.into_iter().filter_map(rrset).collect()
}
