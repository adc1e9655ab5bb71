//! What agents say is wrong with their hosts, by their last heartbeats: files that do not hold, and changes that this
//! log does not know. It is no fact of the log, so it goes away when a heartbeat no longer says it.

use std::collections::BTreeMap;

use headwater_edge_wire::cell::{Replicas, place};
use headwater_edge_wire::ids as wire;
use headwater_edge_wire::ids::CellNumber;
use headwater_events::ids::EdgeId;
use headwater_events::time::Timestamp;
use sqlx::Row;
use sqlx::postgres::{PgPool, PgRow};
use uuid::Uuid;

use super::{Refusal, STALE_MAX_COUNT, sql};
use crate::query::at;

/// Damaged files that are looked through, at most.
const DAMAGES_MAX_COUNT: i64 = 1_000;
/// The stable names of the reasons.
const DAMAGED: &str = "damaged";
const AHEAD: &str = "ahead";

/// A file of an edge that does not hold.
#[derive(Debug, Clone)]
pub struct Damage {
    /// The edge.
    pub edge: EdgeId,
    file: String,
    domain: Option<(Option<Uuid>, String, i64)>,
    /// Whether it is whole again.
    pub is_mended: bool,
    since: Timestamp,
    cells: Vec<i16>,
}

impl Damage {
    /// The file, and whose it is.
    pub fn what(&self) -> String {
        let mended = if self.is_mended { ", whole again" } else { "" };
        match &self.domain {
            Some((_, domain, revision)) => format!("{} ({domain} revision {revision}){mended}", self.file),
            None => format!("{}{mended}", self.file),
        }
    }

    fn refusal(&self) -> Refusal {
        let (domain, revision) = self
            .domain
            .as_ref()
            .map_or_else(Default::default, |(_, domain, revision)| (domain.clone(), *revision));
        let detail =
            format!("{} does not hold on the disk of the edge, which makes it whole again", self.file);
        Refusal { domain, revision, code: DAMAGED.to_owned(), detail, at: self.since }
    }

    /// The cells that it is about.
    fn cells(&self) -> Vec<i16> {
        if let Some((Some(domain), ..)) = &self.domain {
            let numbers = self.cells.iter().filter_map(|number| u8::try_from(*number).ok());
            let ready: Vec<CellNumber> = numbers.filter_map(|number| number.try_into().ok()).collect();
            let edge = wire::EdgeId::from_uuid(self.edge.as_uuid());
            let placed = place(edge, wire::DomainId::from_uuid(*domain), &ready, Replicas::ONE);
            return placed.iter().map(|cell| i16::from(cell.get())).collect();
        }
        let named = self.file.strip_prefix("cell-").map(|rest| rest.split('/').next().unwrap_or(rest));
        match named.and_then(|number| number.parse().ok()) {
            Some(number) => vec![number],
            None => self.cells.clone(),
        }
    }
}

/// What the last heartbeats of these edges say does not hold; of every enabled edge where none is named.
///
/// # Errors
/// When the database does not answer.
pub async fn damages(pool: &PgPool, edges: Option<&[EdgeId]>) -> Result<Vec<Damage>, sqlx::Error> {
    let query = sqlx::query(sql::DAMAGES).bind(ids(edges)).bind(DAMAGES_MAX_COUNT);
    let read = |row: &PgRow| {
        let (domain, revision): (Option<String>, Option<i64>) = (row.try_get(2)?, row.try_get(3)?);
        let id: Option<Uuid> = row.try_get(6)?;
        Ok(Damage {
            edge: EdgeId::from_uuid(row.try_get(0)?),
            file: row.try_get(1)?,
            domain: domain.zip(revision).map(|(domain, revision)| (id, domain, revision)),
            is_mended: row.try_get(4)?,
            since: at(row, 5)?,
            cells: row.try_get(7)?,
        })
    };
    query.fetch_all(pool).await?.iter().map(read).collect()
}

/// An edge that holds changes which this log does not know.
#[derive(Debug, Clone)]
pub struct Ahead {
    /// The edge.
    pub edge: EdgeId,
    /// What it holds, and what to do.
    pub what: String,
    since: Timestamp,
    cells: Vec<i16>,
}

impl Ahead {
    fn refusal(&self) -> Refusal {
        let (domain, code) = (String::new(), AHEAD.to_owned());
        Refusal { domain, revision: 0, code, detail: self.what.clone(), at: self.since }
    }
}

/// Which of these edges are ahead of the log; of all enabled ones where none is named.
///
/// # Errors
/// When the database does not answer.
pub async fn ahead(pool: &PgPool, edges: Option<&[EdgeId]>) -> Result<Vec<Ahead>, sqlx::Error> {
    let query = sqlx::query(sql::AHEAD).bind(ids(edges)).bind(STALE_MAX_COUNT);
    let read = |row: &PgRow| {
        let (epoch, holds): (i64, i64) = (row.try_get(1)?, row.try_get(2)?);
        let (now, head): (i64, i64) = (row.try_get(3)?, row.try_get(4)?);
        let what = format!(
            "it holds change {holds} of epoch {epoch}, this log ends at {head} of epoch {now}, as after a restore: it \
             serves what it has and takes nothing more until `headwater admin renew-log-id`"
        );
        let (edge, since) = (EdgeId::from_uuid(row.try_get(0)?), at(row, 5)?);
        Ok(Ahead { edge, what, since, cells: row.try_get(6)? })
    };
    query.fetch_all(pool).await?.iter().map(read).collect()
}

fn ids(edges: Option<&[EdgeId]>) -> Option<Vec<Uuid>> {
    edges.map(|edges| edges.iter().map(|edge| edge.as_uuid()).collect())
}

/// The same as refusals, so that they are seen where somebody looks for why a cell does not come along: by edge, with
/// the cells that each is about. An edge that is ahead comes first.
pub(super) async fn as_refusals(
    pool: &PgPool,
    edges: &[EdgeId],
) -> Result<BTreeMap<EdgeId, Vec<(Vec<i16>, Refusal)>>, sqlx::Error> {
    let mut found: BTreeMap<EdgeId, Vec<(Vec<i16>, Refusal)>> = BTreeMap::new();
    for one in ahead(pool, Some(edges)).await? {
        found.entry(one.edge).or_default().push((one.cells.clone(), one.refusal()));
    }
    for one in damages(pool, Some(edges)).await?.into_iter().filter(|one| !one.is_mended) {
        found.entry(one.edge).or_default().push((one.cells(), one.refusal()));
    }
    Ok(found)
}
