//! A host that fails: no room on the disk, a clock that is wrong. What is served stays, it is told, and it mends by itself.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::support::control::Control;
use super::support::edge::{Edge, SOON, host};
use super::support::until;

fn settled() -> (Control, Edge) {
    let control = Control::start(1);
    let mut edge = Edge::new(&control);
    control.lock().publish(&edge.domain(1, 1), |_, _| {});
    edge.start();
    until("the snapshot is applied", SOON, || control.is_applied());
    (control, edge)
}

/// Files of at most no bytes: every write to the disk fails, as when nothing is left of it.
const NO_ROOM: &str = "trap '' XFSZ; ulimit -S -f 0";

/// What the newest heartbeat tells of the cell.
fn told(control: &Control) -> String {
    let state = control.lock();
    let detail = state.heartbeats.last().and_then(|beat| beat.cells.first()?.detail.clone());
    detail.unwrap_or_default()
}

#[test]
fn without_room_the_last_good_state_serves_and_what_was_missed_comes_later() {
    let (control, mut edge) = settled();
    edge.kill();
    edge.start_as(None, NO_ROOM);
    control.lock().publish(&edge.domain(1, 2), |_, _| {});
    until("it is told", SOON, || told(&control).contains("disk: cannot"));
    println!("told: {}", told(&control));
    assert_eq!((edge.get(0, &host(1, 1)), edge.get(0, &host(1, 2))), (Some(200), Some(421)));
    assert!(!control.is_applied() && !edge.has_ended());
    // The agent dies as well and starts on the full disk.
    edge.kill();
    edge.start_as(None, NO_ROOM);
    let beats = control.lock().heartbeats.len();
    until("it reports", SOON, || control.lock().heartbeats.len() > beats);
    assert_eq!(edge.get(0, &host(1, 1)), Some(200));
    let raised =
        Command::new("prlimit").args(["--pid", &edge.agent().to_string(), "--fsize=unlimited"]).status();
    assert!(raised.unwrap().success());
    until("what was missed is applied", SOON * 2, || control.is_applied());
    assert_eq!((edge.get(0, &host(1, 1)), edge.get(0, &host(1, 2))), (Some(421), Some(200)));
    let verified = edge.command().args(["verify", "--json"]).output().unwrap();
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));
}

/// What is left of work that did not come to its end, in the state directory.
fn half_written(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap().flatten() {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        let is_half = name.starts_with('.') || ["draft", "scratch", "lines.jsonl"].contains(&name.as_str());
        if is_half && name != ".status.json.new" {
            found.push(path.clone());
        }
        if entry.file_type().unwrap().is_dir() && !["run", "log", "cache"].contains(&name.as_str()) {
            half_written(&path, found);
        }
    }
}

/// Every write, flush and rename fails as on a full disk, after half of what was to be written.
#[test]
fn a_full_disk_changes_nothing_leaves_nothing_and_is_told() {
    let (control, mut edge) = settled();
    let flag = edge.state().with_file_name("full");
    edge.kill();
    edge.start_as(Some(("HEADWATER_EDGE_FULL", flag.to_str().unwrap())), "");
    let beats = control.lock().heartbeats.len();
    until("it is taken over", SOON, || {
        control.lock().heartbeats.len() > beats + 1 && edge.master(0).is_some()
    });
    std::fs::write(&flag, "").unwrap();
    let keyed = edge.domain_with_key(&control, 2, 1);
    control.lock().publish(&keyed, |_, _| {});
    control.lock().publish(&edge.domain(1, 2), |_, _| {});
    until("it is told", SOON, || told(&control).contains("disk_full: the disk is full: cannot write"));
    assert_eq!((edge.get(0, &host(1, 1)), edge.get(0, &host(1, 2))), (Some(200), Some(421)));
    // It has tried more than once, and nothing piles up.
    let tries = || edge.log().matches("disk_full").count();
    until("it tries again", SOON, || tries() > 2);
    let mut left = Vec::new();
    half_written(&edge.state(), &mut left);
    assert_eq!(left, Vec::<PathBuf>::new());
    assert!(!control.is_applied() && edge.get(0, &host(1, 1)) == Some(200));
    std::fs::remove_file(&flag).unwrap();
    until("there is room, and what was missed is applied", SOON * 2, || control.is_applied());
    assert_eq!((edge.get(0, &host(1, 1)), edge.get(0, &host(1, 2))), (Some(421), Some(200)));
    until("it is told no longer", SOON, || !told(&control).contains("disk"));
    let verified = edge.command().args(["verify", "--json"]).output().unwrap();
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));
}

#[test]
fn a_wrong_clock_stops_new_pages_and_never_what_is_served() {
    let (control, mut edge) = settled();
    let (day, now) = (86_400_i64, chrono::Utc::now().timestamp());
    let year_2100 = 4_102_444_800 - now;
    for (n, skew) in [(1, day), (2, -day), (3, -now), (4, year_2100)] {
        edge.power_off();
        edge.start_as(Some(("HEADWATER_EDGE_CLOCK", &skew.to_string())), "");
        until("a cold start serves", SOON, || edge.get(0, &host(1, n)) == Some(200));
        control.lock().publish(&edge.domain(1, n + 1), |_, _| {});
        until("the page is refused", SOON, || edge.log().contains("is the clock of this host right?"));
        assert_eq!(edge.get(0, &host(1, n)), Some(200), "{skew} s off");
        assert!(!control.is_applied() && !edge.has_ended(), "{skew} s off");
        edge.kill();
        edge.forget_log();
        edge.start();
        until("the right clock applies it", SOON, || control.is_applied());
        assert_eq!(edge.get(0, &host(1, n + 1)), Some(200));
    }
}
