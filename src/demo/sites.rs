//! What the tour shows at the edge: one page of a proxied hostname, as a visitor gets it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use domain::base::Rtype;
use http::header::HOST as HOST_FIELD;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use reqwest::Method;
use serde_json::json;
use tokio::time::sleep;

use super::headwater::PLATFORM_ZONE;
use super::tour::{DOMAIN, Sights, hop};
use super::{edge, probe};

/// The proxied hostname. It stays.
pub(super) const HOST: &str = "cdn.example.test";
/// Its owner name in the domain.
const OWNER: &str = "cdn";
/// Where a cache says what it did.
const CACHE_STATUS: &str = "cache-status";
/// What it says of an answer that it had.
const HIT: &str = "headwater; hit";
/// What it says of one that it had to fetch.
const MISS: &str = "headwater; fwd=uri-miss";
/// What it says of any answer that it gave; how old a page is by then depends on the machine.
const ANY: &str = "headwater;";
/// The lifetimes between which the tour changes, in seconds.
const LIFETIMES: [u32; 2] = [600, 1_200];
/// How long a visitor waits for an answer.
const VISITOR_LIMIT_SECONDS: u64 = 20;
/// How long a part that was killed may take to be back.
const BACK_LIMIT_SECONDS: u64 = 60;
/// How often it is looked for.
const BACK_PAUSE_MILLISECONDS: u64 = 50;

/// What a visitor gets.
struct Got {
    body: String,
}

impl Sights {
    pub(super) async fn show_hostname(&self) -> Result<()> {
        let begin = Instant::now();
        let path = format!("/api/domains/{DOMAIN}/hostnames/{OWNER}");
        let (host, port) = (self.origin.ip().to_string(), self.origin.port());
        let origin = json!({"scheme": "http", "host": host, "port": port, "host_header": HOST});
        let body = json!({"origin": origin, "backup": null});
        let written = self.api.call(Method::PUT, &path, Some(body)).await?;
        hop(begin, &format!("PUT {path} answered {}", written.status.as_u16()));
        self.finish(&written, begin).await?;
        let first = self.visit(&self.page, MISS).await?;
        let second = self.visit(&self.page, HIT).await?;
        if first.body != second.body {
            bail!("a hit gave another answer: {:?} after {:?}", second.body, first.body);
        }
        Ok(())
    }

    pub(super) async fn show_policy(&self) -> Result<()> {
        let path = format!("/api/domains/{DOMAIN}/cache");
        let now = self.api.get(&path).await?.body["edge_ttl_seconds"].clone();
        let next = LIFETIMES.into_iter().find(|lifetime| now != *lifetime).unwrap_or_default();
        let before = self.generations();
        let begin = Instant::now();
        let written = self.api.call(Method::PATCH, &path, Some(json!({"edge_ttl_seconds": next}))).await?;
        hop(begin, &format!("PATCH {path} edge_ttl_seconds {next} answered {}", written.status.as_u16()));
        self.finish(&written, begin).await?;
        let mut moved = false;
        for (cell, generation) in self.generations() {
            let old = before.get(&cell).cloned().unwrap_or_default();
            if old != generation {
                let name = cell.file_name().unwrap_or_default().to_string_lossy();
                hop(begin, &format!("{name} went from {old} to {generation}"));
                moved = true;
            }
        }
        if !moved {
            bail!("no cell went to another generation");
        }
        self.visit(&self.page, ANY).await.map(drop)
    }

    pub(super) async fn show_purge(&self) -> Result<()> {
        let path = format!("/api/domains/{DOMAIN}/purges");
        let before = self.visit(&self.page, ANY).await?;
        let begin = Instant::now();
        let written = self.api.call(Method::POST, &path, Some(json!({"type": "all"}))).await?;
        hop(begin, &format!("POST {path} answered {}", written.status.as_u16()));
        self.finish(&written, begin).await?;
        let after = self.visit(&self.page, MISS).await?;
        if before.body == after.body {
            bail!("what was purged is given: {:?}", after.body);
        }
        self.visit(&self.page, HIT).await.map(drop)
    }

    pub(super) async fn show_way(&self) -> Result<()> {
        let (begin, shared) = (Instant::now(), format!("shared.{PLATFORM_ZONE}"));
        for (name, rtype, wanted) in
            [(HOST, Rtype::CNAME, shared.as_str()), (&shared, Rtype::A, edge::ADDRESS)]
        {
            let deadline = begin + Duration::from_secs(BACK_LIMIT_SECONDS);
            // Endpoints are published once the edge was seen to be ready.
            loop {
                let limit = Duration::from_secs(VISITOR_LIMIT_SECONDS);
                let answer = probe::dns(self.front, name, rtype, limit).await?;
                if answer.rdata.iter().any(|rdata| rdata.trim_end_matches('.') == wanted) {
                    break;
                }
                if Instant::now() >= deadline {
                    bail!("dnsdist answers {name} {rtype} with {:?} instead of {wanted}", answer.rdata);
                }
                sleep(Duration::from_millis(BACK_PAUSE_MILLISECONDS)).await;
            }
            hop(begin, &format!("dnsdist answers {name} {rtype} with {wanted}"));
        }
        Ok(())
    }

