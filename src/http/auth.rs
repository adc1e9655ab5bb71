//! Who a request is from. Everything behind `/api` needs a caller; a token is looked up by the hash of what is shown.
//!
//! A look-up is kept for at most [`KEEP_MAX`], and for less when anything about users, tokens or tenants happens:
//! this process forgets everything at once after its own such mutation ([`Identity::forget`]), and a follower of the
//! log does so for what other processes append. So a revoked token works nowhere for longer than [`KEEP_MAX`], and not
//! for one more request where it was revoked.

use axum::extract::{FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use headwater_events::actor::{self, Access, Actor, ActorKind, Caller, Resource, Verb};
use headwater_events::admin::needed;
use headwater_events::ids::{Position, TokenId, UserId};
use headwater_events::time::Timestamp;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::Problem;
use super::policy;
use super::rate::Limiter;
use crate::app::App;
use crate::query::accounts::{self, Holder};
use crate::token::{self, TokenHash};

/// How long a look-up is believed.
pub const KEEP_MAX: Duration = Duration::from_secs(1);
/// Look-ups that are kept, at most.
const KEPT_MAX_COUNT: usize = 10_000;
/// Pause between two looks at what others append: many events cost one look.
const FOLLOW_PAUSE: Duration = Duration::from_millis(50);

/// A caller that has shown a valid token. Made only here.
#[derive(Debug, Clone)]
pub struct Authenticated {
    /// Who, with the rights held now.
    pub caller: Caller,
    /// When the token stops working.
    pub expires_at: Option<Timestamp>,
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

/// Finds the holder of a token.
#[derive(Clone)]
pub struct Identity(Arc<Shared>);

struct Shared {
    app: App,
    version: AtomicU64,
    kept: Mutex<HashMap<TokenHash, Kept>>,
}

impl Identity {
    /// Starts it, with its follower, which ends with the process.
    pub fn start(app: App) -> Self {
        let identity =
            Self(Arc::new(Shared { app: app.clone(), version: AtomicU64::new(0), kept: Mutex::default() }));
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

    /// The caller behind a request.
    ///
    /// # Errors
    /// 401, or 503 when nobody can be looked up.
    pub async fn authenticate(&self, headers: &HeaderMap) -> Result<Authenticated, Problem> {
        let Some(shown) = headers.get(header::AUTHORIZATION) else {
            return Err(Problem::unauthenticated("show a token: Authorization: Bearer hw_…"));
        };
        let refused = || Problem::unauthenticated("the token is unknown, revoked or expired");
        let shown = shown.to_str().map_err(|_| refused())?;
        let hash = match shown.split_once(' ') {
            Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => token::hash(token.trim()),
            _ => None,
        };
        let hash = hash.ok_or_else(refused)?;
        let holder = self.holder(hash).await?.ok_or_else(refused)?;
        if holder.expires_at.is_some_and(|at| at <= self.0.app.clock.now()) {
            return Err(refused());
        }
        Ok(authenticated(&holder))
    }

    async fn holder(&self, hash: TokenHash) -> Result<Option<Holder>, Problem> {
        let version = self.0.version.load(Ordering::Acquire);
        {
            let kept = self.0.kept.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(found) = kept.get(&hash)
                && found.version == version
                && found.at.elapsed() < KEEP_MAX
            {
                return Ok(Some(found.holder.clone()));
            }
        }
        let at = Instant::now();
        let found = accounts::holder(&self.0.app.pool, hash).await?;
        let mut kept = self.0.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(holder) = &found {
            if kept.len() >= KEPT_MAX_COUNT {
                kept.clear();
            }
            kept.insert(hash, Kept { holder: holder.clone(), version, at });
        } else {
            kept.remove(&hash);
        }
        Ok(found)
    }
}

fn authenticated(holder: &Holder) -> Authenticated {
    let kind = if holder.admin { ActorKind::Operator } else { ActorKind::User };
    let actor = Actor { kind, id: holder.user.as_uuid(), token: Some(holder.token), on_behalf_of: None };
    let caller = Caller {
        tenants: holder.tenants.clone(),
        domains: holder.domains.clone(),
        scopes: holder.scopes.clone(),
        ..Caller::new(actor, holder.admin)
    };
    Authenticated { caller, expires_at: holder.expires_at }
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

/// The layer: who it is, then whether it may ask again already, then whether the route is for it at all, then the route.
pub async fn layer(State(gate): State<Gate>, mut request: Request, next: Next) -> Response {
    let caller = match gate.identity.authenticate(request.headers()).await {
        Ok(caller) => caller,
        Err(problem) => return problem.into_response(),
    };
    let permit = policy::permit(&caller.caller, request.method(), request.extensions().get());
    let allowance = gate.limiter.ask(&caller.caller, request.method(), Instant::now());
    let mut response = match &allowance {
        Some(allowance) if allowance.is_refused() => allowance.problem().into_response(),
        _ if permit.is_err() => permit.into_response(),
        _ => {
            request.extensions_mut().insert(caller);
            request.extensions_mut().insert(gate.identity.clone());
            next.run(request).await
        }
    };
    if let Some(allowance) = allowance {
        allowance.show(response.headers_mut());
    }
    response
}
