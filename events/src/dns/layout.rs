//! How the data of each record type is laid out: a table of types, each a row of fields.
//!
//! A field knows three things: how it reads its tokens to the wire, how it prints itself from the wire in
//! canonical text, and what it refuses. Both directions come from the same row, so they cannot disagree.
//! A new type is one row of [`TABLE`] and, if its fields are new, one more kind of [`Field`].

use std::net::{Ipv4Addr, Ipv6Addr};

use super::fault::{DnsFault, FaultCode, shown};
use super::label::{self, Raw};
use super::name::DomainName;
use super::token::{self, Token};

/// The most octets in one character-string (RFC 1035, 3.3).
const CHARACTER_STRING_OCTETS: usize = 255;

/// The labels of an IPv4 address that was written where a name belongs.
const IPV4_LABELS: usize = 4;

/// One field of record data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Field {
    /// A number of one octet.
    U8,
    /// A number of two octets, the high one first.
    U16,
    /// An IPv4 address, strictly four decimal numbers.
    Ipv4,
    /// An IPv6 address.
    Ipv6,
    /// Any domain name.
    Name,
    /// The name of a host.
    Host,
    /// The name of a host, or the root for "none".
    HostOrNone,
    /// The tag of a CAA property (RFC 8659, 4.1): letters and digits, kept in lower case.
    Tag,
    /// Text up to the end of the data, without a length.
    Text,
    /// One or more character-strings up to the end of the data.
    Strings,
}

/// One record type.
#[derive(Debug)]
pub(crate) struct Row {
    /// Its number.
    pub(crate) code: u16,
    mnemonic: &'static str,
    /// Its fields in order.
    pub(crate) fields: &'static [Field],
    /// Whether an RRset of it has one record only.
    pub(crate) single: bool,
}

const fn many(code: u16, mnemonic: &'static str, fields: &'static [Field]) -> Row {
    Row { code, mnemonic, fields, single: false }
}

const fn single(code: u16, mnemonic: &'static str, fields: &'static [Field]) -> Row {
    Row { code, mnemonic, fields, single: true }
}

/// Every type whose data can be read.
pub(crate) static TABLE: [Row; 9] = [
    many(1, "A", &[Field::Ipv4]),
    many(2, "NS", &[Field::Host]),
    single(5, "CNAME", &[Field::Name]),
    many(12, "PTR", &[Field::Name]),
    many(15, "MX", &[Field::U16, Field::HostOrNone]),
    many(16, "TXT", &[Field::Strings]),
    many(28, "AAAA", &[Field::Ipv6]),
    many(33, "SRV", &[Field::U16, Field::U16, Field::U16, Field::HostOrNone]),
    many(257, "CAA", &[Field::U8, Field::Tag, Field::Text]),
];

/// The row of a type.
pub(crate) fn row(code: u16) -> Option<&'static Row> {
    TABLE.iter().find(|row| row.code == code)
}

/// The names of all types, for people.
pub(crate) fn mnemonics() -> String {
    TABLE.iter().map(|row| row.mnemonic).collect::<Vec<_>>().join(" ")
}

/// Tokens as far as they are not read yet.
pub(crate) struct Tokens<'t> {
    rest: std::vec::IntoIter<Token<'t>>,
    /// The zone, to show the absolute spelling of a relative name.
    zone: Option<&'t DomainName>,
}

impl<'t> Tokens<'t> {
    pub(crate) fn new(tokens: Vec<Token<'t>>, zone: Option<&'t DomainName>) -> Self {
        Self { rest: tokens.into_iter(), zone }
    }

    fn next(&mut self, what: &str) -> Result<Token<'t>, DnsFault> {
        self.rest.next().ok_or_else(|| DnsFault::rdata(format!("{what} is missing at the end")))
    }

    /// The next token, which must not be in quotes.
    fn word(&mut self, what: &str) -> Result<&'t str, DnsFault> {
        let token = self.next(what)?;
        if token.quoted {
            return Err(DnsFault::rdata(format!("{what} is in quotes: write it without them")));
        }
        Ok(token.text)
    }

    fn number(&mut self, most: u32) -> Result<u32, DnsFault> {
        let word = self.word("a number")?;
        let number = word.bytes().all(|c| c.is_ascii_digit()).then(|| word.parse().ok()).flatten();
        number
            .filter(|number| *number <= most)
            .ok_or_else(|| DnsFault::rdata(format!("{} is not a number from 0 to {most}", shown(word))))
    }

    /// Refuses what is left over.
    pub(crate) fn finish(mut self) -> Result<(), DnsFault> {
        match self.rest.next() {
            None => Ok(()),
            Some(token) => Err(DnsFault::rdata(format!(
                "{} is more than the type has fields for: leave it out",
                shown(token.text)
            ))),
        }
    }
}

