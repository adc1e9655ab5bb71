//! How answers are kept: the policy of a domain, and purging everything that is kept, which raises the epoch that is
//! part of every key of the cache.

use super::PURGES_MAX_OUTSTANDING;
use super::decide::{Context, Decided, check, decided};
use super::origin::Faults;
use super::state::DomainView;
use crate::event::{Change, Event};
use crate::ids::PurgeId;
use crate::reject::{Fault, Reject};
use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;

/// Seconds to live, on an edge and in a browser.
pub const TTL_SECONDS: RangeInclusive<i64> = 0..=31_536_000;
/// The largest answer that is kept.
pub const OBJECT_BYTES: RangeInclusive<i64> = (1 << 20)..=(1 << 30);
/// How long a stale answer may be given.
pub const STALE_SECONDS: RangeInclusive<i64> = 0..=86_400;

/// What a policy will hold one day; until then it is refused by name.
pub const UNSUPPORTED_FIELDS: [&str; 8] = [
    "query_policy",
    "query_parameters",
    "bypass_cookie_names",
    "status_ttl_seconds",
    "admission_requests",
    "mode",
    "maximum_variants",
    "development_mode",
];

/// How answers are kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CachePolicy {
    /// Whether anything is kept.
    pub enabled: bool,
    /// How long on an edge.
    pub edge_ttl_seconds: u32,
    /// How long in a browser.
    pub browser_ttl_seconds: u32,
    /// Whether the origin's `Cache-Control` comes first.
    pub respect_origin_headers: bool,
    /// The largest answer that is kept.
    pub maximum_object_bytes: u64,
    /// How long a stale answer stands in for an error.
    pub stale_if_error_seconds: u32,
    /// How long a stale answer is given while a fresh one is fetched.
    pub stale_while_revalidate_seconds: u32,
}

impl Default for CachePolicy {
    fn default() -> Self {
        Self {
            enabled: true,
            edge_ttl_seconds: 3_600,
            browser_ttl_seconds: 300,
            respect_origin_headers: true,
            maximum_object_bytes: 100 << 20,
            stale_if_error_seconds: 60,
            stale_while_revalidate_seconds: 30,
        }
    }
}

/// What is sent for one field: absent leaves it, none gives it its default back (RFC 7396).
pub type Patched<T> = Option<Option<T>>;

/// A policy as it was sent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CachePatch {
    /// Whether anything is kept.
    pub enabled: Patched<bool>,
    /// Seconds.
    pub edge_ttl_seconds: Patched<i64>,
    /// Seconds.
    pub browser_ttl_seconds: Patched<i64>,
    /// Whether the origin's `Cache-Control` comes first.
    pub respect_origin_headers: Patched<bool>,
    /// Octets.
    pub maximum_object_bytes: Patched<i64>,
    /// Seconds.
    pub stale_if_error_seconds: Patched<i64>,
    /// Seconds.
    pub stale_while_revalidate_seconds: Patched<i64>,
}

/// What a purge takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PurgeScope {
    /// Everything that is kept of the domain.
    All,
}

/// Something that is kept must not be given any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PurgeRequested {
    /// Which purge.
    pub purge: PurgeId,
    /// What it takes.
    #[serde(rename = "type")]
    pub scope: PurgeScope,
    /// The epoch that it ended.
    pub before: u64,
    /// The epoch that it began.
    pub after: u64,
}

impl CachePatch {
    /// The policy with the patch merged in.
    fn merged(&self, now: &CachePolicy, faults: &mut Vec<Fault>) -> CachePolicy {
        let default = CachePolicy::default();
        let mut at = Faults { base: String::new(), found: faults };
        let flag = |patched: Patched<bool>, now, default| patched.map_or(now, |sent| sent.unwrap_or(default));
        let mut seconds = |field, patched: Patched<i64>, range, now: u32, default: u32| match patched {
            None => now,
            Some(sent) => at.within(field, sent, range, default),
        };
        let (edge, browser) = (self.edge_ttl_seconds, self.browser_ttl_seconds);
        let edge_ttl_seconds =
            seconds("edge_ttl_seconds", edge, &TTL_SECONDS, now.edge_ttl_seconds, default.edge_ttl_seconds);
        let browser_ttl_seconds = seconds(
            "browser_ttl_seconds",
            browser,
            &TTL_SECONDS,
            now.browser_ttl_seconds,
            default.browser_ttl_seconds,
        );
        let stale_if_error_seconds = seconds(
            "stale_if_error_seconds",
            self.stale_if_error_seconds,
            &STALE_SECONDS,
            now.stale_if_error_seconds,
            default.stale_if_error_seconds,
        );
        let stale_while_revalidate_seconds = seconds(
            "stale_while_revalidate_seconds",
            self.stale_while_revalidate_seconds,
            &STALE_SECONDS,
            now.stale_while_revalidate_seconds,
            default.stale_while_revalidate_seconds,
        );
        let maximum_object_bytes = match self.maximum_object_bytes {
            None => now.maximum_object_bytes,
            Some(sent) => {
                at.within("maximum_object_bytes", sent, &OBJECT_BYTES, default.maximum_object_bytes)
            }
        };
        CachePolicy {
            enabled: flag(self.enabled, now.enabled, default.enabled),
            edge_ttl_seconds,
            browser_ttl_seconds,
            respect_origin_headers: flag(
                self.respect_origin_headers,
                now.respect_origin_headers,
                default.respect_origin_headers,
            ),
            maximum_object_bytes,
            stale_if_error_seconds,
            stale_while_revalidate_seconds,
        }
    }
}

/// Decides `PATCH` on the policy.
pub(super) fn patch(view: &DomainView, patch: &CachePatch, context: &Context<'_>) -> Result<Decided, Reject> {
    let site = &view.site;
    check(context.precondition, Some(site.cache_changed))?;
    let mut faults = Vec::new();
    let after = patch.merged(&site.cache, &mut faults);
    if !faults.is_empty() {
        return Err(Reject::Invalid(faults));
    }
    if after == site.cache {
        return Ok(Decided::Unchanged { revision: view.state.revision });
    }
    let event = Event::CacheChanged(Change { before: site.cache.clone(), after });
    Ok(Decided::Changed(decided(view, vec![event], view.state.status.is_served(), context)))
}

/// Decides a purge of everything.
pub(super) fn purge(view: &DomainView, purge: PurgeId, context: &Context<'_>) -> Result<Decided, Reject> {
    check(context.precondition, Some(view.state.revision))?;
    let site = &view.site;
    if site.purges_outstanding >= PURGES_MAX_OUTSTANDING {
        return Err(Reject::Conflict {
            code: "too_many_purges",
            detail: format!(
                "{} purges of {} have not ended, the limit of {PURGES_MAX_OUTSTANDING}: wait until they have",
                site.purges_outstanding, view.state.name
            ),
        });
    }
    let event = Event::PurgeRequested(PurgeRequested {
        purge,
        scope: PurgeScope::All,
        before: site.cache_epoch,
        after: site.cache_epoch + 1,
    });
    Ok(Decided::Changed(decided(view, vec![event], view.state.status.is_served(), context)))
}
