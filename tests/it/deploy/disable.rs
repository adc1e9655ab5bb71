//! Once a disable is acknowledged, nothing is written that was claimed before it.

use headwater::deploy::writes_ended;
use headwater_events::admin::AdminCommand;
use headwater_events::dns::RrType;

use super::child::Child;
use super::lab::{Lab, rows_of};
use crate::support::eventually;

const ZONE: &str = "example.com";

/// A lab in which a child holds a batch at a point.
async fn held(point: &str) -> (Lab, Child) {
    let mut lab = Lab::start(1).await;
    lab.create(ZONE).await;
    lab.current(ZONE).await;
    lab.leave_to_children().await;
    lab.put(ZONE, "www", RrType::A, &["192.0.2.1"]).await;
    let child = Child::start(lab.db.url(), &format!("{point}=stop"));
    child.stopped().await;
    (lab, child)
}

async fn enable(lab: &Lab, enabled: bool) {
    lab.admin(AdminCommand::SetClusterEnabled { cluster: lab.clusters[0], enabled }).await;
}

async fn worker_ended(lab: &Lab) {
    let _none = eventually("the worker has ended", || lab.leases(), |leases| *leases == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_was_claimed_before_a_disable_is_not_written_after_it() {
    let (lab, child) = held("deploy.before_commit").await;
    let target = lab.target(0).await;
    let before = rows_of(&target).await;
    enable(&lab, false).await;
    writes_ended(&lab.app.pool, lab.clusters[0]).await.unwrap();
    child.go_on();
    worker_ended(&lab).await;
    assert_eq!(rows_of(&target).await, before, "a disabled cluster was written");
    assert_eq!(lab.dig(0, "www.example.com", "A"), "NXDOMAIN");
    // It was not a failure: enabled again, it goes on where it was.
    assert_eq!(lab.events(ZONE, "deployment.failed").await, 0);
    enable(&lab, true).await;
    lab.current(ZONE).await;
    assert_eq!(lab.dig(0, "www.example.com", "A"), "NOERROR\nanswer www.example.com. A 192.0.2.1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disable_is_acknowledged_after_the_commit_that_is_on_its_way() {
    let (lab, child) = held("deploy.permitted").await;
    let target = lab.target(0).await;
    enable(&lab, false).await;
    let (pool, cluster) = (lab.app.pool.clone(), lab.clusters[0]);
    let ended = tokio::spawn(async move { writes_ended(&pool, cluster).await });
    let waits = || async {
        let query = "select count(*) from pg_locks where locktype = 'advisory' and classid = 7011 and not granted \
                     and database = (select oid from pg_database where datname = current_database())";
        sqlx::query_scalar::<_, i64>(query).fetch_one(&lab.app.pool).await.unwrap()
    };
    let _one = eventually("the disable waits", waits, |count| *count == 1).await;
    // Nobody else waits with it.
    lab.put(ZONE, "more", RrType::A, &["192.0.2.2"]).await;
    assert!(!ended.is_finished(), "the disable was acknowledged before the commit");
    child.go_on();
    ended.await.unwrap().unwrap();
    let acknowledged = rows_of(&target).await;
    worker_ended(&lab).await;
    assert_eq!(rows_of(&target).await, acknowledged, "a disabled cluster was written");
    assert_eq!(lab.dig(0, "www.example.com", "A"), "NOERROR\nanswer www.example.com. A 192.0.2.1");
}
