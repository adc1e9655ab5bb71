//! Who may do what: every route without a token, every route as a stranger, revocation, rates, and what a process says
//! of itself.

use std::collections::BTreeSet;

use headwater::http::router::document;
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Answer, TestApi, eventually};

pub type Row = (&'static str, &'static str, Value, u16);

/// The part of [`matrix`] that is about members of a domain, zone files, what edges serve, and finding out and putting right.
fn sites() -> Vec<Row> {
    vec![
        ("get", "/api/rrsets", Value::Null, 200),
        ("get", "/api/explain?name=www.example.test&type=A", Value::Null, 404),
        ("post", "/api/dns-clusters/{id}/reconcile", Value::Null, 403),
        ("post", "/api/domains/{d}/verify", Value::Null, 404),
        ("post", "/api/domains/{d}/activate", Value::Null, 403),
        ("post", "/api/domains/{d}/disable", Value::Null, 404),
        ("post", "/api/domains/{d}/enable", Value::Null, 404),
        ("get", "/api/domains/{d}/members", Value::Null, 404),
        ("get", "/api/domains/{d}/members/{user}", Value::Null, 404),
        ("put", "/api/domains/{d}/members/{user}", json!({"role": "viewer"}), 404),
        ("delete", "/api/domains/{d}/members/{user}", Value::Null, 404),
        ("post", "/api/domains/{d}/zone?mode=merge", Value::Null, 404),
        ("get", "/api/domains/{d}/hostnames", Value::Null, 404),
        ("get", "/api/domains/{d}/hostnames/{name}", Value::Null, 404),
        (
            "put",
            "/api/domains/{d}/hostnames/{name}",
            json!({"origin": {"scheme": "http", "host": "8.8.8.8"}}),
            404,
        ),
        ("delete", "/api/domains/{d}/hostnames/{name}", Value::Null, 404),
        ("get", "/api/domains/{d}/cache", Value::Null, 404),
        ("patch", "/api/domains/{d}/cache", json!({"enabled": false}), 404),
        ("get", "/api/domains/{d}/purges", Value::Null, 404),
        ("post", "/api/domains/{d}/purges", json!({"type": "all"}), 404),
        ("get", "/api/domains/{d}/purges/{id}", Value::Null, 404),
        ("get", "/api/domains/{d}/tls", Value::Null, 404),
        (
            "put",
            "/api/domains/{d}/tls/custom-certificate",
            json!({"certificate_pem": "", "private_key_pem": ""}),
            404,
        ),
        ("delete", "/api/domains/{d}/tls/custom-certificate", Value::Null, 404),
    ]
}

