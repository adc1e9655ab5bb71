//! Proxied names: where their content comes from, and what may not stand beside them. A proxied name's address
//! records are derived, so it holds none of its own; what lies below a zone cut belongs to another zone.

use super::certificate;
use super::decide::{Context, Decided, check, decided};
use super::destination::Destinations;
use super::origin::{Faults, Origin, OriginInput};
use super::state::{DomainView, StoredHostname};
use crate::dns::{DomainName, OwnerKey, OwnerName, RrType};
use crate::event::Event;
use crate::ids::Revision;
use crate::reject::{Fault, Reject};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::ops::RangeInclusive;

/// Failures or successes in a row that move between origin and backup.
pub const THRESHOLD_TIMES: RangeInclusive<i64> = 1..=20;
/// The shortest time on a backup.
pub const HOLD_DOWN_SECONDS: RangeInclusive<i64> = 5..=3_600;
/// How long an origin must be well before it is used again.
pub const FAILBACK_DELAY_SECONDS: RangeInclusive<i64> = 5..=86_400;
/// How often an origin is looked at.
pub const HEALTH_INTERVAL_SECONDS: RangeInclusive<i64> = 60..=86_400;
/// Where nothing is said: failures, successes, hold-down and failback delay.
const BACKUP_DEFAULTS: (u32, u32, u32, u32) = (3, 2, 30, 60);
/// Where nothing is said.
const HEALTH_INTERVAL_DEFAULT_SECONDS: u32 = 60;
/// The longest path of a health check.
pub const HEALTH_PATH_MAX_BYTES: usize = 2_048;

/// What is proxied under a name, complete.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostnameBody {
    /// Where its content comes from.
    pub origin: Origin,
    /// Where it comes from while the origin is down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup: Option<Backup>,
    /// How the origin is watched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<Health>,
}

/// The second origin and when it is used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backup {
    /// The server.
    pub origin: Origin,
    /// This many failures in a row switch to it.
    pub failure_threshold: u32,
    /// This many successes in a row switch back.
    pub recovery_threshold: u32,
    /// The shortest time on it.
    pub hold_down_seconds: u32,
    /// How long the origin must be well before the switch back.
    pub failback_delay_seconds: u32,
}

/// How an origin is watched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// What is asked for.
    pub path: String,
    /// How often.
    pub interval_seconds: u32,
}

/// A name was proxied, or is proxied otherwise from now on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostnameReplaced {
    /// The name, relative to the domain.
    pub name: OwnerName,
    /// What it was; none when it is new.
    pub before: Option<HostnameBody>,
    /// What it is now.
    pub after: HostnameBody,
}

/// A name is proxied no longer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostnameDeleted {
    /// The name, relative to the domain.
    pub name: OwnerName,
    /// What it was.
    pub before: HostnameBody,
}

/// Edges serve a name no longer that was deleted before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostnameWithdrawn {
    /// The name, relative to the domain.
    pub name: OwnerName,
}

/// What was sent for a proxied name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HostnameInput {
    /// The origin.
    pub origin: OriginInput,
    /// The backup.
    pub backup: Option<BackupInput>,
    /// The health check.
    pub health: Option<HealthInput>,
}

/// What was sent for a backup.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BackupInput {
    /// The server.
    pub origin: OriginInput,
    /// Times.
    pub failure_threshold: Option<i64>,
    /// Times.
    pub recovery_threshold: Option<i64>,
    /// Seconds.
    pub hold_down_seconds: Option<i64>,
    /// Seconds.
    pub failback_delay_seconds: Option<i64>,
}

/// What was sent for a health check.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HealthInput {
    /// A path.
    pub path: Option<String>,
    /// Seconds.
    pub interval_seconds: Option<i64>,
}

