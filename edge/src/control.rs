//! The client of the edge control routes. Every answer has a bound in bytes and in time before it is read; what went
//! wrong is told so that a person knows where to look.

use std::io::Read;
use std::time::Duration;

use flate2::read::GzDecoder;
use headwater_edge_wire::checksum::Checksum;
use headwater_edge_wire::ids::TaskId;
use headwater_edge_wire::manifest::PAGE_MAX_BYTES;
use headwater_edge_wire::protocol::{
    AHEAD_EPOCH, AHEAD_HEAD, Applied, ArtifactsRequest, Heartbeat, HeartbeatAnswer, ManifestQuery,
    RegisterAnswer, RegisterRequest, Rejected,
};
use headwater_edge_wire::sign::{SIGNATURE_FIELD, Signature};
use headwater_edge_wire::tasks::{TaskPage, TaskResult};
use reqwest::blocking::{Client, RequestBuilder, Response};
use reqwest::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE};
use serde::de::DeserializeOwned;

use crate::tls::{ClientIdentity, TlsError, Trust, client_config};

const CONNECT_TIMEOUT_SECONDS: u64 = 10;
const ANSWER_TIMEOUT_SECONDS: u64 = 30;
const ARTIFACTS_TIMEOUT_SECONDS: u64 = 300;
const SNAPSHOT_TIMEOUT_SECONDS: u64 = 1_800;
/// The most bytes of an answer that is JSON.
const JSON_MAX_BYTES: u64 = 1 << 20;
/// The most bytes of a compressed answer.
const COMPRESSED_MAX_BYTES: u64 = 4 << 30;
/// How much of the text of a failed request is told.
const PROBLEM_MAX_BYTES: u64 = 4 << 10;

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// No connection, or it broke.
    #[error("the control plane cannot be reached: {0}")]
    Unreachable(String),
    /// The listener is not believed.
    #[error("the control listener is not believed: {0}")]
    Untrusted(String),
    /// The control plane says no.
    #[error("the control plane refused {route}: {status} {detail}")]
    Status {
        /// The route.
        route: &'static str,
        /// The status.
        status: u16,
        /// The stable name of why.
        problem: String,
        /// What it said.
        detail: String,
    },
    /// This edge holds changes that the control plane does not know.
    #[error(
        "this edge holds changes that the control plane does not know: its log ends at change {head} of epoch {epoch}, as \
         after a restore; what is active is served on, and nothing more is taken until `headwater admin renew-log-id` there"
    )]
    Ahead {
        /// The epoch of the control plane.
        epoch: u64,
        /// Its last change.
        head: u64,
    },
    /// The answer cannot be used.
    #[error("the answer of {route} cannot be used: {detail}")]
    Answer {
        /// The route.
        route: &'static str,
        /// Why.
        detail: String,
    },
    /// No connection can be made at all.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

impl ControlError {
    /// Whether a token is good for nothing any more.
    pub fn is_token_refused(&self) -> bool {
        matches!(self, Self::Status { status: 403, problem, .. } if problem == "token_refused")
    }

    /// The stable name of the reason.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unreachable(_) => "unreachable",
            Self::Untrusted(_) => "untrusted",
            Self::Status { status: 401 | 403, .. } => "not_allowed",
            Self::Status { .. } => "refused",
            Self::Ahead { .. } => "ahead",
            Self::Answer { .. } => "bad_answer",
            Self::Tls(_) => "identity",
        }
    }

    fn of(error: &reqwest::Error) -> Self {
        let mut text = String::new();
        let mut next: Option<&dyn std::error::Error> = Some(error);
        while let Some(error) = next {
            text = error.to_string();
            next = error.source();
            if let Some(tls) = error.downcast_ref::<rustls::Error>() {
                return match tls {
                    rustls::Error::InvalidCertificate(_) | rustls::Error::General(_) => {
                        Self::Untrusted(tls.to_string())
                    }
                    _ => Self::Unreachable(tls.to_string()),
                };
            }
        }
        if error.is_timeout() {
            text = "it took too long".into();
        }
        // The deepest cause says the most; what a certificate fault says is about trust.
        if text.contains("invalid peer certificate") {
            Self::Untrusted(text)
        } else {
            Self::Unreachable(text)
        }
    }
}

