//! Every route × every kind of caller: what is denied is 403 or 404, exactly the one that it has to be, and leaves no
//! trace; what is allowed is answered as the administrator is. What is expected is written down here once more, by hand,
//! so that neither the policies nor the code that asks them can be changed alone.

use std::collections::BTreeSet;

use headwater::http::policy::{self, About, RULES};
use headwater::http::router::facade;
use headwater::secret::Secret;
use headwater_events::actor::Verb;
use headwater_events::ids::UserId;
use reqwest::Method;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::http_access::{Row, described, edges, matrix};
use crate::pdns::walk::rows;
use crate::support::{Answer, TestApi};

const ADDRESS: &str = "192.0.2.1";

/// A kind of caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    Foreign,
    /// Of the tenant, of the single domain: 0 viewer, 1 editor, 2 owner.
    Tenant(u8),
    Domain(u8),
    /// An owner's token, limited to one RRset.
    OneRrset,
    /// An owner's token, limited to another domain.
    Elsewhere,
    /// An administrator's token that reads this domain.
    Reader,
    Admin,
}

const ALL: [Who; 11] = [
    Who::Foreign,
    Who::Tenant(0),
    Who::Tenant(1),
    Who::Tenant(2),
    Who::Domain(0),
    Who::Domain(1),
    Who::Domain(2),
    Who::OneRrset,
    Who::Elsewhere,
    Who::Reader,
    Who::Admin,
];

const ROLES: [&str; 3] = ["viewer", "editor", "owner"];

/// The status of what is denied; none where it is allowed.
fn denied(who: Who, path: &str, verb: Verb, about: About) -> Option<u16> {
    let by_role = |role: u8| {
        let needed = match verb {
            Verb::Read => 0,
            Verb::Write => 1,
            Verb::Manage => 2,
        };
        (role < needed).then_some(403)
    };
    let one_operation = path.contains("/operations/");
    // About one name, so judged by the domain that holds it and by the record.
    let one_name = path.starts_with("/api/explain");
    match (who, about) {
        (Who::Admin, _) => None,
        (_, About::Platform) => Some(403),
        // Another's, which only administrators know of.
        // One that gives nothing of the kind is told so before anybody looks.
        (Who::Reader, About::User) => Some(403),
        (Who::OneRrset, About::User) if verb != Verb::Read => Some(403),
        (_, About::User) => Some(404),
        (Who::OneRrset | Who::Elsewhere | Who::Reader, About::Caller | About::NewDomain) => Some(403),
        (_, About::Caller) => None,
        (Who::Tenant(role), About::NewDomain) => (role < 2).then_some(403),
        // The tenant that it names is none that the caller knows of.
        (_, About::NewDomain) => Some(422),
        // Owners manage it; what is said of it is for administrators.
        (Who::Tenant(role), About::Tenant) => {
            (verb == Verb::Write || verb == Verb::Manage && role < 2).then_some(403)
        }
        (Who::OneRrset | Who::Elsewhere | Who::Reader, About::Tenant) => Some(403),
        (_, About::Tenant) => Some(404),
        // Nothing that only reads may ask for it; the others are judged domain by domain.
        (Who::Reader, About::Seen) if verb != Verb::Read => Some(403),
        (Who::OneRrset, About::Seen) if one_name => Some(403),
        (_, About::Seen) if !one_operation && !one_name => None,
        (Who::Foreign | Who::Elsewhere, _) => Some(404),
        (Who::Tenant(role) | Who::Domain(role), _) => by_role(role),
        (Who::Reader, _) => (verb != Verb::Read).then_some(403),
        (Who::OneRrset, About::Seen) => (verb != Verb::Read).then_some(403),
        (Who::OneRrset, About::Domain) => None,
        (Who::OneRrset, About::Contents) => Some(403),
        (Who::OneRrset, About::Records) => {
            let listed = verb == Verb::Read && !path.contains("{name}");
            // Judged by what it would change, and here it would change nothing yet that it knows of.
            (!listed && !path.contains("rollback")).then_some(403)
        }
    }
}

struct Ids {
    tenant: String,
    user: UserId,
    token: String,
    operation: String,
    webhook: String,
}

