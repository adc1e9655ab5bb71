//! Zone texts through a real PowerDNS: every accepted row of `dns_values.tsv` and every accepted zone of the cases is taken
//! in, and what PowerDNS answers is judged by its octets.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command as Program;
use std::sync::Arc;

use headwater_events::dns::{DomainName, OwnerName, Rdata, RrSet, RrSetInput, RrType};
use headwater_events::domain::{Comparison, DomainCommand, ImportMode, ZoneImport};
use headwater_events::ids::{DomainId, Revision};
use headwater_events::zonetext;

use super::lab::{Lab, domain};

fn cases() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases")
}

/// Takes a text into a domain that was just made.
async fn import(lab: &Lab, name: &str, id: DomainId, text: &[u8]) {
    let read = zonetext::read(text, &domain(name), 100_000);
    let read = read.unwrap_or_else(|faulty| panic!("{name}: {faulty:?}"));
    let (_, changes) = Comparison::new(&read.rrsets, ImportMode::Replace).finish();
    let import = ZoneImport {
        domain: id,
        through: Revision::new(1),
        changes: Arc::new(changes),
        serial: read.serial,
        warnings: read.warnings,
    };
    assert!(lab.domain(name, DomainCommand::ImportZone(Box::new(import))).await.changed, "{name}");
    lab.current(name).await;
}

/// Status, whether the answer is authoritative, and the octets of the answers of the type in hexadecimal.
fn ask(server: SocketAddr, name: &str, rrtype: RrType) -> (String, bool, BTreeSet<String>) {
    let output = Program::new("dig")
        .arg(format!("@{}", server.ip()))
        .args(["-p", &server.port().to_string(), "+norec", "+noall", "+comments", "+answer"])
        .args(["+unknownformat", "+tcp", "+tries=1", "+time=5", "+nosplit"])
        .args(["-q", name, "-t", &format!("TYPE{}", rrtype.code())])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let status = text.split("status: ").nth(1).and_then(|rest| rest.split(',').next()).unwrap_or("NONE");
    let flags = text.split("flags: ").nth(1).and_then(|rest| rest.split(';').next()).unwrap_or_default();
    let wanted = format!("TYPE{}", rrtype.code());
    let mut found = BTreeSet::new();
    for line in text.lines().filter(|line| !line.starts_with(';') && !line.is_empty()) {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        if fields.get(3) == Some(&wanted.as_str()) {
            found.insert(fields[6..].concat().to_ascii_lowercase());
        }
    }
    (status.to_owned(), flags.split(' ').any(|flag| flag == "aa"), found)
}

