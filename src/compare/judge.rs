//! Whether two answers say the same of a zone. Pure. What must hold: only what the zone itself decides counts. Where an
//! alias leads out of the zone, what a server adds about other zones is its own matter; so are the SOA and the NS set at
//! the apex, which every platform puts in its own words (RFC 1034, 4.3.2).

use crate::deploy::dns::{Answer, Record};
use domain::base::Name;
use domain::base::iana::Rcode;
use headwater_events::dns::{Rdata, RrType};
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// What an answer says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Said {
    /// None where it is about the end of an alias outside of the zone.
    rcode: Option<Rcode>,
    authoritative: bool,
    /// Records of the zone, as text.
    answer: BTreeSet<String>,
    /// The NS set of a cut.
    referral: BTreeSet<String>,
    /// Addresses of its name servers.
    glue: BTreeSet<String>,
}

/// Reads an answer, as far as the zone decides it.
pub(super) fn said(answer: &Answer, zone: &Name<Vec<u8>>, with_ttl: bool) -> Said {
    // The TTL of an RRset is one: the lowest of those that it was given (RFC 2181, 5.2).
    let ttl = |records: &[Record], record: &Record| {
        let of_set = records.iter().filter(|one| one.owner == record.owner && one.rrtype == record.rrtype);
        with_ttl.then(|| of_set.map(|one| one.ttl).min().unwrap_or(record.ttl))
    };
    let inside = |record: &&Record| record.owner.ends_with(zone);
    let referral: Vec<&Record> = answer
        .authority
        .iter()
        .filter(|record| record.rrtype == RrType::NS && record.owner != *zone)
        .filter(|_| answer.answer.is_empty())
        .collect();
    let glue = answer.additional.iter().filter(|record| {
        !referral.is_empty()
            && matches!(record.rrtype, RrType::A | RrType::AAAA)
            && record.owner.ends_with(zone)
    });
    Said {
        rcode: (!leaves(answer, zone)).then_some(answer.rcode),
        authoritative: answer.authoritative && referral.is_empty(),
        answer: answer.answer.iter().filter(inside).map(|one| shown(one, ttl(&answer.answer, one))).collect(),
        referral: referral.iter().map(|one| shown(one, ttl(&answer.authority, one))).collect(),
        glue: glue.map(|one| shown(one, ttl(&answer.additional, one))).collect(),
    }
}

/// Whether an alias of the zone ends outside of it.
fn leaves(answer: &Answer, zone: &Name<Vec<u8>>) -> bool {
    let target = |record: &Record| Name::from_octets(record.rdata.clone()).ok();
    let aliases = answer.answer.iter().filter(|record| record.rrtype == RrType::CNAME);
    aliases.filter_map(target).any(|target| !target.ends_with(zone))
}

fn shown(record: &Record, ttl: Option<u32>) -> String {
    let data = Rdata::from_wire(record.rrtype, &record.rdata);
    let data = data.map_or_else(|_| hex::encode(&record.rdata), |rdata| rdata.as_text().to_owned());
    let owner = record.owner.to_string().to_ascii_lowercase();
    let owner = owner.trim_end_matches('.');
    match ttl {
        Some(ttl) => format!("{owner}. {ttl} {} {data}", record.rrtype),
        None => format!("{owner}. {} {data}", record.rrtype),
    }
}

