//! A certificate through the API: brought, shown, replaced, taken away; and what is said to whoever does it wrong.

use headwater::vault;
use reqwest::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::mint::{Ca, Leaf};
use crate::support::TestApi;

const ZONE: &str = "/api/domains/example.test";
const TLS: &str = "/api/domains/example.test/tls";
const CUSTOM: &str = "/api/domains/example.test/tls/custom-certificate";

/// An API that can seal, with a domain.
pub async fn with_zone() -> (TestApi, TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let key_file = dir.path().join("secret-key");
    assert!(vault::make(&key_file).unwrap());
    let api = TestApi::start(&format!("[secrets]\nkey_file = {key_file:?}\n")).await;
    let new = json!({"name": "example.test", "force_active": true});
    api.call(Method::POST, "/api/domains", new).await.expect(202);
    (api, dir)
}

async fn proxy(api: &TestApi, name: &str) -> Value {
    let origin = json!({"origin": {"scheme": "http", "host": "origin.example.org"}});
    api.call(Method::PUT, &format!("{ZONE}/hostnames/{name}"), origin).await.expect(202).json()
}

fn issuer() -> (Ca, String) {
    let issuer = Ca::root("Root").below("Issuer");
    let chain = issuer.pem.clone();
    (issuer, chain)
}

async fn bring(api: &TestApi, leaf: &Leaf, chain: &str) -> Value {
    api.call(Method::PUT, CUSTOM, leaf.body(Some(chain))).await.expect(202).json()
}

#[tokio::test]
async fn a_certificate_goes_in_and_comes_back_without_its_key() {
    let (api, _dir) = with_zone().await;
    proxy(&api, "www").await;
    assert_eq!(api.get(TLS).await.expect(200).json(), json!({"certificate": null}));
    let (issuer, chain) = issuer();
    let leaf = issuer.leaf(&["WWW.example.test", "other.test"]);
    let dry = format!("{CUSTOM}?dry_run=true");
    let plan = api.call(Method::PUT, &dry, leaf.body(Some(&chain))).await.expect(200).json();
    assert_eq!((&plan["changed"], &plan["if_none_match"]), (&json!(true), &json!("*")));
    assert_eq!(api.get(TLS).await.json(), json!({"certificate": null}), "a dry run writes nothing");

    let headers = [("If-None-Match", "*"), ("Change-Note", "at last")];
    let put = api.send(&api.admin, Method::PUT, CUSTOM, Some(&leaf.body(Some(&chain))), &headers).await;
    let put = put.expect(202);
    assert_eq!((put.header("etag"), put.json().get("warnings")), ("\"3\"", None));
    let operation = api.get(put.header("location")).await.expect(200).json();
    assert_eq!((&operation["kind"], &operation["revision"]), (&json!("domain.certificate"), &json!(3)));

    let got = api.get(TLS).await.expect(200);
    let shown = got.json()["certificate"].clone();
    assert_eq!(got.header("etag"), "\"3\"");
    assert_eq!(shown["names"], json!(["other.test", "www.example.test"]));
    assert_eq!((&shown["source"], &shown["version"]), (&json!("custom"), &json!(1)));
    assert_eq!((&shown["issuer"], &shown["key"]), (&json!("CN=Issuer"), &json!("p-256")));
    assert_eq!(shown["not_before"], "2020-01-01T00:00:00.000Z");
    assert_eq!(shown["chain_pem"], json!(format!("{}{chain}", leaf.pem).replace("\r\n", "\n")));
    assert_eq!(shown["fingerprint"].as_str().unwrap().len(), 64);
    assert_eq!(shown["changed"]["note"], "at last");
    api.send(&api.admin, Method::GET, TLS, None, &[("If-None-Match", "\"3\"")]).await.expect(304);

    let again = api.call(Method::PUT, CUSTOM, leaf.body(Some(&chain))).await.expect(200).json();
    assert_eq!((&again["changed"], &again["revision"]), (&json!(false), &json!(3)));
    let next = issuer.leaf(&["www.example.test"]);
    let stale = [("If-Match", "\"2\"")];
    let body = next.body(Some(&chain));
    let refused = api.send(&api.admin, Method::PUT, CUSTOM, Some(&body), &stale).await;
    refused.expect_problem(412, "revision_mismatch");
    let current = [("If-Match", "\"3\"")];
    api.send(&api.admin, Method::PUT, CUSTOM, Some(&body), &current).await.expect(202);
    let replaced = api.get(TLS).await.json()["certificate"].clone();
    assert_eq!((&replaced["id"], &replaced["version"]), (&shown["id"], &json!(2)));

    let deleted = api.call(Method::DELETE, CUSTOM, Value::Null).await.expect(202).json();
    assert!(deleted["warnings"][0].as_str().unwrap().contains("TLS is refused"), "{deleted}");
    api.call(Method::DELETE, CUSTOM, Value::Null).await.expect_problem(404, "not_found");
    let third = bring(&api, &next, &chain).await;
    let fresh = api.get(TLS).await.json()["certificate"].clone();
    assert_eq!((&fresh["version"], fresh["id"] == shown["id"]), (&json!(1), false), "{third}");
    let revision = api.get(&format!("{ZONE}/revisions/4")).await.expect(200).json();
    let change = &revision["changes"][0];
    assert_eq!((&change["path"], &change["after"]["version"]), (&json!("/tls/certificate"), &json!(2)));
    assert_eq!(change["before"]["fingerprint"], shown["fingerprint"]);
}

