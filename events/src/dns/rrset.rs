//! RRsets: all records of one owner and type, with one TTL; the unit of DNS writes.
//!
//! An [`RrSet`] that exists is within every bound of one RRset, without duplicates, its records in canonical
//! order, so that equal sets are equal values. Reading one tells every fault at once, each with its place.

use serde::{Deserialize, Serialize};

use super::fault::{DnsFault, FaultCode, FaultPlace};
use super::layout;
use super::name::{DomainName, OwnerName};
use super::rdata::Rdata;
use super::rrtype::RrType;
use super::svcb;
use crate::manager::Manager;

/// The most records in one RRset.
pub const RRSET_RECORDS: usize = 500;
/// The most octets of record data in one RRset.
pub const RRSET_RDATA_OCTETS: usize = 65_000;
/// The most characters in the comment of an RRset.
pub const RRSET_COMMENT_CHARS: usize = 500;
/// The longest time to live, in seconds (RFC 2181, 8).
pub const TTL_SECONDS_MAX: u32 = 2_147_483_647;

/// A time to live in seconds, 0 … 2,147,483,647.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, utoipa::ToSchema,
)]
#[serde(try_from = "i64", into = "u32")]
#[schema(value_type = u32, minimum = 0, maximum = 2_147_483_647, example = 300)]
pub struct Ttl(u32);

impl Ttl {
    /// A TTL of so many seconds.
    pub fn new(seconds: i64) -> Result<Self, DnsFault> {
        match u32::try_from(seconds) {
            Ok(seconds) if seconds <= TTL_SECONDS_MAX => Ok(Self(seconds)),
            _ => {
                let detail = format!("{seconds} is not a TTL: write seconds from 0 to {TTL_SECONDS_MAX}");
                Err(DnsFault::new(FaultCode::InvalidTtl, detail).at(FaultPlace::Ttl))
            }
        }
    }

    /// The seconds.
    pub const fn seconds(self) -> u32 {
        self.0
    }
}

impl TryFrom<i64> for Ttl {
    type Error = DnsFault;

    fn try_from(seconds: i64) -> Result<Self, DnsFault> {
        Self::new(seconds)
    }
}

impl From<Ttl> for u32 {
    fn from(ttl: Ttl) -> Self {
        ttl.0
    }
}

impl std::fmt::Display for Ttl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// The body of an RRset as somebody asks for it: nothing is checked yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RrSetInput {
    /// Seconds to live.
    #[schema(minimum = 0, maximum = 2_147_483_647)]
    pub ttl: i64,
    /// Record values in presentation format.
    pub records: Vec<String>,
    /// A comment for people.
    #[serde(default)]
    pub comment: Option<String>,
}

/// The body of an RRset in events and answers: `records` in canonical text and order.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
pub struct RrSetBody {
    /// Seconds to live.
    pub ttl: Ttl,
    /// Record values in presentation format.
    pub records: Vec<String>,
    /// A comment for people.
    #[serde(default)]
    pub comment: Option<String>,
    /// The tool that owns it; none: nobody does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub managed_by: Option<Manager>,
}

impl RrSetBody {
    /// Whether both say the same to the DNS and to people, whoever owns them.
    pub fn says_the_same(&self, other: &Self) -> bool {
        self.ttl == other.ttl && self.records == other.records && self.comment == other.comment
    }
}

impl From<RrSetBody> for RrSetInput {
    fn from(body: RrSetBody) -> Self {
        Self { ttl: i64::from(body.ttl.0), records: body.records, comment: body.comment }
    }
}

/// All records of one owner and type.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RrSet {
    owner: OwnerName,
    ty: RrType,
    ttl: Ttl,
    records: Vec<Rdata>,
    comment: Option<String>,
}

impl RrSet {
    /// Checks a body and puts it in canonical form. Every fault is told, with its place in the body.
    pub fn new(
        owner: OwnerName,
        ty: RrType,
        input: &RrSetInput,
        zone: &DomainName,
    ) -> Result<Self, Vec<DnsFault>> {
        if let Err(fault) = ty.writable() {
            return Err(vec![fault]);
        }
        let mut faults = Vec::new();
        let ttl = Ttl::new(input.ttl).map_err(|fault| faults.push(fault)).ok();
        let mut records = Vec::new();
        // What is far beyond the bound is not worth reading: duplicates may fold, but not without end.
        if input.records.len() > 2 * RRSET_RECORDS {
            faults.push(too_many(input.records.len()));
        } else {
            for (index, text) in input.records.iter().enumerate() {
                match Rdata::parse(ty, text, zone) {
                    Ok(rdata) => records.push(rdata),
                    Err(fault) => faults.push(fault.at(FaultPlace::Record(index))),
                }
            }
            if records.len() == input.records.len() {
                check_set(&owner, ty, &mut records, &mut faults);
            }
        }
        faults.extend(check_comment(input.comment.as_deref()));
        match ttl {
            Some(ttl) if faults.is_empty() => {
                Ok(Self { owner, ty, ttl, records, comment: input.comment.clone() })
            }
            _ => Err(faults),
        }
    }

