//! A control plane for the tests: the edge control routes over mutual TLS, each connection answered once and closed.

use std::collections::BTreeMap;
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use headwater_edge_wire::artifact::*;
use headwater_edge_wire::checksum::Checksum;
use headwater_edge_wire::frame::{FRAME_END, encode_artifact, encode_page};
use headwater_edge_wire::ids::*;
use headwater_edge_wire::manifest::*;
use headwater_edge_wire::protocol::*;
use headwater_edge_wire::seal::{ContentKey, SealingPublicKey};
use headwater_edge_wire::secret::{SecretArray, SecretBytes};
use headwater_edge_wire::sign::{Context, KeyRing, SigningKey};
use headwater_edge_wire::tasks::{Task, TaskPage, TaskResult, Work};
use headwater_edge_wire::time::Timestamp;
use headwater_edge_wire::token::{AuthorityFingerprint, BootstrapToken};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DnType, ExtendedKeyUsagePurpose,
    IsCa, Issuer, KeyPair,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use uuid::Uuid;

use super::answer::{Tls, answer, gzip};
use super::pages::{artifacts, manifest};

/// Descriptors of a page.
const PAGE_MAX: usize = 500;

/// How the control plane behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Honest,
    /// Bodies of artifacts end in the middle.
    Truncated,
    /// A body without end.
    Endless,
    /// Pages for another edge.
    Foreign,
    /// Always the first page it ever gave.
    Replay,
    /// Signed by a key that nobody pinned.
    Forged,
    /// Descriptors out of order.
    Reordered,
    /// No answer at all.
    Silent,
    /// Artifacts never come.
    Withheld,
}

pub struct State {
    pub edge: EdgeId,
    pub epoch: Epoch,
    pub head: u64,
    pub mode: Mode,
    pub changes: BTreeMap<DomainId, Descriptor>,
    pub artifacts: BTreeMap<Checksum, Vec<u8>>,
    pub applied: BTreeMap<u8, Applied>,
    pub rejected: Vec<Refused>,
    pub heartbeats: Vec<Heartbeat>,
    pub csrs: Vec<String>,
    pub sealing: Option<SealingPublicKey>,
    pub keys: BTreeMap<CertificateId, String>,
    pub cells: u8,
    pub life: Duration,
    pub snapshots: u32,
    pub tasks: Vec<Task>,
    pub results: Vec<(String, TaskResult)>,
    /// Whether the result of a task gets lost on its way.
    pub loses_results: bool,
    next: Option<SigningKey>,
    first_page: Option<(Vec<u8>, String)>,
    content_key: ContentKey,
    signing: SigningKey,
    forger: SigningKey,
}

pub struct Control {
    pub url: String,
    pub token: String,
    fingerprint: AuthorityFingerprint,
    tokens: AtomicU8,
    pub state: Arc<Mutex<State>>,
}

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

fn token_of(n: u8, fingerprint: AuthorityFingerprint) -> String {
    let token = BootstrapToken::new(SecretArray::from_slice(&[n; 32]).unwrap(), fingerprint);
    token.to_text().expose_str().unwrap().to_owned()
}

pub fn uuid(n: u128) -> Uuid {
    Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_0000 + n)
}

pub fn domain_id(n: u32) -> DomainId {
    DomainId::from_uuid(uuid(n.into()))
}

pub fn now() -> Timestamp {
    Timestamp::from(chrono::Utc::now())
}

