//! When to try again: full jitter between nothing and a bound that doubles, so that a thousand edges do not return at
//! the same moment.

use std::time::Duration;

/// The bound of the first wait.
pub const FIRST_MILLIS: u64 = 500;
/// The highest bound.
pub const LAST_MILLIS: u64 = 60_000;

/// How often something failed in a row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Backoff {
    failures: u32,
}

impl Backoff {
    /// It worked.
    pub fn reset(&mut self) {
        self.failures = 0;
    }

    /// How often it failed in a row.
    pub fn failures(self) -> u32 {
        self.failures
    }

    /// The bound of the next wait.
    pub fn bound(self) -> Duration {
        let doubled = FIRST_MILLIS.checked_shl(self.failures.min(32)).unwrap_or(LAST_MILLIS);
        Duration::from_millis(doubled.min(LAST_MILLIS))
    }

    /// It failed: how long to wait. `random` is spread evenly over all numbers.
    pub fn fail(&mut self, random: u64) -> Duration {
        let bound = u64::try_from(self.bound().as_millis()).unwrap_or(LAST_MILLIS);
        self.failures = self.failures.saturating_add(1);
        Duration::from_millis(random % (bound + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_spread_from_nothing_to_a_bound_that_doubles_and_ends() {
        let mut backoff = Backoff::default();
        let bounds: Vec<_> = (0..10)
            .map(|_| {
                let bound = backoff.bound().as_millis();
                assert_eq!(backoff.fail(0).as_millis(), 0);
                bound
            })
            .collect();
        assert_eq!(bounds, [500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000, 60_000]);
        assert_eq!(backoff.fail(60_000).as_millis(), 60_000);
        assert!(backoff.fail(u64::MAX).as_millis() <= 60_000);
        backoff.reset();
        assert_eq!(backoff.bound().as_millis(), 500);
    }
}
