//! Bodies of hostnames, of the cache's policy and of purges.

use headwater_events::dns::{DomainName, OwnerName};
use headwater_events::domain::destination::Destinations;
use headwater_events::domain::{
    Backup, BackupInput, CachePatch, CachePolicy, Health, HealthInput, HostnameBody, HostnameInput, Origin,
    OriginInput, Scheme, UNSUPPORTED_FIELDS,
};
use headwater_events::reject::Fault;
use headwater_events::time::Timestamp;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;
use uuid::Uuid;

use super::rrset::ChangedBody;
use crate::http::Problem;
use crate::http::body::{Fields, FromBody};
use crate::query::sites::{ShownCache, ShownHostname, ShownPurge};

/// Octets of a purge's body, at most.
pub const PURGE_MAX_BYTES: usize = 128 << 10;

/// An origin.
#[derive(Debug, Serialize, ToSchema)]
pub struct OriginBody {
    /// `http` or `https`.
    #[schema(example = "http")]
    scheme: &'static str,
    /// A name or an address.
    #[schema(example = "origin.example.org")]
    host: String,
    /// Its port; 80 or 443 where none is given.
    port: u16,
    /// What is sent as `Host`; the hostname where none is given.
    host_header: String,
    /// The server's name in TLS; needed for verified https.
    sni: Option<String>,
    /// Whether its certificate is checked (true).
    verify_tls: bool,
    /// 100 to 10000 (3000).
    connect_timeout_ms: u32,
    /// 500 to 60000 (30000).
    response_timeout_ms: u32,
    /// 0 to 2 (1); idempotent requests only.
    retries: u8,
    /// Whether connections may be upgraded (false).
    websocket: bool,
}

impl From<Origin> for OriginBody {
    fn from(origin: Origin) -> Self {
        let scheme = if origin.scheme == Scheme::Https { "https" } else { "http" };
        Self {
            scheme,
            host: origin.host,
            port: origin.port,
            host_header: origin.host_header,
            sni: origin.sni,
            verify_tls: origin.verify_tls,
            connect_timeout_ms: origin.connect_timeout_ms,
            response_timeout_ms: origin.response_timeout_ms,
            retries: origin.retries,
            websocket: origin.websocket,
        }
    }
}

/// A second origin.
#[derive(Debug, Serialize, ToSchema)]
pub struct BackupBody {
    /// The server.
    origin: OriginBody,
    /// 1 to 20 failures in a row (3).
    failure_threshold: u32,
    /// 1 to 20 successes in a row (2).
    recovery_threshold: u32,
    /// 5 to 3600 (30).
    hold_down_seconds: u32,
    /// 5 to 86400 (60).
    failback_delay_seconds: u32,
}

impl From<Backup> for BackupBody {
    fn from(backup: Backup) -> Self {
        Self {
            origin: backup.origin.into(),
            failure_threshold: backup.failure_threshold,
            recovery_threshold: backup.recovery_threshold,
            hold_down_seconds: backup.hold_down_seconds,
            failback_delay_seconds: backup.failback_delay_seconds,
        }
    }
}

/// How an origin is watched.
#[derive(Debug, Serialize, ToSchema)]
pub struct HealthBody {
    /// What is asked for.
    path: String,
    /// 60 to 86400 (60).
    interval_seconds: u32,
}

impl From<Health> for HealthBody {
    fn from(health: Health) -> Self {
        Self { path: health.path, interval_seconds: health.interval_seconds }
    }
}

/// A proxied name.
#[derive(Debug, Serialize, ToSchema)]
pub struct HostnameShown {
    /// The name, relative to the domain.
    #[schema(value_type = String, example = "www")]
    name: OwnerName,
    /// Where its content comes from.
    origin: OriginBody,
    /// Where it comes from while the origin is down.
    backup: Option<BackupBody>,
    /// How the origin is watched.
    health: Option<HealthBody>,
    /// What last changed it.
    changed: ChangedBody,
}

