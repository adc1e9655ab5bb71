//! How the data of each record type is laid out: a table of types, each a row of fields.
//!
//! A field knows three things: how it reads its tokens to the wire, how it prints itself from the wire in
//! canonical text, and what it refuses. Both directions come from the same row, so they cannot disagree.
//! A new type is one row of [`TABLE`] and, if its fields are new, one more kind of [`Field`]. What the fields
//! of a type must be together is its `check`, over the octets.

use super::fault::DnsFault;
use super::field::Field;

/// What the octets of a value must be beyond their fields.
type Check = fn(&[u8]) -> Result<(), DnsFault>;

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
    /// What its fields must be together.
    pub(crate) check: Option<Check>,
}

impl Row {
    /// Whether nobody knows what the octets mean.
    pub(crate) fn is_opaque(&self) -> bool {
        self.fields == [Field::Opaque]
    }

    /// Whether words may hold a value in quotes, `alpn="h2"`.
    pub(crate) fn has_parameters(&self) -> bool {
        self.fields.contains(&Field::Parameters)
    }
}

const fn many(code: u16, mnemonic: &'static str, fields: &'static [Field]) -> Row {
    Row { code, mnemonic, fields, single: false, check: None }
}

const fn single(code: u16, mnemonic: &'static str, fields: &'static [Field]) -> Row {
    Row { code, mnemonic, fields, single: true, check: None }
}

const fn checked(code: u16, mnemonic: &'static str, fields: &'static [Field], check: Check) -> Row {
    Row { code, mnemonic, fields, single: false, check: Some(check) }
}

/// Every type whose data can be read, in the order of their numbers.
pub(crate) static TABLE: [Row; 42] = [
    many(1, "A", &[Field::Ipv4]),
    many(2, "NS", &[Field::Host]),
    single(5, "CNAME", &[Field::Name]),
    many(12, "PTR", &[Field::Name]),
    many(13, "HINFO", &[Field::String, Field::String]),
    many(15, "MX", &[Field::U16, Field::HostOrNone]),
    many(16, "TXT", &[Field::Strings]),
    many(17, "RP", &[Field::Name, Field::Name]),
    many(18, "AFSDB", &[Field::U16, Field::Name]),
    many(19, "X25", &[Field::String]),
    many(20, "ISDN", &[Field::String, Field::MaybeString]),
    many(21, "RT", &[Field::U16, Field::Name]),
    many(26, "PX", &[Field::U16, Field::Name, Field::Name]),
    many(28, "AAAA", &[Field::Ipv6]),
    many(29, "LOC", &[Field::Location]),
    many(33, "SRV", &[Field::U16, Field::U16, Field::U16, Field::HostOrNone]),
    many(35, "NAPTR", &[Field::U16, Field::U16, Field::String, Field::String, Field::String, Field::Name]),
    many(36, "KX", &[Field::U16, Field::Name]),
    many(37, "CERT", &[Field::CertificateType, Field::U16, Field::Algorithm, Field::Base64]),
    single(39, "DNAME", &[Field::Name]),
    many(42, "APL", &[Field::Prefixes]),
    checked(43, "DS", &[Field::U16, Field::Algorithm, Field::U8, Field::Hex], check_digest),
    checked(44, "SSHFP", &[Field::U8, Field::U8, Field::Hex], check_fingerprint),
    many(45, "IPSECKEY", &[Field::Gateway]),
    many(49, "DHCID", &[Field::Base64]),
    checked(52, "TLSA", &[Field::U8, Field::U8, Field::U8, Field::Hex], check_association),
    checked(53, "SMIMEA", &[Field::U8, Field::U8, Field::U8, Field::Hex], check_association),
    checked(59, "CDS", &[Field::U16, Field::Algorithm, Field::U8, Field::Hex], check_child_digest),
    checked(60, "CDNSKEY", &[Field::U16, Field::U8, Field::Algorithm, Field::Base64], check_key),
    many(61, "OPENPGPKEY", &[Field::Base64]),
    single(62, "CSYNC", &[Field::U32, Field::U16, Field::Types]),
    checked(64, "SVCB", &[Field::U16, Field::Name, Field::Parameters], check_service),
    checked(65, "HTTPS", &[Field::U16, Field::Name, Field::Parameters], check_service),
    many(99, "SPF", &[Field::Strings]),
    many(104, "NID", &[Field::U16, Field::Locator]),
    many(105, "L32", &[Field::U16, Field::Ipv4]),
    many(106, "L64", &[Field::U16, Field::Locator]),
    many(107, "LP", &[Field::U16, Field::Name]),
    many(108, "EUI48", &[Field::Eui48]),
    many(109, "EUI64", &[Field::Eui64]),
    checked(256, "URI", &[Field::U16, Field::U16, Field::Text], check_uri),
    many(257, "CAA", &[Field::U8, Field::Tag, Field::Text]),
];

