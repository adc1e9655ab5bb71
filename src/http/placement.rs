//! Where a domain's visitors are sent to (administrators): its pool, and on each edge the cells that hold it.

use axum::Json;
use axum::extract::State;
use headwater_edge_wire::cell::{Replicas, place};
use headwater_edge_wire::ids::{CellNumber, DomainId, EdgeId};
use headwater_events::actor::{Resource, Verb};
use headwater_projections::powerdns::SHARED_POOL;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::Problem;
use super::auth::Authenticated;
use super::domains::visible;
use super::path::DomainPath;
use super::query::{NoQuery, Query};
use crate::app::App;
use crate::placement::{self, EdgeFacts, Facts};

/// The routes of this file.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(get))
}

/// Where a domain stands.
#[derive(Debug, Serialize, ToSchema)]
struct Placement {
    /// The pool.
    pool: &'static str,
    /// The name that its proxied names lead to; null before anything was published.
    target: Option<String>,
    /// Every enabled edge.
    edges: Vec<PlacedEdge>,
}

/// An edge that holds a domain.
#[derive(Debug, Serialize, ToSchema)]
struct PlacedEdge {
    /// The edge.
    edge: Uuid,
    /// Its name.
    name: String,
    /// The cells that hold the domain.
    cells: Vec<u8>,
    /// Whether visitors may be sent there.
    ready: bool,
    /// Why not.
    not_ready: Option<String>,
    /// Whether DNS sends visitors there.
    published: bool,
}

/// Where the visitors of a domain are sent to.
#[utoipa::path(get, path = "/api/domains/{d}/placement", tag = "pools",
    params(("d" = String, Path, description = "The domain's name")),
    responses((status = 200, body = Placement)))]
async fn get(
    State(app): State<App>,
    auth: Authenticated,
    DomainPath(name): DomainPath,
    _: Query<NoQuery>,
) -> Result<Json<Placement>, Problem> {
    auth.may(Verb::Read, Resource::Platform, "placements")?;
    let domain = visible(&app, &auth, &name).await?.state.id;
    let facts = placement::load(&app.pool).await?;
    let enabled = facts.edges.iter().filter(|edge| edge.enabled);
    Ok(Json(Placement {
        pool: SHARED_POOL,
        target: facts.endpoints.as_ref().map(|endpoints| format!("{SHARED_POOL}.{}", endpoints.zone)),
        edges: enabled.map(|edge| placed(edge, DomainId::from_uuid(domain.as_uuid()), &facts)).collect(),
    }))
}

fn placed(edge: &EdgeFacts, domain: DomainId, facts: &Facts) -> PlacedEdge {
    let open = edge.cells.iter().filter(|cell| !cell.drained);
    let open: Vec<CellNumber> = open.filter_map(|cell| CellNumber::try_from(cell.cell).ok()).collect();
    let cells = place(EdgeId::from_uuid(edge.id.as_uuid()), domain, &open, Replicas::ONE);
    let state = placement::readiness(edge, facts.minimum_cells);
    PlacedEdge {
        edge: edge.id.as_uuid(),
        name: edge.name.clone(),
        cells: cells.iter().map(|cell| cell.get()).collect(),
        ready: state.is_ok(),
        not_ready: state.err().map(|not| not.why),
        published: facts.publishes(edge.id),
    }
}
