//! Webhooks through the API: who may have one, what is said of it, its secret, and going back.

use reqwest::Method;
use serde_json::{Value, json};
use sqlx::AssertSqlSafe;
use std::sync::Arc;
use tokio::sync::Notify;

use super::lab::{Lab, Receiver, Reply, ZONE, quick};
use crate::http_schema::{described, hold};
use crate::support::eventually;

fn path_of(made: &crate::support::Answer) -> String {
    made.header("location").to_owned()
}

#[tokio::test]
async fn a_webhook_is_made_shown_changed_and_deleted() {
    let lab = Lab::new().await;
    lab.sends(quick(1));
    let body = json!({"name": "inventory", "url": "https://HOOKS.example.net", "types": ["rrset."],
        "domains": [ZONE], "labels": {"a": "b"}, "description": "what changes"});
    let key = uuid::Uuid::new_v4().to_string();
    let headers = [("Idempotency-Key", key.as_str())];
    let post = || lab.api.send(&lab.owner, Method::POST, "/api/webhooks", Some(&body), &headers);
    let made = post().await.expect(201);
    let hook = made.json();
    let secret = hook["secret"].as_str().unwrap().to_owned();
    assert!(secret.starts_with("whsec_") && secret.len() == 50, "{} octets", secret.len());
    assert_eq!((&hook["url"], &hook["enabled"]), (&json!("https://hooks.example.net/"), &json!(true)));
    assert_eq!((&hook["tenant"], &hook["domains"]), (&json!(lab.tenant), &json!([ZONE])));
    // The secret is shown once: a replay tells the rest.
    let again = post().await.expect(201).json();
    assert_eq!((&again["id"], &again["secret"]), (&hook["id"], &Value::Null));
    let path = path_of(&made);
    assert!(lab.show(&path).await.get("secret").is_none());
    let list = lab.own(Method::GET, "/api/webhooks", Value::Null).await.expect(200).json();
    assert_eq!((list["items"].as_array().unwrap().len(), &list["items"][0]["id"]), (1, &hook["id"]));

    let patch =
        json!({"labels": {"a": null, "c": "d"}, "description": null, "domains": ["*"], "enabled": false});
    let changed = lab.own(Method::PATCH, &path, patch).await.expect(200).json();
    assert_eq!((&changed["labels"], &changed["description"]), (&json!({"c": "d"}), &Value::Null));
    assert_eq!((&changed["domains"], &changed["disabled"]["reason"]), (&json!(["*"]), &json!("asked")));
    let dry = lab.own(Method::DELETE, &format!("{path}?dry_run=true"), Value::Null).await.expect(200).json();
    assert_eq!(dry["changed"], true);
    let headers = [("Idempotency-Key", "0190aaaa-0000-7000-8000-000000000001")];
    let delete = || lab.api.send(&lab.owner, Method::DELETE, &path, None, &headers);
    delete().await.expect(200);
    assert_eq!(delete().await.expect(200).header("idempotency-replayed"), "true");
    lab.own(Method::GET, &path, Value::Null).await.expect_problem(404, "not_found");
    lab.own(Method::DELETE, &path, Value::Null).await.expect_problem(404, "not_found");
    let log = lab.own(Method::GET, "/api/events?type=webhook.", Value::Null).await.json();
    let types: Vec<&str> =
        log["items"].as_array().unwrap().iter().map(|one| one["type"].as_str().unwrap()).collect();
    assert_eq!(types, ["webhook.created", "webhook.updated", "webhook.disabled", "webhook.deleted"]);
    assert!(!log.to_string().contains("whsec"));
    let left = || async {
        let count = "select (select count(*) from webhook_cursors) + (select count(*) from sealed_secrets \
                     where kind = 'webhook_secret')";
        sqlx::query_scalar::<_, i64>(count).fetch_one(&lab.api.app.pool).await.unwrap()
    };
    eventually("nothing is left of it", left, |left| *left == 0).await;
}

