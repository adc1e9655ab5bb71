//! How operations end that edges carry out too: with the cells in service, without any, and by what edges refuse.

use std::time::Duration;

use headwater::config::Config;
use headwater_events::actor::Caller;
use headwater_events::admin::Outcome as Seen;
use headwater_events::ids::{ClusterId, DomainId};
use serde_json::{Value, json};
use sqlx::Executor;

use super::{host, purge};
use crate::support::eventually;
use crate::support::world::{Runs, World, fact};

const FRA: &str = "00000000-0000-7000-8000-00000000000f";

/// The registry of edges as the test has it: rows of a table of its own in place of heartbeats and acks.
const REGISTRY: &str = "create table test_cells (edge_id uuid, cell integer, name text, in_service boolean, acked bigint, \
     refused_revision bigint, refused_why text); \
     create or replace function edge.cells(_domain uuid) returns table (edge_id uuid, cell integer, name text, \
     in_service boolean, acked bigint, refused_revision bigint, refused_why text) \
     language sql stable as $$ select * from test_cells $$";

struct Lab {
    world: World,
    cluster: ClusterId,
    domain: DomainId,
}

impl Lab {
    async fn new(deadline: u64) -> Self {
        let soon = |config: &mut Config| config.operations.deadline = Duration::from_secs(deadline);
        let world = World::with(Runs::All, soon).await;
        world.app.pool.execute(sqlx::raw_sql(REGISTRY)).await.unwrap();
        let cluster = world.cluster("dns-1").await;
        let health =
            "insert into cluster_health (cluster_id, reached_at) values ($1, now() + interval '1 hour')";
        sqlx::query(health).bind(cluster.as_uuid()).execute(&world.app.pool).await.unwrap();
        let (domain, created) = world.domain("example.test", world.tenant).await;
        let seen = Seen::Acknowledged(fact(created.revision, None));
        world.record(cluster, (domain, "example.test"), seen).await;
        Self { world, cluster, domain }
    }

    async fn cell(&self, cell: i32, in_service: bool) {
        let insert = "insert into test_cells values ($1::uuid, $2, 'fra1', $3, 0, null, null)";
        let query = sqlx::query(insert).bind(FRA).bind(cell).bind(in_service);
        query.execute(&self.world.app.pool).await.unwrap();
    }

    async fn set(&self, text: &'static str) {
        sqlx::query(text).execute(&self.world.app.pool).await.unwrap();
    }

    /// Does it, and has DNS verify it; gives the operation.
    async fn done_in_dns(&self, command: headwater::command::Command) -> String {
        let outcome = self.world.submit(Caller::system(), command).await;
        let seen = Seen::Acknowledged(fact(outcome.revision, None));
        self.world.record(self.cluster, (self.domain, "example.test"), seen).await;
        outcome.operation.unwrap().to_string()
    }

    async fn wait(&self, operation: &str) -> Value {
        self.world.json("system", &format!("/api/operations/{operation}?wait=20")).await
    }
}

#[tokio::test]
async fn an_operation_waits_for_the_cells_in_service() {
    let lab = Lab::new(120).await;
    lab.cell(0, true).await;
    lab.cell(1, true).await;
    lab.cell(2, false).await;
    let operation = lab.done_in_dns(host("example.test", "www", "1.1.1.1")).await;
    let path = format!("/api/operations/{operation}");
    // DNS has verified it, a cell has not: it runs. The operation after it, of records alone, waits for no cell.
    let records = json!(lab.world.put(&Caller::system(), "example.test", "x", "192.0.2.1").await.operation);
    let seen = Seen::Acknowledged(fact(headwater_events::ids::Revision::new(3), None));
    lab.world.record(lab.cluster, (lab.domain, "example.test"), seen).await;
    assert_eq!(lab.wait(records.as_str().unwrap()).await["state"], "succeeded");
    lab.set("update test_cells set acked = 1000000 where cell = 0").await;
    let shown = || async { lab.world.json("system", &path).await };
    let running = eventually("a cell is current", shown, |body| body["targets"]["active"] == 2).await;
    assert_eq!(running["state"], "running");
    assert_eq!(running["targets"], json!({"total": 4, "active": 2, "unreachable": 1}));
    lab.set("update test_cells set acked = 1000000 where cell = 1").await;
    let ended = lab.wait(&operation).await;
    assert_eq!((&ended["state"], &ended["served"]), (&json!("succeeded"), &json!(true)));
    assert_eq!(ended["partial"], json!([{"id": FRA, "cell": 2, "name": "fra1/2"}]));
    assert_eq!(ended["warnings"], json!([]));
}

#[tokio::test]
async fn without_a_cell_in_service_it_is_dns_alone_and_says_so() {
    let lab = Lab::new(120).await;
    let operation = lab.done_in_dns(purge("example.test")).await;
    let ended = lab.wait(&operation).await;
    assert_eq!((&ended["kind"], &ended["state"]), (&json!("domain.purge"), &json!("succeeded")));
    assert!(ended["warnings"][0].as_str().unwrap().contains("no cell is in service"), "{ended}");
}

#[tokio::test]
async fn it_fails_by_its_deadline_or_by_what_is_refused() {
    let lab = Lab::new(3).await;
    lab.cell(0, true).await;
    let operation = lab.done_in_dns(host("example.test", "www", "1.1.1.1")).await;
    let ended = lab.wait(&operation).await;
    assert_eq!((&ended["state"], &ended["error"]["code"]), (&json!("failed"), &json!("deadline_exceeded")));
    assert!(ended["error"]["detail"].as_str().unwrap().contains("cell fra1/0"), "{ended}");
    lab.set("update test_cells set refused_revision = 3, refused_why = 'bad gateway'").await;
    let operation = lab.done_in_dns(host("example.test", "www", "1.0.0.1")).await;
    let ended = lab.wait(&operation).await;
    assert_eq!((&ended["state"], &ended["error"]["code"]), (&json!("failed"), &json!("rejected")));
    assert_eq!(ended["error"]["detail"], "fra1/0 refused it: bad gateway");
}
