//! Who may do what: every route without a key, with a wrong one, as a stranger; bounds; errors in PowerDNS's own form.

use std::collections::BTreeSet;

use headwater::http::bounds::{HEADERS_MAX_BYTES, URI_MAX_BYTES};
use headwater::http::router::facade;
use headwater::secret::Secret;
use headwater::token;
use reqwest::Method;
use serde_json::{Value, json};

use super::*;
use crate::http_access::Row;

const ZONE: &str = "/api/v1/servers/localhost/zones/{zone}";

/// Every route as a user of another tenant sees it. A route that is not here fails the test.
pub fn rows() -> Vec<Row> {
    let zone = |rest: &str| -> &'static str { format!("{ZONE}{rest}").leak() };
    vec![
        ("get", "/api", Value::Null, 200),
        ("get", "/api/v1", Value::Null, 200),
        ("get", "/api/v1/servers", Value::Null, 200),
        ("get", "/api/v1/servers/localhost", Value::Null, 200),
        ("get", "/api/v1/servers/localhost/config", Value::Null, 200),
        ("get", "/api/v1/servers/localhost/statistics", Value::Null, 200),
        ("get", "/api/v1/servers/localhost/search-data?q=*", Value::Null, 200),
        ("put", "/api/v1/servers/localhost/cache/flush", Value::Null, 200),
        ("get", "/api/v1/servers/localhost/zones", Value::Null, 200),
        ("post", "/api/v1/servers/localhost/zones", json!({"name": "example.test.", "kind": "Native"}), 409),
        ("get", zone(""), Value::Null, 404),
        ("patch", zone(""), json!({"rrsets": []}), 404),
        ("put", zone(""), json!({"kind": "Native"}), 404),
        ("delete", zone(""), Value::Null, 404),
        ("get", zone("/export"), Value::Null, 404),
        ("put", zone("/notify"), Value::Null, 404),
        ("put", zone("/rectify"), Value::Null, 404),
        ("put", zone("/axfr-retrieve"), Value::Null, 404),
        ("get", zone("/metadata"), Value::Null, 404),
        ("get", zone("/metadata/{kind}"), Value::Null, 404),
        ("get", zone("/cryptokeys"), Value::Null, 404),
    ]
}

fn fill(path: &str) -> String {
    path.replace("{zone}", "example.test.").replace("{kind}", "X")
}

#[tokio::test]
async fn nobody_without_a_key_and_no_stranger_reaches_anything() {
    let pdns = Pdns::start().await;
    pdns.zone("example.test.", &[("www.example.test.", "A", &["192.0.2.1"])]).await;
    let tenant = pdns.api.tenant("strangers").await;
    let (_, stranger) = pdns.api.user("stranger@example.test", false, &[tenant]).await;
    let admin = &pdns.api.admin;
    let head = pdns.api.head().await;
    let mut left: BTreeSet<(String, String)> = facade().into_iter().collect();
    assert_eq!(left.len(), 21);
    for (method, path, body, status) in rows() {
        let route = path.split('?').next().unwrap_or(path);
        left.remove(&(method.to_owned(), route.to_owned()));
        let (path, method): (String, Method) = (fill(path), method.to_uppercase().parse().unwrap());
        let plain = || pdns.api.request(method.clone(), &path).json(&body);
        // The key alone lets anybody in.
        let twice = plain().header("X-API-Key", admin.expose()).header("X-API-Key", admin.expose());
        for request in [
            plain(),
            plain().bearer_auth(admin.expose()),
            plain().header("X-API-Key", "secret"),
            plain().header("X-API-Key", token::generate().expose()),
            twice,
        ] {
            let nobody = Answer::of(request.send().await.unwrap()).await.expect(401);
            assert_eq!((nobody.header("content-type"), nobody.text.as_str()), ("text/plain", "Unauthorized"));
        }
        let asked = plain().header("Accept", "application/json").send().await.unwrap();
        let told = Answer::of(asked).await.expect(401);
        assert_eq!(
            (told.header("content-type"), told.json()),
            ("application/json", json!({"error": "Unauthorized"}))
        );
        let body = (!body.is_null()).then_some(body);
        let answer = pdns.send(&stranger, method.clone(), &path, body.as_ref(), &[]).await;
        assert_eq!(answer.status.as_u16(), status, "{method} {path}: {answer:?}");
        assert!(!answer.text.contains("192.0.2.1"), "{method} {path}: {answer:?}");
        assert_eq!(pdns.api.head().await, head, "{method} {path} wrote something");
    }
    assert!(left.is_empty(), "routes without a row: {left:?}");
    let lower = pdns.api.request(Method::GET, "/api").header("x-api-key", admin.expose());
    Answer::of(lower.send().await.unwrap()).await.expect(200);
    let none = pdns.send(&stranger, Method::GET, "/zones", None, &[]).await.expect(200);
    assert_eq!(none.json(), json!([]));
}

