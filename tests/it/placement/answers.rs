//! What is answered: while edges come, go, fall silent and come back; whether it is rendered whole or change by change.

use headwater::rebuild::Intent;
use headwater_events::dns::RrType;
use headwater_events::domain::DomainCommand;
use headwater_events::edge::{EdgeCommand, EdgePatch};
use headwater_events::event::Projection;
use headwater_events::ids::DomainId;
use sqlx::Executor;

use super::{Placed, TARGET, ZONE};
use crate::support::{eventually, projection};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_lead_to_the_edges_that_are_ready() {
    let placed = Placed::new().await;
    let lab = &placed.lab;
    assert_eq!(placed.ask("www", "CNAME").await, "NXDOMAIN", "nothing is ready");
    let fra = placed.edge("fra1", "9.9.9.1").await;
    placed.reports(fra, false).await;
    lab.current(ZONE).await;
    assert_eq!(placed.changes().await, 0, "an edge that does not answer is not ready");
    let before = generations(&placed).await;
    placed.reports(fra, true).await;
    placed.answers("@", "A", "9.9.9.1").await;
    placed.answers("www", "CNAME", TARGET).await;
    let shared = || async { lab.dig(0, "shared.edge.example.net", "A") };
    let expected = "NOERROR\nanswer shared.edge.example.net. A 9.9.9.1";
    eventually("the pool is answered", shared, |seen| seen == expected).await;

    let ams = placed.edge("ams1", "2606:4700::1").await;
    placed.reports(ams, true).await;
    placed.answers("@", "AAAA", "2606:4700::1").await;
    lab.current("example.test").await;
    lab.current(ZONE).await;
    // What does not answer with addresses is not touched by them.
    assert_eq!(generations(&placed).await["plain.test"], before["plain.test"]);
    assert!(generations(&placed).await["example.test"] > before["example.test"]);
    for id in [placed.site, placed.plain, zone_id(&placed).await] {
        placed.verify(id).await;
    }
    // Without a name of its own, a name below makes it an empty non-terminal; a proxied name is a name below.
    lab.submit(super::proxy("b.a")).await.unwrap();
    placed.acks(fra).await;
    placed.acks(ams).await;
    placed.answers("b.a", "CNAME", TARGET).await;
    assert_eq!(placed.ask("a", "A").await, "NOERROR");
    placed.verify(placed.site).await;

    // Change by change came to what the whole gives, and the log tells all of it.
    lab.current("example.test").await;
    let target = lab.target(0).await;
    let sum = || async {
        let query = sqlx::query_scalar("select checksum from hw_zones where name = 'example.test'");
        query.fetch_one(&target).await.unwrap()
    };
    let kept: Vec<u8> = sum().await;
    target.execute("update hw_zones set checksum = decode(repeat('00', 32), 'hex')").await.unwrap();
    eventually("it is summed up anew, and the same", sum, |sum| *sum == kept).await;
    assert_eq!(projection::run(&lab.app, Projection::Desired, Intent::Verify).await, []);
}

async fn zone_id(placed: &Placed) -> DomainId {
    let query = sqlx::query_scalar("select id from desired.domains where name = $1 and current").bind(ZONE);
    DomainId::from_uuid(query.fetch_one(&placed.lab.app.pool).await.unwrap())
}

