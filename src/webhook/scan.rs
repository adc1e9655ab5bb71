//! Reads the log once for all webhooks, and marks those for which there is something.
//!
//! What must hold: a position is passed only together with what it says of webhooks, in one transaction that also asks
//! whether the lease is held still; a webhook that is not due has had everything up to the scan, so that one whose filter
//! matches nothing moves on without a write of its own.

use headwater_events::actor::ActorKind;
use headwater_events::codec::{self, DecodeError};
use headwater_events::ids::{DomainId, LogId, Position, StreamKind, StreamRef, TenantId, WebhookId};
use sqlx::postgres::{PgConnection, PgRow};
use sqlx::{PgPool, Row};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use uuid::Uuid;

use super::hooks::{self, Effect, Hook, Hooks};
use super::{Holder, sql};
use crate::history::rights::Seen;

/// Events that are looked at together.
const PAGE_MAX_EVENTS: i64 = 2_000;
/// How often it is written down how far the log is while there is no webhook.
const IDLE_WRITE_INTERVAL: Duration = Duration::from_secs(5);

/// Why the log cannot be read on.
#[derive(Debug, thiserror::Error)]
pub enum ScanError {
    /// The database did not answer.
    #[error("the control database did not answer: {0}")]
    Database(#[from] sqlx::Error),
    /// An event of a webhook that this program cannot read: going on without it would send too much.
    #[error("the event at {at} cannot be read: {source}")]
    Decode {
        /// Which.
        at: Position,
        /// Why not.
        source: DecodeError,
    },
    /// Another process reads it for webhooks.
    #[error("another process reads the log for webhooks")]
    Lost,
    /// Positions are not dense.
    #[error("the log has a hole after position {0}; stop and run `headwater audit verify`")]
    Hole(Position),
}

/// How far the log was read, and for whom.
pub(super) struct Scan {
    log: LogId,
    position: Position,
    hooks: Hooks,
    written: Instant,
}

impl Scan {
    /// Takes up where the last one was. In another log than that, what was beyond its head comes back to it.
    pub(super) async fn load(pool: &PgPool) -> Result<Self, ScanError> {
        let row = sqlx::query(sql::SCAN).fetch_one(pool).await?;
        let (known, log): (Uuid, Uuid) = (row.try_get(0)?, row.try_get(2)?);
        let (mut position, head): (i64, i64) = (row.try_get(1)?, row.try_get(3)?);
        if known != log || position > head {
            tracing::warn!(%log, head, "the log is another one: webhooks go on from where they were in it");
            position = position.min(head);
            sqlx::query(sql::CLAMP).bind(head).execute(pool).await?;
            sqlx::query(sql::MOVE_SCAN).bind(position).bind(log).execute(pool).await?;
        }
        let mut hooks = Hooks::default();
        for row in sqlx::query(sql::HOOKS).fetch_all(pool).await? {
            let owner: Option<Uuid> = row.try_get(1)?;
            let types: Option<Vec<String>> = row.try_get(2)?;
            let filter = hooks::filter(types.unwrap_or_default(), row.try_get(3)?);
            let owner = owner.map(TenantId::from_uuid);
            hooks.insert(
                WebhookId::from_uuid(row.try_get(0)?),
                Hook { owner, filter, enabled: row.try_get(4)? },
            );
        }
        Ok(Self {
            log: LogId::from_uuid(log),
            position: Position::new(position),
            hooks,
            written: Instant::now(),
        })
    }

    pub(super) fn position(&self) -> Position {
        self.position
    }

    /// Whether there is no webhook, so that nobody has to hurry.
    pub(super) fn is_idle(&self) -> bool {
        self.hooks.is_empty()
    }

    /// Reads on; true when there may be more.
    pub(super) async fn follow(&mut self, pool: &PgPool, holder: &Holder) -> Result<bool, ScanError> {
        if self.hooks.is_empty() && !self.look(pool, holder).await? {
            return Ok(false);
        }
        let query = sqlx::query(sql::EVENTS).bind(self.position.get()).bind(PAGE_MAX_EVENTS);
        let rows = query.fetch_all(pool).await?;
        if rows.is_empty() {
            return Ok(false);
        }
        let full = i64::try_from(rows.len()).is_ok_and(|count| count >= PAGE_MAX_EVENTS);
        let mut transaction = pool.begin().await?;
        sqlx::query(sql::RELAXED).execute(&mut *transaction).await?;
        let taken =
            sqlx::query(sql::TAKE_SCAN).bind(&holder.name).bind(holder.owner).bind(self.position.get());
        if taken.fetch_optional(&mut *transaction).await?.is_none() {
            return Err(ScanError::Lost);
        }
        let mut marks = BTreeMap::new();
        let mut at = self.position;
        for row in &rows {
            let found = Position::new(row.try_get(0)?);
            if found != at.next() {
                return Err(ScanError::Hole(at));
            }
            at = found;
            self.event(row, at, &mut marks, &mut transaction).await?;
        }
        flush(&mut marks, &mut transaction).await?;
        let moved = sqlx::query(sql::MOVE_SCAN).bind(at.get()).bind(self.log.as_uuid());
        moved.execute(&mut *transaction).await?;
        fail::fail_point!("webhooks.before_scan");
        transaction.commit().await?;
        fail::fail_point!("webhooks.after_scan");
        self.position = at;
        Ok(full)
    }

