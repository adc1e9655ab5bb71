//! Fields that are numbers and octets in disguise: hexadecimal, base 64, hardware addresses, locators, bitmaps of
//! types, and the gateway of an IPSECKEY.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::collections::BTreeSet;

use super::fault::{DnsFault, shown};
use super::field::{self, Tokens, cut, take, take_slice};
use super::label;
use super::rrtype::RrType;

/// Names of DNSSEC algorithms (the registry of RFC 4034, A.1).
pub(super) const ALGORITHMS: [(u16, &str); 16] = [
    (1, "RSAMD5"),
    (2, "DH"),
    (3, "DSA"),
    (5, "RSASHA1"),
    (6, "DSA-NSEC3-SHA1"),
    (7, "RSASHA1-NSEC3-SHA1"),
    (8, "RSASHA256"),
    (10, "RSASHA512"),
    (12, "ECC-GOST"),
    (13, "ECDSAP256SHA256"),
    (14, "ECDSAP384SHA384"),
    (15, "ED25519"),
    (16, "ED448"),
    (252, "INDIRECT"),
    (253, "PRIVATEDNS"),
    (254, "PRIVATEOID"),
];

/// Names of kinds of certificates (RFC 4398, 2.1).
pub(super) const CERTIFICATE_TYPES: [(u16, &str); 10] = [
    (1, "PKIX"),
    (2, "SPKI"),
    (3, "PGP"),
    (4, "IPKIX"),
    (5, "ISPKI"),
    (6, "IPGP"),
    (7, "ACPKIX"),
    (8, "IACPKIX"),
    (253, "URI"),
    (254, "OID"),
];

/// The groups of a locator.
const LOCATOR_GROUPS: usize = 4;

/// Every token up to the end, joined: white space in hexadecimal and base 64 means nothing.
fn joined(tokens: &mut Tokens<'_>, what: &str) -> Result<String, DnsFault> {
    let mut text = tokens.word(what)?.to_owned();
    while let Some(token) = tokens.take() {
        if token.quoted {
            return Err(DnsFault::rdata(format!("{what} is in quotes: write it without them")));
        }
        text.push_str(token.text);
    }
    Ok(text)
}

pub(super) fn scan_hex(tokens: &mut Tokens<'_>) -> Result<Vec<u8>, DnsFault> {
    let text = joined(tokens, "the hexadecimal")?;
    hex::decode(&text).map_err(|_| {
        DnsFault::rdata(format!("{} is not hexadecimal: write two digits for each octet", shown(&text)))
    })
}

pub(super) fn print_hex(wire: &mut &[u8], out: &mut String) -> Result<(), DnsFault> {
    if wire.is_empty() {
        return Err(cut());
    }
    out.push_str(&hex::encode(std::mem::take(wire)));
    Ok(())
}

pub(super) fn scan_base64(tokens: &mut Tokens<'_>) -> Result<Vec<u8>, DnsFault> {
    decode(&joined(tokens, "the base 64")?)
}

pub(super) fn decode(text: &str) -> Result<Vec<u8>, DnsFault> {
    STANDARD.decode(text).map_err(|_| {
        DnsFault::rdata(format!("{} is not base 64 with its padding (RFC 4648, 4)", shown(text)))
    })
}

pub(super) fn encode(octets: &[u8]) -> String {
    STANDARD.encode(octets)
}

pub(super) fn print_base64(wire: &mut &[u8], out: &mut String) -> Result<(), DnsFault> {
    if wire.is_empty() {
        return Err(cut());
    }
    out.push_str(&encode(std::mem::take(wire)));
    Ok(())
}

pub(super) fn scan_eui(tokens: &mut Tokens<'_>, octets: usize, out: &mut Vec<u8>) -> Result<(), DnsFault> {
    let word = tokens.word("the address")?;
    let pairs: Vec<&str> = word.split('-').collect();
    let read: Option<Vec<u8>> = pairs
        .iter()
        .map(|pair| hex::decode(pair).ok().filter(|octet| octet.len() == 1)?.first().copied())
        .collect();
    match read.filter(|read| read.len() == octets) {
        Some(read) => {
            out.extend(read);
            Ok(())
        }
        None => Err(DnsFault::rdata(format!(
            "{} is not {octets} octets, each two hexadecimal digits, with `-` between them",
            shown(word)
        ))),
    }
}

pub(super) fn print_eui(octets: &[u8], out: &mut String) {
    let pairs: Vec<String> = octets.iter().map(|octet| format!("{octet:02x}")).collect();
    out.push_str(&pairs.join("-"));
}

