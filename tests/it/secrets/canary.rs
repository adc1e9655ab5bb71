//! Secrets are sent through every input, also where they do not belong; then every place where something is kept or told
//! is searched for them: all tables, the log, the stream, the trail in all its forms, lists, errors and metrics.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use headwater::people::password::hash_now;
use headwater::secret::Secret;
use headwater::vault;
use metrics_exporter_prometheus::PrometheusBuilder;
use reqwest::{Method, RequestBuilder};
use serde_json::json;

use crate::certs::mint::{Ca, Leaf};
use crate::edges::secrets::{Lines, spellings};
use crate::people::{Browser, login, set_password};
use crate::support::{Answer, TestApi, eventually};

const PASSWORDS: [&str; 4] =
    ["canary correct horse", "canary wrong horse", "canary second horse", "canary third horse"];
const DATABASE: &str = "canary-database-password";

/// What is a secret, by name; and everything that was answered but where a secret is given.
#[derive(Default)]
struct Seen {
    secrets: BTreeMap<String, Vec<u8>>,
    answers: String,
}

impl Seen {
    fn secret(&mut self, name: &str, secret: &str) {
        self.secrets.insert(name.to_owned(), secret.as_bytes().to_vec());
    }

    async fn ask(&mut self, request: RequestBuilder) -> Answer {
        let answer = Answer::of(request.send().await.unwrap()).await;
        self.answers.push_str(&answer.text);
        self.answers
            .extend(answer.headers.iter().map(|(_, value)| String::from_utf8_lossy(value.as_bytes())));
        answer
    }

    /// Which secrets a text holds, in any spelling.
    fn found(&self, text: &str) -> Vec<&str> {
        let holds = |secret: &[u8]| spellings(secret).iter().any(|spelling| text.contains(spelling));
        self.secrets.iter().filter(|(_, secret)| holds(secret)).map(|(name, _)| name.as_str()).collect()
    }
}

/// Passwords, sessions and their proofs.
async fn people(api: &TestApi, seen: &mut Seen) {
    let (user, token) = api.user("ann@example.test", false, &[]).await;
    for password in PASSWORDS {
        seen.secret(password, password);
    }
    seen.secret("a token", &token.expose()[3..]);
    set_password(api, user, PASSWORDS[0]).await;
    seen.secret("a verifier", hash_now(&Secret::new(PASSWORDS[0].to_owned())).unwrap().expose());
    login(api, "ann@example.test", PASSWORDS[1]).await.expect(401);
    let browser = Browser::of(&login(api, "ann@example.test", PASSWORDS[0]).await.expect(200));
    seen.secret("a session", browser.cookie.split_once('=').unwrap().1);
    seen.secret("a proof", &browser.csrf);
    let change = json!({"current": PASSWORDS[0], "new": PASSWORDS[2]});
    let put = api.request(Method::PUT, "/api/me/password").header("cookie", &browser.cookie);
    let put =
        put.header("x-csrf-token", &browser.csrf).header("idempotency-key", uuid::Uuid::new_v4().to_string());
    seen.ask(put.json(&change)).await.expect(200);
    let patch = api.request(Method::PATCH, &format!("/api/users/{user}")).bearer_auth(api.admin.expose());
    seen.ask(patch.json(&json!({"password": PASSWORDS[3]}))).await.expect(200);
    // Where they do not belong.
    for body in [json!({"password": PASSWORDS[1]}), json!({"email": PASSWORDS[1], "password": 1})] {
        seen.ask(api.request(Method::POST, "/api/auth/login").json(&body)).await.expect(422);
    }
    let broken = format!("{{\"email\": \"a@b.test\", \"password\": \"{}\"", PASSWORDS[1]);
    let broken =
        api.request(Method::POST, "/api/auth/login").header("content-type", "application/json").body(broken);
    seen.ask(broken).await.expect(400);
    let wrong = api.request(Method::GET, "/api/me").header("cookie", format!("{}x", browser.cookie));
    seen.ask(wrong).await.expect(401);
    let forged = api.request(Method::PATCH, "/api/me").header("cookie", &browser.cookie);
    seen.ask(forged.header("x-csrf-token", "none").json(&json!({"name": "x"}))).await;
}

