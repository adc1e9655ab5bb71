//! `PATCH`: every row of what clients rely on.

use reqwest::Method;
use serde_json::{Value, json};

use super::*;

fn contents(rrset: &Value) -> Vec<&str> {
    rrset["records"].as_array().unwrap().iter().map(|one| one["content"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn changes_are_applied_in_order_as_one_revision() {
    let pdns = Pdns::start().await;
    let zone = "example.com.";
    pdns.zone(zone, &[("www.example.com.", "A", &["192.0.2.1"])]).await;
    let before = pdns.api.get("/api/domains/example.com").await.json();
    let patched = pdns
        .patch(
            zone,
            json!([
                delete("www.example.com.", "A"),
                replace("WWW.example.com.", "cname", &["new.example.net."]),
                replace("txt.example.com.", "TXT", &["\"a\"", "\"b\""]),
                delete("nothing.example.com.", "A"),
                delete("www.example.org.", "A"),
            ]),
        )
        .await
        .expect(204);
    assert_eq!(patched.text, "");
    let after = pdns.api.get("/api/domains/example.com").await.json();
    assert_eq!(after["revision"].as_i64(), before["revision"].as_i64().map(|revision| revision + 1));
    assert_eq!(patched.header("x-pdns-old-serial"), before["serial"].to_string());
    assert_eq!(patched.header("x-pdns-new-serial"), after["serial"].to_string());
    assert_eq!(patched.header("etag"), format!("\"{}\"", after["revision"]));
    let operation = pdns.api.get(&format!("/api/operations/{}", patched.header("x-operation-id"))).await;
    assert_eq!(operation.expect(200).json()["revision"], after["revision"]);
    // Read again at once.
    assert_eq!(contents(&pdns.rrset(zone, "www.example.com.", "CNAME").await), ["new.example.net."]);
    assert_eq!(pdns.rrset(zone, "www.example.com.", "A").await, Value::Null);
    // All or nothing, every fault told.
    let refused = pdns
        .patch(
            zone,
            json!([
                replace("new.example.com.", "A", &["192.0.2.1"]),
                replace("bad.example.com.", "A", &["192.0.2"]),
                replace("x.example.org.", "A", &["192.0.2.1"]),
            ]),
        )
        .await;
    expect_error(&refused, "RRset bad.example.com. IN A: ");
    assert_eq!(refused.json()["errors"].as_array().unwrap().len(), 2);
    expect_error(&pdns.patch(zone, json!([replace("www.example.com.", "A", &["192.0.2.1"])])).await, "CNAME");
    assert_eq!(pdns.rrset(zone, "new.example.com.", "A").await, Value::Null);
    // What changes nothing has no revision; its serials are equal.
    let again = pdns.patch(zone, json!([replace("www.example.com.", "CNAME", &["new.example.net."])])).await;
    let again = again.expect(204);
    assert_eq!(again.header("x-pdns-old-serial"), again.header("x-pdns-new-serial"));
    assert!(!again.headers.contains_key("x-operation-id"));
}

#[tokio::test]
async fn every_kind_of_change_is_judged_as_powerdns_does() {
    let pdns = Pdns::start().await;
    let zone = "example.com.";
    let name = "www.example.com.";
    pdns.zone(zone, &[(name, "A", &["192.0.2.1"])]).await;
    let change = |kind: &str, values: &[&str]| {
        let mut change = replace(name, "A", values);
        change["changetype"] = json!(kind);
        change
    };
    let without = |key: &str| {
        let mut change = replace(name, "A", &["192.0.2.9"]);
        change.as_object_mut().unwrap().remove(key);
        change
    };
    let with = |key: &str, value: Value| {
        let mut change = replace(name, "A", &["192.0.2.9"]);
        change[key] = value;
        change
    };
    let rows = [
        (json!([without("changetype")]), "changetype"),
        (json!([change("UPSERT", &["192.0.2.9"])]), "Changetype not understood"),
        (json!([without("name")]), "Key 'name'"),
        (json!([without("type")]), "Key 'type'"),
        (json!([without("ttl")]), "Key 'ttl'"),
        (json!([without("records")]), "No change"),
        (json!([with("name", json!("www.example.com"))]), "is not canonical"),
        (json!([with("name", json!("www.example.org."))]), "out of zone"),
        (json!([with("type", json!("NOPE"))]), "not a record type"),
        (json!([with("type", json!("LUA"))]), "run code"),
        (json!([with("records", json!("x"))]), "not an Array"),
        (json!([with("records", json!([{"content": "192.0.2.9", "disabled": true}]))]), "disabled"),
        (json!([with("comments", json!([{"content": "a"}, {"content": "b"}]))]), "2 comments"),
        (json!([change("REPLACE", &["192.0.2.9", "192.0.2.9"])]), "Duplicate record"),
        (json!([change("REPLACE", &["192.0.2.8"]), change("replace", &["192.0.2.9"])]), "Duplicate RRset"),
        (json!([delete(name, "A"), delete("WWW.example.com.", "A")]), "Duplicate RRset"),
        (json!([change("EXTEND", &[])]), "Exactly one"),
        (json!([change("EXTEND", &["192.0.2.8", "192.0.2.9"])]), "Exactly one"),
        (json!([change("PRUNE", &["192.0.2.8", "192.0.2.9"])]), "Exactly one"),
        (json!([replace(name, "MX", &["10 mail.example"])]), "mail.example"),
        (json!("x"), "Key 'rrsets'"),
    ];
    let head = pdns.api.head().await;
    for (changes, part) in rows {
        expect_error(&pdns.patch(zone, changes.clone()).await, part);
    }
    let body = json!({"name": "", "type": "Zone"});
    expect_error(&pdns.call(Method::PATCH, "/zones/example.com.", body).await, "Key 'rrsets'");
    assert_eq!(pdns.api.head().await, head, "something was written");
    let steps: [(Value, &[&str]); 9] = [
        (json!([change("extend", &["192.0.2.2"])]), &["192.0.2.1", "192.0.2.2"]),
        (json!([change("EXTEND", &["192.0.2.2"])]), &["192.0.2.1", "192.0.2.2"]),
        (json!([change("PRUNE", &["192.0.2.1"])]), &["192.0.2.2"]),
        (json!([change("PRUNE", &["192.0.2.1"])]), &["192.0.2.2"]),
        (json!([delete(name, "A"), change("REPLACE", &["192.0.2.5"])]), &["192.0.2.5"]),
        (json!([change("EXTEND", &["192.0.2.6"]), change("PRUNE", &["192.0.2.5"])]), &["192.0.2.6"]),
        (json!([with("name", json!("WWW.EXAMPLE.com."))]), &["192.0.2.9"]),
        // What clients send beside it does not matter.
        (
            json!([{"name": name, "type": "A", "ttl": 60, "changetype": "REPLACE", "kind": 0, "set-ptr": false,
                "comments": null, "records": [{"content": "192.0.2.3", "name": name, "type": "A", "ttl": 1}]}]),
            &["192.0.2.3"],
        ),
        (json!([]), &["192.0.2.3"]),
    ];
    for (changes, left) in steps {
        pdns.patch(zone, changes.clone()).await.expect(204);
        assert_eq!(contents(&pdns.rrset(zone, name, "A").await), left, "{changes}");
    }
}

/// The last RRset of a served zone goes without more words, by its name.
#[tokio::test]
async fn one_rrset_by_its_name_is_an_intent_of_its_own() {
    let pdns = Pdns::start().await;
    let (zone, name) = ("example.com.", "www.example.com.");
    pdns.zone(zone, &[(name, "A", &["192.0.2.3"])]).await;
    let change = |kind: &str, values: &[&str]| {
        let mut change = replace(name, "A", values);
        change["changetype"] = json!(kind);
        change
    };
    for gone in [
        json!([change("REPLACE", &[])]),
        json!([delete(name, "A")]),
        json!([change("PRUNE", &["192.0.2.3"])]),
    ] {
        pdns.patch(zone, gone).await.expect(204);
        assert_eq!(pdns.rrset(zone, name, "A").await, Value::Null);
        pdns.patch(zone, json!([change("REPLACE", &["192.0.2.3"])])).await.expect(204);
    }
}

#[tokio::test]
async fn comments_stay_where_nothing_is_said_of_them() {
    let pdns = Pdns::start().await;
    let (zone, name) = ("example.com.", "www.example.com.");
    pdns.zone(zone, &[(name, "A", &["192.0.2.1"])]).await;
    let mut change = replace(name, "A", &["192.0.2.2"]);
    change["comments"] = json!([{"content": "why", "account": "ann", "modified_at": 7}]);
    pdns.patch(zone, json!([change])).await.expect(204);
    let comments = || async { pdns.rrset(zone, name, "A").await["comments"].clone() };
    assert_eq!(comments().await, json!([{"content": "why", "account": "", "modified_at": 0}]));
    assert_eq!(pdns.api.get("/api/domains/example.com/rrsets/www/A").await.json()["comment"], "why");
    pdns.patch(zone, json!([replace(name, "A", &["192.0.2.3"])])).await.expect(204);
    assert_eq!(comments().await[0]["content"], "why");
    let alone =
        |comments: Value| json!([{"name": name, "type": "A", "changetype": "REPLACE", "comments": comments}]);
    pdns.patch(zone, alone(json!([{"content": "because"}]))).await.expect(204);
    let now = pdns.rrset(zone, name, "A").await;
    assert_eq!((&now["comments"][0]["content"], contents(&now)), (&json!("because"), vec!["192.0.2.3"]));
    pdns.patch(zone, alone(json!([]))).await.expect(204);
    assert_eq!(comments().await, json!([]));
}

#[tokio::test]
async fn texts_are_read_as_they_were_sent() {
    let pdns = Pdns::start().await;
    let zone = "example.com.";
    pdns.zone(zone, &[]).await;
    let long = format!("\"v=DKIM1; k=rsa; p={}\"", "A".repeat(700));
    for (name, ty, content) in [
        ("a.example.com.", "TXT", long.as_str()),
        ("b.example.com.", "TXT", "\"one\" \"two\""),
        ("c.example.com.", "TXT", "\"quoted \\\" and \\\\\""),
        ("example.com.", "MX", "10 mail.example.net."),
        ("_sip._tcp.example.com.", "SRV", "1 2 5060 sip.example.net."),
        ("example.com.", "CAA", "0 issue \"ca.example.net\""),
        ("*.example.com.", "CNAME", "example.com."),
    ] {
        pdns.patch(zone, json!([replace(name, ty, &[content])])).await.expect(204);
        assert_eq!(contents(&pdns.rrset(zone, name, ty).await), [content]);
    }
}

#[tokio::test]
async fn the_apex_is_the_platforms() {
    let pdns = Pdns::start().await;
    let zone = "example.com.";
    let made = pdns.zone(zone, &[]).await.json();
    let of = |index: usize| made["rrsets"][index].clone();
    let head = pdns.api.head().await;
    // The same is taken for granted, whatever its order, its case, its serial.
    for index in [0, 1] {
        let mut same = of(index);
        same["changetype"] = json!("REPLACE");
        same["records"].as_array_mut().unwrap().reverse();
        for record in same["records"].as_array_mut().unwrap() {
            record["content"] = json!(record["content"].as_str().unwrap().to_uppercase());
        }
        pdns.patch(zone, json!([same])).await.expect(204);
        let text = of(index)["records"][0]["content"].as_str().unwrap().to_owned();
        let refused = pdns.patch(zone, json!([delete(zone, of(index)["type"].as_str().unwrap())])).await;
        // It names what is so.
        expect_error(&refused, text.split(' ').next().unwrap());
    }
    let soa = of(0)["records"][0]["content"].as_str().unwrap().to_owned();
    let parts: Vec<&str> = soa.split(' ').collect();
    let later = [parts[0], parts[1], "4000000000", parts[3], parts[4], parts[5], parts[6]].join(" ");
    pdns.patch(zone, json!([replace(zone, "SOA", &[&later])])).await.expect(204);
    let other = [parts[0], parts[1], parts[2], "1", parts[4], parts[5], parts[6]].join(" ");
    expect_error(&pdns.patch(zone, json!([replace(zone, "SOA", &[&other])])).await, "from the platform");
    expect_error(
        &pdns.patch(zone, json!([replace(zone, "NS", &["ns.other.net."])])).await,
        "from the platform",
    );
    assert_eq!(pdns.api.head().await, head, "something was written");
}

#[tokio::test]
async fn conditions_guards_and_managers_hold_here_too() {
    let pdns = Pdns::start().await;
    let zone = "example.com.";
    let names: Vec<String> = (0..30).map(|n| format!("n{n}.example.com.")).collect();
    let rrsets: Vec<(&str, &str, &[&str])> =
        names.iter().map(|name| (name.as_str(), "A", ["192.0.2.1"].as_slice())).collect();
    let made = pdns.zone(zone, &rrsets).await;
    let stale = [("If-Match", "\"99\"")];
    let body = json!({"rrsets": [replace("n1.example.com.", "A", &["192.0.2.2"])]});
    let path = "/zones/example.com.";
    for body in [&body, &json!({"rrsets": []})] {
        pdns.send(&pdns.api.admin, Method::PATCH, path, Some(body), &stale).await.expect(412);
    }
    let current = [("If-Match", made.header("etag"))];
    pdns.send(&pdns.api.admin, Method::PATCH, path, Some(&body), &current).await.expect(204);
    let most: Vec<Value> = names.iter().take(20).map(|name| delete(name, "A")).collect();
    expect_error(&pdns.patch(zone, json!(most)).await, "allow=mass_delete");
    let allowed = format!("{path}?allow=mass_delete");
    pdns.call(Method::PATCH, &allowed, json!({"rrsets": most})).await.expect(204);
    // The history names the client.
    let agent = [("User-Agent", "octodns/1.22.0")];
    let body = json!({"rrsets": [replace("n29.example.com.", "A", &["192.0.2.7"])]});
    pdns.send(&pdns.api.admin, Method::PATCH, path, Some(&body), &agent).await.expect(204);
    let audit = pdns.api.get("/api/events?domain=example.com&limit=1000").await.expect(200).json();
    let is_its = |event: &&Value| event["client"]["agent"] == "octodns/1.22.0";
    assert_eq!(audit["items"].as_array().unwrap().iter().filter(is_its).count(), 1, "{audit}");
}

/// Nothing is deployed here, so nothing ends.
#[tokio::test]
async fn nobody_waits_for_ever() {
    let pdns = Pdns::start().await;
    pdns.zone("example.com.", &[]).await;
    let body = json!({"rrsets": [replace("www.example.com.", "A", &["192.0.2.2"])]});
    let headers = [("Prefer", "respond-async, wait=1")];
    let path = "/zones/example.com.";
    let sent = pdns.send(&pdns.api.admin, Method::PATCH, path, Some(&body), &headers);
    let answer = tokio::time::timeout(std::time::Duration::from_secs(20), sent).await.unwrap().expect(204);
    assert_ne!(answer.header("x-operation-state"), "succeeded");
    assert!(!answer.headers.contains_key("preference-applied"), "{answer:?}");
}

#[tokio::test]
async fn what_is_proxied_names_its_owner() {
    let pdns = Pdns::start().await;
    let zone = "example.com.";
    pdns.zone(zone, &[("other.example.com.", "A", &["192.0.2.1"])]).await;
    let origin = json!({"origin": {"scheme": "http", "host": "origin.example.org"}});
    pdns.api.call(Method::PUT, "/api/domains/example.com/hostnames/shop", origin).await.expect(202);
    let refused = pdns.patch(zone, json!([replace("shop.example.com.", "A", &["192.0.2.9"])])).await;
    expect_error(&refused, "RRset shop.example.com. IN A: ");
    expect_error(&refused, "proxied");
    pdns.patch(zone, json!([replace("other.example.com.", "A", &["192.0.2.9"])])).await.expect(204);
}

#[tokio::test]
async fn a_token_for_challenges_writes_nothing_else() {
    let pdns = Pdns::start().await;
    let tenant = pdns.api.tenant("acme").await;
    let (user, _) = pdns.api.user("ann@example.test", false, &[tenant]).await;
    for name in ["example.com", "example.org"] {
        let body = json!({"name": name, "force_active": true, "tenant": tenant});
        pdns.api.call(Method::POST, "/api/domains", body).await.expect(202);
        let www = json!({"ttl": 1, "records": ["192.0.2.1"]});
        pdns.api.call(Method::PUT, &format!("/api/domains/{name}/rrsets/www/A"), www).await.expect(202);
    }
    let scopes = json!([{"verbs": ["read", "write"], "domains": ["example.com"], "names": ["_acme-challenge"],
        "types": ["TXT"]}]);
    let key = pdns.api.limited(user, scopes).await;
    let send = |method: Method, path: &str, body: Option<Value>| {
        let (pdns, key, path) = (&pdns, &key, path.to_owned());
        async move { pdns.send(key, method, &path, body.as_ref(), &[]).await }
    };
    let listed = send(Method::GET, "/zones", None).await.expect(200).json();
    assert_eq!(listed.as_array().unwrap().len(), 1);
    // Another's, another of its own, a name below: it does not exist, whichever it is.
    for zone in ["example.org", "example.net", "www.example.com", "com"] {
        send(Method::GET, &format!("/zones/{zone}"), None).await.expect(404);
        let body = json!({"rrsets": [replace(&format!("_acme-challenge.{zone}."), "TXT", &["\"x\""])]});
        send(Method::PATCH, &format!("/zones/{zone}"), Some(body)).await.expect(404);
    }
    let challenge = |values: &[&str]| {
        let change = replace("_acme-challenge.example.com.", "TXT", values);
        send(Method::PATCH, "/zones/example.com.", Some(json!({"rrsets": [change]})))
    };
    challenge(&["\"a\"", "\"b\""]).await.expect(204);
    let zone = send(Method::GET, "/zones/example.com.", None).await.expect(200).json();
    assert_eq!(zone["rrsets"].as_array().unwrap().len(), 1, "it sees what it may read alone: {zone}");
    assert_eq!(contents(&zone["rrsets"][0]), ["\"a\"", "\"b\""]);
    let found = send(Method::GET, "/search-data?q=*192*", None).await.expect(200).json();
    assert_eq!(found, json!([]));
    challenge(&[]).await.expect(204);
    for (name, ty) in [
        ("www.example.com.", "A"),
        ("_acme-challenge.www.example.com.", "TXT"),
        ("_acme-challenge.example.com.", "A"),
    ] {
        let body = json!({"rrsets": [delete(name, ty)]});
        send(Method::PATCH, "/zones/example.com.", Some(body)).await.expect(403);
    }
    send(Method::DELETE, "/zones/example.com.", None).await.expect(403);
}
