//! An edge host for the tests: a state directory, the real agent, real nginx, and an origin.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use headwater_edge_wire::artifact::*;
use headwater_edge_wire::ids::*;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::control::{Control, domain_id};
use super::until;

pub const SOON: Duration = Duration::from_secs(30);

pub struct Edge {
    dir: tempfile::TempDir,
    agent: Option<Child>,
    pub ports: Vec<(u16, u16)>,
    pub origin: u16,
}

/// A port below the range that the kernel gives out.
fn port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let base = 20_000 + u16::try_from(std::process::id() % 400).unwrap() * 25;
    loop {
        let port = base + NEXT.fetch_add(1, Ordering::SeqCst);
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

fn origin() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let mut buffer = [0; 4_096];
                let _some = stream.read(&mut buffer);
                let _gone =
                    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok");
            });
        }
    });
    port
}

impl Edge {
    /// Enrolls; the agent does not run yet.
    pub fn new(control: &Control) -> Self {
        let dir = tempfile::Builder::new().prefix("hwe-").tempdir_in("/var/tmp").unwrap();
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let ports: Vec<_> = (0..control.lock().cells).map(|_| (port(), port())).collect();
        let runtime = concat!(env!("CARGO_MANIFEST_DIR"), "/runtime");
        let mut text = format!("state_dir = \"{}/state\"\nmin_free_mib = 1\n", dir.path().display());
        text.push_str(&format!("[nginx]\nruntime_dir = \"{runtime}\"\n"));
        text.push_str("[origins]\nresolvers = [\"127.0.0.1:53\"]\nunsafe_allow_loopback = true\n");
        for (http, https) in &ports {
            text.push_str(&format!(
                "[[cells]]\nhttp = [\"127.0.0.1:{http}\"]\nhttps = [\"127.0.0.1:{https}\"]\nworkers = 2\n"
            ));
        }
        std::fs::write(dir.path().join("edge.toml"), text).unwrap();
        let edge = Self { dir, agent: None, ports, origin: origin() };
        edge.enroll(control, &control.token);
        edge
    }

    /// Runs the command that an operator is given.
    pub fn enroll(&self, control: &Control, token: &str) {
        let id = control.lock().edge.to_string();
        let enrolled = self
            .command()
            .args(["enroll", "--control", &control.url, "--edge", &id])
            .env("HEADWATER_EDGE_TOKEN", token)
            .output()
            .unwrap();
        assert!(enrolled.status.success(), "{}", String::from_utf8_lossy(&enrolled.stderr));
    }

