//! What a page of a search costs: it is read along one index, from where it begins, whatever there is and whoever asks.

use std::time::Instant;

use headwater::secret::Secret;
use serde_json::{Value, json};

use super::{CONFIG, domain};
use crate::support::TestApi;

/// Domains of the table; each has 50 RRsets, 1,000,000 in 20,000 domains in all when this is 20,000.
const DOMAINS: i64 = 2_000;
/// How often each page is read.
const TIMES: i64 = 3;
/// What every statement takes first: where it goes on, how many, and nothing of what may be asked.
const NOTHING: &str =
    "'00000000-0000-0000-0000-000000000000','',0,51,null,null,null,null,null,null,null,null,null";

/// Values that everything has, that one domain has, that the newest tenth has; names and types likewise.
async fn grow(api: &TestApi) {
    let text = format!(
        "insert into desired.domains (id, name, name_key, tenant_id, status, revision, labels, external_id, serial_base, \
            created_at, updated_at) \
         select ('01982f6e-7b4c-7d30-0000-' || lpad(to_hex(n), 12, '0'))::uuid, 'd' || n || '.many.test', 'test many d' || n, \
            md5('t' || n % 200)::uuid, 'active', 1, jsonb_build_object('plan', 'p' || n % 5, 'customer', n::text), \
            'x' || n, 1, now(), now() from generate_series(1, {DOMAINS}) n; \
         insert into desired.rrsets (domain_id, owner_key, type, owner, ttl, records, changed, managed_by) \
         select ('01982f6e-7b4c-7d30-0000-' || lpad(to_hex(n), 12, '0'))::uuid, \
            case k when 0 then '' when 1 then '' when 2 then 'www' when 3 then 'mail' when 4 then 'dyn h' else 'h' || k end, \
            case k when 0 then 15 when 1 then 16 else 1 end, \
            case k when 0 then '@' when 1 then '@' when 2 then 'www' when 3 then 'mail' when 4 then 'h.dyn' else 'h' || k end, \
            300, case k when 0 then array['10 mail.example.com.'] when 1 then array['\"v=spf1 include:_spf.example.com -all\"'] \
                when 2 then array['192.0.2.1'] \
                when 3 then array[case when n > {DOMAINS} * 9 / 10 then '192.0.2.2' else '192.0.2.3' end] \
                when 5 then array['10.' || n / 65536 || '.' || n / 256 % 256 || '.' || n % 256] else array['192.0.2.1'] end, \
            1, case when k = 6 then 'octodns' when k = 7 and n = 77 then 'rare' end \
         from generate_series(1, {DOMAINS}) n, generate_series(0, 49) k; \
         insert into desired.terms select w, r.domain_id, r.owner_key, r.type from desired.rrsets r, \
            unnest(rrset_terms(r.owner_key, r.records)) w on conflict do nothing; \
         analyze desired.domains; analyze desired.rrsets; analyze desired.terms"
    );
    let pool = api.database.pool().await;
    sqlx::raw_sql(sqlx::AssertSqlSafe(text)).execute(&pool).await.unwrap();
    pool.close().await;
}

/// Every scan of a plan: what it is, of what, and whether it begins at a place of its index.
fn scans(plan: &Value, found: &mut Vec<(String, String, bool)>) {
    let text = |key: &str| plan[key].as_str().unwrap_or_default().to_owned();
    let node = text("Node Type");
    if node.ends_with("Scan") && !plan["Relation Name"].is_null() {
        let of = format!("{} {}", text("Relation Name"), text("Index Name"));
        found.push((node, of, !plan["Index Cond"].is_null()));
    }
    for child in plan["Plans"].as_array().into_iter().flatten() {
        scans(child, found);
    }
}

