//! What this edge believes and never lowers, in a file of its own. It is written after the index was committed, so at
//! the start the higher of the two counts, and the epoch and sequence of every generation that holds are a floor too:
//! a state directory that was put back in part is told from one that is whole.

use std::path::PathBuf;

use headwater_edge_wire::canonical;
use headwater_edge_wire::ids::{Epoch, Sequence};
use headwater_edge_wire::verify::Pins;

use crate::disk::DiskError;
use crate::layout::Layout;
use crate::mac::StateKey;
use crate::twin::Twin;

const PINS_MAX_BYTES: usize = 8 << 10;

/// The file of the pins.
pub struct PinsFile {
    twin: Twin,
}

impl PinsFile {
    /// The file in a state directory.
    pub fn new(layout: &Layout) -> Self {
        Self { twin: Twin::new(&layout.identity(), "pins") }
    }

    /// Writes the pins, durably.
    ///
    /// # Errors
    /// When they may not have reached the disk.
    pub fn write(&self, key: &StateKey, pins: &Pins) -> Result<(), DiskError> {
        let body = canonical::write(pins).unwrap_or_default();
        self.twin.write(key, &body)
    }

    /// The copies that are there and do not hold.
    pub fn bad_copies(&self, key: &StateKey) -> Vec<PathBuf> {
        self.twin.read(key).bad
    }

    /// The highest of the copies that hold, and those that do not.
    pub fn read(&self, key: &StateKey) -> (Option<Pins>, Vec<PathBuf>, bool) {
        let copies = self.twin.read(key);
        let mend = copies.need_mending();
        let pins = copies.good.iter().filter_map(|body| canonical::read(body, PINS_MAX_BYTES).ok());
        (pins.reduce(higher), copies.bad, mend)
    }
}

/// The higher of two pins of one edge.
pub fn higher(a: Pins, b: Pins) -> Pins {
    if place(&b) > place(&a) { b } else { a }
}

/// Where pins stand.
pub fn place(pins: &Pins) -> (Epoch, Sequence) {
    (pins.epoch, pins.through)
}

/// Raises pins to a place that something else on the disk proves.
#[must_use]
pub fn raised(pins: Pins, floor: (Epoch, Sequence)) -> Pins {
    if floor > place(&pins) { Pins { epoch: floor.0, through: floor.1, ..pins } } else { pins }
}
