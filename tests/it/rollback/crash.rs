//! A process that dies while it appends a rollback leaves all of it or nothing; asked again with its key, it is there
//! once.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command as Program, Stdio};
use std::sync::Arc;

use headwater::command::Command;
use headwater::secret::Secret;
use headwater::store::past;
use headwater_events::domain::{DomainCommand, Retention, Rollback, RrsetChange, Standing};
use headwater_events::event::Event;
use headwater_events::ids::{Revision, UserId};
use headwater_events::time::Timestamp;
use nix::sys::signal::{Signal, raise};
use uuid::Uuid;

use crate::support::log::*;

const URL: &str = "HEADWATER_TEST_ROLLBACK_URL";
const POINT: &str = "HEADWATER_TEST_ROLLBACK_POINT";
const ZONE: &str = "example.com";
const OWNERS: usize = 40;

fn all_at(value: u8) -> Command {
    let change = |n| RrsetChange::Put(rrset(ZONE, &format!("n{n}"), "A", &[&format!("192.0.2.{value}")]));
    on(ZONE, DomainCommand::ChangeRrsets((0..OWNERS).map(change).collect()))
}

/// Rolls back to revision 2, with the key that every try has.
async fn roll_back(log: &Log) -> Result<headwater::command::Outcome, headwater::command::SubmitError> {
    let state =
        headwater::query::domains::by_name(&log.pool, &domain_name(ZONE)).await.unwrap().unwrap().state;
    let retention = Retention { window: std::time::Duration::from_secs(86_400), newest: 10 };
    let now = Timestamp::from(chrono::Utc::now());
    let mut past = past::read(&log.pool, &state, Revision::new(2), retention, now).await.unwrap();
    // No target has verified it, so that nothing of it was read before: all of it is read under the lock.
    past.standing = Standing { retained: true, validated: true, nearest: Vec::new() };
    let rollback = Rollback { past: Arc::new(past), destinations: Default::default() };
    let caller = member(UserId::from_uuid(Uuid::from_u128(7)), log.tenant);
    let command = on(ZONE, DomainCommand::Rollback(Box::new(rollback)));
    log.commit.submit(caller, command, keyed(Uuid::from_u128(1), 1)).await
}

/// Not a test by itself: the process that is killed.
#[tokio::test]
async fn child() {
    let (Ok(url), Ok(point)) = (std::env::var(URL), std::env::var(POINT)) else { return };
    let log = Log::join(Secret::new(url)).await;
    fail::cfg_callback(point, || raise(Signal::SIGKILL).unwrap()).unwrap();
    let _ended = roll_back(&log).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_leaves_all_of_a_rollback_or_nothing() {
    for (point, written) in [("append.before_call", false), ("append.after_call", true)] {
        let log = Log::new().await;
        log.domain(ZONE).await;
        for value in [1, 2] {
            log.submit(all_at(value)).await.unwrap();
        }
        let status = Program::new(std::env::current_exe().unwrap())
            .args(["rollback::crash::child", "--exact", "--nocapture"])
            .env(URL, log.url.expose())
            .env(POINT, point)
            .stdout(Stdio::null())
            .status()
            .unwrap();
        assert_eq!(status.signal(), Some(9), "{point}: it was not killed there");
        let rolled = async || {
            let all = log.all().await;
            let of = |revision: i64| {
                all.iter().filter(move |event| {
                    event.revision.get() == revision && event.event_type.starts_with("rrset.")
                })
            };
            let back: Vec<_> = all.iter().filter(|event| event.event_type == "domain.rolled_back").collect();
            for fact in &back {
                assert_eq!(of(fact.revision.get()).count(), OWNERS, "{point}: half of it is there");
                for event in of(fact.revision.get()) {
                    let Event::RrsetReplaced(put) = event.decode().unwrap() else { panic!("{event:?}") };
                    assert_eq!(put.after.records, ["192.0.2.1"]);
                }
            }
            back.len()
        };
        assert_eq!(rolled().await, usize::from(written), "{point}");
        // Whoever asked got no answer, and asks again.
        let answer = roll_back(&log).await.unwrap();
        assert_eq!((answer.changed, answer.revision, answer.replayed), (true, Revision::new(4), written));
        assert_eq!(rolled().await, 1, "{point}");
        log.assert_sound().await;
    }
}
