//! The API of placement: addresses of edges, what is ready and why not, derived answers among the RRsets.

use headwater::command::{Command, Meta};
use headwater_events::actor::Caller;
use headwater_events::admin::AdminCommand;
use headwater_events::edge::Endpoints;
use headwater_events::ids::EdgeId;
use reqwest::Method;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::support::TestApi;

/// An API that can give edges their tokens.
async fn start(config: &str) -> (TestApi, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let key_file = dir.path().join("secret-key");
    assert!(headwater::vault::make(&key_file).unwrap());
    (TestApi::start(&format!("[secrets]\nkey_file = {key_file:?}\n{config}")).await, dir)
}

fn edge(name: &str, addresses: &[&str]) -> Value {
    json!({"name": name, "country": "DE", "continent": "EU", "cells": 2, "addresses": addresses})
}

async fn submit(api: &TestApi, command: AdminCommand) {
    api.app.commit.submit(Caller::system(), Command::admin(command), Meta::internal()).await.unwrap();
}

/// As if this edge alone was ready.
async fn publish(api: &TestApi, edge: &str, address: &str) {
    let edges = [(EdgeId::from_uuid(Uuid::parse_str(edge).unwrap()), vec![address.parse().unwrap()])];
    let zone = headwater_events::dns::DomainName::parse("edge.example.net").unwrap();
    let endpoints = Endpoints { zone, ttl: 300, pools: [("shared".to_owned(), edges.into())].into() };
    submit(api, AdminCommand::SetEndpoints { endpoints, why: Vec::new() }).await;
}

