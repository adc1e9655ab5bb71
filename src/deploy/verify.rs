//! Reading back: what a listener answers is what was activated. Asked of each listener that clients meet, many
//! questions at once, with short retries: a name server may need a moment, and a query may be lost.

use super::cluster::Target;
use super::dns::{self, Answer};
use super::fence::serial_before;
use super::sample::{Expect, SAMPLES_MAX_RRSETS, Sample};
use domain::base::iana::Rcode;
use futures_util::stream::{self, Stream, StreamExt};
use headwater_events::dns::{DomainName, RrType};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Zones of a cluster that are asked about at once: more of them overflow the buffer of a socket, or keep a name server
/// so busy that every answer is late.
pub(super) const IN_FLIGHT_MAX_ZONES: usize = 16;
/// RRsets that are asked of all zones together, beyond one of each.
const SAMPLES_MAX_OF_ALL: usize = 32;
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

/// Checks many zones at the listeners of a cluster; gives each outcome, with the place of its check, as it is known. A
/// zone that nobody needs to see any more when its turn comes is not asked about: it gives nothing.
///
/// The PowerDNS itself is asked for the serial, which tells the revision: everything of a revision is committed at once.
/// What stands in front of it is asked for the samples, as clients ask; where nothing does, the PowerDNS is.
pub fn verify<N>(
    target: &Target,
    checks: Vec<Check>,
    needed: N,
) -> impl Stream<Item = (usize, Option<Seen>)> + Unpin + use<N>
where
    N: Fn(usize) -> bool + Clone + Send + 'static,
{
    let (server, front) = (target.cluster.dns, target.cluster.front);
    let turns = Arc::clone(&target.questions);
    let samples = samples_of_each(checks.len());
    let one = move |(at, mut check): (usize, Check)| {
        check.samples.truncate(samples);
        let (turns, needed) = (Arc::clone(&turns), needed.clone());
        Box::pin(async move {
            // The semaphore is never closed.
            let _turn = turns.acquire().await;
            if !needed(at) {
                return (at, None);
            }
            let deadline = Instant::now() + VERIFY_LIMIT;
            (at, Some(check_zone(server, front, &check, deadline).await))
        })
    };
    stream::iter(checks.into_iter().enumerate()).map(one).buffer_unordered(IN_FLIGHT_MAX_ZONES)
}

/// RRsets that are asked of each zone: the more zones are asked about, the fewer.
fn samples_of_each(zones: usize) -> usize {
    (SAMPLES_MAX_OF_ALL / zones.max(1)).clamp(1, SAMPLES_MAX_RRSETS)
}

async fn check_zone(server: SocketAddr, front: Option<SocketAddr>, check: &Check, deadline: Instant) -> Seen {
    let told = |what, address, fault| format!("{what} at {address}: {fault}");
    let at_server = async |asked| {
        let seen = check_until(server, check, asked, deadline).await;
        seen.map_err(|fault| told("PowerDNS", server, fault))
    };
    let Some(front) = front else { return at_server(Asked::All).await };
    let at_front = async {
        // What stands in front can differ in what it has cached, name by name: there the samples tell, and the serial
        // only where there are none.
        let asked = if check.samples.is_empty() { Asked::Serial } else { Asked::Samples };
        let seen = check_until(front, check, asked, deadline).await;
        seen.map_err(|fault| told("dnsdist", front, fault))
    };
    let (behind, before) = tokio::join!(at_server(Asked::Serial), at_front);
    behind.and(before)
}

/// What a listener is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    Serial,
    /// The samples; the serial only when one of them is not as expected, since it may be newer.
    Samples,
    All,
}

async fn check_until(server: SocketAddr, check: &Check, asked: Asked, deadline: Instant) -> Seen {
    let mut pause = RETRY_PAUSE;
    loop {
        let seen = match asked {
            Asked::Serial => check_serial(server, check).await.map(|_| ()),
            Asked::All => check_all(server, check).await,
            Asked::Samples => match check_samples(server, check).await {
                Ok(()) => Ok(()),
                Err(_) => check_all(server, check).await,
            },
        };
        if seen.is_ok() || Instant::now() + pause >= deadline {
            return seen;
        }
        tokio::time::sleep(pause).await;
        pause *= 2;
    }
}

async fn check_all(server: SocketAddr, check: &Check) -> Seen {
    match check_serial(server, check).await? {
        Revision::Expected => check_samples(server, check).await,
        Revision::Newer | Revision::None => Ok(()),
    }
}

/// What a serial that is right says.
enum Revision {
    /// What was activated is served.
    Expected,
    /// Overtaken already: the samples are those of a former state.
    Newer,
    /// The zone is not served, as it should be.
    None,
}

async fn check_serial(server: SocketAddr, check: &Check) -> Result<Revision, String> {
    let zone = check.zone.as_str();
    let answer = dns::ask(server, zone, RrType::SOA).await.map_err(|error| format!("{zone} SOA: {error}"))?;
    match (check.serial, answer.soa_serial()) {
        (None, None) if answer.rcode != Rcode::SERVFAIL => Ok(Revision::None),
        (None, None) => Err(format!("{zone} SOA: SERVFAIL")),
        (None, Some(serial)) => Err(format!("{zone} is still served, with serial {serial}")),
        (Some(wanted), None) => Err(format!("{zone} SOA: {}, serial {wanted} expected", answer.rcode)),
        (Some(wanted), Some(serial)) if serial_before(serial, wanted) => {
            Err(format!("{zone} has serial {serial}, {wanted} expected"))
        }
        (Some(wanted), Some(serial)) if serial != wanted => Ok(Revision::Newer),
        _ if !answer.authoritative => Err(format!("{zone} is answered without authority")),
        _ => Ok(Revision::Expected),
    }
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
