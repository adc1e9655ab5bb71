//! The key ring under which what secrets are sealed with is sealed in the database: XChaCha20-Poly1305 with a random
//! nonce, bound to the place where it stands, so that a sealed value that is moved to another row opens nowhere. Secrets
//! themselves are sealed under data keys ([`data`]), those under the ring; before there were data keys, secrets were
//! sealed under the ring directly, and those still open.
//!
//! What must hold: the ring stands in a file of its owner alone, never in the database, and is read only when a secret
//! is needed; nothing here has a `Debug` or a serialized form. The first key of the file seals, all of them open: a new
//! key is written in front of the others, and processes that run find it there when they meet what it sealed.

pub mod data;
pub mod derived;
pub mod rotate;
pub mod sql;

pub use data::{Opener, Owner};

use arc_swap::ArcSwap;
use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use headwater_edge_wire::secret::{SecretArray, SecretBytes};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use zeroize::Zeroizing;

use crate::config::Config;
use crate::secret::Secret;

/// Keys of a ring, at most.
pub const KEYS_MAX_COUNT: usize = 8;
/// The version of the form of sealed bytes, their first byte.
const FORM: u8 = 1;
/// Octets of a key's id.
const ID_BYTES: usize = 8;
/// Octets of a nonce.
const NONCE_BYTES: usize = 24;
/// What a key's id is derived under.
const ID_LABEL: &str = "headwater 2026-11 vault key id v1";
/// What the key of digests is derived under.
const DIGEST_LABEL: &str = "headwater 2026-12 vault digest key v1";
/// What every file begins with.
const HEAD: &str = "# The keys that seal what Headwater keeps secret in its database: <id> <256 bits in hex>.\n\
    # The first one seals, all of them open. Keep a copy apart from the database's: without it those secrets are lost.\n";

/// Where a sealed value stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place<'a> {
    /// The kind of secret.
    pub kind: &'a str,
    /// Whose.
    pub id: &'a str,
    /// Which version of it.
    pub version: i32,
}

impl Place<'_> {
    /// Each part with its length, so that none can shift into another.
    fn bound(&self) -> Vec<u8> {
        let mut bound = Vec::new();
        for part in [self.kind.as_bytes(), self.id.as_bytes(), &self.version.to_be_bytes()] {
            bound.extend_from_slice(&(part.len() as u64).to_be_bytes());
            bound.extend_from_slice(part);
        }
        bound
    }
}

/// Why a secret cannot be sealed or opened. It never says what the secret is.
#[derive(Debug, thiserror::Error)]
pub enum VaultError {
    /// There is no key file.
    #[error(
        "there is no secret key file {}, under which secrets are sealed: run `headwater init`, or name the file in \
         [secrets] key_file or HEADWATER_SECRET_KEY_FILE",
        .0.display()
    )]
    Missing(PathBuf),
    /// The key file cannot be read.
    #[error("the secret key file {} cannot be read: {why}", .file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// Why.
        why: String,
    },
    /// Others can read it.
    #[error("the secret key file {} can be read by others: `chmod 600` it", .0.display())]
    Open(PathBuf),
    /// A line that is none.
    #[error("line {line} of the secret key file {}: {what}", .file.display())]
    Line {
        /// The file.
        file: PathBuf,
        /// Which line.
        line: usize,
        /// What is wrong.
        what: &'static str,
    },
    /// It was sealed under a key that is not in the ring.
    #[error("a secret was sealed under the key {0}, which is not in the secret key file")]
    UnknownKey(String),
    /// Changed, or of another place.
    #[error("a sealed {0} cannot be opened: it was changed or moved")]
    Broken(String),
    /// What it was sealed under was erased.
    #[error("the key that this was sealed under is gone: its owner was deleted")]
    Gone,
    /// The key file is full.
    #[error(
        "the secret key file holds {KEYS_MAX_COUNT} keys already: take one out that nothing is sealed under"
    )]
    Full,
    /// The database does not answer.
    #[error("the control database did not answer: {0}")]
    Database(#[from] sqlx::Error),
    /// The library failed.
    #[error("the cryptographic library failed")]
    Library,
}

struct Key {
    id: [u8; ID_BYTES],
    cipher: XChaCha20Poly1305,
    digests: Zeroizing<[u8; 32]>,
}

