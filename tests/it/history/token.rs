//! A token leaked: everything that it did is told, undone, and nothing of others is lost; whoever carries it out may be
//! killed on the way.

use std::collections::BTreeMap;
use std::time::Instant;

use futures_util::future::join_all;
use headwater::app::App;
use headwater::command::{Command, Meta};
use headwater::operation::{project, runner};
use headwater_events::actor::{Actor, ActorKind, Caller};
use headwater_events::admin::AdminCommand;
use headwater_events::event::UndoRequested;
use headwater_events::ids::{OperationId, TenantId, TokenId};
use headwater_events::time::Timestamp;
use headwater_projections::audit::Audit;
use reqwest::Method;
use serde_json::{Value, json};
use uuid::Uuid;

use super::Dice;
use crate::imperative::{Runner, ended};
use crate::support::{TestApi, eventually};
use headwater::secret::Secret as Bearer;

/// Zones, changes of the token, changes of others.
struct Size {
    zones: usize,
    leaked: usize,
    others: usize,
}

impl Size {
    fn of_run() -> Self {
        if std::env::var_os("HEADWATER_TORTURE").is_some() {
            Self { zones: 50, leaked: 500, others: 2_000 }
        } else {
            Self { zones: 6, leaked: 30, others: 120 }
        }
    }
}

fn zone(n: usize) -> String {
    format!("/api/domains/z{n:03}.test")
}

/// Zones of a tenant, in which one member's token was leaked and used while another member went on working.
struct Leak {
    api: TestApi,
    owner: Bearer,
    leaked: Bearer,
    token: Value,
    since: String,
    /// What each RRset of each zone would hold had the leaked token done nothing.
    without: BTreeMap<(usize, String), Value>,
    size: Size,
}

async fn put(api: &TestApi, bearer: &Bearer, n: usize, owner: &str, address: &str) {
    let body = json!({"ttl": 300, "records": [address]});
    let path = format!("{}/rrsets/{owner}/A", zone(n));
    api.send(bearer, Method::PUT, &path, Some(&body), &[]).await.expect(202);
}

impl Leak {
    async fn new(size: Size) -> Self {
        let api =
            TestApi::start("[limits]\nmutations_per_minute = 100000\nreads_per_minute = 100000\n").await;
        tokio::spawn(project::run(api.app.clone(), Audit));
        let tenant = api.tenant("ours").await;
        let (_, owner) = api.user("owner@example.test", false, &[tenant]).await;
        let (_, leaked) = api.user("leaked@example.test", false, &[tenant]).await;
        let token =
            api.send(&leaked, Method::GET, "/api/me", None, &[]).await.expect(200).json()["token"].clone();
        let mut without = BTreeMap::new();
        for n in 0..size.zones {
            let new = json!({"name": format!("z{n:03}.test"), "force_active": true, "tenant": tenant});
            api.call(Method::POST, "/api/domains", new).await.expect(202);
            for owner_name in ["www", "mail", "api"] {
                put(&api, &owner, n, owner_name, "192.0.2.1").await;
                without.insert((n, owner_name.to_owned()), json!(["192.0.2.1"]));
            }
        }
        let since = Timestamp::parse(&chrono::Utc::now().to_rfc3339()).unwrap().to_string();
        let mut leak = Self { api, owner, leaked, token, since, without, size };
        leak.work().await;
        leak
    }

    /// The leaked token changes what others leave alone, and others go on elsewhere and add to what it changed.
    async fn work(&mut self) {
        let mut dice = Dice::new(7);
        let per_zone = self.size.leaked.div_ceil(self.size.zones);
        let ours = self.size.others.div_ceil(self.size.zones);
        for n in 0..self.size.zones {
            for i in 0..per_zone {
                let owner = ["www", "mail", "evil"][i % 3];
                put(&self.api, &self.leaked, n, owner, &format!("198.51.100.{}", i + 1)).await;
            }
            for i in 0..ours {
                let name = format!("n{}", dice.roll(8));
                let address = format!("203.0.113.{}", i % 250 + 1);
                put(&self.api, &self.owner, n, &name, &address).await;
                self.without.insert((n, name), json!([address]));
            }
            let add =
                json!({"changes": [{"op": "add", "name": "mail", "type": "A", "records": ["203.0.113.77"]}]});
            let path = format!("{}/rrsets/batch", zone(n));
            self.api.send(&self.owner, Method::POST, &path, Some(&add), &[]).await.expect(202);
            self.without.insert((n, "mail".to_owned()), json!(["192.0.2.1", "203.0.113.77"]));
        }
    }

