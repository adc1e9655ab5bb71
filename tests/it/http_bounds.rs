//! Whatever the route is, and whoever asks: heads, bodies and their depth are bounded, what is too much is refused as a
//! problem with the right status, and nothing is written. A head that does not come ends its connection.

use std::time::Duration;

use headwater::http::accept;
use headwater::http::bounds::{HEADERS_MAX_BYTES, HEADERS_MAX_COUNT, URI_MAX_BYTES};
use headwater::http::pdns;
use headwater::http::policy::RULES;
use headwater::secret::Secret;
use headwater_events::zonetext::TEXT_MAX_BYTES;
use reqwest::{Method, RequestBuilder};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use crate::support::{Answer, TestApi};

/// More than the body of an import may have.
const IMPORT_TOO_LARGE_BYTES: usize = 33 << 20;
/// Larger than what any route takes.
const BODY_TOO_LARGE_BYTES: usize = (8 << 20) + 1;

/// Every route with something in its path, and what is none. PowerDNS's have errors of their own.
fn routes() -> Vec<(Method, String)> {
    let fill = |path: &str| {
        let id = uuid::Uuid::now_v7().to_string();
        let path = path.replace("{d}", "example.test").replace("{name}", "www").replace("{type}", "A");
        path.replace("{n}", "1").replace("{id}", &id).replace("{user}", &id)
    };
    let ours = RULES.iter().filter(|rule| !pdns::is_here(rule.path));
    let mut all: Vec<_> = ours.map(|rule| (rule.method.parse().unwrap(), fill(rule.path))).collect();
    for (method, path) in [
        (Method::POST, "/api/auth/login"),
        (Method::POST, "/api/tokens/revoke"),
        (Method::GET, "/openapi.json"),
        (Method::GET, "/docs"),
        (Method::GET, "/livez"),
        (Method::GET, "/readyz"),
        (Method::GET, "/api/nothing"),
        (Method::DELETE, "/api/domains"),
    ] {
        all.push((method, path.to_owned()));
    }
    all
}

async fn send(request: RequestBuilder, token: Option<&Secret>) -> Answer {
    let request = token.into_iter().fold(request, |request, token| request.bearer_auth(token.expose()));
    Answer::of(request.send().await.unwrap()).await
}

#[tokio::test]
async fn every_head_is_bounded() {
    let api = TestApi::start("").await;
    let (head, mut asked) = (api.head().await, 0);
    for (method, path) in routes() {
        for token in [None, Some(&api.admin)] {
            let plain = || api.request(method.clone(), &path);
            let long = format!("{path}?x={}", "x".repeat(URI_MAX_BYTES));
            let told = send(api.request(method.clone(), &long), token).await;
            told.expect_problem(414, "uri_too_long");
            let wide = plain().header("x-wide", "x".repeat(HEADERS_MAX_BYTES));
            send(wide, token).await.expect_problem(431, "headers_too_large");
            let many =
                (0..=HEADERS_MAX_COUNT).fold(plain(), |request, n| request.header(format!("x-{n}"), "x"));
            send(many, token).await.expect_problem(431, "headers_too_large");
            asked += 1;
        }
    }
    assert!(asked > 200, "{asked}");
    assert_eq!(api.head().await, head, "something was written");
    // What is within the bounds is taken.
    let filled = (0..HEADERS_MAX_COUNT - 8).fold(api.request(Method::GET, "/api/me"), |request, n| {
        request.header(format!("x-{n}"), "x".repeat(HEADERS_MAX_BYTES / HEADERS_MAX_COUNT - 16))
    });
    send(filled, Some(&api.admin)).await.expect(200);
    let domains: Vec<String> =
        (0..100).map(|n| format!("domain={n:03}.{}example.test", "a.".repeat(115))).collect();
    send(api.request(Method::GET, &format!("/api/events?{}", domains.join("&"))), Some(&api.admin))
        .await
        .expect(200);
}

