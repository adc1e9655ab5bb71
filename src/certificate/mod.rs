//! Certificates that owners of domains bring: whether what was sent is one that every edge will show and every client
//! can follow, with the key that belongs to it.
//!
//! What must hold: whatever passes here compiles on every edge; every fault is told at once, with where it stands and
//! what to do; no word of a fault holds anything of a private key; the key leaves here wiped or sealed, never as text.

mod chain;
mod key;
mod pem;

use headwater_edge_wire::secret::SecretBytes;
use headwater_events::domain::{CertificateBody, CertificateSource};
use headwater_events::ids::CertificateId;
use headwater_events::reject::Fault;
use headwater_events::time::Timestamp;
use rustls::sign::CertifiedKey;
use zeroize::Zeroizing;

/// Octets of a leaf, as PEM, at most.
pub const LEAF_MAX_BYTES: usize = 16 << 10;
/// Octets of a private key, as PEM, at most.
pub const KEY_MAX_BYTES: usize = 16 << 10;
/// Octets of a chain, as PEM, at most.
pub const CHAIN_MAX_BYTES: usize = 64 << 10;
/// Certificates of a chain, at most.
pub const CHAIN_MAX_CERTIFICATES: usize = 10;
/// Names of a certificate inside its domain, at most: what an artifact may hold.
pub const NAMES_MAX_COUNT: usize = headwater_edge_wire::check::CERTIFICATE_NAMES_MAX;
/// What private keys are sealed as. It is stored: never rename.
pub const KEY_KIND: &str = "certificate_key";

/// Where each part stands in the body.
const LEAF: &str = "/certificate_pem";
const CHAIN: &str = "/chain_pem";
const KEY: &str = "/private_key_pem";

/// A certificate as it was sent, as far as it could be read. It has no `Debug`: one of the texts is a private key.
#[derive(Default)]
pub struct Sent {
    /// The leaf.
    pub certificate: Option<String>,
    /// What signed it, nearest first.
    pub chain: Option<String>,
    /// Its key.
    pub key: Option<Zeroizing<String>>,
    /// What is wrong already.
    pub faults: Vec<Fault>,
}

/// A certificate that may be shown, with its key. It has no `Debug`.
pub struct Checked {
    leaf: chain::Leaf,
    chain: String,
    key: SecretBytes,
    warnings: Vec<String>,
}

/// What is wrong with a certificate, and the names that it is for as far as they could be read.
pub struct Refused {
    /// Every fault.
    pub faults: Vec<Fault>,
    /// Its names; none where there is nothing that could be read.
    pub names: Option<Vec<String>>,
}

impl Checked {
    /// What everybody may know of it, under an id and a version.
    pub fn body(&self, id: CertificateId, version: u32) -> CertificateBody {
        let leaf = &self.leaf;
        CertificateBody {
            id,
            version,
            source: CertificateSource::Custom,
            names: leaf.names.clone(),
            issuer: leaf.issuer.clone(),
            serial: leaf.serial.clone(),
            fingerprint: leaf.fingerprint.clone(),
            key: leaf.key.to_owned(),
            not_before: leaf.not_before,
            not_after: leaf.not_after,
            chain: self.chain.clone(),
        }
    }

    /// The names it proves.
    pub fn names(&self) -> &[String] {
        &self.leaf.names
    }

    /// Its key, as PEM. To be sealed, and nothing else.
    pub fn key(&self) -> &SecretBytes {
        &self.key
    }

    /// What its owner may want to know.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }
}

/// Whether what was sent is a certificate that may be shown from now on.
///
/// # Errors
/// Every fault.
pub fn check(sent: &Sent, domain: &str, now: Timestamp) -> Result<Checked, Refused> {
    let mut faults = sent.faults.clone();
    let leaf = sent.certificate.as_ref().and_then(|text| chain::leaf(text, now, &mut faults));
    let key = sent.key.as_ref().and_then(|text| key::read(text, &mut faults));
    let mut warnings = Vec::new();
    let chain = chain::chain(sent.chain.as_deref(), leaf.as_ref(), now, &mut faults, &mut warnings);
    if let (Some(leaf), Some(key)) = (&leaf, &key) {
        belongs(leaf, key, &mut faults);
    }
    if let Some(leaf) = &leaf {
        count(leaf, domain, &mut faults);
    }
    match (leaf, key, chain) {
        (Some(leaf), Some(key), Some(chain)) if faults.is_empty() => {
            Ok(Checked { leaf, chain, key: key.pem, warnings })
        }
        (leaf, ..) => Err(Refused { faults, names: leaf.map(|leaf| leaf.names) }),
    }
}

/// An edge refuses a key that is another certificate's, by this same test.
fn belongs(leaf: &chain::Leaf, key: &key::Key, faults: &mut Vec<Fault>) {
    let pair = CertifiedKey::new(vec![leaf.der.clone()], std::sync::Arc::clone(&key.signing));
    match pair.keys_match() {
        Ok(()) => {}
        Err(rustls::Error::InconsistentKeys(_)) => faults.push(Fault::at(
            KEY,
            "key_mismatch",
            format!(
                "this {} key is not the one of the certificate, which has a {} key",
                key.kind.unwrap_or("private"),
                leaf.key
            ),
        )),
        Err(error) => faults.push(Fault::at(
            LEAF,
            "invalid_certificate",
            format!("edges would not show this certificate: {error}"),
        )),
    }
}

fn count(leaf: &chain::Leaf, domain: &str, faults: &mut Vec<Fault>) {
    use headwater_edge_wire::text::is_inside;
    let inside = leaf.names.iter().filter(|name| is_inside(name, domain)).count();
    if inside > NAMES_MAX_COUNT {
        let detail = format!("it has {inside} names in {domain}, at most {NAMES_MAX_COUNT} can be shown");
        faults.push(Fault::at(LEAF, "too_many_names", detail));
    }
}

/// Notes a text that is longer than its bound.
fn bounded(text: &str, most: usize, pointer: &str, faults: &mut Vec<Fault>) -> bool {
    let fits = text.len() <= most;
    if !fits {
        let detail = format!("it has {} octets, at most {} KiB are taken", text.len(), most >> 10);
        faults.push(Fault::at(pointer, "too_large", detail));
    }
    fits
}
