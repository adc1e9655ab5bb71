//! What came of each zone, and how an import stands. It stands beside the log: what the log says of a domain is there
//! whether or not it is told here.

use super::sql;
use crate::operation::Holder;
use chrono::{DateTime, Utc};
use headwater_events::ids::{DomainId, OperationId, TenantId};
use headwater_events::migration::{NotCarried, SourceFault};
use headwater_events::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sqlx::Row;
use sqlx::postgres::{PgPool, PgRow};
use sqlx::types::Json;
use std::collections::BTreeMap;
use utoipa::ToSchema;
use uuid::Uuid;

/// How long reports of imports that have ended are kept.
pub const REPORTS_KEPT_DAYS: i32 = 90;

/// What came of a zone. The names are stored: never rename.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It is here as the source has it, by this import.
    Imported,
    /// It was here like that already.
    Unchanged,
    /// It cannot be taken in; `faults` says why.
    Refused,
    /// It differs from the domain that is here, which stays.
    Skipped,
    /// The source did not give it.
    Failed,
    /// It was changed on both sides since; `conflicts` says where. What is here stays.
    Conflict,
    /// The source has it no more. The domain stays.
    Missing,
}

impl Outcome {
    /// Every one.
    pub const ALL: [Self; 7] = [
        Self::Imported,
        Self::Unchanged,
        Self::Refused,
        Self::Skipped,
        Self::Failed,
        Self::Conflict,
        Self::Missing,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Imported => "imported",
            Self::Unchanged => "unchanged",
            Self::Refused => "refused",
            Self::Skipped => "skipped",
            Self::Failed => "failed",
            Self::Conflict => "conflict",
            Self::Missing => "missing",
        }
    }

    /// The one with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }
}

/// What is told of a zone besides.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    /// What was not taken as it stands.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// What stays behind.
    #[serde(default)]
    pub not_carried: Vec<NotCarried>,
    /// Why it was refused.
    #[serde(default)]
    pub faults: Vec<SourceFault>,
    /// How many faults there are, told or not.
    #[serde(default)]
    pub faults_total: usize,
    /// RRsets that were changed on both sides.
    #[serde(default)]
    pub conflicts: Vec<String>,
}

/// What came of a zone, and what the source said of it.
#[derive(Debug, Clone)]
pub struct Line {
    /// Its name, or what the source calls it.
    pub zone: String,
    /// The domain.
    pub domain: Option<DomainId>,
    /// What came of it.
    pub outcome: Outcome,
    /// Records that are carried.
    pub records: usize,
    /// What is told of it.
    pub told: Told,
    /// Something that changes when the zone does.
    pub marker: Option<String>,
    /// A digest of each RRset, where the source is followed.
    pub base: Option<Vec<u8>>,
}

/// A line as it is shown.
#[derive(Debug, Serialize, ToSchema)]
pub struct ShownLine {
    /// The zone, or what the source calls it where that is no name.
    pub zone: String,
    /// What came of it.
    pub outcome: Outcome,
    /// Records that are carried.
    pub records: i64,
    /// What was not taken as it stands.
    pub warnings: Vec<String>,
    /// What stays behind: `what` it is, its `name` and `type` where it has one, how many (`count`), and why (`detail`).
    #[schema(value_type = Vec<Object>)]
    pub not_carried: Vec<NotCarried>,
    /// Why it was refused: `line` (of a text, else the number of the record), `record`, `code`, `detail`.
    #[schema(value_type = Vec<Object>)]
    pub faults: Vec<SourceFault>,
    /// How many faults there are, told or not.
    pub faults_total: usize,
    /// RRsets that were changed on both sides since, and stay as they are here.
    pub conflicts: Vec<String>,
    /// When that was so.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub at: Option<Timestamp>,
}

impl ShownLine {
    /// A line that is kept nowhere.
    pub fn of(line: Line) -> Self {
        Self::new(line.zone, line.outcome, i64::try_from(line.records).unwrap_or(i64::MAX), line.told, None)
    }

