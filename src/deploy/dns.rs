//! Questions to a name server: over UDP, over TCP when the answer is truncated. Nothing is cached and nothing is
//! believed that does not answer the question asked.

use domain::base::iana::{Class, Rcode};
use domain::base::rdata::ComposeRecordData;
use domain::base::{Message, MessageBuilder, Name, ParsedName, Rtype, ToName};
use domain::rdata::AllRecordData;
use headwater_events::dns::{Rdata, RrType};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::Instant;

/// How long one exchange may take.
pub const QUERY_LIMIT: Duration = Duration::from_millis(700);
/// How long the first answer is waited for before the question is sent again; each further wait is twice as long.
const RESEND_PAUSE_MIN: Duration = Duration::from_millis(100);
/// The largest UDP answer that is read.
const UDP_ANSWER_MAX_BYTES: usize = 4_096;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// The name is none.
    #[error("{0} is not a domain name")]
    Name(String),
    /// Nothing came.
    #[error("no answer within {} ms", QUERY_LIMIT.as_millis())]
    Timeout,
    /// The network said no.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// What came cannot be read.
    #[error("a malformed answer")]
    Malformed,
}

/// One record of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its owner; names are equal whatever the case of their letters.
    pub owner: Name<Vec<u8>>,
    /// Whether its owner is the name that was asked.
    pub of_question: bool,
    /// Its TTL in seconds.
    pub ttl: u32,
    /// Its type.
    pub rrtype: RrType,
    /// Its RDATA in canonical octets.
    pub rdata: Vec<u8>,
}

/// What a server answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The response code.
    pub rcode: Rcode,
    /// Whether it claims authority.
    pub authoritative: bool,
    /// The answer section.
    pub answer: Vec<Record>,
    /// The authority section.
    pub authority: Vec<Record>,
    /// The additional section, without what is about the message itself (RFC 6891).
    pub additional: Vec<Record>,
}

impl Answer {
    /// The RDATA of one type at the name that was asked.
    pub fn rdata(records: &[Record], rrtype: RrType) -> impl Iterator<Item = &[u8]> {
        records
            .iter()
            .filter(move |record| record.of_question && record.rrtype == rrtype)
            .map(|record| record.rdata.as_slice())
    }

    /// The serial of the SOA that answers for the name itself.
    pub fn soa_serial(&self) -> Option<u32> {
        let soa = Self::rdata(&self.answer, RrType::SOA).next()?;
        // Two names, then five numbers of four octets, the serial first.
        let numbers = soa.get(soa.len().checked_sub(20)?..)?;
        Some(u32::from_be_bytes(numbers.get(..4)?.try_into().ok()?))
    }
}

/// Asks one question.
///
/// # Errors
/// When no answer to it comes in time.
pub async fn ask(server: SocketAddr, name: &str, rrtype: RrType) -> Result<Answer, QueryError> {
    exchange(server, name, rrtype, false).await
}

/// Asks a resolver, which asks others.
///
/// # Errors
/// When no answer to it comes in time.
pub async fn resolve(server: SocketAddr, name: &str, rrtype: RrType) -> Result<Answer, QueryError> {
    exchange(server, name, rrtype, true).await
}

async fn exchange(
    server: SocketAddr,
    name: &str,
    rrtype: RrType,
    recursion: bool,
) -> Result<Answer, QueryError> {
    let name = Name::<Vec<u8>>::from_str(name).map_err(|_| QueryError::Name(name.to_owned()))?;
    let mut builder = MessageBuilder::new_vec();
    builder.header_mut().set_id(rand::random());
    builder.header_mut().set_rd(recursion);
    let mut question = builder.question();
    question.push((&name, Rtype::from_int(rrtype.code()))).map_err(|_| QueryError::Malformed)?;
    let query = question.into_message();
    let exchange = async {
        let answer = over_udp(server, &query).await?;
        let answer = if answer.header().tc() { over_tcp(server, &query).await? } else { answer };
        read(&answer, &name)
    };
    tokio::time::timeout(QUERY_LIMIT, exchange).await.map_err(|_| QueryError::Timeout)?
}

