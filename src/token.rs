//! API tokens: `hw_`, 256 random bits in hex, and eight hex digits of checksum, so that scanners recognize a leaked
//! one and a mistyped one is told without a look-up. Only the hash of the random bits is stored.

use crate::secret::Secret;

/// What every token begins with.
pub const PREFIX: &str = "hw_";
/// Hex digits of the random part.
const BODY_DIGITS: usize = 64;
/// Hex digits of the checksum.
const CHECKSUM_DIGITS: usize = 8;

/// BLAKE3 of a token's random bits: what is stored and looked up.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TokenHash([u8; 32]);

impl TokenHash {
    /// The octets, for the database.
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// A new token. It is shown once.
pub fn generate() -> Secret {
    let body = hex::encode(rand::random::<[u8; 32]>());
    let checksum = checksum(&body);
    Secret::new(format!("{PREFIX}{body}{checksum}"))
}

/// The hash of a token that is well-formed; none for anything else.
pub fn hash(text: &str) -> Option<TokenHash> {
    let rest = text.strip_prefix(PREFIX)?;
    if rest.len() != BODY_DIGITS + CHECKSUM_DIGITS || !rest.is_ascii() {
        return None;
    }
    let (body, check) = rest.split_at(BODY_DIGITS);
    if checksum(body) != check {
        return None;
    }
    let bits = hex::decode(body).ok()?;
    Some(TokenHash(*blake3::hash(&bits).as_bytes()))
}

fn checksum(body: &str) -> String {
    let digest = blake3::derive_key("headwater 2026-11 token checksum v1", body.as_bytes());
    hex::encode(&digest[..CHECKSUM_DIGITS / 2])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_recognized_and_a_mistyped_one_is_not() {
        let token = generate();
        assert!(hash(token.expose()).is_some());
        assert_eq!(token.expose().len(), 75);
        let mut wrong = token.expose().to_owned();
        let last = if wrong.pop() == Some('0') { '1' } else { '0' };
        wrong.push(last);
        for text in [wrong.as_str(), "", "hw_", "hw_é", &token.expose()[3..], &token.expose()[..74]] {
            assert!(hash(text).is_none(), "{text}");
        }
        assert!(hash(&token.expose().to_uppercase()).is_none());
    }
}
