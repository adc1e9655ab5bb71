//! The decision about an existing domain: pure, over what the command touches.

use super::command::{DomainCommand, DomainPatch, Precondition, RrsetChange};
use super::create::tag_faults;
use super::state::DomainView;
use super::{cache, certificate, hostname, import, lifecycle, permit, rollback, rrsets, undo};
use crate::actor::Caller;
use crate::dns::{OwnerName, RrSetBody, RrType};
use crate::envelope::NewEvent;
use crate::event::{Change, DomainDeleted, DomainSettings, Event};
use crate::ids::{OperationId, Revision, StreamRef};
use crate::manager::Managing;
use crate::reject::{Fault, Guard, Reject};
use crate::time::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

/// How far a serial may move at once (RFC 1982): a secondary takes anything further ahead for older.
const SERIAL_STEP_MAX: u32 = (1 << 31) - 1;

/// Bounds that are settings of the platform.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Domains of one tenant, at most.
    pub domains_per_tenant: i64,
    /// Records of one domain, at most.
    pub records_per_domain: i64,
    /// The lowest TTL a tenant may set, in seconds.
    pub ttl_floor_seconds: u32,
    /// How long a deleted name is held for its owner.
    pub hold: Duration,
}

/// What a decision knows besides the state.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// Who asks.
    pub caller: &'a Caller,
    /// When it is decided.
    pub now: Timestamp,
    /// The id that the operation gets if one is needed.
    pub operation: OperationId,
    /// Bounds in force.
    pub limits: &'a Limits,
    /// `If-Match`, `If-None-Match`.
    pub precondition: &'a Precondition,
    /// Guards that the caller allows to be crossed.
    pub allow: &'a BTreeSet<Guard>,
    /// Whether what tools of others own may be changed.
    pub take_over: bool,
    /// The platform's part of every SOA serial.
    pub generation: u32,
}

/// A change that was decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// What will stand in the log.
    pub events: Vec<NewEvent>,
    /// The revision that the stream gets.
    pub revision: Revision,
    /// The operation that carries it out, if a runtime is affected.
    pub operation: Option<OperationId>,
    /// Guards that were crossed by allowance.
    pub guards: Vec<Guard>,
    /// What the caller may want to know.
    pub warnings: Vec<String>,
}

/// The answer to a command that was not refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decided {
    /// The state is already as asked: no event, no revision.
    Unchanged {
        /// The revision that the stream has.
        revision: Revision,
    },
    /// Something changes.
    Changed(Decision),
}

/// Decides a command on an existing domain.
///
/// # Errors
/// Why not, with every fault of the input.
pub fn decide(view: &DomainView, command: &DomainCommand, context: &Context<'_>) -> Result<Decided, Reject> {
    permit::permitted(&view.state, command, context.caller)?;
    let decided = judged(view, command, context)?;
    if let Decided::Changed(decision) = &decided {
        permit::changes_permitted(&view.state, &decision.events, context.caller)?;
    }
    Ok(decided)
}

/// The same, of a command that the caller may give.
fn judged(view: &DomainView, command: &DomainCommand, context: &Context<'_>) -> Result<Decided, Reject> {
    let domain = &view.state;
    if domain.status.is_deleted() && !matches!(command, DomainCommand::Restore) {
        return Err(Reject::NotFound(format!(
            "domain {} (deleted; POST /api/domains/{}/restore brings it back)",
            domain.name, domain.name
        )));
    }
    match command {
        DomainCommand::Patch(patch) => settings(view, patch, context),
        DomainCommand::Delete => delete(view, context),
        DomainCommand::Restore => lifecycle::restore(view, context),
        DomainCommand::Activate(proof) => lifecycle::activate(view, *proof, context),
        DomainCommand::Disable => lifecycle::disable(view, context),
        DomainCommand::Enable => lifecycle::enable(view, context),
        DomainCommand::Expire => lifecycle::expire(view, context),
        DomainCommand::PutRrset(rrset) => {
            let current = view.get(&rrset.owner().key(), rrset.rr_type()).map(|stored| stored.changed);
            check(context.precondition, current)?;
            rrsets::change(view, &[RrsetChange::Put(rrset.clone())], rrsets::Origin::One, context)
        }
        DomainCommand::DeleteRrset { owner, rrtype } => {
            let change = RrsetChange::Delete { owner: owner.clone(), rrtype: *rrtype };
            if rrsets::removes_apex_ns(&change) {
                return Err(Reject::Invalid(vec![Fault::at("", "apex_ns", rrsets::APEX_NS)]));
            }
            let Some(stored) = view.get(&owner.key(), *rrtype) else {
                return Err(Reject::NotFound(format!("RRset {owner} {rrtype} of {}", domain.name)));
            };
            check(context.precondition, Some(stored.changed))?;
            rrsets::change(view, &[change], rrsets::Origin::One, context)
        }
        DomainCommand::ChangeRrsets(changes) => {
            check(context.precondition, Some(domain.revision))?;
            rrsets::change(view, changes, rrsets::Origin::Batch, context)
        }
        DomainCommand::ImportZone(asked) => import::decide(view, asked, context),
        DomainCommand::PutHostname { owner, body } => hostname::put(view, owner, body, context),
        DomainCommand::DeleteHostname { owner } => hostname::delete(view, owner, context),
        DomainCommand::WithdrawHostname { owner, leaving } => {
            Ok(hostname::withdraw(view, owner, *leaving, context))
        }
        DomainCommand::PatchCache(patch) => cache::patch(view, patch, context),
        DomainCommand::Purge { id } => cache::purge(view, *id, context),
        DomainCommand::Rollback(asked) => rollback::decide(view, asked, context),
        DomainCommand::Undo(asked) => undo::decide(view, asked, context),
        DomainCommand::PutCertificate(new) => certificate::put(view, new, context),
        DomainCommand::DeleteCertificate => certificate::delete(view, context),
    }
}

