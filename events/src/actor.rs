//! Who acts, and the one policy. `decide` is the only place that turns
//! (caller, verb, resource) into yes or no; the API, the event stream and the
//! command line all ask it.
//!
//! What must hold: a token never does what its user may not, and a limited token nothing beyond its scopes; whoever may
//! not know of a resource is told that it does not exist.

use crate::credential::Credential;
use crate::dns::{OwnerName, RrType};
use crate::ids::{DomainId, TenantId, TokenId, UserId};
use crate::manager::{Manager, View};
use crate::scope::{Domains, Grant, Scope};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
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

/// What a member may do, in a tenant or with a single domain; each may what those before it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Reads.
    Viewer,
    /// Also writes what is served: records, hostnames, cache, certificates, purges.
    Editor,
    /// Also decides about members, about new domains, and about deletion.
    Owner,
}

impl Role {
    /// Every role, from the least.
    pub const ALL: [Self; 3] = [Self::Viewer, Self::Editor, Self::Owner];

    /// The name in bodies and events.
    pub fn name(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Editor => "editor",
            Self::Owner => "owner",
        }
    }

    /// The role of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.name() == name)
    }
}

/// Somebody who has proven who they are, with the rights they hold now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// Who it is.
    pub actor: Actor,
    /// Administrator of the platform.
    pub admin: bool,
    /// The tenants it is a member of.
    pub tenants: BTreeMap<TenantId, Role>,
    /// The single domains it is a member of.
    pub domains: BTreeMap<DomainId, Role>,
    /// What its token is limited to; none: to nothing but what its user may.
    pub scopes: Option<Vec<Scope>>,
    /// What it has shown.
    pub shown: Credential,
}

impl Caller {
    /// Somebody who is a member of nothing, with a token that is not limited.
    pub fn new(actor: Actor, admin: bool) -> Self {
        let (tenants, domains) = (BTreeMap::new(), BTreeMap::new());
        Self { actor, admin, tenants, domains, scopes: None, shown: Credential::default() }
    }

    /// The control plane itself, which may do everything.
    pub fn system() -> Self {
        Self::new(Actor::SYSTEM, true)
    }

    /// The user behind this caller; none for the control plane and for edges.
    pub fn user(&self) -> Option<UserId> {
        matches!(self.actor.kind, ActorKind::User | ActorKind::Operator)
            .then(|| UserId::from_uuid(self.actor.id))
    }

    /// Its role with a domain: the higher one of those in the tenant and with the domain alone.
    fn role(&self, domain: DomainRef<'_>) -> Option<Role> {
        let tenant = self.tenants.get(&domain.tenant).copied();
        tenant.max(self.domains.get(&domain.id).copied())
    }

    /// The domains that it may know of, for lists.
    pub fn visible(&self) -> Visible {
        self.listed(|_| true)
    }

    /// The domains of which it may read everything, their history too, for lists.
    pub fn readable(&self) -> Visible {
        let readable = self.listed(Scope::is_whole);
        // Whoever is shown a part of each domain is shown no history of any.
        if self.sees_own_alone() { Visible { named: Some(Vec::new()), ..readable } } else { readable }
    }

    /// The manager that owns what it writes.
    pub fn manager(&self) -> Option<&Manager> {
        self.shown.managing.manager.as_ref()
    }

    /// Whether of the RRsets that it may read it is shown those alone that its manager owns.
    pub fn sees_own_alone(&self) -> bool {
        self.shown.managing.view == View::Own
    }

    fn listed(&self, counts: impl Fn(&Scope) -> bool) -> Visible {
        let owned = || Owned {
            tenants: self.tenants.keys().copied().collect(),
            domains: self.domains.keys().copied().collect(),
        };
        let mut named = self.scopes.as_ref().map(|_| BTreeSet::new());
        for scope in self.scopes.iter().flatten().filter(|scope| counts(scope) && scope.gives(Grant::Read)) {
            match (&scope.domains, &mut named) {
                (Domains::Named(names), Some(all)) => {
                    all.extend(names.iter().map(|name| name.as_str().to_owned()));
                }
                (Domains::All, _) | (_, None) => named = None,
            }
        }
        let named = named.map(|names| names.into_iter().collect());
        Visible { owned: (!self.admin).then(owned), named }
    }
}

