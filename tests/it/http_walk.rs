//! The way of a zone through the API: made, filled, read back, changed under conditions, exported, deleted, restored.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::TestApi;

const ZONE: &str = "/api/domains/example.test";

async fn with_zone() -> TestApi {
    let api = TestApi::start("").await;
    let made =
        api.call(Method::POST, "/api/domains", json!({"name": "Example.TEST", "force_active": true})).await;
    let made = made.expect(202);
    assert_eq!(made.json()["changed"], true);
    assert_eq!(made.json()["revision"], 1);
    assert_eq!(made.json()["domain"]["name"], "example.test");
    let operation = made.json()["operation"]["id"].as_str().unwrap().to_owned();
    assert_eq!(made.header("location"), format!("/api/operations/{operation}"));
    api
}

#[tokio::test]
async fn a_record_goes_in_and_comes_back() {
    let api = with_zone().await;
    let path = format!("{ZONE}/rrsets/www/A");
    let body = json!({"ttl": 300, "records": ["192.0.2.2", "192.0.2.1", "192.0.2.1"], "comment": null});
    let headers = [("Change-Note", "two hosts"), ("If-None-Match", "*")];
    let put = api.send(&api.admin, Method::PUT, &path, Some(&body), &headers).await.expect(202);
    assert_eq!((&put.json()["changed"], &put.json()["revision"]), (&json!(true), &json!(2)));
    assert_eq!(put.header("etag"), "\"2\"");

    let got = api.get(&path).await.expect(200);
    let shown = got.json();
    assert_eq!(shown["records"], json!(["192.0.2.1", "192.0.2.2"]));
    assert_eq!(
        (&shown["name"], &shown["type"], &shown["derived"]),
        (&json!("www"), &json!("A"), &json!(false))
    );
    assert_eq!(shown["changed"]["note"], "two hosts");
    assert_eq!(shown["changed"]["actor"]["kind"], "operator");
    assert_eq!(got.header("etag"), "\"2\"");
    assert_eq!(got.header("cache-control"), "no-store");
    assert_eq!(got.header("x-content-type-options"), "nosniff");
    let fresh = [("If-None-Match", "W/\"2\"")];
    api.send(&api.admin, Method::GET, &path, None, &fresh).await.expect(304);

    // The same again: nothing happens, and it says so.
    let head = api.head().await;
    let again = api.call(Method::PUT, &path, body.clone()).await.expect(200);
    assert_eq!(again.json(), json!({"changed": false, "revision": 2, "operation": null}));
    assert_eq!(api.head().await, head);

    // Conditions.
    let other = json!({"ttl": 300, "records": ["192.0.2.9"]});
    for (name, value) in [("If-Match", "\"1\""), ("If-Match", "W/\"2\""), ("If-None-Match", "*")] {
        let refused = api.send(&api.admin, Method::PUT, &path, Some(&other), &[(name, value)]).await;
        refused.expect_problem(412, "revision_mismatch");
    }
    let plan = api.call(Method::PUT, &format!("{path}?dry_run=true"), other.clone()).await.expect(200).json();
    assert_eq!((&plan["changed"], &plan["if_match"]), (&json!(true), &json!("\"2\"")));
    assert_eq!(plan["diff"][0]["path"], "/rrsets/www/A");
    assert_eq!(api.head().await, head);
    let matched = [("If-Match", "\"2\"")];
    api.send(&api.admin, Method::PUT, &path, Some(&other), &matched).await.expect(202);
}

