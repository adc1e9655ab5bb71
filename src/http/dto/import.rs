//! What is said of imports: where zones come from, whose they will be, what becomes of those that are here.

use headwater_events::dns::DomainName;
use headwater_events::ids::TenantId;
use headwater_events::migration::{
    IMPORT_ZONES_MAX_COUNT, ImportRequested, ImportSource, Mode, OnExisting, Tenants, TsigAlgorithm,
    TsigReference, ZonePattern,
};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::http::body::{Fields, FromBody, token};
use crate::import::report::ShownLine;

/// Octets of a path or a URL, at most.
const PATH_MAX_BYTES: usize = 4_096;
/// Octets of the body: it may name every zone.
const BODY_MAX_BYTES: usize = 32 << 20;
/// Accounts that are mapped, at most.
const ACCOUNTS_MAX_COUNT: usize = 100_000;
/// How often a source may be looked at, in seconds.
const FOLLOW_SECONDS: std::ops::RangeInclusive<i64> = 1..=86_400;
/// How often it is when nobody says so.
const FOLLOW_DEFAULT_SECONDS: u32 = 60;

/// Where zones come from. Files and directories are those of the machine that the server runs on.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[allow(dead_code)] // the documentation of what `source` reads
pub enum Source {
    /// A directory of BIND master files, called after their zones.
    Archive {
        /// The directory.
        path: String,
    },
    /// The database of a PowerDNS with its gpgsql backend (schema 4.3 or later), which is only read.
    PdnsPostgres {
        /// The file that holds its URL.
        database_url_file: String,
    },
    /// The HTTP API of a PowerDNS.
    PdnsApi {
        /// Where it listens.
        url: String,
        /// The file that holds its key.
        api_key_file: String,
        /// The id of the server (`localhost`).
        server: Option<String>,
    },
    /// Transfers from a primary.
    Axfr {
        /// Its address and port.
        primary: String,
        /// Which zones.
        zones: Vec<String>,
        /// The key that signs.
        tsig: Option<Tsig>,
    },
}

/// A TSIG key.
#[derive(Debug, Serialize, ToSchema)]
#[allow(dead_code)] // the documentation of what `tsig` reads
pub struct Tsig {
    /// Its name.
    name: String,
    /// `hmac-sha1`, `hmac-sha256`, `hmac-sha384` or `hmac-sha512`.
    algorithm: String,
    /// The file that holds its secret in base64.
    secret_file: String,
}

/// Whose the domains will be.
#[derive(Debug, Serialize, ToSchema)]
#[allow(dead_code)] // the documentation of what `tenants` reads
pub struct Owners {
    /// By the account that the source says the zone has; of an archive, by the subdirectory.
    by_account: Option<BTreeMap<String, Uuid>>,
    /// Of every other zone; without it those are refused.
    default: Option<Uuid>,
}

/// Zones of another server that are to be taken in.
#[derive(Debug, ToSchema)]
pub struct NewImport {
    /// Where they come from.
    #[schema(value_type = Source)]
    source: ImportSource,
    /// `once` (the default), `follow` (and what changes at the source, until the cutover) or `rehearse` (everything is
    /// judged and reported, nothing is changed).
    #[schema(value_type = Option<String>)]
    mode: Mode,
    /// Whose they will be; the platform's own tenant's where it is left out.
    #[schema(value_type = Option<Owners>)]
    tenants: Tenants,
    /// Which zones: names, and `*.name` for everything below one. All where it is left out.
    #[schema(value_type = Option<Vec<String>>)]
    zones: Option<Vec<ZonePattern>>,
    /// Whether new domains are served at once, without proof of ownership (true).
    #[schema(value_type = Option<bool>)]
    activate: bool,
    /// What becomes of domains that are here already and differ: `skip` (the default), `replace` or `merge`.
    #[schema(value_type = Option<String>)]
    on_existing: OnExisting,
    /// How often a source that is followed is looked at (60).
    #[schema(value_type = Option<u32>)]
    follow_seconds: u32,
}

