//! Tokens that are limited to some records: what they may undo, and what they are shown of the past.

use reqwest::Method;
use serde_json::{Value, json};

use super::{api, ask, made, names, put, read};

#[tokio::test]
async fn what_was_is_shown_as_far_as_what_is() {
    let (api, person) = api().await;
    let scopes =
        json!([{"verbs": ["read", "write"], "domains": ["example.test"], "names": ["own"], "types": ["A"]}]);
    let limited = made(&api, &person, json!({"name": "limited", "scopes": scopes})).await.0;
    put(&api, &person, "own", "192.0.2.1", "").await.expect(202);
    put(&api, &person, "secret", "192.0.2.66", "").await.expect(202);
    let revision = read(&api, &person, "").await["revision"].as_i64().unwrap();
    ask(&api, &person, Method::DELETE, "/rrsets/secret/A", Value::Null).await.expect(202);
    ask(&api, &person, Method::DELETE, "/rrsets/own/A", Value::Null).await.expect(202);
    let at =
        read(&api, &person, &format!("/rrsets/own/A?revision={revision}")).await["changed"]["at"].clone();
    assert!(at.is_string());
    let now = chrono::Utc::now().to_rfc3339_opts(chrono::SecondsFormat::Millis, true);
    for moment in [format!("revision={revision}"), format!("at={now}")] {
        let is_then = moment.starts_with("revision");
        let found = names(&read(&api, &limited, &format!("/rrsets?{moment}")).await);
        assert_eq!(found, if is_then { vec!["own A"] } else { vec![] }, "{moment}");
        let zone =
            ask(&api, &limited, Method::GET, &format!("/zone?{moment}"), Value::Null).await.expect(200).text;
        assert_eq!(zone.lines().count(), if is_then { 2 } else { 1 }, "{zone}");
        assert!(!zone.contains("192.0.2.66"));
        let json = [("accept", "application/json")];
        let path = format!("{}/zone?{moment}", super::ZONE);
        let zone = api.send(&limited, Method::GET, &path, None, &json).await.expect(200);
        assert!(!zone.text.contains("192.0.2.66"), "{zone:?}");
        let one = |name: &str| format!("/rrsets/{name}/A?{moment}");
        let status = if is_then { 200 } else { 404 };
        ask(&api, &limited, Method::GET, &one("own"), Value::Null).await.expect(status);
        ask(&api, &limited, Method::GET, &one("secret"), Value::Null).await.expect(403);
        for path in ["/cache", "/hostnames", "/tls"] {
            let path = format!("{path}?{moment}");
            ask(&api, &limited, Method::GET, &path, Value::Null).await.expect(403);
        }
    }
    for path in ["/diff?from=1", "/revisions", &format!("/revisions/{revision}")] {
        ask(&api, &limited, Method::GET, path, Value::Null).await.expect(403);
    }
}

/// An undo tells of everything that the revision changed, so it is for those who may write all of the domain.
#[tokio::test]
async fn a_token_that_is_limited_to_records_undoes_nothing() {
    let (api, person) = api().await;
    let scope = |verbs: &[&str], names: Value| {
        let mut scope = json!({"verbs": verbs, "domains": ["example.test"]});
        if !names.is_null() {
            scope["names"] = names;
        }
        json!([scope])
    };
    put(&api, &person, "own", "192.0.2.1", "").await.expect(202);
    put(&api, &person, "own", "192.0.2.2", "").await.expect(202);
    let revision = read(&api, &person, "").await["revision"].as_i64().unwrap();
    let undo = json!({"revision": revision});
    let head = api.head().await;
    for scopes in [
        scope(&["read", "write"], json!(["own"])),
        scope(&["read", "write"], json!(["*"])),
        scope(&["read"], Value::Null),
        scope(&["write"], json!(["own"])),
    ] {
        let body = json!({"name": "limited", "scopes": scopes});
        let limited = made(&api, &person, body).await.0;
        for query in ["", "?dry_run=true"] {
            let path = format!("/undo{query}");
            let refused = ask(&api, &limited, Method::POST, &path, undo.clone()).await;
            assert_eq!(refused.status.as_u16(), 403, "{scopes}: {refused:?}");
            assert!(!refused.text.contains("192.0.2."), "{refused:?}");
        }
        let everything = json!({"token": uuid::Uuid::now_v7(), "since": "2020-01-01T00:00:00Z"});
        api.send(&limited, Method::POST, "/api/undo", Some(&everything), &[]).await.expect(403);
    }
    let elsewhere = json!([{"verbs": ["read", "write"], "domains": ["other.test"]}]);
    let elsewhere = made(&api, &person, json!({"name": "limited", "scopes": elsewhere})).await.0;
    ask(&api, &elsewhere, Method::POST, "/undo", undo.clone()).await.expect(404);
    assert_eq!(
        read(&api, &person, "").await["revision"].as_i64(),
        Some(revision),
        "{head}: nothing of it was undone"
    );
    let whole =
        made(&api, &person, json!({"name": "limited", "scopes": scope(&["read", "write"], Value::Null)}))
            .await
            .0;
    ask(&api, &whole, Method::POST, "/undo", undo).await.expect(202);
}
