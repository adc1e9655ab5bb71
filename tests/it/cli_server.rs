//! The operator's commands, run as programs: migrate, init, admin, serve, and how they end.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use headwater::secret::Secret;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use reqwest::StatusCode;
use serde_json::Value;

use crate::support::{TestDb, eventually};

fn command(dir: &Path, database: &TestDb, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_headwater"));
    command.args(args).current_dir(dir).env_clear().env("HEADWATER_DATABASE__URL", database.url().expose());
    command
}

fn run(dir: &Path, database: &TestDb, args: &[&str]) -> Output {
    command(dir, database, args).output().unwrap()
}

#[track_caller]
fn expect(output: Output, code: i32) -> String {
    let (out, err) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{out}\n{err}");
    out
}

/// An address that is free now. Another may take it before it is used; then the test fails and says so.
fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

struct Serving(Child);

impl Drop for Serving {
    fn drop(&mut self) {
        // It has ended already unless the test failed.
        let _ended = self.0.kill();
        let _status = self.0.wait();
    }
}

async fn status(url: &str, token: Option<&Secret>) -> Option<StatusCode> {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let mut request = client.get(url);
    if let Some(token) = token {
        request = request.bearer_auth(token.expose());
    }
    request.send().await.ok().map(|response| response.status())
}

/// Settings that cannot be used are wrong usage, whatever the command; a fault of the world is not.
#[tokio::test]
async fn settings_that_cannot_be_used_are_wrong_usage() {
    let database = TestDb::new().await;
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    let run = |args: &[&str]| run(dir, &database, args);
    std::fs::write(dir.join("bad.toml"), "[server]\nlisten = \"nowhere\"\n").unwrap();
    for command in [
        &["serve"][..],
        &["serve", "--check-config"],
        &["migrate"],
        &["admin", "create-user", "a@example.test"],
        &["audit", "verify"],
        &["domain", "list"],
        &["projection", "verify"],
    ] {
        for file in ["bad.toml", "none.toml"] {
            expect(run(&[&["--config", file], command].concat()), 2);
        }
    }
    let mut bare = Command::new(env!("CARGO_BIN_EXE_headwater"));
    expect(bare.arg("migrate").current_dir(dir).env_clear().output().unwrap(), 2);
    let mut away = Command::new(env!("CARGO_BIN_EXE_headwater"));
    away.arg("migrate")
        .current_dir(dir)
        .env_clear()
        .env("HEADWATER_DATABASE__URL", "postgres://127.0.0.1:1/x");
    expect(away.output().unwrap(), 1);
    // What is missing is written by init; what is bad is not mended by it.
    expect(run(&["--config", "bad.toml", "init", "--admin-email", "a@example.test"]), 2);
}

