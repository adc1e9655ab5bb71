//! Ed25519 signatures. What is signed is a context, a zero byte and the body, so that a signature for one purpose is
//! none for another. An edge pins a ring of keys; a new ring is only taken over when the key that signed it is in both.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::encoding::AsBigEndian;
use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use serde::{Deserialize, Serialize};

use crate::checksum::{Checksum, NotHex, unhex};
use crate::secret::{SecretArray, SecretBytes};

/// The most keys of a ring.
pub const KEY_RING_MAX: usize = 4;
/// The name of the HTTP field that carries the signature of a body.
pub const SIGNATURE_FIELD: &str = "headwater-signature";

/// What a signature is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Context {
    /// The checksum of an artifact.
    Artifact,
    /// The bytes of a manifest page.
    Manifest,
    /// The bytes of a page of a snapshot.
    Snapshot,
    /// BLAKE3 over where every stream of the log ends.
    Heads,
}

impl Context {
    /// What stands before the body. Each is a whole version of its format.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Artifact => "headwater-artifact-v1",
            Self::Manifest => "headwater-manifest-v1",
            Self::Snapshot => "headwater-snapshot-v1",
            Self::Heads => "headwater-audit-heads-v1",
        }
    }

    fn message(self, body: &[u8]) -> Vec<u8> {
        let label = self.label().as_bytes();
        let mut message = Vec::with_capacity(label.len() + 1 + body.len());
        message.extend_from_slice(label);
        message.push(0);
        message.extend_from_slice(body);
        message
    }
}

/// Why there is no key or no signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SignError {
    /// The bytes are no Ed25519 private key.
    #[error("not an Ed25519 private key")]
    NotAKey,
    /// The library could not make a key or a signature.
    #[error("the cryptographic library failed")]
    Library,
    /// A ring has at least one key, at most [`KEY_RING_MAX`], and none twice.
    #[error("a key ring has 1 to {KEY_RING_MAX} different keys")]
    Ring,
}

/// Why a signature was not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SignatureFault {
    /// No key of the ring has this id.
    #[error("signed by key {0}, which is not pinned here")]
    UnknownKey(KeyId),
    /// The key of this id did not sign this.
    #[error("the signature by key {0} does not hold")]
    Bad(KeyId),
}

macro_rules! hex_bytes {
    ($($(#[$doc:meta])* $name:ident($length:literal)),+ $(,)?) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name([u8; $length]);

        impl $name {
            /// Bytes that are known to be one.
            pub const fn from_bytes(bytes: [u8; $length]) -> Self { Self(bytes) }
            /// The bytes.
            pub const fn as_bytes(&self) -> &[u8; $length] { &self.0 }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { f.write_str(&hex::encode(self.0)) }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self)
            }
        }

        impl FromStr for $name {
            type Err = NotHex;
            fn from_str(text: &str) -> Result<Self, NotHex> { unhex(text).map(Self) }
        }

        impl TryFrom<String> for $name {
            type Error = NotHex;
            fn try_from(text: String) -> Result<Self, NotHex> { text.parse() }
        }

        impl From<$name> for String {
            fn from(value: $name) -> Self { value.to_string() }
        }
    )+};
}

hex_bytes! {
    /// An Ed25519 public key.
    PublicKey(32),
    /// The first 8 bytes of BLAKE3 over a public key: which key, not a proof of anything.
    KeyId(8),
    /// The 64 bytes of an Ed25519 signature.
    SignatureValue(64),
}

impl PublicKey {
    /// The id of this key.
    pub fn id(&self) -> KeyId {
        let [a, b, c, d, e, f, g, h, ..] = *Checksum::of(&self.0).as_bytes();
        KeyId([a, b, c, d, e, f, g, h])
    }
}

/// Who signed, and what came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Signature {
    /// The id of the key.
    pub key: KeyId,
    /// The signature.
    pub value: SignatureValue,
}

/// As the HTTP field [`SIGNATURE_FIELD`] carries it: `key:value`.
impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.key, self.value)
    }
}

impl FromStr for Signature {
    type Err = NotHex;

    fn from_str(text: &str) -> Result<Self, NotHex> {
        let (key, value) = text.split_once(':').unwrap_or((text, ""));
        Ok(Self { key: key.parse()?, value: value.parse()? })
    }
}

/// An Ed25519 private key. The library wipes it; it leaves only through [`SigningKey::seed`] and [`SigningKey::to_pkcs8`].
pub struct SigningKey(Ed25519KeyPair);