/// The key ring.
pub struct Vault {
    file: PathBuf,
    keys: ArcSwap<Vec<Key>>,
}

impl Vault {
    /// Reads the ring that the configuration names.
    ///
    /// # Errors
    /// When there is none, or it must not be used.
    pub fn open(config: &Config) -> Result<Self, VaultError> {
        Self::read(&config.secrets.key_file)
    }

    /// Reads the ring of a file.
    ///
    /// # Errors
    /// When there is none, or it must not be used.
    pub fn read(file: &Path) -> Result<Self, VaultError> {
        Ok(Self { file: file.to_owned(), keys: ArcSwap::from_pointee(Self::parse(file)?) })
    }

    /// Reads the file anew: another process may have added a key.
    ///
    /// # Errors
    /// When it cannot be used any more; then the keys stay that there are.
    pub fn reread(&self) -> Result<(), VaultError> {
        self.keys.store(Arc::new(Self::parse(&self.file)?));
        Ok(())
    }

    fn parse(file: &Path) -> Result<Vec<Key>, VaultError> {
        let unreadable = |why: String| VaultError::Unreadable { file: file.to_owned(), why };
        let meta = match std::fs::metadata(file) {
            Ok(meta) => meta,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(VaultError::Missing(file.to_owned()));
            }
            Err(error) => return Err(unreadable(error.to_string())),
        };
        // A group may read it: that is how service managers hand credentials over.
        if meta.permissions().mode() & 0o037 != 0 {
            return Err(VaultError::Open(file.to_owned()));
        }
        let text = Secret::read(file).map_err(|error| unreadable(format!("{error:#}")))?;
        let mut keys = Vec::new();
        for (index, line) in text.expose().lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let key = Key::parse(line).map_err(|what| VaultError::Line {
                file: file.to_owned(),
                line: index + 1,
                what,
            })?;
            keys.push(key);
        }
        match keys.len() {
            0 => Err(unreadable("it holds no key".to_owned())),
            count if count > KEYS_MAX_COUNT => Err(unreadable(format!("more than {KEYS_MAX_COUNT} keys"))),
            _ => Ok(keys),
        }
    }

    /// Seals something for its place, directly under the newest key. Secrets are sealed under data keys instead:
    /// [`Vault::seal_for`].
    ///
    /// # Errors
    /// When the library fails.
    pub fn seal(&self, place: Place<'_>, secret: &[u8]) -> Result<Vec<u8>, VaultError> {
        let keys = self.keys.load();
        let key = keys.first().ok_or(VaultError::Library)?;
        let nonce: [u8; NONCE_BYTES] = rand::random();
        let payload = Payload { msg: secret, aad: &place.bound() };
        let sealed = key.cipher.encrypt(&XNonce::from(nonce), payload).map_err(|_| VaultError::Library)?;
        Ok([&[FORM], key.id.as_slice(), &nonce, &sealed].concat())
    }

    /// The keys that digests of what holders must show are made under, the newest first.
    pub fn digest_keys(&self) -> Vec<Zeroizing<[u8; 32]>> {
        self.keys.load().iter().map(|key| key.digests.clone()).collect()
    }

    /// What names the keys, the newest first.
    pub fn ids(&self) -> Vec<String> {
        self.keys.load().iter().map(|key| hex::encode(key.id)).collect()
    }

    /// What names the newest key.
    pub fn newest(&self) -> [u8; ID_BYTES] {
        self.keys.load().first().map(|key| key.id).unwrap_or_default()
    }

    /// Opens what was sealed for this place directly under a key of the file.
    ///
    /// # Errors
    /// When it was sealed under a key that is not here, for another place, or was changed.
    pub fn unseal(&self, place: Place<'_>, sealed: &[u8]) -> Result<SecretBytes, VaultError> {
        let broken = || VaultError::Broken(place.kind.to_owned());
        let (form, rest) = sealed.split_first().ok_or_else(broken)?;
        let (id, rest) = rest.split_first_chunk::<ID_BYTES>().ok_or_else(broken)?;
        let (nonce, text) = rest.split_first_chunk::<NONCE_BYTES>().ok_or_else(broken)?;
        if *form != FORM {
            return Err(broken());
        }
        if !self.keys.load().iter().any(|key| key.id == *id) {
            // A rotation may be under way.
            self.reread()?;
        }
        let keys = self.keys.load();
        let key = keys.iter().find(|key| key.id == *id);
        let key = key.ok_or_else(|| VaultError::UnknownKey(hex::encode(id)))?;
        let payload = Payload { msg: text, aad: &place.bound() };
        key.cipher.decrypt(&XNonce::from(*nonce), payload).map(SecretBytes::new).map_err(|_| broken())
    }
}

