//! Operations: how they end by the facts of the log, by targets that are away, and by their deadline.

use std::time::Duration;

use axum::http::StatusCode;
use headwater::config::Config;
use headwater_events::actor::Caller;
use headwater_events::admin::{AdminCommand, Outcome as Seen};
use headwater_events::event::{OperationFinished, OperationResult, Projection, Work};
use headwater_events::ids::{ClusterId, Revision};
use serde_json::{Value, json};

use crate::support::eventually;
use crate::support::world::{Runs, World, client, fact};

async fn reached(world: &World, cluster: ClusterId) {
    sqlx::query("insert into cluster_health (cluster_id, reached_at) values ($1, now() + interval '1 hour')")
        .bind(cluster.as_uuid())
        .execute(&world.app.pool)
        .await
        .unwrap();
}

async fn wait(world: &World, operation: &Value) -> Value {
    let id = operation.as_str().unwrap();
    world.json("system", &format!("/api/operations/{id}?wait=20")).await
}

#[tokio::test]
async fn an_operation_ends_when_every_target_has_verified_it() {
    let world = World::new().await;
    let (one, two) = (world.cluster("dns-1").await, world.cluster("dns-2").await);
    reached(&world, one).await;
    reached(&world, two).await;
    let (domain, created) = world.domain("example.test", world.tenant).await;
    let zone = (domain, "example.test");
    let first = json!(created.operation);
    let second = json!(world.put(&Caller::system(), "example.test", "www", "192.0.2.1").await.operation);
    let third = json!(world.put(&Caller::system(), "example.test", "www", "192.0.2.2").await.operation);

    // A target at revision 1, the other at 3: the first operation ends, served; the second is overtaken.
    world.record(one, zone, Seen::Acknowledged(fact(Revision::new(1), None))).await;
    let path = format!("/api/operations/{}", first.as_str().unwrap());
    let running = || async { world.json("system", &path).await };
    let seen = eventually("it runs", running, |body| body["state"] == "running").await;
    assert_eq!(seen["targets"], json!({"total": 2, "active": 1, "unreachable": 0}));
    assert_eq!(seen["progress"], json!({"done": 1, "total": 2, "unit": "targets"}));
    let waiting = wait(&world, &first);
    let facts = async {
        world.record(two, zone, Seen::Acknowledged(fact(Revision::new(3), None))).await;
        world.record(one, zone, Seen::Acknowledged(fact(Revision::new(3), None))).await;
    };
    let since = tokio::time::Instant::now();
    let (ended, ()) = tokio::join!(waiting, facts);
    assert!(since.elapsed() < Duration::from_secs(5), "a waiter is woken");
    assert_eq!((&ended["state"], &ended["served"]), (&json!("succeeded"), &json!(true)));
    assert_eq!(ended["superseded_by"], Value::Null);
    let overtaken = wait(&world, &second).await;
    assert_eq!((&overtaken["state"], &overtaken["served"]), (&json!("succeeded"), &json!(false)));
    assert_eq!(overtaken["superseded_by"], third);
    let last = wait(&world, &third).await;
    assert_eq!(
        (&last["state"], &last["served"], &last["partial"]),
        (&json!("succeeded"), &json!(true), &json!([]))
    );

    let hops = world.json("system", &format!("/api/operations/{}/timeline", third.as_str().unwrap())).await;
    let hops: Vec<String> =
        hops.as_array().unwrap().iter().map(|h| format!("{} {}", h["stage"], h["target"])).collect();
    assert_eq!(hops.len(), 7, "{hops:?}");
    assert_eq!(hops[0], "\"committed\" null");
    for target in ["dns-1", "dns-2"] {
        for stage in ["rendered", "activated", "verified"] {
            assert!(hops.contains(&format!("\"{stage}\" \"{target}\"")), "{hops:?}");
        }
    }
    // Nothing to retry, nothing to call off.
    for verb in ["retry", "cancel"] {
        let url = format!("{}/api/operations/{}/{verb}", world.base, third.as_str().unwrap());
        let answer = client().post(url).bearer_auth("system").send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::CONFLICT, "{verb}");
    }
    let list = world.json("system", "/api/operations?domain=example.test&state=succeeded&limit=2").await;
    assert_eq!(list["items"].as_array().unwrap().len(), 2);
    assert_eq!(list["items"][0]["id"], third);
    let next = list["next"].as_str().unwrap();
    let list = world.json("system", &format!("/api/operations?domain=example.test&cursor={next}")).await;
    assert_eq!((&list["items"][0]["id"], &list["next"]), (&first, &Value::Null));

    // Whoever neither started it nor owns the domain does not know of it.
    let stranger = world.person("stranger@example.test", &[]).await;
    assert_eq!(world.get(&stranger.bearer, &path).await.status(), StatusCode::NOT_FOUND);
    assert_eq!(world.json(&stranger.bearer, "/api/operations").await["items"], json!([]));
}

