//! The history of a domain: what it was, what differs, undoing one revision and all that a token did, and heads of the
//! log that were kept elsewhere.

mod asof;
mod heads;
mod plans;
mod token;
mod undo;

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::TestApi;

const NAME: &str = "example.test";
const ZONE: &str = "/api/domains/example.test";

/// Numbers that look drawn, the same for the same seed.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// One of so many, from 0.
    pub fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

/// An API with an active domain.
async fn api(config: &str) -> TestApi {
    let api = TestApi::start(config).await;
    let new = json!({"name": NAME, "force_active": true, "labels": {"plan": "a"}});
    api.call(Method::POST, "/api/domains", new).await.expect(202);
    api
}

/// Puts an A record; gives the revision.
async fn put(api: &TestApi, owner: &str, addresses: &[&str]) -> i64 {
    let body = json!({"ttl": 300, "records": addresses});
    let path = format!("{ZONE}/rrsets/{owner}/A");
    api.call(Method::PUT, &path, body).await.expect(202).json()["revision"].as_i64().unwrap()
}

fn paths(rows: &Value) -> Vec<String> {
    rows.as_array().unwrap().iter().map(|row| row["path"].as_str().unwrap().to_owned()).collect()
}
