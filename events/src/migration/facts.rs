//! What was asked for: where zones come from, whose they will be, and what becomes of those that are here already. It
//! stands in the log as it is, so it names files of secrets and holds none.

use crate::dns::DomainName;
use crate::ids::{OperationId, TenantId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// The kind of the operation of an [`ImportRequested`]. It is stored: never rename.
pub const IMPORT_KIND: &str = "import";
/// The kind of the operation of an [`ImportCutoverRequested`]. It is stored: never rename.
pub const CUTOVER_KIND: &str = "import.cutover";
/// The kind of the operation of an [`ImportCompareRequested`]. It is stored: never rename.
pub const COMPARE_KIND: &str = "import.compare";
/// Zones of one import, at most.
pub const IMPORT_ZONES_MAX_COUNT: usize = 1_000_000;

/// Where zones come from. Files are those of the machine that carries the import out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ImportSource {
    /// A directory of BIND master files, one for each zone.
    Archive {
        /// The directory.
        path: String,
    },
    /// The database of a PowerDNS with its gpgsql backend.
    PdnsPostgres {
        /// The file that holds its URL.
        database_url_file: String,
    },
    /// The HTTP API of a PowerDNS.
    PdnsApi {
        /// Where it listens, such as `http://192.0.2.1:8081`.
        url: String,
        /// The file that holds its key.
        api_key_file: String,
        /// The id of the server.
        server: String,
    },
    /// Transfers from a primary.
    Axfr {
        /// Its address and port.
        primary: SocketAddr,
        /// Which zones: it has no list of them.
        zones: Vec<DomainName>,
        /// What proves that the transfer is asked for, and that it came from there.
        tsig: Option<TsigReference>,
    },
}

impl ImportSource {
    /// Its name in the API.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Archive { .. } => "archive",
            Self::PdnsPostgres { .. } => "pdns_postgres",
            Self::PdnsApi { .. } => "pdns_api",
            Self::Axfr { .. } => "axfr",
        }
    }

    /// Whether its zones say of every RRset whether it has a comment.
    pub fn has_comments(&self) -> bool {
        matches!(self, Self::PdnsPostgres { .. } | Self::PdnsApi { .. })
    }
}

/// A TSIG key, whose secret stands in a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TsigReference {
    /// Its name.
    pub name: DomainName,
    /// How it signs.
    pub algorithm: TsigAlgorithm,
    /// The file that holds its secret in base64.
    pub secret_file: String,
}

/// How a TSIG key signs (RFC 8945, 6). MD5 is left out on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TsigAlgorithm {
    /// HMAC with SHA-1.
    #[serde(rename = "hmac-sha1")]
    Sha1,
    /// HMAC with SHA-256.
    #[serde(rename = "hmac-sha256")]
    Sha256,
    /// HMAC with SHA-384.
    #[serde(rename = "hmac-sha384")]
    Sha384,
    /// HMAC with SHA-512.
    #[serde(rename = "hmac-sha512")]
    Sha512,
}

impl TsigAlgorithm {
    /// Every one.
    pub const ALL: [Self; 4] = [Self::Sha1, Self::Sha256, Self::Sha384, Self::Sha512];

    /// Its name in the DNS.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sha1 => "hmac-sha1",
            Self::Sha256 => "hmac-sha256",
            Self::Sha384 => "hmac-sha384",
            Self::Sha512 => "hmac-sha512",
        }
    }

    /// The one with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name.to_ascii_lowercase())
    }
}

/// Once, for as long as both run, or to see what would come of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ImportMode {
    /// Every zone once.
    Once,
    /// Every zone, and what changes at the source until the cutover.
    Follow,
    /// Every zone is judged and nothing is changed.
    Rehearse,
}

impl ImportMode {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Once => "once",
            Self::Follow => "follow",
            Self::Rehearse => "rehearse",
        }
    }

    /// The one with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Once, Self::Follow, Self::Rehearse].into_iter().find(|one| one.name() == name)
    }
}

/// What becomes of a zone whose domain is here already and differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnExisting {
    /// The domain stays as it is.
    Skip,
    /// The domain becomes what the source says.
    Replace,
    /// Each RRset of the source takes the place of the one with its name and type.
    Merge,
}

