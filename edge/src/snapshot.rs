//! Taking everything anew. The stream is read once: descriptors go to a draft of the index, artifacts to the store, and
//! only then is each domain judged. A domain that is refused keeps what it had; one that the snapshot does not name is
//! served no longer. Memory holds the compact index of before, the one to come, and one artifact.

use std::collections::{BTreeMap, HashMap};
use std::io::Read;
use std::time::Instant;

use headwater_edge_wire::checksum::Checksum;
use headwater_edge_wire::frame::FrameError;
use headwater_edge_wire::ids::{AgentVersion, DomainId, Epoch};
use headwater_edge_wire::manifest::{Descriptor, LiveDescriptor};
use headwater_edge_wire::protocol::Refused;
use headwater_edge_wire::seal::SealedContentKey;
use headwater_edge_wire::snapshot::{Part, Snapshot, SnapshotReader, SnapshotRefusal};
use headwater_edge_wire::time::Timestamp;
use headwater_edge_wire::verify::{Pins, Reader};

use crate::agent::PROBE_WAIT;
use crate::build::{Built, Proof};
use crate::control::Control;
use crate::deliver::{DeliverError, Delivery};
use crate::index::Draft;
use crate::journal::{Put, Record};
use crate::plan::{self, Refusal};
use crate::probe::{self, Probe, probe_until};

const CHUNK_BYTES: usize = 64 << 10;
/// Artifacts of a snapshot become durable together.
const BATCH: usize = 500;

/// A snapshot as it came.
struct Read1 {
    whole: Snapshot,
    announced: Draft,
    content_key: Option<SealedContentKey>,
}

impl Delivery {
    /// Fetches and takes a snapshot.
    ///
    /// # Errors
    /// When nothing of it was taken.
    pub fn snapshot(&mut self, control: &Control, now: Timestamp) -> Result<Timestamp, DeliverError> {
        self.have_room(0)?;
        let Read1 { whole, mut announced, content_key } = self.receive(control, now)?;
        let next = self.pins.after(&whole.last);
        let missing = announced.entries().filter(|(_, entry)| whole.missing.contains(&entry.checksum));
        let missing: Vec<(DomainId, Checksum)> = missing.map(|(id, entry)| (id, entry.checksum)).collect();
        let mut wanted = BTreeMap::new();
        for (id, checksum) in missing {
            if self.store.get(&checksum).is_none() {
                wanted.insert(checksum, announced.put(id)?.descriptor.size);
            }
        }
        self.fetch(wanted, control)?;
        let (draft, owners) = self.draft_of(&mut announced, &whole, content_key.as_ref(), &next)?;
        let before: BTreeMap<DomainId, u32> =
            self.index.domains().iter().map(|(id, entry)| (*id, entry.cells)).collect();
        self.index.install(draft, &next)?;
        self.owners = owners;
        self.pins_file.write(&self.identity.state_key, &next)?;
        self.pins = next;
        self.store.clean(&self.index.checksums())?;
        self.mend_in_order(&before);
        Ok(whole.last.page().expires_at)
    }

    /// Writes every cell: first those that get domains, and once their workers serve them those that only lose some. A
    /// domain that moves is served by one of them all along.
    fn mend_in_order(&mut self, before: &BTreeMap<DomainId, u32>) {
        let (mut gained, mut moves) = (0, false);
        for (id, entry) in self.index.domains() {
            let old = before.get(id).copied().unwrap_or(0);
            gained |= entry.cells & !old;
            moves |= entry.cells & !old != 0 && old & !entry.cells != 0;
        }
        let gains =
            |at: &usize| self.cells.get(*at).is_some_and(|cell| gained & (1_u32 << cell.number.get()) != 0);
        let (first, rest): (Vec<usize>, Vec<usize>) = (0..self.cells.len()).partition(gains);
        for at in &first {
            self.mend_cell(*at);
        }
        if moves {
            let until = Instant::now() + PROBE_WAIT;
            for cell in first.iter().filter_map(|at| self.cells.get(*at)) {
                if !matches!(probe_until(cell, until), Some(Probe::Serves(_))) {
                    tracing::warn!(cell = %cell.number, "what moves to it may not be served for a moment");
                }
            }
        }
        for at in rest {
            self.mend_cell(at);
        }
    }

