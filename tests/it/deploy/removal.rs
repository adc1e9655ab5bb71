//! DNS clusters that go: what was deployed to them is taken away or stays, as it was asked; zones of others always stay.

use headwater::operation::runner;
use headwater_events::admin::AdminCommand;
use headwater_events::dns::RrType;
use headwater_events::event::ClusterRemovalRequested;
use headwater_events::ids::OperationId;
use reqwest::Method;
use serde_json::{Value, json};
use uuid::Uuid;

use super::lab::{Does, Lab};
use crate::imperative::{Runner, ended};
use crate::support::{TestApi, eventually};

/// Zones of one test.
const ZONES: i64 = 4;

async fn zones(lab: &Lab, cluster: usize) -> Vec<String> {
    let text = "select name from domains order by name";
    sqlx::query_scalar(text).fetch_all(&lab.target(cluster).await).await.unwrap()
}

async fn lab() -> Lab {
    let lab = Lab::doing(2, Does::Place).await;
    for n in 0..ZONES {
        let zone = format!("z{n}.example");
        lab.create(&zone).await;
        lab.put(&zone, "www", RrType::A, &["192.0.2.1"]).await;
    }
    for n in 0..ZONES {
        lab.current(&format!("z{n}.example")).await;
    }
    let foreign = "insert into domains (name, type) values ('foreign.example', 'NATIVE')";
    sqlx::raw_sql(foreign).execute(&lab.target(0).await).await.unwrap();
    lab
}

async fn clusters(lab: &Lab) -> i64 {
    let text = "select count(*) from desired.clusters";
    sqlx::query_scalar(text).fetch_one(&lab.app.pool).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_goes_takes_along_what_was_deployed_to_it() {
    let lab = lab().await;
    let cluster = lab.clusters[0];
    lab.admin(AdminCommand::SetClusterEnabled { cluster, enabled: false }).await;
    let operation = OperationId::from_uuid(Uuid::now_v7());
    let requested = ClusterRemovalRequested { cluster };
    lab.admin(AdminCommand::RequestRemoval { operation, requested }).await;
    // Killed when its zones are gone and nobody was told.
    Runner::at(lab.db.url(), "removal.after_batch", 1).await.kill();
    assert_eq!((zones(&lab, 0).await, clusters(&lab).await), (vec!["foreign.example".to_owned()], 2));
    let run = tokio::spawn(runner::run(lab.app.clone()));
    let end = ended(&lab.app.pool, operation).await;
    assert_eq!(end["state"], "succeeded", "{end}");
    assert_eq!((zones(&lab, 0).await, clusters(&lab).await), (vec!["foreign.example".to_owned()], 1));
    let left = "select count(*) from hw_zones";
    let left: i64 = sqlx::query_scalar(left).fetch_one(&lab.target(0).await).await.unwrap();
    assert_eq!(left, 0);
    // The other one goes on, and operations wait for it alone.
    let put = lab.put("z0.example", "www", RrType::A, &["192.0.2.2"]).await.operation.unwrap();
    let text = "select state, partial::text from operations.operations where id = $1";
    let look = || async {
        let query = sqlx::query_as::<_, (String, String)>(text).bind(put.as_uuid());
        query.fetch_optional(&lab.app.pool).await.unwrap()
    };
    let is_over = |seen: &Option<(String, String)>| {
        seen.as_ref().is_some_and(|(state, _)| state != "pending" && state != "running")
    };
    let seen = eventually("the operation ends", look, is_over).await.unwrap();
    assert_eq!(seen, ("succeeded".to_owned(), "[]".to_owned()));
    assert_eq!(lab.dig(1, "www.z0.example", "A"), "NOERROR\nanswer www.z0.example. A 192.0.2.2");
    assert_eq!(lab.deployments("z0.example").await.len(), 1);
    run.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_is_retained_serves_on_and_is_forgotten() {
    let lab = lab().await;
    let cluster = lab.clusters[0];
    lab.admin(AdminCommand::SetClusterEnabled { cluster, enabled: false }).await;
    let before = zones(&lab, 0).await;
    assert!(before.len() > usize::try_from(ZONES).unwrap(), "{before:?}");
    lab.admin(AdminCommand::DeleteCluster { cluster, retained: true, zones: 0 }).await;
    assert_eq!((zones(&lab, 0).await, clusters(&lab).await), (before, 1));
    lab.put("z0.example", "www", RrType::A, &["192.0.2.2"]).await;
    lab.current("z0.example").await;
    assert_eq!(lab.dig(0, "www.z0.example", "A"), "NOERROR\nanswer www.z0.example. A 192.0.2.1");
    assert_eq!(lab.dig(1, "www.z0.example", "A"), "NOERROR\nanswer www.z0.example. A 192.0.2.2");
}

#[tokio::test]
async fn it_is_asked_for_over_the_api_in_order() {
    let api = TestApi::start("").await;
    let new =
        json!({"name": "dns-1", "database_url_file": "/nowhere", "dns": "127.0.0.1:9", "enabled": true});
    let made = api.call(Method::POST, "/api/dns-clusters", new.clone()).await.expect(201).json();
    let path = format!("/api/dns-clusters/{}", made["id"].as_str().unwrap());
    for way in ["", "?retain=true"] {
        let refused = api.call(Method::DELETE, &format!("{path}{way}"), Value::Null).await;
        refused.expect_problem(409, "conflict");
    }
    api.call(Method::POST, &format!("{path}/disable"), Value::Null).await.expect(200);
    let plan =
        api.call(Method::DELETE, &format!("{path}?dry_run=true"), Value::Null).await.expect(200).json();
    assert_eq!(plan["targets"], json!(["dns-1"]), "{plan}");
    let asked = api.call(Method::DELETE, &path, Value::Null).await.expect(202).json();
    assert!(asked["operation"]["id"].is_string(), "{asked}");
    // It is to go, whatever becomes of the operation; what cannot be reached can be let go of as it is.
    assert_eq!(api.get(&path).await.expect(200).json()["state"], "leaving");
    api.call(Method::POST, &format!("{path}/enable"), Value::Null).await.expect_problem(409, "conflict");
    api.call(Method::DELETE, &format!("{path}?retain=true"), Value::Null).await.expect(200);
    api.get(&path).await.expect_problem(404, "not_found");
    api.call(Method::POST, &format!("{path}/enable"), Value::Null).await.expect_problem(404, "not_found");
    api.call(Method::DELETE, &path, Value::Null).await.expect_problem(404, "not_found");
    // Its name is free.
    api.call(Method::POST, "/api/dns-clusters", new).await.expect(201);
}