impl OnExisting {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Skip => "skip",
            Self::Replace => "replace",
            Self::Merge => "merge",
        }
    }

    /// The one with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Skip, Self::Replace, Self::Merge].into_iter().find(|one| one.name() == name)
    }
}

/// Whose the domains will be.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tenants {
    /// By the account that the source says the zone has.
    #[serde(default)]
    pub by_account: BTreeMap<String, TenantId>,
    /// Of every other zone; none: such zones are refused, one by one.
    pub default: Option<TenantId>,
}

impl Tenants {
    /// Whose a zone with this account is.
    pub fn of(&self, account: &str) -> Option<TenantId> {
        self.by_account.get(account).copied().or(self.default)
    }
}

/// Which zones are meant: a name, or `*.` and a name for everything below it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ZonePattern(String);

impl ZonePattern {
    /// Reads one.
    pub fn parse(text: &str) -> Option<Self> {
        let (wild, name) = text.strip_prefix("*.").map_or((false, text), |rest| (true, rest));
        let name = DomainName::parse(name).ok()?;
        Some(Self(if wild { format!("*.{name}") } else { name.to_string() }))
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it means this zone.
    pub fn is_of(&self, zone: &DomainName) -> bool {
        match self.0.strip_prefix("*.") {
            None => self.0 == zone.as_str(),
            Some(above) => zone.as_str().strip_suffix(above).is_some_and(|rest| rest.ends_with('.')),
        }
    }
}

/// Zones of another server were asked to be taken in. Stands first in the operation's stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportRequested {
    /// Where they come from.
    pub source: ImportSource,
    /// Once, or for as long as both run.
    pub mode: ImportMode,
    /// Whose they will be.
    pub tenants: Tenants,
    /// Which of them; none: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zones: Option<Vec<ZonePattern>>,
    /// Whether new domains are served at once, without proof of ownership.
    pub activate: bool,
    /// What becomes of domains that are here already.
    pub on_existing: OnExisting,
    /// How often the source is looked at while it is followed.
    pub follow_seconds: u32,
    /// Guards that the caller allowed to be crossed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed: Vec<String>,
    /// What tools of others own may be changed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub take_over: bool,
}

impl ImportRequested {
    /// Whether a zone is among those that were asked for.
    pub fn wants(&self, zone: &DomainName) -> bool {
        self.zones.as_ref().is_none_or(|wanted| wanted.iter().any(|pattern| pattern.is_of(zone)))
    }
}

/// An import that follows its source was asked to end: a last time, then no more. Stands first in the operation's stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportCutoverRequested {
    /// The operation that began it.
    pub import: OperationId,
    /// What it does, as it was asked for then.
    pub requested: ImportRequested,
    /// Whether the source is left alone from now on, without the last look.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub without_last_look: bool,
}

/// The answers of the old server and of ours for the zones of an import were asked to be compared. Stands first in the
/// operation's stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportCompareRequested {
    /// The operation that took the zones in.
    pub import: OperationId,
    /// Where the old server answers.
    pub old: SocketAddr,
    /// Which zones of it; none: all that are here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zones: Option<Vec<ZonePattern>>,
    /// Whether TTLs may differ, as behind a cache, where they run down.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ignore_ttl: bool,
}

impl ImportCompareRequested {
    /// Whether a zone is among those that were asked for.
    pub fn wants(&self, zone: &DomainName) -> bool {
        self.zones.as_ref().is_none_or(|wanted| wanted.iter().any(|pattern| pattern.is_of(zone)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_means_a_name_or_what_is_below_one() {
        let zone = |text: &str| DomainName::parse(text).unwrap();
        for (pattern, name, is_of) in [
            ("Example.COM.", "example.com", true),
            ("example.com", "www.example.com", false),
            ("*.example.com", "example.com", false),
            ("*.example.com", "a.b.example.com", true),
            ("*.example.com", "notexample.com", false),
        ] {
            assert_eq!(ZonePattern::parse(pattern).unwrap().is_of(&zone(name)), is_of, "{pattern} {name}");
        }
        assert!(ZonePattern::parse("*").is_none() && ZonePattern::parse("").is_none());
    }
}
