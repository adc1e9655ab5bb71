//! Samples of values, made from their schemas: what the schema gives as an example, else something of the right kind.

use serde_json::{Map, Value, json};

use super::schema;

/// Values within values that a sample shows.
const DEPTH_MAX_VALUES: usize = 6;
/// An id.
pub const ID: &str = "01982f6e-7b4c-7d30-9d0a-3f1f0f3f5f10";
/// A time.
const TIME: &str = "2030-01-31T12:00:00.000Z";

/// Texts for fields of these names, where the schema gives none.
const TEXTS: [(&str, &str); 14] = [
    ("agent", "curl/8.5.0"),
    ("at", TIME),
    ("code", "invalid_rdata"),
    ("created_at", TIME),
    ("database_url_file", "/etc/headwater/dns-1.url"),
    ("domain", "example.com"),
    ("external_id", "customer-17"),
    ("finished_at", TIME),
    ("ip", "192.0.2.7"),
    ("lane", "interactive"),
    ("nameservers", "ns1.example.net"),
    ("records", "192.0.2.1"),
    ("stage", "verified"),
    ("state", "pending"),
];

/// A sample of what is sent (only what must be there, else everything) or of what is answered (everything).
pub fn of(document: &Value, schema: &Value, sent: bool) -> Value {
    sample(document, schema, "", sent, DEPTH_MAX_VALUES)
}

fn sample(document: &Value, schema: &Value, name: &str, sent: bool, depth: usize) -> Value {
    let Some(depth) = depth.checked_sub(1) else { return Value::Null };
    for schema in [schema, schema::resolve(document, schema)] {
        let given = schema.get("example").or_else(|| schema.pointer("/examples/0"));
        if let Some(given) = given {
            return given.clone();
        }
    }
    let schema = schema::resolve(document, schema);
    if let Some(first) = schema.pointer("/enum/0") {
        return first.clone();
    }
    for key in ["oneOf", "anyOf"] {
        let parts = schema.get(key).and_then(Value::as_array);
        let is_null = |part: &&Value| part.get("type").and_then(Value::as_str) == Some("null");
        if let Some(part) = parts.into_iter().flatten().find(|part| !is_null(part)) {
            return sample(document, part, name, sent, depth);
        }
    }
    let kind = match schema.get("type") {
        Some(Value::String(kind)) => kind.as_str(),
        Some(Value::Array(kinds)) => {
            kinds.iter().filter_map(Value::as_str).find(|kind| *kind != "null").unwrap_or("null")
        }
        _ if schema.get("allOf").is_some() => "object",
        _ => "null",
    };
    match kind {
        "object" => object(document, schema, sent, depth),
        "array" => match schema.get("items") {
            Some(items) => json!([sample(document, items, name, sent, depth)]),
            None => json!([]),
        },
        "string" => string(schema, name),
        "integer" | "number" => json!(schema.get("minimum").and_then(Value::as_i64).unwrap_or(0).max(1)),
        "boolean" => json!(true),
        _ => Value::Null,
    }
}

fn object(document: &Value, schema: &Value, sent: bool, depth: usize) -> Value {
    let fields = schema::fields(document, schema);
    let needed = fields.iter().any(|(.., required)| *required);
    let shown = fields.into_iter().filter(|(.., required)| !sent || !needed || *required);
    let values = shown.map(|(name, field, _)| (name.to_owned(), sample(document, field, name, sent, depth)));
    let mut values: Map<String, Value> = values.collect();
    if values.is_empty() && schema.get("additionalProperties").is_some() {
        values.insert("team".to_owned(), json!("dns"));
    }
    Value::Object(values)
}

fn string(schema: &Value, name: &str) -> Value {
    let known = TEXTS.iter().find(|(known, _)| *known == name).map(|(_, text)| *text);
    json!(match schema.get("format").and_then(Value::as_str) {
        Some("uuid") => ID,
        Some("date-time") => TIME,
        _ => known.unwrap_or("text"),
    })
}
