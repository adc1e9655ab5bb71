//! Whether the process lives and whether it is ready: for supervisors and load balancers, without a token. They tell
//! nothing about what is stored.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde_json::{Value, json};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

use super::Problem;
use super::query::{FromQuery, Pairs, Query};
use crate::app::App;
use crate::query::domains;
use crate::rebuild;
use crate::store::pool;

/// How long one check may take.
const CHECK_MAX: Duration = Duration::from_secs(2);

/// What the routes of this file read.
#[derive(Clone)]
struct Health {
    app: App,
    draining: CancellationToken,
}

/// `?verbose`.
struct Verbose(bool);

impl FromQuery for Verbose {
    fn read(pairs: &mut Pairs) -> Self {
        Self(pairs.one("verbose").is_some())
    }
}

/// One thing that was looked at.
struct Check {
    name: &'static str,
    /// Whether the process cannot be ready without it.
    needed: bool,
    result: Result<Value, String>,
}

/// The routes of this file.
pub fn routes(app: App, draining: CancellationToken) -> Router {
    Router::new()
        .route("/livez", get(live))
        .route("/healthz", get(ready))
        .route("/readyz", get(ready))
        .with_state(Health { app, draining })
}

async fn live() -> Json<Value> {
    Json(json!({"status": "ok"}))
}

async fn ready(State(health): State<Health>, Query(Verbose(verbose)): Query<Verbose>) -> Response {
    if health.draining.is_cancelled() || health.app.stop.is_cancelled() {
        return Problem::unavailable("this process is stopping").into_response();
    }
    let checks = [database(&health.app).await, schema(&health.app).await, log(&health.app, verbose).await];
    let failed: Vec<&Check> = checks.iter().filter(|check| check.needed && check.result.is_err()).collect();
    let shown: Vec<Value> = checks.iter().map(Check::show).collect();
    if let Some(first) = failed.first() {
        let names: Vec<&str> = failed.iter().map(|check| check.name).collect();
        let why = first.result.as_ref().err().map(String::as_str).unwrap_or_default();
        let problem = Problem::unavailable(format!("not ready: {}: {why}", names.join(", ")));
        return problem.with("checks", shown).into_response();
    }
    let mut body = json!({"status": "ok"});
    if verbose {
        body["checks"] = json!(shown);
    }
    Json(body).into_response()
}

impl Check {
    fn show(&self) -> Value {
        match &self.result {
            Ok(detail) => json!({"name": self.name, "ok": true, "detail": detail}),
            Err(why) => json!({"name": self.name, "ok": false, "detail": why}),
        }
    }
}

async fn within<T, E: std::fmt::Display>(check: impl Future<Output = Result<T, E>>) -> Result<T, String> {
    match tokio::time::timeout(CHECK_MAX, check).await {
        Ok(result) => result.map_err(|error| error.to_string()),
        Err(_late) => Err(format!("no answer within {} s", CHECK_MAX.as_secs())),
    }
}

async fn database(app: &App) -> Check {
    let result = within(domains::ping(&app.pool)).await.map(|()| json!("answers"));
    Check { name: "database", needed: true, result }
}

async fn schema(app: &App) -> Check {
    let result = within(pool::check_level(&app.pool)).await.map(|()| json!("current"));
    Check { name: "schema", needed: true, result }
}

/// The tail of the log and, for those who want to know, how far every projection has followed it. Lag is told; it makes
/// nobody unready.
async fn log(app: &App, verbose: bool) -> Check {
    let read = async {
        let meta = app.log.meta().await.map_err(|error| error.to_string())?;
        let mut told = json!({"head": meta.head, "known_head": app.commit.head().get()});
        if verbose {
            let standings = rebuild::list(&app.pool).await.map_err(|error| error.to_string())?;
            told["projections"] = json!(standings);
        }
        Ok::<Value, String>(told)
    };
    Check { name: "log", needed: true, result: within(read).await }
}
