//! What can happen. An event is a past-tense fact, complete and permanent: a
//! changed shape is a new schema number with an upcaster (`codec.rs`) and a
//! golden file. No event holds a secret, a mail address or a client's address.

use crate::dns::{DomainName, OwnerName, RrSetBody, RrType};
use crate::domain::{
    CachePolicy, CertificateDeleted, CertificateReplaced, DomainRolledBack, DomainUndone, HostnameDeleted,
    HostnameReplaced, HostnameWithdrawn, PurgeRequested,
};
pub use crate::domain::{
    DelegationLost, DelegationRestored, DisabledBy, DomainActivated, DomainDisabled, DomainExpired,
    DomainStatus, Proof,
};
use crate::edge::{
    AddressesChanged, CellSwitched, EdgeCreated, EdgeDeleted, EdgeSettings, EndpointsChanged, IdentityCloned,
    IdentityIssued, IdentityRevoked, PoolCreated,
};
use crate::ids::{StreamKind, TenantId};
use crate::migration::{ImportCompareRequested, ImportCutoverRequested, ImportRequested};
pub use crate::operation::{
    AuditExported, CellRef, ClusterRemovalRequested, OperationError, OperationFinished, OperationRequested,
    OperationResult, Projection, REMOVAL_KIND, UNDO_KIND, UndoRequested, Work,
};
pub use crate::people::{
    MemberAdded, MemberChanged, MemberRemoved, TenantCreated, TokenCreated, TokenRevoked, UserCreated,
};
use crate::people::{ProfileChanged, TenantSettings, UserSettings};
use crate::time::Timestamp;
use crate::webhook::{
    WebhookCreated, WebhookDeleted, WebhookDisabled, WebhookReplayed, WebhookSecretRotated, WebhookSettings,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

pub use crate::deployment::{
    DeploymentFact, DeploymentsPaused, DeploymentsResumed, DriftMended, PauseScope, Stages,
};

/// Labels of a resource: at most [`crate::domain::LABELS_MAX_COUNT`].
pub type Labels = BTreeMap<String, String>;

/// A domain came into being.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DomainCreated {
    /// Its name.
    pub name: DomainName,
    /// Who owns it.
    pub tenant: TenantId,
    /// `active` when an administrator forced it, else `pending_verification`.
    pub status: DomainStatus,
    /// Labels of its owner.
    pub labels: Labels,
    /// The owner's own number for it.
    pub external_id: Option<String>,
    /// SOA serial = serial_base + domain revision + platform revision; lies
    /// above any serial ever served under this name.
    pub serial_base: u32,
}

/// The settings of a domain that `PATCH` changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DomainSettings {
    /// Labels of its owner.
    pub labels: Labels,
    /// The owner's own number for it.
    pub external_id: Option<String>,
    /// See [`DomainCreated::serial_base`].
    pub serial_base: u32,
}

/// A value before and after a change, both complete.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change<T> {
    /// What it was.
    pub before: T,
    /// What it is now.
    pub after: T,
}

/// A domain was deleted; it can be restored until `hold_until`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DomainDeleted {
    /// The status it had.
    pub before: DomainStatus,
    /// Until when the name is held for its owner.
    pub hold_until: Timestamp,
    /// The highest SOA serial that may have been served under the name.
    pub last_serial: u32,
    /// Guards that the caller allowed to be crossed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed: Vec<String>,
}

/// A deleted domain was restored with everything it held.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DomainRestored {
    /// The status it has again.
    pub status: DomainStatus,
    /// Who disabled it, where it is disabled again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disabled_by: Option<DisabledBy>,
}

/// One RRset was put, whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RrsetReplaced {
    /// Owner name, relative to the domain.
    pub name: OwnerName,
    /// Record type.
    #[serde(rename = "type")]
    pub rrtype: RrType,
    /// What it was; none when it is new.
    pub before: Option<RrSetBody>,
    /// What it is now.
    pub after: RrSetBody,
    /// Guards that the caller allowed to be crossed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed: Vec<String>,
}

