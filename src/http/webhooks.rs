//! Webhooks: receivers of events, whose owner is a tenant or the platform itself.
//!
//! What must hold: a secret is sealed before it is queued, and shown in the answer that made it alone.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use headwater_events::actor::{self, Caller, Resource, Verb};
use headwater_events::admin::AdminCommand;
use headwater_events::ids::{EventId, Revision, StreamRef, TenantId, WebhookId};
use headwater_events::reject::Fault;
use headwater_events::time::Timestamp;
use headwater_events::webhook::{WebhookCommand, WebhookCreated, settings_faults};
use std::time::Duration;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::auth::Authenticated;
use super::body::NoBody;
use super::dto::Receipt;
use super::dto::webhook::{
    Delivery, NewWebhook, PatchWebhook, Replay, Webhook, WebhookChange, WebhookWithSecret,
};
use super::mutation::{Mutation, Submitted};
use super::page::{Listing, Page, PageParams};
use super::path::IdPath;
use super::query::{FromQuery, NoQuery, Pairs, Query};
use super::{Problem, answer, page};
use crate::app::App;
use crate::command::{Aside, Command};
use crate::edge::EdgeError;
use crate::query::domains;
use crate::query::webhooks::{self, StoredWebhook, WebhookFilter};
use crate::secret::Secret;
use crate::vault::VaultError;
use crate::webhook::guard::Rules;
use crate::webhook::{draw, sign};

/// How long the secret before counts beside a new one.
pub const ROTATION: Duration = Duration::from_secs(24 * 3_600);
/// How often a secret is sealed anew because somebody else gave the webhook another one meanwhile.
const SEAL_MAX_TRIES: usize = 5;
/// The code of a secret whose turn another one took.
const MOVED: &str = "secret_moved";

/// The routes of this file.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list, create))
        .routes(routes!(get, patch, delete))
        .routes(routes!(deliveries))
        .routes(routes!(replay))
}

/// Which webhooks are wanted.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
#[allow(dead_code)] // the documentation of what `OfTenant` reads
struct WebhookListParams {
    /// Those of this tenant.
    tenant: Option<Uuid>,
}

/// Whose webhooks are wanted.
#[derive(Debug, Clone, Copy)]
struct OfTenant(Option<TenantId>);

impl FromQuery for OfTenant {
    fn read(pairs: &mut Pairs) -> Self {
        Self(pairs.id("tenant"))
    }
}

fn resource(owner: Option<TenantId>) -> Resource<'static> {
    owner.map_or(Resource::Platform, Resource::Tenant)
}

/// The tenants whose webhooks a caller may read; none: all, and the platform's own.
fn readable(caller: &Caller) -> Option<Vec<TenantId>> {
    let may = |resource| actor::decide(caller, Verb::Read, resource).is_granted();
    if may(Resource::Platform) {
        return None;
    }
    Some(caller.tenants.keys().copied().filter(|tenant| may(Resource::Tenant(*tenant))).collect())
}

/// Webhooks, oldest first.
#[utoipa::path(get, path = "/api/webhooks", tag = "webhooks", params(WebhookListParams, PageParams),
    responses((status = 200, body = Vec<Webhook>, description = "A page: items and next")))]
async fn list(
    State(app): State<App>,
    auth: Authenticated,
    wanted: Listing<OfTenant, Uuid>,
) -> Result<Response, Problem> {
    let OfTenant(tenant) = wanted.filter;
    let filter = WebhookFilter { id: None, scope: readable(&auth.caller), tenant };
    page::list(wanted, move |after, most| {
        let (app, filter) = (app.clone(), filter.clone());
        async move {
            let found = webhooks::page(&app.pool, &filter, after, most).await?;
            let now = app.clock.now();
            let item = |one: StoredWebhook| (one.id.as_uuid(), Webhook::new(one, now));
            Ok(Page { items: found.into_iter().map(item).collect() })
        }
    })
    .await
}

/// Make a webhook (owners of the tenant; administrators also for the platform). Its secret is shown now and never again.
#[utoipa::path(post, path = "/api/webhooks", tag = "webhooks", request_body = NewWebhook,
    responses((status = 201, body = WebhookWithSecret)))]
