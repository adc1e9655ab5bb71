//! The whole way of a certificate: brought by the API, sealed, carried to the agent, shown by nginx to a client that
//! trusts its root alone.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use reqwest::{Method, Version};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};

use super::host::Host;
use super::{Api, WWW, ZONE, lived, proxied};
use crate::certs::mint::{Ca, Leaf};
use crate::cli::walk::Platform;
use crate::support::eventually;

const CUSTOM: &str = "/api/domains/example.test/tls/custom-certificate";
const SHOP: &str = "shop.example.test";

/// What a client saw: the status, the version, and the leaf it was shown.
type Seen = (u16, Version, Vec<u8>);

pub(super) fn der(pem: &str) -> Vec<u8> {
    CertificateDer::from_pem_slice(pem.as_bytes()).unwrap().to_vec()
}

/// Asks for a name over TLS on a connection of its own; none where there was no handshake that a client takes.
async fn https(root: &Ca, at: SocketAddr, name: &str, host: &str, alpn: &[&str]) -> Option<Seen> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(der(&root.pem))).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let tls = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let mut tls = tls.with_root_certificates(roots).with_no_client_auth();
    tls.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    tls.resumption = rustls::client::Resumption::disabled();
    let client = reqwest::Client::builder().no_proxy().tls_backend_preconfigured(tls).tls_info(true);
    let client = client.resolve(name, at).build().unwrap();
    let request = client.get(format!("https://{name}:{}/", at.port()));
    let request = if host == name { request } else { request.header("host", host) };
    let answer = match request.send().await {
        Ok(answer) => answer,
        Err(error) => {
            assert!(error.is_connect(), "{error:?}");
            return None;
        }
    };
    let info = answer.extensions().get::<reqwest::tls::TlsInfo>().unwrap();
    let leaf = info.peer_certificate().unwrap().to_vec();
    Some((answer.status().as_u16(), answer.version(), leaf))
}

/// The same by HTTP/1.1, the leaf alone: it must have been answered well.
pub(super) async fn shown(root: &Ca, host: &Host, name: &str) -> Option<Vec<u8>> {
    let seen = https(root, host.https(0), name, name, &["http/1.1"]).await?;
    assert_eq!(seen.0, 200, "{name}");
    Some(seen.2)
}

pub(super) async fn well(api: &Api, done: &Value) {
    let operation = api.ended(done).await;
    assert_eq!(
        (&operation["state"], &operation["partial"]),
        (&json!("succeeded"), &json!([])),
        "{operation}"
    );
}

pub(super) async fn put(api: &Api, path: &str, body: Value) {
    well(api, &api.call(Method::PUT, path, Some(body)).await).await;
}

