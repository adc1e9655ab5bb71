//! Imperative operations: asked for over the API, carried out once by whoever has the lane, called off, given up; and
//! processes that are killed at each durable step, whose work another one ends.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command as Process, Stdio};

use headwater::app::App;
use headwater::operation::{self, runner};
use headwater::secret::Secret;
use headwater_events::admin::AdminCommand;
use headwater_events::event::{OperationRequested, Projection, Work};
use headwater_events::ids::{ClusterId, OperationId};
use reqwest::Method;
use serde_json::{Value, json};
use sqlx::Executor;
use sqlx::postgres::PgPool;
use uuid::Uuid;

use crate::support::log::Log;
use crate::support::world::{Runs, World};
use crate::support::{TestApi, eventually};

/// Where the child finds its database, and where it stops.
const CHILD_URL: &str = "HEADWATER_TEST_RUNNER_URL";
const CHILD_POINT: &str = "HEADWATER_TEST_RUNNER_POINT";

/// A process that carries out imperative work until it comes to a point, and stands still there.
pub struct Runner(Child);

impl Drop for Runner {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _status = self.0.wait();
    }
}

impl Runner {
    /// Starts one and waits until it stands at `point`, the `nth` time that it comes there (from 1).
    pub async fn at(url: &Secret, point: &str, nth: usize) -> Self {
        let mut child = Process::new(std::env::current_exe().unwrap())
            .args(["imperative::child", "--exact", "--nocapture"])
            .env(CHILD_URL, url.expose())
            .env(CHILD_POINT, format!("{point} {nth}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let seen = tokio::task::spawn_blocking(move || {
            lines.map_while(Result::ok).any(|line| line.contains("at the point"))
        });
        assert!(seen.await.unwrap(), "it ended before it came to {point}");
        Self(child)
    }

    /// Lets it go on.
    pub fn go_on(&mut self) {
        self.0.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    }

    /// `kill -9`.
    pub fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// Not a test by itself: what the process that is killed does.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn child() {
    let (Ok(url), Ok(point)) = (std::env::var(CHILD_URL), std::env::var(CHILD_POINT)) else { return };
    let (point, nth) = point.split_once(' ').unwrap();
    let (nth, passed) = (nth.parse::<usize>().unwrap(), std::sync::atomic::AtomicUsize::new(0));
    let world = World::join(Secret::new(url), Runs::Streams, |_| {}).await;
    fail::cfg_callback(point, move || {
        if passed.fetch_add(1, std::sync::atomic::Ordering::SeqCst) + 1 == nth {
            println!("at the point");
            // Until it is let go on, or killed.
            let _line = std::io::stdin().read_line(&mut String::new());
        }
    })
    .unwrap();
    runner::run(world.app.clone()).await;
}

/// Asks for work, as the control plane itself.
pub async fn ask(app: &App, kind: Work, projection: Projection) -> OperationId {
    ask_on(app, kind, projection, None).await
}

/// The same on one DNS cluster alone.
pub async fn ask_on(
    app: &App,
    kind: Work,
    projection: Projection,
    cluster: Option<ClusterId>,
) -> OperationId {
    let operation = OperationId::from_uuid(Uuid::now_v7());
    let requested = OperationRequested { kind, projection, domain: None, mend: true, cluster };
    let command = AdminCommand::RequestOperation { operation, requested };
    let meta = headwater::command::Meta::internal();
    let caller = headwater_events::actor::Caller::system();
    app.commit.submit(caller, headwater::command::Command::admin(command), meta).await.unwrap();
    operation
}

/// Awaits the end that the log tells; gives it.
pub async fn ended(pool: &PgPool, operation: OperationId) -> Value {
    let text = "select jsonb_agg(convert_from(data, 'UTF8')::jsonb) from events \
                where stream_id = $1 and type = 'operation.finished'";
    let ends = || async {
        let query = sqlx::query_scalar::<_, Option<Value>>(text).bind(operation.as_uuid());
        query.fetch_one(pool).await.unwrap().unwrap_or_default()
    };
    let mut ends = eventually("it ends", ends, |ends| ends.is_array()).await;
    assert_eq!(ends.as_array().map(Vec::len), Some(1), "it ended once: {ends}");
    ends[0].take()
}

