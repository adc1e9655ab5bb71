//! Bytes that every later version must still write and read. A file is never changed: a new shape is a new schema.
//!
//! `HEADWATER_WRITE_GOLDEN=1` makes the files that are missing.

use std::path::{Path, PathBuf};

use headwater_edge_wire::artifact::{Artifact, ArtifactBudget, Profile};
use headwater_edge_wire::canonical;
use headwater_edge_wire::cell::GenerationManifest;
use headwater_edge_wire::checksum::Checksum;
use headwater_edge_wire::compiled::{CompiledDomain, DeltaLine, OpenedKeys, compile};
use headwater_edge_wire::frame::{FRAME_END, encode_artifact, encode_page};
use headwater_edge_wire::ids::*;
use headwater_edge_wire::manifest::Page;
use headwater_edge_wire::protocol::*;
use headwater_edge_wire::seal::{ContentKey, SealedContentKey, SealedKey, SealingPrivateKey};
use headwater_edge_wire::secret::SecretArray;
use headwater_edge_wire::sign::{Context, Signature};
use headwater_edge_wire::tasks::*;

use super::given::*;

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

/// The golden bytes, which `make` gives where there are none yet and they may be written.
fn golden(name: &str, make: impl FnOnce() -> Vec<u8>) -> Vec<u8> {
    let path = path(name);
    if !path.exists() && std::env::var_os("HEADWATER_WRITE_GOLDEN").is_some() {
        std::fs::write(&path, make()).unwrap();
    }
    std::fs::read(&path)
        .unwrap_or_else(|_| panic!("{name} is missing: set HEADWATER_WRITE_GOLDEN=1 to write it"))
}

fn is_golden(name: &str, bytes: &[u8]) {
    let stored = golden(name, || bytes.to_vec());
    assert_eq!(String::from_utf8_lossy(&stored), String::from_utf8_lossy(bytes), "{name}");
}

pub fn compiled() -> CompiledDomain {
    let mut keys = OpenedKeys::new();
    keys.insert(certificate_id(9), Version::from(1), secret(LEAF_KEY));
    compile(&artifact().checked().unwrap(), &keys).unwrap()
}

#[test]
fn artifacts() {
    let bytes = bytes_of(&artifact());
    is_golden("artifact.1.json", &bytes);
    assert_eq!(Artifact::parse(&bytes, ArtifactBudget::default()).unwrap(), artifact());
    is_golden("artifact.1.blake3", Checksum::of(&bytes).to_string().as_bytes());
}

#[test]
fn pages_and_their_signatures() {
    for (context, name) in [(Context::Manifest, "page.1"), (Context::Snapshot, "snapshot-page.1")] {
        let signed = page().sign(&key(1), context).unwrap();
        is_golden("page.1.json", &signed.bytes);
        is_golden(&format!("{name}.signature"), signed.signature.to_string().as_bytes());
    }
    let stored: Signature = String::from_utf8(golden("page.1.signature", Vec::new)).unwrap().parse().unwrap();
    let read = Page::verify(&golden("page.1.json", Vec::new), &stored, &pins(), reader()).unwrap();
    assert_eq!(read.page(), &page());
}

#[test]
fn frames() {
    let bytes = bytes_of(&artifact());
    let mut stream = encode_artifact(Checksum::of(&bytes), &bytes).unwrap();
    stream.extend(FRAME_END);
    is_golden("artifacts.1.frames", &stream);
    let signed = page().sign(&key(1), Context::Snapshot).unwrap();
    is_golden("page.1.frame", &encode_page(signed.signature, &signed.bytes).unwrap());
}

#[test]
fn files_of_a_cell() {
    is_golden("domains.1.jsonl", &compiled().line().unwrap());
    let put = DeltaLine::Put(Box::new(compiled())).line().unwrap();
    let remove = DeltaLine::Remove(domain_id(2)).line().unwrap();
    is_golden("delta.1.jsonl", &[put.clone(), remove].concat());
    let read = DeltaLine::parse(put.strip_suffix(b"\n").unwrap()).unwrap();
    assert_eq!(read, DeltaLine::Put(Box::new(compiled())));
    let whole = GenerationManifest::whole(Generation::from(3), Epoch::from(1), Sequence::from(13));
    let next = whole.extended(Generation::from(4), Sequence::from(14)).unwrap();
    is_golden("generation.1.json", &next.bytes().unwrap());
    assert_eq!(GenerationManifest::parse(&next.bytes().unwrap()).unwrap(), next);
}

