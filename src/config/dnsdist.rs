//! `[dnsdist]`: the dnsdist of this host, in front of the DNS clusters.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use headwater_events::domain::destination::Network;

use super::networks;
use super::reader::Section;

/// Where DNS is asked.
const DNS_PORT: u16 = 53;
/// Where dnsdist's console listens when nobody says where.
const CONSOLE_PORT: u16 = 5_199;

/// `[dnsdist]`.
#[derive(Clone)]
pub struct Dnsdist {
    /// `listen`: where clients ask.
    pub listen: Vec<SocketAddr>,
    /// `allow_networks`: who may ask; everybody when it is left out.
    pub allow_networks: Vec<Network>,
    /// `config_file`: what dnsdist reads when it starts.
    pub config_file: PathBuf,
    /// `console`: a loopback address at which the running dnsdist is told what changed.
    pub console: SocketAddr,
    /// `console_key_file`: the key of that console, made when there is none.
    pub console_key_file: PathBuf,
    /// `prefer`: the cluster that is asked first from here.
    pub prefer: Option<String>,
    /// `without_fronts`: no listeners that lead to one cluster alone; another host has them.
    pub without_fronts: bool,
    /// `serve_stale_seconds`: for how long what was answered is answered again while no cluster is up; 0: not.
    pub serve_stale: Duration,
    /// `cache_entries`: answers that are kept for that.
    pub cache_entries: u32,
    /// `queries_per_second_per_client`: of one IPv4 address or IPv6 /64 over UDP; 0: no bound.
    pub queries_per_second_per_client: u32,
    /// `tcp_queries_per_connection`.
    pub tcp_queries_per_connection: u32,
    /// `tcp_connections_per_client`.
    pub tcp_connections_per_client: u32,
}

pub(super) fn dnsdist(section: &mut Section<'_>, base: &Path) -> Dnsdist {
    let everywhere = || {
        let v4 = SocketAddr::from((Ipv4Addr::UNSPECIFIED, DNS_PORT));
        vec![v4, SocketAddr::from((Ipv6Addr::UNSPECIFIED, DNS_PORT))]
    };
    let dnsdist = Dnsdist {
        listen: section.list("listen").unwrap_or_else(everywhere),
        allow_networks: networks(section, "allow_networks"),
        config_file: section.path("config_file", base).unwrap_or_else(|| "/etc/dnsdist/dnsdist.conf".into()),
        console: section
            .parsed("console")
            .unwrap_or_else(|| SocketAddr::from((Ipv4Addr::LOCALHOST, CONSOLE_PORT))),
        console_key_file: section
            .path("console_key_file", base)
            .unwrap_or_else(|| base.join("dnsdist-console-key")),
        prefer: section.parsed("prefer"),
        without_fronts: section.flag("without_fronts"),
        serve_stale: section.seconds("serve_stale_seconds", 0..=86_400, 0),
        cache_entries: section.number("cache_entries", 1_000..=10_000_000, 100_000),
        queries_per_second_per_client: section.number("queries_per_second_per_client", 0..=1_000_000, 0),
        tcp_queries_per_connection: section.number("tcp_queries_per_connection", 1..=10_000, 50),
        tcp_connections_per_client: section.number("tcp_connections_per_client", 1..=10_000, 200),
    };
    if dnsdist.listen.is_empty() {
        section.fault("listen", "must name at least one address and port");
    }
    if !dnsdist.console.ip().is_loopback() {
        section.fault("console", "must be a loopback address: whoever speaks there rules dnsdist");
    }
    dnsdist
}
