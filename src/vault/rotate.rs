//! Rotation of the secret key file: every data key is sealed anew under the newest key of the file, and what is still
//! sealed directly under one of its keys moves under the data key of its owner.
//!
//! What must hold: it may end anywhere and be begun again, for what is left to do is what is not done, row by row; other
//! processes open and seal all the time; nothing is removed before its successor is stored, in one statement each. A
//! key is said to be dispensable only when nothing is sealed under it and what was derived from it is kept.

use headwater_events::ids::TenantId;
use sqlx::Row;
use sqlx::postgres::{PgConnection, PgPool};
use std::collections::BTreeMap;
use uuid::Uuid;

use super::data::{DataKey, Owner, Wrapped};
use super::{Place, Vault, VaultError, derived, sql};

/// Rows that are read at once.
const BATCH_MAX_ROWS: i64 = 100;

/// What is being done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Data keys are sealed anew.
    DataKeys,
    /// Secrets move under data keys.
    Secrets,
}

/// What a rotation did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rotated {
    /// Data keys that are under the newest key now and were not.
    pub data_keys: u64,
    /// Secrets that are under data keys now and were not.
    pub secrets: u64,
    /// What could not be opened, and stays as it is.
    pub unreadable: u64,
}

/// How one key of the file stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// The key's id.
    pub key: String,
    /// Whether the file has it.
    pub in_file: bool,
    /// Whether it is the one that seals.
    pub newest: bool,
    /// Data keys under it.
    pub data_keys: i64,
    /// Secrets directly under it.
    pub secrets: i64,
    /// Whether the file can do without it.
    pub dispensable: bool,
}