#[tokio::test]
async fn names_are_covered_when_it_comes_and_warned_of_afterwards() {
    let (api, _dir) = with_zone().await;
    for name in ["www", "shop", "@"] {
        proxy(&api, name).await;
    }
    let (issuer, chain) = issuer();
    let narrow = issuer.leaf(&["www.example.test"]);
    let told = api.call(Method::PUT, CUSTOM, narrow.body(Some(&chain))).await;
    let told = told.expect_problem(422, "name_not_covered").json();
    let names: Vec<&str> =
        told["errors"].as_array().unwrap().iter().map(|fault| fault["detail"].as_str().unwrap()).collect();
    assert!(names[0].starts_with("example.test ") && names[1].starts_with("shop.example.test "), "{names:?}");
    // With other faults, all at once, and those of the body's form too.
    let other = issuer.leaf(&["www.example.test"]).key;
    let mixed = json!({"certificate_pem": narrow.pem, "chain_pem": chain, "private_key_pem": other});
    let told = api.call(Method::PUT, CUSTOM, mixed).await.expect_problem(422, "invalid").json();
    let codes: Vec<&str> =
        told["errors"].as_array().unwrap().iter().map(|fault| fault["code"].as_str().unwrap()).collect();
    assert_eq!(codes, ["key_mismatch", "name_not_covered", "name_not_covered"]);
    let told = api.call(Method::PUT, CUSTOM, json!({"chain_pem": 1, "pem": "x"})).await;
    let told = told.expect_problem(422, "invalid").json();
    assert_eq!(told["errors"].as_array().unwrap().len(), 4, "{told}");
    assert_eq!(api.get(TLS).await.json(), json!({"certificate": null}));

    bring(&api, &issuer.leaf(&["example.test", "*.example.test"]), &chain).await;
    let uncovered = |answer: &Value| {
        let all = answer["warnings"].as_array().into_iter().flatten();
        all.filter(|warning| warning.as_str().unwrap().contains("http alone")).cloned().collect::<Vec<_>>()
    };
    assert_eq!(uncovered(&proxy(&api, "new").await), [] as [Value; 0]);
    let warned = uncovered(&proxy(&api, "a.deep").await);
    assert!(warned.len() == 1 && warned[0].as_str().unwrap().contains("a.deep.example.test"), "{warned:?}");
    // From then on the next certificate is to be for that name too.
    let same = issuer.leaf(&["example.test", "*.example.test"]);
    api.call(Method::PUT, CUSTOM, same.body(Some(&chain))).await.expect_problem(422, "name_not_covered");
}

#[tokio::test]
async fn a_repetition_is_the_same_answer_and_its_receipt_holds_no_key() {
    let (api, _dir) = with_zone().await;
    let (issuer, chain) = issuer();
    let (leaf, other) = (issuer.leaf(&["example.test"]), issuer.leaf(&["example.test"]));
    let key = uuid::Uuid::now_v7().to_string();
    let headers = [("Idempotency-Key", key.as_str())];
    let body = leaf.body(Some(&chain));
    let put = |body: Value| {
        let api = &api;
        async move { api.send(&api.admin, Method::PUT, CUSTOM, Some(&body), &headers).await }
    };
    let first = put(body.clone()).await.expect(202);
    let again = put(body).await.expect(202);
    assert_eq!((again.header("idempotency-replayed"), again.json()), ("true", first.json()));
    put(other.body(Some(&chain))).await.expect_problem(409, "idempotency_conflict");
    assert_eq!(api.get(TLS).await.json()["certificate"]["version"], 1);
    let stored: Vec<String> =
        sqlx::query_scalar("select r::text from receipts r").fetch_all(&api.app.pool).await.unwrap();
    assert!(stored.len() == 1 && !stored[0].contains("BEGIN"), "{stored:?}");
}

#[tokio::test]
async fn those_who_come_at_once_follow_each_other() {
    let (api, _dir) = with_zone().await;
    let (issuer, chain) = issuer();
    let bodies: Vec<Value> = (0..4).map(|_| issuer.leaf(&["example.test"]).body(Some(&chain))).collect();
    let all = bodies.into_iter().map(|body| api.call(Method::PUT, CUSTOM, body));
    for answer in futures_util::future::join_all(all).await {
        answer.expect(202);
    }
    assert_eq!(api.get(TLS).await.json()["certificate"]["version"], 4);
    let versions: Vec<i32> = sqlx::query_scalar(
        "select version from sealed_secrets where kind = 'certificate_key' order by version",
    )
    .fetch_all(&api.app.pool)
    .await
    .unwrap();
    assert_eq!(versions, [1, 2, 3, 4], "each has its key");
}

#[tokio::test]
async fn without_the_key_file_it_is_said_what_to_do() {
    let api = TestApi::start("[secrets]\nkey_file = \"/nowhere/secret-key\"\n").await;
    let new = json!({"name": "example.test", "force_active": true});
    api.call(Method::POST, "/api/domains", new).await.expect(202);
    let (issuer, chain) = issuer();
    for path in [CUSTOM.to_owned(), format!("{CUSTOM}?dry_run=true")] {
        let answer = api.call(Method::PUT, &path, issuer.leaf(&["example.test"]).body(Some(&chain))).await;
        let answer = answer.expect_problem(503, "unavailable");
        assert!(answer.text.contains("headwater init"), "{answer:?}");
    }
    assert_eq!(api.get(TLS).await.expect(200).json(), json!({"certificate": null}));
}

#[tokio::test]
async fn a_body_beyond_its_bound_is_refused_whole() {
    let (api, _dir) = with_zone().await;
    let body = json!({"certificate_pem": "x".repeat(200 << 10), "private_key_pem": "y"});
    api.call(Method::PUT, CUSTOM, body).await.expect_problem(413, "too_large");
}
