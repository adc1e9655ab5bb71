//! A deploying process of its own, that can be killed, stopped, or told to fail at one point of a deployment.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child as Program, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use headwater::secret::Secret;
use nix::sys::signal::{Signal, kill, raise};
use nix::unistd::Pid;

use super::lab::{Does, Process};
use crate::support::eventually;

/// Where the child finds its database, and what it does at which point.
const URL: &str = "HEADWATER_TEST_DEPLOY_URL";
const POINT: &str = "HEADWATER_TEST_DEPLOY_POINT";

/// Not a test by itself: the process. It ends with whoever started it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child() {
    let (Ok(url), Ok(point)) = (std::env::var(URL), std::env::var(POINT)) else { return };
    std::thread::spawn(|| {
        let _ended = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    if let Some((point, action)) = point.split_once('=') {
        arm(point, action);
    }
    let _process = Process::start(&Secret::new(url), Does::Deploy).await;
    println!("begun");
    std::future::pending::<()>().await;
}

fn arm(point: &str, action: &str) {
    let first = AtomicBool::new(true);
    let signal = match action {
        // As kill -9 does: nothing is cleaned up.
        "kill" => Signal::SIGKILL,
        "stop" => Signal::SIGSTOP,
        "tell" => return fail::cfg_callback(point, || println!("passed")).unwrap(),
        other => return fail::cfg(point, other).unwrap(),
    };
    fail::cfg_callback(point, move || {
        if first.swap(false, Ordering::SeqCst) {
            raise(signal).unwrap();
        }
    })
    .unwrap();
}

/// A running child.
pub struct Child {
    program: Program,
    begun: Arc<AtomicBool>,
    passed: Arc<AtomicUsize>,
}

impl Drop for Child {
    fn drop(&mut self) {
        let _killed = self.program.kill();
        let _ended = self.program.wait();
    }
}

impl Child {
    /// Starts one on a control database. `point` is `name=kill`, `name=stop`, `name=tell`, `name=` and an action of the
    /// `fail` crate, or nothing.
    pub fn start(url: &Secret, point: &str) -> Self {
        let mut program = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "deploy::child::child", "--nocapture"])
            .env(URL, url.expose())
            .env(POINT, point)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(program.stdout.take().unwrap()).lines();
        let (begun, passed) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let seen = (Arc::clone(&begun), Arc::clone(&passed));
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if line.ends_with("begun") {
                    seen.0.store(true, Ordering::SeqCst);
                } else if line.ends_with("passed") {
                    seen.1.fetch_add(1, Ordering::SeqCst);
                }
            }
        });
        Self { program, begun, passed }
    }

    /// Awaits that it runs.
    pub async fn begun(&self) {
        let begun = || async { self.begun.load(Ordering::SeqCst) };
        let _begun = eventually("the child runs", begun, |begun| *begun).await;
    }

    /// How often it came past its point.
    pub fn passed(&self) -> usize {
        self.passed.load(Ordering::SeqCst)
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.program.id().cast_signed())
    }

    /// Awaits that it was killed at its point.
    pub async fn killed(&mut self) {
        let program = std::sync::Mutex::new(&mut self.program);
        let ended = || async { program.lock().unwrap().try_wait().unwrap() };
        let status = eventually("the child is killed", ended, Option::is_some).await.unwrap();
        assert_eq!(status.signal(), Some(Signal::SIGKILL as i32), "{status:?}");
    }

    /// Awaits that it stands still at its point.
    pub async fn stopped(&self) {
        let file = format!("/proc/{}/stat", self.pid());
        let state = || async {
            let text = std::fs::read_to_string(&file).unwrap();
            text.rsplit_once(") ").unwrap().1.chars().next().unwrap()
        };
        let _state = eventually("the child stands still", state, |state| *state == 'T').await;
    }

    /// Lets it go on.
    pub fn go_on(&self) {
        kill(self.pid(), Signal::SIGCONT).unwrap();
    }
}
