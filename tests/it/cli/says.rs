//! What the commands say of what they did: never more than is true, and in a form that can be read.

use serde_json::{Value, json};

use super::script::{self, Script, run};
use super::{OPERATION, problem};

/// What the API answers, what is asked, and what is said of it.
type Row<'a> = (Vec<u8>, Vec<&'a str>, String);

/// What is accepted and served later.
fn accepted_rows(file: &str) -> Vec<Row<'_>> {
    let pending = || receipt(json!({"id": OPERATION, "state": "pending"}));
    let on_its_way = format!("accepted, revision 12, operation {OPERATION}");
    let retried = |state: &str| {
        let body = json!({"id": OPERATION, "lane": "runtime", "state": state, "revision": 12, "domain": "example.com"});
        script::json(202, body)
    };
    vec![
        (
            pending(),
            vec!["domain", "create", "example.com", "--active"],
            format!("example.com: {on_its_way}"),
        ),
        (
            pending(),
            vec!["domain", "patch", "example.com", "--label", "a=b"],
            format!("example.com: {on_its_way}"),
        ),
        (pending(), vec!["domain", "delete", "example.com"], format!("example.com: {on_its_way}")),
        (pending(), vec!["domain", "restore", "example.com"], format!("example.com: {on_its_way}")),
        (pending(), vec!["domain", "rollback", "example.com", "7"], format!("example.com: {on_its_way}")),
        (
            pending(),
            vec!["rrset", "set", "example.com", "@", "A", "192.0.2.1"],
            format!("@ A in example.com: {on_its_way}"),
        ),
        (
            pending(),
            vec!["rrset", "add", "example.com", "@", "A", "192.0.2.1"],
            format!("@ A in example.com: {on_its_way}"),
        ),
        (
            pending(),
            vec!["rrset", "remove", "example.com", "@", "A", "192.0.2.1"],
            format!("@ A in example.com: {on_its_way}"),
        ),
        (
            pending(),
            vec!["rrset", "delete", "example.com", "@", "A"],
            format!("@ A in example.com: {on_its_way}"),
        ),
        (pending(), vec!["rrset", "batch", "example.com", file], format!("example.com: {on_its_way}")),
        (pending(), vec!["cluster", "enable", OPERATION], format!("{OPERATION}: {on_its_way}")),
        (retried("running"), vec!["op", "retry", OPERATION], format!("operation {OPERATION}: {on_its_way}")),
        (retried("failed"), vec!["op", "retry", OPERATION], format!("operation {OPERATION}: {on_its_way}")),
    ]
}

/// What is done at once, or carried out without an operation.
fn other_rows<'a>() -> Vec<Row<'a>> {
    let instant = || receipt(Value::Null);
    let decided = script::json(200, json!({"changed": true, "deployment": "example.com@c"}));
    vec![
        (
            instant(),
            vec!["rrset", "set", "example.com", "@", "A", "192.0.2.1"],
            "@ A in example.com: done, revision 12".into(),
        ),
        (instant(), vec!["cluster", "disable", OPERATION], format!("{OPERATION}: disabled")),
        (instant(), vec!["deployment", "pause", "--domain", "example.com"], "example.com: paused".into()),
        (instant(), vec!["deployment", "resume", "--target", OPERATION], format!("{OPERATION}: resumed")),
        (
            decided.clone(),
            vec!["deployment", "adopt", "example.com@c"],
            "deployment example.com@c: accepted".into(),
        ),
        (
            decided,
            vec!["deployment", "discard", "example.com@c"],
            "deployment example.com@c: accepted".into(),
        ),
        (instant(), vec!["token", "revoke", OPERATION], format!("token {OPERATION}: revoked")),
    ]
}

fn receipt(operation: Value) -> Vec<u8> {
    let status = if operation.is_null() { 200 } else { 202 };
    script::json(status, json!({"changed": true, "revision": 12, "operation": operation}))
}

/// Whatever only was accepted is never said to be done, and no revision is that of another stream.
#[tokio::test]
async fn every_verb_says_what_came_of_it() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "[]").unwrap();
    let rows = [accepted_rows(file.path().to_str().unwrap()), other_rows()].concat();
    let script = Script::new(rows.iter().map(|row| row.0.clone()).collect()).await;
    for (answer, arguments, out) in &rows {
        let ran = script.run(arguments).await;
        assert_eq!((ran.code, ran.out.trim_end()), (0, out.as_str()), "{arguments:?}: {ran:?}");
        let answer = String::from_utf8_lossy(answer);
        let waits = ran.err.contains(&format!("`headwater op wait {OPERATION}` tells when it is served"));
        assert_eq!(waits, answer.contains(OPERATION) && !answer.contains("failed"), "{arguments:?}: {ran:?}");
    }
}

