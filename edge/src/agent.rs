//! The loops: one delivers, one keeps nginx running and asks it what it serves, one tells the control plane. They share
//! a status and nothing else that can block; none of them ends because something fails.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use headwater_edge_wire::ids::{AgentVersion, CellNumber, DomainId, Epoch, Generation, Sequence};
use headwater_edge_wire::manifest::Page;
use headwater_edge_wire::protocol::{Applied, ManifestQuery, REFUSED_MAX, Rejected};
use headwater_edge_wire::sign::PublicKey;
use headwater_edge_wire::time::Timestamp;
use headwater_edge_wire::verify::{Reader, Refusal};

use crate::attend::{attend, settle};
use crate::backoff::Backoff;
use crate::connect::ensure_control;
use crate::control::{Control, ControlError};
use crate::deliver::{DeliverError, Delivery};
use crate::disk;
use crate::enrol;
use crate::identity::Identity;
use crate::inspect::{Census, Suspect, inspect_loop};
use crate::layout::Layout;
use crate::mac::StateKey;
use crate::open::open;
use crate::pins;
use crate::plan::{self, Facts, Step};
use crate::probe::{Probe, probe_until};
use crate::process::{self, Runtime};
use crate::settings::Settings;
use crate::status::{CellStatus, Status};
use crate::watch::{STATUS_EVERY, heartbeat_loop, keep_loop, keep_once, write_status};

/// How long a new generation may take to be served by all workers before the loop goes on without it.
pub(crate) const PROBE_WAIT: Duration = Duration::from_secs(5);

/// The reason that the control plane is behind this edge.
const AHEAD: &str = "ahead";

/// What the loops share.
pub struct Shared {
    /// The settings.
    pub settings: Settings,
    /// Where things lie.
    pub layout: Layout,
    pub(crate) status: Mutex<Status>,
    pub(crate) wanted: Mutex<BTreeMap<CellNumber, Generation>>,
    pub(crate) runtimes: Mutex<Vec<Runtime>>,
    pub(crate) control: Mutex<Option<Arc<Control>>>,
    /// What may not hold on the disk.
    pub(crate) suspects: Mutex<BTreeSet<Suspect>>,
    pub(crate) census: Mutex<Census>,
    /// What authenticates the files of the cells, once there is an identity.
    pub(crate) state_key: OnceLock<Arc<StateKey>>,
}

impl Shared {
    fn new(settings: Settings) -> Self {
        let layout = Layout::new(&settings.state_dir);
        let runtimes = settings.cells.iter().map(|_| Runtime::default()).collect();
        Self {
            settings,
            layout,
            status: Mutex::new(Status::new(now())),
            wanted: Mutex::default(),
            runtimes: Mutex::new(runtimes),
            control: Mutex::default(),
            suspects: Mutex::default(),
            census: Mutex::default(),
            state_key: OnceLock::new(),
        }
    }

    pub(crate) fn status(&self) -> MutexGuard<'_, Status> {
        lock(&self.status)
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the clock of this host says.
pub fn now() -> Timestamp {
    Timestamp::from(chrono::Utc::now() + skew())
}

/// How far the tests put the clock of this host off, in seconds.
#[cfg(feature = "failpoints")]
fn skew() -> chrono::Duration {
    let seconds = std::env::var("HEADWATER_EDGE_CLOCK").ok().and_then(|text| text.parse().ok());
    chrono::Duration::seconds(seconds.unwrap_or(0))
}

#[cfg(not(feature = "failpoints"))]
fn skew() -> chrono::Duration {
    chrono::Duration::zero()
}

/// Runs the agent. It comes back only when it cannot begin.
///
/// # Errors
/// When the state directory cannot be used, or another agent uses it.
pub fn run(settings: Settings) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let shared = Arc::new(Shared::new(settings));
    disk::make_dir(shared.layout.root(), disk::PASSABLE_DIR)?;
    let _lock = hold_lock(&shared.layout)?;
    let owner = process::owner(&shared.settings)?;
    let numbers = CellNumber::first(u8::try_from(shared.settings.cells.len()).unwrap_or(u8::MAX));
    let mut changed = Vec::new();
    for (number, cell) in numbers.iter().zip(&shared.settings.cells) {
        let dir = shared.layout.cell(*number);
        disk::make_dir(&dir, disk::PASSABLE_DIR)?;
        if process::configure(&dir, &shared.settings, cell, owner)? {
            changed.push(usize::from(number.get()));
        }
    }
    let identity = wait_for_identity(&shared);
    let _first = shared.state_key.set(Arc::clone(&identity.state_key));
    let mut delivery = open(&shared, Arc::clone(&identity), owner)?;
    boot_cells(&shared, &mut delivery);
    // A cell that an earlier agent left running takes the new values over, once what it would read is proven.
    for at in changed {
        lock(&shared.runtimes).get(at).into_iter().for_each(Runtime::reload);
    }
    for work in [keep_loop as fn(&Shared), heartbeat_loop] {
        let shared = Arc::clone(&shared);
        std::thread::Builder::new().spawn(move || work(&shared))?;
    }
    let looked = Arc::clone(&shared);
    std::thread::Builder::new().spawn(move || inspect_loop(&looked, &identity))?;
    deliver_loop(&shared, &mut delivery)
}

