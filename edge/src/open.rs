//! What a start finds on the disk: everything is proven before it is used, and what does not hold is told.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use headwater_edge_wire::artifact::ArtifactBudget;
use headwater_edge_wire::ids::{CellNumber, DomainId, Epoch, Sequence};
use headwater_edge_wire::time::Timestamp;
use headwater_edge_wire::verify::Pins;

use crate::agent::Shared;
use crate::attend::{INDEX, cell_name};
use crate::build::Builder;
use crate::cell::{Cell, Owner};
use crate::connect::register_first;
use crate::deliver::Delivery;
use crate::disk;
use crate::identity::{Identity, RegistrationFile};
use crate::index::Index;
use crate::mac::StateKey;
use crate::pins::{self, PinsFile};
use crate::store::Store;
use crate::watch::keep_cell;

/// Opens everything, and says what does not hold.
pub(crate) fn open(
    shared: &Shared,
    identity: Arc<Identity>,
    owner: Option<Owner>,
) -> Result<Delivery, Box<dyn std::error::Error + Send + Sync>> {
    let layout = shared.layout.clone();
    disk::discard(&layout.staging());
    let budget = ArtifactBudget::default();
    let key = Arc::clone(&identity.state_key);
    let store = Store::open(&layout.artifacts(), budget)?;
    let cells = open_cells(shared, &key, owner)?;
    // nginx needs nothing but what is proven here: it reads it while the agent reads the rest.
    cells.iter().filter(|cell| cell.live().is_some()).for_each(|cell| keep_cell(shared, cell.number));
    let (index, found) = Index::open(&layout.index(), identity.edge, Arc::clone(&key))?;
    for cell in &cells {
        for name in cell.bad_keys()? {
            shared.damaged(&format!("{}/{name}", cell_name(cell.number)), index.key_owner(&name));
        }
    }
    let mut copies = identity.damage.clone();
    let pins_file = PinsFile::new(&layout);
    let (registration, bad) = RegistrationFile::new(&layout).read(&key);
    copies.extend(bad);
    let (pinned, bad, mend) = pins_file.read(&key);
    copies.extend(bad);
    copies.iter().for_each(|path| shared.damaged(&layout.name(path), None));
    let from_index = index.pins().cloned();
    let keys = registration.as_ref().map(|registration| registration.answer.keys.clone());
    let fresh = keys.map(|keys| Pins {
        edge: identity.edge,
        epoch: Epoch::ZERO,
        through: Sequence::ZERO,
        keys,
        keys_at: Timestamp::EPOCH,
    });
    let known = [pinned.clone(), from_index].into_iter().flatten().reduce(pins::higher).or(fresh);
    let floor = cells.iter().map(Cell::place).max().unwrap_or_default();
    let pins = match known.map(|known| pins::raised(known, floor)) {
        Some(pins) => {
            if mend || pinned.as_ref() != Some(&pins) {
                pins_file.write(&key, &pins)?;
            }
            pins
        }
        // Not registered yet: the first answer brings the keys.
        None => register_first(shared, &identity),
    };
    judge_journal(shared, &found.damage, index.cursor() < pins::place(&pins));
    let owners: HashMap<u64, DomainId> =
        index.domains().iter().flat_map(|(id, entry)| entry.hosts.iter().map(|host| (*host, *id))).collect();
    shared.status().edge = Some(identity.edge);
    let min_free_bytes = shared.settings.min_free_mib << 20;
    let builder = Builder::new(Arc::clone(&identity), budget);
    let (faults, to_fetch, is_index_bad) = (BTreeMap::new(), BTreeMap::new(), false);
    Ok(Delivery {
        layout,
        identity,
        store,
        index,
        pins,
        pins_file,
        cells,
        owners,
        builder,
        min_free_bytes,
        faults,
        to_fetch,
        is_index_bad,
    })
}

/// Proves every cell, side by side: what each serves is read whole.
fn open_cells(
    shared: &Shared,
    key: &Arc<StateKey>,
    owner: Option<Owner>,
) -> Result<Vec<Cell>, Box<dyn std::error::Error + Send + Sync>> {
    let numbers = CellNumber::first(u8::try_from(shared.settings.cells.len()).unwrap_or(u8::MAX));
    let opened = std::thread::scope(|scope| {
        let open = |number| {
            let (dir, key) = (shared.layout.cell(number), Arc::clone(key));
            scope.spawn(move || Cell::open(&dir, number, key, owner))
        };
        let begun: Vec<_> = numbers.into_iter().map(open).collect();
        begun.into_iter().map(std::thread::ScopedJoinHandle::join).collect::<Vec<_>>()
    });
    let mut cells = Vec::new();
    for one in opened {
        let (cell, bad) = one.map_err(|_| "a cell could not be looked at")??;
        if !bad.is_empty() {
            tracing::error!(cell = %cell.number, damage = bad.join("; "), "what the cell serves does not hold");
            shared.damaged(&cell_name(cell.number), None);
        }
        cells.push(cell);
    }
    Ok(cells)
}

/// What a crash cut off behind the last commit was promised to nobody, and is no damage.
fn judge_journal(shared: &Shared, found: &[String], is_behind: bool) {
    for detail in found {
        if is_behind {
            tracing::error!(detail, "the journal does not hold; everything is fetched again");
            shared.damaged(INDEX, None);
        } else {
            tracing::info!(detail, "what was not committed is left out");
        }
    }
}
