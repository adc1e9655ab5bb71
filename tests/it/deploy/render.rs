//! The rows of `pdns_render.tsv` that concern what can be written: each is put, and judged by what a real PowerDNS
//! answers. `pdnsutil` is the second judge, of what only a signed zone shows.

use std::process::Command as Program;

use headwater_events::dns::{RrSet, RrSetInput, RrType};
use headwater_events::domain::DomainCommand;
use serde_json::Value;
use sqlx::postgres::PgPool;

use super::lab::{Lab, domain};

const ZONE: &str = "example.com";
/// Rows about what is not written here, and who else sees to it.
const ELSEWHERE: [(&str, &str); 6] = [
    ("R03", "NAPTR is not written"),
    ("R14", "a value is parsed before it is an event"),
    ("R16", "an RRset has no switch"),
    ("R17", "LUA is refused"),
    ("R18", "decided before the append"),
    ("R20", "has a test of its own"),
];

/// Questions about a row, and the answers.
fn answers(id: &str) -> Vec<(&'static str, &'static str, String)> {
    let positive = |name: &str, text: &str| format!("NOERROR\nanswer {name}.example.com. {text}");
    let txt = format!("TXT \"{}\" \"{}\"", "k".repeat(255), "k".repeat(45));
    match id {
        "R01" => vec![("mx1", "MX", positive("mx1", "MX 10 mail.example.net."))],
        "R02" => vec![("nomx", "MX", positive("nomx", "MX 0 ."))],
        "R04" => {
            vec![("up", "A", positive("up", "A 192.0.2.10")), ("UP", "A", positive("UP", "A 192.0.2.10"))]
        }
        "R05" => vec![("a", "A", positive("a", "A 192.0.2.1"))],
        "R06" => vec![("c", "CNAME", positive("c", "CNAME target.example.net."))],
        "R07" => vec![("t", "A", positive("t", "A 192.0.2.11"))],
        "R08" => vec![
            ("b.w", "A", "NOERROR".into()),
            ("x.b.w", "A", "NXDOMAIN".into()),
            ("w", "A", "NOERROR".into()),
            ("x.w", "A", positive("x.w", "A 192.0.2.80")),
        ],
        "R09" => vec![("b.w", "A", positive("b.w", "A 192.0.2.80"))],
        "R10" => vec![("b", "TXT", positive("b", "TXT \"now real\"")), ("b", "A", "NOERROR".into())],
        "R11" => {
            vec![("www.c1", "A", "NOERROR\nauthority c1.example.com. NS ns.c1.example.com.".into())]
        }
        "R12" => vec![("k", "TXT", positive("k", &txt))],
        "R13" => vec![("s2", "TXT", positive("s2", "TXT \"a;b\""))],
        "R15" => vec![("d", "A", positive("d", "A 192.0.2.98"))],
        _ => Vec::new(),
    }
}

fn parse(rest: &Value) -> RrSet {
    let rrtype = RrType::parse(rest["type"].as_str().unwrap()).unwrap();
    let owner =
        headwater_events::dns::OwnerName::parse(rest["name"].as_str().unwrap(), &domain(ZONE)).unwrap();
    let values = rest["values"].as_array().unwrap().iter();
    let records = values.map(|value| value.as_str().unwrap().to_owned()).collect();
    let input = RrSetInput { ttl: rest["ttl"].as_i64().unwrap_or(3_600), records, comment: None };
    RrSet::new(owner, rrtype, &input, &domain(ZONE)).unwrap()
}

