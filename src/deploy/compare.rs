//! Whole zones, compared: what the log makes of a zone at the revision that the target says it holds, against the
//! rows that it does hold. Both are read in parts; what is kept of a row meanwhile is its fingerprint.

use super::claim::{self, Claim, Platform, Snapshot, Which, unsigned};
use super::cluster::Target;
use super::fault::DeployError;
use super::fence::Ledger;
use super::load::{chain_ends, event};
use super::zone::{self, Overlay, ZoneReader};
use super::{sql, target};
use futures_util::TryStreamExt;
use headwater_events::codec;
use headwater_events::dns::RrSetBody;
use headwater_events::domain::soa_serial;
use headwater_events::edge::Endpoints;
use headwater_events::event::{DnsIdentity, Event};
use headwater_events::ids::{DomainId, Revision, StreamRef};
use headwater_projections::powerdns::sql as powerdns_sql;
use headwater_projections::powerdns::{Difference, PROXIED, Plan, RrsetData, SetHash, Zone, mark};
use sqlx::Row as _;
use sqlx::postgres::{PgConnection, PgPool};
use std::collections::HashMap;

/// Differences of one zone that are told row by row; a zone with more is written anew.
pub const DIFFERENCES_MAX_ROWS: usize = 5_000;
/// Rows besides its records that are told of one zone.
const EXTRAS_MAX_ROWS: i64 = 100;
/// Events between the target's revision and the newest that are taken back to compare.
const OVERLAY_MAX_EVENTS: i64 = 100_000;

/// What a comparison found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Found {
    /// It is being deployed right now, or is not meant to be there yet: nothing can be said.
    Moving,
    /// The target holds what this log does not know.
    Ahead(String),
    /// The differences, none if it is equal, and what would mend them; no plan where the zone is to be written anew.
    Compared { differences: Vec<Difference>, plan: Option<Plan>, checksum: SetHash },
}

impl Found {
    fn whole(differences: Vec<Difference>) -> Self {
        Self::Compared { differences, plan: None, checksum: SetHash::EMPTY }
    }
}

/// A compared zone.
#[derive(Debug)]
pub(super) struct Comparison {
    pub(super) claim: Claim,
    pub(super) ledger: Option<Ledger>,
    pub(super) found: Found,
}

/// Compares one zone; none when there is no such deployment.
pub(super) async fn compare(
    control: &PgPool,
    target: &Target,
    domain: DomainId,
) -> Result<Option<Comparison>, DeployError> {
    // First what is wanted, then what is there: a target can only be newer than the snapshot.
    let mut snapshot = claim::snapshot(control).await?;
    let platform = claim::platform(&mut snapshot).await?;
    let claims = claim::claims(&mut snapshot, target.cluster.id, &[domain], Which::Any).await?;
    let Some(claim) = claims.into_iter().next() else { return Ok(None) };
    let mut there = target.pool.begin_with(sql::SNAPSHOT).await.map_err(DeployError::target)?;
    let name = claim.name.as_str();
    let row = sqlx::query(powerdns_sql::LEDGER_READ).bind(name).fetch_optional(&mut *there).await;
    let ledger = row.map_err(DeployError::target)?.as_ref().map(target::ledger).transpose();
    let ledger = ledger.map_err(DeployError::target)?;
    let as_written = sqlx::query_as::<_, (i32, bool)>(powerdns_sql::DOMAIN_AS_WRITTEN).bind(name);
    let as_written = as_written.fetch_optional(&mut *there).await.map_err(DeployError::target)?;
    let found = match standing(control, &claim, ledger.as_ref(), as_written).await? {
        Standing::Said(found) => found,
        Standing::Rows(id) => {
            let ledger = ledger.as_ref().ok_or_else(|| DeployError::Failed("the ledger is gone".into()))?;
            rows(&mut snapshot, &mut there, &platform, &claim, ledger, (id, as_written)).await?
        }
    };
    Ok(Some(Comparison { claim, ledger, found }))
}

/// What the ledger alone tells.
enum Standing {
    Said(Found),
    /// The rows of this zone are to be compared.
    Rows(i32),
}

