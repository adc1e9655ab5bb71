//! Zones that are made, changed as a whole and deleted.

use reqwest::Method;
use serde_json::{Value, json};

use super::*;

#[tokio::test]
async fn a_zone_is_made_with_what_it_holds() {
    let pdns = Pdns::start().await;
    // As octodns sends it, with the NS set of the apex as it is here.
    let apex: Vec<String> = pdns.zone("first.example.", &[]).await.json()["rrsets"][1]["records"]
        .as_array()
        .unwrap()
        .iter()
        .map(|record| record["content"].as_str().unwrap().to_owned())
        .collect();
    let apex: Vec<&str> = apex.iter().map(String::as_str).collect();
    let body = json!({
        "name": "example.com.", "kind": "master", "masters": [], "nameservers": [], "soa_edit_api": "INCEPTION",
        "serial": 0, "account": "ann", "unknown": 1, "rrsets": [
            replace("example.com.", "NS", &apex),
            replace("www.example.com.", "A", &["192.0.2.1"]),
            {"name": "none.example.com.", "type": "A", "ttl": 1, "records": [], "changetype": "DELETE"},
        ],
    });
    let made = pdns.call(Method::POST, "/zones", body.clone()).await.expect(201);
    assert_eq!(made.header("content-type"), "application/json");
    let zone = made.json();
    assert_eq!((&zone["kind"], &zone["account"]), (&json!("Master"), &json!("ann")));
    assert_eq!(
        (&zone["soa_edit_api"], &zone["rrsets"][2]["name"]),
        (&json!("INCEPTION"), &json!("www.example.com."))
    );
    assert_eq!(zone["rrsets"].as_array().unwrap().len(), 3);
    // One revision, active at once: an administrator stands for the platform.
    let ours = pdns.api.get("/api/domains/example.com").await.expect(200).json();
    assert_eq!((&ours["revision"], &ours["status"]), (&json!(1), &json!("active")));
    let operation = made.header("x-operation-id");
    pdns.api.get(&format!("/api/operations/{operation}")).await.expect(200);
    let again = pdns.call(Method::POST, "/zones", body).await.expect(409);
    assert_eq!(again.header("content-type"), "text/plain");
    let bare = json!({"name": "bare.example.", "kind": "Native", "nameservers": apex});
    let bare = pdns.call(Method::POST, "/zones?rrsets=false", bare).await.expect(201).json();
    assert!(bare.get("rrsets").is_none(), "{bare}");
}

