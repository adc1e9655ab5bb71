//! Small files that must not be lost to one bad sector: written twice, each copy whole and authenticated, the second
//! after the first. A reader takes the copies that hold and says which do not.

use std::path::{Path, PathBuf};

use crate::disk::{self, DiskError};
use crate::mac::{MAC_BYTES, StateKey};

/// The most bytes of such a file.
pub const TWIN_MAX_BYTES: u64 = 1 << 20;
const SUFFIXES: [&str; 2] = ["a", "b"];

/// The copies of one file.
#[derive(Debug)]
pub struct Twin {
    path: PathBuf,
}

/// What the copies hold.
#[derive(Debug, Default)]
pub struct Copies {
    /// The bodies that hold.
    pub good: Vec<Vec<u8>>,
    /// The files that are there and do not hold.
    pub bad: Vec<PathBuf>,
    /// Whether a copy is missing.
    pub missing: bool,
}

impl Copies {
    /// Whether both copies should be written anew.
    pub fn need_mending(&self) -> bool {
        !self.bad.is_empty() || (self.missing && !self.good.is_empty())
    }
}

impl Twin {
    /// The file of this name.
    pub fn new(dir: &Path, name: &str) -> Self {
        Self { path: dir.join(name) }
    }

    /// The paths of the copies.
    pub fn paths(&self) -> [PathBuf; 2] {
        SUFFIXES.map(|suffix| self.path.with_extension(suffix))
    }

    fn purpose(&self) -> String {
        format!("twin:{}", self.path.file_name().unwrap_or_default().to_string_lossy())
    }

    /// Writes both copies, durably.
    ///
    /// # Errors
    /// When a step fails. The first copy may hold the new body then.
    pub fn write(&self, key: &StateKey, body: &[u8]) -> Result<(), DiskError> {
        let mut bytes = key.mac(&self.purpose(), &[body]).to_vec();
        bytes.extend_from_slice(body);
        self.paths().iter().try_for_each(|path| disk::replace(path, &bytes, disk::PRIVATE_FILE))
    }

    /// Reads both copies.
    pub fn read(&self, key: &StateKey) -> Copies {
        let mut copies = Copies::default();
        for path in self.paths() {
            match disk::read(&path, TWIN_MAX_BYTES) {
                Err(error) if error.is_missing() => copies.missing = true,
                Err(_) => copies.bad.push(path),
                Ok(bytes) => match bytes.split_at_checked(MAC_BYTES) {
                    Some((mac, body)) if key.holds(&self.purpose(), &[body], mac) => {
                        copies.good.push(body.to_vec());
                    }
                    _ => copies.bad.push(path),
                },
            }
        }
        copies
    }
}
