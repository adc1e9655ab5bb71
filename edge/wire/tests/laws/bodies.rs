//! The bodies of the routes: what each says on the wire, its bounds, and what an older reader makes of a newer one.

use headwater_edge_wire::artifact::ArtifactBudget;
use headwater_edge_wire::checksum::Checksum;
use headwater_edge_wire::ids::*;
use headwater_edge_wire::protocol::*;
use headwater_edge_wire::seal::SealingPrivateKey;
use headwater_edge_wire::tasks::*;
use serde_json::{Value, json};

use super::given::*;

pub fn heartbeat() -> Value {
    json!({
        "sequence": 7, "agent": {"version": "0.1.0", "protocol": 1}, "at": "2023-11-14T22:13:20.005Z",
        "cells": [{"cell": 0, "http_ready": true, "https_ready": false, "epoch": 1, "sequence": 14}],
        "origins": [{"domain": domain_id(1), "hostname": "www.example.com", "healthy": false, "since": "2023-11-14T22:13:20.000Z"}],
        "security": [{"domain": domain_id(1), "requests": 10, "limited": 2}],
    })
}

fn parse<T: Body>(value: &Value) -> Result<T, BodyFault> {
    T::parse(value.to_string().as_bytes())
}

#[test]
fn a_heartbeat_may_say_more_than_is_known_here() {
    let known: Heartbeat = parse(&heartbeat()).unwrap();
    let mut newer = heartbeat();
    for pointer in ["", "/agent", "/cells/0", "/origins/0", "/security/0"] {
        newer.pointer_mut(pointer).unwrap()["later"] = json!({"any": [1.5, null]});
    }
    assert_eq!(parse::<Heartbeat>(&newer).unwrap(), known);
    let least = json!({"sequence": 1, "agent": {"version": "", "protocol": 9}, "at": "2023-11-14T22:13:20Z"});
    assert!(parse::<Heartbeat>(&least).unwrap().cells.is_empty());
}

#[test]
fn every_list_has_a_bound() {
    let grown = |list: &str, count: usize| {
        let mut value = heartbeat();
        value[list] = vec![value[list][0].clone(); count].into();
        parse::<Heartbeat>(&value).map(|_| ())
    };
    for (list, max) in
        [("cells", 32), ("origins", HEARTBEAT_ORIGINS_MAX), ("security", HEARTBEAT_SECURITY_MAX)]
    {
        assert_eq!(grown(list, max), Ok(()), "{list}");
        assert_eq!(grown(list, max + 1), Err(BodyFault::Bound { what: list, max }));
    }
    let damage = |file: usize| json!({"file": "f".repeat(file), "since": "2023-11-14T22:13:20Z"});
    let told = |key: &str, list: Value| {
        let mut value = heartbeat();
        value[key] = list;
        parse::<Heartbeat>(&value).map(|_| ())
    };
    assert_eq!(told("damaged", vec![damage(255); HEARTBEAT_DAMAGED_MAX].into()), Ok(()));
    let many = told("damaged", vec![damage(1); HEARTBEAT_DAMAGED_MAX + 1].into());
    assert_eq!(many, Err(BodyFault::Bound { what: "damaged", max: HEARTBEAT_DAMAGED_MAX }));
    assert_eq!(told("damaged", json!([damage(256)])), Err(BodyFault::Bound { what: "file", max: 255 }));
    assert_eq!(told("keys", vec!["0123456789abcdef"; 4].into()), Ok(()));
    assert_eq!(
        told("keys", vec!["0123456789abcdef"; 5].into()),
        Err(BodyFault::Bound { what: "keys", max: 4 })
    );
    let checksums = |count| parse::<ArtifactsRequest>(&json!({"checksums": vec![Checksum::of(b"x"); count]}));
    assert!(checksums(500).is_ok());
    assert!(checksums(501).is_err());
    let refused = |count: usize, detail: usize| {
        let refused =
            json!({"domain": "a.example", "revision": 1, "code": "x", "detail": "d".repeat(detail)});
        parse::<Rejected>(&json!({"refused": vec![refused; count]}))
    };
    assert!(refused(1, 1_000).is_ok() && refused(500, 0).is_ok());
    assert!(refused(1, 1_001).is_err() && refused(501, 0).is_err());
    let long = vec![b' '; HEARTBEAT_MAX_BYTES + 1];
    assert!(matches!(Heartbeat::parse(&long), Err(BodyFault::TooLarge { .. })));
}

