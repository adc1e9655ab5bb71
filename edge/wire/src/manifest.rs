//! The manifest: what one edge must hold, as pages of numbered changes. A page is bound to its edge, its epoch and its
//! time, carries the ring of keys that sign the next ones, and is signed as the exact bytes that are sent.

use std::collections::BTreeSet;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::artifact::ARTIFACT_CEILING_MAX_BYTES;
use crate::canonical::{self, CanonicalError};
use crate::check::CERTIFICATES_MAX;
use crate::checksum::Checksum;
use crate::ids::{AgentRange, CellNumber, DomainId, EdgeId, Epoch, Revision, Sequence};
use crate::seal::{SealedContentKey, SealedKey};
use crate::sign::{Context, KeyRing, SignError, Signature, SigningKey};
use crate::text;
use crate::time::Timestamp;

/// The schema of a page that this program writes and reads.
pub const PAGE_SCHEMA: u32 = 1;
/// The most descriptors of a page.
pub const PAGE_DESCRIPTORS_MAX: usize = 500;
/// The most bytes of a page. A producer ends a page early where its sealed keys would cross this.
pub const PAGE_MAX_BYTES: usize = 16 << 20;
/// The most domains of an edge.
pub const DOMAINS_PER_EDGE_MAX: usize = 100_000;

/// One page: the changes from `after`, exclusive, to `through`, inclusive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Page {
    /// [`PAGE_SCHEMA`].
    pub schema: u32,
    /// The agents that can act on it.
    pub agent: AgentRange,
    /// The edge it is for.
    pub edge: EdgeId,
    /// The incarnation of the numbering.
    pub epoch: Epoch,
    /// The last change that the reader has.
    pub after: Sequence,
    /// The last change that this page covers.
    pub through: Sequence,
    /// The last change there is.
    pub head: Sequence,
    /// When it was made.
    pub issued_at: Timestamp,
    /// Until when it may be activated; what is active is served on.
    pub expires_at: Timestamp,
    /// The keys that sign from now on; the one that signed this page is among them.
    pub keys: KeyRing,
    /// What opens the keys of certificates.
    pub content_key: SealedContentKey,
    /// The changes, ascending by sequence, the newest of each domain alone.
    pub descriptors: Vec<Descriptor>,
}

/// One change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Descriptor {
    /// The domain is to be served no longer.
    Removed(Tombstone),
    /// The domain is to be served as this artifact says.
    Live(LiveDescriptor),
}

/// A domain that is to be served no longer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tombstone {
    /// The number of this change.
    pub sequence: Sequence,
    /// The domain.
    pub id: DomainId,
    /// Its name.
    pub domain: String,
    /// The revision that removed it.
    pub revision: Revision,
    /// Always true: what tells this from a live one.
    pub removed: True,
}

/// A domain and the artifact that says how it is served.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LiveDescriptor {
    /// The number of this change.
    pub sequence: Sequence,
    /// The domain.
    pub id: DomainId,
    /// Its name.
    pub domain: String,
    /// Its revision.
    pub revision: Revision,
    /// The artifact's name.
    pub checksum: Checksum,
    /// The artifact's length in bytes.
    pub size: u64,
    /// The signature of the checksum, by a key of the ring; signed anew when that key leaves it.
    pub signature: Signature,
    /// The cells of this edge that serve it, ascending.
    pub cells: Vec<CellNumber>,
    /// The keys of its certificates, ascending by id.
    pub keys: Vec<SealedKey>,
}

/// The JSON value `true` and no other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct True;

impl Serialize for True {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bool(true)
    }
}

impl<'de> Deserialize<'de> for True {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if bool::deserialize(deserializer)? { Ok(Self) } else { Err(de::Error::custom("must be true")) }
    }
}

impl Descriptor {
    /// The number of this change.
    pub fn sequence(&self) -> Sequence {
        match self {
            Self::Removed(removed) => removed.sequence,
            Self::Live(live) => live.sequence,
        }
    }

    /// The domain.
    pub fn id(&self) -> DomainId {
        match self {
            Self::Removed(removed) => removed.id,
            Self::Live(live) => live.id,
        }
    }

    fn domain(&self) -> &str {
        match self {
            Self::Removed(removed) => &removed.domain,
            Self::Live(live) => &live.domain,
        }
    }

    fn revision(&self) -> Revision {
        match self {
            Self::Removed(removed) => removed.revision,
            Self::Live(live) => live.revision,
        }
    }
}

