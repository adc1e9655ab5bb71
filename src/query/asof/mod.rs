//! What a domain was at an earlier revision: a fold of the log. What must hold: it is exactly the state after that
//! revision, whatever happened since and meanwhile; its cost is that of the nearer of two ways: from now backwards over
//! what changed since, or the newest event up to then of everything that the domain ever had, each found by its index.

mod sql;
mod state;

pub use state::AsOf;

/// The statements of this folder, for the test that prepares them.
pub const STATEMENTS: &[&str] = sql::ALL;

use headwater_events::codec::{DecodeError, decode};
use headwater_events::dns::{OwnerName, RrType};
use headwater_events::domain::{DomainState, sides};
use headwater_events::envelope::Recorded;
use headwater_events::event::Event;
use headwater_events::ids::{DomainId, Revision};
use headwater_events::time::Timestamp;
use serde_json::{Value, json};
use sqlx::Row;
use sqlx::postgres::{PgConnection, PgPool, PgRow};
use std::collections::BTreeMap;

use super::domains::StoredDomain;
use super::rrsets::{Changed, ShownRrset};
use super::sites::{ShownCache, ShownCertificate, ShownHostname};
use super::{at, odd, rrsets};
use crate::store::row;

/// Events since a revision up to which it is reached backwards, whatever the size of the zone.
pub const BACKWARDS_MAX_EVENTS: i64 = 2_000;
/// Events that cost about as much to read as one look for the newest event of a thing.
const EVENTS_PER_LOOK: i64 = 3;
/// RRsets and hostnames of a state that is put together, at most.
pub const STATE_MAX_THINGS: usize = 1_000_000;

/// The creation of a domain.
const CREATED: &[u8] = b"\x00";

/// Why the past cannot be told.
#[derive(Debug, thiserror::Error)]
pub enum AsOfError {
    /// The database did not answer.
    #[error("the log cannot be read: {0}")]
    Database(#[from] sqlx::Error),
    /// An event is not what was written.
    #[error("an event of the domain cannot be read: run `headwater audit verify` ({0})")]
    Unreadable(String),
    /// It is no longer kept.
    #[error("what {0} was then is no longer kept")]
    Gone(String),
    /// It never was.
    #[error("{0}")]
    Never(String),
    /// There is too much of it.
    #[error("the domain had more than {STATE_MAX_THINGS} RRsets and hostnames then: read them one by one")]
    TooMuch,
}

impl From<DecodeError> for AsOfError {
    fn from(error: DecodeError) -> Self {
        Self::Unreadable(error.to_string())
    }
}

/// Which moment of a domain is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Moment {
    /// The newest.
    #[default]
    Now,
    /// After this revision.
    Revision(Revision),
    /// The newest at or before this time.
    At(Timestamp),
}

/// The revision of a moment; none for now.
///
/// # Errors
/// When there was no such moment, or it is no longer kept.
pub async fn resolve(
    pool: &PgPool,
    domain: &DomainState,
    moment: Moment,
) -> Result<Option<Revision>, AsOfError> {
    let revision = match moment {
        Moment::Now => return Ok(None),
        Moment::Revision(revision) => revision,
        Moment::At(time) => newest_at(pool, domain, time).await?,
    };
    if revision < Revision::new(1) || revision > domain.revision {
        return Err(AsOfError::Never(format!("revision {revision} of {}", domain.name)));
    }
    // Everything may have its newest event in the first revision, so that one must be there too.
    for needed in [Revision::new(1), revision] {
        made_at(pool, domain, needed).await?;
    }
    Ok(Some(revision))
}

/// When a revision came to be.
async fn made_at(pool: &PgPool, domain: &DomainState, revision: Revision) -> Result<Timestamp, AsOfError> {
    let query = sqlx::query(sql::AT).bind(domain.id.as_uuid()).bind(revision.get());
    match query.fetch_optional(pool).await? {
        Some(row) => Ok(at(&row, 0)?),
        None => Err(AsOfError::Gone(domain.name.to_string())),
    }
}

