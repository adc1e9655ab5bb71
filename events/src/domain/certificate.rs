//! The certificate that a domain's owner brings: what is told of it in public, which names it covers, and when it may
//! take the place of the one before.
//!
//! What must hold: nothing here holds a private key, only what one is once it is sealed; a certificate that comes covers
//! every name that is proxied then; a name that is proxied later and not covered is accepted, and said to be so.

use super::decide::{Context, Decided, check, decided};
use super::state::DomainView;
use crate::event::Event;
use crate::ids::{CertificateId, Revision};
use crate::reject::{Fault, Reject};
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Names without cover that are told of at once.
const UNCOVERED_TOLD_MAX_NAMES: usize = 20;
/// Where the leaf stands in the body.
const LEAF_POINTER: &str = "/certificate_pem";

/// Where a certificate comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CertificateSource {
    /// The domain's owner brought it.
    Custom,
}

/// A certificate as everybody may know it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificateBody {
    /// Which.
    pub id: CertificateId,
    /// Counts what stood under this id, from 1.
    pub version: u32,
    /// Where it comes from.
    pub source: CertificateSource,
    /// The DNS names it proves, in lower case, ascending and unique; some may lie outside the domain.
    pub names: Vec<String>,
    /// Who issued it, for people.
    pub issuer: String,
    /// Its serial number, in hex.
    pub serial: String,
    /// SHA-256 of the leaf, in hex.
    pub fingerprint: String,
    /// What its key is: `rsa-2048`, `p-256`, …
    pub key: String,
    /// From when on it holds.
    pub not_before: Timestamp,
    /// Until when.
    pub not_after: Timestamp,
    /// PEM: the leaf, then what signed it, without the root.
    pub chain: String,
}

impl CertificateBody {
    /// Whether clients would see no difference.
    fn is_same_as(&self, other: &Self) -> bool {
        (&self.fingerprint, &self.chain) == (&other.fingerprint, &other.chain)
    }
}

/// A certificate took the place of another one, or is the first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificateReplaced {
    /// What it was; none when there was none.
    pub before: Option<CertificateBody>,
    /// What it is now.
    pub after: CertificateBody,
}

/// The domain has no certificate any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificateDeleted {
    /// What it was.
    pub before: CertificateBody,
}

/// A private key that is sealed for one version of one certificate. It stands beside the log.
#[derive(Clone, PartialEq, Eq)]
pub struct SealedPrivateKey(Vec<u8>);

impl SealedPrivateKey {
    /// Takes sealed bytes over.
    pub fn new(sealed: Vec<u8>) -> Self {
        Self(sealed)
    }

    /// The sealed bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for SealedPrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SealedPrivateKey({} bytes)", self.0.len())
    }
}

/// A certificate that comes, with its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewCertificate {
    /// What everybody may know of it. Its id and version are those that its key was sealed for.
    pub body: CertificateBody,
    /// Its key.
    pub key: SealedPrivateKey,
    /// What its owner may want to know of it.
    pub warnings: Vec<String>,
}

/// A certificate as `desired` holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredCertificate {
    /// The certificate.
    pub body: CertificateBody,
    /// The revision that last changed it.
    pub changed: Revision,
}

impl StoredCertificate {
    /// The id and version that a certificate gets that comes now; `fresh` is the id of one that follows nothing.
    pub fn following(current: Option<&Self>, fresh: CertificateId) -> (CertificateId, u32) {
        current.map_or((fresh, 1), |stored| (stored.body.id, stored.body.version.saturating_add(1)))
    }
}

/// Whether a name of a certificate covers a proxied name, itself perhaps a wildcard: a wildcard stands for one whole
/// label (RFC 9525 section 6.3).
pub fn covers(proven: &str, hostname: &str) -> bool {
    if proven == hostname {
        return true;
    }
    let below = proven.strip_prefix("*.").zip(hostname.split_once('.'));
    below.is_some_and(|(parent, (label, rest))| label != "*" && !label.is_empty() && rest == parent)
}

