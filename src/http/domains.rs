//! Domains: list, make, read, change, delete, restore.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use headwater_events::actor::{DomainRef, Resource, Verb};
use headwater_events::dns::DomainName;
use headwater_events::domain::{CreateDomain, DomainCommand, DomainPatch, DomainState};
use headwater_events::ids::{DomainId, Revision, TenantId};
use headwater_events::reject::Fault;
use headwater_events::time::Timestamp;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::asof::{self, MomentParams};
use super::auth::Authenticated;
use super::body::NoBody;
use super::dto::Receipt;
use super::dto::domain::{Domain, DomainStatusBody, MadeDomain, MadeReceipt, NewDomain, PatchDomain};
use super::mutation::{Mutation, Submitted};
use super::page::{Listing, Page, PageParams};
use super::path::DomainPath;
use super::query::{FromQuery, NoQuery, Pairs, Query};
use super::{Problem, answer, conditional, deployments, page};
use crate::app::App;
use crate::command::Command;
use crate::query::asof::Moment;
use crate::query::domains::{self, DomainFilter, StoredDomain};

/// The routes of this file.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list, create))
        .routes(routes!(get, patch, delete))
        .routes(routes!(restore))
        .routes(routes!(status))
}

/// Which domains are wanted.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
#[allow(dead_code)] // the documentation of what `DomainFilter` reads
struct DomainListParams {
    /// A label it has, as `key=value`; may be repeated.
    label: Option<Vec<String>>,
    /// Its owner's own number for it.
    external_id: Option<String>,
    /// Who owns it.
    tenant: Option<Uuid>,
    /// A part of its name.
    q: Option<String>,
}

impl FromQuery for DomainFilter {
    fn read(pairs: &mut Pairs) -> Self {
        let mut filter = Self {
            external_id: pairs.one("external_id"),
            tenant: pairs.id("tenant"),
            part: pairs.one("q").map(|part| part.to_lowercase()),
            ..Self::default()
        };
        for label in pairs.all("label") {
            match label.split_once('=') {
                Some((key, value)) => {
                    filter.labels.insert(key.to_owned(), value.to_owned());
                }
                None => pairs.fault("invalid_query_value", "label: write key=value".to_owned()),
            }
        }
        filter
    }
}

/// The domain of this name, if the caller may read everything in it.
///
/// # Errors
/// 404 where the caller may not know of it, 403 where its token is limited to some of its records.
pub async fn visible(app: &App, auth: &Authenticated, name: &DomainName) -> Result<StoredDomain, Problem> {
    let found = known(app, auth, name).await?;
    auth.may(Verb::Read, Resource::Contents(seen(&found.state)), format!("domain {name}"))?;
    Ok(found)
}

/// The domain of this name, if the caller may know of it: what is shown of it needs a decision of its own.
///
/// # Errors
/// 404 otherwise.
pub async fn known(app: &App, auth: &Authenticated, name: &DomainName) -> Result<StoredDomain, Problem> {
    let missing = || Problem::not_found(format!("domain {name}"));
    let found = domains::by_name(&app.pool, name).await?.ok_or_else(missing)?;
    auth.may(Verb::Read, Resource::Domain(seen(&found.state)), format!("domain {name}"))?;
    Ok(found)
}

/// A domain as the policy sees it.
pub fn seen(state: &DomainState) -> DomainRef<'_> {
    DomainRef { id: state.id, tenant: state.tenant, name: state.name.as_str() }
}

/// Domains that the caller may see, by name.
#[utoipa::path(get, path = "/api/domains", tag = "domains", params(DomainListParams, PageParams),
    responses((status = 200, body = Vec<Domain>, description = "A page: items and next")))]
async fn list(
    State(app): State<App>,
    auth: Authenticated,
    wanted: Listing<DomainFilter, String>,
) -> Result<Response, Problem> {
    let platform = domains::platform(&app.pool).await?;
    let (filter, visible) = (wanted.filter.clone(), auth.caller.visible());
    page::list(wanted, move |after: Option<String>, most| {
        let (pool, platform) = (app.pool.clone(), platform.clone());
        let (filter, visible) = (filter.clone(), visible.clone());
        async move {
            let found = domains::page(&pool, &visible, &filter, after.as_deref(), most).await?;
            let item = |one: StoredDomain| (one.state.name.to_string(), Domain::new(&one, &platform));
            Ok(Page { items: found.into_iter().map(item).collect() })
        }
    })
    .await
}

/// Make a domain: 201 while its ownership is to be proven, 202 when it is active at once. Over a deleted domain of the
/// same owner that could still be restored, a warning says that its restore is given up.
#[utoipa::path(post, path = "/api/domains", tag = "domains", request_body = NewDomain,
    responses((status = 201, body = MadeDomain), (status = 202, body = MadeReceipt)))]
async fn create(State(app): State<App>, mutation: Mutation<NewDomain>) -> Result<Response, Problem> {
    let platform = domains::platform(&app.pool).await?;
    let new = &mutation.body;
    let command = Command::CreateDomain(CreateDomain {
        id: DomainId::from_uuid(Uuid::now_v7()),
        name: new.name.clone(),
        tenant: tenant(new.tenant, platform.tenant, &mutation.auth)?,
        force_active: new.force_active,
        labels: new.labels.clone(),
        external_id: new.external_id.clone(),
        rrsets: Vec::new(),
        serial_floor: None,
    });
    let outcome = match mutation.submit(&app, command).await? {
        Submitted::Done(outcome) => outcome,
        plan => return Ok(plan.into_response()),
    };
    let domain = outcome.domain.as_ref().map(|state| Domain::of_state(state, &platform));
    let mut response = if outcome.operation.is_some() {
        answer::receipt_with(&outcome, domain.map(|domain| ("domain", serde_json::json!(domain))))
    } else {
        answer::created_with_warnings(&outcome, &format!("/api/domains/{}", new.name), &domain)
    };
    conditional::set_etag(response.headers_mut(), outcome.revision);
    Ok(response)
}

