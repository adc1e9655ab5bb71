//! Hostile strings: refused by name where a grammar says so, else carried as data, byte for byte.

use headwater_edge_wire::artifact::{Artifact, ArtifactBudget, CheckedArtifact, Scheme};
use headwater_edge_wire::check::FaultCode;
use headwater_edge_wire::compiled::{CompileRefusal, CompiledDomain, OpenedKeys, compile};
use headwater_edge_wire::ids::Version;

use super::given::*;

/// What must never be in a name, a host, a `Host` field or a path.
const NEVER: &[&str] = &[
    "\r",
    "\n",
    "\r\nX-Injected: 1",
    "\0",
    "\t",
    "\u{b}",
    "\u{7f}",
    "\u{85}",
    "\u{2028}",
    " ",
    "é",
    "\u{202e}",
];
/// What must not be in a name, but may be in a path.
const DATA: &[&str] = &[
    "'",
    "\"",
    "\\",
    "\\u000a",
    "[[",
    "]]",
    "[==[",
    "]==]--",
    "${host}",
    "$request_uri",
    ";",
    "{",
    "}",
    "%0d%0a",
    "<script>",
    "`id`",
    "--",
    "..",
    "|",
    "%s",
    "?a=b&c",
    "//",
];

type Change = fn(&mut Artifact);
type Set = fn(&mut Artifact, String);

fn faults(change: impl FnOnce(&mut Artifact)) -> Vec<(String, FaultCode)> {
    let mut artifact = artifact();
    change(&mut artifact);
    // The wire carries whatever JSON can hold; only the rules decide.
    let read = Artifact::parse(&bytes_of(&artifact), ArtifactBudget::default()).unwrap();
    assert_eq!(read, artifact);
    read.check().into_iter().map(|fault| (fault.pointer, fault.code)).collect()
}

fn syntax(pointer: &str) -> (String, FaultCode) {
    (pointer.to_owned(), FaultCode::Syntax)
}

#[test]
fn every_string_field_refuses_what_could_end_a_line() {
    for hostile in NEVER {
        let bad = format!("a{hostile}b");
        assert!(faults(|a| a.domain.clone_from(&bad)).contains(&syntax("/domain")), "{bad:?}");
        let name = format!("{bad}.example.com");
        assert_eq!(faults(|a| a.hostnames[1].name = name.clone())[0], syntax("/hostnames/1/name"), "{bad:?}");
        let fields: [(&str, Set); 5] = [
            ("/hostnames/1/origin/host", |a, bad| a.hostnames[1].origin.host = bad),
            ("/hostnames/1/origin/host_header", |a, bad| a.hostnames[1].origin.host_header = bad),
            ("/hostnames/1/origin/sni", |a, bad| a.hostnames[1].origin.sni = Some(bad)),
            ("/hostnames/1/backup/origin/host", |a, bad| {
                a.hostnames[1].backup.as_mut().unwrap().origin.host = bad;
            }),
            ("/certificates/0/chain_pem", |a, bad| a.certificates[0].chain_pem = bad),
        ];
        for (pointer, set) in fields {
            assert_eq!(faults(|a| set(a, bad.clone())), [syntax(pointer)], "{bad:?}");
        }
        let path = format!("/{bad}");
        assert_eq!(
            faults(|a| a.hostnames[1].health.as_mut().unwrap().path = path.clone()),
            [syntax("/hostnames/1/health/path")]
        );
        let names = vec![name];
        assert_eq!(faults(|a| a.certificates[0].names = names), [syntax("/certificates/0/names/0")]);
    }
}

#[test]
fn what_a_path_may_hold_is_carried_as_data() {
    for data in DATA {
        let name = format!("a{data}.example.com");
        if *data != "--" {
            assert_eq!(
                faults(|a| a.hostnames[1].name = name.clone())[0],
                syntax("/hostnames/1/name"),
                "{data}"
            );
        }
        let path = format!("/a{data}b");
        assert_eq!(faults(|a| a.hostnames[1].health.as_mut().unwrap().path.clone_from(&path)), [], "{data}");
    }
}

/// A line of the cell has one line feed, at its end, whatever it holds.
#[test]
fn a_line_stays_a_line() {
    let line = super::golden::compiled().line().unwrap();
    assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
    let read = CompiledDomain::parse(line.strip_suffix(b"\n").unwrap()).unwrap();
    assert_eq!(read, super::golden::compiled());
    assert_eq!(read.certs[0].chain, LEAF);
}

