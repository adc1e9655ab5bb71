//! Record data: checked, canonical, as octets and as text.
//!
//! An [`Rdata`] that exists has the octets of RFC 4034, 6.2 (names uncompressed, in lower case), and the one
//! text that reads back as those octets. Two spellings of one value are equal. Order is that of the octets.

use std::fmt;

use super::fault::{DnsFault, shown};
use super::field::{Names, Tokens};
use super::layout::{self, Row};
use super::name::DomainName;
use super::rrtype::RrType;
use super::token::{self, RDATA_OCTETS, Token};

/// What begins record data in the generic form (RFC 3597, 5).
const GENERIC: &str = "\\#";

/// The data of one record.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Rdata {
    ty: RrType,
    wire: Box<[u8]>,
    text: Box<str>,
}

impl Rdata {
    /// Reads one value in presentation format. Names must be absolute; `zone` serves to show how.
    pub fn parse(ty: RrType, text: &str, zone: &DomainName) -> Result<Self, DnsFault> {
        row(ty)?;
        Self::read(ty, token::split(text)?, Names::Absolute(Some(zone)))
    }

    /// Reads one value of a zone file from its tokens: `origin` follows names without a final dot.
    pub(crate) fn of_zone_file(
        ty: RrType,
        tokens: Vec<Token<'_>>,
        origin: &[Vec<u8>],
    ) -> Result<Self, DnsFault> {
        Self::read(ty, tokens, Names::Under(origin))
    }

    /// Reads one value from its octets, which must be uncompressed and nothing more than the value.
    pub fn from_wire(ty: RrType, wire: &[u8]) -> Result<Self, DnsFault> {
        let row = row(ty)?;
        let text = print(row, wire)?;
        if row.is_opaque() {
            check_length(wire)?;
            return Ok(Self { ty, wire: wire.into(), text: text.into() });
        }
        // The text goes through the same checks as that of anybody, and its names come out in lower case.
        let read = Self::read(ty, token::split(&text)?, Names::Absolute(None))?;
        if !read.wire.eq_ignore_ascii_case(wire) {
            return Err(DnsFault::rdata(format!("the octets are not in the one form that {ty} has")));
        }
        Ok(read)
    }

    fn read(ty: RrType, tokens: Vec<Token<'_>>, names: Names<'_>) -> Result<Self, DnsFault> {
        let row = row(ty)?;
        if let [Token { text: GENERIC, quoted: false }, rest @ ..] = tokens.as_slice() {
            return Self::from_wire(ty, &generic_octets(rest)?);
        }
        if !row.has_parameters() {
            token::refuse_quotes_within(&tokens)?;
        }
        let mut tokens = Tokens::new(tokens, names);
        let mut wire = Vec::new();
        for field in row.fields {
            field.scan(&mut tokens, &mut wire)?;
        }
        tokens.finish()?;
        check_length(&wire)?;
        if let Some(check) = row.check {
            check(&wire)?;
        }
        let text = print(row, &wire)?;
        Ok(Self { ty, wire: wire.into(), text: text.into() })
    }

    /// The type.
    pub fn rr_type(&self) -> RrType {
        self.ty
    }

    /// The canonical text.
    pub fn as_text(&self) -> &str {
        &self.text
    }

    /// The canonical octets.
    pub fn wire(&self) -> &[u8] {
        &self.wire
    }

    /// Whether this is an MX that says "no mail" (RFC 7505).
    pub fn is_null_mx(&self) -> bool {
        self.ty == RrType::MX && self.wire.get(2..) == Some(&[0])
    }
}

impl fmt::Display for Rdata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Rdata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.ty, self.text)
    }
}

/// How the type is laid out, if it may be written.
fn row(ty: RrType) -> Result<&'static Row, DnsFault> {
    ty.writable()?;
    Ok(layout::row(ty.code()).unwrap_or(&layout::UNKNOWN))
}

fn check_length(wire: &[u8]) -> Result<(), DnsFault> {
    if wire.len() > RDATA_OCTETS {
        return Err(DnsFault::rdata(format!(
            "the value has {} octets: one record has at most {RDATA_OCTETS}",
            wire.len()
        )));
    }
    Ok(())
}

/// The canonical text of octets.
fn print(row: &Row, wire: &[u8]) -> Result<String, DnsFault> {
    let mut text = String::new();
    let mut rest = wire;
    for (n, field) in row.fields.iter().enumerate() {
        if rest.is_empty() && n > 0 && field.may_be_absent() {
            break;
        }
        if n > 0 {
            text.push(' ');
        }
        field.print(&mut rest, &mut text)?;
    }
    if !rest.is_empty() {
        return Err(DnsFault::rdata(format!("the value is followed by {} more octets", rest.len())));
    }
    Ok(text)
}

