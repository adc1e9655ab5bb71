//! Where every stream of the log ended, signed: as lines, the first of which says of which log and up to which position,
//! the last of which holds BLAKE3 over all lines before it and the platform's signature of that. What must hold: a file
//! says the same as the log of its moment; whoever holds one and the database needs no running server to tell that the
//! log was cut or written anew, and where; memory does not grow with the number of streams.

use super::sql;
use crate::app::App;
use crate::edge::EdgeError;
use async_stream::try_stream;
use chrono::{DateTime, NaiveDate, Utc};
use futures_util::{Stream, StreamExt};
use headwater_edge_wire::sign::{Context, KeyRing, PublicKey, Signature};
use headwater_events::ids::{LogId, Position, Revision, StreamKind};
use headwater_events::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sqlx::Row;
use sqlx::postgres::PgPool;
use std::io::BufRead;
use std::time::Duration;
use uuid::Uuid;

/// The form of the lines.
const FORMAT: &str = "headwater-audit-heads-1";
/// Lines that are given at once.
const CHUNK_MAX_LINES: usize = 500;
/// Streams that are compared at once.
const COMPARE_MAX_STREAMS: usize = 1_000;
/// Octets of one line of a file, at most.
const LINE_MAX_BYTES: usize = 4_096;
/// Differences that are told, at most.
pub const DIFFERENCES_MAX_COUNT: usize = 1_000;
/// How often it is looked whether today's heads are signed.
const LOOK_INTERVAL: Duration = Duration::from_secs(60);
/// Pause after one that could not be.
const ERROR_PAUSE: Duration = Duration::from_secs(5);

/// The first line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Opening {
    format: String,
    log: LogId,
    position: Position,
    at: Timestamp,
    streams: i64,
    key: PublicKey,
}

/// One stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Head {
    kind: String,
    stream: Uuid,
    revision: Revision,
    hash: String,
}

/// The last line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Closing {
    root: String,
    signature: String,
}

