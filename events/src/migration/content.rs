//! Names and data of records as other servers keep them: PowerDNS without the final dots, a transfer as octets.

use super::zone::Data;
use crate::dns::token;
use crate::dns::{DnsFault, DomainName, OwnerName, Rdata, RrType};

/// Types that hold texts alone.
const TEXTS: [u16; 2] = [16, 99];

/// The owner that an absolute name is in the zone, whether or not it ends in a dot.
pub(super) fn owner(name: &Data, zone: &DomainName) -> Result<OwnerName, DnsFault> {
    match name {
        Data::Wire(wire) => OwnerName::from_wire(wire, zone),
        Data::Text(text) if text.ends_with('.') && !text.ends_with("\\.") => OwnerName::parse(text, zone),
        Data::Text(text) => OwnerName::parse(&format!("{text}."), zone),
    }
}

/// What a record holds. Names without a final dot are absolute: PowerDNS keeps none.
pub(super) fn rdata(rrtype: RrType, data: &Data) -> Result<Rdata, DnsFault> {
    let text = match data {
        Data::Wire(wire) => return Rdata::from_wire(rrtype, wire),
        Data::Text(text) => text,
    };
    let tokens = token::split(text)?;
    let is_bare = tokens.first().is_some_and(|first| !first.quoted && first.text != "\\#");
    if TEXTS.contains(&rrtype.code()) && is_bare {
        // As several words it would be something else than what is meant, and PowerDNS answers SERVFAIL for it.
        return Err(DnsFault::rdata("the text is not in quotes, so no server gives it out as it stands"));
    }
    Rdata::of_zone_file(rrtype, tokens, &[])
}

/// The serial of an SOA.
pub(super) fn serial(data: &Data) -> Option<u32> {
    match data {
        Data::Text(text) => text.split_ascii_whitespace().nth(2)?.parse().ok(),
        // Two names, then five numbers of four octets, the serial first.
        Data::Wire(wire) => {
            let numbers = wire.get(wire.len().checked_sub(20)?..)?;
            Some(u32::from_be_bytes(numbers.get(..4)?.try_into().ok()?))
        }
    }
}
