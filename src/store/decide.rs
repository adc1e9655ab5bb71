//! One batch, decided: commands one after another over what was loaded, each
//! seeing what the ones before it did. Pure but for the ids it draws.

use super::batch::{Batch, Claim, Namespace, Receipt, SaltedClient, StreamHead};
use super::load::{Loaded, claimed};
use crate::command::{Aside, Command, Outcome, Request, SubmitError};
use headwater_events::actor::Caller;
use headwater_events::admin;
use headwater_events::domain::{
    self, Context, CreateDomain, Decided, Decision, DomainCommand, DomainState, DomainView, Limits, NameView,
};
use headwater_events::envelope::{ClientDigest, NewEvent, Provenance, Sealed};
use headwater_events::event::Event;
use headwater_events::ids::{EventId, OperationId, Revision, StreamRef};
use headwater_events::reject::{Guard, Reject};
use headwater_events::time::Timestamp;
use serde_json::json;
use std::collections::BTreeMap;
use uuid::Uuid;

/// A day.
const DAY_MILLISECONDS: i64 = 86_400_000;
/// Events of one batch, at most; a bigger command goes alone.
pub(super) const BATCH_MAX_EVENTS: usize = 512;
/// Octets of event data of one batch, at most; a bigger command goes alone.
pub(super) const BATCH_MAX_BYTES: usize = 1 << 20;

/// What became of one request of a batch.
#[derive(Debug)]
pub(super) enum Verdict {
    /// Another process holds its stream: try again.
    Missed,
    /// The batch is full: next time.
    Deferred,
    /// It is answered; if it wrote, its last event has this index in the batch.
    Answered(Box<Result<Outcome, SubmitError>>, Option<usize>),
}

fn answered(answer: Result<Outcome, SubmitError>, last: Option<usize>) -> Verdict {
    Verdict::Answered(Box::new(answer), last)
}

/// Decides a batch.
pub(super) struct Decider<'a> {
    pub(super) loaded: Loaded,
    pub(super) batch: Batch,
    pub(super) limits: &'a Limits,
    pub(super) now: Timestamp,
    bytes: usize,
    full: bool,
    stale: bool,
}

impl<'a> Decider<'a> {
    pub(super) fn new(loaded: Loaded, batch: Batch, limits: &'a Limits, now: Timestamp) -> Self {
        Self { loaded, batch, limits, now, bytes: 0, full: false, stale: false }
    }

    /// Decides one request.
    pub(super) fn request(&mut self, index: usize, request: &Request) -> Verdict {
        if self.loaded.missed.contains(&index) {
            return Verdict::Missed;
        }
        if self.full {
            return Verdict::Deferred;
        }
        if let Some(answer) = self.replay(request) {
            return answered(answer, None);
        }
        let decided = match self.decide(index, request) {
            Ok(decided) => decided,
            Err(reject) => return answered(Err(reject.into()), None),
        };
        match decided {
            Decided::Unchanged { revision } => {
                let outcome = self.outcome(request, false, revision, None, Vec::new());
                self.receipt(request, &outcome);
                answered(Ok(outcome), None)
            }
            Decided::Changed(decision) => self.changed(index, request, decision),
        }
    }

    /// Decides without keeping anything: for a dry run.
    pub(super) fn decide(&self, index: usize, request: &Request) -> Result<Decided, Reject> {
        let context = Context {
            caller: &request.caller,
            now: self.now,
            operation: request.operation,
            limits: self.limits,
            precondition: &request.meta.precondition,
            allow: &request.meta.allow,
            take_over: request.meta.take_over,
            generation: self.loaded.generation,
        };
        match &request.command {
            Command::CreateDomain(create) => {
                let none = NameView::default();
                domain::create(self.loaded.names.get(&create.name).unwrap_or(&none), create, &context)
            }
            Command::Domain { name, command } => match self.loaded.domains.get(name) {
                Some(view) => domain::decide(view, command, &context),
                None => Err(Reject::NotFound(format!("domain {name}"))),
            },
            Command::Admin { command, .. } => {
                let mut view = self.loaded.admin.get(&index).cloned().unwrap_or_default();
                if let Some(head) = self.loaded.heads.get(&command.stream().id) {
                    view.revision = head.revision;
                }
                view.edge.allows_last_endpoint = request.meta.allow.contains(&Guard::LastEndpoint);
                admin::decide(&view, command, &request.caller, request.operation)
            }
        }
    }

