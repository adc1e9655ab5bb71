//! A zone as another server keeps it, and what of it is carried over. Each record is carried, or told by its name:
//! nothing is left out in silence. A zone with a record that cannot be read is refused as a whole, and no other with it.

use super::content;
use crate::dns::rrset::{RRSET_COMMENT_CHARS, RRSET_RECORDS};
use crate::dns::{DnsFault, DomainName, OwnerKey, OwnerName, Rdata, RrSet, RrType, Ttl};
use crate::zonetext::ZoneText;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Faults, warnings and things that are not carried which are told one by one, each.
pub const NOTES_MAX_COUNT: usize = 100;
/// TTL of a record that has none.
const DEFAULT_TTL_SECONDS: i64 = 3_600;
/// Types that a signer makes, and those of older ones.
const OF_SIGNERS: [u16; 9] = [24, 25, 30, 46, 47, 48, 50, 51, 63];
/// CDS, CDNSKEY: a signer's where the zone is signed.
const OF_KEYS: [u16; 2] = [59, 60];
/// RRSIG, DNSKEY: what only a signed zone has.
const SIGNED: [u16; 2] = [46, 48];
/// A digest of the keys of a zone below.
const DS: RrType = RrType::from_code(43);

/// A name or the data of a record, as the source gives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Data {
    /// In presentation format; names are absolute, with the final dot or without.
    Text(String),
    /// Uncompressed octets.
    Wire(Vec<u8>),
}

/// A record as the source gives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceRecord {
    /// Its owner, absolute.
    pub owner: Data,
    /// Its type; none: an empty non-terminal of PowerDNS.
    pub rrtype: Option<String>,
    /// Seconds to live, where it says so.
    pub ttl: Option<i64>,
    /// What it holds.
    pub data: Data,
    /// It is kept and not served.
    pub disabled: bool,
}

/// A comment on an RRset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceComment {
    /// The owner, absolute.
    pub owner: String,
    /// The type.
    pub rrtype: String,
    /// What it says.
    pub text: String,
}

/// Something that was not carried over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotCarried {
    /// What it is: `record`, `disabled_record`, `dnssec`, `dnssec_keys`, `metadata`, `secondary`, `comment`, …
    pub what: String,
    /// Its name, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its record type, where it has one.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub rrtype: Option<String>,
    /// How many of them.
    pub count: usize,
    /// Why, for people.
    pub detail: String,
}

impl NotCarried {
    /// Something that is no record.
    pub fn new(what: &str, name: Option<&str>, count: usize, detail: impl Into<String>) -> Self {
        let name = name.map(str::to_owned);
        Self { what: what.to_owned(), name, rrtype: None, count, detail: detail.into() }
    }
}

/// A fault of one record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceFault {
    /// The line of a text; the number of the record elsewhere; none of the zone as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    /// The owner and the type, where they are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record: Option<String>,
    /// Stable snake_case code.
    pub code: String,
    /// For people.
    pub detail: String,
}

/// Why a zone is not carried over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The first faults.
    pub faults: Vec<SourceFault>,
    /// How many there are.
    pub total: usize,
}

impl Refused {
    /// A zone that is refused as a whole.
    pub fn whole(code: &str, detail: impl Into<String>) -> Self {
        let fault = SourceFault { line: None, record: None, code: code.to_owned(), detail: detail.into() };
        Self { faults: vec![fault], total: 1 }
    }

    fn push(&mut self, fault: SourceFault) {
        self.total += 1;
        if self.faults.len() < NOTES_MAX_COUNT {
            self.faults.push(fault);
        }
    }
}

/// A zone as the source gives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceZone {
    /// Its name.
    pub name: DomainName,
    /// Its records, in no particular order.
    pub records: Vec<SourceRecord>,
    /// Comments on its RRsets.
    pub comments: Vec<SourceComment>,
    /// What the source keeps beside its records.
    pub beside: Vec<NotCarried>,
    /// What whoever reads the report may want to know.
    pub warnings: Vec<String>,
    /// Whether the source signs it.
    pub signed: bool,
}