/// What members are members of.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Owned {
    /// Tenants, with everything they own.
    pub tenants: Vec<TenantId>,
    /// Single domains.
    pub domains: Vec<DomainId>,
}

/// Which domains a list may hold: those that both parts let through, where none lets everything through.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Visible {
    /// Those of these.
    pub owned: Option<Owned>,
    /// Those of these names.
    pub named: Option<Vec<String>>,
}

/// What a caller wants to do with a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verb {
    /// See it.
    Read,
    /// Change what is served.
    Write,
    /// Decide about it as its owner: members, making and deleting.
    Manage,
}

/// A domain, as the policy sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DomainRef<'a> {
    /// Which one.
    pub id: DomainId,
    /// Its owner.
    pub tenant: TenantId,
    /// Its name.
    pub name: &'a str,
}

/// What a decision is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Resource<'a> {
    /// That there is a domain, and how it stands.
    Domain(DomainRef<'a>),
    /// A domain with everything in it: settings, proxied names, cache, certificates, history.
    Contents(DomainRef<'a>),
    /// One RRset of a domain.
    Rrset(DomainRef<'a>, &'a OwnerName, RrType),
    /// A domain that is to be made.
    NewDomain(DomainRef<'a>),
    /// A tenant: its members manage it, administrators alone write it.
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

/// The one policy: what the user may, cut down to what its token is limited to.
pub fn decide(caller: &Caller, verb: Verb, resource: Resource<'_>) -> Access {
    let access = match (of_user(caller, verb, resource), &caller.scopes) {
        (Access::Granted, Some(scopes)) => of_token(scopes, verb, resource),
        (access, _) => access,
    };
    match (access, verb, resource) {
        (Access::Granted, Verb::Read, Resource::Contents(_)) if caller.sees_own_alone() => Access::Forbidden,
        _ => access,
    }
}

/// Administrators may do everything; members what their role lets them; a user itself; the platform is for
/// administrators.
fn of_user(caller: &Caller, verb: Verb, resource: Resource<'_>) -> Access {
    if caller.admin {
        return Access::Granted;
    }
    match resource {
        Resource::Domain(domain) | Resource::Contents(domain) | Resource::Rrset(domain, ..) => {
            of_role(caller.role(domain), verb)
        }
        Resource::NewDomain(domain) => of_role(caller.tenants.get(&domain.tenant).copied(), Verb::Manage),
        Resource::Tenant(tenant) => match (caller.tenants.get(&tenant), verb) {
            (None, _) => Access::Hidden,
            (Some(_), Verb::Read) | (Some(Role::Owner), Verb::Manage) => Access::Granted,
            (Some(_), Verb::Write | Verb::Manage) => Access::Forbidden,
        },
        Resource::User(user) if caller.user() == Some(user) => Access::Granted,
        Resource::User(_) => Access::Hidden,
        Resource::Platform => Access::Forbidden,
    }
}

fn of_role(role: Option<Role>, verb: Verb) -> Access {
    let needed = match verb {
        Verb::Read => Role::Viewer,
        Verb::Write => Role::Editor,
        Verb::Manage => Role::Owner,
    };
    match role {
        None => Access::Hidden,
        Some(role) if role >= needed => Access::Granted,
        Some(_) => Access::Forbidden,
    }
}

/// What a scope must give for this.
fn grant(verb: Verb, resource: Resource<'_>) -> Grant {
    match (verb, resource) {
        (Verb::Read, _) => Grant::Read,
        (
            Verb::Write,
            Resource::Domain(_) | Resource::Contents(_) | Resource::Rrset(..) | Resource::NewDomain(_),
        ) => Grant::Write,
        (Verb::Write, Resource::Tenant(_) | Resource::User(_) | Resource::Platform) | (Verb::Manage, _) => {
            Grant::Admin
        }
    }
}

/// A single scope has to let it through: two never add up to more than each.
fn of_token(scopes: &[Scope], verb: Verb, resource: Resource<'_>) -> Access {
    let grant = grant(verb, resource);
    let any = |fits: &dyn Fn(&Scope) -> bool| {
        let lets = scopes.iter().any(|scope| scope.gives(grant) && fits(scope));
        if lets { Access::Granted } else { Access::Forbidden }
    };
    let domain = match resource {
        Resource::Domain(domain) | Resource::Contents(domain) | Resource::Rrset(domain, ..) => domain,
        Resource::NewDomain(domain) => return any(&|scope| scope.is_whole() && scope.covers(domain.name)),
        Resource::Tenant(_) | Resource::User(_) | Resource::Platform => {
            return any(&|scope| scope.is_whole() && scope.domains == Domains::All);
        }
    };
    if !scopes.iter().any(|scope| scope.covers(domain.name)) {
        return Access::Hidden;
    }
    any(&|scope| {
        scope.covers(domain.name)
            && match resource {
                Resource::Rrset(_, owner, rrtype) => scope.covers_rrset(owner, rrtype),
                Resource::Domain(_) if verb == Verb::Read => true,
                _ => scope.is_whole(),
            }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scope::NamePattern;

    fn tenant(n: u128) -> TenantId {
        TenantId::from_uuid(Uuid::from_u128(n))
    }

    fn user(n: u128, tenants: &[(u128, Role)]) -> Caller {
        let actor = Actor { kind: ActorKind::User, id: Uuid::from_u128(n), token: None, on_behalf_of: None };
        let tenants = tenants.iter().map(|(n, role)| (tenant(*n), *role)).collect();
        Caller { tenants, ..Caller::new(actor, false) }
    }

    fn domain(owner: u128) -> DomainRef<'static> {
        DomainRef { id: DomainId::from_uuid(Uuid::from_u128(9)), tenant: tenant(owner), name: "example.com" }
    }

    const VERBS: [Verb; 3] = [Verb::Read, Verb::Write, Verb::Manage];

    /// The access to read, to write, to manage: `+` granted, `-` forbidden, `.` hidden.
    fn shown(caller: &Caller, resource: Resource<'_>) -> String {
        let sign = |verb| match decide(caller, verb, resource) {
            Access::Granted => '+',
            Access::Forbidden => '-',
            Access::Hidden => '.',
        };
        VERBS.into_iter().map(sign).collect()
    }

    #[test]
    fn a_table_of_decisions() {
        let me = Resource::User(UserId::from_uuid(Uuid::from_u128(1)));
        let other = Resource::User(UserId::from_uuid(Uuid::from_u128(2)));
        let rows = [
            (Role::Viewer, "+--", "+--", "---"),
            (Role::Editor, "++-", "+--", "---"),
            (Role::Owner, "+++", "+-+", "+++"),
        ];
        for (role, contents, tenants, new) in rows {
            let alice = user(1, &[(10, role)]);
            for resource in [
                Resource::Domain(domain(10)),
                Resource::Contents(domain(10)),
                Resource::Rrset(domain(10), &OwnerName::apex(), RrType::A),
            ] {
                assert_eq!(shown(&alice, resource), contents, "{role:?} {resource:?}");
            }
            assert_eq!(shown(&alice, Resource::Tenant(tenant(10))), tenants, "{role:?}");
            assert_eq!(shown(&alice, Resource::NewDomain(domain(10))), new, "{role:?}");
            let foreign = [
                (Resource::Contents(domain(11)), "..."),
                (Resource::NewDomain(domain(11)), "..."),
                (Resource::Tenant(tenant(11)), "..."),
                (me, "+++"),
                (other, "..."),
                (Resource::Platform, "---"),
            ];
            for (resource, access) in foreign {
                assert_eq!(shown(&alice, resource), access, "{role:?} {resource:?}");
                assert_eq!(shown(&Caller::system(), resource), "+++");
            }
            // A member of the one domain is none of its tenant.
            let guest = Caller { domains: [(domain(10).id, role)].into(), ..user(2, &[]) };
            assert_eq!(shown(&guest, Resource::Contents(domain(10))), contents, "{role:?}");
            assert_eq!(shown(&guest, Resource::Tenant(tenant(10))), "...");
            assert_eq!(shown(&guest, Resource::NewDomain(domain(10))), "...");
        }
        // The higher of two roles counts.
        let both =
            Caller { domains: [(domain(10).id, Role::Editor)].into(), ..user(1, &[(10, Role::Viewer)]) };
        assert_eq!(shown(&both, Resource::Contents(domain(10))), "++-");
    }

    fn scope(verbs: &[Grant], domains: Domains, names: &[&str]) -> Scope {
        let names: BTreeSet<NamePattern> =
            names.iter().map(|name| NamePattern::parse(name).unwrap()).collect();
        let limited = !names.is_empty();
        Scope {
            verbs: verbs.iter().copied().collect(),
            domains,
            names: limited.then_some(names),
            types: limited.then(|| [RrType::TXT].into()),
        }
    }

    fn named() -> Domains {
        Domains::Named([crate::dns::DomainName::parse("example.com").unwrap()].into())
    }

    #[test]
    fn a_limited_token_does_nothing_beyond_its_scopes() {
        use Grant::{Admin, Read, Write};
        let acme = scope(&[Read, Write], named(), &["_acme-challenge"]);
        let challenge = OwnerName::from_canonical("_acme-challenge").unwrap();
        let www = OwnerName::from_canonical("www").unwrap();
        let other = DomainRef { name: "example.net", ..domain(10) };
        let me = Resource::User(UserId::from_uuid(Uuid::from_u128(1)));
        let holds = |scopes: Vec<Scope>| Caller { scopes: Some(scopes), ..user(1, &[(10, Role::Owner)]) };
        let limited = holds(vec![acme.clone()]);
        for (resource, access) in [
            (Resource::Rrset(domain(10), &challenge, RrType::TXT), "++-"),
            (Resource::Rrset(domain(10), &challenge, RrType::A), "---"),
            (Resource::Rrset(domain(10), &www, RrType::TXT), "---"),
            (Resource::Domain(domain(10)), "+--"),
            (Resource::Contents(domain(10)), "---"),
            (Resource::Contents(other), "..."),
            (Resource::Rrset(other, &challenge, RrType::TXT), "..."),
            (Resource::NewDomain(domain(10)), "---"),
            (Resource::Tenant(tenant(10)), "---"),
            (me, "---"),
        ] {
            assert_eq!(shown(&limited, resource), access, "{resource:?}");
        }
        // Two scopes do not add up: what each gives stays where it gives it.
        let two = holds(vec![acme.clone(), scope(&[Read], Domains::All, &[])]);
        assert_eq!(shown(&two, Resource::Contents(domain(10))), "+--");
        assert_eq!(shown(&two, Resource::Rrset(domain(10), &www, RrType::A)), "+--");
        // Never more than the user: an administrator's verb does not make one.
        let all = holds(vec![scope(&[Read, Write, Admin], Domains::All, &[])]);
        assert_eq!(shown(&all, Resource::Platform), "---");
        assert_eq!(shown(&all, Resource::Contents(domain(11))), "...");
        assert_eq!(shown(&all, Resource::Contents(domain(10))), "+++");
        // Nor does a limited token of an administrator administrate.
        let admin = Caller { admin: true, ..limited.clone() };
        assert_eq!(shown(&admin, Resource::Platform), "---");
        assert_eq!(shown(&admin, Resource::Contents(other)), "...");
        // What lists may hold.
        assert_eq!(limited.visible().named, Some(vec!["example.com".to_owned()]));
        assert_eq!(limited.readable().named, Some(Vec::new()));
        assert_eq!((two.visible().named, two.readable().named), (None, None));
        assert_eq!(admin.visible().owned, None);
    }
}
