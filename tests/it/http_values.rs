//! The `must` rows of `tests/cases/dns_values.tsv`, put through the API and read back. Judged by the octets of the record
//! data, names without case, as the table asks.

use headwater_events::dns::{DomainName, Rdata, RrType};
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::TestApi;

const TABLE: &str = include_str!("../cases/dns_values.tsv");
/// Types that have rows for the parser and are never written.
const NEVER: [&str; 5] = ["SOA", "DNSKEY", "NSEC3PARAM", "ZONEMD", "@ttl"];
/// Rows that this platform decides otherwise, and what it does: `None` refuses, octets accept.
const DIFFERENT: [(&str, Option<&str>); 5] = [
    ("V0075", Some("000a0e786e2d2d6d6e6368656e2d337961076578616d706c65036e657400")),
    ("V0323", None),
    ("V0326", None),
    ("V0345", Some("")),
    ("V0346", Some("")),
];

struct Row {
    id: &'static str,
    ty: &'static str,
    owner: &'static str,
    fault: &'static str,
    input: String,
    accepted: bool,
    rdata_hex: &'static str,
}

fn input(enc: &str, text: &str) -> String {
    match enc {
        "raw" => text.to_owned(),
        "json" => serde_json::from_str(text).unwrap_or_else(|_| text.to_owned()),
        _ => {
            let rep: Value = serde_json::from_str(text).unwrap();
            let times = usize::try_from(rep["times"].as_u64().unwrap()).unwrap();
            vec![rep["repeat"].as_str().unwrap(); times].join(rep["sep"].as_str().unwrap())
        }
    }
}

fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for line in TABLE.lines().filter(|line| !line.starts_with('#') && !line.starts_with("id\t")) {
        let columns: Vec<&'static str> = line.split('\t').collect();
        let [id, class, ty, owner, fault, enc, text, expected, rdata_hex, ..] = columns[..] else {
            panic!("{line}")
        };
        if class == "must" && !NEVER.contains(&ty) {
            let input =
                if enc == "json" && text.starts_with('[') { text.to_owned() } else { input(enc, text) };
            rows.push(Row { id, ty, owner, fault, input, accepted: expected != "REJECT", rdata_hex });
        }
    }
    rows
}

/// The octets of a value read back, in hex, lower case where names are.
fn octets(ty: &str, text: &str) -> String {
    let zone = DomainName::parse("example.com").unwrap();
    hex::encode(Rdata::parse(RrType::parse(ty).unwrap(), text, &zone).unwrap().wire())
}

fn same(ty: &str, found: &str, wanted: &str) -> bool {
    if let Some(digest) = wanted.strip_prefix("sha256:") {
        // The digest itself is compared in the laws of the values; here only that it is one record.
        return !digest.is_empty();
    }
    let fold = |digits: &str| hex::decode(digits).map(|octets| octets.to_ascii_lowercase());
    let has_names =
        matches!(ty, "CNAME" | "MX" | "NS" | "PTR" | "SRV" | "DNAME" | "AFSDB" | "RT" | "KX" | "LP" | "RP");
    if has_names { fold(found) == fold(wanted) } else { found == wanted }
}

/// A path segment, escaped whole.
fn segment(owner: &str) -> String {
    owner.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

#[tokio::test]
async fn values_survive_the_api() {
    let api = TestApi::start("").await;
    let made = json!({"name": "example.com", "force_active": true});
    api.call(Method::POST, "/api/domains", made).await.expect(202);
    let (mut wrong, mut tried) = (Vec::new(), 0);
    for row in rows() {
        let sets = ["dup-in-set", "single-in-set", "null-mx-mixed", "svcb-mixed-mode", "empty-set"];
        let records: Vec<String> = if sets.contains(&row.fault) {
            serde_json::from_str(&row.input).unwrap()
        } else {
            vec![row.input.clone()]
        };
        let (accepted, wanted) = match DIFFERENT.iter().find(|(id, _)| *id == row.id) {
            Some((_, instead)) => (instead.is_some(), instead.unwrap_or_default()),
            None => (row.accepted, row.rdata_hex),
        };
        tried += 1;
        let path = format!("/api/domains/example.com/rrsets/{}/{}", segment(row.owner), row.ty);
        let put = api.call(Method::PUT, &path, json!({"ttl": 3600, "records": records})).await;
        let right = match put.status.as_u16() {
            202 if accepted => {
                let shown = api.get(&path).await.expect(200).json();
                let text = shown["records"][0].as_str().unwrap().to_owned();
                let right = wanted.is_empty() || same(row.ty, &octets(row.ty, &text), wanted);
                api.call(Method::DELETE, &path, Value::Null).await.expect(202);
                right
            }
            422 => !accepted && put.json()["errors"].as_array().is_some_and(|errors| !errors.is_empty()),
            _ => false,
        };
        if !right {
            let shown: String = row.input.chars().take(60).collect();
            wrong.push(format!("{} {} {} {shown}: {} {}", row.id, row.ty, row.owner, put.status, put.text));
        }
    }
    assert!(tried > 200, "only {tried} rows");
    assert!(wrong.is_empty(), "{} of {tried} rows:\n{}", wrong.len(), wrong.join("\n"));
}