#[tokio::test]
async fn edges_have_addresses_that_visitors_can_reach() {
    let (api, _dir) = start("").await;
    let wrong = edge("fra1", &["127.0.0.1", "1.1.1.1", "10.0.0.1", "fe80::1"]);
    let refused = api.call(Method::POST, "/api/edges", wrong).await.expect(422).json();
    let at: Vec<_> =
        refused["errors"].as_array().unwrap().iter().map(|one| one["pointer"].as_str().unwrap()).collect();
    assert_eq!(at, ["/addresses/0", "/addresses/2", "/addresses/3"]);
    for (wrong, code) in [(json!(["x"]), "invalid_address"), (json!("1.1.1.1"), "invalid_type")] {
        let mut body = edge("fra1", &[]);
        body["addresses"] = wrong;
        let refused = api.call(Method::POST, "/api/edges", body).await.expect(422).json();
        assert_eq!(refused["errors"][0]["code"], code);
    }
    let many: Vec<String> = (1..=17).map(|n| format!("1.1.1.{n}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let refused = api.call(Method::POST, "/api/edges", edge("fra1", &many)).await.expect(422).json();
    assert_eq!(refused["errors"][0]["pointer"], "/addresses");
    let made = api.call(Method::POST, "/api/edges", edge("fra1", &["9.9.9.9", "1.1.1.1", "9.9.9.9"])).await;
    let id = made.expect(201).json()["id"].as_str().unwrap().to_owned();
    let path = format!("/api/edges/{id}");
    let shown = api.get(&path).await.expect(200).json();
    assert_eq!(shown["addresses"], json!(["1.1.1.1", "9.9.9.9"]));
    assert_eq!((&shown["ready"], &shown["published"]), (&json!(false), &json!(false)));
    assert!(shown["not_ready"].as_str().unwrap().contains("no identity"), "{shown}");
    let patched =
        api.call(Method::PATCH, &path, json!({"addresses": ["2606:4700::1"]})).await.expect(200).json();
    assert_eq!(patched["addresses"], json!(["2606:4700::1"]));
    let again =
        api.call(Method::PATCH, &path, json!({"addresses": ["2606:4700::1"]})).await.expect(200).json();
    assert_eq!(again["revision"], patched["revision"]);

    let (lax, _dir) = start("[sites]\nunsafe_allow_loopback_origins = true\n").await;
    lax.call(Method::POST, "/api/edges", edge("fra1", &["127.0.0.1"])).await.expect(201);
}

#[tokio::test]
async fn the_last_edge_goes_only_by_its_guard() {
    let (api, _dir) = start("").await;
    let made = api.call(Method::POST, "/api/edges", edge("fra1", &["1.1.1.1"])).await.expect(201).json();
    let id = made["id"].as_str().unwrap();
    publish(&api, id, "1.1.1.1").await;
    for verb in ["drain", "disable"] {
        let path = format!("/api/edges/{id}/{verb}");
        let refused = api.call(Method::POST, &path, Value::Null).await.expect_problem(409, "guarded").json();
        assert_eq!(refused["guards"], json!(["last_endpoint"]));
        let plan =
            api.call(Method::POST, &format!("{path}?dry_run=true"), Value::Null).await.expect(200).json();
        assert_eq!(plan["guards"], json!(["last_endpoint"]));
    }
    let path = format!("/api/edges/{id}");
    api.call(Method::PATCH, &path, json!({"addresses": []})).await.expect_problem(409, "guarded");
    let drain = format!("{path}/drain?allow=last_endpoint");
    assert_eq!(api.call(Method::POST, &drain, Value::Null).await.expect(200).json()["changed"], true);
}

#[tokio::test]
async fn derived_answers_are_shown_and_said_to_be() {
    let (api, _dir) = start("").await;
    submit(&api, AdminCommand::CreateSharedPool).await;
    let domain = json!({"name": "example.test", "force_active": true});
    api.call(Method::POST, "/api/domains", domain).await.expect(202);
    let origin = json!({"origin": {"scheme": "http", "host": "1.1.1.1", "port": 80}});
    let put = async |owner: &str| {
        let path = format!("/api/domains/example.test/hostnames/{owner}");
        api.call(Method::PUT, &path, origin.clone()).await.expect(202).json()
    };
    let told = put("www").await;
    assert!(told["warnings"][0].as_str().unwrap().contains("platform_zone"), "{told}");
    let made = api.call(Method::POST, "/api/edges", edge("fra1", &["1.1.1.1"])).await.expect(201).json();
    let id = made["id"].as_str().unwrap();
    publish(&api, id, "1.1.1.1").await;
    assert_eq!(put("@").await.get("warnings"), None);
    let shown = api.get("/api/domains/example.test/rrsets").await.expect(200).json();
    let rows: Vec<_> =
        shown["items"].as_array().unwrap().iter().filter(|one| one["derived"] == true).collect();
    let told: Vec<String> =
        rows.iter().map(|one| format!("{} {} {}", one["name"], one["type"], one["records"])).collect();
    assert!(told.contains(&r#""@" "A" ["1.1.1.1"]"#.to_owned()), "{told:?}");
    assert!(told.contains(&r#""www" "CNAME" ["shared.edge.example.net."]"#.to_owned()), "{told:?}");
    assert!(rows.iter().all(|one| one["managed_by"] == "platform"), "{rows:?}");
    let one = api.get("/api/domains/example.test/rrsets/www/CNAME").await.expect(200).json();
    assert_eq!((&one["derived"], &one["ttl"]), (&json!(true), &json!(300)));
    let text = api.get("/api/domains/example.test/zone").await.expect(200).text;
    assert!(text.contains("www 300 IN CNAME shared.edge.example.net. ; derived\n"), "{text}");
    assert!(text.lines().nth(1).unwrap().contains(" SOA "), "{text}");
    // Nobody sees the name that leaves.
    api.call(Method::DELETE, "/api/domains/example.test/hostnames/www", Value::Null).await.expect(202);
    api.get("/api/domains/example.test/rrsets/www/CNAME").await.expect(404);
    api.get("/api/domains/example.test/hostnames/www").await.expect(404);
    api.call(Method::DELETE, "/api/domains/example.test/hostnames/www", Value::Null).await.expect(404);

    let placed = api.get("/api/domains/example.test/placement").await.expect(200).json();
    assert_eq!((&placed["pool"], &placed["target"]), (&json!("shared"), &json!("shared.edge.example.net")));
    let edge = &placed["edges"][0];
    assert_eq!(
        (&edge["name"], &edge["ready"], &edge["published"]),
        (&json!("fra1"), &json!(false), &json!(true))
    );
    assert_eq!(edge["cells"].as_array().unwrap().len(), 1);
    let pool = &api.get("/api/pools").await.expect(200).json()["items"][0];
    assert_eq!((&pool["ready"], &pool["published"]), (&json!(false), &json!(["1.1.1.1"])));
    assert_eq!(
        (&pool["not_ready"][0]["name"], &pool["not_ready"][0]["published"]),
        (&json!("fra1"), &json!(true))
    );
    let cell = &api.get("/api/cells").await.expect(200).json()["items"][0];
    assert_eq!(cell["ready"], json!(false));
    assert!(cell["not_ready"].as_str().unwrap().contains("not heard of"), "{cell}");
    let status = api.get("/api/status").await.expect(200).json();
    assert!(
        status["placement"]
            .as_array()
            .unwrap()
            .iter()
            .any(|one| one.as_str().unwrap().contains("no edge is ready"))
    );
}
