//! One attempt: a request to a receiver, and what came of it. No proxy of the environment, no redirect, no address that was
//! not judged; what is read of an answer is bounded, and nobody is waited for longer than the limit.

use bytes::Bytes;
use chrono::{DateTime, Utc};
use headwater_events::ids::{EventId, WebhookId};
use headwater_events::time::Timestamp;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER, USER_AGENT};
use reqwest::{Certificate, Client, Response, StatusCode};
use std::error::Error as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::guard::{Guarded, Lookup, Refused, Rules};
use super::sign;
use crate::config::Config;
use headwater_edge_wire::secret::SecretBytes;

/// Octets of an answer that are read and kept, at most.
pub const RESPONSE_MAX_BYTES: usize = 1_024;
/// Characters of an error that are kept, at most.
const ERROR_MAX_CHARS: usize = 300;
/// How long a connection that nobody uses is kept.
const IDLE_MAX: Duration = Duration::from_secs(30);
/// Connections to one receiver that are kept while nobody uses them.
const IDLE_MAX_COUNT: usize = 1;

/// How long a receiver is left alone because it says so, at most: as long as the longest pause.
const WAIT_MAX: Duration = Duration::from_secs(86_400);

const ID: HeaderName = HeaderName::from_static("webhook-id");
const TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");
/// Who sends.
const AGENT: &str = concat!("Headwater/", env!("CARGO_PKG_VERSION"), " (webhooks)");

/// Why nothing can be sent at all.
#[derive(Debug, thiserror::Error)]
pub enum SenderError {
    /// The authorities that are to be believed cannot be read.
    #[error("the certificates of [webhooks] ca_file {} cannot be used: {why}", .file.display())]
    Authorities {
        /// Where they stand.
        file: PathBuf,
        /// Why not.
        why: String,
    },
    /// The client cannot be made.
    #[error("the client of webhooks cannot be made: {0}")]
    Client(#[from] reqwest::Error),
}

/// What an attempt came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// What it means.
    pub verdict: Verdict,
    /// The status of the answer, if there was one.
    pub status: Option<u16>,
    /// How long it took.
    pub ms: i32,
    /// Why it failed, for people.
    pub error: Option<String>,
    /// The beginning of an answer that was no success.
    pub response: Option<String>,
    /// How long the receiver asked to be left alone (RFC 9110 section 10.2.3), bounded.
    pub wait: Option<Duration>,
}

/// What an answer means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It has it.
    Delivered,
    /// The receiver is gone for good.
    Gone,
    /// Not this time.
    Failed,
}

/// What is sent.
pub struct Message<'a> {
    /// To whom.
    pub webhook: WebhookId,
    /// Which event.
    pub event: EventId,
    /// The event.
    pub body: Bytes,
    /// The secrets that count.
    pub secrets: &'a [SecretBytes],
    /// Now.
    pub at: Timestamp,
}

/// Sends to receivers.
pub struct Sender {
    client: Client,
    rules: Rules,
    limit: Duration,
}

impl Sender {
    /// One that knows names by `lookup` and waits for nobody longer than `limit`.
    ///
    /// # Errors
    /// When the configured authorities cannot be used, or the client cannot be made.
    pub fn new(config: &Config, lookup: Arc<dyn Lookup>, limit: Duration) -> Result<Self, SenderError> {
        // The provider of the whole process; it is there already when somebody was faster.
        let _already_there = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let rules = Rules::of(config);
        let mut builder = Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .referer(false)
            .timeout(limit)
            .pool_idle_timeout(IDLE_MAX)
            .pool_max_idle_per_host(IDLE_MAX_COUNT)
            .dns_resolver(Arc::new(Guarded { rules: rules.clone(), lookup }));
        if let Some(file) = &config.webhooks.ca_file {
            let refused = |why: String| SenderError::Authorities { file: file.clone(), why };
            let pem = std::fs::read(file).map_err(|error| refused(error.to_string()))?;
            let authorities =
                Certificate::from_pem_bundle(&pem).map_err(|error| refused(error.to_string()))?;
            builder = builder.tls_certs_merge(authorities);
        }
        Ok(Self { client: builder.build()?, rules, limit })
    }

    /// Sends a message once.
    pub async fn send(&self, url: &str, message: &Message<'_>) -> Attempt {
        let begun = Instant::now();
        // The client has the same limit; this one also bounds what it does besides.
        let mut wait = None;
        let (verdict, status, error, response) =
            match tokio::time::timeout(self.limit, self.once(url, message)).await {
                Ok(Ok(response)) => {
                    wait = asked_wait(response.headers(), message.at);
                    judged(response).await
                }
                Ok(Err(error)) => (Verdict::Failed, None, Some(error), None),
                Err(_late) => (Verdict::Failed, None, Some(self.late()), None),
            };
        let ms = i32::try_from(begun.elapsed().as_millis()).unwrap_or(i32::MAX);
        Attempt { verdict, status, ms, error, response, wait }
    }

