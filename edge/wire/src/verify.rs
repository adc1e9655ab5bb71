//! What an agent believes. A page or artifact is verified before it is parsed, and refused with one typed reason; what
//! is active stays as it is. (epoch, sequence) never goes back: only a page of a higher epoch, from its very
//! beginning, starts the numbering anew. Time decides last and only about activation, never about serving.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::artifact::{Artifact, ArtifactBudget, CheckedArtifact};
use crate::canonical::{self, CanonicalError};
use crate::check::Fault;
use crate::checksum::Checksum;
use crate::ids::{AgentVersion, EdgeId, Epoch, Sequence};
use crate::manifest::{LiveDescriptor, PAGE_MAX_BYTES, PAGE_SCHEMA, Page, PageFault};
use crate::sign::{Context, KeyRing, Signature, SignatureFault};
use crate::time::Timestamp;

/// How far ahead of the reader's clock a page may have been issued.
pub const CLOCK_AHEAD_MAX_SECONDS: u64 = 600;

/// What an edge keeps in a file of its own and never lowers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pins {
    /// Who this edge is.
    pub edge: EdgeId,
    /// The highest epoch it has taken.
    pub epoch: Epoch,
    /// The highest sequence it has taken in that epoch.
    pub through: Sequence,
    /// The keys it believes.
    pub keys: KeyRing,
    /// When the page that brought them was issued.
    pub keys_at: Timestamp,
}

/// Who reads, and when.
#[derive(Debug, Clone, Copy)]
pub struct Reader {
    /// What the agent speaks.
    pub agent: AgentVersion,
    /// What its clock says.
    pub now: Timestamp,
}

/// Why a page is refused.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// More bytes than a page may have; nothing was looked at.
    #[error("{0} bytes, a page has at most {PAGE_MAX_BYTES}")]
    TooLarge(usize),
    /// Signed by a key that is not pinned, or not signed by the key it names.
    #[error(transparent)]
    Signature(#[from] SignatureFault),
    /// A schema that this agent does not know.
    #[error("schema {0} is unknown to this agent")]
    UnknownSchema(u64),
    /// Meant for other agents.
    #[error("not for agents of version {0}")]
    AgentRange(AgentVersion),
    /// Signed, but not what the schema says.
    #[error(transparent)]
    Malformed(CanonicalError),
    /// Another edge's.
    #[error("for edge {0}")]
    OtherEdge(EdgeId),
    /// Of an epoch before the one this edge has.
    #[error("epoch {got} is below {have}")]
    LowerEpoch {
        /// What this edge has.
        have: Epoch,
        /// What the page says.
        got: Epoch,
    },
    /// Before what this edge has.
    #[error("sequence {got} is below {have}")]
    LowerSequence {
        /// What this edge has.
        have: Sequence,
        /// What the page says.
        got: Sequence,
    },
    /// Changes between what this edge has and what the page begins with are missing.
    #[error("begins after {after}, this edge has {have}: a snapshot is needed")]
    Gap {
        /// What this edge has in the page's epoch.
        have: Sequence,
        /// Where the page begins.
        after: Sequence,
    },
    /// It breaks a law of pages.
    #[error("out of order: {0}")]
    OutOfOrder(#[from] PageFault),
    /// The ring it brings does not hold the key that signed it.
    #[error("its ring does not hold the key that signed it")]
    RingWithoutSigner,
    /// Issued long after now: one of the clocks is wrong.
    #[error("issued at {0}, which is ahead of this clock")]
    Ahead(Timestamp),
    /// Too old to be activated.
    #[error("expired at {0}")]
    Expired(Timestamp),
}

impl Refusal {
    /// The stable name of the reason, for reports and metrics.
    pub fn code(&self) -> &'static str {
        match self {
            Self::TooLarge(_) => "too_large",
            Self::Signature(SignatureFault::UnknownKey(_)) => "unknown_key",
            Self::Signature(SignatureFault::Bad(_)) => "bad_signature",
            Self::UnknownSchema(_) => "unknown_schema",
            Self::AgentRange(_) => "agent_range",
            Self::Malformed(_) => "malformed",
            Self::OtherEdge(_) => "other_edge",
            Self::LowerEpoch { .. } => "lower_epoch",
            Self::LowerSequence { .. } => "lower_sequence",
            Self::Gap { .. } => "gap",
            Self::OutOfOrder(_) => "out_of_order",
            Self::RingWithoutSigner => "ring_without_signer",
            Self::Ahead(_) => "ahead",
            Self::Expired(_) => "expired",
        }
    }
}

