//! What agents say: heartbeats, what every worker of a cell serves, what was refused. None of it is an event, but for
//! the alarm that two hosts use one identity.

use headwater_edge_wire::protocol::{Applied, Heartbeat, HeartbeatAnswer, Rejected};
use headwater_edge_wire::time::Timestamp as WireTime;
use headwater_events::admin::AdminCommand;
use headwater_events::edge::{CloneSign, EdgeCommand, IdentityCloned};
use headwater_events::ids::EdgeId as LogEdge;
use sqlx::types::Json;

use super::clones::Watch;
use super::manifest::Standing;
use super::peer::{Live, caller};
use super::routes::Control;
use super::sql;
use crate::command::{Command, Meta};
use crate::http::Problem;

/// For how long an older key may be used beside the newer one, in seconds: requests that are under way.
const KEYS_OVERLAP_SECONDS: f64 = 60.0;

/// Takes a heartbeat in.
pub(super) async fn beat(
    control: &Control,
    live: &Live,
    heartbeat: &Heartbeat,
) -> Result<HeartbeatAnswer, Problem> {
    let now = control.app.clock.now();
    if let Some(report) = heartbeat.cells.iter().find(|report| report.cell.get() >= live.cells) {
        let detail = format!("the edge has {} cells, there is no cell {}", live.cells, report.cell);
        return Err(unprocessable("no_such_cell", detail));
    }
    let (edge, source) = (live.edge.as_uuid(), live.peer.source());
    let mut tx = control.app.pool.begin().await?;
    let known: Option<(Json<Watch>, i64)> =
        sqlx::query_as(sql::LOCK_HEARTBEAT).bind(edge).fetch_optional(&mut *tx).await?;
    let (mut watch, damaged) = known.map(|(Json(watch), damaged)| (watch, damaged)).unwrap_or_default();
    let sign = watch.observe(heartbeat.sequence.get(), &source, now);
    let query = sqlx::query(sql::PUT_HEARTBEAT).bind(edge).bind(&live.serial);
    let query = query.bind(heartbeat.sequence.as_i64()).bind(&source).bind(Json(heartbeat));
    let fresh = f64::from(control.app.config.edge_control.fresh_seconds);
    query.bind(Json(&watch)).bind(fresh).execute(&mut *tx).await?;
    sqlx::query(sql::USE_IDENTITY).bind(&live.serial).execute(&mut *tx).await?;
    sqlx::query(sql::VOID_TOKEN).bind(edge).execute(&mut *tx).await?;
    let query = sqlx::query_scalar(sql::IS_OLD_KEY).bind(&live.serial).bind(KEYS_OVERLAP_SECONDS);
    let is_old_key: bool = query.fetch_one(&mut *tx).await?;
    tx.commit().await?;
    metrics::counter!("cdn_edge_heartbeats_total").increment(1);
    note_damage(live, heartbeat, damaged);
    if let Some(sign) = is_old_key.then_some(CloneSign::Keys).or(sign)
        && !live.is_cloned
    {
        report_clone(control, live, sign).await?;
    }
    Ok(HeartbeatAnswer {
        sequence: heartbeat.sequence,
        at: WireTime::from_millis(now.as_millis()),
        heartbeat_seconds: control.app.config.edge_control.heartbeat_seconds,
        has_tasks: false,
    })
}

/// What was found damaged since the last heartbeat stands in the log of this process, also when it is whole again.
fn note_damage(live: &Live, heartbeat: &Heartbeat, before: i64) {
    let more = i64::from(heartbeat.damaged_count).saturating_sub(before);
    if let (Ok(more @ 1..), Some(newest)) = (u64::try_from(more), heartbeat.damaged.last()) {
        let (file, domain) = (&newest.file, newest.domain.as_deref().unwrap_or_default());
        tracing::warn!(edge = %live.edge, more, file, domain, "files on the disk of an edge do not hold");
        metrics::counter!("cdn_edge_damaged_total").increment(more);
    }
}

async fn report_clone(control: &Control, live: &Live, sign: CloneSign) -> Result<(), Problem> {
    tracing::warn!(edge = %live.edge, ?sign, "the identity of an edge seems to be used twice: rotate it");
    metrics::counter!("cdn_edge_clones_total").increment(1);
    let cloned = IdentityCloned { serial: hex::encode(&live.serial), sign };
    let edge = LogEdge::from_uuid(live.edge.as_uuid());
    let command = AdminCommand::Edge { edge, command: EdgeCommand::ReportClone(cloned) };
    // One at a time: two that were decided together would both be told.
    let _one = control.recording.lock().await;
    control.app.commit.submit(caller(live.edge), Command::admin(command), Meta::internal()).await?;
    Ok(())
}

/// Takes in what every worker of a cell serves. It never goes back, and never beyond what there is.
pub(super) async fn applied(control: &Control, live: &Live, applied: &Applied) -> Result<(), Problem> {
    if applied.cell.get() >= live.cells {
        let detail = format!("the edge has {} cells, there is no cell {}", live.cells, applied.cell);
        return Err(unprocessable("no_such_cell", detail));
    }
    let standing = Standing::read(&control.app.pool).await?;
    if (applied.epoch, applied.sequence) > (standing.epoch, standing.head) {
        return Err(standing.told(unprocessable("ahead", "there is no such change yet")));
    }
    let query = sqlx::query(sql::PUT_ACK).bind(live.edge.as_uuid()).bind(i16::from(applied.cell.get()));
    let query = query.bind(applied.epoch.as_i64()).bind(applied.sequence.as_i64());
    query.execute(&control.app.pool).await?;
    let lately: bool = sqlx::query_scalar(sql::PROXIED_LATELY).fetch_one(&control.app.pool).await?;
    if lately {
        control.app.acked.wake();
    }
    Ok(())
}

/// Takes in what an edge refused; names that it does not hold are left out.
pub(super) async fn rejected(control: &Control, live: &Live, rejected: &Rejected) -> Result<(), Problem> {
    let refused = &rejected.refused;
    let names: Vec<&str> = refused.iter().map(|one| one.domain.as_str()).collect();
    let revisions: Vec<i64> = refused.iter().map(|one| one.revision.as_i64()).collect();
    let codes: Vec<&str> = refused.iter().map(|one| one.code.as_str()).collect();
    let details: Vec<&str> = refused.iter().map(|one| one.detail.as_str()).collect();
    let query = sqlx::query(sql::PUT_REFUSALS).bind(live.edge.as_uuid()).bind(names).bind(revisions);
    query.bind(codes).bind(details).execute(&control.app.pool).await?;
    metrics::counter!("cdn_edge_refusals_total").increment(refused.len() as u64);
    Ok(())
}

fn unprocessable(code: &'static str, detail: impl Into<String>) -> Problem {
    Problem::new(axum::http::StatusCode::UNPROCESSABLE_ENTITY, code, detail)
}
