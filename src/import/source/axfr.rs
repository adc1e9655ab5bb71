//! Zones that a primary transfers (RFC 5936): over TCP, from its SOA to its SOA, signed where there is a key. Bounded in
//! time and size; what is not whole is not a zone.

use super::super::room::Room;
use super::tsig::{Key, Verifier};
use super::{Listed, Listing, Place, SourceError};
use crate::deploy::dns;
use domain::base::iana::{Class, Rcode};
use domain::base::rdata::ComposeRecordData;
use domain::base::{Message, MessageBuilder, Name, ParsedName, Rtype, ToName};
use domain::rdata::AllRecordData;
use futures_util::StreamExt;
use headwater_events::dns::{DomainName, RrType};
use headwater_events::migration::{Data, SourceRecord, SourceZone, TsigReference};
use headwater_events::zonetext::RECORDS_MAX_COUNT;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

/// Transfers at once.
const TRANSFERS_MAX_COUNT: usize = 4;
/// How long a connection may take.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// How long the next message may take.
const MESSAGE_MAX: Duration = Duration::from_secs(30);
/// Octets of a transfer, at most.
const TRANSFER_MAX_BYTES: usize = 512 << 20;
/// Serials that are asked for at once.
const QUESTIONS_MAX_COUNT: usize = 32;

/// A primary.
pub struct Primary {
    address: SocketAddr,
    zones: Vec<DomainName>,
    key: Option<Key>,
    turns: Semaphore,
}

/// A transfer as far as it has come.
struct Transfer<'z> {
    zone: &'z mut SourceZone,
    name: Name<Vec<u8>>,
    soa: Option<Vec<u8>>,
    is_whole: bool,
}

fn failed(why: impl Into<String>) -> SourceError {
    SourceError::Zone(why.into())
}

fn malformed<E>(_: E) -> SourceError {
    failed("the primary sends what is no DNS message")
}

impl Primary {
    pub(super) fn open(
        address: SocketAddr,
        zones: &[DomainName],
        tsig: Option<&TsigReference>,
    ) -> Result<Self, SourceError> {
        let key = tsig.map(Key::open).transpose()?;
        Ok(Self { address, zones: zones.to_vec(), key, turns: Semaphore::new(TRANSFERS_MAX_COUNT) })
    }

    pub(super) async fn list(&self, marked: bool) -> Result<Listing, SourceError> {
        let marker = |zone: DomainName| async move {
            // Where it does not answer, the transfer is tried.
            let answer = match marked {
                true => dns::ask(self.address, zone.as_str(), RrType::SOA).await.ok(),
                false => None,
            };
            let marker = answer.and_then(|answer| answer.soa_serial()).map(|serial| serial.to_string());
            Listed {
                called: zone.to_string(),
                place: Place::Name(zone.to_string()),
                name: Ok(zone),
                account: String::new(),
                kind: "axfr".to_owned(),
                marker,
                beside: Vec::new(),
                signed: false,
            }
        };
        let zones = futures_util::stream::iter(self.zones.clone()).map(marker);
        let zones = zones.buffer_unordered(QUESTIONS_MAX_COUNT).collect().await;
        Ok(Listing { zones, notes: Vec::new() })
    }

    pub(super) async fn load(
        &self,
        name: &DomainName,
        zone: &mut SourceZone,
        room: &mut Room,
    ) -> Result<(), SourceError> {
        let _turn = self.turns.acquire().await;
        let of_name = Name::<Vec<u8>>::from_str(name.as_str()).map_err(malformed)?;
        let mut builder = MessageBuilder::new_vec();
        builder.header_mut().set_id(rand::random());
        let mut question = builder.question();
        question.push((&of_name, Rtype::AXFR)).map_err(malformed)?;
        let mut query = question.finish();
        let mut verifier = match &self.key {
            Some(key) => Some(key.sign(&mut query).ok_or_else(|| failed("the question cannot be signed"))?),
            None => None,
        };
        let id = query.get(..2).map(<[u8]>::to_vec).unwrap_or_default();
        let mut stream = self.connect().await?;
        let length = u16::try_from(query.len()).map_err(malformed)?.to_be_bytes();
        let sent = async { stream.write_all(&[&length, query.as_slice()].concat()).await };
        in_time(sent).await?;
        let mut transfer = Transfer { zone, name: of_name, soa: None, is_whole: false };
        let mut octets = 0;
        while !transfer.is_whole {
            let message = next(&mut stream).await?;
            octets += message.len();
            if octets > TRANSFER_MAX_BYTES {
                return Err(failed(format!("the transfer has more than {TRANSFER_MAX_BYTES} octets")));
            }
            if message.get(..2) != Some(id.as_slice()) {
                return Err(malformed(()));
            }
            verified(verifier.as_mut(), &message)?;
            transfer.take(&message)?;
            room.records(transfer.zone.records.len()).await;
            if transfer.zone.records.len() > RECORDS_MAX_COUNT {
                break;
            }
        }
        match verifier.filter(|_| transfer.is_whole) {
            Some(verifier) => verifier.finish().map_err(|error| failed(format!("the primary sends {error}"))),
            None => Ok(()),
        }
    }

