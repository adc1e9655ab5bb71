//! The loops: one delivers, one keeps nginx running and asks it what it serves, one tells the control plane. They share
//! a status and nothing else that can block; none of them ends because something fails.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use headwater_edge_wire::artifact::ArtifactBudget;
use headwater_edge_wire::ids::{AgentVersion, CellNumber, DomainId, Epoch, Generation, Sequence};
use headwater_edge_wire::manifest::Page;
use headwater_edge_wire::protocol::{Applied, ManifestQuery, REFUSED_MAX, RegisterRequest, Rejected};
use headwater_edge_wire::tasks::{Outcome, TaskResult, Work};
use headwater_edge_wire::time::Timestamp;
use headwater_edge_wire::token::{AuthorityFingerprint, BootstrapToken};
use headwater_edge_wire::verify::{Pins, Reader, Refusal};

use crate::backoff::Backoff;
use crate::build::Builder;
use crate::cell::Cell;
use crate::control::{Control, ControlError};
use crate::deliver::{DeliverError, Delivery};
use crate::disk;
use crate::heartbeat;
use crate::identity::{self, Identity, Registration, RegistrationFile};
use crate::index::Index;
use crate::layout::Layout;
use crate::pins::{self, PinsFile};
use crate::plan::{self, Facts, Step};
use crate::probe::{self, Probe};
use crate::process::{self, Runtime};
use crate::settings::Settings;
use crate::status::{CellStatus, Status, renew_at};
use crate::store::Store;
use crate::tls::{ClientIdentity, Trust};

/// How long a new generation may take to be served by all workers before the loop goes on without it.
const PROBE_WAIT: Duration = Duration::from_secs(5);
const PROBE_EVERY: Duration = Duration::from_millis(20);
/// How often nginx is looked after.
const KEEP_EVERY: Duration = Duration::from_millis(250);
const STATUS_EVERY: Duration = Duration::from_secs(1);
const HEARTBEAT_DEFAULT: Duration = Duration::from_secs(15);
const HEARTBEAT_RANGE_SECONDS: (u32, u32) = (1, 300);

/// What the loops share.
pub struct Shared {
    /// The settings.
    pub settings: Settings,
    /// Where things lie.
    pub layout: Layout,
    status: Mutex<Status>,
    wanted: Mutex<BTreeMap<CellNumber, Generation>>,
    runtimes: Mutex<Vec<Runtime>>,
    control: Mutex<Option<Arc<Control>>>,
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
        }
    }

    fn status(&self) -> MutexGuard<'_, Status> {
        lock(&self.status)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the clock of this host says.
