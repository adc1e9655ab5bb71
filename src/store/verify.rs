//! Whether the log is as it was written: every stream's hash chain, revisions and
//! rising positions, the density of the whole, and the end of each stream that
//! the next append will continue. Reads in pages; memory does not grow with the
//! log. What is appended meanwhile is left for the next time.

use super::read::{LogReader, ReadError};
use super::{row, sql};
use headwater_events::envelope::{ChainHash, Recorded};
use headwater_events::ids::{Position, Revision};
use serde::Serialize;
use sqlx::Row;
use sqlx::postgres::{PgPool, PgRow};
use uuid::Uuid;

/// Rows of one page.
const PAGE_MAX_ROWS: i64 = 2_000;
/// Faults that are told, at most.
pub const FAULTS_MAX_COUNT: usize = 100;

/// What is wrong with a place in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// The row does not give its hash: something in it was changed.
    DataAltered,
    /// The row before this one, in its stream or in the log, is not there.
    RowMissing,
    /// The row does not continue the one before it, which was changed.
    ChainBroken,
    /// The position does not rise within the stream.
    PositionFalls,
    /// The stream's own row names another end than its last event.
    EndDiffers,
}

impl std::fmt::Display for FaultKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::DataAltered => "data altered",
            Self::RowMissing => "row missing",
            Self::ChainBroken => "chain broken",
            Self::PositionFalls => "position falls",
            Self::EndDiffers => "the stream's end differs",
        })
    }
}

/// One place that is not as it was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// Where. Of a missing row: its place, or that of the first row after it.
    pub position: Position,
    /// The stream, if one is concerned.
    pub stream: Option<Uuid>,
    /// What.
    pub kind: FaultKind,
}

/// What a verification found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verified {
    /// The head up to which it was read.
    pub head: Position,
    /// Events that were read.
    pub events: i64,
    /// Streams that were read.
    pub streams: i64,
    /// The faults by position, the first [`FAULTS_MAX_COUNT`] that were found.
    pub faults: Vec<Fault>,
}

/// Verifies the whole log; `watch` is told (events done, events in all).
///
/// # Errors
/// When the database does not answer; faults are not an error.
pub async fn verify(pool: &PgPool, watch: &mut (dyn FnMut(i64, i64) + Send)) -> Result<Verified, ReadError> {
    let meta = LogReader::new(pool.clone()).meta().await?;
    let mut found = Found { pool, floor: meta.floor, head: meta.head, faults: Vec::new() };
    found.positions().await?;
    let (events, streams) = found.chains(watch).await?;
    found.ends().await?;
    let mut faults = found.faults;
    faults.sort_by_key(|fault| fault.position);
    faults.dedup_by_key(|fault| (fault.position, fault.kind));
    faults.truncate(FAULTS_MAX_COUNT);
    Ok(Verified { head: meta.head, events, streams, faults })
}

struct Found<'a> {
    pool: &'a PgPool,
    floor: Position,
    head: Position,
    faults: Vec<Fault>,
}

/// Where a stream has been read to.
struct Link {
    stream: Uuid,
    revision: Revision,
    seq: i32,
    position: Position,
    hash: ChainHash,
    sound: bool,
}

