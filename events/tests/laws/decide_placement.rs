//! Decisions about where visitors are sent: tables of given, when, then.

use std::net::IpAddr;

use headwater_events::actor::Caller;
use headwater_events::admin::{AdminCommand, AdminView, decide as decide_admin};
use headwater_events::dns::DomainName;
use headwater_events::domain::destination::Destinations;
use headwater_events::domain::*;
use headwater_events::edge::{
    EdgeCommand, EdgeCreated, EdgePatch, EdgeSettings, EdgeState, EdgeView, Endpoints,
};
use headwater_events::event::{DnsIdentity, Event};
use headwater_events::ids::{EdgeId, Revision};
use uuid::Uuid;

use crate::given::*;

const EDGE: EdgeId = EdgeId::from_uuid(Uuid::from_u128(20));

fn addresses(texts: &[&str]) -> Vec<IpAddr> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn edge(has: &[&str]) -> EdgeState {
    let settings =
        EdgeSettings { country: "DE".into(), continent: "EU".into(), labels: [].into(), external_id: None };
    EdgeState {
        name: "fra1".into(),
        settings,
        addresses: addresses(has),
        cells: 1,
        enabled: true,
        drained: false,
        drained_cells: [].into(),
        has_identity: true,
        is_cloned: false,
    }
}

