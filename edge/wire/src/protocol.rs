//! The bodies of the edge control routes. What decides something refuses unknown fields; heartbeats and answers, which
//! grow with every version, ignore them. Every list has a bound, checked by [`Body::parse`] before anybody acts on it.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::check::Fault;
use crate::checksum::Checksum;
use crate::frame::BULK_ARTIFACTS_MAX;
use crate::ids::{AgentVersion, CELLS_PER_EDGE_MAX, CellNumber, DomainId, EdgeId, Epoch, Revision, Sequence};
use crate::manifest::PAGE_DESCRIPTORS_MAX;
use crate::seal::SealingPublicKey;
use crate::secret::SecretBytes;
use crate::sign::{KEY_RING_MAX, KeyId, KeyRing};
use crate::time::Timestamp;

/// The most bytes of a registration.
pub const REGISTER_MAX_BYTES: usize = 32 << 10;
/// The most bytes of a heartbeat.
pub const HEARTBEAT_MAX_BYTES: usize = 256 << 10;
/// The most bytes of any other request.
pub const REQUEST_MAX_BYTES: usize = 512 << 10;
/// The most origins whose health one heartbeat tells.
pub const HEARTBEAT_ORIGINS_MAX: usize = 1_000;
/// The most domains whose security counts one heartbeat tells.
pub const HEARTBEAT_SECURITY_MAX: usize = 200;
/// The most damaged files that one heartbeat names.
pub const HEARTBEAT_DAMAGED_MAX: usize = 20;
/// The longest name of a damaged file.
pub const FILE_MAX_BYTES: usize = 255;
/// The most refusals of one report: a page cannot cause more.
pub const REFUSED_MAX: usize = PAGE_DESCRIPTORS_MAX;
/// The longest text about a refusal or a result.
pub const DETAIL_MAX_BYTES: usize = 1_000;
/// The longest code.
pub const CODE_MAX_BYTES: usize = 64;
/// The longest wait for a change of the manifest.
pub const MANIFEST_WAIT_MAX_SECONDS: u32 = 30;

/// The members of a problem that say, to an edge which holds more, where the changes end: in which epoch, and at which.
pub const AHEAD_EPOCH: &str = "epoch";
/// See [`AHEAD_EPOCH`].
pub const AHEAD_HEAD: &str = "head";

/// Why a body is refused. It never quotes the body, which may hold a token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BodyFault {
    /// More bytes than the route takes.
    #[error("{size} bytes, at most {max}")]
    TooLarge {
        /// How many there are.
        size: usize,
        /// The bound.
        max: usize,
    },
    /// Not JSON, or not of its form.
    #[error("cannot be read at line {line}, column {column}")]
    Malformed {
        /// The line.
        line: usize,
        /// The column.
        column: usize,
    },
    /// A list or text is longer than its bound.
    #[error("{what}: at most {max}")]
    Bound {
        /// Which.
        what: &'static str,
        /// The bound.
        max: usize,
    },
}

/// A body with bounds.
pub trait Body: DeserializeOwned {
    /// The most bytes.
    const MAX_BYTES: usize = REQUEST_MAX_BYTES;

    /// Checks the bounds of its lists and texts.
    ///
    /// # Errors
    /// The first that is crossed.
    fn bounds(&self) -> Result<(), BodyFault>;

    /// Reads a body.
    ///
    /// # Errors
    /// When it is too large, not of its form, or crosses a bound.
    fn parse(bytes: &[u8]) -> Result<Self, BodyFault> {
        let body: Self = read(bytes, Self::MAX_BYTES)?;
        body.bounds()?;
        Ok(body)
    }
}

fn read<T: DeserializeOwned>(bytes: &[u8], max: usize) -> Result<T, BodyFault> {
    if bytes.len() > max {
        return Err(BodyFault::TooLarge { size: bytes.len(), max });
    }
    serde_json::from_slice(bytes)
        .map_err(|error| BodyFault::Malformed { line: error.line(), column: error.column() })
}

pub(crate) fn at_most(what: &'static str, length: usize, max: usize) -> Result<(), BodyFault> {
    if length <= max { Ok(()) } else { Err(BodyFault::Bound { what, max }) }
}

/// Who an agent is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentInfo {
    /// The version of the program, for people.
    pub version: String,
    /// What it speaks.
    pub protocol: AgentVersion,
}

/// `POST /register`. It holds a token, so it has neither `Debug` nor a derived form: see [`RegisterRequest::to_json`].
pub struct RegisterRequest {
    /// The edge.
    pub edge: EdgeId,
    /// The one-time token; a renewal has none, the identity of its connection speaks for it.
    pub token: Option<SecretBytes>,
    /// The agent.
    pub agent: AgentInfo,
    /// The request for a certificate, as PEM, whose common name is the edge.
    pub csr: String,
    /// What the content key is sealed to.
    pub sealing_key: SealingPublicKey,
}

#[derive(Serialize)]
struct RegisterOut<'a> {
    edge: EdgeId,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<&'a str>,
    agent: &'a AgentInfo,
    csr: &'a str,
    sealing_key: SealingPublicKey,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RegisterIn {
    edge: EdgeId,
    #[serde(default)]
    token: Option<String>,
    agent: AgentInfo,
    csr: String,
    sealing_key: SealingPublicKey,
}

