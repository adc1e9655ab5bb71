//! What to ask of a listener to see that a change is active: a few RRsets with the RDATA they must have, or must no
//! longer have. Only what has one right answer is asked: nothing that a wildcard or another zone could answer.

use super::claim::Snapshot;
use super::fault::DeployError;
use super::load::owners;
use headwater_events::dns::{DomainName, OwnerKey, OwnerName, Rdata, RrType};
use headwater_events::ids::DomainId;
use headwater_projections::powerdns::{Owners, Row, Zone, sql};
use std::collections::{BTreeMap, BTreeSet};

/// RRsets that are asked of one zone.
pub const SAMPLES_MAX_RRSETS: usize = 4;
/// RRsets of one zone that are asked after a mend.
const MENDED_MAX_RRSETS: usize = 64;
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
            // Asked for another type, it is followed, to wherever it leads.
            None if owner.rrsets.contains_key(&RrType::CNAME) => return None,
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

/// Samples of RRsets of which rows were put right, by name and type; `rows` are all that these names have now.
pub(super) fn of_mended<'r>(
    zone: &DomainName,
    mended: &BTreeSet<(&'r str, &'r str)>,
    rows: &'r [Row],
) -> Vec<Sample> {
    let mut rrsets: BTreeMap<(&str, &str), (Vec<&str>, bool)> = BTreeMap::new();
    for row in rows {
        if let (Some(rrtype), Some(content)) = (&row.rrtype, &row.content) {
            let (records, auth) = rrsets.entry((&row.name, rrtype)).or_insert((Vec::new(), true));
            records.push(content);
            *auth &= row.auth;
        }
    }
    let one = |(name, rrtype): &(&str, &str)| {
        // A name or type that no client can ask for was somebody else's, and is gone.
        let owner = OwnerName::parse(&format!("{name}."), zone).ok()?;
        let parsed = RrType::parse(rrtype).ok()?;
        let (expect, wild) = match rrsets.get(&(*name, *rrtype)) {
            Some((records, auth)) => {
                let rdata = octets(parsed, records.iter().copied(), zone)?;
                match auth {
                    true => (Expect::Answer(rdata), None),
                    false if parsed == RrType::NS => (Expect::Referral(rdata), None),
                    // Below a cut: it is not answered for itself.
                    false => return None,
                }
            }
            None if rrsets.contains_key(&(*name, "CNAME")) => return None,
            None => {
                let there = rows.iter().any(|row| row.name == *name);
                (Expect::Gone, (!there).then(|| owner.clone()))
            }
        };
        Some(Sample { name: owner.absolute(zone), rrtype: parsed, expect, wild })
    };
    mended.iter().filter_map(one).take(MENDED_MAX_RRSETS).collect()
}

/// The samples of one domain.
pub(super) struct Asked<'s> {
    pub(super) domain: DomainId,
    /// The sort key of its name.
    pub(super) name_key: &'s str,
    pub(super) samples: &'s mut Vec<Sample>,
}

/// Drops the samples that something else could answer.
pub(super) async fn drop_uncertain(
    snapshot: &mut Snapshot,
    all: &mut [Asked<'_>],
) -> Result<(), DeployError> {
    let asked = all.iter().filter(|asked| !asked.samples.is_empty());
    let keys: Vec<String> = asked.map(|asked| asked.name_key.to_owned()).collect();
    if keys.is_empty() {
        return Ok(());
    }
    let query = sqlx::query_scalar::<_, String>(sql::HOSTED_BELOW).bind(keys).bind(HOSTED_BELOW_MAX_ZONES);
    let hosted = query.fetch_all(&mut **snapshot).await.map_err(DeployError::control)?;
    let mut wildcards: BTreeMap<DomainId, BTreeSet<OwnerKey>> = BTreeMap::new();
    for asked in all.iter_mut() {
        let others = |name: &str| {
            hosted.iter().any(|zone| {
                name.strip_suffix(zone.as_str()).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
            })
        };
        asked.samples.retain(|sample| !others(&sample.name));
        for owner in asked.samples.iter().filter_map(|sample| sample.wild.as_ref()) {
            wildcards.entry(asked.domain).or_default().extend(wildcards_above(owner));
        }
    }
    if wildcards.is_empty() {
        return Ok(());
    }
    let found = owners(snapshot, &wildcards).await?;
    for asked in all {
        let Some(owners) = found.get(&asked.domain) else { continue };
        let answered = |owner: &OwnerName| {
            wildcards_above(owner).any(|key| owners.get(&key).is_some_and(|owner| !owner.rrsets.is_empty()))
        };
        asked.samples.retain(|sample| !sample.wild.as_ref().is_some_and(answered));
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
