//! The decision itself.

use super::{
    AdminCommand, AdminView, NAME_MAX_BYTES, TOKEN_NAME_MAX_BYTES, cluster, member, operation, people,
    platform,
};
use crate::actor::{self, Access, Caller, Resource, Verb};
use crate::credential::Asked;
use crate::domain::{Decided, Decision};
use crate::edge::{self, EdgeCommand, PoolCreated};
use crate::envelope::NewEvent;
use crate::event::{
    DelegationLost, DelegationRestored, Event, PlatformInitialized, TenantCreated, TokenCreated,
    TokenRevoked, UserCreated,
};
use crate::ids::{OperationId, Revision};
use crate::reject::{Fault, Reject};
use crate::scope;
use crate::webhook;

/// Whether the caller may ask for this at all.
///
/// # Errors
/// Why not.
pub fn permitted(caller: &Caller, command: &AdminCommand) -> Result<(), Reject> {
    // Possession suffices for the one; the other asks the policy for each domain.
    if matches!(command, AdminCommand::RevokeToken { possessed: true, .. } | AdminCommand::RequestUndo { .. })
    {
        return Ok(());
    }
    // Whose it is only the decision can tell: whoever asked for an undo may call it off.
    if matches!(command, AdminCommand::CancelOperation { .. }) && operation::may_own(caller) {
        return Ok(());
    }
    let (verb, resource) = command.asks();
    match actor::decide(caller, verb, resource) {
        Access::Granted => Ok(()),
        Access::Forbidden => Err(Reject::Forbidden(needed(verb, resource).into())),
        Access::Hidden => Err(Reject::NotFound(match resource {
            Resource::Tenant(tenant) => format!("tenant {tenant}"),
            Resource::Contents(domain) => format!("domain {}", domain.name),
            _ => "the user".into(),
        })),
    }
}

/// What a caller lacks that is refused something it may know of.
pub fn needed(verb: Verb, resource: Resource<'_>) -> &'static str {
    match (verb, resource) {
        (_, Resource::Platform) | (Verb::Write, Resource::Tenant(_)) => "this needs an administrator",
        (_, Resource::User(_)) => "this needs a token that is not limited",
        (Verb::Manage, _) => "this needs an owner, with a token that is not limited to less",
        (Verb::Write, _) => "this needs an editor, with a token that is not limited to less",
        (Verb::Read, _) => "this needs a token that is not limited to less",
    }
}

pub(super) fn one(pointer: &str, code: &'static str, detail: impl Into<String>) -> Reject {
    Reject::Invalid(vec![Fault::at(pointer, code, detail)])
}

/// Whether nobody sees this character, or it makes others stand elsewhere than where they are: with such, two names that
/// differ look alike. What joins letters is seen by what it does to them, and is no such character.
pub fn is_unseen(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}'
                | '\u{61c}'
                | '\u{180e}'
                | '\u{200b}'
                | '\u{200e}'
                | '\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
        )
}

/// Every fault of the name of something.
pub fn name_faults(name: &str, most: usize) -> Vec<Fault> {
    let is_blank = |c: char| c.is_whitespace() || matches!(c, '\u{200c}' | '\u{200d}');
    if name.chars().all(is_blank) || name.len() > most || name.chars().any(is_unseen) {
        let detail = format!("1 to {most} octets, without control characters and others that nobody sees");
        return vec![Fault::at("/name", "invalid_name", detail)];
    }
    Vec::new()
}

