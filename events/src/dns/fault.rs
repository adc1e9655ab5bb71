//! What is wrong with a DNS value, for people and for programs.
//!
//! A code never changes its spelling: scripts match on it. A detail says what to write instead, and shows input
//! only through `shown`, which bounds it and escapes what could forge a log line.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The most characters of foreign input that a detail repeats.
const SHOWN_CHARS: usize = 80;

/// The stable, snake_case kind of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FaultCode {
    /// Not a name the DNS or the platform can hold.
    InvalidName,
    /// An absolute owner name of another zone.
    OutsideZone,
    /// An owner name that repeats the zone without the final dot.
    LooksAbsolute,
    /// A name in record data without the final dot.
    RelativeName,
    /// A record type that is not taken.
    UnsupportedType,
    /// A record value that its type does not allow.
    InvalidRdata,
    /// A TTL out of range.
    InvalidTtl,
    /// A comment that is too long or holds control characters.
    InvalidComment,
    /// More records than one RRset may have.
    TooManyRecords,
    /// More record data than one RRset may have.
    RrsetTooLarge,
    /// An RRset without records.
    EmptyRrset,
    /// Several records of a type that allows one.
    SingleRecordOnly,
    /// A null MX beside another MX.
    NullMxNotAlone,
    /// Services of SVCB or HTTPS beside an alias of them.
    MixedServiceModes,
    /// A name under which the public registers names.
    PublicSuffix,
    /// A name with fewer labels than a tenant's domain needs.
    TooFewLabels,
    /// A name that only an administrator may host.
    AdministratorsOnly,
}

impl FaultCode {
    /// The code as scripts see it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InvalidName => "invalid_name",
            Self::OutsideZone => "outside_zone",
            Self::LooksAbsolute => "looks_absolute",
            Self::RelativeName => "relative_name",
            Self::UnsupportedType => "unsupported_type",
            Self::InvalidRdata => "invalid_rdata",
            Self::InvalidTtl => "invalid_ttl",
            Self::InvalidComment => "invalid_comment",
            Self::TooManyRecords => "too_many_records",
            Self::RrsetTooLarge => "rrset_too_large",
            Self::EmptyRrset => "empty_rrset",
            Self::SingleRecordOnly => "single_record_only",
            Self::NullMxNotAlone => "null_mx_not_alone",
            Self::MixedServiceModes => "mixed_service_modes",
            Self::PublicSuffix => "public_suffix",
            Self::TooFewLabels => "too_few_labels",
            Self::AdministratorsOnly => "administrators_only",
        }
    }
}

impl fmt::Display for FaultCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The part of an RRset that a fault is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FaultPlace {
    /// The value as a whole.
    #[default]
    Whole,
    /// The TTL.
    Ttl,
    /// The record at this index of the input, from 0.
    Record(usize),
    /// The list of records.
    Records,
    /// The comment.
    Comment,
}

impl FaultPlace {
    /// The place as a JSON Pointer into the body of an RRset.
    pub fn pointer(self) -> String {
        match self {
            Self::Whole => String::new(),
            Self::Ttl => "/ttl".to_owned(),
            Self::Record(index) => format!("/records/{index}"),
            Self::Records => "/records".to_owned(),
            Self::Comment => "/comment".to_owned(),
        }
    }
}

/// One fault of a DNS value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {detail}")]
pub struct DnsFault {
    /// What kind of fault it is.
    pub code: FaultCode,
    /// What is wrong and what to write instead.
    pub detail: String,
    /// Which part of the RRset it is about.
    pub place: FaultPlace,
}

impl DnsFault {
    /// A fault of the value as a whole.
    pub fn new(code: FaultCode, detail: impl Into<String>) -> Self {
        Self { code, detail: detail.into(), place: FaultPlace::Whole }
    }

    /// The same fault, told of one part of an RRset.
    pub fn at(mut self, place: FaultPlace) -> Self {
        self.place = place;
        self
    }

    pub(crate) fn name(detail: impl Into<String>) -> Self {
        Self::new(FaultCode::InvalidName, detail)
    }

    pub(crate) fn rdata(detail: impl Into<String>) -> Self {
        Self::new(FaultCode::InvalidRdata, detail)
    }
}

/// Foreign input as a detail may repeat it: quoted, bounded, without control characters.
pub(crate) fn shown(input: &str) -> String {
    let mut out = String::from("`");
    for (n, c) in input.chars().enumerate() {
        if n == SHOWN_CHARS {
            out.push('…');
            break;
        }
        // Bidirectional and other invisible characters are escaped too: they can turn a line around.
        if c == '\\' || c == '\'' || c == '"' {
            out.push(c);
        } else {
            out.extend(c.escape_debug());
        }
    }
    out.push('`');
    out
}
