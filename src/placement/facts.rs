//! What is known of the edges, and what was published last, as of one moment.

use headwater_events::edge::Endpoints;
use headwater_events::ids::EdgeId;
use sqlx::Row;
use sqlx::postgres::{PgPool, PgRow};
use sqlx::types::Json;

use super::ready::EdgeFacts;
use super::sql;

/// A change that a cell lacks for longer than this counts against it.
pub const REACH_SECONDS: f64 = 60.0;

/// What a proposal is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// What was published last; none: nothing yet.
    pub endpoints: Option<Endpoints>,
    /// Every edge.
    pub edges: Vec<EdgeFacts>,
    /// Ready cells that an edge must have.
    pub minimum_cells: usize,
}

impl Facts {
    /// Whether DNS sends visitors to an edge.
    pub fn publishes(&self, edge: EdgeId) -> bool {
        self.endpoints
            .iter()
            .flat_map(|endpoints| endpoints.pools.values())
            .any(|edges| edges.contains_key(&edge))
    }

    /// The addresses that DNS answers for a pool with.
    pub fn addresses(&self, pool: &str) -> Vec<String> {
        let published = self.endpoints.iter().flat_map(|endpoints| endpoints.addresses(pool));
        published.map(|address| address.to_string()).collect()
    }
}

/// Reads them.
///
/// # Errors
/// When the database does not answer.
pub async fn load(pool: &PgPool) -> Result<Facts, sqlx::Error> {
    let mut snapshot = pool.begin_with(sql::SNAPSHOT).await?;
    let (endpoints, minimum): (Option<Json<Endpoints>>, i16) =
        sqlx::query_as(sql::PUBLISHED).fetch_one(&mut *snapshot).await?;
    let rows = sqlx::query(sql::EDGES).bind(REACH_SECONDS).fetch_all(&mut *snapshot).await?;
    snapshot.rollback().await?;
    Ok(Facts {
        endpoints: endpoints.map(|Json(endpoints)| endpoints),
        edges: rows.iter().map(edge).collect::<Result<_, _>>()?,
        minimum_cells: usize::try_from(minimum).unwrap_or(1),
    })
}

fn edge(row: &PgRow) -> Result<EdgeFacts, sqlx::Error> {
    let addresses: Vec<String> = row.try_get(2)?;
    let Json(cells) = row.try_get(8)?;
    Ok(EdgeFacts {
        id: EdgeId::from_uuid(row.try_get(0)?),
        name: row.try_get(1)?,
        addresses: addresses.iter().filter_map(|text| text.parse().ok()).collect(),
        enabled: row.try_get(3)?,
        drained: row.try_get(4)?,
        identified: row.try_get(5)?,
        cloned: row.try_get(6)?,
        fresh: row.try_get(7)?,
        cells,
    })
}
