//! A rebuild of `powerdns` as an operation: killed on the way, it goes on where it was; called off, it stops after a
//! zone and leaves whole ones.

use headwater::operation::runner;
use headwater_events::dns::RrType;
use headwater_events::event::{Projection, Work};
use serde_json::json;
use sqlx::Executor;

use super::lab::Lab;
use crate::imperative::{Runner, ask, ended, tries};
use crate::support::eventually;
use crate::support::world::{Runs, World};

/// Zones of one test.
const ZONES: i64 = 5;

/// A few zones on one cluster, served and then changed behind everybody's back; nobody deploys any more.
async fn changed() -> Lab {
    let mut lab = Lab::start(1).await;
    for n in 0..ZONES {
        let zone = format!("z{n}.example");
        lab.create(&zone).await;
        lab.put(&zone, "www", RrType::A, &["192.0.2.1"]).await;
    }
    for n in 0..ZONES {
        lab.current(&format!("z{n}.example")).await;
    }
    lab.stop().await;
    let wrong = "update records set content = '192.0.2.66' where type = 'A' and content = '192.0.2.1'";
    lab.target(0).await.execute(wrong).await.unwrap();
    lab
}

/// How many zones still answer what somebody wrote.
fn wrong(lab: &Lab) -> usize {
    (0..ZONES).filter(|n| lab.dig(0, &format!("www.z{n}.example"), "A").contains("192.0.2.66")).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rebuild_that_is_killed_goes_on_where_it_was() {
    let lab = changed().await;
    let world = World::join(lab.db.url().clone(), Runs::All, |_| {}).await;
    let operation = ask(&world.app, Work::Rebuild, Projection::Powerdns).await;
    // Once between a zone and its checkpoint, once after a checkpoint.
    Runner::at(lab.db.url(), "rebuild.zone_done", 3).await.kill();
    let open = world.json("system", &format!("/api/operations/{operation}")).await;
    assert_eq!((&open["state"], &open["attempts"]), (&json!("running"), &json!(1)), "{open}");
    let place = open["checkpoint"].as_object().unwrap().values().next().unwrap();
    assert_eq!(*place, json!({"zone": "z1.example", "done": 2}));
    assert_eq!(wrong(&lab), 2, "three zones are whole, two as they were");
    let after = |n| Runner::at(lab.db.url(), "operation.after_save", n);
    after(1).await.kill();
    tokio::spawn(runner::run(world.app.clone()));
    let end = ended(&world.app.pool, operation).await;
    assert_eq!(end["state"], "succeeded", "{end}");
    assert_eq!(wrong(&lab), 0);
    // A zone that was mended before its checkpoint was right when it was looked at again: at most one for each kill.
    let (tries, differences) = tries(&world.app.pool, operation).await;
    assert_eq!(tries, 3);
    assert!((ZONES - 2..ZONES).contains(&differences), "{differences}");
    let done = world.json("system", &format!("/api/operations/{operation}")).await;
    let place = done["checkpoint"].as_object().unwrap().values().next().unwrap();
    assert_eq!(*place, json!({"zone": "z4.example", "done": ZONES}), "no zone was walked twice");
    assert_eq!(done["progress"], json!({"done": ZONES, "total": ZONES, "unit": "zones"}));
    let verify = ask(&world.app, Work::Verify, Projection::Powerdns).await;
    assert_eq!(ended(&world.app.pool, verify).await["result"]["differences"], 0);
    let done = world.json("system", &format!("/api/operations/{verify}")).await;
    assert_eq!(done["progress"], json!({"done": ZONES, "total": ZONES, "unit": "zones"}));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rebuild_that_is_called_off_stops_after_a_zone() {
    let lab = changed().await;
    let world = World::join(lab.db.url().clone(), Runs::All, |_| {}).await;
    let operation = ask(&world.app, Work::Rebuild, Projection::Powerdns).await;
    let mut runner = Runner::at(lab.db.url(), "rebuild.zone_done", 2).await;
    let path = format!("/api/operations/{operation}");
    let cancel = format!("{}{path}/cancel", world.base);
    let answer = crate::support::world::client().post(cancel).bearer_auth("system").send().await.unwrap();
    assert_eq!(answer.status(), 200);
    // A run that goes on is written four times a second.
    let still = || async {
        let still =
            "select updated_at < clock_timestamp() - interval '1 second' from operation_runs where id = $1";
        let query = sqlx::query_scalar::<_, bool>(still).bind(operation.as_uuid());
        query.fetch_one(&world.app.pool).await.unwrap()
    };
    eventually("it is to stop", still, |still| *still).await;
    runner.go_on();
    let free = || async {
        let free = "select until <= clock_timestamp() from leases where name = 'lane:bulk_maintenance'";
        sqlx::query_scalar::<_, bool>(free).fetch_one(&world.app.pool).await.unwrap()
    };
    eventually("nobody works on it", free, |free| *free).await;
    assert_eq!(ended(&world.app.pool, operation).await["state"], "cancelled");
    assert_eq!(wrong(&lab), 3, "two zones are whole, those after them are as they were");
    assert_eq!(tries(&world.app.pool, operation).await.0, 1);
}