async fn standing(
    control: &PgPool,
    claim: &Claim,
    ledger: Option<&Ledger>,
    as_written: Option<(i32, bool)>,
) -> Result<Standing, DeployError> {
    let name = claim.name.to_string();
    let said = |found| Ok(Standing::Said(found));
    let equal = || Found::whole(Vec::new());
    let Some(ledger) = ledger else {
        return match as_written {
            Some(_) if claim.wanted => said(Found::Ahead(format!(
                "the DNS cluster holds a zone {name} that Headwater did not write"
            ))),
            None if claim.wanted && claim.active.is_some() => {
                said(Found::whole(vec![Difference::ZoneMissing(name)]))
            }
            None if claim.wanted => said(Found::Moving),
            _ => said(equal()),
        };
    };
    if ledger.revision == Revision::ZERO || ledger.released {
        return match claim.active {
            Some(_) if claim.wanted && !ledger.released => {
                said(Found::whole(vec![Difference::ZoneMissing(name)]))
            }
            _ => said(Found::Moving),
        };
    }
    let mut connection = control.acquire().await.map_err(DeployError::control)?;
    let at = (ledger.domain, ledger.revision);
    let ends = chain_ends(&mut connection, &[at].into()).await?;
    if ends.get(&at) != Some(&ledger.chain) {
        return said(Found::Ahead(format!(
            "the DNS cluster holds revision {} (serial {}) of log {}, which this log does not know",
            ledger.revision,
            ledger.serial,
            ledger.log.short()
        )));
    }
    let removed = claim.state == "removed";
    match as_written {
        _ if ledger.domain != claim.domain || ledger.revision > claim.desired => said(Found::Moving),
        Some(_) if !claim.wanted && removed => said(Found::whole(vec![Difference::ZoneUnexpected(name)])),
        _ if !claim.wanted => said(equal()),
        _ if claim.active.is_some_and(|active| ledger.revision < active) => {
            let detail =
                format!("zone {name} is at revision {}, {} was active", ledger.revision, claim.desired);
            said(Found::whole(vec![Difference::Ledger(detail)]))
        }
        None if ledger.present => said(Found::whole(vec![Difference::ZoneMissing(name)])),
        None => said(Found::Moving),
        Some((id, _)) if ledger.present => Ok(Standing::Rows(id)),
        Some(_) => said(Found::whole(vec![Difference::ZoneUnexpected(name)])),
    }
}

/// A zone as it was at the revision and generation of the target.
struct AsOf {
    identity: Option<DnsIdentity>,
    endpoints: Option<Endpoints>,
    serial: u32,
    overlay: Overlay,
}

async fn as_of(
    snapshot: &mut Snapshot,
    platform: &Platform,
    claim: &Claim,
    ledger: &Ledger,
) -> Result<AsOf, DeployError> {
    let mut overlay = Overlay::new();
    let mut base = None;
    let query =
        sqlx::query(powerdns_sql::TOUCHED).bind([claim.domain.as_uuid()]).bind([ledger.revision.get()]);
    let query = query.bind([claim.desired.get()]).bind(OVERLAY_MAX_EVENTS);
    for row in query.fetch_all(&mut **snapshot).await.map_err(DeployError::control)? {
        let (name, rrtype, before) = match event(&row)? {
            Event::RrsetReplaced(put) => (put.name, put.rrtype, put.before),
            Event::RrsetDeleted(deleted) => (deleted.name, deleted.rrtype, Some(deleted.before)),
            Event::HostnameReplaced(put) => {
                let before = put.before.map(|_| mark());
                overlay.entry(put.name.key()).or_default().entry(PROXIED).or_insert(before);
                continue;
            }
            Event::HostnameDeleted(deleted) => {
                overlay.entry(deleted.name.key()).or_default().entry(PROXIED).or_insert_with(|| Some(mark()));
                continue;
            }
            Event::DomainUpdated(change) => {
                base.get_or_insert(change.before.serial_base);
                continue;
            }
            _ => continue,
        };
        let data = |body: RrSetBody| RrsetData { ttl: body.ttl.seconds(), records: body.records };
        // The first change after the revision knows what was there at it.
        overlay.entry(name.key()).or_default().entry(rrtype).or_insert_with(|| before.map(data));
    }
    let serial = soa_serial(base.unwrap_or(claim.serial_base), ledger.revision, ledger.generation);
    if ledger.generation == platform.generation {
        let (identity, endpoints) = (platform.identity.clone(), platform.endpoints.clone());
        return Ok(AsOf { identity, endpoints, serial, overlay });
    }
    let identity = match at_generation(snapshot, "platform.dns_identity_changed", ledger).await? {
        Some(Event::DnsIdentityChanged(change)) => Some(change.after),
        _ => None,
    };
    // Most zones answer nothing that changes with the edges.
    let answers = overlay.values().any(|types| types.contains_key(&PROXIED));
    let endpoints = if answers || !zone::marks(snapshot, claim.domain).await?.is_empty() {
        match at_generation(snapshot, "platform.endpoints_changed", ledger).await? {
            Some(Event::EndpointsChanged(change)) => Some(change.after),
            _ => None,
        }
    } else {
        None
    };
    Ok(AsOf { identity, endpoints, serial, overlay })
}

