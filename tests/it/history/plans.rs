//! What must be found by an index, whatever the size of the log: plans of the real statements over a log that is large
//! enough to make a scan of it the wrong choice.

use headwater_projections::audit::Audit;
use serde_json::Value;
use sqlx::postgres::PgPool;

use headwater::operation::project;

use super::{ZONE, api, put};

/// The nodes of a plan: what each does, and with what.
fn nodes(plan: &Value, found: &mut Vec<(String, String)>) {
    let text = |key: &str| plan[key].as_str().unwrap_or_default().to_owned();
    found.push((text("Node Type"), format!("{} {}", text("Relation Name"), text("Index Name"))));
    for child in plan["Plans"].as_array().into_iter().flatten() {
        nodes(child, found);
    }
}

async fn plan(pool: &PgPool, statement: &str) -> Vec<(String, String)> {
    let text = format!("explain (format json) {statement}");
    let plan: Value = sqlx::query_scalar(sqlx::AssertSqlSafe(text)).fetch_one(pool).await.unwrap();
    let mut found = Vec::new();
    nodes(&plan[0]["Plan"], &mut found);
    found
}

/// A statement with its parameters in their places, as it is planned anew each time.
fn filled(statement: &str, values: &[&str]) -> String {
    let mut text = statement.to_owned();
    for (index, value) in values.iter().enumerate().rev() {
        text = text.replace(&format!("${}", index + 1), value);
    }
    text
}

#[tokio::test]
async fn the_trail_is_found_by_its_indexes() {
    let api = api("").await;
    put(&api, "www", &["192.0.2.1"]).await;
    while !matches!(project::step(&api.app, &Audit).await.unwrap(), project::Stepped::AtHead(_)) {}
    let pool = &api.app.pool;
    let grow = "insert into audit.entries select 1000 + n, now() - n * interval '1 second', \
                    'd' || n % 500 || '.test', md5((n % 500)::text)::uuid, md5((n % 50)::text)::uuid, md5((n % 500)::text)::uuid, \
                    md5((n % 70)::text)::uuid, md5((n % 90)::text)::uuid, \
                    (array['rrset.replaced', 'rrset.deleted', 'cache.changed', 'tenant.created'])[1 + n % 4], \
                    md5(n::text)::uuid, 'rrset replaced d' || n % 500 || ' w' || n % 3000 from generate_series(1, 60000) n; \
                alter table events disable trigger user; \
                insert into events select 1000 + n, gen_random_uuid(), stream_kind, stream_id, 10 + n, 0, type, schema, at, \
                    domain_id, domain, tenant_id, actor_kind, actor_id, token_id, on_behalf_of, client, request_id, \
                    operation_id, note, change_id, cause, hash, data from events, generate_series(1, 60000) n where type = 'rrset.replaced'; \
                alter table events enable trigger user; analyze audit.entries; analyze events";
    sqlx::raw_sql(grow).execute(pool).await.unwrap();
    let statements = headwater::statements::all();
    let audit = statements
        .iter()
        .find(|text| text.contains("select a.position from audit.entries a where ($1"))
        .unwrap();
    let id = "md5('7')::uuid";
    let words = "'w77:*'";
    let none = "null";
    let rows: [(&str, [&str; 13]); 9] = [
        ("all", [none, none, none, none, none, none, none, none, none, none, none, none, "51"]),
        ("page", [none, none, none, none, none, none, none, none, none, none, none, "30000", "51"]),
        ("domain", [none, none, "'d7.test'", none, none, none, none, none, none, none, none, none, "51"]),
        ("tenant", [none, none, none, id, none, none, none, none, none, none, none, none, "51"]),
        ("actor", [none, none, none, none, id, none, none, none, none, none, none, none, "51"]),
        ("token", [none, none, none, none, none, id, none, none, none, none, none, none, "51"]),
        (
            "type",
            [
                none,
                none,
                none,
                none,
                none,
                none,
                "array['cache.changed']",
                none,
                none,
                none,
                none,
                none,
                "51",
            ],
        ),
        ("operation", [none, none, none, none, none, none, none, id, none, none, none, none, "51"]),
        ("text", [none, none, none, none, none, none, none, none, none, none, words, none, "51"]),
    ];
    // Who reads everything: neither single domains nor a limit to some.
    let asked = |values: &[&str]| filled(audit, &[values, &[none, none]].concat());
    for (what, values) in rows {
        let found = plan(pool, &asked(&values)).await;
        let scans = found.iter().filter(|(node, _)| node == "Seq Scan");
        let scans: Vec<_> = scans.filter(|(_, of)| of.starts_with("entries")).collect();
        assert_eq!(scans, [] as [&(String, String); 0], "{what}: {found:?}");
    }
    let of_domain =
        *statements.iter().find(|text| text.contains("where a.domain = $1 and a.position")).unwrap();
    let own = filled(of_domain, &["'d7.test'", none, "51", "array[md5('7')::uuid]", id, "array[]::uuid[]"]);
    let page = filled(of_domain, &["'d7.test'", "30000", "51", none, none, none]);
    let joins = ["Merge Join", "Hash Join"];
    for text in [asked(&rows[2].1), own, page] {
        let found = plan(pool, &text).await;
        assert!(found.iter().any(|(_, of)| of.contains("entries_domain")), "{found:?}");
        let wrong = found.iter().find(|(node, _)| joins.contains(&node.as_str()));
        assert_eq!(wrong, None, "each event is fetched by its position: {found:?}");
    }
    // One that half of all entries are of: they are not sorted to have the newest of them.
    let large = "update audit.entries set domain = 'd7.test' where position % 2 = 0; analyze audit.entries";
    sqlx::raw_sql(large).execute(pool).await.unwrap();
    for text in [asked(&rows[2].1), filled(of_domain, &["'d7.test'", none, "51", none, none, none])] {
        let found = plan(pool, &text).await;
        let wrong = found.iter().find(|(node, _)| node.contains("Sort") || joins.contains(&node.as_str()));
        assert_eq!(wrong, None, "the index has the order: {found:?}");
    }
}

