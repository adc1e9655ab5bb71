//! Tokens: one's own, everybody's (administrators), and revoking one by showing it.

use axum::Extension;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use headwater_events::actor::{Resource, Verb};
use headwater_events::admin::{AdminCommand, TOKEN_NAME_MAX_BYTES, name_faults};
use headwater_events::event::Event;
use headwater_events::ids::{Revision, StreamRef, TokenId, UserId};
use headwater_events::manager::Managing;
use headwater_events::reject::Fault;
use std::collections::BTreeSet;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::auth::{self, Authenticated, Identity};
use super::body::{self, NoBody};
use super::dto::Receipt;
use super::dto::account::{CreatedToken, NewToken, OfUser, ShownToken, Token};
use super::mutation::{self, Mutation, Submitted};
use super::page::{Listing, Page, PageParams};
use super::path::IdPath;
use super::query::{FromQuery, NoQuery, Pairs, Query};
use super::{Problem, answer, page};
use crate::app::App;
use crate::command::{Aside, Command, Outcome};
use crate::query::accounts::{self, StoredToken, TokenFilter};
use crate::token;

/// The routes of this file that need a caller.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(mine, create))
        .routes(routes!(delete_mine))
        .routes(routes!(list))
        .routes(routes!(delete))
}

/// The route that needs none.
pub fn open() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(revoke))
}

/// Which tokens are wanted.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
#[allow(dead_code)] // the documentation of what `OfUser` reads
struct TokenListParams {
    /// Whose.
    user: Option<Uuid>,
}

impl FromQuery for OfUser {
    fn read(pairs: &mut Pairs) -> Self {
        Self(pairs.id("user"))
    }
}

/// `?dry_run=true` of a mutation without a caller.
struct DryRun(bool);

impl FromQuery for DryRun {
    fn read(pairs: &mut Pairs) -> Self {
        Self(pairs.flag("dry_run"))
    }
}

async fn tokens_of<F>(app: App, user: Option<UserId>, wanted: Listing<F, Uuid>) -> Result<Response, Problem> {
    page::list(wanted, move |after, most| {
        let app = app.clone();
        async move {
            let filter = TokenFilter { user, id: None };
            let found = accounts::tokens(&app.pool, filter, after, most).await?;
            Ok(Page { items: found.into_iter().map(|one| (one.id.as_uuid(), Token::from(one))).collect() })
        }
    })
    .await
}

/// The caller's tokens.
#[utoipa::path(get, path = "/api/me/tokens", tag = "self", params(PageParams),
    responses((status = 200, body = Vec<Token>, description = "A page: items and next")))]
async fn mine(
    State(app): State<App>,
    auth: Authenticated,
    wanted: Listing<NoQuery, Uuid>,
) -> Result<Response, Problem> {
    tokens_of(app, Some(auth.user()), wanted).await
}

/// Make a token for oneself; it is shown once.
#[utoipa::path(post, path = "/api/me/tokens", tag = "self", request_body = NewToken,
    responses((status = 201, body = CreatedToken)))]
async fn create(
    State(app): State<App>,
    Extension(identity): Extension<Identity>,
    mutation: Mutation<NewToken>,
) -> Result<Response, Problem> {
    let (mutation, new) = mutation.split();
    if new.expires_at.is_some_and(|at| at <= app.clock.now()) {
        let mut faults = name_faults(&new.name, TOKEN_NAME_MAX_BYTES);
        faults.push(Fault::at("/expires_at", "in_the_past", "the token would never work"));
        return Err(Problem::invalid(faults));
    }
    let (user, token) = (mutation.auth.user(), TokenId::from_uuid(Uuid::now_v7()));
    let secret = token::generate();
    let internal = || Problem::unavailable("a token could not be made: try again");
    let plain = token::hash(secret.expose()).ok_or_else(internal)?;
    let (hash, limits) = (identity.keys().stored(plain.bytes()), new.limits());
    let command = AdminCommand::CreateToken {
        user,
        token,
        name: new.name,
        expires_at: new.expires_at,
        scopes: new.scopes,
        limits,
        managing: Managing { manager: new.manager, view: new.view },
    };
    let aside = Aside::TokenSecret { token, user, hash };
    let outcome = match mutation.submit(&app, Command::Admin { command, aside }).await? {
        Submitted::Done(outcome) => outcome,
        plan => return Ok(plan.into_response()),
    };
    // A replay answers for the token that was made then; its secret is gone.
    let (made, shown) =
        if outcome.replayed { (earlier(&app, &outcome).await?, None) } else { (token, Some(&secret)) };
    let stored = one(&app, made).await?;
    Ok(answer::created(&outcome, &format!("/api/me/tokens/{made}"), &CreatedToken::new(stored, shown)))
}

