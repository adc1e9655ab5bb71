//! Decisions about everything that is not a domain: tenants, users, tokens, DNS
//! clusters, the platform, deployments and the end of operations. Each reads a
//! view of a few facts; whoever may do it is decided by the one policy.

use crate::actor::{self, Access, Caller, Resource, Verb};
use crate::dns::DomainName;
use crate::domain::Decided;
use crate::domain::Decision;
use crate::envelope::NewEvent;
use crate::event::{
    ClusterCreated, DeploymentFact, DeploymentsPaused, DeploymentsResumed, DnsIdentity, DnsIdentityChanged,
    DriftMended, Event, Labels, MemberAdded, MemberRemoved, Nothing, OperationFinished, PauseScope,
    PlatformInitialized, TenantCreated, TokenCreated, TokenRevoked, UserCreated,
};
use crate::ids::{ClusterId, DomainId, OperationId, Revision, StreamRef, TenantId, TokenId, UserId};
use crate::reject::{Fault, Reject};
use crate::time::Timestamp;

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

/// What the reconciler observed of one domain on a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observation {
    /// The domain.
    pub domain: DomainId,
    /// Its name.
    pub name: DomainName,
    /// Its owner.
    pub tenant: TenantId,
    /// What is said of it.
    pub outcome: Outcome,
}

/// What an observation says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The candidate waits longer than a second to be activated.
    Rendered(DeploymentFact),
    /// The candidate was refused; the active state is unchanged.
    Rejected(DeploymentFact),
    /// Activated, but not verified within a second.
    Activated(DeploymentFact),
    /// Verified on the real listener.
    Acknowledged(DeploymentFact),
    /// It did not work this time; the active state is unchanged.
    Failed(DeploymentFact),
    /// Overtaken by a newer revision before it was active.
    Superseded(DeploymentFact),
    /// Works again after a failure.
    Recovered(DeploymentFact),
    /// The target holds what this log does not know.
    Ahead(DeploymentFact),
    /// Rows that differed were put right.
    Mended(DriftMended),
}

impl Outcome {
    fn into_event(self) -> Event {
        match self {
            Self::Rendered(fact) => Event::DeploymentRendered(fact),
            Self::Rejected(fact) => Event::DeploymentRejected(fact),
            Self::Activated(fact) => Event::DeploymentActivated(fact),
            Self::Acknowledged(fact) => Event::DeploymentAcknowledged(fact),
            Self::Failed(fact) => Event::DeploymentFailed(fact),
            Self::Superseded(fact) => Event::DeploymentSuperseded(fact),
            Self::Recovered(fact) => Event::DeploymentRecovered(fact),
            Self::Ahead(fact) => Event::DeploymentAhead(fact),
            Self::Mended(fact) => Event::DriftMended(fact),
        }
    }
}

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
    /// Make a user a member of a tenant.
    AddMember {
        /// The tenant.
        tenant: TenantId,
        /// The user.
        user: UserId,
    },
    /// End a membership.
    RemoveMember {
        /// The tenant.
        tenant: TenantId,
        /// The user.
        user: UserId,
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
    /// Register a DNS cluster.
    CreateCluster {
        /// The id it will have.
        id: ClusterId,
        /// What is said of it.
        cluster: ClusterCreated,
    },
    /// Take a cluster in or out of deployment.
    SetClusterEnabled {
        /// Which.
        cluster: ClusterId,
        /// In or out.
        enabled: bool,
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
    /// End operations in a way that deployment facts alone do not tell.
    FinishOperation {
        /// The domain concerned.
        domain: Option<(DomainId, DomainName)>,
        /// Its owner.
        tenant: Option<TenantId>,
        /// How it ended.
        finished: OperationFinished,
    },
}

/// The facts that a decision reads. Those that a command does not need stay at their default.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AdminView {
    /// The newest revision of the command's stream; 0 when it does not exist.
    pub revision: Revision,
    /// The name (or mail address) is in use by another.
    pub name_taken: bool,
    /// The user named by the command exists.
    pub user_exists: bool,
    /// The user is a member of the tenant already.
    pub member: bool,
    /// The token exists and is not revoked.
    pub token_active: bool,
    /// The cluster is enabled.
    pub enabled: bool,
    /// Clusters that exist.
    pub clusters: i64,
    /// The scope is paused already.
    pub paused: bool,
    /// The domain or target that a pause names exists.
    pub scope_exists: bool,
    /// The platform's DNS identity and how often it changed.
    pub identity: Option<(DnsIdentity, u32)>,
    /// The operation has ended already.
    pub operation_terminal: bool,
}