/// The newest revision at or before a time: revisions follow one another in time, so halves suffice.
async fn newest_at(pool: &PgPool, domain: &DomainState, time: Timestamp) -> Result<Revision, AsOfError> {
    let (mut low, mut high) = (0, domain.revision.get());
    while low < high {
        let middle = low + (high - low + 1) / 2;
        if made_at(pool, domain, Revision::new(middle)).await? <= time {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    if low == 0 {
        return Err(AsOfError::Never(format!("{} at {time}", domain.name)));
    }
    Ok(Revision::new(low))
}

/// Which way leads to the past.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// The nearer one.
    Nearer,
    /// From now, over what changed since.
    Backwards,
    /// By the newest event of everything.
    Whole,
}

/// Everything that a domain desired after a revision that it has.
///
/// # Errors
/// When the log cannot be read.
pub async fn state(
    pool: &PgPool,
    domain: &DomainState,
    revision: Revision,
    way: Way,
) -> Result<AsOf, AsOfError> {
    let updated = made_at(pool, domain, revision).await?;
    let created = one(pool, domain.id, revision, CREATED).await?;
    let created = created.ok_or_else(|| AsOfError::Gone(domain.name.to_string()))?;
    let mut state = AsOf::new(domain, revision, updated, created.decode()?);
    let backwards = match way {
        Way::Backwards => true,
        Way::Whole => false,
        Way::Nearer => {
            let most = BACKWARDS_MAX_EVENTS.max(domain.rrsets.saturating_mul(EVENTS_PER_LOOK));
            events_between(pool, domain.id, revision, Revision::new(i64::MAX), most + 1).await? <= most
        }
    };
    if backwards {
        let mut snapshot = pool.begin_with(sql::SNAPSHOT).await?;
        now(&mut snapshot, &mut state).await?;
        let query = sqlx::query(sql::SINCE).bind(domain.id.as_uuid()).bind(revision.get());
        for row in query.fetch_all(&mut *snapshot).await? {
            let key: Vec<u8> = row.try_get(24)?;
            state.forget(&key)?;
            if row.try_get::<Option<i64>, _>(0)?.is_some() {
                take(&mut state, &row)?;
            }
        }
        snapshot.rollback().await?;
    } else {
        let query = sqlx::query(sql::WHOLE).bind(domain.id.as_uuid()).bind(revision.get());
        for row in query.fetch_all(pool).await? {
            take(&mut state, &row)?;
        }
    }
    state.count();
    if state.things() > STATE_MAX_THINGS { Err(AsOfError::TooMuch) } else { Ok(state) }
}

fn take(state: &mut AsOf, row: &PgRow) -> Result<(), AsOfError> {
    let recorded = row::recorded(row)?;
    let event = recorded.decode()?;
    state.take(&recorded, event);
    Ok(())
}

/// What the domain desires now.
async fn now(connection: &mut PgConnection, state: &mut AsOf) -> Result<(), AsOfError> {
    let id = state.domain.id.as_uuid();
    let row = sqlx::query(sql::REST).bind(id).fetch_one(&mut *connection).await?;
    state.rest(&row)?;
    for row in sqlx::query(sql::RRSETS).bind(id).fetch_all(&mut *connection).await? {
        state.rrset(rrsets::unattributed(&row)?);
    }
    for row in sqlx::query(sql::HOSTNAMES).bind(id).fetch_all(&mut *connection).await? {
        state.hostname(&row)?;
    }
    Ok(())
}

async fn events_between(
    pool: &PgPool,
    domain: DomainId,
    after: Revision,
    through: Revision,
    most: i64,
) -> Result<i64, sqlx::Error> {
    let query = sqlx::query_scalar(sql::COUNT).bind(domain.as_uuid()).bind(after.get());
    query.bind(through.get()).bind(most).fetch_one(pool).await
}

/// The newest event of a key up to a revision.
async fn one(
    pool: &PgPool,
    domain: DomainId,
    revision: Revision,
    key: &[u8],
) -> Result<Option<Recorded>, sqlx::Error> {
    let query = sqlx::query(sql::ONE).bind(domain.as_uuid()).bind(revision.get()).bind(key);
    query.fetch_optional(pool).await?.as_ref().map(row::recorded).transpose()
}

/// The key of a name, as it begins the data of every event about it.
fn key(parts: &[(&str, Value)]) -> Vec<u8> {
    let parts: Vec<String> = parts.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
    format!("{{{}", parts.join(",")).into_bytes()
}

/// One RRset as it was after a revision.
///
/// # Errors
/// When the log cannot be read.
pub async fn rrset(
    pool: &PgPool,
    domain: &DomainState,
    revision: Revision,
    owner: &OwnerName,
    rrtype: RrType,
) -> Result<Option<ShownRrset>, AsOfError> {
    let key = key(&[("name", json!(owner)), ("type", json!(rrtype))]);
    let Some(recorded) = one(pool, domain.id, revision, &key).await? else { return Ok(None) };
    let changed = Some(changed(&recorded));
    Ok(match recorded.decode()? {
        Event::RrsetReplaced(put) => {
            Some(ShownRrset { owner: put.name, rrtype: put.rrtype, body: put.after, changed })
        }
        _ => None,
    })
}

/// What was done last about an RRset: the mutation, and whether it deleted it.
///
/// # Errors
/// When the log cannot be read.
pub async fn last_change(
    pool: &PgPool,
    domain: &DomainState,
    owner: &OwnerName,
    rrtype: RrType,
) -> Result<Option<(Changed, bool)>, AsOfError> {
    let key = key(&[("name", json!(owner)), ("type", json!(rrtype))]);
    let Some(recorded) = one(pool, domain.id, domain.revision, &key).await? else { return Ok(None) };
    let deleted = matches!(recorded.decode()?, Event::RrsetDeleted(_));
    Ok(Some((changed(&recorded), deleted)))
}

/// One proxied name as it was after a revision.
///
/// # Errors
/// When the log cannot be read.
pub async fn hostname(
    pool: &PgPool,
    domain: &DomainState,
    revision: Revision,
    owner: &OwnerName,
) -> Result<Option<ShownHostname>, AsOfError> {
    let key = key(&[("name", json!(owner))]);
    let Some(recorded) = one(pool, domain.id, revision, &key).await? else { return Ok(None) };
    let changed = changed(&recorded);
    Ok(match recorded.decode()? {
        Event::HostnameReplaced(put) => Some(ShownHostname { owner: put.name, body: put.after, changed }),
        _ => None,
    })
}

/// The domain as its settings were after a revision: without counts.
///
/// # Errors
/// When the log cannot be read.
pub async fn settings(
    pool: &PgPool,
    stored: &StoredDomain,
    revision: Revision,
) -> Result<StoredDomain, AsOfError> {
    let domain = &stored.state;
    let updated = made_at(pool, domain, revision).await?;
    let created = one(pool, domain.id, revision, CREATED).await?;
    let created = created.ok_or_else(|| AsOfError::Gone(domain.name.to_string()))?;
    let mut state = AsOf::new(domain, revision, updated, created.decode()?);
    for key in [state::SETTINGS, state::STATUS] {
        if let Some(recorded) = one(pool, domain.id, revision, key).await? {
            let event = recorded.decode()?;
            state.take(&recorded, event);
        }
    }
    Ok(StoredDomain { state: state.domain, removed: false, generation: stored.generation, checked: None })
}

/// How answers were kept after a revision.
///
/// # Errors
/// When the log cannot be read.
pub async fn cache(pool: &PgPool, domain: &DomainState, revision: Revision) -> Result<ShownCache, AsOfError> {
    let mut shown = ShownCache::default();
    for key in [state::CACHE, state::PURGE] {
        let Some(recorded) = one(pool, domain.id, revision, key).await? else { continue };
        state::keep(&mut shown, &recorded, &recorded.decode()?);
    }
    Ok(shown)
}

/// The certificate after a revision.
///
/// # Errors
/// When the log cannot be read.
pub async fn certificate(
    pool: &PgPool,
    domain: &DomainState,
    revision: Revision,
) -> Result<Option<ShownCertificate>, AsOfError> {
    let Some(recorded) = one(pool, domain.id, revision, state::CERTIFICATE).await? else { return Ok(None) };
    let changed = changed(&recorded);
    Ok(match recorded.decode()? {
        Event::CertificateReplaced(put) => Some(ShownCertificate { body: put.after, changed }),
        _ => None,
    })
}

/// Who made the mutation of an event, when and why.
fn changed(recorded: &Recorded) -> Changed {
    let provenance = &recorded.provenance;
    let by = Some((recorded.at, provenance.actor, provenance.note.clone()));
    Changed { revision: recorded.revision, by }
}

/// Says of each of these who last changed it, where that is not known yet.
///
/// # Errors
/// When the database does not answer.
pub async fn attribute<'a>(
    pool: &PgPool,
    domain: DomainId,
    all: impl Iterator<Item = &'a mut Changed>,
) -> Result<(), sqlx::Error> {
    let mut open: BTreeMap<i64, Vec<&mut Changed>> = BTreeMap::new();
    for changed in all.filter(|changed| changed.by.is_none()) {
        open.entry(changed.revision.get()).or_default().push(changed);
    }
    if open.is_empty() {
        return Ok(());
    }
    let revisions: Vec<i64> = open.keys().copied().collect();
    let query = sqlx::query(sql::MADE_BY).bind(domain.as_uuid()).bind(revisions);
    for row in query.fetch_all(pool).await? {
        let by = (at(&row, 1)?, rrsets::actor(&row, 2)?, row.try_get::<Option<String>, _>(6)?);
        for changed in open.remove(&row.try_get(0)?).into_iter().flatten() {
            changed.by = Some(by.clone());
        }
    }
    Ok(())
}

