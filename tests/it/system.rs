//! The whole system as `make demo` starts it, under load, while its processes are killed: nothing acknowledged is
//! lost, nothing is doubled, every operation ends, answers keep coming from the other parts.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use domain::base::Rtype;
use domain::base::iana::Rcode;
use headwater::demo::home::Home;
use headwater::demo::probe;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::support::{edge_program, eventually, test_home};

/// Kills of one run; the campaign takes many.
const KILLS: usize = 10;
const TORTURE_KILLS: usize = 200;
/// Writers of the load.
const WRITERS: usize = 8;
/// How often a writer tries one request before it gives up.
const TRIES: usize = 600;
/// How long a writer waits before it tries again.
const RETRY_PAUSE: Duration = Duration::from_millis(50);
/// How long a client waits for dnsdist before it asks once more.
const TRY_LIMIT: Duration = Duration::from_secs(1);

/// A running `headwater demo`; it and all of its parts end with this value.
pub struct Demo {
    child: Child,
    home: Home,
}

impl Drop for Demo {
    fn drop(&mut self) {
        let _asked = kill(Pid::from_raw(self.child.id().cast_signed()), Signal::SIGTERM);
        let _ended = self.child.wait();
    }
}

impl Demo {
    /// Starts one and waits until it says that it is ready.
    pub async fn start() -> Self {
        // It is to stand beside the program that starts it.
        let _made = edge_program();
        let home = test_home();
        let demo = Self { child: spawn(home.dir()), home };
        eventually("the demo is ready", || async { demo.try_facts().is_some() }, |ready| *ready).await;
        demo
    }

    fn try_facts(&self) -> Option<Value> {
        let text = std::fs::read_to_string(self.home.dir().join("demo.json")).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// `demo.json`.
    pub fn facts(&self) -> Value {
        self.try_facts().expect("demo.json is there while the demo runs")
    }

    /// Kills the demo itself and awaits the next one in the same directory.
    pub async fn kill_and_restart(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.child = spawn(self.home.dir());
        let pid = json!(self.child.id());
        let is_next =
            |facts: &Option<Value>| facts.as_ref().is_some_and(|facts| facts["pids"]["demo"] == pid);
        eventually("the next demo is ready", || async { self.try_facts() }, is_next).await;
    }

    pub fn pid(&self, part: &str) -> Option<Pid> {
        let pid = self.facts()["pids"][part].as_i64()?;
        Some(Pid::from_raw(i32::try_from(pid).ok()?))
    }

    /// Runs the program against it; gives the exit code and what it printed.
    pub fn headwater(&self, args: &[&str]) -> (i32, String) {
        let facts = self.facts();
        let output = Command::new(facts["bin"].as_str().unwrap())
            .arg("--config")
            .arg(facts["config"].as_str().unwrap())
            .args(args)
            .output()
            .unwrap();
        let text =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        (output.status.code().unwrap_or(-1), text)
    }
}

/// A client that repeats a request with the same key until it is answered for good.
#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    root: String,
    token: String,
}

impl Client {
    pub fn new(facts: &Value) -> Self {
        let _installed = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let http = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(40)).build().unwrap();
        let text = |key: &str| facts[key].as_str().unwrap().to_owned();
        Self { http, root: text("api"), token: text("admin_token") }
    }

    pub async fn send(&self, method: reqwest::Method, path: &str, body: Option<Value>) -> (u16, Value) {
        let key = uuid::Uuid::now_v7().to_string();
        let mut last = String::new();
        for _ in 0..TRIES {
            let mut request = self
                .http
                .request(method.clone(), format!("{}{path}", self.root))
                .bearer_auth(&self.token)
                .header("Idempotency-Key", &key);
            if let Some(body) = &body {
                request = request.json(body);
            }
            match request.send().await {
                Ok(response) => {
                    let status = response.status().as_u16();
                    let body: Result<Value, _> = response.json().await;
                    // 409 idempotency_in_progress: the first try is still being worked on.
                    let again = status >= 500 || status == 429 || (status == 409 && is_in_progress(&body));
                    if !again && let Ok(body) = body {
                        return (status, body);
                    }
                    last = format!("{status}");
                }
                Err(error) => last = error.to_string(),
            }
            // As a client that was told to come again.
            tokio::time::sleep(RETRY_PAUSE).await;
        }
        panic!("{method} {path}: never answered; last: {last}");
    }
}

fn is_in_progress(body: &Result<Value, reqwest::Error>) -> bool {
    body.as_ref().is_ok_and(|body| body["code"] == "idempotency_in_progress")
}

