//! The DNS side of a demo or a test: clusters, each a PostgreSQL server and a PowerDNS, and dnsdist before them.

use std::net::SocketAddr;

use anyhow::{Context, Result};

use super::dnsdist::{Backend, Dnsdist};
use super::home::Home;
use super::pdns::Pdns;
use super::ports::PortLease;
use super::postgres::{DatabaseName, Postgres};
use crate::secret::Secret;

/// The ports of one cluster.
pub struct ClusterPorts {
    /// Of its PostgreSQL.
    pub postgres: PortLease,
    /// Of its PowerDNS.
    pub pdns: PortLease,
    /// Of its listener at dnsdist.
    pub front: PortLease,
}

impl ClusterPorts {
    /// Any free ports.
    pub fn take() -> Result<Self> {
        Ok(Self { postgres: PortLease::take()?, pdns: PortLease::take()?, front: PortLease::take()? })
    }
}

/// One DNS cluster.
pub struct DnsCluster {
    /// Its name: `dns-1`, `dns-2`, …
    pub name: String,
    /// Its database server.
    pub postgres: Postgres,
    /// Its name server.
    pub pdns: Pdns,
    /// The listener at dnsdist that leads to it alone.
    pub front: SocketAddr,
}

impl DnsCluster {
    /// The URL of its database for the owner role.
    pub fn database_url(&self) -> Secret {
        self.postgres.url(DatabaseName::PDNS.as_str())
    }
}

/// All of it. The order of the fields is the order in which they end: the front first.
pub struct DnsStack {
    /// What clients ask.
    pub dnsdist: Dnsdist,
    /// The clusters, the preferred one first.
    pub clusters: Vec<DnsCluster>,
}

impl DnsStack {
    /// Starts one cluster per set of ports, and dnsdist before them.
    pub async fn start(home: &Home, dnsdist: PortLease, ports: Vec<ClusterPorts>) -> Result<Self> {
        let starts =
            ports.into_iter().enumerate().map(|(index, ports)| start_cluster(home, index + 1, ports));
        let started = futures_util::future::try_join_all(starts).await?;
        let (clusters, backends) = started.into_iter().unzip();
        let dnsdist = Dnsdist::start(home, dnsdist, backends).await?;
        Ok(Self { dnsdist, clusters })
    }

    /// Stops all of it in order.
    pub async fn stop(&mut self) -> Result<()> {
        self.dnsdist.service().stop().await?;
        for cluster in &mut self.clusters {
            cluster.pdns.service().stop().await?;
            cluster.postgres.stop().await?;
        }
        Ok(())
    }
}

async fn start_cluster(home: &Home, number: usize, ports: ClusterPorts) -> Result<(DnsCluster, Backend)> {
    let name = format!("dns-{number}");
    let start = async {
        let postgres =
            Postgres::start(home, &format!("postgres-{name}"), ports.postgres, DatabaseName::PDNS).await?;
        let pdns = Pdns::start(home, &format!("pdns-{number}"), ports.pdns, &postgres).await?;
        Ok::<_, anyhow::Error>((postgres, pdns))
    };
    let (postgres, pdns) = start.await.with_context(|| format!("cannot start the DNS cluster {name}"))?;
    let front = ports.front.address();
    let backend = Backend { name: name.clone(), address: pdns.address(), front: ports.front };
    Ok((DnsCluster { name, postgres, pdns, front }, backend))
}
