//! Every row of `tests/cases/dns_values.tsv` that is about values.
//!
//! A row is judged by its octets (names without case), as the table asks. [`DIFFERENT`] lists each row that the
//! contract of the platform, or the division of work, decides otherwise.

use headwater_events::dns::{DomainName, FaultCode, OwnerName, Rdata, RrSet, RrSetInput, RrType, Ttl};

use crate::{dns_oracle, sha256};

/// What we do instead of what a row expects.
enum Instead {
    /// Accept it, with these octets.
    Accept(&'static str),
    /// Refuse the owner with this code.
    RefuseOwner(FaultCode),
    /// Fold the duplicates to one record.
    Fold,
    /// A value is right on its own; the rule is one of the zone, judged where the whole zone is known.
    ZoneRule,
}

const DIFFERENT: [(&str, Instead, &str); 9] = [
    (
        "V0075",
        Instead::Accept("000a0e786e2d2d6d6e6368656e2d337961076578616d706c65036e657400"),
        "U-labels are taken and stored as A-labels",
    ),
    ("V0323", Instead::ZoneRule, "no CNAME at the apex: SOA and NS stand there"),
    ("V0324", Instead::ZoneRule, "no DS at the apex"),
    ("V0326", Instead::ZoneRule, "NS at a wildcard"),
    ("V0327", Instead::ZoneRule, "DNAME at a wildcard"),
    ("V0329", Instead::RefuseOwner(FaultCode::InvalidName), "`*` is the whole leftmost label or nothing"),
    ("V0334", Instead::Accept("0178"), "U-labels are taken and stored as A-labels"),
    ("V0345", Instead::Fold, "duplicates after canonicalization are one record"),
    ("V0346", Instead::Fold, "duplicates after canonicalization are one record"),
];

/// Types whose values are names and numbers alone.
const NAMED: [&str; 12] = ["NS", "CNAME", "PTR", "MX", "SRV", "DNAME", "RP", "AFSDB", "RT", "KX", "LP", "PX"];

struct Row<'t> {
    id: &'t str,
    ty: &'t str,
    owner: &'t str,
    fault: &'t str,
    input: String,
    expected: &'t str,
    rdata_hex: &'t str,
}

fn rows(table: &str) -> Vec<Row<'_>> {
    table
        .lines()
        .filter(|line| !line.starts_with('#') && !line.starts_with("id\t"))
        .map(|line| {
            let columns: Vec<_> = line.split('\t').collect();
            let [id, _class, ty, owner, fault, enc, input, expected, rdata_hex, ..] = columns[..] else {
                panic!("{line}")
            };
            let input = match enc {
                "raw" => input.to_owned(),
                "json" => serde_json::from_str(input).unwrap(),
                "jsonrep" => {
                    let rep: serde_json::Value = serde_json::from_str(input).unwrap();
                    let times = usize::try_from(rep["times"].as_u64().unwrap()).unwrap();
                    vec![rep["repeat"].as_str().unwrap(); times].join(rep["sep"].as_str().unwrap())
                }
                other => panic!("{id}: unknown encoding {other}"),
            };
            Row { id, ty, owner, fault, input, expected, rdata_hex }
        })
        .collect()
}

fn zone() -> DomainName {
    DomainName::parse("example.com").unwrap()
}

/// The outcome of one record value under its owner: octets, or what was refused.
fn outcome(row: &Row<'_>) -> Result<Rdata, String> {
    let zone = zone();
    let owner = OwnerName::parse(row.owner, &zone).map_err(|fault| fault.to_string())?;
    let ty = RrType::parse(row.ty).map_err(|fault| fault.to_string())?;
    let input = RrSetInput { ttl: 3600, records: vec![row.input.clone()], comment: None };
    let set = RrSet::new(owner, ty, &input, &zone).map_err(|faults| faults[0].to_string())?;
    Ok(set.records()[0].clone())
}

fn check_octets(row: &Row<'_>, rdata: &Rdata, expected: &str) -> Result<(), String> {
    let got = match expected.strip_prefix("sha256:") {
        Some(_) => format!("sha256:{}", sha256::hex_digest(rdata.wire())),
        None => hex::encode(rdata.wire()),
    };
    // Names without case; the text of strings is compared as it is.
    let named = NAMED.contains(&&*rdata.rr_type().mnemonic());
    let expected = match hex::decode(expected) {
        Ok(octets) if named => hex::encode(octets.to_ascii_lowercase()),
        _ => expected.to_owned(),
    };
    if got != expected {
        return Err(format!("{}: {} {:?} gives {got}, not {expected}", row.id, row.ty, row.input));
    }
    if Rdata::parse(rdata.rr_type(), rdata.as_text(), &zone()).as_ref() != Ok(rdata) {
        return Err(format!("{}: {:?} does not read back", row.id, rdata));
    }
    match dns_oracle::octets(rdata.rr_type(), rdata.as_text()) {
        _ if !dns_oracle::knows(rdata.rr_type(), rdata.as_text()) => Ok(()),
        Some(octets) if octets == rdata.wire() => Ok(()),
        other => Err(format!("{}: a zone file reader makes {other:?} of {rdata:?}", row.id)),
    }
}

