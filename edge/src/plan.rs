//! What to do next and what to take, decided from facts alone: no disk, no network, no clock.

use std::collections::{BTreeMap, BTreeSet};

use headwater_edge_wire::artifact::ArtifactBudget;
use headwater_edge_wire::ids::{DomainId, Epoch, Sequence};
use headwater_edge_wire::manifest::LiveDescriptor;

use crate::index::Entry;

/// With more changes than this to catch up with, a snapshot is cheaper than pages.
pub const SNAPSHOT_GAP: u64 = 5_000;
/// How long the control plane may hold a question back.
pub const WAIT_SECONDS: u32 = 25;
/// The same while a cell has not confirmed yet.
pub const WAIT_PENDING_SECONDS: u32 = 1;

/// Where things stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// The highest place that was ever taken.
    pub pinned: (Epoch, Sequence),
    /// Where the index stands.
    pub index: (Epoch, Sequence),
    /// The last change there is, as far as is known.
    pub head: Sequence,
    /// A page could not follow what is here: a gap, or another epoch.
    pub has_gap: bool,
    /// A cell has not confirmed yet, or must be written again.
    pub is_pending: bool,
}

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Fetch everything.
    Snapshot(Why),
    /// Ask for changes, waiting so many seconds for one.
    Poll(u32),
}

/// Why everything is fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// There is nothing yet.
    Empty,
    /// The index is behind what was pinned: it was damaged or put back.
    Behind,
    /// Pages do not follow.
    Gap,
    /// There is too much to catch up with.
    Far,
}

/// Decides the next step.
pub fn next(facts: Facts) -> Step {
    if facts.index < facts.pinned {
        Step::Snapshot(Why::Behind)
    } else if facts.index == (Epoch::ZERO, Sequence::ZERO) {
        Step::Snapshot(Why::Empty)
    } else if facts.has_gap {
        Step::Snapshot(Why::Gap)
    } else if facts.head.get().saturating_sub(facts.index.1.get()) > SNAPSHOT_GAP {
        Step::Snapshot(Why::Far)
    } else {
        Step::Poll(if facts.is_pending { WAIT_PENDING_SECONDS } else { WAIT_SECONDS })
    }
}

/// Why a domain's change is refused. What it had stays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The stable name of the reason.
    pub code: &'static str,
    /// What is wrong, for people.
    pub detail: String,
}

impl Refusal {
    /// A refusal.
    pub fn new(code: &'static str, detail: impl Into<String>) -> Self {
        Self { code, detail: detail.into() }
    }

    /// Whether it means that somebody tries something, or that the control plane lost its memory.
    pub fn is_alarm(&self) -> bool {
        matches!(self.code, "revision_conflict" | "lower_revision" | "bad_signature" | "unknown_key")
    }
}

/// Whether a descriptor may be looked at, before anything is fetched. In a new epoch revisions may begin anew.
///
/// # Errors
/// Why not.
pub fn admit(
    live: &LiveDescriptor,
    held: Option<&Entry>,
    is_new_epoch: bool,
    cells: usize,
    budget: ArtifactBudget,
) -> Result<(), Refusal> {
    if live.size > budget.bytes() as u64 {
        let detail = format!("{} bytes, at most {}", live.size, budget.bytes());
        return Err(Refusal::new("too_large", detail));
    }
    if let Some(cell) = live.cells.iter().find(|cell| usize::from(cell.get()) >= cells) {
        return Err(Refusal::new("unknown_cell", format!("cell {cell} is not configured here")));
    }
    let Some(held) = held.filter(|_| !is_new_epoch) else { return Ok(()) };
    if live.revision < held.revision {
        let detail = format!("revision {} is active here", held.revision);
        return Err(Refusal::new("lower_revision", detail));
    }
    if live.revision == held.revision && live.checksum != held.checksum {
        let detail = format!("this revision is active here with checksum {}", held.checksum);
        return Err(Refusal::new("revision_conflict", detail));
    }
    Ok(())
}

/// The hostnames of a domain before and after a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names {
    /// The domain.
    pub id: DomainId,
    /// What it has.
    pub old: Vec<u64>,
    /// What it would have.
    pub new: Vec<u64>,
}

