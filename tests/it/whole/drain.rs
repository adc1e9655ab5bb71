//! A site moves between edges while it is visited, and nobody notices: a name is answered once every edge has it; a drained
//! edge leaves DNS first and serves whoever still comes; a deleted name is served until nobody is sent to it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use reqwest::Method;
use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::host::Host;
use super::{Api, WWW, ZONE, proxied};
use crate::cli::walk::Platform;
use crate::deploy::lab::dig;
use crate::support::{DnsStack, eventually};

/// The TTL of what visitors are told.
const TTL: Duration = Duration::from_secs(1);
/// How soon one visit may follow the other: below what a site lets through of one client.
const PACE: Duration = Duration::from_millis(20);
/// How many are served before a phase counts.
const PHASE_VISITS: u32 = 20;

/// Whoever asks DNS, keeps the answer for as long as it says, and goes where it leads, one visit after the other.
struct Visitors {
    stop: CancellationToken,
    task: JoinHandle<Tally>,
    seen: tokio::sync::watch::Receiver<BTreeMap<String, u32>>,
}

#[derive(Default)]
struct Tally {
    served: BTreeMap<String, u32>,
    failed: Vec<String>,
}

impl Visitors {
    fn start(dns: SocketAddr, doors: BTreeMap<String, SocketAddr>) -> Self {
        let stop = CancellationToken::new();
        let (tell, seen) = tokio::sync::watch::channel(BTreeMap::new());
        let ended = stop.clone();
        let task = tokio::spawn(async move {
            let http = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(5)).build().unwrap();
            let (mut tally, mut known, mut until) = (Tally::default(), Vec::new(), Instant::now());
            let mut turn = 0;
            let mut pace = tokio::time::interval(PACE);
            while !ended.is_cancelled() {
                pace.tick().await;
                if Instant::now() >= until {
                    known = addresses(dns).await;
                    until = Instant::now() + TTL;
                }
                let Some(address) = known.get(turn % known.len().max(1)).cloned() else {
                    // Nobody is sent anywhere: the next question comes at once.
                    until = Instant::now();
                    continue;
                };
                turn += 1;
                let url = format!("http://{}/page", doors[&address]);
                match http.get(url).header("host", WWW).send().await {
                    Ok(answer) if answer.status() == 200 => {
                        *tally.served.entry(address).or_default() += 1;
                        tell.send_replace(tally.served.clone());
                    }
                    other => tally.failed.push(format!("{address}: {other:?}")),
                }
            }
            tally
        });
        Self { stop, task, seen }
    }

    /// Awaits that so many more are served by each of these.
    async fn served_by(&self, addresses: &[&str]) {
        let count = |address: &str| self.seen.borrow().get(address).copied().unwrap_or(0);
        let before: Vec<u32> = addresses.iter().map(|address| count(address)).collect();
        let look = || async { addresses.iter().map(|address| count(address)).collect::<Vec<_>>() };
        let enough =
            |now: &Vec<u32>| now.iter().zip(&before).all(|(now, before)| *now >= before + PHASE_VISITS);
        eventually("visitors are served", look, enough).await;
    }

    async fn end(self) -> Tally {
        self.stop.cancel();
        self.task.await.unwrap()
    }
}

/// Where DNS sends visitors to now.
async fn addresses(dns: SocketAddr) -> Vec<String> {
    let said = tokio::task::spawn_blocking(move || dig(dns, WWW, "A")).await.unwrap();
    said.lines().filter_map(|line| line.split_once(" A ").map(|(_, address)| address.to_owned())).collect()
}

