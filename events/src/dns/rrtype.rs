//! Record types: numbers with names, and which of them may be written.
//!
//! A type is written only if `layout` has a row for it and it is on no list of this file: refusal is the default,
//! whatever the spelling (`LUA`, `lua`, `TYPE65402` are one type).

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use domain::base::iana::Rtype;
use serde::{Deserialize, Serialize};

use super::fault::{DnsFault, FaultCode, shown};
use super::layout;

/// The prefix of a type that is spelled by its number (RFC 3597, 5).
const GENERIC: &str = "TYPE";

/// Types of private use that PowerDNS named.
const PRIVATE: [(u16, &str); 2] = [(65401, "ALIAS"), (65402, "LUA")];

/// Types that nobody writes through the platform, and who makes them instead.
const NEVER: [(u16, &str); 11] = [
    (6, "the platform makes it: change the `[dns]` settings or the domain's serial floor"),
    (24, "it is obsolete"),
    (25, "it is obsolete"),
    (30, "it is obsolete"),
    (46, "the signer makes it: turn DNSSEC on for the domain"),
    (47, "the signer makes it: turn DNSSEC on for the domain"),
    (48, "it comes with the domain's keys: import the keys instead"),
    (50, "the signer makes it: turn DNSSEC on for the domain"),
    (51, "the signer makes it: turn DNSSEC on for the domain"),
    (63, "the signer makes it"),
    (65402, "it would run code on the name servers"),
];

/// The type of a record.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(try_from = "String", into = "String")]
#[schema(value_type = String, example = "A")]
pub struct RrType(u16);

impl RrType {
    /// An IPv4 address.
    pub const A: Self = Self(1);
    /// A name server.
    pub const NS: Self = Self(2);
    /// The canonical name of an alias.
    pub const CNAME: Self = Self(5);
    /// The start of a zone of authority.
    pub const SOA: Self = Self(6);
    /// A pointer to another name.
    pub const PTR: Self = Self(12);
    /// A mail exchange.
    pub const MX: Self = Self(15);
    /// Text.
    pub const TXT: Self = Self(16);
    /// An IPv6 address.
    pub const AAAA: Self = Self(28);
    /// The location of a service.
    pub const SRV: Self = Self(33);
    /// A whole subtree that is another one.
    pub const DNAME: Self = Self(39);
    /// The digest of a key of a delegated zone.
    pub const DS: Self = Self(43);
    /// Which authorities may issue certificates.
    pub const CAA: Self = Self(257);
    /// A name whose addresses are those of another one, flattened when the zone is rendered.
    pub const ALIAS: Self = Self(65401);

    /// Reads a mnemonic or `TYPEnnn`, in any case. Being readable does not make a type writable.
    pub fn parse(input: &str) -> Result<Self, DnsFault> {
        let unknown = || {
            DnsFault::new(
                FaultCode::UnsupportedType,
                format!("{} is not a record type: write for example `A` or `TXT`", shown(input)),
            )
        };
        if let Some((prefix, digits)) = input.split_at_checked(GENERIC.len())
            && prefix.eq_ignore_ascii_case(GENERIC)
        {
            let number =
                digits.bytes().all(|digit| digit.is_ascii_digit()).then(|| digits.parse().ok()).flatten();
            return number.map(Self).ok_or_else(unknown);
        }
        if let Some(&(code, _)) = PRIVATE.iter().find(|(_, name)| name.eq_ignore_ascii_case(input)) {
            return Ok(Self(code));
        }
        Rtype::from_mnemonic(input.as_bytes()).map(|found| Self(found.to_int())).ok_or_else(unknown)
    }

    /// The type with this number.
    pub const fn from_code(code: u16) -> Self {
        Self(code)
    }

    /// The number of the type.
    pub const fn code(self) -> u16 {
        self.0
    }

