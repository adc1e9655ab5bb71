//! One address for all cells of the demo's edge host: what comes in goes to the cell that serves the name asked for.
//!
//! It knows nothing of placement. A cell answers 421, or refuses the handshake, for a name that is not its own; then
//! the next one is asked, so what is moved between cells is found at once. A cell that is being started anew is waited
//! for: a connection that was refused has carried nothing. TLS is passed on untouched, the cell ends it.
//!
//! The body of a request is held here until a cell has taken it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::header::{CONNECTION, HeaderMap, HeaderName, TRANSFER_ENCODING, UPGRADE};
use http::{Method, StatusCode};
use hyper::client::conn::http1;
use hyper::upgrade::{OnUpgrade, on};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep, timeout};

use super::ports::PortLease;

/// The largest body that is passed on: what the cells take at most.
const BODY_MAX_BYTES: usize = 16 << 20;
/// How long a cell that does not answer is waited for.
const CELL_LIMIT_SECONDS: u64 = 10;
/// How often it is asked meanwhile.
const CELL_PAUSE_MILLISECONDS: u64 = 20;
/// How long a client may take for its first record of TLS.
const HELLO_LIMIT_SECONDS: u64 = 10;
/// The head of a record: its type, a version, its length.
const RECORD_HEAD_BYTES: usize = 5;
/// What is read of a cell's first answer at once.
const FIRST_ANSWER_MAX_BYTES: usize = 16 << 10;
/// The type of a record that is part of a handshake.
const HANDSHAKE: u8 = 22;
/// The type of a record that refuses.
const ALERT: u8 = 21;
/// What belongs to one connection, and not to the request that came over it.
const OF_THE_CONNECTION: [HeaderName; 2] = [CONNECTION, TRANSFER_ENCODING];

/// Where a cell listens.
#[derive(Debug, Clone, Copy)]
pub struct CellAddress {
    /// In the clear.
    pub http: SocketAddr,
    /// By TLS.
    pub https: SocketAddr,
}

/// The two listeners. They end with this process.
pub struct Front {
    http: PortLease,
    https: PortLease,
}

impl Front {
    /// Listens before these cells.
    pub async fn start(http: PortLease, https: PortLease, cells: Vec<CellAddress>) -> Result<Self> {
        let plain = bind(http.address()).await?;
        let tls = bind(https.address()).await?;
        let way = Arc::new(Way { cells, last: AtomicUsize::new(0) });
        let router = Router::new().fallback(pass).with_state(Arc::clone(&way));
        tokio::spawn(async move {
            // It ends with the process; there is nobody to be told.
            let _ended = axum::serve(plain, router).await;
        });
        tokio::spawn(async move {
            while let Ok((client, _)) = tls.accept().await {
                let way = Arc::clone(&way);
                // A client that went away is its own matter.
                tokio::spawn(async move { way.pass_tls(client).await.ok() });
            }
        });
        Ok(Self { http, https })
    }

    /// Where it listens in the clear.
    pub fn http(&self) -> SocketAddr {
        self.http.address()
    }

    /// Where it listens for TLS.
    pub fn https(&self) -> SocketAddr {
        self.https.address()
    }
}

async fn bind(address: SocketAddr) -> Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| format!("cannot listen at {address}"))
}

/// The way to the cells.
struct Way {
    cells: Vec<CellAddress>,
    /// The cell that took the last request is asked first.
    last: AtomicUsize,
}

/// What a cell answered.
type Answer = http::Response<hyper::body::Incoming>;

/// What asking every cell once came to.
enum Asked {
    Answered(Answer),
    /// A cell could not be asked and may be the one.
    Away(String),
}

/// Why a cell gave no answer.
enum Broken {
    /// Nothing was sent, or it may be sent again.
    Again(String),
    /// It may have been done, or not.
    Unknown(String),
}

impl Way {
    /// The cells with their numbers, the one that served last first.
    fn order(&self) -> impl Iterator<Item = (usize, CellAddress)> {
        let first = self.last.load(Ordering::Relaxed);
        let cells = self.cells.iter().copied().enumerate();
        cells.clone().skip(first).chain(cells.take(first))
    }

    async fn ask(&self, asked: &Asking) -> Result<Asked, String> {
        let (mut misdirected, mut away) = (None, None);
        for (number, cell) in self.order() {
            match asked.send(cell.http).await {
                Ok(answer) if answer.status() == StatusCode::MISDIRECTED_REQUEST => {
                    misdirected = Some(answer)
                }
                Ok(answer) => {
                    self.last.store(number, Ordering::Relaxed);
                    return Ok(Asked::Answered(answer));
                }
                Err(Broken::Again(why)) => away = Some(why),
                Err(Broken::Unknown(why)) => return Err(why),
            }
        }
        match (away, misdirected) {
            (None, Some(answer)) => Ok(Asked::Answered(answer)),
            (away, _) => Ok(Asked::Away(away.unwrap_or_else(|| "there is no cell".to_owned()))),
        }
    }