/// Why a rotation ends early.
#[derive(Debug, thiserror::Error)]
pub enum RotateError {
    /// Another one runs.
    #[error("another rotation runs: wait for its end")]
    Running,
    /// The key file or the database.
    #[error(transparent)]
    Vault(#[from] VaultError),
}

impl From<sqlx::Error> for RotateError {
    fn from(error: sqlx::Error) -> Self {
        Self::Vault(error.into())
    }
}

/// Does what is left to do; `told` hears of each step how much of how much is done.
///
/// # Errors
/// When another one runs, the key file cannot be used, or the database does not answer.
pub async fn rotate(
    pool: &PgPool,
    vault: &Vault,
    mut told: impl FnMut(Step, u64, u64) + Send,
) -> Result<Rotated, RotateError> {
    // A connection of its own: the claim ends with it.
    let mut claim = pool.acquire().await?.detach();
    let free: bool = sqlx::query_scalar(sql::CLAIM).fetch_one(&mut claim).await?;
    if !free {
        return Err(RotateError::Running);
    }
    let mut rotated = Rotated::default();
    derived::keep(pool, vault).await?;
    // What is sealed directly may lie under an old key too: both steps, in whichever order, leave none under it.
    data_keys(&mut claim, vault, &mut rotated, &mut told).await?;
    secrets(pool, &mut claim, vault, &mut rotated, &mut told).await?;
    Ok(rotated)
}

async fn data_keys(
    connection: &mut PgConnection,
    vault: &Vault,
    rotated: &mut Rotated,
    told: &mut impl FnMut(Step, u64, u64),
) -> Result<(), VaultError> {
    let newest = vault.newest();
    let total: i64 = sqlx::query_scalar(sql::COUNT_OLD_DATA_KEYS)
        .bind(newest.as_slice())
        .fetch_one(&mut *connection)
        .await?;
    let total = u64::try_from(total).unwrap_or_default();
    let (mut after, mut done) = (Uuid::nil(), 0);
    told(Step::DataKeys, done, total);
    loop {
        let query = sqlx::query(sql::OLD_DATA_KEYS).bind(newest.as_slice()).bind(after).bind(BATCH_MAX_ROWS);
        let rows = query.fetch_all(&mut *connection).await?;
        let Some(last) = rows.last() else { return Ok(()) };
        after = last.try_get(0)?;
        for row in &rows {
            let old = Wrapped::read(row)?;
            match old.again(vault) {
                Ok(new) => {
                    fail::fail_point!("rotate.before_rewrap");
                    let query = sqlx::query(sql::REWRAP).bind(old.id).bind(&old.wrapped).bind(new);
                    rotated.data_keys += query.execute(&mut *connection).await?.rows_affected();
                    fail::fail_point!("rotate.after_rewrap");
                }
                Err(error) => {
                    tracing::error!(id = %old.id, %error, "a data key stays under its old key");
                    rotated.unreadable += 1;
                }
            }
            done += 1;
        }
        told(Step::DataKeys, done, total.max(done));
    }
}

async fn secrets(
    pool: &PgPool,
    connection: &mut PgConnection,
    vault: &Vault,
    rotated: &mut Rotated,
    told: &mut impl FnMut(Step, u64, u64),
) -> Result<(), VaultError> {
    let total: i64 = sqlx::query_scalar(sql::COUNT_DIRECT).fetch_one(&mut *connection).await?;
    let total = u64::try_from(total).unwrap_or_default();
    let (mut after, mut done) = ((String::new(), String::new(), 0), 0);
    told(Step::Secrets, done, total);
    loop {
        let query = sqlx::query(sql::DIRECT).bind(&after.0).bind(&after.1).bind(after.2).bind(BATCH_MAX_ROWS);
        let rows = query.fetch_all(&mut *connection).await?;
        if rows.is_empty() {
            return Ok(());
        }
        for row in &rows {
            let (kind, id, version): (String, String, i32) =
                (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
            let (sealed, tenant): (Vec<u8>, Option<Uuid>) = (row.try_get(3)?, row.try_get(4)?);
            let place = Place { kind: &kind, id: &id, version };
            let owner = tenant.map_or(Owner::Platform, |tenant| Owner::Tenant(TenantId::from_uuid(tenant)));
            match again(pool, connection, vault, owner, place, &sealed).await {
                Ok(new) => {
                    fail::fail_point!("rotate.before_reseal");
                    let query = sqlx::query(sql::RESEAL).bind(&kind).bind(&id).bind(version);
                    let query = query.bind(&sealed).bind(new);
                    rotated.secrets += query.execute(&mut *connection).await?.rows_affected();
                    fail::fail_point!("rotate.after_reseal");
                }
                Err(VaultError::Database(error)) => return Err(error.into()),
                Err(error) => {
                    tracing::error!(kind, id, version, %error, "a secret stays under its old key");
                    rotated.unreadable += 1;
                }
            }
            done += 1;
            after = (kind, id, version);
        }
        told(Step::Secrets, done, total.max(done));
    }
}

async fn again(
    pool: &PgPool,
    connection: &mut PgConnection,
    vault: &Vault,
    owner: Owner,
    place: Place<'_>,
    sealed: &[u8],
) -> Result<Vec<u8>, VaultError> {
    let secret = vault.open_sealed(pool, place, sealed).await?;
    DataKey::of(connection, vault, owner).await?.seal(place, secret.expose())
}

/// How every key stands that the file has or something is sealed under, the newest first.
///
/// # Errors
/// When the database does not answer.
pub async fn status(pool: &PgPool, vault: &Vault) -> Result<Vec<Standing>, VaultError> {
    let rows: Vec<(String, i64, i64)> = sqlx::query_as(sql::IN_USE).fetch_all(pool).await?;
    let mut used: BTreeMap<String, (i64, i64)> =
        rows.into_iter().map(|(key, data_keys, secrets)| (key, (data_keys, secrets))).collect();
    let kept = derived::kept(pool, vault).await?;
    let mut standings = Vec::new();
    for (index, key) in vault.ids().into_iter().enumerate() {
        let (data_keys, secrets) = used.remove(&key).unwrap_or_default();
        let newest = index == 0;
        let dispensable = !newest && data_keys == 0 && secrets == 0 && kept.contains(&key);
        standings.push(Standing { key, in_file: true, newest, data_keys, secrets, dispensable });
    }
    for (key, (data_keys, secrets)) in used {
        standings.push(Standing {
            key,
            in_file: false,
            newest: false,
            data_keys,
            secrets,
            dispensable: false,
        });
    }
    Ok(standings)
}
