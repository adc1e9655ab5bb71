//! Who stands still: a client in the middle of its call, a network that swallows everything, a stopped process, a
//! transaction that never ends, a backend that stops while it holds the tail of the log. The others go on.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use headwater::clock::SystemClock;
use headwater::command::{Command, Meta};
use headwater::store::{Committer, CommitterHandle, TAIL_HELD_MAX};
use headwater_events::actor::Caller;
use headwater_events::ids::TenantId;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sqlx::Executor;
use tokio::time::timeout;
use uuid::Uuid;

use crate::support::eventually;
use crate::support::log::*;
use crate::support::proxy::{Mode, Proxy};

const ZONE: &str = "stall.test";
/// How long the others may take for a hundred mutations while somebody stands still: less than the watchdog takes.
const OTHERS_WITHIN: Duration = Duration::from_secs(4);

/// A replica whose connection goes through a proxy.
async fn replica_behind(log: &Log, proxy: &Proxy) -> CommitterHandle {
    let clock = Arc::new(SystemClock);
    let handle = Committer::start(proxy.url(), log.pool.clone(), LIMITS, clock, &log.stop).unwrap().0;
    // It is connected from here on.
    handle.submit(Caller::system(), put(ZONE, "warm", "192.0.2.1"), Meta::internal()).await.unwrap();
    handle
}

/// A hundred mutations of the same domain and of others.
async fn others(log: &Log, label: &str) -> bool {
    let tries =
        (0..100).map(|n| log.submit(put(ZONE, &format!("{label}{}", n % 10), &format!("192.0.2.{n}"))));
    match timeout(OTHERS_WITHIN, join_all(tries)).await {
        Ok(answers) => answers.iter().all(Result::is_ok),
        Err(_) => false,
    }
}

async fn stalled_client(log: &Log) -> (bool, bool) {
    let proxy = Proxy::start(&log.url).await;
    let stalled = replica_behind(log, &proxy).await;
    proxy.set(Mode::KeepSync);
    let call = tokio::spawn(async move {
        stalled.submit(Caller::system(), put(ZONE, "stalled", "192.0.2.1"), Meta::internal()).await
    });
    let called = || async { proxy.executed() };
    let _calls = eventually("the call is sent", called, |count| *count > 0).await;
    let go_on = others(log, "during").await;
    let query = "select exists (select from desired.rrsets where owner = 'stalled')";
    let committed: bool = sqlx::query_scalar(query).fetch_one(&log.pool).await.unwrap();
    assert!(!call.is_finished(), "the stalled client was answered, so it did not stall");
    call.abort();
    (go_on, committed)
}

#[tokio::test]
async fn a_client_that_stalls_in_its_call_holds_nothing() {
    let log = Log::new().await;
    log.domain(ZONE).await;
    let since = Instant::now();
    assert!(others(&log, "before").await);
    let (alone, since) = (since.elapsed(), Instant::now());
    assert_eq!(stalled_client(&log).await, (true, true), "(others go on, its own call is committed)");
    println!("100 mutations: {alone:?} alone, {:?} beside a stalled client", since.elapsed());
    log.assert_sound().await;
}

#[tokio::test]
async fn a_call_that_does_not_commit_by_itself_is_found() {
    let end = "    commit;\n    perform pg_advisory_unlock_all();\nend $$;";
    let log = Log::with_fault(|text| text.replace(end, "end $$;")).await;
    log.domain(ZONE).await;
    let (go_on, _) = stalled_client(&log).await;
    assert!(!go_on, "the checker saw nothing");
}

#[tokio::test]
async fn a_network_that_swallows_everything_stops_nobody_else() {
    let log = Log::new().await;
    log.domain(ZONE).await;
    let proxy = Proxy::start(&log.url).await;
    let stalled = replica_behind(&log, &proxy).await;
    proxy.set(Mode::Swallow);
    let call = tokio::spawn(async move {
        stalled.submit(Caller::system(), put(ZONE, "lost", "192.0.2.1"), Meta::internal()).await
    });
    assert!(others(&log, "during").await);
    call.abort();
    log.assert_sound().await;
}

#[tokio::test]
async fn a_transaction_that_never_ends_delays_no_reader() {
    let log = Log::new().await;
    log.domain(ZONE).await;
    let mut idle = log.connection().await;
    idle.execute("begin isolation level repeatable read; select pg_current_xact_id(), count(*) from events")
        .await
        .unwrap();
    assert!(others(&log, "during").await);
    let meta = log.reader.meta().await.unwrap();
    assert_eq!(log.all().await.last().map(|event| event.position), Some(meta.head));
}

