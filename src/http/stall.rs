//! Connections whose peer takes nothing any more are closed: a write that waits
//! longer than [`WRITE_STALL`] is an error, and so is data that nobody
//! acknowledges for that long. An event stream resumes by its id.

use axum::serve::Listener;
use nix::sys::socket::{setsockopt, sockopt};
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, Sleep};

/// How long a peer may take nothing.
pub const WRITE_STALL: Duration = Duration::from_secs(30);

/// A listener whose connections end when a write stalls.
#[derive(Debug)]
pub struct StallListener {
    inner: TcpListener,
    limit: Duration,
}

impl StallListener {
    /// Guards the connections of a listener.
    pub fn new(inner: TcpListener) -> Self {
        Self::with_limit(inner, WRITE_STALL)
    }

    /// As [`Self::new`], with another limit.
    pub fn with_limit(inner: TcpListener, limit: Duration) -> Self {
        Self { inner, limit }
    }
}

impl Listener for StallListener {
    type Io = StallGuard;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (StallGuard, SocketAddr) {
        let (stream, address) = Listener::accept(&mut self.inner).await;
        let millis = u32::try_from(self.limit.as_millis()).unwrap_or(u32::MAX);
        if let Err(error) = setsockopt(&stream, sockopt::TcpUserTimeout, &millis) {
            tracing::debug!(%error, "the kernel does not watch a connection for us");
        }
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "small writes of a connection may be delayed");
        }
        (StallGuard { stream, limit: self.limit, stalled: None }, address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }
}

/// One connection.
#[derive(Debug)]
pub struct StallGuard {
    stream: TcpStream,
    limit: Duration,
    /// Runs from the first write that had to wait.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl StallGuard {
    fn judge(&mut self, cx: &mut Context<'_>, poll: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if poll.is_ready() {
            self.stalled = None;
            return poll;
        }
        let limit = self.limit;
        let sleep =
            self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(Instant::now() + limit)));
        ready!(sleep.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the peer takes nothing any more")))
    }
}

impl AsyncRead for StallGuard {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for StallGuard {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let poll = Pin::new(&mut this.stream).poll_write(cx, buf);
        this.judge(cx, poll)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let poll = Pin::new(&mut this.stream).poll_write_vectored(cx, bufs);
        this.judge(cx, poll)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}
