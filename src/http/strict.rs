//! JSON as it was sent: a key that stands in an object twice is a fault, not a choice. Programs differ in which of the
//! two they believe (RFC 8259, section 4), so that what was checked by one need not be what another does.

use headwater_events::reject::Fault;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use std::cell::RefCell;
use std::fmt;

use super::body::token;

/// Repeated keys that are told of one body.
const REPEATED_MAX_FAULTS: usize = 100;

/// Reads a value, with a fault for every key that was there already. The depth is bounded by the parser.
///
/// # Errors
/// When it is no JSON.
pub fn read(octets: &[u8]) -> serde_json::Result<(Value, Vec<Fault>)> {
    let faults = RefCell::new(Vec::new());
    let mut parser = serde_json::Deserializer::from_slice(octets);
    let value = At { pointer: String::new(), faults: &faults }.deserialize(&mut parser)?;
    parser.end()?;
    Ok((value, faults.into_inner()))
}

/// A value that is read at its place.
struct At<'f> {
    pointer: String,
    faults: &'f RefCell<Vec<Fault>>,
}

impl At<'_> {
    fn below(&self, part: impl fmt::Display) -> Self {
        At { pointer: format!("{}/{part}", self.pointer), faults: self.faults }
    }

    fn repeated(&self, key: &str) {
        let mut faults = self.faults.borrow_mut();
        if faults.len() < REPEATED_MAX_FAULTS {
            let shown = token(key);
            let detail = format!("the key `{}` stands here twice: leave one out", shown.escape_debug());
            faults.push(Fault::at(format!("{}/{shown}", self.pointer), "duplicate_key", detail));
        }
    }
}

impl<'de> DeserializeSeed<'de> for At<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, parser: D) -> Result<Value, D::Error> {
        parser.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for At<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(self.below(list.len()))? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            let value = entries.next_value_seed(self.below(token(&key)))?;
            if map.contains_key(&key) {
                self.repeated(&key);
            }
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_once_is_read_as_ever() {
        for text in [
            "null",
            "[1, -2, 1.5, 18446744073709551615, true, \"x\\u00e4\", {}, []]",
            "{\"b\": {\"a\": [{\"a\": 1}]}, \"a\": \"\"}",
        ] {
            let (value, faults) = read(text.as_bytes()).unwrap();
            assert_eq!(value, serde_json::from_str::<Value>(text).unwrap());
            assert_eq!(faults, []);
        }
        let deep = format!("{}{}", "[".repeat(500), "]".repeat(500));
        for text in ["", "{", "{} x", "1e999", "{1: 2}", "\u{0}", &deep] {
            assert!(read(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn what_stands_twice_is_named_where_it_stands() {
        let text = r#"{"a": 1, "b": [{"c/d": 1, "c/d": 2}], "a": 3, "\u0061": 4}"#;
        let told: Vec<String> =
            read(text.as_bytes()).unwrap().1.into_iter().map(|fault| fault.pointer).collect();
        assert_eq!(told, ["/b/0/c~1d", "/a", "/a"]);
        let many = format!("{{{}\"z\": 0}}", "\"a\": 0, ".repeat(1_000));
        assert_eq!(read(many.as_bytes()).unwrap().1.len(), REPEATED_MAX_FAULTS);
    }
}
