//! The database of a PowerDNS with its gpgsql backend, schema 4.3 and later. Read only; the list by pages, one zone at a
//! time.

use super::super::room::Room;
use super::super::sql;
use super::{Listed, Listing, Place, SourceError, keys, metadata, of_kind, tsig_keys};
use crate::deploy::options;
use futures_util::StreamExt;
use headwater_events::dns::DomainName;
use headwater_events::migration::{
    Data, IMPORT_ZONES_MAX_COUNT, NotCarried, SourceComment, SourceRecord, SourceZone,
};
use headwater_events::zonetext::RECORDS_MAX_COUNT;
use sqlx::Row;
use sqlx::postgres::{PgPool, PgPoolOptions, PgRow};
use sqlx::types::Json;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// Connections to a source.
const MAX_CONNECTIONS: u32 = 6;
/// How long one may take.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// Zones of a page of the list.
const PAGE_ZONES: i64 = 1_000;

/// What this file sends, for the test that prepares it.
pub const STATEMENTS: &[&str] =
    &[sql::PDNS_ZONES, sql::PDNS_RECORDS, sql::PDNS_COMMENTS, sql::PDNS_TSIG_KEYS];

/// The database.
pub struct Database {
    pool: PgPool,
}

/// What the database says; where it lacks a table or a column, another try gives the same.
fn told(error: sqlx::Error) -> SourceError {
    if let sqlx::Error::Database(refused) = &error {
        let is_schema = matches!(refused.code().as_deref(), Some("42P01" | "42703"));
        let is_right = matches!(refused.code().as_deref(), Some("42501" | "28P01" | "28000" | "3D000"));
        if is_schema {
            return SourceError::Unusable(format!(
                "it is no database of PowerDNS with the schema of 4.3 or later: {}",
                refused.message()
            ));
        }
        if is_right {
            return SourceError::Unusable(format!("the database refuses: {}", refused.message()));
        }
    }
    SourceError::Away(match error {
        sqlx::Error::PoolTimedOut => format!("it does not answer within {} s", CONNECT_MAX.as_secs()),
        error => format!("the database of the source does not answer: {error}"),
    })
}

impl Database {
    pub(super) fn open(file: &str) -> Result<Self, SourceError> {
        let options = options(Path::new(file)).map_err(|error| SourceError::Unusable(error.to_string()))?;
        let options = options.options([("default_transaction_read_only", "on")]);
        let pool = PgPoolOptions::new().max_connections(MAX_CONNECTIONS).acquire_timeout(CONNECT_MAX);
        Ok(Self { pool: pool.connect_lazy_with(options) })
    }

    pub(super) async fn list(&self, marked: bool) -> Result<Listing, SourceError> {
        let mut listing = Listing::default();
        let names: Vec<String> =
            sqlx::query_scalar(sql::PDNS_TSIG_KEYS).fetch_all(&self.pool).await.map_err(told)?;
        listing.notes.extend(tsig_keys(&names));
        let mut after = i32::MIN;
        loop {
            let query = sqlx::query(sql::PDNS_ZONES).bind(after).bind(PAGE_ZONES).bind(marked);
            let rows = query.fetch_all(&self.pool).await.map_err(told)?;
            for row in &rows {
                let (id, one) = listed(row).map_err(told)?;
                after = id;
                listing.zones.push(one);
            }
            if listing.zones.len() > IMPORT_ZONES_MAX_COUNT {
                return Err(SourceError::Unusable(format!(
                    "it has more than {IMPORT_ZONES_MAX_COUNT} zones"
                )));
            }
            if i64::try_from(rows.len()).unwrap_or(0) < PAGE_ZONES {
                return Ok(listing);
            }
        }
    }

    pub(super) async fn load(
        &self,
        one: &Listed,
        zone: &mut SourceZone,
        room: &mut Room,
    ) -> Result<(), SourceError> {
        let Place::Row { id, comments } = one.place else { return Ok(()) };
        let mut rows = sqlx::query(sql::PDNS_RECORDS).bind(id).fetch(&self.pool);
        while let Some(row) = rows.next().await {
            zone.records.push(record(&row.map_err(told)?).map_err(told)?);
            room.records(zone.records.len()).await;
            if zone.records.len() > RECORDS_MAX_COUNT {
                return Ok(());
            }
        }
        drop(rows);
        if comments {
            let query = sqlx::query_as::<_, (String, String, String)>(sql::PDNS_COMMENTS).bind(id);
            let rows = query.fetch_all(&self.pool).await.map_err(told)?;
            let comment = |(owner, rrtype, text)| SourceComment { owner, rrtype, text };
            zone.comments.extend(rows.into_iter().map(comment));
        }
        Ok(())
    }
}

fn listed(row: &PgRow) -> Result<(i32, Listed), sqlx::Error> {
    let id: i32 = row.try_get(0)?;
    let called: String = row.try_get(1)?;
    let kind: String = row.try_get(2)?;
    let masters: String = row.try_get(4)?;
    let Json(kinds): Json<BTreeMap<String, usize>> = row.try_get(5)?;
    let signing = usize::try_from(row.try_get::<i64, _>(6)?).unwrap_or(0);
    let signed = signing > 0 || kinds.contains_key("PRESIGNED");
    let beside: Vec<NotCarried> = kinds
        .iter()
        .map(|(kind, count)| metadata(kind, *count))
        .chain(keys(signing))
        .chain(of_kind(&kind, &masters))
        .collect();
    let name = DomainName::parse(&called).map_err(|fault| (fault.code.as_str(), fault.detail));
    let place = Place::Row { id, comments: row.try_get::<i64, _>(7)? > 0 };
    let (account, marker) = (row.try_get(3)?, row.try_get(8)?);
    Ok((id, Listed { called, name, account, kind, marker, beside, signed, place }))
}

fn record(row: &PgRow) -> Result<SourceRecord, sqlx::Error> {
    let rrtype: Option<String> = row.try_get(1)?;
    let content: String = row.try_get(2)?;
    let prio: Option<i32> = row.try_get(4)?;
    // Of MX and SRV the first number may stand in a column of its own.
    let words = match rrtype.as_deref() {
        Some("MX") => Some(1),
        Some("SRV") => Some(3),
        _ => None,
    };
    let lacks = words.is_some_and(|words| content.split_ascii_whitespace().count() == words);
    let text = match prio.filter(|_| lacks) {
        Some(prio) => format!("{prio} {content}"),
        None => content,
    };
    Ok(SourceRecord {
        owner: Data::Text(row.try_get(0)?),
        rrtype: rrtype.filter(|rrtype| !rrtype.is_empty()),
        ttl: row.try_get::<Option<i32>, _>(3)?.map(i64::from),
        data: Data::Text(text),
        disabled: row.try_get(5)?,
    })
}
