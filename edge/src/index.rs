//! What this edge is to serve: a journal on the disk and a compact index of it in memory. Records count only once a
//! commit that carries the pins follows them; what is cut off at the end was never promised to anybody.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use headwater_edge_wire::checksum::Checksum;
use headwater_edge_wire::compiled::key_file;
use headwater_edge_wire::ids::{CellNumber, DomainId, EdgeId, Epoch, Revision, Sequence};
use headwater_edge_wire::protocol::Refused;
use headwater_edge_wire::verify::Pins;

use crate::disk::{self, Pace, Passing};
use crate::journal::{IndexError, Log, Place, Put, Reader, Record};
use crate::mac::StateKey;

/// A journal is written anew when it has this many records more than twice the domains.
pub const COMPACT_SPARE_RECORDS: usize = 4_096;

/// What the memory holds of a domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The number of the change that brought it.
    pub sequence: Sequence,
    /// Its revision.
    pub revision: Revision,
    /// Its artifact.
    pub checksum: Checksum,
    /// Its cells, a bit for each.
    pub cells: u32,
    /// The hashes of its hostnames.
    pub hosts: Box<[u64]>,
    place: Place,
}

/// A refusal that stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// The number of the refused change.
    pub sequence: Sequence,
    /// What is told.
    pub refused: Refused,
}

/// The index.
pub struct Index {
    dir: PathBuf,
    edge: EdgeId,
    key: Arc<StateKey>,
    number: u64,
    log: Option<Log>,
    pins: Option<Pins>,
    domains: BTreeMap<DomainId, Entry>,
    refused: BTreeMap<DomainId, Standing>,
    touched: Touched,
}

/// The change at which each cell last changed.
pub type Touched = BTreeMap<CellNumber, (Epoch, Sequence)>;

/// What was found at the opening.
#[derive(Debug, Default)]
pub struct Found {
    /// What does not hold, for people.
    pub damage: Vec<String>,
}

impl Index {
    /// Reads the newest journal that holds, up to the last commit that holds.
    ///
    /// # Errors
    /// When the directory cannot be used. Damage is no error: it is told, and what holds is used.
    pub fn open(dir: &Path, edge: EdgeId, key: Arc<StateKey>) -> Result<(Self, Found), IndexError> {
        disk::make_dir(dir, disk::PRIVATE_DIR)?;
        let mut found = Found::default();
        let mut numbers: Vec<u64> = Vec::new();
        for name in disk::names(dir)? {
            match name.strip_suffix(".log").and_then(|number| number.parse().ok()) {
                Some(number) => numbers.push(number),
                None => disk::discard(&dir.join(name)),
            }
        }
        numbers.sort_unstable_by(|a, b| b.cmp(a));
        let mut index = Self {
            dir: dir.to_owned(),
            edge,
            key,
            number: numbers.first().copied().unwrap_or(0),
            log: None,
            pins: None,
            domains: BTreeMap::new(),
            refused: BTreeMap::new(),
            touched: Touched::new(),
        };
        for number in numbers {
            match index.replay(number) {
                Ok(damage) => {
                    found.damage.extend(damage.map(|error| error.to_string()));
                    if index.pins.is_some() {
                        break;
                    }
                }
                Err(error) => found.damage.push(error.to_string()),
            }
        }
        Ok((index, found))
    }

    fn path(&self, number: u64) -> PathBuf {
        self.dir.join(format!("{number:012}.log"))
    }

    /// Takes over what a journal holds up to its last commit. What was found damaged behind it is given back.
    fn replay(&mut self, number: u64) -> Result<Option<IndexError>, IndexError> {
        let mut reader = Reader::open(self.path(number), number, Arc::clone(&self.key), self.edge)?;
        let (mut pending, mut records, mut pending_records) = (Pending::default(), 0, 1);
        let damage = loop {
            match reader.next() {
                Err(error) => break Some(error),
                Ok(None) => break None,
                Ok(Some((Record::Commit(pins), _))) => {
                    records += pending_records + 1;
                    pending_records = 0;
                    std::mem::take(&mut pending).apply(
                        &mut self.domains,
                        &mut self.refused,
                        &mut self.touched,
                    );
                    self.pins = Some(pins);
                    (self.log, self.number) = (Some(reader.log(records)?), number);
                }
                Ok(Some((record, place))) => {
                    pending_records += 1;
                    pending.add(record, place);
                }
            }
        };
        Ok(damage)
    }

    /// The pins of the last commit.
    pub fn pins(&self) -> Option<&Pins> {
        self.pins.as_ref()
    }

    /// Where this index stands.
    pub fn cursor(&self) -> (Epoch, Sequence) {
        self.pins.as_ref().map_or((Epoch::ZERO, Sequence::ZERO), |pins| (pins.epoch, pins.through))
    }

    /// The domains.
    pub fn domains(&self) -> &BTreeMap<DomainId, Entry> {
        &self.domains
    }

