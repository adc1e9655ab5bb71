//! The configuration: one TOML file, every key also from the environment, secrets by file.
//!
//! The file is the first of: the one named (`--config`, `HEADWATER_CONFIG`), `./.headwater/headwater.toml`,
//! `/etc/headwater/headwater.toml`. `HEADWATER_SECTION__KEY` stands above the file. A file with faults is refused
//! whole, naming every fault: an unknown key is one, because a misspelt limit that is ignored is no limit.

mod dnsdist;
mod reader;
mod types;
mod webhooks;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::secret::Secret;
pub use dnsdist::Dnsdist as DnsdistSettings;
use headwater_edge_wire::artifact::{
    ARTIFACT_CEILING_MAX_BYTES, ARTIFACT_DEFAULT_MAX_BYTES, ARTIFACT_FLOOR_MAX_BYTES, ArtifactBudget,
};
use headwater_events::dns::DomainName;
use headwater_events::domain::Retention;
use headwater_events::domain::destination::{Destinations, NETWORKS_MAX_COUNT, Network};
pub use reader::{ConfigError, EnvironmentVariable};
use reader::{Reader, Section};
pub use types::{ApiUrl, HostName, ListenerName, SecretSource};
pub use webhooks::Webhooks;

/// The variable that names the file.
pub const CONFIG_VARIABLE: &str = "HEADWATER_CONFIG";
/// Where the file is looked for when none is named.
pub const DEFAULT_FILES: [&str; 2] = [".headwater/headwater.toml", "/etc/headwater/headwater.toml"];
/// The highest TTL (RFC 2181, section 8).
const TTL_MAX_SECONDS: u32 = 2_147_483_647;

/// Everything that can be set.
#[derive(Clone)]
pub struct Config {
    /// The file it was read from, if there was one.
    pub file: Option<PathBuf>,
    /// `[database]`: where the log is.
    pub database: Database,
    /// `[server]`: what `headwater serve` listens on.
    pub server: Server,
    /// `[dns]`: the records that the platform adds to every zone.
    pub dns: Dns,
    /// `[operations]`.
    pub operations: Operations,
    /// `[deploy]`: how DNS clusters are followed.
    pub deploy: Deploy,
    /// `[sites]`: what edges may be told of a domain.
    pub sites: Sites,
    /// `[limits]`: what one tenant may take.
    pub limits: Limits,
    /// `[accounts]`: people who log in.
    pub accounts: Accounts,
    /// `[edge_control]`: the listener that edges speak to.
    pub edge_control: EdgeControl,
    /// `[secrets]`: what secrets are sealed under.
    pub secrets: Secrets,
    /// `[webhooks]`: where events may be sent to.
    pub webhooks: Webhooks,
    /// `[dnsdist]`: the dnsdist of this host.
    pub dnsdist: DnsdistSettings,
    /// `[client]`: the API that the client commands talk to.
    pub client: Client,
}

/// `[database]`.
#[derive(Clone)]
pub struct Database {
    /// `url` or `url_file`: the control database, as its owner.
    pub url: Option<SecretSource>,
    /// `max_connections` of one process.
    pub max_connections: u32,
}

/// `[server]`.
#[derive(Clone)]
pub struct Server {
    /// `listen`: the API.
    pub listen: SocketAddr,
    /// `metrics_listen`: the private listener.
    pub metrics_listen: SocketAddr,
    /// `shutdown_grace_seconds`: how long requests may take to end at a stop.
    pub shutdown_grace: Duration,
    /// `stream_life_seconds`: how long an event stream lives at most; its reader comes back with its id.
    pub stream_life: Duration,
    /// `trusted_proxies`: who is believed when it says for whom it asks.
    pub trusted_proxies: Vec<Network>,
}

