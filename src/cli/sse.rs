//! Reads an event stream (WHATWG HTML, server-sent events), whatever pieces the bytes come in.
//!
//! What must hold: a cut may fall anywhere, between CR and LF or inside a character; the id moves on with every
//! complete block, also one that fires nothing; an event is bounded, so that a server cannot fill our memory.

use std::time::Duration;

/// The longest event that is read; anything above it is not a Headwater event.
pub const EVENT_MAX_BYTES: usize = 8 * 1024 * 1024;

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SseEvent {
    /// Its type, `message` when the stream named none.
    pub event: String,
    /// Its data, lines joined by line feeds.
    pub data: String,
    /// The last id when it was fired.
    pub id: String,
}

/// The reader of one connection.
#[derive(Debug, Default)]
pub struct SseParser {
    line: Vec<u8>,
    after_cr: bool,
    started: bool,
    event: String,
    data: String,
    id: String,
    last_event_id: String,
    retry: Option<Duration>,
    is_oversize: bool,
}

impl SseParser {
    /// A reader that resumes after an id.
    pub fn new(last_event_id: impl Into<String>) -> Self {
        let id: String = last_event_id.into();
        Self { last_event_id: id.clone(), id, ..Self::default() }
    }

    /// Takes the next bytes and gives the events that they complete.
    pub fn feed(&mut self, bytes: &[u8]) -> Vec<SseEvent> {
        let mut fired = Vec::new();
        for &byte in bytes {
            let ends_crlf = std::mem::take(&mut self.after_cr) && byte == b'\n';
            match byte {
                b'\n' if ends_crlf => {}
                b'\n' | b'\r' => {
                    self.after_cr = byte == b'\r';
                    fired.extend(self.end_of_line());
                }
                _ if self.line.len() + self.data.len() < EVENT_MAX_BYTES => self.line.push(byte),
                _ => self.is_oversize = true,
            }
        }
        fired
    }

    /// What a reconnect sends as `Last-Event-ID`; empty before the first id.
    pub fn last_event_id(&self) -> &str {
        &self.last_event_id
    }

    /// How long the server wants a reader to wait before it reconnects.
    pub fn retry(&self) -> Option<Duration> {
        self.retry
    }

    /// Whether something was longer than [`EVENT_MAX_BYTES`]: what was read since is not to be trusted.
    pub fn is_oversize(&self) -> bool {
        self.is_oversize
    }

    fn end_of_line(&mut self) -> Option<SseEvent> {
        let bytes = std::mem::take(&mut self.line);
        let text = String::from_utf8_lossy(&bytes);
        let line = if self.started { &text } else { text.strip_prefix('\u{feff}').unwrap_or(&text) };
        self.started = true;
        if line.is_empty() {
            return self.dispatch();
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.event),
            "data" => {
                self.data.push_str(value);
                self.data.push('\n');
            }
            "id" if !value.contains('\0') => value.clone_into(&mut self.id),
            "retry" if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) => {
                self.retry = value.parse().ok().map(Duration::from_millis).or(self.retry);
            }
            // A comment or a field of a later standard.
            _ => {}
        }
        None
    }

    fn dispatch(&mut self) -> Option<SseEvent> {
        self.id.clone_into(&mut self.last_event_id);
        let event = std::mem::take(&mut self.event);
        let mut data = std::mem::take(&mut self.data);
        data.pop()?;
        let event = if event.is_empty() { "message".to_owned() } else { event };
        Some(SseEvent { event, data, id: self.last_event_id.clone() })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(pieces: &[&[u8]]) -> (Value, Value) {
        let mut parser = SseParser::default();
        let events: Vec<Value> = pieces
            .iter()
            .flat_map(|piece| parser.feed(piece))
            .map(|event| json!({"type": event.event, "data": event.data, "id": event.id}))
            .collect();
        let retry = parser.retry().map(|retry| u64::try_from(retry.as_millis()).unwrap());
        (json!(events), json!({"last_event_id": parser.last_event_id(), "retry": retry}))
    }

    #[test]
    fn the_cases_of_the_standard_hold_whole_and_at_every_cut() {
        let table = include_str!("../../tests/cases/sse.tsv");
        let mut rows = 0;
        for row in table.lines().filter(|line| !line.starts_with('#')) {
            let columns: Vec<&str> = row.split('\t').collect();
            if columns[1] != "parse" {
                continue;
            }
            let input: String = serde_json::from_str(columns[3]).unwrap();
            let bytes = input.as_bytes();
            let expected: (Value, Value) =
                (serde_json::from_str(columns[4]).unwrap(), serde_json::from_str(columns[5]).unwrap());
            assert_eq!(read(&[bytes]), expected, "{}", columns[0]);
            for cut in 0..=bytes.len() {
                let (left, right) = bytes.split_at(cut);
                assert_eq!(read(&[left, right]), expected, "{} cut at {cut}", columns[0]);
            }
            let single: Vec<&[u8]> = bytes.chunks(1).collect();
            assert_eq!(read(&single), expected, "{} byte by byte", columns[0]);
            rows += 1;
        }
        assert!(rows > 20, "only {rows} rows were found");
    }

    #[test]
    fn a_block_with_only_an_id_moves_the_reader_on() {
        let mut parser = SseParser::default();
        assert!(parser.feed(b"id: 0a0b0c0d.7\n\n").is_empty());
        assert_eq!(parser.last_event_id(), "0a0b0c0d.7");
        assert!(parser.feed(b"id: 0a0b0c0d.8\ndata: x").is_empty());
        assert_eq!(parser.last_event_id(), "0a0b0c0d.7", "a block that is not complete does not count");
    }

    #[test]
    fn an_endless_line_is_given_up() {
        let mut parser = SseParser::default();
        let piece = vec![b'x'; 1024 * 1024];
        for _ in 0..9 {
            assert!(parser.feed(&piece).is_empty());
        }
        assert!(parser.is_oversize());
    }
}
