//! Zones of other servers, taken in. `source` reads them, `headwater_events::migration` says what of each is carried,
//! `take` makes a domain of one or brings it up to date, `pass` does that for all of them, `follow` again and again until
//! the cutover, `report` keeps what came of each.
//!
//! What must hold: a zone that cannot be taken in keeps no other from being so; one that was taken in is told as such
//! whenever the process dies; what others changed here is never overwritten by a source that is followed; secrets of a
//! source are read when they are needed and kept nowhere.

pub mod follow;
pub mod pass;
pub mod report;
mod room;
pub mod source;
pub mod sql;
mod take;

pub(crate) use pass::{cut_over, first};
pub use take::rehearse;

use headwater_events::migration::ImportRequested;
use headwater_events::reject::Guard;
use std::collections::BTreeSet;

/// Guards that whoever asked allowed to be crossed.
fn allowed(requested: &ImportRequested) -> BTreeSet<Guard> {
    requested.allowed.iter().filter_map(|name| Guard::from_name(name)).collect()
}
