//! A control database, DNS clusters and a deploying process for one test.

use std::net::SocketAddr;
use std::process::Command as Program;
use std::sync::Arc;
use std::time::Duration;

use headwater::app::{App, Parts};
use headwater::clock::SystemClock;
use headwater::command::{Command, Meta, Outcome, SubmitError};
use headwater::config::Config;
use headwater::history::hub::Hub;
use headwater::operation::Progress;
use headwater::secret::Secret;
use headwater::store::read::LogReader;
use headwater::store::{Committer, pool};
use headwater_events::actor::Caller;
use headwater_events::admin::AdminCommand;
use headwater_events::dns::{DomainName, OwnerName, RrSet, RrSetInput, RrType};
use headwater_events::domain::{CreateDomain, DomainCommand, Limits};
use headwater_events::event::{ClusterCreated, DnsIdentity};
use headwater_events::ids::{ClusterId, DomainId, TenantId};
use sqlx::postgres::{PgConnection, PgPool, PgPoolOptions};
use sqlx::{AssertSqlSafe, Connection, Executor};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::support::{DnsStack, TestDb, eventually, test_home};

const LIMITS: Limits = Limits {
    domains_per_tenant: 10_000,
    records_per_domain: 200_000,
    ttl_floor_seconds: 30,
    hold: Duration::from_secs(30 * 86_400),
};

/// Whoever does not place knows the platform's zone too, and makes nothing of it.
const CONFIG: &str = "[deploy]\ndrift_check_seconds = 1\n[sites]\nunsafe_allow_loopback_origins = true\n\
    platform_zone = 'edge.example.net'\nanswer_ttl = 5\ndrain_seconds = 2\n";

/// What a process does beside committing.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Does {
    /// It deploys.
    Deploy,
    /// It ends operations, and leaves deployment to others.
    Operations,
    /// It deploys, follows the log and sends visitors to edges.
    Place,
}

/// A process of the control plane.
pub struct Process {
    pub app: App,
    task: JoinHandle<()>,
    committer: JoinHandle<()>,
}

impl Process {
    pub async fn start(url: &Secret, does: Does) -> Self {
        let stop = CancellationToken::new();
        let pool =
            PgPoolOptions::new().max_connections(12).connect_with(pool::options(url).unwrap()).await.unwrap();
        let clock = Arc::new(SystemClock);
        let (commit, committer) = Committer::start(url, pool.clone(), LIMITS, clock.clone(), &stop).unwrap();
        let config = Config::parse(CONFIG, None, []).ok().unwrap();
        let log = LogReader::new(pool.clone());
        let app = App::new(Parts {
            config,
            pool,
            log,
            commit,
            clock,
            stop,
            hub: Hub::default(),
            progress: Progress::default(),
            acked: Default::default(),
            published: Default::default(),
            replicas: Default::default(),
            passwords: Default::default(),
            digests: Default::default(),
            signer: headwater::edge::signing::PlatformSigner::default(),
        });
        // What other processes append is noticed, too.
        tokio::spawn(app.commit.head().clone().follow(app.pool.clone(), app.stop.clone()));
        let task = match does {
            Does::Deploy => tokio::spawn(headwater::deploy::run(app.clone())),
            Does::Operations => tokio::spawn(headwater::operation::run(app.clone())),
            Does::Place => {
                let (one, other, third) = (app.clone(), app.clone(), app.clone());
                tokio::spawn(async {
                    tokio::join!(
                        headwater::deploy::run(one),
                        headwater::operation::run(other),
                        headwater::placement::run(third)
                    );
                })
            }
        };
        Self { app, task, committer }
    }

    /// Stops it in order, so that its database can be copied.
    pub async fn stop(self) {
        self.app.stop.cancel();
        self.task.await.unwrap();
        self.committer.await.unwrap();
        self.app.pool.close().await;
    }

    pub async fn submit(&self, command: Command) -> Result<Outcome, SubmitError> {
        self.app.commit.submit(Caller::system(), command, Meta::internal()).await
    }

    pub async fn admin(&self, command: AdminCommand) {
        self.submit(Command::admin(command)).await.unwrap();
    }

    pub async fn domain(&self, name: &str, command: DomainCommand) -> Outcome {
        self.submit(Command::Domain { name: domain(name), command }).await.unwrap()
    }

    /// Puts an RRset with a TTL of 300.
    pub async fn put(&self, zone: &str, owner: &str, rrtype: RrType, records: &[&str]) -> Outcome {
        self.domain(zone, DomainCommand::PutRrset(rrset(zone, owner, rrtype, records))).await
    }

    pub async fn delete(&self, zone: &str, owner: &str, rrtype: RrType) -> Outcome {
        let owner = OwnerName::parse(owner, &domain(zone)).unwrap();
        self.domain(zone, DomainCommand::DeleteRrset { owner, rrtype }).await
    }