/// What of a zone is carried over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Carried {
    /// Its RRsets in the order of the zone.
    pub rrsets: Vec<RrSet>,
    /// Where each was found: a line of a text; 0 elsewhere.
    pub lines: Vec<usize>,
    /// The serial of its SOA.
    pub serial: Option<u32>,
    /// What was not taken as it stands.
    pub warnings: Vec<String>,
    /// What stays behind.
    pub not_carried: Vec<NotCarried>,
    /// Records of the RRsets.
    pub records: usize,
}

#[derive(Debug)]
struct Set {
    owner: OwnerName,
    ttl: i64,
    differs: bool,
    first: usize,
    records: Vec<Rdata>,
}

#[derive(Debug, Default)]
struct Collector {
    sets: BTreeMap<(OwnerKey, RrType), Set>,
    /// Names that PowerDNS keeps because something lies below them.
    empty: Vec<OwnerName>,
    dropped: BTreeMap<RrType, usize>,
    serial: Option<u32>,
    warnings: Vec<String>,
    left: Vec<NotCarried>,
    left_more: usize,
}

/// What of a zone is carried over; `most` is how many records it may have.
///
/// # Errors
/// Every fault of its records.
pub fn carry(zone: SourceZone, most: usize) -> Result<Carried, Refused> {
    let SourceZone { name, records, comments, beside, warnings, signed } = zone;
    let mut refused = Refused { faults: Vec::new(), total: 0 };
    if records.len() > most {
        let detail = format!("the zone has {} records: at most {most} here", records.len());
        return Err(Refused::whole("too_many_records", detail));
    }
    let mut collector = Collector { warnings, ..Collector::default() };
    for (index, record) in records.into_iter().enumerate() {
        if let Err((record, fault)) = collector.take(&name, index + 1, record) {
            let code = fault.code.as_str().to_owned();
            refused.push(SourceFault { line: Some(index + 1), record, code, detail: fault.detail });
        }
    }
    collector.drop_keys(signed);
    collector.below(&name);
    let comments = collector.comments(&name, comments);
    let carried = collector.finish(beside, comments, &mut refused);
    if refused.total > 0 { Err(refused) } else { Ok(carried) }
}

/// The same of a text that was read.
pub fn carry_text(text: ZoneText) -> Carried {
    let lines = text.rrsets.iter().map(|one| one.line).collect();
    let dropped = text.left_out.iter().map(|(rrtype, count)| of_signer(*rrtype, *count)).collect();
    Carried {
        lines,
        rrsets: text.rrsets.into_iter().map(|one| one.rrset).collect(),
        serial: text.serial,
        warnings: text.warnings,
        not_carried: dropped,
        records: text.records,
    }
}

fn of_signer(rrtype: RrType, count: usize) -> NotCarried {
    let detail = "keys and signatures are made by the server that signs the zone, and are not carried yet";
    NotCarried {
        what: "dnssec".to_owned(),
        name: None,
        rrtype: Some(rrtype.to_string()),
        count,
        detail: detail.to_owned(),
    }
}

fn shown(name: &Data) -> String {
    match name {
        Data::Text(text) => text.chars().take(260).flat_map(char::escape_debug).collect(),
        Data::Wire(wire) => crate::dns::label::read_wire(wire)
            .map_or_else(|_| "?".to_owned(), |(labels, _)| format!("{}.", crate::dns::label::print(&labels))),
    }
}

impl Collector {
    fn leave(&mut self, what: &str, record: &SourceRecord, why: impl Into<String>) {
        if self.left.len() >= NOTES_MAX_COUNT {
            self.left_more += 1;
            return;
        }
        let mut note = NotCarried::new(what, Some(&shown(&record.owner)), 1, why);
        note.rrtype.clone_from(&record.rrtype);
        self.left.push(note);
    }

    fn warn(&mut self, detail: String) {
        match self.warnings.len() {
            0..NOTES_MAX_COUNT => self.warnings.push(detail),
            NOTES_MAX_COUNT => self.warnings.push("and more warnings like these".to_owned()),
            _ => {}
        }
    }

