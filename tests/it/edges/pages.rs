//! What one edge is to hold: pages, long polls, artifacts, snapshots, and what comes back. Everything that is read is
//! verified as an agent verifies it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::time::{Duration, Instant};

use flate2::read::GzDecoder;
use headwater_edge_wire::artifact::ArtifactBudget;
use headwater_edge_wire::cell::{Replicas, place};
use headwater_edge_wire::checksum::Checksum;
use headwater_edge_wire::frame::{Frame, FrameBounds, FrameDecoder};
use headwater_edge_wire::ids::{AgentVersion, CellNumber, DomainId, Sequence};
use headwater_edge_wire::manifest::{Descriptor, LiveDescriptor, Page};
use headwater_edge_wire::snapshot::SnapshotReader;
use headwater_edge_wire::verify::{Pins, Refusal};
use reqwest::Method;
use serde_json::{Value, json};

use super::agent::{Agent, reader, signature};
use super::lab::{Lab, domain, name};
use crate::support::Answer;

/// The page of an answer, as an agent takes it.
fn verified(answer: &Answer, pins: &Pins) -> (Page, Pins) {
    let verified = Page::verify(answer.text.as_bytes(), &signature(answer), pins, reader()).unwrap();
    let pins = pins.after(&verified);
    (verified.into_page(), pins)
}

/// Everything from the beginning to the head.
pub async fn follow(agent: &Agent, mut pins: Pins) -> (Vec<Page>, Pins) {
    let mut pages = Vec::new();
    loop {
        let answer = agent.get(&format!("manifest?after={}", pins.through)).await.expect(200);
        let (page, next) = verified(&answer, &pins);
        pins = next;
        let is_last = page.through == page.head;
        pages.push(page);
        if is_last {
            return (pages, pins);
        }
    }
}

pub fn live(pages: &[Page]) -> Vec<&LiveDescriptor> {
    let all = pages.iter().flat_map(|page| &page.descriptors);
    all.filter_map(|one| if let Descriptor::Live(live) = one { Some(live) } else { None }).collect()
}

pub async fn bulk(agent: &Agent, method: Method, path: &str, body: Value) -> Vec<u8> {
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let answer = agent.try_send(method, path, body).await.unwrap();
    assert_eq!(
        (answer.status().as_u16(), answer.headers()["content-encoding"].as_bytes()),
        (200, &b"gzip"[..])
    );
    let mut plain = Vec::new();
    GzDecoder::new(answer.bytes().await.unwrap().as_ref()).read_to_end(&mut plain).unwrap();
    plain
}

fn cells(numbers: &[u8]) -> Vec<CellNumber> {
    numbers.iter().map(|n| CellNumber::try_from(*n).unwrap()).collect()
}

#[tokio::test]
async fn pages_hold_every_domain_once_and_verify() {
    let lab = Lab::new().await;
    let (agent, other) = (lab.enrolled("fra1").await, lab.enrolled("fra2").await);
    let signer = lab.signer().await;
    for n in 1..=1_100 {
        lab.put(&signer, n, i64::from(n) * 3).await;
    }
    lab.cursor(3_400).await;
    let (pages, pins) = follow(&agent, agent.pins()).await;
    assert_eq!(pages.iter().map(|page| page.descriptors.len()).collect::<Vec<_>>(), [500, 500, 100]);
    assert_eq!((pins.through.get(), pins.epoch.get()), (3_400, 1));
    let mut on = BTreeMap::<CellNumber, usize>::new();
    for descriptor in live(&pages) {
        let placed = place(agent.edge, descriptor.id, &cells(&[0, 1]), Replicas::ONE);
        assert_eq!(descriptor.cells, placed);
        *on.entry(placed[0]).or_default() += 1;
    }
    assert!(on.len() == 2 && on.values().all(|count| *count > 400), "{on:?}");
    // What one edge is told, another one refuses.
    let answer = agent.get("manifest?after=0").await.expect(200);
    let refused = Page::verify(answer.text.as_bytes(), &signature(&answer), &other.pins(), reader());
    assert!(matches!(refused, Err(Refusal::OtherEdge(_))), "{refused:?}");
    // The content key opens for this edge alone, at every page.
    let key = agent.sealing.0.open(&pages[2].content_key, agent.edge).unwrap();
    assert!(key.secret().expose().iter().any(|byte| *byte != 0));
    assert!(other.sealing.0.open(&pages[2].content_key, agent.edge).is_err());

    // A change, one that goes, and what is not taken in yet.
    lab.put(&signer, 7, 3_401).await;
    lab.remove(8, 3_402).await;
    lab.put(&signer, 9, 3_500).await;
    lab.cursor(3_450).await;
    let (pages, pins) = follow(&agent, pins).await;
    let [page] = pages.as_slice() else { panic!("one page") };
    assert_eq!((page.after.get(), page.through.get(), page.head.get()), (3_400, 3_450, 3_450));
    let told: Vec<_> =
        page.descriptors.iter().map(|one| (one.sequence().get(), one.id().as_uuid())).collect();
    assert_eq!(told, [(3_401, domain(7)), (3_402, domain(8))]);
    assert!(matches!(&page.descriptors[1], Descriptor::Removed(gone) if gone.domain == name(8)));
    let (pages, pins) = follow(&agent, pins).await;
    assert!(pages.len() == 1 && pages[0].descriptors.is_empty(), "nothing more");
    // What nobody has signed yet is not passed over: everything stops before it.
    lab.put(&signer, 10, 3_510).await;
    lab.put(&signer, 11, 3_520).await;
    let unsign = "update edge.domains set signature = null, key_id = null where domain_id = $1";
    sqlx::query(unsign).bind(domain(10)).execute(lab.pool()).await.unwrap();
    lab.cursor(3_600).await;
    let (page, next) = verified(&agent.get("manifest?after=3450").await.expect(200), &pins);
    assert_eq!((page.head.get(), page.descriptors.len()), (3_509, 1));
    agent.get("snapshot").await.expect_problem(503, "unavailable");
    lab.put(&signer, 10, 3_510).await;
    let (page, _) = verified(&agent.get("manifest?after=3509").await.expect(200), &next);
    assert_eq!((page.head.get(), page.descriptors.len()), (3_600, 2));
    lab.cursor(3_450).await;
    // Another epoch is answered from its beginning; more than there is, not at all.
    let (page, _) = verified(&agent.get("manifest?after=3450&epoch=7").await.expect(200), &agent.pins());
    assert_eq!((page.after.get(), page.descriptors.len()), (0, 500));
    agent.get("manifest?after=3451").await.expect_problem(503, "unavailable");
}