    /// State, active and wanted revision of a domain's deployments, by cluster; of the domain that holds the name.
    pub async fn deployments(&self, zone: &str) -> Vec<(Uuid, String, i64, i64, Option<String>)> {
        sqlx::query_as(
            "select cluster_id, state, active_revision, desired_revision, last_error from desired.deployments \
             where domain_id = (select id from desired.domains where name = $1 and current) order by cluster_id",
        )
        .bind(zone)
        .fetch_all(&self.app.pool)
        .await
        .unwrap()
    }

    /// Awaits that every cluster is current with a domain.
    pub async fn current(&self, zone: &str) {
        self.settled(zone, "current").await;
    }

    /// Awaits that every deployment of a domain has a state, with nothing newer wanted.
    pub async fn settled(&self, zone: &str, state: &str) {
        let all = |seen: &Vec<(Uuid, String, i64, i64, Option<String>)>| {
            seen.iter()
                .all(|(_, is, active, desired, _)| is == state && (state == "ahead" || active == desired))
        };
        let _seen = eventually(&format!("{zone} is {state}"), || self.deployments(zone), all).await;
    }

    /// How many events of a type concern a domain.
    pub async fn events(&self, zone: &str, event: &str) -> i64 {
        sqlx::query_scalar("select count(*) from events where domain = $1 and type = $2")
            .bind(zone)
            .bind(event)
            .fetch_one(&self.app.pool)
            .await
            .unwrap()
    }

    /// Awaits an event that concerns a domain.
    pub async fn told(&self, zone: &str, event: &str) {
        let _count = eventually(event, || self.events(zone, event), |count| *count > 0).await;
    }
}

/// All of it. The process ends first.
pub struct Lab {
    process: Option<Process>,
    pub clusters: Vec<ClusterId>,
    pub tenant: TenantId,
    pub db: TestDb,
    pub stack: DnsStack,
}

impl std::ops::Deref for Lab {
    type Target = Process;

    fn deref(&self) -> &Process {
        self.process.as_ref().expect("the process runs")
    }
}

impl Lab {
    pub async fn start(clusters: usize) -> Self {
        Self::doing(clusters, Does::Deploy).await
    }

    pub async fn doing(clusters: usize, does: Does) -> Self {
        let (db, stack) = tokio::join!(TestDb::new(), DnsStack::start(clusters));
        let pool = db.pool().await;
        headwater::store::pool::migrate(&pool).await.unwrap();
        pool.close().await;
        let process = Process::start(db.url(), does).await;
        let tenant = TenantId::from_uuid(Uuid::now_v7());
        process.admin(AdminCommand::InitializePlatform { tenant }).await;
        let labels = std::collections::BTreeMap::default();
        let create =
            AdminCommand::CreateTenant { id: tenant, name: "platform".into(), labels, external_id: None };
        process.admin(create).await;
        process.admin(AdminCommand::SetDnsIdentity(identity())).await;
        let mut ids = Vec::new();
        let home = test_home();
        for cluster in &stack.clusters {
            let file = home.dir().join(format!("{}.url", cluster.name));
            std::fs::write(&file, cluster.database_url().expose()).unwrap();
            let id = ClusterId::from_uuid(Uuid::now_v7());
            let created = ClusterCreated {
                name: cluster.name.clone(),
                database_url_file: file.display().to_string(),
                dns: cluster.pdns.address().to_string(),
                front: Some(cluster.front.to_string()),
                nameservers: Vec::new(),
                enabled: true,
            };
            process.admin(AdminCommand::CreateCluster { id, cluster: created }).await;
            ids.push(id);
        }
        Self { process: Some(process), clusters: ids, tenant, db, stack }
    }

    /// Stops the process in order.
    pub async fn stop(&mut self) {
        if let Some(process) = self.process.take() {
            process.stop().await;
        }
    }

    /// Starts another process on a control database.
    pub async fn start_on(&mut self, url: &Secret) {
        self.process = Some(Process::start(url, Does::Deploy).await);
    }

    /// From now on nobody deploys but the children of the test.
    pub async fn leave_to_children(&mut self) {
        self.stop().await;
        self.process = Some(Process::start(self.db.url(), Does::Operations).await);
    }

    /// Disables every cluster and awaits that its worker has ended.
    pub async fn leave_alone(&self) {
        for cluster in &self.clusters {
            self.admin(AdminCommand::SetClusterEnabled { cluster: *cluster, enabled: false }).await;
        }
        let _none = eventually("the workers have ended", || self.leases(), |leases| *leases == 0).await;
    }

    /// How many clusters somebody works on.
    pub async fn leases(&self) -> i64 {
        let query = "select count(*) from leases where until > now() and name like 'deploy:%'";
        sqlx::query_scalar(query).fetch_one(&self.app.pool).await.unwrap()
    }

    /// Makes an active domain.
    pub async fn create(&self, name: &str) -> DomainId {
        let id = DomainId::from_uuid(Uuid::now_v7());
        let create = CreateDomain {
            id,
            name: domain(name),
            tenant: self.tenant,
            force_active: true,
            labels: std::collections::BTreeMap::default(),
            external_id: None,
            rrsets: Vec::new(),
            serial_floor: None,
        };
        self.submit(Command::CreateDomain(create)).await.unwrap();
        id
    }

