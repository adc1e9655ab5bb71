//! Owner names of a zone, relative to it, and their sort keys.
//!
//! An [`OwnerName`] is `@` or labels in the canonical spelling of `label`: `www`, `*.a`, `_sip._tcp`, `a\.b`.
//! `@` alone is the apex; a label that is the octet `@` is spelled `\@`, so no two owners share a spelling.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::fault::{DnsFault, FaultCode, shown};
use super::label::{self, Raw};
use super::name::DomainName;
use super::ownerkey::{self, OwnerKey};

/// How the apex is spelled.
const APEX: &str = "@";

/// The owner of an RRset, relative to its zone.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(try_from = "String", into = "String")]
#[schema(value_type = String, example = "www")]
pub struct OwnerName(String);

impl OwnerName {
    /// The zone's own name.
    pub fn apex() -> Self {
        Self(APEX.to_owned())
    }

    /// Reads an owner as people write it: relative, or absolute with the final dot.
    pub fn parse(input: &str, zone: &DomainName) -> Result<Self, DnsFault> {
        if input == APEX {
            return Ok(Self::apex());
        }
        let scanned = label::scan(input, Raw::Owner)?;
        let below = strip_zone(&scanned.labels, zone);
        let labels = match (below, scanned.absolute) {
            (Some(below), true) => below,
            (None, true) => {
                let detail = format!(
                    "{} is not in {zone}: write a name that ends in `.{zone}.`, or one relative to it such as `www`",
                    shown(input)
                );
                return Err(DnsFault::new(FaultCode::OutsideZone, detail));
            }
            (Some(below), false) => {
                let short = Self::from_labels(below);
                let detail = format!(
                    "{} repeats the zone: write `{short}`, or with the final dot {}",
                    shown(input),
                    shown(&format!("{input}."))
                );
                return Err(DnsFault::new(FaultCode::LooksAbsolute, detail));
            }
            (None, false) => &scanned.labels,
        };
        label::check_length(labels, zone.wire_len(), input)?;
        Ok(Self::from_labels(labels))
    }

    /// Reads an owner that is relative to whatever zone.
    pub fn relative(input: &str) -> Result<Self, DnsFault> {
        if input == APEX {
            return Ok(Self::apex());
        }
        let scanned = label::scan(input, Raw::Owner)?;
        if scanned.absolute {
            let detail =
                format!("{}: write a name relative to its domain, without a final dot", shown(input));
            return Err(DnsFault::name(detail));
        }
        label::check_length(&scanned.labels, 1, input)?;
        Ok(Self::from_labels(&scanned.labels))
    }

    /// Reads the canonical spelling and nothing else, as it stands in events and keys of maps.
    pub fn from_canonical(text: &str) -> Result<Self, DnsFault> {
        if text == APEX {
            return Ok(Self::apex());
        }
        let scanned = label::scan(text, Raw::Owner)?;
        let owner = Self::from_labels(&scanned.labels);
        if owner.0 != text {
            return Err(DnsFault::name(format!(
                "{} is not in canonical form: write {}",
                shown(text),
                shown(&owner.0)
            )));
        }
        Ok(owner)
    }

    /// The owner that an uncompressed absolute name on the wire is in the zone.
    pub fn from_wire(wire: &[u8], zone: &DomainName) -> Result<Self, DnsFault> {
        let (labels, rest) = label::read_wire(wire)?;
        if !rest.is_empty() {
            return Err(DnsFault::name("a name on the wire is followed by other octets"));
        }
        match strip_zone(&labels, zone) {
            Some(below) => Ok(Self::from_labels(below)),
            None => {
                let detail = format!("{} is not in {zone}", shown(&label::print(&labels)));
                Err(DnsFault::new(FaultCode::OutsideZone, detail))
            }
        }
    }

    /// The owner that an absolute name is in the zone.
    pub(crate) fn of_labels(labels: &[Vec<u8>], zone: &DomainName) -> Result<Self, DnsFault> {
        match strip_zone(labels, zone) {
            Some(below) => Ok(Self::from_labels(below)),
            None => {
                let name = label::print(labels);
                let detail = format!("{} is out of zone: it is not in {zone}", shown(&format!("{name}.")));
                Err(DnsFault::new(FaultCode::OutsideZone, detail))
            }
        }
    }

