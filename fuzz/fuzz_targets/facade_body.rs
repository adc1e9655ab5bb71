//! The body of a PATCH as PowerDNS's clients send it.

#![no_main]

use headwater::http::pdns::patch;
use headwater_events::dns::DomainName;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let (Ok(zone), Ok(body)) = (DomainName::parse("example.com"), serde_json::from_slice(data)) else { return };
    // Every fault is told by a text, none by a panic.
    let _read = patch::changes(&body, &zone, None);
});
