//! Connections whose peer takes nothing any more are closed by the kernel: data
//! that nobody acknowledges, and a window that stays shut, for longer than
//! [`WRITE_STALL`] end the connection (RFC 5482). An event stream resumes by its id.

use nix::sys::socket::{setsockopt, sockopt};
use std::time::Duration;
use tokio::net::TcpStream;

/// How long a peer may take nothing.
pub const WRITE_STALL: Duration = Duration::from_secs(30);

/// Has the kernel watch a connection that was just accepted.
pub fn watch(stream: &TcpStream, limit: Duration) {
    let millis = u32::try_from(limit.as_millis()).unwrap_or(u32::MAX);
    if let Err(error) = setsockopt(stream, sockopt::TcpUserTimeout, &millis) {
        tracing::debug!(%error, "a connection that stalls will be kept for longer");
    }
}
