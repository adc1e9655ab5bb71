//! Properties: what is written is read again, and only those bytes; no input makes a reader panic.

use headwater_edge_wire::artifact::*;
use headwater_edge_wire::checksum::Checksum;
use headwater_edge_wire::frame::{FRAME_END, Frame, FrameBounds, FrameDecoder};
use headwater_edge_wire::ids::*;
use headwater_edge_wire::manifest::*;
use headwater_edge_wire::protocol::{Body, Heartbeat};
use headwater_edge_wire::sign::Context;
use proptest::collection::{btree_set, vec};
use proptest::prelude::*;

use uuid::Uuid;

use super::given::*;

/// Origins of any shape, most of them against the rules: bytes and value must agree all the same.
fn any_origin() -> impl Strategy<Value = Origin> {
    let texts = (any::<String>(), any::<String>(), any::<Option<String>>());
    (any::<bool>(), texts, any::<(u16, bool, u32, u32, u8, bool)>()).prop_map(|(is_tls, texts, numbers)| {
        Origin {
            scheme: if is_tls { Scheme::Https } else { Scheme::Http },
            host: texts.0,
            port: numbers.0,
            host_header: texts.1,
            sni: texts.2,
            verify_tls: numbers.1,
            connect_timeout_ms: numbers.2,
            response_timeout_ms: numbers.3,
            retries: numbers.4,
            websocket: numbers.5,
        }
    })
}

fn any_hostname() -> impl Strategy<Value = Hostname> {
    let backup = prop::option::of((any_origin(), any::<[u32; 4]>()));
    let health = prop::option::of(any::<(String, u32)>());
    (any::<String>(), any_origin(), backup, health).prop_map(|(name, origin, backup, health)| Hostname {
        name,
        origin,
        backup: backup.map(|(origin, [a, b, c, d])| Backup {
            origin,
            failure_threshold: a,
            recovery_threshold: b,
            hold_down_seconds: c,
            failback_delay_seconds: d,
        }),
        health: health.map(|(path, interval_seconds)| Health { path, interval_seconds }),
    })
}

fn any_artifact() -> impl Strategy<Value = Artifact> {
    let certificate = (any::<u128>(), any::<u32>(), vec(any::<String>(), 0..3), any::<String>());
    let names = (any::<String>(), any::<u128>(), any::<u32>());
    (names, vec(any_hostname(), 0..4), any::<u64>(), vec(certificate, 0..3)).prop_map(
        |((domain, id, revision), hostnames, epoch, certificates)| Artifact {
            domain,
            id: DomainId::from_uuid(Uuid::from_u128(id)),
            revision: revision.into(),
            hostnames,
            cache: Cache { epoch, ..cache() },
            certificates: certificates
                .into_iter()
                .map(|(id, version, names, chain_pem)| Certificate {
                    id: CertificateId::from_uuid(Uuid::from_u128(id)),
                    version: version.into(),
                    names,
                    chain_pem,
                })
                .collect(),
            ..artifact()
        },
    )
}

fn any_page() -> impl Strategy<Value = Page> {
    (btree_set(11..1_000_u32, 1..20), any::<u64>()).prop_map(|(sequences, kinds)| {
        let last = sequences.last().copied().unwrap_or(11);
        let descriptors = sequences.iter().enumerate().map(|(index, sequence)| {
            let id = u128::from(*sequence) + 1_000;
            if kinds >> index & 1 == 1 {
                return Descriptor::Removed(tombstone(*sequence, id));
            }
            Descriptor::Live(LiveDescriptor { id: domain_id(id), ..descriptor(*sequence, &artifact()) })
        });
        Page { through: last.into(), head: last.into(), descriptors: descriptors.collect(), ..page() }
    })
}

proptest! {
    #[test]
    fn an_artifact_is_read_as_it_was_written(artifact in any_artifact()) {
        let bytes = bytes_of(&artifact);
        let read = Artifact::parse(&bytes, ArtifactBudget::default()).unwrap();
        prop_assert_eq!(&bytes_of(&read), &bytes);
        prop_assert_eq!(&read, &artifact);
        // Checking names faults, it never panics, and what has none compiles or says which key is missing.
        if let Ok(checked) = read.checked() {
            let _ = headwater_edge_wire::compiled::compile(&checked, &Default::default());
        }
    }

    #[test]
    fn a_page_is_read_as_it_was_written(page in any_page()) {
        let signed = page.sign(&key(1), Context::Manifest).unwrap();
        let read = Page::verify(&signed.bytes, &signed.signature, &pins(), reader()).unwrap();
        prop_assert_eq!(read.page(), &page);
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in vec(any::<u8>(), 0..600)) {
        let _ = Artifact::parse(&bytes, ArtifactBudget::default());
        let _ = Heartbeat::parse(&bytes);
        let signature = key(1).sign(Context::Manifest, &bytes).unwrap();
        prop_assert!(Page::verify(&bytes, &signature, &pins(), reader()).is_err());
        let mut decoder = FrameDecoder::new(FrameBounds::snapshot(ArtifactBudget::default()));
        let mut input = bytes.as_slice();
        while let Ok(Some(_)) = decoder.read(&mut input) {}
    }

    #[test]
    fn frames_are_read_as_they_were_written(bodies in vec(vec(any::<u8>(), 1..200), 0..8), slice in 1..300_usize) {
        let mut stream: Vec<u8> = bodies.iter().flat_map(|body| super::frames::frame(body)).collect();
        stream.extend(FRAME_END);
        let mut decoder = FrameDecoder::new(FrameBounds::artifacts(8, ArtifactBudget::default()));
        let mut read = Vec::new();
        for mut input in stream.chunks(slice) {
            while let Some(Frame::Artifact { checksum, bytes }) = decoder.read(&mut input).unwrap() {
                prop_assert_eq!(Checksum::of(&bytes), checksum);
                read.push(bytes);
            }
        }
        prop_assert!(decoder.finish().is_ok());
        prop_assert_eq!(read, bodies);
    }
}
