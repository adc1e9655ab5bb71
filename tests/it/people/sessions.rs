//! Sessions: what a cookie is worth, when it ends, and that nothing tells who is known here.

use std::sync::{Arc, Mutex};

use headwater::cli::sse::SseParser;
use headwater::history::hub;
use headwater::people::seen::{Entry, Kind};
use headwater::people::session::{self, NewSession, SessionId};
use headwater::secret::Secret;
use reqwest::Method;
use serde_json::{Value, json};
use sqlx::AssertSqlSafe;

use super::{Browser, PASSWORD, login, login_at, person, set_password};
use crate::support::{Answer, TestApi, eventually};

const MINUTE: i64 = 60_000;
const HOUR: i64 = 60 * MINUTE;

#[tokio::test]
async fn a_session_is_a_caller_like_any_other() {
    let api = TestApi::start("").await;
    let (user, _) = api.user("ann@example.test", false, &[]).await;
    set_password(&api, user, PASSWORD).await;
    let answer = login(&api, " Ann@Example.Test ", PASSWORD).await.expect(200);
    let set = answer.header("set-cookie");
    let (pair, flags) = set.split_once("; ").unwrap();
    let value = pair.strip_prefix("__Host-headwater=").unwrap();
    assert!(value.len() == 64 && value.bytes().all(|digit| digit.is_ascii_hexdigit()), "{set}");
    assert_eq!(flags, "Path=/; Max-Age=604800; Secure; HttpOnly; SameSite=Lax");
    assert!(!answer.text.contains(value), "the secret is in the cookie alone");
    assert_eq!(answer.json()["user"]["email"], "ann@example.test");
    assert_eq!(answer.header("cache-control"), "no-store");
    let ann = Browser::of(&answer);
    let me = ann.send(&api, Method::GET, "/api/me", Value::Null).await.expect(200).json();
    assert_eq!((&me["token"], &me["csrf_token"]), (&Value::Null, &json!(ann.csrf)));
    assert!(me["session_expires_at"].is_string() && me["token_expires_at"].is_null());
    let named = ann.send(&api, Method::PATCH, "/api/me", json!({"name": "Ann"})).await.expect(200);
    assert_eq!(named.json()["name"], "Ann");
    let again = ann.send(&api, Method::PATCH, "/api/me", json!({"name": "Ann"})).await.expect(200);
    assert_eq!(again.json()["name"], "Ann");
    ann.send(&api, Method::PATCH, "/api/me", json!({"admin": true}))
        .await
        .expect_problem(422, "unknown_field");
    let events = api.get("/api/events?type=user.profile_changed").await.expect(200).json();
    assert_eq!(events["items"].as_array().unwrap().len(), 1, "a name that is there already is no event");
    let event = &events["items"][0];
    assert_eq!(event["data"], json!({"fields": ["name"]}));
    assert_eq!((&event["actor"]["id"], &event["actor"]["token"]), (&json!(user), &Value::Null));
    // A token beside the cookie wins, and needs no proof of the page.
    let both = api.request(Method::PATCH, "/api/me").header("cookie", &ann.cookie);
    let both = both.bearer_auth(api.admin.expose()).json(&json!({"name": "Root"})).send().await.unwrap();
    assert_eq!(Answer::of(both).await.expect(200).json()["email"], "admin@example.test");
}

#[tokio::test]
async fn pages_of_other_sites_change_nothing() {
    let api = TestApi::start("").await;
    let (_, _, ann) = person(&api, "ann@example.test").await;
    let head = api.head().await;
    let host = api.address.to_string();
    let own = format!("http://{host}");
    let csrf = ann.csrf.clone();
    let other = login(&api, "ann@example.test", PASSWORD).await.expect(200);
    let foreign = Browser::of(&other).csrf;
    let rows: [(&[(&str, &str)], u16); 8] = [
        (&[], 403),
        (&[("x-csrf-token", "")], 403),
        (&[("x-csrf-token", &foreign)], 403),
        (&[("x-csrf-token", &csrf), ("origin", "https://evil.example")], 403),
        (&[("x-csrf-token", &csrf), ("origin", "null")], 403),
        (&[("x-csrf-token", &csrf), ("sec-fetch-site", "cross-site")], 403),
        (&[("x-csrf-token", &csrf), ("sec-fetch-site", "same-site")], 403),
        (&[("x-csrf-token", &csrf), ("origin", &own)], 200),
    ];
    for (headers, status) in rows {
        let mut request = api.request(Method::PATCH, "/api/me").header("cookie", &ann.cookie);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = Answer::of(request.json(&json!({"name": "Eve"})).send().await.unwrap()).await;
        assert_eq!(answer.status.as_u16(), status, "{headers:?} {answer:?}");
        assert_eq!(api.head().await == head, status == 403, "{headers:?}");
    }
    for path in ["/api/auth/logout", "/api/me/tokens", "/api/domains"] {
        let request = api.request(Method::POST, path).header("cookie", &ann.cookie).json(&json!({}));
        Answer::of(request.send().await.unwrap()).await.expect_problem(403, "forbidden");
    }
    let body = json!({"email": "ann@example.test", "password": PASSWORD});
    let login =
        api.request(Method::POST, "/api/auth/login").header("sec-fetch-site", "cross-site").json(&body);
    let refused = Answer::of(login.send().await.unwrap()).await;
    assert!(!refused.headers.contains_key("set-cookie"));
    refused.expect_problem(403, "forbidden");
}

