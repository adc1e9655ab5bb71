//! A reader of event streams by the WHATWG HTML standard (section 9.2.6), fed
//! with pieces that may be cut anywhere.

/// Octets of one line, at most; a longer one is not a stream of ours.
const LINE_MAX_BYTES: usize = 64 * 1_048_576;

/// An event that a stream fires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SseEvent {
    /// Its type; `message` where none was given.
    pub event: String,
    /// Its data.
    pub data: String,
    /// The last event id when it was fired.
    pub id: String,
}

/// The state between two pieces.
#[derive(Debug, Default)]
pub struct SseParser {
    line: Vec<u8>,
    begun: bool,
    after_cr: bool,
    data: String,
    event: String,
    id: String,
    last_event_id: String,
    retry: Option<u64>,
}

impl SseParser {
    /// A reader at the start of a stream. It carries the last event id over from the one before.
    pub fn new(last_event_id: impl Into<String>) -> Self {
        let id: String = last_event_id.into();
        Self { id: id.clone(), last_event_id: id, ..Self::default() }
    }

    /// Takes the next octets; gives the events that they complete.
    pub fn feed(&mut self, octets: &[u8]) -> Vec<SseEvent> {
        let mut fired = Vec::new();
        for &octet in octets {
            // CR LF is one end of a line, even when it is cut in between.
            let second_half = std::mem::replace(&mut self.after_cr, octet == b'\r') && octet == b'\n';
            match octet {
                b'\n' if second_half => {}
                b'\n' | b'\r' => {
                    let line = std::mem::take(&mut self.line);
                    self.take_line(&line, &mut fired);
                    self.line = line;
                    self.line.clear();
                }
                _ if self.line.len() < LINE_MAX_BYTES => self.line.push(octet),
                _ => {}
            }
        }
        fired
    }

    /// What a reconnect sends as `Last-Event-ID`.
    pub fn last_event_id(&self) -> &str {
        &self.last_event_id
    }

    /// How long to wait before a reconnect, in milliseconds, if the stream said so.
    pub fn retry(&self) -> Option<u64> {
        self.retry
    }

    fn take_line(&mut self, line: &[u8], fired: &mut Vec<SseEvent>) {
        let line = match line.strip_prefix(b"\xef\xbb\xbf") {
            Some(rest) if !self.begun => rest,
            _ => line,
        };
        self.begun = true;
        if line.is_empty() {
            self.dispatch(fired);
            return;
        }
        let text = String::from_utf8_lossy(line);
        let (field, value) = match text.split_once(':') {
            Some((field, value)) => (field, value.strip_prefix(' ').unwrap_or(value)),
            None => (&*text, ""),
        };
        match field {
            "data" => {
                self.data.push_str(value);
                self.data.push('\n');
            }
            "event" => value.clone_into(&mut self.event),
            "id" if !value.contains('\0') => value.clone_into(&mut self.id),
            "retry" if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) => {
                self.retry = value.parse().ok();
            }
            // A comment (an empty field name) or a field that nobody knows.
            _ => {}
        }
    }

    fn dispatch(&mut self, fired: &mut Vec<SseEvent>) {
        self.id.clone_into(&mut self.last_event_id);
        let event = std::mem::take(&mut self.event);
        let mut data = std::mem::take(&mut self.data);
        if data.is_empty() {
            return;
        }
        data.pop();
        let event = if event.is_empty() { "message".to_owned() } else { event };
        fired.push(SseEvent { event, data, id: self.last_event_id.clone() });
    }
}
