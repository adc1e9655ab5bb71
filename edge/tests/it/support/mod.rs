//! What the tests share.

pub mod answer;
pub mod control;
pub mod edge;
pub mod https;
pub mod pages;

use std::time::{Duration, Instant};

/// Waits until something holds, and fails by its name when it does not in time.
pub fn until(what: &str, within: Duration, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + within;
    while !holds() {
        assert!(Instant::now() < end, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
