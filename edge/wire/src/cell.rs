//! The pure side of a cell: which cells serve a domain, what a generation consists of, when it is written whole again,
//! and what a worker must read to get from one to the next.

use serde::{Deserialize, Serialize};

use crate::canonical::{self, CanonicalError};
use crate::ids::{CellNumber, DomainId, EdgeId, Epoch, Generation, Sequence};

/// The most deltas since a base: then a new base is written.
pub const DELTAS_MAX: usize = 1_000;
/// Fewer delta lines than this never cause a new base.
pub const COMPACT_FLOOR_LINES: u64 = 1_024;
/// The longest `manifest.json` of a generation.
pub const GENERATION_MANIFEST_MAX_BYTES: usize = 64 << 10;
/// What the scores of placement are computed under.
const PLACEMENT_LABEL: &str = "headwater-placement-v1";

/// On how many cells of an edge a domain stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct Replicas(u8);

/// The most replicas of a domain on one edge.
pub const REPLICAS_MAX: u8 = 3;

impl Replicas {
    /// One.
    pub const ONE: Self = Self(1);
}

/// Not between 1 and [`REPLICAS_MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("replicas must be between 1 and {REPLICAS_MAX}")]
pub struct ReplicasOutOfRange;

impl TryFrom<u8> for Replicas {
    type Error = ReplicasOutOfRange;

    fn try_from(n: u8) -> Result<Self, ReplicasOutOfRange> {
        if (1..=REPLICAS_MAX).contains(&n) { Ok(Self(n)) } else { Err(ReplicasOutOfRange) }
    }
}

impl From<Replicas> for u8 {
    fn from(replicas: Replicas) -> Self {
        replicas.0
    }
}

/// The cells of an edge that serve a domain, ascending: of the ready ones those with the highest scores (rendezvous
/// hashing). A score knows nothing of the other cells, so one that goes moves only what stood on it, and one that comes
/// takes only what it wins. The order and doubles of `ready` make no difference.
pub fn place(edge: EdgeId, domain: DomainId, ready: &[CellNumber], replicas: Replicas) -> Vec<CellNumber> {
    let mut scored: Vec<_> = ready.iter().map(|cell| (score(edge, domain, *cell), *cell)).collect();
    scored.sort_unstable_by(|a, b| b.cmp(a));
    scored.dedup();
    let mut cells: Vec<_> = scored.into_iter().take(usize::from(replicas.0)).map(|(_, cell)| cell).collect();
    cells.sort_unstable();
    cells
}

fn score(edge: EdgeId, domain: DomainId, cell: CellNumber) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_derive_key(PLACEMENT_LABEL);
    hasher.update(edge.as_uuid().as_bytes());
    hasher.update(domain.as_uuid().as_bytes());
    hasher.update(&[cell.get()]);
    *hasher.finalize().as_bytes()
}

/// `manifest.json` of a generation: a base, and what changed since.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GenerationManifest {
    /// This generation.
    pub generation: Generation,
    /// The epoch of what it holds.
    pub epoch: Epoch,
    /// The last change that it holds.
    pub sequence: Sequence,
    /// The generation at which everything was written.
    pub base: Generation,
    /// Every generation since, ascending, this one last; none when this is the base.
    pub deltas: Vec<Generation>,
}

/// Why a `manifest.json` cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum GenerationFault {
    /// Not its form.
    #[error(transparent)]
    Form(#[from] CanonicalError),
    /// More deltas than the bound.
    #[error("more than {DELTAS_MAX} deltas")]
    TooMany,
    /// The deltas do not ascend from the base to the generation.
    #[error("the deltas must ascend from the base to the generation")]
    Order,
}

impl GenerationManifest {
    /// The bytes of the file.
    ///
    /// # Errors
    /// When it breaks a law.
    pub fn bytes(&self) -> Result<Vec<u8>, GenerationFault> {
        self.laws()?;
        Ok(canonical::write(self)?)
    }

    /// Reads the file.
    ///
    /// # Errors
    /// When it is not canonical, or breaks a law.
    pub fn parse(bytes: &[u8]) -> Result<Self, GenerationFault> {
        let manifest: Self = canonical::read(bytes, GENERATION_MANIFEST_MAX_BYTES)?;
        manifest.laws()?;
        Ok(manifest)
    }

    fn laws(&self) -> Result<(), GenerationFault> {
        if self.deltas.len() > DELTAS_MAX {
            return Err(GenerationFault::TooMany);
        }
        let mut last = self.base;
        for delta in &self.deltas {
            if *delta <= last {
                return Err(GenerationFault::Order);
            }
            last = *delta;
        }
        if last == self.generation { Ok(()) } else { Err(GenerationFault::Order) }
    }

    /// The first generation of a cell, or one that is written whole again.
    pub fn whole(generation: Generation, epoch: Epoch, sequence: Sequence) -> Self {
        Self { generation, epoch, sequence, base: generation, deltas: Vec::new() }
    }

    /// The next generation as a delta on this one. Nothing when it must be written whole, see [`must_compact`].
    pub fn extended(&self, generation: Generation, sequence: Sequence) -> Option<Self> {
        if generation <= self.generation || self.deltas.len() >= DELTAS_MAX {
            return None;
        }
        let mut deltas = self.deltas.clone();
        deltas.push(generation);
        Some(Self { generation, epoch: self.epoch, sequence, base: self.base, deltas })
    }
}

/// How much a cell has written since its base.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// The lines of the base.
    pub base_lines: u64,
    /// The lines of all deltas, the next one included.
    pub delta_lines: u64,
}

/// Whether the next generation must be a base: its epoch is another, there are enough deltas, or they have become half
/// as long as the base, so that what is written and read stays within a constant factor of what is served.
pub fn must_compact(current: &GenerationManifest, next_epoch: Epoch, written: Written) -> bool {
    next_epoch != current.epoch
        || current.deltas.len() >= DELTAS_MAX
        || written.delta_lines >= COMPACT_FLOOR_LINES.max(written.base_lines / 2)
}

/// What a worker must read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Load {
    /// It has the generation.
    Nothing,
    /// The deltas of these generations, in this order, onto what it has.
    Deltas(Vec<Generation>),
    /// The base, then these deltas, in place of what it has.
    Whole(Generation, Vec<Generation>),
}

/// What a worker that has `loaded` must read to have this generation. A generation that it has and the list does not
/// name is of another line of descent: then it begins with the base.
pub fn to_load(loaded: Option<Generation>, manifest: &GenerationManifest) -> Load {
    let Some(loaded) = loaded else { return Load::Whole(manifest.base, manifest.deltas.clone()) };
    if loaded == manifest.generation {
        return Load::Nothing;
    }
    if loaded == manifest.base {
        return Load::Deltas(manifest.deltas.clone());
    }
    match manifest.deltas.iter().position(|delta| *delta == loaded) {
        Some(at) => Load::Deltas(manifest.deltas.iter().skip(at + 1).copied().collect()),
        None => Load::Whole(manifest.base, manifest.deltas.clone()),
    }
}
