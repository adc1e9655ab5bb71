//! The domain's own rules for an artifact. Every fault is named, with a JSON pointer to its place; nothing is mended.

use std::net::IpAddr;

use crate::artifact::{
    ARTIFACT_SCHEMA, Artifact, Backup, Cache, Certificate, Health, Hostname, Origin, Scheme,
};
use crate::ids::COUNTER_MAX;
use crate::text;

/// The most certificates of one artifact.
pub const CERTIFICATES_MAX: usize = 64;
/// The most names of one certificate.
pub const CERTIFICATE_NAMES_MAX: usize = 100;
/// The longest certificate chain: a leaf of 16 KiB and 64 KiB above it.
pub const CHAIN_MAX_BYTES: usize = 80 << 10;
/// The most faults that are told at once.
pub const FAULTS_MAX: usize = 1_000;

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Where, as a JSON pointer.
    pub pointer: String,
    /// What kind of fault.
    pub code: FaultCode,
    /// What must be, for people.
    pub detail: String,
}

/// The kinds of faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FaultCode {
    /// A number is out of its range.
    OutOfRange,
    /// A string is not of its grammar.
    Syntax,
    /// A name lies outside the domain.
    OutsideDomain,
    /// A list is not ascending, or holds something twice.
    Order,
    /// Something that another field makes necessary is not there.
    Missing,
    /// There are more than the bound, or none where one must be.
    Count,
}

impl FaultCode {
    /// The stable name of the kind.
    pub fn name(self) -> &'static str {
        match self {
            Self::OutOfRange => "out_of_range",
            Self::Syntax => "syntax",
            Self::OutsideDomain => "outside_domain",
            Self::Order => "order",
            Self::Missing => "missing",
            Self::Count => "count",
        }
    }
}

/// Collects faults below one place.
struct Place<'a> {
    pointer: String,
    faults: &'a mut Vec<Fault>,
}

impl Place<'_> {
    fn below(&mut self, step: impl std::fmt::Display) -> Place<'_> {
        Place { pointer: format!("{}/{step}", self.pointer), faults: self.faults }
    }

    fn fault(&mut self, field: &str, code: FaultCode, detail: impl Into<String>) {
        if self.faults.len() < FAULTS_MAX {
            let pointer = match field {
                "" => self.pointer.clone(),
                field => format!("{}/{field}", self.pointer),
            };
            self.faults.push(Fault { pointer, code, detail: detail.into() });
        }
    }

    fn within(&mut self, field: &str, value: u64, min: u64, max: u64) {
        if !(min..=max).contains(&value) {
            self.fault(field, FaultCode::OutOfRange, format!("must be between {min} and {max}"));
        }
    }

    fn holds(&mut self, field: &str, is_so: bool, must_be: &str) {
        if !is_so {
            self.fault(field, FaultCode::Syntax, format!("must be {must_be}"));
        }
    }
}

/// Every fault of an artifact.
pub(crate) fn artifact(artifact: &Artifact) -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut root = Place { pointer: String::new(), faults: &mut faults };
    root.within("schema", u64::from(artifact.schema), ARTIFACT_SCHEMA.into(), ARTIFACT_SCHEMA.into());
    if artifact.agent.min > artifact.agent.max {
        root.fault("agent", FaultCode::OutOfRange, "min must not be above max");
    }
    root.holds("domain", text::is_zone_name(&artifact.domain), "a name in lower case without the final dot");
    root.within("revision", artifact.revision.get(), 1, COUNTER_MAX);
    hostnames(&mut root.below("hostnames"), &artifact.hostnames, &artifact.domain);
    cache(&mut root.below("cache"), &artifact.cache);
    certificates(&mut root.below("certificates"), &artifact.certificates, &artifact.domain);
    faults
}

fn hostnames(place: &mut Place<'_>, hostnames: &[Hostname], domain: &str) {
    let mut before: Option<&str> = None;
    for (index, hostname) in hostnames.iter().enumerate() {
        let mut here = place.below(index);
        name(&mut here, "name", &hostname.name, domain);
        if before.is_some_and(|before| before >= hostname.name.as_str()) {
            here.fault("name", FaultCode::Order, "must come after the name before it");
        }
        before = Some(&hostname.name);
        origin(&mut here.below("origin"), &hostname.origin);
        if let Some(second) = &hostname.backup {
            backup(&mut here.below("backup"), second);
        }
        if let Some(watch) = &hostname.health {
            health(&mut here.below("health"), watch);
        }
    }
}