/// Which changes would give one hostname to two domains, judged on the end of the page. `owner` knows who has a name
/// now. Of two changes that claim one name the later is refused; a refused domain keeps what it had.
pub fn conflicts(changes: &[Names], owner: impl Fn(u64) -> Option<DomainId>) -> BTreeSet<DomainId> {
    let changed: BTreeSet<_> = changes.iter().map(|names| names.id).collect();
    let mut refused = BTreeSet::new();
    loop {
        let mut claims = BTreeMap::new();
        let kept = changes.iter().filter(|names| refused.contains(&names.id));
        for names in kept {
            claims.extend(names.old.iter().map(|name| (*name, names.id)));
        }
        let mut loser = None;
        'all: for names in changes.iter().filter(|names| !refused.contains(&names.id)) {
            for name in &names.new {
                let live = owner(*name).filter(|id| !changed.contains(id));
                let other = live.or_else(|| claims.get(name).copied()).filter(|id| *id != names.id);
                if other.is_some() {
                    loser = Some(names.id);
                    break 'all;
                }
                claims.insert(*name, names.id);
            }
        }
        match loser {
            Some(id) => refused.insert(id),
            None => return refused,
        };
    }
}

#[cfg(test)]
mod tests {
    use headwater_edge_wire::ids::Revision;
    use uuid::Uuid;

    use super::*;

    fn id(n: u128) -> DomainId {
        DomainId::from_uuid(Uuid::from_u128(n))
    }

    #[test]
    fn the_next_step_follows_from_where_things_stand() {
        let at = |epoch: u32, sequence: u32| (Epoch::from(epoch), Sequence::from(sequence));
        let well = Facts {
            pinned: at(1, 10),
            index: at(1, 10),
            head: Sequence::from(10),
            has_gap: false,
            is_pending: false,
        };
        for (facts, step) in [
            (well, Step::Poll(WAIT_SECONDS)),
            (Facts { is_pending: true, ..well }, Step::Poll(WAIT_PENDING_SECONDS)),
            (Facts { index: at(1, 9), ..well }, Step::Snapshot(Why::Behind)),
            (Facts { index: at(0, 99), ..well }, Step::Snapshot(Why::Behind)),
            (Facts { index: at(0, 0), pinned: at(0, 0), ..well }, Step::Snapshot(Why::Empty)),
            (Facts { has_gap: true, ..well }, Step::Snapshot(Why::Gap)),
            (Facts { head: Sequence::from(5_011), ..well }, Step::Snapshot(Why::Far)),
            (Facts { head: Sequence::from(5_010), ..well }, Step::Poll(WAIT_SECONDS)),
        ] {
            assert_eq!(next(facts), step, "{facts:?}");
        }
    }

    #[test]
    fn a_name_never_gets_two_owners() {
        let names = |n, old: &[u64], new: &[u64]| Names { id: id(n), old: old.to_vec(), new: new.to_vec() };
        let owner = |name| match name {
            1 => Some(id(1)),
            2 => Some(id(2)),
            _ => None,
        };
        let all = |changes: &[Names]| conflicts(changes, owner).into_iter().collect::<Vec<_>>();
        // Free names, and a name that its owner keeps.
        assert_eq!(all(&[names(3, &[], &[3]), names(1, &[1], &[1, 4])]), []);
        // A name that somebody else has.
        assert_eq!(all(&[names(3, &[], &[1])]), [id(3)]);
        // Handed over inside one page, in either order.
        assert_eq!(all(&[names(3, &[], &[1]), names(1, &[1], &[])]), []);
        assert_eq!(all(&[names(1, &[1], &[]), names(3, &[], &[1])]), []);
        // Claimed twice: the later loses.
        assert_eq!(all(&[names(3, &[], &[9]), names(4, &[], &[9])]), [id(4)]);
        // A refused domain keeps its name, so who counted on it is refused too.
        assert_eq!(all(&[names(3, &[], &[1]), names(1, &[1], &[2])]), [id(1), id(3)]);
    }

    #[test]
    fn revisions_never_go_back_and_never_change_their_content() {
        use headwater_edge_wire::checksum::Checksum;
        let entry = |revision: u32, sum: &[u8]| Entry::for_tests(Revision::from(revision), Checksum::of(sum));
        let live = |revision: u32, sum: &[u8]| {
            crate::index::for_tests::descriptor(Revision::from(revision), Checksum::of(sum))
        };
        let budget = ArtifactBudget::default();
        for (said, held, is_new_epoch, code) in [
            (live(7, b"a"), entry(6, b"b"), false, None),
            (live(7, b"a"), entry(7, b"a"), false, None),
            (live(7, b"a"), entry(7, b"b"), false, Some("revision_conflict")),
            (live(7, b"a"), entry(8, b"a"), false, Some("lower_revision")),
            (live(7, b"a"), entry(8, b"b"), true, None),
        ] {
            let got = admit(&said, Some(&held), is_new_epoch, 2, budget).err().map(|refusal| refusal.code);
            assert_eq!(got, code);
        }
        assert_eq!(admit(&live(7, b"a"), None, false, 1, budget).unwrap_err().code, "unknown_cell");
        let large = LiveDescriptor { size: budget.bytes() as u64 + 1, ..live(7, b"a") };
        assert_eq!(admit(&large, None, false, 2, budget).unwrap_err().code, "too_large");
    }
}
