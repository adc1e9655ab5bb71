//! A control plane that lies, breaks off or says nothing: what is served stays, and an honest one is followed again.

use std::time::Duration;

use super::support::control::{Control, Mode};
use super::support::edge::{Edge, SOON, host};
use super::support::until;

#[test]
fn nothing_hostile_changes_what_is_served() {
    let control = Control::start(1);
    let mut edge = Edge::new(&control);
    control.lock().publish(&edge.domain(1, 1), |_, _| {});
    control.lock().publish(&edge.domain(2, 1), |_, _| {});
    edge.start();
    until("the snapshot is applied", SOON, || control.is_applied());
    let modes = [
        (Mode::Foreign, "page_refused"),
        (Mode::Forged, "page_refused"),
        (Mode::Reordered, "page_refused"),
        (Mode::Truncated, "broken_stream"),
        (Mode::Endless, "bad_answer"),
        (Mode::Silent, "unreachable"),
    ];
    for (at, (mode, code)) in (2_u32..).zip(modes) {
        {
            let mut state = control.lock();
            state.mode = mode;
            state.publish(&edge.domain(1, at), |_, _| {});
            state.publish(&edge.domain(2, at), |_, _| {});
        }
        until(&format!("{mode:?} is told"), Duration::from_secs(60), || {
            edge.status().pointer("/trouble/code").and_then(serde_json::Value::as_str) == Some(code)
        });
        assert_eq!(edge.get(0, &host(1, at - 1)), Some(200), "{mode:?}");
        assert_eq!(edge.get(0, &host(1, at)), Some(421), "{mode:?}");
        assert!(!control.is_applied(), "{mode:?}");
        control.mode(Mode::Honest);
        until(&format!("honest again after {mode:?}"), Duration::from_secs(90), || control.is_applied());
        assert_eq!(edge.get(0, &host(2, at)), Some(200));
    }
    assert!(control.lock().rejected.is_empty());
}

/// An older page is refused however often it is shown, over restarts too.
#[test]
fn a_replay_is_refused_for_ever() {
    let control = Control::start(1);
    let mut edge = Edge::new(&control);
    control.lock().publish(&edge.domain(1, 1), |_, _| {});
    edge.start();
    until("the snapshot is applied", SOON, || control.is_applied());
    for revision in 2..4 {
        control.lock().publish(&edge.domain(1, revision), |_, _| {});
        until("the change is applied", SOON, || control.is_applied());
    }
    control.mode(Mode::Replay);
    for _ in 0..2 {
        until("the replay is told", SOON, || edge.status().to_string().contains("lower_sequence"));
        assert_eq!(edge.get(0, &host(1, 3)), Some(200));
        edge.kill();
        std::fs::remove_file(edge.state().join("status.json")).unwrap();
        edge.start();
    }
    // A restore raises the epoch: the numbering begins anew, and only then.
    {
        let mut state = control.lock();
        state.mode = Mode::Honest;
        state.epoch = headwater_edge_wire::ids::Epoch::from(2);
        state.head = 0;
        state.changes.clear();
        let restored = edge.domain(1, 2);
        state.publish(&restored, |_, _| {});
    }
    until("the new epoch is applied", SOON, || control.is_applied());
    assert_eq!(edge.get(0, &host(1, 2)), Some(200));
}