/// One writer: puts its own names, one after another, and remembers what was acknowledged.
async fn write(client: Client, writer: usize, stop: Arc<AtomicBool>) -> Vec<(String, String, String)> {
    let mut acknowledged = Vec::new();
    let mut n = 0;
    while !stop.load(Ordering::Relaxed) {
        let name = format!("w{writer}-{n}");
        let address = format!("10.{writer}.{}.{}", n / 256, n % 256);
        let path = format!("/api/domains/faults.example/rrsets/{name}/A");
        let (status, body) =
            client.send(reqwest::Method::PUT, &path, Some(json!({"ttl": 60, "records": [address]}))).await;
        assert_eq!(status, 202, "{body}");
        acknowledged.push((name, address, body["operation"]["id"].as_str().unwrap().to_owned()));
        n += 1;
    }
    acknowledged
}

/// What clients of dnsdist saw.
#[derive(Debug, Default)]
struct Seen {
    /// Answered well at the first try.
    good: u32,
    /// Answered well at the second.
    second: u32,
    /// Not answered well by either; with what was seen.
    bad: Vec<String>,
    /// Answered, but with something else.
    wrong: Vec<String>,
}

/// Asks dnsdist all the time, as a client does that gives a server a second and tries once more.
async fn watch(dns: std::net::SocketAddr, stop: Arc<AtomicBool>) -> Seen {
    let (mut seen, mut pace) = (Seen::default(), tokio::time::interval(Duration::from_millis(5)));
    while !stop.load(Ordering::Relaxed) {
        pace.tick().await;
        let since = tokio::time::Instant::now();
        let first = ask(dns, &mut seen).await;
        if first.is_ok() {
            seen.good += 1;
            continue;
        }
        // A refusal comes at once; the second try comes when the first would have ended.
        tokio::time::sleep_until(since + TRY_LIMIT).await;
        match ask(dns, &mut seen).await {
            Ok(()) => seen.second += 1,
            Err(second) => seen.bad.push(format!("{first:?}, then {second}")),
        }
    }
    seen
}

async fn ask(dns: std::net::SocketAddr, seen: &mut Seen) -> Result<(), String> {
    match probe::dns(dns, "stays.faults.example", Rtype::A, TRY_LIMIT).await {
        Ok(answer) if answer.is_exactly("192.0.2.1") => Ok(()),
        Ok(answer) => {
            // No answer is a moment's; another answer is never right.
            if answer.rcode == Rcode::NOERROR || answer.rcode == Rcode::NXDOMAIN {
                seen.wrong.push(format!("{answer:?}"));
            }
            Err(answer.rcode.to_string())
        }
        Err(error) => Err(error.to_string()),
    }
}

async fn prepare(client: &Client) {
    let body = json!({"name": "faults.example", "force_active": true});
    let (status, answer) = client.send(reqwest::Method::POST, "/api/domains", Some(body)).await;
    assert_eq!(status, 202, "{answer}");
    let path = "/api/domains/faults.example/rrsets/stays/A";
    let body = json!({"ttl": 60, "records": ["192.0.2.1"]});
    let (status, answer) = client.send(reqwest::Method::PUT, path, Some(body)).await;
    assert_eq!(status, 202, "{answer}");
    let operation = answer["operation"]["id"].as_str().unwrap().to_owned();
    ended(client, &operation).await;
}

