//! Rollbacks while others write: one revision each, never half of one; and across a crash at each point of the append.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use reqwest::Method;
use serde_json::{Value, json};

use super::{Lived, ZONE};
use crate::support::Answer;

/// RRsets that a batch puts at once, all with the same value.
const OWNERS: usize = 30;
/// Rounds of rollbacks against writers.
const ROUNDS: usize = 12;

async fn all_at(lived: &Lived, value: u8) -> i64 {
    let change = |n: usize| json!({"op": "put", "name": format!("n{n}"), "type": "A", "ttl": 300, "records": [format!("192.0.2.{value}")]});
    let changes: Vec<Value> = (0..OWNERS).map(change).collect();
    let path = format!("{ZONE}/rrsets/batch");
    let done = lived.api.call(Method::POST, &path, json!({"changes": changes})).await.expect(202).json();
    done["revision"].as_i64().unwrap()
}

/// The value that every owner has; fails when they do not agree.
async fn value(lived: &Lived) -> Value {
    let page = lived.api.get(&format!("{ZONE}/rrsets?limit=1000")).await.expect(200).json();
    let items = page["items"].as_array().unwrap().iter();
    let mut values: Vec<Value> =
        items.filter(|item| item["type"] == "A").map(|item| item["records"][0].clone()).collect();
    assert_eq!(values.len(), OWNERS);
    values.dedup();
    assert_eq!(values.len(), 1, "half of a change is there: {values:?}");
    values.remove(0)
}

/// Two at once and a writer that never rests: each has its place in the order of revisions, and each state is whole.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_writes_meanwhile_a_rollback_is_whole() {
    let lived = Arc::new(Lived::new("").await);
    let (one, two) = (all_at(&lived, 1).await, all_at(&lived, 2).await);
    lived.verified(one).await;
    lived.verified(two).await;
    let stop = Arc::new(AtomicBool::new(false));
    let writer = tokio::spawn({
        let (lived, stop) = (lived.clone(), stop.clone());
        async move {
            let mut written = 0_u8;
            while !stop.load(Ordering::SeqCst) {
                all_at(&lived, 3 + written % 2).await;
                written = written.wrapping_add(1);
            }
        }
    });
    let mut answers: Vec<Answer> = Vec::new();
    for _ in 0..ROUNDS {
        let (a, b) = tokio::join!(lived.rollback(one), lived.rollback(two));
        answers.extend([a, b]);
    }
    stop.store(true, Ordering::SeqCst);
    writer.await.unwrap();
    let mut revisions = Vec::new();
    for answer in answers {
        assert!([200, 202].contains(&answer.status.as_u16()), "{answer:?}");
        let body = answer.json();
        if body["changed"] == json!(true) {
            revisions.push(body["revision"].as_i64().unwrap());
        }
    }
    revisions.sort_unstable();
    let count = revisions.len();
    revisions.dedup();
    assert_eq!(revisions.len(), count, "one revision each");
    assert!(count >= ROUNDS, "the two ask for different things");
    // Every revision that the log tells, put together from its events, is a whole one.
    let last = lived.api.get(ZONE).await.expect(200).json()["revision"].as_i64().unwrap();
    let mut now = vec![Value::Null; OWNERS];
    for revision in 2..=last {
        let shown = lived.api.get(&format!("{ZONE}/revisions/{revision}")).await.expect(200).json();
        for change in shown["changes"].as_array().unwrap() {
            let path = change["path"].as_str().unwrap();
            let n: usize = path["/rrsets/n".len()..].split('/').next().unwrap().parse().unwrap();
            assert_eq!(change["before"]["records"][0], now[n], "{revision}: {change}");
            now[n] = change["after"]["records"][0].clone();
        }
        assert!(now.iter().all(|value| *value == now[0]), "revision {revision} is half of one: {now:?}");
    }
    assert_eq!(value(&lived).await, now[0]);
}

/// More is written between the reading and the lock than is read under it: it is read again, and no half comes of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_came_meanwhile_is_read_too() {
    let lived = Lived::new("").await;
    let one = all_at(&lived, 1).await;
    lived.verified(one).await;
    all_at(&lived, 2).await;
    let name = super::NAME.parse().unwrap();
    let found = headwater::query::domains::by_name(&lived.api.app.pool, &name).await;
    let domain = found.unwrap().unwrap().state;
    let (retention, now) = (lived.api.app.config.limits.retention, lived.api.app.clock.now());
    let to = headwater_events::ids::Revision::new(one);
    let past = headwater::store::past::read(&lived.api.app.pool, &domain, to, retention, now).await.unwrap();
    // Something that the past does not know of, and something that it does.
    lived.put("late", "192.0.2.9").await;
    all_at(&lived, 3).await;
    let rollback =
        headwater_events::domain::Rollback { past: Arc::new(past), destinations: Default::default() };
    let command = headwater_events::domain::DomainCommand::Rollback(Box::new(rollback));
    let command = headwater::command::Command::Domain { name: domain.name.clone(), command };
    let caller = headwater_events::actor::Caller::system();
    let meta = headwater::command::Meta::internal();
    let outcome = lived.api.app.commit.submit(caller, command, meta).await.unwrap();
    assert!(outcome.changed);
    lived.api.get(&format!("{ZONE}/rrsets/late/A")).await.expect(404);
    assert_eq!(value(&lived).await, json!("192.0.2.1"));
}
