//! What may be proxied, kept and purged: tables of given, when, then.

use headwater_events::dns::{OwnerName, RrSetBody, RrType, Ttl};
use headwater_events::domain::destination::Destinations;
use headwater_events::domain::*;
use headwater_events::event::DomainStatus;
use headwater_events::ids::{PurgeId, Revision};
use uuid::Uuid;

use crate::given::*;

fn origin(host: &str) -> OriginInput {
    OriginInput { scheme: Some("http".into()), host: Some(host.into()), ..OriginInput::default() }
}

fn input(host: &str) -> HostnameInput {
    HostnameInput { origin: origin(host), ..HostnameInput::default() }
}

fn parse(name: &str, input: &HostnameInput) -> Result<HostnameBody, Vec<String>> {
    let read = HostnameBody::parse(input, &owner(name), &zone(), &Destinations::default());
    read.map_err(|faults| faults.iter().map(|fault| format!("{} {}", fault.pointer, fault.code)).collect())
}

fn body(name: &str, host: &str) -> HostnameBody {
    parse(name, &input(host)).unwrap()
}

fn put(name: &str, host: &str) -> DomainCommand {
    DomainCommand::PutHostname { owner: owner(name), body: body(name, host) }
}

fn proxied(view: &mut DomainView, names: &[(&str, &str)]) {
    for (name, host) in names {
        let stored =
            StoredHostname { owner: owner(name), body: body("elsewhere", host), changed: Revision::new(6) };
        view.hostnames.insert(owner(name).key(), stored);
    }
}

#[test]
fn defaults_are_filled_in() {
    let read = body("www", "Origin.Example.ORG.");
    assert_eq!(read.origin.host, "origin.example.org");
    assert_eq!((read.origin.port, read.origin.host_header.as_str()), (80, "www.example.com"));
    assert_eq!((read.origin.connect_timeout_ms, read.origin.response_timeout_ms), (3_000, 30_000));
    assert_eq!((read.origin.retries, read.origin.websocket, read.origin.verify_tls), (1, false, true));
    let mut sent = input("2606:4700:0::1111");
    sent.origin.scheme = Some("https".into());
    sent.origin.sni = Some("ORIGIN.example.org".into());
    sent.backup = Some(BackupInput { origin: origin("1.1.1.1"), ..BackupInput::default() });
    sent.health = Some(HealthInput::default());
    let read = parse("@", &sent).unwrap();
    assert_eq!((read.origin.host.as_str(), read.origin.port), ("2606:4700::1111", 443));
    assert_eq!(read.origin.sni.as_deref(), Some("origin.example.org"));
    let backup = read.backup.unwrap();
    assert_eq!((backup.failure_threshold, backup.recovery_threshold), (3, 2));
    assert_eq!((backup.hold_down_seconds, backup.failback_delay_seconds), (30, 60));
    assert_eq!(read.health, Some(Health { path: "/".into(), interval_seconds: 60 }));
}

#[test]
fn every_fault_is_named_with_its_place() {
    let sent = HostnameInput {
        origin: OriginInput {
            scheme: Some("ftp".into()),
            port: Some(0),
            host_header: Some("a b".into()),
            sni: Some("192.0.2.1".into()),
            connect_timeout_ms: Some(99),
            response_timeout_ms: Some(60_001),
            retries: Some(3),
            ..OriginInput::default()
        },
        backup: Some(BackupInput {
            origin: OriginInput { scheme: Some("https".into()), ..origin("10.0.0.1") },
            failure_threshold: Some(0),
            recovery_threshold: Some(21),
            hold_down_seconds: Some(4),
            failback_delay_seconds: Some(86_401),
        }),
        health: Some(HealthInput { path: Some("x".into()), interval_seconds: Some(59) }),
    };
    let expected = [
        "/origin/scheme invalid_scheme",
        "/origin/host missing",
        "/origin/host_header invalid_host_header",
        "/origin/sni invalid_sni",
        "/origin/port out_of_range",
        "/origin/connect_timeout_ms out_of_range",
        "/origin/response_timeout_ms out_of_range",
        "/origin/retries out_of_range",
        "/backup/origin/host forbidden_destination",
        "/backup/origin/sni missing",
        "/backup/failure_threshold out_of_range",
        "/backup/recovery_threshold out_of_range",
        "/backup/hold_down_seconds out_of_range",
        "/backup/failback_delay_seconds out_of_range",
        "/health/path invalid_path",
        "/health/interval_seconds out_of_range",
    ];
    assert_eq!(parse("www", &sent).unwrap_err(), expected);
}

