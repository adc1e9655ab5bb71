//! What a caller may ask of a domain. Values are parsed already: a command
//! holds no text that could still be wrong by itself.

use super::cache::CachePatch;
use super::certificate::NewCertificate;
use super::hostname::{HostnameBody, excluded_by_proxy, origin_owners};
use super::import::ZoneImport;
use super::lifecycle::Proof;
use super::rollback::{Past, Rollback};
use super::undo::Undo;
use crate::dns::{DomainName, OwnerKey, OwnerName, Rdata, RrSet, RrType, Ttl};
use crate::event::Labels;
use crate::ids::{DomainId, PurgeId, Revision, TenantId};
use std::collections::{BTreeMap, BTreeSet};

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
    /// What it holds from its first revision on.
    pub rrsets: Vec<RrSet>,
    /// The serial that its zone has elsewhere: it goes on above that.
    pub serial_floor: Option<u32>,
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

impl LabelsPatch {
    /// Changes labels by it.
    pub fn apply(&self, labels: &mut Labels) {
        match self {
            Self::Clear => labels.clear(),
            Self::Merge(entries) => {
                labels.extend(entries.iter().filter_map(|(key, value)| Some((key.clone(), value.clone()?))));
                labels.retain(|key, _| entries.get(key).is_none_or(Option::is_some));
            }
        }
    }
}

/// One change of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RrsetChange {
    /// Put the RRset, whole.
    Put(RrSet),
    /// Put its TTL and its records; the comment that is there stays.
    Refill(RrSet),
    /// Give what is there another comment, or none.
    Comment {
        /// Its owner.
        owner: OwnerName,
        /// Its type.
        rrtype: RrType,
        /// The comment.
        comment: Option<String>,
    },
    /// Delete the RRset, whole. It must exist.
    Delete {
        /// Its owner.
        owner: OwnerName,
        /// Its type.
        rrtype: RrType,
    },
    /// Delete the RRset, whole, if it exists.
    Clear {
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
            Self::Put(rrset) | Self::Refill(rrset) => rrset.owner(),
            Self::Comment { owner, .. }
            | Self::Delete { owner, .. }
            | Self::Clear { owner, .. }
            | Self::Add { owner, .. }
            | Self::Remove { owner, .. } => owner,
        }
    }

    /// The type it touches.
    pub fn rrtype(&self) -> RrType {
        match self {
            Self::Put(rrset) | Self::Refill(rrset) => rrset.rr_type(),
            Self::Comment { rrtype, .. }
            | Self::Delete { rrtype, .. }
            | Self::Clear { rrtype, .. }
            | Self::Add { rrtype, .. }
            | Self::Remove { rrtype, .. } => *rrtype,
        }
    }

    /// Whether it gives its owner records.
    pub fn gives_records(&self) -> bool {
        matches!(self, Self::Put(_) | Self::Refill(_) | Self::Add { .. })
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
    /// Serve it, because its ownership is proven or an administrator says so.
    Activate(Proof),
    /// Serve it no longer, and keep it.
    Disable,
    /// Serve it again.
    Enable,
    /// Give it up, since nobody proved in time to own it (the control plane itself).
    Expire,
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
    /// Take a zone text in, whole.
    ImportZone(Box<ZoneImport>),
    /// Proxy a name (`PUT` on a hostname).
    PutHostname {
        /// The name.
        owner: OwnerName,
        /// What is proxied under it.
        body: HostnameBody,
    },
    /// Proxy a name no longer (`DELETE` on a hostname).
    DeleteHostname {
        /// The name.
        owner: OwnerName,
    },
    /// Let edges serve a name no longer that was deleted (the control plane itself).
    WithdrawHostname {
        /// The name.
        owner: OwnerName,
        /// The revision that deleted it.
        leaving: Revision,
    },
    /// Change how answers are kept.
    PatchCache(CachePatch),
    /// Let go of everything that edges keep.
    Purge {
        /// The id that the purge gets.
        id: PurgeId,
    },
    /// Give everything that it desires back what it was at an earlier revision.
    Rollback(Box<Rollback>),
    /// Undo revisions by themselves; what others changed later stays.
    Undo(Box<Undo>),
    /// Bring a certificate (`PUT` on it).
    PutCertificate(Box<NewCertificate>),
    /// Take the certificate away (`DELETE` on it).
    DeleteCertificate,
}

