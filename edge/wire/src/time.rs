//! Time on the wire: UTC, whole milliseconds, RFC 3339 with a `Z`. Nothing here reads a clock; now is an argument.

use std::fmt;
use std::time::Duration;

use chrono::{DateTime, SecondsFormat, Utc};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// An instant, in whole milliseconds since the Unix epoch, between the years 1970 and 9999.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

/// The last millisecond of the year 9999: what comes later has no four-digit year.
const LAST_MILLIS: i64 = 253_402_300_799_999;

impl Timestamp {
    /// The beginning of the Unix epoch.
    pub const EPOCH: Self = Self(0);

    /// An instant by its milliseconds since the Unix epoch; what lies outside the range becomes its nearest end.
    pub const fn from_millis(millis: i64) -> Self {
        Self(if millis < 0 {
            0
        } else if millis > LAST_MILLIS {
            LAST_MILLIS
        } else {
            millis
        })
    }

    /// Milliseconds since the Unix epoch.
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// This instant plus a span, saturating at the end of the range.
    pub fn plus(self, span: Duration) -> Self {
        Self::from_millis(self.0.saturating_add(i64::try_from(span.as_millis()).unwrap_or(i64::MAX)))
    }

    /// Parses RFC 3339.
    pub fn parse(text: &str) -> Option<Self> {
        let at = DateTime::parse_from_rfc3339(text).ok()?.timestamp_millis();
        (0..=LAST_MILLIS).contains(&at).then_some(Self(at))
    }
}

impl From<DateTime<Utc>> for Timestamp {
    fn from(at: DateTime<Utc>) -> Self {
        Self::from_millis(at.timestamp_millis())
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = DateTime::<Utc>::from_timestamp_millis(self.0).unwrap_or_default();
        f.write_str(&at.to_rfc3339_opts(SecondsFormat::Millis, true))
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| de::Error::custom("not an RFC 3339 time between 1970 and 9999"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_milliseconds_and_z_to_the_ends_of_the_range() {
        for millis in [0, 1_700_000_000_005, LAST_MILLIS] {
            let at = Timestamp::from_millis(millis);
            assert_eq!(Timestamp::parse(&at.to_string()), Some(at));
        }
        assert_eq!(Timestamp::from_millis(1_700_000_000_005).to_string(), "2023-11-14T22:13:20.005Z");
        assert_eq!(Timestamp::from_millis(i64::MAX).plus(Duration::MAX).as_millis(), LAST_MILLIS);
        assert_eq!(Timestamp::parse("1969-12-31T23:59:59Z"), None);
    }
}