    /// The same from values that are already read; they must all be of the type.
    pub fn from_rdata(
        owner: OwnerName,
        ty: RrType,
        ttl: Ttl,
        records: Vec<Rdata>,
        comment: Option<String>,
    ) -> Result<Self, Vec<DnsFault>> {
        if let Err(fault) = ty.writable() {
            return Err(vec![fault]);
        }
        let mut faults = Vec::new();
        for (index, rdata) in records.iter().enumerate() {
            if rdata.rr_type() != ty {
                let detail = format!("a value of type {} stands in an RRset of type {ty}", rdata.rr_type());
                faults.push(DnsFault::rdata(detail).at(FaultPlace::Record(index)));
            }
        }
        let mut records = records;
        check_set(&owner, ty, &mut records, &mut faults);
        faults.extend(check_comment(comment.as_deref()));
        if faults.is_empty() { Ok(Self { owner, ty, ttl, records, comment }) } else { Err(faults) }
    }

    /// The same from a body that was canonical once, such as that of an event.
    pub fn from_body(
        owner: OwnerName,
        ty: RrType,
        body: &RrSetBody,
        zone: &DomainName,
    ) -> Result<Self, Vec<DnsFault>> {
        Self::new(owner, ty, &RrSetInput::from(body.clone()), zone)
    }

    /// The same with another comment, one that an RRset had already.
    pub(crate) fn with_comment(self, comment: Option<String>) -> Self {
        Self { comment, ..self }
    }

    /// The body for events and answers, which nobody owns yet.
    pub fn body(&self) -> RrSetBody {
        RrSetBody {
            ttl: self.ttl,
            records: self.records.iter().map(|rdata| rdata.as_text().to_owned()).collect(),
            comment: self.comment.clone(),
            managed_by: None,
        }
    }

    /// The owner.
    pub fn owner(&self) -> &OwnerName {
        &self.owner
    }

    /// The type.
    pub fn rr_type(&self) -> RrType {
        self.ty
    }

    /// The time to live.
    pub fn ttl(&self) -> Ttl {
        self.ttl
    }

    /// The values in canonical order.
    pub fn records(&self) -> &[Rdata] {
        &self.records
    }

    /// The comment.
    pub fn comment(&self) -> Option<&str> {
        self.comment.as_deref()
    }
}

fn too_many(count: usize) -> DnsFault {
    let detail = format!("{count} records: one RRset has at most {RRSET_RECORDS}");
    DnsFault::new(FaultCode::TooManyRecords, detail).at(FaultPlace::Records)
}

/// Sorts and folds the records, and tells what the set as a whole may not be.
fn check_set(owner: &OwnerName, ty: RrType, records: &mut Vec<Rdata>, faults: &mut Vec<DnsFault>) {
    records.sort_unstable();
    records.dedup();
    let mut fault = |code, detail: String| faults.push(DnsFault::new(code, detail).at(FaultPlace::Records));
    if records.is_empty() {
        fault(
            FaultCode::EmptyRrset,
            "there is no record: write at least one, or delete the RRset".to_owned(),
        );
    }
    let octets: usize = records.iter().map(|rdata| rdata.wire().len()).sum();
    if octets > RRSET_RDATA_OCTETS {
        fault(
            FaultCode::RrsetTooLarge,
            format!("{octets} octets of record data: one RRset has at most {RRSET_RDATA_OCTETS}"),
        );
    }
    if records.len() > 1 && layout::row(ty.code()).is_some_and(|row| row.single) {
        fault(
            FaultCode::SingleRecordOnly,
            format!("{} different {ty} records: a name has one", records.len()),
        );
    }
    if records.len() > 1 && records.iter().any(Rdata::is_null_mx) {
        fault(
            FaultCode::NullMxNotAlone,
            "`.` says that the name takes no mail (RFC 7505): leave it out, or the other MX records"
                .to_owned(),
        );
    }
    let aliases = records.iter().filter(|rdata| svcb::is_alias(rdata)).count();
    if svcb::TYPES.contains(&ty) && records.len() > 1 && aliases > 0 {
        fault(
            FaultCode::MixedServiceModes,
            "an alias (priority 0) stands alone (RFC 9460, 2.4.2): leave it out, or the others".to_owned(),
        );
    }
    if svcb::TYPES.contains(&ty) && svcb::is_resolver(owner) {
        for (index, rdata) in records.iter().enumerate() {
            faults.extend(svcb::check_resolver(rdata).map(|found| found.at(FaultPlace::Record(index))));
        }
    }
    if records.len() > RRSET_RECORDS {
        faults.push(too_many(records.len()));
    }
}

