//! Tokens that are limited: to verbs, to domains, to records by owner and type.

use headwater::secret::Secret;
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Answer, TestApi};

const ZONE: &str = "/api/domains/example.test";

async fn api() -> (TestApi, Secret) {
    let api = TestApi::start("").await;
    let tenant = api.tenant("ours").await;
    let (_, owner) = api.user("ann@example.test", false, &[tenant]).await;
    for name in ["example.test", "other.test"] {
        let new = json!({"name": name, "tenant": tenant, "force_active": true});
        api.call(Method::POST, "/api/domains", new).await.expect(202);
    }
    let www = json!({"ttl": 60, "records": ["192.0.2.1"]});
    api.call(Method::PUT, &format!("{ZONE}/rrsets/www/A"), www).await.expect(202);
    (api, owner)
}

async fn make(api: &TestApi, by: &Secret, scopes: Value) -> Answer {
    let body = json!({"name": "limited", "scopes": scopes});
    api.send(by, Method::POST, "/api/me/tokens", Some(&body), &[]).await
}

fn secret(made: &Answer) -> Secret {
    Secret::new(made.json()["token"].as_str().unwrap().to_owned())
}

#[tokio::test]
async fn a_challenge_token_writes_its_record_and_nothing_else() {
    let (api, owner) = api().await;
    let scopes = json!([{"verbs": ["read", "write"], "domains": ["example.test"], "names": ["_acme-challenge"], "types": ["txt"]}]);
    let made = make(&api, &owner, scopes).await.expect(201);
    assert_eq!(made.json()["scopes"][0]["types"], json!(["TXT"]));
    let token = secret(&made);
    let ask = |method: Method, path: &str, body: Value| {
        let (api, token, path) = (&api, &token, path.to_owned());
        async move {
            let body = (!body.is_null()).then_some(body);
            api.send(token, method, &path, body.as_ref(), &[]).await
        }
    };
    let text = |value: &str| json!({"ttl": 60, "records": [format!("\"{value}\"")]});
    let own = format!("{ZONE}/rrsets/_acme-challenge/TXT");
    let put = ask(Method::PUT, &own, text("a")).await.expect(202).json();
    let operation = put["operation"]["id"].as_str().unwrap().to_owned();
    ask(Method::GET, &own, Value::Null).await.expect(200);
    let address = || json!({"ttl": 60, "records": ["192.0.2.9"]});
    ask(Method::PUT, &format!("{ZONE}/rrsets/www/A"), address()).await.expect_problem(403, "forbidden");
    ask(Method::PUT, &format!("{ZONE}/rrsets/_acme-challenge/A"), address()).await.expect(403);
    ask(Method::PUT, &format!("{ZONE}/rrsets/www/TXT"), text("a")).await.expect(403);
    ask(Method::DELETE, &format!("{ZONE}/rrsets/www/A"), Value::Null).await.expect(403);
    ask(Method::PUT, "/api/domains/other.test/rrsets/_acme-challenge/TXT", text("a")).await.expect(404);
    ask(Method::PUT, "/api/domains/none.test/rrsets/_acme-challenge/TXT", text("a")).await.expect(404);
    // A batch is all or nothing, and the refusal names what is not its own.
    let change = |name: &str, rrtype: &str, value: &str| json!({"op": "put", "name": name, "type": rrtype, "ttl": 60, "records": [value]});
    let batch = format!("{ZONE}/rrsets/batch");
    let mixed =
        json!({"changes": [change("_acme-challenge", "TXT", "\"b\""), change("www", "A", "192.0.2.9")]});
    let head = api.head().await;
    let refused = ask(Method::POST, &batch, mixed).await.expect_problem(403, "forbidden");
    assert!(refused.text.contains("www A") && !refused.text.contains("_acme-challenge"), "{refused:?}");
    assert_eq!(api.head().await, head);
    let fine = json!({"changes": [change("_acme-challenge", "TXT", "\"b\"")]});
    ask(Method::POST, &batch, fine).await.expect(202);
    // A dry run is judged the same.
    ask(Method::PUT, &format!("{ZONE}/rrsets/www/A?dry_run=true"), address()).await.expect(403);
    // Lists show what it may read, and nothing of the rest.
    let list = ask(Method::GET, &format!("{ZONE}/rrsets"), Value::Null).await.expect(200).json();
    assert_eq!(list["items"].as_array().unwrap().len(), 1, "{list}");
    assert_eq!((&list["items"][0]["name"], &list["next"]), (&json!("_acme-challenge"), &Value::Null));
    let zone = ask(Method::GET, &format!("{ZONE}/zone"), Value::Null).await.expect(200).text;
    assert_eq!(zone.lines().count(), 2, "{zone}");
    let domains = ask(Method::GET, "/api/domains", Value::Null).await.expect(200).json();
    assert_eq!(domains["items"].as_array().unwrap().len(), 1, "{domains}");
    for path in ["/api/events?limit=1000", "/api/audit"] {
        assert_eq!(
            ask(Method::GET, path, Value::Null).await.expect(200).json()["items"],
            json!([]),
            "{path}"
        );
    }
    for path in ["/hostnames", "/cache", "/revisions", "/tls", "/members"] {
        ask(Method::GET, &format!("{ZONE}{path}"), Value::Null).await.expect(403);
    }
    ask(Method::GET, "/api/me", Value::Null).await.expect(403);
    let new = json!({"name": "more.example.com"});
    ask(Method::POST, "/api/domains", new).await.expect(403);
    // What it started it may follow; the others' it may not.
    tokio::spawn(headwater::operation::run(api.app.clone()));
    let seen = || ask(Method::GET, &format!("/api/operations/{operation}"), Value::Null);
    crate::support::eventually("its operation is there", seen, |answer| answer.status == 200).await;
    ask(Method::DELETE, &own, Value::Null).await.expect(202);
}

