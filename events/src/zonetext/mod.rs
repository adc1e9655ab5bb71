//! Zone text: BIND master files (RFC 1035, 5) read into RRsets, and RRsets written as such.
//!
//! What must hold: every faulty line is found, whatever stands before it, and nothing is given of a text with any; no
//! text, however hostile, makes it panic or take more than its bounds; time is linear in the text. What is written
//! reads back as itself.

mod collect;
mod entry;
mod generate;
mod lexer;
mod reader;

use crate::dns::{OwnerName, RrSet, RrType};
use std::fmt;

pub use reader::read;

/// Octets of one zone text, at most.
pub const TEXT_MAX_BYTES: usize = 64 << 20;
/// Records of one zone text, at most, whatever the setting.
pub const RECORDS_MAX_COUNT: usize = 1_000_000;
/// Faults that are told one by one.
pub const FAULTS_MAX_COUNT: usize = 100;
/// Warnings that are told one by one.
pub const WARNINGS_MAX_COUNT: usize = 100;
/// Records that `$GENERATE` makes in one text, at most.
pub const GENERATED_MAX_RECORDS: usize = 65_536;
/// Tokens of one entry, at most: as many character-strings as fit into record data, and some.
pub const ENTRY_MAX_TOKENS: usize = 70_000;

/// How a line is marked that the platform derives.
pub const DERIVED: &str = "derived";

/// One fault of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineFault {
    /// The line, from 1.
    pub line: usize,
    /// Stable snake_case code.
    pub code: &'static str,
    /// For people.
    pub detail: String,
}

impl fmt::Display for LineFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.detail)
    }
}

/// Why a text was not taken: the first faults, and how many there are.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{total} fault(s) in the zone text")]
pub struct Faulty {
    /// The first of them, in the order of their lines.
    pub faults: Vec<LineFault>,
    /// How many there are.
    pub total: usize,
}

/// One RRset of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextRrset {
    /// What it says.
    pub rrset: RrSet,
    /// The line of its last record.
    pub line: usize,
}

/// A text that has no fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZoneText {
    /// Its RRsets in the order of the zone, without what the platform derives and what signers make.
    pub rrsets: Vec<TextRrset>,
    /// The serial of its SOA.
    pub serial: Option<u32>,
    /// What was not taken as it stands.
    pub warnings: Vec<String>,
    /// Types of which records were left out, and how many: keys and signatures.
    pub left_out: Vec<(RrType, usize)>,
    /// Records of the RRsets.
    pub records: usize,
}

/// The line of one record.
pub fn line(owner: &OwnerName, ttl: u32, rrtype: RrType, record: &str, derived: bool) -> String {
    let mark = if derived { " ; derived" } else { "" };
    format!("{owner} {ttl} IN {rrtype} {record}{mark}\n")
}

/// Notes with a bound: the first ones, and how many there were.
#[derive(Debug)]
pub(crate) struct Bounded<T> {
    kept: Vec<T>,
    total: usize,
    most: usize,
}

impl<T> Bounded<T> {
    fn new(most: usize) -> Self {
        Self { kept: Vec::new(), total: 0, most }
    }

    fn push(&mut self, one: T) {
        self.total += 1;
        if self.kept.len() < self.most {
            self.kept.push(one);
        }
    }
}