/// `[dns]`. All times are TTLs or SOA fields, in seconds.
#[derive(Clone)]
pub struct Dns {
    /// `nameservers`: the NS records at every apex; the first one is the SOA's MNAME.
    pub nameservers: Vec<HostName>,
    /// `hostmaster`: the SOA's RNAME.
    pub hostmaster: HostName,
    /// `soa_ttl`.
    pub soa_ttl: u32,
    /// `refresh`.
    pub refresh: u32,
    /// `retry`.
    pub retry: u32,
    /// `expire`.
    pub expire: u32,
    /// `minimum`: the TTL of negative answers.
    pub minimum: u32,
    /// `ns_ttl`: the TTL of the apex NS records.
    pub ns_ttl: u32,
    /// `serial_base`: what the serials of new domains start above.
    pub serial_base: u32,
    /// `minimum_ttl`: the lowest TTL a tenant may set.
    pub minimum_ttl: u32,
    /// `resolver`: who finds the name servers of a domain's parent, so that they can be asked.
    pub resolver: Option<SocketAddr>,
    /// `unsafe_nameserver_port`: name servers of others are asked at this port, on loopback too. For tests alone.
    pub unsafe_nameserver_port: Option<u16>,
}

/// `[operations]`.
#[derive(Clone)]
pub struct Operations {
    /// `deadline_seconds`: after this an operation fails, naming the targets that lag.
    pub deadline: Duration,
}

/// `[deploy]`.
#[derive(Clone)]
pub struct Deploy {
    /// `poll_milliseconds`: how often work is looked for when no notification comes.
    pub poll: Duration,
    /// `batch_domains`: how many domains are claimed at once.
    pub batch_domains: u32,
    /// `drift_check_seconds`: how often a round of the drift check begins.
    pub drift_check: Duration,
}

/// `[sites]`.
#[derive(Clone)]
pub struct Sites {
    /// `origin_allow_private`, `platform_networks`, `unsafe_allow_loopback_origins`: where edges may connect to.
    pub destinations: Destinations,
    /// `artifact_max_bytes`: how large what is published of one domain may be.
    pub artifact: ArtifactBudget,
    /// `platform_zone`: the platform's own zone, where proxied names lead; without it DNS does not answer for them.
    pub platform_zone: Option<DomainName>,
    /// `answer_ttl`: the TTL of what DNS answers for proxied names, in seconds.
    pub answer_ttl: u32,
    /// `drain_seconds`: how long edges go on serving a name after DNS clusters stopped answering with it.
    pub drain: Duration,
}

/// `[limits]`.
#[derive(Clone)]
pub struct Limits {
    /// `domains_per_tenant`.
    pub domains_per_tenant: u32,
    /// `records_per_domain`.
    pub records_per_domain: u32,
    /// `streams_per_token`.
    pub streams_per_token: u32,
    /// `streams_per_tenant`.
    pub streams_per_tenant: u32,
    /// `mutations_per_minute` of a tenant.
    pub mutations_per_minute: u32,
    /// `reads_per_minute` of a tenant.
    pub reads_per_minute: u32,
    /// `revision_days` and `revision_newest`: which revisions of a domain it can be rolled back to.
    pub retention: Retention,
    /// `hold_days`: how long a deleted domain can be restored, and its name is held for its owner.
    pub hold: Duration,
}

/// `[accounts]`.
#[derive(Clone)]
pub struct Accounts {
    /// `session_hours`: how long a session lives at most.
    pub session: Duration,
    /// `session_idle_minutes`: how long it lives unused.
    pub session_idle: Duration,
    /// `logins_per_minute` of one address and user.
    pub logins_per_minute: u32,
    /// `access_log_days`: how long it is kept who came in and who was turned away.
    pub access_log: Duration,
    /// `client_days`: how long it is kept from which address and with which program something was done.
    pub clients: Duration,
}

/// `[edge_control]`.
#[derive(Clone)]
pub struct EdgeControl {
    /// `listen`: mutual TLS, a listener of its own; without it there is none.
    pub listen: Option<SocketAddr>,
    /// `public_url`: how edges reach it.
    pub public_url: Option<ApiUrl>,
    /// `names`: what its certificate names beside the host of `public_url` and the address of `listen`.
    pub names: Vec<ListenerName>,
    /// `identity_days`: the life of an identity certificate.
    pub identity_days: u32,
    /// `heartbeat_seconds`: how often agents send a heartbeat.
    pub heartbeat_seconds: u32,
    /// `fresh_seconds`: how long a heartbeat counts.
    pub fresh_seconds: u32,
    /// `registrations_per_hour` of one address.
    pub registrations_per_hour: u32,
    /// `requests_per_minute` of one identity.
    pub requests_per_minute: u32,
}

