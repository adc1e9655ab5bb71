//! What the runtime of a cell says of itself, over its control socket: the generation of every worker, and whether it
//! would take a line. It is the truth about what is served; that a generation was written proves nothing.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use headwater_edge_wire::ids::Generation;
use serde::Deserialize;

use crate::cell::Cell;

/// How long an answer may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// How often it is asked again.
const PROBE_EVERY: Duration = Duration::from_millis(5);
/// The longest answer.
const ANSWER_MAX_BYTES: u64 = 4 << 20;
/// Lines are checked together once their artifacts have so many bytes.
pub const CHECK_BATCH_BYTES: u64 = 2 << 20;

/// What one worker serves.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Worker {
    /// Its process.
    pub pid: u32,
    /// Its number.
    pub worker: u32,
    /// How many workers there are.
    pub workers: u32,
    /// The generation that it serves.
    pub generation: u64,
    /// How many domains it has.
    #[serde(default)]
    pub domains: u32,
    /// What it refused.
    #[serde(default)]
    pub refused: Option<RefusedGeneration>,
}

/// A generation that a worker refused.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct RefusedGeneration {
    /// Which.
    pub generation: u64,
    /// Why.
    pub reason: String,
}

#[derive(Deserialize)]
struct Answer {
    workers: usize,
    all: Vec<Worker>,
}

/// What a cell says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Probe {
    /// Every worker serves this generation.
    Serves(Worker),
    /// Some do not yet.
    Mixed,
    /// A worker refused the generation that it should serve.
    Refused(String),
}

/// What the workers serve, judged for the generation that they should.
pub fn judge(workers: usize, all: &[Worker], want: Generation) -> Probe {
    let want = want.get();
    let refused = all.iter().filter_map(|worker| worker.refused.as_ref());
    if let Some(refused) = refused.into_iter().find(|refused| refused.generation == want) {
        return Probe::Refused(refused.reason.clone());
    }
    match all.first() {
        Some(first) if all.len() == workers && all.iter().all(|worker| worker.generation == want) => {
            Probe::Serves(first.clone())
        }
        _ => Probe::Mixed,
    }
}

/// Asks a cell.
///
/// # Errors
/// When it does not answer.
pub fn generation(cell: &Path, want: Generation) -> io::Result<Probe> {
    let body = ask(cell, b"GET /generation HTTP/1.0\r\n\r\n", std::iter::empty())?;
    let answer: Answer = serde_json::from_slice(&body)?;
    Ok(judge(answer.workers, &answer.all, want))
}

#[derive(Deserialize)]
struct Checked {
    lines: usize,
    #[serde(default)]
    refused: Vec<RefusedLine>,
}

#[derive(Deserialize)]
struct RefusedLine {
    line: usize,
    reason: String,
}

/// Asks a cell which of these lines it would refuse, and why; counted from 0.
///
/// # Errors
/// When it does not answer for all of them.
pub fn check<'a>(
    cell: &Path,
    lines: impl Iterator<Item = &'a [u8]> + Clone,
) -> io::Result<Vec<(usize, String)>> {
    let (mut count, mut bytes) = (0, 0);
    for line in lines.clone() {
        count += 1;
        bytes += line.len();
    }
    if count == 0 {
        return Ok(Vec::new());
    }
    let head = format!("POST /check HTTP/1.0\r\nContent-Length: {bytes}\r\n\r\n");
    let checked: Checked = serde_json::from_slice(&ask(cell, head.as_bytes(), lines)?)?;
    if checked.lines != count {
        return Err(io::Error::other("the runtime did not look at every line"));
    }
    Ok(checked.refused.into_iter().map(|refused| (refused.line.saturating_sub(1), refused.reason)).collect())
}

fn ask<'a>(cell: &Path, head: &[u8], body: impl Iterator<Item = &'a [u8]>) -> io::Result<Vec<u8>> {
    let mut stream = UnixStream::connect(cell.join("run/control.sock"))?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
    stream.write_all(head)?;
    for part in body {
        stream.write_all(part)?;
    }
    let mut answer = Vec::new();
    stream.take(ANSWER_MAX_BYTES).read_to_end(&mut answer)?;
    let at = answer.windows(4).position(|window| window == b"\r\n\r\n");
    match (at, answer.get(9..12)) {
        (Some(at), Some(b"200")) => Ok(answer.split_off(at + 4)),
        _ => Err(io::Error::other("the runtime gives no answer")),
    }
}

/// Asks a cell until every worker serves its generation, one refuses it, or it is time; none where it has none or does not
/// answer.
pub(crate) fn probe_until(cell: &Cell, until: Instant) -> Option<Probe> {
    let want = cell.generation()?;
    loop {
        fail::fail_point!("edge.probe.before");
        let probed = generation(cell.dir(), want).ok();
        fail::fail_point!("edge.probe.after");
        match probed {
            Some(Probe::Mixed) | None if Instant::now() < until => std::thread::sleep(PROBE_EVERY),
            probed => return probed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_all_workers_together_serve_a_generation() {
        let worker =
            |worker, generation| Worker { pid: 1, worker, workers: 2, generation, domains: 0, refused: None };
        let refused = |n| Worker {
            refused: Some(RefusedGeneration { generation: n, reason: "no".into() }),
            ..worker(1, 6)
        };
        let want = Generation::from(7);
        assert!(matches!(judge(2, &[worker(0, 7), worker(1, 7)], want), Probe::Serves(_)));
        assert_eq!(judge(2, &[worker(0, 7), worker(1, 6)], want), Probe::Mixed);
        assert_eq!(judge(2, &[worker(0, 7)], want), Probe::Mixed);
        assert_eq!(judge(2, &[], want), Probe::Mixed);
        assert_eq!(judge(2, &[worker(0, 7), refused(7)], want), Probe::Refused("no".into()));
        assert_eq!(judge(2, &[worker(0, 7), refused(5)], want), Probe::Mixed);
    }
}
