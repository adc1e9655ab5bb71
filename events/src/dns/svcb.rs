//! Parameters of SVCB and HTTPS (RFC 9460, 2.1 and 7; RFC 9461; RFC 9540; RFC 9848): `alpn=h3,h2 port=443`.
//!
//! On the wire they stand in the order of their numbers, each once. A key that is known is written by its name only,
//! because loaders read its number in two ways.

use std::collections::BTreeMap;

use super::fault::{DnsFault, shown};
use super::field::{self, CHARACTER_STRING_OCTETS, Tokens, take, take_slice};
use super::owner::OwnerName;
use super::rdata::Rdata;
use super::rrtype::RrType;
use super::token::{self, Token};
use super::{binary, label};

const MANDATORY: u16 = 0;
const ALPN: u16 = 1;
const NO_DEFAULT_ALPN: u16 = 2;
const PORT: u16 = 3;
const IPV4HINT: u16 = 4;
const ECH: u16 = 5;
const IPV6HINT: u16 = 6;
const DOHPATH: u16 = 7;
const OHTTP: u16 = 8;

/// The names of keys, by their numbers.
const NAMES: [&str; 9] =
    ["mandatory", "alpn", "no-default-alpn", "port", "ipv4hint", "ech", "ipv6hint", "dohpath", "ohttp"];

/// The types that have parameters.
pub(super) const TYPES: [RrType; 2] = [RrType::from_code(64), RrType::from_code(65)];

/// Whether a value says that the name is another one.
pub(super) fn is_alias(rdata: &Rdata) -> bool {
    TYPES.contains(&rdata.rr_type()) && rdata.wire().starts_with(&[0, 0])
}

/// Whether an owner is where a DNS resolver says how it is reached (RFC 9461, 2).
pub(super) fn is_resolver(owner: &OwnerName) -> bool {
    owner.labels().take_while(|label| label.starts_with('_')).any(|label| label == "_dns")
}

/// A resolver that speaks HTTP says under which path (RFC 9461, 5).
pub(super) fn check_resolver(rdata: &Rdata) -> Option<DnsFault> {
    let (_, rest) = label::read_wire(rdata.wire().get(2..)?).ok()?;
    let mut rest = rest;
    let (mut speaks_http, mut has_path) = (false, false);
    while let (Ok(number), Ok(len)) = (take(&mut rest), take(&mut rest)) {
        let mut value = take_slice(&mut rest, usize::from(u16::from_be_bytes(len))).ok()?;
        has_path |= u16::from_be_bytes(number) == DOHPATH;
        while u16::from_be_bytes(number) == ALPN && !value.is_empty() {
            speaks_http |= matches!(field::take_string(&mut value).ok()?, b"h2" | b"h3");
        }
    }
    let detail =
        "a resolver that speaks h2 or h3 needs dohpath, such as `dohpath=/dns-query{?dns}` (RFC 9461, 5)";
    (speaks_http && !has_path).then(|| DnsFault::rdata(detail))
}

fn key(name: &str) -> Option<u16> {
    if let Some(known) = NAMES.iter().position(|known| *known == name) {
        return u16::try_from(known).ok();
    }
    let digits = name.strip_prefix("key")?;
    let number: u16 = digits.parse().ok()?;
    // Neither a leading zero nor a sign, nor a key that has a name, nor the one that is kept back.
    let fine = number.to_string() == digits && usize::from(number) >= NAMES.len() && number != u16::MAX;
    fine.then_some(number)
}

fn name(key: u16) -> String {
    NAMES.get(usize::from(key)).map_or_else(|| format!("key{key}"), |name| (*name).to_owned())
}