/// Tells nginx of every cell to end, for an agent whose cells must not outlive it.
pub fn stop_cells(settings: &Settings) {
    let layout = Layout::new(&settings.state_dir);
    for number in CellNumber::first(u8::try_from(settings.cells.len()).unwrap_or(u8::MAX)) {
        process::stop_found(&layout.cell(number), settings);
    }
}

type Lock = nix::fcntl::Flock<std::fs::File>;

fn hold_lock(layout: &Layout) -> Result<Lock, Box<dyn std::error::Error + Send + Sync>> {
    let file = std::fs::OpenOptions::new().create(true).truncate(false).write(true).open(layout.lock())?;
    nix::fcntl::Flock::lock(file, nix::fcntl::FlockArg::LockExclusiveNonblock)
        .map_err(|(_, _)| format!("another agent uses {}", layout.root().display()).into())
}

fn wait_for_identity(shared: &Shared) -> Arc<Identity> {
    loop {
        match Identity::load(&shared.layout) {
            Ok(identity) => return Arc::new(identity),
            Err(error) => {
                tracing::error!(%error, "waiting");
                shared.status().failed(now(), "not_enrolled", &error.to_string());
                write_status(shared);
                std::thread::sleep(STATUS_EVERY);
            }
        }
    }
}

pub(crate) fn pause(shared: &Shared, backoff: &mut Backoff, code: &str, detail: &str) {
    tracing::warn!(code, detail, failures = backoff.failures(), "tried again later");
    shared.status().failed(now(), code, detail);
    write_status(shared);
    std::thread::sleep(backoff.fail(rand::random()));
}

/// Every cell gets something to serve: what holds, else what the index says, else nothing at all; then nginx.
fn boot_cells(shared: &Shared, delivery: &mut Delivery) {
    for at in 0..delivery.cells.len() {
        let Some(cell) = delivery.cells.get(at) else { continue };
        let number = cell.number;
        if cell.live().is_none() {
            let outcome = delivery.rebuild(at, false).or_else(|_| delivery.rebuild(at, true));
            match outcome {
                Ok(0) => {}
                Ok(missing) => {
                    let detail = format!("cell {number} misses {missing} domains");
                    delivery.lag(number, &detail);
                    shared.status().alarm(now(), "domains_missing", &detail);
                }
                Err(error) => delivery.lag(number, &error),
            }
        }
    }
    // A key that does not hold is written anew from what is sealed in the index.
    for at in 0..delivery.cells.len() {
        let has_bad =
            delivery.cells.get(at).and_then(|cell| cell.bad_keys().ok()).is_some_and(|bad| !bad.is_empty());
        if has_bad {
            delivery.mend_cell(at);
        }
    }
    publish(shared, delivery);
    keep_once(shared);
}

