//! Pure: what the platform answers for names. A proxied name leads to its pool's name in the platform's own zone; an apex,
//! which cannot be a CNAME, holds the addresses of the edges itself, as the pool's name does.
//!
//! Loaders mark such owners among the RRsets by types that no zone can hold, so that an owner is read, taken back in
//! time and compared like any other, and its answer is made here alone, of the endpoints of the same moment.

use super::render::RrsetData;
use headwater_events::dns::{DomainName, OwnerKey, RrType};
use headwater_events::edge::Endpoints;
use std::collections::BTreeMap;

/// Marks a proxied name: type 0 is reserved (RFC 6895).
pub const PROXIED: RrType = RrType::from_code(0);
/// Marks the name of a pool in the platform's own zone: type 65,535 is reserved.
pub const POOL: RrType = RrType::from_code(u16::MAX);
/// The pool that proxied names lead to.
pub const SHARED_POOL: &str = "shared";
/// The RRsets that are derived at a marked owner.
pub fn derived_at(key: &OwnerKey, mark: RrType) -> impl Iterator<Item = (OwnerKey, RrType)> + use<> {
    let holds_addresses = mark == POOL || key.as_str().is_empty();
    let types: &[RrType] = if holds_addresses { &[RrType::A, RrType::AAAA] } else { &[RrType::CNAME] };
    let key = key.clone();
    types.iter().map(move |rrtype| (key.clone(), *rrtype))
}

/// An RRset that is only a mark.
pub fn mark() -> RrsetData {
    RrsetData { ttl: 0, records: Vec::new() }
}

/// Puts what is answered in the place of the marks of one owner.
pub fn expand(
    zone: &DomainName,
    key: &OwnerKey,
    rrsets: &mut BTreeMap<RrType, RrsetData>,
    endpoints: Option<&Endpoints>,
) {
    let is_proxied = rrsets.remove(&PROXIED).is_some();
    let is_pool = rrsets.remove(&POOL).is_some();
    let Some(endpoints) = endpoints else { return };
    if is_pool && endpoints.zone == *zone {
        rrsets.extend(addresses(endpoints, key.as_str()));
    } else if is_proxied && key.as_str().is_empty() {
        rrsets.extend(addresses(endpoints, SHARED_POOL));
    } else if is_proxied {
        let target = format!("{SHARED_POOL}.{}.", endpoints.zone);
        rrsets.insert(RrType::CNAME, RrsetData { ttl: endpoints.ttl, records: vec![target] });
    }
}

/// The address RRsets of a pool.
fn addresses(endpoints: &Endpoints, pool: &str) -> impl Iterator<Item = (RrType, RrsetData)> {
    let (v4, v6): (Vec<_>, Vec<_>) =
        endpoints.addresses(pool).into_iter().partition(std::net::IpAddr::is_ipv4);
    let ttl = endpoints.ttl;
    [(RrType::A, v4), (RrType::AAAA, v6)].into_iter().filter(|(_, found)| !found.is_empty()).map(
        move |(rrtype, found)| {
            (rrtype, RrsetData { ttl, records: found.iter().map(ToString::to_string).collect() })
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_events::dns::{OwnerName, Rdata};
    use headwater_events::ids::EdgeId;
    use uuid::Uuid;

    fn endpoints() -> Endpoints {
        let edge = |n| EdgeId::from_uuid(Uuid::from_u128(n));
        let of = |addresses: &[&str]| addresses.iter().map(|text| text.parse().unwrap()).collect();
        let edges = [(edge(1), of(&["9.9.9.9", "2606:4700::1"])), (edge(2), of(&["1.1.1.1", "9.9.9.9"]))];
        Endpoints {
            zone: DomainName::parse("edge.example.net").unwrap(),
            ttl: 60,
            pools: [(SHARED_POOL.to_owned(), edges.into())].into(),
        }
    }

    fn shown(zone: &str, owner: &str, mark_with: RrType, endpoints: Option<&Endpoints>) -> Vec<String> {
        let zone = DomainName::parse(zone).unwrap();
        let key = OwnerName::parse(owner, &zone).unwrap().key();
        let text = RrsetData { ttl: 300, records: vec!["\"kept\"".into()] };
        let mut rrsets = BTreeMap::from([(mark_with, mark()), (RrType::TXT, text)]);
        expand(&zone, &key, &mut rrsets, endpoints);
        assert!(rrsets.remove(&RrType::TXT).is_some());
        for (rrtype, data) in &rrsets {
            for record in &data.records {
                assert_eq!(Rdata::parse(*rrtype, record, &zone).unwrap().as_text(), record, "canonical");
            }
        }
        rrsets.iter().map(|(ty, data)| format!("{ty} {} {}", data.ttl, data.records.join(" "))).collect()
    }

    /// Given a zone, an owner and a mark, then these RRsets.
    #[test]
    fn marks_become_answers() {
        let some = endpoints();
        let addresses = ["A 60 1.1.1.1 9.9.9.9", "AAAA 60 2606:4700::1"];
        let rows: [(&str, &str, RrType, &[&str]); 5] = [
            ("example.com", "@", PROXIED, &addresses),
            ("example.com", "www", PROXIED, &["CNAME 60 shared.edge.example.net."]),
            ("edge.example.net", "shared", POOL, &addresses),
            ("edge.example.net", "www", PROXIED, &["CNAME 60 shared.edge.example.net."]),
            // The zone that was the platform's own before.
            ("old.example.net", "shared", POOL, &[]),
        ];
        for (zone, owner, mark_with, expected) in rows {
            assert_eq!(shown(zone, owner, mark_with, Some(&some)), expected, "{owner} of {zone}");
            assert!(shown(zone, owner, mark_with, None).is_empty(), "{owner} of {zone}");
        }
    }
}
