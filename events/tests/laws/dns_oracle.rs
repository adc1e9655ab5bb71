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
const KNOWN: [&str; 21] = [
    "A",
    "NS",
    "CNAME",
    "PTR",
    "HINFO",
    "MX",
    "TXT",
    "RP",
    "AAAA",
    "SRV",
    "NAPTR",
    "DNAME",
    "DS",
    "SSHFP",
    "TLSA",
    "CDS",
    "CDNSKEY",
    "OPENPGPKEY",
    "SVCB",
    "HTTPS",
    "CAA",
];

/// Whether the reader has an opinion on a value. It does not take what is escaped twice in a parameter.
pub fn knows(ty: RrType, text: &str) -> bool {
    let name = ty.mnemonic();
    let is_escaped = matches!(&*name, "SVCB" | "HTTPS") && text.contains('\\');
    (KNOWN.contains(&&*name) || name.starts_with("TYPE")) && !is_escaped
}
