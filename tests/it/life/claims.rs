//! Who may have a name that others want too, or that lies above or below another's.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::future::join_all;
use headwater::command::{Command, Meta, SubmitError};
use headwater_events::actor::{Actor, ActorKind, Caller, Role};
use headwater_events::dns::DomainName;
use headwater_events::domain::CreateDomain;
use headwater_events::ids::{DomainId, TenantId};
use headwater_events::reject::Reject;
use reqwest::Method;
use serde_json::{Value, json};
use uuid::Uuid;

use super::Owner;
use crate::support::TestApi;

/// Owners who claim at once.
const OWNERS: usize = 50;
/// Groups of conflicting names; every owner claims a name of each.
const GROUPS: usize = 20;

fn related(one: &str, other: &str) -> bool {
    one == other || one.ends_with(&format!(".{other}")) || other.ends_with(&format!(".{one}"))
}

/// An owner of a tenant, as the committers know it.
fn owner_of(tenant: TenantId) -> Caller {
    let actor = Actor { kind: ActorKind::User, id: Uuid::now_v7(), token: None, on_behalf_of: None };
    let mut caller = Caller::new(actor, false);
    caller.tenants.insert(tenant, Role::Owner);
    caller
}

fn claim(name: &str, tenant: TenantId) -> Command {
    Command::CreateDomain(CreateDomain {
        id: DomainId::from_uuid(Uuid::now_v7()),
        name: DomainName::parse(name).unwrap(),
        tenant,
        force_active: false,
        labels: BTreeMap::new(),
        external_id: None,
        serial_floor: None,
        rrsets: Vec::new(),
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_thousand_conflicting_claims_those_win_that_may_stand_side_by_side() {
    let api = TestApi::start("").await;
    let twin = api.join("").await;
    let mut owners = Vec::new();
    for number in 0..OWNERS {
        owners.push(api.tenant(&format!("owner{number}")).await);
    }
    let claims = owners.iter().enumerate().flat_map(|(number, tenant)| {
        (0..GROUPS).map(move |group| {
            // The name itself, above, and below, by turns that differ from group to group.
            let name = match (number + group) % 4 {
                0 => format!("a.victim{group}.com"),
                1 => format!("b.a.victim{group}.com"),
                2 => format!("c.victim{group}.com"),
                _ => format!("victim{group}.com"),
            };
            (number, *tenant, name)
        })
    });
    // All at once, half of them at each of two processes.
    let sent = claims.map(|(number, tenant, name)| {
        let commit = if number % 2 == 0 { &api.app.commit } else { &twin.app.commit };
        async move {
            let answer = commit.submit(owner_of(tenant), claim(&name, tenant), Meta::internal()).await;
            (number, name, answer)
        }
    });
    let answers = join_all(sent).await;
    assert_eq!(answers.len(), OWNERS * GROUPS);
    let mut won: BTreeMap<String, usize> = BTreeMap::new();
    for (number, name, answer) in &answers {
        match answer {
            Ok(_) => assert_eq!(won.insert(name.clone(), *number), None, "{name} has two owners"),
            Err(SubmitError::Rejected(Reject::NameTaken(_))) => {}
            Err(error) => panic!("{name}: {error:?}"),
        }
    }
    let all: Vec<_> = won.iter().collect();
    for (index, (name, number)) in all.iter().enumerate() {
        for (other, theirs) in &all[index + 1..] {
            assert!(number == theirs || !related(name, other), "{name} of {number} and {other} of {theirs}");
        }
    }
    // Nobody lost to nobody: whoever was refused conflicts with somebody who won.
    for (number, name, answer) in answers.iter().filter(|(.., answer)| answer.is_err()) {
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
