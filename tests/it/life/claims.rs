//! Who may have a name that others want too, or that lies above or below another's.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};
use uuid::Uuid;

use super::Owner;
use crate::support::{Answer, TestApi, eventually};

/// Owners who claim at once.
const OWNERS: usize = 50;
/// Groups of conflicting names; every owner claims a name of each.
const GROUPS: usize = 20;

fn related(one: &str, other: &str) -> bool {
    one == other || one.ends_with(&format!(".{other}")) || other.ends_with(&format!(".{one}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_thousand_conflicting_claims_those_win_that_may_stand_side_by_side() {
    let unbounded = "[limits]\nmutations_per_minute = 1000000\n";
    let api = TestApi::start(unbounded).await;
    let twin = api.join(unbounded).await;
    let mut owners = Vec::new();
    for number in 0..OWNERS {
        owners.push(Owner::of(&api, &format!("owner{number}")).await);
    }
    let claims = owners.iter().enumerate().flat_map(|(number, owner)| {
        (0..GROUPS).map(move |group| {
            // The name itself, above, and below, by turns that differ from group to group.
            let name = match (number + group) % 4 {
                0 => format!("a.victim{group}.com"),
                1 => format!("b.a.victim{group}.com"),
                2 => format!("c.victim{group}.com"),
                _ => format!("victim{group}.com"),
            };
            (number, owner, name)
        })
    });
    let addresses = [api.address, twin.address];
    let sent = claims.map(|(number, owner, name)| {
        let (key, body) = (Uuid::now_v7().to_string(), json!({"name": name}));
        let request = api.request_at(addresses[number % 2], Method::POST, "/api/domains");
        let request = request.bearer_auth(owner.token.expose()).json(&body).header("Idempotency-Key", key);
        async move {
            // On a busy machine a process may be out of connections for a moment: then it is the same claim again.
            let again = async || {
                let sent = request.try_clone().expect("the body is there").send().await;
                Answer::of(sent.unwrap()).await
            };
            let answer = eventually(&name, again, |answer| answer.status.as_u16() != 503).await;
            (number, name, answer)
        }
    });
    let answers = join_all(sent).await;
    assert_eq!(answers.len(), OWNERS * GROUPS);
    let mut won: BTreeMap<String, usize> = BTreeMap::new();
    for (number, name, answer) in &answers {
        match answer.status.as_u16() {
            201 => assert_eq!(won.insert(name.clone(), *number), None, "{name} has two owners"),
            409 => assert_eq!(answer.json()["code"], "name_taken"),
            _ => panic!("{name}: {answer:?}"),
        }
    }
    let all: Vec<_> = won.iter().collect();
    for (index, (name, number)) in all.iter().enumerate() {
        for (other, theirs) in &all[index + 1..] {
            assert!(number == theirs || !related(name, other), "{name} of {number} and {other} of {theirs}");
        }
    }
    // Nobody lost to nobody: whoever was refused conflicts with somebody who won.
    for (number, name, answer) in answers.iter().filter(|(.., answer)| answer.status.as_u16() == 409) {
        let lost_to =
            won.iter().any(|(other, theirs)| related(name, other) && (theirs != number || name == other));
        assert!(lost_to, "{name} of {number}: {answer:?}");
    }
    let groups: BTreeSet<&str> = won.keys().map(|name| name.rsplit('.').nth(1).expect("the group")).collect();
    assert_eq!(groups.len(), GROUPS, "every group has a winner");
    let kept: Vec<String> =
        sqlx::query_scalar("select name from desired.domains where current order by name")
            .fetch_all(&api.app.pool)
            .await
            .unwrap();
    assert_eq!(kept, won.into_keys().collect::<Vec<_>>());
}

#[tokio::test]
async fn a_name_above_or_below_anothers_takes_consent() {
    let api = TestApi::start("").await;
    let (victim, attacker) = (Owner::of(&api, "victim").await, Owner::of(&api, "attacker").await);
    let force =
        |name: &str, owner: &Owner| json!({"name": name, "tenant": owner.tenant, "force_active": true});
    api.call(Method::POST, "/api/domains", force("victim.test", &victim)).await.expect(202);
    api.call(Method::POST, "/api/domains", force("api.deep.test", &victim)).await.expect(202);
    for name in ["api.victim.test", "a.b.c.victim.test", "deep.test", "x.api.deep.test"] {
        attacker.claim(&api, name).await.expect_problem(409, "name_taken");
    }
    // What only begins alike is nobody's business.
    for name in ["notvictim.test", "api-victim.test", "other.deep.test"] {
        attacker.claim(&api, name).await.expect(201);
    }
    // Its own owner may, and an administrator agrees for it.
    victim.claim(&api, "shop.victim.test").await.expect(201);
    api.call(Method::POST, "/api/domains", force("api.victim.test", &attacker)).await.expect(202);
    // While a deleted one is held, so are the names above and below it; then they are free.
    let held = "/api/domains/api.deep.test";
    victim.call(&api, Method::DELETE, held, Value::Null).await.expect(202);
    for name in ["x.api.deep.test", "api.deep.test"] {
        attacker.claim(&api, name).await.expect_problem(409, "name_taken");
    }
    api.call(Method::DELETE, "/api/domains/other.deep.test", Value::Null).await.expect(200);
    api.clock.turn(8 * 86_400_000);
    attacker.claim(&api, "x.api.deep.test").await.expect(201);
    victim.post(&api, &format!("{held}/restore")).await.expect_problem(409, "hold_expired");
}
