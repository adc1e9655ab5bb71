//! The demo's edge host: the agent, the nginx of each of its cells, and the front before them.
//!
//! The demo does with it what an operator would: it makes the edge known through the API, enrols the host by the
//! one-time token, and starts the agent. The agent starts nginx and outlives none of it: so the nginx processes are
//! followed by what they write about themselves, published, and ended here.
//!
//! What must hold: an edge that was enrolled keeps its identity; nginx is ended after the agent, which would start it
//! again.

use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use tokio_util::task::AbortOnDropHandle;

use super::api::Api;
use super::front::{CellAddress, Front};
use super::home::{Account, Home};
use super::manifest::Manifest;
use super::part::PartSpec;
use super::ports::PortLease;
use super::process::ProcessId;
use super::service::{Readiness, Service};
use super::supervise::Supervised;
use crate::secret::Secret;

/// Where DNS sends its visitors.
pub(super) const ADDRESS: &str = "127.0.0.1";
/// The name of the agent's program, beside ours.
const PROGRAM: &str = "headwater-edge";
/// Where the runtime is in a checkout.
const CHECKOUT_RUNTIME: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/edge/runtime");
/// Where a package puts it.
const PACKAGE_RUNTIME: &str = "/usr/lib/headwater-edge/runtime";
/// What nginx and Lua read of it.
const RUNTIME_SUFFIXES: [&str; 2] = ["conf", "lua"];
/// Where the system's resolvers are named.
const RESOLV_CONF: &str = "/etc/resolv.conf";
/// The size of a cell's cache.
const CACHE_MIB: u32 = 256;
/// How long the edge may take until the control plane says that it is in service.
const READY_LIMIT_SECONDS: u64 = 60;
/// How often it is asked, and how often the processes of nginx are looked at.
const LOOK_PAUSE_MILLISECONDS: u64 = 100;
/// How long nginx may take to end before it is killed.
const NGINX_GRACE_SECONDS: u64 = 10;
/// The same where nobody can wait for long.
const NGINX_DROP_GRACE_MILLISECONDS: u64 = 2_000;

/// The ports of a cell.
pub struct CellPorts {
    /// In the clear.
    pub http: PortLease,
    /// By TLS.
    pub https: PortLease,
}

/// An edge host.
pub struct EdgeSpec {
    /// The agent's program.
    pub program: PathBuf,
    /// The name of the edge.
    pub name: String,
    /// Workers of each cell.
    pub workers: u16,
    /// The port of its front, in the clear.
    pub http: PortLease,
    /// The port of its front, by TLS.
    pub https: PortLease,
    /// The ports of its cells.
    pub cells: Vec<CellPorts>,
}

/// An edge host that runs. The fields end in their order: the agent first, which would start nginx again.
pub struct Edge {
    agent: Service,
    host: Host,
}

/// What of it is no process of ours.
pub struct Host {
    cells: Cells,
    front: Front,
    id: String,
    state: PathBuf,
    _ports: Vec<CellPorts>,
}

