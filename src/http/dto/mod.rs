//! The bodies of the API: what is read is checked here, whole, and becomes a command; what is shown is made here from
//! what was read of the database.

pub mod account;
pub mod cluster;
pub mod deployment;
pub mod domain;
pub mod edge;
pub mod history;
pub mod import;
pub mod person;
pub mod rrset;
pub mod scope;
pub mod site;
pub mod tls;
pub mod webhook;

use headwater_events::actor::{self as policy, ActorKind};
use headwater_events::domain::LabelsPatch;
use headwater_events::event::Labels;
use headwater_events::reject::Fault;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;
use uuid::Uuid;

use super::body::{Fields, token};

/// Who did something.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Actor {
    /// `user`, `operator`, `system` or `edge`.
    #[schema(value_type = String, example = "user")]
    kind: ActorKind,
    /// Which.
    id: Uuid,
    /// The token it used.
    token: Option<Uuid>,
    /// The user it acted for, if another.
    on_behalf_of: Option<Uuid>,
}

impl From<policy::Actor> for Actor {
    fn from(actor: policy::Actor) -> Self {
        Self {
            kind: actor.kind,
            id: actor.id,
            token: actor.token.map(|id| id.as_uuid()),
            on_behalf_of: actor.on_behalf_of.map(|id| id.as_uuid()),
        }
    }
}

/// The answer to a mutation.
#[derive(Debug, Serialize, ToSchema)]
pub struct Receipt {
    /// Whether anything changed.
    pub changed: bool,
    /// The revision of what was changed.
    pub revision: i64,
    /// What carries it out; null where no runtime is affected.
    pub operation: Option<OperationRef>,
    /// What the caller may want to know, such as a record that a zone cut hides; left out when there is nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warnings: Option<Vec<String>>,
}

/// An operation, as a receipt names it.
#[derive(Debug, Serialize, ToSchema)]
pub struct OperationRef {
    /// Its id.
    pub id: Uuid,
    /// Its state when the receipt was written.
    pub state: String,
}

/// An error (RFC 9457).
#[derive(Debug, Serialize, ToSchema)]
pub struct ProblemBody {
    /// A URI for the kind of problem.
    pub r#type: String,
    /// Its name.
    pub title: String,
    /// The status of the answer.
    pub status: u16,
    /// For people.
    pub detail: String,
    /// Stable snake_case code.
    pub code: String,
    /// The request.
    pub request_id: Option<Uuid>,
    /// Every fault of the input.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub errors: Option<Vec<FaultBody>>,
}

/// One fault of the input.
#[derive(Debug, Serialize, ToSchema)]
pub struct FaultBody {
    /// JSON Pointer into the body.
    pub pointer: String,
    /// Stable snake_case code.
    pub code: String,
    /// For people.
    pub detail: String,
    /// The line, where what was sent is a text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
}

/// Labels of a body; what is left out is none.
fn labels(fields: &mut Fields) -> Labels {
    let mut labels = Labels::new();
    for (key, value) in pairs(fields) {
        match value {
            Value::String(text) => {
                labels.insert(key, text);
            }
            _ => wrong_label(fields, &key),
        }
    }
    labels
}

/// Labels of a merge patch: null removes.
fn labels_patch(fields: &mut Fields) -> Option<LabelsPatch> {
    if !fields.has("labels") {
        return fields.take_nullable("labels").map(|_| LabelsPatch::Clear);
    }
    let mut patch = std::collections::BTreeMap::new();
    for (key, value) in pairs(fields) {
        match value {
            Value::Null => {
                patch.insert(key, None);
            }
            Value::String(text) => {
                patch.insert(key, Some(text));
            }
            _ => wrong_label(fields, &key),
        }
    }
    Some(LabelsPatch::Merge(patch))
}

fn pairs(fields: &mut Fields) -> serde_json::Map<String, Value> {
    match fields.take("labels") {
        None => serde_json::Map::new(),
        Some(Value::Object(pairs)) => pairs,
        Some(_) => {
            fields.fault("labels", "invalid_type", "labels must be an object of texts");
            serde_json::Map::new()
        }
    }
}

fn wrong_label(fields: &mut Fields, key: &str) {
    fields.fault(&format!("labels/{}", token(key)), "invalid_type", "a label's value must be a text");
}

/// Faults of a value of the DNS, with their places below `base`.
fn dns_faults(base: &str, faults: Vec<headwater_events::dns::DnsFault>) -> Vec<Fault> {
    let fault = |fault: headwater_events::dns::DnsFault| {
        Fault::at(format!("{base}{}", fault.place.pointer()), fault.code.as_str(), fault.detail)
    };
    faults.into_iter().map(fault).collect()
}
