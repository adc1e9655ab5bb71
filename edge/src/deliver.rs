//! From a verified page to what the cells serve. The order is what keeps every promise: artifacts first, then the index
//! (from there on the change is wanted for ever), then the pins, then each cell by itself. A crash between two steps
//! leaves the old state or the new one, and what a cell lacks is written whole at the next chance.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use headwater_edge_wire::cell::must_compact;
use headwater_edge_wire::checksum::Checksum;
use headwater_edge_wire::ids::{CellNumber, DomainId, Epoch, Sequence};
use headwater_edge_wire::manifest::{Descriptor, LiveDescriptor, Page};
use headwater_edge_wire::protocol::Refused;
use headwater_edge_wire::verify::{Pins, VerifiedPage};

use crate::build::{Builder, Built, Proof};
use crate::cell::{Cell, CellError};
use crate::control::{Control, ControlError};
use crate::disk::DiskError;
use crate::identity::Identity;
use crate::index::{Entry, Index};
use crate::journal::{IndexError, Record};
use crate::layout::Layout;
use crate::pins::PinsFile;
use crate::plan::{self, Names, Refusal};
use crate::probe;
use crate::spool::{Span, Spool};
use crate::store::Store;

/// Why a page or snapshot was not taken. What is served stays.
#[derive(Debug, thiserror::Error)]
pub enum DeliverError {
    /// The disk.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The index.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// The control plane.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// A body that broke off.
    #[error("the answer broke off: {0}")]
    Stream(String),
    /// A body that breaks a rule.
    #[error("the answer breaks a rule: {0}")]
    Rule(String),
    /// A snapshot that must not be used.
    #[error("the snapshot is refused: {0}")]
    Snapshot(#[from] headwater_edge_wire::snapshot::SnapshotRefusal),
    /// Not enough room for a download.
    #[error("the disk is full: {free} bytes are free, {need} are needed; nothing was downloaded")]
    NoRoom {
        /// What is free.
        free: u64,
        /// What is needed.
        need: u64,
    },
}

impl DeliverError {
    /// The stable name of the reason.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Disk(error) if error.is_full() => "disk_full",
            Self::Index(IndexError::Disk(error)) if error.is_full() => "disk_full",
            Self::Disk(_) | Self::Index(_) => "disk",
            Self::Control(error) => error.code(),
            Self::Stream(_) | Self::Rule(_) => "broken_stream",
            Self::Snapshot(_) => "snapshot_refused",
            Self::NoRoom { .. } => "disk_full",
        }
    }
}

/// Everything that delivery works on.
pub struct Delivery {
    /// Where things lie.
    pub layout: Layout,
    /// Whose it is.
    pub identity: Arc<Identity>,
    /// The artifacts.
    pub store: Store,
    /// What is to be served.
    pub index: Index,
    /// What is believed.
    pub pins: Pins,
    /// Where that is kept.
    pub pins_file: PinsFile,
    /// The cells.
    pub cells: Vec<Cell>,
    /// Who has a hostname, by its hash.
    pub owners: HashMap<u64, DomainId>,
    /// Compiles.
    pub builder: Builder,
    /// What must stay free on the disk.
    pub min_free_bytes: u64,
    /// Why a cell lags behind the index, by cell.
    pub faults: BTreeMap<CellNumber, String>,
    /// Artifacts that did not hold, with their sizes: they are fetched again.
    pub to_fetch: BTreeMap<Checksum, u64>,
    /// Whether the journal does not hold: everything is fetched again.
    pub is_index_bad: bool,
}

/// A descriptor that may be taken, or why not.
type Judged = (LiveDescriptor, Result<Built, Refusal>);
/// The same with the line that cells read.
pub type Checked = (LiveDescriptor, Result<(Built, Vec<u8>), Refusal>);

impl Delivery {
    /// Takes a page.
    ///
    /// # Errors
    /// When nothing of it was taken; the same page can be taken again.
    pub fn apply(&mut self, page: &VerifiedPage, control: &Control) -> Result<(), DeliverError> {
        let next = self.pins.after(page);
        let page = page.page();
        if page.descriptors.is_empty() {
            let is_news = next != self.pins;
            return if is_news { self.settle(Vec::new(), next) } else { Ok(()) };
        }
        self.fetch_for(page, control)?;
        let (judged, spool) = self.judge(page, &next)?;
        let (records, lines) = self.records(page, judged, &next)?;
        self.settle(records, next.clone())?;
        for cell in 0..self.cells.len() {
            self.extend_cell(cell, &lines, &spool, &next);
        }
        Ok(())
    }

