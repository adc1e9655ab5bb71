//! What is seen of callers and written later: when tokens and sessions were used, and who was turned away.
//!
//! What must hold: nothing of it is in a request's way; a token is written at most once a minute; a flood is a number in
//! a row, and rows of a minute are bounded, so that nobody can fill the disk. What a process has not written when it is
//! killed is lost: a few seconds of it.

use chrono::{DateTime, Utc};
use headwater_events::ids::{TokenId, UserId};
use headwater_events::time::Timestamp;
use sqlx::postgres::PgPool;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use uuid::Uuid;

use super::session::SessionId;
use super::sql;
use crate::app::App;

/// Pause between two writes.
pub const WRITE_INTERVAL: Duration = Duration::from_secs(2);
/// How often the use of one token or session is noted.
const USE_INTERVAL: Duration = Duration::from_secs(60);
/// Tokens and sessions that are remembered, at most.
const USES_MAX_COUNT: usize = 50_000;
/// Rows of the access log that one process makes in a minute, at most; the rest of a kind is one more row.
pub const ROWS_MAX_PER_MINUTE: usize = 500;
/// Pause between two removals of what is too old.
const FORGET_INTERVAL: Duration = Duration::from_secs(60);
/// Rows that are removed in one go.
const FORGET_MAX_ROWS: i64 = 10_000;
/// Characters of a text that are kept.
const TEXT_MAX_CHARS: usize = 256;

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Somebody logged in.
    Login,
    /// Somebody tried to log in.
    LoginFailed,
    /// Somebody logged out.
    Logout,
    /// A token or a session was shown that does not count, 401.
    Denied,
    /// Something was asked that the caller may not do, 403.
    Forbidden,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 5] = [Self::Login, Self::LoginFailed, Self::Logout, Self::Denied, Self::Forbidden];

    /// The name in the API and in the database.
    pub fn name(self) -> &'static str {
        match self {
            Self::Login => "login",
            Self::LoginFailed => "login_failed",
            Self::Logout => "logout",
            Self::Denied => "denied",
            Self::Forbidden => "forbidden",
        }
    }

    /// The kind with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// One line of the access log before it is counted.
#[derive(Debug, Clone)]
pub struct Entry {
    /// What happened.
    pub kind: Kind,
    /// Who, where that is known.
    pub user: Option<UserId>,
    /// With which token.
    pub token: Option<TokenId>,
    /// From which address.
    pub ip: Option<String>,
    /// With which program.
    pub agent: Option<String>,
    /// On which route.
    pub route: Option<String>,
}

impl Entry {
    /// What a line of one caller and kind has in common.
    pub fn digest(&self) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new_derive_key("headwater 2026-12 access log v1");
        let (user, token) = (self.user.map(UserId::as_uuid), self.token.map(TokenId::as_uuid));
        for part in [
            self.kind.name().as_bytes(),
            user.unwrap_or_default().as_bytes(),
            token.unwrap_or_default().as_bytes(),
            self.ip.as_deref().unwrap_or_default().as_bytes(),
        ] {
            hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
        }
        *hasher.finalize().as_bytes()
    }

    /// The line of all of a kind that there was no row for.
    fn others(kind: Kind) -> Self {
        Self { kind, user: None, token: None, ip: None, agent: None, route: None }
    }
}

struct Row {
    entry: Entry,
    times: i64,
    first: DateTime<Utc>,
    last: DateTime<Utc>,
}

#[derive(Default)]
struct Noted {
    noted: HashMap<Uuid, Instant>,
    tokens: HashMap<Uuid, DateTime<Utc>>,
    sessions: HashMap<Uuid, DateTime<Utc>>,
    minute: i64,
    in_minute: HashSet<[u8; 32]>,
    rows: HashMap<(i64, [u8; 32]), Row>,
}

impl Noted {
    /// Whether it is time to note this one.
    fn is_due(&mut self, id: Uuid, at: Instant) -> bool {
        if self.noted.get(&id).is_some_and(|noted| at.saturating_duration_since(*noted) < USE_INTERVAL) {
            return false;
        }
        if self.noted.len() >= USES_MAX_COUNT {
            self.noted.retain(|_, noted| at.saturating_duration_since(*noted) < USE_INTERVAL);
            if self.noted.len() >= USES_MAX_COUNT {
                return false;
            }
        }
        self.noted.insert(id, at);
        true
    }
}

/// What one process has seen and not written yet.
#[derive(Clone, Default)]
pub struct Seen(Arc<Mutex<Noted>>);

impl Seen {
    /// Starts the writer, which ends with the process.
    pub fn start(app: &App) -> Self {
        let seen = Self::default();
        tokio::spawn(seen.clone().run(app.clone()));
        seen
    }

    /// A token was used.
    pub fn token(&self, id: TokenId, now: Timestamp) {
        let mut noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if noted.is_due(id.as_uuid(), Instant::now()) {
            noted.tokens.insert(id.as_uuid(), now.into());
        }
    }

    /// A session was used.
    pub fn session(&self, id: SessionId, now: Timestamp) {
        let mut noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if noted.is_due(id.0, Instant::now()) {
            noted.sessions.insert(id.0, now.into());
        }
    }

    /// Somebody was turned away, or came and went.
    pub fn access(&self, mut entry: Entry, now: Timestamp) {
        let at: DateTime<Utc> = now.into();
        let minute = at.timestamp() / 60;
        let mut noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if noted.minute != minute {
            noted.minute = minute;
            noted.in_minute.clear();
        }
        let mut digest = entry.digest();
        if !noted.in_minute.contains(&digest) && noted.in_minute.len() >= ROWS_MAX_PER_MINUTE {
            entry = Entry::others(entry.kind);
            digest = entry.digest();
        } else {
            noted.in_minute.insert(digest);
        }
        for text in [&mut entry.agent, &mut entry.route] {
            *text = text.take().map(|text| text.chars().take(TEXT_MAX_CHARS).collect());
        }
        let row = noted.rows.entry((minute, digest)).or_insert(Row { entry, times: 0, first: at, last: at });
        row.times += 1;
        row.last = row.last.max(at);
    }

