//! Bounds of an account hold for all processes together.

use headwater::replicas;
use reqwest::Method;
use serde_json::{Value, json};

use super::{PASSWORD, login, login_at, set_password};
use crate::support::{Answer, TestApi, eventually};

/// Ten tries a minute of one address for one user, whichever process is asked.
#[tokio::test]
async fn two_processes_do_not_double_the_tries_to_log_in() {
    let api = TestApi::start("").await;
    let twin = api.join("").await;
    let (user, _) = api.user("ann@example.test", false, &[]).await;
    set_password(&api, user, PASSWORD).await;
    let mut statuses = Vec::new();
    let mut last = None;
    for n in 0..14 {
        let address = if n % 2 == 0 { api.address } else { twin.address };
        let answer = login_at(&api, address, "ann@example.test", "wrong horse battery").await;
        statuses.push(answer.status.as_u16());
        last = Some(answer);
    }
    // A bucket fills while it is emptied: a slow machine may be given one more.
    let tried = statuses.iter().filter(|status| **status == 401).count();
    assert!((10..=11).contains(&tried), "{statuses:?}");
    let last = last.unwrap();
    assert_eq!(last.header("ratelimit-policy"), "\"logins\";q=10;w=60");
    assert!(last.header("ratelimit").starts_with("\"logins\";r=0;t="));
    let wait: u64 = last.header("retry-after").parse().unwrap();
    assert!((1..=6).contains(&wait), "{wait}");
    last.expect_problem(429, "rate_limited");
    login(&api, "ann@example.test", PASSWORD).await.expect(429);
    let before = api.app.passwords.done();
    login(&api, "ann@example.test", PASSWORD).await.expect(429);
    assert_eq!(api.app.passwords.done(), before, "who is refused costs no hash");
    // Somebody else at the same address is not held up by it.
    login(&api, "other@example.test", PASSWORD).await.expect(401);
}

/// The same for what an account may ask for: each process gives its share, and one that is gone leaves it to the others.
#[tokio::test]
async fn two_processes_share_the_rate_of_an_account() {
    let settings = "[limits]\nmutations_per_minute = 8\nstreams_per_token = 4\n";
    let api = TestApi::start(settings).await;
    let twin = api.join(settings).await;
    for app in [api.app.clone(), twin.app.clone()] {
        tokio::spawn(replicas::run(app));
    }
    let counts = || async { (api.app.replicas.count(), twin.app.replicas.count()) };
    eventually("both are known to both", counts, |counts| *counts == (2, 2)).await;
    let (_, user) = api.user("ann@example.test", false, &[]).await;
    let mut taken = 0;
    for address in [api.address, twin.address] {
        for _ in 0..8 {
            let ask = api.request_at(address, Method::PATCH, "/api/me").bearer_auth(user.expose());
            let answer = Answer::of(ask.json(&json!({"name": "x"})).send().await.unwrap()).await;
            assert_eq!(answer.header("ratelimit-policy"), "\"writes\";q=4;w=60");
            taken += u32::from(answer.status == 200);
        }
    }
    assert!((8..=9).contains(&taken), "{taken}");
    drop(twin);
    let alone = || async { api.app.replicas.count() };
    eventually("one is left", alone, |count| *count == 1).await;
    let ask = api.send(&user, Method::PATCH, "/api/me", Some(&json!({"name": "y"})), &[]).await;
    assert_eq!(ask.header("ratelimit-policy"), "\"writes\";q=8;w=60");
}

/// Body, depth and header are bounded on every route, whoever asks.
#[tokio::test]
async fn every_body_is_bounded() {
    let api = TestApi::start("").await;
    let large = "x".repeat(9_000);
    let login = |body: String| {
        let request = api.request(Method::POST, "/api/auth/login").header("content-type", "application/json");
        async { Answer::of(request.body(body).send().await.unwrap()).await }
    };
    login(json!({"email": "a@b", "password": large}).to_string()).await.expect_problem(413, "too_large");
    login(format!("{}{}", "[".repeat(4_000), "]".repeat(4_000))).await.expect_problem(400, "malformed");
    login("{}".to_owned()).await.expect_problem(422, "missing");
    login(json!({"email": "a@b", "password": "x", "admin": true}).to_string())
        .await
        .expect_problem(422, "unknown_field");
    let wide = api.request(Method::GET, "/api/me").header("x-wide", "x".repeat(1 << 20));
    let answer = wide.send().await;
    assert!(answer.is_err() || answer.unwrap().status() == 431);
    api.call(Method::GET, "/api/me", Value::Null).await.expect(200);
}
