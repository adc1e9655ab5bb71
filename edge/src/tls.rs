//! How the control listener is believed: by the authorities that came with the registration, or at the first contact by
//! the fingerprint in the bootstrap token. The names and times of its certificate are checked either way.

use std::sync::Arc;

use headwater_edge_wire::token::AuthorityFingerprint;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

/// Whom the agent believes.
#[derive(Debug, Clone)]
pub enum Trust {
    /// These authorities, as PEM.
    Authorities(String),
    /// The authority of this fingerprint, which the listener must show.
    Fingerprint(AuthorityFingerprint),
}

/// Why there is no connection to be had.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The authorities cannot be read.
    #[error("the authorities of the control listener cannot be read: {0}")]
    Authorities(String),
    /// The own certificate cannot be used.
    #[error("the certificate of this edge cannot be used: {0}")]
    Identity(String),
}

/// The certificate and key of this edge, as PEM.
pub struct ClientIdentity<'a> {
    /// The certificate and what signed it.
    pub chain: &'a str,
    /// Its key.
    pub key: &'a [u8],
}

/// What a connection is made with.
///
/// # Errors
/// When something is no certificate or no key.
pub fn client_config(trust: &Trust, identity: Option<ClientIdentity<'_>>) -> Result<ClientConfig, TlsError> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let broken = |error: rustls::Error| TlsError::Authorities(error.to_string());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(broken)?;
    let builder = match trust {
        Trust::Authorities(pem) => builder.with_root_certificates(roots(pem)?),
        Trust::Fingerprint(fingerprint) => {
            let algorithms = provider.signature_verification_algorithms;
            let verifier = ByFingerprint { fingerprint: *fingerprint, algorithms, provider };
            builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier))
        }
    };
    let Some(identity) = identity else { return Ok(builder.with_no_client_auth()) };
    let broken = |error: &dyn std::fmt::Display| TlsError::Identity(error.to_string());
    let chain = CertificateDer::pem_slice_iter(identity.chain.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| broken(&error))?;
    let key = PrivateKeyDer::from_pem_slice(identity.key).map_err(|error| broken(&error))?;
    builder.with_client_auth_cert(chain, key).map_err(|error| broken(&error))
}

fn roots(pem: &str) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        let certificate = certificate.map_err(|error| TlsError::Authorities(error.to_string()))?;
        roots.add(certificate).map_err(|error| TlsError::Authorities(error.to_string()))?;
    }
    if roots.is_empty() { Err(TlsError::Authorities("there are none".into())) } else { Ok(roots) }
}

/// Believes a chain that holds the one authority of a fingerprint, if that authority signed it.
#[derive(Debug)]
struct ByFingerprint {
    fingerprint: AuthorityFingerprint,
    algorithms: WebPkiSupportedAlgorithms,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for ByFingerprint {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let authority = intermediates
            .iter()
            .find(|shown| AuthorityFingerprint::of(shown) == self.fingerprint)
            .ok_or_else(|| {
                rustls::Error::General("the listener does not show the authority of the token".into())
            })?;
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone().into_owned())?;
        let verifier =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&self.provider))
                .build()
                .map_err(|error| rustls::Error::General(error.to_string()))?;
        verifier.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, cert, dss, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
