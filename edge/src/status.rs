//! What the agent says of itself, in a file that anybody on the host may be shown: never a secret, always the reason.

use std::collections::VecDeque;

use headwater_edge_wire::ids::{CellNumber, EdgeId, Epoch, Generation, Sequence};
use headwater_edge_wire::sign::KeyId;
use headwater_edge_wire::time::Timestamp;
use serde::{Deserialize, Serialize};

use crate::damage::Damages;

/// How many alarms are remembered.
pub const ALARMS_MAX: usize = 50;

/// The status.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The edge, once it is enrolled.
    pub edge: Option<EdgeId>,
    /// The version of the program.
    pub version: String,
    /// When this was written.
    pub at: Timestamp,
    /// The process.
    pub pid: u32,
    /// The last thing that went wrong with the control plane; nothing while all is well.
    pub trouble: Option<Trouble>,
    /// Until when what is served counts as fresh: later it is served on, and an alarm is raised.
    pub fresh_until: Option<Timestamp>,
    /// When the identity ends.
    pub identity_until: Option<Timestamp>,
    /// The incarnation of the numbering.
    pub epoch: Epoch,
    /// The last change that was taken.
    pub sequence: Sequence,
    /// How many domains are to be served.
    pub domains: usize,
    /// How many refusals stand.
    pub refused: usize,
    /// The cells.
    pub cells: Vec<CellStatus>,
    /// What a person should look at, the newest last.
    pub alarms: VecDeque<Alarm>,
    /// What on the disk does not hold, or did not.
    #[serde(default)]
    pub damaged: Damages,
    /// The newest change that was ever taken: it is never gone back from.
    #[serde(skip)]
    pub holds: (Epoch, Sequence),
    /// The keys that are pinned.
    #[serde(default)]
    pub keys: Vec<KeyId>,
}

/// Something that went wrong and is tried again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trouble {
    /// The stable name of the reason.
    pub code: String,
    /// The reason, for people.
    pub detail: String,
    /// Since when.
    pub since: Timestamp,
}

/// Something that a person should look at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alarm {
    /// When it was raised.
    pub at: Timestamp,
    /// The stable name of the reason.
    pub code: String,
    /// The reason, for people.
    pub detail: String,
}

/// How a cell is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CellStatus {
    /// The cell.
    pub cell: CellNumber,
    /// The process of its nginx.
    pub pid: Option<i32>,
    /// Whether every worker serves the generation.
    pub ready: bool,
    /// Whether its listeners accept connections.
    pub http_ready: bool,
    /// The same by TLS.
    pub https_ready: bool,
    /// The generation that it should serve.
    pub generation: Option<Generation>,
    /// Its epoch.
    pub epoch: Epoch,
    /// The last change that every worker serves.
    pub sequence: Sequence,
    /// The last change that is written for it.
    #[serde(default)]
    pub loaded: Sequence,
    /// How many domains it holds.
    pub domains: u32,
    /// What is wrong.
    pub detail: Option<String>,
}

impl Status {
    /// The status of an agent that has just begun.
    pub fn new(now: Timestamp) -> Self {
        Self {
            edge: None,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            at: now,
            pid: std::process::id(),
            trouble: None,
            fresh_until: None,
            identity_until: None,
            epoch: Epoch::ZERO,
            sequence: Sequence::ZERO,
            domains: 0,
            refused: 0,
            cells: Vec::new(),
            alarms: VecDeque::new(),
            damaged: Damages::default(),
            holds: Default::default(),
            keys: Vec::new(),
        }
    }

    /// Raises an alarm, once for each reason in a row.
    pub fn alarm(&mut self, now: Timestamp, code: &str, detail: &str) {
        if self.alarms.iter().any(|alarm| alarm.code == code && alarm.detail == detail) {
            return;
        }
        tracing::error!(code, detail, "alarm");
        if self.alarms.len() == ALARMS_MAX {
            self.alarms.pop_front();
        }
        self.alarms.push_back(Alarm { at: now, code: code.to_owned(), detail: detail.to_owned() });
    }

    /// Something failed; the first time of one reason counts.
    pub fn failed(&mut self, now: Timestamp, code: &str, detail: &str) {
        let since = match &self.trouble {
            Some(trouble) if trouble.code == code => trouble.since,
            _ => now,
        };
        self.trouble = Some(Trouble { code: code.to_owned(), detail: detail.to_owned(), since });
    }

    /// Whether what is served is older than it was promised to be.
    pub fn is_stale(&self, now: Timestamp) -> bool {
        self.fresh_until.is_some_and(|until| until < now)
    }
}

/// When a certificate is renewed: at two thirds of its life, a little earlier or later by a random number.
pub fn renew_at(received: Timestamp, not_after: Timestamp, random: u64) -> Timestamp {
    let life = not_after.as_millis().saturating_sub(received.as_millis()).max(0);
    let spread = (life / 30).max(1);
    let jitter = i64::try_from(random % u64::try_from(spread).unwrap_or(1)).unwrap_or(0);
    Timestamp::from_millis(received.as_millis().saturating_add(life / 3 * 2).saturating_sub(jitter))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);

    #[test]
    fn trouble_keeps_its_beginning_and_alarms_have_a_bound() {
        let mut status = Status::new(NOW);
        let later = Timestamp::from_millis(NOW.as_millis() + 1_000);
        status.failed(NOW, "unreachable", "one");
        status.failed(later, "unreachable", "two");
        assert_eq!(status.trouble.as_ref().map(|trouble| trouble.since), Some(NOW));
        status.failed(later, "refused", "three");
        assert_eq!(status.trouble.as_ref().map(|trouble| trouble.since), Some(later));
        for n in 0..60 {
            status.alarm(NOW, "x", &n.to_string());
            status.alarm(NOW, "x", &n.to_string());
        }
        assert_eq!(status.alarms.len(), ALARMS_MAX);
        assert_eq!(status.alarms.back().map(|alarm| alarm.detail.as_str()), Some("59"));
    }

    #[test]
    fn certificates_are_renewed_at_two_thirds_of_their_life() {
        let life = 7 * 86_400_000_i64;
        let end = Timestamp::from_millis(NOW.as_millis() + life);
        for random in [0, 1, 12_345, u64::MAX] {
            let at = renew_at(NOW, end, random).as_millis() - NOW.as_millis();
            assert!((life * 19 / 30..=life * 2 / 3).contains(&at), "{at}");
        }
        assert!(renew_at(NOW, NOW, 5) <= NOW);
    }
}
