//! What a session may: what its user may, no more and no less, as long as its user may it.

use headwater::cli::sse::SseParser;
use headwater::history::hub;
use headwater::secret::Secret;
use reqwest::Method;
use serde_json::{Value, json};

use super::{Browser, person, sessions::stream};
use crate::support::TestApi;

/// Longest wait for an event of a stream.
const EVENT_WAIT: std::time::Duration = std::time::Duration::from_secs(60);

fn write(name: &str) -> (Method, String, Value) {
    let www = json!({"ttl": 60, "records": ["192.0.2.1"]});
    (Method::PUT, format!("/api/domains/{name}/rrsets/www/A?dry_run=true"), www)
}

/// What a session and a token of the same user are told: the same.
async fn told(api: &TestApi, who: (&Browser, &Secret), ask: (Method, String, Value)) -> u16 {
    let (method, path, body) = ask;
    let session = who.0.send(api, method.clone(), &path, body.clone()).await;
    let sent = (!body.is_null()).then_some(body);
    let token = api.send(who.1, method, &path, sent.as_ref(), &[]).await;
    assert_eq!(session.status, token.status, "{path}: {session:?} {token:?}");
    session.status.as_u16()
}

#[tokio::test]
async fn a_session_may_what_its_user_may() {
    let api = TestApi::start("").await;
    let tenant = api.tenant("ours").await;
    for name in ["one.test", "two.test"] {
        let new = json!({"name": name, "tenant": tenant, "force_active": true});
        api.call(Method::POST, "/api/domains", new).await.expect(202);
    }
    let (ann, token, browser) = person(&api, "ann@example.test").await;
    let who = (&browser, &token);
    let put = |path: String, role: &'static str| {
        let (api, path) = (&api, format!("{path}/members/{ann}"));
        async move { api.call(Method::PUT, &path, json!({"role": role})).await.expect(200) }
    };
    let ours = format!("/api/tenants/{tenant}");
    let member = (Method::PUT, format!("{ours}/members/{ann}?dry_run=true"), json!({"role": "owner"}));
    assert_eq!(told(&api, who, write("one.test")).await, 404);
    put("/api/domains/one.test".into(), "editor").await;
    assert_eq!(told(&api, who, write("one.test")).await, 200);
    assert_eq!(told(&api, who, write("two.test")).await, 404);
    put(ours.clone(), "viewer").await;
    assert_eq!(told(&api, who, write("one.test")).await, 200, "the higher role counts");
    assert_eq!(told(&api, who, write("two.test")).await, 403);
    assert_eq!(told(&api, who, member.clone()).await, 403);
    put(ours.clone(), "owner").await;
    assert_eq!(told(&api, who, write("two.test")).await, 200);
    assert_eq!(told(&api, who, member.clone()).await, 200);
    // A token that is limited does not limit the session beside it.
    let scopes = json!([{"verbs": ["read"], "domains": ["one.test"]}]);
    let limited = api.limited(ann, scopes).await;
    let (method, path, body) = write("one.test");
    api.send(&limited, method, &path, Some(&body), &[]).await.expect(403);
    assert_eq!(told(&api, who, write("one.test")).await, 200);
    put(ours.clone(), "viewer").await;
    put("/api/domains/one.test".into(), "viewer").await;
    assert_eq!(told(&api, who, write("one.test")).await, 403);
    assert_eq!(told(&api, who, member).await, 403);
    for path in [ours, "/api/domains/one.test".to_owned()] {
        api.call(Method::DELETE, &format!("{path}/members/{ann}"), Value::Null).await.expect(200);
    }
    assert_eq!(told(&api, who, (Method::GET, "/api/domains/one.test".into(), Value::Null)).await, 404);
}

/// The events of a stream up to one of a type.
async fn up_to(answer: &mut reqwest::Response, last: &str) -> Vec<Value> {
    let (mut parser, mut seen) = (SseParser::new(""), Vec::new());
    loop {
        let piece = tokio::time::timeout(EVENT_WAIT, answer.chunk()).await.expect("it comes").unwrap();
        for event in parser.feed(&piece.expect("the stream goes on")) {
            let data: Value = serde_json::from_str(&event.data).unwrap_or_default();
            let is_last = data["type"] == last;
            seen.push(data);
            if is_last {
                return seen;
            }
        }
    }
}

#[tokio::test]
async fn a_stream_of_a_session_follows_its_users_roles() {
    let api = TestApi::start("").await;
    tokio::spawn(hub::run(api.app.clone()));
    let tenant = api.tenant("ours").await;
    let new = json!({"name": "one.test", "tenant": tenant, "force_active": true});
    api.call(Method::POST, "/api/domains", new).await.expect(202);
    let (ann, _, browser) = person(&api, "ann@example.test").await;
    let mut panel = stream(&api, None, Some(&browser.cookie)).await;
    let write = async |host: &str| {
        let path = format!("/api/domains/one.test/rrsets/{host}/A");
        api.call(Method::PUT, &path, json!({"ttl": 60, "records": ["192.0.2.1"]})).await.expect(202);
    };
    let path = format!("/api/domains/one.test/members/{ann}");
    write("before").await;
    api.call(Method::PUT, &path, json!({"role": "viewer"})).await.expect(200);
    write("during").await;
    api.call(Method::DELETE, &path, Value::Null).await.expect(200);
    write("after").await;
    browser.send(&api, Method::PATCH, "/api/me", json!({"name": "Ann"})).await.expect(200);
    let seen = up_to(&mut panel, "user.profile_changed").await;
    let hosts = seen.iter().filter(|event| event["type"] == "rrset.replaced");
    let hosts: Vec<_> = hosts.map(|event| event["data"]["name"].as_str().unwrap()).collect();
    // A reader that comes to it late reads what was before with the rights that it has by then; what comes after the loss
    // is read by nobody, however late.
    let before = hosts.iter().filter(|host| **host == "before").count();
    assert_eq!(hosts[before..], ["during"], "{seen:#?}");
}
