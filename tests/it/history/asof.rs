//! What a domain was at each of its revisions and times, against what was shown then.

use std::collections::BTreeMap;

use headwater::query::asof::{self, Way};
use headwater::query::domains;
use headwater_events::dns::DomainName;
use headwater_events::ids::Revision;
use reqwest::Method;
use serde_json::{Value, json};

use super::{Dice, NAME, ZONE, api, paths, put};
use crate::support::TestApi;

/// Everything that is shown of what the domain desires.
async fn shown(api: &TestApi, query: &str) -> Value {
    let get = |path: &str| {
        let joined = if path.contains('?') { query.replace('?', "&") } else { query.to_owned() };
        let path = format!("{ZONE}{path}{joined}");
        async move { api.get(&path).await.expect(200) }
    };
    let (domain, cache) = (get("").await, get("/cache").await);
    let rrsets = get("/rrsets?limit=1000").await;
    let www = api.get(&format!("{ZONE}/rrsets/www/A{query}")).await;
    let shop = api.get(&format!("{ZONE}/hostnames/shop{query}")).await;
    let hostnames = get("/hostnames?limit=1000").await;
    json!({
        "domain": domain.json(), "domain_tag": domain.header("etag"), "cache": cache.json(),
        "cache_tag": cache.header("etag"), "rrsets": rrsets.json(), "rrsets_tag": rrsets.header("etag"),
        "hostnames": hostnames.json(), "hostnames_tag": hostnames.header("etag"), "zone": get("/zone").await.text,
        "tls": get("/tls").await.json(), "www": [www.status.as_u16(), www.text.contains("192.0.2.")],
        "shop": [shop.status.as_u16(), shop.text.contains("origin")],
    })
}

/// One step of somebody's; some are refused.
async fn step(api: &TestApi, dice: &mut Dice) {
    let owner = ["www", "a", "b.a", "@", "\\034.x"][dice.roll(5) as usize];
    let rrtype = ["A", "TXT", "MX"][dice.roll(3) as usize];
    let n = dice.roll(200) + 1;
    let record = match rrtype {
        "A" => format!("192.0.2.{n}"),
        "TXT" => format!("\"{n}\""),
        _ => format!("{n} mail.example.net."),
    };
    let host = ["shop", "www", "b.a"][dice.roll(3) as usize];
    let (method, path, body) = match dice.roll(12) {
        0..=4 => {
            (Method::PUT, format!("/rrsets/{owner}/{rrtype}"), json!({"ttl": 300 + n, "records": [record]}))
        }
        5 => (Method::DELETE, format!("/rrsets/{owner}/{rrtype}"), Value::Null),
        6 => {
            let add = json!({"op": "add", "name": owner, "type": "TXT", "records": [format!("\"{n}\"")]});
            let put = json!({"op": "put", "name": "c", "type": "A", "ttl": 60, "records": [format!("192.0.2.{n}")]});
            (Method::POST, "/rrsets/batch".to_owned(), json!({"changes": [add, put]}))
        }
        7 => (
            Method::PUT,
            format!("/hostnames/{host}"),
            json!({"origin": {"scheme": "http", "host": format!("8.8.8.{n}")}}),
        ),
        8 => (Method::DELETE, format!("/hostnames/{host}"), Value::Null),
        9 => (Method::PATCH, "/cache".to_owned(), json!({"edge_ttl_seconds": n})),
        10 => (Method::PATCH, String::new(), json!({"labels": {"a": n.to_string()}})),
        _ => (Method::POST, "/purges".to_owned(), json!({"type": "all"})),
    };
    let path = format!("{ZONE}{}", path.replace('\\', "%5C"));
    let answer = api.call(method, &path, body).await;
    assert!(answer.status.as_u16() < 500, "{answer:?}");
}

/// The law: as of revision n is the state after n, by either way, whatever happened since.
#[tokio::test]
async fn as_of_a_revision_is_the_state_after_it() {
    let (seeds, steps) = if std::env::var_os("HEADWATER_TORTURE").is_some() { (20, 100) } else { (1, 24) };
    for seed in 1..=seeds {
        let (api, mut dice) = (api("").await, Dice::new(seed));
        let mut states: BTreeMap<i64, Value> = BTreeMap::new();
        for _ in 0..steps {
            let now = shown(&api, "").await;
            states.insert(now["domain"]["revision"].as_i64().unwrap(), now);
            step(&api, &mut dice).await;
        }
        assert!(states.len() > 10, "seed {seed}: {} revisions", states.len());
        let name = DomainName::parse(NAME).unwrap();
        let held = domains::by_name(&api.app.pool, &name).await.unwrap().unwrap();
        for (revision, state) in &states {
            let then = shown(&api, &format!("?revision={revision}")).await;
            assert_eq!(&then, state, "seed {seed}, revision {revision}");
            let of = |way| {
                let (pool, domain) = (api.app.pool.clone(), held.state.clone());
                let revision = Revision::new(*revision);
                async move { asof::state(&pool, &domain, revision, way).await.unwrap() }
            };
            let (back, whole) = (of(Way::Backwards).await, of(Way::Whole).await);
            let told = |state: &asof::AsOf| {
                let rrsets: Vec<_> = state
                    .rrsets
                    .iter()
                    .map(|(key, one)| {
                        (key.clone(), one.body.clone(), one.changed.as_ref().map(|c| c.revision))
                    })
                    .collect();
                let hostnames: Vec<_> = state
                    .hostnames
                    .iter()
                    .map(|(key, one)| (key.clone(), one.body.clone(), one.changed.revision))
                    .collect();
                let cache = (state.cache.policy.clone(), state.cache.epoch, state.cache.changed.revision);
                (rrsets, hostnames, cache, state.domain.clone())
            };
            assert_eq!(told(&back), told(&whole), "seed {seed}, revision {revision}");
        }
    }
}

