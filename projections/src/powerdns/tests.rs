//! Laws of the rendering: what is kept up change by change is what the whole gives.

use super::*;
use headwater_events::dns::{DomainName, OwnerKey, OwnerName, RrType};
use headwater_events::event::DnsIdentity;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

type Model = BTreeMap<OwnerKey, BTreeMap<RrType, RrsetData>>;

fn identity() -> DnsIdentity {
    let name = |text| DomainName::parse(text).unwrap();
    DnsIdentity {
        nameservers: vec![name("ns1.example.net"), name("ns2.example.net")],
        hostmaster: name("hostmaster.example.net"),
        soa_ttl: 3600,
        ns_ttl: 86_400,
        refresh: 3600,
        retry: 600,
        expire: 1_209_600,
        minimum: 300,
    }
}

fn zone(serial: u32) -> Zone {
    Zone::new(DomainName::parse("example.com").unwrap(), serial, Some(&identity())).unwrap()
}

fn key(owner: &str) -> OwnerKey {
    OwnerName::parse(owner, &DomainName::parse("example.com").unwrap()).unwrap().key()
}

fn data(records: &[&str]) -> RrsetData {
    RrsetData { ttl: 300, records: records.iter().map(|&text| text.to_owned()).collect() }
}

fn whole(zone: &Zone, model: &Model) -> Vec<Row> {
    let (mut rows, mut renderer) = (Vec::new(), ZoneRenderer::new(zone));
    for (key, rrsets) in model.iter().filter(|(_, rrsets)| !rrsets.is_empty()) {
        renderer.owner(key, rrsets, &mut rows);
    }
    renderer.finish(&mut rows);
    rows
}

/// What the loader reads for these changes, from the zone as it is after them.
fn load(model: &Model, touched: &BTreeSet<OwnerKey>, cuts: &BTreeSet<OwnerKey>) -> Owners {
    let below = |key: &OwnerKey| model.iter().any(|(other, sets)| !sets.is_empty() && other.is_below(key));
    let mut wide = touched.clone();
    for cut in cuts {
        wide.extend(model.keys().filter(|key| key.is_below(cut)).cloned());
    }
    affected(&wide)
        .into_iter()
        .map(|key| {
            let rrsets = model.get(&key).cloned().unwrap_or_default();
            let has_below = below(&key);
            (key, Owner { rrsets, has_below })
        })
        .collect()
}

#[test]
fn the_table_of_one_zone() {
    let mut model = Model::new();
    let mut put = |owner: &str, rrtype, records: &[&str]| {
        model.entry(key(owner)).or_default().insert(rrtype, data(records));
    };
    put("@", RrType::MX, &["10 mail.example.com."]);
    put("*.w", RrType::A, &["192.0.2.80"]);
    put("a.b.w", RrType::A, &["192.0.2.81"]);
    put("c1", RrType::NS, &["ns.c1.example.com."]);
    put("c1", RrType::A, &["192.0.2.76"]);
    put("c1", RrType::from_code(43), &["1 13 2 aa"]);
    put("ns.x.c1", RrType::A, &["192.0.2.77"]);
    put("c2.x.c1", RrType::NS, &["ns.x.c1.example.com."]);
    let shown: Vec<String> = whole(&zone(7), &model).iter().map(ToString::to_string).collect();
    assert_eq!(
        shown,
        [
            "example.com NS 86400 ns1.example.net. auth=true ordername=''",
            "example.com NS 86400 ns2.example.net. auth=true ordername=''",
            "example.com SOA 3600 ns1.example.net. hostmaster.example.net. 7 3600 600 1209600 300 auth=true ordername=''",
            "example.com MX 300 10 mail.example.com. auth=true ordername=''",
            "c1.example.com A 300 192.0.2.76 auth=false",
            "c1.example.com NS 300 ns.c1.example.com. auth=false ordername='c1'",
            "c1.example.com DS 300 1 13 2 aa auth=true ordername='c1'",
            "x.c1.example.com (empty non-terminal) auth=false",
            "c2.x.c1.example.com NS 300 ns.x.c1.example.com. auth=false",
            "ns.x.c1.example.com A 300 192.0.2.77 auth=false",
            "w.example.com (empty non-terminal) auth=true",
            "*.w.example.com A 300 192.0.2.80 auth=true ordername='w *'",
            "b.w.example.com (empty non-terminal) auth=true",
            "a.b.w.example.com A 300 192.0.2.81 auth=true ordername='w b a'",
        ]
    );
}

#[test]
fn a_zone_without_soa_or_ns_is_no_candidate() {
    let name = DomainName::parse("example.com").unwrap();
    assert_eq!(Zone::new(name.clone(), 1, None), Err(RenderFault::NoIdentity));
    let nobody = DnsIdentity { nameservers: Vec::new(), ..identity() };
    assert_eq!(Zone::new(name, 1, Some(&nobody)), Err(RenderFault::NoNameservers));
    let rows = whole(&zone(1), &Model::new());
    assert_eq!(rows.iter().filter(|row| row.rrtype.as_deref() == Some("SOA")).count(), 1);
    assert_eq!(rows.iter().filter(|row| row.rrtype.as_deref() == Some("NS")).count(), 2);
}

