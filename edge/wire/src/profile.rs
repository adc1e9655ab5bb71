//! The numbers of the security profiles. A limit that stands here is enforced on every edge: none is decoration.

use serde::{Deserialize, Serialize};

use crate::artifact::Profile;

/// What a profile allows, per domain on one cell where nothing else is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// The profile.
    pub profile: Profile,
    /// Requests a second.
    pub requests_per_second: u32,
    /// Requests above that for a moment.
    pub burst_requests: u32,
    /// Connections of one client.
    pub client_connections: u32,
    /// Connections of all clients.
    pub domain_connections: u32,
    /// TLS handshakes a second.
    pub tls_handshakes_per_second: u32,
    /// The largest body of a request.
    pub body_max_bytes: u64,
    /// The largest header of a request.
    pub header_max_bytes: u32,
    /// How long a header may take.
    pub header_timeout_seconds: u32,
    /// How long a body may be silent.
    pub body_timeout_seconds: u32,
    /// How long an idle connection stays.
    pub keepalive_seconds: u32,
    /// Requests on one connection.
    pub connection_requests: u32,
    /// How long a request may take in all.
    pub request_timeout_seconds: u32,
    /// Connections to the origin.
    pub origin_connections: u32,
    /// How long a connection to the origin may take to open.
    pub origin_connect_timeout_seconds: u32,
    /// How long the origin may be silent, reading and writing.
    pub origin_io_timeout_seconds: u32,
    /// How often an idempotent request is tried again.
    pub origin_retries: u8,
    /// This many failures in a row take the origin out.
    pub origin_failure_threshold: u32,
    /// How long it stays out.
    pub origin_recovery_seconds: u32,
    /// The longest key of the cache.
    pub cache_key_max_bytes: u32,
    /// New objects of the cache a second.
    pub cache_admissions_per_second: u32,
}

const STANDARD: Limits = Limits {
    profile: Profile::Standard,
    requests_per_second: 100,
    burst_requests: 200,
    client_connections: 64,
    domain_connections: 512,
    tls_handshakes_per_second: 50,
    body_max_bytes: 16 << 20,
    header_max_bytes: 32 << 10,
    header_timeout_seconds: 10,
    body_timeout_seconds: 30,
    keepalive_seconds: 30,
    connection_requests: 1_000,
    request_timeout_seconds: 60,
    origin_connections: 128,
    origin_connect_timeout_seconds: 3,
    origin_io_timeout_seconds: 30,
    origin_retries: 2,
    origin_failure_threshold: 10,
    origin_recovery_seconds: 30,
    cache_key_max_bytes: 4_096,
    cache_admissions_per_second: 50,
};

const PROTECTED: Limits = Limits {
    profile: Profile::Protected,
    requests_per_second: 50,
    burst_requests: 75,
    client_connections: 24,
    domain_connections: 256,
    tls_handshakes_per_second: 20,
    body_max_bytes: 8 << 20,
    header_max_bytes: 16 << 10,
    header_timeout_seconds: 7,
    body_timeout_seconds: 15,
    keepalive_seconds: 15,
    connection_requests: 250,
    request_timeout_seconds: 30,
    origin_connections: 64,
    origin_connect_timeout_seconds: 2,
    origin_io_timeout_seconds: 15,
    origin_retries: 1,
    origin_failure_threshold: 5,
    origin_recovery_seconds: 60,
    cache_key_max_bytes: 2_048,
    cache_admissions_per_second: 20,
};

const QUARANTINE: Limits = Limits {
    profile: Profile::Quarantine,
    requests_per_second: 10,
    burst_requests: 50,
    client_connections: 4,
    domain_connections: 48,
    tls_handshakes_per_second: 5,
    body_max_bytes: 1 << 20,
    header_max_bytes: 8 << 10,
    header_timeout_seconds: 5,
    body_timeout_seconds: 10,
    keepalive_seconds: 5,
    connection_requests: 50,
    request_timeout_seconds: 15,
    origin_connections: 16,
    origin_connect_timeout_seconds: 1,
    origin_io_timeout_seconds: 10,
    origin_retries: 0,
    origin_failure_threshold: 3,
    origin_recovery_seconds: 120,
    cache_key_max_bytes: 1_024,
    cache_admissions_per_second: 5,
};

impl Profile {
    /// Its numbers.
    pub const fn limits(self) -> &'static Limits {
        match self {
            Self::Standard => &STANDARD,
            Self::Protected => &PROTECTED,
            Self::Quarantine => &QUARANTINE,
        }
    }
}
