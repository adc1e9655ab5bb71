//! Rolling a domain back: what it was at an earlier revision, and the change that makes it so again, as one new
//! revision. The past is folded from the `before` of what happened since, so its cost is that of the changes since
//! then, never of the zone. What it says is judged at the end state like any other change: rules may be stricter by now.

use super::cache::CachePolicy;
use super::certificate;
use super::create::tag_faults;
use super::decide::{Context, Decided, check, decided};
use super::destination::Destinations;
use super::hostname::{self, HostnameBody, HostnameDeleted, HostnameReplaced};
use super::retention::Standing;
use super::rrsets::{self, Touched};
use super::state::{DomainView, StoredHostname, StoredRrset};
use crate::dns::{OwnerKey, OwnerName, RrSet, RrSetBody, RrType};
use crate::event::{Change, DomainSettings, DomainStatus, Event};
use crate::ids::{DomainId, Revision};
use crate::reject::{Fault, Reject};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// RRsets and hostnames that one rollback changes, at most.
pub const ROLLBACK_MAX_CHANGES: usize = 20_000;
/// The code of a refusal that another look at the log may lift: the domain moved on, or is another one by now.
pub const MOVED_ON: &str = "moved_on";

/// A domain was rolled back. What that changed stands beside it, in the same revision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DomainRolledBack {
    /// The revision whose state it has again.
    pub to: Revision,
    /// Whether edges have to do with it: a proxied name or the cache's policy changed.
    pub edges: bool,
}

/// Roll a domain back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rollback {
    /// What it was then, as far as the log was read.
    pub past: Arc<Past>,
    /// Where edges may connect to now.
    pub destinations: Destinations,
}

/// Something that a rollback leaves as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotRestored {
    /// A stable word for it.
    pub what: String,
    /// For people.
    pub detail: String,
}

/// What a domain was at a revision, of everything that changed since. What is not in here did not change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Past {
    /// Which domain.
    pub domain: DomainId,
    /// Which revision.
    pub to: Revision,
    /// How far the log was read.
    pub through: Revision,
    /// Whether it may be gone back to.
    pub standing: Standing,
    pub(super) rrsets: BTreeMap<(OwnerKey, RrType), (OwnerName, Option<RrSetBody>)>,
    pub(super) hostnames: BTreeMap<OwnerKey, (OwnerName, Option<HostnameBody>)>,
    pub(super) cache: Option<CachePolicy>,
    pub(super) settings: Option<DomainSettings>,
    status: Option<DomainStatus>,
    epoch: Option<u64>,
    certificate: bool,
}

/// The events of tenants and users, none of which stands in the stream of a domain.
macro_rules! of_people {
    () => {
        Event::TenantCreated(_)
            | Event::TenantUpdated(_)
            | Event::TenantDeleted(_)
            | Event::MemberAdded(_)
            | Event::MemberChanged(_)
            | Event::MemberRemoved(_)
            | Event::DomainMemberAdded(_)
            | Event::DomainMemberChanged(_)
            | Event::DomainMemberRemoved(_)
            | Event::DelegationLost(_)
            | Event::DelegationRestored(_)
            | Event::UserCreated(_)
            | Event::UserUpdated(_)
            | Event::ProfileChanged(_)
            | Event::PasswordChanged(_)
            | Event::UserEnabled(_)
            | Event::UserDisabled(_)
            | Event::UserDeleted(_)
            | Event::TokenCreated(_)
            | Event::TokenRevoked(_)
    };
}

impl Past {
    /// The past of a domain, of which nothing has been read yet.
    pub fn new(domain: DomainId, to: Revision, standing: Standing) -> Self {
        Self {
            domain,
            to,
            through: to,
            standing,
            rrsets: BTreeMap::new(),
            hostnames: BTreeMap::new(),
            cache: None,
            settings: None,
            status: None,
            epoch: None,
            certificate: false,
        }
    }

