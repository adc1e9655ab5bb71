//! What the records of a text come to: RRsets by owner and type, each with one TTL and without duplicates.

use super::entry::Told;
use super::{Bounded, RECORDS_MAX_COUNT, TextRrset, WARNINGS_MAX_COUNT};
use crate::dns::{OwnerKey, OwnerName, Rdata, RrSet, RrType, Ttl};
use std::collections::BTreeMap;

/// Types that the platform or its signer makes: what an import does with them.
const DROPPED: [u16; 9] = [24, 25, 30, 46, 47, 48, 50, 51, 63];
/// Types that speak of keys (CDS, CDNSKEY): a signer's where the text is that of a signed zone.
const OF_KEYS: [RrType; 2] = [RrType::from_code(59), RrType::from_code(60)];
/// What only a signed zone has: DNSKEY, RRSIG.
const SIGNED: [u16; 2] = [46, 48];

#[derive(Debug)]
struct Set {
    ttl: u32,
    differs: bool,
    records: Vec<Rdata>,
    line: usize,
}

#[derive(Debug)]
struct Owner {
    name: OwnerName,
    sets: BTreeMap<RrType, Set>,
}

/// Records as far as they were read.
#[derive(Debug)]
pub(super) struct Collected {
    owners: BTreeMap<OwnerKey, Owner>,
    dropped: BTreeMap<RrType, (usize, usize)>,
    pub(super) warnings: Bounded<String>,
    records: usize,
    most: usize,
}

impl Collected {
    pub(super) fn new(most: usize) -> Self {
        Self {
            owners: BTreeMap::new(),
            dropped: BTreeMap::new(),
            warnings: Bounded::new(WARNINGS_MAX_COUNT),
            records: 0,
            most: most.min(RECORDS_MAX_COUNT),
        }
    }

    /// Whether more records were read than are taken.
    pub(super) fn is_full(&self) -> bool {
        self.records > self.most
    }

    /// What is said of too many records.
    pub(super) fn too_many(&self) -> Told {
        ("too_many_records", format!("the text has more than {} records, which is the limit here", self.most))
    }

    pub(super) fn warn(&mut self, line: usize, detail: impl std::fmt::Display) {
        self.warnings.push(format!("line {line}: {detail}"));
    }

    /// Whether records of the type are left out, whatever they say; then it is noted.
    pub(super) fn drops(&mut self, rrtype: RrType, line: usize) -> bool {
        let drops = DROPPED.contains(&rrtype.code());
        if drops {
            self.dropped.entry(rrtype).or_insert((0, line)).0 += 1;
        }
        drops
    }

    /// Takes a record.
    pub(super) fn take(
        &mut self,
        name: &OwnerName,
        rrtype: RrType,
        ttl: u32,
        rdata: Rdata,
        line: usize,
    ) -> Result<(), Told> {
        let owner = self.owners.entry(name.key());
        let owner = owner.or_insert_with(|| Owner { name: name.clone(), sets: BTreeMap::new() });
        let is_alias = rrtype == RrType::CNAME;
        if name.is_apex() && is_alias {
            let detail = "the apex holds SOA and NS records, so it cannot be a CNAME".to_owned();
            return Err(("cname_at_apex", detail));
        }
        if let Some(other) = owner.sets.keys().find(|other| **other != rrtype) {
            if is_alias {
                let detail = format!("{name} has {other} already: a CNAME stands alone at its name");
                return Err(("cname_conflict", detail));
            }
            if owner.sets.contains_key(&RrType::CNAME) {
                let detail = format!("{name} has CNAME, and nothing else can stand beside it");
                return Err(("cname_conflict", detail));
            }
        }
        self.records += 1;
        let set = owner.sets.entry(rrtype);
        let set = set.or_insert_with(|| Set { ttl, differs: false, records: Vec::new(), line });
        set.differs |= set.ttl != ttl;
        set.ttl = set.ttl.min(ttl);
        set.line = line;
        set.records.push(rdata);
        Ok(())
    }

    /// Types of which records were left out so far, and how many.
    pub(super) fn left_out(&self) -> Vec<(RrType, usize)> {
        self.dropped.iter().map(|(rrtype, (count, _))| (*rrtype, *count)).collect()
    }

    /// The RRsets, with what is wrong with one as a whole.
    pub(super) fn finish(mut self, mut fault: impl FnMut(usize, Told)) -> (Vec<TextRrset>, Bounded<String>) {
        let is_signed = SIGNED.iter().any(|code| self.dropped.contains_key(&RrType::from_code(*code)));
        let mut rrsets = Vec::new();
        for owner in std::mem::take(&mut self.owners).into_values() {
            for (rrtype, set) in owner.sets {
                if is_signed && owner.name.is_apex() && OF_KEYS.contains(&rrtype) {
                    self.dropped.entry(rrtype).or_insert((0, set.line)).0 += set.records.len();
                    continue;
                }
                if set.differs {
                    self.warn(
                        set.line,
                        format_args!(
                            "the records of {} {rrtype} have different TTLs: all have the lowest, {} s",
                            owner.name, set.ttl
                        ),
                    );
                }
                let ttl = match Ttl::new(i64::from(set.ttl)) {
                    Ok(ttl) => ttl,
                    Err(found) => {
                        fault(set.line, (found.code.as_str(), found.detail));
                        continue;
                    }
                };
                match RrSet::from_rdata(owner.name.clone(), rrtype, ttl, set.records, None) {
                    Ok(rrset) => rrsets.push(TextRrset { rrset, line: set.line }),
                    Err(found) => {
                        for one in found {
                            let detail = format!("{} {rrtype}: {}", owner.name, one.detail);
                            fault(set.line, (one.code.as_str(), detail));
                        }
                    }
                }
            }
        }
        for (rrtype, (count, line)) in &self.dropped {
            self.warnings.push(format!(
                "line {line}: {count} {rrtype} record(s) were left out: the keys and the signatures of a zone are not carried by its text"
            ));
        }
        (rrsets, self.warnings)
    }
}
