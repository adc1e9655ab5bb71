//! A PowerDNS on its own PostgreSQL server: one authoritative node.
//!
//! What must hold: an answer shows what is committed at the moment of the query (every cache is off); PowerDNS can
//! only read; nothing but DNS on the loopback listens; the parts of the server that take commands or zone content
//! from the network are off, because Debian's version gets no security fixes.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, Result};
use nix::sys::signal::Signal;
use sqlx::Connection;
use sqlx::postgres::PgConnection;

use super::home::{Account, Home};
use super::part::PartSpec;
use super::ports::PortLease;
use super::postgres::{DatabaseName, Postgres};
use super::process::ProcessId;
use super::service::{Readiness, Service};
use super::sql;
use crate::secret::Secret;

/// Where Debian puts the program.
const PROGRAM: &str = "/usr/sbin/pdns_server";

/// What is the same on every node. Defaults that matter are stated, so that a change of defaults changes nothing.
const FIXED_CONFIGURATION: &str = "\
daemon=no
guardian=no
disable-syslog=yes
log-timestamp=yes
loglevel=4
launch=gpgsql
gpgsql-dnssec=yes

# A query sees what is committed.
cache-ttl=0
query-cache-ttl=0
negquery-cache-ttl=0
zone-cache-refresh-interval=0
zone-metadata-cache-ttl=0
dnssec-key-cache-ttl=0

# Nothing but answers, and nothing told about ourselves or to others.
webserver=no
api=no
version-string=anonymous
server-id=disabled
security-poll-suffix=
primary=no
secondary=no
autosecondary=no
allow-unsigned-autoprimary=no
allow-unsigned-notify=no
allow-notify-from=
allow-axfr-ips=
disable-axfr=yes
dnsupdate=no
allow-dnsupdate-from=
expand-alias=no
dname-processing=yes
enable-lua-records=no
edns-subnet-processing=no
max-include-depth=0
max-generate-steps=0
any-to-tcp=yes
max-tcp-transactions-per-conn=50
max-tcp-connection-duration=30
";

/// One PowerDNS, stopped or running.
pub struct Pdns {
    lease: PortLease,
    service: Service,
}

impl Pdns {
    /// Brings the database to the current schema and starts PowerDNS on it.
    pub async fn start(home: &Home, name: &str, lease: PortLease, postgres: &Postgres) -> Result<Self> {
        let password = Secret::generate();
        prepare_database(postgres, &password).await?;
        let dir = home.part(name);
        Account::PDNS.make_dir(&dir, 0o700)?;
        let configuration = format!(
            "{FIXED_CONFIGURATION}\nlocal-address=127.0.0.1\nlocal-port={}\nsocket-dir={}\n\
             gpgsql-host={}\ngpgsql-port={}\ngpgsql-dbname=pdns\ngpgsql-user=pdns_ro\ngpgsql-password={}\n",
            lease.port(),
            dir.display(),
            postgres.socket_dir().display(),
            postgres.port(),
            password.expose(),
        );
        Account::PDNS.write_file(&dir.join("pdns.conf"), &configuration)?;
        let spec = PartSpec {
            name: name.to_owned(),
            program: Path::new(PROGRAM).to_owned(),
            args: vec![format!("--config-dir={}", dir.display()).into()],
            env: Vec::new(),
            account: Account::PDNS,
            dir,
            log: home.log(name),
            stop_signal: Signal::SIGTERM,
            death_signal: Signal::SIGKILL,
        };
        let mut service = Service::new(spec, Readiness::Dns(lease.address()));
        service.start().await?;
        Ok(Self { lease, service })
    }

    /// Where it answers, UDP and TCP.
    pub fn address(&self) -> SocketAddr {
        self.lease.address()
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

/// Applies the schema as the owner, and gives the reading role a password and its rights.
async fn prepare_database(postgres: &Postgres, password: &Secret) -> Result<()> {
    postgres.as_superuser(sql::pdns_reader_role(password)).await?;
    let mut connection = PgConnection::connect(postgres.url(DatabaseName::PDNS.as_str()).expose())
        .await
        .context("cannot connect to the database of PowerDNS")?;
    sql::PDNS_MIGRATIONS
        .run_direct(None, &mut connection, false)
        .await
        .context("cannot bring the database of PowerDNS to the current schema")?;
    sqlx::raw_sql(sql::GRANT_PDNS_READER)
        .execute(&mut connection)
        .await
        .context("cannot grant the reading role of PowerDNS its rights")?;
    connection.close().await.context("cannot close a connection")
}
