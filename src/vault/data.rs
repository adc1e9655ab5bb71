//! Data keys: each tenant's secrets are sealed under a key of its own, the platform's under another, and those keys
//! under the newest key of the secret key file. So a rotation seals a few keys anew and no secret, and a tenant that is
//! gone leaves nothing that can be opened.
//!
//! What must hold: what is sealed is bound to its owner and its place; a data key is bound to its id and owner, so a row
//! that is moved opens nothing; data keys are held for one call, never kept.

use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use headwater_edge_wire::secret::SecretBytes;
use headwater_events::ids::TenantId;
use sqlx::Row;
use sqlx::postgres::{PgConnection, PgPool, PgRow};
use std::collections::BTreeMap;
use uuid::Uuid;
use zeroize::Zeroizing;

use super::{FORM, NONCE_BYTES, Place, Vault, VaultError, sql};

/// The form of what is sealed under a data key, its first byte.
const DATA_FORM: u8 = 2;
/// Octets of a data key's id.
const ID_BYTES: usize = 16;
/// The kind under which data keys themselves are sealed. It is part of what they are bound to: never rename.
const KIND: &str = "data_key";

/// Whose secrets a data key seals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// The platform.
    Platform,
    /// A tenant.
    Tenant(TenantId),
}

impl Owner {
    fn column(self) -> Option<Uuid> {
        match self {
            Self::Platform => None,
            Self::Tenant(tenant) => Some(tenant.as_uuid()),
        }
    }

    fn of_column(column: Option<Uuid>) -> Self {
        column.map_or(Self::Platform, |tenant| Self::Tenant(TenantId::from_uuid(tenant)))
    }

    /// What is bound, before the place: no tenant has the nil id.
    fn bound(self, place: Place<'_>) -> Vec<u8> {
        let owner = self.column().unwrap_or_else(Uuid::nil);
        [owner.as_bytes().as_slice(), &place.bound()].concat()
    }
}

/// A data key as it stands in its row.
pub(super) struct Wrapped {
    pub(super) id: Uuid,
    owner: Owner,
    pub(super) wrapped: Vec<u8>,
}

impl Wrapped {
    pub(super) fn read(row: &PgRow) -> Result<Self, sqlx::Error> {
        Ok(Self { id: row.try_get(0)?, owner: Owner::of_column(row.try_get(1)?), wrapped: row.try_get(2)? })
    }

    /// What it is bound to.
    fn name(&self) -> String {
        format!("{} {}", self.id, self.owner.column().unwrap_or_else(Uuid::nil))
    }

    /// The same key under the newest key of the file.
    pub(super) fn again(&self, vault: &Vault) -> Result<Vec<u8>, VaultError> {
        let name = self.name();
        let key = vault.unseal(Place { kind: KIND, id: &name, version: 1 }, &self.wrapped)?;
        vault.seal(Place { kind: KIND, id: &name, version: 1 }, key.expose())
    }

    fn open(&self, vault: &Vault) -> Result<DataKey, VaultError> {
        let name = self.name();
        let key = vault.unseal(Place { kind: KIND, id: &name, version: 1 }, &self.wrapped)?;
        let cipher = XChaCha20Poly1305::new_from_slice(key.expose())
            .map_err(|_| VaultError::Broken(KIND.to_owned()))?;
        Ok(DataKey { id: self.id, owner: self.owner, cipher })
    }
}

/// A data key that is open.
pub struct DataKey {
    id: Uuid,
    owner: Owner,
    cipher: XChaCha20Poly1305,
}

impl DataKey {
    /// The key of an owner, which is made where there is none.
    ///
    /// # Errors
    /// When the key file cannot be used, the database does not answer, or the owner is gone.
    pub async fn of(connection: &mut PgConnection, vault: &Vault, owner: Owner) -> Result<Self, VaultError> {
        if let Some(found) = find(connection, owner).await? {
            return found.open(vault);
        }
        let key = Zeroizing::new(rand::random::<[u8; 32]>());
        let mut new = Wrapped { id: Uuid::now_v7(), owner, wrapped: Vec::new() };
        let name = new.name();
        // Another process may know a newer key by now.
        vault.reread()?;
        new.wrapped = vault.seal(Place { kind: KIND, id: &name, version: 1 }, key.as_slice())?;
        let make = sqlx::query(sql::MAKE_DATA_KEY).bind(new.id).bind(owner.column()).bind(&new.wrapped);
        make.execute(&mut *connection).await?;
        // Whoever was first made it.
        find(connection, owner).await?.ok_or(VaultError::Gone)?.open(vault)
    }

