//! Whether an answer is what the OpenAPI document says: every field described, of the type described, and none missing.
//! As much of JSON Schema as the document uses; what it does not know fails.

use serde_json::Value;

/// What this validator understands.
const KNOWN: [&str; 18] = [
    "$ref",
    "additionalProperties",
    "allOf",
    "anyOf",
    "description",
    "enum",
    "example",
    "examples",
    "format",
    "items",
    "maximum",
    "minimum",
    "oneOf",
    "properties",
    "propertyNames",
    "required",
    "type",
    "title",
];

/// Every difference between a value and a schema.
pub fn differences(document: &Value, schema: &Value, value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    check(document, schema, value, "", &mut found);
    found
}

fn resolve<'a>(document: &'a Value, schema: &'a Value) -> &'a Value {
    match schema.get("$ref").and_then(Value::as_str) {
        Some(name) => resolve(document, document.pointer(&name[1..]).unwrap_or_else(|| panic!("{name}"))),
        None => schema,
    }
}

fn check(document: &Value, schema: &Value, value: &Value, at: &str, found: &mut Vec<String>) {
    let schema = resolve(document, schema);
    for key in schema.as_object().unwrap().keys() {
        assert!(KNOWN.contains(&key.as_str()), "{at}: the validator does not know {key}");
    }
    for key in ["oneOf", "anyOf"] {
        if let Some(parts) = schema.get(key).and_then(Value::as_array) {
            if !parts.iter().any(|part| differences(document, part, value).is_empty()) {
                found.push(format!("{at}: none of {parts:?} is {value}"));
            }
            return;
        }
    }
    if let Some(values) = schema.get("enum").and_then(Value::as_array)
        && !values.contains(value)
    {
        found.push(format!("{at}: {value} is none of {values:?}"));
    }
    let kinds: Vec<&str> = match schema.get("type") {
        Some(Value::String(kind)) => vec![kind],
        Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).collect(),
        _ if schema.get("allOf").is_some() => vec!["object"],
        _ => return,
    };
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    if !kinds.contains(&kind) {
        found.push(format!("{at}: {value} is {kind}, not {kinds:?}"));
        return;
    }
    match value {
        Value::String(text) => formatted(schema, text, at, found),
        Value::Array(items) => {
            let Some(schema) = schema.get("items") else { return };
            for (index, item) in items.iter().enumerate() {
                check(document, schema, item, &format!("{at}/{index}"), found);
            }
        }
        Value::Object(_) => object(document, schema, value, at, found),
        _ => {}
    }
}

fn formatted(schema: &Value, text: &str, at: &str, found: &mut Vec<String>) {
    let right = match schema.get("format").and_then(Value::as_str) {
        Some("uuid") => uuid::Uuid::parse_str(text).is_ok(),
        Some("date-time") => headwater_events::time::Timestamp::parse(text).is_some(),
        _ => true,
    };
    if !right {
        found.push(format!("{at}: {text} has not the format {}", schema["format"]));
    }
}

/// The fields that a schema and its parts describe, and those that must be there.
fn described<'a>(
    document: &'a Value,
    schema: &'a Value,
    fields: &mut Vec<(&'a str, &'a Value)>,
    needed: &mut Vec<&'a str>,
) {
    let schema = resolve(document, schema);
    for part in schema.get("allOf").and_then(Value::as_array).into_iter().flatten() {
        described(document, part, fields, needed);
    }
    for (name, field) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        fields.retain(|(known, _)| known != name);
        fields.push((name, field));
    }
    needed.extend(
        schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str),
    );
}

fn object(document: &Value, schema: &Value, value: &Value, at: &str, found: &mut Vec<String>) {
    let (mut fields, mut needed) = (Vec::new(), Vec::new());
    described(document, schema, &mut fields, &mut needed);
    let map = value.as_object().unwrap();
    for name in needed.iter().filter(|name| !map.contains_key(**name)) {
        found.push(format!("{at}: {name} is missing"));
    }
    if fields.is_empty() {
        return;
    }
    for (name, value) in map {
        match fields.iter().find(|(known, _)| known == name) {
            Some((_, schema)) => check(document, schema, value, &format!("{at}/{name}"), found),
            None => found.push(format!("{at}: {name} is not described")),
        }
    }
}
