//! What the control plane of the tests answers to questions for changes and artifacts.

use std::io::Write;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use headwater_edge_wire::frame::{FRAME_END, encode_artifact};
use headwater_edge_wire::protocol::{AHEAD_EPOCH, AHEAD_HEAD, ArtifactsRequest, Body};

use super::answer::{Tls, answer, gzip};
use super::control::{Mode, State};

pub fn manifest(tls: &mut Tls, query: &str, state: &Mutex<State>) -> std::io::Result<()> {
    let value = |name: &str| {
        query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('=')?.parse::<u64>().ok())
    };
    let (after, wait) = (value("after").unwrap(), value("wait").unwrap_or(0).min(2));
    let end = Instant::now() + Duration::from_secs(wait);
    loop {
        let state = state.lock().unwrap();
        if state.head > after || state.mode != Mode::Honest || value("epoch") != Some(state.epoch.get()) {
            break;
        }
        drop(state);
        if Instant::now() > end {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let mut state = state.lock().unwrap();
    let after = if value("epoch") == Some(state.epoch.get()) { after } else { 0 };
    if after > state.head && state.mode == Mode::Honest {
        let said =
            serde_json::json!({AHEAD_EPOCH: state.epoch, AHEAD_HEAD: state.head, "detail": "come again"});
        return answer(tls, 503, "", said.to_string().as_bytes());
    }
    let (bytes, signature) = {
        let after = after.min(state.head);
        state.manifest(after)
    };
    let mode = state.mode;
    drop(state);
    let field = format!("headwater-signature: {signature}\r\n");
    if mode == Mode::Endless {
        tls.write_all(format!("HTTP/1.1 200 OK\r\nconnection: close\r\n{field}\r\n").as_bytes())?;
        loop {
            tls.write_all(&[b' '; 65_536])?;
        }
    }
    answer(tls, 200, &field, &bytes)
}

pub fn artifacts(tls: &mut Tls, body: &[u8], state: &Mutex<State>) -> std::io::Result<()> {
    let wanted = ArtifactsRequest::parse(body).unwrap();
    let state = state.lock().unwrap();
    let mut out = Vec::new();
    for checksum in wanted.checksums {
        if let Some(bytes) = state.artifacts.get(&checksum).filter(|_| state.mode != Mode::Withheld) {
            out.extend(encode_artifact(checksum, bytes).unwrap());
        }
    }
    out.extend(FRAME_END);
    if state.mode == Mode::Truncated {
        out.truncate(out.len() / 2);
    }
    drop(state);
    answer(tls, 200, "content-encoding: gzip\r\n", &gzip(&out))
}