pub(super) fn scan(tokens: &mut Tokens<'_>, out: &mut Vec<u8>) -> Result<(), DnsFault> {
    let mut parameters: BTreeMap<u16, Vec<u8>> = BTreeMap::new();
    while let Some(token) = tokens.take() {
        let (spelled, text) = match token.text.split_once('=') {
            Some((spelled, text)) if !token.quoted => (spelled, Some(text)),
            _ => (token.text, None),
        };
        let Some(number) = key(spelled).filter(|_| !token.quoted) else {
            return Err(DnsFault::rdata(format!(
                "{} is not a parameter: the keys are {} and `keyNNNNN`, in lower case",
                shown(spelled),
                NAMES.join(", ")
            )));
        };
        let value = value(number, text)?;
        if parameters.insert(number, value).is_some() {
            return Err(DnsFault::rdata(format!("the parameter {spelled} stands twice: write it once")));
        }
    }
    together(&parameters)?;
    for (number, value) in parameters {
        let len = u16::try_from(value.len())
            .map_err(|_| DnsFault::rdata(format!("the value of {} is too long", name(number))))?;
        out.extend(number.to_be_bytes());
        out.extend(len.to_be_bytes());
        out.extend(value);
    }
    Ok(())
}

/// What parameters must be beside each other.
fn together(parameters: &BTreeMap<u16, Vec<u8>>) -> Result<(), DnsFault> {
    if parameters.contains_key(&NO_DEFAULT_ALPN) && !parameters.contains_key(&ALPN) {
        return Err(DnsFault::rdata("no-default-alpn means nothing without alpn (RFC 9460, 7.1.1)"));
    }
    let mandatory = parameters.get(&MANDATORY).map_or(&[][..], Vec::as_slice);
    for pair in mandatory.as_chunks::<2>().0 {
        let number = u16::from_be_bytes(*pair);
        if !parameters.contains_key(&number) {
            return Err(DnsFault::rdata(format!("{} is mandatory and is not there", name(number))));
        }
    }
    Ok(())
}

/// The value of a key as octets, from the text behind `=`.
fn value(number: u16, text: Option<&str>) -> Result<Vec<u8>, DnsFault> {
    let spelled = name(number);
    let bare =
        text.map(|text| text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(text));
    let octets = bare.map(|text| token::octets(Token { text, quoted: true })).transpose()?;
    if matches!(number, NO_DEFAULT_ALPN | OHTTP) {
        return match octets {
            None => Ok(Vec::new()),
            Some(_) => Err(DnsFault::rdata(format!("{spelled} has no value: leave the `=` out"))),
        };
    }
    if usize::from(number) >= NAMES.len() {
        return Ok(octets.unwrap_or_default());
    }
    let octets = octets.filter(|octets| !octets.is_empty());
    let octets = octets.ok_or_else(|| DnsFault::rdata(format!("{spelled} needs a value")))?;
    let bad = || {
        DnsFault::rdata(format!("{} is not a value of {spelled}", shown(&String::from_utf8_lossy(&octets))))
    };
    if number == ALPN {
        return protocols(&octets).ok_or_else(bad);
    }
    let text = std::str::from_utf8(&octets).map_err(|_| bad())?;
    match number {
        MANDATORY => mandatory(text).ok_or_else(bad),
        PORT => {
            let digits = text.bytes().all(|c| c.is_ascii_digit());
            let port: Option<u16> = digits.then(|| text.parse().ok()).flatten();
            Ok(port.ok_or_else(bad)?.to_be_bytes().to_vec())
        }
        IPV4HINT => addresses(text, |word| field::ipv4(word).map(|address| address.octets().to_vec())),
        IPV6HINT => addresses(text, |word| field::ipv6(word).map(|address| address.octets().to_vec())),
        ECH => {
            let list = binary::decode(text)?;
            let len = list.first_chunk().map(|len| usize::from(u16::from_be_bytes(*len)));
            if len.is_none_or(|len| len == 0 || len + 2 != list.len()) {
                return Err(DnsFault::rdata("ech is not an ECHConfigList: its length is not what it says"));
            }
            Ok(list)
        }
        // The template names the variable `dns` (RFC 9461, 5).
        _ => Ok(Some(text).filter(|text| is_template(text)).ok_or_else(bad)?.as_bytes().to_vec()),
    }
}

fn is_template(text: &str) -> bool {
    let named = |part: &str| part.split_once('}').is_some_and(|(names, _)| names.contains("dns"));
    text.starts_with('/') && text.split('{').skip(1).any(named)
}

fn addresses(text: &str, read: impl Fn(&str) -> Result<Vec<u8>, DnsFault>) -> Result<Vec<u8>, DnsFault> {
    Ok(text.split(',').map(read).collect::<Result<Vec<_>, _>>()?.concat())
}