    async fn run(self, app: App) {
        let mut forgot = Instant::now();
        loop {
            tokio::select! {
                () = app.stop.cancelled() => {
                    self.write(&app.pool).await;
                    return;
                }
                () = tokio::time::sleep(WRITE_INTERVAL) => {}
            }
            self.write(&app.pool).await;
            if forgot.elapsed() >= FORGET_INTERVAL {
                forgot = Instant::now();
                if let Err(error) = forget(&app).await {
                    tracing::warn!(%error, "what is too old of the access log is removed later");
                }
            }
        }
    }

    /// Writes what was seen. What cannot be written is lost: it must not pile up.
    pub async fn write(&self, pool: &PgPool) {
        let (tokens, sessions, rows) = {
            let mut noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let noted = &mut *noted;
            (
                std::mem::take(&mut noted.tokens),
                std::mem::take(&mut noted.sessions),
                std::mem::take(&mut noted.rows),
            )
        };
        let written = async {
            uses(pool, sql::USE_TOKENS, tokens).await?;
            uses(pool, sql::USE_SESSIONS, sessions).await?;
            access(pool, rows.into_iter().map(|((_, digest), row)| (digest, row)).collect()).await
        };
        if let Err(error) = written.await {
            tracing::warn!(%error, "what was seen of callers could not be written, and is lost");
        }
    }
}

async fn uses(
    pool: &PgPool,
    statement: &'static str,
    uses: HashMap<Uuid, DateTime<Utc>>,
) -> Result<(), sqlx::Error> {
    if uses.is_empty() {
        return Ok(());
    }
    let (ids, times): (Vec<Uuid>, Vec<DateTime<Utc>>) = uses.into_iter().unzip();
    sqlx::query(statement).bind(ids).bind(times).execute(pool).await.map(|_| ())
}

async fn access(pool: &PgPool, rows: Vec<([u8; 32], Row)>) -> Result<(), sqlx::Error> {
    if rows.is_empty() {
        return Ok(());
    }
    fn column<T>(rows: &[([u8; 32], Row)], value: impl Fn(&[u8; 32], &Row) -> T) -> Vec<T> {
        rows.iter().map(|(digest, row)| value(digest, row)).collect()
    }
    sqlx::query(sql::LOG_ACCESS)
        .bind(column(&rows, |digest, _| digest.to_vec()))
        .bind(column(&rows, |_, row| row.entry.kind.name()))
        .bind(column(&rows, |_, row| row.entry.user.map(UserId::as_uuid)))
        .bind(column(&rows, |_, row| row.entry.token.map(TokenId::as_uuid)))
        .bind(column(&rows, |_, row| row.entry.ip.clone()))
        .bind(column(&rows, |_, row| row.entry.agent.clone()))
        .bind(column(&rows, |_, row| row.entry.route.clone()))
        .bind(column(&rows, |_, row| row.times))
        .bind(column(&rows, |_, row| row.first))
        .bind(column(&rows, |_, row| row.last))
        .execute(pool)
        .await
        .map(|_| ())
}

/// Removes what is too old.
///
/// # Errors
/// When the database does not answer.
pub async fn forget(app: &App) -> Result<(), sqlx::Error> {
    let now = app.clock.now();
    let kept = DateTime::<Utc>::from(now) - app.config.accounts.access_log;
    sqlx::query(sql::FORGET_ACCESS).bind(kept).bind(FORGET_MAX_ROWS).execute(&app.pool).await?;
    sqlx::query(sql::FORGET_SESSIONS)
        .bind(DateTime::<Utc>::from(now))
        .bind(FORGET_MAX_ROWS)
        .execute(&app.pool)
        .await?;
    sqlx::query(sql::FORGET_RATES).bind(FORGET_MAX_ROWS).execute(&app.pool).await.map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denied(ip: usize) -> Entry {
        Entry { ip: Some(format!("192.0.2.{ip}")), ..Entry::others(Kind::Denied) }
    }

    #[test]
    fn a_flood_is_a_number() {
        let seen = Seen::default();
        let now = Timestamp::from_millis(1_700_000_000_000);
        for n in 0..10_000 {
            seen.access(Entry { agent: Some(format!("agent {n}")), ..denied(1) }, now);
        }
        for n in 0..10_000 {
            seen.access(denied(n), now);
        }
        let noted = seen.0.lock().unwrap();
        assert_eq!(noted.rows.len(), ROWS_MAX_PER_MINUTE + 1);
        assert_eq!(noted.rows.values().map(|row| row.times).sum::<i64>(), 20_000);
        let others = &noted.rows[&(noted.minute, Entry::others(Kind::Denied).digest())];
        assert_eq!((others.times, &others.entry.ip), (10_000 - ROWS_MAX_PER_MINUTE as i64, &None));
    }

    #[test]
    fn a_use_is_noted_once_a_minute() {
        let mut noted = Noted::default();
        let (id, at) = (Uuid::from_u128(1), Instant::now());
        let asked = [0, 1, 59, 60, 61, 119, 120];
        let due = asked.map(|second| noted.is_due(id, at + Duration::from_secs(second)));
        assert_eq!(due, [true, false, false, true, false, false, true]);
        assert!(noted.is_due(Uuid::from_u128(2), at));
    }
}
