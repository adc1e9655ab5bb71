//! What the tests start from: one domain, one edge, keys of fixed seeds.

use headwater_edge_wire::artifact::*;
use headwater_edge_wire::ids::*;
use headwater_edge_wire::manifest::*;
use headwater_edge_wire::seal::{Sealed, SealedContentKey, SealedKey};
use headwater_edge_wire::secret::{SecretArray, SecretBytes};
use headwater_edge_wire::sign::{KeyRing, SigningKey};
use headwater_edge_wire::time::Timestamp;
use headwater_edge_wire::verify::{Pins, Reader};
use uuid::Uuid;

pub const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_005);
pub const LEAF: &str = include_str!("../fixtures/leaf.pem");
pub const LEAF_KEY: &str = include_str!("../fixtures/leaf.key.pem");
pub const OTHER_KEY: &str = include_str!("../fixtures/other.key.pem");

pub fn uuid(n: u128) -> Uuid {
    Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_0000 + n)
}

pub fn domain_id(n: u128) -> DomainId {
    DomainId::from_uuid(uuid(n))
}

pub fn edge_id(n: u128) -> EdgeId {
    EdgeId::from_uuid(uuid(n))
}

pub fn certificate_id(n: u128) -> CertificateId {
    CertificateId::from_uuid(uuid(n))
}

pub fn key(seed: u8) -> SigningKey {
    SigningKey::from_seed(&SecretArray::from_slice(&[seed; 32]).unwrap()).unwrap()
}

pub fn ring(seeds: &[u8]) -> KeyRing {
    KeyRing::new(seeds.iter().map(|seed| key(*seed).public().unwrap()).collect()).unwrap()
}

pub fn secret(text: &str) -> SecretBytes {
    SecretBytes::new(text.as_bytes().to_vec())
}

pub fn origin() -> Origin {
    Origin {
        scheme: Scheme::Http,
        host: "origin.example.org".into(),
        port: 80,
        host_header: "www.example.com".into(),
        sni: None,
        verify_tls: true,
        connect_timeout_ms: 3_000,
        response_timeout_ms: 30_000,
        retries: 1,
        websocket: false,
    }
}

pub fn hostname(name: &str) -> Hostname {
    Hostname { name: name.into(), origin: origin(), backup: None, health: None }
}

/// With everything that may be absent.
pub fn full_hostname(name: &str) -> Hostname {
    let second = Origin {
        scheme: Scheme::Https,
        host: "2001:db8::1".into(),
        port: 8_443,
        host_header: "[2001:db8::1]:8443".into(),
        sni: Some("backup.example.org".into()),
        ..origin()
    };
    let backup = Backup {
        origin: second,
        failure_threshold: 3,
        recovery_threshold: 2,
        hold_down_seconds: 30,
        failback_delay_seconds: 60,
    };
    let health = Health { path: "/".into(), interval_seconds: 60 };
    Hostname { backup: Some(backup), health: Some(health), ..hostname(name) }
}

pub fn cache() -> Cache {
    Cache {
        enabled: true,
        edge_ttl_seconds: 3_600,
        browser_ttl_seconds: 300,
        respect_origin_headers: true,
        maximum_object_bytes: 104_857_600,
        stale_if_error_seconds: 60,
        stale_while_revalidate_seconds: 30,
        epoch: 0,
    }
}

pub fn artifact() -> Artifact {
    Artifact {
        schema: ARTIFACT_SCHEMA,
        agent: AgentRange::CURRENT,
        domain: "example.com".into(),
        id: domain_id(1),
        revision: Revision::from(7),
        hostnames: vec![hostname("*.example.com"), full_hostname("www.example.com")],
        cache: cache(),
        security: Security { profile: Profile::Standard },
        certificates: vec![Certificate {
            id: certificate_id(9),
            version: Version::from(1),
            names: vec!["*.example.com".into(), "example.com".into()],
            chain_pem: LEAF.into(),
        }],
    }
}

pub fn bytes_of(artifact: &Artifact) -> Vec<u8> {
    artifact.bytes().unwrap()
}

/// Sealed bytes that nobody can open, but always the same.
pub fn sealed() -> Sealed {
    Sealed::try_from("c2VhbGVkIGJ5dGVzIHRoYXQgbmV2ZXIgb3Blbg==".to_owned()).unwrap()
}

/// The descriptor of an artifact, signed by the key of seed 1.
pub fn descriptor(sequence: u32, artifact: &Artifact) -> LiveDescriptor {
    let bytes = bytes_of(artifact);
    let checksum = headwater_edge_wire::checksum::Checksum::of(&bytes);
    LiveDescriptor {
        sequence: sequence.into(),
        id: artifact.id,
        domain: artifact.domain.clone(),
        revision: artifact.revision,
        checksum,
        size: bytes.len() as u64,
        signature: key(1).sign_artifact(&checksum).unwrap(),
        cells: CellNumber::first(2),
        keys: artifact
            .certificates
            .iter()
            .map(|certificate| SealedKey {
                id: certificate.id,
                version: certificate.version,
                sealed: sealed(),
            })
            .collect(),
    }
}

pub fn tombstone(sequence: u32, id: u128) -> Tombstone {
    Tombstone {
        sequence: sequence.into(),
        id: domain_id(id),
        domain: "gone.example".into(),
        revision: Revision::from(9),
        removed: True,
    }
}

/// Changes 11 … 14 of 20, for edge 100, in epoch 1.
pub fn page() -> Page {
    Page {
        schema: PAGE_SCHEMA,
        agent: AgentRange::CURRENT,
        edge: edge_id(100),
        epoch: Epoch::from(1),
        after: Sequence::from(10),
        through: Sequence::from(14),
        head: Sequence::from(20),
        issued_at: NOW,
        expires_at: Timestamp::from_millis(NOW.as_millis() + 60_000),
        keys: ring(&[1]),
        content_key: SealedContentKey { version: Version::from(1), sealed: sealed() },
        descriptors: vec![
            Descriptor::Removed(tombstone(13, 2)),
            Descriptor::Live(descriptor(14, &artifact())),
        ],
    }
}

/// An edge that has taken changes up to 10.
pub fn pins() -> Pins {
    Pins {
        edge: edge_id(100),
        epoch: Epoch::from(1),
        through: Sequence::from(10),
        keys: ring(&[1]),
        keys_at: Timestamp::EPOCH,
    }
}

pub fn reader() -> Reader {
    Reader { agent: AgentVersion::CURRENT, now: NOW }
}