impl Control {
    pub fn start(cells: u8) -> Self {
        let _there = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "control");
        let cert = params.self_signed(&key).unwrap();
        let fingerprint = AuthorityFingerprint::of(cert.der());
        let authority = Authority { issuer: Issuer::new(params, key), pem: cert.pem() };
        let token = token_of(9, fingerprint);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("https://127.0.0.1:{}", listener.local_addr().unwrap().port());
        let state = State {
            edge: EdgeId::from_uuid(Uuid::new_v4()),
            epoch: Epoch::from(1),
            head: 0,
            mode: Mode::Honest,
            changes: BTreeMap::new(),
            artifacts: BTreeMap::new(),
            applied: BTreeMap::new(),
            rejected: Vec::new(),
            heartbeats: Vec::new(),
            csrs: Vec::new(),
            sealing: None,
            keys: BTreeMap::new(),
            cells,
            life: Duration::from_secs(7 * 86_400),
            snapshots: 0,
            tasks: Vec::new(),
            results: Vec::new(),
            loses_results: false,
            next: None,
            first_page: None,
            content_key: ContentKey::generate().unwrap(),
            signing: SigningKey::generate().unwrap(),
            forger: SigningKey::generate().unwrap(),
        };
        let state = Arc::new(Mutex::new(state));
        let config = server_config(&authority);
        let (shared, authority) = (Arc::clone(&state), Arc::new(authority));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (config, state, authority) =
                    (Arc::clone(&config), Arc::clone(&shared), Arc::clone(&authority));
                std::thread::spawn(move || {
                    let _gone = serve(stream.unwrap(), config, &state, &authority);
                });
            }
        });
        Self { url, token, fingerprint, tokens: AtomicU8::new(10), state }
    }

    /// A token that nobody has used.
    pub fn another_token(&self) -> String {
        token_of(self.tokens.fetch_add(1, Ordering::SeqCst), self.fingerprint)
    }

    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub fn mode(&self, mode: Mode) {
        self.lock().mode = mode;
    }

    /// Whether every cell said that it serves the head.
    pub fn is_applied(&self) -> bool {
        let state = self.lock();
        (0..state.cells).all(|cell| {
            state
                .applied
                .get(&cell)
                .is_some_and(|applied| applied.epoch == state.epoch && applied.sequence.get() == state.head)
        })
    }
}

impl State {
    fn number(&mut self) -> Sequence {
        self.head += 1;
        Sequence::try_from(self.head).unwrap()
    }

    /// Says that a domain is to be served; `change` may spoil it after it was signed.
    pub fn publish(&mut self, artifact: &Artifact, change: impl FnOnce(&mut LiveDescriptor, &mut Vec<u8>)) {
        let mut bytes = artifact.bytes().unwrap();
        let checksum = Checksum::of(&bytes);
        let mut live = LiveDescriptor {
            sequence: self.number(),
            id: artifact.id,
            domain: artifact.domain.clone(),
            revision: artifact.revision,
            checksum,
            size: bytes.len() as u64,
            signature: self.signing.sign_artifact(&checksum).unwrap(),
            cells: CellNumber::first(self.cells),
            keys: artifact
                .certificates
                .iter()
                .map(|certificate| {
                    let pem = SecretBytes::new(self.keys[&certificate.id].clone().into_bytes());
                    self.content_key.seal_key(certificate.id, certificate.version, &pem).unwrap()
                })
                .collect(),
        };
        change(&mut live, &mut bytes);
        self.artifacts.insert(live.checksum, bytes);
        self.changes.insert(live.id, Descriptor::Live(live));
    }

    /// The next pages bring a second key, signed by the first.
    pub fn announce_key(&mut self) {
        self.next = Some(SigningKey::generate().unwrap());
    }

    /// From now on the announced key signs and the one before is not in the ring; a forger has got hold of it.
    pub fn rotate_key(&mut self) {
        let next = self.next.take().unwrap();
        self.forger = std::mem::replace(&mut self.signing, next);
    }

    fn ring(&self) -> KeyRing {
        let keys = std::iter::once(&self.signing).chain(&self.next);
        KeyRing::new(keys.map(|key| key.public().unwrap()).collect()).unwrap()
    }

    /// Asks for work.
    pub fn ask(&mut self, n: u128, work: &Work) {
        let id = TaskId::from_uuid(uuid(n));
        self.tasks.push(Task::new(id, work, now().plus(Duration::from_secs(60))).unwrap());
    }

    /// Signs an artifact by a key that nobody pinned.
    pub fn forge(&self, checksum: &Checksum) -> headwater_edge_wire::sign::Signature {
        self.forger.sign_artifact(checksum).unwrap()
    }

