//! Who this edge is: a P-256 key, an X25519 sealing key and the request for a certificate, made once and durable before
//! they are used, so that a registration can be repeated with the very same request after any crash.

use std::path::PathBuf;
use std::sync::Arc;

use headwater_edge_wire::ids::EdgeId;
use headwater_edge_wire::protocol::RegisterAnswer;
use headwater_edge_wire::seal::{SealingPrivateKey, SealingPublicKey};
use headwater_edge_wire::secret::{SecretArray, SecretBytes};
use headwater_edge_wire::time::Timestamp;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, PKCS_ECDSA_P256_SHA256};
use serde::{Deserialize, Serialize};
use zeroize::{Zeroize, Zeroizing};

use crate::disk::{self, DiskError};
use crate::layout::Layout;
use crate::mac::StateKey;
use crate::twin::Twin;

const IDENTITY_MAX_BYTES: u64 = 64 << 10;
const TOKEN_MAX_BYTES: u64 = 4 << 10;
const FILES: [&str; 2] = ["identity.a", "identity.b"];

/// Why there is no identity.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The disk.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// No key could be made.
    #[error("no key could be made: {0}")]
    Key(String),
    /// There is none yet.
    #[error("this host is not enrolled: run the command that `headwater edge create` printed")]
    None,
    /// The copies do not hold.
    #[error("the identity of this edge cannot be read, both copies are damaged: enroll it anew")]
    Damaged,
    /// Another edge's.
    #[error("this state directory belongs to edge {have}, not to {want}")]
    OtherEdge {
        /// Whose it is.
        have: EdgeId,
        /// Whose it should be.
        want: EdgeId,
    },
}

/// The identity of an edge.
pub struct Identity {
    /// The edge.
    pub edge: EdgeId,
    /// Where the control plane listens.
    pub control: String,
    /// The request for a certificate, as PEM.
    pub csr: String,
    /// What the content key is sealed to.
    pub sealing_public: SealingPublicKey,
    /// What opens the content key.
    pub sealing: SealingPrivateKey,
    /// The key of the identity, as PEM.
    pub key_pem: SecretBytes,
    /// What authenticates the agent's own files.
    pub state_key: Arc<StateKey>,
    /// The copies that did not hold; they were written anew.
    pub damage: Vec<PathBuf>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    edge: EdgeId,
    control: String,
    csr: String,
    sealing_public: SealingPublicKey,
    sealing: String,
    key: String,
}

impl Drop for Stored {
    fn drop(&mut self) {
        self.sealing.zeroize();
        self.key.zeroize();
    }
}

impl Identity {
    /// Makes keys for an edge, durably, or gives back those that it has.
    ///
    /// # Errors
    /// When the directory is another edge's, or nothing can be written.
    pub fn create(layout: &Layout, edge: EdgeId, control: &str) -> Result<Self, IdentityError> {
        match Self::load(layout) {
            Ok(found) if found.edge == edge => return Ok(found),
            Ok(found) => return Err(IdentityError::OtherEdge { have: found.edge, want: edge }),
            Err(IdentityError::None) => {}
            Err(other) => return Err(other),
        }
        let failed = |error: rcgen::Error| IdentityError::Key(error.to_string());
        let pair = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(failed)?;
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, edge.to_string());
        let csr = params.serialize_request(&pair).and_then(|csr| csr.pem()).map_err(failed)?;
        let (sealing, sealing_public) =
            SealingPrivateKey::generate().map_err(|error| IdentityError::Key(error.to_string()))?;
        let secret = sealing.to_secret().map_err(|error| IdentityError::Key(error.to_string()))?;
        let stored = Stored {
            edge,
            control: control.to_owned(),
            csr,
            sealing_public,
            sealing: hex::encode(secret.expose()),
            key: pair.serialize_pem(),
        };
        let body = Zeroizing::new(serde_json::to_vec(&stored).unwrap_or_default());
        let mut bytes = Zeroizing::new(blake3::hash(&body).to_hex().as_bytes().to_vec());
        bytes.extend_from_slice(&body);
        disk::make_dir(&layout.identity(), disk::PRIVATE_DIR)?;
        disk::sync_dir(layout.root())?;
        for name in FILES {
            disk::replace(&layout.identity().join(name), &bytes, disk::PRIVATE_FILE)?;
        }
        Self::load(layout)
    }

    /// Reads the identity, from the copy that holds; the other one is written anew from it.
    ///
    /// # Errors
    /// When there is none or no copy holds.
    pub fn load(layout: &Layout) -> Result<Self, IdentityError> {
        let (mut good, mut bad, mut damage) = (None, Vec::new(), Vec::new());
        let mut found = false;
        for name in FILES {
            let path = layout.identity().join(name);
            match disk::read(&path, IDENTITY_MAX_BYTES).map(Zeroizing::new) {
                Err(error) if error.is_missing() => bad.push(path),
                Err(error) => return Err(error.into()),
                Ok(bytes) => {
                    found = true;
                    match parse(&bytes) {
                        Some(stored) => good = good.or(Some((stored, bytes))),
                        None => {
                            damage.push(path.clone());
                            bad.push(path);
                        }
                    }
                }
            }
        }
        let Some((stored, bytes)) = good else {
            return Err(if found { IdentityError::Damaged } else { IdentityError::None });
        };
        for path in bad {
            disk::replace(&path, &bytes, disk::PRIVATE_FILE)?;
        }
        let mut secret = Zeroizing::new([0; 32]);
        hex::decode_to_slice(&stored.sealing, secret.as_mut()).map_err(|_| IdentityError::Damaged)?;
        let secret = SecretArray::from_slice(secret.as_ref()).ok_or(IdentityError::Damaged)?;
        Ok(Self {
            edge: stored.edge,
            control: stored.control.clone(),
            csr: stored.csr.clone(),
            sealing_public: stored.sealing_public,
            sealing: SealingPrivateKey::from_secret(&secret),
            key_pem: SecretBytes::new(stored.key.clone().into_bytes()),
            state_key: Arc::new(StateKey::derive(&secret)),
            damage,
        })
    }
}

