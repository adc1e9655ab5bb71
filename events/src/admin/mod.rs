//! Decisions about everything that is not a domain: tenants, users, tokens, DNS
//! clusters, the platform, deployments and the end of operations. Each reads a
//! view of a few facts; whoever may do it is decided by the one policy.

mod cluster;
mod decide;
mod member;
mod observation;
mod operation;
mod people;
mod platform;

pub use cluster::reach_faults;
pub use decide::{decide, is_unseen, name_faults, needed, permitted};
pub use observation::{Observation, Outcome};
pub use people::{PeopleView, TenantPatch, UserFacts, UserPatch};
pub use platform::reason_faults;

use crate::actor::{DomainRef, Resource, Role, Verb};
use crate::dns::DomainName;
use crate::edge::{EdgeCommand, EdgeView, Endpoints};
use crate::event::{
    AuditExported, ClusterCreated, ClusterRemovalRequested, ClusterSettings, DnsIdentity, Labels,
    OperationFinished, OperationRequested, PauseScope, UndoRequested,
};
use crate::ids::{
    ClusterId, DomainId, EdgeId, OperationId, PoolId, Revision, StreamRef, TenantId, TokenId, UserId,
    WebhookId,
};
use crate::manager::Managing;
use crate::migration::{ImportCompareRequested, ImportCutoverRequested, ImportRequested};
use crate::people::TokenLimits;
use crate::scope::Scope;
use crate::time::Timestamp;
use crate::webhook::{WebhookCommand, WebhookView};

/// Octets of a tenant's, cluster's or edge's name, at most.
pub const NAME_MAX_BYTES: usize = 255;
/// Octets of a token's name, at most.
pub const TOKEN_NAME_MAX_BYTES: usize = 100;
/// Octets of the reason of a pause, at most.
pub const REASON_MAX_BYTES: usize = 500;
/// DNS clusters, at most.
pub const CLUSTERS_MAX_COUNT: i64 = 16;
/// Nameservers of a cluster or of the platform.
pub const NAMESERVERS_COUNT: std::ops::RangeInclusive<usize> = 2..=8;

