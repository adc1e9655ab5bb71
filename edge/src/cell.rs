//! The directory of one cell: what its runtime reads. A generation is written beside, flushed, renamed and only then
//! pointed to; the one before stays on the disk. Every file is authenticated by a seal that lies beside it, so that a
//! start can tell which generation is whole before anything is served from it.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufReader, Read};
use std::os::unix::fs::{chown, lchown, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use headwater_edge_wire::cell::{GENERATION_MANIFEST_MAX_BYTES, GenerationManifest, Written};
use headwater_edge_wire::ids::{CellNumber, DomainId, Epoch, Generation, Sequence};

use crate::disk::{self, At, DiskError, Pace, Passing};
use crate::mac::StateKey;

const SEAL_MAX_BYTES: u64 = 128;
const BUFFER_BYTES: usize = 256 << 10;
/// A user and group that files are given to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    /// The user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
}

/// A cell.
pub struct Cell {
    /// Its number.
    pub number: CellNumber,
    pub(crate) dir: PathBuf,
    pub(crate) key: Arc<StateKey>,
    owner: Option<Owner>,
    live: Option<Live>,
    previous: Option<GenerationManifest>,
    next: u64,
    pub(crate) has_new_keys: bool,
    pace: Pace,
}

/// What `current` points to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Live {
    /// Its manifest.
    pub manifest: GenerationManifest,
    /// How long its parts are.
    pub written: Written,
}

/// Why a cell cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum CellError {
    /// The disk.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The numbers of generations or the rules of manifests do not allow it.
    #[error("cell {0} cannot have a further generation: {1}")]
    Generation(CellNumber, String),
}

/// Lines that are being written for a cell.
pub struct Stage {
    path: PathBuf,
    file: File,
    buffer: Vec<u8>,
    hasher: blake3::Hasher,
    /// How many lines.
    pub lines: u64,
    _passing: Passing,
}

impl Stage {
    /// Adds a line with its line feed.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn line(&mut self, line: &[u8]) -> Result<(), DiskError> {
        self.hasher.update(line);
        self.buffer.extend_from_slice(line);
        self.lines += 1;
        if self.buffer.len() >= BUFFER_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), DiskError> {
        let buffer = std::mem::take(&mut self.buffer);
        disk::write(&mut self.file, &self.path, &buffer)
    }
}

impl Cell {
    /// Opens a cell: clears away what a crash left, proves what `current` points to, and goes back to an earlier
    /// generation where that does not hold. What was found damaged is told.
    ///
    /// # Errors
    /// When the directory cannot be used.
    pub fn open(
        dir: &Path,
        number: CellNumber,
        key: Arc<StateKey>,
        owner: Option<Owner>,
    ) -> Result<(Self, Vec<String>), DiskError> {
        let mut cell = Self {
            number,
            dir: dir.to_owned(),
            key,
            owner,
            live: None,
            previous: None,
            next: 1,
            has_new_keys: false,
            pace: Pace::FREE,
        };
        disk::make_dir(dir, disk::PASSABLE_DIR)?;
        for name in ["bases", "generations", "keys"] {
            let path = dir.join(name);
            disk::make_dir(&path, disk::PRIVATE_DIR)?;
            cell.give(&path)?;
        }
        let mut damage = Vec::new();
        let pointed = cell.pointed();
        let mut numbers = cell.numbers("generations")?;
        cell.next = numbers.last().map_or(1, |last| last + 1).max(pointed.map_or(1, |n| n + 1));
        cell.next = cell.next.max(cell.numbers("bases")?.last().map_or(1, |last| last + 1));
        // What is newer than what is pointed to was never switched to.
        numbers.retain(|n| pointed.is_none_or(|pointed| *n <= pointed));
        for n in numbers.into_iter().rev() {
            match cell.prove(n) {
                Ok(live) => {
                    if pointed != Some(n) {
                        damage.push(format!("{} went back to generation {n}", dir.display()));
                        cell.point(n)?;
                    }
                    cell.live = Some(live);
                    break;
                }
                Err(reason) if pointed == Some(n) || damage.is_empty() => {
                    damage.push(format!("generation {n} of {}: {reason}", dir.display()));
                }
                Err(_) => {}
            }
        }
        if cell.live.is_none() && pointed.is_some() && damage.is_empty() {
            damage.push(format!("generation {} of {} is missing", pointed.unwrap_or(0), dir.display()));
        }
        Ok((cell, damage))
    }