async fn create(State(app): State<App>, mutation: Mutation<NewWebhook>) -> Result<Response, Problem> {
    let (mutation, new) = mutation.split();
    let owner = owner(&app, &mutation.auth, &new).await?;
    // Whoever may not do it is told that alone.
    let what = owner.map_or("the platform".to_owned(), |tenant| format!("tenant {tenant}"));
    mutation.auth.may(manage(owner), resource(owner), what)?;
    let enabled = new.enabled;
    let mut settings = new.settings();
    let read = Rules::of(&app.config).read(&settings.url);
    let mut faults = settings_faults(&settings);
    match read {
        Ok(url) => settings.url = url.into(),
        Err((code, detail)) => faults.push(Fault::at("/url", code, detail)),
    }
    if !faults.is_empty() {
        return Err(Problem::invalid(faults));
    }
    let webhook = WebhookId::from_uuid(Uuid::now_v7());
    let (secret, sealed) = draw(&app, owner, webhook, 1).await.map_err(|error| match (error, owner) {
        // Nothing is sealed for a tenant that is not there.
        (VaultError::Gone, Some(tenant)) => Problem::not_found(format!("tenant {tenant}")),
        (error, _) => EdgeError::from(error).into(),
    })?;
    let command = WebhookCommand::Create(WebhookCreated { settings, enabled });
    let command = AdminCommand::Webhook { webhook, owner, command };
    let aside = Aside::WebhookSecret { webhook, version: 1, sealed };
    let outcome = match mutation.submit(&app, Command::Admin { command, aside }).await? {
        Submitted::Done(outcome) => outcome,
        plan => return Ok(plan.into_response()),
    };
    // A replay answers for the webhook that was made then; its secret is gone.
    let made = WebhookId::from_uuid(outcome.stream);
    let shown = Some(&secret).filter(|_| !outcome.replayed);
    let body = WebhookWithSecret::new(Webhook::new(one(&app, made).await?, app.clock.now()), shown);
    Ok(answer::created(&outcome, &format!("/api/webhooks/{made}"), &body))
}

/// What is asked of whoever manages the webhooks of an owner.
fn manage(owner: Option<TenantId>) -> Verb {
    if owner.is_some() { Verb::Manage } else { Verb::Write }
}

/// Whose a new webhook is: who was named, else the caller's only tenant, else the administrators' own.
async fn owner(app: &App, auth: &Authenticated, new: &NewWebhook) -> Result<Option<TenantId>, Problem> {
    let missing = |detail: &str| Problem::invalid(vec![Fault::at("/tenant", "missing", detail)]);
    if new.platform || new.tenant.is_some() {
        return Ok(new.tenant);
    }
    if auth.caller.admin {
        let platform = domains::platform(&app.pool).await?.tenant;
        let none = || missing("the platform has no tenant yet: run `headwater init`");
        return platform.map(Some).ok_or_else(none);
    }
    let mut tenants = auth.caller.tenants.keys();
    match (tenants.next(), tenants.next()) {
        (Some(only), None) => Ok(Some(*only)),
        (None, _) => Err(missing("you are a member of no tenant: ask an administrator to make you one")),
        _ => Err(missing("you are a member of several tenants: say whose it is")),
    }
}

async fn one(app: &App, id: WebhookId) -> Result<StoredWebhook, Problem> {
    webhooks::one(&app.pool, id).await?.ok_or_else(|| Problem::not_found(format!("webhook {id}")))
}

/// A webhook of an owner with whom the caller may do this.
async fn visible(
    app: &App,
    auth: &Authenticated,
    id: WebhookId,
    changes: bool,
) -> Result<StoredWebhook, Problem> {
    let found = one(app, id).await?;
    let verb = if changes { manage(found.owner) } else { Verb::Read };
    // Of the platform's own nobody else knows.
    if found.owner.is_none() && !auth.caller.admin {
        return Err(Problem::not_found(format!("webhook {id}")));
    }
    auth.may(verb, resource(found.owner), format!("webhook {id}"))?;
    Ok(found)
}

/// One webhook, and how far it has got.
#[utoipa::path(get, path = "/api/webhooks/{id}", tag = "webhooks", params(("id" = Uuid, Path)),
    responses((status = 200, body = Webhook)))]
async fn get(
    State(app): State<App>,
    auth: Authenticated,
    IdPath(id): IdPath<WebhookId>,
    _: Query<NoQuery>,
) -> Result<Json<Webhook>, Problem> {
    let found = visible(&app, &auth, id, false).await?;
    Ok(Json(Webhook::new(found, app.clock.now())))
}

/// Change a webhook (merge patch), enable or disable it, or give it another secret.
#[utoipa::path(patch, path = "/api/webhooks/{id}", tag = "webhooks", params(("id" = Uuid, Path)),
    request_body = PatchWebhook, responses((status = 200, body = WebhookWithSecret)))]
async fn patch(
    State(app): State<App>,
    IdPath(id): IdPath<WebhookId>,
    mutation: Mutation<WebhookChange>,
) -> Result<Response, Problem> {
    let (mutation, change) = mutation.split();
    let found = visible(&app, &mutation.auth, id, true).await?;
    let (submitted, secret) = match change {
        WebhookChange::RotateSecret => rotate(&app, &mutation, id, found).await?,
        WebhookChange::Patch(mut patch) => {
            if let Some(url) = &mut patch.url {
                let read = Rules::of(&app.config).read(url);
                let fault = |(code, detail)| Problem::invalid(vec![Fault::at("/url", code, detail)]);
                *url = read.map_err(fault)?.into();
            }
            let command = WebhookCommand::Update(*patch);
            let command = AdminCommand::Webhook { webhook: id, owner: found.owner, command };
            (mutation.submit(&app, Command::admin(command)).await?, None)
        }
    };
    match submitted {
        Submitted::Done(outcome) => {
            let shown = secret.as_ref().filter(|_| !outcome.replayed);
            let known = Webhook::new(one(&app, id).await?, app.clock.now());
            Ok(answer::resource(&outcome, &WebhookWithSecret::new(known, shown)))
        }
        plan => Ok(plan.into_response()),
    }
}

