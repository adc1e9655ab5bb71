//! Receivers that do not take what they are sent: it is tried again under the same id, those after it wait, nobody else
//! does, and in the end the webhook goes on or is disabled by an event that says why.

use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};

use super::lab::{Got, Lab, Receiver, Reply, ZONE, quick};

fn ids(got: &[Got]) -> Vec<String> {
    got.iter().map(|got| got.header("webhook-id").to_owned()).collect()
}

#[tokio::test]
async fn a_failed_event_is_tried_again_and_those_after_it_wait() {
    let lab = Lab::new().await;
    let receiver = Receiver::start(|n, _| match n {
        0 => Reply::Says(500, "x".repeat(5_000)),
        1 => Reply::Status(429),
        _ => Reply::Status(200),
    })
    .await;
    let (path, _) = lab.hook(&receiver.url(), json!({"types": ["rrset."]})).await;
    lab.put(ZONE, "192.0.2.1").await;
    lab.put(ZONE, "192.0.2.2").await;
    lab.sends(quick(5));
    lab.caught_up(&path).await;
    let (got, sent) = (receiver.got(), ids(&receiver.got()));
    assert_eq!(sent.len(), 4);
    assert!(sent[0] == sent[1] && sent[1] == sent[2] && sent[2] != sent[3], "{sent:?}");
    assert_eq!(got[0].body, got[2].body);
    let deliveries = lab.deliveries(&path).await;
    let shown: Vec<(&Value, &Value, &Value)> =
        deliveries.iter().map(|one| (&one["state"], &one["attempts"], &one["status"])).collect();
    let delivered = &json!("delivered");
    assert_eq!(shown, [(delivered, &json!(1), &json!(200)), (delivered, &json!(3), &json!(200))]);
}

#[tokio::test]
async fn a_receiver_that_asks_for_a_longer_pause_gets_it() {
    let lab = Lab::new().await;
    let receiver = Receiver::start(|_, _| Reply::Later(7_000)).await;
    let (path, _) = lab.hook(&receiver.url(), json!({"types": ["rrset."]})).await;
    lab.sends(quick(5));
    lab.put(ZONE, "192.0.2.1").await;
    lab.until(&path, "it is tried again", |hook| !hook["trying"].is_null()).await;
    let next: chrono::DateTime<chrono::Utc> =
        lab.deliveries(&path).await[0]["next_at"].as_str().unwrap().parse().unwrap();
    let pause = (next - chrono::Utc::now()).num_seconds();
    assert!((6_900..=7_000).contains(&pause), "{pause} s");
}

#[tokio::test]
async fn what_is_kept_of_an_answer_is_bounded_and_the_state_is_told() {
    let lab = Lab::new().await;
    let receiver = Receiver::start(|_, _| Reply::Says(503, format!("\0{}", "ü".repeat(5_000)))).await;
    let (path, _) = lab.hook(&receiver.url(), json!({"types": ["rrset."]})).await;
    let mut options = quick(1);
    options.retries = vec![Duration::from_secs(1_000)];
    lab.sends(options);
    lab.put(ZONE, "192.0.2.1").await;
    let hook = lab.until(&path, "it is tried again", |hook| !hook["trying"].is_null()).await;
    assert_eq!(hook["trying"]["attempts"], 1);
    assert_eq!(hook["last_error"], "the receiver answered 503 Service Unavailable");
    let one = &lab.deliveries(&path).await[0];
    assert_eq!((&one["state"], &one["status"]), (&json!("retrying"), &json!(503)));
    let kept = one["response"].as_str().unwrap();
    assert!((1_000..=1_024).contains(&kept.len()) && !kept.contains('\0'), "{}", kept.len());
    let next: chrono::DateTime<chrono::Utc> = one["next_at"].as_str().unwrap().parse().unwrap();
    let pause = (next - chrono::Utc::now()).num_seconds();
    assert!((900..=1_210).contains(&pause), "{pause} s: about as long as is said, and a bit more at most");
    // Administrators see that it fails, once it has for a while; it is no fault of the platform.
    let since = "update webhook_cursors set failing_since = now() - interval '5 minutes'";
    sqlx::query(since).execute(&lab.api.app.pool).await.unwrap();
    let status = lab.api.get("/api/status").await.expect(200).json();
    assert_eq!(status["webhooks"][0]["tenant"], json!(lab.tenant));
    assert!(!status["problems"].to_string().contains("webhook"), "{status}");
    // What is changed is tried at once.
    let willing = Receiver::willing().await;
    lab.own(Method::PATCH, &path, json!({"url": willing.url()})).await.expect(200);
    lab.caught_up(&path).await;
    assert_eq!(ids(&willing.got()), ids(&receiver.got()));
}

#[tokio::test]
async fn an_event_that_nobody_takes_is_given_up_and_the_webhook_goes_on() {
    let lab = Lab::new().await;
    // The first event never; the others at once.
    let first = std::sync::OnceLock::new();
    let receiver = Receiver::start(move |_, got| {
        let id = got.header("webhook-id").to_owned();
        let is_first = first.get_or_init(|| id.clone()) == &id;
        Reply::Status(if is_first { 400 } else { 200 })
    })
    .await;
    let (path, _) = lab.hook(&receiver.url(), json!({"types": ["rrset."]})).await;
    lab.put(ZONE, "192.0.2.1").await;
    lab.put(ZONE, "192.0.2.22").await;
    lab.sends(quick(2));
    lab.until(&path, "the second is delivered", |hook| hook["delivered_at"].is_string()).await;
    assert_eq!(receiver.got().len(), 4, "three attempts, and the next one");
    let deliveries = lab.deliveries(&path).await;
    assert_eq!((&deliveries[1]["state"], &deliveries[1]["attempts"]), (&json!("failed"), &json!(3)));
    assert_eq!(deliveries[0]["state"], "delivered");
    assert_eq!(lab.show(&path).await["failed_in_row"], 0);
}