#[test]
fn pins_of_an_edge() {
    is_golden("pins.1.json", &canonical::write(&pins()).unwrap());
}

#[test]
fn limits_of_every_profile() {
    for profile in [Profile::Standard, Profile::Protected, Profile::Quarantine] {
        let bytes = canonical::write(profile.limits()).unwrap();
        let name = serde_json::to_value(profile).unwrap();
        is_golden(&format!("limits.{}.json", name.as_str().unwrap()), &bytes);
    }
}

/// The bodies of the routes: an agent of this version goes on sending and reading exactly these.
#[test]
fn bodies() {
    let value = |value: serde_json::Value| serde_json::to_vec(&value).unwrap();
    let heartbeat = Heartbeat::parse(&value(super::bodies::heartbeat())).unwrap();
    is_golden("heartbeat.1.json", &serde_json::to_vec(&heartbeat).unwrap());
    let applied =
        Applied { cell: CellNumber::first(1)[0], epoch: Epoch::from(1), sequence: Sequence::from(14) };
    is_golden("applied.1.json", &serde_json::to_vec(&applied).unwrap());
    let refused = vec![Refused::new("example.com", Revision::from(7), "checksum", "another checksum")];
    is_golden("rejected.1.json", &serde_json::to_vec(&Rejected { refused }).unwrap());
    let request = ArtifactsRequest { checksums: vec![Checksum::of(b"a"), Checksum::of(b"b")] };
    is_golden("artifacts-request.1.json", &serde_json::to_vec(&request).unwrap());
    let register = RegisterRequest {
        edge: edge_id(100),
        token: Some(secret("hw_token")),
        agent: heartbeat.agent.clone(),
        csr: "csr".into(),
        sealing_key: serde_json::from_value(serde_json::json!(X25519_OF_SEVENS)).unwrap(),
    };
    is_golden("register.1.json", register.to_json().unwrap().expose());
    let answer = RegisterAnswer {
        edge: edge_id(100),
        certificate: "certificate".into(),
        not_after: NOW,
        authorities: "authorities".into(),
        keys: ring(&[1]),
        cells: 8,
        heartbeat_seconds: 15,
    };
    is_golden("register-answer.1.json", &serde_json::to_vec(&answer).unwrap());
    let answer =
        HeartbeatAnswer { sequence: Sequence::from(7), at: NOW, heartbeat_seconds: 15, has_tasks: true };
    is_golden("heartbeat-answer.1.json", &serde_json::to_vec(&answer).unwrap());
    let work = Work::OriginTest { origin: origin(), path: "/".into() };
    let items = vec![Task::new(TaskId::from_uuid(uuid(5)), &work, NOW).unwrap()];
    is_golden("tasks.1.json", &serde_json::to_vec(&TaskPage { items }).unwrap());
    let result = TaskResult { outcome: Outcome::Failed, detail: Some("why".into()), output: 1.into() };
    is_golden("task-result.1.json", &serde_json::to_vec(&result).unwrap());
}

/// What was sealed once opens for ever; sealing draws random numbers, so the bytes themselves are made once.
#[test]
fn seals() {
    let private = SealingPrivateKey::from_secret(&SecretArray::from_slice(&[7; 32]).unwrap());
    let content = || ContentKey::from_secret(SecretArray::from_slice(&[9; 32]).unwrap());
    let edge = edge_id(100);
    let bytes = golden("content_key.1.json", || {
        let public = serde_json::from_value(serde_json::json!(X25519_OF_SEVENS)).unwrap();
        canonical::write(&content().seal_to(Version::from(1), edge, &public).unwrap()).unwrap()
    });
    let sealed: SealedContentKey = canonical::read(&bytes, 1_024).unwrap();
    assert_eq!(private.open(&sealed, edge).unwrap().secret().expose(), &[9; 32]);

    let bytes = golden("certificate_key.1.json", || {
        let key = content().seal_key(certificate_id(9), Version::from(1), &secret("not a key, but sealed"));
        canonical::write(&key.unwrap()).unwrap()
    });
    let sealed: SealedKey = canonical::read(&bytes, 1_024).unwrap();
    assert_eq!(content().open_key(&sealed).unwrap().expose(), b"not a key, but sealed");
}

/// The public half of the X25519 key of 32 bytes of 7.
const X25519_OF_SEVENS: &str = "13be4feaeaf204c7fd3358fc9c00721881d174278128227ec674f37f7fe97b6d";
