//! What on the disk does not hold: found, told, and whole again. A file stands here once for as long as it does not hold,
//! and every damage is told to the control plane at least once, even one that was mended before there was a way to.

use headwater_edge_wire::ids::Revision;
use headwater_edge_wire::protocol::{DamageReport, HEARTBEAT_DAMAGED_MAX};
use headwater_edge_wire::time::Timestamp;
use serde::{Deserialize, Serialize};

/// How many damaged files are remembered; more are counted.
pub const DAMAGE_MAX_COUNT: usize = 100;
/// For how long one that is whole again is shown on the host, in milliseconds.
const SHOWN_MILLIS: i64 = 86_400_000;

/// A file that does not hold, or did not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Damage {
    /// The file, in the state directory.
    pub file: String,
    /// Whose it is, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// Of which revision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<Revision>,
    /// When it was found.
    pub since: Timestamp,
    /// Since when it is whole again.
    pub mended_at: Option<Timestamp>,
    /// Whether the control plane was told.
    pub told: bool,
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} does not hold", self.file)?;
        if let (Some(domain), Some(revision)) = (&self.domain, self.revision) {
            write!(f, " ({domain} revision {revision})")?;
        }
        Ok(())
    }
}

/// All of them, the oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Damages {
    files: Vec<Damage>,
    /// How many did not hold and are not named.
    more: u32,
}

impl Damages {
    /// All that are shown on the host.
    pub fn all(&self) -> &[Damage] {
        &self.files
    }

    /// Those that do not hold now.
    pub fn open(&self) -> impl Iterator<Item = &Damage> {
        self.files.iter().filter(|damage| damage.mended_at.is_none())
    }

    /// A file does not hold. What is known of it already stays.
    pub fn found(&mut self, now: Timestamp, file: &str, domain: Option<(String, Revision)>) {
        if self.open().any(|damage| damage.file == file) {
            return;
        }
        if self.files.len() >= DAMAGE_MAX_COUNT {
            match self.files.iter().position(|damage| damage.mended_at.is_some()) {
                Some(at) => drop(self.files.remove(at)),
                None => {
                    self.more = self.more.saturating_add(1);
                    return;
                }
            }
        }
        let (domain, revision) = domain.unzip();
        let damage =
            Damage { file: file.to_owned(), domain, revision, since: now, mended_at: None, told: false };
        tracing::error!(%damage, "damage on the disk; what is served was read before");
        self.files.push(damage);
    }

    /// Says which of those that did not hold are whole again, and forgets what was so long ago.
    pub fn look_again(&mut self, now: Timestamp, is_whole: impl Fn(&Damage) -> bool) {
        for damage in self.files.iter_mut().filter(|damage| damage.mended_at.is_none()) {
            if is_whole(damage) {
                tracing::info!(file = damage.file, "whole again");
                damage.mended_at = Some(now);
            }
        }
        let is_shown = |damage: &Damage| {
            let is_old = |at: Timestamp| now.as_millis().saturating_sub(at.as_millis()) > SHOWN_MILLIS;
            !(damage.told && damage.mended_at.is_some_and(is_old))
        };
        self.files.retain(is_shown);
        if self.open().next().is_none() {
            self.more = 0;
        }
    }

    /// What a heartbeat tells, and of how many files there are.
    pub fn report(&self) -> (Vec<DamageReport>, u32) {
        let untold = self.files.iter().filter(|damage| damage.mended_at.is_none() || !damage.told);
        let reports = untold.map(|damage| {
            let domain = damage.domain.as_deref().zip(damage.revision);
            DamageReport::new(&damage.file, domain, damage.since, damage.mended_at.is_some())
        });
        let mut reports: Vec<_> = reports.collect();
        let count = u32::try_from(reports.len()).unwrap_or(u32::MAX).saturating_add(self.more);
        reports.truncate(HEARTBEAT_DAMAGED_MAX);
        (reports, count)
    }

    /// A heartbeat with these was taken.
    pub fn told(&mut self, reports: &[DamageReport]) {
        for damage in &mut self.files {
            let is_it = |report: &DamageReport| report.since == damage.since && report.file == damage.file;
            damage.told |= reports.iter().any(is_it);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(1_700_000_000_000 + seconds * 1_000)
    }

    fn files(damages: &Damages) -> Vec<(String, bool)> {
        damages.report().0.into_iter().map(|report| (report.file, report.mended)).collect()
    }

    #[test]
    fn a_damage_is_told_until_it_is_whole_and_at_least_once() {
        let mut damages = Damages::default();
        damages.found(at(1), "a", Some(("d1.example".into(), Revision::from(7))));
        damages.found(at(2), "a", None);
        assert_eq!(damages.report().0.len(), 1, "one file stands once");
        assert_eq!(damages.all()[0].to_string(), "a does not hold (d1.example revision 7)");
        damages.told(&damages.report().0.clone());
        assert_eq!(files(&damages), [("a".into(), false)], "told on while it does not hold");
        damages.look_again(at(3), |_| true);
        assert_eq!(files(&damages), []);
        // One that was mended before anybody could be told.
        damages.found(at(4), "b", None);
        damages.look_again(at(5), |_| true);
        assert_eq!(files(&damages), [("b".into(), true)]);
        damages.told(&damages.report().0.clone());
        assert_eq!((files(&damages), damages.all().len()), (vec![], 2), "the host still shows them");
        damages.look_again(at(90_000), |_| true);
        assert_eq!(damages.all(), []);
    }

    #[test]
    fn what_is_not_named_is_counted() {
        let mut damages = Damages::default();
        for n in 0..DAMAGE_MAX_COUNT + 5 {
            damages.found(at(0), &n.to_string(), None);
        }
        let (named, count) = damages.report();
        assert_eq!((named.len(), count, damages.all().len()), (HEARTBEAT_DAMAGED_MAX, 105, DAMAGE_MAX_COUNT));
        damages.look_again(at(1), |damage| damage.file == "0");
        damages.found(at(2), "x", None);
        assert_eq!(damages.all().len(), DAMAGE_MAX_COUNT, "one that is whole makes room");
        damages.look_again(at(3), |_| true);
        damages.told(&damages.report().0.clone());
        assert_eq!(damages.report().1, 80, "the others are told by the next heartbeats");
    }
}
