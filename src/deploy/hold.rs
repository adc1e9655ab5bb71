//! What a worker has in hand. What must hold: at most one batch writes a domain at a time, and at most one outcome of it
//! is on its way into the log, the older one first.
//!
//! A domain that is written and asked about may be claimed again for what is newer: the newer state does not wait until
//! the older one was seen, and once it is written too, nobody has to see the older one any more. So a name server that
//! is slow to answer, or very busy, does not hold changes up. But a domain is never left unseen for longer than
//! [`UNSEEN_MAX`] by that: then it is seen before anything newer of it is claimed.

use headwater_events::ids::{DomainId, Revision};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// How long what is active of a domain may go unseen because newer states overtake it.
const UNSEEN_MAX: Duration = Duration::from_secs(1);

/// The domains that batches of one worker have in hand.
#[derive(Debug, Default)]
pub(super) struct Holds {
    state: Mutex<State>,
    /// Wakes the worker when something may be claimed again.
    pub(super) freed: Notify,
    /// Wakes whoever waits to settle.
    settled: Notify,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    held: BTreeMap<DomainId, Held>,
    writing: BTreeSet<u64>,
}

/// One domain in hand; batches by their numbers.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Held {
    /// Who claimed it and has not written it yet.
    writing: Option<u64>,
    /// Who asks whether a revision is answered.
    asked: Option<(u64, Revision)>,
    /// Whose outcome is on its way into the log.
    settled: Option<u64>,
    /// Since when something is active that nobody has seen.
    unseen: Option<Instant>,
}

impl Held {
    fn is_free(&self) -> bool {
        self.writing.is_none() && self.asked.is_none() && self.settled.is_none()
    }

    /// The revision above which it may be claimed again; none while it may not be claimed at all.
    fn above(&self, now: Instant) -> Option<Revision> {
        let (_, revision) = self.asked?;
        let seen_soon = self.unseen.is_some_and(|since| now.duration_since(since) >= UNSEEN_MAX);
        (self.writing.is_none() && self.settled.is_none() && !seen_soon).then_some(revision)
    }

    fn let_go(&mut self, number: u64) {
        self.writing = self.writing.filter(|of| *of != number);
        self.asked = self.asked.filter(|(of, _)| *of != number);
        self.settled = self.settled.filter(|of| *of != number);
    }
}

/// What may not be claimed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct InHand {
    /// These domains.
    pub(super) domains: BTreeSet<DomainId>,
    /// These only as far as they are wanted at this revision: it is being asked about.
    pub(super) asked: Vec<(DomainId, Revision)>,
}

impl Holds {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes domains for a batch. None of them may be in hand, but for being asked about.
    pub(super) fn take(self: &Arc<Self>, domains: &[DomainId]) -> Hold {
        let mut state = self.state();
        let number = state.next;
        state.next += 1;
        for domain in domains {
            state.held.entry(*domain).or_default().writing = Some(number);
        }
        state.writing.insert(number);
        Hold { holds: Some((Arc::clone(self), number)) }
    }

    /// What is in hand.
    pub(super) fn in_hand(&self) -> InHand {
        self.in_hand_at(Instant::now())
    }

