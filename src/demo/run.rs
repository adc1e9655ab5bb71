//! `headwater demo`: prepares a directory, starts every part in it, registers the clusters, enrols the edge, publishes
//! `demo.json`, walks the tour, and keeps the parts alive until it is told to stop.
//!
//! What must hold: one demo per directory; a demo that follows a killed one has the same data and the same token;
//! nothing is left running when it ends, and what a `kill -9` left is ended by the next.

use std::fs::File;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::Args;
use tokio::signal::unix::{SignalKind, signal};

use super::edge::{self, CellPorts, Edge, EdgeSpec};
use super::headwater::{Headwater, Listeners, Settings};
use super::home::Home;
use super::ledger::{self, PortBook};
use super::manifest::Manifest;
use super::origin::Origin;
use super::postgres::{DatabaseName, Postgres};
use super::stack::{ClusterPorts, DnsStack};
use super::supervise::Supervisor;
use super::tour::Sights;

/// DNS clusters of a demo.
const CLUSTERS: usize = 2;
/// The name of its edge.
const EDGE: &str = "edge-1";
/// Workers of a cell.
const WORKERS: u16 = 2;
/// Cells of its edge host.
const CELLS: usize = 2;
/// The exit code of something refused.
const EXIT_REFUSED: u8 = 3;

/// The whole system on loopback in one directory.
#[derive(Args, Clone, Debug)]
pub struct DemoArgs {
    /// Where everything lives
    #[arg(long, env = "HEADWATER_DEMO_DIR", default_value = ".headwater", value_name = "DIR")]
    pub dir: PathBuf,
    /// End after the tour, with its outcome as the exit code
    #[arg(long)]
    pub once: bool,
}

