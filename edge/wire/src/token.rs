//! The bootstrap token of an edge: one line of text that is given once, to a person or a unit file. It carries a secret
//! that the control plane knows only as a digest, and the fingerprint of the authority that the control listener proves
//! itself with, so that the first contact is authenticated on both sides. A checksum tells a line that was copied in
//! part from one that is unknown.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use zeroize::Zeroizing;

use crate::secret::{SecretArray, SecretBytes};

/// What every token begins with.
pub const TOKEN_PREFIX: &str = "hwe_";
/// How many characters a token has, its prefix included.
pub const TOKEN_CHARS: usize = 4 + BODY_BYTES.div_ceil(3) * 4;
/// The version of the form, and the first byte.
const TOKEN_VERSION: u8 = 1;
/// The version, the secret, the fingerprint and the checksum.
const BODY_BYTES: usize = 1 + 32 + 32 + 4;
/// What the checksum and the stored digest are computed under.
const CHECKSUM_LABEL: &str = "headwater-bootstrap-token-checksum-v1";
const STORED_LABEL: &str = "headwater-bootstrap-token-v1";

/// SHA-256 of the DER bytes of the certificate of an authority.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AuthorityFingerprint([u8; 32]);

impl AuthorityFingerprint {
    /// The fingerprint of a certificate.
    pub fn of(der: &[u8]) -> Self {
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, der);
        let mut bytes = [0; 32];
        bytes.iter_mut().zip(digest.as_ref()).for_each(|(to, from)| *to = *from);
        Self(bytes)
    }

    /// The one of 64 hex digits, as `openssl x509 -fingerprint -sha256` prints them: colons and capitals are allowed.
    pub fn parse(text: &str) -> Option<Self> {
        let digits: String = text.chars().filter(|c| *c != ':').collect();
        let mut bytes = [0; 32];
        hex::decode_to_slice(digits, &mut bytes).ok()?;
        Some(Self(bytes))
    }

    /// The bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// A token. It has no `Debug` and no serialized form.
pub struct BootstrapToken {
    secret: SecretArray,
    authority: AuthorityFingerprint,
}

/// Why a text is no token. It never quotes the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenFault {
    /// Not of the form of a token.
    #[error("a bootstrap token begins with `{TOKEN_PREFIX}` and has {TOKEN_CHARS} characters")]
    Form,
    /// Of the form, but changed: a character is wrong.
    #[error("the checksum of the bootstrap token does not hold: was it copied whole?")]
    Checksum,
    /// Of a later version.
    #[error("a bootstrap token of version {0}, which this program does not know")]
    Version(u8),
}

impl BootstrapToken {
    /// A token of 256 random bits.
    pub fn new(secret: SecretArray, authority: AuthorityFingerprint) -> Self {
        Self { secret, authority }
    }

    /// Reads a token. White space around it is left out.
    ///
    /// # Errors
    /// When it is none.
    pub fn parse(text: &SecretBytes) -> Result<Self, TokenFault> {
        let text = text.expose_str().ok_or(TokenFault::Form)?.trim();
        let body = text.strip_prefix(TOKEN_PREFIX).ok_or(TokenFault::Form)?;
        if text.len() != TOKEN_CHARS {
            return Err(TokenFault::Form);
        }
        let mut bytes = Zeroizing::new([0; BODY_BYTES]);
        let length = URL_SAFE_NO_PAD.decode_slice(body, bytes.as_mut()).map_err(|_| TokenFault::Form)?;
        let (rest, sum) = bytes.split_at(BODY_BYTES - 4);
        if length != BODY_BYTES || checksum(rest) != *sum {
            return Err(TokenFault::Checksum);
        }
        let (version, rest) = rest.split_first().ok_or(TokenFault::Form)?;
        if *version != TOKEN_VERSION {
            return Err(TokenFault::Version(*version));
        }
        let (secret, authority) = rest.split_at_checked(32).ok_or(TokenFault::Form)?;
        let secret = SecretArray::from_slice(secret).ok_or(TokenFault::Form)?;
        let authority = authority.try_into().map(AuthorityFingerprint).map_err(|_| TokenFault::Form)?;
        Ok(Self { secret, authority })
    }

    /// The text, to be shown once and sent at registration.
    pub fn to_text(&self) -> SecretBytes {
        let mut bytes = Zeroizing::new(Vec::with_capacity(BODY_BYTES));
        bytes.push(TOKEN_VERSION);
        bytes.extend_from_slice(self.secret.expose());
        bytes.extend_from_slice(self.authority.as_bytes());
        let sum = checksum(&bytes);
        bytes.extend_from_slice(&sum);
        let mut text = String::with_capacity(TOKEN_CHARS);
        text.push_str(TOKEN_PREFIX);
        URL_SAFE_NO_PAD.encode_string(bytes.as_slice(), &mut text);
        SecretBytes::new(text.into_bytes())
    }

    /// What the control plane stores of it: a digest that cannot be turned back, for one edge.
    pub fn stored(&self, edge: crate::ids::EdgeId) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new_derive_key(STORED_LABEL);
        hasher.update(edge.as_uuid().as_bytes());
        hasher.update(self.secret.expose());
        *hasher.finalize().as_bytes()
    }

    /// The authority that the control listener must prove itself with.
    pub fn authority(&self) -> AuthorityFingerprint {
        self.authority
    }
}

fn checksum(bytes: &[u8]) -> [u8; 4] {
    let digest = blake3::derive_key(CHECKSUM_LABEL, bytes);
    let [a, b, c, d, ..] = digest;
    [a, b, c, d]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token() -> BootstrapToken {
        BootstrapToken::new(
            SecretArray::from_slice(&[7; 32]).unwrap(),
            AuthorityFingerprint::of(b"authority"),
        )
    }

    #[test]
    fn a_token_comes_back_and_every_changed_character_is_told() {
        let text = token().to_text();
        let text = text.expose_str().unwrap();
        assert_eq!(text.len(), TOKEN_CHARS);
        let edge = crate::ids::EdgeId::from_uuid(uuid::Uuid::from_u128(1));
        let spaced = SecretBytes::new(format!(" {text}\n").into_bytes());
        let back = BootstrapToken::parse(&spaced).unwrap();
        assert_eq!(back.stored(edge), token().stored(edge));
        assert_eq!(back.authority(), AuthorityFingerprint::of(b"authority"));
        for at in 0..text.len() {
            let mut other = text.as_bytes().to_vec();
            other[at] = if other[at] == b'A' { b'B' } else { b'A' };
            assert!(BootstrapToken::parse(&SecretBytes::new(other)).is_err(), "character {at}");
            assert!(BootstrapToken::parse(&SecretBytes::new(text.as_bytes()[..at].to_vec())).is_err());
        }
    }

    #[test]
    fn fingerprints_are_read_as_tools_print_them() {
        let print = AuthorityFingerprint::of(b"x");
        let hex = hex::encode_upper(print.as_bytes());
        let colons: Vec<_> =
            hex.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap()).collect();
        assert_eq!(AuthorityFingerprint::parse(&colons.join(":")), Some(print));
        assert_eq!(AuthorityFingerprint::parse("00"), None);
    }
}
