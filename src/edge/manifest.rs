//! What one edge is to hold: pages of numbered changes, signed for it alone.
//!
//! What must hold: `through` is never beyond what `edge` has taken in, and nothing up to it is left out; a change of the
//! cells that domains stand on reaches an edge as a snapshot, since the numbers of the domains do not move with it:
//! the edge is answered a page that begins beyond what it has.

use headwater_edge_wire::cell::{Replicas, place};
use headwater_edge_wire::checksum::Checksum;
use headwater_edge_wire::ids::{AgentRange, CellNumber, DomainId, EdgeId, Epoch, Revision, Sequence};
use headwater_edge_wire::manifest::{
    Descriptor, LiveDescriptor, PAGE_DESCRIPTORS_MAX, PAGE_MAX_BYTES, PAGE_SCHEMA, Page, SignedPage,
    Tombstone, True,
};
use headwater_edge_wire::protocol::{AHEAD_EPOCH, AHEAD_HEAD, ManifestQuery};
use headwater_edge_wire::seal::{ContentKey, SEALED_MAX_BYTES, SealedContentKey, SealedKey};
use headwater_edge_wire::sign::{Context, KeyId, Signature, SignatureValue};
use headwater_edge_wire::time::Timestamp;
use headwater_projections::edge::KeyName;
use sqlx::Row;
use sqlx::postgres::{PgExecutor, PgPool, PgRow};
use sqlx::types::Json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use uuid::Uuid;

use super::peer::Live;
use super::routes::Control;
use super::{EdgeError, Signer, keys, sql};
use crate::http::Problem;

/// For how long a page may be activated. Clocks of edges may be wrong by half of it.
pub const PAGE_LIFE: Duration = Duration::from_secs(600);
/// How often a held-back answer asks whether its edge may still be answered.
const RECHECK: Duration = Duration::from_secs(2);
/// Octets of a descriptor with one certificate, at most: the sealed key as base64, and the rest of it.
const DESCRIPTOR_MAX_BYTES: usize = SEALED_MAX_BYTES.div_ceil(3) * 4 + 2_048;
// A domain has one certificate, so a full page of the longest keys is a page.
const _: () = assert!(PAGE_DESCRIPTORS_MAX * DESCRIPTOR_MAX_BYTES < PAGE_MAX_BYTES);
/// How long an agent whose changes are beyond ours should stay away.
const BEHIND_RETRY: Duration = Duration::from_secs(5);

/// The epoch, and how far `edge` has followed the log.
#[derive(Debug, Clone, Copy)]
pub(super) struct Standing {
    pub(super) epoch: Epoch,
    pub(super) head: Sequence,
}

impl Standing {
    pub(super) async fn read(executor: impl PgExecutor<'_>) -> Result<Self, EdgeError> {
        let (epoch, head): (i64, i64) = sqlx::query_as(sql::STANDING).fetch_one(executor).await?;
        Ok(Self { epoch: Epoch::try_from(epoch)?, head: Sequence::try_from(head)? })
    }

    /// Says to an edge that holds more where the changes end.
    pub(super) fn told(self, problem: Problem) -> Problem {
        problem.with(AHEAD_EPOCH, self.epoch.get()).with(AHEAD_HEAD, self.head.get())
    }

    /// The same up to the first change after this one that nobody has signed yet: it must not be passed over.
    pub(super) async fn signed(self, pool: impl PgExecutor<'_>, after: Sequence) -> Result<Self, EdgeError> {
        let unsigned: i64 = sqlx::query_scalar(sql::UNSIGNED).bind(after.as_i64()).fetch_one(pool).await?;
        let head = match unsigned {
            0 => self.head,
            first => self.head.min(Sequence::try_from(first - 1)?),
        };
        Ok(Self { head, ..self })
    }
}

/// What every page of one answer has in common.
pub(super) struct Frame {
    edge: EdgeId,
    standing: Standing,
    signer: Arc<Signer>,
    content_key: SealedContentKey,
    opened: ContentKey,
    issued_at: Timestamp,
    placed: Vec<CellNumber>,
}