#[test]
fn addresses_are_kept_in_order_and_the_last_endpoint_is_guarded() {
    let patch = |texts: &[&str]| {
        EdgeCommand::Update(EdgePatch { addresses: Some(addresses(texts)), ..EdgePatch::default() })
    };
    let many: Vec<String> = (0..17).map(|n| format!("1.1.1.{n}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let created = EdgeCreated {
        name: "fra1".into(),
        country: "DE".into(),
        continent: "EU".into(),
        cells: 1,
        labels: [].into(),
        external_id: None,
    };
    let some = || Some(edge(&["1.1.1.1"]));
    let guarded = "guarded: last_endpoint";
    // The edge, whether it is the last one and that is allowed, what is asked, what is decided.
    let rows = [
        (None, (false, false), EdgeCommand::Create(created.clone(), Vec::new()), "1: edge.created"),
        (
            None,
            (false, false),
            EdgeCommand::Create(created.clone(), addresses(&["1.1.1.1"])),
            "1: edge.created, edge.addresses_changed",
        ),
        (
            None,
            (false, false),
            EdgeCommand::Create(created, addresses(&many)),
            "invalid: /addresses out_of_range",
        ),
        (some(), (true, false), patch(&["1.1.1.1"]), "unchanged at 3"),
        (some(), (true, false), patch(&["1.1.1.1", "1.1.1.1"]), "unchanged at 3"),
        (some(), (true, false), patch(&["::1", "1.1.1.1"]), "4: edge.addresses_changed"),
        (some(), (true, false), patch(&many), "invalid: /addresses out_of_range"),
        (some(), (true, false), patch(&[]), guarded),
        (some(), (true, true), patch(&[]), "4: edge.addresses_changed"),
        (some(), (false, false), patch(&[]), "4: edge.addresses_changed"),
        (some(), (true, false), EdgeCommand::SetDrained(true), guarded),
        (some(), (true, false), EdgeCommand::SetEnabled(false), guarded),
        (some(), (true, true), EdgeCommand::SetDrained(true), "4: edge.drained"),
        (some(), (true, false), EdgeCommand::SetDrained(false), "unchanged at 3"),
    ];
    for (row, (edge, (last, allowed), command, then)) in rows.into_iter().enumerate() {
        let revision = Revision::new(if edge.is_some() { 3 } else { 0 });
        let edge =
            EdgeView { edge, is_last_endpoint: last, allows_last_endpoint: allowed, ..EdgeView::default() };
        let view = AdminView { revision, edge, ..AdminView::default() };
        let asked = AdminCommand::Edge { edge: EDGE, command };
        assert_eq!(told(&decide_admin(&view, &asked, &Caller::system(), OPERATION)), then, "row {row}");
    }
}

fn endpoints(ttl: u32) -> Endpoints {
    let zone = DomainName::parse("edge.example.net").unwrap();
    Endpoints { zone, ttl, pools: [("shared".to_owned(), [(EDGE, addresses(&["1.1.1.1"]))].into())].into() }
}

#[test]
fn endpoints_and_the_identity_count_one_generation() {
    let name = |text| DomainName::parse(text).unwrap();
    let identity = |minimum| DnsIdentity {
        nameservers: vec![name("ns1.example.net"), name("ns2.example.net")],
        hostmaster: name("hostmaster.example.net"),
        soa_ttl: 3_600,
        ns_ttl: 3_600,
        refresh: 3_600,
        retry: 600,
        expire: 1_209_600,
        minimum,
    };
    let set = |ttl| AdminCommand::SetEndpoints { endpoints: endpoints(ttl), why: Vec::new() };
    let known = AdminView {
        revision: Revision::new(3),
        identity: Some(identity(300)),
        generation: 4,
        endpoints: Some(endpoints(60)),
        ..AdminView::default()
    };
    let system = Caller::system();
    let decided = |view: &AdminView, command: &AdminCommand| decide_admin(view, command, &system, OPERATION);
    assert_eq!(told(&decided(&known, &set(60))), "unchanged at 3");
    assert_eq!(told(&decided(&AdminView::default(), &set(60))), "conflict: not_initialized");
    let generation = |command: &AdminCommand| match decided(&known, command).unwrap() {
        Decided::Changed(decision) => match &decision.events[0].event {
            Event::EndpointsChanged(change) => change.generation,
            Event::DnsIdentityChanged(change) => change.generation,
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    };
    assert_eq!(generation(&set(61)), 5);
    assert_eq!(generation(&AdminCommand::SetDnsIdentity(identity(301))), 5);
}

#[test]
fn a_name_is_withdrawn_by_the_deletion_that_took_it() {
    let mut view = holding(&[]);
    view.leaving.insert(owner("www").key(), Revision::new(7));
    let withdraw = |name: &str, leaving| DomainCommand::WithdrawHostname {
        owner: owner(name),
        leaving: Revision::new(leaving),
    };
    let with = With { caller: Caller::system(), ..With::default() };
    let decided = |view: &DomainView, command| told(&decide(view, &command, &with.context()));
    assert_eq!(decided(&view, withdraw("www", 7)), "11: hostname.withdrawn");
    assert_eq!(decided(&view, withdraw("www", 6)), "unchanged at 10", "it was deleted once more");
    assert_eq!(decided(&view, withdraw("new", 7)), "unchanged at 10", "it was proxied again");
}

#[test]
fn the_platforms_names_are_nobody_elses() {
    let mut view = holding(&[]);
    view.platform_names.insert(owner("shared").key());
    let with = With { caller: Caller::system(), ..With::default() };
    let decided = |command| told(&decide(&view, &command, &with.context()));
    let sent =
        OriginInput { scheme: Some("http".into()), host: Some("1.1.1.1".into()), ..OriginInput::default() };
    let input = HostnameInput { origin: sent, ..HostnameInput::default() };
    let body = HostnameBody::parse(&input, &owner("shared"), &zone(), &Destinations::default()).unwrap();
    for (ty, record) in [("A", "192.0.2.1"), ("CNAME", "a.example.org."), ("NS", "ns.example.org.")] {
        let command = DomainCommand::PutRrset(set("shared", ty, &[record]));
        assert_eq!(decided(command), "invalid: managed_by_platform", "{ty}");
    }
    assert_eq!(decided(DomainCommand::PutRrset(set("shared", "TXT", &["\"x\""]))), "11: +shared TXT [\"x\"]");
    assert_eq!(decided(DomainCommand::PutRrset(set("www", "A", &["192.0.2.1"]))), "11: +www A [192.0.2.1]");
    let put = DomainCommand::PutHostname { owner: owner("shared"), body };
    assert_eq!(decided(put), "conflict: managed_by_platform");
    assert_eq!(decided(DomainCommand::Delete), "conflict: managed_by_platform");
}