fn fill(path: &str, ids: &Ids) -> String {
    let random = Uuid::from_u128(7).to_string();
    let id = match path {
        path if path.contains("/tenants/") => &ids.tenant,
        path if path.contains("/users/") => &ids.user.to_string(),
        path if path.starts_with("/api/tokens/") => &ids.token,
        path if path.contains("/operations/") => &ids.operation,
        path if path.contains("/webhooks/") => &ids.webhook,
        _ => &random,
    };
    path.replace("{d}", "example.test")
        .replace("{name}", "www")
        .replace("{type}", "A")
        .replace("{n}", "1")
        .replace("{id}", id)
        .replace("{user}", &ids.user.to_string())
}

/// The body of a row, with one for a new domain of our own tenant.
fn body(row: &Row, ids: &Ids) -> Option<Value> {
    if (row.0, row.1) == ("post", "/api/domains") {
        return Some(json!({"name": "new.example.org", "tenant": ids.tenant}));
    }
    if (row.0, row.1) == ("post", "/api/webhooks") {
        return Some(json!({"name": "new", "url": "https://hooks.example.net/", "tenant": ids.tenant}));
    }
    (!row.2.is_null()).then(|| row.2.clone())
}

/// A domain with a record, and one of everybody.
async fn world(api: &TestApi) -> (Ids, Vec<(Who, Secret)>) {
    let tenant = api.tenant("ours").await;
    let foreign = api.tenant("foreign").await;
    let new = json!({"name": "example.test", "tenant": tenant, "force_active": true});
    let made = api.call(Method::POST, "/api/domains", new).await.expect(202).json();
    let www = json!({"ttl": 60, "records": [ADDRESS]});
    api.call(Method::PUT, "/api/domains/example.test/rrsets/www/A", www).await.expect(202);
    let hook = json!({"name": "ours", "url": "https://hooks.example.net/", "tenant": tenant});
    let hook = api.call(Method::POST, "/api/webhooks", hook).await.expect(201).json();
    let me = api.get("/api/me").await.expect(200).json();
    let user: UserId = me["id"].as_str().unwrap().parse().unwrap();
    let member = json!({"role": "viewer"});
    for path in [format!("/api/tenants/{tenant}"), "/api/domains/example.test".to_owned()] {
        api.call(Method::PUT, &format!("{path}/members/{user}"), member.clone()).await.expect(200);
    }
    let mut people = vec![(Who::Foreign, api.user("foreign@example.test", false, &[foreign]).await.1)];
    let mut owner = None;
    for (number, role) in (0_u8..).zip(ROLES) {
        let (user, token) = api.user(&format!("{role}@example.test"), false, &[tenant]).await;
        let path = format!("/api/tenants/{tenant}/members/{user}");
        api.call(Method::PUT, &path, json!({"role": role})).await.expect(200);
        people.push((Who::Tenant(number), token));
        owner = Some(user);
        let (user, token) = api.user(&format!("guest-{role}@example.test"), false, &[]).await;
        let path = format!("/api/domains/example.test/members/{user}");
        api.call(Method::PUT, &path, json!({"role": role})).await.expect(200);
        people.push((Who::Domain(number), token));
    }
    let owner = owner.unwrap();
    let acme = json!([{"verbs": ["read", "write"], "domains": ["example.test"], "names": ["_acme-challenge"], "types": ["TXT"]}]);
    people.push((Who::OneRrset, api.limited(owner, acme).await));
    let elsewhere = json!([{"verbs": ["read", "write", "admin"], "domains": ["other.example"]}]);
    people.push((Who::Elsewhere, api.limited(owner, elsewhere).await));
    let reads = json!([{"verbs": ["read"], "domains": ["example.test"]}]);
    people.push((Who::Reader, api.limited(user, reads).await));
    people.push((Who::Admin, Secret::new(api.admin.expose().to_owned())));
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let ids = Ids {
        tenant: tenant.to_string(),
        user,
        token: text(&me["token"]),
        operation: text(&made["operation"]["id"]),
        webhook: text(&hook["id"]),
    };
    (ids, people)
}

/// As it is where it must be refused; only decided where it may be allowed, so that nothing changes for the others.
async fn ask(api: &TestApi, token: &Secret, row: &Row, ids: &Ids, dry: bool) -> Answer {
    let mut path = fill(row.1, ids);
    if dry && row.0 != "get" {
        path.push_str(if path.contains('?') { "&dry_run=true" } else { "?dry_run=true" });
    }
    let method: Method = row.0.to_uppercase().parse().unwrap();
    if row.1.contains("/zone?") && row.0 == "post" {
        // A zone file, with a record that nobody's token is limited to.
        let request = api.request(method, &path).bearer_auth(token.expose());
        let request = request.header("content-type", "text/dns").body("matrix 60 A 192.0.2.1\n");
        return Answer::of(request.send().await.unwrap()).await;
    }
    api.send(token, method, &path, body(row, ids).as_ref(), &[]).await
}

