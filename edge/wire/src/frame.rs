//! Frames: how many bodies travel in one answer. A frame is the length of its header (4 bytes, big endian), the header
//! as canonical JSON, then the body; a zero length ends the stream. The answer is compressed as a whole, outside of
//! this. The decoder checks every length before it keeps a byte, so neither a hostile length nor an endless stream
//! costs more than its bounds; how the bytes are cut into slices makes no difference.

use serde::{Deserialize, Serialize};

use crate::artifact::ArtifactBudget;
use crate::canonical;
use crate::checksum::Checksum;
use crate::manifest::{DOMAINS_PER_EDGE_MAX, PAGE_MAX_BYTES};
use crate::sign::Signature;

/// The longest header.
pub const FRAME_HEADER_MAX_BYTES: usize = 512;
/// The most artifacts that one answer holds.
pub const BULK_ARTIFACTS_MAX: usize = 500;
/// The most pages of a snapshot; a page holds many domains, unless their keys are long.
pub const SNAPSHOT_PAGES_MAX: usize = 10_000;
/// The most bytes of a snapshot, after decompression.
pub const SNAPSHOT_MAX_BYTES: u64 = 16 << 30;

/// What stands before a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum FrameHeader {
    /// An artifact.
    Artifact(ArtifactHeader),
    /// A page of a snapshot.
    Page(PageHeader),
}

/// What stands before an artifact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArtifactHeader {
    /// The artifact's name.
    pub checksum: Checksum,
    /// Its length in bytes.
    pub size: u64,
}

/// What stands before a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PageHeader {
    /// Who signed it.
    pub signature: Signature,
    /// Its length in bytes.
    pub size: u64,
}

/// One frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// An artifact, whose checksum has been compared. Its signature has not: see [`crate::manifest::LiveDescriptor::verify`].
    Artifact {
        /// Its name.
        checksum: Checksum,
        /// Its bytes.
        bytes: Vec<u8>,
    },
    /// A page of a snapshot, not verified yet.
    Page {
        /// Who signed it.
        signature: Signature,
        /// Its bytes.
        bytes: Vec<u8>,
    },
}

/// Why a stream cannot be read. Only [`FrameError::Checksum`] leaves a decoder that can go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// A header longer than the bound.
    #[error("a header of {0} bytes, at most {FRAME_HEADER_MAX_BYTES}")]
    HeaderTooLarge(usize),
    /// A header that is not one.
    #[error("a header that cannot be read: {0}")]
    Header(String),
    /// A page where only artifacts may be.
    #[error("a page among artifacts")]
    Kind,
    /// A body that is empty or longer than the bound.
    #[error("a body of {size} bytes, must be 1 to {max}")]
    BodySize {
        /// What the header says.
        size: u64,
        /// The bound.
        max: u64,
    },
    /// More frames than the bound.
    #[error("more than {0} frames")]
    TooMany(usize),
    /// More bytes in all than the bound.
    #[error("more than {0} bytes in all")]
    TooLong(u64),
    /// The body has another checksum than its header says; the frame alone is lost.
    #[error("the body of artifact {0} has another checksum")]
    Checksum(Checksum),
    /// The stream ended before its end mark.
    #[error("the stream ended early")]
    Truncated,
    /// Something follows the end mark.
    #[error("bytes after the end of the stream")]
    Trailing,
    /// An earlier error left nothing to go on with.
    #[error("the stream was refused before")]
    Refused,
}

/// What a reader accepts.
#[derive(Debug, Clone, Copy)]
pub struct FrameBounds {
    artifact_max_bytes: u64,
    page_max_bytes: u64,
    frames_max: usize,
    total_max_bytes: u64,
}

impl FrameBounds {
    /// The most frames.
    pub fn frames_max(&self) -> usize {
        self.frames_max
    }

    /// The same with at most so many bytes of bodies in all: what the reader has room for.
    #[must_use]
    pub fn with_total_bytes(self, max: u64) -> Self {
        Self { total_max_bytes: self.total_max_bytes.min(max), ..self }
    }

    /// For the answer to a request of so many artifacts.
    pub fn artifacts(count: usize, budget: ArtifactBudget) -> Self {
        let frames_max = count.min(BULK_ARTIFACTS_MAX);
        let artifact_max_bytes = budget.bytes() as u64;
        let total_max_bytes = artifact_max_bytes.saturating_mul(frames_max as u64);
        Self { artifact_max_bytes, page_max_bytes: 0, frames_max, total_max_bytes }
    }

    /// For a snapshot.
    pub fn snapshot(budget: ArtifactBudget) -> Self {
        Self {
            artifact_max_bytes: budget.bytes() as u64,
            page_max_bytes: PAGE_MAX_BYTES as u64,
            frames_max: SNAPSHOT_PAGES_MAX + DOMAINS_PER_EDGE_MAX,
            total_max_bytes: SNAPSHOT_MAX_BYTES,
        }
    }
}

enum State {
    Length,
    Header(usize),
    Body(FrameHeader, usize),
    Ended,
    Refused,
}

/// Reads frames from slices as they come. It holds one frame at most.
pub struct FrameDecoder {
    bounds: FrameBounds,
    state: State,
    buffer: Vec<u8>,
    frames: usize,
    total_bytes: u64,
}

impl FrameDecoder {
    /// A decoder at the beginning of a stream.
    pub fn new(bounds: FrameBounds) -> Self {
        Self { bounds, state: State::Length, buffer: Vec::new(), frames: 0, total_bytes: 0 }
    }

