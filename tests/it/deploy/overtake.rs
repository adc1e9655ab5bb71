//! A name server that is slow to answer holds nothing up: what is newer is written without waiting until the older
//! state was seen, and is seen in its place.

use std::net::UdpSocket;

use headwater_events::admin::{AdminCommand, ClusterPatch};
use headwater_events::dns::RrType;

use super::lab::Lab;
use crate::support::eventually;

const ZONE: &str = "one.example";
/// A machine that is busy may need longer to accept a change than the older one is waited for.
const TRIES_MAX_TIMES: u8 = 10;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_newer_does_not_wait_until_the_older_state_was_seen() {
    let lab = Lab::start(1).await;
    lab.create(ZONE).await;
    lab.put(ZONE, "www", RrType::A, &["192.0.2.250"]).await;
    lab.current(ZONE).await;
    // Instead of dnsdist: it takes questions and answers none.
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let front = |front: String| AdminCommand::UpdateCluster {
        cluster: lab.clusters[0],
        patch: ClusterPatch { front: Some(Some(front)), ..ClusterPatch::default() },
    };
    let (silent, real) = (silent.local_addr().unwrap().to_string(), lab.stack.clusters[0].front.to_string());
    let target = lab.target(0).await;
    let written = || async {
        let query = sqlx::query_scalar::<_, i64>("select revision from hw_zones where name = $1").bind(ZONE);
        query.fetch_one(&target).await.unwrap()
    };
    let mut overtaken = false;
    for n in 0..TRIES_MAX_TIMES {
        lab.admin(front(silent.clone())).await;
        let older = lab.put(ZONE, "www", RrType::A, &[&format!("192.0.2.{}", 2 * n)]).await.revision.get();
        eventually("it is written", written, |revision| *revision == older).await;
        let newer =
            lab.put(ZONE, "www", RrType::A, &[&format!("192.0.2.{}", 2 * n + 1)]).await.revision.get();
        eventually("what is newer is written", written, |revision| *revision == newer).await;
        // It is seen once there is something to see it by; what is said of the older one would be said before.
        lab.admin(front(real.clone())).await;
        lab.current(ZONE).await;
        if said(&lab, older).await == 0 {
            overtaken = true;
            break;
        }
    }
    assert!(overtaken, "the newer state waited for the older one every time");
}

/// How many facts tell of a revision.
async fn said(lab: &Lab, revision: i64) -> i64 {
    sqlx::query_scalar(
        "select count(*) from events where domain = $1 and type like 'deployment.%' \
         and (convert_from(data, 'UTF8')::jsonb->>'revision')::bigint = $2",
    )
    .bind(ZONE)
    .bind(revision)
    .fetch_one(&lab.app.pool)
    .await
    .unwrap()
}
