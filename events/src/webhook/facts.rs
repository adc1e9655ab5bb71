//! What happens to webhooks.

use crate::event::Labels;
use crate::ids::Position;
use crate::scope::Domains;
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};

/// What is said of a webhook.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookSettings {
    /// What it is called.
    pub name: String,
    /// Where it is sent to.
    pub url: String,
    /// Beginnings of the types that are sent; none: all of them.
    pub types: Vec<String>,
    /// The domains whose events are sent; all of them, and what concerns no domain, where it is `*`.
    pub domains: Domains,
    /// Labels.
    pub labels: Labels,
    /// What it is for.
    pub description: Option<String>,
}

/// A webhook came into being. Its secret stands elsewhere, sealed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookCreated {
    /// What is said of it.
    #[serde(flatten)]
    pub settings: WebhookSettings,
    /// Whether anything is sent.
    pub enabled: bool,
}

/// Why nothing is sent any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DisableReason {
    /// Somebody asked for it.
    Asked,
    /// The receiver answered 410: it is gone for good.
    Gone,
    /// Several events in a row could not be delivered, however often they were tried.
    Failing,
}

impl DisableReason {
    /// The name in events and bodies.
    pub fn name(self) -> &'static str {
        match self {
            Self::Asked => "asked",
            Self::Gone => "gone",
            Self::Failing => "failing",
        }
    }
}

/// Nothing is sent any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookDisabled {
    /// Why.
    pub reason: DisableReason,
    /// The event that was not delivered; everything before it was dealt with.
    pub position: Option<Position>,
    /// For people.
    pub detail: Option<String>,
}

/// There is another secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookSecretRotated {
    /// Counts its secrets, from 1.
    pub version: u32,
    /// Until when the one before counts beside it.
    pub until: Timestamp,
}

/// What stands after a position is sent again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookReplayed {
    /// Which.
    pub after: Position,
}

/// A webhook is gone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookDeleted {
    /// What it was called.
    pub name: String,
}