/// As the operator does it: by the command line, from files.
pub(super) async fn bring(on: &Platform, leaf: &Leaf, issuer: &Ca) {
    let path = |name: &str| on.dir.path().join(name).to_str().unwrap().to_owned();
    let (full, key) = (path("fullchain.pem"), path("privkey.pem"));
    std::fs::write(&full, format!("{}{}", leaf.pem, issuer.pem)).unwrap();
    std::fs::write(&key, &leaf.key).unwrap();
    let set = ["tls", "set", "example.test", "--certificate", &full, "--key", &key, "--wait"];
    let said = on.expect(0, &set).await;
    assert!(said.out.starts_with("example.test: done"), "{said:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_is_shown_replaced_taken_away_and_outlives_the_control_plane() {
    let (mut on, api, _stack, mut host) = lived(1).await;
    let root = Ca::root("Root");
    let issuer = root.below("Issuer");
    let (path, body) = proxied(&host, "www");
    put(&api, &path, body).await;
    assert_eq!(host.get(0, WWW, "/").await.0, 200);
    assert_eq!(shown(&root, &host, WWW).await, None, "without a certificate there is no handshake");
    assert!(on.expect(0, &["tls", "show", "example.test"]).await.out.contains("no certificate"));

    let names = ["*.example.test", "example.test"];
    let (first, second, third) = (issuer.leaf(&names), issuer.leaf(&names), issuer.leaf(&names));
    bring(&on, &first, &issuer).await;
    let at = host.https(0);
    for (alpn, version) in [(&["h2", "http/1.1"][..], Version::HTTP_2), (&["http/1.1"], Version::HTTP_11)] {
        let seen = https(&root, at, WWW, WWW, alpn).await;
        assert_eq!(seen, Some((200, version, der(&first.pem))));
    }
    let told = on.json(&["tls", "show", "example.test"]).await;
    assert_eq!(told["certificate"]["version"], 1, "{told}");
    for name in ["unknown.test", "a.b.example.test"] {
        assert_eq!(https(&root, at, name, WWW, &["http/1.1"]).await, None, "{name}");
    }
    let (path, body) = proxied(&host, "a.deep");
    put(&api, &path, body).await;
    assert_eq!(host.get(0, "a.deep.example.test", "/").await.0, 200, "it answers by http");
    assert_eq!(shown(&root, &host, "a.deep.example.test").await, None, "and not by https");
    well(&api, &api.call(Method::DELETE, &path, None).await).await;

    let workers = host.workers(0);
    bring(&on, &second, &issuer).await;
    assert_eq!(shown(&root, &host, WWW).await, Some(der(&second.pem)));
    assert_eq!(host.workers(0), workers, "nginx was not started anew");

    host.kill_agent();
    let done = api.call(Method::PUT, CUSTOM, Some(third.body(Some(&issuer.pem)))).await;
    assert_eq!(shown(&root, &host, WWW).await, Some(der(&second.pem)), "what is served stays");
    host.start();
    well(&api, &done).await;
    assert_eq!(shown(&root, &host, WWW).await, Some(der(&third.pem)));
    assert_eq!(host.workers(0), workers);
    keys_lie_in_their_place(&host.state(), &third.key);

    nobody_shadows_another(&api, &host, &root, &issuer).await;
    put(&api, CUSTOM, third.body(Some(&issuer.pem))).await;

    on.kill().await;
    host.power_off();
    host.start();
    let look = || async { shown(&root, &host, WWW).await };
    eventually("it is shown after a cold start", look, |seen| *seen == Some(der(&third.pem))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_that_is_taken_away_is_shown_no_longer() {
    let (on, api, _stack, host) = lived(1).await;
    let root = Ca::root("Root");
    let issuer = root.below("Issuer");
    let (path, body) = proxied(&host, "www");
    put(&api, &path, body).await;
    let leaf = issuer.leaf(&[WWW]);
    bring(&on, &leaf, &issuer).await;
    assert_eq!(shown(&root, &host, WWW).await, Some(der(&leaf.pem)));
    let gone = on.expect(0, &["tls", "delete", "example.test", "--wait"]).await;
    assert!(gone.err.contains("TLS is refused"), "{gone:?}");
    assert_eq!(shown(&root, &host, WWW).await, None);
    assert_eq!(host.get(0, WWW, "/").await.0, 200);
    // A deleted domain is gone from TLS too, and comes back with its certificate.
    bring(&on, &leaf, &issuer).await;
    well(&api, &api.call(Method::DELETE, ZONE, None).await).await;
    let look = || async { https(&root, host.https(0), WWW, WWW, &["http/1.1"]).await };
    eventually("it is gone", look, Option::is_none).await;
    well(&api, &api.call(Method::POST, &format!("{ZONE}/restore"), None).await).await;
    let look = || async { https(&root, host.https(0), WWW, WWW, &["http/1.1"]).await.map(|seen| seen.2) };
    eventually("it is back", look, |seen| *seen == Some(der(&leaf.pem))).await;
}

/// A domain below another one, of another owner: the upper one's wildcard proves nothing of it.
async fn nobody_shadows_another(api: &Api, host: &Host, root: &Ca, issuer: &Ca) {
    let tenant = api.call(Method::POST, "/api/tenants", Some(json!({"name": "shop"}))).await;
    let domain = json!({"name": SHOP, "tenant": tenant["id"], "force_active": true});
    well(api, &api.call(Method::POST, "/api/domains", Some(domain)).await).await;
    let origin = proxied(host, "@").1;
    put(api, &format!("/api/domains/{SHOP}/hostnames/@"), origin).await;
    assert_eq!(host.get(0, SHOP, "/").await.0, 200);
    assert_eq!(shown(root, host, SHOP).await, None, "somebody else's wildcard is not shown for it");
    let own = issuer.leaf(&[SHOP]);
    let custom = format!("/api/domains/{SHOP}/tls/custom-certificate");
    put(api, &custom, own.body(Some(&issuer.pem))).await;
    // Whoever comes last.
    let wide = issuer.leaf(&["*.example.test", "example.test", SHOP]);
    put(api, CUSTOM, wide.body(Some(&issuer.pem))).await;
    assert_eq!(shown(root, host, SHOP).await, Some(der(&own.pem)));
    assert_eq!(shown(root, host, WWW).await, Some(der(&wide.pem)));
    for (name, other) in [(WWW, SHOP), (SHOP, WWW)] {
        let seen = https(root, host.https(0), name, other, &["http/1.1"]).await.unwrap();
        assert_eq!(seen.0, 421, "the content of {other} over a connection for {name}");
    }
}

/// The key lies in the files of cells alone, which nobody else can read.
fn keys_lie_in_their_place(state: &Path, key: &str) {
    use std::os::unix::fs::PermissionsExt;
    let line = key.lines().find(|line| line.len() == 64).unwrap();
    let mut found = 0;
    let mut left = vec![state.to_owned()];
    while let Some(dir) = left.pop() {
        for entry in std::fs::read_dir(dir).unwrap().map(Result::unwrap) {
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                left.push(entry.path());
            } else if kind.is_file() {
                let bytes = std::fs::read(entry.path()).unwrap_or_default();
                if String::from_utf8_lossy(&bytes).contains(line) {
                    let path = entry.path();
                    assert!(path.parent().unwrap().ends_with("cell-0/keys"), "{}", path.display());
                    assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o777, 0o600);
                    found += 1;
                }
            }
        }
    }
    assert_eq!(found, 1);
}