#[test]
fn what_decides_something_refuses_what_it_does_not_know() {
    assert!(parse::<Applied>(&json!({"cell": 0, "epoch": 1, "sequence": 14})).is_ok());
    for bad in [
        json!({"cell": 0, "epoch": 1, "sequence": 14, "later": 1}),
        json!({"cell": 32, "epoch": 1, "sequence": 14}),
        json!({"cell": 0, "epoch": 1, "sequence": -1}),
        json!({"cell": 0, "epoch": 1, "sequence": 9_007_199_254_740_992_u64}),
        json!({"cell": 0, "epoch": 1}),
    ] {
        assert!(parse::<Applied>(&bad).is_err(), "{bad}");
    }
    let query: ManifestQuery = serde_json::from_value(json!({"after": 14, "wait": 3_600})).unwrap();
    assert_eq!((query.after, query.wait_seconds()), (Sequence::from(14), 30));
}

#[test]
fn a_registration_survives_the_wire() {
    let (_, sealing_key) = SealingPrivateKey::generate().unwrap();
    let request = |token| RegisterRequest {
        edge: edge_id(100),
        token,
        agent: AgentInfo { version: "0.1.0".into(), protocol: AgentVersion::CURRENT },
        csr: "-----BEGIN CERTIFICATE REQUEST-----\n".into(),
        sealing_key,
    };
    let body = request(Some(secret("hw_\"token\"\n"))).to_json().unwrap();
    let read = RegisterRequest::parse(body.expose()).unwrap();
    assert_eq!(read.token.unwrap().expose(), b"hw_\"token\"\n");
    assert_eq!((read.edge, read.sealing_key), (edge_id(100), sealing_key));
    let renewal = request(None).to_json().unwrap();
    assert!(!renewal.expose_str().unwrap().contains("token"));
    assert!(RegisterRequest::parse(renewal.expose()).unwrap().token.is_none());
    let long = RegisterRequest { csr: "c".repeat(REGISTER_MAX_BYTES), ..request(None) };
    assert!(long.to_json().is_err());
}

#[test]
fn a_refusal_fits_whatever_was_wrong() {
    let mut bad = artifact();
    bad.hostnames = vec![hostname("é.example.org"); 500];
    let faults = bad.checked().unwrap_err();
    let detail = Refused::detail_of(&faults);
    assert!(detail.starts_with("/hostnames/0/name: must be a name"), "{detail}");
    let refused = Refused::new("example.com", Revision::from(7), &"c".repeat(99), &"é".repeat(501));
    assert_eq!((refused.code.len(), refused.detail.len()), (64, 1_000));
    let report = Rejected { refused: vec![refused] };
    assert!(parse::<Rejected>(&serde_json::to_value(report).unwrap()).is_ok());
    assert_eq!(ArtifactBudget::default().bytes(), 2 << 20);
}

#[test]
fn damage_is_told_within_the_bounds() {
    let long = DamageReport::new(&"é".repeat(200), Some((&"d".repeat(300), Revision::from(7))), NOW, false);
    assert_eq!((long.file.len(), long.domain.as_ref().map(String::len)), (254, Some(253)));
    let short = DamageReport::new("identity/pins.a", None, NOW, true);
    assert_eq!(
        serde_json::to_value(&short).unwrap(),
        json!({"file": "identity/pins.a", "since": NOW, "mended": true})
    );
}

#[test]
fn work_that_is_not_known_here_holds_nothing_up() {
    let id = TaskId::from_uuid(uuid(5));
    let works = [
        Work::OriginTest { origin: origin(), path: "/".into() },
        Work::CellRestart { cell: CellNumber::try_from(3).unwrap() },
        Work::IdentityRotate {},
    ];
    let mut items: Vec<_> = works.iter().map(|work| Task::new(id, work, NOW).unwrap()).collect();
    assert_eq!(
        serde_json::to_value(&items[1]).unwrap(),
        json!({"id": id, "kind": "cell_restart", "input": {"cell": 3}, "expires_at": NOW})
    );
    items.push(Task { kind: "later".into(), input: json!([1.5]), ..items[0].clone() });
    let page: TaskPage = parse(&json!({"items": items, "later": true})).unwrap();
    let read: Vec<_> = page.items.iter().map(|task| task.work().ok()).collect();
    assert_eq!(read, [Some(works[0].clone()), Some(works[1].clone()), Some(works[2].clone()), None]);
    assert!(parse::<TaskPage>(&json!({"items": vec![items[0].clone(); 101]})).is_err());
    let result = TaskResult { outcome: Outcome::Done, detail: None, output: Value::Null };
    assert_eq!(serde_json::to_value(&result).unwrap(), json!({"outcome": "done"}));
    assert_eq!(parse::<TaskResult>(&json!({"outcome": "done"})).unwrap(), result);
    assert!(parse::<TaskResult>(&json!({"outcome": "done", "output": "x".repeat(80_000)})).is_err());
}