/// A number at each end of its range is taken, and the next one is not.
#[test]
fn bounds_are_where_they_are_said_to_be() {
    type Set = fn(&mut HostnameInput, i64);
    let rows: [(Set, i64, i64); 5] = [
        (|sent, n| sent.origin.port = Some(n), 1, 65_535),
        (|sent, n| sent.origin.connect_timeout_ms = Some(n), 100, 10_000),
        (|sent, n| sent.origin.response_timeout_ms = Some(n), 500, 60_000),
        (|sent, n| sent.origin.retries = Some(n), 0, 2),
        (|sent, n| sent.health = Some(HealthInput { path: None, interval_seconds: Some(n) }), 60, 86_400),
    ];
    for (row, (set, least, most)) in rows.into_iter().enumerate() {
        for (n, is_taken) in
            [(least - 1, false), (least, true), (most, true), (most + 1, false), (i64::MAX, false)]
        {
            let mut sent = input("origin.example.org");
            set(&mut sent, n);
            assert_eq!(parse("www", &sent).is_ok(), is_taken, "row {row}: {n}");
        }
    }
}

#[test]
fn hosts_have_one_spelling_and_forbidden_ones_none() {
    let rows = [
        ("origin.example.org", "ok"),
        ("origin", "ok"),
        ("münchen.example", "ok"),
        ("1.1.1.1", "ok"),
        ("2606:4700::1111", "ok"),
        ("64:ff9b::1.1.1.1", "ok"),
        ("127.0.0.1", "/origin/host forbidden_destination"),
        ("localhost", "/origin/host forbidden_destination"),
        ("a.LOCALHOST.", "/origin/host forbidden_destination"),
        ("10.0.0.1", "/origin/host forbidden_destination"),
        ("169.254.169.254", "/origin/host forbidden_destination"),
        ("::ffff:127.0.0.1", "/origin/host forbidden_destination"),
        ("::ffff:1.1.1.1", "/origin/host forbidden_destination"),
        ("64:ff9b::127.0.0.1", "/origin/host forbidden_destination"),
        ("2002:7f00:1::", "/origin/host forbidden_destination"),
        ("2001:0:4136:e378::", "/origin/host forbidden_destination"),
        ("fe80::1", "/origin/host forbidden_destination"),
        ("fe80::1%eth0", "/origin/host invalid_host"),
        ("[::1]", "/origin/host invalid_host"),
        ("2130706433", "/origin/host invalid_host"),
        ("0x7f000001", "/origin/host invalid_host"),
        ("0x7f.1", "/origin/host invalid_host"),
        ("0177.0.0.1", "/origin/host invalid_host"),
        ("127.1", "/origin/host invalid_host"),
        ("127.0.0.1.", "/origin/host invalid_host"),
        ("１２７.0.0.1", "/origin/host invalid_host"),
        ("origin.example.org:80", "/origin/host invalid_host"),
        ("a/b.example", "/origin/host invalid_host"),
        ("a b", "/origin/host invalid_host"),
        ("a\r\nb", "/origin/host invalid_host"),
        ("*.example.org", "/origin/host invalid_host"),
        ("", "/origin/host invalid_host"),
        ("www.example.com", "/origin/host origin_loop"),
        ("WWW.example.com.", "/origin/host origin_loop"),
    ];
    for (host, expected) in rows {
        let told = parse("www", &input(host)).map_or_else(|faults| faults.join(", "), |_| "ok".to_owned());
        assert_eq!(told, expected, "{host:?}");
    }
    let long = format!("{}.example", vec!["a".repeat(62); 4].join("."));
    assert_eq!(parse("www", &input(&long)).unwrap_err(), ["/origin/host invalid_host"]);
}

