//! Edges with what was last heard of them, their cells, and the pools.

pub mod faults;
pub mod sql;

use std::collections::BTreeMap;

use headwater_edge_wire::cell::{Replicas, place};
use headwater_edge_wire::ids as wire;
use headwater_edge_wire::ids::CellNumber;
use headwater_events::event::Labels;
use headwater_events::ids::{EdgeId, PoolId, Revision};
use headwater_events::time::Timestamp;
use serde::Serialize;
use serde_json::Value;
use sqlx::Row;
use sqlx::postgres::{PgPool, PgRow};
use sqlx::types::Json;
use utoipa::ToSchema;
use uuid::Uuid;

use super::{at, maybe_at};

/// Refusals of an edge that are shown, at most.
pub const REFUSALS_MAX_COUNT: i64 = 20;
/// Refusals that are looked through for those of single cells, at most.
const CELL_REFUSALS_MAX_COUNT: i64 = 1_000;
/// Edges that `GET /status` tells of, at most.
pub const STALE_MAX_COUNT: i64 = 100;

/// Which edges are wanted.
#[derive(Debug, Clone, Default)]
pub struct EdgeFilter {
    /// This one.
    pub id: Option<EdgeId>,
    /// Those with this external id.
    pub external_id: Option<String>,
    /// Those with these labels.
    pub labels: Labels,
}

/// The identity of an edge.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct StoredIdentity {
    /// The serial number of its certificate, in hex.
    pub serial: String,
    /// SHA-256 of its public key, in hex.
    pub key: Option<String>,
    /// When its certificate ends.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub not_after: Option<Timestamp>,
    /// What told that it is used twice: `keys`, `sources` or `counters`.
    pub cloned: Option<String>,
    /// Since when.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub cloned_at: Option<Timestamp>,
}

/// An edge.
#[derive(Debug, Clone)]
pub struct StoredEdge {
    /// Its id.
    pub id: EdgeId,
    /// Its name.
    pub name: String,
    /// Where it is.
    pub country: String,
    /// Where it is.
    pub continent: String,
    /// How many cells it has.
    pub cells: i16,
    /// Its public addresses.
    pub addresses: Vec<String>,
    /// Labels.
    pub labels: Labels,
    /// The operator's own number for it.
    pub external_id: Option<String>,
    /// Whether it is answered.
    pub enabled: bool,
    /// Whether it gets no visitors.
    pub drained: bool,
    /// What it proves itself with.
    pub identity: Option<StoredIdentity>,
    /// Its revision.
    pub revision: Revision,
    /// When it was made.
    pub created_at: Timestamp,
    /// Its last heartbeat.
    pub heartbeat_at: Option<Timestamp>,
    /// Where that came from.
    pub source: Option<String>,
    /// The version of its agent.
    pub agent: Option<String>,
    /// Enabled, and heard of lately.
    pub in_service: bool,
    /// Whether it has a token and no identity yet.
    pub awaits_registration: bool,
    /// The last change that every cell with domains serves; none before each has said so.
    pub acked: Option<i64>,
    /// The newest change there is.
    pub desired: i64,
}

/// The next edges, oldest first.
///
/// # Errors
/// When the database does not answer.
pub async fn page(
    pool: &PgPool,
    filter: &EdgeFilter,
    after: Option<Uuid>,
    most: i64,
) -> Result<Vec<StoredEdge>, sqlx::Error> {
    let labels = (!filter.labels.is_empty()).then_some(Json(&filter.labels));
    let query = sqlx::query(sql::EDGES).bind(filter.id.map(EdgeId::as_uuid)).bind(after).bind(most);
    let query = query.bind(&filter.external_id).bind(labels);
    query.fetch_all(pool).await?.iter().map(stored).collect()
}

fn stored(row: &PgRow) -> Result<StoredEdge, sqlx::Error> {
    let Json(labels) = row.try_get(5)?;
    let identity = match row.try_get(9)? {
        None => None,
        Some(serial) => Some(StoredIdentity {
            serial,
            key: row.try_get(10)?,
            not_after: maybe_at(row, 11)?,
            cloned: row.try_get(12)?,
            cloned_at: maybe_at(row, 13)?,
        }),
    };
    let desired: i64 = row.try_get(22)?;
    // It follows the whole log; what is after the newest change of edges is none of it.
    let acked = row.try_get::<Option<i64>, _>(21)?.map(|acked| acked.min(desired));
    Ok(StoredEdge {
        id: EdgeId::from_uuid(row.try_get(0)?),
        name: row.try_get(1)?,
        country: row.try_get(2)?,
        continent: row.try_get(3)?,
        cells: row.try_get(4)?,
        labels,
        external_id: row.try_get(6)?,
        enabled: row.try_get(7)?,
        drained: row.try_get(8)?,
        identity,
        revision: Revision::new(row.try_get(14)?),
        created_at: at(row, 15)?,
        heartbeat_at: maybe_at(row, 16)?,
        source: row.try_get(17)?,
        agent: row.try_get(18)?,
        in_service: row.try_get(19)?,
        awaits_registration: row.try_get(20)?,
        acked,
        desired,
        addresses: row.try_get(23)?,
    })
}

