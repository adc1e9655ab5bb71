//! Where somebody came from is erased with the person, and when its time is over; the log stays whole.

use headwater::people::erase;
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{TestApi, eventually};

const DAY_MILLISECONDS: i64 = 86_400_000;

async fn rows(api: &TestApi) -> i64 {
    sqlx::query_scalar("select count(*) from clients").fetch_one(&api.app.pool).await.unwrap()
}

/// Somebody makes a domain, with a program of its own.
async fn makes(api: &TestApi, token: &headwater::secret::Secret, name: &str, agent: &str) {
    let body = json!({"name": name});
    let headers = [("user-agent", agent)];
    api.send(token, Method::POST, "/api/domains", Some(&body), &headers).await.expect(201);
}

async fn sound(api: &TestApi) {
    let verified = headwater::store::verify::verify(&api.app.pool, &mut |_, _| {}).await.unwrap();
    assert!(verified.faults.is_empty(), "{:?}", verified.faults);
}

#[tokio::test]
async fn a_person_is_erased_and_the_chain_holds() {
    let api = TestApi::start("").await;
    tokio::spawn(headwater::operation::run(api.app.clone()));
    let tenant = api.tenant("acme").await;
    let (ann, hers) = api.user("ann@example.test", false, &[tenant]).await;
    let (_, his) = api.user("bob@example.test", false, &[tenant]).await;
    makes(&api, &hers, "hers.example", "canary-ann/1").await;
    makes(&api, &his, "his.example", "canary-bob/1").await;
    let trail = || async { api.get("/api/audit?type=domain.created").await.expect(200).text };
    let both = |text: &String| text.contains("canary-ann/1") && text.contains("canary-bob/1");
    eventually("the trail tells of both", trail, both).await;
    api.call(Method::DELETE, &format!("/api/users/{ann}"), Value::Null).await.expect(200);
    let erased = || async {
        erase::look(&api.app).await.unwrap();
        let agents: Vec<String> =
            sqlx::query_scalar("select agent from clients").fetch_all(&api.app.pool).await.unwrap();
        (agents.contains(&"canary-ann/1".to_owned()), agents.contains(&"canary-bob/1".to_owned()))
    };
    // The trail may be behind the log.
    eventually("hers alone is erased", erased, |left| *left == (false, true)).await;
    // A process that has not looked yet tells no more of it.
    let twin = api.join("").await;
    let read = api.request_at(twin.address, Method::GET, "/api/audit").bearer_auth(api.admin.expose());
    let text = read.send().await.unwrap().text().await.unwrap();
    assert!(text.contains("canary-bob/1") && !text.contains("canary-ann/1"), "{text}");
    sound(&api).await;
    // What is done is done once.
    let open = "select count(*) from erasures where done_at is null";
    assert_eq!(sqlx::query_scalar::<_, i64>(open).fetch_one(&api.app.pool).await.unwrap(), 0);
}

#[tokio::test]
async fn addresses_are_kept_for_their_time() {
    let api = TestApi::start("[accounts]\nclient_days = 3\n").await;
    let tenant = api.tenant("acme").await;
    let (_, ann) = api.user("ann@example.test", false, &[tenant]).await;
    makes(&api, &ann, "one.example", "canary/1").await;
    makes(&api, &ann, "two.example", "canary/1").await;
    assert_eq!(rows(&api).await, 1, "a client has one row a day");
    erase::look(&api.app).await.unwrap();
    assert_eq!(rows(&api).await, 1);
    api.clock.turn(DAY_MILLISECONDS);
    makes(&api, &ann, "three.example", "canary/1").await;
    assert_eq!(rows(&api).await, 2, "and another one the day after");
    api.clock.turn(3 * DAY_MILLISECONDS + 60_000);
    assert_eq!(erase::look(&api.app).await.unwrap(), 2);
    sound(&api).await;
}
