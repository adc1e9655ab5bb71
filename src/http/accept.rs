//! The accept loop of the API: what a connection may take before a request of it is known. A head that does not come,
//! and a connection that begins no other request, end; at the stop, requests that have begun end first.

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::Request;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;

use super::stall;

/// How long the head of a request may take, and how long a connection may wait for its next request.
pub const HEAD_MAX: Duration = Duration::from_secs(75);
/// Pause after a connection could not be accepted: there may be no file descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Octets of the heads of a request over HTTP/2, at most; over HTTP/1 the buffer of a connection bounds them.
const HTTP2_HEAD_MAX_BYTES: u32 = 128 << 10;

/// Answers on a socket until `stop`, then lets requests that have begun end. A head takes at most `head_max`.
pub async fn serve(listener: TcpListener, router: Router, stop: CancellationToken, head_max: Duration) {
    let open = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => {
                open.spawn(answer(stream, peer, router.clone(), stop.clone(), head_max));
            }
            // The peer is gone already.
            Err(error) if is_of_peer(&error) => {}
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    // Nobody connects to what will not answer.
    drop(listener);
    open.close();
    open.wait().await;
}

fn is_of_peer(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

async fn answer(
    stream: TcpStream,
    peer: SocketAddr,
    router: Router,
    stop: CancellationToken,
    head_max: Duration,
) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "a connection keeps Nagle's algorithm");
    }
    stall::watch(&stream, stall::WRITE_STALL);
    let begun = Arc::new(AtomicBool::new(false));
    let seen = begun.clone();
    let service = router.map_request(move |request: Request<Incoming>| {
        seen.store(true, Ordering::Relaxed);
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(ConnectInfo(peer));
        request
    });
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(head_max);
    builder.http2().timer(TokioTimer::new()).max_header_list_size(HTTP2_HEAD_MAX_BYTES);
    let connection = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
    let mut connection = std::pin::pin!(connection);
    // Which version is spoken is found out before there is a head that could take too long.
    let mut first = std::pin::pin!(tokio::time::sleep(head_max));
    let ended = loop {
        tokio::select! {
            ended = connection.as_mut() => break ended,
            () = stop.cancelled() => {
                connection.as_mut().graceful_shutdown();
                break connection.await;
            }
            () = first.as_mut(), if !first.is_elapsed() => {
                if !begun.load(Ordering::Relaxed) {
                    tracing::debug!(%peer, "a connection that asked for nothing was closed");
                    return;
                }
            }
        }
    };
    if let Err(error) = ended {
        tracing::trace!(%error, "a connection ended");
    }
}