#[tokio::test]
async fn a_login_ends_the_session_before_it_and_a_logout_ends_its_own() {
    let api = TestApi::start("").await;
    let (_, token, first) = person(&api, "ann@example.test").await;
    let other = Browser::of(&login(&api, "ann@example.test", PASSWORD).await.expect(200));
    let body = json!({"email": "ann@example.test", "password": PASSWORD});
    let again = api.request(Method::POST, "/api/auth/login").header("cookie", &first.cookie).json(&body);
    let second = Browser::of(&Answer::of(again.send().await.unwrap()).await.expect(200));
    assert_ne!(first.cookie, second.cookie);
    let me = |browser: &Browser| {
        let (api, browser) = (&api, browser.clone());
        async move { browser.send(api, Method::GET, "/api/me", Value::Null).await }
    };
    me(&first).await.expect_problem(401, "unauthenticated");
    me(&second).await.expect(200);
    let out = second.send(&api, Method::POST, "/api/auth/logout", Value::Null).await.expect(204);
    let cleared = out.header("set-cookie");
    assert!(cleared.starts_with("__Host-headwater=; Path=/; Max-Age=0; Secure"), "{cleared}");
    me(&second).await.expect_problem(401, "unauthenticated");
    me(&other).await.expect(200);
    api.send(&token, Method::POST, "/api/auth/logout", None, &[]).await.expect_problem(409, "no_session");
    api.send(&token, Method::GET, "/api/me", None, &[]).await.expect(200);
}

/// By the hashes that were made, not by a clock: whoever is not known here costs what the others cost.
#[tokio::test]
async fn an_answer_does_not_tell_who_is_known() {
    let api = TestApi::start("").await;
    let (ann, _, _) = person(&api, "ann@example.test").await;
    let (bob, _) = api.user("bob@example.test", false, &[]).await;
    set_password(&api, bob, PASSWORD).await;
    api.call(Method::POST, &format!("/api/users/{bob}/disable"), Value::Null).await.expect(200);
    api.user("cat@example.test", false, &[]).await;
    let mut told = Vec::new();
    for (email, password) in [
        ("ann@example.test", "wrong horse battery"),
        ("nobody@example.test", PASSWORD),
        ("bob@example.test", PASSWORD),
        ("cat@example.test", PASSWORD),
        ("ann@example.test", ""),
    ] {
        let before = api.app.passwords.done();
        let answer = login(&api, email, password).await;
        assert_eq!(api.app.passwords.done() - before, 1, "{email}");
        let mut body = answer.expect_problem(401, "unauthenticated").json();
        body["request_id"] = Value::Null;
        told.push(body);
    }
    assert!(told.windows(2).all(|pair| pair[0] == pair[1]), "{told:?}");
    let me = format!("/api/users/{ann}");
    assert_eq!(api.get(&me).await.json()["enabled"], true);
}

