//! Reading stored events. Stored bytes are never rewritten: an older schema is
//! lifted by a chain of pure upcasters, one step each, and every version that
//! was ever written has a golden file under `events/tests/golden/`. An unknown
//! type or a schema newer than ours is an error, never skipped: a projector
//! that meets one halts until it is upgraded.

use crate::event::Event;
use serde_json::Value;

/// Why stored bytes could not be read as an event.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// A type that this program does not know.
    #[error("unknown event type {0}: upgrade this program before it reads on")]
    UnknownType(String),
    /// A schema that this program does not know.
    #[error(
        "event type {event_type} has schema {schema}, the newest known here is {newest}: upgrade this program before it reads on"
    )]
    UnknownSchema {
        /// The event's type.
        event_type: String,
        /// Its stored schema.
        schema: i16,
        /// The newest schema known here.
        newest: i16,
    },
    /// The bytes do not hold what the schema says.
    #[error("event type {event_type} schema {schema} cannot be read: {source}")]
    Malformed {
        /// The event's type.
        event_type: String,
        /// Its stored schema.
        schema: i16,
        /// What the parser says.
        source: serde_json::Error,
    },
}

/// One step from a schema to the next: (type, from, lift).
type Upcaster = (&'static str, i16, fn(Value) -> Value);

/// Every step there is, in no particular order.
const UPCASTERS: &[Upcaster] = &[
    // Before there were roles, every member might do everything.
    ("tenant.member_added", 1, |mut data| {
        if let Some(fields) = data.as_object_mut() {
            fields.insert("role".to_owned(), Value::from("owner"));
        }
        data
    }),
    // Before there were scopes, no token was limited. What is absent is none.
    ("token.created", 1, |data| data),
    // Before there were managers, nobody owned an RRset and nothing was taken over. What is absent is none.
    ("token.created", 2, |data| data),
    ("rrset.replaced", 1, |data| data),
    ("rrset.deleted", 1, |data| data),
    ("undo.requested", 1, |data| data),
];

/// Lifts data from one schema to a newer one. A step that is not in the table
/// leaves the data as it is: a field was added that has a default.
fn lift(steps: &[Upcaster], event_type: &str, from: i16, to: i16, mut data: Value) -> Value {
    for schema in from..to {
        if let Some((_, _, step)) = steps.iter().find(|(name, at, _)| *name == event_type && *at == schema) {
            data = step(data);
        }
    }
    data
}

/// Reads one stored event of any schema that was ever written.
///
/// # Errors
/// When the type or the schema is unknown, or the data is not what the schema says.
pub fn decode(event_type: &str, schema: i16, data: &[u8]) -> Result<Event, DecodeError> {
    let Some(&(_, newest)) = Event::TYPES.iter().find(|(name, _)| *name == event_type) else {
        return Err(DecodeError::UnknownType(event_type.to_owned()));
    };
    if schema > newest || schema < 1 {
        return Err(DecodeError::UnknownSchema { event_type: event_type.to_owned(), schema, newest });
    }
    let malformed = |source| DecodeError::Malformed { event_type: event_type.to_owned(), schema, source };
    let value: Value = serde_json::from_slice(data).map_err(malformed)?;
    let value = lift(UPCASTERS, event_type, schema, newest, value);
    match Event::from_value(event_type, value) {
        Some(read) => read.map_err(malformed),
        None => Err(DecodeError::UnknownType(event_type.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn lifting_takes_every_step_in_order() {
        let steps: &[Upcaster] = &[
            ("x", 2, |mut data| {
                data["c"] = json!(data["b"].as_i64().unwrap() + 1);
                data
            }),
            ("x", 1, |mut data| {
                data["b"] = json!(1);
                data
            }),
            ("y", 1, |_| json!("another type's step")),
        ];
        assert_eq!(lift(steps, "x", 1, 3, json!({"a": 0})), json!({"a": 0, "b": 1, "c": 2}));
        assert_eq!(lift(steps, "x", 3, 3, json!({"a": 0})), json!({"a": 0}));
    }

    #[test]
    fn what_is_unknown_is_an_error() {
        assert!(matches!(decode("no.such", 1, b"{}"), Err(DecodeError::UnknownType(_))));
        assert!(matches!(decode("user.created", 99, b"{}"), Err(DecodeError::UnknownSchema { .. })));
        assert!(matches!(decode("user.created", 0, b"{}"), Err(DecodeError::UnknownSchema { .. })));
        assert!(matches!(decode("user.created", 1, b"{}"), Err(DecodeError::Malformed { .. })));
    }
}