    fn in_hand_at(&self, now: Instant) -> InHand {
        let state = self.state();
        let mut in_hand = InHand::default();
        for (domain, held) in &state.held {
            match held.above(now) {
                Some(revision) => in_hand.asked.push((*domain, revision)),
                None => {
                    in_hand.domains.insert(*domain);
                }
            }
        }
        in_hand
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

    /// A revision of a domain is active and asked about from now on; whoever asked about an older one lets it be.
    pub(super) fn asks(&self, domain: DomainId, revision: Revision) {
        let Some((holds, number)) = &self.holds else { return };
        let mut state = holds.state();
        if let Some(held) = state.held.get_mut(&domain).filter(|held| held.writing == Some(*number)) {
            held.writing = None;
            held.asked = Some((*number, revision));
            held.unseen.get_or_insert_with(Instant::now);
        }
        drop(state);
        holds.freed.notify_one();
    }

    /// Says of a domain whether this batch still has to see it.
    pub(super) fn asking(&self) -> impl Fn(DomainId) -> bool + Clone + Send + Sync + use<> {
        let holds = self.holds.clone();
        move |domain| {
            holds.as_ref().is_none_or(|(holds, number)| {
                let of = holds.state().held.get(&domain).and_then(|held| held.asked);
                of.is_some_and(|(of, _)| of == *number)
            })
        }
    }

    /// What was seen of a domain is about to be recorded: it stays in hand until it is. False where a newer state has
    /// overtaken it; then there is nothing to record. Waits while an older outcome is being recorded.
    pub(super) async fn settle(&self, domain: DomainId) -> bool {
        let Some((holds, number)) = &self.holds else { return true };
        loop {
            let released = holds.settled.notified();
            tokio::pin!(released);
            // From here on no release is missed.
            released.as_mut().enable();
            {
                let mut state = holds.state();
                let asked = |held: &&mut Held| held.asked.is_some_and(|(of, _)| of == *number);
                let Some(held) = state.held.get_mut(&domain).filter(asked) else { return false };
                if held.settled.is_none() {
                    held.asked = None;
                    held.settled = Some(*number);
                    held.unseen = None;
                    return true;
                }
            }
            released.await;
        }
    }

    /// Lets go of domains whose outcomes are recorded.
    pub(super) fn release(&self, domains: impl IntoIterator<Item = DomainId>) {
        if let Some((holds, number)) = &self.holds {
            let mut state = holds.state();
            for domain in domains {
                // It may be in the hand of a later batch by now.
                if let Some(held) = state.held.get_mut(&domain) {
                    held.let_go(*number);
                    if held.is_free() {
                        state.held.remove(&domain);
                    }
                }
            }
            drop(state);
            holds.settled.notify_waiters();
            holds.freed.notify_one();
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Some((holds, number)) = &self.holds {
            let mut state = holds.state();
            state.held.retain(|_, held| {
                held.let_go(*number);
                !held.is_free()
            });
            state.writing.remove(number);
            drop(state);
            holds.settled.notify_waiters();
            holds.freed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    const ONE: Revision = Revision::new(1);
    const TWO: Revision = Revision::new(2);

    fn ids() -> [DomainId; 2] {
        [1, 2].map(|n| DomainId::from_uuid(Uuid::from_u128(n)))
    }

    fn held(domains: &[DomainId], asked: &[(DomainId, Revision)]) -> InHand {
        InHand { domains: domains.iter().copied().collect(), asked: asked.to_vec() }
    }

    #[test]
    fn a_domain_is_in_one_hand_and_is_let_go_by_that_one_alone() {
        let [a, b] = ids();
        let holds = Arc::new(Holds::default());
        let first = holds.take(&[a, b]);
        assert_eq!((holds.in_hand(), holds.writing()), (held(&[a, b], &[]), 1));
        first.written();
        first.release([a]);
        assert_eq!((holds.in_hand(), holds.writing()), (held(&[b], &[]), 0));
        // The next change of a domain is in hand while the rest of its former batch still goes on.
        let second = holds.take(&[a]);
        first.release([a]);
        assert_eq!(holds.in_hand(), held(&[a, b], &[]));
        drop(first);
        assert_eq!((holds.in_hand(), holds.writing()), (held(&[a], &[]), 1));
        drop(second);
        assert_eq!((holds.in_hand(), holds.writing()), (held(&[], &[]), 0));
    }

    #[tokio::test]
    async fn a_newer_state_does_not_wait_until_the_older_one_is_seen() {
        let [a, b] = ids();
        let holds = Arc::new(Holds::default());
        let first = holds.take(&[a, b]);
        first.asks(a, ONE);
        assert_eq!(holds.in_hand(), held(&[b], &[(a, ONE)]), "what is newer of it may be claimed");
        let second = holds.take(&[a]);
        assert!(first.asking()(a), "it is not written yet");
        assert_eq!(holds.in_hand(), held(&[a, b], &[]));
        second.asks(a, TWO);
        assert!(!first.asking()(a) && second.asking()(a));
        assert!(!first.settle(a).await, "overtaken: nothing is recorded");
        // It goes unseen for long by now: the second is seen before a third is claimed.
        assert_eq!(holds.in_hand(), held(&[b], &[(a, TWO)]));
        assert_eq!(holds.in_hand_at(Instant::now() + UNSEEN_MAX), held(&[a, b], &[]));
        assert!(second.settle(a).await);
        assert_eq!(holds.in_hand(), held(&[a, b], &[]), "until it is recorded");
        second.release([a]);
        assert_eq!(holds.in_hand(), held(&[b], &[]));
    }

    #[tokio::test]
    async fn an_outcome_waits_for_the_older_one() {
        let [a, _] = ids();
        let holds = Arc::new(Holds::default());
        let first = holds.take(&[a]);
        first.asks(a, ONE);
        let second = holds.take(&[a]);
        assert!(first.settle(a).await, "it was seen before the second was written");
        second.asks(a, TWO);
        {
            let mut waits = std::pin::pin!(second.settle(a));
            assert!(futures_util::poll!(waits.as_mut()).is_pending());
            first.release([a]);
            assert!(waits.await);
        }
        // What a batch leaves behind when it breaks off keeps nobody waiting.
        let third = holds.take(&[a]);
        drop(second);
        assert_eq!(holds.in_hand(), held(&[a], &[]));
        drop(third);
        assert_eq!(holds.in_hand(), held(&[], &[]));
    }
}
