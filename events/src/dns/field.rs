//! The fields of record data: each reads its tokens to the wire and prints itself from there in canonical text.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::fault::{DnsFault, FaultCode, shown};
use super::label::{self, Raw};
use super::name::DomainName;
use super::token::{self, Token};
use super::{binary, loc, prefix, svcb};

/// The most octets in one character-string (RFC 1035, 3.3).
pub(super) const CHARACTER_STRING_OCTETS: usize = 255;

/// The labels of an IPv4 address that was written where a name belongs.
const IPV4_LABELS: usize = 4;

/// One field of record data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Field {
    /// A number of one octet.
    U8,
    /// A number of two octets, the high one first.
    U16,
    /// A number of four octets, the high one first.
    U32,
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
    /// One character-string.
    String,
    /// One character-string that may be left out.
    MaybeString,
    /// One or more character-strings up to the end of the data.
    Strings,
    /// The number or the name of a DNSSEC algorithm.
    Algorithm,
    /// The number or the name of a kind of certificate (RFC 4398, 2.1).
    CertificateType,
    /// Octets in hexadecimal up to the end of the data.
    Hex,
    /// Octets in base 64 up to the end of the data.
    Base64,
    /// Six octets, `00-00-5e-00-53-01`.
    Eui48,
    /// Eight octets in the same way.
    Eui64,
    /// 64 bits as four groups, `0014:4fff:ff20:ee64` (RFC 6742).
    Locator,
    /// A place on earth (RFC 1876).
    Location,
    /// Address prefixes (RFC 3123).
    Prefixes,
    /// An IPSECKEY whole: its gateway depends on a number before it (RFC 4025).
    Gateway,
    /// A bitmap of record types (RFC 4034, 4.1.2).
    Types,
    /// Parameters of a service (RFC 9460, 2.1).
    Parameters,
    /// Octets that nobody looks into, in the generic form (RFC 3597, 5).
    Opaque,
}

/// How names without a final dot are read.
#[derive(Clone, Copy)]
pub(crate) enum Names<'t> {
    /// They are refused; the zone serves to show how they are written.
    Absolute(Option<&'t DomainName>),
    /// These labels follow them, as `$ORIGIN` says.
    Under(&'t [Vec<u8>]),
}

/// Tokens as far as they are not read yet.
pub(crate) struct Tokens<'t> {
    rest: std::vec::IntoIter<Token<'t>>,
    names: Names<'t>,
}

impl<'t> Tokens<'t> {
    pub(crate) fn new(tokens: Vec<Token<'t>>, names: Names<'t>) -> Self {
        Self { rest: tokens.into_iter(), names }
    }

    /// The next token, if there is one.
    pub(super) fn take(&mut self) -> Option<Token<'t>> {
        self.rest.next()
    }

    pub(super) fn next(&mut self, what: &str) -> Result<Token<'t>, DnsFault> {
        self.take().ok_or_else(|| DnsFault::rdata(format!("{what} is missing at the end")))
    }

    /// The next token, which must not be in quotes.
    pub(super) fn word(&mut self, what: &str) -> Result<&'t str, DnsFault> {
        let token = self.next(what)?;
        if token.quoted {
            return Err(DnsFault::rdata(format!("{what} is in quotes: write it without them")));
        }
        Ok(token.text)
    }

    pub(super) fn number(&mut self, most: u32) -> Result<u32, DnsFault> {
        let word = self.word("a number")?;
        let number = word.bytes().all(|c| c.is_ascii_digit()).then(|| word.parse().ok()).flatten();
        number
            .filter(|number| *number <= most)
            .ok_or_else(|| DnsFault::rdata(format!("{} is not a number from 0 to {most}", shown(word))))
    }

    /// A number, or one of these names for it.
    fn named(&mut self, most: u32, names: &[(u16, &str)]) -> Result<u32, DnsFault> {
        let next = self.rest.as_slice().first().filter(|token| !token.quoted);
        let known =
            next.and_then(|token| names.iter().find(|(_, name)| name.eq_ignore_ascii_case(token.text)));
        match known {
            Some((number, _)) => {
                self.take();
                Ok(u32::from(*number))
            }
            None => self.number(most),
        }
    }

    /// An absolute name as the labels of the wire.
    pub(super) fn name(&mut self) -> Result<(&'t str, Vec<Vec<u8>>), DnsFault> {
        let word = self.word("the name")?;
        Ok((word, target(word, self.names)?))
    }

    /// Refuses what is left over.
    pub(crate) fn finish(mut self) -> Result<(), DnsFault> {
        match self.take() {
            None => Ok(()),
            Some(token) => Err(DnsFault::rdata(format!(
                "{} is more than the type has fields for: leave it out",
                shown(token.text)
            ))),
        }
    }
}

