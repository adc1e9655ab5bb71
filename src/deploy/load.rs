//! Claims → candidates: what a snapshot holds of the owners that changed, rendered. Its cost is that of the change;
//! a zone of which nothing is there yet, or of which very much changed, is rendered whole.

use super::claim::{Claim, Platform, Snapshot};
use super::fault::DeployError;
use super::sample::{self, Sample};
use super::zone;
use headwater_events::codec;
use headwater_events::dns::{DnsFault, OwnerKey, RrType};
use headwater_events::event::Event;
use headwater_events::ids::{DomainId, Revision};
use headwater_projections::powerdns::{self, Owner, Owners, RenderFault, Row, Zone, sql};
use sqlx::Row as _;
use sqlx::postgres::{PgConnection, PgRow};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use uuid::Uuid;

/// Events of one domain that are followed one by one; with more of them the zone is rendered whole.
pub const TOUCHED_MAX_EVENTS: i64 = 10_000;
/// Names below changed zone cuts that are rendered one by one.
const BELOW_CUTS_MAX_KEYS: usize = 10_000;
/// Names of one page of those.
const BELOW_CUTS_PAGE_KEYS: i64 = 2_000;
/// A zone with more records is not written whole together with others.
pub const WHOLE_MAX_RECORDS: i64 = 2_000;

/// The end of a domain's hash chain at a revision.
pub type Chain = Vec<u8>;

/// How a candidate is made active.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Work {
    /// The zone is taken off.
    Remove,
    /// These owners, by their names in PowerDNS, have these rows from now on.
    Owners {
        /// The revision that must be there at least.
        base: Revision,
        /// Every name whose rows are replaced.
        names: Vec<String>,
        /// Their rows.
        rows: Vec<Row>,
    },
    /// The zone has these rows from now on.
    Whole(Vec<Row>),
    /// The zone is too large to be held in memory: its rows are read while they are written.
    Streamed,
}

/// A rendered, unapplied state.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// What it is for.
    pub claim: Claim,
    /// What to do.
    pub work: Work,
    /// What its own rows are made of; none when it is removed.
    pub zone: Option<Zone>,
    /// Known ends of the domain's chain, by revision.
    pub chains: HashMap<Revision, Chain>,
    /// What shows on the wire that it is active.
    pub samples: Vec<Sample>,
    /// Written even if the target says that it is there.
    pub rebuild: bool,
}

/// What became of claims.
#[derive(Debug, Default)]
pub struct Loaded {
    /// Those that can be applied.
    pub candidates: Vec<Candidate>,
    /// Those that are never applied, and why.
    pub rejected: Vec<(Claim, RenderFault)>,
    /// Those that are to be claimed again as a whole.
    pub too_large: Vec<DomainId>,
}

/// What happened to a domain's owners.
#[derive(Debug, Default)]
struct Touched {
    rrsets: BTreeSet<(OwnerKey, RrType)>,
    cuts: BTreeSet<OwnerKey>,
    events: i64,
}

/// Renders claims. Those in `whole` are rendered whole whatever is known to be there.
pub(super) async fn load(
    snapshot: &mut Snapshot,
    platform: &Platform,
    claims: Vec<Claim>,
    whole: &BTreeSet<DomainId>,
) -> Result<Loaded, DeployError> {
    let mut loaded = Loaded::default();
    let mut changed = Vec::new();
    for claim in claims {
        let zone = match Zone::new(claim.name.clone(), claim.serial(), platform.identity.as_ref()) {
            Ok(zone) => zone,
            Err(fault) if claim.wanted => {
                loaded.rejected.push((claim, fault));
                continue;
            }
            Err(_) => {
                loaded.candidates.push(candidate(claim, Work::Remove, None));
                continue;
            }
        };
        match claim.active {
            _ if !claim.wanted => loaded.candidates.push(candidate(claim, Work::Remove, None)),
            Some(base) if !whole.contains(&claim.domain) => changed.push((claim, zone, base)),
            _ if claim.records > WHOLE_MAX_RECORDS => {
                loaded.candidates.push(candidate(claim, Work::Streamed, Some(zone)));
            }
            _ => {
                let (rows, samples) = zone::render_whole(snapshot, platform, claim.domain, &zone).await?;
                let mut made = candidate(claim, Work::Whole(rows), Some(zone));
                made.samples = samples;
                loaded.candidates.push(made);
            }
        }
    }
    load_changed(snapshot, platform, changed, &mut loaded).await?;
    chains(snapshot, &mut loaded.candidates).await?;
    Ok(loaded)
}

fn candidate(claim: Claim, work: Work, zone: Option<Zone>) -> Candidate {
    Candidate { claim, work, zone, chains: HashMap::new(), samples: Vec::new(), rebuild: false }
}

