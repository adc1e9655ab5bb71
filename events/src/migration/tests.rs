//! What of a zone is carried, what is told of the rest, and three sides of a zone that is followed.

use super::*;
use crate::dns::{DomainName, OwnerName, RrSet, RrSetBody, RrType};
use crate::domain::RrsetChange;

fn zone(records: &[(&str, &str, &str)]) -> SourceZone {
    let record = |(owner, rrtype, content): &(&str, &str, &str)| SourceRecord {
        owner: Data::Text((*owner).to_owned()),
        rrtype: Some((*rrtype).to_owned()).filter(|rrtype| !rrtype.is_empty()),
        ttl: Some(300),
        data: Data::Text((*content).to_owned()),
        disabled: false,
    };
    SourceZone {
        name: DomainName::parse("example.com").unwrap(),
        records: records.iter().map(record).collect(),
        comments: Vec::new(),
        beside: Vec::new(),
        warnings: Vec::new(),
        signed: false,
    }
}

fn carried(zone: SourceZone) -> Carried {
    carry(zone, 1_000).unwrap_or_else(|refused| panic!("{refused:?}"))
}

/// `owner type ttl records # comment` of each RRset.
fn told(carried: &Carried) -> Vec<String> {
    let line = |rrset: &RrSet| {
        let body = rrset.body();
        let comment = body.comment.map(|comment| format!(" # {comment}")).unwrap_or_default();
        let head = format!("{} {} {}", rrset.owner(), rrset.rr_type(), body.ttl.seconds());
        format!("{head} {}{comment}", body.records.join(", "))
    };
    carried.rrsets.iter().map(line).collect()
}

fn left(carried: &Carried) -> Vec<String> {
    let parts = |one: &NotCarried| {
        [Some(one.what.clone()), one.name.clone(), one.rrtype.clone(), Some(one.count.to_string())]
    };
    let line = |one| parts(one).into_iter().flatten().collect::<Vec<_>>().join(" ");
    carried.not_carried.iter().map(line).collect()
}

#[test]
fn a_zone_as_powerdns_keeps_it_is_carried() {
    let mut source = zone(&[
        ("example.com", "SOA", "ns1.example.net hostmaster.example.com 2026013101 1 2 3 4"),
        ("example.com", "NS", "ns1.example.net"),
        ("Example.COM", "MX", "10 Mail.example.com"),
        ("example.com", "TXT", "\"v=DMARC1; p=none\" \"second\""),
        ("_sip._tcp.example.com", "SRV", "0 5 5060 sip.example.net"),
        ("www.example.com.", "CNAME", "example.com."),
        ("*.wild.example.com", "A", "192.0.2.1"),
        ("*.wild.example.com", "A", "192.0.2.1"),
        ("wild.example.com", "", ""),
        ("sub.example.com", "NS", "ns.sub.example.com"),
        ("ns.sub.example.com", "A", "192.0.2.53"),
        ("alias.example.com", "ALIAS", "target.example.net"),
        ("srv.example.com", "SRV", "0 0 0 ."),
        ("x.example.com", "TYPE65280", "\\# 1 ff"),
    ]);
    source.records[6].ttl = Some(0);
    source.records[7].ttl = Some(60);
    source.comments = vec![
        SourceComment { owner: "www.example.com".into(), rrtype: "CNAME".into(), text: "a\nb".into() },
        SourceComment { owner: "www.example.com".into(), rrtype: "CNAME".into(), text: "c".into() },
        SourceComment { owner: "gone.example.com".into(), rrtype: "A".into(), text: "d".into() },
    ];
    let carried = carried(source);
    let mut rrsets = told(&carried);
    rrsets.sort();
    assert_eq!(
        rrsets,
        [
            "*.wild A 0 192.0.2.1",
            "@ MX 300 10 mail.example.com.",
            "@ TXT 300 \"v=DMARC1; p=none\" \"second\"",
            "_sip._tcp SRV 300 0 5 5060 sip.example.net.",
            "ns.sub A 300 192.0.2.53",
            "srv SRV 300 0 0 0 .",
            "sub NS 300 ns.sub.example.com.",
            "www CNAME 300 example.com. # a b; c",
            "x TYPE65280 300 \\# 1 ff",
        ]
    );
    assert_eq!((carried.serial, carried.records), (Some(2_026_013_101), 9));
    assert_eq!(left(&carried), ["record alias.example.com ALIAS 1", "comment 1", "comment_author 2"]);
    let warned = carried.warnings.join("\n");
    for part in ["apex NS ns1.example.net.", "different TTLs", "serial 2026013101"] {
        assert!(warned.contains(part), "{part}: {warned}");
    }
}

#[test]
fn what_stays_behind_is_told_by_its_name() {
    let mut source = zone(&[
        ("off.example.com", "A", "192.0.2.1"),
        ("lua.example.com", "LUA", "A \"ifportup(443, {'192.0.2.1'})\""),
        ("www.example.net", "A", "192.0.2.1"),
        ("strange.example.com", "ADDR", "x"),
        ("example.com", "DNSKEY", "257 3 13 AAAA"),
        ("example.com", "RRSIG", "x"),
        ("www.example.com", "RRSIG", "x"),
        ("example.com", "CDS", "1 13 2 0000000000000000000000000000000000000000000000000000000000000000"),
        ("example.com", "DS", "1 13 2 0000000000000000000000000000000000000000000000000000000000000000"),
        ("empty.example.com", "", ""),
        ("www.example.com", "A", "192.0.2.1"),
    ]);
    source.records[0].disabled = true;
    source.beside = vec![NotCarried::new("metadata", Some("ALLOW-AXFR-FROM"), 1, "")];
    let carried = carried(source);
    assert_eq!(told(&carried), ["www A 300 192.0.2.1"]);
    assert_eq!(
        left(&carried),
        [
            "metadata ALLOW-AXFR-FROM 1",
            "dnssec RRSIG 2",
            "dnssec DNSKEY 1",
            "dnssec CDS 1",
            "disabled_record off.example.com A 1",
            "record lua.example.com LUA 1",
            "record www.example.net A 1",
            "record strange.example.com ADDR 1",
            "record example.com DS 1",
            "empty_name empty.example.com 1",
        ]
    );
}

