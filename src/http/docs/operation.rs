//! One operation for people: its parameters, its body, its answers, its errors, and how to call it with curl.

use maud::{Markup, html};
use serde_json::{Map, Value};
use std::fmt::Write as _;

use super::text::{prose, quoted, slug};
use super::{sample, schema};

/// The methods, in the order of the page.
const METHODS: [&str; 5] = ["get", "put", "post", "patch", "delete"];

/// Values for parameters of these names in a path, where the description gives none.
const NAMES: [(&str, &str); 4] = [("d", "example.com"), ("name", "www"), ("type", "A"), ("n", "7")];

/// An operation, with where it stands.
pub struct Described<'a> {
    /// The tag it is listed under.
    pub tag: &'a str,
    /// In upper case.
    pub method: String,
    /// As a template.
    pub path: &'a str,
    /// Its place on the page.
    pub id: String,
    operation: &'a Value,
}

/// Every operation of a document.
pub fn all(document: &Value) -> Vec<Described<'_>> {
    let paths = document.get("paths").and_then(Value::as_object);
    let mut found = Vec::new();
    for (path, item) in paths.into_iter().flatten() {
        for method in METHODS {
            let Some(operation) = item.get(method) else { continue };
            found.push(Described {
                tag: operation.pointer("/tags/0").and_then(Value::as_str).unwrap_or("other"),
                method: method.to_ascii_uppercase(),
                path,
                id: slug(&format!("{method} {path}")),
                operation,
            });
        }
    }
    found
}

impl<'a> Described<'a> {
    /// All of it.
    pub fn section(&self, document: &Value) -> Markup {
        let told = |key: &str| self.operation.get(key).and_then(Value::as_str).unwrap_or_default();
        html! {
            section id=(self.id) class="operation" {
                h3 { span class="method" { (self.method) } " " code { (self.path) } }
                p { (prose(told("summary"))) }
                @if !told("description").is_empty() { p { (prose(told("description"))) } }
                @if self.is_open() { p { "Needs no token." } }
                (self.parameters())
                @if let Some((media, body)) = self.body() {
                    h4 { "Body" }
                    p { code { (media) } ": " (schema::kind(body)) }
                    (schema::table(document, body))
                }
                (self.answers(document))
                p { "Errors: " @for status in self.errors() { a href={ "#error-" (status) } { (status) } " " } }
                h4 { "Example" }
                pre { code { (self.curl(document)) } }
            }
        }
    }

    fn listed(&self) -> impl Iterator<Item = &'a Value> {
        self.operation.get("parameters").and_then(Value::as_array).into_iter().flatten()
    }

    fn parameters(&self) -> Markup {
        let text = |parameter: &Value, key: &str| {
            parameter.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        html! {
            @if self.listed().next().is_some() {
                h4 { "Parameters" }
                table {
                    thead { tr { th { "Name" } th { "In" } th { "Type" } th { "Needed" } th { "Is" } } }
                    tbody {
                        @for parameter in self.listed() {
                            tr {
                                td { code { (text(parameter, "name")) } }
                                td { (text(parameter, "in")) }
                                td { @if let Some(kind) = parameter.get("schema") { (schema::kind(kind)) } }
                                td { @if parameter.get("required") == Some(&Value::Bool(true)) { "yes" } }
                                td { (prose(&text(parameter, "description"))) }
                            }
                        }
                    }
                }
            }
        }
    }

    /// The media type and the schema of what is sent.
    fn body(&self) -> Option<(&'a str, &'a Value)> {
        let content = self.operation.pointer("/requestBody/content")?.as_object()?;
        content.iter().find_map(|(media, body)| Some((media.as_str(), body.get("schema")?)))
    }

    fn answers(&self, document: &Value) -> Markup {
        let empty = Map::new();
        let answers = self.operation.get("responses").and_then(Value::as_object).unwrap_or(&empty);
        html! {
            h4 { "Answers" }
            @for (status, answer) in answers.iter().filter(|(status, answer)| *status != "default" && !is_problem(answer)) {
                p { strong { (status) } " " (prose(schema::told(answer))) }
                @for (media, content) in answer.get("content").and_then(Value::as_object).into_iter().flatten() {
                    p { code { (media) }
                        @if let Some(shown) = content.get("schema") { ": " (schema::kind(shown)) } }
                    @if let (true, Some(shown)) = (media.ends_with("json"), content.get("schema")) {
                        @let sample = sample::of(document, shown, false);
                        pre { code { (serde_json::to_string_pretty(&sample).unwrap_or_default()) } }
                    }
                }
            }
        }
    }

    fn is_open(&self) -> bool {
        self.operation.get("security").is_none()
    }

    /// The statuses that a problem of it may have.
    fn errors(&self) -> Vec<u16> {
        let answers = self.operation.get("responses").and_then(Value::as_object);
        let problems = answers.into_iter().flatten().filter(|(_, answer)| is_problem(answer));
        problems.filter_map(|(status, _)| status.parse().ok()).collect()
    }

    /// The path with samples in it.
    fn target(&self, document: &Value) -> String {
        let mut target = self.path.to_owned();
        for parameter in self.listed().filter(|one| one.get("in").is_some_and(|place| place == "path")) {
            let name = parameter.get("name").and_then(Value::as_str).unwrap_or_default();
            let given = parameter.get("example").or_else(|| parameter.pointer("/schema/examples/0"));
            let known = NAMES.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
            let made = || parameter.get("schema").map(|kind| sample::of(document, kind, true));
            let value = given.and_then(Value::as_str).map(str::to_owned).or(known);
            let value = value.or_else(|| made().and_then(|made| made.as_str().map(str::to_owned)));
            target = target.replace(&format!("{{{name}}}"), &value.unwrap_or_else(|| sample::ID.to_owned()));
        }
        target
    }

    fn curl(&self, document: &Value) -> String {
        let mut call = "curl -sS".to_owned();
        if self.method != "GET" {
            add(&mut call, format_args!(" -X {}", self.method));
        }
        if !self.is_open() {
            add(&mut call, format_args!(" -H \"Authorization: Bearer $HEADWATER_TOKEN\""));
        }
        if self.method != "GET" {
            add(&mut call, format_args!(" \\\n  -H \"Idempotency-Key: $(uuidgen)\""));
        }
        if self.operation.pointer("/responses/200/content/text~1event-stream").is_some() {
            add(&mut call, format_args!(" -N"));
        }
        add(&mut call, format_args!(" \\\n  \"$HEADWATER_URL\"{}", quoted(&self.target(document))));
        if let Some((media, body)) = self.body() {
            let sample = sample::of(document, body, true);
            add(&mut call, format_args!(" \\\n  -H 'Content-Type: {media}'"));
            add(&mut call, format_args!(" \\\n  --data {}", quoted(&sample.to_string())));
        }
        call
    }
}

/// Whether an answer is one of the problems that many operations have.
fn is_problem(answer: &Value) -> bool {
    answer.get("$ref").is_some()
}

fn add(text: &mut String, piece: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    let _written = text.write_fmt(piece);
}
