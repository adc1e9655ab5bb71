//! Starts: without the control plane, over damaged files, over another edge's files, and over what an earlier agent or
//! master left running.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use headwater_edge::cell::Cell;
use headwater_edge::index::Index;
use headwater_edge::mac::StateKey;
use headwater_edge_wire::ids::{CellNumber, EdgeId};
use headwater_edge_wire::secret::SecretArray;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::support::control::{Control, Mode};
use super::support::edge::{Edge, SOON, host};
use super::support::until;

fn settled() -> (Control, Edge) {
    let control = Control::start(1);
    let mut edge = Edge::new(&control);
    let keyed = edge.domain_with_key(&control, 1, 1);
    control.lock().publish(&keyed, |_, _| {});
    control.lock().publish(&edge.domain(2, 1), |_, _| {});
    edge.start();
    until("the snapshot is applied", SOON, || control.is_applied());
    control.lock().publish(&edge.domain(2, 2), |_, _| {});
    until("the change is applied", SOON, || control.is_applied());
    (control, edge)
}

fn serves(edge: &Edge) -> bool {
    edge.get(0, &host(1, 1)) == Some(200) && edge.get(0, &host(2, 2)) == Some(200)
}

#[test]
fn a_cold_boot_needs_no_control_plane() {
    let (control, mut edge) = settled();
    control.mode(Mode::Silent);
    edge.power_off();
    assert_eq!(edge.get(0, &host(1, 1)), None);
    let begun = Instant::now();
    edge.start();
    until("it serves", Duration::from_secs(5), || serves(&edge));
    println!("cold boot: {:?}", begun.elapsed());
}

#[test]
fn nginx_outlives_its_agent_and_workers_never_outlive_their_master() {
    let (_control, mut edge) = settled();
    let master = edge.master(0).unwrap();
    edge.kill();
    assert!(serves(&edge));
    edge.start();
    until("it is taken over", SOON, || edge.status().pointer("/cells/0/pid") == Some(&master.into()));
    kill(Pid::from_raw(master), Signal::SIGKILL).unwrap();
    until("another master serves", SOON, || edge.master(0) != Some(master) && serves(&edge));
    until("no worker of the first is left", SOON, || {
        let entries = std::fs::read_dir("/proc").unwrap().flatten();
        let stats = entries.filter_map(|entry| std::fs::read_to_string(entry.path().join("stat")).ok());
        !stats.into_iter().any(|stat| {
            let after = stat.rsplit_once(')').map(|(_, rest)| rest.to_owned()).unwrap_or_default();
            let fields: Vec<_> = after.split_ascii_whitespace().map(str::to_owned).collect();
            fields.get(2) == Some(&master.to_string()) && fields[0] != "Z"
        })
    });
}

fn files(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap().flatten() {
        let (path, kind) = (entry.path(), entry.file_type().unwrap());
        let name = entry.file_name().to_string_lossy().into_owned();
        if kind.is_dir() && !["run", "log", "cache", "etc", "staging"].contains(&name.as_str()) {
            files(&path, found);
        } else if kind.is_file()
            && !["status.json", "agent.lock", "scratch", "draft"].contains(&name.as_str())
        {
            found.push(path);
        }
    }
}

/// One changed byte in any file, and no control plane: everything is served all the same.
#[test]
fn a_flipped_byte_anywhere_takes_nothing_away() {
    let (control, mut edge) = settled();
    control.mode(Mode::Silent);
    edge.power_off();
    let mut all = Vec::new();
    files(&edge.state(), &mut all);
    all.sort();
    assert!(all.len() > 10, "{all:?}");
    for (at, path) in all.into_iter().enumerate() {
        let Ok(whole) = std::fs::read(&path) else { continue };
        if whole.is_empty() {
            continue;
        }
        let mut bytes = whole.clone();
        // In lines that cells read: a byte of a hostname, so that the file stays readable and says something else.
        let hostname =
            whole.windows(4).position(|bytes| bytes == b".d1." || bytes == b".d2.").map(|at| at + 2);
        let is_lines = path.extension().is_some_and(|kind| kind == "jsonl");
        let sampled = [0, whole.len() / 3, whole.len() / 2, whole.len() - 1][at % 4];
        let place = hostname.filter(|_| is_lines).unwrap_or(sampled);
        bytes[place] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        edge.start();
        until(&format!("it serves with {} flipped at {place}", path.display()), SOON, || serves(&edge));
        edge.power_off();
        if path.exists() {
            std::fs::write(&path, &whole).unwrap();
        }
    }
    control.mode(Mode::Honest);
    control.lock().applied.clear();
    edge.start();
    until("it ends at what is wanted", SOON, || control.is_applied() && serves(&edge));
}

/// Files of another edge, or of this one under another key, are as good as none.
#[test]
fn a_clone_of_another_edge_is_refused() {
    let (_control, mut edge) = settled();
    edge.power_off();
    let key = Arc::new(StateKey::derive(&SecretArray::from_slice(&[3; 32]).unwrap()));
    let other = EdgeId::from_uuid(uuid::Uuid::from_u128(3));
    let (index, found) = Index::open(&edge.state().join("index"), other, Arc::clone(&key)).unwrap();
    assert!(index.pins().is_none() && index.domains().is_empty() && !found.damage.is_empty());
    let number = CellNumber::first(1)[0];
    let (cell, damage) = Cell::open(&edge.state().join("cell-0"), number, key, None).unwrap();
    assert!(cell.live().is_none() && !damage.is_empty());
}
