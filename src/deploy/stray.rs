//! Zones in a target that no deployment of this log accounts for. Those of others are theirs. Those that Headwater wrote
//! for a domain that this log does not have (as after a restore that lost the domain's creation) are still served, and
//! nothing else would ever tell of them. Both are told and never touched.
//!
//! A look takes the next page of the target's zones, so that a whole walk costs what there is, and a reader of what was
//! found costs what was found. Two may look at once, where a lease was lost in between: a walk goes on from where one of
//! them found it.

use super::cluster::Target;
use super::fault::DeployError;
use super::sql;
use chrono::{DateTime, Utc};
use headwater_projections::powerdns::sql as powerdns_sql;
use sqlx::Row;
use sqlx::postgres::PgPool;
use std::collections::HashSet;
use uuid::Uuid;

/// Zones of one page.
const PAGE_MAX_ZONES: usize = 5_000;

/// A zone that no deployment accounts for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stray {
    /// Its name.
    pub zone: String,
    /// Headwater wrote it, for a domain that this log did not deploy there.
    pub lost: bool,
}

/// A page of a target's zones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Those of them that no deployment accounts for.
    pub strays: Vec<Stray>,
    /// The last zone of the page, where more may follow.
    pub next: Option<String>,
}

/// The strays among the zones that follow `after`, in the order of the target's database.
///
/// # Errors
/// When one of the databases fails.
pub async fn strays(control: &PgPool, target: &Target, after: &str) -> Result<Page, DeployError> {
    let most = i64::try_from(PAGE_MAX_ZONES).unwrap_or(i64::MAX);
    let rows = sqlx::query(powerdns_sql::ZONES_PAGE).bind(after).bind(most).fetch_all(&target.pool).await;
    let read = |row: &sqlx::postgres::PgRow| Ok((row.try_get(0)?, row.try_get(1)?));
    let zones: Result<Vec<(String, Option<Uuid>)>, sqlx::Error> =
        rows.map_err(DeployError::target)?.iter().map(read).collect();
    let zones = zones.map_err(DeployError::target)?;
    // A domain's deployment is in the log before its zone is written, so this order of reading finds it.
    let written: Vec<Uuid> = zones.iter().filter_map(|(_, domain)| *domain).collect();
    let unknown = sqlx::query_scalar::<_, Uuid>(sql::NOT_DEPLOYED).bind(target.cluster.id.as_uuid());
    let unknown = unknown.bind(written).fetch_all(control).await.map_err(DeployError::control)?;
    let unknown: HashSet<Uuid> = unknown.into_iter().collect();
    let next = (zones.len() == PAGE_MAX_ZONES).then(|| zones.last().map(|(name, _)| name.clone())).flatten();
    let stray = |(zone, domain): (String, Option<Uuid>)| match domain {
        None => Some(Stray { zone, lost: false }),
        Some(domain) => unknown.contains(&domain).then_some(Stray { zone, lost: true }),
    };
    Ok(Page { strays: zones.into_iter().filter_map(stray).collect(), next })
}

/// Looks at the next page of a target and keeps what was found; at the end of a walk, what it did not find is forgotten.
pub(super) async fn look(control: &PgPool, target: &Target) -> Result<(), DeployError> {
    let cluster = target.cluster.id.as_uuid();
    let found = sqlx::query_as::<_, (String, DateTime<Utc>)>(sql::LOOK_BEGIN).bind(cluster);
    let (after, began) = found.fetch_one(control).await.map_err(DeployError::control)?;
    let page = strays(control, target, &after).await?;
    let (zones, lost): (Vec<String>, Vec<bool>) =
        page.strays.into_iter().map(|stray| (stray.zone, stray.lost)).unzip();
    let keep = sqlx::query(sql::LOOK_FOUND).bind(cluster).bind(zones).bind(lost);
    keep.execute(control).await.map_err(DeployError::control)?;
    let end = if page.next.is_none() { sqlx::query(sql::LOOK_WALKED) } else { sqlx::query(sql::LOOK_NEXT) };
    let end = end.bind(cluster).bind(after).bind(began);
    let end = if let Some(next) = page.next { end.bind(next) } else { end };
    end.execute(control).await.map_err(DeployError::control)?;
    Ok(())
}
