//! One changed byte, anywhere, in anything that is signed or sealed: refused, and never a panic.

use headwater_edge_wire::artifact::ArtifactBudget;
use headwater_edge_wire::checksum::Checksum;
use headwater_edge_wire::frame::{FRAME_END, Frame, FrameBounds, FrameDecoder, encode_artifact};
use headwater_edge_wire::ids::{AgentVersion, Version};
use headwater_edge_wire::manifest::Page;
use headwater_edge_wire::seal::{ContentKey, SealedContentKey, SealedKey, SealingPrivateKey};
use headwater_edge_wire::sign::{Context, Signature, SignatureValue};
use serde_json::{Value, json};

use super::given::*;

/// Every byte of `bytes` changed in three ways, one at a time.
fn flipped(bytes: &[u8]) -> impl Iterator<Item = (usize, Vec<u8>)> + '_ {
    (0..bytes.len()).flat_map(|at| {
        [0x01, 0x20, 0x80].map(|mask| {
            let mut changed = bytes.to_vec();
            changed[at] ^= mask;
            (at, changed)
        })
    })
}

#[test]
fn a_page() {
    let signed = page().sign(&key(1), Context::Manifest).unwrap();
    for (at, changed) in flipped(&signed.bytes) {
        let refusal = Page::verify(&changed, &signed.signature, &pins(), reader()).unwrap_err();
        assert_eq!(refusal.code(), "bad_signature", "byte {at}");
    }
    for length in 0..signed.bytes.len() {
        assert!(Page::verify(&signed.bytes[..length], &signed.signature, &pins(), reader()).is_err());
    }
}

#[test]
fn the_signature_of_a_page() {
    let signed = page().sign(&key(1), Context::Manifest).unwrap();
    for (at, changed) in flipped(signed.signature.value.as_bytes()) {
        let value = SignatureValue::from_bytes(changed.try_into().unwrap());
        let signature = Signature { value, ..signed.signature };
        let refusal = Page::verify(&signed.bytes, &signature, &pins(), reader()).unwrap_err();
        assert_eq!(refusal.code(), "bad_signature", "byte {at}");
    }
}

#[test]
fn an_artifact() {
    let bytes = bytes_of(&artifact());
    let descriptor = descriptor(14, &artifact());
    let verify = |bytes: &[u8], descriptor: &headwater_edge_wire::manifest::LiveDescriptor| {
        descriptor.verify(bytes, &ring(&[1]), AgentVersion::CURRENT, ArtifactBudget::default())
    };
    assert!(verify(&bytes, &descriptor).is_ok());
    for (at, changed) in flipped(&bytes) {
        assert_eq!(verify(&changed, &descriptor).unwrap_err().code(), "checksum", "byte {at}");
        // A descriptor that was changed to fit does not help: the checksum is what is signed.
        let fitting = headwater_edge_wire::manifest::LiveDescriptor {
            checksum: Checksum::of(&changed),
            ..descriptor.clone()
        };
        assert_eq!(verify(&changed, &fitting).unwrap_err().code(), "bad_signature", "byte {at}");
    }
    assert_eq!(verify(&bytes[1..], &descriptor).unwrap_err().code(), "size");
}

/// No flip anywhere in a stream gives an artifact of a name that was asked for with other bytes.
#[test]
fn a_frame() {
    let bytes = bytes_of(&artifact());
    let checksum = Checksum::of(&bytes);
    let mut stream = encode_artifact(checksum, &bytes).unwrap();
    stream.extend(FRAME_END);
    let bounds = FrameBounds::artifacts(1, ArtifactBudget::default());
    for (at, changed) in flipped(&stream) {
        let mut decoder = FrameDecoder::new(bounds);
        let mut input = changed.as_slice();
        let read = decoder.read(&mut input);
        if at < stream.len() - FRAME_END.len() {
            assert!(!matches!(read, Ok(Some(_))), "byte {at}: {read:?}");
        } else {
            // The frame itself is whole; the stream after it is not.
            let Ok(Some(Frame::Artifact { bytes: got, .. })) = read else { panic!("byte {at}") };
            assert_eq!(got, bytes);
            let rest = decoder.read(&mut input);
            assert!(rest.is_err() || decoder.finish().is_err(), "byte {at}");
        }
    }
}

fn flipped_seals<T: serde::Serialize + serde::de::DeserializeOwned>(sealed: &T) -> Vec<T> {
    use base64::Engine;
    let engine = base64::engine::general_purpose::STANDARD;
    let value = serde_json::to_value(sealed).unwrap();
    let bytes = engine.decode(value["sealed"].as_str().unwrap()).unwrap();
    flipped(&bytes)
        .map(|(_, changed)| {
            let mut value: Value = value.clone();
            value["sealed"] = json!(engine.encode(changed));
            serde_json::from_value(value).unwrap()
        })
        .collect()
}

#[test]
fn a_seal() {
    let (private, public) = SealingPrivateKey::generate().unwrap();
    let content = ContentKey::generate().unwrap();
    let edge = edge_id(100);
    let sealed = content.seal_to(Version::from(2), edge, &public).unwrap();
    assert_eq!(private.open(&sealed, edge).unwrap().secret().expose(), content.secret().expose());
    for (index, changed) in flipped_seals::<SealedContentKey>(&sealed).iter().enumerate() {
        // X25519 masks the top bit of its input (RFC 7748), but the key schedule binds the bytes as sent.
        assert!(private.open(changed, edge).is_err(), "flip {index}");
    }
    let key = content.seal_key(certificate_id(9), Version::from(1), &secret("key")).unwrap();
    assert_eq!(content.open_key(&key).unwrap().expose(), b"key");
    assert!(flipped_seals::<SealedKey>(&key).iter().all(|changed| content.open_key(changed).is_err()));
}

#[test]
fn a_seal_opens_nowhere_else() {
    let (private, public) = SealingPrivateKey::generate().unwrap();
    let (other, _) = SealingPrivateKey::generate().unwrap();
    let content = ContentKey::generate().unwrap();
    let sealed = content.seal_to(Version::from(2), edge_id(100), &public).unwrap();
    let later = SealedContentKey { version: Version::from(3), ..sealed.clone() };
    assert!(other.open(&sealed, edge_id(100)).is_err());
    assert!(private.open(&sealed, edge_id(101)).is_err());
    assert!(private.open(&later, edge_id(100)).is_err());

    let key = content.seal_key(certificate_id(9), Version::from(1), &secret("key")).unwrap();
    let moved = SealedKey { id: certificate_id(8), ..key.clone() };
    let renewed = SealedKey { version: Version::from(2), ..key.clone() };
    assert!(content.open_key(&moved).is_err());
    assert!(content.open_key(&renewed).is_err());
    assert!(ContentKey::generate().unwrap().open_key(&key).is_err());
    let long = secret(&"k".repeat(16 * 1_024 + 1));
    assert!(content.seal_key(certificate_id(9), Version::from(1), &long).is_err());
}
