//! How ownership is proven, by what servers of others say: over UDP and TCP, right, wrong, and not at all.

use domain::base::Rtype;
use reqwest::Method;
use serde_json::{Value, json};

use super::names::{OTHERS, Says, World, circle, nobody, referral, refused, txt};
use super::{Owner, types};
use crate::support::{TestApi, eventually};

const MINUTE: i64 = 60_000;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
const OURS: &str = "ns1.example.net";

/// A domain, what each server of its parent says, and what is made of it: proven, or a result and a part of its detail.
type Row = (&'static str, [Says; 2], Result<(), (&'static str, &'static str)>);

async fn lab() -> (World, TestApi) {
    let world = World::start().await;
    let api = TestApi::start(&world.config()).await;
    tokio::spawn(headwater::verify::run(api.app.clone()));
    (world, api)
}

fn path(name: &str) -> String {
    format!("/api/domains/{name}")
}

/// Awaits what a domain is shown to be.
async fn shown(api: &TestApi, name: &str, is_met: impl Fn(&Value) -> bool) -> Value {
    let path = path(name);
    eventually(name, async || api.get(&path).await.expect(200).json(), is_met).await
}

/// Awaits the first look at a domain that stays unproven.
async fn looked(api: &TestApi, name: &str) -> Value {
    shown(api, name, |domain| !domain["verification"]["last"].is_null()).await["verification"].clone()
}

async fn claimed(api: &TestApi, owner: &Owner, name: &str) -> (String, String) {
    let made = owner.claim(api, name).await.expect(201).json();
    let text = |at: &str| made["verification"]["txt"][at].as_str().unwrap().to_owned();
    (text("name"), text("value"))
}

#[tokio::test]
async fn a_delegation_proves_a_domain_where_every_server_that_answers_says_so() {
    let (world, api) = lab().await;
    let owner = Owner::of(&api, "one").await;
    let silent = || [Says::Nothing, Says::Nothing];
    let both = |zone: &str, to: &[&str]| [referral(zone, to), referral(zone, to)];
    let large = |zone: &str| Says::Large(Box::new(referral(zone, &[OURS])));
    let rows: Vec<Row> = vec![
        ("ours.test", both("ours.test", &[OURS]), Ok(())),
        ("mixed.test", both("mixed.test", &[OURS, OTHERS[0]]), Ok(())),
        ("one.test", [referral("one.test", &["NS2.example.net"]), Says::Nothing], Ok(())),
        ("refused.test", [refused(), referral("refused.test", &[OURS])], Ok(())),
        ("large.test", [large("large.test"), large("large.test")], Ok(())),
        (
            "divided.test",
            [referral("divided.test", &[OURS]), referral("divided.test", &["ns.lame.example"])],
            Err(("unknown", "do not agree")),
        ),
        ("half.test", [referral("half.test", &[OURS]), nobody()], Err(("unknown", "do not agree"))),
        ("foreign.test", both("foreign.test", &["ns.lame.example"]), Err(("not_proven", "ns.lame.example"))),
        ("nobody.test", [nobody(), nobody()], Err(("not_proven", "to nobody"))),
        ("silent.test", silent(), Err(("unknown", "no name server of the parent"))),
        ("lame.test", [refused(), refused()], Err(("unknown", "no name server of the parent"))),
        ("above.test", both("test", &[OURS]), Err(("unknown", "no name server of the parent"))),
    ];
    for (name, says, _) in &rows {
        world.parents_say(name, says.clone());
    }
    for (name, ..) in &rows {
        owner.claim(&api, name).await.expect(201);
    }
    for (name, _, expected) in rows {
        match expected {
            Ok(()) => {
                let domain = shown(&api, name, |domain| domain["status"] == "active").await;
                assert_eq!((&domain["verification"], &domain["revision"]), (&Value::Null, &json!(2)));
                shown(&api, name, |domain| domain["delegation"] == "ok").await;
                assert_eq!(types(&api, name).await, ["domain.created", "domain.activated"]);
            }
            Err((result, detail)) => {
                let open = looked(&api, name).await;
                assert_eq!(open["last"]["result"], result, "{name} {open}");
                assert!(open["last"]["detail"].as_str().unwrap().contains(detail), "{name} {open}");
                let domain = api.get(&path(name)).await.expect(200).json();
                assert_eq!(
                    (&domain["status"], &domain["delegation"]),
                    (&json!("pending_verification"), &json!("unknown"))
                );
                assert_eq!(open["nameservers"], json!(["ns1.example.net", "ns2.example.net"]));
            }
        }
    }
    // Parked names that lead to nobody, and a hundred claims of them: none is served.
    for number in 0..100 {
        let parked = format!("parked{number}.test");
        world.delegates(&parked, &OTHERS);
        owner.claim(&api, &parked).await.expect(201);
    }
    let count = "select count(*) from domain_checks c join desired.domains d on d.id = c.domain_id \
                 where d.name like 'parked%' and c.checked_at is not null and d.status = 'pending_verification'";
    let seen = async || sqlx::query_scalar::<_, i64>(count).fetch_one(&api.app.pool).await.unwrap();
    eventually("all were looked at", seen, |seen| *seen == 100).await;

    // What is below a domain of its owner's needs no question.
    owner.claim(&api, "sub.ours.test").await.expect(201);
    shown(&api, "sub.ours.test", |domain| domain["status"] == "active").await;
    let proof: String = sqlx::query_scalar(
        "select convert_from(data, 'UTF8') from events where domain = 'sub.ours.test' and type = 'domain.activated'",
    )
    .fetch_one(&api.app.pool)
    .await
    .unwrap();
    assert_eq!(proof, r#"{"proof":"parent"}"#);
    // A private address is no name server of anybody's where that is not allowed, so nothing is asked there.
    let strict = format!("[dns]\nresolver = '{}'\n", world.resolver.address);
    let safe = TestApi::start(&strict).await;
    tokio::spawn(headwater::verify::run(safe.app.clone()));
    safe.call(Method::POST, "/api/domains", json!({"name": "ours.test"})).await.expect(201);
    let open = looked(&safe, "ours.test").await;
    assert!(open["last"]["detail"].as_str().unwrap().contains("can be asked"), "{open}");
}

#[tokio::test]
async fn a_text_at_every_server_with_authority_proves_a_domain() {
    let (world, api) = lab().await;
    let (owner, other) = (Owner::of(&api, "one").await, Owner::of(&api, "two").await);
    let zones =
        ["right.test", "half.test", "lame.test", "circle.test", "wrong.test", "one.test", "large.test"];
    for zone in zones {
        world.delegates(zone, &OTHERS);
        let (name, value) = claimed(&api, &owner, zone).await;
        assert_eq!(name, format!("_headwater-challenge.{zone}"));
        // As a claim of somebody else has it.
        let theirs = format!("headwater-verification={}", "0".repeat(40));
        let right = || txt(&name, &["unrelated", &value], true);
        let says = match zone {
            "right.test" => [right(), right()],
            "half.test" => [right(), nobody()],
            "lame.test" => [txt(&name, &[&value], false), refused()],
            "circle.test" => [circle(&name), circle(&name)],
            "wrong.test" => [txt(&name, &[&theirs], true), txt(&name, &[&theirs], true)],
            "one.test" => [right(), Says::Nothing],
            _ => [Says::Large(Box::new(right())), Says::Large(Box::new(right()))],
        };
        for (server, says) in world.others.iter().zip(says) {
            server.says(&name, Rtype::TXT, says);
        }
    }
    // Whoever looked before the record was there looks again.
    api.clock.turn(2 * MINUTE);
    for zone in ["right.test", "one.test", "large.test"] {
        shown(&api, zone, |domain| domain["status"] == "active").await;
    }
    for zone in ["half.test", "lame.test", "circle.test", "wrong.test"] {
        let open = looked(&api, zone).await;
        assert_eq!(open["last"]["result"], "not_proven", "{zone} {open}");
        assert_eq!(api.get(&path(zone)).await.json()["status"], "pending_verification");
    }
    // The same name claimed by another, after that: another value.
    let first = api.get(&path("wrong.test")).await.json()["verification"]["txt"]["value"].clone();
    owner.call(&api, Method::DELETE, &path("wrong.test"), Value::Null).await.expect(200);
    api.clock.turn(8 * DAY);
    let (_, second) = claimed(&api, &other, "wrong.test").await;
    assert_ne!(first, json!(second));
}

#[tokio::test]
async fn what_was_served_here_for_another_takes_more_than_a_delegation() {
    let (world, api) = lab().await;
    let (owner, other) = (Owner::of(&api, "one").await, Owner::of(&api, "two").await);
    world.delegates("left.test", &[OURS]);
    owner.claim(&api, "left.test").await.expect(201);
    shown(&api, "left.test", |domain| domain["status"] == "active").await;
    owner.call(&api, Method::DELETE, &path("left.test"), Value::Null).await.expect(202);
    other.claim(&api, "left.test").await.expect_problem(409, "name_taken");
    // The hold is over, and the delegation that the former owner forgot still leads here.
    api.clock.turn(8 * DAY);
    let (name, value) = claimed(&api, &other, "left.test").await;
    let open = looked(&api, "left.test").await;
    assert!(open["last"]["detail"].as_str().unwrap().contains("for somebody else before"), "{open}");
    assert_eq!(api.get(&path("left.test")).await.json()["status"], "pending_verification");
    // What only its owner can do: delegate it elsewhere, and say so there.
    world.delegates("left.test", &OTHERS);
    for server in &world.others {
        server.says(&name, Rtype::TXT, txt(&name, &[&value], true));
    }
    other.post(&api, &format!("{}/verify", path("left.test"))).await.expect(200);
    shown(&api, "left.test", |domain| domain["status"] == "active").await;
    // Its own former name proves itself by its delegation.
    other.call(&api, Method::DELETE, &path("left.test"), Value::Null).await.expect(202);
    world.delegates("left.test", &[OURS]);
    claimed(&api, &other, "left.test").await;
    shown(&api, "left.test", |domain| domain["status"] == "active").await;
}

#[tokio::test]
async fn looks_come_further_and_further_apart_and_are_asked_for() {
    let (world, api) = lab().await;
    let owner = Owner::of(&api, "one").await;
    world.delegates("slow.test", &["ns.lame.example"]);
    owner.claim(&api, "slow.test").await.expect(201);
    let at = |open: &Value, key: &str| {
        let text = if key == "at" { &open["last"]["at"] } else { &open[key] };
        chrono::DateTime::parse_from_rfc3339(text.as_str().unwrap()).unwrap().timestamp_millis()
    };
    let (mut turned, mut before) = (0, 0);
    for (number, minutes) in [1, 2, 4, 8, 16, 32, 60, 60].into_iter().enumerate() {
        let seen = shown(&api, "slow.test", |domain| {
            let open = &domain["verification"];
            !open["last"].is_null() && at(open, "at") > before
        });
        let open = seen.await["verification"].clone();
        let pause = at(&open, "next_check_at") - at(&open, "at");
        let allowed = minutes * MINUTE * 9 / 10 - 1_000..=minutes * MINUTE * 11 / 10 + 1_000;
        assert!(allowed.contains(&pause), "look {number}: {pause} ms");
        before = at(&open, "at");
        turned += pause + 1_000;
        api.clock.turn(turned);
    }
    // Asked for, it is looked at now, and once in ten seconds.
    let verify = format!("{}/verify", path("slow.test"));
    world.delegates("slow.test", &[OURS]);
    let reader = api.user("viewer@example.com", false, &[]).await;
    let role = json!({"role": "viewer"});
    let member = format!("{}/members/{}", path("slow.test"), reader.0);
    owner.call(&api, Method::PUT, &member, role).await.expect(200);
    api.send(&reader.1, Method::POST, &verify, None, &[]).await.expect(403);
    let plan = owner.post(&api, &format!("{verify}?dry_run=true")).await.expect(200).json();
    assert_eq!((&plan["changed"], &plan["diff"]), (&json!(false), &json!([])));
    owner.post(&api, &verify).await.expect(200);
    let late = owner.post(&api, &verify).await.expect_problem(429, "rate_limited");
    assert!((1..=10).contains(&late.header("retry-after").parse::<u64>().unwrap()), "{late:?}");
    shown(&api, "slow.test", |domain| domain["status"] == "active").await;
    // A platform without a resolver cannot look, and says so.
    let blind = TestApi::start("").await;
    blind.call(Method::POST, "/api/domains", json!({"name": "slow.test"})).await.expect(201);
    blind.call(Method::POST, &verify, Value::Null).await.expect_problem(409, "no_resolver");
}

#[tokio::test]
async fn a_delegation_that_is_lost_is_told_and_ends_nothing() {
    let (world, api) = lab().await;
    let owner = Owner::of(&api, "one").await;
    world.delegates("moved.test", &[OURS]);
    owner.claim(&api, "moved.test").await.expect(201);
    shown(&api, "moved.test", |domain| domain["delegation"] == "ok").await;
    // Never here: nothing to lose.
    world.delegates("forced.test", &OTHERS);
    let forced = json!({"name": "forced.test", "force_active": true});
    api.call(Method::POST, "/api/domains", forced).await.expect(202);
    let seen = |domain: &Value| domain["delegation_check"]["result"] == "elsewhere";
    assert_eq!(shown(&api, "forced.test", seen).await["delegation"], "unknown");

    // A day later nobody answers, then one of two: that is no loss.
    let result = |result: &'static str| move |domain: &Value| domain["delegation_check"]["result"] == result;
    world.parents_say("moved.test", [Says::Nothing, refused()]);
    api.clock.turn(27 * HOUR);
    assert_eq!(shown(&api, "moved.test", result("unknown")).await["delegation"], "unknown");
    world.parents_say("moved.test", [referral("moved.test", &[OURS]), referral("moved.test", &OTHERS)]);
    let before = api.get(&path("moved.test")).await.json()["delegation_check"]["at"].clone();
    api.clock.turn(29 * HOUR);
    let again = |domain: &Value| domain["delegation_check"]["at"] != before;
    assert_eq!(shown(&api, "moved.test", again).await["delegation_check"]["result"], "unknown");
    assert_eq!(types(&api, "moved.test").await, ["domain.created", "domain.activated"]);

    // All of them say so.
    world.delegates("moved.test", &OTHERS);
    api.clock.turn(31 * HOUR);
    let lost = shown(&api, "moved.test", |domain| domain["delegation"] == "lost").await;
    assert_eq!((&lost["status"], &lost["revision"]), (&json!("active"), &json!(2)));
    let status = api.get("/api/status").await.expect(200).json();
    assert_eq!(status["delegations_lost"][0]["domain"], "moved.test");
    // Its owner sees it in the history, and a look a day later says nothing new.
    let events = owner.get(&api, "/api/events?domain=moved.test&type=domain.delegation").await.expect(200);
    let events = events.json();
    let told = events["items"].as_array().unwrap();
    assert_eq!((told.len(), &told[0]["type"]), (1, &json!("domain.delegation_lost")));
    let before = lost["delegation_check"]["at"].clone();
    api.clock.turn(60 * HOUR);
    shown(&api, "moved.test", |domain| domain["delegation_check"]["at"] != before).await;
    world.delegates("moved.test", &[OURS]);
    api.clock.turn(90 * HOUR);
    shown(&api, "moved.test", |domain| domain["delegation"] == "ok").await;
    let all = types(&api, "moved.test").await;
    assert_eq!(all[2..], ["domain.delegation_lost", "domain.delegation_restored"]);
    assert_eq!(api.get("/api/status").await.json()["delegations_lost"], json!([]));
    // What was seen can be thrown away.
    sqlx::query("delete from domain_checks").execute(&api.app.pool).await.unwrap();
    let differences = headwater::rebuild::desired::verify(&api.app.pool, None, &mut |_| {}).await.unwrap();
    assert_eq!(differences, []);
}

#[tokio::test]
async fn what_is_never_proven_is_given_up() {
    let (world, api) = lab().await;
    let (owner, other) = (Owner::of(&api, "one").await, Owner::of(&api, "two").await);
    world.delegates("kept.test", &[OURS]);
    for name in ["never.test", "kept.test", "deleted.test"] {
        owner.claim(&api, name).await.expect(201);
    }
    shown(&api, "kept.test", |domain| domain["status"] == "active").await;
    let open = api.get(&path("never.test")).await.json()["verification"]["expires_at"].clone();
    assert!(open.is_string());
    api.clock.turn(14 * DAY - HOUR);
    other.claim(&api, "never.test").await.expect_problem(409, "name_taken");
    owner.call(&api, Method::DELETE, &path("deleted.test"), Value::Null).await.expect(200);
    api.clock.turn(14 * DAY + HOUR);
    shown(&api, "never.test", |domain| domain["status"] == "removed").await;
    assert_eq!(types(&api, "never.test").await, ["domain.created", "domain.expired"]);
    owner.post(&api, &format!("{}/restore", path("never.test"))).await.expect_problem(409, "hold_expired");
    owner.post(&api, &format!("{}/restore", path("deleted.test"))).await.expect_problem(409, "expired");
    other.claim(&api, "never.test").await.expect(201);
    assert_eq!(api.get(&path("kept.test")).await.json()["status"], "active");
    // A rebuild gives the same rows.
    let differences = headwater::rebuild::desired::verify(&api.app.pool, None, &mut |_| {}).await.unwrap();
    assert_eq!(differences, []);
}