    /// The stored answer of an earlier call with the same key, after asking the policy again.
    fn replay(&self, request: &Request) -> Option<Result<Outcome, SubmitError>> {
        let key = request.meta.idempotency?;
        let (stored, outcome) = self.loaded.receipts.get(&(request.caller.actor.id, key.key))?;
        if stored != &key.request {
            return Some(Err(SubmitError::IdempotencyConflict));
        }
        if let Err(reject) = self.may_still(request) {
            return Some(Err(reject.into()));
        }
        let read = serde_json::from_value::<Outcome>(outcome.clone());
        Some(match read {
            Ok(outcome) => Ok(Outcome { replayed: true, ..outcome }),
            Err(error) => Err(SubmitError::Unavailable(format!("the stored answer cannot be read: {error}"))),
        })
    }

    /// Whether the caller would still be allowed to ask for this.
    fn may_still(&self, request: &Request) -> Result<(), Reject> {
        match &request.command {
            Command::Domain { name, command } => match self.view(name) {
                Some(state) => domain::permitted(state, command, &request.caller),
                None => Err(Reject::NotFound(format!("domain {name}"))),
            },
            Command::CreateDomain(create) => {
                // Whoever is no member any more learns nothing, not even of the tenant.
                domain::create_permitted(create, true, &request.caller).map_err(|reject| match reject {
                    Reject::Invalid(_) => Reject::NotFound(format!("domain {}", create.name)),
                    other => other,
                })
            }
            Command::Admin { command, .. } => admin::permitted(&request.caller, command),
        }
    }

    fn outcome(
        &self,
        request: &Request,
        changed: bool,
        revision: Revision,
        operation: Option<OperationId>,
        warnings: Vec<String>,
    ) -> Outcome {
        let (stream, domain) = match &request.command {
            Command::CreateDomain(create) => (create.id.as_uuid(), self.view(&create.name).cloned()),
            Command::Domain { name, .. } => {
                let state = self.view(name).cloned();
                (state.as_ref().map_or(Uuid::nil(), |state| state.id.as_uuid()), state)
            }
            Command::Admin { command, .. } => (command.stream().id, None),
        };
        let view = match &request.command {
            Command::Domain { name, .. } => self.loaded.domains.get(name),
            _ => None,
        };
        Outcome {
            changed,
            revision,
            operation,
            stream,
            domain,
            warnings,
            not_restored: view.map(domain::not_restored).unwrap_or_default(),
            position: None,
            replayed: false,
        }
    }

    fn view(&self, name: &headwater_events::dns::DomainName) -> Option<&DomainState> {
        self.loaded.domains.get(name).map(|view| &view.state)
    }

    fn receipt(&mut self, request: &Request, outcome: &Outcome) {
        if let (Some(key), Ok(text)) = (request.meta.idempotency, serde_json::to_string(outcome)) {
            let caller = request.caller.actor.id;
            self.batch.receipts.push(Receipt {
                caller,
                key: key.key,
                request: key.request.to_vec(),
                outcome: text,
            });
            if let Ok(stored) = serde_json::to_value(outcome) {
                self.loaded.receipts.insert((caller, key.key), (key.request.to_vec(), stored));
            }
        }
    }

    fn changed(&mut self, index: usize, request: &Request, decision: Decision) -> Verdict {
        let (count, empty) = (decision.events.len(), self.batch.events.is_empty());
        if !empty && self.batch.events.len() + count > BATCH_MAX_EVENTS {
            self.full = true;
            return Verdict::Deferred;
        }
        let (client, provenance) = provenance(request, self.now);
        let Decision { events, revision, operation, warnings, .. } = decision;
        let (sealed, heads) = match self.seal(events, revision, &provenance) {
            Ok(sealed) => sealed,
            Err(error) => return answered(Err(SubmitError::Unavailable(error.to_string())), None),
        };
        let bytes: usize = sealed.iter().map(|event| event.data.len()).sum();
        if !empty && self.bytes + bytes > BATCH_MAX_BYTES {
            self.full = true;
            return Verdict::Deferred;
        }
        if !self.stands_on_rights(&request.caller) {
            return Verdict::Deferred;
        }
        self.bytes += bytes;
        if let Some(client) = client {
            self.batch.clients.entry(client.digest).or_insert(client);
        }
        self.evolve(index, request, &sealed);
        for (stream, head) in heads {
            self.loaded.heads.insert(stream, head.clone());
            self.batch.streams.insert(stream, head);
        }
        for event in sealed {
            self.batch.push(event);
        }
        self.full = self.batch.events.len() >= BATCH_MAX_EVENTS || self.bytes >= BATCH_MAX_BYTES;
        let outcome = self.outcome(request, true, revision, operation, warnings);
        self.receipt(request, &outcome);
        answered(Ok(outcome), Some(self.batch.events.len() - 1))
    }

