//! Pure: events → changes of rows, in the order of the log. The same fold feeds
//! the append and the rebuild, so that both give the same rows.

use super::{clusters, edges, life, people, webhooks};
use headwater_events::actor::Role;
use headwater_events::dns::{OwnerKey, RrType};
use headwater_events::domain::name_key;
use headwater_events::edge::Endpoints;
use headwater_events::event::{DeploymentFact, DomainStatus, Event, PauseScope, REMOVAL_KIND, UNDO_KIND};
use headwater_events::ids::{DomainId, OperationId, Revision, StreamKind, StreamRef, TenantId, UserId};
use headwater_events::migration::{COMPARE_KIND, CUTOVER_KIND, IMPORT_KIND};
use headwater_events::time::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use uuid::Uuid;

/// One event as the fold reads it, from either side of the log.
#[derive(Debug, Clone, Copy)]
pub struct Folded<'a> {
    /// What happened.
    pub event: &'a Event,
    /// The stream it stands in.
    pub stream: StreamRef,
    /// The domain concerned.
    pub domain: Option<(DomainId, &'a str)>,
    /// The tenant concerned.
    pub tenant: Option<TenantId>,
    /// The stream's revision after the mutation.
    pub revision: Revision,
    /// When.
    pub at: Timestamp,
    /// Who.
    pub actor: Uuid,
    /// The operation that carries it out.
    pub operation: Option<OperationId>,
}

/// Which row of `desired.rrsets`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RrsetRow {
    /// The domain.
    pub domain: DomainId,
    /// The owner.
    pub key: OwnerKey,
    /// The type.
    pub rrtype: RrType,
}

/// A row of `desired.rrsets` as it will be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RrsetPut {
    /// Owner name for people.
    pub owner: String,
    /// TTL in seconds.
    pub ttl: u32,
    /// Canonical RDATA texts.
    pub records: Vec<String>,
    /// A comment of its owner's.
    pub comment: Option<String>,
    /// The tool that owns it.
    pub managed_by: Option<String>,
    /// The revision that last changed it.
    pub changed: Revision,
}

/// A domain that got a new revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DomainTouch {
    /// Its revision.
    pub revision: Revision,
    /// When.
    pub at: Timestamp,
    /// RRsets gained or lost.
    pub rrsets: i64,
    /// Records gained or lost.
    pub records: i64,
}

/// A row of `operations.operations` as it begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperationRow {
    /// Its id.
    pub id: OperationId,
    /// What it does, as `domain.update`.
    pub kind: &'static str,
    /// The domain that it carries a revision of out.
    pub domain: Option<DomainId>,
    /// The name of the domain concerned.
    pub name: Option<String>,
    /// Its owner.
    pub tenant: Option<TenantId>,
    /// The revision it carries out.
    pub revision: Revision,
    /// Who asked.
    pub actor: Uuid,
    /// When.
    pub at: Timestamp,
}

/// Changes of rows, coalesced: the last put of a row wins.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Changes {
    /// RRsets put, or deleted where none.
    pub rrsets: BTreeMap<RrsetRow, Option<RrsetPut>>,
    /// Domains with a new revision.
    pub domains: BTreeMap<DomainId, DomainTouch>,
    /// The rest, in order, as `desired_apply` takes it.
    pub others: Vec<Value>,
    /// Operations that begin.
    pub operations: BTreeMap<OperationId, OperationRow>,
}

impl Changes {
    fn touch(&mut self, id: DomainId, e: &Folded<'_>, rrsets: i64, records: i64) {
        let touch = self.domains.entry(id).or_insert(DomainTouch {
            revision: e.revision,
            at: e.at,
            rrsets: 0,
            records: 0,
        });
        touch.revision = e.revision;
        touch.at = e.at;
        touch.rrsets += rrsets;
        touch.records += records;
    }
}

/// Adds what one event changes.
pub fn fold(changes: &mut Changes, e: &Folded<'_>) {
    if let Some(row) = operation_row(e) {
        changes.operations.entry(row.id).or_insert(row);
    }
    changes.others.extend(webhooks::change(e));
    changes.others.extend(clusters::change(e));
    match (e.stream.kind, e.domain) {
        (StreamKind::Webhook, _) => {}
        (StreamKind::Domain, Some((id, name))) => fold_domain(changes, e, id, name),
        (StreamKind::DnsCluster, domain) => fold_cluster(changes, e, domain.map(|d| d.0)),
        (StreamKind::Edge | StreamKind::Pool, _) => changes.others.extend(edges::change(e)),
        _ => fold_account(changes, e),
    }
}

