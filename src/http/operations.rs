//! `/api/operations`: what became of accepted work.

use crate::app::App;
use crate::command::{Command, Plan};
use crate::history::page::{self, conflict};
use crate::history::query::Params;
use crate::http::Problem;
use crate::http::auth::Authenticated;
use crate::http::body::NoBody;
use crate::http::dto::ProblemBody;
use crate::http::dto::Receipt;
use crate::http::dto::history::{DryRun, FoundDifference, Operation, Timeline};
use crate::http::mutation::{Mutation, Submitted};
use crate::http::page::{Listing, Page, PageParams};
use crate::http::query::NoQuery;
use crate::operation::read::{self, Hop, Shown, Wanted};
use axum::Json;
use axum::extract::{OriginalUri, Path, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use headwater_events::actor::{self, Resource, Verb};
use headwater_events::admin::AdminCommand;
use headwater_events::ids::OperationId;
use headwater_projections::operations::State as OperationState;
use serde_json::json;
use std::time::Duration;
use tokio::time::Instant;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// How long a request may wait for the end of an operation.
pub const WAIT_MAX_SECONDS: u64 = 30;
/// How often an operation is looked at though nothing moved in this process.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// Looks of one waiting request are at least this far apart.
const LOOK_PAUSE: Duration = Duration::from_millis(15);

/// The routes of this file.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(one))
        .routes(routes!(timeline))
        .routes(routes!(differences))
        .routes(routes!(retry))
        .routes(routes!(cancel))
}

/// Which operations are wanted.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
#[allow(dead_code)] // the documentation of what `list` reads
struct OperationListParams {
    /// On this domain.
    domain: Option<String>,
    /// In one of these states, separated by commas.
    state: Option<String>,
    /// Where the next page begins.
    cursor: Option<String>,
    /// How many, from 1 to 1000.
    #[param(default = 50)]
    limit: Option<u32>,
}

/// Operations that the caller started or whose domains it may see, newest first.
#[utoipa::path(get, path = "/api/operations", tag = "operations", params(OperationListParams),
    responses((status = 200, body = Vec<Operation>, description = "A page: items and next")))]
async fn list(
    State(app): State<App>,
    who: Authenticated,
    OriginalUri(uri): OriginalUri,
) -> Result<Response, Problem> {
    let params = Params::read(&uri, &["domain", "state", "cursor", "limit"])?;
    let state = params.one("state")?;
    let states = state.map(|text| text.split(',').map(str::to_owned).collect::<Vec<_>>());
    if let Some(wrong) = states.iter().flatten().find(|name| OperationState::from_name(name).is_none()) {
        return Err(Problem::malformed(format!(
            "state={wrong:?} is not one; there are: pending, running, succeeded, failed, cancelled"
        )));
    }
    let mut domains = params.domains("domain")?.unwrap_or_default();
    if domains.len() > 1 {
        return Err(Problem::malformed("domain stands more than once in the query"));
    }
    let wanted = Wanted { domain: domains.pop(), states, before: params.parsed("cursor", "a cursor")? };
    let limit = params.limit()?;
    let found = read::list(&app.pool, &who.caller, &wanted, limit + 1).await?;
    let shown = usize::try_from(limit).unwrap_or(usize::MAX);
    let items: Vec<String> = found.iter().take(shown).map(|operation| operation.body.to_string()).collect();
    let next = (found.len() > shown).then(|| found.get(shown - 1).map(|last| last.id)).flatten();
    Ok(page::page(&uri, items.join(",").as_bytes(), "cursor", next))
}

/// The operation, if the caller may know of it.
async fn readable(app: &App, who: &Authenticated, id: &str) -> Result<Shown, Problem> {
    let absent = || Problem::not_found(format!("operation {id}"));
    let parsed: OperationId = id.parse().map_err(|_| absent())?;
    let found = read::one(&app.pool, parsed).await?;
    found.filter(|operation| operation.is_readable_by(&who.caller)).ok_or_else(absent)
}