impl Edge {
    /// Makes the edge known if need be, enrols its host, and starts the agent and the front.
    ///
    /// `control` is the listener for edges, `dns` answers for the zones of the demo.
    pub async fn start(
        home: &Home,
        api: &Api,
        control: SocketAddr,
        dns: SocketAddr,
        spec: EdgeSpec,
    ) -> Result<Self> {
        let program = spec.program.clone();
        let runtime = home.part("edge-runtime");
        copy_runtime(&runtime)?;
        let state = home.part("edge");
        let config = home.dir().join("edge.toml");
        let control = format!("https://{control}");
        Account::Own.write_file(&config, &settings(&state, &runtime, &control, dns, &spec)?)?;
        let host = Enrolling { home, control: &control, program: &program, config: &config, state: &state };
        let id = host.enrol(api, &spec.name, spec.cells.len()).await.context("cannot enrol the edge")?;
        let cells = Cells::new(&state, spec.cells.len());
        let part = PartSpec {
            name: PROGRAM.to_owned(),
            program,
            args: ["run".into(), "--config".into(), config.into()].into(),
            // Its log is a file.
            env: vec![("NO_COLOR".to_owned(), "1".to_owned())],
            account: Account::Own,
            dir: home.dir().to_owned(),
            log: home.log(PROGRAM),
            stop_signal: Signal::SIGTERM,
            death_signal: Signal::SIGKILL,
        };
        let mut agent = Service::new(part, Readiness::Agent(state.join("status.json")));
        agent.start().await?;
        let addresses = spec.cells.iter();
        let addresses = addresses
            .map(|cell| CellAddress { http: cell.http.address(), https: cell.https.address() })
            .collect();
        let front = Front::start(spec.http, spec.https, addresses).await?;
        let host = Host { cells, front, id, state, _ports: spec.cells };
        Ok(Self { agent, host })
    }

    /// Waits until the control plane says that every cell is in service.
    pub async fn wait_ready(&self, api: &Api) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(READY_LIMIT_SECONDS);
        loop {
            let shown = api.get(&format!("/api/edges/{}", self.host.id)).await?.body;
            let cells = shown["cell_states"].as_array().map_or(&[][..], Vec::as_slice);
            if !cells.is_empty() && cells.iter().all(|cell| cell["ready"] == true) {
                return Ok(());
            }
            if Instant::now() >= deadline {
                bail!("the edge is not in service; see logs/{PROGRAM}.log, and: {}", shown["cell_states"]);
            }
            sleep(Duration::from_millis(LOOK_PAUSE_MILLISECONDS)).await;
        }
    }

    /// The agent, to be watched, and what is left.
    pub fn split(self) -> (Agent, Host) {
        (Agent(self.agent), self.host)
    }
}

impl Host {
    /// What `demo.json` says of it.
    pub fn facts(&self) -> Value {
        let front = &self.front;
        json!([{
            "id": self.id,
            "http": format!("http://{}", front.http()),
            "https": format!("https://{}", front.https()),
            "state_dir": self.state,
        }])
    }

    /// Where visitors come in the clear.
    pub fn http(&self) -> SocketAddr {
        self.front.http()
    }

    /// The id of the edge.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The directories of the cells.
    pub fn cells(&self) -> &[PathBuf] {
        &self.cells.dirs
    }

    /// Publishes the processes of nginx from now on.
    pub fn follow(&mut self, manifest: Arc<Manifest>) -> Result<()> {
        self.cells.follow(manifest)
    }

    /// Ends nginx. The agent must have ended before.
    pub async fn stop(self) -> Result<()> {
        self.cells.stop().await
    }
}

/// The agent's process.
pub struct Agent(Service);

impl Agent {
    /// The process, if it runs.
    pub fn id(&self) -> Option<ProcessId> {
        self.0.id()
    }
}

impl Supervised for Agent {
    fn service(&mut self) -> &mut Service {
        &mut self.0
    }
}

/// The agent's program: it stands beside ours.
///
/// # Errors
/// When it is not there.
pub fn program() -> Result<PathBuf> {
    let own = std::env::current_exe().context("cannot find our own program")?;
    let program = own.with_file_name(PROGRAM);
    if !program.is_file() {
        bail!("{} is missing: cargo build --workspace --bins makes it", program.display());
    }
    Ok(program)
}

/// Copies what nginx and Lua read to where their account can reach it: a checkout may lie below a closed directory.
fn copy_runtime(to: &Path) -> Result<()> {
    let from = [CHECKOUT_RUNTIME, PACKAGE_RUNTIME].map(Path::new).into_iter().find(|dir| dir.is_dir());
    let from = from.with_context(|| format!("neither {CHECKOUT_RUNTIME} nor {PACKAGE_RUNTIME} is there"))?;
    copy_directory(from, to)
}

