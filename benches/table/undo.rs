//! A leaked token: everything that it changed among the changes of others is previewed, undone and served again.

use super::report::{Goal, Report};
use super::system::System;
use super::wire::Wire;
use super::{load, propagation};
use anyhow::{Context, Result, ensure};
use headwater::clock::{Clock, SystemClock};
use headwater::secret::Secret;
use reqwest::Method;
use serde_json::json;
use tokio::time::Instant;

const ZONES: usize = 50;
/// Changes of the leaked token.
const LEAKED: usize = 500;
/// Changes of others after they made what the token changes.
const OTHERS: usize = 2_000;
const GOOD: &str = "192.0.2.1";
const BAD: &str = "203.0.113.66";

pub async fn run(system: &System, report: &mut Report) -> Result<()> {
    let domains = load::domains(system, "undone", ZONES).await?;
    let api = system.api()?;
    let made = api.call(Method::POST, "/api/me/tokens", Some(json!({"name": "leaked"}))).await?;
    let (id, token) = (made.text("/id").context("no id")?, made.text("/token").context("no token")?);
    let mut own = Wire::connect(system.api_address, &system.token).await?;
    let mut leaked = Wire::connect(system.api_address, &Secret::new(token.to_owned())).await?;
    let victim = |n: usize| (&domains[n % ZONES], format!("v{}", n / ZONES));
    for n in 0..LEAKED {
        let (zone, owner) = victim(n);
        put(&mut own, zone, &owner, GOOD).await?;
    }
    let since = SystemClock.now().to_string();
    for n in 0..LEAKED {
        let (zone, owner) = victim(n);
        put(&mut leaked, zone, &owner, BAD).await?;
        for other in 0..OTHERS / LEAKED {
            put(&mut own, zone, &format!("o{other}"), &format!("198.51.100.{}", n % 250)).await?;
        }
    }
    load::settled(system).await?;

    let body = json!({"token": id, "since": since});
    let at = Instant::now();
    let plan = api.call(Method::POST, "/api/undo?dry_run=true", Some(body.clone())).await?;
    let previewed = at.elapsed();
    let told = plan.body["diff"].as_array().map_or(0, Vec::len);
    ensure!(told == LEAKED, "the preview tells of {told} changes: {}", plan.body["warnings"]);
    let done = api.call(Method::POST, "/api/undo", Some(body)).await?;
    load::finished(system, done.text("/operation/id").context("no operation")?).await?;
    let undone = at.elapsed();
    for n in 0..LEAKED {
        let (zone, owner) = victim(n);
        for cluster in &system.clusters {
            propagation::answered(cluster.dns, &format!("{owner}.{zone}"), GOOD).await?;
        }
    }
    let all = at.elapsed();
    let note = format!(
        "{LEAKED} changes of a token among {OTHERS} of others in {ZONES} zones: previewed after {} ms, undone after {} ms, \
         served by both clusters",
        previewed.as_millis(),
        undone.as_millis()
    );
    report.row("history.undo", all.as_secs_f64(), "s", Some(Goal::AtMost(10.0)), note);
    for n in 0..OTHERS / LEAKED {
        let path = format!("/api/domains/{}/rrsets/o{n}/A", domains[0]);
        let (status, kept) = own.send("GET", &path, "").await?;
        ensure!(status == 200, "{path}: {}", String::from_utf8_lossy(&kept));
    }
    Ok(())
}

async fn put(wire: &mut Wire, zone: &str, owner: &str, address: &str) -> Result<()> {
    let body = format!("{{\"ttl\":300,\"records\":[\"{address}\"]}}");
    let (status, answer) = wire.send("PUT", &format!("/api/domains/{zone}/rrsets/{owner}/A"), &body).await?;
    ensure!(status == 202 || status == 200, "PUT answered {status}: {}", String::from_utf8_lossy(&answer));
    Ok(())
}
