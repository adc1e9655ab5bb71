//! The query of a request: typed, and refused whole when it holds a key that the route does not know, because a
//! misspelt filter that is ignored answers something else than was asked.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use headwater_events::reject::Fault;

use super::Problem;

/// Pairs of one query, at most.
const PAIRS_MAX_COUNT: usize = 100;

/// What is left of a query while it is read.
#[derive(Debug)]
pub struct Pairs {
    pairs: Vec<(String, String)>,
    faults: Vec<Fault>,
}

/// Something that can be read from a query.
pub trait FromQuery: Sized {
    /// Takes what it knows; the rest is refused afterwards.
    fn read(pairs: &mut Pairs) -> Self;
}

/// The query of a request, as `T`.
#[derive(Debug)]
pub struct Query<T>(pub T);

/// A route without query keys.
#[derive(Debug)]
pub struct NoQuery;

impl FromQuery for NoQuery {
    fn read(_: &mut Pairs) -> Self {
        Self
    }
}

impl Pairs {
    /// Reads a raw query.
    ///
    /// # Errors
    /// 400 when it is not `application/x-www-form-urlencoded` UTF-8.
    pub fn parse(raw: Option<&str>) -> Result<Self, Problem> {
        let mut pairs = Vec::new();
        for part in raw.unwrap_or_default().split('&').filter(|part| !part.is_empty()) {
            if pairs.len() == PAIRS_MAX_COUNT {
                return Err(Problem::malformed(format!("a query holds at most {PAIRS_MAX_COUNT} keys")));
            }
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            match (decode(key), decode(value)) {
                (Some(key), Some(value)) => pairs.push(clean(key, value)?),
                _ => return Err(Problem::malformed("the query is not percent-encoded UTF-8")),
            }
        }
        Ok(Self { pairs, faults: Vec::new() })
    }

    /// Whether a key stands there.
    pub fn has(&self, key: &str) -> bool {
        self.pairs.iter().any(|(name, _)| name == key)
    }

    /// Every value of a key that may be repeated.
    pub fn all(&mut self, key: &str) -> Vec<String> {
        let (found, rest) = std::mem::take(&mut self.pairs).into_iter().partition(|(name, _)| name == key);
        self.pairs = rest;
        let found: Vec<(String, String)> = found;
        found.into_iter().map(|(_, value)| value).collect()
    }

    /// The value of a key that may stand once.
    pub fn one(&mut self, key: &str) -> Option<String> {
        let mut values = self.all(key);
        if values.len() > 1 {
            self.fault("repeated_query_key", format!("the query key {key} may stand once"));
        }
        values.pop()
    }

    /// The value of a key, read by `parse`, which says what is wrong with it.
    pub fn parsed<T>(&mut self, key: &str, parse: impl Fn(&str) -> Result<T, String>) -> Option<T> {
        let text = self.one(key)?;
        match parse(&text) {
            Ok(value) => Some(value),
            Err(detail) => {
                self.fault("invalid_query_value", format!("{key}: {detail}"));
                None
            }
        }
    }

    /// A key that is `true` or `false`.
    pub fn flag(&mut self, key: &str) -> bool {
        let parse = |text: &str| text.parse::<bool>().map_err(|_| "write true or false".to_owned());
        self.parsed(key, parse).unwrap_or(false)
    }

    /// A UUID of some kind.
    pub fn id<T: std::str::FromStr>(&mut self, key: &str) -> Option<T> {
        self.parsed(key, |text| text.parse().map_err(|_| "write a UUID".to_owned()))
    }

    /// Notes a fault of the query.
    pub fn fault(&mut self, code: &'static str, detail: String) {
        self.faults.push(Fault::at("", code, detail));
    }

    /// Refuses what was taken and is at fault; what nobody took does not matter.
    ///
    /// # Errors
    /// 400 with every fault.
    pub fn taken(self) -> Result<(), Problem> {
        if self.faults.is_empty() { Ok(()) } else { Err(Problem::malformed_at(self.faults)) }
    }

    /// Refuses what nobody took.
    ///
    /// # Errors
    /// 400 with every fault.
    pub fn finish(mut self) -> Result<(), Problem> {
        for (key, _) in std::mem::take(&mut self.pairs) {
            let shown: String = key.chars().take(80).flat_map(char::escape_debug).collect();
            self.fault("unknown_query_key", format!("there is no query key `{shown}` here"));
        }
        if self.faults.is_empty() { Ok(()) } else { Err(Problem::malformed_at(self.faults)) }
    }
}

impl<S: Send + Sync, T: FromQuery> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let mut pairs = Pairs::parse(parts.uri.query())?;
        let read = T::read(&mut pairs);
        pairs.finish()?;
        Ok(Self(read))
    }
}

/// A pair without control characters: none of them is ever looked for, and the database holds no U+0000.
///
/// # Errors
/// 400 that names the key.
pub fn clean(key: String, value: String) -> Result<(String, String), Problem> {
    if key.chars().chain(value.chars()).any(char::is_control) {
        let shown: String = key.chars().take(80).flat_map(char::escape_debug).collect();
        return Err(Problem::malformed(format!(
            "the query key {shown} holds a control character: leave it out"
        )));
    }
    Ok((key, value))
}

/// Percent-decoding of forms: `+` is a space. None when the octets are not UTF-8 or an escape is cut off.
fn decode(text: &str) -> Option<String> {
    let mut octets = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        octets.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
                u8::try_from(digit(rest.next())? * 16 + digit(rest.next())?).ok()?
            }
            other => other,
        });
    }
    String::from_utf8(octets).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_decoded() {
        assert_eq!(decode("a+b%20%C3%BC"), Some("a b ü".to_owned()));
        for bad in ["%", "%2", "%zz", "%ff", "%+1"] {
            assert_eq!(decode(bad), None, "{bad}");
        }
    }

    #[test]
    fn control_characters_are_refused_by_their_key() {
        for bad in ["q=%00", "q=a%0Ab", "q=%7F", "q=%C2%85", "%00=q"] {
            let told = Pairs::parse(Some(bad)).unwrap_err().body().to_string();
            assert!(told.contains("the query key ") && told.contains("malformed"), "{bad}: {told}");
        }
    }

    #[test]
    fn unknown_and_repeated_keys_are_refused() {
        let mut pairs = Pairs::parse(Some("a=1&b=2&b=3&c")).unwrap();
        assert_eq!(pairs.one("a").as_deref(), Some("1"));
        assert_eq!(pairs.all("b"), ["2", "3"]);
        assert!(pairs.finish().is_err());
        let mut twice = Pairs::parse(Some("a=1&a=2")).unwrap();
        let _taken = twice.one("a");
        assert!(twice.finish().is_err());
    }
}
