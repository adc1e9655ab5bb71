//! DNS clusters (administrators): register, read, change, test, enable, disable.

use axum::Json;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use headwater_events::actor::{Resource, Verb};
use headwater_events::admin::{AdminCommand, ClusterPatch};
use headwater_events::event::{
    ClusterCreated, ClusterRemovalRequested, OperationRequested, Projection, Work,
};
use headwater_events::ids::{ClusterId, OperationId};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::auth::Authenticated;
use super::body::NoBody;
use super::dto::Receipt;
use super::dto::cluster::{Cluster, NewCluster, PatchedCluster};
use super::mutation::{Mutation, Submitted};
use super::page::{Listing, Page, PageParams};
use super::path::IdPath;
use super::query::{NoQuery, Query};
use super::{Problem, answer, page};
use crate::app::App;
use crate::command::Command;
use crate::deploy::{self, TestReport};
use crate::query::clusters::{self, StoredCluster};

/// The routes of this file.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list, create))
        .routes(routes!(get, patch, delete))
        .routes(routes!(test))
        .routes(routes!(enable))
        .routes(routes!(disable))
        .routes(routes!(reconcile))
}

/// DNS clusters, oldest first.
#[utoipa::path(get, path = "/api/dns-clusters", tag = "dns-clusters", params(PageParams),
    responses((status = 200, body = Vec<Cluster>, description = "A page: items and next")))]
async fn list(
    State(app): State<App>,
    auth: Authenticated,
    wanted: Listing<NoQuery, Uuid>,
) -> Result<Response, Problem> {
    auth.may(Verb::Read, Resource::Platform, "the list of DNS clusters")?;
    page::list(wanted, move |after, most| {
        let app = app.clone();
        async move {
            let found = clusters::page(&app.pool, None, after, most).await?;
            Ok(Page { items: found.into_iter().map(|one| (one.id.as_uuid(), Cluster::from(one))).collect() })
        }
    })
    .await
}

/// Register a DNS cluster.
#[utoipa::path(post, path = "/api/dns-clusters", tag = "dns-clusters", request_body = NewCluster,
    responses((status = 201, body = Cluster)))]
async fn create(State(app): State<App>, mutation: Mutation<ClusterCreated>) -> Result<Response, Problem> {
    let (mutation, cluster) = mutation.split();
    let id = ClusterId::from_uuid(Uuid::now_v7());
    let command = Command::admin(AdminCommand::CreateCluster { id, cluster });
    let outcome = match mutation.submit(&app, command).await? {
        Submitted::Done(outcome) => outcome,
        plan => return Ok(plan.into_response()),
    };
    let made = one(&app, ClusterId::from_uuid(outcome.stream)).await?;
    Ok(answer::created(&outcome, &format!("/api/dns-clusters/{}", outcome.stream), &Cluster::from(made)))
}

async fn one(app: &App, id: ClusterId) -> Result<StoredCluster, Problem> {
    let found = clusters::page(&app.pool, Some(id), None, 1).await?.pop();
    found.ok_or_else(|| Problem::not_found(format!("DNS cluster {id}")))
}

/// One DNS cluster.
#[utoipa::path(get, path = "/api/dns-clusters/{id}", tag = "dns-clusters", params(("id" = Uuid, Path)),
    responses((status = 200, body = Cluster)))]
async fn get(
    State(app): State<App>,
    auth: Authenticated,
    IdPath(id): IdPath<ClusterId>,
    _: Query<NoQuery>,
) -> Result<Json<Cluster>, Problem> {
    auth.may(Verb::Read, Resource::Platform, "DNS clusters")?;
    Ok(Json(one(&app, id).await?.into()))
}

/// Change how a DNS cluster is reached.
#[utoipa::path(patch, path = "/api/dns-clusters/{id}", tag = "dns-clusters", request_body = PatchedCluster,
    params(("id" = Uuid, Path)), responses((status = 200, body = Cluster)))]
async fn patch(
    State(app): State<App>,
    IdPath(cluster): IdPath<ClusterId>,
    mutation: Mutation<ClusterPatch>,
) -> Result<Response, Problem> {
    let (mutation, patch) = mutation.split();
    let command = Command::admin(AdminCommand::UpdateCluster { cluster, patch });
    match mutation.submit(&app, command).await? {
        Submitted::Done(outcome) => Ok(answer::resource(&outcome, &Cluster::from(one(&app, cluster).await?))),
        plan => Ok(plan.into_response()),
    }
}

/// Let a disabled DNS cluster go: an operation that takes away what was deployed to it, and then forgets it; zones of others
/// stay. It is durable: where the cluster cannot be reached, repeat it when it can. With `retain=true` it is forgotten at once,
/// and what it serves stays as it is.
#[utoipa::path(delete, path = "/api/dns-clusters/{id}", tag = "dns-clusters",
    params(("id" = Uuid, Path), ("retain" = Option<bool>, Query, description = "Forget it at once and touch nothing there")),
    responses((status = 200, body = Receipt), (status = 202, body = Receipt)))]
