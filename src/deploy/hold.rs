//! What a worker has in hand. A domain is in at most one batch, and is let go as soon as its outcome is recorded: it
//! does not wait for the slowest of its batch before its next change is claimed.

use headwater_events::ids::DomainId;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// The domains that batches of one worker have in hand.
#[derive(Debug, Default)]
pub(super) struct Holds {
    state: Mutex<State>,
    /// Wakes the worker when something may be claimed again.
    pub(super) freed: Notify,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    held: BTreeMap<DomainId, u64>,
    writing: BTreeSet<u64>,
}

impl Holds {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes domains for a batch. None of them may be in hand.
    pub(super) fn take(self: &Arc<Self>, domains: &[DomainId]) -> Hold {
        let mut state = self.state();
        let number = state.next;
        state.next += 1;
        state.held.extend(domains.iter().map(|domain| (*domain, number)));
        state.writing.insert(number);
        Hold { holds: Some((Arc::clone(self), number)) }
    }

    /// What is in hand.
    pub(super) fn domains(&self) -> BTreeSet<DomainId> {
        self.state().held.keys().copied().collect()
    }

    /// How many batches have not been written yet.
    pub(super) fn writing(&self) -> usize {
        self.state().writing.len()
    }
}

/// What one batch has in hand, until this is dropped.
#[derive(Debug)]
pub(super) struct Hold {
    holds: Option<(Arc<Holds>, u64)>,
}

impl Hold {
    /// For work that no worker waits for.
    pub(super) fn none() -> Self {
        Self { holds: None }
    }

    /// The batch is written: the next may be.
    pub(super) fn written(&self) {
        if let Some((holds, number)) = &self.holds {
            holds.state().writing.remove(number);
            holds.freed.notify_one();
        }
    }

    /// Lets go of domains whose outcomes are recorded.
    pub(super) fn release(&self, domains: impl IntoIterator<Item = DomainId>) {
        if let Some((holds, number)) = &self.holds {
            let mut state = holds.state();
            for domain in domains {
                // It may be in the hand of a later batch by now.
                if state.held.get(&domain) == Some(number) {
                    state.held.remove(&domain);
                }
            }
            drop(state);
            holds.freed.notify_one();
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Some((holds, number)) = &self.holds {
            let mut state = holds.state();
            state.held.retain(|_, of| of != number);
            state.writing.remove(number);
            drop(state);
            holds.freed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[test]
    fn a_domain_is_in_one_hand_and_is_let_go_by_that_one_alone() {
        let [a, b] = [1, 2].map(|n| DomainId::from_uuid(Uuid::from_u128(n)));
        let holds = Arc::new(Holds::default());
        let first = holds.take(&[a, b]);
        assert_eq!((holds.domains(), holds.writing()), ([a, b].into(), 1));
        first.written();
        first.release([a]);
        assert_eq!((holds.domains(), holds.writing()), ([b].into(), 0));
        // The next change of a domain is in hand while the rest of its former batch still goes on.
        let second = holds.take(&[a]);
        first.release([a]);
        assert_eq!(holds.domains(), [a, b].into());
        drop(first);
        assert_eq!((holds.domains(), holds.writing()), ([a].into(), 1));
        drop(second);
        assert_eq!((holds.domains(), holds.writing()), (BTreeSet::new(), 0));
    }
}
