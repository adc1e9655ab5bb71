//! Local passwords: Argon2id, off the async threads, a few at a time. A password of nobody takes as long as a wrong one,
//! because it is hashed too.

use argon2::{Algorithm, Argon2, Params, Version};
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use headwater_events::reject::Fault;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use subtle::ConstantTimeEq;
use tokio::sync::Semaphore;
use zeroize::Zeroizing;

use crate::secret::Secret;

/// Characters of a password, at least.
pub const PASSWORD_MIN_CHARS: usize = 12;
/// Characters of a password, at most.
pub const PASSWORD_MAX_CHARS: usize = 256;
/// Memory of one hash (OWASP's first choice for Argon2id).
pub const HASH_MEMORY_KIB: u32 = 19_456;
/// Passes over that memory.
const HASH_PASSES: u32 = 2;
/// Hashes of one process at once: each takes a core and its memory.
const HASHES_MAX_COUNT: usize = 2;
/// Hashes that may wait; the next is refused.
pub const WAITING_MAX_COUNT: usize = 32;
/// Octets of a salt.
const SALT_BYTES: usize = 16;
/// Octets of a hash.
const HASH_BYTES: usize = 32;

/// Why a password was not hashed.
#[derive(Debug, thiserror::Error)]
pub enum PasswordError {
    /// Too many wait.
    #[error("too many passwords are being checked: try again")]
    Busy,
    /// What is stored is none of ours, or the library failed.
    #[error("a password cannot be checked: {0}")]
    Broken(&'static str),
}

/// Every fault of a password that somebody wants to have.
pub fn faults(pointer: &str, password: &Secret) -> Vec<Fault> {
    let mut faults = Vec::new();
    let count = password.expose().chars().count();
    if count < PASSWORD_MIN_CHARS {
        let detail = format!("a password has at least {PASSWORD_MIN_CHARS} characters");
        faults.push(Fault::at(pointer, "password_too_short", detail));
    }
    if count > PASSWORD_MAX_CHARS {
        let detail = format!("a password has at most {PASSWORD_MAX_CHARS} characters");
        faults.push(Fault::at(pointer, "password_too_long", detail));
    }
    if password.expose().chars().any(char::is_control) {
        let detail = "a password holds no control characters: many keyboards cannot write them";
        faults.push(Fault::at(pointer, "password_control_character", detail));
    }
    let mut chars = password.expose().chars();
    let first = chars.next();
    if first.is_some() && chars.all(|next| Some(next) == first) {
        faults.push(Fault::at(
            pointer,
            "password_one_character",
            "a password is more than one character repeated",
        ));
    }
    faults
}

/// Hashes passwords for one process.
#[derive(Clone)]
pub struct Passwords(Arc<Shared>);

struct Shared {
    turns: Arc<Semaphore>,
    places: Arc<Semaphore>,
    done: AtomicU64,
}

impl Default for Passwords {
    fn default() -> Self {
        let bound = |count| Arc::new(Semaphore::new(count));
        let (turns, places) = (bound(HASHES_MAX_COUNT), bound(WAITING_MAX_COUNT));
        Self(Arc::new(Shared { turns, places, done: AtomicU64::new(0) }))
    }
}

impl Passwords {
    /// How many hashes were made so far.
    pub fn done(&self) -> u64 {
        self.0.done.load(Ordering::Relaxed)
    }

    /// What is stored for a password.
    ///
    /// # Errors
    /// When too many wait.
    pub async fn hash(&self, password: Secret) -> Result<Secret, PasswordError> {
        self.turn(move || hash_now(&password)).await
    }

    /// Whether a password is the one of a verifier. Without one it is not, after as much work.
    ///
    /// # Errors
    /// When too many wait.
    pub async fn verify(&self, password: Secret, verifier: Option<Secret>) -> Result<bool, PasswordError> {
        self.turn(move || verify_now(&password, verifier.as_ref())).await
    }

    async fn turn<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, PasswordError> + Send + 'static,
    ) -> Result<T, PasswordError> {
        let place = self.0.places.clone().try_acquire_owned().map_err(|_| PasswordError::Busy)?;
        let turn = self.0.turns.clone().acquire_owned().await.map_err(|_| PasswordError::Busy)?;
        let shared = self.0.clone();
        let work = tokio::task::spawn_blocking(move || {
            // The work goes on where whoever asked has gone, and so it keeps its place and its turn.
            let _held = (place, turn);
            shared.done.fetch_add(1, Ordering::Relaxed);
            work()
        });
        work.await.map_err(|_| PasswordError::Broken("the work broke off"))?
    }
}

/// What is stored for a password, on this thread.
///
/// # Errors
/// When the library fails.
pub fn hash_now(password: &Secret) -> Result<Secret, PasswordError> {
    let salt: [u8; SALT_BYTES] = rand::random();
    let hash = work(password, &salt, HASH_MEMORY_KIB, HASH_PASSES)?;
    let (salt, hash) = (STANDARD_NO_PAD.encode(salt), STANDARD_NO_PAD.encode(hash.as_slice()));
    Ok(Secret::new(format!("$argon2id$v=19$m={HASH_MEMORY_KIB},t={HASH_PASSES},p=1${salt}${hash}")))
}

fn verify_now(password: &Secret, verifier: Option<&Secret>) -> Result<bool, PasswordError> {
    let Some(verifier) = verifier else {
        work(password, &[0; SALT_BYTES], HASH_MEMORY_KIB, HASH_PASSES)?;
        return Ok(false);
    };
    let stored = Stored::read(verifier.expose()).ok_or(PasswordError::Broken("what is stored is no hash"))?;
    let hash = work(password, &stored.salt, stored.memory, stored.passes)?;
    Ok(hash.as_slice().ct_eq(&stored.hash).into())
}

