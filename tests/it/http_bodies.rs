//! Bodies with several faults, for every mutation that takes a body: each fault is told at once, at its pointer, and
//! nothing else is.

mod accounts;
mod imports;
mod webhooks;

use std::collections::BTreeSet;

use headwater::http::router::document;
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Answer, TestApi};
use accounts::{accounts, people};

/// Method, path, body, and every fault as pointer and code, in order.
type Row = (&'static str, &'static str, Value, Vec<(&'static str, &'static str)>);

const RRSET: &str = "/api/domains/{d}/rrsets/{name}/{type}";
const BATCH: &str = "/api/domains/{d}/rrsets/batch";

fn rrsets() -> Vec<Row> {
    let wrong = "invalid_type";
    vec![
        ("put", RRSET, json!([]), vec![("", wrong)]),
        ("put", RRSET, json!("x"), vec![("", wrong)]),
        ("put", RRSET, json!({}), vec![("/records", "missing"), ("/ttl", "missing")]),
        (
            "put",
            RRSET,
            json!({"ttl": "300", "records": {}, "comment": 5, "colour": 1, "a/b~c": 2}),
            vec![
                ("/a~1b~0c", "unknown_field"),
                ("/colour", "unknown_field"),
                ("/comment", wrong),
                ("/records", wrong),
                ("/ttl", wrong),
            ],
        ),
        // A value that is none does not hide those beside it, nor move them.
        (
            "put",
            RRSET,
            json!({"ttl": 1.5, "records": [1, "x", "192.0.2.1", null, "\u{0}"]}),
            vec![
                ("/records/0", wrong),
                ("/records/1", "invalid_rdata"),
                ("/records/3", wrong),
                ("/records/4", "invalid_text"),
                ("/ttl", wrong),
            ],
        ),
        (
            "put",
            RRSET,
            json!({"ttl": -1, "records": []}),
            vec![("/records", "empty_rrset"), ("/ttl", "invalid_ttl")],
        ),
        (
            "put",
            "/api/domains/{d}/rrsets/xn--a/A",
            json!({"ttl": true, "records": ["y"], "x": 1}),
            vec![
                ("", "invalid_name"),
                ("/records/0", "invalid_rdata"),
                ("/ttl", wrong),
                ("/x", "unknown_field"),
            ],
        ),
        (
            "put",
            "/api/domains/{d}/rrsets/a..b/NONE",
            json!({"ttl": -1, "records": [1, "?"], "comment": "\n"}),
            vec![
                ("", "invalid_name"),
                ("", "unsupported_type"),
                ("/comment", "invalid_comment"),
                ("/records/0", wrong),
                ("/ttl", "invalid_ttl"),
            ],
        ),
    ]
}

