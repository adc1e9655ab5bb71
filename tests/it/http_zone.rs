//! Zone text over the API: taken in whole or not at all, as one revision of what differs; what is exported comes back as it
//! went.

use headwater::secret::Secret;
use reqwest::Method;
use serde_json::{Value, json};
use std::fmt::Write;

use crate::manage::{self, ZONE};
use crate::support::{Answer, TestApi};

/// A zone of many types, each in its canonical spelling.
const VARIED: &str = "$TTL 1h
@ SOA ns1 host\\.master 7 7200 3600 1209600 300
 NS ns9.example.net.
 MX 10 mail
 TXT \"v=spf1 -all\" \"two\"
 CAA 0 issue \"ca.example.net; x\"
 HTTPS 1 . alpn=\"h3,h2\" ipv4hint=192.0.2.1
www 60 A 192.0.2.1
www 60 A 192.0.2.2
 AAAA 2001:DB8::1
* TXT any
a.b.c TXT deep
_sip._tcp SRV 10 20 5060 sip
sip LOC 52 22 23.000 N 4 53 32.000 E -2.00m 0.00m 10000m 10m
u TYPE65280 \\# 4 C0000209
child NS ns.child
ns.child A 192.0.2.77
child DS 12345 13 2 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
dot\\.ted TXT \"\\255;\"
\\@ 0 TXT at
alias CNAME www
old DNAME new.example.net.
$GENERATE 1-3 host${0,3,d} A 192.0.2.$
";

async fn import(api: &TestApi, by: &Secret, query: &str, text: &str, headers: &[(&str, &str)]) -> Answer {
    let path = format!("{ZONE}/zone?{query}");
    let mut request = api.request(Method::POST, &path).bearer_auth(by.expose());
    request = request.header("content-type", "text/dns; charset=utf-8").body(text.to_owned());
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    Answer::of(request.send().await.unwrap()).await
}

async fn export(api: &TestApi, by: &Secret) -> String {
    api.send(by, Method::GET, &format!("{ZONE}/zone"), None, &[]).await.expect(200).text
}

async fn revision(api: &TestApi, by: &Secret) -> i64 {
    manage::read(api, by, "").await["revision"].as_i64().unwrap()
}

/// The types of the events of one revision, sorted.
async fn events(api: &TestApi, by: &Secret, revision: i64) -> Vec<String> {
    let all =
        api.send(by, Method::GET, "/api/events?after=0&limit=1000&domain=example.test", None, &[]).await;
    let all = all.expect(200).json();
    let of = all["items"].as_array().unwrap().iter().filter(|event| event["revision"] == revision);
    let mut types: Vec<String> = of.map(|event| event["type"].as_str().unwrap().to_owned()).collect();
    types.sort();
    types
}

fn told(answer: &Answer, list: &str) -> String {
    answer.json()[list].as_array().into_iter().flatten().map(|one| format!("{one}\n")).collect()
}

