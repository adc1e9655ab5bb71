//! To the answers of a real PowerDNS and dnsdist; and what a process that dies in the append leaves.

use std::sync::Arc;

use headwater::command::Command;
use headwater::store::past;
use headwater_events::dns::RrType;
use headwater_events::domain::{DomainCommand, Retention, Rollback};
use headwater_events::ids::Revision;
use headwater_events::time::Timestamp;

use crate::deploy::lab::{Lab, domain};

const ZONE: &str = "example.com";

async fn rollback(lab: &Lab, to: Revision) -> Command {
    let pool = &lab.app.pool;
    let state = headwater::query::domains::by_name(pool, &domain(ZONE)).await.unwrap().unwrap().state;
    let retention = Retention { window: std::time::Duration::from_secs(86_400), newest: 10 };
    let past = past::read(pool, &state, to, retention, Timestamp::from(chrono::Utc::now())).await.unwrap();
    assert!(past.standing.is_restorable(), "{:?}", past.standing);
    let rollback = Rollback { past: Arc::new(past), destinations: Default::default() };
    Command::Domain { name: domain(ZONE), command: DomainCommand::Rollback(Box::new(rollback)) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_listeners_answer_as_they_did() {
    let lab = Lab::start(1).await;
    lab.create(ZONE).await;
    lab.put(ZONE, "www", RrType::A, &["192.0.2.1"]).await;
    lab.put(ZONE, "a.deep", RrType::A, &["192.0.2.2"]).await;
    let good = lab.put(ZONE, "sub", RrType::NS, &["ns.example.net."]).await.revision;
    lab.current(ZONE).await;
    let names = [
        ("www.example.com", "A"),
        ("a.deep.example.com", "A"),
        ("deep.example.com", "A"),
        ("x.sub.example.com", "A"),
        ("new.example.com", "A"),
    ];
    let answers = |lab: &Lab| names.map(|(name, rrtype)| lab.dig(0, name, rrtype));
    let then = answers(&lab);
    lab.put(ZONE, "www", RrType::A, &["192.0.2.66"]).await;
    lab.delete(ZONE, "a.deep", RrType::A).await;
    lab.delete(ZONE, "sub", RrType::NS).await;
    lab.put(ZONE, "new", RrType::A, &["192.0.2.67"]).await;
    lab.current(ZONE).await;
    let wrong = answers(&lab);
    assert!(then.iter().zip(&wrong).all(|(then, wrong)| then != wrong), "{then:?}\n{wrong:?}");
    let command = rollback(&lab, good).await;
    let outcome = lab.submit(command).await.unwrap();
    assert!(outcome.changed && outcome.operation.is_some());
    lab.current(ZONE).await;
    assert_eq!(answers(&lab), then);
}
