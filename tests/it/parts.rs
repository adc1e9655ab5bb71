//! The kit of parts, each really run: databases that survive `kill -9`, name servers that answer what is committed,
//! and a front that leaves a cluster whose database is gone.

use std::net::SocketAddr;

use domain::base::Rtype;
use domain::base::iana::Rcode;
use headwater::demo::stack::DnsCluster;
use sqlx::postgres::PgConnection;
use sqlx::{Connection, Executor};

use crate::support::{DnsStack, TestDb, eventually};

/// The rows of a small zone whose answer names the cluster that gave it.
async fn write_zone(cluster: &DnsCluster, address: &str) {
    let mut connection = PgConnection::connect(cluster.database_url().expose()).await.unwrap();
    sqlx::query("INSERT INTO domains (name, type) VALUES ('example.test', 'NATIVE')")
        .execute(&mut connection)
        .await
        .unwrap();
    let rows = [
        ("example.test", "SOA", "ns1.example.net hostmaster.example.net 1 3600 600 1209600 300"),
        ("example.test", "NS", "ns1.example.net"),
        ("www.example.test", "A", address),
    ];
    for (name, kind, content) in rows {
        sqlx::query(
            "INSERT INTO records (domain_id, name, type, content, ttl) \
             SELECT id, $1, $2, $3, 300 FROM domains WHERE name = 'example.test'",
        )
        .bind(name)
        .bind(kind)
        .bind(content)
        .execute(&mut connection)
        .await
        .unwrap();
    }
    connection.close().await.unwrap();
}

/// Awaits that a server answers with this address.
async fn shows(what: &str, server: SocketAddr, address: &str) {
    let ask = || DnsStack::ask(server, "www.example.test", Rtype::A);
    let _answer =
        eventually(what, ask, |answer| answer.as_ref().is_ok_and(|answer| answer.is_exactly(address))).await;
}

#[tokio::test]
async fn test_databases_are_separate_and_survive_nothing_but_the_run() {
    let (one, two) = (TestDb::new().await, TestDb::new().await);
    assert_ne!(one.url().expose(), two.url().expose());
    one.pool().await.execute("CREATE TABLE t (n int)").await.unwrap();
    let pool = two.pool().await;
    let found: Option<i32> =
        sqlx::query_scalar("SELECT 1 FROM pg_class WHERE relname = 't'").fetch_optional(&pool).await.unwrap();
    assert_eq!(found, None);
    let safe: Vec<String> = sqlx::query_scalar(
        "SELECT current_setting(s) FROM unnest(ARRAY['fsync', 'full_page_writes', 'data_checksums', \
         'synchronous_commit', 'log_parameter_max_length']) s",
    )
    .fetch_all(&pool)
    .await
    .unwrap();
    assert_eq!(safe, ["on", "on", "on", "on", "0"]);
}

#[tokio::test]
async fn an_answer_shows_what_is_committed_and_comes_back_after_kills() {
    let mut stack = DnsStack::start(1).await;
    let address = stack.clusters[0].pdns.address();
    let unhosted = DnsStack::ask(address, "www.example.test", Rtype::A).await.unwrap();
    assert_eq!(unhosted.rcode, Rcode::REFUSED);

    // No cache: the answer after the commit is the new one, even right after another answer to the same question.
    write_zone(&stack.clusters[0], "192.0.2.1").await;
    let answer = DnsStack::ask(address, "www.example.test", Rtype::A).await.unwrap();
    assert!(answer.is_exactly("192.0.2.1") && answer.authoritative, "{answer:?}");

    stack.clusters[0].pdns.service().kill().await.unwrap();
    stack.clusters[0].pdns.service().start().await.unwrap();
    assert!(DnsStack::ask(address, "www.example.test", Rtype::A).await.unwrap().is_exactly("192.0.2.1"));

    let before = stack.clusters[0].postgres.id();
    stack.clusters[0].postgres.kill().await.unwrap();
    let answer = DnsStack::ask(address, "www.example.test", Rtype::A).await.unwrap();
    assert_eq!(answer.rcode, Rcode::SERVFAIL);
    stack.clusters[0].postgres.restart().await.unwrap();
    assert_ne!(stack.clusters[0].postgres.id(), before);
    shows("PowerDNS finds its database again", address, "192.0.2.1").await;
}

#[tokio::test]
async fn powerdns_can_only_read() {
    let stack = DnsStack::start(1).await;
    let mut connection = PgConnection::connect(stack.clusters[0].database_url().expose()).await.unwrap();
    let grants: Vec<String> = sqlx::query_scalar(
        "SELECT DISTINCT privilege_type FROM information_schema.role_table_grants WHERE grantee = 'pdns_ro'",
    )
    .fetch_all(&mut connection)
    .await
    .unwrap();
    assert_eq!(grants, ["SELECT"]);
    let settings: Vec<String> =
        sqlx::query_scalar("SELECT unnest(rolconfig) FROM pg_roles WHERE rolname = 'pdns_ro'")
            .fetch_all(&mut connection)
            .await
            .unwrap();
    assert_eq!(settings, ["default_transaction_read_only=on"]);
}

#[tokio::test]
async fn the_front_leaves_a_cluster_whose_database_is_gone_and_returns() {
    let mut stack = DnsStack::start(2).await;
    write_zone(&stack.clusters[0], "192.0.2.1").await;
    write_zone(&stack.clusters[1], "192.0.2.2").await;
    let front = stack.dnsdist.address();
    let fronts: Vec<_> = stack.clusters.iter().map(|cluster| cluster.front).collect();

    shows("the preferred cluster answers", front, "192.0.2.1").await;
    shows("the first cluster answers at its own front", fronts[0], "192.0.2.1").await;
    shows("the second cluster answers at its own front", fronts[1], "192.0.2.2").await;

    stack.clusters[0].postgres.kill().await.unwrap();
    shows("the other cluster takes over", front, "192.0.2.2").await;
    // Its own front never falls back to another cluster: a deployment on it could not be told from the other's.
    let alone = DnsStack::ask(fronts[0], "www.example.test", Rtype::A).await.unwrap();
    assert_eq!(alone.rcode, Rcode::SERVFAIL);
    let other = DnsStack::ask(fronts[1], "www.example.test", Rtype::A).await.unwrap();
    assert!(other.is_exactly("192.0.2.2"), "{other:?}");

    stack.clusters[0].postgres.restart().await.unwrap();
    shows("the preferred cluster is back", front, "192.0.2.1").await;

    stack.clusters[0].pdns.service().kill().await.unwrap();
    shows("the other cluster takes over again", front, "192.0.2.2").await;
    stack.dnsdist.service().kill().await.unwrap();
    stack.dnsdist.service().start().await.unwrap();
    shows("a new front finds the healthy one", front, "192.0.2.2").await;
}