    /// Notes the number of the rights with which this was decided. False where this very batch changes them first: then it
    /// waits for the next one.
    fn stands_on_rights(&mut self, caller: &Caller) -> bool {
        let Some((user, read)) = caller.user().zip(caller.shown.rights) else { return true };
        if self.batch.changed_rights.contains(&user) {
            return false;
        }
        self.stale |= *self.batch.rights.entry(user).or_insert(read) != read;
        true
    }

    /// The batch, and whether two of its commands were let through by rights of different times.
    pub(super) fn finish(self) -> (Batch, bool) {
        (self.batch, self.stale)
    }

    /// Seals the events of one decision, each written as JSON once. Nothing is kept: they may not fit.
    fn seal(
        &self,
        events: Vec<NewEvent>,
        revision: Revision,
        provenance: &Provenance,
    ) -> serde_json::Result<(Vec<Sealed>, BTreeMap<Uuid, StreamHead>)> {
        let mut heads: BTreeMap<Uuid, StreamHead> = BTreeMap::new();
        let mut all = Vec::with_capacity(events.len());
        for (seq, new) in (0_i32..).zip(events) {
            let stream = new.stream;
            let head = heads.entry(stream.id).or_insert_with(|| self.head(stream));
            let id = EventId::from_uuid(Uuid::now_v7());
            let sealed = new.seal(id, revision, seq, self.now, provenance, head.hash.as_ref())?;
            head.revision = revision;
            head.hash = Some(sealed.hash);
            all.push(sealed);
        }
        Ok((all, heads))
    }

    /// The head of a stream as the batch has it by now.
    fn head(&self, stream: StreamRef) -> StreamHead {
        if let Some(head) = self.batch.streams.get(&stream.id) {
            return head.clone();
        }
        let known = self.loaded.heads.get(&stream.id);
        StreamHead {
            kind: stream.kind,
            read: known.map_or(Revision::ZERO, |head| head.read),
            revision: known.map_or(Revision::ZERO, |head| head.revision),
            hash: known.and_then(|head| head.hash),
        }
    }

    /// Takes what was decided into the overlay, so that the next request sees it.
    fn evolve(&mut self, index: usize, request: &Request, events: &[Sealed]) {
        match &request.command {
            Command::Domain { name, command } => {
                if let Some(view) = self.loaded.domains.get_mut(name) {
                    for sealed in events {
                        view.evolve(&sealed.new.event, sealed.revision, self.now);
                    }
                    self.batch.aside.extend(beside_domain(view, command));
                }
            }
            Command::CreateDomain(create) => self.created(create, events),
            Command::Admin { command, aside } => {
                if let Some((ns, name)) = claimed(command, aside) {
                    let holder = command.stream().id;
                    let read = self.loaded.admin.get(&index).and_then(|view| view.holder);
                    self.batch.claims.push(Claim { ns, name: name.into_owned(), read, holder });
                }
                self.batch.aside.extend(beside(aside));
                self.loaded.admin.remove(&index);
            }
        }
    }

    fn created(&mut self, create: &CreateDomain, events: &[Sealed]) {
        let Some(Event::DomainCreated(event)) = events.first().map(|sealed| &sealed.new.event) else {
            return;
        };
        let state = DomainState::created(create.id, event, self.now);
        let mut made = DomainView::bare(state);
        let holder = self.loaded.names.get(&create.name).and_then(|view| view.holder.as_ref());
        made.replaced = holder.filter(|held| held.tenant == create.tenant).and_then(|held| held.hold_until);
        for sealed in events.iter().skip(1) {
            made.evolve(&sealed.new.event, sealed.revision, self.now);
        }
        let state = made.state.clone();
        let read = self.loaded.names.get(&create.name).and_then(|view| view.holder.as_ref());
        self.batch.claims.push(Claim {
            ns: Namespace::Domain,
            name: create.name.to_string(),
            read: read.map(|holder| holder.id.as_uuid()),
            holder: create.id.as_uuid(),
        });
        for (name, view) in &mut self.loaded.names {
            if *name == create.name {
                view.holder = Some(state.clone());
            } else if name.is_subdomain_of(&create.name) || create.name.is_subdomain_of(name) {
                view.relatives.push((create.name.clone(), create.tenant, None));
            }
        }
        // What was loaded of the name's earlier holder no longer answers to it.
        self.loaded.domains.insert(create.name.clone(), made);
    }
}