    fn take(
        &mut self,
        zone: &DomainName,
        number: usize,
        record: SourceRecord,
    ) -> Result<(), (Option<String>, DnsFault)> {
        let owner = match content::owner(&record.owner, zone) {
            Ok(owner) => owner,
            Err(fault) if fault.code == crate::dns::fault::FaultCode::OutsideZone => {
                self.leave(
                    "record",
                    &record,
                    "it lies outside of the zone, where nobody is answered with it",
                );
                return Ok(());
            }
            Err(fault) => return Err((Some(shown(&record.owner)), fault)),
        };
        let Some(spelled) = &record.rrtype else {
            self.empty.push(owner);
            return Ok(());
        };
        if record.disabled {
            self.leave("disabled_record", &record, "it is disabled, and nobody is answered with it");
            return Ok(());
        }
        let called = || Some(format!("{owner} {}", spelled.chars().take(20).collect::<String>()));
        let Ok(rrtype) = RrType::parse(spelled) else {
            self.leave("record", &record, "there is no such type here");
            return Ok(());
        };
        if rrtype == RrType::SOA {
            if owner.is_apex() {
                self.serial = content::serial(&record.data).or(self.serial);
            } else {
                self.leave("record", &record, "an SOA belongs to the apex of a zone");
            }
            return Ok(());
        }
        if OF_SIGNERS.contains(&rrtype.code()) {
            *self.dropped.entry(rrtype).or_default() += 1;
            return Ok(());
        }
        if let Err(fault) = rrtype.writable() {
            self.leave("record", &record, fault.detail);
            return Ok(());
        }
        if owner.is_apex() && rrtype == DS {
            self.leave("record", &record, "a DS belongs to the zone above this one");
            return Ok(());
        }
        let rdata = content::rdata(rrtype, &record.data).map_err(|fault| (called(), fault))?;
        if owner.is_apex() && rrtype == RrType::NS {
            self.warn(format!(
                "the apex NS {rdata} was not taken over: the platform's nameservers stand there"
            ));
            return Ok(());
        }
        let ttl = record.ttl.unwrap_or_else(|| {
            self.warn(format!("{owner} {rrtype} has no TTL: it gets {DEFAULT_TTL_SECONDS} s"));
            DEFAULT_TTL_SECONDS
        });
        let set = self.sets.entry((owner.key(), rrtype)).or_insert_with(|| Set {
            owner,
            ttl,
            differs: false,
            first: number,
            records: Vec::new(),
        });
        set.differs |= set.ttl != ttl;
        set.ttl = set.ttl.min(ttl);
        set.records.push(rdata);
        Ok(())
    }

    /// CDS and CDNSKEY at the apex of a signed zone speak of keys that stay behind.
    fn drop_keys(&mut self, signed: bool) {
        let is_signed =
            signed || SIGNED.iter().any(|code| self.dropped.contains_key(&RrType::from_code(*code)));
        if !is_signed {
            return;
        }
        for code in OF_KEYS {
            let rrtype = RrType::from_code(code);
            if let Some(set) = self.sets.remove(&(OwnerName::apex().key(), rrtype)) {
                *self.dropped.entry(rrtype).or_default() += set.records.len();
            }
        }
    }

    /// An empty non-terminal is there by what lies below it; one with nothing below answers otherwise from now on.
    fn below(&mut self, zone: &DomainName) {
        for owner in std::mem::take(&mut self.empty) {
            let key = owner.key();
            let is_carried =
                self.sets.range((key.clone(), RrType::from_code(0))..).any(|((other, _), _)| *other == key)
                    || self.sets.keys().any(|(other, _)| other.is_below(&key));
            if !is_carried {
                let detail = "nothing lies below this empty name, so there is no such name from now on";
                self.left.push(NotCarried::new("empty_name", Some(&owner.absolute(zone)), 1, detail));
            }
        }
    }

