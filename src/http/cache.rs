//! How answers of a domain are kept, and purges of what is kept.

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use headwater_events::domain::DomainCommand;
use headwater_events::ids::PurgeId;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::asof::{self, MomentParams};
use super::auth::Authenticated;
use super::domains::visible;
use super::dto::Receipt;
use super::dto::site::{CacheBody, NewPurge, PatchCache, PurgeBody, SentCache};
use super::mutation::{Mutation, Submitted};
use super::page::{Listing, Page, PageParams};
use super::path::{DomainPath, PurgePath};
use super::query::{NoQuery, Query};
use super::{Problem, answer, conditional, page};
use crate::app::App;
use crate::command::Command;
use crate::query::asof::{self as past, Moment};
use crate::query::sites;

/// The routes of this file.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(get, patch))
        .routes(routes!(list_purges, purge))
        .routes(routes!(get_purge))
}

/// How answers are kept.
#[utoipa::path(get, path = "/api/domains/{d}/cache", tag = "cache",
    params(("d" = String, Path, description = "The domain's name"), MomentParams),
    responses((status = 200, body = CacheBody)))]
async fn get(
    State(app): State<App>,
    auth: Authenticated,
    DomainPath(name): DomainPath,
    Query(moment): Query<Moment>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let domain = visible(&app, &auth, &name).await?.state;
    let mut found = match asof::resolve(&app, &domain, moment).await? {
        Some(revision) => past::cache(&app.pool, &domain, revision).await?,
        None => sites::cache(&app.pool, domain.id).await?,
    };
    past::attribute(&app.pool, domain.id, std::iter::once(&mut found.changed)).await?;
    conditional::answer(&headers, found.changed.revision, &CacheBody::from(found))
}

/// Change how answers are kept (merge patch).
#[utoipa::path(patch, path = "/api/domains/{d}/cache", tag = "cache",
    params(("d" = String, Path, description = "The domain's name")),
    request_body = PatchCache, responses((status = 200, body = Receipt), (status = 202, body = Receipt)))]
async fn patch(
    State(app): State<App>,
    DomainPath(name): DomainPath,
    mutation: Mutation<SentCache>,
) -> Result<Response, Problem> {
    let (mutation, SentCache(patch)) = mutation.split();
    let command = DomainCommand::PatchCache(patch);
    Ok(mutation.submit(&app, Command::Domain { name, command }).await?.into_response())
}

/// Purges of a domain, newest first; the newest 1,000 are kept.
#[utoipa::path(get, path = "/api/domains/{d}/purges", tag = "cache",
    params(("d" = String, Path, description = "The domain's name"), PageParams),
    responses((status = 200, body = Vec<PurgeBody>, description = "A page: items and next")))]
async fn list_purges(
    State(app): State<App>,
    auth: Authenticated,
    DomainPath(name): DomainPath,
    wanted: Listing<NoQuery, i64>,
) -> Result<Response, Problem> {
    let domain = visible(&app, &auth, &name).await?.state;
    page::list(wanted, move |before: Option<i64>, most| {
        let app = app.clone();
        async move {
            let found = sites::purges(&app.pool, domain.id, None, None, before, most).await?;
            Ok(Page { items: found.into_iter().map(|one| (one.epoch, PurgeBody::from(one))).collect() })
        }
    })
    .await
}

/// Let go of everything that edges keep of a domain.
#[utoipa::path(post, path = "/api/domains/{d}/purges", tag = "cache",
    params(("d" = String, Path, description = "The domain's name")),
    request_body = NewPurge, responses((status = 200, body = Receipt), (status = 202, body = Receipt)))]
async fn purge(
    State(app): State<App>,
    DomainPath(name): DomainPath,
    mutation: Mutation<NewPurge>,
) -> Result<Response, Problem> {
    let command = DomainCommand::Purge { id: PurgeId::from_uuid(Uuid::now_v7()) };
    let outcome = match mutation.submit(&app, Command::Domain { name, command }).await? {
        Submitted::Done(outcome) => outcome,
        plan => return Ok(plan.into_response()),
    };
    // By its revision, so that a repeated request is told of the purge that it made the first time.
    let found = match &outcome.domain {
        Some(domain) => {
            sites::purges(&app.pool, domain.id, None, Some(outcome.revision), None, 1).await?.pop()
        }
        None => None,
    };
    let purge = found.map(|one| ("purge", serde_json::json!(PurgeBody::from(one))));
    Ok(answer::receipt_with(&outcome, purge))
}

/// One purge.
#[utoipa::path(get, path = "/api/domains/{d}/purges/{id}", tag = "cache",
    params(("d" = String, Path, description = "The domain's name"), ("id" = Uuid, Path)),
    responses((status = 200, body = PurgeBody)))]
async fn get_purge(
    State(app): State<App>,
    auth: Authenticated,
    at: PurgePath,
    _: Query<NoQuery>,
) -> Result<Json<PurgeBody>, Problem> {
    let domain = visible(&app, &auth, &at.domain).await?.state;
    let found = sites::purges(&app.pool, domain.id, Some(at.id), None, None, 1).await?.pop();
    let missing = || Problem::not_found(format!("purge {} of {}", at.id, at.domain));
    found.map(|one| Json(PurgeBody::from(one))).ok_or_else(missing)
}