async fn earlier(app: &App, outcome: &Outcome) -> Result<TokenId, Problem> {
    let stream = StreamRef::user(UserId::from_uuid(outcome.stream));
    let before = Revision::new(outcome.revision.get() - 1);
    let events = app.log.stream(stream, before, outcome.revision, 1).await?;
    let made = events.first().and_then(|event| match event.decode() {
        Ok(Event::TokenCreated(created)) => Some(created.token),
        _ => None,
    });
    made.ok_or_else(|| Problem::not_found("the token that was made"))
}

async fn one(app: &App, id: TokenId) -> Result<StoredToken, Problem> {
    let filter = TokenFilter { id: Some(id), user: None };
    let found = accounts::tokens(&app.pool, filter, None, 1).await?.pop();
    found.ok_or_else(|| Problem::not_found(format!("token {id}")))
}

/// Revoke one of the caller's tokens.
#[utoipa::path(delete, path = "/api/me/tokens/{id}", tag = "self", params(("id" = Uuid, Path)),
    responses((status = 200, body = Receipt)))]
async fn delete_mine(
    State(app): State<App>,
    IdPath(token): IdPath<TokenId>,
    mutation: Mutation<NoBody>,
) -> Result<Response, Problem> {
    let user = mutation.auth.user();
    let command = AdminCommand::RevokeToken { user, token, possessed: false };
    Ok(mutation.submit(&app, Command::admin(command)).await?.into_response())
}

/// Everybody's tokens (administrators).
#[utoipa::path(get, path = "/api/tokens", tag = "tokens", params(TokenListParams, PageParams),
    responses((status = 200, body = Vec<Token>, description = "A page: items and next")))]
async fn list(
    State(app): State<App>,
    auth: Authenticated,
    wanted: Listing<OfUser, Uuid>,
) -> Result<Response, Problem> {
    auth.may(Verb::Read, Resource::Platform, "the list of tokens")?;
    let OfUser(user) = wanted.filter;
    tokens_of(app, user, wanted).await
}

/// Revoke a token: one's own, or any (administrators).
#[utoipa::path(delete, path = "/api/tokens/{id}", tag = "tokens", params(("id" = Uuid, Path)),
    responses((status = 200, body = Receipt)))]
async fn delete(
    State(app): State<App>,
    IdPath(token): IdPath<TokenId>,
    mutation: Mutation<NoBody>,
) -> Result<Response, Problem> {
    let user = one(&app, token).await?.user;
    mutation.auth.may(Verb::Write, Resource::User(user), format!("token {token}"))?;
    let command = AdminCommand::RevokeToken { user, token, possessed: false };
    Ok(mutation.submit(&app, Command::admin(command)).await?.into_response())
}

/// Revoke a token by showing it: whoever has it may end it.
#[utoipa::path(post, path = "/api/tokens/revoke", tag = "tokens", request_body = ShownToken,
    responses((status = 200, body = Receipt)))]
async fn revoke(
    State(app): State<App>,
    Extension(identity): Extension<Identity>,
    Query(DryRun(dry_run)): Query<DryRun>,
    request: Request,
) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    let meta = mutation::meta(&parts, BTreeSet::new())?;
    let sent = body::json(&parts.headers, body, body::BODY_MAX_BYTES).await?;
    let shown = body::read::<ShownToken>(sent)?;
    let missing = || Problem::not_found("this token");
    let hash = token::hash(shown.token.expose()).ok_or_else(missing)?;
    let candidates = identity.keys().candidates(hash.bytes());
    let holder = accounts::holder(&app.pool, &candidates, &[]).await?.ok_or_else(missing)?;
    let (user, token) = (holder.user, holder.token.ok_or_else(missing)?);
    let command = AdminCommand::RevokeToken { user, token, possessed: true };
    let caller = auth::possessor(user, token);
    if dry_run {
        return Ok(
            Submitted::Plan(app.commit.plan(caller, Command::admin(command), meta).await?).into_response()
        );
    }
    let outcome = app.commit.submit(caller, Command::admin(command), meta).await;
    identity.forget();
    Ok(answer::receipt(&outcome?))
}