/// What can be asked besides commands on domains.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AdminCommand {
    /// Make the platform's own tenant.
    InitializePlatform {
        /// The id it will have.
        tenant: TenantId,
    },
    /// Say what every zone says of the platform.
    SetDnsIdentity(DnsIdentity),
    /// Make a tenant.
    CreateTenant {
        /// The id it will have.
        id: TenantId,
        /// Its name.
        name: String,
        /// Labels.
        labels: Labels,
        /// The operator's own number for it.
        external_id: Option<String>,
    },
    /// Make a user a member of a tenant, or give a member another role.
    AddMember {
        /// The tenant.
        tenant: TenantId,
        /// The user.
        user: UserId,
        /// What it may do there; none: what it may already, or everything where it is new.
        role: Option<Role>,
    },
    /// End a membership.
    RemoveMember {
        /// The tenant.
        tenant: TenantId,
        /// The user.
        user: UserId,
    },
    /// Make a user a member of a single domain, or give such a member another role.
    AddDomainMember {
        /// The domain.
        domain: OwnedDomain,
        /// The user.
        user: UserId,
        /// What it may do there.
        role: Role,
    },
    /// End the membership of a single domain.
    RemoveDomainMember {
        /// The domain.
        domain: OwnedDomain,
        /// The user.
        user: UserId,
    },
    /// Record that the parent of a domain delegates it here no longer, or again.
    RecordDelegation {
        /// The domain.
        domain: OwnedDomain,
        /// No longer.
        lost: bool,
        /// What the parent's servers say, for people.
        detail: String,
    },
    /// Make a user. Its mail address travels beside the command, not in it.
    CreateUser {
        /// The id it will have.
        id: UserId,
        /// Administrator of the platform.
        admin: bool,
    },
    /// Make a token. Its secret travels beside the command, hashed.
    CreateToken {
        /// Whose.
        user: UserId,
        /// The id it will have.
        token: TokenId,
        /// What its owner calls it.
        name: String,
        /// When it stops working by itself.
        expires_at: Option<Timestamp>,
        /// What it is limited to; none: to nothing but what its user may.
        scopes: Option<Vec<Scope>>,
        /// When and from where it works.
        limits: TokenLimits,
        /// Whose tool it belongs to.
        managing: Managing,
    },
    /// Revoke a token.
    RevokeToken {
        /// Whose.
        user: UserId,
        /// Which.
        token: TokenId,
        /// Shown by its holder: possession suffices to revoke it.
        possessed: bool,
    },
    /// Change what is said of a user. Mail address and name travel beside the command, not in it.
    UpdateUser {
        /// Which.
        user: UserId,
        /// What.
        patch: UserPatch,
    },
    /// Let a user in, or not.
    SetUserEnabled {
        /// Which.
        user: UserId,
        /// In or not.
        enabled: bool,
    },
    /// Erase a user.
    DeleteUser {
        /// Which.
        user: UserId,
    },
    /// Give a user another password. It travels beside the command, hashed.
    SetPassword {
        /// Whose.
        user: UserId,
    },
    /// Change what is said of a tenant.
    UpdateTenant {
        /// Which.
        tenant: TenantId,
        /// What.
        patch: TenantPatch,
    },
    /// Remove a tenant that owns nothing.
    DeleteTenant {
        /// Which.
        tenant: TenantId,
    },
    /// Register a DNS cluster.
    CreateCluster {
        /// The id it will have.
        id: ClusterId,
        /// What is said of it.
        cluster: ClusterCreated,
    },
    /// Change how a cluster is reached.
    UpdateCluster {
        /// Which.
        cluster: ClusterId,
        /// What changes.
        patch: ClusterPatch,
    },
    /// Take a cluster in or out of deployment.
    SetClusterEnabled {
        /// Which.
        cluster: ClusterId,
        /// In or out.
        enabled: bool,
    },
    /// Ask for a cluster to go once what was deployed to it is taken away.
    RequestRemoval {
        /// The id that its operation will have.
        operation: OperationId,
        /// Which.
        requested: ClusterRemovalRequested,
    },
    /// Forget a cluster.
    DeleteCluster {
        /// Which.
        cluster: ClusterId,
        /// Whether what it serves is left as it is.
        retained: bool,
        /// Zones that were taken away from it.
        zones: u64,
    },
    /// Pause deployments.
    Pause {
        /// Which.
        scope: PauseScope,
        /// Why.
        reason: String,
    },
    /// Resume deployments.
    Resume {
        /// Which.
        scope: PauseScope,
        /// Why.
        reason: String,
    },
    /// Record what the reconciler observed on a cluster.
    RecordDeployments {
        /// The cluster.
        cluster: ClusterId,
        /// What was observed, of many domains.
        observed: Vec<Observation>,
    },
    /// Ask for imperative work.
    RequestOperation {
        /// The id that its operation will have.
        operation: OperationId,
        /// What is to be done.
        requested: OperationRequested,
    },
    /// Ask for everything to be undone that a token did in domains. Whoever asks: it is done where the caller may write.
    RequestUndo {
        /// The id that its operation will have.
        operation: OperationId,
        /// What is to be undone.
        requested: UndoRequested,
    },
    /// Ask for zones of another server to be taken in.
    RequestImport {
        /// The id that its operation will have.
        operation: OperationId,
        /// Which, and what becomes of them.
        requested: Box<ImportRequested>,
    },
    /// Ask for an import that follows its source to end.
    RequestCutover {
        /// The id that its operation will have.
        operation: OperationId,
        /// Which import.
        requested: Box<ImportCutoverRequested>,
    },
    /// Ask for the answers of the old server and of ours to be compared.
    RequestCompare {
        /// The id that its operation will have.
        operation: OperationId,
        /// Which import.
        requested: Box<ImportCompareRequested>,
    },
    /// Record that a user takes a part of the audit trail out of the platform.
    RecordExport {
        /// Who.
        user: UserId,
        /// What.
        exported: AuditExported,
    },
    /// Call imperative work off.
    CancelOperation {
        /// Its operation.
        operation: OperationId,
    },
    /// End operations in a way that deployment facts alone do not tell.
    FinishOperation {
        /// The domain concerned.
        domain: Option<(DomainId, DomainName)>,
        /// Its owner.
        tenant: Option<TenantId>,
        /// How it ended.
        finished: OperationFinished,
    },
    /// A command on an edge.
    Edge {
        /// Which.
        edge: EdgeId,
        /// How.
        command: EdgeCommand,
    },
    /// A command on a webhook.
    Webhook {
        /// Which.
        webhook: WebhookId,
        /// Whose; none: the platform's own.
        owner: Option<TenantId>,
        /// How.
        command: WebhookCommand,
    },
    /// Make the pool that every cell belongs to.
    CreateSharedPool,
    /// Say what DNS answers for proxied names.
    SetEndpoints {
        /// What.
        endpoints: Endpoints,
        /// Why, edge by edge, for people.
        why: Vec<String>,
    },
}

/// A domain whose members are decided about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnedDomain {
    /// Which one.
    pub id: DomainId,
    /// Its name.
    pub name: DomainName,
    /// Its owner.
    pub tenant: TenantId,
}

impl OwnedDomain {
    /// As the policy sees it.
    pub fn as_ref(&self) -> DomainRef<'_> {
        DomainRef { id: self.id, tenant: self.tenant, name: self.name.as_str() }
    }
}

/// What `PATCH` says of a DNS cluster; what is none stays.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClusterPatch {
    /// The file that holds the URL of its database.
    pub database_url_file: Option<String>,
    /// Address and port of its PowerDNS.
    pub dns: Option<String>,
    /// `Some(None)`: there is no dnsdist that answers from it alone.
    pub front: Option<Option<String>>,
    /// The names under which it is delegated to.
    pub nameservers: Option<Vec<DomainName>>,
}