    /// The refusals that stand.
    pub fn refused(&self) -> &BTreeMap<DomainId, Standing> {
        &self.refused
    }

    /// The change at which a cell last changed.
    pub fn touched(&self, cell: CellNumber) -> (Epoch, Sequence) {
        self.touched.get(&cell).copied().unwrap_or_default()
    }

    /// The artifacts that are in use.
    pub fn checksums(&self) -> BTreeSet<Checksum> {
        self.domains.values().map(|entry| entry.checksum).collect()
    }

    /// The whole record of a domain, read from the journal.
    ///
    /// # Errors
    /// When the journal does not hold there any more.
    pub fn put(&self, entry: &Entry) -> Result<Put, IndexError> {
        match &self.log {
            Some(log) => log.read(entry.place),
            None => Err(IndexError::Damaged { path: self.path(self.number), at: entry.place.at }),
        }
    }

    /// The domain, and its revision, that a file of a key belongs to. It reads the record of every domain.
    pub fn key_owner(&self, file: &str) -> Option<(String, Revision)> {
        self.domains.values().find_map(|entry| {
            let descriptor = self.put(entry).ok()?.descriptor;
            let is_its = descriptor.keys.iter().any(|key| key_file(key.id, key.version) == file);
            is_its.then_some((descriptor.domain, descriptor.revision))
        })
    }

    /// The journal and how far it was written: what stands before that never changes any more.
    pub fn extent(&self) -> Option<Extent> {
        let log = self.log.as_ref()?;
        let (key, edge) = (Arc::clone(&self.key), self.edge);
        Some(Extent { path: log.path.clone(), number: self.number, end: log.end(), key, edge })
    }

    /// Appends the records of a page and commits.
    ///
    /// # Errors
    /// When they may not be durable; then nothing of them counts.
    pub fn append(&mut self, records: Vec<Record>, pins: &Pins) -> Result<(), IndexError> {
        let Some(log) = self.log.as_mut() else {
            let mut draft = self.draft()?;
            for record in records {
                draft.push(record)?;
            }
            return self.install(draft, pins);
        };
        let mark = log.mark()?;
        let mut pending = Pending::default();
        let appended = (|| {
            fail::fail_point!("edge.persist.before");
            for record in records {
                let place = log.push(&record)?;
                pending.add(record, place);
            }
            log.commit(pins)?;
            fail::fail_point!("edge.persist.after");
            Ok(())
        })();
        if let Err(error) = appended {
            log.go_back(mark);
            return Err(error);
        }
        pending.apply(&mut self.domains, &mut self.refused, &mut self.touched);
        self.pins = Some(pins.clone());
        let is_long = log.records() > self.domains.len() * 2 + COMPACT_SPARE_RECORDS;
        if is_long { self.compact() } else { Ok(()) }
    }

    /// Begins a journal that replaces this one.
    ///
    /// # Errors
    /// When its file cannot be made.
    pub fn draft(&self) -> Result<Draft, IndexError> {
        self.begin("draft", self.number + 1)
    }

    /// Begins a journal that will never be put in place: room for descriptors.
    ///
    /// # Errors
    /// When its file cannot be made.
    pub fn scratch(&self) -> Result<Draft, IndexError> {
        self.begin("scratch", 0)
    }

    fn begin(&self, name: &str, number: u64) -> Result<Draft, IndexError> {
        let path = self.dir.join(name);
        let passing = Passing::new(path.clone());
        let log = Log::create(path, number, Arc::clone(&self.key), self.edge)?;
        Ok(Draft { log, pending: Pending::default(), _passing: passing })
    }

    /// Commits a draft and puts it in the place of the journal. The one before is kept until the next time.
    ///
    /// # Errors
    /// When a step fails; the journal stays then.
    pub fn install(&mut self, mut draft: Draft, pins: &Pins) -> Result<(), IndexError> {
        fail::fail_point!("edge.persist.before");
        draft.log.commit(pins)?;
        let path = self.path(self.number + 1);
        disk::rename(&draft.log.path, &path)?;
        disk::sync_dir(&self.dir)?;
        fail::fail_point!("edge.persist.after");
        draft.log.path = path;
        if let Some(old) = self.number.checked_sub(1) {
            disk::discard(&self.path(old));
        }
        self.number += 1;
        self.log = Some(draft.log);
        self.pins = Some(pins.clone());
        (self.domains, self.refused, self.touched) = (BTreeMap::new(), BTreeMap::new(), Touched::new());
        draft.pending.apply(&mut self.domains, &mut self.refused, &mut self.touched);
        Ok(())
    }

    fn compact(&mut self) -> Result<(), IndexError> {
        let Some(pins) = self.pins.clone() else { return Ok(()) };
        let mut draft = self.draft()?;
        for entry in self.domains.values() {
            draft.push(Record::Put(Box::new(self.put(entry)?)))?;
        }
        for (id, standing) in &self.refused {
            let Standing { sequence, refused } = standing.clone();
            draft.push(Record::Refused { id: *id, sequence, refused })?;
        }
        for (cell, (epoch, sequence)) in &self.touched {
            draft.push(Record::Touched { cell: *cell, epoch: *epoch, sequence: *sequence })?;
        }
        self.install(draft, &pins)
    }
}

