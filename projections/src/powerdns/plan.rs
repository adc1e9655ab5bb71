//! Pure: what to write so that a table holds exactly the rendered rows. `plan(x, x)` is empty.

use super::row::{Row, StoredRow};
use std::collections::HashMap;
use std::fmt;

/// What to write.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// Rows to insert.
    pub insert: Vec<Row>,
    /// Rows to delete.
    pub delete: Vec<StoredRow>,
}

impl Plan {
    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.insert.is_empty() && self.delete.is_empty()
    }

    /// The same, told as differences: one for each row that is missing or too many.
    pub fn differences(&self) -> Vec<Difference> {
        let missing = self.insert.iter().map(|row| Difference::Missing(row.clone()));
        missing.chain(self.delete.iter().map(|stored| Difference::Unexpected(stored.row.clone()))).collect()
    }
}

/// What `wanted` has and `found` has not, and the reverse. Equal rows count: a doubled row is one too many.
pub fn plan(wanted: &[Row], found: Vec<StoredRow>) -> Plan {
    let mut open: HashMap<&Row, usize> = HashMap::with_capacity(wanted.len());
    for row in wanted {
        *open.entry(row).or_default() += 1;
    }
    let mut plan = Plan::default();
    for stored in found {
        match open.get_mut(&stored.row) {
            Some(count) if *count > 0 => *count -= 1,
            _ => plan.delete.push(stored),
        }
    }
    for row in wanted {
        if let Some(count) = open.get_mut(row)
            && *count > 0
        {
            *count -= 1;
            plan.insert.push(row.clone());
        }
    }
    plan
}

/// One way in which a target differs from what it should hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Difference {
    /// The whole zone is not there.
    ZoneMissing(String),
    /// The zone is there though it should be gone.
    ZoneUnexpected(String),
    /// A row should be there.
    Missing(Row),
    /// A row should not be there.
    Unexpected(Row),
    /// What the target's own ledger says of the zone does not fit its rows, or something hangs on the zone that was
    /// never written.
    Ledger(String),
    /// The target holds what this log does not know.
    Ahead(String),
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ZoneMissing(zone) => write!(f, "missing zone {zone}"),
            Self::ZoneUnexpected(zone) => write!(f, "unexpected zone {zone}"),
            Self::Missing(row) => write!(f, "missing row {row}"),
            Self::Unexpected(row) => write!(f, "unexpected row {row}"),
            Self::Ledger(detail) | Self::Ahead(detail) => f.write_str(detail),
        }
    }
}