    /// Verifies and compiles every descriptor of a page; the lines go to a file, so that memory holds one at a time.
    fn judge(&mut self, page: &Page, next: &Pins) -> Result<(Vec<Verdict>, Spool), DeliverError> {
        let mut spool = Spool::create(&self.layout)?;
        let mut verdicts = Vec::new();
        let mut batch = Vec::new();
        let mut batch_bytes = 0;
        for descriptor in &page.descriptors {
            let Descriptor::Live(live) = descriptor else { continue };
            let judged = self.judge_one(live, page, next);
            batch_bytes += live.size;
            batch.push((live.clone(), judged));
            if batch_bytes >= probe::CHECK_BATCH_BYTES {
                self.check(std::mem::take(&mut batch), &mut spool, &mut verdicts)?;
                batch_bytes = 0;
            }
        }
        self.check(batch, &mut spool, &mut verdicts)?;
        Ok((verdicts, spool))
    }

    fn judge_one(&mut self, live: &LiveDescriptor, page: &Page, next: &Pins) -> Result<Built, Refusal> {
        let is_new_epoch = page.epoch != self.index.cursor().0;
        let held = self.index.domains().get(&live.id);
        plan::admit(live, held, is_new_epoch, self.cells.len(), self.store.budget())?;
        let bytes = self.store.get(&live.checksum).ok_or_else(|| {
            Refusal::new("not_delivered", "the control plane does not deliver its artifact")
        })?;
        self.builder.build(live.clone(), Some(&page.content_key), &bytes, Proof::Signed(&next.keys))
    }

    /// Asks a running cell whether it would take the lines, then keeps those that it would.
    fn check(
        &mut self,
        batch: Vec<Judged>,
        spool: &mut Spool,
        verdicts: &mut Vec<Verdict>,
    ) -> Result<(), DeliverError> {
        for (live, judged) in self.checked(batch)? {
            let (sequence, id) = (live.sequence, live.id);
            let outcome = match judged {
                Ok((built, line)) => {
                    let at = spool.push(&line)?;
                    let mut cells = Vec::new();
                    for cell in
                        self.cells.iter_mut().filter(|cell| built.put.descriptor.cells.contains(&cell.number))
                    {
                        for (id, version) in built.key_names() {
                            if let Some(pem) = built.keys.get(id, version) {
                                cell.put_key(id, version, pem)?;
                            }
                        }
                        cells.push(cell.number);
                    }
                    Ok((Box::new(built.put), at))
                }
                Err(refusal) => Err(refusal),
            };
            verdicts.push(Verdict { id, sequence, domain: live.domain, revision: live.revision, outcome });
        }
        Ok(())
    }

    /// The lines of a batch, without those that the runtime of a cell says it would refuse.
    ///
    /// # Errors
    /// Never by a refusal.
    pub fn checked(&self, batch: Vec<Judged>) -> Result<Vec<Checked>, DeliverError> {
        let mut lines = Vec::new();
        let mut out = Vec::new();
        for (live, judged) in batch {
            let judged = judged.and_then(|built| match built.compiled.line() {
                Ok(line) => Ok((built, line)),
                Err(error) => Err(Refusal::new("malformed", error.to_string())),
            });
            if let Ok((_, line)) = &judged {
                lines.push((out.len(), line.clone()));
            }
            out.push((live, judged));
        }
        let refused = self
            .cells
            .iter()
            .find_map(|cell| probe::check(cell.dir(), lines.iter().map(|(_, line)| line.as_slice())).ok());
        for (line, reason) in refused.into_iter().flatten() {
            if let Some((at, _)) = lines.get(line)
                && let Some((_, judged)) = out.get_mut(*at)
            {
                *judged = Err(Refusal::new("runtime", reason));
            }
        }
        Ok(out)
    }

