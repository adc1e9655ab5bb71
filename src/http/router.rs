//! All routes, and the layers around them: the envelope outermost, then the catcher of panics, then (behind `/api`) the
//! gate that knows who asks.

use axum::Router;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::get;
use headwater_events::domain::destination::Network;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use tower_http::catch_panic::CatchPanicLayer;
use utoipa_axum::router::OpenApiRouter;

use super::auth::{self, Gate, Identity};
use super::openapi::{self, Fixed};
use super::rate::Limiter;
use super::{
    Problem, access_log, asof, audit, bounds, cache, cells, client, clusters, deployments, docs, domains,
    edges, envelope, events, explain, health, hostnames, members, operations, placement, projections,
    revisions, rollback, rrsets, search, session, status, stream, tenants, tls, tokens, undo, users,
    webhooks, zone,
};
use crate::app::App;

/// Every route that needs a caller. Paths are whole.
pub fn api() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .merge(domains::routes())
        .merge(members::routes())
        .merge(rrsets::routes())
        .merge(search::routes())
        .merge(hostnames::routes())
        .merge(cache::routes())
        .merge(tls::routes())
        .merge(zone::routes())
        .merge(revisions::routes())
        .merge(asof::routes())
        .merge(rollback::routes())
        .merge(undo::routes())
        .merge(deployments::routes())
        .merge(tenants::routes())
        .merge(users::routes())
        .merge(session::routes())
        .merge(access_log::routes())
        .merge(tokens::routes())
        .merge(webhooks::routes())
        .merge(clusters::routes())
        .merge(edges::routes())
        .merge(cells::routes())
        .merge(placement::routes())
        .merge(projections::routes())
        .merge(status::routes())
        .merge(explain::routes())
        .merge(events::routes())
        .merge(stream::routes())
        .merge(audit::routes())
        .merge(operations::routes())
}

/// Every route under `/api` that needs none.
pub fn open() -> OpenApiRouter<App> {
    tokens::open().merge(session::open())
}

/// The description of everything.
///
/// # Errors
/// When it cannot be written as JSON, which it always can.
pub fn document() -> serde_json::Result<Fixed> {
    openapi::document(api().merge(open()).into_openapi())
}

/// The whole of what `headwater serve` listens with. `draining` says that no new work should come here.
///
/// # Errors
/// As [`document`].
pub fn router(app: App, draining: CancellationToken) -> serde_json::Result<Router> {
    let document = document()?;
    let gate = Gate {
        identity: Identity::start(app.clone()),
        limiter: Limiter::new(&app.config.limits, app.replicas.clone()),
    };
    let trusted: Arc<[Network]> = app.config.server.trusted_proxies.clone().into();
    let (guarded, _) = api().split_for_parts();
    let guarded = guarded.route_layer(from_fn_with_state(gate.clone(), auth::layer));
    let (open, _) = open().split_for_parts();
    let open = open.layer(axum::Extension(gate.identity));
    let docs = docs::routes(&serde_json::from_str(document.text())?);
    let described = move |headers: HeaderMap| {
        let answer = document.answer(&headers);
        async move { answer }
    };
    Ok(guarded
        .merge(open)
        .with_state(app.clone())
        .route("/openapi.json", get(described))
        .merge(docs)
        .merge(health::routes(app, draining))
        .fallback(missing)
        .method_not_allowed_fallback(wrong_method)
        .layer(CatchPanicLayer::custom(envelope::panicked))
        .layer(from_fn(bounds::layer))
        .layer(from_fn(envelope::layer))
        .layer(from_fn_with_state(trusted, client::layer)))
}

async fn missing(uri: Uri) -> Problem {
    let path: String = uri.path().chars().take(200).collect();
    Problem::not_found(path)
}

async fn wrong_method(method: Method, uri: Uri) -> Problem {
    let path: String = uri.path().chars().take(200).collect();
    let detail = format!("{path} does not take {method}");
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", detail)
}