    /// Others decide anew about what the token changed: there it stays.
    async fn decide(&mut self, n: usize) {
        put(&self.api, &self.owner, n, "www", "203.0.113.200").await;
        self.without.insert((n, "www".to_owned()), json!(["203.0.113.200"]));
    }

    async fn post(&self, bearer: &Bearer, query: &str) -> Value {
        let body = json!({"token": self.token, "since": self.since});
        let path = format!("/api/undo{query}");
        let status = if query.contains("dry_run") { 200 } else { 202 };
        self.api.send(bearer, Method::POST, &path, Some(&body), &[]).await.expect(status).json()
    }

    async fn held(&self) -> BTreeMap<(usize, String), Value> {
        let pages = (0..self.size.zones).map(|n| async move {
            let page = self.api.get(&format!("{}/rrsets?limit=1000", zone(n))).await.expect(200).json();
            let items = page["items"].as_array().unwrap().clone();
            let own = items.into_iter().filter(|item| item["derived"] == json!(false));
            own.map(|item| ((n, item["name"].as_str().unwrap().to_owned()), item["records"].clone()))
                .collect::<Vec<_>>()
        });
        join_all(pages).await.into_iter().flatten().collect()
    }
}

fn operation(body: &Value) -> OperationId {
    OperationId::from_uuid(body["operation"]["id"].as_str().unwrap().parse().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_leaked_token_did_is_told_and_undone_and_nothing_else() {
    let mut leak = Leak::new(Size::of_run()).await;
    leak.decide(0).await;
    let before = leak.held().await;
    let began = Instant::now();
    let preview = leak.post(&leak.owner, "?dry_run=true").await;
    assert_eq!((&preview["changed"], &preview["domains"]), (&json!(true), &json!(leak.size.zones)));
    // www, mail and evil of each, but for the one that others decided anew.
    assert_eq!(preview["diff"].as_array().unwrap().len(), 3 * leak.size.zones - 1);
    let conflicts = preview["conflicts"].as_array().unwrap();
    assert_eq!(conflicts.len(), 1, "{preview}");
    assert_eq!(
        (&conflicts[0]["domain"], &conflicts[0]["path"]),
        (&json!("z000.test"), &json!("/rrsets/www/A"))
    );
    assert_eq!(leak.held().await, before, "a preview writes nothing");

    tokio::spawn(runner::run(leak.api.app.clone()));
    let asked = leak.post(&leak.owner, "").await;
    let id = operation(&asked);
    let end = ended(&leak.api.app.pool, id).await;
    let took = began.elapsed();
    assert_eq!((&end["state"], &end["result"]["differences"]), (&json!("succeeded"), &json!(1)), "{end}");
    assert_eq!(leak.held().await, leak.without);
    assert!(took.as_secs() < 10, "it took {took:?}");

    // Its operation says how it came along and what stays; its events point to it.
    let shown = leak.api.get(&format!("/api/operations/{id}")).await.expect(200).json();
    assert_eq!((&shown["kind"], &shown["lane"]), (&json!("history.undo"), &json!("bulk_maintenance")));
    assert_eq!(
        shown["progress"],
        json!({"done": leak.size.zones, "total": leak.size.zones, "unit": "domains"})
    );
    let kept = leak.api.get(&format!("/api/operations/{id}/differences")).await.expect(200).json();
    assert_eq!(kept["items"][0]["key"], json!(["z000.test", "/rrsets/www/A"]));
    assert_eq!(kept["items"][0]["kind"], "kept");
    let events = leak.api.get("/api/events?domain=z001.test&type=domain.undone").await.expect(200).json();
    let fact = &events["items"][0];
    assert_eq!(fact["change"], json!(id));
    let request = leak
        .api
        .get(&format!("/api/events?after={}&limit=1", fact["cause"].as_i64().unwrap() - 1))
        .await
        .json();
    assert_eq!(
        (&request["items"][0]["type"], &request["items"][0]["data"]["token"]),
        (&json!("undo.requested"), &leak.token)
    );
    // Asked for again, there is nothing left to do.
    let again = leak.post(&leak.owner, "?dry_run=true").await;
    assert_eq!((&again["changed"], &again["diff"]), (&json!(false), &json!([])));
}

/// Nobody undoes anything in what is not theirs, and nobody else's rights are used for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stranger_undoes_nothing() {
    let leak = Leak::new(Size { zones: 2, leaked: 6, others: 4 }).await;
    let tenant: TenantId = leak.api.tenant("strangers").await;
    let (_, stranger) = leak.api.user("stranger@example.test", false, &[tenant]).await;
    let preview = leak.post(&stranger, "?dry_run=true").await;
    assert_eq!((&preview["domains"], &preview["diff"]), (&json!(0), &json!([])));
    tokio::spawn(runner::run(leak.api.app.clone()));
    let before = leak.held().await;
    let id = operation(&leak.post(&stranger, "").await);
    assert_eq!(ended(&leak.api.app.pool, id).await["state"], "succeeded");
    assert_eq!(leak.held().await, before);
    for (body, code) in [
        (json!({"token": leak.token}), "missing"),
        (json!({"token": "x", "since": leak.since}), "invalid_id"),
        (json!({"token": leak.token, "since": "yesterday"}), "invalid_time"),
        (json!({"token": leak.token, "since": leak.since, "until": "2000-01-01T00:00:00Z"}), "out_of_range"),
    ] {
        leak.api.send(&stranger, Method::POST, "/api/undo", Some(&body), &[]).await.expect_problem(422, code);
    }
}

async fn ask(app: &App, leak: &Leak) -> OperationId {
    let token = TokenId::from_uuid(leak.token.as_str().unwrap().parse().unwrap());
    let since = Timestamp::parse(&leak.since).unwrap();
    let requested = UndoRequested { token, since, until: None, allowed: Vec::new(), take_over: false };
    let operation = OperationId::from_uuid(Uuid::now_v7());
    let command = Command::admin(AdminCommand::RequestUndo { operation, requested });
    let actor = Actor { kind: ActorKind::System, ..Actor::SYSTEM };
    let caller = Caller { actor, ..Caller::system() };
    app.commit.submit(caller, command, Meta::internal()).await.unwrap();
    operation
}

/// `kill -9` before and after a domain is done and before the end: another process goes on, each domain gets one
/// revision, and nothing of others is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_on_the_way_it_goes_on() {
    for (point, nth) in [("undo.before_domain", 2), ("undo.after_domain", 2), ("operation.before_finish", 1)]
    {
        let leak = Leak::new(Size { zones: 4, leaked: 12, others: 8 }).await;
        let id = ask(&leak.api.app, &leak).await;
        Runner::at(leak.api.database.url(), point, nth).await.kill();
        tokio::spawn(runner::run(leak.api.app.clone()));
        let end = ended(&leak.api.app.pool, id).await;
        assert_eq!(end["state"], "succeeded", "{point}: {end}");
        assert_eq!(leak.held().await, leak.without, "{point}");
        for n in 0..leak.size.zones {
            let count = "select count(*) from events where domain = $1 and type = 'domain.undone'";
            let query = || async {
                let query = sqlx::query_scalar::<_, i64>(count).bind(format!("z{n:03}.test"));
                query.fetch_one(&leak.api.app.pool).await.unwrap()
            };
            assert_eq!(eventually("it is undone", query, |count| *count > 0).await, 1, "{point}: zone {n}");
        }
    }
}