#[tokio::test]
async fn as_of_a_time_is_the_newest_revision_by_then() {
    let api = api("").await;
    for n in 1..=9 {
        put(&api, "www", &[&format!("192.0.2.{n}")]).await;
    }
    let all = api.get(&format!("{ZONE}/revisions?limit=100")).await.expect(200).json();
    let made: Vec<(String, i64)> = all["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (one["at"].as_str().unwrap().to_owned(), one["revision"].as_i64().unwrap()))
        .collect();
    for (at, _) in &made {
        let newest = made.iter().filter(|(other, _)| other <= at).map(|(_, n)| *n).max().unwrap();
        let shown = api.get(&format!("{ZONE}/rrsets?at={at}")).await.expect(200);
        assert_eq!(shown.header("etag"), format!("\"{newest}\""), "{at}");
    }
    // What is later than everything is the newest; what is earlier never was.
    let late = api.get(&format!("{ZONE}?at=2999-01-01T00:00:00Z")).await.expect(200);
    assert_eq!(late.header("etag"), "\"10\"");
    api.get(&format!("{ZONE}?at=2000-01-01T00:00:00Z")).await.expect_problem(404, "not_found");
    for query in ["revision=0", "revision=11"] {
        api.get(&format!("{ZONE}/zone?{query}")).await.expect_problem(404, "not_found");
        api.get(&format!("{ZONE}/rrsets/www/A?{query}")).await.expect_problem(404, "not_found");
    }
    for query in [
        "revision=x",
        "at=yesterday",
        "revision=1&at=2999-01-01T00:00:00Z",
        "revision=-1",
        "revision=1&revision=2",
    ] {
        for path in ["", "/rrsets", "/rrsets/www/A", "/hostnames", "/cache", "/zone", "/tls"] {
            api.get(&format!("{ZONE}{path}?{query}")).await.expect_problem(400, "malformed");
        }
    }
    // A tag of then is a tag of then.
    let then = api
        .send(
            &api.admin,
            Method::GET,
            &format!("{ZONE}/rrsets?revision=4"),
            None,
            &[("if-none-match", "\"4\"")],
        )
        .await;
    assert_eq!(then.status.as_u16(), 304);
    // Pages of then, while it changes.
    let mut found = Vec::new();
    let mut cursor = String::new();
    put(&api, "a", &["192.0.2.1"]).await;
    put(&api, "b", &["192.0.2.1"]).await;
    loop {
        let page = api.get(&format!("{ZONE}/rrsets?revision=12&limit=1{cursor}")).await.expect(200).json();
        for item in page["items"].as_array().unwrap() {
            found.push(item["name"].as_str().unwrap().to_owned());
        }
        put(&api, "c", &[&format!("192.0.2.{}", found.len())]).await;
        let Some(next) = page["next"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    assert_eq!(found, ["@", "@", "a", "b", "www"]);
}

/// What is no longer kept is said to be gone, not told wrongly.
#[tokio::test]
async fn what_is_not_kept_is_gone() {
    let api = api("").await;
    put(&api, "www", &["192.0.2.1"]).await;
    let drop = "alter table events disable trigger user; delete from events where type = 'domain.created'; \
                alter table events enable trigger user";
    sqlx::raw_sql(drop).execute(&api.app.pool).await.unwrap();
    api.get(&format!("{ZONE}/rrsets?revision=2")).await.expect_problem(410, "gone");
    api.get(&format!("{ZONE}/rrsets")).await.expect(200);
}

#[tokio::test]
async fn a_diff_says_what_is_otherwise_and_no_more() {
    let api = api("").await;
    for n in 1..=3 {
        put(&api, "www", &[&format!("192.0.2.{n}")]).await;
    }
    put(&api, "gone", &["192.0.2.9"]).await;
    let host = json!({"origin": {"scheme": "http", "host": "8.8.8.8"}});
    api.call(Method::PUT, &format!("{ZONE}/hostnames/shop"), host).await.expect(202);
    api.call(Method::PATCH, &format!("{ZONE}/cache"), json!({"edge_ttl_seconds": 5})).await.expect(202);
    api.call(Method::PATCH, ZONE, json!({"labels": {"plan": "b"}})).await.expect(202);
    api.call(Method::DELETE, &format!("{ZONE}/rrsets/gone/A"), Value::Null).await.expect(202);
    let www = put(&api, "www", &["192.0.2.1"]).await;
    assert_eq!(www, 10);
    let diff = |query: &'static str| {
        let path = format!("{ZONE}/diff?{query}");
        let api = &api;
        async move { api.get(&path).await.expect(200).json() }
    };
    let sorted = |body: &Value| {
        let mut all = paths(&body["items"]);
        all.sort();
        all
    };
    // www came back to what it was at 2, gone was never there at either end.
    assert_eq!(sorted(&diff("from=2").await), ["/", "/cache", "/hostnames/shop"]);
    let forward = diff("from=3&to=9").await;
    assert_eq!(sorted(&forward), ["/", "/cache", "/hostnames/shop", "/rrsets/www/A"]);
    let of = |body: &Value, path: &str| {
        body["items"].as_array().unwrap().iter().find(|row| row["path"] == path).unwrap().clone()
    };
    let row = of(&forward, "/rrsets/www/A");
    assert_eq!(
        (&row["before"]["records"], &row["after"]["records"]),
        (&json!(["192.0.2.2"]), &json!(["192.0.2.3"]))
    );
    assert_eq!(of(&forward, "/hostnames/shop")["before"], Value::Null);
    let back = diff("from=9&to=3").await;
    assert_eq!(of(&back, "/rrsets/www/A")["before"]["records"], json!(["192.0.2.3"]));
    assert_eq!(of(&back, "/hostnames/shop")["after"], Value::Null);
    assert_eq!(diff("from=5&to=5").await["items"], json!([]));
    // The same by pages of one, and by lines.
    let (mut all, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = api.get(&format!("{ZONE}/diff?from=3&to=9&limit=1{cursor}")).await.expect(200).json();
        all.extend(paths(&page["items"]));
        let Some(next) = page["next"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    assert_eq!(all, paths(&forward["items"]));
    let name = DomainName::parse(NAME).unwrap();
    let held = domains::by_name(&api.app.pool, &name).await.unwrap().unwrap().state;
    let wide =
        asof::diff_wide(&api.app.pool, held.id, (Revision::new(3), Revision::new(9)), 100).await.unwrap();
    let wide: Vec<String> = wide.iter().map(|one| one.row["path"].as_str().unwrap().to_owned()).collect();
    assert_eq!(wide, all, "the way by every key finds the same");
    for query in ["from=0", "from=11", "from=1&to=11"] {
        api.get(&format!("{ZONE}/diff?{query}")).await.expect_problem(404, "not_found");
    }
    for query in ["", "to=3", "from=x", "from=1&nope=1"] {
        api.get(&format!("{ZONE}/diff?{query}")).await.expect_problem(400, "malformed");
    }
}

/// Who changed what last, and why: of RRsets, proxied names and the cache, now and then.
#[tokio::test]
async fn blame_names_who_when_and_why() {
    let api = api("").await;
    let why = |note: &'static str| [("change-note", note)];
    let send = |method: Method, path: &'static str, body: Value, note: &'static str| {
        let api = &api;
        async move {
            let path = format!("{ZONE}{path}");
            api.send(&api.admin, method, &path, Some(&body), &why(note)).await.expect(202);
        }
    };
    send(Method::PUT, "/rrsets/www/A", json!({"ttl": 300, "records": ["192.0.2.1"]}), "one").await;
    let origin = json!({"origin": {"scheme": "http", "host": "8.8.8.8"}});
    send(Method::PUT, "/hostnames/shop", origin, "two").await;
    send(Method::PATCH, "/cache", json!({"edge_ttl_seconds": 5}), "three").await;
    send(Method::PUT, "/rrsets/www/A", json!({"ttl": 300, "records": ["192.0.2.2"]}), "four").await;
    send(Method::PATCH, "/cache", json!({"edge_ttl_seconds": 6}), "five").await;
    let me = api.get("/api/me").await.expect(200).json()["id"].clone();
    for (query, www, cache) in [("", (5, "four"), (6, "five")), ("?revision=4", (2, "one"), (4, "three"))] {
        let get = |path: &str| {
            let path = format!("{ZONE}{path}{query}");
            let api = &api;
            async move { api.get(&path).await.expect(200).json() }
        };
        let list = get("/rrsets").await;
        let listed = list["items"].as_array().unwrap().iter().find(|one| one["name"] == "www").unwrap();
        let names = get("/hostnames").await["items"][0]["changed"].clone();
        let of_cache = get("/cache").await["changed_by"].clone();
        for (changed, (revision, note)) in
            [(&listed["changed"], www), (&names, (3, "two")), (&of_cache, cache)]
        {
            assert_eq!((&changed["revision"], &changed["note"]), (&json!(revision), &json!(note)), "{query}");
            assert_eq!(changed["actor"]["id"], me);
        }
    }
}
