//! Users: who they are, and whether they may come in.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use headwater_events::actor::{Resource, Verb};
use headwater_events::admin::{AdminCommand, UserPatch};
use headwater_events::ids::UserId;
use headwater_events::reject::Fault;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::auth::Authenticated;
use super::body::NoBody;
use super::dto::Receipt;
use super::dto::account::{NewUser, User};
use super::dto::person::PatchUser;
use super::mutation::{Mutation, Submitted};
use super::page::{Listing, Page, PageParams};
use super::path::IdPath;
use super::query::{NoQuery, Query};
use super::{Problem, answer, page};
use crate::app::App;
use crate::command::{Aside, Command};
use crate::query::accounts::{self, StoredUser, TenantFilter};

/// The routes of this file.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list, create))
        .routes(routes!(get, patch, delete))
        .routes(routes!(enable))
        .routes(routes!(disable))
}

async fn one(app: &App, id: UserId) -> Result<StoredUser, Problem> {
    let found = accounts::user(&app.pool, id).await?;
    found.ok_or_else(|| Problem::not_found(format!("user {id}")))
}

/// Users, oldest first (administrators).
#[utoipa::path(get, path = "/api/users", tag = "users", params(PageParams),
    responses((status = 200, body = Vec<User>, description = "A page: items and next")))]
async fn list(
    State(app): State<App>,
    auth: Authenticated,
    wanted: Listing<NoQuery, Uuid>,
) -> Result<Response, Problem> {
    auth.may(Verb::Read, Resource::Platform, "the list of users")?;
    page::list(wanted, move |after, most| {
        let app = app.clone();
        async move {
            let found = accounts::users(&app.pool, after, most).await?;
            Ok(Page { items: found.into_iter().map(|one| (one.id.as_uuid(), User::from(one))).collect() })
        }
    })
    .await
}

/// Make a user, and a member of a tenant (administrators).
#[utoipa::path(post, path = "/api/users", tag = "users", request_body = NewUser,
    responses((status = 201, body = User)))]
async fn create(State(app): State<App>, mutation: Mutation<NewUser>) -> Result<Response, Problem> {
    let (mutation, new) = mutation.split();
    mutation.auth.may(Verb::Write, Resource::Platform, "users")?;
    if let Some(id) = new.tenant {
        let filter = TenantFilter { id: Some(id), ..TenantFilter::default() };
        if accounts::tenants_page(&app.pool, filter, None, 1).await?.is_empty() {
            let fault = Fault::at("/tenant", "unknown_tenant", format!("there is no tenant {id}"));
            return Err(Problem::invalid(vec![fault]));
        }
    }
    let id = UserId::from_uuid(Uuid::now_v7());
    let aside = Aside::Person { user: id, email: new.email.as_str().to_owned() };
    let command = AdminCommand::CreateUser { id, admin: new.admin };
    let outcome = match mutation.submit(&app, Command::Admin { command, aside }).await? {
        Submitted::Done(outcome) => outcome,
        plan => return Ok(plan.into_response()),
    };
    let user = UserId::from_uuid(outcome.stream);
    if let Some(tenant) = new.tenant {
        // A repetition adds nobody twice.
        mutation
            .submit_also(&app, Command::admin(AdminCommand::AddMember { tenant, user, role: None }))
            .await?;
    }
    let made = one(&app, user).await?;
    Ok(answer::created(&outcome, &format!("/api/users/{user}"), &User::from(made)))
}

/// One user: oneself, or any (administrators).
#[utoipa::path(get, path = "/api/users/{id}", tag = "users", params(("id" = Uuid, Path)),
    responses((status = 200, body = User)))]
async fn get(
    State(app): State<App>,
    auth: Authenticated,
    IdPath(id): IdPath<UserId>,
    _: Query<NoQuery>,
) -> Result<Json<User>, Problem> {
    auth.may(Verb::Read, Resource::User(id), format!("user {id}"))?;
    Ok(Json(one(&app, id).await?.into()))
}

