//! What the operator says, read once at the start. An unknown key is refused by its name, and every value is parsed into
//! its type here: the configuration of nginx is written from these values and from nothing else.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use headwater_edge_wire::ids::CELLS_PER_EDGE_MAX;
use headwater_edge_wire::token::AuthorityFingerprint;
use serde::Deserialize;

/// Where the settings are looked for when nothing names a file.
pub const PLACES: [&str; 2] = ["headwater-edge.toml", "/etc/headwater/edge.toml"];
/// The most bytes of a settings file.
const SETTINGS_MAX_BYTES: u64 = 1 << 20;
/// The most workers of a cell.
pub const WORKERS_MAX: u16 = 256;

/// Why there are no settings.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// No file.
    #[error("no settings: give --config, set HEADWATER_EDGE_CONFIG, or write {}", PLACES.join(" or "))]
    NotFound,
    /// The file cannot be read.
    #[error(transparent)]
    Disk(#[from] crate::disk::DiskError),
    /// Not TOML, an unknown key, or another type.
    #[error("{path}: {detail}")]
    Form {
        /// The file.
        path: String,
        /// What is wrong.
        detail: String,
    },
    /// A value that cannot be.
    #[error("{key}: {detail}")]
    Value {
        /// Which.
        key: String,
        /// What must be.
        detail: String,
    },
}

/// The settings.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Where everything is kept.
    #[serde(default = "default_state")]
    pub state_dir: PathBuf,
    /// How the control plane is reached.
    #[serde(default)]
    pub control: Control,
    /// How nginx is run.
    #[serde(default)]
    pub nginx: Nginx,
    /// The cells, the first is cell 0.
    pub cells: Vec<Cell>,
    /// Proxies whose `X-Forwarded-For` is believed: addresses or prefixes.
    #[serde(default)]
    pub trusted_proxies: Vec<Prefix>,
    /// What origins may be.
    #[serde(default)]
    pub origins: Origins,
    /// Downloads are refused when less than this would stay free.
    #[serde(default = "default_free")]
    pub min_free_mib: u64,
    /// How often it is looked whether everything on the disk still holds.
    #[serde(default = "default_check")]
    pub check_seconds: u32,
}

/// How the control plane is reached.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Control {
    /// The control listener; without it the one that this edge was enrolled with.
    pub url: Option<String>,
    /// The authority of the control listener, as PEM; without it the one that came with the registration.
    pub ca_file: Option<PathBuf>,
    /// The SHA-256 fingerprint of that authority.
    pub ca_sha256: Option<String>,
}

/// How nginx is run.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nginx {
    /// The program.
    #[serde(default = "default_nginx")]
    pub path: PathBuf,
    /// The user of the workers, where the agent runs as root.
    #[serde(default = "default_user")]
    pub user: String,
    /// The folder of the fixed configuration and Lua.
    #[serde(default = "default_runtime")]
    pub runtime_dir: PathBuf,
    /// What origins' certificates are checked with.
    #[serde(default = "default_trust")]
    pub trusted_certificates: PathBuf,
    /// The size of a cell's cache on the disk.
    #[serde(default = "default_cache")]
    pub cache_mib: u64,
}

impl Default for Nginx {
    fn default() -> Self {
        Self {
            path: default_nginx(),
            user: default_user(),
            runtime_dir: default_runtime(),
            trusted_certificates: default_trust(),
            cache_mib: default_cache(),
        }
    }
}

/// A cell.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cell {
    /// Where it listens in the clear.
    pub http: Vec<SocketAddr>,
    /// Where it listens by TLS.
    pub https: Vec<SocketAddr>,
    /// How many worker processes.
    #[serde(default = "default_workers")]
    pub workers: u16,
}

/// What origins may be.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Origins {
    /// The resolvers that are asked for origins.
    #[serde(default)]
    pub resolvers: Vec<SocketAddr>,
    /// Private prefixes that may hold origins.
    #[serde(default)]
    pub private_prefixes: Vec<Prefix>,
    /// The platform's own addresses: never an origin.
    #[serde(default)]
    pub own_addresses: Vec<IpAddr>,
    /// UNSAFE: loopback addresses may be origins. For demonstrations and tests alone.
    #[serde(default)]
    pub unsafe_allow_loopback: bool,
}

/// An address or a prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Prefix {
    address: IpAddr,
    length: u8,
}

impl TryFrom<String> for Prefix {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let (address, length) = text.split_once('/').map_or((text.as_str(), None), |(a, l)| (a, Some(l)));
        let fault = || format!("`{}` is not an address or a prefix", text.escape_debug());
        let address: IpAddr = address.parse().map_err(|_| fault())?;
        let longest = if address.is_ipv4() { 32 } else { 128 };
        let length = length.map_or(Ok(longest), |length| length.parse().map_err(|_| fault()))?;
        if length > longest { Err(fault()) } else { Ok(Self { address, length }) }
    }
}

impl std::fmt::Display for Prefix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

