//! The state that is put together: what stands now, with what changed since taken back; or nothing, with the newest
//! event of everything taken in.

use headwater_events::dns::{OwnerKey, OwnerName, RrType};
use headwater_events::domain::{CachePolicy, DomainState, HostnameBody};
use headwater_events::envelope::Recorded;
use headwater_events::event::{DisabledBy, DomainCreated, DomainStatus, Event, Labels};
use headwater_events::ids::Revision;
use headwater_events::time::Timestamp;
use serde::Deserialize;
use sqlx::Row;
use sqlx::postgres::PgRow;
use sqlx::types::Json;
use std::collections::BTreeMap;

use super::{AsOfError, changed};
use crate::query::rrsets::{Changed, ShownRrset};
use crate::query::sites::{ShownCache, ShownCertificate, ShownHostname};
use crate::query::{maybe_at, odd};

/// The keys of what a domain has one of, as `history_key` gives them.
pub(super) const SETTINGS: &[u8] = b"\x01";
pub(super) const STATUS: &[u8] = b"\x02";
pub(super) const CACHE: &[u8] = b"\x03";
pub(super) const PURGE: &[u8] = b"\x04";
pub(super) const CERTIFICATE: &[u8] = b"\x05";

/// What a domain desired after a revision.
#[derive(Debug, Clone)]
pub struct AsOf {
    /// The domain, as it was.
    pub domain: DomainState,
    /// Its RRsets, in the order of the zone.
    pub rrsets: BTreeMap<(String, i32), ShownRrset>,
    /// Its proxied names, in the order of the zone.
    pub hostnames: BTreeMap<OwnerKey, ShownHostname>,
    /// How answers were kept.
    pub cache: ShownCache,
    /// What its names were proven with.
    pub certificate: Option<ShownCertificate>,
    created: Option<DomainCreated>,
}

/// What the key of an RRset or of a proxied name says.
#[derive(Deserialize)]
struct Named {
    name: OwnerName,
    #[serde(rename = "type")]
    rrtype: Option<RrType>,
}

impl AsOf {
    /// The state of a domain that has nothing yet, as it was created.
    pub(super) fn new(now: &DomainState, revision: Revision, updated: Timestamp, created: Event) -> Self {
        let mut domain = DomainState { revision, updated_at: updated, ..now.clone() };
        let created = if let Event::DomainCreated(created) = created { Some(created) } else { None };
        if let Some(created) = &created {
            settings(&mut domain, created);
            status(&mut domain, created.status, None, None);
        }
        let (rrsets, hostnames) = (BTreeMap::new(), BTreeMap::new());
        Self { domain, rrsets, hostnames, cache: ShownCache::default(), certificate: None, created }
    }

    /// Takes what is there now, but for RRsets and hostnames.
    pub(super) fn rest(&mut self, row: &PgRow) -> Result<(), AsOfError> {
        let status = DomainStatus::from_name(row.try_get(1)?).ok_or_else(|| AsOfError::odd("status"))?;
        self.domain.status = status;
        self.domain.labels = row.try_get::<Json<Labels>, _>(2)?.0;
        self.domain.external_id = row.try_get(3)?;
        self.domain.serial_base =
            u32::try_from(row.try_get::<i64, _>(4)?).map_err(|_| AsOfError::odd("serial_base"))?;
        self.domain.hold_until = maybe_at(row, 5)?;
        let by: Option<&str> = row.try_get(11)?;
        self.domain.disabled_by = by.and_then(DisabledBy::from_name);
        let policy: Option<Json<CachePolicy>> = row.try_get(6)?;
        self.cache.policy = policy.map_or_else(CachePolicy::default, |Json(policy)| policy);
        self.cache.epoch = row.try_get::<Option<i64>, _>(7)?.unwrap_or(0);
        let since = Revision::new(row.try_get::<Option<i64>, _>(8)?.unwrap_or(1));
        self.cache.changed = Changed { revision: since, by: None };
        if let Some(Json(body)) = row.try_get::<Option<Json<_>>, _>(9)? {
            let changed = Changed { revision: Revision::new(row.try_get(10)?), by: None };
            self.certificate = Some(ShownCertificate { body, changed });
        }
        Ok(())
    }

    pub(super) fn rrset(&mut self, shown: ShownRrset) {
        self.rrsets.insert(shown.key(), shown);
    }

