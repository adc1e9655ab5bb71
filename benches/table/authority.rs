//! The rows of authoritative DNS: a change in a large zone beside PowerDNS's own API on the same zone, and an empty
//! cluster that gets everything.

use super::report::{Goal, Report, median};
use super::sql;
use super::system::{System, pool};
use super::wire::Wire;
use super::{load, propagation};
use anyhow::{Context, Result, bail, ensure};
use headwater::demo::home::Home;
use headwater::demo::pdns::Pdns;
use headwater::demo::ports::PortLease;
use headwater::demo::postgres::{DatabaseName, OWNER, Postgres};
use headwater::demo::probe;
use headwater_events::dns::{DomainName, OwnerName, RrSet, RrSetInput, RrType};
use headwater_events::domain::DomainCommand;
use reqwest::Method;
use serde_json::json;
use sqlx::{Connection, PgConnection};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::Duration;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

/// Records of the zone that is changed.
const ZONE_RECORDS: usize = 100_000;
/// Changes of each that are timed.
const CHANGES: usize = 200;
/// Zones that an empty cluster gets, by default and in a full run.
const ZONES: usize = 10_000;
const ZONES_FULL: usize = 100_000;
/// Zones that are asked for afterwards.
const ZONES_ASKED: usize = 200;
/// How long PowerDNS may take to come up, and a cluster to get everything.
const START_LIMIT: Duration = Duration::from_secs(30);
const CURRENT_LIMIT: Duration = Duration::from_secs(600);
/// The key of PowerDNS's API: it listens on the loopback for the time of the row.
const KEY: &str = "benchmark";
const ADDRESS: &str = "192.0.2.1";

/// What Debian's PowerDNS does by default, with its API.
struct Plain {
    process: Child,
    _postgres: Postgres,
    api: SocketAddr,
    dns: SocketAddr,
    dir: PathBuf,
    _ports: [PortLease; 2],
}

impl Plain {
    async fn start() -> Result<Self> {
        let dir = std::env::temp_dir().join(format!("hwb-plain-{}", std::process::id()));
        let home = Home::open(&dir)?;
        let postgres =
            Postgres::start(&home, "postgres-plain", PortLease::take()?, DatabaseName::PDNS).await?;
        let url = postgres.url(DatabaseName::PDNS.as_str());
        let mut database = PgConnection::connect(url.expose()).await?;
        let schema = std::fs::read_to_string(sql::PLAIN_SCHEMA_FILE).context(sql::PLAIN_SCHEMA_FILE)?;
        sqlx::raw_sql(sqlx::AssertSqlSafe(schema)).execute(&mut database).await?;
        sqlx::query(sql::PLAIN_ZONE).execute(&mut database).await?;
        let records = i64::try_from(ZONE_RECORDS)?;
        sqlx::query(sql::PLAIN_RECORDS).bind(records).execute(&mut database).await?;
        sqlx::raw_sql(sql::PLAIN_ANALYZE).execute(&mut database).await?;
        let ports = [PortLease::take()?, PortLease::take()?];
        let [api, dns] = [0, 1].map(|n: usize| ports[n].address());
        let (_, rest) = url.expose().split_once("://").context("the URL of the database")?;
        let (account, _) = rest.split_once('@').context("the URL of the database")?;
        let (_, password) = account.split_once(':').context("the URL of the database")?;
        let text = format!(
            "daemon=no\nguardian=no\nlaunch=gpgsql\nloglevel=3\nsocket-dir={}\nlocal-address=127.0.0.1\nlocal-port={}\n\
             api=yes\napi-key={KEY}\nwebserver=yes\nwebserver-address=127.0.0.1\nwebserver-port={}\n\
             gpgsql-host=127.0.0.1\ngpgsql-port={}\ngpgsql-dbname={}\ngpgsql-user={OWNER}\ngpgsql-password={password}\n",
            dir.display(),
            dns.port(),
            api.port(),
            postgres.port(),
            DatabaseName::PDNS.as_str(),
        );
        std::fs::write(dir.join("pdns.conf"), text)?;
        let mut command = std::process::Command::new("/usr/sbin/pdns_server");
        command.arg(format!("--config-dir={}", dir.display())).stdin(Stdio::null());
        let process = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let plain = Self { process, _postgres: postgres, api, dns, dir, _ports: ports };
        let deadline = Instant::now() + START_LIMIT;
        while plain.answers().await.is_err() {
            ensure!(Instant::now() < deadline, "PowerDNS does not answer");
            sleep(Duration::from_millis(50)).await;
        }
        Ok(plain)
    }

    /// Whether it serves the zone.
    async fn answers(&self) -> Result<()> {
        let answer =
            probe::dns(self.dns, "r1.plain.example", domain::base::Rtype::A, Duration::from_secs(1)).await?;
        ensure!(!answer.rdata.is_empty(), "the zone is not served");
        Ok(())
    }
}

impl Drop for Plain {
    fn drop(&mut self) {
        let _killed = self.process.kill();
        let _ended = self.process.wait();
        let _removed = std::fs::remove_dir_all(&self.dir);
    }
}