    pub(super) async fn show_rollback(&self) -> Result<()> {
        let path = format!("/api/domains/{DOMAIN}/cache");
        let before = self.api.get(&path).await?.body["browser_ttl_seconds"].clone();
        let next = LIFETIMES.into_iter().find(|lifetime| before != *lifetime).unwrap_or_default();
        let begin = Instant::now();
        let body = json!({"browser_ttl_seconds": next});
        let written = self.api.call(Method::PATCH, &path, Some(body)).await?;
        hop(begin, &format!("PATCH {path} browser_ttl_seconds {next} answered {}", written.status.as_u16()));
        self.finish(&written, begin).await?;
        let revision = written.body["revision"].as_i64().context("the answer has no revision")? - 1;
        let rollback = format!("/api/domains/{DOMAIN}/rollback");
        let begin = Instant::now();
        let back = self.api.call(Method::POST, &rollback, Some(json!({"revision": revision}))).await?;
        hop(begin, &format!("POST {rollback} to revision {revision} answered {}", back.status.as_u16()));
        self.finish(&back, begin).await?;
        let after = self.api.get(&path).await?.body["browser_ttl_seconds"].clone();
        if before != after {
            bail!("browser_ttl_seconds is {after} after the rollback instead of {before}");
        }
        Ok(())
    }

    pub(super) async fn show_faults(&self) -> Result<()> {
        let hold = self.holds.hold("headwater");
        let begin = Instant::now();
        self.kill("headwater")?;
        hop(begin, "kill -9 of the control plane, which stays away");
        self.visit(&self.page, ANY).await?;
        self.visit(&format!("{}/new", self.page), MISS).await?;

        let begin = Instant::now();
        self.kill("headwater-edge")?;
        for cell in &self.cells {
            let master = edge::master(cell).context("a cell has no nginx")?;
            killpg(Pid::from_raw(master.pid()), Signal::SIGKILL).context("cannot kill a cell")?;
        }
        hop(begin, "kill -9 of the agent and of every nginx");
        self.visit(&self.page, ANY).await?;
        hop(begin, "a cold edge serves, without the control plane");
        self.visit(&format!("{}/cold", self.page), MISS).await?;

        drop(hold);
        let begin = Instant::now();
        let deadline = begin + Duration::from_secs(BACK_LIMIT_SECONDS);
        while let Err(error) = self.api.get(&format!("/api/domains/{DOMAIN}")).await {
            if Instant::now() >= deadline {
                return Err(error).context("the control plane does not come back");
            }
            sleep(Duration::from_millis(BACK_PAUSE_MILLISECONDS)).await;
        }
        hop(begin, "the control plane answers again");
        Ok(())
    }

    fn kill(&self, part: &str) -> Result<()> {
        let process = self.manifest.process(part);
        process.with_context(|| format!("{part} does not run"))?.signal(Signal::SIGKILL)
    }

    /// What each cell points to.
    fn generations(&self) -> BTreeMap<PathBuf, String> {
        let generation = |cell: &PathBuf| {
            let link = std::fs::read_link(cell.join("current")).ok()?;
            Some((cell.clone(), link.to_string_lossy().replace("generations/", "generation ")))
        };
        self.cells.iter().filter_map(generation).collect()
    }

    /// Asks as a visitor; the cache must say something that begins like this.
    async fn visit(&self, path: &str, wanted: &str) -> Result<Got> {
        let client = reqwest::Client::builder()
            .no_proxy()
            .timeout(Duration::from_secs(VISITOR_LIMIT_SECONDS))
            .build()
            .context("cannot make an HTTP client")?;
        let (begin, url) = (Instant::now(), format!("http://{}{path}", self.edge));
        let answer = client.get(&url).header(HOST_FIELD, HOST).send().await;
        let answer = answer.with_context(|| format!("GET {url} failed"))?;
        let status = answer.status();
        let cache = answer.headers().get(CACHE_STATUS).and_then(|value| value.to_str().ok());
        let cache = cache.unwrap_or_default().to_owned();
        let body = answer.text().await.with_context(|| format!("GET {url} broke off"))?;
        if status != reqwest::StatusCode::OK || !cache.starts_with(wanted) {
            bail!("GET {url} for {HOST} answered {status}, Cache-Status {cache:?} instead of {wanted:?}");
        }
        let shown = body.split(',').next().unwrap_or_default();
        hop(begin, &format!("GET {path} for {HOST} answered {status}, {cache} ({shown})"));
        Ok(Got { body })
    }
}