impl Field {
    /// Whether nothing at the end of the octets stands for something: then nothing is printed either.
    pub(crate) fn may_be_absent(self) -> bool {
        matches!(self, Self::MaybeString | Self::Types | Self::Parameters)
    }

    /// Reads this field from tokens and appends its octets.
    pub(crate) fn scan(self, tokens: &mut Tokens<'_>, out: &mut Vec<u8>) -> Result<(), DnsFault> {
        match self {
            // `number` bounds each by what fits.
            Self::U8 => out.push(tokens.number(u32::from(u8::MAX))? as u8),
            Self::U16 => out.extend((tokens.number(u32::from(u16::MAX))? as u16).to_be_bytes()),
            Self::U32 => out.extend(tokens.number(u32::MAX)?.to_be_bytes()),
            Self::Algorithm => out.push(tokens.named(u32::from(u8::MAX), &binary::ALGORITHMS)? as u8),
            Self::CertificateType => {
                let number = tokens.named(u32::from(u16::MAX), &binary::CERTIFICATE_TYPES)?;
                out.extend((number as u16).to_be_bytes());
            }
            Self::Ipv4 => out.extend(ipv4(tokens.word("the address")?)?.octets()),
            Self::Ipv6 => out.extend(ipv6(tokens.word("the address")?)?.octets()),
            Self::Name | Self::Host | Self::HostOrNone => {
                let (word, labels) = tokens.name()?;
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
            Self::String => push_string(tokens.next("the text")?, out)?,
            Self::MaybeString => {
                if let Some(token) = tokens.take() {
                    push_string(token, out)?;
                }
            }
            Self::Strings => scan_strings(tokens, out)?,
            Self::Hex => out.extend(binary::scan_hex(tokens)?),
            Self::Base64 => out.extend(binary::scan_base64(tokens)?),
            Self::Eui48 => binary::scan_eui(tokens, 6, out)?,
            Self::Eui64 => binary::scan_eui(tokens, 8, out)?,
            Self::Locator => binary::scan_locator(tokens, out)?,
            Self::Types => binary::scan_types(tokens, out)?,
            Self::Location => loc::scan(tokens, out)?,
            Self::Prefixes => prefix::scan(tokens, out)?,
            Self::Gateway => binary::scan_gateway(tokens, out)?,
            Self::Parameters => svcb::scan(tokens, out)?,
            Self::Opaque => {
                return Err(DnsFault::rdata(
                    "the type has no name: write its data in the generic form, `\\#`, the number of octets, and the octets in hexadecimal",
                ));
            }
        }
        Ok(())
    }

    /// Prints this field from the start of `wire` in canonical text, and moves `wire` behind it.
    pub(crate) fn print(self, wire: &mut &[u8], out: &mut String) -> Result<(), DnsFault> {
        match self {
            Self::U8 | Self::Algorithm => out.push_str(&u8::from_be_bytes(take(wire)?).to_string()),
            Self::U16 | Self::CertificateType => {
                out.push_str(&u16::from_be_bytes(take(wire)?).to_string());
            }
            Self::U32 => out.push_str(&u32::from_be_bytes(take(wire)?).to_string()),
            Self::Ipv4 => out.push_str(&Ipv4Addr::from(take::<4>(wire)?).to_string()),
            Self::Ipv6 => out.push_str(&Ipv6Addr::from(take::<16>(wire)?).to_string()),
            Self::Name | Self::Host | Self::HostOrNone => print_name(wire, out)?,
            Self::Tag => {
                let tag = take_string(wire)?;
                check_tag(tag)?;
                out.extend(tag.iter().map(|c| char::from(c.to_ascii_lowercase())));
            }
            Self::Text => token::push_quoted(out, std::mem::take(wire)),
            Self::String => token::push_quoted(out, take_string(wire)?),
            Self::MaybeString => {
                if !wire.is_empty() {
                    token::push_quoted(out, take_string(wire)?);
                }
            }
            Self::Strings => {
                token::push_quoted(out, take_string(wire)?);
                while !wire.is_empty() {
                    out.push(' ');
                    token::push_quoted(out, take_string(wire)?);
                }
            }
            Self::Hex => binary::print_hex(wire, out)?,
            Self::Base64 => binary::print_base64(wire, out)?,
            Self::Eui48 => binary::print_eui(&take::<6>(wire)?, out),
            Self::Eui64 => binary::print_eui(&take::<8>(wire)?, out),
            Self::Locator => binary::print_locator(take(wire)?, out),
            Self::Types => binary::print_types(wire, out)?,
            Self::Location => loc::print(take(wire)?, out)?,
            Self::Prefixes => prefix::print(wire, out)?,
            Self::Gateway => binary::print_gateway(wire, out)?,
            Self::Parameters => svcb::print(wire, out)?,
            Self::Opaque => {
                let octets = std::mem::take(wire);
                out.push_str(&format!("\\# {}", octets.len()));
                if !octets.is_empty() {
                    out.push(' ');
                    out.push_str(&hex::encode(octets));
                }
            }
        }
        Ok(())
    }
}

pub(super) fn ipv4(word: &str) -> Result<Ipv4Addr, DnsFault> {
    word.parse().map_err(|_| {
        DnsFault::rdata(format!("{} is not an IPv4 address: write for example `192.0.2.1`", shown(word)))
    })
}

pub(super) fn ipv6(word: &str) -> Result<Ipv6Addr, DnsFault> {
    word.parse().map_err(|_| {
        DnsFault::rdata(format!("{} is not an IPv6 address: write for example `2001:db8::1`", shown(word)))
    })
}

pub(super) fn print_name(wire: &mut &[u8], out: &mut String) -> Result<(), DnsFault> {
    let (labels, rest) = label::read_wire(wire)?;
    *wire = rest;
    out.push_str(&label::print(&labels));
    out.push('.');
    Ok(())
}

/// One character-string, which is not split.
fn push_string(token: Token<'_>, out: &mut Vec<u8>) -> Result<(), DnsFault> {
    let octets = token::octets(token)?;
    let Ok(len) = u8::try_from(octets.len()) else {
        return Err(DnsFault::rdata(format!(
            "a text has {} octets: this field has at most {CHARACTER_STRING_OCTETS}",
            octets.len()
        )));
    };
    out.push(len);
    out.extend(octets);
    Ok(())
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
        next = tokens.take();
    }
    Ok(())
}