/// The revision by which a command's resource is conditioned; none when it does not exist. RRsets, hostnames and
/// settings have entity tags of their own: the revision that last changed them.
pub fn entity_tag(view: &DomainView, command: &DomainCommand) -> Option<Revision> {
    let rrset = |owner: &OwnerName, rrtype| view.get(&owner.key(), rrtype).map(|stored| stored.changed);
    match command {
        DomainCommand::PutRrset(rrset_put) => rrset(rrset_put.owner(), rrset_put.rr_type()),
        DomainCommand::DeleteRrset { owner, rrtype } => rrset(owner, *rrtype),
        DomainCommand::PutHostname { owner, .. } | DomainCommand::DeleteHostname { owner } => {
            view.hostnames.get(&owner.key()).map(|stored| stored.changed)
        }
        DomainCommand::PatchCache(_) => Some(view.site.cache_changed),
        DomainCommand::PutCertificate(_) | DomainCommand::DeleteCertificate => {
            view.site.certificate.as_ref().map(|stored| stored.changed)
        }
        _ => Some(view.state.revision),
    }
}

pub(super) fn check(precondition: &Precondition, current: Option<Revision>) -> Result<(), Reject> {
    if precondition.holds(current) { Ok(()) } else { Err(Reject::RevisionMismatch { current }) }
}

/// Wraps events of this domain into a decision; an operation is needed when it is served.
pub(super) fn decided(
    view: &DomainView,
    events: Vec<Event>,
    runtime: bool,
    context: &Context<'_>,
) -> Decision {
    let domain = &view.state;
    let operation = runtime.then_some(context.operation);
    let wrap = |event| NewEvent {
        stream: StreamRef::domain(domain.id),
        domain: Some((domain.id, domain.name.clone())),
        tenant: Some(domain.tenant),
        operation,
        event,
    };
    Decision {
        events: events.into_iter().map(wrap).collect(),
        revision: domain.revision.next(),
        operation,
        guards: Vec::new(),
        warnings: Vec::new(),
    }
}

fn settings(view: &DomainView, patch: &DomainPatch, context: &Context<'_>) -> Result<Decided, Reject> {
    let domain = &view.state;
    check(context.precondition, Some(domain.revision))?;
    let before = DomainSettings {
        labels: domain.labels.clone(),
        external_id: domain.external_id.clone(),
        serial_base: domain.serial_base,
    };
    let mut after = before.clone();
    if let Some(labels) = &patch.labels {
        labels.apply(&mut after.labels);
    }
    if let Some(external_id) = &patch.external_id {
        after.external_id.clone_from(external_id);
    }
    if let Some(floor) = patch.serial_floor {
        after.serial_base = after.serial_base.wrapping_add(raised(view, floor, context)?);
    }
    let faults = tag_faults(&after.labels, after.external_id.as_deref());
    if !faults.is_empty() {
        return Err(Reject::Invalid(faults));
    }
    if before == after {
        return Ok(Decided::Unchanged { revision: domain.revision });
    }
    // Only the serial is seen by a runtime, but the zone's SOA follows every
    // revision, so that a target is current only when it holds the newest one.
    let event = Event::DomainUpdated(Change { before, after });
    Ok(Decided::Changed(decided(view, vec![event], domain.status.is_served(), context)))
}

/// By how much the base rises so that the next serial is at least the floor. A floor that is behind raises nothing.
pub(super) fn raised(view: &DomainView, floor: u32, context: &Context<'_>) -> Result<u32, Reject> {
    let domain = &view.state;
    let current = domain.serial(domain.revision, context.generation);
    let next = domain.serial(domain.revision.next(), context.generation);
    if floor != current && floor.wrapping_sub(current) <= SERIAL_STEP_MAX {
        return Ok(floor.wrapping_sub(next));
    }
    if floor <= current {
        return Ok(0);
    }
    let highest = current.wrapping_add(SERIAL_STEP_MAX);
    let detail = format!(
        "the serial is {current}, and secondaries would take {floor} for older (RFC 1982): the highest floor possible \
         now is {highest}; raise it in two steps, the second when every secondary has the first"
    );
    Err(Reject::Invalid(vec![Fault::at("/serial_floor", "serial_floor_too_high", detail)]))
}

