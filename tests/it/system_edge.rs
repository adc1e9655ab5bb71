//! The edge of the whole system as `make demo` starts it: whichever process is killed, visitors are served and the part
//! comes back; a demo that follows a killed one has the same edge.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::eventually;
use crate::system::{Client, Demo};

const HOST: &str = "www.edge.example";
/// How often a visitor comes.
const PACE: Duration = Duration::from_millis(15);
/// How long a visitor waits.
const PATIENCE: Duration = Duration::from_secs(15);

/// A visitor of a hostname at an address.
#[derive(Clone)]
struct Visitor {
    root: String,
    http: reqwest::Client,
}

impl Visitor {
    fn of(facts: &Value) -> Self {
        let root = facts["edges"][0]["http"].as_str().unwrap().to_owned();
        // Each request comes over a connection of its own, as those of different visitors do.
        let http = reqwest::Client::builder().no_proxy().pool_max_idle_per_host(0).timeout(PATIENCE);
        Self { root, http: http.build().unwrap() }
    }

    /// Status, what the cache said, body; status 0: nothing.
    async fn get(&self, path: &str) -> (u16, String, String) {
        let asked = self.http.get(format!("{}{path}", self.root)).header("host", HOST).send().await;
        let Ok(answer) = asked else { return (0, String::new(), String::new()) };
        let said = answer.headers().get("cache-status").map(|value| value.to_str().unwrap().to_owned());
        (answer.status().as_u16(), said.unwrap_or_default(), answer.text().await.unwrap_or_default())
    }

    /// Comes again and again; gives how many were served, and what others got.
    async fn come(self, stop: Arc<AtomicBool>) -> (u32, Vec<(u16, String)>) {
        let (mut served, mut bad, mut pace) = (0, Vec::new(), tokio::time::interval(PACE));
        // Who had to wait does not come faster afterwards: that would be a burst, which a cell refuses.
        pace.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        while !stop.load(Ordering::Relaxed) {
            pace.tick().await;
            match self.get("/kept").await {
                (200, ..) => served += 1,
                (status, _, body) => bad.push((status, body)),
            }
        }
        (served, bad)
    }
}

/// Puts a name before the demo's origin.
async fn proxy(demo: &Demo, client: &Client) {
    let body = json!({"name": "edge.example", "force_active": true});
    let (status, made) = client.send(Method::POST, "/api/domains", Some(body)).await;
    assert_eq!(status, 202, "{made}");
    let origin = demo.facts()["origin"].as_str().unwrap().to_owned();
    let port: u16 = origin.rsplit(':').next().unwrap().parse().unwrap();
    let origin = json!({"scheme": "http", "host": "127.0.0.1", "port": port, "host_header": HOST});
    let path = "/api/domains/edge.example/hostnames/www";
    let (status, put) = client.send(Method::PUT, path, Some(json!({"origin": origin, "backup": null}))).await;
    assert_eq!(status, 202, "{put}");
    let path = format!("/api/operations/{}?wait=20", put["operation"]["id"].as_str().unwrap());
    let look = || async { client.send(Method::GET, &path, None).await.1 };
    let ended = eventually("the edge serves it", look, |seen| {
        seen["state"] != "running" && seen["state"] != "pending"
    });
    let ended = ended.await;
    assert_eq!((&ended["state"], &ended["partial"]), (&json!("succeeded"), &json!([])), "{ended}");
    assert_eq!(ended["targets"]["total"], 4, "two clusters and two cells: {ended}");
}

/// The edge of a demo, by the API.
async fn edge(demo: &Demo, client: &Client) -> Value {
    let id = demo.facts()["edges"][0]["id"].as_str().unwrap().to_owned();
    client.send(Method::GET, &format!("/api/edges/{id}"), None).await.1
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn visitors_are_served_while_the_parts_of_the_edge_are_killed() {
    let mut demo = Demo::start().await;
    let facts = demo.facts();
    let client = Client::new(&facts);
    proxy(&demo, &client).await;
    let visitor = Visitor::of(&facts);
    let first = visitor.get("/kept").await;
    let again = visitor.get("/kept").await;
    assert_eq!((first.0, again.0, &first.2), (200, 200, &again.2), "an answer that is kept is given again");
    assert_eq!((first.1.as_str(), again.1.as_str()), ("headwater; fwd=uri-miss", "headwater; hit"));
    assert!(visitor.get("/other").await.2.starts_with("answer "), "the origin's answers have numbers");

    let stop = Arc::new(AtomicBool::new(false));
    let visits = tokio::spawn(visitor.clone().come(Arc::clone(&stop)));
    for part in ["headwater-edge", "nginx-1", "headwater", "nginx-2"] {
        let before = demo.pid(part).unwrap();
        kill(before, Signal::SIGKILL).unwrap();
        let look = || async { demo.pid(part) };
        eventually(&format!("{part} is back"), look, |now| now.is_some_and(|now| now != before)).await;
        let (status, _) = client.send(Method::GET, "/api/domains/edge.example", None).await;
        assert_eq!(status, 200);
        eventually("new answers come from the edge", || visitor.get("/"), |got| got.0 == 200).await;
    }
    stop.store(true, Ordering::Relaxed);
    let (served, bad) = visits.await.unwrap();
    println!("{served} visitors were served, {} were not", bad.len());
    assert!(served > 100 && bad.is_empty(), "{served} visitors were served, these were not: {bad:?}");

    // The demo itself: its successor has the same edge, which serves what it served.
    let known = edge(&demo, &client).await;
    demo.kill_and_restart().await;
    let now = edge(&demo, &Client::new(&demo.facts())).await;
    assert_eq!((&now["id"], &now["identity"]), (&known["id"], &known["identity"]));
    assert_eq!(demo.facts()["edges"][0]["state_dir"], facts["edges"][0]["state_dir"]);
    assert_eq!(Visitor::of(&demo.facts()).get("/after").await.0, 200);
}
