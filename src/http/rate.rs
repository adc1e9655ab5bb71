//! How much one account may ask for: a token bucket each for reads and mutations, filled evenly, in the memory of this
//! process, which gives its share of what all processes give together. Administrators have none.

use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use headwater_events::actor::Caller;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use uuid::Uuid;

use super::Problem;
use crate::config::Limits;
use crate::replicas::Replicas;

/// The window that a quota is for.
const WINDOW: Duration = Duration::from_secs(60);
/// Accounts that are remembered, at most; those whose buckets are full again go first.
const BUCKETS_MAX_COUNT: usize = 100_000;

const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// Which quota a request counts against.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Reads,
    Writes,
}

#[derive(Debug, Clone, Copy)]
struct Bucket {
    left: f64,
    at: Instant,
}

/// The buckets of this process.
#[derive(Debug, Clone)]
pub struct Limiter(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    reads: u32,
    writes: u32,
    replicas: Replicas,
    buckets: Mutex<HashMap<(Uuid, Kind), Bucket>>,
}

/// What an account was given for one request.
#[derive(Debug, Clone, Copy)]
pub struct Allowance {
    kind: Kind,
    quota: u32,
    left: f64,
}

impl Limiter {
    /// Buckets of the configured sizes.
    pub fn new(limits: &Limits, replicas: Replicas) -> Self {
        let (reads, writes) = (limits.reads_per_minute, limits.mutations_per_minute);
        Self(Arc::new(Shared { reads, writes, replicas, buckets: Mutex::default() }))
    }

    /// Takes one request out of its account's bucket; none for those that have no bucket.
    pub fn ask(&self, caller: &Caller, method: &Method, now: Instant) -> Option<Allowance> {
        // Also with a token that is limited.
        if caller.admin {
            return None;
        }
        // Members of one tenant share; somebody in none or several stands alone.
        let mut tenants = caller.tenants.keys();
        let account = match (tenants.next(), tenants.next()) {
            (Some(only), None) => only.as_uuid(),
            _ => caller.actor.id,
        };
        let kind = if method.is_safe() { Kind::Reads } else { Kind::Writes };
        let quota = self.0.replicas.share(if kind == Kind::Reads { self.0.reads } else { self.0.writes });
        let full = f64::from(quota);
        let mut buckets = self.0.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.len() >= BUCKETS_MAX_COUNT {
            buckets.retain(|_, bucket| now.saturating_duration_since(bucket.at) < WINDOW);
        }
        let bucket = buckets.entry((account, kind)).or_insert(Bucket { left: full, at: now });
        let since = now.saturating_duration_since(bucket.at).as_secs_f64();
        bucket.left = (bucket.left + since * full / WINDOW.as_secs_f64()).min(full);
        bucket.at = now;
        let left = bucket.left - 1.0;
        if left >= 0.0 {
            bucket.left = left;
        }
        Some(Allowance { kind, quota, left })
    }
}

impl Allowance {
    /// Whether the bucket was empty.
    pub fn is_refused(&self) -> bool {
        self.left < 0.0
    }

    fn policy(&self) -> &'static str {
        if self.kind == Kind::Reads { "reads" } else { "writes" }
    }

    /// Seconds until so much has been filled in.
    fn seconds_for(&self, amount: f64) -> u64 {
        Duration::try_from_secs_f64((amount * WINDOW.as_secs_f64() / f64::from(self.quota)).ceil())
            .map_or(WINDOW.as_secs(), |wait| wait.as_secs())
    }

    /// 429.
    pub fn problem(&self) -> Problem {
        let detail = format!("more than {} {} in {} s", self.quota, self.policy(), WINDOW.as_secs());
        let wait = Duration::from_secs(self.seconds_for(-self.left).max(1));
        Problem::new(StatusCode::TOO_MANY_REQUESTS, "rate_limited", detail).retry_after(wait)
    }

    /// Says what is left, as draft-ietf-httpapi-ratelimit-headers has it.
    pub fn show(&self, headers: &mut HeaderMap) {
        let (policy, quota) = (self.policy(), self.quota);
        let left = self.left.max(0.0).floor();
        let reset = self.seconds_for(f64::from(quota) - left);
        let rows = [
            (RATE_LIMIT_POLICY, format!("\"{policy}\";q={quota};w={}", WINDOW.as_secs())),
            (RATE_LIMIT, format!("\"{policy}\";r={left};t={reset}")),
        ];
        for (name, text) in rows {
            if let Ok(value) = HeaderValue::try_from(text) {
                headers.insert(name, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_events::actor::{Actor, ActorKind};

    #[test]
    fn a_bucket_empties_and_fills() {
        let replicas = Replicas::default();
        let shared = Shared { reads: 60, writes: 2, replicas, buckets: Mutex::default() };
        let limiter = Limiter(Arc::new(shared));
        let actor = Actor { kind: ActorKind::User, id: Uuid::from_u128(1), token: None, on_behalf_of: None };
        let user = Caller::new(actor, false);
        let now = Instant::now();
        let ask = |at: Instant| limiter.ask(&user, &Method::PUT, at).unwrap();
        assert!(!ask(now).is_refused() && !ask(now).is_refused());
        let refused = ask(now);
        assert!(refused.is_refused());
        assert_eq!(refused.seconds_for(-refused.left), 30);
        assert!(!limiter.ask(&user, &Method::GET, now).unwrap().is_refused());
        assert!(!ask(now + Duration::from_secs(31)).is_refused());
        assert!(limiter.ask(&Caller::system(), &Method::PUT, now).is_none());
    }
}
