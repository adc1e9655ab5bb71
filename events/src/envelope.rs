//! The envelope of an event, as docs/EVENTS.md shows it: complete from the
//! first event on, since nothing can be added to the past. The hash covers
//! every field but the position and chains per stream.

use crate::actor::Actor;
use crate::dns::DomainName;
use crate::event::Event;
use crate::ids::{DomainId, EventId, OperationId, Position, RequestId, Revision, StreamRef, TenantId};
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use uuid::Uuid;

/// The digest under which a client's address and agent stand in an erasable
/// table: BLAKE3 of a random salt and both.
pub type ClientDigest = [u8; 32];

/// A link of the hash chain of a stream.
pub type ChainHash = [u8; 32];

/// What the events of one mutation share: who asked for it, and from where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Provenance {
    /// Who did it.
    pub actor: Actor,
    /// From where, as a digest; none for the control plane itself.
    pub client: Option<ClientDigest>,
    /// The request.
    pub request: RequestId,
    /// `Change-Note`.
    pub note: Option<String>,
    /// The set of changes it belongs to, if several requests make one.
    pub change: Option<Uuid>,
    /// The event that caused it, for what the control plane does by itself.
    pub cause: Option<Position>,
}

/// An event that was decided but has no place in the log yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewEvent {
    /// The stream it will stand in.
    pub stream: StreamRef,
    /// The domain concerned.
    pub domain: Option<(DomainId, DomainName)>,
    /// The tenant concerned.
    pub tenant: Option<TenantId>,
    /// The operation that carries it out.
    pub operation: Option<OperationId>,
    /// What happened.
    pub event: Event,
}

/// An event with everything but its position, which is given last, in the database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sealed {
    /// Its id.
    pub id: EventId,
    /// What was decided.
    pub new: NewEvent,
    /// The stream's revision after the mutation.
    pub revision: Revision,
    /// Its number within the mutation, from 0.
    pub seq: i32,
    /// When it was decided.
    pub at: Timestamp,
    /// Who, from where, why.
    pub provenance: Provenance,
    /// The data, as it will be stored.
    pub data: String,
    /// The chain's new end.
    pub hash: ChainHash,
}

/// An event as it stands in the log, undecoded: what is shown to people and
/// what the hash chain is verified over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// Its place in the log.
    pub position: Position,
    /// Its id.
    pub id: EventId,
    /// Its type.
    pub event_type: String,
    /// The schema of its data.
    pub schema: i16,
    /// The stream it stands in.
    pub stream: StreamRef,
    /// The domain concerned.
    pub domain: Option<(DomainId, DomainName)>,
    /// The tenant concerned.
    pub tenant: Option<TenantId>,
    /// The stream's revision after the mutation.
    pub revision: Revision,
    /// Its number within the mutation, from 0.
    pub seq: i32,
    /// When.
    pub at: Timestamp,
    /// Who, from where, why.
    pub provenance: Provenance,
    /// The operation that carries it out.
    pub operation: Option<OperationId>,
    /// The data as stored.
    pub data: Vec<u8>,
    /// The chain's end at this event.
    pub hash: ChainHash,
}

/// Where a client's request came from; resolved at read, erasable.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Client {
    /// Its address.
    pub ip: String,
    /// Its `User-Agent`.
    pub agent: String,
}

/// Everything the hash covers, borrowed from either side of the log.
struct Covered<'a> {
    id: EventId,
    event_type: &'a str,
    schema: i16,
    stream: StreamRef,
    domain: Option<(DomainId, &'a str)>,
    tenant: Option<TenantId>,
    revision: Revision,
    seq: i32,
    at: Timestamp,
    provenance: &'a Provenance,
    operation: Option<OperationId>,
    data: &'a [u8],
}

/// Writes fields so that no two different sequences give the same octets.
struct FieldWriter(blake3::Hasher);

impl FieldWriter {
    fn bytes(&mut self, octets: &[u8]) {
        self.0.update(&(octets.len() as u64).to_le_bytes());
        self.0.update(octets);
    }

    fn number(&mut self, n: i64) {
        self.0.update(&n.to_le_bytes());
    }

    fn optional(&mut self, octets: Option<&[u8]>) {
        match octets {
            None => {
                self.0.update(&[0]);
            }
            Some(octets) => {
                self.0.update(&[1]);
                self.bytes(octets);
            }
        }
    }

    fn uuid(&mut self, id: Option<Uuid>) {
        self.optional(id.as_ref().map(|id| id.as_bytes().as_slice()));
    }
}

