//! Reading what was: a zone as of an early revision after very many changes of it, and the first page of the audit trail
//! of a domain against the bare index scan.

use super::load;
use super::report::{Goal, Report, median, quantile};
use super::sql;
use super::system::{System, pool};
use super::wire::Wire;
use anyhow::{Result, ensure};
use tokio::time::Instant;

/// Records of the zone.
const RECORDS: usize = 1_000;
/// How often all of them change, by default and in a full run.
const CHANGES: usize = 100;
const CHANGES_FULL: usize = 10_000;
const ROUNDS: usize = 200;

pub async fn run(system: &System, report: &mut Report, full: bool) -> Result<()> {
    let names = load::domains(system, "lived", 1).await?;
    let Some(name) = names.first() else { return Ok(()) };
    let first = load::fill(system, name, RECORDS).await?;
    load::finished(system, &first).await?;
    let changes = if full { CHANGES_FULL } else { CHANGES };
    let mut last = first;
    for round in 1..=changes {
        last = load::create_with(system, name, 0, RECORDS, round).await?;
    }
    load::finished(system, &last).await?;
    load::settled(system).await?;
    let mut wire = Wire::connect(system.api_address, &system.token).await?;
    let events = changes * RECORDS;
    for (row, revision) in [("history.asof.early", 2), ("history.asof.late", changes)] {
        let path = format!("/api/domains/{name}/zone?revision={revision}");
        let mut millis = Vec::new();
        for _ in 0..ROUNDS {
            millis.push(timed(&mut wire, &path).await?);
        }
        let p99 = quantile(&mut millis, 0.99);
        let note = format!("{RECORDS} records, {events} events of it, p50 {:.1} ms", median(&mut millis));
        report.row(row, p99, "ms p99", Some(Goal::AtMost(100.0)), note);
    }
    trail(system, &mut wire, name, report).await
}

async fn trail(system: &System, wire: &mut Wire, name: &str, report: &mut Report) -> Result<()> {
    let control = pool(&system.database_url).await?;
    let path = format!("/api/audit?domain={name}");
    let (mut page, mut bare) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let at = Instant::now();
        let rows = sqlx::query(sql::AUDIT_OF_DOMAIN).bind(name).fetch_all(&control).await?;
        bare.push(at.elapsed().as_secs_f64() * 1000.0);
        ensure!(!rows.is_empty(), "the trail is empty");
        page.push(timed(wire, &path).await?);
    }
    let (page, bare) = (median(&mut page), median(&mut bare));
    let note = format!("p50 {page:.2} ms, the scan {bare:.2} ms");
    report.row("history.audit", page / bare, "x index scan", Some(Goal::AtMost(2.0)), note);
    Ok(())
}

async fn timed(wire: &mut Wire, path: &str) -> Result<f64> {
    let at = Instant::now();
    let (status, answer) = wire.send("GET", path, "").await?;
    ensure!(status == 200, "GET {path} answered {status}: {}", String::from_utf8_lossy(&answer));
    Ok(at.elapsed().as_secs_f64() * 1000.0)
}
