//! A PostgreSQL server of our own: its data directory, configuration, owner role and databases.
//!
//! What must hold: nothing acknowledged is lost at `kill -9` (fsync, full pages and checksums stay on, in tests too);
//! the superuser is reachable only for the account of PostgreSQL over the unix socket; over TCP there is the owner
//! role with a generated password that lies in a file of mode 0600.

use std::ffi::OsString;
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;

use super::home::{Account, Home};
use super::part::PartSpec;
use super::ports::{Port, PortLease};
use super::process::ProcessId;
use super::service::{Readiness, Service};
use super::sql;
use crate::secret::Secret;

/// Where Debian puts the programs of PostgreSQL 15.
const PROGRAMS: &str = "/usr/lib/postgresql/15/bin";
/// The major version, part of the name of the prepared data directory.
const MAJOR_VERSION: &str = "15";
/// The role that owns every database.
pub const OWNER: &str = "headwater";
/// Connections a server accepts.
const MAX_CONNECTIONS: u32 = 200;

/// The name of a database: lower-case letters, digits and underscores, so that it needs no quoting anywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatabaseName(&'static str);

impl DatabaseName {
    /// The control database.
    pub const HEADWATER: Self = Self("headwater");
    /// The database of a PowerDNS.
    pub const PDNS: Self = Self("pdns");

    /// The name.
    pub fn as_str(self) -> &'static str {
        self.0
    }
}

/// One server, stopped or running.
pub struct Postgres {
    lease: PortLease,
    dir: PathBuf,
    password: Secret,
    service: Service,
}

impl Postgres {
    /// Makes the server's directory if need be, starts the server and makes the database.
    pub async fn start(home: &Home, name: &str, lease: PortLease, database: DatabaseName) -> Result<Self> {
        let dir = home.part(name);
        Account::POSTGRES.make_dir(&dir, 0o711)?;
        make_data(home, &dir).await?;
        let password = owner_password(home, name)?;
        configure(&dir, lease.port())?;
        let spec = PartSpec {
            name: name.to_owned(),
            program: Path::new(PROGRAMS).join("postgres"),
            args: [OsString::from("-D"), dir.join("data").into(), "-c".into(), config_argument(&dir)].into(),
            env: Vec::new(),
            account: Account::POSTGRES,
            dir: dir.clone(),
            log: home.log(name),
            stop_signal: Signal::SIGINT,
            death_signal: Signal::SIGQUIT,
        };
        let readiness = Readiness::Postmaster(dir.join("data/postmaster.pid"));
        let mut server = Self { lease, dir, password, service: Service::new(spec, readiness) };
        server.service.start().await?;
        server.as_superuser(sql::owner_and_database(&server.password, database)).await?;
        Ok(server)
    }

    /// The address of the TCP listener.
    pub fn address(&self) -> SocketAddr {
        self.lease.address()
    }

    /// The port, which also names the unix socket.
    pub fn port(&self) -> Port {
        self.lease.port()
    }

    /// The directory of the unix socket.
    pub fn socket_dir(&self) -> PathBuf {
        self.dir.join("run")
    }

    /// The URL of a database for the owner role.
    pub fn url(&self, database: &str) -> Secret {
        let (password, address) = (self.password.expose(), self.address());
        Secret::new(format!("postgres://{OWNER}:{password}@{address}/{database}"))
    }

    /// The process, if it runs.
    pub fn id(&self) -> Option<ProcessId> {
        self.service.id()
    }

    /// The part itself, for whoever supervises it.
    pub fn service(&mut self) -> &mut Service {
        &mut self.service
    }

    /// Stops the server in order.
    pub async fn stop(&mut self) -> Result<()> {
        self.service.stop().await
    }

    /// Kills the server (`kill -9` of its first process; the others end by themselves).
    pub async fn kill(&mut self) -> Result<()> {
        self.service.kill().await
    }

    /// Starts the server again after a stop or a kill.
    pub async fn restart(&mut self) -> Result<()> {
        self.service.stop().await?;
        self.service.start().await
    }

    /// Runs a psql script as the superuser. It goes through standard input: arguments are for everybody to see.
    pub(super) async fn as_superuser(&self, script: Secret) -> Result<()> {
        let mut command = Account::POSTGRES.command(&Path::new(PROGRAMS).join("psql"), None);
        command
            .args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-U", "postgres", "-d", "postgres", "-p"])
            .arg(self.port().to_string())
            .arg("-h")
            .arg(self.socket_dir())
            .current_dir(&self.dir);
        run(command, Some(script)).await
    }
}

/// The password of the owner role of this server, made at the first start.
fn owner_password(home: &Home, name: &str) -> Result<Secret> {
    let file = home.dir().join(format!("{name}.password"));
    if file.exists() {
        return Secret::read(&file);
    }
    let password = Secret::generate();
    Account::Own.write_file(&file, password.expose())?;
    Ok(password)
}