/// Why the heads cannot be told.
#[derive(Debug, thiserror::Error)]
pub enum HeadsError {
    /// The database did not answer.
    #[error("the control database did not answer: {0}")]
    Database(#[from] sqlx::Error),
    /// They cannot be signed.
    #[error(transparent)]
    Sign(#[from] EdgeError),
    /// A line cannot be written.
    #[error("a line cannot be written: {0}")]
    Line(#[from] serde_json::Error),
    /// The file cannot be read.
    #[error("the file cannot be read: {0}")]
    File(#[from] std::io::Error),
    /// The file is none.
    #[error("the file is no export of heads, or was changed: {0}")]
    Format(String),
}

/// What a signature says.
#[derive(Debug, Clone)]
struct Signed {
    opening: Opening,
    closing: Closing,
}

fn line<T: Serialize>(value: &T, hasher: &mut blake3::Hasher) -> Result<String, serde_json::Error> {
    let mut text = serde_json::to_string(value)?;
    text.push('\n');
    hasher.update(text.as_bytes());
    Ok(text)
}

/// The lines of now, piece by piece, of one snapshot; the last piece comes with what was signed.
fn lines(app: App) -> impl Stream<Item = Result<(String, Option<Signed>), HeadsError>> + Send {
    try_stream! {
        let signer = app.signer.current(&app).await?;
        let key = signer.public().map_err(EdgeError::from)?;
        let mut snapshot = app.pool.begin_with(sql::SNAPSHOT).await?;
        let row = sqlx::query(sql::HEADS_OPENING).fetch_one(&mut *snapshot).await?;
        let opening = Opening {
            format: FORMAT.to_owned(),
            log: LogId::from_uuid(row.try_get(0)?),
            position: Position::new(row.try_get(1)?),
            at: app.clock.now(),
            streams: row.try_get(2)?,
            key,
        };
        let mut hasher = blake3::Hasher::new();
        let mut out = line(&opening, &mut hasher)?;
        let mut count = 0;
        {
            let mut rows = sqlx::query(sql::HEADS).fetch(&mut *snapshot);
            while let Some(row) = rows.next().await {
                let row = row?;
                let kind = StreamKind::from_code(row.try_get(1)?).map_or("", StreamKind::name);
                let head = Head {
                    kind: kind.to_owned(),
                    stream: row.try_get(0)?,
                    revision: Revision::new(row.try_get(2)?),
                    hash: hex::encode(row.try_get::<&[u8], _>(3)?),
                };
                out.push_str(&line(&head, &mut hasher)?);
                count += 1;
                if count % CHUNK_MAX_LINES == 0 {
                    yield (std::mem::take(&mut out), None);
                }
            }
        }
        snapshot.rollback().await?;
        let root = *hasher.finalize().as_bytes();
        let signature = signer.sign_heads(&root).map_err(EdgeError::from)?;
        let closing = Closing { root: hex::encode(root), signature: signature.to_string() };
        out.push_str(&serde_json::to_string(&closing)?);
        out.push('\n');
        yield (out, Some(Signed { opening, closing }));
    }
}

/// The heads of now, to be written into a file.
pub fn export(app: App) -> impl Stream<Item = Result<String, HeadsError>> + Send {
    lines(app).map(|piece| piece.map(|(text, _)| text))
}

/// Signs the heads of today where nobody has; says whether it did.
///
/// # Errors
/// When they cannot be signed or kept.
pub async fn sign_today(app: &App) -> Result<bool, HeadsError> {
    let today = DateTime::<Utc>::from(app.clock.now()).date_naive();
    let known: bool = sqlx::query_scalar(sql::HEADS_SIGNED).bind(today).fetch_one(&app.pool).await?;
    if known {
        return Ok(false);
    }
    let mut pieces = std::pin::pin!(lines(app.clone()));
    let mut signed = None;
    while let Some(piece) = pieces.next().await {
        signed = piece?.1;
    }
    let Some(Signed { opening, closing }) = signed else { return Ok(false) };
    let root = hex::decode(&closing.root).map_err(|error| HeadsError::Format(error.to_string()))?;
    let done = sqlx::query(sql::KEEP_HEADS)
        .bind(today)
        .bind(opening.log.as_uuid())
        .bind(opening.position.get())
        .bind(DateTime::<Utc>::from(opening.at))
        .bind(opening.streams)
        .bind(root)
        .bind(opening.key.as_bytes().as_slice())
        .bind(closing.signature)
        .execute(&app.pool)
        .await?;
    Ok(done.rows_affected() > 0)
}

/// Signs the heads of each day, until the process stops.
pub async fn run(app: App) {
    while !app.stop.is_cancelled() {
        let mut pause = LOOK_INTERVAL;
        match sign_today(&app).await {
            Ok(true) => tracing::info!("signed where every stream of the log ends today"),
            Ok(false) => {}
            // Without a key file nothing is signed, here as for edges.
            Err(error) => {
                tracing::debug!(%error, "today's heads of the log are not signed yet");
                pause = ERROR_PAUSE;
            }
        }
        tokio::select! {
            () = app.stop.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// The signatures that were made, newest first, before a day.
///
/// # Errors
/// When the database does not answer.
pub async fn signed(
    pool: &PgPool,
    before: Option<NaiveDate>,
    most: i64,
) -> Result<Vec<(NaiveDate, Value)>, sqlx::Error> {
    let mut found = Vec::new();
    for row in sqlx::query(sql::SIGNED_HEADS).bind(before).bind(most).fetch_all(pool).await? {
        let day: NaiveDate = row.try_get(0)?;
        let at = Timestamp::from(row.try_get::<DateTime<Utc>, _>(3)?);
        let body = json!({
            "day": day.to_string(), "log": row.try_get::<Uuid, _>(1)?, "position": row.try_get::<i64, _>(2)?,
            "at": at, "streams": row.try_get::<i64, _>(4)?,
            "root": hex::encode(row.try_get::<&[u8], _>(5)?),
            "key": hex::encode(row.try_get::<&[u8], _>(6)?), "signature": row.try_get::<&str, _>(7)?,
        });
        found.push((day, body));
    }
    Ok(found)
}

/// What a comparison of a file with the log found.
#[derive(Debug, Clone, Serialize)]
pub struct Compared {
    /// The position up to which the file speaks.
    pub position: Position,
    /// When it was made.
    pub at: Timestamp,
    /// Streams that were compared.
    pub streams: i64,
    /// The key that signed it.
    pub key: PublicKey,
    /// What differs, the first [`DIFFERENCES_MAX_COUNT`].
    pub differences: Vec<HeadDiffers>,
}

/// Something that is not as the file has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HeadDiffers {
    /// The kind of the stream, or `log`.
    pub kind: String,
    /// Which stream.
    pub stream: Option<Uuid>,
    /// Up to which revision the file knows it.
    pub revision: Option<Revision>,
    /// What is wrong.
    pub what: String,
}

/// Compares a file with the log in the database. A file that was changed is an error, not a difference.
///
/// # Errors
/// When the file is none, or the database does not answer.
pub async fn compare(pool: &PgPool, mut file: impl BufRead + Send) -> Result<Compared, HeadsError> {
    let mut hasher = blake3::Hasher::new();
    let first = next(&mut file)?.ok_or_else(|| HeadsError::Format("it is empty".to_owned()))?;
    hasher.update(first.as_bytes());
    let opening: Opening = parse(&first)?;
    if opening.format != FORMAT {
        return Err(HeadsError::Format(format!("its form is {}", opening.format)));
    }
    let (position, at, key) = (opening.position, opening.at, opening.key);
    let mut found = Compared { position, at, streams: 0, key, differences: Vec::new() };
    found.log(pool, &opening).await?;
    let mut waiting: Vec<Head> = Vec::new();
    let closing = loop {
        let text = next(&mut file)?.ok_or_else(|| HeadsError::Format("it was cut off".to_owned()))?;
        if let Ok(closing) = serde_json::from_str::<Closing>(&text) {
            break closing;
        }
        hasher.update(text.as_bytes());
        waiting.push(parse(&text)?);
        if waiting.len() >= COMPARE_MAX_STREAMS {
            found.heads(pool, &std::mem::take(&mut waiting)).await?;
        }
    };
    found.heads(pool, &waiting).await?;
    let root = *hasher.finalize().as_bytes();
    let signature: Signature =
        closing.signature.parse().map_err(|_| HeadsError::Format("its signature is none".to_owned()))?;
    let ring = KeyRing::new(vec![key]).map_err(EdgeError::from)?;
    let holds = hex::encode(root) == closing.root && ring.verify(Context::Heads, &root, &signature).is_ok();
    if !holds {
        return Err(HeadsError::Format("its signature does not hold".to_owned()));
    }
    Ok(found)
}

fn next(file: &mut impl BufRead) -> Result<Option<String>, HeadsError> {
    let mut text = String::new();
    let limit = u64::try_from(LINE_MAX_BYTES).unwrap_or(u64::MAX);
    let read = std::io::Read::take(&mut *file, limit).read_line(&mut text)?;
    Ok((read > 0).then_some(text))
}

fn parse<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, HeadsError> {
    serde_json::from_str(text).map_err(|error| HeadsError::Format(error.to_string()))
}

impl Compared {
    fn tell(&mut self, head: Option<&Head>, what: String) {
        if self.differences.len() < DIFFERENCES_MAX_COUNT {
            self.differences.push(HeadDiffers {
                kind: head.map_or("log", |head| head.kind.as_str()).to_owned(),
                stream: head.map(|head| head.stream),
                revision: head.map(|head| head.revision),
                what,
            });
        }
    }

    /// What is said of the log as a whole.
    async fn log(&mut self, pool: &PgPool, opening: &Opening) -> Result<(), HeadsError> {
        let query = sqlx::query(sql::HEADS_LOG).bind(opening.position.get());
        let query = query.bind(opening.key.as_bytes().as_slice());
        let row = query.fetch_one(pool).await?;
        let (log, head, known): (Uuid, i64, bool) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        if log != opening.log.as_uuid() {
            self.tell(None, format!("it is the log {log}, and the file is of the log {}", opening.log));
        }
        if head < opening.position.get() {
            let up_to = opening.position;
            self.tell(
                None,
                format!("truncated: it ends at position {head}, and the file knows it up to {up_to}"),
            );
        }
        if !known {
            self.tell(None, format!("the key {} that signed the file is not the platform's", opening.key));
        }
        Ok(())
    }

    async fn heads(&mut self, pool: &PgPool, heads: &[Head]) -> Result<(), HeadsError> {
        let ids: Vec<Uuid> = heads.iter().map(|head| head.stream).collect();
        let revisions: Vec<i64> = heads.iter().map(|head| head.revision.get()).collect();
        let rows = sqlx::query(sql::COMPARE_HEADS).bind(ids).bind(revisions).fetch_all(pool).await?;
        for (head, row) in heads.iter().zip(&rows) {
            self.streams += 1;
            let end: Option<&[u8]> = row.try_get(0)?;
            let newest: Option<i64> = row.try_get(1)?;
            match (end.map(hex::encode), newest) {
                (Some(hash), _) if hash == head.hash => {}
                (Some(_), _) => {
                    self.tell(Some(head), format!("rewritten: revision {} is another one", head.revision));
                }
                (None, Some(newest)) => {
                    let up_to = head.revision;
                    self.tell(Some(head), format!("truncated: it ends at revision {newest}, not at {up_to}"));
                }
                (None, None) => self.tell(Some(head), "truncated: nothing of it is left".to_owned()),
            }
        }
        Ok(())
    }
}