    /// Takes in the next event of the domain's stream after `to`. The first `before` of anything is what it was then,
    /// so that reading on, or reading twice, changes nothing that is known. A new event of domains does not compile
    /// until it is said here what a rollback makes of it.
    pub fn take(&mut self, event: &Event) {
        match event {
            Event::RrsetReplaced(e) => self.rrset(&e.name, e.rrtype, e.before.as_ref()),
            Event::RrsetDeleted(e) => self.rrset(&e.name, e.rrtype, Some(&e.before)),
            Event::HostnameReplaced(e) => self.hostname(&e.name, e.before.as_ref()),
            Event::HostnameDeleted(e) => self.hostname(&e.name, Some(&e.before)),
            Event::CacheChanged(e) => {
                self.cache.get_or_insert_with(|| e.before.clone());
            }
            Event::DomainUpdated(e) => {
                self.settings.get_or_insert_with(|| e.before.clone());
            }
            // Not restored, but told: see `not_restored`.
            Event::DomainDeleted(e) => self.was(e.before),
            Event::DomainRestored(_) => self.was(DomainStatus::Deprovisioning),
            Event::DomainActivated(_) | Event::DomainExpired(_) => {
                self.was(DomainStatus::PendingVerification);
            }
            Event::DomainDisabled(e) => self.was(e.before),
            Event::DomainEnabled(_) => self.was(DomainStatus::Disabled),
            Event::PurgeRequested(e) => {
                self.epoch.get_or_insert(e.before);
            }
            Event::CertificateReplaced(_) | Event::CertificateDeleted(_) => self.certificate = true,
            // It ends what a deletion began; what the name was, the deletion says.
            Event::HostnameWithdrawn(_) => {}
            // The first of a stream, and the facts that stand beside what an earlier rollback or undo changed.
            Event::DomainCreated(_) | Event::DomainRolledBack(_) | Event::DomainUndone(_) => {}
            of_people!() => {}
            // These, too, stand in the streams of others.
            Event::ClusterCreated(_)
            | Event::ClusterUpdated(_)
            | Event::ClusterEnabled(_)
            | Event::ClusterDeleted(_)
            | Event::ClusterRemovalRequested(_)
            | Event::ClusterDisabled(_)
            | Event::DeploymentRendered(_)
            | Event::DeploymentRejected(_)
            | Event::DeploymentActivated(_)
            | Event::DeploymentAcknowledged(_)
            | Event::DeploymentFailed(_)
            | Event::DeploymentSuperseded(_)
            | Event::DeploymentRecovered(_)
            | Event::DeploymentAhead(_)
            | Event::DriftMended(_)
            | Event::DeploymentsPaused(_)
            | Event::DeploymentsResumed(_)
            | Event::OperationRequested(_)
            | Event::UndoRequested(_)
            | Event::ImportRequested(_)
            | Event::ImportCutoverRequested(_)
            | Event::ImportCompareRequested(_)
            | Event::AuditExported(_)
            | Event::OperationFinished(_)
            | Event::PlatformInitialized(_)
            | Event::DnsIdentityChanged(_)
            | Event::EdgeCreated(_)
            | Event::EdgeUpdated(_)
            | Event::EdgeEnabled(_)
            | Event::EdgeDisabled(_)
            | Event::EdgeDrained(_)
            | Event::EdgeUndrained(_)
            | Event::CellDrained(_)
            | Event::CellUndrained(_)
            | Event::EdgeIdentityIssued(_)
            | Event::EdgeIdentityRevoked(_)
            | Event::EdgeIdentityCloned(_)
            | Event::EdgeDeleted(_)
            | Event::AddressesChanged(_)
            | Event::EndpointsChanged(_)
            | Event::PoolCreated(_)
            | Event::WebhookCreated(_)
            | Event::WebhookUpdated(_)
            | Event::WebhookEnabled(_)
            | Event::WebhookDisabled(_)
            | Event::WebhookSecretRotated(_)
            | Event::WebhookReplayed(_)
            | Event::WebhookDeleted(_) => {}
        }
    }

    fn was(&mut self, status: DomainStatus) {
        self.status.get_or_insert(status);
    }

    fn rrset(&mut self, owner: &OwnerName, rrtype: RrType, before: Option<&RrSetBody>) {
        let entry = self.rrsets.entry((owner.key(), rrtype));
        entry.or_insert_with(|| (owner.clone(), before.cloned()));
    }

    fn hostname(&mut self, owner: &OwnerName, before: Option<&HostnameBody>) {
        let entry = self.hostnames.entry(owner.key());
        entry.or_insert_with(|| (owner.clone(), before.cloned()));
    }

    /// Every RRset that changed since: owner, type, and whether it was there.
    pub fn rrsets(&self) -> impl Iterator<Item = (&OwnerName, RrType, bool)> {
        self.rrsets.iter().map(|((_, rrtype), (owner, body))| (owner, *rrtype, body.is_some()))
    }

    /// Every proxied name that changed since, and what it was.
    pub fn hostnames(&self) -> impl Iterator<Item = (&OwnerName, Option<&HostnameBody>)> {
        self.hostnames.values().map(|(owner, body)| (owner, body.as_ref()))
    }

    /// What a rollback would have to change of the owners that `view` has read, and how many changes that is.
    fn differs(&self, view: &DomainView) -> usize {
        let rrsets = self.rrsets.iter().filter(|((key, rrtype), (_, body))| {
            view.get(key, *rrtype).map(|stored| &stored.body) != body.as_ref()
        });
        let hostnames = self
            .hostnames
            .iter()
            .filter(|(key, (_, body))| view.hostnames.get(key).map(|stored| &stored.body) != body.as_ref());
        rrsets.count() + hostnames.count()
    }
}

