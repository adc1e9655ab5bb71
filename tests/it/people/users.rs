//! What administrators do with users and tenants: an administrator stays, whoever is erased is forgotten, and the log
//! still verifies.

use headwater_events::ids::{TenantId, UserId};
use reqwest::Method;
use serde_json::{Value, json};

use super::{PASSWORD, login, person};
use crate::support::{Answer, TestApi};

/// The chains verify, and the rows are what the log says.
async fn assert_sound(api: &TestApi) {
    let pool = api.database.pool().await;
    let found = headwater::store::verify::verify(&pool, &mut |_, _| {}).await.unwrap();
    assert_eq!(found.faults, []);
    let differences = headwater::rebuild::desired::verify(&pool, None, &mut |_| {}).await.unwrap();
    assert!(differences.is_empty(), "{differences:?}");
}

async fn types(api: &TestApi, user: UserId) -> Vec<String> {
    let events = api.get("/api/events?limit=1000").await.expect(200).json();
    let of_user = |event: &&Value| event["stream"]["id"] == json!(user);
    let named = |event: &Value| event["type"].as_str().unwrap().to_owned();
    events["items"].as_array().unwrap().iter().filter(of_user).map(named).collect()
}

#[tokio::test]
async fn an_erased_user_is_forgotten_and_the_chains_verify() {
    let api = TestApi::start("").await;
    let tenant = api.tenant("acme").await;
    let (user, token, ann) = person(&api, "ann@example.test").await;
    let path = format!("/api/users/{user}");
    let member = format!("/api/tenants/{tenant}/members/{user}");
    api.call(Method::PUT, &member, Value::Null).await.expect(200);
    let renamed = json!({"email": "Anna@Example.Test", "name": "Anna"});
    let planned = api.call(Method::PATCH, &format!("{path}?dry_run=true"), renamed.clone()).await.expect(200);
    assert_eq!(planned.json()["changed"], true);
    assert!(!planned.text.contains("example.test"), "{planned:?}");
    let changed = api.call(Method::PATCH, &path, renamed).await.expect(200).json();
    assert_eq!((&changed["email"], &changed["name"]), (&json!("anna@example.test"), &json!("Anna")));
    // The mail address that was given up is free at once; the new one is not.
    login(&api, "ann@example.test", PASSWORD).await.expect(401);
    login(&api, "anna@example.test", PASSWORD).await.expect(200);
    let other = api.call(Method::POST, "/api/users", json!({"email": "ann@example.test"})).await.expect(201);
    let taken = json!({"email": "anna@example.test"});
    let other = format!("/api/users/{}", other.json()["id"].as_str().unwrap());
    api.call(Method::PATCH, &other, taken).await.expect_problem(409, "name_taken");
    api.call(Method::DELETE, &path, Value::Null).await.expect(200);
    api.call(Method::DELETE, &path, Value::Null).await.expect_problem(404, "not_found");
    api.call(Method::POST, &format!("{path}/enable"), Value::Null).await.expect(404);
    api.get(&path).await.expect(404);
    api.get(&member).await.expect(404);
    api.call(Method::PUT, &member, Value::Null).await.expect(404);
    api.send(&token, Method::GET, "/api/me", None, &[]).await.expect(401);
    ann.send(&api, Method::GET, "/api/me", Value::Null).await.expect(401);
    login(&api, "anna@example.test", PASSWORD).await.expect(401);
    api.call(Method::POST, "/api/users", json!({"email": "anna@example.test"})).await.expect(201);
    let told =
        ["user.created", "token.created", "user.password_changed", "user.profile_changed", "user.deleted"];
    assert_eq!(types(&api, user).await, told);
    let tokens = api.get(&format!("/api/tokens?user={user}")).await.expect(200).json();
    assert!(tokens["items"][0]["revoked_at"].is_string());
    let left: Vec<i64> = sqlx::query_scalar(
        "select count(*) from people where user_id = $1 union all select count(*) from credentials where user_id = $1 \
         union all select count(*) from sessions where user_id = $1 \
         union all select count(*) from token_secrets where user_id = $1 \
         union all select count(*) from claims where holder = $1",
    )
    .bind(user.as_uuid())
    .fetch_all(&api.app.pool)
    .await
    .unwrap();
    assert_eq!(left, [0; 5]);
    assert_sound(&api).await;
}