    pub fn remove(&mut self, artifact: &Artifact) {
        let gone = Tombstone {
            sequence: self.number(),
            id: artifact.id,
            domain: artifact.domain.clone(),
            revision: artifact.revision.next().unwrap(),
            removed: True,
        };
        self.changes.insert(artifact.id, Descriptor::Removed(gone));
    }

    fn page(&self, after: u64, through: u64, mut descriptors: Vec<Descriptor>) -> Page {
        descriptors.sort_by_key(Descriptor::sequence);
        let version = Version::from(1);
        Page {
            schema: PAGE_SCHEMA,
            agent: AgentRange::CURRENT,
            edge: if self.mode == Mode::Foreign { EdgeId::from_uuid(uuid(1)) } else { self.edge },
            epoch: self.epoch,
            after: after.try_into().unwrap(),
            through: through.try_into().unwrap(),
            head: self.head.try_into().unwrap(),
            issued_at: now(),
            expires_at: now().plus(Duration::from_secs(60)),
            keys: self.ring(),
            content_key: self.content_key.seal_to(version, self.edge, &self.sealing.unwrap()).unwrap(),
            descriptors,
        }
    }

    pub fn manifest(&mut self, after: u64) -> (Vec<u8>, String) {
        let changes = self.changes.values().filter(|change| change.sequence().get() > after).cloned();
        let page = self.page(after, self.head, changes.collect());
        if self.mode == Mode::Reordered {
            let mut page = page;
            page.descriptors.reverse();
            let bytes = serde_json::to_vec(&page).unwrap();
            let signature = self.signing.sign(Context::Manifest, &bytes).unwrap();
            return (bytes, signature.to_string());
        }
        let signed = page.sign(&self.signing, Context::Manifest).unwrap();
        let signature = match self.mode {
            Mode::Forged => self.forger.sign(Context::Manifest, &signed.bytes).unwrap(),
            _ => signed.signature,
        };
        let answer = (signed.bytes, signature.to_string());
        if self.mode == Mode::Replay {
            return self.first_page.clone().unwrap_or(answer);
        }
        if self.first_page.is_none() && self.mode == Mode::Honest {
            self.first_page = Some(answer.clone());
        }
        answer
    }

    fn snapshot(&mut self) -> Vec<u8> {
        self.snapshots += 1;
        let live = self.changes.values().filter(|change| matches!(change, Descriptor::Live(_))).cloned();
        let mut live: Vec<_> = live.collect();
        live.sort_by_key(Descriptor::sequence);
        let whole = self.page(0, self.head, Vec::new());
        let (mut out, mut after) = (Vec::new(), whole.after);
        let mut parts: Vec<_> = live.chunks(PAGE_MAX).collect();
        let last = parts.pop().unwrap_or_default();
        for part in parts.into_iter().chain([last]) {
            let through = if part == last { whole.head } else { part.last().unwrap().sequence() };
            let page = Page { after, through, descriptors: part.to_vec(), ..whole.clone() };
            let signed = page.sign(&self.signing, Context::Snapshot).unwrap();
            out.extend(encode_page(signed.signature, &signed.bytes).unwrap());
            after = through;
        }
        for descriptor in &live {
            let Descriptor::Live(live) = descriptor else { continue };
            if self.mode != Mode::Withheld {
                let bytes = &self.artifacts[&live.checksum];
                out.extend(encode_artifact(live.checksum, bytes).unwrap());
            }
        }
        out.extend(FRAME_END);
        out
    }
}

fn server_config(authority: &Authority) -> Arc<ServerConfig> {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let cert = params.signed_by(&key, &authority.issuer).unwrap();
    let ca = CertificateDer::from_pem_slice(authority.pem.as_bytes()).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(ca.clone()).unwrap();
    let clients = WebPkiClientVerifier::builder(Arc::new(roots)).allow_unauthenticated().build().unwrap();
    let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).unwrap();
    let config = ServerConfig::builder()
        .with_client_cert_verifier(clients)
        .with_single_cert(vec![cert.der().clone(), ca], key)
        .unwrap();
    Arc::new(config)
}