#[tokio::test]
async fn a_zone_is_made_from_a_text() {
    let pdns = Pdns::start().await;
    let text = "$TTL 1h\n@ SOA ns.other.net. host.other.net. 2026010100 3600 600 86400 300\n@ NS ns.other.net.\n\
                www A 192.0.2.1\n A 192.0.2.2\n@ MX 10 mail\n";
    let body = json!({"name": "example.com.", "kind": "Native", "zone": text});
    let zone = pdns.call(Method::POST, "/zones", body).await.expect(201).json();
    let held = |name: &str, rrtype: &str| {
        let rrsets = zone["rrsets"].as_array().unwrap();
        let one = rrsets.iter().find(|one| one["name"] == name && one["type"] == rrtype);
        let records = one.map(|one| one["records"].as_array().unwrap().clone()).unwrap_or_default();
        records.iter().map(|one| one["content"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(held("www.example.com.", "A"), ["192.0.2.1", "192.0.2.2"]);
    assert_eq!(held("example.com.", "MX"), ["10 mail.example.com."]);
    // What the platform derives is not taken over.
    assert!(!held("example.com.", "NS").contains(&"ns.other.net.".to_owned()), "{zone}");
    let ours = pdns.api.get("/api/domains/example.com").await.expect(200).json();
    assert_eq!(ours["revision"], json!(1));
}

#[tokio::test]
async fn what_is_not_kept_is_refused_and_nothing_is_made() {
    let pdns = Pdns::start().await;
    let body = |more: Value| {
        let mut body = json!({"name": "example.com.", "kind": "Native"});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let www = || rrset("www.example.com.", "A", &["192.0.2.1"]);
    let ns = rrset("example.com.", "NS", &["ns.other.net."]);
    let rows = [
        (json!({"name": "example.com"}), "is not canonical"),
        (json!({"name": "."}), "root"),
        (json!({"kind": null}), "Key 'kind'"),
        (json!({"kind": "Odd"}), "'Odd' is not known"),
        (json!({"kind": "slave", "masters": ["192.0.2.1"]}), "Slave"),
        (json!({"masters": ["192.0.2.1"]}), "no masters"),
        (json!({"dnssec": true}), "not signed"),
        (json!({"nameservers": ["ns1.example.net"]}), "Nameserver is not canonical"),
        (json!({"nameservers": ["ns.other.net."]}), "come from the platform"),
        (json!({"nameservers": ["ns.other.net."], "rrsets": [ns.clone()]}), "MUST NOT be mixed"),
        (json!({"rrsets": [ns]}), "come from the platform"),
        (json!({"rrsets": [www(), www()]}), "Duplicate RRset"),
        (json!({"rrsets": [rrset("www.example.org.", "A", &["192.0.2.1"])]}), "out of zone"),
        (json!({"rrsets": [rrset("example.com.", "CNAME", &["a.example.net."])]}), "apex"),
        (json!({"rrsets": {}}), "not an Array"),
        (json!({"zone": "$TTL 60\nwww A 192.0.2.1\nmail MX 10\n"}), "line 3: "),
        (json!({"zone": "@ 1 IN A 192.0.2.1", "rrsets": [www()]}), "rrsets AND zone"),
    ];
    let head = pdns.api.head().await;
    for (more, part) in rows {
        let answer = pdns.call(Method::POST, "/zones", body(more.clone())).await;
        expect_error(&answer, "");
        let told = answer.text.clone();
        assert!(told.contains(part), "{more}: {told}");
    }
    assert_eq!(pdns.api.head().await, head, "something was written");
    pdns.get("/zones/example.com.").await.expect(404);
}

#[tokio::test]
async fn a_zone_is_changed_deleted_and_made_again() {
    let pdns = Pdns::start().await;
    pdns.zone("example.com.", &[("www.example.com.", "A", &["192.0.2.1"])]).await;
    let path = "/zones/example.com.";
    let put = |body: Value| pdns.call(Method::PUT, path, body);
    // As terraform sends it.
    let body = json!({"name": "example.com.", "kind": "Master", "soa_edit_api": "EPOCH", "account": "bob"});
    let changed = put(body.clone()).await.expect(204);
    assert_eq!(changed.text, "");
    let zone = pdns.get(path).await.expect(200).json();
    assert_eq!((&zone["kind"], &zone["account"]), (&json!("Master"), &json!("bob")));
    assert_eq!((&zone["soa_edit_api"], &zone["rrsets"][2]["type"]), (&json!("EPOCH"), &json!("A")));
    let head = pdns.api.head().await;
    put(body).await.expect(204);
    assert_eq!(pdns.api.head().await, head, "the same again changes nothing");
    for (body, part) in [
        (json!({"kind": "Secondary"}), "Secondary"),
        (json!({"dnssec": true}), "not signed"),
        (json!({"rrsets": [rrset("a.example.com.", "A", &["192.0.2.1"])]}), "PATCH"),
    ] {
        expect_error(&put(body).await, part);
    }
    put(json!({"kind": "native", "soa_edit_api": "DEFAULT", "account": ""})).await.expect(204);
    let zone = pdns.get(path).await.expect(200).json();
    assert_eq!((&zone["kind"], &zone["soa_edit_api"]), (&json!("Native"), &json!("DEFAULT")));
    assert_eq!(pdns.api.get("/api/domains/example.com").await.json()["labels"], json!({}));
    let sub = |name: &str| format!("{path}/{name}");
    assert_eq!(
        pdns.call(Method::PUT, "/zones/example.com/notify", Value::Null).await.expect(200).json(),
        json!({"result": "Notification queued"})
    );
    assert_eq!(
        pdns.call(Method::PUT, &sub("rectify"), Value::Null).await.expect(200).json()["result"],
        "Rectified"
    );
    expect_error(&pdns.call(Method::PUT, &sub("axfr-retrieve"), Value::Null).await, "not a secondary");
    assert_eq!(pdns.get(&sub("metadata")).await.expect(200).json(), json!([]));
    let kind = pdns.get(&sub("metadata/ALLOW-AXFR-FROM")).await.expect(200).json();
    assert_eq!(kind, json!({"kind": "ALLOW-AXFR-FROM", "metadata": [], "type": "Metadata"}));
    assert_eq!(pdns.get("/zones/example.com/cryptokeys").await.expect(200).json(), json!([]));
    pdns.call(Method::DELETE, path, Value::Null).await.expect(204);
    pdns.call(Method::DELETE, path, Value::Null).await.expect(404);
    for gone in [path.to_owned(), sub("export"), sub("metadata"), sub("cryptokeys")] {
        pdns.get(&gone).await.expect(404);
    }
    pdns.patch("example.com.", json!([])).await.expect(404);
    pdns.zone("example.com.", &[]).await;
    assert_eq!(pdns.rrset("example.com.", "www.example.com.", "A").await, Value::Null);
}

#[tokio::test]
async fn a_tenants_zone_is_pending_and_can_be_filled() {
    let pdns = Pdns::start().await;
    let tenant = pdns.api.tenant("acme").await;
    let (_, ann) = pdns.api.user("ann@example.test", false, &[tenant]).await;
    let body = json!({"name": "example.com.", "kind": "Native", "nameservers": [], "rrsets": [
        rrset("www.example.com.", "A", &["192.0.2.1"])]});
    let made = pdns.send(&ann, Method::POST, "/zones", Some(&body), &[]).await.expect(201);
    assert!(!made.headers.contains_key("x-operation-id"), "nothing is served yet");
    let ours = pdns.api.get("/api/domains/example.com").await.json();
    assert_eq!((&ours["status"], &ours["tenant"]), (&json!("pending_verification"), &json!(tenant)));
    let change = json!({"rrsets": [replace("www.example.com.", "A", &["192.0.2.2"])]});
    pdns.send(&ann, Method::PATCH, "/zones/example.com.", Some(&change), &[]).await.expect(204);
    let zone = pdns.send(&ann, Method::GET, "/zones/example.com.", None, &[]).await.expect(200).json();
    assert_eq!(zone["rrsets"][2]["records"][0]["content"], "192.0.2.2");
    // An administrator makes one for a tenant by its id.
    let body = json!({"name": "example.org.", "kind": "Native", "account": tenant});
    pdns.call(Method::POST, "/zones", body).await.expect(201);
    assert_eq!(pdns.api.get("/api/domains/example.org").await.json()["tenant"], json!(tenant));
    let body = json!({"name": "co.uk.", "kind": "Native"});
    expect_error(&pdns.send(&ann, Method::POST, "/zones", Some(&body), &[]).await, "");
}
