//! Rebuilding a zone: compared first, only what differs is replaced, and nobody ever sees half a zone.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use domain::base::Rtype;
use headwater::deploy::{Target, clusters, rebuild_zone};
use headwater_events::dns::RrType;
use headwater_events::domain::{DomainCommand, RrsetChange};
use headwater_events::ids::DomainId;
use sqlx::postgres::PgPool;
use tokio::task::JoinHandle;

use super::lab::{Lab, rows_of, rrset};
use crate::support::DnsStack;

const ZONE: &str = "example.com";
const OWNERS: u32 = 300;

async fn ready() -> (Lab, DomainId, Target, PgPool) {
    let lab = Lab::start(1).await;
    let id = lab.create(ZONE).await;
    let put =
        |n: u32| RrsetChange::Put(rrset(ZONE, &format!("r{n}"), RrType::A, &["192.0.2.1", "192.0.2.2"]));
    lab.domain(ZONE, DomainCommand::ChangeRrsets((0..OWNERS).map(put).collect())).await;
    lab.current(ZONE).await;
    // Nobody else mends.
    lab.leave_alone().await;
    let target = Target::open(clusters(&lab.app.pool).await.unwrap().remove(0)).unwrap();
    let pool = lab.target(0).await;
    (lab, id, target, pool)
}

async fn execute(pool: &PgPool, text: &'static str) -> u64 {
    sqlx::query(text).execute(pool).await.unwrap().rows_affected()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_equal_zone_is_left_and_single_rows_are_replaced_alone() {
    let (lab, id, target, pool) = ready().await;
    let before = rows_of(&pool).await;
    assert_eq!(rebuild_zone(&lab.app, &target, id).await.unwrap(), []);
    assert_eq!(rows_of(&pool).await, before, "an equal zone was written");
    assert_eq!(lab.events(ZONE, "deployment.drift_mended").await, 0);

    let changed =
        "update records set content = '192.0.2.9' where name = 'r7.example.com' and content = '192.0.2.1'";
    assert_eq!(execute(&pool, changed).await, 1);
    assert_eq!(
        execute(&pool, "delete from records where name = 'r8.example.com' and content = '192.0.2.2'").await,
        1
    );
    assert_eq!(rebuild_zone(&lab.app, &target, id).await.unwrap().len(), 3);
    let after = rows_of(&pool).await;
    // By id and transaction: what was not at fault is the same row as before.
    let records = |rows: &[(String, i64, String)]| -> BTreeSet<(i64, String)> {
        rows.iter().filter(|row| row.0 == "records").map(|row| (row.1, row.2.clone())).collect()
    };
    let (before, after) = (records(&before), records(&after));
    assert_eq!((before.difference(&after).count(), after.difference(&before).count()), (2, 2));
    for name in ["r7", "r8"] {
        let name = format!("{name}.{ZONE}");
        let expected = format!("NOERROR\nanswer {name}. A 192.0.2.1\nanswer {name}. A 192.0.2.2");
        assert_eq!(lab.dig(0, &name, "A"), expected);
    }
}

/// Asks for the first and the last name of the zone all the time: both are there or neither is. Gives how often both
/// were not there, and how often both were.
fn watch(lab: &Lab, stop: Arc<AtomicBool>, pool: PgPool, whole: i64) -> JoinHandle<Result<[u32; 2], String>> {
    let server = lab.stack.clusters[0].pdns.address();
    tokio::spawn(async move {
        let mut seen = [0, 0];
        let has = async |name: &str| {
            let answer = DnsStack::ask(server, &format!("{name}.{ZONE}"), Rtype::A).await;
            answer.map(|answer| answer.rdata.len()).map_err(|error| error.to_string())
        };
        while !stop.load(Ordering::SeqCst) {
            // Once one record of it is there, all of it is.
            let (first, last, again) = (has("r0").await?, has("r299").await?, has("r150").await?);
            match (first, last, again) {
                (0, 0, 0) => seen[0] += 1,
                (0, 2, 2) | (0, 0, 2) | (2, 2, 2) => seen[1] += 1,
                other => return Err(format!("half a zone is answered: {other:?}")),
            }
            let rows: i64 =
                sqlx::query_scalar("select count(*) from records").fetch_one(&pool).await.unwrap();
            if rows != 0 && rows != whole {
                return Err(format!("{rows} rows of {whole} are there"));
            }
        }
        Ok(seen)
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_emptied_and_a_dropped_zone_come_back_whole() {
    let (lab, id, target, pool) = ready().await;
    for fault in ["delete from records", "delete from domains"] {
        let whole: i64 = sqlx::query_scalar("select count(*) from records").fetch_one(&pool).await.unwrap();
        execute(&pool, fault).await;
        let stop = Arc::new(AtomicBool::new(false));
        let watcher = watch(&lab, Arc::clone(&stop), lab.target(0).await, whole);
        assert_eq!(lab.dig(0, "r0.example.com", "A").lines().count(), 1, "{fault}");
        assert!(!rebuild_zone(&lab.app, &target, id).await.unwrap().is_empty(), "{fault}");
        let back = "NOERROR\nanswer r299.example.com. A 192.0.2.1\nanswer r299.example.com. A 192.0.2.2";
        assert_eq!(lab.dig(0, "r299.example.com", "A"), back, "{fault}");
        stop.store(true, Ordering::SeqCst);
        let [without, with] = watcher.await.unwrap().unwrap_or_else(|why| panic!("{fault}: {why}"));
        println!("{fault}: {without} looks without, {with} with the zone");
        assert_eq!(rebuild_zone(&lab.app, &target, id).await.unwrap(), [], "{fault}");
        assert_eq!(lab.events(ZONE, "deployment.failed").await, 0);
    }
    assert_eq!(lab.events(ZONE, "deployment.drift_mended").await, 2);
}