async fn load_changed(
    snapshot: &mut Snapshot,
    platform: &Platform,
    changed: Vec<(Claim, Zone, Revision)>,
    loaded: &mut Loaded,
) -> Result<(), DeployError> {
    if changed.is_empty() {
        return Ok(());
    }
    let mut touched = touched(snapshot, &changed).await?;
    let mut keys: BTreeMap<DomainId, BTreeSet<OwnerKey>> = BTreeMap::new();
    for (claim, _, _) in &changed {
        let of = touched.entry(claim.domain).or_default();
        if answers_moved(claim, platform) {
            let marks = zone::marks(snapshot, claim.domain).await?;
            of.rrsets.extend(marks.iter().flat_map(|(key, mark)| powerdns::derived_at(key, *mark)));
            // The zone that was the platform's before has no marks of pools any more, and their rows.
            let pools = platform.endpoints.iter().flat_map(|endpoints| endpoints.pools.keys());
            for pool in pools {
                of.rrsets.extend(powerdns::derived_at(&owner_key(pool)?, powerdns::POOL));
            }
        }
        let mut wide: BTreeSet<OwnerKey> = of.rrsets.iter().map(|(key, _)| key.clone()).collect();
        if of.events > TOUCHED_MAX_EVENTS || !below_cuts(snapshot, claim.domain, &of.cuts, &mut wide).await? {
            loaded.too_large.push(claim.domain);
            continue;
        }
        keys.insert(claim.domain, powerdns::affected(&wide));
    }
    let mut owners = owners(snapshot, &keys).await?;
    for (claim, zone, base) in changed {
        let (Some(keys), Some(of)) = (keys.get(&claim.domain), touched.get(&claim.domain)) else {
            continue;
        };
        let mut owners = owners.remove(&claim.domain).unwrap_or_default();
        for (key, owner) in &mut owners {
            powerdns::expand(&claim.name, key, &mut owner.rrsets, platform.endpoints.as_ref());
        }
        let names = keys.iter().map(|key| powerdns::powerdns_name(key, &claim.name)).collect();
        let rows = powerdns::render(&zone, &owners);
        let samples = sample::of_changes(&zone, &owners, &of.rrsets);
        let mut made = candidate(claim, Work::Owners { base, names, rows }, Some(zone));
        made.samples = samples;
        loaded.candidates.push(made);
    }
    let mut asked: Vec<_> = loaded
        .candidates
        .iter_mut()
        .map(|made| sample::Asked {
            domain: made.claim.domain,
            name_key: &made.claim.name_key,
            samples: &mut made.samples,
        })
        .collect();
    sample::drop_uncertain(snapshot, &mut asked).await
}

/// Whether more of the zone than what its own events touch may be answered otherwise than what is there: it is the
/// platform's own, or names lead elsewhere since.
fn answers_moved(claim: &Claim, platform: &Platform) -> bool {
    platform.endpoints.as_ref().is_some_and(|endpoints| {
        endpoints.zone == claim.name || claim.active_generation.is_none_or(|at| at < platform.zone_generation)
    })
}

async fn touched(
    connection: &mut PgConnection,
    changed: &[(Claim, Zone, Revision)],
) -> Result<BTreeMap<DomainId, Touched>, DeployError> {
    let ids: Vec<Uuid> = changed.iter().map(|(claim, _, _)| claim.domain.as_uuid()).collect();
    let after: Vec<i64> = changed.iter().map(|(_, _, base)| base.get()).collect();
    let up_to: Vec<i64> = changed.iter().map(|(claim, _, _)| claim.desired.get()).collect();
    let query = sqlx::query(sql::TOUCHED).bind(ids).bind(after).bind(up_to).bind(TOUCHED_MAX_EVENTS + 1);
    let rows = query.fetch_all(connection).await.map_err(DeployError::control)?;
    let mut all: BTreeMap<DomainId, Touched> = BTreeMap::new();
    for row in &rows {
        let id = row.try_get(0).map(DomainId::from_uuid).map_err(DeployError::control)?;
        let of = all.entry(id).or_default();
        of.events += 1;
        let (name, rrtype) = match event(row)? {
            Event::RrsetReplaced(put) => (put.name, put.rrtype),
            Event::RrsetDeleted(deleted) => (deleted.name, deleted.rrtype),
            Event::HostnameReplaced(put) => {
                of.rrsets.extend(powerdns::derived_at(&put.name.key(), powerdns::PROXIED));
                continue;
            }
            Event::HostnameDeleted(deleted) => {
                of.rrsets.extend(powerdns::derived_at(&deleted.name.key(), powerdns::PROXIED));
                continue;
            }
            _ => continue,
        };
        if rrtype == RrType::NS && !name.is_apex() {
            of.cuts.insert(name.key());
        }
        of.rrsets.insert((name.key(), rrtype));
    }
    Ok(all)
}

/// The event in columns 1 to 3 of a row.
pub(super) fn event(row: &PgRow) -> Result<Event, DeployError> {
    let column = |error: sqlx::Error| DeployError::control(error);
    let data: &[u8] = row.try_get(3).map_err(column)?;
    codec::decode(row.try_get(1).map_err(column)?, row.try_get(2).map_err(column)?, data)
        .map_err(DeployError::control)
}