/// The operation that an event begins, if it does. The first event of a mutation decides its kind.
pub fn operation_row(e: &Folded<'_>) -> Option<OperationRow> {
    let requested = if let Event::OperationRequested(requested) = e.event { Some(requested) } else { None };
    let is_asked = requested.is_some()
        || matches!(
            e.event,
            Event::UndoRequested(_)
                | Event::ClusterRemovalRequested(_)
                | Event::ImportRequested(_)
                | Event::ImportCutoverRequested(_)
                | Event::ImportCompareRequested(_)
        );
    let begins = matches!(e.stream.kind, StreamKind::Domain | StreamKind::DnsCluster) || is_asked;
    let id = e.operation.filter(|_| begins)?;
    let asked = requested.and_then(|requested| requested.domain.as_ref()).map(ToString::to_string);
    Some(OperationRow {
        id,
        kind: operation_kind(e.event),
        domain: e.domain.map(|domain| domain.0),
        name: e.domain.map(|domain| domain.1.to_owned()).or(asked),
        tenant: e.tenant,
        revision: e.revision,
        actor: e.actor,
        at: e.at,
    })
}

/// Kinds of operations that are carried out on edges as well as on DNS clusters.
pub const EDGE_KINDS: [&str; 6] = [
    "domain.hostname",
    "domain.cache",
    "domain.purge",
    "domain.rollback_edges",
    "domain.undo_edges",
    "domain.certificate",
];

/// Whether the operation that a mutation's first event begins is carried out on edges too.
pub fn concerns_edges(first: &Event) -> bool {
    EDGE_KINDS.contains(&operation_kind(first))
}

fn operation_kind(event: &Event) -> &'static str {
    match event {
        Event::DomainCreated(_) => "domain.create",
        Event::DomainDeleted(_) => "domain.delete",
        Event::DomainRestored(_) => "domain.restore",
        Event::DomainActivated(_) => "domain.activate",
        Event::DomainDisabled(_) => "domain.disable",
        Event::DomainEnabled(_) => "domain.enable",
        Event::DomainUpdated(_) => "domain.update",
        Event::ClusterEnabled(_) => "dns_cluster.enable",
        Event::OperationRequested(requested) => requested.kind.name(),
        Event::UndoRequested(_) => UNDO_KIND,
        Event::ClusterRemovalRequested(_) => REMOVAL_KIND,
        Event::ImportRequested(_) => IMPORT_KIND,
        Event::ImportCutoverRequested(_) => CUTOVER_KIND,
        Event::ImportCompareRequested(_) => COMPARE_KIND,
        Event::HostnameReplaced(_) | Event::HostnameDeleted(_) => "domain.hostname",
        Event::CacheChanged(_) => "domain.cache",
        Event::PurgeRequested(_) => "domain.purge",
        // One that leaves the edges alone waits for no cell.
        Event::DomainRolledBack(back) if back.edges => "domain.rollback_edges",
        Event::DomainRolledBack(_) => "domain.rollback",
        Event::DomainUndone(undone) if undone.edges => "domain.undo_edges",
        Event::DomainUndone(_) => "domain.undo",
        Event::CertificateReplaced(_) | Event::CertificateDeleted(_) => "domain.certificate",
        _ => "domain.rrsets",
    }
}

fn count(records: &[String]) -> i64 {
    i64::try_from(records.len()).unwrap_or(i64::MAX)
}