impl AdminCommand {
    /// The stream that the command writes.
    pub fn stream(&self) -> StreamRef {
        match self {
            Self::InitializePlatform { .. }
            | Self::SetDnsIdentity(_)
            | Self::Pause { .. }
            | Self::Resume { .. } => StreamRef::PLATFORM,
            Self::CreateTenant { id, .. } => StreamRef::tenant(*id),
            Self::AddMember { tenant, .. } | Self::RemoveMember { tenant, .. } => StreamRef::tenant(*tenant),
            Self::CreateUser { id, .. } => StreamRef::user(*id),
            Self::CreateToken { user, .. } | Self::RevokeToken { user, .. } => StreamRef::user(*user),
            Self::CreateCluster { id, .. } => StreamRef::cluster(*id),
            Self::SetClusterEnabled { cluster, .. } | Self::RecordDeployments { cluster, .. } => {
                StreamRef::cluster(*cluster)
            }
            Self::FinishOperation { finished, .. } => StreamRef::operation(finished.operation),
        }
    }

    fn resource(&self) -> Resource {
        match self {
            Self::CreateToken { user, .. } => Resource::User(*user),
            Self::RevokeToken { user, .. } => Resource::User(*user),
            _ => Resource::Platform,
        }
    }
}

/// Whether the caller may ask for this at all.
///
/// # Errors
/// Why not.
pub fn permitted(caller: &Caller, command: &AdminCommand) -> Result<(), Reject> {
    if let AdminCommand::RevokeToken { possessed: true, .. } = command {
        return Ok(());
    }
    match actor::decide(caller, Verb::Write, command.resource()) {
        Access::Granted => Ok(()),
        Access::Forbidden => Err(Reject::Forbidden("this needs an administrator".into())),
        Access::Hidden => Err(Reject::NotFound("the user".into())),
    }
}

fn one(pointer: &str, code: &'static str, detail: impl Into<String>) -> Reject {
    Reject::Invalid(vec![Fault::at(pointer, code, detail)])
}

fn named(pointer: &str, name: &str, most: usize, faults: &mut Vec<Fault>) {
    if name.trim().is_empty() || name.len() > most || name.chars().any(char::is_control) {
        let detail = format!("1 to {most} octets without control characters");
        faults.push(Fault::at(pointer, "invalid_name", detail));
    }
}