#[tokio::test]
async fn lists_pages_lines_and_a_batch() {
    let api = with_zone().await;
    let change = |n: u8| json!({"op": "put", "name": format!("h{n}"), "type": "A", "ttl": 60, "records": [format!("192.0.2.{n}")]});
    let changes: Vec<Value> = (1..=30).map(change).collect();
    let batch = format!("{ZONE}/rrsets/batch");
    let made = api.call(Method::POST, &batch, json!({"changes": changes})).await.expect(202);
    assert_eq!(made.json()["revision"], 2);

    // 30 of ours, NS and SOA of the platform: in pages, each once.
    let mut seen = Vec::new();
    let mut next = format!("{ZONE}/rrsets?limit=7");
    loop {
        let page = api.get(&next).await.expect(200);
        let items = page.json()["items"].as_array().unwrap().clone();
        seen.extend(items.iter().map(|item| (item["name"].to_string(), item["type"].to_string())));
        let Some(cursor) = page.json()["next"].as_str().map(str::to_owned) else { break };
        assert!(page.header("link").contains("rel=\"next\""));
        next = format!("{ZONE}/rrsets?limit=7&cursor={cursor}");
    }
    assert_eq!(seen.len(), 32);
    assert_eq!(seen.iter().collect::<std::collections::BTreeSet<_>>().len(), 32);
    let lines = [("Accept", "application/x-ndjson")];
    let lines = api.send(&api.admin, Method::GET, &format!("{ZONE}/rrsets"), None, &lines).await.expect(200);
    assert_eq!(lines.header("content-type"), "application/x-ndjson");
    let lines: Vec<Value> = lines.text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 32);
    assert_eq!(lines.iter().filter(|line| line["derived"] == true).count(), 2);
    let soa = api.get(&format!("{ZONE}/rrsets/@/SOA")).await.expect(200).json();
    assert_eq!(soa["derived"], true);

    // Add and remove single values; more than half of it gone needs to be meant.
    let single = json!({"changes": [
        {"op": "add", "name": "h1", "type": "A", "records": ["192.0.2.100", "192.0.2.1"]},
        {"op": "remove", "name": "h2", "type": "A", "records": ["192.0.2.2", "192.0.2.77"]}]});
    api.call(Method::POST, &batch, single).await.expect(202);
    let h1 = api.get(&format!("{ZONE}/rrsets/h1/A")).await.expect(200).json();
    assert_eq!(h1["records"], json!(["192.0.2.1", "192.0.2.100"]));
    api.get(&format!("{ZONE}/rrsets/h2/A")).await.expect_problem(404, "not_found");
    let deletes: Vec<Value> =
        (3..=20).map(|n| json!({"op": "delete", "name": format!("h{n}"), "type": "A"})).collect();
    let body = json!({"changes": deletes});
    api.call(Method::POST, &batch, body.clone()).await.expect_problem(409, "guarded");
    api.call(Method::POST, &format!("{batch}?allow=mass_delete"), body).await.expect(202);
}

#[tokio::test]
async fn a_domain_is_changed_deleted_and_restored() {
    let api = with_zone().await;
    let patch = json!({"labels": {"env": "prod", "team": "dns"}, "external_id": "4711"});
    api.call(Method::PATCH, ZONE, patch).await.expect(202);
    let patch = json!({"labels": {"team": null}});
    api.call(Method::PATCH, ZONE, patch).await.expect(202);
    let domain = api.get(ZONE).await.expect(200);
    assert_eq!(domain.json()["labels"], json!({"env": "prod"}));
    assert_eq!(domain.json()["external_id"], "4711");
    assert_eq!(domain.header("etag"), "\"3\"");
    for (query, found) in [
        ("label=env=prod", 1),
        ("label=env%3Dprod&external_id=4711&q=ample", 1),
        ("label=env=prod&label=team=dns", 0),
        ("q=nothing", 0),
    ] {
        let list = api.get(&format!("/api/domains?{query}")).await.expect(200).json();
        assert_eq!(list["items"].as_array().unwrap().len(), found, "{query}");
    }
    api.call(Method::DELETE, ZONE, Value::Null).await.expect(202);
    assert_eq!(api.get(ZONE).await.expect(200).json()["status"], "removed");
    let put = json!({"ttl": 1, "records": ["192.0.2.1"]});
    api.call(Method::PUT, &format!("{ZONE}/rrsets/a/A"), put).await.expect_problem(404, "not_found");
    api.call(Method::POST, &format!("{ZONE}/restore"), Value::Null).await.expect(202);
    assert_eq!(api.get(ZONE).await.expect(200).json()["status"], "active");
    let status = api.get(&format!("{ZONE}/status")).await.expect(200).json();
    assert_eq!((&status["state"], &status["revision"]), (&json!("none"), &json!(5)));

    // Without force_active: 201, and writes without operations.
    let made = api.call(Method::POST, "/api/domains", json!({"name": "pending.test"})).await.expect(201);
    assert_eq!(made.json()["status"], "pending_verification");
    assert_eq!(made.header("location"), "/api/domains/pending.test");
    let put = json!({"ttl": 1, "records": ["192.0.2.1"]});
    let put = api.call(Method::PUT, "/api/domains/pending.test/rrsets/@/A", put).await.expect(200);
    assert_eq!(put.json(), json!({"changed": true, "revision": 2, "operation": null}));
}

