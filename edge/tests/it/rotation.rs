//! Keys that change: the ring of the control plane, and the certificates that cells show.

use super::support::control::{Control, Mode};
use super::support::edge::{Edge, SOON, host};
use super::support::{https, until};

#[test]
fn a_signed_page_brings_the_next_key_and_takes_the_old_one_away() {
    let control = Control::start(1);
    let mut edge = Edge::new(&control);
    control.lock().publish(&edge.domain(1, 1), |_, _| {});
    edge.start();
    until("the snapshot is applied", SOON, || control.is_applied());
    control.lock().announce_key();
    control.lock().publish(&edge.domain(1, 2), |_, _| {});
    until("a page with both keys is applied", SOON, || control.is_applied());
    // What was pinned outlives the agent.
    edge.power_off();
    control.lock().rotate_key();
    control.lock().publish(&edge.domain(1, 3), |_, _| {});
    edge.start();
    until("a page of the new key is applied", SOON, || control.is_applied());
    assert_eq!(edge.get(0, &host(1, 3)), Some(200));
    // The old key, in wrong hands, says nothing any more.
    control.mode(Mode::Forged);
    control.lock().publish(&edge.domain(1, 4), |_, _| {});
    until("a page of the old key is refused", SOON, || edge.status().to_string().contains("page_refused"));
    assert_eq!((edge.get(0, &host(1, 3)), edge.get(0, &host(1, 4))), (Some(200), Some(421)));
    assert!(!control.is_applied());
    control.mode(Mode::Honest);
    until("the new key goes on", SOON, || control.is_applied());
}

#[test]
fn a_cell_shows_the_certificate_of_its_generation_for_its_names_alone() {
    let control = Control::start(1);
    let mut edge = Edge::new(&control);
    let first = edge.domain_with_key(&control, 1, 1);
    let other = edge.domain_with_key(&control, 2, 1);
    control.lock().publish(&first, |_, _| {});
    control.lock().publish(&other, |_, _| {});
    control.lock().publish(&edge.domain(3, 1), |_, _| {});
    edge.start();
    until("the snapshot is applied", SOON, || control.is_applied());
    let port = edge.ports[0].1;
    let der = |artifact: &headwater_edge_wire::artifact::Artifact| {
        use rustls::pki_types::pem::PemObject;
        let pem = artifact.certificates[0].chain_pem.as_bytes();
        rustls::pki_types::CertificateDer::from_pem_slice(pem).unwrap().to_vec()
    };
    assert_eq!(https::get(port, "d1.example", &host(1, 1)), Some((der(&first), 200)));
    assert_eq!(https::get(port, "d2.example", &host(2, 1)), Some((der(&other), 200)));
    assert_eq!(
        https::get(port, "d1.example", &host(2, 1)),
        Some((der(&first), 421)),
        "another domain's host"
    );
    assert_eq!(https::get(port, "d1.example", "unknown.example"), Some((der(&first), 421)));
    for name in ["d3.example", "unknown.example", "default.invalid"] {
        assert_eq!(https::get(port, name, &host(1, 1)), None, "{name} has no certificate");
    }
    let renewed = edge.domain_with_key(&control, 1, 2);
    control.lock().publish(&renewed, |_, _| {});
    until("the renewal is applied", SOON, || control.is_applied());
    for _ in 0..8 {
        assert_eq!(https::get(port, "d1.example", &host(1, 2)), Some((der(&renewed), 200)));
    }
    control.lock().remove(&renewed);
    until("the removal is applied", SOON, || control.is_applied());
    assert_eq!(https::get(port, "d1.example", &host(1, 2)), None);
}