#[test]
fn host_headers_are_hosts_with_a_port_at_most() {
    for (text, expected) in [
        ("www.Example.com", Some("www.example.com")),
        ("www.example.com:8080", Some("www.example.com:8080")),
        ("[2001:DB8::1]", Some("[2001:db8::1]")),
        ("[2001:db8::1]:443", Some("[2001:db8::1]:443")),
        ("10.0.0.1", Some("10.0.0.1")),
        ("2001:db8::1", None),
        ("a:0", None),
        ("a:65536", None),
        ("a:+1", None),
        ("a:", None),
        ("a b", None),
        ("a\r\nX: y", None),
        ("[::1]x", None),
        ("*.example.com", None),
        ("", None),
    ] {
        let mut sent = input("origin.example.org");
        sent.origin.host_header = Some(text.into());
        let read = parse("www", &sent).ok().map(|body| body.origin.host_header);
        assert_eq!(read.as_deref(), expected, "{text:?}");
    }
    assert_eq!(parse("*", &input("origin.example.org")).unwrap_err(), ["/origin/host_header missing"]);
    assert_eq!(parse("a\\.b", &input("origin.example.org")).unwrap_err(), [" invalid_hostname"]);
}

/// Given a zone, and what is proxied in it, when this is asked for, then that.
#[test]
fn a_proxied_name_stands_alone_and_above_no_cut() {
    let mut view = holding(&[
        set("a", "A", &["192.0.2.1"]),
        set("c", "CNAME", &["x.example.net."]),
        set("t", "TXT", &["\"x\""]),
        set("cut", "NS", &["ns.example.net."]),
        set("o", "A", &["192.0.2.1"]),
    ]);
    let target = RrSetBody {
        ttl: Ttl::new(300).unwrap(),
        records: vec!["example.net.".into()],
        comment: None,
        managed_by: None,
    };
    let dname = StoredRrset { body: target, changed: Revision::new(5) };
    view.rrsets.entry(owner("turned").key()).or_default().insert(RrType::DNAME, dname);
    proxied(&mut view, &[("www", "1.1.1.1"), ("back", "later.example.com"), ("*.wild", "1.1.1.1")]);
    let rows = [
        (put("new", "1.1.1.1"), "11: +host new 1.1.1.1"),
        (put("@", "1.1.1.1"), "11: +host @ 1.1.1.1"),
        (put("a", "1.1.1.1"), "conflict: rrset_conflict"),
        (put("c", "1.1.1.1"), "conflict: rrset_conflict"),
        (put("t", "1.1.1.1"), "conflict: rrset_conflict"),
        (put("cut", "1.1.1.1"), "conflict: below_zone_cut"),
        (put("deep.cut", "1.1.1.1"), "conflict: below_zone_cut"),
        (put("turned", "1.1.1.1"), "conflict: rrset_conflict"),
        (put("x.turned", "1.1.1.1"), "conflict: below_zone_cut"),
        (put("new", "o.example.com"), "11: +host new o.example.com"),
        (put("new", "www.example.com"), "invalid: /origin/host origin_loop"),
        (put("new", "x.wild.example.com"), "invalid: /origin/host origin_loop"),
        (put("later", "1.1.1.1"), "invalid: origin_loop"),
        (DomainCommand::DeleteHostname { owner: owner("www") }, "11: -host www"),
        (DomainCommand::DeleteHostname { owner: owner("none") }, "not found"),
    ];
    for (command, expected) in rows {
        assert_eq!(told(&decide(&view, &command, &With::default().context())), expected, "{command:?}");
    }
}