    /// The owner of a sort key.
    pub fn from_key(key: &str) -> Result<Self, DnsFault> {
        if key.is_empty() {
            return Ok(Self::apex());
        }
        let mut labels = key.split(' ').map(ownerkey::read_label).collect::<Result<Vec<_>, _>>()?;
        labels.reverse();
        label::check_length(&labels, 1, key)?;
        let owner = Self::from_labels(&labels);
        if owner.key().as_str() != key {
            return Err(DnsFault::name(format!("{} is not a sort key in canonical form", shown(key))));
        }
        Ok(owner)
    }

    fn from_labels(labels: &[Vec<u8>]) -> Self {
        if labels.is_empty() { Self::apex() } else { Self(label::print(labels)) }
    }

    /// The owner in canonical presentation: `@`, `www`, `*.a`.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether this is the zone's own name.
    pub fn is_apex(&self) -> bool {
        self.0 == APEX
    }

    /// Whether the leftmost label is `*`.
    pub fn is_wildcard(&self) -> bool {
        self.0 == "*" || self.0.starts_with("*.")
    }

    /// Whether every `xn--` label is the A-label of something: asked of an owner that gets records.
    pub fn check_a_labels(&self) -> Result<(), DnsFault> {
        label::check_a_labels(self.labels())
    }

    /// The labels in presentation format, leftmost first; none at the apex.
    pub fn labels(&self) -> impl Iterator<Item = &str> {
        let mut rest = if self.is_apex() { "" } else { self.as_str() };
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            let (label, tail) = split_label(rest);
            rest = tail;
            Some(label)
        })
    }

    /// The owners between this one and the apex, both left out, nearest first.
    pub fn ancestors(&self) -> impl Iterator<Item = Self> + use<> {
        let labels = self.octets();
        (1..labels.len()).map(move |n| Self::from_labels(&labels[n..]))
    }

    /// The absolute name in presentation format (as a zone file may hold it), without the final dot.
    pub fn absolute(&self, zone: &DomainName) -> String {
        if self.is_apex() { zone.to_string() } else { format!("{}.{zone}", self.0) }
    }

    /// The absolute name as PowerDNS spells it in `records.name`: without a final dot, and with only `.`, `\` and
    /// what is not printable escaped. It differs from [`Self::absolute`] only where a label holds unusual characters.
    pub fn powerdns_name(&self, zone: &DomainName) -> String {
        let mut out = String::with_capacity(self.0.len() + zone.as_str().len() + 1);
        for label in self.octets() {
            ownerkey::push_label(&mut out, &label);
            out.push('.');
        }
        out.push_str(zone.as_str());
        out
    }

    /// The sort key.
    pub fn key(&self) -> OwnerKey {
        let mut out = String::with_capacity(self.0.len());
        for (n, label) in self.octets().iter().rev().enumerate() {
            if n > 0 {
                out.push(' ');
            }
            ownerkey::push_label(&mut out, label);
        }
        OwnerKey::from_owner(out)
    }

    /// The labels as octets, leftmost first.
    fn octets(&self) -> Vec<Vec<u8>> {
        self.labels()
            .map(|label| {
                let mut rest = label.chars();
                let mut octets = Vec::with_capacity(label.len());
                while let Some(c) = rest.next() {
                    // A canonical spelling is ASCII and has no bad escape.
                    let octet = if c == '\\' { label::unescape(&mut rest) } else { u8::try_from(c).ok() };
                    octets.extend(octet);
                }
                octets
            })
            .collect()
    }
}

/// The labels left of the zone's, if they end in those.
fn strip_zone<'l>(labels: &'l [Vec<u8>], zone: &DomainName) -> Option<&'l [Vec<u8>]> {
    let mut below = labels;
    for label in zone.labels().rev() {
        let (last, rest) = below.split_last()?;
        if last != label.as_bytes() {
            return None;
        }
        below = rest;
    }
    Some(below)
}

/// The first label of a non-empty canonical spelling, and what follows its dot.
fn split_label(text: &str) -> (&str, &str) {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '.' => return (&text[..at], &text[at + 1..]),
            _ => {}
        }
    }
    (text, "")
}

impl fmt::Display for OwnerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for OwnerName {
    type Error = DnsFault;

    fn try_from(text: String) -> Result<Self, DnsFault> {
        Self::from_canonical(&text)
    }
}

