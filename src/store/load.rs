//! What a batch must know before it is decided: the domains it names, the
//! owners it touches, the heads of its streams, the receipts of its keys.
//! Never a whole zone, never the history.

use super::batch::{Namespace, StreamHead, ancestor_keys};
use super::row::odd;
use super::{clusters, edge, lock, member, past, people, rights, row, sites, sql, webhooks};
use crate::command::{Command, Request};
use chrono::{DateTime, Utc};
use headwater_events::admin::{AdminCommand, AdminView, OwnedDomain};
use headwater_events::dns::{DomainName, OwnerKey, OwnerName, RrSetBody, RrType, Ttl};
use headwater_events::domain::{CreateDomain, DomainCommand, DomainView, NameView, StoredRrset, name_key};
use headwater_events::edge::{EdgeCommand, Endpoints};
use headwater_events::envelope::NewEvent;
use headwater_events::event::{DnsIdentity, PauseScope, Work};
use headwater_events::ids::{ClusterId, DomainId, OperationId, Revision, StreamKind, TenantId, UserId};
use headwater_projections::desired::{concerns_edges, pause_key};
use sqlx::Row;
use sqlx::postgres::{PgConnection, PgRow};
use sqlx::types::Json;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use uuid::Uuid;

/// RRsets that are looked at below an owner that gets NS records: more than the addresses of its servers.
const BELOW_MAX_RRSETS: i64 = 40;

/// A stored receipt: the request it belongs to and its outcome.
pub(super) type StoredReceipt = (Vec<u8>, serde_json::Value);

/// What was read. Requests are named by their index.
#[derive(Debug, Default)]
pub(super) struct Loaded {
    pub(super) domains: HashMap<DomainName, DomainView>,
    pub(super) heads: HashMap<Uuid, StreamHead>,
    pub(super) names: HashMap<DomainName, NameView>,
    pub(super) admin: HashMap<usize, AdminView>,
    pub(super) receipts: HashMap<(Uuid, Uuid), StoredReceipt>,
    pub(super) generation: u32,
    /// Requests whose stream another process holds.
    pub(super) missed: BTreeSet<usize>,
}

/// Reads what the requests need. With `lock`, takes the lock of every stream it can get.
pub(super) async fn load(
    connection: &mut PgConnection,
    requests: &[&Request],
    lock: bool,
) -> Result<Loaded, sqlx::Error> {
    let mut loaded = Loaded::default();
    let proxied = domains(connection, requests, lock, &mut loaded).await?;
    let extended = past::extend(connection, requests, &mut loaded).await?;
    let requests = requests.iter().enumerate();
    let requests: Vec<&Request> =
        requests.map(|(index, request)| extended.get(&index).unwrap_or(request)).collect();
    let requests = requests.as_slice();
    rrsets(connection, requests, &mut loaded).await?;
    rights::of_others(connection, requests, &mut loaded).await?;
    sites::load(connection, requests, &proxied, &mut loaded).await?;
    fail::fail_point!("load.before_locks");
    let mut needs_generation = false;
    let mut streams = Vec::new();
    for (index, request) in requests.iter().enumerate() {
        match &request.command {
            Command::CreateDomain(create) => {
                let got = name(connection, create, lock, &mut loaded).await?;
                if !got {
                    loaded.missed.insert(index);
                }
            }
            Command::Domain { command, .. } => needs_generation |= command.needs_generation(),
            Command::Admin { command, .. } => {
                streams.push(command.stream().id);
                if lock
                    && lock::judges_others(command)
                    && !lock::try_lock(connection, lock::ADMINISTRATION).await?
                {
                    loaded.missed.insert(index);
                }
            }
        }
    }
    // Behind the locks: a twin that another process has just let through is seen here, or is not through yet.
    receipts(connection, requests, &mut loaded).await?;
    heads(connection, &streams, &mut loaded).await?;
    for (index, request) in requests.iter().enumerate() {
        if let Command::Admin { command, aside } = &request.command {
            let mut view = admin(connection, command, aside, lock).await?;
            view.revision =
                loaded.heads.get(&command.stream().id).map_or(Revision::ZERO, |head| head.revision);
            loaded.admin.insert(index, view);
        }
    }
    if needs_generation {
        let generation: i64 = sqlx::query_scalar(sql::GENERATION).fetch_one(&mut *connection).await?;
        loaded.generation = u32::try_from(generation).unwrap_or(0);
    }
    Ok(loaded)
}

