//! The caller itself: who it is, what it is called, its password.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use headwater_events::admin::{AdminCommand, UserPatch};
use headwater_events::ids::UserId;
use headwater_events::reject::Fault;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::take_try;
use crate::app::App;
use crate::command::{Aside, Command};
use crate::http::auth::{Authenticated, Identity};
use crate::http::dto::Receipt;
use crate::http::dto::account::Me;
use crate::http::dto::person::{MePatch, PasswordChange};
use crate::http::mutation::{Mutation, Submitted};
use crate::http::query::{NoQuery, Query};
use crate::http::{Problem, answer};
use crate::people::seen::{Entry, Kind};
use crate::people::session;
use crate::query::accounts::{self, StoredUser};

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(me, patch)).routes(routes!(password))
}

async fn one(app: &App, id: UserId) -> Result<StoredUser, Problem> {
    let found = accounts::user(&app.pool, id).await?;
    found.ok_or_else(|| Problem::not_found(format!("user {id}")))
}

/// The caller. Of a session also the token that its unsafe requests show.
#[utoipa::path(get, path = "/api/me", tag = "self", responses((status = 200, body = Me)))]
async fn me(State(app): State<App>, auth: Authenticated, _: Query<NoQuery>) -> Result<Json<Me>, Problem> {
    let user = one(&app, auth.user()).await?;
    Ok(Json(Me::new(user, &auth)))
}

/// Say what one is called.
#[utoipa::path(patch, path = "/api/me", tag = "self", request_body = MePatch,
    responses((status = 200, body = Me)))]
async fn patch(State(app): State<App>, mutation: Mutation<MePatch>) -> Result<Response, Problem> {
    let (mutation, asked) = mutation.split();
    let user = mutation.auth.user();
    let aside = Aside::Profile { user, email: None, name: asked.name };
    let command = AdminCommand::UpdateUser { user, patch: UserPatch::default() };
    match mutation.submit(&app, Command::Admin { command, aside }).await? {
        Submitted::Done(outcome) => {
            Ok(answer::resource(&outcome, &Me::new(one(&app, user).await?, &mutation.auth)))
        }
        plan => Ok(plan.into_response()),
    }
}

/// Change one's password. Every other session of the user ends.
#[utoipa::path(put, path = "/api/me/password", tag = "self", request_body = PasswordChange,
    responses((status = 200, body = Receipt)))]
async fn password(
    State(app): State<App>,
    Extension(identity): Extension<Identity>,
    mutation: Mutation<PasswordChange>,
) -> Result<Response, Response> {
    let (mutation, asked) = mutation.split();
    let user = mutation.auth.user();
    let client = mutation.meta().client;
    let address = client.as_ref().map(|client| client.ip.clone()).unwrap_or_default();
    take_try(&app, &address, &user.to_string()).await?;
    let done = async {
        let Some(known) = session::verifier_of(&app.pool, user).await? else {
            let detail = "you have no password yet: an administrator gives you the first one";
            return Err(Problem::new(axum::http::StatusCode::CONFLICT, "no_password", detail));
        };
        let mut is_right = app.passwords.verify(asked.current, Some(known.clone())).await?;
        // A repetition shows the password that was changed then: what it asks for is there already.
        if !is_right && mutation.has_key() {
            is_right = app.passwords.verify(asked.new.clone(), Some(known)).await?;
        }
        if !is_right {
            let (ip, agent) = client.map(|client| (client.ip, client.agent)).unzip();
            let route = Some("PUT /api/me/password".to_owned());
            identity.note(Entry { kind: Kind::LoginFailed, user: Some(user), token: None, ip, agent, route });
            let fault = Fault::at("/current", "wrong_password", "this is not your password");
            return Err(Problem::invalid(vec![fault]));
        }
        let verifier = app.passwords.hash(asked.new).await?;
        let keep = mutation.auth.session.as_ref().map(|open| open.id.0);
        let aside = Aside::Password { user, verifier, keep };
        let command = Command::Admin { command: AdminCommand::SetPassword { user }, aside };
        Ok(mutation.submit(&app, command).await?.into_response())
    };
    done.await.map_err(IntoResponse::into_response)
}
