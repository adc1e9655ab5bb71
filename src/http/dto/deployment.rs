//! Bodies of deployments.

use headwater_events::admin::reason_faults;
use headwater_events::dns::DomainName;
use headwater_events::event::PauseScope;
use headwater_events::time::Timestamp;
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::http::body::{Fields, FromBody};
use crate::query::deployments::{CellDeployment, StoredDeployment};

/// A target, by id and name.
#[derive(Debug, Serialize, ToSchema)]
pub struct TargetRef {
    /// Its id; of a cell, its edge's.
    id: Uuid,
    /// Of an edge: which of its cells.
    cell: Option<i32>,
    /// Its name.
    #[schema(example = "dns-1")]
    name: String,
}

/// The place of a deployment among those of its domain: DNS clusters come before cells.
pub type TargetKey = (bool, Uuid, Option<i32>);

/// One domain on one target.
#[derive(Debug, Serialize, ToSchema)]
pub struct Deployment {
    /// `<domain>@<target id>`, of a cell `<domain>@<edge id>/<cell>`.
    id: String,
    /// The domain.
    #[schema(value_type = String, example = "example.com")]
    domain: DomainName,
    /// The target.
    target: TargetRef,
    /// Whether the target is deployed to; of a cell, whether its edge is heard of.
    enabled: bool,
    /// Whether the domain is meant to be there.
    wanted: bool,
    /// `pending`, `activating`, `current`, `failed`, `rejected`, `removed` or `ahead`.
    state: String,
    /// The revision that is meant to be there. On a cell it is the newest one that changed what edges serve.
    desired_revision: i64,
    /// The revision that is there; 0: none; null: a cell that does not serve the desired one tells of no other.
    active_revision: Option<i64>,
    /// The SOA serial that is there.
    serial: Option<i64>,
    /// Checksum of what is there; on a cell, of what is meant to be there.
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
    /// When what is there was verified; of a cell, when it said so last.
    #[schema(value_type = Option<String>, format = DateTime)]
    verified_at: Option<Timestamp>,
}

impl Deployment {
    /// A domain on a cell.
    pub fn on_cell(domain: &DomainName, stored: CellDeployment) -> Self {
        let state = match (&stored.refused, stored.current, stored.wanted) {
            (Some(_), ..) => "rejected",
            (None, false, _) => "pending",
            (None, true, true) => "current",
            (None, true, false) => "removed",
        };
        let is_current = stored.current && stored.refused.is_none();
        Self {
            id: format!("{domain}@{}/{}", stored.edge, stored.cell),
            domain: domain.clone(),
            target: TargetRef {
                id: stored.edge.as_uuid(),
                cell: Some(stored.cell),
                name: format!("{}/{}", stored.edge_name, stored.cell),
            },
            enabled: stored.in_service,
            wanted: stored.wanted,
            state: state.to_owned(),
            desired_revision: stored.revision.get(),
            active_revision: is_current.then_some(stored.revision.get()),
            serial: None,
            checksum: stored.checksum,
            attempts: 0,
            next_attempt_at: None,
            last_error: stored.refused,
            desired_at: stored.desired_at,
            verified_at: stored.told_at.filter(|_| is_current),
        }
    }

    /// Whether its target is deployed to.
    pub fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// Its place among the deployments of its domain.
    pub fn key(&self) -> TargetKey {
        (self.target.cell.is_some(), self.target.id, self.target.cell)
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
            target: TargetRef { id: stored.cluster.as_uuid(), cell: None, name: stored.cluster_name },
            enabled: stored.enabled,
            wanted: stored.wanted,
            state: stored.state,
            desired_revision: stored.desired_revision.get(),
            active_revision: Some(stored.active_revision.get()),
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
