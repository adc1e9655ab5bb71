//! The whole way of a visitor's request: the real control plane, a real DNS cluster, the real agent, real nginx, an
//! origin. What each side promises the other is only proven here.

mod drain;
mod host;
mod rotate;
mod tls;

use nix::sys::signal::Signal;
use reqwest::Method;
use serde_json::{Value, json};

use self::host::Host;
use crate::cli::walk::Platform;
use crate::support::{DnsStack, eventually};

const ZONE: &str = "/api/domains/example.test";
const WWW: &str = "www.example.test";
const CELLS: usize = 2;

/// A client of the API, as an administrator.
struct Api {
    root: String,
    token: String,
    http: reqwest::Client,
}

impl Api {
    fn of(on: &Platform) -> Self {
        let token = std::fs::read_to_string(on.dir.path().join("admin-token")).unwrap().trim().to_owned();
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        Self { root: on.api.clone(), token, http }
    }

    async fn call(&self, method: Method, path: &str, body: Option<Value>) -> Value {
        let mut request = self.http.request(method, format!("{}{path}", self.root)).bearer_auth(&self.token);
        request = request.header("idempotency-key", uuid::Uuid::now_v7().to_string());
        if let Some(body) = body {
            request = request.json(&body);
        }
        let answer = request.send().await.unwrap();
        let (status, text) = (answer.status(), answer.text().await.unwrap());
        assert!(status.is_success(), "{path}: {status} {text}");
        serde_json::from_str(&text).unwrap()
    }

    async fn get(&self, path: &str) -> Value {
        self.call(Method::GET, path, None).await
    }

    /// The operation of a mutation, once it has ended.
    async fn ended(&self, done: &Value) -> Value {
        let path = format!("/api/operations/{}", done["operation"]["id"].as_str().unwrap());
        let look = || async { self.get(&path).await };
        eventually("the operation ends", look, |operation| {
            ["succeeded", "failed", "cancelled"].contains(&operation["state"].as_str().unwrap())
        })
        .await
    }

    /// Does something that every cell and the DNS cluster must take in.
    async fn everywhere(&self, method: Method, path: &str, body: Value) {
        let plan = self.call(method.clone(), &format!("{path}?dry_run=true"), Some(body.clone())).await;
        assert_eq!(plan["targets"], json!(["dns-1", "fra1/0", "fra1/1"]), "{plan}");
        let operation = self.ended(&self.call(method, path, Some(body)).await).await;
        assert_eq!(operation["state"], "succeeded", "{operation}");
        assert_eq!((&operation["partial"], &operation["warnings"]), (&json!([]), &json!([])), "{operation}");
        let all = json!({"total": CELLS + 1, "active": CELLS + 1, "unreachable": 0});
        assert_eq!(operation["targets"], all, "{operation}");
        let hops = self.get(&format!("/api/operations/{}/timeline", operation["id"].as_str().unwrap())).await;
        let hops = hops.as_array().unwrap().iter().filter(|hop| hop["stage"] == "verified");
        let mut verified: Vec<&str> = hops.map(|hop| hop["target"].as_str().unwrap()).collect();
        verified.sort_unstable();
        assert_eq!(verified, ["dns-1", "fra1/0", "fra1/1"], "{operation}");
        let shown = self.get(&format!("{ZONE}/status")).await;
        assert_eq!(shown["state"], "current", "{shown}");
        for deployment in shown["deployments"].as_array().unwrap() {
            assert_eq!(deployment["active_revision"], operation["revision"], "{deployment}");
        }
    }
}

fn proxied(host: &Host, owner: &str) -> (String, Value) {
    let origin =
        json!({"scheme": "http", "host": "127.0.0.1", "port": host.origin.port(), "host_header": WWW});
    (format!("{ZONE}/hostnames/{owner}"), json!({"origin": origin, "backup": null}))
}

/// A platform with a cluster, a domain, and an edge host that is enrolled as its operator is told to.
async fn lived(cells: usize) -> (Platform, Api, DnsStack, Host) {
    lived_with(cells, "").await
}