/// A page that this edge may act on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifiedPage(Page);

impl VerifiedPage {
    /// What it says.
    pub fn page(&self) -> &Page {
        &self.0
    }

    /// What it says, to keep.
    pub fn into_page(self) -> Page {
        self.0
    }
}

impl Page {
    /// Verifies, then reads a page of changes.
    ///
    /// # Errors
    /// The reason why this edge must not act on it.
    pub fn verify(
        bytes: &[u8],
        signature: &Signature,
        pins: &Pins,
        reader: Reader,
    ) -> Result<VerifiedPage, Refusal> {
        let page = read(Context::Manifest, bytes, signature, pins, reader)?;
        let have = have(pins, page.epoch)?;
        if page.through < have {
            return Err(Refusal::LowerSequence { have, got: page.through });
        }
        if page.after > have {
            return Err(Refusal::Gap { have, after: page.after });
        }
        in_time(&page, reader)?;
        Ok(VerifiedPage(page))
    }

    /// Verifies, then reads a page of a snapshot that must go on after `after`, the end of the page before.
    pub(crate) fn verify_part(
        bytes: &[u8],
        signature: &Signature,
        pins: &Pins,
        reader: Reader,
        after: Sequence,
    ) -> Result<VerifiedPage, Refusal> {
        let page = read(Context::Snapshot, bytes, signature, pins, reader)?;
        let have = have(pins, page.epoch)?;
        if page.head < have {
            return Err(Refusal::LowerSequence { have, got: page.head });
        }
        if page.after != after {
            return Err(Refusal::Gap { have: after, after: page.after });
        }
        in_time(&page, reader)?;
        Ok(VerifiedPage(page))
    }
}

/// What this edge has in an epoch: nothing in a new one, and never anything to do with an old one.
fn have(pins: &Pins, epoch: Epoch) -> Result<Sequence, Refusal> {
    match epoch.cmp(&pins.epoch) {
        std::cmp::Ordering::Less => Err(Refusal::LowerEpoch { have: pins.epoch, got: epoch }),
        std::cmp::Ordering::Equal => Ok(pins.through),
        std::cmp::Ordering::Greater => Ok(Sequence::ZERO),
    }
}

/// Length, signature, schema, agent, form, edge, laws, ring: in this order.
fn read(
    context: Context,
    bytes: &[u8],
    signature: &Signature,
    pins: &Pins,
    reader: Reader,
) -> Result<Page, Refusal> {
    if bytes.len() > PAGE_MAX_BYTES {
        return Err(Refusal::TooLarge(bytes.len()));
    }
    pins.keys.verify(context, bytes, signature)?;
    let page: Page = canonical::read_schema(bytes, u64::from(PAGE_SCHEMA), PAGE_MAX_BYTES).map_err(
        |error| match error {
            CanonicalError::UnknownSchema { found, .. } => Refusal::UnknownSchema(found),
            other => Refusal::Malformed(other),
        },
    )?;
    if !page.agent.holds(reader.agent) {
        return Err(Refusal::AgentRange(reader.agent));
    }
    if page.edge != pins.edge {
        return Err(Refusal::OtherEdge(page.edge));
    }
    page.laws()?;
    if page.keys.get(signature.key).is_none() {
        return Err(Refusal::RingWithoutSigner);
    }
    Ok(page)
}

fn in_time(page: &Page, reader: Reader) -> Result<(), Refusal> {
    if page.issued_at > reader.now.plus(Duration::from_secs(CLOCK_AHEAD_MAX_SECONDS)) {
        return Err(Refusal::Ahead(page.issued_at));
    }
    if page.expires_at <= reader.now {
        return Err(Refusal::Expired(page.expires_at));
    }
    Ok(())
}

