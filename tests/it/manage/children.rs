//! Tokens that are made with a token are at most as strong, and whoever asked for an undo may call it off.

use headwater::operation::project;
use headwater_events::time::Timestamp;
use headwater_projections::audit::Audit;
use reqwest::Method;
use serde_json::{Value, json};

use super::{api, made, make};
use crate::support::eventually;

fn in_days(days: i64) -> String {
    let now = chrono::Utc::now().timestamp_millis();
    Timestamp::from_millis(now + days * 86_400_000).to_string()
}

#[tokio::test]
async fn a_token_makes_none_that_is_stronger() {
    let (api, person) = api().await;
    let (end, later, sooner) = (in_days(10), in_days(11), in_days(9));
    let limits = json!({
        "name": "limited", "expires_at": end, "max_unused_days": 30, "networks": ["127.0.0.0/8", "2001:db8::/32"],
        "manager": "octodns", "view": "own",
    });
    let limited = made(&api, &person, limits.clone()).await.0;
    let pointers = |body: Value| {
        let (api, limited) = (&api, &limited);
        async move {
            let answer = make(api, limited, &body).await;
            let body = answer.json();
            let faults = body["errors"].as_array().cloned().unwrap_or_default();
            assert!(faults.iter().all(|fault| fault["code"] == "exceeds_caller"), "{answer:?}");
            let told: Vec<String> =
                faults.iter().map(|fault| fault["pointer"].as_str().unwrap().to_owned()).collect();
            (answer.status.as_u16(), told)
        }
    };
    let all = ["/expires_at", "/max_unused_days", "/networks", "/manager", "/view"].map(str::to_owned);
    let head = api.head().await;
    assert_eq!(pointers(json!({"name": "free"})).await, (422, all.to_vec()));
    for (key, value, pointer) in [
        ("expires_at", json!(later), "/expires_at"),
        ("expires_at", Value::Null, "/expires_at"),
        ("max_unused_days", json!(31), "/max_unused_days"),
        ("networks", json!(["127.0.0.1", "0.0.0.0/0"]), "/networks/1"),
        ("networks", json!(["192.0.2.1"]), "/networks/0"),
        ("manager", json!("other"), "/manager"),
        ("view", json!("all"), "/view"),
    ] {
        let mut body = limits.clone();
        body[key] = value;
        assert_eq!(pointers(body.clone()).await, (422, vec![pointer.to_owned()]), "{body}");
    }
    assert_eq!(api.head().await, head);
    let mut narrower = limits.clone();
    narrower["expires_at"] = json!(sooner);
    narrower["networks"] = json!(["127.0.0.1"]);
    narrower["max_unused_days"] = json!(1);
    for body in [limits, narrower] {
        assert_eq!(pointers(body).await.0, 201);
    }
}

/// Nobody carries the undo out here, so it waits until it is called off.
#[tokio::test]
async fn whoever_asked_for_an_undo_calls_it_off() {
    let (api, person) = api().await;
    tokio::spawn(project::run(api.app.clone(), Audit));
    tokio::spawn(headwater::operation::run(api.app.clone()));
    let other = api.tenant("others").await;
    let (_, stranger) = api.user("eve@example.test", false, &[other]).await;
    let scopes = json!([{"verbs": ["read", "write", "admin"], "domains": ["*"]}]);
    let limited = made(&api, &person, json!({"name": "limited", "scopes": scopes})).await.0;
    let token = made(&api, &person, json!({"name": "leaked"})).await.1;
    let asked = json!({"token": token, "since": "2020-01-01T00:00:00Z"});
    let begin = || async {
        let answer = api.send(&person, Method::POST, "/api/undo", Some(&asked), &[]).await.expect(202);
        let path = format!("/api/operations/{}", answer.json()["operation"]["id"].as_str().unwrap());
        let there = || api.send(&person, Method::GET, &path, None, &[]);
        eventually("the operation is there", there, |answer| answer.status == 200).await;
        format!("{path}/cancel")
    };
    let cancel = begin().await;
    let call_off = |by| api.send(by, Method::POST, &cancel, None, &[]);
    call_off(&stranger).await.expect(404);
    let refused = call_off(&limited).await;
    assert!([403, 404].contains(&refused.status.as_u16()), "{refused:?}");
    call_off(&person).await.expect(200);
    let shown = || api.send(&person, Method::GET, cancel.trim_end_matches("/cancel"), None, &[]);
    eventually("it is called off", shown, |answer| answer.json()["state"] == "cancelled").await;
    call_off(&person).await.expect_problem(409, "already_ended");
    // An administrator's is not the user's, and no user calls off the work of the platform.
    let rebuild =
        api.call(Method::POST, "/api/projections/powerdns/verify", json!({})).await.expect(202).json();
    let path = format!("/api/operations/{}/cancel", rebuild["operation"]["id"].as_str().unwrap());
    api.send(&person, Method::POST, &path, None, &[]).await.expect(404);
    api.call(Method::POST, &begin().await, Value::Null).await.expect(200);
}
