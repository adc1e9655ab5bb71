//! The HTTP client of the commands: the API with a token, retried where a retry is safe.
//!
//! What must hold: a request is repeated only with the bytes and the `Idempotency-Key` of the first try, so a lost
//! answer never does a mutation twice; tries, waits and what is read into memory are bounded; the token goes to the
//! configured host only, so redirects are not followed.

use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use bytes::Bytes;
use reqwest::header::{
    ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, IF_NONE_MATCH, RETRY_AFTER,
};
use reqwest::{Client, Method, Response, StatusCode, Url};
use serde_json::Value;
use tokio::time::Instant;
use uuid::Uuid;

use super::error::{ApiProblem, ClientError};
use super::output::talk;
use crate::config::ApiUrl;
use crate::secret::Secret;

/// How often a request is tried.
const TRIES_MAX: u32 = 6;
/// No try begins later than this after the first one.
const RETRY_BUDGET_SECONDS: u64 = 90;
/// The pause after the first try; it doubles from there.
const FIRST_PAUSE_MILLISECONDS: u64 = 200;
/// The longest pause that is taken; a server that asks for more gets no further try.
const PAUSE_MAX_SECONDS: u64 = 30;
/// How long a connection may take.
const CONNECT_LIMIT_SECONDS: u64 = 10;
/// How long one request may take, unless it is a stream. Above the 30 s for which an operation can be awaited.
const REQUEST_LIMIT_SECONDS: u64 = 60;
/// How long a stream may be silent. The API writes at least every 15 s.
const SILENCE_MAX_SECONDS: u64 = 45;
/// The largest answer that is read whole.
const ANSWER_MAX_BYTES: usize = 64 * 1024 * 1024;

/// JSON.
pub const JSON: &str = "application/json";

/// One request.
#[derive(Debug, Clone)]
pub struct Call {
    /// The method.
    pub method: Method,
    path: String,
    query: Vec<(String, String)>,
    headers: HeaderMap,
    accept: &'static str,
    media: &'static str,
    limit_seconds: u64,
    body: Option<Bytes>,
    /// With what a mutation is recognized again.
    pub key: Option<Uuid>,
}

impl Call {
    /// A request below `/api`. Each segment is taken literally.
    pub fn new(method: Method, segments: &[&str]) -> Result<Self> {
        let mut path = "/api".to_owned();
        for segment in segments {
            if matches!(*segment, "" | "." | "..") {
                return Err(ClientError::usage(format!("{segment:?} is not a name")));
            }
            path.push('/');
            path.push_str(&encode_segment(segment));
        }
        let (query, headers) = (Vec::new(), HeaderMap::new());
        let limit_seconds = REQUEST_LIMIT_SECONDS;
        Ok(Self {
            method,
            path,
            query,
            headers,
            accept: JSON,
            media: JSON,
            limit_seconds,
            body: None,
            key: None,
        })
    }

    /// A GET.
    pub fn get(segments: &[&str]) -> Result<Self> {
        Self::new(Method::GET, segments)
    }

    /// A POST.
    pub fn post(segments: &[&str]) -> Result<Self> {
        Self::new(Method::POST, segments)
    }

    /// Adds a query key; it may stand there more than once.
    pub fn query(mut self, key: &str, value: impl ToString) -> Self {
        self.query.push((key.to_owned(), value.to_string()));
        self
    }

    /// Adds a query key if there is a value for it.
    pub fn maybe(self, key: &str, value: Option<impl ToString>) -> Self {
        match value {
            Some(value) => self.query(key, value),
            None => self,
        }
    }

    /// Adds a query key for each value.
    pub fn each(self, key: &str, values: &[String]) -> Self {
        values.iter().fold(self, |call, value| call.query(key, value))
    }

    /// Sets a header. A value that no header can hold is wrong usage.
    pub fn header(mut self, name: &'static str, value: &str) -> Result<Self> {
        // Notes may hold any letters; a header carries them as UTF-8 bytes.
        let value = HeaderValue::from_bytes(value.as_bytes()).map_err(|_| {
            ClientError::usage(format!("{name} cannot hold line breaks or control characters"))
        })?;
        self.headers.insert(HeaderName::from_static(name), value);
        Ok(self)
    }

    /// Sets what is accepted.
    pub fn accept(mut self, accept: &'static str) -> Self {
        self.accept = accept;
        self
    }

    /// Sets a JSON body.
    pub fn json(mut self, body: &Value) -> Self {
        self.body = Some(Bytes::from(body.to_string()));
        self
    }

