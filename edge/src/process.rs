//! nginx, one per cell. It is found by its working directory, not by what a file says: so an agent that was killed at
//! any moment finds what it started, and workers that outlived their master are found and ended before a new one binds.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::cell::Owner;
use crate::disk::{self, At, DiskError};
use crate::settings::{Cell as CellSettings, Settings};

/// How long orphans may take to be gone.
const GONE_WITHIN: Duration = Duration::from_secs(5);
/// A master that lived for less is started again later and later.
const STEADY_AFTER: Duration = Duration::from_secs(10);
const RESTART_FIRST: Duration = Duration::from_millis(200);
const RESTART_LAST: Duration = Duration::from_secs(10);
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);
/// Open files of a worker.
const WORKER_FILES: u32 = 16_384;

/// A process, told from a later one of the same number by when it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub pid: i32,
    group: i32,
    started: u64,
}

impl Process {
    fn read(pid: i32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name stands in parentheses and may hold anything.
        let (_, rest) = stat.rsplit_once(')')?;
        let fields: Vec<_> = rest.split_ascii_whitespace().collect();
        if matches!(fields.first(), Some(&("Z" | "X"))) {
            return None;
        }
        Some(Self { pid, group: fields.get(2)?.parse().ok()?, started: fields.get(19)?.parse().ok()? })
    }

    fn is_alive(self) -> bool {
        Self::read(self.pid) == Some(self)
    }

    fn is_master(self) -> bool {
        self.pid == self.group
    }

    fn signal(self, signal: Signal) {
        if self.is_alive()
            && let Err(error) = kill(Pid::from_raw(self.pid), signal)
        {
            tracing::warn!(pid = self.pid, %error, "cannot signal");
        }
    }
}

/// The nginx processes that work in a directory. Where a worker of another user does not show where it works, the group
/// of the last master tells: nginx leaves its number in a file, and workers outlive it in its group.
fn members(dir: &Path, nginx: &Path) -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let dir = fs::canonicalize(dir).unwrap_or_else(|_| dir.to_owned());
    let name = nginx.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let group = fs::read_to_string(dir.join("run/nginx.pid")).ok().and_then(|pid| pid.trim().parse().ok());
    let works_here = |pid: &i32| match fs::read_link(format!("/proc/{pid}/cwd")) {
        Ok(cwd) => cwd == dir,
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            group.is_some() && Process::read(*pid).map(|process| process.group) == group
        }
        Err(_) => false,
    };
    pids.filter(works_here)
        .filter(|pid| {
            fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim_end() == name)
        })
        .filter_map(Process::read)
        .collect()
}

/// The nginx of one cell.
#[derive(Debug, Default)]
pub struct Runtime {
    master: Option<Process>,
    child: Option<Child>,
    started: Option<Instant>,
    restarts: u32,
    not_before: Option<Instant>,
}

impl Runtime {
    /// Makes sure that nginx runs: adopts it, or ends what is left of it and starts it, where what it would read may be
    /// read. Called again and again.
    ///
    /// # Errors
    /// When it cannot be started now; it is tried again later.
    pub fn keep(
        &mut self,
        dir: &Path,
        settings: &Settings,
        now: Instant,
        may_read: impl FnOnce() -> bool,
    ) -> io::Result<()> {
        if let Some(child) = &mut self.child
            && child.try_wait()?.is_some()
        {
            self.child = None;
        }
        if self.master.is_some_and(Process::is_alive) {
            return Ok(());
        }
        if self.master.take().is_some() {
            let is_steady = self.started.is_some_and(|at| now.duration_since(at) > STEADY_AFTER);
            self.restarts = if is_steady { 0 } else { self.restarts + 1 };
            let wait = RESTART_FIRST.saturating_mul(1 << self.restarts.min(6)).min(RESTART_LAST);
            self.not_before = (self.restarts > 1).then(|| now + wait);
            tracing::error!(dir = %dir.display(), "nginx ended; it is started again");
        }
        let found = members(dir, &settings.nginx.path);
        if let Some(master) = found.iter().find(|process| process.is_master()) {
            tracing::info!(pid = master.pid, dir = %dir.display(), "nginx runs; taken over");
            self.master = Some(*master);
            self.started = Some(now);
            return Ok(());
        }
        if self.not_before.is_some_and(|at| now < at) {
            return Ok(());
        }
        end_all(dir, &settings.nginx.path, found)?;
        // The first time, a start of the agent has just proven everything.
        if self.started.is_some() && !may_read() {
            return Err(io::Error::other(
                "what it would serve is damaged on the disk and is written anew first",
            ));
        }
        self.start(dir, settings, now)
    }

