//! `GET /docs`: the description of the API as a page for people. Made once, at the start, from the OpenAPI document and
//! from nothing else, so that it cannot say something else; every text is escaped by the templates. The page runs no
//! script and loads nothing from elsewhere, and its headers forbid both.

mod operation;
pub(super) mod sample;
mod schema;
mod text;

use axum::Router;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use axum::routing::get;
use maud::{DOCTYPE, Markup, html};
use serde_json::Value;
use std::collections::BTreeMap;

use super::openapi::Fixed;
use super::problem::CODES;
use operation::Described;

/// What the page may load: its own style sheet. No script, no form, no frame, no other host.
const POLICY: &str =
    "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
/// The style sheet.
const STYLE: &str = include_str!("style.css");

/// The page and its style sheet, for everybody: they say nothing that the code does not.
pub fn routes(document: &Value) -> Router {
    let page = Fixed::new("text/html; charset=utf-8", page(document).into_string());
    let style = Fixed::new("text/css; charset=utf-8", STYLE.to_owned());
    let shown = move |headers: HeaderMap| {
        let answer = guarded(page.answer(&headers));
        async move { answer }
    };
    let styled = move |headers: HeaderMap| {
        let answer = guarded(style.answer(&headers));
        async move { answer }
    };
    Router::new().route("/docs", get(shown)).route("/docs/style.css", get(styled))
}

fn guarded(mut answer: Response) -> Response {
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public, no-cache"));
    answer
}

/// The page of a document.
pub fn page(document: &Value) -> Markup {
    let operations = operation::all(document);
    let mut tags: BTreeMap<&str, Vec<&Described<'_>>> = BTreeMap::new();
    for one in &operations {
        tags.entry(one.tag).or_default().push(one);
    }
    let title = document.pointer("/info/title").and_then(Value::as_str).unwrap_or("API");
    let version = document.pointer("/info/version").and_then(Value::as_str).unwrap_or_default();
    let about = document.pointer("/info/description").and_then(Value::as_str).unwrap_or_default();
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) " API " (version) }
                link rel="stylesheet" href="/docs/style.css";
            }
            body {
                (index(&tags))
                main {
                    h1 { (title) " API " (version) }
                    p { (text::prose(about)) }
                    p { "For programs, the same as " a href="/openapi.json" { "OpenAPI 3.1" } "." }
                    (conventions())
                    @for (tag, operations) in &tags {
                        section id=(tag_id(tag)) {
                            h2 { (tag) }
                            @for one in operations { (one.section(document)) }
                        }
                    }
                    (errors())
                    (schema::section(document))
                }
            }
        }
    }
}

/// Every operation, by tag.
fn index(tags: &BTreeMap<&str, Vec<&Described<'_>>>) -> Markup {
    html! {
        nav aria-label="Index" {
            p { a href="#conventions" { "Conventions" } " · " a href="#errors" { "Errors" } " · "
                a href="#schemas" { "Schemas" } " · " a href="/openapi.json" { "openapi.json" } }
            @for (tag, operations) in tags {
                h2 { a href={ "#" (tag_id(tag)) } { (tag) } }
                ul {
                    @for one in operations {
                        li { a href={ "#" (one.id) } { span class="method" { (one.method) } " " (one.path) } }
                    }
                }
            }
        }
    }
}

fn tag_id(tag: &str) -> String {
    format!("tag-{}", text::slug(tag))
}

/// What holds of every route.
fn conventions() -> Markup {
    html! {
        section id="conventions" {
            h2 { "Conventions" }
            ul {
                li { "Show a token: " code { "Authorization: Bearer hw_…" } ". The examples take it from "
                    code { "$HEADWATER_TOKEN" } " and the address of the API from " code { "$HEADWATER_URL" } "." }
                li { "A list is " code { "{\"items\": […], \"next\": \"cursor\" | null}" } "; with "
                    code { "Accept: application/x-ndjson" } " it is streamed whole, one item a line." }
                li { "Every change takes " code { "?dry_run=true" } ", which decides, writes nothing and answers "
                    a href="#schema-dryrun" { "what would change" } ": apply exactly that with the " code { "if_match" }
                    " of the answer as " code { "If-Match" } ", or its " code { "if_none_match" } " as "
                    code { "If-None-Match" } "." }
                li { code { "Idempotency-Key" } " (a UUID) makes a repetition replay the first answer; "
                    code { "Change-Note" } " says why, in the history." }
                li { "202 comes with " code { "Location" } ", the operation that carries the change out." }
            }
        }
    }
}

/// The codes of problems, by status.
fn errors() -> Markup {
    html! {
        section id="errors" {
            h2 { "Errors" }
            p { "An error is " a href="#schema-problem" { "a problem" } " (RFC 9457), "
                code { "application/problem+json" } ", with a stable " code { "code" } " and every fault of the input in "
                code { "errors" } ". 422 bears the code of its faults when all share one." }
            table {
                thead { tr { th { "Status" } th { "Codes" } } }
                tbody {
                    @for (status, codes) in CODES {
                        tr id={ "error-" (status) } {
                            td { (status) }
                            td { @for code in codes { code { (code) } " " } }
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
