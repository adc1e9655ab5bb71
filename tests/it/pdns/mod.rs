//! PowerDNS's HTTP API in front of ours: what its clients rely on, said by hand.

mod change;
mod clients;
mod patch;
mod read;
mod replay;
pub mod walk;

use reqwest::Method;
use serde_json::{Value, json};

use headwater::secret::Secret;

use crate::support::{Answer, TestApi};

/// Where everything is.
const SERVER: &str = "/api/v1/servers/localhost";

/// The API as a client of PowerDNS sees it.
struct Pdns {
    api: TestApi,
}

impl Pdns {
    async fn start() -> Self {
        Self { api: TestApi::start("").await }
    }

    /// Sends a request with a key, a body and headers.
    async fn send(
        &self,
        key: &Secret,
        method: Method,
        path: &str,
        body: Option<&Value>,
        headers: &[(&str, &str)],
    ) -> Answer {
        let path = if path.starts_with("/api") { path.to_owned() } else { format!("{SERVER}{path}") };
        let mut request = self.api.request(method, &path).header("X-Api-Key", key.expose());
        if let Some(body) = body {
            request = request.json(body);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        Answer::of(request.send().await.unwrap()).await
    }

    /// As the administrator.
    async fn get(&self, path: &str) -> Answer {
        self.send(&self.api.admin, Method::GET, path, None, &[]).await
    }

    async fn call(&self, method: Method, path: &str, body: Value) -> Answer {
        let body = (!body.is_null()).then_some(body);
        self.send(&self.api.admin, method, path, body.as_ref(), &[]).await
    }

    /// Makes a zone with these RRsets: owner, type, values.
    async fn zone(&self, name: &str, rrsets: &[(&str, &str, &[&str])]) -> Answer {
        let rrsets: Vec<Value> = rrsets.iter().map(|(name, ty, values)| rrset(name, ty, values)).collect();
        let body = json!({"name": name, "kind": "Native", "rrsets": rrsets});
        self.call(Method::POST, "/zones", body).await.expect(201)
    }

    async fn patch(&self, zone: &str, rrsets: Value) -> Answer {
        self.call(Method::PATCH, &format!("/zones/{zone}"), json!({"rrsets": rrsets})).await
    }

    /// What one RRset of a zone is; null where there is none.
    async fn rrset(&self, zone: &str, name: &str, ty: &str) -> Value {
        let path = format!("/zones/{zone}?rrset_name={name}&rrset_type={ty}");
        self.get(&path).await.expect(200).json()["rrsets"][0].clone()
    }
}

/// An RRset as clients send it.
fn rrset(name: &str, ty: &str, values: &[&str]) -> Value {
    let records: Vec<Value> =
        values.iter().map(|value| json!({"content": value, "disabled": false})).collect();
    json!({"name": name, "type": ty, "ttl": 300, "records": records})
}

/// A change as clients send it.
fn replace(name: &str, ty: &str, values: &[&str]) -> Value {
    let mut change = rrset(name, ty, values);
    change["changetype"] = json!("REPLACE");
    change
}

fn delete(name: &str, ty: &str) -> Value {
    json!({"name": name, "type": ty, "changetype": "DELETE"})
}

/// An error as PowerDNS says it.
#[track_caller]
fn expect_error(answer: &Answer, part: &str) {
    assert_eq!(answer.status, 422, "{answer:?}");
    assert_eq!(answer.header("content-type"), "application/json");
    let body = answer.json();
    assert!(body["error"].as_str().unwrap().contains(part), "{part}: {body}");
}