/// A fault for each proxied name that no name of a certificate covers.
pub fn uncovered<'a>(names: &[String], hostnames: impl Iterator<Item = &'a str>) -> Vec<Fault> {
    let is_covered = |hostname: &str| names.iter().any(|name| covers(name, hostname));
    let mut faults = Vec::new();
    let mut more = 0;
    for hostname in hostnames.filter(|hostname| !is_covered(hostname)) {
        if faults.len() < UNCOVERED_TOLD_MAX_NAMES {
            let detail = format!("{hostname} is proxied, and the certificate is not for it");
            faults.push(Fault::at(LEAF_POINTER, "name_not_covered", detail));
        } else {
            more += 1;
        }
    }
    if more > 0 {
        let detail = format!("{more} more proxied names are not covered");
        faults.push(Fault::at(LEAF_POINTER, "name_not_covered", detail));
    }
    faults
}

/// What is said of a name that is proxied while the domain's certificate does not cover it.
pub(super) fn warning(view: &DomainView, hostname: &str) -> Option<String> {
    let stored = view.site.certificate.as_ref()?;
    let is_covered = stored.body.names.iter().any(|name| covers(name, hostname));
    (!is_covered).then(|| {
        format!(
            "the certificate of {} is not for {hostname}: it answers by http alone, and TLS for it is refused until a \
             certificate covers it",
            view.state.name
        )
    })
}

/// Decides `PUT` on the certificate. All proxied names are in the view.
pub(super) fn put(view: &DomainView, new: &NewCertificate, context: &Context<'_>) -> Result<Decided, Reject> {
    let current = view.site.certificate.as_ref();
    check(context.precondition, current.map(|stored| stored.changed))?;
    let hostnames: Vec<String> =
        view.hostnames.values().map(|stored| stored.owner.absolute(&view.state.name)).collect();
    let faults = uncovered(&new.body.names, hostnames.iter().map(String::as_str));
    if !faults.is_empty() {
        return Err(Reject::Invalid(faults));
    }
    if current.is_some_and(|stored| stored.body.is_same_as(&new.body)) {
        return Ok(Decided::Unchanged { revision: view.state.revision });
    }
    // The key is sealed for one version: where somebody was faster, it has to be sealed anew.
    let (id, version) = StoredCertificate::following(current, new.body.id);
    if (id, version) != (new.body.id, new.body.version) {
        return Err(Reject::Conflict {
            code: "certificate_moved",
            detail: format!("the certificate of {} was changed at the same time: try again", view.state.name),
        });
    }
    let event = Event::CertificateReplaced(Box::new(CertificateReplaced {
        before: current.map(|stored| stored.body.clone()),
        after: new.body.clone(),
    }));
    let mut decision = decided(view, vec![event], view.state.status.is_served(), context);
    decision.warnings.clone_from(&new.warnings);
    Ok(Decided::Changed(decision))
}

/// Decides `DELETE` on the certificate.
pub(super) fn delete(view: &DomainView, context: &Context<'_>) -> Result<Decided, Reject> {
    let Some(stored) = &view.site.certificate else {
        return Err(Reject::NotFound(format!("a certificate of {}", view.state.name)));
    };
    check(context.precondition, Some(stored.changed))?;
    let event = Event::CertificateDeleted(Box::new(CertificateDeleted { before: stored.body.clone() }));
    let mut decision = decided(view, vec![event], view.state.status.is_served(), context);
    let detail = "TLS is refused for every proxied name from now on: they answer by http alone";
    decision.warnings.push(detail.to_owned());
    Ok(Decided::Changed(decision))
}

#[cfg(test)]
mod tests {
    use super::covers;

    #[test]
    fn a_wildcard_stands_for_one_label() {
        for (proven, hostname, is_covered) in [
            ("a.test", "a.test", true),
            ("www.a.test", "a.test", false),
            ("a.test", "www.a.test", false),
            ("*.a.test", "www.a.test", true),
            ("*.a.test", "a.test", false),
            ("*.a.test", "b.www.a.test", false),
            ("*.a.test", "*.a.test", true),
            ("*.a.test", "*.www.a.test", false),
            ("www.a.test", "*.a.test", false),
            ("*.test", "*.a.test", false),
            ("*.est", "a.test", false),
            ("*", "a", false),
        ] {
            assert_eq!(covers(proven, hostname), is_covered, "{proven} for {hostname}");
        }
    }
}