impl HostnameBody {
    /// Reads what was sent for a name of the domain.
    ///
    /// # Errors
    /// Every fault, each with its pointer.
    pub fn parse(
        input: &HostnameInput,
        owner: &OwnerName,
        zone: &DomainName,
        destinations: &Destinations,
    ) -> Result<Self, Vec<Fault>> {
        let mut faults = Vec::new();
        let hostname = owner.absolute(zone);
        if !is_hostname(&hostname) {
            let detail =
                format!("{hostname} cannot be asked for by HTTP: a label has letters, digits, - and _ alone");
            faults.push(Fault::at("", "invalid_hostname", detail));
        }
        let origin = Origin::parse(&input.origin, &hostname, destinations, "/origin", &mut faults);
        let backup = input.backup.as_ref().map(|sent| backup(sent, &hostname, destinations, &mut faults));
        let health = input.health.as_ref().map(|sent| health(sent, &mut faults));
        match (origin, backup.flatten()) {
            (Some(origin), backup) if faults.is_empty() => Ok(Self { origin, backup, health }),
            _ => Err(faults),
        }
    }

    /// Every origin, with the pointer of its host.
    fn origins(&self) -> impl Iterator<Item = (&Origin, &'static str)> {
        let backup = self.backup.iter().map(|backup| (&backup.origin, "/backup/origin/host"));
        std::iter::once((&self.origin, "/origin/host")).chain(backup)
    }
}

fn is_hostname(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'_');
    let rest = name.strip_prefix("*.").unwrap_or(name);
    name.len() <= super::origin::HOST_MAX_CHARS
        && rest.split('.').all(|label| !label.is_empty() && label.bytes().all(plain))
}

fn backup(
    sent: &BackupInput,
    hostname: &str,
    destinations: &Destinations,
    faults: &mut Vec<Fault>,
) -> Option<Backup> {
    let origin = Origin::parse(&sent.origin, hostname, destinations, "/backup/origin", faults);
    let mut at = Faults { base: "/backup".to_owned(), found: faults };
    let (failures, successes, hold, delay) = BACKUP_DEFAULTS;
    let failure_threshold =
        at.within("failure_threshold", sent.failure_threshold, &THRESHOLD_TIMES, failures);
    let recovery_threshold =
        at.within("recovery_threshold", sent.recovery_threshold, &THRESHOLD_TIMES, successes);
    let hold_down_seconds = at.within("hold_down_seconds", sent.hold_down_seconds, &HOLD_DOWN_SECONDS, hold);
    let failback_delay_seconds =
        at.within("failback_delay_seconds", sent.failback_delay_seconds, &FAILBACK_DELAY_SECONDS, delay);
    Some(Backup {
        origin: origin?,
        failure_threshold,
        recovery_threshold,
        hold_down_seconds,
        failback_delay_seconds,
    })
}

fn health(sent: &HealthInput, faults: &mut Vec<Fault>) -> Health {
    let mut at = Faults { base: "/health".to_owned(), found: faults };
    let path = sent.path.clone().unwrap_or_else(|| "/".to_owned());
    let is_path = path.starts_with('/')
        && path.len() <= HEALTH_PATH_MAX_BYTES
        && path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#');
    if !is_path {
        let detail = format!(
            "path begins with a slash and has at most {HEALTH_PATH_MAX_BYTES} octets of visible ASCII without #"
        );
        at.at("path", "invalid_path", detail);
    }
    let interval_seconds = at.within(
        "interval_seconds",
        sent.interval_seconds,
        &HEALTH_INTERVAL_SECONDS,
        HEALTH_INTERVAL_DEFAULT_SECONDS,
    );
    Health { path, interval_seconds }
}

/// Types that would answer for a name beside the addresses that are derived for it.
pub(super) fn answers_for_proxy(rrtype: RrType) -> bool {
    matches!(rrtype, RrType::A | RrType::AAAA | RrType::CNAME | RrType::ALIAS)
}

/// Whether an RRset cannot stand at a proxied name: at the apex, which is answered with addresses, those that would
/// answer in their place; elsewhere any, since the name is a CNAME (RFC 1034 section 3.6.2).
pub(super) fn excluded_by_proxy(owner: &OwnerName, rrtype: RrType) -> bool {
    !owner.is_apex() || answers_for_proxy(rrtype)
}

