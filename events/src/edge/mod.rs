//! Edges: hosts with cells that serve what is placed on them, and the pools that cells belong to.
//!
//! What must hold: an edge's cells are counted once, at its creation; a key, a token or the address of an agent is in no
//! event, only the serial of an identity, the fingerprint of its key, and the public addresses that DNS gives out.

mod country;
mod decide;
mod endpoints;
mod facts;

pub use country::{CONTINENTS, is_country};
pub use decide::{address_faults, decide};
pub use endpoints::{Endpoints, EndpointsChanged};
pub use facts::{
    AddressesChanged, CellSwitched, CloneSign, EdgeCreated, EdgeDeleted, EdgeSettings, IdentityCloned,
    IdentityIssued, IdentityRevoked, PoolCreated, RevocationReason,
};

use crate::domain::LabelsPatch;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// Octets of an edge's name, at most.
pub const EDGE_NAME_MAX_BYTES: usize = 100;
/// Cells of an edge, at most.
pub const CELLS_MAX_COUNT: u8 = 32;
/// Cells of an edge where nobody says how many.
pub const CELLS_DEFAULT_COUNT: u8 = 8;

/// Public addresses of an edge, at most.
pub const ADDRESSES_MAX_COUNT: usize = 16;

/// What can be asked of an edge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EdgeCommand {
    /// Make it known, with its public addresses.
    Create(EdgeCreated, Vec<IpAddr>),
    /// Change what is said of it.
    Update(EdgePatch),
    /// Answer it, or answer it no longer.
    SetEnabled(bool),
    /// Send it no visitors, or send it some again.
    SetDrained(bool),
    /// Take the domains off a cell, or put some on it again.
    SetCellDrained {
        /// Which.
        cell: u8,
        /// Off or on.
        drained: bool,
    },
    /// Say that it was given an identity.
    RecordIdentity(IdentityIssued),
    /// End every identity that it was given.
    RevokeIdentity(RevocationReason),
    /// Say that somebody else seems to use its identity.
    ReportClone(IdentityCloned),
    /// Forget it.
    Delete,
}

/// What `PATCH` says of an edge; what is none stays.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EdgePatch {
    /// Where it is: ISO 3166-1 alpha-2.
    pub country: Option<String>,
    /// Where it is: one of [`CONTINENTS`].
    pub continent: Option<String>,
    /// How its labels change.
    pub labels: Option<LabelsPatch>,
    /// `Some(None)` removes it.
    pub external_id: Option<Option<String>>,
    /// Its public addresses, all of them.
    pub addresses: Option<Vec<IpAddr>>,
}

/// The facts that a decision on an edge reads.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EdgeView {
    /// The edge, if there is one.
    pub edge: Option<EdgeState>,
    /// Whether the identity that the command names stands in the log already.
    pub is_recorded: bool,
    /// Whether it is the only edge that DNS sends visitors to.
    pub is_last_endpoint: bool,
    /// Whether the caller allows the last one to go.
    pub allows_last_endpoint: bool,
}

/// An edge as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EdgeState {
    /// Its name.
    pub name: String,
    /// What `PATCH` changes.
    pub settings: EdgeSettings,
    /// Its public addresses, in order.
    pub addresses: Vec<IpAddr>,
    /// How many cells it has.
    pub cells: u8,
    /// Whether it is answered.
    pub enabled: bool,
    /// Whether it gets no visitors.
    pub drained: bool,
    /// The cells that hold no domains.
    pub drained_cells: BTreeSet<u8>,
    /// Whether an identity was given to it and not revoked.
    pub has_identity: bool,
    /// Whether a clone of its identity was reported since it was last revoked.
    pub is_cloned: bool,
}