    fn start(&mut self, dir: &Path, settings: &Settings, now: Instant) -> io::Result<()> {
        for socket in ["origin.sock", "control.sock"] {
            disk::discard(&dir.join("run").join(socket));
        }
        let out = fs::OpenOptions::new().create(true).append(true).open(dir.join("log/out"))?;
        let child = Command::new(&settings.nginx.path)
            .arg("-p")
            .arg(format!("{}/", dir.display()))
            .args(["-c", "etc/nginx.conf", "-e"])
            .arg(dir.join("log/error.log"))
            .current_dir(dir)
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(out.try_clone()?)
            .stderr(out)
            .spawn()?;
        let pid = i32::try_from(child.id()).map_err(io::Error::other)?;
        self.master = Process::read(pid);
        (self.child, self.started) = (Some(child), Some(now));
        tracing::info!(pid, dir = %dir.display(), "nginx started");
        Ok(())
    }

    /// The master, while it lives.
    pub fn master(&self) -> Option<i32> {
        self.master.filter(|master| master.is_alive()).map(|master| master.pid)
    }

    /// Ends nginx: first what it does may end.
    pub fn stop(&mut self) {
        if let Some(master) = self.master.take() {
            master.signal(Signal::SIGQUIT);
        }
    }

    /// Starts nginx anew: what runs is told to end at once, what does not is ended.
    ///
    /// # Errors
    /// When the old one does not go or the new one cannot be started; it is tried again later.
    pub fn restart(&mut self, dir: &Path, settings: &Settings, now: Instant) -> io::Result<()> {
        if let Some(master) = self.master {
            master.signal(Signal::SIGTERM);
            let until = Instant::now() + GONE_WITHIN;
            while master.is_alive() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        if let Some(child) = &mut self.child {
            child.try_wait()?;
        }
        (self.master, self.child, self.not_before) = (None, None, None);
        end_all(dir, &settings.nginx.path, members(dir, &settings.nginx.path))?;
        self.start(dir, settings, now)
    }

    /// Makes nginx read its files anew.
    pub fn reload(&self) {
        if let Some(master) = self.master {
            master.signal(Signal::SIGHUP);
        }
    }
}

/// Ends what a master left behind: orphans hold the ports and serve an old state.
fn end_all(dir: &Path, nginx: &Path, mut left: Vec<Process>) -> io::Result<()> {
    let until = Instant::now() + GONE_WITHIN;
    while !left.is_empty() {
        left.iter().for_each(|process| process.signal(Signal::SIGKILL));
        if Instant::now() > until {
            return Err(io::Error::other("workers of an earlier nginx do not end"));
        }
        std::thread::sleep(Duration::from_millis(5));
        left = members(dir, nginx);
    }
    Ok(())
}

/// Whether something accepts connections at each of these addresses.
pub fn accepts(addresses: &[SocketAddr]) -> bool {
    addresses.iter().all(|address| {
        let ip = match address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
            ip => ip,
        };
        TcpStream::connect_timeout(&SocketAddr::new(ip, address.port()), CONNECT_TIMEOUT).is_ok()
    })
}

/// The user that workers run as, where the agent may choose.
///
/// # Errors
/// When there is no such user.
pub fn owner(settings: &Settings) -> io::Result<Option<Owner>> {
    if !nix::unistd::geteuid().is_root() {
        return Ok(None);
    }
    let user = nix::unistd::User::from_name(&settings.nginx.user)?
        .ok_or_else(|| io::Error::other(format!("there is no user {}", settings.nginx.user)))?;
    Ok(Some(Owner { uid: user.uid.as_raw(), gid: user.gid.as_raw() }))
}