    async fn connect(&self) -> Result<TcpStream, SourceError> {
        let away = |why: String| failed(format!("{} does not answer: {why}", self.address));
        match tokio::time::timeout(CONNECT_MAX, TcpStream::connect(self.address)).await {
            Ok(connected) => connected.map_err(|error| away(error.to_string())),
            Err(_) => Err(away(format!("no connection within {} s", CONNECT_MAX.as_secs()))),
        }
    }
}

async fn in_time<T>(work: impl Future<Output = std::io::Result<T>>) -> Result<T, SourceError> {
    match tokio::time::timeout(MESSAGE_MAX, work).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(error)) => Err(failed(format!("the transfer broke off: {error}"))),
        Err(_) => Err(failed(format!("the primary said nothing for {} s", MESSAGE_MAX.as_secs()))),
    }
}

async fn next(stream: &mut TcpStream) -> Result<Vec<u8>, SourceError> {
    in_time(async {
        let mut message = vec![0; stream.read_u16().await?.into()];
        stream.read_exact(&mut message).await?;
        Ok(message)
    })
    .await
}

/// A refusal is told as such, signed or not: nothing of it is believed but that there is no zone.
fn verified(verifier: Option<&mut Verifier<'_>>, message: &[u8]) -> Result<(), SourceError> {
    let Some(verifier) = verifier else { return Ok(()) };
    let told = verifier.take(message);
    if let Err(error) = told {
        let rcode = Message::from_octets(message).map_or(Rcode::NOERROR, |message| message.header().rcode());
        return Err(match rcode {
            Rcode::NOERROR => failed(format!("the primary sends {error}")),
            rcode => failed(format!("the primary answers {rcode} ({error})")),
        });
    }
    Ok(())
}

impl Transfer<'_> {
    fn take(&mut self, message: &[u8]) -> Result<(), SourceError> {
        let message = Message::from_octets(message).map_err(malformed)?;
        let header = message.header();
        if !header.qr() {
            return Err(malformed(()));
        }
        if header.rcode() != Rcode::NOERROR {
            return Err(failed(format!("the primary answers {}", header.rcode())));
        }
        let mut records = 0;
        for record in message.answer().map_err(malformed)? {
            let record = record.map_err(malformed)?;
            records += 1;
            if self.is_whole {
                return Err(failed("the primary sends more behind the end of the zone"));
            }
            let rrtype = RrType::from_code(record.rtype().to_int());
            let is_class = record.class() == Class::IN;
            let is_apex = record.owner() == self.name;
            let (owner, ttl) = (record.owner().to_vec(), record.ttl().as_secs());
            let parsed = record.to_record::<AllRecordData<_, ParsedName<_>>>();
            let parsed = parsed.map_err(malformed)?.ok_or_else(|| malformed(()))?;
            let mut wire = Vec::new();
            parsed.data().compose_canonical_rdata(&mut wire).map_err(malformed)?;
            if rrtype == RrType::SOA && is_apex && is_class {
                self.is_whole = self.soa.as_ref().is_some_and(|first| *first == wire);
                if self.soa.is_some() && !self.is_whole {
                    return Err(failed("the zone changed while it was transferred"));
                }
                if self.is_whole {
                    continue;
                }
                self.soa = Some(wire.clone());
            } else if self.soa.is_none() {
                return Err(failed("the transfer does not begin with the SOA of the zone"));
            }
            if !is_class {
                continue;
            }
            self.zone.records.push(SourceRecord {
                owner: Data::Wire(owner.as_slice().to_vec()),
                rrtype: Some(rrtype.to_string()),
                ttl: Some(i64::from(ttl)),
                data: Data::Wire(wire),
                disabled: false,
            });
        }
        if records == 0 {
            return Err(failed("the primary sends no records"));
        }
        Ok(())
    }
}
