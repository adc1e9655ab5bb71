//! Tools side by side, tokens that make tokens, and rights that are of now when what they let through is appended.

mod children;
mod past;
mod rights;
mod stale;
mod tools;

use headwater::secret::Secret;
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Answer, TestApi};

pub const ZONE: &str = "/api/domains/example.test";

/// What a token is made of.
pub async fn make(api: &TestApi, by: &Secret, body: &Value) -> Answer {
    api.send(by, Method::POST, "/api/me/tokens", Some(body), &[]).await
}

/// What the holder of a new token shows, and its id.
pub async fn made(api: &TestApi, by: &Secret, body: Value) -> (Secret, String) {
    let made = make(api, by, &body).await.expect(201).json();
    let text = |key: &str| made[key].as_str().unwrap().to_owned();
    (Secret::new(text("token")), text("id"))
}

/// The token of a tool.
pub async fn tool(api: &TestApi, by: &Secret, manager: &str) -> Secret {
    made(api, by, json!({"name": manager, "manager": manager})).await.0
}

/// An API with a domain of a tenant, and its owner.
pub async fn api() -> (TestApi, Secret) {
    let api = TestApi::start("[limits]\nmutations_per_minute = 100000\nreads_per_minute = 100000\n").await;
    let tenant = api.tenant("ours").await;
    let (_, owner) = api.user("ann@example.test", false, &[tenant]).await;
    let new = json!({"name": "example.test", "tenant": tenant, "force_active": true});
    api.call(Method::POST, "/api/domains", new).await.expect(202);
    (api, owner)
}

/// An RRset that is put.
pub async fn put(api: &TestApi, by: &Secret, name: &str, address: &str, query: &str) -> Answer {
    let body = json!({"ttl": 300, "records": [address]});
    api.send(by, Method::PUT, &format!("{ZONE}/rrsets/{name}/A{query}"), Some(&body), &[]).await
}

/// Asks for something of the domain.
pub async fn ask(api: &TestApi, by: &Secret, method: Method, path: &str, body: Value) -> Answer {
    let body = (!body.is_null()).then_some(body);
    api.send(by, method, &format!("{ZONE}{path}"), body.as_ref(), &[]).await
}

/// Reads something of the domain.
pub async fn read(api: &TestApi, by: &Secret, path: &str) -> Value {
    ask(api, by, Method::GET, path, Value::Null).await.expect(200).json()
}

/// The names of a list.
pub fn names(list: &Value) -> Vec<String> {
    let items = list["items"].as_array().unwrap().iter();
    items.map(|one| format!("{} {}", one["name"].as_str().unwrap(), one["type"].as_str().unwrap())).collect()
}

/// Whose an RRset is.
pub async fn owner_of(api: &TestApi, by: &Secret, name: &str) -> Value {
    read(api, by, &format!("/rrsets/{name}/A")).await["managed_by"].clone()
}