/// Reads the domains; gives those that proxy anything.
async fn domains(
    connection: &mut PgConnection,
    requests: &[&Request],
    lock: bool,
    loaded: &mut Loaded,
) -> Result<BTreeSet<DomainId>, sqlx::Error> {
    let named = |request: &&Request| match &request.command {
        Command::Domain { name, .. } => Some(name.clone()),
        _ => None,
    };
    let wanted: BTreeSet<DomainName> = requests.iter().filter_map(named).collect();
    let mut proxied = BTreeSet::new();
    if wanted.is_empty() {
        return Ok(proxied);
    }
    let names: Vec<&str> = wanted.iter().map(DomainName::as_str).collect();
    let mut missed = BTreeSet::new();
    for row in sqlx::query(sql::DOMAINS).bind(names).bind(lock).fetch_all(&mut *connection).await? {
        let state = row::domain(&row)?;
        if !row.try_get::<bool, _>("locked")? {
            missed.insert(state.name.clone());
        }
        if row.try_get::<bool, _>("proxied")? {
            proxied.insert(state.id);
        }
        loaded
            .heads
            .insert(state.id.as_uuid(), head(StreamKind::Domain, state.revision, row.try_get("last_hash")?));
        let (name, mut view) = (state.name.clone(), DomainView::bare(state));
        // A pool's name is one label, so it is its own key.
        let pools: Option<Vec<String>> = row.try_get("pools")?;
        view.platform_names = pools.iter().flatten().filter_map(|pool| OwnerKey::parse(pool).ok()).collect();
        loaded.domains.insert(name, view);
    }
    replaced(connection, requests, loaded).await?;
    for (index, request) in requests.iter().enumerate() {
        if let Command::Domain { name, .. } = &request.command
            && missed.contains(name)
        {
            loaded.missed.insert(index);
        }
    }
    Ok(proxied)
}

/// Whether what is to be restored took the place of a deleted domain: for restores alone.
async fn replaced(
    connection: &mut PgConnection,
    requests: &[&Request],
    loaded: &mut Loaded,
) -> Result<(), sqlx::Error> {
    let restored = requests.iter().filter_map(|request| match &request.command {
        Command::Domain { name, command: DomainCommand::Restore } => Some(name.as_str()),
        _ => None,
    });
    let restored: Vec<&str> = restored.collect();
    if restored.is_empty() {
        return Ok(());
    }
    for row in sqlx::query(sql::REPLACED).bind(restored).fetch_all(&mut *connection).await? {
        let name: &str = row.try_get(0)?;
        let until: DateTime<Utc> = row.try_get(1)?;
        if let Some(view) = DomainName::parse(name).ok().and_then(|name| loaded.domains.get_mut(&name)) {
            view.replaced = Some(until.into());
        }
    }
    Ok(())
}

fn head(kind: StreamKind, revision: Revision, hash: &[u8]) -> StreamHead {
    StreamHead { kind, read: revision, revision, hash: hash.try_into().ok() }
}

async fn rrsets(
    connection: &mut PgConnection,
    requests: &[&Request],
    loaded: &mut Loaded,
) -> Result<(), sqlx::Error> {
    let mut names: HashMap<DomainId, DomainName> = HashMap::new();
    let mut wanted: BTreeSet<(DomainId, OwnerKey)> = BTreeSet::new();
    let mut cuts: BTreeSet<(DomainId, OwnerKey)> = BTreeSet::new();
    for request in requests {
        if let Command::Domain { name, command } = &request.command
            && let Some(view) = loaded.domains.get_mut(name)
        {
            names.insert(view.state.id, name.clone());
            let keys = command.owners().into_iter().map(OwnerName::key);
            for key in keys.chain(command.above().map(|owner| owner.key())) {
                wanted.insert((view.state.id, key.clone()));
                view.loaded.insert(key);
            }
            for owner in command.cuts() {
                cuts.insert((view.state.id, owner.key()));
            }
            for key in command.other_owners(name) {
                wanted.insert((view.state.id, key.clone()));
                view.loaded.insert(key);
            }
        }
    }
    if wanted.is_empty() {
        return Ok(());
    }
    let ids: Vec<Uuid> = wanted.iter().map(|(id, _)| id.as_uuid()).collect();
    let keys: Vec<&str> = wanted.iter().map(|(_, key)| key.as_str()).collect();
    for row in sqlx::query(sql::RRSETS).bind(ids).bind(keys).fetch_all(&mut *connection).await? {
        let (key, rrtype, stored) = stored_rrset(&row)?;
        let id = DomainId::from_uuid(row.try_get(0)?);
        if let Some(view) = names.get(&id).and_then(|name| loaded.domains.get_mut(name)) {
            view.rrsets.entry(key).or_default().insert(rrtype, stored);
        }
    }
    below(connection, &cuts, &names, loaded).await
}