#[tokio::test]
async fn every_body_is_bounded() {
    let api = TestApi::start("").await;
    let made = json!({"name": "example.test", "force_active": true});
    api.call(Method::POST, "/api/domains", made).await.expect(202);
    let (head, mut asked) = (api.head().await, 0);
    let large = format!("{{\"x\": \"{}\"}}", "x".repeat(BODY_TOO_LARGE_BYTES));
    let deep = format!("{}{}", "[".repeat(2_000), "]".repeat(2_000));
    for (method, path) in routes() {
        // A zone file is no JSON, and has a bound of its own.
        let is_text = path.ends_with("/zone");
        if method == Method::GET || is_text || method == Method::DELETE && path == "/api/domains" {
            continue;
        }
        let sent = |media: &str, body: &str| {
            let request = api.request(method.clone(), &path).header("content-type", media);
            send(request.body(body.to_owned()), Some(&api.admin))
        };
        for (media, body, status, code) in [
            ("application/json", large.as_str(), 413, "too_large"),
            ("application/json", deep.as_str(), 400, "malformed"),
            ("application/json", "{\"a\":", 400, "malformed"),
            ("text/plain", "{}", 415, "unsupported_media_type"),
        ] {
            // It may name every zone that there is, and has a bound of its own.
            if status == 413 && path == "/api/imports" {
                continue;
            }
            let answer = sent(media, body).await;
            assert_eq!(answer.status.as_u16(), status, "{method} {path}: {answer:?}");
            answer.expect_problem(status, code);
            asked += 1;
        }
    }
    let large = format!("{{\"x\": \"{}\"}}", "x".repeat(IMPORT_TOO_LARGE_BYTES));
    let request = api.request(Method::POST, "/api/imports").header("content-type", "application/json");
    send(request.body(large), Some(&api.admin)).await.expect_problem(413, "too_large");
    let text = ";".repeat(TEXT_MAX_BYTES + 1);
    for (media, body, status, code) in [
        ("text/dns", text, 413, "too_large"),
        ("application/json", "{}".to_owned(), 415, "unsupported_media_type"),
    ] {
        let request = api.request(Method::POST, "/api/domains/example.test/zone?mode=merge");
        let request = request.header("content-type", media).body(body);
        send(request, Some(&api.admin)).await.expect_problem(status, code);
    }
    assert!(asked > 200, "{asked}");
    assert_eq!(api.head().await, head, "something was written");
}

