//! Processes that are killed on the way, and two at once: every zone is taken in once and told of once.

use std::collections::BTreeMap;

use headwater::command::{Command, Meta};
use headwater::operation::runner;
use headwater_events::actor::Caller;
use headwater_events::admin::AdminCommand;
use headwater_events::ids::{OperationId, TenantId};
use headwater_events::migration::{ImportRequested, ImportSource, Mode, OnExisting, Tenants};
use uuid::Uuid;

use crate::imperative::{Runner, ended};
use crate::support::TestApi;

/// Zones of the trial.
const ZONES: usize = 40;

fn archive() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for n in 0..ZONES {
        let text = format!("$TTL 300\n@ SOA ns h 7 1 2 3 4\nwww A 192.0.2.{}\n", n + 1);
        std::fs::write(dir.path().join(format!("z{n:02}.test")), text).unwrap();
    }
    dir
}

async fn ask(api: &TestApi, dir: &tempfile::TempDir, tenant: TenantId) -> OperationId {
    let requested = ImportRequested {
        source: ImportSource::Archive { path: dir.path().to_str().unwrap().to_owned() },
        mode: Mode::Once,
        tenants: Tenants { by_account: BTreeMap::new(), default: Some(tenant) },
        zones: None,
        activate: true,
        on_existing: OnExisting::Skip,
        follow_seconds: 60,
        allowed: Vec::new(),
        take_over: false,
    };
    let operation = OperationId::from_uuid(Uuid::now_v7());
    let command = AdminCommand::RequestImport { operation, requested: Box::new(requested) };
    api.app.commit.submit(Caller::system(), Command::admin(command), Meta::internal()).await.unwrap();
    operation
}

/// Every zone was taken in by one revision, and is told as such.
async fn whole(api: &TestApi, id: OperationId, what: &str) {
    let text = "select count(*) from import_zones where import = $1 and outcome = 'imported' and domain_id is not null";
    let told: i64 = sqlx::query_scalar(text).bind(id.as_uuid()).fetch_one(&api.app.pool).await.unwrap();
    assert_eq!(told, i64::try_from(ZONES).unwrap(), "{what}");
    let text = "select count(*), count(distinct stream_id), max(revision) from events where change_id = $1";
    let (events, domains, revision): (i64, i64, i64) =
        sqlx::query_as(text).bind(id.as_uuid()).fetch_one(&api.app.pool).await.unwrap();
    let zones = i64::try_from(ZONES).unwrap();
    assert_eq!((events, domains, revision), (2 * zones, zones, 1), "{what}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_on_the_way_it_goes_on() {
    for (point, nth) in [
        ("import.before_zone", 3),
        ("import.after_zone", 20),
        ("import.before_report", 1),
        ("import.after_report", 1),
        ("operation.after_save", 1),
        ("operation.before_finish", 1),
    ] {
        let api = TestApi::start("").await;
        let (dir, tenant) = (archive(), api.platform_tenant().await);
        let id = ask(&api, &dir, tenant).await;
        Runner::at(api.database.url(), point, nth).await.kill();
        tokio::spawn(runner::run(api.app.clone()));
        let end = ended(&api.app.pool, id).await;
        assert_eq!(end["state"], "succeeded", "{point}: {end}");
        whole(&api, id, point).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_take_every_zone_in_once() {
    let api = TestApi::start("").await;
    let twin = api.join("").await;
    let (dir, tenant) = (archive(), api.platform_tenant().await);
    for app in [&api.app, &twin.app] {
        tokio::spawn(runner::run(app.clone()));
    }
    let id = ask(&api, &dir, tenant).await;
    assert_eq!(ended(&api.app.pool, id).await["state"], "succeeded");
    whole(&api, id, "two processes").await;
}

/// One that only stands still, and wakes when another has ended its work, changes nothing and tells nothing else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_wakes_late_changes_nothing() {
    let api = TestApi::start("").await;
    let (dir, tenant) = (archive(), api.platform_tenant().await);
    let id = ask(&api, &dir, tenant).await;
    let mut late = Runner::at(api.database.url(), "import.before_report", 1).await;
    // Its lease is over, as it would be after half a minute.
    sqlx::query("update leases set until = now() - interval '1 second'")
        .execute(&api.app.pool)
        .await
        .unwrap();
    tokio::spawn(runner::run(api.app.clone()));
    assert_eq!(ended(&api.app.pool, id).await["state"], "succeeded");
    whole(&api, id, "before it wakes").await;
    let text = "select max(at) from import_zones where import = $1";
    let newest = || async {
        let query = sqlx::query_scalar::<_, chrono::DateTime<chrono::Utc>>(text).bind(id.as_uuid());
        query.fetch_one(&api.app.pool).await.unwrap()
    };
    let before = newest().await;
    late.go_on();
    // It has come through its commits once something of its own that comes later is there: the next import.
    let next = ask(&api, &dir, tenant).await;
    assert_eq!(ended(&api.app.pool, next).await["state"], "succeeded");
    whole(&api, id, "after it wakes").await;
    assert_eq!(newest().await, before, "what it had in hand was not kept");
}
