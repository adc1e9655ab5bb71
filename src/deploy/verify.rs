//! Reading back: what a listener answers is what was activated. Asked of each listener that clients meet, many
//! questions at once, with short retries: a name server may need a moment, and a query may be lost.

use super::cluster::ClusterRow;
use super::dns::{self, Answer};
use super::fence::serial_before;
use super::sample::{Expect, SAMPLES_MAX_RRSETS, Sample};
use domain::base::iana::Rcode;
use futures_util::stream::{self, Stream, StreamExt};
use headwater_events::dns::{DomainName, RrType};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::time::Instant;

/// Zones of one batch that are asked about at once: more of them overflow the buffer of a socket.
const IN_FLIGHT_MAX_ZONES: usize = 16;
/// RRsets that are asked of all zones together, beyond one of each.
const SAMPLES_MAX_OF_ALL: usize = 64;
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

/// Checks many zones at each listener of a cluster; gives each outcome, with the place of its check, as it is known.
pub fn verify(cluster: &ClusterRow, checks: Vec<Check>) -> impl Stream<Item = (usize, Seen)> + Unpin + use<> {
    let deadline = Instant::now() + VERIFY_LIMIT;
    let listeners: Vec<_> = cluster.listeners().collect();
    let samples = samples_of_each(checks.len());
    let one = move |(at, mut check): (usize, Check)| {
        check.samples.truncate(samples);
        let listeners = listeners.clone();
        Box::pin(async move { (at, check_all(listeners, check, deadline).await) })
    };
    stream::iter(checks.into_iter().enumerate()).map(one).buffer_unordered(IN_FLIGHT_MAX_ZONES)
}

/// RRsets that are asked of each zone: the more zones are asked about, the fewer.
fn samples_of_each(zones: usize) -> usize {
    (SAMPLES_MAX_OF_ALL / zones.max(1)).clamp(1, SAMPLES_MAX_RRSETS)
}

async fn check_all(listeners: Vec<(&'static str, SocketAddr)>, check: Check, deadline: Instant) -> Seen {
    // The first listener is the PowerDNS itself: its serial tells the revision. What stands in front of it can differ
    // in what it has cached, name by name: there the samples tell, and the serial only where there are none.
    let mut behind = false;
    for (what, server) in listeners {
        let serial_first = !behind || check.samples.is_empty();
        let seen = check_until(server, &check, serial_first, deadline).await;
        seen.map_err(|fault| format!("{what} at {server}: {fault}"))?;
        behind = true;
    }
    Ok(())
}

async fn check_until(server: SocketAddr, check: &Check, serial_first: bool, deadline: Instant) -> Seen {
    let mut pause = RETRY_PAUSE;
    loop {
        let seen = match serial_first {
            true => check_once(server, check).await,
            // What is not as expected may be newer: then the serial decides.
            false => match check_samples(server, check).await {
                Ok(()) => Ok(()),
                Err(_) => check_once(server, check).await,
            },
        };
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
    check_samples(server, check).await
}

async fn check_samples(server: SocketAddr, check: &Check) -> Seen {
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