/// A type that has a number and no name: octets that nobody looks into (RFC 3597).
pub(crate) static UNKNOWN: Row = many(0, "", &[Field::Opaque]);

/// The row of a type.
pub(crate) fn row(code: u16) -> Option<&'static Row> {
    TABLE.binary_search_by_key(&code, |row| row.code).ok().and_then(|at| TABLE.get(at))
}

/// The names of all types, for people.
pub(crate) fn mnemonics() -> String {
    TABLE.iter().map(|row| row.mnemonic).collect::<Vec<_>>().join(" ")
}

/// Refuses a digest that is not as long as its kind is.
fn check_length(what: &str, kind: u8, digest: &[u8], lengths: &[(u8, usize)]) -> Result<(), DnsFault> {
    match lengths.iter().find(|(known, _)| *known == kind) {
        Some((_, octets)) if *octets != digest.len() => Err(DnsFault::rdata(format!(
            "the {what} of type {kind} has {octets} octets, not {}",
            digest.len()
        ))),
        _ => Ok(()),
    }
}

/// RFC 4034, 5.1.4; RFC 4509; RFC 5933; RFC 6605.
fn check_digest(wire: &[u8]) -> Result<(), DnsFault> {
    let kind = wire.get(3).copied().unwrap_or(0);
    let digest = wire.get(4..).unwrap_or_default();
    check_length("digest", kind, digest, &[(1, 20), (2, 32), (3, 32), (4, 48)])
}

/// The same, or the one value that asks the parent to take the DS away (RFC 8078, 4).
fn check_child_digest(wire: &[u8]) -> Result<(), DnsFault> {
    if wire.get(2) == Some(&0) && wire != [0; 5] {
        return Err(DnsFault::rdata("algorithm 0 asks the parent to take the DS away: write `0 0 0 00`"));
    }
    check_digest(wire)
}

/// RFC 4034, 2.1.2; RFC 8078, 4.
fn check_key(wire: &[u8]) -> Result<(), DnsFault> {
    if wire.get(2) != Some(&3) {
        return Err(DnsFault::rdata("the protocol of a key is 3 (RFC 4034)"));
    }
    if wire.get(3) == Some(&0) && wire != [0, 0, 3, 0, 0] {
        return Err(DnsFault::rdata("algorithm 0 asks the parent to take the DS away: write `0 3 0 AA==`"));
    }
    Ok(())
}

/// RFC 4255, 3.1.3; RFC 6594.
fn check_fingerprint(wire: &[u8]) -> Result<(), DnsFault> {
    let kind = wire.get(1).copied().unwrap_or(0);
    check_length("fingerprint", kind, wire.get(2..).unwrap_or_default(), &[(1, 20), (2, 32)])
}

/// RFC 6698, 2.1.3: a whole certificate, or its SHA-256 or SHA-512.
fn check_association(wire: &[u8]) -> Result<(), DnsFault> {
    let kind = wire.get(2).copied().unwrap_or(0);
    check_length("data to match", kind, wire.get(3..).unwrap_or_default(), &[(1, 32), (2, 64)])
}

/// RFC 7553, 4.4.
fn check_uri(wire: &[u8]) -> Result<(), DnsFault> {
    if wire.len() <= 4 {
        return Err(DnsFault::rdata("the target is empty: write a URI in quotes"));
    }
    Ok(())
}

/// RFC 9460, 2.4.2: an alias has no parameters.
fn check_service(wire: &[u8]) -> Result<(), DnsFault> {
    let (priority, rest) = wire.split_at_checked(2).unwrap_or_default();
    if priority == [0, 0] && super::label::read_wire(rest)?.1 != [0_u8; 0] {
        return Err(DnsFault::rdata(
            "priority 0 is an alias, which has no parameters: leave them out, or write a priority from 1",
        ));
    }
    Ok(())
}