#[tokio::test]
async fn an_operation_fails_at_once_when_it_is_refused() {
    let world = World::new().await;
    let one = world.cluster("dns-1").await;
    let (domain, created) = world.domain("example.test", world.tenant).await;
    let refused = fact(created.revision, Some("no SOA"));
    world.record(one, (domain, "example.test"), Seen::Rejected(refused)).await;
    let ended = wait(&world, &json!(created.operation)).await;
    assert_eq!(ended["state"], "failed");
    assert_eq!(ended["error"], json!({"code": "rejected", "detail": "no SOA", "target": one}));
    let id = json!(created.operation);
    let hops = world.json("system", &format!("/api/operations/{}/timeline", id.as_str().unwrap())).await;
    assert_eq!(hops[1]["stage"], "refused");
}

#[tokio::test]
async fn a_target_that_is_away_is_listed_and_one_that_lags_is_named() {
    let soon = |config: &mut Config| config.operations.deadline = Duration::from_secs(3);
    let world = World::with(Runs::All, soon).await;
    let (one, two) = (world.cluster("dns-1").await, world.cluster("dns-2").await);
    reached(&world, one).await;
    let (domain, created) = world.domain("example.test", world.tenant).await;
    world.record(one, (domain, "example.test"), Seen::Acknowledged(fact(created.revision, None))).await;
    let ended = wait(&world, &json!(created.operation)).await;
    assert_eq!(ended["state"], "succeeded");
    assert_eq!(ended["partial"], json!([{"id": two, "name": "dns-2"}]));

    // In service, and nothing is heard of it.
    reached(&world, two).await;
    let outcome = world.put(&Caller::system(), "example.test", "www", "192.0.2.1").await;
    world.record(one, (domain, "example.test"), Seen::Acknowledged(fact(outcome.revision, None))).await;
    world.record(two, (domain, "example.test"), Seen::Failed(fact(outcome.revision, Some("no route")))).await;
    let ended = wait(&world, &json!(outcome.operation)).await;
    assert_eq!(ended["state"], "failed");
    let error = &ended["error"];
    assert_eq!((&error["code"], &error["target"]), (&json!("deadline_exceeded"), &json!(two)));
    let detail = error["detail"].as_str().unwrap();
    assert!(detail.contains("dns-2: no route") && !detail.contains("dns-1"), "{detail}");
    // Final is final; a retry still gets the lagging deployment going.
    let push = "update desired.deployments set next_attempt_at = now() + interval '1 hour', attempts = 9";
    sqlx::query(push).execute(&world.app.pool).await.unwrap();
    let id = json!(outcome.operation);
    let url = format!("{}/api/operations/{}/retry", world.base, id.as_str().unwrap());
    let due = async || -> Vec<bool> {
        let due = "select next_attempt_at <= now() from desired.deployments d join desired.clusters c \
                   on c.id = d.cluster_id order by c.name";
        sqlx::query_scalar(due).fetch_all(&world.app.pool).await.unwrap()
    };
    let planned = client().post(format!("{url}?dry_run=true")).bearer_auth("system").send().await.unwrap();
    assert_eq!(planned.status(), StatusCode::OK);
    let planned: Value = planned.json().await.unwrap();
    assert_eq!((&planned["changed"], &planned["targets"]), (&json!(true), &json!(["dns-2"])));
    let attempts = json!([{"path": "/targets/dns-2/attempts", "before": 9, "after": 0}]);
    assert_eq!(planned["diff"], attempts);
    assert_eq!(due().await, [false, false]);
    let conditional = client().post(&url).header("If-Match", "\"1\"").bearer_auth("system").send().await;
    assert_eq!(conditional.unwrap().status(), StatusCode::BAD_REQUEST);
    let key = uuid::Uuid::now_v7().to_string();
    let answer =
        client().post(&url).header("Idempotency-Key", key).bearer_auth("system").send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::ACCEPTED);
    assert_eq!(due().await, [false, true]);
    world.record(two, (domain, "example.test"), Seen::Acknowledged(fact(outcome.revision, None))).await;
    let settled =
        || async { world.json("system", &format!("/api/operations/{}", id.as_str().unwrap())).await };
    let seen = eventually("the target has it", settled, |body| body["targets"]["active"] == 2).await;
    assert_eq!(seen["state"], "failed");
}