/// One RRset changed in a zone of 100,000 records, until it is served: here by both clusters, there by PowerDNS itself.
pub async fn change(system: &System, report: &mut Report) -> Result<()> {
    let plain = Plain::start().await?;
    let names = load::domains(system, "patched", 1).await?;
    let name = names.first().context("no domain")?;
    let filled = load::fill(system, name, ZONE_RECORDS - 1).await?;
    load::finished(system, &filled).await?;
    load::settled(system).await?;
    let mut wire = Wire::connect(system.api_address, &system.token).await?;
    let client = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(30)).build()?;
    let zone = format!("http://{}/api/v1/servers/localhost/zones/plain.example.", plain.api);
    let (mut own, mut theirs) = (Vec::new(), Vec::new());
    for n in 0..CHANGES {
        let address = format!("203.0.113.{}", n % 250 + 1);
        let body = format!("{{\"ttl\":60,\"records\":[\"{address}\"]}}");
        let at = Instant::now();
        let (status, answer) = wire.send("PUT", &format!("/api/domains/{name}/rrsets/now/A"), &body).await?;
        ensure!(status == 202, "PUT answered {status}: {}", String::from_utf8_lossy(&answer));
        let owner = format!("now.{name}");
        let asked =
            system.clusters.iter().map(|cluster| propagation::answered(cluster.dns, &owner, &address));
        futures_util::future::try_join_all(asked).await?;
        own.push(at.elapsed().as_secs_f64() * 1_000.0);

        let patch = json!({"rrsets": [{"name": "now.plain.example.", "type": "A", "ttl": 60, "changetype": "REPLACE",
            "records": [{"content": address, "disabled": false}]}]});
        let at = Instant::now();
        let answer = client.patch(&zone).header("X-API-Key", KEY).json(&patch).send().await?;
        ensure!(answer.status().is_success(), "PATCH answered {}", answer.status());
        propagation::answered(plain.dns, "now.plain.example", &address).await?;
        theirs.push(at.elapsed().as_secs_f64() * 1_000.0);
    }
    let (own, theirs) = (median(&mut own), median(&mut theirs));
    let note = format!(
        "{ZONE_RECORDS} records; p50 {own:.1} ms until both clusters serve it, PATCH of one PowerDNS {theirs:.1} ms"
    );
    report.row("dns.change", own / theirs, "x PATCH", Some(Goal::AtMost(1.0)), note);
    Ok(())
}

/// An empty cluster that gets every zone there is.
pub async fn bootstrap(system: &System, report: &mut Report, full: bool) -> Result<()> {
    let zones = if full { ZONES_FULL } else { ZONES };
    seed(system, zones).await?;
    let dir = std::env::temp_dir().join(format!("hwb-empty-{}", std::process::id()));
    let home = Home::open(&dir)?;
    let postgres = Postgres::start(&home, "postgres-empty", PortLease::take()?, DatabaseName::PDNS).await?;
    let pdns = Pdns::start(&home, "pdns-empty", PortLease::take()?, &postgres).await?;
    let url_file = dir.join("database-url");
    std::fs::write(&url_file, postgres.url(DatabaseName::PDNS.as_str()).expose())?;
    let api = system.api()?;
    load::settled(system).await?;
    let body = json!({"name": "empty", "database_url_file": url_file, "dns": pdns.address().to_string(), "enabled": true});
    let at = Instant::now();
    let made = api.call(Method::POST, "/api/dns-clusters", Some(body)).await?;
    let id = made.text("/id").context("no id")?.to_owned();
    let (all, control) = (i64::try_from(zones)?, pool(&system.database_url).await?);
    let deadline = at + CURRENT_LIMIT;
    let current = loop {
        let count = sqlx::query_as(sql::CURRENT_ON).bind(Uuid::parse_str(&id)?);
        let (current, others): (i64, i64) = count.fetch_one(&control).await?;
        if current >= all && others == 0 {
            break current;
        }
        ensure!(Instant::now() < deadline, "{current} zones are current, {others} are not");
        sleep(Duration::from_millis(50)).await;
    };
    let seconds = at.elapsed().as_secs_f64();
    for n in (0..zones).step_by((zones / ZONES_ASKED).max(1)) {
        propagation::answered(pdns.address(), &format!("www.{}", zone(n)), ADDRESS).await?;
    }
    let rate = current as f64 / seconds;
    let note =
        format!("{current} zones in {seconds:.1} s from its registration until each was read back from it");
    report.row("dns.bootstrap", rate, "zones/s", Some(Goal::AtLeast(2_000.0)), note);
    api.call(Method::POST, &format!("/api/dns-clusters/{id}/disable"), None).await?;
    drop((pdns, postgres));
    std::fs::remove_dir_all(&dir)?;
    Ok(())
}

fn zone(n: usize) -> String {
    format!("boot{n}.example")
}

/// Makes the zones, with one record each.
async fn seed(system: &System, zones: usize) -> Result<()> {
    let record = |name: &DomainName| {
        let input = RrSetInput { ttl: 300, records: vec![ADDRESS.to_owned()], comment: None };
        match RrSet::new(OwnerName::parse("www", name)?, RrType::A, &input, name) {
            Ok(rrset) => Ok(DomainCommand::PutRrset(rrset)),
            Err(faults) => bail!("{faults:?}"),
        }
    };
    let control = pool(&system.database_url).await?;
    load::seed(&system.database_url, &control, zones, zone, record).await
}
