//! A client of our own API, as small as the demo needs it.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use reqwest::{Client, Method, StatusCode};
use serde_json::Value;

use crate::secret::Secret;

/// How long one request may take; an operation is awaited for up to half of it.
const REQUEST_LIMIT_SECONDS: u64 = 60;

/// The API with the token of an administrator.
pub struct Api {
    client: Client,
    root: String,
    token: Secret,
}

/// What the API answered.
#[derive(Debug)]
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// The body, `null` when there was none.
    pub body: Value,
}

impl Answer {
    /// A text in the body, such as `/operation/id`.
    pub fn text(&self, pointer: &str) -> Option<&str> {
        self.body.pointer(pointer).and_then(Value::as_str)
    }
}

impl Api {
    /// A client of the API at this root, such as `http://127.0.0.1:8080`.
    pub fn new(root: String, token: Secret) -> Result<Self> {
        let client = Client::builder()
            .timeout(Duration::from_secs(REQUEST_LIMIT_SECONDS))
            // The API is on the loopback: a proxy of the environment is not on the way to it.
            .no_proxy()
            .build()
            .context("cannot make an HTTP client")?;
        Ok(Self { client, root, token })
    }

    /// Sends a request and reads its answer, whatever its status.
    pub async fn send(&self, method: Method, path: &str, body: Option<Value>) -> Result<Answer> {
        let url = format!("{}{path}", self.root);
        let mut request = self.client.request(method.clone(), &url).bearer_auth(self.token.expose());
        if let Some(body) = body {
            request = request.json(&body);
        }
        let response = request.send().await.with_context(|| format!("{method} {url} failed"))?;
        let status = response.status();
        let bytes = response.bytes().await.with_context(|| format!("{method} {url} broke off"))?;
        let body =
            if bytes.is_empty() { Value::Null } else { serde_json::from_slice(&bytes).unwrap_or_default() };
        Ok(Answer { status, body })
    }

    /// The same, where anything but success is an error.
    pub async fn call(&self, method: Method, path: &str, body: Option<Value>) -> Result<Answer> {
        let answer = self.send(method.clone(), path, body).await?;
        if !answer.status.is_success() {
            bail!("{method} {path} answered {}: {}", answer.status, answer.body);
        }
        Ok(answer)
    }

    /// A GET that must succeed.
    pub async fn get(&self, path: &str) -> Result<Answer> {
        self.call(Method::GET, path, None).await
    }
}
