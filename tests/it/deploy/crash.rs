//! A deploying process that is killed, or fails, at each point of a deployment: the next one makes it good, nothing is
//! said twice, nothing goes back, and answers are right all the time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use domain::base::Rtype;
use headwater_events::dns::RrType;
use tokio::task::JoinHandle;
use tokio::time::{Duration, interval};

use super::child::Child;
use super::lab::Lab;
use crate::support::{DnsStack, eventually};

const ZONE: &str = "example.com";
const POINTS: [&str; 7] = [
    "deploy.after_claim",
    "deploy.before_write",
    "deploy.before_commit",
    "deploy.after_commit",
    "deploy.before_verify",
    "deploy.before_record",
    "deploy.after_record",
];

/// Asks both listeners all the time.
struct Watch {
    stop: Arc<AtomicBool>,
    /// The newest value that anybody can have seen.
    newest: Arc<AtomicU8>,
    task: JoinHandle<Result<u32, String>>,
}

impl Watch {
    fn start(lab: &Lab) -> Self {
        let (stop, newest) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU8::new(1)));
        let cluster = &lab.stack.clusters[0];
        let servers = [cluster.pdns.address(), cluster.front];
        let (ended, most) = (Arc::clone(&stop), Arc::clone(&newest));
        let task = tokio::spawn(async move {
            let (mut last, mut asked, mut pace) = ([1; 2], 0, interval(Duration::from_millis(5)));
            while !ended.load(Ordering::SeqCst) {
                pace.tick().await;
                for (server, last) in servers.into_iter().zip(&mut last) {
                    let stays = DnsStack::ask(server, "stays.example.com", Rtype::A).await;
                    if !stays.as_ref().is_ok_and(|answer| answer.is_exactly("192.0.2.200")) {
                        return Err(format!("what does not change: {stays:?}"));
                    }
                    let www = DnsStack::ask(server, "www.example.com", Rtype::A).await;
                    let values = (*last..=most.load(Ordering::SeqCst)).rev();
                    let mut values = values.filter(|n| {
                        www.as_ref().is_ok_and(|answer| answer.is_exactly(&format!("192.0.2.{n}")))
                    });
                    *last = values.next().ok_or(format!("after {last}: {www:?}"))?;
                    asked += 1;
                }
            }
            Ok(asked)
        });
        Self { stop, newest, task }
    }

    async fn end(self) {
        self.stop.store(true, Ordering::SeqCst);
        let asked = self.task.await.unwrap().unwrap();
        println!("{asked} answers, all right");
        assert!(asked > 20);
    }
}

async fn ready() -> Lab {
    let mut lab = Lab::start(1).await;
    lab.create(ZONE).await;
    lab.put(ZONE, "stays", RrType::A, &["192.0.2.200"]).await;
    lab.put(ZONE, "www", RrType::A, &["192.0.2.1"]).await;
    lab.current(ZONE).await;
    lab.leave_to_children().await;
    lab
}

/// What is said of deployments is said once, and never of less than was active before.
pub(super) async fn assert_said_once(lab: &Lab) {
    let said: Vec<(uuid::Uuid, String, i64, i64)> = sqlx::query_as(
        "select e.stream_id, e.type, (d->>'revision')::bigint, (d->>'active')::bigint \
         from events e cross join lateral (select convert_from(e.data, 'UTF8')::jsonb as d) d \
         where e.type like 'deployment.%' and e.type <> 'deployment.drift_mended' order by e.position",
    )
    .fetch_all(&lab.app.pool)
    .await
    .unwrap();
    let mut seen = std::collections::BTreeSet::new();
    let mut active = std::collections::BTreeMap::new();
    for (stream, event, revision, now) in &said {
        let fresh = seen.insert((stream, event, revision));
        assert!(fresh, "{event} of revision {revision} is said twice: {said:?}");
        // The others tell what whoever says it had known before.
        if ["acknowledged", "activated", "recovered"].iter().any(|says| event.ends_with(says)) {
            let before = active.insert(stream, now);
            assert!(before.is_none_or(|before| before <= now), "what is active goes back: {said:?}");
        }
    }
}

async fn assert_operations_end(lab: &Lab) {
    let open = || async {
        let query = "select count(*) from operations.operations where state <> 'succeeded'";
        sqlx::query_scalar::<_, i64>(query).fetch_one(&lab.app.pool).await.unwrap()
    };
    let _none = eventually("every operation succeeds", open, |count| *count == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_at_any_point_is_made_good() {
    let lab = ready().await;
    let watch = Watch::start(&lab);
    for (n, point) in (2_u8..).zip(POINTS) {
        watch.newest.store(n, Ordering::SeqCst);
        lab.put(ZONE, "www", RrType::A, &[&format!("192.0.2.{n}")]).await;
        Child::start(lab.db.url(), &format!("{point}=kill")).killed().await;
        let _next = Child::start(lab.db.url(), "");
        lab.current(ZONE).await;
        assert_eq!(
            lab.dig(0, "www.example.com", "A"),
            format!("NOERROR\nanswer www.example.com. A 192.0.2.{n}")
        );
        assert_operations_end(&lab).await;
        assert_said_once(&lab).await;
    }
    watch.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fault_at_any_point_is_made_good() {
    let lab = ready().await;
    let watch = Watch::start(&lab);
    for (n, point) in (2_u8..).zip(POINTS) {
        watch.newest.store(n, Ordering::SeqCst);
        lab.put(ZONE, "www", RrType::A, &[&format!("192.0.2.{n}")]).await;
        let _child = Child::start(lab.db.url(), &format!("{point}=1*return->off"));
        lab.current(ZONE).await;
        assert_operations_end(&lab).await;
        assert_said_once(&lab).await;
    }
    watch.end().await;
    // Around the commit it is the deployment that failed; elsewhere nothing can be said of it.
    for event in ["deployment.failed", "deployment.recovered"] {
        assert_eq!(lab.events(ZONE, event).await, 2, "{event}");
    }
    assert_eq!(lab.dig(0, "www.example.com", "A"), "NOERROR\nanswer www.example.com. A 192.0.2.8");
}