fn publish(shared: &Shared, delivery: &Delivery) {
    lock(&shared.census).give(delivery);
    let generations = delivery.cells.iter().filter_map(|cell| Some((cell.number, cell.generation()?)));
    *lock(&shared.wanted) = generations.collect();
    let mut status = shared.status();
    (status.epoch, status.sequence) = delivery.index.cursor();
    status.holds = pins::place(&delivery.pins);
    status.keys = delivery.pins.keys.keys().iter().map(PublicKey::id).collect();
    status.domains = delivery.index.domains().len();
    status.refused = delivery.index.refused().len();
    for refusal in delivery.index.refused().values().map(|standing| &standing.refused) {
        if matches!(
            refusal.code.as_str(),
            "revision_conflict" | "lower_revision" | "bad_signature" | "unknown_key"
        ) {
            let detail = format!("{} revision {}: {}", refusal.domain, refusal.revision, refusal.detail);
            status.alarm(now(), &refusal.code, &detail);
        }
    }
    for cell in &delivery.cells {
        let detail = delivery.faults.get(&cell.number).cloned();
        let known = status.cells.iter_mut().find(|known| known.cell == cell.number);
        // A generation is not written where nothing of a page stands on the cell.
        let loaded = if delivery.is_current(cell) { delivery.index.cursor().1 } else { cell.place().1 };
        match known {
            Some(known) => {
                (known.generation, known.loaded, known.detail) = (cell.generation(), loaded, detail);
            }
            None => status.cells.push(CellStatus {
                cell: cell.number,
                pid: None,
                ready: false,
                http_ready: false,
                https_ready: false,
                generation: cell.generation(),
                epoch: Epoch::ZERO,
                sequence: Sequence::ZERO,
                loaded,
                domains: 0,
                detail,
            }),
        }
    }
}

fn deliver_loop(shared: &Shared, delivery: &mut Delivery) -> ! {
    let mut backoff = Backoff::default();
    let mut told = Told::default();
    loop {
        match deliver_once(shared, delivery, &mut told) {
            Ok(()) => {
                backoff.reset();
                shared.status().trouble = None;
                publish(shared, delivery);
            }
            Err((code, detail)) => {
                told.was_behind |= code == AHEAD;
                publish(shared, delivery);
                pause(shared, &mut backoff, code, &detail);
            }
        }
    }
}

/// What the control plane has been told by this process.
#[derive(Default)]
struct Told {
    applied: BTreeMap<CellNumber, (Epoch, Sequence)>,
    refused: BTreeSet<(DomainId, Sequence)>,
    head: Sequence,
    has_gap: bool,
    /// Whether it was behind this edge: then its changes are others than those that were taken.
    was_behind: bool,
}