/// The next octets on the wire.
pub(super) fn take<const N: usize>(wire: &mut &[u8]) -> Result<[u8; N], DnsFault> {
    let (octets, rest) = wire.split_first_chunk().ok_or_else(cut)?;
    *wire = rest;
    Ok(*octets)
}

/// So many octets from the wire.
pub(super) fn take_slice<'w>(wire: &mut &'w [u8], octets: usize) -> Result<&'w [u8], DnsFault> {
    let (taken, rest) = wire.split_at_checked(octets).ok_or_else(cut)?;
    *wire = rest;
    Ok(taken)
}

/// The next character-string on the wire.
pub(super) fn take_string<'w>(wire: &mut &'w [u8]) -> Result<&'w [u8], DnsFault> {
    let [len] = take(wire)?;
    let (string, rest) = wire.split_at_checked(usize::from(len)).ok_or_else(cut)?;
    *wire = rest;
    Ok(string)
}

pub(super) fn cut() -> DnsFault {
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
fn target(word: &str, names: Names<'_>) -> Result<Vec<Vec<u8>>, DnsFault> {
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
    let zone = match names {
        Names::Absolute(zone) => zone,
        Names::Under(origin) => return under(word, origin),
    };
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

/// The same where `$ORIGIN` completes what has no final dot.
fn under(word: &str, origin: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, DnsFault> {
    if word == "@" {
        return Ok(origin.to_vec());
    }
    let scanned = label::scan(word, Raw::Target)?;
    if scanned.labels.len() == IPV4_LABELS && label::print(&scanned.labels).parse::<Ipv4Addr>().is_ok() {
        return Err(address(word));
    }
    let mut labels = scanned.labels;
    if !scanned.absolute {
        labels.extend(origin.iter().cloned());
        label::check_length(&labels, 1, word)?;
    }
    Ok(labels)
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
