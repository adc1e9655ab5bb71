//! What a reader of history may see, folded from the log itself: nothing that
//! stands after a revocation is shown, by the order of the log, not by luck.

use super::sql;
use crate::http::auth::Authenticated;
use crate::store::raw::{RawView, Selection};
use chrono::{DateTime, Utc};
use headwater_events::actor::{self, ActorKind, Caller, DomainRef, Role, Verb, Visible};
use headwater_events::codec::DecodeError;
use headwater_events::event::Event;
use headwater_events::ids::{
    DomainId, Position, RightsNumber, StreamKind, StreamRef, TenantId, TokenId, UserId,
};
use headwater_events::time::Timestamp;
use sqlx::Row;
use sqlx::postgres::PgPool;
use sqlx::types::Json;
use std::collections::BTreeMap;

/// One event's part in the rights of others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RightsChange {
    /// A user has this role in a tenant from now on, or none.
    Tenant(UserId, TenantId, Option<Role>),
    /// A user has this role with a single domain from now on, or none.
    Domain(UserId, DomainId, Option<Role>),
    /// A token stopped working.
    Revoked(TokenId),
    /// A user may not come in any more.
    Out(UserId),
    /// A user is an administrator from now on, or no longer.
    Admin(UserId, bool),
    /// A tenant is gone.
    Gone(TenantId),
}

impl RightsChange {
    /// What an event changes, if anything.
    ///
    /// # Errors
    /// When an event that changes rights cannot be read: going on without it would show too much.
    pub fn of(e: &RawView<'_>) -> Result<Option<Self>, DecodeError> {
        let of_members =
            |kind: &str| e.event_type.strip_prefix(kind).is_some_and(|rest| rest.starts_with("member_"));
        let of_others = matches!(
            e.event_type,
            "tenant.deleted" | "token.revoked" | "user.disabled" | "user.deleted" | "user.updated"
        );
        if !of_members("tenant.") && !of_members("domain.") && !of_others {
            return Ok(None);
        }
        let (tenant, user) = (TenantId::from_uuid(e.stream.id), UserId::from_uuid(e.stream.id));
        let of_tenant = |user, role| Some(Self::Tenant(user, tenant, role));
        let of_domain = |user, role| e.domain.map(|(domain, _)| Self::Domain(user, domain, role));
        Ok(match e.decode()? {
            Event::MemberAdded(member) => of_tenant(member.user, Some(member.role)),
            Event::MemberChanged(member) => of_tenant(member.user, Some(member.after)),
            Event::MemberRemoved(member) => of_tenant(member.user, None),
            Event::DomainMemberAdded(member) => of_domain(member.user, Some(member.role)),
            Event::DomainMemberChanged(member) => of_domain(member.user, Some(member.after)),
            Event::DomainMemberRemoved(member) => of_domain(member.user, None),
            Event::TokenRevoked(revoked) => Some(Self::Revoked(revoked.token)),
            Event::UserDisabled(_) | Event::UserDeleted(_) => Some(Self::Out(user)),
            Event::UserUpdated(change) => Some(Self::Admin(user, change.after.admin)),
            Event::TenantDeleted(_) => Some(Self::Gone(tenant)),
            _ => None,
        })
    }
}

/// Why a reader is sent away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// Its token was revoked.
    Revoked,
    /// Its token's time is over.
    Expired,
    /// Its user may not come in any more.
    Out,
    /// Its session is over.
    SessionOver,
}

impl Ended {
    /// The reason in `event: bye`.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Revoked => "token_revoked",
            Self::Expired => "token_expired",
            Self::Out => "user_disabled",
            Self::SessionOver => "session_over",
        }
    }
}

/// What one reader may see, as of a position.
#[derive(Debug, Clone)]
pub struct Rights {
    caller: Caller,
    at: Position,
    revoked: bool,
    out: bool,
    expires_at: Option<Timestamp>,
    version: u64,
}

/// What rights and filters look at in an event.
#[derive(Debug, Clone, Copy)]
pub struct Seen<'a> {
    /// The stream it stands in.
    pub stream: StreamRef,
    /// The domain concerned.
    pub domain: Option<(DomainId, &'a str)>,
    /// The tenant concerned.
    pub tenant: Option<TenantId>,
    /// Its type.
    pub event_type: &'a str,
    /// What kind of actor did it.
    pub actor_kind: ActorKind,
}

impl<'a> From<&RawView<'a>> for Seen<'a> {
    fn from(e: &RawView<'a>) -> Self {
        let RawView { stream, domain, tenant, event_type, actor_kind, .. } = *e;
        Self { stream, domain, tenant, event_type, actor_kind }
    }
}

