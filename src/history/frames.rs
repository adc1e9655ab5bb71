//! Events on the wire: the envelope of docs/EVENTS.md and its SSE frame,
//! written straight into a buffer. The data is passed through as it was stored
//! and hashed. What is written is octet for octet what `Recorded::to_json` says.

use crate::store::raw::RawView;
use headwater_events::actor::ActorKind;
use headwater_events::ids::Position;
use headwater_events::time::Timestamp;
use serde_json::value::RawValue;
use std::io::Write;
use uuid::Uuid;

/// What the envelope says besides the event.
#[derive(Debug, Clone, Copy, Default)]
pub struct Extras<'a> {
    /// The client as JSON; none withholds it.
    pub client: Option<&'a str>,
    /// The actor's name, as `/audit` adds it: `Some(None)` when it is not known or not shown.
    pub name: Option<Option<&'a str>>,
    /// What it changed of what is desired, as JSON, as `/audit` adds it.
    pub diff: Option<&'a str>,
}

fn uuid(out: &mut Vec<u8>, id: Uuid) {
    let mut text = [0; uuid::fmt::Hyphenated::LENGTH];
    out.push(b'"');
    out.extend_from_slice(id.hyphenated().encode_lower(&mut text).as_bytes());
    out.push(b'"');
}

fn optional_uuid(out: &mut Vec<u8>, id: Option<Uuid>) {
    match id {
        Some(id) => uuid(out, id),
        None => out.extend_from_slice(b"null"),
    }
}

fn number(out: &mut Vec<u8>, n: i64) {
    let mut digits = [0_u8; 20];
    let mut at = digits.len();
    let mut rest = n.unsigned_abs();
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if n < 0 {
        out.push(b'-');
    }
    out.extend_from_slice(&digits[at..]);
}

/// A JSON string. Almost all of ours need no escape.
fn text(out: &mut Vec<u8>, value: &str) {
    if value.bytes().all(|byte| byte >= 0x20 && byte != b'"' && byte != b'\\' && byte != 0x7f) {
        out.push(b'"');
        out.extend_from_slice(value.as_bytes());
        out.push(b'"');
    } else {
        let begin = out.len();
        if serde_json::to_writer(&mut *out, value).is_err() {
            // Writing a text into memory does not fail; if it did, half a string must not stay.
            out.truncate(begin);
            out.extend_from_slice(b"null");
        }
    }
}

fn optional_text(out: &mut Vec<u8>, value: Option<&str>) {
    match value {
        Some(value) => text(out, value),
        None => out.extend_from_slice(b"null"),
    }
}

/// RFC 3339 with milliseconds (days from the civil calendar, as Howard Hinnant gives them).
fn time(out: &mut Vec<u8>, at: Timestamp) {
    let millis = at.as_millis();
    let (days, of_day) = (millis.div_euclid(86_400_000), millis.rem_euclid(86_400_000));
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let day_of_era = z.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    if !(0..=9_999).contains(&year) {
        out.extend_from_slice(format!("\"{at}\"").as_bytes());
        return;
    }
    let mut shown = *b"\"0000-00-00T00:00:00.000Z\"";
    let mut put = |place: usize, digits: usize, mut value: i64| {
        for index in (place..place + digits).rev() {
            shown[index] = b'0' + (value % 10) as u8;
            value /= 10;
        }
    };
    put(1, 4, year);
    put(6, 2, month);
    put(9, 2, day);
    put(12, 2, of_day / 3_600_000);
    put(15, 2, of_day / 60_000 % 60);
    put(18, 2, of_day / 1_000 % 60);
    put(21, 3, of_day % 1_000);
    out.extend_from_slice(&shown);
}

fn kind(kind: ActorKind) -> &'static [u8] {
    match kind {
        ActorKind::User => b"user",
        ActorKind::Operator => b"operator",
        ActorKind::System => b"system",
        ActorKind::Edge => b"edge",
    }
}

fn key(out: &mut Vec<u8>, name: &[u8]) {
    out.extend_from_slice(name);
}

