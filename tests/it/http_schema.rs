//! The description and the answers say the same: real answers are held against the schemas of the OpenAPI document.

use std::time::Duration;

use headwater::cli::sse::SseParser;
use headwater::history::hub;
use headwater::http::router::document;
use headwater::operation;
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{TestApi, eventually, schema};

const ZONE: &str = "/api/domains/example.test";

pub fn described() -> Value {
    serde_json::from_str(document().unwrap().text()).unwrap()
}

/// Holds an answer against what the document says of its operation.
pub fn hold(document: &Value, method: &str, path: &str, status: u16, value: &Value) {
    let answers = &document["paths"][path][method]["responses"];
    let answer = answers.get(status.to_string()).unwrap_or_else(|| panic!("{method} {path}: no {status}"));
    let found = schema::differences(document, &answer["content"]["application/json"]["schema"], value);
    assert!(found.is_empty(), "{method} {path}:\n{}\n{value}", found.join("\n"));
}

/// An API whose history is followed, with events of several kinds, with and without notes and operations.
async fn lived() -> TestApi {
    let api = TestApi::start("").await;
    tokio::spawn(hub::run(api.app.clone()));
    tokio::spawn(operation::run(api.app.clone()));
    let tenant = json!({"name": "acme", "labels": {"a": "b"}});
    api.call(Method::POST, "/api/tenants", tenant).await.expect(201);
    let cluster = json!({"name": "c", "database_url_file": "/x", "dns": "192.0.2.1:53", "enabled": true});
    api.call(Method::POST, "/api/dns-clusters", cluster).await.expect(201);
    let domain = json!({"name": "example.test", "force_active": true, "labels": {"c": "d"}});
    api.call(Method::POST, "/api/domains", domain).await.expect(202);
    let www = json!({"ttl": 300, "records": ["192.0.2.1"], "comment": "x"});
    let path = format!("{ZONE}/rrsets/www/A");
    api.send(&api.admin, Method::PUT, &path, Some(&www), &[("change-note", "why")]).await.expect(202);
    api.call(Method::DELETE, &path, Value::Null).await.expect(202);
    api.call(Method::PATCH, ZONE, json!({"external_id": "7"})).await.expect(202);
    api
}

#[tokio::test]
async fn the_history_is_as_it_is_described() {
    let (api, document) = (lived().await, described());
    for (path, least) in [("/api/events", 10), ("/api/audit", 10)] {
        // What follows the log may be behind it.
        let read = || async { api.get(&format!("{path}?limit=1000")).await.expect(200).json() };
        let page = eventually(path, read, |page| page["items"].as_array().unwrap().len() >= least).await;
        hold(&document, "get", path, 200, &page);
    }
    // A page with a next one.
    hold(&document, "get", "/api/events", 200, &api.get("/api/events?limit=1").await.expect(200).json());
    let operations = api.get("/api/operations").await.expect(200).json();
    hold(&document, "get", "/api/operations", 200, &operations);
    let id = operations["items"][0]["id"].as_str().expect("an operation").to_owned();
    let one = api.get(&format!("/api/operations/{id}")).await.expect(200).json();
    hold(&document, "get", "/api/operations/{id}", 200, &one);
    let hops = api.get(&format!("/api/operations/{id}/timeline")).await.expect(200).json();
    hold(&document, "get", "/api/operations/{id}/timeline", 200, &hops);
    let revisions = api.get(&format!("{ZONE}/revisions")).await.expect(200).json();
    hold(&document, "get", "/api/domains/{d}/revisions", 200, &revisions);
}

#[tokio::test]
async fn events_of_the_stream_are_as_they_are_described() {
    let (api, document) = (lived().await, described());
    let head = api.head().await.get();
    let request = api.request(Method::GET, "/api/events/stream?after=0").bearer_auth(api.admin.expose());
    let mut answer = request.send().await.unwrap();
    assert_eq!(answer.status(), 200);
    let (mut parser, mut last) = (SseParser::default(), 0);
    while last < head {
        let piece = tokio::time::timeout(Duration::from_secs(30), answer.chunk()).await;
        let piece = piece.expect("the stream says nothing").unwrap().expect("the stream ended");
        for event in parser.feed(&piece) {
            let body: Value = serde_json::from_str(&event.data).unwrap();
            let found = schema::differences(&document, &json!({"$ref": "#/components/schemas/Event"}), &body);
            assert!(found.is_empty(), "{}\n{body}", found.join("\n"));
            assert_eq!(body["type"].as_str(), Some(event.event.as_str()));
            last = body["position"].as_i64().unwrap();
        }
    }
}