    /// Sets a body of another type, which may take so long.
    pub fn body(mut self, media: &'static str, body: Vec<u8>, limit_seconds: u64) -> Self {
        (self.media, self.body, self.limit_seconds) = (media, Some(Bytes::from(body)), limit_seconds);
        self
    }

    fn shown(&self) -> String {
        format!("{} {}", self.method, self.path)
    }
}

/// Everything but the unreserved characters is encoded, so that no name can change the path.
fn encode_segment(segment: &str) -> String {
    use std::fmt::Write as _;
    let mut encoded = String::with_capacity(segment.len());
    for byte in segment.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~*@".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _written = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

/// An answer that is a success, read whole.
#[derive(Debug)]
pub struct Answer {
    /// The body.
    pub text: String,
    /// Whether it is the stored answer of an earlier try.
    pub is_replayed: bool,
}

impl Answer {
    /// The body as JSON; `null` when there is none.
    pub fn json(&self) -> Result<Value> {
        if self.text.trim().is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_str(&self.text)
            .context("the API answered with something that is not JSON: check the URL")
    }
}

/// A try that failed, and whether another one may help.
struct Trouble {
    error: anyhow::Error,
    is_passing: bool,
    retry_after: Option<Duration>,
}

/// The API at one URL, with a token.
pub struct ApiClient {
    http: Client,
    root: Url,
    token: Option<Secret>,
}

impl ApiClient {
    /// A client. Without a token only what needs none works.
    pub fn new(root: &ApiUrl, token: Option<Secret>) -> Result<Self> {
        // The provider of the whole process; it is there already when somebody was faster.
        let _already_there = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let root: Url = root.as_str().parse().context("the URL of the API cannot be read")?;
        let mut builder = Client::builder()
            .user_agent(concat!("headwater-cli/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(Duration::from_secs(CONNECT_LIMIT_SECONDS));
        if is_loopback(&root) {
            // A proxy of the environment is not on the way to this machine.
            builder = builder.no_proxy();
        }
        let http = builder.build().context("cannot make an HTTP client")?;
        Ok(Self { http, root, token })
    }

    /// Where it talks to.
    pub fn root(&self) -> &str {
        self.root.as_str().trim_end_matches('/')
    }

    /// Sends a request, tries again where that is safe, and reads the answer whole.
    pub async fn send(&self, call: &Call) -> Result<Answer> {
        self.repeat(call, async || {
            let response = self.once(call, Some(call.limit_seconds)).await?;
            let is_replayed = response.headers().contains_key("idempotency-replayed");
            let text = read_whole(response).await.map_err(|error| Trouble {
                error: error.context(format!("the answer to {} broke off", call.shown())),
                is_passing: true,
                retry_after: None,
            })?;
            Ok(Answer { text, is_replayed })
        })
        .await
    }

    /// Sends a request and reads a JSON answer.
    pub async fn fetch(&self, call: &Call) -> Result<Value> {
        self.send(call).await?.json()
    }

    /// Sends a request whose answer is read piece by piece. Only its beginning is tried again.
    pub async fn open(&self, call: &Call) -> Result<Stream> {
        self.repeat(call, async || Ok(Stream(self.once(call, None).await?))).await
    }

    /// Opens a stream with a single try; the caller has its own way to come back.
    pub async fn open_once(&self, call: &Call) -> Result<Stream> {
        self.once(call, None).await.map(Stream).map_err(|trouble| trouble.error)
    }

    async fn repeat<T>(&self, call: &Call, attempt: impl AsyncFn() -> Result<T, Trouble>) -> Result<T> {
        let started = Instant::now();
        let mut pause = Duration::from_millis(FIRST_PAUSE_MILLISECONDS);
        let mut tries = 1;
        loop {
            let trouble = match attempt().await {
                Ok(done) => return Ok(done),
                Err(trouble) => trouble,
            };
            let wait = trouble.retry_after.unwrap_or(pause);
            let is_late = (started.elapsed() + wait).as_secs() >= RETRY_BUDGET_SECONDS;
            if !trouble.is_passing || tries >= TRIES_MAX || wait.as_secs() > PAUSE_MAX_SECONDS || is_late {
                return Err(match call.key {
                    // The answer is lost, not necessarily the mutation.
                    Some(key) if trouble.is_passing => trouble.error.context(format!(
                        "whether it was done is not known: repeat the command with --idempotency-key {key} and it \
                         happens once"
                    )),
                    _ => trouble.error,
                });
            }
            talk(format_args!("{:#}\n  trying again in {:.1} s", trouble.error, wait.as_secs_f64()));
            tokio::time::sleep(wait).await;
            pause *= 2;
            tries += 1;
        }
    }

    async fn once(&self, call: &Call, limit_seconds: Option<u64>) -> Result<Response, Trouble> {
        let mut url = self.root.clone();
        url.set_path(&call.path);
        if !call.query.is_empty() {
            url.query_pairs_mut().extend_pairs(&call.query);
        }
        let mut request = self.http.request(call.method.clone(), url).headers(call.headers.clone());
        request = request.header(ACCEPT, call.accept);
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, bearer(token)?);
        }
        if let Some(key) = call.key {
            request = request.header("idempotency-key", key.to_string());
        }
        if let Some(body) = &call.body {
            request = request.header(CONTENT_TYPE, call.media).body(body.clone());
        }
        if let Some(limit) = limit_seconds {
            request = request.timeout(Duration::from_secs(limit));
        }
        let response = request.send().await.map_err(|error| Trouble {
            is_passing: !error.is_builder(),
            error: anyhow!(error.without_url()).context(format!(
                "no answer from the API at {} to {}",
                self.root(),
                call.shown()
            )),
            retry_after: None,
        })?;
        if response.status().is_success() {
            return Ok(response);
        }
        let (status, retry_after) = (response.status(), retry_after(response.headers()));
        let text = match read_whole(response).await {
            Ok(text) => text,
            Err(error) => format!("(its body cannot be read: {error:#})"),
        };
        let mut problem = ApiProblem::read(status, retry_after, &text);
        problem.is_create_only = call.headers.contains_key(IF_NONE_MATCH);
        let is_passing = problem.is_passing();
        Err(Trouble { error: ClientError::Problem(Box::new(problem)).into(), is_passing, retry_after })
    }
}

/// The bytes of an answer as they come.
pub struct Stream(Response);

impl Stream {
    /// The media type, without parameters.
    pub fn media_type(&self) -> &str {
        let value =
            self.0.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        value.split(';').next().unwrap_or_default().trim()
    }

    /// The status.
    pub fn status(&self) -> StatusCode {
        self.0.status()
    }

    /// The next bytes; none at the end.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>> {
        match tokio::time::timeout(Duration::from_secs(SILENCE_MAX_SECONDS), self.0.chunk()).await {
            Ok(chunk) => chunk.map_err(|error| anyhow!(error.without_url()).context("the answer broke off")),
            Err(_) => bail!("the API said nothing for {SILENCE_MAX_SECONDS} s"),
        }
    }

    /// All of it, which must be small.
    pub async fn whole(self) -> Result<String> {
        read_whole(self.0).await
    }
}

