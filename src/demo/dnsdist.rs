//! dnsdist in front of the DNS clusters.
//!
//! One listener answers from the first cluster that is healthy. Beside it each cluster has a listener of its own whose
//! queries go to that cluster alone, so that a deployment can be verified on the way that clients take, whatever the
//! state of the others. There is no packet cache: an answer is what a cluster says now.
//!
//! Health needs no zone: a name that nobody here hosts is REFUSED by a node that lives and SERVFAIL by one whose
//! database is gone, and dnsdist takes SERVFAIL for a failure whatever else it is told to accept.

use std::fmt::Write;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, Result};
use nix::sys::signal::Signal;

use super::home::{Account, Home};
use super::part::PartSpec;
use super::ports::PortLease;
use super::probe::UNHOSTED_NAME;
use super::process::ProcessId;
use super::service::{Readiness, Service};

/// Where Debian puts the program.
const PROGRAM: &str = "/usr/bin/dnsdist";
/// How often a backend is checked.
const CHECK_INTERVAL_SECONDS: u32 = 1;
/// How long one check may take.
const CHECK_TIMEOUT_MILLISECONDS: u32 = 500;
/// Queries on one TCP connection: dnsdist 1.7 can be driven out of stack by very many.
const TCP_QUERIES_PER_CONNECTION: u32 = 50;

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
            program: Path::new(PROGRAM).to_owned(),
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

fn configuration(listener: SocketAddr, backends: &[Backend]) -> Result<String> {
    let mut text = format!(
        "setLocal('{listener}')\nsetACL({{'127.0.0.0/8'}})\nsetSecurityPollSuffix('')\n\
         setMaxTCPQueriesPerConnection({TCP_QUERIES_PER_CONNECTION})\nsetServerPolicy(firstAvailable)\n\
         -- A client is told at once that nobody can answer.\nsetServFailWhenNoServer(true)\n"
    );
    for (order, backend) in backends.iter().enumerate() {
        let (name, front) = (&backend.name, backend.front.address());
        write!(
            text,
            "\naddLocal('{front}')\naddAction(DSTPortRule({port}), PoolAction('{name}'))\n\
             newServer({{address='{address}', name='{name}', order={order}, pool={{'', '{name}'}}, \
             checkName='{UNHOSTED_NAME}', checkType='A', mustResolve=false, \
             checkInterval={CHECK_INTERVAL_SECONDS}, checkTimeout={CHECK_TIMEOUT_MILLISECONDS}, \
             maxCheckFailures=1, rise=1}})\n",
            port = front.port(),
            address = backend.address,
        )
        .context("cannot write the configuration of dnsdist")?;
    }
    Ok(text)
}
