//! Digests of what a holder must show: BLAKE3 under a key of the secret key file, so that a copy of the database says
//! nothing of it, and what was stored before there was such a key still counts.

use sqlx::postgres::PgPool;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::config::Config;
use crate::vault::{Vault, VaultError, derived};

/// The keys of a process, first the one that new digests are made under. Without a secret key file there are none.
#[derive(Clone)]
pub struct DigestKeys {
    keys: Vec<Zeroizing<[u8; 32]>>,
    bodies: Zeroizing<[u8; 32]>,
}

impl Default for DigestKeys {
    /// As without a secret key file.
    fn default() -> Self {
        Self::new(Vec::new())
    }
}

impl DigestKeys {
    /// Reads the key file that the configuration names, and what is kept of keys that left it. Where there is no file,
    /// digests are not keyed.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn load(pool: &PgPool, config: &Config) -> Result<Self, sqlx::Error> {
        let told = "tokens that were made under the secret key file are refused until it can be read";
        let vault = match Vault::open(config) {
            Ok(vault) => vault,
            Err(VaultError::Missing(_)) => return Ok(Self::new(Vec::new())),
            Err(error) => {
                tracing::error!(%error, told);
                return Ok(Self::new(Vec::new()));
            }
        };
        match derived::digest_keys(pool, &vault).await {
            Ok(keys) => Ok(Self::new(keys)),
            Err(VaultError::Database(error)) => Err(error),
            Err(error) => {
                tracing::error!(%error, told);
                Ok(Self::new(vault.digest_keys()))
            }
        }
    }

    fn new(keys: Vec<Zeroizing<[u8; 32]>>) -> Self {
        // A digest of a request with a password in it must be worth nothing to whoever reads the database.
        let bodies = match keys.first() {
            Some(key) => blake3::derive_key("headwater 2026-12 request digest v1", key.as_slice()),
            None => rand::random(),
        };
        Self { keys, bodies: Zeroizing::new(bodies) }
    }

    /// The key of digests of requests that hold a secret. Without a key file it is the process's own.
    pub fn of_requests(&self) -> &[u8; 32] {
        &self.bodies
    }

    /// What is stored for a digest.
    pub fn stored(&self, plain: &[u8; 32]) -> [u8; 32] {
        self.keys.first().map_or(*plain, |key| keyed(key, plain))
    }

    /// Everything that may be stored for a digest.
    pub fn candidates(&self, plain: &[u8; 32]) -> Vec<[u8; 32]> {
        self.keys.iter().map(|key| keyed(key, plain)).chain([*plain]).collect()
    }
}

fn keyed(key: &Zeroizing<[u8; 32]>, plain: &[u8; 32]) -> [u8; 32] {
    *blake3::keyed_hash(key, plain).as_bytes()
}

/// Whether what is stored is one of these, in a time that does not tell how much of it is.
pub fn is_one_of(candidates: &[[u8; 32]], stored: &[u8]) -> bool {
    let found =
        candidates.iter().fold(0, |found, one| found | u8::from(bool::from(one.as_slice().ct_eq(stored))));
    found != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn older_digests_stay_valid() {
        let (old, new) = (Zeroizing::new([1; 32]), Zeroizing::new([2; 32]));
        let plain = [7; 32];
        let (none, first) = (DigestKeys::new(Vec::new()), DigestKeys::new(vec![old.clone()]));
        let both = DigestKeys::new(vec![new, old]);
        assert_eq!(none.stored(&plain), plain);
        assert_ne!(first.stored(&plain), plain);
        for stored in [none.stored(&plain), first.stored(&plain), both.stored(&plain)] {
            assert!(is_one_of(&both.candidates(&plain), &stored));
        }
        assert!(!is_one_of(&first.candidates(&plain), &both.stored(&plain)));
        assert!(!is_one_of(&both.candidates(&[8; 32]), &both.stored(&plain)));
        assert!(!is_one_of(&both.candidates(&plain), &plain[..31]));
        assert_ne!(none.of_requests(), DigestKeys::new(Vec::new()).of_requests());
        assert_eq!(first.of_requests(), first.clone().of_requests());
    }
}