/// What stands in the way of reading a script: rows R09 and R10 say it in words.
fn script(id: &str, rest: &Value) -> Vec<Value> {
    let json = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    match id {
        "R09" => vec![
            json(r#"{"name": "*.w.example.com.", "type": "A", "ttl": 300, "values": ["192.0.2.80"]}"#),
            json(r#"{"name": "a.b.w.example.com.", "type": "A", "ttl": 300, "values": ["192.0.2.81"]}"#),
        ],
        "R10" => vec![
            json(r#"{"name": "a.b.example.com.", "type": "A", "ttl": 300, "values": ["192.0.2.1"]}"#),
            json(r#"{"name": "b.example.com.", "type": "TXT", "ttl": 300, "values": ["\"now real\""]}"#),
        ],
        _ => match rest {
            Value::Array(list) => list.clone(),
            one => vec![one.clone()],
        },
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_cases_are_answered_right() {
    let lab = Lab::start(1).await;
    lab.create(ZONE).await;
    lab.current(ZONE).await;
    let table = include_str!("../../cases/pdns_render.tsv");
    let mut seen = 0;
    for line in table.lines().filter(|line| line.starts_with('R')) {
        let fields: Vec<&str> = line.split('\t').collect();
        let id = fields[0];
        if ELSEWHERE.iter().any(|(other, _)| *other == id) {
            continue;
        }
        seen += 1;
        if id == "R19" {
            serials(&lab).await;
            continue;
        }
        let rest: Value = serde_json::from_str(fields[2]).unwrap();
        let sets: Vec<RrSet> = script(id, &rest).iter().map(parse).collect();
        for set in &sets {
            lab.domain(ZONE, DomainCommand::PutRrset(set.clone())).await;
            // One after the other, so that empty non-terminals come and are replaced.
            lab.current(ZONE).await;
        }
        if id == "R09" {
            lab.delete(ZONE, "a.b.w", RrType::A).await;
            lab.current(ZONE).await;
        }
        let questions = answers(id);
        assert!(!questions.is_empty(), "{id} has no questions here");
        for (name, rrtype, answer) in questions {
            assert_eq!(lab.dig(0, &format!("{name}.{ZONE}"), rrtype), answer, "{id}: {name} {rrtype}");
        }
        for set in sets.iter().filter(|set| !(id == "R09" && set.owner().as_str() == "a.b.w")) {
            let (owner, rrtype) = (set.owner().clone(), set.rr_type());
            lab.domain(ZONE, DomainCommand::DeleteRrset { owner, rrtype }).await;
        }
        lab.current(ZONE).await;
    }
    assert_eq!(seen + ELSEWHERE.len(), 20);
    // Everything is gone again: what is left is the apex.
    let left: i64 =
        sqlx::query_scalar("select count(*) from records").fetch_one(&lab.target(0).await).await.unwrap();
    assert_eq!(left, 3);
}

/// R19: the serial follows the mutation, and nothing else.
async fn serials(lab: &Lab) {
    let serial = || {
        let soa = lab.dig(0, ZONE, "SOA");
        soa.split(' ').nth(5).unwrap().parse::<u32>().unwrap()
    };
    lab.put(ZONE, "s", RrType::A, &["192.0.2.1"]).await;
    lab.current(ZONE).await;
    let first = serial();
    assert!(!lab.put(ZONE, "s", RrType::A, &["192.0.2.1"]).await.changed);
    assert_eq!(serial(), first);
    lab.put(ZONE, "s", RrType::A, &["192.0.2.2"]).await;
    lab.current(ZONE).await;
    assert_eq!(serial(), first + 1);
    lab.delete(ZONE, "s", RrType::A).await;
    lab.current(ZONE).await;
}

async fn rows(pool: &PgPool) -> Vec<(String, Option<String>, Option<String>, bool, Option<String>)> {
    sqlx::query_as("select name, type, content, auth, ordername from records order by 1, 2 nulls first, 3")
        .fetch_all(pool)
        .await
        .unwrap()
}

fn pdnsutil(lab: &Lab, args: &[&str]) -> (bool, String) {
    let url = lab.stack.clusters[0].database_url();
    let rest = url.expose().strip_prefix("postgres://").unwrap();
    let (credentials, place) = rest.split_once('@').unwrap();
    let (user, password) = credentials.split_once(':').unwrap();
    let (address, database) = place.split_once('/').unwrap();
    let (host, port) = address.split_once(':').unwrap();
    let dir = crate::support::test_home();
    let text = format!(
        "launch=gpgsql\ngpgsql-host={host}\ngpgsql-port={port}\ngpgsql-dbname={database}\ngpgsql-user={user}\n\
         gpgsql-password={password}\ngpgsql-dnssec=yes\n"
    );
    std::fs::write(dir.dir().join("pdns.conf"), text).unwrap();
    let output = Program::new("pdnsutil")
        .arg(format!("--config-dir={}", dir.dir().display()))
        .args(args)
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pdnsutil_finds_nothing_to_say() {
    let lab = Lab::start(1).await;
    lab.create(ZONE).await;
    for (owner, rrtype, record) in [
        ("@", RrType::MX, "10 mail.example.com."),
        ("@", RrType::CAA, "0 issue \"ca.example.net\""),
        ("mail", RrType::AAAA, "2001:db8::1"),
        ("a.b.c", RrType::A, "192.0.2.1"),
        ("*.wild", RrType::TXT, "\"w\""),
        ("_sip._tcp", RrType::SRV, "0 5 5060 mail.example.com."),
        ("alias", RrType::CNAME, "mail.example.com."),
        ("1.2.0.192", RrType::PTR, "mail.example.com."),
        ("sub", RrType::NS, "ns.sub.example.com."),
        ("ns.sub", RrType::A, "192.0.2.7"),
        ("deep.x.sub", RrType::AAAA, "2001:db8::7"),
        ("late.y.cut", RrType::A, "192.0.2.8"),
        ("cut", RrType::NS, "late.y.cut.example.com."),
        ("was.z.open", RrType::A, "192.0.2.9"),
        ("open", RrType::NS, "was.z.open.example.com."),
    ] {
        lab.put(ZONE, owner, rrtype, &[record]).await;
    }
    lab.current(ZONE).await;
    // A cut that goes uncovers what was below it.
    lab.delete(ZONE, "open", RrType::NS).await;
    lab.current(ZONE).await;
    // The check would take the keys of the signed zone away: they are not ours.
    lab.leave_alone().await;
    let target = lab.target(0).await;
    let before = rows(&target).await;
    let (good, said) = pdnsutil(&lab, &["check-zone", ZONE]);
    // It would spell absolute names without the final dot; both are served alike (R06).
    let other = |line: &&str| line.starts_with('[') && !line.contains("Parsed and original record content");
    assert!(good && said.contains(" 0 errors") && said.lines().find(other).is_none(), "{said}");
    // Of an unsigned zone it would take the sort keys away; of a signed one it sets what must be.
    for args in [["secure-zone", ZONE], ["rectify-zone", ZONE]] {
        let (good, said) = pdnsutil(&lab, &args);
        assert!(good, "{said}");
    }
    assert_eq!(rows(&target).await, before);
    assert_eq!(
        lab.dig(0, "was.z.open.example.com", "A"),
        "NOERROR\nanswer was.z.open.example.com. A 192.0.2.9"
    );
    let referral = "NOERROR\nauthority sub.example.com. NS ns.sub.example.com.";
    assert_eq!(lab.dig(0, "www.sub.example.com", "A"), referral);
    assert_eq!(
        lab.dig(0, "y.cut.example.com", "A").lines().nth(1).unwrap().split(' ').nth(1),
        Some("cut.example.com.")
    );
}
