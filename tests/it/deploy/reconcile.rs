//! One DNS cluster compared whole and put right, killed on the way; zones of others stay; a cluster that is dead and
//! disabled keeps nobody waiting.

use headwater::operation::runner;
use headwater_events::admin::AdminCommand;
use headwater_events::dns::RrType;
use headwater_events::event::{Projection, Work};
use reqwest::Method;
use serde_json::{Value, json};

use super::lab::{Does, Lab};
use crate::imperative::{Runner, ask_on, ended};
use crate::support::world::{Runs, World};
use crate::support::{TestApi, eventually};

/// Zones of one test.
const ZONES: i64 = 4;

fn wrong(lab: &Lab, cluster: usize) -> usize {
    (0..ZONES).filter(|n| lab.dig(cluster, &format!("www.z{n}.example"), "A").contains("192.0.2.66")).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_cluster_is_put_right_and_nothing_else() {
    let mut lab = Lab::start(2).await;
    for n in 0..ZONES {
        let zone = format!("z{n}.example");
        lab.create(&zone).await;
        lab.put(&zone, "www", RrType::A, &["192.0.2.1"]).await;
    }
    for n in 0..ZONES {
        lab.current(&format!("z{n}.example")).await;
    }
    lab.stop().await;
    for cluster in 0..2 {
        let hands = "update records set content = '192.0.2.66' where type = 'A' and content = '192.0.2.1'; \
            insert into domains (name, type) values ('foreign.example', 'NATIVE'); \
            insert into records (domain_id, name, type, content, ttl, auth) select id, name, 'TXT', '\"theirs\"', 60, true \
              from domains where name = 'foreign.example'";
        sqlx::raw_sql(hands).execute(&lab.target(cluster).await).await.unwrap();
    }
    let world = World::join(lab.db.url().clone(), Runs::All, |_| {}).await;
    let operation = ask_on(&world.app, Work::Rebuild, Projection::Powerdns, Some(lab.clusters[0])).await;
    // Killed between a zone and its checkpoint, it goes on where it was.
    Runner::at(lab.db.url(), "rebuild.zone_done", 2).await.kill();
    let open = world.json("system", &format!("/api/operations/{operation}")).await;
    assert_eq!((&open["state"], &open["attempts"]), (&json!("running"), &json!(1)), "{open}");
    tokio::spawn(runner::run(world.app.clone()));
    let end = ended(&world.app.pool, operation).await;
    assert_eq!(end["state"], "succeeded", "{end}");
    let closed = world.json("system", &format!("/api/operations/{operation}")).await;
    assert_eq!(closed["progress"]["total"], json!(ZONES), "{closed}");
    assert_eq!((wrong(&lab, 0), wrong(&lab, 1)), (0, ZONES as usize));
    for cluster in 0..2 {
        let theirs = "select count(*) from records r join domains d on d.id = r.domain_id where d.name = 'foreign.example'";
        let count: i64 = sqlx::query_scalar(theirs).fetch_one(&lab.target(cluster).await).await.unwrap();
        assert_eq!(count, 1, "the zone of somebody else was touched");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_is_dead_and_disabled_keeps_nobody_waiting() {
    let mut lab = Lab::doing(2, Does::Place).await;
    lab.create("example.com").await;
    lab.current("example.com").await;
    let dead = lab.clusters[0];
    lab.stack.clusters[0].pdns.service().kill().await.unwrap();
    lab.stack.clusters[0].postgres.kill().await.unwrap();
    lab.admin(AdminCommand::SetClusterEnabled { cluster: dead, enabled: false }).await;
    let put = lab.put("example.com", "www", RrType::A, &["192.0.2.1"]).await;
    let made = lab.create("more.example").await;
    let state = |of: &'static str, id: uuid::Uuid| {
        let pool = lab.app.pool.clone();
        async move {
            let query = sqlx::query_as::<_, (String, Value)>(of).bind(id);
            query.fetch_optional(&pool).await.unwrap()
        }
    };
    let by_id = "select state, to_jsonb(o) from operations.operations o where id = $1";
    let by_domain = "select state, to_jsonb(o) from operations.operations o where domain_id = $1";
    for (of, id) in [(by_id, put.operation.unwrap().as_uuid()), (by_domain, made.as_uuid())] {
        let ended = |seen: &Option<(String, Value)>| {
            seen.as_ref().is_some_and(|(state, _)| state != "pending" && state != "running")
        };
        let seen = eventually("the operation ends", || state(of, id), ended).await.unwrap();
        assert_eq!(seen.0, "succeeded", "{}", seen.1);
    }
    assert_eq!(lab.dig(1, "www.example.com", "A"), "NOERROR\nanswer www.example.com. A 192.0.2.1");
    // Nor does it a rebuild of everything; one of its own is refused as long as it is disabled.
    let all = ask_on(&lab.app, Work::Rebuild, Projection::Powerdns, None).await;
    let run = tokio::spawn(runner::run(lab.app.clone()));
    assert_eq!(ended(&lab.app.pool, all).await["state"], "succeeded");
    let own = ask_on(&lab.app, Work::Rebuild, Projection::Powerdns, Some(dead)).await;
    let end = ended(&lab.app.pool, own).await;
    assert_eq!((&end["state"], &end["error"]["code"]), (&json!("failed"), &json!("refused")), "{end}");
    run.abort();
    // Back again, it catches up.
    lab.stack.clusters[0].postgres.restart().await.unwrap();
    lab.stack.clusters[0].pdns.service().start().await.unwrap();
    lab.admin(AdminCommand::SetClusterEnabled { cluster: dead, enabled: true }).await;
    lab.current("example.com").await;
    lab.current("more.example").await;
    assert_eq!(lab.dig(0, "www.example.com", "A"), "NOERROR\nanswer www.example.com. A 192.0.2.1");
}

#[tokio::test]
async fn a_reconcile_is_asked_for_over_the_api() {
    let api = TestApi::start("").await;
    let new = json!({"name": "dns-1", "database_url_file": "/nowhere", "dns": "127.0.0.1:9"});
    let made = api.call(Method::POST, "/api/dns-clusters", new).await.expect(201).json();
    let path = format!("/api/dns-clusters/{}", made["id"].as_str().unwrap());
    let reconcile = format!("{path}/reconcile");
    api.call(Method::POST, &reconcile, Value::Null).await.expect_problem(409, "conflict");
    api.call(Method::POST, &format!("{path}/enable"), Value::Null).await.expect(202);
    let plan =
        api.call(Method::POST, &format!("{reconcile}?dry_run=true"), Value::Null).await.expect(200).json();
    assert_eq!(plan["targets"], json!(["dns-1"]), "{plan}");
    let asked = api.call(Method::POST, &reconcile, Value::Null).await.expect(202).json();
    let data: Value = sqlx::query_scalar(
        "select convert_from(data, 'UTF8')::jsonb from events where type = 'operation.requested' and operation_id::text = $1",
    )
    .bind(asked["operation"]["id"].as_str().unwrap())
    .fetch_one(&api.app.pool)
    .await
    .unwrap();
    assert_eq!((&data["cluster"], &data["kind"]), (&made["id"], &json!("projection.rebuild")), "{data}");
    // One at a time, and it is told which.
    api.call(Method::POST, &reconcile, Value::Null).await.expect_problem(409, "conflict");
    let nobody = format!("/api/dns-clusters/{}/reconcile", uuid::Uuid::now_v7());
    api.call(Method::POST, &nobody, Value::Null).await.expect_problem(404, "not_found");
}
