//! What the request path of a cell reads: one line per domain with nothing left to compute. Tenant strings stay JSON
//! strings. Keys are not in it: a line names the file of each, and the compiler hands the keys out beside it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use serde::{Deserialize, Serialize};

use crate::artifact::{Backup, Cache, Certificate, CheckedArtifact, Origin, Scheme};
use crate::canonical::{self, CanonicalError};
use crate::ids::{CertificateId, DomainId, Revision, Version};
use crate::profile::Limits;
use crate::secret::SecretBytes;
use crate::text;

/// One line of `domains.jsonl`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CompiledDomain {
    /// The domain.
    pub id: DomainId,
    /// Its name.
    pub domain: String,
    /// Its revision.
    pub revision: Revision,
    /// What is served, by name.
    pub hosts: BTreeMap<String, CompiledHost>,
    /// How answers are kept.
    pub cache: Cache,
    /// What clients may ask for.
    pub security: Limits,
    /// What the names are proven with.
    pub certs: Vec<CompiledCertificate>,
}

/// Where the content of a name comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CompiledHost {
    /// The server.
    pub origin: CompiledOrigin,
    /// The second one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup: Option<CompiledBackup>,
}

/// A server, as a request needs it. Timeouts and retries are those of the origin, or of the profile where it is
/// stricter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CompiledOrigin {
    /// How it is spoken to.
    pub scheme: Scheme,
    /// Its name or address.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// Host and port, IPv6 in brackets.
    pub authority: String,
    /// What is sent as `Host`.
    pub host_header: String,
    /// What is sent as the name of the server in TLS.
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
pub struct CompiledBackup {
    /// The server.
    pub origin: CompiledOrigin,
    /// This many failures in a row switch to it.
    pub failure_threshold: u32,
    /// This many successes in a row switch back.
    pub recovery_threshold: u32,
    /// The shortest time on it.
    pub hold_down_seconds: u32,
    /// How long the origin must be well before the switch back.
    pub failback_delay_seconds: u32,
}

/// A certificate and where its key is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CompiledCertificate {
    /// The names it proves.
    pub names: Vec<String>,
    /// The leaf, then what signed it.
    pub chain: String,
    /// The file of its key, from the directory of the cell.
    pub key_file: String,
}

/// The opened keys of certificates. Nothing shows or copies them.
#[derive(Default)]
pub struct OpenedKeys(BTreeMap<(CertificateId, Version), SecretBytes>);

impl OpenedKeys {
    /// No keys.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the key of a certificate.
    pub fn insert(&mut self, id: CertificateId, version: Version, key: SecretBytes) {
        self.0.insert((id, version), key);
    }

    /// The key of a certificate.
    pub fn get(&self, id: CertificateId, version: Version) -> Option<&SecretBytes> {
        self.0.get(&(id, version))
    }

    /// The keys that are here.
    pub fn names(&self) -> BTreeSet<(CertificateId, Version)> {
        self.0.keys().copied().collect()
    }
}

/// Why an artifact does not compile. The domain's active state stays.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CompileRefusal {
    /// The key of a certificate is not here.
    #[error("the key of certificate {0} version {1} is missing")]
    KeyMissing(CertificateId, Version),
    /// The key of a certificate is no key.
    #[error("the key of certificate {0} version {1} cannot be read")]
    KeyUnreadable(CertificateId, Version),
    /// The chain of a certificate is none.
    #[error("the chain of certificate {0} version {1} cannot be read")]
    ChainUnreadable(CertificateId, Version),
    /// The key is another certificate's.
    #[error("the key of certificate {0} version {1} does not belong to it")]
    KeyMismatch(CertificateId, Version),
}

impl CompileRefusal {
    /// The stable name of the reason.
    pub fn code(&self) -> &'static str {
        match self {
            Self::KeyMissing(..) => "key_missing",
            Self::KeyUnreadable(..) => "key_unreadable",
            Self::ChainUnreadable(..) => "chain_unreadable",
            Self::KeyMismatch(..) => "key_mismatch",
        }
    }
}

/// The file of a key, from the directory of the cell. It is made of hex digits, hyphens and a number alone.
pub fn key_file(id: CertificateId, version: Version) -> String {
    format!("keys/{id}-{version}.pem")
}