/// Runs the demo until it is interrupted, or until the end of the tour with `--once`.
pub async fn run(args: DemoArgs) -> Result<ExitCode> {
    // Another part of the program may have installed it already; either way there is one now.
    let _installed = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let home = Home::open(&args.dir)?;
    let Some(_lock) = lock(&home)? else {
        eprintln!(
            "demo: a demo runs in {} already; stop it, or choose another directory with --dir",
            home.dir().display()
        );
        return Ok(ExitCode::from(EXIT_REFUSED));
    };
    let manifest = Arc::new(Manifest::new(home.clone(), stop_order()));
    manifest.withdraw()?;
    for name in ledger::end_leftovers(&home).await? {
        eprintln!("demo: ended {name}, left by an earlier demo");
    }

    let mut interrupted = Interruption::listen()?;
    // Dropping a start that was interrupted ends what it has started so far.
    let started = tokio::select! {
        started = Demo::start(&home, Arc::clone(&manifest)) => Some(started?),
        () = interrupted.wait() => None,
    };
    let finished = match started {
        Some(demo) => {
            let finished = tokio::select! {
                outcome = demo.show(args.once) => outcome.map(|()| true),
                () = interrupted.wait() => Ok(false),
            };
            eprintln!("demo: stopping");
            manifest.withdraw()?;
            let stopped = demo.stop().await;
            finished.and_then(|finished| stopped.map(|()| finished))
        }
        None => Ok(false),
    };
    ledger::forget_processes(&home)?;
    // An interrupt is how a demo ends, but not how a tour does.
    let is_success = finished? || !args.once;
    Ok(if is_success { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Takes the directory for this process; `None` when another has it.
fn lock(home: &Home) -> Result<Option<File>> {
    let path = home.dir().join("demo.lock");
    let lock = File::create(&path).with_context(|| format!("cannot make {}", path.display()))?;
    match lock.try_lock() {
        Ok(()) => Ok(Some(lock)),
        Err(std::fs::TryLockError::WouldBlock) => Ok(None),
        Err(std::fs::TryLockError::Error(error)) => {
            Err(error).with_context(|| format!("cannot lock {}", path.display()))
        }
    }
}

/// The parts, from the one that is stopped first.
fn stop_order() -> Vec<String> {
    let numbered = |prefix: &'static str| (1..=CLUSTERS).map(move |number| format!("{prefix}-{number}"));
    let agent = ["headwater-edge".to_owned()];
    let first = agent.into_iter().chain((0..CELLS).map(edge::nginx_name));
    let first = first.chain(["headwater".to_owned(), "dnsdist".to_owned()]);
    let last = ["postgres".to_owned()];
    first.chain(numbered("pdns")).chain(numbered("postgres-dns")).chain(last).collect()
}

/// SIGINT or SIGTERM.
struct Interruption {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

impl Interruption {
    fn listen() -> Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen for signals");
        Ok(Self { interrupt: listen(SignalKind::interrupt())?, terminate: listen(SignalKind::terminate())? })
    }

    async fn wait(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// Everything that runs.
struct Demo {
    supervisor: Supervisor,
    host: edge::Host,
    sights: Sights,
    _origin: Origin,
}

impl Demo {
    async fn start(home: &Home, manifest: Arc<Manifest>) -> Result<Self> {
        eprintln!("demo: starting in {}", home.dir().display());
        let mut ports = PortBook::open(home)?;
        let control = ports.lease("postgres")?;
        let front = ports.lease("dnsdist")?;
        let (api, metrics) = (ports.lease("api")?, ports.lease("metrics")?);
        let edge_control = ports.lease("edge-control")?;
        let edge_spec = edge_spec(&mut ports)?;
        let origin = Origin::start(ports.lease("origin")?).await?;
        let clusters = (1..=CLUSTERS)
            .map(|number| {
                Ok(ClusterPorts {
                    postgres: ports.lease(&format!("postgres-dns-{number}"))?,
                    pdns: ports.lease(&format!("pdns-{number}"))?,
                    front: ports.lease(&format!("front-{number}"))?,
                })
            })
            .collect::<Result<Vec<_>>>()?;
        let (control, dns) = tokio::try_join!(
            Postgres::start(home, "postgres", control, DatabaseName::HEADWATER),
            DnsStack::start(home, front, clusters),
        )?;
        let listeners =
            Listeners { api: api.port(), metrics: metrics.port(), edge_control: edge_control.port() };
        let settings = Settings::write(home, &control, &dns, &listeners)?;
        settings.prepare_database().await?;
        let (front, listens) = (dns.dnsdist.address(), edge_control.address());
        let headwater = Headwater::start(home, &settings, api, [metrics, edge_control]).await?;
        settings.register_clusters().await?;
        headwater.wait_ready().await?;
        let client = settings.api()?;
        let edge = Edge::start(home, &client, listens, front, edge_spec).await?;
        edge.wait_ready(&client).await?;

        let mut facts = settings.facts().await?;
        facts.insert("origin".to_owned(), format!("http://{}", origin.address()).into());
        let nodes = dns.clusters.iter().map(|node| (node.name.clone(), node.pdns.address())).collect();
        let (agent, mut host) = edge.split();
        facts.insert("edges".to_owned(), host.facts());
        let supervisor = watch(Arc::clone(&manifest), agent, headwater, dns, control)?;
        host.follow(Arc::clone(&manifest))?;
        let sights = Sights {
            api: client,
            front,
            nodes,
            edge: host.http(),
            cells: host.cells().to_vec(),
            origin: origin.address(),
            page: format!("/tour/{:08x}", rand::random::<u32>()),
            manifest: Arc::clone(&manifest),
            holds: supervisor.holds(),
        };
        manifest.publish(facts)?;
        eprintln!("demo: everything answers; {} says where", manifest.file().display());
        Ok(Self { supervisor, host, sights, _origin: origin })
    }

    /// Stops everything in order.
    async fn stop(self) -> Result<()> {
        let supervised = self.supervisor.stop().await;
        supervised.and(self.host.stop().await)
    }

    /// Walks the tour and then stays, unless that was all.
    async fn show(&self, once: bool) -> Result<()> {
        // Who watches sees the control plane and the edge killed; a script that waited for `demo.json` is at work by now.
        let with_faults = once || std::io::stdout().is_terminal();
        let tour = self.sights.walk(with_faults).await.context("the tour failed");
        if once {
            return tour;
        }
        if let Err(error) = tour {
            eprintln!("demo: {error:#}");
        }
        eprintln!("demo: running until interrupted");
        std::future::pending().await
    }
}

fn edge_spec(ports: &mut PortBook) -> Result<EdgeSpec> {
    let mut cells = Vec::new();
    for number in 1..=CELLS {
        cells.push(CellPorts {
            http: ports.lease(&format!("cell-{number}-http"))?,
            https: ports.lease(&format!("cell-{number}-https"))?,
        });
    }
    let (http, https) = (ports.lease("edge-http")?, ports.lease("edge-https")?);
    Ok(EdgeSpec { program: edge::program()?, name: EDGE.to_owned(), workers: WORKERS, http, https, cells })
}

/// Hands every part to the supervisor, in the order of [`stop_order`].
fn watch(
    manifest: Arc<Manifest>,
    agent: edge::Agent,
    headwater: Headwater,
    dns: DnsStack,
    control: Postgres,
) -> Result<Supervisor> {
    let mut supervisor = Supervisor::new(manifest);
    supervisor.watch(agent)?;
    supervisor.watch(headwater)?;
    supervisor.watch(dns.dnsdist)?;
    let (name_servers, databases): (Vec<_>, Vec<_>) =
        dns.clusters.into_iter().map(|cluster| (cluster.pdns, cluster.postgres)).unzip();
    for name_server in name_servers {
        supervisor.watch(name_server)?;
    }
    for database in databases {
        supervisor.watch(database)?;
    }
    supervisor.watch(control)?;
    Ok(supervisor)
}
