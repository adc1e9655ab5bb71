//! Hostnames, the cache and purges through the API.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::TestApi;

const ZONE: &str = "/api/domains/example.test";

async fn with_zone(config: &str) -> TestApi {
    let api = TestApi::start(config).await;
    let new = json!({"name": "example.test", "force_active": true});
    api.call(Method::POST, "/api/domains", new).await.expect(202);
    api
}

fn origin(host: &str) -> Value {
    json!({"origin": {"scheme": "http", "host": host, "port": 80, "host_header": "www.example.test"}, "backup": null})
}

#[tokio::test]
async fn a_hostname_goes_in_and_comes_back() {
    let api = with_zone("").await;
    let path = format!("{ZONE}/hostnames/www");
    api.get(&path).await.expect_problem(404, "not_found");
    let headers = [("Change-Note", "on the edge"), ("If-None-Match", "*")];
    let body = origin("origin.example.org");
    let put = api.send(&api.admin, Method::PUT, &path, Some(&body), &headers).await.expect(202);
    assert_eq!((&put.json()["changed"], &put.json()["revision"]), (&json!(true), &json!(2)));
    assert_eq!(put.header("etag"), "\"2\"");
    let operation = api.get(put.header("location")).await.expect(200).json();
    assert_eq!((&operation["kind"], &operation["state"]), (&json!("domain.hostname"), &json!("pending")));

    let got = api.get(&path).await.expect(200);
    let shown = got.json();
    assert_eq!(got.header("etag"), "\"2\"");
    assert_eq!((&shown["name"], &shown["changed"]["note"]), (&json!("www"), &json!("on the edge")));
    assert_eq!(shown["origin"]["connect_timeout_ms"], 3_000);
    assert_eq!((&shown["backup"], &shown["origin"]["sni"]), (&Value::Null, &Value::Null));
    let fresh = [("If-None-Match", "\"2\"")];
    api.send(&api.admin, Method::GET, &path, None, &fresh).await.expect(304);
    let revision = api.get(&format!("{ZONE}/revisions/2")).await.expect(200).json();
    assert_eq!(revision["changes"][0]["path"], "/hostnames/www");
    assert_eq!(revision["changes"][0]["after"]["origin"]["host"], "origin.example.org");

    // The same again is nothing; the tag is the hostname's own, though the domain has moved on.
    let head = api.head().await;
    let again = api.call(Method::PUT, &path, body.clone()).await.expect(200);
    assert_eq!(again.json(), json!({"changed": false, "revision": 2, "operation": null}));
    assert_eq!(api.head().await, head);
    api.call(Method::PUT, &format!("{ZONE}/rrsets/x/A"), json!({"ttl": 60, "records": ["192.0.2.1"]}))
        .await
        .expect(202);
    let other = origin("other.example.org");
    for (name, value) in [("If-Match", "\"3\""), ("If-None-Match", "*")] {
        let refused = api.send(&api.admin, Method::PUT, &path, Some(&other), &[(name, value)]).await;
        refused.expect_problem(412, "revision_mismatch");
    }
    let plan = api.call(Method::PUT, &format!("{path}?dry_run=true"), other.clone()).await.expect(200).json();
    assert_eq!((&plan["changed"], &plan["if_match"]), (&json!(true), &json!("\"2\"")));
    assert_eq!(plan["diff"][0]["before"]["origin"]["host"], "origin.example.org");
    let matched = [("If-Match", "\"2\"")];
    api.send(&api.admin, Method::PUT, &path, Some(&other), &matched).await.expect(202);

    // In pages, each once.
    for name in ["@", "a", "b.a", "*.c"] {
        api.call(Method::PUT, &format!("{ZONE}/hostnames/{name}"), origin("o.example.org")).await.expect(202);
    }
    let (mut seen, mut next) = (Vec::new(), format!("{ZONE}/hostnames?limit=2"));
    loop {
        let page = api.get(&next).await.expect(200).json();
        seen.extend(
            page["items"].as_array().unwrap().iter().map(|item| item["name"].as_str().unwrap().to_owned()),
        );
        let Some(cursor) = page["next"].as_str() else { break };
        next = format!("{ZONE}/hostnames?limit=2&cursor={cursor}");
    }
    assert_eq!(seen, ["@", "a", "b.a", "*.c", "www"]);
    api.call(Method::DELETE, &path, Value::Null).await.expect(202);
    api.call(Method::DELETE, &path, Value::Null).await.expect_problem(404, "not_found");
}