/// Decides one command.
///
/// # Errors
/// Why not, with every fault of the input.
pub fn decide(
    view: &AdminView,
    command: &AdminCommand,
    caller: &Caller,
    operation: OperationId,
) -> Result<Decided, Reject> {
    permitted(caller, command)?;
    let unchanged = Ok(Decided::Unchanged { revision: view.revision });
    match command {
        AdminCommand::InitializePlatform { tenant } => {
            if view.revision > Revision::ZERO {
                return unchanged;
            }
            let initialized = Event::PlatformInitialized(PlatformInitialized { tenant: *tenant });
            plain(view, command, vec![initialized])
        }
        AdminCommand::SetDnsIdentity(after) => identity(view, command, after),
        AdminCommand::CreateTenant { name, labels, external_id, .. } => {
            let mut faults = crate::domain::tag_faults(labels, external_id.as_deref());
            named("/name", name, NAME_MAX_BYTES, &mut faults);
            refuse(faults)?;
            free(view, "tenant", name)?;
            let created = TenantCreated {
                name: name.clone(),
                labels: labels.clone(),
                external_id: external_id.clone(),
            };
            plain(view, command, vec![Event::TenantCreated(created)])
        }
        AdminCommand::AddMember { user, .. } | AdminCommand::RemoveMember { user, .. } => {
            if view.revision == Revision::ZERO || !view.user_exists {
                return Err(Reject::NotFound("the tenant or the user".into()));
            }
            let add = matches!(command, AdminCommand::AddMember { .. });
            if add == view.member {
                return unchanged;
            }
            let event = if add {
                Event::MemberAdded(MemberAdded { user: *user })
            } else {
                Event::MemberRemoved(MemberRemoved { user: *user })
            };
            plain(view, command, vec![event])
        }
        AdminCommand::CreateUser { admin, .. } => {
            free(view, "user", "with this mail address")?;
            plain(view, command, vec![Event::UserCreated(UserCreated { admin: *admin })])
        }
        AdminCommand::CreateToken { token, name, expires_at, .. } => {
            if view.revision == Revision::ZERO {
                return Err(Reject::NotFound("the user".into()));
            }
            let mut faults = Vec::new();
            named("/name", name, TOKEN_NAME_MAX_BYTES, &mut faults);
            refuse(faults)?;
            let created = TokenCreated { token: *token, name: name.clone(), expires_at: *expires_at };
            plain(view, command, vec![Event::TokenCreated(created)])
        }
        AdminCommand::RevokeToken { token, .. } => {
            if !view.token_active {
                return Err(Reject::NotFound(format!("token {token}")));
            }
            plain(view, command, vec![Event::TokenRevoked(TokenRevoked { token: *token })])
        }
        AdminCommand::CreateCluster { cluster, .. } => create_cluster(view, command, cluster),
        AdminCommand::SetClusterEnabled { cluster, enabled } => {
            if view.revision == Revision::ZERO {
                return Err(Reject::NotFound(format!("DNS cluster {cluster}")));
            }
            if view.enabled == *enabled {
                return unchanged;
            }
            let event =
                if *enabled { Event::ClusterEnabled(Nothing {}) } else { Event::ClusterDisabled(Nothing {}) };
            let mut decided = plain(view, command, vec![event]);
            if let (true, Ok(Decided::Changed(decision))) = (*enabled, &mut decided) {
                decision.operation = Some(operation);
                decision.events.iter_mut().for_each(|event| event.operation = Some(operation));
            }
            decided
        }
        AdminCommand::Pause { scope, reason } | AdminCommand::Resume { scope, reason } => {
            pause(view, command, scope, reason)
        }
        AdminCommand::RecordDeployments { observed, .. } => record(view, command, observed),
        AdminCommand::FinishOperation { domain, tenant, finished } => {
            if view.operation_terminal {
                return unchanged;
            }
            let event = Event::OperationFinished(finished.clone());
            let mut decided = plain(view, command, vec![event]);
            if let Ok(Decided::Changed(decision)) = &mut decided {
                for event in &mut decision.events {
                    event.domain.clone_from(domain);
                    event.tenant = *tenant;
                    event.operation = Some(finished.operation);
                }
            }
            decided
        }
    }
}

fn refuse(faults: Vec<Fault>) -> Result<(), Reject> {
    if faults.is_empty() { Ok(()) } else { Err(Reject::Invalid(faults)) }
}

fn free(view: &AdminView, what: &str, name: &str) -> Result<(), Reject> {
    if view.name_taken {
        return Err(Reject::NameTaken(format!("there is a {what} {name} already")));
    }
    Ok(())
}

#[allow(clippy::unnecessary_wraps)] // so that every arm of `decide` reads alike
fn plain(view: &AdminView, command: &AdminCommand, events: Vec<Event>) -> Result<Decided, Reject> {
    let tenant = match command {
        AdminCommand::CreateTenant { id, .. } => Some(*id),
        AdminCommand::AddMember { tenant, .. } | AdminCommand::RemoveMember { tenant, .. } => Some(*tenant),
        _ => None,
    };
    let wrap = |event| NewEvent { stream: command.stream(), domain: None, tenant, operation: None, event };
    Ok(Decided::Changed(Decision {
        events: events.into_iter().map(wrap).collect(),
        revision: view.revision.next(),
        operation: None,
        guards: Vec::new(),
        warnings: Vec::new(),
    }))
}