impl RegisterRequest {
    /// The body, which holds the token.
    ///
    /// # Errors
    /// When the token is not text.
    pub fn to_json(&self) -> Result<SecretBytes, BodyFault> {
        let unreadable = BodyFault::Malformed { line: 0, column: 0 };
        let token = match &self.token {
            Some(token) => Some(token.expose_str().ok_or_else(|| unreadable.clone())?),
            None => None,
        };
        let out = RegisterOut {
            edge: self.edge,
            token,
            agent: &self.agent,
            csr: &self.csr,
            sealing_key: self.sealing_key,
        };
        // Room for the whole body at once: growing would leave pieces of the token behind.
        let mut bytes = Zeroizing::new(Vec::with_capacity(REGISTER_MAX_BYTES));
        serde_json::to_writer(&mut *bytes, &out).map_err(|_| unreadable)?;
        at_most("a registration", bytes.len(), REGISTER_MAX_BYTES)?;
        Ok(SecretBytes::new(std::mem::take(&mut *bytes)))
    }

    /// Reads a body.
    ///
    /// # Errors
    /// When it is too large or not of its form.
    pub fn parse(bytes: &[u8]) -> Result<Self, BodyFault> {
        let RegisterIn { edge, token, agent, csr, sealing_key } = read(bytes, REGISTER_MAX_BYTES)?;
        let token = token.map(|token| SecretBytes::new(token.into_bytes()));
        Ok(Self { edge, token, agent, csr, sealing_key })
    }
}

/// The answer to `POST /register`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegisterAnswer {
    /// The edge.
    pub edge: EdgeId,
    /// Its identity and what signed it, as PEM.
    pub certificate: String,
    /// When the identity ends.
    pub not_after: Timestamp,
    /// What the control plane proves itself with, as PEM.
    pub authorities: String,
    /// The keys to pin where none are pinned yet.
    pub keys: KeyRing,
    /// How many cells the edge has.
    pub cells: u8,
    /// How often to send a heartbeat.
    pub heartbeat_seconds: u32,
}

/// `POST /heartbeat`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heartbeat {
    /// Rises by one with each; a lower one than before means a clone or a new start.
    pub sequence: Sequence,
    /// The agent.
    pub agent: AgentInfo,
    /// What its clock says, to tell a wrong one.
    pub at: Timestamp,
    /// Its cells.
    #[serde(default)]
    pub cells: Vec<CellReport>,
    /// The health of origins, the newest findings.
    #[serde(default)]
    pub origins: Vec<OriginReport>,
    /// What was held back, for the domains with the most.
    #[serde(default)]
    pub security: Vec<SecurityReport>,
    /// The newest change that the edge has taken, which it never goes back from; nothing before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holds: Option<Holds>,
    /// The keys that it pins: what is signed by another one, it refuses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<KeyId>,
    /// What on its disk does not hold, the oldest first; the good copies are fetched or written again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub damaged: Vec<DamageReport>,
    /// How many files there are of those, the ones that are not named included.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub damaged_count: u32,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde asks for it
fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// How far an edge has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holds {
    /// The epoch.
    pub epoch: Epoch,
    /// The last change in it.
    pub sequence: Sequence,
}

/// A file of an edge that does not hold. What it serves was read before and proven.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DamageReport {
    /// The file, in the state directory.
    pub file: String,
    /// Whose it is, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// Of which revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<Revision>,
    /// When it was found.
    pub since: Timestamp,
    /// Whether it is whole again: told once, so that no damage goes untold.
    #[serde(default)]
    pub mended: bool,
}

impl DamageReport {
    /// A report within the bounds of a heartbeat: what is too long is cut.
    pub fn new(file: &str, domain: Option<(&str, Revision)>, since: Timestamp, mended: bool) -> Self {
        let (domain, revision) = domain.unzip();
        let domain = domain.map(|name| cut(name, crate::text::NAME_MAX_BYTES).to_owned());
        Self { file: cut(file, FILE_MAX_BYTES).to_owned(), domain, revision, since, mended }
    }
}

/// How a cell is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CellReport {
    /// The cell.
    pub cell: CellNumber,
    /// Whether its HTTP listener answers.
    pub http_ready: bool,
    /// Whether its HTTPS listener answers.
    pub https_ready: bool,
    /// The epoch of what every worker serves.
    pub epoch: Epoch,
    /// The last change that every worker serves.
    pub sequence: Sequence,
    /// The last change that is written for it; its workers may not serve it yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loaded: Option<Sequence>,
    /// How many domains it holds.
    #[serde(default)]
    pub domains: u32,
    /// Connections that are open.
    #[serde(default)]
    pub connections: u32,
    /// Connections that it can hold.
    #[serde(default)]
    pub connections_max: u32,
    /// What is wrong, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// How an origin is, seen from an edge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OriginReport {
    /// The domain.
    pub domain: DomainId,
    /// The hostname.
    pub hostname: String,
    /// Whether its origin answers.
    pub healthy: bool,
    /// Whether the backup is in use.
    #[serde(default)]
    pub on_backup: bool,
    /// Since when.
    pub since: Timestamp,
    /// Why not, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// What an edge held back for a domain since its last heartbeat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecurityReport {
    /// The domain.
    pub domain: DomainId,
    /// All requests.
    pub requests: u64,
    /// Those over a limit.
    #[serde(default)]
    pub limited: u64,
    /// Those that a rule blocked.
    #[serde(default)]
    pub blocked: u64,
}

