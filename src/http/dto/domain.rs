//! Bodies of domains.

use headwater_events::dns::DomainName;
use headwater_events::domain::{DomainPatch, DomainState, LabelsPatch, challenge, tag_faults};
use headwater_events::event::{DisabledBy, DomainStatus, Labels};
use headwater_events::ids::TenantId;
use headwater_events::time::Timestamp;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;
use uuid::Uuid;

use super::{deployment::Deployment, labels, labels_patch};
use crate::http::body::{Fields, FromBody};
use crate::query::domains::{Checked, Platform, StoredDomain};

/// A domain that is asked for.
#[derive(Debug, ToSchema)]
pub struct NewDomain {
    /// Its name; U-labels are taken.
    #[schema(value_type = String, example = "example.com")]
    pub name: DomainName,
    /// Who will own it; needed only by members of none or several tenants.
    #[schema(value_type = Option<Uuid>)]
    pub tenant: Option<TenantId>,
    /// Active at once, without proof of ownership (administrators only).
    #[schema(required = false)]
    pub force_active: bool,
    /// Labels.
    #[schema(required = false)]
    pub labels: Labels,
    /// The owner's own number for it.
    pub external_id: Option<String>,
}

impl FromBody for NewDomain {
    fn read(fields: &mut Fields) -> Option<Self> {
        if !fields.has("name") {
            fields.missing("name");
        }
        let name = fields.parsed("name", |text| {
            let name = DomainName::parse(text).and_then(|name| name.check_a_labels().map(|()| name));
            name.map_err(|fault| (fault.code.as_str(), fault.detail))
        });
        let tenant = fields.id("tenant");
        let force_active = fields.flag("force_active");
        let labels = labels(fields);
        let external_id = fields.text("external_id");
        fields.also(|| tag_faults(&labels, external_id.as_deref()));
        Some(Self { name: name?, tenant, force_active, labels, external_id })
    }
}

/// A merge patch (RFC 7396) of a domain.
#[derive(Debug, ToSchema)]
#[allow(dead_code)] // the schema; what is read is the patch itself
pub struct PatchDomain {
    /// Labels to set; null removes one, or all.
    labels: Option<std::collections::BTreeMap<String, Option<String>>>,
    /// The owner's own number for it; null removes it.
    external_id: Option<String>,
    /// Raises the SOA serial to at least this.
    serial_floor: Option<u32>,
}

impl FromBody for DomainPatch {
    fn read(fields: &mut Fields) -> Option<Self> {
        let labels = labels_patch(fields);
        let external_id = match fields.take_nullable("external_id") {
            None => None,
            Some(Value::Null) => Some(None),
            Some(Value::String(text)) => Some(Some(text)),
            Some(_) => {
                fields.fault("external_id", "invalid_type", "external_id must be a text or null");
                None
            }
        };
        let serial_floor = fields.integer("serial_floor").and_then(|floor| {
            let floor = u32::try_from(floor).ok();
            if floor.is_none() {
                fields.fault("serial_floor", "out_of_range", "a serial is 0 to 4294967295");
            }
            floor
        });
        let set = match &labels {
            Some(LabelsPatch::Merge(entries)) => {
                entries.iter().filter_map(|(key, value)| Some((key.clone(), value.clone()?))).collect()
            }
            _ => Labels::new(),
        };
        fields.also(|| tag_faults(&set, external_id.as_ref().and_then(Option::as_deref)));
        Some(Self { labels, external_id, serial_floor })
    }
}

/// A domain.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Domain {
    /// Its id.
    id: Uuid,
    /// Its name.
    #[schema(value_type = String, example = "example.com")]
    name: DomainName,
    /// Its name for people: U-labels.
    display_name: String,
    /// Who owns it.
    tenant: Uuid,
    /// `pending_verification`, `active`, `disabled`, `deprovisioning` or `removed`.
    status: &'static str,
    /// Who disabled it: `owner`, or `operator`, and then only an administrator enables it.
    disabled_by: Option<&'static str>,
    /// How its ownership is proven, while it is to be.
    verification: Option<Verification>,
    /// Whether its parent delegates it to the platform: `ok`, `lost` where it did and does no longer, else `unknown`. It
    /// is served whatever this says.
    delegation: &'static str,
    /// What its parent said last, once it is served.
    delegation_check: Option<Look>,
    /// Its newest revision.
    revision: i64,
    /// Labels.
    labels: Labels,
    /// The owner's own number for it.
    external_id: Option<String>,
    /// The SOA serial of its newest revision.
    serial: u32,
    /// The names to delegate it to.
    nameservers: Vec<String>,
    /// RRsets of its owner's.
    rrsets: i64,
    /// Records of its owner's.
    records: i64,
    /// Until when a deleted domain can be restored.
    #[schema(value_type = Option<String>, format = DateTime)]
    hold_until: Option<Timestamp>,
    /// When it came into being.
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    /// When it last changed.
    #[schema(value_type = String, format = DateTime)]
    updated_at: Timestamp,
}

/// How the ownership of a domain is proven: by its delegation to the platform's name servers, or by a TXT record at those
/// that have authority for it now.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Verification {
    /// The name servers to delegate it to; one of them suffices.
    nameservers: Vec<String>,
    /// The TXT record.
    txt: Challenge,
    /// When it is looked at next; none where the platform has no resolver, or has not come to it yet.
    #[schema(value_type = Option<String>, format = DateTime)]
    next_check_at: Option<Timestamp>,
    /// What was seen last.
    last: Option<Look>,
    /// When the domain is given up unless it is proven.
    #[schema(value_type = Option<String>, format = DateTime)]
    expires_at: Option<Timestamp>,
}

