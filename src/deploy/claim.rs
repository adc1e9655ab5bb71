//! What is due on a cluster, read in one snapshot with everything that it is rendered from.

use super::fault::DeployError;
use super::hold::InHand;
use super::load::TOUCHED_MAX_EVENTS;
use super::sql;
use chrono::{DateTime, Utc};
use headwater_events::dns::DomainName;
use headwater_events::domain::soa_serial;
use headwater_events::edge::Endpoints;
use headwater_events::event::DnsIdentity;
use headwater_events::ids::{ClusterId, DomainId, LogId, Revision, TenantId};
use headwater_events::time::Timestamp;
use headwater_projections::powerdns;
use sqlx::Row;
use sqlx::postgres::{PgConnection, PgPool, PgRow, PgTransaction};
use sqlx::types::Json;
use std::collections::BTreeSet;
use uuid::Uuid;

/// One domain on one cluster, as the control database has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The domain.
    pub domain: DomainId,
    /// Its name.
    pub name: DomainName,
    /// The sort key of its name.
    pub name_key: String,
    /// Its owner.
    pub tenant: TenantId,
    /// What its serials start above.
    pub serial_base: u32,
    /// Records of its owner's.
    pub records: i64,
    /// Whether the zone is meant to be there.
    pub wanted: bool,
    /// The revision that is meant to be there.
    pub desired: Revision,
    /// The platform's generation that is meant to be there.
    pub generation: u32,
    /// When that was committed.
    pub desired_at: Timestamp,
    /// The revision that is known to be there; none when nothing is.
    pub active: Option<Revision>,
    /// The platform's generation that is known to be there.
    pub active_generation: Option<u32>,
    /// The deployment's state.
    pub state: String,
    /// Tries so far.
    pub attempts: u32,
    /// What went wrong last.
    pub last_error: Option<String>,
    /// The checksum that was recorded last.
    pub checksum: Option<Vec<u8>>,
}

impl Claim {
    /// The SOA serial of what is meant to be there.
    pub fn serial(&self) -> u32 {
        soa_serial(self.serial_base, self.desired, self.generation)
    }
}

/// A domain that is due, and how large it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Due {
    pub(super) domain: DomainId,
    pub(super) tenant: TenantId,
    /// Nothing of it is there yet, so all of it is written.
    pub(super) whole: bool,
    pub(super) records: i64,
    /// Events since what is there, as far as they are followed one by one.
    pub(super) events: i64,
}

/// What every zone says of the platform, and which log it is.
#[derive(Debug, Clone)]
pub struct Platform {
    /// SOA and NS set; none before `headwater init`.
    pub identity: Option<DnsIdentity>,
    /// How often that, or what is answered for proxied names, changed.
    pub generation: u32,
    /// What is answered for proxied names; none before any edge was ready.
    pub endpoints: Option<Endpoints>,
    /// Since which generation proxied names lead where they do.
    pub zone_generation: u32,
    /// The log.
    pub log: LogId,
}

/// One consistent sight of the control database.
pub(super) type Snapshot = PgTransaction<'static>;

pub(super) async fn snapshot(pool: &PgPool) -> Result<Snapshot, DeployError> {
    pool.begin_with(sql::SNAPSHOT).await.map_err(DeployError::control)
}

pub(super) async fn platform(connection: &mut PgConnection) -> Result<Platform, DeployError> {
    let row =
        sqlx::query(powerdns::sql::PLATFORM).fetch_one(connection).await.map_err(DeployError::control)?;
    let read = || {
        Ok::<_, sqlx::Error>(Platform {
            identity: row.try_get::<Option<Json<DnsIdentity>>, _>(0)?.map(|json| json.0),
            generation: unsigned(row.try_get(1)?),
            endpoints: row.try_get::<Option<Json<Endpoints>>, _>(3)?.map(|json| json.0),
            zone_generation: unsigned(row.try_get(4)?),
            log: LogId::from_uuid(row.try_get(2)?),
        })
    };
    read().map_err(DeployError::control)
}

/// Tenants that one look takes in: of each, as much is read as is claimed at once.
const TURN_MAX_TENANTS: usize = 32;

/// What one look found.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) due: Vec<Due>,
    /// Where the next look begins: after the last tenant, if there may be more of them.
    pub(super) next: Option<TenantId>,
}

