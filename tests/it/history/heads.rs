//! Heads of the log that were kept elsewhere: what was cut off or written anew since is named, a file that was changed
//! is none, and what leaves the platform is told in the log.

use std::io::Cursor;

use headwater::history::heads::{self, HeadsError};
use headwater::vault;
use reqwest::Method;
use serde_json::{Value, json};

use super::{ZONE, put};
use crate::support::TestApi;

struct Kept {
    api: TestApi,
    _dir: tempfile::TempDir,
}

impl Kept {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let key_file = dir.path().join("secret-key");
        assert!(vault::make(&key_file).unwrap());
        let api = super::api(&format!("[secrets]\nkey_file = {key_file:?}\n")).await;
        for n in 1..=5 {
            put(&api, "www", &[&format!("192.0.2.{n}")]).await;
        }
        Self { api, _dir: dir }
    }

    async fn export(&self) -> String {
        let headers = [("accept", "application/x-ndjson")];
        let answer = self.api.send(&self.api.admin, Method::GET, "/api/audit/heads", None, &headers).await;
        answer.expect(200).text
    }

    async fn differs(&self, file: &str) -> Vec<(String, String)> {
        let compared = heads::compare(&self.api.app.pool, Cursor::new(file.to_owned())).await.unwrap();
        compared.differences.into_iter().map(|one| (one.kind, one.what)).collect()
    }

    async fn alter(&self, statement: &str) {
        let text = format!(
            "alter table events disable trigger user; {statement}; alter table events enable trigger user"
        );
        sqlx::raw_sql(sqlx::AssertSqlSafe(text)).execute(&self.api.app.pool).await.unwrap();
    }
}

#[tokio::test]
async fn what_was_cut_off_or_written_anew_is_named() {
    let kept = Kept::new().await;
    let file = kept.export().await;
    assert_eq!(kept.differs(&file).await, [], "{file}");
    // The log goes on, and still holds what the file says.
    put(&kept.api, "www", &["192.0.2.9"]).await;
    assert_eq!(kept.differs(&file).await, []);
    let file = kept.export().await;
    let domain = kept.api.get(ZONE).await.json()["id"].as_str().unwrap().to_owned();

    // Rewritten: the last event with everything that hangs on it, so that its chain is whole.
    kept.alter(&format!(
        "update events set hash = sha256(hash) where stream_id = '{domain}' and revision = 7"
    ))
    .await;
    let told = kept.differs(&file).await;
    assert_eq!(told, [("domain".to_owned(), "rewritten: revision 7 is another one".to_owned())]);
    // Truncated: what came last is gone, as if it had never been.
    kept.alter(&format!("delete from events where stream_id = '{domain}' and revision >= 6")).await;
    let told = kept.differs(&file).await;
    assert!(
        told.contains(&("domain".to_owned(), "truncated: it ends at revision 5, not at 7".to_owned())),
        "{told:?}"
    );
    kept.alter(&format!("delete from events where stream_id = '{domain}'")).await;
    let told = kept.differs(&file).await;
    assert!(told.contains(&("domain".to_owned(), "truncated: nothing of it is left".to_owned())), "{told:?}");
    kept.alter("delete from events where position > 3").await;
    let told = kept.differs(&file).await;
    assert!(
        told.iter().any(|(kind, what)| kind == "log" && what.starts_with("truncated: it ends at position 3")),
        "{told:?}"
    );
    // Another log altogether.
    sqlx::query("update log_meta set log_id = gen_random_uuid()").execute(&kept.api.app.pool).await.unwrap();
    assert!(kept.differs(&file).await.iter().any(|(_, what)| what.starts_with("it is the log ")));
}

#[tokio::test]
async fn a_file_that_was_changed_is_none() {
    let kept = Kept::new().await;
    let file = kept.export().await;
    let lines: Vec<&str> = file.lines().collect();
    let joined = |lines: &[&str]| lines.iter().map(|line| format!("{line}\n")).collect::<String>();
    let mut fewer = lines.clone();
    fewer.remove(1);
    let mut swapped = lines.clone();
    swapped.swap(1, 2);
    let changed = file.replacen("\"revision\":6", "\"revision\":5", 1);
    assert_ne!(changed, file);
    let cut = joined(&lines[..lines.len() - 1]);
    let other_key = file.replacen(&lines[0][lines[0].len() - 10..lines[0].len() - 4], "000000", 1);
    for bad in [joined(&fewer), joined(&swapped), changed, cut, other_key, String::new(), "{}\n".to_owned()] {
        let refused = heads::compare(&kept.api.app.pool, Cursor::new(bad.clone())).await;
        assert!(matches!(refused, Err(HeadsError::Format(_) | HeadsError::Sign(_))), "{bad}: {refused:?}");
    }
}

#[tokio::test]
async fn each_day_has_one_signature() {
    let kept = Kept::new().await;
    assert!(heads::sign_today(&kept.api.app).await.unwrap());
    assert!(!heads::sign_today(&kept.api.app).await.unwrap(), "once a day");
    kept.api.clock.turn(25 * 3_600_000);
    assert!(heads::sign_today(&kept.api.app).await.unwrap());
    let page = kept.api.get("/api/audit/heads?limit=1").await.expect(200).json();
    let next = page["next"].as_str().unwrap();
    let older = kept.api.get(&format!("/api/audit/heads?limit=1&cursor={next}")).await.expect(200).json();
    let day = |page: &Value| page["items"][0]["day"].as_str().unwrap().to_owned();
    assert!(day(&page) > day(&older));
    assert_eq!((page["items"][0]["root"].as_str().unwrap().len(), &older["next"]), (64, &Value::Null));
}

/// Who takes a part of the trail out of the platform stands in it.
#[tokio::test]
async fn exports_are_told_in_the_log() {
    let kept = Kept::new().await;
    kept.export().await;
    for accept in ["text/csv", "application/x-ndjson"] {
        let path = "/api/audit?domain=example.test&text=somebody";
        kept.api.send(&kept.api.admin, Method::GET, path, None, &[("accept", accept)]).await.expect(200);
    }
    let head = kept.api.head().await;
    kept.api.get("/api/audit?domain=example.test").await.expect(200);
    kept.api.get("/api/audit/heads").await.expect(200);
    assert_eq!(kept.api.head().await, head, "a page is no export");
    let events = kept.api.get("/api/events?type=audit.exported").await.expect(200).json();
    let told: Vec<Value> =
        events["items"].as_array().unwrap().iter().map(|event| event["data"].clone()).collect();
    let filters = json!({"domain": "example.test", "text": "given"});
    let trail = |format: &str| json!({"what": "trail", "format": format, "filters": filters});
    let expected = [
        json!({"what": "heads", "format": "application/x-ndjson", "filters": {}}),
        trail("text/csv"),
        trail("application/x-ndjson"),
    ];
    assert_eq!(told, expected);
    assert_eq!(events["items"][0]["actor"]["kind"], "operator");
}
