//! Bodies of what the names of a domain are proven with. A private key comes in and never goes out.

use headwater_events::domain::{CertificateBody, CertificateSource};
use headwater_events::time::Timestamp;
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;
use zeroize::Zeroizing;

use super::rrset::ChangedBody;
use crate::certificate::Sent;
use crate::http::body::{Fields, FromBody};
use crate::query::sites::ShownCertificate;

/// Octets of a body with a certificate, at most: leaf, chain and key, with room for how JSON writes line ends.
pub const CERTIFICATE_MAX_BYTES: usize = 192 << 10;

/// A certificate to bring.
#[derive(ToSchema)]
#[allow(dead_code)] // the documentation of what `SentCertificate` reads
pub struct PutCertificate {
    /// The leaf as PEM, 16 KiB at most.
    #[schema(example = "-----BEGIN CERTIFICATE-----\n…\n-----END CERTIFICATE-----\n")]
    certificate_pem: String,
    /// What signed it as PEM, from its issuer upwards, 64 KiB at most; a root is not needed and not kept.
    chain_pem: Option<String>,
    /// Its key as PEM, not encrypted, 16 KiB at most: RSA of 2048 to 4096 bits, P-256, P-384 or Ed25519. It is never shown
    /// again.
    #[schema(write_only, example = "-----BEGIN PRIVATE KEY-----\n…\n-----END PRIVATE KEY-----\n")]
    private_key_pem: String,
}

/// A certificate as it was sent, with what is wrong already; it is told with what is wrong with the rest. It has no
/// `Debug`.
pub struct SentCertificate(pub Sent);

impl FromBody for SentCertificate {
    const MAX_BYTES: usize = CERTIFICATE_MAX_BYTES;

    fn read(fields: &mut Fields) -> Option<Self> {
        let certificate = fields.required_text("certificate_pem");
        let chain = fields.text("chain_pem");
        let key = fields.required_text("private_key_pem").map(Zeroizing::new);
        Some(Self(Sent { certificate, chain, key, faults: fields.drain() }))
    }
}

/// What the names of a domain are proven with.
#[derive(Debug, Serialize, ToSchema)]
pub struct TlsBody {
    /// What is shown to clients; null: TLS is refused.
    certificate: Option<CertificateShown>,
}

/// A certificate.
#[derive(Debug, Serialize, ToSchema)]
pub struct CertificateShown {
    /// Which.
    id: Uuid,
    /// Counts up with each one that takes its place.
    version: u32,
    /// `custom`: the domain's owner brought it.
    source: CertificateSourceShown,
    /// The names it is for; those that no proxied name needs are not used.
    names: Vec<String>,
    /// Who issued it.
    issuer: String,
    /// Its serial number, in hex.
    serial: String,
    /// SHA-256 of the leaf, in hex.
    fingerprint: String,
    /// `rsa-2048`, `rsa-3072`, `rsa-4096`, `rsa`, `p-256`, `p-384` or `ed25519`.
    key: String,
    /// From when on it holds.
    #[schema(value_type = String, format = DateTime)]
    not_before: Timestamp,
    /// Until when.
    #[schema(value_type = String, format = DateTime)]
    not_after: Timestamp,
    /// PEM: the leaf, then what signed it.
    chain_pem: String,
    /// What last changed it.
    changed: ChangedBody,
}

/// Where a certificate comes from.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CertificateSourceShown {
    /// The domain's owner brought it.
    Custom,
}

impl From<Option<ShownCertificate>> for TlsBody {
    fn from(shown: Option<ShownCertificate>) -> Self {
        Self { certificate: shown.map(CertificateShown::from) }
    }
}

impl From<ShownCertificate> for CertificateShown {
    fn from(shown: ShownCertificate) -> Self {
        let CertificateBody {
            id,
            version,
            source,
            names,
            issuer,
            serial,
            fingerprint,
            key,
            not_before,
            not_after,
            chain,
        } = shown.body;
        let source = match source {
            CertificateSource::Custom => CertificateSourceShown::Custom,
        };
        Self {
            id: id.as_uuid(),
            version,
            source,
            names,
            issuer,
            serial,
            fingerprint,
            key,
            not_before,
            not_after,
            chain_pem: chain,
            changed: shown.changed.into(),
        }
    }
}
