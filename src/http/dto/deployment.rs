//! Bodies of deployments.

use headwater_events::admin::reason_faults;
use headwater_events::dns::DomainName;
use headwater_events::event::PauseScope;
use headwater_events::time::Timestamp;
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::http::body::{Fields, FromBody};
use crate::query::deployments::StoredDeployment;

/// A target, by id and name.
#[derive(Debug, Serialize, ToSchema)]
pub struct TargetRef {
    /// Its id.
    id: Uuid,
    /// Its name.
    name: String,
}

/// One domain on one target.
#[derive(Debug, Serialize, ToSchema)]
pub struct Deployment {
    /// `<domain>@<target id>`.
    id: String,
    /// The domain.
    #[schema(value_type = String, example = "example.com")]
    domain: DomainName,
    /// The target.
    target: TargetRef,
    /// Whether the target is deployed to.
    enabled: bool,
    /// Whether the zone is meant to be there.
    wanted: bool,
    /// `pending`, `activating`, `current`, `failed`, `rejected`, `removed` or `ahead`.
    state: String,
    /// The revision that is meant to be there.
    desired_revision: i64,
    /// The revision that is there; 0: none.
    active_revision: i64,
    /// The SOA serial that is there.
    serial: Option<i64>,
    /// Checksum of what is there.
    checksum: Option<String>,
    /// Tries of the revision so far.
    attempts: i32,
    /// When it is tried again.
    #[schema(value_type = Option<String>, format = DateTime)]
    next_attempt_at: Option<Timestamp>,
    /// Why the last try did not work.
    last_error: Option<String>,
    /// Since when the revision is wanted.
    #[schema(value_type = String, format = DateTime)]
    desired_at: Timestamp,
    /// When what is there was verified.
    #[schema(value_type = Option<String>, format = DateTime)]
    verified_at: Option<Timestamp>,
}

impl Deployment {
    /// Whether its target is deployed to.
    pub fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// Its state.
    pub fn state(&self) -> &str {
        &self.state
    }
}

impl From<StoredDeployment> for Deployment {
    fn from(stored: StoredDeployment) -> Self {
        Self {
            id: format!("{}@{}", stored.name, stored.cluster),
            domain: stored.name,
            target: TargetRef { id: stored.cluster.as_uuid(), name: stored.cluster_name },
            enabled: stored.enabled,
            wanted: stored.wanted,
            state: stored.state,
            desired_revision: stored.desired_revision.get(),
            active_revision: stored.active_revision.get(),
            serial: stored.serial,
            checksum: stored.checksum,
            attempts: stored.attempts,
            next_attempt_at: stored.next_attempt_at,
            last_error: stored.last_error,
            desired_at: stored.desired_at,
            verified_at: stored.verified_at,
        }
    }
}

/// The answer to a decision about a deployment.
#[derive(Debug, Serialize, ToSchema)]
pub struct Decided {
    /// Whether there was something to decide: the target held what this log does not know.
    pub changed: bool,
    /// Which deployment.
    pub deployment: String,
}

/// What to pause or resume.
#[derive(Debug, ToSchema)]
#[schema(example = json!({"scope": "domain", "id": "example.com", "reason": "moving"}))]
pub struct Pause {
    /// `all`, `target` (its id in `id`) or `domain` (its name in `id`).
    #[schema(value_type = String, example = "domain")]
    pub scope: PauseScope,
    /// Which target or domain.
    #[allow(dead_code)] // the schema; what is read stands in `scope`
    id: Option<String>,
    /// Why.
    #[schema(required = false)]
    pub reason: String,
}

impl FromBody for Pause {
    fn read(fields: &mut Fields) -> Option<Self> {
        let kind = fields.required_text("scope");
        let reason = fields.text("reason").unwrap_or_default();
        let scope = match kind.as_deref() {
            // An id is left over, and so refused by name.
            Some("all") => Some(PauseScope::All),
            Some("target" | "domain") if !fields.has("id") => {
                fields.missing("id");
                None
            }
            Some("target") => fields.id("id").map(PauseScope::Target),
            Some("domain") => {
                let name =
                    |text: &str| DomainName::parse(text).map_err(|fault| (fault.code.as_str(), fault.detail));
                fields.parsed("id", name).map(PauseScope::Domain)
            }
            other => {
                if other.is_some() {
                    fields.fault("scope", "invalid_scope", "scope is all, target or domain");
                }
                // What it would name is unknown; that it is a text is not.
                let _unjudged = fields.text("id");
                None
            }
        };
        fields.also(|| reason_faults(&reason));
        Some(Self { scope: scope?, id: None, reason })
    }
}
