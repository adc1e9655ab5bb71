//! What clients send that are not to be had here, from their sources, in the order in which they send it.

use reqwest::Method;
use serde_json::{Value, json};

use super::*;

/// external-dns 0.15 (go-powerdns): lists everything, reads each zone, sends deletions with records and without TTL.
#[tokio::test]
async fn external_dns() {
    let pdns = Pdns::start().await;
    pdns.zone("example.com.", &[]).await;
    let zones = pdns.get("/zones").await.expect(200).json();
    let id = zones[0]["id"].as_str().unwrap().to_owned();
    let path = format!("/zones/{id}");
    assert!(pdns.get(&path).await.expect(200).json()["rrsets"].is_array());
    let owned = "\"heritage=external-dns,external-dns/owner=default,external-dns/resource=ingress/d/n\"";
    let change = |kind: &str, ttl: Value, name: &str, ty: &str, content: &str| {
        let mut change = json!({"name": name, "type": ty, "changetype": kind,
            "records": [{"content": content, "disabled": false}], "comments": []});
        if !ttl.is_null() {
            change["ttl"] = ttl;
        }
        change
    };
    let create = json!({"name": id, "type": "Zone", "rrsets": [
        change("REPLACE", json!(300), "app.example.com.", "A", "192.0.2.1"),
        change("REPLACE", json!(300), "a-app.example.com.", "TXT", owned),
        change("REPLACE", json!(300), "example.com.", "MX", "10 mail.example.net."),
        change("REPLACE", json!(300), "_sip._tcp.example.com.", "SRV", "10 5 5060 sip.example.net."),
    ]});
    pdns.call(Method::PATCH, &path, create).await.expect(204);
    assert_eq!(pdns.rrset(&id, "a-app.example.com.", "TXT").await["records"][0]["content"], owned);
    let remove = json!({"rrsets": [
        change("DELETE", Value::Null, "app.example.com.", "A", "192.0.2.1"),
        change("DELETE", Value::Null, "a-app.example.com.", "TXT", owned),
    ]});
    pdns.call(Method::PATCH, &path, remove.clone()).await.expect(204);
    pdns.call(Method::PATCH, &path, remove).await.expect(204);
    assert_eq!(pdns.rrset(&id, "app.example.com.", "A").await, Value::Null);
    // It reads the text of this error.
    let relative = json!({"rrsets": [change("REPLACE", json!(300), "example.com.", "MX", "10 mail")]});
    expect_error(&pdns.call(Method::PATCH, &path, relative).await, "mail");
}

/// terraform-provider-powerdns: the server must answer, zones are made with 201, read, updated, deleted; `set-ptr`.
#[tokio::test]
async fn terraform() {
    let pdns = Pdns::start().await;
    pdns.get("/api/v1/servers").await.expect(200);
    let version = pdns.get("").await.expect(200).json()["version"].clone();
    assert!(version.as_str().unwrap().starts_with("4."));
    let zone = json!({"name": "example.com.", "kind": "Native", "nameservers": [], "soa_edit_api": "DEFAULT",
        "account": "admin", "masters": null});
    pdns.call(Method::POST, "/zones", zone).await.expect(201);
    let read = pdns.get("/zones/example.com.").await.expect(200).json();
    for (key, value) in [("kind", "Native"), ("soa_edit_api", "DEFAULT"), ("account", "admin")] {
        assert_eq!(read[key], value, "what is read differs from what was set, so it would be set for ever");
    }
    let update =
        json!({"name": "example.com.", "kind": "Master", "account": "other", "soa_edit_api": "DEFAULT"});
    pdns.call(Method::PUT, "/zones/example.com.", update).await.expect(204);
    assert_eq!(pdns.get("/zones/example.com.").await.json()["account"], "other");
    let record = |kind: &str, ttl: i64, records: Value| json!({"rrsets": [{"name": "www.example.com.", "type": "A", "changetype": kind, "ttl": ttl, "records": records}]});
    let content = |text: &str| json!([{"name": "www.example.com.", "type": "A", "ttl": 300, "content": text, "disabled": false, "set-ptr": false}]);
    let path = "/zones/example.com.";
    pdns.call(Method::PATCH, path, record("REPLACE", 300, content("192.0.2.1"))).await.expect(204);
    let all = pdns.get(path).await.expect(200).json();
    assert!(all["rrsets"].as_array().unwrap().iter().any(|one| one["name"] == "www.example.com."));
    pdns.call(Method::PATCH, path, record("DELETE", 0, json!([]))).await.expect(204);
    pdns.call(Method::DELETE, path, Value::Null).await.expect(204);
    pdns.get(path).await.expect(404);
}

/// dnscontrol (mittwald's client): compares the media type as it stands, sends empty names and `null` lists, and asks for
/// keys without the final dot.
#[tokio::test]
async fn dnscontrol() {
    let pdns = Pdns::start().await;
    let json_type = |answer: &Answer| assert_eq!(answer.header("content-type"), "application/json");
    json_type(&pdns.get("/zones").await.expect(200));
    pdns.get("/zones/example.com.").await.expect(404);
    let zone =
        json!({"name": "example.com.", "type": "Zone", "kind": "Native", "nameservers": [], "dnssec": false});
    json_type(&pdns.call(Method::POST, "/zones", zone).await.expect(201));
    json_type(&pdns.get("/zones/example.com.").await.expect(200));
    let keys = pdns.get("/zones/example.com/cryptokeys").await.expect(200);
    json_type(&keys);
    assert_eq!(keys.json(), json!([]));
    let body = json!({"name": "", "type": "", "nameservers": [], "rrsets": [
        {"name": "www.example.com.", "type": "A", "ttl": 300, "changetype": "REPLACE", "comments": null,
            "records": [{"content": "192.0.2.1", "disabled": false}]},
        {"name": "old.example.com.", "type": "TXT", "ttl": 0, "changetype": "DELETE", "comments": null,
            "records": null},
    ]});
    pdns.call(Method::PATCH, "/zones/example.com.", body).await.expect(204);
    assert_eq!(pdns.rrset("example.com.", "www.example.com.", "A").await["ttl"], 300);
}

/// lexicon walks up the labels until a zone is found, sends a body with what has none, and reads what it wrote at once.
#[tokio::test]
async fn lexicon() {
    let pdns = Pdns::start().await;
    pdns.zone("example.com.", &[]).await;
    let body = json!({});
    for (name, status) in [("a.www.example.com.", 404), ("www.example.com.", 404), ("example.com.", 200)] {
        let path = format!("/zones/{name}");
        pdns.send(&pdns.api.admin, Method::GET, &path, Some(&body), &[]).await.expect(status);
    }
    let name = "_acme-challenge.www.example.com.";
    let change = |values: Value| json!({"rrsets": [{"name": name, "type": "TXT", "ttl": 300, "records": values, "changetype": "REPLACE"}]});
    let record = json!([{"content": "\"token\"", "disabled": false}]);
    pdns.call(Method::PATCH, "/zones/example.com.", change(record)).await.expect(204);
    pdns.call(Method::PUT, "/zones/example.com/notify", body.clone()).await.expect(200);
    assert_eq!(pdns.rrset("example.com.", name, "TXT").await["records"][0]["content"], "\"token\"");
    pdns.call(Method::PATCH, "/zones/example.com.", change(json!([]))).await.expect(204);
    assert_eq!(pdns.rrset("example.com.", name, "TXT").await, Value::Null);
}