fn batches() -> Vec<Row> {
    let wrong = "invalid_type";
    let good = json!({"op": "put", "name": "www", "type": "A", "ttl": 1, "records": ["192.0.2.1"]});
    vec![
        ("post", BATCH, json!({}), vec![("/changes", "missing")]),
        ("post", BATCH, json!({"changes": "x", "y": 1}), vec![("/changes", wrong), ("/y", "unknown_field")]),
        (
            "post",
            BATCH,
            json!({"changes": [good, 1, []]}),
            vec![("/changes/1", wrong), ("/changes/2", wrong)],
        ),
        (
            "post",
            BATCH,
            json!({"z": 1, "changes": [
                {"op": 1, "name": 2, "type": [], "ttl": "x", "records": [3], "comment": {}, "more": 0},
                {"op": "sing", "name": "a b", "type": "LUA", "ttl": -5, "records": ["x"]},
                {"op": "put", "name": "www.example.test", "type": "A", "ttl": "1", "records": ["192.0.2.1", "x", 7]},
                {"op": "put", "name": "xn--a", "type": "A", "records": ["y"], "colour": 1},
                {"op": "add", "name": "xn--a", "type": "A", "ttl": -1, "records": [1, "y"], "comment": "no"},
                {"op": "remove", "name": "xn--a", "type": "A", "ttl": 1, "records": ["y", 2]},
                {"op": "delete", "name": "xn--a", "records": [], "type": "AAAA\u{0}"},
                {"op": "delete"}
            ]}),
            vec![
                ("/changes/0/comment", wrong),
                ("/changes/0/more", "unknown_field"),
                ("/changes/0/name", wrong),
                ("/changes/0/op", wrong),
                ("/changes/0/records/0", wrong),
                ("/changes/0/ttl", wrong),
                ("/changes/0/type", wrong),
                ("/changes/1/name", "invalid_name"),
                ("/changes/1/op", "invalid_op"),
                ("/changes/1/ttl", "invalid_ttl"),
                ("/changes/1/type", "unsupported_type"),
                ("/changes/2/name", "looks_absolute"),
                ("/changes/2/records/1", "invalid_rdata"),
                ("/changes/2/records/2", wrong),
                ("/changes/2/ttl", wrong),
                ("/changes/3/colour", "unknown_field"),
                ("/changes/3/name", "invalid_name"),
                ("/changes/3/records/0", "invalid_rdata"),
                ("/changes/3/ttl", "missing"),
                ("/changes/4/comment", "unknown_field"),
                ("/changes/4/name", "invalid_name"),
                ("/changes/4/records/0", wrong),
                ("/changes/4/records/1", "invalid_rdata"),
                ("/changes/4/ttl", "invalid_ttl"),
                ("/changes/5/records/0", "invalid_rdata"),
                ("/changes/5/records/1", wrong),
                ("/changes/6/records", "unknown_field"),
                ("/changes/6/type", "invalid_text"),
                ("/changes/7/name", "missing"),
                ("/changes/7/type", "missing"),
                ("/z", "unknown_field"),
            ],
        ),
    ]
}

fn domains() -> Vec<Row> {
    let wrong = "invalid_type";
    let (rollback, undo) = ("/api/domains/{d}/rollback", "/api/domains/{d}/undo");
    vec![
        ("post", rollback, json!({"to": 1}), vec![("/revision", "missing"), ("/to", "unknown_field")]),
        ("post", rollback, json!({"revision": "1"}), vec![("/revision", wrong)]),
        ("post", rollback, json!({"revision": 9}), vec![("/revision", "unknown_revision")]),
        ("post", undo, json!({"to": 1}), vec![("/revision", "missing"), ("/to", "unknown_field")]),
        ("post", undo, json!({"revision": "1"}), vec![("/revision", wrong)]),
        ("post", undo, json!({"revision": 9}), vec![("/revision", "unknown_revision")]),
        ("post", undo, json!({"revision": 1}), vec![("/revision", "not_undoable")]),
        (
            "post",
            "/api/undo",
            json!({"x": 1}),
            vec![("/since", "missing"), ("/token", "missing"), ("/x", "unknown_field")],
        ),
        (
            "post",
            "/api/undo",
            json!({"token": "x", "since": "y", "until": "z"}),
            vec![("/since", "invalid_time"), ("/token", "invalid_id"), ("/until", "invalid_time")],
        ),
        ("post", "/api/undo", json!({"token": 1, "since": 2}), vec![("/since", wrong), ("/token", wrong)]),
        (
            "post",
            "/api/domains",
            json!({"name": "xn--a.test", "tenant": "x", "force_active": "yes", "labels": {"a": 1, "b=c": "d", "e\u{0}": "f"},
                "external_id": "", "colour": null}),
            vec![
                ("/colour", "unknown_field"),
                ("/external_id", "invalid_external_id"),
                ("/force_active", wrong),
                ("/labels/a", wrong),
                ("/labels/b=c", "invalid_label"),
                ("/labels/e\u{0}", "invalid_text"),
                ("/name", "invalid_name"),
                ("/tenant", "invalid_id"),
            ],
        ),
        ("post", "/api/domains", json!({"labels": []}), vec![("/labels", wrong), ("/name", "missing")]),
        (
            "patch",
            "/api/domains/{d}",
            json!({"labels": {"a/b": [], "c=": "d", "e": null}, "external_id": "\n", "serial_floor": -1, "name": "x.test"}),
            vec![
                ("/external_id", "invalid_external_id"),
                ("/labels/a~1b", wrong),
                ("/labels/c=", "invalid_label"),
                ("/name", "unknown_field"),
                ("/serial_floor", "out_of_range"),
            ],
        ),
        (
            "delete",
            "/api/domains/{d}",
            json!({"a": 1, "b": 2}),
            vec![("/a", "unknown_field"), ("/b", "unknown_field")],
        ),
    ]
}