#[tokio::test]
async fn several_given_up_in_a_row_disable_it_by_an_event() {
    let lab = Lab::new().await;
    let receiver = Receiver::start(|_, _| Reply::Status(500)).await;
    let (path, _) = lab.hook(&receiver.url(), json!({"types": ["rrset."]})).await;
    for n in 1..6 {
        lab.put(ZONE, &format!("192.0.2.{n}")).await;
    }
    lab.sends(quick(1));
    let hook = lab.until(&path, "it is disabled", |hook| hook["enabled"] == false).await;
    assert_eq!(hook["disabled"]["reason"], "failing");
    let events = lab.own(Method::GET, "/api/events?type=webhook.disabled", Value::Null).await.json();
    let event = &events["items"][0];
    assert_eq!((&event["actor"]["kind"], &event["data"]["reason"]), (&json!("system"), &json!("failing")));
    assert_eq!(event["tenant"], json!(lab.tenant));
    lab.until(&path, "the last attempt is recorded", |hook| hook["failed_in_row"] == 3).await;
    assert_eq!(receiver.got().len(), 6, "three events, two attempts each");
    // Nothing more comes, until it is enabled: then what happens from there on.
    lab.put(ZONE, "192.0.2.50").await;
    lab.own(Method::PATCH, &path, json!({"enabled": true})).await.expect(200);
    let enabled = lab.api.head().await.get();
    lab.put(ZONE, "192.0.2.51").await;
    let got = receiver.has(7).await;
    assert!(got[6].json()["position"].as_i64().unwrap() > enabled, "{:?}", got[6]);
}

#[tokio::test]
async fn a_receiver_that_is_gone_is_left_alone() {
    let lab = Lab::new().await;
    let receiver = Receiver::start(|_, _| Reply::Status(410)).await;
    let (path, _) = lab.hook(&receiver.url(), json!({"types": ["rrset."]})).await;
    lab.put(ZONE, "192.0.2.1").await;
    lab.put(ZONE, "192.0.2.2").await;
    lab.sends(quick(3));
    let hook = lab.until(&path, "it is disabled", |hook| hook["enabled"] == false).await;
    assert_eq!(hook["disabled"]["reason"], "gone");
    lab.put(ZONE, "192.0.2.3").await;
    let listed = || lab.deliveries(&path);
    let listed = crate::support::eventually("it is recorded", listed, |listed| !listed.is_empty()).await;
    assert_eq!((&listed[0]["state"], &listed[0]["status"]), (&json!("failed"), &json!(410)));
    assert_eq!(receiver.got().len(), 1);
    let events = lab.own(Method::GET, "/api/events?type=webhook.disabled", Value::Null).await.json();
    assert_eq!(events["items"][0]["data"]["position"], listed[0]["position"]);
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let lab = Lab::new().await;
    let elsewhere = Receiver::willing().await;
    let url = elsewhere.url();
    let receiver = Receiver::start(move |n, _| match n {
        0 => Reply::Location(307, url.clone()),
        1 => Reply::Location(301, url.clone()),
        _ => Reply::Status(200),
    })
    .await;
    let (path, _) = lab.hook(&receiver.url(), json!({"types": ["rrset."]})).await;
    lab.put(ZONE, "192.0.2.1").await;
    lab.sends(quick(3));
    lab.until(&path, "it is delivered", |hook| hook["delivered_at"].is_string()).await;
    assert_eq!(receiver.got().len(), 3);
    assert!(elsewhere.got().is_empty());
}

#[tokio::test]
async fn a_slow_receiver_holds_up_nobody_else() {
    let lab = Lab::new().await;
    let (slow, quick_one) = (Receiver::start(|_, _| Reply::Silent).await, Receiver::willing().await);
    // More slow ones than one owner has turns at once.
    for _ in 0..6 {
        lab.hook(&slow.url(), json!({"types": ["rrset."]})).await;
    }
    let other = lab.api.tenant("other").await;
    lab.domain("other.example.net", other).await;
    let body = json!({"name": "quick", "url": quick_one.url(), "tenant": other, "types": ["rrset."]});
    lab.api.call(Method::POST, "/api/webhooks", body).await.expect(201);
    lab.put(ZONE, "192.0.2.1").await;
    let mut options = quick(3);
    options.limit = Duration::from_secs(60);
    lab.sends(options);
    // As many as may are being waited for.
    slow.has(4).await;
    let begun = Instant::now();
    for n in 1..20 {
        lab.put("other.example.net", &format!("192.0.2.{n}")).await;
    }
    quick_one.has(19).await;
    assert!(begun.elapsed() < Duration::from_secs(20));
    assert_eq!(slow.got().len(), 4, "no more of one owner at once");
}

#[tokio::test]
async fn nobody_is_waited_for_longer_than_the_limit() {
    let lab = Lab::new().await;
    let receiver = Receiver::start(|n, _| if n == 0 { Reply::Silent } else { Reply::Status(200) }).await;
    let (path, _) = lab.hook(&receiver.url(), json!({"types": ["rrset."]})).await;
    let mut options = quick(3);
    options.limit = Duration::from_millis(300);
    lab.sends(options);
    lab.put(ZONE, "192.0.2.1").await;
    lab.caught_up(&path).await;
    let sent = ids(&receiver.got());
    assert!(sent.len() == 2 && sent[0] == sent[1], "{sent:?}");
}
