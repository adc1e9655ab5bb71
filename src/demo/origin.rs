//! The demo's origin: 200 on every path, fresh for a minute, and a body that no other answer has, so that what a cache
//! gives again is seen at once.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};
use axum::Router;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use chrono::{SecondsFormat, Utc};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HOST};
use tokio::net::TcpListener;

use super::ports::PortLease;

/// How long an answer is fresh.
const FRESH: &str = "max-age=60";

/// The listener. It ends with this process.
pub struct Origin {
    lease: PortLease,
}

impl Origin {
    /// Listens.
    pub async fn start(lease: PortLease) -> Result<Self> {
        let address = lease.address();
        let listener =
            TcpListener::bind(address).await.with_context(|| format!("cannot listen at {address}"))?;
        let router = Router::new().fallback(answer).with_state(Arc::new(AtomicU64::new(0)));
        tokio::spawn(async move {
            // It ends with the process; there is nobody to be told.
            let _ended = axum::serve(listener, router).await;
        });
        Ok(Self { lease })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.lease.address()
    }
}

async fn answer(State(asked): State<Arc<AtomicU64>>, request: Request) -> Response {
    let number = asked.fetch_add(1, Ordering::Relaxed) + 1;
    let host = request.headers().get(HOST).and_then(|host| host.to_str().ok()).unwrap_or("-");
    let at = Utc::now().to_rfc3339_opts(SecondsFormat::Millis, true);
    let body =
        format!("answer {number} of the origin, at {at}: {} {host}{}\n", request.method(), request.uri());
    ([(CACHE_CONTROL, FRESH), (CONTENT_TYPE, "text/plain; charset=utf-8")], body).into_response()
}