    async fn pass_tls(&self, mut client: TcpStream) -> std::io::Result<()> {
        let limit = Duration::from_secs(HELLO_LIMIT_SECONDS);
        let hello = timeout(limit, read_record(&mut client)).await??;
        let deadline = Instant::now() + Duration::from_secs(CELL_LIMIT_SECONDS);
        loop {
            let (mut refusal, mut is_away) = (Vec::new(), false);
            for (number, cell) in self.order() {
                let Ok(mut upstream) = TcpStream::connect(cell.https).await else {
                    is_away = true;
                    continue;
                };
                upstream.write_all(&hello).await?;
                let mut first = vec![0; FIRST_ANSWER_MAX_BYTES];
                let Ok(read) = upstream.read(&mut first).await else {
                    is_away = true;
                    continue;
                };
                first.truncate(read);
                // To what is no handshake the first cell may say what it likes.
                let is_refused = matches!(first.first(), None | Some(&ALERT));
                if is_refused && hello.first() == Some(&HANDSHAKE) {
                    refusal = first;
                    continue;
                }
                self.last.store(number, Ordering::Relaxed);
                client.write_all(&first).await?;
                copy_bidirectional(&mut client, &mut upstream).await?;
                return Ok(());
            }
            if !is_away || Instant::now() >= deadline {
                return client.write_all(&refusal).await;
            }
            sleep(Duration::from_millis(CELL_PAUSE_MILLISECONDS)).await;
        }
    }
}

/// Reads the first record of a client, or the beginning of what is no TLS.
async fn read_record(client: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut record = vec![0; RECORD_HEAD_BYTES];
    client.read_exact(&mut record).await?;
    if let [HANDSHAKE, _, _, high, low] = *record.as_slice() {
        let length = usize::from(u16::from_be_bytes([high, low]));
        record.resize(RECORD_HEAD_BYTES + length, 0);
        if let Some(rest) = record.get_mut(RECORD_HEAD_BYTES..) {
            client.read_exact(rest).await?;
        }
    }
    Ok(record)
}

/// A request that can be sent more than once.
struct Asking {
    method: Method,
    target: http::Uri,
    headers: HeaderMap,
    body: Bytes,
}

impl Asking {
    async fn read(request: Request) -> Result<Self, StatusCode> {
        let (parts, body) = request.into_parts();
        let mut headers = parts.headers;
        if headers.contains_key(UPGRADE) {
            headers.remove(TRANSFER_ENCODING);
        } else {
            remove_connection(&mut headers);
        }
        let body = to_bytes(body, BODY_MAX_BYTES).await.map_err(|_| StatusCode::PAYLOAD_TOO_LARGE)?;
        Ok(Self { method: parts.method, target: parts.uri, headers, body })
    }

    /// Whether an answer that broke off before it began may be asked for again.
    fn is_repeatable(&self) -> bool {
        matches!(self.method, Method::GET | Method::HEAD | Method::OPTIONS)
    }

    async fn send(&self, cell: SocketAddr) -> Result<Answer, Broken> {
        let stream = TcpStream::connect(cell).await.map_err(|error| Broken::Again(error.to_string()))?;
        let broken = |error: hyper::Error| {
            let why = error.to_string();
            if self.is_repeatable() { Broken::Again(why) } else { Broken::Unknown(why) }
        };
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
        // How it ends is told by the answer's body.
        tokio::spawn(connection.with_upgrades());
        let mut request = http::Request::new(Body::from(self.body.clone()));
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.target.clone();
        *request.headers_mut() = self.headers.clone();
        sender.send_request(request).await.map_err(broken)
    }
}

fn remove_connection(headers: &mut HeaderMap) {
    for name in OF_THE_CONNECTION {
        headers.remove(name);
    }
}

async fn pass(State(way): State<Arc<Way>>, mut request: Request) -> Response {
    let client = on(&mut request);
    let asking = match Asking::read(request).await {
        Ok(asking) => asking,
        Err(status) => return status.into_response(),
    };
    let deadline = Instant::now() + Duration::from_secs(CELL_LIMIT_SECONDS);
    loop {
        let why = match way.ask(&asking).await {
            Ok(Asked::Answered(answer)) => return passed(answer, client),
            Ok(Asked::Away(why)) if Instant::now() >= deadline => why,
            Ok(Asked::Away(_)) => {
                sleep(Duration::from_millis(CELL_PAUSE_MILLISECONDS)).await;
                continue;
            }
            Err(why) => why,
        };
        return (StatusCode::BAD_GATEWAY, format!("no cell of the demo's edge answers: {why}\n"))
            .into_response();
    }
}

fn passed(mut answer: Answer, client: OnUpgrade) -> Response {
    if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
        let cell = on(&mut answer);
        tokio::spawn(async move {
            if let (Ok(client), Ok(cell)) = tokio::join!(client, cell) {
                // Whichever side ends first ends both.
                let _ended = copy_bidirectional(&mut TokioIo::new(client), &mut TokioIo::new(cell)).await;
            }
        });
    } else {
        remove_connection(answer.headers_mut());
    }
    answer.map(Body::new)
}