/// The statements, as they are planned for whatever they are asked: each goes along its index, from a place in it on, and
/// nothing else is gone through.
async fn planned(api: &TestApi) {
    let nobody = "'{00000000-0000-0000-0000-000000000000}'";
    let rows = [
        (",'{a}',0".to_owned(), "terms terms_pkey"),
        (format!(",'{{a}}',0,{nobody}"), "terms terms_pkey"),
        (String::new(), "rrsets rrsets_name"),
        (format!(",{nobody}"), "rrsets rrsets_name"),
        (",15".to_owned(), "rrsets rrsets_type"),
        (format!(",15,{nobody}"), "rrsets rrsets_type"),
        (String::new(), "rrsets rrsets_manager"),
        (format!(",{nobody}"), "rrsets rrsets_manager"),
        (String::new(), "rrsets rrsets_pkey"),
        (format!(",{nobody}"), "rrsets rrsets_pkey"),
        (",'{a}','{b}'".to_owned(), "domains domains_name"),
    ];
    let pool = api.database.pool().await;
    let mut connection = pool.acquire().await.unwrap();
    // As the search itself begins, and a plan that is for whatever it is asked.
    let begin = "begin read only; set local enable_seqscan = off; set local enable_bitmapscan = off; \
        set local enable_hashjoin = off; set local enable_mergejoin = off; set local enable_sort = off; \
        set local plan_cache_mode = force_generic_plan";
    sqlx::raw_sql(begin).execute(&mut *connection).await.unwrap();
    for (n, (statement, (more, index))) in headwater::query::search::STATEMENTS.iter().zip(&rows).enumerate()
    {
        let prepare = format!("prepare s{n} as {statement}");
        sqlx::raw_sql(sqlx::AssertSqlSafe(prepare)).execute(&mut *connection).await.unwrap();
        let explain = format!("explain (format json) execute s{n}({NOTHING}{more})");
        let query = sqlx::query_scalar(sqlx::AssertSqlSafe(explain)).persistent(false);
        let plan: Value = query.fetch_one(&mut *connection).await.unwrap();
        let mut found = Vec::new();
        scans(&plan[0]["Plan"], &mut found);
        assert!(found.iter().any(|(_, of, _)| of == index), "{index}: {found:#?}");
        let through: Vec<_> = found.iter().filter(|(_, _, begins)| !begins).collect();
        assert!(through.is_empty(), "{index}: {through:?} is gone through in {statement}");
    }
}

/// Reads a page a few times; gives how long one took at best, in milliseconds, and how many items it had.
async fn page(api: &TestApi, by: &Secret, path: &str) -> (f64, usize) {
    let (mut best, mut items) = (f64::MAX, 0);
    for _ in 0..TIMES {
        let began = Instant::now();
        let answer = api.send(by, reqwest::Method::GET, path, None, &[]).await.expect(200).json();
        best = best.min(began.elapsed().as_secs_f64() * 1_000.0);
        items = answer["items"].as_array().unwrap().len();
    }
    (best, items)
}

#[tokio::test]
async fn a_page_costs_what_it_shows() {
    let api = TestApi::start(CONFIG).await;
    let tenant = api.tenant("ours").await;
    let (_, owner) = api.user("ann@example.test", false, &[tenant]).await;
    domain(&api, "one.test", json!(tenant)).await;
    super::put(&api, &owner, "one.test", "www", "A", &["203.0.113.1"]).await;
    let (guest, member) = api.user("gus@example.test", false, &[]).await;
    grow(&api).await;
    let id = "insert into desired.domain_members (user_id, domain_id, role) select $1, id, 'viewer' from desired.domains \
              where name = 'd1.many.test'";
    sqlx::query(id).bind(guest.as_uuid()).execute(&api.app.pool).await.unwrap();
    let queries = [
        ("", 50, 50),
        ("content=192.0.2.1", 50, 46),
        ("content=192.0.2.99", 0, 0),
        ("content=10.0.0.1", 1, 1),
        ("content=192.0.2.2", 50, 0),
        ("content=192.0.2.2&type=MX", 0, 0),
        ("content=mail.example.com.", 50, 1),
        ("content=include:_spf.example.com", 50, 1),
        ("name=www", 50, 1),
        ("name=nowhere", 0, 0),
        ("name=www&content=192.0.2.3", 0, 0),
        ("name=www.d77.many.test.", 1, 0),
        ("name=*.dyn", 50, 1),
        ("name=*.none", 0, 0),
        ("name=h.*", 50, 1),
        ("type=MX", 50, 1),
        ("type=SRV", 0, 0),
        ("managed_by=octodns", 50, 1),
        ("managed_by=rare", 1, 0),
        ("managed_by=rare&content=192.0.2.1", 1, 0),
        ("managed_by=nobody", 0, 0),
    ];
    for (query, everybody, one) in queries {
        for (who, by, expected) in [("administrator", &api.admin, everybody), ("member", &member, one)] {
            let (ms, items) = page(&api, by, &format!("/api/rrsets?{query}")).await;
            println!("rrsets {who:13} {query:40} {items:3} items {ms:7.1} ms");
            assert_eq!(items, expected, "{who} {query}");
        }
    }
    let lists = [
        ("", 50),
        ("label=plan%3Dp3", 50),
        ("label=customer%3D77", 1),
        ("label=plan%3Dnone", 0),
        ("external_id=x99", 1),
        ("external_id=none", 0),
        ("q=many", 50),
        ("q=d77.many", 1),
        ("q=nowhere", 0),
        ("q=%25", 0),
    ];
    for (query, expected) in lists {
        let (ms, items) = page(&api, &api.admin, &format!("/api/domains?{query}")).await;
        println!("domains {query:40} {items:3} items {ms:7.1} ms");
        assert_eq!(items, expected, "{query}");
    }
    planned(&api).await;
}
