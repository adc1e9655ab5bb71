//! The directories of one test run, and how a test waits for something.

use std::fmt::Debug;
use std::fs::File;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use headwater::demo::home::Home;
use tokio::time::Instant;

/// How long a test waits for anything before it fails.
const WAIT_LIMIT_SECONDS: u64 = 60;
/// How often it looks.
const LOOK_PAUSE_MILLISECONDS: u64 = 10;

/// The directory of this run. Its lock says that the run lives; its keeper removes it when the run is over.
struct Run {
    dir: PathBuf,
    _lock: File,
    _keeper: Child,
}

static RUN: OnceLock<Run> = OnceLock::new();
static NEXT: AtomicU32 = AtomicU32::new(1);

/// The parent of all runs of this user. Short, because sockets lie below it, and reachable for other accounts.
fn root() -> PathBuf {
    PathBuf::from(format!("/var/tmp/hw-test-{}", nix::unistd::geteuid()))
}

/// A fresh directory for the servers of one test, or of the run.
pub fn test_home() -> Home {
    let run = RUN.get_or_init(|| begin(&root()));
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    Home::open(&run.dir.join(number.to_string())).unwrap().with_templates(&root().join("templates"))
}

fn begin(root: &Path) -> Run {
    // Opening it checks that it is ours and that other accounts can pass.
    Home::open(root).unwrap();
    remove_leftovers(root);
    let dir = root.join(std::process::id().to_string());
    std::fs::create_dir_all(&dir).unwrap();
    Home::open(&dir).unwrap();
    let lock = File::create(dir.join("lock")).unwrap();
    lock.lock().unwrap();
    // It reads until this process ends, however that happens. The servers then end by their death signals.
    let keeper = Command::new("sh")
        .arg("-c")
        .arg("cat >/dev/null; for i in 1 2 3 4 5 6 7 8 9 10; do rm -rf \"$0\" 2>/dev/null && exit; sleep 0.3; done")
        .arg(&dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    Run { dir, _lock: lock, _keeper: keeper }
}

fn remove_leftovers(root: &Path) {
    for entry in std::fs::read_dir(root).unwrap().flatten() {
        let Ok(lock) = File::open(entry.path().join("lock")) else {
            continue;
        };
        let is_a_run = entry.file_name().to_string_lossy().bytes().all(|byte| byte.is_ascii_digit());
        if is_a_run && lock.try_lock().is_ok() {
            // Its keeper may be at it too: whoever comes second finds nothing.
            let _removed = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// Awaits a condition: `probe` says what it saw, `is_met` whether that will do. Fails with the last sight.
pub async fn eventually<T, F, P>(what: &str, mut probe: P, is_met: impl Fn(&T) -> bool) -> T
where
    T: Debug,
    F: Future<Output = T>,
    P: FnMut() -> F,
{
    let deadline = Instant::now() + Duration::from_secs(WAIT_LIMIT_SECONDS);
    loop {
        let seen = probe().await;
        if is_met(&seen) {
            return seen;
        }
        assert!(Instant::now() < deadline, "{what}: not within {WAIT_LIMIT_SECONDS} s; last seen: {seen:?}");
        tokio::time::sleep(Duration::from_millis(LOOK_PAUSE_MILLISECONDS)).await;
    }
}
