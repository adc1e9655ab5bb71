//! Deployment on real servers: what is put is answered by every PowerDNS and through dnsdist, and by nothing else.

mod anew;
#[cfg(feature = "failpoints")]
mod child;
#[cfg(feature = "failpoints")]
mod crash;
#[cfg(feature = "failpoints")]
mod disable;
mod drift;
mod fair;
mod faults;
pub mod lab;
mod overtake;
mod rebuild;
mod reconcile;
mod removal;
mod render;
#[cfg(feature = "failpoints")]
mod replicas;
mod stray;
mod zones;

use std::time::{Duration, Instant};

use headwater_events::admin::AdminCommand;
use headwater_events::dns::RrType;
use headwater_events::domain::{DomainCommand, RrsetChange};
use headwater_events::event::PauseScope;
use headwater_projections::powerdns::sql;

use crate::support::eventually;
use lab::{Lab, domain, rrset};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_is_answered_everywhere_and_goes() {
    let lab = Lab::start(2).await;
    lab.create("example.com").await;
    lab.current("example.com").await;
    assert_eq!(lab.dig(0, "www.example.com", "A"), "NXDOMAIN");

    let mut waits = Vec::new();
    for n in 1..=20 {
        let began = Instant::now();
        lab.put("example.com", "www", RrType::A, &[&format!("192.0.2.{n}")]).await;
        lab.current("example.com").await;
        waits.push(began.elapsed().as_millis());
        for cluster in 0..2 {
            let expected = format!("NOERROR\nanswer www.example.com. A 192.0.2.{n}");
            assert_eq!(lab.dig(cluster, "www.example.com", "A"), expected);
        }
    }
    waits.sort_unstable();
    println!("put to acknowledged by two clusters, ms: {waits:?}");
    let stages: Vec<(i64, i64, i64, i64)> = sqlx::query_as(
        "with d as (select at, convert_from(data, 'UTF8')::jsonb as data from events \
          where type = 'deployment.acknowledged'), \
         m as (select revision, at from events where type = 'rrset.replaced') \
         select (1000 * extract(epoch from (data->'stages'->>'rendered')::timestamptz - m.at))::bigint, \
           (1000 * extract(epoch from (data->'stages'->>'activated')::timestamptz \
             - (data->'stages'->>'rendered')::timestamptz))::bigint, \
           (1000 * extract(epoch from (data->'stages'->>'verified')::timestamptz \
             - (data->'stages'->>'activated')::timestamptz))::bigint, \
           (1000 * extract(epoch from d.at - (data->'stages'->>'verified')::timestamptz))::bigint \
         from d join m on m.revision = (data->>'revision')::bigint",
    )
    .fetch_all(&lab.app.pool)
    .await
    .unwrap();
    println!("ms to rendered, activated, verified, recorded: {stages:?}");

    // One event for each deployment, with its stages.
    let acknowledged = lab.events("example.com", "deployment.acknowledged").await;
    assert!((21..=42).contains(&acknowledged) && lab.events("example.com", "deployment.failed").await == 0);

    lab.delete("example.com", "www", RrType::A).await;
    lab.current("example.com").await;
    assert_eq!(lab.dig(0, "www.example.com", "A"), "NXDOMAIN");

    lab.domain("example.com", DomainCommand::Delete).await;
    lab.settled("example.com", "removed").await;
    for cluster in 0..2 {
        assert_eq!(lab.dig(cluster, "example.com", "SOA"), "REFUSED");
    }

    lab.domain("example.com", DomainCommand::Restore).await;
    lab.put("example.com", "again", RrType::TXT, &["\"there\""]).await;
    lab.current("example.com").await;
    assert_eq!(lab.dig(1, "again.example.com", "TXT"), "NOERROR\nanswer again.example.com. TXT \"there\"");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_domains_at_once() {
    let lab = Lab::start(1).await;
    let began = Instant::now();
    let names: Vec<String> = (0..300).map(|n| format!("d{n}.example.com")).collect();
    for chunk in names.chunks(100) {
        futures_util::future::join_all(chunk.iter().map(|name| lab.create(name))).await;
    }
    println!("300 domains made in {:?}", began.elapsed());
    let puts = names.iter().map(|name| lab.put(name, "www", RrType::A, &["192.0.2.1"]));
    futures_util::future::join_all(puts).await;
    println!("changed by {:?}", began.elapsed());
    let behind = || async {
        sqlx::query_scalar::<_, i64>(
            "select count(*) from desired.deployments \
             where state <> 'current' or active_revision <> desired_revision",
        )
        .fetch_one(&lab.app.pool)
        .await
        .unwrap()
    };
    let _none = eventually("all are current", behind, |count| *count == 0).await;
    println!("300 domains made, changed and acknowledged in {:?}", began.elapsed());
    assert_eq!(lab.dig(0, "www.d299.example.com", "A"), "NOERROR\nanswer www.d299.example.com. A 192.0.2.1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_zone_of_many_pages_is_written_while_it_is_read() {
    let lab = Lab::start(1).await;
    let id = lab.create("example.com").await;
    lab.current("example.com").await;
    lab.admin(AdminCommand::Pause { scope: PauseScope::All, reason: "a test".into() }).await;
    for batch in 0..3 {
        let put = |n: u32| {
            let owner = format!("n{n}.s{}.deep", n % 7);
            RrsetChange::Put(rrset("example.com", &owner, RrType::A, &["192.0.2.1", "192.0.2.2"]))
        };
        let changes = (batch * 4_000..(batch + 1) * 4_000).map(put).collect();
        lab.domain("example.com", DomainCommand::ChangeRrsets(changes)).await;
    }
    let began = Instant::now();
    lab.admin(AdminCommand::Resume { scope: PauseScope::All, reason: String::new() }).await;
    lab.current("example.com").await;
    println!("24,000 records, whole, in {:?}", began.elapsed());
    let rows: i64 =
        sqlx::query_scalar("select count(*) from records").fetch_one(&lab.target(0).await).await.unwrap();
    // Besides: SOA, two NS, and the empty non-terminals deep and s0 to s6 below it.
    assert_eq!(rows, 24_000 + 3 + 8);
    let cluster = headwater::deploy::clusters(&lab.app.pool).await.unwrap().remove(0);
    let target = headwater::deploy::Target::open(cluster).unwrap();
    assert_eq!(headwater::deploy::verify_zone(&lab.app.pool, &target, id).await.unwrap(), []);
    assert_eq!(lab.dig(0, "s3.deep.example.com", "A"), "NOERROR");

    // One record in it is a change of one owner.
    lab.put("example.com", "n11999.s1.deep", RrType::A, &["192.0.2.3"]).await;
    lab.current("example.com").await;
    assert_eq!(headwater::deploy::verify_zone(&lab.app.pool, &target, id).await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_identity_reaches_every_zone() {
    let lab = Lab::start(1).await;
    lab.create("example.com").await;
    lab.put("example.com", "www", RrType::A, &["192.0.2.1"]).await;
    lab.current("example.com").await;
    let mut identity = lab::identity();
    identity.nameservers.push(domain("ns3.example.net"));
    lab.admin(AdminCommand::SetDnsIdentity(identity)).await;
    let ask = || async { lab.dig(0, "example.com", "NS") };
    let seen = eventually("the third nameserver", ask, |seen| seen.contains("ns3.")).await;
    assert_eq!(seen.lines().count(), 4, "{seen}");
    assert_eq!(lab.dig(0, "www.example.com", "A"), "NOERROR\nanswer www.example.com. A 192.0.2.1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pause_holds_what_it_covers_and_nothing_else() {
    let lab = Lab::start(2).await;
    lab.create("one.example").await;
    lab.create("two.example").await;
    lab.current("one.example").await;
    lab.current("two.example").await;
    let pause = |scope| AdminCommand::Pause { scope, reason: "a test".into() };
    let resume = |scope| AdminCommand::Resume { scope, reason: String::new() };

    lab.admin(pause(PauseScope::Domain(domain("one.example")))).await;
    lab.put("one.example", "www", RrType::A, &["192.0.2.1"]).await;
    lab.put("two.example", "www", RrType::A, &["192.0.2.2"]).await;
    lab.current("two.example").await;
    assert_eq!(lab.dig(0, "www.one.example", "A"), "NXDOMAIN");
    lab.admin(resume(PauseScope::Domain(domain("one.example")))).await;
    lab.current("one.example").await;

    lab.admin(pause(PauseScope::Target(lab.clusters[0]))).await;
    lab.put("one.example", "www", RrType::A, &["192.0.2.3"]).await;
    let other = lab.clusters[1].as_uuid();
    let done = |seen: &Vec<(uuid::Uuid, String, i64, i64, Option<String>)>| {
        seen.iter()
            .any(|(id, state, active, desired, _)| *id == other && state == "current" && active == desired)
    };
    let _seen = eventually("the other cluster goes on", || lab.deployments("one.example"), done).await;
    assert_eq!(lab.dig(0, "www.one.example", "A"), "NOERROR\nanswer www.one.example. A 192.0.2.1");
    lab.admin(resume(PauseScope::Target(lab.clusters[0]))).await;
    lab.current("one.example").await;

    // A cluster that is disabled is left alone; enabled again, it catches up.
    let enable = |enabled| AdminCommand::SetClusterEnabled { cluster: lab.clusters[0], enabled };
    lab.admin(enable(false)).await;
    tokio::time::timeout(Duration::from_secs(20), async {
        lab.put("one.example", "www", RrType::A, &["192.0.2.4"]).await;
        let _seen = eventually("the other cluster goes on", || lab.deployments("one.example"), done).await;
    })
    .await
    .unwrap();
    lab.admin(enable(true)).await;
    lab.current("one.example").await;
    assert_eq!(lab.dig(0, "www.one.example", "A"), "NOERROR\nanswer www.one.example. A 192.0.2.4");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_tells_what_is_wrong_with_it() {
    let mut lab = Lab::start(1).await;
    let find = || async { headwater::deploy::clusters(&lab.app.pool).await.unwrap().remove(0) };
    let row = find().await;
    let report = headwater::deploy::test_cluster(&row).await;
    assert!(report.ok, "{report:?}");
    let names: Vec<_> = report.steps.iter().map(|step| step.name.as_str()).collect();
    assert_eq!(names, ["database", "schema", "rights", "powerdns", "front"]);
    let target = lab.target(0).await;
    for statement in sql::ALL_TARGET {
        sqlx::Executor::prepare(&target, sqlx::SqlSafeStr::into_sql_str(*statement))
            .await
            .unwrap_or_else(|error| panic!("{statement}: {error}"));
    }

    lab.stack.clusters[0].pdns.service().kill().await.unwrap();
    let report = headwater::deploy::test_cluster(&row).await;
    let faulty: Vec<_> = report.steps.iter().filter(|step| !step.ok).map(|step| step.name.as_str()).collect();
    assert!(!report.ok && faulty.contains(&"powerdns") && !faulty.contains(&"database"), "{report:?}");
    lab.stack.clusters[0].postgres.kill().await.unwrap();
    let report = headwater::deploy::test_cluster(&row).await;
    assert!(!report.steps[0].ok && report.steps[0].detail.is_some(), "{report:?}");
}