#[tokio::test]
async fn what_stands_beside_and_above_a_hostname_is_judged_both_ways() {
    let api = with_zone("").await;
    let rrset = |name: &str, ty: &str, value: &str| {
        let (path, body) = (format!("{ZONE}/rrsets/{name}/{ty}"), json!({"ttl": 60, "records": [value]}));
        (path, body)
    };
    for (name, ty, value) in [("a", "A", "192.0.2.1"), ("cut", "NS", "ns.example.net.")] {
        let (path, body) = rrset(name, ty, value);
        api.call(Method::PUT, &path, body).await.expect(202);
    }
    let host = |name: &str| format!("{ZONE}/hostnames/{name}");
    let body = || origin("origin.example.org");
    api.call(Method::PUT, &host("a"), body()).await.expect_problem(409, "rrset_conflict");
    api.call(Method::PUT, &host("x.cut"), body()).await.expect_problem(409, "below_zone_cut");
    // A domain that proxies nothing yet is judged by what the same batch puts.
    api.call(Method::PUT, &host("deep.sub"), body()).await.expect(202);
    api.call(Method::PUT, &host("self"), origin("deep.sub.example.test"))
        .await
        .expect_problem(422, "origin_loop");
    let (path, cut) = rrset("sub", "NS", "ns.example.net.");
    let refused = api.call(Method::PUT, &path, cut).await.expect_problem(422, "hostname_conflict").json();
    assert_eq!(refused["errors"][0]["code"], "hostname_conflict");
    let (path, address) = rrset("deep.sub", "A", "192.0.2.1");
    api.call(Method::PUT, &path, address.clone()).await.expect_problem(422, "hostname_conflict");
    // A CNAME answers for it: nothing at all can stand beside that. Beside a proxied apex it can.
    let (text, note) = rrset("deep.sub", "TXT", "\"hidden\"");
    api.call(Method::PUT, &text, note.clone()).await.expect_problem(422, "hostname_conflict");
    api.call(Method::PUT, &host("@"), body()).await.expect(202);
    let (apex, fine) = rrset("@", "TXT", "\"fine\"");
    api.call(Method::PUT, &apex, fine).await.expect(202);
    api.call(Method::DELETE, &host("deep.sub"), Value::Null).await.expect(202);
    api.call(Method::PUT, &text, note).await.expect(202);
    api.call(Method::PUT, &host("deep.sub"), body()).await.expect_problem(409, "rrset_conflict");
    api.call(Method::PUT, &path, address).await.expect(202);

    // Two at once: only one of them can be.
    let (path, address) = rrset("race", "A", "192.0.2.1");
    let race = host("race");
    let (one, two) =
        tokio::join!(api.call(Method::PUT, &path, address), api.call(Method::PUT, &race, body()));
    let statuses = (one.status.as_u16(), two.status.as_u16());
    assert!(matches!(statuses, (202, 409) | (422, 202)), "{statuses:?}");
}