/// A client of one control plane.
pub struct Control {
    base: String,
    client: Client,
}

impl Control {
    /// A client. With an identity it speaks for this edge.
    ///
    /// # Errors
    /// When no connection can be made with these.
    pub fn new(url: &str, trust: &Trust, identity: Option<ClientIdentity<'_>>) -> Result<Self, ControlError> {
        let config = client_config(trust, identity)?;
        let client = Client::builder()
            .tls_backend_preconfigured(config)
            .https_only(true)
            .no_proxy()
            .http1_only()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(Duration::from_secs(CONNECT_TIMEOUT_SECONDS))
            .timeout(Duration::from_secs(ANSWER_TIMEOUT_SECONDS))
            .build()
            .map_err(|error| ControlError::of(&error))?;
        Ok(Self { base: format!("{}/edge/v1", url.trim_end_matches('/')), client })
    }

    fn post<T: serde::Serialize>(&self, path: &str, body: &T) -> RequestBuilder {
        let body = serde_json::to_vec(body).unwrap_or_default();
        self.client.post(format!("{}{path}", self.base)).header(CONTENT_TYPE, "application/json").body(body)
    }

    fn get(&self, path: &str) -> RequestBuilder {
        self.client.get(format!("{}{path}", self.base))
    }

    /// `POST /register`.
    ///
    /// # Errors
    /// When there is no certificate in the answer.
    pub fn register(&self, request: &RegisterRequest) -> Result<RegisterAnswer, ControlError> {
        let route = "POST /register";
        let body =
            request.to_json().map_err(|error| ControlError::Answer { route, detail: error.to_string() })?;
        let request = self
            .client
            .post(format!("{}/register", self.base))
            .header(CONTENT_TYPE, "application/json")
            .body(body.expose().to_vec());
        json(route, send(route, request)?)
    }

    /// `POST /heartbeat`.
    ///
    /// # Errors
    /// When it was not taken.
    pub fn heartbeat(&self, heartbeat: &Heartbeat) -> Result<HeartbeatAnswer, ControlError> {
        let route = "POST /heartbeat";
        json(route, send(route, self.post("/heartbeat", heartbeat))?)
    }

    /// `GET /manifest`: the page as it was signed.
    ///
    /// # Errors
    /// When there is no page, or it has no signature.
    pub fn manifest(&self, query: ManifestQuery) -> Result<(Vec<u8>, Signature), ControlError> {
        let route = "GET /manifest";
        let epoch = query.epoch.map(|epoch| format!("&epoch={epoch}")).unwrap_or_default();
        let request = self
            .get(&format!("/manifest?after={}{epoch}&wait={}", query.after, query.wait_seconds()))
            .timeout(Duration::from_secs(ANSWER_TIMEOUT_SECONDS + u64::from(query.wait_seconds())));
        let response = send(route, request)?;
        let bad = |detail: &str| ControlError::Answer { route, detail: detail.to_owned() };
        let signature = response.headers().get(SIGNATURE_FIELD).and_then(|value| value.to_str().ok());
        let signature = signature.ok_or_else(|| bad("it is not signed"))?;
        let signature = signature.parse().map_err(|_| bad("its signature cannot be read"))?;
        Ok((bounded(route, response, PAGE_MAX_BYTES as u64)?, signature))
    }

    /// `POST /artifacts`: the stream of frames.
    ///
    /// # Errors
    /// When there is no answer.
    pub fn artifacts(&self, checksums: Vec<Checksum>) -> Result<Box<dyn Read>, ControlError> {
        let route = "POST /artifacts";
        let request = self
            .post("/artifacts", &ArtifactsRequest { checksums })
            .timeout(Duration::from_secs(ARTIFACTS_TIMEOUT_SECONDS));
        stream(route, request)
    }