/// The other direction: what may be put beside and above a proxied name.
#[test]
fn rrsets_keep_away_from_proxied_names() {
    let mut view = holding(&[set("old", "A", &["192.0.2.1"])]);
    proxied(&mut view, &[("www", "1.1.1.1"), ("a.sub", "1.1.1.1"), ("@", "1.1.1.1")]);
    let rows = [
        (set("www", "A", &["192.0.2.1"]), "invalid: hostname_conflict"),
        (set("www", "AAAA", &["2001:db8::1"]), "invalid: hostname_conflict"),
        (set("www", "CNAME", &["x.example.net."]), "invalid: hostname_conflict"),
        (set("@", "A", &["192.0.2.1"]), "invalid: hostname_conflict"),
        (set("www", "TXT", &["\"x\""]), "invalid: hostname_conflict"),
        (set("www", "MX", &["10 mx.example.net."]), "invalid: hostname_conflict"),
        (set("@", "TXT", &["\"x\""]), "11: +@ TXT [\"x\"]"),
        (set("www", "NS", &["ns.example.net."]), "invalid: hostname_conflict"),
        (set("sub", "NS", &["ns.example.net."]), "invalid: hostname_conflict"),
        (set("ub", "NS", &["ns.example.net."]), "11: +ub NS [ns.example.net.]"),
        (set("other", "A", &["192.0.2.1"]), "11: +other A [192.0.2.1]"),
    ];
    for (rrset, expected) in rows {
        let command = DomainCommand::PutRrset(rrset);
        assert_eq!(told(&decide(&view, &command, &With::default().context())), expected, "{command:?}");
    }
    let batch = DomainCommand::ChangeRrsets(vec![RrsetChange::Put(set("www", "A", &["192.0.2.1"]))]);
    let found = told(&decide(&view, &batch, &With::default().context()));
    assert_eq!(found, "invalid: /changes/0 hostname_conflict");
}

/// What a decision must see is named by its command, so that the loader reads it.
#[test]
fn needs_are_named() {
    let keys = |names: &[&str]| {
        names.iter().map(|name| owner(name).key()).collect::<std::collections::BTreeSet<_>>()
    };
    let command = put("a.b", "o.example.com");
    assert_eq!(command.other_owners(&zone()), keys(&["b", "@", "o", "*"]));
    let needs = command.site_needs(&zone());
    assert_eq!(
        (needs.at, needs.fetched_from.first().map(String::as_str)),
        (keys(&["a.b", "o", "*"]), Some("a.b.example.com"))
    );
    let of = |rrset| DomainCommand::PutRrset(rrset).site_needs(&zone());
    assert_eq!(of(set("www", "A", &["192.0.2.1"])).at, keys(&["www"]));
    assert_eq!(of(set("sub", "NS", &["ns.example.net."])).below, keys(&["sub"]));
    assert_eq!(of(set("www", "TXT", &["\"x\""])).at, keys(&["www"]));
    assert_eq!(of(set("@", "TXT", &["\"x\""])), SiteNeeds::default());
    assert!(DomainCommand::Purge { id: PurgeId::from_uuid(Uuid::nil()) }.site_needs(&zone()).cache);
}

#[test]
fn no_ops_and_preconditions_of_a_hostname() {
    let mut view = holding(&[]);
    view.hostnames.insert(
        owner("www").key(),
        StoredHostname { owner: owner("www"), body: body("www", "1.1.1.1"), changed: Revision::new(6) },
    );
    let matching = |n| Precondition { if_match: Some(vec![Revision::new(n)]), if_absent: false };
    let absent = Precondition { if_match: None, if_absent: true };
    let rows = [
        (put("www", "1.1.1.1"), Precondition::default(), "unchanged at 10"),
        (put("www", "1.0.0.1"), matching(6), "11: +host www 1.0.0.1"),
        (put("www", "1.0.0.1"), matching(10), "mismatch at 6"),
        (put("www", "1.0.0.1"), absent.clone(), "mismatch at 6"),
        (put("new", "1.0.0.1"), absent, "11: +host new 1.0.0.1"),
        (put("new", "1.0.0.1"), matching(6), "mismatch at nothing"),
        (DomainCommand::DeleteHostname { owner: owner("www") }, matching(5), "mismatch at 6"),
    ];
    for (command, precondition, expected) in rows {
        let with = With { precondition, ..With::default() };
        assert_eq!(told(&decide(&view, &command, &with.context())), expected, "{command:?}");
    }
    view.state.status = DomainStatus::PendingVerification;
    let Ok(Decided::Changed(decision)) = decide(&view, &put("new", "1.0.0.1"), &With::default().context())
    else {
        panic!("decided");
    };
    assert_eq!(decision.operation, None, "nothing is deployed of what is not active");
}

