//! Roles in tenants and with single domains, by HTTP and by the log.

use headwater::rebuild::desired;
use headwater_events::ids::Position;
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{TestApi, eventually};

const ZONE: &str = "/api/domains/example.test";

async fn types(api: &TestApi, after: Position) -> Vec<String> {
    let page = api.app.log.page(after, 100).await.unwrap();
    page.into_iter().map(|event| event.event_type).collect()
}

#[tokio::test]
async fn owners_of_a_tenant_decide_about_its_members() {
    let api = TestApi::start("").await;
    let tenant = api.tenant("ours").await;
    let (ann, owner) = api.user("ann@example.test", false, &[tenant]).await;
    let (bob, other) = api.user("bob@example.test", false, &[]).await;
    let members = format!("/api/tenants/{tenant}/members");
    let put = |role: Value| {
        let (api, owner, path) = (&api, &owner, format!("{members}/{bob}"));
        async move { api.send(owner, Method::PUT, &path, Some(&role), &[]).await }
    };
    // Whoever was a member before there were roles is an owner.
    let listed = api.send(&owner, Method::GET, &members, None, &[]).await.expect(200).json();
    assert_eq!((&listed["items"][0]["user"], &listed["items"][0]["role"]), (&json!(ann), &json!("owner")));
    put(json!({"role": "king"})).await.expect_problem(422, "unknown_role");
    let head = api.head().await;
    let made = put(json!({"role": "viewer"})).await.expect(200).json();
    assert_eq!(made, json!({"tenant": tenant, "user": bob, "email": "bob@example.test", "role": "viewer"}));
    // The same again, and no role named, are no events.
    put(json!({"role": "viewer"})).await.expect(200);
    assert_eq!(put(json!({})).await.expect(200).json()["role"], "viewer");
    assert_eq!(types(&api, head).await, ["tenant.member_added"]);
    let new = json!({"name": "example.test", "tenant": tenant, "force_active": true});
    api.call(Method::POST, "/api/domains", new).await.expect(202);
    let www = json!({"ttl": 60, "records": ["192.0.2.1"]});
    let path = format!("{ZONE}/rrsets/www/A");
    let write = || api.send(&other, Method::PUT, &path, Some(&www), &[]);
    write().await.expect_problem(403, "forbidden");
    put(json!({"role": "editor"})).await.expect(200);
    assert_eq!(types(&api, head).await.last().unwrap(), "tenant.member_changed");
    write().await.expect(202);
    // An editor decides about no members, makes and deletes no domain.
    let own = format!("{members}/{bob}");
    let raise = json!({"role": "owner"});
    api.send(&other, Method::PUT, &own, Some(&raise), &[]).await.expect_problem(403, "forbidden");
    api.send(&other, Method::DELETE, ZONE, None, &[]).await.expect_problem(403, "forbidden");
    let more = json!({"name": "more.example.com", "tenant": tenant});
    api.send(&other, Method::POST, "/api/domains", Some(&more), &[]).await.expect_problem(403, "forbidden");
    api.send(&owner, Method::DELETE, &own, None, &[]).await.expect(200);
    let gone = || api.send(&other, Method::GET, ZONE, None, &[]);
    eventually("the domain is out of sight", gone, |answer| answer.status == 404).await;
    assert!(desired::verify(&api.app.pool, None, &mut |_| {}).await.unwrap().is_empty());
}

#[tokio::test]
async fn members_of_a_single_domain_leave_it_as_it_is() {
    let api = TestApi::start("").await;
    let tenant = api.tenant("ours").await;
    let (_, owner) = api.user("ann@example.test", false, &[tenant]).await;
    let (bob, guest) = api.user("bob@example.test", false, &[]).await;
    for name in ["example.test", "other.test"] {
        let new = json!({"name": name, "tenant": tenant, "force_active": true});
        api.call(Method::POST, "/api/domains", new).await.expect(202);
    }
    let before = api.get(ZONE).await.expect(200).json();
    let member = format!("{ZONE}/members/{bob}");
    let as_guest = |method: Method, path: String, body: Value| {
        let (api, guest) = (&api, &guest);
        async move {
            let body = (!body.is_null()).then_some(body);
            api.send(guest, method, &path, body.as_ref(), &[]).await
        }
    };
    as_guest(Method::GET, ZONE.into(), Value::Null).await.expect(404);
    let editor = json!({"role": "editor"});
    let put = api.send(&owner, Method::PUT, &member, Some(&editor), &[]).await.expect(200).json();
    let shown = json!({"domain": "example.test", "user": bob, "email": "bob@example.test", "role": "editor"});
    assert_eq!(put, shown);
    api.send(&owner, Method::PUT, &member, Some(&json!({})), &[]).await.expect_problem(422, "missing");
    // Nothing that is served has changed: neither the revision nor what is to be deployed.
    let head = api.head().await;
    assert_eq!(api.get(ZONE).await.expect(200).json(), before);
    let list = as_guest(Method::GET, "/api/domains".into(), Value::Null).await.expect(200).json();
    assert_eq!(list["items"].as_array().unwrap().len(), 1, "{list}");
    assert_eq!(list["items"][0]["name"], "example.test");
    let deployments = as_guest(Method::GET, "/api/deployments".into(), Value::Null).await.expect(200).json();
    assert!(deployments["items"].as_array().unwrap().iter().all(|one| one["domain"] == "example.test"));
    as_guest(Method::GET, format!("/api/tenants/{tenant}"), Value::Null).await.expect(404);
    as_guest(Method::GET, "/api/domains/other.test".into(), Value::Null).await.expect(404);
    let www = json!({"ttl": 60, "records": ["192.0.2.1"]});
    as_guest(Method::PUT, format!("{ZONE}/rrsets/www/A"), www.clone()).await.expect(202);
    as_guest(Method::PUT, member.clone(), json!({"role": "owner"})).await.expect_problem(403, "forbidden");
    as_guest(Method::DELETE, ZONE.into(), Value::Null).await.expect_problem(403, "forbidden");
    let list = as_guest(Method::GET, format!("{ZONE}/members"), Value::Null).await.expect(200).json();
    assert_eq!(list["items"], json!([shown]));
    // Its events are those of the domain, and the audit trail too.
    let events = as_guest(Method::GET, "/api/events?limit=1000".into(), Value::Null).await.expect(200).json();
    for event in events["items"].as_array().unwrap() {
        assert!(event["domain"] == "example.test" || event["stream"]["id"] == json!(bob), "{event}");
    }
    let added = events["items"].as_array().unwrap().iter().find(|e| e["type"] == "domain.member_added");
    assert_eq!(added.unwrap()["stream"], json!({"kind": "tenant", "id": tenant}));
    // Gone: at once, and with no trace in what is served.
    api.send(&owner, Method::DELETE, &member, None, &[]).await.expect(200);
    as_guest(Method::PUT, format!("{ZONE}/rrsets/www/A"), www).await.expect(404);
    api.send(&owner, Method::DELETE, &member, None, &[]).await.expect(404);
    let types = types(&api, head).await;
    assert_eq!(types, ["rrset.replaced", "domain.member_removed"]);
    assert!(desired::verify(&api.app.pool, None, &mut |_| {}).await.unwrap().is_empty());
}
