//! 50,000 record creations in batches of 5,000 over 10 domains, until both clusters serve them.

use super::load::{self, BATCH_CHANGES};
use super::report::{Goal, Report};
use super::system::System;
use anyhow::Result;
use tokio::time::Instant;

const DOMAINS: usize = 10;

pub async fn run(system: &System, report: &mut Report) -> Result<()> {
    let domains = load::domains(system, "bulk", DOMAINS).await?;
    load::settled(system).await?;
    let at = Instant::now();
    let creations = domains.iter().map(|domain| load::create(system, domain, 0, BATCH_CHANGES));
    let operations = futures_util::future::try_join_all(creations).await?;
    let accepted = at.elapsed().as_secs_f64();
    futures_util::future::try_join_all(operations.iter().map(|id| load::finished(system, id))).await?;
    let note = format!("{} records; all accepted after {accepted:.1} s", DOMAINS * BATCH_CHANGES);
    report.row("bulk.served", at.elapsed().as_secs_f64(), "s", Some(Goal::AtMost(15.0)), note);
    Ok(())
}
