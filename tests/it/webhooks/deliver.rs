//! What is delivered: each event of the owner that passes the filters, once, in the order of the log, as the log shows
//! it; and nothing of anybody else.

use reqwest::Method;
use serde_json::{Value, json};

use super::lab::{Lab, Receiver, ZONE, quick};

#[tokio::test]
async fn events_come_in_order_once_and_signed() {
    let lab = Lab::new().await;
    let receiver = Receiver::willing().await;
    // What stands before its beginning is not sent; nor is the beginning itself.
    lab.put(ZONE, "192.0.2.1").await;
    let (path, secret) = lab.hook(&receiver.url(), json!({})).await;
    lab.sends(quick(2));
    let begun = lab.api.head().await.get();
    for n in 2..30 {
        lab.put(ZONE, &format!("192.0.2.{n}")).await;
    }
    lab.caught_up(&path).await;
    let got = receiver.got();
    let positions: Vec<i64> = got.iter().map(|got| got.json()["position"].as_i64().unwrap()).collect();
    assert_eq!(positions, (begun + 1..=begun + 28).collect::<Vec<_>>());
    let log =
        lab.own(Method::GET, &format!("/api/events?after={begun}&limit=1000"), Value::Null).await.json();
    let ids: Vec<&str> = got.iter().map(|got| got.header("webhook-id")).collect();
    for (got, shown) in got.iter().zip(log["items"].as_array().unwrap()) {
        assert_eq!(got.head, "POST /hook?a=b HTTP/1.1");
        assert_eq!(got.header("content-type"), "application/json");
        assert!(got.header("user-agent").starts_with("Headwater/"));
        assert_eq!(got.json(), *shown, "as the log shows it to this tenant");
        assert_eq!(got.verify(&[&secret]), 1);
        let event = shown["id"].as_str().unwrap().replace('-', "");
        assert!(got.header("webhook-id").contains(&event) && !got.header("webhook-id").contains('.'));
    }
    let distinct: std::collections::BTreeSet<&&str> = ids.iter().collect();
    assert_eq!(distinct.len(), ids.len());
    let deliveries = lab.deliveries(&path).await;
    assert_eq!(deliveries.len(), 28);
    let newest = &deliveries[0];
    assert_eq!(
        (&newest["state"], &newest["attempts"], &newest["status"]),
        (&json!("delivered"), &json!(1), &json!(204))
    );
    assert_eq!(
        (newest["position"].as_i64(), newest["message"].as_str()),
        (Some(begun + 28), ids.last().copied())
    );
    let shown = lab.show(&path).await;
    assert_eq!((&shown["failing_since"], &shown["trying"]), (&Value::Null, &Value::Null));
    assert!(shown["delivered_at"].is_string());
}

#[tokio::test]
async fn filters_let_through_what_they_name_and_the_others_move_on() {
    let lab = Lab::new().await;
    let (types, domains, nothing) =
        (Receiver::willing().await, Receiver::willing().await, Receiver::willing().await);
    let (first, _) = lab.hook(&types.url(), json!({"types": ["rrset.", "domain.deleted"]})).await;
    let (second, _) = lab.hook(&domains.url(), json!({"domains": ["other.example.com"]})).await;
    let (third, _) = lab.hook(&nothing.url(), json!({"types": ["nothing."]})).await;
    lab.sends(quick(2));
    lab.domain("other.example.com", lab.tenant).await;
    lab.put(ZONE, "192.0.2.1").await;
    lab.put("other.example.com", "192.0.2.2").await;
    lab.api.call(Method::DELETE, "/api/domains/other.example.com", Value::Null).await.expect(202);
    for path in [&first, &second, &third] {
        lab.caught_up(path).await;
    }
    let seen = |receiver: &Receiver| -> Vec<String> {
        let each = receiver.got().into_iter().map(|got| {
            let event = got.json();
            format!("{} {}", event["type"].as_str().unwrap(), event["domain"].as_str().unwrap_or_default())
        });
        each.collect()
    };
    assert_eq!(
        seen(&types),
        [
            "rrset.replaced ours.example.com",
            "rrset.replaced other.example.com",
            "domain.deleted other.example.com"
        ]
    );
    assert_eq!(
        seen(&domains),
        [
            "domain.created other.example.com",
            "rrset.replaced other.example.com",
            "domain.deleted other.example.com"
        ]
    );
    assert!(nothing.got().is_empty());
    // Other filters count from then on.
    lab.own(Method::PATCH, &third, json!({"types": ["rrset."]})).await.expect(200);
    lab.put(ZONE, "192.0.2.3").await;
    lab.caught_up(&third).await;
    assert_eq!(seen(&nothing), ["rrset.replaced ours.example.com"]);
}

