//! An edge host: the real agent with its cells, and an origin that tells how often it was asked.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use headwater::demo::home::Home;
use headwater::demo::ports::PortLease;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::support::{edge_program, test_home};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
/// How long one answer may take.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

pub struct Host {
    home: Home,
    agent: Option<Child>,
    refuses: &'static str,
    cells: Vec<[PortLease; 2]>,
    pub origin: SocketAddr,
    http: reqwest::Client,
}

impl Host {
    /// A host that is not enrolled yet. Its agent finds that this domain does not compile, whatever it is.
    pub async fn new(cells: usize, refuses: &'static str) -> Self {
        let home = test_home();
        let lease = || [PortLease::take().unwrap(), PortLease::take().unwrap()];
        let cells: Vec<_> = (0..cells).map(|_| lease()).collect();
        let mut text = format!(
            "state_dir = \"{}/state\"\nmin_free_mib = 1\n[nginx]\nruntime_dir = \"{ROOT}/edge/runtime\"\n\
             [origins]\nresolvers = [\"127.0.0.1:53\"]\nunsafe_allow_loopback = true\n",
            home.dir().display()
        );
        for [http, https] in &cells {
            let (http, https) = (http.port().address(), https.port().address());
            text.push_str(&format!("[[cells]]\nhttp = [\"{http}\"]\nhttps = [\"{https}\"]\nworkers = 2\n"));
        }
        std::fs::write(home.dir().join("edge.toml"), text).unwrap();
        let http = reqwest::Client::builder().no_proxy().timeout(ANSWER_LIMIT).build().unwrap();
        Self { home, agent: None, refuses, cells, origin: origin().await, http }
    }

    fn environment<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command.env("HEADWATER_EDGE_CONFIG", self.home.dir().join("edge.toml")).stdin(Stdio::null())
    }

    /// Runs the command that the control plane printed, as a shell would.
    pub fn enroll(&self, command: &str) {
        let path = format!("{}:/usr/bin:/bin", edge_program().parent().unwrap().display());
        let mut shell = Command::new("sh");
        let ran = self.environment(shell.args(["-c", command]).env("PATH", path)).output().unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    }

    pub fn start(&mut self) {
        let log = self.home.dir().join("agent.log");
        let log = std::fs::OpenOptions::new().create(true).append(true).open(log).unwrap();
        let mut command = Command::new(edge_program());
        let command = self.environment(command.arg("run")).env("HEADWATER_EDGE_REFUSES", self.refuses);
        self.agent = Some(command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap());
    }

    /// Sends the agent a signal; its cells know nothing of it.
    pub fn signal(&self, signal: Signal) {
        let agent = self.agent.as_ref().unwrap();
        kill(Pid::from_raw(agent.id().cast_signed()), signal).unwrap();
    }

    /// `kill -9` of the agent alone.
    pub fn kill_agent(&mut self) {
        if let Some(mut agent) = self.agent.take() {
            agent.kill().unwrap();
            agent.wait().unwrap();
        }
    }

    /// Where a cell listens for TLS.
    pub fn https(&self, cell: usize) -> SocketAddr {
        self.cells[cell][1].port().address()
    }

    /// Its state directory.
    pub fn state(&self) -> PathBuf {
        self.home.dir().join("state")
    }

    /// The processes of a cell's nginx that serve.
    pub fn workers(&self, cell: usize) -> String {
        let file = self.state().join(format!("cell-{cell}/run/nginx.pid"));
        let master = std::fs::read_to_string(file).unwrap().trim().to_owned();
        std::fs::read_to_string(format!("/proc/{master}/task/{master}/children")).unwrap()
    }

    /// `kill -9` of the agent and of every nginx, as a power failure does it.
    pub fn power_off(&mut self) {
        self.kill_agent();
        for cell in 0..self.cells.len() {
            let file = self.home.dir().join(format!("state/cell-{cell}/run/nginx.pid"));
            let text = std::fs::read_to_string(file).unwrap_or_default();
            if let Ok(pid) = text.trim().parse() {
                // The group of a master that this test started: its workers are in it.
                let _gone = killpg(Pid::from_raw(pid), Signal::SIGKILL);
            }
        }
    }

    /// Where visitors of a cell come in.
    pub fn door(&self, cell: usize) -> SocketAddr {
        self.cells[cell][0].port().address()
    }

    /// What a cell answers to a visitor; status 0: nothing.
    pub async fn get(&self, cell: usize, host: &str, path: &str) -> (u16, String) {
        let url = format!("http://{}{path}", self.cells[cell][0].port().address());
        match self.http.get(url).header("host", host).send().await {
            Ok(answer) => (answer.status().as_u16(), answer.text().await.unwrap_or_default()),
            Err(_) => (0, String::new()),
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = std::fs::read_to_string(self.home.dir().join("agent.log")).unwrap_or_default();
            let tail: Vec<_> = log.lines().rev().take(30).collect();
            eprintln!("{}", tail.into_iter().rev().collect::<Vec<_>>().join("\n"));
        }
        self.power_off();
    }
}

/// Answers every request with how many there were.
async fn origin() -> SocketAddr {
    static ASKED: AtomicU32 = AtomicU32::new(0);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut head, mut piece) = (Vec::new(), [0; 4_096]);
                while !head.windows(4).any(|end| end == b"\r\n\r\n") {
                    match stream.read(&mut piece).await {
                        Ok(read @ 1..) => head.extend_from_slice(&piece[..read]),
                        _ => return,
                    }
                }
                let body = format!("answer {}", ASKED.fetch_add(1, Ordering::SeqCst));
                let answer = format!(
                    "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncache-control: max-age=600\r\n\
                     content-length: {}\r\nconnection: close\r\n\r\n{body}",
                    body.len()
                );
                let _gone = stream.write_all(answer.as_bytes()).await;
            });
        }
    });
    address
}
