//! Decisions about members, of tenants and of single domains. A role that is there already is no event.

use super::decide::plain;
use super::{AdminCommand, AdminView};
use crate::actor::Role;
use crate::domain::Decided;
use crate::event::{Event, MemberAdded, MemberChanged, MemberRemoved};
use crate::ids::{Revision, UserId};
use crate::reject::Reject;

/// What becomes of a membership: the user, the role it gets (none: it ends), and whether it is of a single domain.
fn asked(view: &AdminView, command: &AdminCommand) -> Option<(UserId, Option<Role>, bool)> {
    Some(match command {
        AdminCommand::AddMember { user, role, .. } => {
            (*user, Some(role.or(view.role).unwrap_or(Role::Owner)), false)
        }
        AdminCommand::RemoveMember { user, .. } => (*user, None, false),
        AdminCommand::AddDomainMember { user, role, .. } => (*user, Some(*role), true),
        AdminCommand::RemoveDomainMember { user, .. } => (*user, None, true),
        _ => return None,
    })
}

pub(super) fn decide(view: &AdminView, command: &AdminCommand) -> Result<Decided, Reject> {
    let unchanged = Ok(Decided::Unchanged { revision: view.revision });
    let Some((user, after, of_domain)) = asked(view, command) else { return unchanged };
    if view.revision == Revision::ZERO || !view.user_exists {
        return Err(Reject::NotFound("the tenant or the user".into()));
    }
    let event = match (view.role, after) {
        (before, after) if before == after => return unchanged,
        (None, Some(role)) => {
            let added = MemberAdded { user, role };
            if of_domain { Event::DomainMemberAdded(added) } else { Event::MemberAdded(added) }
        }
        (Some(before), Some(after)) => {
            let changed = MemberChanged { user, before, after };
            if of_domain { Event::DomainMemberChanged(changed) } else { Event::MemberChanged(changed) }
        }
        (_, None) => {
            let removed = MemberRemoved { user };
            if of_domain { Event::DomainMemberRemoved(removed) } else { Event::MemberRemoved(removed) }
        }
    };
    plain(view, command, vec![event])
}