/// One thing that is otherwise at two revisions.
#[derive(Debug, Clone, PartialEq)]
pub struct Differs {
    /// Its key, where a page goes on.
    pub key: Vec<u8>,
    /// Path, before, after.
    pub row: Value,
}

/// What differs between two revisions that the domain has, after a key: up to so many things.
///
/// # Errors
/// When the log cannot be read.
pub async fn diff(
    pool: &PgPool,
    domain: DomainId,
    (from, to): (Revision, Revision),
    after: Vec<u8>,
    most: i64,
) -> Result<Vec<Differs>, AsOfError> {
    let (low, high) = (from.min(to), from.max(to));
    let near = events_between(pool, domain, low, high, BACKWARDS_MAX_EVENTS + 1).await?;
    let text = if near <= BACKWARDS_MAX_EVENTS { sql::CHANGED } else { sql::CHANGED_WIDE };
    diff_by(text, pool, domain, (from, to), after, most).await
}

/// The same from the beginning, by looking at every key, however near the revisions are.
///
/// # Errors
/// When the log cannot be read.
pub async fn diff_wide(
    pool: &PgPool,
    domain: DomainId,
    between: (Revision, Revision),
    most: i64,
) -> Result<Vec<Differs>, AsOfError> {
    diff_by(sql::CHANGED_WIDE, pool, domain, between, Vec::new(), most).await
}