/// Compiles an artifact for the cells that serve it.
///
/// # Errors
/// When a key is missing or is not the certificate's.
pub fn compile(artifact: &CheckedArtifact, keys: &OpenedKeys) -> Result<CompiledDomain, CompileRefusal> {
    let artifact = artifact.artifact();
    let limits = artifact.security.profile.limits();
    let hosts = artifact.hostnames.iter().map(|hostname| {
        let backup = hostname.backup.as_ref().map(|backup| compile_backup(backup, limits));
        let host = CompiledHost { origin: compile_origin(&hostname.origin, limits), backup };
        (hostname.name.clone(), host)
    });
    let certs = artifact.certificates.iter().map(|certificate| compile_certificate(certificate, keys));
    Ok(CompiledDomain {
        id: artifact.id,
        domain: artifact.domain.clone(),
        revision: artifact.revision,
        hosts: hosts.collect(),
        cache: artifact.cache.clone(),
        security: *limits,
        certs: certs.collect::<Result<_, _>>()?,
    })
}

fn compile_origin(origin: &Origin, limits: &Limits) -> CompiledOrigin {
    let millis = |seconds: u32| seconds.saturating_mul(1_000);
    CompiledOrigin {
        scheme: origin.scheme,
        host: origin.host.clone(),
        port: origin.port,
        authority: text::authority(&origin.host, origin.port),
        host_header: origin.host_header.clone(),
        sni: origin.sni.clone(),
        verify_tls: origin.verify_tls,
        connect_timeout_ms: origin.connect_timeout_ms.min(millis(limits.origin_connect_timeout_seconds)),
        response_timeout_ms: origin.response_timeout_ms.min(millis(limits.origin_io_timeout_seconds)),
        retries: origin.retries.min(limits.origin_retries),
        websocket: origin.websocket,
    }
}

fn compile_backup(backup: &Backup, limits: &Limits) -> CompiledBackup {
    CompiledBackup {
        origin: compile_origin(&backup.origin, limits),
        failure_threshold: backup.failure_threshold,
        recovery_threshold: backup.recovery_threshold,
        hold_down_seconds: backup.hold_down_seconds,
        failback_delay_seconds: backup.failback_delay_seconds,
    }
}

fn compile_certificate(
    certificate: &Certificate,
    keys: &OpenedKeys,
) -> Result<CompiledCertificate, CompileRefusal> {
    let (id, version) = (certificate.id, certificate.version);
    let key = keys.get(id, version).ok_or(CompileRefusal::KeyMissing(id, version))?;
    let key = PrivateKeyDer::from_pem_slice(key.expose())
        .ok()
        .and_then(|der| any_supported_type(&der).ok())
        .ok_or(CompileRefusal::KeyUnreadable(id, version))?;
    let chain = CertificateDer::pem_slice_iter(certificate.chain_pem.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|_| CompileRefusal::ChainUnreadable(id, version))?;
    let pair = CertifiedKey::new(chain, Arc::clone(&key));
    match pair.keys_match() {
        Ok(()) => Ok(CompiledCertificate {
            names: certificate.names.clone(),
            chain: certificate.chain_pem.clone(),
            key_file: key_file(id, version),
        }),
        Err(rustls::Error::InconsistentKeys(_)) => Err(CompileRefusal::KeyMismatch(id, version)),
        Err(_) => Err(CompileRefusal::ChainUnreadable(id, version)),
    }
}

/// One line of `delta.jsonl`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeltaLine {
    /// The domain is served as this says.
    Put(Box<CompiledDomain>),
    /// The domain is served no longer.
    Remove(DomainId),
}

impl CompiledDomain {
    /// The line, with its line feed: JSON escapes every other one.
    ///
    /// # Errors
    /// When JSON cannot hold the value.
    pub fn line(&self) -> Result<Vec<u8>, CanonicalError> {
        line(self)
    }

    /// Reads a line without its line feed.
    ///
    /// # Errors
    /// When it is not the canonical form of one.
    pub fn parse(line: &[u8]) -> Result<Self, CanonicalError> {
        canonical::read(line, LINE_MAX_BYTES)
    }
}

impl DeltaLine {
    /// The line, with its line feed.
    ///
    /// # Errors
    /// When JSON cannot hold the value.
    pub fn line(&self) -> Result<Vec<u8>, CanonicalError> {
        line(self)
    }

    /// Reads a line without its line feed.
    ///
    /// # Errors
    /// When it is not the canonical form of one.
    pub fn parse(line: &[u8]) -> Result<Self, CanonicalError> {
        canonical::read(line, LINE_MAX_BYTES)
    }
}

/// The longest line: it says little more than its artifact.
pub const LINE_MAX_BYTES: usize = 2 * crate::artifact::ARTIFACT_CEILING_MAX_BYTES;

fn line<T: Serialize>(value: &T) -> Result<Vec<u8>, CanonicalError> {
    let mut line = canonical::write(value)?;
    line.push(b'\n');
    Ok(line)
}
