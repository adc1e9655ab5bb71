//! Zone text: every file of `tests/cases/zones`, what they do not show, and what holds for every text.

use headwater_events::dns::{DomainName, OwnerName, Rdata, RrSet, RrSetInput, RrType};
use headwater_events::zonetext::{self, FAULTS_MAX_COUNT, Faulty, GENERATED_MAX_RECORDS, ZoneText};
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const MOST: usize = 1_000_000;

fn zone() -> DomainName {
    DomainName::parse("example.com").unwrap()
}

fn read(text: &str) -> Result<ZoneText, Faulty> {
    zonetext::read(text.as_bytes(), &zone(), MOST)
}

fn lines(faulty: &Faulty) -> Vec<(usize, &str)> {
    faulty.faults.iter().map(|fault| (fault.line, fault.code)).collect()
}

/// The records of a text as `owner ttl type rdata`.
fn records(text: &ZoneText, zone: &DomainName) -> BTreeSet<String> {
    let all = text.rrsets.iter().flat_map(|one| {
        let set = &one.rrset;
        set.records().iter().map(move |rdata| {
            let octets = hex::encode(rdata.wire().to_ascii_lowercase());
            format!("{}. {} {} {octets}", set.owner().absolute(zone), set.ttl(), set.rr_type())
        })
    });
    all.collect()
}

fn cases() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/cases/zones")
}

/// What a file of expected records says, but for what an import checks and does not take over.
fn expected(id: &str, zone: &DomainName) -> BTreeSet<String> {
    let table = std::fs::read_to_string(cases().join(format!("{id}.expected.tsv"))).unwrap();
    let rows = table.lines().filter(|line| !line.starts_with('#'));
    let rows = rows.map(|line| line.split('\t').collect::<Vec<_>>());
    let apex = format!("{zone}.");
    rows.filter(|row| row[2] != "SOA" && !(row[0] == apex && row[2] == "NS"))
        .map(|row| {
            let octets = hex::encode(hex::decode(row[4]).unwrap().to_ascii_lowercase());
            let labels = format!("{}.", row[0].trim_end_matches('.').replace("sub.*.", "sub.\\*."));
            format!("{labels} {} {} {octets}", row[1], row[2])
        })
        .collect()
}

/// The lines that a verdict names, `line 6 (and line 7)`.
fn told_lines(verdict: &str) -> BTreeSet<usize> {
    let rest = verdict.split("line ").skip(1);
    rest.filter_map(|rest| rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()).collect()
}