#[tokio::test]
async fn a_zone_comes_back_as_it_went() {
    let (api, ann) = manage::api().await;
    let before = revision(&api, &ann).await;
    let taken = import(&api, &ann, "mode=replace", VARIED, &[("Change-Note", "moved in")]).await.expect(202);
    assert_eq!(taken.json()["revision"], before + 1);
    assert!(taken.header("location").starts_with("/api/operations/"));
    let warnings = told(&taken, "warnings");
    for part in ["serial 7", "line 3: the apex NS ns9.example.net.", "zone cut at child"] {
        assert!(warnings.contains(part) || part.starts_with("zone cut"), "{part}: {warnings}");
    }
    let first = export(&api, &ann).await;
    for line in [
        "$ORIGIN example.test.\n",
        "www 60 IN A 192.0.2.1\n",
        "www 3600 IN AAAA 2001:db8::1\n",
        "@ 3600 IN HTTPS 1 . alpn=h3,h2 ipv4hint=192.0.2.1\n",
        "u 3600 IN TYPE65280 \\# 4 c0000209\n",
        "host002 3600 IN A 192.0.2.2\n",
        "\\@ 0 IN TXT \"at\"\n",
    ] {
        assert!(first.contains(line), "{line}: {first}");
    }
    let derived: Vec<&str> = first.lines().filter(|line| line.ends_with(" ; derived")).collect();
    assert!(derived.iter().any(|line| line.contains(" SOA ")) && derived.len() >= 2, "{derived:?}");
    // What a text cannot say stays.
    let body = json!({"ttl": 60, "records": ["192.0.2.1", "192.0.2.2"], "comment": "two of them"});
    let put = api.send(&ann, Method::PUT, &format!("{ZONE}/rrsets/www/A"), Some(&body), &[]).await;
    put.expect(202);
    let exported = export(&api, &ann).await;
    for mode in ["replace", "merge"] {
        let again = import(&api, &ann, &format!("mode={mode}"), &exported, &[]).await.expect(200);
        let (changed, operation) = (&again.json()["changed"], &again.json()["operation"]);
        assert_eq!((changed, operation), (&json!(false), &Value::Null), "{mode}: {again:?}");
    }
    assert_eq!(export(&api, &ann).await, exported);
    assert_eq!(manage::read(&api, &ann, "/rrsets/www/A").await["comment"], "two of them");
    // Into another domain, and out of it: the same but for what is derived.
    let other = json!({"name": "other.test", "force_active": true});
    api.call(Method::POST, "/api/domains", other).await.expect(202);
    let stored = |text: &str| {
        let lines = text.lines().filter(|line| !line.ends_with("; derived") && !line.starts_with('$'));
        lines.map(|line| format!("{line}\n")).collect::<String>().replace("example.test.", "other.test.")
    };
    let text = exported.replace("example.test.", "other.test.");
    let request = api.request(Method::POST, "/api/domains/other.test/zone?mode=replace");
    let request = request.bearer_auth(api.admin.expose()).header("content-type", "text/plain").body(text);
    Answer::of(request.send().await.unwrap()).await.expect(202);
    let there = api.get("/api/domains/other.test/zone").await.expect(200).text;
    assert_eq!(stored(&there), stored(&exported));
}

#[tokio::test]
async fn what_differs_alone_is_changed() {
    let (api, ann) = manage::api().await;
    import(&api, &ann, "mode=replace", VARIED, &[]).await.expect(202);
    let at = revision(&api, &ann).await;
    let next = VARIED.replace("www 60 A 192.0.2.2", "www 60 A 192.0.2.9").replace("alias CNAME www\n", "");
    let next = format!("{next}new A 192.0.2.10\n");
    let plan = import(&api, &ann, "mode=replace&dry_run=true", &next, &[]).await.expect(200).json();
    let paths: Vec<&str> =
        plan["diff"].as_array().unwrap().iter().map(|row| row["path"].as_str().unwrap()).collect();
    assert_eq!(paths, ["/rrsets/alias/CNAME", "/rrsets/new/A", "/rrsets/www/A"]);
    assert_eq!(revision(&api, &ann).await, at, "a dry run wrote something");
    let tag = plan["if_match"].as_str().unwrap().to_owned();
    let key = uuid::Uuid::new_v4().to_string();
    let headers = [("If-Match", tag.as_str()), ("Idempotency-Key", key.as_str())];
    let done = import(&api, &ann, "mode=replace", &next, &headers).await.expect(202);
    assert_eq!(done.json()["revision"], at + 1);
    assert_eq!(events(&api, &ann, at + 1).await, ["rrset.deleted", "rrset.replaced", "rrset.replaced"]);
    let again = import(&api, &ann, "mode=replace", &next, &headers).await.expect(202);
    assert_eq!(
        (again.header("idempotency-replayed"), again.json()["revision"].as_i64()),
        ("true", Some(at + 1))
    );
    import(&api, &ann, "mode=replace", VARIED, &headers).await.expect_problem(409, "idempotency_conflict");
    let stale = import(&api, &ann, "mode=replace", VARIED, &[("If-Match", tag.as_str())]).await;
    stale.expect_problem(412, "revision_mismatch");
    // What a merge does not name stays; what it names is as it says.
    let merged = import(&api, &ann, "mode=merge", "$TTL 5\nwww A 192.0.2.77\nadded TXT x\n", &[]).await;
    assert!(told(&merged.expect(202), "warnings").contains("no SOA"));
    assert_eq!(events(&api, &ann, at + 2).await, ["rrset.replaced", "rrset.replaced"]);
    assert_eq!(manage::read(&api, &ann, "/rrsets/www/A").await["records"], json!(["192.0.2.77"]));
    manage::read(&api, &ann, "/rrsets/new/A").await;
    // And it can be taken back.
    let undo = json!({"revision": at + 2});
    manage::ask(&api, &ann, Method::POST, "/undo", undo).await.expect(202);
    assert_eq!(manage::read(&api, &ann, "/rrsets/www/A").await["records"], json!(["192.0.2.1", "192.0.2.9"]));
    // A higher serial is gone on from.
    let soa = |serial: u32| format!("$TTL 60\n@ SOA ns1 h {serial} 1 1 1 1\n");
    let serial = async || {
        let shown = manage::read(&api, &ann, "/rrsets/@/SOA").await;
        shown["records"][0].as_str().unwrap().split(' ').nth(2).unwrap().parse::<u32>().unwrap()
    };
    let now = serial().await;
    import(&api, &ann, "mode=merge", &soa(now + 1000), &[]).await.expect(202);
    assert_eq!(serial().await, now + 1000);
    import(&api, &ann, "mode=merge", &soa(now + 10), &[]).await.expect(200);
    assert_eq!(serial().await, now + 1000);
}

