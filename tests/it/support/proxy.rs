//! A TCP proxy before PostgreSQL that misbehaves on demand, message by message: a client that stalls in the middle
//! of a call, one whose connection is cut after it has sent a call, one whose network swallows everything.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use headwater::secret::Secret;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

/// The longest message that is passed on.
const MESSAGE_MAX_BYTES: usize = 64 << 20;

/// What the proxy does with what the client sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Mode {
    /// Passes everything on.
    Pass,
    /// Passes Execute on and keeps the Sync that follows.
    KeepSync,
    /// Passes the next Execute and its Sync on and then cuts the client off, while the server works on.
    CutAfterExecute,
    /// Swallows everything.
    Swallow,
}

struct Shared {
    mode: AtomicU8,
    executed: AtomicUsize,
}

/// One proxy. It ends with the runtime of its test.
pub struct Proxy {
    url: Secret,
    shared: Arc<Shared>,
}

impl Proxy {
    /// Starts one before the server of a URL.
    pub async fn start(url: &Secret) -> Self {
        let (head, rest) = url.expose().split_once('@').unwrap();
        let (server, database) = rest.split_once('/').unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let url = Secret::new(format!("{head}@{address}/{database}?sslmode=disable"));
        let shared = Arc::new(Shared { mode: AtomicU8::new(0), executed: AtomicUsize::new(0) });
        let (server, state) = (server.to_owned(), Arc::clone(&shared));
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect(&server).await else { continue };
                let (from_client, mut to_client) = client.into_split();
                let (mut from_server, to_server) = server.into_split();
                let answers = tokio::spawn(async move { copy(&mut from_server, &mut to_client).await });
                let state = Arc::clone(&state);
                tokio::spawn(async move {
                    // Whatever ends it, the client's connection ends with it.
                    let kept = pass(from_client, to_server, &state).await;
                    answers.abort();
                    drop(kept);
                });
            }
        });
        Self { url, shared }
    }

    /// The URL of the database through it.
    pub fn url(&self) -> &Secret {
        &self.url
    }

    /// From now on.
    pub fn set(&self, mode: Mode) {
        self.shared.executed.store(0, Ordering::SeqCst);
        self.shared.mode.store(mode as u8, Ordering::SeqCst);
    }

    /// Calls that were passed on, or would have been, since the mode was set.
    pub fn executed(&self) -> usize {
        self.shared.executed.load(Ordering::SeqCst)
    }
}

async fn pass(
    mut client: OwnedReadHalf,
    mut server: OwnedWriteHalf,
    shared: &Shared,
) -> Option<OwnedWriteHalf> {
    // The first message has no type.
    let length = client.read_u32().await.ok()?;
    let mut body = vec![0; length as usize - 4];
    client.read_exact(&mut body).await.ok()?;
    server.write_u32(length).await.ok()?;
    server.write_all(&body).await.ok()?;
    let mut is_append = false;
    loop {
        let kind = client.read_u8().await.ok()?;
        let length = client.read_u32().await.ok()?;
        assert!((length as usize) < MESSAGE_MAX_BYTES);
        let mut body = vec![0; length as usize - 4];
        client.read_exact(&mut body).await.ok()?;
        let mode = shared.mode.load(Ordering::SeqCst);
        // A call of the append is told by its size: its Bind carries dozens of arrays.
        is_append = if kind == b'B' { body.len() > 1_000 } else { is_append };
        if kind == b'E' && is_append {
            shared.executed.fetch_add(1, Ordering::SeqCst);
        }
        if mode == Mode::Swallow as u8 || (mode == Mode::KeepSync as u8 && kind == b'S' && is_append) {
            continue;
        }
        server.write_u8(kind).await.ok()?;
        server.write_u32(length).await.ok()?;
        server.write_all(&body).await.ok()?;
        if mode == Mode::CutAfterExecute as u8 && kind == b'S' && is_append {
            shared.mode.store(Mode::Pass as u8, Ordering::SeqCst);
            // The server's side stays open, so that it works on.
            tokio::spawn(async move {
                std::future::pending::<()>().await;
                drop(server);
            });
            return None;
        }
    }
}