fn copy_directory(from: &Path, to: &Path) -> Result<()> {
    Account::Own.make_dir(to, 0o755)?;
    let entries = std::fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))?;
    for entry in entries {
        let entry = entry.with_context(|| format!("cannot read {}", from.display()))?;
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            if entry.file_name() != "tests" {
                copy_directory(&path, &target)?;
            }
        } else if path.extension().is_some_and(|suffix| RUNTIME_SUFFIXES.iter().any(|known| suffix == *known))
        {
            std::fs::copy(&path, &target).with_context(|| format!("cannot copy {}", path.display()))?;
        }
    }
    Ok(())
}

/// The settings of the agent.
fn settings(state: &Path, runtime: &Path, control: &str, dns: SocketAddr, spec: &EdgeSpec) -> Result<String> {
    let resolvers: Vec<String> =
        std::iter::once(dns).chain(system_resolvers()).map(|address| format!("\"{address}\"")).collect();
    let mut text = format!(
        "# Written by `headwater demo` at each start.\n\n\
         state_dir = \"{}\"\n\n\
         [control]\nurl = \"{control}\"\n\n\
         [nginx]\nruntime_dir = \"{}\"\ncache_mib = {CACHE_MIB}\n\n\
         # The demo's own zones first; who is not asked for a name there refuses.\n\
         [origins]\nresolvers = [{}]\nunsafe_allow_loopback = true\n",
        state.display(),
        runtime.display(),
        resolvers.join(", "),
    );
    for cell in &spec.cells {
        let (http, https, workers) = (cell.http.address(), cell.https.address(), spec.workers);
        write!(text, "\n[[cells]]\nhttp = [\"{http}\"]\nhttps = [\"{https}\"]\nworkers = {workers}\n")
            .context("cannot write the settings of the agent")?;
    }
    Ok(text)
}

/// The resolvers of this machine.
fn system_resolvers() -> Vec<SocketAddr> {
    let text = std::fs::read_to_string(RESOLV_CONF).unwrap_or_default();
    let addresses = text.lines().filter_map(|line| line.strip_prefix("nameserver"));
    addresses
        .filter_map(|address| Some(SocketAddr::new(address.trim().parse::<IpAddr>().ok()?, 53)))
        .collect()
}

/// A host that is to be enrolled.
struct Enrolling<'a> {
    home: &'a Home,
    control: &'a str,
    program: &'a Path,
    config: &'a Path,
    state: &'a Path,
}

impl Enrolling<'_> {
    /// Makes the edge known and its host enrolled, where it is not; gives the edge's id.
    async fn enrol(&self, api: &Api, name: &str, cells: usize) -> Result<String> {
        let known = api.get("/api/edges?limit=1000").await?;
        let items = known.body["items"].as_array();
        let made = match items.and_then(|items| items.iter().find(|item| item["name"] == name)) {
            // A host that has registered goes on with what it has.
            Some(edge) if !edge["identity"].is_null() && self.state.join("identity").is_dir() => {
                return text(edge, "id").map(str::to_owned);
            }
            // It was stopped between being made known and being registered, or its directory was removed.
            Some(edge) => {
                let path = format!("/api/edges/{}/rotate-identity", text(edge, "id")?);
                api.call(Method::POST, &path, None).await?.body
            }
            None => {
                let mut body = json!({"name": name, "country": "DE", "continent": "EU", "cells": cells});
                body["addresses"] = json!([ADDRESS]);
                api.call(Method::POST, "/api/edges", Some(body)).await?.body
            }
        };
        let token = Secret::new(text(&made, "bootstrap_token")?.to_owned());
        for dir in Cells::dirs(self.state, cells) {
            end(&dir).await?;
        }
        if self.state.exists() {
            std::fs::remove_dir_all(self.state)
                .with_context(|| format!("cannot remove {}", self.state.display()))?;
        }
        let id = text(&made, "id")?;
        let mut command = Account::Own.command(self.program, Some(Signal::SIGTERM));
        command.args(["enroll", "--control", self.control, "--edge", id, "--token-file", "-", "--config"]);
        command.arg(self.config).current_dir(self.home.dir());
        super::postgres::run(command, Some(token)).await?;
        Ok(id.to_owned())
    }
}

