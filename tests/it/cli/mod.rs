//! The client commands as they are used: the real program, its exit codes, what is on stdout and what on stderr.

mod edges;
mod history;
mod says;
pub mod script;
pub mod walk;
mod webhooks;

use serde_json::{Value, json};
use sqlx::Executor;

use self::script::{Script, TOKEN, answer, run, stream};
use crate::support::TestDb;
use crate::support::log::Log;

const OPERATION: &str = "01982f6e-7b4c-7d30-9d0a-3f1f0f3f5f10";

fn accepted() -> Vec<u8> {
    script::json(
        202,
        json!({"changed": true, "revision": 7, "operation": {"id": OPERATION, "state": "pending"}}),
    )
}

fn operation(state: &str) -> Vec<u8> {
    let error = json!({"code": "deadline", "detail": "dns-2 lags", "target": "dns-2"});
    script::json(
        200,
        json!({"id": OPERATION, "state": state, "error": if state == "failed" { error } else { Value::Null },
            "targets": {"total": 2, "active": 1}}),
    )
}

fn problem(status: u16, body: &Value) -> Vec<u8> {
    answer(status, &["Content-Type: application/problem+json"], &body.to_string())
}

#[tokio::test]
async fn a_lost_answer_is_asked_for_again_with_the_same_key() {
    let busy =
        answer(503, &["Retry-After: 0"], r#"{"code": "unavailable", "detail": "the database is away"}"#);
    let script = Script::new(vec![Vec::new(), busy, accepted()]).await;
    let ran = script
        .run(&[
            "rrset",
            "set",
            "example.com",
            "www",
            "A",
            "192.0.2.1",
            "--note",
            "für später",
            "--allow",
            "mass_delete",
        ])
        .await;
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(ran.out, format!("www A in example.com: accepted, revision 7, operation {OPERATION}\n"));
    assert!(
        ran.err.contains(&format!("`headwater op wait {OPERATION}` tells when it is served")),
        "{}",
        ran.err
    );
    assert!(ran.err.contains("the database is away") && ran.err.contains("trying again"), "{}", ran.err);
    let seen = script.seen();
    assert_eq!(seen.len(), 3);
    let key = seen[0].header("idempotency-key").unwrap();
    assert!(uuid::Uuid::parse_str(key).is_ok());
    for request in &seen {
        assert_eq!(request.line, "PUT /api/domains/example.com/rrsets/www/A?allow=mass_delete");
        assert_eq!(request.header("idempotency-key"), Some(key));
        assert_eq!(request.header("change-note"), Some("für später"));
        assert_eq!(request.header("authorization"), Some(format!("Bearer {TOKEN}").as_str()));
        let body: Value = serde_json::from_str(&request.body).unwrap();
        assert_eq!(body, json!({"ttl": 300, "records": ["192.0.2.1"]}));
    }
}

#[tokio::test]
async fn a_mutation_without_any_answer_names_its_key() {
    let script = Script::new(vec![Vec::new(); 6]).await;
    let key = "0b0e5c8e-6f0c-4d0e-9a55-0d8c2c7f3a11";
    let ran = script.run(&["domain", "delete", "example.com", "--idempotency-key", key]).await;
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.err.contains(&format!("--idempotency-key {key}")), "{}", ran.err);
    assert_eq!(script.seen().len(), 6, "the tries are bounded");
}

#[tokio::test]
async fn every_fault_of_a_problem_is_shown_and_the_exit_code_says_its_kind() {
    let invalid = json!({"code": "invalid", "detail": "2 faults in the input", "errors": [
        {"pointer": "/records/0", "code": "bad_rdata", "detail": "not an address"},
        {"pointer": "/ttl", "code": "ttl_too_low", "detail": "the lowest is 60"}]});
    let guarded =
        json!({"code": "guarded", "detail": "it would delete most of it", "guards": ["mass_delete"]});
    let stale = json!({"code": "revision_mismatch", "detail": "it is at 9", "current": 9});
    let missing = json!({"code": "not_found", "detail": "example.com does not exist"});
    let script = Script::new(vec![
        problem(422, &invalid),
        problem(409, &guarded),
        problem(412, &stale),
        problem(404, &missing),
    ])
    .await;
    let ran = script.run(&["rrset", "set", "example.com", "www", "A", "x"]).await;
    assert_eq!(ran.code, 1);
    assert!(ran.out.is_empty());
    for text in ["2 faults in the input", "/records/0: not an address", "/ttl: the lowest is 60"] {
        assert!(ran.err.contains(text), "{}", ran.err);
    }
    let ran = script.run(&["rrset", "delete", "example.com", "www", "A"]).await;
    assert_eq!(ran.code, 3);
    assert!(ran.err.contains("--allow mass_delete"), "{}", ran.err);
    let ran = script.run(&["domain", "patch", "example.com", "--label", "a=b", "--if-match", "7"]).await;
    assert_eq!(ran.code, 3);
    assert!(ran.err.contains("--if-match 9"), "{}", ran.err);
    assert_eq!(script.seen()[2].header("if-match"), Some("\"7\""));
    let ran = script.run(&["domain", "show", "example.com"]).await;
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("example.com does not exist [not_found]"), "{}", ran.err);
}