    /// Writes a line in front of the settings.
    pub fn set(&self, line: &str) {
        let path = self.dir.path().join("edge.toml");
        let settings = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, format!("{line}\n{settings}")).unwrap();
    }

    pub fn state(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    pub fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_headwater-edge"));
        command.arg("--config").arg(self.dir.path().join("edge.toml"));
        command
    }

    pub fn start(&mut self) {
        self.start_with("");
    }

    /// Starts the agent with a crash point armed.
    pub fn start_with(&mut self, crash: &str) {
        let environment = if crash.is_empty() { None } else { Some(("HEADWATER_EDGE_CRASH", crash)) };
        self.start_as(environment, "");
    }

    /// Starts the agent with a variable set, after these lines of a shell.
    pub fn start_as(&mut self, environment: Option<(&str, &str)>, before: &str) {
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.dir.path().join("agent.log"))
            .unwrap();
        let agent = self.command();
        let mut command = Command::new("sh");
        command.args(["-c", &format!("{before}\nexec \"$@\""), "sh"]);
        command.arg(agent.get_program()).args(agent.get_args());
        command.envs(environment);
        let child = command.arg("run").stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        self.agent = Some(child.spawn().unwrap());
    }

    /// `kill -9` of the agent.
    pub fn kill(&mut self) {
        if let Some(mut agent) = self.agent.take() {
            agent.kill().unwrap();
            agent.wait().unwrap();
        }
    }

    /// The agent's process.
    pub fn agent(&self) -> u32 {
        self.agent.as_ref().unwrap().id()
    }

    /// Whether the agent has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        self.agent.as_mut().is_none_or(|agent| agent.try_wait().unwrap().is_some())
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("agent.log")).unwrap_or_default()
    }

    /// Empties the agent's log.
    pub fn forget_log(&self) {
        std::fs::write(self.dir.path().join("agent.log"), "").unwrap();
    }

    pub fn master(&self, cell: usize) -> Option<i32> {
        let path = self.state().join(format!("cell-{cell}/run/nginx.pid"));
        std::fs::read_to_string(path).ok()?.trim().parse().ok()
    }

    /// `kill -9` of the agent and of every nginx, workers too.
    pub fn power_off(&mut self) {
        self.kill();
        for cell in 0..self.ports.len() {
            if let Some(pid) = self.master(cell) {
                // The group of a master that this test started: its workers are in it.
                let _gone = nix::sys::signal::killpg(Pid::from_raw(pid), Signal::SIGKILL);
                until("nginx ends", SOON, || kill(Pid::from_raw(pid), None).is_err());
            }
        }
    }

    /// The status that a request for a host gets from a cell; nothing where nobody answers.
    pub fn get(&self, cell: usize, host: &str) -> Option<u16> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.ports[cell].0)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
        let request = format!("GET / HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).ok()?;
        let mut answer = Vec::new();
        let _partly = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).split(' ').nth(1)?.parse().ok()
    }

    /// A domain whose only hostname tells its revision.
    pub fn domain(&self, n: u32, revision: u32) -> Artifact {
        let name = format!("d{n}.example");
        let origin = Origin {
            scheme: Scheme::Http,
            host: "127.0.0.1".into(),
            port: self.origin,
            host_header: "origin.example".into(),
            sni: None,
            verify_tls: true,
            connect_timeout_ms: 3_000,
            response_timeout_ms: 30_000,
            retries: 1,
            websocket: false,
        };
        Artifact {
            schema: ARTIFACT_SCHEMA,
            agent: AgentRange::CURRENT,
            id: domain_id(n),
            revision: revision.into(),
            hostnames: vec![Hostname { name: host(n, revision), origin, backup: None, health: None }],
            domain: name,
            cache: Cache {
                enabled: false,
                edge_ttl_seconds: 0,
                browser_ttl_seconds: 0,
                respect_origin_headers: true,
                maximum_object_bytes: 1 << 20,
                stale_if_error_seconds: 0,
                stale_while_revalidate_seconds: 0,
                epoch: 0,
            },
            security: Security { profile: Profile::Standard },
            certificates: vec![],
        }
    }

    /// A domain with a certificate whose key the control plane knows.
    pub fn domain_with_key(&self, control: &Control, n: u32, revision: u32) -> Artifact {
        let mut artifact = self.domain(n, revision);
        let names = vec![artifact.domain.clone()];
        let made = rcgen::generate_simple_self_signed(names.clone()).unwrap();
        let id = CertificateId::from_uuid(super::control::uuid(
            1_000 + u128::from(n) * 1_000 + u128::from(revision),
        ));
        control.lock().keys.insert(id, made.signing_key.serialize_pem());
        let chain_pem = made.cert.pem().replace("\r\n", "\n");
        artifact.certificates = vec![Certificate { id, version: Version::from(1), names, chain_pem }];
        artifact
    }

    pub fn status(&self) -> serde_json::Value {
        let out = self.command().args(["status", "--json"]).output().unwrap();
        serde_json::from_slice(&out.stdout).unwrap_or_default()
    }
}

pub fn host(n: u32, revision: u32) -> String {
    format!("r{revision}.d{n}.example")
}

impl Drop for Edge {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.log();
            let tail: Vec<_> = log.lines().rev().take(30).collect();
            eprintln!("{}\n{}", tail.into_iter().rev().collect::<Vec<_>>().join("\n"), self.status());
        }
        self.power_off();
    }
}
