//! Zones and RRsets in the shapes of PowerDNS.

use headwater_events::dns::{DomainName, RrType};
use headwater_events::event::Labels;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::query::rrsets::ShownRrset;

/// Labels under which a domain bears what clients set and want to read again, and nobody else looks at.
pub const KIND: &str = "pdns.kind";
/// As [`KIND`].
pub const ACCOUNT: &str = "pdns.account";
/// As [`KIND`].
pub const SOA_EDIT: &str = "pdns.soa_edit";
/// As [`KIND`].
pub const SOA_EDIT_API: &str = "pdns.soa_edit_api";

/// What a zone is of that none says otherwise.
pub const DEFAULT_KIND: &str = "Native";
/// As PowerDNS makes zones by its API.
pub const DEFAULT_SOA_EDIT_API: &str = "DEFAULT";

/// Octets of a full character-string.
const FULL_STRING_BYTES: usize = 255;

/// The id of a zone in paths: its name with the final dot, and what a path cannot hold by its number.
pub fn zone_id(name: &str) -> String {
    format!("{}.", name.replace('/', "=2F"))
}

/// The name that an id means: `=2F` is a slash.
pub fn zone_name(id: &str) -> Option<DomainName> {
    let mut name = String::with_capacity(id.len());
    let mut rest = id;
    while let Some((before, after)) = rest.split_once('=') {
        name.push_str(before);
        let code = u8::from_str_radix(after.get(..2)?, 16).ok()?;
        name.push(char::from(code));
        rest = after.get(2..)?;
    }
    name.push_str(rest);
    DomainName::parse(&name).ok()
}

fn label<'a>(labels: &'a Labels, key: &str, default: &'a str) -> &'a str {
    labels.get(key).map_or(default, String::as_str)
}

/// A zone without its RRsets.
pub fn zone(name: &DomainName, labels: &Labels, serial: u32) -> Map<String, Value> {
    let id = zone_id(name.as_str());
    let body = json!({
        "id": id, "name": format!("{name}."), "url": format!("/api/v1/servers/localhost/zones/{id}"),
        "kind": label(labels, KIND, DEFAULT_KIND), "account": label(labels, ACCOUNT, ""),
        "serial": serial, "edited_serial": serial, "notified_serial": 0, "last_check": 0,
        "dnssec": false, "masters": [], "catalog": "",
    });
    match body {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

/// The same with what only a single zone shows.
pub fn whole_zone(name: &DomainName, labels: &Labels, serial: u32) -> Map<String, Value> {
    let mut fields = zone(name, labels, serial);
    let more = json!({
        "api_rectify": false, "nsec3narrow": false, "nsec3param": "", "presigned": false,
        "soa_edit": label(labels, SOA_EDIT, ""),
        "soa_edit_api": label(labels, SOA_EDIT_API, DEFAULT_SOA_EDIT_API),
        "master_tsig_key_ids": [], "slave_tsig_key_ids": [],
    });
    if let Value::Object(more) = more {
        fields.extend(more);
    }
    fields
}

/// An RRset.
#[derive(Debug, Serialize)]
pub struct Rrset {
    name: String,
    r#type: String,
    ttl: u32,
    records: Vec<Record>,
    comments: Vec<Comment>,
}

#[derive(Debug, Serialize)]
struct Record {
    content: String,
    disabled: bool,
}

/// The one comment that an RRset has; nobody keeps whose it is, nor since when.
#[derive(Debug, Serialize)]
struct Comment {
    content: String,
    account: &'static str,
    modified_at: u32,
}

impl Rrset {
    /// An RRset of a zone.
    pub fn new(one: ShownRrset, zone: &DomainName) -> Self {
        let rrtype = one.rrtype;
        let record = |text: String| Record { content: content(rrtype, text), disabled: false };
        let comment = |content| Comment { content, account: "", modified_at: 0 };
        Self {
            name: absolute(&one, zone),
            r#type: rrtype.to_string(),
            ttl: one.body.ttl.seconds(),
            records: one.body.records.into_iter().map(record).collect(),
            comments: one.body.comment.map(comment).into_iter().collect(),
        }
    }
}

/// The owner with the final dot.
pub fn absolute(one: &ShownRrset, zone: &DomainName) -> String {
    let name = one.owner.absolute(zone);
    if name.ends_with('.') { name } else { format!("{name}.") }
}

/// A value as clients read it: a text that is longer than one character-string is one text again, as it was sent.
pub fn content(rrtype: RrType, text: String) -> String {
    if rrtype == RrType::TXT { one_string(&text).unwrap_or(text) } else { text }
}

/// Full character-strings and what follows them, as one; none where there are others, which mean something.
fn one_string(text: &str) -> Option<String> {
    let inner = text.strip_prefix('"')?.strip_suffix('"')?;
    let (mut joined, mut length, mut strings) = (String::with_capacity(inner.len()), 0, 1);
    let mut rest = inner;
    while let Some(first) = rest.chars().next() {
        if let Some(after) = rest.strip_prefix("\" \"") {
            if length != FULL_STRING_BYTES {
                return None;
            }
            (length, strings, rest) = (0, strings + 1, after);
            continue;
        }
        let taken = match rest.strip_prefix('\\') {
            Some(escaped) if escaped.starts_with(|c: char| c.is_ascii_digit()) => 4,
            Some(escaped) => 1 + escaped.chars().next()?.len_utf8(),
            None => first.len_utf8(),
        };
        let (one, after) = rest.split_at_checked(taken)?;
        joined.push_str(one);
        length += if first == '\\' { 1 } else { first.len_utf8() };
        rest = after;
    }
    (strings > 1).then(|| format!("\"{joined}\""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_events::dns::Rdata;

    #[test]
    fn a_long_text_is_read_as_it_was_sent() {
        let zone = DomainName::parse("example.com").unwrap();
        let stored = |text: &str| Rdata::parse(RrType::TXT, text, &zone).unwrap().as_text().to_owned();
        for length in [1, 254, 255, 256, 510, 511, 2_000] {
            let sent = format!("\"{}\"", "k".repeat(length));
            assert_eq!(content(RrType::TXT, stored(&sent)), sent, "{length}");
        }
        // An escape is one octet, wherever it stands.
        let sent = format!("\"{}\\\"{}\\\\ x\"", "k".repeat(254), "k".repeat(254));
        assert_eq!(content(RrType::TXT, stored(&sent)), sent);
        // What is several strings by itself stays so.
        for sent in ["\"a\" \"b\"", "\"a\" \"\"", "\"\"", "\"a\\\" \\\"b\""] {
            assert_eq!(content(RrType::TXT, stored(sent)), sent);
        }
    }

    #[test]
    fn ids_and_names_are_one() {
        for (id, name) in [
            ("example.com.", "example.com"),
            ("EXAMPLE.com", "example.com"),
            ("0=2F25.2.0.192.in-addr.arpa.", "0/25.2.0.192.in-addr.arpa"),
            ("0=2f25.2.0.192.in-addr.arpa.", "0/25.2.0.192.in-addr.arpa"),
        ] {
            assert_eq!(zone_name(id).unwrap().as_str(), name, "{id}");
        }
        assert_eq!(zone_id("0/25.2.0.192.in-addr.arpa"), "0=2F25.2.0.192.in-addr.arpa.");
        for bad in ["", ".", "a=", "a=2", "a=zz", "a=\u{e4}\u{e4}"] {
            assert!(zone_name(bad).is_none(), "{bad:?}");
        }
    }
}
