//! The shapes of the history: events, the audit trail, operations and their timelines. The answers are written
//! elsewhere (an event's data is passed through as it was hashed); this is their description, and tests hold real answers
//! of each against it (`tests/it/http_schema.rs`).
#![allow(dead_code)] // a description is read by nobody at run time

use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;
use uuid::Uuid;

use super::Actor;
use crate::http::rollback::NotRestoredBody;

/// An event: an immutable fact, in the envelope that all of them have.
#[derive(Debug, Serialize, ToSchema)]
pub struct Event {
    /// Its place in the whole log: dense, in commit order.
    position: i64,
    /// Its id.
    id: Uuid,
    /// What happened: docs/EVENTS.md describes each type.
    #[schema(example = "rrset.replaced")]
    r#type: String,
    /// The schema of `data`.
    schema: i32,
    /// The aggregate that it is a fact of.
    stream: Stream,
    /// The domain concerned.
    domain: Option<String>,
    /// The tenant concerned.
    tenant: Option<Uuid>,
    /// The stream's revision after the mutation.
    revision: i64,
    /// Its number within the mutation, from 0.
    seq: i32,
    /// When (RFC 3339, UTC, milliseconds).
    at: String,
    /// Who did it.
    actor: Actor,
    /// From where; shown to the tenant's own people for their own actors, and to administrators.
    client: Option<Client>,
    /// The request.
    request_id: Uuid,
    /// The operation that carries it out.
    operation: Option<Uuid>,
    /// `Change-Note`.
    note: Option<String>,
    /// The set of changes it belongs to, if several requests make one.
    change: Option<Uuid>,
    /// The position of the event that caused it, for what the control plane does by itself.
    cause: Option<i64>,
    /// The end of the stream's hash chain, in hex. It covers every field but the position.
    hash: String,
    /// What the type says.
    #[schema(value_type = Object)]
    data: Value,
}

/// A stream of events.
#[derive(Debug, Serialize, ToSchema)]
pub struct Stream {
    /// `domain`, `tenant`, `user`, `dns_cluster`, `operation` or `platform`.
    kind: String,
    /// Which.
    id: Uuid,
}

/// Where a request came from.
#[derive(Debug, Serialize, ToSchema)]
pub struct Client {
    /// Its address.
    ip: String,
    /// Its `User-Agent`.
    agent: String,
}

/// An event in the audit trail: the same, and who the actor is.
#[derive(Debug, Serialize, ToSchema)]
pub struct AuditEvent {
    #[serde(flatten)]
    event: Event,
    /// Who did it, with its name as it is known now.
    actor: NamedActor,
    /// What it changed of what a domain desires: path, before, after; at most one thing.
    #[schema(value_type = Vec<Object>)]
    diff: Vec<Value>,
}

/// Where every stream of the log ended on a day, signed by the platform's key.
#[derive(Debug, Serialize, ToSchema)]
pub struct SignedHeads {
    /// The day (UTC).
    day: String,
    /// Which log.
    log: Uuid,
    /// Up to which position.
    position: i64,
    /// When it was signed.
    at: String,
    /// How many streams there were.
    streams: i64,
    /// BLAKE3 over the lines of the export, in hex.
    root: String,
    /// The Ed25519 key, in hex.
    key: String,
    /// The id of the key and the signature, in hex.
    signature: String,
}

/// Who did something, with its name.
#[derive(Debug, Serialize, ToSchema)]
pub struct NamedActor {
    #[serde(flatten)]
    actor: Actor,
    /// Its name now; null when it is not known or not shown.
    name: Option<String>,
}

/// The durable receipt of accepted work, and what became of it.
#[derive(Debug, Serialize, ToSchema)]
pub struct Operation {
    /// Its id.
    id: Uuid,
    /// The type of the first event that it carries out.
    kind: String,
    /// `pending`, `running`, `succeeded`, `failed` or `cancelled`; the last three are final.
    state: String,
    /// The domain it is about.
    domain: Option<String>,
    /// The revision that it carries out.
    revision: i64,
    /// `interactive`, `runtime`, `certificate_purge` or `bulk_maintenance`.
    lane: String,
    /// How far it is.
    progress: OperationProgress,
    /// Where a long one goes on; null where nothing is kept.
    #[schema(value_type = Option<Object>)]
    checkpoint: Option<Value>,
    /// Tries of the target that lags most.
    attempts: i64,
    /// When the next target is tried again.
    next_attempt_at: Option<String>,
    /// Its targets, counted.
    targets: OperationTargets,
    /// Targets that were out of service when it ended; of an edge each cell.
    partial: Vec<OperationTarget>,
    /// What whoever asked may want to know of its end.
    warnings: Vec<String>,
    /// Whether exactly its own revision was ever verified on some target.
    served: bool,
    /// The operation of the newer revision with which this one ended.
    superseded_by: Option<Uuid>,
    /// Why it failed; of one that is open and will be tried again, what went wrong last (`tried_again`).
    error: Option<OperationFault>,
    /// What was asked for; only of imperative work.
    request: Option<OperationRequest>,
    /// What it came to; only of imperative work that succeeded.
    result: Option<OperationSum>,
    /// When it was accepted.
    created_at: String,
    /// When it ended.
    finished_at: Option<String>,
}

