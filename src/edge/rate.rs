//! How often one address may register and one identity may ask: buckets that are filled evenly, in the memory of this
//! process.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Buckets that are remembered, at most; those that are full again go first.
const BUCKETS_MAX_COUNT: usize = 100_000;

/// Buckets of one kind.
pub(super) struct Rate<K> {
    quota: f64,
    window: Duration,
    buckets: Mutex<HashMap<K, (f64, Instant)>>,
}

impl<K: Hash + Eq> Rate<K> {
    pub(super) fn new(quota: u32, window: Duration) -> Self {
        Self { quota: f64::from(quota), window, buckets: Mutex::default() }
    }

    /// Takes one out of a bucket; else says when there is one again.
    pub(super) fn take(&self, key: K, now: Instant) -> Result<(), Duration> {
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.len() >= BUCKETS_MAX_COUNT {
            buckets.retain(|_, (_, at)| now.saturating_duration_since(*at) < self.window);
        }
        let per_second = self.quota / self.window.as_secs_f64();
        let (left, at) = buckets.entry(key).or_insert((self.quota, now));
        let since = now.saturating_duration_since(*at).as_secs_f64();
        *left = (*left + since * per_second).min(self.quota);
        *at = now;
        if *left < 1.0 {
            let wait = ((1.0 - *left) / per_second).ceil();
            return Err(Duration::try_from_secs_f64(wait).unwrap_or(self.window));
        }
        *left -= 1.0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_empties_and_fills_evenly() {
        let rate = Rate::new(10, Duration::from_secs(3_600));
        let begun = Instant::now();
        assert!((0..10).all(|_| rate.take("a", begun).is_ok()));
        assert_eq!(rate.take("a", begun), Err(Duration::from_secs(360)));
        assert!(rate.take("b", begun).is_ok());
        assert!(rate.take("a", begun + Duration::from_secs(361)).is_ok());
        assert!(rate.take("a", begun + Duration::from_secs(362)).is_err());
    }
}