/// Makes the data directory as a copy of the prepared one. `initdb` takes more than a second, a copy a tenth of it.
async fn make_data(home: &Home, dir: &Path) -> Result<()> {
    let data = dir.join("data");
    if data.exists() {
        return Ok(());
    }
    let template = make_template(home.templates()).await?;
    // A copy that was interrupted has the other name and is made again.
    let unfinished = dir.join("data.new");
    let mut remove = Account::POSTGRES.command(Path::new("/bin/rm"), None);
    remove.arg("-rf").arg(&unfinished).current_dir(dir);
    run(remove, None).await?;
    let mut copy = Account::POSTGRES.command(Path::new("/bin/cp"), None);
    copy.args(["-a", "--reflink=auto"]).arg(&template).arg(&unfinished).current_dir(dir);
    run(copy, None).await?;
    let mut sync = Account::POSTGRES.command(&Path::new(PROGRAMS).join("initdb"), None);
    sync.arg("--sync-only").arg("-D").arg(&unfinished).current_dir(dir);
    run(sync, None).await?;
    std::fs::rename(&unfinished, &data).with_context(|| format!("cannot make {}", data.display()))
}

/// Makes the prepared data directory once; others who want it at the same time wait for its lock.
async fn make_template(templates: &Path) -> Result<PathBuf> {
    Account::POSTGRES.make_dir(templates, 0o711)?;
    let template = templates.join(format!("postgresql-{MAJOR_VERSION}"));
    let lock_path = templates.join("lock");
    let _lock = tokio::task::spawn_blocking(move || -> std::io::Result<std::fs::File> {
        let lock = std::fs::File::create(&lock_path)?;
        lock.lock()?;
        Ok(lock)
    })
    .await?
    .with_context(|| format!("cannot lock {}", templates.display()))?;
    if template.exists() {
        return Ok(template);
    }
    let unfinished = templates.join("unfinished");
    let mut remove = Account::POSTGRES.command(Path::new("/bin/rm"), None);
    remove.arg("-rf").arg(&unfinished).current_dir(templates);
    run(remove, None).await?;
    let mut init = Account::POSTGRES.command(&Path::new(PROGRAMS).join("initdb"), None);
    init.arg("-D")
        .arg(&unfinished)
        .args(["-U", "postgres", "-A", "reject", "-E", "UTF8", "--locale=C.UTF-8", "--data-checksums"])
        .current_dir(templates);
    run(init, None).await?;
    std::fs::rename(&unfinished, &template).with_context(|| format!("cannot make {}", template.display()))?;
    Ok(template)
}

fn config_argument(dir: &Path) -> OsString {
    let mut argument = OsString::from("config_file=");
    argument.push(dir.join("postgresql.conf"));
    argument
}

/// Writes the server's configuration anew; nothing in it is to be edited by hand.
fn configure(dir: &Path, port: Port) -> Result<()> {
    let show = |name: &str| dir.join(name).display().to_string().replace('\'', "''");
    Account::POSTGRES.make_dir(&dir.join("run"), 0o711)?;
    let text = format!(
        "listen_addresses = '127.0.0.1'\nport = {port}\nmax_connections = {MAX_CONNECTIONS}\n\
         unix_socket_directories = '{run}'\nunix_socket_permissions = 0777\n\
         hba_file = '{hba}'\nident_file = '{ident}'\npassword_encryption = scram-sha-256\n\
         fsync = on\nfull_page_writes = on\nsynchronous_commit = on\n\
         log_parameter_max_length = 0\nlog_parameter_max_length_on_error = 0\n\
         log_line_prefix = '%m [%p] %a '\nlog_timezone = 'UTC'\ntimezone = 'UTC'\n\
         lc_messages = 'C.UTF-8'\ndatestyle = 'iso'\nshared_buffers = 128MB\njit = off\n",
        run = show("run"),
        hba = show("pg_hba.conf"),
        ident = show("pg_ident.conf"),
    );
    let hba = "local all postgres peer map=superuser\n\
               local all all scram-sha-256\n\
               host all postgres all reject\n\
               host all all 127.0.0.1/32 scram-sha-256\n";
    let ident = format!("superuser {} postgres\n", Account::POSTGRES.user_name()?);
    Account::POSTGRES.write_file(&dir.join("postgresql.conf"), &text)?;
    Account::POSTGRES.write_file(&dir.join("pg_hba.conf"), hba)?;
    Account::POSTGRES.write_file(&dir.join("pg_ident.conf"), &ident)
}

/// Runs a short-lived program to its end, its error output in the error.
pub(super) async fn run(mut command: std::process::Command, input: Option<Secret>) -> Result<()> {
    let words = command.get_args().skip_while(|word| *word != "--").skip(1);
    let program = words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
    let output = tokio::task::spawn_blocking(move || -> std::io::Result<std::process::Output> {
        let stdin = if input.is_some() { Stdio::piped() } else { Stdio::null() };
        let mut child = command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        if let (Some(input), Some(mut stdin)) = (input, child.stdin.take()) {
            stdin.write_all(input.expose().as_bytes())?;
        }
        child.wait_with_output()
    })
    .await?
    .with_context(|| format!("cannot run {program}"))?;
    if !output.status.success() {
        bail!("{program} failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}