/// Owners whose own hostname a hostname's origins could be: the names themselves, and wildcards above them.
pub(super) fn origin_owners(body: &HostnameBody, zone: &DomainName) -> BTreeSet<OwnerKey> {
    let mut keys = BTreeSet::new();
    for (origin, _) in body.origins() {
        if let Some(owner) = owner_of(origin, zone) {
            keys.extend(wildcards(&owner).iter().map(OwnerName::key));
            keys.insert(owner.key());
        }
    }
    keys
}

fn owner_of(origin: &Origin, zone: &DomainName) -> Option<OwnerName> {
    let name = origin.host_name().filter(|name| name.is_subdomain_of(zone))?;
    OwnerName::parse(&format!("{name}."), zone).ok()
}

/// The wildcards that may answer for a name, nearest first.
fn wildcards(owner: &OwnerName) -> Vec<OwnerName> {
    let parents =
        owner.ancestors().map(|parent| format!("*.{parent}")).chain(std::iter::once("*".to_owned()));
    parents.filter_map(|text| OwnerName::from_canonical(&text).ok()).collect()
}

/// Every fault that a body which was good once has now: as it would be read today, and beside what will stand there.
///
/// # Errors
/// What stands at the name or above it and does not go with a proxied name.
pub(super) fn faults_now(
    end: &DomainView,
    owner: &OwnerName,
    body: &HostnameBody,
    destinations: &Destinations,
) -> Result<Vec<Fault>, Reject> {
    beside(end, owner)?;
    let read = HostnameBody::parse(&body.into(), owner, &end.state.name, destinations);
    let mut faults = read.err().unwrap_or_default();
    faults.extend(loops(end, owner, body));
    Ok(faults)
}

impl From<&HostnameBody> for HostnameInput {
    fn from(body: &HostnameBody) -> Self {
        let backup = body.backup.as_ref().map(|backup| BackupInput {
            origin: (&backup.origin).into(),
            failure_threshold: Some(backup.failure_threshold.into()),
            recovery_threshold: Some(backup.recovery_threshold.into()),
            hold_down_seconds: Some(backup.hold_down_seconds.into()),
            failback_delay_seconds: Some(backup.failback_delay_seconds.into()),
        });
        let health = body.health.as_ref().map(|health| HealthInput {
            path: Some(health.path.clone()),
            interval_seconds: Some(health.interval_seconds.into()),
        });
        Self { origin: (&body.origin).into(), backup, health }
    }
}

/// Decides `PUT` on a hostname.
pub(super) fn put(
    view: &DomainView,
    owner: &OwnerName,
    body: &HostnameBody,
    context: &Context<'_>,
) -> Result<Decided, Reject> {
    let current = view.hostnames.get(&owner.key());
    check(context.precondition, current.map(|stored| stored.changed))?;
    beside(view, owner)?;
    let faults = loops(view, owner, body);
    if !faults.is_empty() {
        return Err(Reject::Invalid(faults));
    }
    let before = current.map(|stored| stored.body.clone());
    if before.as_ref() == Some(body) {
        return Ok(Decided::Unchanged { revision: view.state.revision });
    }
    let event = Event::HostnameReplaced(Box::new(HostnameReplaced {
        name: owner.clone(),
        before,
        after: body.clone(),
    }));
    let mut decision = decided(view, vec![event], view.state.status.is_served(), context);
    decision.warnings.extend(certificate::warning(view, &owner.absolute(&view.state.name)));
    Ok(Decided::Changed(decision))
}

/// Decides `DELETE` on a hostname.
pub(super) fn delete(view: &DomainView, owner: &OwnerName, context: &Context<'_>) -> Result<Decided, Reject> {
    let Some(StoredHostname { body, changed, .. }) = view.hostnames.get(&owner.key()) else {
        return Err(Reject::NotFound(format!("hostname {owner} of {}", view.state.name)));
    };
    check(context.precondition, Some(*changed))?;
    let event =
        Event::HostnameDeleted(Box::new(HostnameDeleted { name: owner.clone(), before: body.clone() }));
    Ok(Decided::Changed(decided(view, vec![event], view.state.status.is_served(), context)))
}

