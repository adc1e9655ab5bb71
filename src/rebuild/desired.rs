//! `desired` anew from the log, and `desired` against the log.
//!
//! A rebuild works beside the live one: a copy is folded up to the head, then the
//! gate of the append is closed for as long as the last few events and two
//! renames take. Readers see the old one or the new one, never an empty or an
//! older one. Whatever interrupts it leaves the live one as it was.

use super::shadow::{Shadow, run};
use super::{Difference, Phase, Progress, RebuildError, Watch, sql};
use headwater_events::dns::DomainName;
use headwater_events::ids::{DomainId, Position};
use sqlx::postgres::PgPool;
use sqlx::types::Json;
use sqlx::{AssertSqlSafe, Row};
use std::time::{Duration, Instant};
use uuid::Uuid;

/// The version of the shape of `desired`.
pub const VERSION: i32 = 1;
/// Differences of one table that are told, at most.
pub const DIFFERENCES_MAX_COUNT: i64 = 1_000;
/// How often the switch, or the removal of the old one, is tried while others hold locks.
const TRIES_MAX_TIMES: u32 = 15;

const NEXT: &str = "desired_next";
const OLD: &str = "desired_old";
const CHECK: &str = "desired_check";

/// What a rebuild did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rebuilt {
    /// The position at which it took the place of the old one.
    pub position: Position,
    /// For how long nobody could append.
    pub gate_closed: Duration,
}

/// Builds `desired` anew and puts it in the place of the live one, which may be missing.
///
/// # Errors
/// Why it was not switched; the live one is as it was.
pub async fn rebuild(pool: &PgPool, watch: Watch<'_>) -> Result<Rebuilt, RebuildError> {
    watch(Progress { phase: Phase::Prepare, done: 0, total: 1 });
    let mut shadow = Shadow::make(pool, NEXT, &[OLD]).await?;
    let built = fill_and_switch(&mut shadow, watch).await;
    let (position, state, error) = match &built {
        Ok(built) => (built.position, "live", None),
        Err(error) => (shadow.position, "rebuild_failed", Some(error.to_string())),
    };
    // The connection may be what failed; the rebuild's own error tells more than a second one.
    let recorded = sqlx::query(sql::RECORD).bind(VERSION).bind(position.get()).bind(state).bind(error);
    let recorded = recorded.execute(pool).await;
    let built = built?;
    recorded?;
    watch(Progress { phase: Phase::Clean, done: 0, total: 1 });
    clean(&mut shadow).await?;
    watch(Progress { phase: Phase::Clean, done: 1, total: 1 });
    Ok(built)
}

async fn fill_and_switch(shadow: &mut Shadow, watch: Watch<'_>) -> Result<Rebuilt, RebuildError> {
    shadow.catch_up(watch).await?;
    watch(Progress { phase: Phase::Index, done: 0, total: 1 });
    shadow.index().await?;
    let mut tries = 0;
    loop {
        shadow.catch_up(watch).await?;
        watch(Progress { phase: Phase::Switch, done: 0, total: 1 });
        match switch(shadow).await {
            Err(RebuildError::Database(error)) if passes(&error) && tries < TRIES_MAX_TIMES => tries += 1,
            other => return other,
        }
    }
}

/// Closes the gate, takes in the rest, switches. A failure rolls all of it back.
async fn switch(shadow: &mut Shadow) -> Result<Rebuilt, RebuildError> {
    let before = shadow.position;
    run(&mut shadow.connection, sql::BEGIN.to_owned()).await?;
    let switched = closed(shadow).await;
    let end = if switched.is_ok() { sql::COMMIT } else { sql::ROLLBACK };
    let ended = run(&mut shadow.connection, end.to_owned()).await;
    let since = switched.inspect_err(|_| shadow.position = before)?;
    ended?;
    Ok(Rebuilt { position: shadow.position, gate_closed: since.elapsed() })
}

