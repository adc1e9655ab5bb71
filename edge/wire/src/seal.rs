//! Sealed secrets. A content key is sealed to one edge by HPKE (RFC 9180: X25519, HKDF-SHA256, AES-256-GCM); the keys
//! of certificates are sealed under the content key, so that a renewal costs one seal. What is sealed is bound to its
//! edge or certificate and its version: it opens nowhere else.

use std::fmt;

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::rand;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::crypto::aws_lc_rs::hpke::DH_KEM_X25519_HKDF_SHA256_AES_256 as SUITE;
use rustls::crypto::hpke::{EncapsulatedSecret, Hpke, HpkePrivateKey, HpkePublicKey};
use serde::{Deserialize, Serialize};
use zeroize::Zeroize;

use crate::checksum::{NotHex, unhex};
use crate::ids::{CertificateId, EdgeId, Version};
use crate::secret::{SecretArray, SecretBytes};

/// The longest private key of a certificate.
pub const CERTIFICATE_KEY_MAX_BYTES: usize = 16 << 10;
/// The longest sealed value: a certificate's key, its nonce and tag.
pub const SEALED_MAX_BYTES: usize = CERTIFICATE_KEY_MAX_BYTES + 64;
/// What the HPKE seal of a content key is for.
const CONTENT_KEY_LABEL: &[u8] = b"headwater-content-key-v1";
/// What a seal under a content key is for.
const CERTIFICATE_KEY_LABEL: &[u8] = b"headwater-certificate-key-v1";
/// The encapsulated key of X25519.
const ENCAPSULATED_BYTES: usize = 32;

/// Why something could not be sealed or opened. It never says how far it came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// The library failed, or the public key is not one.
    #[error("cannot be sealed")]
    Seal,
    /// Another key, another edge, certificate or version, or changed bytes.
    #[error("cannot be opened with this key for this purpose")]
    Open,
    /// Longer than the bound.
    #[error("a private key of more than {CERTIFICATE_KEY_MAX_BYTES} bytes")]
    TooLarge,
}

/// Sealed bytes: they may be shown and stored. On the wire they are base64 with padding.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Sealed(Vec<u8>);

/// Not base64 in its one spelling, or too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be base64 of at most {SEALED_MAX_BYTES} bytes")]
pub struct NotSealed;

impl Sealed {
    /// The sealed bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Sealed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sealed({} bytes)", self.0.len())
    }
}

impl TryFrom<String> for Sealed {
    type Error = NotSealed;

    fn try_from(text: String) -> Result<Self, NotSealed> {
        if text.len() > SEALED_MAX_BYTES.div_ceil(3) * 4 {
            return Err(NotSealed);
        }
        STANDARD.decode(text).map(Self).map_err(|_| NotSealed)
    }
}

impl From<Sealed> for String {
    fn from(sealed: Sealed) -> Self {
        STANDARD.encode(sealed.0)
    }
}

/// The X25519 public key of an edge, given at its registration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SealingPublicKey([u8; 32]);

impl SealingPublicKey {
    /// The bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl TryFrom<String> for SealingPublicKey {
    type Error = NotHex;

    fn try_from(text: String) -> Result<Self, NotHex> {
        unhex(&text).map(Self)
    }
}

impl From<SealingPublicKey> for String {
    fn from(key: SealingPublicKey) -> Self {
        hex::encode(key.0)
    }
}

/// The X25519 private key of an edge; it never leaves its host.
pub struct SealingPrivateKey(HpkePrivateKey);

impl SealingPrivateKey {
    /// A new pair from the system's random source.
    ///
    /// # Errors
    /// When the library fails.
    pub fn generate() -> Result<(Self, SealingPublicKey), SealError> {
        let (public, private) = SUITE.generate_key_pair().map_err(|_| SealError::Seal)?;
        let public = public.0.as_slice().try_into().map_err(|_| SealError::Seal)?;
        Ok((Self(private), SealingPublicKey(public)))
    }

    /// The key of 32 stored bytes.
    pub fn from_secret(secret: &SecretArray) -> Self {
        Self(HpkePrivateKey::from(secret.expose().to_vec()))
    }

    /// The 32 bytes, to be written to a file of its owner alone.
    ///
    /// # Errors
    /// When the library gave a key of another length.
    pub fn to_secret(&self) -> Result<SecretArray, SealError> {
        SecretArray::from_slice(self.0.secret_bytes()).ok_or(SealError::Seal)
    }

    /// Opens the content key that was sealed to this edge.
    ///
    /// # Errors
    /// When it was sealed to another key, edge or version, or was changed.
    pub fn open(&self, sealed: &SealedContentKey, edge: EdgeId) -> Result<ContentKey, SealError> {
        let bytes = sealed.sealed.as_bytes();
        let (encapsulated, ciphertext) = bytes.split_at_checked(ENCAPSULATED_BYTES).ok_or(SealError::Open)?;
        let encapsulated = EncapsulatedSecret(encapsulated.to_vec());
        let bound = edge_bound(edge, sealed.version);
        let opened = SUITE.open(&encapsulated, CONTENT_KEY_LABEL, &bound, ciphertext, &self.0);
        let opened = SecretBytes::new(opened.map_err(|_| SealError::Open)?);
        SecretArray::from_slice(opened.expose()).map(ContentKey).ok_or(SealError::Open)
    }
}