/// What a dry run says can be applied as it says, and then is exactly that or nothing.
#[tokio::test]
async fn a_dry_run_tells_how_to_apply_exactly_itself() {
    let (api, document) = (TestApi::start("").await, described());
    let plan = json!({"$ref": "#/components/schemas/DryRun"});
    let is_plan = |value: &Value| {
        let found = schema::differences(&document, &plan, value);
        assert!(found.is_empty(), "{}\n{value}", found.join("\n"));
    };
    let domain = json!({"name": "example.test", "force_active": true});
    let (www, other) =
        (json!({"ttl": 300, "records": ["192.0.2.1"]}), json!({"ttl": 300, "records": ["192.0.2.2"]}));
    let path = format!("{ZONE}/rrsets/www/A");
    let absent = [("if-none-match", "*")];
    for (method, path, body, meanwhile) in
        [(Method::POST, "/api/domains", &domain, &domain), (Method::PUT, path.as_str(), &www, &other)]
    {
        let told =
            api.call(method.clone(), &format!("{path}?dry_run=true"), body.clone()).await.expect(200).json();
        is_plan(&told);
        assert_eq!((&told["if_match"], &told["if_none_match"]), (&Value::Null, &json!("*")), "{told}");
        api.send(&api.admin, method.clone(), path, Some(meanwhile), &absent).await.expect(202);
        let late = api.send(&api.admin, method, path, Some(body), &absent).await;
        assert!([409, 412].contains(&late.status.as_u16()), "{late:?}");
    }
    let told = api.call(Method::PUT, &format!("{path}?dry_run=true"), www.clone()).await.expect(200).json();
    is_plan(&told);
    assert_eq!((&told["if_match"], &told["if_none_match"]), (&json!("\"2\""), &Value::Null), "{told}");
    let tag = [("if-match", told["if_match"].as_str().unwrap())];
    api.send(&api.admin, Method::PUT, &path, Some(&www), &tag).await.expect(202);
    api.send(&api.admin, Method::PUT, &path, Some(&other), &tag)
        .await
        .expect_problem(412, "revision_mismatch");
    let told =
        api.call(Method::POST, "/api/tenants?dry_run=true", json!({"name": "t"})).await.expect(200).json();
    is_plan(&told);
    assert_eq!((&told["if_match"], &told["if_none_match"]), (&Value::Null, &Value::Null), "{told}");
}

/// Warnings of zone cuts stand in the dry run and in the answer; a replay says them again.
#[tokio::test]
async fn what_a_zone_cut_hides_is_told() {
    let (api, document) = (TestApi::start("").await, described());
    api.call(Method::POST, "/api/domains", json!({"name": "example.test", "force_active": true}))
        .await
        .expect(202);
    let put = |at: &str, records: &[&str]| {
        let path = format!("{ZONE}/rrsets/{at}");
        (path, json!({"ttl": 300, "records": records}))
    };
    let (path, body) = put("host.team/A", &["192.0.2.1"]);
    let quiet = api.call(Method::PUT, &path, body).await.expect(202).json();
    assert_eq!(quiet.get("warnings"), None, "{quiet}");
    let (path, body) = put("team/NS", &["ns.team.example.test."]);
    let told = api.call(Method::PUT, &format!("{path}?dry_run=true"), body.clone()).await.expect(200).json();
    let begins = |told: &Value, text: &str| {
        let first = told["warnings"][0].as_str().unwrap_or_default();
        assert!(first.starts_with(text), "{told}");
        assert_eq!(told["warnings"].as_array().unwrap().len(), 1, "{told}");
    };
    begins(&told, "team NS makes a zone cut at team that hides what is there, such as host.team A");
    let key = uuid::Uuid::new_v4().to_string();
    for _ in 0..2 {
        let answer =
            api.send(&api.admin, Method::PUT, &path, Some(&body), &[("idempotency-key", &key)]).await;
        let answer = answer.expect(202).json();
        begins(&answer, "team NS makes a zone cut at team");
        hold(&document, "put", "/api/domains/{d}/rrsets/{name}/{type}", 202, &answer);
    }
    let (path, body) = put("ns.team/A", &["192.0.2.53"]);
    let glue = api.call(Method::PUT, &path, body).await.expect(202).json();
    assert_eq!(glue.get("warnings"), None, "{glue}");
    let changes = json!({"changes": [
        {"op": "add", "name": "a.b.team", "type": "TXT", "records": ["x"]},
        {"op": "put", "name": "www", "type": "A", "ttl": 300, "records": ["192.0.2.1"]}]});
    let batch = format!("{ZONE}/rrsets/batch");
    let told =
        api.call(Method::POST, &format!("{batch}?dry_run=true"), changes.clone()).await.expect(200).json();
    begins(&told, "a.b.team TXT lies below the zone cut at team");
    begins(&api.call(Method::POST, &batch, changes).await.expect(202).json(), "a.b.team TXT lies below");
}

