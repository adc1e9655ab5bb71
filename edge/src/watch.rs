//! The loops beside delivery: one keeps nginx running and asks it what it serves, one tells the control plane.

use std::time::{Duration, Instant};

use headwater_edge_wire::ids::{CellNumber, Sequence};
use headwater_edge_wire::tasks::{Outcome, TaskResult, Work};

use crate::agent::{Shared, lock, now};
use crate::control::{Control, ControlError};
use crate::disk;
use crate::heartbeat;
use crate::probe::{self, Probe};
use crate::process;

/// How often nginx is looked after.
const KEEP_EVERY: Duration = Duration::from_millis(250);
/// How often the status is written.
pub(crate) const STATUS_EVERY: Duration = Duration::from_secs(1);
const HEARTBEAT_DEFAULT: Duration = Duration::from_secs(15);
const HEARTBEAT_RANGE_SECONDS: (u32, u32) = (1, 300);

pub(crate) fn keep_once(shared: &Shared) {
    for (at, number) in CellNumber::first(u8::try_from(shared.settings.cells.len()).unwrap_or(u8::MAX))
        .into_iter()
        .enumerate()
    {
        let dir = shared.layout.cell(number);
        let want = lock(&shared.wanted).get(&number).copied();
        let mut runtimes = lock(&shared.runtimes);
        let Some((runtime, settings)) = runtimes.get_mut(at).zip(shared.settings.cells.get(at)) else {
            continue;
        };
        if let Err(error) = runtime.keep(&dir, &shared.settings, Instant::now()) {
            shared.status().alarm(now(), "nginx", &format!("cell {number}: {error}"));
        }
        let pid = runtime.master();
        drop(runtimes);
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
        tracing::warn!(%error, "cannot write the status");
    }
}

pub(crate) fn heartbeat_loop(shared: &Shared) {
    let mut sequence = Sequence::ZERO;
    let workers: Vec<u16> = shared.settings.cells.iter().map(|cell| cell.workers).collect();
    let mut every = HEARTBEAT_DEFAULT;
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
                let (least, most) = HEARTBEAT_RANGE_SECONDS;
                every = Duration::from_secs(u64::from(answer.heartbeat_seconds.clamp(least, most)));
                let apart = answer.at.as_millis().abs_diff(now().as_millis());
                if apart > 300_000 {
                    let detail =
                        format!("the clock of this host is {} s apart from the control plane", apart / 1_000);
                    shared.status().alarm(now(), "clock", &detail);
                }
                if answer.has_tasks
                    && let Err(error) = do_tasks(shared, &control)
                {
                    tracing::warn!(%error, "tasks");
                }
            }
            Err(error) => tracing::warn!(%error, "heartbeat"),
        }
        std::thread::sleep(every);
    }
}

fn do_tasks(shared: &Shared, control: &Control) -> Result<(), ControlError> {
    for task in control.tasks()?.items {
        let result = heartbeat::unsupported(&task).unwrap_or_else(|| restart_cell(shared, task.work().ok()));
        control.task_result(task.id, &result)?;
    }
    Ok(())
}

fn restart_cell(shared: &Shared, work: Option<Work>) -> TaskResult {
    let mut runtimes = lock(&shared.runtimes);
    let runtime = match work {
        Some(Work::CellRestart { cell }) => runtimes.get_mut(usize::from(cell.get())),
        _ => None,
    };
    let outcome = match runtime {
        Some(runtime) => {
            runtime.reload();
            Outcome::Done
        }
        None => Outcome::Failed,
    };
    TaskResult { outcome, detail: None, output: serde_json::Value::Null }
}