#[tokio::test]
async fn wrong_usage_ends_with_two_and_asks_nobody() {
    let script = Script::new(Vec::new()).await;
    for arguments in [
        &["domain", "frobnicate"][..],
        &["domain", "show", ".."],
        &["domain", "patch", "example.com"],
        &["rrset", "set", "example.com", "www", "A"],
        &["rrset", "set", "example.com", "www", "A", "192.0.2.1", "--if-match", "new"],
        &["domain", "delete", "example.com", "--note", "a\nb"],
        &["deployment", "pause"],
    ] {
        let ran = script.run(arguments).await;
        assert_eq!(ran.code, 2, "{arguments:?}: {ran:?}");
        assert!(!ran.err.is_empty() && ran.out.is_empty(), "{ran:?}");
    }
    assert!(script.seen().is_empty());
    let ran = run(&["domain", "list"], &[]).await;
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.err.contains("HEADWATER_URL"), "{}", ran.err);
}

#[tokio::test]
async fn waiting_ends_as_the_operation_ends() {
    let script = Script::new(vec![
        accepted(),
        operation("running"),
        Vec::new(),
        operation("succeeded"),
        accepted(),
        operation("failed"),
        operation("cancelled"),
    ])
    .await;
    let set = ["rrset", "set", "example.com", "www", "A", "192.0.2.1", "--wait"];
    let ran = script.run(&set).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    let out = format!("www A in example.com: done, revision 7, operation {OPERATION} succeeded\n");
    assert_eq!(ran.out, out);
    assert!(ran.err.contains("1 of 2 targets"), "{}", ran.err);
    let ran = script.run(&[&set[..], &["--json"]].concat()).await;
    assert_eq!(ran.code, 3, "{ran:?}");
    let body: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(body["operation"]["state"], "failed");
    assert!(ran.err.contains("dns-2 lags") && ran.err.contains("op timeline"), "{}", ran.err);
    assert_eq!(script.run(&["op", "wait", OPERATION]).await.code, 3);
}

