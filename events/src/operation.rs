//! What the log says of operations: that imperative work was asked for, in a stream of its own, and how an operation
//! ended. The first end in the log is final.

use crate::dns::DomainName;
use crate::ids::{ClusterId, OperationId, TokenId};
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What is derived from the log. The names are stored: never rename.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Projection {
    /// What the API reads.
    Desired,
    /// What the DNS clusters answer from.
    Powerdns,
    /// What edges are told to serve.
    Edge,
    /// How accepted work ends.
    Operations,
    /// Every event, for auditors.
    Audit,
}

impl Projection {
    /// Every one.
    pub const ALL: [Self; 5] = [Self::Desired, Self::Powerdns, Self::Edge, Self::Operations, Self::Audit];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Desired => "desired",
            Self::Powerdns => "powerdns",
            Self::Edge => "edge",
            Self::Operations => "operations",
            Self::Audit => "audit",
        }
    }

    /// The one with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }
}

/// What imperative work does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Work {
    /// Builds a projection anew.
    #[serde(rename = "projection.rebuild")]
    Rebuild,
    /// Compares a projection with the log.
    #[serde(rename = "projection.verify")]
    Verify,
}

impl Work {
    /// The kind of its operation.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rebuild => "projection.rebuild",
            Self::Verify => "projection.verify",
        }
    }
}

/// Imperative work was asked for. Stands first in the operation's stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationRequested {
    /// What is to be done.
    pub kind: Work,
    /// With which projection.
    pub projection: Projection,
    /// Of this domain alone.
    pub domain: Option<DomainName>,
    /// Whether what a verification finds is mended.
    pub mend: bool,
    /// On this DNS cluster alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterId>,
}

/// Everything that one token did in domains was asked to be undone. Stands first in the operation's stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UndoRequested {
    /// Whose changes.
    pub token: TokenId,
    /// From this time on.
    pub since: Timestamp,
    /// Before this time; none: up to the request.
    pub until: Option<Timestamp>,
    /// Guards that the caller allowed to be crossed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed: Vec<String>,
    /// What tools of others own is undone too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub take_over: bool,
}

/// A DNS cluster was asked to go. Stands first in the operation's stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterRemovalRequested {
    /// Which.
    pub cluster: ClusterId,
}

/// The kind of the operation of a [`ClusterRemovalRequested`]. It is stored: never rename.
pub const REMOVAL_KIND: &str = "dns_cluster.remove";

/// A part of the audit trail left the platform.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditExported {
    /// `trail`, or `heads`: where every stream ends, signed.
    pub what: String,
    /// The media type.
    pub format: String,
    /// What was asked for, by the keys of the query; of words only that there were any, since they may be a person's.
    pub filters: BTreeMap<String, String>,
}

/// The kind of the operation of an [`UndoRequested`]. It is stored: never rename.
pub const UNDO_KIND: &str = "history.undo";

/// An operation ended in a way that the deployment facts alone do not tell: a
/// target was out of service, the deadline passed, cells have taken it in, or it was imperative work. Stands in the operation's stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationFinished {
    /// The operation.
    pub operation: OperationId,
    /// `succeeded`, `failed` or `cancelled`.
    pub state: String,
    /// Targets that were out of service when it ended.
    pub partial: Vec<ClusterId>,
    /// What went wrong.
    pub error: Option<OperationError>,
    /// What imperative work came to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<OperationResult>,
    /// Cells that were out of service when it ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cells: Vec<CellRef>,
    /// What whoever asked may want to know of its end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// A cell of an edge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CellRef {
    /// The id of its edge.
    pub edge: uuid::Uuid,
    /// Its number there.
    pub cell: i32,
    /// For people: the edge's name and the number.
    pub name: String,
}

/// What a rebuild or a verification came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationResult {
    /// How many rows were not what the log says.
    pub differences: u64,
    /// How long the try that came through took, in milliseconds.
    pub ms: u64,
}

/// Why an operation failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationError {
    /// Stable snake_case code.
    pub code: String,
    /// For people.
    pub detail: String,
    /// The target concerned, if one is.
    pub target: Option<ClusterId>,
}
