//! The routes of the control listener: read, bounded, one call, answer.

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, RawQuery, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::from_fn;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use headwater_edge_wire::ids::{EdgeId, Epoch, Sequence};
use headwater_edge_wire::protocol::{
    Applied, ArtifactsRequest, Body as WireBody, HEARTBEAT_MAX_BYTES, Heartbeat, ManifestQuery,
    REGISTER_MAX_BYTES, REQUEST_MAX_BYTES, RegisterRequest, Rejected,
};
use headwater_edge_wire::sign::SIGNATURE_FIELD;
use headwater_edge_wire::tasks::{TaskPage, TaskResult};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, Semaphore, watch};
use tower_http::catch_panic::CatchPanicLayer;

use super::authority::Authority;
use super::keys;
use super::peer::{Live, peer};
use super::polls::Polls;
use super::rate::Rate;
use super::{EdgeError, answers, changes, heartbeat, manifest, register, streams};
use crate::app::App;
use crate::http::{Problem, envelope};
use crate::vault::Vault;

/// What registrations are counted over.
const HOUR: Duration = Duration::from_secs(3_600);
/// What requests are counted over.
const MINUTE: Duration = Duration::from_secs(60);

/// What every route shares.
#[derive(Clone)]
pub(super) struct Control(Arc<Parts>);

/// The parts of [`Control`].
pub(super) struct Parts {
    pub(super) app: App,
    pub(super) vault: Vault,
    pub(super) authority: Authority,
    /// By address.
    pub(super) registrations: Rate<IpAddr>,
    /// By identity.
    pub(super) renewals: Rate<EdgeId>,
    pub(super) requests: Rate<EdgeId>,
    /// A registration waits here, not for a connection to the database, which others need.
    pub(super) registering: Semaphore,
    /// One fact about identities is recorded at a time.
    pub(super) recording: Mutex<()>,
    pub(super) snapshots: Arc<Semaphore>,
    pub(super) changes: watch::Receiver<i64>,
    pub(super) polls: Polls,
}

impl std::ops::Deref for Control {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.0
    }
}

impl Control {
    /// Opens the key ring, and makes the keys that there are not yet.
    pub(super) async fn open(app: App) -> Result<Self, EdgeError> {
        let vault = Vault::open(&app.config)?;
        app.signer.current(&app).await?;
        let settings = &app.config.edge_control;
        Ok(Self(Arc::new(Parts {
            authority: keys::load_authority(&app.pool, &vault).await?,
            registrations: Rate::new(settings.registrations_per_hour, HOUR),
            renewals: Rate::new(settings.registrations_per_hour, HOUR),
            requests: Rate::new(settings.requests_per_minute, MINUTE),
            registering: Semaphore::new(register::REGISTRATIONS_MAX_COUNT),
            recording: Mutex::default(),
            snapshots: Arc::new(Semaphore::new(streams::SNAPSHOTS_MAX_COUNT)),
            changes: changes::follow(&app),
            polls: Polls::default(),
            vault,
            app,
        })))
    }
}

/// Every route, with the layers around them.
pub(super) fn router(control: Control) -> Router {
    Router::new()
        .route("/edge/v1/register", post(registration))
        .route("/edge/v1/heartbeat", post(beat))
        .route("/edge/v1/manifest", get(manifest_page))
        .route("/edge/v1/artifacts", post(artifacts))
        .route("/edge/v1/snapshot", get(snapshot))
        .route("/edge/v1/applied", post(applied))
        .route("/edge/v1/rejected", post(rejected))
        .route("/edge/v1/tasks", get(tasks))
        .route("/edge/v1/tasks/{id}/result", post(task_result))
        .fallback(missing)
        .method_not_allowed_fallback(wrong_method)
        .with_state(control)
        .layer(CatchPanicLayer::custom(envelope::panicked))
        .layer(from_fn(envelope::layer))
}

