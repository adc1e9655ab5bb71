//! A receiver of one test: a listener that keeps what it was sent and answers as it is told. And what sends to it.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use headwater::app::App;
use headwater::secret::Secret;
use headwater::vault;
use headwater::webhook::guard::{Looked, Lookup};
use headwater::webhook::{self, Options};
use headwater_events::ids::TenantId;
use reqwest::Method;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio_rustls::TlsAcceptor;

use crate::support::{TestApi, eventually};

/// What a receiver was sent.
#[derive(Debug, Clone)]
pub struct Got {
    pub head: String,
    pub headers: HashMap<String, String>,
    pub body: String,
}

impl Got {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).unwrap_or_else(|| panic!("no {name}: {self:?}"))
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    /// Type and position.
    pub fn shown(&self) -> String {
        format!("{} {}", self.json()["type"].as_str().unwrap(), self.json()["position"])
    }

    /// Checks the signatures by what the specification says, HMAC by hand; gives how many there are.
    #[track_caller]
    pub fn verify(&self, secrets: &[&str]) -> usize {
        let signed =
            format!("{}.{}.{}", self.header("webhook-id"), self.header("webhook-timestamp"), self.body);
        let now = chrono::Utc::now().timestamp();
        let at: i64 = self.header("webhook-timestamp").parse().unwrap();
        assert!((at - now).abs() < 60 || secrets.len() > 1, "{at} is not about {now}");
        let expected = secrets.iter().map(|secret| {
            let key = STANDARD.decode(secret.strip_prefix("whsec_").unwrap()).unwrap();
            format!("v1,{}", STANDARD.encode(hmac_sha256(&key, signed.as_bytes())))
        });
        let expected: Vec<String> = expected.collect();
        let shown: Vec<&str> = self.header("webhook-signature").split(' ').collect();
        assert_eq!(shown, expected, "{self:?}");
        shown.len()
    }
}

/// RFC 2104.
fn hmac_sha256(key: &[u8], text: &[u8]) -> Vec<u8> {
    let mut block = [0_u8; 64];
    block[..key.len()].copy_from_slice(key);
    let pad = |with: u8| block.iter().map(|octet| octet ^ with).collect::<Vec<u8>>();
    let inner = digest(&SHA256, &[pad(0x36), text.to_vec()].concat());
    digest(&SHA256, &[pad(0x5c), inner.as_ref().to_vec()].concat()).as_ref().to_vec()
}

/// What is answered.
#[derive(Debug, Clone)]
pub enum Reply {
    Status(u16),
    Says(u16, String),
    Location(u16, String),
    /// Not now, but after so many seconds.
    Later(u64),
    /// Success, once somebody says so.
    Held(Arc<Notify>),
    /// Nothing, for ever.
    Silent,
}

type Behaviour = Arc<dyn Fn(usize, &Got) -> Reply + Send + Sync>;

/// A listener that keeps what it was sent.
#[derive(Clone)]
pub struct Receiver {
    pub address: SocketAddr,
    pub connections: Arc<AtomicUsize>,
    got: Arc<Mutex<Vec<Got>>>,
}

impl Receiver {
    /// One on loopback that answers the n-th request as `behaviour` says.
    pub async fn start(behaviour: impl Fn(usize, &Got) -> Reply + Send + Sync + 'static) -> Self {
        Self::on("127.0.0.1:0", None, behaviour).await
    }

    /// One that takes everything.
    pub async fn willing() -> Self {
        Self::start(|_, _| Reply::Status(204)).await
    }

    pub async fn on(
        address: &str,
        tls: Option<TlsAcceptor>,
        behaviour: impl Fn(usize, &Got) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let receiver = Self {
            address: listener.local_addr().unwrap(),
            connections: Arc::default(),
            got: Arc::default(),
        };
        let (own, behaviour): (Self, Behaviour) = (receiver.clone(), Arc::new(behaviour));
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                own.connections.fetch_add(1, Ordering::SeqCst);
                let (own, behaviour, tls) = (own.clone(), behaviour.clone(), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        None => own.serve(stream, behaviour).await,
                        Some(tls) => match tls.accept(stream).await {
                            Ok(stream) => own.serve(stream, behaviour).await,
                            Err(_) => None,
                        },
                    }
                });
            }
        });
        receiver
    }

    async fn serve(
        &self,
        mut stream: impl AsyncRead + AsyncWrite + Unpin,
        behaviour: Behaviour,
    ) -> Option<()> {
        let got = read(&mut stream).await?;
        let number = {
            let mut all = self.got.lock().unwrap();
            all.push(got.clone());
            all.len() - 1
        };
        let (status, header, body) = match behaviour(number, &got) {
            Reply::Status(status) => (status, String::new(), String::new()),
            Reply::Says(status, text) => (status, String::new(), text),
            Reply::Location(status, url) => (status, format!("Location: {url}\r\n"), String::new()),
            Reply::Later(seconds) => (429, format!("Retry-After: {seconds}\r\n"), String::new()),
            Reply::Held(go) => {
                go.notified().await;
                (200, String::new(), String::new())
            }
            Reply::Silent => std::future::pending().await,
        };
        let length = body.len();
        let answer = format!(
            "HTTP/1.1 {status} x\r\n{header}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        );
        stream.write_all(answer.as_bytes()).await.ok()?;
        stream.shutdown().await.ok()
    }

    pub fn url(&self) -> String {
        format!("http://{}/hook?a=b", self.address)
    }

    pub fn got(&self) -> Vec<Got> {
        self.got.lock().unwrap().clone()
    }

    pub fn shown(&self) -> Vec<String> {
        self.got().iter().map(Got::shown).collect()
    }

    /// Awaits so many requests.
    pub async fn has(&self, count: usize) -> Vec<Got> {
        let seen = || async { self.shown() };
        eventually("the receiver was sent enough", seen, |seen| seen.len() >= count).await;
        self.got()
    }
}

