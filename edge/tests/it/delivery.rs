//! From enrolment to an acknowledged change, and what is refused alone.

use super::support::control::Control;
use super::support::edge::{Edge, SOON, host};
use super::support::until;

#[test]
fn a_change_is_served_by_every_worker_before_it_is_acknowledged() {
    let control = Control::start(2);
    let mut edge = Edge::new(&control);
    let first = edge.domain_with_key(&control, 1, 1);
    control.lock().publish(&first, |_, _| {});
    control.lock().publish(&edge.domain(2, 1), |_, _| {});
    edge.start();
    until("the snapshot is applied", SOON, || control.is_applied());
    for cell in 0..2 {
        assert_eq!(edge.get(cell, &host(1, 1)), Some(200));
        assert_eq!(edge.get(cell, &host(2, 1)), Some(200));
    }
    control.lock().publish(&edge.domain(2, 2), |_, _| {});
    until("the change is applied", SOON, || control.is_applied());
    assert_eq!((edge.get(0, &host(2, 1)), edge.get(1, &host(2, 2))), (Some(421), Some(200)));
    control.lock().remove(&first);
    until("the removal is applied", SOON, || control.is_applied());
    assert_eq!((edge.get(0, &host(1, 1)), edge.get(0, &host(2, 2))), (Some(421), Some(200)));
    assert_eq!(control.lock().snapshots, 1);
    until("a heartbeat says ready", SOON, || {
        control
            .lock()
            .heartbeats
            .last()
            .is_some_and(|beat| beat.cells.iter().all(|cell| cell.http_ready && cell.https_ready))
    });
    let verified = edge.command().args(["verify", "--json"]).output().unwrap();
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));
}

#[test]
fn what_is_refused_is_refused_alone_and_its_last_good_stays() {
    let control = Control::start(1);
    let mut edge = Edge::new(&control);
    for n in 1..=6 {
        control.lock().publish(&edge.domain(n, 1), |_, _| {});
    }
    edge.start();
    until("the snapshot is applied", SOON, || control.is_applied());
    {
        let mut state = control.lock();
        let forged =
            state.forge(&headwater_edge_wire::checksum::Checksum::of(&edge.domain(1, 2).bytes().unwrap()));
        state.publish(&edge.domain(1, 2), |live, _| live.signature = forged);
        // The same revision with other content, another domain's name, a body that is not what was signed.
        let mut other = edge.domain(2, 1);
        other.cache.epoch = 5;
        state.publish(&other, |_, _| {});
        let mut taken = edge.domain(3, 2);
        taken.hostnames[0].origin.port = 0;
        state.publish(&taken, |_, _| {});
        state.publish(&edge.domain(4, 2), |_, bytes| bytes.clear());
        let mut late = edge.domain(5, 2);
        (late.agent.min, late.agent.max) = (
            headwater_edge_wire::ids::AgentVersion::new(99),
            headwater_edge_wire::ids::AgentVersion::new(99),
        );
        state.publish(&late, |_, _| {});
        state.publish(&edge.domain(6, 2), |_, _| {});
    }
    until("the page is applied", SOON, || control.is_applied());
    let codes: std::collections::BTreeMap<_, _> = control
        .lock()
        .rejected
        .iter()
        .map(|refused| (refused.domain.clone(), refused.code.clone()))
        .collect();
    let want = [
        ("d1.example", "unknown_key"),
        ("d2.example", "revision_conflict"),
        ("d3.example", "invalid"),
        ("d4.example", "not_delivered"),
        ("d5.example", "agent_range"),
    ];
    assert_eq!(codes, want.map(|(domain, code)| (domain.to_owned(), code.to_owned())).into());
    for n in 1..=5 {
        assert_eq!(edge.get(0, &host(n, 1)), Some(200), "domain {n}");
    }
    assert_eq!((edge.get(0, &host(6, 1)), edge.get(0, &host(6, 2))), (Some(421), Some(200)));
}

#[test]
fn an_identity_is_renewed_with_the_same_key() {
    let control = Control::start(1);
    control.lock().life = std::time::Duration::from_secs(3);
    let mut edge = Edge::new(&control);
    edge.start();
    until("it renews twice", SOON, || control.lock().csrs.len() >= 3);
    let csrs = control.lock().csrs.clone();
    assert!(csrs.iter().all(|csr| *csr == csrs[0]));
    assert!(!edge.state().join("identity/token").exists());
}