#[tokio::test]
async fn what_was_is_found_by_the_history_of_each_thing() {
    let api = api("").await;
    for n in 1..=3 {
        put(&api, "www", &[&format!("192.0.2.{n}")]).await;
    }
    let pool = &api.app.pool;
    // As many events of one domain as make reading them all the wrong way.
    let grow = "alter table events disable trigger user; \
        insert into events select 1000 + n, gen_random_uuid(), stream_kind, stream_id, 10 + n, 0, type, schema, at, domain_id, \
            domain, tenant_id, actor_kind, actor_id, token_id, on_behalf_of, client, request_id, operation_id, note, change_id, \
            cause, hash, convert_to('{\"name\":\"n' || n % 200 || '\",\"type\":\"A\",\"before\":null,\"after\":{}}', 'UTF8') \
        from events, generate_series(1, 30000) n where type = 'rrset.replaced' and revision = 2; \
        alter table events enable trigger user; analyze events";
    sqlx::raw_sql(grow).execute(pool).await.unwrap();
    let domain = api.get(ZONE).await.json()["id"].as_str().unwrap().to_owned();
    let domain = format!("'{domain}'::uuid");
    let statements = headwater::statements::all();
    let of = |part: &str| *statements.iter().find(|text| text.contains(part)).unwrap();
    let whole = of("with recursive keys(k)");
    let one = of("(select $3::bytea as k) keys");
    for (what, text) in
        [("whole", filled(whole, &[&domain, "3"])), ("one", filled(one, &[&domain, "3", "'\\x7b'::bytea"]))]
    {
        let found = plan(pool, &text).await;
        // The newest leaf is empty, so that nothing is faster than to look at it.
        let scans = found.iter().filter(|(node, of)| node == "Seq Scan" && !of.contains("events_000001"));
        let wrong: Vec<_> = scans.collect();
        assert_eq!(wrong, [] as [&(String, String); 0], "{what}: {found:?}");
        assert!(found.iter().any(|(_, of)| of.contains("history_key")), "{what}: {found:?}");
    }
}
