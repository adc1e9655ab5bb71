//! The dnsdist of a host, made from the clusters and told what changes while it runs and is asked all the time.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use domain::base::Rtype;
use domain::base::iana::Rcode;
use headwater::config::{Config, DnsdistSettings};
use headwater::demo::ports::PortLease;
use headwater::dnsdist::{self, Applied, Backend, PROGRAM};
use tempfile::TempDir;
use tokio::process::{Child, Command};

use crate::parts::{shows, write_zone};
use crate::support::{DnsStack, eventually};

/// A dnsdist of one test.
struct Lab {
    settings: DnsdistSettings,
    _ports: [PortLease; 2],
    directory: TempDir,
}

impl Lab {
    fn new(more: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let ports = [PortLease::take().unwrap(), PortLease::take().unwrap()];
        let text = format!(
            "[dnsdist]\nlisten = [\"{}\"]\nconsole = \"{}\"\nconfig_file = \"dnsdist.conf\"\nwithout_fronts = true\n{more}",
            ports[0].address(),
            ports[1].address()
        );
        let file = directory.path().join("headwater.toml");
        let settings = Config::parse(&text, Some(file), []).unwrap().dnsdist;
        Self { settings, _ports: ports, directory }
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("dnsdist.conf")
    }

    fn listener(&self) -> SocketAddr {
        self.settings.listen[0]
    }

    async fn apply(&self, backends: &[Backend]) -> anyhow::Result<Applied> {
        dnsdist::apply(Path::new(PROGRAM), &self.settings, backends).await
    }

    /// Starts the program on the file, as the unit of a host does.
    fn start(&self) -> Child {
        let mut command = Command::new(PROGRAM);
        command.args(["--supervised", "--disable-syslog", "-C"]).arg(self.file());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.kill_on_drop(true).spawn().unwrap()
    }
}

fn backend(name: &str, address: SocketAddr) -> Backend {
    Backend { name: name.to_owned(), address, front: None, enabled: true }
}

async fn stack() -> (DnsStack, [Backend; 2]) {
    let stack = DnsStack::start(2).await;
    write_zone(&stack.clusters[0], "192.0.2.1").await;
    write_zone(&stack.clusters[1], "192.0.2.2").await;
    let address = |n: usize| stack.clusters[n].pdns.address();
    let backends = [backend("dns-1", address(0)), backend("dns-2", address(1))];
    (stack, backends)
}

/// Asks again and again until told to stop; gives how often, and what was not answered.
fn keep_asking(server: SocketAddr, stop: Arc<AtomicBool>) -> tokio::task::JoinHandle<(u64, Vec<String>)> {
    tokio::spawn(async move {
        let (mut asked, mut lost) = (0, Vec::new());
        while !stop.load(Ordering::Relaxed) {
            asked += 1;
            match DnsStack::ask(server, "www.example.test", Rtype::A).await {
                Ok(answer) if answer.rcode == Rcode::NOERROR => {}
                other => lost.push(format!("{other:?}")),
            }
        }
        (asked, lost)
    })
}

#[tokio::test]
async fn clusters_come_and_go_without_a_lost_question() {
    let (mut stack, [one, two]) = stack().await;
    let lab = Lab::new("");
    let first = [one.clone()];
    assert_eq!(lab.apply(&first).await.unwrap(), Applied::NotRunning);
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(lab.file()).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600, "the file holds the console's key");
    let _running = lab.start();
    shows("the first cluster answers", lab.listener(), "192.0.2.1").await;
    assert_eq!(lab.apply(&first).await.unwrap(), Applied::Unchanged);

    let stop = Arc::new(AtomicBool::new(false));
    let asking = keep_asking(lab.listener(), Arc::clone(&stop));
    let both = [one.clone(), two.clone()];
    assert_eq!(lab.apply(&both).await.unwrap(), Applied::Told { added: 1, removed: 0 });
    // Of two, the one that is disabled is asked last: what it has is old.
    let old = [Backend { enabled: false, ..one.clone() }, two.clone()];
    assert_eq!(lab.apply(&old).await.unwrap(), Applied::Told { added: 2, removed: 2 });
    shows("the enabled one is asked first", lab.listener(), "192.0.2.2").await;
    assert_eq!(lab.apply(&first).await.unwrap(), Applied::Told { added: 1, removed: 2 });
    shows("what is left answers", lab.listener(), "192.0.2.1").await;
    assert_eq!(lab.apply(std::slice::from_ref(&two)).await.unwrap(), Applied::Told { added: 1, removed: 1 });
    shows("the other answers alone", lab.listener(), "192.0.2.2").await;
    stop.store(true, Ordering::Relaxed);
    let (asked, lost) = asking.await.unwrap();
    assert!(asked > 10 && lost.is_empty(), "{} of {asked} lost: {:?}", lost.len(), lost.first());

    // A cluster that never comes up takes nobody's place.
    stack.clusters[0].pdns.service().kill().await.unwrap();
    assert_eq!(lab.apply(&first).await.unwrap(), Applied::Kept { count: 1 });
    shows("the one that is up stays", lab.listener(), "192.0.2.2").await;
    stack.clusters[0].pdns.service().start().await.unwrap();
    assert_eq!(lab.apply(&first).await.unwrap(), Applied::Told { added: 0, removed: 1 });
    shows("it goes when the other is up", lab.listener(), "192.0.2.1").await;
}