/// Every route as a user of another tenant sees it: method, path, body, status. A route that is not here fails the test.
pub fn matrix() -> Vec<Row> {
    let rrset = || json!({"ttl": 1, "records": ["192.0.2.1"]});
    vec![
        ("get", "/api/domains", Value::Null, 200),
        ("post", "/api/domains", json!({"name": "stranger.example.com", "force_active": true}), 403),
        ("get", "/api/domains/{d}", Value::Null, 404),
        ("patch", "/api/domains/{d}", json!({"external_id": "1"}), 404),
        ("delete", "/api/domains/{d}", Value::Null, 404),
        ("post", "/api/domains/{d}/restore", Value::Null, 404),
        ("get", "/api/domains/{d}/status", Value::Null, 404),
        ("get", "/api/domains/{d}/rrsets", Value::Null, 404),
        ("get", "/api/domains/{d}/rrsets/{name}/{type}", Value::Null, 404),
        ("put", "/api/domains/{d}/rrsets/{name}/{type}", rrset(), 404),
        ("delete", "/api/domains/{d}/rrsets/{name}/{type}", Value::Null, 404),
        (
            "post",
            "/api/domains/{d}/rrsets/batch",
            json!({"changes": [{"op": "delete", "name": "www", "type": "A"}]}),
            404,
        ),
        ("get", "/api/domains/{d}/zone", Value::Null, 404),
        ("get", "/api/domains/{d}/revisions", Value::Null, 404),
        ("get", "/api/domains/{d}/revisions/{n}", Value::Null, 404),
        ("post", "/api/domains/{d}/rollback", json!({"revision": 1}), 404),
        ("get", "/api/domains/{d}/diff?from=1", Value::Null, 404),
        ("post", "/api/domains/{d}/undo", json!({"revision": 1}), 404),
        ("post", "/api/undo", json!({"token": "x"}), 422),
        ("get", "/api/domains/{d}/deployments", Value::Null, 404),
        ("get", "/api/deployments", Value::Null, 200),
        ("post", "/api/deployments/pause", json!({"scope": "all"}), 403),
        ("post", "/api/deployments/resume", json!({"scope": "all"}), 403),
        ("get", "/api/tenants", Value::Null, 403),
        ("post", "/api/tenants", json!({"name": "new"}), 403),
        ("get", "/api/tenants/{id}", Value::Null, 404),
        ("get", "/api/tenants/{id}/members", Value::Null, 404),
        ("get", "/api/tenants/{id}/members/{user}", Value::Null, 404),
        ("put", "/api/tenants/{id}/members/{user}", Value::Null, 404),
        ("delete", "/api/tenants/{id}/members/{user}", Value::Null, 404),
        ("get", "/api/me", Value::Null, 200),
        ("get", "/api/me/tokens", Value::Null, 200),
        ("post", "/api/me/tokens", json!({"name": ""}), 422),
        ("delete", "/api/me/tokens/{id}", Value::Null, 404),
        ("get", "/api/users", Value::Null, 403),
        ("post", "/api/users", json!({"email": "x@example.com"}), 403),
        ("get", "/api/users/{id}", Value::Null, 404),
        ("get", "/api/tokens", Value::Null, 403),
        ("delete", "/api/tokens/{id}", Value::Null, 404),
        ("post", "/api/deployments/{id}/adopt", Value::Null, 403),
        ("post", "/api/deployments/{id}/discard", Value::Null, 403),
        ("get", "/api/status", Value::Null, 403),
        ("get", "/api/projections", Value::Null, 403),
        ("post", "/api/projections/{name}/rebuild", Value::Null, 403),
        ("post", "/api/projections/{name}/verify", Value::Null, 403),
        ("get", "/api/events", Value::Null, 200),
        // Without the wrong position these two would be answered without end.
        ("get", "/api/events/stream?after=x", Value::Null, 400),
        ("get", "/events/stream?after=x", Value::Null, 400),
        ("get", "/api/audit", Value::Null, 200),
        ("get", "/api/audit/heads", Value::Null, 403),
        ("get", "/api/operations", Value::Null, 200),
        ("get", "/api/operations/{id}", Value::Null, 404),
        ("get", "/api/operations/{id}/timeline", Value::Null, 404),
        ("get", "/api/operations/{id}/differences", Value::Null, 404),
        ("post", "/api/operations/{id}/retry", Value::Null, 404),
        ("post", "/api/operations/{id}/cancel", Value::Null, 404),
    ]
    .into_iter()
    .chain(clusters())
    .chain(sites())
    .chain(people())
    .chain(webhooks())
    .collect()
}

/// The same for DNS clusters.
fn clusters() -> Vec<Row> {
    let cluster = json!({"name": "c", "database_url_file": "/x", "dns": "192.0.2.1:53"});
    vec![
        ("get", "/api/dns-clusters", Value::Null, 403),
        ("post", "/api/dns-clusters", cluster, 403),
        ("get", "/api/dns-clusters/{id}", Value::Null, 403),
        ("delete", "/api/dns-clusters/{id}", Value::Null, 403),
        ("post", "/api/dns-clusters/{id}/enable", Value::Null, 403),
        ("post", "/api/dns-clusters/{id}/disable", Value::Null, 403),
        ("patch", "/api/dns-clusters/{id}", json!({"dns": "192.0.2.9:53"}), 403),
        ("post", "/api/dns-clusters/{id}/test", Value::Null, 403),
    ]
}

/// The same for webhooks. The tenant that is named is another's.
fn webhooks() -> Vec<Row> {
    let new = json!({"name": "a", "url": "https://hooks.example.net/", "tenant": uuid::Uuid::from_u128(7)});
    vec![
        ("get", "/api/webhooks", Value::Null, 200),
        ("post", "/api/webhooks", new, 404),
        ("get", "/api/webhooks/{id}", Value::Null, 404),
        ("patch", "/api/webhooks/{id}", json!({"name": "b"}), 404),
        ("delete", "/api/webhooks/{id}", Value::Null, 404),
        ("get", "/api/webhooks/{id}/deliveries", Value::Null, 404),
        ("post", "/api/webhooks/{id}/replay", json!({"after": 0}), 404),
    ]
}

