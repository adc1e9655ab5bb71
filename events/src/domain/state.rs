//! What a decision reads: the domain itself and the owners that the command
//! touches, never the zone and never the history.

use super::cache::CachePolicy;
use super::certificate::StoredCertificate;
use super::hostname::HostnameBody;
use super::rollback::Past;
use super::undo::Undoing;
use crate::dns::{DomainName, OwnerKey, OwnerName, RrSetBody, RrType};
use crate::event::{DisabledBy, DomainCreated, DomainStatus, Event, Labels};
use crate::ids::{DomainId, Revision, TenantId};
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The sort key of a domain's name: its labels reversed, joined by a space, so
/// that the names below it are exactly those that begin with it and a space.
pub fn name_key(name: &DomainName) -> String {
    name.labels().rev().collect::<Vec<_>>().join(" ")
}

/// A domain as `desired` holds it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DomainState {
    /// Its id.
    pub id: DomainId,
    /// Its name.
    pub name: DomainName,
    /// Who owns it.
    pub tenant: TenantId,
    /// Where it stands in its life.
    pub status: DomainStatus,
    /// The status it had before it was deleted, for `restore`.
    pub status_before_delete: Option<DomainStatus>,
    /// Who disabled it; stays while it is deleted.
    #[serde(default)]
    pub disabled_by: Option<DisabledBy>,
    /// Since when its parent delegates it elsewhere, where it did delegate it here.
    #[serde(default)]
    pub delegation_lost_at: Option<Timestamp>,
    /// Its newest revision.
    pub revision: Revision,
    /// Labels of its owner.
    pub labels: Labels,
    /// The owner's own number for it.
    pub external_id: Option<String>,
    /// SOA serial = serial_base + revision + platform generation.
    pub serial_base: u32,
    /// Until when a deleted name is held.
    pub hold_until: Option<Timestamp>,
    /// RRsets of its owner's.
    pub rrsets: i64,
    /// Records of its owner's.
    pub records: i64,
    /// When it came into being.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
}

impl DomainState {
    /// The SOA serial of a revision, at a platform generation, in the serial
    /// arithmetic of RFC 1982 (modulo 2³²).
    pub fn serial(&self, revision: Revision, generation: u32) -> u32 {
        soa_serial(self.serial_base, revision, generation)
    }
}

/// The SOA serial of a domain's revision at a platform generation.
pub fn soa_serial(serial_base: u32, revision: Revision, generation: u32) -> u32 {
    let revision = u32::try_from(revision.get().rem_euclid(1 << 32)).unwrap_or(0);
    serial_base.wrapping_add(revision).wrapping_add(generation)
}

/// Which RRset of a domain.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RrsetId {
    /// Its owner.
    pub owner: OwnerName,
    /// Its type.
    pub rrtype: RrType,
}

/// An RRset as `desired` holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRrset {
    /// TTL, records, comment.
    pub body: RrSetBody,
    /// The revision that last changed it.
    pub changed: Revision,
}

/// A proxied name as `desired` holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredHostname {
    /// The name, relative to the domain.
    pub owner: OwnerName,
    /// What is proxied under it.
    pub body: HostnameBody,
    /// The revision that last changed it.
    pub changed: Revision,
}

/// What `desired` holds of a domain for the edges besides its proxied names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteState {
    /// How answers are kept.
    pub cache: CachePolicy,
    /// The revision that last changed the policy; that of the creation at first.
    pub cache_changed: Revision,
    /// Part of every key of the cache.
    pub cache_epoch: u64,
    /// Purges whose operations have not ended.
    pub purges_outstanding: i64,
    /// What its names are proven with.
    pub certificate: Option<StoredCertificate>,
}

impl Default for SiteState {
    fn default() -> Self {
        Self {
            cache: CachePolicy::default(),
            cache_changed: Revision::new(1),
            cache_epoch: 0,
            purges_outstanding: 0,
            certificate: None,
        }
    }
}

/// A domain and every RRset of the owners that a command touches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DomainView {
    /// The domain.
    pub state: DomainState,
    /// By owner key, then type: complete for every key in `loaded`.
    pub rrsets: BTreeMap<OwnerKey, BTreeMap<RrType, StoredRrset>>,
    /// A few RRsets below each owner that gets NS records, in their order.
    pub below: BTreeMap<OwnerKey, Vec<(OwnerKey, RrType)>>,
    /// The owners that were read.
    pub loaded: BTreeSet<OwnerKey>,
    /// Until when the deleted domain was held that this one took the name of, where both have the same owner. Read for
    /// a restore alone.
    pub replaced: Option<Timestamp>,
    /// Proxied names that the command's decision depends on; others may be missing.
    pub hostnames: BTreeMap<OwnerKey, StoredHostname>,
    /// What the edges are told besides; the beginning of it where the command does not touch it.
    pub site: SiteState,
    /// What a rollback goes back to, read as far as the domain has come. Read for a rollback alone.
    pub past: Option<Arc<Past>>,
    /// What an undo undoes, read as far as the domain has come. Read for an undo alone.
    pub undoing: Option<Arc<Undoing>>,
    /// Names that are proxied no longer and that edges still serve, with the revisions that deleted them.
    pub leaving: BTreeMap<OwnerKey, Revision>,
    /// Names that the platform answers for, where the domain is its own zone.
    pub platform_names: BTreeSet<OwnerKey>,
    /// RRsets that tools of others own, the first of them. Read for the deletion of the domain by a tool alone.
    pub of_others: Vec<(OwnerName, RrType, RrSetBody)>,
}