    async fn once(&self, url: &str, message: &Message<'_>) -> Result<Response, String> {
        // Judged again: the settings, or what this program knows of addresses, may be others than at the door.
        let url = self.rules.read(url).map_err(|(_, detail)| detail)?;
        let id = sign::message_id(message.event, message.webhook);
        let timestamp = message.at.as_millis().div_euclid(1_000);
        let signature = sign::signature(message.secrets, &id, timestamp, &message.body);
        let request = self
            .client
            .post(url)
            .header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
            .header(USER_AGENT, HeaderValue::from_static(AGENT))
            .header(ID, id)
            .header(TIMESTAMP, timestamp)
            .header(SIGNATURE, signature)
            .body(message.body.clone());
        request.send().await.map_err(|error| self.told(error))
    }

    fn late(&self) -> String {
        format!("no answer within {} s", self.limit.as_secs_f32())
    }

    /// Why there was no answer, without the URL.
    fn told(&self, error: reqwest::Error) -> String {
        let error = error.without_url();
        if error.is_timeout() {
            return self.late();
        }
        let mut told = Vec::new();
        let mut source = error.source();
        while let Some(cause) = source {
            if let Some(refused) = cause.downcast_ref::<Refused>() {
                return refused.to_string();
            }
            told.push(cause.to_string());
            source = cause.source();
        }
        told.dedup();
        clean(&if told.is_empty() { error.to_string() } else { told.join(": ") }, ERROR_MAX_CHARS)
    }
}

/// What `Retry-After` asks for: seconds, or a date.
fn asked_wait(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = match text.parse::<u64>() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => {
            let at = DateTime::parse_from_rfc2822(text).ok()?.with_timezone(&Utc);
            (at - DateTime::<Utc>::from(now)).to_std().ok()?
        }
    };
    Some(wait.min(WAIT_MAX))
}

async fn judged(response: Response) -> (Verdict, Option<u16>, Option<String>, Option<String>) {
    let status = response.status();
    if status.is_success() {
        return (Verdict::Delivered, Some(status.as_u16()), None, None);
    }
    let verdict = if status == StatusCode::GONE { Verdict::Gone } else { Verdict::Failed };
    let error = if status.is_redirection() {
        format!("the receiver answered {status}: redirects are not followed")
    } else {
        format!("the receiver answered {status}")
    };
    (verdict, Some(status.as_u16()), Some(error), beginning(response).await)
}

/// The beginning of an answer, as text. One that breaks off is as long as it is.
async fn beginning(mut response: Response) -> Option<String> {
    let mut octets = Vec::new();
    while let Ok(Some(chunk)) = response.chunk().await {
        let room = RESPONSE_MAX_BYTES.saturating_sub(octets.len());
        octets.extend(chunk.iter().take(room));
        if octets.len() >= RESPONSE_MAX_BYTES {
            break;
        }
    }
    let mut text = clean(&String::from_utf8_lossy(&octets), RESPONSE_MAX_BYTES);
    while text.len() > RESPONSE_MAX_BYTES {
        text.pop();
    }
    (!text.is_empty()).then_some(text)
}

/// Text without control characters, of which a database or a terminal could not hold some.
fn clean(text: &str, most_chars: usize) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' { ' ' } else { c }).take(most_chars).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receiver_is_left_alone_as_long_as_it_asks_within_bounds() {
        let now = Timestamp::parse("2026-11-06T08:49:00.000Z").unwrap();
        for (text, seconds) in [
            ("120", Some(120)),
            (" 0 ", Some(0)),
            ("Fri, 06 Nov 2026 08:50:00 GMT", Some(60)),
            // It is over already, or nothing that can be read: as if nothing was said.
            ("Fri, 06 Nov 2026 08:48:00 GMT", None),
            ("soon", None),
            ("-5", None),
            ("99999999999", Some(86_400)),
            ("Fri, 06 Nov 2099 08:50:00 GMT", Some(86_400)),
        ] {
            let headers = HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_str(text).unwrap())]);
            assert_eq!(asked_wait(&headers, now), seconds.map(Duration::from_secs), "{text}");
        }
        assert_eq!(asked_wait(&HeaderMap::new(), now), None);
    }
}
