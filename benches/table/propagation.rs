//! From the PUT until both PowerDNS answer with it: idle, and under half of the measured PUT rate.

use super::load;
use super::report::{Goal, Report, quantile};
use super::system::System;
use super::wire::Wire;
use anyhow::{Result, ensure};
use domain::base::Rtype;
use headwater::demo::probe;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

const SAMPLES: usize = 200;
/// How often a PowerDNS is asked.
const ASK_PAUSE: Duration = Duration::from_millis(2);
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

pub async fn run(system: &System, report: &mut Report) -> Result<()> {
    let own = load::domains(system, "seen", 1).await?;
    let domains = Arc::new(load::domains(system, "load", 100).await?);
    load::settled(system).await?;

    let mut idle = sample(system, &own[0], SAMPLES).await?;
    row(report, "propagation.idle", &mut idle, "nothing else going on".into());

    let full = load::rate(system, &domains, 256, Duration::from_secs(5)).await?;
    load::settled(system).await?;
    let half = full / 2.0;
    let background = load::steady(system, Arc::clone(&domains), half, Duration::from_secs(25)).await?;
    sleep(Duration::from_secs(1)).await;
    let mut busy = sample(system, &own[0], SAMPLES).await?;
    drop(background);
    row(report, "propagation.half", &mut busy, format!("beside {half:.0} PUT/s over 100 domains"));
    load::settled(system).await
}

fn row(report: &mut Report, name: &str, millis: &mut [f64], what: String) {
    let p50 = quantile(millis, 0.5);
    let p99 = quantile(millis, 0.99);
    let note = format!("p99 of {SAMPLES}, {what}; p50 {p50:.0} ms");
    report.row(name, p99, "ms", Some(Goal::AtMost(250.0)), note);
}

async fn sample(system: &System, domain: &str, count: usize) -> Result<Vec<f64>> {
    let mut wire = Wire::connect(system.api_address, &system.token).await?;
    let name = format!("now.{domain}");
    let mut millis = Vec::new();
    for n in 0..count {
        let address = format!("203.0.113.{}", n % 250 + 1);
        let body = format!("{{\"ttl\":60,\"records\":[\"{address}\"]}}");
        let at = Instant::now();
        let (status, answer) =
            wire.send("PUT", &format!("/api/domains/{domain}/rrsets/now/A"), &body).await?;
        ensure!(status == 202, "PUT answered {status}: {}", String::from_utf8_lossy(&answer));
        let asked = system.clusters.iter().map(|cluster| answered(cluster.dns, &name, &address));
        futures_util::future::try_join_all(asked).await?;
        millis.push(at.elapsed().as_secs_f64() * 1000.0);
    }
    Ok(millis)
}

async fn answered(server: SocketAddr, name: &str, address: &str) -> Result<()> {
    let deadline = Instant::now() + ANSWER_LIMIT;
    loop {
        if let Ok(answer) = probe::dns(server, name, Rtype::A, Duration::from_secs(1)).await
            && answer.is_exactly(address)
        {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "{server} does not answer {address}");
        sleep(ASK_PAUSE).await;
    }
}