    /// Proves what a cell serves, at this pace, and changes nothing.
    ///
    /// # Errors
    /// Never by damage, which is told.
    pub fn inspect(
        dir: &Path,
        number: CellNumber,
        key: Arc<StateKey>,
        pace: Pace,
    ) -> Result<(Self, Vec<String>), DiskError> {
        let (dir, next, live, previous) = (dir.to_owned(), 1, None, None);
        let mut cell =
            Self { number, dir, key, owner: None, live, previous, next, has_new_keys: false, pace };
        let mut damage = Vec::new();
        if let Some(n) = cell.pointed() {
            match cell.prove(n) {
                Ok(live) => cell.live = Some(live),
                Err(reason) => damage.push(format!("generation {n} of cell {number}: {reason}")),
            }
        }
        Ok((cell, damage))
    }

    /// Its directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// What it serves; nothing where no generation holds.
    pub fn live(&self) -> Option<&Live> {
        self.live.as_ref()
    }

    /// The place of what it serves.
    pub fn place(&self) -> (Epoch, Sequence) {
        self.live.as_ref().map_or_else(Default::default, |live| (live.manifest.epoch, live.manifest.sequence))
    }

    /// The generation that it serves.
    pub fn generation(&self) -> Option<Generation> {
        self.live.as_ref().map(|live| live.manifest.generation)
    }

    /// Why what it serves would not be read again as it was written; nothing where it would.
    pub fn damage(&self) -> Option<String> {
        let n = self.live.as_ref()?.manifest.generation.get();
        match self.pointed() {
            Some(pointed) if pointed == n => self.prove(n).err(),
            _ => Some("`current` points elsewhere".to_owned()),
        }
    }

    /// What `current` points to.
    pub(crate) fn pointed(&self) -> Option<u64> {
        let link = fs::read_link(self.dir.join("current")).ok()?;
        link.to_str()?.strip_prefix("generations/")?.parse().ok()
    }