    /// Seals a secret for its place.
    ///
    /// # Errors
    /// When the library fails.
    pub fn seal(&self, place: Place<'_>, secret: &[u8]) -> Result<Vec<u8>, VaultError> {
        let nonce: [u8; NONCE_BYTES] = rand::random();
        let payload = Payload { msg: secret, aad: &self.owner.bound(place) };
        let text = self.cipher.encrypt(&XNonce::from(nonce), payload).map_err(|_| VaultError::Library)?;
        Ok([&[DATA_FORM], self.id.as_bytes().as_slice(), &nonce, &text].concat())
    }
}

async fn find(connection: &mut PgConnection, owner: Owner) -> Result<Option<Wrapped>, sqlx::Error> {
    let row = sqlx::query(sql::DATA_KEY).bind(owner.column()).fetch_optional(connection).await?;
    row.as_ref().map(Wrapped::read).transpose()
}

/// The data keys under which some secrets are sealed, for as long as those are opened.
pub struct Opener<'v> {
    vault: &'v Vault,
    keys: BTreeMap<Uuid, Result<DataKey, VaultError>>,
}

impl<'v> Opener<'v> {
    /// Reads the keys of these sealed secrets at once.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn read(
        pool: &PgPool,
        vault: &'v Vault,
        sealed: impl Iterator<Item = &[u8]>,
    ) -> Result<Self, sqlx::Error> {
        let mut ids: Vec<Uuid> = sealed.filter_map(|sealed| parts(sealed).map(|(id, ..)| id)).collect();
        ids.sort_unstable();
        ids.dedup();
        let mut keys = BTreeMap::new();
        if !ids.is_empty() {
            for row in sqlx::query(sql::DATA_KEYS).bind(&ids).fetch_all(pool).await? {
                let found = Wrapped::read(&row)?;
                keys.insert(found.id, found.open(vault));
            }
        }
        Ok(Self { vault, keys })
    }

    /// Opens a secret that was sealed for this place.
    ///
    /// # Errors
    /// When it was sealed for another place or owner, was changed, or its key cannot be had any more.
    pub fn unseal(&self, place: Place<'_>, sealed: &[u8]) -> Result<SecretBytes, VaultError> {
        if sealed.first() == Some(&FORM) {
            return self.vault.unseal(place, sealed);
        }
        let broken = || VaultError::Broken(place.kind.to_owned());
        let (id, nonce, text) = parts(sealed).ok_or_else(broken)?;
        let key = match self.keys.get(&id) {
            None => return Err(VaultError::Gone),
            Some(Err(VaultError::UnknownKey(key))) => return Err(VaultError::UnknownKey(key.clone())),
            Some(Err(_)) => return Err(broken()),
            Some(Ok(key)) => key,
        };
        let payload = Payload { msg: text, aad: &key.owner.bound(place) };
        key.cipher.decrypt(&XNonce::from(*nonce), payload).map(SecretBytes::new).map_err(|_| broken())
    }
}

fn parts(sealed: &[u8]) -> Option<(Uuid, &[u8; NONCE_BYTES], &[u8])> {
    let (form, rest) = sealed.split_first()?;
    let (id, rest) = rest.split_first_chunk::<ID_BYTES>()?;
    let (nonce, text) = rest.split_first_chunk::<NONCE_BYTES>()?;
    (*form == DATA_FORM).then(|| (Uuid::from_bytes(*id), nonce, text))
}

impl Vault {
    /// Seals a secret of an owner for its place.
    ///
    /// # Errors
    /// As [`DataKey::of`].
    pub async fn seal_for(
        &self,
        connection: &mut PgConnection,
        owner: Owner,
        place: Place<'_>,
        secret: &[u8],
    ) -> Result<Vec<u8>, VaultError> {
        DataKey::of(connection, self, owner).await?.seal(place, secret)
    }

    /// Opens one secret, whatever key it was sealed under.
    ///
    /// # Errors
    /// As [`Opener::read`] and [`Opener::unseal`].
    pub async fn open_sealed(
        &self,
        pool: &PgPool,
        place: Place<'_>,
        sealed: &[u8],
    ) -> Result<SecretBytes, VaultError> {
        Opener::read(pool, self, std::iter::once(sealed)).await?.unseal(place, sealed)
    }
}

/// Removes the keys of tenants that were deleted: what they sealed opens nowhere any more. Gives how many.
///
/// # Errors
/// When the database does not answer.
pub async fn erase(pool: &PgPool) -> Result<u64, sqlx::Error> {
    Ok(sqlx::query(sql::ERASE_DATA_KEYS).execute(pool).await?.rows_affected())
}
