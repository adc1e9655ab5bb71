//! Logging in and out. A session is no event: what the access log says of it stands beside the log.
//!
//! What must hold: whoever has no password here waits as long as whoever has another one; a session that was shown ends
//! when the next one begins; the secret of a session is in its cookie and nowhere else.

pub mod cookie;
mod own;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use headwater_events::ids::UserId;
use std::time::Duration;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::auth::{Authenticated, Identity, entry};
use super::body::{self, NoBody};
use super::dto::person::{LoggedIn, Login};
use super::query::{NoQuery, Query};
use super::{Problem, envelope};
use crate::app::App;
use crate::people::password::PasswordError;
use crate::people::rate;
use crate::people::seen::{Entry, Kind};
use crate::people::session::{self, NewSession, SessionId, SessionSecret};
use crate::query::accounts;

/// Octets of the body of a login, at most.
const LOGIN_MAX_BYTES: usize = 8_192;
/// When to come again after too many passwords waited.
const BUSY_RETRY: Duration = Duration::from_secs(1);

const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// The routes of this folder that need a caller.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(logout)).merge(own::routes())
}

/// The route that needs none.
pub fn open() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(login))
}

impl From<PasswordError> for Problem {
    fn from(error: PasswordError) -> Self {
        if !matches!(error, PasswordError::Busy) {
            tracing::error!(%error, "a password could not be checked");
        }
        Self::unavailable(error.to_string()).retry_after(BUSY_RETRY)
    }
}

/// Takes one try of whoever asks; 429 when there is none.
async fn take_try(app: &App, address: &str, who: &str) -> Result<(), Response> {
    let quota = app.config.accounts.logins_per_minute;
    let wait = rate::take(&app.pool, address, who, quota).await;
    let Some(wait) = wait.map_err(|error| Problem::from(error).into_response())? else { return Ok(()) };
    let detail = format!("more than {quota} tries to log in within a minute");
    let problem = Problem::new(StatusCode::TOO_MANY_REQUESTS, "rate_limited", detail).retry_after(wait);
    let mut response = problem.into_response();
    show_rate(response.headers_mut(), quota, wait);
    Err(response)
}

fn show_rate(headers: &mut HeaderMap, quota: u32, wait: Duration) {
    let rows = [
        (RATE_LIMIT_POLICY, format!("\"logins\";q={quota};w=60")),
        (RATE_LIMIT, format!("\"logins\";r=0;t={}", wait.as_secs())),
    ];
    for (name, text) in rows {
        if let Ok(value) = HeaderValue::try_from(text) {
            headers.insert(name, value);
        }
    }
}

/// Log in with a mail address and a password: a session, as a cookie, and the token that its unsafe requests show in
/// `X-CSRF-Token`. A session that was shown ends.
#[utoipa::path(post, path = "/api/auth/login", tag = "self", request_body = Login,
    responses((status = 200, body = LoggedIn)))]
async fn login(
    State(app): State<App>,
    Extension(identity): Extension<Identity>,
    _: Query<NoQuery>,
    request: Request,
) -> Result<Response, Response> {
    let (parts, body) = request.into_parts();
    cookie::same_site(&parts.headers, &parts.uri).map_err(IntoResponse::into_response)?;
    let sent = body::json(&parts.headers, body, LOGIN_MAX_BYTES).await;
    let asked = sent.and_then(body::read::<Login>).map_err(IntoResponse::into_response)?;
    let address = envelope::client(&parts).map(|client| client.ip).unwrap_or_default();
    take_try(&app, &address, asked.email.as_str()).await?;
    let entry = entry(Kind::LoginFailed, &parts);
    let begun = begin(&app, &identity, asked, entry).await;
    let (user, secret) = begun.map_err(IntoResponse::into_response)?;
    if let Some(Ok(earlier)) = cookie::shown(&parts.headers) {
        let candidates = identity.keys().candidates(&earlier.digest());
        let ended = session::end_stored(&app.pool, &candidates).await;
        ended.map_err(|error| Problem::from(error).into_response())?;
        identity.forget();
    }
    answer(&app, user, &secret).await.map_err(IntoResponse::into_response)
}

/// Checks the password and begins the session.
async fn begin(
    app: &App,
    identity: &Identity,
    asked: Login,
    entry: Entry,
) -> Result<(UserId, SessionSecret), Problem> {
    let found = session::verifier(&app.pool, asked.email.as_str()).await?;
    let (user, verifier) = found.map_or((None, None), |(user, verifier)| (Some(user), verifier));
    let is_right = app.passwords.verify(asked.password, verifier.clone()).await?;
    let refused = |entry: Entry| {
        identity.note(Entry { user, ..entry });
        Problem::unauthenticated("the mail address or the password is wrong")
    };
    let (true, Some(user), Some(verifier)) = (is_right, user, verifier) else { return Err(refused(entry)) };
    let secret = SessionSecret::generate();
    let new = NewSession {
        id: SessionId(Uuid::now_v7()),
        user,
        verifier,
        stored: identity.keys().stored(&secret.digest()),
        now: app.clock.now(),
        life: app.config.accounts.session,
    };
    let line = Entry { kind: Kind::Login, user: Some(user), ..entry.clone() };
    if !session::begin(&app.pool, &new, &line).await? {
        return Err(refused(entry));
    }
    Ok((user, secret))
}

async fn answer(app: &App, user: UserId, secret: &SessionSecret) -> Result<Response, Problem> {
    let user = accounts::user(&app.pool, user).await?;
    let user = user.ok_or_else(|| Problem::unauthenticated("the user is gone"))?;
    let life = app.config.accounts.session;
    let mut response = Json(LoggedIn::new(user, &secret.csrf(), app.clock.now().plus(life))).into_response();
    cookie::set(response.headers_mut(), secret, life);
    Ok(response)
}

/// Log out: the session ends at once.
#[utoipa::path(post, path = "/api/auth/logout", tag = "self", responses((status = 204)))]
async fn logout(
    State(app): State<App>,
    Extension(identity): Extension<Identity>,
    auth: Authenticated,
    _: Query<NoQuery>,
    request: Request,
) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    let sent = body::json(&parts.headers, body, LOGIN_MAX_BYTES).await?;
    let NoBody = body::read::<NoBody>(sent)?;
    let Some(open) = &auth.session else {
        let detail =
            "this request shows a token, which is no session: revoke it where it is not needed any more";
        return Err(Problem::new(StatusCode::CONFLICT, "no_session", detail));
    };
    session::end(&app.pool, open.id).await?;
    identity.forget();
    identity.note(Entry { user: auth.caller.user(), ..entry(Kind::Logout, &parts) });
    let mut response = StatusCode::NO_CONTENT.into_response();
    cookie::clear(response.headers_mut());
    Ok(response)
}
