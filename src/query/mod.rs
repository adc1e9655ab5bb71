//! Reads of `desired` for the API: rows in, values out. Who may see them is asked by the caller; a list takes the
//! domains that may be seen.

pub mod access;
pub mod accounts;
pub mod asof;
pub mod clusters;
pub mod deployments;
pub mod domains;
pub mod edges;
pub mod history;
pub mod rrsets;
pub mod search;
pub mod sites;
pub mod sql;
pub mod status;
pub mod webhooks;
pub mod zones;

use chrono::{DateTime, Utc};
use headwater_events::actor::Visible;
use headwater_events::ids::TenantId;
use headwater_events::time::Timestamp;
use sqlx::postgres::PgRow;
use sqlx::{ColumnIndex, Row};
use uuid::Uuid;

/// Which domains may be seen, as the statements take it: tenants and single domains (none: all), and names (none: all).
#[derive(Debug)]
struct Shown {
    tenants: Option<Vec<Uuid>>,
    domains: Option<Vec<Uuid>>,
    names: Option<Vec<String>>,
}

impl From<&Visible> for Shown {
    fn from(visible: &Visible) -> Self {
        let owned = visible.owned.as_ref();
        Self {
            tenants: owned.map(|owned| owned.tenants.iter().map(|id| id.as_uuid()).collect()),
            domains: owned.map(|owned| owned.domains.iter().map(|id| id.as_uuid()).collect()),
            names: visible.named.clone(),
        }
    }
}

/// The tenants of a scope, as the statements take them; none: all.
fn tenants(scope: Option<&[TenantId]>) -> Option<Vec<Uuid>> {
    scope.map(|tenants| tenants.iter().map(|tenant| tenant.as_uuid()).collect())
}

pub(crate) fn at<I: ColumnIndex<PgRow>>(row: &PgRow, index: I) -> Result<Timestamp, sqlx::Error> {
    row.try_get::<DateTime<Utc>, I>(index).map(Timestamp::from)
}

fn maybe_at<I: ColumnIndex<PgRow>>(row: &PgRow, index: I) -> Result<Option<Timestamp>, sqlx::Error> {
    Ok(row.try_get::<Option<DateTime<Utc>>, I>(index)?.map(Timestamp::from))
}

/// A value that this program never writes.
fn odd(column: &str) -> sqlx::Error {
    sqlx::Error::ColumnDecode {
        index: column.to_owned(),
        source: "a value that this program never writes".into(),
    }
}
