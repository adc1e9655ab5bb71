//! How loops that follow the log pace themselves: when they look again, and how long they stay away from what failed.

use crate::app::App;
use headwater_events::ids::Position;
use std::time::Duration;
use tokio::sync::watch;

/// How soon after one look the next may follow.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// The pause before a try that comes after so many: the first one doubles with each, up to the longest.
pub fn doubled(first: Duration, most: Duration, tries: u32) -> Duration {
    first.saturating_mul(1_u32.checked_shl(tries).unwrap_or(u32::MAX)).min(most)
}

/// Waits until it is worth looking again: soon when there is more to do, else when the log moves or at the next poll.
/// False when the process stops.
pub async fn next_look(app: &App, head: &mut watch::Receiver<Position>, more: bool) -> bool {
    tokio::select! {
        () = app.stop.cancelled() => return false,
        () = tokio::time::sleep(LOOK_INTERVAL) => {}
    }
    if more {
        return true;
    }
    tokio::select! {
        () = app.stop.cancelled() => false,
        moved = head.changed() => moved.is_ok(),
        () = tokio::time::sleep(app.config.deploy.poll) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_doubles_up_to_its_bound() {
        let (first, most) = (Duration::from_secs(1), Duration::from_secs(60));
        let pauses = [0, 1, 2, 5, 6, 31, 32, u32::MAX].map(|tries| doubled(first, most, tries).as_secs());
        assert_eq!(pauses, [1, 2, 4, 32, 60, 60, 60, 60]);
    }
}
