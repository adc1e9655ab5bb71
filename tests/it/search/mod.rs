//! RRsets of all domains, by a value, a name, a type, a tool: what is found, by whom, and along which index.

mod plans;
mod rights;

use headwater::secret::Secret;
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::TestApi;

pub const CONFIG: &str = "[limits]\nmutations_per_minute = 100000\nreads_per_minute = 100000\n";

pub async fn domain(api: &TestApi, name: &str, tenant: Value) {
    let mut new = json!({"name": name, "force_active": true});
    if !tenant.is_null() {
        new["tenant"] = tenant;
    }
    api.call(Method::POST, "/api/domains", new).await.expect(202);
}

pub async fn put(api: &TestApi, by: &Secret, domain: &str, owner: &str, rrtype: &str, records: &[&str]) {
    let path = format!("/api/domains/{domain}/rrsets/{owner}/{rrtype}");
    let body = json!({"ttl": 300, "records": records});
    api.send(by, Method::PUT, &path, Some(&body), &[]).await.expect(202);
}

/// What is asked for, and what is found.
type Row = (&'static [(&'static str, &'static str)], &'static [&'static str]);

/// A value as it stands in a query.
pub fn encoded(text: &str) -> String {
    text.bytes().map(|octet| format!("%{octet:02X}")).collect()
}

/// What is found, as `owner.domain type`.
pub async fn found(api: &TestApi, by: &Secret, query: &[(&str, &str)]) -> Vec<String> {
    let pairs: Vec<String> = query.iter().map(|(key, value)| format!("{key}={}", encoded(value))).collect();
    let path = format!("/api/rrsets?{}", pairs.join("&"));
    let answer = api.send(by, Method::GET, &path, None, &[]).await.expect(200).json();
    assert_eq!(answer["next"], Value::Null, "{answer}");
    answer["items"].as_array().unwrap().iter().map(shown).collect()
}

fn shown(item: &Value) -> String {
    let text = |key: &str| item[key].as_str().unwrap().to_owned();
    format!("{} {} {}", text("domain"), text("name"), text("type"))
}

/// Two domains with something of everything.
async fn api() -> TestApi {
    let api = TestApi::start(CONFIG).await;
    for name in ["one.test", "two.test"] {
        domain(&api, name, Value::Null).await;
        put(&api, &api.admin, name, "www", "A", &["192.0.2.1", "192.0.2.2"]).await;
        put(&api, &api.admin, name, "@", "MX", &["10 Mail.example.com.", "20 mx2.example.com."]).await;
    }
    put(&api, &api.admin, "one.test", "www", "AAAA", &["2001:DB8::1"]).await;
    put(&api, &api.admin, "one.test", "@", "TXT", &["\"v=spf1 include:_spf.example.com ~all\""]).await;
    put(&api, &api.admin, "one.test", "_acme-challenge.www", "TXT", &["\"abc\""]).await;
    put(&api, &api.admin, "two.test", "_acme-challenge", "TXT", &["\"def\""]).await;
    put(&api, &api.admin, "two.test", "a.dyn", "A", &["192.0.2.3"]).await;
    put(&api, &api.admin, "two.test", "b.a.dyn", "A", &["192.0.2.4"]).await;
    put(&api, &api.admin, "two.test", "*", "CNAME", &["www.one.test."]).await;
    api
}

#[tokio::test]
async fn everything_is_found_by_its_values_names_types() {
    let api = api().await;
    let rows: [Row; 22] = [
        (&[("content", "192.0.2.2")], &["one.test www A", "two.test www A"]),
        (&[("content", "192.0.2.20")], &[]),
        (&[("content", "192.0.2")], &[]),
        (&[("content", "2001:db8:0:0::1")], &["one.test www AAAA"]),
        (&[("content", "10 MAIL.example.com.")], &["one.test @ MX", "two.test @ MX"]),
        (&[("content", "mail.example.com.")], &["one.test @ MX", "two.test @ MX"]),
        (&[("content", "mail.example.com."), ("type", "A")], &[]),
        (&[("content", "www.one.test.")], &["two.test * CNAME"]),
        (&[("content", "include:_spf.example.com")], &["one.test @ TXT"]),
        (&[("content", "v=spf1 include:_spf.example.com ~all")], &["one.test @ TXT"]),
        (&[("content", "abc"), ("type", "txt")], &["one.test _acme-challenge.www TXT"]),
        (&[("name", "www")], &["one.test www A", "one.test www AAAA", "two.test www A"]),
        (&[("name", "www"), ("content", "192.0.2.1"), ("type", "A")], &["one.test www A", "two.test www A"]),
        (&[("name", "www.two.test.")], &["two.test www A"]),
        (&[("name", "two.test."), ("type", "MX")], &["two.test @ MX"]),
        (&[("name", "nobody.example.")], &[]),
        (&[("name", "*")], &["two.test * CNAME"]),
        (&[("name", "*.dyn")], &["two.test a.dyn A", "two.test b.a.dyn A"]),
        (&[("name", "*.a.dyn")], &["two.test b.a.dyn A"]),
        (&[("name", "_acme-challenge.*")], &["one.test _acme-challenge.www TXT"]),
        (&[("type", "TXT"), ("name", "@")], &["one.test @ TXT"]),
        (&[("type", "SRV")], &[]),
    ];
    for (query, expected) in rows {
        assert_eq!(found(&api, &api.admin, query).await, expected, "{query:?}");
    }
    assert_eq!(found(&api, &api.admin, &[]).await.len(), 11);
    let bad = ["name=*.*", "name=a..b", "type=BOGUS1", "managed_by=platform", "content=", "owner=www"];
    for query in bad {
        api.get(&format!("/api/rrsets?{query}")).await.expect_problem(400, "malformed");
    }
}

/// A changed value is found, the former one is not; so it is with what is deleted and what changes hands.
#[tokio::test]
async fn what_is_found_follows_every_change() {
    let api = api().await;
    let content = |value: &'static str| [("content", value)];
    put(&api, &api.admin, "one.test", "www", "A", &["192.0.2.2", "192.0.2.9"]).await;
    assert_eq!(found(&api, &api.admin, &content("192.0.2.1")).await, ["two.test www A"]);
    assert_eq!(found(&api, &api.admin, &content("192.0.2.9")).await, ["one.test www A"]);
    assert_eq!(found(&api, &api.admin, &content("192.0.2.2")).await, ["one.test www A", "two.test www A"]);
    let path = "/api/domains/two.test/rrsets";
    let change = json!({"changes": [
        {"op": "add", "name": "www", "type": "A", "records": ["192.0.2.77"]},
        {"op": "remove", "name": "www", "type": "A", "records": ["192.0.2.2"]},
        {"op": "delete", "name": "a.dyn", "type": "A"},
    ]});
    api.call(Method::POST, &format!("{path}/batch"), change).await.expect(202);
    assert_eq!(found(&api, &api.admin, &content("192.0.2.77")).await, ["two.test www A"]);
    assert_eq!(found(&api, &api.admin, &content("192.0.2.2")).await, ["one.test www A"]);
    assert_eq!(found(&api, &api.admin, &[("name", "*.dyn")]).await, ["two.test b.a.dyn A"]);
    let pool = &api.app.pool;
    // What is looked up beside the RRsets is exactly what they say.
    let stale = "select count(*) from (select t.term, t.domain_id, t.owner_key, t.type from desired.terms t except \
        select w, r.domain_id, r.owner_key, r.type from desired.rrsets r, unnest(rrset_terms(r.owner_key, r.records)) w) n";
    let missing = "select count(*) from (select w, r.domain_id, r.owner_key, r.type from desired.rrsets r, \
        unnest(rrset_terms(r.owner_key, r.records)) w except select t.term, t.domain_id, t.owner_key, t.type \
        from desired.terms t) n";
    for query in [stale, missing] {
        assert_eq!(sqlx::query_scalar::<_, i64>(query).fetch_one(pool).await.unwrap(), 0, "{query}");
    }
    let differences = headwater::rebuild::desired::verify(pool, None, &mut |_| {}).await.unwrap();
    assert!(differences.is_empty(), "{differences:?}");
    // Who takes a name over is not shown what was there.
    api.call(Method::DELETE, "/api/domains/one.test", Value::Null).await.expect(202);
    let gone = "update desired.domains set current = false where name = 'one.test'";
    sqlx::query(gone).execute(pool).await.unwrap();
    assert_eq!(found(&api, &api.admin, &content("192.0.2.9")).await, [""; 0]);
}

/// Pages give everything once and in order; so do lines.
#[tokio::test]
async fn pages_and_lines_give_everything_once() {
    let api = api().await;
    let whole = found(&api, &api.admin, &[]).await;
    for query in ["", "&content=192.0.2.1", "&name=www", "&type=A", "&name=*.dyn", "&name=www.one.test."] {
        let all = api.get(&format!("/api/rrsets?limit=1000{query}")).await.expect(200).json();
        let all: Vec<String> = all["items"].as_array().unwrap().iter().map(shown).collect();
        let (mut walked, mut next) = (Vec::new(), String::new());
        loop {
            let page = api.get(&format!("/api/rrsets?limit=1{query}{next}")).await.expect(200).json();
            walked.extend(page["items"].as_array().unwrap().iter().map(shown));
            assert!(walked.len() <= whole.len(), "{query}: it never ends");
            let Some(cursor) = page["next"].as_str() else { break };
            next = format!("&cursor={cursor}");
        }
        assert_eq!(walked, all, "{query}");
        let accept = [("Accept", "application/x-ndjson")];
        let path = format!("/api/rrsets?{}", query.trim_start_matches('&'));
        let lines = api.send(&api.admin, Method::GET, &path, None, &accept).await.expect(200).text;
        let lines: Vec<String> =
            lines.lines().map(|line| shown(&serde_json::from_str(line).unwrap())).collect();
        assert_eq!(lines, all, "{query}");
    }
}
