//! Ports that nobody else on this machine takes, as long as the lease lives.
//!
//! Binding port 0 and letting go of it races between tests and clones that run at the same time, and the ephemeral
//! range is handed out to outgoing connections. So ports come from below that range, and each is held by an exclusive
//! lock on a file of its own in a directory that all users share. The lock goes with the process, even at `kill -9`.

use std::fmt;
use std::fs::{File, OpenOptions, Permissions};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

/// Where the lock files of all users are.
const LOCK_DIRECTORY: &str = "/var/tmp/headwater-ports";
/// The first port that is leased.
const FIRST_PORT: u16 = 15_000;
/// The port after the last one that is leased; the ephemeral range begins at 32768.
const END_PORT: u16 = 32_000;

/// A port of the loopback interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Port(u16);

impl Port {
    /// The loopback address with this port.
    pub fn address(self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.0))
    }
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A port that is ours, TCP and UDP, until this value is dropped.
pub struct PortLease {
    port: Port,
    _lock: File,
}

impl PortLease {
    /// Leases any free port.
    pub fn take() -> Result<Self> {
        prepare_directory()?;
        let count = END_PORT - FIRST_PORT;
        let start: u16 = rand::random_range(0..count);
        for step in 0..count {
            let port = Port(FIRST_PORT + (start + step) % count);
            if let Some(lease) = Self::try_take(port)? {
                return Ok(lease);
            }
        }
        bail!(
            "no free port between {FIRST_PORT} and {END_PORT}: stop what listens there, or look at {LOCK_DIRECTORY}"
        )
    }

    /// Leases this port if it is free, `None` if it is not.
    pub fn try_take(port: Port) -> Result<Option<Self>> {
        prepare_directory()?;
        let path = Path::new(LOCK_DIRECTORY).join(format!("{port}.lock"));
        let Some(lock) = open_lock(&path)? else {
            return Ok(None);
        };
        if lock.try_lock().is_err() || !is_free(port) {
            return Ok(None);
        }
        Ok(Some(Self { port, _lock: lock }))
    }

    /// The port that was leased.
    pub fn port(&self) -> Port {
        self.port
    }

    /// The loopback address with the leased port.
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }
}

fn prepare_directory() -> Result<()> {
    match std::fs::create_dir(LOCK_DIRECTORY) {
        // Everybody may add lock files; the sticky bit keeps others' files from being removed.
        Ok(()) => std::fs::set_permissions(LOCK_DIRECTORY, Permissions::from_mode(0o1777)),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
    .with_context(|| format!("cannot make the directory of the port locks, {LOCK_DIRECTORY}"))
}

/// Opens a lock file, making it if need be; `None` when another user's file cannot be opened.
fn open_lock(path: &Path) -> Result<Option<File>> {
    // In a sticky directory the kernel refuses O_CREAT on others' files, so the plain open comes first.
    match OpenOptions::new().read(true).open(path) {
        Ok(file) => return Ok(Some(file)),
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) if error.kind() == ErrorKind::PermissionDenied => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("cannot open {}", path.display())),
    }
    match OpenOptions::new().write(true).create_new(true).open(path) {
        Ok(file) => {
            file.set_permissions(Permissions::from_mode(0o644))
                .with_context(|| format!("cannot set the mode of {}", path.display()))?;
            Ok(Some(file))
        }
        // Another process made it in this moment: let it have the port.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot make {}", path.display())),
    }
}

fn is_free(port: Port) -> bool {
    TcpListener::bind(port.address()).is_ok() && UdpSocket::bind(port.address()).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leased_port_is_not_leased_twice_and_comes_back() {
        let lease = PortLease::take().unwrap();
        let port = lease.port();
        assert!(PortLease::try_take(port).unwrap().is_none());
        drop(lease);
        assert!(PortLease::try_take(port).unwrap().is_some());
    }

    #[test]
    fn a_port_in_use_is_not_leased() {
        let lease = PortLease::take().unwrap();
        let port = lease.port();
        let _user = UdpSocket::bind(lease.address()).unwrap();
        drop(lease);
        assert!(PortLease::try_take(port).unwrap().is_none());
    }
}
