//! The checksum of a zone: a set hash over its rendered RRsets.
//!
//! Each RRset's rows give one BLAKE3 digest; the checksum is their sum modulo 2²⁵⁶. A sum does not depend on the
//! order, and what a change takes away can be subtracted: the checksum of a zone of any size follows a change at the
//! cost of the change. It detects drift and mistakes, not an adversary who writes into the table at will.

use super::row::Row;
use std::collections::BTreeMap;
use std::fmt;

/// 64-bit limbs of the sum, the least first.
const LIMBS: usize = 4;

/// A sum of digests modulo 2²⁵⁶.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct SetHash([u64; LIMBS]);

impl SetHash {
    /// Of no RRset at all.
    pub const EMPTY: Self = Self([0; LIMBS]);

    /// Of rows that hold every RRset whole, in any order.
    pub fn of_rows<'r>(rows: impl IntoIterator<Item = &'r Row>) -> Self {
        let mut rrsets: BTreeMap<(&str, Option<&str>), Vec<&Row>> = BTreeMap::new();
        for row in rows {
            rrsets.entry((&row.name, row.rrtype.as_deref())).or_default().push(row);
        }
        let mut sum = Self::EMPTY;
        for rows in rrsets.values_mut() {
            rows.sort_unstable();
            sum.add(digest(rows));
        }
        sum
    }

    /// Of one row alone: a fingerprint, by which rows are compared without being kept.
    pub fn of_row(row: &Row) -> Self {
        digest(&[row])
    }

    /// Takes RRsets in.
    pub fn add(&mut self, other: Self) {
        let mut carry = false;
        for (limb, more) in self.0.iter_mut().zip(other.0) {
            let (sum, first) = limb.overflowing_add(more);
            let (sum, second) = sum.overflowing_add(u64::from(carry));
            (*limb, carry) = (sum, first || second);
        }
    }

    /// Takes RRsets out that were in it.
    pub fn subtract(&mut self, other: Self) {
        let mut borrow = false;
        for (limb, less) in self.0.iter_mut().zip(other.0) {
            let (rest, first) = limb.overflowing_sub(less);
            let (rest, second) = rest.overflowing_sub(u64::from(borrow));
            (*limb, borrow) = (rest, first || second);
        }
    }

    /// The octets as they are stored.
    pub fn to_bytes(self) -> [u8; 32] {
        let mut bytes = [0; 32];
        for (chunk, limb) in bytes.chunks_exact_mut(8).zip(self.0) {
            chunk.copy_from_slice(&limb.to_le_bytes());
        }
        bytes
    }

    /// From stored octets; none when their number is wrong.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; 32] = bytes.try_into().ok()?;
        let mut limbs = [0; LIMBS];
        for (limb, chunk) in limbs.iter_mut().zip(bytes.chunks_exact(8)) {
            *limb = u64::from_le_bytes(chunk.try_into().ok()?);
        }
        Some(Self(limbs))
    }
}

impl fmt::Display for SetHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.to_bytes()))
    }
}

/// The digest of one RRset, its rows sorted. Every field has its length before it, so no two sets read alike.
fn digest(rows: &[&Row]) -> SetHash {
    let mut hasher = blake3::Hasher::new();
    let mut field = |bytes: Option<&[u8]>| {
        let length = bytes.map_or(u64::MAX, |bytes| bytes.len() as u64);
        hasher.update(&length.to_le_bytes());
        hasher.update(bytes.unwrap_or_default());
    };
    for row in rows {
        field(Some(row.name.as_bytes()));
        field(row.rrtype.as_deref().map(str::as_bytes));
        field(row.content.as_deref().map(str::as_bytes));
        field(row.ttl.map(i32::to_le_bytes).as_ref().map(<[u8; 4]>::as_slice));
        field(Some(&[u8::from(row.auth), u8::from(row.disabled)]));
        field(row.ordername.as_deref().map(str::as_bytes));
        field(row.prio.map(i32::to_le_bytes).as_ref().map(<[u8; 4]>::as_slice));
    }
    SetHash::from_bytes(hasher.finalize().as_bytes()).unwrap_or_default()
}