/// Reads a few RRsets below each owner that gets NS records.
async fn below(
    connection: &mut PgConnection,
    cuts: &BTreeSet<(DomainId, OwnerKey)>,
    names: &HashMap<DomainId, DomainName>,
    loaded: &mut Loaded,
) -> Result<(), sqlx::Error> {
    if cuts.is_empty() {
        return Ok(());
    }
    let ids: Vec<Uuid> = cuts.iter().map(|(id, _)| id.as_uuid()).collect();
    let keys: Vec<&str> = cuts.iter().map(|(_, key)| key.as_str()).collect();
    let query = sqlx::query_as(sql::BELOW).bind(ids).bind(keys).bind(BELOW_MAX_RRSETS);
    let found: Vec<(Uuid, String, String, i32)> = query.fetch_all(&mut *connection).await?;
    for (id, cut, key, rrtype) in found {
        let view = names.get(&DomainId::from_uuid(id)).and_then(|name| loaded.domains.get_mut(name));
        let read = (OwnerKey::parse(&cut).ok(), OwnerKey::parse(&key).ok(), u16::try_from(rrtype).ok());
        if let (Some(view), (Some(cut), Some(key), Some(code))) = (view, read) {
            view.below.entry(cut).or_default().push((key, RrType::from_code(code)));
        }
    }
    Ok(())
}

/// Reads an RRset.
pub(super) fn stored_rrset(row: &PgRow) -> Result<(OwnerKey, RrType, StoredRrset), sqlx::Error> {
    let key = OwnerKey::parse(row.try_get(1)?).map_err(|_| odd("owner_key"))?;
    let rrtype = RrType::from_code(u16::try_from(row.try_get::<i32, _>(2)?).map_err(|_| odd("type"))?);
    let ttl = Ttl::new(row.try_get::<i64, _>(3)?).map_err(|_| odd("ttl"))?;
    let managed_by: Option<&str> = row.try_get(7)?;
    let managed_by = managed_by.map(str::parse).transpose().map_err(|_| odd("managed_by"))?;
    let body = RrSetBody { ttl, records: row.try_get(4)?, comment: row.try_get(5)?, managed_by };
    Ok((key, rrtype, StoredRrset { body, changed: Revision::new(row.try_get(6)?) }))
}

async fn receipts(
    connection: &mut PgConnection,
    requests: &[&Request],
    loaded: &mut Loaded,
) -> Result<(), sqlx::Error> {
    let keyed: BTreeMap<(Uuid, Uuid), ()> = requests
        .iter()
        .filter_map(|request| request.meta.idempotency.map(|i| ((request.caller.actor.id, i.key), ())))
        .collect();
    if keyed.is_empty() {
        return Ok(());
    }
    let (callers, keys): (Vec<Uuid>, Vec<Uuid>) = keyed.into_keys().unzip();
    for row in sqlx::query(sql::RECEIPTS).bind(callers).bind(keys).fetch_all(&mut *connection).await? {
        let Json(outcome): Json<serde_json::Value> = row.try_get(3)?;
        loaded.receipts.insert((row.try_get(0)?, row.try_get(1)?), (row.try_get(2)?, outcome));
    }
    Ok(())
}

async fn heads(
    connection: &mut PgConnection,
    streams: &[Uuid],
    loaded: &mut Loaded,
) -> Result<(), sqlx::Error> {
    if streams.is_empty() {
        return Ok(());
    }
    for row in sqlx::query(sql::HEADS).bind(streams).fetch_all(&mut *connection).await? {
        // The kind is known to the command; the stored one is not needed here.
        let found = head(StreamKind::Platform, Revision::new(row.try_get(1)?), row.try_get(2)?);
        loaded.heads.insert(row.try_get(0)?, found);
    }
    Ok(())
}

