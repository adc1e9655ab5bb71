//! Who is answered: only the holder of a live identity of an enabled edge, judged at every request; clones are noticed;
//! nothing hostile is taken in.

use std::time::{Duration, Instant};

use headwater::edge::authority::Authority;
use headwater::edge::csr;
use headwater::vault::{Place, Vault};
use headwater_edge_wire::ids::EdgeId;
use rcgen::KeyPair;
use reqwest::Method;
use serde_json::{Value, json};

use super::agent::{Agent, client};
use super::lab::Lab;

/// Every route but the registration.
const ROUTES: [(&str, &str); 8] = [
    ("POST", "heartbeat"),
    ("GET", "manifest"),
    ("POST", "artifacts"),
    ("GET", "snapshot"),
    ("POST", "applied"),
    ("POST", "rejected"),
    ("GET", "tasks"),
    ("POST", "tasks/0190a000-0000-7000-8000-000000000001/result"),
];

async fn all_refused(agent: &Agent, status: u16, code: &str) {
    for (method, path) in ROUTES {
        let method: Method = method.parse().unwrap();
        agent.send(method, path, Vec::new()).await.expect_problem(status, code);
    }
}

/// The same keys with another certificate.
fn with_certificate(lab: &Lab, pem: &str, key: &KeyPair) -> reqwest::Client {
    client(&lab.authority, Some((pem, key)), None, &[&rustls::version::TLS13])
}

#[tokio::test]
async fn without_an_identity_there_is_only_registration() {
    let lab = Lab::new().await;
    let (edge, _) = lab.edge("fra1").await;
    let nobody = lab.agent(edge);
    all_refused(&nobody, 401, "identity_needed").await;
    nobody.get("nowhere").await.expect_problem(404, "not_found");
    nobody.get("register").await.expect_problem(405, "method_not_allowed");
    // Nothing but TLS 1.3.
    let old = client(&lab.authority, None, None, &[&rustls::version::TLS12]);
    assert!(old.get(format!("https://{}/edge/v1/tasks", lab.control)).send().await.is_err());
    // The listener proves itself with the authority of the token, with no other.
    let (other, _) = Authority::make().unwrap();
    let misled = client(&other, None, None, &[&rustls::version::TLS13]);
    assert!(misled.get(format!("https://{}/edge/v1/tasks", lab.control)).send().await.is_err());
}

#[tokio::test]
async fn a_certificate_alone_is_not_enough() {
    let lab = Lab::new().await;
    let agent = lab.enrolled("fra1").await;
    let tasks = format!("https://{}/edge/v1/tasks", lab.control);
    let key = csr::read(&agent.csr, agent.edge).unwrap();
    let week = Duration::from_secs(604_800);
    // Of another authority, though in the same name: it ends in the handshake.
    let (certificate, secret) = Authority::make().unwrap();
    let foreign = Authority::load(certificate, &secret).unwrap();
    let now = headwater_events::time::Timestamp::from(chrono::Utc::now());
    let forged = foreign.issue(agent.edge, &key, now, week).unwrap();
    let forger = with_certificate(&lab, &forged.certificate, &agent.key);
    assert!(forger.get(&tasks).send().await.is_err());
    // Of the right one, but not known here: as after a restore.
    let vault = Vault::read(&lab.key_file).unwrap();
    let sealed: Vec<u8> =
        sqlx::query_scalar("select sealed from sealed_secrets where kind = 'edge_identity_authority'")
            .fetch_one(lab.pool())
            .await
            .unwrap();
    let place = Place { kind: "edge_identity_authority", id: "platform", version: 1 };
    let secret = vault.open_sealed(lab.pool(), place, &sealed).await.unwrap();
    let own = Authority::load(lab.authority.clone(), &secret).unwrap();
    let unknown = own.issue(agent.edge, &key, now, week).unwrap();
    let stranger = with_certificate(&lab, &unknown.certificate, &agent.key);
    let answer = crate::support::Answer::of(stranger.get(&tasks).send().await.unwrap()).await;
    answer.expect_problem(403, "identity_unknown");
    // Past its end.
    let begun = headwater_events::time::Timestamp::from_millis(now.as_millis() - 86_400_000);
    let ended = own.issue(agent.edge, &key, begun, Duration::from_secs(3_600)).unwrap();
    assert!(with_certificate(&lab, &ended.certificate, &agent.key).get(&tasks).send().await.is_err());
    agent.get("tasks").await.expect(200);
}