/// A law of pages that one breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PageFault {
    /// More descriptors than the bound.
    #[error("more than {PAGE_DESCRIPTORS_MAX} descriptors")]
    TooMany,
    /// `after`, `through` and `head` do not ascend.
    #[error("after, through and head must ascend")]
    Bounds,
    /// It says nothing and is not the last one.
    #[error("a page without descriptors must reach the head")]
    Empty,
    /// The sequence of a descriptor is not above the one before, or not inside the page.
    #[error("the sequence of descriptor {0} is out of order")]
    Sequence(usize),
    /// A domain stands twice.
    #[error("the domain of descriptor {0} stands in the page before")]
    Twice(usize),
    /// A field of a descriptor has no possible value.
    #[error("descriptor {0} has an impossible {1}")]
    Field(usize, &'static str),
    /// It expires before it was made.
    #[error("it expires before it was issued")]
    Times,
}

/// A page as it is sent: the exact bytes and who signed them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedPage {
    /// The body of the answer.
    pub bytes: Vec<u8>,
    /// The value of the field [`crate::sign::SIGNATURE_FIELD`].
    pub signature: Signature,
}

/// Why a page cannot be published.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// It breaks a law that every reader checks.
    #[error(transparent)]
    Fault(#[from] PageFault),
    /// It cannot be written, or is too large.
    #[error(transparent)]
    Bytes(#[from] CanonicalError),
    /// It cannot be signed.
    #[error(transparent)]
    Sign(#[from] SignError),
    /// Readers refuse a ring without the key that signed it.
    #[error("the key that signs must be in the ring of the page")]
    RingWithoutSigner,
}

impl Page {
    /// Checks what every reader checks, writes the bytes and signs them.
    ///
    /// # Errors
    /// When a reader would refuse it for what it says, or it cannot be signed.
    pub fn sign(&self, key: &SigningKey, context: Context) -> Result<SignedPage, PublishError> {
        self.laws()?;
        if self.keys.get(key.public()?.id()).is_none() {
            return Err(PublishError::RingWithoutSigner);
        }
        let bytes = canonical::write(self)?;
        if bytes.len() > PAGE_MAX_BYTES {
            return Err(CanonicalError::TooLarge { size: bytes.len(), max: PAGE_MAX_BYTES }.into());
        }
        let signature = key.sign(context, &bytes)?;
        Ok(SignedPage { bytes, signature })
    }

    /// What must hold in every page, whoever reads it and when.
    ///
    /// # Errors
    /// The first law that is broken.
    pub fn laws(&self) -> Result<(), PageFault> {
        if self.descriptors.len() > PAGE_DESCRIPTORS_MAX {
            return Err(PageFault::TooMany);
        }
        if self.after > self.through || self.through > self.head {
            return Err(PageFault::Bounds);
        }
        if self.descriptors.is_empty() && self.through != self.head {
            return Err(PageFault::Empty);
        }
        if self.expires_at < self.issued_at {
            return Err(PageFault::Times);
        }
        let mut before = self.after;
        let mut seen = BTreeSet::new();
        for (index, descriptor) in self.descriptors.iter().enumerate() {
            let sequence = descriptor.sequence();
            if sequence <= before || sequence > self.through {
                return Err(PageFault::Sequence(index));
            }
            before = sequence;
            if !seen.insert(descriptor.id()) {
                return Err(PageFault::Twice(index));
            }
            if let Some(field) = impossible(descriptor) {
                return Err(PageFault::Field(index, field));
            }
        }
        Ok(())
    }
}

/// The field of a descriptor that no honest producer writes.
fn impossible(descriptor: &Descriptor) -> Option<&'static str> {
    if !text::is_zone_name(descriptor.domain()) {
        return Some("domain");
    }
    if descriptor.revision() == Revision::ZERO {
        return Some("revision");
    }
    let Descriptor::Live(live) = descriptor else { return None };
    let is_ascending = |pair: &[CellNumber]| matches!(pair, [a, b] if a < b);
    if live.cells.is_empty() || !live.cells.windows(2).all(is_ascending) {
        return Some("cells");
    }
    if live.size == 0 || live.size > ARTIFACT_CEILING_MAX_BYTES as u64 {
        return Some("size");
    }
    let is_ascending = |pair: &[SealedKey]| matches!(pair, [a, b] if a.id < b.id);
    if live.keys.len() > CERTIFICATES_MAX || !live.keys.windows(2).all(is_ascending) {
        return Some("keys");
    }
    None
}
