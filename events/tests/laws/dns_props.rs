//! Properties of DNS values that hold for every input.

use headwater_events::dns::{DomainName, OwnerName, Rdata, RrType};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::dns_oracle;

fn zone() -> DomainName {
    DomainName::parse("example.com").unwrap()
}

fn any_type() -> impl Strategy<Value = RrType> {
    proptest::sample::select(RrType::all_writable().collect::<Vec<_>>())
}

/// Labels of every octet a name may hold, short enough for any of the names to be valid.
fn labels() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let octet = prop_oneof![
        8 => proptest::sample::select(b"ab*.-_@ \\;".to_vec()),
        1 => 0x20..=0x7eu8,
        1 => 0x80..=0xffu8,
    ];
    vec(vec(octet, 1..6), 0..5)
}

fn wire(labels: &[Vec<u8>], zone: &[u8]) -> Vec<u8> {
    let mut wire = Vec::new();
    for label in labels {
        wire.push(u8::try_from(label.len()).unwrap());
        wire.extend(label);
    }
    wire.extend(zone);
    wire
}

fn owner(labels: &[Vec<u8>]) -> OwnerName {
    OwnerName::from_wire(&wire(labels, b"\x07example\x03com\0"), &zone()).unwrap()
}

fn lower(labels: &[Vec<u8>]) -> Vec<Vec<u8>> {
    labels.iter().map(|label| label.to_ascii_lowercase()).collect()
}

