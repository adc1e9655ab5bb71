//! Faults of the servers, and of what hands did to their databases.

use headwater_events::dns::RrType;
use sqlx::postgres::PgPool;

use super::{Asking, ZONE};

const WWW: (&str, &str) = ("www.example.com", "A");

async fn execute(pool: &PgPool, text: &'static str) {
    sqlx::raw_sql(text).execute(pool).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_down_is_named() {
    let mut asking = Asking::start().await;
    asking.lab.put(ZONE, "www", RrType::A, &["192.0.2.1"]).await;
    asking.whole(WWW).await;
    asking.lab.stack.clusters[0].pdns.service().kill().await.unwrap();
    asking.broken(WWW, "powerdns", "does not answer", "systemctl restart pdns").await;
    asking.lab.stack.clusters[0].pdns.service().start().await.unwrap();
    asking.whole(WWW).await;

    asking.lab.stack.clusters[0].postgres.kill().await.unwrap();
    let hop = asking.broken(WWW, "powerdns", "", "systemctl restart postgresql").await;
    assert_eq!(hop["target"], "dns-1");
    asking.lab.stack.clusters[0].postgres.restart().await.unwrap();
    asking.whole(WWW).await;

    asking.lab.stack.dnsdist.service().kill().await.unwrap();
    asking.broken(WWW, "dnsdist", "does not answer", "systemctl restart dnsdist").await;
    let began = std::time::Instant::now();
    let _seen = asking.why(WWW.0, WWW.1).await;
    assert!(began.elapsed() < std::time::Duration::from_secs(5), "{:?}", began.elapsed());
    asking.lab.stack.dnsdist.service().start().await.unwrap();
    asking.whole(WWW).await;
}

/// Nobody deploys here, so what hands did stays until the command that is told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_hands_did_is_named_and_mended() {
    let mut asking = Asking::start().await;
    asking.lab.put(ZONE, "www", RrType::A, &["192.0.2.1"]).await;
    asking.whole(WWW).await;
    asking.lab.leave_to_children().await;
    asking.listen().await;
    let target = asking.lab.target(0).await;
    let again = "headwater projection rebuild powerdns --domain example.com";
    let rows = [
        ("update records set content = '192.0.2.66' where name = 'www.example.com'", "192.0.2.66"),
        ("delete from records where name = 'www.example.com'", "NXDOMAIN"),
        ("delete from domains where name = 'example.com'", "does not have the zone"),
        (
            "update records set content = regexp_replace(content, ' [0-9]+ ([0-9]+) ([0-9]+) ([0-9]+) ([0-9]+)$', \
                ' 1 \\1 \\2 \\3 \\4') where type = 'SOA'",
            "has serial 1",
        ),
    ];
    for (statement, told) in rows {
        execute(&target, statement).await;
        let hop = asking.mended(WWW, ("powerdns", told, again), "").await;
        assert_eq!(hop["target"], "dns-1");
    }
}