#[tokio::test]
async fn a_list_goes_on_to_its_end_in_the_shape_of_the_api() {
    let first = answer(200, &[], r#"{"items":[{"name":"a.example","revision":1}],"next":"c1"}"#);
    let last = answer(200, &[], r#"{"items":[{"name":"b.example","revision":2}],"next":null}"#);
    let script = Script::new(vec![first.clone(), last.clone(), first.clone(), last, first]).await;
    let ran = script.run(&["--json", "domain", "list", "--label", "a=b"]).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(
        ran.out,
        "{\"items\":[{\"name\":\"a.example\",\"revision\":1},{\"name\":\"b.example\",\"revision\":2}],\"next\":null}\n"
    );
    assert_eq!(script.seen()[1].line, "GET /api/domains?label=a%3Db&limit=1000&cursor=c1");
    let ran = script.run(&["domain", "list"]).await;
    assert!(ran.out.contains("a.example") && ran.out.contains("b.example"), "{}", ran.out);
    let ran = script.run(&["domain", "list", "--limit", "1", "--json"]).await;
    assert_eq!(ran.out, "{\"items\":[{\"name\":\"a.example\",\"revision\":1}],\"next\":\"c1\"}\n");
}

fn event(position: u64) -> String {
    let data = json!({"position": position, "type": "rrset.replaced", "domain": "example.com", "revision": 1, "seq": 0});
    format!("id: 0a0b0c0d.{position}\nevent: rrset.replaced\ndata: {data}\n\n")
}

#[tokio::test]
async fn a_tail_comes_back_behind_the_last_whole_event() {
    let whole = [event(1), event(2)].concat();
    let half = &event(3)[..30];
    let media = "text/event-stream";
    let script = Script::new(vec![
        stream(media, &format!("retry: 1\n\n{whole}{half}"), false),
        Vec::new(),
        answer(503, &["Retry-After: 0"], "{}"),
        stream(media, "id: 0a0b0c0d.9\n\n", true),
        stream(media, &event(10), true),
    ])
    .await;
    let ran = script
        .run(&[
            "events", "tail", "--after", "0", "--type", "rrset.", "--type", "domain.", "--limit", "3",
            "--json",
        ])
        .await;
    assert_eq!(ran.code, 0, "{ran:?}");
    let positions: Vec<u64> = ran
        .out
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["position"].as_u64().unwrap())
        .collect();
    assert_eq!(positions, [1, 2, 10]);
    assert!(ran.err.contains("--after 0a0b0c0d.10"), "{}", ran.err);
    let seen = script.seen();
    assert_eq!(seen[0].line, "GET /api/events/stream?type=rrset.&type=domain.&after=0");
    assert_eq!(seen[0].header("accept"), Some("text/event-stream"));
    let resumed: Vec<Option<&str>> = seen.iter().map(|request| request.header("last-event-id")).collect();
    let second = Some("0a0b0c0d.2");
    assert_eq!(resumed, [None, second, second, second, Some("0a0b0c0d.9")]);
}

#[tokio::test]
async fn a_tail_outlives_every_stream_that_ends_in_order() {
    let media = "text/event-stream";
    let quiet = || stream(media, "retry: 1\n\nid: 0a0b0c0d.7\n\n", true);
    let stopping = "retry: 1\n\nid: 0a0b0c0d.7\n\nevent: bye\ndata: {\"reason\": \"stopping\"}\n\n";
    // More than the failures in a row after which a reader gives up: a stream that was quiet for its life is none.
    let mut answers: Vec<Vec<u8>> = (0..70).map(|_| quiet()).collect();
    answers.push(stream(media, stopping, true));
    answers.push(stream(media, &event(8), true));
    let script = Script::new(answers).await;
    let ran = script.run(&["events", "tail", "--limit", "1"]).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    let seen = script.seen();
    assert_eq!(seen.len(), 72);
    assert!(seen[1..].iter().all(|request| request.header("last-event-id") == Some("0a0b0c0d.7")));
    assert!(!ran.err.contains("connecting again"), "{}", ran.err);
}

#[tokio::test]
async fn a_tail_ends_when_it_may_not_go_on_and_tells_of_a_gap() {
    let reset =
        "event: reset\ndata: {\"reason\": \"other_log\", \"state\": \"/api/domains\"}\nid: 0b0b0b0b.1\n\n";
    let bye = "event: bye\ndata: {\"reason\": \"token_revoked\"}\n\n";
    let refused = problem(401, &json!({"code": "unauthenticated", "detail": "this token is not known"}));
    let script =
        Script::new(vec![stream("text/event-stream", &format!("{reset}{bye}"), true), refused]).await;
    let ran = script.run(&["events", "tail"]).await;
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.err.contains("other_log") && ran.err.contains("token_revoked"), "{}", ran.err);
    let ran = script.run(&["events", "tail"]).await;
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.err.contains("this token is not known"), "{}", ran.err);
    assert_eq!(script.seen().len(), 2, "neither is tried again");
}

/// How imperative work ended.
fn sum(state: &str, differences: u64) -> Vec<u8> {
    let (lane, result) = ("bulk_maintenance", json!({"differences": differences, "ms": 2}));
    let result = if state == "succeeded" { result } else { Value::Null };
    script::json(200, json!({"id": OPERATION, "state": state, "lane": lane, "result": result}))
}

