//! Schemas for people: the type of a value in a few words, and a table of the fields of an object.

use maud::{Markup, html};
use serde_json::{Map, Value};

use super::text::{prose, slug};

/// Objects within objects that are looked into: a description that refers to itself ends here.
const DEPTH_MAX_SCHEMAS: usize = 8;

/// A schema with its references followed.
pub fn resolve<'a>(document: &'a Value, schema: &'a Value) -> &'a Value {
    let mut found = schema;
    for _ in 0..DEPTH_MAX_SCHEMAS {
        let Some(name) = reference(found) else { break };
        match document.pointer("/components/schemas").and_then(|all| all.get(name)) {
            Some(next) => found = next,
            None => break,
        }
    }
    found
}

/// The name of the component that a schema refers to.
fn reference(schema: &Value) -> Option<&str> {
    schema.get("$ref")?.as_str()?.strip_prefix("#/components/schemas/")
}

/// What a value is, in a few words.
pub fn kind(schema: &Value) -> Markup {
    if let Some(name) = reference(schema) {
        return html! { a href={ "#schema-" (slug(name)) } { (name) } };
    }
    for key in ["oneOf", "anyOf", "allOf"] {
        if let Some(parts) = schema.get(key).and_then(Value::as_array) {
            let joint = if key == "allOf" { " and " } else { " or " };
            return html! {
                @for (index, part) in parts.iter().enumerate() { @if index > 0 { (joint) } (kind(part)) }
            };
        }
    }
    let names = match schema.get("type") {
        Some(Value::String(name)) => vec![name.as_str()],
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
        _ => vec!["any value"],
    };
    html! {
        @for (index, name) in names.iter().enumerate() {
            @if index > 0 { " or " }
            @match (*name, schema.get("items"), schema.get("additionalProperties")) {
                ("array", Some(items), _) => { "list of " (kind(items)) }
                ("object", _, Some(values)) if values.is_object() => { "object of " (kind(values)) }
                _ => (name)
            }
        }
        @if let Some(format) = schema.get("format").and_then(Value::as_str) { " (" (format) ")" }
        @if let Some(values) = schema.get("enum").and_then(Value::as_array) { ": " (enumerated(values)) }
    }
}

fn enumerated(values: &[Value]) -> Markup {
    html! {
        @for (index, value) in values.iter().enumerate() {
            @if index > 0 { ", " }
            code { @match value.as_str() { Some(text) => (text), None => (value.to_string()) } }
        }
    }
}

/// The fields of an object, those of its parts among them: name, schema, whether it must be there.
pub fn fields<'a>(document: &'a Value, schema: &'a Value) -> Vec<(&'a str, &'a Value, bool)> {
    let mut found = Vec::new();
    collect(document, schema, DEPTH_MAX_SCHEMAS, &mut found);
    found
}

fn collect<'a>(
    document: &'a Value,
    schema: &'a Value,
    depth: usize,
    found: &mut Vec<(&'a str, &'a Value, bool)>,
) {
    let schema = resolve(document, schema);
    let Some(depth) = depth.checked_sub(1) else { return };
    for part in schema.get("allOf").and_then(Value::as_array).into_iter().flatten() {
        collect(document, part, depth, found);
    }
    let required = schema.get("required").and_then(Value::as_array);
    let is_required =
        |name: &str| required.is_some_and(|names| names.iter().any(|one| one.as_str() == Some(name)));
    let properties = schema.get("properties").and_then(Value::as_object);
    for (name, field) in properties.into_iter().flatten() {
        // A later part says more of a field than an earlier one.
        found.retain(|(known, ..)| known != name);
        found.push((name, field, is_required(name)));
    }
}

/// The fields of an object as a table; nothing for what has none.
pub fn table(document: &Value, schema: &Value) -> Markup {
    let fields = fields(document, schema);
    html! {
        @if !fields.is_empty() {
            table {
                thead { tr { th { "Field" } th { "Type" } th { "Needed" } th { "Is" } } }
                tbody {
                    @for (name, field, required) in fields {
                        tr {
                            td { code { (name) } }
                            td { (kind(field)) }
                            td { @if required { "yes" } }
                            td { (prose(told(field))) }
                        }
                    }
                }
            }
        }
    }
}

/// What a schema says of itself.
pub fn told(schema: &Value) -> &str {
    schema.get("description").and_then(Value::as_str).unwrap_or_default()
}

/// Every schema that has a name.
pub fn section(document: &Value) -> Markup {
    let empty = Map::new();
    let all = document.pointer("/components/schemas").and_then(Value::as_object).unwrap_or(&empty);
    html! {
        section id="schemas" {
            h2 { "Schemas" }
            @for (name, schema) in all {
                section id={ "schema-" (slug(name)) } {
                    h3 { (name) }
                    p { (prose(told(schema))) }
                    @let rows = table(document, schema);
                    @if rows.0.is_empty() { p { (kind(schema)) } } @else { (rows) }
                }
            }
        }
    }
}
