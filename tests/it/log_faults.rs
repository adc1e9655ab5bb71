//! Order and exclusion: positions without gap, duplicate or reordering for every reader at every moment, revisions
//! with one winner, one tenant for a name and the names below it, and a fault that stays with whoever made it.
//!
//! What must hold is also shown a log whose append has the fault. The readers find a sequence; a head that is read too
//! early and a missing check or lock are found where two replicas meet, since under load a refused batch is tried again
//! and hides them from the readers.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use headwater::command::{Command, Meta, Outcome, SubmitError};
use headwater::store::read::{LogReader, ReadError};
use headwater::store::{CommitterHandle, pool};
use headwater_events::actor::Caller;
use headwater_events::admin::AdminCommand;
use headwater_events::dns::DomainName;
use headwater_events::domain::{DomainCommand, Precondition, RrsetChange};
use headwater_events::edge::{EdgeCommand, EdgeCreated, Endpoints};
use headwater_events::event::Labels;
use headwater_events::ids::{EdgeId, Position, Revision, TenantId, UserId};
use headwater_events::reject::Reject;
use sqlx::postgres::PgPoolOptions;
use sqlx::{AssertSqlSafe, Executor};
use uuid::Uuid;

use crate::support::eventually;
use crate::support::log::*;

const WRITERS: usize = 64;
const TAILERS: usize = 8;
const RRSETS_PER_COMMAND: usize = 25;

/// A violation, the first that anybody saw.
#[derive(Clone, Default)]
struct Red(Arc<Mutex<Option<String>>>, Arc<AtomicBool>);

impl Red {
    fn raise(&self, what: String) {
        self.0.lock().unwrap().get_or_insert(what);
        self.1.store(true, Ordering::SeqCst);
    }

    fn is_raised(&self) -> bool {
        self.1.load(Ordering::SeqCst)
    }

    fn result(&self) -> Result<(), String> {
        self.0.lock().unwrap().take().map_or(Ok(()), Err)
    }
}

fn many(zone: &str, round: usize) -> Command {
    let change =
        |n| RrsetChange::Put(rrset(zone, &format!("r{n}"), "A", &[&format!("192.0.{}.{n}", round % 250)]));
    on(zone, DomainCommand::ChangeRrsets((0..RRSETS_PER_COMMAND).map(change).collect()))
}

/// Writers through two replicas, readers that ask for "after my cursor" all the time. `Ok`: how long it took.
async fn order(log: &Log, events: usize) -> Result<Duration, String> {
    let zones: Vec<String> = (0..WRITERS).map(|n| format!("w{n}.test")).collect();
    join_all(zones.iter().map(|zone| log.domain(zone))).await;
    let (red, done) = (Red::default(), Arc::new(AtomicBool::new(false)));
    let start = log.reader.meta().await.unwrap().head;
    let reader = tailers_reader(log).await;
    let tailers: Vec<_> =
        (0..TAILERS).map(|_| tokio::spawn(tail(reader.clone(), start, red.clone(), done.clone()))).collect();
    let replicas = [log.replica(), log.replica()];
    let since = Instant::now();
    let rounds = events.div_ceil(WRITERS * RRSETS_PER_COMMAND);
    let writers = zones.iter().enumerate().map(|(n, zone)| {
        let (commit, zone, red) = (replicas[n % 2].clone(), zone.clone(), red.clone());
        tokio::spawn(async move {
            for round in 0..rounds {
                if red.is_raised() {
                    return;
                }
                match commit.submit(Caller::system(), many(&zone, round), Meta::internal()).await {
                    Ok(outcome) if outcome.changed => {}
                    other => red.raise(format!("a writer was answered {other:?}")),
                }
            }
        })
    });
    join_all(writers).await;
    let took = since.elapsed();
    done.store(true, Ordering::SeqCst);
    let head = log.reader.meta().await.unwrap().head.get();
    for reached in join_all(tailers).await {
        let reached = reached.unwrap();
        if reached != head {
            red.raise(format!("a reader ended at {reached}, the log at {head}"));
        }
    }
    red.result()?;
    let expected = start.get() + i64::try_from(rounds * WRITERS * RRSETS_PER_COMMAND).unwrap();
    if head == expected { Ok(took) } else { Err(format!("{head} events where {expected} were written")) }
}

/// The tailers ask without a pause: a connection for each, so that nobody waits for another's.
async fn tailers_reader(log: &Log) -> LogReader {
    let options = PgPoolOptions::new().max_connections(u32::try_from(TAILERS).unwrap());
    let options = options.acquire_timeout(POOL_PATIENCE);
    LogReader::new(options.connect_with(pool::options(&log.url).unwrap()).await.unwrap())
}