/// `[secrets]`.
#[derive(Clone)]
pub struct Secrets {
    /// `key_file`: the key ring under which secrets are sealed in the database.
    pub key_file: PathBuf,
}

/// `[client]`.
#[derive(Clone)]
pub struct Client {
    /// `url` of the API.
    pub url: Option<ApiUrl>,
    /// `token_file`.
    pub token_file: Option<PathBuf>,
}

/// The settings cannot be used: wrong usage, whatever the command.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Unusable(pub String);

impl Config {
    /// Finds and reads the configuration of this process. Without any file the defaults hold.
    ///
    /// # Errors
    /// [`Unusable`], naming every fault.
    pub fn load(named: Option<&Path>) -> std::result::Result<Self, Unusable> {
        Self::find(named).map_err(|error| Unusable(format!("{error:#}")))
    }

    fn find(named: Option<&Path>) -> Result<Self> {
        let from_variable = std::env::var_os(CONFIG_VARIABLE).map(PathBuf::from);
        let file = match named.map(Path::to_owned).or(from_variable) {
            Some(file) => Some(file),
            None => DEFAULT_FILES.iter().map(PathBuf::from).find(|file| file.exists()),
        };
        let text = match &file {
            Some(file) => std::fs::read_to_string(file)
                .with_context(|| format!("cannot read the configuration {}", file.display()))?,
            None => String::new(),
        };
        let file = file
            .map(|file| std::path::absolute(&file))
            .transpose()
            .context("cannot find the current directory")?;
        let environment = std::env::vars_os()
            .filter_map(|(name, value)| EnvironmentVariable::new(name.to_str()?, value.to_str()?));
        Ok(Self::parse(&text, file, environment)?)
    }

    /// Reads a configuration from its text and the variables that stand above it.
    ///
    /// Relative paths in it are relative to the directory of `file`.
    pub fn parse(
        text: &str,
        file: Option<PathBuf>,
        environment: impl IntoIterator<Item = EnvironmentVariable>,
    ) -> std::result::Result<Self, ConfigError> {
        let base = file.as_deref().and_then(Path::parent).unwrap_or(Path::new(""));
        let mut reader = Reader::new(text, environment);
        let config = Self {
            database: reader.section("database", |section| database(section, base)),
            server: reader.section("server", server),
            dns: reader.section("dns", dns),
            operations: reader.section("operations", |section| Operations {
                deadline: section.seconds("deadline_seconds", 1..=3_600, 120),
            }),
            deploy: reader.section("deploy", deploy),
            sites: reader.section("sites", sites),
            limits: reader.section("limits", limits),
            accounts: reader.section("accounts", accounts),
            edge_control: reader.section("edge_control", edge_control),
            secrets: reader.section("secrets", |section| Secrets {
                key_file: section.path("key_file", base).unwrap_or_else(|| base.join("secret-key")),
            }),
            webhooks: reader.section("webhooks", |section| webhooks::webhooks(section, base)),
            dnsdist: reader.section("dnsdist", |section| dnsdist::dnsdist(section, base)),
            client: reader.section("client", |section| client(section, base)),
            file: file.clone(),
        };
        reader.finish(file.as_deref())?;
        Ok(config)
    }
}

impl Database {
    /// The URL of the control database, read from its file if it has one.
    pub fn read_url(&self) -> Result<Secret> {
        match &self.url {
            Some(source) => source.read(),
            None => {
                let detail =
                    "no database is configured: set url_file in [database], or HEADWATER_DATABASE__URL";
                Err(Unusable(detail.to_owned()).into())
            }
        }
    }
}

impl Client {
    /// The token of the client commands, if one is configured.
    pub fn read_token(&self) -> Result<Option<Secret>> {
        self.token_file.as_deref().map(Secret::read).transpose()
    }
}