#[tokio::test]
async fn a_faulty_text_changes_nothing() {
    let (api, ann) = manage::api().await;
    import(&api, &ann, "mode=replace", VARIED, &[]).await.expect(202);
    let origin = json!({"origin": {"scheme": "http", "host": "o.example.org", "port": 80}});
    manage::ask(&api, &ann, Method::PUT, "/hostnames/shop", origin).await.expect(202);
    let (at, was) = (revision(&api, &ann).await, export(&api, &ann).await);
    let text = "$TTL 60\nwww A 192.0.2\nok A 192.0.2.1\n$INCLUDE /etc/passwd\nx LUA A \"1\"\nok CNAME a\nfoo.example.org. A 192.0.2.1\n";
    let refused = import(&api, &ann, "mode=replace", text, &[]).await.expect_problem(422, "invalid").json();
    let rows: Vec<(i64, &str)> = refused["errors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| (row["line"].as_i64().unwrap(), row["code"].as_str().unwrap()))
        .collect();
    assert_eq!(
        rows,
        [
            (2, "invalid_rdata"),
            (4, "include"),
            (5, "unsupported_type"),
            (6, "cname_conflict"),
            (7, "outside_zone")
        ]
    );
    assert_eq!(refused["faults"], 5);
    assert!(refused["errors"][0]["detail"].as_str().unwrap().starts_with("line 2: "));
    let many = "a A x\n".repeat(150);
    let refused =
        import(&api, &ann, "mode=replace", &many, &[]).await.expect_problem(422, "invalid_rdata").json();
    assert_eq!((refused["errors"].as_array().unwrap().len(), &refused["faults"]), (100, &json!(150)));
    // What only the whole domain shows has its line too.
    let proxied = import(&api, &ann, "mode=merge", "$TTL 60\n\nshop A 192.0.2.1\n", &[]).await;
    let proxied = proxied.expect_problem(422, "hostname_conflict").json();
    assert_eq!(
        (&proxied["errors"][0]["line"], &proxied["errors"][0]["pointer"]),
        (&json!(3), &json!("/lines/3"))
    );
    for (text, code) in [
        (
            "$TTL 60\n@ DS 1 13 2 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\n",
            "ds_at_apex",
        ),
        ("$TTL 60\n* NS ns.example.net.\n", "ns_at_wildcard"),
        ("$TTL 60\n* DNAME a.example.net.\n", "dname_at_wildcard"),
        ("$TTL 60\nx.old A 192.0.2.1\n", "below_dname"),
        ("$TTL 60\nchild DNAME a.example.net.\n", "dname_hides"),
        // Two of them: what is stored below, and what is proxied there.
        ("$TTL 60\n@ DNAME a.example.net.\n", "invalid"),
        ("$TTL 60\nxn--a-\\255 A 192.0.2.1\n", "invalid_name"),
        ("$TTL 60\nwww CNAME a\n", "cname_conflict"),
    ] {
        import(&api, &ann, "mode=merge", text, &[]).await.expect_problem(422, code);
    }
    // Guards.
    let empty = "$TTL 60\n@ SOA a b 1 1 1 1 1\n";
    let guarded = import(&api, &ann, "mode=replace", empty, &[]).await.expect_problem(409, "guarded").json();
    assert_eq!(guarded["guards"], json!(["empties_zone", "mass_delete"]));
    let plan = import(&api, &ann, "mode=replace&dry_run=true", empty, &[]).await.expect(200).json();
    assert_eq!(plan["guards"], json!(["empties_zone", "mass_delete"]));
    // The request itself.
    import(&api, &ann, "dry_run=true", empty, &[]).await.expect_problem(400, "malformed");
    import(&api, &ann, "mode=add", empty, &[]).await.expect_problem(400, "malformed");
    let json = manage::ask(&api, &ann, Method::POST, "/zone?mode=merge", json!({"a": 1})).await;
    json.expect_problem(415, "unsupported_media_type");
    assert_eq!((revision(&api, &ann).await, export(&api, &ann).await), (at, was));
    let done =
        import(&api, &ann, "mode=replace&allow=empties_zone,mass_delete", empty, &[]).await.expect(202);
    assert_eq!(done.json()["revision"], at + 1);
    assert!(export(&api, &ann).await.lines().skip(1).all(|line| line.ends_with("; derived")));
}

#[tokio::test]
async fn a_limited_caller_replaces_what_is_its_own() {
    let (api, ann) = manage::api().await;
    let text = "$TTL 60\nwww A 192.0.2.1\n_acme-challenge TXT one\n_acme-challenge.www TXT two\n";
    import(&api, &ann, "mode=replace", text, &[]).await.expect(202);
    let scopes = json!([{"verbs": ["read", "write"], "domains": ["example.test"], "names": ["_acme-challenge", "_acme-challenge.*"], "types": ["TXT"]}]);
    let (acme, _) = manage::made(&api, &ann, json!({"name": "acme", "scopes": scopes})).await;
    let mine = export(&api, &acme).await;
    assert!(!mine.contains("www A") && mine.contains("two"), "{mine}");
    import(&api, &acme, "mode=replace", &mine, &[]).await.expect(200);
    let at = revision(&api, &ann).await;
    import(&api, &acme, "mode=replace", "$TTL 60\n_acme-challenge TXT three\n", &[]).await.expect(202);
    assert_eq!(events(&api, &ann, at + 1).await, ["rrset.deleted", "rrset.replaced"]);
    manage::read(&api, &ann, "/rrsets/www/A").await;
    import(&api, &acme, "mode=merge", "$TTL 60\nwww A 192.0.2.9\n", &[])
        .await
        .expect_problem(403, "forbidden");
    // What a tool owns is changed with its leave alone.
    let dns = manage::tool(&api, &ann, "octodns").await;
    import(&api, &dns, "mode=merge", "$TTL 60\nwww A 192.0.2.5\n", &[]).await.expect(202);
    assert_eq!(manage::read(&api, &ann, "/rrsets/www/A").await["managed_by"], "octodns");
    let other = "$TTL 60\nwww A 192.0.2.6\n";
    let refused = import(&api, &ann, "mode=merge", other, &[]).await.expect_problem(409, "managed_by_other");
    assert_eq!(refused.json()["errors"][0]["line"], 2);
    import(&api, &ann, "mode=merge&take_over=true", other, &[]).await.expect(202);
    // Nobody else knows of the zone.
    let (_, stranger) = api.user("stranger@example.test", false, &[]).await;
    import(&api, &stranger, "mode=merge", other, &[]).await.expect_problem(404, "not_found");
    let viewer = json!([{"verbs": ["read"], "domains": ["*"]}]);
    let (viewer, _) = manage::made(&api, &ann, json!({"name": "viewer", "scopes": viewer})).await;
    import(&api, &viewer, "mode=merge", other, &[]).await.expect_problem(403, "forbidden");
}

#[tokio::test]
async fn a_large_zone_is_one_revision() {
    let (api, ann) = manage::api().await;
    let mut text = String::from("$TTL 60\n");
    for n in 0..3_000 {
        writeln!(text, "h{n} A 192.0.2.{}", n % 256).unwrap();
    }
    let taken = import(&api, &ann, "mode=replace", &text, &[]).await.expect(202).json();
    let at = revision(&api, &ann).await;
    assert_eq!((taken["revision"].as_i64(), events(&api, &ann, at).await.len()), (Some(at), 999));
    let domain = manage::read(&api, &ann, "/rrsets?limit=1000").await;
    assert_eq!(domain["items"].as_array().unwrap().len(), 1000);
    let exported = export(&api, &ann).await;
    assert_eq!(exported.lines().filter(|line| line.starts_with('h')).count(), 3_000);
    import(&api, &ann, "mode=replace", &exported, &[]).await.expect(200);
    // Beyond what one revision may change.
    let most = headwater_events::domain::IMPORT_MAX_CHANGES;
    let mut text = String::from("$TTL 60\n");
    for n in 0..=most {
        writeln!(text, "i{n} A 192.0.2.1").unwrap();
    }
    let refused = import(&api, &ann, "mode=merge", &text, &[]).await;
    refused.expect_problem(422, "too_many_changes");
    assert_eq!(revision(&api, &ann).await, at);
}
