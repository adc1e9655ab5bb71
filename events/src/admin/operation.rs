//! Decisions about operations: imperative work that is asked for, called off, and ended.

use super::decide::{needed, plain};
use super::{AdminCommand, AdminView};
use crate::actor::{self, Caller, Resource, Verb};
use crate::dns::DomainName;
use crate::domain::Decided;
use crate::event::{Event, OperationFinished, OperationRequested, UndoRequested, Work};
use crate::ids::{DomainId, OperationId, Revision, TenantId};
use crate::reject::{Fault, Reject};

pub(super) fn request(
    view: &AdminView,
    command: &AdminCommand,
    operation: OperationId,
    requested: &OperationRequested,
) -> Result<Decided, Reject> {
    if let Some(name) = requested.domain.as_ref().filter(|_| !view.scope_exists) {
        return Err(Reject::NotFound(format!("domain {name}")));
    }
    if let Some(running) = view.running {
        let projection = requested.projection.name();
        let what = if requested.kind == Work::Rebuild { "rebuilt" } else { "verified in the same way" };
        let detail = format!(
            "{projection} is being {what} by operation {running}: wait until it has ended, or cancel it"
        );
        return Err(Reject::Conflict { code: "conflict", detail });
    }
    begun(view, command, operation, Event::OperationRequested(requested.clone()))
}

pub(super) fn request_undo(
    view: &AdminView,
    command: &AdminCommand,
    operation: OperationId,
    requested: &UndoRequested,
) -> Result<Decided, Reject> {
    if requested.until.is_some_and(|until| until <= requested.since) {
        let detail = "until must be later than since";
        return Err(Reject::Invalid(vec![Fault::at("/until", "out_of_range", detail)]));
    }
    begun(view, command, operation, Event::UndoRequested(requested.clone()))
}

/// Zones of another server that are to be taken in, what is asked about them, or the end of that.
pub(super) fn request_import(view: &AdminView, command: &AdminCommand) -> Result<Decided, Reject> {
    match command {
        AdminCommand::RequestImport { operation, requested } => {
            begun(view, command, *operation, Event::ImportRequested(requested.clone()))
        }
        AdminCommand::RequestCutover { operation, requested } => {
            begun(view, command, *operation, Event::ImportCutoverRequested(requested.clone()))
        }
        AdminCommand::RequestCompare { operation, requested } => {
            begun(view, command, *operation, Event::ImportCompareRequested(requested.clone()))
        }
        _ => Ok(Decided::Unchanged { revision: view.revision }),
    }
}

/// The first event of an operation's own stream.
pub(super) fn begun(
    view: &AdminView,
    command: &AdminCommand,
    operation: OperationId,
    event: Event,
) -> Result<Decided, Reject> {
    let mut decided = plain(view, command, vec![event]);
    if let Ok(Decided::Changed(decision)) = &mut decided {
        decision.operation = Some(operation);
        decision.events.iter_mut().for_each(|event| event.operation = Some(operation));
    }
    decided
}

/// Whether what a caller started is its own to call off: not with a token that is limited.
pub(super) fn may_own(caller: &Caller) -> bool {
    caller.user().is_some() && caller.scopes.is_none()
}

pub(super) fn cancel(
    view: &AdminView,
    command: &AdminCommand,
    operation: OperationId,
    caller: &Caller,
) -> Result<Decided, Reject> {
    let is_own = may_own(caller) && view.undo_by.is_some() && view.undo_by == caller.user();
    let (verb, resource) = (Verb::Write, Resource::Platform);
    if !is_own && !actor::decide(caller, verb, resource).is_granted() {
        return Err(Reject::Forbidden(needed(verb, resource).into()));
    }
    if view.revision == Revision::ZERO {
        return Err(Reject::NotFound(format!("imperative operation {operation}")));
    }
    if view.operation_terminal {
        return Err(Reject::Conflict { code: "already_ended", detail: "the operation has ended".into() });
    }
    let cancelled = OperationFinished {
        operation,
        state: "cancelled".into(),
        partial: Vec::new(),
        error: None,
        result: None,
        cells: Vec::new(),
        warnings: Vec::new(),
    };
    finish(view, command, &None, None, &cancelled)
}

pub(super) fn finish(
    view: &AdminView,
    command: &AdminCommand,
    domain: &Option<(DomainId, DomainName)>,
    tenant: Option<TenantId>,
    finished: &OperationFinished,
) -> Result<Decided, Reject> {
    let unchanged = Ok(Decided::Unchanged { revision: view.revision });
    if view.operation_terminal {
        return unchanged;
    }
    let event = Event::OperationFinished(finished.clone());
    let mut decided = plain(view, command, vec![event]);
    if let Ok(Decided::Changed(decision)) = &mut decided {
        for event in &mut decision.events {
            event.domain.clone_from(domain);
            event.tenant = tenant;
            event.operation = Some(finished.operation);
        }
    }
    decided
}