    /// The comment of each RRset; of several, one after the other.
    fn comments(
        &mut self,
        zone: &DomainName,
        comments: Vec<SourceComment>,
    ) -> BTreeMap<(OwnerKey, RrType), String> {
        let mut found: BTreeMap<(OwnerKey, RrType), String> = BTreeMap::new();
        let (total, mut lost) = (comments.len(), 0);
        for comment in comments {
            let owner = content::owner(&Data::Text(comment.owner), zone).ok();
            let place = owner.map(|owner| owner.key()).zip(RrType::parse(&comment.rrtype).ok());
            match place.filter(|place| self.sets.contains_key(place)) {
                Some(place) => {
                    let told = found.entry(place).or_default();
                    if !told.is_empty() {
                        told.push_str("; ");
                    }
                    told.extend(comment.text.chars().map(|c| if c.is_control() { ' ' } else { c }));
                }
                None => lost += 1,
            }
        }
        if lost > 0 {
            let detail = "they speak of records that are not carried";
            self.left.push(NotCarried::new("comment", None, lost, detail));
        }
        if total > lost {
            let detail = "an RRset's comment has no author and no time here; the text is carried";
            self.left.push(NotCarried::new("comment_author", None, total - lost, detail));
        }
        for ((key, rrtype), text) in &mut found {
            if text.chars().count() > RRSET_COMMENT_CHARS {
                *text = text.chars().take(RRSET_COMMENT_CHARS).collect();
                let detail = format!("it was cut after {RRSET_COMMENT_CHARS} characters");
                let mut note = NotCarried::new("comment", Some(key.as_str()), 1, detail);
                note.rrtype = Some(rrtype.to_string());
                self.left.push(note);
            }
        }
        found
    }

    fn finish(
        mut self,
        beside: Vec<NotCarried>,
        mut comments: BTreeMap<(OwnerKey, RrType), String>,
        refused: &mut Refused,
    ) -> Carried {
        match self.serial {
            Some(serial) => self.warn(format!(
                "the SOA with the serial {serial} was not taken over: its fields come from the platform, and its serial goes on from the higher one"
            )),
            None => self.warn("the zone has no SOA: the platform's is used".to_owned()),
        }
        let (mut rrsets, mut records) = (Vec::new(), 0);
        for (place, set) in std::mem::take(&mut self.sets) {
            let (owner, rrtype) = (set.owner, place.1);
            let called = format!("{owner} {rrtype}");
            if set.differs {
                let ttl = set.ttl;
                self.warn(format!(
                    "the records of {called} have different TTLs: all have the lowest, {ttl} s"
                ));
            }
            let comment = comments.remove(&place);
            // What is far beyond the bound is told by its number, not by its octets.
            let many = set.records.len() > 2 * RRSET_RECORDS;
            let made = Ttl::new(set.ttl).map_err(|fault| vec![fault]).and_then(|ttl| {
                let kept = if many { Vec::new() } else { set.records };
                RrSet::from_rdata(owner, rrtype, ttl, kept, comment)
            });
            match made {
                Ok(rrset) => {
                    records += rrset.records().len();
                    rrsets.push(rrset);
                }
                Err(faults) => {
                    for fault in faults {
                        let detail =
                            if many { format!("more than {RRSET_RECORDS} records") } else { fault.detail };
                        refused.push(SourceFault {
                            line: Some(set.first),
                            record: Some(called.clone()),
                            code: fault.code.as_str().to_owned(),
                            detail,
                        });
                    }
                }
            }
        }
        let dropped = self.dropped.into_iter().map(|(rrtype, count)| of_signer(rrtype, count));
        let mut not_carried: Vec<NotCarried> = beside.into_iter().chain(dropped).chain(self.left).collect();
        if self.left_more > 0 {
            let detail = "more records that are not carried";
            not_carried.push(NotCarried::new("record", None, self.left_more, detail));
        }
        let lines = vec![0; rrsets.len()];
        Carried { rrsets, lines, serial: self.serial, warnings: self.warnings, not_carried, records }
    }
}
