//! Small questions to a server: a DNS query over UDP, an HTTP GET. Nothing is retried here and nothing is cached.

use std::net::{Ipv4Addr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use domain::base::iana::Rcode;
use domain::base::{Message, MessageBuilder, Name, Rtype};
use domain::rdata::AllRecordData;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

/// A name that no zone here holds: a server that lives answers it with REFUSED, one without its database SERVFAIL.
pub const UNHOSTED_NAME: &str = "a.root-servers.net.";
/// The largest UDP answer that is read.
const UDP_ANSWER_MAX_BYTES: usize = 4_096;
/// How much of an HTTP answer is read: the status line is enough.
const HTTP_ANSWER_MAX_BYTES: usize = 1_024;

/// What a DNS server answered.
#[derive(Debug, Clone)]
pub struct DnsAnswer {
    /// The response code.
    pub rcode: Rcode,
    /// Whether the server claims authority.
    pub authoritative: bool,
    /// The RDATA of the answer section in presentation format, in the order of the answer.
    pub rdata: Vec<String>,
}

impl DnsAnswer {
    /// Whether this is a positive answer that holds exactly this RDATA.
    pub fn is_exactly(&self, rdata: &str) -> bool {
        self.rcode == Rcode::NOERROR && self.rdata == [rdata]
    }
}

/// Asks one question over UDP and waits for its answer.
pub async fn dns(server: SocketAddr, name: &str, rtype: Rtype, limit: Duration) -> Result<DnsAnswer> {
    timeout(limit, exchange(server, name, rtype))
        .await
        .with_context(|| format!("no answer from {server} for {name} {rtype} within {limit:?}"))?
        .with_context(|| format!("the question {name} {rtype} to {server} failed"))
}

async fn exchange(server: SocketAddr, name: &str, rtype: Rtype) -> Result<DnsAnswer> {
    let name = Name::<Vec<u8>>::from_str(name).context("this is not a domain name")?;
    let mut builder = MessageBuilder::new_vec();
    builder.header_mut().set_id(rand::random());
    let mut question = builder.question();
    question.push((name, rtype)).context("the question is too long")?;
    let query = question.into_message();

    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).await.context("cannot open a UDP socket")?;
    socket.connect(server).await.context("cannot reach the server")?;
    socket.send(query.as_slice()).await.context("cannot send")?;
    let mut buffer = vec![0; UDP_ANSWER_MAX_BYTES];
    loop {
        let length = socket.recv(&mut buffer).await.context("cannot receive")?;
        let Ok(answer) = Message::from_octets(&buffer[..length]) else {
            continue;
        };
        // A late answer to another question is not ours.
        if answer.header().id() == query.header().id() && answer.header().qr() {
            return read(&answer);
        }
    }
}

fn read(answer: &Message<&[u8]>) -> Result<DnsAnswer> {
    let mut rdata = Vec::new();
    let records = answer.answer().context("the answer is malformed")?;
    for record in records.limit_to::<AllRecordData<_, _>>() {
        rdata.push(record.context("a record of the answer is malformed")?.data().to_string());
    }
    Ok(DnsAnswer { rcode: answer.header().rcode(), authoritative: answer.header().aa(), rdata })
}

/// Sends an HTTP GET and succeeds when the status is 200.
pub async fn http_ok(server: SocketAddr, path: &str, limit: Duration) -> Result<()> {
    let ask = async {
        let mut stream = TcpStream::connect(server).await?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: {server}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.take(HTTP_ANSWER_MAX_BYTES as u64).read_to_end(&mut answer).await?;
        std::io::Result::Ok(answer)
    };
    let answer = timeout(limit, ask)
        .await
        .with_context(|| format!("no answer from http://{server}{path} within {limit:?}"))?
        .with_context(|| format!("cannot ask http://{server}{path}"))?;
    let text = String::from_utf8_lossy(&answer);
    match text.split_ascii_whitespace().nth(1) {
        Some("200") => Ok(()),
        status => bail!("http://{server}{path} answered {}", status.unwrap_or("nothing")),
    }
}
