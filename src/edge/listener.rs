//! The control listener: TLS 1.3 alone, with a certificate of the identity authority; a client may come without one,
//! but then only to register. A handshake, an idle connection and the number of both are bounded.

use arc_swap::ArcSwap;
use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use rustls::RootCertStore;
use rustls::ServerConfig;
use rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::{Instant, Sleep};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

use super::EdgeError;
use super::authority::{Authority, serial_of};
use super::peer::Peer;
use super::polls::Polls;
use super::routes::{self, Control};
use crate::app::App;
use crate::http::stall;

/// Connections at once, those in their handshake included.
const CONNECTIONS_MAX_COUNT: usize = 10_000;
/// How long a handshake may take.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
/// How long a connection may say nothing; a long poll takes 30 s of it.
const IDLE_MAX: Duration = Duration::from_secs(90);
/// Pause after a connection could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How often the listener's own certificate is made anew; it lives for 30 days.
const CERTIFICATE_EVERY: Duration = Duration::from_secs(86_400);
/// Connections that have shaken hands and wait to be taken.
const QUEUE_MAX_COUNT: usize = 64;

/// A socket that is bound, with everything that answers on it.
pub struct Bound {
    listener: ControlListener,
    control: Control,
    /// Where it listens.
    pub address: SocketAddr,
}

impl Bound {
    /// The long polls that wait for a change.
    pub fn polls(&self) -> Polls {
        self.control.polls.clone()
    }
}

/// Binds the listener that the configuration names, makes what keys there are not yet, and begins to shake hands.
///
/// # Errors
/// When the address cannot be had, the key file cannot be used, or the database does not answer.
pub async fn bind(app: App, address: SocketAddr) -> Result<Bound, EdgeError> {
    let control = Control::open(app).await?;
    let tcp = TcpListener::bind(address).await?;
    let address = tcp.local_addr()?;
    let certificate = Certificate::new(&control, address)?;
    let config = tls(&control.authority, certificate.0.clone())?;
    let (queue, incoming) = mpsc::channel(QUEUE_MAX_COUNT);
    let stop = control.app.stop.clone();
    tokio::spawn(accept(tcp, TlsAcceptor::from(Arc::new(config)), queue, stop));
    tokio::spawn(certificate.renew(control.clone(), address));
    let listener = ControlListener { incoming, address };
    Ok(Bound { listener, control, address })
}

/// Answers until the process stops, then lets requests that have begun end.
///
/// # Errors
/// When the listener breaks.
pub async fn run(bound: Bound) -> Result<(), EdgeError> {
    let stop = bound.control.app.stop.clone();
    let service = routes::router(bound.control).into_make_service_with_connect_info::<Peer>();
    axum::serve(bound.listener, service).with_graceful_shutdown(stop.cancelled_owned()).await?;
    Ok(())
}

fn tls(authority: &Authority, certificate: Arc<Resolver>) -> Result<ServerConfig, EdgeError> {
    let tls = |error: &dyn std::error::Error| EdgeError::Tls(error.to_string());
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(authority.certificate().clone()).map_err(|error| tls(&error))?;
    let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        .allow_unauthenticated()
        .build()
        .map_err(|error| tls(&error))?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| tls(&error))?
        .with_client_cert_verifier(clients)
        .with_cert_resolver(certificate);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// What the listener proves itself with now.
#[derive(Debug)]
struct Resolver(ArcSwap<CertifiedKey>);

impl ResolvesServerCert for Resolver {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}

struct Certificate(Arc<Resolver>);

impl Certificate {
    fn new(control: &Control, address: SocketAddr) -> Result<Self, EdgeError> {
        Ok(Self(Arc::new(Resolver(ArcSwap::new(make(control, address)?)))))
    }

    async fn renew(self, control: Control, address: SocketAddr) {
        loop {
            tokio::select! {
                () = control.app.stop.cancelled() => return,
                () = tokio::time::sleep(CERTIFICATE_EVERY) => {}
            }
            match make(&control, address) {
                Ok(next) => self.0.0.store(next),
                Err(error) => tracing::error!(%error, "the certificate of edge control stays the old one"),
            }
        }
    }
}

