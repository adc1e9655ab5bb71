//! The artifacts, each in a file named by its checksum. A reader compares the bytes with the name before anything else,
//! so a file that was cut or changed is the same as one that is not there: it is fetched again.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use headwater_edge_wire::artifact::ArtifactBudget;
use headwater_edge_wire::checksum::Checksum;

use crate::disk::{self, At, DiskError, Passing};

/// More files than this are flushed by one call for the whole file system instead of one call each.
const FLUSH_EACH_MAX: usize = 8;

/// The store.
#[derive(Debug, Clone)]
pub struct Store {
    dir: PathBuf,
    budget: ArtifactBudget,
}

/// Artifacts on their way into the store.
#[derive(Debug)]
pub struct Incoming<'a> {
    store: &'a Store,
    written: Vec<Checksum>,
    /// Those that did not get their names, in the end.
    passing: Vec<Passing>,
}

impl Store {
    /// The store of a directory.
    ///
    /// # Errors
    /// When the directory cannot be made.
    pub fn open(dir: &Path, budget: ArtifactBudget) -> Result<Self, DiskError> {
        disk::make_dir(dir, disk::PRIVATE_DIR)?;
        Ok(Self { dir: dir.to_owned(), budget })
    }

    /// The largest artifact that is kept.
    pub fn budget(&self) -> ArtifactBudget {
        self.budget
    }

    /// Where an artifact lies.
    pub fn path(&self, checksum: &Checksum) -> PathBuf {
        self.dir.join(checksum.to_string())
    }

    /// The bytes of an artifact, which have its checksum; nothing when it is missing or damaged.
    pub fn get(&self, checksum: &Checksum) -> Option<Vec<u8>> {
        let bytes = disk::read(&self.path(checksum), self.budget.bytes() as u64).ok()?;
        (Checksum::of(&bytes) == *checksum).then_some(bytes)
    }

    /// Whether a file of this name is there; it may be damaged.
    pub fn has(&self, checksum: &Checksum) -> bool {
        self.path(checksum).is_file()
    }

    /// Begins to take artifacts.
    pub fn incoming(&self) -> Incoming<'_> {
        Incoming { store: self, written: Vec::new(), passing: Vec::new() }
    }

    /// Removes an artifact that nothing names any more.
    pub fn discard(&self, checksum: &Checksum) {
        disk::discard(&self.path(checksum));
    }

    /// Removes everything that `keep` does not name, and what a crash left behind.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn clean(&self, keep: &BTreeSet<Checksum>) -> Result<(), DiskError> {
        for name in disk::names(&self.dir)? {
            if !name.parse::<Checksum>().is_ok_and(|checksum| keep.contains(&checksum)) {
                disk::discard(&self.dir.join(name));
            }
        }
        Ok(())
    }
}

impl Incoming<'_> {
    /// Takes the bytes of an artifact; they are durable after [`Incoming::finish`].
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn add(&mut self, checksum: Checksum, bytes: &[u8]) -> Result<(), DiskError> {
        let path = disk::beside(&self.store.path(&checksum));
        self.passing.push(Passing::new(path.clone()));
        let mut file = disk::create(&path, disk::PRIVATE_FILE)?;
        disk::write(&mut file, &path, bytes)?;
        self.written.push(checksum);
        Ok(())
    }

    /// Makes them durable and gives them their names.
    ///
    /// # Errors
    /// When a step fails; none is lost that was there before.
    pub fn finish(self) -> Result<(), DiskError> {
        if self.written.is_empty() {
            return Ok(());
        }
        let dir = &self.store.dir;
        if self.written.len() > FLUSH_EACH_MAX {
            fail::fail_point!("edge.fsync_file.before");
            let open = File::open(dir).at("open", dir)?;
            nix::unistd::syncfs(&open).map_err(io::Error::from).at("flush", dir)?;
            fail::fail_point!("edge.fsync_file.after");
        } else {
            for checksum in &self.written {
                let path = disk::beside(&self.store.path(checksum));
                disk::sync_file(&File::open(&path).at("open", &path)?, &path)?;
            }
        }
        for checksum in &self.written {
            let path = self.store.path(checksum);
            disk::rename(&disk::beside(&path), &path)?;
        }
        disk::sync_dir(dir)
    }
}
