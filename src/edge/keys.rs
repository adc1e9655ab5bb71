//! Keys of the platform and of edges. Each is made once, by whichever process needs it first, and stands sealed in the
//! database; what everybody may know of it stands beside it. Keys of certificates come by the API, sealed in the same
//! way, and leave towards an edge sealed under its content key.

use headwater_edge_wire::checksum::Checksum;
use headwater_edge_wire::ids::{CertificateId, EdgeId, Version};
use headwater_edge_wire::seal::{ContentKey, SealedKey};
use headwater_edge_wire::secret::{SecretArray, SecretBytes};
use headwater_edge_wire::sign::{
    Context, KEY_RING_MAX, KeyRing, PublicKey, SignError, Signature, SigningKey,
};
use headwater_projections::edge::KeyName;
use sqlx::Row;
use sqlx::postgres::{PgConnection, PgPool, PgRow};
use std::collections::BTreeMap;

use super::authority::Authority;
use super::{EdgeError, sql};
use crate::app::App;
use crate::certificate::KEY_KIND;
use crate::vault::{Opener, Owner, Place, Vault};

/// The kinds of sealed secrets. They are stored: never rename.
const AUTHORITY: &str = "edge_identity_authority";
const SIGNING_KEY: &str = "edge_signing_key";
const CONTENT_KEY: &str = "edge_content_key";
/// The id of what there is one of.
const ONLY: &str = "platform";
/// The first version of anything.
const FIRST: i32 = 1;

/// Signs artifacts and pages, and knows the ring that edges pin.
pub struct Signer {
    pub(super) key: SigningKey,
    pub(super) ring: KeyRing,
    of: Standing,
}

/// The keys there are, by version, and which of them signs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Standing {
    ring: Vec<(i32, PublicKey)>,
    signs: i32,
}

impl Standing {
    /// Reads it. A key that was added signs once every edge that is answered has said that it pins it: until then it is
    /// only told of, in the ring of each page. The first key signs at once.
    ///
    /// # Errors
    /// When the database does not answer.
    pub(super) async fn read(pool: &PgPool) -> Result<Option<Self>, EdgeError> {
        let found: Vec<(i32, Vec<u8>)> =
            sqlx::query_as(sql::PUBLIC_KEYS).bind(SIGNING_KEY).bind(ONLY).fetch_all(pool).await?;
        let mut ring = Vec::new();
        for (version, public) in found {
            let public: [u8; 32] = public.try_into().map_err(|_| EdgeError::Odd("public key"))?;
            ring.push((version, PublicKey::from_bytes(public)));
        }
        let Some((mut signs, _)) = ring.first().copied() else { return Ok(None) };
        for (version, public) in ring.iter().skip(1).rev() {
            if lacking(pool, public).await?.is_empty() {
                signs = *version;
                break;
            }
        }
        Ok(Some(Self { ring, signs }))
    }
}

/// The names of the edges that are answered and have not said that they pin a key.
async fn lacking(pool: &PgPool, key: &PublicKey) -> Result<Vec<String>, sqlx::Error> {
    sqlx::query_scalar(sql::WITHOUT_KEY).bind(key.id().to_string()).fetch_all(pool).await
}

/// Adds a key to the ring: its public half, and the edges that must pin it before it signs.
///
/// # Errors
/// When the ring is full, the key file cannot be used, or the database does not answer.
pub async fn add_signing_key(pool: &PgPool, vault: &Vault) -> Result<(PublicKey, Vec<String>), EdgeError> {
    // The first one, where there is none yet.
    let ring = load_signer(pool, vault).await?.of.ring;
    if ring.len() >= KEY_RING_MAX {
        return Err(SignError::Ring.into());
    }
    let key = SigningKey::generate()?;
    let (public, seed) = (key.public()?, key.seed()?);
    let version = ring.last().map_or(FIRST, |(version, _)| version + 1);
    put(pool, vault, place(SIGNING_KEY, ONLY, version), public.as_bytes(), seed.expose()).await?;
    // Somebody who came first has another key under this number.
    let stored = Standing::read(pool).await?.ok_or(EdgeError::Odd("signing key"))?;
    if !stored.ring.contains(&(version, public)) {
        return Err(EdgeError::Odd("signing key: another one was added at this moment"));
    }
    Ok((public, lacking(pool, &public).await?))
}

impl Signer {
    /// Whether these are the keys that it was opened from.
    pub(super) fn stands(&self, now: &Standing) -> bool {
        self.of == *now
    }

