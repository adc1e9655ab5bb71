//! An agent as far as the control listener can see: keys, a certificate request, TLS, bodies of the wire.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use headwater_edge_wire::ids::{AgentVersion, CellNumber, EdgeId, Epoch, Sequence};
use headwater_edge_wire::protocol::{AgentInfo, CellReport, Heartbeat, RegisterAnswer, RegisterRequest};
use headwater_edge_wire::seal::{SealingPrivateKey, SealingPublicKey};
use headwater_edge_wire::secret::SecretBytes;
use headwater_edge_wire::sign::{KeyRing, SIGNATURE_FIELD, Signature};
use headwater_edge_wire::time::Timestamp;
use headwater_edge_wire::verify::{Pins, Reader};
use rcgen::{CertificateParams, DnType, KeyPair, PKCS_ECDSA_P256_SHA256};
use reqwest::{Client, Method};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};
use serde_json::Value;

use crate::support::Answer;

/// An agent.
pub struct Agent {
    pub edge: EdgeId,
    pub key: KeyPair,
    pub csr: String,
    pub sealing: (SealingPrivateKey, SealingPublicKey),
    pub control: SocketAddr,
    pub authority: Vec<u8>,
    pub identity: Option<RegisterAnswer>,
    client: Client,
}

/// A request for a certificate in a name.
pub fn csr(name: &str, key: &KeyPair) -> String {
    let mut params = CertificateParams::default();
    params.distinguished_name.remove(DnType::CommonName);
    params.distinguished_name.push(DnType::CommonName, name);
    params.serialize_request(key).unwrap().pem().unwrap()
}

/// A client that trusts one authority, with a certificate or without.
pub fn client(
    authority: &[u8],
    identity: Option<(&str, &KeyPair)>,
    from: Option<IpAddr>,
    versions: &[&'static SupportedProtocolVersion],
) -> Client {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(authority.to_vec())).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let tls = ClientConfig::builder_with_provider(provider).with_protocol_versions(versions).unwrap();
    let tls = tls.with_root_certificates(roots);
    let tls = match identity {
        None => tls.with_no_client_auth(),
        Some((pem, key)) => {
            let chain = CertificateDer::pem_slice_iter(pem.as_bytes()).map(Result::unwrap).collect();
            let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
            tls.with_client_auth_cert(chain, key).unwrap()
        }
    };
    let builder = Client::builder().no_proxy().tls_backend_preconfigured(tls).local_address(from);
    builder.build().unwrap()
}

impl Agent {
    /// One that has not registered.
    pub fn new(edge: EdgeId, control: SocketAddr, authority: Vec<u8>) -> Self {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
        let csr = csr(&edge.to_string(), &key);
        let client = client(&authority, None, None, &[&rustls::version::TLS13]);
        let sealing = SealingPrivateKey::generate().unwrap();
        Self { edge, key, csr, sealing, control, authority, identity: None, client }
    }

    /// The body of its registration.
    pub fn registration(&self, token: Option<&str>) -> Vec<u8> {
        self.registration_with(token, &self.csr)
    }

    pub fn registration_with(&self, token: Option<&str>, csr: &str) -> Vec<u8> {
        let request = RegisterRequest {
            edge: self.edge,
            token: token.map(|token| SecretBytes::new(token.as_bytes().to_vec())),
            agent: AgentInfo { version: "1.2.3".into(), protocol: AgentVersion::CURRENT },
            csr: csr.to_owned(),
            sealing_key: self.sealing.1,
        };
        request.to_json().unwrap().expose().to_vec()
    }

    /// A request that may fail below HTTP.
    pub async fn try_send(
        &self,
        method: Method,
        path: &str,
        body: Vec<u8>,
    ) -> reqwest::Result<reqwest::Response> {
        let url = format!("https://{}/edge/v1/{path}", self.control);
        self.client.request(method, url).body(body).send().await
    }

    pub async fn send(&self, method: Method, path: &str, body: Vec<u8>) -> Answer {
        Answer::of(self.try_send(method, path, body).await.unwrap()).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        self.send(Method::POST, path, body.to_string().into_bytes()).await
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, Vec::new()).await
    }

    /// Registers, and is somebody from then on.
    pub async fn enrol(&mut self, token: &str) -> RegisterAnswer {
        let answer = self.send(Method::POST, "register", self.registration(Some(token))).await.expect(200);
        self.take(serde_json::from_value(answer.json()).unwrap())
    }

    /// Uses an identity from now on.
    pub fn take(&mut self, identity: RegisterAnswer) -> RegisterAnswer {
        self.client = client(
            &self.authority,
            Some((&identity.certificate, &self.key)),
            None,
            &[&rustls::version::TLS13],
        );
        self.identity = Some(identity.clone());
        identity
    }

    /// The same identity on another host, which connects from 127.0.0.`last`.
    pub fn copy(&self, last: u8) -> Self {
        let from = IpAddr::V4(Ipv4Addr::new(127, 0, 0, last));
        let key = KeyPair::from_pem(&self.key.serialize_pem()).unwrap();
        let pem = &self.identity.as_ref().unwrap().certificate;
        let client = client(&self.authority, Some((pem, &key)), Some(from), &[&rustls::version::TLS13]);
        Self {
            edge: self.edge,
            csr: self.csr.clone(),
            sealing: SealingPrivateKey::generate().unwrap(),
            control: self.control,
            authority: self.authority.clone(),
            identity: self.identity.clone(),
            key,
            client,
        }
    }

    pub fn heartbeat(&self, sequence: u32) -> Vec<u8> {
        let report = |cell: u8| CellReport {
            cell: CellNumber::try_from(cell).unwrap(),
            http_ready: true,
            https_ready: true,
            epoch: Epoch::from(1),
            sequence: Sequence::ZERO,
            loaded: Some(Sequence::from(2)),
            domains: 0,
            connections: 3,
            connections_max: 100,
            detail: None,
        };
        let heartbeat = Heartbeat {
            sequence: Sequence::from(sequence),
            agent: AgentInfo { version: "1.2.3".into(), protocol: AgentVersion::CURRENT },
            at: now(),
            cells: vec![report(0), report(1)],
            origins: Vec::new(),
            security: Vec::new(),
            holds: None,
            keys: Vec::new(),
            damaged: Vec::new(),
            damaged_count: 0,
        };
        serde_json::to_vec(&heartbeat).unwrap()
    }

    pub async fn beat(&self, sequence: u32) -> Answer {
        self.send(Method::POST, "heartbeat", self.heartbeat(sequence)).await
    }

    /// What it pins after its registration.
    pub fn pins(&self) -> Pins {
        let keys: KeyRing = self.identity.as_ref().unwrap().keys.clone();
        Pins { edge: self.edge, epoch: Epoch::ZERO, through: Sequence::ZERO, keys, keys_at: Timestamp::EPOCH }
    }
}

pub fn now() -> Timestamp {
    Timestamp::from(chrono::Utc::now())
}

pub fn reader() -> Reader {
    Reader { agent: AgentVersion::CURRENT, now: now() }
}

pub fn signature(answer: &Answer) -> Signature {
    answer.header(SIGNATURE_FIELD).parse().unwrap()
}