/// The facts that a decision reads. Those that a command does not need stay at their default.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AdminView {
    /// The newest revision of the command's stream; 0 when it does not exist.
    pub revision: Revision,
    /// Who holds what the command claims.
    pub holder: Option<uuid::Uuid>,
    /// The operation that builds the same projection anew and has not ended.
    pub running: Option<OperationId>,
    /// The name (or mail address) is in use by another.
    pub name_taken: bool,
    /// The user named by the command exists.
    pub user_exists: bool,
    /// What the user may do in the tenant, or with the domain, already.
    pub role: Option<Role>,
    /// The token exists and is not revoked.
    pub token_active: bool,
    /// The cluster is enabled.
    pub enabled: bool,
    /// The cluster was asked to go.
    pub leaving: bool,
    /// The cluster's name.
    pub cluster_name: String,
    /// How the cluster is reached now.
    pub cluster: Option<ClusterSettings>,
    /// Clusters that exist.
    pub clusters: i64,
    /// The scope is paused already.
    pub paused: bool,
    /// The domain or target that a pause or a request names exists.
    pub scope_exists: bool,
    /// The platform's DNS identity.
    pub identity: Option<DnsIdentity>,
    /// The platform's part of every SOA serial.
    pub generation: u32,
    /// What DNS answers for proxied names.
    pub endpoints: Option<Endpoints>,
    /// The operation has ended already.
    pub operation_terminal: bool,
    /// Who asked for it, where the operation undoes what a token did.
    pub undo_by: Option<UserId>,
    /// The edge as it is.
    pub edge: EdgeView,
    /// The user or the tenant as it is.
    pub people: PeopleView,
    /// The webhook as it is.
    pub webhook: WebhookView,
    /// Whether the domain is known to be delegated elsewhere; none where it is not the tenant's any more.
    pub delegation_lost: Option<bool>,
}

impl AdminCommand {
    /// The stream that the command writes.
    pub fn stream(&self) -> StreamRef {
        match self {
            Self::InitializePlatform { .. }
            | Self::SetDnsIdentity(_)
            | Self::SetEndpoints { .. }
            | Self::Pause { .. }
            | Self::Resume { .. } => StreamRef::PLATFORM,
            Self::CreateTenant { id, .. } => StreamRef::tenant(*id),
            Self::AddMember { tenant, .. } | Self::RemoveMember { tenant, .. } => StreamRef::tenant(*tenant),
            // Not the domain's own: nothing that is served changes, and every revision of a domain is a serial.
            Self::AddDomainMember { domain, .. }
            | Self::RemoveDomainMember { domain, .. }
            | Self::RecordDelegation { domain, .. } => StreamRef::tenant(domain.tenant),
            Self::UpdateTenant { tenant, .. } | Self::DeleteTenant { tenant } => StreamRef::tenant(*tenant),
            Self::CreateUser { id, .. } => StreamRef::user(*id),
            Self::CreateToken { user, .. }
            | Self::RevokeToken { user, .. }
            | Self::RecordExport { user, .. }
            | Self::UpdateUser { user, .. }
            | Self::SetUserEnabled { user, .. }
            | Self::DeleteUser { user }
            | Self::SetPassword { user } => StreamRef::user(*user),
            Self::CreateCluster { id, .. } => StreamRef::cluster(*id),
            Self::UpdateCluster { cluster, .. }
            | Self::SetClusterEnabled { cluster, .. }
            | Self::DeleteCluster { cluster, .. }
            | Self::RecordDeployments { cluster, .. } => StreamRef::cluster(*cluster),
            Self::RequestOperation { operation, .. }
            | Self::RequestUndo { operation, .. }
            | Self::RequestRemoval { operation, .. }
            | Self::RequestImport { operation, .. }
            | Self::RequestCutover { operation, .. }
            | Self::RequestCompare { operation, .. }
            | Self::CancelOperation { operation } => StreamRef::operation(*operation),
            Self::FinishOperation { finished, .. } => StreamRef::operation(finished.operation),
            Self::Edge { edge, .. } => StreamRef::edge(*edge),
            Self::Webhook { webhook, .. } => StreamRef::webhook(*webhook),
            Self::CreateSharedPool => StreamRef::pool(PoolId::SHARED),
        }
    }

    /// What the caller must be allowed.
    fn asks(&self) -> (Verb, Resource<'_>) {
        match self {
            Self::CreateToken { user, .. }
            | Self::RevokeToken { user, .. }
            | Self::RecordExport { user, .. }
            | Self::SetPassword { user } => (Verb::Write, Resource::User(*user)),
            Self::UpdateUser { user, patch } if patch.is_own() => (Verb::Write, Resource::User(*user)),
            Self::AddMember { tenant, .. } | Self::RemoveMember { tenant, .. } => {
                (Verb::Manage, Resource::Tenant(*tenant))
            }
            Self::Webhook { owner: Some(tenant), .. } => (Verb::Manage, Resource::Tenant(*tenant)),
            Self::AddDomainMember { domain, .. } | Self::RemoveDomainMember { domain, .. } => {
                (Verb::Manage, Resource::Contents(domain.as_ref()))
            }
            _ => (Verb::Write, Resource::Platform),
        }
    }
}
