//! `POST /register`: an identity for a token, or the next one for a live identity.
//!
//! What must hold: a token gives one certificate, whoever asks how often and wherever it breaks off; it is good for the
//! keys that it was first used with, until the first heartbeat; the row of the token is the lock under which identities
//! are given and taken, so that what was revoked meanwhile gives nothing.

use headwater_edge_wire::ids::EdgeId;
use headwater_edge_wire::protocol::{RegisterAnswer, RegisterRequest};
use headwater_edge_wire::time::Timestamp as WireTime;
use headwater_edge_wire::token::BootstrapToken;
use headwater_events::admin::AdminCommand;
use headwater_events::edge::{EdgeCommand, IdentityIssued};
use headwater_events::ids::EdgeId as LogEdge;
use headwater_events::time::Timestamp;
use sqlx::Row;
use sqlx::postgres::PgConnection;
use std::time::{Duration, Instant};
use subtle::ConstantTimeEq;

use super::csr::{self, EdgePublicKey};
use super::peer::{Live, Peer, caller};
use super::routes::Control;
use super::{EdgeError, answers, keys, sql};
use crate::command::{Aside, Command, Meta};
use crate::http::Problem;

/// Registrations that are worked on at once by one process.
pub(super) const REGISTRATIONS_MAX_COUNT: usize = 4;
/// What the digest of the keys that a token was taken by is derived under.
const TAKEN_LABEL: &str = "headwater 2026-11 edge token taken by v1";
/// A day.
const DAY: Duration = Duration::from_secs(86_400);

/// An identity as it stands in the database.
struct Given {
    serial: Vec<u8>,
    key: Vec<u8>,
    certificate: String,
    not_after: Timestamp,
    recorded: bool,
}

/// Registers an edge, or renews its identity.
pub(super) async fn register(
    control: &Control,
    peer: &Peer,
    request: RegisterRequest,
) -> Result<RegisterAnswer, Problem> {
    let now = Instant::now();
    let renewal = match &request.token {
        Some(_) => {
            control.registrations.take(peer.counted(), now).map_err(answers::too_often)?;
            None
        }
        None => {
            let live = Live::of(&control.app.pool, peer).await?;
            if live.edge != request.edge {
                return Err(answers::refused("other_edge", "this identity is that of another edge"));
            }
            control.requests.take(live.edge, now).map_err(answers::too_often)?;
            control.renewals.take(live.edge, now).map_err(answers::too_often)?;
            Some(live)
        }
    };
    let key = csr::read(&request.csr, request.edge).map_err(|fault| {
        Problem::new(axum::http::StatusCode::UNPROCESSABLE_ENTITY, fault.code(), fault.to_string())
    })?;
    let ended = |_| Problem::unavailable("the process is stopping");
    let _turn = control.registering.acquire().await.map_err(ended)?;
    let (given, cells) = match (&renewal, &request.token) {
        (Some(live), _) => (renew(control, live, &request, &key).await?, live.cells),
        (None, Some(token)) => {
            let token = BootstrapToken::parse(token).map_err(|_| token_refused())?;
            enrol(control, &request, &token.stored(request.edge), &key).await?
        }
        (None, None) => return Err(token_refused()),
    };
    record(control, peer, &request, &given).await?;
    metrics::counter!("cdn_edge_registrations_total").increment(1);
    fail::fail_point!("enroll.reply");
    let not_after = WireTime::from_millis(given.not_after.as_millis());
    Ok(RegisterAnswer {
        edge: request.edge,
        certificate: format!("{}{}", given.certificate, control.authority.pem()),
        not_after,
        authorities: control.authority.pem(),
        keys: control.app.signer.known(&control.app).await?.ring().clone(),
        cells,
        heartbeat_seconds: control.app.config.edge_control.heartbeat_seconds,
    })
}

fn token_refused() -> Problem {
    answers::refused(
        "token_refused",
        "the token is unknown, has expired, or was used with other keys or long ago: ask for a new one",
    )
}

/// The identity that a token gives: the one it has given, or a new one.
async fn enrol(
    control: &Control,
    request: &RegisterRequest,
    token: &[u8; 32],
    key: &EdgePublicKey,
) -> Result<(Given, u8), Problem> {
    let edge = request.edge;
    fail::fail_point!("enroll.token_take");
    let mut tx = control.app.pool.begin().await?;
    let row = sqlx::query(sql::LOCK_TOKEN).bind(edge.as_uuid()).fetch_optional(&mut *tx).await?;
    let row = row.ok_or_else(token_refused)?;
    let (hash, is_timely): (Vec<u8>, bool) = (row.try_get(0)?, row.try_get(1)?);
    let (taken_by, is_void): (Option<Vec<u8>>, bool) = (row.try_get(2)?, row.try_get(3)?);
    let by = taken_by_digest(request, key);
    let is_right = bool::from(hash.as_slice().ct_eq(token.as_slice()));
    if !is_right || !is_timely || is_void || taken_by.is_some_and(|taken| taken != by) {
        return Err(token_refused());
    }
    let cells = enabled_cells(&mut tx, edge).await?;
    if let Some(given) = given_for(&mut tx, edge, token).await? {
        return if given.key == key.digest() { Ok((given, cells)) } else { Err(token_refused()) };
    }
    sqlx::query(sql::TAKE_TOKEN).bind(edge.as_uuid()).bind(by.as_slice()).execute(&mut *tx).await?;
    let given = issue(control, &mut tx, request, key, Some(token)).await?;
    keys::new_content_key(&mut tx, &control.vault, edge).await?;
    tx.commit().await?;
    fail::fail_point!("enroll.store");
    Ok((given, cells))
}

