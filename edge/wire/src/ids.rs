//! Identifiers and counters of the wire. Each kind has its own type; counters fit into the 53 bits that every JSON
//! reader keeps exactly, so a number means the same to Rust, PostgreSQL and Lua.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The greatest whole number that a double holds exactly, 2^53 - 1: Lua has no other numbers.
pub const COUNTER_MAX: u64 = (1 << 53) - 1;
/// The most cells of one edge.
pub const CELLS_PER_EDGE_MAX: u8 = 32;

/// A number that is out of the range of its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{what} must be between {min} and {max}")]
pub struct OutOfRange {
    what: &'static str,
    min: u64,
    max: u64,
}

macro_rules! uuid_id {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Uuid);

        impl $name {
            /// Wraps a UUID that is known to name a thing of this kind.
            pub const fn from_uuid(id: Uuid) -> Self { Self(id) }
            /// The bare UUID.
            pub const fn as_uuid(self) -> Uuid { self.0 }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { self.0.fmt(f) }
        }

        impl FromStr for $name {
            type Err = uuid::Error;
            fn from_str(text: &str) -> Result<Self, Self::Err> { Uuid::parse_str(text).map(Self) }
        }
    )+};
}

uuid_id! {
    /// A domain.
    DomainId,
    /// An edge host.
    EdgeId,
    /// A certificate and its key.
    CertificateId,
    /// Something an edge was asked to do.
    TaskId,
}

macro_rules! counter {
    ($($(#[$doc:meta])* $name:ident $what:literal),+ $(,)?) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
        #[serde(try_from = "u64", into = "u64")]
        pub struct $name(u64);

        impl $name {
            /// Before the first one.
            pub const ZERO: Self = Self(0);
            /// The bare number.
            pub const fn get(self) -> u64 { self.0 }
            /// The bare number as databases know it; nothing is lost, see [`COUNTER_MAX`].
            pub const fn as_i64(self) -> i64 { self.0.cast_signed() }
            /// The one that follows; the last one has none.
            pub const fn next(self) -> Option<Self> {
                if self.0 < COUNTER_MAX { Some(Self(self.0 + 1)) } else { None }
            }
        }

        impl From<u32> for $name {
            fn from(n: u32) -> Self { Self(u64::from(n)) }
        }

        impl From<$name> for u64 {
            fn from(n: $name) -> Self { n.0 }
        }

        impl TryFrom<u64> for $name {
            type Error = OutOfRange;
            fn try_from(n: u64) -> Result<Self, OutOfRange> {
                if n <= COUNTER_MAX { Ok(Self(n)) } else { Err(OutOfRange { what: $what, min: 0, max: COUNTER_MAX }) }
            }
        }

        impl TryFrom<i64> for $name {
            type Error = OutOfRange;
            fn try_from(n: i64) -> Result<Self, OutOfRange> {
                Self::try_from(u64::try_from(n).unwrap_or(u64::MAX))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { self.0.fmt(f) }
        }
    )+};
}

counter! {
    /// The number of one committed mutation of a domain.
    Revision "a revision",
    /// One incarnation of the numbering of an edge; only a restore raises it.
    Epoch "an epoch",
    /// The number of one change for one edge, inside an epoch.
    Sequence "a sequence",
    /// The number of one state of one cell, given by the agent.
    Generation "a generation",
    /// The version of a key or a certificate.
    Version "a version",
}

/// A cell of an edge, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct CellNumber(u8);

impl CellNumber {
    /// The bare number.
    pub const fn get(self) -> u8 {
        self.0
    }

    /// The cells of an edge that has `count` of them, at most [`CELLS_PER_EDGE_MAX`].
    pub fn first(count: u8) -> Vec<Self> {
        (0..count.min(CELLS_PER_EDGE_MAX)).map(Self).collect()
    }
}

impl TryFrom<u8> for CellNumber {
    type Error = OutOfRange;

    fn try_from(n: u8) -> Result<Self, OutOfRange> {
        let max = CELLS_PER_EDGE_MAX - 1;
        if n <= max { Ok(Self(n)) } else { Err(OutOfRange { what: "a cell", min: 0, max: u64::from(max) }) }
    }
}

impl From<CellNumber> for u8 {
    fn from(cell: CellNumber) -> Self {
        cell.0
    }
}

impl fmt::Display for CellNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A number of the agent's protocol: what an agent can read and do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AgentVersion(u32);

impl AgentVersion {
    /// What this code speaks.
    pub const CURRENT: Self = Self(1);

    /// A version by its number.
    pub const fn new(n: u32) -> Self {
        Self(n)
    }
}

impl fmt::Display for AgentVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The agents that may take something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentRange {
    /// The oldest that understands it.
    pub min: AgentVersion,
    /// The newest that still does.
    pub max: AgentVersion,
}

impl AgentRange {
    /// What this code writes: for agents of its own version.
    pub const CURRENT: Self = Self { min: AgentVersion::CURRENT, max: AgentVersion::CURRENT };

    /// Whether an agent of this version is meant.
    pub fn holds(self, agent: AgentVersion) -> bool {
        self.min <= agent && agent <= self.max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_stay_inside_what_every_reader_keeps() {
        assert_eq!(Revision::try_from(COUNTER_MAX).unwrap().next(), None);
        assert!(Revision::try_from(COUNTER_MAX + 1).is_err());
        assert!(Revision::try_from(-1_i64).is_err());
        assert!(serde_json::from_str::<Revision>("9007199254740992").is_err());
        assert!(serde_json::from_str::<Revision>("1.0").is_err());
        assert_eq!(Revision::from(7).as_i64(), 7);
    }

    #[test]
    fn cells_end_at_the_bound() {
        assert_eq!(CellNumber::first(255).len(), 32);
        assert!(CellNumber::try_from(31).is_ok());
        assert!(CellNumber::try_from(32).is_err());
        assert!(serde_json::from_str::<CellNumber>("32").is_err());
    }
}