/// Appends the envelope as one line of JSON. Returns where the client's value begins, so that a
/// withheld one (`null`) can be replaced later.
pub fn envelope(out: &mut Vec<u8>, e: &RawView<'_>, extras: Extras<'_>) -> usize {
    key(out, b"{\"position\":");
    number(out, e.position.get());
    key(out, b",\"id\":");
    uuid(out, e.id.as_uuid());
    key(out, b",\"type\":");
    text(out, e.event_type);
    key(out, b",\"schema\":");
    number(out, i64::from(e.schema));
    key(out, b",\"stream\":{\"kind\":\"");
    key(out, e.stream.kind.name().as_bytes());
    key(out, b"\",\"id\":");
    uuid(out, e.stream.id);
    key(out, b"},\"domain\":");
    optional_text(out, e.domain.map(|domain| domain.1));
    key(out, b",\"tenant\":");
    optional_uuid(out, e.tenant.map(|tenant| tenant.as_uuid()));
    key(out, b",\"revision\":");
    number(out, e.revision.get());
    key(out, b",\"seq\":");
    number(out, i64::from(e.seq));
    key(out, b",\"at\":");
    time(out, e.at);
    key(out, b",\"actor\":{\"kind\":\"");
    key(out, kind(e.actor_kind));
    key(out, b"\",\"id\":");
    uuid(out, e.actor);
    key(out, b",\"token\":");
    optional_uuid(out, e.token.map(|token| token.as_uuid()));
    key(out, b",\"on_behalf_of\":");
    optional_uuid(out, e.on_behalf_of.map(|user| user.as_uuid()));
    if let Some(name) = extras.name {
        key(out, b",\"name\":");
        optional_text(out, name);
    }
    key(out, b"},\"client\":");
    let client_at = out.len();
    out.extend_from_slice(extras.client.unwrap_or("null").as_bytes());
    key(out, b",\"request_id\":");
    uuid(out, e.request.as_uuid());
    key(out, b",\"operation\":");
    optional_uuid(out, e.operation.map(|operation| operation.as_uuid()));
    key(out, b",\"note\":");
    optional_text(out, e.note);
    key(out, b",\"change\":");
    optional_uuid(out, e.change);
    key(out, b",\"cause\":");
    match e.cause {
        Some(cause) => number(out, cause.get()),
        None => key(out, b"null"),
    }
    key(out, b",\"hash\":\"");
    let digits = b"0123456789abcdef";
    for byte in e.hash {
        out.push(digits[usize::from(byte >> 4)]);
        out.push(digits[usize::from(byte & 15)]);
    }
    if let Some(diff) = extras.diff {
        key(out, b"\",\"diff\":");
        key(out, diff.as_bytes());
        key(out, b",\"data\":");
    } else {
        key(out, b"\",\"data\":");
    }
    key(out, data(e.data));
    out.push(b'}');
    client_at
}

/// The stored data if it is one line of JSON; what is not was altered by somebody, and is shown as
/// null (the chain's verification names it).
fn data(stored: &[u8]) -> &[u8] {
    let one_line = !stored.iter().any(|byte| matches!(byte, b'\n' | b'\r'));
    match serde_json::from_slice::<&RawValue>(stored) {
        Ok(_) if one_line => stored,
        _ => b"null",
    }
}

/// The length of `null`, which stands where a client is withheld.
pub const WITHHELD_BYTES: usize = 4;

/// Appends `id:` and its value. The log's short name is eight hex digits: nothing of a user's gets here.
pub fn id(out: &mut Vec<u8>, log: &str, position: Position) {
    out.extend_from_slice(b"id: ");
    out.extend_from_slice(log.as_bytes());
    out.push(b'.');
    number(out, position.get());
    out.push(b'\n');
}

/// Appends one event as an SSE block. Returns where the client's value begins.
pub fn frame(out: &mut Vec<u8>, log: &str, e: &RawView<'_>, client: Option<&str>) -> usize {
    id(out, log, e.position);
    out.extend_from_slice(b"event: ");
    // Types come from a fixed alphabet; a row that was altered must not break the framing.
    out.extend(e.event_type.bytes().filter(|byte| *byte >= 0x20));
    out.extend_from_slice(b"\ndata: ");
    let client_at = envelope(out, e, Extras { client, ..Extras::default() });
    out.extend_from_slice(b"\n\n");
    client_at
}

/// A block that only moves the reader's last event id.
pub fn bookmark(log: &str, position: Position) -> Vec<u8> {
    let mut out = Vec::with_capacity(40);
    id(&mut out, log, position);
    out.push(b'\n');
    out
}

/// A block of ours: an event's name and one line of JSON, with an id where the reader moves.
pub fn notice(at: Option<(&str, Position)>, name: &str, data: &serde_json::Value) -> Vec<u8> {
    let mut out = Vec::with_capacity(160);
    if let Some((log, position)) = at {
        id(&mut out, log, position);
    }
    // Writing into memory does not fail.
    let _written = write!(out, "event: {name}\ndata: {data}\n\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_and_times_read_as_they_should(n in any::<i64>(), millis in -62_167_219_200_000_i64..253_402_300_799_999) {
            let mut out = Vec::new();
            number(&mut out, n);
            prop_assert_eq!(String::from_utf8(out).unwrap(), n.to_string());
            let mut out = Vec::new();
            time(&mut out, Timestamp::from_millis(millis));
            prop_assert_eq!(String::from_utf8(out).unwrap(), format!("\"{}\"", Timestamp::from_millis(millis)));
        }

        #[test]
        fn texts_are_json(value in any::<String>()) {
            let mut out = Vec::new();
            text(&mut out, &value);
            prop_assert!(!out.iter().any(|byte| *byte == b'\n' || *byte == b'\r'));
            prop_assert_eq!(serde_json::from_slice::<String>(&out).unwrap(), value);
        }
    }

    #[test]
    fn data_that_was_altered_cannot_break_a_frame() {
        assert_eq!(data(b"{\"a\":1}"), b"{\"a\":1}");
        for altered in [b"{\"a\":\n1}".as_slice(), b"{", b"", b"\xff", b"{}\n\ndata: x"] {
            assert_eq!(data(altered), b"null");
        }
    }
}