/// Tries, and differences that were found.
pub async fn tries(pool: &PgPool, operation: OperationId) -> (i32, i64) {
    let text = "select attempts, differences from operation_runs where id = $1";
    sqlx::query_as(text).bind(operation.as_uuid()).fetch_one(pool).await.unwrap()
}

async fn post(api: &TestApi, path: &str, body: Value, status: u16) -> Value {
    api.call(Method::POST, path, body).await.expect(status).json()
}

#[tokio::test]
async fn a_verification_is_accepted_and_tells_what_it_found() {
    let api = TestApi::start("").await;
    tokio::spawn(operation::run(api.app.clone()));
    post(&api, "/api/domains", json!({"name": "example.test", "force_active": true}), 202).await;
    let www = json!({"ttl": 300, "records": ["192.0.2.1"]});
    api.call(Method::PUT, "/api/domains/example.test/rrsets/www/A", www).await.expect(202);
    let pool = api.database.pool().await;
    pool.execute("update desired.rrsets set ttl = 1; delete from desired.deployments").await.unwrap();

    let path = "/api/projections/desired/verify";
    let key = Uuid::new_v4().to_string();
    let headers = [("Idempotency-Key", key.as_str())];
    let planned = post(&api, &format!("{path}?dry_run=true"), Value::Null, 200).await;
    assert_eq!((&planned["changed"], &planned["targets"]), (&json!(true), &json!([])));
    let first = api.send(&api.admin, Method::POST, path, None, &headers).await.expect(202);
    let id = first.json()["operation"]["id"].as_str().unwrap().to_owned();
    assert_eq!(first.header("location"), format!("/api/operations/{id}"));
    assert_eq!(
        first.json(),
        json!({"changed": true, "revision": 1, "operation": {"id": id, "state": "pending"}})
    );
    let again = api.send(&api.admin, Method::POST, path, None, &headers).await.expect(202);
    assert_eq!((again.header("idempotency-replayed"), again.json()), ("true", first.json()));

    // At once, and before anybody works on it.
    let path = format!("/api/operations/{id}");
    let open = api.get(&path).await.expect(200).json();
    assert_eq!(
        (&open["state"], &open["lane"], &open["kind"], &open["attempts"]),
        (&json!("pending"), &json!("bulk_maintenance"), &json!("projection.verify"), &json!(0))
    );
    assert_eq!(
        open["request"],
        json!({"kind": "projection.verify", "projection": "desired", "domain": null, "mend": true})
    );
    tokio::spawn(runner::run(api.app.clone()));
    let done = api.get(&format!("{path}?wait=20")).await.expect(200).json();
    assert_eq!((&done["state"], &done["attempts"]), (&json!("succeeded"), &json!(1)), "{done}");
    assert_eq!(done["result"]["differences"], 1);
    assert_eq!(done["progress"]["unit"], "tables");
    let found = api.get(&format!("{path}/differences?limit=1")).await.expect(200).json();
    assert_eq!((&found["items"][0]["table"], &found["next"]), (&json!("rrsets"), &Value::Null));
    assert!(found["items"][0]["detail"].as_str().unwrap().contains("ttl is 1, the log says 300"), "{found}");
    // A rebuild sets it right, and tells the same; then there is nothing left to tell.
    pool.execute("delete from audit.entries where position = 2").await.unwrap();
    for (name, differences) in [("desired", 1), ("desired", 0), ("audit", 1), ("audit", 0)] {
        let asked = post(&api, &format!("/api/projections/{name}/rebuild"), Value::Null, 202).await;
        let id = asked["operation"]["id"].as_str().unwrap();
        let done = api.get(&format!("/api/operations/{id}?wait=20")).await.expect(200).json();
        assert_eq!(done["result"]["differences"], differences, "{name}: {done}");
    }
    let timeline = api.get(&format!("{path}/timeline")).await.expect(200).json();
    assert_eq!(timeline[0]["stage"], "committed");
    // What has ended is neither called off nor tried again.
    for (verb, code) in [("cancel", "already_ended"), ("retry", "nothing_to_retry")] {
        let answer = api.call(Method::POST, &format!("{path}/{verb}"), Value::Null).await;
        answer.expect_problem(409, code);
    }
    // Whoever did not ask for it does not know of it.
    let tenant = api.tenant("strangers").await;
    let (_, stranger) = api.user("stranger@example.test", false, &[tenant]).await;
    for part in ["", "/differences", "/timeline"] {
        let answer = api.send(&stranger, Method::GET, &format!("{path}{part}"), None, &[]).await;
        answer.expect_problem(404, "not_found");
    }
    let missing = json!({"domain": "absent.test"});
    api.call(Method::POST, "/api/projections/powerdns/verify", missing)
        .await
        .expect_problem(404, "not_found");
    api.call(Method::POST, "/api/projections/none/verify", Value::Null)
        .await
        .expect_problem(404, "not_found");
}