#[tokio::test]
async fn answers_are_as_they_are_described() {
    let (lab, document) = (Lab::new().await, described());
    lab.sends(quick(1));
    let failing = Receiver::start(|_, _| Reply::Says(500, "no".to_owned())).await;
    let body = json!({"name": "a", "url": failing.url(), "types": ["rrset."], "labels": {"a": "b"}});
    let made = lab.own(Method::POST, "/api/webhooks", body).await.expect(201);
    hold(&document, "post", "/api/webhooks", 201, &made.json());
    let path = path_of(&made);
    lab.put(ZONE, "192.0.2.1").await;
    let hook = lab.until(&path, "it is disabled or tried", |hook| hook["failing_since"].is_string()).await;
    hold(&document, "get", "/api/webhooks/{id}", 200, &hook);
    let rotated = lab.own(Method::PATCH, &path, json!({"rotate_secret": true})).await.expect(200).json();
    hold(&document, "patch", "/api/webhooks/{id}", 200, &rotated);
    let off = lab.own(Method::PATCH, &path, json!({"enabled": false})).await.expect(200).json();
    hold(&document, "patch", "/api/webhooks/{id}", 200, &off);
    for route in ["", "/deliveries"] {
        let at = if route.is_empty() { "/api/webhooks".to_owned() } else { format!("{path}{route}") };
        let list = lab.own(Method::GET, &at, Value::Null).await.expect(200).json();
        assert!(!list["items"].as_array().unwrap().is_empty());
        let described = if route.is_empty() { "/api/webhooks" } else { "/api/webhooks/{id}/deliveries" };
        hold(&document, "get", described, 200, &list);
    }
    let status = lab.api.get("/api/status").await.expect(200).json();
    hold(&document, "get", "/api/status", 200, &status);
}

#[tokio::test]
async fn every_fault_is_told_at_once() {
    let lab = Lab::with("").await;
    let body =
        json!({"name": "", "url": "http://127.0.0.1/", "types": ["RRSET"], "domains": ["a b"], "x": 1});
    let refused = lab.own(Method::POST, "/api/webhooks", body).await.expect(422).json();
    let told: Vec<&str> =
        refused["errors"].as_array().unwrap().iter().map(|one| one["pointer"].as_str().unwrap()).collect();
    assert_eq!(told, ["/domains/0", "/x", "/name", "/types/0"]);
    for (url, code) in [
        ("http://hooks.example.net/", "http_not_allowed"),
        ("https://10.0.0.1/", "forbidden_destination"),
        ("https://a:b@hooks.example.net/", "credentials_in_url"),
        ("x", "invalid_url"),
    ] {
        let body = json!({"name": "a", "url": url});
        lab.own(Method::POST, "/api/webhooks", body).await.expect_problem(422, code);
    }
    let made =
        lab.own(Method::POST, "/api/webhooks", json!({"name": "a", "url": "https://x.example/"})).await;
    let path = path_of(&made.expect(201));
    lab.own(Method::PATCH, &path, json!({"url": "https://[::1]/"}))
        .await
        .expect_problem(422, "forbidden_destination");
    let both = json!({"rotate_secret": true, "name": "b"});
    lab.own(Method::PATCH, &path, both).await.expect_problem(422, "stands_alone");
    for (after, status) in [(json!("x"), 422), (json!(-1), 422), (json!(1_000_000), 422), (json!(1), 200)] {
        lab.own(Method::POST, &format!("{path}/replay"), json!({"after": after})).await.expect(status);
    }
    lab.own(Method::POST, &format!("{path}/replay"), json!({"after": "00000000.1"}))
        .await
        .expect_problem(422, "other_log");
}

#[tokio::test]
async fn only_owners_have_them_and_only_their_own() {
    let lab = Lab::new().await;
    let (hook, _) = lab.hook("https://hooks.example.net/", json!({})).await;
    let platform = json!({"name": "p", "url": "https://hooks.example.net/", "platform": true});
    let platform = path_of(&lab.api.call(Method::POST, "/api/webhooks", platform).await.expect(201));
    let nobody = json!({"name": "n", "url": "https://hooks.example.net/", "tenant": uuid::Uuid::now_v7()});
    lab.api.call(Method::POST, "/api/webhooks", nobody).await.expect_problem(404, "not_found");
    let foreign = lab.api.tenant("foreign").await;
    let (_, stranger) = lab.api.user("stranger@example.test", false, &[foreign]).await;
    let (viewer_id, viewer) = lab.api.user("viewer@example.test", false, &[lab.tenant]).await;
    let member = format!("/api/tenants/{}/members/{viewer_id}", lab.tenant);
    lab.api.call(Method::PUT, &member, json!({"role": "editor"})).await.expect(200);
    let new = json!({"name": "a", "url": "https://hooks.example.net/", "tenant": lab.tenant});
    let rotate = json!({"rotate_secret": true});
    for (token, path, statuses) in [
        (&stranger, &hook, [404, 404, 404, 404, 404]),
        (&stranger, &platform, [404, 404, 404, 404, 404]),
        (&viewer, &hook, [200, 403, 403, 403, 403]),
        (&viewer, &platform, [404, 404, 404, 404, 403]),
        (&lab.owner, &platform, [404, 404, 404, 404, 201]),
    ] {
        let api = &lab.api;
        let send = |method, path: String, body: Option<Value>| async move {
            api.send(token, method, &path, body.as_ref(), &[]).await.status.as_u16()
        };
        let got = [
            send(Method::GET, path.clone(), None).await,
            send(Method::PATCH, path.clone(), Some(rotate.clone())).await,
            send(Method::POST, format!("{path}/replay"), Some(json!({"after": 0}))).await,
            send(Method::DELETE, path.clone(), None).await,
            send(Method::POST, "/api/webhooks".into(), Some(new.clone())).await,
        ];
        assert_eq!(got, statuses, "{path}");
    }
    let listed = |token| {
        let api = &lab.api;
        async move {
            let list = api.send(token, Method::GET, "/api/webhooks", None, &[]).await.expect(200).json();
            list["items"].as_array().unwrap().len()
        }
    };
    assert_eq!((listed(&stranger).await, listed(&viewer).await, listed(&lab.api.admin).await), (0, 2, 3));
}