    /// What is recorded of a page, and where the lines of its domains lie.
    fn records(
        &mut self,
        page: &Page,
        verdicts: Vec<Verdict>,
        next: &Pins,
    ) -> Result<(Vec<Record>, Lines), DeliverError> {
        let held =
            |id| self.index.domains().get(&id).map(|entry: &Entry| entry.hosts.to_vec()).unwrap_or_default();
        let mut names: Vec<_> = page
            .descriptors
            .iter()
            .filter_map(|descriptor| match descriptor {
                Descriptor::Removed(gone) => Some(Names { id: gone.id, old: held(gone.id), new: Vec::new() }),
                Descriptor::Live(_) => None,
            })
            .collect();
        names.extend(verdicts.iter().filter_map(|verdict| {
            let (put, _) = verdict.outcome.as_ref().ok()?;
            Some(Names { id: verdict.id, old: held(verdict.id), new: put.hosts.clone() })
        }));
        let clashing = plan::conflicts(&names, |name| self.owners.get(&name).copied());
        let (mut records, mut lines) = (Vec::new(), Lines::new());
        for descriptor in &page.descriptors {
            if let Descriptor::Removed(gone) = descriptor {
                records.push(Record::Remove(gone.id));
                records.push(Record::Cleared(gone.id));
                lines.insert(gone.id, (0, None));
            }
        }
        for verdict in verdicts {
            let outcome = if clashing.contains(&verdict.id) {
                Err(Refusal::new("hostname_conflict", "one of its hostnames belongs to another domain"))
            } else {
                verdict.outcome
            };
            match outcome {
                Ok((put, at)) => {
                    let cells = put.descriptor.cells.iter().fold(0, |mask, cell| mask | 1_u32 << cell.get());
                    lines.insert(verdict.id, (cells, Some(at)));
                    records.push(Record::Put(put));
                    records.push(Record::Cleared(verdict.id));
                }
                Err(refusal) => {
                    let refused =
                        Refused::new(&verdict.domain, verdict.revision, refusal.code, &refusal.detail);
                    tracing::warn!(domain = %verdict.domain, revision = %verdict.revision, code = refusal.code,
                        detail = %refusal.detail, "refused; what is active stays");
                    records.push(Record::Refused { id: verdict.id, sequence: verdict.sequence, refused });
                }
            }
        }
        for cell in &self.cells {
            let is_touched = lines.iter().any(|(id, (mask, _))| {
                let old = self.index.domains().get(id).map_or(0, |entry| entry.cells);
                (old | mask) & (1 << cell.number.get()) != 0
            });
            if is_touched {
                records.push(Record::Touched {
                    cell: cell.number,
                    epoch: next.epoch,
                    sequence: next.through,
                });
            }
        }
        Ok((records, lines))
    }

    /// Commits records and pins.
    fn settle(&mut self, records: Vec<Record>, next: Pins) -> Result<(), DeliverError> {
        let mut gone = Vec::new();
        for record in &records {
            let (id, kept) = match record {
                Record::Put(put) => (put.descriptor.id, Some(put.descriptor.checksum)),
                Record::Remove(id) => (*id, None),
                _ => continue,
            };
            if let Some(old) = self.index.domains().get(&id) {
                gone.push((id, old.hosts.clone(), (Some(old.checksum) != kept).then_some(old.checksum)));
            }
        }
        self.index.append(records.clone(), &next)?;
        for (id, hosts, checksum) in gone {
            hosts.iter().for_each(|host| {
                if self.owners.get(host) == Some(&id) {
                    self.owners.remove(host);
                }
            });
            if let Some(checksum) = checksum {
                self.store.discard(&checksum);
            }
        }
        for record in &records {
            if let Record::Put(put) = record {
                self.owners.extend(put.hosts.iter().map(|host| (*host, put.descriptor.id)));
            }
        }
        self.pins_file.write(&self.identity.state_key, &next)?;
        self.pins = next;
        Ok(())
    }

    /// Switches a cell to a generation with the changes of a page. What fails is told and mended later.
    fn extend_cell(&mut self, at: usize, lines: &Lines, spool: &Spool, next: &Pins) {
        let Some(number) = self.cells.get(at).map(|cell| cell.number) else { return };
        let place = (next.epoch, next.through);
        if self.index.touched(number) != place {
            return;
        }
        let bit = 1_u32 << number.get();
        let outcome = (|| -> Result<bool, CellError> {
            let Some(cell) = self.cells.get_mut(at) else { return Ok(true) };
            let Some(live) = cell.live() else { return Ok(false) };
            let mut written = live.written;
            written.delta_lines += lines.len() as u64;
            if self.faults.contains_key(&number) || must_compact(&live.manifest, next.epoch, written) {
                return Ok(false);
            }
            let mut stage = cell.stage()?;
            for (id, (mask, at)) in lines {
                match at.filter(|_| mask & bit != 0) {
                    Some(at) => stage.line(&put_line(&spool.read(at)?))?,
                    None => stage.line(&Cell::removal(*id))?,
                }
            }
            cell.extend(stage, next.through)?;
            cell.clean()?;
            Ok(true)
        })();
        match outcome {
            Ok(true) => {}
            Ok(false) => self.mend_cell(at),
            Err(error) => self.lag(number, &error),
        }
    }