/// The end of an operation.
async fn ended(client: &Client, operation: &str) -> Value {
    let path = format!("/api/operations/{operation}?wait=20");
    let ask = || async { client.send(reqwest::Method::GET, &path, None).await.1 };
    eventually("the operation ends", ask, |body| {
        matches!(body["state"].as_str(), Some("succeeded" | "failed" | "cancelled"))
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_parts_lose_and_double_nothing() {
    let demo = Demo::start().await;
    let client = Client::new(&demo.facts());
    prepare(&client).await;
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> =
        (0..WRITERS).map(|n| tokio::spawn(write(client.clone(), n, Arc::clone(&stop)))).collect();
    let dns = demo.facts()["dns"].as_str().unwrap().parse().unwrap();
    let watcher = tokio::spawn(watch(dns, Arc::clone(&stop)));

    let parts = [
        "headwater",
        "postgres",
        "postgres-dns-1",
        "pdns-1",
        "headwater",
        "postgres-dns-2",
        "pdns-2",
        "headwater",
    ];
    let kills = if std::env::var_os("HEADWATER_TORTURE").is_some() { TORTURE_KILLS } else { KILLS };
    for n in 0..kills {
        let part = parts[n % parts.len()];
        let before = demo.pid(part).unwrap();
        kill(before, Signal::SIGKILL).unwrap();
        eventually(
            "the part is back",
            || async { demo.pid(part) },
            |now| now.is_some_and(|now| now != before),
        )
        .await;
        // The next one falls only after the system answers again.
        let (status, _) = client.send(reqwest::Method::GET, "/api/domains/faults.example", None).await;
        assert_eq!(status, 200);
    }
    stop.store(true, Ordering::Relaxed);
    let seen = watcher.await.unwrap();
    let mut acknowledged = Vec::new();
    for writer in writers {
        acknowledged.extend(writer.await.unwrap());
    }
    println!("{} written; {kills} kills; clients saw {seen:?}", acknowledged.len());
    assert!(acknowledged.len() > WRITERS && seen.good > 100, "{} written, {seen:?}", acknowledged.len());
    assert_eq!(seen.wrong, Vec::<String>::new(), "a wrong answer");
    // The other cluster answers: what a kill costs a client is its first try, and that of few.
    let asked = seen.good + seen.second + u32::try_from(seen.bad.len()).unwrap();
    assert!(seen.second <= asked / 50, "{} of {asked} queries needed a second try", seen.second);
    assert!(seen.bad.len() <= kills / 10, "not answered at the second try either: {:?}", seen.bad);
    check(&demo, &client, &acknowledged).await;
}

async fn check(demo: &Demo, client: &Client, acknowledged: &[(String, String, String)]) {
    for (_, _, operation) in acknowledged {
        let end = ended(client, operation).await;
        assert_eq!(end["state"], "succeeded", "{end}");
    }
    for (name, address, _) in acknowledged {
        let path = format!("/api/domains/faults.example/rrsets/{name}/A");
        let (status, body) = client.send(reqwest::Method::GET, &path, None).await;
        assert_eq!((status, &body["records"][0]), (200, &json!(address)), "{body}");
    }
    // Each was written once: as many events as names, and dense revisions.
    let mut events = Vec::new();
    let mut after = 0;
    loop {
        let path = format!("/api/events?domain=faults.example&type=rrset.replaced&after={after}&limit=1000");
        let (_, page) = client.send(reqwest::Method::GET, &path, None).await;
        let items = page["items"].as_array().unwrap().clone();
        let Some(last) = items.last() else { break };
        after = last["position"].as_i64().unwrap();
        events.extend(items);
    }
    let mut names: Vec<&str> = events.iter().map(|event| event["data"]["name"].as_str().unwrap()).collect();
    names.sort_unstable();
    let total = names.len();
    names.dedup();
    assert_eq!(names.len(), total, "a mutation stands in the log twice");
    assert_eq!(total, acknowledged.len() + 1);

    let (code, text) = demo.headwater(&["audit", "verify"]);
    assert_eq!(code, 0, "{text}");
    for projection in ["desired", "powerdns", "edge", "operations", "audit"] {
        let (code, text) = demo.headwater(&["projection", "verify", projection]);
        assert_eq!(code, 0, "{projection}: {text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_demo_comes_up_with_the_same_data_and_token() {
    let mut demo = Demo::start().await;
    let before = demo.facts();
    let client = Client::new(&before);
    prepare(&client).await;
    demo.kill_and_restart().await;
    assert_eq!(demo.facts()["admin_token"], before["admin_token"]);
    assert_eq!(demo.facts()["admin"], before["admin"]);
    let login = format!("{}/api/auth/login", demo.facts()["api"].as_str().unwrap());
    let login = reqwest::Client::new().post(login).json(&before["admin"]).send().await.unwrap();
    assert_eq!(login.status(), 200, "the administrator's password is that of the demo's file");
    let client = Client::new(&demo.facts());
    let path = "/api/domains/faults.example/rrsets/stays/A";
    let (status, body) = client.send(reqwest::Method::GET, path, None).await;
    assert_eq!((status, &body["records"]), (200, &json!(["192.0.2.1"])), "{body}");
    let dns = demo.facts()["dns"].as_str().unwrap().parse().unwrap();
    let ask = || probe::dns(dns, "stays.faults.example", Rtype::A, Duration::from_secs(2));
    let _answer = eventually("dnsdist answers", ask, |answer| {
        answer.as_ref().is_ok_and(|answer| answer.is_exactly("192.0.2.1"))
    })
    .await;
}

fn spawn(dir: &Path) -> Child {
    let log = std::fs::OpenOptions::new().create(true).append(true).open(dir.join("demo.log")).unwrap();
    Command::new(env!("CARGO_BIN_EXE_headwater"))
        .args(["demo", "--dir"])
        .arg(dir)
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .unwrap()
}