impl Pins {
    /// What to pin once the page is active. The ring only moves forward in time inside an epoch, so that a page kept
    /// from before a rotation cannot bring a retired key back.
    #[must_use]
    pub fn after(&self, page: &VerifiedPage) -> Self {
        let page = page.page();
        let is_newer = page.epoch > self.epoch || page.issued_at >= self.keys_at;
        let (keys, keys_at) =
            if is_newer { (page.keys.clone(), page.issued_at) } else { (self.keys.clone(), self.keys_at) };
        Self { edge: self.edge, epoch: page.epoch, through: page.through, keys, keys_at }
    }
}

/// Why an artifact is refused. The other domains of the page are not concerned.
#[derive(Debug, thiserror::Error)]
pub enum ArtifactRefusal {
    /// Not as long as its descriptor says.
    #[error("{got} bytes, its descriptor says {said}")]
    Size {
        /// How many there are.
        got: usize,
        /// What the descriptor says.
        said: u64,
    },
    /// Its bytes have another checksum.
    #[error("its checksum is {0}")]
    Checksum(Checksum),
    /// Signed by a key that is not pinned, or not signed by the key it names.
    #[error(transparent)]
    Signature(#[from] SignatureFault),
    /// Too large, of an unknown schema, or not canonical.
    #[error(transparent)]
    Form(#[from] CanonicalError),
    /// Meant for other agents.
    #[error("not for agents of version {0}")]
    AgentRange(AgentVersion),
    /// Not the domain or revision of its descriptor.
    #[error("it is not what its descriptor names")]
    OtherDomain,
    /// It breaks the domain's own rules.
    #[error("{} faults, the first at {}", .0.len(), .0.first().map_or("", |fault| fault.pointer.as_str()))]
    Faults(Vec<Fault>),
}

impl ArtifactRefusal {
    /// The stable name of the reason, for reports and metrics.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Size { .. } => "size",
            Self::Checksum(_) => "checksum",
            Self::Signature(SignatureFault::UnknownKey(_)) => "unknown_key",
            Self::Signature(SignatureFault::Bad(_)) => "bad_signature",
            Self::Form(CanonicalError::UnknownSchema { .. }) => "unknown_schema",
            Self::Form(CanonicalError::TooLarge { .. }) => "too_large",
            Self::Form(_) => "malformed",
            Self::AgentRange(_) => "agent_range",
            Self::OtherDomain => "other_domain",
            Self::Faults(_) => "invalid",
        }
    }
}

impl LiveDescriptor {
    /// Verifies, then reads the artifact of this descriptor.
    ///
    /// # Errors
    /// The reason why this artifact must not be activated.
    pub fn verify(
        &self,
        bytes: &[u8],
        keys: &KeyRing,
        agent: AgentVersion,
        budget: ArtifactBudget,
    ) -> Result<CheckedArtifact, ArtifactRefusal> {
        if bytes.len() > budget.bytes() {
            let (size, max) = (bytes.len(), budget.bytes());
            return Err(CanonicalError::TooLarge { size, max }.into());
        }
        if bytes.len() as u64 != self.size {
            return Err(ArtifactRefusal::Size { got: bytes.len(), said: self.size });
        }
        let checksum = Checksum::of(bytes);
        if checksum != self.checksum {
            return Err(ArtifactRefusal::Checksum(checksum));
        }
        keys.verify(Context::Artifact, checksum.as_bytes(), &self.signature)?;
        let artifact = Artifact::parse(bytes, budget)?;
        if !artifact.agent.holds(agent) {
            return Err(ArtifactRefusal::AgentRange(agent));
        }
        if (artifact.id, artifact.revision) != (self.id, self.revision) || artifact.domain != self.domain {
            return Err(ArtifactRefusal::OtherDomain);
        }
        artifact.checked().map_err(ArtifactRefusal::Faults)
    }
}