/// Whoever watches the numbers sees them end where they were to end.
#[tokio::test]
async fn what_has_succeeded_has_done_all_of_it() {
    let api = TestApi::start("").await;
    tokio::spawn(operation::run(api.app.clone()));
    tokio::spawn(runner::run(api.app.clone()));
    post(&api, "/api/domains", json!({"name": "example.test", "force_active": true}), 202).await;
    for verb in ["verify", "rebuild"] {
        for (name, body) in [
            ("desired", json!({})),
            ("desired", json!({"domain": "example.test"})),
            ("operations", json!({})),
            ("audit", json!({})),
            ("powerdns", json!({})),
        ] {
            let asked = post(&api, &format!("/api/projections/{name}/{verb}"), body.clone(), 202).await;
            let id = asked["operation"]["id"].as_str().unwrap();
            let done = api.get(&format!("/api/operations/{id}?wait=20")).await.expect(200).json();
            assert_eq!(done["state"], "succeeded", "{verb} {name} {body}: {done}");
            let progress = &done["progress"];
            assert_eq!(progress["done"], progress["total"], "{verb} {name} {body}: {progress}");
            // Without a cluster there are no zones.
            assert_eq!(progress["total"] == 0, name == "powerdns", "{verb} {name} {body}: {progress}");
        }
    }
}

/// Rows that a program with other rules made halt their projection; it says what to do, and doing it helps, though the
/// rebuild is an operation itself.
#[tokio::test]
async fn what_is_outdated_says_how_to_go_on() {
    let api = TestApi::start("").await;
    tokio::spawn(operation::run(api.app.clone()));
    tokio::spawn(runner::run(api.app.clone()));
    post(&api, "/api/domains", json!({"name": "example.test", "force_active": true}), 202).await;
    let pool = api.database.pool().await;
    for name in ["operations", "audit", "edge"] {
        let standing = || async {
            let all = api.get("/api/projections").await.expect(200).json();
            all["items"]
                .as_array()
                .unwrap()
                .iter()
                .find(|one| one["name"] == name)
                .cloned()
                .unwrap_or_default()
        };
        let live = eventually("it is live", standing, |one| one["lag"] == 0 && one["state"] == "live").await;
        let age =
            sqlx::query("update projection_cursors set version = version - 1 where name = $1").bind(name);
        age.execute(&pool).await.unwrap();
        let halted = eventually("it halts", standing, |one| one["state"] == "halted").await;
        let (old, new) = (&halted["version"], &live["version"]);
        let detail = format!(
            "halted: its rows are of version {old} and this program makes version {new}; run `headwater projection \
             rebuild {name}`"
        );
        assert_eq!(halted["last_error"], detail);
        // What happens meanwhile waits, and is not lost.
        post(&api, "/api/tenants", json!({"name": format!("during {name}")}), 201).await;
        let asked = post(&api, &format!("/api/projections/{name}/rebuild"), Value::Null, 202).await;
        let id = asked["operation"]["id"].as_str().unwrap();
        let done = api.get(&format!("/api/operations/{id}?wait=20")).await.expect(200).json();
        assert_eq!(done["state"], "succeeded", "{name}: {done}");
        let again =
            eventually("it is live again", standing, |one| one["state"] == "live" && one["lag"] == 0).await;
        assert_eq!((&again["version"], &again["last_error"]), (new, &Value::Null));
    }
}

