//! The journal: how records lie on the disk. Every record is authenticated and chained to the one before, so none can
//! be changed, moved, left out or taken from another edge.

use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use headwater_edge_wire::ids::{CellNumber, DomainId, EdgeId, Epoch, Sequence};
use headwater_edge_wire::manifest::LiveDescriptor;
use headwater_edge_wire::protocol::Refused;
use headwater_edge_wire::seal::SealedContentKey;
use headwater_edge_wire::verify::Pins;
use serde::{Deserialize, Serialize};

use crate::disk::{self, At, DiskError};
use crate::mac::{MAC_BYTES, Mac, StateKey};

/// The longest record: a descriptor with all the keys it may have.
pub const RECORD_MAX_BYTES: usize = 4 << 20;
const HEADER_BYTES: usize = 4 + MAC_BYTES;
const SCHEMA: u32 = 1;

/// One record.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub enum Record {
    /// The first one.
    Begin {
        /// The form of the journal.
        schema: u32,
        /// Whose it is.
        edge: EdgeId,
    },
    /// The domain is served as this artifact says.
    Put(Box<Put>),
    /// The domain is served no longer.
    Remove(DomainId),
    /// A change was refused; what stood before it stays. It is reported until a later change of the domain.
    Refused {
        /// The domain.
        id: DomainId,
        /// The number of the change.
        sequence: Sequence,
        /// What is told.
        refused: Refused,
    },
    /// The domain's refusal no longer stands.
    Cleared(DomainId),
    /// What this cell serves changed with this change, and not since.
    Touched {
        /// The cell.
        cell: CellNumber,
        /// The epoch of the change.
        epoch: Epoch,
        /// The change.
        sequence: Sequence,
    },
    /// Everything before counts from here on.
    Commit(Pins),
}

/// A domain as it was taken.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Put {
    /// The descriptor, with the sealed keys.
    pub descriptor: LiveDescriptor,
    /// What opens the keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_key: Option<SealedContentKey>,
    /// The hashes of its hostnames.
    pub hosts: Vec<u64>,
}

/// Where the body of a record lies, and what it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Place {
    /// The offset.
    pub at: u64,
    length: u32,
    digest: [u8; 16],
}

impl Place {
    fn new(at: u64, length: u32, body: &[u8]) -> Self {
        let mut digest = [0; 16];
        digest.iter_mut().zip(blake3::hash(body).as_bytes()).for_each(|(to, from)| *to = *from);
        Self { at, length, digest }
    }
}

/// Why the journal cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    /// The disk.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// A record that does not hold.
    #[error("{} does not hold at byte {at}", .path.display())]
    Damaged {
        /// The journal.
        path: PathBuf,
        /// Where.
        at: u64,
    },
    /// A record that is too long, or that JSON cannot hold.
    #[error("a record of the index cannot be written")]
    Unwritable,
}

/// A journal that is being written.
pub struct Log {
    pub(crate) path: PathBuf,
    file: File,
    buffer: Vec<u8>,
    end: u64,
    chain: Mac,
    key: Arc<StateKey>,
    records: usize,
}

/// The end of a journal, to go back to.
#[derive(Clone, Copy)]
pub struct Mark {
    end: u64,
    chain: Mac,
    records: usize,
}

/// Records are written once so many bytes have come together.
const BUFFER_BYTES: usize = 256 << 10;

impl Log {
    /// Begins a journal.
    ///
    /// # Errors
    /// When its file cannot be made.
    pub fn create(path: PathBuf, number: u64, key: Arc<StateKey>, edge: EdgeId) -> Result<Self, IndexError> {
        let file = disk::create(&path, disk::PRIVATE_FILE)?;
        let chain = seed(&key, number);
        let mut log = Self { path, file, buffer: Vec::new(), end: 0, chain, key, records: 0 };
        log.push(&Record::Begin { schema: SCHEMA, edge })?;
        Ok(log)
    }

    /// Adds a record.
    ///
    /// # Errors
    /// When it is too long or cannot be written.
    pub fn push(&mut self, record: &Record) -> Result<Place, IndexError> {
        let body = serde_json::to_vec(record).map_err(|_| IndexError::Unwritable)?;
        let length = u32::try_from(body.len()).map_err(|_| IndexError::Unwritable)?;
        if body.len() > RECORD_MAX_BYTES {
            return Err(IndexError::Unwritable);
        }
        self.chain = self.key.mac("index", &[&self.chain, &body]);
        self.buffer.extend_from_slice(&length.to_be_bytes());
        self.buffer.extend_from_slice(&self.chain);
        self.buffer.extend_from_slice(&body);
        let place = Place::new(self.end + HEADER_BYTES as u64, length, &body);
        self.end += (HEADER_BYTES + body.len()) as u64;
        self.records += 1;
        if self.buffer.len() >= BUFFER_BYTES {
            self.flush()?;
        }
        Ok(place)
    }