fn check_value(row: &Row<'_>) -> Result<(), String> {
    match (outcome(row), row.expected) {
        (Err(_), "REJECT") => Ok(()),
        (Ok(rdata), "REJECT") => {
            Err(format!("{}: {} {:?} ({}) is taken as {rdata:?}", row.id, row.ty, row.input, row.fault))
        }
        (Ok(rdata), _) => check_octets(row, &rdata, row.rdata_hex),
        (Err(why), _) => {
            Err(format!("{}: {} {:?} ({}) is refused: {why}", row.id, row.ty, row.input, row.fault))
        }
    }
}

fn check_different(row: &Row<'_>, instead: &Instead) -> Result<(), String> {
    match instead {
        Instead::Accept(octets) => check_octets(row, &outcome(row)?, octets),
        Instead::RefuseOwner(code) => match OwnerName::parse(row.owner, &zone()) {
            Err(fault) if fault.code == *code => Ok(()),
            other => Err(format!("{}: {other:?}", row.id)),
        },
        Instead::Fold => match list_outcome(row)? {
            Ok(1) => Ok(()),
            other => Err(format!("{}: {other:?}", row.id)),
        },
        Instead::ZoneRule => outcome(row).map(|_| ()),
    }
}

/// The outcome of a list of values: how many records the set has, or its faults.
fn list_outcome(row: &Row<'_>) -> Result<Result<usize, Vec<FaultCode>>, String> {
    let ty = RrType::parse(row.ty).map_err(|fault| fault.to_string())?;
    let records = serde_json::from_str(&row.input).map_err(|error| format!("{}: {error}", row.id))?;
    let input = RrSetInput { ttl: 3600, records, comment: None };
    let set = RrSet::new(OwnerName::apex(), ty, &input, &zone());
    Ok(set.map(|set| set.records().len()).map_err(|faults| faults.iter().map(|fault| fault.code).collect()))
}

fn check_list(row: &Row<'_>) -> Result<(), String> {
    match list_outcome(row)? {
        Err(_) if row.expected == "REJECT" => Ok(()),
        other => Err(format!("{}: {other:?}", row.id)),
    }
}

fn check_ttl(row: &Row<'_>) -> Result<(), String> {
    match (serde_json::from_str::<Ttl>(&row.input), row.expected) {
        (Err(_), "REJECT") => Ok(()),
        (Ok(ttl), expected) if ttl.to_string() == expected => Ok(()),
        (other, _) => Err(format!("{}: {other:?}", row.id)),
    }
}

/// A type that is not written is refused as such, whatever its value.
fn check_unwritable(row: &Row<'_>) -> Result<(), String> {
    let code = RrType::parse(row.ty)
        .and_then(|ty| Rdata::parse(ty, &row.input, &zone()))
        .map_err(|fault| fault.code);
    match code {
        Err(FaultCode::UnsupportedType) => Ok(()),
        other => Err(format!("{}: {} {other:?}", row.id, row.ty)),
    }
}

#[test]
fn real_values() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/cases/dns_values.tsv");
    let table = std::fs::read_to_string(path).unwrap();
    let rows = rows(&table);
    let mut written = 0;
    let mut faults = Vec::new();
    for row in &rows {
        let writable = RrType::parse(row.ty).is_ok_and(|ty| ty.writable().is_ok());
        written += usize::from(writable);
        let verdict = match DIFFERENT.iter().find(|(id, ..)| *id == row.id) {
            Some((_, instead, why)) => {
                check_different(row, instead).map_err(|fault| format!("{fault} ({why})"))
            }
            None if row.ty == "@ttl" => check_ttl(row),
            None if !writable => check_unwritable(row),
            None if ["dup-in-set", "single-in-set", "null-mx-mixed", "svcb-mixed-mode", "empty-set"]
                .contains(&row.fault) =>
            {
                check_list(row)
            }
            None => check_value(row),
        };
        faults.extend(verdict.err());
    }
    assert!(faults.is_empty(), "{} of {} rows:\n{}", faults.len(), rows.len(), faults.join("\n"));
    // The table was really read, and the rows of the supported types with it.
    assert!(rows.len() > 340 && written > 320, "{} rows, {written} of supported types", rows.len());
}
