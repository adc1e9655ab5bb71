//! Whether the world is sent to us for a domain: what the name servers of its parent say, which a resolver finds.

use headwater_events::dns::{DomainName, Rdata, RrType};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::{Asked, Hop};
use crate::deploy::dns::{self, QueryError};

/// Where name servers answer.
const DNS_PORT: u16 = 53;
/// Name servers of the parent that are tried.
const PARENT_MAX_SERVERS: usize = 2;
/// Names above the domain that are tried for the parent zone.
const PARENT_MAX_LABELS: usize = 4;

/// The hop.
pub(super) async fn hop(asked: &Asked<'_>) -> Hop {
    let zone = &asked.stored.state.name;
    let Some(resolver) = asked.app.config.dns.resolver else {
        return Hop::unknown(
            "delegation",
            "no resolver is configured (resolver in [dns]), so the parent is not asked",
        );
    };
    let ours = asked.platform.identity.iter().flat_map(|identity| &identity.nameservers);
    let ours: BTreeSet<String> = ours.map(ToString::to_string).collect();
    match delegated(resolver, DNS_PORT, zone).await {
        Ok(theirs) => judge(zone, &ours, &theirs),
        Err(why) => Hop::unknown("delegation", why),
    }
}

fn judge(zone: &DomainName, ours: &BTreeSet<String>, theirs: &BTreeSet<String>) -> Hop {
    let list = |names: &BTreeSet<String>| names.iter().cloned().collect::<Vec<_>>().join(", ");
    if theirs.is_empty() {
        let detail = format!("the parent delegates {zone} to nobody: enter {} at its registrar", list(ours));
        return Hop::broken("delegation", detail);
    }
    let foreign: BTreeSet<String> = theirs.difference(ours).cloned().collect();
    match foreign.is_empty() {
        true => Hop::ok("delegation", format!("the parent delegates {zone} to {}", list(theirs))),
        false => Hop::broken(
            "delegation",
            format!(
                "the parent delegates {zone} to {} too: enter {} alone at its registrar",
                list(&foreign),
                list(ours)
            ),
        ),
    }
}

/// What the name servers of the parent say.
async fn delegated(resolver: SocketAddr, port: u16, zone: &DomainName) -> Result<BTreeSet<String>, String> {
    let told = |error: QueryError| format!("the resolver {resolver} does not answer: {error}");
    for parent in zone.ancestors().take(PARENT_MAX_LABELS) {
        let found = dns::resolve(resolver, parent.as_str(), RrType::NS).await.map_err(told)?;
        let servers: Vec<String> = names(dns::Answer::rdata(&found.answer, RrType::NS)).into_iter().collect();
        for server in servers.iter().take(PARENT_MAX_SERVERS) {
            let address = dns::resolve(resolver, server, RrType::A).await.map_err(told)?;
            let mut octets =
                address.answer.iter().filter(|one| one.rrtype == RrType::A).map(|one| one.rdata.as_slice());
            let Some(Ok(address)) = octets.next().map(<[u8; 4]>::try_from) else { continue };
            let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::from(address)), port);
            if let Ok(answer) = dns::ask(address, zone.as_str(), RrType::NS).await {
                let all = answer.answer.iter().chain(&answer.authority);
                return Ok(names(
                    all.filter(|one| one.of_question && one.rrtype == RrType::NS)
                        .map(|one| one.rdata.as_slice()),
                ));
            }
        }
        if !servers.is_empty() {
            return Err(format!("no name server of {parent} could be asked for {zone}"));
        }
    }
    Err(format!("no parent of {zone} was found"))
}

/// The names in NS records, without the final dot.
fn names<'r>(rdata: impl Iterator<Item = &'r [u8]>) -> BTreeSet<String> {
    let text = |octets: &[u8]| Rdata::from_wire(RrType::NS, octets).ok();
    rdata.filter_map(text).map(|rdata| rdata.as_text().trim_end_matches('.').to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::HopState;
    use super::*;

    #[test]
    fn who_is_delegated_to_is_compared() {
        let zone = DomainName::parse("example.com").unwrap();
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
        let ours = set(&["ns1.example.net", "ns2.example.net"]);
        let rows = [
            (vec![], HopState::Broken),
            (vec!["ns1.example.net"], HopState::Ok),
            (vec!["ns1.example.net", "ns2.example.net"], HopState::Ok),
            (vec!["ns1.example.net", "ns.other.net"], HopState::Broken),
            (vec!["ns.other.net"], HopState::Broken),
        ];
        for (theirs, state) in rows {
            assert_eq!(judge(&zone, &ours, &set(&theirs)).state, state, "{theirs:?}");
        }
    }
}