impl Frame {
    pub(super) async fn new(control: &Control, live: &Live, standing: Standing) -> Result<Self, EdgeError> {
        let (version, key) = keys::content_key(&control.app.pool, &control.vault, live.edge).await?;
        Ok(Self {
            edge: live.edge,
            standing,
            signer: control.app.signer.current(&control.app).await?,
            content_key: key.seal_to(version, live.edge, &live.sealing_key)?,
            opened: key,
            issued_at: Timestamp::from_millis(control.app.clock.now().as_millis()),
            placed: live.placed.clone(),
        })
    }

    /// A page from `after` on; a full one ends at its last change, the last one at the head.
    pub(super) async fn page(
        &self,
        control: &Control,
        after: Sequence,
        rows: &[Changed],
        context: Context,
    ) -> Result<(Sequence, SignedPage), EdgeError> {
        let keys = self.keys(control, rows).await?;
        let mut descriptors = Vec::with_capacity(rows.len());
        for row in rows {
            descriptors.push(self.descriptor(row, &keys));
        }
        let full = descriptors.last().filter(|_| descriptors.len() >= PAGE_DESCRIPTORS_MAX);
        let through = full.map_or(self.standing.head, Descriptor::sequence);
        let page = Page {
            schema: PAGE_SCHEMA,
            agent: AgentRange::CURRENT,
            edge: self.edge,
            epoch: self.standing.epoch,
            after,
            through,
            head: self.standing.head,
            issued_at: self.issued_at,
            expires_at: self.issued_at.plus(PAGE_LIFE),
            keys: self.signer.ring.clone(),
            content_key: self.content_key.clone(),
            descriptors,
        };
        Ok((through, page.sign(&self.signer.key, context)?))
    }

    /// The keys of the certificates of a page, each sealed for this edge alone. One that cannot be had is left out: then
    /// its domain alone is refused, and what the edge serves of it stays.
    async fn keys(
        &self,
        control: &Control,
        rows: &[Changed],
    ) -> Result<BTreeMap<KeyName, SealedKey>, EdgeError> {
        let named = rows.iter().filter_map(|row| row.artifact.as_ref()).flat_map(|artifact| &artifact.keys);
        keys::certificate_keys(&control.app.pool, &control.vault, named, &self.opened).await
    }

    fn descriptor(&self, row: &Changed, keys: &BTreeMap<KeyName, SealedKey>) -> Descriptor {
        let (sequence, id, domain, revision) = (row.sequence, row.id, row.domain.clone(), row.revision);
        match &row.artifact {
            None => Descriptor::Removed(Tombstone { sequence, id, domain, revision, removed: True }),
            Some(artifact) => Descriptor::Live(LiveDescriptor {
                sequence,
                id,
                domain,
                revision,
                checksum: artifact.checksum,
                size: artifact.size,
                signature: artifact.signature,
                cells: place(self.edge, id, &self.placed, Replicas::ONE),
                keys: artifact.keys.iter().filter_map(|name| keys.get(name).cloned()).collect(),
            }),
        }
    }
}

/// A row of `edge.domains`.
pub(super) struct Changed {
    id: DomainId,
    domain: String,
    pub(super) sequence: Sequence,
    revision: Revision,
    /// None: it is gone.
    pub(super) artifact: Option<ArtifactRow>,
}

/// What a row says of an artifact.
pub(super) struct ArtifactRow {
    pub(super) checksum: Checksum,
    size: u64,
    signature: Signature,
    keys: Vec<KeyName>,
}

/// The changes after one and through another, with those that are gone or without.
pub(super) async fn changes(
    executor: impl PgExecutor<'_>,
    (after, through): (Sequence, Sequence),
    with_gone: bool,
    most: usize,
) -> Result<Vec<Changed>, EdgeError> {
    let query = sqlx::query(sql::CHANGES).bind(after.as_i64()).bind(through.as_i64()).bind(with_gone);
    let rows = query.bind(i64::try_from(most).unwrap_or(i64::MAX)).fetch_all(executor).await?;
    rows.iter().map(read).collect()
}

