//! What the agent wrote itself is authenticated too, before it is parsed: by a key that is derived from this edge's
//! sealing key. A file that was changed, cut, put together from two, or copied from another edge does not hold.

use headwater_edge_wire::secret::SecretArray;
use zeroize::Zeroizing;

/// The bytes of an authenticator.
pub const MAC_BYTES: usize = 32;
const LABEL: &str = "headwater-edge-state-v1";

/// The key under which this edge authenticates its own files.
pub struct StateKey(Zeroizing<[u8; 32]>);

/// An authenticator.
pub type Mac = [u8; MAC_BYTES];

impl StateKey {
    /// The key that belongs to a sealing key.
    pub fn derive(sealing: &SecretArray) -> Self {
        Self(Zeroizing::new(blake3::derive_key(LABEL, sealing.expose())))
    }

    /// Authenticates parts for one purpose. Each part is counted, so none can shift into the next.
    pub fn mac(&self, purpose: &str, parts: &[&[u8]]) -> Mac {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        for part in std::iter::once(purpose.as_bytes()).chain(parts.iter().copied()) {
            hasher.update(&(part.len() as u64).to_be_bytes());
            hasher.update(part);
        }
        *hasher.finalize().as_bytes()
    }

    /// Whether an authenticator holds, in constant time.
    pub fn holds(&self, purpose: &str, parts: &[&[u8]], mac: &[u8]) -> bool {
        let expected = blake3::Hash::from_bytes(self.mac(purpose, parts));
        <[u8; MAC_BYTES]>::try_from(mac).is_ok_and(|mac| expected == blake3::Hash::from_bytes(mac))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cannot_shift_and_purposes_cannot_be_swapped() {
        let key = StateKey::derive(&SecretArray::from_slice(&[1; 32]).unwrap());
        let other = StateKey::derive(&SecretArray::from_slice(&[2; 32]).unwrap());
        let mac = key.mac("a", &[b"xy", b"z"]);
        assert!(key.holds("a", &[b"xy", b"z"], &mac));
        assert!(!key.holds("a", &[b"x", b"yz"], &mac));
        assert!(!key.holds("b", &[b"xy", b"z"], &mac));
        assert!(!other.holds("a", &[b"xy", b"z"], &mac));
        assert!(!key.holds("a", &[b"xy", b"z"], &mac[..31]));
    }
}
