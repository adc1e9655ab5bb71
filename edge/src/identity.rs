//! Who this edge is: a P-256 key, an X25519 sealing key and the request for a certificate, made once and durable before
//! they are used, so that a registration can be repeated with the very same request after any crash.

use std::path::PathBuf;
use std::sync::Arc;

use headwater_edge_wire::ids::EdgeId;
use headwater_edge_wire::protocol::RegisterAnswer;
use headwater_edge_wire::seal::{
    ContentKey, SealError, SealedContentKey, SealingPrivateKey, SealingPublicKey,
};
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
/// Sealing keys that are kept after they were replaced. One is enough once everything was fetched anew.
const FORMER_MAX_COUNT: usize = 3;

/// What tells that a token was used.
const USED: &str = "token.used";
const USED_LABEL: &str = "headwater 2026-11 edge token used v1";

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
    #[error(
        "this state directory belongs to edge {have}, not to {want}: to make this host another edge, stop the agent and \
         its cells (headwater-edge stop-cells) and remove the directory"
    )]
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
    /// What opened those before, the newest first.
    pub former: Vec<SealingPrivateKey>,
    /// The key of the identity, as PEM.
    pub key_pem: SecretBytes,
    /// What authenticates the agent's own files.
    pub state_key: Arc<StateKey>,
    /// The copies that did not hold; they were written anew.
    pub damage: Vec<PathBuf>,
}

/// The keys of an identity, and what asks for its certificate.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    control: String,
    csr: String,
    sealing_public: SealingPublicKey,
    sealing: String,
    key: String,
}

impl Drop for Keys {
    fn drop(&mut self) {
        self.sealing.zeroize();
        self.key.zeroize();
    }
}

impl Keys {
    fn make(edge: EdgeId, control: &str) -> Result<Self, IdentityError> {
        let failed = |error: rcgen::Error| IdentityError::Key(error.to_string());
        let pair = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(failed)?;
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, edge.to_string());
        let csr = params.serialize_request(&pair).and_then(|csr| csr.pem()).map_err(failed)?;
        let (sealing, sealing_public) =
            SealingPrivateKey::generate().map_err(|error| IdentityError::Key(error.to_string()))?;
        let secret = sealing.to_secret().map_err(|error| IdentityError::Key(error.to_string()))?;
        let sealing = hex::encode(secret.expose());
        Ok(Self { control: control.to_owned(), csr, sealing_public, sealing, key: pair.serialize_pem() })
    }
}

#[derive(Serialize, Deserialize)]
struct Stored {
    edge: EdgeId,
    #[serde(flatten)]
    keys: Keys,
    /// What the agent's own files are authenticated by, where the keys are not the first ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    state: Option<String>,
    /// The sealing keys before, the newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    former: Vec<String>,
    /// The keys that the next enrolment is asked for with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    next: Option<Keys>,
}

impl Drop for Stored {
    fn drop(&mut self) {
        self.state.zeroize();
        self.former.zeroize();
    }
}

impl Stored {
    fn write(&self, layout: &Layout) -> Result<(), DiskError> {
        let body = Zeroizing::new(serde_json::to_vec(self).unwrap_or_default());
        let mut bytes = Zeroizing::new(blake3::hash(&body).to_hex().as_bytes().to_vec());
        bytes.extend_from_slice(&body);
        disk::make_dir(&layout.identity(), disk::PRIVATE_DIR)?;
        disk::sync_dir(layout.root())?;
        FILES
            .iter()
            .try_for_each(|name| disk::replace(&layout.identity().join(name), &bytes, disk::PRIVATE_FILE))
    }

    /// What is read of it. With `next`, its keys speak for the edge; its files stay authenticated as they are.
    fn identity(&self, keys: &Keys, damage: Vec<PathBuf>) -> Result<Identity, IdentityError> {
        let sealing = secret_of(&keys.sealing)?;
        let state = secret_of(self.state.as_ref().unwrap_or(&self.keys.sealing))?;
        let former = self.former.iter().map(|text| secret_of(text));
        let former = former.map(|secret| Ok(SealingPrivateKey::from_secret(&secret?)));
        Ok(Identity {
            edge: self.edge,
            control: keys.control.clone(),
            csr: keys.csr.clone(),
            sealing_public: keys.sealing_public,
            sealing: SealingPrivateKey::from_secret(&sealing),
            former: former.collect::<Result<_, IdentityError>>()?,
            key_pem: SecretBytes::new(keys.key.clone().into_bytes()),
            state_key: Arc::new(StateKey::derive(&state)),
            damage,
        })
    }
}

fn secret_of(text: &str) -> Result<SecretArray, IdentityError> {
    let mut secret = Zeroizing::new([0; 32]);
    hex::decode_to_slice(text, secret.as_mut()).map_err(|_| IdentityError::Damaged)?;
    SecretArray::from_slice(secret.as_ref()).ok_or(IdentityError::Damaged)
}

