//! A second opinion on record data: the zone file reader of the `domain` crate, which shares no code with ours.

use domain::base::rdata::ComposeRecordData;
use domain::zonefile::inplace::{Entry, Zonefile};
use headwater_events::dns::RrType;

/// The canonical octets that a zone file with this value in it would give; `None`: it is refused.
pub fn octets(ty: RrType, text: &str) -> Option<Vec<u8>> {
    let mut zone = Zonefile::new();
    zone.extend_from_slice(format!("t.example.com. 3600 IN {ty} {text}\n").as_bytes());
    let Ok(Some(Entry::Record(record))) = zone.next_entry() else {
        return None;
    };
    let mut octets = Vec::new();
    record.data().compose_canonical_rdata(&mut octets).unwrap();
    matches!(zone.next_entry(), Ok(None)).then_some(octets)
}

/// Types that the reader has a text form for which is ours too.
const KNOWN: [&str; 24] = [
    "A", "NS", "CNAME", "PTR", "HINFO", "MX", "TXT", "RP", "AFSDB", "RT", "AAAA", "SRV", "NAPTR", "KX", "DNAME", "DS",
    "SSHFP", "TLSA", "CDS", "CDNSKEY", "OPENPGPKEY", "SVCB", "HTTPS", "CAA",
];

/// Whether the reader has an opinion on a type.
pub fn knows(ty: RrType) -> bool {
    KNOWN.contains(&&*ty.mnemonic()) || ty.mnemonic().starts_with("TYPE")
}
