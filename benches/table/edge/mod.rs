//! The rows of the edge: what a cached answer costs beside plain nginx, and how long a change takes from its 202 until
//! every cell serves it, with real agents and real nginx on the same machine.

mod plane;

use super::report::{Goal, Report, median, quantile};
use super::system::System;
use anyhow::{Context, Result, bail, ensure};
use headwater::demo::origin::Origin;
use headwater::demo::ports::PortLease;
use headwater::demo::supervise::Supervised;
use plane::{Plane, Running, domain};
use reqwest::Method;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::{Instant, interval, sleep};

/// Domains of a small plane.
const SMALL_DOMAINS: usize = 100;
/// Domains of a large one; `HEADWATER_BENCH_EDGE_DOMAINS` gives another number.
const LARGE_DOMAINS: usize = 100_000;
/// Cells of the host that changes are sent to.
const CELLS: usize = 2;
/// Workers of each.
const WORKERS: u16 = 2;
/// Changes that are timed.
const CHANGES: usize = 200;
/// Purges that are timed.
const PURGES: usize = 100;
/// Edges that hold the purged domains, each with one cell of one worker.
const PURGE_EDGES: usize = 8;
/// Changes that come without a pause.
const BURST_CHANGES: usize = 500;
/// Changes while visitors come, and how many of them are under way at once.
const LOAD_CHANGES: usize = 1_000;
const LOAD_WRITERS: usize = 8;
/// Visitors of that load, and how often each comes: below what a cell limits one client to.
const LOAD_VISITORS: usize = 8;
const LOAD_PACE: Duration = Duration::from_millis(12);
/// Rounds of cached answers, a second each for four servers.
const HIT_ROUNDS: &str = "9";
/// How long a stale answer may be given before a row fails.
const STALE_LIMIT: Duration = Duration::from_secs(10);
/// How long a cold host may take before the row fails.
const COLD_LIMIT: Duration = Duration::from_secs(120);
/// How often a cell is asked after a purge: a visitor may come 100 times a second, and 200 times at once.
const STALE_PAUSE: Duration = Duration::from_millis(4);

/// Cached answers through the runtime, beside a configuration written by hand, and beside nothing but a cache.
pub async fn hits(report: &mut Report) -> Result<()> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/edge/runtime/tests/run.py");
    ensure!(Path::new(script).is_file(), "{script} is missing");
    let mut command = Command::new("python3");
    command.args([script, "bench"]);
    if std::env::var_os("BENCH_ROUNDS").is_none() {
        command.env("BENCH_ROUNDS", HIT_ROUNDS);
    }
    let done = tokio::task::spawn_blocking(move || command.output()).await??;
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    ensure!(done.status.success(), "{script} bench failed: {text}{}", String::from_utf8_lossy(&done.stderr));
    let line =
        text.lines().find_map(|line| line.strip_prefix("json ")).context("the script told no figures")?;
    let figures: Value = serde_json::from_str(line)?;
    let rate = |of: &str| figures["rate"][of].as_f64().context("no rate");
    let cost = |of: &str| figures["microseconds"][of].as_f64().context("no cost");
    let note = "one worker on one core, wrk on the other, 1 KiB, medians of interleaved runs";
    report.row("edge.hit.rate", rate("runtime")?, "requests/s", None, note);
    let rows = [
        ("edge.hit.hand", "hand", 0.9, "a configuration by hand with the same log, limits and headers"),
        ("edge.hit.opened", "opened", 0.9, "the same by hand that keeps files open, as the runtime does"),
        ("edge.hit.bare", "bare", 0.8, "proxy_cache and nothing else"),
    ];
    for (name, of, goal, what) in rows {
        let by_cost = cost(of)? / cost("runtime")?;
        let note = format!("{what}: {:.0} requests/s; by processor time at best {by_cost:.2} x", rate(of)?);
        report.row(name, rate("runtime")? / rate(of)?, "x", Some(Goal::AtLeast(goal)), note);
    }
    Ok(())
}

async fn origin() -> Result<Origin> {
    Origin::start(PortLease::take()?).await
}

