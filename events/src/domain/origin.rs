//! An origin: where the content of a proxied name comes from. Read once, at the door: what exists holds every
//! default and every bound; an address literal has one spelling and is a permitted destination.

use super::destination::Destinations;
use crate::dns::DomainName;
use crate::reject::Fault;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

/// The most characters of a host, a `Host` field and a server name.
pub const HOST_MAX_CHARS: usize = 253;
/// How long a connection may take to open.
pub const CONNECT_TIMEOUT_MS: RangeInclusive<i64> = 100..=10_000;
/// Where nothing is said.
pub const CONNECT_TIMEOUT_DEFAULT_MS: u32 = 3_000;
/// How long an origin may be silent.
pub const RESPONSE_TIMEOUT_MS: RangeInclusive<i64> = 500..=60_000;
/// Where nothing is said.
pub const RESPONSE_TIMEOUT_DEFAULT_MS: u32 = 30_000;
/// How often an idempotent request is tried again.
pub const RETRIES_TIMES: RangeInclusive<i64> = 0..=2;
/// Where nothing is said.
pub const RETRIES_DEFAULT_TIMES: u8 = 1;

/// How an origin is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scheme {
    /// In the clear.
    Http,
    /// By TLS.
    Https,
}

/// An origin, complete.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// How it is spoken to.
    pub scheme: Scheme,
    /// Its name or address, in one spelling.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// What is sent as `Host`.
    pub host_header: String,
    /// The server's name in TLS.
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

/// An origin as it was sent: what is absent gets its default.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OriginInput {
    /// `http` or `https`.
    pub scheme: Option<String>,
    /// A name or an address.
    pub host: Option<String>,
    /// A port.
    pub port: Option<i64>,
    /// What is sent as `Host`.
    pub host_header: Option<String>,
    /// The server's name in TLS.
    pub sni: Option<String>,
    /// Whether its certificate is checked.
    pub verify_tls: Option<bool>,
    /// Milliseconds.
    pub connect_timeout_ms: Option<i64>,
    /// Milliseconds.
    pub response_timeout_ms: Option<i64>,
    /// Times.
    pub retries: Option<i64>,
    /// Whether connections may be upgraded.
    pub websocket: Option<bool>,
}

impl From<&Origin> for OriginInput {
    fn from(origin: &Origin) -> Self {
        let scheme = if origin.scheme == Scheme::Https { "https" } else { "http" };
        Self {
            scheme: Some(scheme.to_owned()),
            host: Some(origin.host.clone()),
            port: Some(origin.port.into()),
            host_header: Some(origin.host_header.clone()),
            sni: origin.sni.clone(),
            verify_tls: Some(origin.verify_tls),
            connect_timeout_ms: Some(origin.connect_timeout_ms.into()),
            response_timeout_ms: Some(origin.response_timeout_ms.into()),
            retries: Some(origin.retries.into()),
            websocket: Some(origin.websocket),
        }
    }
}

/// Collects the faults of one object, each with its pointer.
pub(super) struct Faults<'a> {
    pub(super) base: String,
    pub(super) found: &'a mut Vec<Fault>,
}

impl Faults<'_> {
    pub(super) fn at(&mut self, field: &str, code: &'static str, detail: impl Into<String>) {
        self.found.push(Fault::at(format!("{}/{field}", self.base), code, detail));
    }

    /// A number inside its range, or its default.
    pub(super) fn within<T: TryFrom<i64>>(
        &mut self,
        field: &str,
        value: Option<i64>,
        range: &RangeInclusive<i64>,
        default: T,
    ) -> T {
        let Some(value) = value else { return default };
        match T::try_from(value) {
            Ok(number) if range.contains(&value) => number,
            _ => {
                let detail = format!("{field} is a whole number from {} to {}", range.start(), range.end());
                self.at(field, "out_of_range", detail);
                default
            }
        }
    }
}

impl Origin {
    /// Reads what was sent for a proxied name, whose absolute name is `hostname`. Every fault is added to `faults`.
    pub fn parse(
        input: &OriginInput,
        hostname: &str,
        destinations: &Destinations,
        base: &str,
        faults: &mut Vec<Fault>,
    ) -> Option<Self> {
        let before = faults.len();
        let mut at = Faults { base: base.to_owned(), found: faults };
        let scheme = scheme(input.scheme.as_deref(), &mut at);
        let host = host(input.host.as_deref(), hostname, destinations, &mut at);
        let host_header = host_header(input.host_header.as_deref(), hostname, &mut at);
        let verify_tls = input.verify_tls.unwrap_or(true);
        let sni = sni(input.sni.as_deref(), &mut at);
        if scheme == Some(Scheme::Https) && verify_tls && input.sni.is_none() {
            let detail = "verified https needs the name that the certificate is checked for: give sni, or set \
                          verify_tls to false";
            at.at("sni", "missing", detail);
        }
        let default_port = if scheme == Some(Scheme::Https) { 443 } else { 80 };
        let origin = Self {
            scheme: scheme.unwrap_or(Scheme::Http),
            host: host.unwrap_or_default(),
            port: at.within("port", input.port, &(1..=65_535), default_port),
            host_header: host_header.unwrap_or_default(),
            sni,
            verify_tls,
            connect_timeout_ms: at.within(
                "connect_timeout_ms",
                input.connect_timeout_ms,
                &CONNECT_TIMEOUT_MS,
                CONNECT_TIMEOUT_DEFAULT_MS,
            ),
            response_timeout_ms: at.within(
                "response_timeout_ms",
                input.response_timeout_ms,
                &RESPONSE_TIMEOUT_MS,
                RESPONSE_TIMEOUT_DEFAULT_MS,
            ),
            retries: at.within("retries", input.retries, &RETRIES_TIMES, RETRIES_DEFAULT_TIMES),
            websocket: input.websocket.unwrap_or(false),
        };
        (faults.len() == before).then_some(origin)
    }