/// What can be said of each verb, and no more; the next step fits the request.
#[tokio::test]
async fn conditions_are_offered_where_they_mean_something() {
    let there = json!({"code": "revision_mismatch", "detail": "it is at 9", "current": 9});
    let script = Script::new(vec![problem(412, &there), problem(409, &there)]).await;
    let ran = script.run(&["rrset", "set", "example.com", "www", "A", "192.0.2.1", "--if-absent"]).await;
    assert_eq!(ran.code, 3, "{ran:?}");
    assert!(ran.err.contains("leave --if-absent out") && !ran.err.contains("--if-match"), "{}", ran.err);
    for arguments in [
        &["domain", "patch", "example.com", "--label", "a=b", "--if-absent"][..],
        &["domain", "delete", "example.com", "--if-absent"],
        &["domain", "restore", "example.com", "--if-absent"],
        &["domain", "create", "example.com", "--if-match", "1"],
        &["rrset", "delete", "example.com", "www", "A", "--if-absent"],
        &["rrset", "add", "example.com", "www", "A", "192.0.2.1", "--if-absent"],
        &["rrset", "remove", "example.com", "www", "A", "192.0.2.1", "--if-absent"],
        &["rrset", "batch", "example.com", "--if-absent"],
    ] {
        let ran = script.run(arguments).await;
        assert_eq!(ran.code, 2, "{arguments:?}: {ran:?}");
    }
    assert_eq!(script.run(&["domain", "create", "example.com", "--if-absent"]).await.code, 3);
    assert_eq!(script.seen()[1].header("if-none-match"), Some("*"));
    let help = run(&["rrset", "batch", "--help"], &[]).await;
    assert!(!help.out.contains('\\'), "{}", help.out);
}

/// A rollback says what it leaves as it is, before and after; the list of revisions says where it can go.
#[tokio::test]
async fn a_rollback_says_what_it_leaves() {
    let left = json!([{"what": "cache_epoch", "detail": "what was purged stays purged"}]);
    let plan = json!({"changed": true, "diff": [{"path": "/rrsets/www/A", "before": null, "after": {"ttl": 60}}],
        "warnings": [], "guards": ["mass_delete"], "targets": ["dns-1"], "if_match": "\"12\"", "if_none_match": null,
        "not_restored": left});
    let done = json!({"changed": true, "revision": 13, "operation": null, "not_restored": left});
    let old = json!({"code": "not_retained", "detail": "revision 3 of example.com is not retained any more; the nearest \
        that can be gone back to: 5", "nearest": [5]});
    let revision = json!({"revision": 7, "at": "2026-01-02T03:04:05.678Z", "actor": {"kind": "user", "id": "u"},
        "events": 2, "retained": true, "validated": false, "note": "why"});
    let answers = vec![
        script::json(200, plan),
        script::json(200, done),
        problem(409, &old),
        script::json(200, json!({"items": [revision], "next": null})),
    ];
    let script = Script::new(answers).await;
    let ran = script.run(&["domain", "rollback", "example.com", "7", "--dry-run"]).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.out.contains("/rrsets/www/A"), "{ran:?}");
    for said in ["not restored: what was purged stays purged", "--allow mass_delete", "--if-match \"12\""] {
        assert!(ran.err.contains(said), "{said}: {}", ran.err);
    }
    let ran = script.run(&["domain", "rollback", "example.com", "7", "--allow", "mass_delete"]).await;
    assert_eq!((ran.code, ran.out.as_str()), (0, "example.com: done, revision 13\n"), "{ran:?}");
    assert!(ran.err.contains("not restored: what was purged stays purged"), "{}", ran.err);
    let ran = script.run(&["domain", "rollback", "example.com", "3"]).await;
    assert_eq!(ran.code, 3, "{ran:?}");
    assert!(ran.err.contains("the nearest that can be gone back to: 5"), "{}", ran.err);
    let ran = script.run(&["domain", "revisions", "example.com"]).await;
    let lines: Vec<Vec<&str>> = ran.out.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(
        lines[0],
        ["REVISION", "AT", "ACTOR", "ID", "EVENTS", "RETAINED", "VALIDATED", "NOTE"],
        "{}",
        ran.out
    );
    assert_eq!(lines[1][4..], ["2", "yes", "no", "why"], "{}", ran.out);
    let sent = &script.seen()[0];
    assert!(sent.line.contains("/api/domains/example.com/rollback?dry_run=true"), "{}", sent.line);
    assert_eq!(sent.body, json!({"revision": 7}).to_string());
}

/// Lists within an object are tables with a column for each thing that matters.
#[tokio::test]
async fn what_is_nested_is_shown_as_a_table() {
    let target = json!({"id": "c", "name": "dns-1"});
    let deployment = json!({"target": target, "state": "failed", "enabled": true, "desired_revision": 7,
        "active_revision": 6, "serial": 13, "attempts": 2, "last_error": "no route", "checksum": "abc"});
    let status = json!({"name": "example.com", "state": "failing", "deployments": [deployment]});
    let tested =
        json!({"ok": false, "steps": [{"name": "dns", "ok": false, "ms": 3, "detail": "no answer"}]});
    let script = Script::new(vec![script::json(200, status), script::json(200, tested)]).await;
    let ran = script.run(&["domain", "status", "example.com"]).await;
    let row = ran.out.lines().last().unwrap().split_whitespace().collect::<Vec<_>>();
    assert_eq!(row, ["dns-1", "failed", "yes", "7", "6", "13", "2", "no", "route"], "{}", ran.out);
    let ran = script.run(&["cluster", "test", OPERATION]).await;
    assert_eq!(ran.code, 3, "{ran:?}");
    let row = ran.out.lines().last().unwrap().split_whitespace().collect::<Vec<_>>();
    assert_eq!(row, ["dns", "no", "3", "no", "answer"], "{}", ran.out);
}
