//! What the reconciler says of domains on a target.

use crate::dns::DomainName;
use crate::event::{DeploymentFact, DriftMended, Event};
use crate::ids::{DomainId, TenantId};

/// What the reconciler observed of one domain on a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observation {
    /// The domain.
    pub domain: DomainId,
    /// Its name.
    pub name: DomainName,
    /// Its owner.
    pub tenant: TenantId,
    /// What is said of it.
    pub outcome: Outcome,
}

/// What an observation says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The candidate waits longer than a second to be activated.
    Rendered(DeploymentFact),
    /// The candidate was refused; the active state is unchanged.
    Rejected(DeploymentFact),
    /// Activated, but not verified within a second.
    Activated(DeploymentFact),
    /// Verified on the real listener.
    Acknowledged(DeploymentFact),
    /// It did not work this time; the active state is unchanged.
    Failed(DeploymentFact),
    /// Overtaken by a newer revision before it was active.
    Superseded(DeploymentFact),
    /// Works again after a failure.
    Recovered(DeploymentFact),
    /// The target holds what this log does not know.
    Ahead(DeploymentFact),
    /// Rows that differed were put right.
    Mended(DriftMended),
}

impl Outcome {
    pub(super) fn into_event(self) -> Event {
        match self {
            Self::Rendered(fact) => Event::DeploymentRendered(fact),
            Self::Rejected(fact) => Event::DeploymentRejected(fact),
            Self::Activated(fact) => Event::DeploymentActivated(fact),
            Self::Acknowledged(fact) => Event::DeploymentAcknowledged(fact),
            Self::Failed(fact) => Event::DeploymentFailed(fact),
            Self::Superseded(fact) => Event::DeploymentSuperseded(fact),
            Self::Recovered(fact) => Event::DeploymentRecovered(fact),
            Self::Ahead(fact) => Event::DeploymentAhead(fact),
            Self::Mended(fact) => Event::DriftMended(fact),
        }
    }
}