    /// Its host, where that is a name.
    pub fn host_name(&self) -> Option<DomainName> {
        if self.host.parse::<IpAddr>().is_ok() { None } else { DomainName::parse(&self.host).ok() }
    }
}

fn scheme(text: Option<&str>, at: &mut Faults<'_>) -> Option<Scheme> {
    match text {
        Some("http") => Some(Scheme::Http),
        Some("https") => Some(Scheme::Https),
        Some(_) => {
            at.at("scheme", "invalid_scheme", "scheme is http or https");
            None
        }
        None => {
            at.at("scheme", "missing", "the field scheme is missing");
            None
        }
    }
}

fn host(
    text: Option<&str>,
    hostname: &str,
    destinations: &Destinations,
    at: &mut Faults<'_>,
) -> Option<String> {
    let Some(text) = text else {
        at.at("host", "missing", "the field host is missing");
        return None;
    };
    match spelled(text) {
        Ok(Spelled::Address(address)) => match destinations.permit(address) {
            Ok(()) => Some(address.to_string()),
            Err(special) => {
                let detail = format!("{address} is {}: an edge does not connect there", special.meaning());
                at.at("host", "forbidden_destination", detail);
                None
            }
        },
        Ok(Spelled::Name(name)) => {
            let is_local = name.labels().next_back() == Some("localhost");
            if is_local && !destinations.unsafe_allow_loopback {
                let detail = "localhost is the edge's own loopback: an edge does not connect there";
                at.at("host", "forbidden_destination", detail);
                return None;
            }
            if name.as_str() == hostname {
                at.at("host", "origin_loop", format!("{hostname} would be fetched from itself"));
                return None;
            }
            Some(name.as_str().to_owned())
        }
        Err(detail) => {
            at.at("host", "invalid_host", detail);
            None
        }
    }
}

/// A host in one of its two kinds.
enum Spelled {
    Address(IpAddr),
    Name(DomainName),
}

/// Reads a host. Whatever a resolver might take for an address in an odd spelling (`0177.1`, `0x7f.1`, `2130706433`)
/// is refused: it would be judged as a name and reached as an address.
fn spelled(text: &str) -> Result<Spelled, String> {
    if text.chars().count() > HOST_MAX_CHARS {
        return Err(format!("a host has at most {HOST_MAX_CHARS} characters"));
    }
    if let Ok(address) = text.parse::<Ipv4Addr>() {
        return Ok(Spelled::Address(IpAddr::V4(address)));
    }
    if text.contains(':') {
        let address = text.parse::<Ipv6Addr>().map_err(|_| {
            "a host is a name or an address alone: no port, no brackets, no zone of an interface".to_owned()
        })?;
        return Ok(Spelled::Address(IpAddr::V6(address)));
    }
    let name = DomainName::parse(text).map_err(|fault| fault.detail)?;
    let last = name.labels().next_back().unwrap_or_default();
    let is_number = last.bytes().all(|byte| byte.is_ascii_digit())
        || last.strip_prefix("0x").is_some_and(|hex| hex.bytes().all(|byte| byte.is_ascii_hexdigit()));
    if is_number {
        return Err("an IPv4 address is written as four decimal numbers without leading zeros".to_owned());
    }
    if name.as_str().contains('/') {
        return Err("a host has no slash".to_owned());
    }
    Ok(Spelled::Name(name))
}

/// A host as it stands in a `Host` field, perhaps with a port. It is data, never a destination.
fn host_header(text: Option<&str>, hostname: &str, at: &mut Faults<'_>) -> Option<String> {
    let Some(text) = text else {
        if hostname.starts_with('*') {
            let detail = "a wildcard has no name of its own to send: give host_header";
            at.at("host_header", "missing", detail);
            return None;
        }
        return Some(hostname.to_owned());
    };
    let read = authority(text);
    if read.is_none() {
        let detail = format!(
            "host_header is a host, perhaps with a port, of at most {HOST_MAX_CHARS} characters: www.example.com, \
             192.0.2.1:8080, [2001:db8::1]"
        );
        at.at("host_header", "invalid_host_header", detail);
    }
    read
}

fn authority(text: &str) -> Option<String> {
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let (inner, rest) = rest.split_once(']')?;
        let address = inner.parse::<Ipv6Addr>().ok()?;
        (format!("[{address}]"), if rest.is_empty() { None } else { Some(rest.strip_prefix(':')?) })
    } else {
        let (host, port) = match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        };
        let host = match spelled(host).ok()? {
            Spelled::Address(address) => address.to_string(),
            Spelled::Name(name) => name.as_str().to_owned(),
        };
        (host, port)
    };
    let is_port = |port: &str| !port.starts_with(['0', '+']) && port.parse::<u16>().is_ok();
    let read = match port {
        None => host,
        Some(port) if is_port(port) => format!("{host}:{port}"),
        Some(_) => return None,
    };
    (read.len() <= HOST_MAX_CHARS).then_some(read)
}

fn sni(text: Option<&str>, at: &mut Faults<'_>) -> Option<String> {
    match spelled(text?) {
        Ok(Spelled::Name(name)) => Some(name.as_str().to_owned()),
        _ => {
            at.at("sni", "invalid_sni", "sni is a name, never an address (RFC 6066 section 3)");
            None
        }
    }
}
