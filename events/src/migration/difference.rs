//! What changed at a source since it was looked at last, put over what was changed here meanwhile: three sides, RRset by
//! RRset. What both changed stays as it is here, and is told.

use crate::dns::{OwnerKey, OwnerName, RrSet, RrSetBody, RrType};
use crate::domain::RrsetChange;
use std::collections::{BTreeMap, BTreeSet};

/// Octets of a digest.
const DIGEST_BYTES: usize = 16;

/// What an RRset says, in short.
pub type Digest = [u8; DIGEST_BYTES];

/// What a source said of each RRset of a zone, in short: enough to see whether it says something else now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Base(BTreeMap<Digest, Digest>);

fn place(owner: &OwnerKey, rrtype: RrType) -> Digest {
    short(&[owner.as_str().as_bytes(), &rrtype.code().to_be_bytes()])
}

fn said(body: &RrSetBody, comments: bool) -> Digest {
    let ttl = body.ttl.seconds().to_be_bytes();
    let comment = body.comment.as_deref().filter(|_| comments).unwrap_or_default();
    let mut parts: Vec<&[u8]> = vec![&ttl, comment.as_bytes()];
    parts.extend(body.records.iter().map(String::as_bytes));
    short(&parts)
}

fn short(parts: &[&[u8]]) -> Digest {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(&(part.len() as u64).to_be_bytes()).update(part);
    }
    let mut digest = [0; DIGEST_BYTES];
    hasher.finalize_xof().fill(&mut digest);
    digest
}

impl Base {
    /// What a source says now.
    pub fn of(rrsets: &[RrSet], comments: bool) -> Self {
        let row =
            |rrset: &RrSet| (place(&rrset.owner().key(), rrset.rr_type()), said(&rrset.body(), comments));
        Self(rrsets.iter().map(row).collect())
    }

    /// As it is kept.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.0.iter().flat_map(|(place, said)| place.iter().chain(said).copied()).collect()
    }

    /// As it was kept; what is left over is none of ours.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let row = |row: &[u8]| {
            let (place, said) = row.split_at_checked(DIGEST_BYTES)?;
            Some((place.try_into().ok()?, said.try_into().ok()?))
        };
        Self(bytes.chunks_exact(2 * DIGEST_BYTES).filter_map(row).collect())
    }
}

/// What becomes of a zone that changed at its source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Merged {
    /// What is changed here.
    pub changes: Vec<RrsetChange>,
    /// RRsets that were changed on both sides, and stay.
    pub conflicts: Vec<String>,
    /// What the source said last, for the next time: of a conflict, what it said before it.
    pub base: Base,
}

/// Puts what a source says now over what is stored here, by what the source said last.
pub fn merge(
    now: &[RrSet],
    base: &Base,
    stored: impl IntoIterator<Item = (OwnerName, RrType, RrSetBody)>,
    comments: bool,
) -> Merged {
    let mut next = Base::of(now, comments);
    let mut theirs: BTreeMap<(OwnerKey, RrType), &RrSet> =
        now.iter().map(|rrset| ((rrset.owner().key(), rrset.rr_type()), rrset)).collect();
    let (mut changes, mut conflicts) = (Vec::new(), Vec::new());
    let mut seen = BTreeSet::new();
    let mut keep = |at: Digest, next: &mut Base, owner: &OwnerName, rrtype: RrType| {
        match base.0.get(&at) {
            Some(before) => next.0.insert(at, *before),
            None => next.0.remove(&at),
        };
        conflicts.push(format!("{owner} {rrtype}"));
    };
    for (owner, rrtype, body) in stored {
        let at = place(&owner.key(), rrtype);
        seen.insert(at);
        let (before, here) = (base.0.get(&at).copied(), said(&body, comments));
        let source = theirs.remove(&(owner.key(), rrtype));
        let there = source.map(|rrset| said(&rrset.body(), comments));
        if there == Some(here) || there == before {
            continue;
        }
        if before != Some(here) {
            keep(at, &mut next, &owner, rrtype);
            continue;
        }
        changes.push(match source {
            Some(rrset) if comments => RrsetChange::Put(rrset.clone()),
            Some(rrset) => RrsetChange::Refill(rrset.clone()),
            None => RrsetChange::Delete { owner, rrtype },
        });
    }
    for ((owner, rrtype), rrset) in theirs {
        let at = place(&owner, rrtype);
        match base.0.get(&at) {
            None => changes.push(RrsetChange::Put(rrset.clone())),
            // It was deleted here; where the source says what it said, that stands.
            Some(before) if *before == said(&rrset.body(), comments) => {}
            Some(_) => keep(at, &mut next, rrset.owner(), rrtype),
        }
    }
    Merged { changes, conflicts, base: next }
}
