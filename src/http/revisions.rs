//! The mutations of a domain: when, who, why, and what each of them changed.

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use headwater_events::domain::{DomainState, ROLLBACK_MAX_CHANGES, Standing, diff};
use headwater_events::envelope::{NewEvent, Recorded};
use headwater_events::ids::{Revision, StreamRef};
use headwater_events::time::Timestamp;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::auth::Authenticated;
use super::domains::visible;
use super::dto::Actor;
use super::page::{Listing, Page, PageParams};
use super::path::{DomainPath, RevisionPath};
use super::query::{NoQuery, Query};
use super::{Problem, page};
use crate::app::App;
use crate::query::history::{self, StoredRevision};
use crate::store::past;

/// Events of one revision that are shown: a rollback has no more, with those of settings and its own.
const REVISION_MAX_EVENTS: i64 = ROLLBACK_MAX_CHANGES as i64 + 10;

/// The routes of this file.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(get))
}

/// One mutation of a domain.
#[derive(Debug, Serialize, ToSchema)]
struct RevisionBody {
    /// Its number.
    revision: i64,
    /// When.
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
    /// The type of its first event.
    r#type: String,
    /// How many events it has.
    events: i64,
    /// Who.
    actor: Actor,
    /// The actor's mail address, while it is kept.
    actor_name: Option<String>,
    /// Why.
    note: Option<String>,
    /// The operation that carried it out.
    operation: Option<Uuid>,
    /// The request.
    request_id: Uuid,
    /// Whether it can be gone back to as far as retention goes: it was the newest within the window, is among the newest
    /// ones, is active on a target, or was rolled back to.
    retained: bool,
    /// Whether a target has verified it, or a later one up to the next change.
    validated: bool,
}

impl RevisionBody {
    fn new(stored: StoredRevision, standing: &Standing) -> Self {
        Self {
            retained: standing.retained,
            validated: standing.validated,
            revision: stored.revision.get(),
            at: stored.at,
            r#type: stored.event_type,
            events: stored.events,
            actor: stored.actor.into(),
            actor_name: stored.email,
            note: stored.note,
            operation: stored.operation.map(|id| id.as_uuid()),
            request_id: stored.request.as_uuid(),
        }
    }
}

/// One mutation with what it changed.
#[derive(Debug, Serialize, ToSchema)]
struct RevisionDetail {
    /// What is known of it.
    #[serde(flatten)]
    known: RevisionBody,
    /// What it changed: path, before, after.
    #[schema(value_type = Vec<Object>)]
    changes: Vec<Value>,
}

/// Mutations of a domain, newest first.
#[utoipa::path(get, path = "/api/domains/{d}/revisions", tag = "history",
    params(("d" = String, Path, description = "The domain's name"), PageParams),
    responses((status = 200, body = Vec<RevisionBody>, description = "A page: items and next")))]
async fn list(
    State(app): State<App>,
    auth: Authenticated,
    DomainPath(name): DomainPath,
    wanted: Listing<NoQuery, i64>,
) -> Result<Response, Problem> {
    let domain = visible(&app, &auth, &name).await?.state;
    page::list(wanted, move |before: Option<i64>, most| {
        let (app, domain) = (app.clone(), domain.clone());
        async move {
            let before = before.map(Revision::new);
            let found = history::revisions(&app.pool, domain.id, before, None, most).await?;
            let items = shown(&app, &domain, found).await?;
            Ok(Page { items: items.into_iter().map(|one| (one.revision, one)).collect() })
        }
    })
    .await
}

/// Revisions that follow one another, newest first, each with whether it can be gone back to.
async fn shown(
    app: &App,
    domain: &DomainState,
    found: Vec<StoredRevision>,
) -> Result<Vec<RevisionBody>, Problem> {
    let (Some(newest), Some(oldest)) = (found.first(), found.last()) else { return Ok(Vec::new()) };
    let (oldest, newest) = (oldest.revision, newest.revision);
    let retention = app.config.limits.retention;
    let standings = past::standings(&app.pool, domain, oldest, newest, retention, app.clock.now()).await?;
    let standings: BTreeMap<Revision, Standing> = standings.into_iter().collect();
    let unknown = Standing::default();
    let body = |one: StoredRevision| {
        let standing = standings.get(&one.revision).unwrap_or(&unknown);
        RevisionBody::new(one, standing)
    };
    Ok(found.into_iter().map(body).collect())
}

/// One mutation of a domain with what it changed.
#[utoipa::path(get, path = "/api/domains/{d}/revisions/{n}", tag = "history",
    params(("d" = String, Path, description = "The domain's name"), ("n" = i64, Path)),
    responses((status = 200, body = RevisionDetail)))]
async fn get(
    State(app): State<App>,
    auth: Authenticated,
    at: RevisionPath,
    _: Query<NoQuery>,
) -> Result<Json<RevisionDetail>, Problem> {
    let domain = visible(&app, &auth, &at.domain).await?.state;
    let revision = Revision::new(at.revision);
    let found = history::revisions(&app.pool, domain.id, None, Some(revision), 1).await?.pop();
    let missing = || Problem::not_found(format!("revision {revision} of {}", at.domain));
    let known = shown(&app, &domain, found.into_iter().collect()).await?.pop().ok_or_else(missing)?;
    let before = Revision::new(at.revision - 1);
    let stream = StreamRef::domain(domain.id);
    let recorded = app.log.stream(stream, before, revision, REVISION_MAX_EVENTS).await?;
    let events = recorded.into_iter().map(decided).collect::<Result<Vec<_>, Problem>>()?;
    Ok(Json(RevisionDetail { known, changes: diff(&events, &auth.caller.shown.managing) }))
}

/// The event as it was decided.
fn decided(recorded: Recorded) -> Result<NewEvent, Problem> {
    let event = recorded.decode().map_err(|error| {
        tracing::error!(%error, position = %recorded.position, "an event cannot be read");
        Problem::unavailable(format!(
            "the event at position {} cannot be read: run `headwater audit verify`",
            recorded.position
        ))
    })?;
    Ok(NewEvent {
        stream: recorded.stream,
        domain: recorded.domain,
        tenant: recorded.tenant,
        operation: recorded.operation,
        event,
    })
}
