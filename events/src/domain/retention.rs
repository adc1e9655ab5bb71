//! Which revisions of a domain can be gone back to: those that are retained and validated. The others stay readable in
//! the history for ever.
//!
//! Retained: it was the newest at some time within the window, or is among so many newest, or is active on a target,
//! or was rolled back to before. Validated: a target has verified it, or a later one up to the next change: one between
//! which and it no revision changed what a target serves. While a domain waits for its verification nothing serves it,
//! so there is nothing to verify, and every revision of it counts as validated.

use crate::dns::DomainName;
use crate::ids::Revision;
use crate::reject::Reject;
use crate::time::Timestamp;
use std::collections::BTreeSet;
use std::time::Duration;

/// Events of domains that leave everything as it is that a rollback restores: at most the serial, whether it is served at
/// all, or what no rollback brings back is another. Whatever is not named here changes it.
pub const NEUTRAL_TYPES: [&str; 14] = [
    "domain.created",
    "domain.updated",
    "domain.deleted",
    "domain.restored",
    "domain.activated",
    "domain.disabled",
    "domain.enabled",
    "domain.expired",
    "domain.rolled_back",
    "domain.undone",
    "purge.requested",
    "hostname.withdrawn",
    "certificate.replaced",
    "certificate.deleted",
];

/// What is retained of every domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// For how long after it was the newest.
    pub window: Duration,
    /// So many newest ones.
    pub newest: i64,
}

/// One revision, as the log tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Milestone {
    /// Its number.
    pub revision: Revision,
    /// When it came to be.
    pub at: Timestamp,
    /// Whether it changed what a target serves.
    pub changes: bool,
}

/// Whether a revision can be gone back to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Standing {
    /// Whether it is retained.
    pub retained: bool,
    /// Whether it is validated.
    pub validated: bool,
    /// Where it is not: the nearest ones before and after it that are both.
    pub nearest: Vec<Revision>,
}

/// What is known of a domain's revisions as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RevisionFacts {
    /// Its newest revision.
    pub head: Revision,
    /// Whether it waits for its verification.
    pub pending: bool,
    /// Active on a target, or rolled back to.
    pub kept: BTreeSet<Revision>,
    /// Verified by a target.
    pub acknowledged: BTreeSet<Revision>,
    /// The last revision that serves what the last milestone serves.
    pub last_alike: Revision,
}

impl Standing {
    /// Whether it is both.
    pub fn is_restorable(&self) -> bool {
        self.retained && self.validated
    }

    /// Refuses what is not both.
    pub(super) fn permit(&self, domain: &DomainName, to: Revision) -> Result<(), Reject> {
        if self.is_restorable() {
            return Ok(());
        }
        let (code, why) = if self.retained {
            ("not_validated", "was never verified by a target")
        } else {
            ("not_retained", "is not retained any more (it stays readable in the history)")
        };
        let names: Vec<String> = self.nearest.iter().map(ToString::to_string).collect();
        let nearest = if names.is_empty() {
            "no revision of it can be gone back to".to_owned()
        } else {
            format!("the nearest that can be gone back to: {}", names.join(", "))
        };
        let detail = format!("revision {to} of {domain} {why}; {nearest}");
        Err(Reject::NotRestorable { code, detail, nearest: self.nearest.clone() })
    }
}

/// The standing of each of these milestones, which follow one another without a gap, oldest first. `after` is when the
/// revision after the last of them came to be.
pub fn standings(
    milestones: &[Milestone],
    after: Option<Timestamp>,
    known: &RevisionFacts,
    retention: Retention,
    now: Timestamp,
) -> Vec<(Revision, Standing)> {
    let mut found = Vec::with_capacity(milestones.len());
    let (mut last_alike, mut superseded_at) = (known.last_alike, after);
    for milestone in milestones.iter().rev() {
        let revision = milestone.revision;
        // What was the newest until a moment ago is what people want back, however old it is.
        let in_window = superseded_at.is_none_or(|until| until.plus(retention.window) > now);
        let among_newest = revision.get() > known.head.get() - retention.newest;
        let retained = in_window || among_newest || known.kept.contains(&revision);
        let verified = known.acknowledged.range(revision..).next().is_some_and(|seen| *seen <= last_alike);
        let validated = known.pending || verified;
        found.push((revision, Standing { retained, validated, nearest: Vec::new() }));
        superseded_at = Some(milestone.at);
        if milestone.changes {
            last_alike = Revision::new(revision.get() - 1);
        }
    }
    found.reverse();
    found
}
