//! docs/EVENTS.md: made from the table of events and from the examples that the tests hold the code to, so it cannot
//! say something else.

use std::fmt::Write as _;

use anyhow::{Context, Result};
use headwater_events::event::{Event, EventDoc};
use headwater_events::ids::StreamKind;
use serde_json::Value;

const INTRODUCTION: &str = r#"# The events of headwater

Made by `headwater events-reference > docs/EVENTS.md`; a test fails when it is out of date.

An event is an immutable, typed, versioned fact. It is read by `GET /api/events` (pages), `GET /events/stream` (server-sent
events) and `GET /api/audit` (which adds `actor.name`), each time in this envelope:

```json
{
  "position": 1042,
  "id": "01982f6e-7b4c-7d30-9d0a-3f1f0f3f5f10",
  "type": "rrset.replaced",
  "schema": 1,
  "stream": {"kind": "domain", "id": "01982f6e-7b4c-7d30-9d0a-3f1f0f3f5f11"},
  "domain": "example.com",
  "tenant": "01982f6e-7b4c-7d30-9d0a-3f1f0f3f5f12",
  "revision": 7,
  "seq": 0,
  "at": "2026-01-02T03:04:05.678Z",
  "actor": {"kind": "user", "id": "01982f6e-7b4c-7d30-9d0a-3f1f0f3f5f13", "token": null, "on_behalf_of": null},
  "client": {"ip": "192.0.2.7", "agent": "curl/8.0"},
  "request_id": "01982f6e-7b4c-7d30-9d0a-3f1f0f3f5f14",
  "operation": "01982f6e-7b4c-7d30-9d0a-3f1f0f3f5f15",
  "note": null,
  "change": null,
  "cause": null,
  "hash": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
  "data": {}
}
```

| field | is |
| --- | --- |
| `position` | its place in the whole log: dense, from 1, in commit order |
| `id` | its id (UUIDv7) |
| `type`, `schema` | what happened, and the shape of `data`; a changed shape is a new schema number, and old events stay as they were written |
| `stream` | the aggregate that it is a fact of: `domain`, `tenant`, `user`, `dns_cluster`, `operation` or `platform` |
| `domain`, `tenant` | the domain and the tenant concerned, or null; rights and `?domain=` go by them |
| `revision`, `seq` | the number of the mutation in its stream (+1 each, never reused), and the event's number within it, from 0 |
| `at` | when it was decided (UTC, milliseconds) |
| `actor` | who: `user`, `operator` (an administrator), `system` or `edge`; with which token; for whom |
| `client` | from where; null for the control plane itself, for whoever may not see it, and once it has been erased |
| `request_id` | the request |
| `operation` | the operation that carries it out |
| `note` | the `Change-Note` of the request |
| `change` | the set of changes it belongs to, if several requests make one |
| `cause` | the position of the event that caused it, for what the control plane does by itself |
| `hash` | the end of the stream's hash chain: it covers every field but `position` (and `client` by its digest) |

Readers must ignore fields and types that they do not know. No event holds a secret, a mail address or a client's address.
Deployment facts (`deployment.*`) stand in the stream of their target and name the domain's revision in `data.revision`;
they never raise a domain's revision.
"#;

/// docs/EVENTS.md.
///
/// # Errors
/// When an example is no JSON, which the tests exclude.
pub fn markdown() -> Result<String> {
    let mut text = INTRODUCTION.to_owned();
    text.push_str("\n| type | schema | stream | means |\n| --- | --- | --- | --- |\n");
    for EventDoc { name, schema, stream, meaning, .. } in Event::REFERENCE {
        let anchor: String = name.chars().filter(|letter| *letter != '.').collect();
        writeln!(text, "| [`{name}`](#{anchor}) | {schema} | {} | {meaning} |", stream.name())?;
    }
    for EventDoc { name, schema, stream, meaning, example } in Event::REFERENCE {
        let data: Value = serde_json::from_str(example).with_context(|| format!("the example of {name}"))?;
        let data = serde_json::to_string_pretty(&data)?;
        writeln!(text, "\n## {name}\n\n{meaning}\n\nSchema {schema}, in {}.", whose(*stream))?;
        writeln!(text, "Its `data`:\n\n```json\n{data}\n```")?;
    }
    Ok(text)
}

fn whose(stream: StreamKind) -> &'static str {
    match stream {
        StreamKind::Domain => "the stream of the domain",
        StreamKind::Tenant => "the stream of the tenant",
        StreamKind::User => "the stream of the user",
        StreamKind::DnsCluster => "the stream of the DNS cluster",
        StreamKind::Operation => "the stream of the operation",
        StreamKind::Platform => "the stream of the platform",
        StreamKind::Edge => "the stream of the edge",
        StreamKind::Pool => "the stream of the pool",
        StreamKind::Webhook => "the stream of the webhook",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_reference_is_fresh() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/EVENTS.md");
        let committed = std::fs::read_to_string(file).unwrap_or_default();
        let is_fresh = committed == markdown().unwrap();
        assert!(
            is_fresh,
            "docs/EVENTS.md is out of date: run `cargo run -- events-reference > docs/EVENTS.md`"
        );
    }
}
