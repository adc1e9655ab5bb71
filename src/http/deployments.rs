//! Deployments: how far each target has followed each domain, and pausing it.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use headwater_events::admin::AdminCommand;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::auth::Authenticated;
use super::domains::visible;
use super::dto::Receipt;
use super::dto::deployment::{Deployment, Pause};
use super::mutation::Mutation;
use super::page::{Listing, Page, PageParams};
use super::path::DomainPath;
use super::query::{FromQuery, NoQuery, Pairs, Query};
use super::{Problem, page};
use crate::app::App;
use crate::command::Command;
use crate::query::deployments::{self, DeploymentFilter};

/// The states that a deployment can be in.
const STATES: [&str; 7] = ["pending", "activating", "current", "failed", "rejected", "removed", "ahead"];

/// The routes of this file.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(of_domain))
        .routes(routes!(list))
        .routes(routes!(pause))
        .routes(routes!(resume))
}

/// Which deployments are wanted.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
#[allow(dead_code)] // the documentation of what `DeploymentFilter` reads
struct DeploymentListParams {
    /// In this state.
    state: Option<String>,
    /// On this target.
    target: Option<Uuid>,
}

impl FromQuery for DeploymentFilter {
    fn read(pairs: &mut Pairs) -> Self {
        let state = |text: &str| match STATES.contains(&text) {
            true => Ok(text.to_owned()),
            false => Err(format!("the states are {}", STATES.join(", "))),
        };
        Self { state: pairs.parsed("state", state), target: pairs.id("target") }
    }
}

/// A domain on each of its targets.
#[utoipa::path(get, path = "/api/domains/{d}/deployments", tag = "deployments",
    params(("d" = String, Path, description = "The domain's name")),
    responses((status = 200, body = Vec<Deployment>, description = "All of them: items")))]
async fn of_domain(
    State(app): State<App>,
    auth: Authenticated,
    DomainPath(name): DomainPath,
    _: Query<NoQuery>,
) -> Result<Response, Problem> {
    let domain = visible(&app, &auth, &name).await?.state;
    let found = deployments::of_domain(&app.pool, domain.id).await?;
    let items: Vec<Deployment> = found.into_iter().map(Into::into).collect();
    Ok(Json(serde_json::json!({"items": items, "next": null})).into_response())
}

/// Deployments of every domain that the caller may see.
#[utoipa::path(get, path = "/api/deployments", tag = "deployments", params(DeploymentListParams, PageParams),
    responses((status = 200, body = Vec<Deployment>, description = "A page: items and next")))]
async fn list(
    State(app): State<App>,
    auth: Authenticated,
    wanted: Listing<DeploymentFilter, (Uuid, Uuid)>,
) -> Result<Response, Problem> {
    let (filter, scope) = (wanted.filter.clone(), auth.scope());
    page::list(wanted, move |after, most| {
        let (app, filter, scope) = (app.clone(), filter.clone(), scope.clone());
        async move {
            let found = deployments::page(&app.pool, scope.as_deref(), &filter, after, most).await?;
            let key = |one: &deployments::StoredDeployment| (one.domain.as_uuid(), one.cluster.as_uuid());
            Ok(Page { items: found.into_iter().map(|one| (key(&one), Deployment::from(one))).collect() })
        }
    })
    .await
}

/// Pause deployments: all, of a target, or of a domain (administrators).
#[utoipa::path(post, path = "/api/deployments/pause", tag = "deployments", request_body = Pause,
    responses((status = 200, body = Receipt)))]
async fn pause(State(app): State<App>, mutation: Mutation<Pause>) -> Result<Response, Problem> {
    let (mutation, Pause { scope, reason, .. }) = mutation.split();
    let command = Command::admin(AdminCommand::Pause { scope, reason });
    Ok(mutation.submit(&app, command).await?.into_response())
}

/// Resume deployments (administrators).
#[utoipa::path(post, path = "/api/deployments/resume", tag = "deployments", request_body = Pause,
    responses((status = 200, body = Receipt)))]
async fn resume(State(app): State<App>, mutation: Mutation<Pause>) -> Result<Response, Problem> {
    let (mutation, Pause { scope, reason, .. }) = mutation.split();
    let command = Command::admin(AdminCommand::Resume { scope, reason });
    Ok(mutation.submit(&app, command).await?.into_response())
}