fn text<'a>(value: &'a Value, key: &str) -> Result<&'a str> {
    value[key].as_str().with_context(|| format!("the answer of the API has no {key}"))
}

/// The nginx of each cell: started by the agent, known by what they write, ended here.
struct Cells {
    dirs: Vec<PathBuf>,
    follower: Option<AbortOnDropHandle<()>>,
}

impl Cells {
    fn new(state: &Path, count: usize) -> Self {
        Self { dirs: Self::dirs(state, count), follower: None }
    }

    fn dirs(state: &Path, count: usize) -> Vec<PathBuf> {
        (0..count).map(|number| state.join(format!("cell-{number}"))).collect()
    }

    fn follow(&mut self, manifest: Arc<Manifest>) -> Result<()> {
        let mut known = vec![None; self.dirs.len()];
        publish(&self.dirs, &mut known, &manifest)?;
        let dirs = self.dirs.clone();
        let follow = async move {
            loop {
                sleep(Duration::from_millis(LOOK_PAUSE_MILLISECONDS)).await;
                if let Err(error) = publish(&dirs, &mut known, &manifest) {
                    eprintln!("demo: {error:#}; trying again");
                }
            }
        };
        self.follower = Some(AbortOnDropHandle::new(tokio::spawn(follow)));
        Ok(())
    }

    async fn stop(mut self) -> Result<()> {
        self.follower = None;
        let mut outcome = Ok(());
        for dir in std::mem::take(&mut self.dirs) {
            outcome = outcome.and(end(&dir).await);
        }
        outcome
    }
}

impl Drop for Cells {
    fn drop(&mut self) {
        for master in self.dirs.iter().filter_map(|dir| master(dir)) {
            // A drop cannot report; what is left is ended by the next demo.
            let _sent = master.signal(Signal::SIGTERM);
            let _gone = master.wait_gone_blocking(Duration::from_millis(NGINX_DROP_GRACE_MILLISECONDS));
        }
    }
}

/// The name of a cell's nginx in `demo.json`; the first is 1.
pub(super) fn nginx_name(number: usize) -> String {
    format!("nginx-{}", number + 1)
}

/// The master of a cell's nginx. A number that another process has by now is told by its directory.
pub fn master(cell: &Path) -> Option<ProcessId> {
    let text = std::fs::read_to_string(cell.join("run/nginx.pid")).ok()?;
    let master = ProcessId::of(text.trim().parse().ok()?)?;
    let cwd = std::fs::read_link(format!("/proc/{}/cwd", master.pid())).ok()?;
    (Some(cwd) == cell.canonicalize().ok()).then_some(master)
}

/// Publishes the masters that are not published yet.
fn publish(dirs: &[PathBuf], known: &mut [Option<ProcessId>], manifest: &Manifest) -> Result<()> {
    for (number, (dir, known)) in dirs.iter().zip(known).enumerate() {
        if let Some(master) = master(dir)
            && *known != Some(master)
        {
            manifest.started(&nginx_name(number), master)?;
            *known = Some(master);
        }
    }
    Ok(())
}

async fn end(cell: &Path) -> Result<()> {
    let Some(master) = master(cell) else { return Ok(()) };
    master.signal(Signal::SIGTERM)?;
    let grace = Duration::from_secs(NGINX_GRACE_SECONDS);
    if master.wait_gone(grace).await.is_err() {
        master.signal(Signal::SIGKILL)?;
        master.wait_gone(grace).await?;
    }
    Ok(())
}