#[test]
fn names_are_spelled_as_powerdns_does() {
    let zone = DomainName::parse("example.com").unwrap();
    for owner in ["@", "www", "*.a", "_sip._tcp", "a\\.b.c", "a\\032b", "\\@", "x\\\\y", "a.b.c.d"] {
        let owner = OwnerName::parse(owner, &zone).unwrap();
        assert_eq!(powerdns_name(&owner.key(), &zone), owner.powerdns_name(&zone));
    }
}

#[test]
fn the_sum_depends_on_every_field_and_on_no_order() {
    let mut model = Model::new();
    model.entry(key("a")).or_default().insert(RrType::A, data(&["192.0.2.1", "192.0.2.2"]));
    let rows = whole(&zone(1), &model);
    let sum = SetHash::of_rows(&rows);
    assert_eq!(SetHash::of_rows(rows.iter().rev()), sum);
    for change in [
        |row: &mut Row| row.name.push('x'),
        |row: &mut Row| row.rrtype = None,
        |row: &mut Row| row.content = None,
        |row: &mut Row| row.ttl = Some(301),
        |row: &mut Row| row.auth = false,
        |row: &mut Row| row.ordername = None,
        |row: &mut Row| row.prio = Some(0),
        |row: &mut Row| row.disabled = true,
    ] {
        let mut rows = rows.clone();
        change(rows.last_mut().unwrap());
        assert_ne!(SetHash::of_rows(&rows), sum, "{:?}", rows.last());
    }
    assert_eq!(SetHash::from_bytes(&sum.to_bytes()), Some(sum));
    let mut rest = sum;
    rest.subtract(sum);
    assert_eq!(rest, SetHash::EMPTY);
}

/// One step: an owner, a type, and the value it has from now on (none: it goes).
fn step() -> impl Strategy<Value = (OwnerKey, RrType, Option<RrsetData>)> {
    let label = prop::sample::select(vec!["a", "b", "c", "a-b", "_x"]);
    let wildcard = prop::option::weighted(0.2, Just("*"));
    let owner = (wildcard, prop::collection::vec(label, 0..5))
        .prop_map(|(wildcard, labels)| wildcard.into_iter().chain(labels).collect::<Vec<_>>());
    let rrtype = prop::sample::select(vec![RrType::A, RrType::TXT, RrType::NS]);
    (owner, rrtype, prop::option::weighted(0.6, 0..3_u8)).prop_filter_map(
        "NS at a name that can have one",
        |(labels, rrtype, n)| {
            if (labels.is_empty() || labels[0] == "*") && rrtype == RrType::NS {
                return None;
            }
            let owner = if labels.is_empty() { "@".to_owned() } else { labels.join(".") };
            Some((key(&owner), rrtype, n.map(|n| data(&[&format!("value {n}")]))))
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn change_by_change_is_the_whole(rounds in prop::collection::vec(prop::collection::vec(step(), 1..6), 1..12)) {
        let mut model = Model::new();
        let mut table: Vec<StoredRow> = Vec::new();
        let mut next_id = 0;
        let mut store = |row: Row, table: &mut Vec<StoredRow>| {
            next_id += 1;
            table.push(StoredRow { id: next_id, row });
        };
        for row in whole(&zone(0), &model) {
            store(row, &mut table);
        }
        let mut sum = SetHash::of_rows(table.iter().map(|stored| &stored.row));
        for (serial, steps) in (1..).zip(rounds) {
            let (mut touched, mut cuts) = (BTreeSet::new(), BTreeSet::new());
            for (key, rrtype, value) in steps {
                if rrtype == RrType::NS {
                    cuts.insert(key.clone());
                }
                match value {
                    Some(value) => drop(model.entry(key.clone()).or_default().insert(rrtype, value)),
                    None => drop(model.entry(key.clone()).or_default().remove(&rrtype)),
                }
                touched.insert(key);
            }
            let zone = zone(serial);
            // The names below a changed cut that are gone by now had rows, too: they are among the touched.
            let owners = load(&model, &touched, &cuts);
            let names: BTreeSet<String> = owners.keys().map(|key| powerdns_name(key, zone.name())).collect();
            let rows = render(&zone, &owners);
            let found: Vec<_> = table.iter().filter(|s| names.contains(&s.row.name)).cloned().collect();
            sum.subtract(SetHash::of_rows(found.iter().map(|stored| &stored.row)));
            sum.add(SetHash::of_rows(&rows));
            let plan = plan(&rows, found);
            table.retain(|stored| !plan.delete.iter().any(|gone| gone.id == stored.id));
            for row in plan.insert {
                store(row, &mut table);
            }
            let wanted = whole(&zone, &model);
            prop_assert_eq!(SetHash::of_rows(&wanted), sum);
            let mut have: Vec<_> = table.iter().map(|stored| stored.row.clone()).collect();
            let mut want = wanted.clone();
            have.sort();
            want.sort();
            prop_assert_eq!(have, want);
            prop_assert!(super::plan(&wanted, table.clone()).is_empty());
        }
    }
}
