//! What does not hold on the disk is told and made whole: an artifact is fetched again, a cell and its keys are written
//! from the index, the index from a snapshot, a copy from what is in memory. What is served meanwhile was read before
//! it was damaged, or is the last that holds.

use std::collections::{BTreeMap, BTreeSet};

use headwater_edge_wire::checksum::Checksum;
use headwater_edge_wire::ids::{CellNumber, Revision};

use crate::agent::{Shared, lock, now};
use crate::damage::Damage;
use crate::deliver::Delivery;
use crate::identity::{Identity, RegistrationFile};
use crate::inspect::{Suspect, bad_copies};
use crate::pins;

/// How the journal is called.
pub(crate) const INDEX: &str = "index";

/// How what a cell serves is called.
pub(crate) fn cell_name(number: CellNumber) -> String {
    format!("cell-{number}")
}

impl Shared {
    /// A file does not hold.
    pub(crate) fn damaged(&self, file: &str, whose: Option<(String, Revision)>) {
        self.status().damaged.found(now(), file, whose);
    }
}

/// Looks again at what may not hold, tells of what does not, and begins to make it whole.
pub(crate) fn attend(shared: &Shared, delivery: &mut Delivery) {
    let suspects = std::mem::take(&mut *lock(&shared.suspects));
    let mut artifacts = BTreeSet::new();
    for suspect in suspects {
        match suspect {
            Suspect::Artifact(checksum) => {
                artifacts.insert(checksum);
            }
            Suspect::Cell(number) => {
                let cell = delivery.cells.iter().find(|cell| cell.number == number);
                if let Some(reason) = cell.and_then(|cell| cell.damage()) {
                    shared.damaged(&cell_name(number), None);
                    delivery.lag(number, &format!("what it serves is damaged on the disk: {reason}"));
                }
            }
            Suspect::Keys(number) => attend_keys(shared, delivery, number),
            Suspect::Index => {
                if !is_journal_whole(delivery) {
                    shared.damaged(INDEX, None);
                    delivery.is_index_bad = true;
                }
            }
            Suspect::Copies => attend_copies(shared, delivery),
        }
    }
    if !artifacts.is_empty() {
        attend_artifacts(shared, delivery, &artifacts);
    }
}

fn is_journal_whole(delivery: &Delivery) -> bool {
    delivery.index.extent().is_none_or(|extent| extent.check(crate::disk::Pace::FREE).is_ok())
}

fn attend_artifacts(shared: &Shared, delivery: &mut Delivery, suspects: &BTreeSet<Checksum>) {
    let mut gone = suspects.clone();
    for entry in delivery.index.domains().values().filter(|entry| suspects.contains(&entry.checksum)) {
        gone.remove(&entry.checksum);
        if delivery.store.get(&entry.checksum).is_some() {
            continue;
        }
        let file = shared.layout.name(&delivery.store.path(&entry.checksum));
        let put = delivery.index.put(entry).ok();
        shared
            .damaged(&file, put.as_ref().map(|put| (put.descriptor.domain.clone(), put.descriptor.revision)));
        if let Some(put) = put {
            delivery.to_fetch.insert(entry.checksum, put.descriptor.size);
        }
    }
    // Nothing names these any more.
    gone.iter().for_each(|checksum| delivery.store.discard(checksum));
}

fn attend_keys(shared: &Shared, delivery: &mut Delivery, number: CellNumber) {
    let Some(at) = delivery.cells.iter().position(|cell| cell.number == number) else { return };
    let bad = delivery.cells.get(at).and_then(|cell| cell.bad_keys().ok()).unwrap_or_default();
    for name in &bad {
        let whose = delivery.index.key_owner(name);
        let is_used = whose.is_some();
        let file = format!("{}/{name}", cell_name(number));
        shared.damaged(&file, whose);
        // One that nothing names is kept for a generation before; damaged it is of no use to it either.
        if !is_used && let Some(cell) = delivery.cells.get(at) {
            crate::disk::discard(&cell.dir().join(name));
        }
    }
    if !bad.is_empty() {
        delivery.mend_cell(at);
    }
}

fn attend_copies(shared: &Shared, delivery: &Delivery) {
    let key = &delivery.identity.state_key;
    for file in bad_copies(&shared.layout, key) {
        shared.damaged(&file, None);
    }
    let mended = delivery.pins_file.write(key, &delivery.pins);
    // Both are written anew by reading them.
    let _read = RegistrationFile::new(&shared.layout).read(key);
    let mended = mended
        .map_err(|error| error.to_string())
        .and_then(|()| Identity::load(&shared.layout).map(drop).map_err(|error| error.to_string()));
    if let Err(error) = mended {
        tracing::error!(%error, "a copy cannot be written anew");
    }
}

/// Says which of what did not hold is whole again.
pub(crate) fn settle(shared: &Shared, delivery: &mut Delivery) {
    let open: Vec<Damage> = shared.status().damaged.open().cloned().collect();
    let mut whole: BTreeMap<String, bool> = BTreeMap::new();
    if !open.is_empty() {
        let copies = bad_copies(&shared.layout, &delivery.identity.state_key);
        let named = delivery.index.checksums();
        for Damage { file, .. } in open {
            let is_whole = match file.split_once('/') {
                Some(("artifacts", name)) => name.parse::<Checksum>().map_or(true, |checksum| {
                    !named.contains(&checksum) || delivery.store.get(&checksum).is_some()
                }),
                Some(("identity", _)) => !copies.contains(&file),
                Some((cell, key)) => {
                    let cell = delivery.cells.iter().find(|one| cell_name(one.number) == cell);
                    cell.and_then(|cell| cell.bad_keys().ok())
                        .is_none_or(|bad| !bad.contains(&key.to_owned()))
                }
                None if file == INDEX => {
                    delivery.index.cursor() >= pins::place(&delivery.pins) && is_journal_whole(delivery)
                }
                None => {
                    let cell = delivery.cells.iter().find(|cell| cell_name(cell.number) == file);
                    cell.is_none_or(|cell| delivery.is_current(cell) && cell.damage().is_none())
                }
            };
            whole.insert(file, is_whole);
        }
    }
    if whole.get(INDEX) == Some(&true) {
        delivery.is_index_bad = false;
    }
    if !delivery.to_fetch.is_empty() {
        let named = delivery.index.checksums();
        let store = &delivery.store;
        delivery.to_fetch.retain(|checksum, _| named.contains(checksum) && store.get(checksum).is_none());
    }
    shared.status().damaged.look_again(now(), |damage| whole.get(&damage.file) == Some(&true));
}
