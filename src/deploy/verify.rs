//! Reading back: what a listener answers is what was activated. Asked of each listener that clients meet, many
//! questions at once, with short retries: a name server may need a moment, and a query may be lost.

use super::cluster::ClusterRow;
use super::dns::{self, Answer};
use super::fence::serial_before;
use super::sample::{Expect, Sample};
use domain::base::iana::Rcode;
use futures_util::stream::{self, StreamExt};
use headwater_events::dns::{DomainName, RrType};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::time::Instant;

/// Zones that are asked about at once.
const IN_FLIGHT_MAX_ZONES: usize = 48;
/// How long an answer may lag behind the activation before the deployment waits for it.
pub const VERIFY_LIMIT: Duration = Duration::from_millis(1_000);
/// The first pause between two tries; each further one is twice as long.
const RETRY_PAUSE: Duration = Duration::from_millis(10);

/// What must be seen of a zone.
#[derive(Debug, Clone)]
pub struct Check {
    /// The zone.
    pub zone: DomainName,
    /// Its serial; none when it must not be served any more.
    pub serial: Option<u32>,
    /// What else is asked.
    pub samples: Vec<Sample>,
}

/// What was seen: nothing wrong, or the first thing that was.
pub type Seen = Result<(), String>;

/// Checks many zones at each listener of a cluster. The answers are in the order of the checks.
pub async fn verify(cluster: &ClusterRow, checks: &[Check]) -> Vec<Seen> {
    let deadline = Instant::now() + VERIFY_LIMIT;
    let listeners: Vec<_> = cluster.listeners().collect();
    let one = |check: Check| check_all(listeners.clone(), check, deadline);
    stream::iter(checks.to_vec()).map(one).buffered(IN_FLIGHT_MAX_ZONES).collect().await
}

async fn check_all(listeners: Vec<(&'static str, SocketAddr)>, check: Check, deadline: Instant) -> Seen {
    for (what, server) in listeners {
        let seen = check_until(server, &check, deadline).await;
        seen.map_err(|fault| format!("{what} at {server}: {fault}"))?;
    }
    Ok(())
}

async fn check_until(server: SocketAddr, check: &Check, deadline: Instant) -> Seen {
    let mut pause = RETRY_PAUSE;
    loop {
        let seen = check_once(server, check).await;
        if seen.is_ok() || Instant::now() + pause >= deadline {
            return seen;
        }
        tokio::time::sleep(pause).await;
        pause *= 2;
    }
}

async fn check_once(server: SocketAddr, check: &Check) -> Seen {
    let zone = check.zone.as_str();
    let answer = dns::ask(server, zone, RrType::SOA).await.map_err(|error| format!("{zone} SOA: {error}"))?;
    match (check.serial, answer.soa_serial()) {
        (None, None) if answer.rcode != Rcode::SERVFAIL => return Ok(()),
        (None, None) => return Err(format!("{zone} SOA: SERVFAIL")),
        (None, Some(serial)) => return Err(format!("{zone} is still served, with serial {serial}")),
        (Some(wanted), None) => {
            return Err(format!("{zone} SOA: {}, serial {wanted} expected", answer.rcode));
        }
        (Some(wanted), Some(serial)) if serial_before(serial, wanted) => {
            return Err(format!("{zone} has serial {serial}, {wanted} expected"));
        }
        // Overtaken already: the samples are those of a former state.
        (Some(wanted), Some(serial)) if serial != wanted => return Ok(()),
        _ if !answer.authoritative => return Err(format!("{zone} is answered without authority")),
        _ => {}
    }
    for sample in &check.samples {
        check_sample(server, sample).await?;
    }
    Ok(())
}

async fn check_sample(server: SocketAddr, sample: &Sample) -> Seen {
    let (name, rrtype) = (&sample.name, sample.rrtype);
    let answer = dns::ask(server, name, rrtype).await.map_err(|error| format!("{name} {rrtype}: {error}"))?;
    let set = |records| Answer::rdata(records, rrtype).map(<[u8]>::to_vec).collect::<BTreeSet<_>>();
    let right = match &sample.expect {
        Expect::Answer(rdata) => answer.rcode == Rcode::NOERROR && set(&answer.answer) == *rdata,
        Expect::Referral(rdata) => {
            answer.rcode == Rcode::NOERROR
                && (set(&answer.authority) == *rdata || set(&answer.answer) == *rdata)
        }
        Expect::Gone => {
            matches!(answer.rcode, Rcode::NOERROR | Rcode::NXDOMAIN) && set(&answer.answer).is_empty()
        }
    };
    if right {
        Ok(())
    } else {
        Err(format!("{name} {rrtype} is not answered as deployed ({})", answer.rcode))
    }
}
