//! A control plane of its own for the rows of the edge: `headwater serve` on a database beside the demo's, without DNS
//! clusters, so that what is measured is the way to the edges; and real edge hosts, as the demo starts them.

use super::super::system::{System, pool};
use super::super::{load, sql};
use anyhow::{Context, Result, bail, ensure};
use headwater::demo::api::Api;
use headwater::demo::edge::{Agent, CellPorts, Edge, EdgeSpec, Host, master};
use headwater::demo::home::Home;
use headwater::demo::ports::PortLease;
use headwater::demo::probe;
use headwater::demo::supervise::Supervised;
use headwater::secret::Secret;
use headwater_events::dns::{DomainName, OwnerName};
use headwater_events::domain::destination::Destinations;
use headwater_events::domain::{DomainCommand, HostnameBody, HostnameInput, OriginInput};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sqlx::postgres::PgPool;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// How long a change may take to be served; a large snapshot takes minutes.
const SERVED_LIMIT: Duration = Duration::from_secs(600);
/// How long the control plane may take to be ready.
const READY_LIMIT: Duration = Duration::from_secs(60);
/// How often it is asked what cells serve.
const ASK_PAUSE: Duration = Duration::from_millis(2);
/// Without a DNS cluster no operation succeeds: each ends by its deadline, with one event as otherwise.
const DEADLINE_SECONDS: u32 = 2;
/// How late statistics are.
const STATISTICS_DELAY: Duration = Duration::from_secs(3);
/// A resolver that is never asked: origins are addresses.
const NO_RESOLVER: &str = "127.0.0.1:53";

/// A control plane.
pub struct Plane {
    serve: Child,
    /// Its API.
    pub api: Api,
    /// Its database.
    pub pool: PgPool,
    edge_control: SocketAddr,
    dir: PathBuf,
    _ports: [PortLease; 3],
}

/// An edge host that runs. The fields end in their order.
pub struct Running {
    /// Its agent.
    pub agent: Agent,
    /// The rest of it.
    pub host: Host,
    /// Where its cells listen in the clear.
    pub cells: Vec<SocketAddr>,
}