#[tokio::test]
async fn a_long_poll_ends_with_what_happens_or_at_its_end() {
    let lab = Lab::new().await;
    let agent = lab.enrolled("fra1").await;
    let signer = lab.signer().await;
    lab.put(&signer, 1, 10).await;
    lab.cursor(10).await;
    let (_, pins) = follow(&agent, agent.pins()).await;
    let begun = Instant::now();
    let (page, _) = verified(&agent.get("manifest?after=10&epoch=1&wait=1").await.expect(200), &pins);
    assert!(page.descriptors.is_empty() && begun.elapsed() >= Duration::from_secs(1));
    let change = async {
        lab.polled().await;
        lab.put(&signer, 2, 20).await;
        lab.cursor(20).await;
        Instant::now()
    };
    let (answer, changed) = tokio::join!(agent.get("manifest?after=10&epoch=1&wait=30"), change);
    let (page, _) = verified(&answer.expect(200), &pins);
    assert_eq!((page.descriptors.len(), page.through.get()), (1, 20));
    assert!(changed.elapsed() < Duration::from_millis(1_800), "woken, not polled: {:?}", changed.elapsed());
}

#[tokio::test]
async fn artifacts_come_compressed_and_verify() {
    let lab = Lab::new().await;
    let agent = lab.enrolled("fra1").await;
    let signer = lab.signer().await;
    for n in 1..=40 {
        lab.put(&signer, n, n.into()).await;
    }
    lab.cursor(40).await;
    let (pages, _) = follow(&agent, agent.pins()).await;
    let descriptors: BTreeMap<Checksum, &LiveDescriptor> =
        live(&pages).into_iter().map(|one| (one.checksum, one)).collect();
    let mut wanted: Vec<Checksum> = descriptors.keys().copied().collect();
    wanted.push(Checksum::of(b"nobody has this"));
    let plain = bulk(&agent, Method::POST, "artifacts", json!({"checksums": wanted})).await;
    let mut decoder = FrameDecoder::new(FrameBounds::artifacts(wanted.len(), ArtifactBudget::default()));
    let (mut input, mut seen) = (plain.as_slice(), BTreeSet::new());
    while let Some(frame) = decoder.read(&mut input).unwrap() {
        let Frame::Artifact { checksum, bytes } = frame else { panic!("a page") };
        let keys = &agent.identity.as_ref().unwrap().keys;
        descriptors[&checksum]
            .verify(&bytes, keys, AgentVersion::CURRENT, ArtifactBudget::default())
            .unwrap();
        seen.insert(checksum);
    }
    decoder.finish().unwrap();
    assert_eq!(seen.len(), 40);
}

/// A snapshot, verified whole; the cells of each of its domains.
async fn snapshot(agent: &Agent, pins: &Pins) -> (BTreeMap<DomainId, Vec<CellNumber>>, Pins) {
    let plain = bulk(agent, Method::GET, "snapshot", Value::Null).await;
    let mut whole = SnapshotReader::new(pins.clone(), reader(), ArtifactBudget::default());
    let mut input = plain.as_slice();
    while whole.read(&mut input).unwrap().is_some() {}
    let whole = whole.finish().unwrap();
    assert!(whole.missing.is_empty());
    let mut decoder = FrameDecoder::new(FrameBounds::snapshot(ArtifactBudget::default()));
    let (mut input, mut placed) = (plain.as_slice(), BTreeMap::new());
    while let Some(frame) = decoder.read(&mut input).unwrap() {
        if let Frame::Page { bytes, .. } = frame {
            let page: Page = serde_json::from_slice(&bytes).unwrap();
            placed.extend(live(&[page]).into_iter().map(|one| (one.id, one.cells.clone())));
        }
    }
    assert_eq!(placed.len(), whole.domains.len());
    (placed, pins.after(&whole.last))
}

