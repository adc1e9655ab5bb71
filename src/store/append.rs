//! The one CALL that appends. It begins, checks, writes and commits on the
//! server, so a client that stalls after sending it holds nothing.

use super::batch::{Batch, sql_time};
use super::sql;
use headwater_events::envelope::Sealed;
use headwater_events::ids::{BatchId, Position};
use headwater_projections::desired::Changes;
use serde_json::Value;
use sqlx::postgres::{PgArguments, PgConnection};
use sqlx::query::{Query, QueryScalar};
use sqlx::types::Json;
use sqlx::{Encode, Postgres, Type};

/// Why a batch was not appended.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// The database refused it or did not answer.
    #[error("the append failed: {0}")]
    Database(#[from] sqlx::Error),
    /// The procedure answered something that this program does not know.
    #[error("the append answered {0}, which this program does not know: the schema is newer, upgrade it")]
    Answer(Value),
}

/// What became of a batch that was not in error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Appended {
    /// The events stand from this position on.
    Committed(Position),
    /// Something moved since it was read: read again and decide again.
    Again,
    /// Who may do what has changed since it was read: read that again too.
    Stale,
}

type Call<'q> = QueryScalar<'q, Postgres, Json<Value>, PgArguments>;

/// A statement that takes arguments in order.
pub(crate) trait Bind<'q>: Sized {
    /// Gives the next argument.
    fn give<T: 'q + Encode<'q, Postgres> + Type<Postgres>>(self, value: T) -> Self;
}

impl<'q> Bind<'q> for Call<'q> {
    fn give<T: 'q + Encode<'q, Postgres> + Type<Postgres>>(self, value: T) -> Self {
        self.bind(value)
    }
}

impl<'q> Bind<'q> for Query<'q, Postgres, PgArguments> {
    fn give<T: 'q + Encode<'q, Postgres> + Type<Postgres>>(self, value: T) -> Self {
        self.bind(value)
    }
}

fn column<'q, B, S, T>(call: B, rows: &[S], value: impl Fn(&S) -> T) -> B
where
    B: Bind<'q>,
    Vec<T>: 'q + Encode<'q, Postgres> + Type<Postgres>,
{
    call.give(rows.iter().map(value).collect::<Vec<T>>())
}

/// Appends a batch.
pub(super) async fn append(connection: &mut PgConnection, batch: &Batch) -> Result<Appended, AppendError> {
    fail::fail_point!("append.before_call");
    let call = sqlx::query_scalar::<_, Json<Value>>(sql::APPEND).bind(batch.id.as_uuid());
    let call = bind_heads(call, batch);
    let call = bind_rows(call, batch);
    let call = bind_events(call, &batch.events);
    let rights: Vec<_> = batch.rights.iter().collect();
    let call = column(call, &rights, |(user, _)| user.as_uuid());
    let call = column(call, &rights, |(_, read)| read.get());
    let changed: Vec<_> = batch.changed_rights.iter().collect();
    let call = column(call, &changed, |user| user.as_uuid());
    let Json(answer) = call.fetch_one(&mut *connection).await?;
    fail::fail_point!("append.after_call");
    match (answer["outcome"].as_str(), answer["first"].as_i64()) {
        (Some("committed"), Some(first)) => Ok(Appended::Committed(Position::new(first))),
        (Some("again"), _) => Ok(Appended::Again),
        (Some("stale"), _) => Ok(Appended::Stale),
        _ => Err(AppendError::Answer(answer)),
    }
}

fn bind_heads<'q>(call: Call<'q>, batch: &Batch) -> Call<'q> {
    let streams: Vec<_> = batch.streams.iter().collect();
    let call = column(call, &streams, |(id, _)| **id);
    let call = column(call, &streams, |(_, head)| head.kind.code());
    let call = column(call, &streams, |(_, head)| head.read.get());
    let call = column(call, &streams, |(_, head)| head.revision.get());
    let call = column(call, &streams, |(_, head)| head.hash.unwrap_or_default().to_vec());
    let call = column(call, &batch.claims, |claim| claim.ns as i16);
    let call = column(call, &batch.claims, |claim| claim.name.clone());
    let call = column(call, &batch.claims, |claim| claim.read);
    let call = column(call, &batch.claims, |claim| claim.holder);
    let call = column(call, &batch.receipts, |receipt| receipt.caller);
    let call = column(call, &batch.receipts, |receipt| receipt.key);
    let call = column(call, &batch.receipts, |receipt| receipt.request.clone());
    let call = column(call, &batch.receipts, |receipt| receipt.outcome.clone());
    let clients: Vec<_> = batch.clients.values().collect();
    let call = column(call, &clients, |client| client.digest.to_vec());
    let call = column(call, &clients, |client| client.salt.to_vec());
    let call = column(call, &clients, |client| client.ip.clone());
    column(call, &clients, |client| client.agent.clone())
}