fn clusters() -> Vec<Row> {
    let wrong = "invalid_type";
    vec![
        (
            "post",
            "/api/dns-clusters",
            json!({"name": "", "database_url_file": "x", "dns": 5, "front": "y", "nameservers": [1, "a..b", "xn--a.test"],
                "enabled": 1, "z": 1}),
            vec![
                ("/database_url_file", "invalid_path"),
                ("/dns", wrong),
                ("/enabled", wrong),
                ("/front", "invalid_address"),
                ("/name", "invalid_name"),
                ("/nameservers/0", wrong),
                ("/nameservers/1", "invalid_name"),
                ("/nameservers/2", "invalid_name"),
                ("/z", "unknown_field"),
            ],
        ),
        (
            "patch",
            "/api/dns-clusters/{id}",
            json!({"database_url_file": "x", "dns": "y", "front": [], "nameservers": {}, "name": "z"}),
            vec![
                ("/database_url_file", "invalid_path"),
                ("/dns", "invalid_address"),
                ("/front", wrong),
                ("/name", "unknown_field"),
                ("/nameservers", wrong),
            ],
        ),
    ]
}

fn pauses() -> Vec<Row> {
    let wrong = "invalid_type";
    let pause = |body: Value, faults: Vec<(&'static str, &'static str)>| {
        ["/api/deployments/pause", "/api/deployments/resume"]
            .map(|path| ("post", path, body.clone(), faults.clone()))
    };
    let mut rows: Vec<Row> = Vec::new();
    // An id is judged, and known, whatever the scope is.
    rows.extend(pause(
        json!({"scope": 1, "id": 2, "reason": 3}),
        vec![("/id", wrong), ("/reason", wrong), ("/scope", wrong)],
    ));
    rows.extend(pause(json!({"id": "x"}), vec![("/scope", "missing")]));
    rows.extend(pause(
        json!({"scope": "world", "id": "x", "reason": "a\nb", "y": 1}),
        vec![("/reason", "invalid_reason"), ("/scope", "invalid_scope"), ("/y", "unknown_field")],
    ));
    rows.extend(pause(json!({"scope": "target", "reason": 1}), vec![("/id", "missing"), ("/reason", wrong)]));
    rows.extend(pause(
        json!({"scope": "domain", "id": "a..b", "x": 1}),
        vec![("/id", "invalid_name"), ("/x", "unknown_field")],
    ));
    rows.extend(pause(json!({"scope": "all", "id": "x"}), vec![("/id", "unknown_field")]));
    rows
}

fn sites() -> Vec<Row> {
    let wrong = "invalid_type";
    vec![
        (
            "put",
            "/api/domains/{d}/hostnames/{name}",
            json!({"origin": {"scheme": 1, "host": "a..b", "port": 0, "x": 1}, "backup": 5, "y": 2}),
            vec![
                ("/backup", wrong),
                ("/origin/host", "invalid_host"),
                ("/origin/port", "out_of_range"),
                ("/origin/scheme", wrong),
                ("/origin/x", "unknown_field"),
                ("/y", "unknown_field"),
            ],
        ),
        (
            "patch",
            "/api/domains/{d}/cache",
            json!({"enabled": 1, "edge_ttl_seconds": "x", "mode": "y", "z": 1}),
            vec![
                ("/edge_ttl_seconds", wrong),
                ("/enabled", wrong),
                ("/mode", "unsupported"),
                ("/z", "unknown_field"),
            ],
        ),
        (
            "put",
            "/api/domains/{d}/tls/custom-certificate",
            json!({"certificate_pem": 1, "chain_pem": "x", "y": 2}),
            vec![
                ("/certificate_pem", wrong),
                ("/chain_pem", "invalid_pem"),
                ("/private_key_pem", "missing"),
                ("/y", "unknown_field"),
            ],
        ),
        (
            "post",
            "/api/domains/{d}/purges",
            json!({"x": 1}),
            vec![("/type", "missing"), ("/x", "unknown_field")],
        ),
        (
            "post",
            "/api/domains/{d}/purges",
            json!({"type": "tags", "tags": []}),
            vec![("/type", "unsupported")],
        ),
    ]
}