impl NewImport {
    /// Every tenant that it names.
    pub fn tenants(&self) -> Vec<TenantId> {
        self.tenants.by_account.values().copied().chain(self.tenants.default).collect()
    }

    /// As it stands in the log.
    pub fn requested(self, own: Option<TenantId>, allowed: Vec<String>, take_over: bool) -> ImportRequested {
        let Self { source, mode, mut tenants, zones, activate, on_existing, follow_seconds } = self;
        if tenants == Tenants::default() {
            tenants.default = own;
        }
        ImportRequested {
            source,
            mode,
            tenants,
            zones,
            activate,
            on_existing,
            follow_seconds,
            allowed,
            take_over,
        }
    }
}

fn path(fields: &mut Fields, key: &str) -> Option<String> {
    let text = fields.required_text(key)?;
    if !text.starts_with('/') || text.len() > PATH_MAX_BYTES {
        let detail = format!(
            "write an absolute path on the machine of the server, of at most {PATH_MAX_BYTES} octets"
        );
        fields.fault(key, "invalid_path", detail);
        return None;
    }
    Some(text)
}

fn name(text: &str) -> Result<DomainName, (&'static str, String)> {
    DomainName::parse(text).map_err(|fault| (fault.code.as_str(), fault.detail))
}

fn source(value: Value) -> (Option<ImportSource>, Vec<headwater_events::reject::Fault>) {
    let mut fields = Fields::new(value, "/source");
    let kind = fields.required_text("kind");
    let read = match kind.as_deref() {
        Some("archive") => path(&mut fields, "path").map(|path| ImportSource::Archive { path }),
        Some("pdns_postgres") => path(&mut fields, "database_url_file")
            .map(|database_url_file| ImportSource::PdnsPostgres { database_url_file }),
        Some("pdns_api") => api(&mut fields),
        Some("axfr") => axfr(&mut fields),
        Some(_) => {
            let detail = "write archive, pdns_postgres, pdns_api or axfr";
            fields.fault("kind", "unknown_source", detail);
            None
        }
        None => None,
    };
    (read, fields.finish())
}

fn api(fields: &mut Fields) -> Option<ImportSource> {
    let api_key_file = path(fields, "api_key_file");
    let server = fields.text("server").unwrap_or_else(|| "localhost".to_owned());
    if !fields.has("url") {
        fields.missing("url");
    }
    let url = fields.parsed("url", |text| {
        let wrong = |detail: &str| ("invalid_url", detail.to_owned());
        let url = reqwest::Url::parse(text).map_err(|error| wrong(&format!("this is no URL: {error}")))?;
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() || text.len() > PATH_MAX_BYTES {
            return Err(wrong("write http:// or https://, a host and a port"));
        }
        if !url.username().is_empty() || url.password().is_some() || url.query().is_some() {
            return Err(wrong("a URL stands in the log: leave user, password and query out"));
        }
        Ok(text.to_owned())
    });
    Some(ImportSource::PdnsApi { url: url?, api_key_file: api_key_file?, server })
}

fn axfr(fields: &mut Fields) -> Option<ImportSource> {
    for key in ["primary", "zones"] {
        if !fields.has(key) {
            fields.missing(key);
        }
    }
    let primary = fields.parsed("primary", |text| {
        let wrong = || ("invalid_address", "write an address and a port, such as 192.0.2.53:53".to_owned());
        text.parse::<SocketAddr>().map_err(|_| wrong())
    });
    let zones = names(fields, "zones", name);
    let tsig = fields.take("tsig").map(tsig);
    let tsig = match tsig {
        None => Some(None),
        Some((read, faults)) => {
            fields.faults(faults);
            read.map(Some)
        }
    };
    Some(ImportSource::Axfr { primary: primary?, zones: zones?, tsig: tsig? })
}

