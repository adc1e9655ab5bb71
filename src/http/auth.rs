//! Who a request is from. Everything behind `/api` needs a caller, who shows a token or the cookie of a session; either is
//! looked up by the keyed digest of what is shown, and gives the same kind of caller. A browser sends a cookie whoever
//! asked it to, so an unsafe request of a session must show that its own page sent it.
//!
//! A look-up is kept for at most [`KEEP_MAX`], and for less when anything about users, tokens or tenants happens:
//! this process forgets everything at once after its own such mutation ([`Identity::forget`]), and a follower of the
//! log does so for what other processes append. So a revoked token works nowhere for longer than [`KEEP_MAX`], and not
//! for one more request where it was revoked.

use axum::extract::{FromRequestParts, MatchedPath, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use headwater_events::actor::{self, Access, Actor, ActorKind, Caller, Resource, Verb};
use headwater_events::admin::needed;
use headwater_events::credential::Credential;
use headwater_events::ids::{Position, TokenId, UserId};
use headwater_events::people::TokenLimits;
use headwater_events::time::Timestamp;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::policy;
use super::rate::Limiter;
use super::session::cookie;
use super::{Problem, envelope};
use crate::app::App;
use crate::people::digest::{self, DigestKeys};
use crate::people::seen::{Entry, Kind, Seen};
use crate::people::session::{OpenSession, SessionSecret};
use crate::query::accounts::{self, Holder};
use crate::token;

/// How long a look-up is believed.
pub const KEEP_MAX: Duration = Duration::from_secs(1);
/// Look-ups that are kept, at most.
const KEPT_MAX_COUNT: usize = 10_000;
/// Pause between two looks at what others append: many events cost one look.
const FOLLOW_PAUSE: Duration = Duration::from_millis(50);
/// A day.
const DAY: Duration = Duration::from_secs(86_400);

/// A caller that has shown a valid token, or a session. Made only here.
#[derive(Debug, Clone)]
pub struct Authenticated {
    /// Who, with the rights held now.
    pub caller: Caller,
    /// When the token stops working.
    pub expires_at: Option<Timestamp>,
    /// The session, where that was shown.
    pub session: Option<OpenSession>,
}

impl Authenticated {
    /// Asks the policy.
    ///
    /// # Errors
    /// 403, or 404 for what the caller may not know of; `what` names it.
    pub fn may(
        &self,
        verb: Verb,
        resource: Resource<'_>,
        what: impl std::fmt::Display,
    ) -> Result<(), Problem> {
        match actor::decide(&self.caller, verb, resource) {
            Access::Granted => Ok(()),
            Access::Forbidden => Err(Problem::forbidden(needed(verb, resource))),
            Access::Hidden => Err(Problem::not_found(what)),
        }
    }

    /// The user behind the token.
    pub fn user(&self) -> UserId {
        UserId::from_uuid(self.caller.actor.id)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Authenticated {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        // Put there by the layer; a route outside of it has no callers.
        parts.extensions.get::<Self>().cloned().ok_or_else(|| Problem::unauthenticated("show a token"))
    }
}

struct Kept {
    holder: Holder,
    version: u64,
    at: Instant,
}

/// Why somebody is not let in.
pub struct Refused {
    /// What is answered.
    pub problem: Box<Problem>,
    /// Something that could be a token or a session was shown: worth a line in the access log.
    well_formed: bool,
    /// Whose it is, where that is known.
    whose: Option<(UserId, Option<TokenId>)>,
}

impl From<Problem> for Refused {
    fn from(problem: Problem) -> Self {
        Self { problem: problem.into(), well_formed: false, whose: None }
    }
}

/// What a request shows.
enum Shown {
    Token([u8; 32]),
    Session(SessionSecret, [u8; 32]),
}

impl Shown {
    /// What it shows; what is no token and no session is refused without a look-up.
    fn read(headers: &HeaderMap) -> Result<Self, Problem> {
        let mut shown = headers.get_all(header::AUTHORIZATION).iter();
        let (shown, another) = (shown.next(), shown.next());
        // Which of them counts would be another matter for a proxy than for us.
        if another.is_some() {
            return Err(Problem::malformed("show one token: Authorization stands here twice"));
        }
        if let Some(shown) = shown {
            let shown = shown.to_str().map_err(|_| unknown_token())?;
            let hash = match shown.split_once(' ') {
                Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => token::hash(token.trim()),
                _ => None,
            };
            return hash.map(|hash| Self::Token(*hash.bytes())).ok_or_else(unknown_token);
        }
        match cookie::shown(headers) {
            Some(Ok(secret)) => {
                let digest = secret.digest();
                Ok(Self::Session(secret, digest))
            }
            Some(Err(())) => Err(Problem::unauthenticated("the session is unknown or over: log in")),
            None => Err(Problem::unauthenticated("show a token: Authorization: Bearer hw_…, or log in")),
        }
    }

    fn digest(&self) -> &[u8; 32] {
        match self {
            Self::Token(digest) | Self::Session(_, digest) => digest,
        }
    }

    fn unknown(&self) -> Problem {
        match self {
            Self::Token(_) => unknown_token(),
            Self::Session(..) => Problem::unauthenticated("the session is unknown or over: log in"),
        }
    }
}

fn unknown_token() -> Problem {
    Problem::unauthenticated("the token is unknown, revoked or expired")
}

/// Finds the holder of a token.
#[derive(Clone)]
pub struct Identity(Arc<Shared>);

struct Shared {
    app: App,
    keys: DigestKeys,
    seen: Seen,
    version: AtomicU64,
    kept: Mutex<HashMap<[u8; 32], Kept>>,
}

impl Identity {
    /// Starts it, with its follower, which ends with the process.
    pub fn start(app: App) -> Self {
        let identity = Self(Arc::new(Shared {
            keys: app.digests.clone(),
            seen: Seen::start(&app),
            app: app.clone(),
            version: AtomicU64::new(0),
            kept: Mutex::default(),
        }));
        let follower = identity.clone();
        let stop = app.stop.clone();
        tokio::spawn(async move { stop.run_until_cancelled(follower.follow()).await });
        identity
    }

    /// Forgets every look-up: something about users, tokens or tenants has changed.
    pub fn forget(&self) {
        self.0.version.fetch_add(1, Ordering::Release);
    }

    async fn follow(self) {
        let mut head = self.0.app.commit.head().subscribe();
        let mut seen: Position = *head.borrow_and_update();
        loop {
            if head.changed().await.is_err() {
                return;
            }
            tokio::time::sleep(FOLLOW_PAUSE).await;
            let now = *head.borrow_and_update();
            match accounts::identity_moved(&self.0.app.pool, seen, now).await {
                Ok(false) => {}
                Ok(true) => self.forget(),
                Err(error) => {
                    // What is not known may have happened.
                    tracing::debug!(%error, "whether users or tokens changed cannot be read");
                    self.forget();
                }
            }
            seen = now;
        }
    }

    /// The keys under which what is shown is looked up.
    pub fn keys(&self) -> &DigestKeys {
        &self.0.keys
    }

    /// Notes something for the access log.
    pub fn note(&self, entry: Entry) {
        self.0.seen.access(entry, self.0.app.clock.now());
    }

    /// The caller behind a request that comes from this address.
    ///
    /// # Errors
    /// 401, or 503 when nobody can be looked up.
    pub async fn authenticate(
        &self,
        headers: &HeaderMap,
        address: Option<IpAddr>,
    ) -> Result<Authenticated, Refused> {
        let shown = Shown::read(headers)?;
        let Some(holder) = self.holder(&shown).await? else {
            return Err(Refused { problem: shown.unknown().into(), well_formed: true, whose: None });
        };
        let refused = |problem: Problem| Refused {
            problem: problem.into(),
            well_formed: true,
            whose: Some((holder.user, holder.token)),
        };
        let now = self.0.app.clock.now();
        let unused = match (&holder.session, holder.max_unused_days) {
            (Some(_), _) => Some(self.0.app.config.accounts.session_idle),
            (None, days) => days.map(|days| DAY.saturating_mul(days)),
        };
        let idle_end = unused.map(|unused| holder.used_at.plus(unused));
        if !holder.enabled || [holder.expires_at, idle_end].into_iter().flatten().any(|end| end <= now) {
            return Err(refused(shown.unknown()));
        }
        let is_inside = |address| holder.networks.iter().any(|network| network.holds(address));
        if !holder.networks.is_empty() && !address.is_some_and(is_inside) {
            return Err(refused(Problem::unauthenticated("the token does not work from this address")));
        }
        match (holder.token, holder.session) {
            (Some(token), _) => self.0.seen.token(token, now),
            (None, Some(session)) => self.0.seen.session(session, now),
            (None, None) => {}
        }
        Ok(authenticated(&holder, &shown))
    }

    async fn holder(&self, shown: &Shown) -> Result<Option<Holder>, Problem> {
        let version = self.0.version.load(Ordering::Acquire);
        let digest = *shown.digest();
        {
            let kept = self.0.kept.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(found) = kept.get(&digest)
                && found.version == version
                && found.at.elapsed() < KEEP_MAX
            {
                return Ok(Some(found.holder.clone()));
            }
        }
        let at = Instant::now();
        let candidates = self.0.keys.candidates(&digest);
        let (tokens, sessions): (&[_], &[_]) = match shown {
            Shown::Token(_) => (&candidates, &[]),
            Shown::Session(..) => (&[], &candidates),
        };
        let found = accounts::holder(&self.0.app.pool, tokens, sessions).await?;
        // The database has compared it already; this comparison takes as long for every other digest.
        let found = found.filter(|holder| digest::is_one_of(&candidates, &holder.stored));
        let mut kept = self.0.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(holder) = &found {
            if kept.len() >= KEPT_MAX_COUNT {
                kept.clear();
            }
            kept.insert(digest, Kept { holder: holder.clone(), version, at });
        } else {
            kept.remove(&digest);
        }
        Ok(found)
    }
}

fn authenticated(holder: &Holder, shown: &Shown) -> Authenticated {
    let kind = if holder.admin { ActorKind::Operator } else { ActorKind::User };
    let actor = Actor { kind, id: holder.user.as_uuid(), token: holder.token, on_behalf_of: None };
    // A session has no scopes: it may what its user may.
    let caller = Caller {
        tenants: holder.tenants.clone(),
        domains: holder.domains.clone(),
        scopes: holder.scopes.clone(),
        shown: credential(holder),
        ..Caller::new(actor, holder.admin)
    };
    let session = match (shown, holder.session, holder.expires_at) {
        (Shown::Session(secret, _), Some(id), Some(ends_at)) => {
            Some(OpenSession { id, ends_at, csrf: secret.csrf() })
        }
        _ => None,
    };
    Authenticated { caller, expires_at: holder.expires_at, session }
}

/// What a session is bounded to says nothing of the tokens that are made with it.
fn credential(holder: &Holder) -> Credential {
    let (session, rights) = (holder.session.map(|session| session.0), Some(holder.rights));
    if session.is_some() {
        return Credential { session, rights, ..Credential::default() };
    }
    let networks = holder.networks.clone();
    Credential {
        session,
        expires_at: holder.expires_at,
        limits: TokenLimits { max_unused_days: holder.max_unused_days, networks },
        managing: holder.managing.clone(),
        rights,
    }
}

/// The caller that a token's possession makes for one thing only: revoking it.
pub fn possessor(user: UserId, token: TokenId) -> Caller {
    let actor = Actor { kind: ActorKind::User, id: user.as_uuid(), token: Some(token), on_behalf_of: None };
    Caller::new(actor, false)
}

/// What stands before every route that needs a caller.
#[derive(Clone)]
pub struct Gate {
    /// Finds callers.
    pub identity: Identity,
    /// Bounds what they may ask.
    pub limiter: Limiter,
}

/// From where and on which route a request comes, for the access log.
pub fn entry(kind: Kind, request: &Parts) -> Entry {
    let client = envelope::client(request);
    let route =
        request.extensions.get::<MatchedPath>().map(|path| format!("{} {}", request.method, path.as_str()));
    let (ip, agent) = client.map(|client| (client.ip, client.agent)).unzip();
    Entry { kind, user: None, token: None, ip, agent, route }
}

/// Whether a request of this caller goes on to its route: a session's own page sent it, and the route is for the caller
/// at all.
fn permitted(caller: &Authenticated, parts: &Parts) -> Result<(), Problem> {
    if let Some(session) = caller.session.as_ref().filter(|_| !parts.method.is_safe()) {
        cookie::own_page(&parts.headers, &parts.uri, session)?;
    }
    policy::permit(&caller.caller, &parts.method, parts.extensions.get())
}

/// The layer: who it is, then whether it may ask again already, then whether its own page sent it and the route is for it
/// at all, then the route.
pub async fn layer(State(gate): State<Gate>, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    let address = envelope::client(&parts).and_then(|client| client.ip.parse().ok());
    let caller = match gate.identity.authenticate(&parts.headers, address).await {
        Ok(caller) => caller,
        Err(refused) => {
            if refused.well_formed {
                let (user, token) = refused.whose.unzip();
                gate.identity.note(Entry { user, token: token.flatten(), ..entry(Kind::Denied, &parts) });
            }
            return (*refused.problem).into_response();
        }
    };
    let forbidden = Entry {
        user: caller.caller.user(),
        token: caller.caller.actor.token,
        ..entry(Kind::Forbidden, &parts)
    };
    let permitted = permitted(&caller, &parts);
    let allowance = gate.limiter.ask(&caller.caller, &parts.method, Instant::now());
    let mut response = match (&allowance, permitted) {
        (Some(allowance), _) if allowance.is_refused() => allowance.problem().into_response(),
        (_, Err(problem)) => problem.into_response(),
        _ => {
            parts.extensions.insert(caller);
            parts.extensions.insert(gate.identity.clone());
            next.run(Request::from_parts(parts, body)).await
        }
    };
    if response.status() == StatusCode::FORBIDDEN {
        gate.identity.note(forbidden);
    }
    if let Some(allowance) = allowance {
        allowance.show(response.headers_mut());
    }
    response
}
