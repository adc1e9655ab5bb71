//! A mutation with a key happens once: from many callers at once over two processes, after a kill between commit and
//! answer, and never for somebody who may not do it any more.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command as Program, Stdio};

use headwater::secret::Secret;
use nix::sys::signal::{Signal, raise};
use reqwest::{Client, Method};
use serde_json::{Value, json};

use crate::support::{Answer, TestApi, Twin, eventually};

const CALLERS: usize = 50;
const URL: &str = "HEADWATER_TEST_ONCE_URL";
const TOKEN: &str = "HEADWATER_TEST_ONCE_TOKEN";
const KEY: &str = "HEADWATER_TEST_ONCE_KEY";
/// Set where the other process is not killed, but stands before its locks until it is told to go on.
const STANDS: &str = "HEADWATER_TEST_ONCE_STANDS";

fn body() -> Value {
    json!({"name": "example.test", "force_active": true})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_callers_with_one_key_make_one_domain() {
    let api = TestApi::start("").await;
    let twin = api.join("").await;
    let (api, body) = (&api, &body());
    let key = uuid::Uuid::new_v4().to_string();
    let post = |at| {
        let request = api.request_at(at, Method::POST, "/api/domains").bearer_auth(api.admin.expose());
        let request = request.header("idempotency-key", &key).json(body);
        async move { Answer::of(request.send().await.unwrap()).await }
    };
    // Who meets a process that has too much to do asks again, as it says.
    let busy = std::sync::atomic::AtomicUsize::new(0);
    let free = |answer: &Answer| {
        let is_busy = answer.status == 503;
        busy.fetch_add(usize::from(is_busy), std::sync::atomic::Ordering::Relaxed);
        !is_busy
    };
    let ask = |at| eventually("it answers", move || post(at), free);
    let at = |n: usize| if n.is_multiple_of(2) { api.address } else { twin.address };
    let answers = futures_util::future::join_all((0..CALLERS).map(|n| ask(at(n)))).await;
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    let mut first = None;
    for answer in answers {
        let what = match answer.status.as_u16() {
            202 if answer.headers.contains_key("idempotency-replayed") => "replayed",
            202 => "made",
            409 => {
                assert!(answer.header("retry-after").parse::<u32>().unwrap() >= 1);
                answer.expect_problem(409, "idempotency_in_progress");
                *seen.entry("in progress").or_default() += 1;
                continue;
            }
            _ => panic!("{answer:?}"),
        };
        *seen.entry(what).or_default() += 1;
        let body = answer.json();
        assert_eq!(*first.get_or_insert_with(|| body.clone()), body, "every answer is the same");
    }
    // The answer of the first may have been lost with what was busy.
    let least = usize::from(busy.into_inner() == 0);
    let made = seen.get("made").copied().unwrap_or_default();
    assert!((least..=1).contains(&made), "{seen:?}");
    let list = api.get("/api/domains").await.expect(200).json();
    assert_eq!(list["items"].as_array().unwrap().len(), 1, "{list}");
    let events = "select count(*) from events where type = 'domain.created'";
    let count: i64 = sqlx::query_scalar(events).fetch_one(&api.app.pool).await.unwrap();
    assert_eq!(count, 1);
    let again = post(twin.address).await.expect(202);
    assert_eq!(again.header("idempotency-replayed"), "true");
}

/// Not a test by itself: the process that is killed while it answers a request of its own.
#[tokio::test]
async fn child() {
    let read = |name| std::env::var(name).ok();
    let (Some(url), Some(token), Some(key)) = (read(URL), read(TOKEN), read(KEY)) else { return };
    let twin = Twin::on(&Secret::new(url), "").await;
    let post =
        Client::builder().no_proxy().build().unwrap().post(format!("http://{}/api/domains", twin.address));
    let asked = post.bearer_auth(token).header("idempotency-key", key).json(&body()).send();
    if read(STANDS).is_none() {
        fail::cfg_callback("append.after_call", || raise(Signal::SIGKILL).unwrap()).unwrap();
        let _killed = asked.await;
        return;
    }
    let stand = || {
        fail::remove("load.before_locks");
        println!("stands");
        let _told = std::io::stdin().read_line(&mut String::new()).unwrap();
    };
    fail::cfg_callback("load.before_locks", stand).unwrap();
    let answer = Answer::of(asked.await.unwrap()).await;
    println!("answer {} {}", answer.status.as_u16(), answer.header("idempotency-replayed"));
}

/// Two processes have the same request at once. The one that comes to the locks second finds what the first one did,
/// however little before that was.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_twin_in_another_process_is_a_replay_and_no_conflict() {
    let api = TestApi::start("").await;
    let key = uuid::Uuid::new_v4().to_string();
    let mut other = Program::new(std::env::current_exe().unwrap())
        .args(["http_once::child", "--exact", "--nocapture"])
        .env(URL, api.database.url().expose())
        .env(TOKEN, api.admin.expose())
        .env(KEY, &key)
        .env(STANDS, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(other.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut said = |word: &str| lines.find(|line| line.contains(word));
    assert!(said("stands").is_some(), "it did not come there");
    let headers = [("idempotency-key", key.as_str())];
    let first = api.send(&api.admin, Method::POST, "/api/domains", Some(&body()), &headers).await.expect(202);
    assert!(!first.headers.contains_key("idempotency-replayed"));
    other.stdin.take().unwrap().write_all(b"go on\n").unwrap();
    assert_eq!(said("answer ").unwrap_or_default(), "answer 202 true");
    assert!(other.wait().unwrap().success());
}

/// A process dies after the commit and before the answer; another one replays it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_after_the_commit_is_answered_by_another_process() {
    let api = TestApi::start("").await;
    let (head, key) = (api.head().await, uuid::Uuid::new_v4().to_string());
    let status = Program::new(std::env::current_exe().unwrap())
        .args(["http_once::child", "--exact", "--nocapture"])
        .env(URL, api.database.url().expose())
        .env(TOKEN, api.admin.expose())
        .env(KEY, &key)
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert_eq!(status.signal(), Some(9), "it was not killed there");
    let after = api.head().await;
    assert!(after > head, "it was committed");
    let headers = [("idempotency-key", key.as_str())];
    let again = api.send(&api.admin, Method::POST, "/api/domains", Some(&body()), &headers).await.expect(202);
    assert_eq!(again.header("idempotency-replayed"), "true");
    assert_eq!(api.head().await, after, "it happened twice");
}

/// Whoever may not do it any more gets no replay, and nobody gets another caller's; one-time secrets are not kept.
#[tokio::test]
async fn a_replay_is_for_whoever_may_still_do_it() {
    let api = TestApi::start("").await;
    let tenant = api.tenant("acme").await;
    let (user, ann) = api.user("ann@example.test", false, &[tenant]).await;
    let (_, bob) = api.user("bob@example.test", false, &[tenant]).await;
    let key = uuid::Uuid::new_v4().to_string();
    let headers = [("idempotency-key", key.as_str())];
    let (api, headers) = (&api, &headers);
    let ask = |token: &Secret, method: Method, path: &str, body: Value| {
        let (token, path) = (token.clone(), path.to_owned());
        async move { api.send(&token, method, &path, Some(&body), headers).await }
    };
    let domain = || json!({"name": "replayed.example"});
    let first = ask(&ann, Method::POST, "/api/domains", domain()).await.expect(201);
    let again = ask(&ann, Method::POST, "/api/domains", domain()).await.expect(201);
    assert_eq!((again.header("idempotency-replayed"), again.json()), ("true", first.json()));
    // The same key of another caller is another one.
    ask(&bob, Method::POST, "/api/domains", domain()).await.expect_problem(409, "name_taken");
    let token = ask(&ann, Method::POST, "/api/me/tokens", json!({"name": "ci"})).await;
    token.expect_problem(409, "idempotency_conflict");
    let key = uuid::Uuid::new_v4().to_string();
    let make = || async {
        api.send(
            &ann,
            Method::POST,
            "/api/me/tokens",
            Some(&json!({"name": "ci"})),
            &[("idempotency-key", &key)],
        )
        .await
        .expect(201)
        .json()
    };
    let (shown, replayed) = (make().await, make().await);
    assert!(shown["token"].as_str().unwrap().starts_with("hw_"));
    assert_eq!((&replayed["token"], &replayed["id"]), (&Value::Null, &shown["id"]));
    let kept: Vec<String> = sqlx::query_scalar("select to_jsonb(r)::text from receipts r")
        .fetch_all(&api.app.pool)
        .await
        .unwrap();
    assert!(kept.len() >= 2 && !kept.iter().any(|row| row.contains("hw_")), "{kept:?}");
    // Her membership ends.
    let member = format!("/api/tenants/{tenant}/members/{user}");
    api.call(Method::DELETE, &member, Value::Null).await.expect(200);
    let refused = ask(&ann, Method::POST, "/api/domains", domain()).await;
    assert!(refused.status.is_client_error(), "{refused:?}");
    assert!(!refused.headers.contains_key("idempotency-replayed"));
}