fn chain(previous: Option<&ChainHash>, covered: &Covered<'_>) -> ChainHash {
    let mut w = FieldWriter(blake3::Hasher::new_derive_key("headwater 2026-11 event chain v1"));
    w.optional(previous.map(<[u8; 32]>::as_slice));
    w.uuid(Some(covered.id.as_uuid()));
    w.bytes(covered.event_type.as_bytes());
    w.number(i64::from(covered.schema));
    w.number(i64::from(covered.stream.kind.code()));
    w.uuid(Some(covered.stream.id));
    w.uuid(covered.domain.map(|d| d.0.as_uuid()));
    w.optional(covered.domain.map(|d| d.1.as_bytes()));
    w.uuid(covered.tenant.map(TenantId::as_uuid));
    w.number(covered.revision.get());
    w.number(i64::from(covered.seq));
    w.number(covered.at.as_millis());
    let p = covered.provenance;
    w.number(i64::from(p.actor.kind.code()));
    w.uuid(Some(p.actor.id));
    w.uuid(p.actor.token.map(crate::ids::TokenId::as_uuid));
    w.uuid(p.actor.on_behalf_of.map(crate::ids::UserId::as_uuid));
    w.optional(p.client.as_ref().map(<[u8; 32]>::as_slice));
    w.uuid(Some(p.request.as_uuid()));
    w.uuid(covered.operation.map(OperationId::as_uuid));
    w.optional(p.note.as_deref().map(str::as_bytes));
    w.uuid(p.change);
    w.number(p.cause.map_or(-1, Position::get));
    w.bytes(covered.data);
    *w.0.finalize().as_bytes()
}

impl NewEvent {
    /// Gives the event its number in the stream and extends the hash chain.
    ///
    /// # Errors
    /// When the data cannot be written as JSON, which no event of ours does.
    pub fn seal(
        self,
        id: EventId,
        revision: Revision,
        seq: i32,
        at: Timestamp,
        provenance: &Provenance,
        previous: Option<&ChainHash>,
    ) -> serde_json::Result<Sealed> {
        let data = self.event.to_json()?;
        let hash = chain(
            previous,
            &Covered {
                id,
                event_type: self.event.type_name(),
                schema: self.event.schema(),
                stream: self.stream,
                domain: self.domain.as_ref().map(|(id, name)| (*id, name.as_str())),
                tenant: self.tenant,
                revision,
                seq,
                at,
                provenance,
                operation: self.operation,
                data: data.as_bytes(),
            },
        );
        Ok(Sealed { id, new: self, revision, seq, at, provenance: provenance.clone(), data, hash })
    }
}

impl Recorded {
    /// What the chain's end must be after this event, given its end before.
    pub fn expected_hash(&self, previous: Option<&ChainHash>) -> ChainHash {
        chain(
            previous,
            &Covered {
                id: self.id,
                event_type: &self.event_type,
                schema: self.schema,
                stream: self.stream,
                domain: self.domain.as_ref().map(|(id, name)| (*id, name.as_str())),
                tenant: self.tenant,
                revision: self.revision,
                seq: self.seq,
                at: self.at,
                provenance: &self.provenance,
                operation: self.operation,
                data: &self.data,
            },
        )
    }

    /// The event, lifted to its newest schema.
    ///
    /// # Errors
    /// As [`crate::codec::decode`].
    pub fn decode(&self) -> Result<Event, crate::codec::DecodeError> {
        crate::codec::decode(&self.event_type, self.schema, &self.data)
    }

    /// The envelope of docs/EVENTS.md, as one line of JSON, with the client
    /// resolved (or withheld). Data that is not JSON (somebody altered the row)
    /// is shown as null: the chain's verification names it.
    ///
    /// # Errors
    /// Never for an event that was read from the log.
    pub fn to_json(&self, client: Option<&Client>) -> serde_json::Result<String> {
        let data: Option<&RawValue> = serde_json::from_slice(&self.data).ok();
        serde_json::to_string(&Shown {
            position: self.position,
            id: self.id,
            event_type: &self.event_type,
            schema: self.schema,
            stream: self.stream,
            domain: self.domain.as_ref().map(|(_, name)| name.as_str()),
            tenant: self.tenant,
            revision: self.revision,
            seq: self.seq,
            at: self.at,
            actor: self.provenance.actor,
            client,
            request_id: self.provenance.request,
            operation: self.operation,
            note: self.provenance.note.as_deref(),
            change: self.provenance.change,
            cause: self.provenance.cause,
            hash: hex::encode(self.hash),
            data,
        })
    }
}

/// The envelope as outsiders see it, in the order of the contract.
#[derive(Serialize)]
struct Shown<'a> {
    position: Position,
    id: EventId,
    #[serde(rename = "type")]
    event_type: &'a str,
    schema: i16,
    stream: StreamRef,
    domain: Option<&'a str>,
    tenant: Option<TenantId>,
    revision: Revision,
    seq: i32,
    at: Timestamp,
    actor: Actor,
    client: Option<&'a Client>,
    request_id: RequestId,
    operation: Option<OperationId>,
    note: Option<&'a str>,
    change: Option<Uuid>,
    cause: Option<Position>,
    hash: String,
    data: Option<&'a RawValue>,
}
