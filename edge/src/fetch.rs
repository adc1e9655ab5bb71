//! Fetching artifacts in bulk. An answer that breaks off is asked for again; one artifact that breaks the rules or never
//! comes holds up nobody: the others are taken without it.

use std::collections::BTreeMap;
use std::io::Read;

use headwater_edge_wire::checksum::Checksum;
use headwater_edge_wire::frame::{BULK_ARTIFACTS_MAX, Frame, FrameBounds, FrameDecoder, FrameError};
use headwater_edge_wire::manifest::{Descriptor, Page};

use crate::control::Control;
use crate::deliver::{DeliverError, Delivery};
use crate::disk;

/// The most bytes of artifacts that one request asks for.
pub const FETCH_MAX_BYTES: u64 = 64 << 20;
/// How often an artifact is asked for that a whole answer did not hold.
pub const FETCH_ATTEMPTS: u32 = 3;
/// How much of a body is read at once.
const CHUNK_BYTES: usize = 64 << 10;

impl Delivery {
    /// Fetches what the store lacks. What a whole answer does not hold three times is left to be refused.
    pub(crate) fn fetch_for(&self, page: &Page, control: &Control) -> Result<(), DeliverError> {
        let mut missing = BTreeMap::new();
        for descriptor in &page.descriptors {
            let Descriptor::Live(live) = descriptor else { continue };
            if live.size <= self.store.budget().bytes() as u64 && self.store.get(&live.checksum).is_none() {
                missing.insert(live.checksum, live.size);
            }
        }
        self.fetch(missing, control).map(drop)
    }

    /// Fetches artifacts into the store and gives back what did not come.
    ///
    /// # Errors
    /// When an answer broke off or cannot be kept.
    pub fn fetch(
        &self,
        mut missing: BTreeMap<Checksum, u64>,
        control: &Control,
    ) -> Result<BTreeMap<Checksum, u64>, DeliverError> {
        self.have_room(missing.values().sum())?;
        for _ in 0..FETCH_ATTEMPTS {
            if missing.is_empty() {
                break;
            }
            let wanted = std::mem::take(&mut missing);
            let mut rest = wanted.into_iter().peekable();
            while rest.peek().is_some() {
                let (mut chunk, mut bytes) = (BTreeMap::new(), 0_u64);
                while let Some((checksum, size)) = rest.next_if(|(_, size)| {
                    chunk.is_empty() || (bytes + size <= FETCH_MAX_BYTES && chunk.len() < BULK_ARTIFACTS_MAX)
                }) {
                    bytes += size;
                    chunk.insert(checksum, size);
                }
                missing.extend(self.fetch_split(chunk, control)?);
            }
        }
        Ok(missing)
    }

    /// Fetches a chunk. Where one artifact breaks the rules of the stream, the others are asked for without it, so
    /// that it holds up nobody.
    fn fetch_split(
        &self,
        chunk: BTreeMap<Checksum, u64>,
        control: &Control,
    ) -> Result<BTreeMap<Checksum, u64>, DeliverError> {
        let mut missing = BTreeMap::new();
        let mut parts = vec![chunk];
        while let Some(mut part) = parts.pop() {
            match self.fetch_chunk(part.clone(), control) {
                Ok(left) => missing.extend(left),
                Err(DeliverError::Rule(_)) if part.len() > 1 => {
                    let middle = part.keys().nth(part.len() / 2).copied();
                    let upper = middle.map(|middle| part.split_off(&middle)).unwrap_or_default();
                    parts.extend([upper, part]);
                }
                Err(DeliverError::Rule(_)) => missing.extend(part),
                Err(error) => return Err(error),
            }
        }
        Ok(missing)
    }

    fn fetch_chunk(
        &self,
        mut chunk: BTreeMap<Checksum, u64>,
        control: &Control,
    ) -> Result<BTreeMap<Checksum, u64>, DeliverError> {
        fail::fail_point!("edge.fetch.before");
        let bounds = FrameBounds::artifacts(chunk.len(), self.store.budget());
        let mut body = control.artifacts(chunk.keys().copied().collect())?;
        let mut decoder = FrameDecoder::new(bounds);
        let mut incoming = self.store.incoming();
        let mut buffer = vec![0; CHUNK_BYTES];
        loop {
            let n = body.read(&mut buffer).map_err(|error| DeliverError::Stream(error.to_string()))?;
            let Some(mut input) = buffer.get(..n).filter(|input| !input.is_empty()) else { break };
            loop {
                match decoder.read(&mut input) {
                    Ok(None) => break,
                    Ok(Some(Frame::Artifact { checksum, bytes })) if chunk.remove(&checksum).is_some() => {
                        incoming.add(checksum, &bytes)?;
                    }
                    // Nobody asked for it, or it came damaged: that one alone is lost.
                    Ok(Some(_)) | Err(FrameError::Checksum(_)) => {}
                    Err(error) => return Err(DeliverError::Rule(error.to_string())),
                }
            }
        }
        decoder.finish().map_err(|error| DeliverError::Stream(error.to_string()))?;
        incoming.finish()?;
        fail::fail_point!("edge.fetch.after");
        Ok(chunk)
    }

    /// Refuses a download that would leave too little room.
    ///
    /// # Errors
    /// When there is too little room.
    pub fn have_room(&self, download_bytes: u64) -> Result<(), DeliverError> {
        let free = disk::free_bytes(self.layout.root())?;
        // An artifact lies in the store and as a line in a cell.
        let need = download_bytes.saturating_mul(2).saturating_add(self.min_free_bytes);
        if free < need { Err(DeliverError::NoRoom { free, need }) } else { Ok(()) }
    }
}
