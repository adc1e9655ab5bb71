//! From where a request really comes. A proxy that the configuration trusts says so with `X-Forwarded-For`; nobody else
//! is believed, and of a chain of proxies only as much as trusted ones have written.

use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderMap, HeaderName};
use axum::middleware::Next;
use axum::response::Response;
use headwater_events::domain::destination::Network;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The layer: puts the address of the client in the place of the proxy's.
pub async fn layer(State(trusted): State<Arc<[Network]>>, mut request: Request, next: Next) -> Response {
    if let Some(ConnectInfo(peer)) = request.extensions().get::<ConnectInfo<SocketAddr>>().copied() {
        let client = real(&trusted, peer.ip().to_canonical(), request.headers());
        if client != peer.ip() {
            request.extensions_mut().insert(ConnectInfo(SocketAddr::new(client, 0)));
        }
    }
    next.run(request).await
}

/// The nearest address that no trusted proxy has.
fn real(trusted: &[Network], peer: IpAddr, headers: &HeaderMap) -> IpAddr {
    let is_trusted = |address: IpAddr| trusted.iter().any(|network| network.holds(address));
    let mut nearest = peer;
    let lines: Vec<&str> =
        headers.get_all(FORWARDED_FOR).iter().map(|line| line.to_str().unwrap_or_default()).collect();
    for said in lines.iter().rev().flat_map(|line| line.rsplit(',')) {
        if !is_trusted(nearest) {
            break;
        }
        // What is no address was not written by a proxy of ours.
        let Some(address) = address(said.trim()) else { break };
        nearest = address;
    }
    nearest
}

/// An address, with a port or without.
fn address(text: &str) -> Option<IpAddr> {
    let bare = text.trim_start_matches('[').trim_end_matches(']');
    let found = bare.parse::<IpAddr>().ok().or_else(|| Some(text.parse::<SocketAddr>().ok()?.ip()));
    found.map(|address| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_trusted_proxies_are_believed() {
        let trusted: Vec<Network> = vec!["10.0.0.0/8".parse().unwrap(), "2001:db8::/32".parse().unwrap()];
        let seen = |peer: &str, lines: &[&str]| {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(FORWARDED_FOR, line.parse().unwrap());
            }
            real(&trusted, peer.parse().unwrap(), &headers).to_string()
        };
        for (peer, lines, client) in [
            ("192.0.2.1", &["203.0.113.9"][..], "192.0.2.1"),
            ("10.0.0.1", &[], "10.0.0.1"),
            ("10.0.0.1", &["203.0.113.9"], "203.0.113.9"),
            ("10.0.0.1", &["198.51.100.1, 203.0.113.9"], "203.0.113.9"),
            ("10.0.0.1", &["198.51.100.1", "203.0.113.9, 10.0.0.2"], "203.0.113.9"),
            ("10.0.0.1", &["10.0.0.3, 10.0.0.2"], "10.0.0.3"),
            ("10.0.0.1", &["203.0.113.9, x, 10.0.0.2"], "10.0.0.2"),
            ("10.0.0.1", &["[2001:db9::1]:80"], "2001:db9::1"),
            ("10.0.0.1", &["203.0.113.9:4711"], "203.0.113.9"),
            ("2001:db8::1", &["::ffff:203.0.113.9"], "203.0.113.9"),
        ] {
            assert_eq!(seen(peer, lines), client, "{peer} {lines:?}");
        }
    }
}