fn bearer(token: &Secret) -> Result<HeaderValue, Trouble> {
    match HeaderValue::from_str(&format!("Bearer {}", token.expose())) {
        Ok(mut value) => {
            value.set_sensitive(true);
            Ok(value)
        }
        Err(_) => Err(Trouble {
            error: ClientError::usage(
                "the token file holds more than a token: it must be one line of letters",
            ),
            is_passing: false,
            retry_after: None,
        }),
    }
}

async fn read_whole(mut response: Response) -> Result<String> {
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(reqwest::Error::without_url)? {
        if bytes.len() + chunk.len() > ANSWER_MAX_BYTES {
            bail!("the answer is longer than {ANSWER_MAX_BYTES} bytes: ask for less with --limit");
        }
        bytes.extend_from_slice(&chunk);
    }
    String::from_utf8(bytes).context("the answer is not UTF-8")
}

/// Seconds; the API never sends the form with a date.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_leaves_its_segment() {
        let path = |segments: &[&str]| Call::get(segments).map(|call| call.path);
        assert_eq!(path(&["domains", "a/../b?c#d%"]).unwrap(), "/api/domains/a%2F..%2Fb%3Fc%23d%25");
        assert_eq!(path(&["domains", "bücher.example"]).unwrap(), "/api/domains/b%C3%BCcher.example");
        assert_eq!(path(&["x", "*"]).unwrap(), "/api/x/*");
        for name in ["", ".", ".."] {
            assert!(path(&["domains", name]).is_err());
        }
    }

    #[test]
    fn a_note_may_hold_letters_but_no_line_break() {
        let call = Call::get(&["me"]).unwrap();
        assert!(call.clone().header("change-note", "für später").is_ok());
        assert!(call.header("change-note", "a\r\nx-evil: 1").is_err());
    }
}
