//! No private key and no token stands in clear in the database, an event, an answer or a log line; what is derived of
//! edges is rebuilt to the same rows.

use std::io::Write;
use std::sync::{Arc, Mutex};

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use headwater::rebuild;
use headwater::vault::{Place, Vault};
use headwater_edge_wire::protocol::RegisterAnswer;
use rcgen::KeyPair;
use reqwest::Method;
use serde_json::{Value, json};
use sqlx::AssertSqlSafe;
use tracing_subscriber::fmt::MakeWriter;

use super::agent::csr;
use super::lab::Lab;

/// Every log line of this test's thread, which all of its tasks run on.
#[derive(Clone, Default)]
pub struct Lines(Arc<Mutex<Vec<u8>>>);

impl Lines {
    /// What was written so far.
    pub fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// Every row of every table, as text.
pub async fn everything(lab: &Lab) -> String {
    let tables: Vec<String> = sqlx::query_scalar(
        "select format('%I.%I', schemaname, tablename) from pg_tables \
         where schemaname not in ('pg_catalog', 'information_schema')",
    )
    .fetch_all(lab.pool())
    .await
    .unwrap();
    assert!(tables.len() > 30, "{tables:?}");
    let mut text = String::new();
    for table in tables {
        // Events keep their data as octets: as text too.
        let extra = if table == "public.events" { " || convert_from(data, 'UTF8')" } else { "" };
        let query = format!("select to_jsonb(t)::text{extra} from {table} t");
        let rows: Vec<String> = sqlx::query_scalar(AssertSqlSafe(query)).fetch_all(lab.pool()).await.unwrap();
        text.extend(rows);
    }
    text
}

/// Every spelling in which bytes could slip out.
pub fn spellings(secret: &[u8]) -> Vec<String> {
    let middle = &secret[secret.len() / 3..secret.len() / 3 * 2 + 1];
    let mut all = vec![hex::encode(secret), hex::encode_upper(secret), hex::encode(middle)];
    all.push(STANDARD.encode(secret));
    all.push(URL_SAFE_NO_PAD.encode(secret));
    all.extend(std::str::from_utf8(secret).ok().map(str::to_owned));
    all.push(format!("{secret:?}"));
    all
}

#[tokio::test]
async fn no_secret_stands_anywhere_in_clear() {
    let lines = Lines::default();
    let logged = tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_writer(lines.clone());
    let _guard = tracing::subscriber::set_default(logged.finish());
    tracing::info!("the log is being watched");
    let lab = Lab::new().await;
    let mut answers = String::new();
    let mut secrets: Vec<Vec<u8>> = Vec::new();
    let (edge, token) = lab.edge("fra1").await;
    let mut agent = lab.agent(edge);
    answers.push_str(&agent.send(Method::POST, "register", agent.registration(Some("hwe_wrong"))).await.text);
    let body = agent.registration(Some(&token));
    // Also where the body is refused.
    let mut broken = body.clone();
    broken.pop();
    answers.push_str(&agent.send(Method::POST, "register", broken).await.text);
    answers.push_str(&agent.send(Method::POST, "register", body).await.expect(200).text);
    agent.enrol(&token).await;
    answers.push_str(&agent.beat(1).await.expect(200).text);
    let old = agent.copy(1);
    secrets.push(agent.key.serialize_der());
    agent.key = KeyPair::generate().unwrap();
    agent.csr = csr(&edge.to_string(), &agent.key);
    let renewed = old.send(Method::POST, "register", agent.registration(None)).await.expect(200);
    answers.push_str(&renewed.text);
    agent.take(serde_json::from_value::<RegisterAnswer>(renewed.json()).unwrap());
    answers.push_str(&agent.get("manifest?after=0").await.expect(200).text);
    let rotated = lab.act(edge, "rotate-identity").await;
    for path in [format!("/api/edges/{edge}"), "/api/edges".into(), "/api/events".into(), "/api/audit".into()]
    {
        answers.push_str(&lab.api.get(&path).await.expect(200).text);
    }
    for token in [&token, rotated["bootstrap_token"].as_str().unwrap()] {
        secrets.push(token.as_bytes().to_vec());
        let body = URL_SAFE_NO_PAD.decode(token.strip_prefix("hwe_").unwrap()).unwrap();
        secrets.push(body[1..33].to_vec());
    }
    let vault = Vault::read(&lab.key_file).unwrap();
    let sealed: Vec<(String, String, i32, Vec<u8>)> =
        sqlx::query_as("select kind, id, version, sealed from sealed_secrets")
            .fetch_all(lab.pool())
            .await
            .unwrap();
    let kinds: Vec<&str> = sealed.iter().map(|one| one.0.as_str()).collect();
    assert!(
        ["edge_identity_authority", "edge_signing_key", "edge_content_key"]
            .iter()
            .all(|kind| kinds.contains(kind))
    );
    for (kind, id, version, sealed) in &sealed {
        let place = Place { kind, id, version: *version };
        secrets.push(vault.open_sealed(lab.pool(), place, sealed).await.unwrap().expose().to_vec());
    }
    let ring = std::fs::read_to_string(&lab.key_file).unwrap();
    secrets.push(hex::decode(ring.trim().rsplit(' ').next().unwrap()).unwrap());

    let log = lines.text();
    assert!(log.contains("the log is being watched"), "{log:?}");
    let database = everything(&lab).await;
    assert!(database.contains("edge.identity_issued") && database.contains(&hex::encode(&sealed[0].3)));
    for (place, text) in [("the database", &database), ("an answer", &answers), ("the log", &log)] {
        for (n, secret) in secrets.iter().enumerate() {
            for spelling in spellings(secret) {
                assert!(!text.contains(&spelling), "secret {n} stands in {place}");
            }
        }
    }
}

#[tokio::test]
async fn a_token_is_shown_once_and_never_kept_for_a_repetition() {
    let lab = Lab::new().await;
    let key = uuid::Uuid::new_v4().to_string();
    let headers = [("Idempotency-Key", key.as_str())];
    let body = json!({"name": "fra1", "country": "DE", "continent": "EU"});
    let post = || lab.api.send(&lab.api.admin, Method::POST, "/api/edges", Some(&body), &headers);
    let first = post().await.expect(201);
    let again = post().await.expect(201);
    assert_eq!(again.header("idempotency-replayed"), "true");
    let (first, again) = (first.json(), again.json());
    assert_eq!(
        (&first["id"], &again["bootstrap_token"], &again["command"]),
        (&again["id"], &Value::Null, &Value::Null)
    );
    let token = first["bootstrap_token"].as_str().unwrap();
    let line = first["command"].as_str().unwrap();
    assert!(line.starts_with(&format!("HEADWATER_EDGE_TOKEN={token} headwater-edge ")), "{line}");
    // A dry run draws none.
    let dry = lab.api.call(
        Method::POST,
        "/api/edges?dry_run=true",
        json!({"name": "x", "country": "DE", "continent": "EU"}),
    );
    let dry = dry.await.expect(200);
    assert!(!dry.text.contains("hwe_") && dry.json()["changed"] == true, "{dry:?}");
    let faulty = json!({"name": "", "country": "de", "continent": "Europe", "cells": 33});
    let faulty = lab.api.call(Method::POST, "/api/edges", faulty).await.expect_problem(422, "invalid").json();
    assert_eq!(faulty["errors"].as_array().unwrap().len(), 4, "{faulty}");
}

#[tokio::test]
async fn without_the_key_file_it_is_said_what_to_do() {
    let api = crate::support::TestApi::start("[secrets]\nkey_file = \"/nowhere/secret-key\"\n").await;
    let body = json!({"name": "fra1", "country": "DE", "continent": "EU"});
    let answer = api.call(Method::POST, "/api/edges", body).await.expect_problem(503, "unavailable");
    assert!(
        answer.text.contains("/nowhere/secret-key") && answer.text.contains("headwater init"),
        "{answer:?}"
    );
    // Everything else goes on.
    api.get("/api/edges").await.expect(200);
    let error = headwater::edge::bind(api.app.clone(), "127.0.0.1:0".parse().unwrap()).await.err().unwrap();
    assert!(error.to_string().contains("headwater init"), "{error}");
}

#[tokio::test]
async fn edges_and_pools_are_rebuilt_to_the_same_rows() {
    let lab = Lab::new().await;
    let (one, two) = (lab.enrolled("fra1").await, lab.enrolled("fra2").await);
    let patch = json!({"country": "FR", "labels": {"rack": "7"}, "external_id": "4711"});
    lab.api.call(Method::PATCH, &format!("/api/edges/{}", one.edge), patch).await.expect(200);
    lab.act(one.edge, "drain").await;
    lab.api.call(Method::POST, &format!("/api/cells/{}-1/drain", one.edge), Value::Null).await.expect(200);
    lab.act(two.edge, "rotate-identity").await;
    lab.act(two.edge, "disable").await;
    let (gone, _) = lab.edge("fra3").await;
    lab.act(gone, "disable").await;
    lab.api.call(Method::DELETE, &format!("/api/edges/{gone}"), Value::Null).await.expect(200);
    let pools = lab.api.get("/api/pools").await.expect(200).json();
    assert_eq!((&pools["items"][0]["name"], &pools["items"][0]["cells"]), (&json!("shared"), &json!(4)));
    let id = pools["items"][0]["id"].as_str().unwrap();
    assert_eq!(lab.api.get(&format!("/api/pools/{id}")).await.expect(200).json(), pools["items"][0]);

    let before = lab.api.get("/api/edges").await.expect(200).text;
    assert!(before.contains("4711") && before.contains("\"drained\":true"), "{before}");
    let found = rebuild::desired::verify(lab.pool(), None, &mut |_| {}).await.unwrap();
    assert!(found.is_empty(), "{found:?}");
    sqlx::query("update desired.edges set drained = false").execute(lab.pool()).await.unwrap();
    sqlx::query("delete from desired.cells where number = 1").execute(lab.pool()).await.unwrap();
    let found = rebuild::desired::verify(lab.pool(), None, &mut |_| {}).await.unwrap();
    assert_eq!(found.len(), 3, "{found:?}");
    rebuild::desired::rebuild(lab.pool(), &mut |_| {}).await.unwrap();
    assert_eq!(lab.api.get("/api/edges").await.expect(200).text, before);
    // A further append goes into the new one.
    lab.act(one.edge, "undrain").await;
}
