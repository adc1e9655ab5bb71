//! Every reason for which an edge refuses a page or an artifact, and what it pins of one that it takes.

use headwater_edge_wire::artifact::{Artifact, ArtifactBudget};
use headwater_edge_wire::canonical;
use headwater_edge_wire::checksum::Checksum;
use headwater_edge_wire::ids::*;
use headwater_edge_wire::manifest::*;
use headwater_edge_wire::sign::{Context, SigningKey};
use headwater_edge_wire::time::Timestamp;
use headwater_edge_wire::verify::{Pins, Reader, Refusal, VerifiedPage};

use super::given::*;

/// Signs whatever it is given, as a control plane that is broken or taken over would.
fn sign_raw(bytes: &[u8], key: &SigningKey) -> headwater_edge_wire::sign::Signature {
    key.sign(Context::Manifest, bytes).unwrap()
}

fn verify(page: &Page, pins: &Pins) -> Result<VerifiedPage, Refusal> {
    let bytes = canonical::write(page).unwrap();
    Page::verify(&bytes, &sign_raw(&bytes, &key(1)), pins, reader())
}

fn code(change: impl FnOnce(&mut Page)) -> &'static str {
    let mut page = page();
    change(&mut page);
    verify(&page, &pins()).map_or_else(|refusal| refusal.code(), |_| "taken")
}

fn later(seconds: i64) -> Timestamp {
    Timestamp::from_millis(NOW.as_millis() + seconds * 1_000)
}

#[test]
fn every_reason_has_its_code() {
    let taken = code(|_| {});
    assert_eq!(taken, "taken");
    assert_eq!(code(|page| page.schema = 2), "unknown_schema");
    assert_eq!(
        code(|page| page.agent = AgentRange { min: AgentVersion::new(2), max: AgentVersion::new(3) }),
        "agent_range"
    );
    assert_eq!(code(|page| page.edge = edge_id(101)), "other_edge");
    assert_eq!(code(|page| page.epoch = Epoch::ZERO), "lower_epoch");
    assert_eq!(code(|page| page.after = Sequence::from(11)), "gap");
    assert_eq!(code(|page| page.keys = ring(&[2])), "ring_without_signer");
    assert_eq!(code(|page| page.issued_at = later(601)), "out_of_order");
    assert_eq!(code(|page| (page.issued_at, page.expires_at) = (later(601), later(700))), "ahead");
    assert_eq!(code(|page| (page.issued_at, page.expires_at) = (later(600), later(700))), "taken");
    assert_eq!(code(|page| (page.issued_at, page.expires_at) = (later(-60), NOW)), "expired");
}

#[test]
fn every_law_of_pages_is_checked() {
    assert_eq!(code(|page| page.descriptors.reverse()), "out_of_order");
    assert_eq!(code(|page| page.through = Sequence::from(13)), "out_of_order");
    assert_eq!(code(|page| page.head = Sequence::from(13)), "out_of_order");
    assert_eq!(code(|page| page.descriptors.clear()), "out_of_order");
    assert_eq!(code(|page| page.descriptors[0] = Descriptor::Removed(tombstone(10, 2))), "out_of_order");
    assert_eq!(code(|page| page.descriptors[0] = Descriptor::Removed(tombstone(13, 1))), "out_of_order");
    let live = |change: fn(&mut LiveDescriptor)| {
        code(|page| {
            let Descriptor::Live(live) = &mut page.descriptors[1] else { panic!() };
            change(live);
        })
    };
    assert_eq!(live(|live| live.cells.clear()), "out_of_order");
    assert_eq!(live(|live| live.cells.reverse()), "out_of_order");
    assert_eq!(live(|live| live.domain = "Example.com".into()), "out_of_order");
    assert_eq!(live(|live| live.size = 0), "out_of_order");
    assert_eq!(live(|live| live.size = (16 << 20) + 1), "out_of_order");
    assert_eq!(live(|live| live.revision = Revision::ZERO), "out_of_order");
    assert_eq!(live(|live| live.keys.push(live.keys[0].clone())), "out_of_order");
    let many = |count: u32| {
        code(|page| {
            (page.after, page.through, page.head) = (Sequence::ZERO, count.into(), count.into());
            page.descriptors =
                (1..=count).map(|n| Descriptor::Removed(tombstone(n, u128::from(n) + 1_000))).collect();
        })
    };
    assert_eq!((many(500), many(501)), ("taken", "out_of_order"));
}

/// What a producer refuses to sign is what a reader would refuse to take.
#[test]
fn a_producer_signs_nothing_that_is_refused() {
    let bad = Page { through: Sequence::from(13), ..page() };
    assert!(bad.sign(&key(1), Context::Manifest).is_err());
    assert!(page().sign(&key(2), Context::Manifest).is_err());
}

