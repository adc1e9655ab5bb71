//! Cells and pools (administrators): the runtimes on edge hosts, and the service classes that they belong to.

use axum::Json;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use headwater_events::actor::{Resource, Verb};
use headwater_events::admin::AdminCommand;
use headwater_events::edge::EdgeCommand;
use headwater_events::ids::{EdgeId, PoolId};
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::auth::Authenticated;
use super::body::NoBody;
use super::dto::Receipt;
use super::dto::edge::{Cell, CellId, Pool};
use super::mutation::Mutation;
use super::page::{Listing, Page, PageParams};
use super::path::IdPath;
use super::query::{FromQuery, NoQuery, Pairs, Query};
use super::{Problem, page};
use crate::app::App;
use crate::command::Command;
use crate::placement;
use crate::query::edges::{self, StoredPool};

/// The routes of this file.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(drain))
        .routes(routes!(undrain))
        .routes(routes!(pools))
        .routes(routes!(pool))
}

/// Which cells are wanted.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
#[allow(dead_code)] // the documentation of what `OfEdge` reads
struct CellListParams {
    /// Of this edge.
    edge: Option<Uuid>,
}

/// `?edge=`.
#[derive(Debug, Clone, Copy)]
struct OfEdge(Option<EdgeId>);

impl FromQuery for OfEdge {
    fn read(pairs: &mut Pairs) -> Self {
        Self(pairs.parsed("edge", |text| text.parse().map_err(|_| "this must be a UUID".to_owned())))
    }
}

/// Cells, by edge and number.
#[utoipa::path(get, path = "/api/cells", tag = "cells", params(CellListParams, PageParams),
    responses((status = 200, body = Vec<Cell>, description = "A page: items and next")))]
async fn list(
    State(app): State<App>,
    auth: Authenticated,
    wanted: Listing<OfEdge, (Uuid, i16)>,
) -> Result<Response, Problem> {
    auth.may(Verb::Read, Resource::Platform, "the list of cells")?;
    let OfEdge(edge) = wanted.filter;
    page::list(wanted, move |after, most| {
        let app = app.clone();
        async move {
            let found = edges::cells(&app.pool, edge, after, most).await?;
            let facts = placement::load(&app.pool).await?;
            let mut ids: Vec<EdgeId> = found.iter().map(|one| one.edge).collect();
            ids.dedup();
            let mut refused = edges::cell_refusals(&app.pool, &ids).await?;
            let keyed = found.into_iter().map(|one| {
                let refusal = refused.remove(&(one.edge, one.number));
                ((one.edge.as_uuid(), one.number), Cell::new(one, &facts, refusal))
            });
            Ok(Page { items: keyed.collect() })
        }
    })
    .await
}

/// Take the domains off a cell: the other cells of its edge take them.
#[utoipa::path(post, path = "/api/cells/{id}/drain", tag = "cells", params(("id" = String, Path)),
    responses((status = 200, body = Receipt)))]
async fn drain(
    State(app): State<App>,
    Path(id): Path<String>,
    mutation: Mutation<NoBody>,
) -> Result<Response, Problem> {
    set_drained(&app, &id, mutation, true).await
}

/// Put domains on a cell again.
#[utoipa::path(post, path = "/api/cells/{id}/undrain", tag = "cells", params(("id" = String, Path)),
    responses((status = 200, body = Receipt)))]
async fn undrain(
    State(app): State<App>,
    Path(id): Path<String>,
    mutation: Mutation<NoBody>,
) -> Result<Response, Problem> {
    set_drained(&app, &id, mutation, false).await
}

async fn set_drained(
    app: &App,
    id: &str,
    mutation: Mutation<NoBody>,
    drained: bool,
) -> Result<Response, Problem> {
    mutation.auth.may(Verb::Write, Resource::Platform, "cells")?;
    let id: CellId = id.parse().map_err(|()| Problem::not_found("a cell of this id"))?;
    let command = EdgeCommand::SetCellDrained { cell: id.number, drained };
    let command = Command::admin(AdminCommand::Edge { edge: id.edge, command });
    Ok(mutation.submit(app, command).await?.into_response())
}

/// Pools.
#[utoipa::path(get, path = "/api/pools", tag = "pools", params(PageParams),
    responses((status = 200, body = Vec<Pool>, description = "A page: items and next")))]
async fn pools(
    State(app): State<App>,
    auth: Authenticated,
    wanted: Listing<NoQuery, Uuid>,
) -> Result<Response, Problem> {
    auth.may(Verb::Read, Resource::Platform, "the list of pools")?;
    page::list(wanted, move |after, most| {
        let app = app.clone();
        async move {
            let found = edges::pools(&app.pool, None, after, most).await?;
            let facts = placement::load(&app.pool).await?;
            let item = |one: StoredPool| (one.id.as_uuid(), Pool::new(one, &facts));
            Ok(Page { items: found.into_iter().map(item).collect() })
        }
    })
    .await
}

/// One pool.
#[utoipa::path(get, path = "/api/pools/{id}", tag = "pools", params(("id" = Uuid, Path)),
    responses((status = 200, body = Pool)))]
async fn pool(
    State(app): State<App>,
    auth: Authenticated,
    IdPath(id): IdPath<PoolId>,
    _: Query<NoQuery>,
) -> Result<Json<Pool>, Problem> {
    auth.may(Verb::Read, Resource::Platform, "pools")?;
    let found = edges::pools(&app.pool, Some(id), None, 1).await?.pop();
    let found = found.ok_or_else(|| Problem::not_found(format!("pool {id}")))?;
    Ok(Json(Pool::new(found, &placement::load(&app.pool).await?)))
}
