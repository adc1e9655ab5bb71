//! Projections (administrators): where they stand; building one anew, and comparing it with the log, both as lines of
//! JSON while they go on: `progress`, `difference`, at the end `result` or `problem`. A rebuild goes on when its
//! reader is gone.

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use headwater_events::actor::{Resource, Verb};
use headwater_events::dns::DomainName;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Problem;
use super::auth::Authenticated;
use super::body::{Fields, FromBody};
use super::mutation::Mutation;
use super::query::{NoQuery, Query};
use crate::app::App;
use crate::rebuild::{self, Intent, PROJECTIONS, Progress, RebuildError};

/// Lines that wait for a slow reader; progress beyond them is left out.
const LINES_MAX_COUNT: usize = 1_000;
/// How often progress is told.
const PROGRESS_PAUSE: Duration = Duration::from_millis(200);
/// Differences that are told one by one.
const TOLD_MAX_COUNT: usize = 1_000;

/// The routes of this file.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(rebuild_one)).routes(routes!(verify))
}

/// What is rebuilt or verified.
#[derive(Debug, Default, ToSchema)]
pub struct Scope {
    /// Only this domain.
    #[schema(value_type = Option<String>)]
    domain: Option<DomainName>,
    /// `false` keeps what differs as it is; else it is mended by the reconciler at once.
    #[schema(value_type = Option<bool>)]
    mend: Option<bool>,
}

impl FromBody for Scope {
    fn read(fields: &mut Fields) -> Option<Self> {
        let domain = fields.parsed("domain", |text| {
            DomainName::parse(text).map_err(|fault| (fault.code.as_str(), fault.detail))
        });
        let mend = fields.has("mend").then(|| fields.flag("mend"));
        Some(Self { domain, mend })
    }
}

/// Where every projection stands.
#[utoipa::path(get, path = "/api/projections", tag = "projections",
    responses((status = 200, description = "All of them: items")))]
async fn list(State(app): State<App>, auth: Authenticated, _: Query<NoQuery>) -> Result<Response, Problem> {
    auth.may(Verb::Read, Resource::Platform, "projections")?;
    let items = rebuild::list(&app.pool).await?;
    Ok(Json(json!({"items": items, "next": null})).into_response())
}

/// Build a projection anew from the log, whole or for one domain.
#[utoipa::path(post, path = "/api/projections/{name}/rebuild", tag = "projections", request_body = Scope,
    params(("name" = String, Path, description = "desired, powerdns, edge, operations or audit")),
    responses((status = 200, content_type = "application/x-ndjson", description = "Lines: progress, difference, at the end result or problem")))]
async fn rebuild_one(
    State(app): State<App>,
    Path(name): Path<String>,
    mutation: Mutation<Scope>,
) -> Result<Response, Problem> {
    begin(app, name, Intent::Rebuild, mutation)
}

/// Compare a projection with the log, row by row.
#[utoipa::path(post, path = "/api/projections/{name}/verify", tag = "projections", request_body = Scope,
    params(("name" = String, Path, description = "desired, powerdns, edge, operations or audit")),
    responses((status = 200, content_type = "application/x-ndjson", description = "Lines: progress, difference, at the end result or problem")))]
async fn verify(
    State(app): State<App>,
    Path(name): Path<String>,
    mutation: Mutation<Scope>,
) -> Result<Response, Problem> {
    begin(app, name, Intent::Verify, mutation)
}

fn begin(app: App, name: String, intent: Intent, mutation: Mutation<Scope>) -> Result<Response, Problem> {
    mutation.auth.may(Verb::Write, Resource::Platform, "projections")?;
    let Some(name) = PROJECTIONS.into_iter().find(|known| *known == name) else {
        return Err(Problem::not_found(format!("projection {name} (there are {})", PROJECTIONS.join(", "))));
    };
    if mutation.is_dry_run() {
        let plan = json!({"changed": false, "diff": [], "warnings": ["a projection holds nothing of its own: \
            verify says what a rebuild would change"], "guards": [], "targets": [], "if_match": null});
        return Ok(Json(plan).into_response());
    }
    let (lines, reader) = mpsc::channel::<Bytes>(LINES_MAX_COUNT);
    tokio::spawn(work(app, name, intent, mutation.body, lines));
    let body = Body::from_stream(ReceiverStream::new(reader).map(Ok::<_, std::convert::Infallible>));
    Ok(([(header::CONTENT_TYPE, "application/x-ndjson")], body).into_response())
}

fn line(member: &str, value: Value) -> Bytes {
    Bytes::from(format!("{}\n", json!({member: value})))
}

async fn work(app: App, name: &'static str, intent: Intent, scope: Scope, lines: mpsc::Sender<Bytes>) {
    let began = Instant::now();
    let mut told: Option<Instant> = None;
    let progress = lines.clone();
    let mut watch = move |now: Progress| {
        if told.is_none_or(|at| at.elapsed() >= PROGRESS_PAUSE) {
            told = Some(Instant::now());
            // A reader that is slow or gone misses progress, nothing else.
            let _missed = progress.try_send(line("progress", json!(now)));
        }
    };
    let outcome = rebuild::run(&app, name, intent, scope.domain.as_ref(), &mut watch).await;
    let last = match outcome {
        Ok(differences) => {
            for difference in differences.iter().take(TOLD_MAX_COUNT) {
                let mut value = json!(difference);
                value["detail"] = json!(difference.to_string());
                if lines.send(line("difference", value)).await.is_err() {
                    return;
                }
            }
            if intent == Intent::Verify && name == "powerdns" && scope.mend != Some(false) {
                mend(&app, &differences).await;
            }
            let ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
            line("result", json!({"differences": differences.len(), "ms": ms}))
        }
        Err(error) => {
            tracing::warn!(projection = name, %error, "a projection could not be rebuilt or verified");
            line("problem", Problem::from(error).body())
        }
    };
    let _reader_may_be_gone = lines.send(last).await;
}

/// Has the reconciler look at the zones that differ now rather than at their turn.
async fn mend(app: &App, differences: &[rebuild::Difference]) {
    let names: Vec<String> =
        differences.iter().filter_map(|one| one.key.get(0)?.as_str().map(str::to_owned)).collect();
    if names.is_empty() {
        return;
    }
    if let Err(error) = rebuild::check_soon(&app.pool, &names).await {
        tracing::warn!(%error, "zones that differ could not be marked; the drift check finds them at their turn");
    }
}

impl From<RebuildError> for Problem {
    fn from(error: RebuildError) -> Self {
        use axum::http::StatusCode;
        match error {
            RebuildError::Database(error) => error.into(),
            RebuildError::Read(error) => error.into(),
            RebuildError::Busy => Self::new(StatusCode::CONFLICT, "conflict", error.to_string()),
            RebuildError::NoProjection(name) => Self::not_found(format!("projection {name}")),
            RebuildError::NoDomain(name) => Self::not_found(format!("domain {name}")),
            RebuildError::Poison { .. } => {
                Self::new(StatusCode::INTERNAL_SERVER_ERROR, "unreadable_event", error.to_string())
            }
            RebuildError::Deploy(error) => Self::unavailable(error.to_string()),
        }
    }
}
