//! `kill -9` of a process that commits and of the database server, and its immediate stop, at random moments under
//! load: what was acknowledged is there once, what was not is there once after it is asked again with its key.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::process::{Command as Process, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::stream::{self, StreamExt};
use headwater::demo::ports::PortLease;
use headwater::demo::postgres::{DatabaseName, Postgres};
use headwater::secret::Secret;
use headwater_events::dns::DomainName;
use headwater_events::event::Event;
use headwater_events::ids::UserId;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use uuid::Uuid;

use crate::support::log::*;
use crate::support::test_home;

/// Where the child finds its database, and its first command's number.
const CHILD_URL: &str = "HEADWATER_TEST_CHILD_URL";
const CHILD_FIRST: &str = "HEADWATER_TEST_CHILD_FIRST";
/// Commands of one process that are on their way at once.
const AT_ONCE: usize = 32;
const ZONES: usize = 4;
const COMMANDS: u64 = 100_000;
/// How often is struck, at most, until a planted fault is seen.
const PLANTED_MAX_ROUNDS: u64 = 40;

fn zone(n: u64) -> String {
    format!("c{}.test", n % ZONES as u64)
}

/// Command `n`: its key, and a value that tells the tries apart. Whoever comes second with the key is answered with
/// what the first did, so that an owner never has two events.
async fn submit(log: &Log, n: u64, try_number: u8) -> bool {
    let command = put(&zone(n), &format!("r{n}"), &format!("192.0.2.{try_number}"));
    let caller = member(UserId::from_uuid(Uuid::from_u128(7)), log.tenant);
    log.commit.submit(caller, command, keyed(Uuid::from_u128(u128::from(n)), 1)).await.is_ok()
}

/// Not a test by itself: what the process that is killed does. Prints the number of each command that was answered.
#[tokio::test]
async fn child() {
    let (Ok(url), Ok(first)) = (std::env::var(CHILD_URL), std::env::var(CHILD_FIRST)) else { return };
    let first: u64 = first.parse().unwrap();
    let log = Log::join(Secret::new(url)).await;
    println!("begun");
    stream::iter(first..first + COMMANDS)
        .for_each_concurrent(AT_ONCE, |n| {
            let log = &log;
            async move {
                if submit(log, n, 1).await {
                    println!("acknowledged {n}");
                }
            }
        })
        .await;
}

/// Every owner of the campaign has one event, and those that must be there are there. Gives those that are.
async fn once(log: &Log, acknowledged: &BTreeSet<u64>) -> Result<BTreeSet<u64>, String> {
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    for recorded in log.all().await {
        if let Event::RrsetReplaced(put) = recorded.decode().unwrap() {
            *seen.entry(put.name.to_string()).or_default() += 1;
        }
    }
    if let Some(n) = acknowledged.iter().find(|n| !seen.contains_key(&format!("r{n}"))) {
        return Err(format!("command {n} was acknowledged and is lost"));
    }
    let twice: Vec<_> = seen.iter().filter(|(_, times)| **times > 1).collect();
    if !twice.is_empty() {
        return Err(format!("appended more than once: {twice:?}"));
    }
    Ok(seen.keys().filter_map(|name| name.strip_prefix('r')?.parse().ok()).collect())
}

/// Asks again for everything around what was seen, as a client would that got no answer.
async fn retry(log: &Log, numbers: impl Iterator<Item = u64>) -> BTreeSet<u64> {
    let asked = stream::iter(numbers).map(|n| async move { (n, submit(log, n, 2).await) });
    let answers: Vec<_> = asked.buffer_unordered(AT_ONCE).collect().await;
    assert!(answers.iter().all(|(_, ok)| *ok), "a retry was refused");
    answers.into_iter().map(|(n, _)| n).collect()
}

/// Kills a process that commits, again and again.
async fn kill_processes(log: &Log, rounds: u64) -> Result<(), String> {
    for n in 0..ZONES as u64 {
        log.domain(&zone(n)).await;
    }
    let mut moments = moments();
    let mut all = BTreeSet::new();
    for round in 0..rounds {
        let first = round * COMMANDS;
        let acknowledged = run_child(log, first, moments.random_range(1..400)).await;
        let last = acknowledged.last().copied().unwrap_or(first);
        all.extend(&acknowledged);
        let present = once(log, &all).await?;
        let unknown = (first..=last + AT_ONCE as u64).filter(|n| !acknowledged.contains(n));
        let retried = retry(log, unknown).await;
        let saved = retried.iter().filter(|n| present.contains(n)).count();
        println!("round {round}: {} acknowledged, {saved} written but not acknowledged", acknowledged.len());
        all.extend(&retried);
        once(log, &all).await?;
    }
    if once(log, &all).await? == all {
        Ok(())
    } else {
        Err("something is there that nobody asked for".into())
    }
}