impl Plane {
    /// Starts one with domains that have one hostname each.
    pub async fn start(system: &System, name: &str, origin: SocketAddr, domains: usize) -> Result<Self> {
        // Short, because sockets lie below it.
        let dir = std::env::temp_dir().join(format!("hwb-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir)?;
        let database_url = system.database(&format!("bench_{name}")).await?;
        let ports = [PortLease::take()?, PortLease::take()?, PortLease::take()?];
        let [listen, metrics, edge_control] = [0, 1, 2].map(|n: usize| ports[n].address());
        std::fs::write(dir.join("database-url"), database_url.expose())?;
        let config = dir.join("headwater.toml");
        let text = format!(
            "[database]\nurl_file = \"database-url\"\n[server]\nlisten = \"{listen}\"\nmetrics_listen = \"{metrics}\"\n\
             [sites]\nunsafe_allow_loopback_origins = true\n\
             [edge_control]\nlisten = \"{edge_control}\"\nheartbeat_seconds = 1\nregistrations_per_hour = 1000000\n\
             requests_per_minute = 1000000\n[operations]\ndeadline_seconds = {DEADLINE_SECONDS}\n[limits]\ndomains_per_tenant = 1000000\nmutations_per_minute = 10000000\n\
             reads_per_minute = 10000000\n"
        );
        std::fs::write(&config, text)?;
        let token = dir.join("admin-token");
        let program = env!("CARGO_BIN_EXE_headwater");
        let mut init = std::process::Command::new(program);
        init.arg("--config").arg(&config).args([
            "init",
            "--admin-email",
            "bench@example.test",
            "--token-file",
        ]);
        let done = init.arg(&token).output()?;
        ensure!(done.status.success(), "init: {}", String::from_utf8_lossy(&done.stderr));
        let pool = pool(&database_url).await?;
        seed(&database_url, &pool, origin, domains).await?;
        let log = std::fs::File::create(system.target_dir.join(format!("bench-{name}.log")))?;
        let mut serve = std::process::Command::new(program);
        serve.arg("--config").arg(&config).arg("serve");
        let serve = serve.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn()?;
        let api = Api::new(format!("http://{listen}"), Secret::read(&token)?)?;
        let plane = Self { serve, api, pool, edge_control, dir, _ports: ports };
        let deadline = Instant::now() + READY_LIMIT;
        while let Err(error) = probe::http_ok(listen, "/readyz", Duration::from_secs(2)).await {
            ensure!(Instant::now() < deadline, "the control plane of {name} is not ready: {error:#}");
            sleep(Duration::from_millis(50)).await;
        }
        Ok(plane)
    }

    /// An edge host; it is enrolled and its cells run, but may still be fetching.
    pub async fn edge(&self, name: &str, cells: usize, workers: u16) -> Result<Running> {
        let home = Home::open(&self.dir.join(name))?;
        let mut ports = Vec::new();
        for _ in 0..cells {
            ports.push(CellPorts { http: PortLease::take()?, https: PortLease::take()? });
        }
        let addresses = ports.iter().map(|cell| cell.http.address()).collect();
        let (http, https) = (PortLease::take()?, PortLease::take()?);
        let program = Path::new(env!("CARGO_BIN_EXE_headwater")).with_file_name("headwater-edge");
        ensure!(program.is_file(), "{} is missing: `make bench` makes it", program.display());
        let spec = EdgeSpec { program, name: name.to_owned(), workers, http, https, cells: ports };
        let edge = Edge::start(&home, &self.api, self.edge_control, NO_RESOLVER.parse()?, spec).await?;
        let (agent, host) = edge.split();
        Ok(Running { agent, host, cells: addresses })
    }

    /// Waits until so many cells serve a revision of a domain.
    pub async fn served(&self, domain: &str, revision: i64, cells: usize) -> Result<()> {
        let (deadline, cells) = (Instant::now() + SERVED_LIMIT, i64::try_from(cells)?);
        loop {
            let query = sqlx::query_scalar(sql::CELLS_THAT_SERVE).bind(domain).bind(revision);
            let serving: Option<i64> = query.fetch_optional(&self.pool).await?;
            if serving >= Some(cells) {
                return Ok(());
            }
            ensure!(
                Instant::now() < deadline,
                "{domain}: {serving:?} of {cells} cells serve revision {revision}"
            );
            sleep(ASK_PAUSE).await;
        }
    }

    /// Waits until so many cells serve everything.
    pub async fn all_served(&self, cells: usize) -> Result<()> {
        let (deadline, cells) = (Instant::now() + SERVED_LIMIT, i64::try_from(cells)?);
        loop {
            let serving: i64 = sqlx::query_scalar(sql::CELLS_THAT_SERVE_ALL).fetch_one(&self.pool).await?;
            if serving >= cells {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "{serving} of {cells} cells serve everything");
            sleep(ASK_PAUSE).await;
        }
    }

    /// Waits until everything that was asked for is published.
    pub async fn all_published(&self) -> Result<()> {
        let deadline = Instant::now() + SERVED_LIMIT;
        let head: i64 = sqlx::query_scalar(sql::HEAD).fetch_one(&self.pool).await?;
        while !sqlx::query_scalar(sql::IS_ALL_PUBLISHED).bind(head).fetch_one(&self.pool).await? {
            ensure!(Instant::now() < deadline, "the edge projection does not follow");
            sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// Kills it (`kill -9`).
    pub fn kill(&mut self) -> Result<()> {
        self.serve.kill()?;
        self.serve.wait()?;
        Ok(())
    }

    /// Rows that were written so far: of acknowledgements, and of all tables but what heartbeats write.
    pub async fn rows_written(&self) -> Result<(i64, i64)> {
        // What backends count is told once a second, or when they are idle.
        sleep(STATISTICS_DELAY).await;
        Ok(sqlx::query_as(sql::ROWS_WRITTEN).fetch_one(&self.pool).await?)
    }
}

impl Drop for Plane {
    fn drop(&mut self) {
        // It has no parts of its own, and its database goes with the system.
        let _killed = self.serve.kill();
        let _ended = self.serve.wait();
        let _removed = std::fs::remove_dir_all(&self.dir);
    }
}

impl Running {
    /// Kills everything of it (`kill -9`): the agent, and nginx with its workers.
    pub async fn kill(&mut self) -> Result<()> {
        let workers = self.workers()?;
        self.agent.service().kill().await?;
        for cell in self.host.cells() {
            master(cell).context("a cell has no nginx")?.signal(Signal::SIGKILL)?;
        }
        for worker in workers {
            // It may be gone with its master.
            let _gone = kill(Pid::from_raw(worker), Signal::SIGKILL);
        }
        Ok(())
    }

    /// The most memory that the agent has held, in MiB.
    pub fn agent_peak_mib(&self) -> Result<f64> {
        peak_mib(self.agent.id().context("the agent has ended")?.pid())
    }

    /// The most memory that a worker has held, in MiB.
    pub fn worker_peak_mib(&self) -> Result<f64> {
        let workers = self.workers()?;
        let peaks = workers.into_iter().map(peak_mib).collect::<Result<Vec<_>>>()?;
        Ok(peaks.into_iter().fold(0.0, f64::max))
    }

    /// The workers of every cell.
    pub fn workers(&self) -> Result<Vec<i32>> {
        let mut workers = Vec::new();
        for cell in self.host.cells() {
            let master = master(cell).context("a cell has no nginx")?.pid();
            let children = std::fs::read_to_string(format!("/proc/{master}/task/{master}/children"))?;
            workers
                .extend(children.split_whitespace().map(str::parse::<i32>).collect::<Result<Vec<_>, _>>()?);
        }
        Ok(workers)
    }
}

fn peak_mib(pid: i32) -> Result<f64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no VmHWM")?;
    Ok(line.split_whitespace().next().context("no value")?.parse::<f64>()? / 1024.0)
}

/// The name of a domain of the rows.
pub fn domain(n: usize) -> String {
    format!("edge{n}.example")
}

/// Makes the domains, each with a hostname.
async fn seed(url: &Secret, on: &PgPool, origin: SocketAddr, domains: usize) -> Result<()> {
    load::seed(url, on, domains, domain, |name| hostname(name, origin)).await?;
    sqlx::query(sql::END_OPERATIONS).execute(on).await?;
    Ok(())
}

fn hostname(name: &DomainName, origin: SocketAddr) -> Result<DomainCommand> {
    let owner = OwnerName::parse("www", name)?;
    let sent = OriginInput {
        scheme: Some("http".into()),
        host: Some(origin.ip().to_string()),
        port: Some(origin.port().into()),
        host_header: Some("origin.example".into()),
        ..OriginInput::default()
    };
    let input = HostnameInput { origin: sent, ..HostnameInput::default() };
    let destinations = Destinations { unsafe_allow_loopback: true, ..Destinations::default() };
    match HostnameBody::parse(&input, &owner, name, &destinations) {
        Ok(body) => Ok(DomainCommand::PutHostname { owner, body }),
        Err(faults) => bail!("{faults:?}"),
    }
}