fn delete(view: &DomainView, context: &Context<'_>) -> Result<Decided, Reject> {
    let domain = &view.state;
    check(context.precondition, Some(domain.revision))?;
    if !view.platform_names.is_empty() {
        let detail = format!("{} is the platform's own zone: every proxied name leads there", domain.name);
        return Err(Reject::Conflict { code: "managed_by_platform", detail });
    }
    if !context.take_over && !view.of_others.is_empty() {
        let told = |(owner, rrtype, body): &(OwnerName, RrType, RrSetBody)| {
            let detail = rrsets::told_of_other(owner, *rrtype, body, context);
            Fault::at(format!("/rrsets/{owner}/{rrtype}"), rrsets::MANAGED_BY_OTHER, detail)
        };
        return Err(Reject::ManagedByOther { conflicts: view.of_others.iter().map(told).collect() });
    }
    let event = Event::DomainDeleted(DomainDeleted {
        before: domain.status,
        hold_until: context.now.plus(context.limits.hold),
        last_serial: domain.serial(domain.revision, context.generation),
        allowed: Vec::new(),
    });
    Ok(Decided::Changed(decided(view, vec![event], domain.status.is_served(), context)))
}

/// What a decision changes, as `[{"path", "before", "after"}]`: the answer of a dry run. That it was a rollback or an
/// undo is no change of its own. What an RRset was is not told to whom it is not shown.
pub fn diff(events: &[NewEvent], shown: &Managing) -> Vec<Value> {
    let is_fact = |event: &Event| matches!(event, Event::DomainRolledBack(_) | Event::DomainUndone(_));
    let changes = events.iter().filter(|new| !is_fact(&new.event));
    changes.map(|new| difference(&new.event, shown)).collect()
}

fn difference(event: &Event, shown: &Managing) -> Value {
    let known = match event {
        Event::RrsetReplaced(e) => e.before.as_ref(),
        Event::RrsetDeleted(e) => Some(&e.before),
        _ => None,
    };
    let is_hidden = known.is_some_and(|before| !shown.shows(before.managed_by.as_ref()));
    let (path, before, after) = sides(event);
    json!({"path": path, "before": if is_hidden { Value::Null } else { before }, "after": after})
}

/// What an event is about, what that was before it and what after it.
pub fn sides(event: &Event) -> (String, Value, Value) {
    let row = |path: String, before: Value, after: Value| (path, before, after);
    match event {
        Event::RrsetReplaced(e) => {
            row(format!("/rrsets/{}/{}", e.name, e.rrtype), json!(e.before), json!(e.after))
        }
        Event::RrsetDeleted(e) => {
            row(format!("/rrsets/{}/{}", e.name, e.rrtype), json!(e.before), Value::Null)
        }
        Event::DomainUpdated(e) => row("/".into(), json!(e.before), json!(e.after)),
        Event::HostnameReplaced(e) => row(format!("/hostnames/{}", e.name), json!(e.before), json!(e.after)),
        Event::HostnameDeleted(e) => row(format!("/hostnames/{}", e.name), json!(e.before), Value::Null),
        Event::CacheChanged(e) => row("/cache".into(), json!(e.before), json!(e.after)),
        Event::PurgeRequested(e) => row("/cache/epoch".into(), json!(e.before), json!(e.after)),
        Event::CertificateReplaced(e) => row("/tls/certificate".into(), json!(e.before), json!(e.after)),
        Event::CertificateDeleted(e) => row("/tls/certificate".into(), json!(e.before), Value::Null),
        Event::DomainDeleted(e) => row("/status".into(), json!(e.before), json!("deprovisioning")),
        Event::DomainRestored(e) => row("/status".into(), json!("deprovisioning"), json!(e.status)),
        Event::DomainActivated(_) => row("/status".into(), json!("pending_verification"), json!("active")),
        Event::DomainDisabled(e) => row("/status".into(), json!(e.before), json!("disabled")),
        Event::DomainEnabled(_) => row("/status".into(), json!("disabled"), json!("active")),
        Event::DomainExpired(_) => {
            row("/status".into(), json!("pending_verification"), json!("deprovisioning"))
        }
        other => {
            let after = other.to_json().ok().and_then(|text| serde_json::from_str(&text).ok());
            row("/".into(), Value::Null, after.unwrap_or(Value::Null))
        }
    }
}

/// A fault of one change of a batch.
pub(super) fn change_fault(
    origin: rrsets::Origin,
    index: usize,
    code: &'static str,
    detail: String,
) -> Fault {
    match origin {
        rrsets::Origin::One => Fault::at("", code, detail),
        rrsets::Origin::Batch | rrsets::Origin::Import => {
            Fault::at(format!("/changes/{index}"), code, detail)
        }
        rrsets::Origin::Rollback => Fault::at("/revision", code, detail),
    }
}
