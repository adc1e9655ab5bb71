//! What DNS answers for proxied names: the platform's own zone, and in it a name per pool with the addresses of the edges
//! that visitors are sent to. It is decided, by what is ready, so it is an event; what the agents report is none.

use crate::dns::DomainName;
use crate::ids::EdgeId;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// What DNS answers for proxied names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoints {
    /// The platform's own zone.
    pub zone: DomainName,
    /// TTL of everything that is derived, in seconds.
    pub ttl: u32,
    /// By the name of a pool: the edges that its visitors are sent to, with their addresses.
    pub pools: BTreeMap<String, BTreeMap<EdgeId, Vec<IpAddr>>>,
}

impl Endpoints {
    /// The addresses of a pool, each once, IPv4 first.
    pub fn addresses(&self, pool: &str) -> BTreeSet<IpAddr> {
        self.pools.get(pool).into_iter().flat_map(BTreeMap::values).flatten().copied().collect()
    }
}

/// What DNS answers for proxied names changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndpointsChanged {
    /// What it was; none at first.
    pub before: Option<Endpoints>,
    /// What it is now.
    pub after: Endpoints,
    /// The platform's part of the SOA serials of the zones that hold any of it.
    pub generation: u32,
    /// Why, edge by edge, for people.
    pub why: Vec<String>,
}
