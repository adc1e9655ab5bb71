//! What is read: the server, zones, RRsets, text, search.

use reqwest::Method;
use serde_json::{Value, json};

use super::*;

#[tokio::test]
async fn a_server_says_what_clients_ask_first() {
    let pdns = Pdns::start().await;
    let versions = pdns.get("/api").await.expect(200);
    assert_eq!(versions.json(), json!([{"url": "/api/v1", "version": 1}]));
    assert_eq!(versions.header("content-type"), "application/json");
    assert_eq!(pdns.get("/api/v1").await.expect(200).json()[0]["api_features"], json!([]));
    let server = pdns.get("").await.expect(200);
    assert_eq!(pdns.get("/api/v1/servers").await.expect(200).json(), json!([server.json()]));
    let told = server.json();
    assert_eq!((&told["id"], &told["daemon_type"]), (&json!("localhost"), &json!("authoritative")));
    let parts: Vec<u32> =
        told["version"].as_str().unwrap().split('.').map(|part| part.parse().unwrap()).collect();
    // From here on single values can be changed; from 5 on clients try what is not here.
    assert!(parts >= vec![4, 9, 12] && parts < vec![5], "{parts:?}");
    assert!(server.header("x-headwater-version").starts_with("headwater/"));
    let config = pdns.get("/config").await.expect(200).json();
    let row = config.as_array().unwrap().iter().find(|row| row["name"] == "enable-lua-records").unwrap();
    assert_eq!((&row["type"], &row["value"]), (&json!("ConfigSetting"), &json!("no")));
    assert_eq!(pdns.get("/statistics").await.expect(200).json(), json!([]));
    let flushed = pdns.call(Method::PUT, "/cache/flush?domain=example.com.", Value::Null).await.expect(200);
    assert_eq!(flushed.json()["count"], 0);
    pdns.get("/api/v1/servers/other").await.expect(404);
    pdns.get("/config/launch").await.expect(404);
}

#[tokio::test]
async fn zones_are_found_by_every_spelling() {
    let pdns = Pdns::start().await;
    pdns.zone("Example.com.", &[("www.example.com.", "A", &["192.0.2.1"])]).await;
    pdns.zone("0/25.2.0.192.in-addr.arpa.", &[]).await;
    for id in ["example.com.", "example.com", "EXAMPLE.com."] {
        let zone = pdns.get(&format!("/zones/{id}")).await.expect(200);
        assert_eq!(zone.header("content-type"), "application/json");
        let zone = zone.json();
        assert_eq!((&zone["id"], &zone["name"]), (&json!("example.com."), &json!("example.com.")));
        assert_eq!(zone["url"], "/api/v1/servers/localhost/zones/example.com.");
        assert_eq!((&zone["kind"], &zone["dnssec"]), (&json!("Native"), &json!(false)));
        let types: Vec<&str> =
            zone["rrsets"].as_array().unwrap().iter().map(|one| one["type"].as_str().unwrap()).collect();
        assert_eq!(types, ["SOA", "NS", "A"]);
        assert_eq!(
            zone["rrsets"][2],
            json!({"name": "www.example.com.", "type": "A", "ttl": 300, "comments": [],
                "records": [{"content": "192.0.2.1", "disabled": false}]})
        );
        let soa = zone["rrsets"][0]["records"][0]["content"].as_str().unwrap();
        assert_eq!(soa.split(' ').nth(2).unwrap(), zone["serial"].to_string());
    }
    for id in ["0=2F25.2.0.192.in-addr.arpa.", "0%2F25.2.0.192.in-addr.arpa"] {
        let zone = pdns.get(&format!("/zones/{id}")).await.expect(200).json();
        assert_eq!(zone["id"], "0=2F25.2.0.192.in-addr.arpa.");
        assert_eq!(zone["name"], "0/25.2.0.192.in-addr.arpa.");
    }
    let bare = pdns.get("/zones/example.com.?rrsets=false").await.expect(200).json();
    assert!(bare.get("rrsets").is_none() && bare["soa_edit_api"] == "DEFAULT", "{bare}");
    assert_eq!(pdns.rrset("example.com.", "WWW.example.com.", "a").await["ttl"], 300);
    assert_eq!(pdns.rrset("example.com.", "www.example.com.", "AAAA").await, Value::Null);
    for id in ["other.com.", "www.example.com", "..", "=", "x=zz"] {
        let missing = pdns.get(&format!("/zones/{id}")).await.expect(404);
        assert_eq!((missing.header("content-type"), missing.text.as_str()), ("text/plain", "Not Found"));
    }
    // The same entity tag as ours, and nothing again where it is known.
    let zone = pdns.get("/zones/example.com.").await.expect(200);
    let ours = pdns.api.get("/api/domains/example.com").await.expect(200);
    assert_eq!(zone.header("etag"), ours.header("etag"));
    let headers = [("If-None-Match", zone.header("etag"))];
    pdns.send(&pdns.api.admin, Method::GET, "/zones/example.com.", None, &headers).await.expect(304);
}