/// Decides that edges serve a deleted name no longer. Where it was proxied again meanwhile, or deleted once more, there
/// is nothing to withdraw.
pub(super) fn withdraw(
    view: &DomainView,
    owner: &OwnerName,
    leaving: Revision,
    context: &Context<'_>,
) -> Decided {
    if view.leaving.get(&owner.key()) != Some(&leaving) {
        return Decided::Unchanged { revision: view.state.revision };
    }
    let event = Event::HostnameWithdrawn(HostnameWithdrawn { name: owner.clone() });
    Decided::Changed(decided(view, vec![event], false, context))
}

/// What stands at the name, or above it, and does not go with a proxied name.
fn beside(view: &DomainView, owner: &OwnerName) -> Result<(), Reject> {
    if view.platform_names.contains(&owner.key()) {
        let detail =
            format!("{owner} is a name of the platform: it is answered with the addresses of its edges");
        return Err(Reject::Conflict { code: "managed_by_platform", detail });
    }
    let here = view.rrsets.get(&owner.key()).into_iter().flat_map(|types| types.keys().copied());
    let others: Vec<String> = here
        .filter(|ty| *ty != RrType::NS && excluded_by_proxy(owner, *ty))
        .map(|ty| ty.to_string())
        .collect();
    if !others.is_empty() {
        return Err(Reject::Conflict {
            code: "rrset_conflict",
            detail: format!(
                "{owner} holds {}: {}, so delete them first",
                others.join(", "),
                if owner.is_apex() {
                    "the addresses of a proxied apex are derived"
                } else {
                    "a proxied name is answered with a CNAME, beside which nothing can stand"
                }
            ),
        });
    }
    let is_cut = |at: &OwnerName| !at.is_apex() && view.get(&at.key(), RrType::NS).is_some();
    let is_turned = |at: &OwnerName| view.get(&at.key(), RrType::DNAME).is_some();
    let apex = (!owner.is_apex()).then(OwnerName::apex);
    let mut above = owner.ancestors().chain(apex);
    let found =
        if is_cut(owner) { Some(owner.clone()) } else { above.find(|at| is_cut(at) || is_turned(at)) };
    match found {
        Some(at) => Err(Reject::Conflict {
            code: "below_zone_cut",
            detail: format!(
                "{owner} lies at or below {at}, which is delegated or a DNAME: nobody asks this zone for it"
            ),
        }),
        None => Ok(()),
    }
}

/// Origins that are proxied names of this domain themselves: a request would come back to the edges.
fn loops(view: &DomainView, owner: &OwnerName, body: &HostnameBody) -> Vec<Fault> {
    let zone = &view.state.name;
    let own = owner.absolute(zone);
    let mut faults = Vec::new();
    for (origin, pointer) in body.origins() {
        let Some(target) = owner_of(origin, zone) else { continue };
        let is_own = |name: &OwnerName| name == owner || view.hostnames.contains_key(&name.key());
        let has_rrsets = view.rrsets.get(&target.key()).is_some_and(|types| !types.is_empty());
        let through = if is_own(&target) {
            Some(target.clone())
        } else if has_rrsets {
            None
        } else {
            wildcards(&target).into_iter().find(is_own)
        };
        if let Some(through) = through {
            let detail =
                format!("{} is itself proxied (by {through}): a request would go in circles", origin.host);
            faults.push(Fault::at(pointer, "origin_loop", detail));
        }
    }
    let points_here = |stored: &StoredHostname| stored.body.origins().any(|(origin, _)| origin.host == own);
    if let Some(from) = view.hostnames.values().find(|stored| stored.owner != *owner && points_here(stored)) {
        let detail = format!("{own} is the origin of {}: proxied, a request would go in circles", from.owner);
        faults.push(Fault::at("", "origin_loop", detail));
    }
    faults
}