/// Seals a new secret for the version that would come now. Where another one came first, the decision says so.
async fn rotate(
    app: &App,
    mutation: &Mutation<()>,
    id: WebhookId,
    mut found: StoredWebhook,
) -> Result<(Submitted, Option<Secret>), Problem> {
    let mut tries = 1;
    loop {
        let version = found.secret_version.saturating_add(1);
        let (secret, sealed) = draw(app, found.owner, id, version).await.map_err(EdgeError::from)?;
        let until = i64::try_from(ROTATION.as_millis()).unwrap_or(0);
        let until = Timestamp::from_millis(app.clock.now().as_millis().saturating_add(until));
        let command = WebhookCommand::RotateSecret { version, until };
        let command = AdminCommand::Webhook { webhook: id, owner: found.owner, command };
        let aside = Aside::WebhookSecret { webhook: id, version, sealed };
        match mutation.submit(app, Command::Admin { command, aside }).await {
            Err(problem) if problem.code() == MOVED && tries < SEAL_MAX_TRIES => tries += 1,
            other => return Ok((other?, Some(secret))),
        }
        found = one(app, id).await?;
    }
}

/// Delete a webhook: its secrets and what is known of its deliveries go with it.
#[utoipa::path(delete, path = "/api/webhooks/{id}", tag = "webhooks", params(("id" = Uuid, Path)),
    responses((status = 200, body = Receipt)))]
async fn delete(
    State(app): State<App>,
    IdPath(id): IdPath<WebhookId>,
    mutation: Mutation<NoBody>,
) -> Result<Response, Problem> {
    let owner = match visible(&app, &mutation.auth, id, true).await {
        Ok(found) => found.owner,
        // It may be a repetition: then it is gone, and the first answer is there.
        Err(problem) if mutation.has_key() => former_owner(&app, &mutation.auth, id, problem).await?,
        Err(problem) => return Err(problem),
    };
    let command = AdminCommand::Webhook { webhook: id, owner, command: WebhookCommand::Delete };
    Ok(mutation.submit(&app, Command::admin(command)).await?.into_response())
}

/// Whose a webhook was, for whoever may know of it.
async fn former_owner(
    app: &App,
    auth: &Authenticated,
    id: WebhookId,
    missing: Problem,
) -> Result<Option<TenantId>, Problem> {
    let events = app.log.stream(StreamRef::webhook(id), Revision::ZERO, Revision::new(1), 1).await?;
    let Some(first) = events.first() else { return Err(missing) };
    let owner = first.tenant;
    if !actor::decide(&auth.caller, manage(owner), resource(owner)).is_granted() {
        return Err(missing);
    }
    Ok(owner)
}

/// What became of what was sent, newest first. It is kept for 30 days, and 10,000 of a webhook.
#[utoipa::path(get, path = "/api/webhooks/{id}/deliveries", tag = "webhooks",
    params(("id" = Uuid, Path), PageParams),
    responses((status = 200, body = Vec<Delivery>, description = "A page: items and next")))]
async fn deliveries(
    State(app): State<App>,
    auth: Authenticated,
    IdPath(id): IdPath<WebhookId>,
    wanted: Listing<NoQuery, i64>,
) -> Result<Response, Problem> {
    visible(&app, &auth, id, false).await?;
    page::list(wanted, move |before, most| {
        let app = app.clone();
        async move {
            let found = webhooks::deliveries(&app.pool, id, before, most).await?;
            let item = |one: webhooks::StoredDelivery| {
                let message = sign::message_id(EventId::from_uuid(one.event), id);
                (one.id, Delivery::new(one, message))
            };
            Ok(Page { items: found.into_iter().map(item).collect() })
        }
    })
    .await
}

/// Send again what stands after a position, up to 100,000 events of the owner, in their order; what was under way is left.
/// Receivers recognize a repetition by its `webhook-id`.
#[utoipa::path(post, path = "/api/webhooks/{id}/replay", tag = "webhooks", params(("id" = Uuid, Path)),
    request_body = Replay, responses((status = 200, body = Receipt)))]
async fn replay(
    State(app): State<App>,
    IdPath(id): IdPath<WebhookId>,
    mutation: Mutation<Replay>,
) -> Result<Response, Problem> {
    let (mutation, Replay { after }) = mutation.split();
    let owner = visible(&app, &mutation.auth, id, true).await?.owner;
    if let Some(named) = &after.log
        && *named != app.log.meta().await?.log.short()
    {
        let detail = "this is the id of an event of another log: a restored log has new ones";
        return Err(Problem::invalid(vec![Fault::at("/after", "other_log", detail)]));
    }
    let command = WebhookCommand::Replay { after: after.position };
    let command = AdminCommand::Webhook { webhook: id, owner, command };
    Ok(mutation.submit(&app, Command::admin(command)).await?.into_response())
}
