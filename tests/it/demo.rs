//! What keeps a demo alive and tidy: parts that die are replaced and published, what an earlier run left is ended,
//! ports stay, and a directory has one demo.

use std::process::{Command, Stdio};
use std::sync::Arc;

use headwater::demo::ledger::{self, PortBook};
use headwater::demo::manifest::Manifest;
use headwater::demo::pdns::Pdns;
use headwater::demo::ports::PortLease;
use headwater::demo::postgres::{DatabaseName, Postgres};
use headwater::demo::process::ProcessId;
use headwater::demo::supervise::Supervisor;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use sqlx::Connection;
use sqlx::postgres::PgConnection;

use crate::support::{DnsStack, eventually, test_home};

/// The process of a part as `demo.json` has it.
fn pid(manifest: &Manifest, name: &str) -> Option<i64> {
    let text = std::fs::read_to_string(manifest.file()).ok()?;
    serde_json::from_str::<Value>(&text).unwrap()["pids"][name].as_i64()
}

fn kill_hard(pid: i64) {
    kill(Pid::from_raw(pid.try_into().unwrap()), Signal::SIGKILL).unwrap();
}

#[tokio::test]
async fn a_killed_part_is_started_again_and_published() {
    let home = test_home();
    let order = ["pdns-1".to_owned(), "postgres-dns-1".to_owned()];
    let manifest = Arc::new(Manifest::new(home.clone(), order.to_vec()));
    let lease = PortLease::take().unwrap();
    let postgres = Postgres::start(&home, "postgres-dns-1", lease, DatabaseName::PDNS).await.unwrap();
    let pdns = Pdns::start(&home, "pdns-1", PortLease::take().unwrap(), &postgres).await.unwrap();
    let (address, url) = (pdns.address(), postgres.url("pdns"));
    let mut supervisor = Supervisor::new(Arc::clone(&manifest));
    supervisor.watch(pdns).unwrap();
    supervisor.watch(postgres).unwrap();
    assert!(!manifest.file().exists(), "it was published before everything answered");
    let Value::Object(facts) = json!({"api": "http://x"}) else { unreachable!() };
    manifest.publish(facts).unwrap();
    let text: Value = serde_json::from_str(&std::fs::read_to_string(manifest.file()).unwrap()).unwrap();
    assert_eq!((&text["ready"], &text["api"]), (&json!(true), &json!("http://x")));
    assert_eq!(text["pids"]["demo"], json!(std::process::id()));

    for name in &order {
        let before = pid(&manifest, name).unwrap();
        kill_hard(before);
        let published = || async { pid(&manifest, name).unwrap() };
        eventually("the new process is published", published, |now| *now != before).await;
    }
    let mut connection = PgConnection::connect(url.expose()).await.unwrap();
    connection.ping().await.unwrap();
    let _answer = eventually(
        "PowerDNS answers again",
        || DnsStack::ask(address, "example.test", domain::base::Rtype::SOA),
        |answer| answer.as_ref().is_ok_and(|answer| answer.rcode == domain::base::iana::Rcode::REFUSED),
    )
    .await;
    drop(connection);

    let last = order.each_ref().map(|name| pid(&manifest, name).unwrap());
    manifest.withdraw().unwrap();
    supervisor.stop().await.unwrap();
    assert!(!manifest.file().exists());
    for pid in last {
        assert_eq!(ProcessId::of(pid.try_into().unwrap()), None);
    }
}

#[tokio::test]
async fn leftovers_are_ended_and_nothing_else() {
    let home = test_home();
    let sleeper = || {
        let child = Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().unwrap();
        let id = ProcessId::of(child.id()).unwrap();
        (child, id)
    };
    let ((mut old, old_id), (mut other, other_id)) = (sleeper(), sleeper());
    // The number of the second process was another process's when it was recorded.
    let stale = json!({"pid": other_id.pid(), "started": 1});
    let stale: ProcessId = serde_json::from_value(stale).unwrap();
    let record = vec![("dnsdist".to_owned(), old_id), ("pdns-1".to_owned(), stale)];
    ledger::record_processes(&home, record).unwrap();
    assert_eq!(ledger::end_leftovers(&home).await.unwrap(), ["dnsdist"]);
    assert!(!old_id.is_alive() && other_id.is_alive());
    assert!(ledger::end_leftovers(&home).await.unwrap().is_empty());
    other.kill().unwrap();
    other.wait().unwrap();
    old.wait().unwrap();
}

#[tokio::test]
async fn ports_stay_until_somebody_takes_them() {
    let home = test_home();
    let lease = || PortBook::open(&home).unwrap().lease("api").unwrap();
    let first = lease();
    let port = first.port();
    let second = lease();
    assert_ne!(second.port(), port, "the first lease still holds its port");
    let moved = second.port();
    drop((first, second));
    assert_eq!(lease().port(), moved);
}

#[test]
fn a_directory_has_one_demo() {
    let home = test_home();
    let lock = std::fs::File::create(home.dir().join("demo.lock")).unwrap();
    lock.lock().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_headwater"))
        .args(["demo", "--once", "--dir"])
        .arg(home.dir())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("already"), "{output:?}");
}
