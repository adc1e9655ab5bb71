//! The description is kept by the server: schemathesis sends every operation what the description allows and what it
//! does not, and holds every answer against it. As an administrator, and as a user of a tenant.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use headwater::http::router::document;
use headwater::secret::Secret;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::process::Command as Program;

use crate::support::{TestApi, eventually};

/// What must be true of every answer.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,\
    response_headers_conformance,response_schema_conformance,unsupported_method,missing_required_header,ignored_auth";
/// Answers of these have no end; what they say is held against the description elsewhere.
const ENDLESS: [&str; 2] = ["get_events_stream", "get_root_events_stream"];

/// Where schemathesis is; it is installed where it is not.
async fn program() -> PathBuf {
    let mut script = Program::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/schemathesis"));
    // Beside this program, whatever the directory is called.
    let target = std::env::current_exe().unwrap().ancestors().nth(3).unwrap().to_owned();
    let made = script.env("CARGO_TARGET_DIR", target).stdin(Stdio::null()).output().await.unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    PathBuf::from(String::from_utf8(made.stdout).unwrap().trim())
}

/// As whom everything is sent, and what. It is the same in every run.
struct Sender<'a> {
    who: &'a str,
    token: &'a Secret,
    /// `examples` are those of the description, `coverage` follows from its schemas, `fuzzing` is drawn.
    phases: &'a str,
    /// Requests of one operation that are drawn, at most.
    drawn: &'a str,
}

/// What there is of each kind: one that stays, and one that may go.
struct Lived {
    stays: Value,
    goes: Value,
}

async fn lived(api: &TestApi) -> (Lived, Secret) {
    let tenant = api.tenant("acme").await;
    let (_, ann) = api.user("ann@example.test", false, &[tenant]).await;
    let mut both = Vec::new();
    for name in ["stays", "goes"] {
        let of = api.tenant(name).await;
        let (user, token) = api.user(&format!("{name}@example.test"), false, &[of]).await;
        let me = api.send(&token, Method::GET, "/api/me", None, &[]).await.expect(200).json();
        let zone = if name == "stays" { "example.com" } else { "example.net" };
        let domain = json!({"name": zone, "force_active": true, "tenant": tenant});
        api.call(Method::POST, "/api/domains", domain).await.expect(202);
        let www = json!({"ttl": 300, "records": ["192.0.2.1"], "comment": "x"});
        api.call(Method::PUT, &format!("/api/domains/{zone}/rrsets/www/A"), www).await.expect(202);
        let origin = json!({"origin": {"scheme": "http", "host": "origin.example.org"}});
        api.call(Method::PUT, &format!("/api/domains/{zone}/hostnames/shop"), origin).await.expect(202);
        let purge =
            api.call(Method::POST, &format!("/api/domains/{zone}/purges"), json!({"type": "all"})).await;
        assert!(purge.status.is_success(), "{purge:?}");
        let purges = api.get(&format!("/api/domains/{zone}/purges")).await.expect(200).json();
        let member = json!({"role": "viewer"});
        api.call(Method::PUT, &format!("/api/domains/{zone}/members/{user}"), member).await.expect(200);
        let edge = json!({"name": name, "country": "DE", "continent": "EU"});
        let edge = api.call(Method::POST, "/api/edges", edge).await.expect(201).json();
        both.push(json!({
            "tenants": of, "users": user, "tokens": me["token"], "edges": edge["id"], "d": zone,
            "cells": format!("{}-0", edge["id"].as_str().unwrap()), "purges": purges["items"][0]["id"],
        }));
    }
    let cluster = json!({"name": "c", "database_url_file": "/x", "dns": "192.0.2.1:53"});
    let cluster = api.call(Method::POST, "/api/dns-clusters", cluster).await.expect(201).json();
    let scope = api.call(Method::POST, "/api/projections/audit/verify", json!({})).await.expect(202).json();
    let operation = scope["operation"]["id"].as_str().unwrap().to_owned();
    let ended = || async { api.get(&format!("/api/operations/{operation}")).await.expect(200).json() };
    let cancel = format!("/api/operations/{operation}/cancel");
    api.call(Method::POST, &cancel, Value::Null).await.expect(200);
    eventually("it has ended", ended, |seen| seen["finished_at"].is_string()).await;
    for one in &mut both {
        one["dns-clusters"] = cluster["id"].clone();
        one["operations"] = json!(operation);
    }
    let (goes, stays) = (both.pop().unwrap(), both.pop().unwrap());
    (Lived { stays, goes }, ann)
}

