//! The loops beside delivery: one keeps nginx running and asks it what it serves, one tells the control plane.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use headwater_edge_wire::ids::{CellNumber, Sequence, TaskId};
use headwater_edge_wire::protocol::DETAIL_MAX_BYTES;
use headwater_edge_wire::tasks::{Outcome, TaskResult, Work};

use crate::agent::{Shared, lock, now};
use crate::cell::Cell;
use crate::control::{Control, ControlError};
use crate::disk::{self, Pace};
use crate::heartbeat;
use crate::inspect::Suspect;
use crate::probe::{self, Probe};
use crate::process::{self, Runtime};

/// How often nginx is looked after.
const KEEP_EVERY: Duration = Duration::from_millis(250);
/// How often the status is written.
pub(crate) const STATUS_EVERY: Duration = Duration::from_secs(1);
/// How long a cell may take to serve after it was started anew.
const RESTARTED_WITHIN: Duration = Duration::from_secs(15);
const HEARTBEAT_DEFAULT: Duration = Duration::from_secs(15);
const HEARTBEAT_RANGE_SECONDS: (u32, u32) = (1, 300);

/// Makes sure that the nginx of a cell runs.
pub(crate) fn keep_cell(shared: &Shared, number: CellNumber) {
    let dir = shared.layout.cell(number);
    let mut runtimes = lock(&shared.runtimes);
    let Some(runtime) = runtimes.get_mut(usize::from(number.get())) else { return };
    let kept = runtime.keep(&dir, &shared.settings, Instant::now(), || may_read(shared, number));
    if let Err(error) = kept {
        shared.status().alarm(now(), "nginx", &format!("cell {number}: {error}"));
    }
}

pub(crate) fn keep_once(shared: &Shared) {
    for (at, number) in CellNumber::first(u8::try_from(shared.settings.cells.len()).unwrap_or(u8::MAX))
        .into_iter()
        .enumerate()
    {
        let dir = shared.layout.cell(number);
        let want = lock(&shared.wanted).get(&number).copied();
        keep_cell(shared, number);
        let Some(settings) = shared.settings.cells.get(at) else { continue };
        let pid = lock(&shared.runtimes).get(at).and_then(Runtime::master);
        let probed = want.and_then(|want| probe::generation(&dir, want).ok());
        let (http_ready, https_ready) = (process::accepts(&settings.http), process::accepts(&settings.https));
        let mut status = shared.status();
        if let Some(cell) = status.cells.iter_mut().find(|cell| cell.cell == number) {
            (cell.pid, cell.http_ready, cell.https_ready) = (pid, http_ready, https_ready);
            cell.ready = matches!(probed, Some(Probe::Serves(_)));
            if let Some(Probe::Serves(worker)) = probed {
                cell.domains = worker.domains;
            }
        }
    }
}

/// Whether what a cell would read of the disk is what was written there. Where it is not, it is written anew.
fn may_read(shared: &Shared, cell: CellNumber) -> bool {
    let Some(key) = shared.state_key.get() else { return true };
    let found = Cell::inspect(&shared.layout.cell(cell), cell, Arc::clone(key), Pace::FREE);
    let holds = found.is_ok_and(|(_, damage)| damage.is_empty());
    if !holds {
        lock(&shared.suspects).insert(Suspect::Cell(cell));
    }
    holds
}

pub(crate) fn keep_loop(shared: &Shared) {
    let mut written = Instant::now();
    loop {
        keep_once(shared);
        if written.elapsed() >= STATUS_EVERY {
            write_status(shared);
            written = Instant::now();
        }
        std::thread::sleep(KEEP_EVERY);
    }
}

pub(crate) fn write_status(shared: &Shared) {
    let mut status = shared.status();
    status.at = now();
    if status.is_stale(status.at) {
        let detail = "no fresh page from the control plane; what is active is served on";
        let at = status.at;
        status.alarm(at, "stale", detail);
    } else {
        status.alarms.retain(|alarm| alarm.code != "stale");
    }
    let bytes = serde_json::to_vec_pretty(&*status).unwrap_or_default();
    drop(status);
    let (path, beside) = (shared.layout.status(), disk::beside(&shared.layout.status()));
    if let Err(error) = std::fs::write(&beside, bytes).and_then(|()| std::fs::rename(&beside, &path)) {
        disk::discard(&beside);
        tracing::warn!(%error, "cannot write the status");
    }
}

