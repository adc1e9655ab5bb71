//! The life of a domain after it was made: proven, served, disabled and enabled, given up, restored.
//!
//! What must hold: nothing is served before its ownership is proven or an administrator says so; what an administrator
//! disabled no owner enables; losing a delegation never ends the serving.

use super::decide::{Context, Decided, check, decided};
use super::state::{DomainState, DomainView};
use crate::dns::DomainName;
use crate::event::{DomainRestored, Event, Nothing};
use crate::ids::{DomainId, TenantId};
use crate::reject::Reject;
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How long a domain may wait for the proof of its ownership.
pub const PENDING_MAX: Duration = Duration::from_secs(14 * 86_400);
/// What stands before the names under which challenges are looked for.
const CHALLENGE_LABEL: &str = "_headwater-challenge";
/// Octets of the digest that a challenge shows.
const CHALLENGE_BYTES: usize = 20;

/// Where a domain stands in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DomainStatus {
    /// Ownership is not proven yet; nothing is deployed.
    PendingVerification,
    /// Deployed to every DNS cluster.
    Active,
    /// Kept, and served nowhere: its name servers refuse it.
    Disabled,
    /// Deleted: not served, restorable until its hold ends.
    Deprovisioning,
}

impl DomainStatus {
    /// The name in the API and in the database.
    pub fn name(self) -> &'static str {
        match self {
            Self::PendingVerification => "pending_verification",
            Self::Active => "active",
            Self::Disabled => "disabled",
            Self::Deprovisioning => "deprovisioning",
        }
    }

    /// The status with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::PendingVerification, Self::Active, Self::Disabled, Self::Deprovisioning]
            .into_iter()
            .find(|status| status.name() == name)
    }

    /// Whether the domain's zone is meant to be on the DNS clusters.
    pub fn is_served(self) -> bool {
        self == Self::Active
    }

    /// Whether the domain has been deleted.
    pub fn is_deleted(self) -> bool {
        self == Self::Deprovisioning
    }
}

/// Why a domain is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Proof {
    /// An administrator said so.
    Forced,
    /// Its parent delegates it to the platform.
    Delegation,
    /// The servers that have authority for it now show its challenge.
    Txt,
    /// Its owner has an active domain above it.
    Parent,
}

/// Who disabled a domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DisabledBy {
    /// Its owner, who may enable it.
    Owner,
    /// An administrator; only an administrator enables it.
    Operator,
}

impl DisabledBy {
    /// The name in the API and in the database.
    pub fn name(self) -> &'static str {
        match self {
            Self::Owner => "owner",
            Self::Operator => "operator",
        }
    }

    /// The one with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Owner, Self::Operator].into_iter().find(|by| by.name() == name)
    }
}

/// A domain is served from now on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DomainActivated {
    /// Why.
    pub proof: Proof,
}

/// A domain is served no longer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DomainDisabled {
    /// The status it had.
    pub before: DomainStatus,
    /// Who disabled it.
    pub by: DisabledBy,
}

/// A domain whose ownership nobody proved is given up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DomainExpired {
    /// When; nothing is held from then on.
    pub expired_at: Timestamp,
    /// The SOA serial that it had; it was never served.
    pub last_serial: u32,
}

/// The parent does not delegate a domain to the platform any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DelegationLost {
    /// What the parent's servers say, for people.
    pub detail: String,
}

/// The parent delegates a domain to the platform again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DelegationRestored {
    /// What the parent's servers say, for people.
    pub detail: String,
}

/// The name and the value of the TXT record that proves a domain to be its owner's. They follow from the domain's id,
/// most of whose bits are random, and its tenant: no other claim of the same name has the same ones, and a rebuild gives
/// them again. They are no secret.
pub fn challenge(domain: DomainId, tenant: TenantId, name: &DomainName) -> (String, String) {
    let mut hasher =
        blake3::Hasher::new_derive_key("headwater 2026-11-30 proof of the ownership of a domain");
    hasher.update(domain.as_uuid().as_bytes()).update(tenant.as_uuid().as_bytes());
    let digest = hasher.finalize();
    let value: String =
        digest.as_bytes().iter().take(CHALLENGE_BYTES).map(|octet| format!("{octet:02x}")).collect();
    (format!("{CHALLENGE_LABEL}.{name}"), format!("headwater-verification={value}"))
}

impl DomainState {
    /// Until when it may wait for the proof of its ownership; none where it does not wait.
    pub fn expires_at(&self) -> Option<Timestamp> {
        (self.status == DomainStatus::PendingVerification).then(|| self.created_at.plus(PENDING_MAX))
    }
}