impl Body for Heartbeat {
    const MAX_BYTES: usize = HEARTBEAT_MAX_BYTES;

    fn bounds(&self) -> Result<(), BodyFault> {
        at_most("cells", self.cells.len(), usize::from(CELLS_PER_EDGE_MAX))?;
        at_most("origins", self.origins.len(), HEARTBEAT_ORIGINS_MAX)?;
        at_most("security", self.security.len(), HEARTBEAT_SECURITY_MAX)?;
        at_most("keys", self.keys.len(), KEY_RING_MAX)?;
        at_most("damaged", self.damaged.len(), HEARTBEAT_DAMAGED_MAX)?;
        self.damaged.iter().try_for_each(|damage| {
            at_most("file", damage.file.len(), FILE_MAX_BYTES)?;
            at_most("domain", damage.domain.as_ref().map_or(0, String::len), crate::text::NAME_MAX_BYTES)
        })?;
        at_most("agent.version", self.agent.version.len(), CODE_MAX_BYTES)?;
        let details = self.cells.iter().map(|cell| &cell.detail);
        let details = details.chain(self.origins.iter().map(|origin| &origin.detail));
        details.flatten().try_for_each(|detail| at_most("detail", detail.len(), DETAIL_MAX_BYTES))
    }
}

/// The answer to `POST /heartbeat`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeartbeatAnswer {
    /// The sequence that was taken.
    pub sequence: Sequence,
    /// What the clock of the control plane says.
    pub at: Timestamp,
    /// How often to send a heartbeat.
    pub heartbeat_seconds: u32,
    /// Whether there are tasks.
    #[serde(default)]
    pub has_tasks: bool,
}

/// The query of `GET /manifest`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ManifestQuery {
    /// The last change that the edge has.
    pub after: Sequence,
    /// The epoch of that change; another one is answered from its beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<Epoch>,
    /// How many seconds to wait for a change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<u32>,
}

impl ManifestQuery {
    /// How long the answer may be held back, within the bound.
    pub fn wait_seconds(self) -> u32 {
        self.wait.unwrap_or(0).min(MANIFEST_WAIT_MAX_SECONDS)
    }
}

/// `POST /artifacts`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArtifactsRequest {
    /// What is wanted.
    pub checksums: Vec<Checksum>,
}

impl Body for ArtifactsRequest {
    fn bounds(&self) -> Result<(), BodyFault> {
        at_most("checksums", self.checksums.len(), BULK_ARTIFACTS_MAX)
    }
}

/// `POST /applied`: every worker of the cell serves all changes up to this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Applied {
    /// The cell.
    pub cell: CellNumber,
    /// The epoch.
    pub epoch: Epoch,
    /// The last change.
    pub sequence: Sequence,
}

impl Body for Applied {
    fn bounds(&self) -> Result<(), BodyFault> {
        Ok(())
    }
}

/// `POST /rejected`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rejected {
    /// What was refused.
    pub refused: Vec<Refused>,
}

/// A revision that an edge refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Refused {
    /// The domain's name.
    pub domain: String,
    /// The revision.
    pub revision: Revision,
    /// The stable name of the reason.
    pub code: String,
    /// What was wrong, for people.
    pub detail: String,
}

impl Refused {
    /// A refusal within the bounds of a report: what is too long is cut.
    pub fn new(domain: &str, revision: Revision, code: &str, detail: &str) -> Self {
        let detail = cut(detail, DETAIL_MAX_BYTES).to_owned();
        Self { domain: domain.to_owned(), revision, code: cut(code, CODE_MAX_BYTES).to_owned(), detail }
    }

    /// What faults have to say, in one line within the bound.
    pub fn detail_of(faults: &[Fault]) -> String {
        let lines = faults.iter().map(|fault| format!("{}: {}", fault.pointer, fault.detail));
        cut(&lines.take(20).collect::<Vec<_>>().join("; "), DETAIL_MAX_BYTES).to_owned()
    }
}

/// The longest beginning of a text that is at most this long and ends between two characters.
pub(crate) fn cut(text: &str, max_bytes: usize) -> &str {
    text.get(..text.floor_char_boundary(max_bytes)).unwrap_or_default()
}

impl Body for Rejected {
    fn bounds(&self) -> Result<(), BodyFault> {
        at_most("refused", self.refused.len(), REFUSED_MAX)?;
        self.refused.iter().try_for_each(|refused| {
            at_most("domain", refused.domain.len(), crate::text::NAME_MAX_BYTES)?;
            at_most("code", refused.code.len(), CODE_MAX_BYTES)?;
            at_most("detail", refused.detail.len(), DETAIL_MAX_BYTES)
        })
    }
}
