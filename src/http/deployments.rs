//! Deployments: how far each target has followed each domain, and pausing it.

use axum::Json;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use headwater_events::actor::{Resource, Verb};
use headwater_events::admin::AdminCommand;
use headwater_events::dns::DomainName;
use headwater_events::ids::{ClusterId, DomainId};
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::auth::Authenticated;
use super::body::NoBody;
use super::domains::visible;
use super::dto::Receipt;
use super::dto::deployment::{Decided, Deployment, Pause, TargetKey};
use super::mutation::{Mutation, Submitted};
use super::page::{Listing, Page, PageParams};
use super::path::DomainPath;
use super::query::{FromQuery, NoQuery, Pairs};
use super::{Problem, page};
use crate::app::App;
use crate::command::{Command, Plan};
use crate::deploy::{self, ClusterRow, DecideError, Target};
use crate::query::deployments::{self, DeploymentFilter};
use crate::query::domains;

/// The states that a deployment can be in.
const STATES: [&str; 7] = ["pending", "activating", "current", "failed", "rejected", "removed", "ahead"];

/// The routes of this file.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(of_domain))
        .routes(routes!(list))
        .routes(routes!(pause))
        .routes(routes!(resume))
        .routes(routes!(adopt))
        .routes(routes!(discard))
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

/// A domain on each of its targets: DNS clusters, then cells of edges.
#[utoipa::path(get, path = "/api/domains/{d}/deployments", tag = "deployments",
    params(("d" = String, Path, description = "The domain's name"), PageParams),
    responses((status = 200, body = Vec<Deployment>, description = "A page: items and next")))]
async fn of_domain(
    State(app): State<App>,
    auth: Authenticated,
    DomainPath(name): DomainPath,
    wanted: Listing<NoQuery, TargetKey>,
) -> Result<Response, Problem> {
    let domain = visible(&app, &auth, &name).await?.state;
    page::list(wanted, move |after: Option<TargetKey>, most| {
        let (app, name) = (app.clone(), name.clone());
        async move {
            let all = everywhere(&app, domain.id, &name).await?.into_iter().map(|one| (one.key(), one));
            let next = all.filter(|(key, _)| after.is_none_or(|after| *key > after));
            Ok(Page { items: next.take(usize::try_from(most).unwrap_or(usize::MAX)).collect() })
        }
    })
    .await
}

/// The deployments of a domain, by their keys.
pub(super) async fn everywhere(
    app: &App,
    domain: DomainId,
    name: &DomainName,
) -> Result<Vec<Deployment>, sqlx::Error> {
    let clusters = deployments::of_domain(&app.pool, domain).await?;
    let cells = deployments::on_cells(&app.pool, domain).await?;
    let cells = cells.into_iter().map(|one| Deployment::on_cell(name, one));
    Ok(clusters.into_iter().map(Deployment::from).chain(cells).collect())
}

/// Deployments on DNS clusters of every domain that the caller may see. What cells have is computed for one domain at a
/// time.
#[utoipa::path(get, path = "/api/deployments", tag = "deployments", params(DeploymentListParams, PageParams),
    responses((status = 200, body = Vec<Deployment>, description = "A page: items and next")))]
