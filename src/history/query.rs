//! Query strings of the history's routes: every key is known or refused by
//! name, one that stands once may not stand twice, and filters have a form.

use crate::http::Problem;
use axum::extract::Query;
use axum::http::Uri;
use headwater_events::dns::DomainName;
use headwater_events::ids::Position;
use std::collections::BTreeMap;
use std::str::FromStr;

/// Values of one repeated filter, at most.
pub const FILTER_MAX_VALUES: usize = 100;
/// Characters of a type filter, at most.
const TYPE_MAX_CHARS: usize = 64;
/// Resources of one page, at most.
pub const LIMIT_MAX: i64 = 1_000;
/// Resources of one page when nothing is said.
pub const LIMIT_DEFAULT: i64 = 50;

/// A query string, read.
#[derive(Debug)]
pub struct Params(BTreeMap<String, Vec<String>>);

/// A place in a log, as a reader names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor {
    /// The short name of the log, if it was given.
    pub log: Option<String>,
    /// The position.
    pub position: Position,
}

impl FromStr for Cursor {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        let (log, digits) = match text.split_once('.') {
            Some((log, digits)) => (Some(log), digits),
            None => (None, text),
        };
        let is_log = |log: &str| {
            log.len() == 8 && log.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
        };
        let position = Some(digits)
            .filter(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()))
            .and_then(|digits| digits.parse().ok());
        match position {
            Some(position) if log.is_none_or(is_log) => {
                Ok(Self { log: log.map(str::to_owned), position: Position::new(position) })
            }
            _ => Err(Problem::malformed(
                "the event id is not one: give it as it was received (<log>.<position>), or a position",
            )),
        }
    }
}

impl Params {
    /// Reads the query; only `known` keys may stand in it.
    ///
    /// # Errors
    /// 400 that names the unknown key.
    pub fn read(uri: &Uri, known: &[&str]) -> Result<Self, Problem> {
        let Query(pairs) = Query::<Vec<(String, String)>>::try_from_uri(uri)
            .map_err(|error| Problem::malformed(format!("the query cannot be read: {error}")))?;
        let mut all: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (key, value) in pairs {
            let (key, value) = crate::http::query::clean(key, value)?;
            if !known.contains(&key.as_str()) {
                let known = known.join(", ");
                return Err(Problem::malformed(format!("unknown query key {key:?}; there are: {known}")));
            }
            all.entry(key).or_default().push(value);
        }
        Ok(Self(all))
    }

    /// The value of a key that stands at most once.
    ///
    /// # Errors
    /// 400 when it stands twice.
    pub fn one(&self, key: &str) -> Result<Option<&str>, Problem> {
        match self.0.get(key).map(Vec::as_slice) {
            None | Some([]) => Ok(None),
            Some([value]) => Ok(Some(value)),
            Some(_) => Err(Problem::malformed(format!("{key} stands more than once in the query"))),
        }
    }

    /// The value of a key that stands at most once, parsed.
    ///
    /// # Errors
    /// 400 when it stands twice or has not the form.
    pub fn parsed<T: FromStr>(&self, key: &str, form: &str) -> Result<Option<T>, Problem> {
        let wrong = |value: &str| Problem::malformed(format!("{key}={value:?} is not {form}"));
        self.one(key)?.map(|value| value.parse().map_err(|_| wrong(value))).transpose()
    }

    /// A position or event id.
    ///
    /// # Errors
    /// 400 when it stands twice or is none.
    pub fn cursor(&self, key: &str) -> Result<Option<Cursor>, Problem> {
        self.one(key)?.filter(|value| !value.is_empty()).map(str::parse).transpose()
    }

    /// `limit`.
    ///
    /// # Errors
    /// 400 when it is none.
    pub fn limit(&self) -> Result<i64, Problem> {
        let limit: Option<i64> = self.parsed("limit", "a number from 1 to 1000")?;
        match limit.unwrap_or(LIMIT_DEFAULT) {
            limit if (1..=LIMIT_MAX).contains(&limit) => Ok(limit),
            limit => Err(Problem::malformed(format!("limit={limit} is not a number from 1 to {LIMIT_MAX}"))),
        }
    }

    /// A repeated filter by domain names, in their canonical form.
    ///
    /// # Errors
    /// 400 when one is no domain name or there are too many.
    pub fn domains(&self, key: &str) -> Result<Option<Vec<String>>, Problem> {
        let Some(values) = self.many(key)? else { return Ok(None) };
        let canonical = |value: &String| {
            DomainName::parse(value)
                .map(|name| name.as_str().to_owned())
                .map_err(|_| Problem::malformed(format!("{key}={value:?} is not a domain name")))
        };
        values.iter().map(canonical).collect::<Result<_, _>>().map(Some)
    }

    /// A repeated filter by the beginnings of event types.
    ///
    /// # Errors
    /// 400 when one cannot begin a type or there are too many.
    pub fn types(&self, key: &str) -> Result<Option<Vec<String>>, Problem> {
        let Some(values) = self.many(key)? else { return Ok(None) };
        let fits = |value: &String| {
            (1..=TYPE_MAX_CHARS).contains(&value.len())
                && value
                    .bytes()
                    .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'.' || b == b'_')
        };
        match values.iter().find(|value| !fits(value)) {
            Some(wrong) => Err(Problem::malformed(format!("{key}={wrong:?} does not begin an event type"))),
            None => Ok(Some(values.to_vec())),
        }
    }

    fn many(&self, key: &str) -> Result<Option<&[String]>, Problem> {
        match self.0.get(key) {
            Some(values) if values.len() > FILTER_MAX_VALUES => Err(Problem::malformed(format!(
                "{key} stands more than {FILTER_MAX_VALUES} times in the query"
            ))),
            other => Ok(other.map(Vec::as_slice)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_ids_have_one_form() {
        for (text, log, position) in [("0", None, 0), ("42", None, 42), ("00ab12cd.7", Some("00ab12cd"), 7)] {
            let cursor: Cursor = text.parse().unwrap();
            assert_eq!((cursor.log.as_deref(), cursor.position), (log, Position::new(position)), "{text}");
        }
        for text in
            ["abc", "-1", "+1", "1e3", "99999999999999999999", "", ".5", "0ab12cd.7", "00AB12CD.7", "1.2"]
        {
            assert_eq!(text.parse::<Cursor>().unwrap_err().status(), 400, "{text}");
        }
    }
}
