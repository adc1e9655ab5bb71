//! What to ask of a listener to see that a change is active: a few RRsets with the RDATA they must have, or must no
//! longer have. Only what has one right answer is asked: nothing that a wildcard or another zone could answer.

use super::claim::Snapshot;
use super::fault::DeployError;
use super::load::{Candidate, owners};
use headwater_events::dns::{DomainName, OwnerKey, OwnerName, Rdata, RrType};
use headwater_events::ids::DomainId;
use headwater_projections::powerdns::{Owners, Row, Zone, sql};
use std::collections::{BTreeMap, BTreeSet};

/// RRsets that are asked of one zone.
pub const SAMPLES_MAX_RRSETS: usize = 4;
/// Zones of others' below ours that are looked at.
const HOSTED_BELOW_MAX_ZONES: i64 = 1_000;

/// What the answer must be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expect {
    /// Exactly these RDATA.
    Answer(BTreeSet<Vec<u8>>),
    /// A referral to exactly these.
    Referral(BTreeSet<Vec<u8>>),
    /// No RRset of this owner and type.
    Gone,
}

/// One question and its right answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// The absolute name in presentation format.
    pub name: String,
    /// The type.
    pub rrtype: RrType,
    /// The answer.
    pub expect: Expect,
    /// The owner, where a wildcard could answer for it.
    wild: Option<OwnerName>,
}

fn octets<'t>(
    rrtype: RrType,
    records: impl IntoIterator<Item = &'t str>,
    zone: &DomainName,
) -> Option<BTreeSet<Vec<u8>>> {
    records
        .into_iter()
        .map(|text| Rdata::parse(rrtype, text, zone).ok().map(|rdata| rdata.wire().to_vec()))
        .collect()
}

/// Samples of changed RRsets.
pub(super) fn of_changes(
    zone: &Zone,
    owners: &Owners,
    changed: &BTreeSet<(OwnerKey, RrType)>,
) -> Vec<Sample> {
    let cut_above = |key: &OwnerKey| {
        owners.iter().any(|(above, owner)| {
            key.is_below(above) && !above.as_str().is_empty() && owner.rrsets.contains_key(&RrType::NS)
        })
    };
    // The cost of a look at every ancestor is bounded by the number of samples, not by that of the changes.
    let one = |(key, rrtype): &(OwnerKey, RrType)| {
        let owner = owners.get(key)?;
        let name = OwnerName::from_key(key.as_str()).ok()?;
        let cut = !name.is_apex() && owner.rrsets.contains_key(&RrType::NS);
        if cut_above(key) || (cut && *rrtype != RrType::NS) {
            return None;
        }
        let (expect, wild) = match owner.rrsets.get(rrtype) {
            Some(data) => {
                let rdata = octets(*rrtype, data.records.iter().map(String::as_str), zone.name())?;
                (if cut { Expect::Referral(rdata) } else { Expect::Answer(rdata) }, None)
            }
            None => {
                let there = !owner.rrsets.is_empty() || owner.has_below || name.is_apex();
                (Expect::Gone, (!there).then(|| name.clone()))
            }
        };
        Some(Sample { name: name.absolute(zone.name()), rrtype: *rrtype, expect, wild })
    };
    changed.iter().filter_map(one).take(SAMPLES_MAX_RRSETS).collect()
}

/// Samples of a zone that is written whole: its NS set and the last RRsets of it.
pub(super) fn of_rows(zone: &Zone, rows: &[Row]) -> Vec<Sample> {
    let mut rrsets: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.auth) {
        if let (Some(rrtype), Some(key), Some(content)) = (&row.rrtype, &row.ordername, &row.content) {
            rrsets.entry((key, rrtype)).or_default().push(content);
        }
    }
    let one = |((key, rrtype), records): (&(&str, &str), &Vec<&str>)| {
        let rrtype = RrType::parse(rrtype).ok()?;
        let rdata = octets(rrtype, records.iter().copied(), zone.name())?;
        let name = OwnerName::from_key(key).ok()?.absolute(zone.name());
        Some(Sample { name, rrtype, expect: Expect::Answer(rdata), wild: None })
    };
    let servers = rrsets.iter().filter(|((key, rrtype), _)| key.is_empty() && *rrtype == "NS");
    let last = rrsets.iter().rev().filter(|((key, _), _)| !key.is_empty());
    servers.chain(last).filter_map(one).take(SAMPLES_MAX_RRSETS).collect()
}

/// Drops the samples that something else could answer.
pub(super) async fn drop_uncertain(
    snapshot: &mut Snapshot,
    candidates: &mut [Candidate],
) -> Result<(), DeployError> {
    let keys: Vec<String> = candidates
        .iter()
        .filter(|made| !made.samples.is_empty())
        .map(|made| made.claim.name_key.clone())
        .collect();
    if keys.is_empty() {
        return Ok(());
    }
    let query = sqlx::query_scalar::<_, String>(sql::HOSTED_BELOW).bind(keys).bind(HOSTED_BELOW_MAX_ZONES);
    let hosted = query.fetch_all(&mut **snapshot).await.map_err(DeployError::control)?;
    let mut wildcards: BTreeMap<DomainId, BTreeSet<OwnerKey>> = BTreeMap::new();
    for made in candidates.iter_mut() {
        let others = |name: &str| {
            hosted.iter().any(|zone| {
                name.strip_suffix(zone.as_str()).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
            })
        };
        made.samples.retain(|sample| !others(&sample.name));
        for owner in made.samples.iter().filter_map(|sample| sample.wild.as_ref()) {
            wildcards.entry(made.claim.domain).or_default().extend(wildcards_above(owner));
        }
    }
    if wildcards.is_empty() {
        return Ok(());
    }
    let found = owners(snapshot, &wildcards).await?;
    for made in candidates {
        let Some(owners) = found.get(&made.claim.domain) else { continue };
        let answered = |owner: &OwnerName| {
            wildcards_above(owner).any(|key| owners.get(&key).is_some_and(|owner| !owner.rrsets.is_empty()))
        };
        made.samples.retain(|sample| !sample.wild.as_ref().is_some_and(answered));
    }
    Ok(())
}

/// The wildcards that could answer for a name that is not there.
fn wildcards_above(owner: &OwnerName) -> impl Iterator<Item = OwnerKey> + use<> {
    let above = owner.ancestors().map(|above| above.key().as_str().to_owned()).chain([String::new()]);
    above.filter_map(|above| {
        OwnerKey::parse(&if above.is_empty() { "*".to_owned() } else { format!("{above} *") }).ok()
    })
}
