//! The commands against a real `headwater serve` on a real database, from `init` to the deletion of a domain.

use std::process::Stdio;

use headwater::demo::ports::PortLease;
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use super::script::{Ran, run};
use crate::support::{TestDb, eventually};

/// A control plane that runs, with the configuration of its operator.
pub struct Platform {
    config: String,
    pub dir: tempfile::TempDir,
    /// Where it listens for edges.
    pub edge_control: std::net::SocketAddr,
    /// Where it answers.
    pub api: String,
    serve: Child,
    _ports: [PortLease; 3],
    db: TestDb,
}

impl Platform {
    pub async fn start() -> Self {
        Self::with("", "").await
    }

    /// One with more in its configuration: beside the listener for edges, and in sections of its own.
    pub async fn with(edge_control_too: &str, sections: &str) -> Self {
        let (db, dir) = (TestDb::new().await, tempfile::tempdir().unwrap());
        let ports = [PortLease::take().unwrap(), PortLease::take().unwrap(), PortLease::take().unwrap()];
        let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
        let [listen, metrics, edge_control] = std::array::from_fn(|n| ports[n].port().address());
        let config = path("headwater.toml");
        std::fs::write(path("database-url"), db.url().expose()).unwrap();
        let text = format!(
            "[database]\nurl_file = \"database-url\"\n[server]\nlisten = \"{listen}\"\nmetrics_listen = \"{metrics}\"\n\
             [edge_control]\nlisten = \"{edge_control}\"\n{edge_control_too}{sections}[client]\nurl = \"http://{listen}\"\ntoken_file = \"admin-token\"\n"
        );
        std::fs::write(&config, text).unwrap();
        let token = path("admin-token");
        for arguments in [
            &["--config", &config, "migrate"][..],
            &["init", "--config", &config, "--admin-email", "admin@example.test", "--token-file", &token],
        ] {
            let ran = run(arguments, &[]).await;
            assert_eq!(ran.code, 0, "{arguments:?}: {ran:?}");
        }
        let mut serve = Command::new(env!("CARGO_BIN_EXE_headwater"));
        serve.args(["--config", &config, "serve"]).env_clear().kill_on_drop(true);
        serve.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let serve = serve.spawn().unwrap();
        let _installed = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let ask = || reqwest::get(format!("http://{listen}/readyz"));
        let _ready = eventually("the API is ready", ask, |answer| {
            answer.as_ref().is_ok_and(|answer| answer.status().is_success())
        })
        .await;
        Self { config, dir, edge_control, api: format!("http://{listen}"), serve, _ports: ports, db }
    }

    /// Where its log is.
    pub fn database_url(&self) -> &str {
        self.db.url().expose()
    }

    /// `kill -9` of the control plane.
    pub async fn kill(&mut self) {
        self.serve.kill().await.unwrap();
    }

    async fn run(&self, arguments: &[&str]) -> Ran {
        run(&[&["--config", &self.config][..], arguments].concat(), &[]).await
    }

    /// Runs a command that must end with this code.
    pub async fn expect(&self, code: i32, arguments: &[&str]) -> Ran {
        let ran = self.run(arguments).await;
        assert_eq!(ran.code, code, "{arguments:?}: {ran:?}");
        ran
    }

    /// Runs a command that must end well, and reads its JSON.
    pub async fn json(&self, arguments: &[&str]) -> Value {
        let ran = self.expect(0, &[&["--json"], arguments].concat()).await;
        serde_json::from_str(&ran.out).unwrap_or_else(|_| panic!("not JSON: {ran:?}"))
    }
}