/// The newest event of the platform of this type up to the generation of the target.
async fn at_generation(
    snapshot: &mut Snapshot,
    event_type: &str,
    ledger: &Ledger,
) -> Result<Option<Event>, DeployError> {
    let query = sqlx::query(sql::AT_GENERATION).bind(StreamRef::PLATFORM.id).bind(event_type);
    let query = query.bind(i64::from(ledger.generation));
    let row = query.fetch_optional(&mut **snapshot).await.map_err(DeployError::control)?;
    let Some(row) = row else { return Ok(None) };
    let schema = row.try_get(0).map_err(DeployError::control)?;
    let data: &[u8] = row.try_get(1).map_err(DeployError::control)?;
    codec::decode(event_type, schema, data).map(Some).map_err(DeployError::control)
}

async fn rows(
    snapshot: &mut Snapshot,
    there: &mut PgConnection,
    platform: &Platform,
    claim: &Claim,
    ledger: &Ledger,
    (id, as_written): (i32, Option<(i32, bool)>),
) -> Result<Found, DeployError> {
    let AsOf { identity, endpoints, serial, overlay } = as_of(snapshot, platform, claim, ledger).await?;
    let Ok(zone) = Zone::new(claim.name.clone(), serial, identity.as_ref()) else {
        return Ok(Found::Moving);
    };
    let mut open: HashMap<SetHash, i64> = HashMap::new();
    let mut checksum = SetHash::EMPTY;
    let mut reader = ZoneReader::new(claim.domain, &zone, overlay.clone(), endpoints.as_ref());
    while let Some(rows) = reader.next(snapshot).await? {
        checksum.add(SetHash::of_rows(&rows));
        rows.iter().for_each(|row| *open.entry(SetHash::of_row(row)).or_default() += 1);
    }
    let extras = sqlx::query_scalar::<_, String>(powerdns_sql::EXTRAS_OF_ZONE).bind(id).bind(EXTRAS_MAX_ROWS);
    let extras = extras.fetch_all(&mut *there).await.map_err(DeployError::target)?;
    let mut plan = Plan::default();
    let mut too_many = false;
    let mut found = sqlx::query(powerdns_sql::RECORDS_OF_ZONE).bind(id).fetch(&mut *there);
    while let Some(row) = found.try_next().await.map_err(DeployError::target)? {
        let (_, stored) = target::stored_row(&row).map_err(DeployError::target)?;
        match open.get_mut(&SetHash::of_row(&stored.row)) {
            Some(count) if *count > 0 => *count -= 1,
            _ if plan.delete.len() < DIFFERENCES_MAX_ROWS => plan.delete.push(stored),
            _ => too_many = true,
        }
    }
    open.retain(|_, count| *count > 0);
    if !open.is_empty() {
        let mut reader = ZoneReader::new(claim.domain, &zone, overlay, endpoints.as_ref());
        while let Some(rows) = reader.next(snapshot).await? {
            for row in rows {
                match open.get_mut(&SetHash::of_row(&row)) {
                    Some(count) if *count > 0 && plan.insert.len() < DIFFERENCES_MAX_ROWS => {
                        *count -= 1;
                        plan.insert.push(row);
                    }
                    Some(count) if *count > 0 => too_many = true,
                    _ => {}
                }
            }
        }
    }
    let mut differences = plan.differences();
    if ledger.serial != serial || ledger.checksum != Some(checksum) {
        let detail = format!("the ledger of zone {} does not fit revision {}", claim.name, ledger.revision);
        differences.push(Difference::Ledger(detail));
    }
    let of_others = |extra: String| Difference::Ledger(format!("{extra} of zone {} is not ours", claim.name));
    differences.extend(extras.into_iter().map(of_others));
    if as_written.is_some_and(|(_, native)| !native) {
        differences.push(Difference::Ledger(format!("zone {} is not of type NATIVE", claim.name)));
    }
    // A serial in the ledger that is not that of its revision is for a whole write to set right.
    let plan = (!too_many && ledger.serial == serial).then_some(plan);
    Ok(Found::Compared { differences, plan, checksum })
}

/// How many deployments a cluster has.
pub(super) async fn count(control: &PgPool, target: &Target) -> Result<u32, DeployError> {
    let query = sqlx::query_scalar::<_, i64>(sql::CHECK_COUNT).bind(target.cluster.id.as_uuid());
    query.fetch_one(control).await.map(unsigned).map_err(DeployError::control)
}