#[test]
fn the_cache_is_patched_as_rfc_7396_has_it() {
    let mut view = holding(&[]);
    let patch = |patch: CachePatch| DomainCommand::PatchCache(patch);
    let ask = |view: &DomainView, command: &DomainCommand| decide(view, command, &With::default().context());
    let edge = |n| patch(CachePatch { edge_ttl_seconds: Some(n), ..CachePatch::default() });
    assert_eq!(told(&ask(&view, &patch(CachePatch::default()))), "unchanged at 10");
    assert_eq!(told(&ask(&view, &edge(Some(3_600)))), "unchanged at 10");
    assert_eq!(told(&ask(&view, &edge(None))), "unchanged at 10");
    let decided = ask(&view, &edge(Some(600))).unwrap();
    let Decided::Changed(decision) = decided else { panic!("changed") };
    assert_eq!(decision.operation, Some(OPERATION));
    view.evolve(&decision.events[0].event, Revision::new(11), NOW);
    assert_eq!((view.site.cache.edge_ttl_seconds, view.site.cache_changed), (600, Revision::new(11)));
    assert_eq!(told(&ask(&view, &edge(None))), "12: cache.changed");
    let faulty = CachePatch {
        edge_ttl_seconds: Some(Some(31_536_001)),
        browser_ttl_seconds: Some(Some(-1)),
        maximum_object_bytes: Some(Some((1 << 20) - 1)),
        stale_if_error_seconds: Some(Some(86_401)),
        stale_while_revalidate_seconds: Some(Some(86_401)),
        ..CachePatch::default()
    };
    assert_eq!(
        told(&ask(&view, &patch(faulty))),
        "invalid: /edge_ttl_seconds out_of_range, /browser_ttl_seconds out_of_range, \
         /stale_if_error_seconds out_of_range, /stale_while_revalidate_seconds out_of_range, \
         /maximum_object_bytes out_of_range"
    );
    let ends = CachePatch {
        edge_ttl_seconds: Some(Some(31_536_000)),
        browser_ttl_seconds: Some(Some(0)),
        maximum_object_bytes: Some(Some(1 << 30)),
        stale_if_error_seconds: Some(Some(86_400)),
        ..CachePatch::default()
    };
    assert_eq!(told(&ask(&view, &patch(ends))), "12: cache.changed");
    let with = With {
        precondition: Precondition { if_match: Some(vec![Revision::new(11)]), if_absent: false },
        ..With::default()
    };
    assert_eq!(told(&decide(&view, &edge(Some(1)), &with.context())), "12: cache.changed");
}

#[test]
fn a_purge_is_a_new_epoch_and_a_hundred_may_be_outstanding() {
    let mut view = holding(&[]);
    let purge = DomainCommand::Purge { id: PurgeId::from_uuid(Uuid::from_u128(7)) };
    for n in 0..100 {
        let decided = decide(&view, &purge, &With::default().context()).unwrap();
        let Decided::Changed(decision) = decided else { panic!("a purge always changes something") };
        assert_eq!(
            told(&Ok(Decided::Changed(decision.clone()))),
            format!("{}: purge {n}->{}", 11 + n, n + 1)
        );
        view.evolve(&decision.events[0].event, decision.revision, NOW);
    }
    assert_eq!(told(&decide(&view, &purge, &With::default().context())), "conflict: too_many_purges");
    view.site.purges_outstanding = 99;
    assert_eq!(told(&decide(&view, &purge, &With::default().context())), "111: purge 100->101");
}

#[test]
fn strangers_and_deleted_domains_have_no_sites() {
    let mut view = holding(&[]);
    let stranger = With {
        caller: user(headwater_events::ids::TenantId::from_uuid(Uuid::from_u128(77))),
        ..With::default()
    };
    let commands = [
        put("www", "1.1.1.1"),
        DomainCommand::DeleteHostname { owner: OwnerName::apex() },
        DomainCommand::PatchCache(CachePatch::default()),
        DomainCommand::Purge { id: PurgeId::from_uuid(Uuid::nil()) },
    ];
    for command in &commands {
        assert_eq!(told(&decide(&view, command, &stranger.context())), "not found");
    }
    view.state.status = DomainStatus::Deprovisioning;
    for command in &commands {
        assert_eq!(told(&decide(&view, command, &With::default().context())), "not found");
    }
}
