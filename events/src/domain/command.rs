//! What a caller may ask of a domain. Values are parsed already: a command
//! holds no text that could still be wrong by itself.

use crate::dns::{DomainName, OwnerName, Rdata, RrSet, RrType, Ttl};
use crate::ids::{DomainId, Revision, TenantId};
use std::collections::BTreeMap;

/// Make a domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateDomain {
    /// The id it will have.
    pub id: DomainId,
    /// Its name.
    pub name: DomainName,
    /// Who will own it.
    pub tenant: TenantId,
    /// Active at once, without proof of ownership (administrators only).
    pub force_active: bool,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// The owner's own number for it.
    pub external_id: Option<String>,
}

/// Change settings of a domain, as RFC 7396 merges them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DomainPatch {
    /// Labels to set, and to remove where none. An outer none leaves all.
    pub labels: Option<LabelsPatch>,
    /// `Some(None)` removes it.
    pub external_id: Option<Option<String>>,
    /// Raises the SOA serial to at least this.
    pub serial_floor: Option<u32>,
}

/// How labels change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LabelsPatch {
    /// `"labels": null`: all of them go.
    Clear,
    /// Each named one is set, or removed where none.
    Merge(BTreeMap<String, Option<String>>),
}

/// One change of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RrsetChange {
    /// Put the RRset, whole.
    Put(RrSet),
    /// Delete the RRset, whole. It must exist.
    Delete {
        /// Its owner.
        owner: OwnerName,
        /// Its type.
        rrtype: RrType,
    },
    /// Add single values; those that are there already stay.
    Add {
        /// Its owner.
        owner: OwnerName,
        /// Its type.
        rrtype: RrType,
        /// The TTL of the whole RRset from now on; none keeps what it is.
        ttl: Option<Ttl>,
        /// The values.
        records: Vec<Rdata>,
    },
    /// Remove single values; those that are absent do not matter. The RRset
    /// goes with its last value.
    Remove {
        /// Its owner.
        owner: OwnerName,
        /// Its type.
        rrtype: RrType,
        /// The values.
        records: Vec<Rdata>,
    },
}

impl RrsetChange {
    /// The owner it touches.
    pub fn owner(&self) -> &OwnerName {
        match self {
            Self::Put(rrset) => rrset.owner(),
            Self::Delete { owner, .. } | Self::Add { owner, .. } | Self::Remove { owner, .. } => owner,
        }
    }

    /// The type it touches.
    pub fn rrtype(&self) -> RrType {
        match self {
            Self::Put(rrset) => rrset.rr_type(),
            Self::Delete { rrtype, .. } | Self::Add { rrtype, .. } | Self::Remove { rrtype, .. } => *rrtype,
        }
    }
}

/// What a caller may ask of an existing domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DomainCommand {
    /// Change its settings.
    Patch(DomainPatch),
    /// Delete it; it stays restorable for its hold.
    Delete,
    /// Undo its deletion.
    Restore,
    /// Put one RRset (`PUT` on it).
    PutRrset(RrSet),
    /// Delete one RRset by name (`DELETE` on it): its own intent, never guarded.
    DeleteRrset {
        /// Its owner.
        owner: OwnerName,
        /// Its type.
        rrtype: RrType,
    },
    /// Change many RRsets atomically, judged at the end state.
    ChangeRrsets(Vec<RrsetChange>),
}

impl DomainCommand {
    /// The owners whose RRsets the decision must see.
    pub fn owners(&self) -> Vec<&OwnerName> {
        match self {
            Self::Patch(_) | Self::Delete | Self::Restore => Vec::new(),
            Self::PutRrset(rrset) => vec![rrset.owner()],
            Self::DeleteRrset { owner, .. } => vec![owner],
            Self::ChangeRrsets(changes) => changes.iter().map(RrsetChange::owner).collect(),
        }
    }
}

/// What a change says of zone cuts needs more than the owners it touches.
impl DomainCommand {
    /// The owners above those that get records, the apex left out: a zone cut at one of them hides the records.
    pub fn above(&self) -> impl Iterator<Item = OwnerName> {
        self.gets_records().flat_map(|(owner, _)| owner.ancestors())
    }

    /// The owners that get NS records: they hide what is below them.
    pub fn cuts(&self) -> impl Iterator<Item = &OwnerName> {
        self.gets_records().filter(|(_, rrtype)| *rrtype == RrType::NS).map(|(owner, _)| owner)
    }

    fn gets_records(&self) -> impl Iterator<Item = (&OwnerName, RrType)> {
        let (one, many) = match self {
            Self::PutRrset(rrset) => (Some((rrset.owner(), rrset.rr_type())), [].as_slice()),
            Self::ChangeRrsets(changes) => (None, changes.as_slice()),
            _ => (None, [].as_slice()),
        };
        let gets = |change: &&RrsetChange| matches!(change, RrsetChange::Put(_) | RrsetChange::Add { .. });
        one.into_iter().chain(many.iter().filter(gets).map(|change| (change.owner(), change.rrtype())))
    }
}

/// `If-Match` and `If-None-Match` of a mutation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Precondition {
    /// The resource must exist, and where revisions are given be at one of them (`*` gives none).
    pub if_match: Option<Vec<Revision>>,
    /// The resource must not exist (`If-None-Match: *`).
    pub if_absent: bool,
}

impl Precondition {
    /// Whether it holds for a resource at this revision (none: it does not exist).
    pub fn holds(&self, current: Option<Revision>) -> bool {
        if self.if_absent && current.is_some() {
            return false;
        }
        match (&self.if_match, current) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(any), Some(_)) if any.is_empty() => true,
            (Some(listed), Some(current)) => listed.contains(&current),
        }
    }
}