async fn closed(shadow: &mut Shadow) -> Result<Instant, RebuildError> {
    sqlx::query(sql::CLOSE_GATE).execute(&mut shadow.connection).await?;
    let since = Instant::now();
    let head: i64 = sqlx::query_scalar(sql::HEAD).fetch_one(&mut shadow.connection).await?;
    shadow.reach(Position::new(head)).await?;
    run(&mut shadow.connection, sql::switch(NEXT, OLD)).await?;
    Ok(since)
}

/// Removes the old one once its last reader is done.
async fn clean(shadow: &mut Shadow) -> Result<(), RebuildError> {
    let mut tries = 0;
    for schema in [OLD, NEXT] {
        loop {
            match run(&mut shadow.connection, sql::remove(schema)).await {
                Err(RebuildError::Database(error)) if passes(&error) && tries < TRIES_MAX_TIMES => tries += 1,
                other => break other?,
            }
        }
    }
    Ok(())
}

/// A lock that was not to be had (55), or a deadlock that was broken (40).
fn passes(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
    code.is_some_and(|code| code.starts_with("55") || code.starts_with("40"))
}

/// Folds the log anew and compares with the live rows at the same position. With
/// a domain, only its own row and its RRsets, which takes only its own events.
///
/// # Errors
/// Why it could not be compared; differences are not an error.
pub async fn verify(
    pool: &PgPool,
    domain: Option<&DomainName>,
    watch: Watch<'_>,
) -> Result<Vec<Difference>, RebuildError> {
    watch(Progress { phase: Phase::Prepare, done: 0, total: 1 });
    let mut shadow = Shadow::make(pool, CHECK, &[]).await?;
    let domain = match domain {
        Some(name) => Some(holder(&mut shadow, name).await?),
        None => None,
    };
    if domain.is_none() {
        shadow.catch_up(watch).await?;
        shadow.index().await?;
    }
    let compared = in_snapshot(&mut shadow, domain, watch).await;
    run(&mut shadow.connection, sql::ROLLBACK.to_owned()).await?;
    run(&mut shadow.connection, sql::remove(CHECK)).await?;
    compared
}

async fn holder(shadow: &mut Shadow, name: &DomainName) -> Result<DomainId, RebuildError> {
    let found: Option<Uuid> =
        sqlx::query_scalar(sql::DOMAIN).bind(name.as_str()).fetch_optional(&mut shadow.connection).await?;
    found.map(DomainId::from_uuid).ok_or_else(|| RebuildError::NoDomain(name.to_string()))
}

/// The snapshot holds the live rows and the head that they are at. The rest of
/// the log up to it is folded inside, where nobody else sees it.
async fn in_snapshot(
    shadow: &mut Shadow,
    domain: Option<DomainId>,
    watch: Watch<'_>,
) -> Result<Vec<Difference>, RebuildError> {
    run(&mut shadow.connection, sql::SNAPSHOT.to_owned()).await?;
    let head: i64 = sqlx::query_scalar(sql::HEAD).fetch_one(&mut shadow.connection).await?;
    match domain {
        Some(domain) => shadow.reach_domain(domain, Position::new(head)).await?,
        None => shadow.reach(Position::new(head)).await?,
    }
    let total = i64::try_from(sql::COMPARED.len()).unwrap_or(i64::MAX);
    let mut differences = Vec::new();
    for (done, table) in (0_i64..).zip(&sql::COMPARED) {
        watch(Progress { phase: Phase::Compare, done, total });
        let Some(text) = sql::compare(table, CHECK, domain.is_some()) else { continue };
        let query = sqlx::query(AssertSqlSafe(text)).bind(DIFFERENCES_MAX_COUNT);
        let query = query.bind(domain.map(DomainId::as_uuid));
        for row in query.fetch_all(&mut shadow.connection).await? {
            let json = |index| {
                let value: Result<Option<Json<serde_json::Value>>, _> = row.try_get::<_, usize>(index);
                value.map(|value| value.map_or(serde_json::Value::Null, |Json(value)| value))
            };
            differences.push(Difference::of_row(table.name.to_owned(), json(0)?, json(1)?, json(2)?));
        }
    }
    watch(Progress { phase: Phase::Compare, done: total, total });
    Ok(differences)
}