fn default_state() -> PathBuf {
    "/var/lib/headwater-edge".into()
}
fn default_nginx() -> PathBuf {
    "/usr/sbin/nginx".into()
}
fn default_user() -> String {
    "www-data".into()
}
fn default_runtime() -> PathBuf {
    "/usr/lib/headwater-edge/runtime".into()
}
fn default_trust() -> PathBuf {
    "/etc/ssl/certs/ca-certificates.crt".into()
}
const fn default_cache() -> u64 {
    1_024
}
const fn default_workers() -> u16 {
    2
}
const fn default_free() -> u64 {
    64
}
const fn default_check() -> u32 {
    3_600
}

impl Settings {
    /// Reads the settings from the named file, or from the first place that has one.
    ///
    /// # Errors
    /// When there are none or they are wrong.
    pub fn load(named: Option<&Path>) -> Result<Self, SettingsError> {
        let path = match named {
            Some(path) => path.to_owned(),
            None => {
                PLACES.iter().map(PathBuf::from).find(|path| path.is_file()).ok_or(SettingsError::NotFound)?
            }
        };
        let bytes = crate::disk::read(&path, SETTINGS_MAX_BYTES)?;
        Self::parse(&String::from_utf8_lossy(&bytes), &path.display().to_string())
    }

    /// Reads settings.
    ///
    /// # Errors
    /// When a key is unknown or a value cannot be.
    pub fn parse(text: &str, path: &str) -> Result<Self, SettingsError> {
        let settings: Self = toml::from_str(text)
            .map_err(|error| SettingsError::Form { path: path.to_owned(), detail: error.to_string() })?;
        settings.check()?;
        Ok(settings)
    }

    fn check(&self) -> Result<(), SettingsError> {
        let bad = |key: &str, detail: &str| {
            Err(SettingsError::Value { key: key.to_owned(), detail: detail.to_owned() })
        };
        if self.cells.is_empty() || self.cells.len() > usize::from(CELLS_PER_EDGE_MAX) {
            return bad("cells", &format!("1 to {CELLS_PER_EDGE_MAX} cells"));
        }
        for (at, cell) in self.cells.iter().enumerate() {
            if cell.http.is_empty() || cell.https.is_empty() {
                return bad(&format!("cells[{at}]"), "at least one address for http and one for https");
            }
            if cell.workers == 0 || cell.workers > WORKERS_MAX {
                return bad(&format!("cells[{at}].workers"), &format!("1 to {WORKERS_MAX}"));
            }
        }
        let user = &self.nginx.user;
        let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '_' | '-');
        if user.is_empty() || user.len() > 32 || !user.chars().all(is_name) {
            return bad("nginx.user", "the name of a user");
        }
        for (key, path) in [
            ("nginx.runtime_dir", &self.nginx.runtime_dir),
            ("nginx.trusted_certificates", &self.nginx.trusted_certificates),
            ("state_dir", &self.state_dir),
        ] {
            let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '_' | '-' | '+');
            if !path.to_str().is_some_and(|text| !text.is_empty() && text.chars().all(is_plain)) {
                return bad(key, "a path of letters, digits and / . _ - +");
            }
        }
        if !(64..=1 << 20).contains(&self.nginx.cache_mib) {
            return bad("nginx.cache_mib", "64 to 1048576");
        }
        if !(1..=86_400).contains(&self.check_seconds) {
            return bad("check_seconds", "1 to 86400");
        }
        if self.origins.resolvers.is_empty() {
            return bad("origins.resolvers", "at least one resolver, as in [\"127.0.0.1:53\"]");
        }
        if let Some(text) = &self.control.ca_sha256
            && AuthorityFingerprint::parse(text).is_none()
        {
            return bad("control.ca_sha256", "64 hex digits");
        }
        if self.control.url.as_ref().is_some_and(|url| !url.starts_with("https://")) {
            return bad("control.url", "an address that begins with https://");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
state_dir = "/var/lib/headwater-edge"
[[cells]]
http = ["0.0.0.0:80"]
https = ["0.0.0.0:443"]
[origins]
resolvers = ["127.0.0.1:53"]
"#;

    #[test]
    fn what_is_wrong_is_named() {
        Settings::parse(GOOD, "x").unwrap();
        for (change, with, word) in [
            ("state_dir", "stat_dir", "stat_dir"),
            ("[origins]", "[origins]\nsurprise = 1", "surprise"),
            ("0.0.0.0:80", "localhost", "http"),
            ("resolvers = [\"127.0.0.1:53\"]", "resolvers = []", "origins.resolvers"),
            ("/var/lib/headwater-edge", "/var/lib; evil", "state_dir"),
            ("[origins]", "[nginx]\nuser = \"a; b\"\n[origins]", "nginx.user"),
            ("state_dir", "check_seconds = 0\nstate_dir", "check_seconds"),
            ("[origins]", "[control]\nurl = \"http://x\"\n[origins]", "control.url"),
            ("[origins]", "[origins]\nprivate_prefixes = [\"10.0.0.0/33\"]", "10.0.0.0/33"),
        ] {
            let error = Settings::parse(&GOOD.replace(change, with), "x").unwrap_err().to_string();
            assert!(error.contains(word), "{with}: {error}");
        }
    }
}