/// Decides one command.
///
/// # Errors
/// Why not, with every fault of the input.
pub fn decide(
    view: &AdminView,
    command: &AdminCommand,
    caller: &Caller,
    own: OperationId,
) -> Result<Decided, Reject> {
    permitted(caller, command)?;
    let unchanged = Ok(Decided::Unchanged { revision: view.revision });
    match command {
        AdminCommand::InitializePlatform { tenant } => {
            if view.revision > Revision::ZERO {
                return unchanged;
            }
            let initialized = Event::PlatformInitialized(PlatformInitialized { tenant: *tenant });
            plain(view, command, vec![initialized])
        }
        AdminCommand::SetDnsIdentity(after) => platform::identity(view, command, after),
        AdminCommand::SetEndpoints { endpoints, why } => platform::endpoints(view, command, endpoints, why),
        AdminCommand::CreateTenant { .. }
        | AdminCommand::AddMember { .. }
        | AdminCommand::RemoveMember { .. }
        | AdminCommand::AddDomainMember { .. }
        | AdminCommand::RemoveDomainMember { .. }
        | AdminCommand::CreateUser { .. }
        | AdminCommand::CreateToken { .. }
        | AdminCommand::RevokeToken { .. } => account(view, command, caller),
        AdminCommand::UpdateUser { .. }
        | AdminCommand::SetUserEnabled { .. }
        | AdminCommand::DeleteUser { .. }
        | AdminCommand::SetPassword { .. }
        | AdminCommand::UpdateTenant { .. }
        | AdminCommand::DeleteTenant { .. } => people::decide(view, command),
        AdminCommand::CreateCluster { .. }
        | AdminCommand::UpdateCluster { .. }
        | AdminCommand::SetClusterEnabled { .. }
        | AdminCommand::RequestRemoval { .. }
        | AdminCommand::DeleteCluster { .. }
        | AdminCommand::RecordDeployments { .. } => cluster::decide(view, command, own),
        AdminCommand::Pause { scope, reason } | AdminCommand::Resume { scope, reason } => {
            platform::pause(view, command, scope, reason)
        }
        AdminCommand::RecordDelegation { lost, detail, .. } => delegation(view, command, *lost, detail),
        AdminCommand::RequestOperation { operation, requested } => {
            operation::request(view, command, *operation, requested)
        }
        AdminCommand::RecordExport { exported, .. } => {
            plain(view, command, vec![Event::AuditExported(exported.clone())])
        }
        AdminCommand::RequestUndo { operation, requested } => {
            operation::request_undo(view, command, *operation, requested)
        }
        AdminCommand::RequestImport { .. }
        | AdminCommand::RequestCutover { .. }
        | AdminCommand::RequestCompare { .. } => operation::request_import(view, command),
        AdminCommand::CancelOperation { operation } => operation::cancel(view, command, *operation, caller),
        AdminCommand::FinishOperation { domain, tenant, finished } => {
            operation::finish(view, command, domain, *tenant, finished)
        }
        AdminCommand::Edge { edge, command: wanted } => {
            if let EdgeCommand::Create(created, _) = wanted {
                free(view, "edge", &created.name)?;
            }
            match edge::decide(*edge, &view.edge, wanted)? {
                events if events.is_empty() => unchanged,
                events => plain(view, command, events),
            }
        }
        AdminCommand::Webhook { webhook, owner, command: wanted } => {
            match webhook::decide(*webhook, *owner, &view.webhook, wanted)? {
                events if events.is_empty() => unchanged,
                events => plain(view, command, events),
            }
        }
        AdminCommand::CreateSharedPool if view.revision > Revision::ZERO => unchanged,
        AdminCommand::CreateSharedPool => {
            plain(view, command, vec![Event::PoolCreated(PoolCreated::shared())])
        }
    }
}

/// Tenants, users and their tokens.
fn account(view: &AdminView, command: &AdminCommand, caller: &Caller) -> Result<Decided, Reject> {
    let unchanged = Ok(Decided::Unchanged { revision: view.revision });
    match command {
        AdminCommand::CreateTenant { name, labels, external_id, .. } => {
            let mut faults = crate::domain::tag_faults(labels, external_id.as_deref());
            faults.extend(name_faults(name, NAME_MAX_BYTES));
            refuse(faults)?;
            free(view, "tenant", name)?;
            let created = TenantCreated {
                name: name.clone(),
                labels: labels.clone(),
                external_id: external_id.clone(),
            };
            plain(view, command, vec![Event::TenantCreated(created)])
        }
        AdminCommand::AddMember { .. }
        | AdminCommand::RemoveMember { .. }
        | AdminCommand::AddDomainMember { .. }
        | AdminCommand::RemoveDomainMember { .. } => member::decide(view, command),
        AdminCommand::CreateUser { admin, .. } => {
            free(view, "user", "with this mail address")?;
            plain(view, command, vec![Event::UserCreated(UserCreated { admin: *admin })])
        }
        AdminCommand::CreateToken { token, name, expires_at, scopes, limits, managing, .. } => {
            if view.revision == Revision::ZERO || !view.user_exists {
                return Err(Reject::NotFound("the user".into()));
            }
            let mut faults = name_faults(name, TOKEN_NAME_MAX_BYTES);
            faults.extend(scope::exceeding(caller.scopes.as_deref(), scopes.as_deref()));
            let asked = Asked { expires_at: *expires_at, limits, managing };
            faults.extend(caller.shown.exceeded_by(&asked));
            faults.extend(people::limit_faults(limits, managing));
            refuse(faults)?;
            let created = TokenCreated {
                token: *token,
                name: name.clone(),
                expires_at: *expires_at,
                scopes: scopes.clone(),
                limits: limits.clone(),
                managing: managing.clone(),
            };
            plain(view, command, vec![Event::TokenCreated(created)])
        }
        AdminCommand::RevokeToken { token, .. } => {
            if !view.token_active {
                return Err(Reject::NotFound(format!("token {token}")));
            }
            plain(view, command, vec![Event::TokenRevoked(TokenRevoked { token: *token })])
        }
        _ => unchanged,
    }
}

