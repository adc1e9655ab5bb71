//! `make bench`: the table of docs/BENCHMARKS.md. Every row compares the product with the raw part underneath it,
//! in one run, interleaved, by medians; the product is the real one (`headwater demo`: control database, two DNS
//! clusters, dnsdist), in a release build. Rows are independent: `BENCH=append,sse` picks, `BENCH=full` adds the
//! large ones.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a benchmark that cannot go on ends

mod append;
mod authority;
mod bulk;
mod edge;
mod history;
mod load;
mod propagation;
mod put;
mod raw;
mod rebuild;
mod report;
mod sql;
mod stream;
mod system;
mod undo;
mod wire;
mod zone;

use report::Report;
use system::System;

/// The parts of the table, in the order in which they run: later ones read what earlier ones wrote.
const PARTS: [&str; 15] = [
    "append",
    "put",
    "zone",
    "propagation",
    "bulk",
    "sse",
    "history",
    "undo",
    "rebuild",
    "dns-change",
    "dns-bootstrap",
    "edge-hit",
    "edge-change",
    "edge-purge",
    "edge-load",
];

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let _already_installed = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let wanted = std::env::var("BENCH").unwrap_or_default();
    let full = wanted.split(',').any(|part| part == "full");
    // `edge` picks every part of that name.
    let is_of = |part: &str, name: &str| {
        part.strip_prefix(name)
            .is_some_and(|rest| rest.is_empty() || (rest.starts_with('-') && !name.is_empty()))
    };
    let picked =
        |part: &str| wanted.is_empty() || wanted == "full" || wanted.split(',').any(|name| is_of(part, name));
    let is_known =
        |name: &str| name.is_empty() || name == "full" || PARTS.iter().any(|part| is_of(part, name));
    if let Some(unknown) = wanted.split(',').find(|name| !is_known(name)) {
        anyhow::bail!("BENCH names {unknown}, which is not one of {}", PARTS.join(", "));
    }
    eprintln!("bench: starting the system");
    let system = System::start().await?;
    let mut report = Report::default();
    for part in PARTS.into_iter().filter(|part| picked(part)) {
        eprintln!("bench: {part}");
        match part {
            "append" => append::run(&system, &mut report).await?,
            "put" => put::run(&system, &mut report).await?,
            "zone" => zone::run(&system, &mut report).await?,
            "propagation" => propagation::run(&system, &mut report).await?,
            "bulk" => bulk::run(&system, &mut report).await?,
            "sse" => stream::run(&system, &mut report).await?,
            "history" => history::run(&system, &mut report, full).await?,
            "undo" => undo::run(&system, &mut report).await?,
            "dns-change" => authority::change(&system, &mut report).await?,
            "dns-bootstrap" => authority::bootstrap(&system, &mut report, full).await?,
            "edge-hit" => edge::hits(&mut report).await?,
            "edge-change" => edge::changes(&system, &mut report).await?,
            "edge-purge" => edge::purges(&system, &mut report).await?,
            "edge-load" => edge::load(&system, &mut report).await?,
            _ => rebuild::run(&system, &mut report, full).await?,
        }
    }
    report.row(
        "serve.memory",
        system.peak_mib()?,
        "MiB",
        Some(report::Goal::AtMost(256.0)),
        "VmHWM of serve, all parts",
    );
    report.finish(&system.target_dir)?;
    system.stop().await
}
