//! The grammar of tenant strings. A string of an artifact is data and never becomes configuration text; what a rule
//! here lets through may still hold quotes, brackets or dollars, so a reader must carry it, never paste it.

use std::net::{Ipv4Addr, Ipv6Addr};

/// The most characters in a name.
pub const NAME_MAX_BYTES: usize = 253;
/// The most characters in a label.
pub const LABEL_MAX_BYTES: usize = 63;
/// The longest path of a health check.
pub const PATH_MAX_BYTES: usize = 2_048;

/// Whether `text` is a name in its one spelling: lower case, A-labels, absolute without the final dot.
pub fn is_name(text: &str) -> bool {
    is_name_of(text, |byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_'))
}

/// Whether `text` is the name of a zone: as [`is_name`], and with the slashes of RFC 2317.
pub fn is_zone_name(text: &str) -> bool {
    is_name_of(text, |byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'/'))
}

fn is_name_of(text: &str, allowed: fn(u8) -> bool) -> bool {
    let is_label =
        |label: &str| !label.is_empty() && label.len() <= LABEL_MAX_BYTES && label.bytes().all(allowed);
    text.len() <= NAME_MAX_BYTES && text.split('.').all(is_label)
}

/// Whether `text` is a hostname that can be served: a name, or `*.` before one.
pub fn is_hostname(text: &str) -> bool {
    text.len() <= NAME_MAX_BYTES && is_name(text.strip_prefix("*.").unwrap_or(text))
}

/// Whether a name or wildcard is the domain itself or lies below it.
pub fn is_inside(name: &str, domain: &str) -> bool {
    match name.strip_suffix(domain) {
        Some(before) => before.is_empty() || before.ends_with('.'),
        None => false,
    }
}

/// Whether `text` names a host: a name, or an address in its one spelling (IPv6 without brackets).
pub fn is_host(text: &str) -> bool {
    is_address(text) || (is_name(text) && !looks_numeric(text))
}

/// Whether `text` is an address in its one spelling.
pub fn is_address(text: &str) -> bool {
    text.parse::<Ipv4Addr>().is_ok_and(|address| address.to_string() == text)
        || text.parse::<Ipv6Addr>().is_ok_and(|address| address.to_string() == text)
}

/// Whether resolvers may take the name for an address, as in `127.1`, `0x7f.1` or `2130706433`.
fn looks_numeric(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or_default();
    let hex = last.strip_prefix("0x");
    last.bytes().all(|byte| byte.is_ascii_digit())
        || hex.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Whether `text` can stand in a `Host` field: a host, IPv6 in brackets, perhaps with a port.
pub fn is_authority(text: &str) -> bool {
    if text.len() > NAME_MAX_BYTES {
        return false;
    }
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((inner, rest)) => {
            if inner.parse::<Ipv6Addr>().is_err() || !is_address(inner) {
                return false;
            }
            return rest.is_empty() || rest.strip_prefix(':').is_some_and(is_port);
        }
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    is_host(host) && port.is_none_or(is_port)
}

fn is_port(text: &str) -> bool {
    !text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u16>().is_ok()
}

/// Host and port as a request target needs them: IPv6 in brackets.
pub fn authority(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// Whether `text` is the path of a request: a slash, then visible ASCII but `#`.
pub fn is_path(text: &str) -> bool {
    text.starts_with('/')
        && text.len() <= PATH_MAX_BYTES
        && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#')
}

/// Whether `text` is one or more `CERTIFICATE` blocks and nothing else, as this crate writes PEM.
pub fn is_certificate_chain(text: &str) -> bool {
    const BEGIN: &str = "-----BEGIN CERTIFICATE-----\n";
    const END: &str = "-----END CERTIFICATE-----\n";
    let mut rest = text;
    while !rest.is_empty() {
        let Some((body, after)) = rest.strip_prefix(BEGIN).and_then(|rest| rest.split_once(END)) else {
            return false;
        };
        let is_line = |line: &str| {
            !line.is_empty()
                && line.len() <= 64
                && line.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'='))
        };
        let Some(lines) = body.strip_suffix('\n') else { return false };
        if !lines.split('\n').all(is_line) {
            return false;
        }
        rest = after;
    }
    !text.is_empty()
}