/// Which proxied names, and whether the rest of a site, a decision must see.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SiteNeeds {
    /// These names.
    pub at: BTreeSet<OwnerKey>,
    /// These names and one below each, if there is one.
    pub below: BTreeSet<OwnerKey>,
    /// One whose origin is one of these hosts.
    pub fetched_from: BTreeSet<String>,
    /// The cache's policy and its epoch.
    pub cache: bool,
    /// The certificate.
    pub certificate: bool,
    /// Every proxied name.
    pub every: bool,
    /// Whether the command is about the site itself, so that it must be read even where no name is proxied.
    pub own: bool,
}

impl DomainCommand {
    /// The owners whose RRsets the decision must see.
    pub fn owners(&self) -> Vec<&OwnerName> {
        match self {
            Self::Patch(_) | Self::Delete | Self::Restore => Vec::new(),
            Self::Activate(_) | Self::Disable | Self::Enable | Self::Expire => Vec::new(),
            Self::PutRrset(rrset) => vec![rrset.owner()],
            Self::DeleteRrset { owner, .. } | Self::PutHostname { owner, .. } => vec![owner],
            Self::ChangeRrsets(changes) => changes.iter().map(RrsetChange::owner).collect(),
            Self::ImportZone(import) => import.changes.iter().map(RrsetChange::owner).collect(),
            Self::DeleteHostname { .. }
            | Self::WithdrawHostname { .. }
            | Self::PatchCache(_)
            | Self::Purge { .. }
            | Self::PutCertificate(_)
            | Self::DeleteCertificate => Vec::new(),
            Self::Rollback(_) | Self::Undo(_) => {
                let hostnames = self.past().into_iter().flat_map(Past::hostnames);
                let put = hostnames.filter(|(_, body)| body.is_some()).map(|(owner, _)| owner);
                self.past().into_iter().flat_map(Past::rrsets).map(|(owner, ..)| owner).chain(put).collect()
            }
        }
    }

    /// What it gives back, if it does.
    fn past(&self) -> Option<&Past> {
        match self {
            Self::Rollback(rollback) => Some(&rollback.past),
            Self::Undo(undo) => Some(&undo.wanted),
            _ => None,
        }
    }

    /// The names that get to be proxied.
    fn hostnames_put(&self) -> Vec<(&OwnerName, &HostnameBody)> {
        match self {
            Self::PutHostname { owner, body } => vec![(owner, body)],
            _ => {
                let all = self.past().into_iter().flat_map(Past::hostnames);
                all.filter_map(|(owner, body)| Some((owner, body?))).collect()
            }
        }
    }

    /// Owners besides [`Self::owners`] whose RRsets the decision must see: cuts above a proxied name, and what its
    /// origins hold in the same zone.
    pub fn other_owners(&self, zone: &DomainName) -> BTreeSet<OwnerKey> {
        let mut keys = BTreeSet::new();
        for (owner, body) in self.hostnames_put() {
            keys.extend(owner.ancestors().chain(std::iter::once(OwnerName::apex())).map(|owner| owner.key()));
            keys.extend(origin_owners(body, zone));
        }
        keys
    }

    /// Whether the decision depends on the platform's generation: it tells an SOA serial.
    pub fn needs_generation(&self) -> bool {
        matches!(self, Self::Patch(_) | Self::Delete | Self::Restore | Self::Expire | Self::ImportZone(_))
    }