/// The same for people: users, tenants and oneself.
fn people() -> Vec<Row> {
    vec![
        ("patch", "/api/me", json!({"admin": true}), 422),
        ("put", "/api/me/password", json!({"current": "x", "new": "a long password"}), 409),
        ("post", "/api/auth/logout", Value::Null, 409),
        ("get", "/api/access-log", Value::Null, 200),
        ("patch", "/api/users/{id}", json!({"admin": true}), 404),
        ("delete", "/api/users/{id}", Value::Null, 404),
        ("post", "/api/users/{id}/enable", Value::Null, 404),
        ("post", "/api/users/{id}/disable", Value::Null, 404),
        ("patch", "/api/tenants/{id}", json!({"name": "new"}), 404),
        ("delete", "/api/tenants/{id}", Value::Null, 404),
        ("get", "/api/imports", Value::Null, 403),
        ("post", "/api/imports", json!({"source": {"kind": "archive", "path": "/"}}), 403),
        ("get", "/api/imports/{id}", Value::Null, 403),
        ("get", "/api/imports/{id}/report", Value::Null, 403),
        ("post", "/api/imports/{id}/cutover", Value::Null, 403),
        ("post", "/api/imports/{id}/compare", json!({"old": "192.0.2.1:53"}), 403),
    ]
}

/// The same for edges, cells and pools.
pub fn edges() -> Vec<Row> {
    vec![
        ("get", "/api/edges", Value::Null, 403),
        ("post", "/api/edges", json!({"name": "e", "country": "DE", "continent": "EU"}), 403),
        ("get", "/api/edges/{id}", Value::Null, 403),
        ("patch", "/api/edges/{id}", json!({"country": "DE"}), 403),
        ("delete", "/api/edges/{id}", Value::Null, 403),
        ("post", "/api/edges/{id}/rotate-identity", Value::Null, 403),
        ("post", "/api/edges/{id}/enable", Value::Null, 403),
        ("post", "/api/edges/{id}/disable", Value::Null, 403),
        ("post", "/api/edges/{id}/drain", Value::Null, 403),
        ("post", "/api/edges/{id}/undrain", Value::Null, 403),
        ("get", "/api/cells", Value::Null, 403),
        ("post", "/api/cells/{id}/drain", Value::Null, 403),
        ("post", "/api/cells/{id}/undrain", Value::Null, 403),
        ("get", "/api/pools", Value::Null, 403),
        ("get", "/api/pools/{id}", Value::Null, 403),
        ("get", "/api/domains/{d}/placement", Value::Null, 403),
    ]
}

/// Every (method, path) of the API, as the code describes it.
pub fn described() -> BTreeSet<(String, String)> {
    let api: Value = serde_json::from_str(document().unwrap().text()).unwrap();
    let mut found = BTreeSet::new();
    for (path, item) in api["paths"].as_object().unwrap() {
        for method in item.as_object().unwrap().keys() {
            found.insert((method.clone(), path.clone()));
        }
    }
    found
}

fn fill(path: &str, ids: &Value) -> String {
    let id = if path.contains("tenants") {
        &ids["tenant"]
    } else if path.contains("users") {
        &ids["user"]
    } else {
        &ids["token"]
    };
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    path.replace("{d}", "example.test")
        .replace("{name}", "www")
        .replace("{type}", "A")
        .replace("{n}", "1")
        .replace("{id}", &text(id))
        .replace("{user}", &text(&ids["user"]))
}