#[tokio::test]
async fn the_last_administrator_stays() {
    let api = TestApi::start("").await;
    let me = api.get("/api/me").await.json()["id"].as_str().unwrap().to_owned();
    let path = format!("/api/users/{me}");
    let refused = || async {
        api.call(Method::DELETE, &path, Value::Null).await.expect_problem(409, "last_administrator");
        api.call(Method::PATCH, &path, json!({"admin": false}))
            .await
            .expect_problem(409, "last_administrator");
        let disable = format!("{path}/disable");
        api.call(Method::POST, &disable, Value::Null).await.expect_problem(409, "last_administrator");
    };
    refused().await;
    let (second, token) = api.user("second@example.test", true, &[]).await;
    let other = format!("/api/users/{second}");
    api.call(Method::POST, &format!("{other}/disable"), Value::Null).await.expect(200);
    refused().await;
    api.call(Method::POST, &format!("{other}/enable"), Value::Null).await.expect(200);
    let demoted = api.call(Method::PATCH, &other, json!({"admin": false})).await.expect(200);
    assert_eq!(demoted.json()["admin"], false);
    api.send(&token, Method::GET, "/api/users", None, &[]).await.expect_problem(403, "forbidden");
    refused().await;
    assert_sound(&api).await;
}

/// Two processes, and two administrators who keep each other out at once: one of them stays, every time.
#[tokio::test]
async fn two_processes_do_not_take_the_last_two_administrators() {
    let api = TestApi::start("").await;
    let twin = api.join("").await;
    let me = api.get("/api/me").await.json()["id"].as_str().unwrap().to_owned();
    let (second, other) = api.user("second@example.test", true, &[]).await;
    for round in 0..8 {
        let path = format!("/api/users/{second}/disable");
        let first = api.call(Method::POST, &path, Value::Null);
        let request = api.request_at(twin.address, Method::POST, &format!("/api/users/{me}/disable"));
        let request = request.bearer_auth(other.expose());
        let (first, second_answer) =
            tokio::join!(first, async { Answer::of(request.send().await.unwrap()).await });
        let statuses = [first.status.as_u16(), second_answer.status.as_u16()];
        let left: i64 = sqlx::query_scalar("select count(*) from desired.users where admin and enabled")
            .fetch_one(&api.app.pool)
            .await
            .unwrap();
        assert_eq!(left, 1, "round {round}: {statuses:?}");
        assert!(statuses.contains(&200), "round {round}: {statuses:?}");
        for user in [me.clone(), second.to_string()] {
            let command = headwater_events::admin::AdminCommand::SetUserEnabled {
                user: user.parse().unwrap(),
                enabled: true,
            };
            let caller = headwater_events::actor::Caller::system();
            let command = headwater::command::Command::admin(command);
            api.app.commit.submit(caller, command, headwater::command::Meta::internal()).await.unwrap();
        }
        // So that both processes know that both may come in again.
        let known =
            || api.request_at(twin.address, Method::GET, "/api/me").bearer_auth(other.expose()).send();
        crate::support::eventually(
            "it may come in",
            || async { known().await.unwrap().status() },
            |s| *s == 200,
        )
        .await;
        let known = || api.get("/api/me");
        crate::support::eventually("it may come in", known, |answer| answer.status == 200).await;
    }
    assert_sound(&api).await;
}