#[test]
fn names_stay_inside_their_domain() {
    let outside = |name: &str| faults(|a| a.hostnames[1].name = name.to_owned());
    for name in ["www.example.org", "example.com.evil.org", "zexample.com", "com", "*.com"] {
        assert!(outside(name).contains(&("/hostnames/1/name".into(), FaultCode::OutsideDomain)), "{name}");
    }
    for name in
        ["WWW.example.com", "www.example.com.", "a.*.example.com", "**.example.com", ".example.com", ""]
    {
        assert!(outside(name).contains(&syntax("/hostnames/1/name")), "{name}");
    }
    assert_eq!(outside("_x.example.com"), []);
    assert_eq!(outside("example.com"), []);
    let label = "l".repeat(64);
    assert_eq!(outside(&format!("{label}.example.com")), [syntax("/hostnames/1/name")]);
    assert_eq!(outside(&format!("{}.example.com", &label[1..])), []);
}

#[test]
fn hosts_have_one_spelling() {
    let host = |host: &str| faults(|a| a.hostnames[1].origin.host = host.to_owned()).is_empty();
    for good in
        ["origin.example.org", "192.0.2.1", "2001:db8::1", "localhost", "1.example", "xn--bcher-kva.example"]
    {
        assert!(host(good), "{good}");
    }
    for bad in [
        "127.1",
        "2130706433",
        "0x7f.1",
        "0x7f000001",
        "127.0.0.0x1",
        "0177.0.0.1",
        "[::1]",
        "::FFFF:127.0.0.1",
        "2001:db8:0::1",
        "fe80::1%eth0",
        "a:80",
        "user@host",
        "a..b",
        "",
        "bücher.example",
        "Origin.example.org",
    ] {
        assert!(!host(bad), "{bad}");
    }
    let header = |text: &str| faults(|a| a.hostnames[1].origin.host_header = text.to_owned()).is_empty();
    for good in
        ["www.example.com", "www.example.com:8080", "192.0.2.1:80", "[2001:db8::1]", "[2001:db8::1]:443"]
    {
        assert!(header(good), "{good}");
    }
    for bad in [
        "www.example.com:",
        "www.example.com:0",
        "a:65536",
        "a:080",
        "a:+80",
        "[::1",
        "[::1]x",
        "[a]",
        "2001:db8::1",
        "a, b",
    ] {
        assert!(!header(bad), "{bad}");
    }
}

#[test]
fn numbers_end_at_their_bounds() {
    let rows: [(&str, Change); 14] = [
        ("/revision", |a| a.revision = headwater_edge_wire::ids::Revision::ZERO),
        ("/hostnames/0/origin/port", |a| a.hostnames[0].origin.port = 0),
        ("/hostnames/0/origin/connect_timeout_ms", |a| a.hostnames[0].origin.connect_timeout_ms = 99),
        ("/hostnames/0/origin/connect_timeout_ms", |a| a.hostnames[0].origin.connect_timeout_ms = 10_001),
        ("/hostnames/0/origin/response_timeout_ms", |a| a.hostnames[0].origin.response_timeout_ms = 60_001),
        ("/hostnames/0/origin/retries", |a| a.hostnames[0].origin.retries = 3),
        ("/hostnames/1/backup/failure_threshold", |a| {
            a.hostnames[1].backup.as_mut().unwrap().failure_threshold = 21;
        }),
        ("/hostnames/1/backup/hold_down_seconds", |a| {
            a.hostnames[1].backup.as_mut().unwrap().hold_down_seconds = 4;
        }),
        ("/hostnames/1/backup/failback_delay_seconds", |a| {
            a.hostnames[1].backup.as_mut().unwrap().failback_delay_seconds = 86_401;
        }),
        ("/hostnames/1/health/interval_seconds", |a| {
            a.hostnames[1].health.as_mut().unwrap().interval_seconds = 59;
        }),
        ("/cache/edge_ttl_seconds", |a| a.cache.edge_ttl_seconds = 31_536_001),
        ("/cache/maximum_object_bytes", |a| a.cache.maximum_object_bytes = (1 << 20) - 1),
        ("/cache/stale_if_error_seconds", |a| a.cache.stale_if_error_seconds = 86_401),
        ("/certificates/0/version", |a| a.certificates[0].version = Version::ZERO),
    ];
    for (pointer, change) in rows {
        assert_eq!(faults(change), [(pointer.to_owned(), FaultCode::OutOfRange)]);
    }
}