/// What stands beside the log for a command, as `desired_apply` takes it.
fn beside(aside: &Aside) -> Option<serde_json::Value> {
    Some(match aside {
        Aside::Nothing => return None,
        Aside::Person { user, email } => json!({"do": "person", "id": user, "email": email}),
        Aside::TokenSecret { token, user, hash } => {
            json!({"do": "token_secret", "id": token, "user": user, "hash": hex::encode(hash)})
        }
        Aside::Profile { user, email, name } => {
            let mut change = json!({"do": "user_profile", "id": user, "email": email});
            if let Some(name) = name {
                change["name"] = json!(name);
            }
            change
        }
        Aside::Password { user, verifier, keep } => {
            json!({"do": "user_password", "id": user, "verifier": verifier.expose(), "keep": keep})
        }
        Aside::UserOut { user } => json!({"do": "user_out", "id": user}),
        Aside::UserGone { user } => json!({"do": "user_forgotten", "id": user}),
        Aside::TenantRenamed { tenant, name } => json!({"do": "tenant_renamed", "id": tenant, "name": name}),
        Aside::TenantGone { tenant } => json!({"do": "tenant_forgotten", "id": tenant}),
        Aside::EdgeToken { edge, hash, seconds } => {
            json!({"do": "edge_token", "id": edge, "hash": hex::encode(hash), "seconds": seconds})
        }
        Aside::EdgeIdentity { serial } => {
            json!({"do": "edge_identity_recorded", "serial": hex::encode(serial)})
        }
        Aside::EdgeGone { edge } => json!({"do": "edge_forgotten", "id": edge}),
        Aside::WebhookSecret { webhook, version, sealed } => json!({
            "do": "webhook_secret", "id": webhook, "version": version, "sealed": hex::encode(sealed.as_bytes()),
        }),
    })
}

/// What stands beside the log for a command on a domain that was decided.
fn beside_domain(view: &DomainView, command: &DomainCommand) -> Option<serde_json::Value> {
    let DomainCommand::PutCertificate(new) = command else { return None };
    Some(json!({
        "do": "certificate_key", "id": view.state.id, "certificate": new.body.id, "version": new.body.version,
        "fingerprint": new.body.fingerprint, "sealed": hex::encode(new.key.as_bytes()),
    }))
}

/// Who asks, from where and why; the client's digest stands in for its row.
fn provenance(request: &Request, now: Timestamp) -> (Option<SaltedClient>, Provenance) {
    let meta = &request.meta;
    let client = meta.client.as_ref().map(|client| {
        // The salt makes the digest say nothing once the row is erased. It is
        // drawn per actor, client and day, so that a busy client has one row
        // a day, and none outlives its time because the client comes again.
        let salt: [u8; 16] = salt(&request.caller.actor.id, client, now);
        let mut hasher = blake3::Hasher::new();
        for part in [salt.as_slice(), client.ip.as_bytes(), b"\n", client.agent.as_bytes()] {
            hasher.update(part);
        }
        let digest: ClientDigest = *hasher.finalize().as_bytes();
        SaltedClient { digest, salt, ip: client.ip.clone(), agent: client.agent.clone() }
    });
    let provenance = Provenance {
        actor: request.caller.actor,
        client: client.as_ref().map(|client| client.digest),
        request: meta.request,
        note: meta.note.clone(),
        change: meta.change,
        cause: meta.cause,
    };
    (client, provenance)
}

/// A salt that is random per process, and the same for one actor and client on one day.
fn salt(actor: &Uuid, client: &headwater_events::envelope::Client, now: Timestamp) -> [u8; 16] {
    static PROCESS: std::sync::LazyLock<[u8; 32]> = std::sync::LazyLock::new(rand::random);
    let mut hasher = blake3::Hasher::new_keyed(&PROCESS);
    hasher
        .update(actor.as_bytes())
        .update(&now.as_millis().div_euclid(DAY_MILLISECONDS).to_be_bytes())
        .update(client.ip.as_bytes())
        .update(b"\n")
        .update(client.agent.as_bytes());
    let mut salt = [0; 16];
    salt.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    salt
}