/// The description, with what there is as examples of what stands in paths.
fn described(lived: &Lived) -> Value {
    let mut document: Value = serde_json::from_str(document().unwrap().text()).unwrap();
    for (path, item) in document["paths"].as_object_mut().unwrap() {
        let kind = path.split('/').nth(2).unwrap_or_default().to_owned();
        let kind = if path.contains("/purges/") { "purges".to_owned() } else { kind };
        let kind = if path.starts_with("/api/me/tokens") { "tokens".to_owned() } else { kind };
        for (method, operation) in item.as_object_mut().unwrap() {
            // What takes something away, or its rights, takes that of which there is another.
            let ends = method == "delete" || path.ends_with("/disable") || path.ends_with("/rotate-identity");
            let ids = if ends { &lived.goes } else { &lived.stays };
            let parameters = operation.get_mut("parameters").and_then(Value::as_array_mut);
            for parameter in parameters.into_iter().flatten() {
                let known = match parameter["name"].as_str().unwrap() {
                    "d" => &ids["d"],
                    "user" => &ids["users"],
                    "id" => &ids[&kind],
                    "name" if path.contains("/hostnames/") => &json!("shop"),
                    _ => continue,
                };
                if parameter["in"] == "path" && !known.is_null() {
                    parameter["schema"]["examples"] = json!([known]);
                }
            }
        }
    }
    document
}

/// Sends everything as somebody; what was wrong, and which operations were tried.
async fn hold(program: &Path, dir: &Path, api: &TestApi, sender: &Sender<'_>) -> (String, BTreeSet<String>) {
    let Sender { who, token, phases, drawn } = sender;
    let report = dir.join(format!("{who}.ndjson"));
    let mut run = Program::new(program);
    run.arg("run").arg(dir.join("openapi.json")).arg("--url").arg(format!("http://{}", api.address));
    run.args(["--phases", phases, "--max-examples", drawn]);
    run.args(["--checks", CHECKS, "--generation-deterministic"]);
    run.args(["--workers", "1", "--no-shrink", "--continue-on-failure", "--no-color", "--warnings", "off"]);
    run.args(["--request-timeout", "20", "--suppress-health-check", "all", "--output-truncate", "false"]);
    run.args(ENDLESS.iter().flat_map(|id| ["--exclude-operation-id", id]));
    run.arg("--header").arg(format!("Authorization:Bearer {}", token.expose()));
    run.arg("--report-ndjson-path").arg(&report);
    run.current_dir(dir).stdin(Stdio::null()).kill_on_drop(true);
    let done = run.output().await.unwrap();
    let told = String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
    let tried = std::fs::read_to_string(&report).unwrap_or_default();
    let tried = operations(&described_ids(dir), &tried);
    (if done.status.success() { String::new() } else { told }, tried)
}

fn described_ids(dir: &Path) -> BTreeSet<String> {
    let document: Value =
        serde_json::from_str(&std::fs::read_to_string(dir.join("openapi.json")).unwrap()).unwrap();
    let items = document["paths"].as_object().unwrap().iter();
    let each = items.flat_map(|(path, item)| {
        item.as_object().unwrap().keys().map(move |method| format!("{} {path}", method.to_uppercase()))
    });
    each.collect()
}

/// Which operations a report names.
fn operations(all: &BTreeSet<String>, report: &str) -> BTreeSet<String> {
    all.iter().filter(|label| report.contains(&format!("\"{label}\""))).cloned().collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_answer_is_as_it_is_described() {
    let dir = tempfile::tempdir().unwrap();
    let key_file = dir.path().join("secret-key");
    assert!(headwater::vault::make(&key_file).unwrap());
    let settings = "[limits]\nreads_per_minute = 1000000\nmutations_per_minute = 1000000\n";
    let api = TestApi::start(&format!("{settings}[secrets]\nkey_file = {key_file:?}\n")).await;
    tokio::spawn(headwater::operation::run(api.app.clone()));
    tokio::spawn(headwater::history::hub::run(api.app.clone()));
    let (lived, ann) = lived(&api).await;
    let program = program().await;
    std::fs::write(dir.path().join("openapi.json"), described(&lived).to_string()).unwrap();
    // All that follows from the schemas takes minutes.
    let is_campaign = std::env::var_os("HEADWATER_TORTURE").is_some();
    let (phases, drawn) =
        if is_campaign { ("examples,coverage,fuzzing", "20") } else { ("examples,fuzzing", "2") };
    let user = Sender { who: "user", token: &ann, phases, drawn };
    let administrator = Sender { who: "administrator", token: &api.admin, phases, drawn };
    // One after the other: what one takes away is not there for the other.
    for sender in [user, administrator] {
        let (told, tried) = hold(&program, dir.path(), &api, &sender).await;
        let mut left = described_ids(dir.path());
        left.retain(|label| !tried.contains(label));
        let endless = ["GET /api/events/stream", "GET /events/stream"].map(str::to_owned);
        assert_eq!(left, BTreeSet::from(endless), "not tried as {}: {told}", sender.who);
        assert!(told.is_empty(), "as {}:\n{told}", sender.who);
    }
}