fn identity(view: &AdminView, command: &AdminCommand, after: &DnsIdentity) -> Result<Decided, Reject> {
    let before = view.identity.as_ref().map(|(identity, _)| identity.clone());
    if before.as_ref() == Some(after) {
        return Ok(Decided::Unchanged { revision: view.revision });
    }
    let mut faults = Vec::new();
    if !NAMESERVERS_COUNT.contains(&after.nameservers.len()) {
        faults.push(Fault::at("/nameservers", "nameserver_count", "2 to 8 nameservers"));
    }
    let mut bound = |pointer: &str, value: u32, range: std::ops::RangeInclusive<u32>| {
        if !range.contains(&value) {
            let detail = format!("{} to {} seconds", range.start(), range.end());
            faults.push(Fault::at(pointer, "out_of_range", detail));
        }
    };
    bound("/refresh", after.refresh, 300..=86_400);
    bound("/retry", after.retry, 60..=86_400);
    bound("/expire", after.expire, 86_400..=2_419_200);
    bound("/minimum", after.minimum, 30..=86_400);
    if after.expire <= after.refresh.saturating_add(after.retry) {
        faults.push(Fault::at("/expire", "out_of_range", "expire is longer than refresh and retry together"));
    }
    refuse(faults)?;
    let generation = view.identity.as_ref().map_or(0, |(_, n)| n.wrapping_add(1));
    let changed = DnsIdentityChanged { before, after: after.clone(), generation };
    plain(view, command, vec![Event::DnsIdentityChanged(changed)])
}

fn create_cluster(
    view: &AdminView,
    command: &AdminCommand,
    cluster: &ClusterCreated,
) -> Result<Decided, Reject> {
    let mut faults = Vec::new();
    named("/name", &cluster.name, NAME_MAX_BYTES, &mut faults);
    if !cluster.database_url_file.starts_with('/') {
        let detail = "the absolute path of a file that holds the database's URL";
        faults.push(Fault::at("/database_url_file", "invalid_path", detail));
    }
    for (pointer, address) in [("/dns", Some(&cluster.dns)), ("/front", cluster.front.as_ref())] {
        if address.is_some_and(|text| text.parse::<std::net::SocketAddr>().is_err()) {
            faults.push(Fault::at(pointer, "invalid_address", "an address and port, as 192.0.2.1:53"));
        }
    }
    if cluster.nameservers.len() > *NAMESERVERS_COUNT.end() {
        faults.push(Fault::at("/nameservers", "nameserver_count", "at most 8 nameservers"));
    }
    if view.clusters >= CLUSTERS_MAX_COUNT {
        faults.push(Fault::at("", "too_many_clusters", format!("at most {CLUSTERS_MAX_COUNT} DNS clusters")));
    }
    refuse(faults)?;
    free(view, "DNS cluster", &cluster.name)?;
    plain(view, command, vec![Event::ClusterCreated(cluster.clone())])
}

fn pause(
    view: &AdminView,
    command: &AdminCommand,
    scope: &PauseScope,
    reason: &str,
) -> Result<Decided, Reject> {
    if reason.len() > REASON_MAX_BYTES || reason.chars().any(char::is_control) {
        return Err(one("/reason", "invalid_reason", format!("at most {REASON_MAX_BYTES} octets, one line")));
    }
    if !view.scope_exists {
        return Err(one("/id", "not_found", "there is no such target or domain"));
    }
    let stop = matches!(command, AdminCommand::Pause { .. });
    if stop == view.paused {
        return Ok(Decided::Unchanged { revision: view.revision });
    }
    let (scope, reason) = (scope.clone(), reason.to_owned());
    let event = if stop {
        Event::DeploymentsPaused(DeploymentsPaused { scope, reason })
    } else {
        Event::DeploymentsResumed(DeploymentsResumed { scope, reason })
    };
    plain(view, command, vec![event])
}

fn record(view: &AdminView, command: &AdminCommand, observed: &[Observation]) -> Result<Decided, Reject> {
    if observed.is_empty() {
        return Ok(Decided::Unchanged { revision: view.revision });
    }
    let events = observed.iter().map(|seen| seen.outcome.clone().into_event()).collect();
    let mut decided = plain(view, command, events);
    if let Ok(Decided::Changed(decision)) = &mut decided {
        for (event, seen) in decision.events.iter_mut().zip(observed) {
            event.domain = Some((seen.domain, seen.name.clone()));
            event.tenant = Some(seen.tenant);
        }
    }
    decided
}
