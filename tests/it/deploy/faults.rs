//! What must not happen: a late worker that writes, a cluster that is down and delays another, a zone that differs
//! and stays so, a restored log that takes answers back.

use headwater::command::Meta;
use headwater::deploy::{Stray, Target, adopt, clusters, discard, rebuild_zone, strays, verify_zone};
use headwater::rebuild::{Intent, Kind};
use headwater_events::actor::Caller;
use headwater_events::dns::RrType;
use headwater_events::domain::DomainCommand;
use headwater_events::event::Projection;
use headwater_projections::powerdns::Difference;
use sqlx::postgres::PgPool;

use super::lab::{Lab, copy, domain};
use crate::support::{eventually, projection};

const ZONE: &str = "example.com";

async fn execute(pool: &PgPool, text: &'static str) -> u64 {
    sqlx::query(text).execute(pool).await.unwrap().rows_affected()
}

async fn soa(pool: &PgPool) -> String {
    sqlx::query_scalar("select content from records where type = 'SOA'").fetch_one(pool).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_worker_writes_nothing() {
    let lab = Lab::start(1).await;
    let id = lab.create(ZONE).await;
    lab.current(ZONE).await;
    let target = lab.target(0).await;
    let before = soa(&target).await;

    // The worker has its snapshot and waits for the ledger; meanwhile somebody else deploys a newer revision.
    let mut other = target.begin().await.unwrap();
    sqlx::query("select from hw_zones where name = $1 for update")
        .bind(ZONE)
        .execute(&mut *other)
        .await
        .unwrap();
    lab.put(ZONE, "www", RrType::A, &["192.0.2.1"]).await;
    let waiting = || async {
        sqlx::query_scalar::<_, i64>(
            "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and query like '%hw_zones%'",
        )
        .fetch_one(&target)
        .await
        .unwrap()
    };
    let _count = eventually("the worker waits", waiting, |count| *count > 0).await;
    let newer = lab.put(ZONE, "www", RrType::A, &["192.0.2.2"]).await.revision;
    let chain: Vec<u8> = sqlx::query_scalar("select last_hash from streams where id = $1")
        .bind(id.as_uuid())
        .fetch_one(&lab.app.pool)
        .await
        .unwrap();
    sqlx::query("update hw_zones set revision = $2, serial = serial + 2, chain = $3 where name = $1")
        .bind(ZONE)
        .bind(newer.get())
        .bind(chain)
        .execute(&mut *other)
        .await
        .unwrap();
    other.commit().await.unwrap();
    lab.told(ZONE, "deployment.superseded").await;
    assert_eq!(soa(&target).await, before, "the late worker wrote");

    // The other one's rows never came: the check finds that, and mends it.
    lab.current(ZONE).await;
    assert_eq!(lab.dig(0, "www.example.com", "A"), "NOERROR\nanswer www.example.com. A 192.0.2.2");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_is_down_delays_nobody() {
    let mut lab = Lab::start(2).await;
    lab.create(ZONE).await;
    lab.current(ZONE).await;
    lab.stack.clusters[0].postgres.kill().await.unwrap();
    let other = lab.clusters[1].as_uuid();
    for n in 1..=3 {
        lab.put(ZONE, "www", RrType::A, &[&format!("192.0.2.{n}")]).await;
        let done = |seen: &Vec<(uuid::Uuid, String, i64, i64, Option<String>)>| {
            seen.iter().any(|(id, state, active, desired, _)| {
                *id == other && state == "current" && active == desired
            })
        };
        let _seen = eventually("the other cluster goes on", || lab.deployments(ZONE), done).await;
        assert_eq!(
            lab.dig(1, "www.example.com", "A"),
            format!("NOERROR\nanswer www.example.com. A 192.0.2.{n}")
        );
    }
    let health = || async {
        sqlx::query_scalar::<_, bool>(
            "select coalesce(failed_at > reached_at, false) from cluster_health where cluster_id = $1",
        )
        .bind(lab.clusters[0].as_uuid())
        .fetch_one(&lab.app.pool)
        .await
        .unwrap()
    };
    let _down = eventually("the cluster is known to be down", health, |down| *down).await;
    // A retry is no event.
    assert!(lab.events(ZONE, "deployment.failed").await <= 4);
    lab.stack.clusters[0].postgres.restart().await.unwrap();
    lab.current(ZONE).await;
    assert_eq!(lab.dig(0, "www.example.com", "A"), "NOERROR\nanswer www.example.com. A 192.0.2.3");

    // Its PowerDNS down: activated, not verified; then verified.
    lab.stack.clusters[0].pdns.service().kill().await.unwrap();
    lab.put(ZONE, "www", RrType::A, &["192.0.2.9"]).await;
    lab.told(ZONE, "deployment.activated").await;
    lab.stack.clusters[0].pdns.service().start().await.unwrap();
    lab.current(ZONE).await;
    assert_eq!(lab.dig(0, "www.example.com", "A"), "NOERROR\nanswer www.example.com. A 192.0.2.9");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_zone_that_is_refused_delays_nobody() {
    let lab = Lab::start(1).await;
    lab.create("good.example").await;
    lab.current("good.example").await;
    let target = lab.target(0).await;
    execute(&target, "alter table records add constraint no_bad check (name <> 'www.bad.example')").await;
    lab.create("bad.example").await;
    lab.put("bad.example", "www", RrType::A, &["192.0.2.1"]).await;
    lab.put("good.example", "www", RrType::A, &["192.0.2.1"]).await;
    lab.current("good.example").await;
    lab.told("bad.example", "deployment.rejected").await;
    execute(&target, "alter table records drop constraint no_bad").await;
    lab.put("bad.example", "www", RrType::A, &["192.0.2.2"]).await;
    lab.current("bad.example").await;
    assert_eq!(lab.dig(0, "www.bad.example", "A"), "NOERROR\nanswer www.bad.example. A 192.0.2.2");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_zone_made_anew_has_nothing_of_the_former() {
    let lab = Lab::start(1).await;
    let former = lab.create(ZONE).await;
    lab.put(ZONE, "old", RrType::A, &["192.0.2.1"]).await;
    lab.current(ZONE).await;
    let target = lab.target(0).await;
    execute(
        &target,
        "insert into domainmetadata (domain_id, kind, content) select id, 'X', 'y' from domains",
    )
    .await;
    let serial = soa(&target).await.split(' ').nth(2).unwrap().parse::<u32>().unwrap();
    lab.domain(ZONE, DomainCommand::Delete).await;
    let latter = lab.create(ZONE).await;
    assert_ne!(former, latter);
    lab.put(ZONE, "new", RrType::A, &["192.0.2.2"]).await;
    lab.current(ZONE).await;
    assert_eq!(lab.dig(0, "old.example.com", "A"), "NXDOMAIN");
    assert_eq!(lab.dig(0, "new.example.com", "A"), "NOERROR\nanswer new.example.com. A 192.0.2.2");
    assert!(soa(&target).await.split(' ').nth(2).unwrap().parse::<u32>().unwrap() > serial);
    let left: i64 =
        sqlx::query_scalar("select count(*) from domainmetadata").fetch_one(&target).await.unwrap();
    assert_eq!(left, 0);
    let gone = || async {
        sqlx::query_scalar::<_, String>("select state from desired.deployments where domain_id = $1")
            .bind(former.as_uuid())
            .fetch_one(&lab.app.pool)
            .await
            .unwrap()
    };
    let _state = eventually("the former is removed", gone, |state| state == "removed").await;
    assert_eq!(lab.dig(0, "new.example.com", "A"), "NOERROR\nanswer new.example.com. A 192.0.2.2");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_changed_by_hand_is_found_and_mended() {
    let lab = Lab::start(1).await;
    let id = lab.create(ZONE).await;
    lab.put(ZONE, "www", RrType::A, &["192.0.2.1"]).await;
    lab.current(ZONE).await;
    let pool = lab.target(0).await;
    let target = Target::open(clusters(&lab.app.pool).await.unwrap().remove(0)).unwrap();
    assert_eq!(verify_zone(&lab.app.pool, &target, id).await.unwrap(), []);

    // Held in a transaction until it was seen, or the check might be faster.
    execute(&pool, "insert into domains (name, type) values ('foreign.example', 'NATIVE')").await;
    let found = strays(&lab.app.pool, &target, "").await.unwrap().strays;
    assert_eq!(found, [Stray { zone: "foreign.example".into(), lost: false }]);
    execute(&pool, "update records set content = '192.0.2.66' where type = 'A'").await;
    lab.told(ZONE, "deployment.drift_mended").await;
    let differences = || async { verify_zone(&lab.app.pool, &target, id).await.unwrap() };
    let _none = eventually("the zone is equal", differences, Vec::is_empty).await;
    // It was read back before it was told.
    assert_eq!(lab.dig(0, "www.example.com", "A"), "NOERROR\nanswer www.example.com. A 192.0.2.1");

    execute(&pool, "delete from domains where name = 'example.com'").await;
    let answer = || async { lab.dig_each(0, "www.example.com", "A").join("\n") };
    let _seen = eventually("the zone is back", answer, |seen| seen.matches(" 192.0.2.1").count() == 2).await;

    // With the mender away, a comparison names the row, and a rebuild puts it right.
    lab.leave_alone().await;
    execute(&pool, "update records set content = '192.0.2.67' where type = 'A'").await;
    let differences = verify_zone(&lab.app.pool, &target, id).await.unwrap();
    let shown: Vec<String> = differences.iter().map(ToString::to_string).collect();
    assert_eq!(shown.len(), 2, "{shown:?}");
    assert!(shown[0].starts_with("missing row www.example.com A 300 192.0.2.1"), "{shown:?}");
    assert!(
        matches!(&differences[1], Difference::Unexpected(row) if row.content.as_deref() == Some("192.0.2.67"))
    );
    // A change that is not deployed is no difference: the comparison is at the revision that is active.
    lab.put(ZONE, "later", RrType::A, &["192.0.2.5"]).await;
    assert_eq!(verify_zone(&lab.app.pool, &target, id).await.unwrap().len(), 2);
    assert_eq!(rebuild_zone(&lab.app, &target, id).await.unwrap().len(), 2);
    assert_eq!(verify_zone(&lab.app.pool, &target, id).await.unwrap(), []);
    assert_eq!(lab.dig(0, "www.example.com", "A"), "NOERROR\nanswer www.example.com. A 192.0.2.1");
    let foreign: i64 = sqlx::query_scalar("select count(*) from domains where name = 'foreign.example'")
        .fetch_one(&pool)
        .await
        .unwrap();
    assert_eq!(foreign, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restored_log_takes_no_answer_back() {
    let mut lab = Lab::start(1).await;
    for zone in ["one.example", "two.example", "three.example"] {
        lab.create(zone).await;
        lab.put(zone, "www", RrType::A, &["192.0.2.1"]).await;
        lab.current(zone).await;
    }
    // The state of now is restored later; what comes in between is lost.
    let url = lab.db.url().clone();
    lab.stop().await;
    let restored = copy(&url).await;
    lab.start_on(&url).await;
    lab.create("four.example").await;
    lab.put("four.example", "www", RrType::A, &["192.0.2.4"]).await;
    lab.current("four.example").await;
    for zone in ["one.example", "two.example"] {
        lab.put(zone, "www", RrType::A, &["192.0.2.2"]).await;
        lab.put(zone, "lost", RrType::A, &["192.0.2.3"]).await;
        lab.current(zone).await;
    }
    lab.stop().await;
    lab.start_on(&restored).await;

    for zone in ["one.example", "two.example"] {
        // It is found without any change, and stays so with as many as there were.
        lab.told(zone, "deployment.ahead").await;
        for n in 4..=8 {
            lab.put(zone, "www", RrType::A, &[&format!("192.0.2.{n}")]).await;
        }
        lab.settled(zone, "ahead").await;
        assert_eq!(
            lab.dig(0, &format!("www.{zone}"), "A"),
            format!("NOERROR\nanswer www.{zone}. A 192.0.2.2")
        );
    }
    a_lost_zone_is_told_and_taken_up_again(&lab).await;
    // What both know goes on as if nothing had been.
    lab.put("three.example", "www", RrType::A, &["192.0.2.9"]).await;
    lab.current("three.example").await;

    let serial =
        |lab: &Lab, zone: &str| lab.dig(0, zone, "SOA").split(' ').nth(5).unwrap().parse::<u32>().unwrap();
    let target = Target::open(clusters(&lab.app.pool).await.unwrap().remove(0)).unwrap();
    let before = serial(&lab, "one.example");
    adopt(&lab.app, &target, &domain("one.example"), Caller::system(), Meta::internal()).await.unwrap();
    lab.current("one.example").await;
    assert!(serial(&lab, "one.example") > before);
    discard(&lab.app, &target, &domain("two.example")).await.unwrap();
    lab.current("two.example").await;
    for zone in ["one.example", "two.example"] {
        assert_eq!(
            lab.dig(0, &format!("www.{zone}"), "A"),
            format!("NOERROR\nanswer www.{zone}. A 192.0.2.8")
        );
        assert_eq!(lab.dig(0, &format!("lost.{zone}"), "A"), "NXDOMAIN");
    }
}

/// `four.example` is served, and the restored log has never heard of it.
async fn a_lost_zone_is_told_and_taken_up_again(lab: &Lab) {
    let told = async || {
        let found = headwater::query::status::strays(&lab.app.pool, true).await.unwrap();
        found.into_iter().flat_map(|found| found.zones).collect::<Vec<String>>()
    };
    let _lost = eventually("the lost zone is told", &told, |zones| zones == &["four.example"]).await;
    let verified = projection::run(&lab.app, Projection::Powerdns, Intent::Verify).await;
    let lost = verified.iter().filter(|difference| difference.kind == Kind::Lost);
    let shown: Vec<String> = lost.map(ToString::to_string).collect();
    assert!(shown.len() == 1 && shown[0].contains(r#"["four.example"]: lost: it is served"#), "{shown:?}");
    assert_eq!(lab.dig(0, "www.four.example", "A"), "NOERROR\nanswer www.four.example. A 192.0.2.4");

    let serial =
        |lab: &Lab| lab.dig(0, "four.example", "SOA").split(' ').nth(5).unwrap().parse::<u32>().unwrap();
    let before = serial(lab);
    lab.create("four.example").await;
    lab.told("four.example", "deployment.ahead").await;
    assert_eq!(lab.dig(0, "www.four.example", "A"), "NOERROR\nanswer www.four.example. A 192.0.2.4");
    let target = Target::open(clusters(&lab.app.pool).await.unwrap().remove(0)).unwrap();
    adopt(&lab.app, &target, &domain("four.example"), Caller::system(), Meta::internal()).await.unwrap();
    lab.put("four.example", "www", RrType::A, &["192.0.2.5"]).await;
    lab.current("four.example").await;
    assert_eq!(lab.dig(0, "www.four.example", "A"), "NOERROR\nanswer www.four.example. A 192.0.2.5");
    assert!(serial(lab) > before);
    let _none = eventually("nothing is lost any more", &told, Vec::is_empty).await;
}