/// One RRset was deleted, whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RrsetDeleted {
    /// Owner name, relative to the domain.
    pub name: OwnerName,
    /// Record type.
    #[serde(rename = "type")]
    pub rrtype: RrType,
    /// What it was.
    pub before: RrSetBody,
    /// Guards that the caller allowed to be crossed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed: Vec<String>,
}

/// A DNS cluster was registered: one PowerDNS beside its own PostgreSQL server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterCreated {
    /// Its name, unique.
    pub name: String,
    /// The file that holds the URL of its database; the URL itself is a secret.
    pub database_url_file: String,
    /// Address and port at which its PowerDNS answers.
    pub dns: String,
    /// Address and port at which dnsdist answers from this cluster alone, if there is one.
    pub front: Option<String>,
    /// The names under which it is delegated to.
    pub nameservers: Vec<DomainName>,
    /// Whether it is deployed to from the start.
    pub enabled: bool,
}

/// A DNS cluster is no more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterDeleted {
    /// The name that it had.
    pub name: String,
    /// Whether what it served was left as it was.
    pub retained: bool,
    /// Zones that were taken away from it.
    pub zones: u64,
}

/// How a DNS cluster is reached and named; what `PATCH` changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterSettings {
    /// See [`ClusterCreated::database_url_file`].
    pub database_url_file: String,
    /// See [`ClusterCreated::dns`].
    pub dns: String,
    /// See [`ClusterCreated::front`].
    pub front: Option<String>,
    /// See [`ClusterCreated::nameservers`].
    pub nameservers: Vec<DomainName>,
}

/// The platform was initialized.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlatformInitialized {
    /// The platform's own tenant.
    pub tenant: TenantId,
}

/// What every zone says of the platform: its SOA and its apex NS set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DnsIdentity {
    /// The apex NS set, 2 to 8 names.
    pub nameservers: Vec<DomainName>,
    /// SOA RNAME, as a domain name (`hostmaster.example.net`).
    pub hostmaster: DomainName,
    /// TTL of the SOA in seconds.
    pub soa_ttl: u32,
    /// TTL of the apex NS set in seconds.
    pub ns_ttl: u32,
    /// SOA REFRESH in seconds.
    pub refresh: u32,
    /// SOA RETRY in seconds.
    pub retry: u32,
    /// SOA EXPIRE in seconds.
    pub expire: u32,
    /// SOA MINIMUM, the negative-caching TTL (RFC 2308), in seconds.
    pub minimum: u32,
}

/// The platform's DNS identity changed. Every zone is rendered anew.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DnsIdentityChanged {
    /// What it was; none at first.
    pub before: Option<DnsIdentity>,
    /// What it is now.
    pub after: DnsIdentity,
    /// How often it has changed: the platform's part of every SOA serial.
    pub generation: u32,
}

/// What outsiders should know of a type of event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventDoc {
    /// The type.
    pub name: &'static str,
    /// Its newest schema.
    pub schema: i16,
    /// Whose streams it stands in.
    pub stream: StreamKind,
    /// What it means.
    pub meaning: &'static str,
    /// Its data, as it was once written.
    pub example: &'static str,
}

