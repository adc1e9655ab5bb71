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
    edges, envelope, events, explain, health, hostnames, imports, lifecycle, members, operations, pdns,
    placement, projections, revisions, rollback, rrsets, search, session, status, stream, tenants, tls,
    tokens, undo, users, webhooks, zone, zone_import,
};
use crate::app::App;

/// Every route that needs a caller. Paths are whole.
pub fn api() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .merge(domains::routes())
        .merge(lifecycle::routes())
        .merge(members::routes())
        .merge(rrsets::routes())
        .merge(search::routes())
        .merge(hostnames::routes())
        .merge(cache::routes())
        .merge(tls::routes())
        .merge(zone::routes())
        .merge(zone_import::routes())
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
        .merge(imports::routes())
        .merge(status::routes())
        .merge(explain::routes())
        .merge(events::routes())
        .merge(stream::routes())
        .merge(audit::routes())
        .merge(operations::routes())
}

/// Every route of PowerDNS's API, by method and path. It is not in the description: PowerDNS describes it.
pub fn facade() -> Vec<(String, String)> {
    let described = serde_json::to_value(pdns::routes().into_openapi()).unwrap_or_default();
    let paths = described["paths"].as_object().cloned().unwrap_or_default();
    let row = |(path, item): (String, serde_json::Value)| {
        let methods = item.as_object().map(|item| item.keys().cloned().collect::<Vec<_>>());
        methods.unwrap_or_default().into_iter().map(move |method| (method, path.clone()))
    };
    paths.into_iter().flat_map(row).collect()
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
    let (facade, _) = pdns::routes().split_for_parts();
    let facade = facade.route_layer(from_fn_with_state(gate.clone(), auth::layer));
    let facade = facade.route_layer(from_fn(pdns::auth::layer));
    let (open, _) = open().split_for_parts();
    let open = open.layer(axum::Extension(gate.identity));
    let docs = docs::routes(&serde_json::from_str(document.text())?);
    let described = move |headers: HeaderMap| {
        let answer = document.answer(&headers);
        async move { answer }
    };
    Ok(guarded
        .merge(facade)
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
        .layer(from_fn(pdns::error::layer))
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