/// The same with an agent that finds a domain that does not compile.
async fn lived_with(cells: usize, refuses: &'static str) -> (Platform, Api, DnsStack, Host) {
    let stack = DnsStack::start(1).await;
    let sites = "[sites]\nunsafe_allow_loopback_origins = true\n[deploy]\npoll_milliseconds = 100\n";
    let on = Platform::with("heartbeat_seconds = 1\n", sites).await;
    let api = Api::of(&on);
    let node = &stack.clusters[0];
    let url = on.dir.path().join("dns-1.database-url");
    std::fs::write(&url, node.database_url().expose()).unwrap();
    let cluster = json!({"name": "dns-1", "dns": node.pdns.address().to_string(), "front": node.front.to_string(),
        "database_url_file": url, "enabled": true});
    api.call(Method::POST, "/api/dns-clusters", Some(cluster)).await;
    let domain = json!({"name": "example.test", "force_active": true});
    let made = api.call(Method::POST, "/api/domains", Some(domain)).await;
    assert_eq!(api.ended(&made).await["state"], "succeeded");
    let count = cells.to_string();
    let create = ["edge", "create", "fra1", "--country", "DE", "--continent", "EU", "--cells", &count];
    let command = on.expect(0, &create).await.out;
    let mut host = Host::new(cells, refuses).await;
    host.enroll(command.trim());
    host.start();
    let served = || async { on.json(&["edge", "status", "fra1"]).await };
    eventually("every cell is in service", served, |edge| {
        let states = edge["cell_states"].as_array().unwrap();
        states.len() == cells && states.iter().all(|cell| cell["ready"] == true)
    })
    .await;
    (on, api, stack, host)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hostname_is_served_purged_and_outlives_the_control_plane() {
    let (mut on, api, _stack, mut host) = lived(CELLS).await;
    let (path, body) = proxied(&host, "www");
    api.everywhere(Method::PUT, &path, body).await;
    // Once it has succeeded, the cell that the domain is placed on serves it, and keeps what it got.
    let cell = serving(&host, WWW).await;
    let first = host.get(cell, WWW, "/page").await;
    assert_eq!((first.0, host.get(cell, WWW, "/page").await), (200, first));
    assert_eq!(host.get(cell, "other.example.test", "/").await.0, 421);
    not_before_every_cell(&api, &host).await;

    let before = host.get(cell, WWW, "/page").await;
    api.everywhere(Method::POST, &format!("{ZONE}/purges"), json!({"type": "all"})).await;
    let after = host.get(cell, WWW, "/page").await;
    assert_eq!(after.0, 200);
    assert_ne!(before, after, "what was purged is given");
    assert_eq!(after, host.get(cell, WWW, "/page").await, "nothing is kept after a purge");

    on.expect(0, &["projection", "rebuild", "edge"]).await;
    let verified = on.expect(0, &["projection", "verify", "edge"]).await;
    assert!(verified.out.starts_with("edge: no difference"), "{verified:?}");
    let (path, body) = proxied(&host, "shop");
    api.everywhere(Method::PUT, &path, body).await;

    // A cell that is drained hands its domains to the other one.
    on.expect(0, &["edge", "drain", "fra1", "--cell", &cell.to_string()]).await;
    let other = 1 - cell;
    let look = || async { (host.get(other, WWW, "/page").await.0, host.get(cell, WWW, "/page").await.0) };
    eventually("the other cell serves it", look, |seen| *seen == (200, 421)).await;

    on.kill().await;
    assert_eq!(host.get(other, "shop.example.test", "/new").await.0, 200, "the control plane is gone");
    // The host itself may be started anew meanwhile.
    host.power_off();
    host.start();
    let look = || async { host.get(other, WWW, "/again").await.0 };
    eventually("it is served after a cold start", look, |status| *status == 200).await;
    // A cell that is still on its way up is not found when the host ends.
    let look = || async { host.get(cell, WWW, "/").await.0 };
    eventually("the other cell answers too", look, |status| *status == 421).await;
}

/// The one cell that serves a name.
async fn serving(host: &Host, name: &str) -> usize {
    let mut serving = Vec::new();
    for cell in 0..CELLS {
        match host.get(cell, name, "/").await.0 {
            200 => serving.push(cell),
            status => assert_eq!(status, 421, "cell {cell}"),
        }
    }
    assert_eq!(serving.len(), 1, "a domain stands on one cell of an edge: {serving:?}");
    serving[0]
}

/// While an agent stands still, its cells hold the operation open, though DNS has verified it. (A name that is new would
/// not be in DNS yet: edges come first.)
async fn not_before_every_cell(api: &Api, host: &Host) {
    host.signal(Signal::SIGSTOP);
    let change = json!({"edge_ttl_seconds": 600});
    let done = api.call(Method::PATCH, &format!("{ZONE}/cache"), Some(change)).await;
    let operation = format!("/api/operations/{}", done["operation"]["id"].as_str().unwrap());
    let look = || async { api.get(&operation).await };
    let open = eventually("DNS has verified it", look, |seen| seen["targets"]["active"] == 1).await;
    // Two looks of the one who ends operations later it is still open.
    let passed = tokio::time::Instant::now() + std::time::Duration::from_secs(3);
    let last = || async { (tokio::time::Instant::now() > passed, api.get(&operation).await) };
    let (_, still) = eventually("it is still open", last, |seen| seen.0).await;
    assert_eq!((&open["finished_at"], &still["finished_at"]), (&Value::Null, &Value::Null), "{still}");
    host.signal(Signal::SIGCONT);
    let ended = api.ended(&done).await;
    assert_eq!((&ended["state"], &ended["partial"]), (&json!("succeeded"), &json!([])), "{ended}");
}

/// A domain that cannot be served holds up nobody else, and everybody is told why.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_does_not_compile_is_refused_alone() {
    const REFUSED: &str = "refused.test";
    let (on, api, _stack, host) = lived_with(CELLS, REFUSED).await;
    let domain = json!({"name": REFUSED, "force_active": true});
    let made = api.call(Method::POST, "/api/domains", Some(domain)).await;
    assert_eq!(api.ended(&made).await["state"], "succeeded");
    let (path, body) = proxied(&host, "www");
    let refused = api.call(Method::PUT, &path.replace("example.test", REFUSED), Some(body.clone())).await;
    let operation = api.ended(&refused).await;
    assert_eq!((&operation["state"], &operation["error"]["code"]), (&json!("failed"), &json!("rejected")));
    let why = operation["error"]["detail"].as_str().unwrap();
    assert!(why.contains("does_not_compile: a fault that a test planted"), "{why}");

    let deployments = api.get(&format!("/api/domains/{REFUSED}/deployments")).await;
    let cells: Vec<_> = deployments["items"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|one| !one["target"]["cell"].is_null())
        .collect();
    assert_eq!(cells.len(), CELLS, "{deployments}");
    for cell in cells {
        assert_eq!((&cell["state"], &cell["active_revision"]), (&json!("rejected"), &Value::Null), "{cell}");
        assert!(cell["last_error"].as_str().unwrap().contains("a fault that a test planted"), "{cell}");
    }

    api.everywhere(Method::PUT, &path, body).await;
    serving(&host, WWW).await;
    let look = || async { on.json(&["edge", "status", "fra1"]).await };
    // The numbers of what changes nothing for edges are taken in too.
    let has = |edge: &Value, cell: &Value, what: &str| cell[what].as_i64() >= edge["desired"].as_i64();
    let is_told =
        |edge: &Value| edge["cell_states"].as_array().unwrap().iter().all(|cell| has(edge, cell, "loaded"));
    let edge = eventually("the heartbeat tells what is written", look, is_told).await;
    let cells = edge["cell_states"].as_array().unwrap();
    for cell in cells {
        assert!(has(&edge, cell, "active") && cell["lag"] == 0, "{cell}");
    }
    let blamed: Vec<_> = cells.iter().filter(|cell| !cell["refusal"].is_null()).collect();
    assert_eq!(blamed.len(), 1, "the domain stands on one cell: {edge}");
    let known =
        json!({"domain": REFUSED, "code": "does_not_compile", "detail": "a fault that a test planted"});
    for refusal in [&blamed[0]["refusal"], &edge["refusals"][0]] {
        for (key, value) in known.as_object().unwrap() {
            assert_eq!(&refusal[key], value, "{refusal}");
        }
    }
    for args in [&["edge", "status"][..], &["edge", "status", "fra1"]] {
        let shown = on.expect(0, args).await.out;
        let lines: Vec<_> = shown.lines().filter(|line| line.contains("fault that a test planted")).collect();
        assert!(!lines.is_empty() && lines.iter().all(|line| line.contains(REFUSED)), "{shown}");
    }
}