#[test]
fn verified_before_it_is_parsed() {
    // None of this is JSON; with a bad signature nobody finds out.
    let signature = sign_raw(b"something else", &key(1));
    let refusal = Page::verify(b"{{{", &signature, &pins(), reader()).unwrap_err();
    assert_eq!(refusal.code(), "bad_signature");
    let refusal = Page::verify(b"{{{", &sign_raw(b"{{{", &key(2)), &pins(), reader()).unwrap_err();
    assert_eq!(refusal.code(), "unknown_key");
    let refusal = Page::verify(b"{{{", &sign_raw(b"{{{", &key(1)), &pins(), reader()).unwrap_err();
    assert_eq!(refusal.code(), "malformed");
    let long = vec![b' '; PAGE_MAX_BYTES + 1];
    assert_eq!(Page::verify(&long, &signature, &pins(), reader()).unwrap_err().code(), "too_large");
}

#[test]
fn only_the_canonical_bytes() {
    let text = String::from_utf8(canonical::write(&page()).unwrap()).unwrap();
    for (what, changed) in [
        ("a blank", text.replacen(':', ": ", 1)),
        ("an unknown field", text.replacen('{', "{\"x\":1,", 1)),
        ("a doubled field", text.replacen('{', "{\"schema\":1,", 1)),
        ("not true", text.replace("\"removed\":true", "\"removed\":false")),
        ("a fraction", text.replace("\"head\":20", "\"head\":20.0")),
        (
            "another spelling of an id",
            text.replace("01900000-0000-7000-8000-000000000064", "01900000000070008000000000000064"),
        ),
        ("another spelling of a time", text.replace("20.005Z", "20.005+00:00")),
        ("upper-case hex", text.replace("\"checksum\":\"", "\"checksum\":\"A")),
        ("something behind it", format!("{text} ")),
    ] {
        assert_ne!(changed, text, "{what}");
        let signature = sign_raw(changed.as_bytes(), &key(1));
        let refusal = Page::verify(changed.as_bytes(), &signature, &pins(), reader()).unwrap_err();
        assert_eq!(refusal.code(), "malformed", "{what}");
    }
}

#[test]
fn a_signature_for_one_purpose_is_none_for_another() {
    let bytes = canonical::write(&page()).unwrap();
    for context in [Context::Snapshot, Context::Artifact] {
        let signature = key(1).sign(context, &bytes).unwrap();
        assert_eq!(Page::verify(&bytes, &signature, &pins(), reader()).unwrap_err().code(), "bad_signature");
    }
}

#[test]
fn rollback_is_refused_and_a_restore_is_not() {
    let taken = verify(&page(), &pins()).unwrap();
    let pinned = pins().after(&taken);
    assert_eq!((pinned.epoch, pinned.through), (Epoch::from(1), Sequence::from(14)));
    // The same page again changes nothing; one from before is refused.
    assert_eq!(pinned.after(&verify(&page(), &pinned).unwrap()), pinned);
    let old = Page {
        through: Sequence::from(13),
        descriptors: vec![Descriptor::Removed(tombstone(13, 2))],
        ..page()
    };
    assert_eq!(verify(&old, &pinned).unwrap_err().code(), "lower_sequence");
    // After a restore the numbers begin anew, in a higher epoch and from the very beginning.
    let restored = Page { epoch: Epoch::from(2), ..page() };
    assert_eq!(verify(&restored, &pinned).unwrap_err().code(), "gap");
    let restored = Page { after: Sequence::ZERO, through: Sequence::from(13), ..restored };
    let restored = Page { descriptors: old.descriptors.clone(), ..restored };
    let pinned = pinned.after(&verify(&restored, &pinned).unwrap());
    assert_eq!((pinned.epoch, pinned.through), (Epoch::from(2), Sequence::from(13)));
    assert_eq!(verify(&page(), &pinned).unwrap_err().code(), "lower_epoch");
}