fn not(code: &'static str, detail: String) -> Result<Decided, Reject> {
    Err(Reject::Conflict { code, detail })
}

pub(super) fn activate(view: &DomainView, proof: Proof, context: &Context<'_>) -> Result<Decided, Reject> {
    let domain = &view.state;
    check(context.precondition, Some(domain.revision))?;
    match domain.status {
        DomainStatus::PendingVerification => {
            let event = Event::DomainActivated(DomainActivated { proof });
            Ok(Decided::Changed(decided(view, vec![event], true, context)))
        }
        DomainStatus::Disabled => not(
            "disabled",
            format!("{0} is disabled: POST /api/domains/{0}/enable serves it again", domain.name),
        ),
        _ => Ok(Decided::Unchanged { revision: domain.revision }),
    }
}

pub(super) fn disable(view: &DomainView, context: &Context<'_>) -> Result<Decided, Reject> {
    let domain = &view.state;
    check(context.precondition, Some(domain.revision))?;
    if !view.platform_names.is_empty() {
        return not(
            "managed_by_platform",
            format!("{} is the platform's own zone: every proxied name leads there", domain.name),
        );
    }
    let by = if context.caller.admin { DisabledBy::Operator } else { DisabledBy::Owner };
    match (domain.status, domain.disabled_by) {
        (DomainStatus::PendingVerification, _) => {
            not("not_verified", format!("{} is not served: its ownership is not proven yet", domain.name))
        }
        // An administrator's word stands above the owner's.
        (DomainStatus::Disabled, was) if was == Some(by) || by == DisabledBy::Owner => {
            Ok(Decided::Unchanged { revision: domain.revision })
        }
        (before, _) => {
            let event = Event::DomainDisabled(DomainDisabled { before, by });
            Ok(Decided::Changed(decided(view, vec![event], before.is_served(), context)))
        }
    }
}

pub(super) fn enable(view: &DomainView, context: &Context<'_>) -> Result<Decided, Reject> {
    let domain = &view.state;
    check(context.precondition, Some(domain.revision))?;
    match domain.status {
        DomainStatus::Disabled => {
            if domain.disabled_by == Some(DisabledBy::Operator) && !context.caller.admin {
                let detail = format!("an administrator disabled {}: ask one to enable it", domain.name);
                return Err(Reject::Forbidden(detail));
            }
            let event = Event::DomainEnabled(Nothing {});
            Ok(Decided::Changed(decided(view, vec![event], true, context)))
        }
        DomainStatus::PendingVerification => not(
            "not_verified",
            format!("{} is not disabled: it waits for the proof of its ownership", domain.name),
        ),
        _ => Ok(Decided::Unchanged { revision: domain.revision }),
    }
}

/// Gives a domain up that waited too long. Whatever else it is by now stays.
pub(super) fn expire(view: &DomainView, context: &Context<'_>) -> Result<Decided, Reject> {
    let domain = &view.state;
    if domain.expires_at().is_none_or(|until| until > context.now) {
        return Ok(Decided::Unchanged { revision: domain.revision });
    }
    let last_serial = domain.serial(domain.revision, context.generation);
    let event = Event::DomainExpired(DomainExpired { expired_at: context.now, last_serial });
    Ok(Decided::Changed(decided(view, vec![event], false, context)))
}

pub(super) fn restore(view: &DomainView, context: &Context<'_>) -> Result<Decided, Reject> {
    let domain = &view.state;
    check(context.precondition, Some(domain.revision))?;
    let (true, Some(status)) = (domain.status.is_deleted(), domain.status_before_delete) else {
        if view.replaced.is_some_and(|until| until > context.now) {
            return Err(Reject::Conflict {
                code: "replaced",
                detail: format!(
                    "{} was deleted and then made anew at {}: the one that was deleted cannot be restored any more",
                    domain.name, domain.created_at
                ),
            });
        }
        return Ok(Decided::Unchanged { revision: domain.revision });
    };
    if domain.hold_until.is_some_and(|until| until <= context.now) {
        return Err(Reject::Conflict {
            code: "hold_expired",
            detail: format!("{} was deleted too long ago to be restored: create it again", domain.name),
        });
    }
    if status == DomainStatus::PendingVerification && domain.created_at.plus(PENDING_MAX) <= context.now {
        return Err(Reject::Conflict {
            code: "expired",
            detail: format!("nobody proved in time to own {}: create it again", domain.name),
        });
    }
    let disabled_by = domain.disabled_by.filter(|_| status == DomainStatus::Disabled);
    let event = Event::DomainRestored(DomainRestored { status, disabled_by });
    Ok(Decided::Changed(decided(view, vec![event], status.is_served(), context)))
}