    /// The database of a cluster's PowerDNS.
    pub async fn target(&self, index: usize) -> PgPool {
        PgPoolOptions::new()
            .max_connections(2)
            .connect(self.stack.clusters[index].database_url().expose())
            .await
            .unwrap()
    }

    /// What a cluster's own listeners say to `dig`: first PowerDNS, then dnsdist. They must agree, unless something
    /// changes between the two questions: then they are asked again.
    pub fn dig(&self, index: usize, name: &str, rrtype: &str) -> String {
        let mut last = Default::default();
        for _ in 0..AGREE_MAX_TIMES {
            last = self.dig_each(index, name, rrtype);
            if last[0] == last[1] {
                let [one, _] = last;
                return one;
            }
        }
        panic!("{name} {rrtype}: PowerDNS and dnsdist do not agree: {last:?}");
    }

    /// What each says by itself: while something changes between the two questions, they need not agree.
    pub fn dig_each(&self, index: usize, name: &str, rrtype: &str) -> [String; 2] {
        let cluster = &self.stack.clusters[index];
        [cluster.pdns.address(), cluster.front].map(|server| dig(server, name, rrtype))
    }
}

/// How often both listeners of a cluster are asked until they agree.
const AGREE_MAX_TIMES: usize = 100;

pub fn domain(name: &str) -> DomainName {
    DomainName::parse(name).unwrap()
}

pub fn rrset(zone: &str, owner: &str, rrtype: RrType, records: &[&str]) -> RrSet {
    let owner = OwnerName::parse(owner, &domain(zone)).unwrap();
    let records = records.iter().map(|&text| text.to_owned()).collect();
    RrSet::new(owner, rrtype, &RrSetInput { ttl: 300, records, comment: None }, &domain(zone)).unwrap()
}

pub fn identity() -> DnsIdentity {
    DnsIdentity {
        nameservers: vec![domain("ns1.example.net"), domain("ns2.example.net")],
        hostmaster: domain("hostmaster.example.net"),
        soa_ttl: 3600,
        ns_ttl: 86_400,
        refresh: 3600,
        retry: 600,
        expire: 1_209_600,
        minimum: 300,
    }
}

/// Status, then the records of answer and authority (without the SOA of a negative one), each `section name type rdata`.
pub fn dig(server: SocketAddr, name: &str, rrtype: &str) -> String {
    let output = Program::new("dig")
        .arg(format!("@{}", server.ip()))
        .args(["-p", &server.port().to_string(), "+norec", "+noall", "+comments", "+answer", "+authority"])
        .args(["+tries=1", "+time=3", "-q", name, "-t", rrtype])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let status = text.split("status: ").nth(1).and_then(|rest| rest.split(',').next()).unwrap_or("NONE");
    let mut lines = vec![status.to_owned()];
    let (mut section, mut records) = ("", Vec::new());
    for line in text.lines() {
        match line {
            ";; ANSWER SECTION:" => section = "answer",
            ";; AUTHORITY SECTION:" => section = "authority",
            _ if line.starts_with(';') || line.is_empty() => {}
            _ => {
                let mut fields = line.split_ascii_whitespace();
                let owner = fields.next().unwrap();
                let rest: Vec<_> = fields.skip(2).collect();
                if !(section == "authority" && rest[0] == "SOA") {
                    records.push(format!("{section} {owner} {}", rest.join(" ")));
                }
            }
        }
    }
    records.sort();
    lines.extend(records);
    lines.join("\n")
}

/// A copy of a database that nobody is connected to.
pub async fn copy(url: &Secret) -> Secret {
    let (server, name) = url.expose().rsplit_once('/').unwrap();
    let copy = format!("{name}_copy_{}", Uuid::now_v7().simple());
    let mut connection = PgConnection::connect(&format!("{server}/postgres")).await.unwrap();
    // The server needs a moment to see that connections are gone.
    let count = "select count(*) from pg_stat_activity where datname = $1";
    let connected = async || {
        let mut connection = PgConnection::connect(&format!("{server}/postgres")).await.unwrap();
        sqlx::query_scalar::<_, i64>(count).bind(name).fetch_one(&mut connection).await.unwrap()
    };
    let _none = eventually("nobody is connected", connected, |count| *count == 0).await;
    let create = AssertSqlSafe(format!("CREATE DATABASE {copy} TEMPLATE {name}"));
    connection.execute(create).await.unwrap();
    Secret::new(format!("{server}/{copy}"))
}

/// Every row of a target with the transaction that wrote it: equal only where nothing was written in between.
pub async fn rows_of(target: &PgPool) -> Vec<(String, i64, String)> {
    sqlx::query_as(
        "select 'records', id, xmin::text || ' ' || ctid::text || ' ' || r::text from records r \
         union all select 'domains', id, xmin::text || ' ' || d::text from domains d \
         union all select 'hw_zones', 0, xmin::text || ' ' || z::text from hw_zones z order by 1, 2, 3",
    )
    .fetch_all(target)
    .await
    .unwrap()
}