#[tokio::test]
async fn one_rebuild_of_a_projection_at_a_time_and_a_call_off_frees_it() {
    let api = TestApi::start("").await;
    tokio::spawn(operation::run(api.app.clone()));
    let rebuild = |name: &str| format!("/api/projections/{name}/rebuild");
    let first = post(&api, &rebuild("audit"), Value::Null, 202).await;
    let id = first["operation"]["id"].as_str().unwrap().to_owned();
    let second = api.call(Method::POST, &rebuild("audit"), Value::Null).await;
    let second = second.expect_problem(409, "conflict").json();
    assert!(second["detail"].as_str().unwrap().contains(&id), "{second}");
    post(&api, &rebuild("operations"), Value::Null, 202).await;
    // Of verifications only the very same one is refused while it is open.
    let verify = "/api/projections/audit/verify";
    post(&api, verify, Value::Null, 202).await;
    api.call(Method::POST, verify, Value::Null).await.expect_problem(409, "conflict");
    post(&api, verify, json!({"mend": false}), 202).await;

    let cancel = format!("/api/operations/{id}/cancel");
    let key = Uuid::new_v4().to_string();
    let headers = [("Idempotency-Key", key.as_str())];
    for _ in 0..2 {
        let cancelled = api.send(&api.admin, Method::POST, &cancel, None, &headers).await.expect(200);
        assert_eq!(cancelled.json()["revision"], 2);
    }
    api.call(Method::POST, &cancel, Value::Null).await.expect_problem(409, "already_ended");
    let ended = api.get(&format!("/api/operations/{id}?wait=10")).await.expect(200).json();
    assert_eq!((&ended["state"], &ended["attempts"]), (&json!("cancelled"), &json!(0)), "{ended}");
    // Nobody works on what was called off; the next one may.
    let third = post(&api, &rebuild("audit"), Value::Null, 202).await;
    tokio::spawn(runner::run(api.app.clone()));
    let third = third["operation"]["id"].as_str().unwrap();
    let done = api.get(&format!("/api/operations/{third}?wait=20")).await.expect(200).json();
    assert_eq!(done["state"], "succeeded", "{done}");
    let begun: i64 = sqlx::query_scalar("select count(*) from operation_runs where id = $1::uuid")
        .bind(&id)
        .fetch_one(&api.app.pool)
        .await
        .unwrap();
    assert_eq!(begun, 0);
}