impl From<OwnerName> for String {
    fn from(owner: OwnerName) -> Self {
        owner.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone() -> DomainName {
        DomainName::parse("example.com").unwrap()
    }

    fn owner(input: &str) -> OwnerName {
        OwnerName::parse(input, &zone()).unwrap()
    }

    #[test]
    fn canonical_spellings() {
        for (input, text) in [
            ("@", "@"),
            ("example.com.", "@"),
            ("WWW", "www"),
            ("www.Example.COM.", "www"),
            ("*", "*"),
            ("\\*", "*"),
            ("\\042.a", "*.a"),
            ("*.A", "*.a"),
            ("a\\*b", "a\\*b"),
            ("x.\\*", "x.\\*"),
            ("_sip._tcp", "_sip._tcp"),
            ("0/25", "0/25"),
            ("a\\.b", "a\\.b"),
            ("a\\046b", "a\\.b"),
            ("\\065\\066", "ab"),
            ("a\\032b", "a\\032b"),
            ("a\\ b", "a\\032b"),
            ("\\@", "\\@"),
            ("a\\;b", "a\\;b"),
            ("\\195\\188", "\\195\\188"),
            ("bücher", "xn--bcher-kva"),
            ("BÜCHER.sub", "xn--bcher-kva.sub"),
            ("a-", "a-"),
            ("1", "1"),
            ("a\\.b.example.com.", "a\\.b"),
            ("www.example.com.example.com.", "www.example.com"),
        ] {
            let owner = owner(input);
            assert_eq!(owner.as_str(), text, "{input}");
            assert_eq!(OwnerName::from_canonical(text), Ok(owner.clone()), "{input}");
            assert_eq!(OwnerName::from_key(owner.key().as_str()), Ok(owner), "{input}");
        }
    }

    #[test]
    fn what_is_the_a_label_of_nothing_can_be_read_but_not_made() {
        for input in
            super::super::name::A_LABELS_OF_NOTHING.into_iter().chain(["xn--\\255", "xn--a\\.b", "xn--a/b"])
        {
            for input in [input.to_owned(), format!("*.{input}"), format!("_sip.{input}.a")] {
                let owner = owner(&input);
                assert_eq!(owner.check_a_labels().unwrap_err().code, FaultCode::InvalidName, "{input}");
                assert_eq!(OwnerName::from_canonical(owner.as_str()), Ok(owner.clone()), "{input}");
                assert_eq!(OwnerName::from_key(owner.key().as_str()), Ok(owner), "{input}");
            }
        }
        for (input, text) in [
            ("xn--bcher-kva", "xn--bcher-kva"),
            ("bücher", "xn--bcher-kva"),
            // Confusables are names of their own, and their A-labels show it.
            ("p\u{430}ypal", "xn--pypal-4ve"),
            ("\u{430}\u{440}\u{440}\u{4cf}\u{435}", "xn--80ak6aa92e"),
            ("_xn--a", "_xn--a"),
            ("_dmarc.xn--bcher-kva", "_dmarc.xn--bcher-kva"),
            ("ab--cd", "ab--cd"),
            ("*", "*"),
            ("@", "@"),
        ] {
            let owner = owner(input);
            assert_eq!((owner.check_a_labels(), owner.as_str()), (Ok(()), text), "{input}");
        }
    }

    #[test]
    fn hostile_owners_are_refused() {
        let label = "a".repeat(64);
        let long = vec!["a".repeat(60); 4].join(".");
        for input in [
            "",
            ".",
            ".a",
            "a..b",
            "a.",
            "a b",
            "a\0",
            "a\\000",
            "a\\000b.example.com.",
            "a\\010",
            "a\\127",
            "a\n",
            "a\\",
            "a\\25",
            "a\\2b5",
            "a\\256",
            "a\\999",
            "a*b",
            "a.*",
            "**",
            "*a",
            "a@b",
            "@.a",
            "a;b",
            "a\"b",
            "(a)",
            "$a",
            "a!b",
            "a\u{ff0e}b",
            "ü\\097",
            "\u{ad}",
            "a\u{2488}",
            "xn--ü",
            &label,
            &long,
        ] {
            let fault = OwnerName::parse(input, &zone()).expect_err(input);
            assert!(
                matches!(fault.code, FaultCode::InvalidName | FaultCode::OutsideZone),
                "{input}: {fault}"
            );
            assert!(!fault.detail.chars().any(char::is_control), "{input:?}: {}", fault.detail);
        }
    }

    #[test]
    fn absolute_spellings() {
        let code = |input: &str| OwnerName::parse(input, &zone()).unwrap_err().code;
        assert_eq!(code("www.example.net."), FaultCode::OutsideZone);
        assert_eq!(code("com."), FaultCode::OutsideZone);
        assert_eq!(code("wwwexample.com."), FaultCode::OutsideZone);
        assert_eq!(code("www\\.example.com."), FaultCode::OutsideZone);
        assert_eq!(code("www.example.com"), FaultCode::LooksAbsolute);
        assert_eq!(code("WWW.EXAMPLE.COM"), FaultCode::LooksAbsolute);
        assert_eq!(code("example.com"), FaultCode::LooksAbsolute);
        assert!(OwnerName::parse("www.example.com", &zone()).unwrap_err().detail.contains("write `www`"));
    }

    #[test]
    fn length_counts_the_zone() {
        // 3 × 64 octets of labels, 13 for the zone with its root: 50 are left.
        let labels = vec!["a".repeat(63); 3].join(".");
        assert!(OwnerName::parse(&format!("{}.{labels}", "a".repeat(49)), &zone()).is_ok());
        assert!(OwnerName::parse(&format!("{}.{labels}", "a".repeat(50)), &zone()).is_err());
    }

    #[test]
    fn parts() {
        let deep = owner("*.b\\.c.d");
        assert_eq!(deep.labels().collect::<Vec<_>>(), ["*", "b\\.c", "d"]);
        assert_eq!(deep.ancestors().map(String::from).collect::<Vec<_>>(), ["b\\.c.d", "d"]);
        assert_eq!(owner("x.\\*").ancestors().map(String::from).collect::<Vec<_>>(), ["*"]);
        assert_eq!(deep.key().as_str(), "d b\\.c *");
        assert_eq!(owner("@").key().as_str(), "");
        assert_eq!((owner("@").labels().count(), owner("@").ancestors().count()), (0, 0));
        assert_eq!(owner("@").absolute(&zone()), "example.com");
        assert_eq!(owner("a\\;b").absolute(&zone()), "a\\;b.example.com");
        assert_eq!(owner("a\\;b").powerdns_name(&zone()), "a;b.example.com");
        assert!(deep.is_wildcard() && owner("*").is_wildcard() && !owner("a").is_wildcard());
        assert_eq!(OwnerName::from_wire(b"\x03WwW\x07example\x03com\0", &zone()), Ok(owner("www")));
        assert!(OwnerName::from_wire(b"\x03www\x07example\x03net\0", &zone()).is_err());
        assert!(OwnerName::from_wire(b"\xc0\x00", &zone()).is_err());
    }

    /// Measured: what PowerDNS 4.7.3 (gpgsql, `rectify-zone` on a signed zone) writes for these owners.
    #[test]
    fn powerdns_spells_names_and_keys_alike() {
        for (input, name, key) in [
            ("@", "example.com", ""),
            ("www", "www.example.com", "www"),
            ("*.A", "*.a.example.com", "a *"),
            ("a\\.b.c", "a\\.b.c.example.com", "c a\\.b"),
            ("a\\;b.x", "a;b.x.example.com", "x a;b"),
            ("\\064.y", "@.y.example.com", "y @"),
            ("a\\032b", "a\\032b.example.com", "a\\032b"),
            ("a\\255\\200", "a\\255\\200.example.com", "a\\255\\200"),
            ("a\\\\b", "a\\\\b.example.com", "a\\\\b"),
            ("a\\\"b.\\(c\\)", "a\"b.(c).example.com", "(c) a\"b"),
            ("a\\$", "a$.example.com", "a$"),
            ("0/25", "0/25.example.com", "0/25"),
            ("_sip._tcp", "_sip._tcp.example.com", "_tcp _sip"),
            ("a\\!b", "a!b.example.com", "a!b"),
        ] {
            assert_eq!(owner(input).powerdns_name(&zone()), name, "{input}");
            assert_eq!(owner(input).key().as_str(), key, "{input}");
        }
    }

    #[test]
    fn serde_takes_only_the_canonical_form() {
        for text in ["\"WWW\"", "\"bücher\"", "\"a\\\\046b\"", "\"www.\"", "\"\""] {
            assert!(serde_json::from_str::<OwnerName>(text).is_err(), "{text}");
        }
        assert_eq!(serde_json::from_str::<OwnerName>("\"*.a\"").unwrap(), owner("*.a"));
        assert!(serde_json::from_str::<OwnerKey>("\"a  b\"").is_err());
        assert_eq!(serde_json::from_str::<OwnerKey>("\"a b\"").unwrap(), owner("b.a").key());
    }
}