/// The operation when it has ended, or as it stands after so long.
///
/// # Errors
/// What reading it says.
pub async fn ended<Read>(
    app: &App,
    wait: Duration,
    read: impl Fn() -> Read + Send + Sync,
) -> Result<Shown, Problem>
where
    Read: Future<Output = Result<Shown, Problem>> + Send,
{
    let deadline = Instant::now() + wait;
    let mut moved = app.progress.subscribe();
    loop {
        // Marked before the look, so that a move during it wakes the wait below.
        moved.borrow_and_update();
        let operation = read().await?;
        let now = Instant::now();
        if operation.state.is_terminal() || now >= deadline || app.stop.is_cancelled() {
            return Ok(operation);
        }
        tokio::select! {
            // Where nobody moves in this process (another one runs the projection), the poll remains.
            Ok(()) = moved.changed() => tokio::time::sleep(LOOK_PAUSE).await,
            () = tokio::time::sleep_until(deadline.min(now + POLL_INTERVAL)) => {}
            () = app.stop.cancelled() => {}
        }
    }
}

/// One operation.
#[utoipa::path(get, path = "/api/operations/{id}", tag = "operations",
    params(("id" = Uuid, Path, description = "The operation's id"),
        ("wait" = Option<u64>, Query, description = "Answer at its end, but after so many seconds at the latest (up to 30)")),
    responses((status = 200, body = Operation)))]
async fn one(
    State(app): State<App>,
    who: Authenticated,
    Path(id): Path<String>,
    OriginalUri(uri): OriginalUri,
) -> Result<Response, Problem> {
    let params = Params::read(&uri, &["wait"])?;
    let form = format!("a number of seconds from 0 to {WAIT_MAX_SECONDS}");
    let wait: u64 = params.parsed("wait", &form)?.unwrap_or(0);
    if wait > WAIT_MAX_SECONDS {
        return Err(Problem::malformed(format!("wait={wait} is not {form}")));
    }
    let operation = ended(&app, Duration::from_secs(wait), || readable(&app, &who, &id)).await?;
    let mut response = Json(operation.body).into_response();
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// The hops of an operation, in the order of time.
#[utoipa::path(get, path = "/api/operations/{id}/timeline", tag = "operations",
    params(("id" = Uuid, Path, description = "The operation's id")),
    responses((status = 200, body = Timeline)))]
async fn timeline(
    State(app): State<App>,
    who: Authenticated,
    Path(id): Path<String>,
) -> Result<Json<Vec<Hop>>, Problem> {
    let operation = readable(&app, &who, &id).await?;
    Ok(Json(read::timeline(&app.pool, &operation).await?))
}

/// What a rebuild or a verification found, in the order in which it did; the first 1,000.
#[utoipa::path(get, path = "/api/operations/{id}/differences", tag = "operations",
    params(("id" = Uuid, Path, description = "The operation's id"), PageParams),
    responses((status = 200, body = Vec<FoundDifference>, description = "A page: items and next")))]
async fn differences(
    State(app): State<App>,
    who: Authenticated,
    Path(id): Path<String>,
    wanted: Listing<NoQuery, i32>,
) -> Result<Response, Problem> {
    let id = readable(&app, &who, &id).await?.id;
    crate::http::page::list(wanted, move |after, most| {
        let app = app.clone();
        async move {
            let items = read::differences(&app.pool, id, after.unwrap_or(0), most).await?;
            Ok(Page { items })
        }
    })
    .await
}

/// Whether the caller may change what the operation is about.
fn writable(who: &Authenticated, operation: &Shown) -> Result<(), Problem> {
    let resource = match operation.resource() {
        Resource::Domain(domain) => Resource::Contents(domain),
        _ => Resource::Platform,
    };
    if actor::decide(&who.caller, Verb::Write, resource).is_granted() {
        return Ok(());
    }
    let detail = "the operation belongs to what you may not change";
    Err(Problem::new(StatusCode::FORBIDDEN, "forbidden", detail))
}

