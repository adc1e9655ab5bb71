//! Tenants take turns in what is claimed.

use std::collections::BTreeSet;

use sqlx::postgres::PgPool;
use sqlx::{AssertSqlSafe, Row};
use uuid::Uuid;

use headwater::command::Command;
use headwater_events::admin::AdminCommand;
use headwater_events::event::PauseScope;
use headwater_events::ids::TenantId;

use super::lab::Lab;
use crate::support::TestDb;
use crate::support::log::create_domain;

/// Domains that one tenant has due.
const MANY: i32 = 10_000;
/// What is claimed at once.
const BATCH: i64 = 200;

async fn due(pool: &PgPool, cluster: Uuid) -> Vec<Uuid> {
    due_after(pool, cluster, Uuid::nil(), 32).await.into_iter().map(|(domain, _)| domain).collect()
}

/// What is due of so many tenants after one: domains with their tenants.
async fn due_after(pool: &PgPool, cluster: Uuid, after: Uuid, tenants: i64) -> Vec<(Uuid, Uuid)> {
    let query = sqlx::query(headwater::deploy::sql::DUE).bind(cluster).bind(Vec::<Uuid>::new());
    let query = query.bind(BATCH).bind(10_i64).bind(after).bind(tenants).bind(Vec::<String>::new());
    let mut indexed = pool.begin_with(headwater::deploy::sql::INDEXED).await.unwrap();
    let rows = query.fetch_all(&mut *indexed).await.unwrap();
    rows.iter().map(|row| (row.get(0), row.get(4))).collect()
}

#[tokio::test]
async fn one_tenants_many_domains_do_not_delay_anothers_one() {
    let db = TestDb::new().await;
    let pool = db.pool().await;
    headwater::store::pool::migrate(&pool).await.unwrap();
    let cluster = Uuid::now_v7();
    let cluster_row = "insert into desired.clusters (id, name, database_url_file, dns, nameservers, enabled, revision, \
                       created_at) values ($1, 'dns-1', '/nowhere', '127.0.0.1:53', '{}', true, 1, now())";
    sqlx::query(cluster_row).bind(cluster).execute(&pool).await.unwrap();
    let domains = "insert into desired.domains (id, name, name_key, tenant_id, status, labels, serial_base, revision, created_at, \
                     updated_at) \
                   select gen_random_uuid(), 't' || $1 || '-' || n || '.test', 'test t' || $1 || '-' || n, \
                     ('00000000-0000-0000-0000-' || lpad($1::text, 12, '0'))::uuid, 'active', '{}', 1, 1, now(), now() \
                   from generate_series(1, $2) n";
    let wanted = "insert into desired.deployments (cluster_id, domain_id, wanted, desired_revision, desired_generation, \
                    desired_at) \
                  select $1, d.id, true, 1, 0, now() from desired.domains d \
                  where not exists (select from desired.deployments p where p.domain_id = d.id)";
    // The one with many is first; then two with few.
    for (tenant, count) in [(1, MANY), (2, 1), (3, 3)] {
        sqlx::query(domains).bind(tenant).bind(count).execute(&pool).await.unwrap();
        sqlx::query(wanted).bind(cluster).execute(&pool).await.unwrap();
    }
    sqlx::raw_sql("analyze").execute(&pool).await.unwrap();
    let claimed = due(&pool, cluster).await;
    assert_eq!(claimed.len(), 200);
    let tenants: Vec<i32> = sqlx::query_scalar(
        "select right(d.tenant_id::text, 12)::int from unnest($1::uuid[]) with ordinality c(id, n) \
         join desired.domains d on d.id = c.id order by c.n",
    )
    .bind(&claimed)
    .fetch_all(&pool)
    .await
    .unwrap();
    assert_eq!(tenants[..7], [1, 2, 3, 1, 3, 1, 3], "tenants take turns");
    assert!(tenants[7..].iter().all(|tenant| *tenant == 1));

    // A look at few tenants goes on after the last one: all have their turn.
    let tenant = |number: u128| Uuid::from_u128(number);
    let tenants_of = |found: Vec<(Uuid, Uuid)>| found.into_iter().map(|(_, of)| of).collect::<BTreeSet<_>>();
    let first = tenants_of(due_after(&pool, cluster, Uuid::nil(), 2).await);
    assert_eq!(first, [tenant(1), tenant(2)].into());
    let rest = due_after(&pool, cluster, tenant(2), 2).await;
    assert_eq!((rest.len(), tenants_of(rest)), (3, [tenant(3)].into()));

    // What is not due costs nothing: it is found by the index of what is.
    sqlx::raw_sql(
        "update desired.deployments set active_revision = 1, active_generation = 0, state = 'current' \
         where domain_id not in (select domain_id from desired.deployments limit 5)",
    )
    .execute(&pool)
    .await
    .unwrap();
    sqlx::raw_sql("vacuum analyze desired.deployments").execute(&pool).await.unwrap();
    let text = headwater::deploy::sql::DUE.replace("$1", &format!("'{cluster}'"));
    let text = text.replace("$2", "'{}'").replace("$3", "200").replace("$4", "10");
    let text = text.replace("$5", &format!("'{}'", Uuid::nil())).replace("$6", "32").replace("$7", "'{}'");
    let mut indexed = pool.begin_with(headwater::deploy::sql::INDEXED).await.unwrap();
    let plan: Vec<String> =
        sqlx::query_scalar(AssertSqlSafe(format!("explain {text}"))).fetch_all(&mut *indexed).await.unwrap();
    let plan = plan.join("\n");
    assert!(plan.contains("deployments_turns") && !plan.contains("Seq Scan on domains"), "{plan}");
}

/// More tenants than one look takes in, each with a domain that is due: the worker's looks go on where the last ended,
/// and begin anew, until all have had their turn. No poll, no other change wakes it in between.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_tenant_has_its_turn_however_many_there_are() {
    const TENANTS: usize = 70;
    let lab = Lab::start(1).await;
    let (scope, reason) = (PauseScope::All, "all are to be due at once".to_owned());
    lab.admin(AdminCommand::Pause { scope: scope.clone(), reason: reason.clone() }).await;
    for n in 0..TENANTS {
        let id = TenantId::from_uuid(Uuid::now_v7());
        let (name, labels) = (format!("tenant {n}"), [].into());
        lab.admin(AdminCommand::CreateTenant { id, name, labels, external_id: None }).await;
        lab.submit(Command::CreateDomain(create_domain(&format!("turn{n}.test"), id))).await.unwrap();
    }
    lab.admin(AdminCommand::Resume { scope, reason }).await;
    for n in 0..TENANTS {
        lab.current(&format!("turn{n}.test")).await;
    }
}