impl Rights {
    /// The rights a caller holds now, with the position as of which they hold: one snapshot.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn load(pool: &PgPool, who: &Authenticated) -> Result<Self, sqlx::Error> {
        let user = who.caller.user().map(UserId::as_uuid);
        let token = who.caller.actor.token.map(TokenId::as_uuid);
        let row = sqlx::query(sql::RIGHTS).bind(user).bind(token).fetch_one(pool).await?;
        let mut caller = who.caller.clone();
        let enabled: Option<bool> = row.try_get(6)?;
        if let Some(admin) = row.try_get::<Option<bool>, _>(1)? {
            caller.admin = admin;
            caller.tenants = row.try_get::<Json<BTreeMap<TenantId, Role>>, _>(2)?.0;
            caller.shown.rights = Some(RightsNumber::new(row.try_get(7)?));
            caller.domains = row.try_get::<Json<BTreeMap<DomainId, Role>>, _>(3)?.0;
        }
        let expires: Option<DateTime<Utc>> = row.try_get(5)?;
        Ok(Self {
            caller,
            at: Position::new(row.try_get(0)?),
            revoked: row.try_get(4)?,
            // A user that is gone has no row.
            out: user.is_some() && enabled != Some(true),
            expires_at: expires.map(Timestamp::from).or(who.expires_at),
            version: 0,
        })
    }

    /// As of which position they hold.
    pub fn at(&self) -> Position {
        self.at
    }

    /// Changes whenever another set of events becomes readable.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Takes rights that were read anew.
    pub fn replace(&mut self, fresh: Self) {
        let version = self.version + 1;
        *self = Self { version, ..fresh };
    }

    /// Follows the log up to a position by the changes that stand between.
    pub fn advance(&mut self, changes: impl Iterator<Item = RightsChange>, to: Position) {
        for change in changes {
            match change {
                RightsChange::Tenant(user, tenant, role) if self.caller.user() == Some(user) => {
                    set(&mut self.caller.tenants, tenant, role);
                    self.version += 1;
                }
                RightsChange::Domain(user, domain, role) if self.caller.user() == Some(user) => {
                    set(&mut self.caller.domains, domain, role);
                    self.version += 1;
                }
                RightsChange::Gone(tenant) if self.caller.tenants.remove(&tenant).is_some() => {
                    self.version += 1
                }
                RightsChange::Admin(user, admin) if self.caller.user() == Some(user) => {
                    self.caller.admin = admin;
                    self.version += 1;
                }
                RightsChange::Out(user) if self.caller.user() == Some(user) => self.out = true,
                RightsChange::Revoked(token) if self.caller.actor.token == Some(token) => {
                    self.revoked = true;
                }
                _ => {}
            }
        }
        self.at = self.at.max(to);
    }

    /// Whether the reader has to go.
    pub fn ended(&self, now: Timestamp) -> Option<Ended> {
        if self.revoked {
            return Some(Ended::Revoked);
        }
        if self.out {
            return Some(Ended::Out);
        }
        self.expires_at.is_some_and(|end| end <= now).then_some(Ended::Expired)
    }

    /// When the token's time is over.
    pub fn expires_at(&self) -> Option<Timestamp> {
        self.expires_at
    }

    /// The caller as it stands.
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// Whether an event may be shown: by its domain, else its tenant, else its stream. A token that is limited to some
    /// records of a domain sees no events of it: they tell of all of them.
    pub fn shows(&self, seen: &Seen<'_>) -> bool {
        let resource = match (seen.domain, seen.tenant, seen.stream.kind) {
            (Some((id, name)), Some(tenant), _) => actor::Resource::Contents(DomainRef { id, tenant, name }),
            (_, Some(tenant), _) => actor::Resource::Tenant(tenant),
            (_, None, StreamKind::User) => actor::Resource::User(UserId::from_uuid(seen.stream.id)),
            _ => actor::Resource::Platform,
        };
        actor::decide(&self.caller, Verb::Read, resource).is_granted()
    }

    /// Whether the client of an event that is shown may be shown with it: to administrators, and to
    /// a tenant's people where one of them acted.
    pub fn shows_client(&self, seen: &Seen<'_>) -> bool {
        self.caller.admin || seen.actor_kind == ActorKind::User
    }

    /// What to ask the database for.
    pub fn selection(&self) -> Selection {
        let Visible { owned, named } = self.caller.readable();
        let readable = owned.map(|owned| (owned, self.caller.user()));
        Selection { readable, named, domains: None, types: None }
    }
}

fn set<K: Ord>(roles: &mut BTreeMap<K, Role>, key: K, role: Option<Role>) {
    match role {
        Some(role) => roles.insert(key, role),
        None => roles.remove(&key),
    };
}