#[tokio::test]
async fn a_drained_cell_gives_its_domains_up_by_a_snapshot() {
    let lab = Lab::new().await;
    let agent = lab.enrolled("fra1").await;
    let signer = lab.signer().await;
    let (placed, _) = snapshot(&agent, &agent.pins()).await;
    assert!(placed.is_empty(), "a snapshot of nothing is whole too");
    // Exactly a full page: the head comes after it.
    for n in 1..=500 {
        lab.put(&signer, n, n.into()).await;
    }
    lab.remove(500, 501).await;
    lab.put(&signer, 501, 502).await;
    lab.cursor(600).await;
    let (before, pins) = snapshot(&agent, &agent.pins()).await;
    assert_eq!((before.len(), pins.through.get()), (500, 600));
    assert!(!before.contains_key(&DomainId::from_uuid(domain(500))));

    let cell = format!("{}-1", agent.edge);
    lab.api.call(Method::POST, &format!("/api/cells/{cell}/drain"), Value::Null).await.expect(200);
    let last = format!("/api/cells/{}-0/drain", agent.edge);
    lab.api.call(Method::POST, &last, Value::Null).await.expect_problem(409, "last_cell");
    // Not before the projection has come that far: what the edge has then is numbered beyond the change.
    let drained = lab.api.head().await.get();
    assert!(drained < 600, "the log of this test is short");
    agent.get("manifest?after=600").await.expect(200);
    let gap = agent.get(&format!("manifest?after={}", drained - 1)).await.expect(200);
    let earlier = Pins { through: Sequence::try_from(drained - 1).unwrap(), ..pins.clone() };
    let refused = Page::verify(gap.text.as_bytes(), &signature(&gap), &earlier, reader());
    assert!(matches!(refused, Err(Refusal::Gap { .. })), "{refused:?}");
    let (after, _) = snapshot(&agent, &pins).await;
    let moved: Vec<&DomainId> = before.keys().filter(|id| before[*id] != after[*id]).collect();
    assert!(moved.len() > 100 && moved.iter().all(|id| before[*id] == cells(&[1])), "{}", moved.len());
    assert!(after.values().all(|on| *on == cells(&[0])));
    let shown = lab.api.get(&format!("/api/cells?edge={}", agent.edge)).await.expect(200).json();
    assert_eq!((&shown["items"][1]["id"], &shown["items"][1]["drained"]), (&json!(cell), &json!(true)));
    lab.api.call(Method::POST, &format!("/api/cells/{cell}/undrain"), Value::Null).await.expect(200);
    assert_eq!(snapshot(&agent, &pins).await.0, before);
}

#[tokio::test]
async fn what_cells_serve_and_refuse_is_shown() {
    let lab = Lab::new().await;
    let agent = lab.enrolled("fra1").await;
    let signer = lab.signer().await;
    for n in 1..=3 {
        lab.put(&signer, n, i64::from(n) * 10).await;
    }
    lab.cursor(30).await;
    let applied = |cell: u8, sequence: u32| {
        let agent = &agent;
        async move { agent.post("applied", &json!({"cell": cell, "epoch": 1, "sequence": sequence})).await }
    };
    applied(0, 30).await.expect(204);
    let shown = lab.show(agent.edge).await;
    assert_eq!((&shown["desired"], &shown["acked"], &shown["lag"]), (&json!(30), &Value::Null, &json!(3)));
    applied(1, 20).await.expect(204);
    // Cumulative: an older one that comes late changes nothing.
    applied(0, 10).await.expect(204);
    applied(1, 31).await.expect_problem(422, "ahead");
    let shown = lab.show(agent.edge).await;
    assert_eq!((&shown["acked"], &shown["lag"]), (&json!(20), &json!(1)));
    assert_eq!(shown["cell_states"][0]["acked"], 30);

    let refused = |n: u32, revision: u32| json!({"domain": name(n), "revision": revision, "code": "invalid", "detail": "no such origin"});
    let report = json!({"refused": [refused(3, 30), refused(2, 19), refused(99, 1), refused(3, 29)]});
    agent.post("rejected", &report).await.expect(204);
    let shown = lab.show(agent.edge).await;
    assert_eq!(shown["refusals"].as_array().unwrap().len(), 1, "only what is still desired: {shown}");
    assert_eq!(
        (&shown["refusals"][0]["domain"], &shown["refusals"][0]["code"]),
        (&json!(name(3)), &json!("invalid"))
    );
    lab.put(&signer, 3, 40).await;
    assert_eq!(lab.show(agent.edge).await["refusals"], json!([]));
    // After a restore the numbers of before say nothing.
    headwater::store::renew_log_id(lab.pool()).await.unwrap();
    assert_eq!(lab.show(agent.edge).await["acked"], 0);
    let (page, _) = verified(&agent.get("manifest?after=30&epoch=1").await.expect(200), &agent.pins());
    assert_eq!((page.epoch.get(), page.after.get()), (2, 0));
}
