//! The keys of certificates in the directory of a cell: of the user of its workers alone, and authenticated, so that one
//! that does not hold is written anew from what is sealed in the index.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, SystemTime};

use headwater_edge_wire::compiled::key_file;
use headwater_edge_wire::ids::{CertificateId, Version};
use headwater_edge_wire::secret::SecretBytes;

use crate::cell::Cell;
use crate::disk::{self, At, DiskError};

const KEY_FILE_MAX_BYTES: u64 = 32 << 10;
/// A key file that nothing names is kept for as long as a generation before may name it.
const KEY_KEPT: Duration = Duration::from_secs(86_400);

impl Cell {
    /// Writes the key of a certificate, unless it is there and holds. It is durable before the next switch.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn put_key(
        &mut self,
        id: CertificateId,
        version: Version,
        pem: &SecretBytes,
    ) -> Result<(), DiskError> {
        let name = key_file(id, version);
        let path = self.dir.join(&name);
        if self.key_holds(&path, &name, pem.expose()) {
            return Ok(());
        }
        let mac = self.key.mac("key", &[name.as_bytes(), pem.expose()]);
        let beside = disk::beside(&path);
        let mut file = disk::create(&beside, disk::PRIVATE_FILE)?;
        self.give(&beside)?;
        // What follows the PEM block is no part of it to any reader.
        let trailer = format!("\nmac {}\n", hex::encode(mac));
        disk::write(&mut file, &beside, pem.expose())?;
        disk::write(&mut file, &beside, trailer.as_bytes())?;
        fs::rename(&beside, &path).at("rename to", &path)?;
        self.has_new_keys = true;
        Ok(())
    }

    fn key_holds(&self, path: &Path, name: &str, pem: &[u8]) -> bool {
        let Ok(bytes) = disk::read(path, KEY_FILE_MAX_BYTES).map(zeroize::Zeroizing::new) else {
            return false;
        };
        let mac = self.key.mac("key", &[name.as_bytes(), pem]);
        bytes.strip_prefix(pem).is_some_and(|rest| rest == format!("\nmac {}\n", hex::encode(mac)).as_bytes())
    }

    /// Names the key files that do not hold.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn bad_keys(&self) -> Result<Vec<String>, DiskError> {
        let mut bad = Vec::new();
        for file in disk::names(&self.dir.join("keys"))? {
            let name = format!("keys/{file}");
            let holds = disk::read(&self.dir.join(&name), KEY_FILE_MAX_BYTES).ok().and_then(|bytes| {
                let at = bytes.windows(5).rposition(|window| window == b"\nmac ")?;
                let (pem, trailer) = bytes.split_at_checked(at)?;
                let mac = hex::decode(trailer.get(5..)?.strip_suffix(b"\n")?).ok()?;
                Some(self.key.holds("key", &[name.as_bytes(), pem], &mac))
            });
            if holds != Some(true) {
                bad.push(name);
            }
        }
        Ok(bad)
    }

    /// Makes new keys durable.
    pub(crate) fn sync_keys(&mut self) -> Result<(), DiskError> {
        if std::mem::take(&mut self.has_new_keys) {
            let dir = self.dir.join("keys");
            let open = File::open(&dir).at("open", &dir)?;
            nix::unistd::syncfs(&open).map_err(std::io::Error::from).at("flush", &dir)?;
        }
        Ok(())
    }

    /// Removes the keys that `used` does not name and that have been there for long.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn clean_keys(&self, used: &BTreeSet<u64>) -> Result<(), DiskError> {
        let dir = self.dir.join("keys");
        for name in disk::names(&dir)? {
            let path = dir.join(&name);
            let is_old = fs::metadata(&path)
                .and_then(|meta| meta.modified())
                .is_ok_and(|at| SystemTime::now().duration_since(at).is_ok_and(|age| age > KEY_KEPT));
            if is_old && !used.contains(&crate::index::host_hash(&format!("keys/{name}"))) {
                disk::discard(&path);
            }
        }
        Ok(())
    }
}
