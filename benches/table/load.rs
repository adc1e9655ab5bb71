//! Domains to write to, and a load of PUTs on them.

use super::sql;
use super::system::{System, pool};
use super::wire::Wire;
use anyhow::{Result, ensure};
use headwater::clock::SystemClock;
use headwater::command::{Command, Meta};
use headwater::secret::Secret;
use headwater::store::Committer;
use headwater_events::actor::Caller;
use headwater_events::dns::DomainName;
use headwater_events::domain::{CreateDomain, DomainCommand, Limits};
use headwater_events::ids::{DomainId, TenantId};
use reqwest::Method;
use serde_json::{Value, json};
use sqlx::postgres::PgPool;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::{Instant, interval};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// Changes of one batch; the most that a batch may hold.
pub const BATCH_CHANGES: usize = 5_000;
/// Commands that are under way at once while domains are made.
const CALLERS: usize = 256;

/// Makes active domains `<prefix>N.example`.
pub async fn domains(system: &System, prefix: &str, count: usize) -> Result<Vec<String>> {
    let api = system.api()?;
    let mut names = Vec::new();
    for n in 0..count {
        let name = format!("{prefix}{n}.example");
        api.call(Method::POST, "/api/domains", Some(json!({"name": name, "force_active": true}))).await?;
        names.push(name);
    }
    Ok(names)
}

/// A batch that creates A records `r<from>`…; gives the id of its operation.
pub async fn create(system: &System, domain: &str, from: usize, count: usize) -> Result<String> {
    create_with(system, domain, from, count, 0).await
}

/// The same with other values each round.
pub async fn create_with(
    system: &System,
    domain: &str,
    from: usize,
    count: usize,
    round: usize,
) -> Result<String> {
    let change = |n: usize| {
        let value = n + round * 7;
        let address = format!("10.{}.{}.{}", value / 65_536 % 256, value / 256 % 256, value % 256);
        json!({"op": "put", "name": format!("r{n}"), "type": "A", "ttl": 300, "records": [address]})
    };
    let changes: Vec<Value> = (from..from + count).map(change).collect();
    let path = format!("/api/domains/{domain}/rrsets/batch");
    let answer = system.api()?.call(Method::POST, &path, Some(json!({"changes": changes}))).await?;
    Ok(answer.text("/operation/id").unwrap_or_default().to_owned())
}

/// Fills a domain up to a number of records.
pub async fn fill(system: &System, domain: &str, records: usize) -> Result<String> {
    let mut last = String::new();
    for from in (0..records).step_by(BATCH_CHANGES) {
        last = create(system, domain, from, BATCH_CHANGES.min(records - from)).await?;
    }
    Ok(last)
}

/// Awaits the end of an operation; it must succeed.
pub async fn finished(system: &System, operation: &str) -> Result<()> {
    let api = system.api()?;
    loop {
        let answer = api.get(&format!("/api/operations/{operation}?wait=30")).await?;
        match answer.text("/state") {
            Some("pending" | "running") => {}
            Some("succeeded") => return Ok(()),
            _ => anyhow::bail!("the operation ended badly: {}", answer.body),
        }
    }
}

static NEXT: AtomicU64 = AtomicU64::new(0);

/// One PUT of one A record, each time another value.
pub async fn put(wire: &mut Wire, domains: &[String]) -> Result<()> {
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    let domain = &domains[n as usize % domains.len()];
    let path = format!("/api/domains/{domain}/rrsets/w{}/A", n % 1000);
    let body = format!("{{\"ttl\":300,\"records\":[\"198.51.{}.{}\"]}}", n / 250 % 250, n % 250);
    let (status, answer) = wire.send("PUT", &path, &body).await?;
    ensure!(status == 202 || status == 200, "PUT answered {status}: {}", String::from_utf8_lossy(&answer));
    Ok(())
}