impl Key {
    fn parse(line: &str) -> Result<Self, &'static str> {
        let (id, key) = line.split_once(' ').ok_or("it must be an id, a space and a key")?;
        let mut bytes = Zeroizing::new([0; 32]);
        hex::decode_to_slice(key.trim(), bytes.as_mut()).map_err(|_| "the key must be 64 hex digits")?;
        let key = SecretArray::from_slice(bytes.as_ref()).ok_or("the key must be 64 hex digits")?;
        let derived = id_of(key.expose());
        if id != hex::encode(derived) {
            return Err("the id is not that of the key: was the line copied whole?");
        }
        let digests = Zeroizing::new(blake3::derive_key(DIGEST_LABEL, key.expose()));
        Ok(Self { id: derived, cipher: XChaCha20Poly1305::new(key.expose().into()), digests })
    }
}

fn id_of(key: &[u8; 32]) -> [u8; ID_BYTES] {
    let [a, b, c, d, e, f, g, h, ..] = blake3::derive_key(ID_LABEL, key);
    [a, b, c, d, e, f, g, h]
}

/// Makes the key file with one new key, for its owner alone, where there is none; says whether it did.
///
/// # Errors
/// When it cannot be written.
pub fn make(file: &Path) -> std::io::Result<bool> {
    let text = Zeroizing::new(format!("{HEAD}{}", new_line().as_str()));
    if let Some(dir) = dir_of(file) {
        std::fs::create_dir_all(dir)?;
    }
    // A link never replaces a file.
    let new = write_beside(file, &text, 0o600)?;
    let linked = std::fs::hard_link(&new, file);
    std::fs::remove_file(&new)?;
    match linked {
        Ok(()) => sync_dir(file).map(|()| true),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
    }
}

/// Puts a new key in front of the others of a file, which is replaced as a whole and keeps its owner and mode.
///
/// # Errors
/// When the file cannot be used, is full, or cannot be written.
pub fn add(file: &Path) -> Result<(), VaultError> {
    let unwritten =
        |error: std::io::Error| VaultError::Unreadable { file: file.to_owned(), why: error.to_string() };
    if Vault::parse(file)?.len() >= KEYS_MAX_COUNT {
        return Err(VaultError::Full);
    }
    let old = Zeroizing::new(std::fs::read_to_string(file).map_err(unwritten)?);
    let is_key = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with('#');
    let first = old.lines().find(is_key).unwrap_or_default();
    let at = old.find(first).unwrap_or_default();
    let (head, keys) = old.split_at(at);
    let text = Zeroizing::new([head, new_line().as_str(), keys].concat());
    let meta = std::fs::metadata(file).map_err(unwritten)?;
    let new = write_beside(file, &text, meta.permissions().mode() & 0o777).map_err(unwritten)?;
    let owned = std::os::unix::fs::chown(&new, Some(meta.uid()), Some(meta.gid()));
    let replaced = owned.and_then(|()| std::fs::rename(&new, file)).and_then(|()| sync_dir(file));
    if replaced.is_err() {
        // It holds a key.
        let _removed = std::fs::remove_file(&new);
    }
    replaced.map_err(unwritten)
}

fn new_line() -> Zeroizing<String> {
    let key = Zeroizing::new(rand::random::<[u8; 32]>());
    Zeroizing::new(format!("{} {}\n", hex::encode(id_of(&key)), Zeroizing::new(hex::encode(*key)).as_str()))
}

fn dir_of(file: &Path) -> Option<&Path> {
    file.parent().filter(|dir| !dir.as_os_str().is_empty())
}

