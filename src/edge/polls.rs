//! How many long polls wait for a change: told as a metric, and to whoever wants to know that one does.

use std::sync::Arc;
use tokio::sync::watch;

/// The long polls that wait now.
#[derive(Debug, Clone)]
pub struct Polls(Arc<watch::Sender<u32>>);

impl Default for Polls {
    fn default() -> Self {
        Self(Arc::new(watch::channel(0).0))
    }
}

/// One of them, until this is dropped.
pub(super) struct Waiting<'a>(&'a Polls);

impl Polls {
    /// How many there are; wakes when that changes.
    pub fn subscribe(&self) -> watch::Receiver<u32> {
        self.0.subscribe()
    }

    /// One begins to wait.
    pub(super) fn wait(&self) -> Waiting<'_> {
        self.count(|waiting| waiting.saturating_add(1));
        Waiting(self)
    }

    fn count(&self, next: impl FnOnce(u32) -> u32) {
        self.0.send_modify(|waiting| *waiting = next(*waiting));
        metrics::gauge!("cdn_edge_polls_waiting").set(f64::from(*self.0.borrow()));
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.count(|waiting| waiting.saturating_sub(1));
    }
}