async fn diff_by(
    text: &'static str,
    pool: &PgPool,
    domain: DomainId,
    (from, to): (Revision, Revision),
    after: Vec<u8>,
    most: i64,
) -> Result<Vec<Differs>, AsOfError> {
    let (low, high) = (from.min(to), from.max(to));
    let wanted = usize::try_from(most).unwrap_or(usize::MAX);
    let (mut found, mut after) = (Vec::new(), after);
    while found.len() < wanted {
        let query = sqlx::query(text).bind(domain.as_uuid()).bind(low.get()).bind(high.get());
        let rows = query.bind(&after).bind(most).fetch_all(pool).await?;
        let mut page = rows.iter().map(differs).collect::<Result<Vec<_>, AsOfError>>()?;
        page.sort_by(|a, b| a.0.cmp(&b.0));
        let full = page.len() >= wanted;
        for (key, sides) in page {
            after.clone_from(&key);
            let Some((path, before, now)) = sides else { continue };
            let (before, now) = if from <= to { (before, now) } else { (now, before) };
            found.push(Differs { key, row: json!({"path": path, "before": before, "after": now}) });
        }
        if !full {
            break;
        }
    }
    found.truncate(wanted);
    Ok(found)
}

type Sides = Option<(String, Value, Value)>;

/// A key, and what its first and its newest event make of it; none where it is again what it was.
fn differs(row: &PgRow) -> Result<(Vec<u8>, Sides), AsOfError> {
    let event = |first: usize| -> Result<Event, AsOfError> {
        let (name, schema, data): (&str, i16, &[u8]) =
            (row.try_get(first)?, row.try_get(first + 1)?, row.try_get(first + 2)?);
        Ok(decode(name, schema, data)?)
    };
    let (path, before, _) = sides(&event(1)?);
    let (_, _, after) = sides(&event(4)?);
    Ok((row.try_get(0)?, (before != after).then_some((path, before, after))))
}

impl From<serde_json::Error> for AsOfError {
    fn from(error: serde_json::Error) -> Self {
        Self::Unreadable(error.to_string())
    }
}

impl AsOfError {
    fn odd(column: &str) -> Self {
        Self::Database(odd(column))
    }
}
