//! Users, and the caller itself.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use headwater_events::actor::{Resource, Verb};
use headwater_events::admin::AdminCommand;
use headwater_events::ids::UserId;
use headwater_events::reject::Fault;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::auth::Authenticated;
use super::dto::account::{Me, NewUser, User};
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
    OpenApiRouter::new().routes(routes!(me)).routes(routes!(list, create)).routes(routes!(get))
}

/// The caller.
#[utoipa::path(get, path = "/api/me", tag = "self", responses((status = 200, body = Me)))]
async fn me(State(app): State<App>, auth: Authenticated, _: Query<NoQuery>) -> Result<Json<Me>, Problem> {
    let user = one(&app, auth.user()).await?;
    Ok(Json(Me::new(user, &auth)))
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