/// How long a change takes with few and with many domains, and what a new edge with many costs.
pub async fn changes(system: &System, report: &mut Report) -> Result<()> {
    let origin = origin().await?;
    let small = Plane::start(system, "few", origin.address(), SMALL_DOMAINS).await?;
    let edge = small.edge("edge", CELLS, WORKERS).await?;
    small.all_served(CELLS).await?;
    let (few, median) = timed(&small, SMALL_DOMAINS, origin.address()).await?;
    drop((edge, small));
    let note = format!(
        "p99 of {CHANGES} from the 202 of a PUT of a hostname until each of {CELLS} cells has acknowledged it, \
         {SMALL_DOMAINS} domains; p50 {median:.0} ms"
    );
    report.row("edge.change", few, "ms", Some(Goal::AtMost(500.0)), note);

    let given = std::env::var("HEADWATER_BENCH_EDGE_DOMAINS").ok().map(|text| text.parse()).transpose()?;
    let domains: usize = given.unwrap_or(LARGE_DOMAINS);
    let large = Plane::start(system, "many", origin.address(), domains).await?;
    large.all_published().await?;
    let begin = Instant::now();
    let edge = large.edge("edge", CELLS, WORKERS).await?;
    large.all_served(CELLS).await?;
    let note = format!("from its enrolment until every worker of {CELLS} cells serves {domains} domains");
    report.row("edge.new", begin.elapsed().as_secs_f64(), "s", Some(Goal::AtMost(60.0)), note);
    let (many, median) = timed(&large, SMALL_DOMAINS.min(domains), origin.address()).await?;
    let note = format!("p99 at {domains} domains: {many:.0} ms, p50 {median:.0} ms; against edge.change");
    report.row("edge.change.many", many / few, "x", Some(Goal::AtMost(1.5)), note);
    let note = format!("VmHWM of the agent, {domains} domains");
    report.row("edge.agent.memory", edge.agent_peak_mib()?, "MiB", Some(Goal::AtMost(128.0)), note);
    let note = format!("VmHWM of the largest worker, {domains} domains over {CELLS} cells");
    report.row("edge.worker.memory", edge.worker_peak_mib()?, "MiB", Some(Goal::AtMost(300.0)), note);
    let seconds = cold(large, edge).await?;
    let note = format!(
        "from the start of the agent of a host without a process, the control plane away, until each of {CELLS} cells \
         answers 200, {domains} domains"
    );
    report.row("edge.cold", seconds, "s", Some(Goal::AtMost(5.0)), note);
    Ok(())
}

/// How long a host that was killed whole takes to answer from what it holds, with nobody to ask.
async fn cold(mut plane: Plane, mut edge: Running) -> Result<f64> {
    let visitors = Visitors::new()?;
    let mut served: Vec<Option<String>> = vec![None; edge.cells.len()];
    for name in (0..SMALL_DOMAINS).map(domain) {
        let cell = cell_of(&visitors, &edge, &name).await?;
        let known = edge.cells.iter().zip(&mut served).find(|(address, _)| **address == cell);
        if let Some((_, known)) = known {
            *known = Some(name);
        }
    }
    plane.kill()?;
    edge.kill().await?;
    let (begin, cells) = (Instant::now(), edge.cells.clone());
    let answered = async {
        for (cell, name) in cells.iter().zip(&served) {
            let name = name.as_deref().context("a cell serves none of the first domains")?;
            while visitors.get(*cell, name).await.is_err() {
                ensure!(begin.elapsed() < COLD_LIMIT, "{name} at {cell} is not served");
                sleep(STALE_PAUSE).await;
            }
        }
        Ok(begin.elapsed().as_secs_f64())
    };
    let (seconds, ()) = tokio::try_join!(answered, edge.agent.service().start())?;
    Ok(seconds)
}