#[tokio::test]
async fn every_route_for_everybody() {
    let dir = tempfile::tempdir().unwrap();
    let key_file = dir.path().join("secret-key");
    assert!(headwater::vault::make(&key_file).unwrap());
    let api = TestApi::start(&format!("[secrets]\nkey_file = {key_file:?}\n")).await;
    tokio::spawn(headwater::operation::run(api.app.clone()));
    let (ids, people) = world(&api).await;
    assert_eq!(people.iter().map(|(who, _)| *who).filter(|who| ALL.contains(who)).count(), ALL.len());
    let seen = format!("/api/operations/{}", ids.operation);
    let known = || api.get(&seen);
    crate::support::eventually("the operation is there", known, |answer| answer.status == 200).await;
    let rows: Vec<Row> = matrix().into_iter().chain(edges()).collect();
    let (mut refused, mut allowed, mut nobody) = (0, 0, 0);
    let mut wrong = Vec::new();
    let head = api.head().await;
    for row in &rows {
        let route = row.1.split('?').next().unwrap();
        let method = row.0.to_uppercase();
        let Some(rule) = policy::of(&method, route) else {
            wrong.push(format!("{method} {route} has no policy"));
            continue;
        };
        let bare = api.request(method.parse().unwrap(), &fill(row.1, &ids)).send().await.unwrap();
        assert_eq!(bare.status(), 401, "{method} {route}");
        nobody += 1;
        let expected = ask(&api, &api.admin, row, &ids, true).await.status;
        for (who, token) in &people {
            let deny = denied(*who, route, rule.verb, rule.about);
            let answer = ask(&api, token, row, &ids, deny.is_none()).await;
            let status = deny.unwrap_or(expected.as_u16());
            if answer.status != status {
                wrong.push(format!("{who:?} {method} {route}: {} instead of {status}", answer.status));
            }
            let blind = deny.is_some() || matches!(who, Who::Foreign | Who::Elsewhere | Who::OneRrset);
            if blind && answer.text.contains(ADDRESS) {
                wrong.push(format!("{who:?} {method} {route} is shown what it may not read"));
            }
            // Reading is looked after at the end.
            if row.0 != "get" && api.head().await != head {
                panic!("{who:?} {method} {route} wrote something: {wrong:#?}");
            }
            if deny.is_some() { refused += 1 } else { allowed += 1 }
        }
    }
    let counts = format!(
        "access: {} routes × {} roles and nobody: {} denied, {allowed} allowed",
        rows.len(),
        people.len(),
        refused + nobody
    );
    println!("{counts}");
    assert_eq!(api.head().await, head, "somebody who read wrote something");
    assert!(wrong.is_empty(), "{counts}\n{wrong:#?}");
    assert!(rows.len() >= 80 && refused >= 400 && allowed >= 200, "{counts}");
}

/// Walks the router: every route that it describes has a policy and a row above, and no policy is for a route that is
/// not there.
#[test]
fn every_route_has_a_policy() {
    let open = ["/api/tokens/revoke", "/api/auth/login"].map(|path| ("POST".to_owned(), path.to_owned()));
    let upper = |(method, path): (String, String)| (method.to_uppercase(), path);
    let all = described().into_iter().chain(facade());
    let routes: BTreeSet<_> = all.map(upper).filter(|route| !open.contains(route)).collect();
    let ruled: BTreeSet<_> =
        RULES.iter().map(|rule| (rule.method.to_owned(), rule.path.to_owned())).collect();
    assert_eq!(ruled.len(), RULES.len(), "two policies for one route");
    let lacking: Vec<_> = routes.difference(&ruled).collect();
    assert!(lacking.is_empty(), "routes without a policy: {lacking:?}");
    let idle: Vec<_> = ruled.difference(&routes).collect();
    assert!(idle.is_empty(), "policies without a route: {idle:?}");
    let path = |row: Row| upper((row.0.to_owned(), row.1.split('?').next().unwrap().to_owned()));
    let asked: BTreeSet<_> = matrix().into_iter().chain(edges()).chain(rows()).map(path).collect();
    assert_eq!(asked, routes, "routes that nobody is tried on");
}
