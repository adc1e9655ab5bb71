//! Edges (administrators): make known, read, change, enrol anew, enable, disable, drain, delete.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use headwater_events::actor::{Resource, Verb};
use headwater_events::admin::AdminCommand;
use headwater_events::edge::{EdgeCommand, EdgePatch, RevocationReason};
use headwater_events::event::Labels;
use headwater_events::ids::EdgeId;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::auth::Authenticated;
use super::body::{FromBody, NoBody};
use super::dto::Receipt;
use super::dto::edge::{Cell, Edge, EdgeDetail, Enrolment, NewEdge, PatchedEdge, SentEdge, unreachable};
use super::mutation::{Mutation, Submitted};
use super::page::{Listing, Page, PageParams};
use super::path::IdPath;
use super::query::{FromQuery, NoQuery, Pairs, Query};
use super::{Problem, answer, page};
use crate::app::App;
use crate::command::{Aside, Command};
use crate::edge::token::{self, Drawn};
use crate::placement;
use crate::query::edges::{self, EdgeFilter, StoredCell, StoredEdge};

/// The routes of this file.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list, create))
        .routes(routes!(get, patch, delete))
        .routes(routes!(rotate))
        .routes(routes!(enable))
        .routes(routes!(disable))
        .routes(routes!(drain))
        .routes(routes!(undrain))
}

/// Which edges are wanted.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
#[allow(dead_code)] // the documentation of what `EdgeFilter` reads
struct EdgeListParams {
    /// With this label, as `key=value`; may be repeated.
    label: Option<Vec<String>>,
    /// With this external id.
    external_id: Option<String>,
}

impl FromQuery for EdgeFilter {
    fn read(pairs: &mut Pairs) -> Self {
        let mut labels = Labels::new();
        for label in pairs.all("label") {
            match label.split_once('=') {
                Some((key, value)) => {
                    labels.insert(key.to_owned(), value.to_owned());
                }
                None => pairs.fault("invalid_label", "label: write it as key=value".to_owned()),
            }
        }
        let external_id = pairs.parsed("external_id", |text| Ok::<_, String>(text.to_owned()));
        Self { id: None, external_id, labels }
    }
}

/// Edges, oldest first.
#[utoipa::path(get, path = "/api/edges", tag = "edges", params(EdgeListParams, PageParams),
    responses((status = 200, body = Vec<Edge>, description = "A page: items and next")))]
async fn list(
    State(app): State<App>,
    auth: Authenticated,
    wanted: Listing<EdgeFilter, Uuid>,
) -> Result<Response, Problem> {
    auth.may(Verb::Read, Resource::Platform, "the list of edges")?;
    let filter = wanted.filter.clone();
    page::list(wanted, move |after, most| {
        let (app, filter) = (app.clone(), filter.clone());
        async move {
            let found = edges::page(&app.pool, &filter, after, most).await?;
            let facts = placement::load(&app.pool).await?;
            let shown = found.into_iter().map(|one| (one.id.as_uuid(), Edge::new(one, &facts)));
            Ok(Page { items: shown.collect() })
        }
    })
    .await
}

/// Make an edge known. The token that enrols it is shown once.
#[utoipa::path(post, path = "/api/edges", tag = "edges", request_body = NewEdge,
    responses((status = 201, body = Enrolment)))]
async fn create(State(app): State<App>, mutation: Mutation<SentEdge>) -> Result<Response, Problem> {
    let (mutation, sent) = mutation.split();
    reachable(&app, &mutation, &sent.addresses)?;
    let edge = EdgeId::from_uuid(Uuid::now_v7());
    let location = |edge: Uuid| format!("/api/edges/{edge}");
    match enrol(&app, &mutation, edge, EdgeCommand::Create(sent.created, sent.addresses)).await? {
        Enrolled::Plan(plan) => Ok(plan),
        Enrolled::Done(outcome, enrolment) => {
            Ok(answer::created(&outcome, &location(outcome.stream), &enrolment))
        }
    }
}

