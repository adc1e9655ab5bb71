//! Room for zones in memory: many small ones at once, of large ones one at a time.

use std::sync::{Arc, LazyLock};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Records from which on a zone is large.
pub const LARGE_RECORDS: usize = 20_000;
/// Octets of text from which on it is large.
pub const LARGE_BYTES: u64 = 2 << 20;

static LARGE: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(1)));

/// The room that one zone takes.
#[derive(Debug, Default)]
pub struct Room(Option<OwnedSemaphorePermit>);

impl Room {
    /// Waits until there is room for so much, if that is much.
    pub async fn records(&mut self, count: usize) {
        if count >= LARGE_RECORDS {
            self.large().await;
        }
    }

    /// The same of octets of text.
    pub async fn bytes(&mut self, count: u64) {
        if count >= LARGE_BYTES {
            self.large().await;
        }
    }

    async fn large(&mut self) {
        if self.0.is_none() {
            // It is never closed.
            self.0 = LARGE.clone().acquire_owned().await.ok();
        }
    }
}
