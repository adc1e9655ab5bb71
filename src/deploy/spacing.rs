//! How claims of one cluster keep apart under load, so that what comes in between shares a batch. What must hold: a
//! change that comes alone is claimed at once, and what is put off is looked at again when the pause is over, whether or
//! not anything else wakes the worker.

use std::time::Duration;
use tokio::time::Instant;

/// How soon after a claim the next one is made.
const CLAIM_SPACING: Duration = Duration::from_millis(25);

/// When the next claim may be made.
#[derive(Debug, Default)]
pub(super) struct Spacing {
    /// Before when nothing is claimed.
    until: Option<Instant>,
    /// Whether a claim was put off that nothing has replaced yet.
    put_off: bool,
}

impl Spacing {
    /// A look begins: what was put off before is decided again by it.
    pub(super) fn look(&mut self) {
        self.put_off = false;
    }

    /// Whether to claim now; the pause to the next claim begins then. Otherwise the claim is put off.
    pub(super) fn claims(&mut self, now: Instant) -> bool {
        self.put_off = self.until.is_some_and(|until| now < until);
        if !self.put_off {
            self.until = Some(now + CLAIM_SPACING);
        }
        !self.put_off
    }

    /// A batch was full: the next one waits for nobody.
    pub(super) fn full(&mut self) {
        self.until = None;
    }

    /// When to look again if nothing wakes the worker: at its poll, or earlier for what was put off. That may have
    /// passed by now; then it is at once.
    pub(super) fn next_look(&self, poll: Instant) -> Instant {
        self.until.filter(|_| self.put_off).map_or(poll, |until| until.min(poll))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_that_comes_alone_is_claimed_at_once_and_the_next_after_the_pause() {
        let (mut spacing, start) = (Spacing::default(), Instant::now());
        let poll = start + Duration::from_secs(1);
        assert!(spacing.claims(start));
        assert_eq!(spacing.next_look(poll), poll, "nothing is put off");
        assert!(!spacing.claims(start + Duration::from_millis(24)));
        // However late the look is planned: what was put off does not wait for the poll.
        assert_eq!(spacing.next_look(poll), start + CLAIM_SPACING);
        spacing.look();
        assert!(spacing.claims(start + CLAIM_SPACING));
        assert!(!spacing.claims(start + CLAIM_SPACING));
        spacing.look();
        assert_eq!(spacing.next_look(poll), poll, "a look that came to no claim wakes nobody over and over");
        spacing.full();
        assert!(spacing.claims(start + CLAIM_SPACING), "a full batch waits for nobody");
    }
}