pub(crate) fn heartbeat_loop(shared: &Shared) {
    let mut sequence = Sequence::ZERO;
    let workers: Vec<u16> = shared.settings.cells.iter().map(|cell| cell.workers).collect();
    let mut every = HEARTBEAT_DEFAULT;
    let mut untold = Results::new();
    loop {
        let control = lock(&shared.control).clone();
        let Some(control) = control else {
            std::thread::sleep(KEEP_EVERY);
            continue;
        };
        sequence = sequence.next().unwrap_or(Sequence::ZERO);
        let body = heartbeat::heartbeat(&shared.status(), sequence, &workers, now());
        match control.heartbeat(&body) {
            Ok(answer) => {
                shared.status().damaged.told(&body.damaged);
                let (least, most) = HEARTBEAT_RANGE_SECONDS;
                every = Duration::from_secs(u64::from(answer.heartbeat_seconds.clamp(least, most)));
                let apart = answer.at.as_millis().abs_diff(now().as_millis());
                if apart > 300_000 {
                    let detail =
                        format!("the clock of this host is {} s apart from the control plane", apart / 1_000);
                    shared.status().alarm(now(), "clock", &detail);
                }
                if answer.has_tasks
                    && let Err(error) = do_tasks(shared, &control, &mut untold)
                {
                    tracing::warn!(%error, "tasks");
                }
            }
            Err(error) => tracing::warn!(%error, "heartbeat"),
        }
        std::thread::sleep(every);
    }
}

/// A task is handed out again until its result is in: what was done is told again, not done again.
type Results = BTreeMap<TaskId, TaskResult>;

fn do_tasks(shared: &Shared, control: &Control, untold: &mut Results) -> Result<(), ControlError> {
    let tasks = control.tasks()?.items;
    untold.retain(|id, _| tasks.iter().any(|task| task.id == *id));
    for task in tasks {
        let result = untold.entry(task.id).or_insert_with(|| {
            heartbeat::unsupported(&task).unwrap_or_else(|| restart_cell(shared, task.work().ok()))
        });
        control.task_result(task.id, result)?;
        untold.remove(&task.id);
    }
    Ok(())
}

/// Starts the nginx of a cell anew. It is done when every worker of another master serves what the cell should.
fn restart_cell(shared: &Shared, work: Option<Work>) -> TaskResult {
    let failed = |detail: String| TaskResult {
        outcome: Outcome::Failed,
        detail: Some(detail.chars().take(DETAIL_MAX_BYTES / 4).collect()),
        output: serde_json::Value::Null,
    };
    let Some(Work::CellRestart { cell }) = work else { return failed("this is no restart".to_owned()) };
    let dir = shared.layout.cell(cell);
    if !may_read(shared, cell) {
        return failed("what it would serve is damaged on the disk and is written anew first".to_owned());
    }
    let started = match lock(&shared.runtimes).get_mut(usize::from(cell.get())) {
        Some(runtime) => {
            let before = runtime.master();
            runtime.restart(&dir, &shared.settings, Instant::now()).map(|()| (before, runtime.master()))
        }
        None => return failed(format!("there is no cell {cell}")),
    };
    let (before, after) = match started {
        Ok(pids) => pids,
        Err(error) => return failed(error.to_string()),
    };
    let until = Instant::now() + RESTARTED_WITHIN;
    loop {
        let want = lock(&shared.wanted).get(&cell).copied();
        let is_ready = want.is_none_or(|want| matches!(probe::generation(&dir, want), Ok(Probe::Serves(_))));
        if is_ready && after.is_some() {
            let output = serde_json::json!({"before": before, "after": after});
            return TaskResult { outcome: Outcome::Done, detail: None, output };
        }
        if Instant::now() > until {
            return failed("nginx was started and does not serve yet".to_owned());
        }
        std::thread::sleep(KEEP_EVERY / 4);
    }
}
