//! Events as they stand, for whoever only passes them on: the columns are
//! borrowed from the row and no data is parsed. Replay goes through here.

use super::read::{LogReader, ReadError};
use super::sql;
use chrono::{DateTime, Utc};
use headwater_events::actor::{ActorKind, Owned};
use headwater_events::codec::DecodeError;
use headwater_events::envelope::ClientDigest;
use headwater_events::event::Event;
use headwater_events::ids::{
    DomainId, EventId, OperationId, Position, RequestId, Revision, StreamKind, StreamRef, TenantId, TokenId,
    UserId,
};
use headwater_events::time::Timestamp;
use sqlx::Row;
use sqlx::postgres::PgRow;
use uuid::Uuid;

/// Positions that one filtered read looks at, at most; it then says how far it came.
pub const WINDOW_MAX_POSITIONS: i64 = 20_000;

/// Which events of the log are wanted; none stands for all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// Those of these tenants and single domains, or in the stream of this user.
    pub readable: Option<(Owned, Option<UserId>)>,
    /// Those that concern domains of these names: whatever else is asked for, nothing more may be read.
    pub named: Option<Vec<String>>,
    /// Those that concern domains of these names.
    pub domains: Option<Vec<String>>,
    /// Those whose type begins with one of these.
    pub types: Option<Vec<String>>,
}

impl Selection {
    /// Whether nothing is left out.
    pub fn is_everything(&self) -> bool {
        self.readable.is_none() && self.named.is_none() && self.domains.is_none() && self.types.is_none()
    }
}

/// A part of the log.
#[derive(Debug)]
pub struct RawPage {
    /// The selected events, ascending.
    pub events: Vec<RawEvent>,
    /// Everything selected up to here is in the page.
    pub end: Position,
}

/// One row of the log.
#[derive(Debug)]
pub struct RawEvent(PgRow);

/// The columns of one event.
#[derive(Debug, Clone, Copy)]
pub struct RawView<'a> {
    /// Its place in the log.
    pub position: Position,
    /// Its id.
    pub id: EventId,
    /// The stream it stands in.
    pub stream: StreamRef,
    /// The stream's revision after the mutation.
    pub revision: Revision,
    /// Its number within the mutation.
    pub seq: i32,
    /// Its type.
    pub event_type: &'a str,
    /// The schema of its data.
    pub schema: i16,
    /// When.
    pub at: Timestamp,
    /// The domain concerned.
    pub domain: Option<(DomainId, &'a str)>,
    /// The tenant concerned.
    pub tenant: Option<TenantId>,
    /// What kind of actor did it.
    pub actor_kind: ActorKind,
    /// Which one.
    pub actor: Uuid,
    /// The token it used.
    pub token: Option<TokenId>,
    /// The user it acted for.
    pub on_behalf_of: Option<UserId>,
    /// From where.
    pub client: Option<ClientDigest>,
    /// The request.
    pub request: RequestId,
    /// The operation that carries it out.
    pub operation: Option<OperationId>,
    /// `Change-Note`.
    pub note: Option<&'a str>,
    /// The set of changes it belongs to.
    pub change: Option<Uuid>,
    /// The event that caused it.
    pub cause: Option<Position>,
    /// The chain's end at this event.
    pub hash: &'a [u8],
    /// The data as stored.
    pub data: &'a [u8],
}

impl RawView<'_> {
    /// The event, lifted to its newest schema.
    ///
    /// # Errors
    /// As [`headwater_events::codec::decode`].
    pub fn decode(&self) -> Result<Event, DecodeError> {
        headwater_events::codec::decode(self.event_type, self.schema, self.data)
    }
}

fn odd(column: &str) -> sqlx::Error {
    sqlx::Error::ColumnDecode {
        index: column.to_owned(),
        source: "a value that this program never writes".into(),
    }
}

impl RawEvent {
    /// Wraps a row that begins with the columns of an event.
    pub(crate) fn new(row: PgRow) -> Self {
        Self(row)
    }

    /// Its place in the log.
    ///
    /// # Errors
    /// When the row was altered by somebody.
    pub fn position(&self) -> Result<Position, sqlx::Error> {
        self.0.try_get_unchecked(0).map(Position::new)
    }