    fn new(zone: String, outcome: Outcome, records: i64, told: Told, at: Option<Timestamp>) -> Self {
        let Told { warnings, not_carried, faults, faults_total, conflicts } = told;
        Self { zone, outcome, records, warnings, not_carried, faults, faults_total, conflicts, at }
    }
}

fn odd(what: &str) -> sqlx::Error {
    sqlx::Error::ColumnDecode { index: what.to_owned(), source: format!("no {what} of ours").into() }
}

fn outcome(name: &str) -> Result<Outcome, sqlx::Error> {
    Outcome::from_name(name).ok_or_else(|| odd("outcome"))
}

fn line(row: &PgRow) -> Result<Line, sqlx::Error> {
    Ok(Line {
        zone: row.try_get(0)?,
        domain: row.try_get::<Option<Uuid>, _>(1)?.map(DomainId::from_uuid),
        outcome: outcome(row.try_get(2)?)?,
        records: usize::try_from(row.try_get::<i64, _>(3)?).unwrap_or(0),
        told: row.try_get::<Json<Told>, _>(4)?.0,
        marker: row.try_get(5)?,
        base: row.try_get(6)?,
    })
}

/// Begins a report, or goes on with it.
pub(super) async fn begin(
    pool: &PgPool,
    holder: &Holder,
    import: OperationId,
    notes: &[NotCarried],
) -> Result<(), sqlx::Error> {
    let query = sqlx::query(sql::BEGIN).bind(&holder.lease).bind(holder.owner).bind(import.as_uuid());
    query.bind(Json(notes)).execute(pool).await?;
    sqlx::query(sql::FORGET).bind(REPORTS_KEPT_DAYS).execute(pool).await.map(|_| ())
}

/// Keeps lines; false when the lease is lost.
pub(super) async fn save(
    pool: &PgPool,
    holder: &Holder,
    import: OperationId,
    lines: &[Line],
) -> Result<bool, sqlx::Error> {
    let told = lines.iter().map(|line| serde_json::to_string(&line.told));
    let told = told.collect::<Result<Vec<_>, _>>().map_err(|error| sqlx::Error::Encode(error.into()))?;
    let records = lines.iter().map(|line| i64::try_from(line.records).unwrap_or(i64::MAX));
    let kept = sqlx::query(sql::SAVE_ZONES)
        .bind(&holder.lease)
        .bind(holder.owner)
        .bind(import.as_uuid())
        .bind(lines.iter().map(|line| line.zone.as_str()).collect::<Vec<_>>())
        .bind(lines.iter().map(|line| line.domain.map(DomainId::as_uuid)).collect::<Vec<_>>())
        .bind(lines.iter().map(|line| line.outcome.name()).collect::<Vec<_>>())
        .bind(records.collect::<Vec<_>>())
        .bind(told)
        .bind(lines.iter().map(|line| line.marker.as_deref()).collect::<Vec<_>>())
        .bind(lines.iter().map(|line| line.base.as_deref()).collect::<Vec<_>>())
        .fetch_all(pool)
        .await?;
    Ok(kept.len() == lines.len())
}

/// What is known of zones.
pub(super) async fn known(
    pool: &PgPool,
    import: OperationId,
    zones: &[String],
) -> Result<BTreeMap<String, Line>, sqlx::Error> {
    let rows = sqlx::query(sql::KNOWN).bind(import.as_uuid()).bind(zones).fetch_all(pool).await?;
    rows.iter().map(|row| line(row).map(|line| (line.zone.clone(), line))).collect()
}

/// Zones that the source had, and has no more.
pub(super) async fn gone(
    pool: &PgPool,
    import: OperationId,
    zones: &[String],
) -> Result<Vec<Line>, sqlx::Error> {
    let rows = sqlx::query(sql::GONE).bind(import.as_uuid()).bind(zones).fetch_all(pool).await?;
    rows.iter().map(line).collect()
}