#[tokio::test]
async fn another_password_ends_every_other_session() {
    let api = TestApi::start("").await;
    let (user, _, ann) = person(&api, "ann@example.test").await;
    let other = Browser::of(&login(&api, "ann@example.test", PASSWORD).await.expect(200));
    let put = |body: Value, key: Option<&str>| {
        let (api, ann) = (&api, ann.clone());
        let mut request = api.request(Method::PUT, "/api/me/password").header("cookie", ann.cookie);
        request = request.header("x-csrf-token", ann.csrf).json(&body);
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        async move { Answer::of(request.send().await.unwrap()).await }
    };
    let new = "a better horse battery";
    put(json!({"current": "wrong", "new": new}), None).await.expect_problem(422, "wrong_password");
    let short = put(json!({"current": PASSWORD, "new": "short\n"}), None).await.expect(422).json();
    let codes: Vec<&str> =
        short["errors"].as_array().unwrap().iter().map(|e| e["code"].as_str().unwrap()).collect();
    assert_eq!(codes, ["password_too_short", "password_control_character"]);
    let key = uuid::Uuid::new_v4().to_string();
    let body = json!({"current": PASSWORD, "new": new});
    put(body.clone(), Some(&key)).await.expect(200);
    let replay = put(body.clone(), Some(&key)).await.expect(200);
    assert_eq!(replay.header("idempotency-replayed"), "true");
    let third = json!({"current": new, "new": "yet another battery"});
    put(third, Some(&key)).await.expect_problem(409, "idempotency_conflict");
    ann.send(&api, Method::GET, "/api/me", Value::Null).await.expect(200);
    other.send(&api, Method::GET, "/api/me", Value::Null).await.expect(401);
    login(&api, "ann@example.test", PASSWORD).await.expect(401);
    login(&api, "ann@example.test", new).await.expect(200);
    // What stands for the request must not tell the password by trying.
    let stored: Vec<u8> =
        sqlx::query_scalar("select request from receipts").fetch_one(&api.app.pool).await.unwrap();
    let mut plain = blake3::Hasher::new();
    for part in ["PUT", "/api/me/password", "", &body.to_string()] {
        plain.update(&(part.len() as u64).to_le_bytes()).update(part.as_bytes());
    }
    assert_ne!(stored, plain.finalize().as_bytes());
    // Administrators give the first one, and a token alone is no password.
    let (_, cat) = api.user("cat@example.test", false, &[]).await;
    let body = json!({"current": PASSWORD, "new": new});
    api.send(&cat, Method::PUT, "/api/me/password", Some(&body), &[])
        .await
        .expect_problem(409, "no_password");
    let path = format!("/api/users/{user}");
    api.call(Method::PATCH, &path, json!({"password": "x", "admin": true}))
        .await
        .expect_problem(422, "invalid");
    api.call(Method::PATCH, &path, json!({"password": PASSWORD})).await.expect(200);
    ann.send(&api, Method::GET, "/api/me", Value::Null).await.expect(401);
    login(&api, "ann@example.test", PASSWORD).await.expect(200);
}

#[tokio::test]
async fn a_session_ends_by_itself() {
    let api = TestApi::start("[accounts]\nsession_hours = 4\nsession_idle_minutes = 60\n").await;
    let (_, _, ann) = person(&api, "ann@example.test").await;
    let me = || ann.send(&api, Method::GET, "/api/me", Value::Null);
    for minutes in [50, 100, 150, 200] {
        api.clock.turn(minutes * MINUTE);
        me().await.expect(200);
        // A use is noted once a minute by the machine's clock, which does not turn: this one was at another process.
        sqlx::query("update sessions set used_at = created_at + make_interval(secs => $1)")
            .bind((minutes * 60) as f64)
            .execute(&api.app.pool)
            .await
            .unwrap();
        // So that nothing that was looked up is believed any longer.
        api.call(Method::PATCH, "/api/me", json!({"name": minutes.to_string()})).await.expect(200);
    }
    api.clock.turn(4 * HOUR + 1_000);
    me().await.expect_problem(401, "unauthenticated");
    api.clock.turn(0);
    let idle = Browser::of(&login(&api, "ann@example.test", PASSWORD).await.expect(200));
    api.clock.turn(HOUR + 1_000);
    idle.send(&api, Method::GET, "/api/me", Value::Null).await.expect_problem(401, "unauthenticated");
}

/// Reads a stream to its end.
async fn last_words(mut answer: reqwest::Response) -> String {
    let mut parser = SseParser::new("");
    let mut said = String::new();
    let since = tokio::time::Instant::now();
    let limit = std::time::Duration::from_secs(30);
    while let Some(piece) =
        tokio::time::timeout(limit, answer.chunk()).await.expect("the stream does not end").ok().flatten()
    {
        assert!(since.elapsed() < limit, "the stream does not end");
        for event in parser.feed(&piece) {
            if event.event == "bye" {
                said = event.data;
            }
        }
    }
    said
}