#[tokio::test]
async fn nobody_without_a_token_and_no_stranger_reaches_anything() {
    let api = TestApi::start("").await;
    api.call(Method::POST, "/api/domains", json!({"name": "example.test", "force_active": true}))
        .await
        .expect(202);
    let www = json!({"ttl": 1, "records": ["192.0.2.1"]});
    api.call(Method::PUT, "/api/domains/example.test/rrsets/www/A", www).await.expect(202);
    let tenant = api.tenant("strangers").await;
    let (_, stranger) = api.user("stranger@example.test", false, &[tenant]).await;
    let me = api.get("/api/me").await.expect(200).json();
    let platform = api.platform_tenant().await;
    let ids = json!({"tenant": platform, "user": me["id"], "token": me["token"]});
    let head = api.head().await;
    let mut left = described();
    for open in ["/api/tokens/revoke", "/api/auth/login"] {
        assert!(left.remove(&("post".to_owned(), open.to_owned())));
    }
    for (method, path, body, status) in matrix().into_iter().chain(edges()) {
        let route = path.split('?').next().unwrap_or(path);
        left.remove(&(method.to_owned(), route.to_owned()));
        let filled = fill(path, &ids);
        let method: Method = method.to_uppercase().parse().unwrap();
        let nobody = Answer::of(api.request(method.clone(), &filled).send().await.unwrap()).await;
        assert_eq!(nobody.header("www-authenticate"), "Bearer", "{method} {path}");
        nobody.expect_problem(401, "unauthenticated");
        let body = (!body.is_null()).then_some(body);
        let answer = api.send(&stranger, method.clone(), &filled, body.as_ref(), &[]).await;
        assert_eq!(answer.status.as_u16(), status, "{method} {path}: {answer:?}");
        assert!(!answer.text.contains("192.0.2.1"), "{method} {path}: {answer:?}");
        assert_eq!(api.head().await, head, "{method} {path} wrote something");
    }
    assert!(left.is_empty(), "routes without a row in the matrix: {left:?}");
    let list = api.send(&stranger, Method::GET, "/api/domains", None, &[]).await.expect(200);
    assert_eq!(list.json(), json!({"items": [], "next": null}));
}

#[tokio::test]
async fn a_user_works_in_its_own_tenant() {
    let api = TestApi::start("[limits]\nmutations_per_minute = 4\n").await;
    let tenant = api.tenant("acme").await;
    let (_, user) = api.user("ann@example.test", false, &[tenant]).await;
    let post = |body: Value| {
        let (api, user) = (&api, &user);
        async move { api.send(user, Method::POST, "/api/domains", Some(&body), &[]).await }
    };
    let made = post(json!({"name": "bücher-laden.de"})).await.expect(201);
    assert_eq!(made.json()["name"], "xn--bcher-laden-thb.de");
    assert_eq!(made.json()["tenant"], json!(tenant));
    assert_eq!(made.header("ratelimit-policy"), "\"writes\";q=4;w=60");
    post(json!({"name": "co.uk"})).await.expect_problem(422, "public_suffix");
    post(json!({"name": "example"})).await.expect_problem(422, "too_few_labels");
    // By its U-label too.
    let path = "/api/domains/b%C3%BCcher-laden.de/rrsets/www/A";
    let body = json!({"ttl": 60, "records": ["192.0.2.1"]});
    let put =
        api.send(&user, Method::PUT, path, Some(&body), &[("Change-Note", "gr\u{fc}n")]).await.expect(200);
    assert_eq!(put.json(), json!({"changed": true, "revision": 2, "operation": null}));
    let got = api.send(&user, Method::GET, path, None, &[]).await.expect(200).json();
    assert_eq!(got["changed"]["note"], "gr\u{fc}n");
    assert_eq!(got["changed"]["actor"]["kind"], "user");
    // Four were allowed; the next has to wait. Reads have a bucket of their own.
    let refused = post(json!({"name": "more.example.com"})).await;
    assert!(refused.header("retry-after").parse::<u32>().unwrap() >= 1);
    refused.expect_problem(429, "rate_limited");
    let read = api.send(&user, Method::GET, path, None, &[]).await.expect(200);
    assert!(read.header("ratelimit").starts_with("\"reads\";r="));
}

#[tokio::test]
async fn a_revoked_token_is_refused_at_once() {
    let api = TestApi::start("").await;
    let key = uuid::Uuid::new_v4().to_string();
    let headers = [("Idempotency-Key", key.as_str())];
    let body = json!({"name": "ci"});
    let made = api.send(&api.admin, Method::POST, "/api/me/tokens", Some(&body), &headers).await.expect(201);
    let again = api.send(&api.admin, Method::POST, "/api/me/tokens", Some(&body), &headers).await.expect(201);
    assert_eq!((&again.json()["id"], &again.json()["token"]), (&made.json()["id"], &Value::Null));
    let token = headwater::secret::Secret::new(made.json()["token"].as_str().unwrap().to_owned());
    api.send(&token, Method::GET, "/api/me", None, &[]).await.expect(200);
    let body = json!({"token": token.expose()});
    let shown = api.request(Method::POST, "/api/tokens/revoke").json(&body).send().await.unwrap();
    Answer::of(shown).await.expect(200);
    api.send(&token, Method::GET, "/api/me", None, &[]).await.expect_problem(401, "unauthenticated");

    // A membership that ends elsewhere is seen here too.
    let tenant = api.tenant("acme").await;
    let (user, ann) = api.user("ann@example.test", false, &[tenant]).await;
    let tenant_path = format!("/api/tenants/{tenant}");
    api.send(&ann, Method::GET, &tenant_path, None, &[]).await.expect(200);
    api.call(Method::DELETE, &format!("{tenant_path}/members/{user}"), Value::Null).await.expect(200);
    let ask = || api.send(&ann, Method::GET, &tenant_path, None, &[]);
    eventually("the tenant is out of sight", ask, |answer| answer.status.as_u16() == 404).await;
}