#[tokio::test]
async fn a_secret_is_rotated_with_both_for_a_day_and_stands_nowhere_in_clear() {
    let lab = Lab::new().await;
    let receiver = Receiver::willing().await;
    let (path, first) = lab.hook(&receiver.url(), json!({"types": ["rrset."]})).await;
    lab.sends(quick(1));
    let rotated = lab.own(Method::PATCH, &path, json!({"rotate_secret": true})).await.expect(200).json();
    let second = rotated["secret"].as_str().unwrap().to_owned();
    assert!(first != second && rotated["previous_secret_until"].is_string());
    lab.put(ZONE, "192.0.2.1").await;
    lab.caught_up(&path).await;
    assert_eq!(receiver.got()[0].verify(&[&second, &first]), 2);
    let third = lab.own(Method::PATCH, &path, json!({"rotate_secret": true})).await.expect(200).json();
    let third = third["secret"].as_str().unwrap().to_owned();
    lab.put(ZONE, "192.0.2.2").await;
    lab.caught_up(&path).await;
    assert_eq!(receiver.got()[1].verify(&[&third, &second]), 2);
    lab.api.clock.turn(25 * 3_600 * 1_000);
    lab.put(ZONE, "192.0.2.3").await;
    lab.caught_up(&path).await;
    let last = &receiver.got()[2];
    assert_eq!(last.header("webhook-signature").split(' ').count(), 1);
    assert_eq!(lab.show(&path).await["previous_secret_until"], Value::Null);
    // Neither what is shown nor what it means stands in any table.
    use base64::Engine;
    let mut needles = Vec::new();
    for secret in [&first, &second, &third] {
        let text = secret.strip_prefix("whsec_").unwrap().to_owned();
        needles.push(hex::encode(base64::engine::general_purpose::STANDARD.decode(&text).unwrap()));
        needles.push(text);
    }
    let tables: Vec<String> = sqlx::query_scalar(
        "select format('%I.%I', schemaname, tablename) from pg_tables \
         where schemaname not in ('pg_catalog', 'information_schema')",
    )
    .fetch_all(&lab.api.app.pool)
    .await
    .unwrap();
    for table in tables {
        for needle in &needles {
            let query = format!("select count(*) from {table} t where position($1 in t::text) > 0");
            let found: i64 = sqlx::query_scalar(AssertSqlSafe(query))
                .bind(needle)
                .fetch_one(&lab.api.app.pool)
                .await
                .unwrap();
            assert_eq!(found, 0, "{table}");
        }
    }
    let sealed: i64 = sqlx::query_scalar("select count(*) from sealed_secrets where kind = 'webhook_secret'")
        .fetch_one(&lab.api.app.pool)
        .await
        .unwrap();
    assert_eq!(sealed, 2, "what counts no longer goes");
}