/// Refuses addresses that visitors cannot reach; after it is known that the caller may have edges at all.
fn reachable<T>(app: &App, mutation: &Mutation<T>, addresses: &[std::net::IpAddr]) -> Result<(), Problem> {
    mutation.auth.may(Verb::Write, Resource::Platform, "edges")?;
    let faults = unreachable(addresses, &app.config.sites.destinations);
    if faults.is_empty() { Ok(()) } else { Err(Problem::invalid(faults)) }
}

/// What submitting a command with a token came to.
enum Enrolled {
    Plan(Response),
    Done(Box<crate::command::Outcome>, Enrolment),
}

/// Submits a command together with a new token for its edge. A repeated answer has no token: it was shown once.
async fn enrol<T: Send + Sync>(
    app: &App,
    mutation: &Mutation<T>,
    edge: EdgeId,
    command: EdgeCommand,
) -> Result<Enrolled, Problem> {
    mutation.auth.may(Verb::Write, Resource::Platform, "edges")?;
    let drawn = if mutation.is_dry_run() { None } else { Some(token::draw(app, edge).await?) };
    let aside = drawn.as_ref().map_or(Aside::Nothing, |drawn| drawn.aside.clone());
    let command = AdminCommand::Edge { edge, command };
    let outcome = match mutation.submit(app, Command::Admin { command, aside }).await? {
        Submitted::Done(outcome) => outcome,
        plan => return Ok(Enrolled::Plan(plan.into_response())),
    };
    let shown = drawn.filter(|_| !outcome.replayed);
    let line = |drawn: &Drawn| token::command(app, edge, &drawn.text).expose().to_owned();
    let enrolment = Enrolment {
        id: outcome.stream,
        command: shown.as_ref().map(line),
        bootstrap_token: shown.map(|drawn| drawn.text.expose().to_owned()),
    };
    Ok(Enrolled::Done(Box::new(outcome), enrolment))
}

async fn one(app: &App, id: EdgeId) -> Result<StoredEdge, Problem> {
    let filter = EdgeFilter { id: Some(id), ..EdgeFilter::default() };
    let found = edges::page(&app.pool, &filter, None, 1).await?.pop();
    found.ok_or_else(|| Problem::not_found(format!("edge {id}")))
}

/// One edge: what it is to hold, what it serves, and how it is.
#[utoipa::path(get, path = "/api/edges/{id}", tag = "edges", params(("id" = Uuid, Path)),
    responses((status = 200, body = EdgeDetail)))]
async fn get(
    State(app): State<App>,
    auth: Authenticated,
    IdPath(id): IdPath<EdgeId>,
    _: Query<NoQuery>,
) -> Result<Json<EdgeDetail>, Problem> {
    auth.may(Verb::Read, Resource::Platform, "edges")?;
    let stored = one(&app, id).await?;
    let lag = edges::lag(&app.pool, stored.acked.unwrap_or(0)).await?;
    let most = i64::from(headwater_events::edge::CELLS_MAX_COUNT);
    let cells = edges::cells(&app.pool, Some(id), None, most).await?;
    let facts = placement::load(&app.pool).await?;
    let mut refused = edges::cell_refusals(&app.pool, &[id]).await?;
    let mut shown = |cell: StoredCell| {
        let refusal = refused.remove(&(cell.edge, cell.number));
        Cell::new(cell, &facts, refusal)
    };
    Ok(Json(EdgeDetail {
        edge: Edge::new(stored, &facts),
        lag,
        cell_states: cells.into_iter().map(&mut shown).collect(),
        refusals: edges::refusals(&app.pool, id).await?,
    }))
}

/// Change what is said of an edge.
#[utoipa::path(patch, path = "/api/edges/{id}", tag = "edges", request_body = PatchedEdge,
    params(("id" = Uuid, Path)), responses((status = 200, body = Edge)))]
async fn patch(
    State(app): State<App>,
    IdPath(edge): IdPath<EdgeId>,
    mutation: Mutation<EdgePatch>,
) -> Result<Response, Problem> {
    let (mutation, patch) = mutation.split();
    reachable(&app, &mutation, patch.addresses.as_deref().unwrap_or_default())?;
    let command = Command::admin(AdminCommand::Edge { edge, command: EdgeCommand::Update(patch) });
    match mutation.submit(&app, command).await? {
        Submitted::Done(outcome) => {
            let facts = placement::load(&app.pool).await?;
            Ok(answer::resource(&outcome, &Edge::new(one(&app, edge).await?, &facts)))
        }
        plan => Ok(plan.into_response()),
    }
}