/// What is due now, without what is in hand, of the tenants after one.
pub(super) async fn due(
    pool: &PgPool,
    cluster: ClusterId,
    in_hand: &InHand,
    most: u32,
    after: Option<TenantId>,
) -> Result<Found, DeployError> {
    let domains: Vec<Uuid> = in_hand.domains.iter().map(|id| id.as_uuid()).collect();
    let asked: Vec<String> =
        in_hand.asked.iter().map(|(id, revision)| sql::wanted_at(*id, *revision)).collect();
    let query = sqlx::query(sql::DUE).bind(cluster.as_uuid()).bind(domains).bind(i64::from(most));
    let query = query.bind(TOUCHED_MAX_EVENTS + 1).bind(after.map_or(Uuid::nil(), TenantId::as_uuid));
    // No more of them than may be taken: then each that was looked at is among what is found.
    let turns = TURN_MAX_TENANTS.min(usize::try_from(most).unwrap_or(TURN_MAX_TENANTS));
    let query = query.bind(i64::try_from(turns).unwrap_or(i64::MAX)).bind(asked);
    let mut indexed = pool.begin_with(sql::INDEXED).await.map_err(DeployError::control)?;
    let rows = query.fetch_all(&mut *indexed).await.map_err(DeployError::control)?;
    indexed.rollback().await.map_err(DeployError::control)?;
    let read = |row: &PgRow| {
        Ok::<_, sqlx::Error>(Due {
            domain: DomainId::from_uuid(row.try_get(0)?),
            whole: row.try_get(1)?,
            records: row.try_get(2)?,
            events: row.try_get(3)?,
            tenant: TenantId::from_uuid(row.try_get(4)?),
        })
    };
    let due: Result<Vec<Due>, _> = rows.iter().map(|row| read(row).map_err(DeployError::control)).collect();
    let due = due?;
    let tenants: BTreeSet<TenantId> = due.iter().map(|due| due.tenant).collect();
    let next = tenants.last().copied().filter(|_| tenants.len() >= turns);
    Ok(Found { due, next })
}

/// Which of the deployments named are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Which {
    /// Those that are due.
    Due,
    /// All of them.
    Any,
}

/// The deployments of these domains on a cluster.
pub(super) async fn claims(
    connection: &mut PgConnection,
    cluster: ClusterId,
    domains: &[DomainId],
    which: Which,
) -> Result<Vec<Claim>, DeployError> {
    let ids: Vec<Uuid> = domains.iter().map(|id| id.as_uuid()).collect();
    let text = match which {
        Which::Due => sql::CLAIM,
        Which::Any => sql::DEPLOYMENTS,
    };
    let query = sqlx::query(text).bind(cluster.as_uuid()).bind(ids);
    let rows = query.fetch_all(connection).await.map_err(DeployError::control)?;
    rows.iter().map(|row| read(row).map_err(DeployError::control)).collect()
}

/// The next deployments of a cluster by the names of their domains.
pub(super) async fn page(
    pool: &PgPool,
    cluster: ClusterId,
    after: &str,
    most: i64,
) -> Result<Vec<Claim>, DeployError> {
    let query = sqlx::query(sql::DEPLOYMENTS_PAGE).bind(cluster.as_uuid()).bind(after).bind(most);
    let rows = query.fetch_all(pool).await.map_err(DeployError::control)?;
    rows.iter().map(|row| read(row).map_err(DeployError::control)).collect()
}

fn read(row: &PgRow) -> Result<Claim, sqlx::Error> {
    let name = DomainName::parse(row.try_get(1)?)
        .map_err(|fault| sqlx::Error::ColumnDecode { index: "name".into(), source: fault.detail.into() })?;
    let active = Revision::new(row.try_get(9)?);
    let state: String = row.try_get(10)?;
    Ok(Claim {
        domain: DomainId::from_uuid(row.try_get(0)?),
        name,
        name_key: row.try_get(2)?,
        tenant: TenantId::from_uuid(row.try_get(3)?),
        serial_base: unsigned(row.try_get(4)?),
        records: row.try_get(5)?,
        wanted: row.try_get(6)?,
        desired: Revision::new(row.try_get(7)?),
        generation: unsigned(row.try_get(8)?),
        active: (active > Revision::ZERO && state != "removed").then_some(active),
        state,
        attempts: u32::try_from(row.try_get::<i32, _>(11)?).unwrap_or_default(),
        last_error: row.try_get(12)?,
        checksum: row.try_get(13)?,
        desired_at: Timestamp::from(row.try_get::<DateTime<Utc>, _>(14)?),
        active_generation: u32::try_from(row.try_get::<i64, _>(15)?).ok(),
    })
}

/// A number that was stored from 32 bits.
pub(super) fn unsigned(number: i64) -> u32 {
    u32::try_from(number.rem_euclid(1 << 32)).unwrap_or_default()
}
