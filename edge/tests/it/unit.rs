//! What the unit of the agent leaves to it is enough: to serve, to take over, and to end what a master left behind.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::support::control::Control;
use super::support::edge::{Edge, SOON, host};
use super::support::{https, until};

const UNIT: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/headwater-edge.service"));

/// The capabilities of the unit, as `setpriv` takes them.
fn capabilities() -> String {
    let line = UNIT.lines().find_map(|line| line.strip_prefix("CapabilityBoundingSet=")).unwrap();
    let names = line.split(' ').map(|name| format!("+{}", name.strip_prefix("CAP_").unwrap().to_lowercase()));
    std::iter::once("-all".to_owned()).chain(names).collect::<Vec<_>>().join(",")
}

#[test]
fn the_capabilities_of_the_unit_are_enough() {
    if !nix::unistd::geteuid().is_root() {
        println!("only root has capabilities to give up");
        return;
    }
    let control = Control::start(1);
    let mut edge = Edge::new(&control);
    let keyed = edge.domain_with_key(&control, 1, 1);
    control.lock().publish(&keyed, |_, _| {});
    let bound =
        format!("set -- setpriv --no-new-privs --inh-caps=-all --bounding-set={} -- \"$@\"", capabilities());
    edge.start_as(None, &bound);
    until("the snapshot is applied", SOON, || control.is_applied());
    let agent = std::fs::read_to_string(format!("/proc/{}/status", edge.agent())).unwrap();
    assert!(agent.contains("NoNewPrivs:\t1") && !agent.contains("CapEff:\t000001ff"), "{agent}");
    let serves = |edge: &Edge, revision| {
        https::get(edge.ports[0].1, "d1.example", &host(1, revision)).is_some_and(|(_, status)| status == 200)
    };
    assert!(serves(&edge, 1));
    // The workers are of another user, whose processes the agent cannot look into.
    let master = edge.master(0).unwrap();
    kill(Pid::from_raw(master), Signal::SIGKILL).unwrap();
    until("another master serves", SOON, || edge.master(0) != Some(master) && serves(&edge, 1));
    edge.kill();
    edge.start_as(None, &bound);
    let next = edge.domain_with_key(&control, 1, 2);
    control.lock().publish(&next, |_, _| {});
    until("the change is applied", SOON, || control.is_applied());
    assert!(serves(&edge, 2) && !edge.log().contains("do not end"));
}
