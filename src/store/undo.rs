//! What an undo must know: what the undone revisions changed, and what came of exactly that since. The long read is done
//! before the command is queued; under the stream's lock only what came since is read.

use super::load::Loaded;
use super::past::{PAGE_MAX_EVENTS, PastError, TAIL_MAX_EVENTS};
use super::{row, sql};
use crate::command::Command;
use headwater_events::dns::DomainName;
use headwater_events::domain::{DomainCommand, DomainState, Undo, Undoing};
use headwater_events::envelope::Recorded;
use headwater_events::event::Event;
use headwater_events::ids::{Position, Revision};
use sqlx::postgres::{PgConnection, PgPool, PgRow};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Events that one undo of a domain reads, at most.
pub const UNDO_MAX_EVENTS: i64 = 200_000;

fn event(row: &PgRow) -> Result<(Recorded, Event), PastError> {
    let recorded = row::recorded(row)?;
    let event = recorded.decode().map_err(|error| {
        tracing::error!(%error, position = %recorded.position, "an event cannot be read");
        PastError::Unreadable(recorded.position)
    })?;
    Ok((recorded, event))
}

/// What revisions of a domain changed and what came of it since, as far as it is known now; with the position of the
/// first of those revisions that there is.
///
/// # Errors
/// When the log cannot be read, or there is too much of it.
pub async fn read(
    pool: &PgPool,
    domain: &DomainState,
    revisions: BTreeSet<Revision>,
) -> Result<(Undoing, Option<Position>), PastError> {
    let numbers: Vec<i64> = revisions.iter().map(|revision| revision.get()).collect();
    let mut undoing = Undoing::new(domain.id, revisions);
    undoing.through = domain.revision;
    let mut connection = pool.acquire().await?;
    let query = sqlx::query_as(sql::FIRST_UNDONE).bind(domain.id.as_uuid()).bind(&numbers);
    let first: Option<(i64, i64)> = query.fetch_optional(&mut *connection).await?;
    let Some((from, position)) = first else { return Ok((undoing, None)) };
    let (from, position) = (Revision::new(from), Position::new(position));
    let (mut after, mut seq) = (from.get() - 1, i32::MAX);
    let mut left = UNDO_MAX_EVENTS;
    loop {
        let page = PAGE_MAX_EVENTS.min(left + 1);
        let query =
            sqlx::query(sql::UNDO_PAGE).bind(domain.id.as_uuid()).bind(&numbers).bind(after).bind(seq);
        let rows = query.bind(domain.revision.get()).bind(page).fetch_all(&mut *connection).await?;
        for row in &rows {
            let (recorded, event) = event(row)?;
            undoing.take(recorded.revision, &event);
            (after, seq) = (recorded.revision.get(), recorded.seq);
        }
        let read = i64::try_from(rows.len()).unwrap_or(i64::MAX);
        left -= read;
        if left < 0 {
            return Err(PastError::TooMuch);
        }
        if read < page {
            return Ok((undoing, Some(position)));
        }
    }
}

/// Reads what came since an undo was prepared; gives the command again with what it needs by now. One that is not given
/// is decided as it is, and told to look again.
pub(super) async fn extend(
    connection: &mut PgConnection,
    name: &DomainName,
    asked: &Undo,
    loaded: &mut Loaded,
) -> Result<Option<Command>, sqlx::Error> {
    let Some(view) = loaded.domains.get_mut(name) else { return Ok(None) };
    let now = view.state.revision;
    if asked.undoing.domain != view.state.id {
        return Ok(None);
    }
    let mut undoing = Arc::clone(&asked.undoing);
    if undoing.through < now {
        let query = sqlx::query(sql::PAST_PAGE).bind(view.state.id.as_uuid());
        let query = query.bind(undoing.through.get()).bind(i32::MAX).bind(now.get());
        let rows = query.bind(TAIL_MAX_EVENTS + 1).fetch_all(&mut *connection).await?;
        if i64::try_from(rows.len()).unwrap_or(i64::MAX) > TAIL_MAX_EVENTS {
            return Ok(None);
        }
        let known = Arc::make_mut(&mut undoing);
        for row in &rows {
            let (recorded, event) = event(row).map_err(PastError::into_sql)?;
            known.take(recorded.revision, &event);
        }
        known.through = now;
    }
    view.undoing = Some(Arc::clone(&undoing));
    let undo = Undo::new(undoing, asked.destinations.clone(), asked.partial);
    Ok(Some(Command::Domain { name: name.clone(), command: DomainCommand::Undo(Box::new(undo)) }))
}
