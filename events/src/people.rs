//! What happens to users, tenants and tokens. Mail addresses, names of persons and passwords stand in erasable tables
//! beside the log: here it only says that they changed.

use crate::actor::Role;
use crate::domain::destination::Network;
use crate::event::{Event, Labels};
use crate::ids::{StreamRef, TokenId, UserId};
use crate::manager::Managing;
use crate::scope::Scope;
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};

/// Networks that one token may be limited to, at most.
pub const TOKEN_NETWORKS_MAX_COUNT: usize = 64;
/// Days that a token may be good for unused, at most.
pub const UNUSED_MAX_DAYS: u32 = 3_650;

/// A tenant came into being.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantCreated {
    /// Its name, unique.
    pub name: String,
    /// Labels.
    pub labels: Labels,
    /// The operator's own number for it.
    pub external_id: Option<String>,
}

/// A user became a member of a tenant, or of a single domain. Stands in the tenant's stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberAdded {
    /// Who.
    pub user: UserId,
    /// What it may do there.
    pub role: Role,
}

/// A member of a tenant, or of a single domain, has another role. Stands in the tenant's stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberChanged {
    /// Who.
    pub user: UserId,
    /// What it was.
    pub before: Role,
    /// What it is.
    pub after: Role,
}

/// A user is no longer a member of a tenant, or of a single domain. Stands in the tenant's stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberRemoved {
    /// Who.
    pub user: UserId,
}

/// A user came into being. Its mail address stands in an erasable table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserCreated {
    /// Administrator of the platform.
    pub admin: bool,
}

/// A token was made for the user of this stream. Its secret stands elsewhere, hashed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenCreated {
    /// Which one.
    pub token: TokenId,
    /// What its owner calls it.
    pub name: String,
    /// When it stops working by itself.
    pub expires_at: Option<Timestamp>,
    /// What it is limited to; none: to nothing but what its user may.
    pub scopes: Option<Vec<Scope>>,
    /// When and from where it works.
    #[serde(flatten)]
    pub limits: TokenLimits,
    /// Whose tool it belongs to.
    #[serde(flatten)]
    pub managing: Managing,
}

/// A token stopped working for good.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenRevoked {
    /// Which one.
    pub token: TokenId,
}

/// What is said of a user in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserSettings {
    /// Administrator of the platform.
    pub admin: bool,
}

/// What is known of the person behind a user changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProfileChanged {
    /// Which of it: `email`, `name`. The values stand in an erasable table.
    pub fields: Vec<String>,
}

/// What is said of a tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantSettings {
    /// Its name, unique.
    pub name: String,
    /// Labels.
    pub labels: Labels,
    /// The operator's own number for it.
    pub external_id: Option<String>,
}

/// When and from where a token works.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenLimits {
    /// It stops working after so many days without use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_unused_days: Option<u32>,
    /// It works from these networks alone; none: from everywhere.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub networks: Vec<Network>,
}

impl Event {
    /// The user who may do more or less after this than before, if there is one. What is decided with rights that were
    /// read before such an event is not appended after it. Of a tenant that ends nothing is owned any more.
    pub fn changes_rights_of(&self, stream: StreamRef) -> Option<UserId> {
        match self {
            Self::MemberAdded(member) | Self::DomainMemberAdded(member) => Some(member.user),
            Self::MemberChanged(member) | Self::DomainMemberChanged(member) => Some(member.user),
            Self::MemberRemoved(member) | Self::DomainMemberRemoved(member) => Some(member.user),
            Self::TokenRevoked(_)
            | Self::UserUpdated(_)
            | Self::PasswordChanged(_)
            | Self::UserEnabled(_)
            | Self::UserDisabled(_)
            | Self::UserDeleted(_) => Some(UserId::from_uuid(stream.id)),
            _ => None,
        }
    }
}
