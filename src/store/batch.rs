//! One batch as the append takes it: everything as columns, one array each.

use chrono::{DateTime, Utc};
use headwater_events::domain::name_key;
use headwater_events::envelope::{ChainHash, ClientDigest, Sealed};
use headwater_events::ids::{BatchId, Revision, RightsNumber, StreamKind, UserId};
use headwater_projections::desired::{Changes, Folded, fold};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

/// A stream's head before and after the batch.
#[derive(Debug, Clone)]
pub(super) struct StreamHead {
    pub(super) kind: StreamKind,
    pub(super) read: Revision,
    pub(super) revision: Revision,
    pub(super) hash: Option<ChainHash>,
}

/// What a unique name is a name of. The numbers are stored: never renumber.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Namespace {
    Domain = 1,
    Email = 2,
    Cluster = 3,
    Tenant = 4,
    /// The rebuild of a projection; its holder is the operation of the newest one.
    Rebuild = 5,
    Edge = 6,
}

/// A claim of a unique name.
#[derive(Debug, Clone)]
pub(super) struct Claim {
    pub(super) ns: Namespace,
    pub(super) name: String,
    pub(super) read: Option<Uuid>,
    pub(super) holder: Uuid,
}

/// The receipt of a command that carried an idempotency key.
#[derive(Debug, Clone)]
pub(super) struct Receipt {
    pub(super) caller: Uuid,
    pub(super) key: Uuid,
    pub(super) request: Vec<u8>,
    pub(super) outcome: String,
}

/// A client, salted.
#[derive(Debug, Clone)]
pub(super) struct SaltedClient {
    pub(super) digest: ClientDigest,
    pub(super) salt: [u8; 16],
    pub(super) ip: String,
    pub(super) agent: String,
}

/// One batch.
#[derive(Debug, Clone)]
pub(super) struct Batch {
    pub(super) id: BatchId,
    pub(super) streams: BTreeMap<Uuid, StreamHead>,
    pub(super) claims: Vec<Claim>,
    pub(super) receipts: Vec<Receipt>,
    /// Users with whose rights it was decided, and the number that these had when they were read.
    pub(super) rights: BTreeMap<UserId, RightsNumber>,
    /// Users whose rights it changes.
    pub(super) changed_rights: BTreeSet<UserId>,
    pub(super) clients: BTreeMap<ClientDigest, SaltedClient>,
    pub(super) changes: Changes,
    /// What stands beside the log: people and token secrets.
    pub(super) aside: Vec<Value>,
    pub(super) events: Vec<Sealed>,
}

impl Batch {
    pub(super) fn new(id: BatchId) -> Self {
        Self {
            id,
            streams: BTreeMap::new(),
            claims: Vec::new(),
            receipts: Vec::new(),
            rights: BTreeMap::new(),
            changed_rights: BTreeSet::new(),
            clients: BTreeMap::new(),
            changes: Changes::default(),
            aside: Vec::new(),
            events: Vec::new(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.events.is_empty() && self.receipts.is_empty()
    }

    /// Adds an event and what it changes.
    pub(super) fn push(&mut self, sealed: Sealed) {
        fold(
            &mut self.changes,
            &Folded {
                event: &sealed.new.event,
                stream: sealed.new.stream,
                domain: sealed.new.domain.as_ref().map(|(id, name)| (*id, name.as_str())),
                tenant: sealed.new.tenant,
                revision: sealed.revision,
                at: sealed.at,
                actor: sealed.provenance.actor.id,
                operation: sealed.new.operation,
            },
        );
        self.changed_rights.extend(sealed.new.event.changes_rights_of(sealed.new.stream));
        self.events.push(sealed);
    }

    /// Everything of `desired` that has no arrays of its own, in order.
    pub(super) fn other_changes(&self) -> Option<Value> {
        let all: Vec<Value> = self.changes.others.iter().chain(&self.aside).cloned().collect();
        (!all.is_empty()).then_some(Value::Array(all))
    }
}

/// The ancestors of a name, as sort keys, nearest first.
pub(super) fn ancestor_keys(name: &headwater_events::dns::DomainName) -> Vec<String> {
    name.ancestors().map(|ancestor| name_key(&ancestor)).collect()
}

/// A time for the database.
pub(super) fn sql_time(at: headwater_events::time::Timestamp) -> DateTime<Utc> {
    at.into()
}
