//! The key of a certificate on its way to one edge: sealed for that edge alone, on pages and in snapshots; and nowhere
//! in clear on any way.

use std::collections::BTreeSet;

use headwater::edge::signing;
use headwater::operation::project::{self, Stepped};
use headwater_edge_wire::artifact::ArtifactBudget;
use headwater_edge_wire::manifest::{LiveDescriptor, Page};
use headwater_edge_wire::snapshot::{Part, SnapshotReader};
use reqwest::Method;
use serde_json::{Value, json};
use sqlx::Executor;

use super::agent::{Agent, reader};
use super::lab::Lab;
use super::pages::{bulk, follow, live};
use super::secrets::{Lines, everything, spellings};
use crate::certs::mint::{Ca, Leaf};

const ZONE: &str = "/api/domains/example.test";
const CUSTOM: &str = "/api/domains/example.test/tls/custom-certificate";

async fn publish(lab: &Lab) {
    let (edge, head) = (signing::projection(&lab.api.app).await, lab.api.head().await);
    while !matches!(project::step(&lab.api.app, &edge).await.unwrap(), Stepped::AtHead(at) if at >= head) {}
}

async fn with_site(lab: &Lab) {
    let new = json!({"name": "example.test", "force_active": true});
    lab.api.call(Method::POST, "/api/domains", new).await.expect(202);
    let origin = json!({"origin": {"scheme": "http", "host": "origin.example.org"}});
    lab.api.call(Method::PUT, &format!("{ZONE}/hostnames/www"), origin).await.expect(202);
}

/// The keys of a descriptor, as the agent opens them.
fn opened(agent: &Agent, page: &Page, live: &LiveDescriptor) -> Vec<(u64, String)> {
    let content_key = agent.sealing.0.open(&page.content_key, agent.edge).unwrap();
    let open = |key| String::from_utf8(content_key.open_key(key).unwrap().expose().to_vec()).unwrap();
    live.keys.iter().map(|key| (key.version.get(), open(key))).collect()
}

/// The one page of the snapshot.
async fn whole(agent: &Agent) -> (Page, Vec<LiveDescriptor>) {
    let bytes = bulk(agent, Method::GET, "snapshot", Value::Null).await;
    let mut snapshot = SnapshotReader::new(agent.pins(), reader(), ArtifactBudget::default());
    let (mut input, mut pages) = (bytes.as_slice(), Vec::new());
    while let Some(part) = snapshot.read(&mut input).unwrap() {
        if let Part::Page(page) = part {
            pages.push(page.into_page());
        }
    }
    snapshot.finish().unwrap();
    let live = live(&pages).into_iter().cloned().collect();
    (pages.remove(0), live)
}

async fn bring(lab: &Lab, issuer: &Ca) -> Leaf {
    let leaf = issuer.leaf(&["www.example.test"]);
    lab.api.call(Method::PUT, CUSTOM, leaf.body(Some(&issuer.pem))).await.expect(202);
    publish(lab).await;
    leaf
}

#[tokio::test]
async fn each_edge_gets_the_key_sealed_for_itself() {
    let lab = Lab::new().await;
    let (one, two) = (lab.enrolled("fra1").await, lab.enrolled("fra2").await);
    with_site(&lab).await;
    let issuer = Ca::root("Root").below("Issuer");
    let first = bring(&lab, &issuer).await;
    for agent in [&one, &two] {
        let (pages, _) = follow(agent, agent.pins()).await;
        let page = pages.last().unwrap();
        assert_eq!(opened(agent, page, live(&pages)[0]), [(1, first.key.replace("\r\n", "\n"))]);
        let (page, live) = whole(agent).await;
        assert_eq!(opened(agent, &page, &live[0]).len(), 1, "in a snapshot too");
        let other = if agent.edge == one.edge { &two } else { &one };
        assert!(other.sealing.0.open(&page.content_key, agent.edge).is_err());
    }
    let second = bring(&lab, &issuer).await;
    let (pages, _) = follow(&one, one.pins()).await;
    let renewed = opened(&one, pages.last().unwrap(), live(&pages)[0]);
    assert_eq!(renewed, [(2, second.key.replace("\r\n", "\n"))]);
    // A key that cannot be had stops nobody else: the domain alone comes without it.
    lab.pool().execute("delete from sealed_secrets where kind = 'certificate_key'").await.unwrap();
    let (pages, _) = follow(&one, one.pins()).await;
    assert_eq!(live(&pages)[0].keys, vec![]);
    let broken = "insert into sealed_secrets (kind, id, version, public, sealed) \
                  select 'certificate_key', c.id::text, c.version, '', '\\x00' from desired.certificates c";
    lab.pool().execute(broken).await.unwrap();
    let (pages, _) = follow(&one, one.pins()).await;
    assert_eq!(live(&pages)[0].keys, vec![]);
}