async fn delete(
    State(app): State<App>,
    IdPath(cluster): IdPath<ClusterId>,
    request: Request,
) -> Result<Response, Problem> {
    let (mutation, retain) = Mutation::<NoBody>::asked(request, &app, |pairs| pairs.flag("retain")).await?;
    if retain {
        let command = AdminCommand::DeleteCluster { cluster, retained: true, zones: 0 };
        return Ok(mutation.submit(&app, Command::admin(command)).await?.into_response());
    }
    mutation.auth.may(Verb::Write, Resource::Platform, "DNS clusters")?;
    let name = one(&app, cluster).await?.name;
    let operation = OperationId::from_uuid(Uuid::now_v7());
    let requested = ClusterRemovalRequested { cluster };
    let command = Command::admin(AdminCommand::RequestRemoval { operation, requested });
    Ok(match mutation.submit(&app, command).await? {
        Submitted::Plan(mut plan) => {
            plan.targets = vec![name];
            Submitted::Plan(plan).into_response()
        }
        done => done.into_response(),
    })
}

/// Try everything that a deployment to a DNS cluster needs, and say how long each step took.
#[utoipa::path(post, path = "/api/dns-clusters/{id}/test", tag = "dns-clusters", params(("id" = Uuid, Path)),
    responses((status = 200, body = TestReport)))]
async fn test(
    State(app): State<App>,
    IdPath(id): IdPath<ClusterId>,
    mutation: Mutation<NoBody>,
) -> Result<Response, Problem> {
    mutation.auth.may(Verb::Write, Resource::Platform, "DNS clusters")?;
    let known = deploy::clusters(&app.pool).await.map_err(|error| Problem::unavailable(error.to_string()))?;
    let Some(cluster) = known.into_iter().find(|cluster| cluster.id == id) else {
        return Err(Problem::not_found(format!("DNS cluster {id}")));
    };
    Ok(Json(deploy::test_cluster(&cluster).await).into_response())
}

/// Deploy to a DNS cluster; the operation ends when it holds everything.
#[utoipa::path(post, path = "/api/dns-clusters/{id}/enable", tag = "dns-clusters", params(("id" = Uuid, Path)),
    responses((status = 200, body = Receipt), (status = 202, body = Receipt)))]
async fn enable(
    State(app): State<App>,
    IdPath(cluster): IdPath<ClusterId>,
    mutation: Mutation<NoBody>,
) -> Result<Response, Problem> {
    let command = Command::admin(AdminCommand::SetClusterEnabled { cluster, enabled: true });
    Ok(mutation.submit(&app, command).await?.into_response())
}

/// Compare every zone of a DNS cluster with the log and put right what differs, as an operation with progress. It goes on
/// where it was when its process dies. Zones of others are left as they are.
#[utoipa::path(post, path = "/api/dns-clusters/{id}/reconcile", tag = "dns-clusters", params(("id" = Uuid, Path)),
    responses((status = 202, body = Receipt)))]
async fn reconcile(
    State(app): State<App>,
    IdPath(cluster): IdPath<ClusterId>,
    mutation: Mutation<NoBody>,
) -> Result<Response, Problem> {
    mutation.auth.may(Verb::Write, Resource::Platform, "DNS clusters")?;
    let found = one(&app, cluster).await?;
    if !found.enabled {
        let detail =
            format!("the DNS cluster {} is disabled: nothing is written to it; enable it first", found.name);
        return Err(Problem::new(StatusCode::CONFLICT, "conflict", detail));
    }
    let requested = OperationRequested {
        kind: Work::Rebuild,
        projection: Projection::Powerdns,
        domain: None,
        mend: true,
        cluster: Some(cluster),
    };
    let operation = OperationId::from_uuid(Uuid::now_v7());
    let command = Command::admin(AdminCommand::RequestOperation { operation, requested });
    Ok(match mutation.submit(&app, command).await? {
        Submitted::Plan(mut plan) => {
            plan.targets = vec![found.name];
            Submitted::Plan(plan).into_response()
        }
        done => done.into_response(),
    })
}

/// Deploy to a DNS cluster no longer; what it serves stays as it is. Once this is answered, nothing is written to it.
#[utoipa::path(post, path = "/api/dns-clusters/{id}/disable", tag = "dns-clusters", params(("id" = Uuid, Path)),
    responses((status = 200, body = Receipt)))]
async fn disable(
    State(app): State<App>,
    IdPath(cluster): IdPath<ClusterId>,
    mutation: Mutation<NoBody>,
) -> Result<Response, Problem> {
    let command = Command::admin(AdminCommand::SetClusterEnabled { cluster, enabled: false });
    let submitted = mutation.submit(&app, command).await?;
    if matches!(submitted, Submitted::Done(_))
        && let Err(error) = deploy::writes_ended(&app.pool, cluster).await
    {
        tracing::warn!(%cluster, %error, "whether writes to a disabled DNS cluster have ended is not known");
        return Err(Problem::unavailable(
            "the DNS cluster is disabled, but a write that had begun has not ended: repeat the request"
                .to_owned(),
        ));
    }
    Ok(submitted.into_response())
}
