//! What tells that two hosts use one identity. Pure: one heartbeat after the other goes in.
//!
//! What must hold: a host that starts anew, or moves to another address once, is none; two that speak in turn are
//! noticed within a few heartbeats. Nothing is refused for it: it is an alarm, and serving goes on.

use headwater_events::edge::CloneSign;
use headwater_events::time::Timestamp;
use serde::{Deserialize, Serialize};

/// How long a counter or an address counts as alive after its last heartbeat.
pub const ALIVE_MILLIS: i64 = 90_000;
/// How far a counter may run ahead between two heartbeats that arrived.
const AHEAD_MAX: u64 = 8;
/// How often an address must come back while another one is alive.
const RETURNS_MIN: u8 = 2;

/// A counter of heartbeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Counter {
    last: u64,
    at: Timestamp,
}

/// An address that heartbeats come from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Source {
    address: String,
    at: Timestamp,
}

/// What is remembered between heartbeats.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watch {
    counter: Option<Counter>,
    other_counter: Option<Counter>,
    source: Option<Source>,
    other_source: Option<Source>,
    #[serde(default)]
    returns: u8,
}

impl Watch {
    /// Takes a heartbeat in; says what tells of a clone.
    pub fn observe(&mut self, sequence: u64, source: &str, now: Timestamp) -> Option<CloneSign> {
        let counters = self.counters(sequence, now);
        let sources = self.sources(source, now);
        if counters {
            Some(CloneSign::Counters)
        } else if sources {
            Some(CloneSign::Sources)
        } else {
            None
        }
    }

    /// Whether a counter that another one took the place of goes on.
    fn counters(&mut self, sequence: u64, now: Timestamp) -> bool {
        let goes_on = |counter: Option<Counter>| {
            counter.is_some_and(|counter| {
                let ahead = sequence.saturating_sub(counter.last);
                is_alive(counter.at, now) && (1..=AHEAD_MAX).contains(&ahead)
            })
        };
        let next = Some(Counter { last: sequence, at: now });
        if self.counter.is_none() || goes_on(self.counter) {
            self.counter = next;
            return false;
        }
        let is_other = goes_on(self.other_counter);
        self.other_counter = std::mem::replace(&mut self.counter, next);
        is_other
    }

    /// Whether an address comes back, more than once, while the other one is alive.
    fn sources(&mut self, address: &str, now: Timestamp) -> bool {
        let is_same =
            |source: &Option<Source>| source.as_ref().is_some_and(|source| source.address == address);
        let next = Some(Source { address: address.to_owned(), at: now });
        if self.source.is_none() || is_same(&self.source) {
            self.source = next;
            return false;
        }
        let is_alive_now =
            |source: &Option<Source>| source.as_ref().is_some_and(|source| is_alive(source.at, now));
        let returns =
            is_same(&self.other_source) && is_alive_now(&self.other_source) && is_alive_now(&self.source);
        self.other_source = std::mem::replace(&mut self.source, next);
        self.returns = if returns { self.returns.saturating_add(1) } else { 0 };
        self.returns >= RETURNS_MIN
    }
}

fn is_alive(at: Timestamp, now: Timestamp) -> bool {
    now.millis_since(at) <= ALIVE_MILLIS
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What each heartbeat says, 15 s apart.
    fn told(beats: &[(u64, &str)]) -> Vec<Option<CloneSign>> {
        let mut watch = Watch::default();
        let at = |n: usize| Timestamp::from_millis(i64::try_from(n).unwrap() * 15_000);
        beats
            .iter()
            .enumerate()
            .map(|(n, (sequence, source))| watch.observe(*sequence, source, at(n)))
            .collect()
    }

    fn is_quiet(beats: &[(u64, &str)]) -> bool {
        told(beats).iter().all(Option::is_none)
    }

    #[test]
    fn one_host_is_no_clone() {
        assert!(is_quiet(&[(1, "a"), (2, "a"), (3, "a"), (5, "a"), (8, "a")]), "some got lost");
        assert!(is_quiet(&[(100, "a"), (101, "a"), (1, "a"), (2, "a"), (3, "a"), (4, "a")]), "a new start");
        assert!(is_quiet(&[(1, "a"), (1, "a"), (1, "a"), (1, "a")]), "it dies at once, again and again");
        assert!(is_quiet(&[(1, "a"), (2, "b"), (3, "b"), (4, "b")]), "it moved");
        assert!(is_quiet(&[(1, "a"), (2, "b"), (3, "a"), (4, "a"), (5, "a")]), "it moved there and back");
    }

    #[test]
    fn two_counters_side_by_side_are_two_hosts() {
        let told = told(&[(100, "a"), (101, "a"), (3, "a"), (102, "a"), (4, "a")]);
        assert_eq!(told, [None, None, None, Some(CloneSign::Counters), Some(CloneSign::Counters)]);
    }

    #[test]
    fn two_addresses_in_turn_are_two_hosts() {
        let told = told(&[(1, "a"), (2, "b"), (3, "a"), (4, "b"), (5, "a")]);
        assert_eq!(told, [None, None, None, Some(CloneSign::Sources), Some(CloneSign::Sources)]);
    }

    #[test]
    fn what_was_long_ago_tells_nothing() {
        let mut watch = Watch::default();
        let hour = |n: i64| Timestamp::from_millis(n * 3_600_000);
        for (n, (sequence, source)) in [(9, "a"), (1, "b"), (10, "a"), (2, "b"), (11, "a")].iter().enumerate()
        {
            assert_eq!(watch.observe(*sequence, source, hour(i64::try_from(n).unwrap())), None);
        }
    }
}