impl From<ShownHostname> for HostnameShown {
    fn from(shown: ShownHostname) -> Self {
        Self {
            name: shown.owner,
            origin: shown.body.origin.into(),
            backup: shown.body.backup.map(BackupBody::from),
            health: shown.body.health.map(HealthBody::from),
            changed: shown.changed.into(),
        }
    }
}

/// An origin to fetch from; what is left out has its default.
#[derive(Debug, ToSchema)]
#[allow(dead_code)] // the documentation of what `SentHostname` reads
pub struct NewOrigin {
    /// `http` or `https`.
    #[schema(example = "http")]
    scheme: String,
    /// A name or an address.
    #[schema(example = "origin.example.org")]
    host: String,
    /// 1 to 65535 (80 or 443).
    port: Option<i64>,
    /// What is sent as `Host` (the hostname).
    host_header: Option<String>,
    /// The server's name in TLS; needed for verified https.
    sni: Option<String>,
    /// Whether its certificate is checked (true).
    verify_tls: Option<bool>,
    /// 100 to 10000 (3000).
    connect_timeout_ms: Option<i64>,
    /// 500 to 60000 (30000).
    response_timeout_ms: Option<i64>,
    /// 0 to 2 (1); idempotent requests only.
    retries: Option<i64>,
    /// Whether connections may be upgraded (false).
    websocket: Option<bool>,
}

/// A second origin and when it is used.
#[derive(Debug, ToSchema)]
#[allow(dead_code)] // the documentation of what `SentHostname` reads
pub struct NewBackup {
    /// The server.
    origin: NewOrigin,
    /// 1 to 20 failures in a row (3).
    failure_threshold: Option<i64>,
    /// 1 to 20 successes in a row (2).
    recovery_threshold: Option<i64>,
    /// 5 to 3600 (30).
    hold_down_seconds: Option<i64>,
    /// 5 to 86400 (60).
    failback_delay_seconds: Option<i64>,
}

/// How an origin is watched.
#[derive(Debug, ToSchema)]
#[allow(dead_code)] // the documentation of what `SentHostname` reads
pub struct NewHealth {
    /// What is asked for (/).
    path: Option<String>,
    /// 60 to 86400 (60).
    interval_seconds: Option<i64>,
}

/// A name to proxy.
#[derive(Debug, ToSchema)]
#[allow(dead_code)] // the documentation of what `SentHostname` reads
pub struct PutHostname {
    /// Where its content comes from.
    origin: NewOrigin,
    /// Where it comes from while the origin is down.
    backup: Option<NewBackup>,
    /// How the origin is watched.
    health: Option<NewHealth>,
}

/// A name to proxy, as it was sent, with what is wrong already; it is told with what the domain says of the rest.
#[derive(Debug)]
pub struct SentHostname {
    input: HostnameInput,
    faults: Vec<Fault>,
}

fn maybe_flag(fields: &mut Fields, key: &str) -> Option<bool> {
    fields.has(key).then(|| fields.flag(key))
}

/// Reads an object inside another; what is left over in it is a fault of its own.
fn object<T>(
    value: Option<Value>,
    base: &str,
    faults: &mut Vec<Fault>,
    read: impl FnOnce(&mut Fields) -> T,
) -> Option<T> {
    let mut fields = Fields::new(value?, base);
    let input = read(&mut fields);
    faults.extend(fields.finish());
    Some(input)
}

fn origin(fields: &mut Fields) -> OriginInput {
    OriginInput {
        scheme: fields.text("scheme"),
        host: fields.text("host"),
        port: fields.integer("port"),
        host_header: fields.text("host_header"),
        sni: fields.text("sni"),
        verify_tls: maybe_flag(fields, "verify_tls"),
        connect_timeout_ms: fields.integer("connect_timeout_ms"),
        response_timeout_ms: fields.integer("response_timeout_ms"),
        retries: fields.integer("retries"),
        websocket: maybe_flag(fields, "websocket"),
    }
}