fn fold_domain(changes: &mut Changes, e: &Folded<'_>, id: DomainId, name: &str) {
    let (mut rrsets, mut records) = (0, 0);
    match e.event {
        Event::DomainCreated(created) => {
            changes.others.push(json!({
                "do": "domain_put", "id": id, "name": name, "name_key": name_key(&created.name), "tenant": created.tenant,
                "status": created.status.name(), "revision": e.revision, "labels": created.labels,
                "external_id": created.external_id, "serial_base": created.serial_base, "at": e.at,
            }));
            if created.status.is_served() {
                changes.others.push(json!({"do": "deploy", "id": id, "revision": e.revision, "at": e.at}));
            }
        }
        Event::DomainUpdated(change) => {
            changes.others.push(json!({
                "do": "domain_settings", "id": id, "labels": change.after.labels,
                "external_id": change.after.external_id, "serial_base": change.after.serial_base,
            }));
            // A floor of the serial was reckoned with the newest generation.
            if change.before.serial_base != change.after.serial_base {
                changes.others.push(json!({"do": "regenerate", "id": id}));
            }
        }
        Event::DomainDeleted(deleted) => {
            changes.others.push(json!({
                "do": "domain_deleted", "id": id, "name": name, "tenant": e.tenant,
                "hold_until": deleted.hold_until, "last_serial": deleted.last_serial,
            }));
            changes.others.push(json!({"do": "site_touch", "id": id, "revision": e.revision}));
        }
        Event::DomainRestored(restored) => {
            changes.others.push(json!({
                "do": "domain_restored", "id": id, "tenant": e.tenant, "status": restored.status.name(),
            }));
            if restored.status == DomainStatus::Disabled {
                changes.others.push(life::put(id, restored.status, restored.disabled_by));
            }
            if restored.status.is_served() {
                changes.others.push(json!({"do": "deploy", "id": id, "revision": e.revision, "at": e.at}));
            }
            changes.others.push(json!({
                "do": "site_touch", "id": id, "revision": e.revision, "restored": true, "at": e.at,
            }));
            changes.others.push(json!({"do": "regenerate", "id": id}));
        }
        Event::DomainActivated(_)
        | Event::DomainDisabled(_)
        | Event::DomainEnabled(_)
        | Event::DomainExpired(_) => changes.others.extend(life::change(e, id, name)),
        Event::RrsetReplaced(put) => {
            rrsets = i64::from(put.before.is_none());
            records = count(&put.after.records) - put.before.as_ref().map_or(0, |b| count(&b.records));
            let row = RrsetRow { domain: id, key: put.name.key(), rrtype: put.rrtype };
            let body = RrsetPut {
                owner: put.name.to_string(),
                ttl: put.after.ttl.seconds(),
                records: put.after.records.clone(),
                comment: put.after.comment.clone(),
                managed_by: put.after.managed_by.as_ref().map(ToString::to_string),
                changed: e.revision,
            };
            changes.rrsets.insert(row, Some(body));
        }
        Event::RrsetDeleted(deleted) => {
            (rrsets, records) = (-1, -count(&deleted.before.records));
            changes
                .rrsets
                .insert(RrsetRow { domain: id, key: deleted.name.key(), rrtype: deleted.rrtype }, None);
        }
        other => changes.others.extend(site_change(e, id, other)),
    }
    changes.touch(id, e, rrsets, records);
}

/// What changes of what edges are told of a domain.
fn site_change(e: &Folded<'_>, id: DomainId, event: &Event) -> Option<Value> {
    Some(match event {
        Event::HostnameReplaced(put) => json!({
            "do": "hostname_put", "id": id, "key": put.name.key(), "owner": put.name, "body": put.after,
            "revision": e.revision, "at": e.at,
        }),
        Event::HostnameWithdrawn(withdrawn) => {
            json!({"do": "hostname_withdrawn", "id": id, "key": withdrawn.name.key(), "revision": e.revision})
        }
        Event::HostnameDeleted(deleted) => {
            json!({"do": "hostname_delete", "id": id, "key": deleted.name.key(), "revision": e.revision})
        }
        Event::CacheChanged(change) => {
            json!({"do": "cache_put", "id": id, "cache": change.after, "revision": e.revision})
        }
        Event::PurgeRequested(purge) => json!({
            "do": "purge_put", "id": id, "purge": purge.purge, "scope": purge.scope, "epoch": purge.after,
            "operation": e.operation, "revision": e.revision, "at": e.at,
        }),
        Event::CertificateReplaced(put) => json!({
            "do": "certificate_put", "id": id, "certificate": put.after.id, "version": put.after.version,
            "body": put.after, "revision": e.revision,
        }),
        Event::CertificateDeleted(_) => {
            json!({"do": "certificate_delete", "id": id, "revision": e.revision})
        }
        _ => return None,
    })
}

fn fold_cluster(changes: &mut Changes, e: &Folded<'_>, domain: Option<DomainId>) {
    let cluster = e.stream.id;
    match e.event {
        Event::ClusterCreated(created) => changes.others.extend([json!({
            "do": "cluster_put", "id": cluster, "name": created.name, "database_url_file": created.database_url_file,
            "dns": created.dns, "front": created.front, "nameservers": created.nameservers,
            "enabled": created.enabled, "revision": e.revision, "at": e.at,
        }), json!({"do": "cluster_generations", "id": cluster})]),
        Event::ClusterUpdated(change) => changes.others.push(json!({
            "do": "cluster_update", "id": cluster, "database_url_file": change.after.database_url_file,
            "dns": change.after.dns, "front": change.after.front, "nameservers": change.after.nameservers,
            "revision": e.revision,
        })),
        Event::ClusterEnabled(_) => changes.others.push(cluster_enabled(e, true)),
        Event::ClusterDisabled(_) => changes.others.push(cluster_enabled(e, false)),
        other => {
            if let (Some(id), Some((state, fact))) = (domain, outcome(other)) {
                changes.others.push(json!({
                    "do": "outcome", "id": id, "cluster": cluster, "state": state,
                    "revision": fact.revision, "active": fact.active, "generation": fact.generation, "checksum": fact.checksum, "serial": fact.serial,
                    "error": fact.error, "verified_at": fact.stages.verified,
                }));
            }
        }
    }
}

fn cluster_enabled(e: &Folded<'_>, enabled: bool) -> Value {
    json!({"do": "cluster_enabled", "id": e.stream.id, "enabled": enabled, "revision": e.revision})
}