fn serve(
    stream: TcpStream,
    config: Arc<ServerConfig>,
    state: &Mutex<State>,
    authority: &Authority,
) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    let mut tls = StreamOwned::new(ServerConnection::new(config).unwrap(), stream);
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        tls.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    let length = head
        .lines()
        .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok())
        .unwrap_or(0);
    let mut body = vec![0; length];
    tls.read_exact(&mut body)?;
    let has_identity = tls.conn.peer_certificates().is_some();
    let (method, rest) = head.split_once(' ').unwrap();
    let target = rest.split(' ').next().unwrap().strip_prefix("/edge/v1").unwrap_or("/none");
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    if path != "/register" && !has_identity {
        return answer(&mut tls, 401, "", b"{}");
    }
    let mode = state.lock().unwrap().mode;
    if mode == Mode::Silent {
        return Ok(());
    }
    match (method, path) {
        ("POST", "/register") => register(&mut tls, &body, has_identity, state, authority),
        ("POST", "/heartbeat") => {
            let beat = Heartbeat::parse(&body).unwrap();
            let reply = HeartbeatAnswer {
                sequence: beat.sequence,
                at: now(),
                heartbeat_seconds: 1,
                has_tasks: !state.lock().unwrap().tasks.is_empty(),
            };
            state.lock().unwrap().heartbeats.push(beat);
            answer(&mut tls, 200, "", &serde_json::to_vec(&reply).unwrap())
        }
        ("GET", "/manifest") => manifest(&mut tls, query, state),
        ("POST", "/artifacts") => artifacts(&mut tls, &body, state),
        ("GET", "/snapshot") => {
            let stream = state.lock().unwrap().snapshot();
            answer(&mut tls, 200, "content-encoding: gzip\r\n", &gzip(&stream))
        }
        ("POST", "/applied") => {
            let applied = Applied::parse(&body).unwrap();
            state.lock().unwrap().applied.insert(applied.cell.get(), applied);
            answer(&mut tls, 204, "", b"")
        }
        ("POST", "/rejected") => {
            let rejected = Rejected::parse(&body).unwrap();
            state.lock().unwrap().rejected.extend(rejected.refused);
            answer(&mut tls, 204, "", b"")
        }
        ("GET", "/tasks") => {
            let page = TaskPage { items: state.lock().unwrap().tasks.clone() };
            answer(&mut tls, 200, "", &serde_json::to_vec(&page).unwrap())
        }
        ("POST", path) if path.starts_with("/tasks/") => {
            let id = path.split('/').nth(2).unwrap().to_owned();
            let mut state = state.lock().unwrap();
            state.results.push((id.clone(), TaskResult::parse(&body).unwrap()));
            if state.loses_results {
                return answer(&mut tls, 503, "", b"{}");
            }
            state.tasks.retain(|task| task.id.to_string() != id);
            answer(&mut tls, 204, "", b"")
        }
        _ => answer(&mut tls, 404, "", b"{}"),
    }
}

fn register(
    tls: &mut Tls,
    body: &[u8],
    has_identity: bool,
    state: &Mutex<State>,
    authority: &Authority,
) -> std::io::Result<()> {
    let request = RegisterRequest::parse(body).unwrap();
    assert!(has_identity || request.token.is_some(), "a registration without any proof");
    let mut csr = CertificateSigningRequestParams::from_pem(&request.csr).unwrap();
    csr.params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let mut state = state.lock().unwrap();
    assert_eq!(request.edge, state.edge);
    let certificate = csr.signed_by(&authority.issuer).unwrap();
    state.csrs.push(request.csr);
    state.sealing = Some(request.sealing_key);
    let reply = RegisterAnswer {
        edge: state.edge,
        certificate: certificate.pem(),
        not_after: now().plus(state.life),
        authorities: authority.pem.clone(),
        keys: state.ring(),
        cells: state.cells,
        heartbeat_seconds: 1,
    };
    drop(state);
    answer(tls, 200, "", &serde_json::to_vec(&reply).unwrap())
}