/// Adds every name below cuts that changed: it is covered from now on, or no longer. False when they are too many.
async fn below_cuts(
    connection: &mut PgConnection,
    domain: DomainId,
    cuts: &BTreeSet<OwnerKey>,
    wide: &mut BTreeSet<OwnerKey>,
) -> Result<bool, DeployError> {
    for cut in cuts {
        let mut last = String::new();
        loop {
            let query = sqlx::query_scalar::<_, String>(sql::KEYS_BELOW).bind(domain.as_uuid());
            let query = query.bind(cut.as_str()).bind(&last).bind(BELOW_CUTS_PAGE_KEYS);
            let page = query.fetch_all(&mut *connection).await.map_err(DeployError::control)?;
            let Some(end) = page.last() else { break };
            last.clone_from(end);
            for key in &page {
                wide.insert(owner_key(key)?);
            }
            if wide.len() > BELOW_CUTS_MAX_KEYS {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

pub(super) fn owner_key(text: &str) -> Result<OwnerKey, DeployError> {
    let altered = |fault: DnsFault| {
        DeployError::Control(format!("desired.rrsets holds the owner key '{text}': {}", fault.detail))
    };
    OwnerKey::parse(text).map_err(altered)
}

/// Reads owners with what rendering needs of them.
pub(super) async fn owners(
    connection: &mut PgConnection,
    keys: &BTreeMap<DomainId, BTreeSet<OwnerKey>>,
) -> Result<BTreeMap<DomainId, Owners>, DeployError> {
    let mut all: BTreeMap<DomainId, Owners> = BTreeMap::new();
    let (mut ids, mut texts) = (Vec::new(), Vec::new());
    for (domain, keys) in keys {
        let owners = keys.iter().map(|key| (key.clone(), Owner::default())).collect();
        all.insert(*domain, owners);
        ids.extend(std::iter::repeat_n(domain.as_uuid(), keys.len()));
        texts.extend(keys.iter().map(|key| key.as_str().to_owned()));
    }
    let query = sqlx::query(sql::OWNERS).bind(ids).bind(texts);
    for row in query.fetch_all(&mut *connection).await.map_err(DeployError::control)? {
        let column = |error: sqlx::Error| DeployError::control(error);
        let id = DomainId::from_uuid(row.try_get(0).map_err(column)?);
        let key = owner_key(row.try_get(1).map_err(column)?)?;
        let (rrtype, data) = zone::rrset(&row, 2)?;
        if let Some(owner) = all.get_mut(&id).and_then(|owners| owners.get_mut(&key)) {
            owner.rrsets.insert(rrtype, data);
        }
    }
    let (mut ids, mut texts) = (Vec::new(), Vec::new());
    for (domain, owners) in &all {
        for (key, _) in
            owners.iter().filter(|(key, owner)| owner.rrsets.is_empty() && !key.as_str().is_empty())
        {
            ids.push(domain.as_uuid());
            texts.push(key.as_str().to_owned());
        }
    }
    if ids.is_empty() {
        return Ok(all);
    }
    let query = sqlx::query_as::<_, (Uuid, String)>(sql::WITH_NAMES_BELOW).bind(ids).bind(texts);
    for (id, key) in query.fetch_all(connection).await.map_err(DeployError::control)? {
        let owners = all.get_mut(&DomainId::from_uuid(id));
        if let Some(owner) = owners.and_then(|owners| owners.get_mut(&owner_key(&key).ok()?)) {
            owner.has_below = true;
        }
    }
    Ok(all)
}

/// Reads where the chains of candidates stand at the revisions that they start from and go to.
pub(super) async fn chains(
    connection: &mut PgConnection,
    candidates: &mut [Candidate],
) -> Result<(), DeployError> {
    let wanted = candidates.iter().flat_map(|made| {
        let revisions = [made.claim.active, Some(made.claim.desired)];
        revisions.into_iter().flatten().map(|revision| (made.claim.domain, revision))
    });
    let found = chain_ends(connection, &wanted.collect::<BTreeSet<_>>()).await?;
    for made in candidates {
        for revision in [made.claim.active, Some(made.claim.desired)].into_iter().flatten() {
            if let Some(end) = found.get(&(made.claim.domain, revision)) {
                made.chains.insert(revision, end.clone());
            }
        }
    }
    Ok(())
}

/// Where chains of this log stand at revisions.
pub(super) async fn chain_ends(
    connection: &mut PgConnection,
    wanted: &BTreeSet<(DomainId, Revision)>,
) -> Result<HashMap<(DomainId, Revision), Chain>, DeployError> {
    if wanted.is_empty() {
        return Ok(HashMap::new());
    }
    let ids: Vec<Uuid> = wanted.iter().map(|(id, _)| id.as_uuid()).collect();
    let revisions: Vec<i64> = wanted.iter().map(|(_, revision)| revision.get()).collect();
    let query = sqlx::query_as::<_, (Uuid, i64, Vec<u8>)>(sql::CHAIN).bind(ids).bind(revisions);
    let rows = query.fetch_all(connection).await.map_err(DeployError::control)?;
    let entry = |(id, revision, hash)| ((DomainId::from_uuid(id), Revision::new(revision)), hash);
    Ok(rows.into_iter().map(entry).collect())
}