/// The deployment's state after a fact; none where the
/// fact only marks a stage on the way.
fn outcome(event: &Event) -> Option<(&'static str, &DeploymentFact)> {
    match event {
        Event::DeploymentAcknowledged(fact) if fact.removed => Some(("removed", fact)),
        Event::DeploymentAcknowledged(fact) => Some(("current", fact)),
        Event::DeploymentActivated(fact) => Some(("activating", fact)),
        Event::DeploymentRejected(fact) => Some(("rejected", fact)),
        Event::DeploymentFailed(fact) => Some(("failed", fact)),
        Event::DeploymentAhead(fact) => Some(("ahead", fact)),
        _ => None,
    }
}

fn fold_account(changes: &mut Changes, e: &Folded<'_>) {
    let id = e.stream.id;
    let change = match e.event {
        Event::TenantCreated(created) => json!({
            "do": "tenant_put", "id": id, "name": created.name, "labels": created.labels,
            "external_id": created.external_id, "revision": e.revision, "at": e.at,
        }),
        Event::MemberAdded(member) => {
            json!({"do": "member_put", "tenant": id, "user": member.user, "role": member.role})
        }
        Event::MemberChanged(member) => {
            json!({"do": "member_put", "tenant": id, "user": member.user, "role": member.after})
        }
        Event::MemberRemoved(member) => json!({"do": "member_remove", "tenant": id, "user": member.user}),
        Event::UserCreated(user) => {
            json!({"do": "user_put", "id": id, "admin": user.admin, "revision": e.revision, "at": e.at})
        }
        Event::DelegationLost(_) | Event::DelegationRestored(_) => {
            let Some(change) = life::delegation(e) else { return };
            change
        }
        Event::DomainMemberAdded(_) | Event::DomainMemberChanged(_) | Event::DomainMemberRemoved(_) => {
            let Some(change) = domain_member(e) else { return };
            change
        }
        Event::TokenCreated(token) => json!({
            "do": "token_put", "id": token.token, "user": id, "name": token.name,
            "expires_at": token.expires_at, "at": e.at,
        }),
        Event::TokenRevoked(token) => json!({"do": "token_revoke", "id": token.token, "at": e.at}),
        Event::PlatformInitialized(platform) => {
            json!({"do": "platform", "tenant": platform.tenant, "revision": e.revision})
        }
        Event::DnsIdentityChanged(change) => {
            json!({
                "do": "identity", "identity": change.after, "generation": change.generation, "revision": e.revision,
            })
        }
        Event::EndpointsChanged(change) => {
            let (before, after) = (change.before.as_ref(), &change.after);
            let led = |endpoints: &Endpoints| (endpoints.zone.clone(), endpoints.ttl);
            json!({
                "do": "endpoints", "endpoints": after, "generation": change.generation, "revision": e.revision,
                "before": before.map(|before| &before.zone), "all": before.map(led) != Some(led(after)),
            })
        }
        Event::DeploymentsPaused(pause) => {
            let (scope, of) = pause_key(&pause.scope);
            json!({"do": "pause", "scope": scope, "id": of, "reason": pause.reason, "at": e.at})
        }
        Event::DeploymentsResumed(pause) => {
            let (scope, of) = pause_key(&pause.scope);
            json!({"do": "resume", "scope": scope, "id": of})
        }
        _ => {
            changes.others.extend(people::change(e));
            return;
        }
    };
    changes.others.push(change);
    changes.others.extend(scopes(e));
    changes.others.extend(people::further(e));
    changes.others.extend(people::managing(e));
}

/// What a token is limited to, besides what every token has.
fn scopes(e: &Folded<'_>) -> Option<Value> {
    let Event::TokenCreated(token) = e.event else { return None };
    token.scopes.as_ref().map(|scopes| json!({"do": "token_scopes", "id": token.token, "scopes": scopes}))
}

/// What changes of the members of a single domain.
fn domain_member(e: &Folded<'_>) -> Option<Value> {
    let (domain, _) = e.domain?;
    let put = |user: UserId, role: Role| json!({"do": "domain_member_put", "domain": domain, "user": user, "role": role});
    match e.event {
        Event::DomainMemberAdded(member) => Some(put(member.user, member.role)),
        Event::DomainMemberChanged(member) => Some(put(member.user, member.after)),
        Event::DomainMemberRemoved(member) => {
            Some(json!({"do": "domain_member_remove", "domain": domain, "user": member.user}))
        }
        _ => None,
    }
}

/// The key of a pause's row.
pub fn pause_key(scope: &PauseScope) -> (&'static str, String) {
    match scope {
        PauseScope::All => ("all", String::new()),
        PauseScope::Target(cluster) => ("target", cluster.to_string()),
        PauseScope::Domain(name) => ("domain", name.to_string()),
    }
}
