//! The life of a domain: verify, activate, disable, enable.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use headwater_events::actor::{Resource, Verb};
use headwater_events::domain::{DomainCommand, Proof};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Problem;
use super::body::NoBody;
use super::domains::{known, seen};
use super::dto::Receipt;
use super::dto::domain::Domain;
use super::mutation::{Mutation, Submitted};
use super::path::DomainPath;
use crate::app::App;
use crate::command::{Command, Plan};
use crate::query::domains;
use crate::verify;

/// The routes of this file.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(verify))
        .routes(routes!(activate))
        .routes(routes!(disable))
        .routes(routes!(enable))
}

/// Look now whether the domain is its owner's, or, once it is served, whether its parent delegates it to the platform. The
/// look is queued, once in 10 s: the domain is answered as it is known, and `last.at` shows when it was looked at.
#[utoipa::path(post, path = "/api/domains/{d}/verify", tag = "domains", params(("d" = String, Path, description = "The domain's name")),
    responses((status = 200, body = Domain)))]
async fn verify(
    State(app): State<App>,
    DomainPath(name): DomainPath,
    mutation: Mutation<NoBody>,
) -> Result<Response, Problem> {
    let found = known(&app, &mutation.auth, &name).await?;
    mutation.auth.may(Verb::Write, Resource::Contents(seen(&found.state)), format!("domain {name}"))?;
    mutation.refuse_conditions()?;
    if found.state.status.is_deleted() {
        return Err(Problem::not_found(format!("domain {name} (deleted)")));
    }
    if app.config.dns.resolver.is_none() {
        let detail = "this platform has no resolver (resolver in [dns]), so it cannot look: an administrator activates \
                      domains";
        return Err(Problem::new(StatusCode::CONFLICT, "no_resolver", detail));
    }
    if mutation.is_dry_run() {
        // Nothing that is known changes by it: what it finds may.
        let (diff, warnings, guards, targets) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let plan =
            Plan { changed: false, diff, warnings, guards, targets, if_match: None, not_restored: None };
        return Ok(Submitted::Plan(plan).into_response());
    }
    if let Err(wait) = verify::ask_now(&app, found.state.id).await? {
        let detail = format!("somebody asked for a look at {name} a moment ago: it is on its way");
        return Err(Problem::new(StatusCode::TOO_MANY_REQUESTS, "rate_limited", detail).retry_after(wait));
    }
    let platform = domains::platform(&app.pool).await?;
    let found = known(&app, &mutation.auth, &name).await?;
    Ok(axum::Json(Domain::new(&found, &platform)).into_response())
}

/// Serve a domain whose ownership is not proven (administrators).
#[utoipa::path(post, path = "/api/domains/{d}/activate", tag = "domains", params(("d" = String, Path, description = "The domain's name")),
    responses((status = 200, body = Receipt), (status = 202, body = Receipt)))]
async fn activate(
    State(app): State<App>,
    DomainPath(name): DomainPath,
    mutation: Mutation<NoBody>,
) -> Result<Response, Problem> {
    let command = DomainCommand::Activate(Proof::Forced);
    Ok(mutation.submit(&app, Command::Domain { name, command }).await?.into_response())
}

/// Serve a domain no longer, and keep it with everything it holds: its name servers refuse it, and edges do not know it. What
/// an administrator disables only an administrator enables.
#[utoipa::path(post, path = "/api/domains/{d}/disable", tag = "domains", params(("d" = String, Path, description = "The domain's name")),
    responses((status = 200, body = Receipt), (status = 202, body = Receipt)))]
async fn disable(
    State(app): State<App>,
    DomainPath(name): DomainPath,
    mutation: Mutation<NoBody>,
) -> Result<Response, Problem> {
    let command = DomainCommand::Disable;
    Ok(mutation.submit(&app, Command::Domain { name, command }).await?.into_response())
}

/// Serve a disabled domain again.
#[utoipa::path(post, path = "/api/domains/{d}/enable", tag = "domains", params(("d" = String, Path, description = "The domain's name")),
    responses((status = 200, body = Receipt), (status = 202, body = Receipt)))]
async fn enable(
    State(app): State<App>,
    DomainPath(name): DomainPath,
    mutation: Mutation<NoBody>,
) -> Result<Response, Problem> {
    let command = DomainCommand::Enable;
    Ok(mutation.submit(&app, Command::Domain { name, command }).await?.into_response())
}
