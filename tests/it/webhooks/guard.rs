//! Where nothing is sent: addresses that the registries set apart, whatever a name meant a moment before; and receivers
//! whose certificate nobody vouches for.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::json;
use tokio_rustls::TlsAcceptor;

use super::lab::{Lab, Names, Receiver, Reply, ZONE, quick};
use crate::certs::mint::{Ca, Leaf};

#[tokio::test]
async fn a_name_that_means_something_else_at_the_next_look_leads_nowhere() {
    // One address of loopback is opened, another is not.
    let lab = Lab::with("allow_http = true\nallow_networks = ['127.0.0.2/32']\n").await;
    let open = Receiver::on("127.0.0.2:0", None, |_, _| Reply::Status(500)).await;
    let port = open.address.port();
    let inside = Receiver::on(&format!("127.0.0.1:{port}"), None, |_, _| Reply::Status(200)).await;
    let names = Names::default();
    names.set(
        "rebinds.test",
        &[&["127.0.0.2"], &["127.0.0.1"], &["127.0.0.2", "127.0.0.1"], &["::ffff:127.0.0.1"]],
    );
    let url = format!("http://rebinds.test:{port}/");
    let (path, _) = lab.hook(&url, json!({"types": ["rrset."]})).await;
    let mut options = quick(1_000);
    options.lookup = Arc::new(names.clone());
    lab.sends(options);
    lab.put(ZONE, "192.0.2.1").await;
    let asked = || async { names.asked("rebinds.test") };
    crate::support::eventually("it was looked up often", asked, |asked| *asked >= 24).await;
    assert_eq!(inside.connections.load(Ordering::SeqCst), 0);
    let reached = open.connections.load(Ordering::SeqCst);
    assert!((5..=8).contains(&reached), "every fourth time: {reached}");
    let told = lab
        .until(&path, "it says why", |hook| hook["last_error"].to_string().contains("nothing is sent there"))
        .await;
    assert!(told["last_error"].as_str().unwrap().contains("127.0.0.1 is a"), "{told}");
}

#[tokio::test]
async fn an_address_that_is_not_opened_is_refused_at_the_door_and_at_the_connection() {
    let lab = Lab::new().await;
    let receiver = Receiver::willing().await;
    let (path, _) = lab.hook(&receiver.url(), json!({"types": ["rrset."]})).await;
    // Another process knows other settings: it judges anew.
    let strict = lab.config.replace("['127.0.0.0/8']", "[]");
    let twin = lab.api.join(&strict).await;
    lab.process(&twin.app, quick(1_000));
    lab.put(ZONE, "192.0.2.1").await;
    let told = lab.until(&path, "it fails", |hook| hook["failing_since"].is_string()).await;
    assert!(told["last_error"].as_str().unwrap().contains("loopback"), "{told}");
    assert_eq!(receiver.connections.load(Ordering::SeqCst), 0);
}

/// A receiver that speaks TLS.
async fn tls_receiver(leaf: &Leaf) -> Receiver {
    let chain = CertificateDer::pem_slice_iter(leaf.pem.as_bytes()).map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_slice(leaf.key.as_bytes()).unwrap();
    let config = rustls::ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key).unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    Receiver::on("127.0.0.1:0", Some(acceptor), |_, _| Reply::Status(200)).await
}

#[tokio::test]
async fn a_receivers_certificate_is_verified() {
    let authority = Ca::root("Receivers");
    let dir = tempfile::tempdir().unwrap();
    let ca_file = dir.path().join("ca.pem");
    std::fs::write(&ca_file, &authority.pem).unwrap();
    let lab = Lab::with(&format!("allow_networks = ['127.0.0.0/8']\nca_file = {ca_file:?}\n")).await;
    let good = tls_receiver(&authority.leaf(&["hooks.test"])).await;
    let other_name = tls_receiver(&authority.leaf(&["else.test"])).await;
    let stranger = tls_receiver(&Ca::impostor("Receivers").leaf(&["hooks.test"])).await;
    let names = Names::default();
    names.set("hooks.test", &[&["127.0.0.1"]]);
    let url = |receiver: &Receiver| format!("https://hooks.test:{}/", receiver.address.port());
    let (path, secret) = lab.hook(&url(&good), json!({"types": ["rrset."]})).await;
    let (wrong, _) = lab.hook(&url(&other_name), json!({"types": ["rrset."]})).await;
    let (unknown, _) = lab.hook(&url(&stranger), json!({"types": ["rrset."]})).await;
    let mut options = quick(1_000);
    options.lookup = Arc::new(names);
    lab.sends(options);
    lab.put(ZONE, "192.0.2.1").await;
    lab.caught_up(&path).await;
    assert_eq!(good.got()[0].verify(&[&secret]), 1);
    for path in [wrong, unknown] {
        let told = lab.until(&path, "it fails", |hook| hook["failing_since"].is_string()).await;
        assert!(told["last_error"].as_str().unwrap().contains("certificate"), "{told}");
    }
    assert!(other_name.got().is_empty() && stranger.got().is_empty());
}