#[tokio::test]
async fn zones_are_listed_whole_unless_a_page_is_asked_for() {
    let pdns = Pdns::start().await;
    let all = ["a.example.", "b.example.", "c.example."];
    for name in all {
        pdns.zone(name, &[]).await;
    }
    let names = |answer: &Answer| -> Vec<String> {
        let listed = answer.json();
        listed.as_array().unwrap().iter().map(|zone| zone["name"].as_str().unwrap().to_owned()).collect()
    };
    let listed = pdns.get("/zones?dnssec=false").await.expect(200);
    assert_eq!(names(&listed), all);
    assert_eq!(listed.header("content-type"), "application/json");
    assert!(!listed.headers.contains_key("link"));
    let mut keys: Vec<String> = listed.json()[0].as_object().unwrap().keys().cloned().collect();
    keys.sort_unstable();
    assert_eq!(
        keys,
        [
            "account",
            "catalog",
            "dnssec",
            "edited_serial",
            "id",
            "kind",
            "last_check",
            "masters",
            "name",
            "notified_serial",
            "serial",
            "url"
        ]
    );
    let of_zone = pdns.get("/zones/b.example.").await.expect(200).json();
    assert_eq!(listed.json()[1]["serial"], of_zone["serial"]);
    assert_eq!(names(&pdns.get("/zones?zone=b.example.").await.expect(200)), ["b.example."]);
    for none in ["d.example.", "%20", "b"] {
        assert_eq!(names(&pdns.get(&format!("/zones?zone={none}")).await.expect(200)), [""; 0]);
    }
    let page = pdns.get("/zones?limit=2").await.expect(200);
    assert_eq!(names(&page), &all[..2]);
    let next = page.header("link").strip_prefix('<').unwrap().split('>').next().unwrap().to_owned();
    let last = pdns.get(&next).await.expect(200);
    assert_eq!(names(&last), &all[2..]);
    assert!(!last.headers.contains_key("link"));
    pdns.get("/zones?limit=0").await.expect(400);
    // What is deleted is not there, though it could be restored.
    pdns.call(Method::DELETE, "/zones/b.example.", Value::Null).await.expect(204);
    assert_eq!(names(&pdns.get("/zones").await.expect(200)), ["a.example.", "c.example."]);
    assert_eq!(names(&pdns.get("/zones?zone=b.example.").await.expect(200)), [""; 0]);
}

#[tokio::test]
async fn a_long_list_is_streamed_whole() {
    let pdns = Pdns::start().await;
    let made = (0..300).map(|n| {
        let pdns = &pdns;
        async move { pdns.zone(&format!("n{n:03}.example."), &[]).await }
    });
    futures_util::future::join_all(made).await;
    let listed = pdns.get("/zones").await.expect(200).json();
    assert_eq!(listed.as_array().unwrap().len(), 300);
    assert_eq!(listed[299]["name"], "n299.example.");
}