/// Tokens, those of edges included.
async fn tokens(api: &TestApi, seen: &mut Seen) {
    let key = uuid::Uuid::new_v4().to_string();
    let make = || {
        let make = api.request(Method::POST, "/api/me/tokens").bearer_auth(api.admin.expose());
        make.header("idempotency-key", &key).json(&json!({"name": "ci"}))
    };
    // The one answer that gives it is not searched.
    let made = Answer::of(make().send().await.unwrap()).await.expect(201).json();
    let token = made["token"].as_str().unwrap().to_owned();
    seen.secret("a token that was made", &token[3..]);
    seen.ask(make()).await.expect(201);
    seen.ask(api.request(Method::GET, "/api/me").bearer_auth(&token)).await.expect(200);
    seen.ask(api.request(Method::GET, "/api/me").bearer_auth(&token[1..])).await.expect(401);
    seen.ask(api.request(Method::GET, "/api/me").header("authorization", format!("Basic {token}"))).await;
    seen.ask(api.request(Method::POST, "/api/tokens/revoke").json(&json!({"token": [token]})))
        .await
        .expect(422);
    seen.ask(api.request(Method::POST, "/api/tokens/revoke").json(&json!({"token": token})))
        .await
        .expect(200);
    seen.ask(api.request(Method::GET, "/api/me").bearer_auth(&token)).await.expect(401);
    let edge = json!({"name": "fra1", "country": "DE", "continent": "EU"});
    let edge = api.call(Method::POST, "/api/edges", edge).await.expect(201).json();
    seen.secret("the token of an edge", &edge["bootstrap_token"].as_str().unwrap()[4..]);
}

/// Keys of certificates, and the password of a database.
async fn keys(api: &TestApi, seen: &mut Seen, dir: &std::path::Path) {
    let domain = json!({"name": "example.test", "force_active": true});
    api.call(Method::POST, "/api/domains", domain).await.expect(202);
    let issuer = Ca::root("Root").below("Issuer");
    let (good, other) = (issuer.leaf(&["example.test"]), issuer.leaf(&["example.test"]));
    for (name, leaf) in [("a private key", &good), ("another private key", &other)] {
        let lines: Vec<&str> = leaf.key.lines().filter(|line| !line.starts_with("---")).collect();
        let der = STANDARD.decode(lines.concat()).unwrap();
        seen.secrets.insert(name.to_owned(), der);
        seen.secret(&format!("a line of {name}"), lines[0]);
    }
    let path = "/api/domains/example.test/tls/custom-certificate";
    let put =
        |query: &str| api.request(Method::PUT, &format!("{path}{query}")).bearer_auth(api.admin.expose());
    let body = |leaf: &Leaf| leaf.body(Some(&issuer.pem));
    seen.ask(put("?dry_run=true").json(&body(&good))).await.expect(200);
    seen.ask(put("").json(&body(&good))).await.expect(202);
    let mismatched =
        json!({"certificate_pem": good.pem, "chain_pem": issuer.pem, "private_key_pem": other.key});
    seen.ask(put("").json(&mismatched)).await.expect(422);
    let misplaced = json!({"certificate_pem": other.key, "private_key_pem": good.pem});
    seen.ask(put("").json(&misplaced)).await.expect(422);
    seen.secret("the password of a database", DATABASE);
    let file = dir.join("cluster.url");
    std::fs::write(&file, format!("postgres://pdns:{DATABASE}@127.0.0.1:1/pdns")).unwrap();
    let cluster = json!({"name": "c", "database_url_file": file, "dns": "127.0.0.1:1", "enabled": true});
    let cluster = api.call(Method::POST, "/api/dns-clusters", cluster).await.expect(201).json();
    let test = format!("/api/dns-clusters/{}/test", cluster["id"].as_str().unwrap());
    let test = api.request(Method::POST, &test).bearer_auth(api.admin.expose());
    assert_eq!(seen.ask(test).await.expect(200).json()["ok"], false);
}

/// Reads everything that tells of what happened.
async fn read(api: &TestApi, seen: &mut Seen) {
    let head = api.head().await.get();
    let at = || async {
        let query =
            "select coalesce(min(position), 0) from projection_cursors where name in ('audit', 'operations')";
        sqlx::query_scalar::<_, i64>(query).fetch_one(&api.app.pool).await.unwrap()
    };
    eventually("the trail is at the head", at, |at| *at >= head).await;
    let lists =
        ["users", "tokens", "access-log", "tenants", "edges", "dns-clusters", "operations", "deployments"];
    let lists = lists.map(|list| format!("/api/{list}?limit=1000"));
    let zone = "/api/domains/example.test";
    let others = ["", "/tls", "/zone", "/revisions", "/diff?from=1&to=2"].map(|part| format!("{zone}{part}"));
    let rest = ["/api/events?after=0&limit=1000", "/api/audit?limit=1000", "/api/status", "/api/projections"];
    for path in lists.into_iter().chain(others).chain(rest.map(str::to_owned)) {
        seen.ask(api.request(Method::GET, &path).bearer_auth(api.admin.expose())).await.expect(200);
    }
    for form in ["text/csv", "application/x-ndjson"] {
        let audit =
            api.request(Method::GET, "/api/audit").bearer_auth(api.admin.expose()).header("accept", form);
        assert!(seen.ask(audit).await.expect(200).text.lines().count() > 10);
    }
    let stream = api.request(Method::GET, "/api/events/stream?after=0").bearer_auth(api.admin.expose());
    let mut stream = stream.send().await.unwrap();
    let last = format!(".{head}\n");
    let mut told = String::new();
    while !told.contains(&last) {
        let piece = tokio::time::timeout(std::time::Duration::from_secs(30), stream.chunk()).await;
        told.push_str(&String::from_utf8_lossy(&piece.expect("the stream says nothing").unwrap().unwrap()));
    }
    seen.answers.push_str(&told);
}