    fn receive(&mut self, control: &Control, now: Timestamp) -> Result<Read1, DeliverError> {
        fail::fail_point!("edge.fetch.before");
        let mut body = control.snapshot()?;
        let reader = Reader { agent: AgentVersion::CURRENT, now };
        let mut snapshot = SnapshotReader::new(self.pins.clone(), reader, self.store.budget());
        let mut announced = self.index.scratch()?;
        let (mut content_key, mut incoming, mut count) = (None, self.store.incoming(), 0);
        let mut buffer = vec![0; CHUNK_BYTES];
        loop {
            let n = body.read(&mut buffer).map_err(|error| DeliverError::Stream(error.to_string()))?;
            let Some(mut input) = buffer.get(..n).filter(|input| !input.is_empty()) else { break };
            loop {
                match snapshot.read(&mut input) {
                    Ok(None) => break,
                    Ok(Some(Part::Page(page))) => {
                        let page = page.into_page();
                        content_key = Some(page.content_key);
                        for descriptor in page.descriptors {
                            let Descriptor::Live(descriptor) = descriptor else { continue };
                            let put = Put { descriptor, content_key: None, hosts: Vec::new() };
                            announced.push(Record::Put(Box::new(put)))?;
                        }
                    }
                    Ok(Some(Part::Artifact { checksum, bytes, .. })) => {
                        incoming.add(checksum, &bytes)?;
                        count += 1;
                        if count % BATCH == 0 {
                            std::mem::replace(&mut incoming, self.store.incoming()).finish()?;
                            self.have_room(0)?;
                        }
                    }
                    // That artifact alone is lost; it is asked for by its name.
                    Err(SnapshotRefusal::Frame(FrameError::Checksum(_))) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        let mut whole = snapshot.finish()?;
        incoming.finish()?;
        fail::fail_point!("edge.fetch.after");
        whole
            .missing
            .extend(announced.entries().map(|(_, entry)| entry.checksum).filter(|sum| !self.store.has(sum)));
        Ok(Read1 { whole, announced, content_key })
    }

    fn draft_of(
        &mut self,
        announced: &mut Draft,
        whole: &Snapshot,
        content_key: Option<&SealedContentKey>,
        next: &Pins,
    ) -> Result<(Draft, HashMap<u64, DomainId>), DeliverError> {
        let mut draft = self.index.draft()?;
        let mut owners = HashMap::new();
        let (mut batch, mut bytes) = (Vec::new(), 0);
        for id in &whole.domains {
            let live = announced.put(*id)?.descriptor;
            bytes += live.size;
            let judged = self.judge_part(&live, content_key, next);
            batch.push((live, judged));
            if bytes >= probe::CHECK_BATCH_BYTES {
                self.take(std::mem::take(&mut batch), &mut draft, &mut owners)?;
                bytes = 0;
            }
        }
        self.take(batch, &mut draft, &mut owners)?;
        let (epoch, sequence): (Epoch, _) = (next.epoch, next.through);
        for cell in &self.cells {
            draft.push(Record::Touched { cell: cell.number, epoch, sequence })?;
        }
        Ok((draft, owners))
    }

    fn judge_part(
        &mut self,
        live: &LiveDescriptor,
        content_key: Option<&SealedContentKey>,
        next: &Pins,
    ) -> Result<Built, Refusal> {
        let is_new_epoch = next.epoch != self.index.cursor().0;
        let held = self.index.domains().get(&live.id);
        plan::admit(live, held, is_new_epoch, self.cells.len(), self.store.budget())?;
        let bytes = self.store.get(&live.checksum).ok_or_else(|| {
            Refusal::new("not_delivered", "the control plane does not deliver its artifact")
        })?;
        self.builder.build(live.clone(), content_key, &bytes, Proof::Signed(&next.keys))
    }

    fn take(
        &mut self,
        batch: Vec<(LiveDescriptor, Result<Built, Refusal>)>,
        draft: &mut Draft,
        owners: &mut HashMap<u64, DomainId>,
    ) -> Result<(), DeliverError> {
        for (live, judged) in self.checked(batch)? {
            let judged = judged.and_then(|(built, _)| {
                let is_taken = |host| owners.get(host).is_some_and(|owner| *owner != live.id);
                if built.put.hosts.iter().any(is_taken) {
                    let detail = "one of its hostnames belongs to another domain";
                    return Err(Refusal::new("hostname_conflict", detail));
                }
                Ok(built.put)
            });
            let put = match judged {
                Ok(put) => Some(put),
                Err(refusal) => {
                    tracing::warn!(domain = %live.domain, code = refusal.code, detail = %refusal.detail,
                        "refused; what is active stays");
                    let refused = Refused::new(&live.domain, live.revision, refusal.code, &refusal.detail);
                    draft.push(Record::Refused { id: live.id, sequence: live.sequence, refused })?;
                    self.index.domains().get(&live.id).map(|entry| self.index.put(entry)).transpose()?
                }
            };
            if let Some(put) = put {
                owners.extend(put.hosts.iter().map(|host| (*host, live.id)));
                draft.push(Record::Put(Box::new(put)))?;
            }
        }
        Ok(())
    }
}
