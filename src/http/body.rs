//! The body of a request: bounded, JSON, and read so that every fault is told at once with its pointer. Fields that
//! nobody takes are faults too.

use axum::body::Body;
use axum::http::{HeaderMap, StatusCode, header};
use futures_util::StreamExt;
use headwater_events::reject::Fault;
use serde_json::{Map, Value};

use super::{Problem, strict};

/// Octets of a body, at most, unless its type says otherwise.
pub const BODY_MAX_BYTES: usize = 1 << 20;
/// Octets of a refused body that are read and dropped, so that a client that is still writing hears the answer.
const DRAIN_MAX_BYTES: usize = 64 << 20;

/// Faults of one kind that are told of one body.
const NULS_MAX_FAULTS: usize = 100;
/// Characters of a key that are told.
const KEY_MAX_CHARS: usize = 80;
/// The code of a text that nothing can hold.
const UNHELD: &str = "invalid_text";

/// Something that can be read from a JSON object.
pub trait FromBody: Sized + Send {
    /// Octets of the body, at most.
    const MAX_BYTES: usize = BODY_MAX_BYTES;
    /// Whether it holds something that people remember: a digest of it must not tell it by trying.
    const HAS_SECRET: bool = false;

    /// Takes what it knows; none when a fault was noted. What is left over is refused afterwards.
    fn read(fields: &mut Fields) -> Option<Self>;
}

/// A route that takes no body, or an empty object.
#[derive(Debug)]
pub struct NoBody;

impl FromBody for NoBody {
    fn read(_: &mut Fields) -> Option<Self> {
        Some(Self)
    }
}

/// What was sent, and what is wrong with it whatever it means.
#[derive(Debug)]
pub struct Sent {
    /// The JSON.
    pub value: Value,
    faults: Vec<Fault>,
}

/// What is left of an object while it is read.
#[derive(Debug)]
pub struct Fields {
    map: Map<String, Value>,
    base: String,
    faults: Vec<Fault>,
    is_object: bool,
}

impl Fields {
    /// The fields of a value, which stands at `base`; a value that is no object is a fault.
    pub fn new(value: Value, base: impl Into<String>) -> Self {
        let base = base.into();
        match value {
            Value::Object(map) => Self { map, base, faults: Vec::new(), is_object: true },
            _ => {
                let faults = vec![Fault::at(base.clone(), "invalid_type", "this must be an object")];
                Self { map: Map::new(), base, faults, is_object: false }
            }
        }
    }

    /// A field that may be left out; `null` is as if it were.
    pub fn take(&mut self, key: &str) -> Option<Value> {
        self.map.remove(key).filter(|value| !value.is_null())
    }

    /// A field where `null` means something else than absence.
    pub fn take_nullable(&mut self, key: &str) -> Option<Value> {
        self.map.remove(key)
    }

    /// Notes that a field is missing.
    pub fn missing(&mut self, key: &str) {
        self.fault(key, "missing", format!("the field {key} is missing"));
    }

    /// A text.
    pub fn text(&mut self, key: &str) -> Option<String> {
        match self.take(key)? {
            Value::String(text) => Some(text),
            _ => self.wrong(key, "a text"),
        }
    }

    /// A text that must be there.
    pub fn required_text(&mut self, key: &str) -> Option<String> {
        if !self.has(key) {
            self.missing(key);
        }
        self.text(key)
    }

    /// A whole number.
    pub fn integer(&mut self, key: &str) -> Option<i64> {
        let value = self.take(key)?;
        value.as_i64().or_else(|| self.wrong(key, "a whole number"))
    }

    /// `true` or `false`; false when it is left out.
    pub fn flag(&mut self, key: &str) -> bool {
        match self.take(key) {
            None => false,
            Some(Value::Bool(flag)) => flag,
            Some(_) => self.wrong(key, "true or false").unwrap_or(false),
        }
    }

    /// A list.
    pub fn list(&mut self, key: &str) -> Option<Vec<Value>> {
        match self.take(key)? {
            Value::Array(items) => Some(items),
            _ => self.wrong(key, "a list"),
        }
    }

    /// A list of texts, each at its place; an item that is none is a fault, and none here.
    pub fn texts(&mut self, key: &str) -> Option<Vec<Option<String>>> {
        let mut texts = Vec::new();
        for (index, item) in self.list(key)?.into_iter().enumerate() {
            texts.push(match item {
                Value::String(text) => Some(text),
                _ => self.wrong(&format!("{key}/{index}"), "a text"),
            });
        }
        Some(texts)
    }

