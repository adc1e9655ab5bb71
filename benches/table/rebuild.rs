//! Rebuilding `powerdns` against COPY of the finished rows into a table with the same indexes.

use super::load;
use super::report::{Goal, Report};
use super::sql;
use super::system::{Cluster, System, pool};
use anyhow::{Context, Result, ensure};
use bytes::BytesMut;
use futures_util::StreamExt;
use sqlx::Executor;
use sqlx::postgres::PgPoolCopyExt;
use tokio::time::Instant;

/// Records in all, and of one domain at most.
const RECORDS: usize = 1_000_000;
const RECORDS_PER_DOMAIN: usize = 100_000;
/// Octets that are handed to COPY at once.
const COPY_CHUNK_BYTES: usize = 1 << 20;

pub async fn run(system: &System, report: &mut Report, full: bool) -> Result<()> {
    let records = if full { RECORDS } else { RECORDS / 5 };
    let domains = load::domains(system, "million", records / RECORDS_PER_DOMAIN).await?;
    for domain in &domains {
        let last = load::fill(system, domain, RECORDS_PER_DOMAIN).await?;
        load::finished(system, &last).await?;
    }
    load::settled(system).await?;
    let at = Instant::now();
    let counts = futures_util::future::try_join_all(system.clusters.iter().map(copy)).await?;
    let copied = at.elapsed().as_secs_f64();
    let at = Instant::now();
    let status = tokio::process::Command::new(env!("CARGO_BIN_EXE_headwater"))
        .arg("--config")
        .arg(&system.config)
        .args(["projection", "rebuild", "powerdns"])
        .status()
        .await
        .context("headwater projection rebuild")?;
    ensure!(status.success(), "the rebuild failed");
    let rebuilt = at.elapsed().as_secs_f64();
    let note = format!("{} records on each of 2 clusters: {rebuilt:.1} s, COPY {copied:.1} s", counts[0]);
    report.row("rebuild.powerdns", rebuilt / copied, "x COPY", Some(Goal::AtMost(4.0)), note);
    Ok(())
}

/// Copies the finished rows of one cluster into a scratch table of the same database.
async fn copy(cluster: &Cluster) -> Result<i64> {
    let pool = pool(&cluster.database_url).await?;
    pool.execute(sql::SCRATCH_RECORDS).await?;
    let mut out = pool.copy_out_raw(sql::COPY_RECORDS_OUT).await?;
    let mut into = pool.copy_in_raw(sql::COPY_RECORDS_IN).await?;
    let mut chunk = BytesMut::with_capacity(2 * COPY_CHUNK_BYTES);
    while let Some(part) = out.next().await {
        chunk.extend_from_slice(&part?);
        if chunk.len() >= COPY_CHUNK_BYTES {
            into.send(chunk.split().freeze()).await?;
        }
    }
    into.send(chunk.freeze()).await?;
    into.finish().await?;
    let count = sqlx::query_scalar(sql::COUNT_RECORDS).fetch_one(&pool).await?;
    pool.execute(sql::DROP_SCRATCH).await?;
    Ok(count)
}