/// Making a domain over one's own deleted one gives its restore up: both say so, and a stranger learns nothing.
#[tokio::test]
async fn a_restore_that_is_given_up_is_told() {
    let (api, document) = (TestApi::start("").await, described());
    let restore = format!("{ZONE}/restore");
    for active in [true, false] {
        let domain = json!({"name": "example.test", "force_active": active});
        let (status, removed) = if active { (202, 202) } else { (201, 200) };
        let made = api.call(Method::POST, "/api/domains", domain.clone()).await.expect(status).json();
        // The second round finds the deleted domains of the first.
        assert_eq!(made.get("warnings").is_some(), !active, "{made}");
        hold(&document, "post", "/api/domains", status, &made);
        api.call(Method::DELETE, ZONE, Value::Null).await.expect(removed);
        let plan =
            api.call(Method::POST, "/api/domains?dry_run=true", domain.clone()).await.expect(200).json();
        let anew = api.call(Method::POST, "/api/domains", domain).await.expect(status).json();
        hold(&document, "post", "/api/domains", status, &anew);
        for told in [plan, anew] {
            let warning = told["warnings"][0].as_str().unwrap_or_default();
            assert!(warning.starts_with("example.test was deleted and could be restored until "), "{told}");
        }
        let told = api.call(Method::POST, &restore, Value::Null).await.expect_problem(409, "replaced");
        let detail = told.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains("made anew") && detail.contains("cannot be restored"), "{detail}");
        // What is there now can itself be deleted and restored.
        api.call(Method::DELETE, ZONE, Value::Null).await.expect(removed);
        api.call(Method::POST, &restore, Value::Null).await.expect(removed);
        // Repeated it is nothing: the last deletion of the name is undone.
        let again = api.call(Method::POST, &restore, Value::Null).await.expect(200).json();
        assert_eq!(again["changed"], false, "{again}");
        api.call(Method::DELETE, ZONE, Value::Null).await.expect(removed);
    }
    api.call(Method::POST, "/api/domains", json!({"name": "other.test", "force_active": true}))
        .await
        .expect(202);
    let same =
        api.call(Method::POST, "/api/domains/other.test/restore", Value::Null).await.expect(200).json();
    assert_eq!(same["changed"], false);
}

/// Names of nothing get no records; confusables do, as the A-labels that show them.
#[tokio::test]
async fn owners_are_names_of_something() {
    let api = TestApi::start("").await;
    api.call(Method::POST, "/api/domains", json!({"name": "example.test", "force_active": true}))
        .await
        .expect(202);
    let body = json!({"ttl": 300, "records": ["192.0.2.1"]});
    for bad in ["xn--a", "xn--", "*.xn--a", "_sip.xn--zzzzzzzzzz99999.x", "xn--u-ccb"] {
        let path = format!("{ZONE}/rrsets/{bad}/A");
        let told = api.call(Method::PUT, &path, body.clone()).await.expect_problem(422, "invalid_name");
        assert_eq!(told.json()["errors"][0]["pointer"], "", "{bad}");
        // To be read and deleted it need only be looked for.
        api.get(&path).await.expect_problem(404, "not_found");
        api.call(Method::DELETE, &path, Value::Null).await.expect_problem(404, "not_found");
    }
    api.get("/api/domains/xn--a.test").await.expect_problem(404, "not_found");
    for (shown, stored) in [
        ("b%C3%BCcher", "xn--bcher-kva"),
        ("p%D0%B0ypal", "xn--pypal-4ve"),
        ("_dmarc", "_dmarc"),
        ("XN--BCHER-KVA", "xn--bcher-kva"),
    ] {
        let path = format!("{ZONE}/rrsets/{shown}/A");
        let status = api.call(Method::PUT, &path, body.clone()).await.status.as_u16();
        assert!([200, 202].contains(&status), "{shown}: {status}");
        assert_eq!(api.get(&path).await.expect(200).json()["name"], stored);
    }
}