fn database(section: &mut Section<'_>, base: &Path) -> Database {
    Database {
        url: section.secret("url", "url_file", base),
        max_connections: section.number("max_connections", 2..=1_000, 20),
    }
}

fn server(section: &mut Section<'_>) -> Server {
    let server = Server {
        listen: section.parsed("listen").unwrap_or(SocketAddr::from(([127, 0, 0, 1], 8_080))),
        metrics_listen: section.parsed("metrics_listen").unwrap_or(SocketAddr::from(([127, 0, 0, 1], 9_180))),
        shutdown_grace: section.seconds("shutdown_grace_seconds", 1..=300, 10),
        stream_life: section.seconds("stream_life_seconds", 1..=604_800, 3_600),
        trusted_proxies: networks(section, "trusted_proxies"),
    };
    if server.listen == server.metrics_listen && server.listen.port() != 0 {
        section.fault(
            "metrics_listen",
            "is the same address as listen; the metrics have a listener of their own",
        );
    }
    server
}

fn dns(section: &mut Section<'_>) -> Dns {
    let dns = Dns {
        nameservers: section
            .list("nameservers")
            .unwrap_or_else(|| HostName::defaults(&["ns1.example.net", "ns2.example.net"])),
        hostmaster: section
            .parsed("hostmaster")
            .or_else(|| HostName::defaults(&["hostmaster.example.net"]).pop())
            .unwrap_or_default(),
        soa_ttl: section.number("soa_ttl", 0..=TTL_MAX_SECONDS, 3_600),
        refresh: section.number("refresh", 300..=86_400, 3_600),
        retry: section.number("retry", 60..=86_400, 600),
        expire: section.number("expire", 86_400..=2_419_200, 1_209_600),
        minimum: section.number("minimum", 30..=86_400, 300),
        ns_ttl: section.number("ns_ttl", 0..=TTL_MAX_SECONDS, 3_600),
        serial_base: section.number("serial_base", 0..=u32::MAX, 1),
        minimum_ttl: section.number("minimum_ttl", 0..=TTL_MAX_SECONDS, 0),
        resolver: section.parsed("resolver"),
        unsafe_nameserver_port: match section.number("unsafe_nameserver_port", 0..=65_535, 0) {
            0 => None,
            port => u16::try_from(port).ok(),
        },
    };
    if !(2..=8).contains(&dns.nameservers.len()) {
        section.fault("nameservers", "must be 2 to 8 names");
    }
    if BTreeSet::from_iter(&dns.nameservers).len() != dns.nameservers.len() {
        section.fault("nameservers", "names one server twice");
    }
    if dns.expire <= dns.refresh + dns.retry {
        section.fault("expire", "must be greater than refresh and retry together");
    }
    dns
}

fn deploy(section: &mut Section<'_>) -> Deploy {
    Deploy {
        poll: Duration::from_millis(section.number("poll_milliseconds", 10..=60_000, 500).into()),
        batch_domains: section.number("batch_domains", 1..=1_000, 200),
        drift_check: section.seconds("drift_check_seconds", 1..=86_400, 60),
    }
}

fn networks(section: &mut Section<'_>, key: &str) -> Vec<Network> {
    let networks: Vec<Network> = section.list(key).unwrap_or_default();
    if networks.len() > NETWORKS_MAX_COUNT {
        section.fault(key, format_args!("names more than {NETWORKS_MAX_COUNT} networks"));
    }
    networks
}

fn accounts(section: &mut Section<'_>) -> Accounts {
    let mut of = |key: &str, range, default, seconds: u64| {
        Duration::from_secs(u64::from(section.number(key, range, default)) * seconds)
    };
    Accounts {
        session: of("session_hours", 1..=8_760, 168, 3_600),
        session_idle: of("session_idle_minutes", 5..=525_600, 720, 60),
        access_log: of("access_log_days", 1..=3_650, 90, 86_400),
        clients: of("client_days", 1..=3_650, 365, 86_400),
        logins_per_minute: section.number("logins_per_minute", 1..=1_000_000, 10),
    }
}

