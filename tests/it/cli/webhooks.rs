//! `headwater webhook`: what is asked of the API, and where a secret is shown.

use serde_json::{Value, json};

use super::script::{self, Script};

const ID: &str = "01982f6e-7b4c-7d30-9d0a-3f1f0f3f5f10";

#[tokio::test]
async fn a_webhook_is_made_and_its_secret_is_shown_where_it_should_be() {
    let made = script::json(201, json!({"id": "w-1", "secret": "whsec_new"}));
    let rotated = script::json(200, json!({"id": "w-1", "secret": "whsec_next"}));
    let replayed = script::json(200, json!({"id": "w-1", "secret": null}));
    let script = Script::new(vec![made.clone(), made, rotated, replayed]).await;
    let ran = script.run(&["webhook", "create", "inventory", "https://hooks.example.net/"]).await;
    assert_eq!((ran.code, ran.out.as_str()), (0, "whsec_new\n"));
    let file = script.path("secret");
    let arguments = ["--type", "rrset.", "--domain", "example.com", "--label", "a=b", "--output", &file];
    let create =
        [&["webhook", "create", "records", "https://hooks.example.net/"][..], &arguments[..]].concat();
    let ran = script.run(&create).await;
    assert_eq!((ran.code, ran.out.as_str()), (0, "w-1\n"));
    assert!(!ran.err.contains("whsec_new"), "{}", ran.err);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "whsec_new\n");
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&file).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    let ran = script.run(&["webhook", "rotate-secret", ID]).await;
    assert_eq!((ran.code, ran.out.as_str()), (0, "whsec_next\n"));
    let ran = script.run(&["webhook", "rotate-secret", ID]).await;
    assert_eq!((ran.code, ran.out.as_str()), (3, ""), "{ran:?}");
    let seen = script.seen();
    let body: Value = serde_json::from_str(&seen[1].body).unwrap();
    let expected = json!({"name": "records", "url": "https://hooks.example.net/", "enabled": true,
        "types": ["rrset."], "domains": ["example.com"], "labels": {"a": "b"}});
    assert_eq!((seen[1].line.as_str(), body), ("POST /api/webhooks", expected));
    assert_eq!(seen[2].line, format!("PATCH /api/webhooks/{ID}"));
    assert_eq!(seen[2].body, r#"{"rotate_secret":true}"#);
}

#[tokio::test]
async fn webhooks_are_changed_replayed_and_looked_at() {
    let receipt = script::json(200, json!({"changed": true, "revision": 4, "operation": null}));
    let delivery =
        json!({"position": 7, "type": "rrset.replaced", "state": "retrying", "attempts": 2, "status": 503});
    let page = script::json(200, json!({"items": [delivery], "next": null}));
    let script = Script::new(vec![receipt.clone(), receipt.clone(), receipt, page]).await;
    let ran = script.run(&["webhook", "update", ID, "--all-types", "--all-domains", "--enable"]).await;
    assert_eq!((ran.code, ran.out), (0, format!("webhook {ID}: changed\n")));
    assert_eq!(script.run(&["webhook", "replay", ID, "--after", "1042"]).await.code, 0);
    assert_eq!(script.run(&["webhook", "delete", ID, "--note", "over"]).await.code, 0);
    let ran = script.run(&["webhook", "deliveries", ID]).await;
    assert!(ran.out.contains("retrying") && ran.out.contains("503"), "{}", ran.out);
    let bodies: Vec<Value> =
        script.seen().iter().take(2).map(|seen| serde_json::from_str(&seen.body).unwrap()).collect();
    assert_eq!(bodies[0], json!({"types": [], "domains": ["*"], "enabled": true}));
    assert_eq!(bodies[1], json!({"after": 1042}));
    assert_eq!(script.run(&["webhook", "update", ID, "--enable", "--disable"]).await.code, 2);
}
