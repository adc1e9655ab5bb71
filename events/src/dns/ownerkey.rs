//! Sort keys of owner names: what PowerDNS keeps as `ordername`.
//!
//! A key is the owner's labels in reverse, joined by one space, each with only `.` and `\` behind a backslash and
//! what is not printable as `\DDD`; the apex has the empty key. No label holds a raw space, hence in byte order
//! (the C collation) the names below a key `k` are exactly the keys that begin with `k` and a space.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::fault::{DnsFault, shown};
use super::label;
use super::owner::OwnerName;

/// The sort key of an owner: reversed labels joined by a space, empty for the apex.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct OwnerKey(String);

impl OwnerKey {
    /// The key that an owner made of itself.
    pub(super) fn from_owner(key: String) -> Self {
        Self(key)
    }

    /// Reads a key, which must be one that an owner has.
    pub fn parse(key: &str) -> Result<Self, DnsFault> {
        OwnerName::from_key(key).map(|owner| owner.key())
    }

    /// The key as it is stored and compared.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What every key below this one begins with, and no other key does.
    pub fn subtree_prefix(&self) -> String {
        if self.0.is_empty() { String::new() } else { format!("{} ", self.0) }
    }

    /// Whether this key lies below `other`, not being it.
    pub fn is_below(&self, other: &Self) -> bool {
        match self.0.strip_prefix(other.as_str()) {
            Some(rest) if other.0.is_empty() => !rest.is_empty(),
            Some(rest) => rest.starts_with(' '),
            None => false,
        }
    }
}

impl fmt::Display for OwnerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for OwnerKey {
    type Error = DnsFault;

    fn try_from(key: String) -> Result<Self, DnsFault> {
        Self::parse(&key)
    }
}

impl From<OwnerKey> for String {
    fn from(key: OwnerKey) -> Self {
        key.0
    }
}

/// One label as PowerDNS writes it.
pub(crate) fn push_label(out: &mut String, label: &[u8]) {
    for &octet in label {
        label::push_octet(out, octet, octet.is_ascii_graphic() && !matches!(octet, b'.' | b'\\'));
    }
}

/// One label as octets, from the way PowerDNS writes it.
pub(crate) fn read_label(text: &str) -> Result<Vec<u8>, DnsFault> {
    let bad = || DnsFault::name(format!("{} is not a label of a sort key", shown(text)));
    let mut octets = Vec::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        let octet =
            if c == '\\' { label::unescape(&mut rest) } else { u8::try_from(c).ok().filter(u8::is_ascii) };
        octets.push(octet.filter(|octet| !octet.is_ascii_control()).ok_or_else(bad)?);
    }
    if octets.is_empty() || octets.len() > label::LABEL_OCTETS {
        return Err(bad());
    }
    Ok(octets)
}