/// A journal up to where it was written.
#[derive(Clone)]
pub struct Extent {
    /// Its file.
    pub path: PathBuf,
    number: u64,
    end: u64,
    key: Arc<StateKey>,
    edge: EdgeId,
}

impl Extent {
    /// Reads it at this pace.
    ///
    /// # Errors
    /// When it does not hold, or is not there any more.
    pub fn check(&self, pace: Pace) -> Result<(), IndexError> {
        let mut reader = Reader::open(self.path.clone(), self.number, Arc::clone(&self.key), self.edge)?;
        let mut at = reader.at();
        while reader.at() < self.end && reader.next()?.is_some() {
            pace.spend(usize::try_from(reader.at() - at).unwrap_or(usize::MAX));
            at = reader.at();
        }
        if at == self.end { Ok(()) } else { Err(IndexError::Damaged { path: self.path.clone(), at }) }
    }
}

/// A journal that is not in place yet.
pub struct Draft {
    log: Log,
    pending: Pending,
    _passing: Passing,
}

impl Draft {
    /// Adds a record.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn push(&mut self, record: Record) -> Result<(), IndexError> {
        let place = self.log.push(&record)?;
        self.pending.add(record, place);
        Ok(())
    }

    /// The record of a domain that was pushed.
    ///
    /// # Errors
    /// When there is none or it cannot be read.
    pub fn put(&mut self, id: DomainId) -> Result<Put, IndexError> {
        self.log.flush()?;
        match self.pending.changes.get(&id) {
            Some(Some(entry)) => self.log.read(entry.place),
            _ => Err(IndexError::Unwritable),
        }
    }

    /// The domains so far.
    pub fn entries(&self) -> impl Iterator<Item = (DomainId, &Entry)> {
        self.pending.changes.iter().filter_map(|(id, entry)| entry.as_ref().map(|entry| (*id, entry)))
    }
}

/// What records say that no commit follows yet.
#[derive(Default)]
struct Pending {
    changes: BTreeMap<DomainId, Option<Entry>>,
    refused: BTreeMap<DomainId, Option<Standing>>,
    touched: Touched,
}

impl Pending {
    fn add(&mut self, record: Record, place: Place) {
        match record {
            Record::Put(put) => {
                let cells = put.descriptor.cells.iter().fold(0, |mask, cell| mask | 1 << cell.get());
                let entry = Entry {
                    sequence: put.descriptor.sequence,
                    revision: put.descriptor.revision,
                    checksum: put.descriptor.checksum,
                    cells,
                    hosts: put.hosts.into(),
                    place,
                };
                self.changes.insert(put.descriptor.id, Some(entry));
            }
            Record::Remove(id) => {
                self.changes.insert(id, None);
            }
            Record::Refused { id, sequence, refused } => {
                self.refused.insert(id, Some(Standing { sequence, refused }));
            }
            Record::Cleared(id) => {
                self.refused.insert(id, None);
            }
            Record::Touched { cell, epoch, sequence } => {
                self.touched.insert(cell, (epoch, sequence));
            }
            Record::Begin { .. } | Record::Commit(_) => {}
        }
    }

    fn apply(
        self,
        domains: &mut BTreeMap<DomainId, Entry>,
        standing: &mut BTreeMap<DomainId, Standing>,
        touched: &mut Touched,
    ) {
        touched.extend(self.touched);
        for (id, change) in self.changes {
            match change {
                Some(entry) => domains.insert(id, entry),
                None => domains.remove(&id),
            };
        }
        for (id, change) in self.refused {
            match change {
                Some(refused) => standing.insert(id, refused),
                None => standing.remove(&id),
            };
        }
    }
}

/// The hash under which a hostname stands in the index.
pub fn host_hash(name: &str) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = *blake3::hash(name.as_bytes()).as_bytes();
    u64::from_be_bytes([a, b, c, d, e, f, g, h])
}

#[cfg(test)]
impl Entry {
    pub(crate) fn for_tests(revision: Revision, checksum: Checksum) -> Self {
        let place = Place::default();
        Self { sequence: Sequence::ZERO, revision, checksum, cells: 1, hosts: Box::default(), place }
    }
}

#[cfg(test)]
pub(crate) mod for_tests {
    use super::{Checksum, Revision};

    pub(crate) fn descriptor(
        revision: Revision,
        checksum: Checksum,
    ) -> headwater_edge_wire::manifest::LiveDescriptor {
        serde_json::from_value(serde_json::json!({
            "sequence": 1, "id": uuid::Uuid::nil(), "domain": "example.com", "revision": revision,
            "checksum": checksum, "size": 1,
            "signature": {"key": "00".repeat(8), "value": "00".repeat(64)}, "cells": [0, 1], "keys": [],
        }))
        .unwrap()
    }
}