type Failure = (&'static str, String);

fn deliver_once(shared: &Shared, delivery: &mut Delivery, told: &mut Told) -> Result<(), Failure> {
    attend(shared, delivery);
    let of = |error: &ControlError| (error.code(), error.to_string());
    told.has_gap |= enrol::take_over(shared, delivery);
    let identity = Arc::clone(&delivery.identity);
    ensure_control(shared, &identity).map_err(|error| of(&error))?;
    let control =
        lock(&shared.control).clone().ok_or(("identity", "there is no connection yet".to_owned()))?;
    let mended = mend(delivery, &control);
    settle(shared, delivery);
    publish(shared, delivery);
    mended?;
    told.has_gap |= delivery.is_index_bad;
    confirm(shared, delivery, told, &control).map_err(|error| of(&error))?;
    let is_pending =
        delivery.cells.iter().any(|cell| told.applied.get(&cell.number) != Some(&delivery.index.cursor()));
    let facts = Facts {
        pinned: pins::place(&delivery.pins),
        index: delivery.index.cursor(),
        head: told.head,
        has_gap: told.has_gap,
        is_pending,
    };
    let failed = |error: &DeliverError| (error.code(), error.to_string());
    match plan::next(facts) {
        Step::Snapshot(why) => {
            tracing::info!(?why, "fetching everything");
            let until = delivery.snapshot(&control, now()).map_err(|error| failed(&error))?;
            (told.has_gap, told.was_behind, told.head) = (false, false, delivery.index.cursor().1);
            shared.status().fresh_until = Some(until);
        }
        Step::Poll(wait) => poll(shared, delivery, told, &control, wait)?,
    }
    publish(shared, delivery);
    confirm(shared, delivery, told, &control).map_err(|error| of(&error))
}

fn poll(
    shared: &Shared,
    delivery: &mut Delivery,
    told: &mut Told,
    control: &Control,
    wait: u32,
) -> Result<(), Failure> {
    let (epoch, after) = delivery.index.cursor();
    let query = ManifestQuery { after, epoch: Some(epoch), wait: Some(wait) };
    let (bytes, signature) = control.manifest(query).map_err(|error| (error.code(), error.to_string()))?;
    let reader = Reader { agent: AgentVersion::CURRENT, now: now() };
    match Page::verify(&bytes, &signature, &delivery.pins, reader) {
        Ok(page) if page.page().epoch != epoch || told.was_behind => told.has_gap = true,
        Ok(page) => {
            delivery.apply(&page, control).map_err(|error| (error.code(), error.to_string()))?;
            told.head = page.page().head;
            shared.status().fresh_until = Some(page.page().expires_at);
        }
        Err(Refusal::Gap { .. }) => told.has_gap = true,
        Err(refusal) => {
            let detail = format!("a page is refused: {refusal}");
            shared.status().alarm(now(), refusal.code(), &detail);
            let (code, hint) = match refusal {
                Refusal::Ahead(_) | Refusal::Expired(_) => {
                    ("page_refused", " (is the clock of this host right?)")
                }
                Refusal::LowerEpoch { .. } => {
                    (AHEAD, " (as after a restore: `headwater admin renew-log-id` there, until it is higher)")
                }
                _ => ("page_refused", ""),
            };
            return Err((code, format!("{detail}{hint}")));
        }
    }
    Ok(())
}

/// Writes the cells that lag, after fetching what was lost.
fn mend(delivery: &mut Delivery, control: &Control) -> Result<(), Failure> {
    if !delivery.to_fetch.is_empty() {
        let left = delivery.fetch(delivery.to_fetch.clone(), control);
        left.map_err(|error| (error.code(), error.to_string()))?;
    }
    let behind: Vec<usize> = delivery
        .cells
        .iter()
        .enumerate()
        .filter(|(_, cell)| !delivery.is_current(cell))
        .map(|(at, _)| at)
        .collect();
    if behind.is_empty() {
        return Ok(());
    }
    let lost = delivery.lost();
    if !lost.is_empty() {
        delivery.fetch(lost, control).map_err(|error| (error.code(), error.to_string()))?;
    }
    behind.into_iter().for_each(|at| delivery.mend_cell(at));
    Ok(())
}

/// Waits until the workers serve what they should, then reports refusals and, after them, what is applied: a change
/// that was refused must never look applied.
fn confirm(
    shared: &Shared,
    delivery: &mut Delivery,
    told: &mut Told,
    control: &Control,
) -> Result<(), ControlError> {
    let standing = delivery.index.refused();
    told.refused
        .retain(|(id, sequence)| standing.get(id).is_some_and(|standing| standing.sequence == *sequence));
    let untold: Vec<_> = standing
        .iter()
        .map(|(id, standing)| ((*id, standing.sequence), standing.refused.clone()))
        .filter(|(key, _)| !told.refused.contains(key))
        .collect();
    for chunk in untold.chunks(REFUSED_MAX) {
        control
            .rejected(&Rejected { refused: chunk.iter().map(|(_, refused)| refused.clone()).collect() })?;
        told.refused.extend(chunk.iter().map(|(key, _)| *key));
    }
    let (epoch, sequence) = delivery.index.cursor();
    if (epoch, sequence) == (Epoch::ZERO, Sequence::ZERO) {
        return Ok(());
    }
    let until = Instant::now() + PROBE_WAIT;
    for at in 0..delivery.cells.len() {
        let Some(cell) = delivery.cells.get(at) else { continue };
        let number = cell.number;
        if told.applied.get(&number) == Some(&(epoch, sequence)) || !delivery.is_current(cell) {
            continue;
        }
        match probe_until(cell, until) {
            Some(Probe::Serves(_)) => {
                fail::fail_point!("edge.ack.before");
                control.applied(&Applied { cell: number, epoch, sequence })?;
                fail::fail_point!("edge.ack.after");
                told.applied.insert(number, (epoch, sequence));
                set_applied(shared, number, epoch, sequence);
            }
            Some(Probe::Refused(reason)) => {
                shared.status().alarm(now(), "generation_refused", &format!("cell {number}: {reason}"));
                if let Some(cell) = delivery.cells.get_mut(at)
                    && let Err(error) = cell.go_back()
                {
                    tracing::error!(%error, "cannot go back");
                }
                delivery.lag(number, &reason);
            }
            _ => {}
        }
    }
    Ok(())
}

fn set_applied(shared: &Shared, number: CellNumber, epoch: Epoch, sequence: Sequence) {
    let mut status = shared.status();
    if let Some(cell) = status.cells.iter_mut().find(|cell| cell.cell == number) {
        (cell.epoch, cell.sequence) = (epoch, sequence);
    }
}