    /// The numbers in a directory, ascending; everything else in it is cleared away.
    fn numbers(&self, name: &str) -> Result<Vec<u64>, DiskError> {
        let dir = self.dir.join(name);
        let mut numbers = Vec::new();
        for name in disk::names(&dir)? {
            match name.parse() {
                Ok(number) => numbers.push(number),
                Err(_) => disk::discard(&dir.join(name)),
            }
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    pub(crate) fn give(&self, path: &Path) -> Result<(), DiskError> {
        match self.owner {
            Some(owner) => chown(path, Some(owner.uid), Some(owner.gid)).at("give away", path),
            None => Ok(()),
        }
    }

    fn generation_dir(&self, n: u64) -> PathBuf {
        self.dir.join("generations").join(n.to_string())
    }

    /// Whether a generation and all that it is made of hold.
    fn prove(&self, n: u64) -> Result<Live, String> {
        let (manifest, _) = self.prove_one(n)?;
        let base = manifest.base.get();
        let path = self.dir.join("bases").join(base.to_string());
        let base_lines = self.prove_seal(&path, "base", base, &[], Some("domains.jsonl"))?;
        let mut delta_lines = 0;
        for delta in &manifest.deltas {
            delta_lines += self.prove_one(delta.get())?.1;
        }
        Ok(Live { manifest, written: Written { base_lines, delta_lines } })
    }

    fn prove_one(&self, n: u64) -> Result<(GenerationManifest, u64), String> {
        let dir = self.generation_dir(n);
        let bytes = disk::read(&dir.join("manifest.json"), GENERATION_MANIFEST_MAX_BYTES as u64)
            .map_err(|error| error.to_string())?;
        let delta = dir.join("delta.jsonl").exists().then_some("delta.jsonl");
        let lines = self.prove_seal(&dir, "generation", n, &bytes, delta)?;
        let manifest = GenerationManifest::parse(&bytes).map_err(|error| error.to_string())?;
        if manifest.generation.get() != n || delta.is_some() == manifest.deltas.is_empty() {
            return Err("its manifest is another's".into());
        }
        Ok((manifest, lines))
    }

    fn prove_seal(
        &self,
        dir: &Path,
        kind: &str,
        n: u64,
        manifest: &[u8],
        lines_of: Option<&str>,
    ) -> Result<u64, String> {
        let seal = disk::read(&dir.join("seal"), SEAL_MAX_BYTES).map_err(|error| error.to_string())?;
        let text = String::from_utf8_lossy(&seal);
        let (mac, lines) = text.split_once(' ').ok_or("its seal cannot be read")?;
        let lines: u64 = lines.parse().map_err(|_| "its seal cannot be read")?;
        let mac = hex::decode(mac).map_err(|_| "its seal cannot be read")?;
        let digest = match lines_of {
            Some(name) => digest(&dir.join(name), self.pace).map_err(|error| error.to_string())?,
            None => [0; 32],
        };
        if self.key.holds(kind, &self.sealed(n, manifest, &digest, lines).each_ref().map(Vec::as_slice), &mac)
        {
            Ok(lines)
        } else {
            Err("its seal does not hold".into())
        }
    }

    fn sealed(&self, n: u64, manifest: &[u8], digest: &[u8; 32], lines: u64) -> [Vec<u8>; 5] {
        [
            vec![self.number.get()],
            n.to_be_bytes().to_vec(),
            manifest.to_vec(),
            digest.to_vec(),
            lines.to_be_bytes().to_vec(),
        ]
    }

    fn seal(
        &self,
        dir: &Path,
        kind: &str,
        n: u64,
        manifest: &[u8],
        digest: [u8; 32],
        lines: u64,
    ) -> Result<(), DiskError> {
        let sealed = self.sealed(n, manifest, &digest, lines);
        let mac = self.key.mac(kind, &sealed.each_ref().map(Vec::as_slice));
        let path = dir.join("seal");
        disk::write_new(&path, format!("{} {lines}", hex::encode(mac)).as_bytes(), disk::PRIVATE_FILE)
    }

    /// Begins to write lines. One stage at a time: a second one takes the place of the first.
    ///
    /// # Errors
    /// When no file can be made.
    pub fn stage(&self) -> Result<Stage, DiskError> {
        let path = self.dir.join("generations").join(".lines.new");
        let file = disk::create(&path, disk::PRIVATE_FILE)?;
        let passing = Passing::new(path.clone());
        let (buffer, hasher) = (Vec::new(), blake3::Hasher::new());
        Ok(Stage { path, file, buffer, hasher, lines: 0, _passing: passing })
    }

    /// Switches to a generation that is what is served and these changes.
    ///
    /// # Errors
    /// When a step fails; what is served stays.
    pub fn extend(&mut self, stage: Stage, sequence: Sequence) -> Result<Generation, CellError> {
        let generation = self.next_generation()?;
        let live = self.live.as_ref().ok_or_else(|| self.fault("there is nothing to extend"))?;
        let manifest = live
            .manifest
            .extended(generation, sequence)
            .ok_or_else(|| self.fault("it must be written whole"))?;
        let written = Written { delta_lines: live.written.delta_lines + stage.lines, ..live.written };
        let delta = self.finish(stage, "delta.jsonl")?;
        self.switch(Live { manifest, written }, Some(delta))
    }

    /// Switches to a generation that is these lines and nothing else.
    ///
    /// # Errors
    /// When a step fails; what is served stays.
    pub fn replace(
        &mut self,
        stage: Stage,
        epoch: Epoch,
        sequence: Sequence,
    ) -> Result<Generation, CellError> {
        let generation = self.next_generation()?;
        let manifest = GenerationManifest::whole(generation, epoch, sequence);
        let written = Written { base_lines: stage.lines, delta_lines: 0 };
        let (path, digest, lines) = self.finish(stage, "domains.jsonl")?;
        let bases = self.dir.join("bases");
        let (temporary, n) = (bases.join(".new"), generation.get());
        let _passing = [Passing::new(path.clone()), Passing::new(temporary.clone())];
        self.fresh_dir(&temporary)?;
        disk::rename(&path, &temporary.join("domains.jsonl"))?;
        self.seal(&temporary, "base", n, &[], digest, lines)?;
        disk::sync_dir(&temporary)?;
        disk::rename(&temporary, &bases.join(n.to_string()))?;
        disk::sync_dir(&bases)?;
        self.switch(Live { manifest, written }, None)
    }

    fn fault(&self, why: &str) -> CellError {
        CellError::Generation(self.number, why.to_owned())
    }

    fn next_generation(&self) -> Result<Generation, CellError> {
        Generation::try_from(self.next).map_err(|error| self.fault(&error.to_string()))
    }

    fn fresh_dir(&self, path: &Path) -> Result<(), DiskError> {
        disk::discard(path);
        disk::make_dir(path, disk::PRIVATE_DIR)?;
        self.give(path)
    }

    fn finish(&self, mut stage: Stage, name: &str) -> Result<(PathBuf, [u8; 32], u64), DiskError> {
        stage.flush()?;
        self.give(&stage.path)?;
        disk::sync_file(&stage.file, &stage.path)?;
        let named = stage.path.with_file_name(format!(".{name}.new"));
        fs::rename(&stage.path, &named).at("rename to", &named)?;
        Ok((named, *stage.hasher.finalize().as_bytes(), stage.lines))
    }

    fn switch(
        &mut self,
        next: Live,
        delta: Option<(PathBuf, [u8; 32], u64)>,
    ) -> Result<Generation, CellError> {
        let generation = next.manifest.generation;
        let n = generation.get();
        let bytes = next.manifest.bytes().map_err(|error| self.fault(&error.to_string()))?;
        let all = self.dir.join("generations");
        let temporary = all.join(".new");
        let _passing = delta.iter().map(|(path, ..)| path).chain([&temporary]).cloned().map(Passing::new);
        let _passing: Vec<_> = _passing.collect();
        self.fresh_dir(&temporary)?;
        let manifest = temporary.join("manifest.json");
        disk::write_new(&manifest, &bytes, disk::PRIVATE_FILE)?;
        self.give(&manifest)?;
        let (digest, lines) = match delta {
            Some((path, digest, lines)) => {
                disk::rename(&path, &temporary.join("delta.jsonl"))?;
                (digest, lines)
            }
            None => ([0; 32], 0),
        };
        self.seal(&temporary, "generation", n, &bytes, digest, lines)?;
        disk::sync_dir(&temporary)?;
        disk::rename(&temporary, &self.generation_dir(n))?;
        disk::sync_dir(&all)?;
        self.sync_keys()?;
        fail::fail_point!("edge.flip.before");
        self.point(n)?;
        fail::fail_point!("edge.flip.after");
        self.next = n + 1;
        self.previous = self.live.replace(next).map(|live| live.manifest);
        Ok(generation)
    }

    /// Points `current` to a generation, durably.
    fn point(&self, n: u64) -> Result<(), DiskError> {
        let (link, beside) = (self.dir.join("current"), self.dir.join(".current.new"));
        disk::discard(&beside);
        symlink(format!("generations/{n}"), &beside).at("link", &beside)?;
        if let Some(owner) = self.owner {
            lchown(&beside, Some(owner.uid), Some(owner.gid)).at("give away", &beside)?;
        }
        disk::rename(&beside, &link)?;
        disk::sync_dir(&self.dir)
    }

    /// Goes back to the generation before, because the runtime refused this one.
    ///
    /// # Errors
    /// When there is none that holds, or the link cannot be set.
    pub fn go_back(&mut self) -> Result<Generation, CellError> {
        let previous = self.previous.take().ok_or_else(|| self.fault("there is no generation before"))?;
        let n = previous.generation.get();
        let live = self.prove(n).map_err(|reason| self.fault(&reason))?;
        self.point(n)?;
        self.live = Some(live);
        Ok(previous.generation)
    }

    /// Removes what neither the generation that is served nor the one before needs.
    ///
    /// # Errors
    /// When a directory cannot be read.
    pub fn clean(&self) -> Result<(), DiskError> {
        let kept: Vec<_> = self.live.iter().map(|live| &live.manifest).chain(&self.previous).collect();
        let bases: BTreeSet<u64> = kept.iter().map(|manifest| manifest.base.get()).collect();
        let generations: BTreeSet<u64> = kept
            .iter()
            .flat_map(|manifest| manifest.deltas.iter().chain([&manifest.generation]))
            .map(|generation| generation.get())
            .collect();
        for (name, keep) in [("bases", bases), ("generations", generations)] {
            for n in self.numbers(name)?.into_iter().filter(|n| !keep.contains(n)) {
                disk::discard(&self.dir.join(name).join(n.to_string()));
            }
        }
        Ok(())
    }

    /// The line that removes a domain.
    pub fn removal(id: DomainId) -> Vec<u8> {
        headwater_edge_wire::compiled::DeltaLine::Remove(id).line().unwrap_or_default()
    }
}

fn digest(path: &Path, pace: Pace) -> Result<[u8; 32], DiskError> {
    let mut reader = BufReader::with_capacity(BUFFER_BYTES, File::open(path).at("open", path)?);
    let (mut hasher, mut buffer) = (blake3::Hasher::new(), vec![0; BUFFER_BYTES]);
    loop {
        let n = reader.read(&mut buffer).at("read", path)?;
        match buffer.get(..n) {
            Some(read) if !read.is_empty() => hasher.update(read),
            _ => return Ok(*hasher.finalize().as_bytes()),
        };
        pace.spend(n);
    }
}