    /// Signs an artifact.
    ///
    /// # Errors
    /// When the library fails.
    pub fn sign_artifact(&self, checksum: &Checksum) -> Result<Signature, SignError> {
        self.key.sign_artifact(checksum)
    }

    /// Signs where every stream of the log ends.
    ///
    /// # Errors
    /// When the library fails.
    pub fn sign_heads(&self, root: &[u8; 32]) -> Result<Signature, SignError> {
        self.key.sign(Context::Heads, root)
    }

    /// The public half of the key that signs.
    ///
    /// # Errors
    /// When the library fails.
    pub fn public(&self) -> Result<PublicKey, SignError> {
        self.key.public()
    }

    /// The keys that edges pin.
    pub fn ring(&self) -> &KeyRing {
        &self.ring
    }
}

/// What signs artifacts and pages. The first call of a platform makes the key.
///
/// # Errors
/// When the key file cannot be used, or the database does not answer.
pub async fn signer(app: &App) -> Result<Signer, EdgeError> {
    load_signer(&app.pool, &Vault::open(&app.config)?).await
}

pub(super) async fn load_signer(pool: &PgPool, vault: &Vault) -> Result<Signer, EdgeError> {
    let mut known = Standing::read(pool).await?;
    if known.is_none() {
        let key = SigningKey::generate()?;
        let (public, seed) = (key.public()?, key.seed()?);
        put(pool, vault, place(SIGNING_KEY, ONLY, FIRST), public.as_bytes(), seed.expose()).await?;
        known = Standing::read(pool).await?;
    }
    let of = known.ok_or(EdgeError::Odd("signing key"))?;
    let stored = versions(pool, SIGNING_KEY, ONLY).await?;
    let stored = stored.into_iter().find(|one| one.version == of.signs);
    let stored = stored.ok_or(EdgeError::Odd("signing key"))?;
    let seed = vault.open_sealed(pool, place(SIGNING_KEY, ONLY, stored.version), &stored.sealed).await?;
    let key = SigningKey::from_seed(&array(&seed)?)?;
    let ring = KeyRing::new(of.ring.iter().map(|(_, public)| *public).collect())?;
    Ok(Signer { key, ring, of })
}

/// The certificate of the identity authority, as DER. The first call of a platform makes the authority.
///
/// # Errors
/// When there is none yet and the key file cannot be used, or the database does not answer.
pub async fn authority_certificate(app: &App) -> Result<Vec<u8>, EdgeError> {
    match versions(&app.pool, AUTHORITY, ONLY).await?.pop() {
        Some(stored) => Ok(stored.public),
        None => Ok(load_authority(&app.pool, &Vault::open(&app.config)?).await?.certificate().to_vec()),
    }
}

pub(super) async fn load_authority(pool: &PgPool, vault: &Vault) -> Result<Authority, EdgeError> {
    let mut stored = versions(pool, AUTHORITY, ONLY).await?;
    if stored.is_empty() {
        let (certificate, key) = Authority::make()?;
        put(pool, vault, place(AUTHORITY, ONLY, FIRST), &certificate, key.expose()).await?;
        stored = versions(pool, AUTHORITY, ONLY).await?;
    }
    let newest = stored.pop().ok_or(EdgeError::Odd("authority"))?;
    let key = vault.open_sealed(pool, place(AUTHORITY, ONLY, newest.version), &newest.sealed).await?;
    Authority::load(newest.public, &key)
}

/// Gives an edge a new content key: what an earlier holder of its identity knew opens nothing that comes.
pub(super) async fn new_content_key(
    connection: &mut PgConnection,
    vault: &Vault,
    edge: EdgeId,
) -> Result<(), EdgeError> {
    let id = edge.to_string();
    let newest: Option<i32> = sqlx::query_scalar(sql::NEWEST_SECRET)
        .bind(CONTENT_KEY)
        .bind(&id)
        .fetch_one(&mut *connection)
        .await?;
    let version = newest.unwrap_or(0) + 1;
    let key = ContentKey::generate()?;
    let at = place(CONTENT_KEY, &id, version);
    let sealed = vault.seal_for(connection, Owner::Platform, at, key.secret().expose()).await?;
    let public: &[u8] = &[];
    let query = sqlx::query(sql::PUT_SECRET).bind(CONTENT_KEY).bind(&id).bind(version).bind(public);
    query.bind(sealed).execute(connection).await?;
    Ok(())
}