/// What imperative work was asked for.
#[derive(Debug, Serialize, ToSchema)]
pub struct OperationRequest {
    /// `projection.rebuild` or `projection.verify`.
    kind: Option<String>,
    /// `desired`, `powerdns`, `edge`, `operations` or `audit`.
    projection: Option<String>,
    /// Of this domain alone.
    domain: Option<String>,
    /// Whether what differs is mended.
    mend: Option<bool>,
    /// Of an undo: whose changes.
    token: Option<Uuid>,
    /// From this time on.
    since: Option<String>,
    /// Before this time.
    until: Option<String>,
    /// Guards that were allowed to be crossed.
    allowed: Option<Vec<String>>,
}

/// What a rebuild or a verification came to.
#[derive(Debug, Serialize, ToSchema)]
pub struct OperationSum {
    /// Rows that were not what the log says; the first 1,000 are at `differences`.
    differences: i64,
    /// How long the last try took, in milliseconds.
    ms: i64,
}

/// A row that was not what the log says.
#[derive(Debug, Serialize, ToSchema)]
pub struct FoundDifference {
    /// `missing`, `extra`, `changed`, `ahead`: the target holds what this log does not know; or `kept`: it was to be
    /// undone and stays, for the reason in `expected`.
    kind: String,
    /// The table.
    table: String,
    /// The row's key.
    #[schema(value_type = Vec<Object>)]
    key: Value,
    /// What stood there; null when the row was missing.
    live: Value,
    /// What the log says; null when the row should not be there.
    expected: Value,
    /// The same as one sentence.
    detail: String,
}

/// How far an operation is.
#[derive(Debug, Serialize, ToSchema)]
pub struct OperationProgress {
    /// What is done.
    done: i64,
    /// Of how many.
    total: i64,
    /// What is counted: `targets`, or `zones`, `events`, `tables` or `steps` of imperative work.
    unit: String,
}

/// The targets of an operation, counted.
#[derive(Debug, Serialize, ToSchema)]
pub struct OperationTargets {
    /// All of them.
    total: i64,
    /// Those that hold it.
    active: i64,
    /// Those that are not reached.
    unreachable: i64,
}

/// A target of an operation.
#[derive(Debug, Serialize, ToSchema)]
pub struct OperationTarget {
    /// Which.
    id: Uuid,
    /// Of an edge: which of its cells.
    cell: Option<i32>,
    /// Its name.
    name: Option<String>,
}

/// Why an operation failed.
#[derive(Debug, Serialize, ToSchema)]
pub struct OperationFault {
    /// Stable snake_case code.
    code: String,
    /// For people.
    detail: String,
    /// The target concerned, if it is one.
    target: Option<Uuid>,
}

/// One hop of an operation on its way.
#[derive(Debug, Serialize, ToSchema)]
pub struct TimelineHop {
    /// `committed`, `rendered`, `activated`, `verified` or `refused`.
    stage: String,
    /// The name of the target; null for the log.
    target: Option<String>,
    /// When.
    at: String,
    /// Milliseconds since the commit.
    ms: i64,
    /// The event that says so.
    position: i64,
}

/// The hops of an operation, in the order of time. No page: there are a few for each target.
#[derive(Debug, Serialize, ToSchema)]
pub struct Timeline(Vec<TimelineHop>);

/// What a mutation would do.
#[derive(Debug, Serialize, ToSchema)]
pub struct DryRun {
    /// Whether anything would change.
    changed: bool,
    /// What would: path, before, after.
    #[schema(value_type = Vec<Object>)]
    diff: Vec<Value>,
    /// What the caller may want to know.
    warnings: Vec<String>,
    /// Guards that stand in the way, or would be crossed by allowance.
    guards: Vec<String>,
    /// Names of the targets concerned.
    targets: Vec<String>,
    /// The entity tag with which, as `If-Match`, exactly this is applied or refused (412); null where there is none.
    #[schema(required, example = "\"7\"")]
    if_match: Option<String>,
    /// `*` where what would be made does not exist yet: as `If-None-Match`, exactly this is applied or refused (412).
    #[schema(required)]
    if_none_match: Option<String>,
    /// What was otherwise then and would stay as it is; of a rollback alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_restored: Option<Vec<NotRestoredBody>>,
}
