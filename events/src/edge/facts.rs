//! What happens to edges and pools. None of it is a secret.

use crate::event::Labels;
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// An edge host was made known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EdgeCreated {
    /// Its name, unique.
    pub name: String,
    /// Where it is: ISO 3166-1 alpha-2.
    pub country: String,
    /// Where it is: `AF`, `AN`, `AS`, `EU`, `NA`, `OC` or `SA`.
    pub continent: String,
    /// How many cells it has; it never changes.
    pub cells: u8,
    /// Labels.
    pub labels: Labels,
    /// The operator's own number for it.
    pub external_id: Option<String>,
}

/// What is said of an edge and may change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EdgeSettings {
    /// See [`EdgeCreated::country`].
    pub country: String,
    /// See [`EdgeCreated::continent`].
    pub continent: String,
    /// Labels.
    pub labels: Labels,
    /// The operator's own number for it.
    pub external_id: Option<String>,
}

/// The public addresses of an edge changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddressesChanged {
    /// What they were.
    pub before: Vec<IpAddr>,
    /// What they are now, in order, each once.
    pub after: Vec<IpAddr>,
}

/// A cell was drained or undrained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CellSwitched {
    /// Which, from 0.
    pub cell: u8,
}

/// An identity certificate was given to an edge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdentityIssued {
    /// The serial number of the certificate, in hex.
    pub serial: String,
    /// SHA-256 of the public key (SubjectPublicKeyInfo), in hex.
    pub key: String,
    /// When the certificate ends.
    pub not_after: Timestamp,
}

/// Why the identities of an edge were revoked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RevocationReason {
    /// Somebody asked for new ones.
    Rotated,
}

/// Every identity that an edge was given so far stopped working for good.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdentityRevoked {
    /// Why.
    pub reason: RevocationReason,
}

/// What tells that an identity is used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CloneSign {
    /// An older key is in use beside the newer one that replaced it.
    Keys,
    /// It speaks from two places in turn.
    Sources,
    /// Two counters of heartbeats go on side by side.
    Counters,
}

/// Somebody else seems to use the identity of an edge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdentityCloned {
    /// The serial number of the certificate that was shown last, in hex.
    pub serial: String,
    /// What tells so.
    pub sign: CloneSign,
}

/// An edge is gone for good.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EdgeDeleted {
    /// The name that it had.
    pub name: String,
}

/// A service class of cells was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolCreated {
    /// Its name, unique.
    pub name: String,
    /// Who shares it: `shared`.
    pub kind: String,
    /// How visitors find its cells: `geo_unicast`.
    pub routing: String,
    /// On how many cells of an edge a domain stands.
    pub replicas_per_edge: u8,
    /// Domains of a cell, at most.
    pub domains_per_cell: u32,
    /// Below so many ready cells an edge gets no visitors of it.
    pub minimum_ready_cells: u8,
}

impl PoolCreated {
    /// The pool that every cell belongs to.
    pub fn shared() -> Self {
        Self {
            name: "shared".to_owned(),
            kind: "shared".to_owned(),
            routing: "geo_unicast".to_owned(),
            replicas_per_edge: 1,
            domains_per_cell: 20_000,
            minimum_ready_cells: 1,
        }
    }
}
