//! How one run of imperative work comes along: its tries, its progress, where it goes on after a crash, what it found.
//! It stands beside the log and is written only by whoever holds the lane's lease; a write that finds the lease lost
//! says so, and the run stops.

use super::sql;
use crate::rebuild::{Difference, Keep, Phase, Progress, RebuildError};
use headwater_events::dns::DomainName;
use headwater_events::ids::{ClusterId, OperationId};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sqlx::Row;
use sqlx::postgres::PgPool;
use sqlx::types::Json;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// Differences that are told one by one; the rest is counted.
pub const TOLD_MAX_COUNT: u64 = 1_000;
/// How far a checkpoint may be behind what is done, where nothing differed.
const SAVE_PAUSE: Duration = Duration::from_millis(500);

/// Under which lease a run is written.
#[derive(Debug, Clone)]
pub(crate) struct Holder {
    pub(crate) lease: String,
    pub(crate) owner: Uuid,
}

/// Where a cluster's walk is.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Place {
    zone: DomainName,
    done: i64,
}

/// What is not in the database yet, with what is.
#[derive(Debug)]
struct Kept {
    checkpoint: BTreeMap<ClusterId, Place>,
    differences: u64,
    fresh: Vec<(i32, String)>,
    saved: Instant,
}

/// One try.
#[derive(Debug)]
pub(super) struct Run {
    pool: PgPool,
    id: OperationId,
    holder: Holder,
    kept: tokio::sync::Mutex<Kept>,
    progress: Mutex<(Option<Progress>, Instant)>,
    /// Set when it is to stop at the next step.
    pub(super) halt: CancellationToken,
}

/// Begins a try and counts it; none when the lease is lost.
pub(super) async fn begin(
    pool: &PgPool,
    id: OperationId,
    holder: &Holder,
    anew: bool,
) -> Result<Option<Run>, sqlx::Error> {
    if anew {
        let forget = sqlx::query(sql::FORGET_DIFFERENCES).bind(id.as_uuid());
        forget.bind(&holder.lease).bind(holder.owner).execute(pool).await?;
    }
    let query = sqlx::query(sql::BEGIN_RUN).bind(id.as_uuid()).bind(&holder.lease).bind(holder.owner);
    let Some(row) = query.bind(anew).fetch_optional(pool).await? else { return Ok(None) };
    let Json(checkpoint): Json<BTreeMap<ClusterId, Place>> = row.try_get(0)?;
    let differences = u64::try_from(row.try_get::<i64, _>(1)?).unwrap_or(0);
    let now = Instant::now();
    Ok(Some(Run {
        pool: pool.clone(),
        id,
        holder: holder.clone(),
        kept: tokio::sync::Mutex::new(Kept { checkpoint, differences, fresh: Vec::new(), saved: now }),
        progress: Mutex::new((None, now)),
        halt: CancellationToken::new(),
    }))
}

impl Run {
    /// Under which lease it is written.
    pub(super) fn holder(&self) -> &Holder {
        &self.holder
    }

    /// Takes a step in; it is written by the next save.
    pub(super) fn step(&self, progress: Progress) {
        *self.progress.lock().unwrap_or_else(PoisonError::into_inner) = (Some(progress), Instant::now());
    }

    /// How long ago the last step was.
    pub(super) fn idle(&self) -> Duration {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner).1.elapsed()
    }

    /// Writes where it stands; false when the lease is lost.
    pub(super) async fn save(&self) -> Result<bool, sqlx::Error> {
        let mut kept = self.kept.lock().await;
        self.write(&mut kept).await
    }

    /// Adds what was found at the end.
    pub(super) async fn found(&self, differences: Vec<Difference>) -> Result<bool, sqlx::Error> {
        let mut kept = self.kept.lock().await;
        add(&mut kept, &differences);
        self.write(&mut kept).await
    }

    /// How many differences were found, told or not.
    pub(super) async fn differences(&self) -> u64 {
        self.kept.lock().await.differences
    }

    async fn write(&self, kept: &mut Kept) -> Result<bool, sqlx::Error> {
        let progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner).0;
        let (numbers, texts): (Vec<i32>, Vec<&str>) =
            kept.fresh.iter().map(|(number, text)| (*number, text.as_str())).unzip();
        fail::fail_point!("operation.before_save");
        let saved = sqlx::query(sql::SAVE_RUN)
            .bind(self.id.as_uuid())
            .bind(&self.holder.lease)
            .bind(self.holder.owner)
            .bind(progress.map(|progress| phase_name(progress.phase)))
            .bind(progress.map_or(0, |progress| progress.done))
            .bind(progress.map_or(0, |progress| progress.total))
            .bind(Json(&kept.checkpoint))
            .bind(i64::try_from(kept.differences).unwrap_or(i64::MAX))
            .bind(numbers)
            .bind(texts)
            .fetch_optional(&self.pool)
            .await?;
        fail::fail_point!("operation.after_save");
        kept.fresh.clear();
        kept.saved = Instant::now();
        Ok(saved.is_some())
    }
}

impl Keep for Run {
    async fn before(&self, cluster: ClusterId) -> Option<(DomainName, i64)> {
        self.kept.lock().await.checkpoint.get(&cluster).map(|place| (place.zone.clone(), place.done))
    }

    async fn done(
        &self,
        cluster: ClusterId,
        zone: &DomainName,
        differences: Vec<Difference>,
    ) -> Result<(), RebuildError> {
        let mut kept = self.kept.lock().await;
        let done = kept.checkpoint.get(&cluster).map_or(0, |place| place.done) + 1;
        kept.checkpoint.insert(cluster, Place { zone: zone.clone(), done });
        add(&mut kept, &differences);
        let is_due = !kept.fresh.is_empty() || kept.saved.elapsed() >= SAVE_PAUSE;
        if is_due && !self.write(&mut kept).await? {
            self.halt.cancel();
        }
        if self.halt.is_cancelled() { Err(RebuildError::Stopped) } else { Ok(()) }
    }
}

fn add(kept: &mut Kept, differences: &[Difference]) {
    for difference in differences {
        kept.differences += 1;
        if let (true, Ok(number)) = (kept.differences <= TOLD_MAX_COUNT, i32::try_from(kept.differences)) {
            let mut value = json!(difference);
            value["detail"] = Value::String(difference.to_string());
            kept.fresh.push((number, value.to_string()));
        }
    }
}

/// Puts the next try off; it counts, or it was given back.
pub(super) async fn put_off(
    pool: &PgPool,
    id: OperationId,
    holder: &Holder,
    pause: Duration,
    why: Option<&str>,
    counts: bool,
) -> Result<(), sqlx::Error> {
    let query = sqlx::query(sql::PUT_OFF_RUN).bind(id.as_uuid()).bind(&holder.lease).bind(holder.owner);
    query.bind(pause.as_secs_f64()).bind(why).bind(counts).execute(pool).await.map(|_| ())
}

fn phase_name(phase: Phase) -> String {
    json!(phase).as_str().unwrap_or_default().to_owned()
}

/// What is counted in a phase of a rebuild or a verification.
pub(super) fn unit(phase: &str, is_powerdns: bool) -> &'static str {
    match phase {
        _ if is_powerdns => "zones",
        "fold" => "events",
        "compare" => "tables",
        "undo" => "domains",
        "import" | "answers" | "remove" => "zones",
        _ => "steps",
    }
}