macro_rules! events {
    ($($meaning:literal $variant:ident($payload:ty) = $name:literal @ $schema:literal in $kind:ident),+ $(,)?) => {
        /// Every event that there is.
        #[derive(Debug, Clone, PartialEq, Eq)]
        #[allow(missing_docs)]
        pub enum Event { $($variant($payload)),+ }

        impl Event {
            /// Every (type, newest schema), in the order of the source.
            pub const TYPES: &'static [(&'static str, i16)] = &[$(($name, $schema)),+];

            /// The same with what outsiders should know of each.
            pub const REFERENCE: &'static [EventDoc] = &[$(EventDoc {
                name: $name,
                schema: $schema,
                stream: StreamKind::$kind,
                meaning: $meaning,
                example: include_str!(concat!("../tests/golden/", $name, ".", $schema, ".json")),
            }),+];

            /// The event's type, as outsiders see it.
            pub fn type_name(&self) -> &'static str {
                match self { $(Self::$variant(_) => $name),+ }
            }

            /// The schema number that [`Event::to_json`] writes.
            pub fn schema(&self) -> i16 {
                match self { $(Self::$variant(_) => $schema),+ }
            }

            /// The data as JSON text, with a fixed order of keys.
            pub fn to_json(&self) -> serde_json::Result<String> {
                match self { $(Self::$variant(payload) => serde_json::to_string(payload)),+ }
            }

            /// Reads data of the newest schema; none when the type is unknown.
            pub(crate) fn from_value(type_name: &str, data: serde_json::Value) -> Option<serde_json::Result<Self>> {
                match type_name {
                    $($name => Some(serde_json::from_value::<$payload>(data).map(Self::$variant)),)+
                    _ => None,
                }
            }
        }
    };
}

/// Nothing more to say than that it happened.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nothing {}

