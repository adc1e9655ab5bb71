//! Answers that are streams of frames, compressed as a whole while they are made: artifacts by their checksums, and the
//! snapshot. Memory is bounded by the frames of one step, and by the descriptors of one snapshot.

use async_stream::try_stream;
use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use flate2::Compression;
use flate2::write::GzEncoder;
use headwater_edge_wire::checksum::Checksum;
use headwater_edge_wire::frame::{FRAME_END, encode_artifact, encode_page};
use headwater_edge_wire::ids::Sequence;
use headwater_edge_wire::manifest::{DOMAINS_PER_EDGE_MAX, PAGE_DESCRIPTORS_MAX};
use headwater_edge_wire::sign::Context;
use sqlx::postgres::PgPool;
use std::io::Write;

use super::manifest::{Changed, Frame, Standing, changes};
use super::peer::Live;
use super::routes::Control;
use super::{EdgeError, answers, sql};
use crate::http::Problem;

/// Artifacts that are read at once.
const ARTIFACTS_STEP: usize = 16;
/// Snapshots that are made at once by one process.
pub(super) const SNAPSHOTS_MAX_COUNT: usize = 4;

/// What is compressed so far.
struct Packed(GzEncoder<Vec<u8>>);

impl Packed {
    fn new() -> Self {
        Self(GzEncoder::new(Vec::new(), Compression::fast()))
    }

    fn write(&mut self, bytes: &[u8]) -> Result<Bytes, EdgeError> {
        self.0.write_all(bytes)?;
        Ok(std::mem::take(self.0.get_mut()).into())
    }

    fn finish(mut self) -> Result<Bytes, EdgeError> {
        self.0.write_all(&FRAME_END)?;
        Ok(self.0.finish()?.into())
    }
}

fn packed(body: Body) -> Response {
    let headers = [(header::CONTENT_TYPE, "application/octet-stream"), (header::CONTENT_ENCODING, "gzip")];
    answers::uncached((headers, body).into_response())
}

/// Those artifacts that there are; the others are left out.
pub(super) fn artifacts(control: &Control, checksums: Vec<Checksum>) -> Response {
    let pool = control.app.pool.clone();
    let body = try_stream! {
        let mut packed = Packed::new();
        for some in checksums.chunks(ARTIFACTS_STEP) {
            for frame in frames(&pool, some).await.inspect_err(broke_off)? {
                yield packed.write(&frame)?;
            }
        }
        yield packed.finish()?;
    };
    packed_stream(body)
}

fn packed_stream(
    body: impl futures_util::Stream<Item = Result<Bytes, EdgeError>> + Send + 'static,
) -> Response {
    packed(Body::from_stream(body))
}

/// The client can tell from the missing end; the log says why.
fn broke_off(error: &EdgeError) {
    tracing::error!(%error, "an answer to an edge broke off");
}

async fn frames(pool: &PgPool, checksums: &[Checksum]) -> Result<Vec<Vec<u8>>, EdgeError> {
    let wanted: Vec<&[u8]> = checksums.iter().map(|checksum| checksum.as_bytes().as_slice()).collect();
    let found: Vec<(Vec<u8>, Vec<u8>)> = sqlx::query_as(sql::ARTIFACTS).bind(wanted).fetch_all(pool).await?;
    let mut frames = Vec::with_capacity(found.len());
    for (checksum, bytes) in found {
        let checksum: [u8; 32] = checksum.try_into().map_err(|_| EdgeError::Odd("checksum"))?;
        frames.push(encode_artifact(Checksum::from_bytes(checksum), &bytes)?);
    }
    Ok(frames)
}

/// Every live domain of one moment: pages from the beginning to the head, then the artifacts that they name.
pub(super) async fn snapshot(control: &Control, live: Live) -> Result<Response, Problem> {
    let Ok(turn) = control.snapshots.clone().try_acquire_owned() else {
        return Err(Problem::unavailable("enough snapshots are being made: come again"));
    };
    let Some((standing, rows)) = all_live(&control.app.pool).await? else {
        return Err(Problem::unavailable("some changes are not signed yet: come again"));
    };
    let frame = Frame::new(control, &live, standing).await?;
    let control = control.clone();
    let body = try_stream! {
        let _turn = turn;
        let mut packed = Packed::new();
        let mut after = Sequence::ZERO;
        let mut parts: Vec<&[Changed]> = rows.chunks(PAGE_DESCRIPTORS_MAX).collect();
        // A full last part ends at its last change: one more page says that there is nothing up to the head.
        if parts.last().is_none_or(|part| part.len() == PAGE_DESCRIPTORS_MAX && last(part) < standing.head) {
            parts.push(&[]);
        }
        for part in parts {
            let made = frame.page(&control, after, part, Context::Snapshot).await;
            let (through, page) = made.inspect_err(broke_off)?;
            after = through;
            yield packed.write(&encode_page(page.signature, &page.bytes)?)?;
        }
        for some in rows.chunks(ARTIFACTS_STEP) {
            let named = |row: &Changed| row.artifact.as_ref().map(|artifact| artifact.checksum);
            let checksums: Vec<Checksum> = some.iter().filter_map(named).collect();
            for frame in frames(&control.app.pool, &checksums).await.inspect_err(broke_off)? {
                yield packed.write(&frame)?;
            }
        }
        yield packed.finish()?;
    };
    Ok(packed_stream(body))
}

fn last(part: &[Changed]) -> Sequence {
    part.last().map_or(Sequence::ZERO, |row| row.sequence)
}

/// The head and every live domain, seen at one moment: a domain that changes meanwhile must not be left out. None while
/// one of them is not signed.
async fn all_live(pool: &PgPool) -> Result<Option<(Standing, Vec<Changed>)>, EdgeError> {
    let mut tx = pool.begin_with(sql::SNAPSHOT).await?;
    let standing = Standing::read(&mut *tx).await?;
    if standing.signed(&mut *tx, Sequence::ZERO).await?.head < standing.head {
        return Ok(None);
    }
    let all = (Sequence::ZERO, standing.head);
    let rows = changes(&mut *tx, all, false, DOMAINS_PER_EDGE_MAX).await?;
    tx.rollback().await?;
    Ok(Some((standing, rows)))
}