fn mandatory(text: &str) -> Option<Vec<u8>> {
    let keys: Option<Vec<u16>> = text.split(',').map(key).collect();
    let mut keys = keys?;
    let count = keys.len();
    keys.sort_unstable();
    keys.dedup();
    let fine = keys.len() == count && !keys.contains(&MANDATORY);
    fine.then(|| keys.into_iter().flat_map(u16::to_be_bytes).collect())
}

/// Names of protocols with commas between them; within one, a backslash stands before a comma or a backslash.
fn protocols(octets: &[u8]) -> Option<Vec<u8>> {
    let mut names = vec![Vec::new()];
    let mut rest = octets.iter();
    while let Some(octet) = rest.next() {
        match octet {
            b',' => names.push(Vec::new()),
            b'\\' => names.last_mut()?.push(*rest.next()?),
            _ => names.last_mut()?.push(*octet),
        }
    }
    let mut wire = Vec::new();
    for name in names {
        if name.is_empty() || name.len() > CHARACTER_STRING_OCTETS {
            return None;
        }
        // At most 255 octets.
        wire.push(name.len() as u8);
        wire.extend(name);
    }
    Some(wire)
}

pub(super) fn print(wire: &mut &[u8], out: &mut String) -> Result<(), DnsFault> {
    let mut last: Option<u16> = None;
    while !wire.is_empty() {
        let number = u16::from_be_bytes(take(wire)?);
        let len = u16::from_be_bytes(take(wire)?);
        let value = take_slice(wire, usize::from(len))?;
        if last.is_some_and(|last| last >= number) {
            return Err(DnsFault::rdata("the parameters do not stand in the order of their numbers"));
        }
        if last.replace(number).is_some() {
            out.push(' ');
        }
        out.push_str(&name(number));
        if let Some(octets) = printed(number, value)? {
            out.push('=');
            push_value(out, &octets);
        }
    }
    Ok(())
}

/// What stands behind `=`, before it is quoted.
fn printed(number: u16, value: &[u8]) -> Result<Option<Vec<u8>>, DnsFault> {
    let odd = || DnsFault::rdata(format!("the value of {} has a wrong length", name(number)));
    let list = |items: Vec<String>| Some(items.join(",").into_bytes());
    Ok(match number {
        MANDATORY => {
            let (pairs, []) = value.as_chunks::<2>() else { return Err(odd()) };
            list(pairs.iter().map(|pair| name(u16::from_be_bytes(*pair))).collect())
        }
        ALPN => {
            let mut octets = Vec::new();
            let mut rest = value;
            while !rest.is_empty() {
                if !octets.is_empty() {
                    octets.push(b',');
                }
                for octet in field::take_string(&mut rest)? {
                    if matches!(octet, b',' | b'\\') {
                        octets.push(b'\\');
                    }
                    octets.push(*octet);
                }
            }
            Some(octets)
        }
        NO_DEFAULT_ALPN | OHTTP if value.is_empty() => None,
        NO_DEFAULT_ALPN | OHTTP => return Err(odd()),
        PORT => {
            let port: [u8; 2] = value.try_into().map_err(|_| odd())?;
            list(vec![u16::from_be_bytes(port).to_string()])
        }
        IPV4HINT => {
            let (addresses, []) = value.as_chunks::<4>() else { return Err(odd()) };
            list(addresses.iter().map(|octets| std::net::Ipv4Addr::from(*octets).to_string()).collect())
        }
        IPV6HINT => {
            let (addresses, []) = value.as_chunks::<16>() else { return Err(odd()) };
            list(addresses.iter().map(|octets| std::net::Ipv6Addr::from(*octets).to_string()).collect())
        }
        ECH => Some(binary::encode(value).into_bytes()),
        _ if usize::from(number) >= NAMES.len() && value.is_empty() => None,
        _ => Some(value.to_vec()),
    })
}

/// A value, in quotes where it needs them.
fn push_value(out: &mut String, octets: &[u8]) {
    let plain = |octet: &u8| octet.is_ascii_alphanumeric() || b"-_.,:/+={}?*".contains(octet);
    if !octets.is_empty() && octets.iter().all(plain) {
        octets.iter().for_each(|octet| label::push_octet(out, *octet, true));
    } else {
        token::push_quoted(out, octets);
    }
}