/// Reads who holds a name and its relatives. With `lock`, a parent and its child
/// cannot be claimed at once; false when another process holds the lock.
async fn name(
    connection: &mut PgConnection,
    create: &CreateDomain,
    lock: bool,
    loaded: &mut Loaded,
) -> Result<bool, sqlx::Error> {
    if lock && !lock::try_name(connection, create).await? {
        return Ok(false);
    }
    let holder =
        sqlx::query(sql::HOLDERS).bind(create.name.as_str()).fetch_optional(&mut *connection).await?;
    let holder = holder.as_ref().map(row::domain).transpose()?;
    let relatives = sqlx::query(sql::RELATIVES)
        .bind(create.name.as_str())
        .bind(name_key(&create.name))
        .bind(ancestor_keys(&create.name))
        .fetch_all(&mut *connection)
        .await?;
    let mut view = NameView { holder, ..NameView::default() };
    for row in relatives {
        if let Ok(name) = DomainName::parse(row.try_get(0)?) {
            let held: Option<DateTime<Utc>> = row.try_get(2)?;
            view.relatives.push((name, TenantId::from_uuid(row.try_get(1)?), held.map(Into::into)));
        }
    }
    let domains: Option<i64> = sqlx::query_scalar(sql::TENANT)
        .bind(create.tenant.as_uuid())
        .fetch_optional(&mut *connection)
        .await?;
    view.tenant_exists = domains.is_some();
    view.tenant_domains = domains.unwrap_or(0);
    let serial: Option<i64> = sqlx::query_scalar(sql::LAST_SERIAL)
        .bind(create.name.as_str())
        .fetch_optional(&mut *connection)
        .await?;
    view.last_serial = serial.and_then(|serial| u32::try_from(serial).ok());
    loaded.names.insert(create.name.clone(), view);
    Ok(true)
}

/// The unique name that a command claims.
pub(super) fn claimed<'a>(
    command: &'a AdminCommand,
    aside: &'a crate::command::Aside,
) -> Option<(Namespace, Cow<'a, str>)> {
    match (command, aside) {
        (AdminCommand::CreateTenant { name, .. }, _) => Some((Namespace::Tenant, name.into())),
        (AdminCommand::CreateCluster { cluster, .. }, _) => {
            Some((Namespace::Cluster, (&cluster.name).into()))
        }
        (AdminCommand::CreateUser { .. }, crate::command::Aside::Person { email, .. })
        | (AdminCommand::UpdateUser { .. }, crate::command::Aside::Profile { email: Some(email), .. }) => {
            Some((Namespace::Email, email.into()))
        }
        (AdminCommand::UpdateTenant { patch, .. }, _) => {
            patch.name.as_ref().map(|name| (Namespace::Tenant, name.into()))
        }
        (AdminCommand::RequestOperation { requested, .. }, _) => {
            let name = requested.projection.name();
            // A projection is rebuilt once at a time; of verifications only the very same one is not queued twice.
            Some((
                Namespace::Rebuild,
                match requested.kind {
                    Work::Rebuild => name.into(),
                    Work::Verify => {
                        let domain = requested.domain.as_ref().map_or("", DomainName::as_str);
                        format!("verify {name} {domain} {}", requested.mend).into()
                    }
                },
            ))
        }
        (AdminCommand::Edge { command: EdgeCommand::Create(created, _), .. }, _) => {
            Some((Namespace::Edge, (&created.name).into()))
        }
        _ => None,
    }
}

/// Who holds the name that a command claims, if it claims one.
async fn claim(
    connection: &mut PgConnection,
    command: &AdminCommand,
    aside: &crate::command::Aside,
    view: &mut AdminView,
) -> Result<(), sqlx::Error> {
    if let Some((ns, name)) = claimed(command, aside) {
        let holder: Option<Uuid> = sqlx::query_scalar(sql::CLAIM)
            .bind(ns as i16)
            .bind(name.as_ref())
            .fetch_optional(&mut *connection)
            .await?;
        view.name_taken = holder.is_some_and(|holder| holder != command.stream().id);
        view.holder = holder;
        // The name of what is gone is free; what is claimed then is claimed from it.
        let is_gone = match (ns, holder) {
            (Namespace::Edge, Some(holder)) => edge::state(connection, holder).await?.is_none(),
            (Namespace::Cluster, Some(holder)) => !clusters::exists(connection, holder).await?,
            _ => false,
        };
        if is_gone {
            view.name_taken = false;
        }
    }
    Ok(())
}

