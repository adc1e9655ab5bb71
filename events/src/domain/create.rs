//! Making a domain: who may hold a name, and what it holds from the beginning.

use super::command::{CreateDomain, RrsetChange};
use super::decide::{Context, Decided, Decision};
use super::rrsets;
use super::state::{DomainState, DomainView, NameView};
use super::{
    EXTERNAL_ID_MAX_BYTES, IMPORT_MAX_CHANGES, LABEL_KEY_MAX_BYTES, LABEL_VALUE_MAX_BYTES, LABELS_MAX_COUNT,
};
use crate::actor::{self, Access, Caller, DomainRef, Resource, Verb};
use crate::admin::needed;
use crate::envelope::NewEvent;
use crate::event::{DomainCreated, DomainStatus, Event, Labels};
use crate::ids::{Revision, StreamRef};
use crate::reject::{Fault, Reject};

/// Every fault of labels and an external id.
pub fn tag_faults(labels: &Labels, external_id: Option<&str>) -> Vec<Fault> {
    let mut faults = Vec::new();
    if labels.len() > LABELS_MAX_COUNT {
        faults.push(Fault::at("/labels", "too_many_labels", format!("at most {LABELS_MAX_COUNT} labels")));
    }
    for (key, value) in labels {
        let pointer = format!("/labels/{}", key.replace('~', "~0").replace('/', "~1"));
        if key.is_empty()
            || key.len() > LABEL_KEY_MAX_BYTES
            || key.contains('=')
            || key.chars().any(char::is_control)
        {
            faults.push(Fault::at(
                pointer.clone(),
                "invalid_label",
                format!(
                    "a label's key has 1 to {LABEL_KEY_MAX_BYTES} octets, without '=' and control characters"
                ),
            ));
        }
        if value.len() > LABEL_VALUE_MAX_BYTES || value.chars().any(char::is_control) {
            faults.push(Fault::at(
                pointer,
                "invalid_label",
                format!(
                    "a label's value has at most {LABEL_VALUE_MAX_BYTES} octets, without control characters"
                ),
            ));
        }
    }
    if let Some(id) = external_id
        && (id.is_empty() || id.len() > EXTERNAL_ID_MAX_BYTES || id.chars().any(char::is_control))
    {
        faults.push(Fault::at(
            "/external_id",
            "invalid_external_id",
            format!("an external id has 1 to {EXTERNAL_ID_MAX_BYTES} octets, without control characters"),
        ));
    }
    faults
}

/// Decides whether the domain may be made.
///
/// # Errors
/// Why not, with every fault of the input.
pub fn create(view: &NameView, command: &CreateDomain, context: &Context<'_>) -> Result<Decided, Reject> {
    permitted(command, view.tenant_exists, context.caller)?;
    if command.force_active && !context.caller.admin {
        return Err(Reject::Forbidden("only an administrator may set force_active".into()));
    }
    let mut faults = tag_faults(&command.labels, command.external_id.as_deref());
    let allowed = if context.caller.admin { Ok(()) } else { command.name.tenant_allowed() };
    if let Err(fault) = command.name.check_a_labels().and(allowed) {
        faults.push(Fault::at("/name", fault.code.as_str(), fault.detail));
    }
    if view.tenant_domains >= context.limits.domains_per_tenant {
        faults.push(Fault::at(
            "/tenant",
            "too_many_domains",
            format!("the tenant holds {} domains, its limit", view.tenant_domains),
        ));
    }
    if !faults.is_empty() {
        return Err(Reject::Invalid(faults));
    }
    claimable(view, command, context)?;
    let previous =
        [view.last_serial, view.holder.as_ref().map(|held| held.serial_base)].into_iter().flatten().max();
    let status = if command.force_active { DomainStatus::Active } else { DomainStatus::PendingVerification };
    let created = DomainCreated {
        name: command.name.clone(),
        tenant: command.tenant,
        status,
        labels: command.labels.clone(),
        external_id: command.external_id.clone(),
        serial_base: serial_base(previous, command.serial_floor),
    };
    let (held, warnings) = held(command, &created, context)?;
    let operation = status.is_served().then_some(context.operation);
    let given_up = view.holder.as_ref().filter(|held| is_restorable(held, context)).map(|held| {
        format!(
            "{0} was deleted and could be restored until {1}: making it anew gives that up, with the {2} RRsets it held",
            command.name,
            held.hold_until.unwrap_or(context.now),
            held.rrsets
        )
    });
    let wrap = |event| NewEvent {
        stream: StreamRef::domain(command.id),
        domain: Some((command.id, command.name.clone())),
        tenant: Some(command.tenant),
        operation,
        event,
    };
    Ok(Decided::Changed(Decision {
        events: std::iter::once(Event::DomainCreated(created)).chain(held).map(wrap).collect(),
        revision: Revision::new(1),
        operation,
        guards: Vec::new(),
        warnings: given_up.into_iter().chain(warnings).collect(),
    }))
}

