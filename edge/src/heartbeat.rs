//! What the control plane is told of this edge, and what it asks for beside serving.

use headwater_edge_wire::ids::{AgentVersion, Sequence};
use headwater_edge_wire::protocol::{AgentInfo, CellReport, DETAIL_MAX_BYTES, Heartbeat, Holds};
use headwater_edge_wire::tasks::{Outcome, Task, TaskResult, Work};
use headwater_edge_wire::time::Timestamp;

use crate::status::Status;

/// Connections that a worker can hold; the fixed configuration says the same.
const WORKER_CONNECTIONS: u32 = 8_192;

/// Who this agent is.
pub fn agent() -> AgentInfo {
    AgentInfo { version: env!("CARGO_PKG_VERSION").to_owned(), protocol: AgentVersion::CURRENT }
}

/// The heartbeat of a status. `workers` are those of each cell.
pub fn heartbeat(status: &Status, sequence: Sequence, workers: &[u16], now: Timestamp) -> Heartbeat {
    let trouble = status.trouble.as_ref().map(|trouble| format!("{}: {}", trouble.code, trouble.detail));
    let alarm = status.alarms.back().map(|alarm| format!("{}: {}", alarm.code, alarm.detail));
    let damage = status.damaged.open().next().map(|damage| format!("damaged: {damage}"));
    let cells = status.cells.iter().enumerate().map(|(at, cell)| {
        let detail = [&cell.detail, &trouble, &damage, &alarm].into_iter().flatten().next().cloned();
        CellReport {
            cell: cell.cell,
            http_ready: cell.ready && cell.http_ready,
            https_ready: cell.ready && cell.https_ready,
            epoch: cell.epoch,
            sequence: cell.sequence,
            loaded: Some(cell.loaded),
            domains: cell.domains,
            connections: 0,
            connections_max: u32::from(workers.get(at).copied().unwrap_or(0))
                .saturating_mul(WORKER_CONNECTIONS),
            detail: detail.map(|text| text.chars().take(DETAIL_MAX_BYTES / 4).collect()),
        }
    });
    let (damaged, damaged_count) = status.damaged.report();
    let (epoch, through) = status.holds;
    let holds = (status.holds > Default::default()).then_some(Holds { epoch, sequence: through });
    Heartbeat {
        sequence,
        agent: agent(),
        at: now,
        cells: cells.collect(),
        origins: Vec::new(),
        security: Vec::new(),
        holds,
        keys: status.keys.clone(),
        damaged,
        damaged_count,
    }
}

/// The answer to work that this agent cannot do, whether it knows its kind or not; nothing for what it can.
pub fn unsupported(task: &Task) -> Option<TaskResult> {
    let detail = match task.work() {
        Ok(Work::CellRestart { .. }) => return None,
        Ok(_) => format!("this agent does not do {} yet", task.kind.chars().take(64).collect::<String>()),
        Err(error) => error.to_string(),
    };
    Some(TaskResult { outcome: Outcome::Unsupported, detail: Some(detail), output: serde_json::Value::Null })
}

#[cfg(test)]
mod tests {
    use headwater_edge_wire::ids::TaskId;

    use super::*;

    #[test]
    fn unknown_work_is_answered_and_bounds_are_kept() {
        let task = Task {
            id: TaskId::from_uuid(uuid::Uuid::nil()),
            kind: "dance".into(),
            input: serde_json::Value::Null,
            expires_at: Timestamp::EPOCH,
        };
        assert_eq!(unsupported(&task).map(|result| result.outcome), Some(Outcome::Unsupported));
        let restart = Task { kind: "cell_restart".into(), input: serde_json::json!({"cell": 0}), ..task };
        assert!(unsupported(&restart).is_none());
    }
}
