//! What readers of the stream cost: memory of an idle one, and the rate of a replay beside an ordered COPY. Measured
//! in a process of its own, so that no other test is counted.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use serde_json::{Value, json};
use sqlx::postgres::PgPoolCopyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::world::{Runs, World};

const CHILD: &str = "HEADWATER_TEST_STREAM_COST";
/// Idle readers.
const READERS: usize = 1_000;
/// What one of them may cost.
const READER_MAX_BYTES: u64 = 32 * 1_024;
/// Rounds of which the median counts.
const ROUNDS: usize = 5;

fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4_096
}

async fn open(world: &World, query: &str) -> TcpStream {
    let address = world.base.strip_prefix("http://").unwrap();
    let mut socket = TcpStream::connect(address).await.unwrap();
    let request = format!(
        "GET /events/stream{query} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer system\r\n\r\n"
    );
    socket.write_all(request.as_bytes()).await.unwrap();
    socket
}

/// Reads until these octets have come.
async fn read_until(socket: &mut TcpStream, end: &[u8], buffer: &mut [u8]) {
    let mut tail: Vec<u8> = Vec::new();
    loop {
        let read = tokio::time::timeout(Duration::from_secs(60), socket.read(buffer)).await.unwrap().unwrap();
        assert!(read > 0, "the stream ended");
        tail.extend_from_slice(&buffer[..read]);
        if tail.windows(end.len()).any(|window| window == end) {
            return;
        }
        let keep = tail.len().saturating_sub(end.len());
        tail.drain(..keep);
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Not a test by itself: the process that is measured.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cost_child() {
    let Ok(events) = std::env::var(CHILD) else { return };
    let many = u32::try_from(2 * READERS).unwrap();
    let world = World::with(Runs::Streams, |config| config.limits.streams_per_token = many).await;
    world.domain("example.test", world.tenant).await;
    world.flood("example.test", events.parse().unwrap()).await;
    let mut buffer = vec![0; 262_144];

    let mut idle = Vec::new();
    for _ in 0..20 {
        let mut socket = open(&world, "").await;
        read_until(&mut socket, b"id: ", &mut buffer).await;
        idle.push(socket);
    }
    let before = resident_bytes();
    for _ in 0..READERS {
        let mut socket = open(&world, "").await;
        read_until(&mut socket, b"id: ", &mut buffer).await;
        idle.push(socket);
    }
    let each = resident_bytes().saturating_sub(before) / READERS as u64;

    drop(idle);
    let meta = world.app.log.meta().await.unwrap();
    let count = meta.head.get() as f64;
    let last = format!("id: {}.{}\n", meta.log.short(), meta.head);
    let (mut replays, mut copies) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let since = Instant::now();
        let mut socket = open(&world, "?after=0").await;
        read_until(&mut socket, last.as_bytes(), &mut buffer).await;
        replays.push(count / since.elapsed().as_secs_f64());
        let since = Instant::now();
        let copy = "copy (select * from events order by position) to stdout (format binary)";
        let mut out = world.app.pool.copy_out_raw(copy).await.unwrap();
        while let Some(piece) = out.next().await {
            piece.unwrap();
        }
        copies.push(count / since.elapsed().as_secs_f64());
    }
    let (replay, copy) = (median(replays), median(copies));
    println!(
        "\ncost {}",
        json!({"idle_bytes": each, "replay": replay, "copy": copy, "ratio": replay / copy})
    );
}

fn measure(events: usize) -> Value {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "stream_cost::cost_child", "--nocapture"])
        .env(CHILD, events.to_string())
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stdout).into_owned();
    let line = said.lines().find_map(|line| line.strip_prefix("cost ")).unwrap_or_else(|| panic!("{said}"));
    serde_json::from_str(line).unwrap()
}

#[test]
fn a_thousand_idle_readers_cost_little() {
    let cost = measure(2_000);
    let each = cost["idle_bytes"].as_u64().unwrap();
    assert!(each <= READER_MAX_BYTES, "{cost}");
    println!("{cost}");
}