#[test]
fn keys_rotate_with_overlap() {
    let with_both = Page { keys: ring(&[1, 2]), ..page() };
    let pinned = pins().after(&verify(&with_both, &pins()).unwrap());
    let only_new = Page { keys: ring(&[2]), issued_at: later(10), ..page() };
    let bytes = canonical::write(&only_new).unwrap();
    let refusal = Page::verify(&bytes, &sign_raw(&bytes, &key(2)), &pins(), reader()).unwrap_err();
    assert_eq!(refusal.code(), "unknown_key");
    let taken = Page::verify(&bytes, &sign_raw(&bytes, &key(2)), &pinned, reader()).unwrap();
    let rotated = pinned.after(&taken);
    assert_eq!(rotated.keys, ring(&[2]));
    assert_eq!(verify(&page(), &rotated).unwrap_err().code(), "unknown_key");
    // A page from during the overlap, of the same numbers, does not bring the retired key back.
    let bytes = canonical::write(&with_both).unwrap();
    let replayed = Page::verify(&bytes, &sign_raw(&bytes, &key(2)), &rotated, reader()).unwrap();
    assert_eq!(rotated.after(&replayed).keys, ring(&[2]));
    assert!(headwater_edge_wire::sign::KeyRing::new(vec![]).is_err());
    let five = (1..=5).map(|seed| key(seed).public().unwrap()).collect();
    assert!(headwater_edge_wire::sign::KeyRing::new(five).is_err());
    let twice = vec![key(1).public().unwrap(); 2];
    assert!(headwater_edge_wire::sign::KeyRing::new(twice).is_err());
}

#[test]
fn keys_survive_their_forms() {
    let made = SigningKey::generate().unwrap();
    let public = made.public().unwrap();
    assert_eq!(SigningKey::from_seed(&made.seed().unwrap()).unwrap().public().unwrap(), public);
    assert_eq!(SigningKey::from_pkcs8(&made.to_pkcs8().unwrap()).unwrap().public().unwrap(), public);
    assert!(SigningKey::from_pkcs8(&secret("no key")).is_err());
    let signature = made.sign(Context::Manifest, b"body").unwrap();
    assert_eq!(signature.to_string().parse(), Ok(signature));
    assert!("".parse::<headwater_edge_wire::sign::Signature>().is_err());
}

#[test]
fn artifacts_are_what_their_descriptor_names() {
    let verify = |change: fn(&mut Artifact), said: fn(&mut LiveDescriptor), agent, budget| {
        let mut artifact = artifact();
        change(&mut artifact);
        let mut descriptor = descriptor(14, &artifact);
        said(&mut descriptor);
        let read = descriptor.verify(&bytes_of(&artifact), &ring(&[1]), agent, budget);
        read.map_or_else(|refusal| refusal.code(), |_| "taken")
    };
    let (agent, budget) = (AgentVersion::CURRENT, ArtifactBudget::default());
    assert_eq!(verify(|_| {}, |_| {}, agent, budget), "taken");
    assert_eq!(verify(|_| {}, |live| live.id = domain_id(3), agent, budget), "other_domain");
    assert_eq!(verify(|_| {}, |live| live.domain = "x.example".into(), agent, budget), "other_domain");
    assert_eq!(verify(|_| {}, |live| live.revision = Revision::from(8), agent, budget), "other_domain");
    assert_eq!(verify(|_| {}, |live| live.checksum = Checksum::of(b"x"), agent, budget), "checksum");
    assert_eq!(
        verify(|_| {}, |live| live.signature.key = key(2).public().unwrap().id(), agent, budget),
        "unknown_key"
    );
    assert_eq!(verify(|_| {}, |_| {}, AgentVersion::new(2), budget), "agent_range");
    assert_eq!(verify(|artifact| artifact.schema = 2, |_| {}, agent, budget), "unknown_schema");
    assert_eq!(verify(|artifact| artifact.cache.maximum_object_bytes = 1, |_| {}, agent, budget), "invalid");
    let long = |artifact: &mut Artifact| {
        artifact.hostnames = (0..400).map(|n| hostname(&format!("h{n:04}.example.com"))).collect();
    };
    let small = ArtifactBudget::new(64 << 10).unwrap();
    assert_eq!(verify(long, |_| {}, agent, small), "too_large");
    assert_eq!(verify(long, |_| {}, agent, budget), "taken");
    let mut artifact = artifact();
    long(&mut artifact);
    assert!(artifact.checked().unwrap().bytes(small).is_err());
    assert_eq!(ArtifactBudget::new((64 << 10) - 1).or(ArtifactBudget::new((16 << 20) + 1)), None);
}

#[test]
fn a_wrong_clock_has_a_clear_reason() {
    let bytes = canonical::write(&page()).unwrap();
    let at = |now| {
        let reader = Reader { now, ..reader() };
        Page::verify(&bytes, &sign_raw(&bytes, &key(1)), &pins(), reader)
            .map_or_else(|r| r.code(), |_| "taken")
    };
    assert_eq!(at(Timestamp::EPOCH), "ahead");
    assert_eq!(at(later(-600)), "taken");
    assert_eq!(at(later(59)), "taken");
    assert_eq!(at(later(60)), "expired");
    assert_eq!(at(later(75 * 365 * 86_400)), "expired");
}