async fn read(stream: &mut (impl AsyncRead + Unpin)) -> Option<Got> {
    let mut octets = Vec::new();
    loop {
        let mut piece = [0; 4_096];
        let count = stream.read(&mut piece).await.ok().filter(|count| *count > 0)?;
        octets.extend_from_slice(&piece[..count]);
        let text = String::from_utf8_lossy(&octets).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let mut lines = head.lines();
        let line = lines.next()?.to_owned();
        let pairs = lines.filter_map(|line| line.split_once(": "));
        let headers: HashMap<String, String> =
            pairs.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect();
        let length: usize = headers.get("content-length").map_or(0, |text| text.parse().unwrap());
        if body.len() >= length {
            return Some(Got { head: line, headers, body: body.to_owned() });
        }
    }
}

/// How often a name was asked for, and what it means the n-th time.
type Meaning = (usize, Vec<Vec<IpAddr>>);

/// Names of a test.
#[derive(Clone, Default)]
pub struct Names(Arc<Mutex<HashMap<String, Meaning>>>);

impl Names {
    pub fn set(&self, name: &str, meanings: &[&[&str]]) {
        let parsed = |list: &&[&str]| list.iter().map(|text| text.parse().unwrap()).collect();
        let meanings = meanings.iter().map(parsed).collect();
        self.0.lock().unwrap().insert(name.to_owned(), (0, meanings));
    }

    /// How often a name was asked for.
    pub fn asked(&self, name: &str) -> usize {
        self.0.lock().unwrap()[name].0
    }
}

impl Lookup for Names {
    fn look(&self, name: String) -> Looked {
        let mut all = self.0.lock().unwrap();
        let found = all.get_mut(&name).map(|(asked, meanings)| {
            *asked += 1;
            meanings[(*asked - 1) % meanings.len()].clone()
        });
        Box::pin(async move { found.ok_or_else(|| std::io::Error::other("no such name")) })
    }
}

/// The pauses of a test.
pub fn quick(retries: usize) -> Options {
    Options {
        retries: vec![Duration::from_millis(50); retries],
        limit: Duration::from_secs(5),
        ..Options::default()
    }
}

/// An API that can seal and may send to loopback, with a tenant, its owner and its domain.
pub struct Lab {
    pub api: TestApi,
    pub tenant: TenantId,
    pub owner: Secret,
    pub config: String,
    _dir: TempDir,
}

pub const ZONE: &str = "ours.example.com";

impl Lab {
    pub async fn new() -> Self {
        Self::with("allow_http = true\nallow_networks = ['127.0.0.0/8']\n").await
    }

    pub async fn with(webhooks: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let key_file = dir.path().join("secret-key");
        assert!(vault::make(&key_file).unwrap());
        let config = format!("[secrets]\nkey_file = {key_file:?}\n[webhooks]\n{webhooks}");
        let api = TestApi::start(&config).await;
        let tenant = api.tenant("ours").await;
        let (_, owner) = api.user("owner@example.test", false, &[tenant]).await;
        let lab = Self { api, tenant, owner, config, _dir: dir };
        lab.domain(ZONE, tenant).await;
        lab
    }

    /// Sends, in this process.
    pub fn sends(&self, options: Options) {
        self.process(&self.api.app, options);
    }

    /// Sends, in a process of several.
    pub fn process(&self, app: &App, options: Options) {
        tokio::spawn(webhook::run_with(app.clone(), options));
    }

    pub async fn domain(&self, name: &str, tenant: TenantId) {
        let new = json!({"name": name, "tenant": tenant, "force_active": true});
        self.api.call(Method::POST, "/api/domains", new).await.expect(202);
    }

    /// Puts an A record of a domain of a name.
    pub async fn put(&self, zone: &str, address: &str) {
        let body = json!({"ttl": 60, "records": [address]});
        let path = format!("/api/domains/{zone}/rrsets/www/A");
        self.api.call(Method::PUT, &path, body).await.expect(202);
    }

    /// As the tenant's owner.
    pub async fn own(&self, method: Method, path: &str, body: Value) -> crate::support::Answer {
        let body = (!body.is_null()).then_some(body);
        self.api.send(&self.owner, method, path, body.as_ref(), &[]).await
    }

    /// Makes a webhook of the tenant's; gives its path and its secret.
    pub async fn hook(&self, url: &str, more: Value) -> (String, String) {
        let mut body = json!({"name": "hook", "url": url});
        body.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
        let made = self.own(Method::POST, "/api/webhooks", body).await.expect(201);
        let secret = made.json()["secret"].as_str().unwrap().to_owned();
        (made.header("location").to_owned(), secret)
    }

    pub async fn show(&self, path: &str) -> Value {
        self.own(Method::GET, path, Value::Null).await.expect(200).json()
    }

    /// Awaits that a webhook is in a state.
    pub async fn until(&self, path: &str, what: &str, is_met: impl Fn(&Value) -> bool) -> Value {
        eventually(what, || self.show(path), is_met).await
    }

    /// Awaits that everything up to now was dealt with.
    pub async fn caught_up(&self, path: &str) {
        let head = self.api.head().await.get();
        self.until(path, "the webhook has caught up", |hook| hook["position"].as_i64() >= Some(head)).await;
    }

    /// The deliveries, newest first.
    pub async fn deliveries(&self, path: &str) -> Vec<Value> {
        let list = self.own(Method::GET, &format!("{path}/deliveries"), Value::Null).await.expect(200);
        list.json()["items"].as_array().unwrap().clone()
    }
}
