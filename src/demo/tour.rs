//! The tour: one record travels from `PUT` to the answer of a name server, each hop with its time.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use domain::base::Rtype;
use reqwest::{Method, StatusCode};
use serde_json::json;

use super::api::{Answer, Api};
use super::probe;

/// The domain of the tour. It stays.
const DOMAIN: &str = "example.test";
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

/// Whom the tour visits.
pub struct Sights {
    /// The API.
    pub api: Api,
    /// dnsdist.
    pub front: SocketAddr,
    /// The clusters' own name servers, by name.
    pub nodes: Vec<(String, SocketAddr)>,
}

impl Sights {
    /// Walks the tour.
    pub async fn walk(&self) -> Result<()> {
        println!("The tour: a record travels from PUT to the answer of a name server.");
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
        self.find_event(revision, &address).await?;
        println!(
            "The tour is over; {DOMAIN} stays: dig @{} -p {} {name}",
            self.front.ip(),
            self.front.port()
        );
        Ok(())
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
    async fn finish(&self, answer: &Answer, begin: Instant) -> Result<()> {
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

fn hop(begin: Instant, what: &str) {
    println!("  {:>8.1} ms  {what}", begin.elapsed().as_secs_f64() * 1_000.0);
}
