//! Bad input, row by row: the right status and code, every fault named, and nothing written.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Answer, TestApi};

const ZONE: &str = "/api/domains/example.test";

/// Method, path, body as sent, header, and the problem.
type Row = (&'static str, String, String, Option<(&'static str, String)>, u16, &'static str);

fn row(method: &'static str, path: &str, body: impl ToString, status: u16, code: &'static str) -> Row {
    (method, path.to_owned(), body.to_string(), None, status, code)
}

fn with(header: (&'static str, &str), row: Row) -> Row {
    (row.0, row.1, row.2, Some((header.0, header.1.to_owned())), row.4, row.5)
}

async fn send(api: &TestApi, row: &Row) -> Answer {
    let (method, path, body, header, ..) = row;
    let mut request = api.request(method.parse().unwrap(), path).bearer_auth(api.admin.expose());
    if !body.is_empty() && header.as_ref().is_none_or(|(name, _)| *name != "content-type") {
        request = request.header("content-type", "application/json");
    }
    if let Some((name, value)) = header {
        request = request.header(*name, value);
    }
    if !body.is_empty() {
        request = request.body(body.clone());
    }
    Answer::of(request.send().await.unwrap()).await
}

fn bodies() -> Vec<Row> {
    let www = format!("{ZONE}/rrsets/www/A");
    let batch = format!("{ZONE}/rrsets/batch");
    let put = |body: &str, status, code| row("PUT", &www, body, status, code);
    let good = r#"{"ttl": 1, "records": ["192.0.2.1"]}"#;
    let deep = format!("{}{}", "[".repeat(500), "]".repeat(500));
    vec![
        put("{\"ttl\":", 400, "malformed"),
        put("\u{0}", 400, "malformed"),
        put(&deep, 400, "malformed"),
        put("{\"ttl\": 1e999, \"records\": []}", 400, "malformed"),
        put("[]", 422, "invalid_type"),
        put("{\"ttl\": \"300\", \"records\": [\"192.0.2.1\"]}", 422, "invalid_type"),
        put("{\"ttl\": 1.5, \"records\": [\"192.0.2.1\"]}", 422, "invalid_type"),
        put("{\"ttl\": -1, \"records\": [\"192.0.2.1\"]}", 422, "invalid_ttl"),
        put("{\"ttl\": 2147483648, \"records\": [\"192.0.2.1\"]}", 422, "invalid_ttl"),
        put("{\"ttl\": 1, \"records\": \"192.0.2.1\"}", 422, "invalid_type"),
        put("{\"ttl\": 1, \"records\": [1]}", 422, "invalid_type"),
        put("{\"ttl\": 1, \"records\": []}", 422, "empty_rrset"),
        put("{\"records\": [\"192.0.2.1\"]}", 422, "missing"),
        put("{\"ttl\": 1, \"records\": [\"192.0.2.1\"], \"colour\": 1}", 422, "unknown_field"),
        put("{\"ttl\": 1, \"records\": [\"x\"]}", 422, "invalid_rdata"),
        put(&format!("{{\"a\": \"{}\"}}", "x".repeat(1 << 20)), 413, "too_large"),
        row("POST", &batch, format!("[\"{}\"]", "x".repeat(8 << 20)), 413, "too_large"),
        with(("content-type", "text/plain"), put(good, 415, "unsupported_media_type")),
        with(
            ("content-type", "application/x-www-form-urlencoded"),
            put("a=b", 415, "unsupported_media_type"),
        ),
        row(
            "POST",
            &batch,
            json!({"changes": [{"op": "sing", "name": "a", "type": "A"}]}),
            422,
            "invalid_op",
        ),
        row(
            "POST",
            &batch,
            json!({"changes": [{"op": "delete", "name": "none", "type": "A", "ttl": 300}]}),
            404,
            "not_found",
        ),
        put(r#"{"ttl": 1, "ttl": 2, "records": ["192.0.2.1"]}"#, 422, "duplicate_key"),
        row("POST", "/api/domains", r#"{"name": "a.test", "name": "b.test"}"#, 422, "duplicate_key"),
        row("PATCH", ZONE, r#"{"labels": {"a": "b", "a": "b"}}"#, 422, "duplicate_key"),
        row("DELETE", &www, r#"{"a": 1, "a": 1}"#, 422, "invalid"),
        row("POST", &batch, json!({"changes": [1]}), 422, "invalid_type"),
        row("POST", &batch, json!({}), 422, "missing"),
        row("PATCH", ZONE, json!({"labels": {"a": 1}}), 422, "invalid_type"),
        row("PATCH", ZONE, json!({"labels": {"a=b": "c"}}), 422, "invalid_label"),
        row("PATCH", ZONE, json!({"external_id": ""}), 422, "invalid_external_id"),
        row("PATCH", ZONE, json!({"serial_floor": 4_294_967_296_i64}), 422, "out_of_range"),
        row("PATCH", ZONE, json!({"serial_floor": u32::MAX}), 422, "serial_floor_too_high"),
        row("PATCH", ZONE, json!({"labels": {"a": "b\u{0}"}}), 422, "invalid_text"),
        row("PATCH", ZONE, json!({"labels": {"a\u{0}": "b"}}), 422, "invalid_text"),
        row("PATCH", ZONE, json!({"external_id": "\u{0}"}), 422, "invalid_text"),
        row("POST", "/api/tenants", json!({"name": "t\u{0}"}), 422, "invalid_text"),
        row(
            "POST",
            "/api/deployments/pause",
            json!({"scope": "all", "reason": "\u{0}"}),
            422,
            "invalid_text",
        ),
        put("{\"ttl\": 1, \"records\": [\"192.0.2.1\"], \"comment\": \"\\u0000\"}", 422, "invalid_text"),
        row("PATCH", ZONE, json!({"name": "other.test"}), 422, "unknown_field"),
        row("DELETE", &www, json!({"force": true}), 422, "unknown_field"),
    ]
}

fn names() -> Vec<Row> {
    let make = |name: &str, code| row("POST", "/api/domains", json!({"name": name}), 422, code);
    let long = vec!["a".repeat(60); 5].join(".");
    let label = "a".repeat(64);
    vec![
        make("", "invalid_name"),
        make(".", "invalid_name"),
        make("a..test", "invalid_name"),
        make("a\u{0}b.test", "invalid_text"),
        make("a\nb.test", "invalid_name"),
        make("a\\000b.test", "invalid_name"),
        make("a b.test", "invalid_name"),
        make("*.test", "invalid_name"),
        make(&format!("{label}.test"), "invalid_name"),
        make(&format!("{long}.test"), "invalid_name"),
        make("exa\u{200d}mple.test", "invalid_name"),
        make("a\u{2488}b.test", "invalid_name"),
        make("exa\u{200b}mple.test", "invalid_name"),
        make("exa\u{ad}mple.test", "invalid_name"),
        make("\u{feff}example.test", "invalid_name"),
        make("xn--\u{fc}.test", "invalid_name"),
        make("xn--a.test", "invalid_name"),
        row("POST", "/api/domains", json!({"name": 1}), 422, "invalid_type"),
        row("POST", "/api/domains", json!({"name": "n.test", "tenant": "x"}), 422, "invalid_id"),
        row(
            "POST",
            "/api/domains",
            json!({"name": "n.test", "tenant": uuid::Uuid::now_v7()}),
            422,
            "unknown_tenant",
        ),
        row("POST", "/api/domains", json!({"name": "example.test"}), 409, "name_taken"),
    ]
}

fn owners() -> Vec<Row> {
    let good = r#"{"ttl": 1, "records": ["192.0.2.1"]}"#;
    let put = |at: &str, status, code| row("PUT", &format!("{ZONE}/rrsets/{at}"), good, status, code);
    let long = vec!["a".repeat(60); 5].join(".");
    let label = "a".repeat(64);
    vec![
        put("a%00b/A", 422, "invalid_name"),
        put("a%5C000b/A", 422, "invalid_name"),
        put("a%0Ab/A", 422, "invalid_name"),
        put(&format!("{label}/A"), 422, "invalid_name"),
        put(&format!("{long}/A"), 422, "invalid_name"),
        put("a%EF%BC%8Eb/A", 422, "invalid_name"),
        put("ww%E2%80%8Bw/A", 422, "invalid_name"),
        row("GET", &format!("{ZONE}/rrsets/ww%C2%ADw/A"), "", 422, "invalid_name"),
        put("a*b/A", 422, "invalid_name"),
        put("%FF/A", 400, "malformed"),
        put("www.example.net./A", 422, "outside_zone"),
        put("www.example.test/A", 422, "looks_absolute"),
        put("www/LUA", 422, "unsupported_type"),
        put("www/TYPE65402", 422, "unsupported_type"),
        put("www/SOA", 422, "unsupported_type"),
        put("www/NOSUCH", 422, "unsupported_type"),
        put("www/ANY", 422, "unsupported_type"),
        row(
            "PUT",
            &format!("{ZONE}/rrsets/@/NS"),
            json!({"ttl": 1, "records": ["ns.example.net."]}),
            422,
            "apex_ns",
        ),
        row("DELETE", &format!("{ZONE}/rrsets/@/NS"), "", 422, "derived"),
        row(
            "POST",
            &format!("{ZONE}/rrsets/batch"),
            json!({"changes": [{"op": "delete", "name": "@", "type": "NS"}]}),
            422,
            "apex_ns",
        ),
        row(
            "PUT",
            &format!("{ZONE}/rrsets/@/CNAME"),
            json!({"ttl": 1, "records": ["a.example.net."]}),
            422,
            "cname_at_apex",
        ),
        row(
            "PUT",
            &format!("{ZONE}/rrsets/www/CNAME"),
            json!({"ttl": 1, "records": ["a.example.net."]}),
            422,
            "cname_conflict",
        ),
        row(
            "PUT",
            &format!("{ZONE}/rrsets/mail/MX"),
            json!({"ttl": 1, "records": ["10 mail"]}),
            422,
            "relative_name",
        ),
        row("DELETE", &format!("{ZONE}/rrsets/@/SOA"), "", 422, "derived"),
        row("DELETE", &format!("{ZONE}/rrsets/none/A"), "", 404, "not_found"),
        row("GET", &format!("{ZONE}/rrsets/www/LUA"), "", 404, "not_found"),
        row("GET", "/api/domains/%FF", "", 400, "malformed"),
        row("GET", "/api/domains/a%00b.test", "", 404, "not_found"),
    ]
}

fn headers_and_queries() -> Vec<Row> {
    let www = format!("{ZONE}/rrsets/www/A");
    let good = r#"{"ttl": 77, "records": ["192.0.2.7"]}"#;
    let put = |query: &str, status, code| row("PUT", &format!("{www}{query}"), good, status, code);
    let get = |path: &str, status, code| row("GET", path, "", status, code);
    let note = "x".repeat(501);
    vec![
        with(("if-match", "\"1\""), put("", 412, "revision_mismatch")),
        with(("if-match", "\"abc\""), put("", 412, "revision_mismatch")),
        with(("if-match", "2"), put("", 400, "malformed")),
        with(("if-match", "\"2"), put("", 400, "malformed")),
        with(("if-none-match", "\"2\""), put("", 400, "malformed")),
        with(("if-none-match", "*"), put("", 412, "revision_mismatch")),
        with(("idempotency-key", "one"), put("", 400, "malformed")),
        with(("change-note", &note), put("", 422, "invalid_note")),
        put("?force=true", 400, "malformed"),
        put("?dry_run=maybe", 400, "malformed"),
        put("?allow=everything", 400, "malformed"),
        put("?dry_run=true&dry_run=true", 400, "malformed"),
        get("/api/domains?limit=0", 400, "malformed"),
        get("/api/domains?limit=1001", 400, "malformed"),
        get("/api/domains?cursor=x", 400, "malformed"),
        get("/api/domains?label=x", 400, "malformed"),
        get("/api/domains?colour=x", 400, "malformed"),
        get("/api/domains?q=%ff", 400, "malformed"),
        get("/api/domains?q=a%00b", 400, "malformed"),
        get("/api/domains?label=a%3Db%00", 400, "malformed"),
        get("/api/domains?external_id=%00", 400, "malformed"),
        get("/api/audit?text=%00", 400, "malformed"),
        get("/api/audit?text=a%0Ab", 400, "malformed"),
        get("/api/operations?state=%00", 400, "malformed"),
        get("/api/events?type=%00", 400, "malformed"),
        get(&format!("{ZONE}/deployments?limit=0"), 400, "malformed"),
        get("/api/me?x", 400, "malformed"),
        get("/api/deployments?state=happy", 400, "malformed"),
        get("/api/domains/none.test", 404, "not_found"),
        get("/api/nothing", 404, "not_found"),
        get(&format!("{ZONE}/revisions/99"), 404, "not_found"),
        row("POST", "/api/me", "", 405, "method_not_allowed"),
        row("POST", "/api/deployments/pause", json!({"scope": "world"}), 422, "invalid_scope"),
        row(
            "POST",
            "/api/deployments/pause",
            json!({"scope": "domain", "id": "none.test"}),
            422,
            "not_found",
        ),
        row("POST", "/api/me/tokens", json!({"name": ""}), 422, "invalid_name"),
        row("POST", "/api/me/tokens", json!({"name": "n", "expires_at": "soon"}), 422, "invalid_time"),
        row("POST", "/api/me/tokens", json!({"name": "n", "scopes": [{"verbs": ["read"]}]}), 422, "missing"),
        row("POST", "/api/tokens/revoke", json!({"token": "hw_x"}), 404, "not_found"),
        with(("if-match", "\"1\""), row("POST", "/api/tenants", json!({"name": "t"}), 400, "malformed")),
        row("POST", "/api/users", json!({"email": "nobody"}), 422, "invalid_email"),
        row(
            "POST",
            "/api/dns-clusters",
            json!({"name": "c", "database_url_file": "x", "dns": "y"}),
            422,
            "invalid",
        ),
    ]
}

#[tokio::test]
async fn bad_input_is_refused_and_writes_nothing() {
    let api = TestApi::start("").await;
    api.call(Method::POST, "/api/domains", json!({"name": "example.test", "force_active": true}))
        .await
        .expect(202);
    let www = json!({"ttl": 1, "records": ["192.0.2.1"]});
    api.call(Method::PUT, &format!("{ZONE}/rrsets/www/A"), www).await.expect(202);
    let head = api.head().await;
    let mut wrong = Vec::new();
    for row in [bodies(), names(), owners(), headers_and_queries()].concat() {
        let answer = send(&api, &row).await;
        let body: Value = serde_json::from_str(&answer.text).unwrap_or_default();
        let right = answer.status.as_u16() == row.4 && body["code"] == row.5;
        if !right || body["request_id"].as_str() != answer.headers["x-request-id"].to_str().ok() {
            let shown: String = row.2.chars().take(80).collect();
            wrong.push(format!(
                "{} {} {shown} {:?}\n  wanted {} {}\n  got {} {body}",
                row.0, row.1, row.3, row.4, row.5, answer.status
            ));
        }
        if api.head().await != head {
            panic!("{} {} {} wrote something", row.0, row.1, row.2);
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn every_fault_is_told_with_its_pointer() {
    let api = TestApi::start("").await;
    api.call(Method::POST, "/api/domains", json!({"name": "example.test"})).await.expect(201);
    let body = json!({"ttl": -1, "records": ["192.0.2.1", "x", "y"], "colour": 1});
    let told =
        api.call(Method::PUT, &format!("{ZONE}/rrsets/www/A"), body).await.expect_problem(422, "invalid");
    assert_eq!(pointers(&told), ["/colour", "/records/1", "/records/2", "/ttl"]);
    let changes = json!({"changes": [
        {"op": "put", "name": "a", "type": "A", "ttl": 1, "records": ["192.0.2.1", "x"]},
        {"op": "put", "name": "www.example.test", "type": "LUA", "ttl": 1, "records": ["x"]},
        {"op": "add", "name": "b", "type": "A", "records": ["y"], "comment": "no"},
        {"op": "delete"}]});
    let told =
        api.call(Method::POST, &format!("{ZONE}/rrsets/batch"), changes).await.expect_problem(422, "invalid");
    let expected = [
        "/changes/0/records/1",
        "/changes/1/name",
        "/changes/1/type",
        "/changes/2/comment",
        "/changes/2/records/0",
        "/changes/3/name",
        "/changes/3/type",
    ];
    assert_eq!(pointers(&told), expected);

    // A key that stands twice, at its place and with its name; the values do not matter.
    let twice = r#"{"changes": [{"op": "delete", "name": "a", "type": "A"},
        {"op": "put", "name": "b", "name": "b", "type": "A", "ttl": 1, "records": ["192.0.2.1"]}]}"#;
    let told = send(&api, &row("POST", &format!("{ZONE}/rrsets/batch"), twice, 422, "")).await;
    let told = told.expect_problem(422, "duplicate_key");
    assert_eq!(pointers(&told), ["/changes/1/name"]);
    assert!(told.json()["detail"].as_str().unwrap().contains("`name`"), "{told:?}");

    // What a batch is to delete and is absent: 404 with its change, and one fault of several beside others.
    let delete = json!({"op": "delete", "name": "none", "type": "A", "ttl": 300});
    let add = json!({"op": "add", "name": "b", "type": "A", "records": ["192.0.2.1"]});
    let apex = json!({"op": "add", "name": "@", "type": "NS", "records": ["ns.example.net."]});
    let path = format!("{ZONE}/rrsets/batch");
    let told = api.call(Method::POST, &path, json!({"changes": [add, delete]})).await;
    assert_eq!(pointers(&told.expect_problem(404, "not_found")), ["/changes/1"]);
    let told = api.call(Method::POST, &path, json!({"changes": [delete, apex]})).await;
    assert_eq!(pointers(&told.expect_problem(422, "invalid")), ["/changes/0", "/changes/1"]);
    // What an earlier change of the batch made can be deleted, and the TTL is judged though it says nothing.
    let put = json!({"op": "add", "name": "none", "type": "A", "ttl": 300, "records": ["192.0.2.1"]});
    let remove = json!({"op": "remove", "name": "b", "type": "A", "ttl": 300, "records": ["192.0.2.1"]});
    api.call(Method::POST, &path, json!({"changes": [put, remove, delete]})).await.expect(200);
    let late = json!({"op": "delete", "name": "none", "type": "A", "ttl": -1});
    let told = api.call(Method::POST, &path, json!({"changes": [late]})).await;
    assert_eq!(pointers(&told.expect_problem(422, "invalid_ttl")), ["/changes/0/ttl"]);
}

fn pointers(answer: &Answer) -> Vec<String> {
    let errors = answer.json()["errors"].as_array().unwrap().clone();
    let mut pointers: Vec<String> =
        errors.iter().map(|e| e["pointer"].as_str().unwrap().to_owned()).collect();
    pointers.sort_unstable();
    pointers
}
