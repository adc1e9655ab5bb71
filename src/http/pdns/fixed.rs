//! What PowerDNS says of itself, and what is the same for every zone here.

use axum::Json;
use axum::http::Uri;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::VERSION;
use super::zones::Known;
use crate::app::App;
use crate::http::Problem;
use headwater_events::reject::Fault;

/// What this program is.
const REAL_VERSION: &str = concat!("headwater/", env!("CARGO_PKG_VERSION"));

/// The routes of this file.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(versions))
        .routes(routes!(version))
        .routes(routes!(servers))
        .routes(routes!(server))
        .routes(routes!(config))
        .routes(routes!(statistics))
        .routes(routes!(flush))
        .routes(routes!(notify))
        .routes(routes!(rectify))
        .routes(routes!(retrieve))
        .routes(routes!(metadata))
        .routes(routes!(metadata_kind))
        .routes(routes!(cryptokeys))
}

fn shown(body: Value) -> Response {
    ([("x-headwater-version", REAL_VERSION)], Json(body)).into_response()
}

fn server_body() -> Value {
    json!({
        "type": "Server", "id": "localhost", "daemon_type": "authoritative", "version": VERSION,
        "url": "/api/v1/servers/localhost", "config_url": "/api/v1/servers/localhost/config{/config_setting}",
        "zones_url": "/api/v1/servers/localhost/zones{/zone}",
        "autoprimaries_url": "/api/v1/servers/localhost/autoprimaries{/autoprimary}",
    })
}

#[utoipa::path(get, path = "/api")]
async fn versions() -> Response {
    shown(json!([{"url": "/api/v1", "version": 1}]))
}

#[utoipa::path(get, path = "/api/v1")]
async fn version() -> Response {
    shown(json!([{"api_features": [], "server_url": "/api/v1/servers{/server}", "version": 1}]))
}

#[utoipa::path(get, path = "/api/v1/servers")]
async fn servers() -> Response {
    shown(json!([server_body()]))
}

#[utoipa::path(get, path = "/api/v1/servers/localhost")]
async fn server() -> Response {
    shown(server_body())
}

#[utoipa::path(get, path = "/api/v1/servers/localhost/config")]
async fn config() -> Response {
    let rows = [
        ("api", "yes"),
        ("default-ttl", "3600"),
        ("enable-lua-records", "no"),
        ("expand-alias", "yes"),
        ("launch", "headwater"),
    ];
    let rows = rows.map(|(name, value)| json!({"type": "ConfigSetting", "name": name, "value": value}));
    shown(json!(rows))
}

#[utoipa::path(get, path = "/api/v1/servers/localhost/statistics")]
async fn statistics() -> Response {
    shown(json!([]))
}

/// Nothing here is kept that could be stale.
#[utoipa::path(put, path = "/api/v1/servers/localhost/cache/flush")]
async fn flush() -> Response {
    shown(json!({"count": 0, "result": "Flushed cache."}))
}

/// Every change is deployed by itself.
#[utoipa::path(put, path = "/api/v1/servers/localhost/zones/{zone}/notify")]
async fn notify(_: Known) -> Response {
    shown(json!({"result": "Notification queued"}))
}

/// Zones are always rendered whole.
#[utoipa::path(put, path = "/api/v1/servers/localhost/zones/{zone}/rectify")]
async fn rectify(_: Known) -> Response {
    shown(json!({"result": "Rectified"}))
}

#[utoipa::path(put, path = "/api/v1/servers/localhost/zones/{zone}/axfr-retrieve")]
async fn retrieve(Known(name): Known) -> Result<Response, Problem> {
    let detail = format!("Domain '{name}.' is not a secondary domain (or has no primary defined)");
    Err(Problem::invalid(vec![Fault::at("", "invalid", detail)]))
}

#[utoipa::path(get, path = "/api/v1/servers/localhost/zones/{zone}/metadata")]
async fn metadata(_: Known) -> Response {
    shown(json!([]))
}

#[utoipa::path(get, path = "/api/v1/servers/localhost/zones/{zone}/metadata/{kind}")]
async fn metadata_kind(_: Known, uri: Uri) -> Response {
    let kind = uri.path().rsplit('/').next();
    shown(json!({"type": "Metadata", "kind": kind, "metadata": []}))
}

#[utoipa::path(get, path = "/api/v1/servers/localhost/zones/{zone}/cryptokeys")]
async fn cryptokeys(_: Known) -> Response {
    shown(json!([]))
}
