//! What is asked of both servers for a zone. Pure. What must hold: every RRset that the zone has is asked for, and for
//! each way in which a name can be absent there is a question whose answer shows it.

use headwater_events::dns::{DomainName, OwnerName, RrType};
use std::collections::{BTreeMap, BTreeSet};

/// Types that are asked for where a name has others: the first one that it lacks.
const ABSENT_TYPES: [RrType; 4] = [RrType::TXT, RrType::A, RrType::MX, RrType::SRV];

/// The names of a zone by their keys, each with its types.
pub type Names = BTreeMap<String, (OwnerName, BTreeSet<RrType>)>;

/// Why a question is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum About {
    /// An RRset that is there.
    Rrset,
    /// A type that an existing name does not have.
    AbsentType,
    /// A name that nothing is at and something is below (RFC 8020; RFC 4592, 2.2.2).
    Empty,
    /// A name that is not there.
    AbsentName,
    /// A name that a wildcard answers for.
    Wildcard,
    /// A name below a cut or a DNAME, and the DS of a cut.
    Below,
}

/// One question.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Question {
    /// The absolute name, without the final dot.
    pub(super) name: String,
    pub(super) rrtype: RrType,
    pub(super) about: About,
}

/// The questions for a zone, in the order of its names. `probe` is a label that the zone does not have.
pub(super) fn questions<'z>(
    zone: &'z DomainName,
    names: &'z Names,
    probe: &'z str,
) -> impl Iterator<Item = Question> + 'z {
    let own =
        names.iter().flat_map(move |(key, (owner, types))| of_name(zone, names, key, owner, types, probe));
    own.chain(empty(names).into_iter().filter_map(move |key| {
        let owner = OwnerName::from_key(&key).ok()?;
        Some(Question { name: owner.absolute(zone), rrtype: RrType::A, about: About::Empty })
    }))
}

/// A label that no name of the zone begins with, from eight octets.
pub(super) fn probe(names: &Names, seed: u64) -> String {
    let taken = |label: &str| {
        names.values().any(|(owner, _)| owner.labels().any(|one| one.eq_ignore_ascii_case(label)))
    };
    let labels = (0..).map(|turn: u64| format!("hw-{:016x}", seed.wrapping_add(turn)));
    // There are more labels than names.
    labels.into_iter().find(|label| !taken(label)).unwrap_or_default()
}

fn of_name(
    zone: &DomainName,
    names: &Names,
    key: &str,
    owner: &OwnerName,
    types: &BTreeSet<RrType>,
    probe: &str,
) -> Vec<Question> {
    let name = owner.absolute(zone);
    let ask = |name: &str, rrtype, about| Question { name: name.to_owned(), rrtype, about };
    // What the platform puts at the apex is its own, as the zone's old one was its own.
    let is_platforms = |rrtype: RrType| owner.is_apex() && matches!(rrtype, RrType::SOA | RrType::NS);
    let mut asked: Vec<_> = types
        .iter()
        .filter(|rrtype| !is_platforms(**rrtype))
        .map(|rrtype| ask(&name, *rrtype, About::Rrset))
        .collect();
    let absent = ABSENT_TYPES.into_iter().find(|rrtype| !types.contains(rrtype));
    asked.extend(absent.map(|rrtype| ask(&name, rrtype, About::AbsentType)));
    let is_cut = !owner.is_apex() && types.contains(&RrType::NS);
    if is_cut && !types.contains(&RrType::DS) {
        asked.push(ask(&name, RrType::DS, About::Below));
    }
    if is_cut || types.contains(&RrType::DNAME) {
        asked.push(ask(&format!("{probe}.{name}"), RrType::A, About::Below));
    }
    if owner.is_wildcard() {
        let parent = name.strip_prefix("*.").unwrap_or(&name);
        let covered = types.iter().copied().chain(absent);
        asked.extend(covered.map(|rrtype| ask(&format!("{probe}.{parent}"), rrtype, About::Wildcard)));
    } else if owner.is_apex() || has_children(names, key) {
        asked.push(ask(&format!("{probe}.{name}"), RrType::A, About::AbsentName));
    }
    asked
}

fn has_children(names: &Names, key: &str) -> bool {
    let prefix = format!("{key} ");
    names.range(prefix.clone()..).next().is_some_and(|(below, _)| below.starts_with(&prefix))
}

/// The keys of names that are there only because something is below them.
fn empty(names: &Names) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for key in names.keys() {
        let mut key = key.as_str();
        while let Some((parent, _)) = key.rsplit_once(' ') {
            // Above one that was seen, all were.
            if names.contains_key(parent) || !found.insert(parent.to_owned()) {
                break;
            }
            key = parent;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(zone: &DomainName, rows: &[(&str, &[RrType])]) -> Names {
        let entry = |(owner, types): &(&str, &[RrType])| {
            let owner = OwnerName::parse(owner, zone).unwrap();
            (owner.key().as_str().to_owned(), (owner, types.iter().copied().collect()))
        };
        rows.iter().map(entry).collect()
    }

    fn asked(rows: &[(&str, &[RrType])]) -> BTreeSet<String> {
        let zone = DomainName::parse("example.com").unwrap();
        let names = names(&zone, rows);
        questions(&zone, &names, "hw-1")
            .map(|one| format!("{} {} {:?}", one.name, one.rrtype, one.about))
            .collect()
    }

    #[test]
    fn every_rrset_and_every_absence_is_asked_for() {
        let all = asked(&[
            ("@", &[RrType::SOA, RrType::NS, RrType::MX]),
            ("www", &[RrType::A]),
            ("a.b.c", &[RrType::TXT]),
            ("*.w", &[RrType::A]),
            ("sub", &[RrType::NS]),
            ("old", &[RrType::DNAME]),
        ]);
        let expected = [
            "example.com MX Rrset",
            "example.com TXT AbsentType",
            "hw-1.example.com A AbsentName",
            "www.example.com A Rrset",
            "www.example.com TXT AbsentType",
            "a.b.c.example.com TXT Rrset",
            "a.b.c.example.com A AbsentType",
            "b.c.example.com A Empty",
            "c.example.com A Empty",
            "w.example.com A Empty",
            "*.w.example.com A Rrset",
            "*.w.example.com TXT AbsentType",
            "hw-1.w.example.com A Wildcard",
            "hw-1.w.example.com TXT Wildcard",
            "sub.example.com NS Rrset",
            "sub.example.com TXT AbsentType",
            "sub.example.com DS Below",
            "hw-1.sub.example.com A Below",
            "old.example.com DNAME Rrset",
            "old.example.com TXT AbsentType",
            "hw-1.old.example.com A Below",
        ];
        assert_eq!(all, expected.into_iter().map(str::to_owned).collect());
    }

    #[test]
    fn a_probe_is_no_name_of_the_zone() {
        let zone = DomainName::parse("example.com").unwrap();
        let taken =
            names(&zone, &[("hw-0000000000000007", &[RrType::A]), ("x.HW-0000000000000008", &[RrType::A])]);
        assert_eq!(probe(&taken, 7), "hw-0000000000000009");
    }
}
