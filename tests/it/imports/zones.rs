//! Every kind of zone: carried as it is, what is not told by name, served as it was.

use std::net::SocketAddr;

use futures_util::StreamExt;
use headwater::command::{Command, Meta};
use headwater::deploy::dns;
use headwater_events::actor::Caller;
use headwater_events::admin::AdminCommand;
use headwater_events::dns::RrType;
use headwater_events::event::ClusterCreated;
use headwater_events::ids::ClusterId;
use reqwest::Method;
use serde_json::{Value, json};
use uuid::Uuid;

use super::old::{self, FAULTY, KINDS, Old};
use super::{Importing, outcomes};
use crate::support::{DnsStack, eventually};

/// Zones of the trial.
const ZONES: usize = 200;
/// Questions at once.
const QUESTIONS: usize = 8;
/// How often one is asked: on a busy machine an answer may be late.
const TRIES: usize = 60;

/// A DNS cluster that everything is deployed to.
pub async fn serving(importing: &Importing) -> (DnsStack, SocketAddr) {
    let stack = DnsStack::start(1).await;
    let file = stack.clusters[0].postgres.socket_dir().parent().unwrap().join("url-of-test");
    std::fs::write(&file, stack.clusters[0].database_url().expose()).unwrap();
    let dns = stack.clusters[0].pdns.address();
    let cluster = ClusterCreated {
        name: "dns-1".into(),
        database_url_file: file.to_str().unwrap().into(),
        dns: dns.to_string(),
        front: None,
        nameservers: Vec::new(),
        enabled: true,
    };
    let command = AdminCommand::CreateCluster { id: ClusterId::from_uuid(Uuid::now_v7()), cluster };
    let app = &importing.api.app;
    app.commit.submit(Caller::system(), Command::admin(command), Meta::internal()).await.unwrap();
    tokio::spawn(headwater::deploy::run(app.clone()));
    (stack, dns)
}

/// Waits until every zone is served.
pub async fn served(importing: &Importing) {
    let behind = || async {
        let text = "select count(*) from desired.domains d where d.current and not exists (select from \
                    desired.deployments p where p.domain_id = d.id and p.state = 'current' \
                    and p.active_revision = d.revision)";
        sqlx::query_scalar::<_, i64>(text).fetch_one(&importing.api.app.pool).await.unwrap()
    };
    eventually("every zone is served", behind, |count| *count == 0).await;
}

/// What a server says of a name and a type: the code, and the records in order.
async fn answer(server: SocketAddr, name: &str, rrtype: RrType) -> String {
    for _ in 0..TRIES {
        if let Ok(answer) = dns::ask(server, name, rrtype).await {
            let mut records: Vec<String> = answer
                .answer
                .iter()
                .map(|record| format!("{} {}", record.rrtype, hex::encode(&record.rdata)))
                .collect();
            records.sort();
            return format!("{} {}", answer.rcode, records.join(", "));
        }
    }
    "no answer".to_owned()
}

