//! The cost of one PUT in zones of 10, 10,000 and 100,000 records.

use super::load;
use super::report::{Goal, Report, median};
use super::system::System;
use super::wire::Wire;
use anyhow::Result;
use tokio::time::Instant;

const SIZES: [usize; 3] = [10, 10_000, 100_000];
const ROUNDS: usize = 300;

pub async fn run(system: &System, report: &mut Report) -> Result<()> {
    let names = load::domains(system, "size", SIZES.len()).await?;
    for (name, size) in names.iter().zip(SIZES) {
        // One is left for the PUT below.
        let operation = load::fill(system, name, size - 1).await?;
        load::finished(system, &operation).await?;
    }
    load::settled(system).await?;
    let mut wire = Wire::connect(system.api_address, &system.token).await?;
    let mut millis = [const { Vec::new() }; SIZES.len()];
    for round in 0..ROUNDS {
        for (name, times) in names.iter().zip(&mut millis) {
            let path = format!("/api/domains/{name}/rrsets/www/A");
            let body = format!("{{\"ttl\":300,\"records\":[\"192.0.2.{}\"]}}", round % 250);
            let at = Instant::now();
            let (status, answer) = wire.send("PUT", &path, &body).await?;
            times.push(at.elapsed().as_secs_f64() * 1000.0);
            anyhow::ensure!(status == 202, "PUT answered {status}: {}", String::from_utf8_lossy(&answer));
        }
    }
    let [small, middle, large] = millis.each_mut().map(|times| median(times));
    let note = format!("p50 {small:.2} ms at 10 records, {middle:.2} ms at 10,000, {large:.2} ms at 100,000");
    report.row("put.zone_size", large / small, "x", Some(Goal::AtMost(1.2)), note);
    Ok(())
}