/// The next identity, for one that still counts under the lock.
async fn renew(
    control: &Control,
    live: &Live,
    request: &RegisterRequest,
    key: &EdgePublicKey,
) -> Result<Given, Problem> {
    let mut tx = control.app.pool.begin().await?;
    sqlx::query(sql::LOCK_TOKEN).bind(live.edge.as_uuid()).fetch_optional(&mut *tx).await?;
    let is_live: bool = sqlx::query_scalar(sql::IS_LIVE).bind(&live.serial).fetch_one(&mut *tx).await?;
    if !is_live {
        return Err(answers::refused(
            "identity_revoked",
            "this identity was revoked: register with a new token",
        ));
    }
    enabled_cells(&mut tx, live.edge).await?;
    let given = issue(control, &mut tx, request, key, None).await?;
    tx.commit().await?;
    Ok(given)
}

async fn enabled_cells(connection: &mut PgConnection, edge: EdgeId) -> Result<u8, Problem> {
    let found: Option<(bool, i16)> =
        sqlx::query_as(sql::EDGE).bind(edge.as_uuid()).fetch_optional(connection).await?;
    match found {
        Some((true, cells)) => Ok(u8::try_from(cells).map_err(|_| EdgeError::Odd("number of cells"))?),
        Some((false, _)) => Err(answers::refused("edge_disabled", "the edge is disabled: enable it first")),
        None => Err(token_refused()),
    }
}

async fn given_for(
    connection: &mut PgConnection,
    edge: EdgeId,
    token: &[u8; 32],
) -> Result<Option<Given>, Problem> {
    let query = sqlx::query(sql::GIVEN).bind(edge.as_uuid()).bind(token.as_slice());
    let Some(row) = query.fetch_optional(connection).await? else { return Ok(None) };
    let not_after: chrono::DateTime<chrono::Utc> = row.try_get(3)?;
    Ok(Some(Given {
        serial: row.try_get(0)?,
        key: row.try_get(1)?,
        certificate: row.try_get(2)?,
        not_after: not_after.into(),
        recorded: row.try_get(4)?,
    }))
}

async fn issue(
    control: &Control,
    connection: &mut PgConnection,
    request: &RegisterRequest,
    key: &EdgePublicKey,
    token: Option<&[u8; 32]>,
) -> Result<Given, Problem> {
    let life = DAY.saturating_mul(control.app.config.edge_control.identity_days);
    let issued = control.authority.issue(request.edge, key, control.app.clock.now(), life)?;
    fail::fail_point!("enroll.sign");
    let sealing_key: String = request.sealing_key.into();
    let not_after: chrono::DateTime<chrono::Utc> = issued.not_after.into();
    let query = sqlx::query(sql::PUT_IDENTITY).bind(issued.serial.as_slice()).bind(request.edge.as_uuid());
    let query =
        query.bind(key.digest().as_slice()).bind(sealing_key).bind(token.map(|token| token.as_slice()));
    query.bind(&issued.certificate).bind(not_after).execute(connection).await?;
    Ok(Given {
        serial: issued.serial.to_vec(),
        key: key.digest().to_vec(),
        certificate: issued.certificate,
        not_after: issued.not_after,
        recorded: false,
    })
}

/// Has the log tell of an identity, once: also of one whose first answer was lost before that.
async fn record(
    control: &Control,
    peer: &Peer,
    request: &RegisterRequest,
    given: &Given,
) -> Result<(), Problem> {
    if given.recorded {
        return Ok(());
    }
    let issued = IdentityIssued {
        serial: hex::encode(&given.serial),
        key: hex::encode(&given.key),
        not_after: given.not_after,
    };
    let edge = LogEdge::from_uuid(request.edge.as_uuid());
    let command = AdminCommand::Edge { edge, command: EdgeCommand::RecordIdentity(issued) };
    let aside = Aside::EdgeIdentity { serial: given.serial.clone() };
    let meta = Meta { client: Some(peer.client(&request.agent.version)), ..Meta::internal() };
    // One at a time: two that were decided together would both be told.
    let _one = control.recording.lock().await;
    control.app.commit.submit(caller(request.edge), Command::Admin { command, aside }, meta).await?;
    Ok(())
}

/// Both keys: with another one of either, the token is somebody else's.
fn taken_by_digest(request: &RegisterRequest, key: &EdgePublicKey) -> Vec<u8> {
    let mut hasher = blake3::Hasher::new_derive_key(TAKEN_LABEL);
    hasher.update(key.digest()).update(request.sealing_key.as_bytes());
    hasher.finalize().as_bytes().to_vec()
}
