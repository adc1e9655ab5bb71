//! The audit trail and what follows the log for it: each event once, whatever is killed.

use headwater_events::actor::Caller;
use serde_json::{Value, json};

use crate::support::eventually;
use crate::support::world::World;

async fn at_head(world: &World) {
    let head = world.head().await.get();
    let query = "select position from projection_cursors where name = 'audit'";
    let at = || async {
        sqlx::query_scalar::<_, i64>(query).fetch_optional(&world.app.pool).await.unwrap().unwrap_or(-1)
    };
    eventually("audit is at the head", at, |at| *at >= head).await;
}

fn positions(page: &Value) -> Vec<i64> {
    page["items"].as_array().unwrap().iter().map(|event| event["position"].as_i64().unwrap()).collect()
}

#[tokio::test]
async fn every_statement_prepares() {
    let world = World::new().await;
    for statement in headwater::statements::all() {
        use sqlx::{Executor, SqlSafeStr};
        let prepared = (&world.app.pool).prepare(sqlx::AssertSqlSafe(statement).into_sql_str()).await;
        assert!(prepared.is_ok(), "{statement}: {:?}", prepared.err());
    }
}

#[tokio::test]
async fn the_trail_answers_by_every_filter() {
    let world = World::new().await;
    let (ours, theirs) = (world.new_tenant("ours").await, world.new_tenant("theirs").await);
    world.domain("ours.test", ours).await;
    world.domain("theirs.test", theirs).await;
    let us = world.person("us@example.test", &[ours]).await;
    let them = world.person("them@example.test", &[theirs]).await;
    let changed = world.put(&us.caller, "ours.test", "www", "192.0.2.199").await;
    let elsewhere = world.put(&them.caller, "theirs.test", "www", "198.51.100.1").await;
    world.put(&Caller::system(), "ours.test", "mail", "192.0.2.2").await;
    at_head(&world).await;
    let (ours_at, theirs_at) = (changed.position.unwrap().get(), elsewhere.position.unwrap().get());
    let operation = changed.operation.unwrap();

    let only_ours = [
        format!("actor={}", us.user),
        format!("token={}", us.token),
        format!("operation={operation}"),
        "text=192.0.2.199".to_owned(),
        "text=WWW+199&domain=ours.test&type=rrset.".to_owned(),
        format!("tenant={ours}&type=rrset.replaced&text=www"),
    ];
    for query in &only_ours {
        let page = world.json("system", &format!("/api/audit?{query}")).await;
        assert_eq!(positions(&page), [ours_at], "{query}");
        assert_eq!(page["items"][0]["actor"]["name"], "us@example.test");
        assert_eq!(page["items"][0]["client"]["ip"], "192.0.2.77");
        assert_eq!(page["items"][0]["note"], "why not");
        let theirs = world.json(&them.bearer, &format!("/api/audit?{query}")).await;
        assert_eq!(positions(&theirs), [] as [i64; 0], "{query}");
    }
    let page = world.json(&them.bearer, "/api/audit?type=rrset.").await;
    assert_eq!(positions(&page), [theirs_at]);
    let at = page["items"][0]["at"].as_str().unwrap();
    assert_eq!(
        positions(&world.json(&them.bearer, &format!("/api/audit?type=rrset.&to={at}")).await),
        [] as [i64; 0]
    );
    let from = world.json(&them.bearer, &format!("/api/audit?type=rrset.&from={at}")).await;
    assert_eq!(positions(&from), [theirs_at]);

    // Pages of two give the whole, newest first, without a gap.
    let mut all = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = world.json("system", &format!("/api/audit?limit=2{cursor}")).await;
        all.extend(positions(&page));
        let Some(next) = page["next"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    let head = world.head().await.get();
    assert_eq!(all, (1..=head).rev().collect::<Vec<_>>());
    let lines = world.get_with("system", "/api/audit", &[("accept", "application/x-ndjson")]).await;
    let lines = lines.text().await.unwrap();
    let read: Vec<i64> = lines
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["position"].as_i64().unwrap())
        .collect();
    assert_eq!(read, all);
    let csv = world.get_with("system", "/api/audit", &[("accept", "text/csv")]).await.text().await.unwrap();
    assert_eq!(csv.split("\r\n").filter(|line| !line.is_empty()).count(), all.len() + 1);
    assert!(csv.starts_with("position,at,type,"));
    for query in ["nope=1", "actor=x", "from=yesterday", "text=%26", "limit=0", "limit=1001"] {
        let answer = world.get("system", &format!("/api/audit?{query}")).await;
        assert_eq!(answer.status(), 400, "{query}");
    }
}

#[tokio::test]
async fn the_list_of_events_pages_like_the_log() {
    let world = World::new().await;
    world.domain("example.test", world.tenant).await;
    world.domain("other.test", world.tenant).await;
    world.flood("example.test", 60).await;
    let whole = world.whole().await;
    let mut all: Vec<Value> = Vec::new();
    let mut after = "0".to_owned();
    loop {
        let page = world.json("system", &format!("/api/events?limit=7&after={after}")).await;
        all.extend(page["items"].as_array().unwrap().iter().cloned());
        let Some(next) = page["next"].as_str() else { break };
        next.clone_into(&mut after);
    }
    let expected: Vec<Value> = whole.iter().map(|(_, text)| serde_json::from_str(text).unwrap()).collect();
    assert_eq!(all, expected);
    let page = world.json("system", "/api/events?domain=other.test&domain=absent.test&type=domain.").await;
    assert_eq!(page["items"].as_array().unwrap().len(), 1);
    assert_eq!((&page["items"][0]["domain"], &page["next"]), (&json!("other.test"), &Value::Null));
    let lines = world.get_with("system", "/api/events", &[("accept", "application/x-ndjson")]).await;
    let lines = lines.text().await.unwrap();
    assert!(lines.lines().eq(whole.iter().map(|event| event.1.as_str())));
    let beyond = world.json("system", "/api/events?after=999999").await;
    assert_eq!(beyond["items"], json!([]));
}