#[test]
fn every_fault_is_named_at_once() {
    let found = faults(|a| {
        a.hostnames.reverse();
        a.hostnames[0].origin.scheme = Scheme::Https;
        a.certificates[0].names.clear();
        a.cache.browser_ttl_seconds = u32::MAX;
    });
    let expected = [
        ("/hostnames/0/origin/sni", FaultCode::Missing),
        ("/hostnames/1/name", FaultCode::Order),
        ("/cache/browser_ttl_seconds", FaultCode::OutOfRange),
        ("/certificates/0/names", FaultCode::Count),
    ];
    assert_eq!(found, expected.map(|(pointer, code)| (pointer.to_owned(), code)));
    assert_eq!(faults(|a| a.hostnames = vec![hostname("x"); 2_000]).len(), 1_000);
    assert_eq!(faults(|a| a.certificates = vec![a.certificates[0].clone(); 65]).len(), 1 + 64);
}

#[test]
fn no_key_can_stand_in_an_artifact() {
    for chain in
        [LEAF_KEY.to_owned(), format!("{LEAF}{LEAF_KEY}"), format!("{LEAF} "), LEAF.replace('\n', "\r\n")]
    {
        assert_eq!(faults(|a| a.certificates[0].chain_pem = chain), [syntax("/certificates/0/chain_pem")]);
    }
    assert_eq!(faults(|a| a.certificates[0].chain_pem = format!("{LEAF}{LEAF}")), []);
    let fitting = (80 << 10) / LEAF.len();
    assert_eq!(faults(|a| a.certificates[0].chain_pem = LEAF.repeat(fitting)), []);
    let chain = LEAF.repeat(fitting + 1);
    assert_eq!(faults(|a| a.certificates[0].chain_pem = chain), [syntax("/certificates/0/chain_pem")]);
}

#[test]
fn a_certificate_needs_its_own_key() {
    let compile = |artifact: Artifact, key: Option<&str>| {
        let checked: CheckedArtifact = artifact.checked().unwrap();
        let mut keys = OpenedKeys::new();
        if let Some(key) = key {
            keys.insert(certificate_id(9), Version::from(1), secret(key));
        }
        compile(&checked, &keys).map_err(|refusal: CompileRefusal| refusal.code())
    };
    let compiled = compile(artifact(), Some(LEAF_KEY)).unwrap();
    assert_eq!(compiled.certs[0].key_file, format!("keys/{}-1.pem", certificate_id(9)));
    assert_eq!(compile(artifact(), None).unwrap_err(), "key_missing");
    assert_eq!(compile(artifact(), Some("no key")).unwrap_err(), "key_unreadable");
    assert_eq!(compile(artifact(), Some(OTHER_KEY)).unwrap_err(), "key_mismatch");
    let mut broken = artifact();
    broken.certificates[0].chain_pem =
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".into();
    assert_eq!(compile(broken, Some(LEAF_KEY)).unwrap_err(), "chain_unreadable");
}

#[test]
fn the_stricter_of_origin_and_profile_wins() {
    use headwater_edge_wire::artifact::{Profile, Security};
    let mut artifact = artifact();
    artifact.security = Security { profile: Profile::Quarantine };
    artifact.certificates.clear();
    artifact.hostnames[1].origin.connect_timeout_ms = 500;
    let compiled = compile(&artifact.checked().unwrap(), &OpenedKeys::new()).unwrap();
    let wild = &compiled.hosts["*.example.com"].origin;
    assert_eq!((wild.connect_timeout_ms, wild.response_timeout_ms, wild.retries), (1_000, 10_000, 0));
    let host = &compiled.hosts["www.example.com"];
    assert_eq!(host.origin.connect_timeout_ms, 500);
    assert_eq!(host.origin.authority, "origin.example.org:80");
    assert_eq!(host.backup.as_ref().unwrap().origin.authority, "[2001:db8::1]:8443");
}
