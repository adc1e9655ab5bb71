//! What the platform makes of every zone, against what clients send of it: the NS set and the SOA of the apex, and what
//! answers for proxied names. The same is taken for granted; anything else is refused by a text that says what is so,
//! because a client that is told nothing would send it again for ever.

use headwater_events::dns::{DomainName, OwnerName, RrType};
use headwater_events::event::DnsIdentity;
use serde_json::Value;

use crate::query::rrsets::ShownRrset;

/// The apex of every zone.
pub struct Apex {
    nameservers: Vec<String>,
    soa: Option<String>,
}

impl Apex {
    /// As the platform says it.
    pub fn new(identity: Option<&DnsIdentity>) -> Self {
        let Some(identity) = identity else { return Self { nameservers: Vec::new(), soa: None } };
        let mut nameservers: Vec<String> =
            identity.nameservers.iter().map(|name| format!("{name}.")).collect();
        nameservers.sort_unstable();
        let soa = identity.nameservers.first().map(|primary| {
            let (refresh, retry) = (identity.refresh, identity.retry);
            let (expire, minimum) = (identity.expire, identity.minimum);
            format!("{primary}. {}. {refresh} {retry} {expire} {minimum}", identity.hostmaster)
        });
        Self { nameservers, soa }
    }

    /// Whether an RRset is one that the platform makes.
    pub fn is_here(owner: &OwnerName, rrtype: RrType) -> bool {
        owner.is_apex() && matches!(rrtype, RrType::NS | RrType::SOA)
    }

    /// What is wrong with records of the apex; nothing where they say what is so. Serials are the platform's.
    pub fn differs(&self, rrtype: RrType, contents: &[&str]) -> Option<String> {
        let lower = |text: &str| text.split_whitespace().map(str::to_ascii_lowercase).collect::<Vec<_>>();
        if rrtype == RrType::NS {
            let mut sent: Vec<String> = contents.iter().map(|text| lower(text).join(" ")).collect();
            sent.sort_unstable();
            sent.dedup();
            return (sent != self.nameservers).then(|| self.told(rrtype));
        }
        let [one] = contents else { return Some(self.told(rrtype)) };
        let mut sent = lower(one);
        if sent.len() == 7 {
            sent.remove(2);
        }
        (Some(sent.join(" ")) != self.soa).then(|| self.told(rrtype))
    }

    /// What is so.
    pub fn told(&self, rrtype: RrType) -> String {
        if rrtype == RrType::NS {
            let names = self.nameservers.join(", ");
            return format!(
                "the nameservers of a zone come from the platform ({names}): leave them out, or send these"
            );
        }
        let soa = self.soa.as_deref().unwrap_or_default();
        format!("the SOA comes from the platform ({soa}, beside the serial): leave it out, or send this")
    }

    /// What is wrong with the nameservers of a new zone.
    pub fn nameservers(&self, sent: &[&str]) -> Option<String> {
        if let Some(bad) = sent.iter().find(|name| !name.ends_with('.')) {
            return Some(format!("Nameserver is not canonical: '{bad}'"));
        }
        if sent.is_empty() { None } else { self.differs(RrType::NS, sent) }
    }
}

/// The contents of records as they were sent; what is none is left to others.
pub fn contents(records: &[Value]) -> Vec<&str> {
    records.iter().filter_map(|record| record.get("content")?.as_str()).collect()
}

/// Why an answer cannot be taken away, where the platform makes it.
pub fn answered(
    answers: &[ShownRrset],
    owner: &OwnerName,
    rrtype: RrType,
    zone: &DomainName,
) -> Option<String> {
    let found = answers.iter().find(|one| one.owner == *owner && one.rrtype == rrtype)?;
    let manager = found.managed_by().unwrap_or_default();
    Some(format!(
        "it is managed by the {manager}, because {} is proxied: delete the hostname first",
        owner.absolute(zone)
    ))
}
