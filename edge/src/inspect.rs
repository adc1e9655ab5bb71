//! Looking, slowly and again and again, whether what lies on the disk still holds. Nothing is changed here: files may be
//! removed while they are read, so a suspicion goes to whoever writes there, who looks again (`attend.rs`).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use headwater_edge_wire::artifact::ArtifactBudget;
use headwater_edge_wire::checksum::Checksum;
use headwater_edge_wire::ids::CellNumber;

use crate::agent::{Shared, lock};
use crate::cell::Cell;
use crate::deliver::Delivery;
use crate::disk::Pace;
use crate::identity::{self, Identity, RegistrationFile};
use crate::index::Extent;
use crate::layout::Layout;
use crate::mac::StateKey;
use crate::pins::PinsFile;
use crate::store::Store;

/// What a look reads in a second, at most.
const READ_MAX_BYTES_PER_SECOND: u32 = 8 << 20;
/// What the opening of a small file counts for: no more than 200 files a second.
const FILE_COUNTS_BYTES: usize = (READ_MAX_BYTES_PER_SECOND / 200) as usize;
/// How often a list that was asked for is looked for.
const ASK_EVERY: Duration = Duration::from_millis(100);

/// What may not hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Suspect {
    /// An artifact.
    Artifact(Checksum),
    /// What a cell serves.
    Cell(CellNumber),
    /// A key of a cell.
    Keys(CellNumber),
    /// The journal.
    Index,
    /// A small file of which there are two.
    Copies,
}

/// What there is to look at.
#[derive(Default)]
pub(crate) struct Census {
    is_wanted: bool,
    found: Option<(Vec<Checksum>, Option<Extent>)>,
}

impl Census {
    /// Lists what there is, where that was asked for.
    pub(crate) fn give(&mut self, delivery: &Delivery) {
        if std::mem::take(&mut self.is_wanted) {
            let checksums = delivery.index.domains().values().map(|entry| entry.checksum);
            self.found = Some((checksums.collect(), delivery.index.extent()));
        }
    }
}

/// The copies of small files that are there and do not hold, as they are called in the state directory.
pub(crate) fn bad_copies(layout: &Layout, key: &StateKey) -> BTreeSet<String> {
    let mut bad = identity::bad_copies(layout);
    bad.extend(RegistrationFile::new(layout).bad_copies(key));
    bad.extend(PinsFile::new(layout).bad_copies(key));
    bad.iter().map(|path| layout.name(path)).collect()
}

pub(crate) fn inspect_loop(shared: &Shared, identity: &Identity) {
    let every = Duration::from_secs(u64::from(shared.settings.check_seconds));
    loop {
        let begun = Instant::now();
        inspect(shared, identity);
        std::thread::sleep(every.saturating_sub(begun.elapsed()).max(ASK_EVERY));
    }
}

fn inspect(shared: &Shared, identity: &Identity) {
    let pace = Pace::of(READ_MAX_BYTES_PER_SECOND);
    let suspect = |found: Suspect| {
        tracing::debug!(?found, "this may not hold");
        lock(&shared.suspects).insert(found);
    };
    let count = u8::try_from(shared.settings.cells.len()).unwrap_or(u8::MAX);
    for number in CellNumber::first(count) {
        let dir = shared.layout.cell(number);
        match Cell::inspect(&dir, number, Arc::clone(&identity.state_key), pace) {
            Ok((cell, damage)) => {
                if !damage.is_empty() {
                    suspect(Suspect::Cell(number));
                }
                if cell.bad_keys().is_ok_and(|bad| !bad.is_empty()) {
                    suspect(Suspect::Keys(number));
                }
            }
            Err(error) => tracing::warn!(%error, cell = %number, "cannot look at a cell"),
        }
    }
    // These are only ever replaced whole, and often: what is seen now is told now.
    for file in bad_copies(&shared.layout, &identity.state_key) {
        shared.damaged(&file, None);
        suspect(Suspect::Copies);
    }
    lock(&shared.census).is_wanted = true;
    let (checksums, extent) = loop {
        match lock(&shared.census).found.take() {
            Some(found) => break found,
            None => std::thread::sleep(ASK_EVERY),
        }
    };
    if extent.is_some_and(|extent| extent.check(pace).is_err()) {
        suspect(Suspect::Index);
    }
    let store = match Store::open(&shared.layout.artifacts(), ArtifactBudget::default()) {
        Ok(store) => store,
        Err(error) => return tracing::warn!(%error, "cannot look at the artifacts"),
    };
    for checksum in checksums {
        match store.get(&checksum) {
            Some(bytes) => pace.spend(bytes.len().max(FILE_COUNTS_BYTES)),
            None => {
                suspect(Suspect::Artifact(checksum));
                pace.spend(FILE_COUNTS_BYTES);
            }
        }
    }
}