/// How many changes come after one.
///
/// # Errors
/// When the database does not answer.
pub async fn lag(pool: &PgPool, after: i64) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar(sql::LAG).bind(after).fetch_one(pool).await
}

/// A cell.
#[derive(Debug, Clone)]
pub struct StoredCell {
    /// Its edge.
    pub edge: EdgeId,
    /// The edge's name.
    pub edge_name: String,
    /// Which, from 0.
    pub number: i16,
    /// Whether domains were taken off it.
    pub drained: bool,
    /// The last change that every worker of it serves.
    pub acked: Option<i64>,
    /// When it said so.
    pub acked_at: Option<Timestamp>,
    /// What its agent said of it last.
    pub report: Option<Value>,
    /// Its edge is enabled and was heard of lately.
    pub in_service: bool,
    /// The newest change there is.
    pub desired: i64,
    /// How many changes it does not serve yet.
    pub lag: i64,
}

/// The next cells, by edge and number.
///
/// # Errors
/// When the database does not answer.
pub async fn cells(
    pool: &PgPool,
    edge: Option<EdgeId>,
    after: Option<(Uuid, i16)>,
    most: i64,
) -> Result<Vec<StoredCell>, sqlx::Error> {
    let query = sqlx::query(sql::CELLS).bind(edge.map(EdgeId::as_uuid)).bind(after.map(|after| after.0));
    let query = query.bind(after.map(|after| after.1)).bind(most);
    query.fetch_all(pool).await?.iter().map(stored_cell).collect()
}

fn stored_cell(row: &PgRow) -> Result<StoredCell, sqlx::Error> {
    let (epoch, now): (Option<i64>, i64) = (row.try_get(4)?, row.try_get(9)?);
    let (acked, desired): (Option<i64>, i64) = (row.try_get(5)?, row.try_get(10)?);
    Ok(StoredCell {
        edge: EdgeId::from_uuid(row.try_get(0)?),
        edge_name: row.try_get(1)?,
        number: row.try_get(2)?,
        drained: row.try_get(3)?,
        // What was acknowledged before a restore says nothing about the changes of now.
        acked: acked.map(|acked| if epoch == Some(now) { acked.min(desired) } else { 0 }),
        acked_at: maybe_at(row, 6)?,
        report: row.try_get::<Option<Json<Value>>, _>(7)?.map(|Json(report)| report),
        in_service: row.try_get(8)?,
        desired,
        lag: row.try_get(11)?,
    })
}

/// What an edge refused and still refuses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Refusal {
    /// The domain.
    pub domain: String,
    /// Its revision.
    pub revision: i64,
    /// The stable name of the reason.
    pub code: String,
    /// What was wrong.
    pub detail: String,
    /// When.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
}

/// The newest refusals of an edge that are still about what is desired, after what is wrong with its host.
///
/// # Errors
/// When the database does not answer.
pub async fn refusals(pool: &PgPool, edge: EdgeId) -> Result<Vec<Refusal>, sqlx::Error> {
    let query = sqlx::query(sql::REFUSALS).bind(edge.as_uuid()).bind(REFUSALS_MAX_COUNT);
    let mut all = Vec::new();
    for (_, faults) in faults::as_refusals(pool, &[edge]).await? {
        all.extend(faults.into_iter().map(|(_, refusal)| refusal));
    }
    for row in query.fetch_all(pool).await? {
        all.push(refusal(&row)?);
    }
    all.truncate(usize::try_from(REFUSALS_MAX_COUNT).unwrap_or(usize::MAX));
    Ok(all)
}

fn refusal(row: &PgRow) -> Result<Refusal, sqlx::Error> {
    Ok(Refusal {
        domain: row.try_get(0)?,
        revision: row.try_get(1)?,
        code: row.try_get(2)?,
        detail: row.try_get(3)?,
        at: at(row, 4)?,
    })
}

