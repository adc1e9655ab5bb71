//! Tenants and their members.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use headwater_events::actor::{Resource, Verb};
use headwater_events::admin::{AdminCommand, TenantPatch};
use headwater_events::ids::{TenantId, UserId};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::auth::Authenticated;
use super::body::NoBody;
use super::dto::Receipt;
use super::dto::account::{Member, NewTenant, PutMember, Tenant};
use super::dto::person::PatchTenant;
use super::mutation::{Mutation, Submitted};
use super::page::{Listing, Page, PageParams};
use super::path::{IdPath, PairPath};
use super::query::{NoQuery, Query};
use super::{Problem, answer, page};
use crate::app::App;
use crate::command::{Aside, Command};
use crate::query::accounts::{self, StoredMember, StoredTenant, TenantFilter};
use crate::vault::data;

/// The routes of this file.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list, create))
        .routes(routes!(get, patch, delete))
        .routes(routes!(members))
        .routes(routes!(member, add, remove))
}

/// Tenants, oldest first (administrators).
#[utoipa::path(get, path = "/api/tenants", tag = "tenants", params(PageParams),
    responses((status = 200, body = Vec<Tenant>, description = "A page: items and next")))]
async fn list(
    State(app): State<App>,
    auth: Authenticated,
    wanted: Listing<NoQuery, Uuid>,
) -> Result<Response, Problem> {
    auth.may(Verb::Read, Resource::Platform, "the list of tenants")?;
    page::list(wanted, move |after, most| {
        let app = app.clone();
        async move {
            let found = accounts::tenants_page(&app.pool, TenantFilter::default(), after, most).await?;
            Ok(Page { items: found.into_iter().map(|one| (one.id.as_uuid(), Tenant::from(one))).collect() })
        }
    })
    .await
}

/// Make a tenant (administrators).
#[utoipa::path(post, path = "/api/tenants", tag = "tenants", request_body = NewTenant,
    responses((status = 201, body = Tenant)))]
async fn create(State(app): State<App>, mutation: Mutation<NewTenant>) -> Result<Response, Problem> {
    let (mutation, new) = mutation.split();
    let command = AdminCommand::CreateTenant {
        id: TenantId::from_uuid(Uuid::now_v7()),
        name: new.name,
        labels: new.labels,
        external_id: new.external_id,
    };
    let outcome = match mutation.submit(&app, Command::admin(command)).await? {
        Submitted::Done(outcome) => outcome,
        plan => return Ok(plan.into_response()),
    };
    let made = one(&app, TenantId::from_uuid(outcome.stream)).await?;
    Ok(answer::created(&outcome, &format!("/api/tenants/{}", outcome.stream), &Tenant::from(made)))
}

async fn one(app: &App, id: TenantId) -> Result<StoredTenant, Problem> {
    let filter = TenantFilter { id: Some(id), ..TenantFilter::default() };
    let found = accounts::tenants_page(&app.pool, filter, None, 1).await?.pop();
    found.ok_or_else(|| Problem::not_found(format!("tenant {id}")))
}

/// A tenant that the caller may read, or administrate.
async fn visible(app: &App, auth: &Authenticated, id: TenantId, verb: Verb) -> Result<StoredTenant, Problem> {
    auth.may(verb, Resource::Tenant(id), format!("tenant {id}"))?;
    one(app, id).await
}

/// One tenant.
#[utoipa::path(get, path = "/api/tenants/{id}", tag = "tenants", params(("id" = Uuid, Path)),
    responses((status = 200, body = Tenant)))]
async fn get(
    State(app): State<App>,
    auth: Authenticated,
    IdPath(id): IdPath<TenantId>,
    _: Query<NoQuery>,
) -> Result<Json<Tenant>, Problem> {
    Ok(Json(visible(&app, &auth, id, Verb::Read).await?.into()))
}

/// Rename a tenant, or change its labels or external id (administrators).
#[utoipa::path(patch, path = "/api/tenants/{id}", tag = "tenants", params(("id" = Uuid, Path)),
    request_body = PatchTenant, responses((status = 200, body = Tenant)))]
async fn patch(
    State(app): State<App>,
    IdPath(id): IdPath<TenantId>,
    mutation: Mutation<TenantPatch>,
) -> Result<Response, Problem> {
    let (mutation, patch) = mutation.split();
    visible(&app, &mutation.auth, id, Verb::Write).await?;
    let aside = match &patch.name {
        Some(name) => Aside::TenantRenamed { tenant: id, name: name.clone() },
        None => Aside::Nothing,
    };
    let command = AdminCommand::UpdateTenant { tenant: id, patch };
    match mutation.submit(&app, Command::Admin { command, aside }).await? {
        Submitted::Done(outcome) => Ok(answer::resource(&outcome, &Tenant::from(one(&app, id).await?))),
        plan => Ok(plan.into_response()),
    }
}

