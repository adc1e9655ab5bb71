//! DNS clusters and a dnsdist for one test.

use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use domain::base::Rtype;
use headwater::demo::home::Home;
use headwater::demo::ports::PortLease;
use headwater::demo::probe::{self, DnsAnswer};
use headwater::demo::stack::{self, ClusterPorts};

use super::test_home;

/// How long one query may take; dnsdist gives a backend two seconds.
const QUERY_LIMIT_SECONDS: u64 = 3;

/// Own servers of one test. They end with it, and their directory is removed.
pub struct DnsStack {
    stack: stack::DnsStack,
    _directory: Directory,
}

/// Removed after the servers have ended: fields are dropped in order.
struct Directory(Home);

impl Drop for Directory {
    fn drop(&mut self) {
        // What is left is removed with the directory of the run.
        let _removed = std::fs::remove_dir_all(self.0.dir());
    }
}

impl DnsStack {
    /// Starts as many clusters, and dnsdist before them.
    pub async fn start(clusters: usize) -> Self {
        let home = test_home();
        let ports = (0..clusters).map(|_| ClusterPorts::take().unwrap()).collect();
        let stack = stack::DnsStack::start(&home, PortLease::take().unwrap(), ports).await.unwrap();
        Self { stack, _directory: Directory(home) }
    }

    /// Asks one question and expects an answer, of whatever kind.
    pub async fn ask(server: SocketAddr, name: &str, rtype: Rtype) -> anyhow::Result<DnsAnswer> {
        probe::dns(server, name, rtype, Duration::from_secs(QUERY_LIMIT_SECONDS)).await
    }
}

impl Deref for DnsStack {
    type Target = stack::DnsStack;

    fn deref(&self) -> &Self::Target {
        &self.stack
    }
}

impl DerefMut for DnsStack {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.stack
    }
}