/// Writes the few files that differ between cells, from the operator's values alone. True where one changed.
///
/// # Errors
/// When one cannot be written.
pub fn configure(
    dir: &Path,
    settings: &Settings,
    cell: &CellSettings,
    owner: Option<Owner>,
) -> Result<bool, DiskError> {
    for name in ["etc", "log", "cache", "run"] {
        let path = dir.join(name);
        disk::make_dir(&path, disk::PRIVATE_DIR)?;
        if let Some(owner) = owner {
            std::os::unix::fs::chown(&path, Some(owner.uid), Some(owner.gid)).at("give away", &path)?;
        }
    }
    let etc = dir.join("etc");
    let mut changed = false;
    for (name, text) in files(settings, cell, owner.is_some()) {
        let path = etc.join(name);
        if disk::read(&path, 1 << 20).ok().as_deref() != Some(text.as_bytes()) {
            disk::replace(&path, text.as_bytes(), 0o644)?;
            changed = true;
        }
    }
    if !etc.join("default.pem").is_file() {
        disk::replace(&etc.join("default.pem"), default_certificate().as_bytes(), disk::PRIVATE_FILE)?;
    }
    let runtime = &settings.nginx.runtime_dir;
    for (name, to) in [("nginx.conf", runtime.join("nginx.conf")), ("runtime", runtime.clone())] {
        let link = etc.join(name);
        if fs::read_link(&link).ok().as_ref() != Some(&to) {
            disk::discard(&link);
            symlink(&to, &link).at("link", &link)?;
            changed = true;
        }
    }
    Ok(changed)
}

fn files(settings: &Settings, cell: &CellSettings, is_root: bool) -> [(&'static str, String); 5] {
    let user = if is_root { format!("user {};\n", settings.nginx.user) } else { String::new() };
    let workers = cell.workers;
    let main =
        format!("{user}worker_processes {workers};\nworker_rlimit_nofile {WORKER_FILES};\ndaemon off;\n");
    let proxies: String =
        settings.trusted_proxies.iter().map(|prefix| format!("set_real_ip_from {prefix};\n")).collect();
    let http = format!(
        "proxy_cache_path cache levels=1:2 keys_zone=hw:32m max_size={}m inactive=1h use_temp_path=off;\n\
         proxy_ssl_trusted_certificate {};\n{proxies}real_ip_header X-Forwarded-For;\nreal_ip_recursive on;\n",
        settings.nginx.cache_mib,
        settings.nginx.trusted_certificates.display(),
    );
    let listen = |addresses: &[SocketAddr], more: &str| -> String {
        addresses.iter().map(|address| format!("listen {address}{more} backlog=4096;\n")).collect()
    };
    let origins = &settings.origins;
    let texts =
        |prefixes: &[crate::settings::Prefix]| prefixes.iter().map(ToString::to_string).collect::<Vec<_>>();
    let json = serde_json::json!({
        "resolvers": origins.resolvers.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "unsafe_loopback_origins": origins.unsafe_allow_loopback,
        "private_origins": texts(&origins.private_prefixes),
        "own_addresses": origins.own_addresses.iter().map(ToString::to_string).collect::<Vec<_>>(),
    });
    [
        ("main.conf", main),
        ("http.conf", http),
        ("plain.conf", listen(&cell.http, "")),
        ("tls.conf", listen(&cell.https, " ssl http2")),
        ("cell.json", json.to_string()),
    ]
}

/// A certificate that nginx wants and nobody is ever shown.
fn default_certificate() -> String {
    let made = rcgen::generate_simple_self_signed(vec!["default.invalid".to_owned()]);
    made.map(|made| format!("{}{}", made.cert.pem(), made.signing_key.serialize_pem())).unwrap_or_default()
}

/// Ends the nginx that works in a directory.
pub fn stop_found(dir: &Path, settings: &Settings) {
    for process in members(dir, &settings.nginx.path).into_iter().filter(|process| process.is_master()) {
        process.signal(Signal::SIGQUIT);
    }
}