#[tokio::test]
async fn a_replay_sends_again_from_there_on() {
    let lab = Lab::new().await;
    let receiver = Receiver::willing().await;
    let (path, _) = lab.hook(&receiver.url(), json!({"types": ["rrset."]})).await;
    lab.sends(quick(1));
    for n in 1..5 {
        lab.put(ZONE, &format!("192.0.2.{n}")).await;
    }
    lab.caught_up(&path).await;
    let before = receiver.got();
    assert_eq!(before.len(), 4);
    let log = lab.own(Method::GET, "/api/events?limit=1", Value::Null).await.json();
    drop(log);
    let after = before[1].json()["position"].clone();
    lab.own(Method::POST, &format!("{path}/replay"), json!({"after": after})).await.expect(200);
    let got = receiver.has(6).await;
    let ids: Vec<&str> = got.iter().map(|got| got.header("webhook-id")).collect();
    assert_eq!(ids[4..6], ids[2..4], "the same ids, in the same order");
    let events = lab.own(Method::GET, "/api/events?type=webhook.replayed", Value::Null).await.json();
    assert_eq!(events["items"][0]["data"]["after"], after);
    lab.put(ZONE, "192.0.2.9").await;
    lab.caught_up(&path).await;
    assert_eq!(receiver.got().len(), 7);
    // A disabled one goes nowhere.
    lab.own(Method::PATCH, &path, json!({"enabled": false})).await.expect(200);
    let refused = lab.own(Method::POST, &format!("{path}/replay"), json!({"after": 0})).await;
    refused.expect_problem(409, "webhook_disabled");
}

#[tokio::test]
async fn nothing_is_begun_for_one_that_is_disabled_deleted_or_without_its_tenant() {
    let lab = Lab::new().await;
    let going = lab.api.tenant("going").await;
    let receiver = Receiver::willing().await;
    let (disabled, _) = lab.hook(&receiver.url(), json!({})).await;
    let (deleted, _) = lab.hook(&receiver.url(), json!({})).await;
    let body = json!({"name": "a", "url": receiver.url(), "tenant": going});
    lab.api.call(Method::POST, "/api/webhooks", body).await.expect(201);
    lab.put(ZONE, "192.0.2.1").await;
    lab.api.user("in@example.test", false, &[going]).await;
    lab.own(Method::PATCH, &disabled, json!({"enabled": false})).await.expect(200);
    lab.own(Method::DELETE, &deleted, Value::Null).await.expect(200);
    lab.api.call(Method::DELETE, &format!("/api/tenants/{going}"), Value::Null).await.expect(200);
    // Only now somebody reads the log, from before all that.
    lab.sends(quick(1));
    let (marker, _) = lab.hook(&Receiver::willing().await.url(), json!({})).await;
    lab.put(ZONE, "192.0.2.2").await;
    lab.caught_up(&marker).await;
    assert!(receiver.got().is_empty(), "{:?}", receiver.shown());
    let left: i64 = sqlx::query_scalar("select count(*) from webhook_cursors")
        .fetch_one(&lab.api.app.pool)
        .await
        .unwrap();
    assert_eq!(left, 2, "the disabled one and the marker");
}

/// Whoever reads the log for webhooks is behind: what was answered counts all the same.
#[tokio::test]
async fn no_attempt_begins_after_the_answer_to_a_disable() {
    let lab = Lab::new().await;
    let go = Arc::new(Notify::new());
    let held = go.clone();
    let receiver =
        Receiver::start(move |n, _| if n == 0 { Reply::Held(held.clone()) } else { Reply::Status(200) })
            .await;
    let (path, _) = lab.hook(&receiver.url(), json!({"types": ["rrset."]})).await;
    for n in 1..5 {
        lab.put(ZONE, &format!("192.0.2.{n}")).await;
    }
    lab.sends(quick(1));
    receiver.has(1).await;
    let pool = &lab.api.app.pool;
    let mut behind = pool.begin().await.unwrap();
    // However busy the machine is.
    let patient = "set local idle_in_transaction_session_timeout = 0";
    sqlx::query(patient).execute(&mut *behind).await.unwrap();
    sqlx::query("select from webhook_scan for update").execute(&mut *behind).await.unwrap();
    lab.own(Method::PATCH, &path, json!({"enabled": false})).await.expect(200);
    go.notify_one();
    let after = || async {
        let turned = "select coalesce(turn_at > delivered_at, false) from webhook_cursors";
        sqlx::query_scalar::<_, bool>(turned).fetch_one(pool).await.unwrap()
    };
    eventually("a turn ended after the delivery", after, |after| *after).await;
    behind.rollback().await.unwrap();
    let (marker, _) = lab.hook(&Receiver::willing().await.url(), json!({})).await;
    lab.caught_up(&marker).await;
    assert_eq!(receiver.got().len(), 1, "{:?}", receiver.shown());
    assert_eq!(lab.show(&path).await["position"], receiver.got()[0].json()["position"]);
}