    /// `GET /snapshot`: the stream of frames.
    ///
    /// # Errors
    /// When there is no answer.
    pub fn snapshot(&self) -> Result<Box<dyn Read>, ControlError> {
        let request = self.get("/snapshot").timeout(Duration::from_secs(SNAPSHOT_TIMEOUT_SECONDS));
        stream("GET /snapshot", request)
    }

    /// `POST /applied`.
    ///
    /// # Errors
    /// When it was not taken.
    pub fn applied(&self, applied: &Applied) -> Result<(), ControlError> {
        send("POST /applied", self.post("/applied", applied)).map(drop)
    }

    /// `POST /rejected`.
    ///
    /// # Errors
    /// When it was not taken.
    pub fn rejected(&self, rejected: &Rejected) -> Result<(), ControlError> {
        send("POST /rejected", self.post("/rejected", rejected)).map(drop)
    }

    /// `GET /tasks`.
    ///
    /// # Errors
    /// When there is no page.
    pub fn tasks(&self) -> Result<TaskPage, ControlError> {
        json("GET /tasks", send("GET /tasks", self.get("/tasks"))?)
    }

    /// `POST /tasks/{id}/result`.
    ///
    /// # Errors
    /// When it was not taken.
    pub fn task_result(&self, id: TaskId, result: &TaskResult) -> Result<(), ControlError> {
        send("POST /tasks/{id}/result", self.post(&format!("/tasks/{id}/result"), result)).map(drop)
    }
}

fn send(route: &'static str, request: RequestBuilder) -> Result<Response, ControlError> {
    let response = request.send().map_err(|error| ControlError::of(&error))?;
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let mut text = String::new();
    let _partly = response.take(PROBLEM_MAX_BYTES).read_to_string(&mut text);
    let problem: Option<serde_json::Value> = serde_json::from_str(&text).ok();
    let number = |name| problem.as_ref().and_then(|problem| problem.get(name)?.as_u64());
    if let (Some(epoch), Some(head)) = (number(AHEAD_EPOCH), number(AHEAD_HEAD)) {
        return Err(ControlError::Ahead { epoch, head });
    }
    let said = |name| problem.as_ref().and_then(|problem| problem.get(name)?.as_str()).unwrap_or_default();
    let detail = if said("detail").is_empty() { said("title") } else { said("detail") };
    let plain = |text: &str| text.chars().filter(|c| !c.is_control()).take(300).collect();
    let (problem, detail) = (plain(said("code")), plain(detail));
    Err(ControlError::Status { route, status: status.as_u16(), problem, detail })
}

fn bounded(route: &'static str, response: Response, max: u64) -> Result<Vec<u8>, ControlError> {
    let mut bytes = Vec::new();
    response
        .take(max + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| ControlError::Unreachable(error.to_string()))?;
    if bytes.len() as u64 > max {
        return Err(ControlError::Answer { route, detail: format!("more than {max} bytes") });
    }
    Ok(bytes)
}

fn json<T: DeserializeOwned>(route: &'static str, response: Response) -> Result<T, ControlError> {
    let bytes = bounded(route, response, JSON_MAX_BYTES)?;
    serde_json::from_slice(&bytes).map_err(|error| ControlError::Answer {
        route,
        detail: format!("cannot be read at line {}, column {}", error.line(), error.column()),
    })
}

fn stream(route: &'static str, request: RequestBuilder) -> Result<Box<dyn Read>, ControlError> {
    let response = send(route, request.header(ACCEPT_ENCODING, "gzip"))?;
    let encoding = response.headers().get(CONTENT_ENCODING).map(|value| value.as_bytes().to_vec());
    let body = response.take(COMPRESSED_MAX_BYTES);
    match encoding.as_deref() {
        None => Ok(Box::new(body)),
        Some(b"gzip") => Ok(Box::new(GzDecoder::new(body))),
        Some(_) => Err(ControlError::Answer { route, detail: "an encoding other than gzip".into() }),
    }
}
