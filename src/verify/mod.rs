//! Whose a domain is, and whether its parent still sends the world here.
//!
//! One replica at a time, by a lease, looks at what is due: `ask` puts the questions to the servers of the parent and to
//! those that have authority now, `judge` says what their answers prove, and only what that changes becomes an event. What
//! was seen, and when the next look is, stands beside the log.
//!
//! What must hold: nothing is served before a proof, and none comes from servers of the platform itself; answers that are
//! missing, or that differ, prove nothing and end nothing; losing a delegation never ends the serving.

mod ask;
mod judge;
pub mod sql;

pub use judge::{Delegation, Found, Said, delegation, shown};

use chrono::{DateTime, Utc};
use futures_util::{StreamExt, stream};
use headwater_events::actor::Caller;
use headwater_events::admin::{AdminCommand, OwnedDomain};
use headwater_events::dns::DomainName;
use headwater_events::domain::{DomainCommand, Proof, name_key};
use headwater_events::event::DomainStatus;
use headwater_events::ids::{DomainId, Position, TenantId};
use headwater_events::time::Timestamp;
use sqlx::Row;
use sqlx::postgres::{PgPool, PgRow};
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

use crate::app::App;
use crate::command::{Command, Meta, SubmitError};
use crate::deploy::{DeployError, Lease};
use crate::pace::doubled;

/// How often it is looked for what is due.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// The lease of the one that looks.
const LEASE_NAME: &str = "verification";
/// Domains of one look.
const DUE_MAX_DOMAINS: i64 = 128;
/// Domains that are asked about at once.
const ASKED_MAX_DOMAINS: usize = 16;
/// Domains that one look gives up.
const EXPIRED_MAX_DOMAINS: i64 = 100;
/// The pauses between looks while ownership is to be proven: the first, and what they double up to.
const PENDING_PAUSE: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(3_600));
/// The pause between looks at a domain that is served.
const ACTIVE_PAUSE: Duration = Duration::from_secs(86_400);
/// The same where the last look told nothing.
const UNKNOWN_PAUSE: Duration = Duration::from_secs(3_600);
/// By how much a pause varies, as a part of it.
const JITTER: f64 = 0.1;
/// How soon after one another somebody may ask for a look.
pub const ASK_PAUSE: Duration = Duration::from_secs(10);