/// A hash in its text form, taken apart.
struct Stored {
    memory: u32,
    passes: u32,
    salt: Vec<u8>,
    hash: Vec<u8>,
}

impl Stored {
    fn read(text: &str) -> Option<Self> {
        let mut parts = text.strip_prefix("$argon2id$v=19$")?.split('$');
        let (costs, salt, hash) = (parts.next()?, parts.next()?, parts.next()?);
        let mut costs = costs.split(',');
        let mut cost = |name: &str| costs.next()?.strip_prefix(name)?.parse::<u32>().ok();
        let (memory, passes, lanes) = (cost("m=")?, cost("t=")?, cost("p=")?);
        let (salt, hash) = (STANDARD_NO_PAD.decode(salt).ok()?, STANDARD_NO_PAD.decode(hash).ok()?);
        (parts.next().is_none() && lanes == 1).then_some(Self { memory, passes, salt, hash })
    }
}

fn work(
    password: &Secret,
    salt: &[u8],
    memory: u32,
    passes: u32,
) -> Result<Zeroizing<[u8; HASH_BYTES]>, PasswordError> {
    let failed = |_| PasswordError::Broken("the library refused");
    let params = Params::new(memory, passes, 1, Some(HASH_BYTES)).map_err(failed)?;
    let mut hash = Zeroizing::new([0; HASH_BYTES]);
    Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
        .hash_password_into(password.expose().as_bytes(), salt, hash.as_mut_slice())
        .map_err(failed)?;
    Ok(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(text: &str) -> Secret {
        Secret::new(text.to_owned())
    }

    #[tokio::test]
    async fn a_password_opens_its_own_hash_alone() {
        let passwords = Passwords::default();
        let stored = passwords.hash(secret("correct horse battery")).await.unwrap_or_else(|e| panic!("{e}"));
        assert!(stored.expose().starts_with("$argon2id$v=19$m=19456,t=2,p=1$"));
        let right = passwords.verify(secret("correct horse battery"), Some(stored.clone())).await;
        assert!(right.unwrap_or_else(|e| panic!("{e}")));
        assert!(!passwords.verify(secret("correct horse batterz"), Some(stored)).await.unwrap_or(true));
        assert!(!passwords.verify(secret("correct horse battery"), None).await.unwrap_or(true));
        assert_eq!(passwords.done(), 4, "nobody's password is hashed too");
        let broken = passwords.verify(secret("x"), Some(secret("$argon2id$v=19$m=8"))).await;
        assert!(matches!(broken, Err(PasswordError::Broken(_))));
    }

    #[test]
    fn the_text_form_is_that_of_others() {
        let stored = hash_now(&secret("x")).unwrap_or_else(|e| panic!("{e}"));
        let read =
            Stored::read(stored.expose()).map(|stored| (stored.memory, stored.passes, stored.salt.len()));
        assert_eq!(read, Some((19_456, 2, 16)));
        for bad in ["", "$argon2i$v=19$m=8,t=1,p=1$c2FsdA$aGFzaA", "$argon2id$v=19$m=8,t=1,p=2$c2FsdA$aGFzaA"]
        {
            assert!(Stored::read(bad).is_none(), "{bad}");
        }
    }

    #[tokio::test]
    async fn whoever_goes_away_does_not_make_room_for_more_work() {
        let passwords = Passwords::default();
        let (go_on, wait) = std::sync::mpsc::channel::<()>();
        let (began, begun) = tokio::sync::oneshot::channel();
        {
            let mut asked = std::pin::pin!(passwords.turn(move || {
                let _told = began.send(());
                let _gone = wait.recv();
                Ok(())
            }));
            assert!(futures_util::poll!(asked.as_mut()).is_pending());
        }
        assert!(begun.await.is_ok());
        let free = || (passwords.0.turns.available_permits(), passwords.0.places.available_permits());
        assert_eq!(free(), (HASHES_MAX_COUNT - 1, WAITING_MAX_COUNT - 1), "the work goes on");
        drop(go_on);
        let all = u32::try_from(HASHES_MAX_COUNT).unwrap_or(u32::MAX);
        assert!(passwords.0.turns.acquire_many(all).await.is_ok(), "it ended, and has let go");
    }

    #[tokio::test]
    async fn more_than_may_wait_are_refused() {
        let passwords = Passwords::default();
        let tries = (0..WAITING_MAX_COUNT + 8).map(|_| passwords.verify(secret("x"), None));
        let ends = futures_util::future::join_all(tries).await;
        let busy = ends.iter().filter(|end| matches!(end, Err(PasswordError::Busy))).count();
        assert_eq!(busy, 8);
        assert!(matches!(passwords.verify(secret("x"), None).await, Ok(false)), "then there is room again");
    }

    #[test]
    fn every_fault_is_named() {
        let codes = |text: &str| -> Vec<&str> {
            faults("/password", &secret(text)).iter().map(|fault| fault.code).collect()
        };
        assert_eq!(codes(&"ä".repeat(11)), ["password_too_short", "password_one_character"]);
        assert_eq!(codes("short\n"), ["password_too_short", "password_control_character"]);
        assert_eq!(codes(""), ["password_too_short"]);
        assert_eq!(codes(&"ab".repeat(129)), ["password_too_long"]);
        assert!(codes(&"äb".repeat(128)).is_empty());
        assert!(codes("twelve chars").is_empty());
    }
}