async fn admin(
    connection: &mut PgConnection,
    command: &AdminCommand,
    aside: &crate::command::Aside,
    lock: bool,
) -> Result<AdminView, sqlx::Error> {
    let mut view = AdminView::default();
    claim(connection, command, aside, &mut view).await?;
    match command {
        AdminCommand::AddMember { .. }
        | AdminCommand::RemoveMember { .. }
        | AdminCommand::AddDomainMember { .. }
        | AdminCommand::RemoveDomainMember { .. } => member::view(connection, command, &mut view).await?,
        AdminCommand::RecordDelegation { domain, .. } => {
            view.delegation_lost = delegation_lost(connection, domain).await?;
        }
        AdminCommand::RevokeToken { user, token, .. } => {
            let query = sqlx::query_scalar(sql::TOKEN_ACTIVE).bind(token.as_uuid()).bind(user.as_uuid());
            view.token_active = query.fetch_one(&mut *connection).await?;
        }
        AdminCommand::CreateCluster { .. }
        | AdminCommand::UpdateCluster { .. }
        | AdminCommand::SetClusterEnabled { .. }
        | AdminCommand::DeleteCluster { .. } => {
            clusters::view(connection, ClusterId::from_uuid(command.stream().id), &mut view).await?;
        }
        AdminCommand::RequestRemoval { requested, .. } => {
            clusters::view(connection, requested.cluster, &mut view).await?;
        }
        AdminCommand::Pause { scope, .. } | AdminCommand::Resume { scope, .. } => {
            pause(connection, scope, &mut view).await?;
        }
        AdminCommand::SetDnsIdentity(_) | AdminCommand::SetEndpoints { .. } => {
            let row = sqlx::query(sql::IDENTITY).fetch_one(&mut *connection).await?;
            let identity: Option<Json<DnsIdentity>> = row.try_get(0)?;
            view.identity = identity.map(|Json(identity)| identity);
            view.generation = u32::try_from(row.try_get::<i64, _>(1)?).unwrap_or(0);
            let endpoints: Option<Json<Endpoints>> = row.try_get(2)?;
            view.endpoints = endpoints.map(|Json(endpoints)| endpoints);
        }
        AdminCommand::FinishOperation { .. } | AdminCommand::CancelOperation { .. } => {
            let query = sqlx::query_scalar(sql::UNDO_BY).bind(command.stream().id);
            let by: Option<Uuid> = query.fetch_optional(&mut *connection).await?;
            view.undo_by = by.map(UserId::from_uuid);
            view.operation_terminal = has_ended(connection, command.stream().id).await?;
        }
        AdminCommand::RequestOperation { requested, .. } => {
            if let Some(name) = &requested.domain {
                pause(connection, &PauseScope::Domain(name.clone()), &mut view).await?;
            }
            if let Some(holder) = view.holder
                && !has_ended(connection, holder).await?
            {
                view.running = Some(OperationId::from_uuid(holder));
            }
        }
        AdminCommand::Edge { edge, command } => {
            view.edge = edge::view(connection, edge.as_uuid(), command).await?;
        }
        AdminCommand::Webhook { webhook, owner, command } => {
            webhooks::view(connection, *webhook, *owner, command, &mut view).await?;
        }
        _ => people::view(connection, command, aside, lock, &mut view).await?,
    }
    Ok(view)
}

/// Whether an operation has ended, by the log: its projection may be behind.
async fn has_ended(connection: &mut PgConnection, operation: Uuid) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar(sql::OPERATION_TERMINAL).bind(operation).fetch_one(connection).await
}

async fn delegation_lost(
    connection: &mut PgConnection,
    domain: &OwnedDomain,
) -> Result<Option<bool>, sqlx::Error> {
    let query = sqlx::query_scalar(sql::DELEGATION_LOST).bind(domain.id.as_uuid());
    query.bind(domain.tenant.as_uuid()).fetch_optional(connection).await
}

async fn pause(
    connection: &mut PgConnection,
    scope: &PauseScope,
    view: &mut AdminView,
) -> Result<(), sqlx::Error> {
    let (kind, id) = pause_key(scope);
    view.paused = sqlx::query_scalar(sql::PAUSED).bind(kind).bind(&id).fetch_one(&mut *connection).await?;
    view.scope_exists =
        sqlx::query_scalar(sql::SCOPE_EXISTS).bind(kind).bind(&id).fetch_one(&mut *connection).await?;
    Ok(())
}

/// Names of the targets that a mutation is deployed to: DNS clusters, and cells where edges are concerned.
pub(super) async fn targets(
    connection: &mut PgConnection,
    events: &[NewEvent],
) -> Result<Vec<String>, sqlx::Error> {
    let edges = events.first().is_some_and(|first| concerns_edges(&first.event));
    sqlx::query_scalar(sql::TARGETS).bind(edges).fetch_all(connection).await
}
