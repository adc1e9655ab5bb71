//! Private keys: PKCS #8, PKCS #1 or SEC 1, RSA of 2048 to 4096 bits, P-256, P-384 or Ed25519, not encrypted. What is
//! handed on is the same key in its one spelling.

use headwater_edge_wire::secret::SecretBytes;
use headwater_events::reject::Fault;
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs1KeyDer, PrivatePkcs8KeyDer, PrivateSec1KeyDer};
use rustls::sign::SigningKey;
use std::sync::Arc;
use x509_parser::prelude::{FromDer, SubjectPublicKeyInfo};
use x509_parser::public_key::PublicKey;

use super::pem::{self, Block};
use super::{KEY, KEY_MAX_BYTES, bounded};

/// Object identifiers (RFC 5480, RFC 8410).
const P256: &str = "1.2.840.10045.3.1.7";
const P384: &str = "1.3.132.0.34";
const ED25519: &str = "1.3.101.112";
/// Which keys are taken, for people.
pub(super) const TAKEN: &str = "RSA of 2048 to 4096 bits, P-256, P-384 or Ed25519";

/// A private key. It has no `Debug`.
pub(super) struct Key {
    /// As PEM, to be sealed.
    pub(super) pem: SecretBytes,
    /// What signs with it.
    pub(super) signing: Arc<dyn SigningKey>,
    /// What kind it is, if it is one that is taken.
    pub(super) kind: Option<&'static str>,
}

/// Reads the one key of a text.
pub(super) fn read(text: &str, faults: &mut Vec<Fault>) -> Option<Key> {
    if !bounded(text, KEY_MAX_BYTES, KEY, faults) {
        return None;
    }
    let mut fault = |code, detail: &str| {
        faults.push(Fault::at(KEY, code, detail));
        None
    };
    let mut blocks = match pem::blocks(text) {
        Ok(blocks) => blocks,
        Err(error) => return fault("invalid_pem", error.detail()),
    };
    // `openssl ecparam -genkey` writes the curve in front of the key, which says it too.
    blocks.retain(|block| block.label != "EC PARAMETERS");
    if blocks.iter().any(|block| !block.is_key()) {
        let detail = "there is more than a private key in it: certificates belong into certificate_pem, what signed \
                      them into chain_pem";
        return fault("extra_block", detail);
    }
    let block = match blocks.as_slice() {
        [block] => block,
        [] => return fault("invalid_pem", "there is no private key in it"),
        _ => {
            return fault(
                "extra_block",
                "there are several private keys in it: send the one of the certificate",
            );
        }
    };
    if block.is_encrypted {
        let detail = "the private key is encrypted: edges have nobody to ask for its password; `openssl pkey -in FILE` \
                      writes it without";
        return fault("encrypted_key", detail);
    }
    let Some(signing) = signing(block) else {
        return fault(
            "invalid_key",
            &format!("this is no private key that edges can use: they take {TAKEN}"),
        );
    };
    let public = signing.public_key();
    let kind = public.and_then(|spki| {
        let (_, spki) = SubjectPublicKeyInfo::from_der(spki.as_ref()).ok()?;
        kind(&spki)
    });
    if kind.is_none() {
        return fault(
            "unsupported_key",
            &format!("the private key is of a kind that is not taken: use {TAKEN}"),
        );
    }
    let pem = SecretBytes::new(pem::write(&block.label, &block.der));
    Some(Key { pem, signing, kind })
}

fn signing(block: &Block) -> Option<Arc<dyn SigningKey>> {
    let der = block.der.as_slice();
    let der = match block.label.as_str() {
        "PRIVATE KEY" => PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(der)),
        "RSA PRIVATE KEY" => PrivateKeyDer::Pkcs1(PrivatePkcs1KeyDer::from(der)),
        "EC PRIVATE KEY" => PrivateKeyDer::Sec1(PrivateSec1KeyDer::from(der)),
        _ => return None,
    };
    any_supported_type(&der).ok()
}

/// The name of a kind of key that is taken.
pub(super) fn kind(spki: &SubjectPublicKeyInfo<'_>) -> Option<&'static str> {
    match spki.parsed().ok()? {
        PublicKey::RSA(key) => match key.key_size() {
            2048 => Some("rsa-2048"),
            3072 => Some("rsa-3072"),
            4096 => Some("rsa-4096"),
            2049..4096 => Some("rsa"),
            _ => None,
        },
        PublicKey::EC(_) => {
            let curve = spki.algorithm.parameters.as_ref().and_then(|any| any.as_oid().ok())?;
            match curve.to_id_string().as_str() {
                P256 => Some("p-256"),
                P384 => Some("p-384"),
                _ => None,
            }
        }
        _ => (spki.algorithm.algorithm.to_id_string() == ED25519).then_some("ed25519"),
    }
}
