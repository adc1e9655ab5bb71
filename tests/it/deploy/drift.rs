//! The check against hands in the target's tables: a mended row is told when it is seen, and what Headwater never
//! writes does not stay on a zone of its own.

use headwater_events::dns::RrType;
use sqlx::postgres::PgPool;

use super::lab::Lab;
use crate::support::eventually;

const ZONE: &str = "example.com";

async fn execute(pool: &PgPool, text: &'static str) {
    sqlx::raw_sql(text).execute(pool).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mended_row_that_is_not_shown_is_a_failed_deployment() {
    let mut lab = Lab::start(1).await;
    lab.create(ZONE).await;
    lab.put(ZONE, "www", RrType::A, &["192.0.2.1"]).await;
    lab.current(ZONE).await;
    let target = lab.target(0).await;
    lab.stack.clusters[0].pdns.service().kill().await.unwrap();
    execute(&target, "update records set content = '192.0.2.66' where name = 'www.example.com'").await;
    lab.told(ZONE, "deployment.failed").await;
    let content = "select content from records where name = 'www.example.com'";
    let content: String = sqlx::query_scalar(content).fetch_one(&target).await.unwrap();
    assert_eq!(content, "192.0.2.1", "it is mended in the database");
    assert_eq!(lab.events(ZONE, "deployment.drift_mended").await, 0, "it was told before it was seen");
    let reason = lab.deployments(ZONE).await[0].4.clone().unwrap_or_default();
    assert!(reason.contains("not shown") && reason.contains("PowerDNS"), "{reason}");

    lab.stack.clusters[0].pdns.service().start().await.unwrap();
    lab.current(ZONE).await;
    assert_eq!(lab.dig(0, "www.example.com", "A"), "NOERROR\nanswer www.example.com. A 192.0.2.1");

    // With its listeners there, a row more, a row less and a row that differs are told when they are answered right.
    execute(
        &target,
        "update records set ttl = 1, content = '192.0.2.67' where name = 'www.example.com'; \
         delete from records where name = 'example.com' and content = 'ns1.example.net'; \
         insert into records (domain_id, name, type, content, ttl, auth, ordername) \
           select id, 'planted.example.com', 'A', '192.0.2.68', 300, true, 'planted' from domains",
    )
    .await;
    lab.told(ZONE, "deployment.drift_mended").await;
    assert_eq!(lab.dig(0, "www.example.com", "A"), "NOERROR\nanswer www.example.com. A 192.0.2.1");
    assert_eq!(lab.dig(0, "planted.example.com", "A"), "NXDOMAIN");
    assert_eq!(lab.dig(0, "example.com", "NS").lines().count(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_hangs_on_a_zone_and_is_not_ours_is_taken_off() {
    let lab = Lab::start(1).await;
    lab.create(ZONE).await;
    lab.current(ZONE).await;
    let target = lab.target(0).await;
    execute(
        &target,
        "insert into domains (name, type) values ('foreign.example', 'NATIVE'); \
         insert into domainmetadata (domain_id, kind, content) \
           select id, kind, '0.0.0.0/0' from domains, unnest(array['ALLOW-AXFR-FROM', 'LUA-AXFR-SCRIPT']) kind; \
         insert into cryptokeys (domain_id, flags, active, content) select id, 257, false, 'secret' from domains; \
         insert into comments (domain_id, name, type, modified_at, comment) \
           select id, name, 'A', 1, 'hello' from domains",
    )
    .await;
    let left = || async {
        let query = "select count(*) filter (where d.name = 'example.com'), \
                       count(*) filter (where d.name = 'foreign.example') \
                     from domains d join (select domain_id from domainmetadata union all \
                       select domain_id from cryptokeys union all select domain_id from comments) t on t.domain_id = d.id";
        sqlx::query_as::<_, (i64, i64)>(query).fetch_one(&target).await.unwrap()
    };
    let left = eventually("what is not ours is gone", left, |(ours, _)| *ours == 0).await;
    assert_eq!(left.1, 4, "the zone of somebody else was touched");
    lab.told(ZONE, "deployment.drift_mended").await;
    let told: String = sqlx::query_scalar(
        "select convert_from(data, 'UTF8') from events where type = 'deployment.drift_mended'",
    )
    .fetch_one(&lab.app.pool)
    .await
    .unwrap();
    for what in ["domainmetadata ALLOW-AXFR-FROM", "domainmetadata LUA-AXFR-SCRIPT", "cryptokeys 257"] {
        assert!(told.contains(what) && !told.contains("secret"), "{told}");
    }
}
