//! Tokens: from where and how long they work, and what of them stands in the database.

use headwater::secret::Secret;
use headwater::token;
use headwater::vault;
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Answer, TestApi, eventually};

const DAY: i64 = 86_400_000;

async fn make(api: &TestApi, body: Value) -> (String, Secret) {
    let made = api.call(Method::POST, "/api/me/tokens", body).await.expect(201).json();
    (made["id"].as_str().unwrap().to_owned(), Secret::new(made["token"].as_str().unwrap().to_owned()))
}

#[tokio::test]
async fn a_token_works_from_its_networks_alone() {
    let api = TestApi::start("[server]\ntrusted_proxies = [\"127.0.0.1\"]\n").await;
    let limited = json!({"name": "office", "networks": ["192.0.2.0/24", "2001:db8::/32"]});
    let (id, token) = make(&api, limited).await;
    let ask = |from: Option<&'static str>| {
        let mut request = api.request(Method::GET, "/api/me").bearer_auth(token.expose());
        if let Some(from) = from {
            request = request.header("x-forwarded-for", from);
        }
        async move { Answer::of(request.send().await.unwrap()).await }
    };
    ask(Some("192.0.2.7")).await.expect(200);
    ask(Some("2001:db8::7")).await.expect(200);
    ask(Some("192.0.2.7, 198.51.100.1")).await.expect_problem(401, "unauthenticated");
    ask(Some("198.51.100.1")).await.expect_problem(401, "unauthenticated");
    ask(None).await.expect_problem(401, "unauthenticated");
    // Who is not trusted is not believed.
    let twin = api.join("").await;
    let spoofed = api.request_at(twin.address, Method::GET, "/api/me").bearer_auth(token.expose());
    let spoofed = spoofed.header("x-forwarded-for", "192.0.2.7").send().await.unwrap();
    Answer::of(spoofed).await.expect_problem(401, "unauthenticated");
    let shown = api.get("/api/me/tokens").await.json();
    let shown = shown["items"].as_array().unwrap().iter().find(|one| one["id"] == json!(id)).unwrap().clone();
    assert_eq!(shown["networks"], json!(["192.0.2.0/24", "2001:db8::/32"]));
    for (networks, code) in [
        (json!(["192.0.2.1/24"]), "invalid_network"),
        (json!(["x"]), "invalid_network"),
        (json!([1]), "invalid_type"),
        (json!(vec!["192.0.2.1"; 65]), "too_many"),
    ] {
        let body = json!({"name": "t", "networks": networks});
        api.call(Method::POST, "/api/me/tokens", body).await.expect_problem(422, code);
    }
}

#[tokio::test]
async fn a_token_that_is_not_used_stops_working() {
    let api = TestApi::start("").await;
    let (_, token) = make(&api, json!({"name": "ci", "max_unused_days": 2})).await;
    let (_, fresh) = make(&api, json!({"name": "ci", "max_unused_days": 2})).await;
    let ask = |token: &Secret| {
        let (api, token) = (&api, token.clone());
        async move { api.send(&token, Method::GET, "/api/me", None, &[]).await }
    };
    api.clock.turn(DAY);
    ask(&token).await.expect(200);
    let written = || async {
        let count =
            sqlx::query_scalar("select count(*) from token_uses where used_at > now() + interval '20 hours'");
        count.fetch_one(&api.app.pool).await.unwrap()
    };
    eventually("the use is written", written, |count: &i64| *count == 1).await;
    api.clock.turn(2 * DAY + DAY / 2);
    ask(&token).await.expect(200);
    ask(&fresh).await.expect_problem(401, "unauthenticated");
    api.clock.turn(10 * DAY);
    ask(&token).await.expect_problem(401, "unauthenticated");
    for days in [0, -1, 3_651] {
        let body = json!({"name": "t", "max_unused_days": days});
        api.call(Method::POST, "/api/me/tokens", body).await.expect_problem(422, "out_of_range");
    }
}

