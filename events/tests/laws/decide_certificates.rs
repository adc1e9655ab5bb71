//! When a certificate may take the place of the one before, and what it means for names that are proxied.

use headwater_events::domain::*;
use headwater_events::event::DomainStatus;
use headwater_events::ids::{CertificateId, Revision, TenantId};
use uuid::Uuid;

use crate::given::*;

fn certificate(id: u128, version: u32, names: &[&str], fingerprint: &str) -> CertificateBody {
    CertificateBody {
        id: CertificateId::from_uuid(Uuid::from_u128(id)),
        version,
        source: CertificateSource::Custom,
        names: names.iter().map(|&name| name.to_owned()).collect(),
        issuer: "CN=Issuer".into(),
        serial: "01".into(),
        fingerprint: fingerprint.into(),
        key: "p-256".into(),
        not_before: NOW,
        not_after: NOW,
        chain: fingerprint.into(),
    }
}

fn put(body: CertificateBody) -> DomainCommand {
    let warnings = vec!["mind this".to_owned()];
    let key = SealedPrivateKey::new(b"sealed".to_vec());
    DomainCommand::PutCertificate(Box::new(NewCertificate { body, key, warnings }))
}

fn host(name: &str) -> DomainCommand {
    let origin = OriginInput {
        scheme: Some("http".into()),
        host: Some("1.1.1.1".into()),
        host_header: Some("www.example.com".into()),
        ..OriginInput::default()
    };
    let input = HostnameInput { origin, ..HostnameInput::default() };
    let body = HostnameBody::parse(&input, &owner(name), &zone(), &Default::default()).unwrap();
    DomainCommand::PutHostname { owner: owner(name), body }
}

/// Asks, and takes in what was decided.
fn ask(view: &mut DomainView, command: &DomainCommand, with: &With) -> (String, Vec<String>) {
    let decided = decide(view, command, &with.context());
    let mut warnings = Vec::new();
    if let Ok(Decided::Changed(decision)) = &decided {
        for new in &decision.events {
            view.evolve(&new.event, decision.revision, NOW);
        }
        warnings.clone_from(&decision.warnings);
    }
    (told(&decided), warnings)
}

#[test]
fn it_covers_what_is_proxied_and_its_versions_count_up() {
    let mut view = holding(&[]);
    let with = With::default();
    for name in ["www", "@", "*.shop"] {
        ask(&mut view, &host(name), &with);
    }
    let mut ask = |command: &DomainCommand| ask(&mut view, command, &with);
    let all = &["*.example.com", "*.shop.example.com", "example.com"];
    for (names, expected) in [
        (&["example.com"][..], 2),
        (&["*.example.com"], 2),
        (&["*.example.com", "example.com"], 1),
        (&["*.example.com", "example.com", "shop.example.com"], 1),
    ] {
        let faults = vec!["/certificate_pem name_not_covered"; expected].join(", ");
        assert_eq!(ask(&put(certificate(1, 1, names, "a"))).0, format!("invalid: {faults}"), "{names:?}");
    }
    let first = ask(&put(certificate(1, 1, all, "a")));
    assert_eq!(first, ("14: certificate.replaced".into(), vec!["mind this".into()]));
    assert_eq!(ask(&put(certificate(1, 2, all, "a"))).0, "unchanged at 14");
    // Sealed for another place: somebody was faster.
    for (id, version) in [(1, 1), (1, 3), (2, 1), (2, 2)] {
        assert_eq!(ask(&put(certificate(id, version, all, "b"))).0, "conflict: certificate_moved");
    }
    assert_eq!(ask(&put(certificate(1, 2, all, "b"))).0, "15: certificate.replaced");
    let deleted = ask(&DomainCommand::DeleteCertificate);
    assert_eq!((deleted.0.as_str(), deleted.1.len()), ("16: certificate.deleted", 1));
    assert_eq!(ask(&DomainCommand::DeleteCertificate).0, "not found");
    assert_eq!(ask(&put(certificate(1, 3, all, "c"))).0, "conflict: certificate_moved");
    assert_eq!(ask(&put(certificate(3, 1, all, "c"))).0, "17: certificate.replaced");
}

#[test]
fn a_name_that_it_is_not_for_is_accepted_and_said_to_be_without_tls() {
    let mut view = holding(&[]);
    let with = With::default();
    assert_eq!(ask(&mut view, &host("early"), &with).1, Vec::<String>::new());
    ask(&mut view, &put(certificate(1, 1, &["early.example.com", "*.sub.example.com"], "a")), &with);
    for (name, is_covered) in
        [("early", true), ("a.sub", true), ("late", false), ("a.b.sub", false), ("*", false)]
    {
        let (told, warnings) = ask(&mut view, &host(name), &with);
        assert!(told.contains("+host") || told.contains("unchanged"), "{told}");
        assert_eq!(warnings.is_empty(), is_covered, "{name}: {warnings:?}");
        if let [warning] = warnings.as_slice() {
            assert!(warning.contains("TLS for it is refused"), "{warning}");
        }
    }
}

#[test]
fn conditions_rights_and_what_is_not_active() {
    let mut view = holding(&[]);
    let names = &["example.com"];
    let if_match = |n| Precondition { if_match: Some(vec![Revision::new(n)]), if_absent: false };
    let absent = Precondition { if_match: None, if_absent: true };
    let under = |precondition: &Precondition| With { precondition: precondition.clone(), ..With::default() };
    for (command, precondition, expected) in [
        (put(certificate(1, 1, names, "a")), if_match(10), "mismatch at nothing"),
        (put(certificate(1, 1, names, "a")), absent.clone(), "11: certificate.replaced"),
        (put(certificate(1, 2, names, "b")), absent, "mismatch at 11"),
        (put(certificate(1, 2, names, "b")), if_match(10), "mismatch at 11"),
        (put(certificate(1, 2, names, "b")), if_match(11), "12: certificate.replaced"),
        (DomainCommand::DeleteCertificate, if_match(11), "mismatch at 12"),
    ] {
        assert_eq!(ask(&mut view, &command, &under(&precondition)).0, expected);
    }
    let stranger = With { caller: user(TenantId::from_uuid(Uuid::from_u128(77))), ..With::default() };
    let commands = [put(certificate(1, 3, names, "c")), DomainCommand::DeleteCertificate];
    for command in &commands {
        assert_eq!(told(&decide(&view, command, &stranger.context())), "not found");
        let needs = command.site_needs(&zone());
        assert!(needs.certificate && needs.every == matches!(command, DomainCommand::PutCertificate(_)));
    }
    assert!(host("www").site_needs(&zone()).certificate);
    view.state.status = DomainStatus::PendingVerification;
    let Ok(Decided::Changed(decision)) = decide(&view, &commands[0], &With::default().context()) else {
        panic!("decided");
    };
    assert_eq!(decision.operation, None, "nothing is deployed of what is not active");
    view.state.status = DomainStatus::Deprovisioning;
    assert_eq!(told(&decide(&view, &commands[0], &With::default().context())), "not found");
}

#[test]
fn nothing_shows_a_sealed_key() {
    let command = format!("{:?}", put(certificate(1, 1, &["example.com"], "a")));
    assert!(command.contains("SealedPrivateKey(6 bytes)") && !command.contains("sealed"), "{command}");
}