#[tokio::test]
async fn nothing_of_another_owner_ever_comes() {
    let lab = Lab::new().await;
    let foreign = lab.api.tenant("foreign").await;
    lab.domain("theirs.example.net", foreign).await;
    let (receiver, all) = (Receiver::willing().await, Receiver::willing().await);
    // Whoever names another's domain gets nothing of it.
    let (path, _) = lab.hook(&receiver.url(), json!({"domains": ["theirs.example.net", ZONE]})).await;
    let (everything, _) = lab.hook(&all.url(), json!({})).await;
    let platform = json!({"name": "all", "url": Receiver::willing().await.url(), "platform": true});
    lab.own(Method::POST, "/api/webhooks", platform.clone()).await.expect(403);
    let whole = Receiver::willing().await;
    let mut body = platform;
    body["url"] = json!(whole.url());
    lab.api.call(Method::POST, "/api/webhooks", body).await.expect(201);
    let begun = lab.api.head().await.get();
    lab.sends(quick(2));
    for n in 1..10 {
        lab.put("theirs.example.net", &format!("192.0.2.{n}")).await;
        lab.put(ZONE, &format!("192.0.2.{n}")).await;
    }
    // A name that its owner lets go of, and a new owner takes: each sees its own part of the history.
    lab.domain("handed.example.org", lab.tenant).await;
    lab.api.call(Method::DELETE, "/api/domains/handed.example.org", Value::Null).await.expect(202);
    let hold =
        "update desired.domains set hold_until = now() - interval '1 day' where name = 'handed.example.org'";
    sqlx::query(hold).execute(&lab.api.app.pool).await.unwrap();
    lab.domain("handed.example.org", foreign).await;
    lab.put("handed.example.org", "192.0.2.1").await;
    lab.api.user("new@example.test", false, &[foreign]).await;
    lab.caught_up(&path).await;
    lab.caught_up(&everything).await;
    for got in receiver.got().iter().chain(&all.got()) {
        assert_eq!(got.json()["tenant"], json!(lab.tenant), "{got:?}");
    }
    assert_eq!(receiver.got().len(), 9);
    assert_eq!(all.got().len(), 11, "{:?}", all.shown());
    let head = lab.api.head().await.get();
    // The platform's own gets everything, the client of administrators too.
    let count = usize::try_from(head - begun).unwrap();
    let got = whole.has(count).await;
    assert_eq!(got.len(), count);
    assert!(got.iter().any(|got| got.json()["type"] == "user.created"));
    assert!(got.iter().any(|got| got.json()["client"]["ip"] == "127.0.0.1"));
    // What administrators did bears no client for the tenant.
    assert!(all.got().iter().all(|got| got.json()["client"].is_null()));
}

#[tokio::test]
async fn an_idle_platform_looks_at_nothing_and_misses_nothing() {
    let lab = Lab::new().await;
    lab.sends(quick(2));
    for n in 1..5 {
        lab.put(ZONE, &format!("192.0.2.{n}")).await;
    }
    let receiver = Receiver::willing().await;
    let (path, _) = lab.hook(&receiver.url(), json!({"types": ["rrset."]})).await;
    lab.put(ZONE, "192.0.2.9").await;
    lab.caught_up(&path).await;
    assert_eq!(receiver.got().len(), 1);
    // The last one goes, and another comes later.
    lab.own(Method::DELETE, &path, Value::Null).await.expect(200);
    lab.put(ZONE, "192.0.2.10").await;
    let (path, _) = lab.hook(&receiver.url(), json!({"types": ["rrset."]})).await;
    lab.put(ZONE, "192.0.2.11").await;
    lab.caught_up(&path).await;
    assert_eq!(receiver.got().len(), 2);
}

#[tokio::test]
async fn what_is_kept_of_deliveries_is_bounded() {
    let lab = Lab::new().await;
    let (path, _) = lab.hook("https://hooks.example.net/", json!({"types": ["nothing."]})).await;
    let id: uuid::Uuid = path.rsplit('/').next().unwrap().parse().unwrap();
    let insert = "insert into webhook_deliveries (webhook_id, position, event_id, type, state, attempts, ms, first_at, last_at) \
                  select $1, n, gen_random_uuid(), 'a.b', 'delivered', 1, 1, now(), now() - $3 * interval '1 day' \
                  from generate_series(1, $2) n";
    let pool = &lab.api.app.pool;
    for (id, count, days) in
        [(uuid::Uuid::from_u128(1), 7, 31.0), (uuid::Uuid::from_u128(1), 5, 29.0), (id, 10_050, 0.0)]
    {
        sqlx::query(insert).bind(id).bind(count).bind(days).execute(pool).await.unwrap();
    }
    lab.sends(quick(1));
    let left = || async {
        let count = "select count(*) filter (where webhook_id = $1), count(*) filter (where webhook_id <> $1), \
                     min(position) filter (where webhook_id = $1) from webhook_deliveries";
        sqlx::query_as::<_, (i64, i64, i64)>(count).bind(id).fetch_one(pool).await.unwrap()
    };
    crate::support::eventually("the rest is gone", left, |left| *left == (10_000, 5, 51)).await;
}