fn read(row: &PgRow) -> Result<Changed, EdgeError> {
    let artifact = if row.try_get(8)? { None } else { Some(artifact(row)?) };
    Ok(Changed {
        id: DomainId::from_uuid(row.try_get::<Uuid, _>(0)?),
        domain: row.try_get(1)?,
        sequence: Sequence::try_from(row.try_get::<i64, _>(2)?)?,
        revision: Revision::try_from(row.try_get::<i64, _>(3)?)?,
        artifact,
    })
}

fn artifact(row: &PgRow) -> Result<ArtifactRow, EdgeError> {
    Ok(ArtifactRow {
        checksum: Checksum::from_bytes(bytes(row.try_get(4)?, "checksum")?),
        size: u64::try_from(row.try_get::<i32, _>(5)?).map_err(|_| EdgeError::Odd("size"))?,
        signature: Signature {
            key: KeyId::from_bytes(bytes(row.try_get(6)?, "key id")?),
            value: SignatureValue::from_bytes(bytes(row.try_get(7)?, "signature")?),
        },
        keys: row.try_get::<Json<Vec<KeyName>>, _>(9)?.0,
    })
}

fn bytes<const N: usize>(bytes: &[u8], what: &'static str) -> Result<[u8; N], EdgeError> {
    bytes.try_into().map_err(|_| EdgeError::Odd(what))
}

/// The position of the last change of which cells domains stand on.
async fn placed_at(pool: &PgPool, edge: EdgeId) -> Result<Sequence, EdgeError> {
    let position: i64 = sqlx::query_scalar(sql::PLACED).bind(edge.as_uuid()).fetch_one(pool).await?;
    Ok(Sequence::try_from(position)?)
}

/// Answers `GET /manifest`: at once when there is something, else when there is, or at the end of the wait. Whether the
/// edge may be answered is asked again all the while.
pub(super) async fn answer(
    control: &Control,
    live: Live,
    query: ManifestQuery,
) -> Result<SignedPage, Problem> {
    let pool = &control.app.pool;
    let deadline = Instant::now() + Duration::from_secs(query.wait_seconds().into());
    let mut wakes = control.changes.clone();
    let mut live = live;
    loop {
        wakes.mark_unchanged();
        let standing = Standing::read(pool).await?;
        let is_current = query.epoch.is_none_or(|epoch| epoch == standing.epoch);
        let after = if is_current { query.after } else { Sequence::ZERO };
        if after > standing.head {
            let detail = "the edge holds changes that are not known here yet: come again";
            return Err(standing.told(Problem::unavailable(detail)).retry_after(BEHIND_RETRY));
        }
        let placed = placed_at(pool, live.edge).await?;
        // A page that begins beyond what the edge has is a gap to it, which a snapshot closes.
        if after > Sequence::ZERO && after < placed && placed <= standing.head {
            let frame = Frame::new(control, &live, standing).await?;
            return Ok(frame.page(control, standing.head, &[], Context::Manifest).await?.1);
        }
        let standing = standing.signed(pool, after).await?;
        let rows = changes(pool, (after, standing.head), true, PAGE_DESCRIPTORS_MAX).await?;
        if !rows.is_empty() || Instant::now() >= deadline || control.app.stop.is_cancelled() {
            let frame = Frame::new(control, &live, standing).await?;
            return Ok(frame.page(control, after, &rows, Context::Manifest).await?.1);
        }
        let _waiting = control.polls.wait();
        tokio::select! {
            () = control.app.stop.cancelled() => {}
            () = tokio::time::sleep_until(deadline.min(Instant::now() + RECHECK)) => {}
            moved = wakes.changed() => if moved.is_err() { tokio::time::sleep(RECHECK).await },
        }
        live = Live::of(pool, &live.peer).await?;
    }
}