/// Why a look came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// The database does not answer.
    #[error("the control database did not answer: {0}")]
    Database(#[from] sqlx::Error),
    /// The lease cannot be had.
    #[error(transparent)]
    Lease(#[from] DeployError),
    /// The log did not take what was decided.
    #[error(transparent)]
    Submit(#[from] SubmitError),
}

/// A domain that is looked at.
#[derive(Debug, Clone)]
pub(crate) struct Due {
    pub(crate) id: DomainId,
    pub(crate) name: DomainName,
    pub(crate) tenant: TenantId,
    pub(crate) status: DomainStatus,
    lost: bool,
    attempts: i32,
    seen_ok: bool,
}

/// What a look came to.
struct Look {
    found: Found,
    detail: String,
    proof: Option<Proof>,
}

/// Runs until the process stops.
pub async fn run(app: App) {
    let mut lease = Lease::new(LEASE_NAME.to_owned());
    let mut sown = None;
    while !app.stop.is_cancelled() {
        let more = match turn(&app, &mut lease, &mut sown).await {
            Ok(more) => more,
            Err(error) => {
                tracing::warn!(%error, "the verification of domains waits");
                false
            }
        };
        if !more {
            tokio::select! {
                () = app.stop.cancelled() => {}
                () = tokio::time::sleep(LOOK_INTERVAL) => {}
            }
        }
    }
    lease.end(&app.pool).await;
}

/// One look; says whether more is due.
async fn turn(app: &App, lease: &mut Lease, sown: &mut Option<Position>) -> Result<bool, VerifyError> {
    if !lease.keep(&app.pool).await? {
        *sown = None;
        return Ok(false);
    }
    let now = app.clock.now();
    sow(app, sown, now).await?;
    expire(app, now).await?;
    let Some(resolver) = app.config.dns.resolver else { return Ok(false) };
    let due = due(&app.pool, now).await?;
    if due.is_empty() {
        return Ok(false);
    }
    let more = i64::try_from(due.len()).unwrap_or(0) >= DUE_MAX_DOMAINS;
    let asker = Arc::new(ask::Asker::new(app, resolver).await?);
    let looks = due.into_iter().map(|one| look(app.clone(), asker.clone(), one));
    let mut looks = stream::iter(looks).buffer_unordered(ASKED_MAX_DOMAINS);
    while let Some(looked) = looks.next().await {
        if let Err(error) = looked {
            tracing::warn!(%error, "what was seen of a domain could not be noted; it is looked at again");
        }
        if app.stop.is_cancelled() {
            return Ok(false);
        }
    }
    Ok(more)
}

/// Gives every domain that is to be looked at a row. The whole table is compared once; from then on the log tells.
async fn sow(app: &App, sown: &mut Option<Position>, now: Timestamp) -> Result<(), VerifyError> {
    let head = *app.commit.head().subscribe().borrow();
    if sown.is_some_and(|sown| sown >= head) {
        return Ok(());
    }
    let now: DateTime<Utc> = now.into();
    let spread = ACTIVE_PAUSE.as_secs_f64();
    match sown {
        None => sqlx::query(sql::SOW).bind(now).bind(spread).execute(&app.pool).await?,
        Some(after) => {
            sqlx::query(sql::SOW_SINCE)
                .bind(now)
                .bind(after.get())
                .bind(head.get())
                .execute(&app.pool)
                .await?
        }
    };
    *sown = Some(head);
    Ok(())
}

/// Gives up what waited too long.
async fn expire(app: &App, now: Timestamp) -> Result<(), VerifyError> {
    let waited = i64::try_from(headwater_events::domain::PENDING_MAX.as_millis()).unwrap_or(i64::MAX);
    let before: DateTime<Utc> = Timestamp::from_millis(now.as_millis() - waited).into();
    let query = sqlx::query_scalar::<_, String>(sql::EXPIRED).bind(before).bind(EXPIRED_MAX_DOMAINS);
    for name in query.fetch_all(&app.pool).await? {
        let Ok(name) = DomainName::parse(&name) else { continue };
        submit(app, Command::Domain { name, command: DomainCommand::Expire }).await?;
    }
    Ok(())
}

/// Submits what follows from a look. Where the domain is another one by now, nothing follows.
async fn submit(app: &App, command: Command) -> Result<(), VerifyError> {
    match app.commit.submit(Caller::system(), command, Meta::internal()).await {
        Ok(_) | Err(SubmitError::Rejected(_)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

async fn due(pool: &PgPool, now: Timestamp) -> Result<Vec<Due>, VerifyError> {
    let now: DateTime<Utc> = now.into();
    sqlx::query(sql::FORGET).bind(now).bind(DUE_MAX_DOMAINS).execute(pool).await?;
    let rows = sqlx::query(sql::DUE).bind(now).bind(DUE_MAX_DOMAINS).fetch_all(pool).await?;
    Ok(rows.iter().map(read).collect::<Result<_, _>>()?)
}

fn read(row: &PgRow) -> Result<Due, sqlx::Error> {
    let odd = |column: &str| sqlx::Error::ColumnDecode {
        index: column.to_owned(),
        source: "a value that this program never writes".into(),
    };
    Ok(Due {
        id: DomainId::from_uuid(row.try_get(0)?),
        name: DomainName::parse(row.try_get(1)?).map_err(|_| odd("name"))?,
        tenant: TenantId::from_uuid(row.try_get(2)?),
        status: DomainStatus::from_name(row.try_get(3)?).ok_or_else(|| odd("status"))?,
        lost: row.try_get(4)?,
        attempts: row.try_get(5)?,
        seen_ok: row.try_get(6)?,
    })
}

/// Looks at one domain, and carries out what follows.
async fn look(app: App, asker: Arc<ask::Asker>, due: Due) -> Result<(), VerifyError> {
    let (app, asker, due, begun) = (&app, asker.as_ref(), &due, app.clock.now());
    let look = match due.status {
        DomainStatus::PendingVerification => proof(app, asker, due).await?,
        _ => {
            let found = asker.delegation(&due.name).await;
            Look { found: found.found(), detail: found.to_string(), proof: None }
        }
    };
    metrics::counter!("cdn_verification_looks_total", "result" => look.found.name()).increment(1);
    if let Some(proof) = look.proof {
        let command = DomainCommand::Activate(proof);
        submit(app, Command::Domain { name: due.name.clone(), command }).await?;
    } else if due.status == DomainStatus::Active {
        let lost = match look.found {
            // What was never here cannot be lost.
            Found::Elsewhere => (due.seen_ok && !due.lost).then_some(true),
            Found::Ok => due.lost.then_some(false),
            Found::NotProven | Found::Unknown => None,
        };
        if let Some(lost) = lost {
            let domain = OwnedDomain { id: due.id, name: due.name.clone(), tenant: due.tenant };
            let detail = look.detail.clone();
            submit(app, Command::admin(AdminCommand::RecordDelegation { domain, lost, detail })).await?;
        }
    }
    note(app, due, &look, begun).await
}

/// Notes what was seen, and when the next look is.
async fn note(app: &App, due: &Due, look: &Look, begun: Timestamp) -> Result<(), VerifyError> {
    let now = app.clock.now();
    let tries = u32::try_from(due.attempts).unwrap_or(0);
    let pause = match (due.status, look.proof, look.found) {
        (DomainStatus::PendingVerification, None, _) => doubled(PENDING_PAUSE.0, PENDING_PAUSE.1, tries),
        (_, _, Found::Unknown) => UNKNOWN_PAUSE,
        _ => ACTIVE_PAUSE,
    };
    let pause = pause.mul_f64(1.0 - JITTER + 2.0 * JITTER * rand::random::<f64>());
    let (next, now): (DateTime<Utc>, DateTime<Utc>) = (now.plus(pause).into(), now.into());
    let query = sqlx::query(sql::NOTE).bind(due.id.as_uuid()).bind(now).bind(next);
    let query = query.bind(look.found.name()).bind(&look.detail).bind(DateTime::<Utc>::from(begun));
    query.execute(&app.pool).await?;
    Ok(())
}

/// Whether a domain is its owner's.
async fn proof(app: &App, asker: &ask::Asker, due: &Due) -> Result<Look, VerifyError> {
    let proven = |proof, detail: String| Look { found: Found::Ok, detail, proof: Some(proof) };
    let open = |found, detail| Look { found, detail, proof: None };
    let above: Vec<String> = due.name.ancestors().map(|name| name_key(&name)).collect();
    let row = sqlx::query(sql::ABOVE).bind(above).fetch_optional(&app.pool).await?;
    if let Some(row) = row {
        let name: String = row.try_get(0)?;
        let is_own = TenantId::from_uuid(row.try_get::<Uuid, _>(1)?) == due.tenant;
        if is_own && row.try_get::<bool, _>(2)? {
            return Ok(proven(Proof::Parent, format!("{name}, above it, has the same owner and is active")));
        }
    }
    let found = asker.delegation(&due.name).await;
    let taken_back = if matches!(found, Delegation::Ours(_)) {
        let query = sqlx::query_scalar::<_, bool>(sql::SERVED_BEFORE).bind(due.name.as_str());
        query.bind(due.id.as_uuid()).bind(due.tenant.as_uuid()).fetch_one(&app.pool).await?
    } else {
        false
    };
    if !taken_back && matches!(found, Delegation::Ours(_)) {
        return Ok(proven(Proof::Delegation, found.to_string()));
    }
    let detail = if taken_back {
        format!(
            "{found}; but it was served here for somebody else before, whose delegation this may be: it takes the TXT \
             record at other name servers, or an administrator"
        )
    } else {
        found.to_string()
    };
    match asker.challenge(due, &found).await {
        Ok(shown) => Ok(proven(Proof::Txt, shown)),
        Err(Some(missing)) => Ok(open(Found::NotProven, format!("{detail}; {missing}"))),
        Err(None) if found.found() == Found::Unknown => Ok(open(Found::Unknown, detail)),
        Err(None) => Ok(open(Found::NotProven, detail)),
    }
}

/// Asks for a look at a domain now; says how long to wait first where somebody asked a moment ago.
///
/// # Errors
/// When the database does not answer.
pub async fn ask_now(app: &App, domain: DomainId) -> Result<Result<(), Duration>, sqlx::Error> {
    let now = app.clock.now();
    let pause = i64::try_from(ASK_PAUSE.as_millis()).unwrap_or(0);
    let since: DateTime<Utc> = Timestamp::from_millis(now.as_millis() - pause).into();
    let at: DateTime<Utc> = now.into();
    let query = sqlx::query_scalar::<_, DateTime<Utc>>(sql::ASK).bind(domain.as_uuid()).bind(at).bind(since);
    let asked = Timestamp::from(query.fetch_one(&app.pool).await?);
    if asked == Timestamp::from(at) {
        return Ok(Ok(()));
    }
    Ok(Err(Duration::from_millis(u64::try_from(asked.plus(ASK_PAUSE).millis_since(now)).unwrap_or(0))))
}
