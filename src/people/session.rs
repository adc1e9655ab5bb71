//! Sessions: what the cookie of a browser holds, and the rows that stand for it.

use headwater_events::ids::UserId;
use headwater_events::time::Timestamp;
use sqlx::postgres::PgPool;
use std::time::Duration;
use subtle::ConstantTimeEq;
use uuid::Uuid;
use zeroize::Zeroizing;

use super::seen::Entry;
use super::sql;
use crate::secret::Secret;

/// The name of the cookie. The prefix makes browsers keep it to one host, one path and TLS.
pub const COOKIE: &str = "__Host-headwater";
/// Sessions of one user, at most; the oldest go first.
pub const SESSIONS_MAX_COUNT: i64 = 50;
/// What stands in the database for a session is derived under this.
const SESSION_LABEL: &str = "headwater 2026-12 session v1";
/// What every unsafe request must show besides the cookie is derived under this.
const CSRF_LABEL: &str = "headwater 2026-12 session csrf v1";

/// A session, as the database and its streams know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(pub Uuid);

/// What the cookie holds.
pub struct SessionSecret(Zeroizing<[u8; 32]>);

impl SessionSecret {
    /// A new one.
    pub fn generate() -> Self {
        Self(Zeroizing::new(rand::random()))
    }

    /// The one that a cookie holds; none for anything else.
    pub fn read(text: &str) -> Option<Self> {
        let mut bits = Zeroizing::new([0; 32]);
        hex::decode_to_slice(text, bits.as_mut_slice()).ok()?;
        Some(Self(bits))
    }

    /// For the cookie alone.
    pub fn text(&self) -> Secret {
        Secret::new(hex::encode(self.0.as_slice()))
    }

    /// What is looked up, before it is keyed.
    pub fn digest(&self) -> [u8; 32] {
        blake3::derive_key(SESSION_LABEL, self.0.as_slice())
    }

    /// What unsafe requests must show.
    pub fn csrf(&self) -> CsrfToken {
        CsrfToken(Secret::new(hex::encode(blake3::derive_key(CSRF_LABEL, self.0.as_slice()))))
    }
}

/// What an unsafe request of a session must show: other sites cannot read it, so they cannot send it.
#[derive(Clone)]
pub struct CsrfToken(Secret);

impl CsrfToken {
    /// For its owner.
    pub fn expose(&self) -> &str {
        self.0.expose()
    }

    /// Whether this is it.
    pub fn is(&self, shown: &[u8]) -> bool {
        self.0.expose().as_bytes().ct_eq(shown).into()
    }
}

/// The session that a request came with.
#[derive(Clone)]
pub struct OpenSession {
    /// Which.
    pub id: SessionId,
    /// When it ends, whatever happens.
    pub ends_at: Timestamp,
    /// What its unsafe requests must show.
    pub csrf: CsrfToken,
}

impl std::fmt::Debug for OpenSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("OpenSession").field(&self.id).finish()
    }
}

/// A session that begins.
pub struct NewSession {
    /// Which.
    pub id: SessionId,
    /// Whose.
    pub user: UserId,
    /// What was shown for it: it must still be what counts.
    pub verifier: Secret,
    /// What is stored of its secret.
    pub stored: [u8; 32],
    /// Now.
    pub now: Timestamp,
    /// How long it lives at most.
    pub life: Duration,
}

/// Begins a session, with its line in the access log; false when the user may not come in any more, or has another
/// password by now.
///
/// # Errors
/// When the database does not answer.
pub async fn begin(pool: &PgPool, new: &NewSession, entry: &Entry) -> Result<bool, sqlx::Error> {
    let now: chrono::DateTime<chrono::Utc> = new.now.into();
    let ends: chrono::DateTime<chrono::Utc> = new.now.plus(new.life).into();
    let begun = sqlx::query(sql::BEGIN)
        .bind(new.id.0)
        .bind(new.user.as_uuid())
        .bind(new.verifier.expose())
        .bind(new.stored.as_slice())
        .bind(now)
        .bind(ends)
        .bind(entry.digest().to_vec())
        .bind(entry.ip.as_deref())
        .bind(entry.agent.as_deref())
        .bind(entry.route.as_deref())
        .execute(pool)
        .await?;
    if begun.rows_affected() == 0 {
        return Ok(false);
    }
    sqlx::query(sql::KEEP_NEWEST).bind(new.user.as_uuid()).bind(SESSIONS_MAX_COUNT).execute(pool).await?;
    Ok(true)
}

/// Ends a session.
///
/// # Errors
/// When the database does not answer.
pub async fn end(pool: &PgPool, id: SessionId) -> Result<(), sqlx::Error> {
    sqlx::query(sql::END).bind(id.0).execute(pool).await.map(|_| ())
}

/// Ends the session of what is stored, if there is one.
///
/// # Errors
/// When the database does not answer.
pub async fn end_stored(pool: &PgPool, candidates: &[[u8; 32]]) -> Result<(), sqlx::Error> {
    let candidates: Vec<Vec<u8>> = candidates.iter().map(|one| one.to_vec()).collect();
    sqlx::query(sql::END_STORED).bind(candidates).execute(pool).await.map(|_| ())
}

/// Whether a session is still open.
///
/// # Errors
/// When the database does not answer.
pub async fn is_open(pool: &PgPool, id: SessionId) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar(sql::IS_OPEN).bind(id.0).fetch_one(pool).await
}

/// Who has this mail address, and what a password of theirs is checked against. Both are none where there is nothing.
///
/// # Errors
/// When the database does not answer.
pub async fn verifier(pool: &PgPool, email: &str) -> Result<Option<(UserId, Option<Secret>)>, sqlx::Error> {
    let found: Option<(Uuid, Option<String>)> =
        sqlx::query_as(sql::VERIFIER).bind(email).fetch_optional(pool).await?;
    Ok(found.map(|(user, text)| (UserId::from_uuid(user), text.map(Secret::new))))
}

/// What a password of this user is checked against.
///
/// # Errors
/// When the database does not answer.
pub async fn verifier_of(pool: &PgPool, user: UserId) -> Result<Option<Secret>, sqlx::Error> {
    let found: Option<String> =
        sqlx::query_scalar(sql::VERIFIER_OF).bind(user.as_uuid()).fetch_optional(pool).await?;
    Ok(found.map(Secret::new))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_told_by_its_cookie_alone() {
        let secret = SessionSecret::generate();
        let again = SessionSecret::read(secret.text().expose()).unwrap_or_else(|| panic!("no session"));
        assert_eq!(secret.digest(), again.digest());
        assert_eq!(secret.csrf().expose(), again.csrf().expose());
        assert_ne!(secret.csrf().expose(), SessionSecret::generate().csrf().expose());
        assert_ne!(secret.csrf().expose(), secret.text().expose());
        assert!(secret.csrf().is(again.csrf().expose().as_bytes()) && !secret.csrf().is(b""));
        for bad in ["", "00", "x", &"é".repeat(32), &"0".repeat(65)] {
            assert!(SessionSecret::read(bad).is_none(), "{bad}");
        }
    }
}
