//! Several processes on one control database: one works on a cluster, the next takes over, and a late one does no harm.

use std::time::{Duration, Instant};

use headwater_events::dns::RrType;

use super::child::Child;
use super::crash::assert_said_once;
use super::lab::{Lab, rows_of};
use crate::support::eventually;

const ZONE: &str = "example.com";
/// A lease lasts 30 s and its successor looks every second; the rest is for a busy machine.
const TAKEOVER_LIMIT: Duration = Duration::from_secs(90);

async fn ready() -> Lab {
    let mut lab = Lab::start(2).await;
    lab.create(ZONE).await;
    lab.current(ZONE).await;
    lab.leave_to_children().await;
    lab
}

async fn owners(lab: &Lab) -> Vec<(uuid::Uuid, i64)> {
    let query = "select owner, fence from leases where until > now() and name like 'deploy:%' order by name";
    sqlx::query_as(query).fetch_all(&lab.app.pool).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_works_and_the_next_takes_over_at_once() {
    let lab = ready().await;
    let one = Child::start(lab.db.url(), "deploy.after_claim=tell");
    let _both = eventually("the first works on both", || lab.leases(), |leases| *leases == 2).await;
    let two = Child::start(lab.db.url(), "deploy.after_claim=tell");
    two.begun().await;
    for n in 1..=5 {
        lab.put(ZONE, "www", RrType::A, &[&format!("192.0.2.{n}")]).await;
        lab.current(ZONE).await;
    }
    assert!(one.passed() > 0);
    assert_eq!(two.passed(), 0, "the second worked beside the first");
    let owners_before = owners(&lab).await;

    drop(one);
    let since = Instant::now();
    lab.put(ZONE, "www", RrType::A, &["192.0.2.6"]).await;
    lab.current(ZONE).await;
    println!("took over within {:?}", since.elapsed());
    assert!(since.elapsed() < Duration::from_secs(10), "it waited for the lease to end");
    let passed = || async { two.passed() };
    let _passed = eventually("the second works", passed, |passed| *passed > 0).await;
    let owners_after = owners(&lab).await;
    assert!(
        owners_after.iter().zip(&owners_before).all(|(now, then)| now.0 != then.0 && now.1 == then.1 + 1)
    );
    assert_said_once(&lab).await;
    for cluster in 0..2 {
        assert_eq!(lab.dig(cluster, "www.example.com", "A"), "NOERROR\nanswer www.example.com. A 192.0.2.6");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_stood_still_past_its_lease_writes_nothing() {
    let mut lab = Lab::start(1).await;
    lab.create(ZONE).await;
    lab.current(ZONE).await;
    lab.leave_to_children().await;
    let target = lab.target(0).await;
    lab.put(ZONE, "www", RrType::A, &["192.0.2.1"]).await;
    let late = Child::start(lab.db.url(), "deploy.before_write=stop");
    late.stopped().await;
    let newest = lab.put(ZONE, "www", RrType::A, &["192.0.2.2"]).await.revision.get();
    let next = Child::start(lab.db.url(), "deploy.after_claim=tell");
    let since = Instant::now();
    while !lab.deployments(ZONE).await.iter().all(|seen| seen.2 == newest) {
        assert!(since.elapsed() < TAKEOVER_LIMIT, "nobody took over");
        let _moment = tokio::time::timeout(Duration::from_millis(200), std::future::pending::<()>()).await;
    }
    println!("taken over after {:?}", since.elapsed());
    let (owner, before) = (owners(&lab).await, rows_of(&target).await);

    late.go_on();
    lab.told(ZONE, "deployment.superseded").await;
    assert_eq!(rows_of(&target).await, before, "the late one wrote");
    // It does not get the cluster back as long as the other one lives, though it had the session lock.
    for n in 3..=6 {
        lab.put(ZONE, "www", RrType::A, &[&format!("192.0.2.{n}")]).await;
        lab.current(ZONE).await;
    }
    let gone = || async {
        let query = "select count(*) from pg_locks where locktype = 'advisory' and classid = 7010 and granted \
                     and database = (select oid from pg_database where datname = current_database())";
        sqlx::query_scalar::<_, i64>(query).fetch_one(&lab.app.pool).await.unwrap()
    };
    let _one = eventually("one holds the session lock", gone, |count| *count == 1).await;
    assert_eq!(owners(&lab).await, owner);
    assert!(next.passed() > 0);
    assert_said_once(&lab).await;
    assert_eq!(lab.dig(0, "www.example.com", "A"), "NOERROR\nanswer www.example.com. A 192.0.2.6");
}