#[tokio::test]
async fn every_fault_of_scopes_is_told_at_once() {
    let (api, owner) = api().await;
    let scopes = json!([
        {"verbs": ["read", "fly"], "domains": ["example.test", "a..b"], "names": ["a.*.b", "www"], "types": ["TXT", "NOPE"]},
        {"domains": [], "verbs": "read", "more": 1},
        7
    ]);
    let head = api.head().await;
    let answer = make(&api, &owner, scopes).await.expect(422);
    let told: Vec<String> = answer.json()["errors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|fault| fault["pointer"].as_str().unwrap().to_owned())
        .collect();
    for pointer in [
        "/scopes/0/verbs/1",
        "/scopes/0/domains/1",
        "/scopes/0/names/0",
        "/scopes/0/types/1",
        "/scopes/1/domains",
        "/scopes/1/verbs",
        "/scopes/1/more",
        "/scopes/2",
    ] {
        assert!(told.iter().any(|one| one == pointer), "{pointer}: {told:?}");
    }
    make(&api, &owner, json!([])).await.expect_problem(422, "invalid_count");
    make(&api, &owner, json!({})).await.expect(422);
    assert_eq!(api.head().await, head);
}

#[tokio::test]
async fn a_limited_token_makes_none_that_exceeds_it() {
    let (api, owner) = api().await;
    let wide = json!([{"verbs": ["read", "admin"], "domains": ["*"]}]);
    let token = secret(&make(&api, &owner, wide.clone()).await.expect(201));
    make(&api, &token, json!([{"verbs": ["read"], "domains": ["example.test"]}])).await.expect(201);
    make(&api, &token, wide).await.expect(201);
    for beyond in [
        json!([{"verbs": ["write"], "domains": ["example.test"]}]),
        json!([{"verbs": ["read"], "domains": ["*"]}, {"verbs": ["read", "write"], "domains": ["*"]}]),
    ] {
        make(&api, &token, beyond).await.expect_problem(422, "exceeds_caller");
    }
    let unlimited = json!({"name": "x"});
    let asked = api.send(&token, Method::POST, "/api/me/tokens", Some(&unlimited), &[]).await;
    asked.expect_problem(422, "exceeds_caller");
    // Verbs alone: one that reads writes nothing.
    let www = json!({"ttl": 60, "records": ["192.0.2.9"]});
    let path = format!("{ZONE}/rrsets/www/A");
    api.send(&token, Method::GET, &path, None, &[]).await.expect(200);
    api.send(&token, Method::PUT, &path, Some(&www), &[]).await.expect_problem(403, "forbidden");
    // Scopes are listed, and stand in the log.
    let listed = api.send(&owner, Method::GET, "/api/me/tokens", None, &[]).await.expect(200).json();
    assert_eq!(listed["items"][1]["scopes"], json!([{"verbs": ["read", "admin"], "domains": ["*"]}]));
    assert_eq!(listed["items"][0]["scopes"], Value::Null);
}