#[tokio::test]
async fn a_verification_that_finds_something_ends_with_three_and_one_without_an_end_with_one() {
    let difference = json!({"kind": "missing", "table": "powerdns of dns-1", "key": ["example.com", "www", "A"],
        "live": null, "expected": "192.0.2.1", "detail": "www A: missing, the log says 192.0.2.1"});
    let found = script::json(200, json!({"items": [difference], "next": null}));
    let mended = found.clone();
    let nothing = || script::json(200, json!({"items": [], "next": null}));
    let going = script::json(
        200,
        json!({"id": OPERATION, "state": "running", "lane": "bulk_maintenance",
        "progress": {"done": 1, "total": 2, "unit": "zones"}}),
    );
    let script = Script::new(vec![
        accepted(),
        going,
        sum("succeeded", 1),
        found.clone(),
        accepted(),
        sum("failed", 0),
        found,
        accepted(),
        sum("succeeded", 0),
        nothing(),
        accepted(),
        sum("cancelled", 0),
        nothing(),
        accepted(),
        accepted(),
        sum("succeeded", 0),
        nothing(),
        accepted(),
        sum("succeeded", 1),
        mended,
    ])
    .await;
    let verify = ["projection", "verify", "powerdns", "--no-mend", "--domain", "example.com"];
    let ran = script.run(&verify).await;
    assert_eq!(ran.code, 3, "{ran:?}");
    assert_eq!(ran.out, "powerdns: www A: missing, the log says 192.0.2.1\n");
    assert!(ran.err.contains("1 difference\n") && ran.err.contains("powerdns: left as it is"), "{}", ran.err);
    assert!(ran.err.contains("headwater projection rebuild"), "{}", ran.err);
    assert!(ran.err.contains("1 of 2 zones"), "{}", ran.err);
    let body: Value = serde_json::from_str(&script.seen()[0].body).unwrap();
    assert_eq!(body, json!({"domain": "example.com", "mend": false}));
    let ran = script.run(&verify).await;
    assert_eq!(ran.code, 1, "{ran:?}");
    let ran = script.run(&verify).await;
    assert_eq!((ran.code, ran.out.as_str()), (0, "powerdns: no difference (differences 0, ms 2)\n"));
    assert_eq!(script.run(&verify).await.code, 3);
    let ran = script.run(&["projection", "rebuild", "powerdns", "--no-wait"]).await;
    assert_eq!((ran.code, ran.out), (0, format!("powerdns: operation {OPERATION}\n")));
    let ran = script.run(&["projection", "rebuild", "powerdns"]).await;
    assert_eq!((ran.code, ran.out.as_str()), (0, "powerdns: rebuilt (differences 0, ms 2)\n"));
    // By itself it mends, and says so; a rebuild is not called for.
    let ran = script.run(&["projection", "verify", "powerdns"]).await;
    assert_eq!(ran.code, 3, "{ran:?}");
    assert!(ran.err.contains("are being mended") && !ran.err.contains("rebuild"), "{}", ran.err);
}

#[tokio::test]
async fn whoever_stops_watching_leaves_the_operation_running() {
    let going = script::json(200, json!({"id": OPERATION, "state": "running", "lane": "bulk_maintenance"}));
    let mut answers = vec![accepted()];
    answers.resize(100, going);
    let script = Script::new(answers).await;
    let child = script.start(&["projection", "rebuild", "powerdns"]);
    let watched = || async { script.seen().len() };
    crate::support::eventually("it watches", watched, |seen| *seen > 2).await;
    let pid = nix::unistd::Pid::from_raw(child.id().unwrap().cast_signed());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).unwrap();
    let output = child.wait_with_output().await.unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{err}");
    assert!(err.contains(&format!("headwater op wait {OPERATION}")), "{err}");
    assert!(script.seen().iter().all(|seen| !seen.line.contains("cancel")), "{:?}", script.seen());
}

#[tokio::test]
async fn half_an_export_never_takes_the_place_of_a_whole_one() {
    let zone = "www.example.com. 300 IN A 192.0.2.1\n";
    let script = Script::new(vec![
        stream("text/dns", zone, true),
        stream("text/dns", "@", false),
        stream("text/dns", zone, true),
    ])
    .await;
    let file = script.path("zone");
    let export = ["zone", "export", "example.com", "--output", &file];
    assert_eq!(script.run(&export).await.code, 0);
    let ran = script.run(&export).await;
    assert_eq!(ran.code, 1, "{ran:?}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), zone);
    assert_eq!(script.run(&["zone", "export", "example.com"]).await.out, zone);
}

#[tokio::test]
async fn the_token_goes_to_nobody_else_and_a_new_one_only_where_it_should() {
    let elsewhere = answer(307, &["Location: http://127.0.0.1:1/api/me"], "");
    let made = script::json(201, json!({"id": "t-1", "token": "hw_new"}));
    let script = Script::new(vec![elsewhere, made.clone(), made]).await;
    let ran = script.run(&["me"]).await;
    assert_eq!(ran.code, 1, "{ran:?}");
    assert_eq!(script.seen().len(), 1);
    let ran = script.run(&["token", "create", "ci"]).await;
    assert_eq!((ran.code, ran.out.as_str()), (0, "hw_new\n"));
    let file = script.path("new");
    let ran = script.run(&["token", "create", "ci", "--output", &file]).await;
    assert_eq!((ran.code, ran.out.as_str()), (0, "t-1\n"));
    assert!(!ran.err.contains("hw_new"), "{}", ran.err);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "hw_new\n");
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&file).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
}