/// Who will own a new domain: who was named, else the caller's only tenant, else the administrators' own.
pub(super) fn tenant(
    named: Option<TenantId>,
    platform: Option<TenantId>,
    auth: &Authenticated,
) -> Result<TenantId, Problem> {
    let missing = |detail: &str| Problem::invalid(vec![Fault::at("/tenant", "missing", detail)]);
    if let Some(named) = named {
        return Ok(named);
    }
    if auth.caller.admin {
        return platform.ok_or_else(|| missing("the platform has no tenant yet: run `headwater init`"));
    }
    let mut tenants = auth.caller.tenants.keys();
    match (tenants.next(), tenants.next()) {
        (Some(only), None) => Ok(*only),
        (None, _) => Err(missing("you are a member of no tenant: ask an administrator to make you one")),
        _ => Err(missing("you are a member of several tenants: say which one will own the domain")),
    }
}

/// One domain.
#[utoipa::path(get, path = "/api/domains/{d}", tag = "domains",
    params(("d" = String, Path, description = "The domain's name"), MomentParams),
    responses((status = 200, body = Domain)))]
async fn get(
    State(app): State<App>,
    auth: Authenticated,
    DomainPath(name): DomainPath,
    Query(moment): Query<Moment>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let mut found = known(&app, &auth, &name).await?;
    if let Some(revision) = asof::resolve(&app, &found.state, moment).await? {
        found = asof::state(&app, &found, revision).await?.1;
    }
    let revision = found.state.revision;
    // What was seen of it from outside changes no tag.
    let seen = found.checked.as_ref().and_then(|checked| checked.checked_at);
    let is_settled = seen.is_none_or(|seen| Timestamp::from(seen) < found.state.updated_at);
    if unchanged(&app, &headers, found.state.id, revision).await? && is_settled {
        return Ok(conditional::not_modified(revision));
    }
    let platform = domains::platform(&app.pool).await?;
    Ok(conditional::shown(revision, &Domain::new(&found, &platform)))
}

/// Whether the client has this revision of something that the platform has a part in, such as a serial. What the
/// platform did since the revision changes no tag; so that a client never keeps what is no longer so, it gets it whole.
///
/// # Errors
/// 400 and 412 as [`conditional::fresh`], and when the database does not answer.
pub(super) async fn unchanged(
    app: &App,
    headers: &HeaderMap,
    domain: DomainId,
    revision: Revision,
) -> Result<bool, Problem> {
    Ok(conditional::fresh(headers, revision)?
        && domains::is_newer_than_platform(&app.pool, domain, revision).await?)
}

/// Change labels, the external id or the serial's floor (merge patch).
#[utoipa::path(patch, path = "/api/domains/{d}", tag = "domains", params(("d" = String, Path, description = "The domain's name")),
    request_body = PatchDomain, responses((status = 200, body = Receipt), (status = 202, body = Receipt)))]
async fn patch(
    State(app): State<App>,
    DomainPath(name): DomainPath,
    mutation: Mutation<DomainPatch>,
) -> Result<Response, Problem> {
    let command = DomainCommand::Patch(mutation.body.clone());
    Ok(mutation.submit(&app, Command::Domain { name, command }).await?.into_response())
}

/// Delete a domain; it can be restored until `hold_until`.
#[utoipa::path(delete, path = "/api/domains/{d}", tag = "domains", params(("d" = String, Path, description = "The domain's name")),
    responses((status = 200, body = Receipt), (status = 202, body = Receipt)))]
async fn delete(
    State(app): State<App>,
    DomainPath(name): DomainPath,
    mutation: Mutation<NoBody>,
) -> Result<Response, Problem> {
    let command = DomainCommand::Delete;
    Ok(mutation.submit(&app, Command::Domain { name, command }).await?.into_response())
}

/// Undo the deletion of a domain, with everything it held; 409 `replaced` when it was made anew since.
#[utoipa::path(post, path = "/api/domains/{d}/restore", tag = "domains", params(("d" = String, Path, description = "The domain's name")),
    responses((status = 200, body = Receipt), (status = 202, body = Receipt)))]
async fn restore(
    State(app): State<App>,
    DomainPath(name): DomainPath,
    mutation: Mutation<NoBody>,
) -> Result<Response, Problem> {
    let command = DomainCommand::Restore;
    Ok(mutation.submit(&app, Command::Domain { name, command }).await?.into_response())
}

/// How far a domain is deployed.
#[utoipa::path(get, path = "/api/domains/{d}/status", tag = "domains", params(("d" = String, Path, description = "The domain's name")),
    responses((status = 200, body = DomainStatusBody)))]
async fn status(
    State(app): State<App>,
    auth: Authenticated,
    DomainPath(name): DomainPath,
    _: Query<NoQuery>,
) -> Result<Response, Problem> {
    let found = known(&app, &auth, &name).await?;
    let platform = domains::platform(&app.pool).await?;
    let deployed = deployments::everywhere(&app, found.state.id, &found.state.name).await?;
    Ok(axum::Json(DomainStatusBody::new(Domain::new(&found, &platform), deployed)).into_response())
}
