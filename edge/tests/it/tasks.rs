//! What the control plane asks for beside serving.

use headwater_edge_wire::ids::CellNumber;
use headwater_edge_wire::tasks::{Outcome, Work};

use super::support::control::Control;
use super::support::edge::{Edge, SOON, host};
use super::support::until;

fn restart(cell: u8) -> Work {
    Work::CellRestart { cell: CellNumber::first(cell + 1).pop().unwrap() }
}

#[test]
fn a_cell_is_started_anew_once_and_serves_before_that_is_told() {
    let control = Control::start(2);
    let mut edge = Edge::new(&control);
    control.lock().publish(&edge.domain(1, 1), |_, _| {});
    edge.start();
    until("the snapshot is applied", SOON, || control.is_applied());
    let (first, other) = (edge.master(0).unwrap(), edge.master(1).unwrap());
    control.lock().loses_results = true;
    control.lock().ask(1, &restart(0));
    until("it is told", SOON, || !control.lock().results.is_empty());
    assert_eq!(edge.get(0, &host(1, 1)), Some(200));
    let second = edge.master(0).unwrap();
    assert_ne!(first, second);
    until("it is told again", SOON, || control.lock().results.len() > 1);
    control.lock().loses_results = false;
    until("its result is in", SOON, || control.lock().tasks.is_empty());
    assert!(control.lock().results.iter().all(|(_, result)| result.outcome == Outcome::Done));
    assert_eq!((edge.master(0), edge.master(1)), (Some(second), Some(other)), "once, and that cell alone");
    // A cell that this edge has not, and work that it cannot do.
    control.lock().results.clear();
    control.lock().ask(2, &restart(7));
    control.lock().ask(3, &Work::IdentityRotate {});
    until("both are answered", SOON, || control.lock().tasks.is_empty());
    let outcomes: Vec<_> = control.lock().results.iter().map(|(_, result)| result.outcome).collect();
    assert_eq!(outcomes, [Outcome::Failed, Outcome::Unsupported]);
    assert_eq!(edge.get(0, &host(1, 1)), Some(200));
}
