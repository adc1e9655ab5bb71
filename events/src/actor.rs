//! Who acts, and the one policy. `decide` is the only place that turns
//! (caller, verb, resource) into yes or no; the API, the event stream and the
//! command line all ask it.

use crate::ids::{DomainId, TenantId, TokenId, UserId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use uuid::Uuid;

/// What kind of actor did something. The numbers are stored: never renumber.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActorKind {
    /// A tenant's user.
    User,
    /// An administrator.
    Operator,
    /// The control plane itself.
    System,
    /// An edge host.
    Edge,
}

impl ActorKind {
    /// The stored number.
    pub fn code(self) -> i16 {
        match self {
            Self::User => 1,
            Self::Operator => 2,
            Self::System => 3,
            Self::Edge => 4,
        }
    }

    /// The kind with this stored number.
    pub fn from_code(code: i16) -> Option<Self> {
        [Self::User, Self::Operator, Self::System, Self::Edge].into_iter().find(|kind| kind.code() == code)
    }
}

/// Who did something, as the log keeps it: ids only, so that a person can be
/// forgotten while the history still verifies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Actor {
    /// What kind of actor.
    pub kind: ActorKind,
    /// Which one; the nil UUID for the control plane itself.
    pub id: Uuid,
    /// The token it used, if any.
    pub token: Option<TokenId>,
    /// The user it acted for, if another.
    pub on_behalf_of: Option<UserId>,
}

impl Actor {
    /// The control plane itself.
    pub const SYSTEM: Self =
        Self { kind: ActorKind::System, id: Uuid::nil(), token: None, on_behalf_of: None };
}

/// Somebody who has proven who they are, with the rights they hold now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// Who it is.
    pub actor: Actor,
    /// Administrator of the platform.
    pub admin: bool,
    /// The tenants it is a member of.
    pub tenants: BTreeSet<TenantId>,
}

impl Caller {
    /// The control plane itself, which may do everything.
    pub fn system() -> Self {
        Self { actor: Actor::SYSTEM, admin: true, tenants: BTreeSet::new() }
    }

    /// The user behind this caller; none for the control plane and for edges.
    pub fn user(&self) -> Option<UserId> {
        matches!(self.actor.kind, ActorKind::User | ActorKind::Operator)
            .then(|| UserId::from_uuid(self.actor.id))
    }
}

/// What a caller wants to do with a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verb {
    /// See it.
    Read,
    /// Change it.
    Write,
}

/// What a decision is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Resource {
    /// A domain and everything below it, by its owner.
    Domain(DomainId, TenantId),
    /// A tenant.
    Tenant(TenantId),
    /// A user and its tokens.
    User(UserId),
    /// DNS clusters, projections, settings, all users and all tenants.
    Platform,
}

/// What the policy says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Access {
    /// Yes.
    Granted,
    /// No, and the caller may know that the resource exists.
    Forbidden,
    /// No, and the caller may not even know that it exists.
    Hidden,
}

impl Access {
    /// Whether it is a yes.
    pub fn is_granted(self) -> bool {
        self == Self::Granted
    }
}

/// The one policy: administrators may do everything; a user sees and changes
/// what its tenants own, and itself; the platform is for administrators.
pub fn decide(caller: &Caller, verb: Verb, resource: Resource) -> Access {
    if caller.admin {
        return Access::Granted;
    }
    match (resource, verb) {
        (Resource::Domain(_, owner), _) if caller.tenants.contains(&owner) => Access::Granted,
        (Resource::Domain(..), _) => Access::Hidden,
        (Resource::Tenant(tenant), Verb::Read) if caller.tenants.contains(&tenant) => Access::Granted,
        (Resource::Tenant(tenant), Verb::Write) if caller.tenants.contains(&tenant) => Access::Forbidden,
        (Resource::Tenant(_), _) => Access::Hidden,
        (Resource::User(user), _) if caller.user() == Some(user) => Access::Granted,
        (Resource::User(_), _) => Access::Hidden,
        (Resource::Platform, _) => Access::Forbidden,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(n: u128, tenants: &[u128]) -> Caller {
        Caller {
            actor: Actor { kind: ActorKind::User, id: Uuid::from_u128(n), token: None, on_behalf_of: None },
            admin: false,
            tenants: tenants.iter().map(|t| TenantId::from_uuid(Uuid::from_u128(*t))).collect(),
        }
    }

    #[test]
    fn a_table_of_decisions() {
        let tenant = |n| TenantId::from_uuid(Uuid::from_u128(n));
        let domain = |owner| Resource::Domain(DomainId::from_uuid(Uuid::from_u128(9)), tenant(owner));
        let alice = user(1, &[10]);
        let rows = [
            (domain(10), Verb::Read, Access::Granted),
            (domain(10), Verb::Write, Access::Granted),
            (domain(11), Verb::Read, Access::Hidden),
            (domain(11), Verb::Write, Access::Hidden),
            (Resource::Tenant(tenant(10)), Verb::Read, Access::Granted),
            (Resource::Tenant(tenant(10)), Verb::Write, Access::Forbidden),
            (Resource::Tenant(tenant(11)), Verb::Read, Access::Hidden),
            (Resource::User(UserId::from_uuid(Uuid::from_u128(1))), Verb::Write, Access::Granted),
            (Resource::User(UserId::from_uuid(Uuid::from_u128(2))), Verb::Read, Access::Hidden),
            (Resource::Platform, Verb::Read, Access::Forbidden),
        ];
        for (resource, verb, access) in rows {
            assert_eq!(decide(&alice, verb, resource), access, "{resource:?} {verb:?}");
            assert!(decide(&Caller::system(), verb, resource).is_granted());
        }
    }
}
