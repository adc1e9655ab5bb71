//! `operations`, `audit` and `edge`, which follow the log by a cursor: built anew, or
//! compared, in one transaction, so that a reader sees the old rows or the new
//! ones, and a crash leaves the old ones. The cursor's row is locked meanwhile:
//! whoever follows the log waits, and goes on from where this ends.

pub(super) mod sql;

use self::sql::Table;
use super::{Difference, Kind, Phase, Progress, RebuildError, Watch};
use crate::app::App;
use crate::store::read::PAGE_MAX_EVENTS;
use headwater_events::dns::DomainName;
use headwater_events::ids::Position;
use headwater_projections::follow::{Logged, Projection};
use serde_json::{Value, json};
use sqlx::postgres::{PgConnection, PgTransaction};
use sqlx::{AssertSqlSafe, Executor, Row};

/// Differences of one table that are told.
const DIFFERENCES_MAX_COUNT: i64 = 1_000;
/// How often a snapshot is taken anew because the cursor moved while it was taken.
const SNAPSHOT_MAX_TRIES: usize = 50;

/// Builds the projection anew.
pub(super) async fn rebuild<P: Projection>(
    app: &App,
    projection: &P,
    tables: &[Table],
    watch: Watch<'_>,
) -> Result<(), RebuildError> {
    // One snapshot, so that what is read besides the log is as of the head. What an append adds after this stays:
    // its events stand above the head that is read next.
    let (mut transaction, _cursor) = snapshot::<P>(app).await?;
    clear(&mut transaction, tables).await?;
    let head = head(&mut transaction).await?;
    fold(app, projection, &mut transaction, Position::ZERO, head, watch).await?;
    let set = sqlx::query(sql::SET_CURSOR).bind(P::NAME).bind(P::VERSION).bind(head.get());
    set.execute(&mut *transaction).await?;
    fail::fail_point!("rebuild.followed.before_commit");
    transaction.commit().await?;
    projection.committed(head);
    watch(Progress { phase: Phase::Switch, done: head.get(), total: head.get() });
    Ok(())
}

/// Compares it; of a domain, what concerns it.
pub(super) async fn verify<P: Projection>(
    app: &App,
    projection: &P,
    tables: &[Table],
    domain: Option<&DomainName>,
    watch: Watch<'_>,
) -> Result<Vec<Difference>, RebuildError> {
    let mut found = compare(app, projection, tables, watch).await?;
    if let Some(name) = domain {
        let concerns = |row: &Value| row["domain"] == name.as_str();
        found.retain(|one| concerns(&one.live) || concerns(&one.expected));
    }
    Ok(found)
}

async fn compare<P: Projection>(
    app: &App,
    projection: &P,
    tables: &[Table],
    watch: Watch<'_>,
) -> Result<Vec<Difference>, RebuildError> {
    let (mut transaction, cursor) = snapshot::<P>(app).await?;
    let head = head(&mut transaction).await?;
    // The live rows first come up to the head, as their follower would bring them.
    fold(app, projection, &mut transaction, cursor, head, watch).await?;
    for (number, table) in tables.iter().enumerate() {
        transaction.execute(AssertSqlSafe(sql::keep(table, number))).await?;
    }
    clear(&mut transaction, tables).await?;
    fold(app, projection, &mut transaction, Position::ZERO, head, watch).await?;
    let mut found = Vec::new();
    for (number, table) in tables.iter().enumerate() {
        watch(Progress { phase: Phase::Compare, done: number as i64, total: tables.len() as i64 });
        let query = sqlx::query(AssertSqlSafe(sql::compare(table, number)));
        let rows = query.bind(table.key).bind(DIFFERENCES_MAX_COUNT).fetch_all(&mut *transaction).await?;
        for row in rows {
            let (live, value): (bool, Value) = (row.try_get(0)?, row.try_get(1)?);
            let key = json!([value[table.key]]);
            let (live, expected) = if live { (value, Value::Null) } else { (Value::Null, value) };
            found.push(Difference::of_row(table.name.to_owned(), key, live, expected));
        }
    }
    let total = tables.len() as i64;
    watch(Progress { phase: Phase::Compare, done: total, total });
    // All of this was only to look.
    transaction.rollback().await?;
    Ok(paired(found))
}

/// A row that is on both sides in two forms is one difference.
fn paired(found: Vec<Difference>) -> Vec<Difference> {
    let mut paired: Vec<Difference> = Vec::new();
    for one in found {
        match paired.last_mut() {
            Some(last) if last.table == one.table && last.key == one.key && last.expected.is_null() => {
                last.expected = one.expected;
                last.kind = Kind::Changed;
            }
            _ => paired.push(one),
        }
    }
    paired
}

/// A snapshot in which the cursor is ours.
async fn snapshot<P: Projection>(app: &App) -> Result<(PgTransaction<'static>, Position), RebuildError> {
    let mut last = None;
    for _ in 0..SNAPSHOT_MAX_TRIES {
        let mut transaction = app.pool.begin().await?;
        transaction.execute(sql::SNAPSHOT).await?;
        transaction.execute(sql::PATIENCE).await?;
        let query = sqlx::query_scalar::<_, i64>(sql::LOCK_CURSOR).bind(P::NAME);
        match query.fetch_optional(&mut *transaction).await {
            Ok(cursor) => return Ok((transaction, Position::new(cursor.unwrap_or(0)))),
            Err(error) => {
                // 40001: it moved after the snapshot was taken.
                let moved =
                    error.as_database_error().and_then(|e| e.code()).is_some_and(|code| code == "40001");
                if !moved {
                    return Err(error.into());
                }
                last = Some(error);
            }
        }
    }
    Err(last.map_or(RebuildError::Busy, Into::into))
}

async fn clear(connection: &mut PgConnection, tables: &[Table]) -> Result<(), sqlx::Error> {
    for table in tables {
        connection.execute(AssertSqlSafe(sql::clear(table))).await?;
    }
    Ok(())
}

async fn head(connection: &mut PgConnection) -> Result<Position, sqlx::Error> {
    sqlx::query_scalar(sql::HEAD).fetch_one(connection).await.map(Position::new)
}

/// Folds the events after a position, up to and with another.
async fn fold<P: Projection>(
    app: &App,
    projection: &P,
    connection: &mut PgConnection,
    after: Position,
    up_to: Position,
    watch: Watch<'_>,
) -> Result<(), RebuildError> {
    let mut at = after;
    while at < up_to {
        watch(Progress { phase: Phase::Fold, done: at.get(), total: up_to.get() });
        let mut page = Vec::new();
        for recorded in app.log.page(at, PAGE_MAX_EVENTS.min(up_to.get() - at.get())).await? {
            let position = recorded.position;
            let event = recorded.decode().map_err(|source| RebuildError::Poison { position, source })?;
            page.push(Logged { recorded, event });
        }
        let Some(last) = page.last() else { break };
        at = last.recorded.position;
        projection.apply(connection, &page).await?;
    }
    Ok(())
}