/// The octets, with names in lower case.
fn octets(rdata: &Rdata) -> String {
    hex::encode(rdata.wire())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_accepted_value_is_answered() {
    let lab = Lab::start(1).await;
    let id = lab.create("example.com").await;
    let zone = domain("example.com");
    let table = std::fs::read_to_string(cases().join("dns_values.tsv")).unwrap();
    let (mut text, mut wanted) = (String::from("$TTL 3600\n"), Vec::new());
    for line in table.lines().filter(|line| line.starts_with('V')) {
        let columns: Vec<&str> = line.split('\t').collect();
        let [id, _, ty, owner, _, enc, input, ..] = columns[..] else { panic!("{line}") };
        let input = match enc {
            "raw" => input.to_owned(),
            "json" => serde_json::from_str(input).unwrap(),
            _ => continue,
        };
        let Ok(ty) = RrType::parse(ty) else { continue };
        let under = if owner.starts_with('_') { format!("{owner}.") } else { String::new() };
        let name = OwnerName::parse(&format!("{under}{id}"), &zone).unwrap();
        let value = RrSetInput { ttl: 3600, records: vec![input], comment: None };
        // A delegation is answered with a referral, which the zones of the cases show.
        if ty == RrType::NS {
            continue;
        }
        let Ok(set) = RrSet::new(name, ty, &value, &zone) else { continue };
        text.push_str(&zonetext::line(set.owner(), 3600, ty, set.records()[0].as_text(), false));
        wanted.push((id, set));
    }
    assert!(wanted.len() > 140, "{}", wanted.len());
    import(&lab, "example.com", id, text.as_bytes()).await;
    let server = lab.stack.clusters[0].pdns.address();
    let mut wrong = Vec::new();
    for (id, set) in &wanted {
        let name = format!("{}.", set.owner().absolute(&zone));
        let (status, _, found) = ask(server, &name, set.rr_type());
        let right = BTreeSet::from([octets(&set.records()[0])]);
        if status != "NOERROR" || found != right {
            wrong.push(format!("{id} {:?}: {status} {found:?} is not {right:?}", set.records()[0]));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), wanted.len(), wrong.join("\n"));
}

/// The name of the zone of a case in this test, and a text of the case with it.
fn renamed(id: &str, text: &str) -> (String, String) {
    let name = if id == "zone21" { "2.0.192.in-addr.arpa".to_owned() } else { format!("{id}.test") };
    let text = if id == "zone21" {
        text.to_owned()
    } else {
        text.replace("example.com", &name).replace("EXAMPLE.com", &name)
    };
    (name, text)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_accepted_zone_is_answered() {
    let lab = Lab::start(1).await;
    let server = lab.stack.clusters[0].pdns.address();
    let index = std::fs::read_to_string(cases().join("zones/index.tsv")).unwrap();
    let (mut wrong, mut asked) = (Vec::new(), 0);
    for row in index.lines().filter(|line| line.contains("\taccept\t")) {
        let id = row.split('\t').next().unwrap();
        let case = |end: &str| std::fs::read_to_string(cases().join(format!("zones/{id}.{end}")));
        let (name, text) = renamed(id, &case("zone").unwrap());
        let made = lab.create(&name).await;
        import(&lab, &name, made, text.as_bytes()).await;
        let zone = domain(&name);
        if id != "zone11" && id != "zone19" {
            for line in
                renamed(id, &case("expected.tsv").unwrap()).1.lines().filter(|line| !line.starts_with('#'))
            {
                asked += 1;
                wrong.extend(compare(server, &zone, line).map(|told| format!("{id}: {told}")));
            }
        }
        let Ok(queries) = case("queries.tsv") else { continue };
        for line in renamed(id, &queries).1.lines().filter(|line| !line.starts_with('#')) {
            asked += 1;
            wrong.extend(query(server, &zone, line).map(|told| format!("{id}: {told}")));
        }
    }
    assert!(asked > 100, "only {asked} questions");
    assert!(wrong.is_empty(), "{} of {asked}:\n{}", wrong.len(), wrong.join("\n"));
}

/// Asks for one expected record, unless the platform has its own in its place or another zone is asked for it.
fn compare(server: SocketAddr, zone: &DomainName, line: &str) -> Option<String> {
    let row: Vec<&str> = line.split('\t').collect();
    let ty = RrType::parse(row[2]).unwrap();
    if matches!(ty, RrType::SOA | RrType::NS) {
        return None;
    }
    let wanted = octets(&Rdata::parse(ty, row[3], zone).unwrap_or_else(|fault| panic!("{line}: {fault}")));
    let (status, authoritative, found) = ask(server, row[0], ty);
    let right = status == "NOERROR" && authoritative && found.contains(&wanted);
    (!right).then(|| format!("{line}: {status} {authoritative} {found:?}"))
}

fn query(server: SocketAddr, zone: &DomainName, line: &str) -> Option<String> {
    let row: Vec<&str> = line.split('\t').collect();
    let (ty, outcome) = (RrType::parse(row[1]).unwrap(), row[2]);
    let (status, authoritative, found) = ask(server, row[0], ty);
    let right = match outcome {
        "NOERROR" => {
            let wanted =
                octets(&Rdata::parse(ty, row[3], zone).unwrap_or_else(|fault| panic!("{line}: {fault}")));
            status == "NOERROR" && authoritative && found.contains(&wanted)
        }
        "NODATA" => status == "NOERROR" && authoritative && found.is_empty(),
        "REFERRAL" => status == "NOERROR" && !authoritative && found.is_empty(),
        other => status == other && authoritative,
    };
    (!right).then(|| format!("{line}: {status} {authoritative} {found:?}"))
}
