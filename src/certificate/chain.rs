//! The leaf and what signed it. Each certificate of a chain must have signed the one before it and be allowed to; a
//! self-signed end is not needed, and not kept: whoever trusts it has it.

use aws_lc_rs::digest::{SHA256, digest};
use headwater_edge_wire::text::is_hostname;
use headwater_events::reject::Fault;
use headwater_events::time::Timestamp;
use rustls::RootCertStore;
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::pki_types::{CertificateDer, SignatureVerificationAlgorithm, UnixTime};
use rustls::server::ParsedCertificate;
use std::time::Duration;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::pem::{self, Block};
use super::{CHAIN, CHAIN_MAX_BYTES, CHAIN_MAX_CERTIFICATES, LEAF, LEAF_MAX_BYTES, bounded, key};

/// Characters of a name that are shown.
const SHOWN_MAX_CHARS: usize = 200;
/// Octets of a serial number (RFC 5280 section 4.1.2.2), with some room for those who do not keep to it.
const SERIAL_MAX_BYTES: usize = 64;
/// What a key is called that is not taken.
const UNSUPPORTED: &str = "unsupported";
/// How near an end is told of.
const SOON: Duration = Duration::from_secs(14 * 86_400);

/// A leaf that could be read.
pub(super) struct Leaf {
    pub(super) der: CertificateDer<'static>,
    pub(super) names: Vec<String>,
    pub(super) issuer: String,
    pub(super) serial: String,
    pub(super) fingerprint: String,
    pub(super) key: &'static str,
    pub(super) not_before: Timestamp,
    pub(super) not_after: Timestamp,
}

/// Reads the leaf: the one certificate of its text.
pub(super) fn leaf(text: &str, now: Timestamp, faults: &mut Vec<Fault>) -> Option<Leaf> {
    let blocks = blocks(text, LEAF_MAX_BYTES, LEAF, faults)?;
    let block = match blocks.as_slice() {
        [block] => block,
        [] => return None,
        many => {
            let detail = format!(
                "it holds {} certificates: the leaf alone belongs here, what signed it into chain_pem",
                many.len()
            );
            faults.push(Fault::at(LEAF, "extra_block", detail));
            return None;
        }
    };
    let Some(certificate) = parsed(&block.der) else {
        faults.push(Fault::at(LEAF, "invalid_certificate", "this is no X.509 certificate"));
        return None;
    };
    usable(&certificate, faults);
    in_time(&certificate, LEAF, "the certificate", now, faults);
    let names = names(&certificate);
    if names.is_empty() {
        let detail =
            "it is for no DNS name: names stand in its subjectAltName, its common name is not looked at";
        faults.push(Fault::at(LEAF, "no_names", detail));
    }
    let kind = key::kind(certificate.public_key());
    if kind.is_none() {
        let detail = format!("its key is of a kind that is not taken: use {}", key::TAKEN);
        faults.push(Fault::at(LEAF, "unsupported_key", detail));
    }
    let serial = certificate.raw_serial();
    if serial.len() > SERIAL_MAX_BYTES {
        faults.push(Fault::at(LEAF, "invalid_certificate", "its serial number is longer than 64 octets"));
    }
    Some(Leaf {
        names,
        issuer: shown(&certificate.issuer().to_string()),
        serial: hex::encode(serial),
        fingerprint: hex::encode(digest(&SHA256, &block.der)),
        key: kind.unwrap_or(UNSUPPORTED),
        not_before: at(certificate.validity().not_before.timestamp()),
        not_after: at(certificate.validity().not_after.timestamp()),
        der: CertificateDer::from(block.der.to_vec()),
    })
}

/// Whether servers may show it.
fn usable(certificate: &X509Certificate<'_>, faults: &mut Vec<Fault>) {
    let purposes = certificate.extended_key_usage().ok().flatten();
    if purposes.is_some_and(|purposes| !purposes.value.server_auth && !purposes.value.any) {
        let detail = "its extended key usage does not allow servers: serverAuth is missing";
        faults.push(Fault::at(LEAF, "wrong_usage", detail));
    }
    let usage = certificate.key_usage().ok().flatten();
    if usage.is_some_and(|usage| !usage.value.digital_signature()) {
        faults.push(Fault::at(LEAF, "wrong_usage", "its key usage does not allow digitalSignature"));
    }
    if certificate.is_ca() && !is_self_issued(certificate) {
        let detail = "this is the certificate of an issuer, not that of a server: the leaf comes first";
        faults.push(Fault::at(LEAF, "not_a_leaf", detail));
    }
}