#[tokio::test]
async fn a_dry_run_shows_the_difference() {
    let plan = json!({"changed": true, "diff": [{"path": "/rrsets/www/A", "before": null, "after": ["192.0.2.1"]}],
        "warnings": ["a low TTL"], "guards": ["empties_zone"], "targets": ["dns-1"], "if_match": 6});
    let script = Script::new(vec![script::json(200, plan)]).await;
    let ran = script.run(&["rrset", "set", "example.com", "www", "A", "192.0.2.1", "--dry-run"]).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.out.contains("/rrsets/www/A") && ran.out.contains("192.0.2.1"), "{}", ran.out);
    for text in ["a low TTL", "--allow empties_zone", "dns-1", "--if-match 6"] {
        assert!(ran.err.contains(text), "{}", ran.err);
    }
    assert!(script.seen()[0].line.ends_with("?dry_run=true"), "{:?}", script.seen());
}

#[tokio::test]
async fn a_dry_run_of_something_new_says_how_to_make_exactly_it() {
    let plan = json!({"changed": true, "diff": [{"path": "/rrsets/www/A", "before": null, "after": {"ttl": 300}}],
        "warnings": [], "guards": [], "targets": [], "if_match": null, "if_none_match": "*"});
    let done = json!({"changed": true, "revision": 2, "operation": null});
    let script = Script::new(vec![script::json(200, plan), script::json(200, done)]).await;
    let set = ["rrset", "set", "example.com", "www", "A", "192.0.2.1"];
    let ran = script.run(&[&set[..], &["--dry-run"]].concat()).await;
    assert!(ran.err.contains("the same with --if-absent in place of --dry-run"), "{}", ran.err);
    assert!(ran.out.contains("ttl=300"), "{}", ran.out);
    let ran = script.run(&[&set[..], &["--if-absent"]].concat()).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(script.seen()[1].header("if-none-match"), Some("*"));
    assert_eq!(script.run(&[&set[..], &["--if-absent", "--if-match", "1"]].concat()).await.code, 2);
}

#[tokio::test]
async fn the_log_is_verified_in_the_database_itself() {
    let db = TestDb::new().await;
    let variables = [("HEADWATER_DATABASE__URL", db.url().expose())];
    let ran = run(&["audit", "verify"], &variables).await;
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.err.contains("headwater migrate"), "{}", ran.err);
    let log = Log::at(db.url().clone()).await;
    log.domain("example.com").await;
    let ran = run(&["audit", "verify"], &variables).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.out.contains("as it was written"), "{}", ran.out);
    let alter = "alter table events disable trigger user; \
        update events set data = set_byte(data, 0, get_byte(data, 0) # 1) where position = 2; \
        alter table events enable trigger user";
    log.connection().await.execute(alter).await.unwrap();
    let ran = run(&["audit", "verify"], &variables).await;
    assert_eq!(ran.code, 3, "{ran:?}");
    assert!(ran.out.starts_with("position 2: data altered"), "{}", ran.out);
    let ran = run(&["audit", "verify", "--json"], &variables).await;
    let verified: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(verified["faults"][0]["position"], 2, "{verified}");
}

#[tokio::test]
async fn the_reference_is_that_of_this_program() {
    let ran = run(&["cli-reference"], &[]).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    let text =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/CLI.md")).unwrap_or_default();
    assert!(text == ran.out, "docs/CLI.md is out of date: run `cargo run -- cli-reference > docs/CLI.md`");
    let ran = run(&["completions", "bash"], &[]).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.out.contains("headwater__subcmd__domain") || ran.out.contains("headwater__domain"));
}
