//! `kill -9` at every durable step: nginx serves the old state or the new one, whole, and the next start ends at the new.

use super::support::control::Control;
use super::support::edge::{Edge, SOON, host};
use super::support::until;

const POINTS: [&str; 11] = [
    "fetch",
    "verify",
    "write",
    "fsync_file",
    "rename",
    "fsync_dir",
    "compile",
    "flip",
    "probe",
    "persist",
    "ack",
];
const DOMAINS: u32 = 3;

fn served(edge: &Edge, revision: u32) -> Vec<Option<u16>> {
    (1..=DOMAINS).map(|n| edge.get(0, &host(n, revision))).collect()
}

#[test]
fn a_crash_at_any_step_leaves_the_old_or_the_new_generation_whole() {
    let control = Control::start(1);
    let mut edge = Edge::new(&control);
    let publish = |edge: &Edge, revision| {
        let mut state = control.lock();
        for n in 1..=DOMAINS {
            state.publish(&edge.domain(n, revision), |_, _| {});
        }
    };
    publish(&edge, 1);
    edge.start();
    until("the snapshot is applied", SOON, || control.is_applied());
    let mut revision = 1;
    for point in POINTS {
        // The first passings of the common steps belong to the start; the later ones to the change.
        let passings: &[u32] = match point {
            "write" | "fsync_file" | "rename" | "fsync_dir" => &[1, 2, 4, 6, 8],
            _ => &[1],
        };
        for (when, nth) in
            ["before", "after"].iter().flat_map(|when| passings.iter().map(move |nth| (when, nth)))
        {
            edge.kill();
            revision += 1;
            publish(&edge, revision);
            let crash = format!("edge.{point}.{when}:{nth}");
            edge.start_with(&crash);
            until(&format!("{crash} is passed"), SOON, || edge.has_ended());
            // A worker takes up to its next look to follow the link.
            until(&format!("one whole state after {crash}"), SOON, || {
                let (old, new) = (served(&edge, revision - 1), served(&edge, revision));
                let all = |status| vec![Some(status); DOMAINS as usize];
                (old == all(200) && new == all(421)) || (old == all(421) && new == all(200))
            });
            edge.start();
            until(&format!("applied after {crash}"), SOON, || control.is_applied());
            assert_eq!(served(&edge, revision), vec![Some(200); DOMAINS as usize], "{crash}");
        }
    }
    let verified = edge.command().arg("verify").output().unwrap();
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));
}

/// The registration is repeated with the very same request until the certificate is on the disk.
#[test]
fn a_crash_while_registering_repeats_the_same_request() {
    for crash in ["edge.write.before:1", "edge.rename.before:1", "edge.rename.after:1", "edge.rename.after:2"]
    {
        let control = Control::start(1);
        let mut edge = Edge::new(&control);
        edge.start_with(crash);
        until("it crashes", SOON, || edge.has_ended());
        edge.start();
        control.lock().publish(&edge.domain(1, 1), |_, _| {});
        until("it registers", SOON, || control.is_applied());
        let csrs = control.lock().csrs.clone();
        assert!(!csrs.is_empty() && csrs.iter().all(|csr| *csr == csrs[0]), "{crash}");
    }
}
