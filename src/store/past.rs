//! What a rollback must know: which revisions can be gone back to, and what a domain was at one of them. The long read
//! is done before the command is queued, by whoever asks; under the stream's lock only what came since is read, so that
//! no other command waits for the history of one domain, and no writer of the same domain can starve a rollback.

use super::load::Loaded;
use super::{row, sql, undo};
use crate::command::{Command, Request};
use chrono::{DateTime, Utc};
use headwater_events::domain::{
    DomainCommand, DomainState, Milestone, NEUTRAL_TYPES, Past, Retention, RevisionFacts, Rollback, Standing,
    standings as judged,
};
use headwater_events::event::DomainStatus;
use headwater_events::ids::{Position, Revision};
use headwater_events::time::Timestamp;
use sqlx::Row;
use sqlx::postgres::{PgConnection, PgPool};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// Events since a revision that a rollback to it reads, at most.
pub const PAST_MAX_EVENTS: i64 = 500_000;
/// Events of one page of them.
pub(super) const PAGE_MAX_EVENTS: i64 = 2_000;
/// Events that are read under the stream's lock, at most; the rest was read before.
pub(super) const TAIL_MAX_EVENTS: i64 = 1_000;
/// Revisions on either side among which the nearest one that can be gone back to is looked for.
const NEAREST_MAX_REVISIONS: i64 = 500;
/// Revisions further back that are looked at for it: those that are active on a target, or were rolled back to.
const NEAREST_MAX_KEPT: usize = 10;

/// Why the past cannot be told.
#[derive(Debug, thiserror::Error)]
pub enum PastError {
    /// The database did not answer.
    #[error("the log cannot be read: {0}")]
    Database(#[from] sqlx::Error),
    /// An event is not what was written.
    #[error("the event at position {0} cannot be read: run `headwater audit verify`")]
    Unreadable(Position),
    /// Too much happened since.
    #[error(
        "more than {PAST_MAX_EVENTS} events happened since: roll back to a later revision, or put back what matters \
         by itself"
    )]
    TooMuch,
}

impl PastError {
    pub(super) fn into_sql(self) -> sqlx::Error {
        match self {
            Self::Database(error) => error,
            other => sqlx::Error::ColumnDecode { index: "data".to_owned(), source: other.to_string().into() },
        }
    }
}

/// What a domain was at a revision, as far as it is known now, and whether it may be gone back to.
///
/// # Errors
/// When the log cannot be read, or there is too much of it.
pub async fn read(
    pool: &PgPool,
    domain: &DomainState,
    to: Revision,
    retention: Retention,
    now: Timestamp,
) -> Result<Past, PastError> {
    let mut past = Past::new(domain.id, to, Standing::default());
    if to < Revision::new(1) || to > domain.revision {
        return Ok(past);
    }
    past.standing = standing(pool, domain, to, retention, now).await?;
    if past.standing.is_restorable() {
        let mut connection = pool.acquire().await?;
        if !advance(&mut connection, &mut past, domain.revision, PAST_MAX_EVENTS).await? {
            return Err(PastError::TooMuch);
        }
    }
    Ok(past)
}

/// Reads on, through a revision; false when that takes more events than `most`.
async fn advance(
    connection: &mut PgConnection,
    past: &mut Past,
    through: Revision,
    most: i64,
) -> Result<bool, PastError> {
    let (mut after, mut seq) = (past.through.get(), i32::MAX);
    let mut left = most;
    loop {
        let query = sqlx::query(sql::PAST_PAGE).bind(past.domain.as_uuid()).bind(after).bind(seq);
        let page = PAGE_MAX_EVENTS.min(left + 1);
        let rows = query.bind(through.get()).bind(page).fetch_all(&mut *connection).await?;
        for row in &rows {
            let recorded = row::recorded(row)?;
            let event = recorded.decode().map_err(|error| {
                tracing::error!(%error, position = %recorded.position, "an event cannot be read");
                PastError::Unreadable(recorded.position)
            })?;
            past.take(&event);
            (after, seq) = (recorded.revision.get(), recorded.seq);
        }
        let read = i64::try_from(rows.len()).unwrap_or(i64::MAX);
        left -= read;
        if left < 0 {
            return Ok(false);
        }
        if read < page {
            past.through = through;
            return Ok(true);
        }
    }
}

