//! Canonical bytes: compact JSON, fields in the order of their declaration, whole numbers, nothing for what is
//! absent. What is read must be the very bytes that would be written, so that two readers can never disagree on
//! what was signed: another order, a blank, a doubled or unknown field, a null or `1.0` are all refused.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Why bytes are not the canonical form of anything.
#[derive(Debug, thiserror::Error)]
pub enum CanonicalError {
    /// Too long to be read at all.
    #[error("{size} bytes, at most {max}")]
    TooLarge {
        /// How many there are.
        size: usize,
        /// The bound.
        max: usize,
    },
    /// A schema that this program does not know.
    #[error("schema {found} is unknown here, this program reads {known}")]
    UnknownSchema {
        /// What the bytes say.
        found: u64,
        /// What this program reads.
        known: u64,
    },
    /// Not what the schema says.
    #[error("not what the schema says: {0}")]
    Malformed(String),
    /// The same value has other bytes.
    #[error("not canonical: written again, the value has other bytes")]
    NotCanonical,
}

/// The only field that every schema has.
#[derive(serde::Deserialize)]
struct SchemaOnly {
    schema: u64,
}

/// Writes a value. The types of this crate hold nothing that JSON cannot; an error says that one does.
///
/// # Errors
/// When the value cannot be written as JSON.
pub fn write<T: Serialize>(value: &T) -> Result<Vec<u8>, CanonicalError> {
    serde_json::to_vec(value).map_err(|error| CanonicalError::Malformed(error.to_string()))
}

/// Reads a value whose bytes must be canonical.
///
/// # Errors
/// When there are too many bytes, or they are not the canonical form of a value.
pub fn read<T: Serialize + DeserializeOwned>(bytes: &[u8], max: usize) -> Result<T, CanonicalError> {
    if bytes.len() > max {
        return Err(CanonicalError::TooLarge { size: bytes.len(), max });
    }
    let value: T = serde_json::from_slice(bytes).map_err(malformed)?;
    if write(&value)? == bytes { Ok(value) } else { Err(CanonicalError::NotCanonical) }
}

/// Reads a value that names its schema; an unknown schema is told before anything else is looked at.
///
/// # Errors
/// As [`read`], and when the schema is another.
pub fn read_schema<T: Serialize + DeserializeOwned>(
    bytes: &[u8],
    known: u64,
    max: usize,
) -> Result<T, CanonicalError> {
    if bytes.len() > max {
        return Err(CanonicalError::TooLarge { size: bytes.len(), max });
    }
    let SchemaOnly { schema: found } = serde_json::from_slice(bytes).map_err(malformed)?;
    if found != known {
        return Err(CanonicalError::UnknownSchema { found, known });
    }
    read(bytes, max)
}

/// What the parser says, without the input: its messages may quote it, and they are shown to people.
fn malformed(error: serde_json::Error) -> CanonicalError {
    CanonicalError::Malformed(error.to_string().escape_debug().take(200).collect())
}