impl Field {
    /// Reads this field from tokens and appends its octets.
    pub(crate) fn scan(self, tokens: &mut Tokens<'_>, out: &mut Vec<u8>) -> Result<(), DnsFault> {
        match self {
            // `number` bounds both by what fits.
            Self::U8 => out.push(tokens.number(u32::from(u8::MAX))? as u8),
            Self::U16 => out.extend((tokens.number(u32::from(u16::MAX))? as u16).to_be_bytes()),
            Self::Ipv4 => {
                let word = tokens.word("the address")?;
                let address: Ipv4Addr = word.parse().map_err(|_| {
                    DnsFault::rdata(format!(
                        "{} is not an IPv4 address: write for example `192.0.2.1`",
                        shown(word)
                    ))
                })?;
                out.extend(address.octets());
            }
            Self::Ipv6 => {
                let word = tokens.word("the address")?;
                let address: Ipv6Addr = word.parse().map_err(|_| {
                    DnsFault::rdata(format!(
                        "{} is not an IPv6 address: write for example `2001:db8::1`",
                        shown(word)
                    ))
                })?;
                out.extend(address.octets());
            }
            Self::Name | Self::Host | Self::HostOrNone => {
                let word = tokens.word("the name")?;
                let labels = target(word, tokens.zone)?;
                if self != Self::Name {
                    check_host(&labels, self == Self::HostOrNone, word)?;
                }
                label::push_wire(out, &labels);
            }
            Self::Tag => {
                let word = tokens.word("the tag")?;
                check_tag(word.as_bytes())?;
                // `check_tag` bounds the length.
                out.push(word.len() as u8);
                out.extend(word.bytes().map(|c| c.to_ascii_lowercase()));
            }
            Self::Text => out.extend(token::octets(tokens.next("the value")?)?),
            Self::Strings => scan_strings(tokens, out)?,
        }
        Ok(())
    }

    /// Prints this field from the start of `wire` in canonical text, and moves `wire` behind it.
    pub(crate) fn print(self, wire: &mut &[u8], out: &mut String) -> Result<(), DnsFault> {
        match self {
            Self::U8 => out.push_str(&u8::from_be_bytes(take(wire)?).to_string()),
            Self::U16 => out.push_str(&u16::from_be_bytes(take(wire)?).to_string()),
            Self::Ipv4 => out.push_str(&Ipv4Addr::from(take::<4>(wire)?).to_string()),
            Self::Ipv6 => out.push_str(&Ipv6Addr::from(take::<16>(wire)?).to_string()),
            Self::Name | Self::Host | Self::HostOrNone => {
                let (labels, rest) = label::read_wire(wire)?;
                *wire = rest;
                out.push_str(&label::print(&labels));
                out.push('.');
            }
            Self::Tag => {
                let tag = take_string(wire)?;
                check_tag(tag)?;
                out.extend(tag.iter().map(|c| char::from(c.to_ascii_lowercase())));
            }
            Self::Text => token::push_quoted(out, std::mem::take(wire)),
            Self::Strings => {
                token::push_quoted(out, take_string(wire)?);
                while !wire.is_empty() {
                    out.push(' ');
                    token::push_quoted(out, take_string(wire)?);
                }
            }
        }
        Ok(())
    }
}

/// Character-strings; what is longer than one may be goes on in the next.
fn scan_strings(tokens: &mut Tokens<'_>, out: &mut Vec<u8>) -> Result<(), DnsFault> {
    let mut next = Some(tokens.next("the text")?);
    while let Some(token) = next {
        let octets = token::octets(token)?;
        if octets.is_empty() {
            out.push(0);
        }
        for chunk in octets.chunks(CHARACTER_STRING_OCTETS) {
            // A chunk has at most 255 octets.
            out.push(chunk.len() as u8);
            out.extend(chunk);
        }
        next = tokens.rest.next();
    }
    Ok(())
}

