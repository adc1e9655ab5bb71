//! Processes that die in the middle, and several at once: every event comes, in order, and twice only where it must be,
//! under the same id.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command as Program, Stdio};
use std::time::Duration;

use headwater::secret::Secret;
use nix::sys::signal::{Signal, raise};
use serde_json::json;

use super::lab::{Lab, Receiver, ZONE, quick};
use crate::support::TestApi;

const URL: &str = "HEADWATER_TEST_WEBHOOK_URL";
const CONFIG: &str = "HEADWATER_TEST_WEBHOOK_CONFIG";
const POINT: &str = "HEADWATER_TEST_WEBHOOK_POINT";

/// Not a test by itself: the process that is killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child() {
    let read = |name| std::env::var(name).ok();
    let (Some(url), Some(config), Some(point)) = (read(URL), read(CONFIG), read(POINT)) else { return };
    let twin = TestApi::process_on(&Secret::new(url), &config).await;
    fail::cfg_callback(point, || raise(Signal::SIGKILL).unwrap()).unwrap();
    let sends = headwater::webhook::run_with(twin.app.clone(), quick(3));
    let _ended = tokio::time::timeout(Duration::from_secs(60), sends).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_dies_loses_nothing_and_repeats_under_the_same_id() {
    for (point, sent_before) in [
        ("webhooks.before_scan", 0),
        ("webhooks.after_scan", 0),
        ("webhooks.before_send", 0),
        ("webhooks.after_send", 1),
        ("webhooks.after_record", 1),
    ] {
        let lab = Lab::new().await;
        let receiver = Receiver::willing().await;
        let (path, _) = lab.hook(&receiver.url(), json!({"types": ["rrset."]})).await;
        for n in 1..4 {
            lab.put(ZONE, &format!("192.0.2.{n}")).await;
        }
        let program = Program::new(std::env::current_exe().unwrap())
            .args(["webhooks::crash::child", "--exact", "--nocapture"])
            .env(URL, lab.api.database.url().expose())
            .env(CONFIG, &lab.config)
            .env(POINT, point)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let status =
            tokio::task::spawn_blocking(move || program.wait_with_output().unwrap().status).await.unwrap();
        assert_eq!(status.signal(), Some(9), "{point}: it was not killed there");
        assert_eq!(receiver.got().len(), sent_before, "{point}");
        lab.sends(quick(3));
        lab.caught_up(&path).await;
        let repeats = usize::from(point == "webhooks.after_send");
        let got = receiver.got();
        assert_eq!(got.len(), 3 + repeats, "{point}: {:?}", receiver.shown());
        if repeats == 1 {
            assert_eq!(got[0].header("webhook-id"), got[1].header("webhook-id"), "{point}");
            assert_eq!(got[0].body, got[1].body, "{point}");
        }
        let positions: Vec<i64> =
            got.iter().skip(repeats).map(|got| got.json()["position"].as_i64().unwrap()).collect();
        assert!(positions.is_sorted_by(|a, b| a < b), "{point}: {positions:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_deliver_once() {
    let lab = Lab::new().await;
    let receiver = Receiver::willing().await;
    let (path, _) = lab.hook(&receiver.url(), json!({"types": ["rrset."]})).await;
    let twin = lab.api.join(&lab.config).await;
    lab.process(&twin.app, quick(3));
    lab.sends(quick(3));
    for n in 1..40 {
        lab.put(ZONE, &format!("192.0.2.{n}")).await;
    }
    lab.caught_up(&path).await;
    assert_eq!(receiver.got().len(), 39);
    // One stops in good order: the other goes on, with the next.
    twin.app.stop.cancel();
    for n in 40..60 {
        lab.put(ZONE, &format!("192.0.2.{n}")).await;
    }
    lab.caught_up(&path).await;
    assert_eq!(receiver.got().len(), 59, "{:?}", receiver.shown());
}
