//! What a change of RRsets does to the size of its domain, and the guards that look at that.

use super::MASS_DELETE_FLOOR_RRSETS;
use super::rrsets::Touched;
use super::state::DomainView;
use crate::reject::Guard;

/// What the change does to the size of the domain.
pub(super) struct Sums {
    pub(super) records_after: i64,
    rrsets_after: i64,
    pub(super) deleted: i64,
}

impl Sums {
    pub(super) fn of(view: &DomainView, touched: &Touched) -> Self {
        let count = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        let mut sums =
            Self { records_after: view.state.records, rrsets_after: view.state.rrsets, deleted: 0 };
        for ((key, rrtype), (_, body, _)) in touched {
            let before = view.get(key, *rrtype);
            sums.records_after += body.as_ref().map_or(0, |b| count(b.records.len()))
                - before.map_or(0, |b| count(b.body.records.len()));
            sums.rrsets_after += i64::from(body.is_some()) - i64::from(before.is_some());
            sums.deleted += i64::from(before.is_some() && body.is_none());
        }
        sums
    }

    pub(super) fn guards(&self, view: &DomainView) -> Vec<Guard> {
        let mut guards = Vec::new();
        if view.state.status.is_served() && view.state.rrsets > 0 && self.rrsets_after == 0 {
            guards.push(Guard::EmptiesZone);
        }
        if view.state.rrsets >= MASS_DELETE_FLOOR_RRSETS && self.deleted * 2 > view.state.rrsets {
            guards.push(Guard::MassDelete);
        }
        guards
    }
}
