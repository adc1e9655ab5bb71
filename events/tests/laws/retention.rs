//! Which revisions can be gone back to: given these revisions and this much retention, then those.

use std::time::Duration;

use headwater_events::domain::{Milestone, NEUTRAL_TYPES, Retention, RevisionFacts, Standing, standings};
use headwater_events::event::Event;
use headwater_events::ids::{Revision, StreamKind};
use headwater_events::time::Timestamp;

const HOUR: i64 = 3_600_000;
const DAY: Duration = Duration::from_secs(86_400);

/// Revisions 1, 2, …, made at these hours; `!` marks those that change nothing that a target serves.
fn milestones(hours: &[(i64, &str)]) -> Vec<Milestone> {
    let row = |(index, (hour, mark)): (usize, &(i64, &str))| Milestone {
        revision: Revision::new(i64::try_from(index).unwrap() + 1),
        at: Timestamp::from_millis(hour * HOUR),
        changes: *mark != "!",
    };
    hours.iter().enumerate().map(row).collect()
}

fn facts(head: i64) -> RevisionFacts {
    let head = Revision::new(head);
    RevisionFacts { head, last_alike: head, ..RevisionFacts::default() }
}

fn those(found: &[(Revision, Standing)], which: fn(&Standing) -> bool) -> Vec<i64> {
    found.iter().filter(|(_, standing)| which(standing)).map(|(revision, _)| revision.get()).collect()
}

fn revisions(numbers: &[i64]) -> std::collections::BTreeSet<Revision> {
    numbers.iter().copied().map(Revision::new).collect()
}

#[test]
fn retained_is_what_was_the_newest_in_the_window_or_is_among_the_newest_or_kept() {
    // Old ones, then one that stood from hour 5 to hour 100, and two of now.
    let made = milestones(&[(1, ""), (2, ""), (3, ""), (4, ""), (5, ""), (100, ""), (101, "")]);
    let retained = |known: &RevisionFacts, newest, now| {
        let retention = Retention { window: DAY, newest };
        let now = Timestamp::from_millis(now * HOUR);
        those(&standings(&made, None, known, retention, now), |standing| standing.retained)
    };
    assert_eq!(retained(&facts(7), 2, 102), [5, 6, 7], "5 was the newest two hours ago");
    assert_eq!(retained(&facts(7), 2, 124), [6, 7], "a day after the end of 5 it is gone, to the hour");
    assert_eq!(retained(&facts(7), 2, 500), [6, 7]);
    assert_eq!(retained(&facts(7), 4, 500), [4, 5, 6, 7]);
    let kept = RevisionFacts { kept: revisions(&[1, 3]), ..facts(7) };
    assert_eq!(retained(&kept, 2, 500), [1, 3, 6, 7], "active on a target, or rolled back to");
}

#[test]
fn validated_is_what_a_target_has_verified_up_to_the_next_change() {
    let made = milestones(&[(1, "!"), (2, ""), (3, "!"), (4, ""), (5, ""), (6, "!")]);
    let retention = Retention { window: DAY, newest: 2 };
    let validated = |known: &RevisionFacts| {
        let now = Timestamp::from_millis(7 * HOUR);
        those(&standings(&made, None, known, retention, now), |standing| standing.validated)
    };
    let seen = |numbers: &[i64]| RevisionFacts { acknowledged: revisions(numbers), ..facts(6) };
    assert_eq!(validated(&seen(&[])), [] as [i64; 0]);
    assert_eq!(validated(&seen(&[2])), [2], "a later one is not verified by an earlier one");
    assert_eq!(validated(&seen(&[3])), [2, 3], "3 serves what 2 serves");
    assert_eq!(validated(&seen(&[5])), [5], "4 was overtaken: nobody has seen it");
    assert_eq!(validated(&seen(&[2, 4, 6])), [2, 4, 5, 6]);
    let pending = RevisionFacts { pending: true, ..facts(6) };
    assert_eq!(validated(&pending), [1, 2, 3, 4, 5, 6]);
}

/// The same, page by page, as it is at once.
#[test]
fn a_page_is_judged_like_the_whole() {
    let made = milestones(&[(1, ""), (30, "!"), (50, ""), (70, "!"), (80, "!"), (99, "")]);
    let retention = Retention { window: DAY, newest: 2 };
    let now = Timestamp::from_millis(100 * HOUR);
    let whole = RevisionFacts { acknowledged: revisions(&[2, 5]), ..facts(6) };
    let at_once = standings(&made, None, &whole, retention, now);
    for cut in 1..made.len() {
        let next_change = made[cut..].iter().find(|one| one.changes).unwrap().revision;
        let page = RevisionFacts { last_alike: Revision::new(next_change.get() - 1), ..whole.clone() };
        let found = standings(&made[..cut], Some(made[cut].at), &page, retention, now);
        assert_eq!(found, at_once[..cut], "cut after {cut}");
    }
}

#[test]
fn every_type_that_is_called_neutral_is_one_of_domains() {
    for name in NEUTRAL_TYPES {
        let doc = Event::REFERENCE.iter().find(|doc| doc.name == name).unwrap();
        assert_eq!(doc.stream, StreamKind::Domain, "{name}");
    }
    let served = Event::REFERENCE.iter().filter(|doc| doc.stream == StreamKind::Domain);
    let served: Vec<&str> = served.map(|doc| doc.name).filter(|name| !NEUTRAL_TYPES.contains(name)).collect();
    assert_eq!(
        served,
        ["rrset.replaced", "rrset.deleted", "hostname.replaced", "hostname.deleted", "cache.changed"]
    );
}