pub(super) fn scan_locator(tokens: &mut Tokens<'_>, out: &mut Vec<u8>) -> Result<(), DnsFault> {
    let word = tokens.word("the locator")?;
    let group = |text: &str| {
        let fine = (1..=4).contains(&text.len()) && text.bytes().all(|c| c.is_ascii_hexdigit());
        fine.then(|| u16::from_str_radix(text, 16).ok()).flatten()
    };
    let groups: Option<Vec<u16>> = word.split(':').map(group).collect();
    match groups.filter(|groups| groups.len() == LOCATOR_GROUPS) {
        Some(groups) => {
            out.extend(groups.into_iter().flat_map(u16::to_be_bytes));
            Ok(())
        }
        None => Err(DnsFault::rdata(format!(
            "{} is not four groups of hexadecimal digits such as `2001:db8:1140:1000`",
            shown(word)
        ))),
    }
}

pub(super) fn print_locator(octets: [u8; 8], out: &mut String) {
    let groups = octets.as_chunks::<2>().0.iter().map(|pair| format!("{:04x}", u16::from_be_bytes(*pair)));
    out.push_str(&groups.collect::<Vec<_>>().join(":"));
}

pub(super) fn scan_types(tokens: &mut Tokens<'_>, out: &mut Vec<u8>) -> Result<(), DnsFault> {
    let mut types = BTreeSet::new();
    while let Some(token) = tokens.take() {
        if token.quoted {
            return Err(DnsFault::rdata("a type is in quotes: write it without them"));
        }
        types.insert(RrType::parse(token.text).map_err(|fault| DnsFault::rdata(fault.detail))?.code());
    }
    let mut windows: Vec<(u8, Vec<u8>)> = Vec::new();
    for code in types {
        let [window, low] = code.to_be_bytes();
        if windows.last().is_none_or(|(last, _)| *last != window) {
            windows.push((window, Vec::new()));
        }
        let Some((_, bits)) = windows.last_mut() else { continue };
        bits.resize(usize::from(low / 8) + 1, 0);
        if let Some(octet) = bits.last_mut() {
            *octet |= 0x80 >> (low % 8);
        }
    }
    for (window, bits) in windows {
        // A window has at most 32 octets.
        out.extend([window, bits.len() as u8]);
        out.extend(bits);
    }
    Ok(())
}

pub(super) fn print_types(wire: &mut &[u8], out: &mut String) -> Result<(), DnsFault> {
    let mut first = true;
    while !wire.is_empty() {
        let [window, len] = take(wire)?;
        if !(1..=32).contains(&len) {
            return Err(DnsFault::rdata("a window of the types has 1 to 32 octets"));
        }
        for (at, octet) in (0_u8..).zip(take_slice(wire, usize::from(len))?) {
            for bit in (0..8_u8).filter(|bit| octet & (0x80 >> bit) != 0) {
                if !std::mem::replace(&mut first, false) {
                    out.push(' ');
                }
                let code = u16::from_be_bytes([window, at.saturating_mul(8).saturating_add(bit)]);
                out.push_str(&RrType::from_code(code).mnemonic());
            }
        }
    }
    Ok(())
}

/// Precedence, kind of gateway, algorithm, gateway, key (RFC 4025, 3.1); without an algorithm there is no key.
pub(super) fn scan_gateway(tokens: &mut Tokens<'_>, out: &mut Vec<u8>) -> Result<(), DnsFault> {
    let mut number = || tokens.number(u32::from(u8::MAX));
    // `number` bounds each by what fits.
    let (precedence, kind, algorithm) = (number()? as u8, number()? as u8, number()? as u8);
    out.extend([precedence, kind, algorithm]);
    match kind {
        0 => {
            let word = tokens.word("the gateway")?;
            if word != "." {
                return Err(DnsFault::rdata(format!(
                    "{}: a gateway of type 0 is none, written `.`",
                    shown(word)
                )));
            }
        }
        1 => out.extend(field::ipv4(tokens.word("the gateway")?)?.octets()),
        2 => out.extend(field::ipv6(tokens.word("the gateway")?)?.octets()),
        3 => label::push_wire(out, &tokens.name()?.1),
        _ => return Err(DnsFault::rdata(format!("{kind} is not a type of gateway: write 0, 1, 2 or 3"))),
    }
    if algorithm != 0 {
        out.extend(scan_base64(tokens)?);
    }
    Ok(())
}

pub(super) fn print_gateway(wire: &mut &[u8], out: &mut String) -> Result<(), DnsFault> {
    let [precedence, kind, algorithm] = take(wire)?;
    out.push_str(&format!("{precedence} {kind} {algorithm} "));
    match kind {
        0 => out.push('.'),
        1 => out.push_str(&std::net::Ipv4Addr::from(take::<4>(wire)?).to_string()),
        2 => out.push_str(&std::net::Ipv6Addr::from(take::<16>(wire)?).to_string()),
        3 => field::print_name(wire, out)?,
        _ => return Err(DnsFault::rdata(format!("{kind} is not a type of gateway"))),
    }
    if algorithm != 0 {
        out.push(' ');
        print_base64(wire, out)?;
    }
    Ok(())
}