/// Roles of the tenant, and tokens that are limited, on what reads, writes and manages.
#[tokio::test]
async fn roles_and_scopes_hold_here_too() {
    let pdns = Pdns::start().await;
    let tenant = pdns.api.tenant("acme").await;
    let made = json!({"name": "example.com", "force_active": true, "tenant": tenant});
    pdns.api.call(Method::POST, "/api/domains", made).await.expect(202);
    let mut keys: Vec<(String, Secret)> = Vec::new();
    for role in ["viewer", "editor", "owner"] {
        let (user, key) = pdns.api.user(&format!("{role}@example.test"), false, &[]).await;
        let path = format!("/api/tenants/{tenant}/members/{user}");
        pdns.api.call(Method::PUT, &path, json!({"role": role})).await.expect(200);
        keys.push((role.to_owned(), key));
        if role == "owner" {
            let scopes = json!([{"verbs": ["read"], "domains": ["example.com"]}]);
            keys.push(("reader".to_owned(), pdns.api.limited(user, scopes).await));
        }
    }
    let path = "/zones/example.com.";
    let mut address = 0;
    for (who, key) in &keys {
        address += 1;
        let change = json!({"rrsets": [replace("www.example.com.", "A", &[&format!("192.0.2.{address}")])]});
        let put = json!({"account": who});
        let new = json!({"name": format!("{who}.example."), "kind": "Native"});
        let writes = if matches!(who.as_str(), "editor" | "owner") { 204 } else { 403 };
        for (method, path, body, status) in [
            (Method::GET, path, None, 200),
            (Method::GET, "/zones/example.com./export", None, 200),
            (Method::PATCH, path, Some(&change), writes),
            (Method::PUT, path, Some(&put), writes),
            (Method::POST, "/zones", Some(&new), if who == "owner" { 201 } else { 403 }),
        ] {
            let answer = pdns.send(key, method.clone(), path, body, &[]).await;
            assert_eq!(answer.status.as_u16(), status, "{who} {method} {path}: {answer:?}");
        }
    }
    for (who, key) in keys.iter().filter(|(who, _)| who != "owner") {
        let answer = pdns.send(key, Method::DELETE, path, None, &[]).await;
        assert_eq!(answer.status.as_u16(), 403, "{who}: {answer:?}");
    }
}

#[tokio::test]
async fn bounds_are_told_as_powerdns_does() {
    let pdns = Pdns::start().await;
    pdns.zone("example.com.", &[]).await;
    let key = pdns.api.admin.expose();
    let path = "/api/v1/servers/localhost/zones/example.com.";
    let plain = |method: Method, path: &str| pdns.api.request(method, path).header("X-API-Key", key);
    let long = format!("{path}?x={}", "x".repeat(URI_MAX_BYTES));
    let patch = || plain(Method::PATCH, path);
    let deep = format!("{}{}", "[".repeat(2_000), "]".repeat(2_000));
    let twice = "{\"rrsets\": [], \"rrsets\": []}";
    for (request, status) in [
        (plain(Method::GET, &long), 414),
        (plain(Method::GET, path).header("x-wide", "x".repeat(HEADERS_MAX_BYTES)), 431),
        (patch().body(format!("{{\"x\": \"{}\"}}", "x".repeat(8 << 20))), 413),
        (patch().body(deep), 400),
        (patch().body("{\"a\":"), 400),
        (patch().body(twice), 422),
        (patch().body("{\"rrsets\": [\"\\u0000\"]}"), 422),
        (plain(Method::GET, "/api/v1/nothing"), 404),
        (plain(Method::GET, "/api/v1/servers/localhost/zones/%FF"), 404),
        (plain(Method::POST, path), 405),
    ] {
        let answer = Answer::of(request.send().await.unwrap()).await.expect(status);
        let media = if status == 422 { "application/json" } else { "text/plain" };
        assert_eq!(answer.header("content-type"), media, "{answer:?}");
        assert!(answer.headers.contains_key("x-request-id"), "{answer:?}");
    }
    // What PowerDNS takes without a word about its media type is taken here.
    let plain_text = patch().header("content-type", "text/plain").body("{\"rrsets\": []}");
    Answer::of(plain_text.send().await.unwrap()).await.expect(204);
}

#[tokio::test]
async fn a_stranger_that_asks_too_often_waits() {
    let api = TestApi::start("[limits]\nreads_per_minute = 2\n").await;
    let tenant = api.tenant("acme").await;
    let (_, ann) = api.user("ann@example.test", false, &[tenant]).await;
    let pdns = Pdns { api };
    for _ in 0..2 {
        pdns.send(&ann, Method::GET, "/zones", None, &[]).await.expect(200);
    }
    let refused = pdns.send(&ann, Method::GET, "/zones", None, &[]).await.expect(429);
    assert!(refused.header("retry-after").parse::<u32>().unwrap() >= 1);
    assert!(refused.header("ratelimit").starts_with("\"reads\";r=0"), "{refused:?}");
}