    /// Takes bytes from the front of `input` until a frame is whole or the input is used up. Call it again with what
    /// is left until it gives nothing.
    ///
    /// # Errors
    /// When the stream breaks a rule or a bound; every later call fails too, but after [`FrameError::Checksum`].
    pub fn read(&mut self, input: &mut &[u8]) -> Result<Option<Frame>, FrameError> {
        let read = self.step(input);
        if read.as_ref().is_err_and(|error| !matches!(error, FrameError::Checksum(_))) {
            self.state = State::Refused;
            self.buffer = Vec::new();
        }
        read
    }

    /// Says that no more bytes come.
    ///
    /// # Errors
    /// When the stream was not whole.
    pub fn finish(self) -> Result<(), FrameError> {
        match self.state {
            State::Ended => Ok(()),
            State::Refused => Err(FrameError::Refused),
            _ => Err(FrameError::Truncated),
        }
    }

    fn step(&mut self, input: &mut &[u8]) -> Result<Option<Frame>, FrameError> {
        loop {
            match self.state {
                State::Length => {
                    let Some(length) = self.take(4, input) else { return Ok(None) };
                    self.state = match length.iter().fold(0_usize, |sum, byte| sum << 8 | usize::from(*byte))
                    {
                        0 => State::Ended,
                        length if length > FRAME_HEADER_MAX_BYTES => {
                            return Err(FrameError::HeaderTooLarge(length));
                        }
                        length => State::Header(length),
                    };
                }
                State::Header(length) => {
                    let Some(bytes) = self.take(length, input) else { return Ok(None) };
                    let header = canonical::read(&bytes, FRAME_HEADER_MAX_BYTES)
                        .map_err(|error| FrameError::Header(error.to_string()))?;
                    let size = self.admit(&header)?;
                    self.state = State::Body(header, size);
                }
                State::Body(header, size) => {
                    let Some(bytes) = self.take(size, input) else { return Ok(None) };
                    self.state = State::Length;
                    return whole(header, bytes).map(Some);
                }
                State::Ended if input.is_empty() => return Ok(None),
                State::Ended => return Err(FrameError::Trailing),
                State::Refused => return Err(FrameError::Refused),
            }
        }
    }

    /// The bytes of a part, once all have come.
    fn take(&mut self, want: usize, input: &mut &[u8]) -> Option<Vec<u8>> {
        let missing = want.saturating_sub(self.buffer.len()).min(input.len());
        let (taken, rest) = input.split_at_checked(missing)?;
        self.buffer.extend_from_slice(taken);
        *input = rest;
        (self.buffer.len() == want).then(|| std::mem::take(&mut self.buffer))
    }

    /// Checks every bound before a byte of the body is kept.
    fn admit(&mut self, header: &FrameHeader) -> Result<usize, FrameError> {
        let (size, max) = match header {
            FrameHeader::Artifact(artifact) => (artifact.size, self.bounds.artifact_max_bytes),
            FrameHeader::Page(_) if self.bounds.page_max_bytes == 0 => return Err(FrameError::Kind),
            FrameHeader::Page(page) => (page.size, self.bounds.page_max_bytes),
        };
        if size == 0 || size > max {
            return Err(FrameError::BodySize { size, max });
        }
        self.frames += 1;
        if self.frames > self.bounds.frames_max {
            return Err(FrameError::TooMany(self.bounds.frames_max));
        }
        self.total_bytes = self.total_bytes.saturating_add(size);
        if self.total_bytes > self.bounds.total_max_bytes {
            return Err(FrameError::TooLong(self.bounds.total_max_bytes));
        }
        usize::try_from(size).map_err(|_| FrameError::BodySize { size, max })
    }
}

fn whole(header: FrameHeader, bytes: Vec<u8>) -> Result<Frame, FrameError> {
    match header {
        FrameHeader::Artifact(ArtifactHeader { checksum, .. }) if Checksum::of(&bytes) != checksum => {
            Err(FrameError::Checksum(checksum))
        }
        FrameHeader::Artifact(ArtifactHeader { checksum, .. }) => Ok(Frame::Artifact { checksum, bytes }),
        FrameHeader::Page(PageHeader { signature, .. }) => Ok(Frame::Page { signature, bytes }),
    }
}

/// The frame of an artifact, to be sent as it is.
///
/// # Errors
/// When the header cannot be written.
pub fn encode_artifact(checksum: Checksum, bytes: &[u8]) -> Result<Vec<u8>, canonical::CanonicalError> {
    encode(&FrameHeader::Artifact(ArtifactHeader { checksum, size: bytes.len() as u64 }), bytes)
}

/// The frame of a page of a snapshot.
///
/// # Errors
/// When the header cannot be written.
pub fn encode_page(signature: Signature, bytes: &[u8]) -> Result<Vec<u8>, canonical::CanonicalError> {
    encode(&FrameHeader::Page(PageHeader { signature, size: bytes.len() as u64 }), bytes)
}

/// What ends a stream.
pub const FRAME_END: [u8; 4] = [0; 4];

fn encode(header: &FrameHeader, bytes: &[u8]) -> Result<Vec<u8>, canonical::CanonicalError> {
    let header = canonical::write(header)?;
    let length = u32::try_from(header.len()).unwrap_or(u32::MAX);
    Ok([&length.to_be_bytes(), header.as_slice(), bytes].concat())
}