#[tokio::test]
async fn what_is_read_only_at_a_start_is_said_and_the_old_state_serves_on() {
    let (_stack, [one, _]) = stack().await;
    let mut lab = Lab::new("");
    let backends = [one];
    lab.apply(&backends).await.unwrap();
    let mut running = lab.start();
    shows("it answers", lab.listener(), "192.0.2.1").await;
    lab.settings.tcp_queries_per_connection = 7;
    for _ in 0..2 {
        assert_eq!(lab.apply(&backends).await.unwrap(), Applied::NeedsRestart);
    }
    shows("it answers as before", lab.listener(), "192.0.2.1").await;
    running.kill().await.unwrap();
    running = lab.start();
    shows("it answers after the start", lab.listener(), "192.0.2.1").await;
    assert_eq!(lab.apply(&backends).await.unwrap(), Applied::Unchanged);

    // What dnsdist does not accept does not take the place of what it has.
    let before = std::fs::read_to_string(lab.file()).unwrap();
    let refusing = lab.directory.path().join("refusing");
    std::fs::write(&refusing, "#!/bin/sh\necho 'no such rule'\nexit 1\n").unwrap();
    std::fs::set_permissions(&refusing, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    lab.settings.tcp_queries_per_connection = 8;
    let refused = dnsdist::apply(&refusing, &lab.settings, &backends).await.unwrap_err().to_string();
    assert!(refused.contains("no such rule"), "{refused}");
    assert_eq!(std::fs::read_to_string(lab.file()).unwrap(), before);
    let left: Vec<_> =
        std::fs::read_dir(lab.directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 3, "nothing half-made is left: {left:?}");
    running.kill().await.unwrap();
}

#[tokio::test]
async fn answers_outlive_every_cluster_where_that_is_wanted() {
    let (mut stack, backends) = stack().await;
    let lab = Lab::new("serve_stale_seconds = 300\nqueries_per_second_per_client = 1000\n");
    lab.apply(&backends).await.unwrap();
    let _running = lab.start();
    shows("it answers", lab.listener(), "192.0.2.1").await;
    for cluster in &mut stack.clusters {
        cluster.pdns.service().kill().await.unwrap();
    }
    // While the checks have not found out, a question may be lost; then what was answered is answered again.
    let ask = || DnsStack::ask(lab.listener(), "www.example.test", Rtype::A);
    let _stale = eventually("the old answer is given", ask, |answer| {
        answer.as_ref().is_ok_and(|answer| answer.is_exactly("192.0.2.1"))
    })
    .await;
    let ask = || DnsStack::ask(lab.listener(), "never.example.test", Rtype::A);
    let _failure = eventually("what was never answered fails at once", ask, |answer| {
        answer.as_ref().is_ok_and(|answer| answer.rcode == Rcode::SERVFAIL)
    })
    .await;
}

#[tokio::test]
async fn what_only_others_may_ask_is_refused() {
    let (_stack, backends) = stack().await;
    let lab = Lab::new("");
    lab.apply(&backends).await.unwrap();
    let _running = lab.start();
    shows("it answers", lab.listener(), "192.0.2.1").await;
    let transfer = DnsStack::ask(lab.listener(), "example.test", Rtype::AXFR).await;
    assert!(transfer.is_ok_and(|answer| answer.rcode == Rcode::REFUSED));
}