async fn carry_out<T: FromBody + Sync>(
    app: &App,
    mutation: Mutation<T>,
    edge: EdgeId,
    command: EdgeCommand,
    aside: Aside,
) -> Result<Response, Problem> {
    let command = Command::Admin { command: AdminCommand::Edge { edge, command }, aside };
    Ok(mutation.submit(app, command).await?.into_response())
}

/// Forget an edge; it must be disabled. Its name is free again.
#[utoipa::path(delete, path = "/api/edges/{id}", tag = "edges", params(("id" = Uuid, Path)),
    responses((status = 200, body = Receipt)))]
async fn delete(
    State(app): State<App>,
    IdPath(edge): IdPath<EdgeId>,
    mutation: Mutation<NoBody>,
) -> Result<Response, Problem> {
    carry_out(&app, mutation, edge, EdgeCommand::Delete, Aside::EdgeGone { edge }).await
}

/// End every identity of an edge at once, and give it a new token.
#[utoipa::path(post, path = "/api/edges/{id}/rotate-identity", tag = "edges", params(("id" = Uuid, Path)),
    responses((status = 200, body = Enrolment)))]
async fn rotate(
    State(app): State<App>,
    IdPath(edge): IdPath<EdgeId>,
    mutation: Mutation<NoBody>,
) -> Result<Response, Problem> {
    let command = EdgeCommand::RevokeIdentity(RevocationReason::Rotated);
    match enrol(&app, &mutation, edge, command).await? {
        Enrolled::Plan(plan) => Ok(plan),
        Enrolled::Done(outcome, enrolment) => Ok(answer::resource(&outcome, &enrolment)),
    }
}

/// Answer an edge again.
#[utoipa::path(post, path = "/api/edges/{id}/enable", tag = "edges", params(("id" = Uuid, Path)),
    responses((status = 200, body = Receipt)))]
async fn enable(
    State(app): State<App>,
    IdPath(edge): IdPath<EdgeId>,
    mutation: Mutation<NoBody>,
) -> Result<Response, Problem> {
    carry_out(&app, mutation, edge, EdgeCommand::SetEnabled(true), Aside::Nothing).await
}

/// Answer an edge no longer, from its next request on; what it serves stays as it is.
#[utoipa::path(post, path = "/api/edges/{id}/disable", tag = "edges", params(("id" = Uuid, Path)),
    responses((status = 200, body = Receipt)))]
async fn disable(
    State(app): State<App>,
    IdPath(edge): IdPath<EdgeId>,
    mutation: Mutation<NoBody>,
) -> Result<Response, Problem> {
    carry_out(&app, mutation, edge, EdgeCommand::SetEnabled(false), Aside::Nothing).await
}

/// Send an edge no new visitors: DNS stops answering with it at once, and it serves those that still come. The last one
/// goes only by `?allow=last_endpoint`.
#[utoipa::path(post, path = "/api/edges/{id}/drain", tag = "edges", params(("id" = Uuid, Path)),
    responses((status = 200, body = Receipt)))]
async fn drain(
    State(app): State<App>,
    IdPath(edge): IdPath<EdgeId>,
    mutation: Mutation<NoBody>,
) -> Result<Response, Problem> {
    carry_out(&app, mutation, edge, EdgeCommand::SetDrained(true), Aside::Nothing).await
}

/// Send an edge visitors again.
#[utoipa::path(post, path = "/api/edges/{id}/undrain", tag = "edges", params(("id" = Uuid, Path)),
    responses((status = 200, body = Receipt)))]
async fn undrain(
    State(app): State<App>,
    IdPath(edge): IdPath<EdgeId>,
    mutation: Mutation<NoBody>,
) -> Result<Response, Problem> {
    carry_out(&app, mutation, edge, EdgeCommand::SetDrained(false), Aside::Nothing).await
}
