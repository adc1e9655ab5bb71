//! Small name servers that say what a test wants them to, over UDP and TCP: those of a parent, those that have authority
//! now, and a resolver that knows where they are.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::str::FromStr;
use std::sync::{Arc, Mutex};

use domain::base::iana::Rcode;
use domain::base::rdata::UnknownRecordData;
use domain::base::{Message, MessageBuilder, Name, Rtype, Ttl};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UdpSocket};
use tokio::task::JoinHandle;

/// What a server says to one question.
#[derive(Clone, Debug)]
pub enum Says {
    /// Nothing at all.
    Nothing,
    /// A response code, with or without authority, and records: of the answer, then of the authority section.
    Answer(Rcode, bool, Vec<Record>, Vec<Record>),
    /// Over UDP that it is too large, over TCP this.
    Large(Box<Says>),
}

/// An owner, a type and RDATA in octets.
type Record = (String, Rtype, Vec<u8>);

fn wire(name: &str) -> Vec<u8> {
    Name::<Vec<u8>>::from_str(name).unwrap().as_slice().to_vec()
}

/// A referral to these names.
pub fn referral(zone: &str, to: &[&str]) -> Says {
    let records = to.iter().map(|name| (zone.to_owned(), Rtype::NS, wire(name))).collect();
    Says::Answer(Rcode::NOERROR, false, Vec::new(), records)
}

/// There is no such name, says who knows.
pub fn nobody() -> Says {
    Says::Answer(Rcode::NXDOMAIN, true, Vec::new(), Vec::new())
}

/// It is refused.
pub fn refused() -> Says {
    Says::Answer(Rcode::REFUSED, false, Vec::new(), Vec::new())
}

/// A TXT record of these texts, with authority or without.
pub fn txt(name: &str, texts: &[&str], authority: bool) -> Says {
    let octets = |text: &&str| {
        // Split, as longer ones are.
        let (one, other) = text.as_bytes().split_at(text.len() / 2);
        [&[u8::try_from(one.len()).unwrap()], one, &[u8::try_from(other.len()).unwrap()], other].concat()
    };
    let records = texts.iter().map(|text| (name.to_owned(), Rtype::TXT, octets(text))).collect();
    Says::Answer(Rcode::NOERROR, authority, records, Vec::new())
}

/// An alias that leads back to itself.
pub fn circle(name: &str) -> Says {
    let alias = (name.to_owned(), Rtype::CNAME, wire(name));
    Says::Answer(Rcode::NOERROR, true, vec![alias], Vec::new())
}

/// The questions that a server answers; the others it refuses.
pub type Script = Arc<Mutex<HashMap<(String, Rtype), Says>>>;

/// A server that runs while this is there.
pub struct Server {
    pub address: SocketAddr,
    script: Script,
    tasks: [JoinHandle<()>; 2],
}

impl Drop for Server {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl Server {
    async fn bind(ip: Ipv4Addr, port: u16) -> Option<Self> {
        let udp = UdpSocket::bind((ip, port)).await.ok()?;
        let address = udp.local_addr().unwrap();
        let tcp = TcpListener::bind(address).await.ok()?;
        let script = Script::default();
        let (one, other) = (script.clone(), script.clone());
        let tasks = [tokio::spawn(over_udp(udp, one)), tokio::spawn(over_tcp(tcp, other))];
        Some(Self { address, script, tasks })
    }