#[test]
fn real_zones() {
    let index = std::fs::read_to_string(cases().join("index.tsv")).unwrap();
    let rows: Vec<Vec<&str>> =
        index.lines().filter(|line| !line.starts_with('#')).map(|line| line.split('\t').collect()).collect();
    assert_eq!(rows.len(), 21);
    let mut wrong = Vec::new();
    for row in rows {
        let (id, zone, verdict) = (row[0], DomainName::parse(row[2].trim_end_matches('.')).unwrap(), row[3]);
        let text = std::fs::read(cases().join(format!("{id}.zone"))).unwrap();
        match zonetext::read(&text, &zone, MOST) {
            // Without an SOA it is taken, and a warning says so.
            Ok(read) if id == "zone19" => {
                let told = read.warnings.iter().any(|warning| warning.contains("no SOA"));
                if !told || read.rrsets.len() != 1 {
                    wrong.push(format!("{id}: {read:?}"));
                }
            }
            Ok(read) if verdict == "accept" => {
                let (found, wanted) = (records(&read, &zone), expected(id, &zone));
                if found != wanted {
                    wrong.push(format!("{id}: {found:#?}\nis not\n{wanted:#?}"));
                }
            }
            Err(faulty) if verdict.starts_with("REJECT") => {
                let found: BTreeSet<usize> = faulty.faults.iter().map(|fault| fault.line).collect();
                if found != told_lines(verdict) || faulty.total != found.len() {
                    wrong.push(format!("{id}: {faulty:?} is not {verdict}"));
                }
            }
            other => wrong.push(format!("{id}: {other:?} is not {verdict}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn one_text_in_every_dress() {
    let plain = "$TTL 300\n@ SOA ns1 h 1 2h 1h 2w 5m\nwww A 192.0.2.1\n A 192.0.2.2\nm 1h30m IN MX 10 www\n";
    let wanted = records(&read(plain).unwrap(), &zone());
    assert_eq!(wanted.len(), 3);
    assert!(wanted.iter().any(|one| one.starts_with("m.example.com. 5400 MX")), "{wanted:?}");
    let bom = format!("\u{feff}{plain}");
    let same = [
        bom.as_str(),
        &plain.replace('\n', "\r\n"),
        plain.trim_end(),
        &plain.replace(' ', "\t"),
        "$ttl 300\n@ soa NS1.example.com. h 1 7200 3600 1209600 300\nWWW in a 192.0.2.1\nWWW 300 A 192.0.2.2 ; x ( y\nm IN 5400 mx ( 10\n www.EXAMPLE.com. )\n",
        "$TTL 300\n@ CLASS1 TYPE6 ns1 h 1 2h 1h 2w 5m\n\\119ww TYPE1 \\# 4 C0000201\nwww TYPE1 \\# 4 c0 00 02 02\nm 1H30M MX 010 www\n",
        "$TTL 300\n@ SOA ns1 h 1 2h 1h 2w 5m\n$GENERATE 1-2 www A 192.0.2.$\n$ORIGIN sub\n$ORIGIN example.com.\nm 90M MX 10 www\n",
        "$TTL 300\n@ SOA ns1 h 1 2h 1h 2w 5m\n( www\nA ) 192.0.2.1\nwww ( ) A 192.0.2.2\n( ; nothing\n)\nm 90m MX 10 www\n",
    ];
    for text in same {
        assert_eq!(records(&read(text).unwrap(), &zone()), wanted, "{text}");
    }
}

#[test]
fn every_faulty_line_is_told() {
    let text = "$TTL 60\nwww A 192.0.2.1\nbad A 192.0.2\nmail MX 10 mail..x\n\nwww CNAME a\nx LUA A \"y\"\nx TYPE65402 \\# 1 00\n\
                x NOTATYPE 1\nfoo.example.org. A 192.0.2.1\n CNAME suppressed\nok A 192.0.2.3\na\\300 TXT x\n$FOO\n$include /etc/passwd\n\
                t TXT \"open\nu TXT a)\nv HS TXT x\nw ALIAS a.\nx 99999999999 A 192.0.2.1\ny TXT \"a\"b\nz TXT a\"b\"\n$ORIGIN\n$GENERATE 1-70000 a$ A 192.0.2.1\n";
    let faulty = read(text).unwrap_err();
    assert_eq!(
        lines(&faulty),
        [
            (3, "invalid_rdata"),
            (4, "invalid_name"),
            (6, "cname_conflict"),
            (7, "unsupported_type"),
            (8, "unsupported_type"),
            (9, "unsupported_type"),
            (10, "outside_zone"),
            (13, "invalid_name"),
            (14, "unknown_directive"),
            (15, "include"),
            (16, "open_quote"),
            (17, "stray_parenthesis"),
            (18, "wrong_class"),
            (19, "unsupported_type"),
            (20, "invalid_ttl"),
            (21, "invalid_text"),
            (22, "invalid_text"),
            (23, "bad_directive"),
            (24, "bad_generate"),
        ],
        "{faulty:#?}"
    );
    let many = "a A x\n".repeat(FAULTS_MAX_COUNT + 50);
    let faulty = read(&many).unwrap_err();
    assert_eq!((faulty.faults.len(), faulty.total), (FAULTS_MAX_COUNT, FAULTS_MAX_COUNT + 50));
    for (text, code) in [
        (" A 192.0.2.1\n", "missing_owner"),
        ("www A 192.0.2.1\n", "missing_ttl"),
        ("www 1 A ( 192.0.2.1\n", "open_parenthesis"),
        ("www 1 IN\n", "missing_type"),
        ("www 1 SOA a b 1 2 3 4 5\n", "soa_not_at_apex"),
        ("@ 1 SOA a b 1 2 3 4 5\n@ 1 SOA a b 2 2 3 4 5\n", "several_soas"),
        ("@ 1 CNAME a.\n", "cname_at_apex"),
        ("c 1 CNAME a.\nc 1 CNAME b.\n", "single_record_only"),
        ("w 1 A 192.0.2.1\nw 1 TXT \u{7}\n", "invalid_text"),
        ("w 1 A \\\n", "bad_escape"),
        ("\"w\" 1 A 192.0.2.1\n", "invalid_name"),
        ("w 1 MX 10 192.0.2.1\n", "invalid_rdata"),
    ] {
        let faulty = read(text).unwrap_err();
        assert_eq!(faulty.faults.iter().map(|fault| fault.code).collect::<Vec<_>>(), [code], "{text}");
    }
    let latin = zonetext::read(b"a 1 TXT x ; caf\xe9\nb 1 TXT caf\xe9\n", &zone(), MOST).unwrap_err();
    assert_eq!(lines(&latin), [(2, "invalid_text")]);
}

#[test]
fn what_is_not_taken_over_is_told() {
    let text = "$TTL 300\n@ SOA a b 77 1 1 1 1\n@ NS ns1.example.net.\n@ NS ns2.example.net.\n\\052 A 192.0.2.1\nwww.example.com A 192.0.2.1\n\
                w 60 A 192.0.2.1\nw 30 A 192.0.2.2\nd A 192.0.2.9 ; derived\n@ DNSKEY 257 3 13 AQ==\nw RRSIG whatever it is\n@ CDS 0 0 0 00\nc.d CDS 0 0 0 00\n";
    let read = read(text).unwrap();
    assert_eq!(read.serial, Some(77));
    let told = read.warnings.join("\n");
    for part in [
        "serial 77",
        "line 3: the apex NS ns1",
        "line 4: the apex NS ns2",
        "digit 4",
        "www.example.com.example.com.",
        "lowest, 30 s",
        "marked as derived",
        "1 DNSKEY",
        "1 RRSIG",
        "1 CDS",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    let found = records(&read, &zone());
    assert_eq!(found.len(), 5, "{found:?}");
    // Where nothing is signed, a CDS is the owner's own.
    let unsigned = zonetext::read(b"@ 1 CDS 0 0 0 00\n", &zone(), MOST).unwrap();
    assert_eq!(unsigned.rrsets.len(), 1);
}

#[test]
fn bounds() {
    let text: String = (0..1001).map(|n| format!("a{n} 1 A 192.0.2.1\n")).collect();
    assert!(zonetext::read(text.as_bytes(), &zone(), 1001).is_ok());
    let faulty = zonetext::read(text.as_bytes(), &zone(), 1000).unwrap_err();
    assert_eq!(lines(&faulty), [(1, "too_many_records")]);
    let generated = |count: usize| format!("$TTL 1\n$GENERATE 1-{count} a$ A 192.0.2.1\n");
    assert_eq!(read(&generated(GENERATED_MAX_RECORDS)).unwrap().records, GENERATED_MAX_RECORDS);
    let twice = format!("{}$GENERATE 1-1 b$ A 192.0.2.1\n", generated(GENERATED_MAX_RECORDS));
    assert_eq!(lines(&read(&twice).unwrap_err()), [(3, "bad_generate")]);
    let endless = format!("a 1 TXT ( {}", "x\n".repeat(zonetext::ENTRY_MAX_TOKENS));
    assert!(read(&endless).unwrap_err().faults.iter().any(|fault| fault.code == "entry_too_long"));
    let large = vec![b'\n'; zonetext::TEXT_MAX_BYTES + 1];
    assert_eq!(lines(&zonetext::read(&large, &zone(), MOST).unwrap_err()), [(1, "too_large")]);
    assert!(zonetext::read(&large[1..], &zone(), MOST).is_ok());
}

/// An RRset of any type that takes one of these values.
fn any_rrset() -> impl Strategy<Value = RrSet> {
    let value = proptest::sample::select(vec![
        ("A", "192.0.2.1"),
        ("AAAA", "2001:db8::1"),
        ("MX", "10 mail.example.net."),
        ("PTR", "a\\.b.example.net."),
        ("TXT", "\"a;b\" \"(c)\" \"\\\"\\\\\\255\""),
        ("CAA", "0 issue \"ca.example.net; x\""),
        ("SRV", "0 0 0 ."),
        ("HTTPS", "1 . alpn=\"f\\\\\\\\oo\\\\,bar,h2\" key667=\"a \\\"b\""),
        ("LOC", "52 22 23.000 N 4 53 32.000 E -2.00m 0.00m 10000m 10m"),
        ("NAPTR", "10 10 \"\" \"\" \"/urn:cid:.+@([^\\\\.]+\\\\.)(.*)$/\\\\2/i\" ."),
        ("APL", "1:192.0.2.0/24 !2:2001:db8::/32"),
        ("CSYNC", "66 3 A NS TYPE1234"),
        ("IPSECKEY", "10 3 2 gw.example.net. AQNR"),
        ("TYPE65280", "\\# 0"),
        ("TYPE65281", "\\# 3 c00020"),
    ]);
    let label = proptest::sample::select(vec![
        "a", "*", "\\@", "_x", "\\$", "b\\.c", "\\;", "\\032", "\\(", "in", "1h", "\\\"", "0/25", "\\255",
        "a\\*b",
    ]);
    (vec(label, 1..4), 0..=2_147_483_647_i64, value).prop_map(|(labels, ttl, (ty, text))| {
        let labels: Vec<&str> =
            labels.iter().enumerate().map(|(n, one)| if n > 0 && *one == "*" { "x" } else { *one }).collect();
        let owner = OwnerName::parse(&labels.join("."), &zone()).unwrap();
        let input = RrSetInput { ttl, records: vec![text.to_owned()], comment: None };
        RrSet::new(owner, RrType::parse(ty).unwrap(), &input, &zone()).unwrap()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_reads_back(sets in vec(any_rrset(), 0..12)) {
        let line = |set: &RrSet| {
            zonetext::line(set.owner(), set.ttl().seconds(), set.rr_type(), set.records()[0].as_text(), false)
        };
        let mut seen = BTreeSet::new();
        let sets: Vec<RrSet> = sets.into_iter().filter(|set| seen.insert((set.owner().key(), set.rr_type()))).collect();
        let text: String = format!("$ORIGIN {}.\n{}", zone(), sets.iter().map(line).collect::<String>());
        let back = read(&text).unwrap();
        let mut found: Vec<RrSet> = back.rrsets.into_iter().map(|one| one.rrset).collect();
        let order = |set: &RrSet| (set.owner().key(), set.rr_type());
        let mut wanted = sets;
        wanted.sort_by_key(order);
        found.sort_by_key(order);
        prop_assert_eq!(found, wanted);
    }

    #[test]
    fn any_octets_are_read_or_refused(octets in vec(any::<u8>(), 0..200)) {
        let _ = zonetext::read(&octets, &zone(), MOST);
    }

    #[test]
    fn any_pieces_are_read_or_refused(pieces in vec(proptest::sample::select(vec![
        "a", "@", "*", " ", "\t", "\n", "\r\n", "\r", ";", "; derived", "(", ")", "\"", "\\", "\\1", "\\065", "IN", "CH", "3600",
        "1h", "A", "192.0.2.1", "TXT", "\"x\"", "SOA", "a b 1 2 3 4 5", "$ORIGIN", "$TTL", "$GENERATE", "1-3", "a${0,3,d}", "$",
        "NS", "CNAME", "TYPE65280", "\\# 1 00", "HTTPS 1 . alpn=\"h2\"", "\u{feff}", "é", ".", "example.com.",
    ]), 0..40)) {
        let text = pieces.join(" ");
        if let Ok(read) = read(&text) {
            let told: usize = read.rrsets.iter().map(|one| one.rrset.records().len()).sum();
            prop_assert_eq!(told, read.records);
        }
        let _ = read(&pieces.concat());
    }
}

#[test]
fn a_value_reads_the_same_as_text_and_by_itself() {
    let table = std::fs::read_to_string(cases().join("../dns_values.tsv")).unwrap();
    let mut tried = 0;
    for line in table.lines().filter(|line| line.starts_with('V')) {
        let columns: Vec<&str> = line.split('\t').collect();
        let [id, _, ty, _, _, "raw", input, ..] = columns[..] else { continue };
        let Ok(ty) = RrType::parse(ty) else { continue };
        let Ok(rdata) = Rdata::parse(ty, input, &zone()) else { continue };
        tried += 1;
        for value in [input, rdata.as_text()] {
            let text = format!("t 3600 IN {ty} {value}\n");
            let found = read(&text).unwrap_or_else(|faulty| panic!("{id}: {faulty:?}"));
            assert_eq!(found.rrsets[0].rrset.records(), std::slice::from_ref(&rdata), "{id}");
        }
    }
    assert!(tried > 140, "{tried}");
}
