//! The tour, step by step, each hop with its time: a record travels from `PUT` to the answer of a name server, and a
//! hostname is served by the edge, also without the control plane.
//!
//! A step stands for itself: it finds what the steps before it made, and leaves what the next ones need.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use domain::base::Rtype;
use futures_util::future::BoxFuture;
use reqwest::{Method, StatusCode};
use serde_json::json;

use super::api::{Answer, Api};
use super::manifest::Manifest;
use super::probe;
use super::supervise::Holds;

/// The domain of the tour. It stays.
pub(super) const DOMAIN: &str = "example.test";
/// How long one wait for an operation lasts before it is asked again.
const WAIT_SECONDS: u64 = 30;
/// How often an operation is awaited: it ends by itself at its deadline.
const WAITS_MAX: u32 = 6;
/// How long a name server may take to answer.
const QUERY_LIMIT_SECONDS: u64 = 3;
/// Events that are read per page.
const EVENTS_PAGE: usize = 1_000;
/// Pages that are read at most before the tour gives up on finding its event.
const EVENT_PAGES_MAX: usize = 100;

/// A step: what it shows, and how.
type Step = (&'static str, for<'a> fn(&'a Sights) -> BoxFuture<'a, Result<()>>);

/// What is shown to everybody.
const STEPS: &[Step] = &[
    ("A record travels from PUT to the answer of a name server.", |sights| Box::pin(sights.show_record())),
    ("A hostname is put before an origin: the edge asks it once.", |sights| Box::pin(sights.show_hostname())),
    ("DNS leads its visitors to the edge.", |sights| Box::pin(sights.show_way())),
    ("The policy of the cache is changed: cells go to the next generation.", |sights| {
        Box::pin(sights.show_policy())
    }),
    ("What is kept is purged.", |sights| Box::pin(sights.show_purge())),
    ("A change is rolled back.", |sights| Box::pin(sights.show_rollback())),
];

/// What is shown where nobody else is at work, since parts are killed.
const FAULTS: &[Step] = &[("The control plane is killed, then the edge: visitors are served.", |sights| {
    Box::pin(sights.show_faults())
})];

/// Whom the tour visits.
pub struct Sights {
    /// The API.
    pub api: Api,
    /// dnsdist.
    pub front: SocketAddr,
    /// The clusters' own name servers, by name.
    pub nodes: Vec<(String, SocketAddr)>,
    /// Where the edge takes visitors in, in the clear.
    pub edge: SocketAddr,
    /// The directories of its cells.
    pub cells: Vec<PathBuf>,
    /// The origin.
    pub origin: SocketAddr,
    /// A path that no visitor has asked for yet.
    pub page: String,
    /// Knows the processes.
    pub manifest: Arc<Manifest>,
    /// Keeps parts away.
    pub holds: Holds,
}

impl Sights {
    /// Walks the tour.
    pub async fn walk(&self, with_faults: bool) -> Result<()> {
        let faults = if with_faults { FAULTS } else { &[] };
        for (title, step) in STEPS.iter().chain(faults) {
            println!("The tour: {title}");
            step(self).await?;
        }
        let (dns, edge) = (self.front, self.edge);
        println!("The tour is over; {DOMAIN} stays:");
        println!("  dig @{} -p {} www.{DOMAIN}", dns.ip(), dns.port());
        println!("  curl -i -H 'Host: {}' http://{edge}{}", super::sites::HOST, self.page);
        if !with_faults {
            println!(
                "  the rest of the tour kills the control plane and the edge: headwater demo --once walks it"
            );
        }
        Ok(())
    }

    async fn show_record(&self) -> Result<()> {
        self.ensure_domain().await?;
        let address = format!("192.0.2.{}", rand::random_range(1..=254));
        let body = json!({"ttl": 300, "records": [address]});
        let path = format!("/api/domains/{DOMAIN}/rrsets/www/A");
        let begin = Instant::now();
        let written = self.api.call(Method::PUT, &path, Some(body)).await?;
        let revision = written.body["revision"].as_i64().context("the answer to the PUT has no revision")?;
        let status = written.status.as_u16();
        hop(begin, &format!("PUT {path} {address} answered {status}, revision {revision}"));
        self.finish(&written, begin).await?;

        let name = format!("www.{DOMAIN}");
        self.ask("dnsdist", self.front, &name, &address).await?;
        for (cluster, server) in &self.nodes {
            self.ask(&format!("PowerDNS of {cluster}"), *server, &name, &address).await?;
        }
        self.find_event(revision, &address).await
    }

    async fn ensure_domain(&self) -> Result<()> {
        let begin = Instant::now();
        let body = json!({"name": DOMAIN, "force_active": true});
        let created = self.api.send(Method::POST, "/api/domains", Some(body)).await?;
        match created.status {
            StatusCode::CONFLICT => {
                self.api.get(&format!("/api/domains/{DOMAIN}")).await?;
                hop(begin, &format!("{DOMAIN} is there from before"));
                Ok(())
            }
            status if status.is_success() => {
                hop(begin, &format!("POST /api/domains {DOMAIN} answered {}", status.as_u16()));
                self.finish(&created, begin).await
            }
            status => bail!("POST /api/domains answered {status}: {}", created.body),
        }
    }

    /// Waits until the operation of an answer has succeeded; an answer without one is done already.
    pub(super) async fn finish(&self, answer: &Answer, begin: Instant) -> Result<()> {
        let Some(id) = answer.text("/operation/id") else {
            hop(begin, "nothing had to be changed");
            return Ok(());
        };
        for _ in 0..WAITS_MAX {
            let seen = self.api.get(&format!("/api/operations/{id}?wait={WAIT_SECONDS}")).await?;
            match seen.text("/state") {
                Some("succeeded") => {
                    hop(begin, &format!("operation {id} succeeded"));
                    return self.print_timeline(id).await;
                }
                Some("pending" | "running") => {}
                state => bail!(
                    "operation {id} ended as {}: {}",
                    state.unwrap_or("nothing known"),
                    seen.body["error"]
                ),
            }
        }
        bail!("operation {id} has not ended; see `headwater op show {id}`")
    }

    async fn print_timeline(&self, id: &str) -> Result<()> {
        let timeline = self.api.send(Method::GET, &format!("/api/operations/{id}/timeline"), None).await?;
        let stages = timeline.body.as_array().or_else(|| timeline.body["items"].as_array());
        for stage in stages.into_iter().flatten() {
            let (ms, target) = (&stage["ms"], stage["target"].as_str().unwrap_or("log"));
            println!("              after {ms} ms {} ({target})", stage["stage"].as_str().unwrap_or("?"));
        }
        Ok(())
    }

    async fn ask(&self, whom: &str, server: SocketAddr, name: &str, address: &str) -> Result<()> {
        let begin = Instant::now();
        let answer = probe::dns(server, name, Rtype::A, Duration::from_secs(QUERY_LIMIT_SECONDS)).await?;
        if !answer.is_exactly(address) {
            bail!("{whom} at {server} answered {} {:?} instead of {address}", answer.rcode, answer.rdata);
        }
        hop(begin, &format!("{whom} at {server} answers {address}"));
        Ok(())
    }

    /// Reads the history of the domain until the event of this revision.
    async fn find_event(&self, revision: i64, address: &str) -> Result<()> {
        let begin = Instant::now();
        let mut after = 0;
        for _ in 0..EVENT_PAGES_MAX {
            let page = self
                .api
                .get(&format!("/api/events?domain={DOMAIN}&after={after}&limit={EVENTS_PAGE}"))
                .await?;
            let items = page.body["items"].as_array().context("the answer of /api/events has no items")?;
            let Some(last) = items.last() else { break };
            let is_ours = |event: &&serde_json::Value| {
                event["stream"]["kind"] == "domain"
                    && event["revision"] == revision
                    && event["type"] == "rrset.replaced"
            };
            if let Some(event) = items.iter().find(is_ours) {
                if !event["data"].to_string().contains(address) {
                    bail!("the event at position {} does not hold {address}", event["position"]);
                }
                hop(begin, &format!("the log holds it: rrset.replaced at position {}", event["position"]));
                return Ok(());
            }
            after = last["position"].as_i64().context("an event has no position")?;
        }
        bail!("no rrset.replaced of revision {revision} of {DOMAIN} is in /api/events")
    }
}

pub(super) fn hop(begin: Instant, what: &str) {
    println!("  {:>8.1} ms  {what}", begin.elapsed().as_secs_f64() * 1_000.0);
}
