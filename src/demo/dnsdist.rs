//! dnsdist in front of the DNS clusters, configured as every other one is.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, Result};
use nix::sys::signal::Signal;

use super::home::{Account, Home};
use super::part::PartSpec;
use super::ports::PortLease;
use super::process::ProcessId;
use super::service::{Readiness, Service};
use crate::config::Config;
use crate::dnsdist;

/// A backend and the listener that leads to it alone.
pub struct Backend {
    /// The name of the cluster: lower-case letters, digits and hyphens.
    pub name: String,
    /// Where its PowerDNS answers.
    pub address: SocketAddr,
    /// The port of the listener for it alone.
    pub front: PortLease,
}

/// One dnsdist, stopped or running.
pub struct Dnsdist {
    lease: PortLease,
    backends: Vec<Backend>,
    service: Service,
}

impl Dnsdist {
    /// Starts dnsdist before these backends, the first one preferred.
    pub async fn start(home: &Home, lease: PortLease, backends: Vec<Backend>) -> Result<Self> {
        let name = "dnsdist";
        let dir = home.part(name);
        Account::DNSDIST.make_dir(&dir, 0o700)?;
        let file = dir.join("dnsdist.conf");
        Account::DNSDIST.write_file(&file, &configuration(lease.address(), &backends)?)?;
        let spec = PartSpec {
            name: name.to_owned(),
            program: Path::new(dnsdist::PROGRAM).to_owned(),
            args: vec!["--supervised".into(), "--disable-syslog".into(), "-C".into(), file.into()],
            env: Vec::new(),
            account: Account::DNSDIST,
            dir,
            log: home.log(name),
            stop_signal: Signal::SIGTERM,
            death_signal: Signal::SIGKILL,
        };
        let mut service = Service::new(spec, Readiness::Dns(lease.address()));
        service.start().await?;
        Ok(Self { lease, backends, service })
    }

    /// The listener for clients.
    pub fn address(&self) -> SocketAddr {
        self.lease.address()
    }

    /// The listener that leads to one cluster alone.
    pub fn front(&self, cluster: &str) -> Option<SocketAddr> {
        self.backends.iter().find(|backend| backend.name == cluster).map(|backend| backend.front.address())
    }

    /// The process, if it runs.
    pub fn id(&self) -> Option<ProcessId> {
        self.service.id()
    }

    /// The part itself, for whoever supervises, kills or restarts it.
    pub fn service(&mut self) -> &mut Service {
        &mut self.service
    }
}

/// As on a host of its own, for clients on loopback alone.
fn configuration(listener: SocketAddr, backends: &[Backend]) -> Result<String> {
    let text = format!("[dnsdist]\nlisten = [\"{listener}\"]\nallow_networks = [\"127.0.0.0/8\"]\n");
    let settings = Config::parse(&text, None, []).context("cannot configure dnsdist")?.dnsdist;
    let backends: Vec<dnsdist::Backend> = backends
        .iter()
        .map(|backend| dnsdist::Backend {
            name: backend.name.clone(),
            address: backend.address,
            front: Some(backend.front.address()),
            enabled: true,
        })
        .collect();
    dnsdist::configuration(&settings, &backends)
}
