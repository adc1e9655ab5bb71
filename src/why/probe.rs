//! Questions to the real listeners of a cluster, and what their answers say beside what is desired.

use domain::base::iana::Rcode;
use headwater_events::dns::{DomainName, Rdata, RrType};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::sync::Semaphore;

use super::desired::Answer;
use crate::deploy::dns::{self, QueryError};
use crate::deploy::{self, ClusterRow};

/// Listeners that this process asks at once, for everybody who asks why.
const PROBES_MAX_COUNT: usize = 32;
/// How long one listener may take, turn and questions together.
const PROBE_LIMIT: Duration = Duration::from_secs(2);

static TURNS: Semaphore = Semaphore::const_new(PROBES_MAX_COUNT);

/// What a listener should say.
#[derive(Debug, Clone)]
pub(super) struct Question {
    pub(super) zone: DomainName,
    /// The absolute name, without the final dot.
    pub(super) name: String,
    pub(super) rrtype: RrType,
    /// The answer, while what is served is what is desired; none otherwise.
    pub(super) expected: Option<Answer>,
    /// The serial that was verified last; none where no zone is meant to be served.
    pub(super) serial: Option<u32>,
}

/// What a listener says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Said {
    /// What it should.
    Right(String),
    /// The right thing as far as can be told while a change is under way.
    Unsure(String),
    /// Nothing at all.
    Silent(String),
    /// It cannot look into its database.
    Blind(String),
    /// It does not have the zone.
    NoZone(String),
    /// It has an older state of the zone.
    Behind(String),
    /// It has the zone, and another answer.
    Differs(String),
    /// It was not asked: too many others are asking.
    Unasked(String),
}

/// Asks a listener.
pub(super) async fn ask(server: SocketAddr, question: &Question) -> Said {
    let asked = async {
        // The semaphore is never closed.
        let _turn = TURNS.acquire().await;
        judge(server, question).await
    };
    let late = |_| Said::Unasked(format!("it was not asked: {PROBES_MAX_COUNT} others are being asked"));
    tokio::time::timeout(PROBE_LIMIT, asked).await.unwrap_or_else(late)
}

fn silent(server: SocketAddr, error: &QueryError) -> Said {
    Said::Silent(format!("{server} does not answer: {error}"))
}

async fn judge(server: SocketAddr, question: &Question) -> Said {
    let soa = match dns::ask(server, question.zone.as_str(), RrType::SOA).await {
        Ok(answer) => answer,
        Err(error) => return silent(server, &error),
    };
    if soa.rcode == Rcode::SERVFAIL {
        return Said::Blind(format!("{server} answers SERVFAIL: it cannot read its database"));
    }
    let serial = match (question.serial, soa.soa_serial()) {
        (None, None) => return Said::Right(format!("it does not serve {}, as it should not", question.zone)),
        (None, Some(serial)) => {
            return Said::Unsure(format!("it serves {} (serial {serial}) as it was", question.zone));
        }
        (Some(_), None) => {
            return Said::NoZone(format!(
                "{server} answers {} for {}: it does not have the zone",
                soa.rcode, question.zone
            ));
        }
        (Some(wanted), Some(serial)) if deploy::serial_before(serial, wanted) => {
            return Said::Behind(format!(
                "{server} has serial {serial} of {}, {wanted} was deployed",
                question.zone
            ));
        }
        (Some(_), Some(serial)) => serial,
    };
    let answer = match dns::ask(server, &question.name, question.rrtype).await {
        Ok(answer) => answer,
        Err(error) => return silent(server, &error),
    };
    let told = shown(&answer, question.rrtype);
    match &question.expected {
        None => {
            Said::Unsure(format!("it answers {told} (serial {serial}), of a state that is being replaced"))
        }
        Some(expected) if is_right(&answer, expected, question) => {
            Said::Right(format!("it answers {told} (serial {serial})"))
        }
        Some(_) => Said::Differs(format!(
            "{server} answers {told} for {} {}, which is not what is desired and deployed (serial {serial})",
            question.name, question.rrtype
        )),
    }
}

fn shown(answer: &dns::Answer, rrtype: RrType) -> String {
    let texts = |wanted: RrType| {
        let rdata = dns::Answer::rdata(&answer.answer, wanted);
        let text = |octets: &[u8]| Rdata::from_wire(wanted, octets).map(|rdata| rdata.as_text().to_owned());
        rdata.filter_map(|octets| text(octets).ok()).collect::<Vec<_>>()
    };
    let found = [texts(rrtype), texts(RrType::CNAME)].concat();
    let referral = answer.authority.iter().any(|record| record.rrtype == RrType::NS);
    match (found.is_empty(), answer.rcode) {
        (false, _) => found.join(", "),
        (true, Rcode::NOERROR) if referral => "a referral".to_owned(),
        (true, Rcode::NOERROR) => "that there is no such type".to_owned(),
        (true, rcode) => rcode.to_string(),
    }
}

fn octets(rrtype: RrType, records: &[String], zone: &DomainName) -> BTreeSet<Vec<u8>> {
    let parsed = records.iter().filter_map(|text| Rdata::parse(rrtype, text, zone).ok());
    parsed.map(|rdata| rdata.wire().to_vec()).collect()
}

fn is_right(answer: &dns::Answer, expected: &Answer, question: &Question) -> bool {
    let set =
        |rrtype| dns::Answer::rdata(&answer.answer, rrtype).map(<[u8]>::to_vec).collect::<BTreeSet<_>>();
    let of = |rrtype, records: &[String]| octets(rrtype, records, &question.zone);
    let is_there = answer.rcode == Rcode::NOERROR;
    match expected {
        // The SOA bears a serial, which was judged already.
        Answer::Records(_) if question.rrtype == RrType::SOA => is_there && answer.soa_serial().is_some(),
        Answer::Records(records) => is_there && set(question.rrtype) == of(question.rrtype, records),
        // Where it leads is another name's matter, which may answer otherwise.
        Answer::Alias(records) => set(RrType::CNAME) == of(RrType::CNAME, records),
        Answer::Referral(records) => {
            let named = answer.authority.iter().chain(&answer.answer).filter(|one| one.rrtype == RrType::NS);
            is_there && named.map(|one| one.rdata.clone()).collect::<BTreeSet<_>>() == of(RrType::NS, records)
        }
        Answer::NoData => is_there && set(question.rrtype).is_empty() && set(RrType::CNAME).is_empty(),
        Answer::NoName => answer.rcode == Rcode::NXDOMAIN,
    }
}

/// Whether the database of a cluster answers.
pub(super) async fn database(cluster: &ClusterRow) -> Result<(), String> {
    let asked = async {
        let _turn = TURNS.acquire().await;
        deploy::database_answers(cluster).await
    };
    let late = |_| Err(format!("it does not answer within {} s", PROBE_LIMIT.as_secs()));
    tokio::time::timeout(PROBE_LIMIT, asked).await.unwrap_or_else(late)
}
