//! Deployments: one domain on one DNS cluster, kept as rows; one domain on one cell of an edge, which follows from how
//! far the cell has come with all changes.

use headwater_events::actor::Visible;
use headwater_events::dns::DomainName;
use headwater_events::ids::{ClusterId, DomainId, EdgeId, Revision, TenantId};
use headwater_events::time::Timestamp;
use sqlx::Row;
use sqlx::postgres::{PgPool, PgRow};
use uuid::Uuid;

use super::{Shown, at, maybe_at, odd, sql};

/// A deployment.
#[derive(Debug, Clone)]
pub struct StoredDeployment {
    /// The domain.
    pub domain: DomainId,
    /// Its name.
    pub name: DomainName,
    /// Its owner.
    pub tenant: TenantId,
    /// The cluster.
    pub cluster: ClusterId,
    /// The cluster's name.
    pub cluster_name: String,
    /// Whether the cluster is deployed to.
    pub enabled: bool,
    /// Whether the zone is meant to be there.
    pub wanted: bool,
    /// The revision that is meant to be there.
    pub desired_revision: Revision,
    /// The revision that is there.
    pub active_revision: Revision,
    /// The SOA serial that is there.
    pub serial: Option<i64>,
    /// `current`, or what else it is.
    pub state: String,
    /// Checksum of what is there, in hex.
    pub checksum: Option<String>,
    /// Tries of the revision so far.
    pub attempts: i32,
    /// When it is tried again.
    pub next_attempt_at: Option<Timestamp>,
    /// Why the last try did not work.
    pub last_error: Option<String>,
    /// Since when the revision is wanted.
    pub desired_at: Timestamp,
    /// When what is there was verified.
    pub verified_at: Option<Timestamp>,
}

/// Which deployments are wanted.
#[derive(Debug, Clone, Default)]
pub struct DeploymentFilter {
    /// In this state.
    pub state: Option<String>,
    /// On this cluster.
    pub target: Option<ClusterId>,
}

fn stored(row: &PgRow) -> Result<StoredDeployment, sqlx::Error> {
    let checksum: Option<Vec<u8>> = row.try_get(13)?;
    Ok(StoredDeployment {
        domain: DomainId::from_uuid(row.try_get(0)?),
        name: DomainName::parse(row.try_get(1)?).map_err(|_| odd("name"))?,
        tenant: TenantId::from_uuid(row.try_get(2)?),
        cluster: ClusterId::from_uuid(row.try_get(4)?),
        cluster_name: row.try_get(5)?,
        enabled: row.try_get(6)?,
        wanted: row.try_get(7)?,
        desired_revision: Revision::new(row.try_get(8)?),
        active_revision: Revision::new(row.try_get(10)?),
        state: row.try_get(12)?,
        checksum: checksum.map(hex::encode),
        serial: row.try_get(14)?,
        attempts: row.try_get(15)?,
        next_attempt_at: maybe_at(row, 16)?,
        last_error: row.try_get(17)?,
        desired_at: at(row, 18)?,
        verified_at: maybe_at(row, 19)?,
    })
}

/// Every deployment of a domain.
///
/// # Errors
/// When the database does not answer.
pub async fn of_domain(pool: &PgPool, domain: DomainId) -> Result<Vec<StoredDeployment>, sqlx::Error> {
    let rows = sqlx::query(sql::DEPLOYMENTS_OF_DOMAIN).bind(domain.as_uuid()).fetch_all(pool).await?;
    rows.iter().map(stored).collect()
}

/// The next deployments.
///
/// # Errors
/// When the database does not answer.
pub async fn page(
    pool: &PgPool,
    visible: &Visible,
    filter: &DeploymentFilter,
    after: Option<(Uuid, Uuid)>,
    most: i64,
) -> Result<Vec<StoredDeployment>, sqlx::Error> {
    let Shown { tenants, domains, names } = visible.into();
    let query = sqlx::query(sql::DEPLOYMENTS).bind(tenants).bind(&filter.state);
    let query = query.bind(filter.target.map(ClusterId::as_uuid));
    let query = query.bind(after.map(|key| key.0)).bind(after.map(|key| key.1));
    query.bind(most).bind(domains).bind(names).fetch_all(pool).await?.iter().map(stored).collect()
}

/// A domain on a cell of an edge.
#[derive(Debug, Clone)]
pub struct CellDeployment {
    /// The edge.
    pub edge: EdgeId,
    /// Which of its cells.
    pub cell: i32,
    /// The edge's name.
    pub edge_name: String,
    /// Whether its edge is heard of.
    pub in_service: bool,
    /// Whether it serves what the newest revision that edges get says.
    pub current: bool,
    /// Why that cannot be served.
    pub refused: Option<String>,
    /// Whether the domain is meant to be there.
    pub wanted: bool,
    /// The newest revision that edges get.
    pub revision: Revision,
    /// Checksum of its artifact, in hex.
    pub checksum: Option<String>,
    /// Since when it is wanted.
    pub desired_at: Timestamp,
    /// When the cell told last how far it has come.
    pub told_at: Option<Timestamp>,
}

/// A domain on each cell.
///
/// # Errors
/// When the database does not answer.
pub async fn on_cells(pool: &PgPool, domain: DomainId) -> Result<Vec<CellDeployment>, sqlx::Error> {
    let rows = sqlx::query(sql::CELLS_OF_DOMAIN).bind(domain.as_uuid()).fetch_all(pool).await?;
    rows.iter().map(on_cell).collect()
}

fn on_cell(row: &PgRow) -> Result<CellDeployment, sqlx::Error> {
    let is_refused = row.try_get::<Option<bool>, _>(5)?.unwrap_or(false);
    let why: Option<String> = row.try_get(6)?;
    // What could not be rendered is nobody's refusal: no cell ever gets it.
    let fault: Option<String> = row.try_get(10)?;
    let checksum: Option<Vec<u8>> = row.try_get(9)?;
    Ok(CellDeployment {
        edge: EdgeId::from_uuid(row.try_get(0)?),
        cell: row.try_get(1)?,
        edge_name: row.try_get(2)?,
        in_service: row.try_get(3)?,
        current: row.try_get::<Option<bool>, _>(4)?.unwrap_or(false),
        refused: fault.or(why.filter(|_| is_refused)),
        wanted: !row.try_get::<bool, _>(8)?,
        revision: Revision::new(row.try_get(7)?),
        checksum: checksum.map(hex::encode),
        desired_at: at(row, 11)?,
        told_at: maybe_at(row, 12)?,
    })
}
