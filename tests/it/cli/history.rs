//! What was, what differs, undoing, and heads that were kept: the commands against a real `headwater serve`.

use serde_json::json;
use sqlx::Executor;

use super::walk::Platform;
use crate::support::eventually;

#[tokio::test]
async fn what_was_is_shown_and_undone() {
    let on = Platform::start().await;
    on.expect(0, &["domain", "create", "example.test", "--active"]).await;
    on.expect(0, &["rrset", "set", "example.test", "www", "A", "192.0.2.1"]).await;
    let shown = on.json(&["domain", "show", "example.test"]).await;
    let since = shown["updated_at"].as_str().unwrap().to_owned();
    on.expect(0, &["rrset", "set", "example.test", "www", "A", "192.0.2.2"]).await;
    on.expect(0, &["rrset", "add", "example.test", "mail", "A", "192.0.2.3"]).await;

    let then = on.expect(0, &["zone", "export", "example.test", "--revision", "2"]).await;
    assert!(then.out.contains("192.0.2.1") && !then.out.contains("192.0.2.2"), "{then:?}");
    let by_time = on.json(&["rrset", "get", "example.test", "www", "A", "--at", &since]).await;
    assert_eq!(by_time["records"], json!(["192.0.2.1"]));
    on.expect(1, &["rrset", "list", "example.test", "--revision", "9"]).await;
    on.expect(2, &["domain", "show", "example.test", "--revision", "2", "--at", &since]).await;
    let diff = on.json(&["domain", "diff", "example.test", "2"]).await;
    assert_eq!(diff["items"].as_array().unwrap().len(), 2, "{diff}");
    let table = on.expect(0, &["domain", "diff", "example.test", "2", "3"]).await;
    assert!(table.out.contains("/rrsets/www/A") && !table.out.contains("mail"), "{table:?}");

    let plan = on.expect(0, &["domain", "undo", "example.test", "3", "--dry-run"]).await;
    assert!(plan.out.contains("/rrsets/www/A") && plan.err.contains("--if-match"), "{plan:?}");
    let undone = on.expect(0, &["domain", "undo", "example.test", "3"]).await;
    assert!(undone.out.starts_with("example.test: accepted, revision 5"), "{undone:?}");
    on.expect(0, &["rrset", "set", "example.test", "mail", "A", "192.0.2.9"]).await;
    let refused = on.expect(3, &["domain", "undo", "example.test", "4"]).await;
    assert!(refused.err.contains("/rrsets/mail/A") && refused.err.contains("revision 6"), "{refused:?}");

    // Everything that this token did since: the other's name is not there to be asked for.
    let token = on.json(&["me"]).await["token"].as_str().unwrap().to_owned();
    let of_token = ["undo", "--token", &token, "--since", &since];
    let preview = on.expect(0, &[&of_token[..], &["--dry-run"]].concat()).await;
    assert!(preview.out.contains("example.test") && preview.err.contains("1 of your domains"), "{preview:?}");
    let done =
        on.expect(0, &[&of_token[..], &["--note", "it leaked", "--allow", "empties_zone"]].concat()).await;
    assert!(done.out.starts_with("undo: done, 0 kept"), "{done:?}");
    on.expect(1, &["rrset", "get", "example.test", "mail", "A"]).await;
}

#[tokio::test]
async fn heads_that_were_kept_tell_what_was_cut_off() {
    let on = Platform::start().await;
    on.expect(0, &["domain", "create", "example.test", "--active"]).await;
    on.expect(0, &["rrset", "set", "example.test", "www", "A", "192.0.2.1"]).await;
    let file = on.dir.path().join("heads.ndjson");
    let file = file.to_str().unwrap();
    on.expect(0, &["audit", "export", "--heads", file]).await;
    let same = on.expect(0, &["audit", "verify", "--heads", file]).await;
    assert!(same.out.starts_with("the log holds what "), "{same:?}");
    let listed = || on.json(&["audit", "heads"]);
    eventually("today is signed", listed, |page| !page["items"].as_array().unwrap().is_empty()).await;
    let cut = "alter table events disable trigger user; \
        delete from events where type = 'rrset.replaced'; alter table events enable trigger user";
    sqlx::PgPool::connect(on.database_url()).await.unwrap().execute(cut).await.unwrap();
    let told = on.expect(3, &["audit", "verify", "--heads", file]).await;
    assert!(told.out.contains("truncated: it ends at revision 1, not at 2"), "{told:?}");
    let changed = std::fs::read_to_string(file).unwrap().replacen("\"revision\":2", "\"revision\":1", 1);
    std::fs::write(file, changed).unwrap();
    let none = on.expect(1, &["audit", "verify", "--heads", file]).await;
    assert!(none.err.contains("was changed"), "{none:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_zone_file_is_taken_in() {
    let on = Platform::start().await;
    on.expect(0, &["domain", "create", "example.test", "--active"]).await;
    let file = |name: &str, text: &str| {
        let path = on.dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let good = file("good", "$TTL 300\n@ SOA a b 1 1 1 1 1\nwww A 192.0.2.1\nmail A 192.0.2.2\n");
    let bad = file("bad", "$TTL 300\nwww A 192.0.2\nok A 192.0.2.1\n$INCLUDE /etc/passwd\n");
    let plan = on.expect(0, &["zone", "import", "example.test", &good, "--dry-run"]).await;
    assert!(plan.out.contains("/rrsets/mail/A") && plan.err.contains("--if-match"), "{plan:?}");
    let refused = on.expect(1, &["zone", "import", "example.test", &bad]).await;
    let told = ["line 2: ", "line 4: ", "[include]", "nothing was written"];
    assert!(
        told.iter().all(|part| refused.err.contains(part)) && !refused.err.contains("line 3"),
        "{refused:?}"
    );
    let done = on.expect(0, &["zone", "import", "example.test", &good, "--note", "moved in"]).await;
    assert!(
        done.out.starts_with("example.test: accepted") && done.err.contains("warning: the SOA"),
        "{done:?}"
    );
    let exported = on.expect(0, &["zone", "export", "example.test"]).await;
    let again = file("again", &exported.out);
    let same = on.expect(0, &["zone", "import", "example.test", &again]).await;
    assert!(same.out.contains("nothing changed"), "{same:?}");
    let more = file("more", "$TTL 300\nftp A 192.0.2.3\n");
    on.expect(0, &["zone", "import", "example.test", &more, "--mode", "merge"]).await;
    assert_eq!(on.json(&["rrset", "list", "example.test"]).await["items"].as_array().unwrap().len(), 5);
    on.expect(2, &["zone", "import", "example.test", &more, "--mode", "add"]).await;
}