#[tokio::test]
async fn a_domain_is_made_filled_changed_under_conditions_and_deleted() {
    let on = Platform::start().await;
    let made =
        on.expect(0, &["domain", "create", "example.test", "--active", "--label", "customer=4711"]).await;
    assert!(made.out.starts_with("example.test: accepted, revision 1, active, operation "), "{made:?}");
    let taken = on.expect(3, &["domain", "create", "example.test"]).await;
    assert!(taken.err.contains("[name_taken]"), "{taken:?}");
    let missing = on.expect(1, &["domain", "show", "unknown.test"]).await;
    assert!(missing.err.contains("unknown.test") && missing.err.contains("[not_found]"), "{missing:?}");
    let listed = on.json(&["domain", "list", "--label", "customer=4711"]).await;
    assert_eq!(listed["items"][0]["name"], "example.test");

    on.expect(0, &["rrset", "set", "example.test", "www", "a", "192.0.2.1", "--note", "für später"]).await;
    let same = on.expect(0, &["rrset", "set", "example.test", "www", "A", "192.0.2.1"]).await;
    assert_eq!(same.out, "www A in example.test: nothing changed, revision 2\n");
    on.expect(0, &["rrset", "add", "example.test", "www", "A", "192.0.2.2"]).await;
    on.expect(0, &["rrset", "remove", "example.test", "www", "A", "192.0.2.1"]).await;
    let got = on.json(&["rrset", "get", "example.test", "www", "A"]).await;
    assert_eq!((&got["records"], &got["changed"]["revision"]), (&json!(["192.0.2.2"]), &json!(4)));
    let wrong = on.expect(1, &["rrset", "set", "example.test", "www", "A", "x", "192.0.2.300"]).await;
    assert!(wrong.err.contains("/records/0: ") && wrong.err.contains("/records/1: "), "{wrong:?}");
    let stale = on.expect(3, &["rrset", "delete", "example.test", "www", "A", "--if-match", "2"]).await;
    assert!(stale.err.contains("--if-match 4"), "{stale:?}");
    on.expect(3, &["rrset", "set", "example.test", "www", "A", "192.0.2.1", "--create-only"]).await;
    let dry = on
        .expect(0, &["rrset", "set", "example.test", "@", "MX", "10 mail.example.test.", "--dry-run"])
        .await;
    assert!(dry.out.contains("mail.example.test."), "{dry:?}");
    on.expect(1, &["rrset", "get", "example.test", "@", "MX"]).await;

    let batch = on.dir.path().join("batch.json");
    let put = |n: usize| json!({"op": "put", "name": format!("h{n}"), "type": "A", "ttl": 60, "records": ["192.0.2.7"]});
    std::fs::write(&batch, Value::from_iter((0..30).map(put)).to_string()).unwrap();
    let batch = batch.to_str().unwrap();
    on.expect(0, &["rrset", "batch", "example.test", batch]).await;
    let all = on.json(&["rrset", "list", "example.test"]).await;
    assert!(all["items"].as_array().unwrap().len() >= 31, "{all}");
    let delete = |n: usize| json!({"op": "delete", "name": format!("h{n}"), "type": "A"});
    std::fs::write(batch, json!({"changes": Vec::from_iter((0..30).map(delete))}).to_string()).unwrap();
    let guarded = on.expect(3, &["rrset", "batch", "example.test", batch]).await;
    assert!(guarded.err.contains("--allow mass_delete"), "{guarded:?}");
    on.expect(0, &["rrset", "batch", "example.test", batch, "--allow", "mass_delete"]).await;

    let key = "0b0e5c8e-6f0c-4d0e-9a55-0d8c2c7f3a11";
    let delete = ["domain", "delete", "example.test", "--idempotency-key", key];
    let first = on.expect(0, &delete).await;
    let again = on.expect(0, &delete).await;
    assert!(again.err.contains("done before") && again.out == first.out, "{again:?}");
    on.expect(0, &["domain", "restore", "example.test"]).await;
    let patched = on.expect(0, &["domain", "patch", "example.test", "--remove-label", "customer"]).await;
    assert!(patched.out.starts_with("example.test: accepted"), "{patched:?}");
    assert_eq!(on.json(&["domain", "show", "example.test"]).await["labels"], json!({}));
    history(&on).await;
    let verified = on.expect(0, &["audit", "verify"]).await;
    assert!(verified.out.contains("as it was written"), "{verified:?}");
}

/// What happened so far, in every form that the commands show it in.
async fn history(on: &Platform) {
    let of_it = ["--domain", "example.test"];
    let listed =
        on.json(&[&["events", "list", "--limit", "1000", "--type", "rrset."], &of_it[..]].concat()).await;
    let items = listed["items"].as_array().unwrap();
    assert_eq!(items[0]["type"], "rrset.replaced");
    assert_eq!(items[0]["note"], "für später");
    let positions: Vec<u64> = items.iter().map(|item| item["position"].as_u64().unwrap()).collect();
    assert!(positions.is_sorted() && positions.len() > 60, "{positions:?}");

    let count = positions.len().to_string();
    let tail = ["events", "tail", "--after", "0", "--type", "rrset.", "--limit", &count, "--json"];
    let tailed = on.expect(0, &[&tail[..], &of_it].concat()).await;
    let same = |line: &str| serde_json::from_str::<Value>(line).unwrap()["position"].as_u64().unwrap();
    assert_eq!(tailed.out.lines().map(same).collect::<Vec<_>>(), positions);
    let people = on.expect(0, &[&["events", "list", "--limit", "3"], &of_it[..]].concat()).await;
    assert_eq!(people.out.lines().count(), 3, "{people:?}");
    assert!(people.err.contains("--cursor"), "{people:?}");

    let audit = on.json(&[&["audit", "list", "--type", "domain."], &of_it[..]].concat()).await;
    let kinds: Vec<&str> =
        audit["items"].as_array().unwrap().iter().map(|item| item["type"].as_str().unwrap()).collect();
    assert!(kinds.contains(&"domain.created"), "{kinds:?}");
    let csv = on.expect(0, &[&["audit", "export", "--format", "csv"], &of_it[..]].concat()).await;
    assert!(csv.out.lines().count() > positions.len(), "{}", csv.out);

    let operations = on.json(&[&["op", "list", "--limit", "1"], &of_it[..]].concat()).await;
    let id = operations["items"][0]["id"].as_str().unwrap();
    let shown = on.json(&["op", "show", id]).await;
    assert_eq!(shown["domain"], "example.test");
    let timeline = on.expect(0, &["op", "timeline", id]).await;
    assert!(timeline.out.contains("committed"), "{timeline:?}");
    let late = on.expect(1, &["op", "wait", id, "--timeout", "1"]).await;
    assert!(late.err.contains("op wait"), "{late:?}");
}