pub(super) async fn stream(api: &TestApi, token: Option<&str>, cookie: Option<&str>) -> reqwest::Response {
    let mut request = api.request(Method::GET, "/events/stream");
    if let Some(token) = token {
        request = request.bearer_auth(token);
    }
    if let Some(cookie) = cookie {
        request = request.header("cookie", cookie);
    }
    let answer = request.send().await.unwrap();
    assert_eq!(answer.status(), 200);
    answer
}

#[tokio::test]
async fn whoever_is_disabled_is_out_at_once() {
    let api = TestApi::start("").await;
    tokio::spawn(hub::run(api.app.clone()));
    let (user, token, ann) = person(&api, "ann@example.test").await;
    let twin = api.join("").await;
    let open = stream(&api, Some(token.expose()), None).await;
    let panel = stream(&api, None, Some(&ann.cookie)).await;
    let at_twin = || ann.send_to(&api, twin.address, Method::GET, "/api/me", Value::Null);
    at_twin().await.expect(200);
    let path = format!("/api/users/{user}");
    let disabled = api.call(Method::POST, &format!("{path}/disable"), Value::Null).await.expect(200);
    assert_eq!(disabled.json()["enabled"], false);
    ann.send(&api, Method::GET, "/api/me", Value::Null).await.expect_problem(401, "unauthenticated");
    api.send(&token, Method::GET, "/api/me", None, &[]).await.expect_problem(401, "unauthenticated");
    assert_eq!(last_words(open).await, r#"{"reason":"user_disabled"}"#);
    assert_eq!(last_words(panel).await, r#"{"reason":"user_disabled"}"#);
    eventually("the other process knows", at_twin, |answer| answer.status == 401).await;
    login(&api, "ann@example.test", PASSWORD).await.expect(401);
    api.call(Method::POST, &format!("{path}/enable"), Value::Null).await.expect(200);
    // The token works again; the session is gone for good.
    api.send(&token, Method::GET, "/api/me", None, &[]).await.expect(200);
    ann.send(&api, Method::GET, "/api/me", Value::Null).await.expect(401);
    login(&api, "ann@example.test", PASSWORD).await.expect(200);
}

#[tokio::test]
async fn a_stream_ends_with_its_session() {
    let api = TestApi::start("").await;
    tokio::spawn(hub::run(api.app.clone()));
    let (_, _, ann) = person(&api, "ann@example.test").await;
    let panel = stream(&api, None, Some(&ann.cookie)).await;
    let twin = api.join("").await;
    let out = ann.send_to(&api, twin.address, Method::POST, "/api/auth/logout", Value::Null).await;
    out.expect(204);
    let since = tokio::time::Instant::now();
    assert_eq!(last_words(panel).await, r#"{"reason":"session_over"}"#);
    assert!(since.elapsed().as_secs() < 6, "{:?}", since.elapsed());
}

#[tokio::test]
async fn a_session_is_one_for_all_processes() {
    let api = TestApi::start("").await;
    let twin = api.join("").await;
    let (user, _) = api.user("ann@example.test", false, &[]).await;
    set_password(&api, user, PASSWORD).await;
    let ann = Browser::of(&login_at(&api, twin.address, "ann@example.test", PASSWORD).await.expect(200));
    ann.send(&api, Method::GET, "/api/me", Value::Null).await.expect(200);
    drop(twin);
    ann.send(&api, Method::PATCH, "/api/me", json!({"name": "Ann"})).await.expect(200);
}

/// Between the check of a password and the session it gives, the user may be disabled or given another password.
#[tokio::test]
async fn a_session_does_not_begin_on_what_counts_no_longer() {
    let api = TestApi::start("").await;
    let (user, _, _) = person(&api, "ann@example.test").await;
    let verifier = session::verifier_of(&api.app.pool, user).await.unwrap().unwrap();
    let begin = |verifier: &Secret| {
        let new = NewSession {
            id: SessionId(uuid::Uuid::now_v7()),
            user,
            verifier: verifier.clone(),
            stored: rand::random(),
            now: api.app.clock.now(),
            life: std::time::Duration::from_secs(60),
        };
        let entry =
            Entry { kind: Kind::Login, user: Some(user), token: None, ip: None, agent: None, route: None };
        let pool = api.app.pool.clone();
        async move { session::begin(&pool, &new, &entry).await.unwrap() }
    };
    assert!(begin(&verifier).await);
    let path = format!("/api/users/{user}");
    api.call(Method::POST, &format!("{path}/disable"), Value::Null).await.expect(200);
    assert!(!begin(&verifier).await);
    api.call(Method::POST, &format!("{path}/enable"), Value::Null).await.expect(200);
    assert!(begin(&verifier).await);
    set_password(&api, user, PASSWORD).await;
    assert!(!begin(&verifier).await, "the same password by another hash is another one");
    let count: i64 =
        sqlx::query_scalar("select count(*) from sessions").fetch_one(&api.app.pool).await.unwrap();
    assert_eq!(count, 0);
    let verifier = session::verifier_of(&api.app.pool, user).await.unwrap().unwrap();
    for _ in 0..session::SESSIONS_MAX_COUNT + 5 {
        assert!(begin(&verifier).await);
    }
    let count: i64 =
        sqlx::query_scalar("select count(*) from sessions").fetch_one(&api.app.pool).await.unwrap();
    assert_eq!(count, session::SESSIONS_MAX_COUNT);
}

/// What a subscriber of traces has written.
#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Written {
    fn write(&mut self, piece: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(piece);
        Ok(piece.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Passwords, sessions and tokens are nowhere: in no table, no event, no answer but the one that gives them, no log line.
#[tokio::test]
async fn no_secret_is_anywhere() {
    let written = Written::default();
    let writer = written.clone();
    let subscriber = tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE);
    let subscriber = subscriber.with_writer(move || writer.clone()).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let api = TestApi::start("").await;
    let (user, token, first) = person(&api, "ann@example.test").await;
    // What tests beside this one, which have no subscriber, have made of the places that are told of.
    tracing::callsite::rebuild_interest_cache();
    let ann = Browser::of(&login(&api, "ann@example.test", PASSWORD).await.expect(200));
    login(&api, "ann@example.test", "canary wrong password").await.expect(401);
    let new = "canary new password";
    let key = uuid::Uuid::new_v4().to_string();
    let put = api.request(Method::PUT, "/api/me/password").header("cookie", &ann.cookie);
    let put = put.header("x-csrf-token", &ann.csrf).header("idempotency-key", &key);
    let put = put.json(&json!({"current": PASSWORD, "new": new})).send().await.unwrap();
    let mut answers = vec![Answer::of(put).await.expect(200).text];
    let reset = json!({"password": "canary reset password"});
    answers.push(api.call(Method::PATCH, &format!("/api/users/{user}"), reset).await.expect(200).text);
    for path in ["/api/events", "/api/users", "/api/tokens", "/api/access-log", "/api/audit"] {
        answers.push(api.get(path).await.expect(200).text);
    }
    let session = |browser: &Browser| browser.cookie.split_once('=').unwrap().1.to_owned();
    let secrets = [
        PASSWORD.to_owned(),
        "canary wrong password".to_owned(),
        new.to_owned(),
        "canary reset password".to_owned(),
        session(&first),
        session(&ann),
        token.expose()[3..67].to_owned(),
    ];
    let all = api.database.pool().await;
    let tables: Vec<String> = sqlx::query_scalar(
        "select format('%I.%I', table_schema, table_name) from information_schema.tables \
         where table_schema not in ('pg_catalog', 'information_schema') and table_type = 'BASE TABLE'",
    )
    .fetch_all(&all)
    .await
    .unwrap();
    assert!(tables.iter().any(|table| table == "public.sessions"), "{tables:?}");
    let mut rows = 0;
    for table in tables {
        let text = format!("select t::text from {table} t");
        let found: Vec<String> = sqlx::query_scalar(AssertSqlSafe(text)).fetch_all(&all).await.unwrap();
        rows += found.len();
        for secret in &secrets {
            let hex = hex::encode(secret);
            let holds = |row: &String| row.contains(secret.as_str()) || row.contains(&hex);
            assert!(!found.iter().any(holds), "{table} holds a secret");
        }
    }
    assert!(rows > 20);
    let log = String::from_utf8_lossy(&written.0.lock().unwrap()).into_owned();
    assert!(log.contains("answered"), "the log was not looked at");
    for secret in &secrets {
        assert!(!answers.iter().any(|answer| answer.contains(secret.as_str())));
        assert!(!log.contains(secret.as_str()), "the log holds a secret");
    }
}