    /// The name of the type in upper case; `TYPEnnn` where it has none.
    pub fn mnemonic(self) -> Cow<'static, str> {
        if let Some(&(_, name)) = PRIVATE.iter().find(|(code, _)| *code == self.0) {
            return Cow::Borrowed(name);
        }
        match Rtype::from_int(self.0).to_mnemonic_str() {
            Some(name) => Cow::Borrowed(name),
            None => Cow::Owned(format!("{GENERIC}{}", self.0)),
        }
    }

    /// Whether records of this type may be written; the fault names the type.
    pub fn writable(&self) -> Result<(), DnsFault> {
        let refuse = |why: String| Err(DnsFault::new(FaultCode::UnsupportedType, why));
        if let Some((_, why)) = NEVER.iter().find(|(code, _)| *code == self.0) {
            return refuse(format!("{self} records cannot be written: {why}"));
        }
        if self.is_meta() {
            return refuse(format!("{self} is a type of queries, not of records"));
        }
        if layout::row(self.0).is_none() && self.has_name() {
            return refuse(format!(
                "{self} records are not supported; the supported types are {}, and types without a name as `TYPEnnn`",
                layout::mnemonics()
            ));
        }
        Ok(())
    }

    /// Whether the type is called by a name and not by its number.
    fn has_name(self) -> bool {
        PRIVATE.iter().any(|(code, _)| *code == self.0) || Rtype::from_int(self.0).to_mnemonic_str().is_some()
    }

    /// Every type with a name that may be written.
    pub fn all_writable() -> impl Iterator<Item = Self> {
        layout::TABLE.iter().map(|row| Self(row.code)).filter(|ty| ty.writable().is_ok())
    }

    /// Whether the number is kept for queries and transport (RFC 6895, 3.1), or is the first or the last one.
    const fn is_meta(self) -> bool {
        matches!(self.0, 0 | 41 | 128..=255 | u16::MAX)
    }
}

impl fmt::Display for RrType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.mnemonic())
    }
}

impl fmt::Debug for RrType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.mnemonic())
    }
}

impl FromStr for RrType {
    type Err = DnsFault;

    fn from_str(input: &str) -> Result<Self, DnsFault> {
        Self::parse(input)
    }
}

impl TryFrom<String> for RrType {
    type Error = DnsFault;

    fn try_from(input: String) -> Result<Self, DnsFault> {
        Self::parse(&input)
    }
}

impl From<RrType> for String {
    fn from(ty: RrType) -> Self {
        ty.mnemonic().into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings() {
        for (input, ty) in [
            ("A", RrType::A),
            ("aaaa", RrType::AAAA),
            ("TYPE1", RrType::A),
            ("type257", RrType::CAA),
            ("Txt", RrType::TXT),
        ] {
            assert_eq!(RrType::parse(input), Ok(ty), "{input}");
        }
        assert_eq!(RrType::parse("TYPE65280").unwrap().mnemonic(), "TYPE65280");
        assert_eq!(RrType::parse("TYPE65402").unwrap().mnemonic(), "LUA");
        for input in [
            "",
            "TYPE",
            "TYPE-1",
            "TYPE+1",
            "TYPE65536",
            "TYPE1 ",
            "NOTATYPE",
            "*",
            " A",
            "A\0",
            "TYPÉ1",
            "éé",
        ] {
            assert_eq!(RrType::parse(input).expect_err(input).code, FaultCode::UnsupportedType, "{input}");
        }
        assert_eq!(serde_json::to_string(&RrType::CAA).unwrap(), "\"CAA\"");
        assert_eq!(serde_json::from_str::<RrType>("\"caa\"").unwrap(), RrType::CAA);
    }

    #[test]
    fn the_types_that_are_written() {
        let all: Vec<_> = RrType::all_writable().map(|ty| ty.mnemonic().into_owned()).collect();
        let known = "A NS CNAME PTR HINFO MX TXT RP AFSDB X25 ISDN RT PX AAAA LOC SRV NAPTR KX CERT DNAME APL DS SSHFP \
                     IPSECKEY DHCID TLSA SMIMEA CDS CDNSKEY OPENPGPKEY CSYNC SVCB HTTPS SPF NID L32 L64 LP EUI48 EUI64 \
                     URI CAA";
        assert_eq!(all.join(" "), known);
        for unknown in ["TYPE65280", "TYPE1000", "type65281"] {
            assert_eq!(RrType::parse(unknown).unwrap().writable(), Ok(()), "{unknown}");
        }
    }

    #[test]
    fn what_nobody_writes() {
        for input in [
            "LUA",
            "lua",
            "TYPE65402",
            "type65402",
            "SOA",
            "type6",
            "TYPE6",
            "RRSIG",
            "NSEC",
            "NSEC3",
            "NSEC3PARAM",
            "ZONEMD",
            "type63",
            "DNSKEY",
            "SIG",
            "KEY",
            "NXT",
            "OPT",
            "ANY",
            "AXFR",
            "IXFR",
            "MAILB",
            "TSIG",
            "TKEY",
            "TYPE0",
            "TYPE128",
            "TYPE255",
            "TYPE65535",
            "NULL",
            "ALIAS",
            "TYPE65401",
        ] {
            let ty = RrType::parse(input).unwrap_or_else(|fault| panic!("{input}: {fault}"));
            let fault = ty.writable().expect_err(input);
            assert_eq!(fault.code, FaultCode::UnsupportedType, "{input}");
            assert!(fault.detail.contains(&*ty.mnemonic()), "{input}: {}", fault.detail);
        }
    }
}
