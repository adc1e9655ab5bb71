//! Why a command is refused: everything a user can be told, and nothing else.
//! What breaks by itself (a database, a disk) is not here.

use crate::ids::Revision;
use std::fmt;

/// One fault of the input: where it is, what it is, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// JSON Pointer (RFC 6901) into the body; empty for the whole of it.
    pub pointer: String,
    /// Stable snake_case code.
    pub code: &'static str,
    /// For people.
    pub detail: String,
}

impl Fault {
    /// A fault at a place of the body.
    pub fn at(pointer: impl Into<String>, code: &'static str, detail: impl Into<String>) -> Self {
        Self { pointer: pointer.into(), code, detail: detail.into() }
    }
}

/// A change that is allowed only when it is asked for by name (`?allow=`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Guard {
    /// A live zone would be left without any RRset of its owner's.
    EmptiesZone,
    /// More than half of 20 or more RRsets would be deleted in one request.
    MassDelete,
    /// DNS would send visitors to no edge at all.
    LastEndpoint,
    /// More than 100 domains would be changed in one request.
    ManyDomains,
}

impl Guard {
    /// Every guard.
    pub const ALL: [Self; 4] = [Self::EmptiesZone, Self::MassDelete, Self::LastEndpoint, Self::ManyDomains];

    /// The name in `?allow=`.
    pub fn name(self) -> &'static str {
        match self {
            Self::EmptiesZone => "empties_zone",
            Self::MassDelete => "mass_delete",
            Self::LastEndpoint => "last_endpoint",
            Self::ManyDomains => "many_domains",
        }
    }

    /// The guard with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|guard| guard.name() == name)
    }
}

impl fmt::Display for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

fn standing(current: Option<Revision>) -> String {
    match current {
        Some(revision) => format!("the resource is at revision {revision}"),
        None => "the resource does not exist".to_owned(),
    }
}

/// Why a command was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Reject {
    /// There is no such thing, or the caller may not know of it.
    #[error("{0} does not exist")]
    NotFound(String),
    /// The caller may know of it but not do this.
    #[error("{0}")]
    Forbidden(String),
    /// The name is in use or held.
    #[error("{0}")]
    NameTaken(String),
    /// `If-Match` or `If-None-Match` does not hold.
    #[error("{}, which the precondition excludes: read it again", standing(*.current))]
    RevisionMismatch {
        /// The revision that last changed it; none when it does not exist.
        current: Option<Revision>,
    },
    /// The change needs an explicit allowance.
    #[error("{detail}")]
    Guarded {
        /// Every guard that stands in the way.
        guards: Vec<Guard>,
        /// For people.
        detail: String,
    },
    /// The state does not allow it.
    #[error("{detail}")]
    Conflict {
        /// Stable snake_case code.
        code: &'static str,
        /// For people.
        detail: String,
    },
    /// The revision cannot be gone back to.
    #[error("{detail}")]
    NotRestorable {
        /// Stable snake_case code.
        code: &'static str,
        /// For people.
        detail: String,
        /// The nearest ones that can.
        nearest: Vec<Revision>,
    },
    /// What an undo would put back was changed by others later; each such thing is named.
    #[error("{} of what would be undone was changed again later; nothing was undone", .conflicts.len())]
    UndoConflict {
        /// Where, and by which revision.
        conflicts: Vec<Fault>,
    },
    /// It would change what tools of others own; each such RRset is named.
    #[error("{} RRset(s) are managed by others: repeat it with ?take_over=true if it is meant", .conflicts.len())]
    ManagedByOther {
        /// Where.
        conflicts: Vec<Fault>,
    },
    /// The input is at fault; every fault is named.
    #[error("{} fault(s) in the input", .0.len())]
    Invalid(Vec<Fault>),
}