#[tokio::test]
async fn a_use_is_shown_and_written_once_a_minute() {
    let api = TestApi::start("").await;
    let (id, token) = make(&api, json!({"name": "ci"})).await;
    let used = || async {
        let query =
            sqlx::query_as("select used_at::text, xmin::text from token_uses where token_id = $1::uuid");
        let found: Option<(String, String)> = query.bind(&id).fetch_optional(&api.app.pool).await.unwrap();
        found
    };
    assert_eq!(used().await, None);
    api.send(&token, Method::GET, "/api/me", None, &[]).await.expect(200);
    let first = eventually("the use is written", used, Option::is_some).await;
    let tokens = api.get("/api/me/tokens").await.json();
    let shown = tokens["items"].as_array().unwrap().iter().find(|one| one["id"] == json!(id)).unwrap();
    assert!(shown["last_used_at"].is_string(), "{shown}");
    // Another process sees it again at once, and the row is not written again.
    let twin = api.join("").await;
    for address in [api.address, twin.address] {
        for _ in 0..20 {
            let ask = api.request_at(address, Method::GET, "/api/me").bearer_auth(token.expose());
            assert_eq!(ask.send().await.unwrap().status(), 200);
        }
    }
    let (_, other) = make(&api, json!({"name": "marker"})).await;
    for address in [api.address, twin.address] {
        let ask = api.request_at(address, Method::GET, "/api/me").bearer_auth(other.expose());
        assert_eq!(ask.send().await.unwrap().status(), 200);
    }
    let count = || async {
        sqlx::query_scalar("select count(*) from token_uses").fetch_one(&api.app.pool).await.unwrap()
    };
    eventually("both processes have written", count, |count: &i64| *count >= 3).await;
    assert_eq!(used().await, first);
}

#[tokio::test]
async fn what_is_stored_of_a_token_is_keyed_and_older_ones_stay_valid() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("secret-key");
    assert!(vault::make(&file).unwrap());
    let settings = format!("[secrets]\nkey_file = {file:?}\n");
    // The administrator's token was made without a key.
    let api = TestApi::start(&settings).await;
    let (_, token) = make(&api, json!({"name": "ci"})).await;
    let stored: Vec<Vec<u8>> =
        sqlx::query_scalar("select hash from token_secrets").fetch_all(&api.app.pool).await.unwrap();
    let plain = |token: &Secret| token::hash(token.expose()).unwrap().bytes().to_vec();
    assert!(stored.contains(&plain(&api.admin)));
    assert!(!stored.contains(&plain(&token)), "what is stored is not what can be reckoned without the key");
    api.send(&token, Method::GET, "/api/me", None, &[]).await.expect(200);
    // A further key stands in front of the first.
    let new = dir.path().join("new");
    assert!(vault::make(&new).unwrap());
    let both = [std::fs::read_to_string(&new).unwrap(), std::fs::read_to_string(&file).unwrap()].concat();
    std::fs::write(&new, both).unwrap();
    let twin = api.join(&format!("[secrets]\nkey_file = {new:?}\n")).await;
    let without = api.join("").await;
    for (address, status) in [(twin.address, 200), (without.address, 401)] {
        let ask = api.request_at(address, Method::GET, "/api/me").bearer_auth(token.expose());
        assert_eq!(ask.send().await.unwrap().status(), status);
    }
    let shown = json!({"token": token.expose()});
    let revoke = api.request_at(twin.address, Method::POST, "/api/tokens/revoke").json(&shown);
    Answer::of(revoke.send().await.unwrap()).await.expect(200);
    let gone = || api.send(&token, Method::GET, "/api/me", None, &[]);
    eventually("it is revoked", gone, |answer| answer.status == 401).await;
}

/// Whoever finds the token of somebody who is out may still end it.
#[tokio::test]
async fn a_leaked_token_of_a_disabled_user_can_be_revoked() {
    let api = TestApi::start("").await;
    let (user, token) = api.user("ann@example.test", false, &[]).await;
    api.call(Method::POST, &format!("/api/users/{user}/disable"), Value::Null).await.expect(200);
    let shown = json!({"token": token.expose()});
    let revoke = api.request(Method::POST, "/api/tokens/revoke").json(&shown);
    Answer::of(revoke.send().await.unwrap()).await.expect(200);
    api.call(Method::POST, &format!("/api/users/{user}/enable"), Value::Null).await.expect(200);
    api.send(&token, Method::GET, "/api/me", None, &[]).await.expect(401);
}