#[tokio::test]
async fn what_is_revoked_or_disabled_counts_at_the_next_request() {
    let lab = Lab::new().await;
    let mut agent = lab.enrolled("fra1").await;
    agent.beat(1).await.expect(200);
    lab.act(agent.edge, "disable").await;
    all_refused(&agent, 403, "edge_disabled").await;
    lab.act(agent.edge, "enable").await;
    agent.beat(2).await.expect(200);

    // A long poll that is under way ends as well.
    let poll = agent.get("manifest?after=0&wait=30");
    let revoke = async {
        lab.polled().await;
        let begun = Instant::now();
        (lab.act(agent.edge, "rotate-identity").await, begun)
    };
    let (polled, (enrolment, begun)) = tokio::join!(poll, revoke);
    polled.expect_problem(403, "identity_revoked");
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    all_refused(&agent, 403, "identity_revoked").await;
    let renewal = agent.send(Method::POST, "register", agent.registration(None)).await;
    renewal.expect_problem(403, "identity_revoked");
    assert_eq!(lab.show(agent.edge).await["identity"], Value::Null);
    // The new token is for whoever the operator gives it to.
    let again = lab.agent(agent.edge);
    agent = again;
    agent.enrol(enrolment["bootstrap_token"].as_str().unwrap()).await;
    agent.beat(1).await.expect(200);
    let told = lab.events(agent.edge).await;
    assert_eq!(told[told.len() - 2..], ["edge.identity_revoked", "edge.identity_issued"]);
}

#[tokio::test]
async fn a_deleted_edge_is_nobody_and_its_name_is_free() {
    let lab = Lab::new().await;
    let agent = lab.enrolled("fra1").await;
    agent.beat(1).await.expect(200);
    let path = format!("/api/edges/{}", agent.edge);
    lab.api.call(Method::DELETE, &path, Value::Null).await.expect_problem(409, "edge_enabled");
    lab.act(agent.edge, "disable").await;
    lab.api.call(Method::DELETE, &path, Value::Null).await.expect(200);
    all_refused(&agent, 403, "identity_unknown").await;
    lab.api.get(&path).await.expect_problem(404, "not_found");
    let (next, token) = lab.edge("fra1").await;
    assert_ne!(next, agent.edge);
    lab.agent(next).enrol(&token).await;
    let body = json!({"name": "fra1", "country": "DE", "continent": "EU"});
    lab.api.call(Method::POST, "/api/edges", body).await.expect_problem(409, "name_taken");
}

async fn cloned(lab: &Lab, edge: EdgeId) -> Value {
    lab.show(edge).await["identity"]["cloned"].clone()
}

#[tokio::test]
async fn two_hosts_with_one_identity_are_noticed() {
    let lab = Lab::new().await;
    // Two counters side by side.
    let one = lab.enrolled("fra1").await;
    let copy = one.copy(1);
    for (agent, sequence) in [(&one, 100), (&one, 101), (&copy, 1), (&one, 102)] {
        assert_eq!(cloned(&lab, one.edge).await, Value::Null);
        agent.beat(sequence).await.expect(200);
    }
    assert_eq!(cloned(&lab, one.edge).await, "counters");
    // Two addresses in turn.
    let two = lab.enrolled("fra2").await;
    let copy = two.copy(9);
    for sequence in 1..=4 {
        assert_eq!(cloned(&lab, two.edge).await, Value::Null);
        let agent = if sequence % 2 == 0 { &copy } else { &two };
        agent.beat(sequence).await.expect(200);
    }
    assert_eq!(cloned(&lab, two.edge).await, "sources");
    // An older key beside the newer one.
    let mut three = lab.enrolled("fra3").await;
    three.beat(1).await.expect(200);
    let old = three.copy(1);
    three.key = KeyPair::generate().unwrap();
    three.csr = super::agent::csr(&three.edge.to_string(), &three.key);
    let next = old.send(Method::POST, "register", three.registration(None)).await.expect(200).json();
    three.take(serde_json::from_value(next).unwrap());
    three.beat(2).await.expect(200);
    old.beat(3).await.expect(200);
    assert_eq!(cloned(&lab, three.edge).await, Value::Null, "a change of keys has requests under way");
    let later = "update edge_identities set used_at = used_at - interval '61 seconds' where edge_id = $1";
    sqlx::query(later).bind(three.edge.as_uuid()).execute(lab.pool()).await.unwrap();
    old.beat(4).await.expect(200);
    old.beat(5).await.expect(200);
    assert_eq!(cloned(&lab, three.edge).await, "keys");
    let told = lab.events(three.edge).await;
    assert_eq!(told.iter().filter(|kind| *kind == "edge.identity_cloned").count(), 1, "one alarm");

    let status = lab.api.get("/api/status").await.expect(200).json();
    let named: Vec<&str> =
        status["edges"].as_array().unwrap().iter().map(|edge| edge["name"].as_str().unwrap()).collect();
    assert_eq!(named, ["fra1", "fra2", "fra3"]);
    let problems = status["problems"].to_string();
    assert!(problems.contains("fra3 seems to be used twice (keys)"), "{problems}");
    // A new identity ends the alarm.
    lab.act(three.edge, "rotate-identity").await;
    assert_eq!(lab.show(three.edge).await["identity"], Value::Null);
}

