//! What the old server and ours answer, asked of both: the same after an import, and each difference told.

use headwater_events::ids::OperationId;
use reqwest::Method;
use serde_json::{Value, json};
use std::net::SocketAddr;

use super::old::{self, KINDS, Old};
use super::zones::{served, serving};
use super::{Importing, outcomes};
use crate::imperative::ended;

/// Zones of the trial: every kind three times.
const ZONES: usize = 3 * KINDS;

/// Compares, and gives the differences that are told.
async fn compare(importing: &Importing, import: OperationId, body: Value) -> Vec<Value> {
    let path = format!("/api/imports/{import}/compare");
    let asked = importing.api.call(Method::POST, &path, body).await.expect(202).json();
    let id: OperationId = asked["operation"]["id"].as_str().unwrap().parse().unwrap();
    let end = ended(&importing.api.app.pool, id).await;
    assert_eq!(end["state"], "succeeded", "{end}");
    let shown = importing.api.get(&format!("/api/operations/{id}")).await.expect(200).json();
    assert_eq!((&shown["kind"], &shown["progress"]["unit"]), (&json!("import.compare"), &json!("zones")));
    let path = format!("/api/operations/{id}/differences?limit=1000");
    let told = importing.api.get(&path).await.expect(200).json();
    let told = told["items"].as_array().unwrap().clone();
    let counted = end["result"]["differences"].as_u64().unwrap();
    assert_eq!(counted.min(1_000), u64::try_from(told.len()).unwrap());
    told
}

fn details(told: &[Value]) -> Vec<&str> {
    told.iter().map(|one| one["detail"].as_str().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_taken_in_is_answered_alike_and_what_is_not_is_told() {
    let old = Old::start(ZONES).await;
    old.sign(&old::name(10)).await;
    let importing = Importing::new().await;
    let (_stack, _) = serving(&importing).await;
    let (id, report) = importing.import(&old.database(), json!({})).await;
    assert_eq!(outcomes(&report), [("imported", ZONES - 3), ("refused", 3)].into());
    served(&importing).await;
    let server = old.dns.to_string();
    let same = compare(&importing, id, json!({"old": server})).await;
    assert!(same.is_empty(), "{:#?}", details(&same));

    // Each in a zone of its own: another value, another TTL, a name more, a name less, other glue, a wildcard less.
    for change in [
        "update records set content = '192.0.2.99' where name = 'a.z000.test' and type = 'A'",
        "update records set ttl = 60 where name = 'txt.z020.test' and type = 'TXT'",
        "delete from records where name = 'a.b.c.z002.test'",
        "update records set content = '192.0.2.98' where name = 'ns.sub.z003.test' and type = 'A'",
        "delete from records where name = '*.z001.test'",
    ] {
        old.sql(change).await;
    }
    let told = compare(&importing, id, json!({"old": server})).await;
    let all = details(&told);
    let about = |zone: &str| all.iter().filter(|detail| detail.contains(&format!("[\"{zone}\""))).count();
    assert_eq!((about("z000.test"), about("z020.test")), (1, 1), "{all:#?}");
    assert!(about("z002.test") >= 2 && about("z003.test") >= 2 && about("z001.test") >= 2, "{all:#?}");
    let zones = ["z000", "z020", "z002", "z003", "z001"];
    let others: Vec<_> = all.iter().filter(|text| !zones.iter().any(|zone| text.contains(zone))).collect();
    assert!(others.is_empty(), "{others:#?}");
    let value = all.iter().find(|detail| detail.contains("a.z000.test.")).unwrap();
    assert!(
        value.contains("A 192.0.2.1, where the old server says") && value.contains("A 192.0.2.99"),
        "{value}"
    );

    // Of one zone alone, and with TTLs as they may be.
    let only = json!({"old": server, "zones": ["z020.test"], "ignore_ttl": true});
    assert_eq!(compare(&importing, id, only).await, Vec::<Value>::new());
    // Where nobody answers, nothing is shown to be alike.
    let silent: SocketAddr = "127.0.0.1:9".parse().unwrap();
    let only = json!({"old": silent.to_string(), "zones": ["z000.test"]});
    let told = compare(&importing, id, only).await;
    assert!(told.len() > 30, "{:#?}", details(&told));
}