/// When to strike. The seed is told, so that a run can be had again; the machine's own timing remains.
fn moments() -> StdRng {
    let seed = std::env::var("HEADWATER_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed: u64 = seed.unwrap_or_else(rand::random);
    println!("HEADWATER_TEST_SEED={seed}");
    StdRng::seed_from_u64(seed)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn torture_a_killed_process_loses_nothing_acknowledged() {
    let log = Log::new().await;
    kill_processes(&log, size(10, 100) as u64).await.unwrap();
    log.assert_sound().await;
}

/// Eventlog test 5 must find this: a retry is not known as one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn receipts_that_are_not_kept_are_found() {
    let log =
        Log::with_fault(|text| text.replace("if cardinality(_k_caller) > 0 then", "if false then")).await;
    let seen = kill_processes(&log, PLANTED_MAX_ROUNDS).await;
    println!("{seen:?}");
    assert!(seen.is_err_and(|why| why.contains("more than once")), "a doubled command was not seen");
}

/// Starts the child, kills it when it has acknowledged so many, gives what it acknowledged.
async fn run_child(log: &Log, first: u64, until: usize) -> BTreeSet<u64> {
    let mut child = Process::new(std::env::current_exe().unwrap())
        .args(["log_crash::child", "--exact", "--nocapture"])
        .env(CHILD_URL, log.url.expose())
        .env(CHILD_FIRST, first.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let (begun, begins) = tokio::sync::oneshot::channel();
    let reader = tokio::task::spawn_blocking(move || {
        let (mut begun, mut acknowledged) = (Some(begun), BTreeSet::new());
        for line in lines.map_while(Result::ok) {
            let number = line.rsplit_once("acknowledged ").and_then(|(_, n)| n.parse::<u64>().ok());
            acknowledged.extend(number);
            if acknowledged.len() >= until
                && let Some(begun) = begun.take()
            {
                begun.send(()).unwrap();
            }
        }
        acknowledged
    });
    begins.await.unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    reader.await.unwrap()
}

/// A process that stands still stops nobody, and goes on when it is let.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_process_stops_nobody_else() {
    let log = Log::new().await;
    for n in 0..ZONES as u64 {
        log.domain(&zone(n)).await;
    }
    let mut child = Process::new(std::env::current_exe().unwrap())
        .args(["log_crash::child", "--exact", "--nocapture"])
        .env(CHILD_URL, log.url.expose())
        .env(CHILD_FIRST, "0")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let head = || async { log.reader.meta().await.unwrap().head.get() };
    let _head = crate::support::eventually("the child appends", head, |head| *head > 50).await;
    for round in 0..size(5, 100) as u64 {
        let pid = Pid::from_raw(child.id().try_into().unwrap());
        kill(pid, Signal::SIGSTOP).unwrap();
        // All the domains that it writes, and may hold the locks of until its statements end.
        retry(&log, (0..40).map(|n| (round + 1) * COMMANDS + n)).await;
        kill(pid, Signal::SIGCONT).unwrap();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    log.assert_sound().await;
}

/// Kills the database server under load, again and again.
async fn kill_servers(rounds: u64, fault: Option<(&str, &str)>) -> Result<(), String> {
    let home = test_home();
    let lease = PortLease::take().unwrap();
    let mut server = Postgres::start(&home, "postgres", lease, DatabaseName::HEADWATER).await.unwrap();
    let log = Log::at(server.url("headwater")).await;
    if let Some((from, to)) = fault {
        log.plant(|text| text.replace(from, to)).await;
    }
    let mut moments = moments();
    for n in 0..ZONES as u64 {
        log.domain(&zone(n)).await;
    }
    let mut acknowledged = BTreeSet::new();
    for round in 0..rounds {
        let first = round * COMMANDS;
        let answered = AtomicUsize::new(0);
        let load = stream::iter(first..first + 600).map(|n| {
            let (log, answered) = (&log, &answered);
            async move {
                let ok = submit(log, n, 1).await;
                answered.fetch_add(1, Ordering::SeqCst);
                (n, ok)
            }
        });
        let load = load.buffer_unordered(AT_ONCE).collect::<Vec<_>>();
        let fail = async {
            let until = moments.random_range(1..500);
            let enough = || async { answered.load(Ordering::SeqCst) };
            let _count =
                crate::support::eventually("commands are answered", enough, |count| *count >= until).await;
            if round % 2 == 0 {
                server.kill().await.unwrap();
            } else {
                let pid = server.id().unwrap().pid();
                kill(Pid::from_raw(pid), Signal::SIGQUIT).unwrap();
            }
            server.restart().await.unwrap();
        };
        let (answers, ()) = tokio::join!(load, fail);
        let answered: BTreeSet<u64> = answers.iter().filter(|(_, ok)| *ok).map(|(n, _)| *n).collect();
        println!("round {round}: {} of {} were answered", answered.len(), answers.len());
        acknowledged.extend(&answered);
        acknowledged.extend(retry(&log, answers.iter().filter(|(_, ok)| !ok).map(|(n, _)| *n)).await);
        match once(&log, &acknowledged).await {
            Ok(there) if there == acknowledged => {}
            Ok(_) => return Err("something is there that nobody asked for".into()),
            Err(why) => return Err(why),
        }
    }
    log.assert_sound().await;
    let zone: DomainName = domain_name(&zone(0));
    let differences = headwater::rebuild::desired::verify(&log.pool, Some(&zone), &mut |_| {}).await.unwrap();
    assert_eq!(differences, []);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn torture_a_killed_server_loses_nothing_acknowledged() {
    kill_servers(size(10, 100) as u64, None).await.unwrap();
}

/// Eventlog test 5 must find this: what is acknowledged is not on the disk yet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_does_not_wait_for_the_disk_is_found() {
    let commit = "    commit;\n    perform pg_advisory_unlock_all();\nend $$;";
    let planted = format!("    set local synchronous_commit = off;\n{commit}");
    let seen = kill_servers(PLANTED_MAX_ROUNDS, Some((commit, &planted))).await;
    println!("{seen:?}");
    assert!(seen.is_err_and(|why| why.contains("is lost")), "a lost command was not seen");
}
