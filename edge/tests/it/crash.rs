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

/// A host that is enrolled anew registers with other keys, the same ones however often it breaks off, and what it serves
/// does not notice; the command once more changes nothing.
#[test]
fn a_crash_while_registering_anew_goes_on_with_the_same_keys() {
    let control = Control::start(1);
    let mut edge = Edge::new(&control);
    let keyed = edge.domain_with_key(&control, 1, 1);
    control.lock().publish(&keyed, |_, _| {});
    edge.start();
    until("the snapshot is applied", SOON, || control.is_applied());
    let master = edge.master(0);
    let mut revision = 1;
    for point in ["registered", "written", "taken"] {
        edge.kill();
        let token = control.another_token();
        edge.enroll(&control, &token);
        let before = control.lock().csrs.clone();
        edge.start_with(&format!("edge.enrol.{point}:1"));
        until(&format!("{point} is passed"), SOON, || edge.has_ended());
        assert_eq!(edge.get(0, &host(1, revision)), Some(200), "{point}");
        edge.enroll(&control, &token);
        edge.start();
        revision += 1;
        let next = edge.domain_with_key(&control, 1, revision);
        control.lock().publish(&next, |_, _| {});
        until(&format!("it goes on after {point}"), SOON, || control.is_applied());
        assert_eq!((edge.get(0, &host(1, revision)), edge.master(0)), (Some(200), master), "{point}");
        let asked = control.lock().csrs[before.len()..].to_vec();
        assert!(asked.len() == 2 && asked[0] == asked[1] && !before.contains(&asked[0]), "{point}");
        edge.enroll(&control, &token);
        edge.kill();
        edge.start();
        revision += 1;
        let next = edge.domain_with_key(&control, 1, revision);
        control.lock().publish(&next, |_, _| {});
        until("nothing is asked for again", SOON, || control.is_applied());
        assert_eq!(control.lock().csrs.len(), before.len() + 2, "{point}");
    }
    let verified = edge.command().arg("verify").output().unwrap();
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));
}

/// Keys that are lost are replaced by enrolling, as the message says; everything else is fetched again.
#[test]
fn a_damaged_identity_is_replaced() {
    let control = Control::start(1);
    let mut edge = Edge::new(&control);
    control.lock().publish(&edge.domain(1, 1), |_, _| {});
    edge.start();
    until("the snapshot is applied", SOON, || control.is_applied());
    edge.power_off();
    for copy in ["identity/identity.a", "identity/identity.b"] {
        std::fs::write(edge.state().join(copy), "x").unwrap();
    }
    edge.start();
    until("it is told", SOON, || edge.status().to_string().contains("enroll it anew"));
    edge.enroll(&control, &control.another_token());
    control.lock().publish(&edge.domain(1, 2), |_, _| {});
    until("it serves what is new", SOON, || edge.get(0, &host(1, 2)) == Some(200));
}
