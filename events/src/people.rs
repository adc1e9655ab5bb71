//! What happens to users and tenants besides coming into being. Mail addresses, names and passwords stand in erasable
//! tables beside the log: here it only says that they changed.

use crate::domain::destination::Network;
use crate::event::Labels;
use serde::{Deserialize, Serialize};

/// Networks that one token may be limited to, at most.
pub const TOKEN_NETWORKS_MAX_COUNT: usize = 64;
/// Days that a token may be good for unused, at most.
pub const UNUSED_MAX_DAYS: u32 = 3_650;

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