    /// What of the site the decision must see.
    pub fn site_needs(&self, zone: &DomainName) -> SiteNeeds {
        let mut needs = SiteNeeds::default();
        match self {
            Self::Patch(_) | Self::Delete | Self::Restore | Self::DeleteRrset { .. } => {}
            Self::Activate(_) | Self::Disable | Self::Enable | Self::Expire => {}
            Self::PutRrset(rrset) => needs.beside(rrset.owner(), rrset.rr_type()),
            Self::ChangeRrsets(changes) => {
                changes.iter().for_each(|change| needs.beside(change.owner(), change.rrtype()));
            }
            Self::ImportZone(import) => {
                import.changes.iter().for_each(|change| needs.beside(change.owner(), change.rrtype()));
            }
            Self::PutHostname { owner, body } => {
                needs.proxying(owner, body, zone);
                (needs.certificate, needs.own) = (true, true);
            }
            Self::DeleteHostname { owner } | Self::WithdrawHostname { owner, .. } => {
                needs.at.insert(owner.key());
                needs.own = true;
            }
            Self::PatchCache(_) | Self::Purge { .. } => (needs.cache, needs.own) = (true, true),
            Self::Rollback(_) | Self::Undo(_) => {
                let put = self.past().into_iter().flat_map(Past::rrsets).filter(|(.., was_there)| *was_there);
                put.for_each(|(owner, rrtype, _)| needs.beside(owner, rrtype));
                let names = self.past().into_iter().flat_map(Past::hostnames);
                needs.at.extend(names.map(|(owner, _)| owner.key()));
                for (owner, body) in self.hostnames_put() {
                    needs.proxying(owner, body, zone);
                }
                (needs.cache, needs.certificate, needs.own) = (true, true, true);
            }
            Self::PutCertificate(_) => (needs.certificate, needs.every, needs.own) = (true, true, true),
            Self::DeleteCertificate => (needs.certificate, needs.own) = (true, true),
        }
        needs
    }
}

impl SiteNeeds {
    /// What a name that is to be proxied must not go in circles with.
    fn proxying(&mut self, owner: &OwnerName, body: &HostnameBody, zone: &DomainName) {
        self.at.extend(origin_owners(body, zone));
        self.at.insert(owner.key());
        self.fetched_from.insert(owner.absolute(zone));
    }

    /// What an RRset must not stand beside or above.
    fn beside(&mut self, owner: &OwnerName, rrtype: RrType) {
        if excluded_by_proxy(owner, rrtype) {
            self.at.insert(owner.key());
        }
        if matches!(rrtype, RrType::NS | RrType::DNAME) {
            self.below.insert(owner.key());
        }
    }
}

/// What a change says of zone cuts needs more than the owners it touches.
impl DomainCommand {
    /// The owners above those that get records: a zone cut or a DNAME at one of them hides the records.
    pub fn above(&self) -> impl Iterator<Item = OwnerName> {
        self.gets_records().flat_map(|(owner, _)| owner.ancestors().chain(std::iter::once(OwnerName::apex())))
    }

    /// The owners that get NS or DNAME records: they hide what is below them.
    pub fn cuts(&self) -> impl Iterator<Item = &OwnerName> {
        let hides = |rrtype| matches!(rrtype, RrType::NS | RrType::DNAME);
        self.gets_records().filter(move |(_, rrtype)| hides(*rrtype)).map(|(owner, _)| owner)
    }

    fn gets_records(&self) -> impl Iterator<Item = (&OwnerName, RrType)> {
        let (one, many) = match self {
            Self::PutRrset(rrset) => (Some((rrset.owner(), rrset.rr_type())), [].as_slice()),
            Self::ChangeRrsets(changes) => (None, changes.as_slice()),
            Self::ImportZone(import) => (None, import.changes.as_slice()),
            _ => (None, [].as_slice()),
        };
        let past = self.past().into_iter().flat_map(Past::rrsets).filter(|(.., was_there)| *was_there);
        let many = many
            .iter()
            .filter(|change| change.gives_records())
            .map(|change| (change.owner(), change.rrtype()));
        one.into_iter().chain(many).chain(past.map(|(owner, rrtype, _)| (owner, rrtype)))
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
