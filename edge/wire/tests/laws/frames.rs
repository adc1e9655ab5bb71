//! The decoder of frames: any cut of a stream reads the same, every bound is reached and told.

use headwater_edge_wire::artifact::ArtifactBudget;
use headwater_edge_wire::checksum::Checksum;
use headwater_edge_wire::frame::*;
use headwater_edge_wire::sign::Context;

use super::given::*;

fn small() -> ArtifactBudget {
    ArtifactBudget::new(64 << 10).unwrap()
}

pub fn frame(body: &[u8]) -> Vec<u8> {
    encode_artifact(Checksum::of(body), body).unwrap()
}

/// Feeds a stream in slices of this length and collects the bodies.
fn decode(stream: &[u8], slice: usize, bounds: FrameBounds) -> Result<Vec<Vec<u8>>, FrameError> {
    let mut decoder = FrameDecoder::new(bounds);
    let mut bodies = Vec::new();
    for mut input in stream.chunks(slice) {
        while let Some(frame) = decoder.read(&mut input)? {
            match frame {
                Frame::Artifact { bytes, .. } | Frame::Page { bytes, .. } => bodies.push(bytes),
            }
        }
    }
    decoder.finish().map(|()| bodies)
}

fn stream(bodies: &[&[u8]]) -> Vec<u8> {
    let mut stream: Vec<u8> = bodies.iter().flat_map(|body| frame(body)).collect();
    stream.extend(FRAME_END);
    stream
}

#[test]
fn any_cut_reads_the_same_and_every_truncation_is_told() {
    let bodies: [&[u8]; 3] = [b"one", b"\0\0\0\0", &[7; 300]];
    let stream = stream(&bodies);
    let bounds = FrameBounds::artifacts(3, small());
    for slice in 1..=stream.len() {
        assert_eq!(decode(&stream, slice, bounds).unwrap(), bodies, "slices of {slice}");
    }
    for length in 0..stream.len() {
        assert_eq!(decode(&stream[..length], 64, bounds), Err(FrameError::Truncated), "cut at {length}");
    }
    assert_eq!(decode(&FRAME_END, 1, bounds).unwrap(), Vec::<Vec<u8>>::new());
}

#[test]
fn every_bound_is_told() {
    let bounds = FrameBounds::artifacts(2, small());
    let refused = |stream: &[u8]| decode(stream, 1, bounds).unwrap_err();
    assert_eq!(refused(&[0, 0, 2, 1]), FrameError::HeaderTooLarge(513));
    assert_eq!(refused(&[0xff; 4]), FrameError::HeaderTooLarge(0xffff_ffff));
    assert!(matches!(refused(b"\0\0\0\x02{}"), FrameError::Header(_)));
    assert_eq!(refused(&stream(&[b"a", b"b", b"c"])), FrameError::TooMany(2));
    assert_eq!(refused(&[stream(&[b"a"]), vec![0]].concat()), FrameError::Trailing);
    assert_eq!(refused(&frame(b"")), FrameError::BodySize { size: 0, max: 64 << 10 });
    let long = vec![0; (64 << 10) + 1];
    assert_eq!(refused(&frame(&long)), FrameError::BodySize { size: 65_537, max: 65_536 });
    assert!(decode(&stream(&[&long[1..], &long[1..]]), 999, bounds).is_ok());
    let signed = page().sign(&key(1), Context::Snapshot).unwrap();
    assert_eq!(refused(&encode_page(signed.signature, &signed.bytes).unwrap()), FrameError::Kind);
    let room = |bytes| decode(&stream(&[b"ab", b"cd"]), 1, bounds.with_total_bytes(bytes));
    assert_eq!((room(4).unwrap().len(), room(3)), (2, Err(FrameError::TooLong(3))));
    assert_eq!(FrameBounds::artifacts(usize::MAX, small()).frames_max(), BULK_ARTIFACTS_MAX);
}

/// A header that promises 2^63 bytes, or a stream that never ends, costs what the bounds say and no more.
#[test]
fn an_endless_stream_is_bounded() {
    let header = format!("{{\"checksum\":\"{}\",\"size\":{}}}", Checksum::of(b""), u64::MAX >> 1);
    let length = u32::try_from(header.len()).unwrap().to_be_bytes();
    let promised = [&length, header.as_bytes()].concat();
    let bounds = FrameBounds::artifacts(500, small());
    assert!(matches!(decode(&promised, 1, bounds), Err(FrameError::BodySize { .. })));

    let endless = frame(&[1; 1_000]);
    let mut decoder = FrameDecoder::new(bounds);
    let mut fed = 0;
    let error = loop {
        let mut input = endless.as_slice();
        fed += input.len();
        match decoder.read(&mut input) {
            Ok(_) => assert!(fed < 2_000_000, "still reading"),
            Err(error) => break error,
        }
    };
    assert_eq!(error, FrameError::TooMany(500));
    assert_eq!(decoder.read(&mut endless.as_slice()), Err(FrameError::Refused));
    assert_eq!(decoder.finish(), Err(FrameError::Refused));
}

#[test]
fn a_wrong_body_loses_its_frame_alone() {
    let bad = Checksum::of(b"said");
    let stream = [encode_artifact(bad, b"sent").unwrap(), stream(&[b"good"])].concat();
    let mut decoder = FrameDecoder::new(FrameBounds::artifacts(2, small()));
    let mut input = stream.as_slice();
    assert_eq!(decoder.read(&mut input), Err(FrameError::Checksum(bad)));
    let good = Frame::Artifact { checksum: Checksum::of(b"good"), bytes: b"good".to_vec() };
    assert_eq!(decoder.read(&mut input), Ok(Some(good)));
    assert_eq!(decoder.read(&mut input), Ok(None));
    assert_eq!(decoder.finish(), Ok(()));
}