    pub(super) fn hostname(&mut self, row: &PgRow) -> Result<(), AsOfError> {
        let Json(body): Json<HostnameBody> = row.try_get(1)?;
        let owner = OwnerName::from_canonical(row.try_get(0)?).map_err(|_| odd("owner"))?;
        let changed = Changed { revision: Revision::new(row.try_get(2)?), by: None };
        self.hostnames.insert(owner.key(), ShownHostname { owner, body, changed });
        Ok(())
    }

    /// Lets go of what changed since: it is not there, or as an earlier event says that is taken in next.
    pub(super) fn forget(&mut self, key: &[u8]) -> Result<(), AsOfError> {
        match (key, &self.created) {
            (SETTINGS, Some(created)) => settings(&mut self.domain, created),
            (STATUS, Some(created)) => status(&mut self.domain, created.status, None, None),
            (CACHE, _) => {
                let fresh = ShownCache::default();
                (self.cache.policy, self.cache.changed) = (fresh.policy, fresh.changed);
            }
            (PURGE, _) => self.cache.epoch = 0,
            (CERTIFICATE, _) => self.certificate = None,
            (named, _) if named.starts_with(b"{") => {
                let named: Named = serde_json::from_slice(&[named, b"}"].concat())?;
                let key = named.name.key();
                match named.rrtype {
                    Some(rrtype) => {
                        self.rrsets.remove(&(key.as_str().to_owned(), i32::from(rrtype.code())));
                    }
                    None => {
                        self.hostnames.remove(&key);
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Takes in the newest event of something.
    pub(super) fn take(&mut self, recorded: &Recorded, event: Event) {
        match event {
            Event::RrsetReplaced(put) => self.rrset(ShownRrset {
                owner: put.name,
                rrtype: put.rrtype,
                body: put.after,
                changed: Some(changed(recorded)),
            }),
            Event::HostnameReplaced(put) => {
                let (owner, body, changed) = (put.name, put.after, changed(recorded));
                self.hostnames.insert(owner.key(), ShownHostname { owner, body, changed });
            }
            Event::DomainUpdated(change) => {
                let after = change.after;
                self.domain.labels = after.labels;
                self.domain.external_id = after.external_id;
                self.domain.serial_base = after.serial_base;
            }
            Event::DomainDeleted(gone) => {
                status(&mut self.domain, DomainStatus::Deprovisioning, Some(gone.hold_until), None);
            }
            Event::DomainExpired(gone) => {
                status(&mut self.domain, DomainStatus::Deprovisioning, Some(gone.expired_at), None);
            }
            Event::DomainRestored(restored) => {
                status(&mut self.domain, restored.status, None, restored.disabled_by);
            }
            Event::DomainActivated(_) | Event::DomainEnabled(_) => {
                status(&mut self.domain, DomainStatus::Active, None, None);
            }
            Event::DomainDisabled(gone) => {
                status(&mut self.domain, DomainStatus::Disabled, None, Some(gone.by));
            }
            Event::CertificateReplaced(put) => {
                self.certificate = Some(ShownCertificate { body: put.after, changed: changed(recorded) });
            }
            other => keep(&mut self.cache, recorded, &other),
        }
    }

    /// Counts what there is.
    pub(super) fn count(&mut self) {
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.domain.rrsets = number(self.rrsets.len());
        self.domain.records = number(self.rrsets.values().map(|one| one.body.records.len()).sum());
    }

    pub(super) fn things(&self) -> usize {
        self.rrsets.len() + self.hostnames.len()
    }
}

/// What an event says of how answers are kept.
pub(super) fn keep(cache: &mut ShownCache, recorded: &Recorded, event: &Event) {
    match event {
        Event::CacheChanged(change) => {
            cache.policy = change.after.clone();
            cache.changed = changed(recorded);
        }
        Event::PurgeRequested(purge) => cache.epoch = i64::try_from(purge.after).unwrap_or(i64::MAX),
        _ => {}
    }
}

fn settings(domain: &mut DomainState, created: &DomainCreated) {
    domain.labels = created.labels.clone();
    domain.external_id = created.external_id.clone();
    domain.serial_base = created.serial_base;
}

fn status(
    domain: &mut DomainState,
    status: DomainStatus,
    hold_until: Option<Timestamp>,
    by: Option<DisabledBy>,
) {
    (domain.status, domain.hold_until, domain.disabled_by) = (status, hold_until, by);
}
