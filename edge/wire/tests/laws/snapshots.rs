//! Snapshots: whole, in order, of one piece, or refused.

use headwater_edge_wire::artifact::{Artifact, ArtifactBudget};
use headwater_edge_wire::checksum::Checksum;
use headwater_edge_wire::frame::{FRAME_END, encode_artifact, encode_page};
use headwater_edge_wire::ids::*;
use headwater_edge_wire::manifest::*;
use headwater_edge_wire::sign::Context;
use headwater_edge_wire::snapshot::{Snapshot, SnapshotReader, SnapshotRefusal};
use headwater_edge_wire::verify::Pins;

use super::given::*;

fn artifact_of(n: u32) -> Artifact {
    let name = format!("d{n}.example");
    let hostnames = vec![hostname(&name)];
    Artifact { domain: name, id: domain_id(n.into()), hostnames, certificates: vec![], ..artifact() }
}

/// Pages 1 … 3, 4 … 6 and 7 … 8 of head 9.
fn pages() -> Vec<Page> {
    [(0, 3), (3, 6), (6, 9)]
        .map(|(after, through): (u32, u32)| Page {
            after: after.into(),
            through: through.into(),
            head: Sequence::from(9),
            descriptors: (after + 1..=through.min(8))
                .map(|n| Descriptor::Live(descriptor(n, &artifact_of(n))))
                .collect(),
            ..page()
        })
        .into()
}

fn page_frame(page: &Page) -> Vec<u8> {
    let signed = page.sign(&key(1), Context::Snapshot).unwrap();
    encode_page(signed.signature, &signed.bytes).unwrap()
}

fn artifact_frame(n: u32) -> Vec<u8> {
    let bytes = bytes_of(&artifact_of(n));
    encode_artifact(Checksum::of(&bytes), &bytes).unwrap()
}

fn read(stream: &[u8], pins: &Pins, slice: usize) -> Result<(Vec<DomainId>, Snapshot), SnapshotRefusal> {
    let mut snapshot = SnapshotReader::new(pins.clone(), reader(), ArtifactBudget::default());
    let mut got = Vec::new();
    for mut input in stream.chunks(slice) {
        while let Some(part) = snapshot.read(&mut input)? {
            let agent = AgentVersion::CURRENT;
            let checked = part.descriptor.verify(&part.bytes, &pins.keys, agent, ArtifactBudget::default());
            got.push(checked.unwrap().artifact().id);
        }
    }
    snapshot.finish().map(|whole| (got, whole))
}

fn stream(pages: &[Page], artifacts: &[u32]) -> Vec<u8> {
    let pages = pages.iter().flat_map(page_frame);
    let artifacts = artifacts.iter().flat_map(|n| artifact_frame(*n));
    pages.chain(artifacts).chain(FRAME_END).collect()
}

fn refusal(pages: &[Page], artifacts: &[u32]) -> SnapshotRefusal {
    read(&stream(pages, artifacts), &pins_of_new_edge(), 1_000).unwrap_err()
}

fn pins_of_new_edge() -> Pins {
    Pins { epoch: Epoch::ZERO, through: Sequence::ZERO, ..pins() }
}

#[test]
fn a_whole_one_is_taken_and_says_what_is_missing() {
    let all: Vec<u32> = (1..=8).collect();
    let whole = stream(&pages(), &all);
    for slice in [1, 7, 4_096, whole.len()] {
        let (got, snapshot) = read(&whole, &pins_of_new_edge(), slice).unwrap();
        assert_eq!(got, all.iter().map(|n| domain_id((*n).into())).collect::<Vec<_>>());
        assert!(snapshot.missing.is_empty());
        assert_eq!(snapshot.domains.len(), 8);
        let pinned = pins_of_new_edge().after(&snapshot.last);
        assert_eq!((pinned.epoch, pinned.through), (Epoch::from(1), Sequence::from(9)));
    }
    let (_, snapshot) = read(&stream(&pages(), &all[..6]), &pins_of_new_edge(), 999).unwrap();
    assert_eq!(snapshot.missing.len(), 2);
    let empty = Page { after: Sequence::ZERO, through: Sequence::from(20), descriptors: vec![], ..page() };
    assert!(read(&stream(&[empty], &[]), &pins_of_new_edge(), 9).unwrap().1.domains.is_empty());
}