/// A platform with a cluster, a domain and two edges of one cell each, at addresses that lead to their ports.
async fn lived() -> (Platform, Api, DnsStack, [Host; 2]) {
    let stack = DnsStack::start(1).await;
    let sites = "[sites]\nunsafe_allow_loopback_origins = true\nplatform_zone = 'edge.example.net'\nanswer_ttl = 1\n\
                 drain_seconds = 3\n[deploy]\npoll_milliseconds = 100\n";
    let on = Platform::with("heartbeat_seconds = 1\n", sites).await;
    let api = Api::of(&on);
    let node = &stack.clusters[0];
    let url = on.dir.path().join("dns-1.database-url");
    std::fs::write(&url, node.database_url().expose()).unwrap();
    let cluster = json!({"name": "dns-1", "dns": node.pdns.address().to_string(), "front": node.front.to_string(),
        "database_url_file": url, "enabled": true});
    api.call(Method::POST, "/api/dns-clusters", Some(cluster)).await;
    let domain = json!({"name": "example.test", "force_active": true});
    let made = api.call(Method::POST, "/api/domains", Some(domain)).await;
    assert_eq!(api.ended(&made).await["state"], "succeeded");
    let mut hosts = Vec::new();
    for (name, address) in [("fra1", "127.0.0.11"), ("ams1", "127.0.0.12")] {
        let create = [
            "edge",
            "create",
            name,
            "--country",
            "DE",
            "--continent",
            "EU",
            "--cells",
            "1",
            "--address",
            address,
        ];
        let command = on.expect(0, &create).await.out;
        let mut host = Host::new(1, "").await;
        host.enroll(command.trim());
        host.start();
        hosts.push(host);
        let ready = || async { on.json(&["edge", "status", name]).await };
        eventually("DNS sends visitors to it", ready, |edge| {
            edge["ready"] == true && edge["published"] == true
        })
        .await;
    }
    let Ok(hosts) = hosts.try_into() else { panic!("two hosts") };
    (on, api, stack, hosts)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_notices_that_an_edge_is_drained() {
    let (on, api, stack, [mut fra, ams]) = lived().await;
    let doors = [("127.0.0.11".to_owned(), fra.door(0)), ("127.0.0.12".to_owned(), ams.door(0))].into();
    // They come before there is anything: whoever is told an address must be served there.
    let visitors = Visitors::start(stack.clusters[0].front, doors);
    let (path, body) = proxied(&fra, "www");
    let put = api.call(Method::PUT, &path, Some(body)).await;
    assert_eq!(api.ended(&put).await["state"], "succeeded");
    visitors.served_by(&["127.0.0.11", "127.0.0.12"]).await;

    on.expect(0, &["edge", "drain", "fra1"]).await;
    let told = || addresses(stack.clusters[0].front);
    eventually("DNS sends nobody there", told, |all| *all == ["127.0.0.12"]).await;
    // What visitors know is over after its TTL; then the host may go.
    visitors.served_by(&["127.0.0.12"]).await;
    let over = Instant::now() + 2 * TTL;
    eventually("the TTL is over", || async { Instant::now() > over }, |over| *over).await;
    fra.power_off();
    visitors.served_by(&["127.0.0.12"]).await;

    fra.start();
    on.expect(0, &["edge", "undrain", "fra1"]).await;
    visitors.served_by(&["127.0.0.11", "127.0.0.12"]).await;

    let gone = api.call(Method::DELETE, &format!("{ZONE}/hostnames/www"), None).await;
    assert_eq!(api.ended(&gone).await["state"], "succeeded");
    eventually("DNS sends nobody anywhere", told, Vec::is_empty).await;
    let forgotten = || async { ams.get(0, WWW, "/page").await.0 };
    eventually("edges forget it", forgotten, |status| *status == 421).await;
    let tally = visitors.end().await;
    assert_eq!(tally.failed, Vec::<String>::new(), "of {:?}", tally.served);
    assert!(tally.served.values().sum::<u32>() > 100, "{:?}", tally.served);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_notices_that_a_cell_is_drained() {
    let (on, api, _stack, host) = super::lived(super::CELLS).await;
    let (path, body) = proxied(&host, "www");
    api.everywhere(Method::PUT, &path, body).await;
    let cell = super::serving(&host, WWW).await;
    let doors = [host.door(0), host.door(1)];
    let stop = CancellationToken::new();
    let (tell, seen) = tokio::sync::watch::channel((cell, [0_u32; 2]));
    let stopped = stop.clone();
    let visits = tokio::spawn(async move {
        let http = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(5)).build().unwrap();
        let (mut at, mut failed) = (cell, Vec::new());
        let mut pace = tokio::time::interval(PACE);
        while !stopped.is_cancelled() {
            pace.tick().await;
            let mut said = Vec::new();
            // Whoever is told that a domain is not here asks the other one.
            for door in [at, 1 - at] {
                let answer =
                    http.get(format!("http://{}/page", doors[door])).header("host", WWW).send().await;
                let status = answer.map_or(0, |answer| answer.status().as_u16());
                if status == 200 {
                    at = door;
                    tell.send_modify(|seen| {
                        seen.0 = door;
                        seen.1[door] += 1;
                    });
                }
                said.push(status);
                if status != 421 {
                    break;
                }
            }
            if said.last() != Some(&200) {
                failed.push(said);
            }
        }
        failed
    });
    let moved = async |to: usize| {
        let before = seen.borrow().1[to];
        let look = || async { *seen.borrow() };
        eventually("the domain moves", look, |now| now.0 == to && now.1[to] >= before + PHASE_VISITS).await;
    };
    for _ in 0..3 {
        on.expect(0, &["edge", "drain", "fra1", "--cell", &cell.to_string()]).await;
        moved(1 - cell).await;
        on.expect(0, &["edge", "undrain", "fra1", "--cell", &cell.to_string()]).await;
        moved(cell).await;
    }
    stop.cancel();
    assert_eq!(visits.await.unwrap(), Vec::<Vec<u16>>::new(), "of {:?}", seen.borrow().1);
}