    /// Its columns. The statement fixes their types, so they are not checked again for every row.
    ///
    /// # Errors
    /// When the row was altered by somebody.
    pub fn view(&self) -> Result<RawView<'_>, sqlx::Error> {
        let row = &self.0;
        let domain_id: Option<Uuid> = row.try_get_unchecked(9)?;
        let domain: Option<&str> = row.try_get_unchecked(10)?;
        let client: Option<&[u8]> = row.try_get_unchecked(16)?;
        Ok(RawView {
            position: Position::new(row.try_get_unchecked(0)?),
            id: EventId::from_uuid(row.try_get_unchecked(1)?),
            stream: StreamRef {
                kind: StreamKind::from_code(row.try_get_unchecked(2)?).ok_or_else(|| odd("stream_kind"))?,
                id: row.try_get_unchecked(3)?,
            },
            revision: Revision::new(row.try_get_unchecked(4)?),
            seq: row.try_get_unchecked(5)?,
            event_type: row.try_get_unchecked(6)?,
            schema: row.try_get_unchecked(7)?,
            at: Timestamp::from(row.try_get_unchecked::<DateTime<Utc>, _>(8)?),
            domain: domain_id.map(DomainId::from_uuid).zip(domain),
            tenant: row.try_get_unchecked::<Option<Uuid>, _>(11)?.map(TenantId::from_uuid),
            actor_kind: ActorKind::from_code(row.try_get_unchecked(12)?).ok_or_else(|| odd("actor_kind"))?,
            actor: row.try_get_unchecked(13)?,
            token: row.try_get_unchecked::<Option<Uuid>, _>(14)?.map(TokenId::from_uuid),
            on_behalf_of: row.try_get_unchecked::<Option<Uuid>, _>(15)?.map(UserId::from_uuid),
            client: client.map(|digest| digest.try_into().map_err(|_| odd("client"))).transpose()?,
            request: RequestId::from_uuid(row.try_get_unchecked(17)?),
            operation: row.try_get_unchecked::<Option<Uuid>, _>(18)?.map(OperationId::from_uuid),
            note: row.try_get_unchecked(19)?,
            change: row.try_get_unchecked(20)?,
            cause: row.try_get_unchecked::<Option<i64>, _>(21)?.map(Position::new),
            hash: row.try_get_unchecked(22)?,
            data: row.try_get_unchecked(23)?,
        })
    }
}

impl LogReader {
    /// The next `most` events of the whole log after a position, none beyond `up_to`.
    ///
    /// # Errors
    /// When the database does not answer or the page is not dense.
    pub async fn raw_page(&self, after: Position, up_to: Position, most: i64) -> Result<RawPage, ReadError> {
        let query = sqlx::query(sql::RAW_PAGE).bind(after.get()).bind(up_to.get()).bind(most);
        let rows = query.fetch_all(self.pool()).await?;
        let mut end = after;
        let mut events = Vec::with_capacity(rows.len());
        for row in rows {
            let event = RawEvent(row);
            let found = event.position()?;
            if found != end.next() {
                return Err(ReadError::Hole { after: end, found });
            }
            end = found;
            events.push(event);
        }
        Ok(RawPage { events, end })
    }

    /// The next `most` selected events after a position, none beyond `up_to`. Looks at no more than
    /// [`WINDOW_MAX_POSITIONS`], so that a page may be empty and still come forward.
    ///
    /// # Errors
    /// When the database does not answer or, for a selection of everything, the page is not dense.
    pub async fn select(
        &self,
        selection: &Selection,
        after: Position,
        up_to: Position,
        most: i64,
    ) -> Result<RawPage, ReadError> {
        if selection.is_everything() {
            return self.raw_page(after, up_to, most).await;
        }
        let end = Position::new(up_to.get().min(after.get().saturating_add(WINDOW_MAX_POSITIONS)));
        let owned = selection.readable.as_ref().map(|(owned, _)| owned);
        let tenants: Option<Vec<Uuid>> =
            owned.map(|owned| owned.tenants.iter().map(|tenant| tenant.as_uuid()).collect());
        let single: Option<Vec<Uuid>> =
            owned.map(|owned| owned.domains.iter().map(|domain| domain.as_uuid()).collect());
        let own = selection.readable.as_ref().and_then(|(_, user)| user.map(UserId::as_uuid));
        let query = sqlx::query(sql::RAW_WINDOW)
            .bind(after.get())
            .bind(end.get())
            .bind(tenants)
            .bind(own)
            .bind(selection.domains.as_deref())
            .bind(selection.types.as_deref())
            .bind(most)
            .bind(single)
            .bind(selection.named.as_deref());
        let rows = query.persistent(false).fetch_all(self.pool()).await?;
        let events: Vec<RawEvent> = rows.into_iter().map(RawEvent).collect();
        let full = i64::try_from(events.len()).is_ok_and(|n| n >= most);
        let end = match events.last() {
            Some(last) if full => last.position()?,
            _ => end,
        };
        Ok(RawPage { events, end })
    }
}
