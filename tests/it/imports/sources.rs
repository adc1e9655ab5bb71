//! The same zones by every source; what becomes of domains that are here; what is refused at the door.

use std::collections::{BTreeMap, BTreeSet};

use reqwest::Method;
use serde_json::{Value, json};

use super::old::{self, FAULTY, KINDS, Old};
use super::{Importing, outcomes};
use crate::imperative::ended;

/// Zones of the trial: each kind twice.
const ZONES: usize = 2 * KINDS;

/// What is there without the comments, which only PowerDNS's own sources have.
fn plain(held: &BTreeMap<String, Vec<String>>) -> BTreeMap<String, Vec<String>> {
    let bare = |line: &String| line.split(" # ").next().unwrap().to_owned();
    held.iter().map(|(zone, lines)| (zone.clone(), lines.iter().map(bare).collect())).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_source_gives_the_same_zones() {
    let old = Old::start(ZONES).await;
    old.sign(&old::name(10)).await;
    let by_database = Importing::new().await;
    let (_, report) = by_database.import(&old.database(), json!({})).await;
    assert_eq!(outcomes(&report), [("imported", 38), ("refused", 2)].into());
    let reference = by_database.held().await;

    let by_api = Importing::new().await;
    let (id, told) = by_api.import(&old.http(), json!({})).await;
    // What PowerDNS cannot read itself it does not give.
    let bad = outcomes(&told)
        .iter()
        .filter(|(what, _)| ["refused", "failed"].contains(what))
        .map(|one| one.1)
        .sum::<usize>();
    assert_eq!((outcomes(&told)["imported"], bad), (38, 2), "{told:#?}");
    assert_eq!(by_api.held().await, reference);
    assert_eq!(by_api.shown(id).await["not_carried"][0]["name"], old::TSIG_NAME);
    let same = |n: usize| {
        // In whatever order a source tells it.
        let what = |report: &BTreeMap<String, Value>| -> BTreeSet<String> {
            let all = report[&old::name(n)]["not_carried"].as_array().unwrap().clone();
            all.into_iter().map(|one| format!("{} {}", one["what"], one["type"])).collect()
        };
        assert_eq!(what(&told), what(&report), "{n}");
    };
    [7, 8, 11, 13, 18].into_iter().for_each(same);

    // A primary gives no zone that it cannot put into words; of the others, nothing of what a signer makes is carried.
    let by_transfer = Importing::new().await;
    let names: Vec<String> = (0..ZONES).map(old::name).collect();
    let (_, told) = by_transfer.import(&old.transfers(&names), json!({})).await;
    let default = by_transfer.api.platform_tenant().await;
    assert!(outcomes(&told)["imported"] >= 38, "{told:#?}");
    let signed = &told[&old::name(10)]["not_carried"];
    assert!(signed.as_array().unwrap().iter().any(|one| one["type"] == "RRSIG"), "{signed}");
    let held = by_transfer.held().await;
    for (zone, lines) in plain(&reference) {
        assert_eq!(plain(&held)[&zone], lines, "{zone}");
    }
    let domain = by_transfer.api.get("/api/domains/z000.test").await.expect(200).json();
    assert_eq!(domain["tenant"], json!(default));

    let dir = export(&old).await;
    let by_files = Importing::new().await;
    let (_, told) = by_files.import(&json!({"kind": "archive", "path": dir}), json!({})).await;
    // A text has no disabled records and no types that PowerDNS alone has; what is beside the zone is beside it here, too.
    assert_eq!(outcomes(&told).get("imported"), Some(&(ZONES - told_refused(&told))), "{told:#?}");
    let held = plain(&by_files.held().await);
    for (zone, lines) in plain(&reference).into_iter().filter(|(zone, _)| told[zone]["outcome"] == "imported")
    {
        assert_eq!(held[&zone], lines, "{zone}");
    }
    let domain = by_files.api.get("/api/domains/z009.test").await.expect(200).json();
    assert_eq!(domain["tenant"], json!(by_files.acme));
}

fn told_refused(told: &BTreeMap<String, Value>) -> usize {
    let refused: Vec<&String> =
        told.iter().filter(|(_, line)| line["outcome"] == "refused").map(|(zone, _)| zone).collect();
    let expected: Vec<String> =
        [FAULTY, 12, 13, 14].iter().flat_map(|n| [old::name(*n), old::name(n + KINDS)]).collect();
    for zone in &refused {
        assert!(expected.contains(zone), "{zone}: {}", told[*zone]);
    }
    refused.len()
}

/// Every zone as PowerDNS exports it, those with an account in a directory of that name.
async fn export(old: &Old) -> String {
    let dir = old.dir.join("zones");
    std::fs::create_dir_all(dir.join("acme")).unwrap();
    for n in 0..ZONES {
        let name = old::name(n);
        let id = name.replace('/', "=2F");
        let text =
            old.call(Method::GET, &format!("/zones/{id}./export"), Value::Null).await.text().await.unwrap();
        let file = format!("{}.zone", name.replace('/', "%2F"));
        let dir = if n % KINDS == 9 { dir.join("acme") } else { dir.clone() };
        std::fs::write(dir.join(file), text).unwrap();
    }
    dir.to_str().unwrap().to_owned()
}

fn archive(zones: &[(&str, &str)]) -> (tempfile::TempDir, Value) {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in zones {
        std::fs::write(dir.path().join(name), format!("$TTL 300\n@ SOA ns h 7 1 2 3 4\n{text}\n")).unwrap();
    }
    let source = json!({"kind": "archive", "path": dir.path()});
    (dir, source)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_here_already_becomes_what_was_asked_for() {
    let importing = Importing::new().await;
    let (_dir, first) =
        archive(&[("a.test", "www A 192.0.2.1\nold A 192.0.2.1"), ("b.test", "www A 192.0.2.1")]);
    let (_, report) = importing.import(&first, json!({})).await;
    assert_eq!(outcomes(&report), [("imported", 2)].into(), "{report:#?}");
    let (_dir, next) =
        archive(&[("a.test", "www A 192.0.2.2"), ("b.test", "www A 192.0.2.1"), ("c.test", "x A 192.0.2.1")]);
    let lines = |held: &BTreeMap<String, Vec<String>>| held["a.test"].clone();
    let before = importing.held().await;

    // Judged at once, and as an operation: neither changes anything.
    let body = importing.body(&next, json!({"on_existing": "replace"})).await;
    let preview =
        importing.api.call(Method::POST, "/api/imports?dry_run=true", body).await.expect(200).json();
    let judged = |items: &Value| -> Vec<(String, String)> {
        let text = |line: &Value, key: &str| line[key].as_str().unwrap().to_owned();
        items.as_array().unwrap().iter().map(|line| (text(line, "zone"), text(line, "outcome"))).collect()
    };
    let expected = [("a.test", "imported"), ("b.test", "unchanged"), ("c.test", "imported")];
    let expected = expected.map(|(zone, outcome)| (zone.to_owned(), outcome.to_owned()));
    assert_eq!((judged(&preview["diff"]), &preview["total"]), (expected.to_vec(), &json!(3)), "{preview}");
    let (_, report) = importing.import(&next, json!({"mode": "rehearse", "on_existing": "replace"})).await;
    assert_eq!(outcomes(&report), [("imported", 2), ("unchanged", 1)].into(), "{report:#?}");
    assert_eq!(importing.held().await, before);

    let (_, report) = importing.import(&next, json!({})).await;
    assert_eq!(outcomes(&report), [("imported", 1), ("skipped", 1), ("unchanged", 1)].into(), "{report:#?}");
    assert_eq!(lines(&importing.held().await), lines(&before));
    let (_, report) = importing.import(&next, json!({"on_existing": "merge"})).await;
    assert_eq!(outcomes(&report), [("imported", 1), ("unchanged", 2)].into(), "{report:#?}");
    assert_eq!(lines(&importing.held().await), ["old 1 300 192.0.2.1", "www 1 300 192.0.2.2"]);
    let (_, report) = importing.import(&next, json!({"on_existing": "replace", "zones": ["a.test"]})).await;
    assert_eq!((report.len(), outcomes(&report)), (1, [("imported", 1)].into()), "{report:#?}");
    assert_eq!(lines(&importing.held().await), ["www 1 300 192.0.2.2"]);

    // Of another tenant nothing is changed; what belongs to nobody is refused by name.
    let strangers = importing.api.tenant("strangers").await;
    let (_, report) =
        importing.import(&next, json!({"on_existing": "replace", "tenants": {"default": strangers}})).await;
    assert_eq!(report["a.test"]["faults"][0]["code"], "other_tenant", "{report:#?}");
    let (_, report) = importing.import(&next, json!({"tenants": {"by_account": {"x": strangers}}})).await;
    assert_eq!(report["a.test"]["faults"][0]["code"], "no_tenant", "{report:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_zone_is_refused_alone() {
    let importing = Importing::new().await;
    let (dir, source) = archive(&[
        ("good.test", "www A 192.0.2.1"),
        ("bad.test", "www A 192.0.2.300\nmail MX 10"),
        ("cname.test", "www CNAME a.example.net.\nwww A 192.0.2.1"),
        ("rule.test", "p DNAME a.example.net.\nx.p A 192.0.2.1"),
        ("readme", "hello"),
    ]);
    std::fs::write(dir.path().join("readme"), "hello").unwrap();
    std::os::unix::fs::symlink("/etc/passwd", dir.path().join("link.test")).unwrap();
    let (_, report) = importing.import(&source, json!({})).await;
    assert_eq!(report["good.test"]["outcome"], "imported", "{report:#?}");
    assert_eq!(report["link.test"]["faults"][0]["code"], "link", "{report:#?}");
    let lines: Vec<&Value> =
        report["bad.test"]["faults"].as_array().unwrap().iter().map(|fault| &fault["line"]).collect();
    assert_eq!(lines, [&json!(3), &json!(4)], "{report:#?}");
    assert_eq!(report["cname.test"]["outcome"], "refused", "{report:#?}");
    assert_eq!(report["readme"]["outcome"], "refused", "{report:#?}");
    // A rule of the whole domain is told with the line of the text.
    let fault = &report["rule.test"]["faults"][0];
    assert!(fault["record"].is_string() && fault["line"].is_u64(), "{report:#?}");
    // What the directory is must be told before any zone is.
    let id = importing.ask(&json!({"kind": "archive", "path": "/no/such/directory"}), json!({})).await;
    let end = ended(&importing.api.app.pool, id).await;
    assert_eq!(
        (&end["state"], &end["error"]["code"]),
        (&json!("failed"), &json!("source_unusable")),
        "{end}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_fault_of_a_request_is_told() {
    let importing = Importing::new().await;
    let api = &importing.api;
    for (body, pointers) in [
        (json!({}), vec!["/source"]),
        (
            json!({"source": {"kind": "x"}, "mode": "y", "on_existing": "z"}),
            vec!["/source/kind", "/mode", "/on_existing"],
        ),
        (
            json!({"source": {"kind": "archive", "path": "zones", "more": 1}}),
            vec!["/source/path", "/source/more"],
        ),
        (
            json!({"source": {"kind": "pdns_api", "url": "http://u:p@h/", "api_key_file": "/k"}}),
            vec!["/source/url"],
        ),
        (
            json!({"source": {"kind": "axfr", "primary": "x", "zones": ["a.test", "."], "tsig": {"algorithm": "md5"}}}),
            vec![
                "/source/primary",
                "/source/zones/1",
                "/source/tsig/name",
                "/source/tsig/algorithm",
                "/source/tsig/secret_file",
            ],
        ),
        (
            json!({"source": {"kind": "archive", "path": "/"}, "tenants": {"by_account": {"a": 1}}, "zones": ["*"], "follow_seconds": 0}),
            vec!["/tenants/by_account/a", "/zones/0", "/follow_seconds"],
        ),
        (
            json!({"source": {"kind": "archive", "path": "/"}, "tenants": {"default": uuid::Uuid::nil()}}),
            vec!["/tenants"],
        ),
    ] {
        let problem = api.call(Method::POST, "/api/imports", body.clone()).await.expect(422).json();
        let mut told: Vec<&str> = problem["errors"]
            .as_array()
            .unwrap()
            .iter()
            .map(|fault| fault["pointer"].as_str().unwrap())
            .collect();
        let mut pointers = pointers;
        told.sort_unstable();
        pointers.sort_unstable();
        assert_eq!(told, pointers, "{body}: {problem}");
    }
    let id = uuid::Uuid::now_v7();
    api.get(&format!("/api/imports/{id}")).await.expect_problem(404, "not_found");
    let (dir, source) = archive(&[("a.test", "www A 192.0.2.1")]);
    let (id, _) = importing.import(&source, json!({})).await;
    drop(dir);
    api.call(Method::POST, &format!("/api/imports/{id}/cutover"), json!({}))
        .await
        .expect_problem(409, "not_following");
}