/// The octets of the generic form: their number, then hexadecimal digits in any grouping.
fn generic_octets(tokens: &[Token<'_>]) -> Result<Vec<u8>, DnsFault> {
    let bad = |what: &str| {
        DnsFault::rdata(format!(
            "{what}: the generic form is `\\#`, the number of octets, and the octets in hexadecimal"
        ))
    };
    if tokens.iter().any(|token| token.quoted) {
        return Err(bad("a quoted string"));
    }
    let (len, digits) = tokens.split_first().ok_or_else(|| bad("the number of octets is missing"))?;
    let digits: String = digits.iter().map(|token| token.text).collect();
    let octets = hex::decode(&digits).map_err(|_| bad(&format!("{} is not hexadecimal", shown(&digits))))?;
    let announced =
        len.text.bytes().all(|c| c.is_ascii_digit()).then(|| len.text.parse::<usize>().ok()).flatten();
    if announced != Some(octets.len()) {
        return Err(bad(&format!("{} octets are announced and {} given", shown(len.text), octets.len())));
    }
    Ok(octets)
}

#[cfg(test)]
mod tests {
    use super::super::fault::FaultCode;
    use super::*;

    fn zone() -> DomainName {
        DomainName::parse("example.com").unwrap()
    }

    fn parse(ty: RrType, text: &str) -> Result<Rdata, DnsFault> {
        Rdata::parse(ty, text, &zone())
    }

    #[test]
    fn a_relative_name_is_shown_in_full() {
        for (ty, text, shown) in [
            (RrType::CNAME, "@", "`example.com.`"),
            (RrType::CNAME, "www", "write `www.example.com.`"),
            (RrType::MX, "10 mail.example.com", "write `mail.example.com.`"),
            (RrType::MX, "10 mail.example.net", "write `mail.example.net.`"),
            (RrType::SRV, "0 0 443 bücher", "write `xn--bcher-kva.example.com.`"),
        ] {
            let fault = parse(ty, text).expect_err(text);
            assert_eq!(fault.code, FaultCode::RelativeName, "{text}");
            assert!(fault.detail.contains(shown), "{text}: {}", fault.detail);
        }
    }

    #[test]
    fn a_refused_name_is_refused_in_every_spelling() {
        for text in [
            "192.0.2.1",
            "192.0.2.1.",
            "\\049.2.3.4.",
            "::1",
            "2001:db8::1.",
            "https://www.example.net/",
            "https://www.example.net/.",
        ] {
            assert_eq!(parse(RrType::CNAME, text).expect_err(text).code, FaultCode::InvalidRdata, "{text}");
        }
        for text in ["a\\://b.", "a:\\/\\/b.", "a\\:\\:1."] {
            let rdata = parse(RrType::CNAME, text).unwrap();
            assert_eq!(parse(RrType::CNAME, rdata.as_text()), Ok(rdata), "{text}");
        }
    }

    #[test]
    fn octets_come_back() {
        for (ty, text) in [
            (RrType::A, "192.0.2.1"),
            (RrType::AAAA, "2001:db8::1"),
            (RrType::CNAME, "a\\.b.example.net."),
            (RrType::MX, "0 ."),
            (RrType::SRV, "0 0 0 ."),
            (RrType::TXT, "\"a\" \"\" \"\\255\\\"\""),
            (RrType::CAA, "128 issue \"ca.example.net; x=1\""),
        ] {
            let rdata = parse(ty, text).unwrap();
            assert_eq!(rdata.as_text(), text);
            assert_eq!(Rdata::from_wire(ty, rdata.wire()), Ok(rdata.clone()));
            let generic = format!("\\# {} {}", rdata.wire().len(), hex::encode(rdata.wire()));
            assert_eq!(parse(ty, &generic), Ok(rdata));
        }
        assert_eq!(
            Rdata::from_wire(RrType::NS, b"\x03NS1\x07Example\x03net\0").unwrap().as_text(),
            "ns1.example.net."
        );
        for (ty, wire) in [
            (RrType::A, b"\0\0\0".as_slice()),
            (RrType::A, b"\0\0\0\0\0"),
            (RrType::TXT, b""),
            (RrType::TXT, b"\x05abc"),
            (RrType::NS, b"\0"),
            (RrType::CNAME, b"\x01a"),
            (RrType::CNAME, b"\xc0\x0c"),
            (RrType::CNAME, b"\x01\0\0"),
            (RrType::CAA, b"\0\0x"),
            (RrType::SOA, b""),
        ] {
            assert!(Rdata::from_wire(ty, wire).is_err(), "{ty} {wire:?}");
        }
    }

    #[test]
    fn long_text_is_split_and_bounded() {
        let rdata = parse(RrType::TXT, &format!("\"{}\"", "k".repeat(300))).unwrap();
        assert_eq!(rdata.as_text(), format!("\"{}\" \"{}\"", "k".repeat(255), "k".repeat(45)));
        assert!(parse(RrType::TXT, &format!("\"{}\"", "k".repeat(65_279))).is_ok());
        assert!(parse(RrType::TXT, &format!("\"{}\"", "k".repeat(65_280))).is_err());
    }

    #[test]
    fn null_mx() {
        assert!(parse(RrType::MX, "0 .").unwrap().is_null_mx());
        assert!(!parse(RrType::MX, "0 a.").unwrap().is_null_mx());
        assert!(!parse(RrType::A, "0.0.0.0").unwrap().is_null_mx());
        assert!(parse(RrType::NS, ".").is_err());
    }
}
