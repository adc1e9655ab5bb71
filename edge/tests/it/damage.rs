//! Files that do not hold: told by name while they do not, whole again by themselves; nothing of them is ever served.

use std::path::{Path, PathBuf};

use headwater_edge_wire::checksum::Checksum;
use headwater_edge_wire::protocol::DamageReport;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::support::control::{Control, Mode};
use super::support::edge::{Edge, SOON, host};
use super::support::until;

struct Settled {
    control: Control,
    edge: Edge,
    /// The artifact of d1.example.
    artifact: String,
}

fn settled(check_seconds: u32) -> Settled {
    let control = Control::start(1);
    let mut edge = Edge::new(&control);
    edge.set(&format!("check_seconds = {check_seconds}"));
    let keyed = edge.domain_with_key(&control, 1, 1);
    let artifact = format!("artifacts/{}", Checksum::of(&keyed.bytes().unwrap()));
    control.lock().publish(&keyed, |_, _| {});
    control.lock().publish(&edge.domain(2, 1), |_, _| {});
    edge.start();
    until("the snapshot is applied", SOON, || control.is_applied());
    Settled { control, edge, artifact }
}

fn serves(edge: &Edge) -> bool {
    edge.get(0, &host(1, 1)) == Some(200) && edge.get(0, &host(2, 1)) == Some(200)
}

/// The first report of a file, in any heartbeat.
fn told(control: &Control, file: &str) -> Option<DamageReport> {
    let state = control.lock();
    let all = state.heartbeats.iter().flat_map(|beat| &beat.damaged);
    all.into_iter().find(|report| report.file == file).cloned()
}

/// What the newest heartbeat says does not hold.
fn now_told(control: &Control) -> Option<Vec<DamageReport>> {
    Some(control.lock().heartbeats.last()?.damaged.clone())
}

fn flip(path: &Path, at: usize) -> Vec<u8> {
    let whole = std::fs::read(path).unwrap();
    let mut bytes = whole.clone();
    bytes[at.min(whole.len() - 1)] ^= 1;
    std::fs::write(path, &bytes).unwrap();
    whole
}

/// The newest file of a directory of numbers.
fn newest(dir: &Path) -> PathBuf {
    let mut all: Vec<_> = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    all.sort_by_key(|path| path.file_stem().unwrap().to_string_lossy().parse::<u64>().unwrap_or(0));
    all.pop().unwrap()
}

#[test]
fn what_breaks_while_the_agent_runs_is_told_and_made_whole() {
    let Settled { control, edge, artifact } = settled(1);
    let state = edge.state();
    let key = newest(&state.join("cell-0/keys"));
    let key_name = key.strip_prefix(&state).unwrap().display().to_string();
    let whose = Some(("d1.example".to_owned(), 1));
    let cases = [
        (artifact.clone(), whose.clone()),
        (key_name, whose),
        ("cell-0".to_owned(), None),
        ("index".to_owned(), None),
        ("identity/registration.b".to_owned(), None),
        ("identity/identity.a".to_owned(), None),
    ];
    for (name, whose) in cases {
        let path = match name.as_str() {
            "cell-0" => newest(&state.join("cell-0/bases")).join("domains.jsonl"),
            "index" => newest(&state.join("index")),
            file => state.join(file),
        };
        control.lock().heartbeats.clear();
        let whole = flip(&path, 60);
        until(&format!("{name} is told"), SOON, || told(&control, &name).is_some());
        let report = told(&control, &name).unwrap();
        assert_eq!(report.domain.zip(report.revision.map(|revision| revision.get())), whose, "{name}");
        assert!(serves(&edge), "{name}");
        until(&format!("{name} is told no longer"), SOON, || now_told(&control) == Some(Vec::new()));
        if !["cell-0", "index"].contains(&name.as_str()) {
            assert_eq!(std::fs::read(&path).unwrap(), whole, "{name}");
        }
        assert!(serves(&edge) && edge.status().to_string().contains(&name), "{name}");
    }
    // One that is gone is as good as one that is damaged.
    control.lock().heartbeats.clear();
    std::fs::remove_file(state.join(&artifact)).unwrap();
    until("it is told", SOON, || told(&control, &artifact).is_some());
    until("it is there again", SOON, || state.join(&artifact).is_file());
    until("it is told no longer", SOON, || now_told(&control) == Some(Vec::new()));
    let verified = edge.command().args(["verify", "--json"]).output().unwrap();
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));
}