pub fn now() -> Timestamp {
    Timestamp::from(chrono::Utc::now())
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
    for (number, cell) in numbers.iter().zip(&shared.settings.cells) {
        let dir = shared.layout.cell(*number);
        disk::make_dir(&dir, disk::PASSABLE_DIR)?;
        if process::configure(&dir, &shared.settings, cell, owner)? {
            let mut runtimes = lock(&shared.runtimes);
            // A cell that an earlier agent left running takes the new values over.
            if let Some(runtime) = runtimes.get_mut(usize::from(number.get()))
                && dir.join("current").exists()
            {
                runtime.keep(&dir, &shared.settings, Instant::now())?;
                runtime.reload();
            }
        }
    }
    let identity = wait_for_identity(&shared);
    let mut delivery = open(&shared, identity, owner)?;
    boot_cells(&shared, &mut delivery);
    for work in [keep_loop as fn(&Shared), heartbeat_loop] {
        let shared = Arc::clone(&shared);
        std::thread::Builder::new().spawn(move || work(&shared))?;
    }
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

fn open(
    shared: &Shared,
    identity: Arc<Identity>,
    owner: Option<crate::cell::Owner>,
) -> Result<Delivery, Box<dyn std::error::Error + Send + Sync>> {
    let layout = shared.layout.clone();
    disk::discard(&layout.staging());
    let budget = ArtifactBudget::default();
    let key = Arc::clone(&identity.state_key);
    let mut damage = identity.damage.clone();
    let store = Store::open(&layout.artifacts(), budget)?;
    let (index, found) = Index::open(&layout.index(), identity.edge, Arc::clone(&key))?;
    damage.extend(found.damage);
    let mut cells = Vec::new();
    for number in CellNumber::first(u8::try_from(shared.settings.cells.len()).unwrap_or(u8::MAX)) {
        let (cell, bad) = Cell::open(&layout.cell(number), number, Arc::clone(&key), owner)?;
        damage.extend(bad);
        damage.extend(
            cell.bad_keys()?.iter().map(|name| format!("{} does not hold", cell.dir().join(name).display())),
        );
        cells.push(cell);
    }
    let pins_file = PinsFile::new(&layout);
    let (registration, bad) = RegistrationFile::new(&layout).read(&key);
    damage.extend(bad);
    let (pinned, bad, mend) = pins_file.read(&key);
    damage.extend(bad);
    let from_index = index.pins().cloned();
    let keys = registration.as_ref().map(|registration| registration.answer.keys.clone());
    let fresh = keys.map(|keys| Pins {
        edge: identity.edge,
        epoch: Epoch::ZERO,
        through: Sequence::ZERO,
        keys,
        keys_at: Timestamp::EPOCH,
    });
    let known = [pinned.clone(), from_index].into_iter().flatten().reduce(pins::higher).or(fresh);
    let floor = cells.iter().map(Cell::place).max().unwrap_or_default();
    let pins = match known.map(|known| pins::raised(known, floor)) {
        Some(pins) => {
            if mend || pinned.as_ref() != Some(&pins) {
                pins_file.write(&key, &pins)?;
            }
            pins
        }
        // Not registered yet: the first answer brings the keys.
        None => register_first(shared, &identity),
    };
    let owners: HashMap<u64, DomainId> =
        index.domains().iter().flat_map(|(id, entry)| entry.hosts.iter().map(|host| (*host, *id))).collect();
    let mut status = shared.status();
    status.edge = Some(identity.edge);
    damage.iter().for_each(|detail| status.alarm(now(), "damaged", detail));
    drop(status);
    let min_free_bytes = shared.settings.min_free_mib << 20;
    let builder = Builder::new(Arc::clone(&identity), budget);
    let faults = BTreeMap::new();
    Ok(Delivery {
        layout,
        identity,
        store,
        index,
        pins,
        pins_file,
        cells,
        owners,
        builder,
        min_free_bytes,
        faults,
    })
}

/// Registers, however long it takes, and gives back what to pin.
fn register_first(shared: &Shared, identity: &Identity) -> Pins {
    let mut backoff = Backoff::default();
    loop {
        match ensure_control(shared, identity) {
            Ok(registration) => {
                return Pins {
                    edge: identity.edge,
                    epoch: Epoch::ZERO,
                    through: Sequence::ZERO,
                    keys: registration.answer.keys,
                    keys_at: Timestamp::EPOCH,
                };
            }
            Err(error) => pause(shared, &mut backoff, error.code(), &error.to_string()),
        }
    }
}

fn pause(shared: &Shared, backoff: &mut Backoff, code: &str, detail: &str) {
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
    let generations = delivery.cells.iter().filter_map(|cell| Some((cell.number, cell.generation()?)));
    *lock(&shared.wanted) = generations.collect();
    let mut status = shared.status();
    (status.epoch, status.sequence) = delivery.index.cursor();
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
        match known {
            Some(known) => (known.generation, known.detail) = (cell.generation(), detail),
            None => status.cells.push(CellStatus {
                cell: cell.number,
                pid: None,
                ready: false,
                http_ready: false,
                https_ready: false,
                generation: cell.generation(),
                epoch: Epoch::ZERO,
                sequence: Sequence::ZERO,
                domains: 0,
                detail,
            }),
        }
    }
}

/// Registers or renews where that is due, and has a client for this identity.
fn ensure_control(shared: &Shared, identity: &Identity) -> Result<Registration, ControlError> {
    let file = RegistrationFile::new(&shared.layout);
    let (known, _) = file.read(&identity.state_key);
    let url = shared.settings.control.url.clone().unwrap_or_else(|| identity.control.clone());
    let due = known.as_ref().is_none_or(|known| {
        let spread = u64::from_be_bytes(
            *blake3::hash(identity.csr.as_bytes()).as_bytes().first_chunk().unwrap_or(&[0; 8]),
        );
        now() >= renew_at(known.received_at, known.answer.not_after, spread)
    });
    let registration = match known {
        Some(known) if !due => known,
        Some(known) => {
            let renewed = connect(shared, identity, &url, Some(&known))
                .and_then(|control| register(&control, identity, None));
            match renewed {
                Ok(renewed) => keep(&file, identity, renewed)?,
                Err(error) => {
                    let mut status = shared.status();
                    status.alarm(
                        now(),
                        "renewal",
                        &format!("the identity ends at {}: {error}", known.answer.not_after),
                    );
                    known
                }
            }
        }
        None => {
            let token = identity::kept_token(&shared.layout).ok_or_else(|| ControlError::Answer {
                route: "POST /register",
                detail: "this edge has neither a certificate nor a token: enroll it with a new token".into(),
            })?;
            let parsed = BootstrapToken::parse(&token);
            let authority = parsed.map_err(|error| ControlError::Untrusted(error.to_string()))?.authority();
            let control = Control::new(
                &url,
                &configured_trust(shared)?.unwrap_or(Trust::Fingerprint(authority)),
                None,
            )?;
            let registration = register(&control, identity, Some(token))?;
            let registration = keep(&file, identity, registration)?;
            identity::forget_token(&shared.layout);
            *lock(&shared.control) = None;
            registration
        }
    };
    if due || lock(&shared.control).is_none() {
        let control = connect(shared, identity, &url, Some(&registration))?;
        *lock(&shared.control) = Some(Arc::new(control));
    }
    shared.status().identity_until = Some(registration.answer.not_after);
    Ok(registration)
}