fn edges() -> Vec<Row> {
    let wrong = "invalid_type";
    vec![
        (
            "post",
            "/api/edges",
            json!({"name": 1, "cells": "x", "labels": {"a": 1}, "external_id": [], "z": 1}),
            vec![
                ("/cells", wrong),
                ("/continent", "missing"),
                ("/country", "missing"),
                ("/external_id", wrong),
                ("/labels/a", wrong),
                ("/name", wrong),
                ("/z", "unknown_field"),
            ],
        ),
        (
            "patch",
            "/api/edges/{id}",
            json!({"country": 1, "continent": 2, "labels": [], "external_id": 3, "name": "x"}),
            vec![
                ("/continent", wrong),
                ("/country", wrong),
                ("/external_id", wrong),
                ("/labels", wrong),
                ("/name", "unknown_field"),
            ],
        ),
    ]
}

fn faults(answer: &Answer) -> Vec<(String, String)> {
    let body = answer.json();
    let text = |fault: &Value, key: &str| fault[key].as_str().unwrap().to_owned();
    let told = body["errors"].as_array().cloned().unwrap_or_default();
    let mut told: Vec<(String, String)> =
        told.iter().map(|fault| (text(fault, "pointer"), text(fault, "code"))).collect();
    told.sort_unstable();
    told
}

#[tokio::test]
async fn every_fault_of_every_body_is_told_at_once() {
    let api = TestApi::start("").await;
    api.call(Method::POST, "/api/domains", json!({"name": "example.test", "force_active": true}))
        .await
        .expect(202);
    let head = api.head().await;
    let (mut wrong, mut seen) = (Vec::new(), BTreeSet::new());
    for (method, path, body, mut expected) in [
        rrsets(),
        batches(),
        domains(),
        accounts(),
        people(),
        clusters(),
        pauses(),
        sites(),
        edges(),
        webhooks::webhooks(),
        imports::imports(),
    ]
    .concat()
    {
        seen.insert((method.to_owned(), path.to_owned()));
        let target = path.replace("{d}", "example.test").replace("{name}", "www").replace("{type}", "A");
        let id = uuid::Uuid::now_v7().to_string();
        let target = target.replace("{id}", &id).replace("{user}", &id);
        let answer = api.call(method.to_uppercase().parse().unwrap(), &target, body.clone()).await;
        expected.sort_unstable();
        let told = faults(&answer);
        let same = told.iter().map(|(at, code)| (at.as_str(), code.as_str())).eq(expected.iter().copied());
        if answer.status.as_u16() != 422 || !same {
            wrong.push(format!(
                "{method} {target} {body}\n  wanted {expected:?}\n  got {} {told:?}",
                answer.status
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(api.head().await, head, "something was written");
    let api: Value = serde_json::from_str(document().unwrap().text()).unwrap();
    for (path, item) in api["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            // A text has lines, not members.
            let takes_json = !operation["requestBody"]["content"]["application/json"].is_null();
            let takes_body = takes_json && !path.starts_with("/api/projections/");
            let known = seen.contains(&(method.clone(), path.clone()));
            assert!(known || !takes_body, "{method} {path} takes a body and has no row here");
        }
    }
}
