//! Rolling a domain back: through the API, while others write, across a crash, and to real answers of the DNS.

mod api;
mod crash;
mod dns;
mod race;
mod size;

use headwater::command::{Command, Meta};
use headwater_events::actor::Caller;
use headwater_events::admin::{AdminCommand, Observation, Outcome};
use headwater_events::dns::DomainName;
use headwater_events::ids::{ClusterId, DomainId, Revision};
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::world::fact;
use crate::support::{Answer, TestApi};

const NAME: &str = "example.test";
const ZONE: &str = "/api/domains/example.test";

/// An API with an active domain, and a cluster that nobody deploys to.
struct Lived {
    api: TestApi,
    cluster: ClusterId,
    domain: DomainId,
}

impl Lived {
    async fn new(config: &str) -> Self {
        let api = TestApi::start(config).await;
        let cluster = json!({"name": "c", "database_url_file": "/x", "dns": "192.0.2.1:53", "enabled": true});
        let made = api.call(Method::POST, "/api/dns-clusters", cluster).await.expect(201).json();
        let new = json!({"name": NAME, "force_active": true, "labels": {"plan": "a"}});
        let domain = api.call(Method::POST, "/api/domains", new).await.expect(202).json();
        let id = |value: &Value| value.as_str().unwrap().parse().unwrap();
        let (cluster, domain) =
            (ClusterId::from_uuid(id(&made["id"])), DomainId::from_uuid(id(&domain["domain"]["id"])));
        Self { api, cluster, domain }
    }

    /// Puts an A record; gives the revision.
    async fn put(&self, owner: &str, address: &str) -> i64 {
        let body = json!({"ttl": 300, "records": [address]});
        let path = format!("{ZONE}/rrsets/{owner}/A");
        self.api.call(Method::PUT, &path, body).await.expect(202).json()["revision"].as_i64().unwrap()
    }

    /// A target has verified a revision.
    async fn verified(&self, revision: i64) {
        let outcome = Outcome::Acknowledged(fact(Revision::new(revision), None));
        let (domain, name) = (self.domain, DomainName::parse(NAME).unwrap());
        let tenant = self.api.platform_tenant().await;
        let observed = vec![Observation { domain, name, tenant, outcome }];
        let command = AdminCommand::RecordDeployments { cluster: self.cluster, observed };
        let submitted =
            self.api.app.commit.submit(Caller::system(), Command::admin(command), Meta::internal());
        submitted.await.unwrap();
    }

    async fn rollback(&self, revision: i64) -> Answer {
        self.rollback_with(revision, "", &[]).await
    }

    async fn rollback_with(&self, revision: i64, query: &str, headers: &[(&str, &str)]) -> Answer {
        let path = format!("{ZONE}/rollback{query}");
        let body = json!({"revision": revision});
        self.api.send(&self.api.admin, Method::POST, &path, Some(&body), headers).await
    }

    /// Everything that is desired of the domain but for when it last changed.
    async fn desired(&self) -> Value {
        let strip = |page: Value| {
            let mut items = page["items"].as_array().unwrap().clone();
            items.retain(|item| item["derived"] != json!(true));
            items.iter_mut().for_each(|item| {
                item.as_object_mut().unwrap().remove("changed");
            });
            items
        };
        let get = |path: &str| {
            let path = format!("{ZONE}{path}");
            async move { self.api.get(&path).await.expect(200).json() }
        };
        let domain = get("").await;
        let mut cache = get("/cache").await;
        for key in ["changed", "changed_by", "epoch"] {
            cache.as_object_mut().unwrap().remove(key);
        }
        json!({
            "rrsets": strip(get("/rrsets?limit=1000").await), "hostnames": strip(get("/hostnames").await),
            "cache": cache, "labels": domain["labels"], "external_id": domain["external_id"],
        })
    }

    /// The revisions that say yes to a word, oldest first.
    async fn revisions(&self, word: &str) -> Vec<i64> {
        let page = self.api.get(&format!("{ZONE}/revisions?limit=1000")).await.expect(200).json();
        let items = page["items"].as_array().unwrap().iter().rev();
        let items = items.filter(|item| item[word].as_bool().expect(word));
        items.map(|item| item["revision"].as_i64().unwrap()).collect()
    }
}
