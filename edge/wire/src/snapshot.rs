//! A snapshot: every live domain of one edge, as a stream of pages from sequence 0 to the head, then the artifacts
//! they name. Its pages are signed for this purpose alone, chained by their sequences and must agree on what they are
//! parts of, so that no page can be left out, doubled, or mixed in from another snapshot or from the manifest.

use std::collections::{BTreeMap, BTreeSet};

use crate::artifact::ArtifactBudget;
use crate::checksum::Checksum;
use crate::frame::{Frame, FrameBounds, FrameDecoder, FrameError};
use crate::ids::{DomainId, Sequence};
use crate::manifest::{DOMAINS_PER_EDGE_MAX, Descriptor, LiveDescriptor, Page};
use crate::verify::{Pins, Reader, Refusal, VerifiedPage};

/// Why a snapshot is refused.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotRefusal {
    /// The stream cannot be read.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// A page of it is refused.
    #[error(transparent)]
    Page(#[from] Refusal),
    /// A page of another snapshot.
    #[error("a page does not belong to the pages before it")]
    Mixed,
    /// A page after the last one, or after an artifact.
    #[error("a page where none may be")]
    LatePage,
    /// An artifact before the last page.
    #[error("an artifact before the last page")]
    EarlyArtifact,
    /// A domain stands twice.
    #[error("domain {0} stands in it twice")]
    Twice(DomainId),
    /// It tells of a domain that is gone.
    #[error("domain {0} is removed, a snapshot has live domains only")]
    Removed(DomainId),
    /// More domains than an edge may have.
    #[error("more than {0} domains")]
    TooMany(usize),
    /// An artifact that no descriptor names, or a second time.
    #[error("artifact {0} was not announced, or has come before")]
    Unannounced(Checksum),
    /// The last page did not come.
    #[error("ends before its head")]
    Incomplete,
}

/// One artifact of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// What the page says of it; [`LiveDescriptor::verify`] decides whether it may be used.
    pub descriptor: LiveDescriptor,
    /// Its bytes, of the announced checksum.
    pub bytes: Vec<u8>,
}

/// A whole snapshot.
#[derive(Debug)]
pub struct Snapshot {
    /// The last page; [`Pins::after`] it is what to pin.
    pub last: VerifiedPage,
    /// What every domain is, by its id.
    pub domains: BTreeMap<DomainId, LiveDescriptor>,
    /// Announced artifacts that did not come and must be asked for.
    pub missing: BTreeSet<Checksum>,
}

/// Reads a snapshot from slices as they come. It holds the descriptors and one frame.
pub struct SnapshotReader {
    decoder: FrameDecoder,
    pins: Pins,
    reader: Reader,
    last: Option<VerifiedPage>,
    domains: BTreeMap<DomainId, LiveDescriptor>,
    wanted: BTreeMap<Checksum, DomainId>,
    has_artifacts: bool,
    domains_max: usize,
}

impl SnapshotReader {
    /// A reader at the beginning of the stream.
    pub fn new(pins: Pins, reader: Reader, budget: ArtifactBudget) -> Self {
        Self {
            decoder: FrameDecoder::new(FrameBounds::snapshot(budget)),
            pins,
            reader,
            last: None,
            domains: BTreeMap::new(),
            wanted: BTreeMap::new(),
            has_artifacts: false,
            domains_max: DOMAINS_PER_EDGE_MAX,
        }
    }

    /// The same for an edge that has room for fewer domains.
    #[must_use]
    pub fn with_domains_max(self, max: usize) -> Self {
        Self { domains_max: self.domains_max.min(max), ..self }
    }

    /// Takes bytes from the front of `input` until an artifact is whole or the input is used up.
    ///
    /// # Errors
    /// When the snapshot must not be used. [`FrameError::Checksum`] alone loses one artifact and can be gone on from.
    pub fn read(&mut self, input: &mut &[u8]) -> Result<Option<Part>, SnapshotRefusal> {
        while let Some(frame) = self.decoder.read(input)? {
            match frame {
                Frame::Page { signature, bytes } => {
                    let after = self.last.as_ref().map_or(Sequence::ZERO, |last| last.page().through);
                    let page = Page::verify_part(&bytes, &signature, &self.pins, self.reader, after)?;
                    self.page(page)?;
                }
                Frame::Artifact { checksum, bytes } => return self.artifact(checksum, bytes).map(Some),
            }
        }
        Ok(None)
    }

    /// Says that no more bytes come.
    ///
    /// # Errors
    /// When the stream was not whole.
    pub fn finish(self) -> Result<Snapshot, SnapshotRefusal> {
        self.decoder.finish()?;
        match self.last {
            Some(last) if last.page().through == last.page().head => {
                let missing = self.wanted.into_keys().collect();
                Ok(Snapshot { last, domains: self.domains, missing })
            }
            _ => Err(SnapshotRefusal::Incomplete),
        }
    }

    fn page(&mut self, verified: VerifiedPage) -> Result<(), SnapshotRefusal> {
        let page = verified.page();
        if let Some(last) = self.last.as_ref().map(VerifiedPage::page) {
            if self.has_artifacts || last.through == last.head {
                return Err(SnapshotRefusal::LatePage);
            }
            let is_same = (last.epoch, last.head, last.issued_at, last.expires_at, &last.keys)
                == (page.epoch, page.head, page.issued_at, page.expires_at, &page.keys)
                && last.content_key == page.content_key;
            if !is_same {
                return Err(SnapshotRefusal::Mixed);
            }
        }
        for descriptor in &page.descriptors {
            let live = match descriptor {
                Descriptor::Live(live) => live.clone(),
                Descriptor::Removed(removed) => return Err(SnapshotRefusal::Removed(removed.id)),
            };
            if self.wanted.insert(live.checksum, live.id).is_some() {
                return Err(SnapshotRefusal::Twice(live.id));
            }
            if let Some(twice) = self.domains.insert(live.id, live) {
                return Err(SnapshotRefusal::Twice(twice.id));
            }
            if self.domains.len() > self.domains_max {
                return Err(SnapshotRefusal::TooMany(self.domains_max));
            }
        }
        self.last = Some(verified);
        Ok(())
    }

    fn artifact(&mut self, checksum: Checksum, bytes: Vec<u8>) -> Result<Part, SnapshotRefusal> {
        if self.last.as_ref().is_none_or(|last| last.page().through != last.page().head) {
            return Err(SnapshotRefusal::EarlyArtifact);
        }
        self.has_artifacts = true;
        let id = self.wanted.remove(&checksum).ok_or(SnapshotRefusal::Unannounced(checksum))?;
        let descriptor = self.domains.get(&id).cloned().ok_or(SnapshotRefusal::Unannounced(checksum))?;
        Ok(Part { descriptor, bytes })
    }
}
