//! The authority that edges and the control listener prove themselves with. A certificate is built from policy: of what
//! an edge asks for, its public key alone is taken over.

use headwater_edge_wire::ids::EdgeId;
use headwater_edge_wire::secret::SecretBytes;
use headwater_events::time::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, SerialNumber,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;
use std::sync::Arc;
use std::time::Duration;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::EdgeError;
use super::csr::EdgePublicKey;

/// Octets of a serial number.
pub const SERIAL_BYTES: usize = 16;
/// How far back a certificate begins, for clocks that are behind.
pub const BACKDATED: Duration = Duration::from_secs(300);
/// The life of the authority: 20 years. Edges pin it at their registration.
const AUTHORITY_LIFE: Duration = Duration::from_secs(20 * 365 * 86_400);
/// The life of the listener's own certificate, which every process makes for itself.
pub const LISTENER_LIFE: Duration = Duration::from_secs(30 * 86_400);
/// The authority's name.
const AUTHORITY_NAME: &str = "Headwater edge identities";
/// The listener's name in its subject; what counts is its list of names.
const LISTENER_NAME: &str = "Headwater edge control";

/// The authority, with its key.
pub struct Authority {
    certificate: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
}

/// An identity that was issued.
pub struct Identity {
    /// Its serial number.
    pub serial: [u8; SERIAL_BYTES],
    /// The certificate, as PEM.
    pub certificate: String,
    /// When it ends.
    pub not_after: Timestamp,
}

impl Authority {
    /// A new authority: its certificate as DER, and its key.
    ///
    /// # Errors
    /// When the library fails.
    pub fn make() -> Result<(Vec<u8>, SecretBytes), EdgeError> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let mut params = authority_params();
        let now = Timestamp::from(chrono::Utc::now());
        set_life(&mut params, now, AUTHORITY_LIFE);
        params.serial_number = Some(SerialNumber::from_slice(&draw_serial()));
        let certificate = params.self_signed(&key)?.der().to_vec();
        Ok((certificate, SecretBytes::new(key.serialize_der())))
    }

    /// The authority of a stored certificate and key.
    ///
    /// # Errors
    /// When the key is none.
    pub fn load(certificate: Vec<u8>, key: &SecretBytes) -> Result<Self, EdgeError> {
        let der = PrivatePkcs8KeyDer::from(key.expose());
        let key = KeyPair::from_pkcs8_der_and_sign_algo(&der, &PKCS_ECDSA_P256_SHA256)?;
        Ok(Self { certificate: certificate.into(), issuer: Issuer::new(authority_params(), key) })
    }

    /// Its certificate.
    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// Its certificate, as PEM.
    pub fn pem(&self) -> String {
        pem(&self.certificate)
    }

    /// An identity for an edge: for this key, for clients alone, in the edge's name, for so long.
    ///
    /// # Errors
    /// When the library fails.
    pub fn issue(
        &self,
        edge: EdgeId,
        key: &EdgePublicKey,
        now: Timestamp,
        life: Duration,
    ) -> Result<Identity, EdgeError> {
        let mut params = leaf(&edge.to_string(), ExtendedKeyUsagePurpose::ClientAuth);
        let not_after = set_life(&mut params, now, life);
        let serial = draw_serial();
        params.serial_number = Some(SerialNumber::from_slice(&serial));
        let certificate = params.signed_by(key, &self.issuer)?;
        Ok(Identity { serial, certificate: pem(certificate.der()), not_after })
    }

    /// What the listener proves itself with, under these names.
    ///
    /// # Errors
    /// When the library fails, or a name cannot stand in a certificate.
    pub fn listener(&self, names: &[String], now: Timestamp) -> Result<Arc<CertifiedKey>, EdgeError> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let mut params = leaf(LISTENER_NAME, ExtendedKeyUsagePurpose::ServerAuth);
        params.subject_alt_names = CertificateParams::new(names)?.subject_alt_names;
        set_life(&mut params, now, LISTENER_LIFE);
        params.serial_number = Some(SerialNumber::from_slice(&draw_serial()));
        let certificate = params.signed_by(&key, &self.issuer)?;
        let der = PrivateKeyDer::Pkcs8(key.serialize_der().into());
        let signing = rustls::crypto::aws_lc_rs::sign::any_supported_type(&der)
            .map_err(|error| EdgeError::Tls(error.to_string()))?;
        let chain = vec![certificate.der().clone(), self.certificate.clone()];
        Ok(Arc::new(CertifiedKey::new(chain, signing)))
    }
}

/// The serial number of a certificate that TLS has verified.
pub fn serial_of(certificate: &CertificateDer<'_>) -> Option<Vec<u8>> {
    let (rest, parsed) = X509Certificate::from_der(certificate).ok()?;
    rest.is_empty().then(|| parsed.raw_serial().to_vec())
}

/// Positive, and never shorter: what stands in the certificate is what is looked up.
fn draw_serial() -> [u8; SERIAL_BYTES] {
    let mut serial: [u8; SERIAL_BYTES] = rand::random();
    if let Some(first) = serial.first_mut() {
        *first = (*first & 0x3f) | 0x40;
    }
    serial
}

fn authority_params() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = named(AUTHORITY_NAME);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

fn leaf(name: &str, purpose: ExtendedKeyUsagePurpose) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = named(name);
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![purpose];
    params.use_authority_key_identifier_extension = true;
    params
}

fn named(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}

/// From a little before now, in whole seconds; says when it ends.
fn set_life(params: &mut CertificateParams, now: Timestamp, life: Duration) -> Timestamp {
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let seconds = u64::try_from(now.as_millis() / 1_000).unwrap_or(0);
    params.not_before = epoch + Duration::from_secs(seconds).saturating_sub(BACKDATED);
    let ends = Duration::from_secs(seconds).saturating_add(life);
    params.not_after = epoch + ends;
    Timestamp::from_millis(i64::try_from(ends.as_millis()).unwrap_or(i64::MAX))
}

fn pem(der: &CertificateDer<'_>) -> String {
    use base64::Engine;
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    let mut pem = String::from("-----BEGIN CERTIFICATE-----\n");
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let (line, more) = rest.split_at(rest.len().min(64));
        pem.push_str(line);
        pem.push('\n');
        rest = more;
    }
    pem.push_str("-----END CERTIFICATE-----\n");
    pem
}
