//! Zones of other servers, taken in: from a real PowerDNS by its database, its API and its transfers, and from a directory.

mod compare;
mod follow;
mod old;
mod resume;
mod secrets;
mod sources;
mod zones;

use std::collections::BTreeMap;

use headwater::operation::runner;
use headwater_events::ids::{OperationId, TenantId};
use reqwest::Method;
use serde_json::{Value, json};

use crate::imperative::ended;
use crate::support::TestApi;

/// Limits that no test meets.
const LIMITS: &str = "[limits]\nmutations_per_minute = 100000\nreads_per_minute = 100000\n";

/// An API that carries imports out.
pub struct Importing {
    pub api: TestApi,
    pub acme: TenantId,
}

impl Importing {
    pub async fn new() -> Self {
        let api = TestApi::start(LIMITS).await;
        tokio::spawn(headwater::operation::run(api.app.clone()));
        tokio::spawn(runner::run(api.app.clone()));
        let acme = api.tenant("acme").await;
        Self { api, acme }
    }

    /// What is asked of a source, with what else is said.
    pub async fn body(&self, source: &Value, more: Value) -> Value {
        let own = self.api.platform_tenant().await;
        let tenants = json!({"by_account": {"acme": self.acme}, "default": own});
        let mut body = json!({"source": source, "tenants": tenants});
        for (key, value) in more.as_object().unwrap() {
            body[key] = value.clone();
        }
        body
    }

    pub async fn ask(&self, source: &Value, more: Value) -> OperationId {
        let body = self.body(source, more).await;
        let answer = self.api.call(Method::POST, "/api/imports", body).await.expect(202).json();
        answer["operation"]["id"].as_str().unwrap().parse().unwrap()
    }

    /// Imports, and waits for the end; gives what came of each zone.
    pub async fn import(&self, source: &Value, more: Value) -> (OperationId, BTreeMap<String, Value>) {
        let id = self.ask(source, more).await;
        let end = ended(&self.api.app.pool, id).await;
        assert_eq!(end["state"], "succeeded", "{end}");
        (id, self.report(id).await)
    }

    /// What came of each zone, by pages.
    pub async fn report(&self, id: OperationId) -> BTreeMap<String, Value> {
        let mut lines = BTreeMap::new();
        let mut cursor = String::new();
        loop {
            let path = format!("/api/imports/{id}/report?limit=90{cursor}");
            let page = self.api.get(&path).await.expect(200).json();
            for line in page["items"].as_array().unwrap() {
                lines.insert(line["zone"].as_str().unwrap().to_owned(), line.clone());
            }
            match page["next"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => return lines,
            }
        }
    }

    pub async fn shown(&self, id: OperationId) -> Value {
        self.api.get(&format!("/api/imports/{id}")).await.expect(200).json()
    }

    /// `owner type ttl records # comment` of every RRset, by domain.
    pub async fn held(&self) -> BTreeMap<String, Vec<String>> {
        let text = "select d.name, r.owner, r.type, r.ttl, r.records, r.comment from desired.rrsets r \
                    join desired.domains d on d.id = r.domain_id where d.current order by 1, 2, 3";
        type Row = (String, String, i32, i64, Vec<String>, Option<String>);
        let rows: Vec<Row> = sqlx::query_as(text).fetch_all(&self.api.app.pool).await.unwrap();
        let mut held: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (domain, owner, rrtype, ttl, records, comment) in rows {
            let comment = comment.map(|comment| format!(" # {comment}")).unwrap_or_default();
            let line = format!("{owner} {rrtype} {ttl} {}{comment}", records.join(", "));
            held.entry(domain).or_default().push(line);
        }
        held
    }
}

/// How many zones came to what.
pub fn outcomes(report: &BTreeMap<String, Value>) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for line in report.values() {
        *counts.entry(line["outcome"].as_str().unwrap()).or_default() += 1;
    }
    counts
}
