//! Tools own what they write, in every way to write, and are shown their own where that is asked.

use headwater::operation::{project, runner};
use headwater_events::dns::DomainName;
use headwater_events::ids::OperationId;
use headwater_projections::audit::Audit;
use reqwest::Method;
use serde_json::{Value, json};

use super::{api, ask, made, make, names, owner_of, put, read, tool};
use crate::imperative::ended;
use crate::support::Answer;

fn pointers(refused: &Answer) -> Vec<String> {
    let errors = refused.json()["errors"].as_array().unwrap().clone();
    errors.iter().map(|fault| fault["pointer"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn what_a_tool_wrote_is_its_own_until_it_is_taken_over() {
    let (api, person) = api().await;
    let octo = tool(&api, &person, "octodns").await;
    let again = tool(&api, &person, "octodns").await;
    let other = tool(&api, &person, "external-dns").await;
    put(&api, &person, "www", "192.0.2.1", "").await.expect(202);
    assert_eq!(owner_of(&api, &person, "www").await, Value::Null);
    put(&api, &octo, "www", "192.0.2.2", "").await.expect(202);
    assert_eq!(owner_of(&api, &person, "www").await, json!("octodns"));
    // The same manager, whatever its token; others are refused, and what is refused is not appended.
    put(&api, &again, "www", "192.0.2.3", "").await.expect(202);
    let head = api.head().await;
    for by in [&other, &person, &api.admin] {
        for query in ["", "?dry_run=true", "?take_over=false"] {
            let refused = put(&api, by, "www", "192.0.2.9", query).await;
            let refused = refused.expect_problem(409, "managed_by_other");
            assert!(refused.text.contains("www A is managed by octodns"), "{refused:?}");
        }
        let gone = ask(&api, by, Method::DELETE, "/rrsets/www/A", Value::Null).await;
        gone.expect_problem(409, "managed_by_other");
        let change = |op: &str, name: &str| json!({"op": op, "name": name, "type": "A", "ttl": 300, "records": ["192.0.2.9"]});
        let batch = json!({"changes": [change("put", "new"), change("add", "www")]});
        let refused = ask(&api, by, Method::POST, "/rrsets/batch", batch).await;
        assert_eq!(pointers(&refused.expect_problem(409, "managed_by_other")), ["/changes/1"]);
    }
    assert_eq!(api.head().await, head);
    put(&api, &person, "www", "192.0.2.9", "?take_over=perhaps").await.expect(400);
    // A dry run shows whose it would be.
    let plan = put(&api, &other, "www", "192.0.2.9", "?take_over=true&dry_run=true").await.expect(200).json();
    let sides = ["before", "after"].map(|side| plan["diff"][0][side]["managed_by"].clone());
    assert_eq!(sides, [json!("octodns"), json!("external-dns")], "{plan}");
    put(&api, &other, "www", "192.0.2.9", "?take_over=true").await.expect(202);
    assert_eq!(owner_of(&api, &person, "www").await, json!("external-dns"));
    put(&api, &octo, "www", "192.0.2.2", "").await.expect(409);
    put(&api, &person, "www", "192.0.2.9", "?take_over=true").await.expect(202);
    assert_eq!(owner_of(&api, &person, "www").await, Value::Null);
    ask(&api, &octo, Method::DELETE, "/rrsets/www/A", Value::Null).await.expect(202);
    // Lists tell whose it is, and give those of one.
    put(&api, &octo, "a", "192.0.2.1", "").await.expect(202);
    put(&api, &other, "b", "192.0.2.1", "").await.expect(202);
    for (query, found) in [
        ("managed_by=octodns", vec!["a A"]),
        ("managed_by=nobody", vec![]),
        ("managed_by=platform", vec!["@ NS", "@ SOA"]),
        ("limit=1&managed_by=external-dns", vec!["b A"]),
    ] {
        assert_eq!(names(&read(&api, &person, &format!("/rrsets?{query}")).await), found, "{query}");
    }
    let revision = read(&api, &person, "").await["revision"].clone();
    let past = read(&api, &person, &format!("/rrsets?managed_by=octodns&revision={revision}")).await;
    assert_eq!(names(&past), ["a A"]);
    let zone = DomainName::parse("example.test").unwrap();
    let found = headwater::rebuild::desired::verify(&api.app.pool, Some(&zone), &mut |_| {}).await.unwrap();
    assert!(found.is_empty(), "{found:?}");
}

#[tokio::test]
async fn going_back_and_undoing_leave_what_others_own() {
    let (api, person) = api().await;
    let octo = tool(&api, &person, "octodns").await;
    let revision = || async { read(&api, &api.admin, "").await["revision"].as_i64().unwrap() };
    put(&api, &person, "www", "192.0.2.1", "").await.expect(202);
    put(&api, &octo, "www", "192.0.2.2", "").await.expect(202);
    let of_octo = revision().await;
    let undo = json!({"revision": of_octo});
    // It is a person's own intent to undo a revision; what a tool manages by now it says too.
    let refused = ask(&api, &person, Method::POST, "/undo", undo.clone()).await;
    assert_eq!(pointers(&refused.expect_problem(409, "managed_by_other")), ["/rrsets/www/A"]);
    ask(&api, &person, Method::POST, "/undo?take_over=true", undo).await.expect(202);
    assert_eq!(owner_of(&api, &person, "www").await, Value::Null);
    // What is given back is whose it was.
    let undone = ask(&api, &person, Method::POST, "/undo", json!({"revision": revision().await})).await;
    undone.expect(202);
    assert_eq!(owner_of(&api, &person, "www").await, json!("octodns"));
    let refused = ask(&api, &person, Method::DELETE, "/rrsets/www/A", Value::Null).await;
    refused.expect_problem(409, "managed_by_other");
}

#[tokio::test]
async fn a_tool_deletes_no_domain_in_which_others_own_something() {
    let (api, person) = api().await;
    let octo = tool(&api, &person, "octodns").await;
    let other = tool(&api, &person, "external-dns").await;
    for name in ["a", "b"] {
        put(&api, &octo, name, "192.0.2.1", "").await.expect(202);
    }
    put(&api, &person, "mine", "192.0.2.1", "").await.expect(202);
    let refused = ask(&api, &other, Method::DELETE, "", Value::Null).await;
    assert_eq!(pointers(&refused.expect_problem(409, "managed_by_other")), ["/rrsets/a/A", "/rrsets/b/A"]);
    // Its owner may, and everything comes back to whose it was.
    ask(&api, &person, Method::DELETE, "", Value::Null).await.expect(202);
    ask(&api, &person, Method::POST, "/restore", Value::Null).await.expect(202);
    assert_eq!(owner_of(&api, &person, "a").await, json!("octodns"));
    ask(&api, &octo, Method::DELETE, "", Value::Null).await.expect(202);
    ask(&api, &octo, Method::POST, "/restore", Value::Null).await.expect(202);
    ask(&api, &other, Method::DELETE, "?take_over=true", Value::Null).await.expect(202);
}

/// What a leaked token of a tool did is undone with leave to take it over, and told otherwise.
#[tokio::test]
async fn a_leaked_token_of_a_tool_is_undone() {
    let (api, person) = api().await;
    tokio::spawn(project::run(api.app.clone(), Audit));
    tokio::spawn(headwater::operation::run(api.app.clone()));
    tokio::spawn(runner::run(api.app.clone()));
    let (octo, id) = made(&api, &person, json!({"name": "octodns", "manager": "octodns"})).await;
    let since = read(&api, &person, "").await["created_at"].clone();
    put(&api, &person, "www", "192.0.2.1", "").await.expect(202);
    put(&api, &octo, "www", "192.0.2.66", "").await.expect(202);
    let undo = |query: &'static str| {
        let (api, person, body) = (&api, &person, json!({"token": id, "since": since}));
        async move {
            let path = format!("/api/undo{query}");
            api.send(person, Method::POST, &path, Some(&body), &[]).await
        }
    };
    let plan = undo("?dry_run=true").await.expect(200).json();
    assert_eq!(plan["changed"], false, "{plan}");
    assert!(
        plan["conflicts"][0]["detail"].as_str().unwrap().contains("www A is managed by octodns"),
        "{plan}"
    );
    let plan = undo("?dry_run=true&take_over=true").await.expect(200).json();
    assert_eq!((&plan["changed"], &plan["conflicts"]), (&json!(true), &json!([])), "{plan}");
    let operation = undo("?take_over=true").await.expect(202).json()["operation"]["id"].clone();
    let operation = OperationId::from_uuid(operation.as_str().unwrap().parse().unwrap());
    let done = ended(&api.app.pool, operation).await;
    assert_eq!(done["state"], "succeeded", "{done}");
    let www = read(&api, &person, "/rrsets/www/A").await;
    assert_eq!((&www["records"], &www["managed_by"]), (&json!(["192.0.2.1"]), &Value::Null));
}

/// `view: own` hides the rest in every read.
#[tokio::test]
async fn a_token_with_the_view_of_its_own_sees_nothing_else() {
    let (api, person) = api().await;
    let body = json!({"name": "octodns", "manager": "octodns", "view": "own"});
    let octo = made(&api, &person, body).await.0;
    let other = tool(&api, &person, "external-dns").await;
    put(&api, &person, "person", "192.0.2.1", "").await.expect(202);
    put(&api, &other, "other", "192.0.2.2", "").await.expect(202);
    put(&api, &octo, "own", "192.0.2.3", "").await.expect(202);
    put(&api, &octo, "was", "192.0.2.4", "").await.expect(202);
    let revision = read(&api, &person, "").await["revision"].as_i64().unwrap();
    put(&api, &person, "was", "192.0.2.5", "?take_over=true").await.expect(202);
    assert_eq!(names(&read(&api, &octo, "/rrsets").await), ["own A"]);
    assert_eq!(names(&read(&api, &octo, &format!("/rrsets?revision={revision}")).await), ["own A", "was A"]);
    let zone = |query: String| {
        let (api, octo) = (&api, &octo);
        async move {
            let text =
                ask(api, octo, Method::GET, &format!("/zone{query}"), Value::Null).await.expect(200).text;
            text.lines().skip(1).map(|line| line.split(' ').next().unwrap().to_owned()).collect::<Vec<_>>()
        }
    };
    assert_eq!(zone(String::new()).await, ["own"]);
    assert_eq!(zone(format!("?revision={revision}")).await, ["own", "was"]);
    for (path, status) in [
        ("/rrsets/own/A".to_owned(), 200),
        ("/rrsets/person/A".to_owned(), 404),
        ("/rrsets/other/A".to_owned(), 404),
        ("/rrsets/was/A".to_owned(), 404),
        ("/rrsets/@/NS".to_owned(), 404),
        ("/rrsets/nothing/A".to_owned(), 404),
        (format!("/rrsets/was/A?revision={revision}"), 200),
        (format!("/rrsets/other/A?revision={revision}"), 404),
        ("/diff?from=1".to_owned(), 403),
        ("/revisions".to_owned(), 403),
        (format!("/revisions/{revision}"), 403),
    ] {
        let answer = ask(&api, &octo, Method::GET, &path, Value::Null).await;
        assert_eq!(answer.status.as_u16(), status, "{path}: {answer:?}");
        assert!(!answer.text.contains("external-dns"), "{path}: {answer:?}");
    }
    // What nobody owns may be written by it, and what it was is not told before that either.
    let body = json!({"ttl": 300, "records": ["192.0.2.9"]});
    for (name, before) in [("person", Value::Null), ("own", json!(["192.0.2.3"]))] {
        let path = format!("/rrsets/{name}/A?dry_run=true");
        let plan = ask(&api, &octo, Method::PUT, &path, body.clone()).await.expect(200).json();
        assert_eq!(plan["diff"][0]["before"]["records"], before, "{name}: {plan}");
        assert_eq!(plan["diff"][0]["after"]["records"], json!(["192.0.2.9"]), "{name}: {plan}");
    }
    let items = |path: &'static str| {
        let (api, octo) = (&api, &octo);
        async move { api.send(octo, Method::GET, path, None, &[]).await.expect(200).json()["items"].clone() }
    };
    for path in ["/api/events?limit=1000", "/api/audit"] {
        assert_eq!(items(path).await, json!([]), "{path}");
    }
    for (method, path, body) in [
        (Method::POST, "/undo", json!({"revision": revision})),
        (Method::POST, "/rollback?dry_run=true", json!({"revision": revision})),
    ] {
        let answer = ask(&api, &octo, method, path, body).await;
        assert!(!answer.text.contains("192.0.2.5"), "{path}: {answer:?}");
    }
    // It may write what nobody owns, and is not told whose the rest is.
    put(&api, &octo, "person", "192.0.2.9", "").await.expect(202);
    let refused = put(&api, &octo, "other", "192.0.2.9", "").await.expect_problem(409, "managed_by_other");
    assert!(!refused.text.contains("external-dns"), "{refused:?}");
}

#[tokio::test]
async fn what_a_manager_may_be_called() {
    let (api, person) = api().await;
    let long = "a".repeat(64);
    for (body, pointer) in [
        (json!({"manager": "a".repeat(65)}), Some("/manager")),
        (json!({"manager": "Octo"}), Some("/manager")),
        (json!({"manager": "platform"}), Some("/manager")),
        (json!({"manager": 1}), Some("/manager")),
        (json!({"manager": ["octodns"]}), Some("/manager")),
        (json!({"view": "own"}), Some("/view")),
        (json!({"view": "mine", "manager": "a"}), Some("/view")),
        (json!({"manager": long, "view": "own"}), None),
        (json!({"manager": null, "view": "all"}), None),
        (json!({"manager": null, "view": null}), None),
    ] {
        let mut body = body;
        body["name"] = json!("t");
        let answer = make(&api, &person, &body).await;
        match pointer {
            Some(pointer) => assert_eq!(pointers(&answer.expect(422)), [pointer], "{body}"),
            None => {
                let shown = answer.expect(201).json();
                assert_eq!(shown["manager"], body["manager"]);
                assert_eq!(
                    shown["view"],
                    *body.get("view").filter(|view| !view.is_null()).unwrap_or(&json!("all"))
                );
            }
        }
    }
}