    /// Says this from now on.
    pub fn says(&self, name: &str, rtype: Rtype, says: Says) {
        self.script.lock().unwrap().insert((name.to_owned(), rtype), says);
    }
}

async fn over_udp(socket: UdpSocket, script: Script) {
    let mut buffer = [0; 1_024];
    while let Ok((length, client)) = socket.recv_from(&mut buffer).await {
        if let Some(answer) = answer(&script, &buffer[..length], false) {
            let _sent = socket.send_to(&answer, client).await;
        }
    }
}

async fn over_tcp(listener: TcpListener, script: Script) {
    while let Ok((mut stream, _)) = listener.accept().await {
        let mut question = vec![0; usize::from(stream.read_u16().await.unwrap_or(0))];
        if stream.read_exact(&mut question).await.is_ok()
            && let Some(answer) = answer(&script, &question, true)
        {
            let length = u16::try_from(answer.len()).unwrap();
            let _sent = stream.write_all(&[&length.to_be_bytes(), answer.as_slice()].concat()).await;
        }
    }
}

fn answer(script: &Script, question: &[u8], tcp: bool) -> Option<Vec<u8>> {
    let query = Message::from_octets(question).ok()?;
    let asked = query.first_question()?;
    let name = asked.qname().to_string().to_ascii_lowercase();
    let says = script.lock().unwrap().get(&(name, asked.qtype())).cloned().unwrap_or_else(refused);
    let (says, cut) = match says {
        Says::Large(says) if tcp => (*says, false),
        Says::Large(_) => (referral("unused", &[]), true),
        says => (says, false),
    };
    let Says::Answer(rcode, authority, answers, authorities) = says else { return None };
    let mut builder = MessageBuilder::new_vec().start_answer(&query, rcode).ok()?;
    builder.header_mut().set_aa(authority);
    builder.header_mut().set_tc(cut);
    let record = |(owner, rtype, rdata): &Record| {
        let rdata = UnknownRecordData::from_octets(*rtype, rdata.clone()).unwrap();
        (Name::<Vec<u8>>::from_str(owner).unwrap(), Ttl::from_secs(60), rdata)
    };
    for one in &answers {
        builder.push(record(one)).ok()?;
    }
    let mut builder = builder.authority();
    for one in &authorities {
        builder.push(record(one)).ok()?;
    }
    Some(builder.finish())
}

/// A resolver, two servers of `test`, and two servers of somebody else, all but the resolver at one port.
pub struct World {
    pub resolver: Server,
    pub parents: [Server; 2],
    pub others: [Server; 2],
}

/// The names of the others.
pub const OTHERS: [&str; 2] = ["ns1.other.example", "ns2.other.example"];

impl World {
    pub async fn start() -> Self {
        let resolver = Server::bind(Ipv4Addr::new(127, 0, 0, 10), 0).await.unwrap();
        // The port that one got need not be free everywhere.
        let (parents, others) = loop {
            let Some(first) = Server::bind(Ipv4Addr::new(127, 0, 0, 11), 0).await else { continue };
            let at = |last| Server::bind(Ipv4Addr::new(127, 0, 0, last), first.address.port());
            if let (Some(second), Some(one), Some(other)) = (at(12).await, at(13).await, at(14).await) {
                break ([first, second], [one, other]);
            }
        };
        let name = |server: &str, ip: SocketAddr| {
            let SocketAddr::V4(ip) = ip else { unreachable!() };
            let record = (server.to_owned(), Rtype::A, ip.ip().octets().to_vec());
            resolver.says(server, Rtype::A, Says::Answer(Rcode::NOERROR, false, vec![record], Vec::new()));
        };
        name("a.nic.example", parents[0].address);
        name("b.nic.example", parents[1].address);
        name(OTHERS[0], others[0].address);
        name(OTHERS[1], others[1].address);
        let servers = ["a.nic.example", "b.nic.example"];
        let records = servers.iter().map(|name| ("test".to_owned(), Rtype::NS, wire(name))).collect();
        resolver.says("test", Rtype::NS, Says::Answer(Rcode::NOERROR, false, records, Vec::new()));
        Self { resolver, parents, others }
    }

    /// The configuration of who asks them.
    pub fn config(&self) -> String {
        let (resolver, port) = (self.resolver.address, self.parents[0].address.port());
        format!("[dns]\nresolver = '{resolver}'\nunsafe_nameserver_port = {port}\n")
    }

    /// What each server of the parent says of a domain.
    pub fn parents_say(&self, zone: &str, says: [Says; 2]) {
        for (server, says) in self.parents.iter().zip(says) {
            server.says(zone, Rtype::NS, says);
        }
    }

    /// What both say of it.
    pub fn delegates(&self, zone: &str, to: &[&str]) {
        self.parents_say(zone, [referral(zone, to), referral(zone, to)]);
    }
}
