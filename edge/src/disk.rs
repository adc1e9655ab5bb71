//! The few durable steps that everything on the disk is made of. A file appears whole under its name or not at all:
//! written beside, flushed, renamed, and its directory flushed. Each step has a crash point before and after it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The mode of what only the agent, or the user of a cell, may read.
pub const PRIVATE_FILE: u32 = 0o600;
/// The mode of a directory for such files.
pub const PRIVATE_DIR: u32 = 0o700;
/// The mode of a directory that others may pass through.
pub const PASSABLE_DIR: u32 = 0o711;

/// A step on the disk that failed.
#[derive(Debug, thiserror::Error)]
#[error("{}cannot {step} {}: {source}", if self.is_full() { "the disk is full: " } else { "" }, .path.display())]
pub struct DiskError {
    /// What was tried.
    pub step: &'static str,
    /// On what.
    pub path: PathBuf,
    /// Why it failed.
    pub source: io::Error,
}

impl DiskError {
    /// Whether there was no room.
    pub fn is_full(&self) -> bool {
        matches!(self.source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
    }

    /// Whether the file is not there.
    pub fn is_missing(&self) -> bool {
        self.source.kind() == io::ErrorKind::NotFound
    }
}

/// How fast something that nobody waits for reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    bytes_per_second: Option<u32>,
}

impl Pace {
    /// As fast as it goes.
    pub const FREE: Self = Self { bytes_per_second: None };

    /// At most so many bytes a second.
    pub const fn of(bytes_per_second: u32) -> Self {
        Self { bytes_per_second: Some(bytes_per_second) }
    }

    /// Waits for as long as so many bytes may take.
    pub fn spend(self, bytes: usize) {
        if let Some(rate) = self.bytes_per_second {
            let seconds = u32::try_from(bytes).unwrap_or(u32::MAX);
            std::thread::sleep(Duration::from_secs(1).saturating_mul(seconds) / rate.max(1));
        }
    }
}

/// Names the step and the path of an I/O error.
pub trait At<T> {
    /// The same result, its error with the step and the path.
    ///
    /// # Errors
    /// As before.
    fn at(self, step: &'static str, path: &Path) -> Result<T, DiskError>;
}

impl<T> At<T> for io::Result<T> {
    fn at(self, step: &'static str, path: &Path) -> Result<T, DiskError> {
        self.map_err(|source| DiskError { step, path: path.to_owned(), source })
    }
}

/// Makes a directory and those above it, with this mode where it is new.
///
/// # Errors
/// When it cannot be made.
pub fn make_dir(path: &Path, mode: u32) -> Result<(), DiskError> {
    if !path.is_dir() {
        fs::create_dir_all(path).at("make", path)?;
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).at("set the mode of", path)?;
    }
    Ok(())
}

/// Writes a new file and flushes it.
///
/// # Errors
/// When a step fails; what was written is removed.
pub fn write_new(path: &Path, bytes: &[u8], mode: u32) -> Result<(), DiskError> {
    let mut file = create(path, mode)?;
    let written = write(&mut file, path, bytes).and_then(|()| sync_file(&file, path));
    written.inspect_err(|_| discard(path))
}

/// A file that is only on its way: whatever of it is still there under this name is removed in the end.
#[derive(Debug)]
pub struct Passing(PathBuf);

impl Passing {
    /// The file of this name.
    pub fn new(path: PathBuf) -> Self {
        Self(path)
    }
}

impl Drop for Passing {
    fn drop(&mut self) {
        discard(&self.0);
    }
}

/// Fails as a full disk does, for as long as the file is there that a test names.
#[cfg(feature = "failpoints")]
fn room() -> io::Result<()> {
    match std::env::var_os("HEADWATER_EDGE_FULL") {
        Some(flag) if Path::new(&flag).exists() => {
            Err(io::Error::from_raw_os_error(nix::errno::Errno::ENOSPC as i32))
        }
        _ => Ok(()),
    }
}

#[cfg(not(feature = "failpoints"))]
fn room() -> io::Result<()> {
    Ok(())
}

/// As much as fits: half of it, when there is no room.
fn write_what_fits(file: &mut File, bytes: &[u8]) -> io::Result<()> {
    if let Err(full) = room() {
        file.write_all(bytes.get(..bytes.len() / 2).unwrap_or_default())?;
        return Err(full);
    }
    file.write_all(bytes)
}