#[tokio::test]
async fn every_fault_of_a_hostname_is_told_at_once() {
    let api =
        with_zone("[sites]\norigin_allow_private = [\"10.1.0.0/16\"]\nplatform_networks = [\"1.1.1.1\"]")
            .await;
    let path = format!("{ZONE}/hostnames/www");
    let faulty = json!({
        "origin": {"scheme": "gopher", "host": "::ffff:127.0.0.1", "port": "80", "retries": 3, "color": "red"},
        "backup": {"origin": {"scheme": "https", "host": "10.2.0.1"}, "failure_threshold": 0},
        "health": {"path": "x y"}, "extra": 1});
    let told = api.call(Method::PUT, &path, faulty).await.expect_problem(422, "invalid").json();
    let mut pointers: Vec<String> = told["errors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|e| e["pointer"].as_str().unwrap().to_owned())
        .collect();
    pointers.sort();
    let expected = [
        "/backup/failure_threshold",
        "/backup/origin/host",
        "/backup/origin/sni",
        "/extra",
        "/health/path",
        "/origin/color",
        "/origin/host",
        "/origin/port",
        "/origin/retries",
        "/origin/scheme",
    ];
    assert_eq!(pointers, expected);
    let missing = api.call(Method::PUT, &path, json!({})).await.expect_problem(422, "missing").json();
    assert_eq!(missing["errors"].as_array().unwrap().len(), 2, "scheme and host: {missing}");
    for (host, status) in
        [("10.1.0.1", 202), ("10.2.0.1", 422), ("1.1.1.1", 422), ("127.0.0.1", 422), ("8.8.8.8", 202)]
    {
        api.call(Method::PUT, &path, origin(host)).await.expect(status);
    }
    let unsafe_api = with_zone("[sites]\nunsafe_allow_loopback_origins = true").await;
    unsafe_api.call(Method::PUT, &path, origin("127.0.0.1")).await.expect(202);
    unsafe_api.call(Method::PUT, &path, origin("169.254.169.254")).await.expect(422);
}

#[tokio::test]
async fn the_cache_is_patched_and_purged() {
    let api = with_zone("").await;
    let path = format!("{ZONE}/cache");
    let got = api.get(&path).await.expect(200);
    assert_eq!((got.header("etag"), &got.json()["edge_ttl_seconds"]), ("\"1\"", &json!(3_600)));
    let patched = api.call(Method::PATCH, &path, json!({"edge_ttl_seconds": 600})).await.expect(202);
    assert_eq!(patched.json()["revision"], 2);
    let got = api.get(&path).await.expect(200);
    assert_eq!((got.header("etag"), &got.json()["edge_ttl_seconds"]), ("\"2\"", &json!(600)));
    api.call(Method::PATCH, &path, json!({"edge_ttl_seconds": 600, "enabled": true})).await.expect(200);
    let refused = [("If-Match", "\"1\"")];
    let body = json!({"enabled": false});
    api.send(&api.admin, Method::PATCH, &path, Some(&body), &refused)
        .await
        .expect_problem(412, "revision_mismatch");
    api.call(Method::PATCH, &path, json!({"edge_ttl_seconds": null})).await.expect(202);
    assert_eq!(api.get(&path).await.json()["edge_ttl_seconds"], 3_600);
    for field in ["query_policy", "mode", "development_mode", "maximum_variants"] {
        let told = api
            .call(Method::PATCH, &path, json!({field: null}))
            .await
            .expect_problem(422, "unsupported")
            .json();
        assert_eq!(
            told["errors"][0],
            json!({"pointer": format!("/{field}"), "code": "unsupported",
            "detail": format!("{field} is not supported yet")})
        );
    }
    api.call(Method::PATCH, &path, json!({"edge_ttl_seconds": 31_536_001}))
        .await
        .expect_problem(422, "out_of_range");
    api.call(Method::PATCH, &path, json!({"edge_ttl_seconds": "1"}))
        .await
        .expect_problem(422, "invalid_type");

    // A purge is a fact with an id; repeated with its key it is the same one.
    let purges = format!("{ZONE}/purges");
    let key = uuid::Uuid::now_v7().to_string();
    let headers = [("Idempotency-Key", key.as_str())];
    let all = json!({"type": "all"});
    let first = api.send(&api.admin, Method::POST, &purges, Some(&all), &headers).await.expect(202);
    api.call(Method::POST, &purges, all.clone()).await.expect(202);
    let again = api.send(&api.admin, Method::POST, &purges, Some(&all), &headers).await.expect(202);
    assert_eq!(again.header("idempotency-replayed"), "true");
    let purge = first.json()["purge"].clone();
    assert_eq!((&purge["epoch"], &again.json()["purge"]["id"]), (&json!(1), &purge["id"]));
    let one = api.get(&format!("{purges}/{}", purge["id"].as_str().unwrap())).await.expect(200).json();
    assert_eq!((&one["state"], &one["operation"]), (&json!("pending"), &first.json()["operation"]["id"]));
    assert_eq!(api.get(&path).await.json()["epoch"], 2);
    api.call(Method::POST, &format!("{purges}?dry_run=true"), all.clone()).await.expect(200);
    api.call(Method::POST, &purges, json!({"type": "urls", "urls": []}))
        .await
        .expect_problem(422, "unsupported");
    api.call(Method::POST, &purges, json!({})).await.expect_problem(422, "missing");
    for _ in 2..100 {
        api.call(Method::POST, &purges, all.clone()).await.expect(202);
    }
    api.call(Method::POST, &purges, all).await.expect_problem(409, "too_many_purges");
    let list = api.get(&format!("{purges}?limit=3")).await.expect(200).json();
    let epochs: Vec<&Value> = list["items"].as_array().unwrap().iter().map(|item| &item["epoch"]).collect();
    assert_eq!(epochs, [100, 99, 98]);
}