/// A content key, sealed to one edge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SealedContentKey {
    /// Which content key.
    pub version: Version,
    /// The encapsulated key, then the ciphertext.
    pub sealed: Sealed,
}

/// The private key of a certificate, sealed under a content key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SealedKey {
    /// The certificate.
    pub id: CertificateId,
    /// Its version.
    pub version: Version,
    /// The nonce, then the ciphertext with its tag.
    pub sealed: Sealed,
}

/// 32 bytes under which the keys of certificates travel to one edge.
pub struct ContentKey(SecretArray);

impl ContentKey {
    /// A new key from the system's random source.
    ///
    /// # Errors
    /// When the library fails.
    pub fn generate() -> Result<Self, SealError> {
        let mut bytes = [0; 32];
        let filled = rand::fill(&mut bytes).map_err(|_| SealError::Seal);
        let key = SecretArray::from_slice(&bytes).ok_or(SealError::Seal);
        bytes.zeroize();
        filled?;
        key.map(Self)
    }

    /// The key of 32 stored bytes.
    pub fn from_secret(secret: SecretArray) -> Self {
        Self(secret)
    }

    /// The 32 bytes, to be sealed or written to a file of its owner alone.
    pub fn secret(&self) -> &SecretArray {
        &self.0
    }

    /// Seals this key to an edge.
    ///
    /// # Errors
    /// When the public key is none, or the library fails.
    pub fn seal_to(
        &self,
        version: Version,
        edge: EdgeId,
        public: &SealingPublicKey,
    ) -> Result<SealedContentKey, SealError> {
        let public = HpkePublicKey(public.0.to_vec());
        let bound = edge_bound(edge, version);
        let (encapsulated, ciphertext) =
            SUITE.seal(CONTENT_KEY_LABEL, &bound, self.0.expose(), &public).map_err(|_| SealError::Seal)?;
        let mut sealed = encapsulated.0;
        sealed.extend_from_slice(&ciphertext);
        Ok(SealedContentKey { version, sealed: Sealed(sealed) })
    }

    /// Seals the private key of a certificate, under a random nonce.
    ///
    /// # Errors
    /// When the key is too long, or the library fails.
    pub fn seal_key(
        &self,
        id: CertificateId,
        version: Version,
        key: &SecretBytes,
    ) -> Result<SealedKey, SealError> {
        if key.expose().len() > CERTIFICATE_KEY_MAX_BYTES {
            return Err(SealError::TooLarge);
        }
        let mut buffer = Vec::with_capacity(SEALED_MAX_BYTES);
        buffer.extend_from_slice(key.expose());
        let bound = Aad::from(certificate_bound(id, version));
        let nonce = self.cipher()?.seal_in_place_append_tag(bound, &mut buffer);
        let nonce = match nonce {
            Ok(nonce) => nonce,
            Err(_) => {
                buffer.zeroize();
                return Err(SealError::Seal);
            }
        };
        let mut sealed = nonce.as_ref().to_vec();
        sealed.append(&mut buffer);
        Ok(SealedKey { id, version, sealed: Sealed(sealed) })
    }

    /// Opens the private key of a certificate.
    ///
    /// # Errors
    /// When it was sealed under another key or for another certificate or version, or was changed.
    pub fn open_key(&self, sealed: &SealedKey) -> Result<SecretBytes, SealError> {
        let (nonce, ciphertext) =
            sealed.sealed.as_bytes().split_at_checked(NONCE_LEN).ok_or(SealError::Open)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| SealError::Open)?;
        let bound = Aad::from(certificate_bound(sealed.id, sealed.version));
        let mut buffer = ciphertext.to_vec();
        let opened = self.cipher()?.open_in_place(nonce, bound, &mut buffer).map(|plain| plain.len());
        match opened {
            Ok(length) => {
                buffer.truncate(length);
                Ok(SecretBytes::new(buffer))
            }
            Err(_) => {
                buffer.zeroize();
                Err(SealError::Open)
            }
        }
    }

    fn cipher(&self) -> Result<RandomizedNonceKey, SealError> {
        RandomizedNonceKey::new(&AES_256_GCM, self.0.expose()).map_err(|_| SealError::Seal)
    }
}

/// What a sealed content key is bound to.
fn edge_bound(edge: EdgeId, version: Version) -> Vec<u8> {
    bound(CONTENT_KEY_LABEL, edge.as_uuid().as_bytes(), version)
}

/// What the sealed key of a certificate is bound to.
fn certificate_bound(id: CertificateId, version: Version) -> Vec<u8> {
    bound(CERTIFICATE_KEY_LABEL, id.as_uuid().as_bytes(), version)
}

/// A label, a zero byte, 16 bytes of the id and 8 of the version: each of fixed length or ended, so none can shift.
fn bound(label: &[u8], id: &[u8; 16], version: Version) -> Vec<u8> {
    [label, &[0], id, &version.get().to_be_bytes()].concat()
}
