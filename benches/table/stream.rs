//! The event stream: replay for one client against COPY of the log, idle subscribers, live fan-out.

use super::load;
use super::report::{Goal, Report, median};
use super::system::{System, pool};
use super::wire::Wire;
use super::{report, sql};
use anyhow::{Context, Result, ensure};
use futures_util::StreamExt;
use sqlx::postgres::PgPoolCopyExt;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

/// The log must hold at least this many events for the replay to say something.
const REPLAY_MIN_EVENTS: i64 = 200_000;
const ROUNDS: usize = 5;
/// Subscribers before those that are counted: the process is at work when counting begins.
const WARM_SUBSCRIBERS: usize = 200;
const IDLE_SUBSCRIBERS: usize = 1_000;
const LIVE_SUBSCRIBERS: usize = 200;
const LIVE_EVENTS: usize = 1_000;
const STALL_LIMIT: Duration = Duration::from_secs(60);

pub async fn run(system: &System, report: &mut Report) -> Result<()> {
    let domains = Arc::new(load::domains(system, "events", 100).await?);
    replay(system, &domains, report).await?;
    idle(system, report).await?;
    live(system, &domains, report).await
}

async fn subscribe(system: &System, query: &str) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(system.api_address).await?;
    let request = format!(
        "GET /events/stream{query} HTTP/1.1\r\nHost: bench\r\nAccept: text/event-stream\r\nAuthorization: Bearer {}\r\n\r\n",
        system.token.expose()
    );
    stream.write_all(request.as_bytes()).await?;
    Ok(stream)
}

/// Reads until a text has been seen; gives the octets read.
async fn read_until(stream: &mut TcpStream, text: &str) -> Result<usize> {
    let needle = text.as_bytes();
    let mut window: Vec<u8> = Vec::with_capacity(1 << 20);
    let mut total = 0;
    loop {
        let read =
            timeout(STALL_LIMIT, stream.read_buf(&mut window)).await.context("the stream stalls")??;
        ensure!(read > 0, "the stream ended before {text}");
        total += read;
        let from = window.len().saturating_sub(read + needle.len());
        if window[from..].windows(needle.len()).any(|part| part == needle) {
            return Ok(total);
        }
        if window.len() > 1 << 19 {
            let keep = window.len() - needle.len();
            window.drain(..keep);
        }
    }
}

async fn replay(system: &System, domains: &Arc<Vec<String>>, report: &mut Report) -> Result<()> {
    let pool = pool(&system.database_url).await?;
    let head = || sqlx::query_scalar::<_, i64>(sql::HEAD).fetch_one(&pool);
    load::deployments(system, "pause").await?;
    while head().await? < REPLAY_MIN_EVENTS {
        load::rate(system, domains, 256, Duration::from_secs(5)).await?;
    }
    let (mut ratios, mut rates) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let events = head().await?;
        let at = Instant::now();
        let mut copy = pool.copy_out_raw(sql::COPY_LOG).await?;
        while let Some(part) = copy.next().await {
            part?;
        }
        let copied = events as f64 / at.elapsed().as_secs_f64();
        let at = Instant::now();
        let mut stream = subscribe(system, "?after=0").await?;
        read_until(&mut stream, &format!(".{events}\n")).await?;
        let replayed = events as f64 / at.elapsed().as_secs_f64();
        ratios.push(replayed / copied);
        rates.push(replayed);
    }
    load::deployments(system, "resume").await?;
    load::settled(system).await?;
    let note = format!("{:.0} events/s to one client", median(&mut rates));
    report.row("sse.replay", median(&mut ratios), "x COPY", Some(Goal::AtLeast(0.3)), note);
    Ok(())
}

async fn idle(system: &System, report: &mut Report) -> Result<()> {
    // A new process: an old one holds memory that it has no use for, and would seem to need none.
    system.restart_serve().await?;
    let mut held = Vec::new();
    let mut before = 0.0;
    for n in 0..WARM_SUBSCRIBERS + IDLE_SUBSCRIBERS {
        if n == WARM_SUBSCRIBERS {
            sleep(Duration::from_secs(2)).await;
            before = system.resident_kib()?;
        }
        let mut stream = subscribe(system, "").await?;
        read_until(&mut stream, "retry:").await?;
        held.push(stream);
    }
    sleep(Duration::from_secs(2)).await;
    let each = (system.resident_kib()? - before) / IDLE_SUBSCRIBERS as f64;
    report.row(
        "sse.idle",
        each,
        "KiB each",
        Some(Goal::AtMost(32.0)),
        format!("resident memory, {IDLE_SUBSCRIBERS} subscribers after the first {WARM_SUBSCRIBERS}"),
    );
    Ok(())
}

async fn live(system: &System, domains: &[String], report: &mut Report) -> Result<()> {
    let mut readers = tokio::task::JoinSet::new();
    for _ in 0..LIVE_SUBSCRIBERS {
        let mut stream = subscribe(system, "?type=rrset.").await?;
        read_until(&mut stream, "retry:").await?;
        let marker = format!("bench-end-{}", std::process::id());
        readers.spawn(async move { read_until(&mut stream, &marker).await.map(|_| Instant::now()) });
    }
    let mut wire = Wire::connect(system.api_address, &system.token).await?;
    let at = Instant::now();
    for _ in 1..LIVE_EVENTS {
        load::put(&mut wire, domains).await?;
    }
    let body = format!("{{\"ttl\":60,\"records\":[\"\\\"bench-end-{}\\\"\"]}}", std::process::id());
    let path = format!("/api/domains/{}/rrsets/end/TXT", domains[0]);
    wire.send("PUT", &path, &body).await?;
    let written = Instant::now();
    let mut lags = Vec::new();
    while let Some(seen) = readers.join_next().await {
        lags.push(seen??.saturating_duration_since(written).as_secs_f64() * 1000.0);
    }
    let total = at.elapsed().as_secs_f64();
    let p99 = report::quantile(&mut lags, 0.99);
    let note = format!(
        "p99 lag of the last of {LIVE_EVENTS} events at {LIVE_SUBSCRIBERS} subscribers; {total:.1} s in all, {:.0} frames/s",
        (LIVE_EVENTS * LIVE_SUBSCRIBERS) as f64 / total
    );
    report.row("sse.live", p99, "ms", None, note);
    load::settled(system).await
}
