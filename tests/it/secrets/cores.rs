//! What the programs hold in memory stands in no core dump, whatever the limits of the shell that starts them.

use std::net::TcpListener;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::{edge_program, eventually, test_home};

/// A program that may write a core dump as large as it likes, into this directory.
fn started(program: &Path, args: &[&str], at: &Path) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -c \"$(ulimit -Hc)\"; exec \"$@\"", "sh"]).arg(program).args(args);
    command.current_dir(at).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Whether it wrote a core dump.
fn dumps(mut child: Child) -> bool {
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGABRT).unwrap();
    let status = child.wait().unwrap();
    assert_eq!(status.signal(), Some(Signal::SIGABRT as i32), "{status:?}");
    status.core_dumped()
}

#[tokio::test]
async fn no_program_leaves_a_core_dump() {
    let home = test_home();
    let at = home.dir();
    let sleeps = started(Path::new("/bin/sleep"), &["60"], at).spawn().unwrap();
    let name = format!("/proc/{}/comm", sleeps.id());
    let named = || async { std::fs::read_to_string(&name).unwrap_or_default() };
    eventually("the shell is another program now", named, |name| name.trim() == "sleep").await;
    println!("another program leaves one on this machine: {}", dumps(sleeps));

    // It waits for an answer that does not come.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::fs::write(at.join("token"), headwater::token::generate().expose()).unwrap();
    let mut asks = started(Path::new(env!("CARGO_BIN_EXE_headwater")), &["--url", &url, "status"], at);
    let asks = asks.env("HEADWATER_TOKEN_FILE", at.join("token")).spawn().unwrap();
    let _held = listener.accept().unwrap();
    assert!(!dumps(asks), "headwater");

    // It waits for the token at its standard input.
    let text = format!(
        "state_dir = \"{}/state\"\n[origins]\nresolvers = [\"127.0.0.1:53\"]\n[[cells]]\nhttp = [\"127.0.0.1:1\"]\nhttps = [\"127.0.0.1:2\"]\n",
        at.display()
    );
    std::fs::write(at.join("edge.toml"), text).unwrap();
    let edge = uuid::Uuid::now_v7().to_string();
    let args = ["enroll", "--control", "https://127.0.0.1:1", "--edge", &edge, "--token-file", "-"];
    let mut waits = started(&edge_program(), &args, at);
    let waits = waits.env("HEADWATER_EDGE_CONFIG", at.join("edge.toml")).spawn().unwrap();
    let limits = format!("/proc/{}/limits", waits.id());
    let core = || async {
        let limits = std::fs::read_to_string(&limits).unwrap_or_default();
        let line =
            limits.lines().find_map(|line| line.strip_prefix("Max core file size")).unwrap_or_default();
        line.split_whitespace().take(2).map(str::to_owned).collect::<Vec<_>>()
    };
    // What it starts inherits this: the nginx of its cells holds the keys of certificates.
    eventually("it may write none", core, |found| *found == ["0", "0"]).await;
    assert!(!dumps(waits), "headwater-edge");
}
