//! The checksum of an artifact: BLAKE3-256 of its canonical bytes, in lower-case hex. It is the artifact's name.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// How many bytes a checksum has.
pub const CHECKSUM_BYTES: usize = 32;

/// A BLAKE3-256 digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Checksum([u8; CHECKSUM_BYTES]);

impl Checksum {
    /// The checksum of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }

    /// A checksum that was computed elsewhere.
    pub const fn from_bytes(bytes: [u8; CHECKSUM_BYTES]) -> Self {
        Self(bytes)
    }

    /// The digest.
    pub const fn as_bytes(&self) -> &[u8; CHECKSUM_BYTES] {
        &self.0
    }
}

/// Not 64 lower-case hex digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be {digits} lower-case hex digits")]
pub struct NotHex {
    digits: usize,
}

/// Reads exactly `N` bytes of lower-case hex: one spelling for one value.
pub(crate) fn unhex<const N: usize>(text: &str) -> Result<[u8; N], NotHex> {
    let fault = NotHex { digits: N * 2 };
    if text.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return Err(fault);
    }
    let mut bytes = [0; N];
    hex::decode_to_slice(text, &mut bytes).map_err(|_| fault)?;
    Ok(bytes)
}

impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl FromStr for Checksum {
    type Err = NotHex;

    fn from_str(text: &str) -> Result<Self, NotHex> {
        unhex(text).map(Self)
    }
}

impl TryFrom<String> for Checksum {
    type Error = NotHex;

    fn try_from(text: String) -> Result<Self, NotHex> {
        text.parse()
    }
}

impl From<Checksum> for String {
    fn from(checksum: Checksum) -> Self {
        checksum.to_string()
    }
}