fn keep(
    file: &RegistrationFile,
    identity: &Identity,
    new: Registration,
) -> Result<Registration, ControlError> {
    match file.write(&identity.state_key, &new) {
        Ok(()) => Ok(new),
        Err(error) => Err(ControlError::Answer { route: "POST /register", detail: error.to_string() }),
    }
}

fn register(
    control: &Control,
    identity: &Identity,
    token: Option<headwater_edge_wire::secret::SecretBytes>,
) -> Result<Registration, ControlError> {
    let request = RegisterRequest {
        edge: identity.edge,
        token,
        agent: heartbeat::agent(),
        csr: identity.csr.clone(),
        sealing_key: identity.sealing_public,
    };
    let answer = control.register(&request)?;
    if answer.edge != identity.edge {
        let detail = format!("it is for edge {}", answer.edge);
        return Err(ControlError::Answer { route: "POST /register", detail });
    }
    Ok(Registration { answer, received_at: now() })
}

fn configured_trust(shared: &Shared) -> Result<Option<Trust>, ControlError> {
    let settings = &shared.settings.control;
    if let Some(path) = &settings.ca_file {
        let bytes = disk::read(path, 1 << 20).map_err(|error| ControlError::Untrusted(error.to_string()))?;
        return Ok(Some(Trust::Authorities(String::from_utf8_lossy(&bytes).into_owned())));
    }
    Ok(settings.ca_sha256.as_deref().and_then(AuthorityFingerprint::parse).map(Trust::Fingerprint))
}

fn connect(
    shared: &Shared,
    identity: &Identity,
    url: &str,
    registration: Option<&Registration>,
) -> Result<Control, ControlError> {
    let answer = registration.map(|registration| &registration.answer);
    let own = answer.map(|answer| Trust::Authorities(answer.authorities.clone()));
    let trust = configured_trust(shared)?.or(own).unwrap_or(Trust::Authorities(String::new()));
    let client =
        answer.map(|answer| ClientIdentity { chain: &answer.certificate, key: identity.key_pem.expose() });
    Control::new(url, &trust, client)
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
}

type Failure = (&'static str, String);

fn deliver_once(shared: &Shared, delivery: &mut Delivery, told: &mut Told) -> Result<(), Failure> {
    let of = |error: &ControlError| (error.code(), error.to_string());
    let identity = Arc::clone(&delivery.identity);
    ensure_control(shared, &identity).map_err(|error| of(&error))?;
    let control =
        lock(&shared.control).clone().ok_or(("identity", "there is no connection yet".to_owned()))?;
    mend(delivery, &control)?;
    publish(shared, delivery);
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
            (told.has_gap, told.head) = (false, delivery.index.cursor().1);
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
        Ok(page) if page.page().epoch != epoch => told.has_gap = true,
        Ok(page) => {
            delivery.apply(&page, control).map_err(|error| (error.code(), error.to_string()))?;
            told.head = page.page().head;
            shared.status().fresh_until = Some(page.page().expires_at);
        }
        Err(Refusal::Gap { .. }) => told.has_gap = true,
        Err(refusal) => {
            let detail = format!("a page is refused: {refusal}");
            shared.status().alarm(now(), refusal.code(), &detail);
            let hint = match refusal {
                Refusal::Ahead(_) | Refusal::Expired(_) => " (is the clock of this host right?)",
                _ => "",
            };
            return Err(("page_refused", format!("{detail}{hint}")));
        }
    }
    Ok(())
}

/// Writes the cells that lag, after fetching what was lost.
fn mend(delivery: &mut Delivery, control: &Control) -> Result<(), Failure> {
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

fn probe_until(cell: &Cell, until: Instant) -> Option<Probe> {
    let want = cell.generation()?;
    loop {
        fail::fail_point!("edge.probe.before");
        let probed = probe::generation(cell.dir(), want).ok();
        fail::fail_point!("edge.probe.after");
        match probed {
            Some(Probe::Mixed) | None if Instant::now() < until => std::thread::sleep(PROBE_EVERY),
            probed => return probed,
        }
    }
}

fn keep_once(shared: &Shared) {
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

fn keep_loop(shared: &Shared) {
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

fn write_status(shared: &Shared) {
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

fn heartbeat_loop(shared: &Shared) {
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