/// Submits a command on a user and answers with what it is then.
async fn changed(
    app: &App,
    mutation: &Mutation<()>,
    id: UserId,
    command: AdminCommand,
    aside: Aside,
) -> Result<Response, Problem> {
    match mutation.submit(app, Command::Admin { command, aside }).await? {
        Submitted::Done(outcome) => Ok(answer::resource(&outcome, &User::from(one(app, id).await?))),
        plan => Ok(plan.into_response()),
    }
}

/// Change a user (administrators). With another password every session of the user ends.
#[utoipa::path(patch, path = "/api/users/{id}", tag = "users", params(("id" = Uuid, Path)),
    request_body = PatchUser, responses((status = 200, body = User)))]
async fn patch(
    State(app): State<App>,
    IdPath(id): IdPath<UserId>,
    mutation: Mutation<PatchUser>,
) -> Result<Response, Problem> {
    let (mutation, asked) = mutation.split();
    mutation.auth.may(Verb::Read, Resource::User(id), format!("user {id}"))?;
    mutation.auth.may(Verb::Write, Resource::Platform, "users")?;
    if let Some(password) = asked.password {
        one(&app, id).await?;
        let verifier = app.passwords.hash(password).await?;
        let aside = Aside::Password { user: id, verifier, keep: None };
        return changed(&app, &mutation, id, AdminCommand::SetPassword { user: id }, aside).await;
    }
    let email = asked.email.map(|email| email.as_str().to_owned());
    let patch = UserPatch { admin: asked.admin, email: email.is_some() };
    let aside = Aside::Profile { user: id, email, name: asked.name };
    changed(&app, &mutation, id, AdminCommand::UpdateUser { user: id, patch }, aside).await
}

/// Erase a user (administrators): its tokens, sessions and streams end, and who it was is forgotten.
#[utoipa::path(delete, path = "/api/users/{id}", tag = "users", params(("id" = Uuid, Path)),
    responses((status = 200, body = Receipt)))]
async fn delete(
    State(app): State<App>,
    IdPath(id): IdPath<UserId>,
    mutation: Mutation<NoBody>,
) -> Result<Response, Problem> {
    let (mutation, NoBody) = mutation.split();
    mutation.auth.may(Verb::Read, Resource::User(id), format!("user {id}"))?;
    let (command, aside) = (AdminCommand::DeleteUser { user: id }, Aside::UserGone { user: id });
    Ok(mutation.submit(&app, Command::Admin { command, aside }).await?.into_response())
}

/// Let a user in again (administrators).
#[utoipa::path(post, path = "/api/users/{id}/enable", tag = "users", params(("id" = Uuid, Path)),
    responses((status = 200, body = User)))]
async fn enable(
    State(app): State<App>,
    IdPath(id): IdPath<UserId>,
    mutation: Mutation<NoBody>,
) -> Result<Response, Problem> {
    let (mutation, NoBody) = mutation.split();
    mutation.auth.may(Verb::Read, Resource::User(id), format!("user {id}"))?;
    let command = AdminCommand::SetUserEnabled { user: id, enabled: true };
    changed(&app, &mutation, id, command, Aside::Nothing).await
}

/// Keep a user out (administrators): its sessions and streams end at once, and its tokens are refused.
#[utoipa::path(post, path = "/api/users/{id}/disable", tag = "users", params(("id" = Uuid, Path)),
    responses((status = 200, body = User)))]
async fn disable(
    State(app): State<App>,
    IdPath(id): IdPath<UserId>,
    mutation: Mutation<NoBody>,
) -> Result<Response, Problem> {
    let (mutation, NoBody) = mutation.split();
    mutation.auth.may(Verb::Read, Resource::User(id), format!("user {id}"))?;
    let command = AdminCommand::SetUserEnabled { user: id, enabled: false };
    changed(&app, &mutation, id, command, Aside::UserOut { user: id }).await
}