/// p99 and p50 of changes, one after the other, in milliseconds.
async fn timed(plane: &Plane, domains: usize, origin: SocketAddr) -> Result<(f64, f64)> {
    let mut millis = Vec::new();
    for n in 0..CHANGES {
        let name = domain(n % domains);
        let revision = put(plane, &name, origin, n).await?;
        let at = Instant::now();
        plane.served(&name, revision, CELLS).await?;
        millis.push(at.elapsed().as_secs_f64() * 1_000.0);
    }
    let median = median(&mut millis);
    Ok((quantile(&mut millis, 0.99), median))
}

/// Changes what the origin of a hostname is told; gives the revision.
async fn put(plane: &Plane, name: &str, origin: SocketAddr, n: usize) -> Result<i64> {
    let header = format!("change{n}.example");
    let origin = json!({"scheme": "http", "host": origin.ip().to_string(), "port": origin.port(), "host_header": header});
    let path = format!("/api/domains/{name}/hostnames/www");
    let answer = plane.api.call(Method::PUT, &path, Some(json!({"origin": origin, "backup": null}))).await?;
    answer.body["revision"].as_i64().context("the answer has no revision")
}

/// Visitors of cells.
#[derive(Clone)]
struct Visitors(reqwest::Client);

impl Visitors {
    fn new() -> Result<Self> {
        Ok(Self(reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(10)).build()?))
    }

    async fn get(&self, cell: SocketAddr, domain: &str) -> Result<String> {
        let asked = self.0.get(format!("http://{cell}/page")).header("host", format!("www.{domain}"));
        let answer = asked.send().await?;
        let (status, body) = (answer.status(), answer.text().await?);
        ensure!(status.as_u16() == 200, "{domain} at {cell} answered {status}: {body}");
        Ok(body)
    }

    /// Asks until the answer is another.
    async fn until_other(&self, cell: SocketAddr, domain: &str, stale: &str) -> Result<()> {
        let deadline = Instant::now() + STALE_LIMIT;
        while self.get(cell, domain).await? == stale {
            ensure!(Instant::now() < deadline, "{domain} at {cell} stays stale");
            sleep(STALE_PAUSE).await;
        }
        Ok(())
    }
}

/// How long stale answers are given after a purge, and what acknowledgements cost.
pub async fn purges(system: &System, report: &mut Report) -> Result<()> {
    let origin = origin().await?;
    let plane = Plane::start(system, "purge", origin.address(), SMALL_DOMAINS).await?;
    let mut edges: Vec<Running> = Vec::new();
    for n in 0..PURGE_EDGES {
        edges.push(plane.edge(&format!("edge{n}"), 1, 1).await?);
    }
    plane.all_served(PURGE_EDGES).await?;
    let cells: Vec<SocketAddr> = edges.iter().flat_map(|edge| edge.cells.clone()).collect();
    let visitors = Visitors::new()?;
    let mut millis = Vec::new();
    for n in 0..PURGES {
        let name = domain(n % SMALL_DOMAINS);
        let stale = cells.iter().map(|cell| visitors.get(*cell, &name));
        let stale = futures_util::future::try_join_all(stale).await?;
        let path = format!("/api/domains/{name}/purges");
        plane.api.call(Method::POST, &path, Some(json!({"type": "all"}))).await?;
        let at = Instant::now();
        let others = cells.iter().zip(&stale).map(|(cell, stale)| visitors.until_other(*cell, &name, stale));
        futures_util::future::try_join_all(others).await?;
        millis.push(at.elapsed().as_secs_f64() * 1_000.0);
        plane.all_served(PURGE_EDGES).await?;
    }
    let p50 = median(&mut millis);
    let note = format!(
        "p99 of {PURGES} from the 202 until none of {PURGE_EDGES} cells, each of an edge of its own, gives a stale \
         answer; p50 {p50:.0} ms"
    );
    report.row("edge.purge", quantile(&mut millis, 0.99), "ms", Some(Goal::AtMost(150.0)), note);

    let before = plane.rows_written().await?;
    for n in 0..SMALL_DOMAINS {
        let name = domain(n);
        let revision = put(&plane, &name, origin.address(), n).await?;
        plane.served(&name, revision, PURGE_EDGES).await?;
    }
    let between = plane.rows_written().await?;
    burst(&plane, origin.address(), PURGE_EDGES, BURST_CHANGES).await?;
    let after = plane.rows_written().await?;
    let per = |rows: i64, changes: usize| rows as f64 / changes as f64;
    let single = per(between.0 - before.0, SMALL_DOMAINS * PURGE_EDGES);
    let note = format!(
        "rows of acknowledgements that a change and a cell cost, one change at a time, {PURGE_EDGES} cells; without a pause \
         {:.3}; all tables: {:.1} rows a change one at a time, {:.1} without a pause",
        per(after.0 - between.0, BURST_CHANGES * PURGE_EDGES),
        per(between.1 - before.1, SMALL_DOMAINS),
        per(after.1 - between.1, BURST_CHANGES),
    );
    report.row("edge.acks", single, "rows", Some(Goal::AtMost(1.05)), note);
    Ok(())
}