impl FromBody for SentHostname {
    fn read(fields: &mut Fields) -> Option<Self> {
        let mut faults = Vec::new();
        let (sent, backup) = (fields.take("origin"), fields.take("backup"));
        let health = fields.take("health");
        let backup = object(backup, "/backup", &mut faults, |fields| {
            let sent = fields.take("origin");
            let input = BackupInput {
                origin: OriginInput::default(),
                failure_threshold: fields.integer("failure_threshold"),
                recovery_threshold: fields.integer("recovery_threshold"),
                hold_down_seconds: fields.integer("hold_down_seconds"),
                failback_delay_seconds: fields.integer("failback_delay_seconds"),
            };
            (sent, input)
        });
        let backup = backup.map(|(sent, input)| {
            let origin = object(sent, "/backup/origin", &mut faults, origin).unwrap_or_default();
            BackupInput { origin, ..input }
        });
        let health = object(health, "/health", &mut faults, |fields| HealthInput {
            path: fields.text("path"),
            interval_seconds: fields.integer("interval_seconds"),
        });
        let origin = object(sent, "/origin", &mut faults, origin).unwrap_or_default();
        faults.extend(fields.drain());
        let input = HostnameInput { origin, backup, health };
        Some(Self { input, faults })
    }
}

impl SentHostname {
    /// What is proxied under the name.
    ///
    /// # Errors
    /// 422 with every fault.
    pub fn parse(
        self,
        owner: &OwnerName,
        zone: &DomainName,
        destinations: &Destinations,
    ) -> Result<HostnameBody, Problem> {
        let mut faults = self.faults;
        match HostnameBody::parse(&self.input, owner, zone, destinations) {
            Ok(body) if faults.is_empty() => Ok(body),
            Ok(_) => Err(Problem::invalid(faults)),
            Err(found) => {
                // What could not be read was told already, and is not missing.
                let told: Vec<String> = faults.iter().map(|fault| fault.pointer.clone()).collect();
                let is_new = |fault: &Fault| {
                    !told.iter().any(|pointer| {
                        fault.pointer == *pointer || fault.pointer.starts_with(&format!("{pointer}/"))
                    })
                };
                faults.extend(found.into_iter().filter(is_new));
                Err(Problem::invalid(faults))
            }
        }
    }
}

/// How answers are kept.
#[derive(Debug, Serialize, ToSchema)]
pub struct CacheBody {
    /// Whether anything is kept.
    enabled: bool,
    /// 0 to 31536000 (3600).
    edge_ttl_seconds: u32,
    /// 0 to 31536000 (300).
    browser_ttl_seconds: u32,
    /// Whether the origin's `Cache-Control` comes first (true).
    respect_origin_headers: bool,
    /// 1048576 to 1073741824 (104857600).
    maximum_object_bytes: u64,
    /// 0 to 86400 (60).
    stale_if_error_seconds: u32,
    /// 0 to 86400 (30).
    stale_while_revalidate_seconds: u32,
    /// How often everything was purged; read only.
    epoch: i64,
    /// The revision that last changed it; read only.
    changed: i64,
    /// Who changed it then, when and why; read only.
    changed_by: ChangedBody,
}

impl From<ShownCache> for CacheBody {
    fn from(shown: ShownCache) -> Self {
        let CachePolicy {
            enabled,
            edge_ttl_seconds,
            browser_ttl_seconds,
            respect_origin_headers,
            maximum_object_bytes,
            stale_if_error_seconds,
            stale_while_revalidate_seconds,
        } = shown.policy;
        Self {
            enabled,
            edge_ttl_seconds,
            browser_ttl_seconds,
            respect_origin_headers,
            maximum_object_bytes,
            stale_if_error_seconds,
            stale_while_revalidate_seconds,
            epoch: shown.epoch,
            changed: shown.changed.revision.get(),
            changed_by: shown.changed.into(),
        }
    }
}