/// Whole or not at all: a half-written ring would be taken for a damaged one.
fn write_beside(file: &Path, text: &str, mode: u32) -> std::io::Result<PathBuf> {
    let new = file.with_extension(format!("new-{}", std::process::id()));
    let mut options = std::fs::OpenOptions::new();
    let mut out = options.write(true).create(true).truncate(true).mode(mode).open(&new)?;
    out.write_all(text.as_bytes()).and_then(|()| out.sync_all())?;
    Ok(new)
}

fn sync_dir(file: &Path) -> std::io::Result<()> {
    std::fs::File::open(dir_of(file).unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: Place<'static> = Place { kind: "signing_key", id: "a", version: 1 };

    #[test]
    fn a_secret_opens_at_its_place_alone() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("keys/secret-key");
        assert!(matches!(Vault::read(&file), Err(VaultError::Missing(_))));
        assert!(make(&file).unwrap());
        assert!(!make(&file).unwrap(), "a ring is never replaced");
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        let vault = Vault::read(&file).unwrap_or_else(|error| panic!("{error}"));
        let sealed = vault.seal(PLACE, b"hush").unwrap();
        assert!(!sealed.windows(4).any(|window| window == b"hush"));
        assert_ne!(sealed, vault.seal(PLACE, b"hush").unwrap());
        assert_eq!(vault.unseal(PLACE, &sealed).unwrap_or_else(|e| panic!("{e}")).expose(), b"hush");
        for other in [
            Place { kind: "signing_keya", id: "", ..PLACE },
            Place { id: "b", ..PLACE },
            Place { version: 2, ..PLACE },
        ] {
            assert!(matches!(vault.unseal(other, &sealed), Err(VaultError::Broken(_))), "{other:?}");
        }
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert!(vault.unseal(PLACE, &changed).is_err(), "byte {at}");
            assert!(vault.unseal(PLACE, &sealed[..at]).is_err(), "{at} bytes");
        }
    }

    #[test]
    fn a_new_key_stands_in_front_and_the_old_one_still_opens() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (dir.path().join("one"), dir.path().join("two"));
        assert!(make(&one).unwrap() && make(&two).unwrap());
        let read = |file: &Path| Vault::read(file).unwrap_or_else(|error| panic!("{error}"));
        let sealed = read(&one).seal(PLACE, b"hush").unwrap();
        assert!(matches!(read(&two).unseal(PLACE, &sealed), Err(VaultError::UnknownKey(_))));
        let both = [std::fs::read_to_string(&two).unwrap(), std::fs::read_to_string(&one).unwrap()].concat();
        std::fs::write(&one, both).unwrap();
        assert!(read(&one).unseal(PLACE, &sealed).is_ok());
        assert!(read(&two).unseal(PLACE, &read(&one).seal(PLACE, b"x").unwrap()).is_ok());
    }

    #[test]
    fn a_key_is_added_in_front_while_others_read() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("ring");
        assert!(make(&file).unwrap());
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
        let read = |file: &Path| Vault::read(file).unwrap_or_else(|error| panic!("{error}"));
        let (running, old) = (read(&file), read(&file).ids());
        add(&file).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left beside it");
        let added = read(&file);
        assert_eq!((added.ids().len(), &added.ids()[1..]), (2, old.as_slice()));
        // Who runs finds the key when it meets what it sealed.
        let sealed = added.seal(PLACE, b"hush").unwrap();
        assert_eq!(running.ids(), old);
        assert!(running.unseal(PLACE, &sealed).is_ok());
        assert_eq!(running.ids(), added.ids());
        for _ in 2..KEYS_MAX_COUNT {
            assert!(add(&file).is_ok());
        }
        assert!(matches!(add(&file), Err(VaultError::Full)));
    }

    #[test]
    fn a_ring_that_others_can_read_or_that_is_damaged_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("ring");
        assert!(make(&file).unwrap());
        let text = std::fs::read_to_string(&file).unwrap();
        let broken = text.trim_end().strip_suffix(|_: char| true).unwrap().to_owned();
        std::fs::write(&file, broken).unwrap();
        assert!(matches!(Vault::read(&file), Err(VaultError::Line { line: 3, .. })));
        std::fs::write(&file, "# nothing\n").unwrap();
        assert!(matches!(Vault::read(&file), Err(VaultError::Unreadable { .. })));
        std::fs::write(&file, text).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o604)).unwrap();
        assert!(matches!(Vault::read(&file), Err(VaultError::Open(_))));
    }
}