/// The DNS names, as they are compared: in lower case, ascending and unique. What no server is asked for is passed over.
fn names(certificate: &X509Certificate<'_>) -> Vec<String> {
    let Ok(Some(names)) = certificate.subject_alternative_name() else { return Vec::new() };
    let dns = names.value.general_names.iter().filter_map(|name| match name {
        GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
        _ => None,
    });
    let mut names: Vec<String> = dns.filter(|name| is_hostname(name)).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// The chain as it is shown: the leaf, then what signed it, without a self-signed end.
pub(super) fn chain(
    text: Option<&str>,
    leaf: Option<&Leaf>,
    now: Timestamp,
    faults: &mut Vec<Fault>,
    warnings: &mut Vec<String>,
) -> Option<String> {
    let blocks = match text.filter(|text| !text.trim().is_empty()) {
        Some(text) => blocks(text, CHAIN_MAX_BYTES, CHAIN, faults)?,
        None => Vec::new(),
    };
    if blocks.len() > CHAIN_MAX_CERTIFICATES {
        let detail = format!("it holds {} certificates, at most {CHAIN_MAX_CERTIFICATES}", blocks.len());
        faults.push(Fault::at(CHAIN, "too_many_certificates", detail));
        return None;
    }
    // Files that are called chains often begin with the leaf.
    let first = leaf.map(|leaf| leaf.der.as_ref());
    let above = blocks.iter().map(|block| block.der.as_slice()).skip_while(|der| first == Some(*der));
    let ders: Vec<&[u8]> = first.into_iter().chain(above).collect();
    let mut certificates = Vec::new();
    for (number, der) in ders.iter().enumerate() {
        let Some(certificate) = parsed(der) else {
            let detail = format!("certificate {number} of the chain is no X.509 certificate");
            faults.push(Fault::at(CHAIN, "invalid_certificate", detail));
            return None;
        };
        certificates.push(certificate);
    }
    let leaf = leaf?;
    let before = faults.len();
    for (number, pair) in certificates.windows(2).enumerate() {
        if let [signed, issuer] = pair {
            link(signed, issuer, number + 1, now, faults);
        }
    }
    if faults.len() > before {
        return None;
    }
    whole(leaf, &ders, now, faults);
    let kept = kept(&certificates, warnings);
    if soon(leaf, now) {
        warnings.push(format!("the certificate ends at {}: replace it before", leaf.not_after));
    }
    let mut chain = String::new();
    for der in ders.iter().take(kept) {
        chain.push_str(&String::from_utf8_lossy(&pem::write("CERTIFICATE", der)));
    }
    Some(chain)
}

/// How many certificates of the chain are shown; what its owner may want to know of it.
fn kept(certificates: &[X509Certificate<'_>], warnings: &mut Vec<String>) -> usize {
    let is_root = |certificate: &X509Certificate<'_>| {
        is_self_issued(certificate) && signed_by(certificate, certificate) == Ok(())
    };
    match certificates {
        [leaf] if is_root(leaf) => {
            let detail =
                "the certificate is self-signed: clients that were not told to trust it will refuse it";
            warnings.push(detail.to_owned());
            1
        }
        [_] => {
            let detail =
                "there is no chain: clients that do not have the issuer's certificate will refuse it";
            warnings.push(detail.to_owned());
            1
        }
        [.., root] if is_root(root) => {
            let name = shown(&root.subject().to_string());
            warnings.push(format!("{name} is self-signed and not shown: clients that trust it have it"));
            certificates.len() - 1
        }
        all => all.len(),
    }
}

/// Whether a certificate of the chain has signed the one before it, and may.
fn link(
    signed: &X509Certificate<'_>,
    issuer: &X509Certificate<'_>,
    number: usize,
    now: Timestamp,
    faults: &mut Vec<Fault>,
) {
    let what = format!("certificate {number} of the chain ({})", shown(&issuer.subject().to_string()));
    if signed.issuer().as_raw() != issuer.subject().as_raw() {
        let wanted = shown(&signed.issuer().to_string());
        let detail = format!(
            "{what} is not what signed the one before it, which names {wanted}: the chain goes from the leaf's issuer \
             upwards, without gaps"
        );
        faults.push(Fault::at(CHAIN, "broken_chain", detail));
        return;
    }
    let may_sign = issuer.key_usage().ok().flatten().is_none_or(|usage| usage.value.key_cert_sign());
    if !issuer.is_ca() || !may_sign {
        faults.push(Fault::at(CHAIN, "not_an_issuer", format!("{what} may not sign certificates")));
    }
    let constraints = issuer.basic_constraints().ok().flatten();
    let most = constraints.and_then(|constraints| constraints.value.path_len_constraint);
    if most.is_some_and(|most| usize::try_from(most).is_ok_and(|most| number - 1 > most)) {
        let detail = format!("{what} may not have so many issuers below it");
        faults.push(Fault::at(CHAIN, "broken_chain", detail));
    }
    in_time(issuer, CHAIN, &what, now, faults);
    match signed_by(signed, issuer) {
        Ok(()) => {}
        Err(Unsigned::Algorithm) => {
            let detail =
                format!("{what} signed the one before it in a way that clients do not take, such as SHA-1");
            faults.push(Fault::at(CHAIN, "unsupported_signature", detail));
        }
        Err(Unsigned::Bad) => {
            let detail = format!("the certificate before it was not signed with the key of {what}");
            faults.push(Fault::at(CHAIN, "bad_signature", detail));
        }
    }
}

/// The whole way once more, as clients go it: lengths of paths, constraints of names, extensions that nobody knows.
fn whole(leaf: &Leaf, ders: &[&[u8]], now: Timestamp, faults: &mut Vec<Fault>) {
    let [_, between @ .., last] = ders else { return };
    let mut roots = RootCertStore::empty();
    let between: Vec<CertificateDer<'_>> = between.iter().map(|der| CertificateDer::from(*der)).collect();
    let seconds = u64::try_from(now.as_millis() / 1_000).unwrap_or(0);
    let now = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
    let verified = roots.add(CertificateDer::from(last.to_vec())).and_then(|()| {
        let leaf = ParsedCertificate::try_from(&leaf.der)?;
        verify_server_cert_signed_by_trust_anchor(&leaf, &roots, &between, now, algorithms())
    });
    // What is wrong with the leaf by itself was told already.
    if let Err(error) = verified
        && faults.is_empty()
    {
        let detail = format!("clients would not follow this chain: {error}");
        faults.push(Fault::at(CHAIN, "broken_chain", detail));
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Unsigned {
    /// Nobody verifies such signatures.
    Algorithm,
    /// It is another's.
    Bad,
}

fn algorithms() -> &'static [&'static dyn SignatureVerificationAlgorithm] {
    rustls::crypto::aws_lc_rs::default_provider().signature_verification_algorithms.all
}

/// Whether a certificate was signed with the key of another one.
fn signed_by(signed: &X509Certificate<'_>, issuer: &X509Certificate<'_>) -> Result<(), Unsigned> {
    // A certificate is what is signed, the algorithm, the signature; a public key is its algorithm and the key.
    let (inner, _) = element(signed.as_raw()).ok_or(Unsigned::Bad)?;
    let rest = inner.get(signed.tbs_certificate.as_ref().len()..).ok_or(Unsigned::Bad)?;
    let (of_signature, _) = element(rest).ok_or(Unsigned::Bad)?;
    let (spki, _) = element(issuer.public_key().raw).ok_or(Unsigned::Bad)?;
    let (of_key, _) = element(spki).ok_or(Unsigned::Bad)?;
    let fits = |one: &&&dyn SignatureVerificationAlgorithm| {
        one.signature_alg_id().as_ref() == of_signature && one.public_key_alg_id().as_ref() == of_key
    };
    let algorithm = algorithms().iter().find(fits).ok_or(Unsigned::Algorithm)?;
    let key = &issuer.public_key().subject_public_key.data;
    let (message, signature) = (signed.tbs_certificate.as_ref(), &signed.signature_value.data);
    algorithm.verify_signature(key, message, signature).map_err(|_| Unsigned::Bad)
}

/// What the first DER element holds, and what follows it.
fn element(der: &[u8]) -> Option<(&[u8], &[u8])> {
    let (_tag, rest) = der.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x84 => {
            let (length, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (length.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    rest.split_at_checked(length)
}

/// The certificates of a text, which holds nothing else.
fn blocks(text: &str, most: usize, pointer: &str, faults: &mut Vec<Fault>) -> Option<Vec<Block>> {
    if !bounded(text, most, pointer, faults) {
        return None;
    }
    let blocks = match pem::blocks(text) {
        Ok(blocks) => blocks,
        Err(error) => {
            faults.push(Fault::at(pointer, "invalid_pem", error.detail()));
            return None;
        }
    };
    if blocks.iter().any(Block::is_key) {
        let detail = "there is a private key in it: it belongs into private_key_pem alone";
        faults.push(Fault::at(pointer, "extra_block", detail));
        return None;
    }
    if let Some(other) = blocks.iter().find(|block| block.label != "CERTIFICATE") {
        let detail = format!("there is a {} in it: certificates alone belong here", other.shown());
        faults.push(Fault::at(pointer, "extra_block", detail));
        return None;
    }
    Some(blocks)
}

fn parsed(der: &[u8]) -> Option<X509Certificate<'_>> {
    X509Certificate::from_der(der).ok().filter(|(rest, _)| rest.is_empty()).map(|(_, parsed)| parsed)
}

fn is_self_issued(certificate: &X509Certificate<'_>) -> bool {
    certificate.subject().as_raw() == certificate.issuer().as_raw()
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_millis(seconds.saturating_mul(1_000))
}

fn in_time(
    certificate: &X509Certificate<'_>,
    pointer: &str,
    what: &str,
    now: Timestamp,
    faults: &mut Vec<Fault>,
) {
    let validity = certificate.validity();
    let (from, until) = (at(validity.not_before.timestamp()), at(validity.not_after.timestamp()));
    if now < from {
        let detail = format!("{what} holds from {from} on, which is not yet");
        faults.push(Fault::at(pointer, "not_yet_valid", detail));
    }
    if now >= until {
        faults.push(Fault::at(pointer, "expired", format!("{what} ended at {until}")));
    }
}

fn soon(leaf: &Leaf, now: Timestamp) -> bool {
    leaf.not_after < now.plus(SOON)
}

/// A distinguished name for people: bounded, on one line.
fn shown(name: &str) -> String {
    name.chars().filter(|c| !c.is_control()).take(SHOWN_MAX_CHARS).collect()
}