#[test]
fn nothing_can_be_left_out_doubled_or_mixed_in() {
    use SnapshotRefusal::{EarlyArtifact, Incomplete, LatePage, Mixed, Removed, Twice, Unannounced};
    let [one, two, three] = <[Page; 3]>::try_from(pages()).unwrap();
    assert!(matches!(refusal(&[one.clone(), two.clone()], &[]), Incomplete));
    assert!(matches!(refusal(&[], &[]), Incomplete));
    let left_out = refusal(&[one.clone(), three.clone()], &[]);
    assert!(matches!(left_out, SnapshotRefusal::Page(ref page) if page.code() == "gap"), "{left_out}");
    let doubled = refusal(&[one.clone(), one.clone()], &[]);
    assert!(matches!(doubled, SnapshotRefusal::Page(ref page) if page.code() == "gap"), "{doubled}");
    let other_head = Page { head: Sequence::from(10), ..two.clone() };
    assert!(matches!(refusal(&[one.clone(), other_head], &[]), Mixed));
    let mut removed = one.clone();
    removed.descriptors[0] = Descriptor::Removed(tombstone(1, 1));
    assert!(matches!(refusal(&[removed], &[]), Removed(_)));
    let mut twice = two.clone();
    twice.descriptors[0] = Descriptor::Live(descriptor(4, &artifact_of(1)));
    assert!(matches!(refusal(&[one.clone(), twice], &[]), Twice(_)));
    assert!(matches!(refusal(std::slice::from_ref(&one), &[1]), EarlyArtifact));
    let whole = [one, two, three];
    assert!(matches!(refusal(&whole, &[1, 1]), Unannounced(_)));
    assert!(matches!(refusal(&whole, &[9]), Unannounced(_)));
    let late = [stream(&whole, &[1])[..].strip_suffix(&FRAME_END).unwrap(), &page_frame(&whole[0])].concat();
    let late = read(&late, &pins_of_new_edge(), 999).unwrap_err();
    assert!(matches!(late, SnapshotRefusal::Page(ref page) if page.code() == "gap"), "{late}");
    let mut more = whole[2].clone();
    (more.after, more.descriptors) = (Sequence::from(9), vec![]);
    assert!(matches!(refusal(&[&whole[..], &[more]].concat(), &[]), LatePage));
}

#[test]
fn replays_are_refused() {
    let whole = stream(&pages(), &[]);
    // Another edge's, one from before what this edge has, one of an older epoch, and a page of the manifest.
    let other = Pins { edge: edge_id(101), ..pins_of_new_edge() };
    let ahead = Pins { epoch: Epoch::from(1), through: Sequence::from(10), ..pins() };
    let restored = Pins { epoch: Epoch::from(2), through: Sequence::ZERO, ..pins() };
    for (pins, code) in [(other, "other_edge"), (ahead, "lower_sequence"), (restored, "lower_epoch")] {
        let refusal = read(&whole, &pins, 999).unwrap_err();
        assert!(matches!(refusal, SnapshotRefusal::Page(ref page) if page.code() == code), "{refusal}");
    }
    let signed = pages()[0].sign(&key(1), Context::Manifest).unwrap();
    let moved = encode_page(signed.signature, &signed.bytes).unwrap();
    let refusal = read(&moved, &pins_of_new_edge(), 999).unwrap_err();
    assert!(
        matches!(refusal, SnapshotRefusal::Page(ref page) if page.code() == "bad_signature"),
        "{refusal}"
    );
}

#[test]
fn every_truncation_is_told() {
    let whole = stream(&pages(), &[1, 2]);
    for length in (0..whole.len()).step_by(37).chain([whole.len() - 1]) {
        assert!(read(&whole[..length], &pins_of_new_edge(), 999).is_err(), "cut at {length}");
    }
}

/// One domain more than the edge has room for.
#[test]
fn too_many_domains_are_refused() {
    let model = descriptor(1, &Artifact { certificates: vec![], ..artifact() });
    let head = 1_001_u32;
    let mut snapshot =
        SnapshotReader::new(pins_of_new_edge(), reader(), ArtifactBudget::default()).with_domains_max(1_000);
    for after in (0..head).step_by(PAGE_DESCRIPTORS_MAX) {
        let through = (after + 500).min(head);
        let descriptors = (after + 1..=through).map(|n| {
            let checksum = Checksum::of(&n.to_be_bytes());
            Descriptor::Live(LiveDescriptor {
                sequence: n.into(),
                id: domain_id(n.into()),
                checksum,
                ..model.clone()
            })
        });
        let descriptors = descriptors.collect();
        let page =
            Page { after: after.into(), through: through.into(), head: head.into(), descriptors, ..page() };
        let frame = page_frame(&page);
        let read = snapshot.read(&mut frame.as_slice());
        assert_eq!(
            matches!(read, Err(SnapshotRefusal::TooMany(1_000))),
            through == head,
            "{through}: {read:?}"
        );
    }
}
