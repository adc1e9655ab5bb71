//! What a worker has in hand. What must hold: at most one batch writes a domain at a time, and at most one outcome of it
//! is on its way into the log, the older one first.
//!
//! A domain that is written and asked about may be claimed again for what is newer, so a name server that is slow to
//! answer, or very busy, does not hold changes up. The question that was asked first keeps its turn and may be answered by
//! what is newer; behind it waits the one about the newest state, and those in between are never asked. So every turn tells
//! of something, however fast changes come. Once what is newest was seen, nobody has to see anything older.

use headwater_events::ids::{DomainId, Revision};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

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
    /// Who asks whether a revision, or what is newer, is answered.
    first: Option<(u64, Revision)>,
    /// Who asks about the newest one after that.
    next: Option<(u64, Revision)>,
    /// Whose outcome is on its way into the log.
    settled: Option<u64>,
}

impl Held {
    fn is_free(&self) -> bool {
        self.writing.is_none() && self.first.is_none() && self.next.is_none() && self.settled.is_none()
    }

    /// The revision above which it may be claimed again; none while it may not be claimed at all.
    fn above(&self) -> Option<Revision> {
        let (_, revision) = self.next.or(self.first)?;
        (self.writing.is_none() && self.settled.is_none()).then_some(revision)
    }

    fn is_asked_by(&self, number: u64) -> bool {
        [self.first, self.next].into_iter().flatten().any(|(of, _)| of == number)
    }

    fn asks(&mut self, number: u64, revision: Revision) {
        let place = if self.first.is_none() { &mut self.first } else { &mut self.next };
        *place = Some((number, revision));
    }

    /// A question was answered; whether that tells anything that is to be recorded.
    fn answered(&mut self, number: u64, is_right: bool) -> bool {
        let newest = self.next.or(self.first).is_some_and(|(of, _)| of == number);
        if newest {
            (self.first, self.next) = (None, None);
        } else {
            // What is wrong with an older state, the answer about the newest tells.
            self.first = self.next.take();
        }
        newest || is_right
    }

    fn let_go(&mut self, number: u64) {
        self.writing = self.writing.filter(|of| *of != number);
        self.next = self.next.filter(|(of, _)| *of != number);
        self.first = self.first.filter(|(of, _)| *of != number).or_else(|| self.next.take());
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
        let state = self.state();
        let mut in_hand = InHand::default();
        for (domain, held) in &state.held {
            match held.above() {
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

    /// A revision of a domain is active and asked about from now on; whoever was to ask after the first lets it be.
    pub(super) fn asks(&self, domain: DomainId, revision: Revision) {
        let Some((holds, number)) = &self.holds else { return };
        let mut state = holds.state();
        if let Some(held) = state.held.get_mut(&domain).filter(|held| held.writing == Some(*number)) {
            held.writing = None;
            held.asks(*number, revision);
        }
        drop(state);
        holds.freed.notify_one();
    }

    /// Says of a domain whether this batch still has to see it.
    pub(super) fn asking(&self) -> impl Fn(DomainId) -> bool + Clone + Send + Sync + use<> {
        let holds = self.holds.clone();
        move |domain| {
            holds.as_ref().is_none_or(|(holds, number)| {
                holds.state().held.get(&domain).is_some_and(|held| held.is_asked_by(*number))
            })
        }
    }

    /// What was seen of a domain (whether it `is_right`) is about to be recorded: it stays in hand until it is. False
    /// where there is nothing to record, since something newer was seen or will be. Waits while an older outcome is being
    /// recorded.
    pub(super) async fn settle(&self, domain: DomainId, is_right: bool) -> bool {
        let Some((holds, number)) = &self.holds else { return true };
        loop {
            let released = holds.settled.notified();
            tokio::pin!(released);
            // From here on no release is missed.
            released.as_mut().enable();
            {
                let mut state = holds.state();
                let asked = |held: &&mut Held| held.is_asked_by(*number);
                let Some(held) = state.held.get_mut(&domain).filter(asked) else { return false };
                if held.settled.is_none() {
                    let tells = held.answered(*number, is_right);
                    held.settled = tells.then_some(*number);
                    return tells;
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
    const THREE: Revision = Revision::new(3);

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
        assert_eq!(holds.in_hand(), held(&[a, b], &[]));
        second.asks(a, TWO);
        assert_eq!(holds.in_hand(), held(&[b], &[(a, TWO)]));
        // However fast they come: the first keeps its turn, and those between it and the newest are not asked about.
        let third = holds.take(&[a]);
        third.asks(a, THREE);
        assert!(first.asking()(a) && !second.asking()(a) && third.asking()(a));
        assert!(!second.settle(a, true).await);
        assert!(first.settle(a, true).await, "what was seen is at least this");
        assert_eq!(holds.in_hand(), held(&[a, b], &[]), "until it is recorded");
        first.release([a]);
        assert_eq!(holds.in_hand(), held(&[b], &[(a, THREE)]));
        assert!(third.settle(a, true).await);
        third.release([a]);
        assert_eq!(holds.in_hand(), held(&[b], &[]));
    }

    #[tokio::test]
    async fn what_is_wrong_counts_if_nothing_newer_is_asked_about() {
        let [a, _] = ids();
        let holds = Arc::new(Holds::default());
        let (first, second) = (holds.take(&[a]), holds.take(&[a]));
        second.asks(a, TWO);
        assert!(second.settle(a, false).await);
        second.release([a]);
        let second = holds.take(&[a]);
        second.asks(a, ONE);
        drop(first);
        let third = holds.take(&[a]);
        third.asks(a, TWO);
        assert!(!second.settle(a, false).await, "the third will tell");
        assert!(third.asking()(a));
        drop(second);
        assert!(third.settle(a, false).await);
        third.release([a]);
        assert_eq!(holds.in_hand(), held(&[], &[]));
        // The newest was seen first: the older one has nothing to tell any more.
        let (older, newer) = (holds.take(&[a]), holds.take(&[a]));
        newer.asks(a, ONE);
        drop(older);
        let newest = holds.take(&[a]);
        newest.asks(a, TWO);
        assert!(newest.settle(a, true).await && !newer.asking()(a));
        assert!(!newer.settle(a, true).await);
    }

    #[tokio::test]
    async fn an_outcome_waits_for_the_older_one() {
        let [a, _] = ids();
        let holds = Arc::new(Holds::default());
        let first = holds.take(&[a]);
        first.asks(a, ONE);
        let second = holds.take(&[a]);
        assert!(first.settle(a, true).await, "it was seen before the second was written");
        second.asks(a, TWO);
        {
            let mut waits = std::pin::pin!(second.settle(a, true));
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
