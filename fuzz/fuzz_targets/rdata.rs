//! Record data as people write it: two octets choose the type, the rest is the text. What is accepted is its own
//! canonical form, as text and as octets. Accepted values stay in the corpus; a test asks a real PowerDNS for them.

#![no_main]

use headwater_events::dns::{DomainName, Rdata, RrType};
use libfuzzer_sys::{Corpus, fuzz_target};

fuzz_target!(|data: &[u8]| -> Corpus {
    let Some((code, text)) = data.split_first_chunk::<2>() else { return Corpus::Reject };
    let types: Vec<RrType> = RrType::all_writable().collect();
    let index = usize::from(u16::from_be_bytes(*code)) % (types.len() + 1);
    // One more than there are: a type without a name.
    let rrtype = types.get(index).copied().unwrap_or(RrType::from_code(65_280));
    let (Ok(text), Ok(zone)) = (std::str::from_utf8(text), DomainName::parse("example.com")) else {
        return Corpus::Reject;
    };
    let Ok(rdata) = Rdata::parse(rrtype, text, &zone) else { return Corpus::Keep };
    let again = Rdata::parse(rrtype, rdata.as_text(), &zone).expect("the canonical text is accepted");
    assert_eq!(again.as_text(), rdata.as_text(), "the canonical text is its own canonical form");
    assert_eq!(again.wire(), rdata.wire(), "text and octets say the same");
    let back = Rdata::from_wire(rrtype, rdata.wire()).expect("the octets are accepted");
    assert_eq!(back.as_text(), rdata.as_text(), "the octets read back");
    Corpus::Keep
});
