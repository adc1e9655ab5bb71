//! Address prefixes of APL (RFC 3123): `1:192.0.2.0/24`, `!2:2001:db8::/32`.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::fault::{DnsFault, shown};
use super::field::{Tokens, take, take_slice};

/// The bit that says "all but this one".
const NEGATED: u8 = 0x80;

pub(super) fn scan(tokens: &mut Tokens<'_>, out: &mut Vec<u8>) -> Result<(), DnsFault> {
    let mut next = Some(tokens.next("the prefix")?);
    while let Some(token) = next {
        let item = if token.quoted { None } else { read(token.text) };
        let Some((family, prefix, negated, address)) = item else {
            return Err(DnsFault::rdata(format!(
                "{} is not a prefix: write for example `1:192.0.2.0/24` or `!2:2001:db8::/32`",
                shown(token.text)
            )));
        };
        let len = address.iter().rposition(|octet| *octet != 0).map_or(0, |last| last + 1);
        out.extend(family.to_be_bytes());
        // An address has at most 16 octets.
        out.extend([prefix, (if negated { NEGATED } else { 0 }) | len as u8]);
        out.extend(address.iter().take(len));
        next = tokens.take();
    }
    Ok(())
}

fn read(text: &str) -> Option<(u16, u8, bool, Vec<u8>)> {
    let (negated, text) = text.strip_prefix('!').map_or((false, text), |rest| (true, rest));
    let (family, rest) = text.split_once(':')?;
    let (address, prefix) = rest.rsplit_once('/')?;
    let digits = prefix.bytes().all(|c| c.is_ascii_digit());
    let prefix: u8 = digits.then(|| prefix.parse().ok()).flatten()?;
    let (family, most, address) = match family {
        "1" => (1, 32, address.parse::<Ipv4Addr>().ok()?.octets().to_vec()),
        "2" => (2, 128, address.parse::<Ipv6Addr>().ok()?.octets().to_vec()),
        _ => return None,
    };
    (prefix <= most).then_some((family, prefix, negated, address))
}

pub(super) fn print(wire: &mut &[u8], out: &mut String) -> Result<(), DnsFault> {
    let mut first = true;
    while !wire.is_empty() {
        if !std::mem::replace(&mut first, false) {
            out.push(' ');
        }
        let [high, low, prefix, flags] = take(wire)?;
        let given = take_slice(wire, usize::from(flags & !NEGATED))?;
        if flags & NEGATED != 0 {
            out.push('!');
        }
        let long = || DnsFault::rdata("an address of a prefix is longer than its family's");
        let family = u16::from_be_bytes([high, low]);
        let address = match family {
            1 => Ipv4Addr::from(padded::<4>(given).ok_or_else(long)?).to_string(),
            2 => Ipv6Addr::from(padded::<16>(given).ok_or_else(long)?).to_string(),
            _ => return Err(DnsFault::rdata(format!("{family} is not a family of addresses: 1 or 2"))),
        };
        out.push_str(&format!("{family}:{address}/{prefix}"));
    }
    Ok(())
}

fn padded<const N: usize>(given: &[u8]) -> Option<[u8; N]> {
    let mut octets = [0; N];
    octets.get_mut(..given.len())?.copy_from_slice(given);
    Some(octets)
}
