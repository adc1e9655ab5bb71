//! Rows of the database ↔ values of the log. What cannot be read is an error
//! that names the column: a row of ours that is wrong was altered by somebody.

use chrono::{DateTime, Utc};
use headwater_events::actor::{Actor, ActorKind};
use headwater_events::dns::DomainName;
use headwater_events::domain::DomainState;
use headwater_events::envelope::{Provenance, Recorded};
use headwater_events::event::{DisabledBy, DomainStatus, Labels};
use headwater_events::ids::{
    DomainId, EventId, OperationId, Position, RequestId, Revision, StreamKind, StreamRef, TenantId, TokenId,
    UserId,
};
use headwater_events::time::Timestamp;
use sqlx::Row;
use sqlx::postgres::PgRow;
use sqlx::types::Json;
use uuid::Uuid;

/// What the database holds and this program cannot read.
pub(super) fn odd(column: &str) -> sqlx::Error {
    sqlx::Error::ColumnDecode {
        index: column.to_owned(),
        source: "a value that this program never writes".into(),
    }
}

fn hash(bytes: &[u8], column: &str) -> Result<[u8; 32], sqlx::Error> {
    bytes.try_into().map_err(|_| odd(column))
}

fn domain_name(text: &str) -> Result<DomainName, sqlx::Error> {
    // Another spelling of the same name was not written by us: the hash chain covers the canonical one.
    DomainName::parse(text).ok().filter(|name| name.as_str() == text).ok_or_else(|| odd("domain"))
}

/// Reads one event.
pub(crate) fn recorded(row: &PgRow) -> Result<Recorded, sqlx::Error> {
    let domain_id: Option<Uuid> = row.try_get(9)?;
    let domain: Option<&str> = row.try_get(10)?;
    let domain = match (domain_id, domain) {
        (Some(id), Some(name)) => Some((DomainId::from_uuid(id), domain_name(name)?)),
        _ => None,
    };
    let client: Option<&[u8]> = row.try_get(16)?;
    Ok(Recorded {
        position: Position::new(row.try_get(0)?),
        id: EventId::from_uuid(row.try_get(1)?),
        stream: StreamRef {
            kind: StreamKind::from_code(row.try_get(2)?).ok_or_else(|| odd("stream_kind"))?,
            id: row.try_get(3)?,
        },
        revision: Revision::new(row.try_get(4)?),
        seq: row.try_get(5)?,
        event_type: row.try_get(6)?,
        schema: row.try_get(7)?,
        at: Timestamp::from(row.try_get::<DateTime<Utc>, _>(8)?),
        domain,
        tenant: row.try_get::<Option<Uuid>, _>(11)?.map(TenantId::from_uuid),
        provenance: Provenance {
            actor: Actor {
                kind: ActorKind::from_code(row.try_get(12)?).ok_or_else(|| odd("actor_kind"))?,
                id: row.try_get(13)?,
                token: row.try_get::<Option<Uuid>, _>(14)?.map(TokenId::from_uuid),
                on_behalf_of: row.try_get::<Option<Uuid>, _>(15)?.map(UserId::from_uuid),
            },
            client: client.map(|digest| hash(digest, "client")).transpose()?,
            request: RequestId::from_uuid(row.try_get(17)?),
            note: row.try_get(19)?,
            change: row.try_get(20)?,
            cause: row.try_get::<Option<i64>, _>(21)?.map(Position::new),
        },
        operation: row.try_get::<Option<Uuid>, _>(18)?.map(OperationId::from_uuid),
        hash: hash(row.try_get(22)?, "hash")?,
        data: row.try_get(23)?,
    })
}

/// Reads one domain, from its first 16 columns.
pub(crate) fn domain(row: &PgRow) -> Result<DomainState, sqlx::Error> {
    let status = |text: &str| DomainStatus::from_name(text).ok_or_else(|| odd("status"));
    let at = |index| row.try_get::<DateTime<Utc>, usize>(index).map(Timestamp::from);
    Ok(DomainState {
        id: DomainId::from_uuid(row.try_get(0)?),
        name: domain_name(row.try_get(1)?)?,
        tenant: TenantId::from_uuid(row.try_get(2)?),
        status: status(row.try_get(3)?)?,
        status_before_delete: row.try_get::<Option<&str>, _>(4)?.map(status).transpose()?,
        revision: Revision::new(row.try_get(5)?),
        labels: row.try_get::<Json<Labels>, _>(6)?.0,
        external_id: row.try_get(7)?,
        serial_base: u32::try_from(row.try_get::<i64, _>(8)?).map_err(|_| odd("serial_base"))?,
        hold_until: row.try_get::<Option<DateTime<Utc>>, _>(9)?.map(Timestamp::from),
        rrsets: row.try_get(10)?,
        records: row.try_get(11)?,
        created_at: at(12)?,
        updated_at: at(13)?,
        disabled_by: match row.try_get::<Option<&str>, _>(14)? {
            Some(by) => Some(DisabledBy::from_name(by).ok_or_else(|| odd("disabled_by"))?),
            None => None,
        },
        delegation_lost_at: row.try_get::<Option<DateTime<Utc>>, _>(15)?.map(Timestamp::from),
    })
}
