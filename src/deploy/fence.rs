//! Pure: whether a write of a zone is let through, given what the target's ledger says under lock.
//!
//! What must hold: a stale worker writes nothing; a state that this log does not know is never written over unless an
//! operator let go of it; a serial never goes back (RFC 1982); only a zone whose rows are known to be those of the
//! base or newer is written in part.

use headwater_events::dns::DomainName;
use headwater_events::ids::{DomainId, LogId, Revision};
use headwater_projections::powerdns::SetHash;

/// What the target says of a zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ledger {
    /// The zone.
    pub name: String,
    /// The domain that wrote it.
    pub domain: DomainId,
    /// The log that wrote it.
    pub log: LogId,
    /// The revision that is there; 0 before the first.
    pub revision: Revision,
    /// The platform's generation that is there.
    pub generation: u32,
    /// The SOA serial that is there.
    pub serial: u32,
    /// The checksum of the rows.
    pub checksum: Option<SetHash>,
    /// The end of the domain's hash chain at the revision.
    pub chain: Vec<u8>,
    /// Whether the zone is there.
    pub present: bool,
    /// An operator let go of it.
    pub released: bool,
    /// The zone's id in PowerDNS's table.
    pub zone_id: Option<i32>,
}

/// What a worker wants to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Intent {
    /// The domain.
    pub domain: DomainId,
    /// Its name.
    pub name: DomainName,
    /// The revision it writes.
    pub revision: Revision,
    /// The generation it writes.
    pub generation: u32,
    /// The serial it writes.
    pub serial: u32,
    /// How it writes.
    pub how: How,
}

/// How a zone is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// The owners that changed since this revision.
    Since(Revision),
    /// The whole zone, where it is not current.
    Whole,
    /// The whole zone, even where the ledger says that it is current.
    Rebuild,
    /// It is taken off.
    Remove,
}

/// What may be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Judgement {
    /// Write what is intended.
    Write,
    /// It is there already.
    Current,
    /// There is nothing to take off, or it is another domain's by now.
    NothingToRemove,
    /// The owners alone do not make it whole: render all of it.
    NeedsWhole,
    /// Something newer of this log is there.
    Stale,
    /// Something that this log does not know is there.
    Ahead(String),
}

/// Whether `a` comes before `b` in serial arithmetic (RFC 1982).
pub fn serial_before(a: u32, b: u32) -> bool {
    a != b && b.wrapping_sub(a) < 1 << 31
}

/// Judges. `known` says whether this log has the ledger's (domain, revision) with the same end of the chain.
pub fn judge(ledger: Option<&Ledger>, intent: &Intent, known: bool) -> Judgement {
    if intent.how == How::Remove {
        return judge_removal(ledger, intent, known);
    }
    let Some(there) = ledger else {
        return Judgement::Ahead(format!(
            "the DNS cluster holds a zone {} that Headwater did not write: discard it, or take it off there",
            intent.name
        ));
    };
    let whole = matches!(intent.how, How::Whole | How::Rebuild);
    let write_whole = || if whole { Judgement::Write } else { Judgement::NeedsWhole };
    if there.released || there.revision == Revision::ZERO {
        return write_whole();
    }
    if !known {
        return ahead(there);
    }
    if there.domain != intent.domain {
        // Serials of a name go up from one domain to the next.
        let later = serial_before(there.serial, intent.serial);
        return if later { write_whole() } else { Judgement::Stale };
    }
    if there.revision > intent.revision || there.generation > intent.generation {
        return Judgement::Stale;
    }
    if serial_before(intent.serial, there.serial) {
        return ahead(there);
    }
    let same = there.present && (there.revision, there.generation) == (intent.revision, intent.generation);
    match intent.how {
        How::Rebuild => Judgement::Write,
        _ if same && there.zone_id.is_some() => Judgement::Current,
        How::Since(base) if there.present && there.zone_id.is_some() && base <= there.revision => {
            Judgement::Write
        }
        _ => write_whole(),
    }
}