fn check_comment(comment: Option<&str>) -> Option<DnsFault> {
    let comment = comment?;
    let chars = comment.chars().count();
    let detail = if chars > RRSET_COMMENT_CHARS {
        format!("the comment has {chars} characters: at most {RRSET_COMMENT_CHARS}")
    } else if comment.chars().any(char::is_control) {
        "the comment holds a control character or a line break: write it as one line".to_owned()
    } else {
        return None;
    };
    Some(DnsFault::new(FaultCode::InvalidComment, detail).at(FaultPlace::Comment))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone() -> DomainName {
        DomainName::parse("example.com").unwrap()
    }

    fn input(ttl: i64, records: &[&str], comment: Option<&str>) -> RrSetInput {
        RrSetInput {
            ttl,
            records: records.iter().map(|text| (*text).to_owned()).collect(),
            comment: comment.map(str::to_owned),
        }
    }

    fn new(ty: RrType, input: &RrSetInput) -> Result<RrSet, Vec<DnsFault>> {
        RrSet::new(OwnerName::apex(), ty, input, &zone())
    }

    fn codes(ty: RrType, input: &RrSetInput) -> Vec<(FaultCode, String)> {
        new(ty, input).unwrap_err().into_iter().map(|fault| (fault.code, fault.place.pointer())).collect()
    }

    #[test]
    fn every_fault_has_its_place() {
        let body = input(-1, &["192.0.2.1", "192.0.2", "2001:db8::1", ""], Some("a\nb"));
        assert_eq!(
            codes(RrType::A, &body),
            [
                (FaultCode::InvalidTtl, "/ttl".to_owned()),
                (FaultCode::InvalidRdata, "/records/1".to_owned()),
                (FaultCode::InvalidRdata, "/records/2".to_owned()),
                (FaultCode::InvalidRdata, "/records/3".to_owned()),
                (FaultCode::InvalidComment, "/comment".to_owned()),
            ]
        );
        assert_eq!(codes(RrType::SOA, &body), [(FaultCode::UnsupportedType, String::new())]);
    }

    #[test]
    fn rules_of_one_set() {
        let at_records = |code| vec![(code, "/records".to_owned())];
        assert_eq!(codes(RrType::A, &input(0, &[], None)), at_records(FaultCode::EmptyRrset));
        assert_eq!(
            codes(RrType::CNAME, &input(0, &["a.", "b."], None)),
            at_records(FaultCode::SingleRecordOnly)
        );
        assert_eq!(
            codes(RrType::MX, &input(0, &["0 .", "10 a."], None)),
            at_records(FaultCode::NullMxNotAlone)
        );
        assert!(new(RrType::CNAME, &input(0, &["a.", "A."], None)).is_ok());
        assert!(new(RrType::MX, &input(0, &["0 ."], None)).is_ok());
        assert_eq!(
            codes(RrType::A, &input(0, &["192.0.2.1"], Some(&"é".repeat(501)))),
            [(FaultCode::InvalidComment, "/comment".to_owned())]
        );
        assert!(new(RrType::A, &input(0, &["192.0.2.1"], Some(&"é".repeat(500)))).is_ok());
    }

    #[test]
    fn bounds_of_one_set() {
        let addresses = |count: u32| -> RrSetInput {
            let records = (0..count).map(|n| std::net::Ipv4Addr::from(0xc000_0200 + n).to_string()).collect();
            RrSetInput { ttl: i64::from(TTL_SECONDS_MAX), records, comment: None }
        };
        assert_eq!(new(RrType::A, &addresses(500)).unwrap().records().len(), 500);
        assert_eq!(codes(RrType::A, &addresses(501)), [(FaultCode::TooManyRecords, "/records".to_owned())]);
        assert_eq!(codes(RrType::A, &addresses(1001)), [(FaultCode::TooManyRecords, "/records".to_owned())]);
        let long = |octets: usize| RrSetInput {
            ttl: 0,
            records: vec![format!("\"{}\"", "k".repeat(octets))],
            comment: None,
        };
        // 253 full strings and one of 231 octets: 254 length octets.
        assert!(new(RrType::TXT, &long(64_746)).is_ok());
        assert_eq!(codes(RrType::TXT, &long(64_747)), [(FaultCode::RrsetTooLarge, "/records".to_owned())]);
    }

    #[test]
    fn canonical_and_back() {
        let set =
            new(RrType::AAAA, &input(300, &["2001:DB8::2", "2001:db8::1", "2001:db8:0::2"], Some("two")))
                .unwrap();
        let body = set.body();
        assert_eq!(
            serde_json::to_string(&body).unwrap(),
            r#"{"ttl":300,"records":["2001:db8::1","2001:db8::2"],"comment":"two"}"#
        );
        assert_eq!(RrSet::from_body(OwnerName::apex(), RrType::AAAA, &body, &zone()), Ok(set.clone()));
        let records = set.records().iter().rev().cloned().collect();
        assert_eq!(
            RrSet::from_rdata(
                OwnerName::apex(),
                RrType::AAAA,
                set.ttl(),
                records,
                set.comment().map(str::to_owned)
            ),
            Ok(set.clone())
        );
        assert!(
            RrSet::from_rdata(OwnerName::apex(), RrType::A, set.ttl(), set.records().to_vec(), None).is_err()
        );
        assert!(serde_json::from_str::<RrSetInput>(r#"{"ttl":300,"records":[],"tll":1}"#).is_err());
        for ttl in ["-1", "2147483648", "4294967296", "1.5", "\"3600\"", "null"] {
            assert!(serde_json::from_str::<Ttl>(ttl).is_err(), "{ttl}");
        }
    }
}
