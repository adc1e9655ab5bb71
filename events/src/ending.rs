//! How operations end, as the log tells it.

use crate::ids::{ClusterId, OperationId};
use serde::{Deserialize, Serialize};

/// An operation ended in a way that the deployment facts alone do not tell: a
/// target was out of service, or the deadline passed. Stands in the operation's stream.
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