fn tsig(value: Value) -> (Option<TsigReference>, Vec<headwater_events::reject::Fault>) {
    let mut fields = Fields::new(value, "/source/tsig");
    for key in ["name", "algorithm"] {
        if !fields.has(key) {
            fields.missing(key);
        }
    }
    let called = fields.parsed("name", name);
    let algorithm = fields.parsed("algorithm", |text| {
        let known = TsigAlgorithm::ALL.map(TsigAlgorithm::name).join(", ");
        TsigAlgorithm::from_name(text).ok_or_else(|| ("unknown_algorithm", format!("write one of {known}")))
    });
    let secret_file = path(&mut fields, "secret_file");
    let read = || Some(TsigReference { name: called?, algorithm: algorithm?, secret_file: secret_file? });
    (read(), fields.finish())
}

/// A list of texts, each read; none when one cannot be.
fn names<T>(
    fields: &mut Fields,
    key: &str,
    read: impl Fn(&str) -> Result<T, (&'static str, String)>,
) -> Option<Vec<T>> {
    let texts = fields.texts(key)?;
    if texts.len() > IMPORT_ZONES_MAX_COUNT {
        fields.fault(key, "too_many_zones", format!("at most {IMPORT_ZONES_MAX_COUNT}"));
        return None;
    }
    let (count, mut all) = (texts.len(), Vec::new());
    for (index, text) in texts.into_iter().enumerate() {
        match text.as_deref().map(&read) {
            Some(Ok(one)) => all.push(one),
            Some(Err((code, detail))) => fields.fault(&format!("{key}/{index}"), code, detail),
            None => {}
        }
    }
    (all.len() == count).then_some(all)
}

fn tenants(value: Value) -> (Option<Tenants>, Vec<headwater_events::reject::Fault>) {
    let mut fields = Fields::new(value, "/tenants");
    let default = fields.id("default");
    let mut by_account = BTreeMap::new();
    match fields.take("by_account") {
        None => {}
        Some(Value::Object(map)) if map.len() <= ACCOUNTS_MAX_COUNT => {
            for (account, id) in map {
                match id.as_str().and_then(|id| id.parse().ok()) {
                    Some(id) => {
                        by_account.insert(account, id);
                    }
                    None => {
                        let at = format!("by_account/{}", token(&account));
                        fields.fault(&at, "invalid_id", "this must be a UUID");
                    }
                }
            }
        }
        Some(_) => {
            let detail =
                format!("an object of at most {ACCOUNTS_MAX_COUNT} accounts with the ids of tenants");
            fields.fault("by_account", "invalid_type", detail);
        }
    }
    (Some(Tenants { by_account, default }), fields.finish())
}

impl FromBody for NewImport {
    const MAX_BYTES: usize = BODY_MAX_BYTES;

    fn read(fields: &mut Fields) -> Option<Self> {
        let source = match fields.take("source").map(source) {
            Some((read, faults)) => {
                fields.faults(faults);
                read
            }
            None => {
                fields.missing("source");
                None
            }
        };
        let mode = fields.parsed("mode", |text| {
            let wrong = || ("unknown_mode", "write once, follow or rehearse".to_owned());
            Mode::from_name(text).ok_or_else(wrong)
        });
        let on_existing = fields.parsed("on_existing", |text| {
            let wrong = || ("unknown_mode", "write skip, replace or merge".to_owned());
            OnExisting::from_name(text).ok_or_else(wrong)
        });
        let tenants = match fields.take("tenants").map(tenants) {
            Some((read, faults)) => {
                fields.faults(faults);
                read?
            }
            None => Tenants::default(),
        };
        let zones = patterns(fields);
        let activate = !fields.has("activate") || fields.flag("activate");
        let follow_seconds = match fields.integer("follow_seconds") {
            None => FOLLOW_DEFAULT_SECONDS,
            Some(seconds) if FOLLOW_SECONDS.contains(&seconds) => u32::try_from(seconds).ok()?,
            Some(_) => {
                let (least, most) = (FOLLOW_SECONDS.start(), FOLLOW_SECONDS.end());
                fields.fault("follow_seconds", "out_of_range", format!("write {least} to {most} seconds"));
                return None;
            }
        };
        Some(Self {
            source: source?,
            mode: mode.unwrap_or(Mode::Once),
            tenants,
            zones,
            activate,
            on_existing: on_existing.unwrap_or(OnExisting::Skip),
            follow_seconds,
        })
    }
}

/// How an import that follows its source ends.
#[derive(Debug, Default, ToSchema)]
pub struct Cutover {
    /// Without the last look at the source, which may be gone.
    #[schema(value_type = Option<bool>)]
    pub without_last_look: bool,
}

impl FromBody for Cutover {
    fn read(fields: &mut Fields) -> Option<Self> {
        Some(Self { without_last_look: fields.flag("without_last_look") })
    }
}

/// Which zones are meant; none: all.
fn patterns(fields: &mut Fields) -> Option<Vec<ZonePattern>> {
    if !fields.has("zones") {
        return None;
    }
    names(fields, "zones", |text| {
        let wrong = || ("invalid_name", "write a name, or *. and a name".to_owned());
        ZonePattern::parse(text).ok_or_else(wrong)
    })
}

/// With which server the answers are compared.
#[derive(Debug, ToSchema)]
pub struct Comparison {
    /// Where the old server answers.
    #[schema(value_type = String, example = "192.0.2.53:53")]
    pub old: SocketAddr,
    /// Only these zones; `*.name`: everything below a name.
    #[schema(value_type = Option<Vec<String>>)]
    pub zones: Option<Vec<ZonePattern>>,
    /// Whether TTLs may differ, as where the old server is a cache.
    #[schema(value_type = Option<bool>)]
    pub ignore_ttl: bool,
}

impl FromBody for Comparison {
    fn read(fields: &mut Fields) -> Option<Self> {
        if !fields.has("old") {
            fields.missing("old");
        }
        let wrong = || ("invalid_address", "an address and port, as 192.0.2.53:53".to_owned());
        let old = fields.parsed("old", |text: &str| text.parse().map_err(|_| wrong()));
        let zones = patterns(fields);
        let ignore_ttl = fields.flag("ignore_ttl");
        Some(Self { old: old?, zones, ignore_ttl })
    }
}

/// An import.
#[derive(Debug, Serialize, ToSchema)]
#[allow(dead_code)] // the documentation of what is read as JSON
pub struct Import {
    /// Its operation's id.
    id: Uuid,
    /// `pending`, `running`, `done`, `following`, `cutting_over`, `cut_over`, `failed` or `cancelled`.
    state: String,
    /// What was asked for.
    #[schema(value_type = Object)]
    request: Value,
    /// Zones of the first pass that are done, and how many there are.
    #[schema(value_type = Object)]
    progress: Value,
    /// How many zones came to what: imported, unchanged, refused, skipped, failed, conflict, missing.
    #[schema(value_type = Object)]
    outcomes: Value,
    /// What the source keeps that belongs to no zone and is not carried, such as TSIG keys.
    #[schema(value_type = Vec<Object>)]
    not_carried: Value,
    /// Why it failed.
    #[schema(value_type = Option<Object>)]
    error: Value,
    /// When it was asked for.
    #[schema(format = DateTime)]
    created_at: String,
    /// When its first pass ended.
    #[schema(format = DateTime)]
    finished_at: Option<String>,
    /// Looks at a source that is followed: `passes`, `looked_at`, `error`, `cutover` (the operation that ends it),
    /// `cut_over_at`.
    #[schema(value_type = Object)]
    follow: Value,
}

/// What would come of an import.
#[derive(Debug, Serialize, ToSchema)]
pub struct ImportPreview {
    /// Whether anything would change.
    pub changed: bool,
    /// Zones of the source that were asked for.
    pub total: usize,
    /// The first of them, each with what would come of it.
    pub diff: Vec<ShownLine>,
    /// What the caller may want to know.
    pub warnings: Vec<String>,
    /// Guards that stand in the way; those of single zones are told with them.
    pub guards: Vec<String>,
    /// Names of the targets concerned: every DNS cluster in service.
    pub targets: Vec<String>,
    /// Null: there is no one resource that it could name.
    pub if_match: Option<String>,
}