/// Reads from its cursor on until the writers are done and nothing is left. A page that is not dense is a violation.
async fn tail(reader: LogReader, start: Position, red: Red, done: Arc<AtomicBool>) -> i64 {
    let mut cursor = start;
    while !red.is_raised() {
        let was_done = done.load(Ordering::SeqCst);
        match reader.page(cursor, 1_000).await {
            Ok(page) => match page.last() {
                Some(last) => cursor = last.position,
                None if was_done => break,
                None => tokio::task::yield_now().await,
            },
            Err(error @ ReadError::Hole { .. }) => red.raise(format!("a reader saw: {error}")),
            // The machine is busy: that says nothing of the log.
            Err(ReadError::Database(sqlx::Error::PoolTimedOut)) => tokio::task::yield_now().await,
            Err(ReadError::Database(error)) => panic!("a reader was not answered: {error}"),
        }
    }
    cursor.get()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn torture_no_reader_skips_doubles_or_reorders() {
    let events = size(200_000, 10_000_000);
    let log = Log::new().await;
    let took = order(&log, events).await.unwrap();
    println!(
        "{events} events by {WRITERS} writers, {TAILERS} readers, 2 replicas: {:.0} events/s",
        events as f64 / took.as_secs_f64()
    );
    log.assert_sound().await;
}

/// How often a planted fault is looked for.
const RED_MAX_TRIES: u8 = 5;

const TAIL_OF_LOG: &str = "    perform pg_advisory_xact_lock(7001);\n    select coalesce(max(position), 0) into _head from events;\n";

/// The checker of the test above must find each of these. A hole is there for a moment only: where no reader came by in
/// it, on a busy machine, it is tried again.
async fn must_be_red(what: &str, change: impl Fn(&str) -> String) {
    for _ in 0..RED_MAX_TRIES {
        let log = Log::with_fault(&change).await;
        if let Err(seen) = order(&log, 60_000).await {
            return println!("{what}: {seen}");
        }
    }
    panic!("{what}: the checker saw nothing");
}

/// Two replicas come to the end of an append at once: both wait, for the tail or for each other's rows, before either
/// may pass. What they read is then old for whoever is second. Gives both answers.
async fn meet_at_the_tail(
    log: &Log,
    commands: [(Caller, Command, Meta); 2],
) -> [Result<Outcome, SubmitError>; 2] {
    let mut holder = log.pool.acquire().await.unwrap();
    sqlx::query("select pg_advisory_lock(7001)").execute(&mut *holder).await.unwrap();
    let writers = commands.map(|(caller, command, meta)| {
        let commit = log.replica();
        tokio::spawn(async move { commit.submit(caller, command, meta).await })
    });
    let waiting = || async {
        let query = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
        sqlx::query_scalar::<_, i64>(query).fetch_one(&log.pool).await.unwrap()
    };
    eventually("both wait", waiting, |count| *count == 2).await;
    sqlx::query("select pg_advisory_unlock(7001)").execute(&mut *holder).await.unwrap();
    let [one, two] = writers;
    [one.await.unwrap(), two.await.unwrap()]
}

/// Whoever chose its position before the tail was its own has chosen that of the other, and is refused.
async fn two_positions(log: &Log) -> Result<(), String> {
    let zones = ["one.test", "two.test"];
    for zone in zones {
        log.domain(zone).await;
    }
    let command = |zone| (Caller::system(), put(zone, "www", "192.0.2.1"), Meta::internal());
    let answers = meet_at_the_tail(log, zones.map(command)).await;
    let good = |answer: &Result<Outcome, SubmitError>| answer.as_ref().is_ok_and(|outcome| outcome.changed);
    if answers.iter().all(good) { Ok(()) } else { Err(format!("{answers:?}")) }
}

/// Two changes of one RRset that were both decided at the same revision: one wins, the other is told.
async fn one_revision(log: &Log) -> Result<(), String> {
    const ZONE: &str = "meet.test";
    log.domain(ZONE).await;
    let at = log.submit(put(ZONE, "www", "192.0.2.0")).await.unwrap().revision;
    let command = |n: u8| {
        let precondition = Precondition { if_match: Some(vec![at]), if_absent: false };
        let meta = Meta { precondition, ..Meta::internal() };
        (Caller::system(), put(ZONE, "www", &format!("192.0.2.{n}")), meta)
    };
    let answers = meet_at_the_tail(log, [command(1), command(2)]).await;
    let won = answers.iter().filter(|answer| answer.is_ok()).count();
    let told = |answer: &&Result<Outcome, SubmitError>| {
        matches!(answer, Err(SubmitError::Rejected(Reject::RevisionMismatch { .. })))
    };
    if (won, answers.iter().filter(told).count()) == (1, 1) { Ok(()) } else { Err(format!("{answers:?}")) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_at_the_tail_get_two_positions_and_one_revision() {
    let log = Log::new().await;
    without_stream_locks(&log).await;
    two_positions(&log).await.unwrap();
    one_revision(&log).await.unwrap();
    log.assert_sound().await;
}

/// What is judged by other streams than its own is decided one after the other, in all replicas together: of two edges
/// that visitors are sent to, two drains at once leave one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_drains_at_once_leave_the_last_edge() {
    let log = Log::new().await;
    log.admin(AdminCommand::SetDnsIdentity(crate::deploy::lab::identity())).await;
    let edges = [EdgeId::from_uuid(Uuid::now_v7()), EdgeId::from_uuid(Uuid::now_v7())];
    for (n, edge) in edges.into_iter().enumerate() {
        let created = EdgeCreated {
            name: format!("edge{n}"),
            country: "DE".into(),
            continent: "EU".into(),
            cells: 1,
            labels: Labels::new(),
            external_id: None,
        };
        log.admin(AdminCommand::Edge { edge, command: EdgeCommand::Create(created, Vec::new()) }).await;
    }
    let published = edges.map(|edge| (edge, vec!["192.0.2.1".parse().unwrap()]));
    let zone = DomainName::parse("edge.example.net").unwrap();
    let endpoints = Endpoints { zone, ttl: 300, pools: [("shared".to_owned(), published.into())].into() };
    log.admin(AdminCommand::SetEndpoints { endpoints, why: Vec::new() }).await;

    let drain = |edge| {
        let command = AdminCommand::Edge { edge, command: EdgeCommand::SetDrained(true) };
        (Caller::system(), Command::admin(command), Meta::internal())
    };
    let answers = meet_at_the_tail(&log, edges.map(drain)).await;
    let won = answers.iter().filter(|answer| answer.is_ok()).count();
    let told = |answer: &&Result<Outcome, SubmitError>| {
        matches!(answer, Err(SubmitError::Rejected(Reject::Guarded { .. })))
    };
    assert_eq!((won, answers.iter().filter(told).count()), (1, 1), "{answers:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_head_that_is_read_before_the_lock_is_found() {
    let lines = TAIL_OF_LOG.split_inclusive('\n').collect::<Vec<_>>();
    let turned = format!("{}{}", lines[1], lines[0]);
    let log = Log::with_fault(|text| text.replace(TAIL_OF_LOG, &turned)).await;
    two_positions(&log).await.unwrap_err();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_head_that_is_read_in_the_statement_of_the_lock_is_found() {
    let merged = "    with l as materialized (select pg_advisory_xact_lock(7001))\n    select coalesce(max(position), 0) into _head from events, l;\n";
    let log = Log::with_fault(|text| text.replace(TAIL_OF_LOG, merged)).await;
    two_positions(&log).await.unwrap_err();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn positions_from_a_sequence_are_found() {
    // What a loaded disk does: a while passes between the insert and the commit. It changes nothing for the lock; without
    // it the while is long enough for the other replica to commit in between, however slow the machine is otherwise.
    let slow = |text: &str, seconds: f32| {
        let commit = "    commit;\n    perform pg_advisory_unlock_all();\nend $$;";
        text.replace(commit, &format!("    perform pg_sleep(random() * {seconds});\n{commit}"))
    };
    order(&Log::with_fault(|text| slow(text, 0.01)).await, 20_000).await.unwrap();
    must_be_red("nextval without the lock", |text| {
        let sequence =
            "create sequence planted; select setval('planted', (select max(position) from events));\n";
        let text = slow(text, 0.2).replace("select _head + e.n, e.id", "select nextval('planted'), e.id");
        format!("{sequence}{}", text.replace("    perform pg_advisory_xact_lock(7001);\n", ""))
    })
    .await;
}

/// The locks of streams and names are had at once by everybody: what is left is what the append itself checks.
async fn without_stream_locks(log: &Log) {
    let name: String = sqlx::query_scalar("select current_database()").fetch_one(&log.pool).await.unwrap();
    log.pool
        .execute(AssertSqlSafe(format!(
            "create function public.pg_try_advisory_lock(integer, integer) returns boolean language sql as 'select true'; \
             create function public.pg_advisory_lock(integer, integer) returns void language sql as 'select'; \
             alter database {name} set search_path = public, pg_catalog"
        )))
        .await
        .unwrap();
}

/// Many ask for the next change of one RRset at the same revision, through two replicas. One may win.
async fn one_winner(log: &Log, rounds: usize) -> Result<(), String> {
    const ZONE: &str = "race.test";
    log.domain(ZONE).await;
    let replicas = [log.replica(), log.replica()];
    let mut at = log.submit(put(ZONE, "www", "192.0.2.0")).await.unwrap().revision;
    for round in 0..rounds {
        let tries = (0..16_usize).map(|n| {
            let precondition = Precondition { if_match: Some(vec![at]), if_absent: false };
            let address = format!("10.{}.{}.{n}", round / 250, round % 250);
            let meta = Meta { precondition, ..Meta::internal() };
            replicas[n % 2].submit(Caller::system(), put(ZONE, "www", &address), meta)
        });
        let mut winners = Vec::new();
        for answer in join_all(tries).await {
            match answer {
                Ok(outcome) => winners.push(outcome.revision),
                Err(SubmitError::Rejected(Reject::RevisionMismatch { .. })) => {}
                Err(other) => return Err(format!("round {round}: {other}")),
            }
        }
        if winners != [at.next()] {
            return Err(format!("round {round}, revision {at}: winners {winners:?}"));
        }
        at = winners[0];
    }
    let found = headwater::store::verify::verify(&log.pool, &mut |_, _| {}).await.unwrap();
    if found.faults.is_empty() { Ok(()) } else { Err(format!("{:?}", found.faults)) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn torture_one_of_many_wins_a_revision() {
    let log = Log::new().await;
    one_winner(&log, size(100, 5_000)).await.unwrap();
    // The revision check alone is enough: the locks only spare work.
    let log = Log::new().await;
    without_stream_locks(&log).await;
    one_winner(&log, size(100, 5_000)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_revision_check_is_found() {
    let check = "     where coalesce(t.revision, 0) <> s.read;\n    if _n > 0 then";
    let log = Log::with_fault(|text| text.replace(check, &check.replace("_n > 0", "false"))).await;
    without_stream_locks(&log).await;
    one_revision(&log).await.unwrap_err();
}

/// A name and a name below it, asked for by two tenants at once. One may have it.
async fn one_tenant(log: &Log, rounds: usize) -> Result<(), String> {
    let tenants = [TenantId::from_uuid(Uuid::now_v7()), TenantId::from_uuid(Uuid::now_v7())];
    for (n, tenant) in tenants.iter().enumerate() {
        log.admin(create_tenant(*tenant, &format!("tenant-{n}"))).await;
    }
    let callers = tenants.map(|tenant| member(UserId::from_uuid(Uuid::now_v7()), tenant));
    let replicas = [log.replica(), log.replica()];
    for round in 0..rounds {
        let names = [format!("r{round}.test"), format!("a.b.r{round}.test")];
        let tries = (0..2).map(|n| {
            let mut create = create_domain(&names[n], tenants[n]);
            create.force_active = false;
            replicas[n].submit(callers[n].clone(), Command::CreateDomain(create), Meta::internal())
        });
        let answers = join_all(tries).await;
        let winners = answers.iter().filter(|answer| answer.is_ok()).count();
        let refused = |answer: &Result<_, SubmitError>| {
            matches!(answer, Err(SubmitError::Rejected(Reject::NameTaken(_))))
        };
        if winners != 1 || answers.iter().filter(|answer| refused(answer)).count() != 1 {
            return Err(format!("round {round}: {answers:?}"));
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_and_those_below_it_have_one_tenant() {
    let log = Log::new().await;
    one_tenant(&log, size(100, 5_000)).await.unwrap();
    let log = Log::new().await;
    without_stream_locks(&log).await;
    // Without the locks of names both have decided before either stands, and both win: the locks are what forbids it.
    let tenants = [TenantId::from_uuid(Uuid::now_v7()), TenantId::from_uuid(Uuid::now_v7())];
    for (n, tenant) in tenants.iter().enumerate() {
        log.admin(create_tenant(*tenant, &format!("tenant-{n}"))).await;
    }
    let claim = |n: usize| {
        let mut create = create_domain(["meet.test", "a.b.meet.test"][n], tenants[n]);
        create.force_active = false;
        let caller = member(UserId::from_uuid(Uuid::now_v7()), tenants[n]);
        (caller, Command::CreateDomain(create), Meta::internal())
    };
    let answers = meet_at_the_tail(&log, [claim(0), claim(1)]).await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
}

/// Submits many at once as one batch: the gate of the append is closed while they queue.
async fn at_once(
    log: &Log,
    commands: Vec<(Caller, Command, Meta)>,
) -> Vec<Result<headwater::command::Outcome, SubmitError>> {
    let mut gate = log.connection().await;
    gate.execute("select pg_advisory_lock(7000)").await.unwrap();
    let submit = |(caller, command, meta)| {
        let commit: CommitterHandle = log.commit.clone();
        tokio::spawn(async move { commit.submit(caller, command, meta).await })
    };
    let first = submit((Caller::system(), put("first.test", "www", "192.0.2.1"), Meta::internal()));
    at_the_gate(log).await;
    let rest: Vec<_> = commands.into_iter().map(submit).collect();
    tokio::task::yield_now().await;
    gate.execute("select pg_advisory_unlock_all()").await.unwrap();
    assert!(first.await.unwrap().is_ok());
    join_all(rest).await.into_iter().map(Result::unwrap).collect()
}

#[tokio::test]
async fn one_bad_command_refuses_nobody_else() {
    let log = Log::new().await;
    for zone in ["first.test", "batch.test"] {
        log.domain(zone).await;
    }
    // No text column holds a NUL; what HTTP would have refused is let through here.
    let note = |n| if n == 100 { Some("a\0b".to_owned()) } else { None };
    let command = |n: usize| {
        let meta = Meta { note: note(n), ..Meta::internal() };
        (Caller::system(), put("batch.test", &format!("r{n}"), "192.0.2.1"), meta)
    };
    let answers = at_once(&log, (0..256).map(command).collect()).await;
    let failed: Vec<usize> = (0..256).filter(|n| answers[*n].is_err()).collect();
    assert_eq!(failed, [100], "{:?}", answers[100]);
    let rrsets: i64 = sqlx::query_scalar("select rrsets from desired.domains where name = 'batch.test'")
        .fetch_one(&log.pool)
        .await
        .unwrap();
    assert_eq!(rrsets, 255);
    log.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn torture_crossed_keys_do_not_deadlock() {
    let log = Log::new().await;
    for zone in ["a.test", "b.test"] {
        log.domain(zone).await;
    }
    let replicas = [log.replica(), log.replica()];
    let caller = member(UserId::from_uuid(Uuid::now_v7()), log.tenant);
    let wrote = AtomicI64::new(0);
    for round in 0..size(100, 50_000) {
        let keys: Vec<Uuid> = (0..8).map(|_| Uuid::now_v7()).collect();
        // Both replicas have every key at once, in opposite order, on opposite domains.
        let tries = (0..16_usize).map(|n| {
            let (replica, k) = (n % 2, if n % 2 == 0 { n / 2 } else { 7 - n / 2 });
            let zone = ["a.test", "b.test"][replica];
            let command = put(zone, &format!("r{k}"), &format!("10.{}.{}.{k}", round / 250, round % 250));
            replicas[replica].submit(caller.clone(), command, keyed(keys[k], 1))
        });
        for answer in join_all(tries).await {
            let outcome = answer.unwrap();
            wrote.fetch_add(i64::from(!outcome.replayed), Ordering::SeqCst);
        }
    }
    assert_eq!(wrote.into_inner(), i64::try_from(size(100, 50_000) * 8).unwrap(), "each key wrote once");
    let deadlocks: i64 =
        sqlx::query_scalar("select deadlocks from pg_stat_database where datname = current_database()")
            .fetch_one(&log.pool)
            .await
            .unwrap();
    assert_eq!(deadlocks, 0);
    log.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn revisions_rise_by_one_with_the_positions() {
    let log = Log::new().await;
    let zones = ["a.test", "b.test", "c.test"];
    for zone in zones {
        log.domain(zone).await;
    }
    let replicas = [log.replica(), log.replica()];
    let tries = (0..300_usize).map(|n| {
        let command = put(zones[n % 3], &format!("r{}", n % 7), &format!("192.0.2.{}", n % 250));
        replicas[n % 2].submit(Caller::system(), command, Meta::internal())
    });
    let mut seen = HashSet::new();
    for answer in join_all(tries).await {
        let outcome = answer.unwrap();
        if outcome.changed {
            assert!(
                seen.insert((outcome.stream, outcome.revision)),
                "one revision, two mutations: {outcome:?}"
            );
        }
    }
    let mut last = std::collections::HashMap::new();
    for event in log.all().await {
        let revision = last.insert(event.stream, event.revision).unwrap_or(Revision::ZERO);
        assert_eq!(event.revision, revision.next(), "each mutation here has one event");
    }
    log.assert_sound().await;
}
