//! Directories and accounts of the parts.
//!
//! PostgreSQL refuses to run as root, and PowerDNS and dnsdist have no business with it. When we are root each part
//! runs under the account its package made; otherwise all run as ourselves. Those accounts must be able to reach
//! their directories, a unix socket path is at most 107 bytes, and configurations quote each in its own way: where the
//! chosen directory does not allow for all that, the parts live under `/var/tmp`, in a place derived from its path.

use std::fs::{OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;
use nix::unistd::{User, geteuid};

/// The longest path of the parts' directory that leaves room for a socket below it (107 bytes in all).
const STATE_PATH_MAX_BYTES: usize = 64;

/// The user a part runs as.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Account {
    /// The user who runs us.
    Own,
    /// The account of a package, used when we are root.
    Package(&'static str),
}

impl Account {
    /// The account of PostgreSQL.
    pub const POSTGRES: Self = Self::Package("postgres");
    /// The account of PowerDNS.
    pub const PDNS: Self = Self::Package("pdns");
    /// The account of dnsdist.
    pub const DNSDIST: Self = Self::Package("_dnsdist");

    /// The package's account if it is to be used: only root can change the user.
    fn other(self) -> Option<&'static str> {
        match self {
            Self::Package(name) if geteuid().is_root() => Some(name),
            _ => None,
        }
    }

    /// A command that runs `program` as this user and, if asked, ends when the spawning thread does.
    pub fn command(self, program: &Path, death: Option<Signal>) -> Command {
        let mut command = Command::new("setpriv");
        if let Some(name) = self.other() {
            command.args([
                format!("--reuid={name}"),
                format!("--regid={name}"),
                "--init-groups".into(),
                "--reset-env".into(),
            ]);
        }
        if let Some(signal) = death {
            command.arg("--pdeathsig").arg(signal.as_str().trim_start_matches("SIG"));
        }
        command.arg("--").arg(program);
        // A configuration for another Headwater in our environment is not for our parts.
        for (name, _) in std::env::vars_os() {
            if name.as_encoded_bytes().starts_with(b"HEADWATER_") {
                command.env_remove(name);
            }
        }
        command
    }

    /// The name of the user that processes of this account have.
    pub fn user_name(self) -> Result<String> {
        if let Some(name) = self.other() {
            return Ok(name.to_owned());
        }
        let user = User::from_uid(geteuid()).context("cannot look up our own user")?;
        Ok(user.context("our own user has no entry in the user database")?.name)
    }

    /// Gives a file or directory to this user.
    pub fn own(self, path: &Path) -> Result<()> {
        let Some(name) = self.other() else { return Ok(()) };
        let user = User::from_name(name)
            .with_context(|| format!("cannot look up the user {name}"))?
            .with_context(|| format!("there is no user {name}: run scripts/prepare"))?;
        chown(path, Some(user.uid.as_raw()), Some(user.gid.as_raw()))
            .with_context(|| format!("cannot give {} to {name}", path.display()))
    }

    /// Makes a directory that this user owns, with the mode given.
    pub fn make_dir(self, path: &Path, mode: u32) -> Result<()> {
        std::fs::create_dir_all(path).with_context(|| format!("cannot make {}", path.display()))?;
        std::fs::set_permissions(path, Permissions::from_mode(mode))
            .with_context(|| format!("cannot set the mode of {}", path.display()))?;
        self.own(path)
    }

    /// Writes a file that only this user (and root) can read, atomically.
    pub fn write_file(self, path: &Path, text: &str) -> Result<()> {
        let temporary = path.with_extension("new");
        write_private(&temporary, text)?;
        self.own(&temporary)?;
        std::fs::rename(&temporary, path).with_context(|| format!("cannot write {}", path.display()))
    }
}