fn answers(answer: &Message<Vec<u8>>, query: &Message<Vec<u8>>) -> bool {
    answer.header().qr()
        && answer.header().id() == query.header().id()
        && answer.first_question().map(|q| q.qtype()) == query.first_question().map(|q| q.qtype())
}

async fn over_udp(server: SocketAddr, query: &Message<Vec<u8>>) -> Result<Message<Vec<u8>>, QueryError> {
    let any: IpAddr =
        if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(server).await?;
    let mut buffer = vec![0; UDP_ANSWER_MAX_BYTES];
    let mut pause = RESEND_PAUSE_MIN;
    socket.send(query.as_slice()).await?;
    let mut resend = Instant::now() + pause;
    loop {
        // A datagram may be lost, most of all on a busy machine.
        let Ok(received) = tokio::time::timeout_at(resend, socket.recv(&mut buffer)).await else {
            socket.send(query.as_slice()).await?;
            pause *= 2;
            resend = Instant::now() + pause;
            continue;
        };
        let length = received?;
        if let Ok(answer) = Message::from_octets(buffer[..length].to_vec())
            && answers(&answer, query)
        {
            return Ok(answer);
        }
    }
}

async fn over_tcp(server: SocketAddr, query: &Message<Vec<u8>>) -> Result<Message<Vec<u8>>, QueryError> {
    let mut stream = TcpStream::connect(server).await?;
    let length = u16::try_from(query.as_slice().len()).map_err(|_| QueryError::Malformed)?;
    stream.write_all(&[&length.to_be_bytes(), query.as_slice()].concat()).await?;
    let mut answer = vec![0; stream.read_u16().await?.into()];
    stream.read_exact(&mut answer).await?;
    let answer = Message::from_octets(answer).map_err(|_| QueryError::Malformed)?;
    if answers(&answer, query) { Ok(answer) } else { Err(QueryError::Malformed) }
}

fn read(message: &Message<Vec<u8>>, name: &Name<Vec<u8>>) -> Result<Answer, QueryError> {
    let mut sections = [Vec::new(), Vec::new(), Vec::new()];
    let mut section = message.answer().map_err(|_| QueryError::Malformed)?;
    for records in &mut sections {
        for record in section.by_ref() {
            let record = record.map_err(|_| QueryError::Malformed)?;
            if record.class() != Class::IN {
                continue;
            }
            let rrtype = RrType::from_code(record.rtype().to_int());
            let (owner, ttl) = (record.owner().to_vec(), record.ttl().as_secs());
            let of_question = owner == *name;
            let parsed = record
                .to_record::<AllRecordData<_, ParsedName<_>>>()
                .map_err(|_| QueryError::Malformed)?
                .ok_or(QueryError::Malformed)?;
            let mut rdata = Vec::new();
            parsed.data().compose_canonical_rdata(&mut rdata).map_err(|_| QueryError::Malformed)?;
            // Compared with what we parsed ourselves: the same canonical form for both.
            let rdata = Rdata::from_wire(rrtype, &rdata).map_or(rdata, |known| known.wire().to_vec());
            records.push(Record { owner, of_question, ttl, rrtype, rdata });
        }
        match section.next_section().map_err(|_| QueryError::Malformed)? {
            Some(next) => section = next,
            None => break,
        }
    }
    let [answer, authority, additional] = sections;
    let (rcode, authoritative) = (message.header().rcode(), message.header().aa());
    Ok(Answer { rcode, authoritative, answer, authority, additional })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_lost_datagram_is_sent_again() {
        let server = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = server.local_addr().unwrap();
        let asked = tokio::spawn(async move { ask(address, "example.com", RrType::SOA).await });
        let mut buffer = [0; 512];
        // The first question gets no answer; the same question comes once more and is answered.
        let (first, _) = server.recv_from(&mut buffer).await.unwrap();
        let question = buffer[..first].to_vec();
        let (again, client) = server.recv_from(&mut buffer).await.unwrap();
        assert_eq!(buffer[..again], question);
        buffer[2] |= 0x84;
        server.send_to(&buffer[..again], client).await.unwrap();
        assert!(asked.await.unwrap().unwrap().authoritative);
    }
}
