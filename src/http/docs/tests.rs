//! The page says all of the document, and says it as text.

use serde_json::{Value, json};

use super::page;
use crate::http::router::document;

fn whole() -> Value {
    serde_json::from_str(document().unwrap().text()).unwrap()
}

#[test]
fn every_operation_is_on_the_page_whole() {
    let document = whole();
    let text = page(&document).into_string();
    let operations = super::operation::all(&document);
    let methods: usize =
        document["paths"].as_object().unwrap().values().map(|item| item.as_object().unwrap().len()).sum();
    assert_eq!(operations.len(), methods, "a method that the page does not know");
    for one in &operations {
        // In the index and at its place.
        assert!(text.contains(&format!("href=\"#{}\"", one.id)), "{} {}", one.method, one.path);
        let begin = text.find(&format!("<section id=\"{}\"", one.id)).unwrap();
        let section = &text[begin..begin + text[begin..].find("</section>").unwrap()];
        assert!(section.contains(one.path), "{section}");
        assert!(section.contains("curl -sS") && section.contains("#error-400"), "{section}");
        let described = &document["paths"][one.path][one.method.to_lowercase()];
        for parameter in described["parameters"].as_array().into_iter().flatten() {
            let cell = format!("<code>{}</code>", parameter["name"].as_str().unwrap());
            assert!(section.contains(&cell), "{} {}: {cell}", one.method, one.path);
        }
        assert_eq!(section.contains("<h4>Body</h4>"), described.get("requestBody").is_some(), "{section}");
        let line = section.lines().find(|line| line.contains("$HEADWATER_URL")).unwrap();
        assert!(!line.contains('{'), "a template is left: {line}");
        for (status, answer) in described["responses"].as_object().unwrap() {
            let shown = match answer.get("$ref") {
                Some(_) => format!("href=\"#error-{status}\""),
                None if status == "default" => continue,
                None => format!("<strong>{status}</strong>"),
            };
            assert!(section.contains(&shown), "{} {}: {status}", one.method, one.path);
        }
    }
    for name in document["components"]["schemas"].as_object().unwrap().keys() {
        assert!(text.contains(&format!("id=\"schema-{}\"", super::text::slug(name))), "{name}");
    }
}

#[test]
fn every_link_leads_somewhere_on_this_host() {
    let text = page(&whole()).into_string();
    for (at, _) in text.match_indices("href=\"") {
        let link = text[at + 6..].split('"').next().unwrap();
        match link.strip_prefix('#') {
            Some(id) => assert!(text.contains(&format!("id=\"{id}\"")), "{link}"),
            None => assert!(["/openapi.json", "/docs/style.css"].contains(&link), "{link}"),
        }
    }
    for foreign in ["<script", "<style", " style=", "src=", "http://", " onclick", "<iframe", "<img"] {
        assert!(!text.contains(foreign), "{foreign}");
    }
}

#[test]
fn hostile_text_stays_text() {
    let evil = "\"><script>alert('1')</script>&<img src=x onerror=1>`<b>`";
    let schema = json!({
        "type": "object", "description": evil, "required": [evil],
        "properties": {evil: {"type": evil, "format": evil, "enum": [evil], "description": evil}}
    });
    let hostile = json!({
        "info": {"title": evil, "version": evil, "description": evil},
        "paths": {evil: {"post": {
            "tags": [evil], "summary": evil, "description": evil,
            "parameters": [{"name": evil, "in": evil, "description": evil, "schema": schema, "required": true}],
            "requestBody": {"content": {evil: {"schema": schema}}},
            "responses": {evil: {"description": evil, "content": {format!("{evil}json"): {"schema": schema}}}}
        }}},
        "components": {"schemas": {evil: schema, "refers": {"$ref": format!("#/components/schemas/{evil}")}}}
    });
    let text = page(&hostile).into_string();
    assert!(text.contains("&lt;script&gt;"), "{text}");
    for raw in ["<script", "<img", "<b>", "\"\">", "&<"] {
        assert!(!text.contains(raw), "{raw}");
    }
}

#[test]
fn a_schema_that_holds_itself_has_an_end() {
    let circle = json!({"type": "object", "properties": {"next": {"$ref": "#/components/schemas/Circle"}}, "allOf": [{"$ref": "#/components/schemas/Circle"}]});
    let around = json!({"$ref": "#/components/schemas/Around"});
    let document = json!({
        "paths": {"/x": {"post": {"requestBody": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Circle"}}}}}}},
        "components": {"schemas": {"Circle": circle, "Around": around}}
    });
    assert!(page(&document).into_string().contains("schema-circle"));
}