#[test]
fn a_damaged_artifact_before_a_cold_boot_is_told_with_and_without_the_control_plane() {
    let Settled { control, mut edge, artifact } = settled(1);
    for is_alone in [true, false] {
        edge.power_off();
        control.lock().heartbeats.clear();
        let path = edge.state().join(&artifact);
        let whole = flip(&path, 60);
        let verified = edge.command().args(["verify"]).output().unwrap();
        let found = String::from_utf8_lossy(&verified.stdout).into_owned();
        assert_eq!(verified.status.code(), Some(3), "{found}");
        assert!(found.contains(&format!("{artifact} does not hold: d1.example revision 1")), "{found}");
        control.mode(if is_alone { Mode::Silent } else { Mode::Honest });
        edge.start();
        until("it serves", SOON, || serves(&edge));
        if is_alone {
            let shows = |status: serde_json::Value| {
                let damage = &status["damaged"]["files"][0];
                damage["file"] == artifact
                    && damage["domain"] == "d1.example"
                    && damage["mended_at"].is_null()
            };
            until("the host shows it", SOON, || shows(edge.status()));
            let text = edge.command().arg("status").output().unwrap();
            assert!(
                String::from_utf8_lossy(&text.stdout).contains("does not hold (d1.example revision 1)"),
                "{text:?}"
            );
            assert!(serves(&edge));
            control.mode(Mode::Honest);
        }
        until("it is told", SOON * 2, || told(&control, &artifact).is_some());
        until("it is whole", SOON, || std::fs::read(&path).unwrap() == whole);
        until("it is told no longer", SOON, || now_told(&control) == Some(Vec::new()));
        assert!(edge.command().arg("verify").output().unwrap().status.success());
        assert!(serves(&edge));
    }
}

/// nginx reads files when it starts. It does not start over files that do not hold.
#[test]
fn nginx_that_dies_over_damaged_lines_serves_none_of_them() {
    let Settled { control: _control, edge, .. } = settled(3_600);
    let base = newest(&edge.state().join("cell-0/bases")).join("domains.jsonl");
    let at = std::fs::read(&base).unwrap().windows(4).position(|bytes| bytes == b".d1.").unwrap() + 2;
    let master = edge.master(0).unwrap();
    flip(&base, at);
    kill(Pid::from_raw(master), Signal::SIGKILL).unwrap();
    until("another master serves what was meant", SOON * 2, || {
        assert_ne!(edge.get(0, "r1.d0.example"), Some(200), "a damaged hostname is served");
        edge.master(0) != Some(master) && serves(&edge)
    });
    assert_ne!(edge.get(0, "r1.d0.example"), Some(200));
}

/// A control plane that was restored knows less than its edges: they say so, serve on, and never mix two histories.
#[test]
fn an_edge_that_is_ahead_says_so_and_takes_everything_anew() {
    let Settled { control, mut edge, .. } = settled(3_600);
    control.lock().publish(&edge.domain(3, 1), |_, _| {});
    until("the change is applied", SOON, || control.is_applied());
    let lost = edge.domain(3, 1);
    {
        let mut state = control.lock();
        state.changes.remove(&lost.id);
        state.head -= 1;
        state.heartbeats.clear();
    }
    let ahead = |control: &Control| {
        let state = control.lock();
        let beat = state.heartbeats.last().cloned();
        beat.is_some_and(|beat| {
            let detail = beat.cells.first().and_then(|cell| cell.detail.clone()).unwrap_or_default();
            detail.starts_with("ahead: ") && beat.holds.is_some_and(|holds| holds.sequence.get() == 3)
        })
    };
    until("it says that it is ahead", SOON * 2, || ahead(&control));
    assert_eq!(edge.get(0, &host(3, 1)), Some(200));
    // The restored log goes on with other changes under the same numbers.
    let snapshots = control.lock().snapshots;
    control.lock().publish(&edge.domain(4, 1), |_, _| {});
    control.lock().publish(&edge.domain(5, 1), |_, _| {});
    until("everything is taken anew", SOON * 2, || edge.get(0, &host(5, 1)) == Some(200));
    assert_eq!((edge.get(0, &host(4, 1)), edge.get(0, &host(3, 1))), (Some(200), Some(421)));
    assert!(control.lock().snapshots > snapshots && serves(&edge));
    // An agent that starts while it is ahead says the same, until the log is another one.
    control.lock().head = 1;
    control.lock().heartbeats.clear();
    edge.kill();
    edge.start();
    let says = |control: &Control| {
        let state = control.lock();
        let beat = state.heartbeats.last().cloned();
        beat.is_some_and(|beat| {
            beat.cells.iter().any(|cell| cell.detail.iter().any(|it| it.starts_with("ahead: ")))
        })
    };
    until("it says so after a start", SOON * 2, || says(&control));
    {
        let mut state = control.lock();
        state.head = 4;
        state.epoch = state.epoch.next().unwrap();
        state.applied.clear();
    }
    until("a new epoch is followed", SOON * 2, || control.is_applied());
    assert!(serves(&edge));
    until("it says so no longer", SOON, || !says(&control));
}