fn sites(section: &mut Section<'_>) -> Sites {
    let allow_private = networks(section, "origin_allow_private");
    let platform = networks(section, "platform_networks");
    let unsafe_allow_loopback = section.flag("unsafe_allow_loopback_origins");
    let floor = u32::try_from(ARTIFACT_FLOOR_MAX_BYTES).unwrap_or(u32::MAX);
    let ceiling = u32::try_from(ARTIFACT_CEILING_MAX_BYTES).unwrap_or(u32::MAX);
    let default = u32::try_from(ARTIFACT_DEFAULT_MAX_BYTES).unwrap_or(ceiling);
    let bytes = section.number("artifact_max_bytes", floor..=ceiling, default);
    let shortest: u32 = if unsafe_allow_loopback { 0 } else { 30 };
    let answer_ttl = section.number("answer_ttl", shortest..=86_400, 300);
    let drain = section.seconds("drain_seconds", shortest..=86_400, 300);
    if !unsafe_allow_loopback && drain.as_secs() < u64::from(answer_ttl) {
        section
            .fault("drain_seconds", "must be at least answer_ttl: so long resolvers send visitors to a name");
    }
    let platform_zone = section.parsed::<HostName>("platform_zone");
    let platform_zone = platform_zone.and_then(|name| match DomainName::parse(name.as_str()) {
        Ok(name) => Some(name),
        Err(fault) => {
            section.fault("platform_zone", fault.detail);
            None
        }
    });
    Sites {
        platform_zone,
        answer_ttl,
        drain,
        destinations: Destinations { allow_private, platform, unsafe_allow_loopback },
        artifact: usize::try_from(bytes).ok().and_then(ArtifactBudget::new).unwrap_or_default(),
    }
}

fn limits(section: &mut Section<'_>) -> Limits {
    Limits {
        domains_per_tenant: section.number("domains_per_tenant", 1..=1_000_000, 1_000),
        records_per_domain: section.number("records_per_domain", 1..=1_000_000, 100_000),
        streams_per_token: section.number("streams_per_token", 1..=100_000, 50),
        streams_per_tenant: section.number("streams_per_tenant", 1..=100_000, 500),
        mutations_per_minute: section.number("mutations_per_minute", 1..=100_000_000, 1_200),
        reads_per_minute: section.number("reads_per_minute", 1..=100_000_000, 6_000),
        retention: Retention {
            window: Duration::from_secs(u64::from(section.number("revision_days", 1..=365, 1_u32)) * 86_400),
            newest: i64::from(section.number("revision_newest", 2..=100, 10_u32)),
        },
        hold: Duration::from_secs(u64::from(section.number("hold_days", 1..=365, 7_u32)) * 86_400),
    }
}

fn edge_control(section: &mut Section<'_>) -> EdgeControl {
    let edge_control = EdgeControl {
        listen: section.parsed("listen"),
        public_url: section.parsed("public_url"),
        names: section.list("names").unwrap_or_default(),
        identity_days: section.number("identity_days", 1..=90, 7),
        heartbeat_seconds: section.number("heartbeat_seconds", 1..=100, 15),
        fresh_seconds: section.number("fresh_seconds", 10..=300, 45),
        registrations_per_hour: section.number("registrations_per_hour", 1..=1_000_000, 10),
        requests_per_minute: section.number("requests_per_minute", 1..=1_000_000, 600),
    };
    if edge_control.public_url.as_ref().is_some_and(|url| !url.as_str().starts_with("https://")) {
        section.fault("public_url", "must begin with https://: edges speak nothing else");
    }
    if edge_control.heartbeat_seconds.saturating_mul(2) > edge_control.fresh_seconds {
        section.fault(
            "heartbeat_seconds",
            "must be at most half of fresh_seconds: one lost heartbeat is no outage",
        );
    }
    edge_control
}

fn client(section: &mut Section<'_>, base: &Path) -> Client {
    Client { url: section.parsed("url"), token_file: section.path("token_file", base) }
}

#[cfg(test)]
mod tests;