fn make(control: &Control, address: SocketAddr) -> Result<Arc<CertifiedKey>, EdgeError> {
    let settings = &control.app.config.edge_control;
    let mut names: Vec<String> = settings.names.iter().map(|name| name.as_str().to_owned()).collect();
    let public = settings.public_url.as_ref().and_then(|url| url.as_str().parse::<http::Uri>().ok());
    let host =
        public.and_then(|uri| uri.host().map(|host| host.trim_matches(['[', ']']).to_ascii_lowercase()));
    names.extend(host);
    if !address.ip().is_unspecified() {
        names.push(address.ip().to_string());
    }
    if names.is_empty() {
        let detail =
            "nothing says under which name edges reach it: set public_url or names in [edge_control]";
        return Err(EdgeError::Tls(detail.to_owned()));
    }
    names.sort_unstable();
    names.dedup();
    control.authority.listener(&names, control.app.clock.now())
}

async fn accept(
    tcp: TcpListener,
    acceptor: TlsAcceptor,
    queue: mpsc::Sender<(Connection, Peer)>,
    stop: CancellationToken,
) {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX_COUNT));
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => return,
            accepted = tcp.accept() => accepted,
        };
        let (stream, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection to edge control could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        // Without room it is closed at once: its agent comes again.
        let Ok(permit) = room.clone().try_acquire_owned() else {
            metrics::counter!("cdn_edge_connections_refused_total").increment(1);
            continue;
        };
        let (acceptor, queue) = (acceptor.clone(), queue.clone());
        tokio::spawn(async move {
            match tokio::time::timeout(HANDSHAKE_MAX, shake(acceptor, stream)).await {
                Ok(Ok((stream, serial))) => {
                    let connection = Connection::new(stream, permit);
                    // Nobody takes it when the process stops.
                    let _taken = queue.send((connection, Peer { address, serial })).await;
                }
                failed => {
                    metrics::counter!("cdn_edge_handshakes_failed_total").increment(1);
                    let error = failed.ok().and_then(Result::err);
                    tracing::debug!(%address, ?error, "a handshake with edge control failed");
                }
            }
        });
    }
}

async fn shake(
    acceptor: TlsAcceptor,
    stream: TcpStream,
) -> io::Result<(TlsStream<TcpStream>, Option<Vec<u8>>)> {
    stream.set_nodelay(true)?;
    stall::watch(&stream, stall::WRITE_STALL);
    let stream = acceptor.accept(stream).await?;
    let leaf = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
    let serial = match leaf {
        None => None,
        Some(leaf) => {
            Some(serial_of(leaf).ok_or_else(|| io::Error::other("a certificate that cannot be read"))?)
        }
    };
    Ok((stream, serial))
}

/// A connection after its handshake.
pub struct Connection {
    stream: TlsStream<TcpStream>,
    idle: Pin<Box<Sleep>>,
    _permit: OwnedSemaphorePermit,
}

impl Connection {
    fn new(stream: TlsStream<TcpStream>, permit: OwnedSemaphorePermit) -> Self {
        Self { stream, idle: Box::pin(tokio::time::sleep(IDLE_MAX)), _permit: permit }
    }

    fn moved(&mut self) {
        self.idle.as_mut().reset(Instant::now() + IDLE_MAX);
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        match Pin::new(&mut this.stream).poll_read(cx, buf) {
            Poll::Ready(read) => {
                this.moved();
                Poll::Ready(read)
            }
            Poll::Pending if this.idle.as_mut().poll(cx).is_ready() => {
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        let written = Pin::new(&mut this.stream).poll_write(cx, bytes);
        if written.is_ready() {
            this.moved();
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Connections that have shaken hands, for the server.
pub struct ControlListener {
    incoming: mpsc::Receiver<(Connection, Peer)>,
    address: SocketAddr,
}

impl Listener for ControlListener {
    type Io = Connection;
    type Addr = Peer;

    async fn accept(&mut self) -> (Connection, Peer) {
        match self.incoming.recv().await {
            Some(accepted) => accepted,
            // Only at the stop, which the server hears of by itself.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<Peer> {
        Ok(Peer { address: self.address, serial: None })
    }
}

impl Connected<IncomingStream<'_, ControlListener>> for Peer {
    fn connect_info(stream: IncomingStream<'_, ControlListener>) -> Self {
        stream.remote_addr().clone()
    }
}