/// Reads what came since the rollbacks among the requests were prepared. Gives those requests again, each with what it
/// needs by now; one that is not among them is decided as it is, and told to look again.
pub(super) async fn extend(
    connection: &mut PgConnection,
    requests: &[&Request],
    loaded: &mut Loaded,
) -> Result<HashMap<usize, Request>, sqlx::Error> {
    let mut extended = HashMap::new();
    for (index, request) in requests.iter().enumerate() {
        let asked = match &request.command {
            Command::Domain { name, command: DomainCommand::Undo(asked) } => {
                if let Some(command) = undo::extend(connection, name, asked, loaded).await? {
                    extended.insert(index, Request { command, ..(*request).clone() });
                }
                continue;
            }
            Command::Domain { command: DomainCommand::Rollback(asked), .. } => asked,
            _ => continue,
        };
        let Command::Domain { name, .. } = &request.command else { continue };
        let Some(view) = loaded.domains.get_mut(name) else { continue };
        let now = view.state.revision;
        let is_other = asked.past.domain != view.state.id;
        if is_other || !asked.past.standing.is_restorable() || asked.past.to >= now {
            continue;
        }
        let mut past = asked.past.clone();
        if past.through < now {
            let read = advance(connection, Arc::make_mut(&mut past), now, TAIL_MAX_EVENTS).await;
            if !read.map_err(PastError::into_sql)? {
                continue;
            }
        }
        view.past = Some(past.clone());
        let rollback = Rollback { past, destinations: asked.destinations.clone() };
        let command = DomainCommand::Rollback(Box::new(rollback));
        let command = Command::Domain { name: name.clone(), command };
        extended.insert(index, Request { command, ..(*request).clone() });
    }
    Ok(extended)
}

/// Whether one revision can be gone back to, and if not, which near it can.
async fn standing(
    pool: &PgPool,
    domain: &DomainState,
    to: Revision,
    retention: Retention,
    now: Timestamp,
) -> Result<Standing, sqlx::Error> {
    let at = |from: i64, through: i64| {
        let from = Revision::new(from.max(1));
        standings(pool, domain, from, Revision::new(through.min(domain.revision.get())), retention, now)
    };
    let to = to.get();
    let found = at(to, to).await?.pop().map(|(_, standing)| standing).unwrap_or_default();
    if found.is_restorable() {
        return Ok(found);
    }
    let good = |(revision, standing): &(Revision, Standing)| standing.is_restorable().then_some(*revision);
    let mut below = at(to - NEAREST_MAX_REVISIONS, to - 1).await?.iter().rev().find_map(good);
    let mut above = at(to + 1, to + NEAREST_MAX_REVISIONS).await?.iter().find_map(good);
    if above.is_none() {
        let from = (domain.revision.get() - NEAREST_MAX_REVISIONS).max(to + 1);
        above = at(from, domain.revision.get()).await?.iter().find_map(good);
    }
    if below.is_none() {
        let kept = kept(pool, domain).await?;
        for one in kept.range(..Revision::new(to)).rev().take(NEAREST_MAX_KEPT) {
            below = at(one.get(), one.get()).await?.iter().find_map(good);
            if below.is_some() {
                break;
            }
        }
    }
    Ok(Standing { nearest: [below, above].into_iter().flatten().collect(), ..found })
}

/// Whether each of these revisions can be gone back to, oldest first.
///
/// # Errors
/// When the database does not answer.
pub async fn standings(
    pool: &PgPool,
    domain: &DomainState,
    from: Revision,
    through: Revision,
    retention: Retention,
    now: Timestamp,
) -> Result<Vec<(Revision, Standing)>, sqlx::Error> {
    if from > through {
        return Ok(Vec::new());
    }
    let id = domain.id.as_uuid();
    let neutral: Vec<&str> = NEUTRAL_TYPES.to_vec();
    let query = sqlx::query(sql::MILESTONES).bind(id).bind(from.get()).bind(through.next().get());
    let mut milestones = Vec::new();
    let mut first = None;
    let mut after = None;
    for row in query.bind(&neutral).fetch_all(pool).await? {
        let revision = Revision::new(row.try_get(0)?);
        let at = Timestamp::from(row.try_get::<DateTime<Utc>, _>(2)?);
        if revision > through {
            after = Some(at);
            continue;
        }
        first = first.or(Some(row.try_get::<i64, _>(1)?));
        milestones.push(Milestone { revision, at, changes: row.try_get(3)? });
    }
    let Some(first) = first else { return Ok(Vec::new()) };
    let query = sqlx::query_scalar(sql::NEXT_CHANGE).bind(id).bind(through.get()).bind(&neutral);
    let next: Option<i64> = query.fetch_optional(pool).await?;
    // What the domain's row says may be behind what was read since: no revision is newer than its successor.
    let head = domain.revision.max(through);
    let last_alike = next.map_or(head, |next| Revision::new(next - 1));
    let query = sqlx::query_scalar(sql::ACKNOWLEDGED).bind(id).bind(first).bind(from.get());
    let acknowledged: Vec<i64> = query.bind(last_alike.get()).fetch_all(pool).await?;
    let facts = RevisionFacts {
        head,
        pending: domain.status == DomainStatus::PendingVerification,
        kept: kept(pool, domain).await?,
        acknowledged: acknowledged.into_iter().map(Revision::new).collect(),
        last_alike,
    };
    Ok(judged(&milestones, after, &facts, retention, now))
}

/// The revisions that are active on a target, and those that were rolled back to.
async fn kept(pool: &PgPool, domain: &DomainState) -> Result<BTreeSet<Revision>, sqlx::Error> {
    let query = sqlx::query_scalar(sql::KEPT_REVISIONS).bind(domain.id.as_uuid());
    let found: Vec<i64> = query.fetch_all(pool).await?;
    Ok(found.into_iter().map(Revision::new).collect())
}