    /// While there is no webhook, the head is where the log was read to. Whether there is one, in the same look.
    async fn look(&mut self, pool: &PgPool, holder: &Holder) -> Result<bool, ScanError> {
        let row = sqlx::query(sql::SCAN).fetch_one(pool).await?;
        if row.try_get::<bool, _>(4)? {
            // What is written down may be a little behind: there was no webhook in between.
            self.position = Position::new(row.try_get(1)?);
            return Ok(true);
        }
        let head = Position::new(row.try_get(3)?);
        if head > self.position && self.written.elapsed() >= IDLE_WRITE_INTERVAL {
            let mut transaction = pool.begin().await?;
            let known: i64 = row.try_get(1)?;
            let taken = sqlx::query(sql::TAKE_SCAN).bind(&holder.name).bind(holder.owner).bind(known);
            if taken.fetch_optional(&mut *transaction).await?.is_some() {
                let moved = sqlx::query(sql::MOVE_SCAN).bind(head.get()).bind(self.log.as_uuid());
                moved.execute(&mut *transaction).await?;
            }
            transaction.commit().await?;
            self.written = Instant::now();
        }
        self.position = head;
        Ok(false)
    }

    async fn event(
        &mut self,
        row: &PgRow,
        at: Position,
        marks: &mut BTreeMap<WebhookId, Position>,
        connection: &mut PgConnection,
    ) -> Result<(), ScanError> {
        let seen = seen(row)?;
        let data: Option<&[u8]> = row.try_get(9)?;
        if let Some(data) = data {
            let event = codec::decode(seen.event_type, row.try_get(2)?, data);
            let event = event.map_err(|source| ScanError::Decode { at, source })?;
            if let Some(effect) = self.hooks.follow(&seen, at, &event) {
                // What stands before it was for the webhooks as they were.
                flush(marks, connection).await?;
                apply(&effect, connection).await?;
                self.hooks.mark(&seen, at, marks);
                // It gets what stands after its own beginning.
                if let Effect::Begin(id, ..) | Effect::Resume(id, _) = effect {
                    marks.remove(&id);
                }
                return Ok(());
            }
        }
        self.hooks.mark(&seen, at, marks);
        Ok(())
    }
}

fn odd(column: &str) -> sqlx::Error {
    sqlx::Error::ColumnDecode {
        index: column.to_owned(),
        source: "a value that this program never writes".into(),
    }
}

fn seen(row: &PgRow) -> Result<Seen<'_>, sqlx::Error> {
    let kind = StreamKind::from_code(row.try_get(3)?).ok_or_else(|| odd("stream_kind"))?;
    let domain: Option<Uuid> = row.try_get(5)?;
    let tenant: Option<Uuid> = row.try_get(7)?;
    Ok(Seen {
        stream: StreamRef { kind, id: row.try_get(4)? },
        domain: domain.map(DomainId::from_uuid).zip(row.try_get(6)?),
        tenant: tenant.map(TenantId::from_uuid),
        event_type: row.try_get(1)?,
        actor_kind: ActorKind::from_code(row.try_get(8)?).ok_or_else(|| odd("actor_kind"))?,
    })
}

async fn flush(
    marks: &mut BTreeMap<WebhookId, Position>,
    connection: &mut PgConnection,
) -> Result<(), sqlx::Error> {
    if marks.is_empty() {
        return Ok(());
    }
    let marks = std::mem::take(marks);
    let (ids, positions): (Vec<Uuid>, Vec<i64>) =
        marks.into_iter().map(|(id, position)| (id.as_uuid(), position.get())).unzip();
    sqlx::query(sql::MARK).bind(ids).bind(positions).execute(connection).await.map(|_| ())
}

async fn apply(effect: &Effect, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    match effect {
        Effect::Begin(id, owner, at) => {
            let query = sqlx::query(sql::BEGIN).bind(id.as_uuid()).bind(owner.map(TenantId::as_uuid));
            query.bind(at.get()).execute(connection).await?;
        }
        Effect::Resume(id, at) => restart(*id, *at, false, connection).await?,
        Effect::Replay(id, after) => restart(*id, *after, true, connection).await?,
        Effect::Changed(id) => {
            sqlx::query(sql::RETRY).bind(id.as_uuid()).execute(connection).await?;
        }
        Effect::Halt(id) => {
            sqlx::query(sql::HALT).bind(id.as_uuid()).execute(connection).await?;
        }
        Effect::Gone(id) => forget(Some(*id), None, connection).await?,
        Effect::TenantGone(tenant) => forget(None, Some(*tenant), connection).await?,
    }
    Ok(())
}

async fn restart(
    id: WebhookId,
    position: Position,
    due: bool,
    connection: &mut PgConnection,
) -> Result<(), sqlx::Error> {
    let query = sqlx::query(sql::RESTART).bind(id.as_uuid()).bind(position.get()).bind(due);
    query.execute(connection).await.map(|_| ())
}

/// Nothing is left of them beside the log.
async fn forget(
    id: Option<WebhookId>,
    tenant: Option<TenantId>,
    connection: &mut PgConnection,
) -> Result<(), sqlx::Error> {
    let query = sqlx::query_scalar(sql::FORGET).bind(id.map(WebhookId::as_uuid));
    let mut gone: Vec<Uuid> = query.bind(tenant.map(TenantId::as_uuid)).fetch_all(&mut *connection).await?;
    // One that ended before it had begun here has secrets all the same.
    gone.extend(id.map(WebhookId::as_uuid).filter(|id| !gone.contains(id)));
    sqlx::query(sql::FORGET_DELIVERIES).bind(&gone).execute(&mut *connection).await?;
    sqlx::query(sql::FORGET_SECRETS).bind(&gone).execute(connection).await.map(|_| ())
}
