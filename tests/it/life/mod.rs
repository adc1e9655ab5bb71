//! The life of a domain: who may have a name, how its ownership is proven, and what ends its serving.

mod claims;
mod names;
mod proof;
mod served;

use headwater::secret::Secret;
use headwater_events::ids::TenantId;
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Answer, TestApi};

/// Somebody who owns a tenant.
pub struct Owner {
    pub tenant: TenantId,
    pub token: Secret,
}

impl Owner {
    pub async fn of(api: &TestApi, name: &str) -> Self {
        let tenant = api.tenant(name).await;
        let (_, token) = api.user(&format!("{name}@example.com"), false, &[tenant]).await;
        Self { tenant, token }
    }

    pub async fn call(&self, api: &TestApi, method: Method, path: &str, body: Value) -> Answer {
        let body = (!body.is_null()).then_some(body);
        api.send(&self.token, method, path, body.as_ref(), &[]).await
    }

    pub async fn post(&self, api: &TestApi, path: &str) -> Answer {
        self.call(api, Method::POST, path, Value::Null).await
    }

    pub async fn get(&self, api: &TestApi, path: &str) -> Answer {
        self.call(api, Method::GET, path, Value::Null).await
    }

    pub async fn claim(&self, api: &TestApi, name: &str) -> Answer {
        self.call(api, Method::POST, "/api/domains", json!({"name": name})).await
    }
}

/// The events of a domain by type, in the order of the log.
pub async fn types(api: &TestApi, name: &str) -> Vec<String> {
    let query = sqlx::query_scalar("select type from events where domain = $1 order by position");
    query.bind(name).fetch_all(&api.app.pool).await.unwrap()
}
