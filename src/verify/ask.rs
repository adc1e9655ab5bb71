//! The questions: a resolver finds who the servers of the parent are, and where; they are asked themselves, without
//! recursion, and so are those that have authority for the domain now.
//!
//! What must hold: no address is asked that the special-purpose registries set apart, nor one of the platform's; a look
//! has a bounded number of questions, and a bounded time.

use domain::base::iana::Rcode;
use futures_util::future::join_all;
use headwater_events::dns::{DomainName, Rdata, RrType};
use headwater_events::domain::challenge;
use headwater_events::domain::destination::Destinations;
use sqlx::Row;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use super::judge::{self, Delegation, Said};
use super::{Due, VerifyError, sql};
use crate::app::App;
use crate::deploy::dns::{self, Answer, QueryError};

/// Where name servers answer.
const DNS_PORT: u16 = 53;
/// Name servers of one zone that are asked.
const SERVERS_MAX_COUNT: usize = 16;
/// Names above a domain that are tried for its parent zone.
const PARENT_MAX_LABELS: usize = 6;
/// How long the questions about one domain may take.
const LOOK_LIMIT: Duration = Duration::from_secs(10);

/// Who asks, for one look at many domains.
pub(crate) struct Asker {
    resolver: SocketAddr,
    port: u16,
    destinations: Destinations,
    /// The platform's names.
    ours: BTreeSet<String>,
    /// The platform's addresses, as far as the clusters say.
    addresses: BTreeSet<SocketAddr>,
}

impl Asker {
    pub(super) async fn new(app: &App, resolver: SocketAddr) -> Result<Self, VerifyError> {
        let platform = crate::query::domains::platform(&app.pool).await?;
        let names = platform.identity.iter().flat_map(|identity| &identity.nameservers);
        let mut ours: BTreeSet<String> = names.map(ToString::to_string).collect();
        let mut addresses = BTreeSet::new();
        for row in sqlx::query(sql::OWN_SERVERS).fetch_all(&app.pool).await? {
            let (at, front): (&str, Option<&str>) = (row.try_get(0)?, row.try_get(1)?);
            let written = [Some(at), front].into_iter().flatten();
            addresses.extend(written.filter_map(|text| text.parse::<SocketAddr>().ok()));
            ours.extend(row.try_get::<Vec<String>, _>(2)?);
        }
        let port = app.config.dns.unsafe_nameserver_port;
        let platform = app.config.sites.destinations.platform.clone();
        let unsafe_allow_loopback = port.is_some();
        let destinations = Destinations { platform, unsafe_allow_loopback, ..Destinations::default() };
        Ok(Self { resolver, port: port.unwrap_or(DNS_PORT), destinations, ours, addresses })
    }

    /// What the servers of the parent say of a domain.
    pub(super) async fn delegation(&self, zone: &DomainName) -> Delegation {
        match tokio::time::timeout(LOOK_LIMIT, self.parents_say(zone)).await {
            Ok(Ok(said)) => judge::delegation(&self.ours, &said),
            Ok(Err(why)) => Delegation::Unknown(why),
            Err(_) => Delegation::Unknown(format!(
                "the servers of the parent did not answer within {} s",
                LOOK_LIMIT.as_secs()
            )),
        }
    }

    async fn parents_say(&self, zone: &DomainName) -> Result<Vec<Said>, String> {
        let told = |error: QueryError| format!("the resolver {} does not answer: {error}", self.resolver);
        for parent in zone.ancestors().take(PARENT_MAX_LABELS) {
            let found = dns::resolve(self.resolver, parent.as_str(), RrType::NS).await.map_err(told)?;
            if !matches!(found.rcode, Rcode::NOERROR | Rcode::NXDOMAIN) {
                return Err(format!(
                    "the resolver {} answers {} for {parent} NS",
                    self.resolver, found.rcode
                ));
            }
            let servers = names(Answer::rdata(&found.answer, RrType::NS));
            if servers.is_empty() {
                continue;
            }
            let foreign = self.foreign(&servers).await;
            if foreign.is_empty() {
                return Err(format!(
                    "no name server of {parent} can be asked: none has an address, or all are the platform's own, \
                     which prove nothing"
                ));
            }
            let asked = foreign.iter().map(|(_, address)| dns::ask(*address, zone.as_str(), RrType::NS));
            return Ok(join_all(asked).await.into_iter().map(said).collect());
        }
        Err("no parent zone was found".to_owned())
    }