events! {
    "A domain came into being: `active` when an administrator forced it, else waiting for proof of ownership."
    DomainCreated(DomainCreated) = "domain.created" @ 1 in Domain,
    "Settings of a domain changed: labels, external id, or what its SOA serials start above."
    DomainUpdated(Change<DomainSettings>) = "domain.updated" @ 1 in Domain,
    "A domain was deleted: it is no longer served, and can be restored until `hold_until`."
    DomainDeleted(DomainDeleted) = "domain.deleted" @ 1 in Domain,
    "A deleted domain was restored with everything it held."
    DomainRestored(DomainRestored) = "domain.restored" @ 1 in Domain,
    "A domain is served from now on: its ownership is proven, or an administrator forced it. `proof` says which."
    DomainActivated(DomainActivated) = "domain.activated" @ 1 in Domain,
    "A domain is served no longer, and kept with everything it holds. What an administrator disabled only an administrator enables."
    DomainDisabled(DomainDisabled) = "domain.disabled" @ 1 in Domain,
    "A disabled domain is served again."
    DomainEnabled(Nothing) = "domain.enabled" @ 1 in Domain,
    "A domain whose ownership was not proven in time is given up, and its name is free. It was never served."
    DomainExpired(DomainExpired) = "domain.expired" @ 1 in Domain,
    "The parent delegates the domain to the platform no longer. It is served on. It stands in the stream of the domain's owner: nothing that is served changes."
    DelegationLost(DelegationLost) = "domain.delegation_lost" @ 1 in Tenant,
    "The parent delegates the domain to the platform again."
    DelegationRestored(DelegationRestored) = "domain.delegation_restored" @ 1 in Tenant,
    "One RRset was put, whole; `before` is null when it is new. `managed_by` of either names the tool that owned it then."
    RrsetReplaced(RrsetReplaced) = "rrset.replaced" @ 2 in Domain,
    "One RRset was deleted, whole."
    RrsetDeleted(RrsetDeleted) = "rrset.deleted" @ 2 in Domain,
    "A tenant came into being."
    TenantCreated(TenantCreated) = "tenant.created" @ 1 in Tenant,
    "A user became a member of the tenant."
    MemberAdded(MemberAdded) = "tenant.member_added" @ 2 in Tenant,
    "A user is no longer a member of the tenant."
    MemberRemoved(MemberRemoved) = "tenant.member_removed" @ 1 in Tenant,
    "A member of the tenant may do more or less than before."
    MemberChanged(MemberChanged) = "tenant.member_changed" @ 1 in Tenant,
    "A user became a member of the domain alone. It stands in the stream of the domain's owner: it changes nothing that is served."
    DomainMemberAdded(MemberAdded) = "domain.member_added" @ 1 in Tenant,
    "A member of the domain alone may do more or less than before."
    DomainMemberChanged(MemberChanged) = "domain.member_changed" @ 1 in Tenant,
    "A user is no longer a member of the domain alone."
    DomainMemberRemoved(MemberRemoved) = "domain.member_removed" @ 1 in Tenant,
    "A user came into being. Its mail address stands in an erasable table, never in the log."
    UserCreated(UserCreated) = "user.created" @ 1 in User,
    "A token was made for the user. Its secret is kept elsewhere, as a hash."
    TokenCreated(TokenCreated) = "token.created" @ 3 in User,
    "A token of the user stopped working for good."
    TokenRevoked(TokenRevoked) = "token.revoked" @ 1 in User,
    "A DNS cluster was registered. The URL of its database is a secret: the log names the file that holds it."
    ClusterCreated(ClusterCreated) = "dns_cluster.created" @ 1 in DnsCluster,
    "How the cluster is reached or named changed."
    ClusterUpdated(Change<ClusterSettings>) = "dns_cluster.updated" @ 1 in DnsCluster,
    "Domains are deployed to the cluster from now on."
    ClusterEnabled(Nothing) = "dns_cluster.enabled" @ 1 in DnsCluster,
    "Nothing is deployed to the cluster any more; what it serves stays as it is."
    ClusterDisabled(Nothing) = "dns_cluster.disabled" @ 1 in DnsCluster,
    "A DNS cluster is no more: what was deployed to it was taken away before, or was left as it was."
    ClusterDeleted(ClusterDeleted) = "dns_cluster.deleted" @ 1 in DnsCluster,
    "A DNS cluster was asked to go: it is enabled never again, and goes when nothing that was deployed to it is left there."
    ClusterRemovalRequested(ClusterRemovalRequested) = "dns_cluster.removal_requested" @ 1 in Operation,
    "A candidate was rendered and checksummed, and its activation took more than a second."
    DeploymentRendered(DeploymentFact) = "deployment.rendered" @ 1 in DnsCluster,
    "The candidate will never be applied; what is active stays."
    DeploymentRejected(DeploymentFact) = "deployment.rejected" @ 1 in DnsCluster,
    "The target committed it, but its listeners do not show it yet; `error` says what they show."
    DeploymentActivated(DeploymentFact) = "deployment.activated" @ 1 in DnsCluster,
    "The real listeners answer with it. In the normal case this is the only event of a deployment."
    DeploymentAcknowledged(DeploymentFact) = "deployment.acknowledged" @ 1 in DnsCluster,
    "It was not applied this time and is tried again. Written when a failure begins and when its reason changes."
    DeploymentFailed(DeploymentFact) = "deployment.failed" @ 1 in DnsCluster,
    "Something newer was there already."
    DeploymentSuperseded(DeploymentFact) = "deployment.superseded" @ 1 in DnsCluster,
    "A deployment that had failed came through."
    DeploymentRecovered(DeploymentFact) = "deployment.recovered" @ 1 in DnsCluster,
    "The target holds what this log does not know; it waits for adopt or discard."
    DeploymentAhead(DeploymentFact) = "deployment.ahead" @ 1 in DnsCluster,
    "Rows of the target differed from what is desired, and were set right."
    DriftMended(DriftMended) = "deployment.drift_mended" @ 1 in DnsCluster,
    "Deployments were paused: all of them, on a target, or of a domain."
    DeploymentsPaused(DeploymentsPaused) = "deployments.paused" @ 1 in Platform,
    "Deployments were resumed."
    DeploymentsResumed(DeploymentsResumed) = "deployments.resumed" @ 1 in Platform,
    "Imperative work was asked for: a projection is to be built anew or compared with the log."
    OperationRequested(OperationRequested) = "operation.requested" @ 1 in Operation,
    "Everything that a token did in domains was asked to be undone, where the caller may write."
    UndoRequested(UndoRequested) = "undo.requested" @ 2 in Operation,
    "Zones of another server were asked to be taken in. Each becomes events of its own domain, which bear the operation as their `change`."
    ImportRequested(Box<ImportRequested>) = "import.requested" @ 1 in Operation,
    "An import that follows its source was asked to end: a last look, then the source is not asked any more."
    ImportCutoverRequested(Box<ImportCutoverRequested>) = "import.cutover_requested" @ 1 in Operation,
    "The answers of the old server and of ours for the zones of an import were asked to be compared."
    ImportCompareRequested(Box<ImportCompareRequested>) = "import.compare_requested" @ 1 in Operation,
    "An operation ended in a way that the deployments alone do not tell: a target was out of service, the deadline passed, or it was imperative work."
    OperationFinished(OperationFinished) = "operation.finished" @ 1 in Operation,
    "The platform was initialized."
    PlatformInitialized(PlatformInitialized) = "platform.initialized" @ 1 in Platform,
    "What every zone says of the platform (SOA, apex NS) changed: every zone is rendered anew."
    DnsIdentityChanged(DnsIdentityChanged) = "platform.dns_identity_changed" @ 1 in Platform,
    "The user took a part of the audit trail out of the platform."
    AuditExported(AuditExported) = "audit.exported" @ 1 in User,
    // What edges serve of a domain.
    "A name of the domain is proxied from now on, or otherwise than before; `before` is null when it is new."
    HostnameReplaced(Box<HostnameReplaced>) = "hostname.replaced" @ 1 in Domain,
    "A name of the domain is proxied no longer."
    HostnameDeleted(Box<HostnameDeleted>) = "hostname.deleted" @ 1 in Domain,
    "How answers are kept on edges changed."
    CacheChanged(Change<CachePolicy>) = "cache.changed" @ 1 in Domain,
    "What edges keep of the domain must not be given any more: `after` is the epoch of the cache from now on."
    PurgeRequested(PurgeRequested) = "purge.requested" @ 1 in Domain,
    // What proves the names of a domain.
    "The domain has another certificate from now on; `before` is null when it had none. The private key stands nowhere in the log."
    CertificateReplaced(Box<CertificateReplaced>) = "certificate.replaced" @ 1 in Domain,
    "The domain has no certificate any more."
    CertificateDeleted(Box<CertificateDeleted>) = "certificate.deleted" @ 1 in Domain,
    // Edges and pools.
    "An edge host was made known, with its cells. It enrols with a token that is kept elsewhere, as a digest."
    EdgeCreated(EdgeCreated) = "edge.created" @ 1 in Edge,
    "What is said of the edge changed: where it is, its labels, its external id."
    EdgeUpdated(Change<EdgeSettings>) = "edge.updated" @ 1 in Edge,
    "The edge is answered again."
    EdgeEnabled(Nothing) = "edge.enabled" @ 1 in Edge,
    "The edge is answered no longer, from its next request on; what it serves stays as it is."
    EdgeDisabled(Nothing) = "edge.disabled" @ 1 in Edge,
    "No new visitors are to be sent to the edge."
    EdgeDrained(Nothing) = "edge.drained" @ 1 in Edge,
    "Visitors may be sent to the edge again."
    EdgeUndrained(Nothing) = "edge.undrained" @ 1 in Edge,
    "A cell of the edge holds no domains any more: the other cells have taken them."
    CellDrained(CellSwitched) = "edge.cell_drained" @ 1 in Edge,
    "A cell of the edge holds domains again."
    CellUndrained(CellSwitched) = "edge.cell_undrained" @ 1 in Edge,
    "The edge was given an identity certificate: for the first time, or because the one before comes to its end."
    EdgeIdentityIssued(IdentityIssued) = "edge.identity_issued" @ 1 in Edge,
    "Every identity that the edge was given so far stopped working for good; it enrols anew."
    EdgeIdentityRevoked(IdentityRevoked) = "edge.identity_revoked" @ 1 in Edge,
    "An alarm: somebody else seems to use the identity of the edge too. Rotate it."
    EdgeIdentityCloned(IdentityCloned) = "edge.identity_cloned" @ 1 in Edge,
    "The edge is gone for good, and its name is free."
    EdgeDeleted(EdgeDeleted) = "edge.deleted" @ 1 in Edge,
    "A service class of cells was made."
    PoolCreated(PoolCreated) = "pool.created" @ 1 in Pool,
    // The history of a domain.
    "The domain was given back what it was at the revision `to`; what that changed stands beside it, in the same revision."
    DomainRolledBack(DomainRolledBack) = "domain.rolled_back" @ 1 in Domain,
    "The `revisions` were undone, as if they had never been; what that changed stands beside it, in the same revision. What others changed later stays: `kept` names it."
    DomainUndone(DomainUndone) = "domain.undone" @ 1 in Domain,
    // Where proxied names are answered.
    "The public addresses of the edge changed: those that DNS gives out while it is ready."
    AddressesChanged(AddressesChanged) = "edge.addresses_changed" @ 1 in Edge,
    "What DNS answers for proxied names changed: edges became ready, or visitors are sent to some of them no longer."
    EndpointsChanged(Box<EndpointsChanged>) = "platform.endpoints_changed" @ 1 in Platform,
    "Edges serve a name no longer that was deleted: DNS has not answered with it for so long that nobody asks for it."
    HostnameWithdrawn(HostnameWithdrawn) = "hostname.withdrawn" @ 1 in Domain,
    // People, and the tenants they belong to.
    "The user is an administrator of the platform from now on, or no longer."
    UserUpdated(Change<UserSettings>) = "user.updated" @ 1 in User,
    "What is known of the person changed: the data names what. The values stand in an erasable table, never in the log."
    ProfileChanged(ProfileChanged) = "user.profile_changed" @ 1 in User,
    "The user has another password. What it had open ended, but for the session that asked."
    PasswordChanged(Nothing) = "user.password_changed" @ 1 in User,
    "The user may come in again."
    UserEnabled(Nothing) = "user.enabled" @ 1 in User,
    "The user may not come in: its sessions and streams ended here, and its tokens are refused."
    UserDisabled(Nothing) = "user.disabled" @ 1 in User,
    "The user is gone for good, and who it was is erased. Its tokens and memberships ended here."
    UserDeleted(Nothing) = "user.deleted" @ 1 in User,
    "Name, labels or external id of the tenant changed."
    TenantUpdated(Change<TenantSettings>) = "tenant.updated" @ 1 in Tenant,
    "The tenant is gone for good, and its name is free. It owned no domain."
    TenantDeleted(Nothing) = "tenant.deleted" @ 1 in Tenant,
    // Receivers of events.
    "A webhook came into being: events of its owner are sent to its URL from here on. Its secret is kept elsewhere, sealed."
    WebhookCreated(WebhookCreated) = "webhook.created" @ 1 in Webhook,
    "What is said of the webhook changed. It counts for everything that was not delivered yet."
    WebhookUpdated(Box<Change<WebhookSettings>>) = "webhook.updated" @ 1 in Webhook,
    "What stands after this event is sent to the webhook."
    WebhookEnabled(Nothing) = "webhook.enabled" @ 1 in Webhook,
    "Nothing is sent to the webhook any more: somebody asked for it, its receiver said that it is gone, or nothing could be delivered."
    WebhookDisabled(WebhookDisabled) = "webhook.disabled" @ 1 in Webhook,
    "The webhook has another secret; the one before counts beside it until `until`."
    WebhookSecretRotated(WebhookSecretRotated) = "webhook.secret_rotated" @ 1 in Webhook,
    "What stands after a position is sent to the webhook again."
    WebhookReplayed(WebhookReplayed) = "webhook.replayed" @ 1 in Webhook,
    "The webhook is gone for good, with its secrets and what was kept of its deliveries."
    WebhookDeleted(WebhookDeleted) = "webhook.deleted" @ 1 in Webhook,
}
