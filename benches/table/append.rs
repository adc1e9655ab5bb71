//! The append through the library: 256 callers against RAW at 64 clients, one caller against one client.

use super::raw::{RUN_SECONDS, Raw};
use super::report::{Goal, Report, median};
use super::system::{System, pool};
use anyhow::Result;
use headwater::clock::SystemClock;
use headwater::command::{Command, Meta};
use headwater::store::{Committer, CommitterHandle};
use headwater_events::actor::Caller;
use headwater_events::admin::AdminCommand;
use headwater_events::dns::{DomainName, OwnerName, RrSet, RrSetInput, RrType};
use headwater_events::domain::{CreateDomain, DomainCommand, Limits};
use headwater_events::event::ClusterCreated;
use headwater_events::ids::{ClusterId, DomainId, TenantId};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

const DOMAINS: usize = 100;
const CALLERS: usize = 256;
const ROUNDS: usize = 5;

pub async fn run(system: &System, report: &mut Report) -> Result<()> {
    let raw = Raw::prepare(system).await?;
    let url = system.database("bench_append").await?;
    let limits = Limits {
        domains_per_tenant: 1_000_000,
        records_per_domain: 1_000_000,
        ttl_floor_seconds: 0,
        hold: Duration::from_secs(7 * 86_400),
    };
    let stop = CancellationToken::new();
    let (commit, task) = Committer::start(&url, pool(&url).await?, limits, Arc::new(SystemClock), &stop)?;
    let domains = Arc::new(prepare(&commit).await?);

    let (mut ratios, mut rates, mut raws) = (Vec::new(), Vec::new(), Vec::new());
    let (mut single, mut raw_single) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let base = raw.rate(64).await?;
        let ours = many(&commit, &domains).await?;
        ratios.push(ours / base);
        rates.push(ours);
        raws.push(base);
        raw_single.push(raw.single_p50().await?);
        single.push(one(&commit, &domains).await?);
    }
    stop.cancel();
    drop(commit);
    task.await?;
    report.row("raw.rate", median(&mut raws), "tx/s", None, "pgbench, 64 clients, the rows of one PUT");
    report.row(
        "append.rate",
        median(&mut rates),
        "commands/s",
        None,
        format!("{CALLERS} callers of the library"),
    );
    report.row(
        "append.ratio",
        median(&mut ratios),
        "x RAW",
        Some(Goal::AtLeast(1.5)),
        "append.rate / raw.rate",
    );
    let (ours, base) = (median(&mut single), median(&mut raw_single));
    let note = format!("p50 of one caller {ours:.3} ms, of one pgbench client {base:.3} ms");
    report.row("append.single", ours / base, "x RAW", Some(Goal::AtMost(1.3)), note);
    Ok(())
}

async fn prepare(commit: &CommitterHandle) -> Result<Vec<DomainName>> {
    let admin = |command| commit.submit(Caller::system(), Command::admin(command), Meta::internal());
    let tenant = TenantId::from_uuid(Uuid::now_v7());
    admin(AdminCommand::CreateTenant {
        id: tenant,
        name: "bench".into(),
        labels: Default::default(),
        external_id: None,
    })
    .await?;
    for n in 1..=2 {
        let cluster = ClusterCreated {
            name: format!("dns-{n}"),
            database_url_file: "/nowhere".into(),
            dns: "127.0.0.1:1".into(),
            front: None,
            nameservers: Vec::new(),
            enabled: true,
        };
        admin(AdminCommand::CreateCluster { id: ClusterId::from_uuid(Uuid::now_v7()), cluster }).await?;
    }
    let mut domains = Vec::new();
    for n in 0..DOMAINS {
        let name = DomainName::parse(&format!("bench{n}.example"))?;
        let create = CreateDomain {
            id: DomainId::from_uuid(Uuid::now_v7()),
            name: name.clone(),
            tenant,
            force_active: true,
            labels: Default::default(),
            external_id: None,
            rrsets: Vec::new(),
            serial_floor: None,
        };
        commit.submit(Caller::system(), Command::CreateDomain(create), Meta::internal()).await?;
        domains.push(name);
    }
    Ok(domains)
}

static NEXT: AtomicU64 = AtomicU64::new(0);

async fn put(commit: &CommitterHandle, domains: &[DomainName]) -> Result<()> {
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = &domains[(n as usize) % domains.len()];
    let owner = OwnerName::parse(&format!("w{}", n % 1000), name)?;
    let address = format!("198.51.{}.{}", (n / 250) % 250, n % 250);
    let input = RrSetInput { ttl: 300, records: vec![address], comment: None };
    let rrset = RrSet::new(owner, RrType::A, &input, name).map_err(|faults| anyhow::anyhow!("{faults:?}"))?;
    let command = Command::Domain { name: name.clone(), command: DomainCommand::PutRrset(rrset) };
    commit.submit(Caller::system(), command, Meta::internal()).await?;
    Ok(())
}

async fn many(commit: &CommitterHandle, domains: &Arc<Vec<DomainName>>) -> Result<f64> {
    let end = Instant::now() + Duration::from_secs(RUN_SECONDS);
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..CALLERS {
        let (commit, domains) = (commit.clone(), Arc::clone(domains));
        tasks.spawn(async move {
            let mut done = 0_u64;
            while Instant::now() < end {
                put(&commit, &domains).await?;
                done += 1;
            }
            Ok::<_, anyhow::Error>(done)
        });
    }
    let mut total = 0;
    while let Some(done) = tasks.join_next().await {
        total += done??;
    }
    Ok(total as f64 / RUN_SECONDS as f64)
}

async fn one(commit: &CommitterHandle, domains: &[DomainName]) -> Result<f64> {
    let end = Instant::now() + Duration::from_secs(RUN_SECONDS);
    let mut millis = Vec::new();
    while Instant::now() < end {
        let at = Instant::now();
        put(commit, domains).await?;
        millis.push(at.elapsed().as_secs_f64() * 1000.0);
    }
    Ok(median(&mut millis))
}