/// A merge patch (RFC 7396) of a policy: null gives a field its default back.
#[derive(Debug, ToSchema)]
#[allow(dead_code)] // the documentation of what `SentCache` reads
pub struct PatchCache {
    /// Whether anything is kept.
    enabled: Option<bool>,
    /// 0 to 31536000.
    #[schema(example = 600)]
    edge_ttl_seconds: Option<i64>,
    /// 0 to 31536000.
    browser_ttl_seconds: Option<i64>,
    /// Whether the origin's `Cache-Control` comes first.
    respect_origin_headers: Option<bool>,
    /// 1048576 to 1073741824.
    maximum_object_bytes: Option<i64>,
    /// 0 to 86400.
    stale_if_error_seconds: Option<i64>,
    /// 0 to 86400.
    stale_while_revalidate_seconds: Option<i64>,
}

/// A merge patch of a policy, as it was sent.
#[derive(Debug)]
pub struct SentCache(pub CachePatch);

/// A number of a merge patch: null is told apart from absence.
fn patched_number(fields: &mut Fields, key: &str) -> Option<Option<i64>> {
    if fields.has(key) { fields.integer(key).map(Some) } else { fields.take_nullable(key).map(|_| None) }
}

fn patched_flag(fields: &mut Fields, key: &str) -> Option<Option<bool>> {
    if fields.has(key) { Some(Some(fields.flag(key))) } else { fields.take_nullable(key).map(|_| None) }
}

impl FromBody for SentCache {
    fn read(fields: &mut Fields) -> Option<Self> {
        for key in UNSUPPORTED_FIELDS {
            if fields.take_nullable(key).is_some() {
                fields.fault(key, "unsupported", format!("{key} is not supported yet"));
            }
        }
        let patch = CachePatch {
            enabled: patched_flag(fields, "enabled"),
            edge_ttl_seconds: patched_number(fields, "edge_ttl_seconds"),
            browser_ttl_seconds: patched_number(fields, "browser_ttl_seconds"),
            respect_origin_headers: patched_flag(fields, "respect_origin_headers"),
            maximum_object_bytes: patched_number(fields, "maximum_object_bytes"),
            stale_if_error_seconds: patched_number(fields, "stale_if_error_seconds"),
            stale_while_revalidate_seconds: patched_number(fields, "stale_while_revalidate_seconds"),
        };
        Some(Self(patch))
    }
}

/// What to let go of.
#[derive(Debug, ToSchema)]
pub struct NewPurge {
    /// `all`.
    #[schema(example = "all")]
    #[allow(dead_code)] // nothing else can be asked for yet
    r#type: String,
}

/// Kinds of purges that are not there yet.
const UNSUPPORTED_PURGES: [&str; 4] = ["urls", "prefixes", "hosts", "tags"];

impl FromBody for NewPurge {
    const MAX_BYTES: usize = PURGE_MAX_BYTES;

    fn read(fields: &mut Fields) -> Option<Self> {
        let kind = fields.required_text("type")?;
        if kind == "all" {
            return Some(Self { r#type: kind });
        }
        if UNSUPPORTED_PURGES.contains(&kind.as_str()) {
            let _their_list = fields.take(&kind);
            fields.fault("type", "unsupported", format!("a purge of {kind} is not supported yet: purge all"));
        } else {
            fields.fault("type", "invalid_type", "type is all, urls, prefixes, hosts or tags");
        }
        None
    }
}

/// A purge.
#[derive(Debug, Serialize, ToSchema)]
pub struct PurgeBody {
    /// Which.
    id: Uuid,
    /// `all`.
    r#type: String,
    /// The epoch that it began.
    epoch: i64,
    /// The domain's revision.
    revision: i64,
    /// When it was asked for.
    #[schema(value_type = String, format = DateTime)]
    requested_at: Timestamp,
    /// What carries it out; null where nothing was served.
    operation: Option<Uuid>,
    /// `pending`, `running`, `succeeded`, `failed` or `cancelled`; `recorded` where nothing was served.
    state: String,
}

impl From<ShownPurge> for PurgeBody {
    fn from(shown: ShownPurge) -> Self {
        Self {
            id: shown.id.as_uuid(),
            r#type: shown.scope,
            epoch: shown.epoch,
            revision: shown.revision.get(),
            requested_at: shown.requested_at,
            operation: shown.operation.map(|id| id.as_uuid()),
            state: shown.state.unwrap_or_else(|| "recorded".to_owned()),
        }
    }
}
