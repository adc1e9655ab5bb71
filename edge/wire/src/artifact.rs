//! The artifact: everything an edge must know of one domain at one revision, the same for every edge. Its bytes are
//! canonical, its checksum is its name, and it never holds a key.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::canonical::{self, CanonicalError};
use crate::check::{self, Fault};
use crate::checksum::Checksum;
use crate::ids::{AgentRange, CertificateId, DomainId, Revision, Version};

/// The schema that this program writes and reads.
pub const ARTIFACT_SCHEMA: u32 = 1;
/// The size budget of an artifact where no setting says otherwise.
pub const ARTIFACT_DEFAULT_MAX_BYTES: usize = 2 << 20;
/// The lowest size budget.
pub const ARTIFACT_FLOOR_MAX_BYTES: usize = 64 << 10;
/// The highest size budget; nobody reads more.
pub const ARTIFACT_CEILING_MAX_BYTES: usize = 16 << 20;

/// How large an artifact may be, inside the range that readers accept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArtifactBudget(usize);

impl ArtifactBudget {
    /// A budget; nothing when it lies outside the range.
    pub fn new(bytes: usize) -> Option<Self> {
        (ARTIFACT_FLOOR_MAX_BYTES..=ARTIFACT_CEILING_MAX_BYTES).contains(&bytes).then_some(Self(bytes))
    }

    /// The bare number of bytes.
    pub const fn bytes(self) -> usize {
        self.0
    }
}

impl Default for ArtifactBudget {
    fn default() -> Self {
        Self(ARTIFACT_DEFAULT_MAX_BYTES)
    }
}

/// One domain at one revision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Artifact {
    /// [`ARTIFACT_SCHEMA`].
    pub schema: u32,
    /// The agents that can read it.
    pub agent: AgentRange,
    /// The domain's name.
    pub domain: String,
    /// The domain.
    pub id: DomainId,
    /// The domain's revision.
    pub revision: Revision,
    /// What is served, by name, ascending and unique.
    pub hostnames: Vec<Hostname>,
    /// How answers are kept.
    pub cache: Cache,
    /// What clients may ask for.
    pub security: Security,
    /// What the names are proven with, without keys; ascending by id and unique.
    pub certificates: Vec<Certificate>,
}

/// A proxied name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hostname {
    /// Absolute, lower case, A-labels; the leftmost label may be `*`.
    pub name: String,
    /// Where its content comes from.
    pub origin: Origin,
    /// Where it comes from while the origin is down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup: Option<Backup>,
    /// How the origin is watched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<Health>,
}

/// How an origin is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scheme {
    /// In the clear.
    Http,
    /// By TLS.
    Https,
}

/// A server that has the content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Origin {
    /// How it is spoken to.
    pub scheme: Scheme,
    /// Its name or address.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// What is sent as `Host`.
    pub host_header: String,
    /// What is sent as the name of the server in TLS, and what its certificate is checked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sni: Option<String>,
    /// Whether its certificate is checked.
    pub verify_tls: bool,
    /// How long a connection may take to open.
    pub connect_timeout_ms: u32,
    /// How long it may be silent.
    pub response_timeout_ms: u32,
    /// How often an idempotent request is tried again.
    pub retries: u8,
    /// Whether connections may be upgraded.
    pub websocket: bool,
}

/// The second server and when it is used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Backup {
    /// The server.
    pub origin: Origin,
    /// This many failures in a row switch to it.
    pub failure_threshold: u32,
    /// This many successes in a row switch back.
    pub recovery_threshold: u32,
    /// The shortest time on it.
    pub hold_down_seconds: u32,
    /// How long the origin must be well before the switch back.
    pub failback_delay_seconds: u32,
}

/// How an origin is watched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Health {
    /// What is asked for.
    pub path: String,
    /// How often.
    pub interval_seconds: u32,
}

/// How answers are kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cache {
    /// Whether anything is kept.
    pub enabled: bool,
    /// How long on an edge, where the origin does not say or is not asked.
    pub edge_ttl_seconds: u32,
    /// How long in a browser.
    pub browser_ttl_seconds: u32,
    /// Whether the origin's `Cache-Control` comes first.
    pub respect_origin_headers: bool,
    /// The largest answer that is kept.
    pub maximum_object_bytes: u64,
    /// How long a stale answer stands in for an error.
    pub stale_if_error_seconds: u32,
    /// How long a stale answer is given while a fresh one is fetched.
    pub stale_while_revalidate_seconds: u32,
    /// Part of every key of the cache: raising it purges everything.
    pub epoch: u64,
}

/// A set of limits, by name; the numbers are in [`crate::profile`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Profile {
    /// What everybody gets.
    Standard,
    /// Stricter.
    Protected,
    /// The strictest; traffic is still served.
    Quarantine,
}

/// What clients may ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Security {
    /// The set of limits.
    pub profile: Profile,
}

/// A certificate without its key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Certificate {
    /// The certificate.
    pub id: CertificateId,
    /// Its version: a renewal is a new one.
    pub version: Version,
    /// The names it proves, ascending and unique.
    pub names: Vec<String>,
    /// The leaf, then what signed it.
    pub chain_pem: String,
}

impl Artifact {
    /// The canonical bytes, whatever the value: [`CheckedArtifact::bytes`] is what may be published.
    ///
    /// # Errors
    /// When JSON cannot hold the value.
    pub fn bytes(&self) -> Result<Vec<u8>, CanonicalError> {
        canonical::write(self)
    }

    /// Reads canonical bytes. The domain's own rules are not checked yet, see [`Artifact::checked`].
    ///
    /// # Errors
    /// When there are more bytes than the budget, the schema is another, or the bytes are not canonical.
    pub fn parse(bytes: &[u8], budget: ArtifactBudget) -> Result<Self, CanonicalError> {
        canonical::read_schema(bytes, u64::from(ARTIFACT_SCHEMA), budget.bytes())
    }

    /// Every fault against the domain's own rules.
    pub fn check(&self) -> Vec<Fault> {
        check::artifact(self)
    }

    /// The same artifact as one whose rules hold.
    ///
    /// # Errors
    /// Every fault, each with a pointer to its place.
    pub fn checked(self) -> Result<CheckedArtifact, Vec<Fault>> {
        let faults = self.check();
        if faults.is_empty() { Ok(CheckedArtifact(self)) } else { Err(faults) }
    }
}

/// An artifact whose rules hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckedArtifact(Artifact);

impl CheckedArtifact {
    /// What it holds.
    pub fn artifact(&self) -> &Artifact {
        &self.0
    }

    /// The canonical bytes with their checksum.
    ///
    /// # Errors
    /// When they are more than the budget: the producer must refuse what readers would.
    pub fn bytes(&self, budget: ArtifactBudget) -> Result<(Vec<u8>, Checksum), CanonicalError> {
        let bytes = self.0.bytes()?;
        if bytes.len() > budget.bytes() {
            return Err(CanonicalError::TooLarge { size: bytes.len(), max: budget.bytes() });
        }
        let checksum = Checksum::of(&bytes);
        Ok((bytes, checksum))
    }

    /// The certificates whose keys an edge needs.
    pub fn key_names(&self) -> BTreeSet<(CertificateId, Version)> {
        self.0.certificates.iter().map(|certificate| (certificate.id, certificate.version)).collect()
    }
}
