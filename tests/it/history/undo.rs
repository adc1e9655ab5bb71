//! Undoing one revision through the API.

use reqwest::Method;
use serde_json::{Value, json};

use super::{ZONE, api, paths, put};
use crate::support::{Answer, TestApi};

async fn undo(api: &TestApi, revision: i64, query: &str, headers: &[(&str, &str)]) -> Answer {
    let body = json!({"revision": revision});
    api.send(&api.admin, Method::POST, &format!("{ZONE}/undo{query}"), Some(&body), headers).await
}

async fn addresses(api: &TestApi, owner: &str) -> Value {
    api.get(&format!("{ZONE}/rrsets/{owner}/A")).await.json()["records"].clone()
}

#[tokio::test]
async fn one_revision_is_undone_by_itself() {
    let api = api("").await;
    put(&api, "www", &["192.0.2.1"]).await;
    let changes = json!({"changes": [
        {"op": "put", "name": "www", "type": "A", "ttl": 300, "records": ["192.0.2.66"]},
        {"op": "put", "name": "evil", "type": "A", "ttl": 300, "records": ["192.0.2.66"]},
    ]});
    api.call(Method::POST, &format!("{ZONE}/rrsets/batch"), changes).await.expect(202);
    put(&api, "other", &["192.0.2.7"]).await;
    let add = json!({"changes": [{"op": "add", "name": "www", "type": "A", "records": ["192.0.2.3"]}]});
    api.call(Method::POST, &format!("{ZONE}/rrsets/batch"), add).await.expect(202);

    let plan = undo(&api, 3, "?dry_run=true", &[]).await.expect(200).json();
    assert_eq!(paths(&plan["diff"]), ["/rrsets/evil/A", "/rrsets/www/A"]);
    assert_eq!((&plan["if_match"], &plan["not_restored"]), (&json!("\"5\""), &json!([])));
    undo(&api, 3, "", &[("if-match", "\"4\"")]).await.expect_problem(412, "revision_mismatch");
    let key = uuid::Uuid::new_v4().to_string();
    let headers = [("if-match", "\"5\""), ("idempotency-key", key.as_str()), ("change-note", "not ours")];
    let done = undo(&api, 3, "", &headers).await.expect(202);
    let body = done.json();
    assert_eq!((&body["changed"], &body["revision"]), (&json!(true), &json!(6)));
    let again = undo(&api, 3, "", &headers).await.expect(202);
    assert_eq!((again.header("idempotency-replayed"), again.json()), ("true", body));
    // What others added later is kept, and so is what they made beside it.
    assert_eq!(addresses(&api, "www").await, json!(["192.0.2.1", "192.0.2.3"]));
    assert_eq!(addresses(&api, "other").await, json!(["192.0.2.7"]));
    api.get(&format!("{ZONE}/rrsets/evil/A")).await.expect_problem(404, "not_found");
    let operation = api.get(done.header("location")).await.expect(200).json();
    assert_eq!((&operation["kind"], &operation["revision"]), (&json!("domain.undo"), &json!(6)));

    // Its events point to the revision that is undone.
    let events = api.get("/api/events?type=domain.").await.expect(200).json();
    let fact =
        events["items"].as_array().unwrap().iter().find(|event| event["type"] == "domain.undone").unwrap();
    assert_eq!(
        (&fact["data"], &fact["note"]),
        (&json!({"revisions": [3], "edges": false}), &json!("not ours"))
    );
    let batch = api.get("/api/events?type=rrset.").await.expect(200).json();
    let first = batch["items"].as_array().unwrap().iter().find(|event| event["revision"] == 3).unwrap();
    assert_eq!(fact["cause"], first["position"]);
    let shown = api.get(&format!("{ZONE}/revisions/6")).await.expect(200).json();
    assert_eq!(paths(&shown["changes"]), paths(&plan["diff"]));

    // Once is enough; and an undo can be undone, which only takes back what it did.
    assert_eq!(undo(&api, 3, "", &[]).await.expect(200).json()["changed"], json!(false));
    assert_eq!(undo(&api, 6, "", &[]).await.expect(202).json()["revision"], 7);
    assert_eq!(addresses(&api, "www").await, json!(["192.0.2.3", "192.0.2.66"]));
    assert_eq!(addresses(&api, "evil").await, json!(["192.0.2.66"]));
}