/// What a head says of its body is heard before the body is waited for.
#[tokio::test]
async fn a_body_is_taken_as_it_is_or_refused_at_once() {
    let api = TestApi::start("").await;
    let sent = |encoding: &str| {
        let request = api.request(Method::POST, "/api/tenants").header("content-encoding", encoding);
        send(request.json(&json!({"name": "acme"})), Some(&api.admin))
    };
    for encoding in ["gzip", "br", "identity, gzip", ""] {
        sent(encoding).await.expect_problem(415, "unsupported_media_type");
    }
    sent("identity").await.expect(201);
    let twice = api.request(Method::GET, "/api/me").header("authorization", "Bearer hw_00");
    send(twice, Some(&api.admin)).await.expect_problem(400, "malformed");
    let mut stream = TcpStream::connect(api.address).await.unwrap();
    let head = format!(
        "POST /api/tenants HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n\
         Content-Length: 99999999999\r\n\r\n",
        api.admin.expose()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let said = to_its_end(stream).await;
    assert!(said.starts_with("HTTP/1.1 413") && said.contains("\"too_large\""), "{said}");
}

/// Reads what comes until the connection ends.
async fn to_its_end(mut stream: TcpStream) -> String {
    let mut text = Vec::new();
    let read = tokio::time::timeout(Duration::from_secs(30), stream.read_to_end(&mut text)).await;
    read.expect("the connection stays open").unwrap();
    String::from_utf8_lossy(&text).into_owned()
}

#[tokio::test]
async fn a_head_that_does_not_come_ends_its_connection() {
    let api = TestApi::start("").await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let routes = headwater::http::router::router(api.app.clone(), CancellationToken::new()).unwrap();
    let (stop, quick) = (CancellationToken::new(), Duration::from_millis(200));
    let served = tokio::spawn(accept::serve(listener, routes, stop.clone(), quick));
    let connect = || async { TcpStream::connect(address).await.unwrap() };
    // One that says nothing, one that stops within its head, and one that begins no second request.
    assert_eq!(to_its_end(connect().await).await, "");
    let mut slow = connect().await;
    slow.write_all(b"GET /livez HTTP/1.1\r\nHost: x\r\nX-Slow: ").await.unwrap();
    assert_eq!(to_its_end(slow).await, "");
    let mut once = connect().await;
    once.write_all(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let told = to_its_end(once).await;
    assert!(told.starts_with("HTTP/1.1 200") && told.contains("{\"status\":\"ok\"}"), "{told}");
    // A body has its own time, which is longer.
    let mut body = connect().await;
    body.write_all(b"POST /api/auth/login HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{")
        .await
        .unwrap();
    assert!(tokio::time::timeout(quick * 3, body.read_u8()).await.is_err(), "it was ended too early");
    body.write_all(b"}").await.unwrap();
    assert!(to_its_end(body).await.starts_with("HTTP/1.1 422"));
    // At the stop, what has begun ends first.
    let mut last = connect().await;
    last.write_all(b"POST /api/auth/login HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{")
        .await
        .unwrap();
    assert!(tokio::time::timeout(quick, last.read_u8()).await.is_err());
    stop.cancel();
    last.write_all(b"}").await.unwrap();
    assert!(to_its_end(last).await.starts_with("HTTP/1.1 422"));
    tokio::time::timeout(Duration::from_secs(30), served).await.expect("it goes on").unwrap();
    assert!(TcpStream::connect(address).await.is_err());
}

/// Streams of one token, and of one tenant, over two processes.
#[tokio::test]
async fn two_processes_do_not_double_the_streams() {
    let settings = "[limits]\nstreams_per_token = 4\nstreams_per_tenant = 6\n";
    let api = TestApi::start(settings).await;
    let twin = api.join(settings).await;
    for app in [api.app.clone(), twin.app.clone()] {
        tokio::spawn(headwater::history::hub::run(app.clone()));
        tokio::spawn(headwater::replicas::run(app));
    }
    let counts = || async { (api.app.replicas.count(), twin.app.replicas.count()) };
    crate::support::eventually("both are known to both", counts, |counts| *counts == (2, 2)).await;
    let tenant = api.tenant("acme").await;
    let (_, ann) = api.user("ann@example.test", false, &[tenant]).await;
    let (_, bob) = api.user("bob@example.test", false, &[tenant]).await;
    let mut open = Vec::new();
    let mut opened = [0, 0];
    for (who, token) in [&ann, &bob].into_iter().enumerate() {
        for at in [api.address, twin.address] {
            for _ in 0..4 {
                let ask = api.request_at(at, Method::GET, "/api/events/stream").bearer_auth(token.expose());
                let answer = ask.send().await.unwrap();
                if answer.status() == 200 {
                    opened[who] += 1;
                    open.push(answer);
                } else {
                    let refused = Answer::of(answer).await;
                    assert!(refused.header("retry-after").parse::<u32>().unwrap() >= 1);
                    refused.expect_problem(429, "rate_limited");
                }
            }
        }
    }
    assert_eq!(opened, [4, 2], "four of a token, six of a tenant, over both");
    // Whoever leaves makes room.
    open.clear();
    let again = || async {
        let ask = api.request(Method::GET, "/api/events/stream").bearer_auth(bob.expose());
        ask.send().await.unwrap().status().as_u16()
    };
    crate::support::eventually("there is room again", again, |status| *status == 200).await;
}