/// Notes that a domain is delegated here no longer, or again; what is known already is no event.
fn delegation(view: &AdminView, command: &AdminCommand, lost: bool, detail: &str) -> Result<Decided, Reject> {
    let detail = detail.to_owned();
    let event = match (view.delegation_lost, lost) {
        (Some(false), true) => Event::DelegationLost(DelegationLost { detail }),
        (Some(true), false) => Event::DelegationRestored(DelegationRestored { detail }),
        _ => return Ok(Decided::Unchanged { revision: view.revision }),
    };
    plain(view, command, vec![event])
}

pub(super) fn refuse(faults: Vec<Fault>) -> Result<(), Reject> {
    if faults.is_empty() { Ok(()) } else { Err(Reject::Invalid(faults)) }
}

pub(super) fn free(view: &AdminView, what: &str, name: &str) -> Result<(), Reject> {
    if view.name_taken {
        let article = if what.starts_with(['a', 'e', 'i', 'o']) { "an" } else { "a" };
        return Err(Reject::NameTaken(format!("there is {article} {what} {name} already")));
    }
    Ok(())
}

#[allow(clippy::unnecessary_wraps)] // so that every arm of `decide` reads alike
pub(super) fn plain(view: &AdminView, command: &AdminCommand, events: Vec<Event>) -> Result<Decided, Reject> {
    let tenant = match command {
        AdminCommand::CreateTenant { id, .. } => Some(*id),
        AdminCommand::AddMember { tenant, .. } | AdminCommand::RemoveMember { tenant, .. } => Some(*tenant),
        AdminCommand::AddDomainMember { domain, .. }
        | AdminCommand::RemoveDomainMember { domain, .. }
        | AdminCommand::RecordDelegation { domain, .. } => Some(domain.tenant),
        AdminCommand::UpdateTenant { tenant, .. } | AdminCommand::DeleteTenant { tenant } => Some(*tenant),
        AdminCommand::Webhook { owner, .. } => *owner,
        _ => None,
    };
    let domain = match command {
        AdminCommand::AddDomainMember { domain, .. }
        | AdminCommand::RemoveDomainMember { domain, .. }
        | AdminCommand::RecordDelegation { domain, .. } => Some((domain.id, domain.name.clone())),
        _ => None,
    };
    let stream = command.stream();
    let wrap = |event| NewEvent { stream, domain: domain.clone(), tenant, operation: None, event };
    Ok(Decided::Changed(Decision {
        events: events.into_iter().map(wrap).collect(),
        revision: view.revision.next(),
        operation: None,
        guards: Vec::new(),
        warnings: Vec::new(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_differ_do_not_look_alike() {
        let faults = |name: &str| name_faults(name, NAME_MAX_BYTES).len();
        for good in ["acme", "Müller & Söhne", "日本", "شركة", "👩\u{200d}🚀", "می\u{200c}خواهم", "<b>"]
        {
            assert_eq!(faults(good), 0, "{good}");
        }
        for bad in [
            "",
            " ",
            "a\n",
            "\u{200d}",
            "acme\u{200b}",
            "acme\u{2060}",
            "\u{feff}acme",
            "ac\u{ad}me",
            "\u{202e}emca",
            "a\u{2066}b",
            "a\u{200f}",
            "a\u{2028}b",
        ] {
            assert_eq!(faults(bad), 1, "{bad:?}");
        }
        assert_eq!(faults(&"ä".repeat(NAME_MAX_BYTES / 2 + 1)), 1);
    }
}
