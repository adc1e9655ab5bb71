//! Who is told why: whoever may read the records; to others the domain is not there.

use headwater::secret::Secret;
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Answer, TestApi};

async fn ask(api: &TestApi, by: &Secret, query: &str) -> Answer {
    api.send(by, Method::GET, &format!("/api/explain?{query}"), None, &[]).await
}

async fn token(api: &TestApi, by: &Secret, body: Value) -> Secret {
    let made = api.send(by, Method::POST, "/api/me/tokens", Some(&body), &[]).await.expect(201).json();
    Secret::new(made["token"].as_str().unwrap().to_owned())
}

#[tokio::test]
async fn it_is_told_to_whoever_may_read_the_records() {
    let api = TestApi::start("").await;
    let (ours, theirs) = (api.tenant("ours").await, api.tenant("theirs").await);
    let (_, ann) = api.user("ann@example.test", false, &[ours]).await;
    let (_, stranger) = api.user("sam@example.test", false, &[theirs]).await;
    let new = json!({"name": "example.test", "tenant": ours, "force_active": true});
    api.call(Method::POST, "/api/domains", new).await.expect(202);
    let waits = json!({"name": "waits.example.com"});
    api.send(&ann, Method::POST, "/api/domains", Some(&waits), &[]).await.expect(201);
    let www = "name=www.example.test&type=A";
    for by in [&ann, &api.admin] {
        let seen = ask(&api, by, www).await.expect(200).json();
        assert_eq!(seen["first_broken"]["hop"], "desired", "{seen}");
        // Nothing is registered that could answer.
        assert_eq!(seen["hops"][2]["state"], "broken", "{seen}");
    }
    let detail = |answer: &Answer| answer.json()["detail"].as_str().unwrap().replace("absent", "example");
    let hidden = ask(&api, &stranger, www).await.expect_problem(404, "not_found");
    let absent = ask(&api, &stranger, "name=www.absent.test&type=A").await.expect_problem(404, "not_found");
    assert_eq!(detail(&hidden), detail(&absent));
    let seen = ask(&api, &ann, "name=waits.example.com&type=SOA").await.expect(200).json();
    assert_eq!(seen["first_broken"]["hop"], "domain", "{seen}");
    assert_eq!(seen["first_broken"]["change"]["event"], "domain.created", "{seen}");
    let scope = json!({"verbs": ["read"], "domains": ["example.test"], "names": ["www"], "types": ["TXT"]});
    let limited = token(&api, &ann, json!({"name": "limited", "scopes": [scope]})).await;
    ask(&api, &limited, www).await.expect_problem(403, "forbidden");
    ask(&api, &limited, "name=www.example.test&type=TXT").await.expect(200);
    let own = token(&api, &ann, json!({"name": "own", "manager": "octodns", "view": "own"})).await;
    ask(&api, &own, www).await.expect_problem(403, "forbidden");
    for bad in
        ["", "name=www.example.test", "type=A", "name=&type=A", "name=a..b&type=A", "name=a.test&type=%20"]
    {
        let status = ask(&api, &ann, bad).await.status.as_u16();
        assert!([400, 404].contains(&status), "{bad}: {status}");
    }
}