#[tokio::test]
async fn a_target_that_leaves_is_not_waited_for_and_one_that_comes_is_brought_up() {
    let world = World::new().await;
    let (one, two) = (world.cluster("dns-1").await, world.cluster("dns-2").await);
    reached(&world, one).await;
    reached(&world, two).await;
    let (domain, created) = world.domain("example.test", world.tenant).await;
    let zone = (domain, "example.test");
    world.record(one, zone, Seen::Acknowledged(fact(created.revision, None))).await;
    world.admin(AdminCommand::SetClusterEnabled { cluster: two, enabled: false }).await;
    let ended = wait(&world, &json!(created.operation)).await;
    let left = json!([{"id": two, "name": "dns-2"}]);
    assert_eq!((&ended["state"], &ended["partial"]), (&json!("succeeded"), &left));
    // What is changed meanwhile is told the same way, and nobody tries it there.
    let failing = "update desired.deployments set attempts = 9, next_attempt_at = now() + interval '1 hour' \
                   where cluster_id = $1";
    let meanwhile = world.put(&Caller::system(), "example.test", "www", "192.0.2.1").await;
    world.record(one, zone, Seen::Acknowledged(fact(meanwhile.revision, None))).await;
    let ended = wait(&world, &json!(meanwhile.operation)).await;
    assert_eq!((&ended["state"], &ended["partial"]), (&json!("succeeded"), &left));
    assert_eq!(ended["targets"], json!({"total": 2, "active": 1, "unreachable": 1}));
    sqlx::query(failing).bind(two.as_uuid()).execute(&world.app.pool).await.unwrap();
    let id = ended["id"].as_str().unwrap();
    let shown = world.json("system", &format!("/api/operations/{id}")).await;
    assert_eq!((&shown["attempts"], &shown["next_attempt_at"]), (&json!(0), &Value::Null));
    let retry = client().post(format!("{}/api/operations/{id}/retry", world.base)).bearer_auth("system");
    assert_eq!(retry.send().await.unwrap().status(), StatusCode::CONFLICT);

    let enabled = world.admin(AdminCommand::SetClusterEnabled { cluster: two, enabled: true }).await;
    let id = json!(enabled.operation);
    let open = world.json("system", &format!("/api/operations/{}?wait=2", id.as_str().unwrap())).await;
    assert_eq!((&open["state"], &open["kind"]), (&json!("pending"), &json!("dns_cluster.enable")));
    world.record(two, zone, Seen::Acknowledged(fact(meanwhile.revision, None))).await;
    let ended = wait(&world, &id).await;
    assert_eq!(ended["state"], "succeeded", "{ended}");
}

/// Nothing is served where no cluster is enabled: the operation says that, and names those that have not got it.
#[tokio::test]
async fn without_an_enabled_cluster_an_operation_fails_and_says_so() {
    let soon = |config: &mut Config| config.operations.deadline = Duration::from_secs(2);
    let world = World::with(Runs::All, soon).await;
    let one = world.cluster("dns-1").await;
    reached(&world, one).await;
    world.admin(AdminCommand::SetClusterEnabled { cluster: one, enabled: false }).await;
    let (_, created) = world.domain("example.test", world.tenant).await;
    let ended = wait(&world, &json!(created.operation)).await;
    assert_eq!((&ended["state"], &ended["served"]), (&json!("failed"), &json!(false)));
    assert_eq!(ended["error"]["detail"], "no DNS cluster is enabled");
    assert_eq!(ended["partial"], json!([{"id": one, "name": "dns-1"}]));
}

/// The same rows whatever the size of the pages, and again from nothing.
#[tokio::test]
async fn the_projection_is_a_function_of_the_log() {
    let world = World::new().await;
    let (one, two) = (world.cluster("dns-1").await, world.cluster("dns-2").await);
    reached(&world, one).await;
    reached(&world, two).await;
    let (domain, created) = world.domain("example.test", world.tenant).await;
    let mut revision = created.revision;
    for n in 0..30 {
        let target = if rand::random() { one } else { two };
        let seen = if n % 7 == 3 {
            Seen::Rejected(fact(revision, Some("odd")))
        } else {
            Seen::Acknowledged(fact(revision, None))
        };
        world.record(target, (domain, "example.test"), seen).await;
        revision =
            world.put(&Caller::system(), "example.test", "www", &format!("192.0.2.{n}")).await.revision;
    }
    let finished = crate::imperative::ask(&world.app, Work::Rebuild, Projection::Audit).await;
    let result = Some(OperationResult { differences: 2, ms: 5 });
    let (state, partial) = ("succeeded".into(), Vec::new());
    let finished = OperationFinished {
        operation: finished,
        state,
        partial,
        error: None,
        result,
        cells: Vec::new(),
        warnings: Vec::new(),
    };
    world.admin(AdminCommand::FinishOperation { domain: None, tenant: None, finished }).await;
    let operation = crate::imperative::ask(&world.app, Work::Verify, Projection::Desired).await;
    world.admin(AdminCommand::CancelOperation { operation }).await;
    crate::imperative::ask(&world.app, Work::Verify, Projection::Desired).await;
    let head = world.head().await;
    let position = "select position from projection_cursors where name = 'operations'";
    let at = || async { sqlx::query_scalar::<_, i64>(position).fetch_one(&world.app.pool).await.unwrap() };
    eventually("it is at the head", at, |at| *at >= head.get()).await;
    let digest = "select jsonb_agg(o order by id)::text || (select jsonb_agg(v order by domain_id, cluster_id)::text \
                  from operations.verified v) from operations.operations o";
    let live: String = sqlx::query_scalar(digest).fetch_one(&world.app.pool).await.unwrap();
    let reset = "with o as (delete from operations.operations), v as (delete from operations.verified), \
                 t as (delete from operations.targets) \
                 update projection_cursors set position = 0 where name = 'operations'";
    sqlx::query(reset).execute(&world.app.pool).await.unwrap();
    eventually("it is at the head again", at, |at| *at >= head.get()).await;
    let fresh: String = sqlx::query_scalar(digest).fetch_one(&world.app.pool).await.unwrap();
    assert_eq!(fresh, live);
}