#[tokio::test]
async fn a_server_is_set_up_served_and_stopped() {
    let _installed = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let database = TestDb::new().await;
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    let run = |args: &[&str]| run(dir, &database, args);
    expect(run(&["serve", "--roles", "cook"]), 2);
    // Nothing works before the schema is there, and it says what to do.
    let early = run(&["init"]);
    assert!(String::from_utf8_lossy(&early.stderr).contains("headwater migrate"), "{early:?}");
    assert!(dir.join(".headwater/headwater.toml").exists());
    expect(run(&["migrate"]), 0);
    expect(run(&["migrate"]), 0);
    expect(run(&["serve", "--check-config"]), 0);
    expect(run(&["init"]), 1);
    let init = ["init", "--admin-email", "Admin@example.test", "--token-file", "token"];
    expect(run(&init), 0);
    let token = Secret::read(&dir.join("token")).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::mode(&dir.join("token").metadata().unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    expect(run(&init), 0);
    assert!(Secret::read(&dir.join("token")).unwrap().expose() == token.expose());

    // Data alone on stdout.
    let user = expect(run(&["admin", "create-user", "ann@example.test", "--tenant", "acme"]), 0);
    assert!(uuid::Uuid::parse_str(user.trim_end()).is_ok(), "{user}");
    expect(run(&["admin", "create-user", "ann@example.test"]), 3);
    let shown = expect(run(&["admin", "create-token", "ann@example.test", "--name", "ci", "--json"]), 0);
    let shown: Value = serde_json::from_str(&shown).unwrap();
    let ann = Secret::new(shown["token"].as_str().unwrap().to_owned());
    expect(run(&["admin", "create-token", "bob@example.test", "--name", "ci"]), 1);
    // Passwords come from files or standard input, and what cannot be one leaves no user behind.
    std::fs::write(dir.join("short"), "short\n").unwrap();
    std::fs::write(dir.join("good"), "correct horse battery\n").unwrap();
    let create = |file: &'static str| ["admin", "create-user", "cat@example.test", "--password-file", file];
    expect(run(&create("short")), 2);
    expect(run(&create("good")), 0);
    expect(run(&["admin", "set-password", "bob@example.test", "--password-file", "good"]), 1);
    expect(run(&["admin", "set-password", "ann@example.test", "--password-file", "short"]), 2);
    let mut set = command(dir, &database, &["admin", "set-password", "ann@example.test", "--enable"]);
    set.stdin(std::fs::File::open(dir.join("good")).unwrap());
    expect(set.output().unwrap(), 0);
    // A restored log gets another identity, and keeps its events.
    let reader = headwater::store::read::LogReader::new(database.pool().await);
    let before = reader.meta().await.unwrap();
    let renewed = expect(run(&["admin", "renew-log-id"]), 0);
    let after = reader.meta().await.unwrap();
    assert_eq!(renewed.trim_end(), after.log.to_string());
    assert_ne!(before.log, after.log);
    assert_eq!(before.head, after.head);
    let renewed: Value = serde_json::from_str(&expect(run(&["admin", "renew-log-id", "--json"]), 0)).unwrap();
    assert_eq!(renewed["log_id"], serde_json::json!(reader.meta().await.unwrap().log));
    let openapi = expect(run(&["openapi"]), 0);
    assert_eq!(serde_json::from_str::<Value>(&openapi).unwrap()["openapi"], "3.1.0");

    let (api, metrics) = (free_address(), free_address());
    let mut serve = command(dir, &database, &["serve"]);
    serve.env("HEADWATER_SERVER__LISTEN", api.to_string());
    serve.env("HEADWATER_SERVER__METRICS_LISTEN", metrics.to_string());
    let mut serving = Serving(serve.stderr(Stdio::null()).spawn().unwrap());
    let ready = format!("http://{api}/readyz");
    eventually("it is ready", || status(&ready, None), |seen| *seen == Some(StatusCode::OK)).await;
    for token in [&token, &ann] {
        assert_eq!(status(&format!("http://{api}/api/me"), Some(token)).await, Some(StatusCode::OK));
    }
    for (email, expected) in [("ann", 200), ("cat", 200), ("admin", 401)] {
        let body = serde_json::json!({"email": format!("{email}@example.test"), "password": "correct horse battery"});
        let login = reqwest::Client::new().post(format!("http://{api}/api/auth/login")).json(&body);
        assert_eq!(login.send().await.unwrap().status(), expected, "{email}");
    }
    let text = reqwest::get(format!("http://{metrics}/metrics")).await.unwrap().text().await.unwrap();
    assert!(text.contains("cdn_http_requests_total") && text.contains("route=\"/api/me\""), "{text}");
    assert_eq!(status(&format!("http://{api}/metrics"), None).await, Some(StatusCode::NOT_FOUND));

    kill(Pid::from_raw(i32::try_from(serving.0.id()).unwrap()), Signal::SIGTERM).unwrap();
    eventually("it says that it stops", || status(&ready, None), |seen| *seen != Some(StatusCode::OK)).await;
    let end = tokio::task::spawn_blocking(move || serving.0.wait().unwrap().code()).await.unwrap();
    assert_eq!(end, Some(0));
}

/// A process that aborts leaves no memory behind, whatever the limits of whoever started it are.
#[tokio::test]
async fn a_process_leaves_no_core_dump() {
    let _installed = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let (database, home) = (TestDb::new().await, tempfile::tempdir().unwrap());
    expect(run(home.path(), &database, &["migrate"]), 0);
    let api = free_address();
    let mut serve = Command::new("sh");
    serve.args(["-c", "ulimit -c unlimited; exec \"$0\" serve", env!("CARGO_BIN_EXE_headwater")]);
    serve.current_dir(home.path()).env_clear().env("HEADWATER_DATABASE__URL", database.url().expose());
    serve.env("HEADWATER_SERVER__LISTEN", api.to_string());
    serve.env("HEADWATER_SERVER__METRICS_LISTEN", free_address().to_string());
    let mut serving = Serving(serve.stderr(Stdio::null()).spawn().unwrap());
    let live = format!("http://{api}/livez");
    eventually("it lives", || status(&live, None), |seen| *seen == Some(StatusCode::OK)).await;
    kill(Pid::from_raw(i32::try_from(serving.0.id()).unwrap()), Signal::SIGABRT).unwrap();
    let end = tokio::task::spawn_blocking(move || serving.0.wait().unwrap()).await.unwrap();
    use std::os::unix::process::ExitStatusExt;
    assert_eq!((end.signal(), end.core_dumped()), (Some(6), false), "{end:?}");
}
