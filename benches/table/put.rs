//! RRset PUT through HTTP against RAW, the load generator on the same machine.

use super::load;
use super::raw::{RUN_SECONDS, Raw};
use super::report::{Goal, Report, median};
use super::system::System;
use anyhow::Result;
use std::sync::Arc;
use std::time::Duration;

const CONNECTIONS: usize = 256;
const ROUNDS: usize = 5;

pub async fn run(system: &System, report: &mut Report) -> Result<()> {
    let raw = Raw::prepare(system).await?;
    let domains = Arc::new(load::domains(system, "put", 100).await?);
    load::settled(system).await?;
    let span = Duration::from_secs(RUN_SECONDS);
    let (mut ratios, mut rates) = (Vec::new(), Vec::new());
    let (mut deploying, mut deploying_ratios) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let base = raw.rate(64).await?;
        load::deployments(system, "pause").await?;
        let alone = load::rate(system, &domains, CONNECTIONS, span).await?;
        load::deployments(system, "resume").await?;
        load::settled(system).await?;
        let with = load::rate(system, &domains, CONNECTIONS, span).await?;
        load::settled(system).await?;
        rates.push(alone);
        ratios.push(alone / base);
        deploying.push(with);
        deploying_ratios.push(with / base);
    }
    let note = format!("{CONNECTIONS} connections, deployments paused: the write path alone, as RAW is");
    report.row("http.put.rate", median(&mut rates), "PUT/s", None, note);
    report.row(
        "http.put.ratio",
        median(&mut ratios),
        "x RAW",
        Some(Goal::AtLeast(0.7)),
        "http.put.rate / raw.rate",
    );
    let note = "the same while two clusters are deployed to, on the same cores";
    report.row("http.put.deploying.rate", median(&mut deploying), "PUT/s", None, note);
    report.row("http.put.deploying.ratio", median(&mut deploying_ratios), "x RAW", None, note);
    Ok(())
}