    /// A text that is read by `parse`; what it says about it is the fault.
    pub fn parsed<T>(
        &mut self,
        key: &str,
        parse: impl Fn(&str) -> Result<T, (&'static str, String)>,
    ) -> Option<T> {
        match parse(&self.text(key)?) {
            Ok(value) => Some(value),
            Err((code, detail)) => {
                self.fault(key, code, detail);
                None
            }
        }
    }

    /// A UUID of some kind.
    pub fn id<T: std::str::FromStr>(&mut self, key: &str) -> Option<T> {
        self.parsed(key, |text| text.parse().map_err(|_| ("invalid_id", "this must be a UUID".to_owned())))
    }

    /// Whether a field is there and not `null`.
    pub fn has(&self, key: &str) -> bool {
        self.map.get(key).is_some_and(|value| !value.is_null())
    }

    /// Notes a fault of a field (`records/3` for a part of one). What is no object lacks no fields.
    pub fn fault(&mut self, key: &str, code: &'static str, detail: impl Into<String>) {
        if !self.is_object {
            return;
        }
        let pointer = if key.is_empty() { self.base.clone() } else { format!("{}/{key}", self.base) };
        self.faults.push(Fault::at(pointer, code, detail));
    }

    /// Notes faults that have their whole pointers already.
    pub fn faults(&mut self, faults: impl IntoIterator<Item = Fault>) {
        self.faults.extend(faults);
    }

    /// What the decision would find too, told along when something is wrong already: then nothing is decided, and every
    /// fault is to be told at once. To be called when all fields are taken.
    pub fn also(&mut self, find: impl FnOnce() -> Vec<Fault>) {
        self.faults = self.drain();
        if !self.faults.is_empty() {
            self.faults.extend(find());
        }
    }

    fn wrong<T>(&mut self, key: &str, what: &str) -> Option<T> {
        self.fault(key, "invalid_type", format!("{key} must be {what}"));
        None
    }

    /// Every fault, with one for each field that nobody took.
    pub fn finish(mut self) -> Vec<Fault> {
        self.drain()
    }

    /// As [`Self::finish`], for those that have more to say than this object's own faults: they take them along.
    pub fn drain(&mut self) -> Vec<Fault> {
        for key in std::mem::take(&mut self.map).into_iter().map(|(key, _)| key) {
            let shown: String = key.chars().take(KEY_MAX_CHARS).flat_map(char::escape_debug).collect();
            self.fault(&token(&key), "unknown_field", format!("there is no field `{shown}` here"));
        }
        std::mem::take(&mut self.faults)
    }
}

/// A key as a token of a pointer (RFC 6901), cut where it is too long to be told.
pub fn token(key: &str) -> String {
    let kept: String = key.chars().take(KEY_MAX_CHARS).collect();
    kept.replace('~', "~0").replace('/', "~1")
}

/// The problem of these faults. What is no text that could be held is told as that alone.
pub fn refused(mut faults: Vec<Fault>) -> Problem {
    let unheld = faults.iter().filter(|fault| fault.code == UNHELD).map(|fault| fault.pointer.clone());
    let unheld: std::collections::BTreeSet<String> = unheld.collect();
    faults.retain(|fault| fault.code == UNHELD || !unheld.contains(&fault.pointer));
    Problem::invalid(faults)
}

/// Reads a value whole.
///
/// # Errors
/// 422 with every fault.
pub fn read<T: FromBody>(sent: Sent) -> Result<T, Problem> {
    let mut fields = Fields::new(sent.value, "");
    fields.faults(sent.faults);
    let read = T::read(&mut fields);
    let faults = fields.finish();
    match read {
        Some(read) if faults.is_empty() => Ok(read),
        _ => Err(refused(faults)),
    }
}

/// The JSON of a body; an empty one is an empty object.
///
/// # Errors
/// 400, 413 or 415.
pub async fn json(headers: &HeaderMap, body: Body, most: usize) -> Result<Sent, Problem> {
    let octets = bounded(headers, body, most).await?;
    if octets.is_empty() {
        return Ok(Sent { value: Value::Object(Map::new()), faults: Vec::new() });
    }
    if !is_json(headers) {
        let detail = "the body must be JSON: send it with Content-Type: application/json";
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", detail));
    }
    parsed(&octets)
}

fn parsed(octets: &[u8]) -> Result<Sent, Problem> {
    let (value, mut faults) =
        strict::read(octets).map_err(|error| Problem::malformed(format!("the body is not JSON: {error}")))?;
    nuls(&value, "", &mut faults);
    Ok(Sent { value, faults })
}

/// The same, whatever the body is said to be; an empty one is `null`.
///
/// # Errors
/// 400, 413, or 422 for what is wrong with it whatever it means.
pub async fn undeclared(headers: &HeaderMap, body: Body, most: usize) -> Result<Value, Problem> {
    let octets = bounded(headers, body, most).await?;
    if octets.is_empty() {
        return Ok(Value::Null);
    }
    let Sent { value, faults } = parsed(&octets)?;
    if faults.is_empty() { Ok(value) } else { Err(refused(faults)) }
}

/// Notes every text and key with U+0000, which no database, log or shell can hold. The depth is bounded by the parser.
fn nuls(value: &Value, base: &str, faults: &mut Vec<Fault>) {
    let note = |text: &str, at: &str, faults: &mut Vec<Fault>| {
        if text.contains('\0') && faults.len() < NULS_MAX_FAULTS {
            faults.push(Fault::at(at, UNHELD, "a text cannot hold U+0000: leave it out"));
        }
    };
    match value {
        Value::String(text) => note(text, base, faults),
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(index, item)| nuls(item, &format!("{base}/{index}"), faults));
        }
        Value::Object(map) => {
            for (key, item) in map {
                let at = format!("{base}/{}", token(key));
                note(key, &at, faults);
                nuls(item, &at, faults);
            }
        }
        _ => {}
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let Some(media) = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()) else {
        return false;
    };
    let media = media.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    media == "application/json" || (media.starts_with("application/") && media.ends_with("+json"))
}