impl Said {
    /// For people: what differs from another one, or all of it.
    pub(super) fn told(&self) -> String {
        let mut text = self.rcode.map_or_else(|| "an alias".to_owned(), |rcode| rcode.to_string());
        if !self.authoritative && self.referral.is_empty() {
            text.push_str(", without authority");
        }
        for (what, records) in [("", &self.answer), ("referral ", &self.referral), ("glue ", &self.glue)] {
            for record in records {
                // A String takes everything.
                let _ = write!(text, "; {what}{record}");
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::str::FromStr;

    fn name(text: &str) -> Name<Vec<u8>> {
        Name::from_str(text).unwrap()
    }

    fn record(owner: &str, ttl: u32, rrtype: RrType, data: &str) -> Record {
        let zone = headwater_events::dns::DomainName::parse("example.com").unwrap();
        let rdata = Rdata::parse(rrtype, data, &zone).unwrap().wire().to_vec();
        Record { owner: name(owner), of_question: true, ttl, rrtype, rdata }
    }

    fn answer(rcode: Rcode, answer: Vec<Record>, authority: Vec<Record>, additional: Vec<Record>) -> Answer {
        Answer { rcode, authoritative: authority.is_empty(), answer, authority, additional }
    }

    fn same(one: &Answer, other: &Answer) -> bool {
        let zone = name("example.com");
        said(one, &zone, true) == said(other, &zone, true)
    }

    #[test]
    fn order_and_case_do_not_matter_and_everything_else_does() {
        let a = |owner: &str, ttl, data: &str| record(owner, ttl, RrType::A, data);
        let is = |records: Vec<Record>| answer(Rcode::NOERROR, records, vec![], vec![]);
        let both = is(vec![a("www.example.com", 300, "192.0.2.1"), a("www.example.com", 300, "192.0.2.2")]);
        let turned = is(vec![a("WWW.example.com", 300, "192.0.2.2"), a("www.example.com", 300, "192.0.2.1")]);
        assert!(same(&both, &turned));
        assert!(!same(&both, &is(vec![a("www.example.com", 300, "192.0.2.1")])));
        let other_ttl =
            is(vec![a("www.example.com", 60, "192.0.2.1"), a("www.example.com", 60, "192.0.2.2")]);
        assert!(!same(&both, &other_ttl));
        let mixed = is(vec![a("www.example.com", 300, "192.0.2.1"), a("www.example.com", 900, "192.0.2.2")]);
        assert!(same(&both, &mixed));
        let zone = name("example.com");
        assert_eq!(said(&both, &zone, false), said(&other_ttl, &zone, false));
        assert!(!same(&is(vec![]), &answer(Rcode::NXDOMAIN, vec![], vec![], vec![])));
        assert!(!same(&is(vec![]), &Answer { authoritative: false, ..is(vec![]) }));
    }

    #[test]
    fn a_referral_is_its_name_servers_and_its_glue() {
        let ns = |data: &str| record("sub.example.com", 300, RrType::NS, data);
        let glue = |data: &str| record("ns.sub.example.com", 300, RrType::A, data);
        let refers = |authority, additional| answer(Rcode::NOERROR, vec![], authority, additional);
        let one = refers(vec![ns("ns.sub.example.com.")], vec![glue("192.0.2.1")]);
        assert!(same(&one, &one.clone()));
        assert!(!same(&one, &refers(vec![ns("ns2.sub.example.com.")], vec![glue("192.0.2.1")])));
        assert!(!same(&one, &refers(vec![ns("ns.sub.example.com.")], vec![glue("192.0.2.2")])));
        assert!(!same(&one, &refers(vec![ns("ns.sub.example.com.")], vec![])));
        assert!(
            said(&one, &name("example.com"), true)
                .told()
                .contains("glue ns.sub.example.com. 300 A 192.0.2.1")
        );
    }

    #[test]
    fn what_lies_outside_of_the_zone_is_not_compared() {
        let alias = record("www.example.com", 300, RrType::CNAME, "www.example.net.");
        let alone = answer(Rcode::NOERROR, vec![alias.clone()], vec![], vec![]);
        let led = record("www.example.net", 60, RrType::A, "192.0.2.1");
        assert!(same(&alone, &answer(Rcode::NOERROR, vec![alias.clone(), led], vec![], vec![])));
        assert!(same(&alone, &answer(Rcode::NXDOMAIN, vec![alias], vec![], vec![])));
        let elsewhere = record("www.example.com", 300, RrType::CNAME, "www.example.org.");
        assert!(!same(&alone, &answer(Rcode::NOERROR, vec![elsewhere], vec![], vec![])));
        // The platform's own NS set beside a positive answer.
        let a = record("www.example.com", 300, RrType::A, "192.0.2.1");
        let ns = record("example.com", 300, RrType::NS, "ns1.example.org.");
        let bare = answer(Rcode::NOERROR, vec![a.clone()], vec![], vec![]);
        let beside = Answer { authoritative: true, ..answer(Rcode::NOERROR, vec![a], vec![ns], vec![]) };
        assert!(same(&bare, &beside));
    }
}
