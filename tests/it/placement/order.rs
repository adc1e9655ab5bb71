//! The order: edges learn of a name before DNS answers with it, and serve it until nobody is sent to it any more.

use std::time::Duration;

use headwater_events::dns::RrType;
use tokio::time::Instant;

use super::{Placed, TARGET, proxy, unproxy};
use crate::support::eventually;

/// For how long something must not happen to be believed.
const STILL: Duration = Duration::from_secs(3);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dns_waits_for_the_cells_and_nobody_else_waits_for_it() {
    let (placed, fra) = Placed::with_edge().await;
    let lab = &placed.lab;
    let began = Instant::now();
    lab.submit(proxy("new")).await.unwrap();
    // A change of records of another domain goes on at once.
    lab.put("plain.test", "x", RrType::A, &["192.0.2.1"]).await;
    lab.current("plain.test").await;
    assert!(began.elapsed() < STILL, "{:?}", began.elapsed());
    let look = || async { (began.elapsed() > STILL, placed.ask("new", "CNAME").await) };
    let (_, seen) = eventually("it is still not answered", look, |seen| seen.0 || seen.1 != "NXDOMAIN").await;
    assert_eq!(seen, "NXDOMAIN");
    let acked = Instant::now();
    placed.acks(fra).await;
    placed.answers("new", "CNAME", TARGET).await;
    assert!(acked.elapsed() < STILL, "{:?}", acked.elapsed());
    // What is changed of a name that cells have already waits for none.
    let other = crate::sites::host("example.test", "new", "1.0.0.1");
    lab.submit(other).await.unwrap();
    lab.current("example.test").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dns_waits_no_longer_than_it_must() {
    let (placed, fra) = Placed::with_edge().await;
    let lab = &placed.lab;
    let outcome = lab.submit(proxy("new")).await.unwrap();
    // As if the half minute had passed.
    let passed =
        "update desired.hostnames set added_at = added_at - interval '31 seconds' where $1::uuid is not null";
    placed.execute(passed, fra).await;
    placed.answers("new", "CNAME", TARGET).await;
    let operation = outcome.operation.unwrap();
    let aged =
        "update operations.operations set created_at = created_at - interval '31 seconds' where id = $1";
    sqlx::query(aged).bind(operation.as_uuid()).execute(&lab.app.pool).await.unwrap();
    placed.acks(fra).await;
    let look = || async {
        let query = "select state, warnings::text from operations.operations where id = $1";
        sqlx::query_as::<_, (String, String)>(query)
            .bind(operation.as_uuid())
            .fetch_one(&lab.app.pool)
            .await
            .unwrap()
    };
    let (state, warnings) =
        eventually("it has ended", look, |seen| seen.0 != "pending" && seen.0 != "running").await;
    assert!(
        state == "succeeded" && warnings.contains("DNS may have answered with it before"),
        "{state} {warnings}"
    );
    // Without any cell in service there is nobody to wait for.
    placed.falls_silent(fra).await;
    lab.submit(proxy("newer")).await.unwrap();
    let began = Instant::now();
    placed.answers("newer", "CNAME", TARGET).await;
    assert!(began.elapsed() < STILL, "{:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_leaves_dns_first_and_the_edges_after_the_drain() {
    let (placed, _) = Placed::with_edge().await;
    let lab = &placed.lab;
    placed.answers("www", "CNAME", TARGET).await;
    // While the cluster is out of service, nobody knows whether it still answers with the name.
    lab.submit(unproxy("www")).await.unwrap();
    placed.is_gone("www").await;
    let cleared = Instant::now();
    // What is free in DNS can be used at once.
    lab.put("example.test", "www", RrType::A, &["192.0.2.1"]).await;
    let look = || async { (cleared.elapsed(), placed.served().await) };
    let gone = |seen: &(Duration, Vec<String>)| !seen.1.contains(&"www.example.test".to_owned());
    let (after, names) = eventually("edges forget it", look, gone).await;
    assert!(after > Duration::from_millis(1_500), "they served it for {after:?} after DNS had stopped");
    assert_eq!(names, ["example.test"]);
    let (withdrawn, cause): (i64, i64) = sqlx::query_as(
        "select w.cause, d.position from events w, events d where w.type = 'hostname.withdrawn' and d.type = 'hostname.deleted'",
    )
    .fetch_one(&lab.app.pool)
    .await
    .unwrap();
    assert_eq!(withdrawn, cause);
    lab.current("example.test").await;
    assert_eq!(placed.ask("www", "A").await, "NOERROR\nanswer www.example.test. A 192.0.2.1");
    placed.verify(placed.site).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_comes_back_is_served_all_along() {
    let (placed, fra) = Placed::with_edge().await;
    let lab = &placed.lab;
    placed.answers("www", "CNAME", TARGET).await;
    lab.submit(unproxy("www")).await.unwrap();
    placed.is_gone("www").await;
    lab.submit(proxy("www")).await.unwrap();
    let began = Instant::now();
    placed.acks(fra).await;
    placed.answers("www", "CNAME", TARGET).await;
    let look = || async { (began.elapsed() > STILL, placed.served().await) };
    let is_served = |seen: &(bool, Vec<String>)| seen.1.contains(&"www.example.test".to_owned());
    let (_, names) = eventually("it is served all along", look, |seen| seen.0 || !is_served(seen)).await;
    assert_eq!(names, ["example.test", "www.example.test"]);
    assert_eq!(lab.events("example.test", "hostname.withdrawn").await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_stays_on_the_edges_while_a_cluster_in_service_may_answer_with_it() {
    let (placed, _) = Placed::with_edge().await;
    let lab = &placed.lab;
    placed.answers("www", "CNAME", TARGET).await;
    // Deployment stands still: the cluster is reached and answers with what it has.
    let pause = |on: bool| {
        let (scope, reason) = (headwater_events::event::PauseScope::All, String::new());
        match on {
            true => headwater_events::admin::AdminCommand::Pause { scope, reason },
            false => headwater_events::admin::AdminCommand::Resume { scope, reason },
        }
    };
    lab.admin(pause(true)).await;
    lab.submit(unproxy("www")).await.unwrap();
    let began = Instant::now();
    let still = Duration::from_secs(5);
    let look = || async { (began.elapsed() > still, placed.served().await) };
    let is_served = |seen: &(bool, Vec<String>)| seen.1.contains(&"www.example.test".to_owned());
    let (_, names) = eventually("it is served all along", look, |seen| seen.0 || !is_served(seen)).await;
    assert!(names.contains(&"www.example.test".to_owned()), "DNS still sends visitors to it");
    lab.admin(pause(false)).await;
    placed.is_gone("www").await;
    let look = || async { placed.served().await };
    eventually("edges forget it", look, |names| names.len() == 1).await;
}
