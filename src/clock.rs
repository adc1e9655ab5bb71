//! The clock, passed in wherever time is needed, so that tests can turn it.
//! Leases and the keeping of receipts go by the database's clock, not by this one.

use headwater_events::time::Timestamp;
use std::fmt::Debug;

/// Tells the time.
pub trait Clock: Debug + Send + Sync {
    /// Now.
    fn now(&self) -> Timestamp;
}

/// The machine's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::from(chrono::Utc::now())
    }
}