/// A TXT record that proves ownership.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Challenge {
    /// Its name.
    #[schema(example = "_headwater-challenge.example.com")]
    name: String,
    /// Its value.
    value: String,
}

/// What was seen of a domain from outside.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Look {
    /// When.
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
    /// `ok`, `not_proven`, `elsewhere` or `unknown`.
    result: String,
    /// The same for people.
    detail: String,
    /// When it is looked at next.
    #[schema(value_type = String, format = DateTime)]
    next_check_at: Timestamp,
}

impl Look {
    fn of(checked: &Checked) -> Option<Self> {
        Some(Self {
            at: checked.checked_at?.into(),
            result: checked.result.clone()?,
            detail: checked.detail.clone().unwrap_or_default(),
            next_check_at: checked.next_at.into(),
        })
    }
}

/// A domain that was made and is to be proven.
#[derive(Debug, Serialize, ToSchema)]
pub struct MadeDomain {
    #[serde(flatten)]
    domain: Domain,
    /// What the caller may want to know, such as a deleted domain whose restore is given up; left out when there is
    /// nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    warnings: Option<Vec<String>>,
}

/// The answer for a domain that is active at once: a receipt, with the domain.
#[derive(Debug, Serialize, ToSchema)]
pub struct MadeReceipt {
    #[serde(flatten)]
    receipt: super::Receipt,
    /// The domain.
    domain: Domain,
}

impl Domain {
    /// Shows a domain of this platform.
    pub fn new(stored: &StoredDomain, platform: &Platform) -> Self {
        let status = if stored.removed { "removed" } else { stored.state.status.name() };
        let of_state = Self::of_state(&stored.state, platform);
        let look = stored.checked.as_ref().and_then(Look::of);
        let is_ok = look.as_ref().is_some_and(|look| look.result == "ok");
        let verification = of_state.verification.clone().map(|open| Verification {
            next_check_at: stored.checked.as_ref().map(|checked| checked.next_at.into()),
            last: look.clone(),
            ..open
        });
        let is_served = stored.state.status.is_served();
        Self {
            status,
            serial: stored.serial(platform),
            delegation: if is_served && is_ok { "ok" } else { of_state.delegation },
            delegation_check: look.filter(|_| is_served),
            verification,
            ..of_state
        }
    }

    /// Shows what a mutation left.
    pub fn of_state(state: &DomainState, platform: &Platform) -> Self {
        let nameservers = platform.identity.iter().flat_map(|identity| &identity.nameservers);
        let nameservers: Vec<String> = nameservers.map(ToString::to_string).collect();
        let verification = (state.status == DomainStatus::PendingVerification).then(|| {
            let (name, value) = challenge(state.id, state.tenant, &state.name);
            let (txt, nameservers) = (Challenge { name, value }, nameservers.clone());
            Verification { nameservers, txt, next_check_at: None, last: None, expires_at: state.expires_at() }
        });
        Self {
            disabled_by: state.disabled_by.map(DisabledBy::name),
            verification,
            delegation: if state.delegation_lost_at.is_some() { "lost" } else { "unknown" },
            delegation_check: None,
            id: state.id.as_uuid(),
            name: state.name.clone(),
            display_name: state.name.to_unicode(),
            tenant: state.tenant.as_uuid(),
            status: state.status.name(),
            revision: state.revision.get(),
            labels: state.labels.clone(),
            external_id: state.external_id.clone(),
            serial: state.serial(state.revision, platform.generation),
            nameservers,
            rrsets: state.rrsets,
            records: state.records,
            hold_until: state.hold_until,
            created_at: state.created_at,
            updated_at: state.updated_at,
        }
    }
}

/// How far a domain is deployed.
#[derive(Debug, Serialize, ToSchema)]
pub struct DomainStatusBody {
    /// The domain.
    #[schema(value_type = String, example = "example.com")]
    pub name: DomainName,
    /// Where it stands in its life.
    pub status: &'static str,
    /// Its newest revision.
    pub revision: i64,
    /// The SOA serial of that revision.
    pub serial: u32,
    /// `current` when every enabled target is, `none` when it is deployed nowhere, else `pending`, `failing` or `ahead`.
    pub state: &'static str,
    /// Each target.
    pub deployments: Vec<Deployment>,
}

impl DomainStatusBody {
    /// Sums the targets up.
    pub fn new(domain: Domain, deployments: Vec<Deployment>) -> Self {
        let enabled: Vec<&Deployment> = deployments.iter().filter(|one| one.is_enabled()).collect();
        let any = |states: &[&str]| enabled.iter().any(|one| states.contains(&one.state()));
        let state = if enabled.is_empty() {
            "none"
        } else if any(&["ahead"]) {
            "ahead"
        } else if any(&["failed", "rejected"]) {
            "failing"
        } else if enabled.iter().all(|one| matches!(one.state(), "current" | "removed")) {
            "current"
        } else {
            "pending"
        };
        let Domain { name, status, revision, serial, .. } = domain;
        Self { name, status, revision, serial, state, deployments }
    }
}
