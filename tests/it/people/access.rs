//! The access log: who came in, who was turned away, how often, and for how long it is kept.

use reqwest::Method;
use serde_json::{Value, json};

use super::{PASSWORD, login, person};
use crate::support::{Answer, TestApi, eventually};

const DAY: i64 = 86_400_000;

/// Lines as (kind, times, whether somebody is known).
async fn lines(api: &TestApi, query: &str) -> Vec<(String, i64, bool)> {
    let found = api.get(&format!("/api/access-log{query}")).await.expect(200).json();
    let line = |one: &Value| {
        (one["kind"].as_str().unwrap().to_owned(), one["times"].as_i64().unwrap(), one["user"].is_string())
    };
    found["items"].as_array().unwrap().iter().map(line).collect()
}

fn count(lines: &[(String, i64, bool)], kind: &str, known: bool) -> i64 {
    lines.iter().filter(|line| line.0 == kind && line.2 == known).map(|line| line.1).sum()
}

#[tokio::test]
async fn who_comes_and_who_is_turned_away_is_told() {
    let api = TestApi::start("").await;
    let (user, token, ann) = person(&api, "ann@example.test").await;
    login(&api, "ann@example.test", "wrong horse battery").await.expect(401);
    login(&api, "nobody@example.test", PASSWORD).await.expect(401);
    let unknown = headwater::token::generate();
    for _ in 0..3 {
        api.send(&unknown, Method::GET, "/api/me", None, &[]).await.expect(401);
    }
    // What is no token is not worth a line.
    let bare = api.request(Method::GET, "/api/me").bearer_auth("hw_x").send().await.unwrap();
    assert_eq!(bare.status(), 401);
    for _ in 0..2 {
        api.send(&token, Method::GET, "/api/users", None, &[]).await.expect(403);
    }
    ann.send(&api, Method::POST, "/api/auth/logout", Value::Null).await.expect(204);
    let all = || lines(&api, "");
    let seen = eventually("it is written", all, |lines| count(lines, "logout", true) == 1).await;
    for (kind, known, times) in [
        ("login", true, 1),
        ("login_failed", true, 1),
        ("login_failed", false, 1),
        ("denied", false, 3),
        ("forbidden", true, 2),
        ("denied", true, 0),
    ] {
        assert_eq!(count(&seen, kind, known), times, "{kind} {known}: {seen:?}");
    }
    let forbidden = api.get("/api/access-log?kind=forbidden").await.expect(200).json();
    let line = &forbidden["items"][0];
    assert_eq!((&line["email"], &line["ip"]), (&json!("ann@example.test"), &json!("127.0.0.1")));
    assert_eq!((&line["route"], &line["user"]), (&json!("GET /api/users"), &json!(user)));
    assert!(line["token"].is_string());
    // Users read what is theirs, and know of nobody else.
    let own = api.send(&token, Method::GET, "/api/access-log", None, &[]).await.expect(200).json();
    assert_eq!(own["items"].as_array().unwrap().len(), 4, "{own}");
    assert!(own["items"].as_array().unwrap().iter().all(|one| one["user"] == json!(user)));
    let me = api.get("/api/me").await.json()["id"].as_str().unwrap().to_owned();
    let other = format!("/api/access-log?user={me}");
    api.send(&token, Method::GET, &other, None, &[]).await.expect(404);
    api.get("/api/access-log?kind=x").await.expect_problem(400, "malformed");
    // By pages, newest first, none twice.
    let mut ids: Vec<i64> = Vec::new();
    let mut path = "/api/access-log?limit=2".to_owned();
    loop {
        let page = api.get(&path).await.expect(200).json();
        ids.extend(page["items"].as_array().unwrap().iter().map(|one| one["id"].as_i64().unwrap()));
        let Some(next) = page["next"].as_str() else { break };
        path = format!("/api/access-log?limit=2&cursor={next}");
    }
    assert_eq!(ids.len(), seen.len());
    assert!(ids.is_sorted_by(|a, b| a > b), "{ids:?}");
}

#[tokio::test]
async fn a_flood_of_denials_is_a_number() {
    let api = TestApi::start("").await;
    let unknown = headwater::token::generate();
    for _ in 0..300 {
        api.send(&unknown, Method::GET, "/api/me", None, &[]).await.expect(401);
    }
    let all = || lines(&api, "?kind=denied");
    let seen = eventually("all are counted", all, |lines| count(lines, "denied", false) == 300).await;
    // One for each minute in which it came.
    assert!(seen.len() <= 2, "{seen:?}");
}

#[tokio::test]
async fn what_is_old_is_forgotten() {
    let api = TestApi::start("[accounts]\naccess_log_days = 3\n").await;
    person(&api, "ann@example.test").await;
    assert_eq!(lines(&api, "").await.len(), 1, "a login is written with its session");
    api.clock.turn(2 * DAY);
    headwater::people::seen::forget(&api.app).await.unwrap();
    assert_eq!(lines(&api, "").await.len(), 1);
    api.clock.turn(3 * DAY + 60_000);
    headwater::people::seen::forget(&api.app).await.unwrap();
    assert_eq!(lines(&api, "").await.len(), 0);
}

#[tokio::test]
async fn an_erased_user_has_no_lines() {
    let api = TestApi::start("").await;
    let (user, _, _) = person(&api, "ann@example.test").await;
    api.call(Method::DELETE, &format!("/api/users/{user}"), Value::Null).await.expect(200);
    let left: i64 =
        sqlx::query_scalar("select count(*) from access_log").fetch_one(&api.app.pool).await.unwrap();
    assert_eq!(left, 0);
    Answer::of(api.request(Method::GET, "/api/access-log").send().await.unwrap()).await.expect(401);
}
