//! What an edge is asked to do beside serving: `GET /tasks` and `POST /tasks/{id}/result`. A kind that an agent does
//! not know is answered as unsupported; it never makes the page unreadable, nor holds the other tasks up.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::artifact::Origin;
use crate::ids::{CellNumber, TaskId};
use crate::protocol::{Body, BodyFault, CODE_MAX_BYTES, DETAIL_MAX_BYTES, at_most};
use crate::time::Timestamp;

/// The most tasks of a page.
pub const TASKS_PAGE_MAX: usize = 100;
/// The most bytes of the output of a task.
pub const TASK_OUTPUT_MAX_BYTES: usize = 64 << 10;

/// `GET /tasks`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskPage {
    /// The oldest tasks that wait for a result.
    pub items: Vec<Task>,
}

impl Body for TaskPage {
    fn bounds(&self) -> Result<(), BodyFault> {
        at_most("items", self.items.len(), TASKS_PAGE_MAX)
    }
}

/// One task. It may be handed out again until its result is in, so doing it twice must do no harm.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// The task.
    pub id: TaskId,
    /// What kind of work.
    pub kind: String,
    /// What the work needs to know.
    #[serde(default)]
    pub input: Value,
    /// From then on nobody waits for it.
    pub expires_at: Timestamp,
}

/// The work that this version knows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", content = "input", rename_all = "snake_case")]
pub enum Work {
    /// Ask an origin and tell what it answered.
    OriginTest {
        /// The origin.
        origin: Origin,
        /// What to ask for.
        path: String,
    },
    /// Start the runtime of a cell anew.
    CellRestart {
        /// The cell.
        cell: CellNumber,
    },
    /// Make a new identity key and register it.
    IdentityRotate {},
}

/// Why the work of a task cannot be told.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("this agent does not know work of kind {0}, or not with this input")]
pub struct Unsupported(String);

impl Task {
    /// A task for this work.
    ///
    /// # Errors
    /// When JSON cannot hold the work.
    pub fn new(id: TaskId, work: &Work, expires_at: Timestamp) -> Result<Self, Unsupported> {
        let fault = || Unsupported("new".to_owned());
        let mut value = serde_json::to_value(work).map_err(|_| fault())?;
        let input = value.get_mut("input").map(Value::take).unwrap_or_default();
        let kind = value.get("kind").and_then(Value::as_str).ok_or_else(fault)?.to_owned();
        Ok(Self { id, kind, input, expires_at })
    }

    /// The work.
    ///
    /// # Errors
    /// When this version does not know it: answer with [`Outcome::Unsupported`].
    pub fn work(&self) -> Result<Work, Unsupported> {
        let value = serde_json::json!({"kind": self.kind, "input": self.input});
        serde_json::from_value(value)
            .map_err(|_| Unsupported(self.kind.chars().take(CODE_MAX_BYTES).collect()))
    }
}

/// How a task ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Done.
    Done,
    /// Tried, and failed.
    Failed,
    /// Not known to this agent.
    Unsupported,
}

/// `POST /tasks/{id}/result`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskResult {
    /// How it ended.
    pub outcome: Outcome,
    /// What happened, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// What was found.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub output: Value,
}

impl Body for TaskResult {
    /// The output, and what stands around it.
    const MAX_BYTES: usize = TASK_OUTPUT_MAX_BYTES + (4 << 10);

    fn bounds(&self) -> Result<(), BodyFault> {
        at_most("detail", self.detail.as_ref().map_or(0, String::len), DETAIL_MAX_BYTES)
    }
}