/// Makes an empty file; what had its name is gone.
///
/// # Errors
/// When it cannot be made.
pub fn create(path: &Path, mode: u32) -> Result<File, DiskError> {
    let _was_there = fs::remove_file(path);
    OpenOptions::new().write(true).read(true).create_new(true).mode(mode).open(path).at("create", path)
}

/// Writes to an open file.
///
/// # Errors
/// When not all could be written.
pub fn write(file: &mut File, path: &Path, bytes: &[u8]) -> Result<(), DiskError> {
    fail::fail_point!("edge.write.before");
    write_what_fits(file, bytes).at("write", path)?;
    fail::fail_point!("edge.write.after");
    Ok(())
}

/// Flushes a file.
///
/// # Errors
/// When it may not have reached the disk.
pub fn sync_file(file: &File, path: &Path) -> Result<(), DiskError> {
    fail::fail_point!("edge.fsync_file.before");
    room().and_then(|()| file.sync_all()).at("flush", path)?;
    fail::fail_point!("edge.fsync_file.after");
    Ok(())
}

/// Flushes a directory, so that the names in it last.
///
/// # Errors
/// When it may not have reached the disk.
pub fn sync_dir(path: &Path) -> Result<(), DiskError> {
    fail::fail_point!("edge.fsync_dir.before");
    File::open(path).and_then(|dir| dir.sync_all()).at("flush", path)?;
    fail::fail_point!("edge.fsync_dir.after");
    Ok(())
}

/// Renames; the directory is not flushed yet.
///
/// # Errors
/// When it cannot be renamed.
pub fn rename(from: &Path, to: &Path) -> Result<(), DiskError> {
    fail::fail_point!("edge.rename.before");
    room().and_then(|()| fs::rename(from, to)).at("rename to", to)?;
    fail::fail_point!("edge.rename.after");
    Ok(())
}

/// Puts a file in the place of another, durably.
///
/// # Errors
/// When a step fails; the old file stays.
pub fn replace(path: &Path, bytes: &[u8], mode: u32) -> Result<(), DiskError> {
    let beside = beside(path);
    write_new(&beside, bytes, mode)?;
    rename(&beside, path).inspect_err(|_| discard(&beside))?;
    sync_dir(parent(path))
}

/// Where a file is written before it gets its name.
pub fn beside(path: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".new");
    path.with_file_name(name)
}

/// The directory of a file.
pub fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("."))
}

/// Reads a file of at most so many bytes.
///
/// # Errors
/// When it cannot be read or is longer.
pub fn read(path: &Path, max_bytes: u64) -> Result<Vec<u8>, DiskError> {
    let file = File::open(path).at("open", path)?;
    let mut bytes = Vec::new();
    file.take(max_bytes.saturating_add(1)).read_to_end(&mut bytes).at("read", path)?;
    if bytes.len() as u64 > max_bytes {
        return Err(io::Error::from(io::ErrorKind::FileTooLarge)).at("read", path);
    }
    Ok(bytes)
}

/// The names in a directory; none where it is not there.
///
/// # Errors
/// When it cannot be read.
pub fn names(path: &Path) -> Result<Vec<String>, DiskError> {
    let entries = match fs::read_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.at("list", path)?,
    };
    let names = entries.map(|entry| entry.map(|entry| entry.file_name().to_string_lossy().into_owned()));
    names.collect::<io::Result<_>>().at("list", path)
}

/// Removes a file or directory that nothing uses any more. What cannot be removed is tried again at the next cleaning.
pub fn discard(path: &Path) {
    let removed =
        if path.is_dir() && !path.is_symlink() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    if let Err(error) = removed
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(path = %path.display(), %error, "cannot remove what is no longer used");
    }
}

/// How many bytes are free for the agent.
///
/// # Errors
/// When the file system does not say.
pub fn free_bytes(path: &Path) -> Result<u64, DiskError> {
    let stat = nix::sys::statvfs::statvfs(path).map_err(io::Error::from).at("ask the free space of", path)?;
    Ok(stat.blocks_available().saturating_mul(stat.fragment_size()))
}