#[tokio::test]
async fn a_zone_is_exported_as_text() {
    let pdns = Pdns::start().await;
    let long = format!("\"{}\"", "k".repeat(300));
    pdns.zone(
        "example.com.",
        &[("www.example.com.", "A", &["192.0.2.1"]), ("example.com.", "TXT", &[&long])],
    )
    .await;
    let text = pdns.get("/zones/example.com./export").await.expect(200);
    assert_eq!(text.header("content-type"), "text/plain");
    assert!(text.text.contains("www.example.com.\t300\tIN\tA\t192.0.2.1\n"), "{text:?}");
    assert!(text.text.contains(&format!("example.com.\t300\tIN\tTXT\t{long}\n")), "{text:?}");
    assert!(text.text.starts_with("example.com.\t") && text.text.contains("\tIN\tSOA\t"), "{text:?}");
    let headers = [("Accept", "application/json")];
    let path = "/zones/example.com./export";
    let json = pdns.send(&pdns.api.admin, Method::GET, path, None, &headers).await.expect(200);
    assert_eq!(json.header("content-type"), "application/json");
    assert_eq!(json.json(), json!({"zone": text.text}));
}

#[tokio::test]
async fn what_is_looked_for_is_found_and_bounded() {
    let pdns = Pdns::start().await;
    let many: Vec<String> = (0..20).map(|n| format!("n{n}.example.com.")).collect();
    let mut rrsets: Vec<(&str, &str, &[&str])> =
        many.iter().map(|name| (name.as_str(), "A", ["192.0.2.7"].as_slice())).collect();
    rrsets.push(("www.example.com.", "TXT", &["\"find me\"", "\"not that\""]));
    pdns.zone("example.com.", &rrsets).await;
    pdns.zone("example.org.", &[("a.example.org.", "CNAME", &["www.example.com."])]).await;
    let commented = json!([{"name": "n1.example.com.", "type": "A", "changetype": "REPLACE",
        "comments": [{"content": "find this too", "account": ""}]}]);
    pdns.patch("example.com.", commented).await.expect(204);
    let search = |query: &str| {
        let (pdns, path) = (&pdns, format!("/search-data?{query}"));
        async move { pdns.get(&path).await.expect(200).json().as_array().unwrap().clone() }
    };
    let found = search("q=*find*").await;
    let told: Vec<(&str, &str)> = found
        .iter()
        .map(|one| (one["object_type"].as_str().unwrap(), one["content"].as_str().unwrap()))
        .collect();
    assert_eq!(told, [("comment", "find this too"), ("record", "\"find me\"")]);
    assert_eq!(found[1]["zone_id"], "example.com.");
    assert_eq!((&found[1]["ttl"], &found[1]["disabled"]), (&json!(300), &json!(false)));
    assert_eq!(search("q=*find*&object_type=record").await.len(), 1);
    assert_eq!(search("q=example.*&object_type=zone").await.len(), 2);
    assert_eq!(search("q=EXAMPLE.com.&object_type=zone").await[0]["name"], "example.com.");
    assert_eq!(search("q=www.example.com&object_type=record").await.len(), 3, "by name, and by value");
    assert_eq!(search("q=n?.example.com&object_type=record").await.len(), 10);
    assert_eq!(search("q=%25").await.len(), 0, "no pattern of SQL");
    assert_eq!(search("q=*&max=5").await.len(), 5);
    for bad in ["", "q=", "q=x&max=0", "q=x&object_type=y"] {
        expect_error(&pdns.get(&format!("/search-data?{bad}")).await, "");
    }
    // What is another's is not found.
    let tenant = pdns.api.tenant("strangers").await;
    let (_, stranger) = pdns.api.user("stranger@example.test", false, &[tenant]).await;
    let none = pdns.send(&stranger, Method::GET, "/search-data?q=*", None, &[]).await.expect(200);
    assert_eq!(none.json(), json!([]));
}