/// Every name and type of the source that is carried, and some that are not there.
async fn questions(old: &Old) -> Vec<(String, RrType)> {
    let text = "select distinct r.name, r.type from records r join domains d on d.id = r.domain_id \
                where r.type is not null and not r.disabled and r.type not in ('SOA', 'LUA', 'DS', 'ALIAS') \
                and not (r.type = 'NS' and r.name = d.name) and (d.id - 1) % $1 <> $2 \
                and r.name like '%' || d.name";
    let rows: Vec<(String, String)> = sqlx::query_as(text)
        .bind(i32::try_from(KINDS).unwrap())
        .bind(i32::try_from(FAULTY).unwrap())
        .fetch_all(&old.pool)
        .await
        .unwrap();
    let ask = |name: String, rrtype: &str| (name, RrType::parse(rrtype).unwrap());
    let mut all: Vec<_> =
        rows.into_iter().map(|(name, rrtype)| ask(name.replace('*', "some"), &rrtype)).collect();
    for zone in (0..ZONES).filter(|n| n % KINDS != FAULTY).map(old::name) {
        for (owner, rrtype) in
            [("nothing", "A"), ("c", "A"), ("b.c", "TXT"), ("host.sub", "A"), ("x.old", "A")]
        {
            all.push(ask(format!("{owner}.{zone}"), rrtype));
        }
        all.push(ask(zone, "TXT"));
    }
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_kind_of_zone_is_served_as_it_was() {
    let old = Old::start(ZONES).await;
    old.sign(&old::name(10)).await;
    let importing = Importing::new().await;
    let (_stack, new) = serving(&importing).await;
    let (id, report) = importing.import(&old.database(), json!({})).await;
    assert_eq!(outcomes(&report), [("imported", 190), ("refused", 10)].into(), "{:?}", bad(&report));
    let operation = importing.api.get(&format!("/api/operations/{id}?wait=20")).await.expect(200).json();
    assert_eq!(operation["progress"], json!({"done": ZONES, "total": ZONES, "unit": "zones"}), "{operation}");
    assert_eq!((&operation["kind"], &operation["lane"]), (&json!("import"), &json!("bulk_maintenance")));

    told(&importing, &report, id).await;
    served(&importing).await;
    let asked = questions(&old).await;
    let server = old.dns;
    let differ: Vec<String> = futures_util::stream::iter(asked.clone())
        .map(|(name, rrtype)| async move {
            let (was, is) = tokio::join!(answer(server, &name, rrtype), answer(new, &name, rrtype));
            (was != is).then(|| format!("{name} {rrtype}: was {was}, is {is}"))
        })
        .buffer_unordered(QUESTIONS)
        .filter_map(|one| async move { one })
        .collect()
        .await;
    assert!(asked.len() > 1_000 && differ.is_empty(), "of {}: {differ:#?}", asked.len());
    serials(&old, &report, new).await;

    // Asked for again, nothing is left to do.
    let head = importing.api.head().await;
    let (_, again) = importing.import(&old.database(), json!({"on_existing": "replace"})).await;
    assert_eq!(outcomes(&again), [("unchanged", 190), ("refused", 10)].into(), "{:?}", bad(&again));
    let text = "select count(*) from events where position > $1 and domain is not null and stream_kind = 1";
    let query = sqlx::query_scalar::<_, i64>(text).bind(head.get());
    assert_eq!(query.fetch_one(&importing.api.app.pool).await.unwrap(), 0);
}

fn bad(report: &std::collections::BTreeMap<String, Value>) -> Vec<&Value> {
    report.values().filter(|line| line["outcome"] != "imported" && line["outcome"] != "unchanged").collect()
}

/// Nobody who has seen a zone of the source sees its serial go back.
async fn serials(old: &Old, report: &std::collections::BTreeMap<String, Value>, new: SocketAddr) {
    for (zone, _) in report.iter().filter(|(_, line)| line["outcome"] == "imported").step_by(7) {
        let was = dns::ask(old.dns, zone, RrType::SOA).await.unwrap().soa_serial().unwrap();
        let is = dns::ask(new, zone, RrType::SOA).await.unwrap().soa_serial().unwrap();
        assert!(is > was, "{zone}: {was} {is}");
    }
}

/// What a report says of each kind.
async fn told(
    importing: &Importing,
    report: &std::collections::BTreeMap<String, Value>,
    id: headwater_events::ids::OperationId,
) {
    let left = |n: usize| -> Vec<String> {
        let line = &report[&old::name(n)];
        let all = line["not_carried"].as_array().unwrap().iter();
        all.map(|one| {
            let part = |key: &str| one[key].as_str().map(|text| format!(" {text}")).unwrap_or_default();
            format!("{}{}{}", one["what"].as_str().unwrap(), part("name"), part("type"))
        })
        .filter(|text| text != "metadata TSIG-ALLOW-AXFR")
        .collect()
    };
    assert_eq!(left(0), [""; 0]);
    assert_eq!(left(7), ["disabled_record off.z007.test A"]);
    assert_eq!(left(8), ["comment_author"]);
    assert_eq!(left(10), ["dnssec_keys"]);
    assert_eq!(left(11), ["secondary"]);
    assert_eq!(left(12), ["record z012.test ALIAS"]);
    assert_eq!(left(13), ["record lua.z013.test LUA"]);
    assert_eq!(left(14), ["record www.elsewhere.test A"]);
    assert_eq!(left(18), ["metadata ALSO-NOTIFY"]);
    let faults = report[&old::name(FAULTY)]["faults"].as_array().unwrap();
    assert_eq!((faults.len(), &faults[0]["record"]), (1, &json!("bad TXT")), "{faults:?}");
    let done = || async { importing.shown(id).await };
    let shown = eventually("it is done", done, |shown| shown["state"] == "done").await;
    assert_eq!((&shown["state"], &shown["outcomes"]["imported"]), (&json!("done"), &json!(190)), "{shown}");
    assert_eq!(shown["not_carried"][0]["name"], old::TSIG_NAME);
    let held = importing.held().await;
    assert!(held["z008.test"].contains(&"www 1 300 192.0.2.1, 192.0.2.11 # the web".to_owned()));
    assert!(held["z006.test"].contains(&"mixed 1 60 192.0.2.6, 192.0.2.7".to_owned()));
    let of = importing.api.get("/api/domains/z009.test").await.expect(200).json();
    assert_eq!((&of["tenant"], &of["labels"]["pdns.account"]), (&json!(importing.acme), &json!("acme")));
    let own = importing.api.get("/api/domains/z008.test").await.expect(200).json();
    assert_eq!(own["tenant"], json!(importing.api.platform_tenant().await));
    // The whole of it as lines and as a table.
    let path = format!("/api/imports/{id}/report?outcome=refused");
    let api = &importing.api;
    for (media, lines) in [("application/x-ndjson", 10), ("text/csv", 11)] {
        let answer = api.send(&api.admin, Method::GET, &path, None, &[("accept", media)]).await.expect(200);
        assert_eq!(answer.text.lines().count(), lines, "{media}: {}", answer.text);
    }
    let list = importing.api.get("/api/imports").await.expect(200).json();
    assert_eq!(list["items"][0]["id"], json!(id));
}