#[tokio::test]
async fn where_others_decided_since_nothing_is_undone_and_each_is_named() {
    let api = api("").await;
    put(&api, "www", &["192.0.2.1"]).await;
    let changes = json!({"changes": [
        {"op": "put", "name": "www", "type": "A", "ttl": 300, "records": ["192.0.2.66"]},
        {"op": "put", "name": "a", "type": "A", "ttl": 300, "records": ["192.0.2.66"]},
        {"op": "put", "name": "b", "type": "A", "ttl": 300, "records": ["192.0.2.66"]},
    ]});
    api.call(Method::POST, &format!("{ZONE}/rrsets/batch"), changes).await.expect(202);
    put(&api, "www", &["192.0.2.5"]).await;
    put(&api, "a", &["192.0.2.6"]).await;
    let head = api.head().await;
    for query in ["", "?dry_run=true"] {
        let refused = undo(&api, 3, query, &[]).await.expect_problem(409, "undo_conflict").json();
        let named: Vec<(&str, bool)> = refused["errors"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| {
                (one["pointer"].as_str().unwrap(), one["detail"].as_str().unwrap().contains("revision"))
            })
            .collect();
        assert_eq!(named, [("/rrsets/a/A", true), ("/rrsets/www/A", true)], "{refused}");
        assert!(refused["errors"][1]["detail"].as_str().unwrap().contains("revision 4"), "{refused}");
    }
    assert_eq!(api.head().await, head, "nothing was written");
    assert_eq!(addresses(&api, "b").await, json!(["192.0.2.66"]));
}

#[tokio::test]
async fn what_cannot_be_undone_is_said() {
    let api = api("").await;
    let post = async |body: Value| api.call(Method::POST, &format!("{ZONE}/undo"), body).await;
    post(json!({})).await.expect_problem(422, "missing");
    post(json!({"revision": 1, "x": 1})).await.expect_problem(422, "unknown_field");
    for number in [0, -1, 2, i64::MAX] {
        post(json!({"revision": number})).await.expect_problem(422, "unknown_revision");
    }
    post(json!({"revision": 1})).await.expect_problem(422, "not_undoable");
    api.call(Method::POST, &format!("{ZONE}/purges"), json!({"type": "all"})).await.expect(202);
    let told = post(json!({"revision": 2})).await.expect_problem(422, "not_undoable").json();
    assert!(told["detail"].as_str().unwrap().contains("purged"), "{told}");
    // The guards of any change are those of an undo.
    let many: Vec<Value> = (0..25)
        .map(|n| json!({"op": "put", "name": format!("n{n}"), "type": "A", "ttl": 300, "records": ["192.0.2.1"]}))
        .collect();
    api.call(Method::POST, &format!("{ZONE}/rrsets/batch"), json!({"changes": many})).await.expect(202);
    undo(&api, 3, "", &[]).await.expect_problem(409, "guarded");
    undo(&api, 3, "?allow=empties_zone,mass_delete", &[]).await.expect(202);
}

/// A proxied name and the cache's policy come back as one revision, whose operation waits for cells too.
#[tokio::test]
async fn what_edges_serve_is_undone_too() {
    let api = api("").await;
    let host = |n: u8| json!({"origin": {"scheme": "http", "host": format!("8.8.8.{n}")}});
    api.call(Method::PUT, &format!("{ZONE}/hostnames/shop"), host(1)).await.expect(202);
    api.call(Method::PUT, &format!("{ZONE}/hostnames/shop"), host(2)).await.expect(202);
    api.call(Method::PATCH, &format!("{ZONE}/cache"), json!({"edge_ttl_seconds": 9})).await.expect(202);
    let done = undo(&api, 3, "", &[]).await.expect(202);
    let operation = api.get(done.header("location")).await.expect(200).json();
    assert_eq!(operation["kind"], "domain.undo_edges");
    let shop = api.get(&format!("{ZONE}/hostnames/shop")).await.expect(200).json();
    assert_eq!(shop["origin"]["host"], "8.8.8.1");
    assert_eq!(api.get(&format!("{ZONE}/cache")).await.json()["edge_ttl_seconds"], 9);
    undo(&api, 4, "", &[]).await.expect(202);
    assert_eq!(api.get(&format!("{ZONE}/cache")).await.json()["edge_ttl_seconds"], 3_600);
}