/// Remove a tenant that owns no domain (administrators). Its memberships end.
#[utoipa::path(delete, path = "/api/tenants/{id}", tag = "tenants", params(("id" = Uuid, Path)),
    responses((status = 200, body = Receipt)))]
async fn delete(
    State(app): State<App>,
    IdPath(id): IdPath<TenantId>,
    mutation: Mutation<NoBody>,
) -> Result<Response, Problem> {
    mutation.auth.may(Verb::Write, Resource::Tenant(id), format!("tenant {id}"))?;
    let (command, aside) = (AdminCommand::DeleteTenant { tenant: id }, Aside::TenantGone { tenant: id });
    let submitted = mutation.submit(&app, Command::Admin { command, aside }).await?;
    // What is not done here is done by the next look: a tenant that is gone never comes back.
    if let Err(error) = data::erase(&app.pool).await {
        tracing::warn!(%error, "the data key of a tenant that was deleted is removed later");
    }
    Ok(submitted.into_response())
}

/// Members of a tenant.
#[utoipa::path(get, path = "/api/tenants/{id}/members", tag = "tenants", params(("id" = Uuid, Path), PageParams),
    responses((status = 200, body = Vec<Member>, description = "A page: items and next")))]
async fn members(
    State(app): State<App>,
    auth: Authenticated,
    IdPath(id): IdPath<TenantId>,
    wanted: Listing<NoQuery, Uuid>,
) -> Result<Response, Problem> {
    visible(&app, &auth, id, Verb::Read).await?;
    page::list(wanted, move |after, most| {
        let app = app.clone();
        async move {
            let found = accounts::members(&app.pool, id, None, after, most).await?;
            let item = |one: StoredMember| (one.user.as_uuid(), Member::new(id, one));
            Ok(Page { items: found.into_iter().map(item).collect() })
        }
    })
    .await
}

async fn membership(app: &App, tenant: TenantId, user: UserId) -> Result<Member, Problem> {
    let found = accounts::members(&app.pool, tenant, Some(user), None, 1).await?.pop();
    let found = found.ok_or_else(|| Problem::not_found(format!("member {user} of tenant {tenant}")))?;
    Ok(Member::new(tenant, found))
}

/// One member of a tenant.
#[utoipa::path(get, path = "/api/tenants/{id}/members/{user}", tag = "tenants",
    params(("id" = Uuid, Path), ("user" = Uuid, Path)), responses((status = 200, body = Member)))]
async fn member(
    State(app): State<App>,
    auth: Authenticated,
    PairPath(tenant, user): PairPath<TenantId, UserId>,
    _: Query<NoQuery>,
) -> Result<Json<Member>, Problem> {
    visible(&app, &auth, tenant, Verb::Read).await?;
    Ok(Json(membership(&app, tenant, user).await?))
}

/// Make a user a member of a tenant, or give a member another role (owners of it). Without a role a member keeps its own,
/// and a new one is an owner.
#[utoipa::path(put, path = "/api/tenants/{id}/members/{user}", tag = "tenants", request_body = PutMember,
    params(("id" = Uuid, Path), ("user" = Uuid, Path)), responses((status = 200, body = Member)))]
async fn add(
    State(app): State<App>,
    PairPath(tenant, user): PairPath<TenantId, UserId>,
    mutation: Mutation<PutMember>,
) -> Result<Response, Problem> {
    visible(&app, &mutation.auth, tenant, Verb::Manage).await?;
    let role = mutation.body.role;
    let command = Command::admin(AdminCommand::AddMember { tenant, user, role });
    match mutation.submit(&app, command).await? {
        Submitted::Done(outcome) => Ok(answer::resource(&outcome, &membership(&app, tenant, user).await?)),
        plan => Ok(plan.into_response()),
    }
}

/// End a membership (owners of the tenant).
#[utoipa::path(delete, path = "/api/tenants/{id}/members/{user}", tag = "tenants",
    params(("id" = Uuid, Path), ("user" = Uuid, Path)), responses((status = 200, body = Receipt)))]
async fn remove(
    State(app): State<App>,
    PairPath(tenant, user): PairPath<TenantId, UserId>,
    mutation: Mutation<NoBody>,
) -> Result<Response, Problem> {
    visible(&app, &mutation.auth, tenant, Verb::Manage).await?;
    if !mutation.has_key() {
        membership(&app, tenant, user).await?;
    }
    let command = Command::admin(AdminCommand::RemoveMember { tenant, user });
    Ok(mutation.submit(&app, command).await?.into_response())
}