    /// Of these servers those that are not the platform's, each with an address that may be asked.
    async fn foreign(&self, servers: &BTreeSet<String>) -> Vec<(String, SocketAddr)> {
        let others =
            servers.iter().filter(|name| !self.ours.contains(*name)).take(SERVERS_MAX_COUNT).cloned();
        let found = others.map(|name| async move {
            let address = self.address(&name).await;
            (name, address)
        });
        let found = join_all(found).await.into_iter();
        found.filter_map(|(name, address)| Some((name, address?))).collect()
    }

    async fn address(&self, server: &str) -> Option<SocketAddr> {
        for rrtype in [RrType::A, RrType::AAAA] {
            // A resolver that has no answer of one kind may have one of the other.
            let Ok(found) = dns::resolve(self.resolver, server, rrtype).await else { continue };
            let usable = found.answer.iter().filter(|one| one.rrtype == rrtype).find_map(|one| {
                let address = SocketAddr::new(address(&one.rdata)?, self.port);
                self.permits(address).then_some(address)
            });
            if usable.is_some() {
                return usable;
            }
        }
        None
    }

    fn permits(&self, address: SocketAddr) -> bool {
        self.destinations.permit(address.ip()).is_ok()
            && !self.addresses.iter().any(|own| match self.port {
                // Behind its public address a server may listen elsewhere.
                DNS_PORT => own.ip() == address.ip(),
                _ => *own == address,
            })
    }

    /// Looks for the challenge at the servers that have authority for a domain now.
    ///
    /// # Errors
    /// What they show instead; none where none of them answers.
    pub(super) async fn challenge(&self, due: &Due, found: &Delegation) -> Result<String, Option<String>> {
        let servers: BTreeSet<String> = found.servers().cloned().collect();
        let (name, value) = challenge(due.id, due.tenant, &due.name);
        let look = async {
            let foreign = self.foreign(&servers).await;
            join_all(foreign.into_iter().map(|(server, address)| {
                let name = &name;
                async move { (server, txt(dns::ask(address, name, RrType::TXT).await)) }
            }))
            .await
        };
        let answers = tokio::time::timeout(LOOK_LIMIT, look).await.map_err(|_| None)?;
        judge::shown(&name, &value, &answers)?;
        Ok(format!("every server that has authority for it now shows {value} at {name}"))
    }
}

/// What one server of the parent says.
fn said(answer: Result<Answer, QueryError>) -> Said {
    let Ok(answer) = answer else { return Said::Silent };
    let mut to = names(Answer::rdata(&answer.authority, RrType::NS));
    if answer.authoritative {
        to.extend(names(Answer::rdata(&answer.answer, RrType::NS)));
    }
    match (to.is_empty(), answer.rcode) {
        (false, Rcode::NOERROR) => Said::Delegated(to),
        (true, Rcode::NOERROR | Rcode::NXDOMAIN) if answer.authoritative => Said::Nobody,
        _ => Said::Silent,
    }
}

/// The texts that one server shows with authority.
fn txt(answer: Result<Answer, QueryError>) -> Option<Vec<String>> {
    let answer = answer
        .ok()
        .filter(|answer| answer.authoritative && matches!(answer.rcode, Rcode::NOERROR | Rcode::NXDOMAIN))?;
    Some(Answer::rdata(&answer.answer, RrType::TXT).map(joined).collect())
}

/// The character-strings of a TXT record, one after the other.
fn joined(mut rdata: &[u8]) -> String {
    let mut octets = Vec::new();
    while let Some((length, rest)) = rdata.split_first() {
        let (part, rest) = rest.split_at(usize::from(*length).min(rest.len()));
        octets.extend_from_slice(part);
        rdata = rest;
    }
    String::from_utf8_lossy(&octets).into_owned()
}

fn address(rdata: &[u8]) -> Option<IpAddr> {
    let four = <[u8; 4]>::try_from(rdata).map(|octets| Ipv4Addr::from(octets).into());
    four.or_else(|_| <[u8; 16]>::try_from(rdata).map(|octets| Ipv6Addr::from(octets).into())).ok()
}

/// The names in NS records, without the final dot.
fn names<'r>(rdata: impl Iterator<Item = &'r [u8]>) -> BTreeSet<String> {
    let text = |octets: &[u8]| Rdata::from_wire(RrType::NS, octets).ok();
    rdata.filter_map(text).map(|rdata| rdata.as_text().trim_end_matches('.').to_ascii_lowercase()).collect()
}