async fn generations(placed: &Placed) -> std::collections::BTreeMap<String, i64> {
    let query = "select d.name, t.desired_generation from desired.deployments t join desired.domains d on d.id = t.domain_id";
    sqlx::query_as(query).fetch_all(&placed.lab.app.pool).await.unwrap().into_iter().collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_answered_is_never_lost_with_the_heartbeats() {
    let (placed, fra) = Placed::with_edge().await;
    let ams = placed.edge("ams1", "9.9.9.2").await;
    placed.reports(ams, true).await;
    placed.answers("@", "A", "9.9.9.2").await;
    // One of two is silent: it is taken out.
    placed.falls_silent(ams).await;
    let both = || async { placed.ask("@", "A").await };
    eventually("the silent one is gone", both, |seen| !seen.contains("9.9.9.2")).await;
    placed.answers("@", "A", "9.9.9.1").await;
    // Both are: the last one stays.
    placed.falls_silent(fra).await;
    let changes = placed.changes().await;
    let alarm = || async {
        let facts = headwater::placement::load(&placed.lab.app.pool).await.unwrap();
        headwater::placement::alarms(&facts, Some(&crate::deploy::lab::domain(ZONE)))
    };
    eventually("an alarm", alarm, |told| told.iter().any(|one| one.contains("no edge is ready"))).await;
    looked_again(&placed).await;
    assert_eq!(placed.changes().await, changes);
    assert!(placed.ask("@", "A").await.contains("9.9.9.1"));
    // A restore begins the numbering of edges anew: no acknowledgement counts, and nothing is lost either.
    placed.reports(ams, true).await;
    placed.answers("@", "A", "9.9.9.2").await;
    let renewed = "update log_meta set edge_epoch = edge_epoch + 1";
    placed.lab.app.pool.execute(renewed).await.unwrap();
    looked_again(&placed).await;
    assert!(placed.ask("@", "A").await.contains("9.9.9.2"));
}

/// Awaits a few looks of the one who places, which nothing shows: an edge that becomes ready does, so it is asked for in
/// another way, by the time that passes.
async fn looked_again(placed: &Placed) {
    let enough = tokio::time::Instant::now() + std::time::Duration::from_millis(2_500);
    let passed = || async { (tokio::time::Instant::now() > enough, placed.changes().await) };
    eventually("a few looks", passed, |seen| seen.0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_operator_asks_for_is_done_at_once() {
    let (placed, fra) = Placed::with_edge().await;
    let drain =
        headwater_events::admin::AdminCommand::Edge { edge: fra, command: EdgeCommand::SetDrained(true) };
    let refused = placed.lab.submit(headwater::command::Command::admin(drain)).await.unwrap_err();
    assert!(refused.to_string().contains("last_endpoint"), "{refused}");
    let ams = placed.edge("ams1", "9.9.9.2").await;
    placed.reports(ams, true).await;
    placed.answers("@", "A", "9.9.9.2").await;
    placed.run(fra, EdgeCommand::SetDrained(true)).await;
    let seen = || async { placed.ask("@", "A").await };
    eventually("the drained one is gone", seen, |seen| !seen.contains("9.9.9.1")).await;
    placed.run(fra, EdgeCommand::SetDrained(false)).await;
    placed.answers("@", "A", "9.9.9.1").await;
    let moved = EdgePatch { addresses: Some(vec!["9.9.9.3".parse().unwrap()]), ..EdgePatch::default() };
    placed.run(fra, EdgeCommand::Update(moved)).await;
    placed.answers("@", "A", "9.9.9.3").await;
    let told: Vec<String> = sqlx::query_scalar(
        "select jsonb_array_elements_text(convert_from(data, 'UTF8')::jsonb->'why') from events \
         where type = 'platform.endpoints_changed' order by position",
    )
    .fetch_all(&placed.lab.app.pool)
    .await
    .unwrap();
    let expected = [
        "fra1 is ready",
        "ams1 is ready",
        "fra1: it is drained",
        "fra1 is ready",
        "fra1 has the addresses 9.9.9.3",
    ];
    assert_eq!(told, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_domain_stays_gone_and_comes_back_with_what_is_ready_then() {
    let (placed, fra) = Placed::with_edge().await;
    let lab = &placed.lab;
    lab.domain("example.test", DomainCommand::Delete).await;
    lab.settled("example.test", "removed").await;
    let ams = placed.edge("ams1", "9.9.9.2").await;
    placed.reports(ams, true).await;
    let shared = || async { lab.dig(0, "shared.edge.example.net", "A") };
    eventually("the pool has it", shared, |seen| seen.contains("9.9.9.2")).await;
    looked_again(&placed).await;
    assert_eq!(placed.ask("@", "A").await.lines().next(), Some("REFUSED"));
    lab.domain("example.test", DomainCommand::Restore).await;
    placed.acks(fra).await;
    placed.acks(ams).await;
    placed.answers("@", "A", "9.9.9.2").await;
    placed.answers("@", "A", "9.9.9.1").await;
    lab.current("example.test").await;
    placed.verify(placed.site).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_names_of_pools_are_the_platforms() {
    let (placed, _) = Placed::with_edge().await;
    let lab = &placed.lab;
    for (rrtype, records) in [(RrType::A, ["192.0.2.1"]), (RrType::NS, ["ns.example.org."])] {
        let rrset = crate::deploy::lab::rrset(ZONE, "shared", rrtype, &records);
        let command = headwater::command::Command::Domain {
            name: crate::deploy::lab::domain(ZONE),
            command: DomainCommand::PutRrset(rrset),
        };
        let refused = lab.submit(command).await.unwrap_err();
        let headwater::command::SubmitError::Rejected(headwater_events::reject::Reject::Invalid(faults)) =
            refused
        else {
            panic!("{refused}")
        };
        assert!(faults.iter().any(|fault| fault.code == "managed_by_platform"), "{faults:?}");
    }
    let delete = headwater::command::Command::Domain {
        name: crate::deploy::lab::domain(ZONE),
        command: DomainCommand::Delete,
    };
    assert!(lab.submit(delete).await.unwrap_err().to_string().contains("platform's own zone"));
    let proxied = crate::sites::host(ZONE, "shared", "1.1.1.1");
    assert!(lab.submit(proxied).await.unwrap_err().to_string().contains("name of the platform"));
    // Beside it anything may stand.
    lab.put(ZONE, "shared", RrType::TXT, &["\"kept\""]).await;
    lab.current(ZONE).await;
    assert!(lab.dig(0, "shared.edge.example.net", "TXT").contains("kept"));
    assert!(lab.dig(0, "shared.edge.example.net", "A").contains("9.9.9.1"));
}
