//! A server that answers what a test tells it, byte by byte, so that it can also break off; and the real program.

use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;

/// How long a command may take.
const COMMAND_LIMIT_SECONDS: u64 = 60;
/// The token that the commands are given.
pub const TOKEN: &str = "hw_test_token";

/// A request as it came.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Method and target, such as `GET /api/me`.
    pub line: String,
    head: String,
    /// The body.
    pub body: String,
}

impl Seen {
    /// A header, if it was sent.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (key, value) = line.split_once(": ")?;
            key.eq_ignore_ascii_case(name).then_some(value)
        })
    }
}

/// The server. It gives each answer once, in order, each on a connection of its own.
pub struct Script {
    url: String,
    seen: Arc<Mutex<Vec<Seen>>>,
    server: tokio::task::JoinHandle<()>,
    dir: tempfile::TempDir,
}

impl Drop for Script {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// What a command did.
#[derive(Debug)]
pub struct Ran {
    /// The exit code.
    pub code: i32,
    /// Its data.
    pub out: String,
    /// Its talk.
    pub err: String,
}

impl Script {
    /// Starts it with its answers.
    pub async fn new(answers: Vec<Vec<u8>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let server = tokio::spawn(serve(listener, answers, Arc::clone(&seen)));
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("token"), TOKEN).unwrap();
        Self { url, seen, server, dir }
    }

    /// A path in a directory of the test's own.
    pub fn path(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().unwrap().to_owned()
    }

    /// What it was asked.
    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// Runs the program against it.
    pub async fn run(&self, arguments: &[&str]) -> Ran {
        let token = self.path("token");
        run(arguments, &[("HEADWATER_URL", &self.url), ("HEADWATER_TOKEN_FILE", &token)]).await
    }

    /// Starts the program against it, to be interrupted.
    pub fn start(&self, arguments: &[&str]) -> tokio::process::Child {
        let mut command = Command::new(env!("CARGO_BIN_EXE_headwater"));
        command.args(arguments).env_clear().env("HEADWATER_URL", &self.url);
        command.env("HEADWATER_TOKEN_FILE", self.path("token")).current_dir(std::env::temp_dir());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.kill_on_drop(true).spawn().unwrap()
    }
}

/// Runs the program with nothing but these variables.
pub async fn run(arguments: &[&str], variables: &[(&str, &str)]) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_headwater"));
    command.args(arguments).env_clear().envs(variables.iter().copied());
    command.stdin(Stdio::null()).kill_on_drop(true).current_dir(std::env::temp_dir());
    let limit = Duration::from_secs(COMMAND_LIMIT_SECONDS);
    let output = tokio::time::timeout(limit, command.output()).await.expect("the command hangs").unwrap();
    Ran {
        code: output.status.code().unwrap(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// A whole answer. Each header is a line such as `Retry-After: 1`.
pub fn answer(status: u16, headers: &[&str], body: &str) -> Vec<u8> {
    let mut text = format!("HTTP/1.1 {status} x\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
    for header in headers {
        text.push_str(header);
        text.push_str("\r\n");
    }
    format!("{text}\r\n{body}").into_bytes()
}

/// A JSON answer.
pub fn json(status: u16, body: serde_json::Value) -> Vec<u8> {
    answer(status, &["Content-Type: application/json"], &body.to_string())
}

/// A stream that is complete only when `is_whole`.
pub fn stream(media_type: &str, body: &str, is_whole: bool) -> Vec<u8> {
    let end = if is_whole { "0\r\n\r\n" } else { "" };
    format!(
        "HTTP/1.1 200 OK\r\nConnection: close\r\nTransfer-Encoding: chunked\r\nContent-Type: {media_type}\r\n\r\n\
         {:x}\r\n{body}\r\n{end}",
        body.len()
    )
    .into_bytes()
}

async fn serve(listener: TcpListener, answers: Vec<Vec<u8>>, seen: Arc<Mutex<Vec<Seen>>>) {
    let mut answers = answers.into_iter();
    loop {
        let (mut connection, _) = listener.accept().await.unwrap();
        let Some(request) = read(&mut connection).await else { continue };
        seen.lock().unwrap().push(request);
        let unexpected = || answer(418, &[], "the script has no further answer");
        let bytes = answers.next().unwrap_or_else(unexpected);
        // The client may have gone; the test sees that by what it did.
        let _written = connection.write_all(&bytes).await;
        let _closed = connection.shutdown().await;
    }
}

async fn read(connection: &mut TcpStream) -> Option<Seen> {
    let mut bytes = Vec::new();
    let head_end = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end;
        }
        if connection.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8(bytes[..head_end].to_vec()).unwrap();
    let line = head.lines().next().unwrap().rsplit_once(' ').unwrap().0.to_owned();
    let mut seen = Seen { line, head, body: String::new() };
    let length = seen.header("content-length").map_or(0, |length| length.parse().unwrap());
    while bytes.len() < head_end + 4 + length {
        if connection.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
    seen.body = String::from_utf8(bytes[head_end + 4..].to_vec()).unwrap();
    Some(seen)
}