fn judge_removal(ledger: Option<&Ledger>, intent: &Intent, known: bool) -> Judgement {
    match ledger {
        None => Judgement::NothingToRemove,
        Some(there) if there.released || there.revision == Revision::ZERO => Judgement::Write,
        Some(there) if there.domain != intent.domain && known => Judgement::NothingToRemove,
        Some(there) if !known => ahead(there),
        Some(there) if there.revision > intent.revision => Judgement::Stale,
        Some(there) if there.revision == intent.revision && !there.present => Judgement::Current,
        Some(_) => Judgement::Write,
    }
}

fn ahead(there: &Ledger) -> Judgement {
    Judgement::Ahead(format!(
        "the DNS cluster holds revision {} (serial {}) of log {}, which this log does not know: adopt it to continue \
         above it, or discard it to write over it",
        there.revision,
        there.serial,
        there.log.short()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn ledger(revision: i64, serial: u32) -> Ledger {
        Ledger {
            name: "example.com".into(),
            domain: DomainId::from_uuid(Uuid::from_u128(1)),
            log: LogId::from_uuid(Uuid::from_u128(9)),
            revision: Revision::new(revision),
            generation: 0,
            serial,
            checksum: None,
            chain: vec![1],
            present: revision > 0,
            released: false,
            zone_id: (revision > 0).then_some(1),
        }
    }

    fn intent(revision: i64, how: How) -> Intent {
        Intent {
            domain: DomainId::from_uuid(Uuid::from_u128(1)),
            name: DomainName::parse("example.com").unwrap(),
            revision: Revision::new(revision),
            generation: 0,
            serial: u32::try_from(revision).unwrap(),
            how,
        }
    }

    #[test]
    fn serials_go_round() {
        for (a, b, before) in
            [(1, 2, true), (2, 1, false), (1, 1, false), (u32::MAX, 0, true), (0, u32::MAX, false)]
        {
            assert_eq!(serial_before(a, b), before, "{a} {b}");
        }
    }

    #[test]
    fn the_table() {
        use How::{Rebuild, Remove, Since, Whole};
        use Judgement::{Current, NeedsWhole, NothingToRemove, Stale, Write};
        let since = |revision| Since(Revision::new(revision));
        for (there, revision, how, expected) in [
            (0, 1, Whole, Write),
            (0, 1, since(1), NeedsWhole),
            (3, 5, since(3), Write),
            (4, 5, since(3), Write),
            (2, 5, since(3), NeedsWhole),
            (5, 5, since(3), Current),
            (5, 5, Rebuild, Write),
            (6, 5, since(3), Stale),
            (6, 5, Whole, Stale),
            (6, 5, Remove, Stale),
            (4, 5, Remove, Write),
            (0, 5, Remove, Write),
        ] {
            let ledger = ledger(there, u32::try_from(there).unwrap());
            assert_eq!(
                judge(Some(&ledger), &intent(revision, how), true),
                expected,
                "{there} {revision} {how:?}"
            );
        }
        assert_eq!(judge(None, &intent(5, Remove), false), NothingToRemove);
    }

    #[test]
    fn what_is_not_known_stays() {
        let ahead = |judgement| matches!(judgement, Judgement::Ahead(_));
        for how in [How::Whole, How::Rebuild, How::Remove, How::Since(Revision::new(1))] {
            assert!(ahead(judge(Some(&ledger(3, 3)), &intent(5, how), false)), "{how:?}");
        }
        assert!(ahead(judge(None, &intent(5, How::Whole), false)));
        assert!(
            ahead(judge(Some(&ledger(3, 300)), &intent(5, How::Whole), true)),
            "a serial that would go back"
        );
        let released = Ledger { released: true, ..ledger(9, 300) };
        assert_eq!(judge(Some(&released), &intent(5, How::Whole), false), Judgement::Write);
    }

    #[test]
    fn a_name_goes_to_the_domain_with_the_later_serial() {
        let other = Ledger { domain: DomainId::from_uuid(Uuid::from_u128(2)), ..ledger(3, 3) };
        assert_eq!(judge(Some(&other), &intent(5, How::Whole), true), Judgement::Write);
        assert_eq!(judge(Some(&other), &intent(2, How::Whole), true), Judgement::Stale);
        assert_eq!(judge(Some(&other), &intent(5, How::Remove), true), Judgement::NothingToRemove);
    }
}