impl Found<'_> {
    fn tell(&mut self, position: Position, stream: Option<Uuid>, kind: FaultKind) {
        // Twice the bound is kept, so that the first by position are among what is told.
        if self.faults.len() < 2 * FAULTS_MAX_COUNT {
            self.faults.push(Fault { position, stream, kind });
        }
    }

    /// The positions from the floor to the head are all there.
    async fn positions(&mut self) -> Result<(), ReadError> {
        let mut last = self.floor;
        loop {
            let query = sqlx::query_scalar::<_, i64>(sql::POSITIONS).bind(last.get()).bind(self.head.get());
            let page = query.bind(PAGE_MAX_ROWS).fetch_all(self.pool).await?;
            if page.is_empty() {
                return Ok(());
            }
            for position in page {
                if position != last.next().get() {
                    self.tell(last.next(), None, FaultKind::RowMissing);
                }
                last = Position::new(position);
            }
        }
    }

    /// Every stream, from its first event on.
    async fn chains(&mut self, watch: &mut (dyn FnMut(i64, i64) + Send)) -> Result<(i64, i64), ReadError> {
        let mut link: Option<Link> = None;
        let (mut events, mut streams) = (0, 0);
        let mut from = (Uuid::nil(), 0_i64, -1_i32);
        loop {
            watch(events, self.head.get());
            let query = sqlx::query(sql::CHAIN_PAGE).bind(from.0).bind(from.1).bind(from.2);
            let page = query.bind(self.head.get()).bind(PAGE_MAX_ROWS).fetch_all(self.pool).await?;
            let Some(last) = page.last() else { return Ok((events, streams)) };
            from = (last.try_get(3)?, last.try_get(4)?, last.try_get(5)?);
            for row in &page {
                events += 1;
                let next = self.link(row, link.take())?;
                streams += i64::from(next.1);
                link = Some(next.0);
            }
        }
    }

    /// Judges one row after the one before it; says also whether a stream begins with it.
    fn link(&mut self, row: &PgRow, before: Option<Link>) -> Result<(Link, bool), ReadError> {
        let position = Position::new(row.try_get(0)?);
        let stream: Uuid = row.try_get(3)?;
        let (revision, seq) = (Revision::new(row.try_get(4)?), row.try_get(5)?);
        let before = before.filter(|link| link.stream == stream);
        let begins = before.is_none();
        let follows = match &before {
            None => revision == Revision::new(1) && seq == 0,
            Some(link) => {
                (revision == link.revision && seq == link.seq + 1)
                    || (revision == link.revision.next() && seq == 0)
            }
        };
        let recorded: Option<Recorded> = row::recorded(row).ok();
        let expected = recorded.as_ref().map(|event| event.expected_hash(before.as_ref().map(|b| &b.hash)));
        let sound = recorded.as_ref().is_some_and(|event| Some(event.hash) == expected);
        if !sound {
            // With a floor, the first rows of a stream may be archived: its chain cannot be followed from there.
            let archived = begins && self.floor > Position::ZERO;
            let kind = match &before {
                _ if recorded.is_none() => FaultKind::DataAltered,
                _ if !follows => FaultKind::RowMissing,
                Some(link) if !link.sound => FaultKind::ChainBroken,
                _ => FaultKind::DataAltered,
            };
            if !archived {
                self.tell(position, Some(stream), kind);
            }
        }
        if before.as_ref().is_some_and(|link| position <= link.position) {
            self.tell(position, Some(stream), FaultKind::PositionFalls);
        }
        let hash = recorded.map_or([0; 32], |event| event.hash);
        Ok((Link { stream, revision, seq, position, hash, sound }, begins))
    }

    /// What the next append of each stream continues is its last event.
    async fn ends(&mut self) -> Result<(), ReadError> {
        let mut from = Uuid::nil();
        loop {
            let query = sqlx::query(sql::CHAIN_ENDS).bind(from).bind(PAGE_MAX_ROWS);
            let page = query.fetch_all(self.pool).await?;
            let Some(last) = page.last() else { return Ok(()) };
            from = last.try_get(0)?;
            for row in &page {
                let (revision, hash): (i64, &[u8]) = (row.try_get(1)?, row.try_get(2)?);
                let position: Option<i64> = row.try_get(3)?;
                let last: Option<i64> = row.try_get(4)?;
                let end: Option<&[u8]> = row.try_get(5)?;
                if last != Some(revision) || end != Some(hash) {
                    let position = Position::new(position.unwrap_or(0));
                    self.tell(position, row.try_get(0)?, FaultKind::EndDiffers);
                }
            }
        }
    }
}