#[tokio::test]
async fn a_zone_and_its_history_are_shown() {
    let api = with_zone().await;
    for (at, records) in [("@/MX", json!(["10 mail.example.net."])), ("*/TXT", json!(["\"a\" \"b\""]))] {
        let body = json!({"ttl": 60, "records": records});
        api.call(Method::PUT, &format!("{ZONE}/rrsets/{at}"), body).await.expect(202);
    }
    let zone = api.get(&format!("{ZONE}/zone")).await.expect(200);
    assert_eq!(zone.header("content-type"), "text/dns; charset=utf-8");
    assert_eq!(zone.header("etag"), "\"3\"");
    let expected = "$ORIGIN example.test.\n\
        @ 3600 IN SOA ns1.example.net. hostmaster.example.net. 4 3600 600 1209600 300 ; derived\n\
        @ 3600 IN NS ns1.example.net. ; derived\n\
        @ 3600 IN NS ns2.example.net. ; derived\n\
        @ 60 IN MX 10 mail.example.net.\n\
        * 60 IN TXT \"a\" \"b\"\n";
    assert_eq!(zone.text, expected);
    let headers = [("Accept", "application/json")];
    let zone = api.send(&api.admin, Method::GET, &format!("{ZONE}/zone"), None, &headers).await.expect(200);
    assert_eq!(zone.json()["rrsets"].as_array().unwrap().len(), 4);
    assert_eq!(zone.json()["rrsets"][0]["derived"], true);

    let list = api.get(&format!("{ZONE}/revisions?limit=2")).await.expect(200).json();
    assert_eq!(list["items"][0]["revision"], 3);
    assert_eq!(list["items"][0]["actor_name"], "admin@example.test");
    let next = list["next"].as_str().unwrap();
    let list = api.get(&format!("{ZONE}/revisions?limit=2&cursor={next}")).await.expect(200).json();
    assert_eq!((list["items"][0]["type"].as_str(), &list["next"]), (Some("domain.created"), &Value::Null));
    let one = api.get(&format!("{ZONE}/revisions/2")).await.expect(200).json();
    assert_eq!(one["changes"][0]["path"], "/rrsets/@/MX");
    assert_eq!(one["changes"][0]["after"]["records"], json!(["10 mail.example.net."]));
}