/// Text that looks like record data, right and wrong.
fn rdata_text() -> impl Strategy<Value = String> {
    let piece = proptest::sample::select(vec![
        "0",
        "10",
        "65535",
        "65536",
        "-1",
        "256",
        ".",
        "..",
        "a",
        "a.example.net.",
        "A.B.",
        "*.x.",
        "_sip._tcp.example.net.",
        "bücher.example.",
        "\\.",
        "\\065",
        "\\256",
        "\\000",
        "\\# 4 c0000201",
        "\\#",
        "\"",
        "\"\"",
        "\"a b\"",
        "\"a;b\"",
        "\"\\255\\\"\"",
        "issue",
        "Iodef",
        "192.0.2.1",
        "2001:DB8::1",
        "::ffff:1.2.3.4",
        "\\049.2.3.4.",
        "a:\\/\\/b.",
        "mx/1.",
        " ",
        " ",
        " ",
        "\t",
        ";",
        "(",
        ")",
        "\n",
        "@",
        "é",
        "\\",
        "13",
        "RSASHA256",
        "0123456789abcdef0123456789abcdef0123456789abcdef0123456789ABCDEF",
        "AQNR",
        "00-00-5e-00-53-01",
        "0014:4fff:FF20:ee64",
        "52 22 23.5 N 4 53 32 E -2.00m",
        "1m 15m",
        "1:192.0.2.0/24",
        "!2:2001:db8::/32",
        "NS AAAA TYPE1234",
        "alpn=h3,h2",
        "alpn=\"a\\\\,b,c\"",
        "port=443",
        "key667=\"a b\"",
        "mandatory=port",
        "ipv6hint=2001:db8::1",
    ]);
    prop_oneof![vec(piece, 0..8).prop_map(|pieces| pieces.join(" ")), "\\PC{0,40}", any::<String>()]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_value_reads_back_and_a_zone_file_reader_agrees(ty in any_type(), text in rdata_text()) {
        if let Ok(rdata) = Rdata::parse(ty, &text, &zone()) {
            prop_assert_eq!(Rdata::parse(ty, rdata.as_text(), &zone()), Ok(rdata.clone()));
            prop_assert_eq!(Rdata::from_wire(ty, rdata.wire()), Ok(rdata.clone()));
            let second_opinion = dns_oracle::octets(ty, rdata.as_text());
            if dns_oracle::knows(ty, rdata.as_text()) {
                prop_assert_eq!(second_opinion.as_deref(), Some(rdata.wire()), "{:?}", rdata);
            }
            prop_assert!(rdata.as_text().bytes().all(|octet| octet == b' ' || octet.is_ascii_graphic()));
        }
    }

    #[test]
    fn octets_of_any_kind_are_read_or_refused(ty in any_type(), octets in vec(any::<u8>(), 0..80)) {
        if let Ok(rdata) = Rdata::from_wire(ty, &octets) {
            prop_assert_eq!(rdata.wire().to_ascii_lowercase(), octets.to_ascii_lowercase());
            prop_assert_eq!(Rdata::parse(ty, rdata.as_text(), &zone()), Ok(rdata.clone()));
        }
    }

    #[test]
    fn text_of_any_octets_survives(strings in vec(vec(any::<u8>(), 0..256), 1..5)) {
        let octets = wire(&strings, b"");
        let rdata = Rdata::from_wire(RrType::TXT, &octets).unwrap();
        prop_assert_eq!(rdata.wire(), &octets[..]);
        let second_opinion = dns_oracle::octets(RrType::TXT, rdata.as_text());
        prop_assert_eq!(second_opinion, Some(octets));
    }

    #[test]
    fn a_target_of_any_octets_survives(labels in labels()) {
        let rdata = Rdata::from_wire(RrType::CNAME, &wire(&labels, b"\0"));
        // Four labels of digits are an address, not a name.
        prop_assume!(rdata.is_ok());
        let rdata = rdata.unwrap();
        prop_assert_eq!(rdata.wire(), &wire(&lower(&labels), b"\0")[..]);
        let second_opinion = dns_oracle::octets(RrType::CNAME, rdata.as_text());
        prop_assert_eq!(second_opinion.as_deref(), Some(rdata.wire()));
    }

    #[test]
    fn a_domain_name_is_its_own_canonical_form(input in prop_oneof![any::<String>(), "[a-zA-Z0-9ü。._/-]{0,40}"]) {
        if let Ok(name) = DomainName::parse(&input) {
            prop_assert_eq!(DomainName::parse(name.as_str()), Ok(name.clone()));
            prop_assert_eq!(DomainName::parse(&format!("{name}.")), Ok(name.clone()));
            prop_assert!(name.as_str().len() <= 253 && name.as_str() == name.as_str().to_ascii_lowercase());
            let _ = (name.tenant_allowed(), name.to_unicode());
        }
    }

    #[test]
    fn an_owner_is_its_own_canonical_form(input in prop_oneof![any::<String>(), "[a-zA-Z0-9ü*@._/\\\\-]{0,20}", "[a-z.\\\\]{0,9}(example.com\\.?)?"]) {
        if let Ok(owner) = OwnerName::parse(&input, &zone()) {
            prop_assert_eq!(OwnerName::from_canonical(owner.as_str()), Ok(owner.clone()));
            let absolute = format!("{}.", owner.absolute(&zone()));
            prop_assert_eq!(OwnerName::parse(&absolute, &zone()), Ok(owner.clone()));
        }
    }

    #[test]
    fn an_owner_of_any_octets_has_one_text_and_one_key(labels in labels()) {
        let name = owner(&labels);
        prop_assert_eq!(OwnerName::from_canonical(name.as_str()), Ok(name.clone()));
        prop_assert_eq!(OwnerName::from_key(name.key().as_str()), Ok(name.clone()));
        prop_assert_eq!(name.labels().count(), labels.len());
        prop_assert_eq!(name.ancestors().count(), labels.len().saturating_sub(1));
        for (n, above) in name.ancestors().enumerate() {
            prop_assert_eq!(&above, &owner(&labels[n + 1..]));
        }
    }

    #[test]
    fn equal_owners_are_equal_octets(a in labels(), b in labels()) {
        prop_assert_eq!(owner(&a) == owner(&b), lower(&a) == lower(&b));
        prop_assert_eq!(owner(&a).key() == owner(&b).key(), lower(&a) == lower(&b));
    }

    #[test]
    fn the_keys_below_a_key_are_one_range(tops in vec(labels(), 1..4), more in vec(labels(), 1..12)) {
        // Owners below, beside and above each other.
        let all: Vec<_> = more.iter().zip(tops.iter().cycle()).map(|(left, top)| [left.clone(), top.clone()].concat()).chain(tops.clone()).collect();
        let top = &tops[0];
        let key = owner(top).key();
        let mut keys: Vec<_> = all.iter().map(|labels| (owner(labels).key(), lower(labels))).collect();
        keys.sort();
        let inside: Vec<_> = keys.iter().map(|(other, labels)| {
            let below = labels.len() > top.len() && labels.ends_with(&lower(top));
            assert_eq!(other.is_below(&key), below, "{other:?} below {key:?}");
            assert_eq!(other.as_str().starts_with(&key.subtree_prefix()) && other != &key, below, "{other:?} below {key:?}");
            below
        }).collect();
        // In byte order nothing else stands between two keys of the subtree.
        prop_assert!(inside.windows(2).filter(|pair| pair[0] != pair[1]).count() <= 2);
    }
}