#[tokio::test]
async fn no_private_key_stands_anywhere_in_clear() {
    let lines = Lines::default();
    let logged = tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_writer(lines.clone());
    let _guard = tracing::subscriber::set_default(logged.finish());
    tracing::info!("the log is being watched");
    let lab = Lab::new().await;
    let agent = lab.enrolled("fra1").await;
    with_site(&lab).await;
    let issuer = Ca::root("Root").below("Issuer");
    let key = uuid::Uuid::now_v7().to_string();
    let headers = [("Idempotency-Key", key.as_str()), ("Change-Note", "a note")];
    let (first, second) = (issuer.leaf(&["www.example.test"]), issuer.leaf(&["www.example.test"]));
    let mut answers = String::new();
    let send = |path: &str, body: Value, headers: Vec<(&'static str, String)>| {
        let (api, path) = (&lab.api, path.to_owned());
        async move {
            let headers: Vec<(&str, &str)> =
                headers.iter().map(|(name, text)| (*name, text.as_str())).collect();
            api.send(&api.admin, Method::PUT, &path, Some(&body), &headers).await.text
        }
    };
    let good = first.body(Some(&issuer.pem));
    let keyed = || headers.iter().map(|(name, text)| (*name, (*text).to_owned())).collect::<Vec<_>>();
    answers.push_str(&send(&format!("{CUSTOM}?dry_run=true"), good.clone(), Vec::new()).await);
    answers.push_str(&send(CUSTOM, good.clone(), keyed()).await);
    answers.push_str(&send(CUSTOM, good.clone(), keyed()).await);
    // Refused in every way: another key with the same header, a key in a wrong place, one that does not fit, no JSON.
    answers.push_str(&send(CUSTOM, second.body(Some(&issuer.pem)), keyed()).await);
    for body in [
        json!({"certificate_pem": first.key, "chain_pem": first.key, "private_key_pem": first.pem}),
        json!({"certificate_pem": first.pem, "private_key_pem": second.key}),
        json!({"certificate_pem": first.pem, "private_key_pem": first.key.replace('\n', " ")}),
        json!({"certificate_pem": first.pem, "private_key_pem": {"pem": first.key}}),
        json!({"certificate_pem": first.pem, "key": first.key}),
    ] {
        answers.push_str(&send(CUSTOM, body, Vec::new()).await);
    }
    let torn = good.to_string();
    let request = lab.api.request(Method::PUT, CUSTOM).bearer_auth(lab.api.admin.expose());
    let request = request.header("content-type", "application/json").body(torn[..torn.len() - 9].to_owned());
    answers.push_str(&request.send().await.unwrap().text().await.unwrap());
    answers.push_str(&send(CUSTOM, second.body(Some(&issuer.pem)), Vec::new()).await);
    publish(&lab).await;
    for path in ["/tls", "/revisions", "/revisions/3", "/revisions/4", "/hostnames"] {
        answers.push_str(&lab.api.get(&format!("{ZONE}{path}")).await.expect(200).text);
    }
    for path in ["/api/events?limit=1000", "/api/audit?limit=1000", "/api/operations", "/openapi.json"] {
        answers.push_str(&lab.api.get(path).await.expect(200).text);
    }
    answers.push_str(&agent.get("manifest?after=0").await.expect(200).text);
    let (page, live) = whole(&agent).await;
    answers.push_str(&serde_json::to_string(&page).unwrap());
    assert_eq!(opened(&agent, &page, &live[0]), [(2, second.key.clone())]);

    let log = lines.text();
    assert!(log.contains("the log is being watched"), "{log:?}");
    let database = everything(&lab).await;
    assert!(database.contains("certificate.replaced") && database.contains("certificate_key"));
    assert!(answers.contains("www.example.test"));
    let mut leaks = BTreeSet::new();
    for (n, leaf) in [first, second].iter().enumerate() {
        let key = rcgen::KeyPair::from_pem(&leaf.key).unwrap();
        let mut secrets = vec![key.serialize_der()];
        // Each line of the PEM that says something of the key, and not of its kind alone.
        secrets.extend(leaf.key.lines().filter(|line| line.len() == 64).map(|line| line.as_bytes().to_vec()));
        for (place, text) in [("the database", &database), ("an answer", &answers), ("the log", &log)] {
            for secret in &secrets {
                if spellings(secret).iter().any(|spelling| text.contains(spelling)) {
                    leaks.insert(format!("key {n} stands in {place}"));
                }
            }
        }
    }
    assert_eq!(leaks, BTreeSet::new());
}