#[tokio::test]
async fn clusters_are_registered_and_enabled() {
    let api = with_zone().await;
    let body = json!({"name": "dns-1", "database_url_file": "/etc/x", "dns": "127.0.0.1:5301", "nameservers": ["ns1.example.net"]});
    let made = api.call(Method::POST, "/api/dns-clusters", body.clone()).await.expect(201);
    assert_eq!((&made.json()["state"], &made.json()["in_service"]), (&json!("disabled"), &json!(false)));
    api.call(Method::POST, "/api/dns-clusters", body).await.expect_problem(409, "name_taken");
    let path = made.header("location").to_owned();
    api.call(Method::POST, &format!("{path}/enable"), Value::Null).await.expect(202);
    api.call(Method::POST, &format!("{path}/enable"), Value::Null).await.expect(200);
    assert_eq!(api.get(&path).await.expect(200).json()["state"], "enabled");
    let found = api.get(&format!("{ZONE}/deployments")).await.expect(200).json();
    assert_eq!(
        (&found["items"][0]["state"], &found["items"][0]["wanted"]),
        (&json!("pending"), &json!(true))
    );
    let page = api.get(&format!("{ZONE}/deployments?limit=1")).await.expect(200).json();
    assert_eq!(page, found);
    // Nothing is ahead, so that there is nothing to decide.
    let head = api.head().await;
    for verb in ["adopt", "discard"] {
        let path = format!("/api/deployments/{}/{verb}", found["items"][0]["id"].as_str().unwrap());
        let told = api.call(Method::POST, &path, Value::Null).await.expect(200).json();
        assert_eq!(told["changed"], false);
        let plan =
            api.call(Method::POST, &format!("{path}?dry_run=true"), Value::Null).await.expect(200).json();
        assert_eq!(
            (&plan["changed"], &plan["diff"], &plan["targets"]),
            (&json!(false), &json!([]), &json!([]))
        );
        let condition = [("If-Match", "\"1\"")];
        let refused = api.send(&api.admin, Method::POST, &path, None, &condition).await;
        refused.expect_problem(400, "malformed");
    }
    assert_eq!(api.head().await, head);
    let found = api.get("/api/deployments?state=pending").await.expect(200).json();
    assert_eq!(found["items"][0]["target"]["name"], "dns-1");
    let pause = json!({"scope": "domain", "id": "example.test", "reason": "maintenance"});
    let paused = api.call(Method::POST, "/api/deployments/pause", pause.clone()).await.expect(200);
    assert_eq!(paused.json()["changed"], true);
    api.call(Method::POST, "/api/deployments/resume", pause).await.expect(200);
}

#[tokio::test]
async fn a_key_replays_its_answer() {
    let api = with_zone().await;
    let path = format!("{ZONE}/rrsets/www/A");
    let key = uuid::Uuid::new_v4().to_string();
    let headers = [("Idempotency-Key", key.as_str())];
    let body = json!({"ttl": 300, "records": ["192.0.2.1"]});
    let first = api.send(&api.admin, Method::PUT, &path, Some(&body), &headers).await.expect(202);
    assert!(!first.headers.contains_key("idempotency-replayed"));
    let head = api.head().await;
    let again = api.send(&api.admin, Method::PUT, &path, Some(&body), &headers).await.expect(202);
    assert_eq!(again.header("idempotency-replayed"), "true");
    assert_eq!(again.json(), first.json());
    let other = json!({"ttl": 301, "records": ["192.0.2.1"]});
    let refused = api.send(&api.admin, Method::PUT, &path, Some(&other), &headers).await;
    refused.expect_problem(409, "idempotency_conflict");
    assert_eq!(api.head().await, head);
}

#[tokio::test]
async fn a_tag_is_not_enough_where_the_platform_changed() {
    let api = with_zone().await;
    let www = &format!("{ZONE}/rrsets/www/A");
    let body = json!({"ttl": 300, "records": ["192.0.2.1"]});
    api.call(Method::PUT, www, body.clone()).await.expect(202);
    let parts = ["", "/zone", "/rrsets", "/rrsets/@/SOA"].map(|part| format!("{ZONE}{part}"));
    let asked = async |tag: &'static str, expected: u16| {
        for part in &parts {
            let answer = api.send(&api.admin, Method::GET, part, None, &[("If-None-Match", tag)]).await;
            assert_eq!(answer.expect(expected).header("etag"), tag, "{part}");
        }
    };
    asked("\"2\"", 304).await;
    // The serial of every zone rises with the platform, and no domain has a new revision.
    api.identify(|identity| identity.refresh += 1).await;
    asked("\"2\"", 200).await;
    let own = api.send(&api.admin, Method::GET, www, None, &[("If-None-Match", "\"2\"")]).await;
    own.expect(304);
    let other = json!({"ttl": 600, "records": ["192.0.2.1"]});
    api.call(Method::PUT, www, other).await.expect(202);
    asked("\"3\"", 304).await;
}