#[tokio::test]
async fn an_edge_that_falls_silent_is_told() {
    let lab = Lab::new().await;
    let agent = lab.enrolled("fra1").await;
    agent.beat(1).await.expect(200);
    let shown = lab.show(agent.edge).await;
    assert_eq!((&shown["in_service"], &shown["agent"]), (&true.into(), &"1.2.3".into()));
    assert_eq!(shown["cell_states"].as_array().unwrap().len(), 2);
    // Both listeners answer, but nothing was taken in yet.
    assert_eq!(shown["cell_states"][1]["ready"], false);
    assert_eq!(shown["cell_states"][1]["not_ready"], "it has taken in nothing yet");
    assert_eq!(shown["cell_states"][1]["report"]["connections"], 3);
    let stale = || async { lab.api.get("/api/status").await.expect(200).json()["edges"].clone() };
    assert_eq!(stale().await, json!([]));
    let earlier = "update edge.heartbeats set fresh_until = fresh_until - interval '45 seconds'";
    sqlx::query(earlier).execute(lab.pool()).await.unwrap();
    assert_eq!(stale().await[0]["silent"], true);
    assert_eq!(lab.show(agent.edge).await["in_service"], false);
    agent.beat(2).await.expect(200);
    assert_eq!(stale().await, json!([]));
}

#[tokio::test]
async fn hostile_bodies_are_bounded_and_refused() {
    let lab = Lab::new().await;
    let agent = lab.enrolled("fra1").await;
    let large = |bytes: usize| vec![b' '; bytes];
    let rows: [(&str, Vec<u8>, u16, &str); 12] = [
        ("register", large((32 << 10) + 1), 413, "too_large"),
        ("heartbeat", large((256 << 10) + 1), 413, "too_large"),
        ("artifacts", large((512 << 10) + 1), 413, "too_large"),
        ("applied", large((512 << 10) + 1), 413, "too_large"),
        ("register", b"{}".to_vec(), 400, "malformed"),
        ("heartbeat", b"[".to_vec(), 400, "malformed"),
        ("heartbeat", vec![0xff; 100], 400, "malformed"),
        ("applied", br#"{"cell":32,"epoch":1,"sequence":0}"#.to_vec(), 400, "malformed"),
        ("applied", br#"{"cell":0,"epoch":1,"sequence":0,"x":1}"#.to_vec(), 400, "malformed"),
        ("applied", br#"{"cell":2,"epoch":1,"sequence":0}"#.to_vec(), 422, "no_such_cell"),
        ("applied", br#"{"cell":0,"epoch":1,"sequence":9007199254740991}"#.to_vec(), 422, "ahead"),
        (
            "artifacts",
            json!({"checksums": vec!["ab".repeat(32); 501]}).to_string().into_bytes(),
            422,
            "out_of_range",
        ),
    ];
    for (path, body, status, code) in rows {
        agent.send(Method::POST, path, body).await.expect_problem(status, code);
    }
    for query in [
        "after=-1",
        "after=x",
        "after=1&after=2",
        "since=1",
        "after=99999999999999999999",
        "after",
        "epoch=a",
    ] {
        agent.get(&format!("manifest?{query}")).await.expect_problem(400, "malformed");
    }
    // A text that the database cannot hold, deep inside of what is kept.
    let mut beat: Value = serde_json::from_slice(&agent.heartbeat(1)).unwrap();
    beat["cells"][0]["detail"] = json!("a\u{0}b");
    agent.post("heartbeat", &beat).await.expect_problem(400, "malformed");
    beat["cells"][0]["detail"] = json!("x".repeat(1_001));
    agent.post("heartbeat", &beat).await.expect_problem(422, "out_of_range");
    // What a later version adds is no fault.
    beat["cells"][0]["detail"] = Value::Null;
    beat["later"] = json!({"a": 1});
    agent.post("heartbeat", &beat).await.expect(200);
    agent.post("tasks/x/result", &json!({"outcome": "done", "detail": "", "output": ""})).await;
    assert_eq!(agent.get("tasks").await.expect(200).json(), json!({"items": []}));
}
