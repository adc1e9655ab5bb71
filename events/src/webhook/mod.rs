//! Webhooks: events that are sent to a receiver of their owner's, a tenant or the platform itself.
//!
//! What must hold: no event holds a secret, only that there is another one; a webhook gets what its owner may read in the
//! log and nothing else, so its owner never changes.

mod decide;
mod facts;

pub use decide::{decide, settings_faults};
pub use facts::{
    DisableReason, WebhookCreated, WebhookDeleted, WebhookDisabled, WebhookReplayed, WebhookSecretRotated,
    WebhookSettings,
};

use crate::domain::LabelsPatch;
use crate::ids::{Position, TenantId};
use crate::scope::Domains;
use crate::time::Timestamp;
use std::fmt;

/// Webhooks of one owner, at most.
pub const WEBHOOKS_MAX_COUNT: i64 = 50;
/// Octets of the URL of a receiver, at most.
pub const URL_MAX_BYTES: usize = 2_048;
/// Octets of a description, at most.
pub const DESCRIPTION_MAX_BYTES: usize = 1_000;
/// Beginnings of types of one webhook, at most.
pub const TYPES_MAX_COUNT: usize = 100;
/// Domains of one webhook, at most.
pub const DOMAINS_MAX_COUNT: usize = 100;
/// Characters of the beginning of a type, at most.
pub const TYPE_MAX_CHARS: usize = 64;
/// Events of its owner that one replay goes back over, at most.
pub const REPLAY_MAX_EVENTS: i64 = 100_000;

/// What can be asked of a webhook. Its secret travels beside the command, sealed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WebhookCommand {
    /// Make it.
    Create(WebhookCreated),
    /// Change it.
    Update(WebhookPatch),
    /// Give it another secret; the one before counts beside it for a while.
    RotateSecret {
        /// The version that the new one was sealed for.
        version: u32,
        /// Until when the one before counts.
        until: Timestamp,
    },
    /// Send again what stands after a position.
    Replay {
        /// Which.
        after: Position,
    },
    /// Send it nothing any more, because of what its receiver answers.
    Disable(WebhookDisabled),
    /// Forget it.
    Delete,
}

/// What `PATCH` says of a webhook; what is none stays.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WebhookPatch {
    /// What it is called.
    pub name: Option<String>,
    /// Where it is sent to.
    pub url: Option<String>,
    /// Beginnings of types; none of them: all types.
    pub types: Option<Vec<String>>,
    /// The domains whose events are sent.
    pub domains: Option<Domains>,
    /// How its labels change.
    pub labels: Option<LabelsPatch>,
    /// `Some(None)` removes it.
    pub description: Option<Option<String>>,
    /// Whether anything is sent.
    pub enabled: Option<bool>,
}

/// The facts that a decision on a webhook reads.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WebhookView {
    /// The webhook, if there is one.
    pub webhook: Option<WebhookState>,
    /// Webhooks of its owner.
    pub count: i64,
    /// Whether the tenant that is to own it exists.
    pub owner_exists: bool,
    /// The newest position of the log.
    pub head: Position,
    /// The newest position that is not kept any more.
    pub floor: Position,
    /// Events of its owner after the position of a replay, one more than may be at most.
    pub behind: i64,
}

/// A webhook as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookState {
    /// Whose: a tenant's, or the platform's own.
    pub owner: Option<TenantId>,
    /// What `PATCH` changes.
    pub settings: WebhookSettings,
    /// Whether anything is sent.
    pub enabled: bool,
    /// Counts its secrets, from 1.
    pub secret_version: u32,
}

/// A secret that is sealed for one version of one webhook. It stands beside the log.
#[derive(Clone, PartialEq, Eq)]
pub struct SealedWebhookSecret(Vec<u8>);

impl SealedWebhookSecret {
    /// Takes sealed bytes over.
    pub fn new(sealed: Vec<u8>) -> Self {
        Self(sealed)
    }

    /// The sealed bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for SealedWebhookSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SealedWebhookSecret({} bytes)", self.0.len())
    }
}
