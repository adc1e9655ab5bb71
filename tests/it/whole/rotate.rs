//! An identity that is replaced: the host goes over to other keys while it serves, whatever its operator does twice or
//! in the wrong order, and nobody who has the former keys gets anything for the new token.

use reqwest::Method;
use serde_json::{Value, json};

use super::host::Host;
use super::tls::{bring, der, put, shown, well};
use super::{Api, WWW, ZONE, lived, proxied};
use crate::certs::mint::Ca;
use crate::cli::walk::Platform;
use crate::support::eventually;

/// The edge once it is in service with another certificate than this one.
async fn renewed(on: &Platform, before: &Value) -> Value {
    let look = || async { on.json(&["edge", "status", "fra1"]).await };
    let is_other = |edge: &Value| {
        edge["identity"]["serial"] != before["identity"]["serial"]
            && edge["in_service"] == true
            && edge["cell_states"][0]["ready"] == true
    };
    eventually("the edge has another identity", look, is_other).await
}

async fn change(api: &Api, seconds: u32) {
    let body = json!({"edge_ttl_seconds": seconds});
    well(api, &api.call(Method::PATCH, &format!("{ZONE}/cache"), Some(body)).await).await;
}

async fn rotate(on: &Platform) -> String {
    on.expect(0, &["edge", "rotate", "fra1"]).await.out.trim().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_goes_over_to_other_keys_while_it_serves() {
    let (mut on, api, _stack, mut host) = lived(1).await;
    let (root, names) = (Ca::root("Root"), ["*.example.test", "example.test"]);
    let issuer = root.below("Issuer");
    let (path, body) = proxied(&host, "www");
    put(&api, &path, body).await;
    let (first, second) = (issuer.leaf(&names), issuer.leaf(&names));
    bring(&on, &first, &issuer).await;
    let workers = host.workers(0);
    let begun = on.json(&["edge", "status", "fra1"]).await;

    let command = rotate(&on).await;
    host.enroll(&command);
    let other = renewed(&on, &begun).await;
    assert_ne!(
        other["identity"]["key"], begun["identity"]["key"],
        "whoever has the former keys has these too"
    );
    assert_eq!((host.get(0, WWW, "/").await.0, host.workers(0)), (200, workers), "what serves was touched");
    change(&api, 100).await;

    // The same line once more, as by somebody who is not sure, or by a tool that runs it every day.
    host.enroll(&command);
    host.kill_agent();
    host.start();
    change(&api, 200).await;
    assert_eq!(on.json(&["edge", "status", "fra1"]).await["identity"]["serial"], other["identity"]["serial"]);

    // A line that is no longer good takes nothing away, and the next one is. The host may be off meanwhile.
    let (stale, good) = (rotate(&on).await, rotate(&on).await);
    host.enroll(&stale);
    eventually("the token is refused", || async { alarms(&host) }, |seen| seen.contains("enrolment")).await;
    host.kill_agent();
    host.enroll(&good);
    host.start();
    let third = renewed(&on, &other).await;
    assert_ne!(third["identity"]["key"], other["identity"]["key"]);
    change(&api, 300).await;

    // Keys that were sealed for the former keys and for these are shown, also by a host that starts anew alone.
    assert_eq!(shown(&root, &host, WWW).await, Some(der(&first.pem)));
    bring(&on, &second, &issuer).await;
    assert_eq!(shown(&root, &host, WWW).await, Some(der(&second.pem)));
    on.kill().await;
    host.power_off();
    std::fs::remove_dir_all(host.state().join("cell-0/keys")).unwrap();
    host.start();
    let look = || async { shown(&root, &host, WWW).await };
    eventually("it is shown after a cold start", look, |seen| *seen == Some(der(&second.pem))).await;
}

fn alarms(host: &Host) -> String {
    std::fs::read_to_string(host.state().join("status.json")).unwrap_or_default()
}