pub(super) async fn bounded(headers: &HeaderMap, body: Body, most: usize) -> Result<Vec<u8>, Problem> {
    let declared = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    let declared = declared.and_then(|text| text.parse::<usize>().ok()).unwrap_or(0);
    let plain = |value: &header::HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"identity");
    if !headers.get_all(header::CONTENT_ENCODING).iter().all(plain) {
        let detail = "a body is taken as it is: send it without Content-Encoding";
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", detail));
    }
    // Not even read to its end: nothing of it is waited for.
    if declared > most.max(DRAIN_MAX_BYTES) {
        return Err(too_large(most));
    }
    let mut octets = Vec::with_capacity(declared.min(most));
    let mut stream = body.into_data_stream();
    let mut read: usize = 0;
    while let Some(chunk) = stream.next().await {
        let chunk = chunk.map_err(|_| Problem::malformed("the body broke off"))?;
        read = read.saturating_add(chunk.len());
        if read <= most {
            octets.extend_from_slice(&chunk);
        } else if read > DRAIN_MAX_BYTES {
            break;
        }
    }
    if read > most { Err(too_large(most)) } else { Ok(octets) }
}

fn too_large(most: usize) -> Problem {
    let detail = format!("the body is larger than {most} octets");
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", detail).with("limit_bytes", most)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn nuls_are_found_everywhere() {
        let mut faults = Vec::new();
        nuls(&json!({"a": ["x", "\0"], "b/c": {"d": "x\0"}, "e\0": 1, "f": "\n"}), "", &mut faults);
        let told: Vec<&str> = faults.iter().map(|fault| fault.pointer.as_str()).collect();
        assert_eq!(told, ["/a/1", "/b~1c/d", "/e\0"]);
    }

    #[test]
    fn every_fault_is_told_at_once() {
        let mut fields = Fields::new(json!({"a": 1, "b": [1, "x"], "c/d": true, "n": null}), "/changes/0");
        assert_eq!(fields.text("a"), None);
        assert_eq!(fields.texts("b"), Some(vec![None, Some("x".to_owned())]));
        assert_eq!(fields.required_text("n"), None);
        let pointers: Vec<String> = fields.finish().into_iter().map(|fault| fault.pointer).collect();
        assert_eq!(pointers, ["/changes/0/a", "/changes/0/b/0", "/changes/0/n", "/changes/0/c~1d"]);
    }

    #[test]
    fn what_is_no_object_lacks_nothing() {
        let mut fields = Fields::new(json!([1]), "/changes/3");
        fields.missing("name");
        let told: Vec<Fault> = fields.finish();
        assert_eq!(told.len(), 1);
        assert_eq!((told[0].pointer.as_str(), told[0].code), ("/changes/3", "invalid_type"));
    }

    #[test]
    fn a_long_key_is_cut_between_the_escapes() {
        let key = format!("{}/~", "a".repeat(KEY_MAX_CHARS - 1));
        assert_eq!(token(&key), format!("{}~1", "a".repeat(KEY_MAX_CHARS - 1)));
        assert_eq!(token("a/b~c"), "a~1b~0c");
    }
}