#[tokio::test]
async fn a_tenant_is_renamed_and_removed_when_it_owns_nothing() {
    let api = TestApi::start("").await;
    let tenant = api.tenant("acme").await;
    let (_, user) = api.user("ann@example.test", false, &[tenant]).await;
    let path = format!("/api/tenants/{tenant}");
    let patch = json!({"name": "Acme Ltd", "labels": {"plan": "large"}, "external_id": "4711"});
    let changed = api.call(Method::PATCH, &path, patch.clone()).await.expect(200).json();
    assert_eq!((&changed["name"], &changed["labels"]["plan"]), (&json!("Acme Ltd"), &json!("large")));
    let head = api.head().await;
    api.call(Method::PATCH, &path, patch).await.expect(200);
    assert_eq!(api.head().await, head, "what changes nothing is no event");
    let merged =
        api.call(Method::PATCH, &path, json!({"labels": {"a": "b", "plan": null}})).await.expect(200);
    assert_eq!(merged.json()["labels"], json!({"a": "b"}));
    api.tenant("acme").await;
    api.call(Method::PATCH, &path, json!({"name": "platform"})).await.expect_problem(409, "name_taken");
    api.call(Method::PATCH, &path, json!({"name": "", "labels": {"": "x"}})).await.expect(422);
    api.send(&user, Method::PATCH, &path, Some(&json!({"name": "x"})), &[]).await.expect(403);
    for name in ["one.example.com", "two.example.com"] {
        let body = json!({"name": name, "tenant": tenant, "force_active": true});
        api.call(Method::POST, "/api/domains", body).await.expect(202);
    }
    let refused = api.call(Method::DELETE, &path, Value::Null).await.expect_problem(409, "owns_domains");
    assert!(refused.json()["detail"].as_str().unwrap().starts_with("2 domains"), "{refused:?}");
    let platform = api.platform_tenant().await;
    let own = api.call(Method::DELETE, &format!("/api/tenants/{platform}"), Value::Null).await;
    own.expect_problem(409, "platform_tenant");
    let empty = api.tenant("empty").await;
    let (_, left) = api.user("left@example.test", false, &[empty]).await;
    let path = format!("/api/tenants/{empty}");
    api.send(&left, Method::GET, &path, None, &[]).await.expect(200);
    api.call(Method::DELETE, &path, Value::Null).await.expect(200);
    api.get(&path).await.expect(404);
    api.send(&left, Method::GET, &path, None, &[]).await.expect(404);
    assert_eq!(api.send(&left, Method::GET, "/api/me", None, &[]).await.json()["tenants"], json!([]));
    let member = format!("{path}/members/{}", api.get("/api/me").await.json()["id"].as_str().unwrap());
    api.call(Method::PUT, &member, Value::Null).await.expect(404);
    let body = json!({"name": "three.example.com", "tenant": empty, "force_active": true});
    api.call(Method::POST, "/api/domains", body).await.expect(422);
    api.tenant("empty").await;
    assert_sound(&api).await;
}

/// Whatever wins, no domain is left without a tenant.
#[tokio::test]
async fn a_tenant_does_not_go_while_a_domain_is_made_in_it() {
    let api = TestApi::start("").await;
    let twin = api.join("").await;
    for round in 0..10 {
        let tenant: TenantId = api.tenant(&format!("t{round}")).await;
        let body = json!({"name": format!("r{round}.example.com"), "tenant": tenant, "force_active": true});
        let path = format!("/api/tenants/{tenant}");
        let make = api.call(Method::POST, "/api/domains", body);
        let end = api.request_at(twin.address, Method::DELETE, &path).bearer_auth(api.admin.expose());
        let (made, ended) = tokio::join!(make, async { Answer::of(end.send().await.unwrap()).await });
        let (made, ended) = (made.status.as_u16(), ended.status.as_u16());
        assert!(matches!((made, ended), (202, 409) | (422, 200)), "round {round}: {made} {ended}");
    }
    assert_sound(&api).await;
}