/// The newest content key of an edge.
pub(super) async fn content_key(
    pool: &PgPool,
    vault: &Vault,
    edge: EdgeId,
) -> Result<(Version, ContentKey), EdgeError> {
    let id = edge.to_string();
    let newest = versions(pool, CONTENT_KEY, &id).await?.pop().ok_or(EdgeError::Odd("content key"))?;
    let key = vault.open_sealed(pool, place(CONTENT_KEY, &id, newest.version), &newest.sealed).await?;
    let version = Version::try_from(i64::from(newest.version))?;
    Ok((version, ContentKey::from_secret(array(&key)?)))
}

/// The keys of certificates, sealed under the content key of an edge. What cannot be had is told of and left out.
pub(super) async fn certificate_keys<'a>(
    pool: &PgPool,
    vault: &Vault,
    names: impl Iterator<Item = &'a KeyName>,
    content_key: &ContentKey,
) -> Result<BTreeMap<KeyName, SealedKey>, EdgeError> {
    let mut wanted: BTreeMap<(String, i32), KeyName> = BTreeMap::new();
    for name in names {
        let version = i32::try_from(name.version).map_err(|_| EdgeError::Odd("version"))?;
        wanted.insert((name.id.to_string(), version), *name);
    }
    let mut sealed = BTreeMap::new();
    if wanted.is_empty() {
        return Ok(sealed);
    }
    let (ids, versions): (Vec<&str>, Vec<i32>) =
        wanted.keys().map(|(id, version)| (id.as_str(), *version)).unzip();
    let query = sqlx::query_as(sql::SOME_SECRETS).bind(KEY_KIND).bind(ids).bind(versions);
    let found: Vec<(String, i32, Vec<u8>)> = query.fetch_all(pool).await?;
    let opener = Opener::read(pool, vault, found.iter().map(|(.., bytes)| bytes.as_slice())).await?;
    for (id, version, bytes) in found {
        let opened = opener.unseal(place(KEY_KIND, &id, version), &bytes);
        match (wanted.remove(&(id, version)), opened) {
            (Some(name), Ok(key)) => {
                let id = CertificateId::from_uuid(name.id.as_uuid());
                sealed.insert(name, content_key.seal_key(id, Version::from(name.version), &key)?);
            }
            (Some(name), Err(error)) => {
                let (id, version) = (name.id, name.version);
                tracing::error!(%id, version, %error, "edges get no key for a certificate: it cannot be opened");
            }
            (None, _) => {}
        }
    }
    for (id, version) in wanted.keys() {
        tracing::debug!(%id, version, "a key of a certificate is not there");
    }
    Ok(sealed)
}

/// Removes the keys of certificates that nothing refers to any more; gives how many.
pub(super) async fn forget_keys(pool: &PgPool) -> Result<u64, sqlx::Error> {
    Ok(sqlx::query(sql::FORGET_KEYS).bind(KEY_KIND).execute(pool).await?.rows_affected())
}

fn place<'a>(kind: &'a str, id: &'a str, version: i32) -> Place<'a> {
    Place { kind, id, version }
}

fn array(secret: &SecretBytes) -> Result<SecretArray, EdgeError> {
    SecretArray::from_slice(secret.expose()).ok_or(EdgeError::Odd("key"))
}

struct Stored {
    version: i32,
    public: Vec<u8>,
    sealed: Vec<u8>,
}

/// Every version, ascending.
async fn versions(pool: &PgPool, kind: &str, id: &str) -> Result<Vec<Stored>, EdgeError> {
    let read = |row: PgRow| {
        Ok(Stored { version: row.try_get(0)?, public: row.try_get(1)?, sealed: row.try_get(2)? })
    };
    let rows = sqlx::query(sql::SECRETS).bind(kind).bind(id).fetch_all(pool).await?;
    rows.into_iter().map(read).collect()
}

/// Stores a secret where there is none: whoever comes second uses the first one's.
async fn put(
    pool: &PgPool,
    vault: &Vault,
    place: Place<'_>,
    public: &[u8],
    secret: &[u8],
) -> Result<(), EdgeError> {
    let mut connection = pool.acquire().await?;
    let sealed = vault.seal_for(&mut connection, Owner::Platform, place, secret).await?;
    let query = sqlx::query(sql::PUT_SECRET).bind(place.kind).bind(place.id).bind(place.version);
    query.bind(public).bind(sealed).execute(&mut *connection).await?;
    Ok(())
}
