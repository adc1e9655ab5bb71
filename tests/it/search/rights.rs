//! Who finds what: a search shows of each domain what a read of it would, and of others nothing.

use headwater::secret::Secret;
use reqwest::Method;
use serde_json::{Value, json};

use super::{CONFIG, domain, found, put};
use crate::support::TestApi;

const VALUE: (&str, &str) = ("content", "192.0.2.1");

async fn token(api: &TestApi, by: &Secret, body: Value) -> Secret {
    let made = api.send(by, Method::POST, "/api/me/tokens", Some(&body), &[]).await.expect(201).json();
    Secret::new(made["token"].as_str().unwrap().to_owned())
}

/// Three domains of two tenants, each with the same two RRsets.
async fn api() -> (TestApi, Secret, Secret) {
    let api = TestApi::start(CONFIG).await;
    let (ours, theirs) = (api.tenant("ours").await, api.tenant("theirs").await);
    let (_, ann) = api.user("ann@example.test", false, &[ours]).await;
    let (guest, gus) = api.user("gus@example.test", false, &[]).await;
    for (name, tenant) in [("one.test", ours), ("two.test", ours), ("three.test", theirs)] {
        domain(&api, name, json!(tenant)).await;
        put(&api, &api.admin, name, "www", "A", &["192.0.2.1"]).await;
        put(&api, &api.admin, name, "api", "A", &["192.0.2.1"]).await;
    }
    let member = format!("/api/domains/three.test/members/{}", guest.as_uuid());
    api.call(Method::PUT, &member, json!({"role": "viewer"})).await.expect(200);
    (api, ann, gus)
}

#[tokio::test]
async fn nobody_finds_what_it_may_not_read() {
    let (api, ann, gus) = api().await;
    let (_, nobody) = api.user("nobody@example.test", false, &[]).await;
    let of_one = ["one.test api A", "one.test www A"];
    let of_ours = ["one.test api A", "one.test www A", "two.test api A", "two.test www A"];
    let of_theirs = ["three.test api A", "three.test www A"];
    // By each way that leads to it.
    let ways: [&[(&str, &str)]; 3] = [&[VALUE], &[("type", "A")], &[]];
    for query in ways {
        assert_eq!(found(&api, &ann, query).await, of_ours, "{query:?}");
        assert_eq!(found(&api, &gus, query).await, of_theirs, "{query:?}");
        assert_eq!(found(&api, &nobody, query).await, [""; 0], "{query:?}");
        assert_eq!(found(&api, &api.admin, query).await.len(), 6, "{query:?}");
    }
    for (name, ann_finds) in [("www.one.test.", 1), ("www.three.test.", 0)] {
        assert_eq!(found(&api, &ann, &[("name", name)]).await.len(), ann_finds, "{name}");
    }
    assert_eq!(found(&api, &gus, &[("name", "www")]).await, ["three.test www A"]);
    let limited = |scope: Value| json!({"name": "limited", "scopes": [scope]});
    let rows = [
        (json!({"verbs": ["read"], "domains": ["one.test"]}), of_one.to_vec()),
        (json!({"verbs": ["read"], "domains": ["one.test", "three.test"]}), of_one.to_vec()),
        (
            json!({"verbs": ["read"], "domains": ["*"], "names": ["www"]}),
            vec!["one.test www A", "two.test www A"],
        ),
        (json!({"verbs": ["read"], "domains": ["*"], "types": ["TXT"]}), vec![]),
        (json!({"verbs": ["read"], "domains": ["*"], "types": ["A"]}), of_ours.to_vec()),
    ];
    for (scope, expected) in rows {
        let token = token(&api, &ann, limited(scope.clone())).await;
        assert_eq!(found(&api, &token, &[VALUE]).await, expected, "{scope}");
    }
    let writer = token(&api, &ann, limited(json!({"verbs": ["write"], "domains": ["*"]}))).await;
    api.send(&writer, Method::GET, "/api/rrsets", None, &[]).await.expect(403);
}

#[tokio::test]
async fn a_tool_that_is_shown_its_own_finds_nothing_else() {
    let (api, ann, _) = api().await;
    let tool = |view: &'static str| json!({"name": "octodns", "manager": "octodns", "view": view});
    let own = token(&api, &ann, tool("own")).await;
    let all = token(&api, &ann, tool("all")).await;
    put(&api, &all, "one.test", "tool", "A", &["192.0.2.1"]).await;
    assert_eq!(found(&api, &own, &[VALUE]).await, ["one.test tool A"]);
    assert_eq!(found(&api, &own, &[]).await, ["one.test tool A"]);
    assert_eq!(found(&api, &own, &[VALUE, ("managed_by", "other")]).await, [""; 0]);
    assert_eq!(found(&api, &all, &[VALUE]).await.len(), 5);
    for by in [&api.admin, &ann, &own] {
        assert_eq!(found(&api, by, &[("managed_by", "octodns")]).await, ["one.test tool A"]);
    }
}

/// Whoever sees many domains is taken through them turn by turn, or past what others have: the same is found.
#[tokio::test]
async fn many_domains_are_gone_through_whole() {
    let (api, ann, _) = api().await;
    let grow = "insert into desired.domains (id, name, name_key, tenant_id, status, revision, labels, serial_base, \
            created_at, updated_at) \
        select ('01982f6e-7b4c-7d30-0000-' || lpad(to_hex(n), 12, '0'))::uuid, 'd' || n || '.many', 'many d' || n, \
            d.tenant_id, 'active', 1, '{}', 1, now(), now() \
          from generate_series(1, 300) n, desired.domains d where d.name = case when n % 3 = 0 then 'three.test' else 'one.test' end; \
        insert into desired.rrsets (domain_id, owner_key, type, owner, ttl, records, changed) \
        select d.id, 'h' || lpad(n::text, 3, '0'), 1, 'h' || lpad(n::text, 3, '0'), 300, array['198.51.100.7'], 1 \
          from desired.domains d, generate_series(1, 30) n where d.name like '%.many'; \
        insert into desired.terms select w, r.domain_id, r.owner_key, r.type from desired.rrsets r, \
          unnest(rrset_terms(r.owner_key, r.records)) w on conflict do nothing";
    sqlx::raw_sql(grow).execute(&api.app.pool).await.unwrap();
    // 9,000 have the value: too many to look past what others have. 300 have the name: those are looked at.
    for (query, expected) in
        [("content=198.51.100.7", 200 * 30), ("name=h007", 200), ("type=A", 200 * 30 + 4)]
    {
        let (mut count, mut next, mut last) = (0, String::new(), String::new());
        loop {
            let path = format!("/api/rrsets?limit=1000&{query}{next}");
            let page = api.send(&ann, Method::GET, &path, None, &[]).await.expect(200).json();
            for item in page["items"].as_array().unwrap() {
                let domain = item["domain"].as_str().unwrap().to_owned();
                assert_ne!(domain, "three.test");
                assert!(
                    !domain.ends_with(".many")
                        || domain[1..domain.len() - 5].parse::<i32>().unwrap() % 3 != 0
                );
                last = format!("{domain} {}", item["name"]);
                count += 1;
            }
            let Some(cursor) = page["next"].as_str() else { break };
            next = format!("&cursor={cursor}");
        }
        assert_eq!(count, expected, "{query} up to {last}");
    }
}