async fn list(
    State(app): State<App>,
    auth: Authenticated,
    wanted: Listing<DeploymentFilter, (Uuid, Uuid)>,
) -> Result<Response, Problem> {
    let (filter, visible) = (wanted.filter.clone(), auth.caller.visible());
    page::list(wanted, move |after, most| {
        let (app, filter, visible) = (app.clone(), filter.clone(), visible.clone());
        async move {
            let found = deployments::page(&app.pool, &visible, &filter, after, most).await?;
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

/// Which deployment: `<domain>@<id of the target>`.
async fn named(app: &App, id: &str) -> Result<(DomainName, ClusterRow), Problem> {
    let missing = || Problem::not_found(format!("deployment {id} (write <domain>@<id of the target>)"));
    let (name, target) = id.rsplit_once('@').ok_or_else(missing)?;
    let name = DomainName::parse(name).map_err(|_| missing())?;
    let target: ClusterId = target.parse().map_err(|_| missing())?;
    let known = deploy::clusters(&app.pool).await.map_err(|error| Problem::unavailable(error.to_string()))?;
    let cluster = known.into_iter().find(|cluster| cluster.id == target).ok_or_else(missing)?;
    Ok((name, cluster))
}

/// Connections to it, once something is to be done there.
fn reached(cluster: ClusterRow) -> Result<Target, Problem> {
    Target::open(cluster).map_err(|error| Problem::unavailable(error.to_string()))
}

/// Whether there is something to decide: the target holds what this log does not know.
async fn is_ahead(app: &App, name: &DomainName, cluster: &ClusterRow) -> Result<bool, Problem> {
    let missing = || Problem::not_found(format!("domain {name}"));
    let domain = domains::by_name(&app.pool, name).await?.ok_or_else(missing)?;
    let found = deployments::of_domain(&app.pool, domain.state.id).await?;
    Ok(found.iter().any(|one| one.cluster == cluster.id && one.state == "ahead"))
}

/// What a decision would do.
fn plan(ahead: bool, cluster: &ClusterRow, decision: Decision) -> Response {
    let warning = match (ahead, decision) {
        (false, _) => "the target holds nothing that this log does not know",
        (true, Decision::Adopt) => {
            "the serial rises above the one that the target serves, and the next revision is written there"
        }
        (true, Decision::Discard) => "what the target holds is replaced by what the log says",
    };
    let targets = if ahead { vec![cluster.name.clone()] } else { Vec::new() };
    let warnings = vec![warning.to_owned()];
    let (diff, guards) = (Vec::new(), Vec::new());
    Submitted::Plan(Plan {
        changed: ahead,
        diff,
        warnings,
        guards,
        targets,
        if_match: None,
        not_restored: None,
    })
    .into_response()
}

impl From<DecideError> for Problem {
    fn from(error: DecideError) -> Self {
        match error {
            DecideError::NoDomain(name) => Self::not_found(format!("domain {name}")),
            DecideError::Submit(error) => error.into(),
            DecideError::Deploy(error) => Self::unavailable(error.to_string()),
        }
    }
}

/// Who is right about what a target holds and this log does not know.
#[derive(Clone, Copy)]
enum Decision {
    /// The target: the next revision continues above it.
    Adopt,
    /// The log: the target is written over.
    Discard,
}

/// Continue above what a target holds and this log does not know (administrators).
#[utoipa::path(post, path = "/api/deployments/{id}/adopt", tag = "deployments",
    params(("id" = String, Path, description = "`<domain>@<id of the target>`",
        example = "example.com@01982f6e-7b4c-7d30-9d0a-3f1f0f3f5f10")),
    responses((status = 200, body = Decided)))]
async fn adopt(
    State(app): State<App>,
    Path(id): Path<String>,
    mutation: Mutation<NoBody>,
) -> Result<Response, Problem> {
    decide(&app, id, &mutation, Decision::Adopt).await
}

/// Replace what a target holds and this log does not know (administrators).
#[utoipa::path(post, path = "/api/deployments/{id}/discard", tag = "deployments",
    params(("id" = String, Path, description = "`<domain>@<id of the target>`",
        example = "example.com@01982f6e-7b4c-7d30-9d0a-3f1f0f3f5f10")),
    responses((status = 200, body = Decided)))]
async fn discard(
    State(app): State<App>,
    Path(id): Path<String>,
    mutation: Mutation<NoBody>,
) -> Result<Response, Problem> {
    decide(&app, id, &mutation, Decision::Discard).await
}

async fn decide(
    app: &App,
    id: String,
    mutation: &Mutation<NoBody>,
    decision: Decision,
) -> Result<Response, Problem> {
    mutation.auth.may(Verb::Write, Resource::Platform, "deployments")?;
    mutation.refuse_conditions()?;
    let (name, cluster) = named(app, &id).await?;
    let ahead = is_ahead(app, &name, &cluster).await?;
    if mutation.is_dry_run() {
        return Ok(plan(ahead, &cluster, decision));
    }
    if ahead {
        let target = reached(cluster)?;
        match decision {
            Decision::Adopt => {
                let caller = mutation.auth.caller.clone();
                deploy::adopt(app, &target, &name, caller, mutation.meta()).await?;
            }
            Decision::Discard => deploy::discard(app, &target, &name).await?,
        }
    }
    Ok(Json(Decided { changed: ahead, deployment: id }).into_response())
}