/// The copies of the identity that are there and do not hold.
pub fn bad_copies(layout: &Layout) -> Vec<PathBuf> {
    let paths = FILES.map(|name| layout.identity().join(name));
    let holds = |path: &PathBuf| match disk::read(path, IDENTITY_MAX_BYTES).map(Zeroizing::new) {
        Ok(bytes) => parse(&bytes).is_some(),
        Err(error) => error.is_missing(),
    };
    paths.into_iter().filter(|path| !holds(path)).collect()
}

fn parse(bytes: &[u8]) -> Option<Stored> {
    let (sum, body) = bytes.split_at_checked(64)?;
    if sum != blake3::hash(body).to_hex().as_bytes() {
        return None;
    }
    serde_json::from_slice(body).ok()
}

/// The certificate that this edge has, and what came with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Registration {
    /// What the control plane answered.
    pub answer: RegisterAnswer,
    /// When, by this clock.
    pub received_at: Timestamp,
}

/// The file of the registration.
pub struct RegistrationFile {
    twin: Twin,
}

impl RegistrationFile {
    /// The file in a state directory.
    pub fn new(layout: &Layout) -> Self {
        Self { twin: Twin::new(&layout.identity(), "registration") }
    }

    /// Writes it, durably. From then on the token is not needed.
    ///
    /// # Errors
    /// When it may not have reached the disk.
    pub fn write(&self, key: &StateKey, registration: &Registration) -> Result<(), DiskError> {
        self.twin.write(key, &serde_json::to_vec(registration).unwrap_or_default())
    }

    /// The copies that are there and do not hold.
    pub fn bad_copies(&self, key: &StateKey) -> Vec<PathBuf> {
        self.twin.read(key).bad
    }

    /// The newest copy that holds, and those that do not.
    pub fn read(&self, key: &StateKey) -> (Option<Registration>, Vec<PathBuf>) {
        let copies = self.twin.read(key);
        let parsed = copies.good.iter().filter_map(|body| serde_json::from_slice::<Registration>(body).ok());
        let newest = parsed.max_by_key(|registration| registration.answer.not_after);
        if let Some(newest) = &newest
            && copies.need_mending()
            && let Err(error) = self.write(key, newest)
        {
            tracing::warn!(%error, "cannot mend the registration");
        }
        (newest, copies.bad)
    }
}

/// Keeps a bootstrap token until the certificate is durable.
///
/// # Errors
/// When it cannot be written.
pub fn keep_token(layout: &Layout, token: &SecretBytes) -> Result<(), DiskError> {
    disk::replace(&layout.identity().join("token"), token.expose(), disk::PRIVATE_FILE)
}

/// The kept token.
pub fn kept_token(layout: &Layout) -> Option<SecretBytes> {
    disk::read(&layout.identity().join("token"), TOKEN_MAX_BYTES).ok().map(SecretBytes::new)
}

/// Forgets the token.
pub fn forget_token(layout: &Layout) {
    disk::discard(&layout.identity().join("token"));
}