#[tokio::test]
async fn a_process_says_how_it_is() {
    let api = TestApi::start("").await;
    let bare = |path: &'static str| {
        let request = api.request(Method::GET, path);
        async move { Answer::of(request.send().await.unwrap()).await }
    };
    bare("/livez").await.expect(200);
    let ready = bare("/readyz?verbose").await.expect(200).json();
    assert_eq!(ready["checks"].as_array().unwrap().len(), 3);
    let listed = ready["checks"][2]["detail"]["projections"].as_array().unwrap();
    let names: Vec<&str> = listed.iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["desired", "powerdns", "edge", "operations", "audit"]);
    assert!(listed.iter().all(|one| one["lag"].is_i64() && one["state"].is_string()), "{ready}");
    // A caller's trace goes on: its own id, a span of this request's, and only when it is one.
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let traced = |text: String| api.request(Method::GET, "/livez").header("traceparent", text).send();
    let answer = traced(format!("00-{trace}-00f067aa0ba902b7-01")).await.unwrap();
    let shown = answer.headers()["traceparent"].to_str().unwrap().to_owned();
    let parts: Vec<&str> = shown.split('-').collect();
    assert_eq!((parts.len(), parts[0], parts[1], parts[3]), (4, "00", trace, "01"), "{shown}");
    assert!(parts[2].len() == 16 && parts[2] != "00f067aa0ba902b7", "{shown}");
    let id = answer.headers()["x-request-id"].to_str().unwrap().replace('-', "");
    assert_eq!(parts[2], &id[16..], "the span is found by the request's id");
    let answer = traced(format!("00-{trace}-0000000000000000-01")).await.unwrap();
    assert!(!answer.headers().contains_key("traceparent"));
    let id = uuid::Uuid::now_v7().to_string();
    let request = api.request(Method::GET, "/healthz").header("X-Request-Id", &id);
    assert_eq!(Answer::of(request.send().await.unwrap()).await.header("x-request-id"), id);
    let request = api.request(Method::GET, "/healthz").header("X-Request-Id", "no uuid");
    assert_ne!(Answer::of(request.send().await.unwrap()).await.header("x-request-id"), "no uuid");
    let openapi = bare("/openapi.json").await.expect(200);
    assert_eq!(openapi.json()["openapi"], "3.1.0");
    let request = api.request(Method::GET, "/openapi.json").header("If-None-Match", openapi.header("etag"));
    Answer::of(request.send().await.unwrap()).await.expect(304);
    for (path, media) in [("/docs", "text/html"), ("/docs/style.css", "text/css")] {
        let page = bare(path).await.expect(200);
        assert!(page.header("content-type").starts_with(media), "{page:?}");
        let policy = page.header("content-security-policy");
        assert!(policy.starts_with("default-src 'none'; style-src 'self';"), "{policy}");
        assert!(!policy.contains("unsafe") && !policy.contains("script-src"), "{policy}");
        assert_eq!(
            (page.header("x-content-type-options"), page.header("x-frame-options")),
            ("nosniff", "DENY")
        );
        let request = api.request(Method::GET, path).header("If-None-Match", page.header("etag"));
        Answer::of(request.send().await.unwrap()).await.expect(304);
    }
    api.draining.cancel();
    bare("/readyz").await.expect_problem(503, "unavailable");
    bare("/livez").await.expect(200);
}

#[tokio::test]
async fn every_statement_fits_the_schema() {
    let api = TestApi::start("").await;
    use sqlx::Executor;
    let pool = api.database.pool().await;
    for statement in headwater::query::sql::ALL {
        let prepared = pool.prepare(sqlx::SqlStr::from_static(statement)).await;
        assert!(prepared.is_ok(), "{statement}: {:?}", prepared.err());
    }
}