/// Every row of every table but what is sealed, by table.
async fn tables(api: &TestApi) -> BTreeMap<String, String> {
    let names: Vec<String> = sqlx::query_scalar(
        "select format('%I.%I', schemaname, tablename) from pg_tables \
         where schemaname not in ('pg_catalog', 'information_schema')",
    )
    .fetch_all(&api.app.pool)
    .await
    .unwrap();
    let mut tables = BTreeMap::new();
    for name in names {
        let shown = match name.as_str() {
            "public.sealed_secrets" => "(to_jsonb(t) - 'sealed')::text",
            "public.events" => "to_jsonb(t)::text || convert_from(data, 'UTF8')",
            // The one verifier that counts stands here, and nowhere else.
            "public.credentials" => "(to_jsonb(t) - 'verifier')::text",
            _ => "to_jsonb(t)::text",
        };
        let query = format!("select {shown} from {name} t");
        let rows: Vec<String> =
            sqlx::query_scalar(sqlx::AssertSqlSafe(query)).fetch_all(&api.app.pool).await.unwrap();
        tables.insert(name, rows.concat());
    }
    tables
}

#[tokio::test]
async fn no_secret_is_anywhere() {
    let lines = Lines::default();
    let logged = tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_writer(lines.clone());
    let _guard = tracing::subscriber::set_default(logged.finish());
    let recorder = PrometheusBuilder::new().build_recorder();
    let _measured = metrics::set_default_local_recorder(&recorder);
    let dir = tempfile::tempdir().unwrap();
    let key_file = dir.path().join("secret-key");
    assert!(vault::make(&key_file).unwrap());
    let api = TestApi::start(&format!("[secrets]\nkey_file = {key_file:?}\n")).await;
    // What tests beside this one, which have no subscriber, have made of the places that are told of.
    tracing::callsite::rebuild_interest_cache();
    tokio::spawn(headwater::operation::run(api.app.clone()));
    tokio::spawn(headwater::history::hub::run(api.app.clone()));
    let mut seen = Seen::default();
    people(&api, &mut seen).await;
    tokens(&api, &mut seen).await;
    keys(&api, &mut seen, dir.path()).await;
    let ring = std::fs::read_to_string(&key_file).unwrap();
    seen.secrets.insert("the ring".to_owned(), hex::decode(ring.trim().rsplit(' ').next().unwrap()).unwrap());
    // What is noted of callers is written in batches.
    let noted = || async {
        sqlx::query_scalar::<_, i64>("select count(*) from access_log")
            .fetch_one(&api.app.pool)
            .await
            .unwrap()
    };
    eventually("the access log is written", noted, |rows| *rows >= 3).await;
    read(&api, &mut seen).await;

    assert!(seen.secrets.len() > 10, "{:?}", seen.secrets.keys());
    let mut places = tables(&api).await;
    assert!(places.len() > 40 && places["public.sealed_secrets"].contains("certificate_key"));
    places.insert("an answer".to_owned(), seen.answers.clone());
    places.insert("the log".to_owned(), lines.text());
    places.insert("the metrics".to_owned(), recorder.handle().render());
    assert!(
        places["the log"].contains("answered") && places["the metrics"].contains("cdn_http_requests_total")
    );
    for (place, text) in &places {
        // A page's proof is told to it whenever it asks who it is; here nobody asked.
        assert_eq!(seen.found(text), [] as [&str; 0], "{place} holds a secret");
    }
    // And it would be found.
    sqlx::query("update people set name = $1")
        .bind(format!("x{}x", PASSWORDS[1]))
        .execute(&api.app.pool)
        .await
        .unwrap();
    assert_eq!(seen.found(&tables(&api).await["public.people"]), [PASSWORDS[1]]);
}
