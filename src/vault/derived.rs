//! Keys of digests: what holders of tokens and sessions must show is stored as a digest under a key that is derived from
//! a key of the secret key file. Such a digest cannot be made anew, so what it was made under is kept, sealed, when its
//! key leaves the file; and one stays the first for good, so that every process stores what every other one finds.

use sqlx::postgres::PgPool;
use std::collections::BTreeSet;
use zeroize::Zeroizing;

use super::{Opener, Owner, Place, Vault, VaultError, sql};

/// The kind of these secrets. It is stored: never rename.
const KIND: &str = "digest_key";
/// The id of the one that what is new is stored under.
const FIRST: &str = "first";
/// Their only version.
const VERSION: i32 = 1;

fn place(id: &str) -> Place<'_> {
    Place { kind: KIND, id, version: VERSION }
}

/// Every key of digests: the one that new ones are made under, then all that older ones may have been made under. The
/// first call of a platform settles which is the first.
///
/// # Errors
/// When the database does not answer, or the key file cannot be used.
pub async fn digest_keys(pool: &PgPool, vault: &Vault) -> Result<Vec<Zeroizing<[u8; 32]>>, VaultError> {
    let of_file = vault.digest_keys();
    let mut stored = read(pool, vault).await?;
    if !stored.iter().any(|(id, _)| id == FIRST) {
        let first = of_file.first().ok_or(VaultError::Library)?;
        put(pool, vault, FIRST, first).await?;
        stored = read(pool, vault).await?;
    }
    let (mut keys, others): (Vec<_>, Vec<_>) = stored.into_iter().partition(|(id, _)| id == FIRST);
    keys.extend(others);
    let mut keys: Vec<_> = keys.into_iter().map(|(_, key)| key).collect();
    for key in of_file {
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    Ok(keys)
}

async fn read(pool: &PgPool, vault: &Vault) -> Result<Vec<(String, Zeroizing<[u8; 32]>)>, VaultError> {
    let rows: Vec<(String, i32, Vec<u8>)> = sqlx::query_as(sql::OF_KIND).bind(KIND).fetch_all(pool).await?;
    let opener = Opener::read(pool, vault, rows.iter().map(|(.., sealed)| sealed.as_slice())).await?;
    let mut keys = Vec::new();
    for (id, _, sealed) in &rows {
        let opened = opener.unseal(place(id), sealed)?;
        let mut key = Zeroizing::new([0; 32]);
        if opened.expose().len() != key.len() {
            return Err(VaultError::Broken(KIND.to_owned()));
        }
        key.copy_from_slice(opened.expose());
        keys.push((id.clone(), key));
    }
    Ok(keys)
}

async fn put(pool: &PgPool, vault: &Vault, id: &str, key: &Zeroizing<[u8; 32]>) -> Result<(), VaultError> {
    let mut connection = pool.acquire().await?;
    let sealed = vault.seal_for(&mut connection, Owner::Platform, place(id), key.as_slice()).await?;
    let query = sqlx::query(sql::PUT).bind(KIND).bind(id).bind(VERSION).bind(sealed);
    query.execute(&mut *connection).await?;
    Ok(())
}

/// Keeps what is derived from every key of the file, so that each may leave it.
///
/// # Errors
/// When the database does not answer, or the key file cannot be used.
pub async fn keep(pool: &PgPool, vault: &Vault) -> Result<(), VaultError> {
    // Who is first is settled before anything else is kept.
    digest_keys(pool, vault).await?;
    for (id, key) in vault.ids().iter().zip(vault.digest_keys()) {
        put(pool, vault, id, &key).await?;
    }
    Ok(())
}

/// The keys of the file of which that is kept.
///
/// # Errors
/// When the database does not answer, or what is kept cannot be opened.
pub(super) async fn kept(pool: &PgPool, vault: &Vault) -> Result<BTreeSet<String>, VaultError> {
    Ok(read(pool, vault).await?.into_iter().map(|(id, _)| id).collect())
}