/// Decides a rollback.
pub(super) fn decide(view: &DomainView, asked: &Rollback, context: &Context<'_>) -> Result<Decided, Reject> {
    let domain = &view.state;
    check(context.precondition, Some(domain.revision))?;
    let to = asked.past.to;
    if to < Revision::new(1) || to > domain.revision {
        let detail =
            format!("{} has the revisions 1 to {}: {to} is none of them", domain.name, domain.revision);
        return Err(Reject::Invalid(vec![Fault::at("/revision", "unknown_revision", detail)]));
    }
    let unchanged = Ok(Decided::Unchanged { revision: domain.revision });
    if to == domain.revision {
        return unchanged;
    }
    asked.past.standing.permit(&domain.name, to)?;
    let Some(past) = view.past.as_ref().filter(|past| past.through == domain.revision) else {
        return Err(Reject::Conflict {
            code: MOVED_ON,
            detail: format!("{} keeps changing while it is rolled back: repeat the request", domain.name),
        });
    };
    let fact = |edges| Event::DomainRolledBack(DomainRolledBack { to, edges });
    restore(view, past, &asked.destinations, fact, context)
}

/// Makes everything that a past names what it was then, with the fact that says why, as one revision.
pub(super) fn restore(
    view: &DomainView,
    past: &Past,
    destinations: &Destinations,
    fact: impl FnOnce(bool) -> Event,
    context: &Context<'_>,
) -> Result<Decided, Reject> {
    let domain = &view.state;
    let count = past.differs(view);
    if count > ROLLBACK_MAX_CHANGES {
        let detail = format!(
            "{count} RRsets and hostnames would change, and one revision changes at most {ROLLBACK_MAX_CHANGES} of them \
             in this way: take a later revision, or put back what matters by itself"
        );
        return Err(Reject::Invalid(vec![Fault::at("/revision", "too_many_changes", detail)]));
    }
    let mut faults = Vec::new();
    let touched = touched(view, past, context, &mut faults);
    let end = end_state(view, past, &touched);
    rrsets::rules(&end, &touched, rrsets::Origin::Rollback, &mut faults);
    let hostnames = hostnames(view, &end, past, destinations, &mut faults)?;
    let settings = settings(view, past, &mut faults);
    let settled = rrsets::settle(view, touched, rrsets::Origin::Rollback, faults, context)?;
    let mut events = settled.events;
    let cache = past.cache.as_ref().filter(|cache| **cache != view.site.cache);
    let edges = !hostnames.is_empty() || cache.is_some();
    let put = hostnames.iter().filter_map(|event| match event {
        Event::HostnameReplaced(put) => Some(put.name.absolute(&domain.name)),
        _ => None,
    });
    let uncovered: Vec<String> = put.filter_map(|name| certificate::warning(view, &name)).collect();
    events.extend(hostnames);
    events.extend(
        cache.map(|after| {
            Event::CacheChanged(Change { before: view.site.cache.clone(), after: after.clone() })
        }),
    );
    events.extend(settings.map(Event::DomainUpdated));
    if events.is_empty() {
        return Ok(Decided::Unchanged { revision: domain.revision });
    }
    events.insert(0, fact(edges));
    let mut decision = decided(view, events, domain.status.is_served(), context);
    decision.guards = settled.guards;
    decision.warnings = settled.warnings;
    decision.warnings.extend(uncovered);
    Ok(Decided::Changed(decision))
}

/// The RRsets that differ, as they were, each read again at the door of today.
fn touched(view: &DomainView, past: &Past, context: &Context<'_>, faults: &mut Vec<Fault>) -> Touched {
    let mut touched = Touched::new();
    for ((key, rrtype), (owner, body)) in &past.rrsets {
        if view.get(key, *rrtype).map(|stored| &stored.body) == body.as_ref() {
            continue;
        }
        let again = body.as_ref().map(|body| reread(owner, *rrtype, body, view, context)).transpose();
        match again {
            Ok(body) => {
                touched.insert((key.clone(), *rrtype), (owner.clone(), body, 0));
            }
            Err(found) => faults.extend(
                found.into_iter().map(|(code, detail)| fault(code, format!("{owner} {rrtype}: {detail}"))),
            ),
        }
    }
    touched
}

fn fault(code: &'static str, detail: String) -> Fault {
    Fault::at("/revision", code, detail)
}

