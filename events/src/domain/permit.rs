//! Whether a caller may do to a domain what a command asks. Records are judged one by one, by owner and type, because a
//! token may be limited to some of them; everything else is judged as a whole.
//!
//! What must hold: no event is decided that its caller may not write. So what was decided is judged once more, which
//! is all that a command can be judged by whose changes nobody knows before.

use super::command::DomainCommand;
use super::state::DomainState;
use crate::actor::{self, Access, Caller, DomainRef, Resource, Verb};
use crate::admin::needed;
use crate::dns::{OwnerName, RrType};
use crate::envelope::NewEvent;
use crate::event::Event;
use crate::reject::Reject;

/// RRsets that are told of one refusal, at most.
const TOLD_MAX_RRSETS: usize = 10;

fn seen(state: &DomainState) -> DomainRef<'_> {
    DomainRef { id: state.id, tenant: state.tenant, name: state.name.as_str() }
}

/// Whether the caller may give this command.
///
/// # Errors
/// That the domain does not exist where the caller may not know of it; what is lacking otherwise.
pub fn permitted(state: &DomainState, command: &DomainCommand, caller: &Caller) -> Result<(), Reject> {
    let domain = seen(state);
    let verb = match command {
        DomainCommand::Delete
        | DomainCommand::Restore
        | DomainCommand::Disable
        | DomainCommand::Enable
        | DomainCommand::Expire => Verb::Manage,
        // Somebody who may know of the domain is told that it is not theirs to say.
        DomainCommand::Activate(_) => {
            one(state, caller, Verb::Read, Resource::Domain(domain))?;
            return match actor::decide(caller, Verb::Write, Resource::Platform) {
                Access::Granted => Ok(()),
                _ => Err(Reject::Forbidden(needed(Verb::Write, Resource::Platform).into())),
            };
        }
        DomainCommand::PutRrset(rrset) => {
            return records(state, caller, [(rrset.owner(), rrset.rr_type())].into_iter());
        }
        DomainCommand::DeleteRrset { owner, rrtype } => {
            return records(state, caller, [(owner, *rrtype)].into_iter());
        }
        DomainCommand::ChangeRrsets(changes) if !changes.is_empty() => {
            return records(state, caller, changes.iter().map(|change| (change.owner(), change.rrtype())));
        }
        DomainCommand::ImportZone(import) => {
            if actor::decide(caller, Verb::Read, Resource::Domain(domain)) == Access::Hidden {
                return hidden(state);
            }
            writes_anything(domain, caller)?;
            let changes = import.changes.iter().map(|change| (change.owner(), change.rrtype()));
            return records(state, caller, changes);
        }
        // What it changes is known when it is decided; until then it must be somebody who may write something here.
        DomainCommand::Rollback(_) => {
            return match actor::decide(caller, Verb::Read, Resource::Domain(domain)) {
                Access::Hidden => hidden(state),
                _ => writes_anything(domain, caller),
            };
        }
        _ => Verb::Write,
    };
    one(state, caller, verb, Resource::Contents(domain))
}

fn hidden(state: &DomainState) -> Result<(), Reject> {
    Err(Reject::NotFound(format!("domain {}", state.name)))
}

/// Whether the caller has the role for it; scopes are asked of each change.
fn writes_anything(domain: DomainRef<'_>, caller: &Caller) -> Result<(), Reject> {
    let user = Caller { scopes: None, ..caller.clone() };
    if actor::decide(&user, Verb::Write, Resource::Contents(domain)).is_granted() {
        return Ok(());
    }
    Err(Reject::Forbidden(needed(Verb::Write, Resource::Contents(domain)).into()))
}

fn one(state: &DomainState, caller: &Caller, verb: Verb, resource: Resource<'_>) -> Result<(), Reject> {
    match actor::decide(caller, verb, resource) {
        Access::Granted => Ok(()),
        Access::Forbidden => Err(Reject::Forbidden(needed(verb, resource).into())),
        Access::Hidden => hidden(state),
    }
}

/// Whether the caller may write each of these RRsets.
fn records<'a>(
    state: &DomainState,
    caller: &Caller,
    rrsets: impl Iterator<Item = (&'a OwnerName, RrType)>,
) -> Result<(), Reject> {
    let domain = seen(state);
    let mut refused = Vec::new();
    for (owner, rrtype) in rrsets {
        let resource = Resource::Rrset(domain, owner, rrtype);
        match actor::decide(caller, Verb::Write, resource) {
            Access::Granted => {}
            Access::Hidden => return hidden(state),
            Access::Forbidden if caller.scopes.is_none() => {
                return Err(Reject::Forbidden(needed(Verb::Write, resource).into()));
            }
            Access::Forbidden => refused.push(format!("{owner} {rrtype}")),
        }
    }
    if refused.is_empty() {
        return Ok(());
    }
    refused.dedup();
    let more = refused.len().saturating_sub(TOLD_MAX_RRSETS);
    refused.truncate(TOLD_MAX_RRSETS);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    Err(Reject::Forbidden(format!("this caller may not write {}{more}", refused.join(", "))))
}

/// Whether the caller may write what was decided.
///
/// # Errors
/// What is lacking.
pub(super) fn changes_permitted(
    state: &DomainState,
    events: &[NewEvent],
    caller: &Caller,
) -> Result<(), Reject> {
    if caller.scopes.is_none() {
        return Ok(());
    }
    let mut rrsets = Vec::new();
    for new in events {
        match &new.event {
            Event::RrsetReplaced(e) => rrsets.push((&e.name, e.rrtype)),
            Event::RrsetDeleted(e) => rrsets.push((&e.name, e.rrtype)),
            // It says that the others beside it are a rollback.
            Event::DomainRolledBack(_) => {}
            Event::DomainDeleted(_)
            | Event::DomainRestored(_)
            | Event::DomainDisabled(_)
            | Event::DomainEnabled(_) => {
                one(state, caller, Verb::Manage, Resource::Contents(seen(state)))?;
            }
            _ => one(state, caller, Verb::Write, Resource::Contents(seen(state)))?,
        }
    }
    records(state, caller, rrsets.into_iter())
}