/// Writes a file of mode 0600, flushed to the disk, that is ours.
fn write_private(path: &Path, text: &str) -> Result<()> {
    let write = || -> std::io::Result<()> {
        // A leftover of an interrupted write may belong to another user.
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

/// The directory of one demo or one test: our own files in it, and the parts' below [`Home::state`].
#[derive(Clone)]
pub struct Home {
    dir: PathBuf,
    state: PathBuf,
    templates: PathBuf,
}

impl Home {
    /// Makes or opens a directory. It is ours alone to list; its parts' accounts may pass through it.
    pub fn open(dir: &Path) -> Result<Self> {
        let dir = make_passable(dir)?;
        let is_short = dir.as_os_str().len() <= STATE_PATH_MAX_BYTES;
        let state = if is_short && is_plain(&dir) && is_passable(&dir)? {
            dir.clone()
        } else {
            let hash = blake3::hash(dir.as_os_str().as_encoded_bytes()).to_hex();
            open_elsewhere(&dir, &Path::new("/var/tmp").join(format!("hw-{}", &hash[..16])))?
        };
        Ok(Self { templates: state.join("templates"), dir, state })
    }

    /// The same directory with its prepared data directories kept elsewhere, so that several can use them.
    pub fn with_templates(mut self, dir: &Path) -> Self {
        self.templates = dir.to_owned();
        self
    }

    /// Our own files.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The parent of the parts' directories.
    pub fn state(&self) -> &Path {
        &self.state
    }

    /// Where data directories that are copied instead of made anew are kept.
    pub fn templates(&self) -> &Path {
        &self.templates
    }

    /// The directory of one part.
    pub fn part(&self, name: &str) -> PathBuf {
        self.state.join(name)
    }

    /// The log file of one part.
    pub fn log(&self, name: &str) -> PathBuf {
        self.dir.join("logs").join(format!("{name}.log"))
    }
}

/// Makes a directory of mode 0711 that must be ours: in `/var/tmp` anybody could have made it first.
fn make_passable(dir: &Path) -> Result<PathBuf> {
    std::fs::create_dir_all(dir.join("logs")).with_context(|| format!("cannot make {}", dir.display()))?;
    let dir = dir.canonicalize().with_context(|| format!("cannot find {}", dir.display()))?;
    let metadata = dir.symlink_metadata().with_context(|| format!("cannot look at {}", dir.display()))?;
    if metadata.uid() != geteuid().as_raw() {
        bail!("{} belongs to another user: choose another directory or remove it", dir.display());
    }
    let set = |path: &Path, mode| std::fs::set_permissions(path, Permissions::from_mode(mode));
    set(&dir, 0o711)
        .and_then(|()| set(&dir.join("logs"), 0o700))
        .with_context(|| format!("cannot set the mode of {}", dir.display()))?;
    Ok(dir)
}

/// Makes or opens the place of the parts of `dir`. What is there when `dir` is new belongs to an earlier directory of
/// the same path, which was removed; without its passwords and tokens it is of no use.
fn open_elsewhere(dir: &Path, state: &Path) -> Result<PathBuf> {
    let note = dir.join("parts-directory");
    let state = make_passable(state)?;
    if note.exists() {
        return Ok(state);
    }
    std::fs::remove_dir_all(&state).with_context(|| format!("cannot remove {}", state.display()))?;
    let state = make_passable(&state)?;
    Account::Own.write_file(&note, &format!("{}\n", state.display()))?;
    Ok(state)
}

/// Whether a path can stand in every configuration as it is.
fn is_plain(dir: &Path) -> bool {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._-+".contains(byte);
    dir.as_os_str().as_encoded_bytes().iter().all(is_plain)
}

/// Whether every user can reach this directory; when all parts run as ourselves that does not matter.
fn is_passable(dir: &Path) -> Result<bool> {
    if !geteuid().is_root() {
        return Ok(true);
    }
    for parent in dir.ancestors() {
        let metadata = parent.metadata().with_context(|| format!("cannot look at {}", parent.display()))?;
        if metadata.mode() & 0o001 == 0 {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_long_or_closed_directory_live_elsewhere() {
        let dir = tempfile::Builder::new().tempdir_in("/var/tmp").unwrap();
        let near = Home::open(dir.path()).unwrap();
        assert_eq!(near.state(), near.dir());
        let long = dir.path().join("x".repeat(90));
        let far = Home::open(&long).unwrap();
        assert!(far.state().to_string_lossy().starts_with("/var/tmp/hw-"), "{}", far.state().display());
        let strange = dir.path().join("a b");
        let elsewhere = Home::open(&strange).unwrap();
        assert!(elsewhere.state().to_string_lossy().starts_with("/var/tmp/hw-"));
        std::fs::remove_dir_all(elsewhere.state()).unwrap();
        // It is found again, and made anew once its directory was removed.
        std::fs::write(far.part("data"), "x").unwrap();
        assert_eq!(Home::open(&long).unwrap().state(), far.state());
        assert!(far.part("data").exists());
        std::fs::remove_dir_all(&long).unwrap();
        assert!(!Home::open(&long).unwrap().part("data").exists());
        std::fs::remove_dir_all(far.state()).unwrap();
    }
}
