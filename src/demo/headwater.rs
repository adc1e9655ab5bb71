//! The control plane of a demo: its configuration, its database, its process, and the clusters registered with it.
//!
//! The demo does with it what an operator would: it writes the configuration, runs `migrate` and `init`, starts
//! `serve`, and speaks to it through the API only.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;
use reqwest::Method;
use serde_json::{Map, Value, json};
use tokio::time::{Instant, sleep};

use super::api::Api;
use super::home::{Account, Home};
use super::part::PartSpec;
use super::ports::{Port, PortLease};
use super::postgres::{DatabaseName, Postgres};
use super::probe;
use super::service::{Readiness, Service};
use super::stack::DnsStack;
use super::supervise::Supervised;
use crate::secret::Secret;

/// The first administrator.
const ADMIN_EMAIL: &str = "admin@example.test";
/// The name servers that the demo's zones name.
const NAMESERVERS: [&str; 2] = ["ns1.example.net", "ns2.example.net"];
/// Where proxied names lead.
pub(super) const PLATFORM_ZONE: &str = "edge.example.net";
/// How long the control plane may take until it says that it is ready.
const READY_LIMIT_SECONDS: u64 = 60;
/// How often it is asked.
const READY_PAUSE_MILLISECONDS: u64 = 50;
/// How long one answer to that may take.
const READY_PROBE_SECONDS: u64 = 2;

/// A registered cluster, as the demo knows it.
struct Cluster {
    name: String,
    dns: SocketAddr,
    front: SocketAddr,
    database_url: Secret,
    database_url_file: PathBuf,
}

/// What the control plane is told, and how to run it.
pub(super) struct Settings {
    program: PathBuf,
    dir: PathBuf,
    config: PathBuf,
    token_file: PathBuf,
    password_file: PathBuf,
    database_url: Secret,
    api: SocketAddr,
    metrics: SocketAddr,
    edge_control: SocketAddr,
    dns: SocketAddr,
    clusters: Vec<Cluster>,
}

/// The addresses that the control plane listens at.
pub(super) struct Listeners {
    /// The API.
    pub(super) api: Port,
    /// The private one.
    pub(super) metrics: Port,
    /// Of edges.
    pub(super) edge_control: Port,
}

impl Settings {
    /// Writes the configuration anew and the files it names.
    pub(super) fn write(
        home: &Home,
        control: &Postgres,
        dns: &DnsStack,
        listeners: &Listeners,
    ) -> Result<Self> {
        let dir = home.dir().to_owned();
        let database_url = control.url(DatabaseName::HEADWATER.as_str());
        Account::Own.write_file(&dir.join("database-url"), database_url.expose())?;
        let mut clusters = Vec::new();
        for node in &dns.clusters {
            let database_url_file = dir.join(format!("{}.database-url", node.name));
            Account::Own.write_file(&database_url_file, node.database_url().expose())?;
            clusters.push(Cluster {
                name: node.name.clone(),
                dns: node.pdns.address(),
                front: node.front,
                database_url: node.database_url(),
                database_url_file,
            });
        }
        let settings = Self {
            program: std::env::current_exe().context("cannot find our own program")?,
            config: dir.join("headwater.toml"),
            token_file: dir.join("admin-token"),
            password_file: dir.join("admin-password"),
            database_url,
            api: listeners.api.address(),
            metrics: listeners.metrics.address(),
            edge_control: listeners.edge_control.address(),
            dns: dns.dnsdist.address(),
            clusters,
            dir,
        };
        Account::Own.write_file(&settings.config, &settings.text())?;
        Ok(settings)
    }

    fn text(&self) -> String {
        let nameservers = NAMESERVERS.map(|name| format!("{name:?}")).join(", ");
        format!(
            "# Written by `headwater demo` at each start.\n\n\
             [database]\nurl_file = \"database-url\"\n\n\
             [server]\nlisten = \"{api}\"\nmetrics_listen = \"{metrics}\"\n\n\
             [dns]\nnameservers = [{nameservers}]\nhostmaster = \"hostmaster.example.net\"\n\n\
             [deploy]\npoll_milliseconds = 200\n\n\
             [sites]\nunsafe_allow_loopback_origins = true\nplatform_zone = \"{PLATFORM_ZONE}\"\n\
             answer_ttl = 5\ndrain_seconds = 5\n\n\
             [edge_control]\nlisten = \"{edge_control}\"\nheartbeat_seconds = 1\n\
             registrations_per_hour = 1000000\nrequests_per_minute = 1000000\n\n\
             # Receivers on this machine.\n\
             [webhooks]\nallow_http = true\nallow_networks = [\"127.0.0.0/8\", \"::1/128\"]\n\n\
             # A demo has one user, who may want to see how fast it is.\n\
             [limits]\ndomains_per_tenant = 1000000\nstreams_per_token = 10000\nstreams_per_tenant = 10000\n\
             mutations_per_minute = 10000000\nreads_per_minute = 10000000\n\n\
             [client]\nurl = \"http://{api}\"\ntoken_file = \"admin-token\"\n",
            api = self.api,
            metrics = self.metrics,
            edge_control = self.edge_control,
        )
    }

    /// Brings the control database to the current schema and makes the first administrator, if there is none.
    pub(super) async fn prepare_database(&self) -> Result<()> {
        let config = || [OsString::from("--config"), self.config.clone().into()];
        self.command("migrate", config().into()).await?;
        let mut init = Vec::from(config());
        init.extend(["--admin-email".into(), ADMIN_EMAIL.into()]);
        init.extend(["--token-file".into(), self.token_file.clone().into()]);
        self.command("init", init).await?;
        if self.password_file.exists() {
            return Ok(());
        }
        // The file stands only once its password is that of the administrator.
        let new = self.dir.join("admin-password.new");
        Account::Own.write_file(&new, Secret::generate().expose())?;
        let mut set = Vec::from(config());
        set.extend(["set-password".into(), ADMIN_EMAIL.into(), "--password-file".into(), new.clone().into()]);
        self.command("admin", set).await?;
        std::fs::rename(&new, &self.password_file).context("cannot keep the administrator's password")
    }