/// The batch stands on the server while its caller no longer knows: asked again, it is answered, not repeated.
#[tokio::test]
async fn a_lost_answer_is_asked_for_again() {
    let log = Log::new().await;
    log.domain(ZONE).await;
    let proxy = Proxy::start(&log.url).await;
    let replica = replica_behind(&log, &proxy).await;
    for round in 0..3 {
        let mut gate = log.connection().await;
        gate.execute("select pg_advisory_lock(7001)").await.unwrap();
        proxy.set(Mode::CutAfterExecute);
        let (commit, tenant) = (replica.clone(), TenantId::from_uuid(Uuid::now_v7()));
        let call = tokio::spawn(async move {
            let command = Command::admin(create_tenant(tenant, &format!("once-{round}")));
            commit.submit(Caller::system(), command, Meta::internal()).await
        });
        // The first sending waits for the tail of the log; the second, on another connection, for the first.
        let calls = || async {
            let query = "select count(*) from pg_locks where locktype = 'advisory' and not granted \
                         and database = (select oid from pg_database where datname = current_database())";
            sqlx::query_scalar::<_, i64>(query).fetch_one(&log.pool).await.unwrap()
        };
        let _calls = eventually("it is asked again", calls, |count| *count > 1).await;
        gate.execute("select pg_advisory_unlock_all()").await.unwrap();
        let answer = call.await.unwrap();
        assert!(answer.as_ref().is_ok_and(|outcome| outcome.changed), "{answer:?}");
    }
    let once: i64 =
        sqlx::query_scalar("select count(*) from events where convert_from(data, 'UTF8') like '%once-%'")
            .fetch_one(&log.pool)
            .await
            .unwrap();
    assert_eq!(once, 3);
    log.assert_sound().await;
}

/// A log whose append sleeps at the tail, as long as the table `stall` has a row.
async fn sleeper() -> Log {
    let lock = "    perform pg_advisory_xact_lock(7001);\n";
    let sleep = "    if exists (select from public.stall) then perform pg_sleep(60); end if;\n";
    let log = Log::with_fault(|text| {
        format!("create table public.stall (n int); {}", text.replace(lock, &format!("{lock}{sleep}")))
    })
    .await;
    log.domain(ZONE).await;
    log.domain("other.test").await;
    log
}

/// The backend that sleeps at the tail.
async fn asleep(log: &Log) -> i32 {
    let look = || async {
        let query =
            "select pid from pg_stat_activity where wait_event = 'PgSleep' and datname = current_database()";
        sqlx::query_scalar::<_, i32>(query).fetch_optional(&log.pool).await.unwrap()
    };
    eventually("a backend sleeps at the tail", look, Option::is_some).await.unwrap()
}

#[tokio::test]
async fn a_backend_that_hangs_at_the_tail_is_ended() {
    let log = sleeper().await;
    log.pool.execute("insert into public.stall values (1)").await.unwrap();
    let (replica, since) = (log.replica(), Instant::now());
    let stalled = tokio::spawn(async move {
        replica.submit(Caller::system(), put(ZONE, "stalled", "192.0.2.1"), Meta::internal()).await
    });
    let pid = asleep(&log).await;
    log.pool.execute("delete from public.stall").await.unwrap();
    let other = log.submit(put("other.test", "www", "192.0.2.1"));
    let lives = || async { std::fs::exists(format!("/proc/{pid}")).unwrap() };
    let freed = async {
        let _gone = eventually("the watchdog has ended it", lives, |lives| !lives).await;
        since.elapsed()
    };
    let (other, freed) = tokio::join!(other, freed);
    println!("the tail was free after {freed:?}, another writer was answered after {:?}", since.elapsed());
    assert!(other.is_ok(), "{other:?}");
    // Not before its time: how soon after it depends on the machine, and `eventually` bounds it.
    assert!(freed >= TAIL_HELD_MAX, "{freed:?}");
    assert!(stalled.await.unwrap().is_ok(), "its batch is appended by another try");
    log.assert_sound().await;
}

#[tokio::test]
async fn a_backend_that_is_stopped_at_the_tail_leaves_no_hole() {
    let log = sleeper().await;
    log.pool.execute("insert into public.stall values (1)").await.unwrap();
    let replica = log.replica();
    let stalled = tokio::spawn(async move {
        replica.submit(Caller::system(), put(ZONE, "stalled", "192.0.2.1"), Meta::internal()).await
    });
    let pid = Pid::from_raw(asleep(&log).await);
    kill(pid, Signal::SIGSTOP).unwrap();
    log.pool.execute("delete from public.stall").await.unwrap();
    // A stopped process takes no signal but SIGKILL, so the watchdog's is pending; reads go on meanwhile.
    let pending = || async {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let line = status.lines().find(|line| line.starts_with("ShdPnd:")).unwrap_or_default().to_owned();
        u64::from_str_radix(line.trim_start_matches("ShdPnd:").trim(), 16).unwrap_or(0) & (1 << 14)
    };
    let _signal = eventually("the watchdog has ended it", pending, |bit| *bit != 0).await;
    assert!(log.reader.meta().await.is_ok());
    kill(pid, Signal::SIGCONT).unwrap();
    assert!(others(&log, "after").await);
    assert!(stalled.await.unwrap().is_ok());
    log.assert_sound().await;
}