    /// Writes what is held back.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn flush(&mut self) -> Result<(), IndexError> {
        let buffer = std::mem::take(&mut self.buffer);
        disk::write(&mut self.file, &self.path, &buffer)?;
        Ok(())
    }

    /// Makes everything so far count, durably.
    ///
    /// # Errors
    /// When it may not be durable.
    pub fn commit(&mut self, pins: &Pins) -> Result<(), IndexError> {
        self.push(&Record::Commit(pins.clone()))?;
        self.flush()?;
        disk::sync_file(&self.file, &self.path)?;
        Ok(())
    }

    /// How far it was written.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// How many records it has.
    pub fn records(&self) -> usize {
        self.records
    }

    /// The end as it is now. What lies behind it in the file is cut off.
    ///
    /// # Errors
    /// When the file cannot be cut.
    pub fn mark(&mut self) -> Result<Mark, IndexError> {
        self.file.set_len(self.end).at("cut", &self.path)?;
        self.file.seek(SeekFrom::Start(self.end)).at("seek in", &self.path)?;
        Ok(Mark { end: self.end, chain: self.chain, records: self.records })
    }

    /// Forgets what was added since. What of it reached the file is cut off, at the latest by the next mark.
    pub fn go_back(&mut self, mark: Mark) {
        Mark { end: self.end, chain: self.chain, records: self.records } = mark;
        self.buffer.clear();
        if let Err(error) = self.file.set_len(self.end) {
            tracing::warn!(%error, "what was not committed is cut off later");
        }
    }

    /// The record of a domain.
    ///
    /// # Errors
    /// When it is not what was written there.
    pub fn read(&self, place: Place) -> Result<Put, IndexError> {
        let mut body = vec![0; place.length as usize];
        self.file.read_exact_at(&mut body, place.at).at("read", &self.path)?;
        let is_same = Place::new(place.at, place.length, &body) == place;
        match serde_json::from_slice(&body) {
            Ok(Record::Put(put)) if is_same => Ok(*put),
            _ => Err(IndexError::Damaged { path: self.path.clone(), at: place.at }),
        }
    }
}

fn seed(key: &StateKey, number: u64) -> Mac {
    key.mac("index-begin", &[&number.to_be_bytes()])
}

/// Reads a journal from its beginning.
pub struct Reader {
    file: File,
    input: BufReader<File>,
    path: PathBuf,
    at: u64,
    chain: Mac,
    key: Arc<StateKey>,
}

impl Reader {
    /// Opens a journal and reads its first record.
    ///
    /// # Errors
    /// When it cannot be opened or is not this edge's.
    pub fn open(path: PathBuf, number: u64, key: Arc<StateKey>, whose: EdgeId) -> Result<Self, IndexError> {
        let file = File::options().read(true).write(true).open(&path).at("open", &path)?;
        let input = BufReader::with_capacity(BUFFER_BYTES, file.try_clone().at("open", &path)?);
        let chain = seed(&key, number);
        let mut reader = Self { file, input, path, at: 0, chain, key };
        match reader.next()? {
            Some((Record::Begin { schema: SCHEMA, edge }, _)) if edge == whose => Ok(reader),
            _ => Err(IndexError::Damaged { path: reader.path, at: 0 }),
        }
    }

    /// The journal up to here, to be gone on with.
    ///
    /// # Errors
    /// When the file cannot be opened a second time.
    pub fn log(&self, records: usize) -> Result<Log, IndexError> {
        Ok(Log {
            path: self.path.clone(),
            file: self.file.try_clone().at("open", &self.path)?,
            buffer: Vec::new(),
            end: self.at,
            chain: self.chain,
            key: Arc::clone(&self.key),
            records,
        })
    }

    /// How far it was read.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// The next record; nothing at the end of the file.
    ///
    /// # Errors
    /// When it does not hold.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<(Record, Place)>, IndexError> {
        let damaged = |at| IndexError::Damaged { path: self.path.clone(), at };
        let mut header = [0; HEADER_BYTES];
        let mut got = 0;
        while let Some(rest) = header.get_mut(got..).filter(|rest| !rest.is_empty()) {
            match self.input.read(rest).at("read", &self.path)? {
                0 if got == 0 => return Ok(None),
                0 => return Err(damaged(self.at)),
                n => got += n,
            }
        }
        let [a, b, c, d, mac @ ..] = header;
        let length = u32::from_be_bytes([a, b, c, d]);
        if length as usize > RECORD_MAX_BYTES {
            return Err(damaged(self.at));
        }
        let mut body = vec![0; length as usize];
        self.input.read_exact(&mut body).map_err(|_| damaged(self.at))?;
        if !self.key.holds("index", &[&self.chain, &body], &mac) {
            return Err(damaged(self.at));
        }
        let record = serde_json::from_slice(&body).map_err(|_| damaged(self.at))?;
        let place = Place::new(self.at + HEADER_BYTES as u64, length, &body);
        self.at += (HEADER_BYTES + body.len()) as u64;
        self.chain = mac;
        Ok(Some((record, place)))
    }
}