/// An event that this program does not know halts the projection, and says so.
#[tokio::test]
async fn an_unknown_event_halts_the_projection_visibly() {
    let world = World::new().await;
    at_head(&world).await;
    let alien = "insert into events select position + 1, gen_random_uuid(), stream_kind, stream_id, revision + 1, seq, \
                 'no.such', schema, at, domain_id, domain, tenant_id, actor_kind, actor_id, token_id, on_behalf_of, \
                 client, request_id, operation_id, note, change_id, cause, hash, data from events \
                 order by position desc limit 1";
    sqlx::query(alien).execute(&world.app.pool).await.unwrap();
    let query =
        "select state || ': ' || coalesce(last_error, '') from projection_cursors where name = 'audit'";
    let told = || async { sqlx::query_scalar::<_, String>(query).fetch_one(&world.app.pool).await.unwrap() };
    let told = eventually("it is told", told, |told| told.starts_with("halted")).await;
    assert!(told.contains("no.such") && told.contains("upgrade"), "{told}");
}

#[cfg(feature = "failpoints")]
mod killed {
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, Stdio};
    use std::sync::atomic::{AtomicU32, Ordering};

    use headwater::history::hub::Hub;
    use headwater::operation::project;
    use headwater::secret::Secret;
    use headwater_projections::audit::Audit;
    use tokio_util::sync::CancellationToken;

    use crate::support::world::{Runs, World, app, connect};

    const URL: &str = "HEADWATER_TEST_PROJECTOR_URL";
    const POINT: &str = "HEADWATER_TEST_PROJECTOR_POINT";
    const AFTER: &str = "HEADWATER_TEST_PROJECTOR_AFTER";

    /// Not a test by itself: the process that is killed.
    #[tokio::test]
    async fn projector_child() {
        let Ok(url) = std::env::var(URL) else { return };
        let mut left = std::env::var(AFTER).unwrap().parse::<u32>().unwrap();
        left += 1;
        let left = AtomicU32::new(left);
        let point = std::env::var(POINT).unwrap();
        fail::cfg_callback(point, move || {
            if left.fetch_sub(1, Ordering::Relaxed) == 1 {
                // As kill -9 does: nothing is cleaned up.
                nix::sys::signal::raise(nix::sys::signal::Signal::SIGKILL).unwrap();
            }
        })
        .unwrap();
        let url = Secret::new(url);
        let stop = CancellationToken::new();
        let app = app(&url, connect(&url).await, &stop, Hub::default(), |_| {});
        project::run(app, Audit).await;
    }

    /// Runs a projector, sometimes a second one beside it, until it is killed at a point; whether it was.
    fn kill_one(url: &str, n: usize) -> bool {
        let point = if n.is_multiple_of(2) { "project.before_commit" } else { "project.after_commit" };
        let spawn = || {
            Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "audit::killed::projector_child", "--nocapture"])
                .env(URL, url)
                .env(POINT, point)
                .env(AFTER, (n % 3).to_string())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap()
        };
        let mut child = spawn();
        let mut beside = (n.is_multiple_of(5)).then(spawn);
        let killed = child.wait().unwrap().signal() == Some(9);
        if let Some(beside) = &mut beside {
            // It may have been killed at its own point already.
            beside.kill().unwrap_or(());
            beside.wait().unwrap();
        }
        killed
    }

    /// Eventlog test 8: the projector is killed before and after its commits, with a second one running beside it.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn each_event_counts_once_though_the_projector_is_killed() {
        let kills: usize = if std::env::var_os("HEADWATER_TORTURE").is_some() { 500 } else { 25 };
        let world = World::with(Runs::Streams, |_| {}).await;
        world.domain("example.test", world.tenant).await;
        let url = world.url.expose().to_owned();
        let kill = tokio::task::spawn_blocking(move || (0..kills).filter(|n| kill_one(&url, *n)).count());
        // Appends go on for as long as somebody is killed.
        let mut waves = 0;
        while !kill.is_finished() {
            world.flood("example.test", 64).await;
            waves += 1;
        }
        let killed = kill.await.unwrap();
        assert!(killed * 10 >= kills * 9, "only {killed} of {kills} were killed at their point");
        assert!(waves > 5);
        while project::step(&world.app, &Audit).await.unwrap() != project::Stepped::AtHead(world.head().await)
        {
        }
        let fold = "select count(*), count(distinct a.position), \
                    count(*) filter (where a.type = e.type and a.actor_id = e.actor_id and a.at = e.at) \
                    from audit.entries a full join events e on e.position = a.position";
        let found: (i64, i64, i64) = sqlx::query_as(fold).fetch_one(&world.app.pool).await.unwrap();
        let head = world.head().await.get();
        assert_eq!(found, (head, head, head));
    }
}