/// The next octets on the wire.
fn take<const N: usize>(wire: &mut &[u8]) -> Result<[u8; N], DnsFault> {
    let (octets, rest) = wire.split_first_chunk().ok_or_else(cut)?;
    *wire = rest;
    Ok(*octets)
}

/// The next character-string on the wire.
fn take_string<'w>(wire: &mut &'w [u8]) -> Result<&'w [u8], DnsFault> {
    let [len] = take(wire)?;
    let (string, rest) = wire.split_at_checked(usize::from(len)).ok_or_else(cut)?;
    *wire = rest;
    Ok(string)
}

fn cut() -> DnsFault {
    DnsFault::rdata("the octets of the value are cut short")
}

fn check_tag(tag: &[u8]) -> Result<(), DnsFault> {
    if tag.is_empty() || tag.len() > CHARACTER_STRING_OCTETS || !tag.iter().all(u8::is_ascii_alphanumeric) {
        return Err(DnsFault::rdata(
            "the tag is one or more letters and digits: write for example `issue`, `issuewild` or `iodef`",
        ));
    }
    Ok(())
}

/// A name in record data: absolute, or a fault that shows the absolute spelling.
fn target(word: &str, zone: Option<&DomainName>) -> Result<Vec<Vec<u8>>, DnsFault> {
    // The two refusals by spelling look at unescaped colons only, which canonical text never has: what is
    // accepted stays acceptable.
    if word.strip_suffix('.').unwrap_or(word).parse::<Ipv6Addr>().is_ok() {
        return Err(address(word));
    }
    if word.match_indices("://").any(|(at, _)| !word[..at].ends_with('\\')) {
        return Err(DnsFault::rdata(format!(
            "{} is a URL, not a name: write the name of the host alone",
            shown(word)
        )));
    }
    if word == "@" {
        let apex = zone.map_or_else(|| "example.com".to_owned(), ToString::to_string);
        return Err(DnsFault::new(FaultCode::RelativeName, format!("`@` is relative: write `{apex}.`")));
    }
    let scanned = label::scan(word, Raw::Target)?;
    if scanned.labels.len() == IPV4_LABELS && label::print(&scanned.labels).parse::<Ipv4Addr>().is_ok() {
        return Err(address(word));
    }
    if scanned.absolute {
        return Ok(scanned.labels);
    }
    let name = label::print(&scanned.labels);
    let as_it_stands = shown(&format!("{name}."));
    let detail = match zone {
        Some(zone) if !ends_in(&name, zone) => {
            let inside = shown(&format!("{name}.{zone}."));
            // One label alone is hardly a host of the whole world; several rather are.
            let (first, second) =
                if scanned.labels.len() == 1 { (inside, as_it_stands) } else { (as_it_stands, inside) };
            format!("{} is relative: write {first}, or {second} if that is meant", shown(word))
        }
        _ => format!("{} is relative: write {as_it_stands} with the final dot", shown(word)),
    };
    Err(DnsFault::new(FaultCode::RelativeName, detail))
}

fn address(word: &str) -> DnsFault {
    DnsFault::rdata(format!(
        "{} is an address, not a name: write the name of the host, or an A or AAAA record",
        shown(word)
    ))
}

fn ends_in(name: &str, zone: &DomainName) -> bool {
    name.strip_suffix(zone.as_str()).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

/// Refuses labels that no host can be called by; `none`: the root stands for "none" and is allowed.
fn check_host(labels: &[Vec<u8>], none: bool, word: &str) -> Result<(), DnsFault> {
    if labels.is_empty() && !none {
        return Err(DnsFault::rdata("the root is no host: write a host name such as `ns1.example.net.`"));
    }
    let fine = |label: &Vec<u8>| {
        label.iter().all(|octet| label::is_plain(*octet) && *octet != b'/')
            && label.first() != Some(&b'-')
            && label.last() != Some(&b'-')
    };
    if !labels.iter().all(fine) {
        return Err(DnsFault::rdata(format!(
            "{} is not the name of a host: its labels have letters, digits and `_`, and `-` between them",
            shown(word)
        )));
    }
    Ok(())
}
