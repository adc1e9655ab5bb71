//! Proxied names of a domain: list, read, put, delete.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use headwater_events::domain::DomainCommand;
use headwater_events::ids::Revision;
use std::sync::Arc;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::asof::{self, MomentParams};
use super::auth::Authenticated;
use super::body::NoBody;
use super::domains::visible;
use super::dto::Receipt;
use super::dto::site::{HostnameShown, PutHostname, SentHostname};
use super::mutation::{Mutation, Submitted};
use super::page::{Listing, Page, PageParams};
use super::path::{DomainPath, HostnamePath};
use super::query::Query;
use super::{Problem, conditional, page};
use crate::app::App;
use crate::command::Command;
use crate::query::asof::{self as past, Moment};
use crate::query::domains::{self, StoredDomain};
use crate::query::sites;

/// The routes of this file.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(get, put, delete))
}

/// Proxied names of a domain in the order of the zone.
#[utoipa::path(get, path = "/api/domains/{d}/hostnames", tag = "hostnames",
    params(("d" = String, Path, description = "The domain's name"), MomentParams, PageParams),
    responses((status = 200, body = Vec<HostnameShown>, description = "A page: items and next")))]
async fn list(
    State(app): State<App>,
    auth: Authenticated,
    DomainPath(name): DomainPath,
    headers: HeaderMap,
    wanted: Listing<Moment, String>,
) -> Result<Response, Problem> {
    let stored = visible(&app, &auth, &name).await?;
    if let Some(revision) = asof::resolve(&app, &stored.state, wanted.filter).await? {
        return list_asof(app, stored, revision, headers, wanted).await;
    }
    let domain = stored.state;
    let revision = domain.revision;
    if conditional::fresh(&headers, revision)? {
        return Ok(conditional::not_modified(revision));
    }
    let listed = page::list(wanted, move |after: Option<String>, most| {
        let app = app.clone();
        async move {
            let found = sites::page(&app.pool, domain.id, after.as_deref(), most).await?;
            let key = |one: &sites::ShownHostname| one.owner.key().as_str().to_owned();
            Ok(Page { items: found.into_iter().map(|one| (key(&one), HostnameShown::from(one))).collect() })
        }
    });
    let mut response = listed.await?;
    conditional::set_etag(response.headers_mut(), revision);
    Ok(response)
}

/// The same as of a revision.
async fn list_asof(
    app: App,
    stored: StoredDomain,
    revision: Revision,
    headers: HeaderMap,
    wanted: Listing<Moment, String>,
) -> Result<Response, Problem> {
    if conditional::fresh(&headers, revision)? {
        return Ok(conditional::not_modified(revision));
    }
    let (state, _) = asof::state(&app, &stored, revision).await?;
    let all = Arc::new(state.hostnames);
    let listed = page::list(wanted, move |after: Option<String>, most| {
        let (app, all, id) = (app.clone(), Arc::clone(&all), stored.state.id);
        async move {
            let most = usize::try_from(most).unwrap_or(usize::MAX);
            let next =
                all.iter().filter(|(key, _)| after.as_deref().is_none_or(|after| key.as_str() > after));
            let mut found: Vec<_> = next.take(most).map(|(_, one)| one.clone()).collect();
            past::attribute(&app.pool, id, found.iter_mut().map(|one| &mut one.changed)).await?;
            let key = |one: &sites::ShownHostname| one.owner.key().as_str().to_owned();
            Ok(Page { items: found.into_iter().map(|one| (key(&one), HostnameShown::from(one))).collect() })
        }
    });
    let mut response = listed.await?;
    conditional::set_etag(response.headers_mut(), revision);
    Ok(response)
}

/// One proxied name.
#[utoipa::path(get, path = "/api/domains/{d}/hostnames/{name}", tag = "hostnames",
    params(("d" = String, Path, description = "The domain's name"), ("name" = String, Path, description = "The name: www, @, *"), MomentParams),
    responses((status = 200, body = HostnameShown)))]
async fn get(
    State(app): State<App>,
    auth: Authenticated,
    at: HostnamePath,
    Query(moment): Query<Moment>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let domain = visible(&app, &auth, &at.domain).await?.state;
    let owner = at.read().map_err(Problem::invalid)?;
    let found = match asof::resolve(&app, &domain, moment).await? {
        Some(revision) => past::hostname(&app.pool, &domain, revision, &owner).await?,
        None => sites::one(&app.pool, domain.id, &owner.key()).await?,
    };
    let found = found.ok_or_else(|| Problem::not_found(format!("hostname {owner} of {}", at.domain)))?;
    conditional::answer(&headers, found.changed.revision, &HostnameShown::from(found))
}

/// Why DNS does not answer for proxied names yet.
async fn unanswered(app: &App) -> Result<Option<&'static str>, Problem> {
    if domains::platform(&app.pool).await?.endpoints.is_some() {
        return Ok(None);
    }
    Ok(Some(match app.config.sites.platform_zone {
        None => {
            "DNS does not answer for proxied names: set platform_zone in [sites] of the configuration to a name that the \
             platform may host, such as edge.example.net"
        }
        Some(_) => "DNS does not answer for proxied names before an edge with public addresses is ready",
    }))
}

/// Proxy a name, or proxy it otherwise.
#[utoipa::path(put, path = "/api/domains/{d}/hostnames/{name}", tag = "hostnames",
    params(("d" = String, Path, description = "The domain's name"), ("name" = String, Path, description = "The name: www, @, *")),
    request_body = PutHostname, responses((status = 200, body = Receipt), (status = 202, body = Receipt)))]
async fn put(
    State(app): State<App>,
    at: HostnamePath,
    mutation: Mutation<SentHostname>,
) -> Result<Response, Problem> {
    let (mutation, body) = mutation.split();
    let owner = at.read().map_err(Problem::invalid)?;
    let body = body.parse(&owner, &at.domain, &app.config.sites.destinations)?;
    let command = DomainCommand::PutHostname { owner, body };
    let mut submitted = mutation.submit(&app, Command::Domain { name: at.domain, command }).await?;
    if let Submitted::Done(outcome) = &mut submitted
        && outcome.changed
        && let Some(warning) = unanswered(&app).await?
    {
        outcome.warnings.push(warning.to_owned());
    }
    Ok(submitted.into_response())
}

/// Proxy a name no longer; 404 when it is not proxied.
#[utoipa::path(delete, path = "/api/domains/{d}/hostnames/{name}", tag = "hostnames",
    params(("d" = String, Path, description = "The domain's name"), ("name" = String, Path, description = "The name: www, @, *")),
    responses((status = 200, body = Receipt), (status = 202, body = Receipt)))]
async fn delete(
    State(app): State<App>,
    at: HostnamePath,
    mutation: Mutation<NoBody>,
) -> Result<Response, Problem> {
    let owner = at.read().map_err(Problem::invalid)?;
    let command = DomainCommand::DeleteHostname { owner };
    Ok(mutation.submit(&app, Command::Domain { name: at.domain, command }).await?.into_response())
}