/// What the serials of a new domain start above: what was served here under its name, and what it has elsewhere. Whichever
/// is later by RFC 1982, so that nobody who has either sees a serial go back.
fn serial_base(previous: Option<u32>, elsewhere: Option<u32>) -> u32 {
    let above = |serial: u32| serial.wrapping_add(1);
    match (previous.map(above), elsewhere.map(above)) {
        (Some(here), Some(there)) if there.wrapping_sub(here) < 1 << 31 => there,
        (Some(here), _) => here,
        (None, there) => there.unwrap_or(1),
    }
}

/// What the new domain holds from the beginning, judged as changes of one that is empty.
fn held(
    command: &CreateDomain,
    created: &DomainCreated,
    context: &Context<'_>,
) -> Result<(Vec<Event>, Vec<String>), Reject> {
    if command.rrsets.is_empty() {
        return Ok((Vec::new(), Vec::new()));
    }
    let view = DomainView::bare(DomainState::created(command.id, created, context.now));
    let changes: Vec<RrsetChange> = command.rrsets.iter().cloned().map(RrsetChange::Put).collect();
    let is_import = command.serial_floor.is_some();
    let decided = if is_import && changes.len() <= IMPORT_MAX_CHANGES {
        rrsets::change_with(&view, &changes, rrsets::Origin::Import, None, context)
    } else {
        rrsets::change(&view, &changes, rrsets::Origin::Batch, context)
    };
    match decided? {
        Decided::Unchanged { .. } => Ok((Vec::new(), Vec::new())),
        Decided::Changed(decision) => {
            Ok((decision.events.into_iter().map(|new| new.event).collect(), decision.warnings))
        }
    }
}

/// Whether the caller may make this domain.
///
/// # Errors
/// That there is no such tenant where the caller is none of its members; what is lacking otherwise.
pub fn permitted(command: &CreateDomain, tenant_exists: bool, caller: &Caller) -> Result<(), Reject> {
    let domain = DomainRef { id: command.id, tenant: command.tenant, name: command.name.as_str() };
    let resource = Resource::NewDomain(domain);
    match actor::decide(caller, Verb::Manage, resource) {
        Access::Granted if tenant_exists => Ok(()),
        Access::Forbidden => Err(Reject::Forbidden(needed(Verb::Manage, resource).into())),
        _ => Err(Reject::Invalid(vec![Fault::at(
            "/tenant",
            "unknown_tenant",
            format!("there is no tenant {} that you are a member of", command.tenant),
        )])),
    }
}

/// Whether a domain is deleted and still held for its owner.
fn is_restorable(holder: &DomainState, context: &Context<'_>) -> bool {
    holder.status.is_deleted() && holder.hold_until.is_none_or(|until| until > context.now)
}

/// Whether nobody else holds the name, or a name above or below it.
fn claimable(view: &NameView, command: &CreateDomain, context: &Context<'_>) -> Result<(), Reject> {
    let excludes = |holder: &DomainState| {
        !holder.status.is_deleted() || (is_restorable(holder, context) && holder.tenant != command.tenant)
    };
    if view.holder.as_ref().is_some_and(excludes) {
        return Err(Reject::NameTaken(format!("{} is in use or held for its last owner", command.name)));
    }
    let foreign = view.relatives.iter().find(|(_, owner, held)| {
        // What could be restored must find its names as they were.
        *owner != command.tenant && held.is_none_or(|until| until > context.now)
    });
    match foreign {
        Some(_) if !context.caller.admin => Err(Reject::NameTaken(format!(
            "{} lies above or below a domain of another tenant: its owner or an administrator has to agree",
            command.name
        ))),
        _ => Ok(()),
    }
}
