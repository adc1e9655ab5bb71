//! What a rollback answers, keeps, refuses and says.

use reqwest::Method;
use serde_json::{Value, json};

use super::{Lived, NAME, ZONE};
use crate::support::{TestApi, schema};

const HOUR: i64 = 3_600_000;

fn origin(host: &str) -> Value {
    json!({"origin": {"scheme": "http", "host": host, "host_header": "www.example.test"}})
}

/// A domain with something of everything: at revision 7 it is worth going back to.
async fn rich() -> (Lived, Value) {
    let lived = Lived::new("").await;
    lived.put("www", "192.0.2.1").await;
    lived.put("gone", "192.0.2.2").await;
    let call = async |method: Method, path: &str, body: Value| {
        lived.api.call(method, &format!("{ZONE}{path}"), body).await.expect(202)
    };
    call(Method::PUT, "/hostnames/shop", origin("origin.example.org")).await;
    call(Method::PATCH, "/cache", json!({"edge_ttl_seconds": 60})).await;
    call(Method::PATCH, "", json!({"external_id": "4711"})).await;
    call(Method::PUT, "/rrsets/@/MX", json!({"ttl": 60, "records": ["10 mx.example.net."], "comment": "c"}))
        .await;
    lived.verified(7).await;
    let then = lived.desired().await;
    // From here on it goes wrong: 8 to 15.
    lived.put("www", "192.0.2.99").await;
    call(Method::DELETE, "/rrsets/gone/A", Value::Null).await;
    lived.put("new", "192.0.2.3").await;
    call(Method::DELETE, "/hostnames/shop", Value::Null).await;
    call(Method::PATCH, "/cache", json!({"edge_ttl_seconds": null, "enabled": false})).await;
    call(Method::PATCH, "", json!({"external_id": null, "labels": {"plan": "b"}, "serial_floor": 1000}))
        .await;
    call(Method::POST, "/purges", json!({"type": "all"})).await;
    call(Method::DELETE, "/rrsets/@/MX", Value::Null).await;
    (lived, then)
}

fn described() -> Value {
    serde_json::from_str(headwater::http::router::document().unwrap().text()).unwrap()
}

fn hold(name: &str, value: &Value) {
    let document = described();
    let reference = json!({"$ref": format!("#/components/schemas/{name}")});
    let found = schema::differences(&document, &reference, value);
    assert!(found.is_empty(), "{}\n{value}", found.join("\n"));
}