#[test]
fn every_fault_is_told_with_its_record() {
    let refused = carry(
        zone(&[
            ("www.example.com", "A", "192.0.2.300"),
            ("ok.example.com", "A", "192.0.2.1"),
            ("t.example.com", "TXT", "not in quotes"),
            ("a..example.com", "A", "192.0.2.1"),
            ("c.example.com", "CNAME", "a.example.com"),
            ("c.example.com", "CNAME", "b.example.com"),
        ]),
        1_000,
    )
    .unwrap_err();
    let lines: Vec<(Option<usize>, Option<&str>)> =
        refused.faults.iter().map(|fault| (fault.line, fault.record.as_deref())).collect();
    assert_eq!(
        lines,
        [
            (Some(1), Some("www A")),
            (Some(3), Some("t TXT")),
            (Some(4), Some("a..example.com")),
            (Some(5), Some("c CNAME")),
        ]
    );
    assert_eq!(
        carry(zone(&[("a.example.com", "A", "192.0.2.1")]), 0).unwrap_err().faults[0].code,
        "too_many_records"
    );
    let many: Vec<(&str, &str, &str)> = (0..200).map(|_| ("x.example.com", "A", "x")).collect();
    let refused = carry(zone(&many), 1_000).unwrap_err();
    assert_eq!((refused.faults.len(), refused.total), (NOTES_MAX_COUNT, 200));
}

type Stored = Vec<(OwnerName, RrType, RrSetBody)>;

fn rrsets(records: &[(&str, &str)]) -> Vec<RrSet> {
    let full: Vec<(String, &str)> =
        records.iter().map(|(owner, value)| (format!("{owner}.example.com"), *value)).collect();
    let full: Vec<(&str, &str, &str)> =
        full.iter().map(|(owner, value)| (owner.as_str(), "A", *value)).collect();
    carried(zone(&full)).rrsets
}

fn stored(records: &[(&str, &str)]) -> Stored {
    let row = |rrset: RrSet| (rrset.owner().clone(), rrset.rr_type(), rrset.body());
    rrsets(records).into_iter().map(row).collect()
}

fn changes(merged: &Merged) -> Vec<String> {
    let line = |change: &RrsetChange| match change {
        RrsetChange::Put(rrset) => format!("put {} {}", rrset.owner(), rrset.body().records.join(",")),
        RrsetChange::Delete { owner, .. } => format!("delete {owner}"),
        other => format!("{other:?}"),
    };
    let mut lines: Vec<String> = merged.changes.iter().map(line).collect();
    lines.sort();
    lines
}

#[test]
fn only_what_the_source_changed_and_nobody_else_is_taken_over() {
    let (one, two, three) = ("192.0.2.1", "192.0.2.2", "192.0.2.3");
    let all = ["same", "theirs", "ours", "both", "alike", "gone", "gone-ours", "deleted", "deleted-both"];
    let before = rrsets(&all.map(|owner| (owner, one)));
    let base = Base::from_bytes(&Base::of(&before, true).to_bytes());
    let now = rrsets(&[
        ("same", one),
        ("theirs", two),
        ("ours", one),
        ("both", two),
        ("alike", two),
        ("deleted", one),
        ("deleted-both", two),
        ("new", one),
        ("new-both", one),
    ]);
    let here = stored(&[
        ("same", one),
        ("theirs", one),
        ("ours", two),
        ("both", three),
        ("alike", two),
        ("gone", one),
        ("gone-ours", two),
        ("only-ours", one),
        ("new-both", two),
    ]);
    let merged = merge(&now, &base, here, true);
    assert_eq!(changes(&merged), ["delete gone", "put new 192.0.2.1", "put theirs 192.0.2.2"]);
    let mut conflicts = merged.conflicts.clone();
    conflicts.sort();
    assert_eq!(conflicts, ["both A", "deleted-both A", "gone-ours A", "new-both A"]);
    // What was told once is told for as long as it lasts, and nothing else is.
    let here = stored(&[
        ("same", one),
        ("theirs", two),
        ("ours", two),
        ("both", three),
        ("alike", two),
        ("gone-ours", two),
        ("only-ours", one),
        ("new", one),
        ("new-both", two),
    ]);
    let again = merge(&now, &merged.base, here, true);
    assert!(again.changes.is_empty(), "{:?}", again.changes);
    assert_eq!(again.conflicts.len(), 4, "{:?}", again.conflicts);
    // Where somebody gives way here, the source is followed on.
    let agreed = merge(&now, &again.base, stored(&[("both", one)]), true);
    assert!(changes(&agreed).contains(&"put both 192.0.2.2".to_owned()), "{:?}", agreed.changes);
}
