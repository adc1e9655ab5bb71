//! What an edge asks for a certificate with. Its public key is taken, after it has proven to hold the private one; its
//! name must be the edge's; whatever else it asks for is not looked at.

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1, ED25519, UnparsedPublicKey, VerificationAlgorithm};
use headwater_edge_wire::ids::EdgeId;
use rcgen::{PKCS_ECDSA_P256_SHA256, PKCS_ED25519, PublicKeyData, SignatureAlgorithm};
use rustls::pki_types::CertificateSigningRequestDer;
use rustls::pki_types::pem::PemObject;
use x509_parser::prelude::{FromDer, X509CertificationRequest, X509Name};
use x509_parser::x509::AlgorithmIdentifier;

/// Object identifiers (RFC 5480, RFC 5758, RFC 8410).
const EC_PUBLIC_KEY: &str = "1.2.840.10045.2.1";
const P256: &str = "1.2.840.10045.3.1.7";
const ECDSA_WITH_SHA256: &str = "1.2.840.10045.4.3.2";
const ED25519_OID: &str = "1.3.101.112";

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CsrFault {
    /// Not a request.
    #[error("the certificate request is not PEM with one PKCS #10 request")]
    Form,
    /// In another name.
    #[error("the common name of the certificate request must be the UUID of the edge, and nothing else")]
    Name,
    /// A key of another kind.
    #[error("the key of the certificate request must be P-256 (ECDSA with SHA-256) or Ed25519")]
    Key,
    /// It was not signed by the key that it names.
    #[error("the certificate request is not signed by its own key")]
    Proof,
}

impl CsrFault {
    /// The stable code.
    pub fn code(self) -> &'static str {
        match self {
            Self::Form => "csr_malformed",
            Self::Name => "csr_name",
            Self::Key => "csr_key",
            Self::Proof => "csr_proof",
        }
    }
}

/// A public key whose holder has proven to have the private one.
pub struct EdgePublicKey {
    algorithm: &'static SignatureAlgorithm,
    key: Vec<u8>,
    digest: [u8; 32],
}

impl EdgePublicKey {
    /// SHA-256 over the SubjectPublicKeyInfo.
    pub fn digest(&self) -> &[u8; 32] {
        &self.digest
    }
}

impl PublicKeyData for EdgePublicKey {
    fn der_bytes(&self) -> &[u8] {
        &self.key
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        self.algorithm
    }
}

/// Reads a request of an edge.
///
/// # Errors
/// Why it is refused.
pub fn read(pem: &str, edge: EdgeId) -> Result<EdgePublicKey, CsrFault> {
    let der = CertificateSigningRequestDer::from_pem_slice(pem.as_bytes()).map_err(|_| CsrFault::Form)?;
    let (rest, request) = X509CertificationRequest::from_der(&der).map_err(|_| CsrFault::Form)?;
    if !rest.is_empty() {
        return Err(CsrFault::Form);
    }
    let info = &request.certification_request_info;
    if !is_named(&info.subject, edge) {
        return Err(CsrFault::Name);
    }
    let spki = &info.subject_pki;
    let key = spki.subject_public_key.data.as_ref();
    let (algorithm, verifies) =
        kind(&spki.algorithm, &request.signature_algorithm, key).ok_or(CsrFault::Key)?;
    UnparsedPublicKey::new(verifies, key)
        .verify(info.raw, &request.signature_value.data)
        .map_err(|_| CsrFault::Proof)?;
    let mut hashed = [0; 32];
    hashed.copy_from_slice(digest(&SHA256, spki.raw).as_ref());
    Ok(EdgePublicKey { algorithm, key: key.to_vec(), digest: hashed })
}

fn is_named(subject: &X509Name<'_>, edge: EdgeId) -> bool {
    let mut attributes = subject.iter_attributes();
    let mut names = subject.iter_common_name();
    let (Some(name), None, Some(_), None) =
        (names.next(), names.next(), attributes.next(), attributes.next())
    else {
        return false;
    };
    name.as_str().is_ok_and(|name| name == edge.to_string())
}

type Kind = (&'static SignatureAlgorithm, &'static dyn VerificationAlgorithm);

/// The algorithms that an identity may have; the point of a P-256 key is checked where it is used.
fn kind(key: &AlgorithmIdentifier<'_>, signed: &AlgorithmIdentifier<'_>, bytes: &[u8]) -> Option<Kind> {
    let curve = key.parameters.as_ref().and_then(|any| any.as_oid().ok()).map(|oid| oid.to_id_string());
    let (of_key, of_signature) = (key.algorithm.to_id_string(), signed.algorithm.to_id_string());
    match (of_key.as_str(), of_signature.as_str()) {
        (EC_PUBLIC_KEY, ECDSA_WITH_SHA256)
            if curve.as_deref() == Some(P256) && bytes.len() == 65 && bytes.first() == Some(&4) =>
        {
            Some((&PKCS_ECDSA_P256_SHA256, &ECDSA_P256_SHA256_ASN1))
        }
        (ED25519_OID, ED25519_OID) if key.parameters.is_none() && bytes.len() == 32 => {
            Some((&PKCS_ED25519, &ED25519))
        }
        _ => None,
    }
}