#[tokio::test]
async fn everything_is_as_it_was_as_one_new_revision() {
    let (lived, then) = rich().await;
    let now = lived.desired().await;
    assert_ne!(then, now);

    let plan = lived.rollback_with(7, "?dry_run=true", &[]).await.expect(200).json();
    hold("DryRun", &plan);
    let paths = |rows: &Value| {
        rows.as_array()
            .unwrap()
            .iter()
            .map(|row| row["path"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let expected = [
        "/rrsets/@/MX",
        "/rrsets/gone/A",
        "/rrsets/new/A",
        "/rrsets/www/A",
        "/hostnames/shop",
        "/cache",
        "/",
    ];
    assert_eq!(paths(&plan["diff"]), expected);
    let row = |path: &str| plan["diff"].as_array().unwrap().iter().find(|row| row["path"] == path).unwrap();
    assert_eq!(row("/rrsets/new/A")["after"], Value::Null);
    assert_eq!(row("/rrsets/gone/A")["before"], Value::Null);
    let www = row("/rrsets/www/A");
    assert_eq!(
        (&www["before"]["records"], &www["after"]["records"]),
        (&json!(["192.0.2.99"]), &json!(["192.0.2.1"]))
    );
    let kept = |body: &Value| {
        let kept = body["not_restored"].as_array().unwrap().iter();
        kept.map(|one| one["what"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(kept(&plan), ["cache_epoch", "serial_base"]);
    assert_eq!((&plan["if_match"], lived.desired().await), (&json!("\"15\""), now));

    // Exactly that, once, under its condition and its key.
    let key = uuid::Uuid::new_v4().to_string();
    let late = lived.rollback_with(7, "", &[("if-match", "\"14\"")]).await;
    late.expect_problem(412, "revision_mismatch");
    let headers =
        [("if-match", "\"15\""), ("idempotency-key", key.as_str()), ("change-note", "it went wrong")];
    let done = lived.rollback_with(7, "", &headers).await.expect(202);
    let body = done.json();
    hold("RolledBack", &body);
    assert_eq!((&body["changed"], &body["revision"]), (&json!(true), &json!(16)));
    assert_eq!(kept(&body), ["cache_epoch", "serial_base"]);
    assert_eq!(lived.desired().await, then);
    let operation = lived.api.get(done.header("location")).await.expect(200).json();
    assert_eq!((&operation["kind"], &operation["revision"]), (&json!("domain.rollback_edges"), &json!(16)));
    let again = lived.rollback_with(7, "", &headers).await.expect(202);
    assert_eq!((again.header("idempotency-replayed"), again.json()), ("true", body));

    let shown = lived.api.get(&format!("{ZONE}/revisions/16")).await.expect(200).json();
    assert_eq!((&shown["type"], &shown["note"]), (&json!("domain.rolled_back"), &json!("it went wrong")));
    assert_eq!(paths(&shown["changes"]), expected);
    assert_eq!(shown["events"], 8, "the fact and what it changed");

    // What is so already is nothing; what was undone can be undone.
    let head = lived.api.head().await;
    for to in [7, 16] {
        let same = lived.rollback(to).await.expect(200).json();
        hold("RolledBack", &same);
        assert_eq!((&same["changed"], &same["revision"]), (&json!(false), &json!(16)));
    }
    assert_eq!(lived.api.head().await, head);
}

#[tokio::test]
async fn a_rollback_can_be_rolled_back() {
    let (lived, then) = rich().await;
    let wrong = lived.desired().await;
    lived.verified(15).await;
    assert_eq!(lived.rollback(7).await.expect(202).json()["revision"], 16);
    assert_eq!(lived.rollback(15).await.expect(202).json()["revision"], 17);
    assert_eq!(lived.desired().await, wrong);
    assert_eq!(lived.rollback(7).await.expect(202).json()["revision"], 18);
    assert_eq!(lived.desired().await, then);
}

/// One that leaves edges alone waits for no cell, and its operation says so by its kind.
#[tokio::test]
async fn one_of_rrsets_alone_is_one_of_the_dns() {
    let lived = Lived::new("").await;
    lived.put("www", "192.0.2.1").await;
    lived.verified(2).await;
    lived.put("www", "192.0.2.2").await;
    let done = lived.rollback(2).await.expect(202);
    let operation = lived.api.get(done.header("location")).await.expect(200).json();
    assert_eq!((&operation["kind"], &done.json()["not_restored"]), (&json!("domain.rollback"), &json!([])));
}

#[tokio::test]
async fn only_what_is_retained_and_validated_comes_back() {
    let lived = Lived::new("[limits]\nrevision_newest = 3\n").await;
    for n in 1..=8 {
        lived.put("www", &format!("192.0.2.{n}")).await;
    }
    // Revisions 2 to 9. Of these 2, 4, 5 and 8 were seen by a target.
    for revision in [2, 4, 5, 8] {
        lived.verified(revision).await;
    }
    assert_eq!(lived.revisions("validated").await, [2, 4, 5, 8]);
    assert_eq!(lived.revisions("retained").await, [1, 2, 3, 4, 5, 6, 7, 8, 9]);
    let refused = lived.rollback(6).await.expect_problem(409, "not_validated").json();
    assert_eq!(refused["nearest"], json!([5, 8]), "{refused}");
    assert!(
        refused["detail"].as_str().unwrap().contains("nearest that can be gone back to: 5, 8"),
        "{refused}"
    );
    lived.rollback_with(6, "?dry_run=true", &[]).await.expect_problem(409, "not_validated");
    // Labels change nothing that a target serves: 10 shows what 9 shows.
    lived.api.call(Method::PATCH, ZONE, json!({"labels": {"x": "y"}})).await.expect(202);
    lived.put("www", "192.0.2.77").await;
    lived.put("www", "192.0.2.78").await;
    lived.verified(11).await;
    assert_eq!(lived.revisions("validated").await, [2, 4, 5, 8, 11]);
    lived.verified(10).await;
    assert_eq!(lived.revisions("validated").await, [2, 4, 5, 8, 9, 10, 11]);

    // Back to 4, which is a rollback point from now on; 13 is the newest.
    lived.rollback(4).await.expect(202);
    // A day later only the three newest, what is active, and the rollback point are left.
    lived.api.clock.turn(25 * HOUR);
    assert_eq!(lived.revisions("retained").await, [4, 10, 11, 12, 13]);
    let refused = lived.rollback(9).await.expect_problem(409, "not_retained").json();
    assert_eq!(refused["nearest"], json!([4, 10]), "{refused}");
    lived.rollback(4).await.expect(200);
    // It stays readable for ever.
    let old = lived.api.get(&format!("{ZONE}/revisions/9")).await.expect(200).json();
    assert_eq!((&old["retained"], &old["validated"]), (&json!(false), &json!(true)));
    assert_eq!(old["changes"][0]["after"]["records"], json!(["192.0.2.8"]));
}

#[tokio::test]
async fn what_is_wrong_with_the_request_is_said() {
    let lived = Lived::new("").await;
    let post = async |body: Value| lived.api.call(Method::POST, &format!("{ZONE}/rollback"), body).await;
    post(json!({})).await.expect_problem(422, "missing");
    post(json!({"revision": "1"})).await.expect_problem(422, "invalid_type");
    post(json!({"revision": 1, "to": 1})).await.expect_problem(422, "unknown_field");
    for number in [0, -1, 2, i64::MAX] {
        let told = post(json!({"revision": number})).await.expect_problem(422, "unknown_revision").json();
        assert_eq!(told["errors"][0]["pointer"], "/revision");
    }
    for n in 0..21 {
        lived.put(&format!("n{n}"), "192.0.2.1").await;
    }
    lived.verified(1).await;
    let guarded = lived.rollback(1).await.expect_problem(409, "guarded").json();
    assert_eq!(guarded["guards"], json!(["empties_zone", "mass_delete"]));
    let plan = lived.rollback_with(1, "?dry_run=true", &[]).await.expect(200).json();
    assert_eq!((plan["diff"].as_array().unwrap().len(), &plan["guards"]), (21, &guarded["guards"]));
    lived.rollback_with(1, "?allow=empties_zone,mass_delete", &[]).await.expect(202);
    let events =
        lived.api.get(&format!("/api/events?domain={NAME}&type=rrset.deleted")).await.expect(200).json();
    assert_eq!(events["items"][0]["data"]["allowed"], json!(["empties_zone", "mass_delete"]));
    lived.api.call(Method::DELETE, ZONE, Value::Null).await.expect(202);
    lived.rollback(1).await.expect_problem(404, "not_found");
}

/// While nobody serves a domain, nobody can have verified it: its owner can still go back.
#[tokio::test]
async fn what_is_not_served_yet_goes_back_too() {
    let api = TestApi::start("").await;
    api.call(Method::POST, "/api/domains", json!({"name": NAME})).await.expect(201);
    for n in 1..=2 {
        let body = json!({"ttl": 300, "records": [format!("192.0.2.{n}")]});
        api.call(Method::PUT, &format!("{ZONE}/rrsets/www/A"), body).await.expect(200);
    }
    let done =
        api.call(Method::POST, &format!("{ZONE}/rollback"), json!({"revision": 2})).await.expect(200).json();
    assert_eq!(
        (&done["changed"], &done["revision"], &done["operation"]),
        (&json!(true), &json!(4), &Value::Null)
    );
    let www = api.get(&format!("{ZONE}/rrsets/www/A")).await.expect(200).json();
    assert_eq!(www["records"], json!(["192.0.2.1"]));
}
