//! What was seen of deployments, and what was paused of them.

use crate::dns::DomainName;
use crate::ids::{ClusterId, Revision};
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};

/// What the reconciler saw of one domain on one target. Stands in the target's
/// stream; the envelope names the domain and its tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeploymentFact {
    /// The domain's revision concerned.
    pub revision: Revision,
    /// The revision that is active on the target now; 0 when none is.
    pub active: Revision,
    /// Set hash over the rendered RRsets that are active now, in hex.
    pub checksum: Option<String>,
    /// The platform's generation that is active now, with `active`.
    pub generation: Option<u32>,
    /// SOA serial that is active now.
    pub serial: Option<u32>,
    /// Tries so far, this one included.
    pub attempts: u32,
    /// When each stage was reached.
    pub stages: Stages,
    /// Why it was rejected or failed.
    pub error: Option<String>,
    /// Whether the zone was taken off the target.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub removed: bool,
}

/// When a deployment reached each of its stages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stages {
    /// The candidate was rendered and checksummed.
    pub rendered: Option<Timestamp>,
    /// The target's transaction committed.
    pub activated: Option<Timestamp>,
    /// The real listener answered with it.
    pub verified: Option<Timestamp>,
}

/// What a pause covers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "scope", content = "id", rename_all = "snake_case")]
pub enum PauseScope {
    /// Every deployment.
    All,
    /// One DNS cluster, by its id.
    Target(ClusterId),
    /// One domain, by its name.
    Domain(DomainName),
}

/// Deployments were paused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeploymentsPaused {
    /// Which.
    #[serde(flatten)]
    pub scope: PauseScope,
    /// Why.
    pub reason: String,
}

/// Deployments were resumed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeploymentsResumed {
    /// Which.
    #[serde(flatten)]
    pub scope: PauseScope,
    /// Why.
    pub reason: String,
}

/// A projection was rebuilt or a target's rows were mended by hand or drift check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriftMended {
    /// How many rows of the domain differed.
    pub rows: u32,
    /// The first differences, for people.
    pub sample: Vec<String>,
}