impl Identity {
    /// Makes keys for an edge, durably, or gives back those that it has. Where none can be read any more, the new ones
    /// are all that there is: what the former ones authenticated is fetched again.
    ///
    /// # Errors
    /// When the directory is another edge's, or nothing can be written.
    pub fn create(layout: &Layout, edge: EdgeId, control: &str) -> Result<Self, IdentityError> {
        match Self::load(layout) {
            Ok(found) if found.edge == edge => return Ok(found),
            Ok(found) => return Err(IdentityError::OtherEdge { have: found.edge, want: edge }),
            Err(IdentityError::None | IdentityError::Damaged) => {}
            Err(other) => return Err(other),
        }
        let keys = Keys::make(edge, control)?;
        Stored { edge, keys, state: None, former: Vec::new(), next: None }.write(layout)?;
        Self::load(layout)
    }

    /// Makes keys beside those that speak for this edge, durably, for an enrolment that is to replace them. Those that
    /// were made before and asked for nothing yet are used.
    ///
    /// # Errors
    /// When nothing can be read or written.
    pub fn prepare_next(layout: &Layout, control: &str) -> Result<(), IdentityError> {
        let (mut stored, _) = read(layout)?;
        let mut keys = match stored.next.take() {
            Some(keys) => keys,
            None => Keys::make(stored.edge, control)?,
        };
        control.clone_into(&mut keys.control);
        stored.next = Some(keys);
        Ok(stored.write(layout)?)
    }

    /// The identity that is to replace this one, if there is one.
    ///
    /// # Errors
    /// When nothing can be read.
    pub fn next(layout: &Layout) -> Result<Option<Self>, IdentityError> {
        let (stored, _) = read(layout)?;
        stored.next.as_ref().map(|keys| stored.identity(keys, Vec::new())).transpose()
    }

    /// Goes over to the keys of [`Self::next`], durably. What was sealed to those before can still be opened.
    ///
    /// # Errors
    /// When nothing can be read or written.
    pub fn take_next(layout: &Layout) -> Result<Self, IdentityError> {
        let (mut stored, _) = read(layout)?;
        if let Some(next) = stored.next.take() {
            let before = stored.keys.sealing.clone();
            stored.state.get_or_insert_with(|| before.clone());
            stored.former.insert(0, before);
            stored.former.truncate(FORMER_MAX_COUNT);
            stored.keys = next;
            stored.write(layout)?;
        }
        Self::load(layout)
    }

    /// Forgets keys that no token is good for.
    ///
    /// # Errors
    /// When nothing can be read or written.
    pub fn drop_next(layout: &Layout) -> Result<(), IdentityError> {
        let (mut stored, _) = read(layout)?;
        if stored.next.take().is_some() {
            stored.write(layout)?;
        }
        Ok(())
    }

    /// Opens a content key: that of now, or one that was sealed before the keys were replaced.
    ///
    /// # Errors
    /// When it was sealed to none of them.
    pub fn open(&self, sealed: &SealedContentKey) -> Result<ContentKey, SealError> {
        let former = self.former.iter().find_map(|key| key.open(sealed, self.edge).ok());
        self.sealing.open(sealed, self.edge).or_else(|error| former.ok_or(error))
    }

    /// Reads the identity, from the copy that holds; the other one is written anew from it.
    ///
    /// # Errors
    /// When there is none or no copy holds.
    pub fn load(layout: &Layout) -> Result<Self, IdentityError> {
        let (stored, damage) = read(layout)?;
        stored.identity(&stored.keys, damage)
    }
}

/// The copy that holds, and those that did not: these were written anew.
fn read(layout: &Layout) -> Result<(Stored, Vec<PathBuf>), IdentityError> {
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
    Ok((stored, damage))
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

/// Forgets the token, but not that it was used: whoever runs its command again changes nothing.
pub fn forget_token(layout: &Layout) {
    if let Some(token) = kept_token(layout)
        && let Err(error) =
            disk::replace(&layout.identity().join(USED), used_digest(&token).as_bytes(), disk::PRIVATE_FILE)
    {
        tracing::warn!(%error, "cannot note that the token was used");
    }
    disk::discard(&layout.identity().join("token"));
}

/// Whether this token was the last one to be used here.
pub fn is_used(layout: &Layout, token: &SecretBytes) -> bool {
    let noted = disk::read(&layout.identity().join(USED), TOKEN_MAX_BYTES);
    noted.is_ok_and(|noted| noted == used_digest(token).as_bytes())
}

fn used_digest(token: &SecretBytes) -> String {
    let text = token.expose().trim_ascii();
    blake3::Hasher::new_derive_key(USED_LABEL).update(text).finalize().to_hex().to_string()
}