impl SigningKey {
    /// A new key from the system's random source.
    ///
    /// # Errors
    /// When the library fails.
    pub fn generate() -> Result<Self, SignError> {
        Ed25519KeyPair::generate().map(Self).map_err(|_| SignError::Library)
    }

    /// The key of a seed.
    ///
    /// # Errors
    /// When the library fails.
    pub fn from_seed(seed: &SecretArray) -> Result<Self, SignError> {
        Ed25519KeyPair::from_seed_unchecked(seed.expose()).map(Self).map_err(|_| SignError::NotAKey)
    }

    /// The key of a PKCS #8 document.
    ///
    /// # Errors
    /// When the document holds no Ed25519 key.
    pub fn from_pkcs8(document: &SecretBytes) -> Result<Self, SignError> {
        Ed25519KeyPair::from_pkcs8_maybe_unchecked(document.expose())
            .map(Self)
            .map_err(|_| SignError::NotAKey)
    }

    /// The seed, to be sealed or written to a file of its owner alone.
    ///
    /// # Errors
    /// When the library fails.
    pub fn seed(&self) -> Result<SecretArray, SignError> {
        let seed = self.0.seed().map_err(|_| SignError::Library)?;
        let bytes = seed.as_be_bytes().map_err(|_| SignError::Library)?;
        SecretArray::from_slice(bytes.as_ref()).ok_or(SignError::Library)
    }

    /// A PKCS #8 document of the key.
    ///
    /// # Errors
    /// When the library fails.
    pub fn to_pkcs8(&self) -> Result<SecretBytes, SignError> {
        let document = self.0.to_pkcs8().map_err(|_| SignError::Library)?;
        Ok(SecretBytes::new(document.as_ref().to_vec()))
    }

    /// The public half.
    ///
    /// # Errors
    /// When the library gives a key of another length.
    pub fn public(&self) -> Result<PublicKey, SignError> {
        self.0.public_key().as_ref().try_into().map(PublicKey).map_err(|_| SignError::Library)
    }

    /// Signs a body for one purpose.
    ///
    /// # Errors
    /// When the library fails.
    pub fn sign(&self, context: Context, body: &[u8]) -> Result<Signature, SignError> {
        let signature = self.0.try_sign(&context.message(body)).map_err(|_| SignError::Library)?;
        let value = signature.as_ref().try_into().map(SignatureValue).map_err(|_| SignError::Library)?;
        Ok(Signature { key: self.public()?.id(), value })
    }

    /// Signs an artifact: by its checksum.
    ///
    /// # Errors
    /// When the library fails.
    pub fn sign_artifact(&self, checksum: &Checksum) -> Result<Signature, SignError> {
        self.sign(Context::Artifact, checksum.as_bytes())
    }
}

/// The keys that an edge pins: 1 to [`KEY_RING_MAX`], none twice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<PublicKey>", into = "Vec<PublicKey>")]
pub struct KeyRing(Vec<PublicKey>);

impl KeyRing {
    /// A ring of these keys, in this order.
    ///
    /// # Errors
    /// When there are none or too many, or one stands twice, or two have the same id.
    pub fn new(keys: Vec<PublicKey>) -> Result<Self, SignError> {
        let mut ids: Vec<_> = keys.iter().map(PublicKey::id).collect();
        ids.sort_unstable();
        ids.dedup();
        if keys.is_empty() || keys.len() > KEY_RING_MAX || ids.len() != keys.len() {
            return Err(SignError::Ring);
        }
        Ok(Self(keys))
    }

    /// The keys.
    pub fn keys(&self) -> &[PublicKey] {
        &self.0
    }

    /// The key of this id.
    pub fn get(&self, id: KeyId) -> Option<&PublicKey> {
        self.0.iter().find(|key| key.id() == id)
    }

    /// Whether a key of this ring signed this body for this purpose.
    ///
    /// # Errors
    /// When the ring does not hold the key, or the signature does not hold.
    pub fn verify(&self, context: Context, body: &[u8], signature: &Signature) -> Result<(), SignatureFault> {
        let key = self.get(signature.key).ok_or(SignatureFault::UnknownKey(signature.key))?;
        UnparsedPublicKey::new(&ED25519, key.as_bytes())
            .verify(&context.message(body), signature.value.as_bytes())
            .map_err(|_| SignatureFault::Bad(signature.key))
    }
}

impl TryFrom<Vec<PublicKey>> for KeyRing {
    type Error = SignError;

    fn try_from(keys: Vec<PublicKey>) -> Result<Self, SignError> {
        Self::new(keys)
    }
}

impl From<KeyRing> for Vec<PublicKey> {
    fn from(ring: KeyRing) -> Self {
        ring.0
    }
}