/// The next lines of a report, by zone.
///
/// # Errors
/// When the database does not answer.
pub async fn page(
    pool: &PgPool,
    import: OperationId,
    after: Option<&str>,
    outcomes: Option<&[Outcome]>,
    most: i64,
) -> Result<Vec<ShownLine>, sqlx::Error> {
    let outcomes = outcomes.map(|all| all.iter().map(|one| one.name()).collect::<Vec<_>>());
    let query = sqlx::query(sql::REPORT).bind(import.as_uuid()).bind(after).bind(outcomes).bind(most);
    let rows = query.fetch_all(pool).await?;
    let shown = |row: &PgRow| {
        let at: DateTime<Utc> = row.try_get(5)?;
        let Json(told): Json<Told> = row.try_get(4)?;
        Ok(ShownLine::new(
            row.try_get(0)?,
            outcome(row.try_get(2)?)?,
            row.try_get(3)?,
            told,
            Some(Timestamp::from(at)),
        ))
    };
    rows.iter().map(shown).collect()
}

/// Those of the tenants that there are.
///
/// # Errors
/// When the database does not answer.
pub async fn tenants(pool: &PgPool, asked: &[TenantId]) -> Result<Vec<TenantId>, sqlx::Error> {
    let asked: Vec<Uuid> = asked.iter().map(|tenant| tenant.as_uuid()).collect();
    let found: Vec<Uuid> = sqlx::query_scalar(sql::TENANTS).bind(asked).fetch_all(pool).await?;
    Ok(found.into_iter().map(TenantId::from_uuid).collect())
}

/// An import as it is shown.
#[derive(Debug, Clone)]
pub struct Shown {
    /// Its operation.
    pub id: OperationId,
    /// Whether its source is followed, and nobody ends that yet.
    pub is_followed: bool,
    /// The resource.
    pub body: Value,
}

fn shown(row: &PgRow) -> Result<Shown, sqlx::Error> {
    let id = OperationId::from_uuid(row.try_get(0)?);
    let operation: &str = row.try_get(1)?;
    let attempts: i32 = row.try_get(2)?;
    let (done, total): (i64, i64) = (row.try_get(3)?, row.try_get(4)?);
    let time =
        |column: usize| row.try_get::<Option<DateTime<Utc>>, _>(column).map(|at| at.map(Timestamp::from));
    let Json(request): Json<Value> = row.try_get(8)?;
    let following: bool = row.try_get(10)?;
    let cutting: Option<Uuid> = row.try_get(11)?;
    let cut_over = time(12)?;
    let cutover: Option<&str> = row.try_get(17)?;
    let is_cutting = cutting.is_some() && !matches!(cutover, Some("failed" | "cancelled"));
    let state = match operation {
        "pending" if attempts > 0 => "running",
        "pending" | "running" | "failed" | "cancelled" => operation,
        _ if cut_over.is_some() => "cut_over",
        _ if following && is_cutting => "cutting_over",
        _ if following => "following",
        _ => "done",
    };
    let error: Option<Value> = row.try_get::<Option<Json<Value>>, _>(5)?.map(|json| json.0);
    let body = json!({
        "id": id, "state": state, "request": request,
        "progress": {"done": done, "total": total, "unit": "zones"},
        "outcomes": row.try_get::<Json<Value>, _>(16)?.0,
        "not_carried": row.try_get::<Json<Value>, _>(9)?.0,
        "error": error, "created_at": time(6)?, "finished_at": time(7)?,
        "follow": {
            "passes": row.try_get::<i64, _>(13)?, "looked_at": time(14)?, "error": row.try_get::<Option<&str>, _>(15)?,
            "cutover": cutting, "cut_over_at": cut_over,
        },
    });
    Ok(Shown { id, is_followed: state == "following", body })
}

/// The next imports, newest first.
///
/// # Errors
/// When the database does not answer.
pub async fn list(pool: &PgPool, before: Option<Uuid>, most: i64) -> Result<Vec<Shown>, sqlx::Error> {
    let rows = sqlx::query(sql::IMPORTS).bind(before).bind(most).fetch_all(pool).await?;
    rows.iter().map(shown).collect()
}

/// One import.
///
/// # Errors
/// When the database does not answer.
pub async fn one(pool: &PgPool, id: OperationId) -> Result<Option<Shown>, sqlx::Error> {
    let row = sqlx::query(sql::IMPORT).bind(id.as_uuid()).fetch_optional(pool).await?;
    row.as_ref().map(shown).transpose()
}