fn reread(
    owner: &OwnerName,
    rrtype: RrType,
    body: &RrSetBody,
    view: &DomainView,
    context: &Context<'_>,
) -> Result<RrSetBody, Vec<(&'static str, String)>> {
    owner.check_a_labels().map_err(|fault| vec![(fault.code.as_str(), fault.detail)])?;
    let read = RrSet::from_body(owner.clone(), rrtype, body, &view.state.name);
    let read = read.map_err(|found| {
        found.into_iter().map(|fault| (fault.code.as_str(), fault.detail)).collect::<Vec<_>>()
    })?;
    rrsets::ttl_permitted(read.ttl(), context)?;
    // Whose it was is part of what it was.
    Ok(RrSetBody { managed_by: body.managed_by.clone(), ..read.body() })
}

/// The view with everything as it will be, so that one part is judged beside the other as that one will be.
fn end_state(view: &DomainView, past: &Past, touched: &Touched) -> DomainView {
    let mut end = view.clone();
    for ((key, rrtype), (_, body, _)) in touched {
        let types = end.rrsets.entry(key.clone()).or_default();
        match body {
            Some(body) => {
                types.insert(*rrtype, StoredRrset { body: body.clone(), changed: view.state.revision });
            }
            None => {
                types.remove(rrtype);
            }
        }
    }
    for (key, (owner, body)) in &past.hostnames {
        match body {
            Some(body) => {
                let (owner, body) = (owner.clone(), body.clone());
                let stored = StoredHostname { owner, body, changed: view.state.revision };
                end.hostnames.insert(key.clone(), stored);
            }
            None => {
                end.hostnames.remove(key);
            }
        }
    }
    end
}

/// The events of the proxied names that differ.
fn hostnames(
    view: &DomainView,
    end: &DomainView,
    past: &Past,
    destinations: &Destinations,
    faults: &mut Vec<Fault>,
) -> Result<Vec<Event>, Reject> {
    let mut events = Vec::new();
    for (key, (name, after)) in &past.hostnames {
        let before = view.hostnames.get(key).map(|stored| stored.body.clone());
        if before.as_ref() == after.as_ref() {
            continue;
        }
        match (before, after) {
            (before, Some(after)) => {
                let found = hostname::faults_now(end, name, after, destinations)?;
                faults.extend(found.into_iter().map(|found| {
                    fault(found.code, format!("hostname {name}{}: {}", found.pointer, found.detail))
                }));
                let (name, after) = (name.clone(), after.clone());
                events.push(Event::HostnameReplaced(Box::new(HostnameReplaced { name, before, after })));
            }
            (Some(before), None) => {
                events.push(Event::HostnameDeleted(Box::new(HostnameDeleted { name: name.clone(), before })));
            }
            (None, None) => {}
        }
    }
    Ok(events)
}

/// Labels and external id as they were. The serial's base stays: no serial may ever go back.
fn settings(view: &DomainView, past: &Past, faults: &mut Vec<Fault>) -> Option<Change<DomainSettings>> {
    let domain = &view.state;
    let was = past.settings.as_ref()?;
    let before = DomainSettings {
        labels: domain.labels.clone(),
        external_id: domain.external_id.clone(),
        serial_base: domain.serial_base,
    };
    let after = DomainSettings { serial_base: domain.serial_base, ..was.clone() };
    let found = tag_faults(&after.labels, after.external_id.as_deref());
    faults.extend(found.into_iter().map(|found| fault(found.code, found.detail)));
    (before != after).then_some(Change { before, after })
}

/// What a rollback or an undo leaves as it is, of what was otherwise then.
pub fn not_restored(view: &DomainView) -> Vec<NotRestored> {
    if let Some(undoing) = &view.undoing {
        return undoing.left();
    }
    let Some(past) = &view.past else { return Vec::new() };
    let (domain, to) = (&view.state, past.to);
    let mut found = Vec::new();
    let mut tell = |what: &str, detail: String| {
        found.push(NotRestored { what: what.to_owned(), detail });
    };
    if let Some(status) = past.status.filter(|status| *status != domain.status) {
        let (was, now) = (status.name(), domain.status.name());
        let detail = format!(
            "the domain was {was} at revision {to} and stays {now}: delete, restore, disable or enable it by itself"
        );
        tell("status", detail);
    }
    if let Some(epoch) = past.epoch.filter(|epoch| *epoch != view.site.cache_epoch) {
        let now = view.site.cache_epoch;
        let detail = format!("what was purged stays purged: the cache's epoch was {epoch} and stays {now}");
        tell("cache_epoch", detail);
    }
    if let Some(was) = past.settings.as_ref().filter(|was| was.serial_base != domain.serial_base) {
        let (was, now) = (was.serial_base, domain.serial_base);
        let detail = format!("an SOA serial never goes back: serial_base was {was} and stays {now}");
        tell("serial_base", detail);
    }
    if past.certificate {
        let detail = format!(
            "the certificate changed after revision {to} and stays as it is: a key that was replaced is gone, so bring \
             certificate and key again"
        );
        tell("certificate", detail);
    }
    found
}