/// Two replicas that are asked at once decide on the same claim.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_rebuilds_that_are_asked_for_at_once_one_is_refused() {
    let log = Log::new().await;
    let replicas = [log.replica(), log.replica()];
    for round in 0..20 {
        let asked = replicas.iter().map(|replica| {
            let operation = OperationId::from_uuid(Uuid::now_v7());
            let (kind, projection) = (Work::Rebuild, Projection::Powerdns);
            let requested = OperationRequested { kind, projection, domain: None, mend: true, cluster: None };
            let command = AdminCommand::RequestOperation { operation, requested };
            let command = headwater::command::Command::admin(command);
            let caller = headwater_events::actor::Caller::system();
            replica.submit(caller, command, headwater::command::Meta::internal())
        });
        let answers = futures_util::future::join_all(asked).await;
        let won: Vec<_> = answers.iter().flatten().collect();
        assert_eq!(won.len(), 1, "round {round}: {answers:?}");
        let operation = won[0].operation.unwrap();
        log.admin(AdminCommand::CancelOperation { operation }).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_carry_out_each_operation_once() {
    let world = World::new().await;
    let other = World::join(world.url.clone(), Runs::All, |_| {}).await;
    world.domain("example.test", world.tenant).await;
    for world in [&world, &other] {
        tokio::spawn(runner::run(world.app.clone()));
    }
    for _ in 0..3 {
        for projection in [Projection::Desired, Projection::Edge, Projection::Operations, Projection::Audit] {
            let operation = ask(&world.app, Work::Rebuild, projection).await;
            let end = ended(&world.app.pool, operation).await;
            assert_eq!(end["state"], "succeeded", "{projection:?}: {end}");
            assert_eq!(tries(&world.app.pool, operation).await, (1, 0), "{projection:?}");
        }
    }
    // Rebuilding `operations` neither loses nor changes its own row.
    let verify = ask(&world.app, Work::Verify, Projection::Operations).await;
    assert_eq!(ended(&world.app.pool, verify).await["result"]["differences"], 0);
    let rows: i64 =
        sqlx::query_scalar("select count(*) from operations.operations where lane = 'bulk_maintenance'")
            .fetch_one(&world.app.pool)
            .await
            .unwrap();
    assert_eq!(rows, 13);
}

#[tokio::test]
async fn what_fails_again_and_again_is_given_up() {
    let world = World::new().await;
    // Somebody else rebuilds, without an end.
    let mut busy = world.app.pool.acquire().await.unwrap();
    busy.execute("select pg_advisory_lock(7002)").await.unwrap();
    let operation = ask(&world.app, Work::Verify, Projection::Desired).await;
    let path = format!("/api/operations/{operation}");
    tokio::spawn(runner::run(world.app.clone()));
    let seen = || async { world.json("system", &path).await };
    let open = eventually("it is put off", seen, |body| body["error"]["code"] == "tried_again").await;
    assert_eq!(open["state"], "running");
    // As if it had been tried for long.
    let worn = format!("update operation_runs set attempts = 4 where id = '{operation}'");
    world.app.pool.execute(sqlx::AssertSqlSafe(worn)).await.unwrap();
    let end = ended(&world.app.pool, operation).await;
    assert_eq!((&end["state"], &end["error"]["code"]), (&json!("failed"), &json!("given_up")), "{end}");
    assert!(end["error"]["detail"].as_str().unwrap().contains("another rebuild"), "{end}");
    assert_eq!(tries(&world.app.pool, operation).await.0, 5);
}

/// At every durable step a process is killed; the next one ends the work, once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_is_killed_at_any_step_leaves_what_another_ends() {
    let world = World::new().await;
    world.domain("example.test", world.tenant).await;
    world.app.pool.execute("update desired.domains set labels = '{\"x\": \"y\"}'").await.unwrap();
    let points = [
        ("operation.before_begin", 1),
        ("operation.after_begin", 2),
        ("operation.before_save", 2),
        ("operation.after_save", 2),
        ("operation.before_finish", 2),
        ("operation.after_finish", 1),
    ];
    let mut seen = BTreeMap::new();
    for (point, tried) in points {
        let operation = ask(&world.app, Work::Verify, Projection::Desired).await;
        Runner::at(&world.url, point, 1).await.kill();
        let next = World::join(world.url.clone(), Runs::Streams, |_| {}).await;
        let running = tokio::spawn(runner::run(next.app.clone()));
        let since = tokio::time::Instant::now();
        let end = ended(&world.app.pool, operation).await;
        assert_eq!(
            (&end["state"], &end["result"]["differences"]),
            (&json!("succeeded"), &json!(1)),
            "{point}"
        );
        seen.insert(point, since.elapsed());
        let (tries, differences) = tries(&world.app.pool, operation).await;
        assert_eq!((tries, differences), (tried, 1), "{point}");
        let told = "select count(*) from operation_differences where operation = $1";
        let told: i64 =
            sqlx::query_scalar(told).bind(operation.as_uuid()).fetch_one(&world.app.pool).await.unwrap();
        assert_eq!(told, 1, "{point}");
        next.stop.cancel();
        running.await.unwrap();
    }
    println!("taken over after {seen:?}");
}
