//! Zone text. What is accepted and written reads back as itself.

#![no_main]

use headwater_events::dns::DomainName;
use headwater_events::zonetext;
use libfuzzer_sys::fuzz_target;

/// Records of one text, so that a run stays short.
const RECORDS_MAX_COUNT: usize = 2_000;

fuzz_target!(|data: &[u8]| {
    let Ok(zone) = DomainName::parse("example.com") else { return };
    let Ok(read) = zonetext::read(data, &zone, RECORDS_MAX_COUNT) else { return };
    let mut text = String::from("$ORIGIN example.com.\n");
    for one in &read.rrsets {
        let rrset = &one.rrset;
        for record in rrset.records() {
            let (owner, rrtype) = (rrset.owner(), rrset.rr_type());
            text.push_str(&zonetext::line(owner, rrset.ttl().seconds(), rrtype, record.as_text(), false));
        }
    }
    let again = zonetext::read(text.as_bytes(), &zone, RECORDS_MAX_COUNT).expect("what is written is accepted");
    let bodies = |read: &zonetext::ZoneText| read.rrsets.iter().map(|one| one.rrset.clone()).collect::<Vec<_>>();
    assert_eq!(bodies(&again), bodies(&read), "what is written reads back");
});