impl DomainView {
    /// A view in which no owner has been read yet.
    pub fn bare(state: DomainState) -> Self {
        Self {
            state,
            rrsets: BTreeMap::new(),
            below: BTreeMap::new(),
            loaded: BTreeSet::new(),
            replaced: None,
            hostnames: BTreeMap::new(),
            site: SiteState::default(),
            past: None,
            undoing: None,
            leaving: BTreeMap::new(),
            platform_names: BTreeSet::new(),
            of_others: Vec::new(),
        }
    }

    /// The RRset, if it exists.
    pub fn get(&self, owner: &OwnerKey, rrtype: RrType) -> Option<&StoredRrset> {
        self.rrsets.get(owner)?.get(&rrtype)
    }
}

/// What creating a domain reads: who holds the name and its relatives.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NameView {
    /// Who holds the name itself.
    pub holder: Option<DomainState>,
    /// Hosted domains above and below it, with their owners; deleted ones with until when they are held.
    pub relatives: Vec<(DomainName, TenantId, Option<Timestamp>)>,
    /// Whether the tenant exists.
    pub tenant_exists: bool,
    /// Domains of the tenant.
    pub tenant_domains: i64,
    /// The highest serial ever served under the name.
    pub last_serial: Option<u32>,
}

impl DomainView {
    /// Takes in one event of this domain, so that the next command of the same
    /// batch sees it. The counterpart of [`super::decide()`].
    pub fn evolve(&mut self, event: &Event, revision: Revision, at: Timestamp) {
        let state = &mut self.state;
        state.revision = revision;
        state.updated_at = at;
        let count = |records: &[String]| i64::try_from(records.len()).unwrap_or(i64::MAX);
        match event {
            Event::DomainUpdated(change) => {
                state.labels.clone_from(&change.after.labels);
                state.external_id.clone_from(&change.after.external_id);
                state.serial_base = change.after.serial_base;
            }
            Event::DomainDeleted(deleted) => {
                state.status_before_delete = Some(state.status);
                state.status = DomainStatus::Deprovisioning;
                state.hold_until = Some(deleted.hold_until);
            }
            Event::DomainRestored(restored) => {
                state.status = restored.status;
                state.disabled_by = restored.disabled_by;
                state.status_before_delete = None;
                state.hold_until = None;
                // The last deletion of the name is undone: there is no other that could be meant.
                self.replaced = None;
            }
            Event::DomainActivated(_) => state.status = DomainStatus::Active,
            Event::DomainDisabled(disabled) => {
                state.status = DomainStatus::Disabled;
                state.disabled_by = Some(disabled.by);
            }
            Event::DomainEnabled(_) => {
                state.status = DomainStatus::Active;
                state.disabled_by = None;
            }
            Event::DomainExpired(expired) => {
                state.status_before_delete = Some(state.status);
                state.status = DomainStatus::Deprovisioning;
                state.hold_until = Some(expired.expired_at);
            }
            Event::RrsetReplaced(put) => {
                state.rrsets += i64::from(put.before.is_none());
                state.records +=
                    count(&put.after.records) - put.before.as_ref().map_or(0, |b| count(&b.records));
                let stored = StoredRrset { body: put.after.clone(), changed: revision };
                let key = put.name.key();
                if put.before.is_none() {
                    let above = self.below.iter_mut().filter(|(above, _)| key.is_below(above));
                    above.for_each(|(_, known)| known.push((key.clone(), put.rrtype)));
                }
                self.rrsets.entry(key).or_default().insert(put.rrtype, stored);
            }
            Event::RrsetDeleted(deleted) => {
                state.rrsets -= 1;
                state.records -= count(&deleted.before.records);
                let key = deleted.name.key();
                for known in self.below.values_mut() {
                    known.retain(|(name, rrtype)| (name, *rrtype) != (&key, deleted.rrtype));
                }
                if let Some(types) = self.rrsets.get_mut(&key) {
                    types.remove(&deleted.rrtype);
                }
            }
            other => self.evolve_site(other, revision),
        }
    }
}

impl DomainView {
    /// The part of [`Self::evolve`] that is about edges.
    fn evolve_site(&mut self, event: &Event, revision: Revision) {
        match event {
            Event::HostnameReplaced(put) => {
                let (owner, body) = (put.name.clone(), put.after.clone());
                let stored = StoredHostname { owner, body, changed: revision };
                self.leaving.remove(&put.name.key());
                self.hostnames.insert(put.name.key(), stored);
            }
            Event::HostnameWithdrawn(withdrawn) => {
                self.leaving.remove(&withdrawn.name.key());
            }
            Event::HostnameDeleted(deleted) => {
                self.hostnames.remove(&deleted.name.key());
            }
            Event::CacheChanged(change) => {
                self.site.cache.clone_from(&change.after);
                self.site.cache_changed = revision;
            }
            Event::PurgeRequested(purge) => {
                self.site.cache_epoch = purge.after;
                self.site.purges_outstanding += i64::from(self.state.status.is_served());
            }
            Event::CertificateReplaced(put) => {
                self.site.certificate =
                    Some(StoredCertificate { body: put.after.clone(), changed: revision });
            }
            Event::CertificateDeleted(_) => self.site.certificate = None,
            _ => {}
        }
    }
}

impl DomainState {
    /// The state that a creation begins.
    pub fn created(id: DomainId, event: &DomainCreated, at: Timestamp) -> Self {
        Self {
            id,
            name: event.name.clone(),
            tenant: event.tenant,
            status: event.status,
            status_before_delete: None,
            disabled_by: None,
            delegation_lost_at: None,
            revision: Revision::new(1),
            labels: event.labels.clone(),
            external_id: event.external_id.clone(),
            serial_base: event.serial_base,
            hold_until: None,
            rrsets: 0,
            records: 0,
            created_at: at,
            updated_at: at,
        }
    }
}
