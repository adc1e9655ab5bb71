//! What is served through the life of a domain, asked of real servers: nothing before the proof, nothing while it is
//! disabled, everything again after.

use headwater::command::{Command, Meta, SubmitError};
use headwater::rebuild::desired;
use headwater_events::actor::{Actor, ActorKind, Caller, Role};
use headwater_events::dns::RrType;
use headwater_events::domain::{CreateDomain, DomainCommand, Proof};
use headwater_events::ids::DomainId;
use headwater_events::reject::Reject;
use reqwest::Method;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{Owner, types};
use crate::deploy::lab::{Does, Lab, domain};
use crate::support::{TestApi, eventually};

const ZONE: &str = "example.com";

/// Asks both clusters, PowerDNS and dnsdist of each.
fn said(lab: &Lab, name: &str) -> Vec<String> {
    let all: Vec<String> = (0..lab.clusters.len()).flat_map(|one| lab.dig_each(one, name, "A")).collect();
    all
}

fn everywhere(said: &[String], what: &str) -> bool {
    said.iter().all(|one| one.contains(what))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disabled_domain_is_refused_by_every_server_and_kept() {
    let lab = Lab::doing(2, Does::Place).await;
    lab.create(ZONE).await;
    lab.put(ZONE, "www", RrType::A, &["192.0.2.1"]).await;
    lab.create("other.com").await;
    lab.put("other.com", "www", RrType::A, &["192.0.2.9"]).await;
    lab.current(ZONE).await;
    lab.current("other.com").await;
    assert!(everywhere(&said(&lab, "www.example.com"), "192.0.2.1"));

    let disabled = lab.domain(ZONE, DomainCommand::Disable).await;
    assert!(disabled.changed && disabled.operation.is_some());
    assert!(!lab.domain(ZONE, DomainCommand::Disable).await.changed, "twice is once");
    lab.settled(ZONE, "removed").await;
    let ended = "select state from operations.operations where id = $1";
    let state = async || {
        let query = sqlx::query_scalar::<_, String>(ended).bind(disabled.operation.unwrap().as_uuid());
        query.fetch_one(&lab.app.pool).await.unwrap()
    };
    eventually("the operation ended", state, |state| state == "succeeded").await;
    // dnsdist may keep an answer for as long as its TTL; PowerDNS answers for what is there.
    for one in 0..2 {
        assert_eq!(lab.dig_each(one, "www.example.com", "A")[0], "REFUSED");
        assert_eq!(lab.dig_each(one, "example.com", "SOA")[0], "REFUSED");
        let rows: i64 = sqlx::query_scalar("select count(*) from domains where name = 'example.com'")
            .fetch_one(&lab.target(one).await)
            .await
            .unwrap();
        assert_eq!(rows, 0);
    }
    assert!(everywhere(&said(&lab, "www.other.com"), "192.0.2.9"), "nobody else notices");

    // It is still its owner's to write; nothing of that is served, and whole states are compared as equal.
    let put = lab.put(ZONE, "www", RrType::A, &["192.0.2.2"]).await;
    assert!(put.changed && put.operation.is_none());
    lab.settled(ZONE, "removed").await;
    assert_eq!(lab.dig_each(0, "www.example.com", "A")[0], "REFUSED");
    assert_eq!(desired::verify(&lab.app.pool, None, &mut |_| {}).await.unwrap(), []);

    let enabled = lab.domain(ZONE, DomainCommand::Enable).await;
    assert!(enabled.changed && enabled.operation.is_some());
    assert!(!lab.domain(ZONE, DomainCommand::Enable).await.changed);
    lab.current(ZONE).await;
    for one in 0..2 {
        assert!(lab.dig_each(one, "www.example.com", "A")[0].contains("192.0.2.2"));
    }
    assert_eq!(desired::verify(&lab.app.pool, None, &mut |_| {}).await.unwrap(), []);

    // Disabled, deleted and restored, it is disabled still.
    lab.domain(ZONE, DomainCommand::Disable).await;
    lab.domain(ZONE, DomainCommand::Delete).await;
    lab.domain(ZONE, DomainCommand::Restore).await;
    lab.settled(ZONE, "removed").await;
    assert_eq!(lab.dig_each(0, "www.example.com", "A")[0], "REFUSED");
    lab.domain(ZONE, DomainCommand::Enable).await;
    lab.current(ZONE).await;
    assert!(lab.dig_each(1, "www.example.com", "A")[0].contains("192.0.2.2"));
    assert_eq!(desired::verify(&lab.app.pool, None, &mut |_| {}).await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_served_before_the_proof() {
    let lab = Lab::doing(1, Does::Place).await;
    let create = CreateDomain {
        id: DomainId::from_uuid(Uuid::now_v7()),
        name: domain(ZONE),
        tenant: lab.tenant,
        force_active: false,
        labels: Default::default(),
        external_id: None,
        rrsets: Vec::new(),
        serial_floor: None,
    };
    lab.submit(Command::CreateDomain(create)).await.unwrap();
    lab.put(ZONE, "www", RrType::A, &["192.0.2.1"]).await;
    lab.create("mark.com").await;
    lab.current("mark.com").await;
    assert_eq!(lab.deployments(ZONE).await, []);
    assert_eq!(lab.dig_each(0, "www.example.com", "A")[0], "REFUSED");
    // Its owner cannot say so itself.
    let id = Uuid::now_v7();
    let actor = Actor { kind: ActorKind::User, id, token: None, on_behalf_of: None };
    let mut owner = Caller::new(actor, false);
    owner.tenants.insert(lab.tenant, Role::Owner);
    let command = Command::Domain { name: domain(ZONE), command: DomainCommand::Activate(Proof::Forced) };
    let refused = lab.app.commit.submit(owner, command, Meta::internal()).await;
    assert!(matches!(refused, Err(SubmitError::Rejected(Reject::Forbidden(_)))), "{refused:?}");
    assert!(lab.domain(ZONE, DomainCommand::Activate(Proof::Forced)).await.operation.is_some());
    lab.current(ZONE).await;
    assert!(lab.dig_each(0, "www.example.com", "A")[0].contains("192.0.2.1"));
}

/// The life of a domain as its history tells it.
async fn remembered(api: &TestApi, zone: &str) {
    // What it was, at each of its revisions.
    let was = ["pending_verification", "active", "disabled", "active", "disabled", "disabled"];
    let by = [Value::Null, Value::Null, json!("owner"), Value::Null, json!("owner"), json!("operator")];
    for (revision, (status, by)) in (1..).zip(was.into_iter().zip(by)) {
        let then = api.get(&format!("{zone}?revision={revision}")).await.expect(200).json();
        assert_eq!((&then["status"], &then["disabled_by"]), (&json!(status), &by), "revision {revision}");
    }
    let differs = api.get(&format!("{zone}/diff?from=2&to=5")).await.expect(200).json();
    let status = json!({"path": "/status", "before": "active", "after": "disabled"});
    assert_eq!(differs["items"], json!([status]));
    let expected =
        ["created", "activated", "disabled", "enabled", "disabled", "disabled", "deleted", "restored"];
    let found = types(api, "example.com").await;
    let found: Vec<&str> = found
        .iter()
        .filter(|one| !one.contains("member"))
        .filter_map(|one| one.strip_prefix("domain."))
        .collect();
    assert_eq!(found[..8], expected);
    let why = api.get("/api/explain?name=www.example.com&type=A").await.expect(200).json();
    assert_eq!(why["hops"][0]["state"], "ok");
    assert_eq!(desired::verify(&api.app.pool, None, &mut |_| {}).await.unwrap(), []);
}

#[tokio::test]
async fn what_an_administrator_disabled_no_owner_enables() {
    let api = TestApi::start("").await;
    let owner = Owner::of(&api, "one").await;
    let zone = "/api/domains/example.com";
    owner.claim(&api, "example.com").await.expect(201);
    let at = |what: &str| format!("{zone}/{what}");
    // What is not served yet can be neither.
    for what in ["disable", "enable"] {
        owner.post(&api, &at(what)).await.expect_problem(409, "not_verified");
    }
    owner.post(&api, &at("activate")).await.expect_problem(403, "forbidden");
    let plan = api.call(Method::POST, &format!("{}?dry_run=true", at("activate")), Value::Null).await;
    let status = json!({"path": "/status", "before": "pending_verification", "after": "active"});
    assert_eq!(plan.expect(200).json()["diff"][0], status);
    api.call(Method::POST, &at("activate"), Value::Null).await.expect(202);
    let again = api.call(Method::POST, &at("activate"), Value::Null).await.expect(200);
    assert_eq!(again.json(), json!({"changed": false, "revision": 2, "operation": null}));

    // The owner's own word is its own to take back; an editor has none.
    let (editor, token) = api.user("editor@example.com", false, &[]).await;
    let member = format!("{zone}/members/{editor}");
    owner.call(&api, Method::PUT, &member, json!({"role": "editor"})).await.expect(200);
    api.send(&token, Method::POST, &at("disable"), None, &[]).await.expect_problem(403, "forbidden");
    owner.post(&api, &at("disable")).await.expect(202);
    let shown = api.get(zone).await.json();
    assert_eq!((&shown["status"], &shown["disabled_by"]), (&json!("disabled"), &json!("owner")));
    owner.post(&api, &at("enable")).await.expect(202);
    assert_eq!(api.get(zone).await.json()["disabled_by"], Value::Null);

    // An administrator's stands above it, whoever was first.
    owner.post(&api, &at("disable")).await.expect(202);
    api.call(Method::POST, &at("disable"), Value::Null).await.expect(200);
    assert_eq!(api.get(zone).await.json()["disabled_by"], "operator");
    assert_eq!(owner.post(&api, &at("disable")).await.expect(200).json()["changed"], false);
    owner.post(&api, &at("enable")).await.expect_problem(403, "forbidden");
    // Neither deletion and restore nor an undo or a rollback is a way around it.
    owner.call(&api, Method::DELETE, zone, Value::Null).await.expect(200);
    owner.post(&api, &at("restore")).await.expect(200);
    owner.post(&api, &at("enable")).await.expect_problem(403, "forbidden");
    let shown = api.get(zone).await.json();
    assert_eq!((&shown["status"], &shown["disabled_by"]), (&json!("disabled"), &json!("operator")));
    let undo = json!({"revision": 6});
    owner.call(&api, Method::POST, &at("undo"), undo).await.expect_problem(422, "not_undoable");
    let put = json!({"ttl": 300, "records": ["192.0.2.1"]});
    owner.call(&api, Method::PUT, &at("rrsets/www/A"), put).await.expect(200);
    let seen = api.get(&at("status")).await.json();
    assert_eq!((&seen["status"], &seen["state"]), (&json!("disabled"), &json!("none")));
    api.call(Method::POST, &at("activate"), Value::Null).await.expect_problem(409, "disabled");
    api.call(Method::POST, &at("enable"), Value::Null).await.expect(202);
    assert_eq!(api.get(zone).await.json()["status"], "active");

    remembered(&api, zone).await;
    // Its facade and its searches are those of a domain that is there.
    owner.post(&api, &at("disable")).await.expect(202);
    let why = api.get("/api/explain?name=www.example.com&type=A").await.expect(200).json();
    assert_eq!(why["hops"][0]["command"], "headwater domain enable example.com --wait");
    let key = [("x-api-key", api.admin.expose())];
    let zones = "/api/v1/servers/localhost/zones";
    let zones = api.send(&api.admin, Method::GET, zones, None, &key).await.expect(200).json();
    assert_eq!(zones[0]["name"], "example.com.");
    let found = api.get("/api/rrsets?content=192.0.2.1").await.expect(200).json();
    assert_eq!(found["items"].as_array().unwrap().len(), 1);
}

/// Deleted: not served, held for its owner, then anybody's; and whatever comes after it has higher serials.
#[tokio::test]
async fn a_deleted_name_is_held_and_then_another_ones() {
    const DAY: i64 = 86_400_000;
    let api = TestApi::start("[limits]\nhold_days = 3\n").await;
    let (owner, other) = (Owner::of(&api, "one").await, Owner::of(&api, "two").await);
    let zone = "/api/domains/example.com";
    let force = |owner: &Owner| json!({"name": "example.com", "tenant": owner.tenant, "force_active": true});
    api.call(Method::POST, "/api/domains", force(&owner)).await.expect(202);
    let put = json!({"ttl": 300, "records": ["192.0.2.1"]});
    for name in ["a", "b", "c"] {
        owner.call(&api, Method::PUT, &format!("{zone}/rrsets/{name}/A"), put.clone()).await.expect(202);
    }
    let serial = |domain: Value| domain["serial"].as_u64().unwrap();
    let first = serial(api.get(zone).await.json());
    // Restored in time it is what it was.
    owner.call(&api, Method::DELETE, zone, Value::Null).await.expect(202);
    api.clock.turn(2 * DAY);
    other.claim(&api, "example.com").await.expect_problem(409, "name_taken");
    let held = other.get(&api, zone).await.expect_problem(404, "not_found");
    assert!(!held.text.contains("hold"), "{held:?}");
    owner.post(&api, &format!("{zone}/restore")).await.expect(202);
    assert_eq!(owner.get(&api, zone).await.expect(200).json()["rrsets"], 3);
    let second = serial(api.get(zone).await.json());
    assert!(second > first);
    // Made anew by its owner, and then by another once the hold is over.
    owner.call(&api, Method::DELETE, zone, Value::Null).await.expect(202);
    let status = owner.get(&api, zone).await.expect(200).json();
    assert_eq!((&status["status"], status["hold_until"].is_string()), (&json!("removed"), true));
    let third = serial(status);
    api.clock.turn(6 * DAY);
    owner.post(&api, &format!("{zone}/restore")).await.expect_problem(409, "hold_expired");
    let made = other.claim(&api, "example.com").await.expect(201).json();
    assert_eq!((&made["rrsets"], &made["status"]), (&json!(0), &json!("pending_verification")));
    assert!(serial(made) > third);
    // Nothing of what was is the new owner's, and nothing that is now is the former's.
    owner.get(&api, zone).await.expect(404);
    let events = other.get(&api, "/api/events?domain=example.com").await.expect(200).json();
    let seen: Vec<&str> =
        events["items"].as_array().unwrap().iter().map(|one| one["type"].as_str().unwrap()).collect();
    assert_eq!(seen, ["domain.created"]);
    assert_eq!(desired::verify(&api.app.pool, None, &mut |_| {}).await.unwrap(), []);
}