fn name(place: &mut Place<'_>, field: &str, name: &str, domain: &str) {
    if !text::is_hostname(name) {
        place.fault(field, FaultCode::Syntax, "must be a name in lower case, or `*.` before one");
    } else if !text::is_inside(name, domain) {
        place.fault(field, FaultCode::OutsideDomain, "must be the domain or lie below it");
    }
}

fn origin(place: &mut Place<'_>, origin: &Origin) {
    place.holds("host", text::is_host(&origin.host), "a name or an address in its usual spelling");
    place.within("port", u64::from(origin.port), 1, 65_535);
    place.holds("host_header", text::is_authority(&origin.host_header), "a host, perhaps with a port");
    match &origin.sni {
        Some(sni) => {
            let is_dns = text::is_name(sni) && text::is_host(sni) && sni.parse::<IpAddr>().is_err();
            place.holds("sni", is_dns, "a name in lower case");
        }
        None if origin.scheme == Scheme::Https && origin.verify_tls => {
            place.fault("sni", FaultCode::Missing, "a certificate can only be checked for a name");
        }
        None => {}
    }
    place.within("connect_timeout_ms", u64::from(origin.connect_timeout_ms), 100, 10_000);
    place.within("response_timeout_ms", u64::from(origin.response_timeout_ms), 500, 60_000);
    place.within("retries", u64::from(origin.retries), 0, 2);
}

fn backup(place: &mut Place<'_>, backup: &Backup) {
    origin(&mut place.below("origin"), &backup.origin);
    place.within("failure_threshold", u64::from(backup.failure_threshold), 1, 20);
    place.within("recovery_threshold", u64::from(backup.recovery_threshold), 1, 20);
    place.within("hold_down_seconds", u64::from(backup.hold_down_seconds), 5, 3_600);
    place.within("failback_delay_seconds", u64::from(backup.failback_delay_seconds), 5, 86_400);
}

fn health(place: &mut Place<'_>, health: &Health) {
    place.holds("path", text::is_path(&health.path), "a path of visible ASCII without `#`");
    place.within("interval_seconds", u64::from(health.interval_seconds), 60, 86_400);
}

fn cache(place: &mut Place<'_>, cache: &Cache) {
    place.within("edge_ttl_seconds", u64::from(cache.edge_ttl_seconds), 0, 31_536_000);
    place.within("browser_ttl_seconds", u64::from(cache.browser_ttl_seconds), 0, 31_536_000);
    place.within("maximum_object_bytes", cache.maximum_object_bytes, 1 << 20, 1 << 30);
    place.within("stale_if_error_seconds", u64::from(cache.stale_if_error_seconds), 0, 86_400);
    place.within(
        "stale_while_revalidate_seconds",
        u64::from(cache.stale_while_revalidate_seconds),
        0,
        86_400,
    );
    place.within("epoch", cache.epoch, 0, COUNTER_MAX);
}

fn certificates(place: &mut Place<'_>, certificates: &[Certificate], domain: &str) {
    if certificates.len() > CERTIFICATES_MAX {
        place.fault("", FaultCode::Count, format!("at most {CERTIFICATES_MAX}"));
    }
    let mut before = None;
    for (index, certificate) in certificates.iter().enumerate() {
        let mut here = place.below(index);
        if before.is_some_and(|before| before >= certificate.id) {
            here.fault("id", FaultCode::Order, "must come after the id before it");
        }
        before = Some(certificate.id);
        here.within("version", certificate.version.get(), 1, COUNTER_MAX);
        if certificate.names.is_empty() || certificate.names.len() > CERTIFICATE_NAMES_MAX {
            here.fault("names", FaultCode::Count, format!("1 to {CERTIFICATE_NAMES_MAX}"));
        }
        let mut names = here.below("names");
        let mut last: Option<&str> = None;
        for (index, proven) in certificate.names.iter().enumerate() {
            name(&mut names, &index.to_string(), proven, domain);
            if last.is_some_and(|last| last >= proven.as_str()) {
                names.fault(&index.to_string(), FaultCode::Order, "must come after the name before it");
            }
            last = Some(proven);
        }
        let chain = &certificate.chain_pem;
        let is_chain = chain.len() <= CHAIN_MAX_BYTES && text::is_certificate_chain(chain);
        here.holds("chain_pem", is_chain, "certificates as PEM with LF, nothing else, 80 KiB at most");
    }
}
