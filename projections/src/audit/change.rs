//! Pure: an event → its row of `audit.entries`.

use headwater_events::envelope::Recorded;
use headwater_events::ids::{DomainId, OperationId, Position, StreamRef, TenantId, TokenId};
use headwater_events::time::Timestamp;
use serde_json::Value;
use uuid::Uuid;

/// Octets of the words of one event, at most; a large RRset is found by its first values.
pub const TEXT_MAX_BYTES: usize = 4_096;

/// What is seen of every deployment that goes well: by far the most frequent event. It is found by its domain and type;
/// the checksums and times in it are words that nobody types and that an index pays for.
const SEEN: &str = "deployment.acknowledged";

/// One row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The event's place in the log.
    pub position: Position,
    /// When.
    pub at: Timestamp,
    /// The domain concerned.
    pub domain: Option<(DomainId, String)>,
    /// The tenant concerned.
    pub tenant: Option<TenantId>,
    /// The stream it stands in.
    pub stream: StreamRef,
    /// Who.
    pub actor: Uuid,
    /// With which token.
    pub token: Option<TokenId>,
    /// Its type.
    pub event_type: String,
    /// The operation that carries it out.
    pub operation: Option<OperationId>,
    /// What is searched for words.
    pub text: String,
}

impl Entry {
    /// The row of an event.
    pub fn of(event: &Recorded) -> Self {
        let mut text = String::new();
        push_words(&mut text, &event.event_type);
        if let Some((_, name)) = &event.domain {
            push_words(&mut text, name.as_str());
        }
        if let Some(note) = &event.provenance.note {
            push_words(&mut text, note);
        }
        if event.event_type != SEEN
            && let Ok(data) = serde_json::from_slice(&event.data)
        {
            push_values(&mut text, &data);
        }
        Self {
            position: event.position,
            at: event.at,
            domain: event.domain.as_ref().map(|(id, name)| (*id, name.as_str().to_owned())),
            tenant: event.tenant,
            stream: event.stream,
            actor: event.provenance.actor.id,
            token: event.provenance.actor.token,
            event_type: event.event_type.clone(),
            operation: event.operation,
            text,
        }
    }
}

/// The words of a text: runs of letters and digits, in lower case.
pub fn words(text: &str) -> impl Iterator<Item = String> + '_ {
    text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).map(str::to_lowercase)
}

fn push_words(out: &mut String, text: &str) {
    for word in words(text) {
        if out.len() + word.len() >= TEXT_MAX_BYTES {
            return;
        }
        if !out.is_empty() {
            out.push(' ');
        }
        out.push_str(&word);
    }
}

fn push_values(out: &mut String, value: &Value) {
    if out.len() >= TEXT_MAX_BYTES {
        return;
    }
    match value {
        Value::String(text) => push_words(out, text),
        Value::Array(items) => items.iter().for_each(|item| push_values(out, item)),
        Value::Object(members) => members.values().for_each(|member| push_values(out, member)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_what_people_type() {
        let found: Vec<String> = words("WWW.Example.test. \"v=spf1\" 192.0.2.1").collect();
        assert_eq!(found, ["www", "example", "test", "v", "spf1", "192", "0", "2", "1"]);
        let mut text = String::new();
        push_values(&mut text, &serde_json::json!({"a": ["x".repeat(5_000), "y z"], "n": 7}));
        assert_eq!(text, "y z");
    }
}