    async fn command(&self, verb: &'static str, args: Vec<OsString>) -> Result<()> {
        let mut command = Account::Own.command(&self.program, Some(Signal::SIGTERM));
        command.arg(verb).args(args).current_dir(&self.dir);
        super::postgres::run(command, None).await.with_context(|| format!("headwater {verb} failed"))
    }

    /// A client of the API.
    pub(super) fn api(&self) -> Result<Api> {
        let token = Secret::read(&self.token_file).context(
            "the token of the demo's administrator is gone; remove the demo's directory and start again",
        )?;
        Api::new(format!("http://{}", self.api), token)
    }

    /// Registers the clusters that are not known yet, and corrects the addresses of those that are.
    pub(super) async fn register_clusters(&self) -> Result<()> {
        let api = self.api()?;
        let known = api.get("/api/dns-clusters?limit=1000").await?;
        for cluster in &self.clusters {
            let name = &cluster.name;
            let found = known.body["items"]
                .as_array()
                .and_then(|items| items.iter().find(|item| item["name"] == *name));
            let addresses = json!({"dns": cluster.dns.to_string(), "front": cluster.front.to_string()});
            let current = match found {
                Some(item) if has_all(item, &addresses) => item.clone(),
                Some(item) => {
                    let path = format!("/api/dns-clusters/{}", item["id"].as_str().unwrap_or(name));
                    api.call(Method::PATCH, &path, Some(addresses)).await?.body
                }
                None => {
                    let mut body = addresses;
                    body["name"] = json!(name);
                    body["database_url_file"] = json!(cluster.database_url_file);
                    body["nameservers"] = json!(NAMESERVERS);
                    api.call(Method::POST, "/api/dns-clusters", Some(body)).await?.body
                }
            };
            if current["state"] != "enabled" {
                let id = current["id"].as_str().with_context(|| format!("the cluster {name} has no id"))?;
                api.call(Method::POST, &format!("/api/dns-clusters/{id}/enable"), None).await?;
            }
        }
        Ok(())
    }

    /// What `demo.json` says beside the processes.
    pub(super) async fn facts(&self) -> Result<Map<String, Value>> {
        let known = self.api()?.get("/api/dns-clusters?limit=1000").await?;
        let id = |name: &str| {
            let items = known.body["items"].as_array()?;
            items.iter().find(|item| item["name"] == *name).map(|item| item["id"].clone())
        };
        let clusters: Vec<Value> = self
            .clusters
            .iter()
            .map(|cluster| {
                json!({
                    "id": id(&cluster.name),
                    "name": cluster.name,
                    "database_url": cluster.database_url.expose(),
                    "dns": cluster.dns.to_string(),
                })
            })
            .collect();
        let facts = json!({
            "api": format!("http://{}", self.api),
            "metrics": format!("http://{}", self.metrics),
            "admin_token": Secret::read(&self.token_file)?.expose(),
            "admin": {
                "email": ADMIN_EMAIL,
                "password": Secret::read(&self.password_file)?.expose(),
            },
            "bin": self.program,
            "config": self.config,
            "edge_bin": super::edge::program()?,
            "database_url": self.database_url.expose(),
            "dns": self.dns.to_string(),
            "edge_control": format!("https://{}", self.edge_control),
            "clusters": clusters,
        });
        match facts {
            Value::Object(facts) => Ok(facts),
            _ => bail!("the facts of a demo are an object"),
        }
    }
}

/// Whether an object holds all of these members.
fn has_all(object: &Value, members: &Value) -> bool {
    members.as_object().is_some_and(|members| members.iter().all(|(key, value)| object[key] == *value))
}

/// The process `headwater serve`.
pub(super) struct Headwater {
    api: PortLease,
    _others: [PortLease; 2],
    service: Service,
}

impl Headwater {
    /// Starts it and waits until it lives.
    pub(super) async fn start(
        home: &Home,
        settings: &Settings,
        api: PortLease,
        others: [PortLease; 2],
    ) -> Result<Self> {
        let spec = PartSpec {
            name: "headwater".to_owned(),
            program: settings.program.clone(),
            args: ["serve".into(), "--config".into(), settings.config.clone().into()].into(),
            env: Vec::new(),
            account: Account::Own,
            dir: Path::new(&settings.dir).to_owned(),
            log: home.log("headwater"),
            stop_signal: Signal::SIGTERM,
            death_signal: Signal::SIGTERM,
        };
        let mut service = Service::new(spec, Readiness::Http(api.address(), "/livez"));
        service.start().await?;
        Ok(Self { api, _others: others, service })
    }

    /// Waits until it says that it is ready.
    pub(super) async fn wait_ready(&self) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(READY_LIMIT_SECONDS);
        let limit = Duration::from_secs(READY_PROBE_SECONDS);
        while let Err(error) = probe::http_ok(self.api.address(), "/readyz", limit).await {
            if Instant::now() >= deadline {
                return Err(error).context("headwater serve does not become ready; see logs/headwater.log");
            }
            sleep(Duration::from_millis(READY_PAUSE_MILLISECONDS)).await;
        }
        Ok(())
    }
}

impl Supervised for Headwater {
    fn service(&mut self) -> &mut Service {
        &mut self.service
    }
}
