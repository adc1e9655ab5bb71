//! Rolling a domain back to an earlier revision, whole, as a new one.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use headwater_events::domain::{DomainCommand, MOVED_ON, Rollback};
use headwater_events::ids::Revision;
use headwater_events::reject::Fault;
use serde::Serialize;
use serde_json::json;
use std::sync::Arc;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::body::{Fields, FromBody};
use super::domains::known;
use super::dto::Receipt;
use super::mutation::{Mutation, Submitted};
use super::path::DomainPath;
use super::{Problem, answer};
use crate::app::App;
use crate::command::Command;
use crate::store::past::{self, PastError};

/// How often the past is read anew because the domain was changed by more than is read under its lock.
const READ_MAX_TIMES: u32 = 5;

/// The routes of this file.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(rollback))
}

/// Which revision of a domain.
#[derive(Debug, ToSchema)]
pub struct OfRevision {
    /// Its number: what is gone back to, or what alone is undone.
    #[schema(example = 7)]
    revision: i64,
}

impl OfRevision {
    /// The revision.
    pub fn get(&self) -> Revision {
        Revision::new(self.revision)
    }
}

impl FromBody for OfRevision {
    fn read(fields: &mut Fields) -> Option<Self> {
        if !fields.has("revision") {
            fields.missing("revision");
        }
        Some(Self { revision: fields.integer("revision")? })
    }
}

/// Whether the past is to be read anew: the domain was changed by more than is read under its lock, and not for ever.
pub(super) fn moved_on(submitted: &Result<Submitted, Problem>, tries: u32) -> bool {
    tries < READ_MAX_TIMES && submitted.as_ref().is_err_and(|problem| problem.code() == MOVED_ON)
}

/// The answer, with what is not restored.
pub(super) fn answered(submitted: Result<Submitted, Problem>) -> Result<Response, Problem> {
    Ok(match submitted? {
        Submitted::Done(outcome) => {
            answer::receipt_with(&outcome, Some(("not_restored", json!(outcome.not_restored))))
        }
        plan => plan.into_response(),
    })
}

/// The answer to a rollback.
#[derive(Debug, Serialize, ToSchema)]
#[allow(dead_code)] // the description of what `answer::receipt_with` writes
pub struct RolledBack {
    #[serde(flatten)]
    receipt: Receipt,
    /// What was otherwise then and stays as it is.
    not_restored: Vec<NotRestoredBody>,
}

/// Something that a rollback leaves as it is.
#[derive(Debug, Serialize, ToSchema)]
#[allow(dead_code)] // as above
pub struct NotRestoredBody {
    /// `status` (deletion, activation), `cache_epoch` (purges) or `serial_base`.
    #[schema(example = "cache_epoch")]
    what: String,
    /// For people.
    detail: String,
}

/// Give a domain back what it was at an earlier revision: every RRset, proxied name, the cache's policy, labels and
/// external id, as one new revision. The revision must be retained and validated (see the list of revisions); else 409
/// `not_retained` or `not_validated`, with the `nearest` that are both.
#[utoipa::path(post, path = "/api/domains/{d}/rollback", tag = "history",
    params(("d" = String, Path, description = "The domain's name")), request_body = OfRevision,
    responses((status = 200, body = RolledBack), (status = 202, body = RolledBack)))]
async fn rollback(
    State(app): State<App>,
    DomainPath(name): DomainPath,
    mutation: Mutation<OfRevision>,
) -> Result<Response, Problem> {
    let (mutation, body) = mutation.split();
    let to = body.get();
    let mut tries = 0;
    loop {
        tries += 1;
        let domain = known(&app, &mutation.auth, &name).await?.state;
        let now = app.clock.now();
        let past = past::read(&app.pool, &domain, to, app.config.limits.retention, now).await?;
        let destinations = app.config.sites.destinations.clone();
        let rollback = Rollback { past: Arc::new(past), destinations };
        let command = DomainCommand::Rollback(Box::new(rollback));
        let submitted = mutation.submit(&app, Command::Domain { name: name.clone(), command }).await;
        if !moved_on(&submitted, tries) {
            return answered(submitted);
        }
    }
}

impl From<PastError> for Problem {
    fn from(error: PastError) -> Self {
        match error {
            PastError::Database(error) => error.into(),
            PastError::Unreadable(_) => Self::unavailable(error.to_string()),
            PastError::TooMuch => {
                Self::invalid(vec![Fault::at("/revision", "too_many_changes", error.to_string())])
            }
        }
    }
}