/// PUTs per second from closed loops.
pub async fn rate(
    system: &System,
    domains: &Arc<Vec<String>>,
    connections: usize,
    span: Duration,
) -> Result<f64> {
    let mut tasks = tokio::task::JoinSet::new();
    let end = Instant::now() + span;
    for _ in 0..connections {
        let mut wire = Wire::connect(system.api_address, &system.token).await?;
        let domains = Arc::clone(domains);
        tasks.spawn(async move {
            let mut done = 0_u64;
            while Instant::now() < end {
                put(&mut wire, &domains).await?;
                done += 1;
            }
            Ok::<_, anyhow::Error>(done)
        });
    }
    let mut total = 0;
    while let Some(done) = tasks.join_next().await {
        total += done??;
    }
    Ok(total as f64 / span.as_secs_f64())
}

/// PUTs at a fixed rate until `span` is over.
pub async fn steady(
    system: &System,
    domains: Arc<Vec<String>>,
    per_second: f64,
    span: Duration,
) -> Result<tokio::task::JoinSet<Result<()>>> {
    const CONNECTIONS: usize = 16;
    let mut tasks = tokio::task::JoinSet::new();
    let end = Instant::now() + span;
    for _ in 0..CONNECTIONS {
        let mut wire = Wire::connect(system.api_address, &system.token).await?;
        let domains = Arc::clone(&domains);
        tasks.spawn(async move {
            let mut tick = interval(Duration::from_secs_f64(CONNECTIONS as f64 / per_second));
            while Instant::now() < end {
                tick.tick().await;
                put(&mut wire, &domains).await?;
            }
            Ok(())
        });
    }
    Ok(tasks)
}

/// Stops or continues all deployments, to measure what comes before them alone.
pub async fn deployments(system: &System, verb: &str) -> Result<()> {
    let body = json!({"scope": "all", "reason": "benchmark"});
    system.api()?.call(Method::POST, &format!("/api/deployments/{verb}"), Some(body)).await?;
    Ok(())
}

/// Awaits that nothing is pending any more.
pub async fn settled(system: &System) -> Result<()> {
    let api = system.api()?;
    let deadline = Instant::now() + Duration::from_secs(300);
    loop {
        let pending = api.get("/api/deployments?state=pending&limit=1").await?;
        if pending.body["items"].as_array().is_some_and(Vec::is_empty) {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "deployments stay pending");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Makes active domains with one command more each, as the API would, through the library: `name` and `more` are given
/// the number of each.
pub async fn seed(
    url: &Secret,
    on: &PgPool,
    domains: usize,
    name: impl Fn(usize) -> String,
    more: impl Fn(&DomainName) -> Result<DomainCommand>,
) -> Result<()> {
    let tenant: Uuid = sqlx::query_scalar(sql::PLATFORM_TENANT).fetch_one(on).await?;
    let limits = Limits {
        domains_per_tenant: 1_000_000,
        records_per_domain: 1_000_000,
        ttl_floor_seconds: 0,
        hold: Duration::from_secs(7 * 86_400),
    };
    let stop = CancellationToken::new();
    let (commit, task) = Committer::start(url, pool(url).await?, limits, Arc::new(SystemClock), &stop)?;
    let mut running = tokio::task::JoinSet::new();
    for n in 0..domains {
        if running.len() >= CALLERS
            && let Some(done) = running.join_next().await
        {
            done??;
        }
        let name = DomainName::parse(&name(n))?;
        let create = CreateDomain {
            id: DomainId::from_uuid(Uuid::now_v7()),
            name: name.clone(),
            tenant: TenantId::from_uuid(tenant),
            force_active: true,
            labels: Default::default(),
            external_id: None,
            rrsets: Vec::new(),
            serial_floor: None,
        };
        let (commit, command) = (commit.clone(), more(&name)?);
        running.spawn(async move {
            commit.submit(Caller::system(), Command::CreateDomain(create), Meta::internal()).await?;
            commit.submit(Caller::system(), Command::Domain { name, command }, Meta::internal()).await?;
            Ok::<_, anyhow::Error>(())
        });
    }
    while let Some(done) = running.join_next().await {
        done??;
    }
    stop.cancel();
    drop(commit);
    task.await?;
    Ok(())
}