/// Why each cell of these edges does not come along: what is wrong with its host, else the newest refusal of a domain
/// that is placed on it.
///
/// # Errors
/// When the database does not answer.
pub async fn cell_refusals(
    pool: &PgPool,
    edges: &[EdgeId],
) -> Result<BTreeMap<(EdgeId, i16), Refusal>, sqlx::Error> {
    let ids: Vec<Uuid> = edges.iter().map(|edge| edge.as_uuid()).collect();
    let query = sqlx::query(sql::CELL_REFUSALS).bind(ids).bind(CELL_REFUSALS_MAX_COUNT);
    let mut found = BTreeMap::new();
    for (edge, faults) in faults::as_refusals(pool, edges).await? {
        for (cells, refusal) in faults {
            for cell in cells {
                found.entry((edge, cell)).or_insert_with(|| refusal.clone());
            }
        }
    }
    for row in query.fetch_all(pool).await? {
        let (edge, domain): (Uuid, Uuid) = (row.try_get(5)?, row.try_get(6)?);
        let numbers: Vec<i16> = row.try_get(7)?;
        let numbers = numbers.into_iter().filter_map(|number| u8::try_from(number).ok());
        let ready: Vec<CellNumber> = numbers.filter_map(|number| number.try_into().ok()).collect();
        let refusal = refusal(&row)?;
        let (wire_edge, domain) = (wire::EdgeId::from_uuid(edge), wire::DomainId::from_uuid(domain));
        for cell in place(wire_edge, domain, &ready, Replicas::ONE) {
            let cell = (EdgeId::from_uuid(edge), i16::from(cell.get()));
            found.entry(cell).or_insert_with(|| refusal.clone());
        }
    }
    Ok(found)
}

/// A pool.
#[derive(Debug, Clone)]
pub struct StoredPool {
    /// Its id.
    pub id: PoolId,
    /// Its name.
    pub name: String,
    /// Who shares it.
    pub kind: String,
    /// How visitors find its cells.
    pub routing: String,
    /// On how many cells of an edge a domain stands.
    pub replicas_per_edge: i16,
    /// Domains of a cell, at most.
    pub domains_per_cell: i32,
    /// Below so many ready cells an edge gets no visitors of it.
    pub minimum_ready_cells: i16,
    /// Its revision.
    pub revision: Revision,
    /// When it was made.
    pub created_at: Timestamp,
    /// Its cells.
    pub cells: i64,
    /// The edges that they are on.
    pub edges: i64,
}

/// The next pools.
///
/// # Errors
/// When the database does not answer.
pub async fn pools(
    pool: &PgPool,
    id: Option<PoolId>,
    after: Option<Uuid>,
    most: i64,
) -> Result<Vec<StoredPool>, sqlx::Error> {
    let query = sqlx::query(sql::POOLS).bind(id.map(PoolId::as_uuid)).bind(after).bind(most);
    let read = |row: &PgRow| {
        Ok(StoredPool {
            id: PoolId::from_uuid(row.try_get(0)?),
            name: row.try_get(1)?,
            kind: row.try_get(2)?,
            routing: row.try_get(3)?,
            replicas_per_edge: row.try_get(4)?,
            domains_per_cell: row.try_get(5)?,
            minimum_ready_cells: row.try_get(6)?,
            revision: Revision::new(row.try_get(7)?),
            created_at: at(row, 8)?,
            cells: row.try_get(9)?,
            edges: row.try_get(10)?,
        })
    };
    query.fetch_all(pool).await?.iter().map(read).collect()
}

/// An edge that somebody should look at.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct StaleEdge {
    /// Its id.
    pub id: Uuid,
    /// Its name.
    pub name: String,
    /// Its last heartbeat.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub heartbeat_at: Option<Timestamp>,
    /// It has registered, and was not heard of lately.
    pub silent: bool,
    /// Its identity ends within a day.
    pub identity_ends: bool,
    /// What told that its identity is used twice.
    pub cloned: Option<String>,
    /// What does not hold on its disk.
    pub damaged: Vec<String>,
    /// It holds changes that this log does not know: which, and what to do.
    pub ahead: Option<String>,
}

/// Enabled edges that somebody should look at, by name.
///
/// # Errors
/// When the database does not answer.
pub async fn stale(pool: &PgPool) -> Result<Vec<StaleEdge>, sqlx::Error> {
    let mut damaged: BTreeMap<Uuid, Vec<String>> = BTreeMap::new();
    for damage in faults::damages(pool, None).await? {
        damaged.entry(damage.edge.as_uuid()).or_default().push(damage.what());
    }
    let ahead = faults::ahead(pool, None).await?;
    let mut ahead: BTreeMap<Uuid, String> =
        ahead.into_iter().map(|one| (one.edge.as_uuid(), one.what)).collect();
    let faulty: Vec<Uuid> = damaged.keys().chain(ahead.keys()).copied().collect();
    let query = sqlx::query(sql::STALE).bind(STALE_MAX_COUNT).bind(faulty);
    let mut read = |row: &PgRow| {
        let id: Uuid = row.try_get(0)?;
        Ok(StaleEdge {
            id,
            damaged: damaged.remove(&id).unwrap_or_default(),
            ahead: ahead.remove(&id),
            name: row.try_get(1)?,
            heartbeat_at: maybe_at(row, 2)?,
            silent: row.try_get(3)?,
            identity_ends: row.try_get::<Option<bool>, _>(4)?.unwrap_or(false),
            cloned: row.try_get(5)?,
        })
    };
    query.fetch_all(pool).await?.iter().map(&mut read).collect()
}