/// Sends changes from several writers and waits until all cells serve them.
async fn burst(plane: &Plane, origin: SocketAddr, cells: usize, changes: usize) -> Result<()> {
    let writers = (0..LOAD_WRITERS).map(|writer| async move {
        for n in (writer..changes).step_by(LOAD_WRITERS) {
            put(plane, &domain(n % SMALL_DOMAINS), origin, 1_000 + n).await?;
        }
        Ok::<_, anyhow::Error>(())
    });
    futures_util::future::try_join_all(writers).await?;
    plane.all_published().await?;
    plane.all_served(cells).await
}

/// Changes while visitors come: nobody is turned away and no worker is another.
pub async fn load(system: &System, report: &mut Report) -> Result<()> {
    let origin = origin().await?;
    let plane = Plane::start(system, "load", origin.address(), SMALL_DOMAINS).await?;
    let edge = plane.edge("edge", CELLS, WORKERS).await?;
    plane.all_served(CELLS).await?;
    let (visitors, stop) = (Visitors::new()?, Arc::new(AtomicBool::new(false)));
    let mut coming = tokio::task::JoinSet::new();
    for visitor in 0..LOAD_VISITORS {
        let name = domain(visitor);
        let cell = cell_of(&visitors, &edge, &name).await?;
        coming.spawn(come(visitors.clone(), cell, name, Arc::clone(&stop)));
    }
    let (workers, begin) = (edge.workers()?, Instant::now());
    burst(&plane, origin.address(), CELLS, LOAD_CHANGES).await?;
    let seconds = begin.elapsed().as_secs_f64();
    stop.store(true, Ordering::Relaxed);
    let (mut served, mut lost) = (0, Vec::new());
    while let Some(done) = coming.join_next().await {
        let (good, bad) = done?;
        served += good;
        lost.extend(bad);
    }
    if let Some(first) = lost.first() {
        eprintln!("bench: lost: {first}");
    }
    ensure!(edge.workers()? == workers, "a worker was replaced");
    let note = format!(
        "of {served} while {LOAD_CHANGES} changes were applied in {seconds:.1} s; the workers are the same: no reload"
    );
    report.row("edge.load.lost", lost.len() as f64, "requests", Some(Goal::AtMost(0.0)), note);
    Ok(())
}

/// The cell that a domain stands on.
async fn cell_of(visitors: &Visitors, edge: &Running, name: &str) -> Result<SocketAddr> {
    for cell in &edge.cells {
        if visitors.get(*cell, name).await.is_ok() {
            return Ok(*cell);
        }
    }
    bail!("no cell serves {name}")
}

async fn come(
    visitors: Visitors,
    cell: SocketAddr,
    name: String,
    stop: Arc<AtomicBool>,
) -> (u64, Vec<String>) {
    let (mut served, mut lost, mut pace) = (0, Vec::new(), interval(LOAD_PACE));
    while !stop.load(Ordering::Relaxed) {
        pace.tick().await;
        match visitors.get(cell, &name).await {
            Ok(_) => served += 1,
            Err(error) => lost.push(format!("{error:#}")),
        }
    }
    (served, lost)
}
