//! From the PUT until both PowerDNS answer with it: idle, and under half of the measured PUT rate. Of the slowest the
//! stages are told.

use super::load;
use super::report::{Goal, Report, quantile};
use super::system::System;
use super::wire::Wire;
use anyhow::{Context, Result, ensure};
use domain::base::Rtype;
use headwater::demo::probe;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

const SAMPLES: usize = 200;
/// How often a PowerDNS is asked.
const ASK_PAUSE: Duration = Duration::from_millis(5);
/// The slowest samples whose stages are told.
const SLOWEST_TOLD: usize = 4;
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

pub async fn run(system: &System, report: &mut Report) -> Result<()> {
    let own = load::domains(system, "seen", 1).await?;
    let domains = Arc::new(load::domains(system, "load", 100).await?);
    load::settled(system).await?;

    let idle = sample(system, &own[0], SAMPLES).await?;
    row(system, report, "propagation.idle", idle, "nothing else going on".into()).await?;

    let full = load::rate(system, &domains, 256, Duration::from_secs(5)).await?;
    load::settled(system).await?;
    let half = full / 2.0;
    let background = load::steady(system, Arc::clone(&domains), half, Duration::from_secs(25)).await?;
    sleep(Duration::from_secs(1)).await;
    let busy = sample(system, &own[0], SAMPLES).await?;
    drop(background);
    let what = format!("beside {half:.0} PUT/s over 100 domains");
    row(system, report, "propagation.half", busy, what).await?;
    load::settled(system).await
}

/// One change on its way.
struct Sample {
    /// Until the API answered.
    accepted_ms: f64,
    /// Until both PowerDNS answered with it.
    served_ms: f64,
    operation: String,
}

async fn row(
    system: &System,
    report: &mut Report,
    name: &str,
    mut samples: Vec<Sample>,
    what: String,
) -> Result<()> {
    samples.sort_by(|a, b| a.served_ms.total_cmp(&b.served_ms));
    let mut millis: Vec<f64> = samples.iter().map(|sample| sample.served_ms).collect();
    let p50 = quantile(&mut millis, 0.5);
    let p99 = quantile(&mut millis, 0.99);
    for slow in samples.iter().rev().take(SLOWEST_TOLD) {
        let path = format!("/api/operations/{}/timeline", slow.operation);
        let mut wire = Wire::connect(system.api_address, &system.token).await?;
        let (_, timeline) = wire.send("GET", &path, "").await?;
        let timeline: serde_json::Value = serde_json::from_slice(&timeline)?;
        let stages = timeline.as_array().or(timeline["items"].as_array()).into_iter().flatten();
        let stages: Vec<String> = stages
            .map(|stage| format!("{} {} at {} ms", stage["target"], stage["stage"], stage["ms"]))
            .collect();
        eprintln!(
            "bench: slow: served after {:.0} ms, accepted after {:.0} ms: {}",
            slow.served_ms,
            slow.accepted_ms,
            stages.join(", ")
        );
    }
    let note = format!("p99 of {SAMPLES}, {what}; p50 {p50:.0} ms");
    report.row(name, p99, "ms", Some(Goal::AtMost(250.0)), note);
    Ok(())
}

async fn sample(system: &System, domain: &str, count: usize) -> Result<Vec<Sample>> {
    let mut wire = Wire::connect(system.api_address, &system.token).await?;
    let name = format!("now.{domain}");
    let mut samples = Vec::new();
    for n in 0..count {
        let address = format!("203.0.113.{}", n % 250 + 1);
        let body = format!("{{\"ttl\":60,\"records\":[\"{address}\"]}}");
        let at = Instant::now();
        let (status, answer) =
            wire.send("PUT", &format!("/api/domains/{domain}/rrsets/now/A"), &body).await?;
        ensure!(status == 202, "PUT answered {status}: {}", String::from_utf8_lossy(&answer));
        let accepted_ms = at.elapsed().as_secs_f64() * 1000.0;
        let receipt: serde_json::Value = serde_json::from_slice(&answer)?;
        let operation = receipt["operation"]["id"].as_str().context("no operation")?.to_owned();
        let asked = system.clusters.iter().map(|cluster| answered(cluster.dns, &name, &address));
        futures_util::future::try_join_all(asked).await?;
        samples.push(Sample { accepted_ms, served_ms: at.elapsed().as_secs_f64() * 1000.0, operation });
    }
    Ok(samples)
}

/// Awaits that a name server answers a name with one address.
pub async fn answered(server: SocketAddr, name: &str, address: &str) -> Result<()> {
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
