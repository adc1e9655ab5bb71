//! One row of PowerDNS's table `records`, without its id and its zone.
//!
//! `prio` and `disabled` are always NULL and false in what is rendered (PowerDNS takes the whole content of MX and SRV
//! from `content`); they are here because a row that somebody altered must differ.

use std::borrow::Cow;
use std::fmt;

/// A row, as rendered or as found.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Row {
    /// Absolute name as PowerDNS spells it, without the final dot.
    pub name: String,
    /// The type in upper case; none for an empty non-terminal.
    pub rrtype: Option<Cow<'static, str>>,
    /// RDATA in presentation format.
    pub content: Option<String>,
    /// Seconds to live.
    pub ttl: Option<i32>,
    /// Whether the zone is authoritative for it: not at a cut, nor below one.
    pub auth: bool,
    /// The sort key that NSEC chains follow; none below a cut and for empty non-terminals.
    pub ordername: Option<String>,
    /// Never set by us.
    pub prio: Option<i32>,
    /// Never set by us.
    pub disabled: bool,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.rrtype.as_deref().unwrap_or("(empty non-terminal)");
        write!(f, "{} {kind}", self.name)?;
        if let Some(ttl) = self.ttl {
            write!(f, " {ttl}")?;
        }
        if let Some(content) = &self.content {
            write!(f, " {content}")?;
        }
        write!(f, " auth={}", self.auth)?;
        if let Some(key) = &self.ordername {
            write!(f, " ordername='{key}'")?;
        }
        if let Some(prio) = self.prio {
            write!(f, " prio={prio}")?;
        }
        if self.disabled { f.write_str(" disabled") } else { Ok(()) }
    }
}

/// A row as the table holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRow {
    /// Its id in the table.
    pub id: i64,
    /// What it says.
    pub row: Row,
}
