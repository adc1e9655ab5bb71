//! Projections (administrators): where they stand; building one anew, and comparing it with the log. Both are imperative
//! operations: accepted, durable, carried out by whoever has the lane; no request waits for them.

use axum::Json;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use headwater_events::actor::{Resource, Verb};
use headwater_events::admin::AdminCommand;
use headwater_events::dns::DomainName;
use headwater_events::event::{OperationRequested, Projection, Work};
use headwater_events::ids::OperationId;
use headwater_events::reject::Fault;
use serde_json::json;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::Problem;
use super::auth::Authenticated;
use super::body::{Fields, FromBody};
use super::dto::Receipt;
use super::mutation::{Mutation, Submitted};
use super::query::{NoQuery, Query};
use crate::app::App;
use crate::command::Command;
use crate::rebuild::{self, RebuildError};

/// The routes of this file.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(rebuild_one)).routes(routes!(verify))
}

/// What is rebuilt or verified.
#[derive(Debug, Default, ToSchema)]
pub struct Scope {
    /// Only this domain.
    #[schema(value_type = Option<String>)]
    domain: Option<DomainName>,
    /// `false` keeps what differs as it is; else it is mended by the reconciler at once.
    #[schema(value_type = Option<bool>)]
    mend: Option<bool>,
}

impl FromBody for Scope {
    fn read(fields: &mut Fields) -> Option<Self> {
        let domain = fields.parsed("domain", |text| {
            DomainName::parse(text).map_err(|fault| (fault.code.as_str(), fault.detail))
        });
        let mend = fields.has("mend").then(|| fields.flag("mend"));
        Some(Self { domain, mend })
    }
}

/// Where every projection stands.
#[utoipa::path(get, path = "/api/projections", tag = "projections",
    responses((status = 200, description = "All of them: items")))]
async fn list(State(app): State<App>, auth: Authenticated, _: Query<NoQuery>) -> Result<Response, Problem> {
    auth.may(Verb::Read, Resource::Platform, "projections")?;
    let items = rebuild::list(&app.pool).await?;
    Ok(Json(json!({"items": items, "next": null})).into_response())
}

/// Build a projection anew from the log, whole or for one domain. One rebuild of a projection at a time: the next is
/// 409, naming the operation.
#[utoipa::path(post, path = "/api/projections/{name}/rebuild", tag = "projections", request_body = Scope,
    params(("name" = String, Path, description = "desired, powerdns, edge, operations or audit")),
    responses((status = 202, body = Receipt)))]
async fn rebuild_one(
    State(app): State<App>,
    Path(name): Path<String>,
    mutation: Mutation<Scope>,
) -> Result<Response, Problem> {
    request(app, &name, Work::Rebuild, mutation).await
}

/// Compare a projection with the log, row by row. What differs is at `differences` of the operation.
#[utoipa::path(post, path = "/api/projections/{name}/verify", tag = "projections", request_body = Scope,
    params(("name" = String, Path, description = "desired, powerdns, edge, operations or audit")),
    responses((status = 202, body = Receipt)))]
async fn verify(
    State(app): State<App>,
    Path(name): Path<String>,
    mutation: Mutation<Scope>,
) -> Result<Response, Problem> {
    request(app, &name, Work::Verify, mutation).await
}

async fn request(app: App, name: &str, kind: Work, mutation: Mutation<Scope>) -> Result<Response, Problem> {
    mutation.auth.may(Verb::Write, Resource::Platform, "projections")?;
    let Some(projection) = Projection::from_name(name) else {
        let known = Projection::ALL.map(Projection::name).join(", ");
        return Err(Problem::not_found(format!("projection {name} (there are {known})")));
    };
    let (mutation, scope) = mutation.split();
    let operation = OperationId::from_uuid(Uuid::now_v7());
    let mend = scope.mend.unwrap_or(true);
    let requested = OperationRequested { kind, projection, domain: scope.domain, mend, cluster: None };
    let command = Command::admin(AdminCommand::RequestOperation { operation, requested });
    Ok(match mutation.submit(&app, command).await? {
        Submitted::Plan(mut plan) => {
            if projection != Projection::Powerdns {
                plan.targets.clear();
            }
            Submitted::Plan(plan).into_response()
        }
        done => done.into_response(),
    })
}

impl From<RebuildError> for Problem {
    fn from(error: RebuildError) -> Self {
        use axum::http::StatusCode;
        match error {
            RebuildError::Database(error) => error.into(),
            RebuildError::Read(error) => error.into(),
            RebuildError::Busy => Self::new(StatusCode::CONFLICT, "conflict", error.to_string()),
            RebuildError::NoDomain(name) => Self::not_found(format!("domain {name}")),
            RebuildError::Poison { .. } => {
                Self::new(StatusCode::INTERNAL_SERVER_ERROR, "unreadable_event", error.to_string())
            }
            RebuildError::Forbidden => Self::forbidden(error.to_string()),
            RebuildError::Source(why) => Self::invalid(vec![Fault::at("/source", "source_unusable", why)]),
            RebuildError::Deploy(_)
            | RebuildError::Stopped
            | RebuildError::Undo(_)
            | RebuildError::Import(_) => Self::unavailable(error.to_string()),
        }
    }
}
