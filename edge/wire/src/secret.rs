//! Secrets: bytes that are wiped when they are dropped and can only be had by asking for them by name. They have no
//! `Debug`, `Display`, `Clone`, `PartialEq` or serialized form, so no log line, error or event can hold one by mistake.

use zeroize::Zeroizing;

/// Secret bytes: a private key, a token, a PKCS #8 document.
pub struct SecretBytes(Zeroizing<Vec<u8>>);

impl SecretBytes {
    /// Takes bytes over. The caller's buffer becomes this one, nothing is copied.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// The bytes. Whoever calls this answers for where they go.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }

    /// The bytes as text, where they are UTF-8.
    pub fn expose_str(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok()
    }
}

/// 32 secret bytes: a seed or a symmetric key.
pub struct SecretArray(Zeroizing<[u8; 32]>);

impl SecretArray {
    /// Takes 32 bytes over; nothing when there are more or fewer.
    pub fn from_slice(bytes: &[u8]) -> Option<Self> {
        let mut array = Zeroizing::new([0; 32]);
        if bytes.len() != array.len() {
            return None;
        }
        array.copy_from_slice(bytes);
        Some(Self(array))
    }

    /// The bytes. Whoever calls this answers for where they go.
    pub fn expose(&self) -> &[u8; 32] {
        &self.0
    }
}