async fn missing() -> Problem {
    Problem::not_found("this route of edge control")
}

async fn wrong_method() -> Problem {
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", "this route takes another method")
}

async fn parsed<T: WireBody>(body: Body, most: usize) -> Result<T, Problem> {
    T::parse(&answers::read(body, most).await?).map_err(answers::fault)
}

async fn registration(State(control): State<Control>, request: Request) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    let peer = peer(&parts)?;
    let bytes = answers::read(body, REGISTER_MAX_BYTES).await?;
    let request = RegisterRequest::parse(&bytes).map_err(answers::fault)?;
    Ok(answers::json(&register::register(&control, &peer, request).await?))
}

async fn beat(State(control): State<Control>, live: Live, body: Body) -> Result<Response, Problem> {
    let heartbeat: Heartbeat = parsed(body, HEARTBEAT_MAX_BYTES).await?;
    Ok(answers::json(&heartbeat::beat(&control, &live, &heartbeat).await?))
}

async fn manifest_page(
    State(control): State<Control>,
    live: Live,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let page = manifest::answer(&control, live, manifest_query(query.as_deref())?).await?;
    let signature = HeaderValue::try_from(page.signature.to_string())
        .map_err(|_| Problem::unavailable("a signature cannot be sent"))?;
    let mut response = page.bytes.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(SIGNATURE_FIELD, signature);
    Ok(answers::uncached(response))
}

/// `after=`, `epoch=`, `wait=`: whole numbers, each once, nothing else.
fn manifest_query(query: Option<&str>) -> Result<ManifestQuery, Problem> {
    let fault = |what: &str| {
        Problem::malformed(format!("{what}: after, epoch and wait are whole numbers, each at most once"))
    };
    let (mut after, mut epoch, mut wait) = (None, None, None);
    for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').ok_or_else(|| fault("the query"))?;
        let slot = match key {
            "after" => &mut after,
            "epoch" => &mut epoch,
            "wait" => &mut wait,
            _ => return Err(fault("an unknown key")),
        };
        let number = value.parse::<u64>().map_err(|_| fault(key))?;
        if slot.replace(number).is_some() {
            return Err(fault(key));
        }
    }
    Ok(ManifestQuery {
        after: Sequence::try_from(after.unwrap_or(0)).map_err(|_| fault("after"))?,
        epoch: epoch.map(Epoch::try_from).transpose().map_err(|_| fault("epoch"))?,
        wait: wait.map(|wait| u32::try_from(wait).unwrap_or(u32::MAX)),
    })
}

async fn artifacts(State(control): State<Control>, _: Live, body: Body) -> Result<Response, Problem> {
    let wanted: ArtifactsRequest = parsed(body, REQUEST_MAX_BYTES).await?;
    Ok(streams::artifacts(&control, wanted.checksums))
}

async fn snapshot(State(control): State<Control>, live: Live) -> Result<Response, Problem> {
    streams::snapshot(&control, live).await
}

async fn applied(State(control): State<Control>, live: Live, body: Body) -> Result<StatusCode, Problem> {
    let applied: Applied = parsed(body, REQUEST_MAX_BYTES).await?;
    heartbeat::applied(&control, &live, &applied).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn rejected(State(control): State<Control>, live: Live, body: Body) -> Result<StatusCode, Problem> {
    let rejected: Rejected = parsed(body, REQUEST_MAX_BYTES).await?;
    heartbeat::rejected(&control, &live, &rejected).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// There are no kinds of tasks yet, so there is nothing to do.
async fn tasks(_: Live) -> Response {
    answers::json(&TaskPage { items: Vec::new() })
}

async fn task_result(_: Live, Path(id): Path<String>, body: Body) -> Result<StatusCode, Problem> {
    let _read: TaskResult = parsed(body, REQUEST_MAX_BYTES).await?;
    let shown: String = id.chars().take(64).collect();
    Err(Problem::not_found(format!("task {shown}")))
}