/// The arguments of `desired_write`; `others` are its changes that have no arrays of their own.
pub(crate) fn bind_changes<'q, B: Bind<'q>>(call: B, changes: &Changes, others: Option<Value>) -> B {
    let rrsets: Vec<_> = changes.rrsets.iter().collect();
    let call = column(call, &rrsets, |(row, _)| row.domain.as_uuid());
    let call = column(call, &rrsets, |(row, _)| row.key.as_str().to_owned());
    let call = column(call, &rrsets, |(row, _)| i32::from(row.rrtype.code()));
    let call = column(call, &rrsets, |(_, put)| put.as_ref().map(|p| p.owner.clone()));
    let call = column(call, &rrsets, |(_, put)| put.as_ref().map(|p| i64::from(p.ttl)));
    let call = column(call, &rrsets, |(_, put)| put.as_ref().map(|p| p.records.join("\n")));
    let call = column(call, &rrsets, |(_, put)| put.as_ref().and_then(|p| p.comment.clone()));
    let call = column(call, &rrsets, |(_, put)| put.as_ref().map(|p| p.changed.get()));
    let call = column(call, &rrsets, |(_, put)| put.as_ref().and_then(|p| p.managed_by.clone()));
    let domains: Vec<_> = changes.domains.iter().collect();
    let call = column(call, &domains, |(id, _)| id.as_uuid());
    let call = column(call, &domains, |(_, touch)| touch.revision.get());
    let call = column(call, &domains, |(_, touch)| sql_time(touch.at));
    let call = column(call, &domains, |(_, touch)| touch.rrsets);
    let call = column(call, &domains, |(_, touch)| touch.records);
    call.give(others.map(Json))
}

fn bind_rows<'q>(call: Call<'q>, batch: &Batch) -> Call<'q> {
    let call = bind_changes(call, &batch.changes, batch.other_changes());
    let operations: Vec<_> = batch.changes.operations.values().collect();
    let call = column(call, &operations, |row| row.id.as_uuid());
    let call = column(call, &operations, |row| row.kind);
    let call = column(call, &operations, |row| row.domain.map(|id| id.as_uuid()));
    let call = column(call, &operations, |row| row.name.clone());
    let call = column(call, &operations, |row| row.tenant.map(|t| t.as_uuid()));
    let call = column(call, &operations, |row| row.revision.get());
    let call = column(call, &operations, |row| row.actor);
    column(call, &operations, |row| sql_time(row.at))
}

fn bind_events<'q>(call: Call<'q>, events: &[Sealed]) -> Call<'q> {
    let who = |e: &Sealed| e.provenance.actor;
    let call = column(call, events, |e| e.id.as_uuid());
    let call = column(call, events, |e| e.new.stream.kind.code());
    let call = column(call, events, |e| e.new.stream.id);
    let call = column(call, events, |e| e.revision.get());
    let call = column(call, events, |e| e.seq);
    let call = column(call, events, |e| e.new.event.type_name());
    let call = column(call, events, |e| e.new.event.schema());
    let call = column(call, events, |e| sql_time(e.at));
    let call = column(call, events, |e| e.new.domain.as_ref().map(|d| d.0.as_uuid()));
    let call = column(call, events, |e| e.new.domain.as_ref().map(|d| d.1.as_str().to_owned()));
    let call = column(call, events, |e| e.new.tenant.map(|t| t.as_uuid()));
    let call = column(call, events, |e| who(e).kind.code());
    let call = column(call, events, |e| who(e).id);
    let call = column(call, events, |e| who(e).token.map(|t| t.as_uuid()));
    let call = column(call, events, |e| who(e).on_behalf_of.map(|u| u.as_uuid()));
    let call = column(call, events, |e| e.provenance.client.map(|digest| digest.to_vec()));
    let call = column(call, events, |e| e.provenance.request.as_uuid());
    let call = column(call, events, |e| e.new.operation.map(|o| o.as_uuid()));
    let call = column(call, events, |e| e.provenance.note.clone());
    let call = column(call, events, |e| e.provenance.change);
    let call = column(call, events, |e| e.provenance.cause.map(Position::get));
    let call = column(call, events, |e| e.hash.to_vec());
    column(call, events, |e| e.data.as_bytes().to_vec())
}

/// What became of a batch whose answer was lost. Waits until the call is no longer running.
pub(super) async fn resolve(connection: &mut PgConnection, batch: BatchId) -> Result<Appended, AppendError> {
    sqlx::query(sql::BATCH_ENDED).bind(batch.as_uuid()).execute(&mut *connection).await?;
    let first: Option<i64> =
        sqlx::query_scalar(sql::BATCH).bind(batch.as_uuid()).fetch_optional(connection).await?;
    Ok(first.map_or(Appended::Again, |first| Appended::Committed(Position::new(first))))
}

/// Lets go of every stream that this connection holds.
pub(super) async fn unlock(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    sqlx::query(sql::UNLOCK_ALL).execute(connection).await.map(|_| ())
}