/// Try the lagging deployments of an operation at once.
#[utoipa::path(post, path = "/api/operations/{id}/retry", tag = "operations",
    params(("id" = Uuid, Path, description = "The operation's id")),
    responses((status = 200, body = DryRun, description = "With dry_run: what would be tried"),
        (status = 202, body = Operation)))]
async fn retry(
    State(app): State<App>,
    Path(id): Path<String>,
    mutation: Mutation<NoBody>,
) -> Result<Response, Problem> {
    let operation = readable(&app, &mutation.auth, &id).await?;
    writable(&mutation.auth, &operation)?;
    mutation.refuse_conditions()?;
    let nothing = |detail: &str| conflict("nothing_to_retry", detail);
    if operation.imperative {
        return retry_run(&app, &mutation, operation).await;
    }
    let Some(domain) = operation.domain else {
        return Err(nothing("it is carried out as fast as the cluster takes it; there is nothing to retry"));
    };
    if !operation.lags {
        return Err(nothing("every target has verified it; there is nothing to retry"));
    }
    let none_left = "no deployment of it is left to retry";
    if mutation.is_dry_run() {
        let plan = read::plan_retry(&app.pool, domain, operation.revision).await?;
        let plan = plan.ok_or_else(|| nothing(none_left))?;
        return Ok(Submitted::Plan(plan).into_response());
    }
    if read::retry(&app.pool, domain, operation.revision).await? == 0 {
        return Err(nothing(none_left));
    }
    Ok(accepted(readable(&app, &mutation.auth, &id).await?))
}

/// Imperative work that waits for its next try is tried at once. What has ended is asked for anew instead.
async fn retry_run(app: &App, mutation: &Mutation<NoBody>, operation: Shown) -> Result<Response, Problem> {
    let nothing = |detail: &str| conflict("nothing_to_retry", detail);
    if operation.state.is_terminal() {
        return Err(nothing("it has ended, which is final: ask for the same work again"));
    }
    if mutation.is_dry_run() {
        let plan = Plan {
            changed: true,
            diff: vec![
                json!({"path": "/next_attempt_at", "before": operation.body["next_attempt_at"], "after": null}),
            ],
            warnings: Vec::new(),
            guards: Vec::new(),
            targets: Vec::new(),
            if_match: None,
            not_restored: None,
        };
        return Ok(Submitted::Plan(plan).into_response());
    }
    if !read::retry_run(&app.pool, operation.id).await? {
        return Err(nothing("it does not wait for another try"));
    }
    Ok(accepted(operation))
}

fn accepted(operation: Shown) -> Response {
    let mut response = (StatusCode::ACCEPTED, Json(operation.body)).into_response();
    if let Ok(location) = HeaderValue::from_str(&format!("/api/operations/{}", operation.id)) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    response
}

/// Give an operation up, where that is still possible: imperative work stops at its next step and leaves the last valid
/// state. A revision is committed with its operation, so one on a domain is undone by a new mutation instead. Whoever asked for an undo of what a token did may call that off.
#[utoipa::path(post, path = "/api/operations/{id}/cancel", tag = "operations",
    params(("id" = Uuid, Path, description = "The operation's id")),
    responses((status = 200, body = Receipt, description = "It is called off"), (status = 409, body = ProblemBody, content_type = "application/problem+json",
        description = "already_ended or not_cancellable: with dry_run too, since nothing differs")))]
async fn cancel(
    State(app): State<App>,
    Path(id): Path<String>,
    mutation: Mutation<NoBody>,
) -> Result<Response, Problem> {
    let operation = readable(&app, &mutation.auth, &id).await?;
    if !operation.is_own_undo(&mutation.auth.caller) {
        writable(&mutation.auth, &operation)?;
    }
    mutation.refuse_conditions()?;
    if operation.imperative {
        let command = Command::admin(AdminCommand::CancelOperation { operation: operation.id });
        return Ok(mutation.submit(&app, command).await?.into_response());
    }
    Err(if operation.state.is_terminal() {
        conflict("already_ended", "the operation has ended")
    } else {
        conflict("not_cancellable", "its revision is committed: undo it by a new mutation")
    })
}