    /// Says that a cell lags behind.
    pub fn lag(&mut self, cell: CellNumber, error: &dyn std::fmt::Display) {
        tracing::error!(%cell, %error, "a cell stays on its last good generation");
        self.faults.insert(cell, error.to_string());
    }

    /// Whether a cell serves everything that the index says.
    pub fn is_current(&self, cell: &Cell) -> bool {
        cell.live().is_some()
            && cell.place() >= self.index.touched(cell.number)
            && !self.faults.contains_key(&cell.number)
    }

    /// Writes a cell whole from the index. What fails is told; it is tried again later.
    pub fn mend_cell(&mut self, at: usize) {
        let Some(number) = self.cells.get(at).map(|cell| cell.number) else { return };
        match self.rebuild(at, false) {
            Ok(_) => {
                self.faults.remove(&number);
            }
            Err(error) => self.lag(number, &error),
        }
    }

    /// The artifacts that the index names and the store lacks.
    pub fn lost(&self) -> BTreeMap<Checksum, u64> {
        let lost = self.index.domains().values().filter(|entry| self.store.get(&entry.checksum).is_none());
        lost.filter_map(|entry| Some((entry.checksum, self.index.put(entry).ok()?.descriptor.size))).collect()
    }

    /// Writes a cell whole from the index. Where nothing else is left to serve from, `is_last_resort` takes what there
    /// is and says how many domains are missing.
    ///
    /// # Errors
    /// When the generation could not be written; what is served stays.
    pub fn rebuild(&mut self, at: usize, is_last_resort: bool) -> Result<u64, DeliverError> {
        let (epoch, sequence): (Epoch, Sequence) = self.index.cursor();
        let Some(cell) = self.cells.get_mut(at) else { return Ok(0) };
        let bit = 1_u32 << cell.number.get();
        let mut stage = cell.stage()?;
        let (mut used, mut missing) = (BTreeSet::new(), 0);
        for entry in self.index.domains().values().filter(|entry| entry.cells & bit != 0) {
            let built = (|| {
                let put = self.index.put(entry)?;
                let bytes = self.store.get(&entry.checksum).ok_or(IndexError::Unwritable);
                let bytes = bytes.map_err(|_| lost(&put.descriptor))?;
                let content_key = put.content_key.clone();
                let built = self.builder.build(put.descriptor, content_key.as_ref(), &bytes, Proof::Recorded);
                built.map_err(|refusal| DeliverError::Stream(refusal.detail))
            })();
            match built {
                Ok(built) => {
                    for (id, version) in built.key_names() {
                        if let Some(pem) = built.keys.get(id, version) {
                            cell.put_key(id, version, pem)?;
                            used.insert(crate::index::host_hash(&headwater_edge_wire::compiled::key_file(
                                id, version,
                            )));
                        }
                    }
                    let line =
                        built.compiled.line().map_err(|error| DeliverError::Stream(error.to_string()))?;
                    stage.line(&line)?;
                }
                Err(error) if is_last_resort => {
                    tracing::error!(%error, "a domain cannot be served until its artifact is fetched again");
                    missing += 1;
                }
                Err(error) => return Err(error),
            }
        }
        cell.replace(stage, epoch, sequence).map_err(|error| match error {
            CellError::Disk(error) => DeliverError::Disk(error),
            other => DeliverError::Stream(other.to_string()),
        })?;
        cell.clean()?;
        cell.clean_keys(&used)?;
        Ok(missing)
    }
}

fn lost(descriptor: &LiveDescriptor) -> DeliverError {
    DeliverError::Stream(format!(
        "the artifact of {} is damaged and must be fetched again",
        descriptor.domain
    ))
}

/// A line of a base as a line of a delta.
fn put_line(line: &[u8]) -> Vec<u8> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    [b"{\"put\":", line, b"}\n"].concat()
}

/// What came of a descriptor.
struct Verdict {
    id: DomainId,
    sequence: Sequence,
    domain: String,
    revision: headwater_edge_wire::ids::Revision,
    outcome: Result<(Box<crate::journal::Put>, Span), Refusal>,
}

/// The changes of a page: the cells of each domain and its line; without a line it is removed.
type Lines = BTreeMap<DomainId, (u32, Option<Span>)>;
